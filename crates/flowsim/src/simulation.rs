//! The run: operations start, flows share the links, messages finish, links fail.
//!
//! Time is seconds in a float, turned into picoseconds when it is written down. Two things can be
//! next: an entry of the calendar (an operation may start, the fabric changes) or the earliest
//! finish of a flow. All that happens at one instant is done first; then the rates are settled
//! once.
//!
//! A queue pair works on its messages one after the other, as a reliable connection does. A
//! connection that splits its messages over its queue pairs is one flow over all their paths,
//! because the parts of a message wait for each other; one that deals whole messages out in turn
//! is a flow for each queue pair. A folded channel is one flow over the paths of all its edges.
//!
//! A link that fails carries nothing at once; after the time that switches take to notice, all
//! queue pairs are walked again and those with another way move there with what they have left.
//! What was on its way is lost, and a queue pair that has sent all it had goes on when its timer
//! says so ([`losses`]).

mod changes;
mod control;
mod losses;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use fabric::routing::{Grain, KnownDemand, NoPath, QueuePairUse, Spread};
use fabric::{Fabric, Health, LinkId};
use serde::Serialize;
use traffic::queue_pairs::{NicLoad, nic_loads};
use traffic::{
    Connection, ConnectionId, Finding, LinkUse, OpId, OpKind, OpTimes, Outcome, Replay, Transfers,
};
use units::{Bound, Bytes, Id, IdVec, Time};

use crate::analysis::Traces;
use crate::capacity;
use crate::estimate;
use crate::max_min::{Effort, FlowId, MaxMin, SolverLink};
use crate::paths::{Lay, Paths};
use crate::progress::Progress;
use crate::series::Series;
use crate::settings::{QueuePairRates, Receiver, Settings};

/// Nothing.
const NONE: u32 = u32::MAX;

/// What the calendar can hold, in the order in which it happens at one instant.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    /// Something fails, is restored or slows down.
    Changed,
    /// Switches have noticed.
    Converged,
    /// The planner runs again.
    Planned,
    /// Background traffic begins or ends.
    Background(u32),
    /// A queue pair has waited for an answer long enough, and sends again.
    Resend,
    /// Something may have moved nothing for as long as its retries last.
    GiveUp,
    /// What an operation waited for is done.
    Ready(OpId),
    /// The planner measures what is to be sent.
    Measured,
    /// Flows follow the plan of the measurement that is next in turn.
    Followed,
    /// Congestion control changes the rate of a flow by itself.
    Rate(u32),
    /// A queue before a link is sampled.
    Queue(u32),
}

/// Whom a flow of the solver works for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Carrier {
    Lane(u32),
    Coupled(OpId),
    Background,
}

/// A row of messages, one after the other: a queue pair, or a connection that splits.
#[derive(Clone, Copy, Debug)]
struct Lane {
    connection: ConnectionId,
    /// Which of its queue pairs, or [`NONE`] for all.
    number: u32,
    flow: Option<FlowId>,
    /// From NIC to NIC, both of them included.
    delay: f64,
    /// From a message's arrival to its acknowledgement.
    back: f64,
    per_byte: f64,
    /// What a message that finds it idle waits for contexts.
    fetch: f64,
    /// There and back without the NICs, and the rate of the sender's link.
    round_trip: f64,
    line: f64,
    /// What it has sent, and until when its window held the last of it back.
    sent: f64,
    free_at: f64,
    /// First and last message, or [`NONE`].
    head: u32,
    tail: u32,
    idle_since: f64,
}

/// A message, or the part of one that a lane carries.
#[derive(Clone, Copy, Debug)]
struct Part {
    op: OpId,
    bytes: f64,
    begun: f64,
    next: u32,
    /// Its lane was idle: contexts may have to be fetched.
    was_idle: bool,
}

/// A folded channel on its present way: since when, and what it had to move then.
#[derive(Clone, Copy, Debug)]
struct Running {
    flow: FlowId,
    begun: f64,
    bytes: f64,
}

/// Something that waits until it sends again what was lost.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Since when nothing has arrived.
    since: f64,
    /// How many times its timer was over.
    tries: u32,
    /// At what rate it goes on sending as long as it has something that it has not sent yet, in
    /// bytes per second.
    rate: f64,
}

#[derive(Clone, Copy, Debug)]
struct OpState {
    start: f64,
    received: f64,
    /// When its sender knows that it is over, once that is certain.
    known: f64,
    parts: u32,
}

/// How exact a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Changes of rates below this share were not passed on.
    pub precision: f64,
    /// The largest share by which rates missed the max-min allocation, at instants that were looked
    /// at while the run went on; absent where they are exact to 1e-9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// The longest time by which a finish was put forward to be one event with another, in seconds.
    pub merged_s: f64,
}

