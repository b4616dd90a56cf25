//! 1F1B, plain or interleaved, whose forward and backward passes run in pairs.
//!
//! Source: Megatron-LM's `overlap_moe_expert_parallel_comm`: after one further forward pass of
//! warm-up, each forward pass is merged layer by layer with the backward pass of an earlier
//! microbatch, so that the exchange of tokens of the one runs beside the computation of the other.
//! A microbatch then stays for a whole pair at every stage, on its way there and on its way back,
//! so the warm-up must be that of the interleaved schedule, twice as long as plain 1F1B's: stage
//! `i` warms up with `2(p - 1 - i) + (v - 1)p + 1` forward passes. Departure: Megatron-LM has it
//! for interleaved pipelines and without pipeline; with one part per stage the same rule is used
//! here.

use super::{Pass, Pipeline, Slot, Task};

/// The order of a stage.
pub(super) fn order(pipeline: &Pipeline, stage: u64) -> Vec<Slot> {
    let Pipeline { stages, chunks, microbatches, .. } = *pipeline;
    assert!(
        chunks == 1 || microbatches.is_multiple_of(stages),
        "interleaving needs whole groups of microbatches"
    );
    let all = microbatches * chunks;
    let warm_up = (2 * (stages - 1 - stage) + (chunks - 1) * stages + 1).min(all);
    let group = stages * chunks;
    // The index-th pass of a stage: which of its parts, which microbatch.
    let place = |index: u64| {
        let inside = index % group;
        match chunks {
            1 => (0, index),
            _ => (inside / stages, index / group * stages + inside % stages),
        }
    };
    let task = |pass, chunk, microbatch| Task { pass, part: chunk * stages + stage, microbatch };
    let forward = |index| {
        let (chunk, microbatch) = place(index);
        task(Pass::Forward, chunk, microbatch)
    };
    let backward = |index| {
        let (chunk, microbatch) = place(index);
        task(Pass::Backward, chunks - 1 - chunk, microbatch)
    };
    let mut slots: Vec<Slot> = (0..warm_up).map(|index| Slot::Alone(forward(index))).collect();
    slots.extend((0..all).map(|index| match index + warm_up < all {
        true => Slot::Together(forward(index + warm_up), backward(index)),
        false => Slot::Alone(backward(index)),
    }));
    slots
}
