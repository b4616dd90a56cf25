//! Counts and bytes of whole steps.

use super::*;
use crate::config::{BatchConfig, Dispatcher, JobConfig};
use crate::dispatch::Dispatch;
use crate::model::Masking;
use crate::model::{Model, Usual, Vision};
use crate::parallel::{CpExchange, GradientType, ParallelConfig, Sharding, StageSplit};
use crate::resolve::{Site, resolve};
use crate::schedule::Schedule;

const SITE: Site = Site { gpus: 1 << 20, gpus_per_node: 8, scale_up: 8 };

fn program(name: &str, change: impl FnOnce(&mut JobConfig)) -> Program {
    let mut config = JobConfig::default();
    change(&mut config);
    let job = resolve(&config, Model::preset(name).unwrap(), &SITE).unwrap().0;
    Program::new(&job)
}

/// Programs of all kinds.
fn zoo() -> Vec<Program> {
    let deepseek = |dispatcher, schedule| {
        program("deepseek-v3", |config| {
            config.schedule = schedule;
            config.batch = BatchConfig { sequences: 15_360, micro: 1, length: 4096 };
            config.moe.dispatcher = Some(dispatcher);
            config.moe.skew = 0.3;
            config.parallel =
                ParallelConfig { pp: 16, dp: Some(128), ep: 64, ..ParallelConfig::default() };
        })
    };
    let llama = |sharding, cp_exchange, sequence_parallel| {
        program("llama3-70b", |config| {
            config.recompute = Usual::Full.into();
            config.schedule = Schedule::Interleaved;
            config.batch.sequences = 512;
            config.parallel = ParallelConfig {
                tp: 4,
                cp: 2,
                pp: 4,
                vpp: 5,
                dp: Some(16),
                sharding,
                cp_exchange,
                sequence_parallel,
                ..ParallelConfig::default()
            };
        })
    };
    vec![
        deepseek(Dispatcher::AllToAll, Schedule::DualPipe),
        deepseek(Dispatcher::DeepEp, Schedule::ZeroBubble),
        llama(Sharding::None, CpExchange::Ring, true),
        llama(Sharding::Zero2, CpExchange::AllGather, false),
        llama(Sharding::Fsdp, CpExchange::Ring, true),
        llama(Sharding::Hybrid, CpExchange::Ring, true),
        gpt3(),
        mixtral(Some(1), 8),
        mixtral(Some(2), 8),
        seeing(Some(1)),
        seeing(None),
    ]
}

/// Mixtral with experts that are cut otherwise than the rest.
fn mixtral(etp: Option<u64>, ep: u64) -> Program {
    program("mixtral-8x7b", |config| {
        config.batch = BatchConfig { sequences: 256, micro: 1, length: 4096 };
        config.schedule = Schedule::Interleaved;
        let (tp, pp, vpp, dp) = (4, 2, 2, Some(16));
        config.parallel = ParallelConfig { tp, pp, vpp, dp, ep, etp, ..ParallelConfig::default() };
        config.parallel.overlap.push(Axis::Ep);
    })
}

/// CLIP's ViT-L/14 at 336 points, twice in a sequence.
const LARGE: Vision = Vision {
    layers: 24,
    hidden: 1024,
    heads: 16,
    ffn: 4096,
    patches: 576,
    patch: 588,
    merge: 1,
    images: 2,
};

/// Llama with a vision encoder, on four stages of two tensor ranks.
fn seeing(vision_tp: Option<u64>) -> Program {
    let mut model = Model::preset("llama3-8b").unwrap();
    model.vision = Some(LARGE);
    let config = JobConfig {
        batch: BatchConfig { sequences: 64, micro: 1, length: 4096 },
        parallel: ParallelConfig {
            tp: 2,
            pp: 4,
            dp: Some(4),
            vision_tp,
            stage_split: Some(StageSplit::Balanced),
            ..ParallelConfig::default()
        },
        ..JobConfig::default()
    };
    Program::new(&resolve(&config, model, &SITE).unwrap().0)
}

