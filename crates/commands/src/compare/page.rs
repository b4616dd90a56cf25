//! What people see of a comparison: one table for each theme, reported above simulated.

use report::number::{between, dollars, grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};

use super::metrics::{Form, ONLY_SAID, UNFINISHED};
use super::{Report, Row, Value};
use crate::run_job::BreakdownSeconds;

/// With more columns than this a table's columns become its rows.
const MOST_COLUMNS: usize = 6;

/// Changed inputs that are listed at most.
const MOST_CHANGED: usize = 40;

pub(super) fn sheet(report: &Report) -> Sheet {
    let mut sources = Sources::default();
    let mut sheet = Sheet::new()
        .heading(format!("Side by side, {} engine", report.engine.name()))
        .table(columns(report));
    if let Some(verdict) = &report.verdict {
        sheet = sheet.text(format!("Verdict: {}.", verdict.text));
    }
    sheet = crate::targets::show(sheet, &report.targets);
    if !report.left_out.is_empty() {
        let names = report.left_out.join(", ");
        sheet = sheet.note(format!("Stopped before the end, and left out: {names}."));
    }
    if report.breakdowns.iter().any(Option::is_some) {
        sheet = sheet.heading("Where the time goes").chart(steps(report)).chart(breakdown(report));
    }
    if let Some(chart) = against_first(report) {
        sheet = sheet.heading("What changes").chart(chart);
    }
    if let Some(chart) = said_and_here(report) {
        sheet = sheet.heading("Published beside simulated").chart(chart);
    }
    if !report.changed.is_empty() && report.columns.len() <= MOST_COLUMNS {
        sheet = sheet.heading("Inputs that differ").table(changed(report));
        if MOST_CHANGED < report.changed.len() {
            let left = report.changed.len() - MOST_CHANGED;
            sheet = sheet.text(format!("{left} more differ; --json lists them."));
        }
    }
    let mut themes: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !themes.contains(&row.theme) {
            themes.push(row.theme);
        }
    }
    for theme in themes {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.theme == theme).collect();
        if MOST_COLUMNS < report.columns.len() {
            if let Some(table) = lines(report, &rows) {
                sheet = sheet.heading(theme).table(table);
            }
            continue;
        }
        sheet = sheet.heading(theme);
        if rows.iter().all(|row| row.form == Form::Words) {
            sheet = sheet.table(words(report, &rows, &mut sources));
        } else {
            sheet = sheet.table(figures(report, &rows, &mut sources));
        }
    }
    if report.columns.len() <= MOST_COLUMNS {
        sheet = super::requirements::show(sheet, &report.columns, &report.requirements);
    }
    if !sources.0.is_empty() {
        sheet = sheet.heading("Sources of what is reported").verbatim(sources.list());
    }
    sheet
}

/// Where reported figures stand, each with a number.
#[derive(Default)]
struct Sources(Vec<String>);

impl Sources {
    /// The number of a source, as a mark behind a figure.
    fn mark(&mut self, source: &str) -> String {
        let known = self.0.iter().position(|known| known == source);
        let number = known.unwrap_or_else(|| {
            self.0.push(source.to_owned());
            self.0.len() - 1
        });
        raised(number + 1)
    }

    fn list(&self) -> String {
        let lines = self.0.iter().enumerate();
        let lines: Vec<String> =
            lines.map(|(at, text)| format!("{:>3} {text}", raised(at + 1))).collect();
        lines.join("\n")
    }
}

fn raised(number: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digit = |c: char| DIGITS[c.to_digit(10).expect("decimal digits") as usize];
    number.to_string().chars().map(digit).collect()
}

fn columns(report: &Report) -> Table {
    let mut table = Table::new([("column", Align::Left), ("what it is", Align::Left)]);
    for (name, title) in report.columns.iter().zip(&report.titles) {
        table.row([name.clone(), title.clone()]);
    }
    table
}

fn changed(report: &Report) -> Table {
    let mut heads = vec![("input", Align::Left)];
    heads.extend(report.columns.iter().map(|name| (name.as_str(), Align::Right)));
    let mut table = Table::new(heads);
    for row in report.changed.iter().take(MOST_CHANGED) {
        let value = |value: &String| {
            if value.is_empty() { "–".to_owned() } else { value.trim_matches('"').to_owned() }
        };
        let values = row.values.iter().map(value);
        table.row(std::iter::once(row.key.clone()).chain(values));
    }
    table
}

