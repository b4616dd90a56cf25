//! The step program: what one iteration computes and exchanges.
//!
//! A [`Program`] is folded three ways, so that its size is that of the model's kinds of layers
//! and not of the job. Ranks at one stage behave alike: there is one program per stage, and each
//! [`Call`] names the kind of group that makes it. Layers of a kind are alike: a [`Part`] lists
//! [`Piece`]s with how often they repeat. Microbatches are alike: the schedule's
//! [`Order`](crate::schedule::Order) says when each part runs for which one.
//!
//! What a piece computes in a pass is in [`work`], what it communicates in [`calls`], weights and
//! gradients between copies in [`copies`], and what follows what in [`order`]. Within a pass the
//! calls run in the order listed, on a stream of their axis; each says what it can run beside,
//! which is a fact of the algorithm (the gathering of an input gradient's operand needs no more
//! than the input), and whether software makes use of it is the job's `overlap`.
//!
//! Bytes are counted as nccl-tests counts them (see [`traffic::Collective`]), and [`Volume`]
//! counts what that puts on wires: an all-reduce of S on n ranks moves 2(n-1)S in all, a gather
//! or scatter half of that, whatever ring or tree does it.

pub mod calls;
pub mod copies;
pub mod operations;
pub mod order;
pub mod work;

use traffic::Collective;
use units::Bytes;

use crate::compute::Kernel;
use crate::dispatch::Spread;
use crate::model::{LayerKind, Model};
use crate::parallel::{Axis, GroupKind, Layout};
use crate::resolve::Job;
use crate::schedule::{Pass, Pipeline};

/// One collective that every group of a kind makes, at one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it is for.
    pub name: &'static str,
    /// Whose.
    pub kind: GroupKind,
    /// What is done.
    pub collective: Collective,
    /// With how much, as nccl-tests counts it.
    pub bytes: Bytes,
    /// How often in a row: the steps of a ring that passes blocks on.
    pub times: u64,
    /// What it can run beside.
    pub beside: OverlapsWith,
    /// Who has more of its bytes than others.
    pub spread: Spread,
}

impl Call {
    /// What it is accounted under.
    pub fn axis(&self) -> Axis {
        self.kind.axis()
    }
}

/// What a call can run beside, if software makes use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapsWith {
    /// Nothing: what follows needs all of it.
    Nothing,
    /// The matrix product that feeds it or that it feeds, cut into pieces (user buffers).
    Product,
    /// Another product: a weight gradient's operand arrives beside the input gradient, an input
    /// gradient leaves beside the weight gradient. Megatron-LM does this without being told.
    OtherProduct,
    /// The attention of the block before.
    Attention,
    /// The computation of another microbatch.
    Microbatch,
    /// The layers before or behind.
    Layers,
}

/// Some layers of a kind, or an end of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A layer of the vision encoder.
    Encoder,
    /// The ends of the vision encoder: patch embedding, last norm, projector.
    Projector,
    /// The embedding.
    Embedding,
    /// A layer.
    Layer(LayerKind, Reach),
    /// A multi-token-prediction layer: a layer, a projection, and the head once more.
    Prediction(LayerKind),
    /// The last norm, the head and the loss.
    Head,
}

impl Unit {
    /// A layer of a model, counted from 0.
    pub(crate) fn layer(model: &Model, layer: u64) -> Self {
        Self::Layer(model.kind(layer), reach(model, layer))
    }

    /// A model's multi-token-prediction layer: of the kind of its last layer.
    pub(crate) fn prediction(model: &Model) -> Self {
        Self::Prediction(model.kind(model.layers.saturating_sub(1)))
    }
}

/// How far a layer's attention sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole sequence.
    Sequence,
    /// The model's window.
    Window,
}

/// A unit and how often it repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What.
    pub unit: Unit,
    /// How often.
    pub repeat: u64,
}

/// A call for weights or gradients of a part, and when it can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The call.
    pub call: Call,
    /// The pass that it belongs to: forward needs weights, backward needs weights or has
    /// gradients.
    pub pass: Pass,
    /// Units of the part, in the order of the pass, that need it or must be done first.
    pub units: u64,
    /// Whether it is made for every microbatch.
    pub every: Every,
}

