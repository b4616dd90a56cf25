//! Every legal mix of parallelism is a job: a random sweep over sharding, schedules and degrees.
//!
//! A mix is drawn so that it is legal by construction (degrees that divide what they cut, the
//! microbatches that the schedule asks for); whatever comes out must resolve, conserve bytes, and
//! keep each parameter as often as its sharding says.

use std::collections::BTreeMap;

use job::config::{BatchConfig, Dispatcher, RoutingLimit};
use job::memory::{self, Usage};
use job::parallel::{CpExchange, GradientType, ParallelConfig, RankOrder, Reduction, Sharding};
use job::program::operations::Work;
use job::program::{Call, Volume};
use job::{Axis, GroupKind, Job, JobConfig, Model, Program, Schedule, Site, resolve};
use traffic::Collective;
use units::{Bytes, Random};

const SITE: Site = Site { gpus: 1 << 20, gpus_per_node: 8, scale_up: 8 };

const MODELS: [&str; 7] = [
    "llama3-8b",
    "llama3-70b",
    "gpt3-175b",
    "mixtral-8x7b",
    "deepseek-v2",
    "deepseek-v3",
    "grok-1",
];

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[usize::try_from(random.below(from.len() as u64)).unwrap()]
}

fn divisors(number: u64) -> Vec<u64> {
    (1..=number).filter(|divisor| number.is_multiple_of(*divisor)).collect()
}

/// A legal mix, whatever the dice say.
fn mix(random: &mut Random) -> (Model, JobConfig) {
    let model = Model::preset(pick(random, &MODELS)).unwrap();
    let widths = [model.heads, model.hidden, model.ffn, model.kv_heads];
    let cuts = |tp: &u64| widths.iter().all(|width| width.is_multiple_of(*tp));
    let ffn = model.experts.map_or(0, |experts| experts.ffn);
    let tps: Vec<u64> =
        (1..=16).filter(|tp| cuts(tp) && ffn.is_multiple_of(*tp) && 8192 % tp == 0).collect();
    let schedule = pick(random, &Schedule::ALL);
    let pp = match schedule {
        Schedule::DualPipe => pick(random, &[1, 2, 4, 8]),
        _ => pick(random, &[1, 2, 3, 5, 8]),
    };
    let interleaved = schedule == Schedule::Interleaved && 1 < pp;
    let vpp = if interleaved { pick(random, &[1, 2, 3]) } else { 1 };
    let microbatches = match schedule {
        Schedule::DualPipe => 2 * pp + 2 * random.below(3),
        _ if interleaved => pp * (1 + random.below(3)),
        _ => 1 + random.below(9),
    };
    let (cp, dp, micro) = (pick(random, &[1, 2, 4]), 1 + random.below(24), 1 + random.below(2));
    let copies = dp * cp;
    let eps: Vec<u64> = match &model.experts {
        Some(experts) => {
            divisors(copies).into_iter().filter(|ep| experts.count.is_multiple_of(*ep)).collect()
        }
        None => vec![1],
    };
    let sharding = pick(
        random,
        &[
            Sharding::None,
            Sharding::Zero1,
            Sharding::Zero2,
            Sharding::Zero3,
            Sharding::Fsdp,
            Sharding::FsdpNoReshard,
            Sharding::Hybrid,
            Sharding::Hybrid,
        ],
    );
    let shard = pick(random, &divisors(copies));
    let parallel = ParallelConfig {
        tp: pick(random, &tps),
        cp,
        pp,
        vpp,
        dp: Some(dp),
        ep: pick(random, &eps),
        sharding,
        shard_group: (sharding == Sharding::Hybrid).then_some(shard),
        sequence_parallel: pick(random, &[false, true]),
        cp_exchange: pick(random, &[CpExchange::Ring, CpExchange::AllGather]),
        order: pick(random, &[RankOrder::TpCpPpDp, RankOrder::TpCpDpPp]),
        gradients: pick(random, &[GradientType::Bf16, GradientType::Fp32]),
        reduction: pick(random, &[None, Some(Reduction::Once), Some(Reduction::EveryMicrobatch)]),
        bucket: pick(random, &[None, Some(Bytes::from_mib(100))]),
        overlap: pick(random, &[&[][..], &Axis::ALL, &[Axis::Dp]]).to_vec(),
        ..ParallelConfig::default()
    };
    let mut config = JobConfig { parallel, schedule, ..JobConfig::default() };
    config.batch = BatchConfig { sequences: microbatches * dp * micro, micro, length: 8192 };
    config.moe.dispatcher = pick(random, &[None, Some(Dispatcher::DeepEp)]);
    config.moe.limit = pick(random, &[RoutingLimit::Model, RoutingLimit::Devices(2)]);
    config.moe.skew = pick(random, &[0.0, 0.5]);
    (model, config)
}

