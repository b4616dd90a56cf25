//! Repetition in time: when everything that can be felt is as it was some time ago, what happened
//! since then happens again, and time jumps.
//!
//! Time is whole picoseconds, so states can be equal. One connection, that with the most messages,
//! beats time: after each of its messages the run comes to a halt at a common instant, somewhat
//! later than anybody has run ahead, and writes down what can be felt: packets and events by the
//! time that is left to them, sequence numbers by how far they are ahead of what is acknowledged,
//! messages by how far they are ahead of those that are over ([`Felt`]). If it has written the
//! same before, the period between the two is repeated without being simulated: messages end one
//! period later each time, counters grow by what they grew by, and everything that is under way
//! is moved along.
//!
//! Which operation a message belongs to is not felt, only the order in which the messages of a
//! connection begin ([`Slot`]); nor is a message that waits behind others of its queue pair. So
//! each repeated period is first walked through by its operations alone ([`Walk`]): what arrives
//! lets others begin, which need not be those that began before. Whatever a queue pair turns to
//! ([`Turn`]) must have been posted by then, and at the same time of the period if the queue pair
//! waited for it.
//!
//! Not part of what is felt, and moved along too: sequence numbers themselves, counters,
//! retransmission timeouts (they look up when something was last heard). Not part of it, and limits
//! of a jump: operations that wait for a time of their own, pauses that may have to be looked at.
//! Nothing is looked for where a rate moves, where dice are thrown for marks, where somebody is
//! paused, or where paths are chosen by packet.
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
use crate::simulation::{Agenda, Simulation, Tally};

const NEVER: u64 = u64::MAX;

/// So many states are remembered: periods of up to so many messages are found.
const REMEMBERED: usize = 4;

/// A connection must carry so many messages for its repetition to be looked for.
const FEWEST: usize = 8;

/// With so many, what the first few take is little beside the whole.
const MANY: usize = 32;

/// A state in which something moves is as little reason for hope as so many more that differ.
const IN_MOTION: u32 = 2;

/// What happens between two states is at least so many times what writing one down costs; more,
/// the longer nothing has repeated itself.
const SHARE: [u64; 2] = [4, 64];

/// What is known of a run's repetition.
#[derive(Debug, Default)]
pub(crate) struct Repetition {
    /// The connection that beats time, if it is looked for.
    beat: Option<ConnectionId>,
    /// How many messages that carries.
    messages: usize,
    /// When the state is written down next.
    pub look_at: u64,
    /// The messages of each connection in the order in which they began.
    begun: IdVec<ConnectionId, Vec<Begun>>,
    /// The place of each message among them.
    slots: IdVec<OpId, Slot>,
    /// How many messages have begun.
    order: u32,
    seen: VecDeque<Snapshot>,
    /// Operations that arrived or were known to be over since the oldest of them, and messages that
    /// queue pairs turned to.
    log: Vec<Step>,
    turns: Vec<Turn>,
    /// How many messages of each connection are over.
    over: IdVec<ConnectionId, u32>,
    /// Events until the state was last written down, and what it cost.
    last: (u64, u64),
    /// How many times that must happen before the next is written down.
    share: u64,
    /// States that were written down, and how many of them may be in vain.
    looks: u32,
    pub patience: u32,
    /// Jumps, and periods that they skipped.
    pub jumps: u64,
    pub skipped: u64,
}

/// The how manieth of its connection's messages to begin one is.
type Slot = u32;

/// One that has not begun.
const NOT_BEGUN: Slot = u32::MAX;

/// A message that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    op: OpId,
    at: u64,
    /// Among all messages.
    order: u32,
}

/// Something that lets operations begin: a message arrives, or its sender knows that it has.
#[derive(Clone, Copy, Debug)]
struct Step {
    op: OpId,
    /// Its sender knows.
    is_over: bool,
    at: u64,
}

/// A queue pair turns to a message.
#[derive(Clone, Copy, Debug)]
struct Turn {
    op: OpId,
    at: u64,
    /// The message waited for its turn; else the queue pair, or nobody, waited for the message.
    waited: bool,
}

/// A state.
#[derive(Debug)]
struct Snapshot {
    at: u64,
    felt: Vec<u64>,
    counts: Counts,
    /// Where the logs of steps and turns stood.
    logged: [usize; 2],
}

/// What grows.
#[derive(Debug)]
struct Counts {
    counters: Counters,
    tally: Tally,
    throws: u64,
    /// By link: bytes.
    bytes: Vec<u64>,
    /// By lane of a link: bytes.
    lanes: Vec<u64>,
    /// By queue pair: packets and bytes acknowledged, and acknowledgements that take no links.
    acked: IdVec<PairId, (u32, u64)>,
    light_acks: IdVec<PairId, u64>,
}

impl Repetition {
    /// Nobody looks for it.
    pub(crate) fn off() -> Self {
        Self { look_at: NEVER, patience: u32::MAX, ..Self::default() }
    }

    /// Whether it is looked for, and what it takes to find it is little beside the whole.
    pub(crate) fn is_promising(&self) -> bool {
        self.beat.is_some() && MANY <= self.messages
    }

