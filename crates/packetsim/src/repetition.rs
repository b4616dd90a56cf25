//! Exact fast-forward: if the state of the run is the same as some time ago, the period between
//! the two repeats, and time jumps over its repetitions.
//!
//! Time is whole picoseconds, so states can be equal. The connection with the most messages is the
//! reference connection. After each of its messages the run stops at an instant that no node has
//! run ahead of, and takes a snapshot of its state, relative to now ([`RelativeState`]): packets
//! and events by the time until they are due, sequence numbers relative to the first that is not
//! acknowledged, messages relative to those that are finished. If an earlier snapshot is equal,
//! the period between the two is repeated without simulation: messages end one period later each
//! time, counters are extrapolated, and packets and events in flight are shifted.
//!
//! The state does not contain which operation a message belongs to, only the order in which the
//! messages of a connection start ([`StartIndex`]). It does not contain messages that wait behind
//! others of their queue pair. So each repeated period is first checked by a dry run of its
//! operations ([`DryRun`]): completions start other operations, which may differ from those of the
//! first period. A message must be posted before its queue pair starts to send it ([`SendStart`]),
//! and at the same time of the period if the queue pair was idle until then.
//!
//! Not in the state, but shifted: sequence numbers, counters, retransmission timeouts (when one
//! expires, it checks for progress since then). Not in the state, and limits of a jump: waits,
//! and timers of pauses. No snapshot is taken while a rate changes, marks are drawn at random or
//! a port is paused, nor where paths are chosen for each packet.
//!
//! Exact means: the same completions, bytes, deepest queues, marks and pauses to the picosecond
//! (`tests/anything.rs`). The number of events is what they would have been.

use std::collections::VecDeque;

use traffic::{ConnectionId, Counters, OpId, OpKind, OpTimes, Replay};
use units::{Id, IdVec, Span, Time};

use crate::calendar::{Entry, Event};
use crate::ids::{PairId, Raw};
use crate::packet::{Clock, Forward, PATH_END, Packet};
use crate::pair::Pair;
use crate::port::NOWHERE;
use crate::simulation::{RareEvent, Simulation, Tally};

const NEVER: u64 = u64::MAX;

/// How many snapshots are kept: the longest period that is found, in messages.
const MAX_SNAPSHOTS: usize = 4;

/// The reference connection must carry at least so many messages.
const MIN_MESSAGES: usize = 8;

/// With so many messages, the first few take a small part of the run.
const WORTHWHILE_MESSAGES: usize = 32;

/// A state that is not steady counts as so many more failed comparisons.
const UNSTEADY_COST: u32 = 2;

/// Events between two snapshots, at least and at most, as a multiple of what a snapshot costs. It
/// grows while no period is found.
const INTERVAL_FACTORS: [u64; 2] = [4, 64];

/// The search for a period.
#[derive(Debug, Default)]
pub(crate) struct Repetition {
    /// The reference connection; none, and there is no search.
    reference: Option<ConnectionId>,
    /// How many messages it carries.
    messages: usize,
    /// When the next snapshot is taken and compared.
    pub compare_at: u64,
    /// The messages of each connection in the order in which they started.
    started: IdVec<ConnectionId, Vec<StartedMessage>>,
    /// The index of each message among them.
    start_indexes: IdVec<OpId, StartIndex>,
    /// How many messages have started.
    order: u32,
    snapshots: VecDeque<Snapshot>,
    /// Completions and starts of sending since the oldest snapshot.
    completions: Vec<Completion>,
    send_starts: Vec<SendStart>,
    /// How many messages of each connection are finished.
    finished: IdVec<ConnectionId, u32>,
    /// Events until the last snapshot, and what it cost.
    last: (u64, u64),
    /// So many times that cost must pass, in events, before the next snapshot.
    interval_factor: u64,
    /// Snapshots that were compared, and after how many without a period the search ends.
    comparisons: u32,
    pub max_comparisons: u32,
    /// Jumps, and the periods that they skipped.
    pub jumps: u64,
    pub skipped_periods: u64,
}

/// The index of a message in the order in which its connection's messages start.
type StartIndex = u32;

/// Of a message that has not started.
const NOT_STARTED: StartIndex = u32::MAX;

/// A message that has started.
#[derive(Clone, Copy, Debug)]
struct StartedMessage {
    op: OpId,
    at: u64,
    /// Its index in the order in which all messages start.
    order: u32,
}

/// An operation is complete at its receiver, or at its sender: others may start.
#[derive(Clone, Copy, Debug)]
struct Completion {
    op: OpId,
    /// At its sender.
    is_finished: bool,
    at: u64,
}

/// A queue pair starts to send a message.
#[derive(Clone, Copy, Debug)]
struct SendStart {
    op: OpId,
    at: u64,
    /// The message waited for the queue pair; else the queue pair was idle.
    waited: bool,
}

/// The state of the run at an instant.
#[derive(Debug)]
struct Snapshot {
    at: u64,
    state: Vec<u64>,
    counts: Counts,
    /// Lengths of the logs of completions and of starts of sending.
    logged: [usize; 2],
}

/// Counters that are extrapolated.
#[derive(Debug)]
struct Counts {
    counters: Counters,
    tally: Tally,
    throws: u64,
    /// By link: bytes.
    bytes: Vec<u64>,
    /// By lane of a link: bytes.
    lanes: Vec<u64>,
    /// By queue pair: packets and bytes acknowledged, and acknowledgements that use no links.
    acked: IdVec<PairId, (u32, u64)>,
    light_acks: IdVec<PairId, u64>,
}

impl Repetition {
    /// No search.
    pub(crate) fn off() -> Self {
        Self { compare_at: NEVER, max_comparisons: u32::MAX, ..Self::default() }
    }

    /// Whether there is a search, in a run long enough that the search costs little.
    pub(crate) fn is_likely(&self) -> bool {
        self.reference.is_some() && WORTHWHILE_MESSAGES <= self.messages
    }

    /// Whether the search has ended without a period.
    pub(crate) fn has_given_up(&self) -> bool {
        self.jumps == 0 && self.max_comparisons <= self.comparisons
    }

    /// Drops all snapshots and logs.
    fn clear_snapshots(&mut self) {
        self.snapshots.clear();
        self.completions.clear();
        self.send_starts.clear();
    }

    /// Whether completions are logged: there is a snapshot, or there will be.
    #[inline]
    fn is_logging(&self) -> bool {
        !self.snapshots.is_empty() || self.compare_at != NEVER
    }

