//! The event queue: a timing wheel with exact order inside each slot.
//!
//! A link has one event, for the oldest packet on its wire, so there are about as many pending
//! events as busy links, and almost all of them are due within microseconds. They go into a wheel
//! whose slots are lists in one slab; the current slot is sorted and emptied from its end. Events
//! beyond the wheel (timers, faults, waits) are in a heap. Slots get narrower where congestion
//! makes more events than expected.
//!
//! Events of one instant run in the order of their tickets, not in that in which they were
//! scheduled: so results do not depend on when departures were applied.
//!
//! Binary, 4-ary and radix heaps were tried; `docs/performance.md` has the figures.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fabric::LinkId;
use traffic::OpId;

use crate::ids::{PairId, Raw, StationId, SwitchId};
use crate::limits::ID_BITS;

/// What happens, and to whom.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    /// The oldest packet on a link's wire reaches the far end.
    PacketArrived(LinkId),
    /// A link's transmitter is free again and something may be waiting for it.
    TransmitterFreed(LinkId),
    /// A NIC asked to be woken to send.
    SenderWoken(LinkId),
    /// A queue pair's congestion control asked to be called.
    ControlTimer(PairId),
    /// A queue pair has not heard of a packet for its retransmission timeout.
    Timeout(PairId),
    /// An operation without packets is over.
    OperationEnded(OpId),
    /// A rare event is due: a fault, the end of a pause, a sample.
    Rare(u32),
    /// A frame of the link itself reaches the far end.
    PauseFrame(LinkId),
    /// The next packet arrives at a switch that runs ahead.
    SwitchBatch(SwitchId),
    /// The next event of a station is due.
    StationAhead(StationId),
    /// The oldest acknowledgement that takes no links reaches its sender.
    AckArrived(PairId),
}

impl Event {
    /// Kind and number in one word.
    #[inline]
    fn pack(self) -> u32 {
        let (kind, id) = match self {
            Self::PacketArrived(link) => (0, link.raw()),
            Self::TransmitterFreed(link) => (1, link.raw()),
            Self::SenderWoken(link) => (2, link.raw()),
            Self::ControlTimer(pair) => (3, pair.raw()),
            Self::Timeout(pair) => (4, pair.raw()),
            Self::OperationEnded(op) => (5, op.raw()),
            Self::Rare(number) => (6, number),
            Self::PauseFrame(link) => (7, link.raw()),
            Self::SwitchBatch(switch) => (8, switch.raw()),
            Self::StationAhead(station) => (9, station.raw()),
            Self::AckArrived(pair) => (10, pair.raw()),
        };
        assert!(id < 1 << ID_BITS, "{self:?}");
        kind << ID_BITS | id
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        let id = word & ((1 << ID_BITS) - 1);
        match word >> ID_BITS {
            0 => Self::PacketArrived(LinkId::of(id)),
            1 => Self::TransmitterFreed(LinkId::of(id)),
            2 => Self::SenderWoken(LinkId::of(id)),
            3 => Self::ControlTimer(PairId::of(id)),
            4 => Self::Timeout(PairId::of(id)),
            5 => Self::OperationEnded(OpId::of(id)),
            6 => Self::Rare(id),
            7 => Self::PauseFrame(LinkId::of(id)),
            8 => Self::SwitchBatch(SwitchId::of(id)),
            9 => Self::StationAhead(StationId::of(id)),
            10 => Self::AckArrived(PairId::of(id)),
            _ => unreachable!("only events are packed"),
        }
    }
}

/// A pending event.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Entry {
    /// When, in picoseconds.
    pub at: u64,
    /// Its rank among the events of that instant.
    pub ticket: u32,
    /// Kind and number in one word.
    what: u32,
}

impl Entry {
    /// Something that happens then.
    #[inline]
    pub(crate) fn new(at: u64, ticket: u32, event: Event) -> Self {
        Self { at, ticket, what: event.pack() }
    }

    /// What happens.
    #[inline]
    pub(crate) fn event(self) -> Event {
        Event::unpack(self.what)
    }

