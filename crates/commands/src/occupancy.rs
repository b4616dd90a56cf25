//! When in a step the network is used, and for what: windows on the step's timeline.
//!
//! Weights and gradients move while their operations run; messages after the pass that makes them;
//! what passes exchange inside themselves (tensor, context, expert) in beats of its own
//! ([`Rhythm`]) where they are known, else evenly while the pass runs. The timeline has one rank
//! for each stage, and bytes are spread evenly over the windows in which they may move.

use job::program::{Every, Program};
use job::{Axis, During};
use step::predict::Prediction;
use step::rhythm::{Beat, Rhythm};
use step::timeline::{Timeline, Work};
use units::Span;

/// From when to when, in seconds of the step.
pub(crate) type Window = (f64, f64);

/// When data moves that the timeline shows as no operation of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits<'a> {
    /// How long a message between stages is on its way.
    message: Span,
    /// The share of data-parallel bytes that moves with every microbatch, inside the passes:
    /// weights that are freed after use and gathered again.
    every_microbatch: f64,
    /// By part of the model: when passes are on the fabric. Nothing is known where it is empty.
    rhythms: &'a [Rhythm],
}

impl<'a> Habits<'a> {
    /// The same with what is known of passes from within.
    pub(crate) fn with_rhythms(self, rhythms: &'a [Rhythm]) -> Self {
        Self { rhythms, ..self }
    }
}

impl Habits<'_> {
    /// Those of a predicted step.
    pub(crate) fn of(program: &Program, prediction: &Prediction) -> Self {
        let message = prediction.phases.iter().find(|phase| {
            phase.exchange.collective == traffic::Collective::SendRecv
                && phase.exchange.kind.axis() == Axis::Pp
        });
        let message = message.map_or(Span::ZERO, |phase| phase.slowest);
        Self { message, every_microbatch: every_microbatch(program), rhythms: &[] }
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
    /// By axis: when forward and backward passes are on the fabric.
    beats: [[Beats; 2]; 5],
    every_microbatch: f64,
}

/// When one axis is on the fabric, and for how long by itself: what overlaps is laid into less.
#[derive(Clone, Debug, Default)]
struct Beats {
    windows: Vec<Window>,
    lasts_s: f64,
}

impl Beats {
    fn is_empty(&self) -> bool {
        !lasting(&self.windows)
    }
}

/// Beats of both directions, which share bytes out by how long they last.
fn both(beats: &[Beats; 2]) -> Vec<(&[Window], f64)> {
    let all: f64 = beats.iter().map(|beats| beats.lasts_s).sum();
    beats.iter().map(|beats| (&beats.windows[..], beats.lasts_s / all)).collect()
}

