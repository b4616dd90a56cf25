//! The commands as functions, one for each, as `crates/cli/src/command` has them.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use commands::collective::{self, Sizes, measured};
use commands::files::{Links, series_of_step};
use commands::packets::Patience;
use commands::run_job::several;
use commands::seeds::Repeat;
use commands::validate::left_out::CONSTANTS;
use commands::work::Work;
use commands::world::JobWorld;
use commands::{
    Drawing, Engine, Failure, campaign, compare, cross_check, parallel, run_job, run_traffic,
    series, topo, traffic as wire, validate,
};
use exports::table::Table as Columns;
use packetsim::Watch;
use pyo3::prelude::*;
use report::Sheet;
use scenario::{Loaded, Purpose, Request, load};
use step::predict::Prediction;
use traffic::Outcome;
use traffic::collective::Collective;
use units::{Bytes, Span, Unused};

use crate::answer::{Answer, Shown, StoredAnswer, no_table};
use crate::given::{Scenario, outside};
use crate::transfers;
use crate::watched::watched;

/// Samples for pictures begin this dense and thin out as the run goes on.
const FINEST: Span = Span::from_ns(100);

/// How a scenario is run, whatever it holds.
#[derive(FromPyObject, Clone, Debug)]
#[pyo3(from_item_all)]
pub(crate) struct How {
    /// `analytic`, `flow`, `packet` or `all`.
    engine: String,
    /// In place of the scenario's own.
    seed: Option<u64>,
    /// From the first on.
    seeds: u32,
    /// At most.
    threads: Option<u16>,
    /// Whether a run may take long.
    force: bool,
}

impl How {
    /// The engine; `None` for all of them.
    fn engines(&self) -> Result<Option<Engine>, Failure> {
        let known = Engine::ALL.into_iter().find(|engine| engine.name() == self.engine);
        match (known, self.engine.as_str()) {
            (Some(engine), _) => Ok(Some(engine)),
            (None, "all") => Ok(None),
            (None, other) => Err(Failure::Usage(format!(
                "there is no engine `{other}`: analytic, flow, packet, or all for run and collective"
            ))),
        }
    }

    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }

    pub(crate) fn seeds(&self) -> u32 {
        self.seeds
    }

    pub(crate) fn threads(&self) -> Option<u16> {
        self.threads
    }

    /// The same for a command that asks one engine.
    pub(crate) fn one_engine(&self) -> Result<Engine, Failure> {
        self.engines()?.ok_or_else(|| {
            let reason = "engine `all` is for run and collective; this command asks one";
            Failure::Usage(reason.to_owned())
        })
    }

    fn patience(&self) -> Patience {
        if self.force { Patience::Endless } else { Patience::Usual }
    }

    fn repeat<'a>(&self, stop: &'a AtomicBool) -> Repeat<'a> {
        let threads = if 1 < self.seeds { self.threads } else { None };
        Repeat { seeds: self.seeds, threads, interrupt: Some(stop) }
    }

    /// Refuses seeds that nobody could ask, or several where one is all that there is.
    fn check_seeds(&self, one_because: Option<&str>) -> Result<(), Failure> {
        match (self.seeds, one_because) {
            (0, _) | (100_001.., _) => {
                Err(Failure::Usage(format!("seeds is {}, not 1 to 100,000", self.seeds)))
            }
            (2.., Some(why)) => Err(Failure::Usage(format!("seeds: {why}"))),
            _ => Ok(()),
        }
    }

    /// What was given and does nothing on this engine.
    pub(crate) fn vain(&self, engine: Option<Engine>, uses_threads: bool) -> Vec<Unused> {
        let unused = |key: &str, why: &str, used_by: &str| {
            let [key, why, used_by] = [key, why, used_by].map(str::to_owned);
            Unused { key, why, used_by }
        };
        let mut vain = Vec::new();
        if self.threads.is_some() && !uses_threads {
            let used_by = "seeds, engine=\"packet\", compare and validate";
            vain.push(unused("threads", "this runs on one thread", used_by));
        }
        if self.force && engine.is_some_and(|engine| !engine.can_take_long()) {
            let why = "this is never refused for its length";
            vain.push(unused("force", why, "engine=\"packet\""));
        }
        vain
    }
}

