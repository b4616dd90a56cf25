//! Puts the operations of one step together: passes, messages, weights, gradients, the optimizer.
//!
//! How it works. Every pipeline stage is one representative rank with a computation stream and a
//! stream for gradients and weights. The schedule's slots run on the first in their order. The
//! first forward pass over a part of the model and the last backward pass are taken apart into
//! layers, so that weights can arrive layer by layer under the one and gradients leave layer by
//! layer under the other, which is how buckets overlap in Megatron-LM and FSDP. All other passes
//! are one operation.
//!
//! The optimizer waits for the gradients of all stages: the norm that clips them is global.
//!
//! A step of very many microbatches is not walked through. Its middle repeats: a short step, as
//! long as its schedule's warm-up needs, shows what each further round takes, and of what parts.
//! The rounds are told apart by the forward passes of the busiest stage; where messages in flight
//! make the pattern repeat over several rounds, over as many as it takes.
//!
//! Where it departs from reality: one representative per stage, so both ends of a message agree on
//! when it can start; streams for context and expert communication are folded into the passes.

use job::schedule::{Pass, Pipeline, Schedule, Slot, Task};
use units::Span;

use crate::breakdown::{self, Breakdown};
use crate::timeline::{
    After, LaneId, Parts, Share, StepGraph, StepOp, StepOpId, Stream, Timeline, Work,
};

/// What the passes over one part of the model cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartCosts {
    /// A forward pass.
    pub forward: Parts,
    /// The gradients of inputs.
    pub input: Parts,
    /// The gradients of weights.
    pub weight: Parts,
    /// Both in one pass: what copies exchange in it hides behind all of its kernels.
    pub backward: Parts,
    /// Layers in it; passes are taken apart into as many pieces.
    pub layers: u64,
    /// Gathering its weights before the first forward pass.
    pub gather: Span,
    /// Reducing its gradients after the last backward pass.
    pub reduce: Span,
}

impl PartCosts {
    fn of(&self, pass: Pass) -> Parts {
        match pass {
            Pass::Forward => self.forward,
            Pass::Input => self.input,
            Pass::Weight => self.weight,
            Pass::Backward => self.backward,
        }
    }
}

/// How messages between stages meet computation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sending {
    /// Beside it: only the receiver waits.
    Overlapped,
    /// The sender waits too until its message is through.
    Blocking,
}

/// How weights and gradients meet computation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Copying {
    /// Layer by layer beside the passes.
    Overlapped,
    /// All gradients after the last pass; all weights after the optimizer.
    AtTheEnd,
    /// The same on circuits that are set anew in this time once the passes of all stages are over,
    /// and back again once the weights are there.
    OnOtherCircuits(Span),
}

/// Everything that a step is put together from.
#[derive(Clone, Debug)]
pub struct StepInput {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// By part of the model.
    pub parts: Vec<PartCosts>,
    /// A forward and a backward pass interleaved, by stage, where the pipeline has such pairs.
    pub together: Vec<Parts>,
    /// From the end of a pass until its message is at the next stage.
    pub message: Span,
    /// The same while weights or gradients cross the links too.
    pub message_beside_copies: Span,
    /// How messages meet computation.
    pub sending: Sending,
    /// How weights and gradients meet computation.
    pub copying: Copying,
    /// What is exchanged once all gradients are there, by stage.
    pub closing: Vec<Parts>,
    /// The optimizer, by stage.
    pub optimizer: Vec<Span>,
    /// What happens once per step around all this.
    pub overhead: Span,
    /// By stage: how much slower it computes than it should.
    pub slowdown: Vec<f64>,
}

/// A step put together and run.
#[derive(Clone, Debug)]
pub struct StepTime {
    /// How long it takes.
    pub length: Span,
    /// Where the time goes.
    pub breakdown: Breakdown,
    /// The stage that computes longest.
    pub busiest: u32,
    /// The timeline; of a shorter step where the whole one was too long to walk through.
    pub line: Timeline,
    /// Rounds that the timeline leaves out.
    pub rounds_left_out: u64,
}

