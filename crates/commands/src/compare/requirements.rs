//! The five requirements of the whitepaper, each with the figure it rests on and the better column.

use report::number::{grouped, significant};
use report::{Align, Sheet, Table};
use serde::Serialize;

use super::Column;
use crate::targets::Latencies;

/// One requirement of all columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Requirement {
    /// Which.
    pub name: &'static str,
    /// The figure that it rests on.
    pub figure: &'static str,
    /// What that is in each column; nothing where it has none.
    pub values: Vec<Option<f64>>,
    /// The better column; nothing where all are alike or fewer than two have the figure.
    pub best: Option<String>,
}

/// A figure of a column, and whether more of it is better.
type Figure = (&'static str, &'static str, bool, fn(&Column) -> Option<f64>);

const FIGURES: [Figure; 5] = [
    ("latency", "64 bytes between the farthest servers, us", false, |column| {
        Latencies::of(&column.loaded).across
    }),
    ("bandwidth", "bisection for each GPU, Gb/s", true, |column| {
        Some(column.fabric.bisection_bps / column.fabric.gpus.max(1) as f64 / 1e9)
    }),
    ("stability", "share of a long run that trains", true, |column| {
        column.step().map(|step| step.goodput)
    }),
    ("scale", "GPUs of the job times MFU", true, |column| {
        column.step().map(|step| step.gpus as f64 * step.mfu)
    }),
    ("manageability", "lines to configure for 1,000 GPUs", false, |column| {
        Some(1e3 * column.operations.lines as f64 / column.fabric.gpus.max(1) as f64)
    }),
];

/// The five of all columns; nothing for one column alone.
pub(super) fn of_columns(names: &[String], columns: &[Column]) -> Vec<Requirement> {
    if names.len() < 2 {
        return Vec::new();
    }
    let one = |(name, figure, more, of): Figure| {
        let values: Vec<Option<f64>> = columns.iter().map(of).collect();
        Requirement { name, figure, best: best(names, &values, more), values }
    };
    FIGURES.into_iter().map(one).collect()
}

fn best(names: &[String], values: &[Option<f64>], more: bool) -> Option<String> {
    let sign = if more { 1.0 } else { -1.0 };
    let mut known: Vec<(f64, &String)> = values
        .iter()
        .zip(names)
        .filter_map(|(value, name)| value.map(|value| (sign * value, name)))
        .collect();
    known.sort_by(|a, b| b.0.total_cmp(&a.0));
    // What is written alike is alike.
    match known[..] {
        [first, second, ..] if significant(second.0) != significant(first.0) => {
            Some(first.1.clone())
        }
        _ => None,
    }
}

/// The requirements as a table, the better column marked; what each rests on stands below.
pub(super) fn show(sheet: Sheet, names: &[String], rows: &[Requirement]) -> Sheet {
    if rows.is_empty() {
        return sheet;
    }
    let short = super::page::short(names);
    let mut heads = vec![("", Align::Left)];
    heads.extend(short.iter().map(|name| (name.as_str(), Align::Right)));
    let mut table = Table::new(heads).turning();
    for row in rows.iter().filter(|row| row.values.iter().any(Option::is_some)) {
        let figures = row.values.iter().zip(names).map(|(value, name)| {
            let mark = if row.best.as_ref() == Some(name) { "*" } else { " " };
            value.map_or_else(String::new, |value| format!("{}{mark}", row.written(value)))
        });
        table.row(std::iter::once(row.name.to_owned()).chain(figures));
    }
    let rests: Vec<String> = rows.iter().map(Requirement::rests_on).collect();
    let legend = format!("* better; {}.", rests.join("; "));
    sheet.heading("What the documents ask of a network").table(table).text(legend)
}

impl Requirement {
    /// What the figure is, without its unit.
    fn rests_on(&self) -> String {
        let figure = self.figure.split_once(", ").map_or(self.figure, |(figure, unit)| {
            if unit == self.unit() { figure } else { self.figure }
        });
        format!("{}: {figure}", self.name)
    }

    fn unit(&self) -> &'static str {
        match self.name {
            "latency" => "us",
            "bandwidth" => "Gb/s",
            _ => "",
        }
    }

    fn written(&self, value: f64) -> String {
        match self.name {
            "stability" => format!("{} %", significant(100.0 * value)),
            "scale" | "manageability" if 1e3 <= value => grouped(value.round() as u64),
            "scale" | "manageability" => significant(value),
            _ => format!("{} {}", significant(value), self.unit()),
        }
    }
}