impl Windows {
    /// Where the bytes of an axis move, and which share of them.
    pub(crate) fn of(&self, axis: Axis) -> Vec<(&[Window], f64)> {
        let beats = &self.beats[axis as usize];
        match axis {
            Axis::Tp | Axis::Cp | Axis::Ep if !beats.iter().all(Beats::is_empty) => both(beats),
            Axis::Tp | Axis::Cp | Axis::Ep => vec![(&self.passes, 1.0)],
            Axis::Pp => vec![(&self.behind, 1.0)],
            Axis::Dp => {
                let copied = if lasting(&self.copies) { &self.copies } else { &self.passes };
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
        let beats = &self.beats[axis as usize];
        if during == During::Expert && !beats.iter().all(Beats::is_empty) {
            return both(beats);
        }
        let beats = &beats[usize::from(during == During::Backward)].windows;
        match axis {
            Axis::Tp | Axis::Cp | Axis::Ep if lasting(beats) => vec![(beats, 1.0)],
            Axis::Dp if during == During::Optimizer && lasting(copies) => vec![(copies, 1.0)],
            Axis::Dp if during == During::Backward && lasting(copies) => {
                vec![(copies, 1.0 - self.every_microbatch), (passes, self.every_microbatch)]
            }
            _ => vec![(passes, 1.0)],
        }
    }
}

impl Windows {
    /// From the first forward pass to the end of the first backward pass.
    pub(crate) fn first_passes(&self) -> Option<Window> {
        let first = |windows: &[Window], of: fn(&Window) -> f64| {
            windows.iter().map(of).min_by(f64::total_cmp)
        };
        let stretch = (first(&self.forward, |w| w.0)?, first(&self.backward, |w| w.1)?);
        Some(stretch).filter(|(from, to)| from < to)
    }
}

fn lasting(windows: &[Window]) -> bool {
    windows.iter().any(|(from, to)| from < to)
}

/// The windows of a stage of the pipeline.
pub(crate) fn windows(line: &Timeline, stage: u32, habits: Habits<'_>) -> Windows {
    let graph = line.graph();
    let stages = graph.lanes().iter().map(|lane| lane.stage + 1).max().unwrap_or(1);
    let mut beats: [[Beats; 2]; 5] = Default::default();
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
        let part = (step.chunk * stages + stage) as usize;
        if let Some(rhythm) = habits.rhythms.get(part) {
            for (way, own) in rhythm_of(rhythm, step.work) {
                for Beat { axis, from, to, lasts_s } in own {
                    let at = |share: &f64| window.0 + share * (window.1 - window.0);
                    let beats = &mut beats[*axis as usize][way];
                    beats.windows.push((at(from), at(to)));
                    beats.lasts_s += lasts_s;
                }
            }
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
    Windows {
        passes,
        forward,
        backward,
        gathers,
        reductions,
        copies,
        behind,
        beats,
        every_microbatch,
    }
}

/// The beats of an operation: 0 for those of a forward pass, 1 for those of a backward pass.
fn rhythm_of(rhythm: &Rhythm, work: Work) -> Vec<(usize, &[Beat])> {
    match work {
        Work::Forward => vec![(0, &rhythm.forward)],
        Work::Backward => vec![(1, &rhythm.backward)],
        Work::BackwardInputs => vec![(1, &rhythm.input)],
        Work::BackwardWeights => vec![(1, &rhythm.weight)],
        Work::ForwardBackward => vec![(0, &rhythm.forward), (1, &rhythm.backward)],
        _ => Vec::new(),
    }
}

/// Spreads bytes over windows, evenly over their time.
pub(crate) fn lay(windows: &[Window], bytes: f64, length: f64, bins: &mut [f64]) {
    let lasts: f64 = windows.iter().map(|(from, to)| to - from).sum();
    if bytes <= 0.0 || lasts <= 0.0 {
        return;
    }
    let width = length / bins.len() as f64;
    for window in windows {
        spread(*window, bytes / lasts, width, bins);
    }
}

/// The same of a stretch of the step: what windows outside of it move is left out.
pub(crate) fn lay_within(windows: &[Window], bytes: f64, stretch: Window, bins: &mut [f64]) {
    let lasts: f64 = windows.iter().map(|(from, to)| to - from).sum();
    if bytes <= 0.0 || lasts <= 0.0 {
        return;
    }
    let width = (stretch.1 - stretch.0) / bins.len() as f64;
    for (from, to) in windows {
        let inside = (from.max(stretch.0) - stretch.0, to.min(stretch.1) - stretch.0);
        if inside.0 < inside.1 {
            spread(inside, bytes / lasts, width, bins);
        }
    }
}

/// A window at a rate; what ends late counts in the last bin.
fn spread((from, to): Window, rate: f64, width: f64, bins: &mut [f64]) {
    let (first, last) = ((from / width) as usize, (to / width) as usize);
    for at in first..=last {
        let begin = from.max(at as f64 * width);
        let end = to.min((at + 1) as f64 * width);
        let bin = at.min(bins.len() - 1);
        bins[bin] += rate * (end - begin).max(0.0);
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
        let mut half = vec![0.0; 4];
        lay_within(&[(0.0, 1.0), (5.0, 6.0)], 200.0, (0.5, 5.5), &mut half);
        assert!((half[0] - 50.0).abs() < 1e-9 && (half[3] - 50.0).abs() < 1e-9, "{half:?}");
    }
}
