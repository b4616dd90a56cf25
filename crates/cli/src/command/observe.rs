//! `fatflow observe`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use commands::observe::{self, Report, Watch};

use crate::terminal::{Ending, Stop, Terminal};

/// From one look at how much has been read to the next.
const LOOK: Duration = Duration::from_millis(100);

/// Read what a real cluster wrote: logs, benchmarks, traces, captures, counters
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow observe nccl.log
  fatflow observe logs/ tests.txt.gz
  kubectl logs worker-0 | fatflow observe -
  fatflow observe capture.pcapng --report capture.html
  fatflow observe trace-*.json.gz --json | jq '.result.collectives[]'

Files are told apart by their content; gzip, zstd and tar are unpacked. A folder stands for the
files in it, - for standard input. The exit code is 3 if a file cannot be opened or nothing in any
of them is understood; the answer says which and why.")]
pub(crate) struct Arguments {
    /// Logs, tables, traces, captures, counters; folders; - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let report = self.read(terminal);
        terminal.answer("observe", None, &report)?;
        Ok(match terminal.ending() {
            Ending::Done if report.misses_a_file() || !report.has_read_something() => {
                Ending::InvalidInput
            }
            ending => ending,
        })
    }

    /// Reads on a thread of its own, so that somebody can look how far it is.
    fn read(&self, terminal: &Terminal) -> Report {
        let interrupt = Arc::clone(&terminal.interrupt.happened);
        let watch = Watch { interrupt, ..Watch::default() };
        let line = terminal.line("reading");
        let looker = thread::current();
        let total = observe::total_bytes(&self.files);
        let reader = || thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let report = observe::run(&self.files, &watch);
                looker.unpark();
                report
            });
            while !worker.is_finished() {
                thread::park_timeout(LOOK);
                let done = watch.bytes_read.load(Ordering::Relaxed);
                line.tell(&format!("read {} MB", done / 1_000_000), done.min(total), total);
            }
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        terminal.interrupt.heeded(reader)
    }
}
