//! Attention of one microbatch on one rank.
//!
//! Fused kernels (cuDNN's on Hopper, FlashAttention-2's elsewhere) cost a fixed time, their
//! operations, one exponential per score, one pass over each query row, and with a causal mask
//! the longest row's own path, which a few heads cannot hide. Before 2023 the scores were written
//! out: two products and a softmax forward, four and one backward ([`Attention::unfused`]).

use serde::Serialize;

use super::Kernel;
use super::curve::Shape;
use super::gemm::{BatchedGemm, Role};
use super::memory::{Memory, MemoryKind};
use crate::config::AttentionKernel;

/// Which pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The result.
    Forward,
    /// The gradients of queries, keys and values; fused kernels compute the scores again.
    Backward,
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mask {
    /// Those before it. Half of the scores are not computed.
    Causal,
    /// All of them: a chunk of earlier tokens under context parallelism.
    Full,
}

/// Attention over one microbatch, all heads of the rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attention {
    /// Sequences.
    pub batch: u64,
    /// Queries per sequence.
    pub queries: u64,
    /// Keys per sequence.
    pub keys: u64,
    /// Query heads of the rank.
    pub heads: u64,
    /// Key and value heads of the rank.
    pub kv_heads: u64,
    /// Width of a query and of a key.
    pub key_dim: u64,
    /// Width of a value.
    pub value_dim: u64,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Which pass.
    pub direction: Direction,
    /// The kernels' generation.
    pub kernel: AttentionKernel,
}

impl Attention {
    /// Operations of the products, causal masking taken into account by fused kernels only.
    pub fn flops(&self) -> f64 {
        let passes = match (self.direction, self.kernel) {
            (Direction::Forward, _) => 1.0,
            (Direction::Backward, AttentionKernel::Unfused) => 2.0,
            (Direction::Backward, _) => 2.5, // the scores once more
        };
        passes * 2.0 * self.scores() * (self.key_dim + self.value_dim) as f64
    }

    /// Bytes of queries, keys, values and results; scores too where they are written out.
    pub fn bytes(&self) -> f64 {
        let width = (self.key_dim + self.value_dim) as f64;
        let rows = (self.queries * self.heads + self.keys * self.kv_heads) as f64;
        let once = 2.0 * self.batch as f64 * rows * width;
        match (self.kernel, self.direction) {
            (AttentionKernel::Unfused, _) => self.unfused().iter().map(Kernel::bytes).sum(),
            (_, Direction::Forward) => once,
            (_, Direction::Backward) => 2.0 * once,
        }
    }

    /// Scores that are computed.
    fn scores(&self) -> f64 {
        let all = (self.batch * self.heads) as f64 * self.queries as f64 * self.keys as f64;
        match (self.mask, self.kernel) {
            (_, AttentionKernel::Unfused) | (Mask::Full, _) => all,
            (Mask::Causal, _) => all / 2.0,
        }
    }

    /// The kernels of attention whose scores are written out, without dropout.
    pub fn unfused(&self) -> Vec<Kernel> {
        let Self { queries, keys, key_dim, value_dim, .. } = *self;
        let batch = self.batch * self.heads;
        let product = |m, n, k, role| Kernel::BatchedGemm(BatchedGemm { batch, m, n, k, role });
        let softmax = |kind| Kernel::Memory(Memory { kind, rows: batch * queries, columns: keys });
        match self.direction {
            Direction::Forward => vec![
                product(queries, keys, key_dim, Role::Forward),
                softmax(MemoryKind::SoftmaxForward),
                product(queries, value_dim, keys, Role::InputGradient),
            ],
            Direction::Backward => vec![
                product(queries, keys, value_dim, Role::Forward),
                product(keys, value_dim, queries, Role::WeightGradient),
                softmax(MemoryKind::SoftmaxBackward),
                product(queries, key_dim, keys, Role::InputGradient),
                product(keys, key_dim, queries, Role::WeightGradient),
            ],
        }
    }

    pub(super) fn shape(&self) -> Shape {
        let width = (self.key_dim + self.value_dim) as f64 / 2.0;
        let rows = (self.batch * self.heads * self.queries) as f64;
        let (path, far) = match self.mask {
            Mask::Causal => (self.queries as f64 * width, 0.0),
            Mask::Full => (0.0, 3.0),
        };
        let terms = [1.0, self.flops() * 1e-6, self.scores() * 1e-6, rows * 1e-6, path * 1e-6];
        let longer = (self.keys as f64 / self.queries as f64).log2();
        let position = [
            (self.queries as f64).log2(),
            ((self.batch * self.heads) as f64).log2(),
            2.0 * width.log2() + (self.key_dim as f64 / self.value_dim as f64).log2(),
            far + longer,
        ];
        Shape { terms, position }
    }
}
