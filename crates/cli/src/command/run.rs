//! `fatflow run`.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use commands::run_traffic::Patience;
use commands::{Failure, run_job, run_traffic};

use crate::arguments::ScenarioArgument;
use crate::terminal::{Ending, Stop, Terminal};

/// Run a scenario: a training step, or synthetic traffic
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow run llama3-meta-roce
  fatflow run scenarios/bench/permutation-128.toml --engine packet --json
  fatflow run my.toml --engine flow --flows-out flows.csv --report run.html")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Write what became of each flow as CSV
    #[arg(long, value_name = "FILE.csv")]
    flows_out: Option<PathBuf>,
    /// Run even what will take more than ten minutes or the memory that there is
    #[arg(long)]
    force: bool,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let loaded = terminal.load(&self.scenario)?;
        let engine = terminal.engine();
        if loaded.job.is_some() {
            if self.flows_out.is_some() {
                let reason = "--flows-out is for synthetic traffic; a job has `fatflow traffic \
                              --transfers-out`";
                return Err(Failure::Run(reason.to_owned()).into());
            }
            terminal.answer("run", Some(&loaded), &run_job::run(&loaded, engine)?)?;
            return Ok(Ending::Done);
        }
        let patience = if self.force { Patience::Endless } else { Patience::Usual };
        let mut show = |progress: packetsim::Progress| terminal.progress(&progress);
        let mut watch =
            packetsim::Watch { interrupt: None, progress: Some(&mut show) };
        let (report, work, outcome) = run_traffic::run(&loaded, engine, patience, &mut watch)?;
        terminal.clear_progress();
        if let Some(path) = &self.flows_out {
            let failed = |error| Failure::Run(format!("cannot write {}: {error}", path.display()));
            let mut out = BufWriter::new(File::create(path).map_err(failed)?);
            run_traffic::write_flows(&mut out, &work, &outcome).map_err(failed)?;
        }
        terminal.answer("run", Some(&loaded), &report)?;
        Ok(Ending::Done)
    }
}
