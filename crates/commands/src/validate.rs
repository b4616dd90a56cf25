//! `validate`: every published measurement beside the prediction, with the error.
//!
//! Three kinds of files are recognised. Tables of training steps and of collectives, by their
//! columns; runs of a packet simulator, as a `*.toml` with its parameters and the `.csv` with its
//! flows beside it. Without an argument the ones in the binary are scored; a file or a folder of
//! the same form is scored the same way.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::hardware::Catalogue;
use scenario::{Extent, Request, load};
use serde::Serialize;
use step::published::{rank_correlation, score};
use step::validate::FABRIC_RULE;
use traffic::collective::Collective;

use crate::collective::measured::Measured;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::parallel;

mod collectives;
mod files;
pub mod packets;
mod page;
pub mod ratchet;
mod steps;

/// What to score, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Files and folders; the ones in the binary if there are none.
    pub inputs: Vec<PathBuf>,
    /// By which engine.
    pub engine: Engine,
    /// The most that a family's mean error may be.
    pub threshold: Option<f64>,
    /// A file of errors that must not grow.
    pub ratchet: Option<PathBuf>,
    /// Threads to use.
    pub threads: Option<u16>,
}

/// Every family with its errors.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One for each file, or folder of packet runs.
    pub families: Vec<Family>,
    /// The most that a family's mean error may be, if somebody asked.
    pub threshold: Option<f64>,
    /// Errors that have grown beyond what the ratchet allows, in words.
    pub worse: Vec<String>,
    /// Whether every family keeps to both.
    pub passed: bool,
    /// The rule that gives rows their fabric, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric_rule: Option<String>,
    #[serde(skip)]
    engine: Engine,
    #[serde(skip)]
    asked: Engine,
}

/// Measurements that belong together.
#[derive(Clone, Debug, Serialize)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// What was measured and predicted.
    pub cases: Vec<Case>,
    /// Mean of the errors' sizes.
    pub mean_abs_error: f64,
    /// Their median.
    pub median_abs_error: f64,
    /// The error that is largest in size.
    pub worst: f64,
    /// Whose it is.
    pub worst_id: String,
    /// The share of cases within 12 %.
    pub within_12_percent: f64,
    /// Mean of the signed errors.
    pub bias: f64,
    /// Spearman's rank correlation of predicted and measured.
    pub rank_correlation: f64,
    /// Rows that could not be predicted; they count for nothing above.
    pub unpredicted: Vec<Unpredicted>,
}

/// A row that could not be predicted.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Unpredicted {
    /// Its name.
    pub id: String,
    /// Why not.
    pub reason: String,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Its name.
    pub id: String,
    /// What was measured.
    pub measured: f64,
    /// What is predicted.
    pub predicted: f64,
    /// Predicted over measured, less one.
    pub error: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// What was chosen where the source does not say, or how the prediction was made.
    pub note: String,
    /// Where it was published.
    pub source: String,
    /// The least and the most that open inputs allow, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<(f64, f64)>,
}

impl Case {
    fn new(id: impl Into<String>, measured: f64, predicted: f64, unit: &'static str) -> Self {
        Self {
            id: id.into(),
            measured,
            predicted,
            error: predicted / measured - 1.0,
            unit,
            note: String::new(),
            source: String::new(),
            spread: None,
        }
    }
}

/// One thing to predict.
enum Task {
    Step(Box<step::published::Row>),
    Collective(Box<collectives::Row>),
    Packets(Box<packets::ReferenceRun>),
    /// Something that was meant to be one of these.
    Unreadable(Unpredicted),
}

impl Task {
    fn unreadable(id: &str, reason: &str) -> Self {
        Self::Unreadable(Unpredicted { id: id.to_owned(), reason: reason.to_owned() })
    }

    fn id(&self) -> String {
        match self {
            Self::Step(row) => row.id.clone(),
            Self::Collective(row) => row.id.clone(),
            Self::Packets(case) => case.name(),
            Self::Unreadable(row) => row.id.clone(),
        }
    }
}

