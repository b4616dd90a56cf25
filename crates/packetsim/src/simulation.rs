//! The loop, and the state of a run.
//!
//! Everything that a run knows is in [`Simulation`]; the files `transmit`, `switching`, `sending`
//! and `receiving` say what happens to it, split by where it happens.

use fabric::Fabric;
use fabric::fault::Faults;
use traffic::{Counters, Finding, LinkUse, OpId, OpKind, OpTimes, Outcome, Replay, Transfers};
use units::{Bytes, Id, IdVec, Rate, Span, Time};

use crate::admission::{AdmissionConfig, GrantLedger};
use crate::buffer::{MarkWhen, Switch};
use crate::calendar::{Calendar, Entry, Kind};
use crate::cc::{Circumstances, Needs};
use crate::credits::Credits;
use crate::entropy::Entropy;
use crate::faults::Trouble;
use crate::limits::{AGE, pieces};
use crate::measure::Recorder;
use crate::nic::{AcksWhilePaused, Sender};
use crate::packet::{
    CLASSES, Clock, DATA, PATH_END, PURPOSES, Packet, Purpose, STAMPED, Sizes, Waiting,
};
use crate::pair::{Inbox, Message, Pair};
use crate::paths::Network;
use crate::port::{LaneCount, NOWHERE, Port};
use crate::ring::Slab;
use crate::sending::MOST_REPORTED;
use crate::settings::Settings;
use crate::stamps::Stamps;
use crate::stations::Stations;
use crate::switching::{LanePause, Marker, PauseLog};

/// Things that happen rarely, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Agenda {
    /// A pause that still holds is to be renewed.
    Renew { link: u32, class: u8 },
    /// A pause may have run out.
    Expire { link: u32, class: u8 },
    /// A queue may have been paused for too long.
    Watchdog { link: u32, class: u8 },
    /// Faults begin or end.
    FaultChange,
    /// Routes follow them.
    Reroute,
    /// A sample is taken.
    Sample,
    /// A host has taken a packet from its NIC.
    HostRead { node: u32 },
    /// The receiver's software sees a message.
    MessageRead { op: u32 },
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
    pub class_in_switch: [u8; PURPOSES],
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
    /// A mark comes back in a packet of its own, for want of an acknowledgement.
    pub echo_is_notice: bool,
    pub admission: AdmissionConfig,
    pub counts_granted: bool,
    /// Packets that a queue pair may send before it has been granted any.
    pub unasked: u32,
    pub slow_hosts: bool,
    pub header_bytes: u64,
}

