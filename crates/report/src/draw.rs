//! Charts in Unicode: bars, sparklines and heat maps for the terminal.
//!
//! Not every kind says something in so little room; [`draws`] tells which do, and the others are
//! left to the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::chart::{Chart, ChartKind, Fact, Frame, TreeNode, Unit};
use crate::sheet::wrap;

/// Eighths of a cell, for the ends of horizontal bars.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// Heights of a cell, for sparklines.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Densities of a cell, for heat maps.
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
/// More rows than this are left to the page.
const MOST_ROWS: usize = 40;
/// Parts of one part of a tree that are shown, the busiest.
const MOST_BRANCHES: usize = 8;

/// Whether the terminal can show this kind of chart.
pub fn draws(chart: &Chart) -> bool {
    use ChartKind::{Area, Bars, Heat, Histogram, Line, Tree, Waterfall};
    match chart.chart {
        // Stacks differ by their parts, which one colour cannot show.
        Bars => chart.series.is_none(),
        kind => matches!(kind, Waterfall | Line | Area | Heat | Histogram | Tree),
    }
}

/// A few numbers side by side: name above, number below.
pub fn facts(items: &[Fact], width: usize) -> String {
    let wide = |fact: &Fact| fact.label.width().max(fact.value.width());
    let mut text = String::new();
    let mut row: Vec<&Fact> = Vec::new();
    let mut used = 0;
    for fact in items {
        if 0 < used && width < used + wide(fact) {
            facts_row(&row, &mut text);
            row.clear();
            used = 0;
        }
        used += wide(fact) + 3;
        row.push(fact);
    }
    facts_row(&row, &mut text);
    text
}

