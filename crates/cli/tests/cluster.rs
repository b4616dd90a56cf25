//! Sweeps on clusters where there is no cluster: what is said then. `tests/slurm`, `tests/ray` and
//! `tests/kubernetes` have the real ones.

use std::fs;
use std::path::Path;
use std::process::Command;

const GRID: &str = "\
from = \"small-16\"
engine = \"analytic\"

[axes]
seed = { from = 0, to = 3 }

[keep]
measures = [\"step_s\"]
";

/// Exit code, standard output and standard error of a command that finds no other program.
fn fatflow(folder: &Path, line: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fatflow"))
        .args(line.split(' '))
        .current_dir(folder)
        .env("PATH", "")
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("it ends by itself");
    (code, text(&output.stdout), text(&output.stderr))
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("grid.toml"), GRID).expect("writable");
    folder
}

#[test]
fn without_slurm_it_says_what_is_missing() {
    let folder = folder();
    let (code, _, said) = fatflow(folder.path(), "sweep submit --slurm grid.toml --out s");
    assert_eq!(code, 1);
    assert!(said.contains("Slurm's command `scontrol` is not on the PATH"), "{said}");
    let (code, ..) = fatflow(folder.path(), "sweep submit grid.toml --out s");
    assert_eq!(code, 2, "it must be said where to submit");
    let wrong = "sweep submit --slurm grid.toml --out s --sbatch-arg=account=net";
    assert_eq!(fatflow(folder.path(), wrong).0, 2);
}

#[test]
fn status_tells_the_files_where_slurm_cannot_be_asked() {
    let folder = folder();
    let out = folder.path().join("s");
    let (code, _, said) =
        fatflow(folder.path(), "sweep exec --shard 0/2 --threads 1 --out s grid.toml");
    assert_eq!(code, 0, "{said}");
    let job =
        r#"{"name": "fatflow-1", "shards": 2, "jobs": [{"id": 7, "shards": "0-1", "why": []}]}"#;
    fs::write(out.join("slurm.json"), job).expect("writable");
    let (code, told, _) = fatflow(folder.path(), "sweep status s");
    assert_eq!(code, 0);
    assert!(told.contains("job 7") && told.contains("cannot be asked here"), "{told}");
    let (_, json, _) = fatflow(folder.path(), "sweep status s --json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["result"]["done"], 2);
    assert_eq!(json["result"]["slurm"]["shards"], 2);
    fs::write(out.join("slurm.json"), "{").expect("writable");
    let (code, _, said) = fatflow(folder.path(), "sweep status s");
    assert!(code == 1 && said.contains("slurm.json"), "{said}");
}

#[test]
fn without_python_it_says_so() {
    let folder = folder();
    let (code, _, said) = fatflow(folder.path(), "sweep run grid.toml --out s --ray auto");
    assert_eq!(code, 1);
    assert!(said.contains("cannot run python3"), "{said}");
}

#[test]
fn a_manifest_holds_the_grid_and_refuses_what_pods_would_not_find() {
    let folder = folder();
    let (code, yaml, said) =
        fatflow(folder.path(), "sweep manifest kubernetes grid.toml --shards 2 --set seed=1");
    assert_eq!((code, yaml.is_empty()), (3, true), "an axis and a flag: {said}");
    let line = "sweep manifest kubernetes grid.toml --set network.routing.qps=8";
    let (code, yaml, said) = fatflow(folder.path(), line);
    assert_eq!(code, 0, "{said}");
    assert!(yaml.contains("    [axes]\n    seed = { from = 0, to = 3 }\n"), "{yaml}");
    assert!(yaml.contains("- \"network.routing.qps=8\"\n"), "{yaml}");
    for text in [&yaml, &said] {
        assert!(text.contains("no --image was given: the image"), "{text}");
        assert!(text.contains("no --volume-claim was given: the claim"), "{text}");
    }
    let (_, yaml, said) = fatflow(folder.path(), &format!("{line} --image i --volume-claim c"));
    assert!(!yaml.contains("given") && !said.contains("given"), "{yaml}{said}");
    fs::write(folder.path().join("my.toml"), "from = \"small-16\"\n").expect("writable");
    let grid = GRID.replace("small-16", "my.toml");
    fs::write(folder.path().join("grid.toml"), grid).expect("writable");
    let (code, yaml, said) = fatflow(folder.path(), "sweep manifest kubernetes grid.toml");
    assert_eq!((code, yaml.is_empty()), (1, true));
    assert!(said.contains("names files beside it"), "{said}");
}
