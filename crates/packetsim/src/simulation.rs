//! The event loop, and the state of a run.
//!
//! All state is in [`Simulation`], split by owner. The handlers of events are in `transmit`,
//! `switching`, `sending` and `receiving`, split by where they act.

use fabric::fault::Faults;
use fabric::{Fabric, LinkId, NodeId};
use traffic::{
    ConnectionId, Counters, Finding, LinkUse, OpId, OpKind, OpTimes, Outcome, Replay, Transfers,
};
use units::room::Asked;
use units::{Bytes, Id, IdVec, Rate, Room, Span, Time};

use crate::admission::{AdmissionConfig, GrantLedger};
use crate::buffer::{MarkWhen, Switch};
use crate::by_output::ArrivalsByOutput;
use crate::calendar::{Calendar, Entry, Event};
use crate::cc::{CcConfig, Circumstances, Needs};
use crate::clocks::Clocks;
use crate::credits::Credits;
use crate::entropy::Entropy;
use crate::exchange::Part;
use crate::faults::LinkFault;
use crate::ids::{Maybe, PairId, Raw, SenderId, SwitchId, VoqId};
use crate::light_acks::LightAcks;
use crate::limits::{AGE, deal, pieces};
use crate::measure::Recorder;
use crate::nic::{AcksWhilePaused, Sender};
use crate::packet::{Class, Clock, PATH_END, PURPOSES, Packet, Purpose, STAMPED, Sizes, Waiting};
use crate::pair::{Inbox, Message, Pair};
use crate::paths::Network;
use crate::planes::Planes;
use crate::port::{LaneCount, Port};
use crate::repetition::Repetition;
use crate::ring::Slab;
use crate::scheduled::Schedule;
use crate::sending::{GAVE_UP, MOST_REPORTED};
use crate::settings::Settings;
use crate::stamps::Stamps;
use crate::stations::Stations;
use crate::steady::Steady;
use crate::switching::{LanePause, Marker, PauseLog};

/// Rare events, kept in a table; the calendar has their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RareEvent {
    /// A pause that still holds is to be renewed.
    Renew { link: LinkId, class: Class },
    /// A pause may have run out.
    Expire { link: LinkId, class: Class },
    /// A queue may have been paused for too long.
    Watchdog { link: LinkId, class: Class },
    /// Faults begin or end.
    FaultChange,
    /// Routes follow them.
    Reroute,
    /// A sample is taken.
    Sample,
    /// A host has taken a packet from its NIC.
    HostRead { node: NodeId },
    /// The receiver's software sees a message.
    MessageRead { op: OpId },
    /// A message is handed on to its queue pairs.
    HandOn { op: OpId },
    /// A virtual output queue's request reaches the port that it waits for.
    CreditAsked { voq: VoqId, bytes: u64 },
    /// A port may grant credit again.
    CreditDue { port: LinkId },
    /// Credit reaches a virtual output queue.
    CreditArrived { voq: VoqId, bytes: u64 },
}

/// A host that takes data over PCIe.
#[derive(Debug)]
pub(crate) struct Host {
    /// The rate of its NIC's link.
    pub line: Rate,
    pub rate: Rate,
    pub free_at: u64,
    pub held: u64,
    pub pausing: bool,
    pub queue: std::collections::VecDeque<Packet>,
}

/// Settings as the hot loop wants them. Times are picoseconds; bit `c` of a mask is class `c`.
#[derive(Debug)]
pub(crate) struct Rules {
    pub needs: Needs,
    pub lossless: u8,
    pub lanes: usize,
    /// A pause this long lets a flow choose its path again; never, with most policies.
    pub flowlet_gap: u64,
    pub class_in_switch: [Class; PURPOSES],
    pub mark_when: MarkWhen,
    pub control_share: u32,
    pub xon_below: u64,
    pub pause_quanta: u32,
    pub response_quanta: u32,
    pub watchdog: u64,
    pub acks_hold: AcksWhilePaused,
    pub ack_every: u32,
    pub timeout: u64,
    pub goes_back: bool,
    pub trims: bool,
    pub admits: bool,
    /// The receiver asks for what it misses, and acknowledges nothing.
    pub reads: bool,
    /// Nothing is acknowledged, and nothing is sent again.
    pub unreliable: bool,
    /// A mark comes back in a packet of its own, for want of an acknowledgement.
    pub echo_is_notice: bool,
    pub admission: AdmissionConfig,
    pub counts_granted: bool,
    /// Packets that a queue pair may send before it has been granted any.
    pub unasked: u32,
    pub slow_hosts: bool,
    /// Acknowledgements take no time of the links.
    pub light_acks: bool,
    pub header_bytes: u64,
}

impl Rules {
    /// Whether an operation is over when its message has arrived: no acknowledgement says so.
    pub(crate) fn ends_at_arrival(&self) -> bool {
        self.reads || self.unreliable
    }

    /// The classes of data whose senders can be paused.
    pub(crate) fn lossless_classes(&self) -> impl Iterator<Item = Class> + use<> {
        let lossless = self.lossless;
        Class::lanes().filter(move |class| class.is_in(lossless))
    }
}

