//! From a job to what its passes cost: kernels on the GPU, exchanges on the fabric.
//!
//! How it works. Each part of the model is so many dense layers and so many with experts, plus the
//! embedding or the head. A pass over it launches the job crate's kernels and exchanges data on
//! four axes:
//!
//! * tensor: with sequence parallelism two gathers and two scatters forward, the same backward, and
//!   two further gathers of inputs for the weights' gradients (Korthikanti et al., arXiv
//!   2205.05198, section 4.2.2); without, two all-reduces each way (Shoeybi et al., arXiv
//!   1909.08053);
//! * context: keys and values, round a ring behind attention, or gathered before it; their
//!   gradients back again;
//! * expert: dispatch and combine forward, the same backward;
//! * data: weights of sharded layers where they are freed between passes.
//!
//! What is not overlapped is exposed whole. Overlapped tensor communication leaves its first and
//! last chunk exposed ([`Overheads::tensor_exposed`]); everything else that overlaps is exposed
//! where it is longer than what hides it, and slows that down by the SMs it takes.
//!
//! Full recomputation repeats the forward pass with its communication inside the backward pass.

use job::compute::layer::{Dropout, Residual, optimizer};
use job::compute::{GpuRates, Kernel, Layer, Pass, Timer};
use job::config::AttentionKernel;
use job::model::{LayerKind, Mlp, Recompute};
use job::parallel::{CpExchange, Reduction, Sharding};
use job::schedule::Pipeline;
use job::{Axis, GroupKind, Job};
use traffic::Collective;
use units::{Bytes, Span};

use crate::assemble::{Copying, PartCosts, Sending, StepInput};
use crate::network::{Exchange, Network, Repeats, Unserved};
use crate::overheads::Overheads;
use crate::timeline::{Parts, Share};

/// Bytes of an activation on the wire: bf16, whatever the products' type.
const ACTIVATION: u64 = 2;

/// What a job's passes cost on one GPU and one fabric.
#[derive(Debug)]
pub struct Costing<'a, 'n> {
    job: &'a Job,
    rates: &'a GpuRates,
    overheads: &'a Overheads,
    network: &'a mut Network<'n>,
    layer: Layer<'a>,
    /// Bytes that each phase moves in one step, as the collective counts them.
    moved: Repeats,
}

/// One pass over one layer, before anything is hidden.
#[derive(Clone, Copy, Debug, Default)]
struct LayerPass {
    kernels: Span,
    attention: Span,
    tensor: Span,
    context: Span,
    expert: Span,
    data: Span,
}

impl LayerPass {
    fn plus(self, other: &Self) -> Self {
        Self {
            kernels: self.kernels + other.kernels,
            attention: self.attention + other.attention,
            tensor: self.tensor + other.tensor,
            context: self.context + other.context,
            expert: self.expert + other.expert,
            data: self.data + other.data,
        }
    }

    fn times(self, n: u64) -> Self {
        Self {
            kernels: self.kernels * n,
            attention: self.attention * n,
            tensor: self.tensor * n,
            context: self.context * n,
            expert: self.expert * n,
            data: self.data * n,
        }
    }
}

impl<'a, 'n> Costing<'a, 'n> {
    /// A job on a GPU and a network.
    pub fn new(
        job: &'a Job,
        rates: &'a GpuRates,
        overheads: &'a Overheads,
        network: &'a mut Network<'n>,
    ) -> Self {
        let moved = Repeats::new();
        Self { job, rates, overheads, network, layer: layer_of(job), moved }
    }

    /// Everything that the step is put together from.
    pub fn input(&mut self) -> Result<StepInput, Unserved> {
        let pipeline = self.job.pipeline();
        let mut parts = Vec::new();
        for part in 0..self.job.parts() {
            parts.push(self.part(part)?);
        }
        let together = self.together(&pipeline)?;
        let overlaps = |axis| self.job.parallel.overlap.contains(&axis);
        Ok(StepInput {
            pipeline,
            parts,
            together,
            message: self.message()?,
            sending: if overlaps(Axis::Pp) { Sending::Overlapped } else { Sending::Blocking },
            copying: if overlaps(Axis::Dp) { Copying::Overlapped } else { Copying::AtTheEnd },
            optimizer: (0..pipeline.stages).map(|stage| self.optimizer(stage)).collect(),
            overhead: self.overheads.per_step,
            slowdown: Vec::new(),
        })
    }

