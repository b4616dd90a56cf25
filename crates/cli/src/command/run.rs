//! `fatflow run`.

use commands::series;
use commands::world::JobWorld;
use commands::packets::Patience;
use commands::run_job::several;
use commands::seeds::Repeat;
use commands::files::capture;
use commands::{Drawing, Failure, campaign, cross_check, run_job, run_traffic};
use packetsim::tap::Tape;
use step::predict::Prediction;
use units::Span;
use scenario::{Loaded, Purpose};

use crate::arguments::{PatienceArgument, ScenarioArgument, SeedsArgument};
use crate::files::FileArguments;
use crate::terminal::{Ending, Stop, Terminal};

/// Run a scenario: a training step, or synthetic traffic
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow run llama3-meta-roce
  fatflow run llama3-meta-roce --all
  fatflow run scenarios/bench/permutation-128.toml --engine packet --json
  fatflow run my.toml --engine flow --flows-out flows.csv --report run.html
  fatflow run scenarios/bench/incast-32.toml --engine packet --series 10us --series-pairs 0,1
  fatflow run scenarios/bench/ecmp-16-uplinks-4.toml --seeds 1000
  fatflow run scenarios/bench/incast-32.toml --engine packet --pcap incast.pcapng
  fatflow run my.toml --engine packet --pcap step.pcapng
  fatflow run my.toml --engine all
  fatflow run small-128 --whole
  fatflow run small-128 --set 'faults=[{on=\"leaf 0 - spine 0\",at=\"1s\",for=\"2s\",what={kind=\"link-down\"}}]'
  fatflow run small-128 --steps 20
  fatflow run scenarios/jobs/two-jobs.toml
  fatflow run llama3-meta-roce --days 30 --seeds 1000
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
    /// Run the whole step of a job on one clock: every rank of every stage and copy, in one run
    /// [default: where faults come or go within the step]
    #[arg(long)]
    whole: bool,
    /// Play so many days of the job by dice: failures, spares, restarts, checkpoints; with --seeds
    /// that often
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: Option<u32>,
    /// Run so many steps of the job one after the other on one clock, state kept: how even they are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: Option<u32>,
    /// Show all that a page has: causes, the critical path, timelines, memory, failures, money
    #[arg(long)]
    all: bool,
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
        terminal.show_all(self.all);
        let purpose = if self.days.is_some() { Purpose::Campaign } else { Purpose::Run };
        let mut loaded = terminal.load_on(&self.scenario, purpose)?;
        let patience = terminal.patience(self.patience, terminal.engines());
        let drawing = match (&terminal.global.report, terminal.global.json) {
            (Some(_), _) => Drawing::OnPage,
            (None, true) => Drawing::Omitted,
            (None, false) => Drawing::OnTerminal,
        };
        if !loaded.members.is_empty() {
            return self.several(terminal, &loaded, patience);
        }
        if self.steps.is_some() && (loaded.job.is_none() || self.days.is_some()) {
            let reason = "--steps is for a job, and without --days";
            return Err(Failure::Usage(reason.to_owned()).into());
        }
        if self.whole && loaded.job.is_none() {
            let reason = "--whole is for jobs; synthetic traffic always runs on one clock";
            return Err(Failure::Usage(reason.to_owned()).into());
        }
        let is_closed = terminal.engines().is_some_and(|engine| !engine.has_contention());
        if loaded.job.is_some() {
            self.refuse_what_is_for_traffic()?;
            if is_closed && self.days.is_none() {
                self.seeds.refuse("closed forms have nothing random")?;
            }
        }
        self.refuse_days(loaded.job.is_some(), terminal.engines())?;
        if self.files.wants_film() && is_closed {
            terminal.remark("unused: --fabric-out: closed forms put nothing on links");
        }
        let Some(engine) = terminal.engines() else {
            self.files.refuse_several_engines()?;
            self.seeds.refuse("`--engine all` asks every engine once")?;
            self.refuse_steps_of_all()?;
            let report = terminal.watched(|watch| match loaded.job {
                Some(_) => cross_check::job(&mut loaded, patience, watch),
                None => cross_check::traffic(&mut loaded, patience, watch),
            })?;
            terminal.answer("run", Some(&loaded), &report)?;
            return Ok(terminal.ending());
        };
        if loaded.job.is_some() {
            let (ask_what_if, whole) = (true, self.whole);
            let options = run_job::Options { engine, patience, drawing, ask_what_if, whole };
            return self.step(terminal, &loaded, &options);
        }
        let is_drawn = (terminal.global.report.is_some() && engine.moves_packets())
            || (self.files.wants_film() && engine.has_contention());
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
        let capture = self.files.capture();
        let options = run_traffic::Options { engine, patience, series, capture, drawing };
        let repeat = terminal.repeat(self.seeds);
        let (report, work, outcome) = terminal
            .watched(|watch| run_traffic::run_seeds(&loaded, &options, repeat, watch))?;
        self.files.of_run(&loaded, (&report, &work, &outcome))?;
        terminal.answer("run", Some(&loaded), &report)?;
        Ok(terminal.ending())
    }

    /// A job's step, and days of it if that was asked for.
    fn step(
        &self,
        terminal: &Terminal,
        loaded: &Loaded,
        options: &run_job::Options,
    ) -> Result<Ending, Stop> {
        let run_job::Options { engine, patience, .. } = *options;
        if !engine.has_contention() {
            self.files.refuse_links()?;
        }
        let repeat = terminal.repeat(self.seeds);
        let wanted = self.files.capture();
        if let Some(wanted) = &wanted {
            capture::refuse(loaded, engine, wanted)?;
            if 1 < repeat.seeds || self.days.is_some() || self.steps.is_some() {
                let reason = "--pcap writes one step: leave out --seeds, --days and --steps";
                return Err(Failure::Usage(reason.to_owned()).into());
            }
        }
        let report = terminal.watched(|watch| {
            watch.tape = wanted.as_ref().map(|wanted| Tape::new(wanted.limit));
            let also = |world: &JobWorld<'_>, prediction: &Prediction| {
                self.files.of_step(loaded, world, prediction)
            };
            let Some(days) = self.days else {
                let options = run_job::Options {
                    whole: options.whole || self.steps.is_some(),
                    ..*options
                };
                let mut report = run_job::run_and(loaded, &options, repeat, watch, also)?;
                if let (Some(tape), Some(wanted)) = (watch.tape.take(), &wanted) {
                    report.capture = Some(capture::write(loaded, &tape.runs, wanted)?);
                }
                if let Some(steps) = self.steps {
                    let options = several::Options { engine, patience, steps };
                    report.steps = Some(several::steps(loaded, options, watch)?);
                }
                return Ok::<_, Failure>(report);
            };
            // The dice are thrown again, the step is not run again.
            let mut report = run_job::run_and(loaded, options, Repeat::ONCE, watch, also)?;
            let options = campaign::Options { days, engine, patience, repeat };
            report.campaign = Some(campaign::play(loaded, &report, &options, watch)?);
            Ok(report)
        })?;
        terminal.answer("run", Some(loaded), &report)?;
        Ok(terminal.ending_with(&report.targets))
    }

    /// Several jobs on one fabric.
    fn several(
        &self,
        terminal: &Terminal,
        loaded: &Loaded,
        patience: Patience,
    ) -> Result<Ending, Stop> {
        self.files.refuse_several_jobs()?;
        let engine = terminal.engines().filter(|_| self.days.is_none() && self.series.is_none());
        let Some(engine) = engine else {
            let reason = "several jobs are run on one engine, without --days and --series";
            return Err(Failure::Usage(reason.to_owned()).into());
        };
        if self.files.wants_film() {
            terminal.remark("unused: --fabric-out: it is of one job, and these are several");
        }
        let options = several::Options { engine, patience, steps: self.steps.unwrap_or(1) };
        let repeat = terminal.repeat(self.seeds);
        let report =
            terminal.watched(|watch| several::run_seeds(loaded, options, repeat, watch))?;
        terminal.answer("run", Some(loaded), &report)?;
        Ok(terminal.ending())
    }

    fn refuse_steps_of_all(&self) -> Result<(), Failure> {
        match self.steps {
            Some(_) => Err(Failure::Usage("--steps runs one engine, not `all`".to_owned())),
            None => Ok(()),
        }
    }

    /// Days are of a job, with the step of one engine.
    fn refuse_days(&self, has_job: bool, engine: Option<commands::Engine>) -> Result<(), Failure> {
        let reason = match (has_job, engine) {
            _ if self.days.is_none() => return Ok(()),
            (false, _) => "--days is for a job; synthetic traffic has no failures by cause",
            (_, None) => "--days plays with the step of one engine; `--engine all` has several",
            (true, Some(_)) => return Ok(()),
        };
        Err(Failure::Usage(reason.to_owned()))
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
