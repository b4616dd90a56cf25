//! What people see of a validation: how far off, how it is spread, and every case.

use report::number::significant;
use report::{Align, Answer, Chart, ChartKind, Frame, Scale, Sheet, Table, Unit};

use super::left_out::LeftOut;
use super::score::{Part, Score};
use super::{Case, Family, Report};

fn percent(error: f64) -> String {
    format!("{:+.1} %", 100.0 * error)
}

fn size(error: f64) -> String {
    format!("{:.1} %", 100.0 * error)
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.engine.name())
    }

    fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new()
            .heading(format!("Published measurements, {} engine", self.engine.name()))
            .table(self.summary())
            .text(
                "`left out`: mean and median where every constant that measurements set was set \
                 again without the row's cluster. `in 80 %`: measurements inside their interval, \
                 which comes from other clusters. `of the time`: the mean with rates turned into \
                 times. A row that cannot be predicted counts as off by 100 %.",
            )
            .text(self.worst());
        if self.asked.moves_packets() && !self.engine.moves_packets() {
            sheet = sheet.note(
                "Steps and collectives are scored on the flow engine, packet runs on the packet \
                 engine.",
            );
        }
        if let Some(rule) = &self.fabric_rule {
            sheet = sheet.text(format!("Rows name no topology; one rule gives it to all. {rule}"));
        }
        if let Some(threshold) = self.threshold {
            let verdict = if self.passed { "keeps to" } else { "does not keep to" };
            let text = format!("The mean error of every family {verdict} {}.", size(threshold));
            sheet = if self.passed { sheet.text(text) } else { sheet.note(text) };
        }
        for words in &self.worse {
            sheet = sheet.note(words);
        }
        sheet = sheet.chart(self.errors());
        for family in &self.families {
            sheet = sheet.heading(&family.name);
            for chart in scatters(family) {
                sheet = sheet.chart(chart);
            }
            if !family.by_class.is_empty() {
                sheet = sheet.table(parts("class", &family.by_class));
                sheet = sheet.table(parts("cluster", &family.by_cluster));
            }
            sheet = sheet.table(table(family));
            for row in &family.unpredicted {
                sheet = sheet.note(format!("{} cannot be predicted: {}", row.id, row.reason));
            }
        }
        sheet
    }
}

impl Report {
    /// Whose error is the worst of each family.
    fn worst(&self) -> String {
        let of = |family: &Family| format!("{} of {}", family.worst_id, family.name);
        let worst: Vec<String> = self.families.iter().map(of).collect();
        format!("Worst: {}.", worst.join(", "))
    }

    fn summary(&self) -> Table {
        let mut table = Table::new([
            ("family", Align::Left),
            ("rows", Align::Right),
            ("mean, median", Align::Right),
            ("left out", Align::Right),
            ("bias", Align::Right),
            ("in 80 %", Align::Right),
            ("half-width", Align::Right),
            ("worst", Align::Right),
        ]);
        for family in &self.families {
            table.row([
                family.name.clone(),
                (family.cases.len() + family.unpredicted.len()).to_string(),
                in_view(&family.score),
                left_out(&family.score),
                percent(family.score.bias),
                format!("{:.0} %", 100.0 * family.score.coverage_80),
                size(family.score.half_width_80),
                percent(family.worst),
            ]);
        }
        table
    }

    /// The error of every case, a lane for each family.
    fn errors(&self) -> Chart {
        let mut frame = Frame::new(&["family", "error", "case"]);
        for family in &self.families {
            for case in &family.cases {
                let (name, id) = (family.name.as_str(), case.id.as_str());
                frame.push(vec![name.into(), case.error.into(), id.into()]);
            }
        }
        Chart::new(ChartKind::Dots, "How far each prediction is off", frame)
            .caption("Left of the line too little is predicted, right of it too much.")
            .axes("error", "family")
            .named_by("case")
            .labels("predicted over measured, less one", "")
            .units(Unit::Share, Unit::Number)
            .rule(0.0, "as measured")
    }
}