/// A run and all that is known of it afterwards.
#[derive(Debug)]
pub struct Run<'a> {
    /// What happened.
    pub outcome: Outcome,
    /// The ways of all queue pairs that were used.
    pub paths: Paths<'a>,
    /// What links carried over time.
    pub series: Series,
    /// How exact it was.
    pub accuracy: Accuracy,
    /// What the solver did for it.
    pub effort: Effort,
}

impl Run<'_> {
    /// What an analysis wants to know beside the outcome.
    pub fn traces(&self) -> Traces<'_, '_> {
        Traces { paths: &self.paths, series: &self.series }
    }
}

/// Runs transfers over a fabric and keeps what an analysis needs.
pub fn simulate<'a>(fabric: &'a Fabric, transfers: &Transfers, settings: &Settings) -> Run<'a> {
    Simulation::new(fabric, transfers, settings).run()
}

/// The same, which ends soon after `stop` is set, with what was known by then; and with a sentence
/// where it would take more than it may.
pub fn simulate_until<'a>(
    fabric: &'a Fabric,
    transfers: &Transfers,
    settings: &Settings,
    stop: Option<&AtomicBool>,
    bound: Option<Bound<'_>>,
) -> Result<Run<'a>, String> {
    estimate::allow_beginning(bound, estimate::built_memory(fabric, transfers, 250))?;
    let mut simulation = Simulation::new(fabric, transfers, settings);
    (simulation.stop, simulation.bound) = (stop, bound);
    simulation.run_within()
}

/// A run is held to its bound once for so many steps.
const HELD_EVERY: u32 = 256;

struct Simulation<'a, 'b> {
    fabric: &'a Fabric,
    transfers: &'b Transfers,
    settings: &'b Settings,
    now: f64,
    calendar: BinaryHeap<Reverse<(u64, Event)>>,
    replay: Replay,
    network: MaxMin,
    progress: Progress,
    paths: Paths<'a>,
    carriers: IdVec<FlowId, Carrier>,
    /// The solver's link for each bundle of links, or [`NONE`].
    wide: Vec<u32>,
    /// The first lane of each connection, or [`NONE`].
    lane_of: IdVec<ConnectionId, u32>,
    /// Which queue pair is next, for connections that deal messages out in turn.
    turns: IdVec<ConnectionId, u32>,
    lanes: Vec<Lane>,
    parts: Vec<Part>,
    free_parts: Vec<u32>,
    ops: IdVec<OpId, OpState>,
    /// The flows of folded channels that run.
    coupled: BTreeMap<OpId, Running>,
    /// By place of a folded channel's first edge: its flow on the present ways, or [`NONE`], so
    /// that one that runs again is not described again.
    described: Vec<u32>,
    /// What folded channels that lost their way have still to move.
    left: BTreeMap<OpId, f64>,
    background: Vec<Option<FlowId>>,
    /// Lanes and folded channels that have something to send and no way.
    stranded: Vec<Carrier>,
    /// What moves nothing, and since when.
    stalled: BTreeMap<Carrier, f64>,
    /// What waits for a timer because a fault has lost what it had sent.
    held: BTreeMap<Carrier, Held>,
    /// When whose timer is over, in bits of seconds.
    timers: BinaryHeap<Reverse<(u64, Carrier)>>,
    /// That packets were lost has been told.
    told_of_losses: bool,
    /// By connection, what it had to send: measurements that no plan has followed yet.
    known: VecDeque<Vec<u64>>,
    /// What congestion control makes of rates, where that is asked for.
    controlled: Option<control::Controlled>,
    health: Health,
    /// Some link is down.
    is_hurt: bool,
    /// What NICs have to do for their queue pairs.
    loads: Vec<NicLoad>,
    link_bytes: Vec<f64>,
    series: Series,
    lay: Lay,
    ready: Vec<OpId>,
    accuracy: Accuracy,
    told_of_windows: bool,
    /// Set from outside, it ends the run.
    stop: Option<&'b AtomicBool>,
    /// What it may take, how many steps ago somebody asked, and why it must end.
    bound: Option<Bound<'b>>,
    steps: u32,
    beyond: Option<String>,
    outcome: Outcome,
}