    /// Forward and backward passes interleaved, by stage, where the schedule has them. Their bytes
    /// have been counted with the passes.
    fn together(&mut self, pipeline: &Pipeline) -> Result<Vec<Parts>, Unserved> {
        if !self.job.is_bidirectional() {
            return Ok(Vec::new());
        }
        let counted = self.moved.clone();
        let stages = 0..pipeline.stages;
        let together = stages.map(|stage| self.interleaved(&pipeline.parts_of(stage))).collect();
        self.moved = counted;
        together
    }

    /// How often each phase's simulated bytes are moved in one step.
    pub fn repeats(&self) -> Repeats {
        let mut repeats = self.moved.clone();
        for phase in self.network.phases() {
            let key = (phase.exchange.kind, phase.exchange.collective);
            if let Some(bytes) = repeats.get_mut(&key) {
                *bytes /= phase.exchange.bytes.as_f64().max(1.0);
            }
        }
        repeats
    }

    fn overlaps(&self, axis: Axis) -> bool {
        self.job.parallel.overlap.contains(&axis)
    }

    fn kernels(&self, kernels: &[Kernel]) -> Span {
        Timer::measured().total(kernels, self.rates)
    }

    /// One exchange that happens `times` in a step, on one rank.
    fn exchange(
        &mut self,
        kind: GroupKind,
        collective: Collective,
        bytes: u64,
    ) -> Result<Span, Unserved> {
        self.network.time(Exchange { kind, collective, bytes: Bytes::new(bytes) })
    }

    fn count(&mut self, kind: GroupKind, collective: Collective, bytes: f64) {
        *self.moved.entry((kind, collective)).or_default() += bytes;
    }

    /// The passes over one part of the model.
    fn part(&mut self, part: u64) -> Result<PartCosts, Unserved> {
        let layers = self.job.layers_of(part);
        let held = self.job.part_held(part);
        let (gather, reduce) = self.copies(held)?;
        Ok(PartCosts {
            forward: self.pass(part, Pass::Forward)?,
            input: self.pass(part, Pass::InputGradient)?,
            weight: self.pass(part, Pass::WeightGradient)?,
            layers: layers.end - layers.start,
            gather,
            reduce,
        })
    }

    /// One pass over a part, with what stays exposed of its communication.
    fn pass(&mut self, part: u64, pass: Pass) -> Result<Parts, Unserved> {
        let whole = self.whole_pass(part, pass)?;
        Ok(self.exposed(&whole))
    }

    /// One pass over a part, nothing hidden yet.
    fn whole_pass(&mut self, part: u64, pass: Pass) -> Result<LayerPass, Unserved> {
        let layers = self.job.layers_of(part);
        let experts = self.job.model.moe_layers_in(layers.start, layers.end);
        let dense = layers.end - layers.start - experts;
        let mut whole = self.layer_pass(LayerKind::Dense, pass, dense)?.times(dense);
        whole = whole.plus(&self.layer_pass(LayerKind::Moe, pass, experts)?.times(experts));
        whole = whole.plus(&self.ends(part, pass)?);
        Ok(whole)
    }

    /// One pass over one layer of a kind, of which the part has `count`.
    fn layer_pass(
        &mut self,
        kind: LayerKind,
        pass: Pass,
        count: u64,
    ) -> Result<LayerPass, Unserved> {
        if count == 0 {
            return Ok(LayerPass::default());
        }
        let mut one = self.layer_once(kind, pass, count)?;
        if pass == Pass::InputGradient {
            let again = self.layer.recomputed(kind, self.job.recompute);
            one.kernels += self.kernels(&again);
            one.attention += self.attention(&again);
            if self.job.recompute == Recompute::Full {
                let forward = self.layer_once(kind, Pass::Forward, count)?;
                one.tensor += forward.tensor;
                one.context += forward.context;
                one.expert += forward.expert;
            }
        }
        Ok(one)
    }

    fn layer_once(
        &mut self,
        kind: LayerKind,
        pass: Pass,
        count: u64,
    ) -> Result<LayerPass, Unserved> {
        let kernels = self.layer.kernels(kind, pass);
        let often = (count * self.job.microbatches) as f64;
        Ok(LayerPass {
            kernels: self.kernels(&kernels),
            attention: self.attention(&kernels),
            tensor: self.tensor(pass, often)?,
            context: self.context(pass, often)?,
            expert: match kind {
                LayerKind::Moe => self.expert(pass, often)?,
                LayerKind::Dense => Span::ZERO,
            },
            data: self.freed_weights(kind, pass, often)?,
        })
    }

