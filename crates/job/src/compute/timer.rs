//! Kernels to times: finds a kernel's family, and says what each of its terms costs on a GPU.
//!
//! A stream's time is the default, because training hides launches. What the tables lack follows
//! from what they hold, by a rule with a source: the first FlashAttention from the second, TF32
//! from bf16, grouped fp8 products from grouped bf16 ones, unfused attention from its parts.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use units::Span;

use super::Kernel;
use super::attention::Attention;
use super::curve::{Curve, Shape, TERMS};
use super::gemm::{BatchedGemm, Gemm, GroupedGemm, Role};
use super::memory::Memory;
use super::rates::{GpuRates, Ratios};
use super::table::{Family, Fused, Launch, Sample, Width, samples};
use crate::config::{AttentionKernel, Precision};

/// FlashAttention of the first generation takes twice the second's time ("around 2x speedup", Dao,
/// arXiv 2307.08691, abstract).
const FLASH1_SLOWDOWN: f64 = 2.0;
/// TF32 runs at half the bf16 rate on A100, H100 and B200 (their data sheets).
const TF32_SLOWDOWN: f64 = 2.0;
/// What a launch alone costs at least, and what it adds to a kernel longer than that, in
/// microseconds: single launches of `h200_kernels.csv` against the same kernels in a stream.
const ALONE_FLOOR: f64 = 30.0;
const ALONE_GAP: f64 = 10.0;

/// Predicts how long kernels take.
#[derive(Clone, Debug)]
pub struct Timer {
    curves: BTreeMap<Family, Curve>,
}

