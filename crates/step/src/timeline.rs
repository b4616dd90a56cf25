//! When everything of one step happens, on representative ranks.
//!
//! How it works. The operations of a step form a graph. Each runs on a lane (the computation stream
//! of a pipeline stage, or one of its communication streams), after the operation before it on that
//! lane and after the operations it names, each with a delay of its own (a message in flight). One
//! pass in topological order gives every operation its start and its end, and remembers which of
//! these made it wait: that is the critical path, and what [`breakdown`](crate::breakdown) and
//! [`attribution`](crate::attribution) read.
//!
//! An operation's time is made of parts: computation, and communication of each axis that nothing
//! hides. Time is whole picoseconds, so sums are exact.
//!
//! Where it departs from reality: all ranks that stand alike in the layout take the same time; that
//! they do not is [`jitter`](crate::jitter)'s business. Equal phases of communication take equal
//! time wherever they fall.

use units::{Id, IdVec, Span, Time};

units::id!(
    /// One operation of the step.
    StepOpId,
    /// What runs one thing at a time: a stream of a representative rank.
    LaneId,
);

/// What a moment of a step is spent on. The order is that of the results.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Share {
    /// Kernels.
    Compute,
    /// Tensor-parallel communication.
    Tp,
    /// Context-parallel communication.
    Cp,
    /// Expert-parallel communication.
    Ep,
    /// Messages between pipeline stages.
    Pp,
    /// Gradients and weights between copies.
    Dp,
    /// Waiting for another stage's computation.
    Bubble,
    /// The optimizer's kernels.
    Optimizer,
    /// Jitter, data loading, the loop around the step.
    Other,
}

impl Share {
    /// All of them, in the order of the results.
    pub const ALL: [Self; 9] = [
        Self::Compute,
        Self::Tp,
        Self::Cp,
        Self::Ep,
        Self::Pp,
        Self::Dp,
        Self::Bubble,
        Self::Optimizer,
        Self::Other,
    ];

    /// Its place in [`Share::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The key that results use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Tp => "tp",
            Self::Cp => "cp",
            Self::Ep => "ep",
            Self::Pp => "pp",
            Self::Dp => "dp",
            Self::Bubble => "bubble",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }

    /// Whether it is communication.
    pub fn is_communication(self) -> bool {
        matches!(self, Self::Tp | Self::Cp | Self::Ep | Self::Pp | Self::Dp)
    }
}

/// A span of time, made of parts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Parts([Span; 9]);

impl Parts {
    /// All of it one thing.
    pub fn of(share: Share, span: Span) -> Self {
        let mut parts = Self::default();
        parts.0[share.index()] = span;
        parts
    }

    /// How much of it is this.
    pub fn get(&self, share: Share) -> Span {
        self.0[share.index()]
    }

    /// Adds to one part.
    pub fn add(&mut self, share: Share, span: Span) {
        self.0[share.index()] += span;
    }

    /// The same with one part added.
    #[must_use]
    pub fn with(mut self, share: Share, span: Span) -> Self {
        self.add(share, span);
        self
    }

    /// The whole.
    pub fn total(&self) -> Span {
        self.0.iter().fold(Span::ZERO, |sum, part| sum + *part)
    }

    /// Both together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for share in Share::ALL {
            self.add(share, other.get(share));
        }
        self
    }

    /// The same with computation that takes `factor` times as long.
    #[must_use]
    pub fn slowed(self, factor: f64) -> Self {
        if factor == 1.0 {
            return self;
        }
        let compute = self.get(Share::Compute);
        let more = Span::from_secs_f64(compute.as_secs_f64() * (factor - 1.0).max(0.0));
        self.with(Share::Compute, more)
    }

    /// The parts of a piece of it, in proportion; what rounding leaves goes to the largest part.
    fn piece(&self, length: Span) -> Self {
        let whole = self.total().as_ps();
        if whole == length.as_ps() || whole == 0 {
            return *self;
        }
        let mut piece = Self::default();
        for share in Share::ALL {
            let part = u128::from(self.get(share).as_ps()) * u128::from(length.as_ps());
            let part = u64::try_from(part / u128::from(whole)).expect("a part of a span fits");
            piece.add(share, Span::from_ps(part));
        }
        let largest = Share::ALL.into_iter().max_by_key(|share| self.get(*share));
        let rest = length.saturating_sub(piece.total());
        piece.add(largest.expect("there are shares"), rest);
        piece
    }
}