    fn begin(&mut self, connection: ConnectionId, op: OpId, at: u64) {
        let start_indexes = &mut self.started[connection];
        self.start_indexes[op] = start_indexes.len() as StartIndex;
        start_indexes.push(StartedMessage { op, at, order: self.order });
        self.order += 1;
    }

    /// The search in a run, if its settings allow one.
    pub(crate) fn new(simulation: &Simulation<'_>) -> Self {
        let (input, net) = (&simulation.input, &simulation.net);
        let is_simple = input.settings.packet.forward != Forward::Off
            && !simulation.time.stations.is_empty()
            && !net.credits.are_counted()
            && !net.schedule.is_on
            && !net.wires.is_tagged()
            && !simulation.ends.entropy.is_used()
            && !net.network.chooses_on_the_way()
            && !input.rules.needs.hops
            && !input.rules.unreliable
            && net.damage.is_empty()
            && input.clock == Clock::Picosecond;
        if !is_simple {
            return Self::off();
        }
        let mut messages = IdVec::from(vec![0_usize; input.transfers.connections().len()]);
        for op in input.transfers.ops() {
            if let OpKind::Send { connection, .. } = op.kind
                && net.network.first_pair[connection.index()].is_some()
            {
                messages[connection] += 1;
            }
        }
        let most = messages.ids().max_by_key(|at| (messages[*at], std::cmp::Reverse(at.index())));
        let reference = most.filter(|at| MIN_MESSAGES <= messages[*at]);
        let most = most.map_or(0, |at| messages[at]);
        let (finished, started) =
            (vec![0; messages.len()].into(), vec![Vec::new(); messages.len()].into());
        let start_indexes =
            vec![NOT_STARTED; if reference.is_some() { input.transfers.ops().len() } else { 0 }];
        Self {
            reference,
            messages: most,
            finished,
            started,
            start_indexes: start_indexes.into(),
            ..Self::off()
        }
    }
}

/// The state relative to an instant, as numbers.
struct RelativeState {
    at: u64,
    words: Vec<u64>,
    /// No jump goes beyond this.
    limit: u64,
}

impl RelativeState {
    fn push(&mut self, word: u64) {
        self.words.push(word);
    }

    /// A time that matters only if it is in the future.
    fn push_ahead(&mut self, at: u64) {
        self.push(if at == NEVER { NEVER } else { at.saturating_sub(self.at) });
    }

    /// A time that matters in the past too.
    fn push_time(&mut self, at: u64) {
        self.push(if at == NEVER { NEVER } else { at.wrapping_sub(self.at) });
    }
}

