//! Messages between the parts of a divided network.
//!
//! With several threads ([`crate::threads`]) each has a [`Simulation`] of its own, of which it
//! handles one part: the switches and stations that [`crate::parts`] assigned to it. An event in
//! another part acts on it only over a cable, so parts exchange messages at the end of a window
//! that is no longer than the shortest cable that was cut: packets and pause frames with their
//! arrival times; messages that were posted, which the receiver must know before the first packet;
//! and the times at which messages were received, which the sender must know before the last
//! acknowledgement. Operations start in the part where their predecessors end
//! ([`crate::stations`]). A wait without predecessors is handled in every part; one without
//! successors is added when the results of the parts are merged.

use fabric::LinkId;
use traffic::{OpId, OpKind};
use units::{Id, IdVec, Time};

use crate::calendar::Event;
use crate::ids::{Maybe, PairId, Raw, StationId, SwitchId};
use crate::packet::Packet;
use crate::parts::Division;
use crate::repetition::Repetition;
use crate::simulation::Simulation;
use crate::steady::Steady;

const NEVER: u64 = u64::MAX;

/// Who handles an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Owner {
    /// One part.
    Part(u8),
    /// Every part: its end is known beforehand.
    Every,
    /// No part: a wait without successors, for operations in several parts.
    Nobody,
}

/// Messages to another part, delivered at the end of a window.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    packets: Vec<(LinkId, Packet)>,
    notices: Vec<Notice>,
}

#[derive(Clone, Copy, Debug)]
enum Notice {
    /// A frame of a link itself arrives then.
    Pause { link: LinkId, at: u64, frame: Packet },
    /// A message has been handed to a queue pair.
    Posted { pair: PairId, op: OpId, bytes: u64, posted: u64 },
    /// A part of an operation has been received, or will be then.
    Received { op: OpId, at: u64 },
}

/// The part of a network that a simulation handles; by default all of it.
#[derive(Debug, Default)]
pub(crate) struct Part {
    number: u8,
    /// Links that leave it, and the part that they lead to.
    exits: Vec<(LinkId, u8)>,
    /// The switches that they leave, and the delays after which those act elsewhere: without and
    /// with pauses.
    edge: Vec<(SwitchId, [u64; 2])>,
    receivers: IdVec<PairId, u8>,
    owners: IdVec<OpId, Owner>,
    /// Operations of it that are not over.
    pub left: usize,
    /// For each part; empty if there is only one.
    outbox: Vec<Mail>,
    /// When the first of what is in them arrives.
    first: u64,
    /// Something happened that needs the state of the whole network.
    pub is_blind: bool,
}

impl Part {
    /// Whether it is all of the network.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Whether an operation starts here.
    #[inline]
    pub(crate) fn starts(&self, op: OpId) -> bool {
        self.is_whole()
            || match self.owners[op] {
                Owner::Part(part) => part == self.number,
                Owner::Every => true,
                Owner::Nobody => false,
            }
    }

    /// Whether an operation is counted here: each is in one part.
    pub(crate) fn counts(&self, op: OpId) -> bool {
        match self.owners[op] {
            Owner::Part(part) => part == self.number,
            Owner::Every => self.number == 0,
            Owner::Nobody => false,
        }
    }

    /// Whether no part handles an operation.
    pub(crate) fn is_left_out(&self, op: OpId) -> bool {
        self.owners[op] == Owner::Nobody
    }

    /// An operation is over.
    #[inline]
    pub(crate) fn note_end(&mut self, op: OpId) {
        if !self.is_whole() && self.counts(op) {
            self.left -= 1;
        }
    }

    /// A message has been handed to a queue pair.
    #[inline]
    pub(crate) fn note_message(&mut self, pair: PairId, op: OpId, bytes: u64, posted: u64) {
        if !self.is_whole() && self.receivers[pair] != self.number {
            let to = usize::from(self.receivers[pair]);
            self.outbox[to].notices.push(Notice::Posted { pair, op, bytes, posted });
        }
    }

    /// A part of an operation is received then.
    #[inline]
    pub(crate) fn note_arrival(&mut self, op: OpId, at: u64) {
        if !self.is_whole()
            && let Owner::Part(to) = self.owners[op]
            && to != self.number
        {
            self.outbox[usize::from(to)].notices.push(Notice::Received { op, at });
        }
    }

    /// A pause frame leaves for another part.
    #[cold]
    pub(crate) fn note_pause(&mut self, link: LinkId, at: u64, frame: Packet) {
        let (_, to) = self.exits.iter().find(|exit| exit.0 == link).expect("the link leaves");
        self.outbox[usize::from(*to)].notices.push(Notice::Pause { link, at, frame });
        self.first = self.first.min(at);
    }

    /// Takes the messages to another part, in exchange for an empty list.
    pub(crate) fn take_mail(&mut self, to: usize, empty: Mail) -> Mail {
        std::mem::replace(&mut self.outbox[to], empty)
    }
}

impl Mail {
    /// Removes all messages.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.notices.clear();
    }
}