/// Slots of all stages above which a step is not walked through, so that a batch of a million
/// sequences costs no more than one of thousands.
const LONGEST_WALK: u64 = 8_192;

impl StepInput {
    /// Puts the step together and runs it.
    pub fn run(&self) -> StepTime {
        self.run_without(self.rounds_to_leave_out())
    }

    /// How long a step that has run takes with computation `factor` times as long.
    pub fn length_slowed(&self, step: &StepTime, factor: f64) -> Span {
        let rounds = step.rounds_left_out;
        let line = step.line.slowed(factor);
        let repeats = self.without(rounds).repeats(&line, step.busiest, rounds);
        let round = |repeat: &Repeat| repeat.of_rounds(repeat.to.since(repeat.from), rounds);
        line.length() + repeats.iter().map(round).sum()
    }

    /// Runs the step with so many rounds not walked through.
    fn run_without(&self, rounds: u64) -> StepTime {
        let short = self.without(rounds);
        let graph = Assembly::new(&short).graph();
        let line = graph.run().expect("a schedule's tasks wait for earlier ones only");
        let busiest = breakdown::busiest_stage(&line);
        let mut breakdown = breakdown::of_stage(&line, busiest);
        for repeat in short.repeats(&line, busiest, rounds) {
            breakdown = breakdown.repeated(&line, busiest, &repeat, rounds);
        }
        let length = breakdown.total();
        StepTime { length, breakdown, busiest, line, rounds_left_out: rounds }
    }

    /// The step without so many of its rounds.
    fn without(&self, rounds: u64) -> Self {
        let mut short = self.clone();
        short.pipeline.microbatches -= rounds * round_of(&self.pipeline);
        short
    }

    /// The stretches of a short step that every further round repeats, as a stage sees them: from
    /// forward pass to forward pass, and with GPipe, which has all of those before the first
    /// backward pass, from backward pass to backward pass too. None without further rounds.
    fn repeats(&self, line: &Timeline, stage: u32, rounds: u64) -> Vec<Repeat> {
        let works: &[&[Work]] = match self.pipeline.schedule {
            _ if rounds == 0 => &[],
            Schedule::Gpipe if 1 < self.pipeline.stages => &[&[Work::Forward], &[Work::Backward]],
            _ => &[&[Work::Forward, Work::ForwardBackward]],
        };
        works.iter().map(|works| self.repeat(line, stage, works)).collect()
    }

    fn repeat(&self, line: &Timeline, stage: u32, works: &[Work]) -> Repeat {
        let Pipeline { stages, microbatches, .. } = self.pipeline;
        let round = round_of(&self.pipeline);
        // One pass of each round, behind the warm-up and before the end.
        let picked = |micro: u64| {
            let inside = (2 * stages..microbatches - self.end_microbatches()).contains(&micro);
            inside && micro.is_multiple_of(round)
        };
        let graph = line.graph();
        let mut marks: Vec<(u32, units::Time)> = Vec::new();
        for op in graph.ops().ids() {
            let StepOp { lane, work, micro, chunk, .. } = graph.ops()[op];
            let lane = graph.lanes()[lane];
            let own = lane.stage == stage && lane.stream == Stream::Compute && chunk == 0;
            if own && works.contains(&work) && picked(u64::from(micro)) {
                marks.push((micro, line.start(op)));
            }
        }
        // A pass in pieces has one mark: its first piece comes first.
        marks.dedup_by_key(|(micro, _)| *micro);
        Repeat::of(marks.into_iter().map(|(_, time)| time).collect())
    }

    /// How many rounds of the schedule need not be walked through.
    fn rounds_to_leave_out(&self) -> u64 {
        let Pipeline { stages, chunks, microbatches, schedule, .. } = self.pipeline;
        let tasks = if schedule == Schedule::ZeroBubble { 3 } else { 2 };
        let per_microbatch = stages * chunks * tasks;
        if microbatches * per_microbatch <= LONGEST_WALK {
            return 0;
        }
        // The longest warm-up takes two microbatches per stage (interleaved: fewer than (v + 1)p
        // passes over a part, which is 2p microbatches at most). Four more per stage are looked at.
        let round = round_of(&self.pipeline);
        microbatches.saturating_sub(self.microbatches_needed()) / round
    }

