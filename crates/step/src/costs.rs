//! From a job to what its passes cost: kernels on the GPU, exchanges on the fabric.
//!
//! How it works. Each part of the model is so many dense layers and so many with experts, plus the
//! embedding or the head. A pass over it launches the job crate's kernels and makes the calls of
//! its step program, on four axes:
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

use job::compute::{GpuRates, Kernel, KernelKind, Timer};
use job::dispatch::Spread;
use job::parallel::CpExchange;
use job::program::{Call, Every, Part, Program, Timed, Unit};
use job::schedule::{Pass, Pipeline};
use job::{Axis, GroupKind, Job};
use traffic::{Collective, NotRun};
use units::Span;

use crate::assemble::{Copying, PartCosts, Sending, StepInput};
use crate::network::{Exchange, Network, Repeats, Unserved};
use crate::overheads::Overheads;
use crate::timeline::{Parts, Share};

/// Why a step is not written out whole.
const OVERLAPPED_TENSOR: &str = "tensor-parallel exchanges that leave their server and overlap \
                                 products are not written on one clock: leave out --whole, or \
                                 `tp` of job.parallel.overlap";

/// The passes of a microbatch over a part of the model.
const PASSES: [Pass; 3] = [Pass::Forward, Pass::Input, Pass::Weight];

/// What a job's passes cost on one GPU and one fabric.
#[derive(Debug)]
pub struct Costing<'a, 'n> {
    program: &'a Program,
    rates: &'a GpuRates,
    overheads: &'a Overheads,
    network: &'a mut Network<'n>,
}

/// One pass over some units, before anything is hidden.
#[derive(Clone, Copy, Debug, Default)]
struct PassCost {
    kernels: Span,
    attention: Span,
    tensor: Span,
    context: Span,
    expert: Span,
    /// Shared experts, which the exchange of tokens can run beside.
    shared: Span,
    data: Span,
}

impl PassCost {
    fn plus(self, other: &Self) -> Self {
        Self {
            kernels: self.kernels + other.kernels,
            attention: self.attention + other.attention,
            tensor: self.tensor + other.tensor,
            context: self.context + other.context,
            expert: self.expert + other.expert,
            shared: self.shared + other.shared,
            data: self.data + other.data,
        }
    }

    fn map(self, change: impl Fn(Span) -> Span) -> Self {
        Self {
            kernels: change(self.kernels),
            attention: change(self.attention),
            tensor: change(self.tensor),
            context: change(self.context),
            expert: change(self.expert),
            shared: change(self.shared),
            data: change(self.data),
        }
    }

    fn communication(&mut self, axis: Axis, span: Span) {
        *match axis {
            Axis::Tp => &mut self.tensor,
            Axis::Cp => &mut self.context,
            Axis::Ep => &mut self.expert,
            Axis::Pp | Axis::Dp => &mut self.data,
        } += span;
    }
}

/// One pass over one unit, its exchanges on the fabric apart from the rest.
#[derive(Clone, Debug)]
pub(crate) struct UnitApart {
    /// Kernels, and exchanges inside the server, as far as nothing hides them.
    pub(crate) parts: Parts,
    /// Exchanges on the fabric.
    pub(crate) away: Vec<Away>,
}

/// Exchanges of one axis on the fabric, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Away {
    /// Which axis.
    pub(crate) axis: Axis,
    /// The exchanges.
    pub(crate) calls: Vec<Call>,
    /// As much of the unit's computation runs beside them.
    pub(crate) hidden: Span,
}

impl<'a, 'n> Costing<'a, 'n> {
    /// A program on a GPU and a network.
    pub fn new(
        program: &'a Program,
        rates: &'a GpuRates,
        overheads: &'a Overheads,
        network: &'a mut Network<'n>,
    ) -> Self {
        Self { program, rates, overheads, network }
    }