/// How far the operations are.
#[derive(Debug)]
pub(crate) struct Operations {
    pub replay: Replay,
    /// Those that may start.
    pub ready: Vec<OpId>,
    pub started_at: Vec<u64>,
    pub received_at: Vec<u64>,
    /// Messages of each that have not been acknowledged, and that have not arrived.
    pub parts_left: Vec<u32>,
    pub parts_missing: Vec<u32>,
    /// Whose turn it is among the queue pairs of each connection.
    pub turns: Vec<u16>,
    /// When each link of the scale-up network is free.
    pub serial_free: Vec<u64>,
    pub outcome: IdVec<OpId, Option<OpTimes>>,
    /// Operations whose end, or whose messages, are in the calendar.
    pub pending: usize,
}

impl Operations {
    /// None has started.
    pub(crate) fn new(transfers: &Transfers, links: usize) -> Self {
        let (replay, ready) = Replay::start(transfers);
        let ops = transfers.ops().len();
        Self {
            replay,
            ready,
            started_at: vec![0; ops],
            received_at: vec![0; ops],
            parts_left: vec![0; ops],
            parts_missing: vec![0; ops],
            turns: vec![0; transfers.connections().len()],
            serial_free: vec![0; links],
            outcome: (0..ops).map(|_| None).collect(),
            pending: 0,
        }
    }
}

/// What became of data packets, beyond what the outcome has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Arrived for the first time.
    pub delivered_data: u64,
    /// Arrived again.
    pub duplicate_data: u64,
    /// Thrown away by a receiver that takes packets only in order.
    pub discarded_data: u64,
    /// Lost on the way.
    pub dropped_data: u64,
    /// Arrived before one that was sent earlier.
    pub reordered: u64,
    /// Queue pairs that gave up.
    pub broken: u32,
    /// Ways that there are not, even when all is well.
    pub pathless: u32,
}

/// A run, by owner: a handler's signature and the parts that it names say what it touches.
#[derive(Debug)]
pub(crate) struct Simulation<'a> {
    /// What is to be run, and by which rules. Nothing changes it.
    pub input: Input<'a>,
    /// Links and switches, and the packets in them.
    pub net: Net,
    /// NICs, queue pairs and operations: what is at the ends of the network.
    pub ends: Ends,
    /// The present instant, and pending events.
    pub time: Timeline,
    /// Counters and findings; nothing in the run depends on them.
    pub accounts: Accounts,
    /// The search for a period to skip.
    pub repetition: Repetition,
    /// The search for steady rates.
    pub steady: Steady,
    /// The part of the network that it handles.
    pub part: Part,
}

/// When the departures of a port are applied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Departures {
    /// When the port is read, each at its own time; as events only where one can act on another
    /// port at once.
    WhenRead,
    /// Each as an event, in the order in which transmissions began (whole nanoseconds, as ns-3).
    Events,
}

impl Departures {
    /// Whether each is an event, whatever the switch.
    #[inline]
    pub(crate) fn are_events(self) -> bool {
        self == Self::Events
    }
}

/// What is to be run, and by which rules.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    pub fabric: &'a Fabric,
    pub transfers: &'a Transfers,
    pub settings: &'a Settings,
    pub faults: &'a Faults,
    pub clock: Clock,
    pub sizes: Sizes,
    pub rules: Rules,
    /// Its state is larger than the caches near the core: memory is read ahead.
    pub is_large: bool,
    /// How packets leave.
    pub departures: Departures,
    /// Some switches end queue pairs.
    pub aggregates: bool,
}

/// Links and switches, and the packets in them.
#[derive(Debug)]
pub(crate) struct Net {
    pub ports: IdVec<LinkId, Port>,
    /// Packets being sent or on a wire.
    pub wires: Slab<Packet>,
    /// Packets that wait.
    pub queued: Slab<Waiting>,
    pub switches: IdVec<SwitchId, Switch>,
    pub pauses: IdVec<LinkId, PauseLog>,
    /// The lanes of each link, link by link.
    pub lane_pauses: Vec<LanePause>,
    /// What the lanes of each link did.
    pub lane_counts: Vec<LaneCount>,
    pub credits: Credits,
    pub schedule: Schedule,
    /// What is wrong with each link; empty without faults.
    pub troubles: IdVec<LinkId, LinkFault>,
    /// One stream of dice for each link, where links damage packets.
    pub damage: IdVec<LinkId, units::Random>,
    pub marker: Marker,
    pub stamps: Stamps,
    /// The links of all paths, with an end behind each.
    pub paths: Vec<u32>,
    pub network: Network,
    /// The links of all paths, one for each queue pair that crosses them.
    pub routed: Vec<LinkId>,
    /// The longest delay of a link on a path, with the latency of its switch.
    pub longest: u64,
    /// While a switch forwards a batch: all events elsewhere are known until then.
    pub known_until: u64,
    /// The departures of another switch are being applied.
    pub in_far_end: bool,
    /// The arrivals of a batch, in order of time, or by output.
    pub incoming: Vec<u64>,
    pub arrivals: ArrivalsByOutput,
    /// By input of that switch: until when its neighbour's departures are known.
    pub inputs_known_until: Vec<u64>,
    /// The outputs of a switch below its thresholds do not depend on each other.
    pub outputs_are_independent: bool,
    /// The links among which a packet's next one is chosen.
    pub candidates: Vec<fabric::LinkId>,
    /// Links whose wire was empty before that switch sent a packet over them.
    pub newly_busy: Vec<LinkId>,
}

