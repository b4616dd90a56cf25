//! The files for other tools, as people ask for them. What is in them is read by the tools
//! themselves in `tests/formats`.

use std::path::Path;
use std::process::{Command, Output};

const JOB: &str = "name = \"j\"\n[cluster]\ngpus = 16\n[job]\nmodel = \"llama3-8b\"\ngpus = 16\n\
                   parallel = { tp = 4, pp = 2 }\nbatch = { sequences = 4, length = 4096 }\n";
const TRAFFIC: &str = "name = \"t\"\n[cluster]\ngpus = 16\n[traffic]\npattern = \"permutation\"\n";

fn run(folder: &Path, arguments: &[&str]) -> Output {
    std::fs::write(folder.join("job.toml"), JOB).unwrap();
    std::fs::write(folder.join("traffic.toml"), TRAFFIC).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

#[test]
fn files_are_written_beside_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["f.parquet", "l.parquet", "t.pftrace", "m.om", "f.csv"];
    let [flows, links, trace, metrics, text] = files;
    let arguments =
        ["run", "traffic.toml", "--flows-out", flows, "--links-out", links, "--perfetto", trace];
    assert!(run(folder.path(), &arguments).status.success());
    let arguments =
        ["run", "traffic.toml", "--openmetrics", metrics, "--flows-out", text, "--json"];
    let answer = run(folder.path(), &arguments);
    assert!(answer.status.success() && answer.stdout.starts_with(b"{"));
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read(flows).starts_with(b"PAR1") && read(links).ends_with(b"PAR1"));
    // A trace is its packets: field 1, of the wire type with a length.
    assert_eq!(read(trace)[0], 0x0a);
    assert!(read(metrics).ends_with(b"# EOF\n"));
    let header = b"flow,src,dst,bytes,start_ns,received_ns,finish_ns\n0,";
    assert!(read(text).starts_with(header));
}

#[test]
fn a_job_has_a_trace_for_each_rank_or_each_stage() {
    let folder = tempfile::tempdir().unwrap();
    let some = ["traffic", "job.toml", "--chakra", "few", "--chakra-ranks", "representatives"];
    let answer = run(folder.path(), &some);
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert!(answer.status.success() && said.contains("2 traces with "), "{said}");
    assert!(run(folder.path(), &["traffic", "job.toml", "--chakra", "all"]).status.success());
    let names = |name: &str| {
        let entries = std::fs::read_dir(folder.path().join(name)).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("few"), ["comm_groups.json", "rank.0.et", "rank.4.et"]);
    assert_eq!(names("all").len(), 17);
    let same = |name: &str| std::fs::read(folder.path().join(name).join("rank.4.et")).unwrap();
    assert_eq!(same("few"), same("all"));
}

