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
mod packets;
mod page;
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
    /// Whether every family keeps to it.
    pub passed: bool,
    /// The rule that gives rows their fabric.
    pub fabric_rule: String,
    #[serde(skip)]
    engine: Engine,
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
    Packets(Box<packets::Case>),
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
    let threads = parallel::threads(options.threads);
    let (done, all) = (AtomicU64::new(0), tasks.len() as u64);
    let answers = parallel::map(threads, &tasks, |(_, task)| {
        let answer = predict(task, &catalogue, options.engine);
        tell(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        answer
    });
    let mut cases: Vec<Vec<Case>> = groups.iter().map(|_| Vec::new()).collect();
    for ((at, _), answer) in tasks.iter().zip(answers) {
        cases[*at].extend(answer?);
    }
    let named = groups.into_iter().map(|group| group.name).zip(cases);
    let families: Vec<Family> = named.map(|(name, cases)| family(name, cases)).collect();
    let within = |limit: f64| families.iter().all(|family| family.mean_abs_error <= limit);
    Ok(Report {
        passed: options.threshold.is_none_or(within),
        threshold: options.threshold,
        families,
        fabric_rule: format!("{FABRIC_RULE} {}", collectives::RULE),
        engine: options.engine,
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

fn predict(task: &Task, catalogue: &Catalogue, engine: Engine) -> Result<Vec<Case>, Failure> {
    match task {
        Task::Step(row) => Ok(vec![steps::predict(row, catalogue, engine)?]),
        Task::Collective(row) => Ok(vec![row.predict(catalogue, engine)?]),
        Task::Packets(case) => case.predict(),
    }
}

fn family(name: String, cases: Vec<Case>) -> Family {
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
    }
}
