//! What one part of a divided network tells the others.
//!
//! With several threads ([`crate::threads`]) each has a [`Simulation`] of its own, of which it
//! handles one part: the switches and stations that [`crate::parts`] gave it. Whatever happens in
//! another part reaches it over a cable, so it is told at the end of a window that is no longer
//! than the shortest cable that was cut: packets and pause frames, with the time at which they
//! arrive; that a message has been posted, which its receiver must know before its first packet;
//! and when a message has been received, which its sender must know before its last
//! acknowledgement. Everything else stays where it happens. Operations start where those end that
//! they wait for ([`crate::stations`]); a wait that nothing precedes is waited for in every part;
//! and one that nothing follows is added when the parts are put together.

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
    /// Every part: when it ends is known beforehand.
    Every,
    /// No part: nothing follows it, and it begins with the last of those in several parts.
    Nobody,
}

/// What is told at the end of a window.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    packets: Vec<(LinkId, Packet)>,
    news: Vec<News>,
}

#[derive(Clone, Copy, Debug)]
enum News {
    /// A frame of a link itself arrives then.
    Pause { link: LinkId, at: u64, frame: Packet },
    /// A message has been handed to a queue pair.
    Posted { pair: PairId, op: OpId, bytes: u64, posted: u64 },
    /// A part of an operation has been received, or will be then.
    Received { op: OpId, at: u64 },
}

/// The part of a network that a simulation handles; all of it unless told.
#[derive(Debug, Default)]
pub(crate) struct Part {
    number: u8,
    /// Links that leave it, and the part that they lead to.
    exits: Vec<(LinkId, u8)>,
    /// The switches that they leave, and how soon what those do is felt: if they are calm or not.
    edge: Vec<(SwitchId, [u64; 2])>,
    receivers: IdVec<PairId, u8>,
    owners: IdVec<OpId, Owner>,
    /// Operations of it that are not over.
    pub left: usize,
    /// For each part; empty if there is only one.
    outbox: Vec<Mail>,
    /// When the first of what is in them arrives.
    first: u64,
    /// Something happened that can only be judged by who sees all of the network.
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
            self.outbox[to].news.push(News::Posted { pair, op, bytes, posted });
        }
    }

    /// A part of an operation is received then.
    #[inline]
    pub(crate) fn note_arrival(&mut self, op: OpId, at: u64) {
        if !self.is_whole()
            && let Owner::Part(to) = self.owners[op]
            && to != self.number
        {
            self.outbox[usize::from(to)].news.push(News::Received { op, at });
        }
    }

    /// A pause frame leaves for another part.
    #[cold]
    pub(crate) fn note_pause(&mut self, link: LinkId, at: u64, frame: Packet) {
        let (_, to) = self.exits.iter().find(|exit| exit.0 == link).expect("the link leaves");
        self.outbox[usize::from(*to)].news.push(News::Pause { link, at, frame });
        self.first = self.first.min(at);
    }

    /// What has been written to another part, in exchange for an empty list.
    pub(crate) fn take_mail(&mut self, to: usize, empty: Mail) -> Mail {
        std::mem::replace(&mut self.outbox[to], empty)
    }
}

impl Mail {
    /// Throws away what it says.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.news.clear();
    }
}

impl Simulation<'_> {
    /// Leaves to this simulation one part of its network. Nothing has happened yet.
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
                let felt = [port.delay, port.delay - port.latency];
                match self.part.edge.iter_mut().find(|edge| edge.0 == near) {
                    Some((_, known)) => *known = [0, 1].map(|at| known[at].min(felt[at])),
                    None => self.part.edge.push((near, felt)),
                }
                port.into = Maybe::NONE;
                self.part.exits.push((link, into));
            } else if into == number {
                self.net.switches[far].at_edge = true;
            }
        }
    }

    /// The shortest time in which anything that happens here from now on can be felt elsewhere.
    pub(crate) fn window(&self) -> u64 {
        // Pause frames are not looked up.
        let felt = |(switch, [calm, tense]): &(SwitchId, [u64; 2])| {
            let is_calm = calm == tense || self.net.switches[*switch].stays_calm();
            if is_calm { *calm } else { *tense }
        };
        self.part.edge.iter().map(felt).min().unwrap_or(NEVER)
    }

    /// Writes down what leaves this part because of what happened before an instant, and says when
    /// something may happen next because of what is known here.
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

    /// Everything before an instant is over, here and elsewhere.
    pub(crate) fn reach(&mut self, at: u64) {
        self.time.calendar.reach(at);
    }

    /// Takes in what another part has told.
    pub(crate) fn read_mail(&mut self, mail: &Mail) {
        for news in &mail.news {
            match *news {
                News::Pause { link, at, frame } => {
                    self.net.pauses[link].flying.push_back(frame);
                    self.schedule(at, link.raw(), Event::PauseFrame(link));
                    self.require_events(self.net.ports[link].into);
                }
                News::Posted { pair, op, bytes, posted } => {
                    self.ends.operations.parts_missing[op.index()] += 1;
                    self.list_message(pair, op, bytes, posted);
                }
                News::Received { op, at } => {
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

    /// When everything that this part knows of is over: its operations, and, of those that no part
    /// handles, as much as is known here.
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

    /// Whether nothing is under way in this part, and nothing has been sent after an instant.
    pub(crate) fn is_quiet_since(&self, at: u64) -> bool {
        let is_quiet = |port: &crate::port::Port| {
            port.wire.is_empty() && port.waiting == 0 && port.free_at <= at
        };
        self.net.ports.iter().all(is_quiet)
            && self.net.pauses.iter().all(|log| log.flying.is_empty())
    }
}
