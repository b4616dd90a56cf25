//! Weights and gradients between the copies of a part.
//!
//! Without sharding gradients are all-reduced. With ZeRO-1 and 2 they are scattered and the new
//! weights gathered after the optimizer, in buckets (Megatron-LM's distributed optimizer). With
//! ZeRO-3 and FSDP weights are gathered layer by layer before they are used, forward and
//! backward, and gradients scattered layer by layer; keeping the gathered weights (no reshard)
//! saves all gathers but the first. Hybrid sharding does that inside a shard group, and sums each
//! share over the copies. Experts have fewer copies, and buffers and shard groups of their own.
//!
//! Sources: Rajbhandari et al. (arXiv 1910.02054), Zhao et al. (arXiv 2304.11277), Megatron-LM's
//! `DistributedDataParallel` for buckets. Departure: a bucket is cut at its size, not at the next
//! whole parameter.

use traffic::Collective;
use units::Bytes;

use super::{Call, Every, OverlapsWith, Piece, Timed, Unit};
use crate::dispatch::Spread;
use crate::parallel::{GroupKind, Reduction, Sharding};
use crate::partition::RankParameters;
use crate::resolve::Job;
use crate::schedule::Pass;

/// The gathers and the reductions of a part.
pub(super) fn of(job: &Job, index: u64, pieces: &[Piece]) -> (Vec<Timed>, Vec<Timed>) {
    let units: Vec<RankParameters> = pieces
        .iter()
        .flat_map(|piece| {
            let repeat = usize::try_from(piece.repeat).expect("layers fit memory");
            std::iter::repeat_n(unit_held(job, piece.unit), repeat)
        })
        .collect();
    debug_assert_eq!(
        units.iter().fold(RankParameters::default(), |sum, &unit| sum.plus(unit)),
        job.part_held(index),
        "the units of a part hold what the part holds"
    );
    let mut found = (Vec::new(), Vec::new());
    for side in [Side::Dense, Side::Experts] {
        let held: Vec<u64> = units.iter().map(|unit| side.of(unit)).collect();
        if job.parallel.sharding.gathers_by_layer() {
            by_layer(job, side, &held, &mut found);
        } else {
            by_bucket(job, side, &held, &mut found);
        }
    }
    let size = |timed: &Timed| job.layout.group_size(timed.call.kind);
    found.0.retain(|timed| 1 < size(timed));
    found.1.retain(|timed| 1 < size(timed));
    found
}

/// What is exchanged once per step, after the last pass and before the optimizer.
pub(super) fn closing(job: &Job, stage: u64) -> Vec<Call> {
    let gradient = job.parallel.gradients.bytes();
    let mut calls = Vec::new();
    let mut sum = |name, kind, bytes| {
        calls.push(Call {
            name,
            kind,
            collective: Collective::AllReduce,
            bytes: Bytes::new(bytes),
            times: 1,
            beside: OverlapsWith::Nothing,
            spread: Spread::Even,
        });
    };
    let held = job.stage_held(stage);
    if job.is_bidirectional() {
        // The mirrored stage holds the same parts; with sharding each rank has its share of them.
        let share = match job.parallel.sharding {
            Sharding::None => held.total(),
            _ => job.share_of(held),
        };
        sum("gradients of the mirrored stage", GroupKind::Mirror, share * gradient);
    }
    if job.parallel.sequence_parallel {
        // Each tensor rank saw only its part of the sequence.
        sum("gradients of norms", GroupKind::Tensor, held.whole * gradient);
    } else if job.deals_images() && job.pipeline().parts_of(stage).contains(&0) {
        // Each tensor rank saw only its images.
        let whole = job.vision_held().whole;
        sum("gradients of the vision encoder", GroupKind::Tensor, whole * gradient);
    }
    // The last stage uses the embedding too: as its head, or for multi-token prediction, which
    // looks up the next tokens. (DualPipe has both ends of the model on one rank.)
    let at_both_ends = job.model.tied_embeddings || 0 < job.model.mtp_layers;
    if at_both_ends && stage == 0 && !job.is_bidirectional() {
        let embedding = job.vocab_held() * job.model.hidden;
        let name = match job.model.tied_embeddings {
            true => "gradients of the tied embedding",
            false => "gradients of the embedding of both ends",
        };
        sum(name, GroupKind::Ends, embedding * gradient);
    }
    calls.retain(|call| 1 < job.layout.group_size(call.kind));
    calls
}

/// What has copies on all data-parallel ranks, or only on those of the same experts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Dense,
    Experts,
}

impl Side {
    fn of(self, held: &RankParameters) -> u64 {
        match self {
            Self::Dense => held.dense(),
            Self::Experts => held.experts,
        }
    }