/// What of a scenario is run, what is measured over time, and what is drawn.
#[derive(FromPyObject, Clone, Debug)]
#[pyo3(from_item_all)]
pub(crate) struct Measured {
    /// Whether a job's step is put on one clock.
    whole: bool,
    /// Days that are played by dice.
    days: Option<u32>,
    /// Steps that follow each other.
    steps: Option<u32>,
    /// The interval.
    series: Option<String>,
    /// The links that are told.
    series_links: Vec<String>,
    /// The queue pairs that are told.
    series_pairs: Vec<u32>,
    /// Whether anybody will look at pictures.
    charts: bool,
}

impl Measured {
    /// Refuses numbers that the command would not take.
    fn check_numbers(&self) -> Result<(), Failure> {
        for (name, number, most) in [("days", self.days, 36_500), ("steps", self.steps, 100_000)] {
            if number.is_some_and(|number| !(1..=most).contains(&number)) {
                let most = report::number::grouped(most.into());
                return Err(Failure::Usage(format!("{name} is not 1 to {most}")));
            }
        }
        Ok(())
    }

    /// Refuses what is asked for and this scenario on this engine has not.
    fn refuse(&self, has_job: bool, engine: Option<Engine>) -> Result<(), Failure> {
        let reason = match () {
            () if self.steps.is_some() && (!has_job || self.days.is_some()) => {
                "steps is for a job, and without days"
            }
            () if self.whole && !has_job => {
                "whole is for jobs; synthetic traffic always runs on one clock"
            }
            () if self.days.is_some() && !has_job => {
                "days is for a job; synthetic traffic has no failures by cause"
            }
            () if self.days.is_some() && engine.is_none() => {
                "days plays with the step of one engine; engine `all` has several"
            }
            () if self.steps.is_some() && engine.is_none() => "steps runs one engine, not `all`",
            () => return Ok(()),
        };
        Err(Failure::Usage(reason.to_owned()))
    }

    fn drawing(&self) -> Drawing {
        if self.charts { Drawing::OnPage } else { Drawing::Omitted }
    }

    fn series(&self, engine: Engine) -> Result<Option<series::Options>, Failure> {
        let is_drawn = self.charts && engine.moves_packets();
        let (interval, purpose) = match &self.series {
            None => (is_drawn.then_some(FINEST), series::Purpose::Pictures),
            Some(text) => (Some(quantity("series", text)?), series::Purpose::Result),
        };
        if self.series.is_none() && !(self.series_links.is_empty() && self.series_pairs.is_empty())
        {
            let reason = "series_links and series_pairs say what of `series` is told: give both";
            return Err(Failure::Usage(reason.to_owned()));
        }
        Ok(interval.map(|interval| series::Options {
            interval,
            links: self.series_links.clone(),
            queue_pairs: self.series_pairs.clone(),
            purpose,
        }))
    }
}

pub(crate) fn quantity<T: FromStr>(name: &str, text: &str) -> Result<T, Failure>
where
    T::Err: ToString,
{
    text.parse().map_err(|error: T::Err| Failure::Usage(format!("{name}: {}", error.to_string())))
}

/// Loads a scenario for an engine, or for all of them.
fn load_on(
    request: impl Fn(Purpose) -> Request,
    engine: Option<Engine>,
    purpose: impl Fn(Engine) -> Purpose,
) -> Result<Loaded, Failure> {
    if let Some(engine) = engine {
        return Ok(load(&request(purpose(engine)))?);
    }
    let mut loaded = load(&request(Purpose::Settings))?;
    loaded.unused = cross_check::unused(&loaded, purpose);
    Ok(loaded)
}

