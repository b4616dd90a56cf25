//! The order of forward and backward passes in a pipeline.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The order of forward and backward passes in a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    #[serde(rename = "gpipe")]
    Gpipe,
    /// One forward, one backward: fewer microbatches in flight.
    #[default]
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// The same with several virtual stages per GPU: less bubble, more messages.
    #[serde(rename = "interleaved-1f1b")]
    Interleaved,
    /// Weight gradients apart from input gradients, to fill the bubble (ZB-H1).
    #[serde(rename = "zero-bubble")]
    ZeroBubble,
    /// From both ends at once, forward and backward overlapped (DeepSeek-V3).
    #[serde(rename = "dualpipe")]
    DualPipe,
}
