//! Queues and transmitters at work: packets join a queue, leave it, and go onto the wire.
//!
//! The two rules on which the speed rests: departures are worked off when somebody looks
//! ([`Simulation::catch_up`]), and only the oldest packet on a wire has an event.

use units::{Id, Time};

use crate::buffer::MarkWhen;
use crate::calendar::Kind;
use crate::cc::Hop;
use crate::packet::{CONTROL, DATA, LINK_CONTROL, MARKED, Packet, Purpose, RESUME, STAMPED};
use crate::port::{NOWHERE, Port};
use crate::simulation::Simulation;

impl Port {
    /// Whether the transmitter is free by now, counting what happens at this instant before.
    #[inline]
    fn is_free(&self, now: u64, ticket: u32) -> bool {
        self.free_at < now || (self.free_at == now && self.free_ticket <= ticket)
    }
}

impl Simulation<'_> {
    /// Works off the departures of a port that were due until now.
    #[inline]
    pub(crate) fn catch_up(&mut self, link: usize) {
        loop {
            let port = &self.ports[link];
            if port.sendable() == 0 || !port.is_free(self.now, self.ticket) {
                return;
            }
            let start = port.free_at;
            self.transmit(link, start);
        }
    }

    /// Queues a packet at a port and lets it go if the transmitter is idle.
    #[inline]
    pub(crate) fn enqueue(&mut self, link: usize, class: usize, mut packet: Packet) {
        self.catch_up(link);
        let port = &mut self.ports[link];
        packet.at = self.now;
        if self.mark_when == MarkWhen::Enqueue && class == DATA && port.switch != NOWHERE {
            let queued = u64::from(port.queued[class]);
            if self.marker.marks(queued, link) {
                packet.flags |= MARKED;
                self.counters.ecn_marks += u64::from(packet.purpose == Purpose::Data);
            }
        }
        let port = &mut self.ports[link];
        port.push(class, packet);
        port.peak = port.peak.max(port.total_queued());
        self.kick(link);
    }

    /// Lets a port send if it is idle and may; else sees to it that somebody looks again.
    #[inline]
    pub(crate) fn kick(&mut self, link: usize) {
        let port = &self.ports[link];
        if port.sendable() != 0 && port.is_free(self.now, self.ticket) {
            self.transmit(link, self.now);
        }
        if self.departures_are_events(link) {
            self.watch(link);
        }
    }

    /// Whether each departure of this port must happen as an event of its own.
    #[inline]
    fn departures_are_events(&self, link: usize) -> bool {
        if self.explicit {
            return true;
        }
        let switch = self.ports[link].switch;
        switch != NOWHERE && self.switches[switch as usize].alert
    }

    /// Arranges for a look at the transmitter when it is free, if something waits for it.
    #[inline]
    pub(crate) fn watch(&mut self, link: usize) {
        let port = &mut self.ports[link];
        if !port.watched && port.sendable() != 0 {
            port.watched = true;
            let (at, ticket) = (port.free_at.max(self.now), port.free_ticket);
            self.calendar.schedule(at, ticket, Kind::Freed, link);
        }
    }

    /// Handles [`Kind::Freed`] at a switch's port.
    pub(crate) fn freed(&mut self, link: usize) {
        self.ports[link].watched = false;
        if self.ports[link].switch == NOWHERE {
            self.serve(link);
            return;
        }
        self.catch_up(link);
        if self.departures_are_events(link) {
            self.watch(link);
        }
    }

    /// Puts the next packet of a port onto the wire at `start`.
    #[inline]
    pub(crate) fn transmit(&mut self, link: usize, start: u64) {
        let class = self.next_class(link);
        let port = &mut self.ports[link];
        let queued = &mut port.queued[class];
        let ring = &mut port.rings[class];
        let packet = ring.send();
        let size = packet.size;
        *queued -= u32::from(size);
        let queued = u64::from(*queued);
        if port.switch != NOWHERE && class != LINK_CONTROL {
            let stamped = packet.flags & STAMPED != 0 && packet.purpose == Purpose::Data;
            if stamped {
                let hop = Hop {
                    at: Time::from_ps(start),
                    queued: units::Bytes::new(queued),
                    sent: port.bytes,
                    rate_bps: port.rate.as_bps(),
                };
                self.stamps.push(packet.sent, hop);
            }
            if class == DATA
                && self.mark_when == MarkWhen::Dequeue
                && self.marker.marks(queued, link)
            {
                packet.flags |= MARKED;
                self.counters.ecn_marks += u64::from(packet.purpose == Purpose::Data);
            }
            let from = packet.from as usize;
            let switch = &mut self.switches[port.switch as usize];
            if self.lossless >> class & 1 == 1 {
                let ingress = &mut self.ingress[from];
                switch.release(ingress, class, u32::from(size));
                if ingress.pausing >> class & 1 == 1
                    && switch.may_resume(ingress, class, self.xon_below)
                {
                    debug_assert!(start == self.now, "departures that end a pause are events");
                    self.resume_sender(from, class);
                }
            } else {
                switch.lossy -= u64::from(size);
            }
        }
        self.put_on_wire(link, class, start);
    }

    /// The class that a port serves next.
    #[inline]
    fn next_class(&mut self, link: usize) -> usize {
        let port = &mut self.ports[link];
        let sendable = port.sendable();
        let first = sendable.trailing_zeros() as usize;
        let both = (1 << CONTROL) | (1 << DATA);
        if self.control_share == 0 || first != CONTROL || sendable & both != both {
            return first;
        }
        // Deficit round robin between control and data, in bytes.
        loop {
            for class in [CONTROL, DATA] {
                let size = i32::from(port.rings[class].first_waiting().size);
                if size <= port.deficits[class] {
                    port.deficits[class] -= size;
                    return class;
                }
            }
            port.deficits[CONTROL] += self.control_share as i32;
            port.deficits[DATA] += 65_536 - self.control_share as i32;
        }
    }

    /// Occupies the transmitter with the packet that was taken from the queue last.
    #[inline]
    fn put_on_wire(&mut self, link: usize, class: usize, start: u64) {
        let free_ticket = self.calendar.ticket();
        let ticket = self.calendar.ticket();
        let port = &mut self.ports[link];
        let size = u64::from(port.rings[class].last_sent().size);
        let time = port.time_to_send(size + self.sizes.gap, self.clock);
        port.free_at = start + time;
        port.free_ticket = free_ticket;
        port.bytes += size;
        let at = if port.cut_through {
            start + time.min(port.time_to_send(self.header_bytes, self.clock)) + port.delay
        } else {
            port.free_at + port.delay
        };
        let ring = &mut port.rings[class];
        if !ring.waits() {
            port.waiting &= !(1 << class);
        }
        let packet = ring.last_sent();
        packet.at = at;
        packet.ticket = ticket;
        if class == LINK_CONTROL {
            packet.at = port.free_at + port.delay - port.latency + self.pause_response;
            self.calendar.schedule(packet.at, ticket, Kind::Commanded, link);
            return;
        }
        let was_empty = port.wire == 0;
        port.wire |= 1 << class;
        if was_empty {
            self.calendar.schedule(at, ticket, Kind::Arrived, link);
        }
    }

    /// Tells the sender at the other end of `from` to stop, or to go on, with a class.
    pub(crate) fn send_pause(&mut self, from: usize, class: usize, flags: u8) {
        let frame = Packet {
            psn: class as u32,
            size: self.sizes.pause,
            purpose: Purpose::Pause,
            flags,
            ..Packet::default()
        };
        let reverse = self.fabric.reverse(fabric::LinkId::from_index(from)).index();
        self.enqueue(reverse, LINK_CONTROL, frame);
    }

    /// A paused sender may go on.
    #[cold]
    pub(crate) fn resume_sender(&mut self, from: usize, class: usize) {
        let ingress = &mut self.ingress[from];
        ingress.pausing &= !(1 << class);
        let switch = &mut self.switches[ingress.switch as usize];
        switch.pausing -= 1;
        if switch.pausing == 0 {
            switch.alert = false;
        }
        self.send_pause(from, class, RESUME);
    }
}
