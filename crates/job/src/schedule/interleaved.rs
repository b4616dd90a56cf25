//! Interleaved 1F1B: each stage holds several parts of the model.
//!
//! Source: Narayanan et al. (arXiv 2104.04473), section 2.2.2, in the order of Megatron-LM:
//! microbatches go through in groups of `p`, a group through a stage's first part, then through
//! its second, and so on. Stage `i` warms up with `2(p - 1 - i) + (v - 1)p` forward passes. As in
//! the paper, microbatches are a multiple of `p`.

use super::{Pass, Pipeline, Slot, Task};

/// The order of a stage.
pub(super) fn order(pipeline: &Pipeline, stage: u64) -> Vec<Slot> {
    let Pipeline { stages, chunks, microbatches, .. } = *pipeline;
    assert!(microbatches.is_multiple_of(stages), "interleaving needs whole groups of microbatches");
    let all = microbatches * chunks;
    let warm_up = (2 * (stages - 1 - stage) + (chunks - 1) * stages).min(all);
    let group = stages * chunks;
    // The index-th pass of a stage: which of its parts, which microbatch.
    let place = |index: u64| {
        let inside = index % group;
        (inside / stages, index / group * stages + inside % stages)
    };
    let slot = |pass, chunk, microbatch| {
        Slot::Alone(Task { pass, part: chunk * stages + stage, microbatch })
    };
    let forward = |index| {
        let (chunk, microbatch) = place(index);
        slot(Pass::Forward, chunk, microbatch)
    };
    let backward = |index| {
        let (chunk, microbatch) = place(index);
        slot(Pass::Backward, chunks - 1 - chunk, microbatch)
    };
    let mut slots = Vec::with_capacity(2 * all as usize);
    slots.extend((0..warm_up).map(forward));
    for index in 0..all {
        if index + warm_up < all {
            slots.push(forward(index + warm_up));
        }
        slots.push(backward(index));
    }
    slots
}
