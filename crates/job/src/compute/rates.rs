//! What a GPU can do, as far as kernels feel it: its speed over the measured H200, by class.
//!
//! A kernel's time on another GPU is its time on the H200 over the speed of its [`Class`]. The
//! catalogue has these speeds from published kernels: one collector on both GPUs, equal shapes. So
//! nothing is multiplied twice: what a long run loses to the power limit (0.89 of a burst on H200
//! and B200 alike) stands on both sides. What nobody has published follows by a rule:
//!
//! * products by the best measured product times the share of it that a long run holds, over the
//!   H200's; narrow and short ones as large ones.
//! * attention by the products, unless the data-sheet peak grows less.
//! * bytes by bandwidth. Kernels far below the bandwidth are bound by issue, and go by
//!   multiprocessors times clock instead.
//!
//! Such a speed counts as extrapolated ([`GpuRates::extrapolated`]). Sources that differ give a
//! speed ends; [`GpuRates::at`] has the rates at one of them.

use std::collections::{BTreeMap, BTreeSet};

use fabric::hardware::{Figure, Gpu};
use serde::Serialize;

use super::Kernel;
use super::attention::{Attention, Direction};
use super::gemm::Operands;

/// How large a product is, as far as GPUs differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// From 2,048 rows on, both sides of the weights at least 4,096.
    Large,
    /// From 2,048 rows on, a side of the weights below 4,096.
    Narrow,
    /// Below 2,048 rows.
    Short,
}

impl Size {
    /// The size of an m × k matrix times a k × n matrix.
    pub fn of(m: u64, n: u64, k: u64) -> Self {
        match (m, n.min(k)) {
            (..2048, _) => Self::Short,
            (_, ..4096) => Self::Narrow,
            _ => Self::Large,
        }
    }
}

/// Width of attention's heads, as far as GPUs differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heads {
    /// Up to 96 channels.
    Narrow,
    /// 128 and more.
    Wide,
    /// Keys wider than values.
    Mla,
}

/// Kernels that share a speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Products in bf16.
    Bf16(Size),
    /// Products in fp8, one scale per tensor.
    Fp8(Size),
    /// Products in fp8, a scale per block of 128.
    Fp8Block,
    /// Products in MXFP8, over fp8 with one scale per tensor.
    Mxfp8(Size),
    /// Products in 4 bits, over fp8 with one scale per tensor.
    Fp4,
    /// Fused attention.
    Attention(Direction, Heads),
    /// Kernels at the memory's bandwidth.
    Memory,
    /// Kernels that stay below it.
    NormBackward,
}

/// Every class with its key in the catalogue's `speed`.
const CLASSES: [(Class, &str); 19] = [
    (Class::Bf16(Size::Large), "bf16_large"),
    (Class::Bf16(Size::Narrow), "bf16_narrow"),
    (Class::Bf16(Size::Short), "bf16_short"),
    (Class::Fp8(Size::Large), "fp8_large"),
    (Class::Fp8(Size::Narrow), "fp8_narrow"),
    (Class::Fp8(Size::Short), "fp8_short"),
    (Class::Fp8Block, "fp8_block"),
    (Class::Mxfp8(Size::Large), "mxfp8_large"),
    (Class::Mxfp8(Size::Narrow), "mxfp8_narrow"),
    (Class::Mxfp8(Size::Short), "mxfp8_short"),
    (Class::Fp4, "fp4"),
    (Class::Attention(Direction::Forward, Heads::Wide), "attention_forward"),
    (Class::Attention(Direction::Backward, Heads::Wide), "attention_backward"),
    (Class::Attention(Direction::Forward, Heads::Narrow), "attention_forward_64"),
    (Class::Attention(Direction::Backward, Heads::Narrow), "attention_backward_64"),
    (Class::Attention(Direction::Forward, Heads::Mla), "attention_forward_mla"),
    (Class::Attention(Direction::Backward, Heads::Mla), "attention_backward_mla"),
    (Class::Memory, "memory"),
    (Class::NormBackward, "norm_backward"),
];

