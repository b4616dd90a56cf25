//! `fatflow sweep` as processes that are killed, stopped, starved of disk, and run side by side.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value as Json;

const GRID: &str = r#"
from = "small-16"
engine = "analytic"
[axes]
"network.routing.qps" = [1, 2, 4, 8]
seed = { from = 0, to = 29 }
[keep]
measures = ["step_s", "mfu", "breakdown_s.dp"]
"#;

fn folder(grid: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("grid.toml"), grid).unwrap();
    folder
}

fn start(folder: &Path, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
    command.arg("sweep").args(words).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn run(folder: &Path, words: &[&str]) -> Output {
    start(folder, words).wait_with_output().unwrap()
}

fn result(output: &Output) -> Json {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    serde_json::from_slice::<Json>(&output.stdout).unwrap()["result"].clone()
}

fn results(folder: &Path, out: &str) -> Vec<u8> {
    fs::read(folder.join(out).join("results.parquet")).unwrap()
}

/// Three times killed at whatever moment it was: every case is there once, with the same bytes.
/// (`tools/sweep-kill.sh` does it a hundred times.)
#[test]
fn killing_loses_no_result_and_doubles_none() {
    let folder = folder(GRID);
    let home = folder.path();
    result(&run(home, &["run", "grid.toml", "--out", "whole", "--json"]));
    for wait in [40, 400, 900] {
        let mut child = start(home, &["run", "grid.toml", "--out", "killed"]);
        std::thread::sleep(Duration::from_millis(wait + u64::from(child.id() % 97)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let shown = result(&run(home, &["run", "grid.toml", "--out", "killed", "--json"]));
    let counts = ["cases", "done", "failed", "missing", "duplicates"].map(|key| shown[key].clone());
    assert_eq!(counts, [120, 120, 0, 0, 0].map(Json::from));
    assert_eq!(results(home, "whole"), results(home, "killed"));
}

/// Ctrl-C ends it with 130 and an answer; the same again continues.
#[test]
fn an_interrupt_stops_cleanly_and_the_same_again_continues() {
    let folder = folder(&GRID.replace("to = 29", "to = 299"));
    let home = folder.path();
    let child = start(home, &["run", "grid.toml", "--out", "out", "--json"]);
    let segments = home.join("out/segments");
    while fs::read_dir(&segments).map_or(0, Iterator::count) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let signal = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signal.unwrap().success());
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(130));
    let answer: Json = serde_json::from_slice(&stopped.stdout).unwrap();
    let [left, executed] = ["left", "executed"].map(|key| answer["result"][key].as_u64().unwrap());
    assert!(0 < left && 0 < executed && left + executed == 1200, "{answer}");
    let status = result(&run(home, &["status", "out", "--json"]));
    assert_eq!(status["missing"], left);
    let words = ["exec", "grid.toml", "--out", "out", "--cases", "1199", "--json"];
    let before = result(&run(home, &words));
    assert_eq!(before["selected"], 1);
}

/// A disk that takes no more is called that; with room again, the same goes on.
#[test]
fn a_full_disk_is_said_and_then_forgotten() {
    let folder = folder(GRID);
    let home = folder.path();
    result(&run(home, &["plan", "grid.toml", "--out", "out", "--json"]));
    let binary = env!("CARGO_BIN_EXE_fatflow");
    let script = format!(
        "trap '' XFSZ; ulimit -f 1; exec {binary} sweep exec grid.toml --out out --shard 0/1"
    );
    let full = Command::new("sh").args(["-c", &script]).current_dir(home).output().unwrap();
    let said = String::from_utf8_lossy(&full.stderr).into_owned();
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.contains("the disk is full") && said.contains("run the same again"), "{said}");
    assert_eq!(fs::read_dir(home.join("out/segments")).unwrap().count(), 0, "nothing is left over");
    let after =
        result(&run(home, &["exec", "grid.toml", "--out", "out", "--shard", "0/1", "--json"]));
    assert_eq!((&after["executed"], &after["failed"]), (&120.into(), &0.into()));
}

/// Shards side by side make the table of one process, and other plans are kept apart.
#[test]
fn shards_make_the_same_table_and_refuse_another_plan() {
    let folder = folder(GRID);
    let home = folder.path();
    result(&run(home, &["run", "grid.toml", "--out", "whole", "--json", "--threads", "1"]));
    let shards = ["0/3", "1/3", "2/3", "1/3"];
    let shard = |shard: &&str| {
        start(home, &["exec", "grid.toml", "--out", "shards", "--shard", shard, "--json"])
    };
    let children: Vec<Child> = shards.iter().map(shard).collect();
    children.into_iter().for_each(|child| drop(result(&child.wait_with_output().unwrap())));
    let merged = result(&run(home, &["merge", "shards", "--json"]));
    assert_eq!((&merged["done"], &merged["missing"]), (&120.into(), &0.into()));
    assert_eq!(results(home, "whole"), results(home, "shards"));

    fs::write(home.join("grid.toml"), GRID.replace("[1, 2, 4, 8]", "[1, 2]")).unwrap();
    let other = run(home, &["exec", "grid.toml", "--out", "shards", "--shard", "0/3"]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2));
    assert!(said.contains("cases: 120 there, 60 here, 60 of them the same"), "{said}");
    let kept = fs::read(home.join("shards/plan.jsonl")).unwrap();
    let plan = ["plan", "grid.toml", "--out", "shards", "--json"];
    let refused = run(home, &plan);
    assert_eq!(refused.status.code(), Some(2), "a plan is not replaced in silence");
    assert_eq!(kept, fs::read(home.join("shards/plan.jsonl")).unwrap());
    result(&run(home, &[&plan[..], &["--replace"]].concat()));
    let some = ["exec", "grid.toml", "--out", "shards", "--cases", "1-3,7", "--json"];
    assert_eq!(result(&run(home, &some))["selected"], 4);
}

