//! How a model is cut over GPUs, and which ranks form which groups.
//!
//! [`ParallelConfig`] is what a scenario writes; [`Layout`] is what it means: degrees of tensor,
//! context, pipeline, data and expert parallelism, and the order in which they number the ranks.
//! A [`Group`] is arithmetic on that numbering: no list of ranks is ever kept, so a layout of
//! 200,000 GPUs costs as much as one of eight.
//!
//! Ranks are numbered tensor innermost, then context, then pipeline, then data, as Llama 3 does
//! (arXiv 2407.21783, section 3.3.2), or with pipeline outermost, which is Megatron-LM's default
//! (`tp-cp-ep-dp-pp`). Experts have a numbering of their own over the tp·cp·dp ranks of a stage:
//! expert tensor innermost (`etp`), then expert, then their copies, as Megatron-LM numbers its
//! expert groups. With etp = tp an expert group is a block of consecutive positions in dp·cp.
//!
//! Hybrid sharding parts the dp·cp copies into blocks of `shard_group` consecutive positions that
//! share one copy. Of the experts only every ep-th position has the same ones, so that a block of
//! that length has shard_group/ep ranks to share them, as in TorchTitan's `dp_mod_ep` and
//! Megatron-LM's `num_distributed_optimizer_instances`, which refuse other sizes than multiples of
//! ep. Here the experts' group is then the largest that divides their copies and lies within as
//! many positions; with ep above `shard_group` it is one rank, which keeps its experts whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

/// How the model is cut over the job's GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParallelConfig {
    /// Tensor parallel: every matrix is cut over this many GPUs.
    pub tp: u64,
    /// Context parallel: every sequence is cut over this many GPUs.
    pub cp: u64,
    /// Pipeline parallel: the layers are cut over this many GPUs.
    pub pp: u64,
    /// Virtual stages per pipeline stage (interleaving).
    pub vpp: u64,
    /// Data parallel: copies of all that. Left out, it is what the job's GPUs allow.
    pub dp: Option<u64>,
    /// Expert parallel: experts are spread over this many ranks. ep·etp divides tp·cp·dp.
    pub ep: u64,
    /// Expert tensor parallel: every expert is cut over this many GPUs. Left out, it is tp, as in
    /// Megatron-LM (`expert_tensor_parallel_size`).
    pub etp: Option<u64>,
    /// Tensor parallel of a vision encoder: tp, or 1, where the images are dealt out over the
    /// tensor ranks and what they become is gathered. Left out, tp.
    pub vision_tp: Option<u64>,
    /// What data-parallel ranks keep only a share of.
    pub sharding: Sharding,
    /// With hybrid sharding: ranks that share one copy. The copies are all-reduced. Experts are
    /// shared by those of the group that have the same ones: a number shard_group/ep, rounded down
    /// to what divides their copies, at least 1.
    pub shard_group: Option<u64>,
    /// Whether norms and residuals are cut along the sequence too, so that tensor parallelism
    /// gathers and scatters instead of reducing (arXiv 2205.05198, section 4.2.2).
    pub sequence_parallel: bool,
    /// How context parallelism exchanges keys and values.
    pub cp_exchange: CpExchange,
    /// The order in which the degrees number the ranks, innermost first.
    pub order: RankOrder,
    /// Layers of each virtual stage in the order of the model.
    pub stage_layers: Option<Vec<u64>>,
    /// How layers are spread over stages where `stage_layers` does not say it. Left out, evenly if
    /// they divide and nothing but embedding and head comes on top, as Megatron-LM does by itself;
    /// else balanced, for then somebody had to choose.
    pub stage_split: Option<StageSplit>,
    /// Rows of embedding and head are padded to a multiple of tp times this. Left out, 128, the
    /// default of Megatron-LM's `make_vocab_size_divisible_by`, which NeMo and Megatron-DeepSpeed
    /// share; where weights are gathered layer by layer 1, as PyTorch's FSDP pads nothing.
    pub vocab_multiple: Option<u64>,
    /// The type of the main gradients: microbatches are added up in it, and it is reduced.
    pub gradients: GradientType,
    /// When gradients are reduced. Left out, it is the sharding's own habit.
    pub reduction: Option<Reduction>,
    /// Bytes of gradients reduced at once. Left out, Megatron-LM's rule: max(40M, 1M · dp)
    /// elements; with FSDP one layer. At least 1 MiB.
    pub bucket: Option<Bytes>,
    /// Axes whose communication the software hides behind computation where it can.
    pub overlap: Vec<Axis>,
}

