//! Cases as rows of a table: what tells them apart, then what they came to.

use std::collections::{BTreeMap, BTreeSet};

use report::number::grouped;
use report::{Align, Table};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::Goal;
use crate::plan::{Case, Head};
use crate::store::Record;

/// The ends of a step's 80 % interval.
pub(crate) const STEP_ENDS: [&str; 2] = ["step_low_s", "step_high_s"];

/// Columns that a terminal's table has beside its cells.
const MARGIN: usize = 4;

/// So many values that alike cases have are named; of more, the ends or the number.
const NAMED: usize = 3;

/// A case that was executed, with what became of it.
pub(super) type Executed<'a> = (&'a Case, &'a Record);

/// One case with its measures, and how many others have the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its number.
    pub case: usize,
    /// Cases with the same measures, this one among them.
    pub cases: usize,
    /// Its value of each axis.
    pub axes: Map<String, Json>,
    /// The axes in which cases with the same measures differ.
    pub differ: Vec<String>,
    /// What it sets, as `--set` takes it.
    pub set: Vec<String>,
    /// Its engine.
    pub engine: &'static str,
    /// Its measures by name.
    #[serde(flatten)]
    pub measures: Map<String, Json>,
    /// Whether alike cases are all combinations of the values that they have.
    #[serde(skip)]
    pub(super) is_product: bool,
    /// What a table says of each axis that varies.
    #[serde(skip)]
    cells: Vec<String>,
}

/// The axes that vary.
#[derive(Clone, Debug, Default)]
pub(super) struct Varying {
    /// Place among the axes, column's name, number of values.
    axes: Vec<(usize, String, usize)>,
}

/// The last word of a key where no other of these ends with it.
pub(super) fn short<'a>(key: &'a str, keys: &[&str]) -> &'a str {
    fn last(key: &str) -> &str {
        key.rsplit('.').next().unwrap_or(key)
    }
    let same = keys.iter().filter(|other| last(other) == last(key)).count();
    if same <= 1 { last(key) } else { key }
}

impl Varying {
    pub(super) fn of(head: &Head, executed: &[Executed<'_>]) -> Self {
        let all: Vec<&str> = head.axes.iter().chain(&head.measures).map(String::as_str).collect();
        let mut axes = Vec::new();
        for (at, key) in head.axes.iter().enumerate() {
            let levels = labels(executed.iter().map(|row| row.0), at).len();
            if 1 < levels {
                axes.push((at, short(key, &all).to_owned(), levels));
            }
        }
        Self { axes }
    }
}

/// The values that cases have of an axis.
fn labels<'a>(cases: impl Iterator<Item = &'a Case>, axis: usize) -> Vec<&'a Json> {
    let mut seen = BTreeSet::new();
    cases.map(|case| &case.values[axis]).filter(|label| seen.insert(label.to_string())).collect()
}

/// Cases with the same measures to seven digits, in the order of the first of each.
pub(super) fn alike<'a>(rows: impl Iterator<Item = Executed<'a>>) -> Vec<Vec<Executed<'a>>> {
    let mut places: BTreeMap<Vec<Option<u32>>, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<Executed<'a>>> = Vec::new();
    for row in rows {
        let key = row.1.measures.iter().map(|m| m.map(|m| (m as f32).to_bits())).collect();
        let place = *places.entry(key).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(row);
    }
    groups
}