/// Predicted against measured, a chart for each unit of a family.
fn scatters(family: &Family) -> Vec<Chart> {
    let mut units: Vec<&'static str> = Vec::new();
    for case in &family.cases {
        if !units.contains(&case.unit) {
            units.push(case.unit);
        }
    }
    let of = |unit: &&'static str| {
        let cases: Vec<&Case> = family.cases.iter().filter(|case| case.unit == *unit).collect();
        (2 < cases.len()).then(|| scatter(family, &cases, unit))
    };
    units.iter().filter_map(of).collect()
}

fn scatter(family: &Family, cases: &[&Case], unit: &str) -> Chart {
    let mut frame = Frame::new(&["measured", "predicted", "low", "high", "case"]);
    for case in cases {
        let interval = case.class.as_ref().map(|_| (case.low, case.high));
        let (low, high) = interval.unzip();
        frame.push(vec![
            case.measured.into(),
            case.predicted.into(),
            low.into(),
            high.into(),
            case.id.as_str().into(),
        ]);
    }
    let title = format!("{}: predicted against measured, in {unit}", family.name);
    let mut chart = Chart::new(ChartKind::Scatter, title, frame)
        .caption("On the dashed line the prediction is right. A bar is the 80 % interval.")
        .axes("measured", "predicted")
        .named_by("case")
        .error_bars("low", "high")
        .labels("measured", "predicted");
    (chart.x_scale, chart.y_scale, chart.diagonal) = (Scale::Log, Scale::Log, true);
    chart
}

/// Mean and median of the errors' sizes.
fn in_view(score: &Score) -> String {
    both(score.mean_abs_error, score.median_abs_error)
}

/// The same where every constant was set again without the row's cluster.
fn left_out(score: &Score) -> String {
    let Score { left_out_mean_abs_error: mean, left_out_median_abs_error: median, .. } = *score;
    both(mean, median)
}

fn both(mean: f64, median: f64) -> String {
    format!("{:.1}, {:.1} %", 100.0 * mean, 100.0 * median)
}

/// The score of each cluster or class.
fn parts(what: &'static str, parts: &[Part]) -> Table {
    let mut table = Table::new([
        (what, Align::Left),
        ("rows", Align::Right),
        ("mean, median", Align::Right),
        ("left out", Align::Right),
        ("bias", Align::Right),
        ("of the time", Align::Right),
        ("in 80 %", Align::Right),
        ("half-width", Align::Right),
    ]);
    for Part { name, rows, score } in parts {
        table.row([
            name.clone(),
            rows.to_string(),
            in_view(score),
            left_out(score),
            percent(score.bias),
            size(score.mean_abs_time_error),
            format!("{:.0} %", 100.0 * score.coverage_80),
            size(score.half_width_80),
        ]);
    }
    table
}

impl Answer for LeftOut {
    fn sheet(&self) -> Sheet {
        let mut table = Table::new([
            ("constant", Align::Left),
            ("value", Align::Right),
            ("by all rows", Align::Right),
            ("rows", Align::Right),
            ("clusters", Align::Right),
            ("without one of them", Align::Left),
        ]);
        for (key, setting) in &self.constant {
            let without = setting.without.iter().map(|(name, value)| format!("{name} {value}"));
            table.row([
                key.clone(),
                setting.value.to_string(),
                setting.by_all.to_string(),
                setting.rows.to_string(),
                setting.clusters.to_string(),
                without.collect::<Vec<_>>().join(", "),
            ]);
        }
        Sheet::new().heading("Constants that published measurements set").table(table)
    }
}

fn table(family: &Family) -> Table {
    let mut table = Table::new([
        ("case", Align::Left),
        ("measured", Align::Right),
        ("predicted", Align::Right),
        ("unit", Align::Left),
        ("error", Align::Right),
        ("80 %", Align::Right),
        ("note", Align::Left),
    ]);
    for case in &family.cases {
        table.row([
            case.id.clone(),
            significant(case.measured),
            significant(case.predicted),
            case.unit.to_owned(),
            percent(case.error),
            match case.class {
                Some(_) => format!("{}–{}", significant(case.low), significant(case.high)),
                None => String::new(),
            },
            case.note.clone(),
        ]);
    }
    table
}