/// Property: it resolves, what is sent is received, and what is told operation by operation is
/// what is counted.
#[test]
fn every_legal_mix_is_a_program_that_conserves_bytes() {
    let mut hybrids_with_experts = 0;
    for number in 0..400 {
        let mut random = Random::new(7, "mixes", number);
        let (model, config) = mix(&mut random);
        let job = resolve(&config, model, &SITE)
            .unwrap_or_else(|problems| panic!("mix {number}: {problems:?}\n{config:?}"))
            .0;
        let hybrid = config.parallel.sharding == Sharding::Hybrid && 1 < config.parallel.ep;
        hybrids_with_experts += u32::from(hybrid);
        let program = Program::new(&job);
        for axis in Axis::ALL {
            let Volume { sent, received } = program.volumes(axis);
            assert_eq!(sent, received, "mix {number}, {axis:?}: {config:?}");
        }
        told_is_counted(&program, number);
        copies_are_exact(&program, number);
        memory_adds_up(&job, number);
    }
    assert!(30 < hybrids_with_experts, "{hybrids_with_experts}");
}

fn told_is_counted(program: &Program, number: u64) {
    let counted = program.counted();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for stage in 0..program.job.layout.pp {
        let mut told: BTreeMap<(GroupKind, &str, Bytes), u64> = BTreeMap::new();
        program.operations(stage, &mut |operation| match operation.work {
            Work::Exchange(Call { kind, name, bytes, .. }) => {
                *told.entry((kind, name, bytes)).or_default() += 1;
            }
            Work::Send(message) => sent.push((stage, message.stage, message.tag, message.bytes)),
            Work::Receive(message) => {
                received.push((message.stage, stage, message.tag, message.bytes));
            }
            Work::Compute { .. } | Work::Optimize => {}
        });
        let mut few: BTreeMap<(GroupKind, &str, Bytes), u64> = BTreeMap::new();
        for one in counted.iter().filter(|one| one.stage == stage) {
            if one.call.kind != GroupKind::Pipeline {
                *few.entry((one.call.kind, one.call.name, one.call.bytes)).or_default() +=
                    one.times;
            }
        }
        assert_eq!(told, few, "mix {number}, stage {stage}");
    }
    sent.sort_unstable();
    received.sort_unstable();
    assert_eq!(sent, received, "mix {number}");
}

/// Gradients of every parameter meet all of its copies: scattered over those that share one,
/// summed over the others, in one collective or in two.
fn copies_are_exact(program: &Program, number: u64) {
    let job = &program.job;
    let layout = &job.layout;
    let size = |kind| layout.group_size(kind);
    assert_eq!(size(GroupKind::Shard) * size(GroupKind::Replica), size(GroupKind::Gradient));
    let experts = size(GroupKind::ExpertShard) * size(GroupKind::ExpertReplica);
    assert_eq!(experts, size(GroupKind::ExpertGradient), "mix {number}");
    for part in &program.parts {
        let held = job.part_held(part.index);
        let sides = [
            (held.dense(), [GroupKind::Gradient, GroupKind::Shard, GroupKind::Replica]),
            (
                held.experts,
                [GroupKind::ExpertGradient, GroupKind::ExpertShard, GroupKind::ExpertReplica],
            ),
        ];
        for (parameters, [all, shard, replica]) in sides {
            let bytes = parameters * job.parallel.gradients.bytes();
            let reduced = |kind| -> u64 {
                let of_kind = part.reductions.iter().filter(|timed| timed.call.kind == kind);
                of_kind.map(|timed| timed.call.bytes.get()).sum()
            };
            let expected = |kind, bytes| if size(kind) == 1 { 0 } else { bytes };
            if job.parallel.sharding == Sharding::Hybrid {
                assert_eq!(reduced(shard), expected(shard, bytes), "mix {number}");
                // Each unit's share is rounded up by itself.
                let share = reduced(replica) as f64 * size(shard) as f64;
                let off = (share - expected(replica, bytes) as f64).abs();
                assert!(off <= (part.units() * size(shard)) as f64, "mix {number}: {off}");
            } else {
                assert_eq!(reduced(all), expected(all, bytes), "mix {number}");
            }
        }
    }
}

fn memory_adds_up(job: &Job, number: u64) {
    let layout = &job.layout;
    for usage in memory::usage(job) {
        let Usage { stage, weights, gradients, optimizer, activations, logits, framework, .. } =
            usage;
        let sum = weights + gradients + optimizer + activations + logits + framework;
        assert_eq!(usage.total(), sum, "mix {number}");
        // Over all ranks of the stage's tensor slice, optimizer state is kept once for each copy
        // that is not shared, give or take a rounded parameter for each rank.
        let held = job.stage_held(stage);
        let copies = layout.dp * layout.cp;
        let shared = job.parallel.sharding != Sharding::None;
        let kept = |parameters: u64, all: u64, shard: GroupKind| {
            parameters * if shared { all / layout.group_size(shard) } else { all }
        };
        let expected = kept(held.dense(), copies, GroupKind::Shard)
            + layout.ep * kept(held.experts, copies / layout.ep, GroupKind::ExpertShard);
        let state = optimizer.get() / job.optimizer.bytes() * copies;
        assert!((expected..=expected + 2 * copies).contains(&state), "mix {number}: {state}");
    }
}