impl Row {
    /// The row of cases that are alike.
    pub(super) fn of(group: &[Executed<'_>], head: &Head, varying: &Varying) -> Self {
        let (case, record) = group[0];
        let value = |value: &Option<f64>| value.map_or(Json::Null, Json::from);
        let measures = head.measures.iter().cloned().zip(record.measures.iter().map(value));
        let (mut differ, mut own) = (Vec::new(), Vec::new());
        for (at, ..) in &varying.axes {
            own.push(labels(group.iter().map(|row| row.0), *at));
            if own.last().is_some_and(|own| 1 < own.len()) {
                differ.push(head.axes[*at].clone());
            }
        }
        let product = own.iter().map(Vec::len).fold(1, usize::saturating_mul);
        let is_product = product == group.len();
        let levels = varying.axes.iter().map(|(_, _, levels)| is_product.then_some(*levels));
        let cells = own.iter().zip(levels).map(|(own, levels)| together(own, levels)).collect();
        Self {
            case: case.index,
            cases: group.len(),
            axes: head.axes.iter().cloned().zip(case.values.iter().cloned()).collect(),
            differ,
            set: case.assignments(),
            engine: case.engine.name(),
            measures: measures.collect(),
            is_product,
            cells,
        }
    }

    pub(super) fn number(&self, measure: &str) -> Option<f64> {
        self.measures.get(measure).and_then(Json::as_f64)
    }
}

/// What alike cases have of an axis: the value, or the values; any, where these are all levels and
/// whatever the other axes are.
fn together(labels: &[&Json], levels: Option<usize>) -> String {
    let mut numbers: Vec<f64> = labels.iter().filter_map(|label| label.as_f64()).collect();
    numbers.sort_by(f64::total_cmp);
    match labels {
        [one] => label(one),
        many if Some(many.len()) == levels => "any".to_owned(),
        many if many.len() <= NAMED => {
            many.iter().map(|one| label(one)).collect::<Vec<_>>().join(" | ")
        }
        many if many.len() == numbers.len() => {
            format!("{} to {}", written(numbers[0]), written(numbers[numbers.len() - 1]))
        }
        many => format!("{} values", many.len()),
    }
}

fn label(value: &Json) -> String {
    match (value, value.as_f64()) {
        (Json::String(word), _) => word.clone(),
        (value, Some(number)) if !value.is_u64() => written(number),
        _ => value.to_string(),
    }
}

/// A number with four digits that count; whole numbers are whole.
pub(super) fn written(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size < 1e-3 => format!("{number:.2e}"),
        size if size < 1.0 => {
            let decimals = (3.0 - size.log10().floor()).clamp(3.0, 6.0) as usize;
            let text = format!("{number:.decimals$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        size if size < 1e3 && number.fract() != 0.0 => {
            let decimals = (3.0 - size.log10().floor()) as usize;
            let text = format!("{number:.decimals$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        size if size < 1e4 => format!("{number:.0}"),
        size if size < 1e15 => {
            format!("{}{}", if number < 0.0 { "-" } else { "" }, grouped(size.round() as u64))
        }
        _ => format!("{number:.3e}"),
    }
}

/// Rows as a table as wide as a terminal, and the measures that have no room.
pub(super) fn table(
    rows: &[Row],
    varying: &Varying,
    (goals, width): (&[Goal], usize),
) -> (Table, Vec<String>) {
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    for (at, (_, name, _)) in varying.axes.iter().enumerate() {
        columns.push((name.clone(), rows.iter().map(|row| row.cells[at].clone()).collect()));
    }
    let axes = columns.len();
    let mut last = vec![("case", rows.iter().map(|row| row.case.to_string()).collect())];
    if rows.iter().any(|row| 1 < row.cases) {
        last.insert(0, ("cases", rows.iter().map(|row| grouped(row.cases as u64)).collect()));
    }
    let last: Vec<(String, Vec<String>)> =
        last.into_iter().map(|(name, cells)| (name.to_owned(), cells)).collect();
    let wide = |(name, cells): &(String, Vec<String>)| {
        2 + cells.iter().map(|cell| cell.chars().count()).fold(name.len(), usize::max)
    };
    let mut used: usize = columns.iter().chain(&last).map(wide).sum();
    let all: Vec<&str> =
        rows.iter().take(1).flat_map(|row| row.measures.keys()).map(String::as_str).collect();
    let is_goal = |name: &str| goals.iter().any(|goal| goal.name == name);
    let others = all.iter().copied().filter(|name| !is_goal(name) && !STEP_ENDS.contains(name));
    let mut left_out = Vec::new();
    for name in goals.iter().map(|goal| goal.name.as_str()).chain(others) {
        let cell = |row: &Row| row.number(name).map(written).unwrap_or_default();
        let own = short(name, &all);
        let is_axis = varying.axes.iter().any(|(_, axis, _)| axis == own);
        let own = if is_axis { format!("result.{own}") } else { own.to_owned() };
        let column = (own, rows.iter().map(cell).collect::<Vec<_>>());
        if column.1.iter().all(String::is_empty) {
            continue;
        }
        if !is_goal(name) && width.saturating_sub(MARGIN) < used + wide(&column) {
            left_out.push(name.to_owned());
            continue;
        }
        used += wide(&column);
        columns.push(column);
    }
    columns.extend(last);
    let side = |at: usize, cells: &[String]| {
        let is_number = |cell: &String| cell.replace(',', "").parse::<f64>().is_ok();
        if axes <= at || cells.iter().all(is_number) { Align::Right } else { Align::Left }
    };
    let named = columns.iter().enumerate();
    let mut table = Table::new(named.map(|(at, (name, cells))| (name.as_str(), side(at, cells))));
    for row in 0..rows.len() {
        table.row(columns.iter().map(|(_, cells)| cells[row].clone()));
    }
    (table, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_that_count() {
        let numbers =
            [0.0, 1024.0, 0.01234, 0.5, 4.23161, 45.678, 110.46, 1234.56, 123456.7, 1.5e-5, -2.0];
        let words = "0 1024 0.01234 0.5 4.232 45.68 110.5 1235 123,457 1.50e-5 -2";
        assert_eq!(numbers.map(written).join(" "), words);
    }

    #[test]
    fn columns_are_called_by_their_last_word_where_that_is_enough() {
        let keys = ["network.routing.policy", "job.gpus", "cluster.gpus"];
        assert_eq!(keys.map(|key| short(key, &keys)), ["policy", "job.gpus", "cluster.gpus"]);
    }

    #[test]
    fn alike_cases_name_what_they_have() {
        let labels: Vec<Json> = (1..=5).map(Json::from).collect();
        let labels: Vec<&Json> = labels.iter().collect();
        let told = [&labels[..1], &labels[..2], &labels].map(|own| together(own, Some(9)));
        assert_eq!(told.join("; "), "1; 1 | 2; 1 to 5");
        assert_eq!(together(&labels, Some(5)), "any");
        assert_eq!(together(&labels, None), "1 to 5");
    }
}
