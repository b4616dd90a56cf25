//! Matrix products: of linear layers, of unfused attention, of experts.
//!
//! A product costs a fixed time, its operations over the matrix units' rate, and its result over
//! the memory's bandwidth. Fitted to the measured streams these terms come out as 3 µs, 690
//! TFLOP/s (bf16; the chip is power-limited) and about 5 TB/s, with a median error of 2 %; the
//! operands' own bytes hide behind the arithmetic. Tile and wave quantisation adds nothing: cuBLAS
//! picks tiles that avoid it, and a term for it made predictions worse.

use serde::Serialize;

use super::curve::{Shape, TERMS};
use super::rates::Size;
use crate::config::{Fp8Recipe, Precision};
use crate::parallel::GradientType;

/// What a product multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operands {
    /// 16 bits, fp16 too.
    Bf16,
    /// 32 bits, as TF32: half of bf16's rate by data sheet.
    Fp32,
    /// e4m3 with one scale per tensor.
    Fp8,
    /// e4m3 with a scale for each 128 channels of a token and each 128 × 128 of weights.
    Fp8Block,
    /// e4m3 with a power of two for each 32 numbers.
    Mxfp8,
    /// 4 bits with a scale for each 16 (NVFP4) or 32 (MXFP4).
    Fp4,
}

impl Operands {
    /// The operands of a precision, and of a recipe where that is fp8.
    pub fn of(precision: Precision, recipe: Fp8Recipe) -> Self {
        match (precision, recipe) {
            (Precision::Bf16 | Precision::Fp16, _) => Self::Bf16,
            (Precision::Fp32, _) => Self::Fp32,
            (Precision::Fp4, _) => Self::Fp4,
            (Precision::Fp8, Fp8Recipe::Block) => Self::Fp8Block,
            (Precision::Fp8, Fp8Recipe::Mx) => Self::Mxfp8,
            (Precision::Fp8, _) => Self::Fp8,
        }
    }

    /// Whether 16-bit tensors are cast to them.
    pub fn is_cast(self) -> bool {
        !matches!(self, Self::Bf16 | Self::Fp32)
    }

    /// Bytes of an operand.
    fn bytes(self) -> f64 {
        match self {
            Self::Fp32 => 4.0,
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Fp8Block | Self::Mxfp8 => 1.0,
            Self::Fp4 => 0.5,
        }
    }

    /// Bytes of a result that is no main gradient.
    fn result_bytes(self) -> u64 {
        if self == Self::Fp32 { 4 } else { 2 }
    }
}

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
    /// The same, added to main gradients of this type, as training over microbatches does.
    AccumulatedWeightGradient(GradientType),
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
    /// What is multiplied.
    pub operands: Operands,
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
        self.operands.bytes() * self.k as f64 * (self.m + self.n) as f64
    }

    fn result_bytes(&self) -> f64 {
        let width = match (self.role, self.operands.is_cast()) {
            (Role::AccumulatedWeightGradient(main), _) => 2 * main.bytes(), // read and written
            (Role::WeightGradient, true) => 4, // written, as it was measured
            _ => self.operands.result_bytes(),
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
    /// What is multiplied.
    pub operands: Operands,
    /// What it is for.
    pub role: Role,
}

impl GroupedGemm {
    /// Multiplications and additions of all experts.
    pub fn flops(&self) -> f64 {
        2.0 * self.tokens as f64 * (self.n * self.k) as f64
    }

    /// Bytes of tokens, weights and results, in 16 bits; main gradients are read and written,
    /// and written only where fp8 operands give them, as it was measured.
    pub fn bytes(&self) -> f64 {
        let Self { groups, tokens, n, k, .. } = *self;
        let width = match (self.role, self.operands.is_cast()) {
            (Role::AccumulatedWeightGradient(main), _) => 2.0 * main.bytes() as f64,
            (Role::WeightGradient, true) => 4.0,
            _ => 2.0,
        };
        2.0 * tokens as f64 * (n + k) as f64 + width * groups as f64 * (n * k) as f64
    }

    /// How large the product of one expert is.
    pub(super) fn size(&self) -> Size {
        let each = self.tokens / self.groups.max(1);
        match self.role {
            Role::Forward | Role::InputGradient => Size::of(each, self.n, self.k),
            Role::WeightGradient | Role::AccumulatedWeightGradient(_) => {
                Size::of(self.n.max(self.k), self.n.min(self.k), each)
            }
        }
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