impl Default for ParallelConfig {
    fn default() -> Self {
        Self {
            tp: 1,
            cp: 1,
            pp: 1,
            vpp: 1,
            dp: None,
            ep: 1,
            etp: None,
            vision_tp: None,
            // Megatron-LM's `use_distributed_optimizer`, which large jobs have on; illustrative.
            sharding: Sharding::Zero1,
            shard_group: None,
            // Megatron-LM advises it whenever tp > 1; it has no effect without.
            sequence_parallel: true,
            // Megatron-LM's `cp_comm_type` default, "p2p".
            cp_exchange: CpExchange::Ring,
            order: RankOrder::TpCpPpDp,
            stage_layers: None,
            stage_split: None,
            vocab_multiple: None,
            // Megatron-LM reduces in fp32 for bf16 models (`accumulate_allreduce_grads_in_fp32`).
            gradients: GradientType::Fp32,
            reduction: None,
            bucket: None,
            // Megatron-LM's usual flags: overlap_grad_reduce, overlap_param_gather, p2p overlap.
            overlap: vec![Axis::Dp, Axis::Pp],
        }
    }
}

/// Nobody pads to more.
pub const MOST_VOCAB_MULTIPLE: u64 = 1 << 16;

impl ParallelConfig {
    /// Rows that embedding and head have for a vocabulary, all tensor ranks together.
    pub fn padded(&self, vocab: u64) -> u64 {
        let usual = if self.sharding.gathers_by_layer() { 1 } else { 128 };
        let multiple = self.vocab_multiple.unwrap_or(usual).min(MOST_VOCAB_MULTIPLE);
        vocab.next_multiple_of((self.tp * multiple).max(1))
    }
}

/// One way of cutting the work; also what traffic is accounted under.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// Tensor parallel.
    Tp,
    /// Context parallel.
    Cp,
    /// Expert parallel.
    Ep,
    /// Pipeline parallel.
    Pp,
    /// Data parallel.
    Dp,
}

impl Axis {
    /// All of them, in the order in which results list them.
    pub const ALL: [Self; 5] = [Self::Tp, Self::Cp, Self::Ep, Self::Pp, Self::Dp];

    /// The word that files and results use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Cp => "cp",
            Self::Ep => "ep",
            Self::Pp => "pp",
            Self::Dp => "dp",
        }
    }
}

/// What data-parallel ranks keep only a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sharding {
    /// Nothing: every rank keeps all, gradients are all-reduced.
    None,
    /// Optimizer state (ZeRO-1, Megatron-LM's distributed optimizer).
    #[default]
    Zero1,
    /// Optimizer state and gradients (ZeRO-2).
    Zero2,
    /// Optimizer state, gradients and weights (ZeRO-3); weights are gathered per microbatch.
    Zero3,
    /// As ZeRO-3, layer by layer (PyTorch FSDP, weights freed after the forward pass).
    Fsdp,
    /// FSDP that keeps gathered weights until the backward pass is done, as Llama 3 did.
    FsdpNoReshard,
    /// FSDP inside groups of `shard_group` ranks, copies between them.
    Hybrid,
}