impl Simulation<'_> {
    /// Logs that a message starts.
    #[inline]
    pub(crate) fn log_start(&mut self, op: OpId) {
        let OpKind::Send { connection, .. } = self.input.transfers.ops()[op].kind else { return };
        if self.repetition.reference.is_some() {
            let at = self.time.now;
            self.repetition.begin(connection, op, at);
            if !self.is_fifo(connection) {
                self.log_send_start(op, false);
            }
        }
    }

    /// Logs that a queue pair starts to send a message.
    #[inline]
    pub(crate) fn log_send_start(&mut self, op: OpId, waited: bool) {
        if self.repetition.is_logging() {
            self.repetition.send_starts.push(SendStart { op, at: self.time.now, waited });
        }
    }

    /// Whether a connection's messages wait in one FIFO, so that the time at which one is posted
    /// does not matter while others are before it: it has one queue pair. With several, posting
    /// takes time of the host. Over the scale-up network a message starts at once.
    #[inline]
    fn is_fifo(&self, connection: ConnectionId) -> bool {
        self.net.network.pairs_of[connection.index()] == 1
    }

    /// Logs that an operation is complete at its receiver, or at its sender.
    #[inline]
    pub(crate) fn log_completion(&mut self, op: OpId, is_finished: bool) {
        let Some(reference) = self.repetition.reference else { return };
        if self.repetition.is_logging() {
            self.repetition.completions.push(Completion { op, is_finished, at: self.time.now });
        }
        if !is_finished {
            return;
        }
        let OpKind::Send { connection, .. } = self.input.transfers.ops()[op].kind else { return };
        self.repetition.finished[connection] += 1;
        let (events, cost) = self.repetition.last;
        let is_worth_it = self.repetition.interval_factor.max(INTERVAL_FACTORS[0]) * cost
            <= self.accounts.counters.events - events;
        if connection == reference && self.repetition.compare_at == NEVER && is_worth_it {
            // No node has run ahead further than two of the longest cables.
            self.repetition.compare_at = self.time.now + 2 * self.net.longest + 1;
            self.set_barrier();
        }
    }

    /// Takes a snapshot, and jumps if an earlier one is equal.
    pub(crate) fn compare_snapshots(&mut self) {
        let at = std::mem::replace(&mut self.repetition.compare_at, NEVER);
        self.repetition.comparisons = self.repetition.comparisons.saturating_add(1);
        self.set_barrier();
        let Some(state) = self.state(at) else {
            // Not steady.
            self.repetition.comparisons = self.repetition.comparisons.saturating_add(UNSTEADY_COST);
            self.repetition.last = (self.accounts.counters.events, self.state_size());
            self.repetition.clear_snapshots();
            return;
        };
        self.repetition.last = (self.accounts.counters.events, self.state_size());
        let counts = self.counts();
        let known =
            self.repetition.snapshots.iter().rposition(|seen| {
                seen.state == state.words && is_uneventful(&seen.counts, &counts)
            });
        if let Some(known) = known {
            let before =
                self.repetition.snapshots.swap_remove_back(known).expect("it was found there");
            let jumped = self.jump(&before, &counts, &state);
            self.repetition.clear_snapshots();
            if jumped {
                self.repetition.interval_factor = INTERVAL_FACTORS[0];
            }
            return;
        }
        let Repetition { snapshots, completions, send_starts, interval_factor, .. } =
            &mut self.repetition;
        if snapshots.len() == MAX_SNAPSHOTS {
            // No period so far.
            *interval_factor =
                (*interval_factor * 5 / 4 + 1).clamp(INTERVAL_FACTORS[0], INTERVAL_FACTORS[1]);
            snapshots.pop_front();
            let all = [completions.len(), send_starts.len()];
            let forgotten = snapshots.front().map_or(all, |oldest| oldest.logged);
            completions.drain(..forgotten[0]);
            send_starts.drain(..forgotten[1]);
            for snapshot in snapshots.iter_mut() {
                snapshot.logged = [0, 1].map(|at| snapshot.logged[at] - forgotten[at]);
            }
        }
        let logged = [completions.len(), send_starts.len()];
        snapshots.push_back(Snapshot { at, state: state.words, counts, logged });
    }

    /// About what a snapshot costs, in events.
    fn state_size(&self) -> u64 {
        let packets: u32 = self.net.ports.iter().map(|port| port.wire.len()).sum();
        let rest =
            self.net.ports.len() + self.ends.pairs.len() + self.input.transfers.connections().len();
        u64::from(packets) + rest as u64
    }

    fn counts(&self) -> Counts {
        let pairs = self.ends.pairs.iter();
        Counts {
            counters: self.accounts.counters,
            tally: self.accounts.tally,
            throws: self.net.marker.throws,
            bytes: self.net.ports.iter().map(|port| port.bytes).collect(),
            lanes: self.net.lane_counts.iter().map(|lane| lane.bytes).collect(),
            acked: pairs.map(|pair| (pair.una, pair.acked_bytes)).collect(),
            light_acks: self.ends.light_acks.iter().map(|acks| acks.sent).collect(),
        }
    }

    /// The state at an instant that every node has reached and none has passed; none if something
    /// in it cannot be shifted.
    fn state(&mut self, at: u64) -> Option<RelativeState> {
        for link in self.net.ports.ids() {
            self.apply_departures_before(link, at);
        }
        let mut state = RelativeState { at, words: Vec::new(), limit: NEVER };
        self.snapshot_links(&mut state)?;
        self.snapshot_pairs(&mut state)?;
        self.snapshot_operations(&mut state);
        self.snapshot_events(&mut state)?;
        Some(state)
    }

    fn snapshot_links(&self, state: &mut RelativeState) -> Option<()> {
        for (link, port) in self.net.ports.enumerate() {
            let is_held = (port.paused | port.pausing) != 0;
            if is_held || !self.net.pauses[link].flying.is_empty() {
                return None;
            }
            let charged = port.used.iter().any(|used| *used != 0);
            let is_idle = port.wire.is_empty() && port.waiting == 0 && port.free_at <= state.at;
            if is_idle && !charged && !port.free_event_pending {
                continue;
            }
            state.push(u64::from(link.raw()) << 32 | u64::from(port.waiting));
            state.push(u64::from(port.queued) << 1 | u64::from(port.free_event_pending));
            state.push_ahead(port.free_at);
            port.used.iter().for_each(|used| state.push(u64::from(*used)));
            for packet in self.net.wires.iter(port.wire) {
                self.snapshot_packet(state, packet, packet.at.wrapping_sub(state.at as u32));
            }
            for (queue, over) in port.classes.iter().zip(port.over.iter()) {
                state.push(u64::from(queue.queued) << 32 | u64::from(*over));
                for waiting in self.net.queued.iter(queue.queue) {
                    self.snapshot_packet(state, &waiting.packet, waiting.from.raw());
                }
            }
        }
        if self.input.rules.control_share != 0 || 1 < self.input.rules.lanes {
            let deficits = self.net.ports.iter().flat_map(|port| port.deficits.iter());
            deficits.for_each(|deficit| state.push(*deficit as u64));
        }
        for switch in &self.net.switches {
            if 0 < switch.pausing || switch.departures_are_events {
                return None;
            }
            state.push(switch.charged);
            state.push(switch.shared);
            state.push(switch.lossy << 8 | u64::from(switch.event_reasons));
        }
        Some(())
    }

    fn snapshot_packet(&self, state: &mut RelativeState, packet: &Packet, when: u32) {
        let una = self.ends.pairs[self.pair_on_way(packet)].una;
        state.push(u64::from(when) << 32 | u64::from(packet.psn.wrapping_sub(una)));
        let kind = u64::from(packet.purpose as u8) << 8 | u64::from(packet.flags);
        state.push(u64::from(packet.route) << 32 | u64::from(packet.size) << 16 | kind);
    }

    /// The queue pair of a packet anywhere on its way.
    fn pair_on_way(&self, packet: &Packet) -> PairId {
        let ahead = &self.net.paths[packet.route as usize..];
        let end = ahead.iter().find(|at| **at & PATH_END != 0).expect("every path has an end");
        PairId::of(end & !PATH_END)
    }

    fn snapshot_pairs(&self, state: &mut RelativeState) -> Option<()> {
        for (number, pair) in self.ends.pairs.enumerate() {
            let inbox = &self.ends.inboxes[number];
            if !pair.control.is_resting() || !pair.resend.is_empty() || 0 < inbox.early.len() {
                return None;
            }
            state.push_ahead(pair.next_send);
            for (at, ack) in
                self.ends.light_acks.get(number).iter().flat_map(|acks| &acks.under_way)
            {
                state.push_ahead(*at);
                let psn = u64::from(ack.psn.wrapping_sub(pair.una));
                state.push(psn << 32 | u64::from(ack.route) << 8 ^ u64::from(ack.flags));
            }
            state.push(u64::from(inbox.unacked) << 32 | u64::from(pair.overdue_pending));
            let end = self.visible_end(pair);
            if pair.una == end {
                continue;
            }
            let una = pair.una;
            for psn in [pair.next, end, pair.high, inbox.expected] {
                state.push(u64::from(psn.wrapping_sub(una)));
            }
            let end = Some(inbox.message_end).filter(|end| *end != u32::MAX);
            state.push(end.map_or(NEVER, |end| u64::from(end.wrapping_sub(una))));
            let asked = Some(inbox.asked).filter(|psn| *psn != NOWHERE && inbox.expected <= *psn);
            state.push(asked.map_or(NEVER, |psn| u64::from(psn - una)));
            state.push(u64::from(pair.asked.saturating_sub(una)));
            state.push(pair.sent_bytes.wrapping_sub(pair.acked_bytes));
            state.push_time(pair.next_send);
            state.push_ahead(pair.posted);
            state.push_time(pair.progress_at);
            state.push(u64::from(pair.tries) << 32 | u64::from(pair.last_size));
            state.push(pair.rate_bps ^ pair.window);
            for message in self.visible_messages_of(pair) {
                let message = &self.ends.messages[message as usize];
                state.push(
                    u64::from(message.first.wrapping_sub(una)) << 32 | u64::from(message.packets),
                );
                state.push(message.bytes);
                state.push_ahead(message.posted);
            }
        }
        for (number, sender) in self.ends.senders.enumerate() {
            state.push(sender.turn as u64);
            state.push_ahead(sender.wake_at);
            state.push_ahead(sender.posting_until);
            for (pair, due) in sender.pairs.iter().zip(&sender.due) {
                state.push(u64::from(number.raw()) << 32 | u64::from(pair.raw()));
                state.push_ahead(*due);
            }
        }
        Some(())
    }

    /// Whether the state contains only those messages of a queue pair that it has started to send.
    fn is_fifo_pair(&self, pair: &Pair) -> bool {
        pair.last != NOWHERE
            && self
                .connection_of(self.ends.messages[pair.last as usize].op)
                .is_some_and(|connection| self.is_fifo(connection))
    }

    /// One past the last packet of a queue pair that is in the state.
    fn visible_end(&self, pair: &Pair) -> u32 {
        match pair.sending {
            at if at != NOWHERE && self.is_fifo_pair(pair) => self.ends.messages[at as usize].end(),
            _ => pair.end,
        }
    }

    /// The messages of a queue pair that are in the state and not acknowledged in full.
    fn visible_messages_of(&self, pair: &Pair) -> impl Iterator<Item = u32> {
        let end = self.visible_end(pair);
        let next = move |at: &u32| {
            let message = &self.ends.messages[*at as usize];
            Some(message.next).filter(|at| *at != NOWHERE && message.end() < end)
        };
        std::iter::successors(Some(pair.waiting).filter(|at| *at != NOWHERE), next)
    }

    /// How many messages of a connection are finished or in the state: of one with a single queue
    /// pair, those that it has started to send.
    fn visible_messages(&self, connection: ConnectionId) -> usize {
        let started = self.repetition.started[connection].len();
        match self.net.network.first_pair[connection.index()].get() {
            Some(pair) if self.is_fifo(connection) => {
                let pair = &self.ends.pairs[pair];
                let last = if pair.sending == NOWHERE { pair.last } else { pair.sending };
                let message = self.ends.messages.get(last as usize);
                message.map_or(0, |message| self.repetition.start_indexes[message.op] as usize + 1)
            }
            _ => started,
        }
    }

    /// The messages in flight that are in the state, by connection, in the order of their starts.
    fn in_flight(&self) -> Vec<OpId> {
        let mut in_flight = Vec::new();
        for (connection, started) in self.repetition.started.enumerate() {
            let left = started.len() - self.repetition.finished[connection] as usize;
            let is_open =
                |started: &&StartedMessage| self.ends.operations.outcome[started.op].is_none();
            let first = in_flight.len();
            let state = &started[..self.visible_messages(connection)];
            let unfelt = started.len() - state.len();
            let open = state.iter().rev().filter(is_open).take(left - unfelt);
            in_flight.extend(open.map(|started| started.op));
            in_flight[first..].reverse();
        }
        in_flight
    }

    fn connection_of(&self, op: OpId) -> Option<ConnectionId> {
        match self.input.transfers.ops()[op].kind {
            OpKind::Send { connection, .. } => Some(connection),
            _ => None,
        }
    }

    fn snapshot_operations(&self, state: &mut RelativeState) {
        let operations = &self.ends.operations;
        for op in self.in_flight() {
            self.snapshot_operation(state, op);
            let at = op.index();
            state.push(
                u64::from(operations.parts_left[at]) << 32
                    | u64::from(operations.parts_missing[at]),
            );
        }
        operations.turns.iter().for_each(|turn| state.push(u64::from(*turn)));
        for (link, free) in operations.serial_free.iter().enumerate() {
            if state.at < *free {
                state.push(link as u64);
                state.push_ahead(*free);
            }
        }
    }

    /// A message, by its index behind those of its connection that are finished.
    fn snapshot_operation(&self, state: &mut RelativeState, op: OpId) {
        let Some(connection) = self.connection_of(op) else { return };
        let ahead =
            self.repetition.start_indexes[op].wrapping_sub(self.repetition.finished[connection]);
        state.push(u64::from(connection.raw()) << 32 | u64::from(ahead));
    }

    fn snapshot_events(&self, state: &mut RelativeState) -> Option<()> {
        let common = self.time.calendar.entries();
        let stations = self.time.stations.entries();
        for entry in common.into_iter().chain(stations) {
            match entry.event() {
                // These follow from the packets and events of a node.
                Event::SwitchBatch(_) | Event::StationAhead(_) | Event::Timeout(_) => continue,
                Event::SenderWoken(link) => {
                    let sender = self.ends.sender_of_port[link].known();
                    if self.ends.senders[sender].wake_at != entry.at {
                        continue;
                    }
                }
                Event::ControlTimer(pair) => {
                    if self.ends.pairs[pair].timer_at != entry.at {
                        continue;
                    }
                    return None;
                }
                Event::PauseFrame(_) => return None,
                Event::PacketArrived(_) | Event::TransmitterFreed(_) | Event::AckArrived(_) => {}
                Event::OperationEnded(op) => {
                    match self.connection_of(op) {
                        None => state.limit = state.limit.min(entry.at),
                        // It does not matter before its queue pair starts to send it.
                        Some(connection) if self.is_fifo(connection) => {}
                        Some(_) => {
                            self.snapshot_operation(state, op);
                            state.push_ahead(entry.at);
                        }
                    }
                    continue;
                }
                Event::Rare(number) => {
                    if let RareEvent::MessageRead { op } = self.time.rare_events[number as usize] {
                        self.snapshot_operation(state, op);
                        state.push_ahead(entry.at);
                    } else {
                        state.limit = state.limit.min(entry.at);
                    }
                    continue;
                }
            }
            state.push(entry.word());
            state.push_ahead(entry.at);
        }
        Some(())
    }
}

