//! DualPipe: microbatches enter at both ends, forward and backward passes overlap.
//!
//! Source: DeepSeek-V3 (arXiv 2412.19437), section 3.2.1, in the eight phases of the published
//! implementation (deepseek-ai/DualPipe). Every stage holds two parts of the model: the one it
//! has in the forward direction and the mirrored one for microbatches that enter at the far end.
//! Even microbatches run from the first stage to the last, odd ones the other way. "Near" is the
//! direction that enters at the end of the pipeline to which a stage is closer.

use std::collections::VecDeque;

use super::{Pass, Pipeline, Slot, Task};

/// The order of a stage.
pub(super) fn order(pipeline: &Pipeline, stage: u64) -> Vec<Slot> {
    let Pipeline { stages, microbatches, .. } = *pipeline;
    assert!(stages.is_multiple_of(2) && microbatches.is_multiple_of(2), "both ends alike");
    assert!(2 * stages <= microbatches, "DualPipe needs two microbatches per stage");
    let half = stages / 2;
    // How far the stage is from its end, and from the middle.
    let from_end = stage.min(stages - 1 - stage);
    let to_middle = half - 1 - from_end;
    let mut line = Line::new(stages, stage);

    for _ in 0..2 * to_middle {
        line.forward(Direction::Near);
    }
    for _ in 0..=from_end {
        line.forward(Direction::Near);
        line.forward(Direction::Far);
    }
    for _ in 0..to_middle {
        line.gradient(Direction::Far, Pass::Input);
        line.weight();
        line.forward(Direction::Far);
    }
    for round in 0..microbatches / 2 - stages + from_end + 1 {
        if round == 0 && to_middle == 0 {
            // Not overlapped in the middle: the stages beside wait for both.
            line.forward(Direction::Near);
            line.gradient(Direction::Far, Pass::Backward);
        } else {
            line.together(Direction::Near, Direction::Far);
        }
        line.together(Direction::Far, Direction::Near);
    }
    for _ in 0..to_middle {
        line.gradient(Direction::Far, Pass::Backward);
        line.together(Direction::Far, Direction::Near);
    }
    // From the middle of this phase on, weight gradients wait for the bubble.
    let mut pass = Pass::Backward;
    for index in 0..=from_end {
        let middle = index == from_end.div_ceil(2);
        if middle && !from_end.is_multiple_of(2) {
            pass = Pass::Input;
        }
        line.gradient(Direction::Far, pass);
        if middle && from_end.is_multiple_of(2) {
            pass = Pass::Input;
        }
        line.gradient(Direction::Near, pass);
    }
    for _ in 0..to_middle {
        line.weight();
        line.gradient(Direction::Near, Pass::Input);
    }
    for _ in 0..=from_end {
        line.weight();
    }
    line.slots
}

/// A direction, as a stage sees it.
#[derive(Clone, Copy)]
enum Direction {
    /// Microbatches that enter at the nearer end.
    Near,
    /// Microbatches that enter at the other end.
    Far,
}

/// The slots of one stage, as they are appended.
struct Line {
    slots: Vec<Slot>,
    /// The part and the first microbatch of each direction.
    parts: [u64; 2],
    first: [u64; 2],
    forwards: [u64; 2],
    backwards: [u64; 2],
    /// Weight gradients put off, oldest first.
    late: VecDeque<Task>,
}

impl Line {
    fn new(stages: u64, stage: u64) -> Self {
        let parts = [stage, stages - 1 - stage];
        let (parts, first) =
            if stage < stages / 2 { (parts, [0, 1]) } else { ([parts[1], parts[0]], [1, 0]) };
        let (forwards, backwards) = ([0; 2], [0; 2]);
        Self { slots: Vec::new(), parts, first, forwards, backwards, late: VecDeque::new() }
    }

    fn next_forward(&mut self, direction: Direction) -> Task {
        let side = direction as usize;
        let microbatch = 2 * self.forwards[side] + self.first[side];
        self.forwards[side] += 1;
        Task { pass: Pass::Forward, part: self.parts[side], microbatch }
    }

    fn next_gradient(&mut self, direction: Direction, pass: Pass) -> Task {
        let side = direction as usize;
        let microbatch = 2 * self.backwards[side] + self.first[side];
        self.backwards[side] += 1;
        Task { pass, part: self.parts[side], microbatch }
    }

    fn forward(&mut self, direction: Direction) {
        let task = self.next_forward(direction);
        self.slots.push(Slot::Alone(task));
    }

    fn gradient(&mut self, direction: Direction, pass: Pass) {
        let task = self.next_gradient(direction, pass);
        if pass == Pass::Input {
            self.late.push_back(Task { pass: Pass::Weight, ..task });
        }
        self.slots.push(Slot::Alone(task));
    }

    fn weight(&mut self) {
        let task = self.late.pop_front().expect("a weight gradient follows its input gradient");
        self.slots.push(Slot::Alone(task));
    }

    fn together(&mut self, forward: Direction, backward: Direction) {
        let forward = self.next_forward(forward);
        let backward = self.next_gradient(backward, Pass::Backward);
        self.slots.push(Slot::Together(forward, backward));
    }
}