impl Class {
    /// Its key in the catalogue's `speed`.
    pub fn key(self) -> &'static str {
        let entry = CLASSES.iter().find(|(class, _)| *class == self);
        entry.map(|(_, key)| *key).expect("every class is listed")
    }

    /// The class that stands for this one where nothing is published of it, and counts as much.
    fn otherwise(self) -> Option<Self> {
        let forward = Direction::Forward;
        Some(match self {
            Self::Bf16(Size::Short) => Self::Bf16(Size::Narrow),
            Self::Bf16(Size::Narrow) => Self::Bf16(Size::Large),
            Self::Fp8(Size::Short) => Self::Fp8(Size::Narrow),
            Self::Fp8(Size::Narrow) | Self::Fp8Block => Self::Fp8(Size::Large),
            Self::Mxfp8(Size::Short) => Self::Mxfp8(Size::Narrow),
            Self::Mxfp8(Size::Narrow) => Self::Mxfp8(Size::Large),
            Self::Attention(Direction::Backward, Heads::Wide) => {
                Self::Attention(forward, Heads::Wide)
            }
            Self::Attention(direction, Heads::Mla) => Self::Attention(direction, Heads::Wide),
            Self::Attention(Direction::Forward, Heads::Narrow) => {
                Self::Attention(forward, Heads::Wide)
            }
            _ => return None,
        })
    }
}

/// A speed over the measured GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The middle of what is known.
    pub value: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// Whether it follows by a rule instead of from a published kernel.
    pub extrapolated: bool,
}

impl Ratio {
    /// How far a rule may be off: what the rules of this file say of the chips whose kernels are
    /// published differs from those by up to so much (B200's fp8 products 2.36 against 1.94).
    const RULE: f64 = 0.2;

    fn published(figure: &Figure) -> Self {
        let (low, high) = figure.ends();
        Self { value: figure.value, low, high, extrapolated: false }
    }

    fn by_rule(value: f64) -> Self {
        let (low, high) = (value * (1.0 - Self::RULE), value * (1.0 + Self::RULE));
        Self { value, low, high, extrapolated: true }
    }

    fn times(self, factor: f64) -> Self {
        let Self { value, low, high, .. } = self;
        Self { value: value * factor, low: low * factor, high: high * factor, extrapolated: true }
    }

    fn at(self, end: End) -> Self {
        let value = match end {
            End::Slow => self.low,
            End::Fast => self.high,
        };
        Self { value, ..self }
    }
}

/// An end of what is known of a GPU's speeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The least speed of every class.
    Slow,
    /// The most.
    Fast,
}

/// The rates of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuRates {
    /// Dense bf16 peak in TFLOP/s.
    pub peak_bf16_tflops: f64,
    /// Streaming multiprocessors or compute units.
    pub multiprocessors: u32,
    speeds: BTreeMap<Class, Ratio>,
    /// Rate of FlashAttention-2 as a share of the fastest attention kernel's.
    flash2_share: f64,
}

impl Default for GpuRates {
    fn default() -> Self {
        Self::h200()
    }
}

/// What the measured H200 reaches in long runs, `data/README.md`: products of large matrices in
/// TFLOP/s, large copies as a share of 4.8 TB/s, and FlashAttention-2 over cuDNN's attention.
const BF16_TFLOPS: f64 = 691.0;
const FP8_TFLOPS: f64 = 1264.0;
const PEAK_TFLOPS: f64 = 989.0;
const GBYTES_S: f64 = 4800.0;
const COPY_SHARE: f64 = 0.91;
const ISSUE: f64 = 132.0 * 1.98;
const FLASH2_SHARE: f64 = 0.53;

/// Bytes per microsecond that a large copy reaches on the measured GPU, times 10⁻⁶.
pub(super) const BANDWIDTH: f64 = GBYTES_S * COPY_SHARE * 1e-3;