/// With the cores that the command takes: packets of one run are spread over threads.
pub(crate) fn watch<'a>(stop: &'a AtomicBool, how: &How, engine: Option<Engine>) -> Watch<'a> {
    let moves_packets = engine.is_none_or(Engine::moves_packets);
    let cores = if moves_packets { parallel::threads(how.threads) } else { 1 };
    Watch { interrupt: Some(stop), cores, ..Watch::default() }
}

/// The names of all presets.
#[pyfunction]
pub(crate) fn presets() -> Vec<&'static str> {
    scenario::preset::names().collect()
}

/// A step as it was predicted.
struct Step {
    report: run_job::Report,
    engine: Engine,
    prediction: Prediction,
}

impl StoredAnswer for Step {
    fn sheet(&self) -> Sheet {
        report::Answer::sheet(&self.report)
    }

    fn table(&self, about: Option<&Loaded>, name: &str) -> Result<Columns, Failure> {
        let loaded = about.expect("a step is of a scenario");
        if !self.engine.has_contention() {
            return Err(Failure::Usage(format!(
                "{name}: the closed forms of a job do not say what links carry: use the flow or \
                 the packet engine"
            )));
        }
        let world = run_job::world(loaded, self.engine)?;
        match name {
            "links" => Ok(Links::of_step(&world, &self.prediction).table()),
            "series" => Ok(series_of_step(&world, &self.prediction)),
            "flows" => Err(Failure::Usage(
                "flows are synthetic traffic's; a job has `traffic().transfers`".to_owned(),
            )),
            _ => Err(no_table(name)),
        }
    }
}

/// Synthetic traffic as it was run.
struct Ran {
    report: run_traffic::Report,
    work: Work,
    outcome: Outcome,
}

impl StoredAnswer for Ran {
    fn sheet(&self) -> Sheet {
        report::Answer::sheet(&self.report)
    }

    fn table(&self, about: Option<&Loaded>, name: &str) -> Result<Columns, Failure> {
        let loaded = about.expect("traffic is a scenario's");
        match name {
            "flows" => Ok(commands::files::flows(&self.work, &self.outcome)),
            "links" => Ok(Links::of_run(loaded.fabric(), &self.outcome).table()),
            "series" => self.report.series.as_ref().map(series::Series::table).ok_or_else(|| {
                let reason = "series: nothing was measured over time; run with series=\"10us\"";
                Failure::Usage(reason.to_owned())
            }),
            _ => Err(no_table(name)),
        }
    }
}

/// Runs a scenario: a training step, or synthetic traffic.
#[pyfunction]
#[pyo3(name = "run")]
pub(crate) fn ask_run(
    py: Python<'_>,
    scenario: &Scenario,
    how: How,
    measured: Measured,
    flows: Option<Bound<'_, PyAny>>,
) -> PyResult<Answer> {
    let flows = flows.map(|flows| transfers::read(&flows)).transpose()?;
    watched(py, |stop| {
        let engine = how.engines()?;
        let (flows, unread) = flows.unzip();
        let request = |purpose| scenario.request_with(flows.clone(), how.seed, purpose);
        measured.check_numbers()?;
        let purpose = if measured.days.is_some() { Purpose::Campaign } else { Purpose::Run };
        let loaded = load_on(request, engine, purpose)?;
        let mut vain = how.vain(engine, 1 < how.seeds || moves_packets(engine));
        vain.extend(unread.into_iter().flatten());
        if !loaded.members.is_empty() {
            return run_jobs(loaded, engine, (&how, &measured), vain, stop);
        }
        measured.refuse(loaded.job.is_some(), engine)?;
        match (engine, loaded.job.is_some()) {
            (None, _) => run_all(loaded, &how, vain, stop),
            (Some(engine), true) => run_step(loaded, engine, (&how, &measured), vain, stop),
            (Some(engine), false) => run_flows(loaded, engine, (&how, &measured), vain, stop),
        }
    })
}

fn moves_packets(engine: Option<Engine>) -> bool {
    engine.is_none_or(Engine::moves_packets)
}

