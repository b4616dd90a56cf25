//! A directed link as its sender sees it: queues, a transmitter and a wire.
//!
//! A wire keeps the order and the delay is fixed, so a class's waiting packets and its packets on
//! the wire are one ring with three marks: `head` (oldest on the wire), `next` (next to be sent)
//! and `tail`. Sending a packet only moves a mark and writes the time of arrival into the record.
//!
//! Departures are not events. As long as nothing else looks at a port, its departures follow from
//! its own queue; so they are worked off when the port is looked at next, each at its own instant
//! and with the queue as it was then ([`Simulation::catch_up`](crate::simulation::Simulation)).
//! Only while a switch has somebody paused, or with the nanosecond clock, does each departure
//! become an event, because then it can be felt elsewhere at once.

use units::Rate;

use crate::packet::{CLASSES, Clock, Packet};

/// One class of a port: what waits, and what is on the wire.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    slots: Vec<Packet>,
    head: u32,
    next: u32,
    tail: u32,
}

impl Ring {
    #[inline]
    fn slot(&self, number: u32) -> usize {
        number as usize & (self.slots.len() - 1)
    }

    /// Adds a packet at the end of the queue.
    #[inline]
    pub(crate) fn push(&mut self, packet: Packet) {
        if self.tail.wrapping_sub(self.head) as usize == self.slots.len() {
            self.grow();
        }
        let slot = self.slot(self.tail);
        self.slots[slot] = packet;
        self.tail = self.tail.wrapping_add(1);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let old = self.slots.len();
        let mut slots = Vec::with_capacity((2 * old).max(8));
        for number in 0..old as u32 {
            slots.push(self.slots[self.slot(self.head.wrapping_add(number))]);
        }
        slots.resize((2 * old).max(8), Packet::default());
        self.slots = slots;
        self.next = self.next.wrapping_sub(self.head);
        self.tail = self.tail.wrapping_sub(self.head);
        self.head = 0;
    }

    /// Moves the next packet from the queue to the wire, and hands it out to be written on.
    #[inline]
    pub(crate) fn send(&mut self) -> &mut Packet {
        debug_assert!(self.next != self.tail);
        let slot = self.slot(self.next);
        self.next = self.next.wrapping_add(1);
        &mut self.slots[slot]
    }

    /// The packet that was put on the wire last.
    #[inline]
    pub(crate) fn last_sent(&mut self) -> &mut Packet {
        let slot = self.slot(self.next.wrapping_sub(1));
        &mut self.slots[slot]
    }

    /// The packet that is next to be sent.
    #[inline]
    pub(crate) fn first_waiting(&self) -> &Packet {
        &self.slots[self.slot(self.next)]
    }

    /// Whether something waits.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.next != self.tail
    }

    /// The oldest packet on the wire.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<&Packet> {
        (self.head != self.next).then(|| &self.slots[self.slot(self.head)])
    }

    /// Takes the oldest packet off the wire.
    #[inline]
    pub(crate) fn take(&mut self) -> Packet {
        debug_assert!(self.head != self.next);
        let slot = self.slot(self.head);
        self.head = self.head.wrapping_add(1);
        self.slots[slot]
    }

    /// Throws away what waits and hands it out.
    pub(crate) fn flush_waiting(&mut self) -> Vec<Packet> {
        let mut flushed = Vec::new();
        while self.next != self.tail {
            self.tail = self.tail.wrapping_sub(1);
            flushed.push(self.slots[self.slot(self.tail)]);
        }
        flushed.reverse();
        flushed
    }

    /// All packets in it: on the wire first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Packet> {
        let count = self.tail.wrapping_sub(self.head);
        (0..count).map(|number| &self.slots[self.slot(self.head.wrapping_add(number))])
    }
}

/// A directed link, from the side of its sender. Bit `c` of a mask stands for class `c`.
#[derive(Debug)]
pub(crate) struct Port {
    /// The transmitter is busy until then.
    pub free_at: u64,
    /// Rank of that instant's "free again" among its events.
    pub free_ticket: u32,
    /// Classes in which something waits.
    pub waiting: u8,
    /// Classes that may not send.
    pub paused: u8,
    /// Classes that have something on the wire.
    pub wire: u8,
    /// An event will look at the transmitter when it is free.
    pub watched: bool,
    /// Picoseconds to send a byte, where that is a whole number; else zero.
    ps_per_byte: u32,
    /// The switch that it leaves, or [`NOWHERE`].
    pub switch: u32,
    /// From the end of a transmission until the next node has the packet.
    pub delay: u64,
    /// The part of it that the next node takes to look a packet up.
    pub latency: u64,
    /// The next node sends packets on before it has all of them.
    pub cut_through: bool,
    /// Bytes that wait, by class.
    pub queued: [u32; CLASSES],
    /// The classes.
    pub rings: [Ring; CLASSES],
    /// Bytes sent so far.
    pub bytes: u64,
    /// The most that waited in all classes together.
    pub peak: u32,
    /// Where the weighted classes stand: bytes that each may still send in this round.
    pub deficits: [i32; CLASSES],
    /// Rate now.
    pub rate: Rate,
}

/// No switch, no link, no message.
pub(crate) const NOWHERE: u32 = u32::MAX;

const PS_BITS: u64 = 8_000_000_000_000;

impl Port {
    /// An idle link.
    pub(crate) fn new(rate: Rate, delay: u64, latency: u64, switch: u32) -> Self {
        let mut port = Self {
            free_at: 0,
            free_ticket: 0,
            waiting: 0,
            paused: 0,
            wire: 0,
            watched: false,
            ps_per_byte: 0,
            switch,
            delay: delay + latency,
            latency,
            cut_through: false,
            queued: [0; CLASSES],
            rings: Default::default(),
            bytes: 0,
            peak: 0,
            deficits: [0; CLASSES],
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

    /// Puts a packet into the queue of a class.
    #[inline]
    pub(crate) fn push(&mut self, class: usize, packet: Packet) {
        self.queued[class] += u32::from(packet.size);
        self.waiting |= 1 << class;
        self.rings[class].push(packet);
    }

    /// When, and with which ticket, the next packet reaches the far end.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Option<(u64, u32)> {
        let mut left = self.wire;
        let mut best: Option<(u64, u32)> = None;
        while left != 0 {
            let class = left.trailing_zeros() as usize;
            left &= left - 1;
            if let Some(packet) = self.rings[class].oldest() {
                let key = (packet.at, packet.ticket);
                if best.is_none_or(|other| key < other) {
                    best = Some(key);
                }
            }
        }
        best
    }

    /// Takes the packet off the wire that arrives first.
    #[inline]
    pub(crate) fn take_arrived(&mut self) -> Packet {
        let mut class = self.wire.trailing_zeros() as usize;
        if self.wire & (self.wire - 1) != 0 {
            let mut left = self.wire & (self.wire - 1);
            let key = |ring: &Ring| ring.oldest().map(|packet| (packet.at, packet.ticket));
            let mut best = key(&self.rings[class]);
            while left != 0 {
                let other = left.trailing_zeros() as usize;
                left &= left - 1;
                let candidate = key(&self.rings[other]);
                if candidate < best {
                    (class, best) = (other, candidate);
                }
            }
        }
        let ring = &mut self.rings[class];
        let packet = ring.take();
        if ring.oldest().is_none() {
            self.wire &= !(1 << class);
        }
        packet
    }

    /// Bytes that wait, in all classes.
    pub(crate) fn total_queued(&self) -> u32 {
        self.queued.iter().sum()
    }
}