impl Timer {
    /// The timer over all measured kernels. Built on first use, in milliseconds.
    pub fn measured() -> &'static Self {
        static MEASURED: OnceLock<Timer> = OnceLock::new();
        MEASURED.get_or_init(|| Self::from_samples(&samples()))
    }

    pub(super) fn from_samples(samples: &[Sample]) -> Self {
        let mut families: BTreeMap<Family, Vec<(Shape, f64)>> = BTreeMap::new();
        // Memory-bound kernels alone are few and follow from their streams: no fit of their own.
        let fitted = |sample: &&Sample| !matches!(sample.family, Family::Memory(Launch::Alone, _));
        for sample in samples.iter().filter(fitted) {
            families.entry(sample.family).or_default().push((sample.kernel.shape(), sample.us));
        }
        let curves = families.into_iter().map(|(family, rows)| (family, Curve::fit(&rows)));
        Self { curves: curves.collect() }
    }

    /// What a kernel adds to a stream of kernels on a GPU.
    pub fn time(&self, kernel: &Kernel, rates: &GpuRates) -> Span {
        Span::from_secs_f64(self.stream_us(kernel, &rates.ratios()) * 1e-6)
    }

    /// What kernels take one after another in a stream.
    pub fn total<'a>(
        &self,
        kernels: impl IntoIterator<Item = &'a Kernel>,
        rates: &GpuRates,
    ) -> Span {
        let ratios = rates.ratios();
        let us: f64 = kernels.into_iter().map(|kernel| self.stream_us(kernel, &ratios)).sum();
        Span::from_secs_f64(us * 1e-6)
    }

    /// What one launch of a kernel takes between two events on an otherwise idle GPU.
    pub fn alone(&self, kernel: &Kernel, rates: &GpuRates) -> Span {
        let ratios = rates.ratios();
        let us = match kernel {
            Kernel::Gemm(gemm) => self.gemm(gemm, Launch::Alone, &ratios),
            Kernel::Attention(attention) if attention.kernel == AttentionKernel::Flash => {
                self.fused(attention, Launch::Alone, Fused::Fastest, &ratios)
            }
            other => (self.stream_us(other, &ratios) + ALONE_GAP).max(ALONE_FLOOR),
        };
        Span::from_secs_f64(us * 1e-6)
    }

    fn stream_us(&self, kernel: &Kernel, ratios: &Ratios) -> f64 {
        match kernel {
            Kernel::Gemm(gemm) => self.gemm(gemm, Launch::Stream, ratios),
            Kernel::BatchedGemm(gemm) => self.batched(gemm, ratios),
            Kernel::GroupedGemm(gemm) => self.grouped(gemm, ratios),
            Kernel::Attention(attention) => self.attention(attention, ratios),
            Kernel::Memory(memory) => self.memory(memory, ratios),
        }
    }

    /// The fit of a family.
    pub(super) fn curve(&self, family: Family) -> &Curve {
        let curve = self.curves.get(&family);
        curve.unwrap_or_else(|| unreachable!("{family:?} is not in the measured tables"))
    }

    fn gemm(&self, gemm: &Gemm, launch: Launch, ratios: &Ratios) -> f64 {
        let (width, matrix, wider) = arithmetic(gemm.precision, ratios);
        // fp8 products take both operands with k innermost, so there is one layout for two roles.
        let role = match (launch, width, gemm.role) {
            (Launch::Alone, ..) => Role::InputGradient,
            (_, Width::Eight, Role::InputGradient) => Role::Forward,
            (_, Width::Eight, Role::WeightGradient) => Role::AccumulatedWeightGradient,
            (.., role) => role,
        };
        let precision = if width == Width::Eight { Precision::Fp8 } else { Precision::Bf16 };
        let shape = Gemm { precision, ..*gemm }.shape();
        let memory = wider / ratios.memory;
        let cost = [1.0, matrix, memory, memory, 1.0];
        self.curve(Family::Gemm(launch, width, role)).predict(&shape, &cost)
    }

    fn batched(&self, gemm: &BatchedGemm, ratios: &Ratios) -> f64 {
        let role = match gemm.role {
            Role::AccumulatedWeightGradient => Role::WeightGradient,
            role => role,
        };
        let cost = [1.0, 1.0 / ratios.matrix, 1.0 / ratios.memory, 1.0 / ratios.memory, 1.0];
        self.curve(Family::Batched(role)).predict(&gemm.shape(), &cost)
    }

    /// Of grouped fp8 products only the forward ones were measured; the others gain as much.
    fn grouped(&self, gemm: &GroupedGemm, ratios: &Ratios) -> f64 {
        let role = match gemm.role {
            Role::AccumulatedWeightGradient => Role::WeightGradient,
            role => role,
        };
        let predict = |precision, role| {
            let (width, matrix, wider) = arithmetic(precision, ratios);
            let cost = [1.0, matrix, wider / ratios.memory, 1.0, 1.0];
            self.curve(Family::Grouped(width, role)).predict(&gemm.shape(), &cost)
        };
        match (gemm.precision, role) {
            (Precision::Fp8, Role::Forward) => predict(Precision::Fp8, role),
            (Precision::Fp8, _) => {
                let gain = predict(Precision::Fp8, Role::Forward)
                    / predict(Precision::Bf16, Role::Forward);
                gain * predict(Precision::Bf16, role)
            }
            (precision, _) => predict(precision, role),
        }
    }

    fn attention(&self, attention: &Attention, ratios: &Ratios) -> f64 {
        match attention.kernel {
            AttentionKernel::Flash => self.fused(attention, Launch::Stream, Fused::Fastest, ratios),
            AttentionKernel::Flash2 => self.fused(attention, Launch::Stream, Fused::Flash2, ratios),
            AttentionKernel::Flash1 => {
                let second = self.fused(attention, Launch::Stream, Fused::Flash2, ratios);
                FLASH1_SLOWDOWN * second
            }
            AttentionKernel::Unfused => {
                attention.unfused().iter().map(|kernel| self.stream_us(kernel, ratios)).sum()
            }
        }
    }

    fn fused(&self, attention: &Attention, launch: Launch, fused: Fused, ratios: &Ratios) -> f64 {
        let rate = match fused {
            Fused::Fastest => ratios.attention,
            Fused::Flash2 => ratios.attention * ratios.flash2,
        };
        let mut cost = [1.0 / rate; TERMS];
        cost[0] = 1.0;
        let family = Family::Attention(launch, fused, attention.direction);
        self.curve(family).predict(&attention.shape(), &cost)
    }

    fn memory(&self, memory: &Memory, ratios: &Ratios) -> f64 {
        let curve = self.curve(Family::Memory(Launch::Stream, memory.kind.name()));
        // A kernel that reached only part of the measured GPU's bandwidth was held back by issue:
        // it is carried by that, unless the other GPU's memory then becomes the limit.
        let full = 1.0 / GpuRates::h200().bandwidth();
        let slower = |coefficient: f64| {
            let share = if coefficient > full { full / coefficient } else { 1.0 };
            (share / ratios.memory).max(if share < 1.0 { 1.0 / ratios.issue } else { 0.0 })
        };
        let mut cost = curve.coefficients().map(slower);
        cost[0] = 1.0;
        curve.predict(&memory.shape(), &cost)
    }
}

/// How a precision runs: the table to look in, the cost of an operation, and of a byte.
fn arithmetic(precision: Precision, ratios: &Ratios) -> (Width, f64, f64) {
    match (precision, ratios.matrix_fp8) {
        (Precision::Fp8, Some(ratio)) => (Width::Eight, 1.0 / ratio, 1.0),
        (Precision::Fp32, _) => (Width::Sixteen, TF32_SLOWDOWN / ratios.matrix, 2.0),
        _ => (Width::Sixteen, 1.0 / ratios.matrix, 1.0),
    }
}