/// What an operation does, for words.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Work {
    /// A forward pass.
    Forward,
    /// A backward pass.
    Backward,
    /// The part of a backward pass that the stage before waits for.
    BackwardInputs,
    /// The part of a backward pass that nobody waits for.
    BackwardWeights,
    /// A forward and a backward pass of two microbatches, interleaved.
    ForwardBackward,
    /// A send or a receive that the stage waits for.
    Message,
    /// Weights gathered from their shards.
    GatherWeights,
    /// Gradients reduced between copies.
    ReduceGradients,
    /// Optical circuits that are set anew.
    SetCircuits,
    /// The optimizer.
    Optimizer,
    /// What happens once per step around all this.
    Overhead,
}

impl Work {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::BackwardInputs => "backward (inputs)",
            Self::BackwardWeights => "backward (weights)",
            Self::ForwardBackward => "forward and backward, interleaved",
            Self::Message => "pipeline message",
            Self::GatherWeights => "gathering weights",
            Self::ReduceGradients => "reducing gradients",
            Self::SetCircuits => "setting circuits anew",
            Self::Optimizer => "optimizer",
            Self::Overhead => "the loop around the step",
        }
    }
}

/// An operation of the step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StepOp {
    /// Where it runs.
    pub lane: LaneId,
    /// What it does.
    pub work: Work,
    /// For which microbatch; 0 where it is for all.
    pub micro: u32,
    /// On which of the stage's virtual stages.
    pub chunk: u32,
    /// How long, and of what.
    pub parts: Parts,
}

/// A stream of a representative rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lane {
    /// The pipeline stage that the rank stands for.
    pub stage: u32,
    /// Which of its streams.
    pub stream: Stream,
}

/// What a stream carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Kernels, and the communication that they wait for.
    Compute,
    /// Communication beside them.
    Communication,
}

/// Something that an operation waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct After {
    /// This operation's end,
    pub op: StepOpId,
    /// and this much later,
    pub delay: Span,
    /// spent on this.
    pub delay_share: Share,
}

/// The operations of a step and what each waits for.
#[derive(Clone, Debug, Default)]
pub struct StepGraph {
    lanes: IdVec<LaneId, Lane>,
    ops: IdVec<StepOpId, StepOp>,
    /// The operation before each on its lane.
    before: Vec<Option<StepOpId>>,
    last: Vec<Option<StepOpId>>,
    /// What operations wait for besides, in the order of telling; by operation once it has run.
    waits: Vec<(StepOpId, After)>,
}

impl StepGraph {
    /// No operations yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with room for so many.
    pub fn with_room(ops: usize) -> Self {
        let (before, waits) = (Vec::with_capacity(ops), Vec::with_capacity(ops));
        Self { ops: IdVec::with_capacity(ops), before, waits, ..Self::default() }
    }

    /// Adds a stream.
    pub fn lane(&mut self, stage: u32, stream: Stream) -> LaneId {
        self.last.push(None);
        self.lanes.push(Lane { stage, stream })
    }

    /// Adds an operation behind the others of its lane. What it waits for besides may be added
    /// later ([`StepGraph::wait`]), as schedules know their partners only then.
    pub fn push(&mut self, op: StepOp) -> StepOpId {
        let lane = op.lane.index();
        let id = self.ops.push(op);
        self.before.push(self.last[lane].replace(id));
        id
    }

