//! What a GPU can do, as far as kernels feel it.
//!
//! Measured kernels are carried from the H200 to another GPU term by term:
//!
//! * matrix products by their sustained rate: the best measured product times the share of it that
//!   a long run holds. On the 700 W Hopper boards that share is 0.87 (power caps the clock near
//!   1.5 GHz; 690 of 794 TFLOP/s), on an A100 0.95 (257 of 271; Horace He, thonking.ai).
//! * attention by the share of the data-sheet peak, unless the chip's products fall short of that:
//!   FlashAttention-2 reaches 73 % of an A100's peak forward and 63 % backward (Dao, arXiv
//!   2307.08691, section 4.1), cuDNN measured here 69 % and 60 % of an H200's.
//! * bytes by bandwidth. Kernels far below the bandwidth are bound by issue, and go by
//!   multiprocessors times clock instead.

use fabric::hardware::{Figure, Gpu};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rates of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GpuRates {
    /// Dense bf16 peak in TFLOP/s.
    pub peak_bf16_tflops: f64,
    /// Best measured bf16 matrix product in TFLOP/s.
    pub matmul_bf16_tflops: f64,
    /// Best measured fp8 matrix product in TFLOP/s. Left out, fp8 products run as bf16.
    pub matmul_fp8_tflops: Option<f64>,
    /// Share of the best product that long runs hold under the board's power limit.
    pub matmul_sustained: f64,
    /// Memory bandwidth in 10⁹ bytes per second, by data sheet.
    pub memory_gbytes_s: f64,
    /// Share of the bandwidth that a large copy reaches.
    pub memory_efficiency: f64,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: u32,
    /// Their boost clock in GHz.
    pub clock_ghz: f64,
    /// Rate of FlashAttention-2 as a share of the fastest attention kernel's.
    pub flash2_share: f64,
}

impl Default for GpuRates {
    fn default() -> Self {
        Self::h200()
    }
}

impl GpuRates {
    /// The GPU that was measured, `data/README.md`. Peak, bandwidth and best products: vendor
    /// tables and measurements in ml-engineering, compute/accelerator (the bf16 product is the
    /// H100's, the same chip). Clock: read on the measured card. The others: computed from the
    /// measured tables (large copies 4.38 TB/s; products 690 and attention 681 against
    /// FlashAttention-2's 361 TFLOP/s).
    pub fn h200() -> Self {
        Self {
            peak_bf16_tflops: 989.0,
            matmul_bf16_tflops: 794.5,
            matmul_fp8_tflops: Some(1453.0),
            matmul_sustained: 0.87,
            memory_gbytes_s: 4800.0,
            memory_efficiency: 0.91,
            multiprocessors: 132,
            clock_ghz: 1.98,
            flash2_share: 0.53,
        }
    }

    /// How the terms of measured kernels scale from the measured GPU to this one.
    pub(super) fn ratios(&self) -> Ratios {
        let reference = Self::h200();
        let bf16 = |rates: &Self| rates.matmul_bf16_tflops * rates.matmul_sustained;
        let fp8 = |rates: &Self| rates.matmul_fp8_tflops.map(|best| best * rates.matmul_sustained);
        let issue = |rates: &Self| f64::from(rates.multiprocessors) * rates.clock_ghz;
        let matrix = bf16(self) / bf16(&reference);
        Ratios {
            matrix,
            matrix_fp8: fp8(self).zip(fp8(&reference)).map(|(ours, theirs)| ours / theirs),
            attention: matrix.min(self.peak_bf16_tflops / reference.peak_bf16_tflops),
            flash2: self.flash2_share / reference.flash2_share,
            memory: self.bandwidth() / reference.bandwidth(),
            issue: issue(self) / issue(&reference),
        }
    }

    /// Bytes per microsecond that a large copy reaches, times 10⁻⁶.
    pub(super) fn bandwidth(&self) -> f64 {
        self.memory_gbytes_s * self.memory_efficiency * 1e-3
    }
}

impl From<&Gpu> for GpuRates {
    /// The rates of a GPU of the catalogue.
    fn from(gpu: &Gpu) -> Self {
        let measured = Self::h200();
        let or = |figure: &Option<Figure>, otherwise| {
            figure.as_ref().map_or(otherwise, |figure| figure.value)
        };
        Self {
            peak_bf16_tflops: gpu.bf16_tflops.value,
            matmul_bf16_tflops: gpu.matmul_bf16_tflops.value,
            matmul_fp8_tflops: gpu.matmul_fp8_tflops.as_ref().map(|figure| figure.value),
            matmul_sustained: or(&gpu.matmul_sustained, 1.0),
            memory_gbytes_s: gpu.memory_gbytes_s.value,
            memory_efficiency: measured.memory_efficiency,
            multiprocessors: gpu.sms.value as u32,
            clock_ghz: or(&gpu.clock_ghz, measured.clock_ghz),
            flash2_share: or(&gpu.flash2_share, 1.0),
        }
    }
}

/// Rates of a GPU as multiples of the measured one's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratios {
    pub matrix: f64,
    pub matrix_fp8: Option<f64>,
    pub attention: f64,
    pub flash2: f64,
    pub memory: f64,
    pub issue: f64,
}
