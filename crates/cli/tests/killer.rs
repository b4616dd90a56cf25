//! A scripted killer of commands that write files: whatever ends them, at whatever moment, who
//! looks finds the old file or the new one, whole. (`serve.rs`, `sweep.rs` and `tests/live` do the
//! same to what runs on.)

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use units::Random;

const TRAFFIC: &str = "[cluster]\ngpus = 32\n[traffic]\npattern = \"all-to-all\"\n\
                       bytes = \"64KiB\"\n";
const LOG: &str = "h:1:2 [0] NCCL INFO NCCL version 2.26.6+cuda12.9\n\
                   #  size  count  type redop root  time algbw busbw #wrong\n\
                   1048576 262144 float sum -1 100.0 10.4 18.3 0 99.0 10.5 18.4 0\n";

/// A file that a command writes, and its last bytes.
type Output = (&'static str, &'static [u8]);

/// A command, and what it writes.
const COMMANDS: [(&str, &[Output]); 3] = [
    (
        "run traffic.toml --engine packet --report run.html --links-out links.parquet \
         --flows-out flows.parquet --openmetrics ports.om",
        &[
            ("run.html", b"</html>\n"),
            ("links.parquet", b"PAR1"),
            ("flows.parquet", b"PAR1"),
            ("ports.om", b"# EOF\n"),
        ],
    ),
    ("topo traffic.toml --report topo.html", &[("topo.html", b"</html>\n")]),
    ("observe nccl.log --report seen.html", &[("seen.html", b"</html>\n")]),
];

fn start(folder: &Path, line: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fatflow"));
    command.current_dir(folder).args(line.split_whitespace());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the killer needs to know how long to wait at most")]
fn whatever_ends_a_command_its_files_are_whole() {
    let mut random = Random::new(26, "killer", 0);
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    std::fs::write(home.join("traffic.toml"), TRAFFIC).unwrap();
    std::fs::write(home.join("nccl.log"), LOG).unwrap();
    for (line, files) in COMMANDS {
        let began = Instant::now();
        assert!(start(home, line).wait().unwrap().success(), "{line}");
        let whole = began.elapsed();
        for round in 0..12 {
            for (name, _) in files {
                std::fs::write(home.join(name), "old").unwrap();
            }
            let mut child = start(home, line);
            std::thread::sleep(Duration::from_nanos(random.below(whole.as_nanos() as u64)));
            let (signal, id) = (["-KILL", "-TERM", "-INT"][round % 3], child.id().to_string());
            // It may have ended already.
            let _ = Command::new("kill").args([signal, &id]).stderr(Stdio::null()).status();
            child.wait().unwrap();
            for (name, end) in files {
                let bytes = std::fs::read(home.join(name)).unwrap();
                let is_whole = bytes == b"old" || bytes.ends_with(end);
                assert!(is_whole, "{line}: {name} has {} bytes after {signal}", bytes.len());
            }
        }
        // What was left beside is hidden, and disturbs nobody.
        assert!(start(home, line).wait().unwrap().success(), "{line}");
        for (name, end) in files {
            assert!(std::fs::read(home.join(name)).unwrap().ends_with(end), "{line}: {name}");
        }
    }
    let entries = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    let known = |name: &str| {
        let outputs = COMMANDS.iter().flat_map(|(_, files)| files.iter());
        ["traffic.toml", "nccl.log"].contains(&name)
            || outputs.into_iter().any(|(output, _)| *output == name)
            || name.starts_with('.') && name.ends_with(".new")
    };
    assert!(names.iter().all(|name| known(name)), "{names:?}");
}
