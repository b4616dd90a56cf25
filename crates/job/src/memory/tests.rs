//! Activations against the published formulae, whole jobs against what is known to have run.

use super::*;
use crate::config::Precision;
use crate::config::{BatchConfig, JobConfig};
use crate::model::{Model, Recompute, Usual};
use crate::parallel::ParallelConfig;
use crate::resolve::{Site, resolve};
use crate::schedule::Schedule;

fn job(name: &str, change: impl FnOnce(&mut JobConfig)) -> Job {
    let mut config = JobConfig { attention: AttentionKernel::Unfused, ..JobConfig::default() };
    config.batch = BatchConfig { sequences: 280, micro: 1, length: 2048 };
    change(&mut config);
    let site = Site { gpus: 1 << 20, gpus_per_node: 8, scale_up: 8 };
    resolve(&config, Model::preset(name).unwrap(), &site).unwrap().0
}

/// Oracle: table 2 of Korthikanti et al., per layer.
#[test]
fn gpt_keeps_what_the_paper_says() {
    for name in ["gpt-22b", "gpt-530b"] {
        for tp in [1, 8] {
            for sequence_parallel in [false, true] {
                let job = job(name, |config| {
                    let dp = Some(1);
                    config.parallel =
                        ParallelConfig { tp, dp, sequence_parallel, ..ParallelConfig::default() };
                });
                let (s, h, a) = (2048, job.model.hidden, job.model.heads);
                let kept = |again| layer_activations(&job, LayerKind::Dense, again);
                let selective = Recompute::Usual(Usual::Selective).of(&job.model);
                let expected = if sequence_parallel {
                    s * (34 * h + 5 * a * s) / tp
                } else {
                    s * (10 * h + (24 * h + 5 * a * s) / tp)
                };
                assert_eq!(kept(Recomputed::NONE), expected, "{name} tp {tp}");
                assert_eq!(kept(selective), expected - 5 * a * s * s / tp);
                let cut = if sequence_parallel { tp } else { 1 };
                assert_eq!(kept(Recomputed::FULL), 2 * s * h / cut);
            }
        }
    }
}

/// Agreement: the runs of Llama 3, DeepSeek-V3, Megatron and Korthikanti et al. were done, so
/// they must fit the GPUs that they were done on.
#[test]
fn published_runs_fit() {
    let fit = |job: &Job| check(job, Bytes::new(80_000_000_000)).map_err(|full| full.to_string());
    for dp in [64, 128] {
        let llama = job("llama3-405b", |config| {
            config.attention = AttentionKernel::Flash;
            config.batch = BatchConfig::default();
            config.schedule = Schedule::Interleaved;
            config.parallel = ParallelConfig {
                tp: 8,
                pp: 16,
                vpp: 8,
                dp: Some(dp),
                sharding: Sharding::FsdpNoReshard,
                ..ParallelConfig::default()
            };
        });
        assert_eq!(fit(&llama), Ok(()));
    }
    let deepseek = job("deepseek-v3", |config| {
        config.attention = AttentionKernel::Flash;
        config.precision = Precision::Fp8;
        config.recompute = Usual::Selective.into();
        config.optimizer = crate::config::Optimizer::AdamBf16;
        config.batch = BatchConfig { sequences: 15_360, micro: 1, length: 4096 };
        config.schedule = Schedule::DualPipe;
        config.parallel =
            ParallelConfig { pp: 16, dp: Some(128), ep: 64, ..ParallelConfig::default() };
    });
    assert_eq!(fit(&deepseek), Ok(()));
    for (sequence_parallel, recompute) in [(true, Usual::Selective), (false, Usual::Full)] {
        let megatron = job("gpt-530b", |config| {
            config.recompute = recompute.into();
            config.schedule = Schedule::Interleaved;
            config.parallel = ParallelConfig {
                tp: 8,
                pp: 35,
                vpp: 3,
                dp: Some(1),
                sharding: Sharding::None,
                sequence_parallel,
                ..ParallelConfig::default()
            };
        });
        assert_eq!(fit(&megatron), Ok(()));
    }
}

