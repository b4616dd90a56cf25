//! What fits and what does not, and the words for it.

use super::*;
use crate::config::ModelChoice;

const SITE: Site = Site { gpus: 24_576, gpus_per_node: 8, scale_up: 8 };

fn llama() -> JobConfig {
    JobConfig {
        model: ModelChoice::Named("llama3-405b".to_owned()),
        gpus: Some(16_384),
        parallel: ParallelConfig {
            tp: 8,
            pp: 16,
            vpp: 8,
            dp: Some(128),
            sharding: Sharding::FsdpNoReshard,
            ..ParallelConfig::default()
        },
        schedule: Schedule::Interleaved,
        ..JobConfig::default()
    }
}

fn outcome(config: &JobConfig) -> Resolved {
    let ModelChoice::Named(name) = &config.model else { unreachable!() };
    resolve(config, Model::preset(name).unwrap(), &SITE)
}

fn errors(change: impl Fn(&mut JobConfig)) -> Vec<String> {
    let mut config = llama();
    change(&mut config);
    let problems = outcome(&config).unwrap_err();
    problems.into_iter().map(|p| format!("{}: {}", p.key, p.message)).collect()
}

#[test]
fn llama_3_fits_with_one_layer_fewer_at_both_ends() {
    let (job, warnings) = outcome(&llama()).unwrap();
    assert_eq!(job.microbatches, 16);
    assert_eq!(job.stage_layers.len(), 128);
    assert_eq!(job.stage_layers.iter().sum::<u64>(), 126);
    assert_eq!((job.stage_layers[0], job.stage_layers[127]), (0, 0));
    let spelt = "126 layers do not divide by 128: 1×0, 126×1, 1×0 layers";
    assert_eq!(warnings.iter().map(|w| &w.message).collect::<Vec<_>>(), [spelt]);
}

#[test]
fn who_asks_for_a_split_is_not_warned_of_it() {
    let mut config = llama();
    config.parallel.stage_split = Some(StageSplit::Balanced);
    let (job, warnings) = outcome(&config).unwrap();
    assert_eq!((job.stage_layers[0], job.stage_layers[127]), (0, 0));
    assert!(warnings.is_empty());
}

#[test]
fn what_is_left_out_follows() {
    let mut config = llama();
    (config.gpus, config.parallel.dp) = (None, None);
    assert_eq!(outcome(&config).unwrap_err()[0].key, "batch.sequences");
    config.batch.sequences = 192 * 16;
    assert_eq!(outcome(&config).unwrap().0.layout.dp, 192);
    config.gpus = Some(16_384);
    config.batch.sequences = 2_048;
    assert_eq!(outcome(&config).unwrap().0.layout.dp, 128);
}

#[test]
fn everything_wrong_is_said_at_once_with_what_would_fit() {
    assert_eq!(
        errors(|c| {
            c.parallel.dp = Some(100);
            c.batch.sequences = 2_047;
            c.parallel.vpp = 9;
        }),
        [
            "parallel.dp: tp·cp·pp·dp = 8·1·16·100 = 12800, not the job's 16384; dp = 128 would \
             fit",
            "parallel.pp: pp·vpp = 144 stages for 126 layers; vpp up to 8 would fit",
            "batch.sequences: 2047 sequences do not divide into dp·micro = 100·1 = 100; 2000 or \
             2100 would",
            "batch.sequences: interleaving takes microbatches in groups of pp = 16: 20 per \
             pipeline do not divide; 16 or 32 would",
        ]
    );
    assert_eq!(
        errors(|c| c.gpus = Some(10_000)),
        ["parallel.dp: tp·cp·pp·dp = 8·1·16·128 = 16384, not the job's 10000; gpus = 9984 \
          (dp = 78) or gpus = 10112 (dp = 79) would fit"]
    );
    assert_eq!(
        errors(|c| {
            (c.gpus, c.parallel.dp) = (None, Some(256));
            c.batch.sequences = 4_096;
        }),
        ["gpus: 32768 GPUs, but the cluster has 24576; dp = 192 (24576 GPUs) would fit"]
    );
    assert_eq!(
        errors(|c| c.parallel.ep = 3),
        ["parallel.ep: 3, but llama3-405b has no experts; only 1 would"]
    );
    assert_eq!(
        errors(|c| c.parallel.cp = 3)[2..],
        ["parallel.cp: 8192 tokens do not divide into 2·cp = 6 parts; 1, 2, 4 would"]
    );
    assert_eq!(
        errors(|c| (c.parallel.tp, c.gpus) = (24, None)),
        [
            "gpus: 49152 GPUs, but the cluster has 24576; dp = 64 (24576 GPUs) would fit",
            "parallel.tp: 24 does not divide the model's 128 heads; 1, 2, 4, 8, 16, 32 would",
            "parallel.tp: 24 does not divide the model's 16384 hidden; 1, 2, 4, 8, 16, 32 would",
            "parallel.tp: 24 does not divide the model's 53248 ffn; 4, 8, 13, 16, 26, 32 would",
            "parallel.sequence_parallel: 8192 tokens per rank do not divide by tp = 24",
        ]
    );
    assert_eq!(
        errors(|c| c.schedule = Schedule::ZeroBubble),
        ["parallel.vpp: vpp = 8 needs schedule = \"interleaved-1f1b\""]
    );
    assert_eq!(
        errors(|c| (c.schedule, c.parallel.vpp) = (Schedule::DualPipe, 1)),
        ["schedule: dualpipe needs an even number of microbatches, at least 2·pp = 32: there are \
          16"]
    );
    assert_eq!(errors(|c| c.parallel.pp = 0), ["parallel.pp: is 0; the least is 1"]);
    assert_eq!(
        errors(|c| c.parallel.stage_layers = Some(vec![63, 62])),
        [
            "parallel.stage_layers: 2 stages of 125 layers in all, but pp·vpp = 128 and the model has \
          126"
        ]
    );
    assert_eq!(
        errors(|c| c.parallel.shard_group = Some(4)),
        ["parallel.shard_group: is for sharding = \"hybrid\" alone"]
    );
}

