//! How much memory a job takes on each GPU.
//!
//! Weights, gradients and optimizer state follow from what a rank holds and how it is sharded
//! (Rajbhandari et al., arXiv 1910.02054). Activations are summed tensor by tensor, as
//! Korthikanti et al. (arXiv 2205.05198, section 4) do for GPT: what a backward pass will read is
//! kept from the forward pass on, for every microbatch in flight under the schedule. Their totals
//! `sbh(10 + 24/t + 5as/ht)`, `sbh/t(34 + 5as/h)`, `34·sbh/t` and `2sbh` come out for GPT; other
//! shapes (gated, grouped queries, latent attention, experts) get theirs from the same sum.
//!
//! Departures: fused attention keeps no scores but one statistic per query; with fp8 the inputs
//! of matrix products and gates are kept in one byte (DeepSeek-V3, arXiv 2412.19437, section
//! 3.3.3); gated models do not keep the outputs of norms and gates, which cost next to nothing to
//! compute again (PyTorch's compiler does so by itself, and Llama 3, section 3.3.2, could not have
//! fitted 80 GB otherwise), so that for them `layernorm` and `moe_act` save nothing further. What
//! is computed again is not kept, module by module. Experts are taken to be evenly loaded. What the
//! framework itself takes is an illustrative constant, shown apart.

use std::fmt;

use units::Bytes;

use crate::compute::layer::Dropout;
use crate::config::{AttentionKernel, Loss};
use crate::model::{Experts, LayerKind, Mlp, Module, Recomputed};
use crate::parallel::{GroupKind, Reduction, Sharding};
use crate::partition::RankParameters;
use crate::resolve::Job;

/// CUDA's context, NCCL's buffers and fragments between allocations; illustrative.
pub const FRAMEWORK: Bytes = Bytes::from_mib(3 * 1024);

/// What one GPU of a pipeline stage holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The stage.
    pub stage: u64,
    /// Weights, and what is gathered of others' for a while.
    pub weights: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Optimizer state and master weights.
    pub optimizer: Bytes,
    /// Activations of all microbatches in flight, and what recomputation brings back at once.
    pub activations: Bytes,
    /// Logits and their gradient.
    pub logits: Bytes,
    /// The framework's own.
    pub framework: Bytes,
    /// The most microbatches in flight, summed over the stage's parts.
    pub in_flight: u64,
}

impl Usage {
    /// All of it.
    pub fn total(&self) -> Bytes {
        let parts = [self.weights, self.gradients, self.optimizer, self.activations, self.logits];
        parts.into_iter().fold(self.framework, |sum, part| sum + part)
    }
}

/// A job that does not fit its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overfull {
    /// The stage that needs most.
    pub usage: Usage,
    /// What a GPU has.
    pub capacity: Bytes,
}

impl fmt::Display for Overfull {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gb = |bytes: Bytes| bytes.as_f64() / 1e9;
        let Usage { stage, weights, gradients, optimizer, activations, logits, .. } = self.usage;
        write!(
            out,
            "a GPU of stage {stage} needs {:.1} GB and has {:.1}: weights {:.1} + gradients {:.1} \
             + optimizer {:.1} + activations {:.1} ({} in flight) + logits {:.1} + framework {:.1}",
            gb(self.usage.total()),
            gb(self.capacity),
            gb(weights),
            gb(gradients),
            gb(optimizer),
            gb(activations),
            self.usage.in_flight,
            gb(logits),
            gb(self.usage.framework),
        )
    }
}

impl std::error::Error for Overfull {}

/// What the GPUs of each stage hold.
pub fn usage(job: &Job) -> Vec<Usage> {
    (0..job.layout.pp).map(|stage| stage_usage(job, stage)).collect()
}

/// Whether the job fits GPUs of that memory.
pub fn check(job: &Job, capacity: Bytes) -> Result<(), Overfull> {
    let fullest = usage(job).into_iter().max_by_key(Usage::total).expect("a job has a stage");
    if capacity < fullest.total() {
        return Err(Overfull { usage: fullest, capacity });
    }
    Ok(())
}

