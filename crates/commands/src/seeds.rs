//! The same question under several seeds: mean, percentiles, and how sure the mean is.
//!
//! Seeds follow each other from the scenario's own. They decide hashes, ports, permutations and
//! placements; everything else is the same, so what differs between two seeds is luck.

use std::sync::atomic::AtomicBool;

use report::number::{bits_per_second, grouped, significant};
use report::{Align, Sheet, Table};
use scenario::Loaded;
use serde::Serialize;
use units::Span;

use crate::failure::Failure;
use crate::{meter, parallel};

/// A quantity over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The true mean lies within this of the mean, with 95 % confidence; 0 for one seed.
    pub ci95: f64,
    /// Five of a hundred seeds are at or below.
    pub p5: f64,
    /// Half of the seeds are at or below.
    pub p50: f64,
    /// Ninety-five of a hundred are.
    pub p95: f64,
    /// Ninety-nine of a hundred are.
    pub p99: f64,
}

impl Spread {
    /// How these values are spread.
    ///
    /// ```
    /// use commands::seeds::Spread;
    /// let spread = Spread::of(&[1.0, 2.0, 3.0]);
    /// assert_eq!((spread.mean, spread.p50, spread.p99), (2.0, 2.0, 3.0));
    /// assert!((spread.ci95 - 4.303 / 3.0_f64.sqrt()).abs() < 1e-3);
    /// ```
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let at = |share: f64| {
            let rank = (share * count).ceil() as usize;
            sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
        };
        let error = (squares / (count - 1.0).max(1.0) / count.max(1.0)).sqrt();
        let ci95 = if sorted.len() < 2 { 0.0 } else { student(sorted.len() - 1) * error };
        Self { mean, ci95, p5: at(0.05), p50: at(0.5), p95: at(0.95), p99: at(0.99) }
    }
}

/// The 97.5th percentile of Student's distribution: tabulated where it is steep, and else its
/// expansion around the normal distribution's 1.96 (Abramowitz and Stegun, 26.7.5).
fn student(freedom: usize) -> f64 {
    const STEEP: [f64; 8] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306];
    let z = 1.959_964_f64;
    let n = freedom as f64;
    let expansion = z
        + (z.powi(3) + z) / (4.0 * n)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * n.powi(3));
    STEEP.get(freedom.max(1) - 1).copied().unwrap_or(expansion)
}

/// A named quantity over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Which.
    pub metric: String,
    /// Its unit; empty for plain numbers and fractions.
    pub unit: &'static str,
    /// Over the seeds.
    #[serde(flatten)]
    pub spread: Spread,
}

/// All quantities over seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seeds {
    /// How many seeds answered.
    pub count: u32,
    /// The first; the others follow it.
    pub first: u64,
    /// What they answered.
    pub figures: Vec<Figure>,
}

/// One quantity under one seed: its name, its unit and its value.
pub type Value = (String, &'static str, f64);

impl Seeds {
    /// Puts together what each seed answered. The first seed says which quantities there are.
    pub fn of(first: u64, answers: &[Vec<Value>]) -> Self {
        let named = |metric: &str, answer: &[Value]| {
            answer.iter().find(|(name, ..)| name == metric).map(|(.., value)| *value)
        };
        let over = |metric: &str| -> Vec<f64> {
            answers.iter().filter_map(|answer| named(metric, answer)).collect()
        };
        let figure = |(metric, unit, _): &Value| Figure {
            metric: metric.clone(),
            unit,
            spread: Spread::of(&over(metric)),
        };
        let figures = answers.first().map_or_else(Vec::new, |all| all.iter().map(figure).collect());
        Self { count: answers.len() as u32, first, figures }
    }

    /// What people see of it, below a heading.
    pub fn show(&self, sheet: Sheet) -> Sheet {
        let names = ["mean", "± 95 %", "p5", "median", "p95", "p99"];
        let columns = names.map(|name| (name, Align::Right));
        let mut table = Table::new(std::iter::once(("", Align::Left)).chain(columns));
        for Figure { metric, unit, spread } in &self.figures {
            let Spread { mean, ci95, p5, p50, p95, p99 } = *spread;
            let write = |value: f64| match *unit {
                "s" if value == 0.0 => "0 s".to_owned(),
                "s" => format!("{:.2}", Span::from_secs_f64(value)),
                "b/s" => bits_per_second(value),
                "share" => format!("{:.1} %", 100.0 * value),
                _ if 1e4 <= value => grouped(value.round() as u64),
                _ => significant(value),
            };
            // Below this it is the rounding of a mean of equal numbers.
            let ci95 = if ci95 < 1e-9 * mean.abs() { 0.0 } else { ci95 };
            let values = [mean, ci95, p5, p50, p95, p99].map(write);
            let name = if *unit == "GB/s" { format!("{metric} (GB/s)") } else { metric.clone() };
            table.row(std::iter::once(name).chain(values));
        }
        let noun = if self.count == 1 { "seed" } else { "seeds" };
        let count = grouped(self.count.into());
        sheet.heading(format!("Over {count} {noun} from {}", self.first)).table(table)
    }
}

/// How many seeds to ask, on how many threads, and who may interrupt it.
#[derive(Clone, Copy, Debug)]
pub struct Repeat<'a> {
    /// Seeds in all, the scenario's own among them.
    pub seeds: u32,
    /// Threads to use.
    pub threads: Option<u16>,
    /// Whoever sets it gets what is known by then.
    pub interrupt: Option<&'a AtomicBool>,
}