/// Figures: for each metric a line of what is reported, if anything is, and one of what comes out.
fn figures(report: &Report, rows: &[&Row], sources: &mut Sources) -> Table {
    let mut heads = vec![("", Align::Left), ("", Align::Left)];
    heads.extend(report.columns.iter().map(|name| (name.as_str(), Align::Right)));
    let mut table = Table::new(heads);
    for row in rows {
        let said = row.reported.iter().any(Option::is_some);
        if said {
            let mut cells = vec![row.title.clone(), "said".to_owned()];
            for (value, source) in row.reported.iter().zip(&row.source) {
                let mark = source.as_ref().map_or_else(String::new, |text| sources.mark(text));
                let text = value.as_ref().map_or_else(String::new, |value| write(value, row));
                cells.push(format!("{text}{mark}"));
            }
            table.row(cells);
        }
        if row.theme == ONLY_SAID {
            continue;
        }
        let title = if said { String::new() } else { row.title.clone() };
        let mut cells = vec![title, "here".to_owned()];
        cells.extend((0..row.simulated.len()).map(|at| simulated(row, at)));
        table.row(cells);
        if row.low.iter().any(Option::is_some) {
            let mut cells = vec![String::new(), "range".to_owned()];
            cells.extend((0..row.simulated.len()).map(|at| ends(row, at)));
            table.row(cells);
        }
    }
    table
}

/// The ends of what comes out in a column.
fn ends(row: &Row, at: usize) -> String {
    match (row.low.get(at), row.high.get(at)) {
        (Some(Some(low)), Some(Some(high))) => write(&Value::Range(*low, *high), row),
        _ => String::new(),
    }
}

/// What comes out in a column; over several seeds with how sure the mean is.
fn simulated(row: &Row, at: usize) -> String {
    let text = row.simulated[at].as_ref().map_or_else(|| "–".to_owned(), |value| write(value, row));
    match row.ci95.get(at) {
        Some(Some(ci95)) if *ci95 > 0.0 => format!("{text} ± {}", figure(*ci95, row)),
        _ => text,
    }
}

/// Many columns: a line for each, and only what differs between them, or puts the rest in doubt.
fn lines(report: &Report, rows: &[&Row]) -> Option<Table> {
    // A collective's bandwidth says all that its time does.
    let bandwidth = rows.iter().any(|row| row.metric == "busbw_GBps");
    let tells = |row: &&&Row| {
        let differs = row.simulated.iter().any(|value| *value != row.simulated[0]);
        let is_said = row.metric != "makespan_s" || !bandwidth;
        row.metric == UNFINISHED || (differs && is_said)
    };
    let rows: Vec<&&Row> = rows.iter().filter(tells).collect();
    if rows.is_empty() {
        return None;
    }
    // Leaning to the right, names are not cut.
    let mut heads = vec![("", Align::Right)];
    heads.extend(rows.iter().map(|row| (row.title.as_str(), Align::Right)));
    let mut table = Table::new(heads);
    for (at, name) in report.columns.iter().enumerate() {
        let cells = rows.iter().map(|row| simulated(row, at));
        table.row(std::iter::once(name.clone()).chain(cells));
    }
    Some(table)
}

/// Words: for each metric and column a line.
fn words(report: &Report, rows: &[&Row], sources: &mut Sources) -> Table {
    let mut table = Table::new([
        ("", Align::Left),
        ("", Align::Left),
        ("said", Align::Left),
        ("here", Align::Left),
    ]);
    for row in rows {
        for (at, column) in report.columns.iter().enumerate() {
            let mark = row.source[at].as_ref().map_or_else(String::new, |text| sources.mark(text));
            let text = |value: &Option<Value>| {
                value.as_ref().map_or_else(|| "–".to_owned(), |value| write(value, row))
            };
            table.row([
                if at == 0 { row.title.clone() } else { String::new() },
                column.clone(),
                format!("{}{mark}", text(&row.reported[at])),
                text(&row.simulated[at]),
            ]);
        }
    }
    table
}

fn write(value: &Value, row: &Row) -> String {
    match value {
        Value::Number(number) => figure(*number, row),
        Value::Range(low, high) => between(*low, *high, |number| figure(number, row)),
        Value::Words(words) => words.clone(),
    }
}

fn figure(number: f64, row: &Row) -> String {
    let with = |text: String| {
        if row.unit.is_empty() { text } else { format!("{text} {}", row.unit) }
    };
    match row.form {
        Form::Percent => format!("{} %", significant(100.0 * number)),
        Form::Count => grouped(number.max(0.0).round() as u64),
        Form::Dollars if number.abs() < 100.0 => format!("${}", small(number)),
        Form::Dollars => dollars(number).replace(" billion", "bn").replace(" M", "M"),
        Form::Plain | Form::Words => with(small(number)),
        Form::Scaled => scaled(number, &row.unit),
    }
}

/// Three digits that count, however small the number.
fn small(number: f64) -> String {
    if number == 0.0 || 0.01 <= number.abs() {
        return significant(number);
    }
    format!("{number:.2e}")
}

fn scaled(number: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 6] =
        [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let found = PREFIXES.into_iter().find(|(factor, _)| *factor <= number.abs());
    let (factor, prefix) = found.unwrap_or((1.0, ""));
    let unit = match unit {
        "bit/s" => "b/s",
        "bit" => "bit",
        other => other,
    };
    format!("{} {prefix}{unit}", significant(number / factor)).trim_end().to_owned()
}

