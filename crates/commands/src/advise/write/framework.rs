//! Training software: Megatron-LM, TorchTitan, DeepSpeed.

use job::config::Dispatcher;
use job::parallel::Sharding;
use job::schedule::Schedule;
use job::{Axis, Job};
use scenario::Loaded;
use serde_json::json;

/// What is recomputed, as the scenario has it.
fn recompute(loaded: &Loaded) -> String {
    let config = loaded.scenario.job.as_ref().map(|job| &job.recompute);
    let word = config.and_then(|recompute| serde_json::to_value(recompute).ok());
    word.and_then(|word| Some(word.as_str()?.to_owned())).unwrap_or_else(|| "modules".to_owned())
}

/// Arguments of Megatron-LM, one a line.
pub(super) fn megatron(loaded: &Loaded) -> String {
    let Some(job) = &loaded.job else { return String::new() };
    let Job { layout, parallel, batch, .. } = job;
    let mut lines = vec![
        format!("--tensor-model-parallel-size {}", layout.tp),
        format!("--pipeline-model-parallel-size {}", layout.pp),
        format!("--context-parallel-size {}", layout.cp),
        format!("--micro-batch-size {}", batch.micro),
        format!("--global-batch-size {}", batch.sequences),
        format!("--seq-length {}", batch.length),
    ];
    let mut add = |condition: bool, line: &str| {
        if condition {
            lines.push(line.to_owned());
        }
    };
    let virtual_stages = format!("--num-virtual-stages-per-pipeline-rank {}", layout.vpp);
    add(1 < layout.vpp, &virtual_stages);
    let has_experts = job.model.experts.is_some();
    add(has_experts, &format!("--expert-model-parallel-size {}", layout.ep));
    add(
        has_experts && layout.etp != layout.tp,
        &format!("--expert-tensor-parallel-size {}", layout.etp),
    );
    let flex = has_experts && job.dispatcher == Dispatcher::DeepEp;
    add(flex, "--moe-token-dispatcher-type flex");
    add(flex, "--moe-flex-dispatcher-backend deepep");
    add(has_experts && !flex, "--moe-token-dispatcher-type alltoall");
    if let Some(multiple) = parallel.vocab_multiple {
        add(true, &format!("--make-vocab-size-divisible-by {multiple}"));
    }
    add(parallel.sequence_parallel && 1 < layout.tp, "--sequence-parallel");
    let hides = |axis: Axis| parallel.overlap.contains(&axis);
    match parallel.sharding {
        Sharding::None => {}
        Sharding::Zero1 => add(true, "--use-distributed-optimizer"),
        Sharding::Zero2 => {
            add(true, "--use-megatron-fsdp");
            add(true, "--data-parallel-sharding-strategy optim_grads");
        }
        _ => {
            add(true, "--use-megatron-fsdp");
            add(true, "--data-parallel-sharding-strategy optim_grads_params");
        }
    }
    add(hides(Axis::Dp), "--overlap-grad-reduce");
    add(hides(Axis::Dp) && parallel.sharding != Sharding::None, "--overlap-param-gather");
    add(hides(Axis::Tp), "--tp-comm-overlap");
    add(hides(Axis::Ep), "--overlap-moe-expert-parallel-comm");
    add(1 < layout.pp && !hides(Axis::Pp), "--no-overlap-p2p-communication");
    match recompute(loaded).as_str() {
        "selective" => add(true, "--recompute-granularity selective"),
        "full" => {
            add(true, "--recompute-granularity full");
            add(true, "--recompute-method uniform");
            add(true, "--recompute-num-layers 1");
        }
        _ => {}
    }
    lines.join("\n") + "\n"
}

/// Tables of TorchTitan.
pub(super) fn torchtitan(loaded: &Loaded) -> String {
    let Some(job) = &loaded.job else { return String::new() };
    let Job { layout, parallel, batch, .. } = job;
    let shards = !matches!(parallel.sharding, Sharding::None | Sharding::Zero1 | Sharding::Zero2);
    let shard = if shards { layout.shard.max(1) } else { 1 };
    let schedule = match job.schedule {
        Schedule::Gpipe => "GPipe",
        Schedule::OneForwardOneBackward => "1F1B",
        Schedule::Interleaved => "Interleaved1F1B",
        Schedule::ZeroBubble => "InterleavedZeroBubble",
        Schedule::DualPipe => "DualPipeV",
    };
    let checkpointed = match recompute(loaded).as_str() {
        "modules" => "selective".to_owned(),
        word => word.to_owned(),
    };
    let local = batch.sequences / layout.dp.max(1);
    format!(
        "[training]\nlocal_batch_size = {local}\nglobal_batch_size = {}\nseq_len = {}\n\n\
         [parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {shard}\n\
         tensor_parallel_degree = {}\npipeline_parallel_degree = {}\n\
         pipeline_parallel_schedule = \"{schedule}\"\npipeline_parallel_microbatch_size = {}\n\
         context_parallel_degree = {}\nexpert_parallel_degree = {}\n\n\
         [activation_checkpoint]\nmode = \"{checkpointed}\"\n",
        batch.sequences,
        batch.length,
        layout.dp / shard.min(layout.dp).max(1),
        layout.tp,
        layout.pp,
        batch.micro,
        layout.cp,
        layout.ep,
    )
}

/// DeepSpeed's configuration. It takes the keys that it knows and leaves others alone, so that one
/// of them can say why.
pub(super) fn deepspeed(loaded: &Loaded, why: &str) -> String {
    let Some(job) = &loaded.job else { return String::new() };
    let stage = match job.parallel.sharding {
        Sharding::None => 0,
        Sharding::Zero1 => 1,
        Sharding::Zero2 => 2,
        _ => 3,
    };
    let overlaps = job.parallel.overlap.contains(&Axis::Dp);
    let json = json!({
        "_comment": why,
        "train_batch_size": job.batch.sequences,
        "train_micro_batch_size_per_gpu": job.batch.micro,
        "gradient_accumulation_steps": job.microbatches,
        "bf16": { "enabled": true },
        "zero_optimization": { "stage": stage, "overlap_comm": overlaps },
    });
    serde_json::to_string_pretty(&json).unwrap_or_default() + "\n"
}
