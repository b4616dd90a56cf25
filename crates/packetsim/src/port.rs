//! A directed link: at its sender queues, a transmitter and a wire; at its far end what the node
//! there has taken in over it.
//!
//! Departures are not events. They follow from the port's own queue, so they are applied when the
//! port is read next, each at its own time and with the queue as it was then
//! ([`Simulation::apply_departures`](crate::simulation::Simulation)). Only while a switch has
//! a sender paused, or with the nanosecond clock, is each departure an event, because then it can
//! act on another port at once.
//!
//! A packet that finds a port idle touches its first 64 bytes, and the first 64 of the port that it
//! came from; the next 64 are for packets that wait. Large fabrics have more ports than fit into
//! the caches.

use units::{Bytes, Rate, Time};

use crate::cc::Hop;
use crate::ids::{Maybe, SwitchId};
use crate::packet::{ByClass, CONTROL, Class, Clock, LANES};
use crate::ring::Ring;

/// A directed link. Bit `c` of a mask stands for class `c`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    /// The transmitter is busy until then.
    pub free_at: u64,
    /// From the end of a transmission until the next node has the packet.
    pub delay: u64,
    /// Bytes sent so far.
    pub bytes: u64,
    /// Packets being sent or on the wire, in order.
    pub wire: Ring,
    /// Picoseconds to send a byte, where that is a whole number; else zero.
    ps_per_byte: u32,
    /// At the far end: charged to reserve and pool, by lane.
    pub used: [u32; LANES],
    /// Classes in which something waits.
    pub waiting: u8,
    /// Classes that may not send.
    pub paused: u8,
    /// There is an event for when the transmitter is free.
    pub free_event_pending: bool,
    /// The next node sends packets on before it has all of them.
    pub cut_through: bool,

    /// Bytes that wait, in all classes.
    pub queued: u32,
    /// The most that ever waited.
    pub peak: u32,
    /// The switch that it leads to, if it does.
    pub into: Maybe<SwitchId>,
    /// The switch that it leaves, if it does.
    pub switch: Maybe<SwitchId>,
    /// Rank of "free again" among the events of its instant.
    pub free_ticket: u32,
    /// Packets marked on leaving.
    pub marks: u32,
    /// What waits here, by class: control and the first lane of data belong to the second line.
    pub classes: ByClass<Queue>,

    /// At the far end: charged to headroom, by class.
    pub over: ByClass<u32>,
    /// Packets that found no room here, by class.
    pub drops: ByClass<u32>,
    /// At the far end: kept for what arrives after a pause was sent.
    pub headroom: u32,
    /// At the far end: classes whose sender, this port, has been asked to pause.
    pub pausing: u8,
    /// It leads out of the part of the network that this thread handles.
    pub leaves: bool,
    /// The part of the delay that the next node takes to look a packet up.
    pub latency: u64,
    /// Where the weighted classes stand: bytes that each may still send in this round.
    pub deficits: ByClass<i32>,
    /// The lane that was served last, as a class.
    turn: Class,
    /// Rate now.
    pub rate: Rate,
}

/// The queue of a traffic class at a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    /// Packets that wait.
    pub queue: Ring,
    /// Their bytes.
    pub queued: u32,
}

/// No switch, no link, no message.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// What a lane other than the first has done; the rest of what its port did is the first's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneCount {
    pub bytes: u64,
    pub marks: u32,
}

/// In masks: a frame of the link itself, which goes first and is never paused.
pub(crate) const COMMAND: u8 = 1 << 7;

const PS_BITS: u64 = 8_000_000_000_000;

impl Port {
    /// An idle link between two nodes of which either may be a switch.
    pub(crate) fn new(
        rate: Rate,
        delay: u64,
        latency: u64,
        switch: Maybe<SwitchId>,
        into: Maybe<SwitchId>,
    ) -> Self {
        let mut port = Self {
            free_at: 0,
            delay: delay + latency,
            bytes: 0,
            wire: Ring::default(),
            ps_per_byte: 0,
            used: [0; LANES],
            waiting: 0,
            paused: 0,
            free_event_pending: false,
            cut_through: false,
            queued: 0,
            peak: 0,
            into,
            switch,
            free_ticket: 0,
            marks: 0,
            classes: Default::default(),
            over: Default::default(),
            drops: Default::default(),
            headroom: 0,
            pausing: 0,
            leaves: false,
            latency,
            deficits: ByClass::default(),
            turn: CONTROL,
            rate,
        };
        port.set_rate(rate);
        port
    }

    /// Changes the rate, from the next packet on.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        let whole = PS_BITS.is_multiple_of(rate.as_bps());
        let per_byte = PS_BITS / rate.as_bps();
        self.ps_per_byte = if whole { u32::try_from(per_byte).unwrap_or(0) } else { 0 };
    }

    /// How long so many bytes on the wire take.
    #[inline]
    pub(crate) fn time_to_send(&self, bytes: u64, clock: Clock) -> u64 {
        if clock == Clock::Picosecond && self.ps_per_byte != 0 {
            return bytes * u64::from(self.ps_per_byte);
        }
        clock.time_to_send(self.rate, bytes)
    }

    /// Classes that could send now if the transmitter were free.
    #[inline]
    pub(crate) fn sendable(&self) -> u8 {
        self.waiting & !self.paused
    }

    /// Whether the transmitter is free by now, counting what happens at this instant before.
    #[inline]
    pub(crate) fn is_free(&self, now: u64, ticket: u32) -> bool {
        self.free_at < now || (self.free_at == now && self.free_ticket <= ticket)
    }

    /// The lane whose turn it is among those that may send, of which there is one: the last one
    /// while its allowance lasts, then the next.
    pub(crate) fn next_lane(&mut self, may: u8, allowances: &ByClass<i32>) -> Class {
        let last = self.turn;
        if last.is_in(may) && 0 < self.deficits[last] {
            return last;
        }
        let after = may & (u8::MAX << 1 << self.turn.index());
        let class = Class::first_of(if after == 0 { may } else { after });
        self.turn = class;
        self.deficits[class] = allowances[class];
        class
    }

    /// The time and rank of the next arrival at the far end, at the earliest, if nothing is on the
    /// wire and departures have not been applied.
    #[inline]
    pub(crate) fn next_departure(&self) -> (u64, u32) {
        match self.sendable() {
            0 => (u64::MAX, 0),
            _ => (self.free_at + self.delay, self.free_ticket),
        }
    }

    /// What it writes on a packet that leaves so much behind.
    #[inline]
    pub(crate) fn hop(&self, start: u64, queued: u64) -> Hop {
        let (at, queued) = (Time::from_ps(start), Bytes::new(queued));
        Hop { at, queued, sent: self.bytes, rate_bps: self.rate.as_bps() }
    }

    /// Counts a packet that has joined the queue of a class. [`crate::limits::QUEUE_BYTES`] has
    /// been checked.
    #[inline(always)]
    pub(crate) fn joined(&mut self, class: Class, size: u32) {
        self.classes[class].queued += size;
        self.queued += size;
        self.peak = self.peak.max(self.queued);
        self.waiting |= class.bit();
    }

    /// The same for one that has left it; returns what still waits there.
    #[inline(always)]
    pub(crate) fn left(&mut self, class: Class, size: u32) -> u64 {
        let Queue { queue, queued, .. } = &mut self.classes[class];
        *queued -= size;
        self.queued -= size;
        if queue.is_empty() {
            self.waiting &= !class.bit();
        }
        u64::from(*queued)
    }
}
