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
use step::published::rank_correlation;
use step::validate::FABRIC_RULE;
use traffic::collective::Collective;

use crate::collective::measured::Measured;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::interval::{Class, HalfWidth, Interval, Residual, Residuals};
use crate::parallel;

mod collectives;
pub mod files;
pub mod left_out;
pub mod packets;
mod page;
pub mod ratchet;
pub mod score;
mod steps;

use left_out::{LeftOut, SetBy, Tuning};
use score::{Part, Score};

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
    /// How far off they are; a row that could not be predicted counts as off by 100 %.
    #[serde(flatten)]
    pub score: Score,
    /// The error that is largest in size.
    pub worst: f64,
    /// Whose it is.
    pub worst_id: String,
    /// Spearman's rank correlation of predicted and measured.
    pub rank_correlation: f64,
    /// The same for each cluster.
    pub by_cluster: Vec<Part>,
    /// The same for each class, and for all collectives of a size whose class another cluster has.
    pub by_class: Vec<Part>,
    /// Rows that could not be predicted.
    pub unpredicted: Vec<Unpredicted>,
}

/// A row that could not be predicted.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Unpredicted {
    /// Its name.
    pub id: String,
    /// Whose cluster it was, where that could be read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
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
    /// Whose cluster it was.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// What it is like.
    #[serde(serialize_with = "score::class_name", skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The share of a step that is communication which nothing hides.
    #[serde(skip)]
    exposed: Option<f64>,
    /// Whether no kernel of its GPU was published, or no collective over its scale-up network.
    pub is_extrapolated: bool,
    /// Whether no other cluster has a row of its class.
    pub is_alone: bool,
    /// The error with every constant set again without this cluster.
    pub left_out_error: f64,
    /// The least of the 80 % interval around the prediction in which this cluster had no part.
    pub low: f64,
    /// The most.
    pub high: f64,
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
            cluster: String::new(),
            class: None,
            exposed: None,
            is_extrapolated: false,
            is_alone: false,
            left_out_error: predicted / measured - 1.0,
            low: predicted,
            high: predicted,
        }
    }

    /// Whether it is a time; the others are rates.
    fn is_time(&self) -> bool {
        matches!(self.unit, "s" | "us")
    }

    /// ln (measured time / predicted time), from the prediction in which its cluster had no part.
    fn residual(&self) -> f64 {
        let log = -(1.0 + self.left_out_error).ln();
        if self.is_time() { log } else { -log }
    }

    /// The same case with an interval, by what was predicted without its cluster.
    fn with_interval(mut self, without: Option<&Self>, engine: Engine) -> Self {
        let Some(class) = &self.class else { return self };
        let residuals = Residuals::published();
        let centre = without.unwrap_or(&self);
        let share = |value: f64| value / centre.predicted;
        // Dense rows have open inputs in every class; of steps with experts too few are known.
        let counts = class.has_experts() || centre.is_extrapolated;
        let spread = centre.spread.filter(|_| counts);
        let ends = spread.map(|(low, high)| (share(low), share(high)));
        let half = match self.exposed {
            Some(exposed) => residuals.of_step(class, engine, &self.cluster, exposed),
            None => residuals.half_width(class, engine, &self.cluster),
        };
        let half = HalfWidth { is_borrowed: half.is_borrowed || centre.is_extrapolated, ..half };
        let interval = Interval::of(&half, ends);
        let others = residuals.0.iter().filter(|row| row.cluster != self.cluster);
        let is_alone = !others.into_iter().any(|row| row.class == *class);
        let (low, high) = (centre.predicted * interval.low, centre.predicted * interval.high);
        let left_out_error = centre.error;
        (self.low, self.high, self.left_out_error, self.is_alone) =
            (low, high, left_out_error, is_alone);
        self
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
        let (id, cluster, reason) = (id.to_owned(), String::new(), reason.to_owned());
        Self::Unreadable(Unpredicted { id, cluster, reason })
    }

    /// Whose cluster it was.
    fn origin(&self) -> &str {
        match self {
            Self::Step(row) => &row.origin,
            Self::Collective(row) => &row.origin,
            Self::Packets(_) | Self::Unreadable(_) => "",
        }
    }

    /// Which constants it can set.
    fn sets(&self) -> Option<SetBy> {
        match self {
            Self::Step(_) => Some(SetBy::Steps),
            Self::Collective(_) => Some(SetBy::Collectives),
            Self::Packets(_) | Self::Unreadable(_) => None,
        }
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
    let scenario = load(&request)?.scenario;
    let (catalogue, base) = (&scenario.catalogue, Tuning::of(&scenario));
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
        let answer = scored(task, catalogue, engine, (&base, LeftOut::published()));
        tell(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        answer
    });
    let mut found: Vec<(Vec<Case>, Vec<Unpredicted>)> = vec![Default::default(); groups.len()];
    for ((at, task), answer) in tasks.iter().zip(answers) {
        match answer {
            Ok(cases) => found[*at].0.extend(cases),
            Err(reason) => {
                let (id, cluster) = (task.id(), task.origin().to_owned());
                found[*at].1.push(Unpredicted { id, cluster, reason });
            }
        }
    }
    let named = groups.iter().map(|group| group.name.clone()).zip(found);
    let families: Vec<Family> = named.map(|(name, found)| family(name, found)).collect();
    // A family of which nothing could be predicted keeps to no limit.
    let keeps =
        |family: &Family, limit| !family.cases.is_empty() && family.score.mean_abs_error <= limit;
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