/// Whether nothing happened between two snapshots that is not part of the state: losses, marks,
/// pauses.
fn is_uneventful(before: &Counts, now: &Counts) -> bool {
    let odd = |counts: &Counts| {
        let c = &counts.counters;
        [c.drops, c.retransmits, c.ecn_marks, c.cnps, c.pauses, c.trims, counts.throws]
    };
    odd(before) == odd(now)
}

/// By queue pair: packets and bytes that a jump passes over.
type Advances = IdVec<PairId, (u32, u64)>;

/// A jump: its period, how often that is repeated, and how many messages of each connection finish
/// in a period.
#[derive(Clone, Debug)]
struct Jump {
    /// When it begins.
    at: u64,
    period: u64,
    repeats: u64,
    ended: IdVec<ConnectionId, u32>,
}

impl Jump {
    /// By how much times are shifted.
    fn shift(&self) -> u64 {
        self.repeats * self.period
    }

    /// Shifts a time if it is in the future.
    fn shift_pending(&self, at: &mut u64) {
        if self.at < *at && *at != NEVER {
            *at += self.shift();
        }
    }

    /// A counter after the jump.
    fn extrapolate(&self, before: u64, now: u64) -> u64 {
        now + self.repeats * (now - before)
    }
}

/// What happened in the period that is to be repeated.
struct Period<'a> {
    completions: &'a [Completion],
    send_starts: Vec<SendStart>,
}

