//! Cross-validation over the measured kernels, and sums of kernels against whole layers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::curve::TERMS;
use super::layer::TokenSplit;
use super::layer::{Dropout, Layer, Pass};
use super::rates::{Heads, Size};
use super::table::{Family, Launch, Sample, samples};
use super::*;
use crate::config::{AttentionKernel, Fp8Recipe, Precision};
use crate::model::{Biases, Experts, LayerKind, Masking, Mlp, Model, Norm};
use crate::parallel::GradientType;

const EXPERTS: &str = include_str!("../../data/h200_experts.csv");
const LAYERS: &str = include_str!("../../data/h200_layers.csv");

fn group(family: Family) -> String {
    match family {
        Family::Gemm(launch, width, _) => format!("gemm {launch:?} {width:?}"),
        Family::Batched(_) => "batched".to_owned(),
        Family::Grouped(width, _) => format!("grouped {width:?}"),
        Family::Attention(launch, fused, direction) => {
            format!("attention {launch:?} {fused:?} {direction:?}")
        }
        Family::Memory(launch, _) => format!("memory {launch:?}"),
    }
}

/// Every row predicted by a timer that has not seen its fifth, as predicted / measured − 1.
fn held_back() -> Vec<(Sample, f64)> {
    let all = samples();
    let mut errors = Vec::new();
    for fold in 0..5 {
        let seen: Vec<Sample> =
            all.iter().enumerate().filter(|(i, _)| i % 5 != fold).map(|(_, s)| *s).collect();
        let timer = Timer::from_samples(&seen);
        for (_, sample) in all.iter().enumerate().filter(|(i, _)| i % 5 == fold) {
            let predicted = match sample.family {
                Family::Memory(Launch::Alone, _) => {
                    timer.alone(&sample.kernel, &GpuRates::h200()).as_secs_f64() * 1e6
                }
                family => timer.curve(family).predict(&sample.kernel.shape(), &[1.0; TERMS]),
            };
            errors.push((*sample, predicted / sample.us - 1.0));
        }
    }
    errors
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Cross-validation: no kernel is predicted with its own measurement. Rows, median and 90 % error.
#[test]
fn held_back_kernels_are_predicted() {
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (sample, error) in held_back() {
        for name in [group(sample.family), "all".to_owned()] {
            groups.entry(name).or_default().push(error.abs());
        }
    }
    let mut table = String::new();
    for (name, mut errors) in groups {
        errors.sort_by(f64::total_cmp);
        let (median, tail) = (quantile(&errors, 0.5), quantile(&errors, 0.9));
        let count = errors.len();
        let [middle, far] = [median, tail].map(|error| error * 100.0);
        writeln!(table, "{name:34} {count:4} {middle:4.1} % {far:4.1} %").unwrap();
        assert!(median <= 0.06, "{name}: median error {median}");
    }
    insta::assert_snapshot!(table, @r"
    all                                4866  1.8 %  7.4 %
    attention Alone Fastest Backward     40  3.0 %  9.1 %
    attention Alone Fastest Forward      40  3.0 % 15.2 %
    attention Stream Fastest Backward    70  3.4 %  9.6 %
    attention Stream Fastest Forward     70  2.3 %  6.5 %
    attention Stream Flash2 Backward     64  1.5 %  6.5 %
    attention Stream Flash2 Forward      64  1.6 %  6.2 %
    batched                             108  2.2 %  7.1 %
    gemm Alone Eight                    345  2.1 %  9.2 %
    gemm Alone Sixteen                  537  1.8 %  7.7 %
    gemm Stream Eight                   792  1.7 %  4.5 %
    gemm Stream EightByBlock            300  2.1 %  8.1 %
    gemm Stream Sixteen                1252  1.9 %  6.5 %
    grouped Eight                        96  3.7 % 12.4 %
    grouped Sixteen                     128  3.8 %  8.1 %
    memory Alone                         18  1.9 %  4.1 %
    memory Stream                       942  0.9 % 10.7 %
    ");
}

/// A measured layer: its model, its share of it, the pass and the microseconds.
struct Measured {
    model: Model,
    fp8: bool,
    attention: &'static str,
    sizes: [u64; 3],
    backward: bool,
    us: f64,
}

impl Measured {
    fn parse(line: &'static str) -> Self {
        let words: Vec<&str> = line.split(',').collect();
        let [hidden, ffn, heads, kv_heads, head_dim, length, batch, tensor] =
            std::array::from_fn(|i| words[3 + i].parse().unwrap());
        let gpt = words[0] == "gpt";
        let mut model = Model::preset("llama3-8b").unwrap();
        model = Model { hidden, ffn, heads, kv_heads, head_dim, ..model };
        if gpt {
            (model.mlp, model.norm, model.biases) = (Mlp::Gelu, Norm::Layer, Biases::ALL);
            model.positions = length;
        }
        Self {
            model,
            fp8: words[1] == "fp8",
            attention: words[2],
            sizes: [length, batch, tensor],
            backward: words[11] == "bwd",
            us: words[12].parse().unwrap(),
        }
    }

    /// The sum of the layer's predicted kernels. FlashAttention-2 on the measured GPU is half of
    /// what the first generation is taken for. The measured fp8 layers cast by kernels of their own
    /// with scales that are known, and add up forward with as many bits as backward.
    fn predicted(&self) -> f64 {
        let [length, batch, tensor] = self.sizes;
        let gpt = self.model.mlp == Mlp::Gelu;
        let layer = Layer {
            tensor,
            precision: if self.fp8 { Precision::Fp8 } else { Precision::Bf16 },
            recipe: Fp8Recipe::Current,
            attention: match self.attention {
                "unfused" => AttentionKernel::Unfused,
                "flash2" => AttentionKernel::Flash1,
                _ => AttentionKernel::Flash,
            },
            dropout: if gpt { Dropout::Applied } else { Dropout::Absent },
            ..Layer::new(&self.model, batch, length)
        };
        let passes: &[Pass] = if self.backward {
            &[Pass::InputGradient, Pass::WeightGradient]
        } else {
            &[Pass::Forward]
        };
        let kernels = passes.iter().flat_map(|&pass| layer.kernels(LayerKind::Dense, pass));
        let time = |mut kernel: Kernel| {
            match &mut kernel {
                Kernel::Memory(Memory { kind: MemoryKind::Fp8Amax, .. }) => return 0.0,
                Kernel::Gemm(gemm) if gemm.operands == Operands::Fp8 => {
                    gemm.role = match gemm.role {
                        Role::Forward => Role::InputGradient,
                        Role::AccumulatedWeightGradient(_) => Role::WeightGradient,
                        role => role,
                    };
                }
                _ => {}
            }
            let us = Timer::measured().time(&kernel, &GpuRates::h200()).as_secs_f64() * 1e6;
            let flash2 =
                matches!(kernel, Kernel::Attention(a) if a.kernel == AttentionKernel::Flash1);
            if flash2 { us / 2.0 } else { us }
        };
        kernels.map(time).sum()
    }
}

/// Agreement: a layer's time is the sum of its kernels', forward and backward, for every measured
/// layer. Layers are never fitted to.
#[test]
fn kernels_add_up_to_layers() {
    let (mut table, mut worst, mut total) = (String::new(), 0.0_f64, 0.0);
    let layers: Vec<Measured> = LAYERS.lines().skip(1).map(Measured::parse).collect();
    for layer in &layers {
        let error = layer.predicted() / layer.us - 1.0;
        let Measured { model, attention, sizes: [length, batch, tensor], .. } = layer;
        let kind = if model.mlp == Mlp::Gelu { "gpt" } else { "llama" };
        let precision = if layer.fp8 { "fp8" } else { "bf16" };
        let pass = if layer.backward { "backward" } else { "forward" };
        writeln!(
            table,
            "{kind:5} {:5} {precision} {attention:7} {batch}x{length} tp {tensor} {pass:8} {:9.1} us \
             {:+5.1} %",
            model.hidden,
            layer.us,
            error * 100.0
        )
        .unwrap();
        (worst, total) = (worst.max(error.abs()), total + error.abs());
    }
    let mean = total / layers.len() as f64;
    assert!(worst <= 0.08 && mean <= 0.02, "{table}mean {mean:.3}, worst {worst:.3}");
}

/// Agreement: the same of mixtures of experts, whose norms and residuals are their own rank's.
#[test]
fn kernels_add_up_to_experts() {
    let (mut table, mut worst) = (String::new(), 0.0_f64);
    for line in EXPERTS.lines().skip(1) {
        let words: Vec<&str> = line.split(',').collect();
        let [hidden, ffn, count, local, top_k, shared, tokens] =
            std::array::from_fn(|i| words[i].parse().unwrap());
        let mut model = Model::preset("mixtral-8x7b").unwrap();
        let experts = Experts { count, top_k, shared, ffn, ..model.experts.unwrap() };
        (model.hidden, model.experts) = (hidden, Some(experts));
        let layer = Layer { expert: count / local, ..Layer::new(&model, 1, tokens) };
        let passes: &[Pass] = match words[7] {
            "fwd" => &[Pass::Forward],
            _ => &[Pass::InputGradient, Pass::WeightGradient],
        };
        let kernels = passes.iter().flat_map(|&pass| layer.feed_forward(LayerKind::Moe, pass));
        let sum: f64 = kernels.map(|kernel| us_unfused(&kernel)).sum();
        let measured: f64 = words[8].parse().unwrap();
        let error = sum / measured - 1.0;
        let percent = error * 100.0;
        writeln!(table, "{hidden} {count} {local} {} {measured} us {percent:+.1} %", words[7])
            .unwrap();
        worst = worst.max(error.abs());
    }
    assert!(worst <= 0.08, "{table}");
}

/// The measured experts add to their main gradients by a kernel of their own.
fn us_unfused(kernel: &Kernel) -> f64 {
    let h200 = GpuRates::h200();
    match *kernel {
        Kernel::GroupedGemm(gemm)
            if gemm.role == Role::AccumulatedWeightGradient(GradientType::Fp32) =>
        {
            let product = GroupedGemm { role: Role::WeightGradient, ..gemm };
            let added = MemoryKind::Accumulate.over(gemm.groups * gemm.n * gemm.k);
            us(&Kernel::GroupedGemm(product), &h200) + us(&Kernel::Memory(added), &h200)
        }
        other => us(&other, &h200),
    }
}

fn us(kernel: &Kernel, rates: &GpuRates) -> f64 {
    Timer::measured().time(kernel, rates).as_secs_f64() * 1e6
}

/// A GPU with these figures, and nothing published of its kernels but the given speeds.
fn gpu(figures: &[(&str, f64)], speeds: &[(&str, [f64; 3])]) -> GpuRates {
    let figure = |value: f64| serde_json::json!({"value": value, "source": "", "trust": "M"});
    let mut gpu = serde_json::json!({
        "title": "", "scale_up": "switched", "scale_up_name": "", "speed": {}
    });
    let known = [("memory_gb", 80.0), ("scale_up_gbytes_s", 300.0), ("power_w", 1.0)];
    for (key, value) in known.iter().chain(figures).chain(&[("price_usd", 1.0)]) {
        gpu[*key] = figure(*value);
    }
    for (key, [low, value, high]) in speeds {
        gpu["speed"][*key] = figure(*value);
        (gpu["speed"][*key]["low"], gpu["speed"][*key]["high"]) = ((*low).into(), (*high).into());
    }
    GpuRates::from(&serde_json::from_value::<fabric::hardware::Gpu>(gpu).unwrap())
}

/// Figures of an A100 80 GB: ml-engineering, compute/accelerator (vendor tables), and NVIDIA's A100
/// white paper for clock and multiprocessors.
const A100: [(&str, f64); 6] = [
    ("bf16_tflops", 312.0),
    ("matmul_bf16_tflops", 271.2),
    ("matmul_sustained", 0.95),
    ("memory_gbytes_s", 2000.0),
    ("sms", 108.0),
    ("clock_ghz", 1.41),
];

/// An A100 of which nothing is published, so that every speed follows by its rule.
fn a100() -> GpuRates {
    gpu(&A100, &[])
}

fn gemm(m: u64, n: u64, k: u64, operands: Operands) -> Kernel {
    Kernel::Gemm(Gemm { m, n, k, operands, role: Role::Forward })
}

fn attention(kernel: AttentionKernel, direction: Direction) -> Attention {
    Attention {
        batch: 1,
        queries: 16384,
        keys: 16384,
        heads: 16,
        kv_heads: 16,
        key_dim: 128,
        value_dim: 128,
        mask: Mask::Causal,
        direction,
        kernel,
    }
}

/// Oracle: large products on an A100 run at the rate that random numbers reach on it, 257 TFLOP/s
/// (Horace He, thonking.ai), and fp8 as bf16.
#[test]
fn products_are_carried_by_their_rate() {
    let large = gemm(8192, 8192, 8192, Operands::Bf16);
    let tflops = large.flops() / us(&large, &a100()) * 1e-6;
    assert!((244.0..270.0).contains(&tflops), "{tflops}");
    let eight = gemm(8192, 8192, 8192, Operands::Fp8);
    assert_eq!(us(&eight, &a100()), us(&large, &a100()));
    let gain = us(&large, &GpuRates::h200()) / us(&eight, &GpuRates::h200());
    assert!((1.8..2.1).contains(&gain), "{gain}");
}

/// Published: FlashAttention-2 reaches up to 73 % of an A100's peak forward and 63 % backward
/// (arXiv 2307.08691, section 4.1).
#[test]
fn attention_on_an_a100_is_as_published() {
    for (direction, published) in [(Direction::Forward, 0.73), (Direction::Backward, 0.63)] {
        let mut kernel = attention(AttentionKernel::Flash, direction);
        kernel.mask = Mask::Full;
        let share = kernel.flops() / us(&Kernel::Attention(kernel), &a100()) * 1e-6 / 312.0;
        assert!((share / published - 1.0).abs() < 0.15, "{direction:?}: {share}");
    }
}

/// Oracle: an H100 has an H200's chip and 3.35 of its 4.8 TB/s.
#[test]
fn memory_bound_kernels_are_carried_by_bandwidth_or_issue() {
    let h100 = gpu(
        &[
            ("bf16_tflops", 989.0),
            ("matmul_bf16_tflops", 794.5),
            ("memory_gbytes_s", 3350.0),
            ("sms", 132.0),
            ("clock_ghz", 1.98),
        ],
        &[],
    );
    let slower = |kind: MemoryKind, rates: &GpuRates| {
        let kernel = Kernel::Memory(kind.rows(8192, 8192));
        us(&kernel, rates) / us(&kernel, &GpuRates::h200())
    };
    let fast = |rates: &GpuRates| slower(MemoryKind::SwigluBackward, rates);
    assert!((fast(&h100) - 4.8 / 3.35).abs() < 0.1, "{}", fast(&h100));
    // Its rate is a third of the bandwidth, so less bandwidth does not slow it.
    assert!((slower(MemoryKind::Permute, &h100) - 1.0).abs() < 1e-9);
    assert!((fast(&a100()) - 2.4).abs() < 0.2, "{}", fast(&a100()));
    assert!(slower(MemoryKind::Permute, &a100()) < 1.8);
}

#[test]
fn old_attention_is_slower_and_made_of_its_parts() {
    for direction in [Direction::Forward, Direction::Backward] {
        let time = |kernel| us(&Kernel::Attention(attention(kernel, direction)), &a100());
        let flash = time(AttentionKernel::Flash);
        let first = time(AttentionKernel::Flash1) / flash;
        assert!((1.6..2.4).contains(&first), "{first}");
        // An A100's fastest is the second generation; a Hopper's is not.
        assert!((time(AttentionKernel::Flash2) / flash - 1.0).abs() < 0.3);
        let on_h200 =
            |kernel| us(&Kernel::Attention(attention(kernel, direction)), &GpuRates::h200());
        let second = on_h200(AttentionKernel::Flash2) / on_h200(AttentionKernel::Flash);
        assert!((1.5..2.2).contains(&second), "{second}");
        assert!(time(AttentionKernel::Unfused) > flash);
        let unfused = attention(AttentionKernel::Unfused, direction);
        let parts: f64 = unfused.unfused().iter().map(|kernel| us(kernel, &a100())).sum();
        assert!((time(AttentionKernel::Unfused) / parts - 1.0).abs() < 1e-6);
        let counted: f64 = unfused.unfused().iter().map(Kernel::flops).sum();
        assert_eq!(unfused.flops(), counted);
    }
}

/// Agreement: experts one after another are plain products one after another.
#[test]
fn a_loop_over_experts_is_a_sum_of_products() {
    let mut errors: Vec<f64> = Vec::new();
    let stream = include_str!("../../data/h200_stream.csv");
    for line in stream.lines().filter(|line| line.starts_with("grouped") && line.contains(",loop,"))
    {
        let words: Vec<&str> = line.split(',').collect();
        let [groups, tokens, n, k] = std::array::from_fn(|i| words[2 + i].parse::<u64>().unwrap());
        let one = us(&gemm(tokens / groups, n, k, Operands::Bf16), &GpuRates::h200());
        errors.push((groups as f64 * one / words[7].parse::<f64>().unwrap() - 1.0).abs());
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 20 && quantile(&errors, 0.5) < 0.06, "{errors:?}");
}

/// Property: more rows never take less time, on any GPU.
#[test]
fn work_costs_time() {
    for rates in [GpuRates::h200(), a100()] {
        for doublings in 0..8 {
            let tokens = 256 << doublings;
            let grows = |small: Kernel, large: Kernel| {
                let (small, large) = (us(&small, &rates), us(&large, &rates));
                assert!(0.0 < small && small < large, "{tokens}: {small} {large}");
            };
            let product = |m| gemm(m, 4096, 4096, Operands::Bf16);
            grows(product(tokens), product(2 * tokens));
            let norm = |rows| Kernel::Memory(MemoryKind::RmsNormForward.rows(rows, 4096));
            grows(norm(tokens), norm(2 * tokens));
        }
    }
}

/// Agreement: a layer's kernels do the operations that are counted from the model itself.
#[test]
fn a_layers_kernels_do_the_models_operations() {
    for name in ["llama3-70b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3"] {
        let model = Model::preset(name).unwrap();
        let layer = Layer::new(&model, 1, 4096);
        let flops =
            |kind| -> f64 { layer.kernels(kind, Pass::Forward).iter().map(Kernel::flops).sum() };
        let moe = model.moe_layers();
        let sum = moe as f64 * flops(LayerKind::Moe)
            + (model.layers - moe) as f64 * flops(LayerKind::Dense);
        let counted = model.forward_flops(4096, Masking::Causal);
        let expected = 4096.0 * (counted.layers + counted.attention) as f64;
        assert!((sum / expected - 1.0).abs() < 0.02, "{name}: {}", sum / expected);
    }
}

/// Published: 2.02 and 1.94 over an H200 on large products, and the ends of what sources say.
#[test]
fn a_published_speed_is_the_ratio_of_times() {
    let speeds = [("bf16_large", [1.95, 2.02, 2.08]), ("fp8_large", [1.90, 1.94, 1.98])];
    let b200 = gpu(&[&A100[..], &[("matmul_fp8_tflops", 3432.0)]].concat(), &speeds);
    for (operands, [low, middle, high]) in
        [(Operands::Bf16, speeds[0].1), (Operands::Fp8, speeds[1].1)]
    {
        // The result's bytes go by the memory, so the ratio is not quite the products' own.
        let large = gemm(16384, 16384, 16384, operands);
        let faster = |rates: &GpuRates| us(&large, &GpuRates::h200()) / us(&large, rates);
        assert!((faster(&b200) / middle - 1.0).abs() < 0.06, "{}", faster(&b200));
        let [slow, fast] = [End::Slow, End::Fast].map(|end| faster(&b200.at(end)));
        assert!(slow < faster(&b200) && faster(&b200) < fast);
        assert!((fast / slow / (high / low) - 1.0).abs() < 0.1, "{slow} {fast}");
    }
    let large = gemm(8192, 8192, 8192, Operands::Bf16);
    let kernels = [large, Kernel::Memory(MemoryKind::Copy.over(1 << 20))];
    assert_eq!(b200.extrapolated(&kernels), ["memory", "norm_backward"]);
    assert_eq!(b200.extrapolated(&[gemm(8192, 2048, 2048, Operands::Bf16)]), ["bf16_narrow"]);
    assert!(GpuRates::h200().extrapolated(&kernels).is_empty());
}

/// Rule: what a GPU lacks runs as the next best that it has.
#[test]
fn operands_that_a_gpu_lacks_run_as_others() {
    let h200 = GpuRates::h200();
    assert_eq!(h200.runs(Operands::Fp4), Operands::Fp8Block);
    assert_eq!(h200.runs(Operands::Mxfp8), Operands::Fp8Block);
    assert_eq!(a100().runs(Operands::Mxfp8), Operands::Bf16);
    let speeds = [("fp8_large", [1.9, 1.94, 2.0]), ("mxfp8_large", [1.9, 2.1, 2.2])];
    let b200 = gpu(&A100, &speeds);
    assert_eq!(b200.runs(Operands::Fp8Block), Operands::Mxfp8);
    assert_eq!(b200.runs(Operands::Fp4), Operands::Mxfp8);
    assert_eq!(b200.class_of(Operands::Fp8, Size::of(4096, 4096, 4096)).key(), "fp8_large");
    assert_eq!(b200.class_of(Operands::Mxfp8, Size::of(1024, 4096, 4096)).key(), "mxfp8_short");
}

/// Measured: block scales cost a tenth forward and more than a quarter in the gradient of weights,
/// whose both operands have scales along the inner size.
#[test]
fn block_scales_cost_what_was_measured() {
    let time = |operands, role| {
        let kernel = Kernel::Gemm(Gemm { m: 8192, n: 8192, k: 8192, operands, role });
        us(&kernel, &GpuRates::h200())
    };
    let loss = |role| time(Operands::Fp8Block, role) / time(Operands::Fp8, role);
    assert!((1.05..1.25).contains(&loss(Role::Forward)), "{}", loss(Role::Forward));
    let weights = loss(Role::AccumulatedWeightGradient(GradientType::Fp32));
    assert!((1.3..1.5).contains(&weights), "{weights}");
}

/// Rule: heads that nobody published backward lose there what they lose forward.
#[test]
fn narrow_heads_lose_as_much_backward() {
    let speeds = [
        ("attention_forward", [1.9, 2.0, 2.1]),
        ("attention_backward", [1.7, 1.8, 1.9]),
        ("attention_forward_64", [1.4, 1.5, 1.6]),
    ];
    let rates = gpu(&A100, &speeds);
    let ratio = rates.ratio(Class::Attention(Direction::Backward, Heads::Narrow)).unwrap();
    assert!((ratio.value - 1.8 * 1.5 / 2.0).abs() < 1e-9 && ratio.extrapolated);
}

/// Property: a recipe that does more casts takes longer, and weights are never cast twice.
#[test]
fn recipes_differ_by_their_casts() {
    let model = Model::preset("llama3-8b").unwrap();
    let time = |recipe, pass| -> f64 {
        let precision = Precision::Fp8;
        let layer = Layer { precision, recipe, ..Layer::new(&model, 1, 8192) };
        let kernels = layer.kernels(LayerKind::Dense, pass);
        kernels.iter().map(|kernel| us(kernel, &GpuRates::h200())).sum()
    };
    let recipes = [Fp8Recipe::Fused, Fp8Recipe::Delayed, Fp8Recipe::Current];
    for pass in [Pass::Forward, Pass::InputGradient] {
        let times = recipes.map(|recipe| time(recipe, pass));
        assert!(times.is_sorted_by(|a, b| a < b), "{pass:?} {times:?}");
    }
    let weights = recipes.map(|recipe| time(recipe, Pass::WeightGradient));
    assert!(weights.iter().all(|us| (us / weights[0] - 1.0).abs() < 1e-9), "{weights:?}");
}

/// Agreement: tokens as a router deals them out against whole tiles (`data/README.md`),
/// microseconds of forward, input gradient and weight gradient. Twenty experts are left out there:
/// 1,228.8 tokens are no whole tiles either.
#[test]
fn routed_tokens_take_as_long_as_some_more_rows() {
    let measured = [
        (32, 1024, [2910.5, 2925.9, 3148.5], [3224.3, 3271.2, 3333.1]),
        (32, 1024, [1572.2, 1499.5, 1638.3], [1703.3, 1660.7, 1673.4]),
        (8, 2048, [1469.5, 1490.6, 1503.8], [1542.8, 1555.7, 1508.2]),
        (4, 8192, [3016.5, 3021.1, 2920.4], [3028.2, 3057.6, 2938.2]),
        (64, 512, [660.7, 635.5, 754.0], [757.0, 769.6, 777.5]),
    ];
    let model = Model::preset("mixtral-8x7b").unwrap();
    let rows = |pass| {
        let tokens = |dealt| {
            let layer = Layer { dealt, ..Layer::new(&model, 1, 4096) };
            let grouped = layer.kernels(LayerKind::Moe, pass).into_iter().find_map(|kernel| {
                if let Kernel::GroupedGemm(gemm) = kernel { Some(gemm.tokens) } else { None }
            });
            grouped.unwrap()
        };
        (tokens(TokenSplit::ByRouter) - tokens(TokenSplit::WholeTiles)) as f64 / 8.0
    };
    for (pass, columns) in [(Pass::Forward, 0..2), (Pass::WeightGradient, 2..3)] {
        let mut more: Vec<f64> = Vec::new();
        for (_, tokens, even, routed) in &measured {
            more.extend(columns.clone().map(|i| (routed[i] / even[i] - 1.0) * f64::from(*tokens)));
        }
        let mean = more.iter().sum::<f64>() / more.len() as f64;
        assert!((rows(pass) / mean - 1.0).abs() < 0.1, "{pass:?}: {mean}");
    }
}