#[test]
fn a_tensor_group_beyond_the_scale_up_domain_is_unwise_not_wrong() {
    let mut config = llama();
    (config.parallel.tp, config.parallel.dp) = (16, Some(64));
    let (_, warnings) = outcome(&config).unwrap();
    let messages: Vec<_> = warnings.into_iter().map(|w| w.message).collect();
    assert_eq!(
        messages,
        [
            "16 GPUs share 8 key/value heads: each is kept 2 times",
            "16 GPUs do not fit the scale-up domain of 8",
            "126 layers do not divide by 128: 1×0, 126×1, 1×0 layers",
        ]
    );
}

#[test]
fn weights_that_a_pipeline_gathers_again_and_again_are_unwise() {
    let mut config = llama();
    let warned = |config: &JobConfig| {
        let (_, warnings) = outcome(config).unwrap();
        warnings.into_iter().find(|w| w.key == "parallel.sharding").map(|w| w.message)
    };
    assert_eq!(warned(&config), None);
    config.parallel.sharding = Sharding::Fsdp;
    let told = warned(&config).unwrap();
    assert!(told.contains("gathered again for each of 16 microbatches"), "{told}");
    (config.parallel.pp, config.parallel.vpp, config.parallel.dp) = (1, 1, Some(2048));
    config.schedule = Schedule::OneForwardOneBackward;
    assert_eq!(warned(&config), None);
}

#[test]
fn shardings_are_called_as_in_files() {
    use Sharding::{Fsdp, FsdpNoReshard, Hybrid, None, Zero1, Zero2, Zero3};
    for sharding in [None, Zero1, Zero2, Zero3, Fsdp, FsdpNoReshard, Hybrid] {
        assert_eq!(serde_json::to_value(sharding).unwrap(), sharding.word());
    }
}

#[test]
fn a_job_is_read_and_written() {
    let text = r#"{"model": "llama3-405b", "gpus": 16384,
        "parallel": {"tp": 8, "cp": 1, "pp": 16, "vpp": 8, "dp": 128, "ep": 1,
                     "sharding": "fsdp-no-reshard"},
        "schedule": "interleaved-1f1b",
        "batch": {"sequences": 2048, "micro": 1, "length": 8192},
        "placement": "topology-aware"}"#;
    let read: JobConfig = serde_json::from_str(text).unwrap();
    assert_eq!(read, llama());
    let again: JobConfig = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
    assert_eq!(read, again);
    let wrong = serde_json::from_str::<JobConfig>(r#"{"model": {"layers": 3, "hiden": 5}}"#);
    assert!(wrong.unwrap_err().to_string().contains("unknown field `hiden`"));
}

/// What is said of experts must fit both the copies and the experts.
#[test]
fn experts_are_spread_over_what_divides_both() {
    let errors = errors(|c| {
        c.model = ModelChoice::Named("mixtral-8x7b".to_owned());
        c.parallel = ParallelConfig { tp: 1, dp: Some(24), ep: 16, ..ParallelConfig::default() };
        (c.gpus, c.batch.sequences, c.schedule) = (Some(24), 48, Schedule::OneForwardOneBackward);
    });
    assert_eq!(
        errors,
        [
            "parallel.ep: 16 does not divide dp·cp = 24; 1, 2, 4, 8 would",
            "parallel.ep: 16 does not divide 8 experts; 1, 2, 4, 8 would",
        ]
    );
}

#[test]
fn tiny_buckets_are_refused() {
    for bytes in [0, 1, (1 << 20) - 1] {
        let errors = errors(|c| c.parallel.bucket = Some(Bytes::new(bytes)));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("parallel.bucket: "), "{errors:?}");
        assert!(errors[0].ends_with("; 1MiB or more would fit"), "{errors:?}");
    }
    let mut config = llama();
    config.parallel.bucket = Some(Bytes::from_mib(1));
    assert!(outcome(&config).is_ok());
}