/// A replay of the operations of repeated periods, without packets.
struct DryRun {
    replay: Replay,
    started: IdVec<ConnectionId, Vec<StartedMessage>>,
    order: u32,
    ready: Vec<OpId>,
}

impl DryRun {
    /// The message in the place of another so many periods later, if it has started and is as
    /// large.
    fn counterpart(
        &self,
        simulation: &Simulation<'_>,
        jump: &Jump,
        op: OpId,
        time: u64,
    ) -> Option<StartedMessage> {
        let connection = simulation.connection_of(op)?;
        let slot = u64::from(simulation.repetition.start_indexes[op]);
        let slot = slot + time * u64::from(jump.ended[connection]);
        let counterpart = *self.started[connection].get(slot as usize)?;
        let ops = simulation.input.transfers.ops();
        (ops[op].kind == ops[counterpart.op].kind).then_some(counterpart)
    }

    /// Replays a period; none if it differs from the first.
    fn repeat(
        &mut self,
        simulation: &Simulation<'_>,
        jump: &Jump,
        period: &Period<'_>,
        time: u64,
    ) -> Option<()> {
        let shift = time * jump.period;
        for completion in period.completions {
            let op = self.counterpart(simulation, jump, completion.op, time)?.op;
            if !completion.is_finished {
                self.replay.arrive(op, &mut self.ready);
            } else if self.replay.waits(op) == Some(0) {
                self.replay.know(op, &mut self.ready);
            } else {
                return None;
            }
            for op in self.ready.drain(..) {
                let connection = simulation.connection_of(op)?;
                let started = StartedMessage { op, at: completion.at + shift, order: self.order };
                self.started[connection].push(started);
                self.order += 1;
            }
        }
        let mut last = (0, 0);
        for send_start in &period.send_starts {
            let counterpart = self.counterpart(simulation, jump, send_start.op, time)?;
            if send_start.waited {
                let posted = counterpart.at + simulation.send_latency(counterpart.op);
                if send_start.at + shift <= posted {
                    return None;
                }
                continue;
            }
            let began = simulation.started(send_start.op).at + shift;
            if counterpart.at != began || (last.0 == began && counterpart.order < last.1) {
                return None;
            }
            last = (began, counterpart.order);
        }
        self.no_other_started(simulation, jump, time)
    }

    /// At the end of a period: every message that has started and is not being sent waits for its
    /// queue pair. Where the state contains such messages, there are as many as before.
    fn no_other_started(&self, simulation: &Simulation<'_>, jump: &Jump, time: u64) -> Option<()> {
        let end = jump.at + time * jump.period;
        for (connection, started) in self.started.enumerate() {
            let state = simulation.visible_messages(connection);
            let state = state + time as usize * jump.ended[connection] as usize;
            let others = started.get(state..)?;
            let waits = match simulation.net.network.first_pair[connection.index()].get() {
                Some(pair) if simulation.is_fifo(connection) => {
                    simulation.ends.pairs[pair].sending != NOWHERE
                }
                _ if others.is_empty() => true,
                _ => return None,
            };
            let is_posted =
                |started: &StartedMessage| started.at + simulation.send_latency(started.op) < end;
            if !waits && others.iter().any(is_posted) {
                return None;
            }
        }
        Some(())
    }
}