    /// Microbatches that show how the schedule repeats itself.
    fn microbatches_needed(&self) -> u64 {
        6 * self.pipeline.stages + self.end_microbatches() - 1
    }

    /// Microbatches whose passes are unlike the others': the last one, beside gradients; with
    /// DualPipe, which does not pair all forward passes in its end, three per stage.
    fn end_microbatches(&self) -> u64 {
        match self.pipeline.schedule {
            Schedule::DualPipe => 3 * self.pipeline.stages,
            _ => 1,
        }
    }
}

/// A stretch of a step that further rounds repeat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Repeat {
    /// From here,
    pub(crate) from: units::Time,
    /// to here,
    pub(crate) to: units::Time,
    /// which is so many rounds.
    pub(crate) rounds: u64,
}

impl Repeat {
    /// From the beginnings of rounds: the shortest period that they have, up to half of them; else
    /// the later half of them, as a mean.
    fn of(marks: Vec<units::Time>) -> Self {
        let last = marks.len() - 1;
        let repeats = |period: &usize| {
            let mut delays = marks.iter().zip(&marks[*period..]).map(|(a, b)| b.since(*a));
            let first = delays.next();
            delays.all(|delay| Some(delay) == first)
        };
        let period = (1..=last / 2).find(repeats).unwrap_or(last.div_ceil(2));
        Self { from: marks[last - period], to: marks[last], rounds: period as u64 }
    }

    /// Of something that a repeat has so much of, how much so many rounds have.
    pub(crate) fn of_rounds(&self, here: Span, rounds: u64) -> Span {
        let all = u128::from(here.as_ps()) * u128::from(rounds) / u128::from(self.rounds);
        Span::from_ps(u64::try_from(all).expect("a step fits"))
    }
}

/// Microbatches by which a schedule repeats itself.
fn round_of(pipeline: &Pipeline) -> u64 {
    match pipeline.schedule {
        Schedule::Interleaved if 1 < pipeline.chunks => pipeline.stages,
        Schedule::DualPipe => 2,
        _ => 1,
    }
}

/// The end of a task, for those that wait for it.
type Ends = Vec<Option<StepOpId>>;

struct Assembly<'a> {
    input: &'a StepInput,
    graph: StepGraph,
    compute: Vec<LaneId>,
    copies: Vec<LaneId>,
    /// By forward or backward, part and microbatch.
    forward_end: Ends,
    backward_end: Ends,
    /// Waits that are known before what is waited for has a number.
    waits: Vec<(StepOpId, Awaited)>,
    /// Gradients of each stage: the last operation of its stream.
    reduced: Vec<Option<StepOpId>>,
    /// The last pass of each stage and the reduction behind it, where that is not overlapped.
    behind: Vec<(StepOpId, StepOpId)>,
}

/// What a pass waits for besides its stage.
#[derive(Clone, Copy)]
struct Awaited {
    pass: Pass,
    part: u64,
    microbatch: u64,
    delay: Span,
}

impl<'a> Assembly<'a> {
    fn new(input: &'a StepInput) -> Self {
        let ends = (input.pipeline.parts() * input.pipeline.microbatches) as usize;
        let mut graph = StepGraph::with_room(2 * ends);
        let stages = 0..input.pipeline.stages as u32;
        let compute = stages.clone().map(|s| graph.lane(s, Stream::Compute)).collect();
        let copies = stages.map(|s| graph.lane(s, Stream::Communication)).collect();
        Self {
            input,
            graph,
            compute,
            copies,
            forward_end: vec![None; ends],
            backward_end: vec![None; ends],
            waits: Vec::with_capacity(2 * ends),
            reduced: vec![None; input.pipeline.stages as usize],
            behind: Vec::new(),
        }
    }

