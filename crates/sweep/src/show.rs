//! What a sweep says: the best cases, and which axis matters.

use std::collections::BTreeMap;
use std::path::Path;

use commands::Failure;
use report::number::grouped;
use report::{Align, Answer, Sheet, Table};
use scenario::nearest::nearest;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::merge::{Results, Status};
use crate::plan::Case;
use crate::store::Record;

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
}

/// What a sweep says.
#[derive(Clone, Debug, Serialize)]
pub struct Show {
    /// How far it has come.
    #[serde(flatten)]
    pub status: Status,
    /// The best cases by the first goal, the best first.
    pub best: Vec<Row>,
    /// How much of the first goal's variance each axis explains by itself.
    pub sensitivity: Vec<Sensitivity>,
    /// Why cases failed, and how often.
    pub failures: Vec<FailureReason>,
    #[serde(skip)]
    goals: Vec<Goal>,
}

/// One case with its measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its number.
    pub case: usize,
    /// What it sets, as `--set` takes it.
    pub set: Vec<String>,
    /// Its engine.
    pub engine: &'static str,
    /// Its measures by name.
    #[serde(flatten)]
    pub measures: Map<String, Json>,
}

/// How much an axis matters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The axis.
    pub key: String,
    /// The variance of the means over its values, over the whole variance.
    pub share: f64,
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
    let executed = results.executed();
    let goal = &goals[0];
    let mut ranked: Vec<(f64, &(&Case, &Record))> =
        executed.iter().filter_map(|row| Some((goal.cost(row.1)?, row))).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.0.index.cmp(&b.1.0.index)));
    let best = ranked.iter().take(BEST).map(|(_, row)| Row::of(row, measures)).collect();
    let values: Vec<(&Case, f64)> = ranked.iter().map(|(cost, row)| (row.0, *cost)).collect();
    let axes = results.plan.head.axes.iter().enumerate();
    let mut sensitivity: Vec<Sensitivity> = axes
        .map(|(at, key)| Sensitivity { key: key.clone(), share: explained(&values, at) })
        .collect();
    sensitivity.sort_by(|a, b| b.share.total_cmp(&a.share));
    let failures = failures(&executed);
    Ok(Show { best, sensitivity, failures, goals, status: results.status })
}

impl Row {
    fn of((case, record): &(&Case, &Record), measures: &[String]) -> Self {
        let value = |value: &Option<f64>| value.map_or(Json::Null, Json::from);
        let measures = measures.iter().cloned().zip(record.measures.iter().map(value));
        Self {
            case: case.index,
            set: case.assignments(),
            engine: case.engine.name(),
            measures: measures.collect(),
        }
    }
}

/// The variance of the means over an axis's values, over the whole: the first-order index of
/// Sobol' where all combinations are there.
fn explained(values: &[(&Case, f64)], axis: usize) -> f64 {
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, count) =
            values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
        sum / count.max(1) as f64
    };
    let whole = mean(&mut values.iter().map(|(_, value)| *value));
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (case, value) in values {
        groups.entry(case.values[axis].to_string()).or_default().push(*value);
    }
    let total: f64 = values.iter().map(|(_, value)| (value - whole).powi(2)).sum();
    let between: f64 = groups
        .values()
        .map(|group| group.len() as f64 * (mean(&mut group.iter().copied()) - whole).powi(2))
        .sum();
    if 0.0 < total { between / total } else { 0.0 }
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

impl Answer for Show {
    fn sheet(&self) -> Sheet {
        let goal = &self.goals[0];
        let way = if goal.more_is_better { "largest" } else { "smallest" };
        let mut sheet = self.status.on(Sheet::new().heading("A sweep"));
        sheet = sheet.heading(format!("The {way} {}", goal.name)).table(best_table(&self.best));
        let mut table = Table::new([("axis", Align::Left), ("share of variance", Align::Right)]);
        for Sensitivity { key, share } in &self.sensitivity {
            table.row([key.clone(), format!("{:.1} %", 100.0 * share)]);
        }
        sheet = sheet.heading(format!("What decides {}", goal.name)).table(table);
        if self.failures.is_empty() {
            return sheet;
        }
        let columns = [("cases", Align::Right), ("first", Align::Right), ("why", Align::Left)];
        let mut table = Table::new(columns);
        for FailureReason { error, cases, first } in &self.failures {
            table.row([grouped(*cases as u64), first.to_string(), error.clone()]);
        }
        sheet.heading("Cases that failed").table(table)
    }
}

fn best_table(rows: &[Row]) -> Table {
    let measures: Vec<&String> =
        rows.first().into_iter().flat_map(|row| row.measures.keys()).collect();
    let mut columns = vec![("case", Align::Right), ("set", Align::Left)];
    columns.extend(measures.iter().map(|name| (name.as_str(), Align::Right)));
    let mut table = Table::new(columns);
    for row in rows {
        let mut cells = vec![row.case.to_string(), row.set.join(" ")];
        cells.extend(row.measures.values().map(|value| match value.as_f64() {
            Some(value) => report::number::significant(value),
            None => String::new(),
        }));
        table.row(cells);
    }
    table
}