/// The case of HPN (SIGCOMM'24, doi 10.1145/3651890.3672265), table 3.
fn gpt3() -> Program {
    program("gpt3-175b", |config| {
        config.batch = BatchConfig { sequences: 512 * 64, micro: 1, length: 2048 };
        config.parallel = ParallelConfig {
            tp: 8,
            pp: 8,
            dp: Some(512),
            sharding: Sharding::None,
            gradients: GradientType::Bf16,
            ..ParallelConfig::default()
        };
    })
}

/// Property: whatever is sent is received, on every axis of every program.
#[test]
fn all_that_is_sent_is_received() {
    for program in zoo() {
        for axis in Axis::ALL {
            let Volume { sent, received } = program.volumes(axis);
            assert_eq!(sent, received, "{} {axis:?}", program.job.model.name);
        }
        for counted in program.counted() {
            let Volume { sent, received } = program.volume(&counted);
            assert_eq!(sent, received, "{counted:?}");
        }
    }
}

/// Oracle: each pass of each microbatch crosses each boundary once, in both directions.
#[test]
fn pipelines_send_what_their_schedules_cross() {
    for program in zoo() {
        let job = &program.job;
        let pipeline = program.pipeline();
        let boundaries = job.parts() - 1;
        let messages = 2 * boundaries * pipeline.microbatches * job.layout.gpus() / job.layout.pp;
        let counted = program.counted();
        let sent: u64 = counted
            .iter()
            .filter(|counted| counted.call.kind == GroupKind::Pipeline)
            .map(|counted| counted.groups * counted.times)
            .sum();
        assert_eq!(sent, messages, "{}", job.model.name);
    }
}

fn sum(program: &Program, stage: u64, pick: impl Fn(&Call) -> bool) -> u64 {
    let counted = program.counted();
    let at_stage = counted.iter().filter(|counted| counted.stage == stage && pick(&counted.call));
    at_stage.map(|counted| counted.call.bytes.get() * counted.times).sum()
}

/// The published volumes of GPT-3 175B with TP 8, PP 8, DP 512 (HPN, table 3: data 5.5 GB,
/// pipeline 6 MB, tensor 560 MB) and what they are here:
///
/// * Data: 5.5 GB is the buffer that a GPU all-reduces once per step, its gradients in bf16
///   (5.44 GB in a middle stage). On its wires that is 2(n-1)/n times as much, 10.9 GB; in fp32
///   twice that again.
/// * Pipeline: 6 MB is one message of one GPU, one microbatch of one sequence, cut by tensor
///   parallelism (6.29 MB). A step has one each way for every microbatch.
/// * Tensor: 560 MB is none of the sums that the algorithm gives, which with sequence
///   parallelism are for one microbatch of one sequence and the 12 layers of a stage: 1.21 GB of
///   gathers forward and as much of scatters, half of either per block of the layer. The nearest
///   is one of the four collectives of each layer: 604 MB as nccl-tests counts them (+8 %),
///   528 MB on a GPU's wires (-6 %). So the row holds to 8 %, for one collective per layer of a
///   stage, forward, and understates a step's tensor traffic by far.
#[test]
fn gpt_3_beside_the_published_volumes() {
    let program = gpt3();
    let off = |bytes: u64, published: f64| bytes as f64 / published - 1.0;
    let stage = 3;
    let data = sum(&program, stage, |call| call.axis() == Axis::Dp);
    assert!(off(data, 5.5e9).abs() < 0.015, "{data}");
    let message = program.message().get();
    assert_eq!(message, 2_048 * 12_288 * 2 / 8);
    assert!(off(message, 6e6).abs() < 0.05, "{message}");

    let layer = program.calls_of(Unit::Layer(LayerKind::Dense, Reach::Sequence), Pass::Forward);
    assert_eq!(layer.len(), 4);
    let one: u64 = 12 * layer[0].bytes.get();
    assert_eq!(one, 12 * 2_048 * 12_288 * 2);
    assert!((0.07..0.09).contains(&off(one, 560e6)), "{one}");
    let on_wires = one * 7 / 8;
    assert!((-0.07..-0.05).contains(&off(on_wires, 560e6)), "{on_wires}");
    let all: u64 = layer.iter().map(|call| 12 * call.bytes.get()).sum();
    assert_eq!(all, 4 * one);
    let step = sum(&program, stage, |call| call.kind == GroupKind::Tensor);
    // Ten collectives a layer with the backward pass, 64 microbatches; and the norms' gradients.
    let norms = program.job.stage_held(stage).whole * 2;
    assert_eq!(step, 64 * 10 * one + norms);
}