impl Sharding {
    /// The word that files use.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zero1 => "zero1",
            Self::Zero2 => "zero2",
            Self::Zero3 => "zero3",
            Self::Fsdp => "fsdp",
            Self::FsdpNoReshard => "fsdp-no-reshard",
            Self::Hybrid => "hybrid",
        }
    }

    /// Whether ranks keep only a share of the weights between uses.
    pub fn shards_weights(self) -> bool {
        matches!(self, Self::Zero3 | Self::Fsdp | Self::Hybrid)
    }

    /// Whether ranks keep only a share of the gradients.
    pub fn shards_gradients(self) -> bool {
        !matches!(self, Self::None | Self::Zero1)
    }

    /// Whether weights are gathered layer by layer, in and before the forward pass.
    pub fn gathers_by_layer(self) -> bool {
        matches!(self, Self::Zero3 | Self::Fsdp | Self::FsdpNoReshard | Self::Hybrid)
    }

    /// When gradients are reduced unless told otherwise. Without a pipeline, whoever shards them
    /// reduces after every microbatch (DeepSpeed's ZeRO-2 and 3, PyTorch's FSDP). With one they are
    /// summed first and reduced after the last (Megatron-LM, MegaScale, Llama 3; DeepSpeed refuses
    /// ZeRO-2 beside pipelines).
    pub fn reduction(self, stages: u64) -> Reduction {
        match self {
            Self::Zero2 | Self::Zero3 | Self::Fsdp | Self::Hybrid if stages <= 1 => {
                Reduction::EveryMicrobatch
            }
            _ => Reduction::Once,
        }
    }
}

/// When gradients are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reduction {
    /// After the last microbatch.
    Once,
    /// After every microbatch.
    EveryMicrobatch,
}

/// How context parallelism exchanges keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpExchange {
    /// Round the ring, a block at a time, behind the attention of the block before.
    #[default]
    Ring,
    /// Gathered before attention, as Llama 3 does.
    AllGather,
}

/// How layers are spread over stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StageSplit {
    /// As many layers for each; where they do not divide, one less at the ends of the model.
    Even,
    /// So that the slowest stage is as fast as it can be: embedding, head, loss and
    /// multi-token-prediction layers are weighed by what their kernels take.
    Balanced,
}

/// The order in which degrees number the ranks, innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RankOrder {
    /// Data outermost: Llama 3.
    #[default]
    TpCpPpDp,
    /// Pipeline outermost: Megatron-LM's default.
    TpCpDpPp,
}

/// The type of the main gradients: microbatches are added up in it, and it is reduced.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum GradientType {
    /// Two bytes.
    Bf16,
    /// Four bytes.
    #[default]
    Fp32,
}

impl GradientType {
    /// Bytes per element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bf16 => 2,
            Self::Fp32 => 4,
        }
    }
}

/// Degrees of parallelism that multiply to the job's GPUs, and the numbering of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tensor parallel.
    pub tp: u64,
    /// Context parallel.
    pub cp: u64,
    /// Pipeline parallel.
    pub pp: u64,
    /// Virtual stages per pipeline stage.
    pub vpp: u64,
    /// Data parallel.
    pub dp: u64,
    /// Expert parallel: ep·etp is inside tp·cp·dp.
    pub ep: u64,
    /// Expert tensor parallel.
    pub etp: u64,
    /// Ranks that share one copy of sharded state: dp·cp, or fewer with hybrid sharding.
    pub shard: u64,
    /// The numbering.
    pub order: RankOrder,
}

/// Where a rank stands on each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coordinates {
    /// Position in its tensor group.
    pub tp: u64,
    /// Position in its context group.
    pub cp: u64,
    /// Its pipeline stage.
    pub pp: u64,
    /// Its data-parallel copy.
    pub dp: u64,
}

