//! `fatflow run` on synthetic traffic: what it answers, what it writes, what it refuses.

use std::fs;
use std::process::{Command, Output};

const TRAFFIC: &str = r#"
name = "permutation"
[cluster]
gpus = 16
gpus_per_node = 1
nics_per_node = 1
[fabric]
topology = "fat-tree"
k = 4
[traffic]
pattern = "permutation"
"#;

fn run(bytes: &str, more: &[&str]) -> (Output, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("my.toml"), format!("{TRAFFIC}bytes = \"{bytes}\"\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
    command.args(["run", "my.toml"]).args(more).current_dir(folder.path());
    (command.output().unwrap(), folder)
}

/// Oracle: every flow arrives whole, on every engine, and none beats its wire.
#[test]
fn every_engine_delivers_every_flow() {
    for engine in ["analytic", "flow", "packet"] {
        let (output, folder) =
            run("1MiB", &["--json", "--engine", engine, "--flows-out", "flows.csv"]);
        assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["engine"], engine);
        let result = &answer["result"];
        assert_eq!((&result["flows"], &result["completed"]), (&16.into(), &16.into()), "{engine}");
        assert_eq!(result["bytes"], 16 << 20);
        // 1 MiB at 400 Gb/s takes 20.97 us without headers.
        assert!(20.9e-6 < result["fct_s"]["min"].as_f64().unwrap(), "{engine}");
        let flows = fs::read_to_string(folder.path().join("flows.csv")).unwrap();
        assert_eq!(flows.lines().count(), 17);
        assert!(flows.starts_with("flow,src,dst,bytes,start_ns,received_ns,finish_ns\n"));
    }
}

/// A run that would take hours is refused before it starts, with what to do instead.
#[test]
fn a_packet_run_of_hours_is_refused() {
    let (output, _folder) = run("1TiB", &["--engine", "packet"]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("packet-hops would take about"), "{complaint}");
    assert!(complaint.contains("--force"), "{complaint}");
}

/// A message that no packet number can count is refused, not tried.
#[test]
fn a_message_beyond_counting_is_refused_even_when_forced() {
    let (output, _folder) = run("64TiB", &["--engine", "packet", "--force"]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("--engine flow takes any size"), "{complaint}");
}