    /// What of some kernels is attention, which hides a ring of keys and values.
    fn attention(&self, kernels: &[Kernel]) -> Span {
        let attention = kernels.iter().filter(|kernel| matches!(kernel, Kernel::Attention(_)));
        Timer::measured().total(attention, self.rates)
    }

    fn tensor(&mut self, pass: Pass, often: f64) -> Result<Span, Unserved> {
        let bytes = self.job.tokens() * self.job.model.hidden * ACTIVATION;
        let kind = GroupKind::Tensor;
        let cut = self.job.parallel.sequence_parallel;
        let (gathers, scatters, reductions) = match (pass, cut) {
            (Pass::WeightGradient, true) => (2, 0, 0),
            (_, true) => (2, 2, 0),
            (Pass::WeightGradient, false) => (0, 0, 0),
            (_, false) => (0, 0, 2),
        };
        let mut span = Span::ZERO;
        for (collective, times) in [
            (Collective::AllGather, gathers),
            (Collective::ReduceScatter, scatters),
            (Collective::AllReduce, reductions),
        ] {
            if 0 < times && 1 < self.job.layout.tp {
                span += self.exchange(kind, collective, bytes)? * times;
                self.count(kind, collective, bytes as f64 * times as f64 * often);
            }
        }
        Ok(span)
    }

    /// Keys and values of the whole sequence, or with gradients those of both.
    fn context(&mut self, pass: Pass, often: f64) -> Result<Span, Unserved> {
        let cp = self.job.layout.cp;
        if cp == 1 || pass == Pass::WeightGradient {
            return Ok(Span::ZERO);
        }
        let model = &self.job.model;
        let width = match model.latent {
            Some(latent) => latent.kv_rank + latent.rope,
            None => 2 * self.job.kv_heads_held() * model.head_dim,
        };
        let bytes = self.job.tokens() * cp * width * ACTIVATION;
        let kind = GroupKind::Context;
        let mut span = self.exchange(kind, Collective::AllGather, bytes)?;
        self.count(kind, Collective::AllGather, bytes as f64 * often);
        if pass == Pass::InputGradient {
            span += self.exchange(kind, Collective::ReduceScatter, bytes)?;
            self.count(kind, Collective::ReduceScatter, bytes as f64 * often);
        }
        Ok(span)
    }

    fn expert(&mut self, pass: Pass, often: f64) -> Result<Span, Unserved> {
        if self.job.layout.ep == 1 || pass == Pass::WeightGradient {
            return Ok(Span::ZERO);
        }
        let hidden = self.job.model.hidden;
        let tokens = self.job.tokens();
        let kind = GroupKind::Expert;
        let out = tokens * self.job.dispatch.token_bytes(hidden);
        let back = tokens * hidden * ACTIVATION;
        let mut span = Span::ZERO;
        for (collective, bytes) in [(Collective::MoeDispatch, out), (Collective::MoeCombine, back)]
        {
            span += self.exchange(kind, collective, bytes)?;
            self.count(kind, collective, bytes as f64 * often);
        }
        Ok(span)
    }

    /// Weights that are freed after use are gathered again for every pass.
    fn freed_weights(&mut self, kind: LayerKind, pass: Pass, often: f64) -> Result<Span, Unserved> {
        let every = self.job.reduction == Reduction::EveryMicrobatch;
        let held = self.job.layer_held(kind).dense();
        let group = self.gradient_group();
        let mut span = Span::ZERO;
        if self.job.parallel.sharding.shards_weights() && pass != Pass::WeightGradient {
            let bytes = held * self.job.precision.bytes();
            span += self.exchange(group, Collective::AllGather, bytes)?;
            self.count(group, Collective::AllGather, bytes as f64 * often);
        }
        if every && pass == Pass::WeightGradient {
            let bytes = held * self.job.parallel.gradients.bytes();
            span += self.exchange(group, Collective::ReduceScatter, bytes)?;
            self.count(group, Collective::ReduceScatter, bytes as f64 * often);
        }
        Ok(span)
    }

    fn gradient_group(&self) -> GroupKind {
        match self.job.parallel.sharding {
            Sharding::Hybrid => GroupKind::Shard,
            _ => GroupKind::Gradient,
        }
    }

