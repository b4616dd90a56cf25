//! Charts as data: what they show and how they should look, before anybody knows on what.
//!
//! The terminal draws them in Unicode ([`draw`](crate::draw)), the page with Observable Plot
//! ([`page`](crate::page)); both read the same columns.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// A number with its name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    /// What it is.
    pub label: String,
    /// The number, written out.
    pub value: String,
    /// What to know about it; may be empty.
    pub note: String,
}

/// Columns with names, as a spreadsheet has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Frame {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, as long as there are columns.
    pub rows: Vec<Vec<Value>>,
}

impl Frame {
    /// An empty frame with these columns.
    pub fn new(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row, which must fit the columns.
    pub fn push(&mut self, row: Vec<Value>) {
        assert_eq!(row.len(), self.columns.len(), "a row of {:?}", self.columns);
        self.rows.push(row);
    }
}

/// How a chart looks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// Horizontal bars, stacked by series.
    #[default]
    Bars,
    /// Bars of which each begins where the last one ended.
    Waterfall,
    /// Lines, with dots where there are few points.
    Line,
    /// Steps that hold their value.
    Area,
    /// Points against a diagonal.
    Scatter,
    /// A grid of cells.
    Heat,
    /// How often values fall between `start` and `end`, stacked by series.
    Histogram,
    /// The share of values at or below each value.
    Distribution,
    /// Lanes of operations over time.
    Timeline,
    /// One dot for each value, a lane for each name, with error bars where there are ends.
    Dots,
    /// A line for each row across all columns, each with a scale of its own.
    Parallel,
    /// A tree that folds, drawn with the load on the cables that lead up from each part.
    Tree,
}

/// Whether an axis counts in steps or in factors.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// In steps.
    #[default]
    Linear,
    /// In factors.
    Log,
}

/// What the numbers along an axis are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Plain numbers.
    #[default]
    Number,
    /// Parts of 1, written in per cent.
    Share,
    /// Seconds.
    Seconds,
    /// Bytes, in powers of 1000.
    Bytes,
    /// Bytes, in powers of 1024, as sizes of messages are.
    MessageBytes,
    /// Bits per second.
    BitsPerSecond,
    /// Dollars.
    Dollars,
    /// Watts.
    Watts,
}

/// A chart. Which columns it uses depends on its kind; unused ones stay `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Chart {
    /// How it looks.
    pub chart: ChartKind,
    /// What it shows, as a sentence or a question.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The column along the horizontal axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// The column along the vertical axis, or the lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y: Option<String>,
    /// The column that tells series apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// The column that decides a heat map's colour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The column in which a timeline's operation starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The column in which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The column that names a point or an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The column in which an error bar begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<String>,
    /// The column in which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<String>,
    /// What stands at the horizontal axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_label: Option<String>,
    /// What stands at the vertical axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y_label: Option<String>,
    /// What stands at a heat map's legend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_label: Option<String>,
    /// What the numbers along the horizontal axis are.
    pub x_unit: Unit,
    /// What the numbers along the vertical axis are.
    pub y_unit: Unit,
    /// What a heat map's numbers are.
    pub value_unit: Unit,
    /// Series that are points and not lines, such as measurements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<String>,
    /// How the horizontal axis counts.
    pub x_scale: Scale,
    /// How the vertical axis counts.
    pub y_scale: Scale,
    /// Whether a scatter plot shows where both axes agree.
    pub diagonal: bool,
    /// A value of the horizontal axis to compare with: a line is drawn there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// The column by which rows are the same in all charts that name one: what is chosen in one
    /// chart stands out in the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// What a tree chart shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<TreeNode>,
    /// What all others show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Frame>,
}

/// A value to compare with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// Where it lies.
    pub at: f64,
    /// What it is.
    pub label: String,
}

/// A part of a tree, and the cables that lead up from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TreeNode {
    /// What people call it.
    pub name: String,
    /// Cables to the part above.
    pub cables: u64,
    /// Load of the busiest of them, from 0 to 1, if anything was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// What to know about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Whether it is unfolded at first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Its parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TreeNode>,
}