    /// Kind and number as one word, for the digest.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.what)
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    entry: Entry,
    next: u32,
}

const NONE: u32 = u32::MAX;

/// Tickets that are drawn come after the numbers of links, which arrivals go by.
const FIRST_TICKET: u32 = 1 << 31;

/// More slots would not stay near the core.
const MOST_SLOTS: usize = 1 << 16;

/// After so many slots it is checked whether they hold too much.
const TRIAL: u32 = 1 << 10;

/// From so many events in the mean on, sorting costs more than turning.
const CROWDED: u32 = 48;

/// The pending events.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// When the last event was.
    now: u64,
    tickets: u32,
    shift: u32,
    /// First node of each slot's list.
    slots: Box<[u32]>,
    /// One bit for each slot that is not empty.
    occupied: Box<[u64]>,
    nodes: Vec<Node>,
    free: u32,
    /// How many events are in the wheel.
    in_wheel: usize,
    /// The slot that time has reached: its number since the start, its events in reverse order.
    slot: u64,
    current: Vec<Entry>,
    /// So many of them, those that come first, have been returned by `fresh`.
    seen: usize,
    /// Slots emptied, and what they held in all, since the width of slots was last checked.
    turns: u32,
    served: u32,
    far: BinaryHeap<Reverse<Entry>>,
}

impl Calendar {
    /// An empty calendar for about `busy` pending events, each of which comes back after about
    /// `period` picoseconds, with a wheel that reaches at least `reach` picoseconds ahead.
    pub(crate) fn new(busy: usize, period: u64, reach: u64) -> Self {
        // About sixteen events in a slot: enough to read ahead together, few enough to sort.
        let width = (16 * period / busy.max(1) as u64).clamp(1, 1 << 20).next_power_of_two();
        let mut shift = width.ilog2();
        while (MOST_SLOTS as u64) << shift < reach && shift < 40 {
            shift += 1;
        }
        let slots = (reach >> shift).next_power_of_two().clamp(64, MOST_SLOTS as u64) as usize;
        Self {
            now: 0,
            tickets: FIRST_TICKET,
            shift,
            slots: vec![NONE; slots].into_boxed_slice(),
            occupied: vec![0; slots / 64].into_boxed_slice(),
            nodes: Vec::with_capacity(busy),
            free: NONE,
            in_wheel: 0,
            slot: 0,
            current: Vec::new(),
            seen: 0,
            turns: 0,
            served: 0,
            far: BinaryHeap::new(),
        }
    }

    /// When the last event was: nothing in flight arrives before that.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Nothing is pending before an instant.
    pub(crate) fn advance_to(&mut self, at: u64) {
        self.now = self.now.max(at);
    }

    /// Draws the next ticket. After 2³¹ of them they begin again: only events of one instant are
    /// ordered by tickets, and few of those are pending together.
    #[inline]
    pub(crate) fn ticket(&mut self) -> u32 {
        self.tickets = self.tickets.wrapping_add(1) | FIRST_TICKET;
        self.tickets
    }