/// Agreement: Korthikanti et al. needed both of their techniques for 530B: without them (figure
/// 1's baseline) it does not fit 80 GB.
#[test]
fn an_overfull_job_shows_the_sum() {
    let megatron = job("gpt-530b", |config| {
        config.schedule = Schedule::Interleaved;
        config.parallel = ParallelConfig {
            tp: 8,
            pp: 35,
            vpp: 3,
            dp: Some(1),
            sharding: Sharding::None,
            sequence_parallel: false,
            ..ParallelConfig::default()
        };
    });
    let full = check(&megatron, Bytes::new(80_000_000_000)).unwrap_err();
    assert_eq!(
        full.to_string(),
        "a GPU of stage 0 needs 162.7 GB and has 80.0: weights 4.1 + gradients 8.2 + optimizer \
         24.7 + activations 122.4 (139 in flight) + logits 0.0 + framework 3.2"
    );
}

/// Property: sharding more never takes more memory.
#[test]
fn sharding_saves() {
    use Sharding::{Fsdp, None, Zero1, Zero2, Zero3};
    let totals: Vec<u64> = [None, Zero1, Zero2, Zero3, Fsdp]
        .into_iter()
        .map(|sharding| {
            let job = job("llama3-70b", |config| {
                config.batch.sequences = 1024;
                config.parallel =
                    ParallelConfig { tp: 8, dp: Some(64), sharding, ..ParallelConfig::default() };
                config.parallel.reduction =
                    (sharding != None).then_some(Reduction::EveryMicrobatch);
            });
            usage(&job)[0].total().get()
        })
        .collect();
    assert!(totals.is_sorted_by(|more, less| less <= more), "{totals:?}");
    assert!(3 * totals[4] < totals[0]);
}

/// Oracle: what DeepSeek-V3 keeps for each module less. A token's queries, keys and values are
/// 128·(2·192 + 128) in 16 bits; its eight copies and what is inside their experts in 8 bits.
#[test]
fn what_is_computed_again_is_not_kept() {
    let deepseek = job("deepseek-v3", |config| {
        config.attention = AttentionKernel::Flash;
        config.precision = Precision::Fp8;
        config.parallel.dp = Some(1);
    });
    let kept =
        |modules: &[Module], kind| layer_activations(&deepseek, kind, Recomputed::modules(modules));
    let saved = |module, kind| (kept(&[], kind) - kept(&[module], kind)) / 2048;
    assert_eq!(saved(Module::MlaUpProj, LayerKind::Dense), 2 * 128 * (2 * 192 + 128));
    assert_eq!(saved(Module::Mlp, LayerKind::Dense), 2 * 18_432);
    assert_eq!(saved(Module::Mlp, LayerKind::Moe), 0);
    assert_eq!(saved(Module::SharedExperts, LayerKind::Moe), 2 * 2048);
    assert_eq!(saved(Module::Moe, LayerKind::Moe), 8 * 7168 + 9 * 2 * 2048);
}

/// Oracle: experts cut by four hold a quarter on every rank and gather the tokens of four; uncut,
/// on four times as many ranks, as many weights, and each rank keeps its own tokens alone.
#[test]
fn experts_are_cut_by_their_own_degree() {
    let with = |ep, etp| {
        job("mixtral-8x7b", |config| {
            config.attention = AttentionKernel::Flash;
            let (tp, dp) = (4, Some(8));
            config.parallel = ParallelConfig { tp, dp, ep, etp, ..ParallelConfig::default() };
        })
    };
    let (as_tensor, uncut) = (with(2, None), with(8, Some(1)));
    assert_eq!(as_tensor.layout.etp, 4);
    let held = |job: &Job| job.layer_held(LayerKind::Moe).experts;
    assert_eq!(held(&as_tensor), held(&uncut));
    let experts = as_tensor.model.experts.unwrap();
    assert_eq!(as_tensor.routed(&experts), 4 * uncut.routed(&experts));
    let kept = |job: &Job| layer_activations(job, LayerKind::Moe, Recomputed::NONE);
    let saved = kept(&as_tensor) - kept(&uncut);
    // Two copies of a token: three quarters of them are no longer gathered.
    assert_eq!(saved, 2 * 2 * as_tensor.model.hidden * 2048 * 3 / 4);
}
