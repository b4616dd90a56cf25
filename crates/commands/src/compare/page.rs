//! What people see of a comparison: the verdict, one table of what differs with the best marked,
//! the inputs that differ; on a page or if asked, one table for each theme, reported above
//! simulated.

use report::number::{between, grouped, significant_to, to_digits};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};

use super::metrics::{Better, Form, ONLY_SAID, UNFINISHED};
use super::{Report, Row, StepDifference, Value};
use crate::about::About;
use crate::run_job::BreakdownSeconds;

/// What people look at first, in this order.
const MAIN: [&str; 28] = [
    "job_gpus",
    "step_s",
    "mfu",
    "tflops_per_gpu",
    "exposed_communication",
    "fabric_share",
    "slowdown",
    "goodput",
    "oversubscription_built",
    "servers_on_leaf",
    "above_leaves",
    "tier_switches",
    "cost",
    "network_cost",
    "power",
    "token_cost",
    "jobs_step_s",
    "jobs_slowdown",
    "jobs_all_s",
    "completion_s",
    "makespan_s",
    UNFINISHED,
    "fct_p50_s",
    "fct_p99_s",
    "busbw_GBps",
    "goodput_bps",
    "drops",
    "pauses",
];

/// Figures that are nearer to each other than this share are the same to a reader.
const SAME: f64 = 5e-5;

/// Changed inputs that are listed at most.
const MOST_CHANGED: usize = 40;

pub(super) fn sheet(report: &Report) -> Sheet {
    let mut sheet = Sheet::new().heading(title(report));
    let mut shared = About::shared(&report.about);
    if 1 < report.seeds {
        shared = shared.replacen("; seed ", &format!("; {} seeds from ", report.seeds), 1);
    }
    if !shared.is_empty() && 1 < report.columns.len() {
        sheet = sheet.text(format!("In all columns: {shared}."));
    }
    if let Some(verdict) = &report.verdict {
        sheet = sheet.note(format!("{}.", verdict.text));
        sheet = verdict.also.iter().fold(sheet, |sheet, also| sheet.note(format!("{also}.")));
    }
    sheet = crate::targets::show(sheet, &report.targets);
    for note in &report.notes {
        sheet = sheet.note(format!("{note}."));
    }
    if report.whole && 1 < report.columns.len() {
        sheet = sheet.text(
            "Something comes or goes within the step of a column: every column runs all its ranks \
             on one clock, as with --whole, and its step may differ from that of a run phase by \
             phase.",
        );
    }
    if !report.left_out.is_empty() {
        let names = report.left_out.join(", ");
        sheet = sheet.note(format!("Stopped before the end, and left out: {names}."));
    }
    let main = rows_of(report, |row| MAIN.contains(&row.metric.as_str()));
    match main.is_empty() {
        true => sheet = sheet.text("No main figure differs; --all shows them."),
        false if report.columns.len() == 1 => {
            let alone = "Nothing to compare it with: name another scenario, or vary a key with \
                         --vary KEY=A,B.";
            sheet = sheet.table(differences(report, &main)).text(alone);
        }
        false => sheet = sheet.table(differences(report, &main)).text(legend(report)),
    }
    if !report.changed.is_empty() {
        sheet = inputs(report, sheet);
    }
    let others =
        rows_of(report, |row| !MAIN.contains(&row.metric.as_str()) && row.form != Form::Words);
    if report.named && 1 < report.columns.len() && !others.is_empty() && !report.all {
        sheet = sheet.heading("What else differs").table(differences(report, &others));
    }
    if report.titles.iter().any(|title| *title != report.titles[0]) {
        sheet = sheet.heading("What the columns are").table(columns(report));
    }
    let details = scenarios(report, details(report));
    let names = &report.columns;
    if report.all {
        let parts = [sheet.parts, details.parts].concat();
        return super::requirements::show(Sheet { parts }, names, &report.requirements);
    }
    let more = "All rows, what the documents ask, what was published and its sources, what \
                operators are asked for: --all, --report FILE.html or --json.";
    let sheet = sheet.hint(more).on_page(details);
    match report.named {
        true => {
            let asked = super::requirements::show(Sheet::new(), names, &report.requirements);
            sheet.on_page(asked)
        }
        false => super::requirements::show(sheet, names, &report.requirements),
    }
}