    /// Schedules an event.
    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, ticket: u32, event: Event) {
        assert!(self.now <= at, "{event:?} scheduled for {at}, but it is {}", self.now);
        let entry = Entry::new(at, ticket, event);
        let slot = at >> self.shift;
        let ahead = slot.wrapping_sub(self.slot);
        if ahead.wrapping_sub(1) < (self.slots.len() - 1) as u64 {
            self.put(slot, entry);
        } else if slot <= self.slot {
            let place = self.current.partition_point(|other| entry < *other);
            self.current.insert(place, entry);
            self.served += 1;
        } else {
            self.far.push(Reverse(entry));
        }
    }

    #[inline]
    fn put(&mut self, slot: u64, entry: Entry) {
        let place = slot as usize & (self.slots.len() - 1);
        let head = &mut self.slots[place];
        let node = Node { entry, next: *head };
        if self.free == NONE {
            *head = u32::try_from(self.nodes.len()).expect("fewer than 2³² pending events");
            self.nodes.push(node);
        } else {
            *head = self.free;
            let slab = &mut self.nodes[self.free as usize];
            self.free = slab.next;
            *slab = node;
        }
        self.occupied[place / 64] |= 1 << (place % 64);
        self.in_wheel += 1;
    }

    /// Takes out the next event, or nothing when all is over.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Entry> {
        if self.current.is_empty() {
            self.turn();
        }
        let entry = self.current.pop()?;
        self.seen = self.seen.saturating_sub(1);
        debug_assert!(self.now <= entry.at, "time goes on");
        self.now = entry.at;
        Some(entry)
    }

    /// When the next event is.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u64> {
        self.first().map(|entry| entry.at)
    }

    /// The next event.
    #[inline]
    pub(crate) fn first(&mut self) -> Option<Entry> {
        if self.current.is_empty() {
            self.turn();
        }
        self.current.last().copied()
    }

    /// The events that come next, up to so many of one slot; nothing as long as some of those that
    /// this returned last are still to come.
    #[inline]
    pub(crate) fn fresh(&mut self, most: usize) -> &[Entry] {
        if 0 < self.seen {
            return &[];
        }
        self.seen = self.current.len().min(most);
        &self.current[self.current.len() - self.seen..]
    }

    /// All pending events, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = self.current.clone();
        for head in &self.slots {
            let mut at = *head;
            while at != NONE {
                let Node { entry, next } = self.nodes[at as usize];
                entries.push(entry);
                at = next;
            }
        }
        entries.extend(self.far.iter().map(|Reverse(entry)| *entry));
        entries.sort_unstable();
        entries
    }

    /// Removes all pending events, and continues from an instant.
    pub(crate) fn restart(&mut self, now: u64) {
        self.slots.fill(NONE);
        self.occupied.fill(0);
        self.nodes.clear();
        self.current.clear();
        self.far.clear();
        (self.free, self.in_wheel, self.seen) = (NONE, 0, 0);
        (self.now, self.slot) = (now, now >> self.shift);
    }

    /// Moves on to the next slot that holds something.
    fn turn(&mut self) {
        if self.turns == TRIAL {
            if CROWDED * TRIAL < self.served && self.slots.len() < MOST_SLOTS && 0 < self.shift {
                self.narrow();
            }
            (self.turns, self.served) = (0, 0);
        }
        let in_far = self.far.peek().map(|Reverse(entry)| entry.at >> self.shift);
        let in_wheel = (0 < self.in_wheel).then(|| self.next_occupied());
        self.slot = match (in_wheel, in_far) {
            (Some(wheel), Some(far)) => wheel.min(far),
            (Some(slot), None) | (None, Some(slot)) => slot,
            (None, None) => return,
        };
        if in_wheel == Some(self.slot) {
            self.collect();
        }
        while let Some(Reverse(entry)) = self.far.peek().copied()
            && entry.at >> self.shift == self.slot
        {
            self.far.pop();
            self.current.push(entry);
        }
        (self.turns, self.served) = (self.turns + 1, self.served + self.current.len() as u32);
        match self.current.as_mut_slice() {
            [] | [_] => {}
            [a, b] => {
                if *a < *b {
                    std::mem::swap(a, b);
                }
            }
            many => many.sort_unstable_by(|a, b| b.cmp(a)),
        }
    }

    /// Twice the slots, half as wide; between two of them.
    #[cold]
    fn narrow(&mut self) {
        let mut entries = Vec::with_capacity(self.in_wheel);
        for head in &mut self.slots {
            let mut at = std::mem::replace(head, NONE);
            while at != NONE {
                let Node { entry, next } = self.nodes[at as usize];
                entries.push(entry);
                at = next;
            }
        }
        self.shift -= 1;
        // The old slot has been emptied.
        self.slot = 2 * self.slot + 1;
        self.slots = vec![NONE; 2 * self.slots.len()].into_boxed_slice();
        self.occupied = vec![0; self.slots.len() / 64].into_boxed_slice();
        self.nodes.clear();
        (self.free, self.in_wheel) = (NONE, 0);
        for entry in entries {
            self.put(entry.at >> self.shift, entry);
        }
    }

    /// Moves the list of the slot that time has reached into `current`.
    fn collect(&mut self) {
        let place = self.slot as usize & (self.slots.len() - 1);
        let mut at = std::mem::replace(&mut self.slots[place], NONE);
        self.occupied[place / 64] &= !(1 << (place % 64));
        while at != NONE {
            let node = &mut self.nodes[at as usize];
            self.current.push(node.entry);
            let next = node.next;
            node.next = self.free;
            self.free = at;
            at = next;
            self.in_wheel -= 1;
        }
    }

    /// The number of the next slot after the current one that holds something.
    fn next_occupied(&self) -> u64 {
        let start = self.slot + 1;
        let first = start as usize & (self.slots.len() - 1);
        let words = self.occupied.len();
        let mut word = first / 64;
        let mut bits = self.occupied[word] & (u64::MAX << (first % 64));
        let mut skipped = 0;
        while bits == 0 {
            skipped += 1;
            word = if word + 1 == words { 0 } else { word + 1 };
            bits = self.occupied[word];
            debug_assert!(skipped <= words);
        }
        let place = word * 64 + bits.trailing_zeros() as usize;
        let ahead = place.wrapping_sub(first) & (self.slots.len() - 1);
        start + ahead as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Random;

    fn number(entry: Entry) -> u32 {
        let Event::Rare(number) = entry.event() else { panic!("{entry:?}") };
        number
    }

    /// Slots that hold hundreds of events are divided, with what is in them, and nothing changes.
    #[test]
    fn crowded_slots_get_narrower() {
        let mut random = Random::new(1, "calendar", 1);
        let mut calendar = Calendar::new(1, 1 << 20, 1 << 26);
        let before = calendar.slots.len();
        let mut oracle = std::collections::BTreeSet::new();
        let mut now = 0;
        for step in 0..500_000 {
            let ticket = calendar.ticket();
            let at = now + random.below(if step % 100 == 0 { 1 << 30 } else { 1 << 24 });
            calendar.schedule(at, ticket, Event::Rare(step));
            oracle.insert((at, ticket, step));
            if 5_000 < step {
                let entry = calendar.next().expect("the oracle has one");
                let expected = oracle.pop_first().expect("checked above");
                assert_eq!((entry.at, entry.ticket, number(entry)), expected);
                now = entry.at;
            }
        }
        assert!(2 * before <= calendar.slots.len(), "{before} and {}", calendar.slots.len());
    }

    /// Agreement: the wheel serves exactly what a sorted list would, whatever is put in when.
    #[test]
    fn events_come_in_order_of_time_and_ticket() {
        for seed in 0..40 {
            let mut random = Random::new(seed, "calendar", 0);
            let mut calendar = Calendar::new(1 + random.below(500) as usize, 83_000, 2_000_000);
            let mut oracle = std::collections::BTreeSet::new();
            let mut now = 0;
            for step in 0..5_000 {
                if random.below(5) < 3 || oracle.is_empty() {
                    let ahead = match random.below(10) {
                        0 => 0,
                        1 => random.below(1 << 34),
                        _ => random.below(1_100_000),
                    };
                    let ticket = calendar.ticket();
                    calendar.schedule(now + ahead, ticket, Event::Rare(step));
                    oracle.insert((now + ahead, ticket, step));
                } else {
                    let entry = calendar.next().expect("the oracle has one");
                    let expected = oracle.pop_first().expect("checked above");
                    assert_eq!((entry.at, entry.ticket, number(entry)), expected, "seed {seed}");
                    now = entry.at;
                }
            }
            while let Some(entry) = calendar.next() {
                let expected = oracle.pop_first().expect("the calendar had one more");
                assert_eq!((entry.at, entry.ticket, number(entry)), expected, "seed {seed}");
            }
            assert!(oracle.is_empty(), "seed {seed}");
        }
    }
}
