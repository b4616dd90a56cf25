//! How long the operations of a training step take on a GPU.
//!
//! Times come from kernels measured on an H200 (`data/README.md`), not from data-sheet rates. For
//! each family of kernels a short sum of physical terms (a fixed cost, operations over a rate,
//! bytes over a bandwidth) is fitted to the measured rows, and what the rows near a shape say
//! beyond that sum corrects it. Other GPUs get the same kernels with each term scaled by their
//! speed over the H200 in the kernel's class ([`GpuRates`]).
//!
//! ```
//! use job::compute::{Gemm, GpuRates, Kernel, Operands, Role, Timer};
//!
//! let (operands, role) = (Operands::Bf16, Role::Forward);
//! let product = Gemm { m: 8192, n: 8192, k: 8192, operands, role };
//! let time = Timer::measured().time(&Kernel::Gemm(product), &GpuRates::h200());
//! let tflops = product.flops() / time.as_secs_f64() / 1e12;
//! assert!((620.0..720.0).contains(&tflops), "{tflops}");
//! ```
//!
//! # Map of the modules, in reading order
//!
//! * [`gemm`], [`attention`], [`memory`]: the kernels by family, their operations, bytes, terms.
//! * [`layer`]: which kernels a transformer layer launches, forward and backward.
//! * [`rates`]: what a GPU can do, as far as kernels feel it.
//! * `table`: the measured rows. `curve`: the fit and its correction by neighbours.
//! * [`timer`]: kernels to times.
//!
//! # Invariants
//!
//! * A time is what a kernel adds to a *stream* of kernels: its launch is hidden behind the one
//!   before, as in training. [`Timer::alone`] is the other time, of one launch between two events.
//! * More work never takes a negative time: fitted terms are never negative.
//! * Nothing here is fitted to a whole layer or step; those only check the sums.

pub mod attention;
mod curve;
pub mod gemm;
pub mod layer;
pub mod memory;
pub mod rates;
mod table;
pub mod timer;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use attention::{Attention, Direction, Mask};
pub use gemm::{BatchedGemm, Gemm, GroupedGemm, Operands, Role};
pub use layer::{Layer, Pass};
pub use memory::{Memory, MemoryKind};
pub use rates::{Class, End, GpuRates};
pub use timer::Timer;

/// One kernel launch, or the few launches that stand for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// A matrix product.
    Gemm(Gemm),
    /// Many equal products in one launch.
    BatchedGemm(BatchedGemm),
    /// The products of several experts in one launch.
    GroupedGemm(GroupedGemm),
    /// Attention over one microbatch, all heads of the rank.
    Attention(Attention),
    /// A kernel whose time is the bytes it moves.
    Memory(Memory),
}

/// What holds a kernel up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KernelKind {
    /// The matrix units, in products.
    Product,
    /// The matrix units and what lies between, in attention.
    Attention,
    /// The memory.
    Memory,
}

impl KernelKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Product, Self::Attention, Self::Memory];
}

impl Kernel {
    /// What holds it up.
    pub fn kind(&self) -> KernelKind {
        match self {
            Self::Gemm(_) | Self::BatchedGemm(_) | Self::GroupedGemm(_) => KernelKind::Product,
            Self::Attention(_) => KernelKind::Attention,
            Self::Memory(_) => KernelKind::Memory,
        }
    }

    /// Operations of the matrix units.
    pub fn flops(&self) -> f64 {
        match self {
            Self::Gemm(gemm) => gemm.flops(),
            Self::BatchedGemm(gemm) => gemm.flops(),
            Self::GroupedGemm(gemm) => gemm.flops(),
            Self::Attention(attention) => attention.flops(),
            Self::Memory(_) => 0.0,
        }
    }

    /// The fewest bytes that must cross the memory interface.
    pub fn bytes(&self) -> f64 {
        match self {
            Self::Gemm(gemm) => gemm.bytes(),
            Self::BatchedGemm(gemm) => gemm.bytes(),
            Self::GroupedGemm(gemm) => gemm.bytes(),
            Self::Attention(attention) => attention.bytes(),
            Self::Memory(memory) => memory.bytes(),
        }
    }

    /// Where it lies in its family's fit.
    fn shape(&self) -> curve::Shape {
        match self {
            Self::Gemm(gemm) => gemm.shape(),
            Self::BatchedGemm(gemm) => gemm.shape(),
            Self::GroupedGemm(gemm) => gemm.shape(),
            Self::Attention(attention) => attention.shape(),
            Self::Memory(memory) => memory.shape(),
        }
    }
}
