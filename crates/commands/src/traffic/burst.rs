//! When in a step the network is used: the step's timeline, with bytes on it.
//!
//! Weights and gradients move while their operations run; messages after the pass that makes
//! them; what passes exchange inside themselves (tensor, context, expert) while they run. The
//! timeline is the closed form's, one rank for each stage; all stages together are the fabric.

use job::Axis;
use serde::Serialize;
use step::timeline::{Timeline, Work};
use units::Span;

/// Steps of the clock.
const BINS: usize = 2_000;

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
    /// Seconds from the step's beginning, and bits per second.
    #[serde(skip)]
    pub series: Vec<(f64, f64)>,
}

/// Bytes of a step by stage and axis.
pub(super) type ByStage = Vec<[f64; 5]>;

/// When data moves that the timeline shows as no operation of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// How long a message between stages is on its way.
    pub(super) message: Span,
    /// The share of data-parallel bytes that moves with every microbatch, inside the passes:
    /// weights that are freed after use and gathered again.
    pub(super) every_microbatch: f64,
}

/// Lays the bytes of each stage on its operations.
pub(super) fn burst(line: &Timeline, bytes: &ByStage, habits: Habits) -> Burst {
    let length = line.length().as_secs_f64();
    let all: f64 = bytes.iter().flatten().sum();
    if length <= 0.0 || all <= 0.0 {
        return Burst::default();
    }
    let mut bins = vec![0.0; BINS];
    for (stage, bytes) in bytes.iter().enumerate() {
        lay_stage(line, stage as u32, bytes, habits, length, &mut bins);
    }
    let seconds = length / BINS as f64;
    let mean = all / BINS as f64;
    let peak = bins.iter().copied().fold(0.0, f64::max);
    let busy = bins.iter().filter(|bin| IDLE * peak < **bin).count();
    let above = |at: usize| mean < bins[at];
    let bursts = (0..BINS).filter(|at| above(*at) && (*at == 0 || !above(at - 1))).count();
    let rate = |bin: f64| bin * 8.0 / seconds;
    Burst {
        peak_to_mean: peak / mean,
        duty_cycle: busy as f64 / BINS as f64,
        period_s: length / bursts.max(1) as f64,
        bursts: bursts as u64,
        peak_bps: rate(peak),
        series: bins.iter().enumerate().map(|(at, b)| (at as f64 * seconds, rate(*b))).collect(),
    }
}

fn lay_stage(
    line: &Timeline,
    stage: u32,
    bytes: &[f64; 5],
    habits: Habits,
    length: f64,
    bins: &mut [f64],
) {
    let graph = line.graph();
    let (mut passes, mut copies) = (Vec::new(), Vec::new());
    for op in graph.ops().ids() {
        let step = graph.ops()[op];
        if graph.lanes()[step.lane].stage != stage {
            continue;
        }
        let window = (line.start(op).as_secs_f64(), line.end(op).as_secs_f64());
        match step.work {
            Work::GatherWeights | Work::ReduceGradients => copies.push(window),
            Work::Forward
            | Work::Backward
            | Work::BackwardInputs
            | Work::BackwardWeights
            | Work::ForwardBackward => passes.push(window),
            Work::Message | Work::Optimizer | Work::Overhead => {}
        }
    }
    let of = |axis: Axis| bytes[axis as usize];
    let freed = habits.every_microbatch * of(Axis::Dp);
    let inside = of(Axis::Tp) + of(Axis::Cp) + of(Axis::Ep) + freed;
    let lasting = |windows: &[(f64, f64)]| windows.iter().any(|(from, to)| from < to);
    let copied = if lasting(&copies) { &copies } else { &passes };
    let behind: Vec<(f64, f64)> =
        passes.iter().map(|(_, end)| (*end, end + habits.message.as_secs_f64())).collect();
    lay(copied, of(Axis::Dp) - freed, length, bins);
    lay(&passes, inside, length, bins);
    lay(&behind, of(Axis::Pp), length, bins);
}

/// Spreads bytes over windows, evenly over their time.
fn lay(windows: &[(f64, f64)], bytes: f64, length: f64, bins: &mut [f64]) {
    let lasts: f64 = windows.iter().map(|(from, to)| to - from).sum();
    if bytes <= 0.0 || lasts <= 0.0 {
        return;
    }
    let width = length / bins.len() as f64;
    let rate = bytes / lasts;
    for (from, to) in windows {
        let (first, last) = ((from / width) as usize, (to / width) as usize);
        for at in first..=last {
            let begin = from.max(at as f64 * width);
            let end = to.min((at + 1) as f64 * width);
            let bin = at.min(bins.len() - 1);
            bins[bin] += rate * (end - begin).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spread_over_their_windows_and_none_is_lost() {
        let mut bins = vec![0.0; 10];
        lay(&[(0.0, 1.0), (5.0, 6.0), (9.5, 10.5)], 300.0, 10.0, &mut bins);
        assert!((bins.iter().sum::<f64>() - 300.0).abs() < 1e-9);
        assert!((bins[0] - 100.0).abs() < 1e-9 && (bins[5] - 100.0).abs() < 1e-9);
        assert!((bins[9] - 100.0).abs() < 1e-9, "what ends late counts in the last bin");
        assert_eq!(bins[3], 0.0);
    }
}