    /// The operation that a lane ends with so far.
    pub fn last(&self, lane: LaneId) -> Option<StepOpId> {
        self.last[lane.index()]
    }

    /// Makes `op` wait for another.
    pub fn wait(&mut self, op: StepOpId, after: After) {
        self.waits.push((op, after));
    }

    /// All operations.
    pub fn ops(&self) -> &IdVec<StepOpId, StepOp> {
        &self.ops
    }

    /// All streams.
    pub fn lanes(&self) -> &IdVec<LaneId, Lane> {
        &self.lanes
    }

    /// Runs the step. `None` if operations wait for each other in a circle.
    pub fn run(mut self) -> Option<Timeline> {
        let count = self.ops.len();
        let (from, order) = by_owner(count, self.waits.iter().map(|(op, _)| *op));
        self.waits = order.iter().map(|place| self.waits[*place as usize]).collect();
        let mut waiting: Vec<u32> = from.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut next: Vec<Option<StepOpId>> = vec![None; count];
        for op in self.ops.ids() {
            if let Some(before) = self.before[op.index()] {
                next[before.index()] = Some(op);
                waiting[op.index()] += 1;
            }
        }
        // Those that wait for an operation, by operation.
        let (waiters_from, waiters) = by_owner(count, self.waits.iter().map(|(_, after)| after.op));
        let mut ready: Vec<StepOpId> =
            self.ops.ids().filter(|op| waiting[op.index()] == 0).collect();
        let times = vec![OpTime::default(); count];
        let mut line = Timeline { graph: self, from, order: Vec::with_capacity(count), times };
        while let Some(op) = ready.pop() {
            line.order.push(op);
            line.times[op.index()] = line.time(op);
            let others = waiters[range(&waiters_from, op)].iter();
            let others = others.map(|wait| line.graph.waits[*wait as usize].0);
            for follower in others.chain(next[op.index()]) {
                let left = &mut waiting[follower.index()];
                *left -= 1;
                if *left == 0 {
                    ready.push(follower);
                }
            }
        }
        (line.order.len() == count).then_some(line)
    }
}

/// The places of entries put in the order of their owners, equal ones as they are; and where the
/// entries of each of `count` owners begin among them, with the end behind the last.
fn by_owner(
    count: usize,
    owners: impl ExactSizeIterator<Item = StepOpId> + Clone,
) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0_u32; count + 1];
    for owner in owners.clone() {
        starts[owner.index() + 1] += 1;
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    let mut next = starts.clone();
    let mut order = vec![0; owners.len()];
    for (place, owner) in (0..).zip(owners) {
        order[next[owner.index()] as usize] = place;
        next[owner.index()] += 1;
    }
    (starts, order)
}

fn range(starts: &[u32], op: StepOpId) -> std::ops::Range<usize> {
    starts[op.index()] as usize..starts[op.index() + 1] as usize
}

/// What an operation waited for last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Cause {
    /// Nothing.
    #[default]
    Begin,
    /// The operation before it on its lane.
    Lane(StepOpId),
    /// One of the others that it names.
    After(After),
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct OpTime {
    start: Time,
    end: Time,
    cause: Cause,
}

/// A stretch of the step: from when to when, spent on what, because of which operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stretch {
    /// Its beginning.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// The operation that it belongs to: the one that runs, or the one whose message is awaited.
    pub op: StepOpId,
    /// What it is spent on.
    pub parts: Parts,
}

/// A step that has run.
#[derive(Clone, Debug)]
pub struct Timeline {
    graph: StepGraph,
    /// Where the waits of each operation begin.
    from: Vec<u32>,
    /// Operations so that each comes behind those that it waits for.
    order: Vec<StepOpId>,
    times: Vec<OpTime>,
}

impl Timeline {
    /// The operations and streams.
    pub fn graph(&self) -> &StepGraph {
        &self.graph
    }