/// One step of a 1T-parameter model over 10,240 GPUs beside the "1 to 2 TB per iteration across
/// 10,000 GPUs" of the comparative analysis: that is the size of the gradients in bf16 counted
/// once (2.0 TB), 1 TB with one byte each. What crosses wires is 2(n-1)/n of it for each of the
/// 20 copies, 77 TB in all, and tensor traffic, which stays in the node, is forty times that
/// again at 160 microbatches.
#[test]
fn a_trillion_parameters_beside_the_told_terabytes() {
    // The largest model of Narayanan et al. (arXiv 2104.04473), table 1.
    let model = Model {
        name: "gpt-1008b".into(),
        layers: 128,
        hidden: 25_600,
        ffn: 4 * 25_600,
        heads: 160,
        kv_heads: 160,
        head_dim: 160,
        ..Model::preset("gpt-529.6b").unwrap()
    };
    let config = JobConfig {
        batch: BatchConfig { sequences: 20 * 160, micro: 1, length: 2048 },
        parallel: ParallelConfig {
            tp: 8,
            pp: 64,
            dp: Some(20),
            sharding: Sharding::None,
            gradients: GradientType::Bf16,
            ..ParallelConfig::default()
        },
        ..JobConfig::default()
    };
    let program = Program::new(&resolve(&config, model, &SITE).unwrap().0);
    let tera = |bytes: u128| bytes as f64 / 1e12;
    let counted = program.counted();
    let gradients: u64 = counted
        .iter()
        .filter(|counted| counted.call.kind == GroupKind::Gradient)
        .map(|counted| counted.call.bytes.get() * counted.times * counted.groups)
        .sum();
    assert!((tera(gradients.into()) / 2.02 - 1.0).abs() < 0.01, "{gradients}");
    let data = program.volumes(Axis::Dp).sent;
    assert!((tera(data) / 76.6 - 1.0).abs() < 0.01, "{data}");
    let tensor = program.volumes(Axis::Tp).sent / data;
    assert!((38..42).contains(&tensor), "{tensor}");
}

/// Oracle: sharding changes what is exchanged as its papers say.
#[test]
fn data_parallel_volumes_are_those_of_the_papers() {
    let moved = |sharding, reduction| {
        let program = program("llama3-8b", |config| {
            config.batch.sequences = 64 * 4;
            config.parallel = ParallelConfig {
                dp: Some(64),
                sharding,
                reduction,
                gradients: GradientType::Bf16,
                ..ParallelConfig::default()
            };
        });
        assert_eq!(program.job.microbatches, 4);
        let parameters = u128::from(program.job.model.parameters().total());
        // In units of one ring pass over all parameters in bf16.
        program.volumes(Axis::Dp).sent as f64 / (parameters * 2 * 63) as f64
    };
    let once = Some(crate::parallel::Reduction::Once);
    // An all-reduce is a scatter and a gather: ZeRO-1 and 2 cost nothing more (arXiv 1910.02054,
    // section 7), unless gradients are reduced for every microbatch.
    assert_eq!(moved(Sharding::None, None), 2.0);
    assert_eq!(moved(Sharding::Zero1, None), 2.0);
    assert_eq!(moved(Sharding::Zero2, once), 2.0);
    assert_eq!(moved(Sharding::Zero2, None), 4.0 + 1.0);
    // ZeRO-3 gathers twice for each of the four microbatches: 1.5 times with one of them.
    assert_eq!(moved(Sharding::Zero3, None), 4.0 * 3.0);
    // FSDP without a pipeline reduces with every microbatch too, unless told to sum first.
    assert_eq!(moved(Sharding::Fsdp, None), 4.0 * 3.0);
    assert_eq!(moved(Sharding::Fsdp, once), 4.0 * 2.0 + 1.0);
    assert_eq!(moved(Sharding::FsdpNoReshard, None), 2.0);
}