impl Repeat<'_> {
    /// The scenario's own seed alone.
    pub const ONCE: Self = Self { seeds: 1, threads: None, interrupt: None };
}

/// Asks every seed after the scenario's own, in their order; without those that were interrupted.
pub fn others<R: Send>(
    loaded: &Loaded,
    repeat: Repeat<'_>,
    ask: impl Fn(&Loaded, &mut packetsim::Watch<'_>) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let own = loaded.scenario.seed;
    let seeds: Vec<u64> = (1..u64::from(repeat.seeds)).map(|at| own.wrapping_add(at)).collect();
    let answers = parallel::map(threads(repeat), &seeds, |seed| {
        let mut watch = packetsim::Watch { interrupt: repeat.interrupt, ..Default::default() };
        let answer = ask(&loaded.with_seed(*seed), &mut watch)?;
        if watch.is_interrupted() { Err(Failure::interrupted()) } else { Ok(answer) }
    });
    answers.into_iter().filter(|answer| !matches!(answer, Err(Failure::Interrupted(_)))).collect()
}

/// As many threads as were asked for, and as memory holds: each may take what the first seed took.
fn threads(repeat: Repeat<'_>) -> usize {
    let free = meter::available_bytes().unwrap_or(u64::MAX);
    let fit = (free / meter::peak_rss_bytes().max(1)).clamp(1, u64::from(u16::MAX));
    parallel::threads(repeat.threads).min(fit as usize)
}

/// What is said of seeds that an interrupt has left out, if there are any: fewer seeds say less,
/// and nobody asked for so few.
pub fn left_out(answered: usize, repeat: Repeat<'_>) -> Option<String> {
    let asked = repeat.seeds as usize;
    let seeds = format!("stopped: {answered} of {asked} seeds answered");
    (answered < asked).then_some(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: tabulated percentiles of Student's distribution.
    #[test]
    fn student_is_as_tabulated() {
        for (freedom, expected) in [(1, 12.706), (8, 2.306), (9, 2.262), (30, 2.042), (999, 1.962)]
        {
            assert!((student(freedom) - expected).abs() < 2e-3, "{freedom}: {}", student(freedom));
        }
    }

    /// Property: of many experiments with a known mean about 95 in 100 say that it lies within.
    #[test]
    fn confidence_is_kept() {
        let experiments = 2_000;
        let kept = (0..experiments).filter(|number| {
            let mut random = units::Random::new(*number, "experiment", 0);
            let values: Vec<f64> = (0..12).map(|_| random.below(1_000) as f64).collect();
            let spread = Spread::of(&values);
            (spread.mean - 499.5).abs() <= spread.ci95
        });
        let share = kept.count() as f64 / experiments as f64;
        assert!((0.93..0.97).contains(&share), "{share}");
    }

    #[test]
    fn seeds_are_matched_by_name() {
        let answer = |a: f64, b: Option<f64>| {
            let b = b.map(|b| ("b".to_owned(), "s", b));
            [("a".to_owned(), "", a)].into_iter().chain(b).collect::<Vec<_>>()
        };
        let seeds = Seeds::of(7, &[answer(1.0, Some(5.0)), answer(3.0, None)]);
        assert_eq!((seeds.count, seeds.first), (2, 7));
        assert_eq!(seeds.figures[0].spread.mean, 2.0);
        assert_eq!(seeds.figures[1].spread.mean, 5.0);
    }
}
