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