impl<'a, 'b> Simulation<'a, 'b> {
    fn new(fabric: &'a Fabric, transfers: &'b Transfers, settings: &'b Settings) -> Self {
        let health = capacity::health(fabric, &settings.faults, Time::ZERO);
        let routing = &settings.routing;
        let mut paths = Paths::new(fabric, transfers, routing, health.clone(), settings.seed);
        if let Some(parts) = &settings.parts {
            paths.set_parts(parts);
        }
        let is_plain = settings.faults.is_empty() && settings.background.is_empty();
        if is_plain && settings.parts.is_none() && settings.control.is_none() {
            paths.bundle();
        }
        let loads = nic_loads(fabric, transfers, routing, settings.wire.packet);
        let capacities = capacity::capacities(fabric, &health, settings, &loads, Time::ZERO);
        let mut network = MaxMin::new(&capacities);
        let precision = estimate::precision(fabric, transfers, settings);
        network.set_precision(precision);
        let (replay, ready) = Replay::start(transfers);
        let idle = OpState { start: 0.0, received: 0.0, known: 0.0, parts: 0 };
        let connections = transfers.connections().len();
        let mut simulation = Self {
            fabric,
            transfers,
            settings,
            now: 0.0,
            calendar: BinaryHeap::new(),
            replay,
            network,
            progress: Progress::default(),
            paths,
            carriers: IdVec::default(),
            wide: Vec::new(),
            lane_of: vec![NONE; connections].into(),
            turns: vec![0; connections].into(),
            lanes: Vec::new(),
            parts: Vec::new(),
            free_parts: Vec::new(),
            ops: vec![idle; transfers.ops().len()].into(),
            coupled: BTreeMap::new(),
            described: Vec::new(),
            left: BTreeMap::new(),
            background: vec![None; settings.background.len()],
            stranded: Vec::new(),
            stalled: BTreeMap::new(),
            held: BTreeMap::new(),
            timers: BinaryHeap::new(),
            told_of_losses: false,
            known: VecDeque::new(),
            controlled: settings.control.as_ref().map(|control| {
                control::Controlled::new(control, fabric.links().len(), settings.seed)
            }),
            health,
            is_hurt: false,
            loads,
            link_bytes: vec![0.0; fabric.links().len()],
            series: Series::new(settings.flow.points as usize, fabric.links().len()),
            lay: Lay::default(),
            ready: Vec::new(),
            accuracy: Accuracy { precision, ..Accuracy::default() },
            told_of_windows: false,
            stop: None,
            bound: None,
            steps: 0,
            beyond: None,
            outcome: Outcome {
                ops: vec![None; transfers.ops().len()].into(),
                ..Outcome::default()
            },
        };
        simulation.begin(ready);
        simulation
    }

    fn begin(&mut self, ready: Vec<OpId>) {
        for op in ready {
            self.schedule(0.0, Event::Ready(op));
        }
        if let Some(change) = self.settings.faults.next_change(Time::ZERO) {
            self.schedule(change.as_secs_f64(), Event::Changed);
        }
        match (self.paths.routing().interval(), self.settings.routing.demand) {
            (Some(_), KnownDemand::Measured) => self.schedule(0.0, Event::Measured),
            (Some(interval), KnownDemand::Planned) if !self.settings.faults.is_empty() => {
                self.schedule(interval.as_secs_f64(), Event::Planned);
            }
            _ => {}
        }
        for (number, background) in self.settings.background.iter().enumerate() {
            self.schedule(background.start.as_secs_f64(), Event::Background(number as u32));
            if background.end < Time::MAX {
                self.schedule(background.end.as_secs_f64(), Event::Background(number as u32));
            }
        }
    }

    fn schedule(&mut self, at: f64, event: Event) {
        // Bit patterns of floats that are not negative are ordered as the floats are.
        self.calendar.push(Reverse((at.max(0.0).to_bits(), event)));
    }

