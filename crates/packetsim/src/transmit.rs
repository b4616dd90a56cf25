//! Ports: enqueue, dequeue, transmit.
//!
//! The two rules on which the speed rests: departures are applied when a port is read
//! ([`Simulation::apply_departures`]), and only the oldest packet on a wire has an event.

use fabric::LinkId;
use units::Id;

use crate::buffer::MarkWhen;
use crate::calendar::Event;
use crate::faults::LinkFault;
use crate::ids::Raw;
use crate::limits::QUEUE_BYTES;
use crate::packet::{
    CONTROL, Class, DATA, DATA_CLASSES, MARKED, Packet, Purpose, RESUME, STAMPED, Waiting, waited,
};
use crate::port::COMMAND;
use crate::ring::Tag;
use crate::simulation::Simulation;

impl Simulation<'_> {
    /// Applies the departures of a port that were due until now.
    #[inline]
    pub(crate) fn apply_departures(&mut self, link: LinkId) {
        loop {
            let port = &self.net.ports[link];
            if port.sendable() == 0 || !port.is_free(self.time.now, self.time.ticket) {
                return;
            }
            let start = port.free_at;
            if !self.net.credits.are_counted() {
                self.transmit(link, start);
            } else if !self.depart_by_credit(link, self.time.now) {
                return;
            }
        }
    }

    /// Applies the departures of a port that were due before an instant.
    #[inline]
    pub(crate) fn apply_departures_before(&mut self, link: LinkId, at: u64) {
        loop {
            let port = &self.net.ports[link];
            if port.sendable() == 0 || at <= port.free_at {
                return;
            }
            let start = port.free_at;
            if !self.net.credits.are_counted() {
                self.transmit(link, start);
            } else if !self.depart_by_credit(link, at - 1) {
                return;
            }
        }
    }

    /// Whether a packet of a class that arrives now would be sent at once. Due departures must
    /// have been applied.
    #[inline]
    pub(crate) fn is_idle(&self, link: LinkId, class: Class) -> bool {
        let port = &self.net.ports[link];
        // Data that waits at a free port waits for credits, which hold up nothing else.
        let before = if class < DATA { port.sendable() & !DATA_CLASSES } else { port.sendable() };
        before == 0 && !class.is_in(port.paused) && port.is_free(self.time.now, self.time.ticket)
    }

    /// Puts a packet into a queue. If the transmitter is idle it goes at once.
    #[inline]
    pub(crate) fn enqueue(&mut self, link: LinkId, class: Class, waiting: Waiting) {
        // A packet that is sent at once has not waited: it does not count for the deepest queue.
        let waits = self.input.departures.are_events()
            || self.net.credits.are_counted()
            || !self.is_idle(link, class);
        let (port, size) = (&mut self.net.ports[link], u32::from(waiting.packet.size));
        assert!(size <= QUEUE_BYTES - port.queued, "less than 4 GiB wait for a link");
        let peak = port.peak;
        port.joined(class, size);
        port.peak = if waits { port.peak } else { peak };
        self.net.queued.push(&mut port.classes[class].queue, waiting);
        self.start_transmitter(link);
    }

    /// Transmits if the port is idle and may send; else schedules an event where one is needed.
    #[inline]
    pub(crate) fn start_transmitter(&mut self, link: LinkId) {
        let port = &mut self.net.ports[link];
        if port.sendable() != 0 && port.is_free(self.time.now, self.time.ticket) {
            if self.net.credits.are_counted() {
                // It has been idle, or stalled, until now.
                (port.free_at, port.free_ticket) = (self.time.now, 0);
                self.apply_departures(link);
            } else {
                self.transmit(link, self.time.now);
            }
        }
        // With an empty wire no arrival would cause a read of this port: the transmitter is busy
        // with a pause frame, or there are no credits.
        if self.departures_are_events(link) || self.has_empty_wire(link) {
            self.schedule_free_or_credit_event(link);
        }
    }

    /// Whether no arrival at the far end will cause a read of this port.
    #[inline]
    fn has_empty_wire(&self, link: LinkId) -> bool {
        let port = &self.net.ports[link];
        port.wire.is_empty() && !port.leaves
    }

    /// Whether each departure of this port is an event.
    #[inline]
    fn departures_are_events(&self, link: LinkId) -> bool {
        if self.input.departures.are_events() {
            return true;
        }
        let switch = self.net.ports[link].switch;
        switch.get().is_some_and(|switch| self.net.switches[switch].departures_are_events)
    }

    /// Schedules an event for when the transmitter is free, if a packet waits for it.
    #[inline]
    pub(crate) fn schedule_free_event(&mut self, link: LinkId) {
        let port = &mut self.net.ports[link];
        if !port.free_event_pending && port.sendable() != 0 {
            port.free_event_pending = true;
            let (at, ticket) = (port.free_at.max(self.time.now), port.free_ticket);
            self.schedule(at, ticket, Event::TransmitterFreed(link));
        }
    }

    /// The same for a port whose departures have been applied: if it is free and something still
    /// waits, that waits for credits. Those that it does not know of yet take the way back, and
    /// what they let go the way there; so it is soon enough to look after one of them.
    pub(crate) fn schedule_free_or_credit_event(&mut self, link: LinkId) {
        let port = &self.net.ports[link];
        if !self.net.credits.are_counted() || port.sendable() == 0 || self.time.now < port.free_at {
            self.schedule_free_event(link);
        } else if port.into.is_some() && self.net.switches[port.into.known()].is_batched() {
            self.schedule_arrival(link, port.free_at + port.delay, link.raw());
        } else if !port.free_event_pending {
            let at = self.time.now + (port.delay - port.latency).max(1_000);
            self.net.ports[link].free_event_pending = true;
            self.schedule(at, 0, Event::TransmitterFreed(link));
        }
    }

    /// Handles [`Event::TransmitterFreed`].
    pub(crate) fn transmitter_freed(&mut self, link: LinkId) {
        self.net.ports[link].free_event_pending = false;
        if self.net.ports[link].switch.is_none() {
            self.try_transmit(link);
        } else {
            self.apply_departures(link);
        }
        // A pause frame must leave in time, for it acts on the far end. And with an empty wire no
        // arrival would cause a read of this port.
        let commands = self.net.ports[link].waiting & COMMAND != 0;
        let is_empty = self.has_empty_wire(link);
        let from_switch = self.net.ports[link].switch.is_some();
        if commands || is_empty || (from_switch && self.departures_are_events(link)) {
            self.schedule_free_or_credit_event(link);
        }
    }

    /// Takes the next packet of a port out of its queue and puts it onto the wire at `start`.
    pub(crate) fn transmit(&mut self, link: LinkId, start: u64) {
        if self.net.ports[link].waiting & COMMAND != 0 {
            self.transmit_pause_frame(link, start);
            return;
        }
        let class = self.next_class(link);
        self.transmit_class(link, class, start);
    }

    /// Takes the next packet of a class out of its queue and puts it onto the wire at `start`.
    #[inline]
    pub(crate) fn transmit_class(&mut self, link: LinkId, class: Class, start: u64) {
        let port = &mut self.net.ports[link];
        let Waiting { mut packet, from } = self.net.queued.pop(&mut port.classes[class].queue);
        let size = u32::from(packet.size);
        let left = port.left(class, size);
        let switch = port.switch;
        if self.accounts.recorder.is_some() {
            self.record_wait(link, packet.purpose, waited(packet.at, start));
        }
        if let Some(switch) = switch.get() {
            if packet.flags & STAMPED != 0 {
                self.stamp(link, &packet, start, left);
            }
            // An acknowledgement's flag is the echo of a data packet's mark, never its own.
            if DATA <= class
                && self.input.rules.mark_when == MarkWhen::Dequeue
                && self.net.marker.marks(left, link, class)
                && packet.purpose == Purpose::Data
            {
                packet.flags |= MARKED;
                self.count_mark(link, &packet);
            }
            let switch = &mut self.net.switches[switch];
            if from.is_none() {
                // It began here, and was charged to nobody.
            } else if self.net.credits.are_counted() {
                self.net.credits.give(from.known(), class, size, start);
            } else if class.is_in(self.input.rules.lossless) {
                let from_port = &mut self.net.ports[from.known()];
                switch.release(from_port, class, size);
                if class.is_in(from_port.pausing)
                    && switch.may_resume(from_port, class, self.input.rules.xon_below)
                {
                    debug_assert!(start == self.time.now, "departures that end a pause are events");
                    self.resume_upstream(from.known(), class);
                }
            } else {
                switch.release_lossy(size);
            }
        }
        self.put_on_wire(link, start, packet);
    }

    /// A data packet is marked in the queue of a link.
    pub(crate) fn count_mark(&mut self, link: LinkId, packet: &Packet) {
        self.net.ports[link].marks += 1;
        self.accounts.counters.ecn_marks += 1;
        if packet.lane() != 0 {
            self.net.lane_counts[link.index() * self.input.rules.lanes + packet.lane()].marks += 1;
        }
    }

    /// The class of a packet in a switch.
    #[inline]
    pub(crate) fn class_of(&self, packet: &Packet) -> Class {
        let class = self.input.rules.class_in_switch[packet.purpose as usize];
        if class == DATA { Class::of_lane(packet.lane()) } else { class }
    }

    /// The class that a port serves next.
    #[inline]
    fn next_class(&mut self, link: LinkId) -> Class {
        let port = &mut self.net.ports[link];
        let sendable = port.sendable();
        let first = Class::first_of(sendable);
        if 1 < self.input.rules.lanes && DATA <= first {
            let class = self.net.credits.next_lane(link, port, sendable);
            let size = self.net.queued.first(port.classes[class].queue).packet.size;
            port.deficits[class] -= i32::from(size);
            return class;
        }
        let both = CONTROL.bit() | DATA.bit();
        if self.input.rules.control_share == 0 || sendable & both != both {
            return first;
        }
        // Deficit round robin between control and data, in bytes.
        loop {
            for class in [CONTROL, DATA] {
                let size = i32::from(self.net.queued.first(port.classes[class].queue).packet.size);
                if size <= port.deficits[class] {
                    port.deficits[class] -= size;
                    return class;
                }
            }
            port.deficits[CONTROL] += self.input.rules.control_share as i32;
            port.deficits[DATA] += 65_536 - self.input.rules.control_share as i32;
        }
    }

    /// Adds a hop stamp to a packet.
    pub(crate) fn stamp(&mut self, link: LinkId, packet: &Packet, start: u64, queued: u64) {
        if packet.purpose == Purpose::Data {
            self.net.stamps.push(packet.sent, self.net.ports[link].hop(start, queued));
        }
    }

    /// Ranks for "free again" and for the arrival that a transmission causes: what departs goes
    /// before what arrives, and arrivals of one instant go by link, whatever the order in which
    /// they were worked out. With explicit departures, in the order in which transmissions began.
    #[inline]
    fn draw_tickets(&mut self, link: LinkId) -> (u32, u32) {
        if self.input.departures.are_events() {
            (self.time.calendar.ticket(), self.time.calendar.ticket())
        } else {
            (0, link.raw())
        }
    }

    /// When the oldest packet on a wire arrives, and its rank at that instant.
    #[inline]
    pub(crate) fn next_arrival(&self, link: LinkId) -> (u64, u32) {
        let wire = self.net.ports[link].wire;
        let first = self.net.wires.first(wire);
        if !self.net.wires.is_tagged() {
            return (first.arrival(self.time.calendar.now()), link.raw());
        }
        let tag = self.net.wires.tag(wire);
        (
            tag.time(first.at),
            if self.input.departures.are_events() { tag.ticket } else { link.raw() },
        )
    }

    /// Occupies the transmitter with a packet.
    #[inline]
    pub(crate) fn put_on_wire(&mut self, link: LinkId, start: u64, mut packet: Packet) {
        let (free_ticket, ticket) = self.draw_tickets(link);
        let port = &mut self.net.ports[link];
        let size = u64::from(packet.size);
        // Cells follow each other without one.
        let gap = if packet.purpose == Purpose::Cell { 0 } else { self.input.sizes.gap };
        let time = port.time_to_send(size + gap, self.input.clock);
        port.free_at = start + time;
        port.free_ticket = free_ticket;
        // A dead port sends nothing, whatever is put into it.
        if !matches!(self.net.troubles.get(link), Some(LinkFault::Down)) {
            port.bytes += size;
            if packet.lane() != 0 {
                self.net.lane_counts[link.index() * self.input.rules.lanes + packet.lane()]
                    .bytes += size;
            }
        }
        let mut at = port.free_at + port.delay;
        if port.cut_through {
            let header = port.time_to_send(self.input.rules.header_bytes, self.input.clock);
            at -= time - time.min(header);
        }
        packet.at = at as u32;
        let was_empty = port.wire.is_empty();
        self.net.wires.push(&mut port.wire, packet);
        if self.net.wires.is_tagged() {
            self.net.wires.set_tag(port.wire, Tag::new(ticket, at));
        }
        if was_empty {
            self.schedule_arrival(link, at, ticket);
        }
        self.spend_credit(link, &packet, start);
    }

    /// Tells the sender at the other end of `from` to stop, or to go on, with a class.
    pub(crate) fn send_pause(&mut self, from: LinkId, class: Class, flags: u8) {
        let frame = Packet {
            psn: class.index() as u32,
            size: self.input.sizes.pause,
            purpose: Purpose::Pause,
            flags,
            ..Packet::default()
        };
        let reverse = self.input.fabric.reverse(from);
        self.apply_departures(reverse);
        self.net.pauses[reverse].waiting.push_back(frame);
        let port = &mut self.net.ports[reverse];
        port.waiting |= COMMAND;
        if port.is_free(self.time.now, self.time.ticket) {
            self.transmit(reverse, self.time.now);
        }
        self.schedule_free_event(reverse);
    }

    /// Puts a frame of the link itself onto the wire.
    #[cold]
    fn transmit_pause_frame(&mut self, link: LinkId, start: u64) {
        let log = &mut self.net.pauses[link];
        let frame = log.waiting.pop_front().expect("the mask says that a frame waits");
        let (free_ticket, ticket) = self.draw_tickets(link);
        let response = self.quanta(link, self.input.rules.response_quanta);
        let log = &self.net.pauses[link];
        let port = &mut self.net.ports[link];
        if log.waiting.is_empty() {
            port.waiting &= !COMMAND;
        }
        let size = u64::from(frame.size);
        port.free_at = start + port.time_to_send(size + self.input.sizes.gap, self.input.clock);
        port.free_ticket = free_ticket;
        port.bytes += size;
        let at = port.free_at + port.delay - port.latency + response;
        if port.leaves {
            self.part.note_pause(link, at, frame);
            return;
        }
        self.net.pauses[link].flying.push_back(frame);
        self.schedule(at, ticket, Event::PauseFrame(link));
        self.require_events(self.net.ports[link].into);
    }

    /// A paused sender may go on.
    #[cold]
    pub(crate) fn resume_upstream(&mut self, from: LinkId, class: Class) {
        let port = &mut self.net.ports[from];
        port.pausing &= !class.bit();
        let switch = &mut self.net.switches[port.into.known()];
        switch.pausing -= 1;
        let calm = switch.pausing == 0;
        if calm {
            switch.departures_are_events = false;
        }
        self.send_pause(from, class, RESUME);
        if calm {
            self.release_events(self.net.ports[from].into);
        }
    }
}