fn stage_usage(job: &Job, stage: u64) -> Usage {
    let held = job.stage_held(stage);
    let order = job.pipeline().settled().order(stage);
    let parts = job.pipeline().parts_of(stage);
    let last = job.parts() - 1;
    let kept: Vec<u64> = parts.iter().map(|&part| part_activations(job, part)).collect();
    let kept_by = |part| parts.iter().position(|&own| own == part).map_or(0, |place| kept[place]);
    let activations = order.peak(kept_by) + at_once(job, &parts);
    Usage {
        stage,
        weights: Bytes::new(weights(job, held)),
        gradients: Bytes::new(gradients(job, held)),
        optimizer: Bytes::new(optimizer(job, held)),
        activations: Bytes::new(activations),
        logits: Bytes::new(if parts.contains(&last) { logits(job) } else { 0 }),
        framework: FRAMEWORK,
        in_flight: order.in_flight(),
    }
}

fn weights(job: &Job, held: RankParameters) -> u64 {
    let bytes = job.precision.bytes();
    if !job.parallel.sharding.shards_weights() {
        return held.total() * bytes;
    }
    // The layer at work and the next one, gathered ahead, less what nobody shares.
    let others = |held: RankParameters| {
        let shared = |kind| u64::from(1 < job.layout.group_size(kind));
        held.dense() * shared(GroupKind::Shard) + held.experts * shared(GroupKind::ExpertShard)
    };
    let moe = job.model.experts.is_some();
    let layer = job.layer_held(if moe { LayerKind::Moe } else { LayerKind::Dense });
    let gathered = (2 * others(layer)).max(others(job.embedding_held())).min(others(held));
    (job.share_of(held) + gathered) * bytes
}

fn gradients(job: &Job, held: RankParameters) -> u64 {
    let bytes = job.parallel.gradients.bytes();
    let sharded = job.parallel.sharding.shards_gradients();
    match job.reduction {
        // Sums over microbatches are kept whole until they are reduced.
        Reduction::Once => held.total() * bytes,
        Reduction::EveryMicrobatch if sharded => job.share_of(held) * bytes,
        Reduction::EveryMicrobatch => held.total() * bytes,
    }
}

fn optimizer(job: &Job, held: RankParameters) -> u64 {
    match job.parallel.sharding {
        Sharding::None => held.total() * job.optimizer.bytes(),
        _ => job.share_of(held) * job.optimizer.bytes(),
    }
}

/// Kept by one microbatch for one part of the model.
fn part_activations(job: &Job, part: u64) -> u64 {
    let layers = job.layers_of(part);
    let moe = job.model.moe_layers_in(layers.start, layers.end);
    let dense = layers.end - layers.start - moe;
    let kept = |kind| layer_activations(job, kind, job.recompute);
    let mut bytes = dense * kept(LayerKind::Dense) + moe * kept(LayerKind::Moe);
    if let (0, Some(encoder)) = (part, job.encoder()) {
        let kept = layer_activations(&encoder, LayerKind::Dense, job.recompute);
        bytes += encoder.model.layers * kept;
    }
    if part + 1 == job.parts() {
        // The inputs of the last norm and of the head.
        bytes += 4 * job.model.hidden * job.tokens() / sequence_cut(job);
        let kind = job.model.kind(job.model.layers.saturating_sub(1));
        bytes += job.model.mtp_layers * kept(kind);
    }
    bytes
}

/// What recomputing one layer brings back at once.
fn at_once(job: &Job, parts: &[u64]) -> u64 {
    if job.recompute == Recomputed::NONE {
        return 0;
    }
    let kinds = [LayerKind::Dense, LayerKind::Moe];
    let present = |kind: LayerKind| {
        parts.iter().any(|&part| job.layers_of(part).any(|layer| job.model.kind(layer) == kind))
    };
    let back = |kind| {
        let whole = layer_activations(job, kind, Recomputed::NONE);
        whole.saturating_sub(layer_activations(job, kind, job.recompute))
    };
    kinds.into_iter().filter(|&kind| present(kind)).map(back).max().unwrap_or(0)
}

/// By how much norms and residuals are cut.
fn sequence_cut(job: &Job) -> u64 {
    if job.parallel.sequence_parallel { job.layout.tp } else { 1 }
}