    /// What an operation waits for besides the one before it on its lane.
    pub fn after(&self, op: StepOpId) -> impl ExactSizeIterator<Item = &After> {
        self.graph.waits[range(&self.from, op)].iter().map(|(_, after)| after)
    }

    /// When an operation runs, given when everything that it waits for did.
    fn time(&self, op: StepOpId) -> OpTime {
        let mut start = Time::ZERO;
        let mut cause = Cause::Begin;
        if let Some(before) = self.graph.before[op.index()] {
            start = self.end(before);
            cause = Cause::Lane(before);
        }
        for after in self.after(op) {
            let ready = self.end(after.op) + after.delay;
            if start < ready {
                start = ready;
                cause = Cause::After(*after);
            }
        }
        OpTime { start, end: start + self.graph.ops[op].parts.total(), cause }
    }

    /// The same step with computation that takes `factor` times as long.
    #[must_use]
    pub fn slowed(&self, factor: f64) -> Self {
        let mut line = self.clone();
        for op in line.graph.ops.iter_mut() {
            op.parts = op.parts.slowed(factor);
        }
        for op in &self.order {
            line.times[op.index()] = line.time(*op);
        }
        line
    }

    /// When an operation started.
    pub fn start(&self, op: StepOpId) -> Time {
        self.times[op.index()].start
    }

    /// When it ended.
    pub fn end(&self, op: StepOpId) -> Time {
        self.times[op.index()].end
    }

    /// How long the step takes.
    pub fn length(&self) -> Span {
        let last = self.times.iter().map(|time| time.end).max();
        last.unwrap_or(Time::ZERO).since(Time::ZERO)
    }

    /// The operation that ends last; the first added of those that do.
    pub fn last(&self) -> Option<StepOpId> {
        let mut last: Option<StepOpId> = None;
        for op in self.graph.ops.ids() {
            if last.is_none_or(|known| self.end(known) < self.end(op)) {
                last = Some(op);
            }
        }
        last
    }