    /// The ranks that exchange weights and gradients, and those that hold the same share.
    fn groups(self, sharding: Sharding) -> (GroupKind, Option<GroupKind>) {
        match (self, sharding) {
            (Self::Dense, Sharding::Hybrid) => (GroupKind::Shard, Some(GroupKind::Replica)),
            (Self::Experts, Sharding::Hybrid) => {
                (GroupKind::ExpertShard, Some(GroupKind::ExpertReplica))
            }
            (Self::Dense, _) => (GroupKind::Gradient, None),
            (Self::Experts, _) => (GroupKind::ExpertGradient, None),
        }
    }

    fn weights(self) -> &'static str {
        match self {
            Self::Dense => "weights",
            Self::Experts => "experts' weights",
        }
    }

    fn gradients(self) -> &'static str {
        match self {
            Self::Dense => "gradients",
            Self::Experts => "experts' gradients",
        }
    }
}

fn unit_held(job: &Job, unit: Unit) -> RankParameters {
    match unit {
        Unit::Encoder => job.encoder_held(),
        Unit::Projector => job.projector_held(),
        Unit::Embedding => job.embedding_held(),
        Unit::Layer(kind, _) => job.layer_held(kind),
        Unit::Head => job.head_held(),
        Unit::Prediction(_) => {
            let RankParameters { cut, whole, experts } = job.mtp_held();
            let layers = job.model.mtp_layers;
            RankParameters { cut: cut / layers, whole: whole / layers, experts: experts / layers }
        }
    }
}

fn copy(name: &'static str, kind: GroupKind, collective: Collective, bytes: u64) -> Call {
    let bytes = Bytes::new(bytes);
    Call {
        name,
        kind,
        collective,
        bytes,
        times: 1,
        beside: OverlapsWith::Layers,
        spread: Spread::Even,
    }
}

type Both = (Vec<Timed>, Vec<Timed>);

/// FSDP and its relatives: every unit by itself.
fn by_layer(job: &Job, side: Side, held: &[u64], found: &mut Both) {
    let sharding = job.parallel.sharding;
    let (group, replicas) = side.groups(sharding);
    let reduce = match job.reduction {
        Reduction::Once => Every::Step,
        Reduction::EveryMicrobatch => Every::Microbatch,
    };
    let count = held.len() as u64;
    for (place, &parameters) in (0..).zip(held).filter(|(_, parameters)| 0 < **parameters) {
        let weights = parameters * job.precision.bytes();
        let gather = copy(side.weights(), group, Collective::AllGather, weights);
        let every = if sharding.shards_weights() { Every::Microbatch } else { Every::Step };
        found.0.push(Timed { call: gather, pass: Pass::Forward, units: place, every });
        if sharding.shards_weights() {
            let units = count - 1 - place;
            found.0.push(Timed { call: gather, pass: Pass::Backward, units, every });
        }
        let gradients = parameters * job.parallel.gradients.bytes();
        let units = count - place;
        let mut push = |call| {
            found.1.push(Timed { call, pass: Pass::Backward, units, every: reduce });
        };
        push(copy(side.gradients(), group, Collective::ReduceScatter, gradients));
        if let Some(replicas) = replicas {
            let share = gradients.div_ceil(job.layout.group_size(group));
            push(copy(side.gradients(), replicas, Collective::AllReduce, share));
        }
    }
}

/// Megatron-LM's buffers: filled from the last unit to the first, sent when a bucket is full.
fn by_bucket(job: &Job, side: Side, held: &[u64], found: &mut Both) {
    let (group, _) = side.groups(job.parallel.sharding);
    let gradient = job.parallel.gradients.bytes();
    // Megatron-LM's default: max(40,000,000, 1,000,000 · dp) elements.
    let default = (40_000_000).max(1_000_000 * job.layout.dp * job.layout.cp);
    let bucket = job.parallel.bucket.map_or(default, |bytes| (bytes.get() / gradient).max(1));
    let every = match job.reduction {
        Reduction::Once => Every::Step,
        Reduction::EveryMicrobatch => Every::Microbatch,
    };
    let all: u64 = held.iter().sum();
    let (mut sent, mut full) = (0, 0);
    let mut units = 0;
    for &parameters in held.iter().rev() {
        units += 1;
        full += parameters;
        while sent < full && (bucket <= full - sent || full == all) {
            let size = bucket.min(full - sent);
            sent += size;
            let reduce = match job.parallel.sharding {
                Sharding::None => Collective::AllReduce,
                _ => Collective::ReduceScatter,
            };
            let call = copy(side.gradients(), group, reduce, size * gradient);
            found.1.push(Timed { call, pass: Pass::Backward, units, every });
            if job.parallel.sharding != Sharding::None {
                let weights = size * job.precision.bytes();
                let call = copy(side.weights(), group, Collective::AllGather, weights);
                // The weights of a bucket are first needed by the first of its units.
                let units = (held.len() as u64) - units;
                found.0.push(Timed { call, pass: Pass::Forward, units, every: Every::Step });
            }
        }
    }
}