impl Simulation<'_> {
    /// A message that has started.
    fn started(&self, op: OpId) -> StartedMessage {
        let connection = self.connection_of(op).expect("it is a message");
        self.repetition.started[connection][self.repetition.start_indexes[op] as usize]
    }

    /// Repeats the period since an equal snapshot as often as operations and limits allow; false if
    /// that is not even once.
    fn jump(&mut self, before: &Snapshot, counts: &Counts, state: &RelativeState) -> bool {
        let completions = self.repetition.completions.split_off(before.logged[0]);
        let Some(mut jump) = self.plan_jump(before, counts, state, &completions) else {
            return false;
        };
        let mut send_starts = self.repetition.send_starts.split_off(before.logged[1]);
        // A message that waits may be posted at any time before; the others must keep their order.
        let key = |send_start: &SendStart| {
            let started = self.started(send_start.op);
            (started.at, started.order)
        };
        send_starts.sort_by_key(key);
        let period = Period { completions: &completions, send_starts };
        let (_, repeats) = self.dry_run(&jump, &period);
        jump.repeats = repeats;
        if repeats == 0 {
            return false;
        }
        let (dry_run, _) = self.dry_run(&jump, &period);
        let visible_messages = self.net.network.first_pair.len();
        let visible_messages: IdVec<ConnectionId, usize> = (0..visible_messages)
            .map(|at| self.visible_messages(ConnectionId::from_index(at)))
            .collect();
        let in_flight = self.in_flight();
        let extrapolate = counts.acked.iter().zip(&before.counts.acked);
        let advances: Advances = extrapolate
            .map(|(now, then)| {
                (jump.repeats as u32 * (now.0 - then.0), jump.repeats * (now.1 - then.1))
            })
            .collect();
        self.move_operations(&jump, &completions, &in_flight, dry_run);
        self.move_pairs(&jump, &advances);
        self.move_packets(&jump, &advances);
        self.move_events(&jump, &visible_messages);
        self.extrapolate_counters(&jump, &before.counts, counts);
        self.repetition.jumps += 1;
        self.repetition.skipped_periods += jump.repeats;
        true
    }

    /// Replays periods, and says how many go well.
    fn dry_run(&self, jump: &Jump, period: &Period<'_>) -> (DryRun, u64) {
        let mut dry_run = DryRun {
            replay: self.ends.operations.replay.clone(),
            started: self.repetition.started.clone(),
            order: self.repetition.order,
            ready: Vec::new(),
        };
        for time in 1..=jump.repeats {
            if dry_run.repeat(self, jump, period, time).is_none() {
                return (dry_run, time - 1);
            }
        }
        (dry_run, jump.repeats)
    }

    /// A jump as long as limits allow; operations may make it shorter.
    fn plan_jump(
        &self,
        before: &Snapshot,
        counts: &Counts,
        state: &RelativeState,
        completions: &[Completion],
    ) -> Option<Jump> {
        let mut ended = IdVec::from(vec![0_u32; self.input.transfers.connections().len()]);
        for completion in completions {
            let connection = self.connection_of(completion.op)?;
            ended[connection] += u32::from(completion.is_finished);
        }
        let stays =
            |op: OpId| self.connection_of(op).is_none_or(|connection| ended[connection] == 0);
        if ended.iter().all(|ended| *ended == 0) || self.in_flight().into_iter().any(stays) {
            return None;
        }
        let (at, period) = (state.at, state.at - before.at);
        let starts = self.time.stations.next_global_start();
        let limit = state.limit.min(starts).min(self.input.settings.limits.time.as_ps());
        let mut repeats = limit.saturating_sub(at + 1) / period;
        let events = counts.counters.events - before.counts.counters.events;
        let left = self.input.settings.limits.events.saturating_sub(counts.counters.events);
        repeats = repeats.min(left / events.max(1));
        for (number, pair) in self.ends.pairs.enumerate() {
            let packets = u64::from(counts.acked[number].0 - before.counts.acked[number].0);
            let room = u64::from(u32::MAX - 1 - pair.end);
            repeats = repeats.min(room.checked_div(packets).unwrap_or(u64::MAX));
        }
        Some(Jump { at, period, repeats, ended })
    }

    /// The message in the place of one in flight after the jump, when the dry run is in force.
    fn counterpart(&self, jump: &Jump, op: OpId) -> OpId {
        let connection = self.connection_of(op).expect("only messages are moved");
        let slot = self.repetition.start_indexes[op] as usize;
        let slot = slot + jump.repeats as usize * jump.ended[connection] as usize;
        self.repetition.started[connection][slot].op
    }

    /// The messages in the place of one in each of the skipped periods.
    fn copies_of(&self, jump: &Jump, op: OpId) -> Vec<(u64, OpId)> {
        let connection = self.connection_of(op).expect("only messages are repeated");
        let (slot, ended) =
            (self.repetition.start_indexes[op] as usize, jump.ended[connection] as usize);
        let started = &self.repetition.started[connection];
        (1..=jump.repeats).map(|time| (time, started[slot + time as usize * ended].op)).collect()
    }

    /// Finishes the operations of the skipped periods, and shifts those that have started.
    fn move_operations(
        &mut self,
        jump: &Jump,
        completions: &[Completion],
        in_flight: &[OpId],
        dry_run: DryRun,
    ) {
        let before: Vec<usize> = self.repetition.started.iter().map(Vec::len).collect();
        (self.repetition.started, self.repetition.order) = (dry_run.started, dry_run.order);
        for (started, before) in self.repetition.started.iter().zip(before) {
            for (slot, started) in started.iter().enumerate().skip(before) {
                self.repetition.start_indexes[started.op] = slot as StartIndex;
                self.ends.operations.started_at[started.op.index()] = started.at;
            }
        }
        self.ends.operations.replay = dry_run.replay;
        let mut moved = Vec::new();
        let shift = |time: u64| Span::from_ps(time * jump.period);
        // What has arrived by now did so at a time of its own, which need not repeat; what arrives
        // in the repeated periods, or is still to be read, does.
        for completion in completions.iter().filter(|completion| !completion.is_finished) {
            for (time, op) in self.copies_of(jump, completion.op) {
                let at = completion.at + shift(time).as_ps();
                self.ends.operations.received_at[op.index()] = at;
            }
        }
        for op in in_flight {
            let operations = &self.ends.operations;
            let (at, received) = (op.index(), operations.received_at[op.index()]);
            let parts = [operations.parts_left[at], operations.parts_missing[at]];
            moved.push((self.counterpart(jump, *op), received, parts));
        }
        for completion in completions.iter().filter(|completion| completion.is_finished) {
            let before = self.ends.operations.outcome[completion.op].expect("it was over");
            for (time, op) in self.copies_of(jump, completion.op) {
                let start = Time::from_ps(self.started(op).at);
                let received = if jump.at < before.received.as_ps() {
                    before.received + shift(time)
                } else {
                    Time::from_ps(self.ends.operations.received_at[op.index()])
                };
                let finish = before.finish + shift(time);
                self.ends.operations.received_at[op.index()] = received.as_ps();
                self.ends.operations.outcome[op] = Some(OpTimes { start, received, finish });
            }
            let connection = self.connection_of(completion.op).expect("only messages end");
            self.repetition.finished[connection] += jump.repeats as u32;
        }
        let operations = &mut self.ends.operations;
        for (op, received, [left, missing]) in moved {
            let at = op.index();
            if jump.at < received {
                operations.received_at[at] = received + jump.shift();
            }
            (operations.parts_left[at], operations.parts_missing[at]) = (left, missing);
        }
        operations.serial_free.iter_mut().for_each(|free| jump.shift_pending(free));
    }

    /// Shifts sequence numbers and times of queue pairs and their messages.
    fn move_pairs(&mut self, jump: &Jump, advances: &Advances) {
        let shift = jump.shift();
        for number in self.ends.pairs.ids() {
            let (packets, bytes) = advances[number];
            let pair = &self.ends.pairs[number];
            if packets == 0 {
                let pair = &mut self.ends.pairs[number];
                jump.shift_pending(&mut pair.next_send);
                continue;
            }
            let mut messages: Vec<u32> = self.visible_messages_of(pair).collect();
            if pair.sending != NOWHERE && self.is_fifo_pair(pair) {
                // Those behind it may be others after the jump: they are posted again.
                let (sending, end) = (pair.sending, self.visible_end(pair));
                let pair = &mut self.ends.pairs[number];
                (pair.last, pair.end) = (sending, end);
                self.ends.messages[sending as usize].next = NOWHERE;
            }
            let last = self.ends.pairs[number].last;
            if last != NOWHERE && !messages.contains(&last) {
                messages.push(last);
            }
            for message in messages {
                let op = self.counterpart(jump, self.ends.messages[message as usize].op);
                let message = &mut self.ends.messages[message as usize];
                message.op = op;
                message.first += packets;
                message.before += bytes;
                message.posted += shift;
            }
            let Pair { next, end, una, high, asked, arrived, .. } = &mut self.ends.pairs[number];
            for psn in [next, end, una, high, asked, arrived] {
                *psn += packets;
            }
            let pair = &mut self.ends.pairs[number];
            pair.sent_bytes += bytes;
            pair.acked_bytes += bytes;
            let times = [
                &mut pair.next_send,
                &mut pair.posted,
                &mut pair.progress_at,
                &mut pair.busy_until,
            ];
            times.into_iter().for_each(|time| *time += shift);
            let light = self.ends.light_acks.get_mut(number);
            for (at, ack) in light.into_iter().flat_map(|acks| &mut acks.under_way) {
                *at += shift;
                ack.psn += packets;
                ack.sent = ack.sent.wrapping_add((shift / 1_000) as u32);
            }
            let inbox = &mut self.ends.inboxes[number];
            inbox.expected += packets;
            for psn in [&mut inbox.message_end, &mut inbox.asked] {
                *psn = if *psn == NOWHERE { NOWHERE } else { *psn + packets };
            }
        }
        for sender in self.ends.senders.iter_mut() {
            jump.shift_pending(&mut sender.wake_at);
            jump.shift_pending(&mut sender.posting_until);
            for (pair, due) in sender.pairs.iter().zip(&mut sender.due) {
                *due = self.ends.pairs[*pair].due();
            }
        }
    }

    /// Shifts packets on wires and in queues.
    fn move_packets(&mut self, jump: &Jump, advances: &Advances) {
        let shift = jump.shift();
        for link in self.net.ports.ids() {
            jump.shift_pending(&mut self.net.ports[link].free_at);
            let wire = self.net.ports[link].wire;
            for behind in 0..wire.len() {
                let place = wire.place(behind);
                let pair = self.pair_on_way(self.net.wires.at(place));
                let packet = &mut self.net.wires.places()[place];
                packet.at = packet.at.wrapping_add(shift as u32);
                packet.psn += advances[pair].0;
                packet.sent = packet.sent.wrapping_add((shift / 1_000) as u32);
            }
            let queues: Vec<_> =
                self.net.ports[link].classes.iter().map(|class| class.queue).collect();
            for queue in queues {
                for behind in 0..queue.len() {
                    let place = queue.place(behind);
                    let pair = self.pair_on_way(&self.net.queued.at(place).packet);
                    let packet = &mut self.net.queued.places()[place].packet;
                    packet.psn += advances[pair].0;
                    packet.sent = packet.sent.wrapping_add((shift / 1_000) as u32);
                }
            }
        }
    }

    /// Shifts pending events.
    fn move_events(&mut self, jump: &Jump, visible_messages: &IdVec<ConnectionId, usize>) {
        let shift = jump.shift();
        let now = jump.at + shift;
        let mut moved: Vec<Entry> = Vec::new();
        // Tickets of messages that are still to be posted.
        let mut tickets: Vec<(OpId, u32)> = Vec::new();
        let common = self.time.calendar.entries();
        for entry in common.into_iter().chain(self.time.stations.entries()) {
            let event = match entry.event() {
                Event::SwitchBatch(_) | Event::StationAhead(_) => continue,
                Event::OperationEnded(op) => match self.connection_of(op) {
                    None => {
                        moved.push(entry);
                        continue;
                    }
                    Some(connection) if self.is_fifo(connection) => {
                        self.ends.operations.pending -= 1;
                        tickets.extend(
                            self.started_counterpart(jump, op).map(|op| (op, entry.ticket)),
                        );
                        continue;
                    }
                    Some(_) => Event::OperationEnded(self.counterpart(jump, op)),
                },
                Event::Rare(number) => {
                    let RareEvent::MessageRead { op } = self.time.rare_events[number as usize]
                    else {
                        moved.push(entry);
                        continue;
                    };
                    let op = self.counterpart(jump, op);
                    self.time.rare_events[number as usize] = RareEvent::MessageRead { op };
                    entry.event()
                }
                Event::Timeout(pair) => {
                    // It only checks for progress since then.
                    let due = self.ends.pairs[pair].progress_at + self.ends.pairs[pair].timeout;
                    moved.push(Entry::new(due.max(now), entry.ticket, entry.event()));
                    continue;
                }
                event => event,
            };
            moved.push(Entry::new(entry.at + shift, entry.ticket, event));
        }
        moved.extend(self.repost_messages(jump, visible_messages, &tickets));
        self.time.calendar.restart(now);
        self.time.stations.clear();
        self.time.now = now;
        for number in self.net.switches.ids() {
            self.net.switches[number].next_at = NEVER;
            let is_batched = self.net.switches[number].is_batched();
            self.time.clocks.set_switch_next(number, if is_batched { NEVER } else { 0 });
        }
        for station in self.time.stations.ids() {
            self.time.clocks.set_station_next(station, NEVER);
        }
        for entry in moved {
            self.schedule(entry.at, entry.ticket, entry.event());
        }
        for number in self.net.switches.ids() {
            self.schedule_next_batch(number);
        }
    }

    /// The message in the place of one that is to be posted, if that has started.
    fn started_counterpart(&self, jump: &Jump, op: OpId) -> Option<OpId> {
        let connection = self.connection_of(op)?;
        let slot = self.repetition.start_indexes[op] as usize;
        let slot = slot + jump.repeats as usize * jump.ended[connection] as usize;
        self.repetition.started[connection].get(slot).map(|started| started.op)
    }

    /// Posts the messages that have started by the end of a jump and that no queue pair has started
    /// to send; returns events for those that are posted later.
    fn repost_messages(
        &mut self,
        jump: &Jump,
        visible_messages: &IdVec<ConnectionId, usize>,
        tickets: &[(OpId, u32)],
    ) -> Vec<Entry> {
        let now = jump.at + jump.shift();
        let mut unposted: Vec<StartedMessage> = Vec::new();
        for connection in visible_messages.ids() {
            if !self.is_fifo(connection) {
                continue;
            }
            let pair = self.net.network.first_pair[connection.index()].known();
            let state = visible_messages[connection]
                + jump.repeats as usize * jump.ended[connection] as usize;
            for at in state..self.repetition.started[connection].len() {
                let started = self.repetition.started[connection][at];
                let posted = started.at + self.send_latency(started.op);
                let OpKind::Send { bytes, .. } = self.input.transfers.ops()[started.op].kind else {
                    continue;
                };
                if now <= posted {
                    unposted.push(started);
                } else if jump.ended[connection] != 0 {
                    self.set_part_count(started.op, 1);
                    self.queue_message(pair, started.op, bytes.get(), posted);
                }
            }
        }
        unposted.sort_by_key(|started| (started.at, started.order));
        self.ends.operations.pending += unposted.len();
        let entry = |started: StartedMessage| {
            let known = tickets.iter().find(|(op, _)| *op == started.op);
            let ticket = known.map_or_else(|| self.time.calendar.ticket(), |(_, ticket)| *ticket);
            let at = started.at + self.send_latency(started.op);
            Entry::new(at, ticket, Event::OperationEnded(started.op))
        };
        unposted.into_iter().map(entry).collect()
    }

    fn extrapolate_counters(&mut self, jump: &Jump, before: &Counts, now: &Counts) {
        let extrapolate = |before: u64, now: u64| jump.extrapolate(before, now);
        let (a, b) = (&before.counters, &now.counters);
        let counters = &mut self.accounts.counters;
        counters.events = extrapolate(a.events, b.events);
        counters.packets = extrapolate(a.packets, b.packets);
        counters.packet_hops = extrapolate(a.packet_hops, b.packet_hops);
        let (a, b) = (&before.tally, &now.tally);
        let tally = &mut self.accounts.tally;
        tally.delivered_data = extrapolate(a.delivered_data, b.delivered_data);
        tally.duplicate_data = extrapolate(a.duplicate_data, b.duplicate_data);
        tally.discarded_data = extrapolate(a.discarded_data, b.discarded_data);
        tally.reordered = extrapolate(a.reordered, b.reordered);
        let ports = self.net.ports.iter_mut().zip(before.bytes.iter().zip(&now.bytes));
        ports.for_each(|(port, (a, b))| port.bytes = extrapolate(*a, *b));
        let lanes = self.net.lane_counts.iter_mut().zip(before.lanes.iter().zip(&now.lanes));
        lanes.for_each(|(lane, (a, b))| lane.bytes = extrapolate(*a, *b));
        let acks = before.light_acks.iter().zip(&now.light_acks);
        let light = self.ends.light_acks.iter_mut().zip(acks);
        light.for_each(|(light, (a, b))| light.sent = extrapolate(*a, *b));
    }
}