/// What is at the ends of the network: NICs, queue pairs, operations.
#[derive(Debug)]
pub(crate) struct Ends {
    pub pairs: IdVec<PairId, Pair>,
    pub inboxes: IdVec<PairId, Inbox>,
    /// Empty unless acknowledgements take no links.
    pub light_acks: IdVec<PairId, LightAcks>,
    pub messages: Vec<Message>,
    pub senders: IdVec<SenderId, Sender>,
    pub sender_of_port: IdVec<LinkId, Maybe<SenderId>>,
    /// By node: what a message that finds its queue pair idle waits for its context.
    pub fetches: Vec<u64>,
    pub grant_ledgers: Vec<GrantLedger<PairId>>,
    pub hosts: Vec<Host>,
    pub entropy: Entropy,
    pub planes: Planes,
    pub operations: Operations,
}

/// The present instant, and pending events.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The present instant, and the ticket of the present event.
    pub now: u64,
    pub ticket: u32,
    pub calendar: Calendar,
    pub stations: Stations,
    pub clocks: Clocks,
    pub rare_events: Vec<RareEvent>,
    pub free_rare_events: Vec<u32>,
    /// No node runs ahead of this: the next change by a fault, sample or snapshot.
    pub barrier: u64,
    pub change_at: u64,
    /// When the routes will follow what has changed.
    pub reroutes: std::collections::VecDeque<u64>,
    pub sample_at: u64,
    /// When the last operation is finished everywhere; never, as long as that is not known.
    pub end_at: u64,
    /// All arrivals from other parts of the network before then are known; never, where there are
    /// no other parts.
    pub window_end: u64,
}

/// Counters and findings.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pub tally: Tally,
    pub counters: Counters,
    pub findings: Vec<Finding>,
    pub dropped_lossless: Vec<fabric::NodeId>,
    /// Ports that were reported to be in a deadlock, and to cause a storm.
    pub reported_deadlocks: Vec<u32>,
    pub reported_storms: Vec<LinkId>,
    pub recorder: Option<Recorder>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// All operations are over.
    Done,
    /// Nothing is left to happen, but operations are.
    Stuck,
    /// The user stopped it.
    Stopped,
    /// It passed a limit, which this is the name of.
    Limit(&'static str),
    /// No period was found in it.
    NoPeriod,
}