/// A kind of group of ranks that communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// The parts of one matrix.
    Tensor,
    /// The parts of one sequence.
    Context,
    /// The stages of one pipeline.
    Pipeline,
    /// Copies of the same weights: dp·cp ranks.
    Gradient,
    /// The holders of all experts of a layer: ep ranks.
    Expert,
    /// Copies of the same experts: tp·cp·dp/(ep·etp) ranks.
    ExpertGradient,
    /// With hybrid sharding, the ranks that share one copy.
    Shard,
    /// With hybrid sharding, the holders of the same share of each copy.
    Replica,
    /// With hybrid sharding, the ranks that share one copy of the same experts.
    ExpertShard,
    /// With hybrid sharding, the holders of the same share of each copy of the same experts.
    ExpertReplica,
    /// The first and the last stage, where tied embeddings are reduced between them.
    Ends,
    /// Two stages as far from either end, which hold the same parts under DualPipe.
    Mirror,
    /// The parts of one expert.
    ExpertTensor,
}

impl GroupKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Tensor,
        Self::Context,
        Self::Pipeline,
        Self::Gradient,
        Self::Expert,
        Self::ExpertGradient,
        Self::Shard,
        Self::Replica,
        Self::ExpertShard,
        Self::ExpertReplica,
        Self::Ends,
        Self::Mirror,
        Self::ExpertTensor,
    ];

    /// Whether it follows the experts' own numbering.
    fn is_of_experts(self) -> bool {
        matches!(
            self,
            Self::Expert
                | Self::ExpertTensor
                | Self::ExpertGradient
                | Self::ExpertShard
                | Self::ExpertReplica
        )
    }

    /// What its traffic is accounted under.
    pub fn axis(self) -> Axis {
        match self {
            Self::Tensor | Self::ExpertTensor => Axis::Tp,
            Self::Context => Axis::Cp,
            Self::Pipeline | Self::Ends => Axis::Pp,
            Self::Expert => Axis::Ep,
            Self::Gradient | Self::Shard | Self::Replica | Self::Mirror => Axis::Dp,
            Self::ExpertGradient | Self::ExpertShard | Self::ExpertReplica => Axis::Dp,
        }
    }
}

impl Layout {
    /// Ranks.
    pub fn gpus(&self) -> u64 {
        self.tp * self.cp * self.pp * self.dp
    }

    /// Virtual stages of the whole pipeline.
    pub fn virtual_stages(&self) -> u64 {
        self.pp * self.vpp
    }

    /// Where `rank` stands.
    pub fn coordinates(&self, rank: u64) -> Coordinates {
        assert!(rank < self.gpus(), "rank {rank} of {}", self.gpus());
        let (tp, rest) = (rank % self.tp, rank / self.tp);
        let (cp, rest) = (rest % self.cp, rest / self.cp);
        let (pp, dp) = match self.order {
            RankOrder::TpCpPpDp => (rest % self.pp, rest / self.pp),
            RankOrder::TpCpDpPp => (rest / self.dp, rest % self.dp),
        };
        Coordinates { tp, cp, pp, dp }
    }

    /// The rank that stands there.
    pub fn rank(&self, at: Coordinates) -> u64 {
        let outer = match self.order {
            RankOrder::TpCpPpDp => at.pp + self.pp * at.dp,
            RankOrder::TpCpDpPp => at.dp + self.dp * at.pp,
        };
        at.tp + self.tp * (at.cp + self.cp * outer)
    }

    /// Ranks in a group of that kind.
    pub fn group_size(&self, kind: GroupKind) -> u64 {
        let copies = self.dp * self.cp;
        match kind {
            GroupKind::Tensor => self.tp,
            GroupKind::Context => self.cp,
            GroupKind::Pipeline => self.pp,
            GroupKind::Gradient => copies,
            GroupKind::Expert => self.ep,
            GroupKind::ExpertTensor => self.etp,
            GroupKind::ExpertGradient => copies * self.tp / (self.ep * self.etp),
            GroupKind::Shard => self.shard,
            GroupKind::Replica => copies / self.shard,
            GroupKind::ExpertShard => self.expert_shard(),
            GroupKind::ExpertReplica => copies * self.tp / self.expert_block(),
            GroupKind::Ends | GroupKind::Mirror => self.pp.min(2),
        }
    }

