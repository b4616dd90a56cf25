//! A self-contained HTML page: sections of text, figures, tables and charts.
//!
//! The page carries its data as JSON and draws it with Observable Plot and D3, whose minified files
//! are embedded (see `assets/LICENSES.txt`). It loads nothing: its content security policy forbids
//! every request. Each chart names its columns and shows its data as CSV on demand.

use serde::Serialize;
use serde_json::Value;

/// A whole page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// Short name, used for the files that readers download.
    pub name: String,
    /// What the page is about.
    #[serde(skip)]
    pub title: String,
    /// Lines under the title: scenario, engine, seed, version.
    #[serde(skip)]
    pub subtitle: Vec<String>,
    /// In the order in which people look.
    pub sections: Vec<Section>,
    /// The last line: how this page was made.
    #[serde(skip)]
    pub footer: String,
}

/// A heading with what belongs to it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Paragraphs before the blocks.
    pub text: Vec<String>,
    /// Figures, tables, charts.
    pub blocks: Vec<Block>,
}

/// Something to look at.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Block {
    /// A few numbers, large.
    Facts {
        /// The numbers.
        items: Vec<Fact>,
    },
    /// Rows and columns.
    Table(Frame),
    /// A paragraph that should not be missed.
    Note {
        /// The paragraph.
        text: String,
    },
    /// A chart.
    Chart(Box<Chart>),
}

/// A number with its name.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// What it is.
    pub label: String,
    /// The number, written out.
    pub value: String,
    /// What to know about it; may be empty.
    pub note: String,
}

/// Columns with names, as a spreadsheet has them.
#[derive(Clone, Debug, Default, Serialize)]
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
#[derive(Clone, Debug, Default, Serialize)]
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
#[derive(Clone, Debug, Default, Serialize)]
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

impl Page {
    /// The whole page as one file.
    pub fn html(&self) -> String {
        let data = serde_json::to_string(self).expect("plain data serialises");
        // Inside a script element only `</` and `<!--` could end or confuse it.
        let data = data.replace('<', "\\u003c");
        let subtitle: Vec<String> =
            self.subtitle.iter().map(|line| format!("<p>{}</p>", escape(line))).collect();
        let parts = [
            ("{{title}}", escape(&self.title)),
            ("{{subtitle}}", subtitle.concat()),
            ("{{footer}}", escape(&self.footer)),
            ("{{style}}", include_str!("../assets/page.css").to_owned()),
            ("{{d3}}", include_str!("../assets/d3.min.js").to_owned()),
            ("{{plot}}", include_str!("../assets/plot.min.js").to_owned()),
            ("{{script}}", include_str!("../assets/page.js").to_owned()),
            ("{{data}}", data),
        ];
        fill(include_str!("../assets/page.html"), &parts)
    }
}

/// Replaces each place holder once, without looking into what was put in.
fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut out =
        String::with_capacity(template.len() + parts.iter().map(|p| p.1.len()).sum::<usize>());
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        out.push_str(&rest[..start]);
        let end = start + rest[start..].find("}}").expect("place holders are closed") + 2;
        let (_, text) = parts
            .iter()
            .find(|(holder, _)| *holder == &rest[start..end])
            .expect("every place holder of the template is filled");
        out.push_str(text);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
    fn a_page_escapes_what_it_carries_and_loads_nothing() {
        let section = Section {
            title: "</script><script>alert(1)</script>".to_owned(),
            blocks: vec![Block::Note { text: "{{plot}}".to_owned() }],
            ..Section::default()
        };
        let page = Page { title: "a < b".to_owned(), sections: vec![section], ..Page::default() };
        let html = page.html();
        assert!(html.contains("<h1>a &lt; b</h1>"));
        assert!(!html.contains("<script>alert(1)"));
        assert!(html.contains("default-src 'none'"));
        assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));
        assert!(html.len() < 700_000, "an empty page has {} bytes", html.len());
    }

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