/// Scores what was asked for.
/// `tell` hears how many of how many cases are done.
pub fn run(
    options: &Options,
    base: &Request,
    tell: &(dyn Fn(u64, u64) + Sync),
) -> Result<Report, Failure> {
    let request = Request { scenario: None, extent: Extent::Settings, ..base.clone() };
    let catalogue = load(&request)?.scenario.catalogue;
    let groups =
        if options.inputs.is_empty() { files::embedded()? } else { files::read(&options.inputs)? };
    let tasks: Vec<(usize, &Task)> = groups
        .iter()
        .enumerate()
        .flat_map(|(at, g)| g.tasks.iter().map(move |t| (at, t)))
        .collect();
    let only_packets = tasks.iter().all(|(_, task)| matches!(task, Task::Packets(_)));
    // Packet runs have their own engine; for steps and collectives flows stand in for packets.
    let engine = if only_packets { Engine::Packet } else { options.engine.for_whole_clusters() };
    let threads = parallel::threads(options.threads);
    let (done, all) = (AtomicU64::new(0), tasks.len() as u64);
    let answers = parallel::map(threads, &tasks, |(_, task)| {
        let answer = predict(task, &catalogue, engine);
        tell(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        answer
    });
    let mut found: Vec<(Vec<Case>, Vec<Unpredicted>)> = vec![Default::default(); groups.len()];
    for ((at, task), answer) in tasks.iter().zip(answers) {
        match answer {
            Ok(cases) => found[*at].0.extend(cases),
            Err(reason) => found[*at].1.push(Unpredicted { id: task.id(), reason }),
        }
    }
    let named = groups.iter().map(|group| group.name.clone()).zip(found);
    let families: Vec<Family> = named.map(|(name, found)| family(name, found)).collect();
    // A family of which nothing could be predicted keeps to no limit.
    let keeps = |family: &Family, limit| !family.cases.is_empty() && family.mean_abs_error <= limit;
    let within = |limit: f64| families.iter().all(|family| keeps(family, limit));
    let worse = match &options.ratchet {
        Some(path) => ratchet::Ratchet::read(path)?.worse(&families),
        None => Vec::new(),
    };
    Ok(Report {
        passed: options.threshold.is_none_or(within) && worse.is_empty(),
        threshold: options.threshold,
        worse,
        families,
        fabric_rule: (!only_packets).then(|| format!("{FABRIC_RULE} {}", collectives::RULE)),
        engine,
        asked: options.engine,
    })
}

/// The published bus bandwidths of a collective on so many GPUs of a kind.
pub fn published_collectives(gpu: &str, gpus: u64, collective: Collective) -> Vec<Measured> {
    let groups = files::embedded().unwrap_or_default();
    let tasks = groups.iter().flat_map(|group| &group.tasks);
    let rows = tasks.filter_map(|task| match task {
        Task::Collective(row) => row.measured_on(gpu, gpus, collective),
        _ => None,
    });
    rows.collect()
}

/// Predicts, or says why it cannot: one row must not stop the others.
fn predict(task: &Task, catalogue: &Catalogue, engine: Engine) -> Result<Vec<Case>, String> {
    let cases = match task {
        Task::Step(row) => steps::predict(row, catalogue, engine).map(|case| vec![case]),
        Task::Collective(row) => row.predict(catalogue, engine).map(|case| vec![case]),
        Task::Packets(case) => case.predict(),
        Task::Unreadable(row) => return Err(row.reason.clone()),
    };
    let cases = cases.map_err(|failure| failure.to_string())?;
    match cases.iter().find(|case| !case.error.is_finite()) {
        Some(case) => Err(format!("{}: the prediction is not a number", case.id)),
        None => Ok(cases),
    }
}

fn family(name: String, (cases, unpredicted): (Vec<Case>, Vec<Unpredicted>)) -> Family {
    let errors: Vec<f64> = cases.iter().map(|case| case.error).collect();
    let pairs: Vec<(f64, f64)> = cases.iter().map(|case| (case.measured, case.predicted)).collect();
    let found = score(&errors);
    let worst = cases.iter().max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()));
    Family {
        name,
        mean_abs_error: found.mean,
        median_abs_error: found.median,
        worst: worst.map_or(0.0, |case| case.error),
        worst_id: worst.map_or_else(String::new, |case| case.id.clone()),
        within_12_percent: found.within_12,
        bias: found.bias,
        rank_correlation: rank_correlation(&pairs),
        cases,
        unpredicted,
    }
}
