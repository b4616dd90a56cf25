//! Which parameters one rank holds.
//!
//! A part of the model (a virtual stage) is a run of layers; the first part also has the
//! embedding, the last one the head and the multi-token-prediction layers. Tensor parallelism
//! cuts matrices but not norms, routers, output biases and the down-projections of latent
//! attention, which every rank of a tensor group holds whole (as Megatron-LM does); expert
//! parallelism cuts the routed experts. Embeddings and heads are padded, so that they divide and
//! their products have whole tiles (`parallel.vocab_multiple`).

use std::ops::Range;

use crate::compute::Mask;
use crate::compute::layer::Dropout;
use crate::config::BatchConfig;
use crate::model::{Biases, Experts, LayerKind, Mlp, Model};
use crate::parallel::{Axis, GroupKind, Layout};
use crate::resolve::Job;
use crate::schedule::{Pipeline, Schedule};

/// Parameters that one rank holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankParameters {
    /// Cut by tensor parallelism, alike on all data-parallel ranks.
    pub cut: u64,
    /// Whole on every rank of a tensor group.
    pub whole: u64,
    /// Routed experts, cut by expert and expert tensor parallelism.
    pub experts: u64,
}

impl RankParameters {
    /// What data-parallel ranks hold alike: all but the experts.
    pub fn dense(&self) -> u64 {
        self.cut + self.whole
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.dense() + self.experts
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            cut: self.cut + other.cut,
            whole: self.whole + other.whole,
            experts: self.experts + other.experts,
        }
    }

    /// So many times.
    pub fn times(self, n: u64) -> Self {
        Self { cut: self.cut * n, whole: self.whole * n, experts: self.experts * n }
    }
}

impl Job {
    /// The pipeline of one data-parallel copy.
    pub fn pipeline(&self) -> Pipeline {
        Pipeline {
            schedule: self.schedule,
            stages: self.layout.pp,
            chunks: self.layout.vpp,
            microbatches: self.microbatches,
            paired: self.schedule.pairs() && self.overlaps_experts(),
        }
    }

    /// Parts of the model: virtual stages.
    pub fn parts(&self) -> u64 {
        self.stage_layers.len() as u64
    }

    /// The layers of a part, counted from 0 along the model.
    pub fn layers_of(&self, part: u64) -> Range<u64> {
        let part = usize::try_from(part).expect("parts fit memory");
        let first = self.stage_layers[..part].iter().sum();
        first..first + self.stage_layers[part]
    }

    /// Key and value heads of one rank; at least one, kept several times if tensor parallelism
    /// is wider than there are heads.
    pub fn kv_heads_held(&self) -> u64 {
        (self.model.kv_heads / self.layout.tp).max(1)
    }

    /// Rows of the embedding on one rank.
    pub fn vocab_held(&self) -> u64 {
        self.parallel.padded(self.model.vocab) / self.layout.tp
    }

    /// Tokens of one microbatch on one rank: a sequence is cut by context parallelism.
    pub fn tokens(&self) -> u64 {
        self.batch.micro * self.batch.length / self.layout.cp
    }

    /// Copies of a microbatch's tokens that come to the experts of one rank, evenly loaded. The
    /// ranks that an expert is cut over gather each other's tokens.
    pub fn routed(&self, experts: &Experts) -> u64 {
        let copies = self.tokens() * experts.top_k;
        match self.parallel.sequence_parallel {
            true => copies * self.layout.etp / self.layout.tp,
            false => copies,
        }
    }

    /// One layer of a kind.
    pub fn layer_held(&self, kind: LayerKind) -> RankParameters {
        let model = &self.model;
        let norms = model.norms_per_layer * model.norm.per_channel() * model.hidden;
        let mut held = self.attention_held();
        held.whole += norms;
        match (kind, &model.experts) {
            (LayerKind::Moe, Some(experts)) => {
                let one = self.mlp_held(experts.ffn, self.layout.tp);
                held = held.plus(one.times(experts.shared));
                let routed = self.mlp_held(experts.ffn, self.layout.etp);
                held.experts = routed.total() * (experts.count / self.layout.ep);
                let bias = if model.biases.router { experts.count } else { 0 };
                held.whole += model.hidden * experts.count + bias;
            }
            _ => held = held.plus(self.mlp_held(model.ffn, self.layout.tp)),
        }
        held
    }

    /// All of a part, on one rank.
    pub fn part_held(&self, part: u64) -> RankParameters {
        let layers = self.layers_of(part);
        let moe = self.model.moe_layers_in(layers.start, layers.end);
        let dense = layers.end - layers.start - moe;
        let mut held = self.layer_held(LayerKind::Dense).times(dense);
        held = held.plus(self.layer_held(LayerKind::Moe).times(moe));
        if part == 0 {
            held = held.plus(self.vision_held()).plus(self.embedding_held());
        }
        if part + 1 == self.parts() {
            held = held.plus(self.head_held()).plus(self.mtp_held());
        }
        held
    }

