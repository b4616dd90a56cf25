//! What to change (`advise`), and what a real cluster wrote down (`observe`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use commands::advise::write::{self, File};
use commands::advise::{self, Advice, Goal, Options};
use commands::observe::beside::compare;
use commands::observe::calibrate::{Order, calibrate};
use commands::observe::read_off::apply;
use commands::observe::{self, Report, Watch};
use commands::{Engine, Failure};
use pyo3::prelude::*;
use report::Sheet;
use scenario::{Loaded, Problem, Purpose, Request, load};
use units::Span;

use crate::answer::{Answer, Shown, StoredAnswer};
use crate::ask::{How, quantity, watch};
use crate::given::Scenario;
use crate::watched::watched;

/// The most seeds of an advice, as the command has it.
const MOST_SEEDS: u32 = 1_000;

/// What is wanted of an advice.
#[derive(FromPyObject, Clone, Debug)]
#[pyo3(from_item_all)]
pub(crate) struct Wanted {
    /// `step`, `goodput` or `cost`.
    goal: String,
    /// How much longer the step may become, as a share.
    within: Option<f64>,
    /// Whether the future directions are tried instead.
    future: bool,
    /// Keys that may not change.
    fix: Vec<String>,
    /// After this time nothing new is begun.
    budget: String,
}

impl Wanted {
    fn goal(&self) -> Result<Goal, Failure> {
        match self.goal.as_str() {
            "step" => Ok(Goal::Step),
            "goodput" => Ok(Goal::Goodput),
            "cost" => Ok(Goal::Cost),
            other => {
                Err(Failure::Usage(format!("there is no goal `{other}`: step, goodput or cost")))
            }
        }
    }

    /// Refuses what cannot be asked for together, or at all.
    fn refuse(&self, how: &How) -> Result<(), Failure> {
        let is_no_share = |share: f64| !(0.0..=10.0).contains(&share);
        let reason = match () {
            () if self.within.is_some() && self.future => "within and future exclude each other",
            () if self.within.is_some_and(is_no_share) => "within is a share, such as 0.02",
            () if !(1..=MOST_SEEDS).contains(&how.seeds()) => "seeds is not 1 to 1,000",
            () => return Ok(()),
        };
        Err(Failure::Usage(reason.to_owned()))
    }
}

/// Tries changes of a scenario and ranks what they gain.
#[pyfunction]
#[pyo3(name = "advise")]
pub(crate) fn ask_advise(
    py: Python<'_>,
    scenario: &Scenario,
    wanted: Wanted,
    how: How,
) -> PyResult<Answer> {
    watched(py, |stop| {
        wanted.refuse(&how)?;
        let engine = how.one_engine()?;
        let request = scenario.request(how.seed(), Purpose::Run(engine));
        let loaded = load(&request)?;
        let options = Options {
            goal: wanted.goal()?,
            within: wanted.within,
            future: wanted.future,
            fixed: wanted.fix.clone(),
            budget_s: quantity::<Span>("budget", &wanted.budget)?.as_secs_f64(),
            engine,
            seeds: how.seeds(),
            threads: how.threads(),
            interrupt: Some(stop),
        };
        let advice = advise::run(&request, &options, &|_| {})?;
        Answer::new("advise", Some(loaded), Vec::new(), advice, |advice| {
            Box::new(Advised { advice, request })
        })
    })
}

/// An advice, and what it was given for: its files are made of both.
struct Advised {
    advice: Advice,
    request: Request,
}

impl StoredAnswer for Advised {
    fn sheet(&self) -> Sheet {
        report::Answer::sheet(&self.advice)
    }

    fn files(&self, take: Option<u32>) -> Result<(String, Vec<File>), Failure> {
        let chosen = self.advice.chosen(take)?;
        Ok((chosen.name.clone(), write::files(&self.request, chosen)?))
    }
}

/// Reads what a real cluster wrote; with a scenario, sets beside it what that predicts.
#[pyfunction]
#[pyo3(name = "observe")]
pub(crate) fn ask_observe(
    py: Python<'_>,
    files: Vec<PathBuf>,
    scenario: Option<Scenario>,
    calibrated: Option<PathBuf>,
    how: How,
) -> PyResult<Answer> {
    watched(py, |stop| {
        if files.is_empty() {
            let reason = "observe reads files: give at least one";
            return Err(Failure::Usage(reason.to_owned()));
        }
        let engine = how.one_engine()?;
        let mut report =
            observe::run(&files, &Watch { interrupt: Arc::clone(stop), ..Watch::default() });
        refuse_unread(&report)?;
        let mut vain = Vec::new();
        let mut loaded = None;
        if let Some(scenario) = scenario {
            let watch = &mut watch(stop, &how, Some(engine));
            let out = calibrated.as_deref();
            loaded = Some(predict(&scenario, (engine, &how), out, &mut report, watch)?);
            vain = how.vain(Some(engine), engine.moves_packets());
        }
        Answer::new("observe", loaded, vain, report, |report| Box::new(Shown(report)))
    })
}

/// What the command answers with exit code 3: a file that cannot be opened, or nothing that is
/// understood.
fn refuse_unread(report: &Report) -> Result<(), Failure> {
    if report.has_read_something() && !report.misses_a_file() {
        return Ok(());
    }
    let of_interest = report.summary.sources.iter().filter(|source| match report.misses_a_file() {
        true => source.kind == "unreadable",
        false => true,
    });
    let told: Vec<String> = of_interest
        .map(|source| match source.problems.as_slice() {
            [] => format!("{}: nothing in it is understood", source.file),
            problems => format!("{}: {}", source.file, problems.join("; ")),
        })
        .collect();
    Err(Problem::error(told.join("\n")).into())
}

/// Puts what a scenario predicts beside what was read, and calibrates it.
fn predict(
    scenario: &Scenario,
    (engine, how): (Engine, &How),
    calibrated: Option<&Path>,
    report: &mut Report,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Loaded, Failure> {
    let loaded = load(&scenario.request(how.seed(), Purpose::Settings))?;
    let mut other = None;
    if let Some(out) = calibrated {
        let Some(set) = scenario.set_on_a_file() else {
            let reason = "calibrate writes a scenario that starts from the one that is given: give \
                          a preset or a file";
            return Err(Failure::Usage(reason.to_owned()));
        };
        let request = scenario.request(how.seed(), Purpose::Settings);
        let (loaded, read_off) = apply(&report.summary, request, loaded.clone());
        let order = Order { loaded: &loaded, engine, set, read_off, out };
        report.calibration = Some(calibrate(&report.summary, &order, watch)?);
        let request = scenario.in_place_of(out).request(how.seed(), Purpose::Settings);
        other = Some(load(&request)?);
    }
    let of = other.as_ref().unwrap_or(&loaded);
    report.predicted = Some(compare(&report.summary, of, engine, watch)?);
    Ok(loaded)
}