/// How often something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Once per step: with the first forward pass, or with the last backward pass.
    Step,
    /// For every microbatch.
    Microbatch,
}

/// One part of the model: a virtual stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number along the model.
    pub index: u64,
    /// What it is made of, in the order of the model.
    pub pieces: Vec<Piece>,
    /// Weights that are gathered.
    pub gathers: Vec<Timed>,
    /// Gradients that are reduced.
    pub reductions: Vec<Timed>,
}

impl Part {
    /// Layers and ends in it.
    pub fn units(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.repeat).sum()
    }
}

/// What one iteration computes and exchanges.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The job.
    pub job: Job,
    /// Its parts, along the model.
    pub parts: Vec<Part>,
    /// By stage: what is exchanged once per step, after the last pass and before the optimizer.
    pub closing: Vec<Vec<Call>>,
}

/// How often one call is made in a step, and by how many groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The call.
    pub call: Call,
    /// The stage; of a message the sender's.
    pub stage: u64,
    /// Groups that make it at that stage; of a message the pairs of ranks.
    pub groups: u64,
    /// How often each group makes it in a step.
    pub times: u64,
    /// What it belongs to.
    pub during: During,
}

/// What of a step an exchange belongs to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum During {
    /// Forward passes, with the weights that they gather.
    Forward,
    /// Backward passes, with gradients, and with what they gather and compute again.
    Backward,
    /// The exchange of tokens with experts, both ways.
    Expert,
    /// Weights that the optimizer has made new, where each copy made its share.
    Optimizer,
}

impl During {
    /// All of them, in the order of the results.
    pub const ALL: [Self; 4] = [Self::Forward, Self::Backward, Self::Expert, Self::Optimizer];

    /// The key that results use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Expert => "expert",
            Self::Optimizer => "optimizer",
        }
    }

    fn of(pass: Pass, axis: Axis) -> Self {
        match pass {
            _ if axis == Axis::Ep => Self::Expert,
            Pass::Forward => Self::Forward,
            _ => Self::Backward,
        }
    }
}

/// Bytes of a step on wires of any kind, over all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Sent by all ranks together.
    pub sent: u128,
    /// Received by all ranks together.
    pub received: u128,
}

impl Program {
    /// The program of a job.
    pub fn new(job: &Job) -> Self {
        let parts = (0..job.parts()).map(|index| part(job, index)).collect();
        let closing = (0..job.layout.pp).map(|stage| copies::closing(job, stage)).collect();
        Self { job: job.clone(), parts, closing }
    }

    /// The pipeline that the parts run in.
    pub fn pipeline(&self) -> Pipeline {
        self.job.pipeline()
    }

    /// What a unit exchanges in a pass. The input gradient's includes what recomputation repeats.
    pub fn calls_of(&self, unit: Unit, pass: Pass) -> Vec<Call> {
        calls::of(&self.job, unit, pass)
    }

    /// What a unit computes in a pass, on one rank. The input gradient's includes what is computed
    /// again.
    pub fn kernels_of(&self, unit: Unit, pass: Pass) -> Vec<Kernel> {
        work::of(&self.job, unit, pass)
    }

    /// What of that the exchange of tokens can run beside in the same microbatch.
    pub fn shared_experts_of(&self, unit: Unit, pass: Pass) -> Vec<Kernel> {
        work::shared_experts(&self.job, unit, pass)
    }

    /// What the optimizer computes on one rank of a stage.
    pub fn optimizer(&self, stage: u64) -> Vec<Kernel> {
        work::optimizer(&self.job, stage)
    }

    /// Bytes of the message from one stage to the next, of one rank and microbatch; a gradient
    /// on its way back is as long. Every tensor rank sends its share, which is all it has with
    /// sequence parallelism; without, the others' are gathered behind it (Narayanan et al., arXiv
    /// 2104.04473, section 4.1).
    pub fn message(&self) -> Bytes {
        let job = &self.job;
        let whole = job.tokens() * job.model.hidden * job.precision.bytes();
        Bytes::new(whole.div_ceil(job.layout.tp))
    }