impl TreeNode {
    /// Adds this part and those below to a frame: the way to it, cables, load, note.
    fn list(&self, above: &str, frame: &mut Frame) {
        let path = if above.is_empty() {
            self.name.clone()
        } else {
            above.to_owned() + " / " + &self.name
        };
        let load = self.load.map_or(Value::Null, Value::from);
        frame.push(vec![path.as_str().into(), self.cables.into(), load, self.note.as_str().into()]);
        for child in &self.children {
            child.list(&path, frame);
        }
    }
}

impl Chart {
    /// A chart of this kind over a frame.
    pub fn new(chart: ChartKind, title: impl Into<String>, data: Frame) -> Self {
        Self { chart, title: title.into(), data: Some(data), ..Self::default() }
    }

    /// A tree that folds; its parts are the chart's data.
    pub fn tree(title: impl Into<String>, root: TreeNode) -> Self {
        Self { root: Some(root), ..Self::new(ChartKind::Tree, title, Frame::default()) }
    }

    /// What readers get as CSV.
    pub fn table(&self) -> Frame {
        match (&self.root, &self.data) {
            (Some(root), _) => {
                let mut frame = Frame::new(&["part", "cables", "busiest", "note"]);
                root.list("", &mut frame);
                frame
            }
            (None, data) => data.clone().unwrap_or_default(),
        }
    }

    /// Says how to read it.
    pub fn caption(mut self, text: impl Into<String>) -> Self {
        self.caption = text.into();
        self
    }

    /// Names the columns of the two axes.
    pub fn axes(mut self, x: &str, y: &str) -> Self {
        self.x = Some(x.to_owned());
        self.y = Some(y.to_owned());
        self
    }

    /// Names the column that tells series apart.
    pub fn by(mut self, series: &str) -> Self {
        self.series = Some(series.to_owned());
        self
    }

    /// Names the column that decides a heat map's colour.
    pub fn coloured_by(mut self, value: &str) -> Self {
        self.value = Some(value.to_owned());
        self
    }

    /// Names the columns in which a bar begins and ends: operations of a timeline, ranges of a
    /// histogram.
    pub fn spans(mut self, start: &str, end: &str) -> Self {
        self.start = Some(start.to_owned());
        self.end = Some(end.to_owned());
        self
    }

    /// Names the columns in which an error bar begins and ends.
    pub fn error_bars(mut self, low: &str, high: &str) -> Self {
        self.low = Some(low.to_owned());
        self.high = Some(high.to_owned());
        self
    }

    /// Names the column that names a point or an operation.
    pub fn named_by(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Draws a line at a value of the horizontal axis.
    pub fn rule(mut self, at: f64, label: impl Into<String>) -> Self {
        self.rule = Some(Rule { at, label: label.into() });
        self
    }

    /// Writes what stands at a heat map's legend, and what its numbers are.
    pub fn legend(mut self, label: &str, unit: Unit) -> Self {
        self.value_label = Some(label.to_owned());
        self.value_unit = unit;
        self
    }

    /// Says what the numbers along the axes are.
    pub fn units(mut self, x: Unit, y: Unit) -> Self {
        (self.x_unit, self.y_unit) = (x, y);
        self
    }

    /// Says which column makes rows the same in all charts that are linked.
    pub fn linked_by(mut self, key: &str) -> Self {
        self.link = Some(key.to_owned());
        self
    }

    /// Makes the horizontal axis count in factors.
    pub fn log_x(mut self) -> Self {
        self.x_scale = Scale::Log;
        self
    }

    /// Makes the vertical axis count in factors.
    pub fn log_y(mut self) -> Self {
        self.y_scale = Scale::Log;
        self
    }

    /// Writes what stands at the axes.
    pub fn labels(mut self, x: &str, y: &str) -> Self {
        self.x_label = Some(x.to_owned());
        self.y_label = Some(y.to_owned());
        self
    }
}

/// Thins a series to at most about `limit` points without losing peaks: each bucket keeps its
/// first, lowest, highest and last point, in their order.
pub fn decimate(points: &[(f64, f64)], limit: usize) -> Vec<(f64, f64)> {
    if points.len() <= limit || limit < 4 {
        return points.to_vec();
    }
    let buckets = limit / 4;
    let mut kept = Vec::with_capacity(limit + 4);
    for bucket in 0..buckets {
        let range = points.len() * bucket / buckets..points.len() * (bucket + 1) / buckets;
        let by = |a: &usize, b: &usize| points[*a].1.total_cmp(&points[*b].1);
        let low = range.clone().min_by(by).unwrap_or(range.start);
        let high = range.clone().max_by(by).unwrap_or(range.start);
        let mut picks = [range.start, low, high, range.end - 1];
        picks.sort_unstable();
        for (at, pick) in picks.iter().enumerate() {
            if at == 0 || picks[at - 1] != *pick {
                kept.push(points[*pick]);
            }
        }
    }
    kept
}

/// The names with a number behind those that stand there already, so that lanes do not merge.
pub fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut all = Vec::new();
    for name in names {
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        all.push(if *times == 1 { name } else { format!("{name} ({times})") });
    }
    all
}