    fn graph(mut self) -> StepGraph {
        for stage in 0..self.input.pipeline.stages {
            self.stage(stage);
        }
        for (op, awaited) in std::mem::take(&mut self.waits) {
            let ends = match awaited.pass {
                Pass::Forward => &self.forward_end,
                _ => &self.backward_end,
            };
            let at = awaited.part * self.input.pipeline.microbatches + awaited.microbatch;
            let end = ends[at as usize].expect("every pass that is waited for is run");
            let after = After { op: end, delay: awaited.delay, delay_share: Share::Pp };
            self.graph.wait(op, after);
        }
        if let Copying::OnOtherCircuits(takes) = self.input.copying {
            self.wait_for_circuits(takes);
        }
        self.end();
        self.graph
    }

    /// No gradients before the passes of all stages are over and the circuits are set.
    fn wait_for_circuits(&mut self, takes: Span) {
        for (_, reduction) in &self.behind {
            for (pass, _) in &self.behind {
                let after = After { op: *pass, delay: takes, delay_share: Share::Dp };
                self.graph.wait(*reduction, after);
            }
        }
    }

    /// All slots of a stage, with what its first and last passes need of weights and gradients.
    fn stage(&mut self, stage: u64) {
        let slots = self.input.pipeline.unfolded(stage);
        let parts = self.input.pipeline.parts_of(stage);
        let own = |part: u64| parts.iter().position(|known| *known == part).expect("its own part");
        let first = |part: &u64| slots.iter().position(|slot| slot.has(*part, Pass::is_forward));
        let last = |part: &u64| slots.iter().rposition(|slot| slot.has(*part, Pass::ends));
        let first: Vec<Option<usize>> = parts.iter().map(first).collect();
        let last: Vec<Option<usize>> = parts.iter().map(last).collect();
        let gathers = self.gathers(stage, &parts);
        let passes: Vec<[Parts; 4]> = parts.iter().map(|part| self.passes(stage, *part)).collect();
        for (at, slot) in slots.iter().enumerate() {
            // Of a pair the forward pass comes first, the backward pass last.
            let (leading, closing) = match slot {
                Slot::Alone(task) => (own(task.part), own(task.part)),
                Slot::Together(forward, backward) => (own(forward.part), own(backward.part)),
            };
            let gathers = if first[leading] == Some(at) { &gathers[leading][..] } else { &[] };
            let costs = match slot {
                Slot::Alone(task) => passes[leading][task.pass as usize],
                Slot::Together(..) => self.slowed(stage, self.input.together[stage as usize]),
            };
            self.slot(stage, *slot, costs, gathers, last[closing] == Some(at));
        }
        if self.input.copying != Copying::Overlapped {
            let lane = self.compute[stage as usize];
            let passed = self.graph.last(lane);
            let whole = parts.iter().fold(Span::ZERO, |sum, p| sum + self.part(*p).reduce);
            let op = self.op(lane, Work::ReduceGradients, whole, Share::Dp);
            self.behind.extend(passed.map(|passed| (passed, op)));
            self.reduced[stage as usize] = Some(op);
        }
        self.close(stage);
    }

    /// What is exchanged once all gradients of a stage are there.
    fn close(&mut self, stage: u64) {
        let parts = self.input.closing.get(stage as usize).copied().unwrap_or_default();
        if parts.total() == Span::ZERO {
            return;
        }
        let (lane, work) = (self.compute[stage as usize], Work::ReduceGradients);
        let op = self.graph.push(StepOp { lane, work, micro: 0, chunk: 0, parts });
        if let Some(reduced) = self.reduced[stage as usize].replace(op) {
            self.graph.wait(op, now(reduced));
        }
    }