impl GpuRates {
    /// The GPU that was measured: one in every class that it has.
    pub fn h200() -> Self {
        let has = |class: &Class| !matches!(class, Class::Mxfp8(_) | Class::Fp4);
        let one = Ratio { value: 1.0, low: 1.0, high: 1.0, extrapolated: false };
        let classes = CLASSES.iter().map(|(class, _)| *class).filter(has);
        Self {
            peak_bf16_tflops: PEAK_TFLOPS,
            multiprocessors: 132,
            speeds: classes.map(|class| (class, one)).collect(),
            flash2_share: FLASH2_SHARE,
        }
    }

    /// The same GPU with every speed at an end of what is known of it.
    #[must_use]
    pub fn at(&self, end: End) -> Self {
        let speeds = self.speeds.iter().map(|(class, ratio)| (*class, ratio.at(end)));
        Self { speeds: speeds.collect(), ..self.clone() }
    }

    /// What is known of a class, if the GPU has it.
    pub fn ratio(&self, class: Class) -> Option<Ratio> {
        self.speeds.get(&class).copied()
    }

    /// Whether its products run in fp8.
    pub fn has_fp8(&self) -> bool {
        self.speeds.contains_key(&Class::Fp8(Size::Large))
    }

    /// Whether its products run in MXFP8.
    pub fn has_mxfp8(&self) -> bool {
        self.speeds.contains_key(&Class::Mxfp8(Size::Large))
    }

    /// Whether its products run in 4 bits.
    pub fn has_fp4(&self) -> bool {
        self.speeds.contains_key(&Class::Fp4)
    }

    /// The operands that products run with on this GPU, where it lacks those that were asked for.
    pub fn runs(&self, operands: Operands) -> Operands {
        match operands {
            Operands::Fp4 if !self.has_fp4() => self.runs(Operands::Mxfp8),
            // Transformer Engine runs block scales as MXFP8 where the GPU has that.
            Operands::Fp8Block if self.has_mxfp8() => Operands::Mxfp8,
            Operands::Mxfp8 if !self.has_mxfp8() => self.runs(Operands::Fp8Block),
            Operands::Fp8 | Operands::Fp8Block if !self.has_fp8() => Operands::Bf16,
            has => has,
        }
    }

    /// The class of a product with operands that the GPU has.
    pub fn class_of(&self, operands: Operands, size: Size) -> Class {
        match self.runs(operands) {
            Operands::Bf16 | Operands::Fp32 => Class::Bf16(size),
            Operands::Fp8 => Class::Fp8(size),
            Operands::Fp8Block => Class::Fp8Block,
            Operands::Mxfp8 => Class::Mxfp8(size),
            Operands::Fp4 => Class::Fp4,
        }
    }

    /// The classes of kernels whose speed follows by a rule, by their keys in the catalogue.
    pub fn extrapolated<'k>(&self, kernels: impl IntoIterator<Item = &'k Kernel>) -> Vec<String> {
        let classes: BTreeSet<Class> =
            kernels.into_iter().flat_map(|kernel| self.classes(kernel)).collect();
        let by_rule = |class: &Class| self.ratio(*class).is_some_and(|ratio| ratio.extrapolated);
        classes.into_iter().filter(by_rule).map(|class| class.key().to_owned()).collect()
    }

    /// The classes that a kernel's time goes by.
    fn classes(&self, kernel: &Kernel) -> Vec<Class> {
        match kernel {
            Kernel::Gemm(gemm) => {
                vec![self.class_of(gemm.operands, Size::of(gemm.m, gemm.n, gemm.k))]
            }
            Kernel::BatchedGemm(_) => vec![Class::Bf16(Size::Large)],
            Kernel::GroupedGemm(gemm) => vec![self.class_of(gemm.operands, gemm.size())],
            Kernel::Attention(attention) => vec![heads_of(attention)],
            Kernel::Memory(_) => vec![Class::Memory, Class::NormBackward],
        }
    }

    /// The speed of a class; one that the GPU lacks is never asked for.
    pub(super) fn speed(&self, class: Class) -> f64 {
        let ratio = self.ratio(class);
        ratio.unwrap_or_else(|| unreachable!("{class:?} is not among the GPU's kernels")).value
    }

    /// FlashAttention-2's share of the fastest attention, over the measured GPU's.
    pub(super) fn flash2(&self) -> f64 {
        self.flash2_share / FLASH2_SHARE
    }
}

