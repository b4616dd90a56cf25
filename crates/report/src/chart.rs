//! Charts as data: what they show and how they should look, before anybody knows on what.
//!
//! The terminal draws them in Unicode ([`draw`](crate::draw)), the page with Observable Plot
//! ([`page`](crate::page)); both read the same columns.

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
    /// How often each value occurs.
    Histogram,
    /// The share of values at or below each value.
    Distribution,
    /// Lanes of operations over time.
    Timeline,
    /// A tree that folds, with a load on each node.
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
    /// What stands at the horizontal axis, with its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_label: Option<String>,
    /// What stands at the vertical axis, with its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y_label: Option<String>,
    /// What stands at a heat map's legend, with its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_label: Option<String>,
    /// How the horizontal axis counts.
    pub x_scale: Scale,
    /// How the vertical axis counts.
    pub y_scale: Scale,
    /// Whether a scatter plot shows where both axes agree.
    pub diagonal: bool,
    /// What a tree chart shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<TreeNode>,
    /// What all others show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Frame>,
}

/// A part of a tree with a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TreeNode {
    /// What people call it.
    pub name: String,
    /// From 0 to 1.
    pub load: f64,
    /// What stands behind the bar; the load in per cent if there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether it is unfolded at first.
    pub open: bool,
    /// Its parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TreeNode>,
}

impl Chart {
    /// A chart of this kind over a frame.
    pub fn new(chart: ChartKind, title: impl Into<String>, data: Frame) -> Self {
        Self { chart, title: title.into(), data: Some(data), ..Self::default() }
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

    /// Writes what stands at the axes, with units.
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
}