/// Oracle: buckets part the gradients, and each waits for no more units than it needs.
#[test]
fn buckets_add_up() {
    for program in zoo() {
        let job = &program.job;
        if job.parallel.sharding.gathers_by_layer() {
            continue;
        }
        for part in &program.parts {
            let held = job.part_held(part.index).total();
            let sum: u64 = part.reductions.iter().map(|timed| timed.call.bytes.get()).sum();
            assert_eq!(sum, held * job.parallel.gradients.bytes());
            assert!(part.reductions.iter().all(|timed| timed.units <= part.units()));
            assert_eq!(part.reductions.iter().map(|timed| timed.units).max(), Some(part.units()));
            assert!(part.gathers.iter().all(|timed| timed.units < part.units()));
        }
    }
}

/// DeepSeek-V3's routing to four nodes bounds what its all-to-all moves: less than free routing,
/// which is less than a copy for each expert.
#[test]
fn limited_routing_moves_less() {
    use crate::config::RoutingLimit;
    let moved = |dispatcher, limit| {
        let program = program("deepseek-v3", |config| {
            config.batch = BatchConfig { sequences: 15_360, micro: 1, length: 4096 };
            config.schedule = Schedule::DualPipe;
            config.moe.dispatcher = Some(dispatcher);
            config.moe.limit = limit;
            config.parallel =
                ParallelConfig { pp: 16, dp: Some(128), ep: 64, ..ParallelConfig::default() };
        });
        program.volumes(Axis::Ep).sent as f64
    };
    let plain = moved(Dispatcher::AllToAll, RoutingLimit::None);
    let free = moved(Dispatcher::DeepEp, RoutingLimit::None);
    let limited = moved(Dispatcher::DeepEp, RoutingLimit::Model);
    assert!(limited < free && free < plain, "{limited} {free} {plain}");
}

/// Copies that experts have no room for do not travel, there or back, and are not gathered by
/// tensor ranks; room for all changes nothing.
#[test]
fn what_is_dropped_does_not_travel() {
    for (model, dispatcher) in
        [("mixtral-8x7b", Dispatcher::AllToAll), ("deepseek-v2", Dispatcher::DeepEp)]
    {
        let with = |factor, skew| {
            program(model, |config| {
                config.moe.dispatcher = Some(dispatcher);
                config.moe.capacity_factor = factor;
                config.moe.skew = skew;
                config.parallel =
                    ParallelConfig { dp: Some(16), ep: 8, ..ParallelConfig::default() };
            })
        };
        let sent = |program: &Program| {
            let Volume { sent, received } = program.volumes(Axis::Ep);
            assert_eq!(sent, received);
            sent as f64
        };
        let all = with(None, 0.0);
        assert_eq!(all.counted(), with(Some(1.0), 0.0).counted());
        let share = sent(&with(Some(0.1), 0.0)) / sent(&all);
        assert!((share - 0.1).abs() < 1e-6, "{model}: {share}");
        // A skew moves the bytes elsewhere; with a capacity it drops more of them.
        let skewed = sent(&with(Some(0.5), 2.0)) / sent(&all);
        assert!(0.0 < skewed && skewed < 0.5, "{model}: {skewed}");
    }
}

/// Hot ranks receive more on the way to experts and send more on the way back.
#[test]
fn calls_say_who_has_more() {
    use crate::dispatch::Spread;
    let spreads = |skew| -> Vec<Spread> {
        let program = program("mixtral-8x7b", |config| {
            config.moe.skew = skew;
            config.parallel = ParallelConfig { dp: Some(16), ep: 8, ..ParallelConfig::default() };
        });
        let kind = Unit::Layer(LayerKind::Moe, Reach::Sequence);
        let calls = program.calls_of(kind, Pass::Forward).into_iter();
        calls.filter(|call| call.kind == GroupKind::Expert).map(|call| call.spread).collect()
    };
    assert_eq!(spreads(0.0), [Spread::Even; 2]);
    assert_eq!(spreads(1.0), [Spread::Receivers, Spread::Senders]);
}