    /// What the tensor ranks of a stage do with a message that came in shares of something that
    /// each of them needs whole.
    pub fn message_gather(&self) -> Option<Call> {
        let Job { layout, parallel, .. } = &self.job;
        let bytes = Bytes::new(self.message().get() * layout.tp);
        let shares = 1 < layout.tp && !parallel.sequence_parallel;
        shares.then_some(Call {
            name: "shares of the message",
            kind: GroupKind::Tensor,
            collective: Collective::AllGather,
            bytes,
            times: 1,
            beside: OverlapsWith::Microbatch,
            spread: Spread::Even,
        })
    }

    /// Every call of a step with its counts: equal calls of one stage are one entry.
    pub fn counted(&self) -> Vec<Counted> {
        let mut all: Vec<Counted> = Vec::new();
        for stage in 0..self.job.layout.pp {
            let from = all.len();
            self.count_stage(stage, &mut |call, times, during| {
                let times = times * call.times;
                let call = Call { times: 1, ..call };
                if times == 0 || call.bytes == Bytes::ZERO {
                    return;
                }
                let same =
                    |counted: &&mut Counted| (counted.call, counted.during) == (call, during);
                match all[from..].iter_mut().find(same) {
                    Some(counted) => counted.times += times,
                    None => {
                        let groups = groups_at(&self.job.layout, call.kind, stage);
                        all.push(Counted { call, stage, groups, times, during });
                    }
                }
            });
        }
        all
    }

    fn count_stage(&self, stage: u64, add: &mut impl FnMut(Call, u64, During)) {
        let pipeline = self.pipeline();
        let last = self.job.parts() - 1;
        for index in pipeline.parts_of(stage) {
            // With DualPipe half of the microbatches take this part here, half at its mirror.
            let both = if self.job.is_bidirectional() { 2 } else { 1 };
            let passes = pipeline.microbatches / both;
            let part = &self.parts[usize::try_from(index).expect("parts fit memory")];
            for piece in &part.pieces {
                for pass in [Pass::Forward, Pass::Input, Pass::Weight] {
                    for call in self.calls_of(piece.unit, pass) {
                        add(call, piece.repeat * passes, During::of(pass, call.axis()));
                    }
                }
            }
            for timed in part.gathers.iter().chain(&part.reductions) {
                // Weights that are gathered once a step are those that the optimizer made.
                let (times, during) = match timed.every {
                    Every::Step if timed.pass == Pass::Forward => (1, During::Optimizer),
                    Every::Step => (1, During::Backward),
                    Every::Microbatch => (passes, During::of(timed.pass, Axis::Dp)),
                };
                add(timed.call, times, during);
            }
            let microbatch = u64::from(self.job.is_bidirectional() && stage != index);
            for next in [index.checked_add(1).filter(|&n| n <= last), index.checked_sub(1)] {
                let Some(next) = next else { continue };
                if pipeline.stage_of(next, microbatch) != stage {
                    let (name, during) = match index < next {
                        true => ("activations", During::Forward),
                        false => ("their gradients", During::Backward),
                    };
                    add(message_call(name, self.message()), passes, during);
                    // As many come back from there.
                    if let Some(gather) = self.message_gather() {
                        add(gather, passes, during);
                    }
                }
            }
        }
        for call in &self.closing[usize::try_from(stage).expect("stages fit memory")] {
            // Sums of gradients, all of them.
            add(*call, 1, During::Backward);
        }
    }

    /// What a step puts on wires of any kind, by axis.
    pub fn volumes(&self, axis: Axis) -> Volume {
        let counted = self.counted();
        let of_axis = counted.iter().filter(|counted| counted.call.axis() == axis);
        of_axis.map(|counted| self.volume(counted)).fold(Volume::default(), |sum, one| Volume {
            sent: sum.sent + one.sent,
            received: sum.received + one.received,
        })
    }

