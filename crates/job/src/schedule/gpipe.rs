//! GPipe: all forward passes, then all backward passes.
//!
//! Source: Huang et al. (arXiv 1811.06965), section 2.3. Departure: backward passes run in the
//! order of the forward ones, not in reverse; the time is the same.

use super::{Order, Pass, Pipeline, Segment, Slot, Task};

/// The order of a stage.
pub(super) fn order(pipeline: &Pipeline, stage: u64) -> Vec<Slot> {
    folded(pipeline, stage).slots().collect()
}

/// The same in two rounds that repeat.
pub(super) fn folded(pipeline: &Pipeline, stage: u64) -> Order {
    let rounds = pipeline.microbatches;
    let all = |pass| Segment {
        slots: vec![Slot::Alone(Task { pass, part: stage, microbatch: 0 })],
        rounds,
        step: 1,
    };
    Order { segments: vec![all(Pass::Forward), all(Pass::Backward)] }
}