    /// The chain of stretches that ends with `op` and reaches back to `since`, latest first: each
    /// begins when what made it wait was over. Its stretches fill the time without gap or overlap.
    pub fn chain(&self, op: StepOpId, since: Time) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut op = op;
        let mut to = self.end(op);
        loop {
            let OpTime { start, cause, .. } = self.times[op.index()];
            self.stretch(op, start.max(since), to, &mut stretches);
            if start <= since {
                return stretches;
            }
            match cause {
                Cause::Begin => return stretches,
                Cause::Lane(before) => {
                    op = before;
                    to = start;
                }
                Cause::After(after) => {
                    let sent = self.end(after.op);
                    let from = sent.max(since);
                    if from < start {
                        let parts = Parts::of(after.delay_share, start.since(from));
                        stretches.push(Stretch { from, to: start, op, parts });
                    }
                    if sent <= since {
                        return stretches;
                    }
                    op = after.op;
                    to = sent;
                }
            }
        }
    }

    /// What happened on one lane from the end of the step back to its beginning, latest first:
    /// its operations, and between them the chains of whatever it waited for.
    pub fn lane_stretches(&self, last: StepOpId) -> Vec<Stretch> {
        let lane = self.graph.ops[last].lane;
        let mut stretches = Vec::new();
        let mut next = Some(last);
        while let Some(op) = next {
            debug_assert_eq!(self.graph.ops[op].lane, lane);
            let OpTime { start, end, cause } = self.times[op.index()];
            self.stretch(op, start, end, &mut stretches);
            let before = self.graph.before[op.index()];
            let free = before.map_or(Time::ZERO, |before| self.end(before));
            if let Cause::After(after) = cause {
                let from = self.end(after.op).max(free);
                if from < start {
                    let parts = Parts::of(after.delay_share, start.since(from));
                    stretches.push(Stretch { from, to: start, op, parts });
                }
                if free < from {
                    stretches.extend(self.chain(after.op, free));
                }
            }
            next = before;
        }
        stretches
    }

    fn stretch(&self, op: StepOpId, from: Time, to: Time, into: &mut Vec<Stretch>) {
        if from < to {
            let parts = self.graph.ops[op].parts.piece(to.since(from));
            into.push(Stretch { from, to, op, parts });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(lane: LaneId, micro: u32, parts: Parts) -> StepOp {
        StepOp { lane, work: Work::Forward, micro, chunk: 0, parts }
    }

    fn compute(us: u64) -> Parts {
        Parts::of(Share::Compute, Span::from_us(us))
    }

    fn message(op: StepOpId, us: u64) -> After {
        After { op, delay: Span::from_us(us), delay_share: Share::Pp }
    }

    /// Oracle, by hand: two stages, two microbatches, messages of 1 µs.
    #[test]
    fn a_message_makes_the_next_stage_wait() {
        let mut graph = StepGraph::new();
        let (a, b) = (graph.lane(0, Stream::Compute), graph.lane(1, Stream::Compute));
        let first: Vec<_> = (0..2).map(|micro| graph.push(op(a, micro, compute(10)))).collect();
        let second: Vec<_> = (0..2).map(|micro| graph.push(op(b, micro, compute(7)))).collect();
        for (from, to) in first.iter().zip(&second) {
            graph.wait(*to, message(*from, 1));
        }
        let line = graph.run().unwrap();
        assert_eq!(line.start(second[0]).since(Time::ZERO), Span::from_us(11));
        assert_eq!(line.length(), Span::from_us(28));

        let chain = line.chain(second[1], Time::ZERO);
        let total = chain.iter().fold(Parts::default(), |sum, s| sum.plus(&s.parts));
        assert_eq!(total.get(Share::Compute), Span::from_us(27));
        assert_eq!(total.get(Share::Pp), Span::from_us(1));
    }

    /// Property: on random graphs chains and lanes fill the whole time, without gap or overlap.
    #[test]
    fn stretches_fill_the_time() {
        for seed in 0..200 {
            let mut random = units::Random::new(seed, "timeline", 0);
            let mut graph = StepGraph::new();
            let lanes: Vec<_> = (0..4).map(|stage| graph.lane(stage, Stream::Compute)).collect();
            let mut ops = Vec::new();
            for micro in 0..60 {
                let lane = lanes[random.below(4) as usize];
                let parts = compute(random.below(9))
                    .with(Share::Tp, Span::from_ps(random.below(5_000_000)));
                let new = graph.push(op(lane, micro, parts));
                for _ in 0..random.below(3) {
                    if let Some(count) = (ops.len() as u64).checked_sub(1) {
                        let earlier = ops[random.below(count + 1) as usize];
                        graph.wait(new, message(earlier, random.below(6)));
                    }
                }
                ops.push(new);
            }
            let line = graph.run().unwrap();
            let last = line.last().unwrap();
            for stretches in [line.chain(last, Time::ZERO), line.lane_stretches(last)] {
                let mut at = line.end(last);
                for stretch in &stretches {
                    assert_eq!(stretch.to, at, "seed {seed}: a gap or an overlap");
                    assert_eq!(stretch.parts.total(), stretch.to.since(stretch.from));
                    at = stretch.from;
                }
                assert_eq!(at, Time::ZERO, "seed {seed}: does not reach the beginning");
            }
        }
    }

    #[test]
    fn a_circle_is_noticed() {
        let mut graph = StepGraph::new();
        let (a, b) = (graph.lane(0, Stream::Compute), graph.lane(1, Stream::Compute));
        let (first, second) = (graph.push(op(a, 0, compute(1))), graph.push(op(b, 0, compute(1))));
        graph.wait(first, message(second, 1));
        graph.wait(second, message(first, 1));
        assert!(graph.run().is_none());
    }
}