/// What each column is about, and its scenario to copy.
fn scenarios(report: &Report, sheet: Sheet) -> Sheet {
    let table = About::side_by_side(&report.columns, &report.about);
    let sheet = sheet.heading("What this is about").table(table).heading("The scenarios");
    let files = report.columns.iter().zip(&report.files);
    files.fold(sheet, |sheet, (name, file)| sheet.text(name).verbatim(file))
}

fn title(report: &Report) -> String {
    let seeds = if 1 < report.seeds { format!(", {} seeds", report.seeds) } else { String::new() };
    let count = report.columns.len();
    let noun = if count == 1 { "scenario" } else { "scenarios" };
    format!("{count} {noun} side by side, {} engine{seeds}", report.engine.name())
}

/// Rows to show: those that differ between the columns, or all, in the order of [`MAIN`].
fn rows_of(report: &Report, is_wanted: impl Fn(&Row) -> bool) -> Vec<&Row> {
    let shows_all = report.all || report.columns.len() == 1;
    let mut rows: Vec<&Row> = report
        .rows
        .iter()
        .filter(|row| row.theme != ONLY_SAID && is_wanted(row))
        .filter(|row| shows_all || row.metric == UNFINISHED || row.differs())
        .collect();
    let rank = |row: &&Row| MAIN.iter().position(|key| *key == row.metric);
    rows.sort_by_key(|row| rank(row).unwrap_or(usize::MAX));
    rows
}

/// What is read first: figures as rows, the best marked, differences from the first column.
fn differences(report: &Report, rows: &[&Row]) -> Table {
    let names = short(&report.columns);
    let mut heads = vec![("", Align::Left)];
    heads.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let mut table = Table::new(heads).turning();
    for row in rows {
        let marks = row.marks(report);
        let cells = (0..row.simulated.len()).map(|at| {
            let change = if report.named && 0 < at { row.change(at) } else { String::new() };
            let gap = if change.is_empty() { String::new() } else { format!(" {change:>7}") };
            format!("{}{}{gap}", simulated(row, at), marks[at])
        });
        table.row(std::iter::once(row.title.clone()).chain(cells));
        if row.metric == "step_s" {
            let cells = (0..row.simulated.len()).map(|at| ends(row, at));
            table.row(std::iter::once("  80 % range".to_owned()).chain(cells));
            if report.named && !report.differences.is_empty() {
                let cells = report.differences.iter().map(longer_by);
                table.row(std::iter::once("  longer by".to_owned()).chain(cells));
            }
        }
        if row.reported.iter().any(Option::is_some) {
            let text = |value: &Option<Value>| {
                value.as_ref().map_or_else(String::new, |value| write(value, row))
            };
            let cells = row.reported.iter().map(text);
            table.row(std::iter::once("  published".to_owned()).chain(cells));
        }
    }
    table
}

/// How much longer a step is, from the least to the most.
fn longer_by(difference: &Option<StepDifference>) -> String {
    let percent = |share: f64| format!("{:+.1}", 100.0 * share);
    difference.as_ref().map_or_else(String::new, |StepDifference { low, high, .. }| {
        format!("{} to {} %", percent(*low), percent(*high))
    })
}

fn legend(report: &Report) -> String {
    let mut text = "* best; ≈ a tie with it".to_owned();
    if report.named && report.differences.iter().flatten().any(|one| one.cancels) {
        text += "; \"longer by\" is narrower than the ranges, for of the same job on the same GPUs \
                 the error of computation cancels";
    }
    if 1 < report.seeds {
        text += "; ± is the 95 % confidence of the mean over the seeds, the 80 % range the model's \
                 error without it";
    }
    if report.named && report.seeds < 2 && report.engine.has_contention() {
        text +=
            "; of one seed: which paths queue pairs hash onto is chance (--seeds 8 tells how much)";
    }
    match (report.named, report.columns.first()) {
        (true, Some(first)) if 1 < report.columns.len() => {
            text + &format!("; differences are from {first} (pp: percentage points).")
        }
        _ => text + ".",
    }
}

