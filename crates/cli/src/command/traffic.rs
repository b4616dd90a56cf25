//! `fatflow traffic`.

use std::path::PathBuf;

use commands::files::{chakra, refuse_one_for_two, save_table};
use commands::traffic;
use scenario::Purpose;

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Describe what a job puts on the wire: by axis and primitive, elephants, bursts, entropy, who
/// sends to whom
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow traffic llama3-meta-roce
  fatflow traffic deepseek-v2 --set job.moe.limit=none
  fatflow traffic my.toml --transfers-out transfers.parquet --report traffic.html
  fatflow traffic my.toml --chakra traces
  fatflow traffic my.toml --json | jq .result.by_axis")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Write every connection between NICs with its bytes of one step, as Parquet if the name
    /// ends so
    #[arg(long, value_name = "FILE.csv|.parquet")]
    transfers_out: Option<PathBuf>,
    /// Write the step as Chakra execution traces, one file for each rank
    #[arg(long, value_name = "DIR")]
    chakra: Option<PathBuf>,
    /// The ranks that have a trace
    #[arg(long, value_name = "WHICH", requires = "chakra", default_value = "all")]
    chakra_ranks: Ranks,
}

/// The ranks that have a trace.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Ranks {
    /// Every rank: what a simulator replays
    All,
    /// One rank for each pipeline stage; the others of a stage do the same
    Representatives,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let (transfers, page) = (self.transfers_out.as_ref(), terminal.global.report.as_ref());
        refuse_one_for_two(&[("--transfers-out", transfers), ("--report", page)])?;
        let loaded = terminal.load(&self.scenario, Purpose::Wire)?;
        if let Some(folder) = &self.chakra {
            let ranks = match self.chakra_ranks {
                Ranks::All => chakra::Ranks::All,
                Ranks::Representatives => chakra::Ranks::Representatives,
            };
            let written = chakra::write(&loaded, folder, ranks)?;
            let (ranks, nodes) = (written.ranks, written.nodes);
            terminal.remark(&format!("{ranks} traces with {nodes} nodes"));
        }
        let line = terminal.line("following every byte of a step");
        let report = traffic::run(&loaded)?;
        drop(line);
        if let Some(path) = &self.transfers_out {
            save_table(path, &report.transfers(loaded.fabric()))?;
        }
        terminal.answer("traffic", Some(&loaded), &report)?;
        Ok(Ending::Done)
    }
}