    /// Groups of that kind. All ranks are in one each, except that only the ends of a pipeline
    /// are in a group of that kind, and that the middle of an odd one is its own mirror.
    pub fn groups(&self, kind: GroupKind) -> u64 {
        match kind {
            GroupKind::Ends => self.gpus() / self.pp,
            GroupKind::Mirror if 1 < self.pp => self.gpus() / self.pp * (self.pp / 2),
            _ => self.gpus() / self.group_size(kind),
        }
    }

    /// The group with number `index`.
    pub fn group(&self, kind: GroupKind, index: u64) -> Group {
        assert!(index < self.groups(kind), "group {index} of {}", self.groups(kind));
        let mut rest = index;
        let mut digit = |size: u64| {
            let value = rest % size;
            rest /= size;
            value
        };
        let mut at = Coordinates::default();
        let mut copy = 0;
        // Ranks of a stage, of which the experts' groups part all.
        let (tp, stage) = (self.tp, self.tp * self.cp * self.dp);
        let own = self.ep * self.etp;
        let mut place = None;
        match kind {
            GroupKind::Tensor => {
                (at.cp, at.pp, at.dp) = (digit(self.cp), digit(self.pp), digit(self.dp));
                copy = self.copy(at);
            }
            GroupKind::Context => {
                (at.tp, at.pp, at.dp) = (digit(self.tp), digit(self.pp), digit(self.dp));
                copy = self.copy(at);
            }
            GroupKind::Pipeline | GroupKind::Ends => {
                (at.tp, copy) = (digit(self.tp), digit(self.cp * self.dp));
            }
            GroupKind::Gradient => (at.tp, at.pp) = (digit(self.tp), digit(self.pp)),
            GroupKind::Expert => place = Some(digit(self.etp) + own * digit(stage / own)),
            GroupKind::ExpertTensor => place = Some(self.etp * digit(stage / self.etp)),
            GroupKind::Shard => {
                at.tp = digit(self.tp);
                copy = self.shard * digit(self.cp * self.dp / self.shard);
                at.pp = digit(self.pp);
            }
            GroupKind::ExpertGradient => place = Some(digit(own)),
            GroupKind::Replica => {
                (at.tp, copy, at.pp) = (digit(self.tp), digit(self.shard), digit(self.pp));
            }
            GroupKind::ExpertShard => {
                let block = self.expert_block();
                place = Some(digit(own) + block * digit(stage / block));
            }
            GroupKind::ExpertReplica => place = Some(digit(self.expert_block())),
            GroupKind::Mirror => {
                (at.tp, copy) = (digit(self.tp), digit(self.cp * self.dp));
                at.pp = digit(self.pp.div_ceil(2));
            }
        }
        if let Some(place) = place {
            (at.tp, copy, at.pp) = (place % tp, place / tp, digit(self.pp));
        }
        Group { layout: *self, kind, tp: at.tp, pp: at.pp, copy }
    }

    /// The group of that kind that `rank` is in; none for a rank between the ends of a pipeline,
    /// or for one that would be its own mirror.
    pub fn group_of(&self, kind: GroupKind, rank: u64) -> Option<Group> {
        let at = self.coordinates(rank);
        let copy = self.copy(at);
        let group = |tp, pp, copy| Some(Group { layout: *self, kind, tp, pp, copy });
        let (own, block) = (self.ep * self.etp, self.expert_block());
        let place = at.tp + self.tp * copy;
        let placed = |place: u64| group(place % self.tp, at.pp, place / self.tp);
        match kind {
            GroupKind::Tensor => group(0, at.pp, copy),
            GroupKind::Context => group(at.tp, at.pp, copy - at.cp),
            GroupKind::Pipeline => group(at.tp, 0, copy),
            GroupKind::Ends if at.pp != 0 && at.pp != self.pp - 1 => None,
            GroupKind::Ends => group(at.tp, 0, copy),
            GroupKind::Mirror if 1 < self.pp && 2 * at.pp + 1 == self.pp => None,
            GroupKind::Mirror => group(at.tp, at.pp.min(self.pp - 1 - at.pp), copy),
            GroupKind::Gradient => group(at.tp, at.pp, 0),
            GroupKind::Expert => placed(place - place % own + place % self.etp),
            GroupKind::ExpertTensor => placed(place - place % self.etp),
            GroupKind::Shard => group(at.tp, at.pp, copy - copy % self.shard),
            GroupKind::ExpertGradient => placed(place % own),
            GroupKind::Replica => group(at.tp, at.pp, copy % self.shard),
            GroupKind::ExpertShard => placed(place - place % block + place % block % own),
            GroupKind::ExpertReplica => placed(place % block),
        }
    }

