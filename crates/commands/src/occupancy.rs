//! When in a step the network is used, and for what: windows on the step's timeline.
//!
//! Weights and gradients move while their operations run; messages after the pass that makes them;
//! what passes exchange inside themselves (tensor, context, expert) while they run. The timeline
//! has one rank for each stage and shows none of these exchanges as an operation of its own where
//! it is hidden, so bytes are spread evenly over the windows in which they may move.

use job::program::{Every, Program};
use job::{Axis, During};
use step::predict::Prediction;
use step::timeline::{Timeline, Work};
use units::Span;

/// From when to when, in seconds of the step.
pub(crate) type Window = (f64, f64);

/// When data moves that the timeline shows as no operation of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// How long a message between stages is on its way.
    message: Span,
    /// The share of data-parallel bytes that moves with every microbatch, inside the passes:
    /// weights that are freed after use and gathered again.
    every_microbatch: f64,
}

impl Habits {
    /// Those of a predicted step.
    pub(crate) fn of(program: &Program, prediction: &Prediction) -> Self {
        let message = prediction.phases.iter().find(|phase| {
            phase.exchange.collective == traffic::Collective::SendRecv
                && phase.exchange.kind.axis() == Axis::Pp
        });
        let message = message.map_or(Span::ZERO, |phase| phase.slowest);
        Self { message, every_microbatch: every_microbatch(program) }
    }
}

/// The share of weights' and gradients' bytes that is exchanged for every microbatch.
pub(crate) fn every_microbatch(program: &Program) -> f64 {
    let (mut often, mut all) = (0.0, 0.0);
    let timed = program.parts.iter().flat_map(|part| part.gathers.iter().chain(&part.reductions));
    for timed in timed {
        let times = match timed.every {
            Every::Step => 1.0,
            Every::Microbatch => program.pipeline().microbatches as f64,
        };
        let bytes = timed.call.bytes.as_f64() * times;
        all += bytes;
        if timed.every == Every::Microbatch {
            often += bytes;
        }
    }
    if all > 0.0 { often / all } else { 0.0 }
}

/// The windows of one stage.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    passes: Vec<Window>,
    forward: Vec<Window>,
    backward: Vec<Window>,
    gathers: Vec<Window>,
    reductions: Vec<Window>,
    copies: Vec<Window>,
    behind: Vec<Window>,
    every_microbatch: f64,
}

impl Windows {
    /// Where the bytes of an axis move, and which share of them.
    pub(crate) fn of(&self, axis: Axis) -> Vec<(&[Window], f64)> {
        match axis {
            Axis::Tp | Axis::Cp | Axis::Ep => vec![(&self.passes, 1.0)],
            Axis::Pp => vec![(&self.behind, 1.0)],
            Axis::Dp => {
                let lasting = self.copies.iter().any(|(from, to)| from < to);
                let copied = if lasting { &self.copies } else { &self.passes };
                vec![(copied, 1.0 - self.every_microbatch), (&self.passes, self.every_microbatch)]
            }
        }
    }
}

impl Windows {
    /// Where bytes of an axis move that belong to one part of the step. What is exchanged for
    /// every microbatch moves inside the passes of its direction.
    pub(crate) fn during(&self, axis: Axis, during: During) -> Vec<(&[Window], f64)> {
        let (passes, copies) = match during {
            During::Forward => (&self.forward, &self.gathers),
            During::Optimizer => (&self.forward, &self.gathers),
            During::Backward => (&self.backward, &self.reductions),
            During::Expert => (&self.passes, &self.passes),
        };
        let lasting = |windows: &Vec<Window>| windows.iter().any(|(from, to)| from < to);
        match axis {
            Axis::Dp if during == During::Optimizer && lasting(copies) => vec![(copies, 1.0)],
            Axis::Dp if during == During::Backward && lasting(copies) => {
                vec![(copies, 1.0 - self.every_microbatch), (passes, self.every_microbatch)]
            }
            _ => vec![(passes, 1.0)],
        }
    }
}

/// The windows of a stage of the pipeline.
pub(crate) fn windows(line: &Timeline, stage: u32, habits: Habits) -> Windows {
    let graph = line.graph();
    let (mut passes, mut copies) = (Vec::new(), Vec::new());
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    let (mut gathers, mut reductions) = (Vec::new(), Vec::new());
    for op in graph.ops().ids() {
        let step = graph.ops()[op];
        if graph.lanes()[step.lane].stage != stage {
            continue;
        }
        let window = (line.start(op).as_secs_f64(), line.end(op).as_secs_f64());
        match step.work {
            Work::GatherWeights => gathers.push(window),
            Work::ReduceGradients => reductions.push(window),
            Work::Forward => forward.push(window),
            Work::Backward | Work::BackwardInputs | Work::BackwardWeights => backward.push(window),
            Work::ForwardBackward => {
                forward.push(window);
                backward.push(window);
            }
            Work::Message | Work::SetCircuits | Work::Optimizer | Work::Overhead => {}
        }
        match step.work {
            Work::GatherWeights | Work::ReduceGradients => copies.push(window),
            Work::Forward
            | Work::Backward
            | Work::BackwardInputs
            | Work::BackwardWeights
            | Work::ForwardBackward => passes.push(window),
            Work::Message | Work::SetCircuits | Work::Optimizer | Work::Overhead => {}
        }
    }
    let message = habits.message.as_secs_f64();
    let behind = passes.iter().map(|(_, end)| (*end, end + message)).collect();
    let every_microbatch = habits.every_microbatch;
    Windows { passes, forward, backward, gathers, reductions, copies, behind, every_microbatch }
}

/// Spreads bytes over windows, evenly over their time.
pub(crate) fn lay(windows: &[Window], bytes: f64, length: f64, bins: &mut [f64]) {
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