/// What a person sees: conditions with their place, an example, tables as wide as the screen.
#[test]
fn people_see_places_examples_and_all_columns_that_fit() {
    let folder = folder(&GRID.replace("[axes]", "where = [\"seed = 3\", \"seed == 'x'\"]\n[axes]"));
    let home = folder.path();
    let text = |output: &Output, code: i32| {
        let text =
            String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    };
    let said = text(&run(home, &["run", "grid.toml", "--out", "out"]), 3);
    for part in ["grid.toml:4:", "write `==`", "compares what is never alike"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    fs::write(home.join("empty.toml"), "").unwrap();
    for grid in ["nowhere.toml", "empty.toml"] {
        let said = text(&run(home, &["plan", grid]), 3);
        assert!(said.contains("`fatflow sweep run --help`") && !said.contains("presets"), "{said}");
    }
    let help = text(&run(home, &["run", "--help"]), 0);
    let example = help.split("as grid.toml:\n").nth(1).expect("a grid to start from");
    let example = example.split("\nArguments:").next().expect("the options follow");
    fs::write(home.join("example.toml"), example).unwrap();
    let plan = result(&run(home, &["plan", "example.toml", "--engine", "analytic", "--json"]));
    assert_eq!(plan["cases"], 50, "the example of the help is a grid");

    fs::write(
        home.join("grid.toml"),
        GRID.replace(
            "mfu\", \"breakdown_s.dp",
            "mfu\", \"tokens_per_s\", \
        \"tflops_per_gpu\", \"goodput\", \"breakdown_s.compute\", \"breakdown_s.dp",
        ),
    )
    .unwrap();
    result(&run(home, &["exec", "grid.toml", "--out", "out", "--cases", "0-7", "--json"]));
    let lines = |columns: &str| {
        let mut show = Command::new(env!("CARGO_BIN_EXE_fatflow"));
        show.args(["sweep", "show", "out"]).env("COLUMNS", columns).current_dir(home);
        text(&show.output().unwrap(), 0)
    };
    assert!(lines("60").contains("No room for"), "{}", lines("60"));
    assert!(!lines("160").contains("No room for"), "{}", lines("160"));
}

#[test]
fn what_is_wrong_is_said_with_the_right_code() {
    let folder = folder(GRID);
    let home = folder.path();
    let code = |words: &[&str]| {
        let output = run(home, words);
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (wrong, text) = code(&["exec", "grid.toml", "--out", "out", "--shard", "3/3"]);
    assert!(wrong == 2 && text.contains("from 0 to 2"), "{text}");
    let (nothing, text) = code(&["show", "nowhere"]);
    assert!(nothing == 1 && text.contains("holds no sweep"), "{text}");
    let (missing, text) = code(&["plan", "grid.toml", "--set", "seed=3"]);
    assert!(missing == 3 && text.contains("set by a flag and is an axis"), "{text}");
    let misspelt = GRID.replace("\"mfu\"", "\"mfuu\"");
    fs::write(home.join("grid.toml"), misspelt).unwrap();
    let (invalid, text) = code(&["run", "grid.toml", "--out", "out"]);
    assert!(invalid == 3 && text.contains("did you mean `mfu`"), "{text}");
    assert!(!home.join("out").exists(), "nothing was begun");
    let budget = GRID.replace("engine = \"analytic\"", "engine = \"analytic\"\nbudget = \"1ms\"");
    fs::write(home.join("grid.toml"), budget).unwrap();
    let (refused, text) = code(&["run", "grid.toml", "--out", "out"]);
    assert!(refused == 1 && text.contains("budget is 1ms"), "{text}");
}

/// A folder of another grid is taken on demand only, and a sweep of failures alone has failed.
#[test]
fn another_grid_is_refused_and_failures_alone_are_a_failure() {
    let folder = folder(&GRID.replace("to = 29", "to = 0"));
    let home = folder.path();
    result(&run(home, &["run", "grid.toml", "--out", "out", "--json"]));
    let before = results(home, "out");
    let failing = "from = \"small-16\"\nengine = \"analytic\"\n[set]\n\"job.parallel.tp\" = 3\n\
                   [axes]\nseed = [0, 1]\n[keep]\nmeasures = [\"step_s\"]\n";
    fs::write(home.join("other.toml"), failing).unwrap();
    let refused = run(home, &["run", "other.toml", "--out", "out"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("measures: step_s, mfu, breakdown_s.dp there, step_s here"), "{said}");
    assert!(words.contains("--replace"), "{said}");
    assert_eq!(before, results(home, "out"));
    for words in [["run", "--replace", "out"], ["exec", "--shard=0/1", "out"]] {
        let [action, flag, out] = words;
        let failed = run(home, &[action, "other.toml", flag, "--out", out, "--json"]);
        assert_eq!(failed.status.code(), Some(1), "{action}");
        assert!(serde_json::from_slice::<Json>(&failed.stdout).is_ok(), "{action}: one answer");
    }
    let none = run(home, &["exec", "grid.toml", "--out", "out", "--shard", "0/0"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("at least one part"));
}