    pub(crate) fn job(&self) -> &'a Job {
        &self.program.job
    }

    pub(crate) fn overlaps(&self, axis: Axis) -> bool {
        self.job().parallel.overlap.contains(&axis)
    }

    /// Everything that the step is put together from.
    pub fn input(&mut self) -> Result<StepInput, Unserved> {
        let pipeline = self.program.pipeline();
        let mut parts = Vec::new();
        for part in &self.program.parts {
            parts.push(self.part(part)?);
        }
        let mut closing = Vec::new();
        for calls in &self.program.closing {
            let mut sum = Parts::default();
            for call in calls {
                sum.add(share_of(call.axis()), self.call(call)?);
            }
            closing.push(sum);
        }
        let message = self.message()?;
        let sending = if self.overlaps(Axis::Pp) { Sending::Overlapped } else { Sending::Blocking };
        let copying = match self.network.reset() {
            Some(takes) => Copying::OnOtherCircuits(takes),
            None if self.overlaps(Axis::Dp) => Copying::Overlapped,
            None => Copying::AtTheEnd,
        };
        Ok(StepInput {
            pipeline,
            parts,
            together: self.together(&pipeline)?,
            message,
            message_beside_copies: self.message_beside_copies(message)?,
            sending,
            copying,
            closing,
            optimizer: (0..pipeline.stages)
                .map(|stage| self.kernels(&self.program.optimizer(stage)))
                .collect(),
            overhead: self.overheads.per_step,
            slowdown: Vec::new(),
        })
    }

    /// How often each phase's simulated bytes are moved in one step, on average over the groups.
    pub fn repeats(&self) -> Repeats {
        let mut repeats = Repeats::new();
        for counted in self.program.counted() {
            let key = (counted.call.kind, counted.call.collective, counted.call.spread);
            let moved = counted.call.bytes.as_f64() * counted.times as f64 * counted.groups as f64;
            *repeats.entry(key).or_default() += moved;
        }
        for phase in self.network.phases() {
            let key = phase.exchange.key();
            // The simulated wave crosses every boundary of a pipeline once.
            let waves = match key.0 {
                GroupKind::Pipeline => (self.job().layout.pp - 1) as f64,
                _ => 1.0,
            };
            if let Some(bytes) = repeats.get_mut(&key) {
                *bytes /= phase.exchange.bytes.as_f64().max(1.0) * phase.groups as f64 * waves;
            }
        }
        repeats
    }

    pub(crate) fn kernels(&self, kernels: &[Kernel]) -> Span {
        let factors = KernelKind::ALL.map(|kind| self.overheads.time_of(kind));
        if factors.iter().any(|factor| *factor != factors[0]) {
            let by_kind = times_by_kind(kernels, self.rates, self.overheads);
            return by_kind.into_iter().fold(Span::ZERO, |sum, span| sum + span);
        }
        let measured = Timer::measured().total(kernels, self.rates);
        if factors[0] == 1.0 { measured } else { scaled(measured, factors[0]) }
    }

    pub(crate) fn call(&mut self, call: &Call) -> Result<Span, Unserved> {
        Ok(self.network.time(exchange_of(call))? * call.times)
    }

    /// The passes over one part of the model.
    fn part(&mut self, part: &Part) -> Result<PartCosts, Unserved> {
        let once = |timed: &&Timed| timed.every == Every::Step;
        let (mut gather, mut reduce) = (Span::ZERO, Span::ZERO);
        for timed in part.gathers.iter().filter(once) {
            gather += self.call(&timed.call)?;
        }
        for timed in part.reductions.iter().filter(once) {
            reduce += self.call(&timed.call)?;
        }
        let [forward, input, weight] = PASSES.map(|pass| self.whole_pass(part, pass));
        let (input, weight) = (input?, weight?);
        Ok(PartCosts {
            forward: self.exposed(&forward?),
            input: self.exposed(&input),
            weight: self.exposed(&weight),
            backward: self.exposed_backward(&input, &weight),
            layers: part.units(),
            gather,
            reduce,
        })
    }

    /// One pass over a part, nothing hidden yet.
    fn whole_pass(&mut self, part: &Part, pass: Pass) -> Result<PassCost, Unserved> {
        let mut whole = PassCost::default();
        for piece in &part.pieces {
            let unit = self.unit(piece.unit, pass)?;
            whole = whole.plus(&unit.map(|span| span * piece.repeat));
        }
        let every = |timed: &&Timed| timed.every == Every::Microbatch;
        for timed in part.gathers.iter().chain(&part.reductions).filter(every) {
            // Weights are needed by forward and input gradients, gradients leave with weights'.
            let meant = match (timed.pass, timed.call.collective) {
                (Pass::Forward, _) => Pass::Forward,
                (_, Collective::AllGather) => Pass::Input,
                _ => Pass::Weight,
            };
            if meant == pass {
                whole.data += self.call(&timed.call)?;
            }
        }
        Ok(whole)
    }

    /// The kernels of one pass over one unit.
    fn unit_kernels(&self, unit: Unit, pass: Pass) -> PassCost {
        let kernels = self.program.kernels_of(unit, pass);
        let attention: Vec<Kernel> =
            kernels.iter().filter(|k| matches!(k, Kernel::Attention(_))).copied().collect();
        PassCost {
            kernels: self.kernels(&kernels),
            attention: self.kernels(&attention),
            shared: self.kernels(&self.program.shared_experts_of(unit, pass)),
            ..PassCost::default()
        }
    }

    /// One pass over one unit.
    fn unit(&mut self, unit: Unit, pass: Pass) -> Result<PassCost, Unserved> {
        let mut whole = self.unit_kernels(unit, pass);
        for call in self.program.calls_of(unit, pass) {
            let span = self.call(&call)?;
            whole.communication(call.axis(), span);
        }
        Ok(whole)
    }

    /// How much longer kernels take where communication runs beside them.
    fn beside(&self) -> f64 {
        let alone = self.job().parallel.overlap.is_empty() || self.job().layout.gpus() == 1;
        if alone { 1.0 } else { 1.0 + self.overheads.compute_slowdown }
    }

    /// What of a pass stays exposed.
    fn exposed(&self, whole: &PassCost) -> Parts {
        let mut parts = Parts::default();
        let tensor = self.overheads.exposed_tensor(self.job());
        parts.add(Share::Tp, scaled(whole.tensor, tensor));
        let rings = self.job().parallel.cp_exchange == CpExchange::Ring || self.overlaps(Axis::Cp);
        let hidden = if rings { whole.attention } else { Span::ZERO };
        parts.add(Share::Cp, whole.context.saturating_sub(hidden));
        // Where no passes are paired, the shared experts compute while tokens travel.
        let meanwhile = self.job().overlaps_experts() && !self.job().schedule.pairs();
        let shared = if meanwhile { whole.shared } else { Span::ZERO };
        parts.add(Share::Ep, whole.expert.saturating_sub(shared));
        parts.add(Share::Compute, scaled(whole.kernels, self.beside()));
        let data = self.exposed_data(whole.data, &parts);
        parts.with(Share::Dp, data)
    }

    /// What copies exchange in a pass beyond what its stream does meanwhile.
    fn exposed_data(&self, data: Span, pass: &Parts) -> Span {
        let behind = if self.overlaps(Axis::Dp) { pass.total() } else { Span::ZERO };
        data.saturating_sub(behind)
    }

    /// The same of both gradients in one pass. Weights are gathered one unit ahead, before the
    /// gradients of the unit before are reduced ([`job::program::order`]), so both hide behind all
    /// that the pass does.
    fn exposed_backward(&self, input: &PassCost, weight: &PassCost) -> Parts {
        let apart = |whole: &PassCost| self.exposed(&PassCost { data: Span::ZERO, ..*whole });
        let both = apart(input).plus(&apart(weight));
        let data = self.exposed_data(input.data + weight.data, &both);
        both.with(Share::Dp, data)
    }

    /// One pass over one unit for a clock on which exchanges that leave the server are run by
    /// themselves.
    pub(crate) fn unit_apart(&mut self, unit: Unit, pass: Pass) -> Result<UnitApart, Unserved> {
        let mut inside = self.unit_kernels(unit, pass);
        let mut away: Vec<Away> = Vec::new();
        let rings = self.job().parallel.cp_exchange == CpExchange::Ring || self.overlaps(Axis::Cp);
        let meanwhile = self.job().overlaps_experts() && !self.job().schedule.pairs();
        for call in self.program.calls_of(unit, pass) {
            if !self.network.leaves_the_domain(call.kind) {
                let span = self.call(&call)?;
                inside.communication(call.axis(), span);
                continue;
            }
            let axis = call.axis();
            if axis == Axis::Tp && self.overlaps(Axis::Tp) {
                return Err(Unserved::NotRun(NotRun::Refused(OVERLAPPED_TENSOR.to_owned())));
            }
            let hidden = match axis {
                Axis::Cp if rings => inside.attention,
                Axis::Ep if meanwhile => inside.shared,
                _ => Span::ZERO,
            };
            let calls = std::iter::repeat_n(Call { times: 1, ..call }, call.times as usize);
            match away.iter_mut().find(|known| known.axis == axis) {
                Some(known) => known.calls.extend(calls),
                None => away.push(Away { axis, calls: calls.collect(), hidden }),
            }
        }
        Ok(UnitApart { parts: self.exposed(&inside), away })
    }

    /// What passes that are interleaved take longer, in computation and in exchanges of tokens
    /// inside servers that are longer than it.
    pub(crate) fn interleaving(&mut self, units: &[(Unit, Pass)]) -> Result<Parts, Unserved> {
        let mut both = PassCost::default();
        for (unit, pass) in units {
            both = both.plus(&self.unit(*unit, *pass)?);
        }
        let parts = self.paired(&both);
        let alone = self.exposed(&PassCost { expert: Span::ZERO, ..both });
        let more = parts.get(Share::Compute).saturating_sub(alone.get(Share::Compute));
        let inside = !self.network.leaves_the_domain(GroupKind::Expert);
        let expert = if inside { parts.get(Share::Ep) } else { Span::ZERO };
        Ok(Parts::of(Share::Compute, more).with(Share::Ep, expert))
    }

    /// The program.
    pub(crate) fn program(&self) -> &'a Program {
        self.program
    }

    /// The network that it is reckoned on.
    pub(crate) fn network(&mut self) -> &mut Network<'n> {
        self.network
    }

    /// Forward and backward passes interleaved, by stage, where the schedule has them.
    fn together(&mut self, pipeline: &Pipeline) -> Result<Vec<Parts>, Unserved> {
        if !self.job().is_bidirectional() && !pipeline.paired {
            return Ok(Vec::new());
        }
        let stages = 0..pipeline.stages;
        stages.map(|stage| self.interleaved(&pipeline.parts_of(stage))).collect()
    }

    /// A forward and a backward pass interleaved on a stage that holds these parts, each the
    /// forward one half of the time.
    fn interleaved(&mut self, held: &[u64]) -> Result<Parts, Unserved> {
        let mut both = PassCost::default();
        for part in held {
            for pass in PASSES {
                let part = &self.program.parts[*part as usize];
                both = both.plus(&self.whole_pass(part, pass)?);
            }
        }
        let one = both.map(|span| Span::from_ps(span.as_ps() / held.len().max(1) as u64));
        Ok(self.paired(&one))
    }

    /// What stays exposed of two passes, of which each one's exchange of tokens runs beside the
    /// other's computation.
    fn paired(&self, one: &PassCost) -> Parts {
        let mut parts = self.exposed(&PassCost { expert: Span::ZERO, ..*one });
        if !self.overlaps(Axis::Ep) {
            parts.add(Share::Ep, one.expert);
            return parts;
        }
        // Communication kernels keep some SMs for as long as they run beside computation.
        let sms = f64::from(self.rates.multiprocessors);
        let taken = f64::from(self.overheads.expert_sms).min(sms - 1.0);
        let slower = sms / (sms - taken);
        let compute = parts.get(Share::Compute);
        let beside = compute.min(scaled(one.expert, 1.0 / slower));
        parts.add(Share::Compute, scaled(beside, slower - 1.0));
        parts.add(Share::Ep, one.expert.saturating_sub(parts.get(Share::Compute)));
        parts
    }

    /// From the end of a pass until the next stage can begin.
    fn message(&mut self) -> Result<Span, Unserved> {
        let job = self.job();
        if job.layout.pp == 1 {
            return Ok(Span::ZERO);
        }
        // Where senders wait, the slowest boundary sets the pace of all.
        let mut span = match self.overlaps(Axis::Pp) {
            true => self.network.along(self.message_exchange())?,
            false => self.network.time(self.message_exchange())?,
        };
        if let Some(gather) = self.program.message_gather() {
            span += self.call(&gather)?;
        }
        Ok(span)
    }

    /// The same while weights or gradients of all copies cross the links too.
    fn message_beside_copies(&mut self, alone: Span) -> Result<Span, Unserved> {
        let copies = self.program.parts.iter().flat_map(|part| &part.reductions);
        let largest = copies.map(|timed| timed.call).max_by_key(|call| call.bytes);
        let Some(largest) = largest else { return Ok(alone) };
        let contends = self.overlaps(Axis::Dp)
            && 1 < self.job().layout.pp
            && self.network.leaves_the_domain(largest.kind)
            && self.network.leaves_the_domain(GroupKind::Pipeline);
        if !contends {
            return Ok(alone);
        }
        let beside = self.network.along_beside(self.message_exchange(), exchange_of(&largest))?;
        Ok(beside.max(alone))
    }

    /// The messages between stages.
    pub(crate) fn message_exchange(&self) -> Exchange {
        Exchange {
            kind: GroupKind::Pipeline,
            collective: Collective::SendRecv,
            bytes: self.program.message(),
            spread: Spread::Even,
        }
    }
}