    /// Whether it has been looked for in vain for as long as anybody wants to.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.jumps == 0 && self.patience <= self.looks
    }

    /// Forgets all states.
    fn forget(&mut self) {
        self.seen.clear();
        self.log.clear();
        self.turns.clear();
    }

    /// Whether it matters what happens now: a state is known or will be.
    #[inline]
    fn keeps_log(&self) -> bool {
        !self.seen.is_empty() || self.look_at != NEVER
    }

    fn begin(&mut self, connection: ConnectionId, op: OpId, at: u64) {
        let slots = &mut self.begun[connection];
        self.slots[op] = slots.len() as Slot;
        slots.push(Begun { op, at, order: self.order });
        self.order += 1;
    }

    /// For a run, if it can repeat itself.
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
        let beat = most.filter(|at| FEWEST <= messages[*at]);
        let most = most.map_or(0, |at| messages[at]);
        let (over, begun) =
            (vec![0; messages.len()].into(), vec![Vec::new(); messages.len()].into());
        let slots = vec![NOT_BEGUN; if beat.is_some() { input.transfers.ops().len() } else { 0 }];
        Self { beat, messages: most, over, begun, slots: slots.into(), ..Self::off() }
    }
}

/// What can be felt, as numbers.
struct Felt {
    at: u64,
    words: Vec<u64>,
    /// Nothing is moved past this.
    limit: u64,
}

impl Felt {
    fn push(&mut self, word: u64) {
        self.words.push(word);
    }

    /// A time that is felt in the future only.
    fn push_ahead(&mut self, at: u64) {
        self.push(if at == NEVER { NEVER } else { at.saturating_sub(self.at) });
    }

    /// A time that is felt whenever it was.
    fn push_time(&mut self, at: u64) {
        self.push(if at == NEVER { NEVER } else { at.wrapping_sub(self.at) });
    }
}

