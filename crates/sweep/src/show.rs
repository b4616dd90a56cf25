//! What a sweep says: the best cases, and which axis matters.

use std::collections::BTreeSet;
use std::path::Path;

use commands::Failure;
use scenario::Engine;
use scenario::nearest::nearest;
use serde::Serialize;

use crate::merge::{Results, Status};
use crate::plan::{Case, Head, Plan};
use crate::store::Record;

mod analysis;
mod page;
mod rows;

pub(crate) use analysis::SCALING_MEASURES;
pub use analysis::{Kind, Scaling};
pub use rows::Row;
pub(crate) use rows::STEP_ENDS;

/// So many of the best cases are shown.
const BEST: usize = 10;

/// Measures of which more is better; of all others less is.
const MORE_IS_BETTER: [&str; 6] =
    ["mfu", "tokens_per_s", "tflops_per_gpu", "goodput", "goodput_bps", "busbw_GBps"];

/// What to show.
#[derive(Clone, Debug, Default)]
pub struct ShowOptions {
    /// The measures to be best in, the first one first; `max:` and `min:` before a name say which
    /// way that is. The first measure if there are none.
    pub goals: Vec<String>,
    /// Columns of whoever reads it; 100 if nobody says.
    pub width: Option<usize>,
}

/// Columns of a table if nobody says.
const WIDTH: usize = 100;

/// What a sweep says.
#[derive(Clone, Debug, Serialize)]
pub struct Show {
    /// How far it has come.
    #[serde(flatten)]
    pub status: Status,
    /// The best cases by the first goal, the best first; those that are alike once.
    pub best: Vec<Row>,
    /// How much of the first goal's variance each axis explains by itself.
    pub sensitivity: Vec<Sensitivity>,
    /// The cases that no other betters in all goals, where there are several; those that
    /// are alike once.
    pub pareto: Vec<Row>,
    /// How throughput grows with the GPUs, where an axis changes their number.
    pub scaling: Vec<Scaling>,
    /// Why cases failed, and how often.
    pub failures: Vec<FailureReason>,
    /// Measures that no result has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// What must be known before the order of the best is believed.
    pub remarks: Vec<String>,
    #[serde(skip)]
    folder: String,
    /// What the cases are about, in words.
    #[serde(skip)]
    about: String,
    /// The grid as it was written.
    #[serde(skip)]
    grid: String,
    /// Every case that has the goal, the best first; a page shows so many of them.
    #[serde(skip)]
    all: Vec<Row>,
    #[serde(skip)]
    varying: rows::Varying,
    #[serde(skip)]
    goals: Vec<Goal>,
    #[serde(skip)]
    drawn: page::Drawn,
    #[serde(skip)]
    width: usize,
}

/// How much an axis matters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The axis.
    pub key: String,
    /// The variance of the means over its values, over the whole variance, less what chance would
    /// explain; none where there are too few cases to say.
    pub share: Option<f64>,
}

/// Why cases failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureReason {
    /// In words.
    pub error: String,
    /// How many cases.
    pub cases: usize,
    /// The first of them.
    pub first: usize,
}

/// A measure to be best in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Goal {
    pub(crate) name: String,
    /// Its place among the measures.
    pub(crate) at: usize,
    pub(crate) more_is_better: bool,
}

impl Goal {
    fn read(text: &str, measures: &[String]) -> Result<Self, Failure> {
        let (way, name) = match text.split_once(':') {
            Some((way @ ("min" | "max"), name)) => (Some(way == "max"), name),
            _ => (None, text),
        };
        let at = measures.iter().position(|measure| measure == name).ok_or_else(|| {
            let near = nearest(name, measures.iter().map(String::as_str));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            Failure::Usage(format!(
                "no measure `{name}` was kept{near}; there are {}",
                measures.join(", ")
            ))
        })?;
        let last = name.rsplit('.').next().unwrap_or(name);
        let more_is_better = way.unwrap_or(MORE_IS_BETTER.contains(&last));
        Ok(Self { name: name.to_owned(), at, more_is_better })
    }

    /// `mfu (most)`.
    fn words(&self) -> String {
        format!("{} ({})", self.name, if self.more_is_better { "most" } else { "least" })
    }

    /// The value so that less is better.
    pub(crate) fn cost(&self, record: &Record) -> Option<f64> {
        let value = record.measures[self.at].filter(|value| value.is_finite())?;
        Some(if self.more_is_better { -value } else { value })
    }
}

/// Reads a folder of results.
pub fn show(out: &Path, options: &ShowOptions) -> Result<Show, Failure> {
    let results = Results::read(out)?;
    let measures = &results.plan.head.measures;
    let mut goals = Vec::new();
    for text in &options.goals {
        goals.push(Goal::read(text, measures)?);
    }
    if goals.is_empty() {
        goals.push(Goal::read(&measures[0], measures)?);
    }
    let (executed, status) = (results.executed(), results.status.clone());
    let goal = &goals[0];
    let mut ranked: Vec<(f64, &(&Case, &Record))> =
        executed.iter().filter_map(|row| Some((goal.cost(row.1)?, row))).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.0.index.cmp(&b.1.0.index)));
    let head = &results.plan.head;
    let varying = rows::Varying::of(head, &executed);
    let told = |groups: &[Vec<rows::Executed<'_>>]| -> Vec<Row> {
        groups.iter().map(|group| Row::of(group, head, &varying)).collect()
    };
    let groups = rows::alike(ranked.iter().map(|(_, row)| **row));
    let best = told(&groups[..groups.len().min(BEST)]);
    let each = ranked.iter().take(page::MOST_CASES).map(|(_, row)| vec![**row]);
    let all = told(&each.collect::<Vec<_>>());
    let sensitivity = sensitivity(&head.axes, &ranked);
    let front = front(&goals, &executed);
    let scaling = analysis::scaling(head, &executed);
    let unseen = measures.iter().enumerate().filter(|(at, _)| {
        status.done == status.cases && executed.iter().all(|(_, r)| r.measures[*at].is_none())
    });
    let unseen = unseen.map(|(_, name)| name.clone()).collect();
    let drawn: Vec<(&Case, &Record)> = ranked.iter().map(|(_, row)| **row).collect();
    let stay = drawn.iter().take(BEST).chain(&front).map(|(case, _)| case.index);
    let stay: BTreeSet<usize> = stay.collect();
    let folder = out.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Show {
        remarks: [head.remarks.clone(), remarks(goal, &best, &executed)].concat(),
        best,
        sensitivity,
        pareto: told(&rows::alike(front.iter().copied())),
        scaling,
        failures: failures(&executed),
        unseen,
        about: about(&results.plan),
        grid: std::fs::read_to_string(out.join("grid.toml")).unwrap_or_default(),
        folder: folder.unwrap_or_else(|| out.display().to_string()),
        drawn: page::Drawn::of(&results.plan, &drawn, &stay),
        width: options.width.unwrap_or(WIDTH),
        all,
        varying,
        goals,
        status,
    })
}

