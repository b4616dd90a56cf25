//! `fuzz`: fires at readers for so many seconds of a processor, counts, and writes down what broke
//! them.
//!
//! `fuzz --seconds 300 --seed 1 [TARGET …]`; without targets all of them, one after the other;
//! `--list` names them. Memory of the process is limited to 2 GiB; an execution over 5 seconds is a
//! find. `tools/fuzz.sh` runs several such processes side by side.

use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use commands::meter::Meter;
use fuzz::{Campaign, Find, MAX_SECONDS, TARGETS, Target};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Bytes of address space that the process may have.
const MEMORY: u64 = 2 << 30;
/// Bytes in memory at which the watcher calls the input a find.
const RESIDENT: u64 = 1 << 30;

type Current = Arc<Mutex<(Option<Meter>, Vec<u8>)>>;

struct Options {
    seconds: u64,
    seed: u64,
    out: std::path::PathBuf,
    targets: Vec<&'static Target>,
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { seconds: 60, seed: 1, out: "target/fuzz".into(), targets: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let missing = || format!("{word} needs a number");
        match word.as_str() {
            "--seconds" => options.seconds = number().ok_or_else(missing)?,
            "--seed" => options.seed = number().ok_or_else(missing)?,
            "--list" => {
                TARGETS.iter().for_each(|target| say(target.name));
                std::process::exit(0);
            }
            "--out" => options.out = words.next().ok_or("--out needs a folder")?.into(),
            name => {
                let found = TARGETS.iter().find(|target| target.name == name);
                options.targets.push(found.ok_or_else(|| {
                    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
                    format!("no target `{name}`; there are {}", names.join(", "))
                })?);
            }
        }
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.iter().collect();
    }
    Ok(options)
}

fn say(text: &str) {
    // If nobody listens the exit code still tells.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn keep(out: &std::path::Path, find: &Find) {
    let hash = find.input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let path = out.join(format!("{}-{hash:016x}", find.target));
    let written = std::fs::create_dir_all(out).and_then(|()| std::fs::write(&path, &find.input));
    let beginning: String = String::from_utf8_lossy(&find.input).chars().take(200).collect();
    let (target, what) = (find.target, &find.what);
    say(&format!("FIND {target}: {what}\n  {} ({written:?}): {beginning:?}", path.display()));
}

/// Ends the process with its input written down where one execution hangs or swallows memory.
fn watch(target: &'static str, current: &Current, out: std::path::PathBuf) {
    // It watches as long as the target is under fire.
    let current = Arc::downgrade(current);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let Some(current) = current.upgrade() else { return };
            let Ok(now) = current.lock() else { return };
            let long = now.0.is_some_and(|began| 2.0 * MAX_SECONDS < began.cpu_s());
            let about = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
            let pages: u64 =
                about.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
            if long || RESIDENT < pages * 4096 {
                let what = if long { "hangs" } else { "takes more than 1 GiB" };
                keep(&out, &Find { target, what: what.to_owned(), input: now.1.clone() });
                std::process::exit(3);
            }
        }
    });
}

fn fire(target: &'static Target, options: &Options) -> u64 {
    let mut campaign = Campaign::new(target, options.seed);
    watch(target.name, &campaign.current, options.out.clone());
    let (began, mut finds) = (Meter::start(), 0);
    while began.cpu_s() < options.seconds as f64 {
        if let Err(find) = campaign.step() {
            keep(&options.out, &find);
            finds += 1;
            if 10 <= finds {
                break;
            }
        }
    }
    let (seconds, answers) = (began.cpu_s(), campaign.answers());
    let executions = campaign.executions;
    say(&format!("{:16} {executions:>10} {seconds:9.1} {answers:8} {finds:6}", target.name));
    finds
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(reason) => {
            say(&reason);
            return ExitCode::from(2);
        }
    };
    let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    // Sanitizers reserve more address space than any machine has (`tools/sanitize.sh`).
    let limited = std::env::var("FUZZ_MEMORY").as_deref() != Ok("unlimited");
    if limited && let Err(error) = setrlimit(Resource::As, limit) {
        say(&format!("memory cannot be limited: {error}"));
        return ExitCode::from(2);
    }
    // A panic is told with its input; the message alone says little.
    std::panic::set_hook(Box::new(|_| {}));
    say("target           executions CPU_seconds  answers  finds");
    let finds: u64 = options.targets.iter().map(|target| fire(target, &options)).sum();
    if finds == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
