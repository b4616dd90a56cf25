//! When in a step the network is used: the step's timeline, with bytes on it.
//!
//! When what moves is the business of [`occupancy`](crate::occupancy). The timeline is the closed
//! form's, one rank for each stage; all stages together are the fabric.

use job::{Axis, During};
use serde::Serialize;
use step::timeline::Timeline;

use crate::occupancy::{Habits, lay, lay_within, windows};

/// Steps of the clock.
const BINS: usize = 20_000;

/// Steps of the clock of a stretch that is looked at more closely.
const FINE_BINS: usize = 1_000;

/// Below this share of the peak the network counts as idle.
const IDLE: f64 = 0.01;

/// How uneven traffic is over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Burst {
    /// The highest rate over the mean.
    pub peak_to_mean: f64,
    /// The share of the step in which anything moves.
    pub duty_cycle: f64,
    /// From the beginning of one burst to the next, in seconds.
    pub period_s: f64,
    /// Bursts in a step: stretches above the mean rate.
    pub bursts: u64,
    /// The highest rate of the whole fabric, in bits per second.
    pub peak_bps: f64,
    /// What the job's NICs could send at most, in bits per second.
    pub limit_bps: f64,
    /// Seconds from the step's beginning, and bits per second.
    #[serde(skip)]
    pub series: Vec<(f64, f64)>,
}

/// Bytes of a step by stage and axis.
pub(super) type ByStage = Vec<[f64; 5]>;

/// Lays the bytes of each stage on its operations. The closed form's timeline knows no contention,
/// so what would be more than a stage's NICs send (`rate`, in bytes per second) moves later.
pub(super) fn burst(line: &Timeline, bytes: &ByStage, rate: f64, habits: Habits<'_>) -> Burst {
    let length = line.length().as_secs_f64();
    let all: f64 = bytes.iter().flatten().sum();
    if length <= 0.0 || all <= 0.0 {
        return Burst::default();
    }
    let seconds = length / BINS as f64;
    let mut bins = vec![0.0; BINS];
    for (stage, bytes) in bytes.iter().enumerate() {
        let windows = windows(line, stage as u32, habits);
        let mut own = vec![0.0; BINS];
        for axis in Axis::ALL {
            for (spans, share) in windows.of(axis) {
                lay(spans, share * bytes[axis as usize], length, &mut own);
            }
        }
        hold_back(&mut own, rate * seconds);
        bins.iter_mut().zip(own).for_each(|(bin, own)| *bin += own);
    }
    let mean = all / BINS as f64;
    let peak = bins.iter().copied().fold(0.0, f64::max);
    let busy = bins.iter().filter(|bin| IDLE * peak < **bin).count();
    let above = |at: usize| mean < bins[at];
    let bursts = (0..BINS).filter(|at| above(*at) && (*at == 0 || !above(at - 1))).count();
    let bits = |bin: f64| bin * 8.0 / seconds;
    Burst {
        peak_to_mean: peak / mean,
        duty_cycle: busy as f64 / BINS as f64,
        period_s: length / bursts.max(1) as f64,
        bursts: bursts as u64,
        peak_bps: bits(peak),
        limit_bps: rate * 8.0 * bytes.len() as f64,
        series: bins.iter().enumerate().map(|(at, b)| (at as f64 * seconds, bits(*b))).collect(),
    }
}

/// The traffic of each part of a step along it: bytes by stage, part and axis, each in the windows
/// of its own passes. What is more than a stage's NICs send moves later, all parts alike.
pub(super) fn passes(
    line: &Timeline,
    bytes: &[[[f64; 5]; 4]],
    rate: f64,
    habits: Habits<'_>,
) -> Vec<PassBurst> {
    let length = line.length().as_secs_f64();
    let seconds = (length / BINS as f64).max(1e-15);
    let mut bins = vec![vec![0.0; BINS]; During::ALL.len()];
    for (stage, bytes) in bytes.iter().enumerate().filter(|_| 0.0 < length) {
        let windows = windows(line, stage as u32, habits);
        for during in During::ALL {
            let mut own = vec![0.0; BINS];
            for axis in Axis::ALL {
                for (spans, share) in windows.during(axis, during) {
                    let moved = share * bytes[during as usize][axis as usize];
                    lay(spans, moved, length, &mut own);
                }
            }
            hold_back(&mut own, rate * seconds);
            bins[during as usize].iter_mut().zip(own).for_each(|(bin, own)| *bin += own);
        }
    }
    During::ALL
        .into_iter()
        .zip(bins)
        .map(|(during, bins)| PassBurst::of(during, &bins, seconds))
        .collect()
}