/// Golden: the calls of DeepSeek-V3's step at one stage.
#[test]
fn the_calls_of_a_stage() {
    let program = program("deepseek-v3", |config| {
        config.batch = BatchConfig { sequences: 15_360, micro: 1, length: 4096 };
        config.schedule = Schedule::DualPipe;
        config.precision = crate::config::Precision::Fp8;
        config.parallel =
            ParallelConfig { pp: 16, dp: Some(128), ep: 64, ..ParallelConfig::default() };
    });
    let mut table = String::new();
    for counted in program.counted().iter().filter(|counted| counted.stage == 3) {
        let Call { name, kind, collective, bytes, .. } = counted.call;
        let Counted { groups, times, .. } = counted;
        let line = format!(
            "{name:<32}{:<16}{:<15}{:>10} x {times:>4} on {groups} groups\n",
            format!("{kind:?}"),
            collective.name(),
            bytes.get(),
        );
        table.push_str(&line);
    }
    insta::assert_snapshot!(table, @r"
    tokens to experts               Expert          moe_dispatch     30277632 x  480 on 2 groups
    results to tokens               Expert          moe_combine      58720256 x  480 on 2 groups
    gradients to experts            Expert          moe_dispatch     30277632 x  480 on 2 groups
    gradients to tokens             Expert          moe_combine      58720256 x  480 on 2 groups
    weights                         Gradient        all_gather      256000000 x   14 on 1 groups
    weights                         Gradient        all_gather       71974912 x    2 on 1 groups
    experts' weights                ExpertGradient  all_gather      256000000 x   10 on 64 groups
    experts' weights                ExpertGradient  all_gather      129286144 x    2 on 64 groups
    gradients                       Gradient        reduce_scatter  512000000 x   14 on 1 groups
    gradients                       Gradient        reduce_scatter  143949824 x    2 on 1 groups
    experts' gradients              ExpertGradient  reduce_scatter  512000000 x   10 on 64 groups
    experts' gradients              ExpertGradient  reduce_scatter  258572288 x    2 on 64 groups
    activations                     Pipeline        send_recv        58720256 x  120 on 128 groups
    their gradients                 Pipeline        send_recv        58720256 x  120 on 128 groups
    gradients of the mirrored stage Mirror          all_reduce     2876821504 x    1 on 128 groups
    ");
}

/// A layout of 200,000 GPUs and a million sequences is as small as any.
#[test]
fn programs_do_not_grow_with_the_job() {
    let size = |dp: u64, sequences| {
        let program = program("llama3-405b", |config| {
            config.schedule = Schedule::Interleaved;
            config.batch.sequences = sequences;
            config.parallel = ParallelConfig {
                tp: 8,
                pp: 16,
                vpp: 8,
                dp: Some(dp),
                bucket: Some(Bytes::from_mib(512)),
                ..ParallelConfig::default()
            };
        });
        let order = program.pipeline().order(0);
        let slots: usize = order.segments.iter().map(|segment| segment.slots.len()).sum();
        (program.counted().len(), slots)
    };
    assert_eq!(size(16, 1 << 20), size(1_024, 1 << 20));
}

/// Agreement: the products of all kernels of a step, over all ranks, are the model's operations:
/// whole and cut, dense and with experts, with a causal mask, without multi-token prediction. The
/// scores differ: fused kernels compute them once more in the backward pass.
#[test]
fn kernels_do_the_models_operations() {
    use crate::compute::{GroupedGemm, Kernel};
    let check = |name: &str, parallel: ParallelConfig, schedule| {
        let mut model = Model::preset(name).unwrap();
        model.mtp_layers = 0;
        let batch = BatchConfig { sequences: 1024, micro: 1, length: 4096 };
        let config = JobConfig { parallel, schedule, batch, ..JobConfig::default() };
        let program = Program::new(&resolve(&config, model, &SITE).unwrap().0);
        let job = &program.job;
        let (mut products, mut scores) = (0.0, 0.0);
        for part in &program.parts {
            for piece in &part.pieces {
                for pass in [Pass::Forward, Pass::Input, Pass::Weight] {
                    for kernel in program.kernels_of(piece.unit, pass) {
                        let mut flops = kernel.flops() * piece.repeat as f64;
                        if let Kernel::GroupedGemm(GroupedGemm { groups, tokens, .. }) = kernel {
                            // The last tiles are not full.
                            let beside = if pass == Pass::Weight { 32 } else { 96 };
                            flops *= 1.0 - (beside * groups) as f64 / tokens as f64;
                        }
                        match kernel {
                            Kernel::Attention(_) => scores += flops,
                            _ => products += flops,
                        }
                    }
                }
            }
        }
        // Each rank of a stage does this for each of its microbatches.
        let ranks = (job.layout.tp * job.layout.cp * job.layout.dp) as f64;
        let per_token = ranks * job.microbatches as f64 / (1024.0 * 4096.0);
        let flops = job.model.model_flops(4096, Masking::Causal);
        let expected = (flops.layers + flops.head) as f64;
        let off = products * per_token / expected - 1.0;
        assert!(off.abs() < 0.01, "{name}: {off}");
        let off = scores * per_token / (flops.attention as f64 * 3.5 / 3.0) - 1.0;
        assert!(off.abs() < 0.01, "{name}: scores {off}");
    };
    let one = || ParallelConfig { dp: Some(4), ..ParallelConfig::default() };
    let plain = Schedule::OneForwardOneBackward;
    check("llama3-8b", one(), plain);
    check("llama3-405b", ParallelConfig { tp: 8, cp: 2, pp: 6, ..one() }, plain);
    check("gpt3-175b", ParallelConfig { tp: 8, pp: 8, ..one() }, plain);
    check("mixtral-8x7b", ParallelConfig { tp: 2, ep: 4, ..one() }, plain);
    check("mixtral-8x7b", ParallelConfig { tp: 4, ep: 8, etp: Some(1), ..one() }, plain);
    check("deepseek-v3", ParallelConfig { pp: 16, ep: 64, dp: Some(64), ..one() }, plain);
}

/// Agreement: operations told one by one are the calls that are counted in closed form, each behind
/// what it waits for; and every message that is sent is received, with the same tag.
#[test]
fn operations_are_what_is_counted() {
    for program in zoo() {
        let stages = program.job.layout.pp;
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let few = program.counted();
        for stage in 0..stages {
            let mut counts: Vec<(Call, u64)> = Vec::new();
            let mut told = 0;
            program.operations(stage, &mut |operation| {
                assert!(operation.after.iter().all(|before| *before < told));
                told += 1;
                let call = match operation.work {
                    operations::Work::Exchange(call) => call,
                    operations::Work::Send(message) => {
                        sent.push((stage, message.stage, message.tag, message.bytes));
                        message_call(message.name, message.bytes)
                    }
                    operations::Work::Receive(message) => {
                        received.push((message.stage, stage, message.tag, message.bytes));
                        return;
                    }
                    _ => return,
                };
                match counts.iter_mut().find(|(known, _)| *known == call) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((call, 1)),
                }
            });
            assert!(told <= program.operations_about(stage), "{told}");
            for (call, count) in &counts {
                // Of a mirrored pair the nearer stage counts, of tied embeddings the first.
                // What forward and backward passes both do is counted apart.
                let own = few.iter().filter(|one| one.stage == stage && one.call == *call);
                let times: u64 = own.map(|one| one.times).sum();
                assert_eq!(times, *count, "{call:?} at {stage}");
            }
            let is_told = |one: &&Counted| counts.iter().any(|(call, _)| *call == one.call);
            let untold = few.iter().filter(|one| one.stage == stage).find(|one| !is_told(one));
            assert_eq!(untold, None, "stage {stage} of {}", program.job.model.name);
        }
        sent.sort_unstable();
        received.sort_unstable();
        assert_eq!(sent, received);
        let tags: Vec<_> = sent.iter().map(|message| (message.0, message.1, message.2)).collect();
        assert!(tags.is_sorted_by(|a, b| a < b), "tags tell messages apart");
    }
}