/// Several jobs on one fabric.
fn run_jobs(
    loaded: Loaded,
    engine: Option<Engine>,
    (how, measured): (&How, &Measured),
    vain: Vec<Unused>,
    stop: &AtomicBool,
) -> Result<Answer, Failure> {
    how.check_seeds(Some("several jobs are run with one seed: seed chooses it"))?;
    let engine = engine.filter(|_| measured.days.is_none() && measured.series.is_none());
    let Some(engine) = engine else {
        let reason = "several jobs are run on one engine, without days and series";
        return Err(Failure::Usage(reason.to_owned()));
    };
    let (patience, steps) = (how.patience(), measured.steps.unwrap_or(1));
    let options = several::Options { engine, patience, steps };
    let report = several::run(&loaded, options, &mut watch(stop, how, Some(engine)))?;
    Answer::new("run", Some(loaded), vain, report, |report| Box::new(Shown(report)))
}

fn run_all(
    mut loaded: Loaded,
    how: &How,
    vain: Vec<Unused>,
    stop: &AtomicBool,
) -> Result<Answer, Failure> {
    how.check_seeds(Some("engine `all` asks every engine once"))?;
    let (patience, mut watch) = (how.patience(), watch(stop, how, None));
    let report = match loaded.job {
        Some(_) => cross_check::job(&mut loaded, patience, &mut watch)?,
        None => cross_check::traffic(&mut loaded, patience, &mut watch)?,
    };
    Answer::new("run", Some(loaded), vain, report, |report| Box::new(Shown(report)))
}

fn run_step(
    loaded: Loaded,
    engine: Engine,
    (how, measured): (&How, &Measured),
    vain: Vec<Unused>,
    stop: &AtomicBool,
) -> Result<Answer, Failure> {
    if measured.series.is_some() {
        let reason = "series is for synthetic traffic; a job's phases are run one by one";
        return Err(Failure::Usage(reason.to_owned()));
    }
    measured.series(engine)?;
    let is_closed = !engine.has_contention() && measured.days.is_none();
    how.check_seeds(is_closed.then_some("closed forms have nothing random"))?;
    let (patience, drawing) = (how.patience(), measured.drawing());
    let whole = measured.whole || measured.steps.is_some();
    let options = run_job::Options { engine, patience, drawing, ask_what_if: true, whole };
    let (mut kept, mut watch) = (None, watch(stop, how, Some(engine)));
    let also = |_: &JobWorld<'_>, seen: &Prediction| {
        kept = Some(seen.clone());
        Ok(())
    };
    // For days the dice are thrown again, the step is not run again.
    let repeat = if measured.days.is_some() { Repeat::ONCE } else { how.repeat(stop) };
    let mut report = run_job::run_and(&loaded, &options, repeat, &mut watch, also)?;
    if let Some(steps) = measured.steps {
        let options = several::Options { engine, patience, steps };
        report.steps = Some(several::steps(&loaded, options, &mut watch)?);
    }
    if let Some(days) = measured.days {
        let options = campaign::Options { days, engine, patience, repeat: how.repeat(stop) };
        report.campaign = Some(campaign::play(&loaded, &report, &options, &mut watch)?);
    }
    let prediction = kept.expect("a report is made of a prediction");
    Answer::new("run", Some(loaded), vain, report, |report| {
        Box::new(Step { report, engine, prediction })
    })
}

fn run_flows(
    loaded: Loaded,
    engine: Engine,
    (how, measured): (&How, &Measured),
    vain: Vec<Unused>,
    stop: &AtomicBool,
) -> Result<Answer, Failure> {
    how.check_seeds(None)?;
    let mut watch = watch(stop, how, Some(engine));
    let options = run_traffic::Options {
        engine,
        patience: how.patience(),
        series: measured.series(engine)?,
        capture: None,
        drawing: measured.drawing(),
    };
    let (report, work, outcome) =
        run_traffic::run_seeds(&loaded, &options, how.repeat(stop), &mut watch)?;
    Answer::new("run", Some(loaded), vain, report, |report| Box::new(Ran { report, work, outcome }))
}

