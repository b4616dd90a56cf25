//! Kernels to times: finds a kernel's family, and says what each of its terms costs on a GPU.
//!
//! A stream's time is the default, because training hides launches. What the tables lack follows
//! from what they hold, by a rule with a source: the first FlashAttention from the second, TF32
//! from bf16, block-scaled products of experts from plain ones, unfused attention from its parts.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use units::Span;

use super::Kernel;
use super::attention::Attention;
use super::curve::{Curve, Shape, TERMS};
use super::gemm::{BatchedGemm, Gemm, GroupedGemm, Operands, Role};
use super::memory::{Memory, MemoryKind};
use super::rates::{BANDWIDTH, Class, GpuRates, Size, heads_of};
use super::table::{Family, Fused, Launch, Sample, Width, samples};
use crate::config::AttentionKernel;
use crate::parallel::GradientType;

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
        Span::from_secs_f64(self.stream_us(kernel, rates) * 1e-6)
    }

    /// What kernels take one after another in a stream.
    pub fn total<'a>(
        &self,
        kernels: impl IntoIterator<Item = &'a Kernel>,
        rates: &GpuRates,
    ) -> Span {
        let us: f64 = kernels.into_iter().map(|kernel| self.stream_us(kernel, rates)).sum();
        Span::from_secs_f64(us * 1e-6)
    }

    /// What one launch of a kernel takes between two events on an otherwise idle GPU.
    pub fn alone(&self, kernel: &Kernel, rates: &GpuRates) -> Span {
        let us = match kernel {
            Kernel::Gemm(gemm) => self.gemm(gemm, Launch::Alone, rates),
            Kernel::Attention(attention) if attention.kernel == AttentionKernel::Flash => {
                self.fused(attention, Launch::Alone, Fused::Fastest, rates)
            }
            other => (self.stream_us(other, rates) + ALONE_GAP).max(ALONE_FLOOR),
        };
        Span::from_secs_f64(us * 1e-6)
    }

    fn stream_us(&self, kernel: &Kernel, rates: &GpuRates) -> f64 {
        match kernel {
            Kernel::Gemm(gemm) => self.gemm(gemm, Launch::Stream, rates),
            Kernel::BatchedGemm(gemm) => self.batched(gemm, rates),
            Kernel::GroupedGemm(gemm) => self.grouped(gemm, rates),
            Kernel::Attention(attention) => self.attention(attention, rates),
            Kernel::Memory(memory) => self.memory(memory, rates),
        }
    }

    /// The fit of a family.
    pub(super) fn curve(&self, family: Family) -> &Curve {
        let curve = self.curves.get(&family);
        curve.unwrap_or_else(|| unreachable!("{family:?} is not in the measured tables"))
    }

    fn gemm(&self, gemm: &Gemm, launch: Launch, rates: &GpuRates) -> f64 {
        let gemm = Gemm { operands: rates.runs(gemm.operands), ..*gemm };
        let speed = rates.speed(rates.class_of(gemm.operands, Size::of(gemm.m, gemm.n, gemm.k)));
        let memory = 1.0 / rates.speed(Class::Memory);
        let matrix = width_of(gemm.operands).1 / speed;
        self.product(&gemm, launch, &[1.0, matrix, memory, memory, 1.0])
    }

    /// A product whose terms cost `cost` times what they cost when measured.
    fn product(&self, gemm: &Gemm, launch: Launch, cost: &[f64; TERMS]) -> f64 {
        let width = match (launch, width_of(gemm.operands).0) {
            (Launch::Alone, Width::EightByBlock) => Width::Eight,
            (_, width) => width,
        };
        let role = match (launch, width, gemm.role) {
            (Launch::Alone, ..) => Role::InputGradient,
            // One layout for both roles.
            (_, Width::EightByBlock, Role::InputGradient) => Role::Forward,
            (_, Width::EightByBlock, Role::AccumulatedWeightGradient(_)) => Role::WeightGradient,
            (.., role) => role,
        };
        self.curve(Family::Gemm(launch, width, role)).predict(&gemm.shape(), cost)
    }

    fn batched(&self, gemm: &BatchedGemm, rates: &GpuRates) -> f64 {
        let role = match gemm.role {
            Role::AccumulatedWeightGradient(_) => Role::WeightGradient,
            role => role,
        };
        let (matrix, memory) = (rates.speed(Class::Bf16(Size::Large)), rates.speed(Class::Memory));
        let cost = [1.0, 1.0 / matrix, 1.0 / memory, 1.0 / memory, 1.0];
        self.curve(Family::Batched(role)).predict(&gemm.shape(), &cost)
    }

    /// Block-scaled products of experts were not measured: they lose what plain ones lose.
    fn grouped(&self, gemm: &GroupedGemm, rates: &GpuRates) -> f64 {
        let gemm = GroupedGemm { operands: rates.runs(gemm.operands), ..*gemm };
        let speed = rates.speed(rates.class_of(gemm.operands, gemm.size()));
        let (width, slower) = width_of(gemm.operands);
        let wider = if gemm.operands == Operands::Fp32 { 2.0 } else { 1.0 };
        let cost = [1.0, slower / speed, wider / rates.speed(Class::Memory), 1.0, 1.0];
        let (width, role) = match (width, gemm.role) {
            // Measured with fp32 only; the bytes are those of the gradients' own type.
            (Width::Sixteen, Role::AccumulatedWeightGradient(_)) => {
                (width, Role::AccumulatedWeightGradient(GradientType::Fp32))
            }
            (Width::Sixteen, role) => (width, role),
            (_, Role::AccumulatedWeightGradient(_)) => (Width::Eight, Role::WeightGradient),
            (_, role) => (Width::Eight, role),
        };
        let us = self.curve(Family::Grouped(width, role)).predict(&gemm.shape(), &cost);
        if gemm.operands == Operands::Fp8Block { us * self.block_loss(&gemm) } else { us }
    }

    /// Time of one expert's block-scaled product over that of the same with one scale per tensor.
    fn block_loss(&self, gemm: &GroupedGemm) -> f64 {
        let GroupedGemm { groups, tokens, n, k, role, .. } = *gemm;
        let each = (tokens / groups.max(1)).max(1);
        let (m, n, k) = match role {
            Role::Forward => (each, n, k),
            Role::InputGradient => (each, k, n),
            Role::WeightGradient | Role::AccumulatedWeightGradient(_) => (n, k, each),
        };
        let time = |operands| {
            let gemm = Gemm { m, n, k, operands, role };
            self.product(&gemm, Launch::Stream, &[1.0; TERMS])
        };
        time(Operands::Fp8Block) / time(Operands::Fp8)
    }

    fn attention(&self, attention: &Attention, rates: &GpuRates) -> f64 {
        match attention.kernel {
            AttentionKernel::Flash => self.fused(attention, Launch::Stream, Fused::Fastest, rates),
            AttentionKernel::Flash2 => self.fused(attention, Launch::Stream, Fused::Flash2, rates),
            AttentionKernel::Flash1 => {
                let second = self.fused(attention, Launch::Stream, Fused::Flash2, rates);
                FLASH1_SLOWDOWN * second
            }
            AttentionKernel::Unfused => {
                attention.unfused().iter().map(|kernel| self.stream_us(kernel, rates)).sum()
            }
        }
    }

    fn fused(&self, attention: &Attention, launch: Launch, fused: Fused, rates: &GpuRates) -> f64 {
        let fastest = rates.speed(heads_of(attention));
        let rate = match fused {
            Fused::Fastest => fastest,
            Fused::Flash2 => fastest * rates.flash2(),
        };
        let mut cost = [1.0 / rate; TERMS];
        cost[0] = 1.0;
        let family = Family::Attention(launch, fused, attention.direction);
        self.curve(family).predict(&attention.shape(), &cost)
    }

    fn memory(&self, memory: &Memory, rates: &GpuRates) -> f64 {
        let memory = Memory { kind: cast_on(rates, memory.kind), ..*memory };
        let curve = self.curve(Family::Memory(Launch::Stream, memory.kind.name()));
        let (bytes, issue) = (rates.speed(Class::Memory), rates.speed(Class::NormBackward));
        // A kernel that reached only part of the measured GPU's bandwidth was held back by issue:
        // it is carried by that, unless the other GPU's memory then becomes the limit.
        let full = 1.0 / BANDWIDTH;
        let slower = |coefficient: f64| {
            let share = if coefficient > full { full / coefficient } else { 1.0 };
            (share / bytes).max(if share < 1.0 { 1.0 / issue } else { 0.0 })
        };
        let mut cost = curve.coefficients().map(slower);
        cost[0] = 1.0;
        curve.predict(&memory.shape(), &cost)
    }
}

/// The casts that a GPU needs. Matrix units that read MXFP8 (Transformer Engine: compute capability
/// 10 and above) take fp8 operands in any layout, so nothing is transposed, and scale blocks of 32
/// by kernels at the bandwidth.
fn cast_on(rates: &GpuRates, kind: MemoryKind) -> MemoryKind {
    match kind {
        MemoryKind::Fp8CastTranspose if rates.has_mxfp8() => MemoryKind::Fp8Cast,
        MemoryKind::Fp8BlockTranspose if rates.has_mxfp8() => MemoryKind::Fp8CastTranspose,
        kind => kind,
    }
}

/// How operands run: the table to look in, and the cost of an operation.
fn width_of(operands: Operands) -> (Width, f64) {
    match operands {
        Operands::Bf16 => (Width::Sixteen, 1.0),
        Operands::Fp32 => (Width::Sixteen, TF32_SLOWDOWN),
        Operands::Fp8 | Operands::Mxfp8 | Operands::Fp4 => (Width::Eight, 1.0),
        Operands::Fp8Block => (Width::EightByBlock, 1.0),
    }
}