/// Oracle: three times the forward operations of two images (no gradient of the images themselves,
/// and fused attention's scores once more), on one rank of the pair that deals them out or over
/// both that cut them; the tensor ranks gather 2 · 576 tokens of 4,096 channels, or sum twice a
/// layer.
#[test]
fn an_encoder_computes_and_exchanges_what_its_shape_says() {
    for (vision_tp, share) in [(Some(1), 1), (None, 2)] {
        let program = seeing(vision_tp);
        assert_eq!(program.job.images(), share);
        let count =
            |unit, pass| -> f64 { program.kernels_of(unit, pass).iter().map(Kernel::flops).sum() };
        let all = |unit| -> f64 {
            [Pass::Forward, Pass::Input, Pass::Weight].iter().map(|pass| count(unit, *pass)).sum()
        };
        let (p, h, wide) = (576.0, 1024.0, 4096.0);
        let [products, scores] = [24.0 * p * h * h, 4.0 * p * p * h];
        // One image whole, or two by half.
        assert_eq!(all(Unit::Encoder), 3.0 * products + 3.5 * scores);
        let cut = if share == 1 { 1.0 } else { 2.0 };
        let projector = 3.0 * 2.0 * p * (h * wide + wide * wide);
        let patches = cut * 2.0 * 2.0 * p * 588.0 * h;
        assert_eq!(all(Unit::Projector), projector + patches);
        let calls = |unit| program.calls_of(unit, Pass::Forward);
        let bytes = 2 * 576 * 4096 * 2;
        let gathered = calls(Unit::Projector).iter().map(|call| call.bytes.get()).sum::<u64>();
        assert_eq!(gathered, if share == 1 { bytes } else { 0 });
        assert_eq!(calls(Unit::Encoder).len(), if share == 1 { 0 } else { 4 });
    }
}