/// Which collective, over which sizes.
#[derive(FromPyObject, Clone, Debug)]
#[pyo3(from_item_all)]
pub(crate) struct Sweep {
    collective: String,
    min: String,
    max: String,
    factor: u64,
    gpus: Option<usize>,
    iterations: u32,
    measured: Option<PathBuf>,
}

/// Runs one collective over message sizes.
#[pyfunction]
#[pyo3(name = "collective")]
pub(crate) fn ask_collective(
    py: Python<'_>,
    scenario: &Scenario,
    sweep: Sweep,
    how: How,
) -> PyResult<Answer> {
    watched(py, |stop| {
        let Sweep { min, max, factor, gpus, .. } = &sweep;
        let kind = collective_named(&sweep.collective)?;
        let engine = how.engines()?;
        let purpose = |engine| Purpose::Collective(engine, kind);
        let mut loaded = load_on(|purpose| scenario.request(how.seed, purpose), engine, purpose)?;
        let sizes = Sizes {
            min: quantity::<Bytes>("min", min)?,
            max: quantity::<Bytes>("max", max)?,
            factor: *factor,
        };
        let options = collective::Options {
            engine: engine.unwrap_or_default(),
            patience: how.patience(),
            collective: kind,
            sizes,
            gpus: *gpus,
            iterations: sweep.iterations,
        };
        let vain = how.vain(engine, 1 < how.seeds || moves_packets(engine));
        let mut watch = watch(stop, &how, engine);
        if engine.is_none() {
            how.check_seeds(Some("engine `all` asks every engine once"))?;
            if sweep.measured.is_some() {
                let reason = "measured stands beside one engine: choose one instead of `all`";
                return Err(Failure::Usage(reason.to_owned()));
            }
            let report = cross_check::collective(&mut loaded, &options, &mut watch)?;
            return Answer::new("collective", Some(loaded), vain, report, |report| {
                Box::new(Shown(report))
            });
        }
        let closed = !options.engine.has_contention();
        how.check_seeds(closed.then_some("closed forms have nothing random"))?;
        let measured = sweep.measured.as_deref().map(measured::read).transpose()?;
        let repeat = how.repeat(stop);
        let report = collective::run_seeds(&loaded, &options, repeat, measured, &mut watch)?;
        Answer::new("collective", Some(loaded), vain, report, |report| Box::new(Shown(report)))
    })
}

/// A collective by the name that the command knows.
fn collective_named(name: &str) -> Result<Collective, Failure> {
    let known = || Collective::ALL.into_iter().filter(|known| !known.is_expert_parallel());
    known().find(|known| known.name() == name).ok_or_else(|| {
        let names: Vec<&str> = known().map(Collective::name).collect();
        Failure::Usage(format!("there is no collective `{name}`: {}", names.join(", ")))
    })
}

/// What a job puts on the wire.
struct Wire {
    report: wire::Report,
}

impl StoredAnswer for Wire {
    fn sheet(&self) -> Sheet {
        report::Answer::sheet(&self.report)
    }

    fn table(&self, about: Option<&Loaded>, name: &str) -> Result<Columns, Failure> {
        let loaded = about.expect("traffic is a scenario's");
        match name {
            "transfers" => Ok(self.report.transfers(loaded.fabric())),
            _ => Err(no_table(name)),
        }
    }
}

/// Describes what a job puts on the wire.
#[pyfunction]
#[pyo3(name = "traffic")]
pub(crate) fn ask_traffic(py: Python<'_>, scenario: &Scenario) -> PyResult<Answer> {
    watched(py, |_| {
        let loaded = load(&scenario.request(None, Purpose::Wire))?;
        let report = wire::run(&loaded)?;
        Answer::new("traffic", Some(loaded), Vec::new(), report, |report| Box::new(Wire { report }))
    })
}