    /// Tensor ranks that a vision encoder is cut over.
    pub fn vision_tp(&self) -> u64 {
        self.parallel.vision_tp.unwrap_or(self.layout.tp)
    }

    /// Whether the tensor ranks encode different images.
    pub fn deals_images(&self) -> bool {
        self.model.vision.is_some() && self.vision_tp() != self.layout.tp
    }

    /// Images of a microbatch that one rank encodes. Context ranks share them; where they do not
    /// divide, the rank with most counts.
    pub fn images(&self) -> u64 {
        let images = self.model.vision.map_or(0, |vision| vision.images) * self.batch.micro;
        images.div_ceil(self.layout.cp * self.layout.tp / self.vision_tp())
    }

    /// The layers of a vision encoder as a job of their own: its model, its cut, its images.
    pub fn encoder(&self) -> Option<Self> {
        let vision = self.model.vision?;
        let (tp, micro) = (self.vision_tp(), self.images());
        Some(Self {
            model: vision.encoder(),
            layout: Layout { tp, etp: tp, cp: 1, ..self.layout },
            batch: BatchConfig { micro, length: vision.patches, ..self.batch },
            dropout: Dropout::Absent,
            mask: Mask::Full,
            ..self.clone()
        })
    }

    /// One layer of a vision encoder.
    pub fn encoder_held(&self) -> RankParameters {
        self.encoder().map_or(RankParameters::default(), |encoder| {
            self.as_dealt(encoder.layer_held(LayerKind::Dense))
        })
    }

    /// The ends of a vision encoder, which are not cut but for the projector.
    pub fn projector_held(&self) -> RankParameters {
        let Some(vision) = self.model.vision else { return RankParameters::default() };
        let hidden = self.model.hidden;
        let [from, inside, to] = vision.projector(hidden);
        let cut = (from + 1) * inside + inside * to;
        let whole = vision.ends_parameters(hidden) - cut;
        self.as_dealt(RankParameters { cut: cut / self.vision_tp(), whole, experts: 0 })
    }

    /// All of a vision encoder.
    pub fn vision_held(&self) -> RankParameters {
        let layers = self.model.vision.map_or(0, |vision| vision.layers);
        self.encoder_held().times(layers).plus(self.projector_held())
    }

    /// What is not cut where images are dealt out is whole on every rank of a tensor group.
    fn as_dealt(&self, held: RankParameters) -> RankParameters {
        match self.deals_images() {
            true => RankParameters { cut: 0, whole: held.dense(), experts: 0 },
            false => held,
        }
    }

    /// The embedding, learned positions included.
    pub fn embedding_held(&self) -> RankParameters {
        let hidden = self.model.hidden;
        let whole = self.model.positions * hidden;
        RankParameters { cut: self.vocab_held() * hidden, whole, experts: 0 }
    }

    /// The head with the norm before it. A tied head is the embedding itself where one rank has
    /// both, a copy of it where the pipeline parts them.
    pub fn head_held(&self) -> RankParameters {
        let hidden = self.model.hidden;
        let shared = self.model.tied_embeddings && self.layout.pp == 1;
        let cut = if shared { 0 } else { self.vocab_held() * hidden };
        RankParameters { cut, whole: self.model.norm.per_channel() * hidden, experts: 0 }
    }

    /// Multi-token-prediction layers: a layer, the projection of two streams into one, three
    /// norms. They use the model's embedding and head, of which no further copy is counted.
    pub fn mtp_held(&self) -> RankParameters {
        let hidden = self.model.hidden;
        let kind = self.model.kind(self.model.layers.saturating_sub(1));
        let mut held = self.layer_held(kind);
        held.cut += 2 * hidden * hidden / self.layout.tp;
        held.whole += 3 * self.model.norm.per_channel() * hidden;
        held.times(self.model.mtp_layers)
    }

    /// All that one rank of a stage holds. With DualPipe that is two parts.
    pub fn stage_held(&self, stage: u64) -> RankParameters {
        let parts = self.pipeline().parts_of(stage);
        parts
            .into_iter()
            .fold(RankParameters::default(), |sum, part| sum.plus(self.part_held(part)))
    }

    /// How much of that a rank keeps where copies share one.
    pub fn share_of(&self, held: RankParameters) -> u64 {
        let ranks = |kind| self.layout.group_size(kind);
        held.dense().div_ceil(ranks(GroupKind::Shard))
            + held.experts.div_ceil(ranks(GroupKind::ExpertShard))
    }

    /// Whether tokens on their way to experts are hidden behind computation.
    pub fn overlaps_experts(&self) -> bool {
        self.parallel.overlap.contains(&Axis::Ep) && 1 < self.layout.ep
    }