/// Balanced stages leave the first one, which sees, fewer layers; utilisation counts the images.
#[test]
fn a_stage_that_sees_has_fewer_layers() {
    let program = seeing(None);
    let layers = &program.job.stage_layers;
    assert!(layers[0] < layers[1] && layers.iter().sum::<u64>() == 32, "{layers:?}");
    let blind = Model::preset("llama3-8b").unwrap();
    let model = &program.job.model;
    let more = model.model_flops(4096, Masking::Causal).total()
        - blind.model_flops(4096, Masking::Causal).total();
    assert_eq!(more, 3 * (2 * LARGE.forward_flops(4096) / 4096));
    let parameters = model.parameters().total() - blind.parameters().total();
    assert_eq!(parameters, LARGE.parameters(4096));
    let held = program.job.vision_held();
    assert_eq!(2 * held.cut + held.whole, parameters);
}

/// Oracle: of eight experts on four ranks, the first two with three times the tokens of others
/// (loads 3, 3, 1, 1, 1, 1, 1, 1), the first rank has 2 of the mean, and its products, activation
/// and permutation take as many tokens; what it receives is twice the mean too.
#[test]
fn the_hottest_rank_is_waited_for() {
    let with = |loads: Option<Vec<f64>>| {
        program("mixtral-8x7b", |config| {
            config.batch = BatchConfig { sequences: 256, micro: 1, length: 4096 };
            config.moe.loads = loads;
            config.parallel = ParallelConfig { dp: Some(4), ep: 4, ..ParallelConfig::default() };
        })
    };
    let (even, hot) = (with(None), with(Some(vec![3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])));
    let unit = Unit::Layer(LayerKind::Moe, Reach::Sequence);
    let tokens = |program: &Program| {
        let kernels = program.kernels_of(unit, Pass::Forward).into_iter();
        let grouped = kernels.filter_map(|kernel| match kernel {
            Kernel::GroupedGemm(grouped) => Some(grouped.tokens),
            _ => None,
        });
        grouped.collect::<Vec<u64>>()
    };
    // Each of two experts has a tile that is not full.
    assert_eq!(tokens(&even), [2 * 4096 + 2 * 96; 2]);
    assert_eq!(tokens(&hot), [4 * 4096 + 2 * 96; 2]);
    let dispatch = Dispatch::of(&hot.job, 8).unwrap();
    assert_eq!(dispatch.hottest(), 2.0);
    let weights = dispatch.weights(Spread::Receivers, Collective::AllToAll);
    assert!((weights[0] - 2.0).abs() < 1e-12 && (weights[1] - 2.0 / 3.0).abs() < 1e-12);
}

