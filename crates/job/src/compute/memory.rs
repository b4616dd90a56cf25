//! Kernels whose time is the bytes they move: norms, activations, dropout, losses, optimizers.
//!
//! Each costs a fixed time and its bytes over a rate of its own. Most of them reach 3.7 to 4.4 of
//! the H200's 4.8 TB/s; those that do not (PyTorch's own norm gradients, transposing copies) are
//! bound by how fast the multiprocessors issue, and have a speed of their own on other GPUs.

use serde::Serialize;

use super::curve::Shape;

/// A memory-bound kernel over rows and columns; one over plain elements has one row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Which kernel.
    pub kind: MemoryKind,
    /// Rows: tokens, or batch · heads · queries for a softmax.
    pub rows: u64,
    /// Columns: channels, keys, vocabulary, experts.
    pub columns: u64,
}

/// Which memory-bound kernel. Types are bf16 where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// A copy.
    Copy,
    /// The sum of two tensors: a residual connection.
    Add,
    /// bf16 added to fp32: gradients into main gradients.
    Accumulate,
    /// fp32 to bf16: master weights to weights.
    CastDown,
    /// fp32 zeros.
    Zero,
    /// fp32 times a number, in place: gradient clipping.
    Scale,
    /// The norm of fp32 gradients.
    L2Norm,
    /// RMSNorm, one fused kernel.
    RmsNormForward,
    /// Its gradients, fused, the weight's included.
    RmsNormBackward,
    /// RMSNorm of PyTorch itself.
    RmsNormForwardNative,
    /// PyTorch's gradients of RMSNorm.
    RmsNormBackwardNative,
    /// LayerNorm, one fused kernel.
    LayerNormForward,
    /// Its gradients, fused, the weight's included.
    LayerNormBackward,
    /// LayerNorm of PyTorch itself.
    LayerNormForwardNative,
    /// PyTorch's gradients of LayerNorm.
    LayerNormBackwardNative,
    /// GELU.
    GeluForward,
    /// GELU's gradient.
    GeluBackward,
    /// Bias and GELU in one.
    BiasGeluForward,
    /// Their gradient.
    BiasGeluBackward,
    /// The bias's gradient: a sum over rows.
    BiasGradient,
    /// SwiGLU over gate and up of `columns` each, fused.
    SwigluForward,
    /// Its gradient.
    SwigluBackward,
    /// SwiGLU as two kernels of PyTorch.
    SwigluForwardNative,
    /// Bias, dropout and residual in one; the mask is kept in bytes.
    BiasDropoutAdd,
    /// Dropout; the mask is kept in bytes.
    DropoutForward,
    /// Dropout's gradient.
    DropoutBackward,
    /// The causal, scaled softmax of unfused attention. Half of the scores are read.
    SoftmaxForward,
    /// Its gradient, in place.
    SoftmaxBackward,
    /// Rotary position embedding.
    Rope,
    /// A copy that swaps rows and heads of 128 channels, as PyTorch does it.
    Permute,
    /// bf16 to fp8 with one scale.
    Fp8Cast,
    /// bf16 to fp8 and its transpose, with one scale.
    Fp8CastTranspose,
    /// bf16 to fp8 with a scale for each 128 channels.
    Fp8Block,
    /// bf16 to fp8 and its transpose, with a scale for each 128 channels of the one and each 128
    /// tokens of the other.
    Fp8BlockTranspose,
    /// The largest magnitude, for a scale, as PyTorch finds it.
    Amax,
    /// The largest magnitude by one pass of a kernel made for it.
    Fp8Amax,
    /// Rows in another order: tokens to their experts.
    Gather,
    /// The weighted sum of eight rows for each: experts' results to their tokens.
    MoeCombine,
    /// Softmax over experts and the choice of the best.
    RouterTopK,
    /// Cross-entropy and its gradient in place, over bf16 logits.
    CrossEntropyFused,
    /// Cross-entropy in single fp32 kernels, logits cast first.
    CrossEntropyForward,
    /// Its gradient, cast back.
    CrossEntropyBackward,
    /// Rows of the embedding.
    EmbeddingForward,
    /// The embedding's dense gradient of so many rows.
    EmbeddingBackward {
        /// Rows of the embedding on the rank.
        vocabulary: u64,
    },
    /// AdamW over fp32 masters, gradients and moments.
    AdamW,
}

