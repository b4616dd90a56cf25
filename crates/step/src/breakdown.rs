//! Where the time of a step goes, as parts that add up exactly.
//!
//! How it works. One representative rank is watched from the end of the step to its beginning.
//! While it runs an operation, the time is what that operation is made of. While it waits, the time
//! is what it waits for: a message in flight is pipeline communication; another stage's
//! communication is that communication; another stage's computation is the bubble. Every moment is
//! counted once, in whole picoseconds, so the parts are the step.
//!
//! It follows that with communication free only computation, bubble, optimizer and the rest are
//! left, and with infinitely fast GPUs only communication: both are tests.
//!
//! The watched rank is the one that computes longest: the others wait for it.

use units::Span;

use crate::assemble::Repeat;
use crate::timeline::{Parts, Share, StepOpId, Stream, Stretch, Timeline};

/// Exposed times that add up to the step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Breakdown {
    parts: Parts,
}

impl Breakdown {
    /// Of one part.
    pub fn get(&self, share: Share) -> Span {
        self.parts.get(share)
    }

    /// Adds time that the timeline does not show.
    #[must_use]
    pub fn with(mut self, share: Share, span: Span) -> Self {
        self.parts.add(share, span);
        self
    }

    /// This step with `rounds` more rounds of its schedule, each as a stage saw them in a stretch
    /// of `line`.
    #[must_use]
    pub(crate) fn repeated(
        mut self,
        line: &Timeline,
        stage: u32,
        repeat: &Repeat,
        rounds: u64,
    ) -> Self {
        let Some(own) = last_of(line, stage) else { return self };
        let inside = |stretch: &Stretch| repeat.from <= stretch.from && stretch.to <= repeat.to;
        let mut seen = Parts::default();
        for stretch in line.lane_stretches(own).iter().filter(|stretch| inside(stretch)) {
            seen = seen.plus(&seen_from(line, stretch, stage));
        }
        for share in Share::ALL {
            self.parts.add(share, repeat.of_rounds(seen.get(share), rounds));
        }
        self
    }

    /// The step.
    pub fn total(&self) -> Span {
        self.parts.total()
    }

    /// Communication that nothing hides, all axes together.
    pub fn communication(&self) -> Span {
        let axes = Share::ALL.into_iter().filter(|share| share.is_communication());
        axes.fold(Span::ZERO, |sum, share| sum + self.get(share))
    }

    /// Each part with its key, in seconds.
    pub fn seconds(&self) -> impl Iterator<Item = (&'static str, f64)> {
        Share::ALL.into_iter().map(|share| (share.word(), self.get(share).as_secs_f64()))
    }
}

/// The stage that computes longest, the first of equals.
pub fn busiest_stage(line: &Timeline) -> u32 {
    let mut busy: Vec<Span> = Vec::new();
    for op in line.graph().ops().iter() {
        let lane = line.graph().lanes()[op.lane];
        let stage = lane.stage as usize;
        if busy.len() <= stage {
            busy.resize(stage + 1, Span::ZERO);
        }
        if lane.stream == Stream::Compute {
            busy[stage] += op.parts.get(Share::Compute);
        }
    }
    let longest = busy.iter().max().copied().unwrap_or_default();
    busy.iter().position(|span| *span == longest).unwrap_or(0) as u32
}

/// The breakdown of a step as the rank of `stage` sees it.
pub fn of_stage(line: &Timeline, stage: u32) -> Breakdown {
    let Some(end) = line.last() else { return Breakdown::default() };
    let Some(own) = last_of(line, stage) else { return Breakdown::default() };
    let mut parts = Parts::default();
    // After its last operation the rank waits for whatever ends the step.
    for stretch in line.chain(end, line.end(own)) {
        parts = parts.plus(&seen_from(line, &stretch, stage));
    }
    for stretch in line.lane_stretches(own) {
        parts = parts.plus(&seen_from(line, &stretch, stage));
    }
    Breakdown { parts }
}

/// The last operation that a stage computes.
fn last_of(line: &Timeline, stage: u32) -> Option<StepOpId> {
    let graph = line.graph();
    let computes = |op: &StepOpId| {
        let lane = graph.lanes()[graph.ops()[*op].lane];
        lane.stream == Stream::Compute && lane.stage == stage
    };
    graph.ops().ids().rev().find(computes)
}

/// A stretch as the rank of `stage` counts it: others' computation is its bubble.
fn seen_from(line: &Timeline, stretch: &Stretch, stage: u32) -> Parts {
    let graph = line.graph();
    if graph.lanes()[graph.ops()[stretch.op].lane].stage == stage {
        return stretch.parts;
    }
    let mut seen = Parts::default();
    for share in Share::ALL {
        let counted = if share == Share::Compute { Share::Bubble } else { share };
        seen.add(counted, stretch.parts.get(share));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{After, StepGraph, StepOp, Work};

    /// A GPipe-like step: `stages`, `micros`, computation and tensor communication per pass.
    fn step(stages: u32, micros: u32, compute: Span, tensor: Span, message: Span) -> Timeline {
        let mut graph = StepGraph::new();
        let lanes: Vec<_> = (0..stages).map(|stage| graph.lane(stage, Stream::Compute)).collect();
        let parts = Parts::of(Share::Compute, compute).with(Share::Tp, tensor);
        let pass = |lane, micro| StepOp { lane, work: Work::Forward, micro, chunk: 0, parts };
        let mut before: Vec<StepOpId> = Vec::new();
        for lane in lanes {
            let row: Vec<_> = (0..micros).map(|micro| graph.push(pass(lane, micro))).collect();
            for (from, to) in before.iter().zip(&row) {
                let delay_share = Share::Pp;
                graph.wait(*to, After { op: *from, delay: message, delay_share });
            }
            before = row;
        }
        graph.run().unwrap()
    }

    #[test]
    fn parts_are_the_step() {
        let line = step(4, 7, Span::from_us(10), Span::from_us(3), Span::from_us(2));
        for stage in 0..4 {
            assert_eq!(of_stage(&line, stage).total(), line.length());
        }
    }

    /// Oracle: p − 1 passes of waiting, for computation, communication and messages alike.
    #[test]
    fn the_last_stage_waits_for_the_others_once() {
        let line = step(4, 7, Span::from_us(10), Span::from_us(3), Span::from_us(2));
        let seen = of_stage(&line, 3);
        assert_eq!(seen.get(Share::Compute), Span::from_us(70));
        assert_eq!(seen.get(Share::Bubble), Span::from_us(30));
        assert_eq!(seen.get(Share::Tp), Span::from_us(3 * (7 + 3)));
        assert_eq!(seen.get(Share::Pp), Span::from_us(6));
    }

    #[test]
    fn free_communication_leaves_computation_and_bubble() {
        let line = step(4, 7, Span::from_us(10), Span::ZERO, Span::ZERO);
        let seen = of_stage(&line, 0);
        assert_eq!(seen.communication(), Span::ZERO);
        assert_eq!(seen.get(Share::Compute) + seen.get(Share::Bubble), line.length());
    }

    #[test]
    fn infinitely_fast_gpus_leave_communication() {
        let line = step(4, 7, Span::ZERO, Span::from_us(3), Span::from_us(2));
        for stage in 0..4 {
            assert_eq!(of_stage(&line, stage).communication(), line.length());
        }
    }
}