    fn run(mut self) -> Run<'a> {
        self.run_to_end();
        self.conclude()
    }

    fn run_within(mut self) -> Result<Run<'a>, String> {
        self.run_to_end();
        match self.beyond.take() {
            None => Ok(self.conclude()),
            Some(why) => Err(format!(
                "the run was ended at {:.1} of its own time, after {} events: {why}",
                time(self.now).since(Time::ZERO),
                self.outcome.counters.events
            )),
        }
    }

    /// Asks now and then whether it may go on.
    fn hold_to_bound(&mut self) {
        self.steps += 1;
        if self.steps == HELD_EVERY {
            self.steps = 0;
            self.beyond = self.bound.and_then(|bound| bound().err());
        }
    }

    fn run_to_end(&mut self) {
        let mut done = Vec::new();
        let (mut settled, mut next_look) = (0_u64, 1);
        // Background traffic alone does not keep a run going.
        while !self.replay.is_done() && !self.is_stopped() && self.outcome.gave_up.is_none() {
            let entry = self.calendar.peek().map(|Reverse((at, _))| f64::from_bits(*at));
            let next = self.progress.next().min(entry.unwrap_or(f64::INFINITY));
            if next == f64::INFINITY {
                break;
            }
            self.hold_to_bound();
            self.now = self.now.max(next);
            let until = self.until();
            self.progress.finished(until, &self.network, &mut done);
            self.note_merged(&done, until);
            for &flow in &done {
                self.flow_finished(flow);
            }
            while let Some(&Reverse((at, event))) = self.calendar.peek() {
                if until < f64::from_bits(at) || self.is_stopped() {
                    break;
                }
                self.calendar.pop();
                self.outcome.counters.events += 1;
                self.hold_to_bound();
                self.handle(event);
            }
            self.outcome.counters.events += done.len() as u64;
            self.settle();
            self.look_at_queues();
            settled += 1;
            // At times ever further apart, so that looking costs little beside the run.
            if settled == next_look && estimate::EXACT < self.accuracy.precision {
                next_look *= 4;
                let before = self.accuracy.deviation.unwrap_or(0.0);
                self.accuracy.deviation = Some(self.network.deviation().max(before));
            }
        }
    }

    /// What lies before this is now.
    fn until(&self) -> f64 {
        self.now * (1.0 + self.settings.flow.merge)
    }

    /// Brings all rates up to date.
    fn settle(&mut self) {
        self.network.settle();
        self.progress.update(self.now, &mut self.network);
        self.note_levels();
    }

    fn is_stopped(&self) -> bool {
        self.beyond.is_some() || self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Notes by how much finishes are put forward that are one event with an earlier one.
    fn note_merged(&mut self, done: &[FlowId], until: f64) {
        if 1 < done.len() && self.now < until {
            let last = done.iter().map(|flow| self.progress.finish(*flow)).fold(0.0, f64::max);
            let merged = (last.min(until) - self.now).max(0.0);
            self.accuracy.merged_s = self.accuracy.merged_s.max(merged);
        }
    }

    /// Everything that the calendar can hold, one arm for each.
    fn handle(&mut self, event: Event) {
        match event {
            Event::Changed => self.changed(),
            Event::Converged => self.converged(),
            Event::Planned => self.planned(),
            Event::Background(number) => self.background(number as usize),
            Event::Resend => self.resend(),
            Event::GiveUp => self.give_up(),
            Event::Ready(op) => self.start(op),
            Event::Measured => self.measured(),
            Event::Followed => self.followed(),
            Event::Rate(state) => self.rate_due(state),
            Event::Queue(link) => self.queue_due(link),
        }
    }

    fn start(&mut self, op: OpId) {
        let transfers = self.transfers;
        let protocol = self.settings.flow.protocol_latency.as_secs_f64();
        self.ops[op] = OpState { start: self.now, received: self.now, known: self.now, parts: 0 };
        match &transfers.ops()[op].kind {
            OpKind::Wait { span } if transfers.is_paced(op) => {
                let end = transfers.end_of_wait(op, time(self.now), *span);
                self.finish(op, end.as_secs_f64(), 0.0);
            }
            OpKind::Wait { span } => self.finish(op, self.now + span.as_secs_f64(), 0.0),
            OpKind::Send { connection, bytes }
                if *bytes == Bytes::ZERO || self.crosses_no_link(*connection) =>
            {
                self.finish(op, self.now + protocol, 0.0);
            }
            OpKind::Coupled { edges, bytes, fill }
                if *bytes == Bytes::ZERO
                    || transfers.coupled(edges).iter().all(|edge| self.crosses_no_link(*edge)) =>
            {
                self.finish(op, self.now + fill.as_secs_f64(), 0.0);
            }
            OpKind::Send { connection, bytes } => self.send(op, *connection, *bytes),
            OpKind::Together { messages } => {
                for &(connection, bytes) in transfers.messages(messages) {
                    if bytes != Bytes::ZERO && !self.crosses_no_link(connection) {
                        self.send(op, connection, bytes);
                    }
                }
                if self.ops[op].parts == 0 {
                    self.finish(op, self.now + protocol, 0.0);
                }
            }
            OpKind::Coupled { edges, bytes, .. } => match transfers.coupled(edges) {
                [connection] if self.moves_apart(*connection) => {
                    self.send_apart(op, *connection, *bytes);
                }
                _ => self.start_coupled(op),
            },
        }
    }

    /// Whether each queue pair of a connection has a rate of its own for its part of a message.
    fn moves_apart(&self, connection: ConnectionId) -> bool {
        let apart = self.settings.flow.queue_pairs == QueuePairRates::Apart;
        apart && 1 < self.paths.queue_pairs(connection)
    }

    /// Gives each queue pair its part of a folded message.
    fn send_apart(&mut self, op: OpId, connection: ConnectionId, bytes: Bytes) {
        if self.lane_of[connection] == NONE {
            self.open(connection, true);
        }
        let pairs = self.paths.queue_pairs(connection) as u32;
        self.ops[op].parts = pairs;
        let first = self.lane_of[connection];
        for lane in first..first + pairs {
            self.enqueue_message(lane, op, bytes.as_f64() / f64::from(pairs));
        }
    }

    /// Whether a connection ends where it begins, and so crosses no link.
    fn crosses_no_link(&self, connection: ConnectionId) -> bool {
        let ends = &self.transfers.connections()[connection];
        ends.from == ends.to
    }

    /// Puts a message on its connection's lanes.
    fn send(&mut self, op: OpId, connection: ConnectionId, bytes: Bytes) {
        let splits = self.settings.routing.split == QueuePairUse::Split;
        if self.lane_of[connection] == NONE {
            self.open(connection, !splits);
        }
        let first = self.lane_of[connection];
        let config = &self.settings.routing;
        let pairs = self.paths.queue_pairs(connection).max(1) as u64;
        if pairs == 1 || splits {
            self.ops[op].parts += 1;
            self.enqueue_message(first, op, bytes.as_f64());
            return;
        }
        let chunk = config.chunk.get().max(1);
        let messages = bytes.get().div_ceil(chunk);
        let used = messages.min(pairs);
        self.ops[op].parts += used as u32;
        let turn = u64::from(self.turns[connection]);
        for at in 0..used {
            // The last message is shorter; it falls on the lane of the last turn.
            let count = messages / pairs + u64::from(at < messages % pairs);
            let is_last = (messages - 1) % pairs == at;
            let short = if is_last { messages * chunk - bytes.get() } else { 0 };
            let lane = first + ((turn + at) % pairs) as u32;
            self.enqueue_message(lane, op, (count * chunk - short) as f64);
        }
        self.turns[connection] = ((turn + messages) % pairs) as u32;
    }

    /// Makes the lanes of a connection: one, or one for each of its queue pairs.
    fn open(&mut self, connection: ConnectionId, apart: bool) {
        self.lane_of[connection] = self.lanes.len() as u32;
        let pairs = self.paths.queue_pairs(connection) as u32;
        let numbers = if 1 < pairs && apart { 0..=pairs - 1 } else { NONE..=NONE };
        for number in numbers {
            let (flow, head, tail) = (None, NONE, NONE);
            self.lanes.push(Lane {
                connection,
                number,
                flow,
                delay: 0.0,
                back: 0.0,
                per_byte: 0.0,
                fetch: 0.0,
                round_trip: 0.0,
                line: f64::INFINITY,
                sent: 0.0,
                free_at: 0.0,
                head,
                tail,
                idle_since: 0.0,
            });
        }
    }

    fn enqueue_message(&mut self, lane: u32, op: OpId, bytes: f64) {
        let Lane { tail, idle_since, delay, back, .. } = self.lanes[lane as usize];
        // Until the last message is acknowledged its contexts are in use.
        let was_idle = tail == NONE && (idle_since == 0.0 || idle_since + delay + back < self.now);
        let part = Part { op, bytes, begun: self.now, next: NONE, was_idle };
        let id = match self.free_parts.pop() {
            Some(id) => {
                self.parts[id as usize] = part;
                id
            }
            None => {
                self.parts.push(part);
                self.parts.len() as u32 - 1
            }
        };
        let row = &mut self.lanes[lane as usize];
        if row.tail == NONE {
            (row.head, row.tail) = (id, id);
            self.start_lane(lane, bytes);
        } else {
            self.parts[row.tail as usize].next = id;
            row.tail = id;
        }
    }

    /// Lets a lane run that was idle.
    fn start_lane(&mut self, lane: u32, bytes: f64) {
        let Lane { connection, number, idle_since, .. } = self.lanes[lane as usize];
        if let Grain::Flowlet { gap } = self.paths.routing().grain()
            && gap.as_secs_f64() <= self.now - idle_since
            && 0.0 < idle_since
        {
            for pair in 0..self.paths.queue_pairs(connection) {
                if number == NONE || number as usize == pair {
                    self.paths.pause(connection, pair);
                }
            }
            self.lanes[lane as usize].flow = None;
        }
        if self.lanes[lane as usize].flow.is_none() {
            match self.lay_lane(lane) {
                Ok(weight) => self.define_lane(lane, weight),
                Err(no_path) => {
                    self.note_no_path(Carrier::Lane(lane), no_path);
                    return;
                }
            }
        }
        let flow = self.lanes[lane as usize].flow.expect("it has just been laid");
        if self.is_cut(flow) {
            self.lanes[lane as usize].flow = None;
            self.hold(Carrier::Lane(lane));
            return;
        }
        self.resume(flow);
        self.network.start(flow);
        self.progress.begin(flow, bytes, &self.network);
    }

    /// Writes into `lay` where a lane goes. Returns its weight: one for each queue pair.
    fn lay_lane(&mut self, lane: u32) -> Result<f64, NoPath> {
        let Lane { connection, number, head, .. } = self.lanes[lane as usize];
        let message = match head {
            NONE => Bytes::MAX,
            _ => Bytes::new(self.parts[head as usize].bytes as u64),
        };
        if number == NONE {
            let ends = &self.transfers.connections()[connection];
            self.paths.lay_all(connection, ends, message, &mut self.lay)?;
        } else {
            self.paths.lay_one(connection, number as usize, message, &mut self.lay)?;
        }
        self.punish_reordering(message);
        Ok(if number == NONE { self.paths.queue_pairs(connection).max(1) as f64 } else { 1.0 })
    }

    fn define_lane(&mut self, lane: u32, weight: f64) {
        let fetch = self.fetch_s(self.lanes[lane as usize].connection);
        let row = &mut self.lanes[lane as usize];
        let wire = &self.settings.wire;
        let ends = &self.transfers.connections()[row.connection];
        let nics = self.paths.nics(ends) as f64 * wire.nic_latency.as_secs_f64();
        let store = self.lay.per_byte * wire.packet.as_f64();
        let round_trip = 2.0 * (self.lay.delay + nics) + store;
        // Its weight is the number of its queue pairs, each of which has a window of its own.
        let cap = self.settings.flow.window.map(|window| weight * window.as_f64() / round_trip);
        let cap = self.line_cap(weight).map(|line| line.min(cap.unwrap_or(line))).or(cap);
        let flow = self.network.define(&self.lay.entries, weight, cap);
        self.carriers.push(Carrier::Lane(lane));
        self.adopt(flow, weight);
        let row = &mut self.lanes[lane as usize];
        row.flow = Some(flow);
        (row.delay, row.per_byte) = (self.lay.delay + nics, self.lay.per_byte);
        row.fetch = fetch;
        row.round_trip = 2.0 * self.lay.delay + store;
        row.line = self.lay.entries.first().map_or(f64::INFINITY, |(first, _)| {
            self.network.capacity(SolverLink::from_index(*first as usize))
        });
        // The receiving NIC acknowledges before its software knows.
        row.back = self.lay.delay - nics / 2.0;
    }

    /// What a message waits for the contexts of its queue pair, at both ends, in seconds.
    fn fetch_s(&self, connection: ConnectionId) -> f64 {
        let Connection { from, to, .. } = self.transfers.connections()[connection];
        let cost = &self.settings.wire.queue_pairs;
        let wait = |nic: usize| cost.message_s(self.loads[nic].contexts);
        [from, to].into_iter().filter_map(|node| self.fabric.nic_number(node)).map(wait).sum()
    }

    /// Gives the bundles in `lay` links of the solver, as wide as all that they stand for.
    fn add_bundles_to_solver(&mut self) {
        for at in 0..self.lay.wide.len() {
            let (place, share) = self.lay.wide[at];
            let place = place as usize;
            if self.wide.len() <= place {
                self.wide.resize(place + 1, NONE);
            }
            if self.wide[place] == NONE {
                let capacity =
                    |link: LinkId| self.network.capacity(SolverLink::from_index(link.index()));
                let capacity = self.paths.bundle_capacity(place, capacity);
                self.wide[place] = self.network.push_link(capacity);
            }
            self.lay.entries.push((self.wide[place], share));
        }
        self.lay.wide.clear();
    }

    /// A receiver that goes back n asks for what it had already sent for: spread packets overtake
    /// each other, and each that does so costs what was in flight. Bundles must have links first.
    fn punish_reordering(&mut self, message: Bytes) {
        self.add_bundles_to_solver();
        let spread = self.paths.routing().spread(message);
        if self.settings.wire.receiver == Receiver::AnyOrder || spread == Spread::One {
            return;
        }
        let Some(&(first, _)) = self.lay.entries.first() else { return };
        let line = self.network.capacity(SolverLink::from_index(first as usize));
        let efficiency = capacity::go_back_n(self.settings, self.lay.ways, self.lay.delay, line);
        for entry in &mut self.lay.entries {
            entry.1 /= efficiency;
        }
    }

    fn start_coupled(&mut self, op: OpId) {
        let OpKind::Coupled { bytes, edges, .. } = &self.transfers.ops()[op].kind else {
            unreachable!("only folded channels are started here")
        };
        let bytes = self.left.remove(&op).unwrap_or(bytes.as_f64());
        let known = self.described.get(edges.start as usize).filter(|flow| **flow != NONE);
        let known = known.map(|flow| FlowId::from_index(*flow as usize));
        if let Some(flow) = known.filter(|flow| self.network.is_idle(*flow)) {
            self.carriers[flow] = Carrier::Coupled(op);
            self.begin_coupled(op, flow, bytes);
            return;
        }
        match self.lay_coupled(op) {
            Ok(weight) => self.run_coupled(op, weight, bytes),
            Err(no_path) => {
                self.left.insert(op, bytes);
                self.note_no_path(Carrier::Coupled(op), no_path);
            }
        }
    }

    /// Lets a folded channel run where `lay` says.
    fn run_coupled(&mut self, op: OpId, weight: f64, bytes: f64) {
        let flow = self.network.define(&self.lay.entries, weight, self.line_cap(weight));
        self.carriers.push(Carrier::Coupled(op));
        self.adopt(flow, weight);
        if let OpKind::Coupled { edges, .. } = &self.transfers.ops()[op].kind {
            let place = edges.start as usize;
            if self.described.len() <= place {
                self.described.resize(place + 1, NONE);
            }
            self.described[place] = flow.index() as u32;
        }
        self.begin_coupled(op, flow, bytes);
    }

    fn begin_coupled(&mut self, op: OpId, flow: FlowId, bytes: f64) {
        if self.is_cut(flow) {
            self.left.insert(op, bytes);
            self.hold(Carrier::Coupled(op));
            return;
        }
        self.coupled.insert(op, Running { flow, begun: self.now, bytes });
        self.resume(flow);
        self.network.start(flow);
        self.progress.begin(flow, bytes, &self.network);
    }

    /// Writes into `lay` where a folded channel goes. Returns its weight.
    fn lay_coupled(&mut self, op: OpId) -> Result<f64, NoPath> {
        let transfers = self.transfers;
        let OpKind::Coupled { edges, bytes, .. } = &transfers.ops()[op].kind else {
            unreachable!("only folded channels are laid here")
        };
        self.paths.clear(&mut self.lay);
        let mut pairs = 1;
        for &connection in transfers.coupled(edges) {
            let ends = &transfers.connections()[connection];
            self.paths.add_all(connection, ends, *bytes, &mut self.lay)?;
            pairs = pairs.max(self.paths.queue_pairs(connection));
        }
        self.punish_reordering(*bytes);
        Ok(pairs as f64)
    }

    fn note_no_path(&mut self, who: Carrier, no_path: NoPath) {
        let text = no_path.describe(self.fabric);
        // One sentence for each pair is enough, however many queue pairs it has.
        if self.outcome.findings.iter().rev().take(64).all(|finding| finding.text != text) {
            self.outcome.findings.push(Finding { at: time(self.now), text });
        }
        match self.settings.resend {
            Some(_) => self.hold(who),
            None => {
                self.stranded.push(who);
                self.note_stall(who, self.now);
            }
        }
    }

    fn flow_finished(&mut self, flow: FlowId) {
        match self.carriers[flow] {
            Carrier::Lane(lane) => self.part_finished(lane, flow),
            Carrier::Coupled(op) => self.coupled_finished(op, flow),
            Carrier::Background => {}
        }
    }

    fn part_finished(&mut self, lane: u32, flow: FlowId) {
        let Lane { head, delay, back, per_byte, fetch, .. } = self.lanes[lane as usize];
        let Part { op, bytes, begun, next, was_idle } = self.parts[head as usize];
        let sent_by = self.sent_by(lane, begun, bytes);
        self.count_bytes(flow, begun, bytes);
        self.free_parts.push(head);
        let row = &mut self.lanes[lane as usize];
        row.head = next;
        if next == NONE {
            (row.tail, row.idle_since) = (NONE, self.now);
            self.rest(flow);
            self.network.stop(flow);
            self.progress.end(flow);
        } else {
            self.parts[next as usize].begun = self.now;
            let bytes = self.parts[next as usize].bytes;
            self.progress.renew(flow, bytes, self.now, &self.network);
        }
        let Settings { flow, wire, .. } = self.settings;
        let (arrival, back) = match &self.transfers.ops()[op].kind {
            // A folded message has its hand-overs with it.
            OpKind::Coupled { fill, .. } => (self.now + fill.as_secs_f64() + fetch, 0.0),
            _ => {
                let first = if was_idle { fetch } else { 0.0 };
                let last = per_byte * bytes.min(wire.packet.as_f64());
                let software = flow.protocol_latency.as_secs_f64();
                (sent_by + software + delay + first + last, back)
            }
        };
        let state = &mut self.ops[op];
        state.received = state.received.max(arrival);
        state.parts -= 1;
        if state.parts == 0 {
            let received = state.received;
            self.finish(op, received, back);
        }
    }

    /// When a message's last byte leaves: now, unless the window of its queue pairs holds it back
    /// for want of acknowledgements.
    fn sent_by(&mut self, lane: u32, begun: f64, bytes: f64) -> f64 {
        let row = &mut self.lanes[lane as usize];
        let pairs = self.paths.queue_pairs(row.connection);
        let (Some(window), true) = (self.settings.wire.window, 0 < pairs) else { return self.now };
        let share = if row.number == NONE { 1.0 / pairs as f64 } else { 1.0 };
        let (bytes, sent, line) = (bytes * share, row.sent * share, row.line * share);
        let least = window.least_s(bytes, sent, row.round_trip, line);
        row.sent += bytes / share;
        row.free_at = self.now.max(row.free_at.max(begun) + least);
        let (until, round_trip) = (row.free_at, row.round_trip);
        if 1.1 * (self.now - begun) < until - begun && !self.told_of_windows {
            self.told_of_windows = true;
            let (at, round_trip) = (time(self.now), units::Span::from_secs_f64(round_trip));
            let text = format!(
                "windows of new connections ({}) hold less than a round trip of {round_trip:.1}: \
                 each message waits for its own answers here, not for those of others",
                window.first
            );
            self.outcome.findings.push(Finding { at, text });
        }
        until
    }

    fn coupled_finished(&mut self, op: OpId, flow: FlowId) {
        let OpKind::Coupled { fill, edges, .. } = &self.transfers.ops()[op].kind else {
            unreachable!("only folded channels have coupled flows")
        };
        // Its first message waits for contexts, and all that follow it.
        let edges = self.transfers.coupled(edges).iter();
        let fetch = edges.map(|edge| self.fetch_s(*edge)).fold(0.0, f64::max);
        let Running { begun, bytes, .. } = self.coupled.remove(&op).expect("it has been running");
        self.count_bytes(flow, begun, bytes);
        self.rest(flow);
        self.network.stop(flow);
        self.progress.end(flow);
        self.finish(op, self.now + fill.as_secs_f64() + fetch, 0.0);
    }

    /// Notes what a flow has carried over the links of its way.
    fn count_bytes(&mut self, flow: FlowId, begun: f64, bytes: f64) {
        let way = self.network.path(flow).map(|(link, share)| (link.index(), share));
        for (link, share) in way.clone() {
            if self.link_bytes.len() <= link {
                self.link_bytes.resize(link + 1, 0.0);
            }
            self.link_bytes[link] += share * bytes;
        }
        self.series.add(way, (begun, self.now), bytes);
    }

    /// Records that an operation ends at `received` and that its sender knows after `back`, which
    /// is before the end where the receiver's software takes longer than the way back.
    fn finish(&mut self, op: OpId, received: f64, back: f64) {
        let start = time(self.ops[op].start);
        self.ops[op].known = received + back;
        let (received, finish) = (time(received), time(received + back.max(0.0)));
        self.outcome.ops[op] = Some(OpTimes { start, received, finish });
        self.outcome.digest = fold(self.outcome.digest, op.index() as u64, finish.as_ps());
        let mut ready = std::mem::take(&mut self.ready);
        // Both instants are known now, though they may lie ahead.
        self.replay.finish(op, &mut ready);
        for &follower in &ready {
            let happened =
                |op: OpId| Some((self.outcome.ops[op]?.received, time(self.ops[op].known)));
            let at = Replay::start_of(self.transfers, happened, follower);
            let at = at.map_or(self.now, Time::as_secs_f64);
            self.schedule(at.max(self.now), Event::Ready(follower));
        }
        ready.clear();
        self.ready = ready;
    }

    fn conclude(mut self) -> Run<'a> {
        let unfinished = self.replay.unfinished();
        if 0 < unfinished {
            let text = format!("{unfinished} operations did not finish");
            self.outcome.findings.push(Finding { at: time(self.now), text });
            self.outcome.stopped_at = self.is_stopped().then_some(time(self.now));
        }
        for (place, &link) in self.wide.iter().enumerate().filter(|(_, link)| **link != NONE) {
            let whole = self.link_bytes.get(link as usize).copied().unwrap_or(0.0);
            let share = 1.0 / self.paths.bundled(place).count() as f64;
            for member in self.paths.bundled(place) {
                self.link_bytes[member.index()] += whole * share;
                self.series.part(member.index(), link as usize, share);
            }
        }
        self.outcome.counters.looks = self.network.effort().looks;
        let use_of = |bytes: &f64| LinkUse { bytes: bytes.round() as u64, ..LinkUse::default() };
        let fabric_links = &self.link_bytes[..self.fabric.links().len()];
        let mut links: IdVec<LinkId, LinkUse> = fabric_links.iter().map(use_of).collect();
        self.paths.count(&mut links);
        self.outcome.links = links;
        Run {
            outcome: self.outcome,
            paths: self.paths,
            series: self.series,
            accuracy: self.accuracy,
            effort: self.network.effort(),
        }
    }
}

/// Seconds as an instant, to the nearest picosecond.
fn time(seconds: f64) -> Time {
    Time::from_ps((seconds * 1e12).round() as u64)
}

/// Stirs two numbers into a digest.
fn fold(digest: u64, a: u64, b: u64) -> u64 {
    let stirred = (digest ^ a).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (stirred ^ b).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
}