/// Describes a fabric, or the way from one to another.
#[pyfunction]
#[pyo3(name = "topo")]
pub(crate) fn ask_topo(
    py: Python<'_>,
    scenario: &Scenario,
    domains: bool,
    rack_servers: Option<u32>,
    to: Option<Scenario>,
) -> PyResult<Answer> {
    watched(py, |_| {
        let purpose = if domains { Purpose::Domains } else { Purpose::Topology };
        let loaded = load(&scenario.request(None, purpose))?;
        if rack_servers == Some(0) || (rack_servers.is_some() && !domains) {
            let reason = "rack_servers is at least 1, and for domains=True";
            return Err(Failure::Usage(reason.to_owned()));
        }
        if let Some(to) = to {
            if domains {
                let reason = "domains is of one fabric: not with grows_into";
                return Err(Failure::Usage(reason.to_owned()));
            }
            let growth = topo::grow(&loaded, &load(&to.request(None, purpose))?);
            return Answer::new("topo", Some(loaded), Vec::new(), growth, |growth| {
                Box::new(Shown(growth))
            });
        }
        let report = match domains {
            true => topo::with_domains(&loaded, rack_servers)?,
            false => topo::run(&loaded),
        };
        Answer::new("topo", Some(loaded), Vec::new(), report, |report| Box::new(Shown(report)))
    })
}

/// Compares scenarios, each under its column's name; without any, the deployments.
#[pyfunction]
#[pyo3(name = "compare")]
pub(crate) fn ask_compare(
    py: Python<'_>,
    scenarios: Vec<(String, Scenario)>,
    vary: Vec<String>,
    how: How,
) -> PyResult<Answer> {
    watched(py, |stop| {
        how.check_seeds(None)?;
        let engine = how.one_engine()?;
        let purpose = Purpose::Run(engine);
        let given = scenarios.into_iter().map(|(name, scenario)| {
            let request = scenario.request(None, purpose);
            (name, request)
        });
        let options = compare::Options {
            scenarios: Vec::new(),
            engine,
            threads: how.threads,
            patience: how.patience(),
            vary,
            seeds: how.seeds,
            given: given.collect(),
            notes: Vec::new(),
        };
        let request = Request { purpose, seed: how.seed, ..outside() };
        let report = compare::run(&options, &request, stop, &|_| {})?;
        let vain = how.vain(Some(engine), true);
        Answer::new("compare", None, vain, report, |report| Box::new(Shown(report)))
    })
}

/// Scores predictions against measurements.
#[pyfunction]
#[pyo3(name = "validate")]
pub(crate) fn ask_validate(
    py: Python<'_>,
    inputs: Vec<PathBuf>,
    threshold: Option<f64>,
    ratchet: Option<PathBuf>,
    set: Vec<String>,
    how: How,
) -> PyResult<Answer> {
    watched(py, |stop| {
        let options = validate::Options {
            inputs,
            engine: how.one_engine()?,
            threshold,
            ratchet,
            threads: how.threads,
        };
        let key = |set: &str| set.split('=').next().unwrap_or_default().trim().to_owned();
        let is_read = |key: &str| {
            key.starts_with("catalogue.") || CONSTANTS.iter().any(|known| known.key == key)
        };
        if let Some(set) = set.iter().find(|set| !is_read(&key(set))) {
            let known: Vec<&str> = CONSTANTS.iter().map(|constant| constant.key).collect();
            return Err(Failure::Usage(format!(
                "`{set}` does nothing here: validate reads no scenario; settings of hardware begin \
                 with `catalogue.`; it also reads {}",
                known.join(", ")
            )));
        }
        let request = Request { purpose: Purpose::Settings, set, ..outside() };
        let tell = |_, _| {
            if stop.load(Ordering::Relaxed) {
                // Measurements are scored one by one on threads that nobody else can end.
                std::panic::resume_unwind(Box::new("interrupted"));
            }
        };
        let report = validate::run(&options, &request, &tell)?;
        Answer::new("validate", None, Vec::new(), report, |report| Box::new(Shown(report)))
    })
}