/// What was written otherwise, a line for each key.
fn inputs(report: &Report, sheet: Sheet) -> Sheet {
    let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
    let between = if report.columns.len() == 2 { " → " } else { ", " };
    for row in report.changed.iter().take(MOST_CHANGED) {
        let value = |value: &String| {
            if value.is_empty() { "–".to_owned() } else { value.trim_matches('"').to_owned() }
        };
        let values: Vec<String> = row.values.iter().map(value).collect();
        table.row([row.key.clone(), values.join(between)]);
    }
    let sheet = sheet.heading("Inputs that differ, in the order of the columns").table(table);
    match report.changed.len().saturating_sub(MOST_CHANGED) {
        0 => sheet,
        left => sheet.text(format!("{left} more differ; --json lists them.")),
    }
}

/// Everything, theme by theme, with what was published and the charts.
fn details(report: &Report) -> Sheet {
    let mut sources = Sources::default();
    let mut sheet = Sheet::new();
    if report.breakdowns.iter().any(Option::is_some) {
        sheet = sheet.heading("Where the time goes").chart(steps(report));
        // Of the same work, seconds and shares are one picture.
        if !report.same_work {
            sheet = sheet.chart(breakdown(report));
        }
    }
    if let Some(chart) = against_first(report) {
        sheet = sheet.heading("What changes").chart(chart);
    }
    if let Some(chart) = said_and_here(report) {
        sheet = sheet.heading("Published beside simulated").chart(chart);
    }
    let mut themes: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !themes.contains(&row.theme) {
            themes.push(row.theme);
        }
    }
    for theme in themes {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.theme == theme).collect();
        sheet = sheet.heading(theme);
        sheet = match rows.iter().all(|row| row.form == Form::Words) {
            true => sheet.table(words(report, &rows, &mut sources)),
            false => sheet.table(figures(report, &rows, &mut sources)),
        };
    }
    sheet = crate::operations::show(sheet, &report.columns, &report.operations);
    match sources.0.is_empty() {
        true => sheet,
        false => sheet.heading("Sources of what is reported").verbatim(sources.list()),
    }
}

/// The names without the words that all of them begin with, where they are long.
pub(super) fn short(names: &[String]) -> Vec<String> {
    const LONG: usize = 12;
    // Less is hardly shorter, and half of a word such as `rail-only`.
    const WORTHWHILE: usize = 8;
    let parts = |name: &str| -> Vec<String> {
        name.split_inclusive(['-', '/']).map(str::to_owned).collect()
    };
    let all: Vec<Vec<String>> = names.iter().map(|name| parts(name)).collect();
    let is_long = names.iter().any(|name| LONG < name.chars().count());
    let shortest = all.iter().map(Vec::len).min().unwrap_or(0);
    if !is_long || names.len() < 2 {
        return names.to_vec();
    }
    let same = |at: &usize| all.iter().all(|parts| parts[*at] == all[0][*at]);
    let mut common = (0..shortest.saturating_sub(1)).take_while(same).count();
    // A bare number would not say what it counts.
    let is_bare = |parts: &Vec<String>, at: usize| parts[at].starts_with(|c: char| c.is_numeric());
    while 0 < common && all.iter().any(|parts| is_bare(parts, common)) {
        common -= 1;
    }
    if all[0][..common].concat().chars().count() < WORTHWHILE {
        return names.to_vec();
    }
    all.iter().map(|parts| parts[common..].concat()).collect()
}

impl Row {
    /// Whether it is not the same in all columns.
    fn differs(&self) -> bool {
        let is_near = |value: &Option<Value>| match (number(value), number(&self.simulated[0])) {
            (Some(own), Some(first)) => (own - first).abs() <= SAME * first.abs(),
            _ => *value == self.simulated[0],
        };
        !self.simulated.iter().all(is_near)
    }