/// Sets every constant again without each cluster of the published measurements, and finds their
/// errors then. `tell` hears how many of how many predictions are done.
pub fn leave_out(
    base: &Request,
    threads: Option<u16>,
    tell: &(dyn Fn(u64, u64) + Sync),
) -> Result<(LeftOut, Residuals), Failure> {
    let request = Request { scenario: None, extent: Extent::Settings, ..base.clone() };
    let catalogue = load(&request)?.scenario.catalogue;
    let groups = files::embedded()?;
    let of = |may_set: &dyn Fn(&files::Group) -> bool| -> Vec<&Task> {
        let groups = groups.iter().filter(|group| may_set(group));
        groups.flat_map(|group| &group.tasks).filter(|task| task.sets().is_some()).collect()
    };
    let tasks = of(&|_| true);
    let setting = of(&|group| !files::FOUND_LATER.contains(&group.name.as_str()));
    let threads = parallel::threads(threads);
    let base = Tuning::default();
    let done = AtomicU64::new(0);
    let errors = |tuning: &Tuning, set_by: SetBy| -> Vec<Option<f64>> {
        parallel::map(threads, &setting, |task| {
            if task.sets() != Some(set_by) {
                return None;
            }
            // Collectives alone meet nobody; a step's phases do.
            let engine = match set_by {
                SetBy::Steps => Engine::Flow,
                SetBy::Collectives => Engine::Analytic,
            };
            let cases = predict(task, &catalogue, engine, tuning).ok();
            tell(done.fetch_add(1, Ordering::Relaxed) + 1, 0);
            cases?.first().map(Case::residual)
        })
    };
    let setters: Vec<left_out::Setter> =
        setting.iter().filter_map(|task| Some((task.origin().to_owned(), task.sets()?))).collect();
    let left_out = left_out::set_again(&setters, &errors);
    let residuals = parallel::map(threads, &tasks, |task| {
        let of =
            |engine| scored(task, &catalogue, engine, (&base, &left_out)).ok()?.into_iter().next();
        let (analytic, flow) = (of(Engine::Analytic)?, of(Engine::Flow)?);
        Some(Residual {
            id: analytic.id.clone(),
            cluster: analytic.cluster.clone(),
            class: analytic.class.clone()?,
            analytic: analytic.residual(),
            flow: flow.residual(),
        })
    });
    Ok((left_out, Residuals(residuals.into_iter().flatten().collect())))
}

/// Predicts with everything that is known, and with what is known without the row's cluster.
fn scored(
    task: &Task,
    catalogue: &Catalogue,
    engine: Engine,
    (base, left_out): (&Tuning, &LeftOut),
) -> Result<Vec<Case>, String> {
    let cases = predict(task, catalogue, engine, base)?;
    let without = left_out.without(task.origin(), base).map(|tuning| {
        let cases = predict(task, catalogue, engine, &tuning);
        cases.map(|cases| cases.into_iter().next())
    });
    let without = without.transpose()?.flatten();
    let finish = |case: Case| case.with_interval(without.as_ref(), engine);
    Ok(cases.into_iter().map(finish).collect())
}

/// Predicts, or says why it cannot: one row must not stop the others.
fn predict(
    task: &Task,
    catalogue: &Catalogue,
    engine: Engine,
    tuning: &Tuning,
) -> Result<Vec<Case>, String> {
    let Tuning { library, assumptions } = tuning;
    let cases = match task {
        Task::Step(row) => steps::predict(row, catalogue, engine, assumptions).map(|it| vec![it]),
        Task::Collective(row) => row.predict(catalogue, engine, library).map(|case| vec![case]),
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
    let pairs: Vec<(f64, f64)> = cases.iter().map(|case| (case.measured, case.predicted)).collect();
    let worst = cases.iter().max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()));
    Family {
        name,
        score: Score::of(&cases.iter().collect::<Vec<_>>(), unpredicted.len()),
        worst: worst.map_or(0.0, |case| case.error),
        worst_id: worst.map_or_else(String::new, |case| case.id.clone()),
        rank_correlation: rank_correlation(&pairs),
        by_cluster: score::by_cluster(&cases, &unpredicted),
        by_class: score::by_class(&cases),
        cases,
        unpredicted,
    }
}
