//! `fatflow run`.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use commands::{Failure, cross_check, run_job, run_traffic, series};
use units::Span;

use crate::arguments::{PatienceArgument, ScenarioArgument};
use crate::terminal::{Ending, Stop, Terminal};

/// Run a scenario: a training step, or synthetic traffic
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow run llama3-meta-roce
  fatflow run scenarios/bench/permutation-128.toml --engine packet --json
  fatflow run my.toml --engine flow --flows-out flows.csv --report run.html
  fatflow run scenarios/bench/incast-32.toml --engine packet --series 10us --series-pairs 0,1
  fatflow run my.toml --engine all")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Write what became of each flow as CSV
    #[arg(long, value_name = "FILE.csv")]
    flows_out: Option<PathBuf>,
    /// Measure queues, pauses, marks, drops and latencies over time, one sample for each interval
    #[arg(long, value_name = "INTERVAL")]
    series: Option<Span>,
    /// A link or switch whose series are shown ("leaf 0 - spine 1", "spine *") [default: those
    /// that show most]
    #[arg(long, value_name = "NAME", requires = "series")]
    series_link: Vec<String>,
    /// Queue pairs whose rates are shown, by number
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "series")]
    series_pairs: Vec<u32>,
    #[command(flatten)]
    patience: PatienceArgument,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let mut loaded = terminal.load(&self.scenario)?;
        let patience = self.patience.patience();
        if loaded.job.is_some() {
            self.refuse_what_is_for_traffic()?;
        }
        let Some(engine) = terminal.engines() else {
            let report = terminal.watched(|watch| match loaded.job {
                Some(_) => cross_check::job(&mut loaded, patience, watch),
                None => cross_check::traffic(&mut loaded, patience, watch),
            })?;
            terminal.answer("run", Some(&loaded), &report)?;
            return Ok(terminal.ending());
        };
        if loaded.job.is_some() {
            let report =
                terminal.watched(|watch| run_job::run(&loaded, engine, patience, watch))?;
            terminal.answer("run", Some(&loaded), &report)?;
            return Ok(terminal.ending());
        }
        let series = self.series.map(|interval| series::Options {
            interval,
            links: self.series_link.clone(),
            queue_pairs: self.series_pairs.clone(),
        });
        let options = run_traffic::Options { engine, patience, series };
        let (report, work, outcome) =
            terminal.watched(|watch| run_traffic::run(&loaded, &options, watch))?;
        if let Some(path) = &self.flows_out {
            let failed = |error| Failure::Run(format!("cannot write {}: {error}", path.display()));
            let mut out = BufWriter::new(File::create(path).map_err(failed)?);
            run_traffic::write_flows(&mut out, &work, &outcome).map_err(failed)?;
        }
        terminal.answer("run", Some(&loaded), &report)?;
        Ok(terminal.ending())
    }

    /// What synthetic traffic has and a job has not.
    fn refuse_what_is_for_traffic(&self) -> Result<(), Failure> {
        if self.flows_out.is_some() {
            let reason = "--flows-out is for synthetic traffic; a job has `fatflow traffic \
                          --transfers-out`";
            return Err(Failure::Usage(reason.to_owned()));
        }
        if self.series.is_some() {
            let reason = "--series is for synthetic traffic; a job's phases are run one by one";
            return Err(Failure::Usage(reason.to_owned()));
        }
        Ok(())
    }
}