    /// What one counted call puts on wires, over all its groups and times.
    pub fn volume(&self, counted: &Counted) -> Volume {
        let ranks = u128::from(self.job.layout.group_size(counted.call.kind));
        let bytes = u128::from(counted.call.bytes.get());
        let (sent, received) = match counted.call.collective {
            Collective::AllReduce => (2 * (ranks - 1) * bytes, 2 * (ranks - 1) * bytes),
            Collective::AllGather | Collective::ReduceScatter => {
                ((ranks - 1) * bytes, (ranks - 1) * bytes)
            }
            // Blocks that are passed on round a ring leave every rank; a message leaves one.
            Collective::SendRecv if counted.call.kind == GroupKind::Context => {
                (ranks * bytes, ranks * bytes)
            }
            Collective::SendRecv => (bytes, bytes),
            Collective::AllToAll => self.routed(counted.call.bytes.get()),
            Collective::MoeDispatch | Collective::MoeCombine => self.deduplicated(bytes),
            other => unreachable!("no program makes a call of {}", other.name()),
        };
        let often = u128::from(counted.groups) * u128::from(counted.times);
        Volume { sent: sent * often, received: received * often }
    }

    /// A plain all-to-all: rank by rank what is sent to all others, and what is received.
    fn routed(&self, bytes: u64) -> (u128, u128) {
        let dispatch = calls::dispatch(&self.job);
        let shares = dispatch.shares(bytes);
        let all: u128 = shares.iter().map(|&share| u128::from(share)).sum();
        let ranks = shares.len() as u128;
        let sent = shares.iter().map(|&own| all - u128::from(own)).sum();
        let received = shares.iter().map(|&own| (ranks - 1) * u128::from(own)).sum();
        (sent, received)
    }

    /// Every token once to each other rank that has one of its experts.
    fn deduplicated(&self, bytes: u128) -> (u128, u128) {
        let dispatch = calls::dispatch(&self.job);
        let ranks = self.job.layout.ep as f64;
        let copies = dispatch.ranks_per_token() * (ranks - 1.0) / ranks;
        let all = (bytes as f64 * copies * ranks).round() as u128;
        (all, all)
    }
}

/// The message between two stages.
fn message_call(name: &'static str, bytes: Bytes) -> Call {
    Call {
        name,
        kind: GroupKind::Pipeline,
        collective: Collective::SendRecv,
        bytes,
        times: 1,
        beside: OverlapsWith::Microbatch,
        spread: Spread::Even,
    }
}

/// Groups of a kind that make a call at one stage; of messages the pairs of ranks.
fn groups_at(layout: &Layout, kind: GroupKind, stage: u64) -> u64 {
    match kind {
        GroupKind::Pipeline => layout.gpus() / layout.pp,
        GroupKind::Ends => layout.groups(kind),
        // A pair of mirrored stages makes the call once: it is counted at the nearer one.
        GroupKind::Mirror if layout.pp <= 2 * stage => 0,
        GroupKind::Mirror => layout.gpus() / layout.pp,
        _ => layout.groups(kind) / layout.pp,
    }
}

/// Windowed layers are spread evenly among the others; which ones they are makes no difference.
fn reach(model: &Model, layer: u64) -> Reach {
    let windowed = model.window.map_or(0, |window| window.layers);
    let until = |layers: u64| layers * windowed / model.layers;
    if until(layer) < until(layer + 1) { Reach::Window } else { Reach::Sequence }
}

fn part(job: &Job, index: u64) -> Part {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut push = |unit| match pieces.last_mut() {
        Some(piece) if piece.unit == unit => piece.repeat += 1,
        _ => pieces.push(Piece { unit, repeat: 1 }),
    };
    if index == 0 {
        if let Some(vision) = job.model.vision {
            (0..vision.layers).for_each(|_| push(Unit::Encoder));
            push(Unit::Projector);
        }
        push(Unit::Embedding);
    }
    for layer in job.layers_of(index) {
        push(Unit::layer(&job.model, layer));
    }
    if index + 1 == job.parts() {
        push(Unit::Head);
        for _ in 0..job.model.mtp_layers {
            push(Unit::prediction(&job.model));
        }
    }
    let (gathers, reductions) = copies::of(job, index, &pieces);
    Part { index, pieces, gathers, reductions }
}

#[cfg(test)]
mod tests;