/// Passes from within: the last stage from the beginning of its first forward pass to the
/// end of its first backward pass, as rates of one of its `nics` NICs.
pub(super) fn within(
    line: &Timeline,
    bytes: &[[[f64; 5]; 4]],
    (rate, nics): (f64, f64),
    habits: Habits<'_>,
) -> Vec<PassBurst> {
    let Some((stage, bytes)) = bytes.iter().enumerate().next_back() else { return Vec::new() };
    let windows = windows(line, stage as u32, habits);
    let Some(stretch) = windows.first_passes() else { return Vec::new() };
    let seconds = (stretch.1 - stretch.0) / FINE_BINS as f64;
    let of = |during: During| {
        let mut bins = vec![0.0; FINE_BINS];
        for axis in Axis::ALL {
            for (spans, share) in windows.during(axis, during) {
                let moved = share * bytes[during as usize][axis as usize];
                lay_within(spans, moved, stretch, &mut bins);
            }
        }
        let mut waiting = 0.0;
        for bin in &mut bins {
            let wanted = *bin + waiting;
            *bin = wanted.min(rate * seconds);
            waiting = wanted - *bin;
        }
        bins.iter_mut().for_each(|bin| *bin /= nics);
        PassBurst::of(during, &bins, seconds)
    };
    During::ALL.into_iter().map(of).collect()
}

/// The traffic of one part of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassBurst {
    /// Which part.
    pub pass: &'static str,
    /// What it moves.
    pub bytes: f64,
    /// Its highest rate, all NICs together, in bits per second.
    pub peak_bps: f64,
    /// That over its mean rate over the step.
    pub peak_to_mean: f64,
    /// The share of the step in which it moves anything.
    pub duty_cycle: f64,
    /// Seconds from the step's beginning, and bits per second.
    #[serde(skip)]
    pub series: Vec<(f64, f64)>,
}

impl PassBurst {
    fn of(during: During, bins: &[f64], seconds: f64) -> Self {
        let bytes: f64 = bins.iter().fold(0.0, |sum, bin| sum + bin);
        let peak = bins.iter().copied().fold(0.0, f64::max);
        let busy = bins.iter().filter(|bin| IDLE * peak < **bin).count();
        let mean = bytes / bins.len() as f64;
        let bits = |bin: f64| bin * 8.0 / seconds;
        Self {
            pass: during.word(),
            bytes,
            peak_bps: bits(peak),
            peak_to_mean: if mean > 0.0 { peak / mean } else { 0.0 },
            duty_cycle: busy as f64 / bins.len() as f64,
            series: bins
                .iter()
                .enumerate()
                .map(|(at, bin)| (at as f64 * seconds, bits(*bin)))
                .collect(),
        }
    }
}

/// Moves what a bin cannot take into the next one, and from the last into the first: steps repeat.
/// If all together is too much, every bin has its share.
fn hold_back(bins: &mut [f64], most: f64) {
    let all: f64 = bins.iter().sum();
    if most * bins.len() as f64 <= all {
        bins.fill(all / bins.len() as f64);
        return;
    }
    let mut waiting = 0.0;
    for _ in 0..2 {
        for bin in bins.iter_mut() {
            let wanted = *bin + waiting;
            *bin = wanted.min(most);
            waiting = wanted - *bin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nics_cannot_send_waits() {
        let mut bins = [0.0, 9.0, 1.0, 0.0, 0.0, 7.0];
        hold_back(&mut bins, 4.0);
        assert_eq!(bins, [3.0, 4.0, 4.0, 2.0, 0.0, 4.0]);
        let mut flat = [10.0, 0.0, 2.0];
        hold_back(&mut flat, 3.0);
        assert_eq!(flat, [4.0; 3]);
    }
}