impl Simulation<'_> {
    /// Runs to the end.
    pub(crate) fn run(&mut self, watch: &mut Watch<'_>) -> Outcome {
        let end = self.run_to_end(watch);
        watch.jumps = self.repetition.jumps + self.steady.jumps;
        let result = self.finish_part();
        self.finish_run(end, result)
    }

    /// The same, unless no period is found with so many snapshots.
    pub(crate) fn run_if_periodic(
        &mut self,
        max_comparisons: u32,
        watch: &mut Watch<'_>,
    ) -> Option<Outcome> {
        self.repetition.max_comparisons = max_comparisons;
        let end = self.run_to_end(watch);
        if end == End::NoPeriod {
            return None;
        }
        watch.jumps = self.repetition.jumps + self.steady.jumps;
        let result = self.finish_part();
        Some(self.finish_run(end, result))
    }

    fn run_to_end(&mut self, watch: &mut Watch<'_>) -> End {
        if !self.input.faults.is_empty() {
            self.apply_faults();
        }
        if self.accounts.recorder.is_some() {
            // A recording needs every packet.
            self.repetition = Repetition::off();
            self.steady = Steady::off();
            self.sample();
        }
        self.start_ready_operations();
        let end = self.run_events(watch);
        if self.ends.operations.replay.is_done() { End::Done } else { end }
    }

    /// Handles what happens before an instant.
    pub(crate) fn run_until(&mut self, end: u64) {
        while self.time.calendar.peek().is_some_and(|next| next < end) {
            self.read_for_nics();
            let Some(entry) = self.time.calendar.next() else { return };
            self.handle(entry);
        }
    }

    fn run_events(&mut self, watch: &mut Watch<'_>) -> End {
        let limit = self.input.settings.limits.time.as_ps();
        let mut next_check = CHECK_EVERY.min(self.input.settings.limits.events);
        // Data packets that have crossed links, and since when no more have.
        let mut moved = (0, 0);
        let (mut broken, mut old_at) = (0, AGE);
        loop {
            let next = self.time.calendar.peek();
            if self.ends.operations.replay.is_done() && self.is_over(next) {
                return End::Done;
            }
            let Some(next) = next else { return End::Stuck };
            if self.time.now + LONG < next && 0 < self.accounts.tally.broken && self.all_gave_up() {
                return End::Stuck;
            }
            if limit < self.steady.real_ps(next) {
                self.time.now = limit;
                return End::Limit("time");
            }
            if self.repetition.compare_at <= next {
                self.compare_snapshots();
                if self.repetition.has_given_up() {
                    return End::NoPeriod;
                }
                next_check = next_check.max(self.accounts.counters.events);
                continue;
            }
            if self.steady.check_at <= next {
                self.check_steady_state(next);
                continue;
            }
            self.read_for_nics();
            let Some(entry) = self.time.calendar.next() else { return End::Stuck };
            self.handle(entry);
            if old_at <= self.time.now {
                old_at = self.time.now + AGE / 2;
                self.report_old_packets();
            }
            if broken != self.accounts.tally.broken {
                broken = self.accounts.tally.broken;
                if self.all_gave_up() {
                    return End::Stuck;
                }
            }
            if next_check <= self.accounts.counters.events {
                next_check += CHECK_EVERY;
                if watch.wants_stop(self.progress()) {
                    return End::Stopped;
                }
                if moved.0 != self.accounts.counters.packet_hops {
                    moved = (self.accounts.counters.packet_hops, self.time.now);
                } else if moved.1 + self.input.rules.timeout < self.time.now
                    && self.cannot_progress()
                {
                    return End::Stuck;
                }
                if self.input.settings.limits.events <= self.accounts.counters.events {
                    return End::Limit("events");
                }
            }
        }
    }

    /// Whether a run whose operations are all known to be over has come to the end of the last:
    /// until the receiver's software has it, what happens in the network still happens.
    fn is_over(&mut self, next: Option<u64>) -> bool {
        if self.time.end_at == u64::MAX {
            let finishes = self.ends.operations.outcome.iter().flatten();
            let last = finishes.map(|times| times.finish.as_ps()).max().unwrap_or(0);
            self.time.end_at = last.max(self.time.now);
            self.set_barrier();
        }
        next.is_none_or(|next| self.time.end_at < next)
    }

    /// Whether no packet can move any more, although pauses are renewed for ever: every sender with
    /// data has given up, or is held by a deadlock that no fault will break.
    fn cannot_progress(&self) -> bool {
        self.all_gave_up() || (self.time.change_at == u64::MAX && self.is_deadlocked_for_ever())
    }

    /// Whether no sender has data left or will have: those with data have given up.
    pub(crate) fn all_gave_up(&self) -> bool {
        let tries = |pair: &Pair| !pair.broken && pair.una != pair.end;
        self.ends.operations.pending == 0 && !self.ends.pairs.iter().any(tries)
    }

    fn progress(&self) -> Progress {
        Progress {
            at: self.steady.real_time(Time::from_ps(self.time.now)),
            events: self.accounts.counters.events,
            operations_left: self.ends.operations.replay.unfinished(),
            packets: self.accounts.counters.packets,
            expected_events: 0,
        }
    }

    /// Handles an event: one arm for each kind.
    #[inline]
    pub(crate) fn handle(&mut self, entry: Entry) {
        debug_assert!(self.time.now <= entry.at, "time goes on");
        self.time.now = entry.at;
        self.time.ticket = entry.ticket;
        self.accounts.counters.events += 1;
        match entry.event() {
            Event::PacketArrived(id) => self.packet_arrived(id),
            Event::TransmitterFreed(id) => self.transmitter_freed(id),
            Event::SenderWoken(id) => self.sender_woken(id),
            Event::ControlTimer(id) => self.control_timer_expired(id),
            Event::Timeout(id) => self.timeout_expired(id),
            Event::OperationEnded(id) => self.operation_ended(id),
            Event::Rare(id) => self.rare_event_due(id),
            Event::PauseFrame(id) => self.pause_frame_arrived(id),
            Event::SwitchBatch(id) => self.run_switch_batch(id),
            Event::StationAhead(id) => self.run_station_ahead(id),
            Event::AckArrived(id) => self.light_ack_arrived(id),
        }
    }

    /// Schedules a rare event.
    pub(crate) fn schedule_rare(&mut self, at: u64, what: RareEvent) {
        let number = match self.time.free_rare_events.pop() {
            Some(number) => {
                self.time.rare_events[number as usize] = what;
                number
            }
            None => {
                self.time.rare_events.push(what);
                self.time.rare_events.len() as u32 - 1
            }
        };
        let ticket = match what {
            // A sample comes last, so that it does not change the order of the others.
            RareEvent::Sample => u32::MAX,
            _ => self.time.calendar.ticket(),
        };
        self.schedule(at, ticket, Event::Rare(number));
    }

    fn rare_event_due(&mut self, number: u32) {
        self.time.free_rare_events.push(number);
        match self.time.rare_events[number as usize] {
            RareEvent::Renew { link, class } => self.renew_pause(link, class),
            RareEvent::Expire { link, class } => self.expire_pause(link, class),
            RareEvent::Watchdog { link, class } => self.watchdog_expired(link, class),
            RareEvent::FaultChange => self.apply_faults(),
            RareEvent::Reroute => self.reroute(),
            RareEvent::Sample => self.sample(),
            RareEvent::HostRead { node } => self.host_read_packet(node),
            RareEvent::MessageRead { op } => {
                self.ends.operations.pending -= 1;
                self.message_read(op);
            }
            RareEvent::HandOn { op } => {
                self.ends.operations.pending -= 1;
                self.post_parts(op);
            }
            RareEvent::CreditAsked { voq, bytes } => self.credit_asked(voq, bytes),
            RareEvent::CreditDue { port } => self.credit_is_due(port),
            RareEvent::CreditArrived { voq, bytes } => self.credit_arrived(voq, bytes),
        }
    }

    /// Starts every operation that may.
    pub(crate) fn start_ready_operations(&mut self) {
        while !self.ends.operations.ready.is_empty() {
            let mut ready = std::mem::take(&mut self.ends.operations.ready);
            for op in ready.drain(..) {
                self.start_operation(op);
            }
            if self.ends.operations.ready.is_empty() {
                self.ends.operations.ready = ready;
            }
        }
    }

    fn start_operation(&mut self, op: OpId) {
        if !self.part.starts(op) {
            return;
        }
        self.ends.operations.started_at[op.index()] = self.time.now;
        self.log_start(op);
        match self.input.transfers.ops()[op].kind {
            OpKind::Wait { span } => {
                let begin = self.start_of_wait(op);
                self.ends.operations.started_at[op.index()] = begin;
                let transfers = self.input.transfers;
                self.schedule_end(
                    op,
                    transfers.end_of_wait(op, Time::from_ps(begin), span).as_ps(),
                );
            }
            OpKind::Send { connection, bytes } => {
                if self.net.network.first_pair[connection.index()].is_none() {
                    self.cross_scale_up_link(op, connection, bytes);
                    return;
                }
                let latency = self.send_latency(op);
                if latency == 0 && !self.input.departures.are_events() {
                    self.post_parts(op);
                } else {
                    self.schedule_end(op, self.time.now + latency);
                }
            }
            OpKind::Coupled { .. } | OpKind::Together { .. } => {
                panic!("the packet engine moves packets: coupled operations must be written out")
            }
        }
    }

    fn schedule_end(&mut self, op: OpId, at: u64) {
        self.ends.operations.pending += 1;
        self.note_global_start(op, at);
        let ticket = self.time.calendar.ticket();
        self.schedule(at, ticket, Event::OperationEnded(op));
    }

    /// Handles [`Event::OperationEnded`]: a wait or a scale-up transfer is over or at its next
    /// link, or a message has passed through the NIC's doorbell.
    fn operation_ended(&mut self, op: OpId) {
        self.ends.operations.pending -= 1;
        self.drop_global_start(op);
        match self.input.transfers.ops()[op].kind {
            OpKind::Send { connection, .. }
                if self.net.network.first_pair[connection.index()].is_some() =>
            {
                if self.input.departures.are_events() {
                    self.ends.operations.pending += 1;
                    self.schedule_rare(self.time.now, RareEvent::HandOn { op });
                } else {
                    self.post_parts(op);
                }
            }
            OpKind::Send { connection, bytes } if self.has_link_ahead(op, connection) => {
                self.cross_scale_up_link(op, connection, bytes);
            }
            _ => {
                self.ends.operations.received_at[op.index()] = self.time.now;
                self.operation_received(op);
                self.operation_finished(op);
            }
        }
    }

    /// Cuts an operation over the queue pairs of its connection and hands the parts to them.
    fn post_parts(&mut self, op: OpId) {
        use fabric::routing::QueuePairUse;
        let OpKind::Send { connection, bytes } = self.input.transfers.ops()[op].kind else {
            unreachable!("only messages are posted")
        };
        let connection = connection.index();
        let first = self.net.network.first_pair[connection].known();
        let count = u64::from(self.net.network.pairs_of[connection]);
        let bytes = bytes.get();
        if count == 1 {
            self.set_part_count(op, 1);
            self.post_message(first, op, bytes, self.time.now);
            return;
        }
        let turn = u64::from(self.ends.operations.turns[connection]);
        let (parts, next) = deal(&self.input.settings.routing, bytes, count, turn);
        self.ends.operations.turns[connection] = next as u16;
        let used = pieces(self.input.settings, bytes, count).0.min(count);
        self.set_part_count(op, used as u32);
        // Whoever splits a message posts every part of it.
        let splits = self.input.settings.routing.split == QueuePairUse::Split;
        let post = if splits { self.input.settings.nic.qp_post.as_ps() } else { 0 };
        let sender = self.ends.sender_of_port[self.ends.pairs[first].port].known();
        let begin = self.ends.senders[sender].posting_until.max(self.time.now);
        if splits {
            self.ends.senders[sender].posting_until = begin + (used - 1) * post;
        }
        for (part, (pair, size)) in (0..).zip(parts) {
            let pair = PairId::from_index(first.index() + pair as usize);
            self.post_message(pair, op, size, begin + part * post);
        }
    }

    pub(crate) fn set_part_count(&mut self, op: OpId, parts: u32) {
        self.ends.operations.parts_left[op.index()] = parts;
        self.ends.operations.parts_missing[op.index()] = parts;
    }

    /// One part of an operation has arrived in full.
    pub(crate) fn part_arrived(&mut self, op: OpId) {
        let at = self.time.now + self.receive_latency(op);
        self.part.note_arrival(op, at);
        self.ends.operations.received_at[op.index()] = at;
        let missing = &mut self.ends.operations.parts_missing[op.index()];
        *missing -= 1;
        if *missing == 0 {
            if at == self.time.now {
                self.message_read(op);
            } else {
                self.ends.operations.pending += 1;
                self.schedule_rare(at, RareEvent::MessageRead { op });
            }
        }
    }

    /// The receiver's software has a message. A read ends with that: no acknowledgement follows.
    fn message_read(&mut self, op: OpId) {
        self.operation_received(op);
        if self.input.rules.ends_at_arrival() {
            self.operation_finished(op);
        }
    }

    /// An operation is complete at its receiver: what the receiver forwards may start.
    fn operation_received(&mut self, op: OpId) {
        self.ends.operations.replay.arrive(op, &mut self.ends.operations.ready);
        self.log_completion(op, false);
        self.start_ready_operations();
    }

    /// One part of an operation has been acknowledged.
    pub(crate) fn part_acknowledged(&mut self, op: OpId) {
        let left = &mut self.ends.operations.parts_left[op.index()];
        *left -= 1;
        if *left == 0 && !self.input.rules.ends_at_arrival() {
            self.operation_finished(op);
        }
    }

    /// An operation is complete at the end that started it: its sender, or the receiver that read.
    fn operation_finished(&mut self, op: OpId) {
        let at = op.index();
        let received = Time::from_ps(self.ends.operations.received_at[at]);
        let finish = Time::from_ps(self.time.now).max(received);
        let start = Time::from_ps(self.ends.operations.started_at[at]);
        self.ends.operations.outcome[op] = Some(OpTimes { start, received, finish });
        self.part.note_end(op);
        self.ends.operations.replay.know(op, &mut self.ends.operations.ready);
        self.log_completion(op, true);
        self.start_ready_operations();
    }

    /// The links of a connection's way over the scale-up network.
    fn scale_up_links(&self, connection: ConnectionId) -> impl Iterator<Item = LinkId> {
        let place = self.net.network.first_serial[connection.index()] as usize;
        let way = self.net.paths[place..].iter().take_while(|link| **link & PATH_END == 0);
        way.map(|link| LinkId::of(*link))
    }

    /// Whether a message has a link of the scale-up network still to cross.
    fn has_link_ahead(&self, op: OpId, connection: ConnectionId) -> bool {
        let crossed = self.ends.operations.parts_missing[op.index()] as usize;
        crossed < self.scale_up_links(connection).count()
    }

    /// Puts a message on the next link of its way over the scale-up network. A link carries whole
    /// messages in the order in which they come; a message begins on a link when its first bytes
    /// are there, and no link waits for one that is busy further on. How many links it has begun
    /// to cross is counted where other messages count their parts.
    fn cross_scale_up_link(&mut self, op: OpId, connection: ConnectionId, bytes: Bytes) {
        let crossed = self.ends.operations.parts_missing[op.index()] as usize;
        let way: Vec<LinkId> = self.scale_up_links(connection).collect();
        let Some(&link) = way.get(crossed) else { return self.schedule_end(op, self.time.now) };
        let efficiency = self.input.settings.scale_up_efficiency.unwrap_or(1.0);
        let rates = way[..=crossed].iter().map(|link| self.input.fabric.class(*link).rate);
        let rate = rates.min().expect("the link's own").scaled(efficiency);
        let takes = rate.time_to_send(bytes).as_ps();
        let operations = &mut self.ends.operations;
        let begin = self.time.now.max(operations.serial_free[link.index()]);
        operations.serial_free[link.index()] = begin + takes;
        operations.parts_missing[op.index()] += 1;
        self.net.ports[link].bytes += bytes.get();
        let delay = self.input.fabric.class(link).delay.as_ps();
        let is_last = crossed + 1 == way.len();
        self.schedule_end(op, begin + delay + if is_last { takes } else { 0 });
    }

    /// A queue pair's congestion control.
    pub(crate) fn congestion(&self, pair: PairId) -> &CcConfig {
        let Input { fabric, settings, .. } = self.input;
        settings.congestion_from(fabric, self.ends.pairs[pair].port)
    }

    /// What a queue pair's congestion control knows when it begins.
    pub(crate) fn circumstances(&self, pair: PairId) -> Circumstances {
        crate::build::circumstances(self, pair)
    }

    /// Packets carry the time at which they were sent in 32 bits of nanoseconds: of one that is
    /// in flight for longer, the round trip is measured too short.
    pub(crate) fn report_old_packets(&mut self) {
        let now = (self.time.now / 1_000) as u32;
        let is_old = |packet: &Packet| {
            let age = now.wrapping_sub(packet.sent);
            packet.flags & STAMPED == 0 && AGE / 1_000 <= u64::from(age)
        };
        let classes = self.net.ports.iter().flat_map(|port| port.classes.iter());
        let mut queued = classes.flat_map(|class| self.net.queued.iter(class.queue));
        let found = queued.any(|waiting| is_old(&waiting.packet))
            || self.net.schedule.packets(&self.net.queued).any(is_old);
        drop(queued);
        if found {
            let [age, most] = [AGE, 2 * AGE].map(Span::from_ps);
            self.report_finding(format!(
                "packets have waited for more than {age:.1}: round trips above {most:.1} are \
                 measured too short"
            ));
        }
    }

    /// Data packets that are still on their way. Every hop stamp belongs to a packet.
    fn data_under_way(&self) -> u64 {
        let packets = || {
            let wires = self.net.ports.iter().flat_map(|port| self.net.wires.iter(port.wire));
            let classes = self.net.ports.iter().flat_map(|port| port.classes.iter());
            let queued = classes.flat_map(|class| self.net.queued.iter(class.queue));
            let held = self.ends.hosts.iter().flat_map(|host| host.queue.iter());
            let acks = self.ends.light_acks.iter().flat_map(LightAcks::packets);
            let scheduled = self.net.schedule.packets(&self.net.queued);
            let queued = queued.map(|waiting| &waiting.packet).chain(scheduled);
            wires.chain(queued).chain(held).chain(acks)
        };
        let stamped = packets().filter(|packet| packet.flags & STAMPED != 0).count();
        assert_eq!(self.net.stamps.in_use(), stamped, "lists of hop stamps, and stamped packets");
        packets().filter(|packet| packet.purpose == Purpose::Data).count() as u64
    }

    /// Ends a run, or its part of one: applies due departures, and sums up.
    pub(crate) fn finish_part(&mut self) -> PartResult {
        // A station that ran ahead may have finished last.
        let finishes =
            self.ends.operations.outcome.iter().flatten().map(|times| times.finish.as_ps());
        self.time.now = finishes.fold(self.time.now, u64::max);
        if !self.part.is_whole() && self.time.end_at != u64::MAX {
            self.time.now = self.time.end_at;
        }
        for link in self.net.ports.ids() {
            self.apply_departures(link);
        }
        self.sample_last();
        let under_way = self.data_under_way();
        self.account_for_light_acks();
        self.account_for_steady_state();
        let mut links = IdVec::with_capacity(self.net.ports.len());
        let mut paused_in_all = 0;
        for (link, port) in self.net.ports.enumerate() {
            let paused = (0..self.input.rules.lanes).map(|lane| self.paused_for(link, lane)).sum();
            paused_in_all += paused;
            links.push(LinkUse {
                bytes: port.bytes,
                flows: 0,
                peak_queue: Bytes::new(u64::from(port.peak)),
                paused: Span::from_ps(paused),
            });
        }
        self.accounts.counters.paused = Span::from_ps(paused_in_all);
        let mut ops = std::mem::take(&mut self.ends.operations.outcome);
        let real = |at| self.steady.real_time(at);
        for OpTimes { start, received, finish } in ops.iter_mut().flatten() {
            [*start, *received, *finish] = [*start, *received, *finish].map(real);
        }
        self.time.now = self.steady.real_ps(self.time.now);
        // From here on times are real ones.
        self.steady = Steady::off();
        PartResult {
            now: self.time.now,
            ops,
            received_at: std::mem::take(&mut self.ends.operations.received_at),
            links,
            counters: self.accounts.counters,
            tally: self.accounts.tally,
            under_way,
            is_quiet: self.part.is_whole() || self.is_quiet_since(self.time.now),
        }
    }

    /// Writes the outcome of a run from what it came to: checks the balance and says why it ended.
    pub(crate) fn finish_run(&mut self, end: End, result: PartResult) -> Outcome {
        let PartResult { now, ops, mut links, counters, tally, under_way, .. } = result;
        (self.time.now, self.accounts.tally) = (now, tally);
        let arrived = tally.delivered_data + tally.duplicate_data + tally.discarded_data;
        let accounted = arrived + tally.dropped_data + under_way;
        assert_eq!(counters.packets, accounted, "packets sent, and packets accounted for");
        let left = match ops.iter().filter(|times| times.is_none()).count() {
            1 => "1 operation".to_owned(),
            left => format!("{left} operations"),
        };
        if end != End::Done && self.part.is_whole() {
            self.report_deadlocks();
        }
        self.report_lost_messages();
        if MOST_REPORTED < tally.broken {
            let more = tally.broken - MOST_REPORTED;
            self.report_finding(format!("{more} more queue pairs gave up"));
        }
        if MOST_REPORTED < tally.pathless {
            let more = tally.pathless - MOST_REPORTED;
            self.report_finding(format!("there are no paths between {more} more pairs of ends"));
        }
        match end {
            End::Done | End::NoPeriod => {}
            End::Stuck => {
                self.report_finding(format!("nothing moves any more: {left} did not finish"))
            }
            End::Stopped => self.report_finding(format!("stopped: {left} did not finish")),
            End::Limit(which) => self.report_finding(format!(
                "stopped at `network.limits.{which}`: {left} did not finish"
            )),
        }
        for &link in &self.net.routed {
            links[link].flows += 1;
        }
        let is_lost = |finding: &&Finding| finding.text.contains(GAVE_UP);
        let outcome = Outcome {
            ops,
            links,
            counters,
            gave_up: self.accounts.findings.iter().find(is_lost).cloned(),
            stopped_at: (end != End::Done).then_some(Time::from_ps(self.time.now)),
            findings: std::mem::take(&mut self.accounts.findings),
            digest: 0,
        };
        Outcome { digest: digest(&outcome), ..outcome }
    }
}