#[cfg(test)]
mod tests {
    use fabric::Fabric;
    use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
    use traffic::collective::{Collective, Communicator, Detail, Group, Limit, Wanted, lower};
    use traffic::{Connection, Outcome, Transfers, nccl};
    use units::{Bytes, Random, Rate};

    use super::*;
    use crate::Settings;
    use crate::cc::{CcConfig, none};
    use crate::simulation::Watch;

    fn fabric(random: &mut Random) -> Fabric {
        let per_node = [1, 2, 4][random.below(3) as usize];
        let cluster = ClusterConfig {
            gpus: Some(16),
            gpus_per_node: per_node,
            nics_per_node: per_node,
            ..ClusterConfig::default()
        };
        let link = |random: &mut Random| LinkConfig {
            rate: Some(Rate::from_gbps(400)),
            delay: Some(Span::from_ns(10 + random.below(1_200))),
            length: None,
        };
        let tiers: Vec<LinkConfig> = (0..3).map(|_| link(random)).collect();
        let (topology, links) = match random.below(3) {
            0 => (TopologyKind::RailOptimized, tiers[..2].to_vec()),
            1 => (TopologyKind::Clos, tiers[..2].to_vec()),
            _ => (TopologyKind::FatTree, tiers),
        };
        let k = (topology == TopologyKind::FatTree).then_some(4);
        let config = FabricConfig { topology, k, links, ..FabricConfig::default() };
        build(&cluster, &config, &Default::default()).expect("it is well-formed")
    }

