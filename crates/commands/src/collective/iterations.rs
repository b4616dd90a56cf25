//! One collective many times in a row: how even its completion times are.
//!
//! The iterations are one run. Each begins when the last rank has the one before, as in a loop that
//! synchronises, so queue pairs, their rates and whatever stands in queues stay as they were. The
//! first iteration finds everything idle.

use report::chart::distribution;
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use serde::Serialize;
use traffic::{OpId, Outcome};
use units::{Bytes, Time};

use super::Row;
use crate::seeds::Spread;

/// Points of the distribution that is drawn.
const POINTS: usize = 1_000;

/// How completion times differ between iterations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Iterations {
    /// How many there were.
    pub count: usize,
    /// The first, which finds an idle network.
    pub first_us: f64,
    /// Half of them are at or below.
    pub p50_us: f64,
    /// Ninety-nine of a hundred are.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The standard deviation over the mean.
    pub variation: f64,
    /// All of them, in their order.
    pub times_us: Vec<f64>,
}

impl Iterations {
    /// How these times, which are not none, differ.
    pub(super) fn of(times_us: Vec<f64>) -> Self {
        let Spread { mean, p50, p99, .. } = Spread::of(&times_us);
        let count = times_us.len();
        let squares: f64 = times_us.iter().map(|time| (time - mean).powi(2)).sum();
        Self {
            count,
            first_us: times_us[0],
            p50_us: p50,
            p99_us: p99,
            max_us: times_us.iter().copied().fold(0.0, f64::max),
            variation: (squares / (count as f64 - 1.0).max(1.0)).sqrt() / mean,
            times_us,
        }
    }
}

/// From the end of each iteration to the end of the next, in microseconds.
pub(super) fn times_us(outcome: &Outcome, ends: &[OpId]) -> Vec<f64> {
    let mut before = Time::ZERO;
    let ended = ends.iter().filter_map(|end| Some(outcome.ops[*end]?.received));
    let lasted = ended.map(|end| {
        let span = end.since(before);
        before = end;
        span.as_secs_f64() * 1e6
    });
    lasted.collect()
}

/// The table of all sizes, and the distribution at the largest.
pub(super) fn show(rows: &[Row], sheet: Sheet) -> Sheet {
    let several = |row: &Row| Some((row.bytes, row.iterations.clone()?));
    let all: Vec<(u64, Iterations)> = rows.iter().filter_map(several).collect();
    let Some((bytes, largest)) = all.last() else { return sheet };
    let names = ["size (B)", "median (us)", "p99", "longest", "first", "variation"];
    let mut table = Table::new(names.map(|name| (name, Align::Right)));
    for (bytes, each) in &all {
        let times = [each.p50_us, each.p99_us, each.max_us, each.first_us];
        let times = times.map(|time| format!("{time:.1}"));
        let variation = format!("{:.2} %", 100.0 * each.variation);
        table.row(std::iter::once(bytes.to_string()).chain(times).chain([variation]));
    }
    let mut frame = Frame::new(&["time_s", "share"]);
    let mut sorted = largest.times_us.clone();
    sorted.sort_by(f64::total_cmp);
    for (time, share) in distribution(&sorted, POINTS) {
        frame.push(vec![(time / 1e6).into(), share.into()]);
    }
    let title = format!("How even {} is", Bytes::new(*bytes));
    let chart = Chart::new(ChartKind::Distribution, title, frame)
        .caption("The share of iterations that took so long or less. A steep line is even.")
        .axes("time_s", "share")
        .labels("one iteration", "share of iterations")
        .units(Unit::Seconds, Unit::Share)
        .rule(largest.p99_us / 1e6, "p99");
    let heading = format!("Completion times over {} iterations in a row", largest.count);
    sheet.heading(heading).chart(chart).table(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_told_by_their_percentiles() {
        let times: Vec<f64> = (1..=200).map(f64::from).collect();
        let told = Iterations::of(times);
        let Iterations { count, first_us, p50_us, p99_us, max_us, variation, .. } = told;
        assert_eq!((count, first_us, p50_us, p99_us, max_us), (200, 1.0, 100.0, 198.0, 200.0));
        // The variance of 1 to n is n(n + 1)/12.
        assert!((variation - (200.0 * 201.0 / 12.0_f64).sqrt() / 100.5).abs() < 1e-12);
    }
}