impl Rules {
    /// The classes of data whose senders can be paused.
    pub(crate) fn lossless_classes(&self) -> impl Iterator<Item = usize> + use<> {
        let lossless = self.lossless;
        (DATA..CLASSES).filter(move |class| lossless >> class & 1 == 1)
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
#[derive(Debug, Default)]
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

/// A run.
#[derive(Debug)]
pub(crate) struct Simulation<'a> {
    pub fabric: &'a Fabric,
    pub transfers: &'a Transfers,
    pub settings: &'a Settings,
    pub faults: &'a Faults,
    /// What is wrong with each link; empty without faults.
    pub troubles: Vec<Trouble>,
    pub calendar: Calendar,
    /// The present instant, and the ticket of the present event.
    pub now: u64,
    pub ticket: u32,
    pub clock: Clock,
    /// Its state is larger than the caches near the core: memory is read ahead.
    pub is_large: bool,
    /// Everything that happens elsewhere than at the switch at hand is known until then.
    pub known: u64,
    /// The departures of another switch are being applied.
    pub in_far_end: bool,
    /// No switch runs ahead of this: the next change by a fault or the next sample.
    pub barrier: u64,
    pub change_at: u64,
    /// When the routes will follow what has changed.
    pub reroutes: std::collections::VecDeque<u64>,
    pub sample_at: u64,
    pub recorder: Option<Recorder>,
    /// What reaches the switch at hand, in order.
    pub incoming: Vec<u64>,
    /// The links among which a packet's next one is chosen.
    pub candidates: Vec<fabric::LinkId>,
    /// Links whose wire was empty before that switch sent something over them.
    pub announced: Vec<u32>,
    /// Every departure is an event, whatever the switch.
    pub explicit: bool,
    /// Some switches end queue pairs.
    pub aggregates: bool,
    pub ports: Vec<Port>,
    /// Packets being sent or on a wire.
    pub wires: Slab<Packet>,
    /// Packets that wait.
    pub queued: Slab<Waiting>,
    pub switches: Vec<Switch>,
    pub stations: Stations,
    pub pauses: Vec<PauseLog>,
    /// The lanes of each link, link by link.
    pub lane_pauses: Vec<LanePause>,
    /// What the lanes of each link did.
    pub lane_counts: Vec<LaneCount>,
    pub credits: Credits,
    /// One stream of dice for each link, where links damage packets.
    pub damage: Vec<units::Random>,
    pub paths: Vec<u32>,
    pub network: Network,
    pub entropy: Entropy,
    pub pairs: Vec<Pair>,
    pub inboxes: Vec<Inbox>,
    pub messages: Vec<Message>,
    /// The links of all paths, one for each queue pair that crosses them.
    pub routed: Vec<u32>,
    pub senders: Vec<Sender>,
    /// By node: what a message that finds its queue pair idle waits for its context.
    pub fetches: Vec<u64>,
    pub sender_of_port: Vec<u32>,
    pub grant_ledgers: Vec<GrantLedger>,
    pub hosts: Vec<Host>,
    pub stamps: Stamps,
    pub marker: Marker,
    pub agenda: Vec<Agenda>,
    pub free_agenda: Vec<u32>,
    pub sizes: Sizes,
    pub rules: Rules,
    pub operations: Operations,
    // What is counted.
    pub tally: Tally,
    pub counters: Counters,
    pub findings: Vec<Finding>,
    pub dropped_lossless: Vec<fabric::NodeId>,
    /// Ports that were reported to be in a deadlock, and to cause a storm.
    pub reported_deadlocks: Vec<u32>,
    pub reported_storms: Vec<u32>,
    pub digest: u64,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// All operations are over.
    Done,
    /// Nothing is left to happen, but operations are.
    Stuck,
    /// The user stopped it.
    Stopped,
    /// It passed a limit, which this is the name of.
    Limit(&'static str),
}

impl Simulation<'_> {
    /// Runs to the end.
    pub(crate) fn run(&mut self, watch: &mut Watch<'_>) -> Outcome {
        if !self.faults.is_empty() {
            self.apply_faults();
        }
        if self.recorder.is_some() {
            self.sample();
        }
        self.start_ready_operations();
        let end = self.run_events(watch);
        self.build_outcome(end)
    }

    fn run_events(&mut self, watch: &mut Watch<'_>) -> End {
        let limit = self.settings.limits.time.as_ps();
        let mut next_check = CHECK_EVERY.min(self.settings.limits.events);
        // Data packets that have crossed links, and since when no more have.
        let mut moved = (0, 0);
        let (mut broken, mut old_at) = (0, AGE);
        while !self.operations.replay.is_done() {
            let Some(next) = self.calendar.peek() else { return End::Stuck };
            if self.now + LONG < next && 0 < self.tally.broken && self.all_gave_up() {
                return End::Stuck;
            }
            if limit < next {
                self.now = limit;
                return End::Limit("time");
            }
            self.read_for_nics();
            let Some(entry) = self.calendar.next() else { return End::Stuck };
            self.handle(entry);
            if old_at <= self.now {
                old_at = self.now + AGE / 2;
                self.report_old_packets();
            }
            if broken != self.tally.broken {
                broken = self.tally.broken;
                if self.all_gave_up() {
                    return End::Stuck;
                }
            }
            if next_check <= self.counters.events {
                next_check += CHECK_EVERY;
                if watch.wants_stop(self.progress()) {
                    return End::Stopped;
                }
                if moved.0 != self.counters.packet_hops {
                    moved = (self.counters.packet_hops, self.now);
                } else if moved.1 + self.rules.timeout < self.now && self.cannot_progress() {
                    return End::Stuck;
                }
                if self.settings.limits.events <= self.counters.events {
                    return End::Limit("events");
                }
            }
        }
        End::Done
    }

    /// Whether nothing can move any more, although pauses go on for ever: everybody who had
    /// something to send has given up, or is held by a deadlock that nobody will break.
    fn cannot_progress(&self) -> bool {
        self.all_gave_up() || (self.change_at == u64::MAX && self.is_deadlocked_for_ever())
    }

    /// Whether nobody has anything left to send, or is going to: those who had have given up.
    pub(crate) fn all_gave_up(&self) -> bool {
        let tries = |pair: &Pair| !pair.broken && pair.una != pair.end;
        self.operations.pending == 0 && !self.pairs.iter().any(tries)
    }

    fn progress(&self) -> Progress {
        Progress {
            at: Time::from_ps(self.now),
            events: self.counters.events,
            operations_left: self.operations.replay.unfinished(),
            packets: self.counters.packets,
            expected_events: 0,
        }
    }

    /// The whole behaviour of the network, one arm for each thing that can happen.
    #[inline]
    pub(crate) fn handle(&mut self, entry: Entry) {
        debug_assert!(self.now <= entry.at, "time goes on");
        self.now = entry.at;
        self.ticket = entry.ticket;
        self.count_event(entry.at, entry.word());
        let id = entry.id();
        match entry.kind() {
            Kind::PacketArrived => self.packet_arrived(id),
            Kind::TransmitterFreed => self.transmitter_freed(id),
            Kind::SenderWoken => self.sender_woken(id),
            Kind::ControlTimer => self.control_timer_expired(id),
            Kind::Timeout => self.timeout_expired(id),
            Kind::OperationEnded => self.operation_ended(OpId::from_index(id)),
            Kind::RareEvent => self.rare_event_due(id),
            Kind::PauseFrame => self.pause_frame_arrived(id),
            Kind::SwitchBatch => self.run_switch_batch(id),
            Kind::StationAhead => self.run_station_ahead(id),
        }
    }

    /// Counts something that happened.
    #[inline]
    pub(crate) fn count_event(&mut self, at: u64, what: u64) {
        self.counters.events += 1;
        self.digest = fold_digest(self.digest, at, what);
    }

    /// Puts something rare into the calendar.
    pub(crate) fn schedule_rare(&mut self, at: u64, what: Agenda) {
        let number = match self.free_agenda.pop() {
            Some(number) => {
                self.agenda[number as usize] = what;
                number
            }
            None => {
                self.agenda.push(what);
                self.agenda.len() as u32 - 1
            }
        };
        let ticket = match what {
            // Whoever looks on looks last: nothing at this instant comes before or after another
            // thing because of it.
            Agenda::Sample => u32::MAX,
            _ => self.calendar.ticket(),
        };
        self.schedule(at, ticket, Kind::RareEvent, number as usize);
    }

    fn rare_event_due(&mut self, number: usize) {
        self.free_agenda.push(number as u32);
        match self.agenda[number] {
            Agenda::Renew { link, class } => self.renew_pause(link as usize, usize::from(class)),
            Agenda::Expire { link, class } => self.expire_pause(link as usize, usize::from(class)),
            Agenda::Watchdog { link, class } => {
                self.watchdog_expired(link as usize, usize::from(class))
            }
            Agenda::FaultChange => self.apply_faults(),
            Agenda::Reroute => self.reroute(),
            Agenda::Sample => self.sample(),
            Agenda::HostRead { node } => self.host_read_packet(node as usize),
            Agenda::MessageRead { op } => {
                self.operations.pending -= 1;
                self.message_read(OpId::from_index(op as usize));
            }
        }
    }

    /// Starts every operation that may.
    fn start_ready_operations(&mut self) {
        while !self.operations.ready.is_empty() {
            let mut ready = std::mem::take(&mut self.operations.ready);
            for op in ready.drain(..) {
                self.start_operation(op);
            }
            if self.operations.ready.is_empty() {
                self.operations.ready = ready;
            }
        }
    }

    fn start_operation(&mut self, op: OpId) {
        self.operations.started_at[op.index()] = self.now;
        match self.transfers.ops()[op].kind {
            OpKind::Wait { span } => {
                let begin = self.start_of_wait(op);
                self.operations.started_at[op.index()] = begin;
                self.schedule_end(op, begin + span.as_ps());
            }
            OpKind::Send { connection, bytes } => {
                if self.network.first_pair[connection.index()] == NOWHERE {
                    let at = self.send_over_scale_up(connection.index(), bytes);
                    self.schedule_end(op, at);
                    return;
                }
                let latency = self.send_latency(op);
                if latency == 0 {
                    self.post_parts(op);
                } else {
                    self.schedule_end(op, self.now + latency);
                }
            }
            OpKind::Coupled { .. } => {
                panic!("the packet engine moves packets: coupled operations must be written out")
            }
        }
    }

    fn schedule_end(&mut self, op: OpId, at: u64) {
        self.operations.pending += 1;
        self.note_global_start(op, at);
        let ticket = self.calendar.ticket();
        self.schedule(at, ticket, Kind::OperationEnded, op.index());
    }

    /// Handles [`Kind::OperationEnded`]: a wait or a scale-up transfer is over, or a message has
    /// passed through the NIC's doorbell.
    fn operation_ended(&mut self, op: OpId) {
        self.operations.pending -= 1;
        self.drop_global_start(op);
        match self.transfers.ops()[op].kind {
            OpKind::Send { connection, .. }
                if self.network.first_pair[connection.index()] != NOWHERE =>
            {
                self.post_parts(op);
            }
            _ => {
                self.operations.received_at[op.index()] = self.now;
                self.operation_received(op);
                self.operation_finished(op);
            }
        }
    }

    /// Cuts an operation over the queue pairs of its connection and hands the parts to them.
    fn post_parts(&mut self, op: OpId) {
        use fabric::routing::QueuePairUse;
        let OpKind::Send { connection, bytes } = self.transfers.ops()[op].kind else {
            unreachable!("only messages are posted")
        };
        let connection = connection.index();
        let first = self.network.first_pair[connection] as usize;
        let count = u64::from(self.network.pairs_of[connection]);
        let bytes = bytes.get();
        if count == 1 {
            self.set_part_count(op, 1);
            self.post_message(first, op.index() as u32, bytes, self.now);
            return;
        }
        let (pieces, unit) = pieces(self.settings, bytes, count);
        let turn = u64::from(self.operations.turns[connection]);
        if self.settings.routing.split == QueuePairUse::RoundRobin {
            self.operations.turns[connection] = ((turn + pieces) % count) as u16;
        }
        // The pieces of one queue pair follow each other, so they are one message here.
        let used = pieces.min(count);
        self.set_part_count(op, used as u32);
        // Whoever splits a message posts every part of it.
        let splits = self.settings.routing.split == QueuePairUse::Split;
        let post = if splits { self.settings.nic.qp_post.as_ps() } else { 0 };
        let sender = self.sender_of_port[self.pairs[first].port as usize] as usize;
        let begin = self.senders[sender].posting_until.max(self.now);
        if splits {
            self.senders[sender].posting_until = begin + (used - 1) * post;
        }
        for part in 0..used {
            let mine = (pieces - part).div_ceil(count);
            let has_last = (pieces - 1) % count == part;
            let before_last = (mine - 1) * unit;
            let last = if has_last { bytes - (pieces - 1) * unit } else { unit };
            let size = before_last + last;
            let pair = first + ((turn + part) % count) as usize;
            self.post_message(pair, op.index() as u32, size, begin + part * post);
        }
    }

    fn set_part_count(&mut self, op: OpId, parts: u32) {
        self.operations.parts_left[op.index()] = parts;
        self.operations.parts_missing[op.index()] = parts;
    }

    /// One part of an operation has arrived in full.
    pub(crate) fn part_arrived(&mut self, op: OpId) {
        let at = self.now + self.receive_latency(op);
        self.operations.received_at[op.index()] = at;
        let missing = &mut self.operations.parts_missing[op.index()];
        *missing -= 1;
        if *missing == 0 {
            if at == self.now {
                self.message_read(op);
            } else {
                self.operations.pending += 1;
                self.schedule_rare(at, Agenda::MessageRead { op: op.index() as u32 });
            }
        }
    }

    /// The receiver's software has a message. A read ends with that: no acknowledgement follows.
    fn message_read(&mut self, op: OpId) {
        self.operation_received(op);
        if self.rules.reads {
            self.operation_finished(op);
        }
    }

    /// An operation is over for those who receive: what they pass on may start.
    fn operation_received(&mut self, op: OpId) {
        self.operations.replay.arrive(op, &mut self.operations.ready);
        self.start_ready_operations();
    }

    /// One part of an operation has been acknowledged.
    pub(crate) fn part_acknowledged(&mut self, op: OpId) {
        let left = &mut self.operations.parts_left[op.index()];
        *left -= 1;
        if *left == 0 && !self.rules.reads {
            self.operation_finished(op);
        }
    }

    /// Who began an operation knows that it is over: its sender, or the receiver that read.
    fn operation_finished(&mut self, op: OpId) {
        let at = op.index();
        let received = Time::from_ps(self.operations.received_at[at]);
        let finish = Time::from_ps(self.now).max(received);
        let start = Time::from_ps(self.operations.started_at[at]);
        self.operations.outcome[op] = Some(OpTimes { start, received, finish });
        self.operations.replay.know(op, &mut self.operations.ready);
        self.start_ready_operations();
    }

    /// Sends a message over the scale-up network: links in series, one message after another.
    fn send_over_scale_up(&mut self, connection: usize, bytes: Bytes) -> u64 {
        let place = self.network.first_serial[connection] as usize;
        let mut links = Vec::new();
        let mut at = place;
        while self.paths[at] & PATH_END == 0 {
            links.push(self.paths[at] as usize);
            at += 1;
        }
        let mut start = self.now;
        let (mut slowest, mut delay) = (0, 0);
        for &link in &links {
            start = start.max(self.operations.serial_free[link]);
            let class = self.fabric.class(fabric::LinkId::from_index(link));
            let rate = class.rate.scaled(self.settings.scale_up_efficiency.unwrap_or(1.0));
            slowest = slowest.max(rate.time_to_send(bytes).as_ps());
            delay += class.delay.as_ps();
        }
        for &link in &links {
            self.operations.serial_free[link] = start + slowest;
            self.ports[link].bytes += bytes.get();
        }
        start + slowest + delay
    }

    /// What a queue pair's congestion control knows when it begins.
    pub(crate) fn circumstances(&self, pair: usize) -> Circumstances {
        crate::build::circumstances(self, pair)
    }

    /// Packets carry the time at which they were sent in 32 bits of nanoseconds: of one that is
    /// under way for longer, the round trip is measured too short.
    fn report_old_packets(&mut self) {
        let now = (self.now / 1_000) as u32;
        let is_old = |packet: &Packet| {
            let age = now.wrapping_sub(packet.sent);
            packet.flags & STAMPED == 0 && AGE / 1_000 <= u64::from(age)
        };
        let classes = self.ports.iter().flat_map(|port| port.classes.iter());
        let mut queued = classes.flat_map(|class| self.queued.iter(class.queue));
        let found = queued.any(|waiting| is_old(&waiting.packet));
        drop(queued);
        if found {
            let [age, most] = [AGE, 2 * AGE].map(Span::from_ps);
            self.report_finding(format!(
                "packets have waited for more than {age:.1}: round trips above {most:.1} are \
                 measured too short"
            ));
        }
    }

    /// Every data packet that was sent has arrived, was thrown away or is still on its way; and
    /// every hop stamp belongs to a packet.
    fn check_packet_balance(&self) {
        let packets = || {
            let wires = self.ports.iter().flat_map(|port| self.wires.iter(port.wire));
            let classes = self.ports.iter().flat_map(|port| port.classes.iter());
            let queued = classes.flat_map(|class| self.queued.iter(class.queue));
            let held = self.hosts.iter().flat_map(|host| host.queue.iter());
            wires.chain(queued.map(|waiting| &waiting.packet)).chain(held)
        };
        let on_the_way = packets().filter(|packet| packet.purpose == Purpose::Data).count() as u64;
        let arrived =
            self.tally.delivered_data + self.tally.duplicate_data + self.tally.discarded_data;
        let accounted = arrived + self.tally.dropped_data + on_the_way;
        assert_eq!(self.counters.packets, accounted, "packets sent, and packets accounted for");
        let stamped = packets().filter(|packet| packet.flags & STAMPED != 0).count();
        assert_eq!(self.stamps.in_use(), stamped, "lists of hop stamps, and stamped packets");
    }

    /// Ends a run: checks the balance and writes the outcome.
    fn build_outcome(&mut self, end: End) -> Outcome {
        // Who ran ahead of the clock was the last to finish.
        let finishes = self.operations.outcome.iter().flatten().map(|times| times.finish.as_ps());
        self.now = finishes.fold(self.now, u64::max);
        for link in 0..self.ports.len() {
            self.apply_departures(link);
        }
        self.sample_last();
        self.check_packet_balance();
        let left = match self.operations.replay.unfinished() {
            1 => "1 operation".to_owned(),
            left => format!("{left} operations"),
        };
        if end != End::Done {
            self.report_deadlocks();
        }
        if MOST_REPORTED < self.tally.broken {
            let more = self.tally.broken - MOST_REPORTED;
            self.report_finding(format!("{more} more queue pairs gave up"));
        }
        if MOST_REPORTED < self.tally.pathless {
            let more = self.tally.pathless - MOST_REPORTED;
            self.report_finding(format!("there are no paths between {more} more pairs of ends"));
        }
        match end {
            End::Done => {}
            End::Stuck => {
                self.report_finding(format!("nothing moves any more: {left} did not finish"))
            }
            End::Stopped => self.report_finding(format!("stopped: {left} did not finish")),
            End::Limit(which) => self.report_finding(format!(
                "stopped at `network.limits.{which}`: {left} did not finish"
            )),
        }
        let mut links = IdVec::with_capacity(self.ports.len());
        let mut paused_in_all = 0;
        for (link, port) in self.ports.iter().enumerate() {
            let paused = (0..self.rules.lanes).map(|lane| self.paused_for(link, lane)).sum();
            paused_in_all += paused;
            links.push(LinkUse {
                bytes: port.bytes,
                flows: 0,
                peak_queue: Bytes::new(u64::from(port.peak)),
                paused: Span::from_ps(paused),
            });
        }
        for &pair in &self.routed {
            links[fabric::LinkId::from_index(pair as usize)].flows += 1;
        }
        self.counters.paused = Span::from_ps(paused_in_all);
        Outcome {
            ops: std::mem::take(&mut self.operations.outcome),
            links,
            counters: self.counters,
            stopped_at: (end != End::Done).then_some(Time::from_ps(self.now)),
            findings: std::mem::take(&mut self.findings),
            digest: self.digest,
        }
    }
}

/// Folds something that happened into the digest of the run.
#[inline]
pub(crate) fn fold_digest(digest: u64, at: u64, what: u64) -> u64 {
    (digest ^ at ^ (what << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Nobody who is going to send anything sleeps for so long without being asked about, in
/// picoseconds.
const LONG: u64 = 100_000_000;

/// How often the loop checks limits, progress and interruption, in events.
const CHECK_EVERY: u64 = 1 << 16;

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
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
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("interrupt", &self.interrupt).finish_non_exhaustive()
    }
}

impl Watch<'_> {
    fn wants_stop(&mut self, progress: Progress) -> bool {
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
