//! `fatflow traffic`.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use commands::{Failure, traffic};

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Describe what a job puts on the wire: by axis and primitive, elephants, bursts, entropy, who
/// sends to whom
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow traffic llama3-meta-roce
  fatflow traffic deepseek-v2 --set job.moe.limit=none
  fatflow traffic my.toml --transfers-out transfers.csv --report traffic.html
  fatflow traffic my.toml --json | jq .result.by_axis")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Write every connection between NICs with its bytes of one step as CSV
    #[arg(long, value_name = "FILE.csv")]
    transfers_out: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let loaded = terminal.load(&self.scenario)?;
        let report = traffic::run(&loaded)?;
        if let Some(path) = &self.transfers_out {
            let failed = |error| Failure::Run(format!("cannot write {}: {error}", path.display()));
            let mut out = BufWriter::new(File::create(path).map_err(failed)?);
            report.write_transfers(loaded.fabric(), &mut out).map_err(failed)?;
        }
        terminal.answer("traffic", Some(&loaded), &report)?;
        Ok(Ending::Done)
    }
}