impl Simulation<'_> {
    /// A message begins.
    #[inline]
    pub(crate) fn note_begin(&mut self, op: OpId) {
        let OpKind::Send { connection, .. } = self.input.transfers.ops()[op].kind else { return };
        if self.repetition.beat.is_some() {
            let at = self.time.now;
            self.repetition.begin(connection, op, at);
            if !self.is_loose(connection) {
                self.note_turn(op, false);
            }
        }
    }

    /// A queue pair turns to a message of an operation, which waited for that or has just come.
    #[inline]
    pub(crate) fn note_turn(&mut self, op: OpId, waited: bool) {
        if self.repetition.keeps_log() {
            self.repetition.turns.push(Turn { op, at: self.time.now, waited });
        }
    }

    /// Whether it is not felt when a connection's messages are posted as long as others are before
    /// them: its only queue pair takes them in order. With several, posting takes the host time,
    /// and over the scale-up network a message begins at once.
    #[inline]
    fn is_loose(&self, connection: ConnectionId) -> bool {
        self.net.network.pairs_of[connection.index()] == 1
    }

    /// An operation has arrived, or is known to be over.
    #[inline]
    pub(crate) fn note_progress(&mut self, op: OpId, is_over: bool) {
        let Some(beat) = self.repetition.beat else { return };
        if self.repetition.keeps_log() {
            self.repetition.log.push(Step { op, is_over, at: self.time.now });
        }
        if !is_over {
            return;
        }
        let OpKind::Send { connection, .. } = self.input.transfers.ops()[op].kind else { return };
        self.repetition.over[connection] += 1;
        let (events, cost) = self.repetition.last;
        let is_worth_it =
            self.repetition.share.max(SHARE[0]) * cost <= self.accounts.counters.events - events;
        if connection == beat && self.repetition.look_at == NEVER && is_worth_it {
            // Nobody has run ahead further than two of the longest cables.
            self.repetition.look_at = self.time.now + 2 * self.net.longest + 1;
            self.set_barrier();
        }
    }

    /// Writes the state down, and jumps if it is one that was there before.
    pub(crate) fn look_for_repetition(&mut self) {
        let at = std::mem::replace(&mut self.repetition.look_at, NEVER);
        self.repetition.looks = self.repetition.looks.saturating_add(1);
        self.set_barrier();
        let Some(felt) = self.felt(at) else {
            // Something is in motion that seldom comes to rest.
            self.repetition.looks = self.repetition.looks.saturating_add(IN_MOTION);
            self.repetition.last = (self.accounts.counters.events, self.state_size());
            self.repetition.forget();
            return;
        };
        self.repetition.last = (self.accounts.counters.events, self.state_size());
        let counts = self.counts();
        let known = self
            .repetition
            .seen
            .iter()
            .rposition(|seen| seen.felt == felt.words && is_quiet(&seen.counts, &counts));
        if let Some(known) = known {
            let before = self.repetition.seen.swap_remove_back(known).expect("it was found there");
            let jumped = self.jump(&before, &counts, &felt);
            self.repetition.forget();
            if jumped {
                self.repetition.share = SHARE[0];
            }
            return;
        }
        let Repetition { seen, log, turns, share, .. } = &mut self.repetition;
        if seen.len() == REMEMBERED {
            // In vain so far.
            *share = (*share * 5 / 4 + 1).clamp(SHARE[0], SHARE[1]);
            seen.pop_front();
            let all = [log.len(), turns.len()];
            let forgotten = seen.front().map_or(all, |oldest| oldest.logged);
            log.drain(..forgotten[0]);
            turns.drain(..forgotten[1]);
            for seen in seen.iter_mut() {
                seen.logged = [0, 1].map(|at| seen.logged[at] - forgotten[at]);
            }
        }
        let logged = [log.len(), turns.len()];
        seen.push_back(Snapshot { at, felt: felt.words, counts, logged });
    }

    /// About how many things are looked at to write a state down.
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

    /// What can be felt at an instant that everybody has reached and nobody has passed; nothing if
    /// something is under way that is not moved along.
    fn felt(&mut self, at: u64) -> Option<Felt> {
        for link in self.net.ports.ids() {
            self.apply_departures_before(link, at);
        }
        let mut felt = Felt { at, words: Vec::new(), limit: NEVER };
        self.feel_links(&mut felt)?;
        self.feel_pairs(&mut felt)?;
        self.feel_operations(&mut felt);
        self.feel_events(&mut felt)?;
        Some(felt)
    }

    fn feel_links(&self, felt: &mut Felt) -> Option<()> {
        for (link, port) in self.net.ports.enumerate() {
            let is_held = (port.paused | port.pausing) != 0;
            if is_held || !self.net.pauses[link].flying.is_empty() {
                return None;
            }
            let charged = port.used.iter().any(|used| *used != 0);
            let is_idle = port.wire.is_empty() && port.waiting == 0 && port.free_at <= felt.at;
            if is_idle && !charged && !port.free_event_pending {
                continue;
            }
            felt.push(u64::from(link.raw()) << 32 | u64::from(port.waiting));
            felt.push(u64::from(port.queued) << 1 | u64::from(port.free_event_pending));
            felt.push_ahead(port.free_at);
            port.used.iter().for_each(|used| felt.push(u64::from(*used)));
            for packet in self.net.wires.iter(port.wire) {
                self.feel_packet(felt, packet, packet.at.wrapping_sub(felt.at as u32));
            }
            for (queue, over) in port.classes.iter().zip(port.over.iter()) {
                felt.push(u64::from(queue.queued) << 32 | u64::from(*over));
                for waiting in self.net.queued.iter(queue.queue) {
                    self.feel_packet(felt, &waiting.packet, waiting.from.raw());
                }
            }
        }
        if self.input.rules.control_share != 0 || 1 < self.input.rules.lanes {
            let deficits = self.net.ports.iter().flat_map(|port| port.deficits.iter());
            deficits.for_each(|deficit| felt.push(*deficit as u64));
        }
        for switch in &self.net.switches {
            if 0 < switch.pausing || switch.alert {
                return None;
            }
            felt.push(switch.charged);
            felt.push(switch.shared);
            felt.push(switch.lossy << 8 | u64::from(switch.eventful));
        }
        Some(())
    }

    fn feel_packet(&self, felt: &mut Felt, packet: &Packet, when: u32) {
        let una = self.ends.pairs[self.pair_on_way(packet)].una;
        felt.push(u64::from(when) << 32 | u64::from(packet.psn.wrapping_sub(una)));
        let kind = u64::from(packet.purpose as u8) << 8 | u64::from(packet.flags);
        felt.push(u64::from(packet.route) << 32 | u64::from(packet.size) << 16 | kind);
    }

    /// The queue pair of a packet anywhere on its way.
    fn pair_on_way(&self, packet: &Packet) -> PairId {
        let ahead = &self.net.paths[packet.route as usize..];
        let end = ahead.iter().find(|at| **at & PATH_END != 0).expect("every path has an end");
        PairId::of(end & !PATH_END)
    }

    fn feel_pairs(&self, felt: &mut Felt) -> Option<()> {
        for (number, pair) in self.ends.pairs.enumerate() {
            let inbox = &self.ends.inboxes[number];
            if !pair.control.is_resting() || !pair.resend.is_empty() || 0 < inbox.early.len() {
                return None;
            }
            felt.push_ahead(pair.next_send);
            for (at, ack) in
                self.ends.light_acks.get(number).iter().flat_map(|acks| &acks.under_way)
            {
                felt.push_ahead(*at);
                let psn = u64::from(ack.psn.wrapping_sub(pair.una));
                felt.push(psn << 32 | u64::from(ack.route) << 8 ^ u64::from(ack.flags));
            }
            felt.push(u64::from(inbox.unacked) << 32 | u64::from(pair.overdue_pending));
            let end = self.felt_end(pair);
            if pair.una == end {
                continue;
            }
            let una = pair.una;
            for psn in [pair.next, end, pair.high, inbox.expected] {
                felt.push(u64::from(psn.wrapping_sub(una)));
            }
            let end = Some(inbox.message_end).filter(|end| *end != u32::MAX);
            felt.push(end.map_or(NEVER, |end| u64::from(end.wrapping_sub(una))));
            let asked = Some(inbox.asked).filter(|psn| *psn != NOWHERE && inbox.expected <= *psn);
            felt.push(asked.map_or(NEVER, |psn| u64::from(psn - una)));
            felt.push(u64::from(pair.asked.saturating_sub(una)));
            felt.push(pair.sent_bytes.wrapping_sub(pair.acked_bytes));
            felt.push_time(pair.next_send);
            felt.push_ahead(pair.posted);
            felt.push_time(pair.progress_at);
            felt.push(u64::from(pair.tries) << 32 | u64::from(pair.last_size));
            felt.push(pair.rate_bps ^ pair.window);
            for message in self.messages_of(pair) {
                let message = &self.ends.messages[message as usize];
                felt.push(
                    u64::from(message.first.wrapping_sub(una)) << 32 | u64::from(message.packets),
                );
                felt.push(message.bytes);
                felt.push_ahead(message.posted);
            }
        }
        for (number, sender) in self.ends.senders.enumerate() {
            felt.push(sender.turn as u64);
            felt.push_ahead(sender.wake_at);
            felt.push_ahead(sender.posting_until);
            for (pair, due) in sender.pairs.iter().zip(&sender.due) {
                felt.push(u64::from(number.raw()) << 32 | u64::from(pair.raw()));
                felt.push_ahead(*due);
            }
        }
        Some(())
    }

    /// Whether only those of a queue pair's messages are felt that it has turned to.
    fn is_loose_pair(&self, pair: &Pair) -> bool {
        pair.last != NOWHERE
            && self
                .connection_of(self.ends.messages[pair.last as usize].op)
                .is_some_and(|connection| self.is_loose(connection))
    }

    /// One past the last packet of a queue pair that is felt.
    fn felt_end(&self, pair: &Pair) -> u32 {
        match pair.sending {
            at if at != NOWHERE && self.is_loose_pair(pair) => {
                self.ends.messages[at as usize].end()
            }
            _ => pair.end,
        }
    }

    /// The messages of a queue pair that are felt and not acknowledged in full.
    fn messages_of(&self, pair: &Pair) -> impl Iterator<Item = u32> {
        let end = self.felt_end(pair);
        let next = move |at: &u32| {
            let message = &self.ends.messages[*at as usize];
            Some(message.next).filter(|at| *at != NOWHERE && message.end() < end)
        };
        std::iter::successors(Some(pair.waiting).filter(|at| *at != NOWHERE), next)
    }

    /// How many messages of a connection are felt or over: of one with a single queue pair, those
    /// that it has turned to.
    fn felt_slots(&self, connection: ConnectionId) -> usize {
        let begun = self.repetition.begun[connection].len();
        match self.net.network.first_pair[connection.index()].get() {
            Some(pair) if self.is_loose(connection) => {
                let pair = &self.ends.pairs[pair];
                let last = if pair.sending == NOWHERE { pair.last } else { pair.sending };
                let message = self.ends.messages.get(last as usize);
                message.map_or(0, |message| self.repetition.slots[message.op] as usize + 1)
            }
            _ => begun,
        }
    }

    /// The messages that are under way and felt, by connection, in the order in which they began.
    fn under_way(&self) -> Vec<OpId> {
        let mut under_way = Vec::new();
        for (connection, begun) in self.repetition.begun.enumerate() {
            let left = begun.len() - self.repetition.over[connection] as usize;
            let is_open = |begun: &&Begun| self.ends.operations.outcome[begun.op].is_none();
            let first = under_way.len();
            let felt = &begun[..self.felt_slots(connection)];
            let unfelt = begun.len() - felt.len();
            let open = felt.iter().rev().filter(is_open).take(left - unfelt);
            under_way.extend(open.map(|begun| begun.op));
            under_way[first..].reverse();
        }
        under_way
    }

    fn connection_of(&self, op: OpId) -> Option<ConnectionId> {
        match self.input.transfers.ops()[op].kind {
            OpKind::Send { connection, .. } => Some(connection),
            _ => None,
        }
    }

    fn feel_operations(&self, felt: &mut Felt) {
        let operations = &self.ends.operations;
        for op in self.under_way() {
            self.feel_operation(felt, op);
            let at = op.index();
            felt.push(
                u64::from(operations.parts_left[at]) << 32
                    | u64::from(operations.parts_missing[at]),
            );
        }
        operations.turns.iter().for_each(|turn| felt.push(u64::from(*turn)));
        for (link, free) in operations.serial_free.iter().enumerate() {
            if felt.at < *free {
                felt.push(link as u64);
                felt.push_ahead(*free);
            }
        }
    }

    /// A message, by how far it is ahead of those of its connection that are over.
    fn feel_operation(&self, felt: &mut Felt, op: OpId) {
        let Some(connection) = self.connection_of(op) else { return };
        let ahead = self.repetition.slots[op].wrapping_sub(self.repetition.over[connection]);
        felt.push(u64::from(connection.raw()) << 32 | u64::from(ahead));
    }

    fn feel_events(&self, felt: &mut Felt) -> Option<()> {
        let common = self.time.calendar.entries();
        let stations = self.time.stations.entries();
        for entry in common.into_iter().chain(stations) {
            match entry.event() {
                // They follow from what reaches a node.
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
                        None => felt.limit = felt.limit.min(entry.at),
                        // Posted already: it is not felt before its queue pair turns to it.
                        Some(connection) if self.is_loose(connection) => {}
                        Some(_) => {
                            self.feel_operation(felt, op);
                            felt.push_ahead(entry.at);
                        }
                    }
                    continue;
                }
                Event::Rare(number) => {
                    if let Agenda::MessageRead { op } = self.time.agenda[number as usize] {
                        self.feel_operation(felt, op);
                        felt.push_ahead(entry.at);
                    } else {
                        felt.limit = felt.limit.min(entry.at);
                    }
                    continue;
                }
            }
            felt.push(entry.word());
            felt.push_ahead(entry.at);
        }
        Some(())
    }
}

