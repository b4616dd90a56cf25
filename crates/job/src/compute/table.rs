//! The measured rows, from the CSV files that are part of the program.
//!
//! `data/README.md` describes the columns. The files are ours and tested, so a malformed one is a
//! mistake in the program; the build script leaves out rows that no family wants.

use super::Kernel;
use super::attention::{Attention, Direction, Mask};
use super::gemm::{BatchedGemm, Gemm, GroupedGemm, Operands, Role};
use super::memory::{Memory, MemoryKind};
use crate::config::AttentionKernel;
use crate::parallel::GradientType;

const ALONE: &str = include_str!(concat!(env!("OUT_DIR"), "/h200_kernels.csv"));
const STREAM: &str = include_str!(concat!(env!("OUT_DIR"), "/h200_stream.csv"));

/// Whether a kernel was measured in a stream of launches or alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Launch {
    /// The next launch is already waiting: the launch itself is hidden.
    Stream,
    /// One launch between two events.
    Alone,
}

/// A product's operands as far as the tables tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Width {
    Sixteen,
    Eight,
    EightByBlock,
}

/// Fused attention by kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fused {
    /// The fastest: cuDNN's on the measured GPU.
    Fastest,
    /// FlashAttention-2's.
    Flash2,
}

/// Kernels that share a fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Gemm(Launch, Width, Role),
    Batched(Role),
    Grouped(Width, Role),
    Attention(Launch, Fused, Direction),
    Memory(Launch, &'static str),
}

/// One measured row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub family: Family,
    pub kernel: Kernel,
    pub us: f64,
}

/// Every row of the embedded tables that belongs to a family.
pub(super) fn samples() -> Vec<Sample> {
    let read = |text: &'static str, launch| {
        text.lines().skip(1).filter_map(move |line| Row::parse(line).sample(launch))
    };
    read(STREAM, Launch::Stream).chain(read(ALONE, Launch::Alone)).collect()
}

/// A line of a table, split into its columns.
struct Row<'a> {
    kind: &'a str,
    dtype: &'a str,
    sizes: [u64; 4],
    direction: &'a str,
    us: f64,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Self {
        let words: Vec<&str> = line.split(',').collect();
        let size = |at: usize| match words[at] {
            "" => 1,
            digits => digits.parse().expect("sizes in the measured tables are whole numbers"),
        };
        Self {
            kind: words[0],
            dtype: words[1],
            sizes: [size(2), size(3), size(4), size(5)],
            direction: words[6],
            us: words[7].parse().expect("times in the measured tables are numbers"),
        }
    }

    fn sample(&self, launch: Launch) -> Option<Sample> {
        let (family, kernel) = match self.kind {
            "gemm" => self.gemm(launch),
            "bmm" => self.batched(),
            "grouped" => self.grouped()?,
            "attn" => self.attention(launch),
            "mem" => self.memory(launch)?,
            other => unreachable!("the measured tables hold no kernels of kind {other}"),
        };
        Some(Sample { family, kernel, us: self.us })
    }

    fn role(&self) -> Role {
        match self.direction {
            // fp8 products take both operands with k innermost, so one layout serves two roles:
            // forward adds up fast, gradients with more bits.
            "nt" if self.dtype == "fp8" => Role::InputGradient,
            "nt" | "nt_fast" | "fwd" => Role::Forward,
            "nn" | "dgrad" => Role::InputGradient,
            "tn" | "tn_fp32" | "wgrad" | "wgrad_loop" => Role::WeightGradient,
            "tn_acc" | "wgrad_acc" => Role::AccumulatedWeightGradient(GradientType::Fp32),
            "tn_acc16" => Role::AccumulatedWeightGradient(GradientType::Bf16),
            other => unreachable!("the measured tables hold no layout {other}"),
        }
    }

    fn width(&self) -> (Width, Operands) {
        match self.dtype {
            "fp8" => (Width::Eight, Operands::Fp8),
            "fp8_block" => (Width::EightByBlock, Operands::Fp8Block),
            _ => (Width::Sixteen, Operands::Bf16),
        }
    }

    fn gemm(&self, launch: Launch) -> (Family, Kernel) {
        let [m, n, k, _] = self.sizes;
        let (width, operands) = self.width();
        let role = self.role();
        let gemm = Gemm { m, n, k, operands, role };
        (Family::Gemm(launch, width, role), Kernel::Gemm(gemm))
    }

    fn batched(&self) -> (Family, Kernel) {
        let [batch, m, n, k] = self.sizes;
        let role = self.role();
        (Family::Batched(role), Kernel::BatchedGemm(BatchedGemm { batch, m, n, k, role }))
    }

    /// A loop over experts is a sequence of plain products, and no family of its own. fp8 weight
    /// gradients in one launch have 16-bit results, which training does not want.
    fn grouped(&self) -> Option<(Family, Kernel)> {
        if self.direction == "loop" || (self.dtype, self.direction) == ("fp8", "wgrad") {
            return None;
        }
        let [groups, tokens, n, k] = self.sizes;
        let ((width, operands), role) = (self.width(), self.role());
        let gemm = GroupedGemm { groups, tokens, n, k, operands, role };
        Some((Family::Grouped(width, role), Kernel::GroupedGemm(gemm)))
    }

    /// The direction reads `[flash2_][full_][b<batch>_][kv<keys>_](fwd|bwd)`; a head dimension
    /// above 1000 holds the key's and the value's.
    fn attention(&self, launch: Launch) -> (Family, Kernel) {
        let [queries, heads, kv_heads, dim] = self.sizes;
        let (mut fused, mut mask, mut batch, mut keys) = (Fused::Fastest, Mask::Causal, 1, queries);
        let mut direction = Direction::Forward;
        let number = |word: &str| word.parse().expect("a whole number in an attention's name");
        for word in self.direction.split('_') {
            match word {
                "flash2" => fused = Fused::Flash2,
                "full" => mask = Mask::Full,
                "fwd" => direction = Direction::Forward,
                "bwd" => direction = Direction::Backward,
                _ if word.starts_with("kv") => keys = number(&word[2..]),
                _ => batch = number(&word[1..]),
            }
        }
        let (key_dim, value_dim) = if dim > 1000 { (dim / 1000, dim % 1000) } else { (dim, dim) };
        let kernel = AttentionKernel::Flash;
        let attention = Attention {
            batch,
            queries,
            keys,
            heads,
            kv_heads,
            key_dim,
            value_dim,
            mask,
            direction,
            kernel,
        };
        (Family::Attention(launch, fused, direction), Kernel::Attention(attention))
    }

    /// A list of tensors is measured only to show that it costs what one tensor costs.
    fn memory(&self, launch: Launch) -> Option<(Family, Kernel)> {
        let [rows, columns, vocabulary, _] = self.sizes;
        let kind = match MemoryKind::named(self.direction) {
            Some(MemoryKind::EmbeddingBackward { .. }) => {
                MemoryKind::EmbeddingBackward { vocabulary }
            }
            Some(kind) => kind,
            None if self.direction == "adamw_fused_list" => return None,
            None => unreachable!("the measured tables hold no kernel {}", self.direction),
        };
        let memory = Memory { kind, rows, columns };
        Some((Family::Memory(launch, kind.name()), Kernel::Memory(memory)))
    }
}
