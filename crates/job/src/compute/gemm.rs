//! Matrix products: of linear layers, of unfused attention, of experts.
//!
//! A product costs a fixed time, its operations over the matrix units' rate, and its result over
//! the memory's bandwidth. Fitted to the measured streams these terms come out as 3 µs, 690
//! TFLOP/s (bf16; the chip is power-limited) and about 5 TB/s, with a median error of 2 %; the
//! operands' own bytes hide behind the arithmetic. Tile and wave quantisation adds nothing: cuBLAS
//! picks tiles that avoid it, and a term for it made predictions worse.

use serde::Serialize;

use super::curve::{Shape, TERMS};
use crate::config::Precision;

/// What a product is for, which decides the layout of its operands and the type of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Activations times transposed weights (`nt`): a linear layer's forward pass.
    Forward,
    /// Gradients times weights (`nn`): the gradient of the input.
    InputGradient,
    /// Transposed gradients times activations (`tn`), in the operands' type.
    WeightGradient,
    /// The same, added to an fp32 buffer, as training with fp32 main gradients does.
    AccumulatedWeightGradient,
}

/// One matrix product: an m × k matrix times a k × n matrix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gemm {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// The inner size.
    pub k: u64,
    /// Type of the operands. fp16 runs as bf16; fp32 as TF32, at half its rate by data sheet.
    pub precision: Precision,
    /// What it is for.
    pub role: Role,
}

impl Gemm {
    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes of the operands and the result.
    pub fn bytes(&self) -> f64 {
        self.operand_bytes() + self.result_bytes()
    }

    fn operand_bytes(&self) -> f64 {
        let width = if self.precision == Precision::Fp8 { 1 } else { self.precision.bytes() };
        width as f64 * self.k as f64 * (self.m + self.n) as f64
    }

    fn result_bytes(&self) -> f64 {
        let width = match (self.role, self.precision) {
            (Role::AccumulatedWeightGradient, Precision::Fp8) => 4, // written, as it was measured
            (Role::AccumulatedWeightGradient, _) => 8,              // read and written
            (Role::WeightGradient, Precision::Fp8) => 4,
            (_, precision) => precision.bytes(),
        };
        (width * self.m * self.n) as f64
    }

    pub(super) fn shape(&self) -> Shape {
        let terms =
            [1.0, self.flops() * 1e-6, self.result_bytes() * 1e-6, self.operand_bytes() * 1e-6];
        Shape { terms: padded(terms), position: positions([self.m, self.n, self.k, 1]) }
    }
}

/// Equal products in one launch, as unfused attention needs them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BatchedGemm {
    /// How many products.
    pub batch: u64,
    /// Rows of each result.
    pub m: u64,
    /// Columns of each result.
    pub n: u64,
    /// The inner size.
    pub k: u64,
    /// Which operand is transposed.
    pub role: Role,
}

impl BatchedGemm {
    /// Multiplications and additions of all products.
    pub fn flops(&self) -> f64 {
        2.0 * (self.batch * self.m) as f64 * (self.n * self.k) as f64
    }

    /// Bytes of all operands and results.
    pub fn bytes(&self) -> f64 {
        let Self { batch, m, n, k, .. } = *self;
        2.0 * batch as f64 * (m * k + k * n + m * n) as f64
    }

    pub(super) fn shape(&self) -> Shape {
        let outputs = 2e-6 * (self.batch * self.m * self.n) as f64;
        let terms = [1.0, self.flops() * 1e-6, outputs, self.bytes() * 1e-6 - outputs];
        Shape { terms: padded(terms), position: positions([self.batch, self.m, self.n, self.k]) }
    }
}

/// The products of several experts in one launch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GroupedGemm {
    /// Experts on the rank.
    pub groups: u64,
    /// Tokens over all of them.
    pub tokens: u64,
    /// Output channels of an expert's matrix.
    pub n: u64,
    /// Input channels of an expert's matrix.
    pub k: u64,
    /// Type of the operands.
    pub precision: Precision,
    /// What it is for: forward, input gradient or weight gradient.
    pub role: Role,
}

impl GroupedGemm {
    /// Multiplications and additions of all experts.
    pub fn flops(&self) -> f64 {
        2.0 * self.tokens as f64 * (self.n * self.k) as f64
    }

    /// Bytes of tokens, weights and results, in 16 bits.
    pub fn bytes(&self) -> f64 {
        let Self { groups, tokens, n, k, .. } = *self;
        2.0 * (tokens as f64 * (n + k) as f64 + groups as f64 * (n * k) as f64)
    }

    pub(super) fn shape(&self) -> Shape {
        let terms = [1.0, self.flops() * 1e-6, self.bytes() * 1e-6, self.groups as f64];
        let sizes = [self.groups, self.tokens / self.groups.max(1), self.n, self.k];
        Shape { terms: padded(terms), position: positions(sizes) }
    }
}

fn padded<const N: usize>(terms: [f64; N]) -> [f64; TERMS] {
    let mut all = [0.0; TERMS];
    all[..N].copy_from_slice(&terms);
    all
}

fn positions(sizes: [u64; 4]) -> [f64; 4] {
    sizes.map(|size| (size.max(1) as f64).log2())
}