    /// Ranks that share one copy of the same experts. They lie within as many consecutive
    /// positions as the ranks that share one copy of everything else.
    fn expert_shard(&self) -> u64 {
        let own = self.ep * self.etp;
        let copies = self.tp * self.dp * self.cp / own;
        let most = (self.tp * self.shard / own).clamp(1, copies);
        (1..=most).rev().find(|size| copies.is_multiple_of(*size)).unwrap_or(1)
    }

    /// Ranks that hold one copy of all experts, with those that share it.
    fn expert_block(&self) -> u64 {
        self.ep * self.etp * self.expert_shard()
    }

    /// Position among the dp·cp copies of a stage's weights: context innermost.
    fn copy(&self, at: Coordinates) -> u64 {
        at.cp + self.cp * at.dp
    }
}

/// Some ranks that communicate, as arithmetic on the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    layout: Layout,
    kind: GroupKind,
    tp: u64,
    pp: u64,
    copy: u64,
}

impl Group {
    /// What kind of group it is.
    pub fn kind(&self) -> GroupKind {
        self.kind
    }

    /// How many ranks are in it.
    pub fn size(&self) -> u64 {
        self.layout.group_size(self.kind)
    }

    /// Its member with number `index`.
    pub fn member(&self, index: u64) -> u64 {
        assert!(index < self.size(), "member {index} of {}", self.size());
        let Layout { tp, cp, pp, ep, etp, shard, .. } = self.layout;
        let (mut tensor, mut stage, mut copy) = (self.tp, self.pp, self.copy);
        let mut place = tensor + tp * copy;
        match self.kind {
            GroupKind::Tensor => tensor = index,
            GroupKind::Pipeline => stage = index,
            GroupKind::Ends => stage = index * (pp - 1),
            GroupKind::Mirror if index == 1 => stage = pp - 1 - stage,
            GroupKind::Mirror => {}
            GroupKind::Context | GroupKind::Gradient => copy += index,
            GroupKind::Shard => copy += index,
            GroupKind::Replica => copy += index * shard,
            GroupKind::Expert => place += index * etp,
            GroupKind::ExpertTensor => place += index,
            GroupKind::ExpertGradient | GroupKind::ExpertShard => place += index * ep * etp,
            GroupKind::ExpertReplica => place += index * self.layout.expert_block(),
        }
        if self.kind.is_of_experts() {
            (tensor, copy) = (place % tp, place / tp);
        }
        let at = Coordinates { tp: tensor, cp: copy % cp, pp: stage, dp: copy / cp };
        self.layout.rank(at)
    }