/// The class of fused attention.
pub(super) fn heads_of(attention: &Attention) -> Class {
    let heads = match (attention.key_dim, attention.value_dim) {
        (keys, values) if values < keys => Heads::Mla,
        (..=96, _) => Heads::Narrow,
        _ => Heads::Wide,
    };
    Class::Attention(attention.direction, heads)
}

impl From<&Gpu> for GpuRates {
    /// The rates of a GPU of the catalogue.
    fn from(gpu: &Gpu) -> Self {
        let published: BTreeMap<&str, Ratio> = (gpu.speed.figures().into_iter())
            .filter_map(|(key, figure)| Some((key, Ratio::published(figure?))))
            .collect();
        let mut speeds: BTreeMap<Class, Ratio> = CLASSES
            .iter()
            .filter_map(|(class, key)| Some((*class, *published.get(key)?)))
            .collect();
        for (class, ratio) in by_rule(gpu, &speeds) {
            speeds.entry(class).or_insert(ratio);
        }
        // What has another class to stand for it, after that one: the list is in such an order.
        for (class, _) in CLASSES {
            let other = class.otherwise().and_then(|other| speeds.get(&other).copied());
            if let Some(ratio) = other {
                speeds.entry(class).or_insert(Ratio { extrapolated: true, ..ratio });
            }
        }
        narrow_backward(&mut speeds);
        let share = gpu.flash2_share.as_ref().map_or(1.0, |figure| figure.value);
        Self {
            peak_bf16_tflops: gpu.bf16_tflops.value,
            multiprocessors: gpu.sms.value as u32,
            speeds,
            flash2_share: share,
        }
    }
}

/// What data sheets and best products say, where no kernel is published.
fn by_rule(gpu: &Gpu, published: &BTreeMap<Class, Ratio>) -> Vec<(Class, Ratio)> {
    let or = |figure: &Option<Figure>, otherwise| {
        figure.as_ref().map_or(otherwise, |figure| figure.value)
    };
    let lasts = or(&gpu.matmul_sustained, 1.0);
    let bf16 = gpu.matmul_bf16_tflops.value * lasts / BF16_TFLOPS;
    let products = published.get(&Class::Bf16(Size::Large)).map_or(bf16, |ratio| ratio.value);
    let attention = products.min(gpu.bf16_tflops.value / PEAK_TFLOPS);
    let issue = gpu.sms.value * or(&gpu.clock_ghz, 1.98) / ISSUE;
    let forward = Class::Attention(Direction::Forward, Heads::Wide);
    let mut ratios = vec![
        (Class::Bf16(Size::Large), bf16),
        (forward, attention),
        (Class::Memory, gpu.memory_gbytes_s.value / GBYTES_S),
        (Class::NormBackward, issue),
    ];
    if let Some(best) = &gpu.matmul_fp8_tflops {
        ratios.push((Class::Fp8(Size::Large), best.value * lasts / FP8_TFLOPS));
    }
    ratios.into_iter().map(|(class, value)| (class, Ratio::by_rule(value))).collect()
}

/// Attention backward with narrow heads loses what forward loses.
fn narrow_backward(speeds: &mut BTreeMap<Class, Ratio>) {
    let attention = |direction, heads| Class::Attention(direction, heads);
    let value = |class| speeds.get(&class).map(|ratio: &Ratio| ratio.value);
    let [narrow, wide] = [Heads::Narrow, Heads::Wide].map(|h| attention(Direction::Forward, h));
    let loss = value(narrow).zip(value(wide)).map_or(1.0, |(narrow, wide)| narrow / wide);
    if let Some(ratio) = speeds.get(&attention(Direction::Backward, Heads::Wide)).copied() {
        let class = attention(Direction::Backward, Heads::Narrow);
        speeds.entry(class).or_insert(ratio.times(loss));
    }
}
