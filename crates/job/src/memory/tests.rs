//! Activations against the published formulae, whole jobs against what is known to have run.

use super::*;
use crate::config::Precision;
use crate::config::{BatchConfig, JobConfig};
use crate::model::Model;
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
                let kept = |recompute| layer_activations(&job, LayerKind::Dense, recompute);
                let expected = if sequence_parallel {
                    s * (34 * h + 5 * a * s) / tp
                } else {
                    s * (10 * h + (24 * h + 5 * a * s) / tp)
                };
                assert_eq!(kept(Recompute::None), expected, "{name} tp {tp}");
                assert_eq!(kept(Recompute::Selective), expected - 5 * a * s * s / tp);
                let cut = if sequence_parallel { tp } else { 1 };
                assert_eq!(kept(Recompute::Full), 2 * s * h / cut);
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
        config.recompute = Recompute::Selective;
        config.optimizer = crate::config::Optimizer::AdamBf16;
        config.batch = BatchConfig { sequences: 15_360, micro: 1, length: 4096 };
        config.schedule = Schedule::DualPipe;
        config.parallel =
            ParallelConfig { pp: 16, dp: Some(128), ep: 64, ..ParallelConfig::default() };
    });
    assert_eq!(fit(&deepseek), Ok(()));
    for (sequence_parallel, recompute) in [(true, Recompute::Selective), (false, Recompute::Full)] {
        let megatron = job("gpt-530b", |config| {
            config.recompute = recompute;
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
