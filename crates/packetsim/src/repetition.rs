//! Repetition in time: when everything that can be felt is as it was some time ago, what happened
//! since then happens again, and time jumps.
//!
//! Time is whole picoseconds, so states can be equal. One connection, that with the most messages,
//! beats time: after each of its messages the run comes to a halt at a common instant, somewhat
//! later than anybody has run ahead, and writes down what can be felt: packets and events by the
//! time that is left to them, sequence numbers by how far they are ahead of what is acknowledged,
//! operations by how far they are ahead of those that are over ([`Felt`]). If it has written the
//! same before, and the operations go on as they did ([`crate::chains`]), the period between the
//! two is repeated without being simulated: operations end one period later each time, counters
//! grow by what they grew by, and everything that is under way is moved along.
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

use traffic::{ConnectionId, Counters, OpId, OpKind, OpTimes};
use units::{Id, IdVec, Span};

use crate::calendar::{Entry, Event};
use crate::chains::{Chains, Step};
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
    chains: Option<Chains>,
    seen: VecDeque<Snapshot>,
    /// Operations that arrived or were known to be over since the oldest of them.
    log: Vec<Step>,
    /// How many operations of each connection are over.
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

/// A state.
#[derive(Debug)]
struct Snapshot {
    at: u64,
    felt: Vec<u64>,
    counts: Counts,
    /// Where the log stood.
    logged: usize,
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
        let over = vec![0; messages.len()].into();
        Self { beat, messages: most, over, ..Self::off() }
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
    /// An operation has arrived, or is known to be over; those that may now begin are listed.
    #[inline]
    pub(crate) fn note_progress(&mut self, op: OpId, is_over: bool) {
        let Some(beat) = self.repetition.beat else { return };
        if !self.repetition.seen.is_empty() || self.repetition.look_at != NEVER {
            let begin = self.ends.operations.ready.clone();
            self.repetition.log.push(Step { op, is_over, begin });
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
        if self.repetition.chains.is_none() {
            self.repetition.chains = Some(Chains::new(self.input.transfers));
        }
        let Some(felt) = self.felt(at) else {
            // Something is in motion that seldom comes to rest.
            self.repetition.looks = self.repetition.looks.saturating_add(IN_MOTION);
            self.repetition.last = (self.accounts.counters.events, self.state_size());
            self.repetition.seen.clear();
            self.repetition.log.clear();
            return;
        };
        self.repetition.last = (self.accounts.counters.events, self.state_size());
        let (counts, logged) = (self.counts(), self.repetition.log.len());
        let known = self
            .repetition
            .seen
            .iter()
            .rposition(|seen| seen.felt == felt.words && is_quiet(&seen.counts, &counts));
        if let Some(known) = known {
            let before = self.repetition.seen.swap_remove_back(known).expect("it was found there");
            let jumped = self.jump(&before, &counts, &felt);
            self.repetition.seen.clear();
            self.repetition.log.clear();
            if jumped {
                self.repetition.share = SHARE[0];
            }
            return;
        }
        let Repetition { seen, log, share, .. } = &mut self.repetition;
        if seen.len() == REMEMBERED {
            // In vain so far.
            *share = (*share * 5 / 4 + 1).clamp(SHARE[0], SHARE[1]);
            seen.pop_front();
            let forgotten = seen.front().map_or(log.len(), |oldest| oldest.logged);
            log.drain(..forgotten);
            seen.iter_mut().for_each(|seen| seen.logged -= forgotten);
        }
        let logged = logged.min(log.len());
        seen.push_back(Snapshot { at, felt: felt.words, counts, logged });
    }

    /// About how many things are looked at to write a state down.
    fn state_size(&self) -> u64 {
        let packets: u32 = self.net.ports.iter().map(|port| port.wire.len()).sum();
        let rest =
            self.net.ports.len() + self.ends.pairs.len() + self.input.transfers.ops().len() / 4;
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
            for queue in port.classes.iter() {
                felt.push(u64::from(queue.queued) << 32 | u64::from(queue.over));
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
            if pair.una == pair.end {
                continue;
            }
            let una = pair.una;
            for psn in [pair.next, pair.end, pair.high, inbox.expected] {
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

    /// The messages of a queue pair that are not acknowledged in full.
    fn messages_of(&self, pair: &Pair) -> impl Iterator<Item = u32> {
        let next =
            |at: &u32| Some(self.ends.messages[*at as usize].next).filter(|at| *at != NOWHERE);
        std::iter::successors(Some(pair.waiting).filter(|at| *at != NOWHERE), next)
    }

    /// The messages that are under way, by connection and in order.
    fn under_way(&self) -> Vec<OpId> {
        let operations = &self.ends.operations;
        let ids = self.input.transfers.ops().ids();
        let begun =
            ids.filter(|op| operations.replay.waits(*op) == Some(0) && self.is_message(*op));
        let mut begun: Vec<OpId> = begun.collect();
        begun.sort_by_key(|op| (self.connection_of(*op), *op));
        begun
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
            felt.push_time(operations.started_at[at]);
        }
        operations.turns.iter().for_each(|turn| felt.push(u64::from(*turn)));
        for (link, free) in operations.serial_free.iter().enumerate() {
            if felt.at < *free {
                felt.push(link as u64);
                felt.push_ahead(*free);
            }
        }
    }

    /// An operation, by how far it is ahead of those of its connection that are over.
    fn feel_operation(&self, felt: &mut Felt, op: OpId) {
        let OpKind::Send { connection, .. } = self.input.transfers.ops()[op].kind else { return };
        let place = self.repetition.chains.as_ref().map_or(0, |chains| chains.place(op));
        let ahead = place.wrapping_sub(self.repetition.over[connection]);
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
                    if !self.is_message(op) {
                        felt.limit = felt.limit.min(entry.at);
                        continue;
                    }
                    self.feel_operation(felt, op);
                    felt.push_ahead(entry.at);
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

    fn is_message(&self, op: OpId) -> bool {
        matches!(self.input.transfers.ops()[op].kind, OpKind::Send { .. })
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

/// A jump: the period, how often it is repeated, and how many operations of each connection a
/// period completes.
#[derive(Clone, Copy, Debug)]
struct Jump {
    /// The instant from which it leads.
    at: u64,
    period: u64,
    times: u64,
    ops: u32,
}

impl Jump {
    /// By how much times move.
    fn shift(&self) -> u64 {
        self.times * self.period
    }

    /// The operation that takes the place of one that is under way.
    fn later(&self, chains: &Chains, op: OpId) -> OpId {
        let count = self.times as u32 * self.ops;
        chains.later(op, count).expect("all that is under way has been repeated")
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

impl Simulation<'_> {
    /// Repeats what happened since an equal state as often as operations and limits allow; false if
    /// that is not even once.
    fn jump(&mut self, before: &Snapshot, counts: &Counts, felt: &Felt) -> bool {
        let chains = self.repetition.chains.take().expect("a state has been written down");
        let jump = self.plan_jump(before, counts, felt, &chains);
        if let Some(jump) = jump {
            let steps = self.repetition.log.split_off(before.logged);
            self.move_operations(&jump, &chains, &steps);
            let grown = counts.acked.iter().zip(&before.counts.acked);
            let moves: Moves = grown
                .map(|(now, then)| {
                    (jump.times as u32 * (now.0 - then.0), jump.times * (now.1 - then.1))
                })
                .collect();
            self.move_pairs(&jump, &chains, &moves);
            self.move_packets(&jump, &moves);
            self.move_events(&jump, &chains);
            self.grow_counts(&jump, &before.counts, counts);
            self.repetition.jumps += 1;
            self.repetition.skipped += jump.times;
        }
        self.repetition.chains = Some(chains);
        jump.is_some()
    }

    fn plan_jump(
        &self,
        before: &Snapshot,
        counts: &Counts,
        felt: &Felt,
        chains: &Chains,
    ) -> Option<Jump> {
        let steps = &self.repetition.log[before.logged..];
        let mut done = IdVec::from(vec![0_u32; self.input.transfers.connections().len()]);
        for step in steps.iter().filter(|step| step.is_over) {
            done[self.connection_of(step.op)?] += 1;
        }
        let ops = done.iter().copied().max().filter(|ops| 0 < *ops)?;
        let is_odd = |done: &u32| *done != 0 && *done != ops;
        let stays =
            |op: OpId| self.connection_of(op).is_none_or(|connection| done[connection] == 0);
        if done.iter().any(is_odd) || self.under_way().into_iter().any(stays) {
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
        let replay = &self.ends.operations.replay;
        let times = chains.repeats(self.input.transfers, replay, steps, ops, times);
        (0 < times).then_some(Jump { at, period, times, ops })
    }

    /// Ends the operations of the periods that are skipped, and moves those along that have begun.
    fn move_operations(&mut self, jump: &Jump, chains: &Chains, steps: &[Step]) {
        let begun = self.under_way();
        let operations = &mut self.ends.operations;
        let state = |op: &OpId| {
            let at = op.index();
            let moved = |time: u64| if time == 0 { 0 } else { time + jump.shift() };
            let times = [operations.started_at[at], operations.received_at[at]].map(moved);
            (
                jump.later(chains, *op),
                times,
                [operations.parts_left[at], operations.parts_missing[at]],
            )
        };
        let under_way: Vec<_> = begun.iter().map(state).collect();
        let mut ready = Vec::new();
        let mut skipped: Vec<OpId> = steps.iter().map(|step| step.op).collect();
        for time in 1..=jump.times {
            let shift = Span::from_ps(time * jump.period);
            for (op, step) in skipped.iter_mut().zip(steps) {
                *op = chains.later(*op, jump.ops).expect("it was found before");
                let (at, from) = (op.index(), step.op.index());
                operations.started_at[at] = operations.started_at[from] + shift.as_ps();
                operations.received_at[at] = operations.received_at[from] + shift.as_ps();
                if step.is_over {
                    let times = operations.outcome[step.op].expect("it was over");
                    let OpTimes { start, received, finish } = times;
                    let [start, received, finish] = [start, received, finish].map(|at| at + shift);
                    operations.outcome[*op] = Some(OpTimes { start, received, finish });
                    operations.replay.know(*op, &mut ready);
                } else {
                    operations.replay.arrive(*op, &mut ready);
                }
            }
        }
        for (op, [started, received], [left, missing]) in under_way {
            let at = op.index();
            (operations.started_at[at], operations.received_at[at]) = (started, received);
            (operations.parts_left[at], operations.parts_missing[at]) = (left, missing);
        }
        operations.serial_free.iter_mut().for_each(|free| jump.move_ahead(free));
        for step in steps.iter().filter(|step| step.is_over) {
            if let Some(connection) = self.connection_of(step.op) {
                self.repetition.over[connection] += jump.times as u32;
            }
        }
    }

    /// Moves sequence numbers and times of queue pairs along, and their messages.
    fn move_pairs(&mut self, jump: &Jump, chains: &Chains, moves: &Moves) {
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
            if pair.last != NOWHERE && !messages.contains(&pair.last) {
                messages.push(pair.last);
            }
            for message in messages {
                let message = &mut self.ends.messages[message as usize];
                message.op = jump.later(chains, message.op);
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
    fn move_events(&mut self, jump: &Jump, chains: &Chains) {
        let shift = jump.shift();
        let now = jump.at + shift;
        let mut moved: Vec<Entry> = Vec::new();
        let common = self.time.calendar.entries();
        for entry in common.into_iter().chain(self.time.stations.entries()) {
            let event = match entry.event() {
                Event::SwitchBatch(_) | Event::StationAhead(_) => continue,
                Event::OperationEnded(op) if self.is_message(op) => {
                    Event::OperationEnded(jump.later(chains, op))
                }
                Event::OperationEnded(_) => {
                    moved.push(entry);
                    continue;
                }
                Event::Rare(number) => {
                    let Agenda::MessageRead { op } = self.time.agenda[number as usize] else {
                        moved.push(entry);
                        continue;
                    };
                    let op = jump.later(chains, op);
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