/// The seconds of each column's step, by what they are spent on.
fn steps(report: &Report) -> Chart {
    let mut frame = Frame::new(&["column", "seconds", "part"]);
    for (name, parts) in report.columns.iter().zip(&report.breakdowns) {
        for (part, seconds) in parts.iter().flat_map(BreakdownSeconds::named) {
            frame.push(vec![name.as_str().into(), seconds.into(), part.into()]);
        }
    }
    Chart::new(ChartKind::Bars, "How long a step takes, and what for", without_idle(frame, 1, 2))
        .caption("Seconds of one step; jobs of different size do different work in a step.")
        .axes("seconds", "column")
        .by("part")
        .labels("time of a step", "")
        .units(Unit::Seconds, Unit::Number)
}

fn breakdown(report: &Report) -> Chart {
    let mut frame = Frame::new(&["column", "share", "part"]);
    for (name, parts) in report.columns.iter().zip(&report.breakdowns) {
        let Some(parts) = parts else { continue };
        for (part, seconds) in parts.named() {
            let share = seconds / parts.total();
            frame.push(vec![name.as_str().into(), share.into(), part.into()]);
        }
    }
    let frame = without_idle(frame, 1, 2);
    Chart::new(ChartKind::Bars, "Which share of a step goes where", frame)
        .caption("Shares of each column's own step.")
        .axes("share", "column")
        .by("part")
        .labels("share of the step", "")
        .units(Unit::Share, Unit::Number)
}

/// The frame without the series that are nothing in every row.
fn without_idle(mut frame: Frame, value: usize, series: usize) -> Frame {
    let is_something = |row: &Vec<serde_json::Value>| row[value].as_f64().is_some_and(|v| v > 0.0);
    let used: Vec<serde_json::Value> =
        frame.rows.iter().filter(|row| is_something(row)).map(|row| row[series].clone()).collect();
    frame.rows.retain(|row| used.contains(&row[series]));
    frame
}

/// Metrics that people compare first.
const FIRST: [&str; 16] = [
    "step_s",
    "tokens_per_s",
    "mfu",
    "exposed_communication",
    "max_utilisation",
    "imbalance",
    "slowdown",
    "goodput",
    "cost",
    "power",
    "token_cost",
    "makespan_s",
    "fct_p50_s",
    "fct_p99_s",
    "busbw_GBps",
    "goodput_bps",
];

fn number(value: &Option<Value>) -> Option<f64> {
    match value {
        Some(Value::Number(number)) if 0.0 < *number => Some(*number),
        _ => None,
    }
}

/// Every column's figures over the first column's.
fn against_first(report: &Report) -> Option<Chart> {
    let first = report.columns.first()?;
    let mut frame = Frame::new(&["metric", "factor", "column", "figures"]);
    for row in FIRST.iter().filter_map(|key| report.rows.iter().find(|row| row.metric == *key)) {
        let Some(base) = number(&row.simulated[0]) else { continue };
        for (column, value) in report.columns.iter().zip(&row.simulated).skip(1) {
            let Some(own) = number(value) else { continue };
            let figures = format!("{} instead of {}", figure(own, row), figure(base, row));
            let (title, column) = (row.title.as_str(), column.as_str());
            frame.push(vec![title.into(), (own / base).into(), column.into(), figures.into()]);
        }
    }
    if frame.rows.is_empty() {
        return None;
    }
    let title = format!("What is more and what is less than in {first}");
    Some(
        Chart::new(ChartKind::Dots, title, frame)
            .caption("Each figure over that of the first column: left of the line is less.")
            .axes("factor", "metric")
            .by("column")
            .named_by("figures")
            .labels("factor", "")
            .rule(1.0, first.as_str())
            .log_x(),
    )
}

/// What is simulated over what was published; ranges are bars.
fn said_and_here(report: &Report) -> Option<Chart> {
    let mut frame = Frame::new(&["metric", "factor", "low", "high", "column", "figures"]);
    for row in report.rows.iter().filter(|row| row.theme != ONLY_SAID) {
        for (at, column) in report.columns.iter().enumerate() {
            let Some(here) = number(&row.simulated[at]) else { continue };
            let (low, high) = match &row.reported[at] {
                Some(Value::Number(said)) if 0.0 < *said => (*said, *said),
                Some(Value::Range(low, high)) if 0.0 < *low => (*low, *high),
                _ => continue,
            };
            let said = row.reported[at].as_ref().map_or_else(String::new, |said| write(said, row));
            let figures = format!("{} here, {said} published", figure(here, row));
            frame.push(vec![
                row.title.as_str().into(),
                (here / (low * high).sqrt()).into(),
                (here / high).into(),
                (here / low).into(),
                column.as_str().into(),
                figures.into(),
            ]);
        }
    }
    (!frame.rows.is_empty()).then(|| {
        Chart::new(ChartKind::Dots, "Simulated over published", frame)
            .caption(
                "On the line both agree. A bar spans a published range; what was published \
                 without measurement is here too, and the sources below say which.",
            )
            .axes("factor", "metric")
            .by("column")
            .named_by("figures")
            .error_bars("low", "high")
            .labels("simulated over published", "")
            .rule(1.0, "as published")
            .log_x()
    })
}
