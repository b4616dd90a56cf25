//! The few global constants of the software around a step, each with its source.
//!
//! They are the same for every job on every cluster. What differs between frameworks in kind (which
//! axes overlap, how attention is computed) belongs to the job; what differs between networks
//! (collisions, congestion) comes out of an engine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Span;

/// Costs that no kernel and no link accounts for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overheads {
    /// Once per step: data loading, logging, gradient norm across ranks, the Python of the loop.
    pub per_step: Span,
    /// The share of overlapped tensor-parallel communication that stays exposed: the first chunk of
    /// each gather and the last of each scatter have no matrix product to hide under.
    pub tensor_exposed: f64,
    /// How much slower computation runs while communication kernels take SMs and memory bandwidth.
    pub compute_slowdown: f64,
    /// Before a pipeline message moves: the launch, and the sender's and receiver's rendezvous.
    pub pipeline_message: Span,
    /// SMs that expert-parallel kernels keep for themselves while they run beside computation.
    pub expert_sms: u32,
}

impl Default for Overheads {
    fn default() -> Self {
        Self {
            // Some milliseconds per step on top of what grows with scale: the fit over published
            // steps of five families described in the book's page on validation.
            per_step: Span::from_ms(10),
            // With four chunks (Transformer Engine's user buffers split into tp chunks; 4 to 8) the
            // first of them is exposed: between 1/4 and 1/8, plus the chunked products' loss.
            tensor_exposed: 0.25,
            // Training steps with and without overlapped communication, the same fit.
            compute_slowdown: 0.03,
            // NCCL's send/receive: base latency 8.4 µs and network latency 14 µs of the Simple
            // protocol (NCCL src/graph/tuning.cc).
            pipeline_message: Span::from_ps(22_400_000),
            // DeepSeek-V3 (arXiv 2412.19437) section 3.2.2 and the public training trace
            // (deepseek-ai/profile-data): grids of 20 blocks.
            expert_sms: 20,
        }
    }
}

impl Overheads {
    /// Software that costs nothing: what is left is kernels and links.
    pub fn none() -> Self {
        Self {
            per_step: Span::ZERO,
            tensor_exposed: 0.0,
            compute_slowdown: 0.0,
            pipeline_message: Span::ZERO,
            expert_sms: 0,
        }
    }
}