/// The result of a run, or of one part of it.
#[derive(Clone, Debug)]
pub(crate) struct PartResult {
    /// When it ended.
    pub now: u64,
    pub ops: IdVec<OpId, Option<OpTimes>>,
    pub received_at: Vec<u64>,
    /// What each link did, less how many queue pairs were routed over it.
    pub links: IdVec<LinkId, LinkUse>,
    pub counters: Counters,
    pub tally: Tally,
    /// Data packets that are still on their way.
    pub under_way: u64,
    /// Nothing is in flight.
    pub is_quiet: bool,
}

/// Mixes a number into a digest.
fn fold(digest: u64, word: u64) -> u64 {
    (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// A fold of all that a run answers but for how many events it took: completions, bytes, deepest
/// queues, pauses, and what became of packets.
fn digest(outcome: &Outcome) -> u64 {
    let ops = outcome.ops.iter().flat_map(|op| {
        let times = op.map(|OpTimes { start, received, finish }| [start, received, finish]);
        times.map_or([u64::MAX; 3], |times| times.map(Time::as_ps))
    });
    // Links that nobody uses are no result.
    let links = outcome.links.iter().filter(|link| 0 < link.bytes).flat_map(|link| {
        [link.bytes, link.peak_queue.get(), link.paused.as_ps(), u64::from(link.flows)]
    });
    let c = &outcome.counters;
    let counts = [c.packets, c.packet_hops, c.drops, c.retransmits, c.ecn_marks, c.cnps, c.pauses];
    ops.chain(links).chain(counts).chain([c.trims]).fold(0, fold)
}

/// A longer gap between two events, in picoseconds, is checked for senders that have all given up.
const LONG: u64 = 100_000_000;

/// How often the loop checks limits, progress and interruption, in events.
pub(crate) const CHECK_EVERY: u64 = 1 << 16;

/// How far a run has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Simulated time.
    pub at: Time,
    /// Events handled.
    pub events: u64,
    /// Operations that have not finished.
    pub operations_left: usize,
    /// Data packets sent.
    pub packets: u64,
    /// Events that the run was expected to take; zero if nobody knows.
    pub expected_events: u64,
}

/// Somebody who watches a run and may stop it.
#[derive(Default)]
pub struct Watch<'a> {
    /// The run stops soon after this is set.
    pub interrupt: Option<&'a std::sync::atomic::AtomicBool>,
    /// Called every 65,536 events.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
    /// Events that the run will take, by its [`estimate`](crate::estimate()); zero if nobody knows.
    pub expected_events: u64,
    /// Processors that one run may use where `network.packet.threads` says nothing; one unless
    /// told.
    pub cores: usize,
    /// Asked before a run and every 65,536 events what it may still take.
    pub bound: Option<Box<dyn Fn() -> Asked>>,
    /// Nobody minds how long a run takes: for whoever has a bound of time.
    pub is_patient: bool,
    /// What is left of the memory that it may take.
    pub room: Room,
    /// How far it had come when somebody last looked.
    pub reached: Option<Progress>,
    /// Takes the packets of runs, if somebody wants them.
    pub tape: Option<crate::tap::Tape>,
    /// After a run: how many threads it took.
    pub threads: usize,
    /// After a run on several: of each window the events of the thread that had most, which no
    /// thread can take from it.
    pub events_in_turn: u64,
    /// After a run on one thread: how often it passed over time that it need not simulate.
    pub jumps: u64,
    /// After a run that could have had more than one thread: why it had one.
    pub why_one_thread: Option<&'static str>,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("interrupt", &self.interrupt).finish_non_exhaustive()
    }
}

impl Watch<'_> {
    pub(crate) fn wants_stop(&mut self, progress: Progress) -> bool {
        self.hold_to_bound(progress);
        if let Some(tell) = &mut self.progress {
            tell(Progress { expected_events: self.expected_events, ..progress });
        }
        self.is_interrupted()
    }

    /// Whether somebody wants the run to stop, or wanted it.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_some_and(|flag| flag.load(std::sync::atomic::Ordering::Relaxed))
    }
}