/// Oracle: with experts uncut every tensor rank sends its own quarter of the tokens and nothing is
/// gathered; cut by two, two ranks gather their copies in both passes.
#[test]
fn expert_tensor_ranks_gather_each_others_tokens() {
    let (uncut, halved) = (mixtral(Some(1), 8), mixtral(Some(2), 8));
    let unit = Unit::Layer(LayerKind::Moe, Reach::Sequence);
    let of = |program: &Program, kind| {
        let calls = program.calls_of(unit, Pass::Forward).into_iter();
        calls.filter(|call| call.kind == kind).map(|call| call.bytes.get()).collect::<Vec<u64>>()
    };
    let copies = 2 * 4096 / 4 * 4096 * 2;
    assert_eq!(of(&uncut, GroupKind::Expert), [copies; 2]);
    assert_eq!(of(&uncut, GroupKind::ExpertTensor), [0; 0]);
    assert_eq!(of(&halved, GroupKind::Expert), [copies; 2]);
    assert_eq!(of(&halved, GroupKind::ExpertTensor), [2 * copies; 2]);
}

/// Oracle: a kernel that adds weight gradients reads 16 bits and the main gradient and writes it,
/// for every weight that a product has, of a layer and of the head.
#[test]
fn weight_gradients_may_be_added_by_kernels_of_their_own() {
    use crate::compute::{Kernel, MemoryKind};
    use crate::config::Accumulation::{self, Fused, Separate};
    let added = |accumulation: Accumulation, gradients| {
        let program = program("gpt3-175b", |config| {
            (config.accumulation, config.parallel.gradients) = (accumulation, gradients);
            (config.parallel.tp, config.parallel.dp) = (8, Some(8));
        });
        let units = [Unit::Layer(LayerKind::Dense, Reach::Sequence), Unit::Head];
        let kernels = units.iter().flat_map(|unit| work::of(&program.job, *unit, Pass::Weight));
        let bytes = kernels.map(|kernel| match kernel {
            Kernel::Memory(memory) if memory.kind == MemoryKind::Accumulate => kernel.bytes(),
            _ => 0.0,
        });
        bytes.sum::<f64>()
    };
    let weights = f64::from(12 * 12_288 + 51_200) * 12_288.0 / 8.0;
    assert_eq!(added(Fused, GradientType::Fp32), 0.0);
    assert_eq!(added(Separate, GradientType::Fp32), 10.0 * weights);
    assert!((added(Separate, GradientType::Bf16) / (6.0 * weights) - 1.0).abs() < 1e-6);
}

/// Rule: the recipe follows the software that trains such models, unless it is written.
#[test]
fn the_fp8_recipe_follows_the_model() {
    use crate::config::{Fp8Recipe, Precision};
    let recipe = |name: &str, written| {
        let program = program(name, |config| {
            (config.precision, config.fp8_recipe) = (Precision::Fp8, written);
            config.parallel.dp = Some(8);
        });
        program.job.fp8_recipe
    };
    assert_eq!(recipe("llama3-8b", None), Fp8Recipe::Delayed);
    assert_eq!(recipe("gpt3-175b", None), Fp8Recipe::Fused);
    assert_eq!(recipe("mixtral-8x7b", None), Fp8Recipe::Block);
    assert_eq!(recipe("mixtral-8x7b", Some(Fp8Recipe::Current)), Fp8Recipe::Current);
}

/// Nothing is extrapolated on the GPU that was measured.
#[test]
fn the_measured_gpu_is_not_extrapolated() {
    for name in ["llama3-8b", "mixtral-8x7b"] {
        let program = program(name, |config| {
            config.precision = crate::config::Precision::Fp8;
            config.parallel.dp = Some(8);
        });
        let rates = crate::compute::GpuRates::h200();
        assert!(work::extrapolated(&program.job, &rates).is_empty(), "{name}");
    }
}
