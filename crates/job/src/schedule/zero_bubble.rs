//! ZB-H1: 1F1B whose weight gradients wait for the bubble.
//!
//! Source: Qi et al., "Zero bubble pipeline parallelism" (arXiv 2401.10241), section 2.3 and
//! figure 2. The backward pass is parted into gradients of inputs, which the stage before waits
//! for, and gradients of weights, which nobody waits for. Stage `i` runs the latter `i`
//! microbatches late, so that every stage holds at most `p` microbatches, as the first one of
//! 1F1B does, and the bubble is (p - 1)(F + B - W) with B and W the two halves.

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
        slots.push(slot(Pass::Input, index));
        if stage <= index {
            slots.push(slot(Pass::Weight, index - stage));
        }
    }
    slots.extend((all.saturating_sub(stage)..all).map(|index| slot(Pass::Weight, index)));
    slots
}