impl Simulation<'_> {
    /// Restricts this simulation to one part of its network, before the first event.
    pub(crate) fn keep_part(&mut self, division: &Division, number: usize) {
        let number = number as u8;
        let (fabric, transfers) = (self.input.fabric, self.input.transfers);
        let part_of = |station: Maybe<StationId>| {
            station.get().map_or(Owner::Every, |station| Owner::Part(division.of_station[station]))
        };
        let owner = |op: OpId| match part_of(self.time.stations.home(op)) {
            Owner::Every if self.time.stations.joins(transfers, op) => Owner::Nobody,
            owner => owner,
        };
        let owners: IdVec<OpId, Owner> = transfers.ops().ids().map(owner).collect();
        let keys = self.net.network.keys.iter();
        let station_of = |node| crate::stations::station_of(fabric, node).known();
        let receivers = keys.map(|(key, _)| division.of_station[station_of(key.to)]).collect();
        let outbox = (0..division.parts).map(|_| Mail::default()).collect();
        self.part = Part { number, receivers, owners, outbox, first: NEVER, ..Part::default() };
        self.repetition = Repetition::off();
        self.steady = Steady::off();
        self.part.left = transfers.ops().ids().filter(|op| self.part.counts(*op)).count();
        for (link, port) in self.net.ports.ids().zip(self.net.ports.iter_mut()) {
            let (Some(near), Some(far)) = (port.switch.get(), port.into.get()) else { continue };
            let (from, into) = (division.of_switch[near], division.of_switch[far]);
            if from == into {
                continue;
            }
            if from == number {
                port.leaves = true;
                let delays = [port.delay, port.delay - port.latency];
                match self.part.edge.iter_mut().find(|edge| edge.0 == near) {
                    Some((_, known)) => *known = [0, 1].map(|at| known[at].min(delays[at])),
                    None => self.part.edge.push((near, delays)),
                }
                port.into = Maybe::NONE;
                self.part.exits.push((link, into));
            } else if into == number {
                self.net.switches[far].at_edge = true;
            }
        }
    }

    /// The shortest time after which an event here can act on another part.
    pub(crate) fn window(&self) -> u64 {
        // Pause frames need no route lookup.
        let delays = |(switch, [without_pauses, with_pauses]): &(SwitchId, [u64; 2])| {
            let is_below_thresholds = without_pauses == with_pauses
                || self.net.switches[*switch].stays_below_thresholds();
            if is_below_thresholds { *without_pauses } else { *with_pauses }
        };
        self.part.edge.iter().map(delays).min().unwrap_or(NEVER)
    }

    /// Collects the packets that left this part before an instant, and returns the time of the next
    /// event, here or at an arrival elsewhere.
    pub(crate) fn write_mail(&mut self, before: u64) -> u64 {
        let exits = std::mem::take(&mut self.part.exits);
        let mut next = self.time.calendar.peek().unwrap_or(NEVER);
        for &(link, to) in &exits {
            self.apply_departures_before(link, before);
            let port = &mut self.net.ports[link];
            if port.sendable() != 0 {
                next = next.min(port.free_at);
            }
            if port.wire.is_empty() {
                continue;
            }
            let now = self.time.calendar.now();
            let first = self.net.wires.first(port.wire).arrival(now);
            self.part.first = self.part.first.min(first);
            let mail = &mut self.part.outbox[usize::from(to)].packets;
            while !port.wire.is_empty() {
                mail.push((link, self.net.wires.pop(&mut port.wire)));
            }
        }
        self.part.exits = exits;
        next.min(std::mem::replace(&mut self.part.first, NEVER))
    }

    /// All parts have handled all events before an instant.
    pub(crate) fn advance_to(&mut self, at: u64) {
        self.time.calendar.advance_to(at);
    }

    /// Delivers the messages of another part.
    pub(crate) fn read_mail(&mut self, mail: &Mail) {
        for notice in &mail.notices {
            match *notice {
                Notice::Pause { link, at, frame } => {
                    self.net.pauses[link].flying.push_back(frame);
                    self.schedule(at, link.raw(), Event::PauseFrame(link));
                    self.require_events(self.net.ports[link].into);
                }
                Notice::Posted { pair, op, bytes, posted } => {
                    self.ends.operations.parts_missing[op.index()] += 1;
                    self.queue_message(pair, op, bytes, posted);
                }
                Notice::Received { op, at } => {
                    self.ends.operations.received_at[op.index()] = at;
                }
            }
        }
        for &(link, packet) in &mail.packets {
            let port = &mut self.net.ports[link];
            let was_empty = port.wire.is_empty();
            self.net.wires.push(&mut port.wire, packet);
            if was_empty {
                let (at, ticket) = self.next_arrival(link);
                self.schedule_arrival(link, at, ticket);
            }
        }
    }

    /// When the last operation of this part ends, as far as is known here.
    pub(crate) fn last_end(&self) -> u64 {
        let ops = &self.ends.operations;
        let ends = ops.outcome.iter().flatten().map(|times| times.finish.as_ps());
        let transfers = self.input.transfers;
        let left_out = transfers.ops().ids().filter(|op| self.part.is_left_out(*op));
        let joins = left_out.map(|op| {
            let OpKind::Wait { span } = transfers.ops()[op].kind else { return 0 };
            let begin = transfers.after(op).iter().map(|at| ops.received_at[at.index()]).max();
            transfers.end_of_wait(op, Time::from_ps(begin.unwrap_or(0)), span).as_ps()
        });
        ends.chain(joins).max().unwrap_or(0)
    }

    /// Whether nothing is in flight in this part, and nothing was sent after an instant.
    pub(crate) fn is_quiet_since(&self, at: u64) -> bool {
        let is_quiet = |port: &crate::port::Port| {
            port.wire.is_empty() && port.waiting == 0 && port.free_at <= at
        };
        self.net.ports.iter().all(is_quiet)
            && self.net.pauses.iter().all(|log| log.flying.is_empty())
    }
}
