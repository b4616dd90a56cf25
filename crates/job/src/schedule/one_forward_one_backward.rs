//! 1F1B: after a warm-up, one forward and one backward pass in turn.
//!
//! Source: PipeDream-Flush, as Narayanan et al. (arXiv 2104.04473), section 2.2.1, describe it.
//! Stage `i` of `p` warms up with `p - 1 - i` forward passes, so that it never holds more than
//! `p - i` microbatches.

use super::{Pass, Pipeline, Slot, Task};

/// The order of a stage.
pub(super) fn order(pipeline: &Pipeline, stage: u64) -> Vec<Slot> {
    let all = pipeline.microbatches;
    let warm_up = (pipeline.stages - 1 - stage).min(all);
    let slot = |pass, microbatch| Slot::Alone(Task { pass, part: stage, microbatch });
    let mut slots: Vec<Slot> = (0..warm_up).map(|index| slot(Pass::Forward, index)).collect();
    for index in 0..all {
        if index + warm_up < all {
            slots.push(slot(Pass::Forward, index + warm_up));
        }
        slots.push(slot(Pass::Backward, index));
    }
    slots
}