/// What the cases start from, what varies, what computed them.
fn about(plan: &Plan) -> String {
    let Head { from, set, axes, fatflow, .. } = &plan.head;
    let engines: BTreeSet<&str> = plan.cases.iter().map(|case| case.engine.name()).collect();
    let engines = Vec::from_iter(engines).join(", ");
    let all = if set.is_empty() { String::new() } else { format!("; in all {}", set.join(", ")) };
    let verb = if axes.len() == 1 { "varies" } else { "vary" };
    let (from, axes) = (from.join(", "), axes.join(", "));
    format!("From {from}; {axes} {verb}{all}; {engines} engine, fatflow {fatflow}.")
}

/// How much of the goal each axis explains, the most first.
fn sensitivity(axes: &[String], ranked: &[(f64, &(&Case, &Record))]) -> Vec<Sensitivity> {
    let cases: Vec<&Case> = ranked.iter().map(|(_, row)| row.0).collect();
    let full = analysis::is_full(&cases, axes.len());
    let one = |(at, key): (usize, &String)| {
        let values: Vec<_> = ranked.iter().map(|(cost, row)| (&row.0.values[at], *cost)).collect();
        Sensitivity { key: key.clone(), share: analysis::explained(&values, full) }
    };
    let mut sensitivity: Vec<Sensitivity> = axes.iter().enumerate().map(one).collect();
    let order = |one: &Sensitivity| one.share.unwrap_or(-1.0);
    sensitivity.sort_by(|a, b| order(b).total_cmp(&order(a)));
    sensitivity
}

/// The cases that no other betters in all goals; none where there is one goal.
fn front<'a>(goals: &[Goal], executed: &[(&'a Case, &'a Record)]) -> Vec<(&'a Case, &'a Record)> {
    if goals.len() < 2 {
        return Vec::new();
    }
    let (mut costs, mut rows) = (Vec::new(), Vec::new());
    for row in executed {
        let own: Option<Vec<f64>> = goals.iter().map(|goal| goal.cost(row.1)).collect();
        if let Some(own) = own {
            costs.push(own);
            rows.push(*row);
        }
    }
    analysis::pareto(&costs).into_iter().map(|at| rows[at]).collect()
}

/// What must be known before the order of the best is believed.
fn remarks(goal: &Goal, best: &[Row], executed: &[(&Case, &Record)]) -> Vec<String> {
    let mut remarks = Vec::new();
    let step = |row: &Row| row.number(&goal.name);
    let [low, high] = STEP_ENDS.map(|end| best.first().and_then(|row| row.number(end)));
    let ends = low.zip(high).filter(|_| goal.name == "step_s" && 1 < best.len());
    let last = best.first().zip(best.last()).and_then(|(a, b)| step(a).zip(step(b)));
    if let Some(((low, high), (first, last))) = ends.zip(last) {
        let within = best.iter().filter(|row| step(row).is_some_and(|s| low <= s && s <= high));
        let interval = format!(
            "The 80 % interval of the best step is {} s to {} s",
            rows::written(low),
            rows::written(high)
        );
        remarks.push(match within.count() {
            all if all == best.len() => format!(
                "{interval}: wider than the distance between the best and the last of these, {} \
                 s. The order is the model's; a cluster's may be another.",
                rows::written((last - first).abs())
            ),
            some => format!("{interval}: {some} of these {} are inside it.", best.len()),
        });
    }
    let seeds: BTreeSet<u64> = executed.iter().map(|(case, _)| case.seed).collect();
    let has_chance = |(case, _): &(&Case, &Record)| case.engine != Engine::Analytic;
    if let (1, Some(seed), true) =
        (seeds.len(), seeds.first(), 1 < executed.len() && executed.iter().any(has_chance))
    {
        remarks.push(format!(
            "All cases have the seed {seed}: how much of a difference is chance (paths, failures) \
             is not seen. An axis `seed` shows it."
        ));
    }
    remarks
}

fn failures(executed: &[(&Case, &Record)]) -> Vec<FailureReason> {
    let mut reasons: Vec<FailureReason> = Vec::new();
    for (case, record) in executed {
        let Some(error) = &record.error else { continue };
        match reasons.iter_mut().find(|reason| reason.error == *error) {
            Some(same) => same.cases += 1,
            None => {
                reasons.push(FailureReason { error: error.clone(), cases: 1, first: case.index })
            }
        }
    }
    reasons.sort_by(|a, b| b.cases.cmp(&a.cases).then(a.first.cmp(&b.first)));
    reasons
}