/// Every kind with its name in the measured tables and its bytes per element.
const KINDS: [(MemoryKind, &str, f64); 45] = [
    (MemoryKind::Copy, "copy", 4.0),
    (MemoryKind::Add, "add", 6.0),
    (MemoryKind::Accumulate, "accumulate", 10.0),
    (MemoryKind::CastDown, "cast_down", 6.0),
    (MemoryKind::Zero, "zero", 4.0),
    (MemoryKind::Scale, "scale", 8.0),
    (MemoryKind::L2Norm, "l2norm", 4.0),
    (MemoryKind::RmsNormForward, "rmsnorm_fwd_fused", 4.0),
    (MemoryKind::RmsNormBackward, "rmsnorm_bwd_fused", 6.0),
    (MemoryKind::RmsNormForwardNative, "rmsnorm_fwd", 4.0),
    (MemoryKind::RmsNormBackwardNative, "rmsnorm_bwd", 6.0),
    (MemoryKind::LayerNormForward, "layernorm_fwd_fused", 4.0),
    (MemoryKind::LayerNormBackward, "layernorm_bwd_fused", 6.0),
    (MemoryKind::LayerNormForwardNative, "layernorm_fwd", 4.0),
    (MemoryKind::LayerNormBackwardNative, "layernorm_bwd", 6.0),
    (MemoryKind::GeluForward, "gelu_fwd", 4.0),
    (MemoryKind::GeluBackward, "gelu_bwd", 6.0),
    (MemoryKind::BiasGeluForward, "bias_gelu_fwd", 4.0),
    (MemoryKind::BiasGeluBackward, "bias_gelu_bwd", 6.0),
    (MemoryKind::BiasGradient, "bias_grad", 2.0),
    (MemoryKind::SwigluForward, "swiglu_fwd", 6.0),
    (MemoryKind::SwigluBackward, "swiglu_bwd", 10.0),
    (MemoryKind::SwigluForwardNative, "swiglu_fwd_eager", 6.0),
    (MemoryKind::BiasDropoutAdd, "bias_dropout_add", 7.0),
    (MemoryKind::DropoutForward, "dropout_fwd", 5.0),
    (MemoryKind::DropoutBackward, "dropout_bwd", 5.0),
    (MemoryKind::SoftmaxForward, "softmax_fwd", 3.0),
    (MemoryKind::SoftmaxBackward, "softmax_bwd", 4.0),
    (MemoryKind::Rope, "rope", 4.0),
    (MemoryKind::Permute, "permute", 4.0),
    (MemoryKind::Fp8Cast, "fp8_cast", 3.0),
    (MemoryKind::Fp8CastTranspose, "fp8_cast_transpose", 4.0),
    (MemoryKind::Fp8Block, "fp8_block", 3.0),
    (MemoryKind::Fp8BlockTranspose, "fp8_block_transpose", 4.0),
    (MemoryKind::Amax, "amax", 2.0),
    (MemoryKind::Fp8Amax, "fp8_amax", 2.0),
    (MemoryKind::Gather, "gather", 4.0),
    (MemoryKind::MoeCombine, "moe_combine", 18.0),
    (MemoryKind::RouterTopK, "router_topk", 4.0),
    (MemoryKind::CrossEntropyFused, "cross_entropy_fused", 6.0),
    (MemoryKind::CrossEntropyForward, "cross_entropy_fwd", 38.0),
    (MemoryKind::CrossEntropyBackward, "cross_entropy_bwd", 14.0),
    (MemoryKind::EmbeddingForward, "embedding_fwd", 4.0),
    (MemoryKind::EmbeddingBackward { vocabulary: 0 }, "embedding_bwd", 4.0),
    (MemoryKind::AdamW, "adamw_fused", 28.0),
];

impl MemoryKind {
    /// The kernel of that name in the measured tables.
    pub(super) fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known, _)| *known == name).map(|(kind, _, _)| *kind)
    }

    /// Its name in the measured tables.
    pub(super) fn name(self) -> &'static str {
        self.entry().1
    }

    fn entry(self) -> &'static (Self, &'static str, f64) {
        let plain = match self {
            Self::EmbeddingBackward { .. } => Self::EmbeddingBackward { vocabulary: 0 },
            other => other,
        };
        KINDS.iter().find(|(kind, _, _)| *kind == plain).expect("every kind is listed")
    }

    /// This kernel over so many elements.
    pub fn over(self, elements: u64) -> Memory {
        Memory { kind: self, rows: elements, columns: 1 }
    }

    /// This kernel over rows and columns.
    pub fn rows(self, rows: u64, columns: u64) -> Memory {
        Memory { kind: self, rows, columns }
    }
}

impl Memory {
    /// The fewest bytes that must move.
    pub fn bytes(&self) -> f64 {
        let elements = self.rows as f64 * self.columns as f64;
        let dense = match self.kind {
            MemoryKind::EmbeddingBackward { vocabulary } => {
                2.0 * vocabulary as f64 * self.columns as f64
            }
            _ => 0.0,
        };
        self.kind.entry().2 * elements + dense
    }

    pub(super) fn shape(&self) -> Shape {
        let (rows, columns) = (self.rows.max(1) as f64, self.columns.max(1) as f64);
        let mut terms = [1.0, self.bytes() * 1e-6, 0.0, 0.0, 0.0];
        let mut position = [rows.log2(), columns.log2(), 0.0, 0.0];
        if let MemoryKind::EmbeddingBackward { vocabulary } = self.kind {
            // The rows are sorted and added one after another; the zeros are written at full rate.
            terms[1] = 2e-6 * vocabulary as f64 * columns;
            terms[2] = 4e-6 * rows * columns;
            position[2] = (vocabulary.max(1) as f64).log2();
        }
        Shape { terms, position }
    }
}