/// The distribution of sorted values as at most about `limit` points: value, and the share of
/// values at or below it. Both ends are kept, and of the last hundredth every value that fits.
pub fn distribution(sorted: &[f64], limit: usize) -> Vec<(f64, f64)> {
    let count = sorted.len();
    let point = |at: usize| (sorted[at], (at + 1) as f64 / count as f64);
    if count <= limit {
        return (0..count).map(point).collect();
    }
    let half = (limit / 2).max(1);
    let tail = count - (count / 100).clamp(1, half);
    let mut ranks: Vec<usize> = (0..half).map(|at| tail * at / half).collect();
    let after = count - tail;
    ranks.extend((0..after.min(half)).map(|at| tail + after * at / after.min(half)));
    ranks.push(count - 1);
    ranks.dedup();
    ranks.into_iter().map(point).collect()
}

/// Counts values into equal ranges between their ends: from, to, how many.
pub fn histogram(values: &[f64], most: f64, bins: usize) -> Vec<(f64, f64, u64)> {
    let width = if most > 0.0 { most / bins as f64 } else { 1.0 / bins as f64 };
    let range = |at: usize| (at as f64 * width, (at + 1) as f64 * width, 0);
    let mut ranges: Vec<(f64, f64, u64)> = (0..bins).map(range).collect();
    for value in values {
        ranges[((value / width) as usize).min(bins - 1)].2 += 1;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimation_keeps_the_peaks() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|x| (f64::from(x), 1.0)).collect();
        points[77_777].1 = 9.0;
        points[12_345].1 = -3.0;
        let thin = decimate(&points, 1_000);
        assert!(thin.len() <= 1_000);
        assert!(thin.contains(&(77_777.0, 9.0)) && thin.contains(&(12_345.0, -3.0)));
        assert!(thin.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn a_distribution_keeps_both_ends_and_the_stragglers() {
        let mut values: Vec<f64> = (0..200_000).map(f64::from).collect();
        values[199_999] = 1e9;
        let points = distribution(&values, 1_000);
        assert!(points.len() <= 1_002, "{}", points.len());
        assert_eq!(points[0].0, 0.0);
        assert_eq!(points.last(), Some(&(1e9, 1.0)), "the slowest is never lost");
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        assert!(400 < points.iter().filter(|point| 0.99 < point.1).count(), "the tail is fine");
        assert_eq!(distribution(&[2.0, 3.0], 10), [(2.0, 0.5), (3.0, 1.0)]);
    }

    #[test]
    fn equal_names_get_numbers() {
        let names = ["a", "b", "a", "a"].map(str::to_owned);
        assert_eq!(distinct(names), ["a", "b", "a (2)", "a (3)"]);
    }

    #[test]
    fn a_histogram_counts_every_value_once() {
        let ranges = histogram(&[0.0, 0.1, 0.5, 1.0, 1.0], 1.0, 4);
        assert_eq!(ranges.iter().map(|range| range.2).collect::<Vec<_>>(), [2, 0, 1, 2]);
        assert_eq!(histogram(&[0.0, 0.0], 0.0, 4)[0].2, 2, "idle links are all at nothing");
    }

    #[test]
    fn a_tree_lists_every_part_with_the_way_to_it() {
        let leaf = TreeNode { name: "leaf 0".to_owned(), load: Some(0.5), ..TreeNode::default() };
        let root =
            TreeNode { name: "fabric".to_owned(), children: vec![leaf], ..TreeNode::default() };
        let rows = Chart::tree("t", root).table().rows;
        assert_eq!(rows[1][0], "fabric / leaf 0");
        assert_eq!(rows[1][2], 0.5);
    }
}