/// How long kernels take, by kind in the order of [`KernelKind::ALL`].
fn times_by_kind(kernels: &[Kernel], rates: &GpuRates, overheads: &Overheads) -> [Span; 3] {
    KernelKind::ALL.map(|kind| {
        let own = kernels.iter().filter(|kernel| kernel.kind() == kind);
        scaled(Timer::measured().total(own, rates), overheads.time_of(kind))
    })
}

/// What share of the computation of passes over a part each kind of kernel has, in the order of
/// [`KernelKind::ALL`].
pub fn shares_by_kind(
    program: &Program,
    part: &Part,
    passes: &[Pass],
    (rates, overheads): (&GpuRates, &Overheads),
) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for piece in &part.pieces {
        for pass in passes {
            let kernels = program.kernels_of(piece.unit, *pass);
            let times = times_by_kind(&kernels, rates, overheads);
            for (sum, time) in sums.iter_mut().zip(times) {
                *sum += time.as_secs_f64() * piece.repeat as f64;
            }
        }
    }
    let all: f64 = sums.iter().sum();
    if all > 0.0 { sums.map(|sum| sum / all) } else { [0.0, 0.0, 1.0] }
}

/// A call made by all groups at once.
pub(crate) fn exchange_of(call: &Call) -> Exchange {
    let Call { kind, collective, bytes, spread, .. } = *call;
    Exchange { kind, collective, bytes, spread }
}

/// What an axis is accounted under.
pub(crate) fn share_of(axis: Axis) -> Share {
    match axis {
        Axis::Tp => Share::Tp,
        Axis::Cp => Share::Cp,
        Axis::Ep => Share::Ep,
        Axis::Pp => Share::Pp,
        Axis::Dp => Share::Dp,
    }
}

fn scaled(span: Span, factor: f64) -> Span {
    Span::from_secs_f64(span.as_secs_f64() * factor.max(0.0))
}