    /// Rings in one or several groups, with or without something else beside them.
    fn transfers(random: &mut Random, fabric: &Fabric) -> Transfers {
        let mut transfers = Transfers::new();
        let label = transfers.label("rings");
        let collectives = [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather];
        let collective = collectives[random.below(3) as usize];
        let bytes = Bytes::from_mib(16 << random.below(3));
        let settings = nccl::Settings { algorithm: Some("ring".to_owned()), ..Default::default() };
        let groups = [1, 1, 4][random.below(3) as usize];
        for group in 0..groups {
            let gpus = (group..fabric.gpus()).step_by(groups);
            let gpus: Vec<_> = gpus.map(|gpu| fabric.gpu(gpu)).collect();
            let mut group = Group::new(Communicator::new(fabric, &gpus));
            let (weights, limit, detail) = (&[][..], Limit::NONE, Detail::Stepwise);
            let settings = &settings;
            let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
            let end = lower(fabric, &mut group, &wanted, &mut transfers, &[]).expect("a ring");
            if random.below(3) == 0 {
                lower(fabric, &mut group, &wanted, &mut transfers, &[end.end]).expect("a ring");
            }
        }
        if random.below(3) == 0 {
            // A message in the middle of the run that breaks the repetition.
            let span = Span::from_ps(random.below(400_000_000));
            let wait = transfers.add(OpKind::Wait { span }, label, &[]);
            let (from, to) = (fabric.nic(0), fabric.nic(9));
            let other = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
            transfers.send(other, Bytes::from_kib(100), label, &[wait]);
        }
        transfers
    }

    fn settings(random: &mut Random, seed: u64) -> Settings {
        let mut settings = Settings { seed, ..Settings::default() };
        if random.below(2) == 0 {
            settings.congestion = CcConfig::None(none::Config {});
        }
        settings.nic.ack_every = [1, 1, 4][random.below(3) as usize];
        settings.nic.send_latency = Span::from_ns([0, 600][random.below(2) as usize]);
        settings.nic.receive_latency = Span::from_ns([0, 700][random.below(2) as usize]);
        settings.nic.timeout = Span::from_us([100, 4_000_000][random.below(2) as usize]);
        settings.routing.qps = [1, 2, 4][random.below(3) as usize];
        let uses =
            [fabric::routing::QueuePairUse::Split, fabric::routing::QueuePairUse::RoundRobin];
        settings.routing.split = uses[random.below(2) as usize];
        settings
    }

    fn run(
        fabric: &Fabric,
        transfers: &Transfers,
        settings: &Settings,
        forward: Forward,
    ) -> (Outcome, u64) {
        let mut settings = settings.clone();
        settings.packet.forward = forward;
        let faults = Default::default();
        let mut simulation =
            crate::build::build(fabric, transfers, &settings, &faults).expect("it can be run");
        let outcome = simulation.run(&mut Watch::default());
        (outcome, simulation.repetition.jumps)
    }

    /// Agreement: what is jumped over comes out as if it had been simulated, to the picosecond.
    #[test]
    fn jumps_change_nothing() {
        let (mut jumped, mut all) = (0, 0);
        for seed in 0..40 {
            let mut random = Random::new(seed, "repetition", 0);
            let fabric = fabric(&mut random);
            let transfers = transfers(&mut random, &fabric);
            let settings = settings(&mut random, seed);
            let (whole, none) = run(&fabric, &transfers, &settings, Forward::Off);
            let (jumps, some) = run(&fabric, &transfers, &settings, Forward::Exact);
            assert_eq!(none, 0);
            for op in transfers.ops().ids() {
                assert_eq!(whole.ops[op], jumps.ops[op], "seed {seed}, {op:?}");
            }
            assert_eq!(whole.links, jumps.links, "seed {seed}");
            assert_eq!(whole.digest, jumps.digest, "seed {seed}");
            all += 1;
            jumped += u32::from(0 < some);
        }
        assert!(all < 7 * jumped, "only {jumped} of {all} jumped");
    }
}