    /// A mark behind each figure: the best, and what cannot be told from it.
    fn marks(&self, report: &Report) -> Vec<&'static str> {
        let figures: Vec<Option<f64>> = self.simulated.iter().map(Value::number).collect();
        let sign = match self.better {
            Better::Less => 1.0,
            Better::More => -1.0,
            Better::Neither => 0.0,
        };
        let is_work = ["step_s", "tokens_per_s", "cost", "network_cost", "power"];
        let compares = report.same_work || !is_work.contains(&self.metric.as_str());
        if sign == 0.0 || !compares || figures.iter().flatten().count() < 2 || !self.differs() {
            return vec![" "; figures.len()];
        }
        let order = |a: &(usize, f64), b: &(usize, f64)| (sign * a.1).total_cmp(&(sign * b.1));
        let known = figures.iter().enumerate().filter_map(|(at, value)| value.map(|v| (at, v)));
        let Some((best, least)) = known.min_by(order) else { return vec![" "; figures.len()] };
        let doubt = |at: usize| self.ci95.get(at).copied().flatten().unwrap_or(0.0);
        let of_step = ["step_s", "tokens_per_s", "mfu", "tflops_per_gpu"];
        let ties = report.verdict.iter().flat_map(|verdict| &verdict.ties);
        let ties: Vec<&String> = ties.chain(report.verdict.iter().map(|v| &v.best)).collect();
        let mark = |(at, value): (usize, &Option<f64>)| {
            let Some(value) = value else { return " " };
            let is_tie = of_step.contains(&self.metric.as_str())
                && [at, best].iter().all(|at| ties.contains(&&report.columns[*at]));
            let is_near = (value - least).abs() <= doubt(at).hypot(doubt(best));
            match at == best || (value - least).abs() <= SAME * least.abs() {
                true => "*",
                false if is_tie || is_near => "≈",
                false => " ",
            }
        };
        figures.iter().enumerate().map(mark).collect()
    }

    /// How far a column's figure is from the first column's.
    fn change(&self, at: usize) -> String {
        let (Some(own), Some(first)) =
            (Value::number(&self.simulated[at]), Value::number(&self.simulated[0]))
        else {
            return String::new();
        };
        let factor = own / first;
        match self.form {
            _ if (own - first).abs() <= SAME * first.abs() => "=".to_owned(),
            Form::Percent | Form::Excess => match 100.0 * (own - first) {
                points if points.abs() < 0.05 => format!("{points:+.3} pp"),
                points => format!("{points:+.1} pp"),
            },
            _ if first == 0.0 || !factor.is_finite() => String::new(),
            _ if 10.0 <= factor => format!("×{factor:.0}"),
            _ => match 100.0 * (factor - 1.0) {
                change if change.abs() < 0.05 => format!("{change:+.2} %"),
                change => format!("{change:+.1} %"),
            },
        }
    }

    /// As many digits as it takes to see what differs, three at least and seven at most.
    pub(super) fn with_digits(mut self) -> Self {
        let mut figures: Vec<f64> = self.simulated.iter().filter_map(Value::number).collect();
        figures.sort_by(f64::total_cmp);
        figures.dedup_by(|a, b| (*a - *b).abs() <= 2.0 * SAME * b.abs());
        self.digits = 3;
        let is_seen = |row: &Self| {
            let mut texts: Vec<String> = figures.iter().map(|n| figure(*n, row)).collect();
            texts.dedup();
            texts.len() == figures.len()
        };
        while self.digits < 7 && !is_seen(&self) {
            self.digits += 1;
        }
        self
    }
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
    let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
    for (name, title) in report.columns.iter().zip(&report.titles) {
        table.row([name.clone(), title.clone()]);
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

/// What comes out in a column; over several seeds with how sure the mean is, in the mean's unit.
pub(super) fn simulated(row: &Row, at: usize) -> String {
    let text = row.simulated[at].as_ref().map_or_else(|| "–".to_owned(), |value| write(value, row));
    let mean = Value::number(&row.simulated[at]).unwrap_or(0.0);
    match row.ci95.get(at) {
        // Below this it is the rounding of a mean of equal numbers.
        Some(Some(ci95)) if 1e-9 * mean.abs() < *ci95 => {
            let (factor, _, after) = shape(mean, row);
            let number = text.strip_suffix(after.as_str()).unwrap_or(&text);
            format!("{number} ± {}{after}", two_digits(factor * ci95))
        }
        _ => text,
    }
}

/// With the two digits that count, and no exponent.
fn two_digits(number: f64) -> String {
    let decimals = (1.0 - number.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{number:.decimals$}")
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
    let digits = row.digits.max(3);
    let (factor, before, after) = shape(number, row);
    let text = match row.form {
        Form::Count => grouped(number.max(0.0).round() as u64),
        Form::Ratio | Form::Times => significant_to(number, digits),
        Form::Excess if number <= 1.0 + SAME => return "0 %".to_owned(),
        Form::Excess => to_digits(factor * (number - 1.0), digits),
        Form::Dollars if (100.0..1e5).contains(&number.abs()) => grouped(number as u64),
        Form::Plain | Form::Words if row.unit != "s" => small(number, digits),
        _ => to_digits(factor * number, digits),
    };
    format!("{before}{text}{after}")
}

/// How a figure is written: what it is multiplied by, what stands before it and what behind.
fn shape(number: f64, row: &Row) -> (f64, &'static str, String) {
    const SECONDS: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")];
    const PREFIXES: [(f64, &str); 6] =
        [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let of = |units: &[(f64, &'static str)], otherwise| {
        units.iter().copied().find(|(unit, _)| *unit <= number.abs()).unwrap_or(otherwise)
    };
    match row.form {
        Form::Percent => (100.0, "", " %".to_owned()),
        Form::Excess => (100.0, "+", " %".to_owned()),
        Form::Ratio => (1.0, "", ":1".to_owned()),
        Form::Times => (1.0, "", "×".to_owned()),
        Form::Count => (1.0, "", String::new()),
        Form::Dollars => match number.abs() {
            size if size < 1e5 => (1.0, "$", String::new()),
            size if size < 1e9 => (1e-6, "$", "M".to_owned()),
            _ => (1e-9, "$", "bn".to_owned()),
        },
        Form::Plain | Form::Words if row.unit == "s" => {
            let least = if number == 0.0 { SECONDS[0] } else { SECONDS[3] };
            let (unit, name) = of(&SECONDS, least);
            (1.0 / unit, "", format!(" {name}"))
        }
        // Where the name says the unit, figures need not.
        Form::Plain | Form::Words if row.unit.is_empty() || row.title.starts_with(&row.unit) => {
            (1.0, "", String::new())
        }
        Form::Plain | Form::Words => (1.0, "", format!(" {}", row.unit)),
        Form::Scaled => {
            let (unit, prefix) = of(&PREFIXES, (1.0, ""));
            let name = if row.unit == "bit/s" { "b/s" } else { &row.unit };
            (1.0 / unit, "", format!(" {prefix}{name}").trim_end().to_owned())
        }
    }
}

/// Digits that count, however small the number.
fn small(number: f64, digits: usize) -> String {
    if number == 0.0 || 0.01 <= number.abs() {
        return significant_to(number, digits);
    }
    format!("{number:.*e}", digits - 1)
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
        .caption(format!(
            "Seconds of one step{}; jobs of different size do different work in a step.",
            over_seeds(report)
        ))
        .axes("seconds", "column")
        .by("part")
        .labels("time of a step", "")
        .units(Unit::Seconds, Unit::Number)
}

/// Of what a chart shows the mean.
fn over_seeds(report: &Report) -> String {
    match report.seeds {
        0 | 1 => String::new(),
        seeds => format!(", the mean of {seeds} seeds"),
    }
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
        .caption(format!("Shares of each column's own step{}.", over_seeds(report)))
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