fn facts_row(row: &[&Fact], text: &mut String) {
    for part in [|fact: &Fact| fact.label.clone(), |fact: &Fact| fact.value.clone()] {
        let mut line = String::new();
        for fact in row {
            let cell = part(fact);
            let room = fact.label.width().max(fact.value.width()) + 3;
            line.push_str(&cell);
            line.push_str(&" ".repeat(room - cell.width()));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// The chart as lines of at most `width` columns, or nothing if the terminal cannot show it.
pub fn chart(chart: &Chart, width: usize) -> String {
    let mut text = format!("{}\n", chart.title);
    let empty = Frame::default();
    let data = chart.data.as_ref().unwrap_or(&empty);
    let column = |name: &Option<String>| {
        name.as_ref().and_then(|name| data.columns.iter().position(|column| column == name))
    };
    let (x, y, series) = (column(&chart.x), column(&chart.y), column(&chart.series));
    match (chart.chart, x, y) {
        (ChartKind::Bars | ChartKind::Waterfall, Some(x), Some(y)) => {
            bars(data, (x, y), chart.x_unit, width, &mut text);
        }
        (ChartKind::Line | ChartKind::Area, Some(_), Some(y)) => {
            sparklines(data, (y, series), chart.y_unit, width, &mut text);
        }
        (ChartKind::Heat, Some(x), Some(y)) => {
            if let Some(value) = column(&chart.value) {
                heat(data, [x, y, value], chart.value_unit, width, &mut text);
            }
        }
        (ChartKind::Histogram, _, Some(y)) => {
            if let Some((start, end)) = column(&chart.start).zip(column(&chart.end)) {
                histogram(data, [start, end, y], chart.x_unit, &mut text);
            }
        }
        (ChartKind::Tree, ..) => {
            if let Some(root) = &chart.root {
                tree(root, 0, width, &mut text);
            }
        }
        _ => return String::new(),
    }
    text
}

fn number(cell: &Value) -> f64 {
    cell.as_f64().unwrap_or(0.0)
}

fn word(cell: &Value) -> String {
    cell.as_str().map_or_else(|| cell.to_string(), str::to_owned)
}

/// Four digits that count, with a factor's letter where they would not fit.
fn short(value: f64) -> String {
    const FACTORS: [(f64, &str); 5] =
        [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    let (scaled, letter) = FACTORS
        .iter()
        .find(|(factor, _)| value.abs() >= *factor)
        .map_or((value, ""), |(factor, letter)| {
            (value / if *letter == "k" { 1e3 } else { *factor }, *letter)
        });
    let digits = if scaled == 0.0 { 1 } else { scaled.abs().log10().floor() as i32 + 1 };
    let decimals = usize::try_from((4 - digits).clamp(0, 6)).expect("clamped");
    let text = format!("{scaled:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

/// A number with its unit.
fn written(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Number => short(value),
        Unit::Share => format!("{:.1} %", 100.0 * value),
        Unit::Seconds => short(value) + " s",
        Unit::Bytes | Unit::MessageBytes => prefixed(value, "B"),
        Unit::BitsPerSecond => prefixed(value, "b/s"),
        Unit::Dollars => format!("${}", short(value)),
        Unit::Watts => prefixed(value, "W"),
    }
}

/// The factor's letter belongs to the unit.
fn prefixed(value: f64, unit: &str) -> String {
    let text = short(value);
    let number = text.trim_end_matches(char::is_alphabetic);
    format!("{number} {}{unit}", &text[number.len()..])
}

/// A horizontal bar for a share of so many columns.
pub fn bar(share: f64, room: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * room as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// One bar for each row; long names go on in the lines below.
fn bars(data: &Frame, (x, y): (usize, usize), unit: Unit, width: usize, text: &mut String) {
    let most_name = (width * 2 / 5).max(8);
    let sums: Vec<(String, f64)> =
        data.rows.iter().map(|row| (wrap(&word(&row[y]), most_name), number(&row[x]))).collect();
    let widths = sums.iter().flat_map(|(name, _)| name.lines().map(|line| line.width()));
    let names = widths.max().unwrap_or(0);
    let numbers = sums.iter().map(|(_, sum)| written(*sum, unit).width()).max().unwrap_or(0);
    let room = width.saturating_sub(names + numbers + 4).max(8);
    let most = sums.iter().map(|(_, sum)| *sum).fold(f64::MIN_POSITIVE, f64::max);
    for (name, sum) in sums.iter().take(MOST_ROWS) {
        let (first, rest) = name.split_once('\n').unwrap_or((name, ""));
        let blanks = " ".repeat(names - first.width());
        let (sum, bar) = (written(*sum, unit), bar(sum / most, room));
        let line = format!("  {first}{blanks} {sum:>numbers$} {bar}");
        writeln!(text, "{}", line.trim_end()).expect("writing to a String cannot fail");
        for line in rest.lines() {
            writeln!(text, "  {line}").expect("as above");
        }
    }
}

/// One sparkline for each series, with its range.
fn sparklines(
    data: &Frame,
    (y, series): (usize, Option<usize>),
    unit: Unit,
    width: usize,
    text: &mut String,
) {
    let mut lines: Vec<(String, Vec<f64>)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for row in &data.rows {
        let name = series.map_or_else(String::new, |series| word(&row[series]));
        let place = *places.entry(name).or_insert_with_key(|name| {
            lines.push((name.clone(), Vec::new()));
            lines.len() - 1
        });
        lines[place].1.push(number(&row[y]));
    }
    let names = lines.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let room = width.saturating_sub(names + 24).max(8);
    for (name, values) in lines.iter().take(MOST_ROWS) {
        let (low, high) = values
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        let blanks = " ".repeat(names - name.width());
        let line = sparkline(values, room);
        let ends = format!("{} to {}", written(low, unit), written(high, unit));
        writeln!(text, "  {name}{blanks} {line} {ends}").expect("writing to a String cannot fail");
    }
}

/// Values as heights, the peak of each bucket if there are more than columns.
pub fn sparkline(values: &[f64], room: usize) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let buckets = values.len().min(room);
    let height = |bucket: usize| {
        let range = values.len() * bucket / buckets..values.len() * (bucket + 1) / buckets;
        let peak = values[range].iter().copied().fold(0.0, f64::max);
        let level = if most > 0.0 { peak / most * 7.0 } else { 0.0 };
        HEIGHTS[(level.round() as usize).min(7)]
    };
    (0..buckets).map(height).collect()
}

/// Cells by density; columns are merged where they would not fit, each showing its peak.
fn heat(data: &Frame, [x, y, value]: [usize; 3], unit: Unit, width: usize, text: &mut String) {
    let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
    let mut columns: Vec<String> = Vec::new();
    for row in &data.rows {
        let at = word(&row[x]);
        let column = columns.iter().position(|known| *known == at).unwrap_or_else(|| {
            columns.push(at);
            columns.len() - 1
        });
        let name = word(&row[y]);
        let line = match rows.iter().position(|(known, _)| *known == name) {
            Some(line) => line,
            None => {
                rows.push((name, Vec::new()));
                rows.len() - 1
            }
        };
        let cells = &mut rows[line].1;
        cells.resize(cells.len().max(column + 1), 0.0);
        cells[column] = number(&row[value]);
    }
    let names = rows.iter().map(|(name, _)| name.width()).max().unwrap_or(0).min(width / 2);
    let most = rows.iter().flat_map(|(_, cells)| cells).copied().fold(f64::MIN_POSITIVE, f64::max);
    let room = width.saturating_sub(names + 3).max(8);
    for (name, cells) in rows.iter().take(MOST_ROWS) {
        let buckets = columns.len().min(room);
        let shade = |bucket: usize| {
            let range = columns.len() * bucket / buckets..columns.len() * (bucket + 1) / buckets;
            let cells = range.filter_map(|at| cells.get(at)).copied();
            let level = cells.fold(0.0, f64::max) / most * 4.0;
            SHADES[(level.ceil() as usize).min(4)]
        };
        let name = shortened(name, names);
        let blanks = " ".repeat(names - name.width());
        let line: String = (0..buckets).map(shade).collect();
        writeln!(text, "  {name}{blanks} {line}").expect("writing to a String cannot fail");
    }
    writeln!(text, "  {} nothing   █ {}", SHADES[0], written(most, unit)).expect("as above");
}

/// A name that is too long ends in an ellipsis.
fn shortened(name: &str, room: usize) -> String {
    if name.width() <= room {
        return name.to_owned();
    }
    let fits = |end: &usize| name[..*end].width() < room;
    let end = name.char_indices().map(|(at, _)| at).take_while(fits).last().unwrap_or(0);
    format!("{}…", &name[..end])
}

/// Ranges and how many values each holds, all series together.
fn histogram(data: &Frame, [start, end, y]: [usize; 3], unit: Unit, text: &mut String) {
    let mut ranges: Vec<(f64, f64, f64)> = Vec::new();
    for row in &data.rows {
        let (from, to, count) = (number(&row[start]), number(&row[end]), number(&row[y]));
        match ranges.iter_mut().find(|range| range.0 == from) {
            Some(range) => range.2 += count,
            None => ranges.push((from, to, count)),
        }
    }
    let counts: Vec<f64> = ranges.iter().map(|range| range.2).collect();
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return };
    let line = sparkline(&counts, counts.len());
    writeln!(text, "  {} {line} {}", written(first.0, unit), written(last.1, unit))
        .expect("writing to a String cannot fail");
}

/// The unfolded part of a tree, indented, with its loads.
fn tree(node: &TreeNode, depth: usize, width: usize, text: &mut String) {
    let indent = "  ".repeat(depth + 1);
    let name = format!("{indent}{}", node.name);
    let blanks = " ".repeat(28_usize.saturating_sub(name.width()));
    let room = width.saturating_sub(42).clamp(8, 40);
    let line = match node.load {
        Some(load) => format!("{name}{blanks} {:>5.1} % {}", load * 100.0, bar(load, room)),
        None => format!("{name}{blanks} {}", node.note),
    };
    writeln!(text, "{}", line.trim_end()).expect("writing to a String cannot fail");
    if node.open {
        let mut children: Vec<&TreeNode> = node.children.iter().collect();
        // Where nothing was run all are alike, and stay in their order.
        children.sort_by(|a, b| b.load.unwrap_or(0.0).total_cmp(&a.load.unwrap_or(0.0)));
        for child in children.iter().take(MOST_BRANCHES) {
            tree(child, depth + 1, width, text);
        }
        if MOST_BRANCHES < children.len() {
            let more = children.len() - MOST_BRANCHES;
            writeln!(text, "{indent}  … {more} more").expect("as above");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(columns: &[&str], rows: &[(&str, f64)]) -> Frame {
        let mut frame = Frame::new(columns);
        for (name, value) in rows {
            frame.push(vec![(*name).into(), (*value).into()]);
        }
        frame
    }

    #[test]
    fn bars_share_one_scale() {
        let data = frame(&["part", "s"], &[("compute", 4.0), ("tensor", 1.0), ("none", 0.0)]);
        let drawn = chart(&Chart::new(ChartKind::Bars, "Step", data).axes("s", "part"), 32);
        insta::assert_snapshot!(drawn, @r"
        Step
          compute 4 ████████████████████
          tensor  1 █████
          none    0
        ");
    }

    #[test]
    fn sparklines_keep_the_peak() {
        let mut values = vec![1.0; 1000];
        values[777] = 8.0;
        let line = sparkline(&values, 10);
        assert_eq!(line, "▂▂▂▂▂▂▂█▂▂");
    }

    #[test]
    fn a_tree_shows_its_busiest_parts() {
        let part = |at: u32| TreeNode {
            name: format!("leaf {at}"),
            load: Some(f64::from(at) / 10.0),
            ..TreeNode::default()
        };
        let children = (0..11).map(part).collect();
        let root = TreeNode { name: "fabric".into(), open: true, children, ..TreeNode::default() };
        let drawn = chart(&Chart::tree("Fabric", root), 60);
        let lines: Vec<&str> = drawn.lines().collect();
        assert!(lines[2].contains("leaf 10") && lines[2].contains("100.0 %"), "{drawn}");
        assert_eq!(lines.last(), Some(&"    … 3 more"));
    }

    #[test]
    fn numbers_have_their_units_and_names_are_whole() {
        let long = "a change with a name of many words";
        let data = frame(&["change", "gain"], &[(long, 0.6458), ("short", 0.25)]);
        let bars = Chart::new(ChartKind::Bars, "Gain", data).axes("gain", "change");
        let drawn = chart(&bars.clone().units(Unit::Share, Unit::Number), 40);
        let words: Vec<&str> = drawn.split_whitespace().collect();
        assert!(drawn.contains("64.6 % █") && drawn.lines().all(|line| line.width() <= 40));
        assert!(long.split(' ').all(|word| words.contains(&word)), "{drawn}");
        assert!(chart(&bars.units(Unit::Seconds, Unit::Number), 40).contains("0.25 s █"));
        assert_eq!(written(4.234e12, Unit::Bytes), "4.234 TB");
        assert_eq!(written(950.0, Unit::BitsPerSecond), "950 b/s");
    }

    #[test]
    fn numbers_are_short() {
        let texts: Vec<String> = [0.0, 0.01234, 4.0, 41.97, 1234.6, 12_345.0, 2.5e12]
            .iter()
            .map(|v| short(*v))
            .collect();
        assert_eq!(texts, ["0", "0.01234", "4", "41.97", "1235", "12.35k", "2.5T"]);
    }
}