    fn part(&self, part: u64) -> &'a PartCosts {
        &self.input.parts[part as usize]
    }

    fn op(&mut self, lane: LaneId, work: Work, span: Span, share: Share) -> StepOpId {
        let parts = Parts::of(share, span);
        self.graph.push(StepOp { lane, work, micro: 0, chunk: 0, parts })
    }

    /// Gathers the weights of a stage, layer by layer, in the order in which they are needed.
    fn gathers(&mut self, stage: u64, parts: &[u64]) -> Vec<Vec<StepOpId>> {
        if self.input.copying != Copying::Overlapped {
            return vec![Vec::new(); parts.len()];
        }
        let lane = self.copies[stage as usize];
        let mut gathers = Vec::new();
        for part in parts {
            let costs = self.part(*part);
            let pieces = if costs.gather == Span::ZERO { 0 } else { costs.layers.max(1) };
            let layer = (0..pieces).map(|number| piece_of(costs.gather, number, pieces));
            let spans: Vec<Span> = layer.collect();
            let work = Work::GatherWeights;
            gathers.push(spans.into_iter().map(|s| self.op(lane, work, s, Share::Dp)).collect());
        }
        gathers
    }

    /// What the passes over a part cost on a stage, in the order of [`Pass`].
    fn passes(&self, stage: u64, part: u64) -> [Parts; 4] {
        let passes = [Pass::Forward, Pass::Backward, Pass::Input, Pass::Weight];
        passes.map(|pass| self.slowed(stage, self.part(part).of(pass)))
    }

    /// A cost on a stage that may be slow.
    fn slowed(&self, stage: u64, parts: Parts) -> Parts {
        parts.slowed(self.input.slowdown.get(stage as usize).copied().unwrap_or(1.0))
    }

    fn slot(&mut self, stage: u64, slot: Slot, parts: Parts, gathers: &[StepOpId], reduces: bool) {
        let task = slot.tasks().next().expect("a slot has a task");
        let work = match slot {
            Slot::Alone(task) => work_of(task.pass),
            Slot::Together(..) => Work::ForwardBackward,
        };
        let costs = self.part(slot.tasks().last().expect("a slot has a task").part);
        let overlaps = self.input.copying == Copying::Overlapped;
        let reduce = if reduces && overlaps { costs.reduce } else { Span::ZERO };
        let mut pieces = (gathers.len() as u64).max(1);
        if reduce != Span::ZERO {
            pieces = pieces.max(costs.layers.max(1));
        }
        let lane = self.compute[stage as usize];
        let chunk = (task.part / self.input.pipeline.stages) as u32;
        let micro = task.microbatch as u32;
        let mut begin = None;
        let mut end = None;
        for number in 0..pieces {
            let parts = piece_of_parts(&parts, number, pieces);
            let op = self.graph.push(StepOp { lane, work, micro, chunk, parts });
            begin = begin.or(Some(op));
            end = Some(op);
            if let Some(gather) = gathers.get(number as usize) {
                self.graph.wait(op, now(*gather));
            }
            if reduce != Span::ZERO {
                let span = piece_of(reduce, number, pieces);
                let copies = self.copies[stage as usize];
                let after = self.op(copies, Work::ReduceGradients, span, Share::Dp);
                self.graph.wait(after, now(op));
                self.reduced[stage as usize] = Some(after);
            }
        }
        let (begin, end) = (begin.expect("a piece"), end.expect("a piece"));
        for task in slot.tasks() {
            self.connect(stage, task, begin, end);
        }
        self.send(stage, slot);
    }

    /// What a task waits for, and who can wait for it.
    fn connect(&mut self, stage: u64, task: Task, begin: StepOpId, end: StepOpId) {
        let Pipeline { microbatches, .. } = self.input.pipeline;
        let last = self.input.pipeline.parts() - 1;
        let Task { pass, part, microbatch } = task;
        let at = (part * microbatches + microbatch) as usize;
        let flight = self.flight(task);
        let mut wait = |pass: Pass, from: u64| {
            let there = self.input.pipeline.stage_of(from, microbatch);
            let delay = if there == stage { Span::ZERO } else { flight };
            self.waits.push((begin, Awaited { pass, part: from, microbatch, delay }));
        };
        match pass {
            Pass::Forward if 0 < part => wait(Pass::Forward, part - 1),
            Pass::Backward | Pass::Input if part < last => wait(Pass::Backward, part + 1),
            Pass::Backward | Pass::Input => wait(Pass::Forward, part),
            Pass::Forward | Pass::Weight => {}
        }
        match pass {
            Pass::Forward => self.forward_end[at] = Some(end),
            Pass::Backward | Pass::Input => self.backward_end[at] = Some(end),
            Pass::Weight => {}
        }
    }

    /// How long a task's message was under way: the first ones forward travel beside the weights,
    /// the last ones backward beside the gradients.
    fn flight(&self, task: Task) -> Span {
        let last = self.input.pipeline.microbatches - 1;
        let beside = match task.pass {
            Pass::Forward => task.microbatch == 0,
            _ => task.microbatch == last,
        };
        match self.input.copying {
            Copying::Overlapped if beside => self.input.message_beside_copies,
            _ => self.input.message,
        }
    }

    /// The sender's wait for its message, where it waits.
    fn send(&mut self, stage: u64, slot: Slot) {
        if self.input.sending == Sending::Overlapped || self.input.pipeline.stages == 1 {
            return;
        }
        let last = self.input.pipeline.parts() - 1;
        let sends = slot.tasks().any(|task| match task.pass {
            Pass::Forward => task.part < last,
            Pass::Backward | Pass::Input => 0 < task.part,
            Pass::Weight => false,
        });
        if sends {
            let lane = self.compute[stage as usize];
            self.op(lane, Work::Message, self.input.message, Share::Pp);
        }
    }

    /// The optimizer of all stages behind the gradients of all, then the rest.
    fn end(&mut self) {
        let stages = self.input.pipeline.stages as usize;
        let mut last = None;
        for stage in 0..stages {
            let span = self.input.optimizer.get(stage).copied().unwrap_or(Span::ZERO);
            let lane = self.compute[stage];
            let optimizer = self.op(lane, Work::Optimizer, span, Share::Optimizer);
            for reduced in self.reduced.clone().into_iter().flatten() {
                self.graph.wait(optimizer, now(reduced));
            }
            last = Some(optimizer);
            if self.input.copying != Copying::Overlapped {
                let parts = self.input.pipeline.parts_of(stage as u64);
                let whole = parts.iter().fold(Span::ZERO, |sum, p| sum + self.part(*p).gather);
                last = Some(self.op(lane, Work::GatherWeights, whole, Share::Dp));
            }
        }
        if let Copying::OnOtherCircuits(takes) = self.input.copying {
            let lane = self.compute[0];
            let back = self.op(lane, Work::SetCircuits, takes, Share::Dp);
            if let Some(last) = last {
                self.graph.wait(back, now(last));
            }
            last = Some(back);
        }
        let overhead = self.op(self.compute[0], Work::Overhead, self.input.overhead, Share::Other);
        if let Some(last) = last {
            self.graph.wait(overhead, now(last));
        }
    }
}

fn now(op: StepOpId) -> After {
    After { op, delay: Span::ZERO, delay_share: Share::Dp }
}

fn work_of(pass: Pass) -> Work {
    match pass {
        Pass::Forward => Work::Forward,
        Pass::Backward => Work::Backward,
        Pass::Input => Work::BackwardInputs,
        Pass::Weight => Work::BackwardWeights,
    }
}

/// The `number`-th of `count` pieces of a span; the pieces add up to it.
fn piece_of(span: Span, number: u64, count: u64) -> Span {
    let at = |number: u64| u128::from(span.as_ps()) * u128::from(number) / u128::from(count);
    Span::from_ps((at(number + 1) - at(number)) as u64)
}

fn piece_of_parts(parts: &Parts, number: u64, count: u64) -> Parts {
    if count == 1 {
        return *parts;
    }
    let mut piece = Parts::default();
    for share in Share::ALL {
        piece.add(share, piece_of(parts.get(share), number, count));
    }
    piece
}

#[cfg(test)]
mod tests;