    /// Its members in order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = u64> + use<> {
        let group = *self;
        let size = usize::try_from(self.size()).expect("ranks fit the memory of this machine");
        (0..size).map(move |index| group.member(index as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> impl Iterator<Item = Layout> {
        let degrees = [
            [8, 1, 16, 128, 1, 128, 8],
            [2, 2, 2, 3, 6, 2, 2],
            [1, 4, 3, 6, 8, 12, 1],
            [1, 1, 1, 1, 1, 1, 1],
            [3, 4, 2, 3, 6, 4, 3],
            [2, 1, 2, 16, 2, 8, 2],
            [1, 2, 2, 12, 4, 12, 1],
            [1, 1, 2, 40, 4, 10, 1],
            [4, 1, 2, 8, 8, 8, 1],
            [4, 2, 2, 6, 6, 4, 2],
            [2, 1, 2, 16, 2, 8, 4],
        ];
        degrees.into_iter().flat_map(|[tp, cp, pp, dp, ep, shard, etp]| {
            [RankOrder::TpCpPpDp, RankOrder::TpCpDpPp].map(|order| Layout {
                tp,
                cp,
                pp,
                vpp: 1,
                dp,
                ep,
                etp,
                shard,
                order,
            })
        })
    }

    /// Property: the groups of a kind part the ranks (of the ends: the first and last stages),
    /// and every rank finds its own group.
    #[test]
    fn every_rank_is_in_one_group_of_each_kind() {
        for layout in layouts() {
            for kind in GroupKind::ALL {
                let mut seen = vec![0; usize::try_from(layout.gpus()).unwrap()];
                for index in 0..layout.groups(kind) {
                    let group = layout.group(kind, index);
                    for rank in group.members() {
                        seen[usize::try_from(rank).unwrap()] += 1;
                        assert_eq!(layout.group_of(kind, rank), Some(group), "{layout:?}");
                    }
                }
                for (rank, seen) in seen.into_iter().enumerate() {
                    let grouped = layout.group_of(kind, rank as u64).is_some();
                    assert_eq!(seen, usize::from(grouped), "{kind:?} of {layout:?}");
                    assert!(grouped || matches!(kind, GroupKind::Ends | GroupKind::Mirror));
                }
            }
        }
    }

    #[test]
    fn coordinates_and_ranks_are_inverse() {
        for layout in layouts() {
            for rank in 0..layout.gpus() {
                assert_eq!(layout.rank(layout.coordinates(rank)), rank);
            }
        }
    }

    /// Oracle, by hand: eight ranks as tp 2, pp 2, dp 2.
    #[test]
    fn the_two_numberings() {
        let members = |order, kind| -> Vec<u64> {
            let (ep, etp, shard) = (1, 2, 2);
            let layout = Layout { tp: 2, cp: 1, pp: 2, vpp: 1, dp: 2, ep, etp, shard, order };
            layout.group(kind, 0).members().collect()
        };
        assert_eq!(members(RankOrder::TpCpPpDp, GroupKind::Tensor), [0, 1]);
        assert_eq!(members(RankOrder::TpCpPpDp, GroupKind::Pipeline), [0, 2]);
        assert_eq!(members(RankOrder::TpCpPpDp, GroupKind::Gradient), [0, 4]);
        assert_eq!(members(RankOrder::TpCpDpPp, GroupKind::Pipeline), [0, 4]);
        assert_eq!(members(RankOrder::TpCpDpPp, GroupKind::Gradient), [0, 2]);
    }

    /// Oracle, by hand: with tp 2 and etp 1 the holders of four experts are two tensor groups, and
    /// experts have half as many copies as everything else; with etp 2 they lie across them.
    #[test]
    fn experts_have_a_numbering_of_their_own() {
        let members = |ep, etp, kind| -> Vec<u64> {
            let order = RankOrder::TpCpDpPp;
            let layout = Layout { tp: 2, cp: 1, pp: 1, vpp: 1, dp: 4, ep, etp, shard: 4, order };
            layout.group(kind, 0).members().collect()
        };
        assert_eq!(members(4, 1, GroupKind::Expert), [0, 1, 2, 3]);
        assert_eq!(members(4, 1, GroupKind::ExpertGradient), [0, 4]);
        assert_eq!(members(4, 1, GroupKind::ExpertTensor), [0]);
        assert_eq!(members(4, 2, GroupKind::Expert), [0, 2, 4, 6]);
        assert_eq!(members(4, 2, GroupKind::ExpertTensor), [0, 1]);
        assert_eq!(members(1, 4, GroupKind::ExpertTensor), [0, 1, 2, 3]);
    }
}
