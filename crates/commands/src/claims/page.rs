//! What people see of the claims: a table on a sheet, and the page of the book.

use std::fmt::Write as _;

use report::number::{bits_per_second, bytes, dollars, grouped, significant, watts};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table};

use super::{Report, Row, Verdict};

pub(super) fn sheet(report: &Report) -> Sheet {
    let mut verdicts = Table::new([
        ("claim", Align::Left),
        ("what the document says", Align::Left),
        ("here", Align::Right),
        ("verdict", Align::Left),
    ]);
    let mut tests = Table::new([
        ("claim", Align::Left),
        ("place", Align::Left),
        ("tested on", Align::Left),
        ("how, or why not", Align::Left),
    ]);
    for row in &report.claims {
        let claim = &row.claim;
        verdicts.row([&claim.id, &claim.says, &figures(row), row.verdict.words()]);
        tests.row([&claim.id, &claim.place, &claim.scenarios.join(", "), &remark(row)]);
    }
    let mut shares = Frame::new(&["verdict", "claims"]);
    for (verdict, count) in counts(report) {
        shares.push(vec![verdict.words().into(), (count as f64).into()]);
    }
    let chart = Chart::new(ChartKind::Bars, "Verdicts", shares).axes("claims", "verdict");
    Sheet::new()
        .heading(format!("What the source documents say, {} engine", report.engine.name()))
        .facts(counts(report).map(|(verdict, count)| (verdict.words(), count.to_string(), "")))
        .text(report.rule)
        .table(verdicts)
        .heading("How each was tested")
        .table(tests)
        .chart(chart.labels("claims", ""))
}

fn counts(report: &Report) -> [(Verdict, usize); 4] {
    [
        (Verdict::Agrees, report.agree),
        (Verdict::Disagrees, report.disagree),
        (Verdict::ContradictedToo, report.contradicted),
        (Verdict::CannotBeTested, report.untested),
    ]
}

/// How the figure was found, or why there is none, and what better sources say.
fn remark(row: &Row) -> String {
    let mut parts: Vec<&str> = vec![&row.how, &row.why];
    parts.extend(row.claim.correction.as_deref());
    let named = row.claim.contradicted.as_ref().map(|source| format!("contradicted by {source}"));
    parts.extend(named.as_deref());
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

pub(super) fn figures(row: &Row) -> String {
    let word = |(at, figure): (usize, &f64)| {
        let figure = written(*figure, &row.claim.unit);
        row.claim.cases.get(at).map_or(figure.clone(), |case| format!("{}: {figure}", case.name))
    };
    let words: Vec<String> = row.simulated.iter().enumerate().map(word).collect();
    words.join(", ")
}

/// A figure as people write it in its unit.
fn written(figure: f64, unit: &str) -> String {
    match unit {
        "share" | "gain" | "share of the step" | "share of MFU" | "share of line rate" => {
            format!("{} %", significant(100.0 * figure))
        }
        "s" if figure < 1e-3 => format!("{} us", significant(1e6 * figure)),
        "s" if figure < 1.0 => format!("{} ms", significant(1e3 * figure)),
        "bit/s" => bits_per_second(figure),
        "bit" | "bytes" if 1e18 <= figure => {
            let letter = if unit == "bit" { "bit" } else { "B" };
            format!("{} E{letter}", significant(figure / 1e18))
        }
        "bit" => format!("{} Pbit", significant(figure / 1e15)),
        "bytes" | "bytes of queue" => bytes(figure),
        "W" => watts(figure),
        "USD" => dollars(figure),
        "GPUs" | "ports" | "drops" => grouped(figure.max(0.0).round() as u64),
        "parameters" => format!("{} B", significant(figure / 1e9)),
        "fine ratio" => format!("{figure:.5}"),
        "FLOP" => format!("{figure:.2e} FLOP"),
        "FLOP/s" => format!("{} TFLOP/s", significant(figure / 1e12)),
        "h" if 1e4 <= figure => format!("{} kh", significant(figure / 1e3)),
        "s" | "h" | "d" => format!("{} {unit}", significant(figure)),
        _ => significant(figure),
    }
}

impl Report {
    /// The page of the book.
    pub fn markdown(&self) -> String {
        let mut page = format!(
            "# The claims of the source documents\n\n\
             Every number that the articles behind this project state, the scenario that tests it, \
             what comes out, and whether that agrees. Made by `fatflow claims --markdown`; {} \
             agree, {} disagree, {} are contradicted by better sources too, {} cannot be \
             tested.\n\n{}\n\n\
             Scenarios are presets or lie in `crates/scenario/data/claims`; both are in the \
             binary: `fatflow init claims/incast` writes one out, `fatflow run claims/incast \
             --engine packet` runs it, `fatflow claims incast` tests the claims with that word in \
             their name.\n\n\
             | claim | place | what the document says | tested on | here | verdict | why |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n",
            self.agree, self.disagree, self.contradicted, self.untested, self.rule
        );
        for row in &self.claims {
            let scenarios: Vec<String> =
                row.claim.scenarios.iter().map(|name| format!("`{name}`")).collect();
            let cells = [
                format!("`{}`", row.claim.id),
                row.claim.place.clone(),
                row.claim.says.clone(),
                scenarios.join(", "),
                figures(row),
                row.verdict.words().to_owned(),
                remark(row),
            ];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            writeln!(page, "| {} |", cells.join(" | ")).expect("writing to a String cannot fail");
        }
        page
    }
}