/// Whether nothing happened between two states that is not simply repeated.
fn is_quiet(before: &Counts, now: &Counts) -> bool {
    let odd = |counts: &Counts| {
        let c = &counts.counters;
        [c.drops, c.retransmits, c.ecn_marks, c.cnps, c.pauses, c.trims, counts.throws]
    };
    odd(before) == odd(now)
}

/// By queue pair: by how many packets and bytes it moves.
type Moves = IdVec<PairId, (u32, u64)>;

/// A jump: the period, how often it is repeated, and how many messages of each connection end in
/// a period.
#[derive(Clone, Debug)]
struct Jump {
    /// The instant from which it leads.
    at: u64,
    period: u64,
    times: u64,
    done: IdVec<ConnectionId, u32>,
}

impl Jump {
    /// By how much times move.
    fn shift(&self) -> u64 {
        self.times * self.period
    }

    /// Moves a time along that lies ahead.
    fn move_ahead(&self, at: &mut u64) {
        if self.at < *at && *at != NEVER {
            *at += self.shift();
        }
    }

    /// What so much more in each period comes to.
    fn grown(&self, before: u64, now: u64) -> u64 {
        now + self.times * (now - before)
    }
}

/// What happened in the period that is to be repeated.
struct Period<'a> {
    steps: &'a [Step],
    turns: Vec<Turn>,
}

