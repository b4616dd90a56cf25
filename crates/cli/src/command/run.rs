//! `fatflow run`.

use commands::series;
use commands::world::JobWorld;
use commands::{Drawing, Failure, cross_check, run_job, run_traffic};
use step::predict::Prediction;
use units::Span;
use scenario::Purpose;

use crate::arguments::{PatienceArgument, ScenarioArgument, SeedsArgument};
use crate::files::FileArguments;
use crate::terminal::{Ending, Stop, Terminal};

/// Run a scenario: a training step, or synthetic traffic
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow run llama3-meta-roce
  fatflow run scenarios/bench/permutation-128.toml --engine packet --json
  fatflow run my.toml --engine flow --flows-out flows.csv --report run.html
  fatflow run scenarios/bench/incast-32.toml --engine packet --series 10us --series-pairs 0,1
  fatflow run scenarios/bench/ecmp-16-uplinks-4.toml --seeds 1000
  fatflow run my.toml --engine all
  fatflow run my.toml --flows-out flows.parquet --links-out links.parquet
  fatflow run llama3-meta-roce --perfetto step.pftrace --openmetrics ports.om")]
pub(crate) struct Arguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Measure queues, pauses, marks, drops and latencies over time, one sample for each interval;
    /// on the flow engine what links carry
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
    seeds: SeedsArgument,
    #[command(flatten)]
    patience: PatienceArgument,
    #[command(flatten)]
    files: FileArguments,
}

/// Samples for pictures begin this dense and thin out as the run goes on.
const FINEST: Span = Span::from_ns(100);

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        self.files.refuse_one_for_two(terminal.global.report.as_ref())?;
        let mut loaded = terminal.load_on(&self.scenario, Purpose::Run)?;
        let patience = terminal.patience(self.patience, terminal.engines());
        let drawing = match (&terminal.global.report, terminal.global.json) {
            (Some(_), _) => Drawing::OnPage,
            (None, true) => Drawing::Omitted,
            (None, false) => Drawing::OnTerminal,
        };
        if loaded.job.is_some() {
            self.refuse_what_is_for_traffic()?;
            if terminal.engines().is_some_and(|engine| !engine.has_contention()) {
                self.seeds.refuse("closed forms have nothing random")?;
            }
        }
        let Some(engine) = terminal.engines() else {
            self.files.refuse_several_engines()?;
            self.seeds.refuse("`--engine all` asks every engine once")?;
            let report = terminal.watched(|watch| match loaded.job {
                Some(_) => cross_check::job(&mut loaded, patience, watch),
                None => cross_check::traffic(&mut loaded, patience, watch),
            })?;
            terminal.answer("run", Some(&loaded), &report)?;
            return Ok(terminal.ending());
        };
        if loaded.job.is_some() {
            if !engine.has_contention() {
                self.files.refuse_links()?;
            }
            let options = run_job::Options { engine, patience, drawing, ask_what_if: true };
            let repeat = terminal.repeat(self.seeds);
            let report = terminal.watched(|watch| {
                let also = |world: &JobWorld<'_>, prediction: &Prediction| {
                    self.files.of_step(world, prediction)
                };
                run_job::run_and(&loaded, &options, repeat, watch, also)
            })?;
            terminal.answer("run", Some(&loaded), &report)?;
            return Ok(terminal.ending());
        }
        let is_drawn = terminal.global.report.is_some() && engine.moves_packets();
        let (interval, purpose) = match self.series {
            None => (is_drawn.then_some(FINEST), series::Purpose::Pictures),
            asked => (asked, series::Purpose::Result),
        };
        let series = interval.map(|interval| series::Options {
            interval,
            links: self.series_link.clone(),
            queue_pairs: self.series_pairs.clone(),
            purpose,
        });
        let options = run_traffic::Options { engine, patience, series, drawing };
        let repeat = terminal.repeat(self.seeds);
        let (report, work, outcome) = terminal
            .watched(|watch| run_traffic::run_seeds(&loaded, &options, repeat, watch))?;
        self.files.of_run(&loaded, (&report, &work, &outcome))?;
        terminal.answer("run", Some(&loaded), &report)?;
        Ok(terminal.ending())
    }

    /// What synthetic traffic has and a job has not.
    fn refuse_what_is_for_traffic(&self) -> Result<(), Failure> {
        self.files.refuse_flows()?;
        if self.series.is_some() {
            let reason = "--series is for synthetic traffic; a job's phases are run one by one";
            return Err(Failure::Usage(reason.to_owned()));
        }
        Ok(())
    }
}