    /// Whether every stage holds two parts of the model, one for each direction.
    pub fn is_bidirectional(&self) -> bool {
        self.schedule == Schedule::DualPipe && 1 < self.layout.pp
    }

    fn attention_held(&self) -> RankParameters {
        let Model { hidden, heads, head_dim, biases, .. } = self.model;
        let tp = self.layout.tp;
        let norm = self.model.norm.per_channel();
        let mut held = match self.model.latent {
            None => {
                let qkv = (heads / tp + 2 * self.kv_heads_held()) * head_dim;
                let bias = if biases.qkv { qkv } else { 0 };
                RankParameters { cut: hidden * qkv + bias, ..RankParameters::default() }
            }
            Some(latent) => {
                let score = heads / tp * (latent.nope + latent.rope);
                let values = latent.kv_rank * (heads / tp) * (latent.nope + head_dim);
                let down = hidden * (latent.kv_rank + latent.rope) + norm * latent.kv_rank;
                match latent.q_rank {
                    Some(rank) => RankParameters {
                        cut: rank * score + values,
                        whole: down + hidden * rank + norm * rank,
                        experts: 0,
                    },
                    None => {
                        RankParameters { cut: hidden * score + values, whole: down, experts: 0 }
                    }
                }
            }
        };
        held.cut += heads / tp * head_dim * hidden;
        held.whole += if biases.out { hidden } else { 0 };
        held.whole += if self.model.qk_norm { 2 * norm * head_dim } else { 0 };
        held.cut += if biases.sinks { heads / tp } else { 0 };
        held
    }

    fn mlp_held(&self, ffn: u64, cut: u64) -> RankParameters {
        let Model { hidden, mlp, biases, .. } = self.model;
        let ffn = ffn / cut;
        let Biases { mlp: biased, .. } = biases;
        let bias = match (biased, mlp) {
            (false, _) => 0,
            (true, Mlp::Gated) => 2 * ffn,
            (true, Mlp::Gelu) => ffn,
        };
        RankParameters {
            cut: mlp.matrices() * hidden * ffn + bias,
            whole: if biased { hidden } else { 0 },
            experts: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{JobConfig, ModelChoice};
    use crate::model::presets;
    use crate::parallel::ParallelConfig;
    use crate::resolve::{Site, resolve};

    fn job(name: &str, parallel: ParallelConfig, schedule: Schedule) -> Job {
        let parallel = ParallelConfig { vocab_multiple: Some(1), ..parallel };
        let config = JobConfig {
            model: ModelChoice::Named(name.to_owned()),
            parallel,
            schedule,
            batch: BatchConfig { sequences: 64 * 64, micro: 1, length: 4096 },
            ..JobConfig::default()
        };
        let site = Site { gpus: 1 << 20, gpus_per_node: 8, scale_up: 8 };
        resolve(&config, Model::preset(name).unwrap(), &site).unwrap().0
    }

    /// Oracle: uncut, a rank holds the whole model.
    #[test]
    fn one_rank_holds_everything() {
        for preset in presets::all() {
            let model = &preset.model;
            let parallel = ParallelConfig { dp: Some(1), ..ParallelConfig::default() };
            let job = job(&model.name, parallel, Schedule::OneForwardOneBackward);
            let all = model.parameters().total() + model.mtp_parameters().total();
            assert_eq!(job.part_held(0).total(), all, "{}", model.name);
        }
    }

    /// Property: cut parts add up to the model, whole ones once per rank; a tied head is copied.
    #[test]
    fn parts_add_up() {
        for (name, tp, pp, ep) in
            [("llama3-405b", 8, 6, 1), ("deepseek-v3", 4, 16, 32), ("gpt3-175b", 8, 8, 1)]
        {
            let parallel = ParallelConfig { tp, pp, dp: Some(64), ep, ..ParallelConfig::default() };
            let job = job(name, parallel, Schedule::OneForwardOneBackward);
            let model = &job.model;
            let mut held = RankParameters::default();
            for stage in 0..pp {
                held = held.plus(job.stage_held(stage));
            }
            let copy = if model.tied_embeddings { model.vocab * model.hidden } else { 0 };
            let all = model.parameters().total() + model.mtp_parameters().total() + copy;
            assert_eq!(tp * held.cut + held.whole + ep * tp * held.experts, all, "{name}");
        }
    }

    /// With DualPipe every stage holds a part and its mirror: the model twice in all.
    #[test]
    fn dualpipe_holds_everything_twice() {
        let parallel = ParallelConfig { pp: 16, dp: Some(64), ep: 64, ..ParallelConfig::default() };
        let once = job("deepseek-v3", parallel.clone(), Schedule::OneForwardOneBackward);
        let twice = job("deepseek-v3", parallel, Schedule::DualPipe);
        let sum = |job: &Job| (0..16).map(|stage| job.stage_held(stage).total()).sum::<u64>();
        assert_eq!(2 * sum(&once), sum(&twice));
    }
}