/// A walk through the operations of repeated periods.
struct Walk {
    replay: Replay,
    begun: IdVec<ConnectionId, Vec<Begun>>,
    order: u32,
    ready: Vec<OpId>,
}

impl Walk {
    /// The message that takes the place of another so many periods later, if it has begun and
    /// moves as much.
    fn later(
        &self,
        simulation: &Simulation<'_>,
        jump: &Jump,
        op: OpId,
        time: u64,
    ) -> Option<Begun> {
        let connection = simulation.connection_of(op)?;
        let slot = u64::from(simulation.repetition.slots[op]);
        let slot = slot + time * u64::from(jump.done[connection]);
        let later = *self.begun[connection].get(slot as usize)?;
        let ops = simulation.input.transfers.ops();
        (ops[op].kind == ops[later.op].kind).then_some(later)
    }

    /// Walks through a repeated period; none if it does not go on as the first did.
    fn repeat(
        &mut self,
        simulation: &Simulation<'_>,
        jump: &Jump,
        period: &Period<'_>,
        time: u64,
    ) -> Option<()> {
        let shift = time * jump.period;
        for step in period.steps {
            let op = self.later(simulation, jump, step.op, time)?.op;
            if !step.is_over {
                self.replay.arrive(op, &mut self.ready);
            } else if self.replay.waits(op) == Some(0) {
                self.replay.know(op, &mut self.ready);
            } else {
                return None;
            }
            for op in self.ready.drain(..) {
                let connection = simulation.connection_of(op)?;
                let begun = Begun { op, at: step.at + shift, order: self.order };
                self.begun[connection].push(begun);
                self.order += 1;
            }
        }
        let mut last = (0, 0);
        for turn in &period.turns {
            let later = self.later(simulation, jump, turn.op, time)?;
            if turn.waited {
                let posted = later.at + simulation.send_latency(later.op);
                if turn.at + shift <= posted {
                    return None;
                }
                continue;
            }
            let began = simulation.begun(turn.op).at + shift;
            if later.at != began || (last.0 == began && later.order < last.1) {
                return None;
            }
            last = (began, later.order);
        }
        self.nobody_else_began(simulation, jump, time)
    }

    /// At the end of a period: every message that has begun and no queue pair has turned to waits
    /// for its turn. Where that is felt, as many as before.
    fn nobody_else_began(&self, simulation: &Simulation<'_>, jump: &Jump, time: u64) -> Option<()> {
        let end = jump.at + time * jump.period;
        for (connection, begun) in self.begun.enumerate() {
            let felt = simulation.felt_slots(connection);
            let felt = felt + time as usize * jump.done[connection] as usize;
            let others = begun.get(felt..)?;
            let waits = match simulation.net.network.first_pair[connection.index()].get() {
                Some(pair) if simulation.is_loose(connection) => {
                    simulation.ends.pairs[pair].sending != NOWHERE
                }
                _ if others.is_empty() => true,
                _ => return None,
            };
            let is_posted = |begun: &Begun| begun.at + simulation.send_latency(begun.op) < end;
            if !waits && others.iter().any(is_posted) {
                return None;
            }
        }
        Some(())
    }
}