/// What a profiler would record of steps is read back: a file for each server, and their steps.
#[test]
fn steps_are_written_as_a_profiler_records_them() {
    let folder = tempfile::tempdir().unwrap();
    let asked = ["run", "small-16", "--engine", "analytic", "--profile", "p"];
    let answer = run(folder.path(), &[&asked[..], &["--profile-steps", "3"]].concat());
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let answer = run(folder.path(), &["observe", "p", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let sources = answer["result"]["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 2, "{sources:?}");
    let is_whole = |source: &serde_json::Value| 0 < source["read"].as_u64().unwrap();
    assert!(sources.iter().all(is_whole), "{sources:?}");
    let counts = answer["result"]["collectives"].as_array().unwrap().iter();
    // Every exposed all-reduce of three steps on two ranks.
    let count: u64 = counts.map(|row| row["count"].as_u64().unwrap()).sum();
    assert!(0 < count && count.is_multiple_of(3), "{count}");
    let refused = run(folder.path(), &["run", "traffic.toml", "--profile", "q"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn what_cannot_be_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "job.toml", "--flows-out", "f.csv"], 2, "--transfers-out"),
        (&["run", "traffic.toml", "--engine", "all", "--links-out", "l.csv"], 2, "one engine"),
        (&["run", "traffic.toml", "--openmetrics-start", "5"], 2, "--openmetrics"),
        (&["run", "traffic.toml", "--links-out", "no/such/folder.csv"], 1, "cannot write no/such"),
        (
            &["run", "traffic.toml", "--flows-out", "t", "--links-out", "./t"],
            2,
            "--flows-out and --links-out cannot both write ./t",
        ),
        (&["run", "job.toml", "--links-out", "t", "--report", "t"], 2, "--links-out and --report"),
        (&["traffic", "job.toml", "--transfers-out", "t", "--report", "t"], 2, "both write t"),
        (&["validate", "--write-ratchet", "t", "--report", "t"], 2, "both write t"),
        (&["traffic", "traffic.toml", "--chakra", "t"], 3, "has no job"),
        (
            &["traffic", "job.toml", "--chakra", "t", "--set", "job.batch.sequences=1048576"],
            1,
            "--chakra-ranks representatives",
        ),
    ];
    for (arguments, code, words) in cases {
        let answer = run(folder.path(), arguments);
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(*code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!folder.path().join("t").exists());
}

/// An answer is never written over what was asked, by whatever name.
#[test]
fn an_input_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    let cases: &[&[&str]] = &[
        &["run", "traffic.toml", "--report", "traffic.toml"],
        &["run", "traffic.toml", "--report", "deep/../traffic.toml"],
        &["run", "traffic.toml", "--links-out", "./traffic.toml"],
        &["compare", "traffic.toml", "traffic.toml", "--report", "traffic.toml"],
    ];
    for arguments in cases {
        let answer = run(folder.path(), arguments);
        let said = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(answer.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("was read as an input"), "{arguments:?}: {said}");
        assert_eq!(std::fs::read_to_string(folder.path().join("traffic.toml")).unwrap(), TRAFFIC);
    }
}

#[test]
fn two_spellings_of_one_path_are_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    std::os::unix::fs::symlink("deep", folder.path().join("link")).unwrap();
    for (one, other) in [("t", "deep/../t"), ("deep/t", "link/t"), ("t", "././t")] {
        let arguments = ["run", "traffic.toml", "--flows-out", one, "--links-out", other];
        let answer = run(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&answer.stderr);
        assert!(said.contains("cannot both write"), "{one} {other}: {said}");
    }
}

/// A write that fails half way leaves the old file whole, and nothing beside it.
#[test]
fn a_full_disk_leaves_the_old_file_whole() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["presets"]);
    let outputs = ["run.html", "links.csv", "trace.pftrace"];
    for name in outputs {
        std::fs::write(folder.path().join(name), "old").unwrap();
    }
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    for arguments in [
        "run traffic.toml --report run.html",
        "run traffic.toml --links-out links.csv",
        "run traffic.toml --perfetto trace.pftrace",
    ] {
        // No file may be longer than 512 bytes: the disk is as good as full.
        let line = format!("trap '' XFSZ; ulimit -f 1; exec \"$0\" {arguments}");
        let program = env!("CARGO_BIN_EXE_fatflow");
        let mut shell = Command::new("sh");
        let answer =
            shell.current_dir(folder.path()).args(["-c", &line, program]).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(answer.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("cannot write"), "{arguments}: {said}");
    }
    for name in outputs {
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), "old");
    }
    assert_eq!(names(), before);
    // Devices are written as they are.
    assert!(run(folder.path(), &["run", "traffic.toml", "--report", "/dev/null"]).status.success());
    let full = run(folder.path(), &["run", "traffic.toml", "--report", "/dev/full"]);
    assert_eq!(full.status.code(), Some(1));
}

/// A disk that may only be read is named, and what is on it stays.
#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn a_read_only_disk_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["presets"]);
    let grid = "from = \"small-16\"\nengine = \"analytic\"\n[axes]\nseed = [0, 1]\n";
    std::fs::write(folder.path().join("grid.toml"), grid).unwrap();
    std::fs::write(folder.path().join("run.html"), "old").unwrap();
    let on_it = |arguments: &str| {
        let line = format!(
            "mount --bind . . && cd \"$PWD\" && mount -o remount,ro,bind . || exit 77; \
             exec \"$0\" {arguments}"
        );
        let arguments = ["--map-root-user", "--mount", "sh", "-c", &line];
        let program = env!("CARGO_BIN_EXE_fatflow");
        let mut shell = Command::new("unshare");
        shell.current_dir(folder.path()).args(arguments).arg(program).output()
    };
    let allowed = on_it("presets").is_ok_and(|answer| answer.status.success());
    if !allowed {
        eprintln!("skipped: this machine allows no mount namespace");
        return;
    }
    for arguments in [
        "run traffic.toml --report run.html",
        "run traffic.toml --links-out links.csv",
        "sweep run grid.toml --out study",
        "serve --workspace runs",
    ] {
        let answer = on_it(arguments).unwrap();
        let said = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(answer.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("Read-only file system"), "{arguments}: {said}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("run.html")).unwrap(), "old");
}

/// Names in a scenario cannot speak to the terminal, colours or not.
#[test]
fn names_with_escape_sequences_are_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let text = TRAFFIC.replace("\"t\"", "\"evil\\u001b]0;owned\\u0007name\"");
    std::fs::write(folder.path().join("evil.toml"), text).unwrap();
    let wrong = "name = \"evil\\u001b]0;owned\\u0007\"\n\"\\u001b]0;k\" = 1\n";
    std::fs::write(folder.path().join("wrong.toml"), wrong).unwrap();
    for arguments in ["run evil.toml", "compare evil.toml traffic.toml", "check wrong.toml"] {
        let arguments: Vec<&str> = arguments.split(' ').chain(["--color", "always"]).collect();
        let answer = run(folder.path(), &arguments);
        let said = [answer.stdout, answer.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains("\u{1b}]") && !said.contains('\u{7}'), "{arguments:?}: {said}");
    }
}