/// Oracle, by hand: Mixtral on 32 copies, its experts over 4 of them, shared by groups of 8. The
/// 8 copies of an expert are four pairs: a pair shares one copy, and like every other parameter
/// it is summed over the four groups.
#[test]
fn hybrid_sharding_of_experts_by_hand() {
    let program = |ep, shard| {
        let mut config = JobConfig::default();
        config.parallel.dp = Some(32);
        config.parallel.ep = ep;
        config.parallel.sharding = Sharding::Hybrid;
        config.parallel.shard_group = Some(shard);
        config.parallel.reduction = Some(Reduction::Once);
        config.batch.sequences = 64;
        let model = Model::preset("mixtral-8x7b").unwrap();
        Program::new(&resolve(&config, model, &SITE).unwrap().0)
    };
    let eight = program(4, 8);
    let held = eight.job.stage_held(0);
    // Two of eight experts in each of 32 layers: three matrices of 4096 by 14336.
    assert_eq!(held.experts, 32 * 2 * 3 * 4096 * 14336);
    let moved = |program: &Program, kind: GroupKind, collective| -> u128 {
        let counted = program.counted();
        let mut volume = 0;
        for one in counted.iter().filter(|one| one.call.kind == kind) {
            assert!(matches!(
                one.call.collective,
                Collective::AllGather | Collective::ReduceScatter | Collective::AllReduce
            ));
            if one.call.collective == collective {
                volume += program.volume(one).sent;
            }
        }
        volume
    };
    let (dense, experts) = (u128::from(held.dense()), u128::from(held.experts));
    use Collective::{AllGather, AllReduce, ReduceScatter};
    // Weights of 2 bytes, two gathers for each of two microbatches; gradients of 4 bytes, once.
    assert_eq!(moved(&eight, GroupKind::Shard, AllGather), 4 * 7 * (4 * 2 * dense));
    assert_eq!(moved(&eight, GroupKind::Shard, ReduceScatter), 4 * 7 * (4 * dense));
    assert_eq!(moved(&eight, GroupKind::Replica, AllReduce), 8 * 2 * 3 * (4 * dense / 8));
    assert_eq!(moved(&eight, GroupKind::ExpertShard, AllGather), 16 * (4 * 2 * experts));
    assert_eq!(moved(&eight, GroupKind::ExpertShard, ReduceScatter), 16 * (4 * experts));
    assert_eq!(moved(&eight, GroupKind::ExpertReplica, AllReduce), 8 * 2 * 3 * (4 * experts / 2));
    // With an expert group as wide as the shard group nobody in it has the same experts: they are
    // kept whole, and their gradients summed over all copies.
    let whole = program(8, 8);
    let experts = u128::from(whole.job.stage_held(0).experts);
    assert_eq!(moved(&whole, GroupKind::ExpertShard, AllGather), 0);
    assert_eq!(moved(&whole, GroupKind::ExpertReplica, AllReduce), 8 * 2 * 3 * (4 * experts));
    let weights = |program: &Program| memory::usage(&program.job)[0].weights.get();
    let shares = |dense: u64, experts: u64| 2 * (dense + experts);
    let (dense, experts) = (held.dense(), held.experts / 2);
    let layer = whole.job.layer_held(job::model::LayerKind::Moe);
    let gathered = (2 * layer.dense()).max(whole.job.embedding_held().total());
    assert_eq!(weights(&whole), shares(dense.div_ceil(8) + gathered, experts));
}

/// Oracle: where the shard group is no multiple of ep, the experts' group is the largest that
/// divides their copies and is no wider.
#[test]
fn shard_groups_that_experts_do_not_divide() {
    let sizes = |dp, ep, shard| {
        let mut config = JobConfig::default();
        config.parallel.dp = Some(dp);
        config.parallel.ep = ep;
        config.parallel.sharding = Sharding::Hybrid;
        config.parallel.shard_group = Some(shard);
        config.batch.sequences = dp;
        let job = resolve(&config, Model::preset("mixtral-8x7b").unwrap(), &SITE).unwrap().0;
        let shard = job.layout.group(GroupKind::ExpertShard, 0);
        let replica = job.layout.group(GroupKind::ExpertReplica, 0);
        (shard.members().collect::<Vec<_>>(), replica.members().collect::<Vec<_>>())
    };
    assert_eq!(sizes(40, 4, 10), (vec![0, 4], vec![0, 8, 16, 24, 32]));
    assert_eq!(sizes(12, 4, 6), (vec![0], vec![0, 4, 8]));
    assert_eq!(sizes(24, 8, 4), (vec![0], vec![0, 8, 16]));
    assert_eq!(sizes(16, 2, 16), ((0..16).step_by(2).collect(), vec![0]));
}