    /// Gathering a part's weights before the first pass, reducing its gradients after the last.
    fn copies(&mut self, held: job::partition::Held) -> Result<(Span, Span), Unserved> {
        let sharding = self.job.parallel.sharding;
        let (mut gather, mut reduce) = (Span::ZERO, Span::ZERO);
        let groups =
            [(self.gradient_group(), held.dense()), (GroupKind::ExpertGradient, held.experts)];
        for (kind, parameters) in groups {
            let weights = parameters * self.job.precision.bytes();
            let gradients = parameters * self.job.parallel.gradients.bytes();
            if sharding == Sharding::None {
                reduce += self.exchange(kind, Collective::AllReduce, gradients)?;
                self.count(kind, Collective::AllReduce, gradients as f64);
                continue;
            }
            if !sharding.shards_weights() {
                gather += self.exchange(kind, Collective::AllGather, weights)?;
                self.count(kind, Collective::AllGather, weights as f64);
            }
            if self.job.reduction == Reduction::Once {
                reduce += self.exchange(kind, Collective::ReduceScatter, gradients)?;
                self.count(kind, Collective::ReduceScatter, gradients as f64);
            }
        }
        if sharding == Sharding::Hybrid {
            let share = held.total() * self.job.parallel.gradients.bytes() / self.job.layout.shard;
            reduce += self.exchange(GroupKind::Replica, Collective::AllReduce, share)?;
            self.count(GroupKind::Replica, Collective::AllReduce, share as f64);
        }
        Ok((gather, reduce))
    }

    /// The embedding before the first part, the head and further predictions behind the last.
    fn ends(&mut self, part: u64, pass: Pass) -> Result<LayerPass, Unserved> {
        let mut ends = LayerPass::default();
        let bytes = self.job.tokens() * self.job.model.hidden * ACTIVATION;
        let cut = self.job.parallel.sequence_parallel;
        let often = self.job.microbatches as f64;
        let tensor = |costing: &mut Self, collective| -> Result<Span, Unserved> {
            if costing.job.layout.tp == 1 || pass == Pass::WeightGradient {
                return Ok(Span::ZERO);
            }
            costing.count(GroupKind::Tensor, collective, bytes as f64 * often);
            costing.exchange(GroupKind::Tensor, collective, bytes)
        };
        if part == 0 {
            ends.kernels += self.kernels(&self.layer.embedding(pass));
            ends.tensor += match (pass, cut) {
                (Pass::Forward, true) => tensor(self, Collective::ReduceScatter)?,
                (Pass::Forward, false) => tensor(self, Collective::AllReduce)?,
                _ => Span::ZERO,
            };
        }
        if part + 1 == self.job.parts() {
            let heads = 1 + self.job.model.mtp_layers;
            let head = self.layer.head(pass, self.job.loss);
            ends.kernels += self.kernels(&head) * heads;
            ends.tensor += match (pass, cut) {
                (Pass::Forward, true) => tensor(self, Collective::AllGather)?,
                (Pass::InputGradient, true) => tensor(self, Collective::ReduceScatter)?,
                (Pass::InputGradient, false) => tensor(self, Collective::AllReduce)?,
                _ => Span::ZERO,
            };
            let further = self.job.model.mtp_layers;
            let kind = self.job.model.kind(self.job.model.layers.saturating_sub(1));
            ends = ends.plus(&self.layer_pass(kind, pass, further)?.times(further));
        }
        Ok(ends)
    }

    /// What of a pass stays exposed.
    fn exposed(&self, whole: &LayerPass) -> Parts {
        let mut parts = Parts::default();
        let mut compute = whole.kernels;
        if self.overlaps(Axis::Tp) && whole.tensor != Span::ZERO {
            parts.add(Share::Tp, scaled(whole.tensor, self.overheads.tensor_exposed));
            let beside = whole.tensor.min(whole.kernels);
            compute += scaled(beside, self.overheads.compute_slowdown);
        } else {
            parts.add(Share::Tp, whole.tensor);
        }
        let rings = self.job.parallel.cp_exchange == CpExchange::Ring || self.overlaps(Axis::Cp);
        let hidden = if rings { whole.attention } else { Span::ZERO };
        parts.add(Share::Cp, whole.context.saturating_sub(hidden));
        let behind = if self.overlaps(Axis::Dp) { whole.kernels } else { Span::ZERO };
        parts.add(Share::Dp, whole.data.saturating_sub(behind));
        parts.add(Share::Ep, whole.expert);
        parts.add(Share::Compute, compute);
        parts
    }

