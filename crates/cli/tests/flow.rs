//! The flow engine by command: failures in the middle of a run, several loads, seeds, variations.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

/// Four pods of four NICs below four cores.
const FABRIC: &str = r#"
name = "a fat tree"
[cluster]
gpus = 16
gpus_per_node = 1
nics_per_node = 1
[fabric]
topology = "fat-tree"
k = 4
[network]
routing = { policy = "ecmp", qps = 1, detection = "100us" }
"#;

fn fatflow(files: &[(&str, String)], arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
    command.args(arguments).current_dir(folder.path()).output().unwrap()
}

/// The result of a command on a fabric with more tables.
fn result(more: &str, arguments: &[&str]) -> Value {
    let output = fatflow(&[("my.toml", format!("{FABRIC}{more}"))], arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["result"].clone()
}

const RING: &str = "[traffic]\npattern = \"ring\"\nbytes = \"64MiB\"\n";

/// A switch that fails in the middle of a run is routed around, and flows whose way is gone are
/// named; when it comes back they finish.
#[test]
fn failures_are_routed_around_or_reported() {
    let run = |fault: &str| result(&format!("{RING}{fault}"), &["run", "my.toml", "--json"]);
    let whole = run("");
    assert_eq!(whole["findings"], Value::Array(Vec::new()));
    let seconds = |run: &Value| run["makespan_s"].as_f64().unwrap();
    let failing = |core: &str| {
        format!(
            "[[faults]]\nat = \"200us\"\non = \"core {core}\"\nwhat = {{ kind = \"switch-down\" }}\n"
        )
    };
    // Four edges of the ring leave their pods, one over each core: whoever loses it stands still
    // until switches have noticed.
    for core in ["0", "1", "2", "3"] {
        let around = run(&failing(core));
        assert_eq!((&around["completed"], &around["flows"]), (&16.into(), &16.into()));
        assert!((seconds(&around) - seconds(&whole) - 100e-6).abs() < 1e-9, "{around}");
    }
    let cut = run(&failing("*"));
    assert_eq!(cut["completed"], 12);
    let findings = cut["findings"].to_string();
    assert!(findings.contains("there is no path from NIC 3 to NIC 4"), "{findings}");
    assert!(findings.contains("a fault lost what was on its way"), "{findings}");
    // What was on its way is sent again at the first timer (4.096 us * 2^20) that finds a way.
    let back = run(&format!("{}for = \"5ms\"\n", failing("*")));
    assert_eq!(back["completed"], 16);
    let timer = 4.096e-6 * f64::from(1 << 20);
    assert!((0.0..1e-5).contains(&(seconds(&back) - seconds(&whole) - timer)), "{back}");
}

/// Cables that leave a server alone are an error that names it, before anything runs.
#[test]
fn a_fabric_in_two_pieces_is_a_clear_error() {
    let cables = "a,b,a_kind\nn0,s0,nic\nn1,s0,nic\nn2,s1,nic\nn3,s1,nic\n";
    let scenario = "[fabric]\ntopology = \"file\"\nfile = \"cables.csv\"\n\
                    [cluster]\ngpus_per_node = 1\nnics_per_node = 1\n[traffic]\npattern = \"ring\"\n";
    let files =
        |cables: &str| [("my.toml", scenario.to_owned()), ("cables.csv", cables.to_owned())];
    let output = fatflow(&files(cables), &["run", "my.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("not connected"), "{complaint}");
    assert!(complaint.contains("`n2`"), "{complaint}");
    let joined = format!("{cables}s0,s1,\n");
    assert!(fatflow(&files(&joined), &["run", "my.toml"]).status.success());
}

/// Oracle: each load begins at its own time; two that share a link share its rate.
#[test]
fn loads_have_starts_of_their_own() {
    let more = r#"
[traffic]
name = "first"
pattern = "incast"
hosts = 2
bytes = "48MB"
[[traffic.background]]
name = "second"
pattern = "incast"
hosts = 2
bytes = "48MB"
start = "500us"
[[traffic.background]]
name = "elsewhere"
pattern = "collective"
collective = "all_reduce"
first = 4
gpus = 4
bytes = "64MiB"
start = "1ms"
"#;
    let found = result(more, &["run", "my.toml", "--json"]);
    let part = |at: usize, key: &str| found["parts"][at][key].as_f64().unwrap();
    let names = ["first", "second", "elsewhere"];
    assert_eq!([0, 1, 2].map(|at| found["parts"][at]["name"].as_str().unwrap()), names);
    assert_eq!([0, 1, 2].map(|at| part(at, "start_s")), [0.0, 0.0005, 0.001]);
    // 48 MB alone take 0.98 ms: half of the first is done when the second begins, so the first
    // ends after 1.46 ms and the second after 1.96 ms.
    let alone = 48e6 / (50e9 * 4096.0 / 4178.0);
    let shared = alone + (alone - 0.5e-3);
    assert!((part(0, "finish_s") - shared).abs() < 1e-5, "{}", part(0, "finish_s"));
    assert!((part(1, "finish_s") - 2.0 * alone).abs() < 1e-5, "{}", part(1, "finish_s"));
    assert!(1e-3 < part(2, "finish_s") && 1.0 < part(2, "busbw_GBps"));
}

/// Property: seeds give the same answer on any number of threads, and their mean lies among them.
#[test]
fn seeds_are_the_same_on_any_number_of_threads() {
    let permutation = "[traffic]\npattern = \"permutation\"\nbytes = \"1MiB\"\n";
    let run = |threads: &str| {
        let flags = ["run", "my.toml", "--json", "--seeds", "12", "--threads", threads];
        result(permutation, &flags)["seeds"].clone()
    };
    let seeds = run("1");
    assert_eq!(seeds, run("5"));
    assert_eq!(seeds["count"], 12);
    for figure in seeds["figures"].as_array().unwrap() {
        let of = |key: &str| figure[key].as_f64().unwrap();
        assert!(of("p50") <= of("p95") && of("p95") <= of("p99"), "{figure}");
        assert!(of("mean") <= of("p99") && 0.0 <= of("ci95"), "{figure}");
    }
    let alone = result(permutation, &["run", "my.toml", "--json"]);
    assert_eq!(alone["seeds"], Value::Null);
    let sizes = ["collective", "all_reduce", "my.toml", "-b", "8M", "-e", "8M"];
    let flags = [&sizes[..], &["--seeds", "5", "--json"]].concat();
    let row = result("", &flags)["rows"][0].clone();
    assert_eq!(row["time_us"], row["seeds_us"]["mean"]);
}

/// `--vary` runs every combination, and seeds say how sure the means are.
#[test]
fn a_comparison_varies_settings() {
    let flags = [
        "compare",
        "my.toml",
        "--vary",
        "network.routing.policy=ecmp,spray",
        "--vary",
        "network.routing.qps=1,4",
        "--seeds",
        "3",
        "--json",
    ];
    let permutation = "[traffic]\npattern = \"permutation\"\nbytes = \"8MiB\"\n";
    let compared = result(permutation, &flags);
    let names =
        ["policy ecmp, qps 1", "policy ecmp, qps 4", "policy spray, qps 1", "policy spray, qps 4"];
    assert_eq!(compared["columns"], serde_json::json!(names));
    let rows = compared["rows"].as_array().unwrap();
    let row = |metric: &str| rows.iter().find(|row| row["metric"] == metric).unwrap();
    let makespan = row("makespan_s");
    let of = |at: usize| makespan["simulated"][at].as_f64().unwrap();
    assert!(of(3) < of(1) && of(1) < of(0), "{makespan}");
    assert!(0.0 < makespan["ci95"][0].as_f64().unwrap());
    assert_eq!(row("uplinks_idle")["simulated"][2], 0.0);
    let output = fatflow(&[("my.toml", FABRIC.to_owned())], &["compare", "my.toml", "--vary", "a"]);
    assert_eq!(output.status.code(), Some(2));
}

/// What links did over time and who shares them is in the answer.
#[test]
fn links_over_time_and_who_shares_them() {
    let more = "[traffic]\npattern = \"permutation\"\nbytes = \"8MiB\"\n";
    let found = result(more, &["run", "my.toml", "--json"]);
    let tiers = found["tiers"].as_array().unwrap();
    let up = tiers.iter().find(|tier| tier["name"] == "edge → aggregation").unwrap();
    let over_time = &up["over_time"];
    let carried: f64 = over_time["utilisation"]
        .as_array()
        .unwrap()
        .iter()
        .map(|share| share.as_f64().unwrap() * over_time["interval_s"].as_f64().unwrap())
        .sum::<f64>()
        * up["links"].as_f64().unwrap()
        * 50e9;
    assert!((carried / up["bytes"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{up}");
    let worst = &found["worst_links"][0];
    let sharers = worst["queue_pairs"].as_array().unwrap();
    assert_eq!(sharers.len() as u64, worst["flows"].as_u64().unwrap());
    assert!(sharers[0]["from"].as_str().unwrap().starts_with("NIC "), "{worst}");
    assert!(worst["why"].as_str().unwrap().contains("flows of permutation"), "{worst}");
    assert!(1.0 <= worst["excess"].as_f64().unwrap() && worst["lost_s"].is_number(), "{worst}");
}