impl Simulation<'_> {
    /// A message that has begun.
    fn begun(&self, op: OpId) -> Begun {
        let connection = self.connection_of(op).expect("it is a message");
        self.repetition.begun[connection][self.repetition.slots[op] as usize]
    }

    /// Repeats what happened since an equal state as often as operations and limits allow; false if
    /// that is not even once.
    fn jump(&mut self, before: &Snapshot, counts: &Counts, felt: &Felt) -> bool {
        let steps = self.repetition.log.split_off(before.logged[0]);
        let Some(mut jump) = self.plan_jump(before, counts, felt, &steps) else { return false };
        let mut turns = self.repetition.turns.split_off(before.logged[1]);
        // Who waits for its turn may come at any time before; the others must keep their order.
        let key = |turn: &Turn| {
            let begun = self.begun(turn.op);
            (begun.at, begun.order)
        };
        turns.sort_by_key(key);
        let period = Period { steps: &steps, turns };
        let (_, times) = self.walk(&jump, &period);
        jump.times = times;
        if times == 0 {
            return false;
        }
        let (walk, _) = self.walk(&jump, &period);
        let felt_slots = self.net.network.first_pair.len();
        let felt_slots: IdVec<ConnectionId, usize> =
            (0..felt_slots).map(|at| self.felt_slots(ConnectionId::from_index(at))).collect();
        let under_way = self.under_way();
        let grown = counts.acked.iter().zip(&before.counts.acked);
        let moves: Moves = grown
            .map(|(now, then)| {
                (jump.times as u32 * (now.0 - then.0), jump.times * (now.1 - then.1))
            })
            .collect();
        self.move_operations(&jump, &steps, &under_way, walk);
        self.move_pairs(&jump, &moves);
        self.move_packets(&jump, &moves);
        self.move_events(&jump, &felt_slots);
        self.grow_counts(&jump, &before.counts, counts);
        self.repetition.jumps += 1;
        self.repetition.skipped += jump.times;
        true
    }

    /// Walks through repeated periods, and says through how many.
    fn walk(&self, jump: &Jump, period: &Period<'_>) -> (Walk, u64) {
        let mut walk = Walk {
            replay: self.ends.operations.replay.clone(),
            begun: self.repetition.begun.clone(),
            order: self.repetition.order,
            ready: Vec::new(),
        };
        for time in 1..=jump.times {
            if walk.repeat(self, jump, period, time).is_none() {
                return (walk, time - 1);
            }
        }
        (walk, jump.times)
    }

    /// A jump that may be longer than operations allow.
    fn plan_jump(
        &self,
        before: &Snapshot,
        counts: &Counts,
        felt: &Felt,
        steps: &[Step],
    ) -> Option<Jump> {
        let mut done = IdVec::from(vec![0_u32; self.input.transfers.connections().len()]);
        for step in steps {
            let connection = self.connection_of(step.op)?;
            done[connection] += u32::from(step.is_over);
        }
        let stays =
            |op: OpId| self.connection_of(op).is_none_or(|connection| done[connection] == 0);
        if done.iter().all(|done| *done == 0) || self.under_way().into_iter().any(stays) {
            return None;
        }
        let (at, period) = (felt.at, felt.at - before.at);
        let starts = self.time.stations.next_start();
        let limit = felt.limit.min(starts).min(self.input.settings.limits.time.as_ps());
        let mut times = limit.saturating_sub(at + 1) / period;
        let events = counts.counters.events - before.counts.counters.events;
        let left = self.input.settings.limits.events.saturating_sub(counts.counters.events);
        times = times.min(left / events.max(1));
        for (number, pair) in self.ends.pairs.enumerate() {
            let packets = u64::from(counts.acked[number].0 - before.counts.acked[number].0);
            let room = u64::from(u32::MAX - 1 - pair.end);
            times = times.min(room.checked_div(packets).unwrap_or(u64::MAX));
        }
        Some(Jump { at, period, times, done })
    }

    /// The message that takes the place of one that is under way. The walk has been taken over.
    fn later(&self, jump: &Jump, op: OpId) -> OpId {
        let connection = self.connection_of(op).expect("only messages are moved");
        let slot = self.repetition.slots[op] as usize;
        let slot = slot + jump.times as usize * jump.done[connection] as usize;
        self.repetition.begun[connection][slot].op
    }

    /// The messages that take the place of one in each of the periods that are skipped.
    fn images(&self, jump: &Jump, op: OpId) -> Vec<(u64, OpId)> {
        let connection = self.connection_of(op).expect("only messages are repeated");
        let (slot, done) = (self.repetition.slots[op] as usize, jump.done[connection] as usize);
        let begun = &self.repetition.begun[connection];
        (1..=jump.times).map(|time| (time, begun[slot + time as usize * done].op)).collect()
    }

    /// Ends the operations of the periods that are skipped, and moves those along that have begun.
    fn move_operations(&mut self, jump: &Jump, steps: &[Step], under_way: &[OpId], walk: Walk) {
        let before: Vec<usize> = self.repetition.begun.iter().map(Vec::len).collect();
        (self.repetition.begun, self.repetition.order) = (walk.begun, walk.order);
        for (begun, before) in self.repetition.begun.iter().zip(before) {
            for (slot, begun) in begun.iter().enumerate().skip(before) {
                self.repetition.slots[begun.op] = slot as Slot;
                self.ends.operations.started_at[begun.op.index()] = begun.at;
            }
        }
        self.ends.operations.replay = walk.replay;
        let mut moved = Vec::new();
        let shift = |time: u64| Span::from_ps(time * jump.period);
        // What has arrived by now did so at a time of its own, which need not repeat itself; what
        // arrives in the repeated periods, or is to be read, does.
        for step in steps.iter().filter(|step| !step.is_over) {
            for (time, op) in self.images(jump, step.op) {
                let at = step.at + shift(time).as_ps();
                self.ends.operations.received_at[op.index()] = at;
            }
        }
        for op in under_way {
            let operations = &self.ends.operations;
            let (at, received) = (op.index(), operations.received_at[op.index()]);
            let parts = [operations.parts_left[at], operations.parts_missing[at]];
            moved.push((self.later(jump, *op), received, parts));
        }
        for step in steps.iter().filter(|step| step.is_over) {
            let before = self.ends.operations.outcome[step.op].expect("it was over");
            for (time, op) in self.images(jump, step.op) {
                let start = Time::from_ps(self.begun(op).at);
                let received = if jump.at < before.received.as_ps() {
                    before.received + shift(time)
                } else {
                    Time::from_ps(self.ends.operations.received_at[op.index()])
                };
                let finish = before.finish + shift(time);
                self.ends.operations.received_at[op.index()] = received.as_ps();
                self.ends.operations.outcome[op] = Some(OpTimes { start, received, finish });
            }
            let connection = self.connection_of(step.op).expect("only messages end");
            self.repetition.over[connection] += jump.times as u32;
        }
        let operations = &mut self.ends.operations;
        for (op, received, [left, missing]) in moved {
            let at = op.index();
            if jump.at < received {
                operations.received_at[at] = received + jump.shift();
            }
            (operations.parts_left[at], operations.parts_missing[at]) = (left, missing);
        }
        operations.serial_free.iter_mut().for_each(|free| jump.move_ahead(free));
    }

    /// Moves sequence numbers and times of queue pairs along, and their messages.
    fn move_pairs(&mut self, jump: &Jump, moves: &Moves) {
        let shift = jump.shift();
        for number in self.ends.pairs.ids() {
            let (packets, bytes) = moves[number];
            let pair = &self.ends.pairs[number];
            if packets == 0 {
                let pair = &mut self.ends.pairs[number];
                jump.move_ahead(&mut pair.next_send);
                continue;
            }
            let mut messages: Vec<u32> = self.messages_of(pair).collect();
            if pair.sending != NOWHERE && self.is_loose_pair(pair) {
                // Those behind it are posted again, as far as they are others.
                let (sending, end) = (pair.sending, self.felt_end(pair));
                let pair = &mut self.ends.pairs[number];
                (pair.last, pair.end) = (sending, end);
                self.ends.messages[sending as usize].next = NOWHERE;
            }
            let last = self.ends.pairs[number].last;
            if last != NOWHERE && !messages.contains(&last) {
                messages.push(last);
            }
            for message in messages {
                let op = self.later(jump, self.ends.messages[message as usize].op);
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
            jump.move_ahead(&mut sender.wake_at);
            jump.move_ahead(&mut sender.posting_until);
            for (pair, due) in sender.pairs.iter().zip(&mut sender.due) {
                *due = self.ends.pairs[*pair].due();
            }
        }
    }

    /// Moves packets on wires and in queues along.
    fn move_packets(&mut self, jump: &Jump, moves: &Moves) {
        let shift = jump.shift();
        for link in self.net.ports.ids() {
            jump.move_ahead(&mut self.net.ports[link].free_at);
            let wire = self.net.ports[link].wire;
            for behind in 0..wire.len() {
                let place = wire.place(behind);
                let pair = self.pair_on_way(self.net.wires.at(place));
                let packet = &mut self.net.wires.places()[place];
                packet.at = packet.at.wrapping_add(shift as u32);
                packet.psn += moves[pair].0;
                packet.sent = packet.sent.wrapping_add((shift / 1_000) as u32);
            }
            let queues: Vec<_> =
                self.net.ports[link].classes.iter().map(|class| class.queue).collect();
            for queue in queues {
                for behind in 0..queue.len() {
                    let place = queue.place(behind);
                    let pair = self.pair_on_way(&self.net.queued.at(place).packet);
                    let packet = &mut self.net.queued.places()[place].packet;
                    packet.psn += moves[pair].0;
                    packet.sent = packet.sent.wrapping_add((shift / 1_000) as u32);
                }
            }
        }
    }

    /// Moves along what is going to happen.
    fn move_events(&mut self, jump: &Jump, felt_slots: &IdVec<ConnectionId, usize>) {
        let shift = jump.shift();
        let now = jump.at + shift;
        let mut moved: Vec<Entry> = Vec::new();
        // Tickets of messages that were to be posted.
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
                    Some(connection) if self.is_loose(connection) => {
                        self.ends.operations.pending -= 1;
                        tickets.extend(self.known_later(jump, op).map(|op| (op, entry.ticket)));
                        continue;
                    }
                    Some(_) => Event::OperationEnded(self.later(jump, op)),
                },
                Event::Rare(number) => {
                    let Agenda::MessageRead { op } = self.time.agenda[number as usize] else {
                        moved.push(entry);
                        continue;
                    };
                    let op = self.later(jump, op);
                    self.time.agenda[number as usize] = Agenda::MessageRead { op };
                    entry.event()
                }
                Event::Timeout(pair) => {
                    // It only looks whether something has been heard since.
                    let due = self.ends.pairs[pair].progress_at + self.ends.pairs[pair].timeout;
                    moved.push(Entry::new(due.max(now), entry.ticket, entry.event()));
                    continue;
                }
                event => event,
            };
            moved.push(Entry::new(entry.at + shift, entry.ticket, event));
        }
        moved.extend(self.post_again(jump, felt_slots, &tickets));
        self.time.calendar.restart(now);
        self.time.stations.clear();
        self.time.now = now;
        for number in self.net.switches.ids() {
            self.net.switches[number].next_at = NEVER;
            let is_batched = self.net.switches[number].is_batched();
            self.time.clocks.set_switch(number, if is_batched { NEVER } else { 0 });
        }
        for station in self.time.stations.ids() {
            self.time.clocks.set_station(station, NEVER);
        }
        for entry in moved {
            self.schedule(entry.at, entry.ticket, entry.event());
        }
        for number in self.net.switches.ids() {
            self.schedule_next_batch(number);
        }
    }

    /// The message that takes the place of one that is to be posted, if that has begun.
    fn known_later(&self, jump: &Jump, op: OpId) -> Option<OpId> {
        let connection = self.connection_of(op)?;
        let slot = self.repetition.slots[op] as usize;
        let slot = slot + jump.times as usize * jump.done[connection] as usize;
        self.repetition.begun[connection].get(slot).map(|begun| begun.op)
    }

    /// Posts the messages that have begun by the end of a jump and that nobody has turned to;
    /// returns when those are posted that are not yet.
    fn post_again(
        &mut self,
        jump: &Jump,
        felt_slots: &IdVec<ConnectionId, usize>,
        tickets: &[(OpId, u32)],
    ) -> Vec<Entry> {
        let now = jump.at + jump.shift();
        let mut later: Vec<Begun> = Vec::new();
        for connection in felt_slots.ids() {
            if !self.is_loose(connection) {
                continue;
            }
            let pair = self.net.network.first_pair[connection.index()].known();
            let felt =
                felt_slots[connection] + jump.times as usize * jump.done[connection] as usize;
            for at in felt..self.repetition.begun[connection].len() {
                let begun = self.repetition.begun[connection][at];
                let posted = begun.at + self.send_latency(begun.op);
                let OpKind::Send { bytes, .. } = self.input.transfers.ops()[begun.op].kind else {
                    continue;
                };
                if now <= posted {
                    later.push(begun);
                } else if jump.done[connection] != 0 {
                    self.set_part_count(begun.op, 1);
                    self.list_message(pair, begun.op, bytes.get(), posted);
                }
            }
        }
        later.sort_by_key(|begun| (begun.at, begun.order));
        self.ends.operations.pending += later.len();
        let entry = |begun: Begun| {
            let known = tickets.iter().find(|(op, _)| *op == begun.op);
            let ticket = known.map_or_else(|| self.time.calendar.ticket(), |(_, ticket)| *ticket);
            let at = begun.at + self.send_latency(begun.op);
            Entry::new(at, ticket, Event::OperationEnded(begun.op))
        };
        later.into_iter().map(entry).collect()
    }

    fn grow_counts(&mut self, jump: &Jump, before: &Counts, now: &Counts) {
        let grown = |before: u64, now: u64| jump.grown(before, now);
        let (a, b) = (&before.counters, &now.counters);
        let counters = &mut self.accounts.counters;
        counters.events = grown(a.events, b.events);
        counters.packets = grown(a.packets, b.packets);
        counters.packet_hops = grown(a.packet_hops, b.packet_hops);
        let (a, b) = (&before.tally, &now.tally);
        let tally = &mut self.accounts.tally;
        tally.delivered_data = grown(a.delivered_data, b.delivered_data);
        tally.duplicate_data = grown(a.duplicate_data, b.duplicate_data);
        tally.discarded_data = grown(a.discarded_data, b.discarded_data);
        tally.reordered = grown(a.reordered, b.reordered);
        let ports = self.net.ports.iter_mut().zip(before.bytes.iter().zip(&now.bytes));
        ports.for_each(|(port, (a, b))| port.bytes = grown(*a, *b));
        let lanes = self.net.lane_counts.iter_mut().zip(before.lanes.iter().zip(&now.lanes));
        lanes.for_each(|(lane, (a, b))| lane.bytes = grown(*a, *b));
        let acks = before.light_acks.iter().zip(&now.light_acks);
        let light = self.ends.light_acks.iter_mut().zip(acks);
        light.for_each(|(light, (a, b))| light.sent = grown(*a, *b));
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
            // Something that begins in the middle, and comes between.
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
