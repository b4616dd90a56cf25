//! What people see of a validation: how far off, how it is spread, and every case.

use report::number::significant;
use report::{Align, Answer, Chart, ChartKind, Frame, Scale, Sheet, Table, Unit};

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
            .table(self.summary());
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
            sheet = sheet.table(table(family));
            for row in &family.unpredicted {
                sheet = sheet.note(format!("{} cannot be predicted: {}", row.id, row.reason));
            }
        }
        sheet
    }
}

impl Report {
    fn summary(&self) -> Table {
        let mut table = Table::new([
            ("family", Align::Left),
            ("cases", Align::Right),
            ("mean", Align::Right),
            ("median", Align::Right),
            ("worst", Align::Right),
            ("whose", Align::Left),
            ("within 12 %", Align::Right),
            ("bias", Align::Right),
            ("ranks", Align::Right),
        ]);
        for family in &self.families {
            table.row([
                family.name.clone(),
                family.cases.len().to_string(),
                size(family.mean_abs_error),
                size(family.median_abs_error),
                percent(family.worst),
                family.worst_id.clone(),
                format!("{:.0} %", 100.0 * family.within_12_percent),
                percent(family.bias),
                format!("{:.3}", family.rank_correlation),
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
        let (low, high) = case.spread.filter(|(low, high)| low < high).unzip();
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
        .caption(
            "On the dashed line the prediction is right. A bar spans what inputs allow that the \
             source does not tell.",
        )
        .axes("measured", "predicted")
        .named_by("case")
        .error_bars("low", "high")
        .labels("measured", "predicted");
    (chart.x_scale, chart.y_scale, chart.diagonal) = (Scale::Log, Scale::Log, true);
    chart
}

fn table(family: &Family) -> Table {
    let mut table = Table::new([
        ("case", Align::Left),
        ("measured", Align::Right),
        ("predicted", Align::Right),
        ("unit", Align::Left),
        ("error", Align::Right),
        ("spread", Align::Right),
        ("note", Align::Left),
    ]);
    for case in &family.cases {
        let spread = case.spread.filter(|(low, high)| low < high);
        table.row([
            case.id.clone(),
            significant(case.measured),
            significant(case.predicted),
            case.unit.to_owned(),
            percent(case.error),
            spread.map_or_else(String::new, |(low, high)| {
                format!("{}–{}", significant(low), significant(high))
            }),
            case.note.clone(),
        ]);
    }
    table
}