/// Bytes that one microbatch keeps in one layer of one rank, for the backward pass.
pub fn layer_activations(job: &Job, kind: LayerKind, again: Recomputed) -> u64 {
    let (model, tokens) = (&job.model, job.tokens());
    let cut = sequence_cut(job);
    let full = job.precision.bytes();
    if again.is_full() {
        return full * model.hidden * tokens / cut;
    }
    let attention = attention_activations(job, again);
    let feed_forward = match (kind, &model.experts) {
        (LayerKind::Moe, Some(_)) if again.has(Module::Moe) => 0,
        (LayerKind::Moe, Some(experts)) => expert_activations(job, experts, again),
        _ if again.has(Module::Mlp) => 0,
        _ => mlp_inside(job, model.ffn) * tokens / job.layout.tp,
    };
    attention + feed_forward
}

/// Of routed and shared experts.
fn expert_activations(job: &Job, experts: &Experts, again: Recomputed) -> u64 {
    // Copies of tokens that come to a rank's experts, in the experts' order. The router's weights
    // are applied inside the experts, as Megatron-LM does, so that their outputs need not be kept.
    let routed = job.routed(experts);
    let etp = job.layout.etp;
    let inside = match (job.model.mlp, again.has(Module::MoeAct)) {
        (Mlp::Gelu, true) => job.precision.bytes() * experts.ffn,
        _ => mlp_inside(job, experts.ffn),
    };
    let shared = if again.has(Module::SharedExperts) { 0 } else { experts.shared };
    let shared = mlp_inside(job, experts.ffn) * shared * job.tokens() / job.layout.tp;
    input_bytes(job) * job.model.hidden * routed + inside * routed / etp + shared
}

/// Bytes per element of what a matrix product will read again.
fn input_bytes(job: &Job) -> u64 {
    if job.operands().is_cast() { 1 } else { job.precision.bytes() }
}

/// Bytes of a dropout mask per element.
fn masks(job: &Job) -> u64 {
    u64::from(job.dropout == Dropout::Applied)
}

/// Norms, attention and residuals: everything but the inside of the feed-forward part.
fn attention_activations(job: &Job, again: Recomputed) -> u64 {
    let (model, tokens) = (&job.model, job.tokens());
    let (tp, cut) = (job.layout.tp, sequence_cut(job));
    let full = job.precision.bytes();
    let input = input_bytes(job);
    // Inputs of the two norms, GPT's also their outputs, two dropout masks.
    let is_normed_again = model.mlp == Mlp::Gated || again.has(Module::Layernorm);
    let normed = if is_normed_again { 0 } else { 2 * input };
    let mut bytes = (2 * full + normed + 2 * masks(job)) * model.hidden * tokens / cut;
    let heads = model.heads / tp;
    let values = heads * model.head_dim;
    let qkv = match model.latent {
        None => (heads + 2 * job.kv_heads_held()) * model.head_dim,
        Some(latent) => {
            // The compressed query, key and value, whole on every rank.
            let down = latent.q_rank.unwrap_or(0) + latent.kv_rank + latent.rope;
            bytes += full * down * tokens;
            let keeps = !again.has(Module::MlaUpProj);
            if keeps { 2 * heads * model.score_dim() + values } else { 0 }
        }
    };
    // Queries, keys and values, and the input of the output projection.
    bytes += (full * qkv + input * values) * tokens;
    match job.attention {
        AttentionKernel::Unfused if again.has(Module::CoreAttn) => {}
        // Softmax, its dropout's mask and the dropped result.
        AttentionKernel::Unfused => {
            let kept = full + masks(job) * (1 + full);
            bytes += kept * heads * tokens * job.batch.length;
        }
        // One statistic per query and head.
        _ => bytes += 4 * heads * tokens,
    }
    bytes
}

/// Bytes per token inside a feed-forward part, not yet cut by tensor parallelism: both inputs of
/// a gate, or the input and the output of GELU.
fn mlp_inside(job: &Job, ffn: u64) -> u64 {
    let full = job.precision.bytes();
    match job.model.mlp {
        Mlp::Gated => 2 * input_bytes(job) * ffn,
        Mlp::Gelu => (full + input_bytes(job)) * ffn,
    }
}

/// Logits of one microbatch: fp32 where they are written out, with their gradient in place.
fn logits(job: &Job) -> u64 {
    let width = match job.loss {
        Loss::Unfused => 4,
        Loss::Fused => job.precision.bytes(),
    };
    width * job.tokens() * job.vocab_held()
}

#[cfg(test)]
mod tests;