    /// A forward and a backward pass interleaved on a stage that holds these parts, each the
    /// forward one half of the time.
    fn interleaved(&mut self, held: &[u64]) -> Result<Parts, Unserved> {
        let mut both = LayerPass::default();
        for part in held {
            for pass in [Pass::Forward, Pass::InputGradient, Pass::WeightGradient] {
                both = both.plus(&self.whole_pass(*part, pass)?);
            }
        }
        let half = |span: Span| Span::from_ps(span.as_ps() / held.len().max(1) as u64);
        let one = LayerPass {
            kernels: half(both.kernels),
            attention: half(both.attention),
            tensor: half(both.tensor),
            context: half(both.context),
            expert: half(both.expert),
            data: half(both.data),
        };
        let mut parts = self.exposed(&LayerPass { expert: Span::ZERO, ..one });
        if !self.overlaps(Axis::Ep) {
            parts.add(Share::Ep, one.expert);
            return Ok(parts);
        }
        // Communication kernels keep some SMs for as long as they run beside computation.
        let sms = f64::from(self.rates.multiprocessors);
        let taken = f64::from(self.overheads.expert_sms).min(sms - 1.0);
        let compute = parts.get(Share::Compute);
        let slower = sms / (sms - taken);
        let alone = scaled(compute, slower).saturating_sub(one.expert);
        let beside = if alone == Span::ZERO { compute } else { scaled(one.expert, 1.0 / slower) };
        parts.add(Share::Compute, scaled(beside, slower - 1.0));
        parts.add(Share::Ep, one.expert.saturating_sub(parts.get(Share::Compute)));
        Ok(parts)
    }

    /// From the end of a pass until the next stage can begin.
    fn message(&mut self) -> Result<Span, Unserved> {
        if self.job.layout.pp == 1 {
            return Ok(Span::ZERO);
        }
        let whole = self.job.tokens() * self.job.model.hidden * ACTIVATION;
        let bytes = whole / self.job.layout.tp;
        let mut span = self.exchange(GroupKind::Pipeline, Collective::SendRecv, bytes)?;
        let boundaries = 2 * self.job.layout.vpp * self.job.microbatches;
        self.count(GroupKind::Pipeline, Collective::SendRecv, bytes as f64 * boundaries as f64);
        if !self.job.parallel.sequence_parallel && 1 < self.job.layout.tp {
            // Megatron-LM sends each rank's share and gathers the whole behind it (arXiv
            // 2104.04473, section 4.1).
            span += self.exchange(GroupKind::Tensor, Collective::AllGather, whole)?;
        }
        Ok(span)
    }

    fn optimizer(&self, stage: u64) -> Span {
        let held = self.job.stage_held(stage);
        let (dense, experts) = match self.job.parallel.sharding {
            Sharding::None => (1, 1),
            _ => {
                let copies = self.job.layout.dp * self.job.layout.cp;
                let shard = self.job.layout.shard;
                (shard, (copies / self.job.layout.ep).min(shard).max(1))
            }
        };
        let owned = held.dense().div_ceil(dense) + held.experts.div_ceil(experts);
        self.kernels(&optimizer(held.total(), owned))
    }
}

/// A rank's share of the model's layers.
fn layer_of(job: &Job) -> Layer<'_> {
    let sharded = job.parallel.sequence_parallel || job.layout.tp == 1;
    // GPT as it was trained with unfused and first-generation attention had dropout; later software
    // of these families leaves it out.
    let old = job.attention != AttentionKernel::Flash && job.model.mlp == Mlp::Gelu;
    Layer {
        tensor: job.layout.tp,
        context: job.layout.cp,
        expert: job.layout.ep,
        residual: if sharded { Residual::Sharded } else { Residual::Replicated },
        precision: job.precision,
        attention: job.attention,
        dropout: if old { Dropout::Applied } else { Dropout::Absent },
        ..Layer::new(&job.model, job.batch.micro, job.batch.length)
    }
}

fn scaled(span: Span, factor: f64) -> Span {
    Span::from_secs_f64(span.as_secs_f64() * factor.max(0.0))
}
