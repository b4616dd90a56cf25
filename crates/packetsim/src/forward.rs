//! A switch forwards the packets of a batch.
//!
//! There are three ways, with the same result. [`Simulation::link_crossed`] is the general one. A
//! switch whose outputs are independent goes output by output ([`crate::by_output`]). Any other
//! switch below its thresholds forwards in the order of time: [`Egress`] does what
//! [`Simulation::link_crossed`] does, without pauses and drops, which cannot happen there. Both
//! leave a packet to the general way where something rare happens.

use fabric::routes::towards_leaf;
use fabric::{Fabric, LinkId, NodeId};
use units::{Id, IdVec};

use crate::buffer::{MarkWhen, Switch};
use crate::by_output::INPUT_MASK;
use crate::credits::Credits;
use crate::ids::{Maybe, PairId, Raw, SwitchId};
use crate::limits::INPUT_BITS;
use crate::packet::{
    Class, Clock, DAMAGED, DATA, LANE_SHIFT, MARKED, Packet, Purpose, ROAMING, STAMPED, Waiting,
    joined,
};
use crate::paths::Network;
use crate::port::{COMMAND, Port};
use crate::simulation::{Input, Net, Simulation};
use crate::stamps::Stamps;
use crate::switching::{LanePause, Marker};

/// Flags of a packet that is in another lane than the first.
const LANE_MASK: u8 = u8::MAX << LANE_SHIFT;

/// The state that a batch in the order of time works on.
struct Egress<'a> {
    ports: &'a mut IdVec<LinkId, Port>,
    wires: &'a mut [Packet],
    queues: &'a mut [Waiting],
    switch: &'a mut Switch,
    marker: &'a mut Marker,
    /// Links whose wire was empty.
    newly_busy: &'a mut Vec<LinkId>,
    credits: &'a mut Credits,
    lane_pauses: &'a mut [LanePause],
    lanes: usize,
    stamps: &'a mut Stamps,
    gap: u64,
    header: u64,
    lossless: bool,
    by_credit: bool,
    marks_at_dequeue: bool,
    marked: u64,
}

impl<'a> Egress<'a> {
    /// For a switch; and the list of paths, and the routing.
    #[inline(always)]
    fn new(
        net: &'a mut Net,
        input: &Input<'_>,
        number: SwitchId,
    ) -> (Self, &'a [u32], &'a mut Network) {
        let egress = Self {
            ports: &mut net.ports,
            wires: net.wires.places(),
            queues: net.queued.places(),
            switch: &mut net.switches[number],
            marker: &mut net.marker,
            newly_busy: &mut net.newly_busy,
            credits: &mut net.credits,
            lane_pauses: &mut net.lane_pauses,
            lanes: input.rules.lanes,
            stamps: &mut net.stamps,
            gap: input.sizes.gap,
            header: input.rules.header_bytes,
            lossless: DATA.is_in(input.rules.lossless),
            by_credit: input.settings.credits.enabled,
            marks_at_dequeue: input.rules.mark_when == MarkWhen::Dequeue,
            marked: 0,
        };
        (egress, &net.paths, &mut net.network)
    }

    /// Forwards a packet to an output, or enqueues it there; false, and nothing done, if that needs
    /// the general way.
    #[inline(always)]
    fn forward(
        &mut self,
        link: LinkId,
        next: LinkId,
        class: Class,
        packet: Packet,
        at: u64,
    ) -> bool {
        if !self.switch.is_below_thresholds() {
            return false;
        }
        let port = &self.ports[next];
        if port.waiting == 0 && port.free_at <= at && port.paused == 0 {
            return self.transmit_at_once(link, next, class, packet, at);
        }
        if !self.dequeue_until(next, at) {
            return false;
        }
        let port = &mut self.ports[next];
        if port.free_at <= at && (port.waiting == 0 || class < DATA) {
            // Idle, or stalled with data, which does not hold up control.
            return self.transmit_at_once(link, next, class, packet, at);
        }
        if at < port.free_at && port.wire.is_empty() && !port.leaves {
            // The packet that is being sent has reached the far end, which cuts through: no arrival
            // would cause a read of this port.
            return false;
        }
        let size = u32::from(packet.size);
        if port.queued.checked_add(size).is_none() {
            return false;
        }
        let Some(place) = port.classes[class].queue.add_tail() else { return false };
        let packet = Packet { at: joined(at), ..packet };
        self.queues[place] = Waiting { packet, from: Maybe::some(link) };
        port.joined(class, size);
        if self.by_credit {
            // Its credits are its charge.
        } else if class == DATA && self.lossless {
            self.switch.charge(&mut self.ports[link], class, size);
        } else {
            self.switch.charge_lossy(size);
        }
        true
    }

    /// The next link of a packet whose path is chosen at every switch, as [`Simulation::choose_at`]
    /// does; none if that needs the general way.
    #[inline]
    fn choose(
        &mut self,
        network: &mut Network,
        (fabric, node): (&Fabric, NodeId),
        packet: &Packet,
        choices: u32,
        at: u64,
    ) -> Option<LinkId> {
        let pair = PairId::of(packet.route);
        let home = network.home(pair)?;
        if home.leaf == node {
            return Some(home.last);
        }
        let several = towards_leaf(fabric, node, home.ordinal);
        if several.len() < 2 {
            return several.first().copied();
        }
        if !several.iter().all(|link| self.dequeue_until(*link, at)) {
            return None;
        }
        Some(network.choose(self.ports, node, (pair, packet.psn, choices), several))
    }

    /// Transmits a packet that need not wait.
    #[inline(always)]
    fn transmit_at_once(
        &mut self,
        link: LinkId,
        next: LinkId,
        class: Class,
        packet: Packet,
        at: u64,
    ) -> bool {
        if !self.may_transmit(next, class, at) {
            return false;
        }
        self.stamp(&packet, next, at, 0);
        self.transmit(next, class, at, packet);
        if self.by_credit {
            self.credits.give(link, class, u32::from(packet.size), at);
        }
        true
    }

    /// Applies the departures of a port until an instant; false if that needs the general way.
    #[inline(always)]
    fn dequeue_until(&mut self, link: LinkId, at: u64) -> bool {
        let port = &self.ports[link];
        if port.waiting & COMMAND != 0 || port.paused != 0 {
            return false;
        }
        while self.ports[link].waiting != 0 && self.ports[link].free_at <= at {
            if !self.dequeue(link) {
                return self.is_stalled(link, at);
            }
        }
        true
    }

    /// Whether it is known that nothing of what waits at a port has credits at an instant.
    #[inline]
    fn is_stalled(&self, link: LinkId, at: u64) -> bool {
        let only_data = self.ports[link].waiting == DATA.bit() && self.lanes == 1;
        only_data && self.credits.are_out(link, at)
    }

    /// Transmits the first packet that waits, when the transmitter is free; false if it may not.
    #[inline(always)]
    fn dequeue(&mut self, link: LinkId) -> bool {
        let port = &self.ports[link];
        let start = port.free_at;
        let class = Class::first_of(port.waiting);
        if (1 < self.lanes && DATA <= class) || !self.may_transmit(link, class, start) {
            return false;
        }
        let port = &mut self.ports[link];
        let queue = &mut port.classes[class].queue;
        let Waiting { mut packet, from } = self.queues[queue.head()];
        queue.drop_head();
        let size = u32::from(packet.size);
        let left = port.left(class, size);
        if class == DATA
            && self.marks_at_dequeue
            && self.marker.marks(left, link, DATA)
            && packet.purpose == Purpose::Data
        {
            packet.flags |= MARKED;
            self.ports[link].marks += 1;
            self.marked += 1;
        }
        if self.by_credit {
            self.credits.give(from.known(), class, size, start);
        } else if class == DATA && self.lossless {
            self.switch.discharge(&mut self.ports[from.known()], class, size);
        } else {
            self.switch.release_lossy(size);
        }
        self.stamp(&packet, link, start, left);
        self.transmit(link, class, start, packet);
        true
    }

    /// Adds a hop stamp to a packet, if it has such.
    #[inline(always)]
    fn stamp(&mut self, packet: &Packet, link: LinkId, start: u64, queued: u64) {
        if packet.flags & STAMPED != 0 && packet.purpose == Purpose::Data {
            self.stamps.push(packet.sent, self.ports[link].hop(start, queued));
        }
    }

    /// Whether the wire has room for a packet, and the far end has credits.
    #[inline(always)]
    fn may_transmit(&mut self, link: LinkId, class: Class, start: u64) -> bool {
        let has_room = self.ports[link].wire.has_room();
        has_room && (!self.by_credit || self.credits.suffice(link, class, start))
    }

    /// Puts a packet that may be sent on the wire.
    #[inline(always)]
    fn transmit(&mut self, link: LinkId, class: Class, start: u64, packet: Packet) {
        if self.by_credit {
            let waited = self.credits.spend(link, class, u32::from(packet.size), start);
            if 0 < waited {
                self.lane_pauses[link.index() * self.lanes + class.lane()].total += waited;
            }
        }
        let port = &mut self.ports[link];
        if port.wire.is_empty() {
            self.newly_busy.push(link);
        }
        let place = port.wire.add_tail().expect("it may send");
        let size = u64::from(packet.size);
        let time = port.time_to_send(size + self.gap, Clock::Picosecond);
        port.free_at = start + time;
        port.bytes += size;
        let mut at = port.free_at + port.delay;
        if port.cut_through {
            at -= time - time.min(port.time_to_send(self.header, Clock::Picosecond));
        }
        self.wires[place] = Packet { at: at as u32, ..packet };
    }
}

impl Simulation<'_> {
    /// Forwards what arrives at a switch before the horizon; until when its inputs are known is
    /// stored, and the next event elsewhere is at `next_elsewhere`. Returns the time and rank of
    /// the next arrival after that.
    pub(crate) fn forward_arrivals(
        &mut self,
        number: SwitchId,
        next_elsewhere: u64,
        horizon: u64,
    ) -> (u64, u32) {
        if self.net.outputs_are_independent
            && self.net.switches[number].is_below_thresholds()
            && self.accounts.recorder.is_none()
            && let Some(next) = self.forward_by_output(number, horizon)
        {
            return next;
        }
        self.forward_in_order(number, next_elsewhere, horizon);
        self.next_of_batch(number)
    }

    /// Forwards what arrives before the horizon, in the order of time.
    fn forward_in_order(&mut self, number: SwitchId, next_elsewhere: u64, horizon: u64) {
        let now = self.time.now;
        self.collect_arrivals(number, horizon);
        self.net.known_until = next_elsewhere.saturating_sub(1);
        let incoming = std::mem::take(&mut self.net.incoming);
        let mut done = 0;
        while done < incoming.len() && self.net.switches[number].is_batched() {
            done += self.forward_batch(number, now, &incoming[done..]);
            if let Some(key) = incoming.get(done) {
                self.forward_one(number, now, *key);
                done += 1;
            }
        }
        self.net.incoming = incoming;
    }

    /// Forwards one packet by the general way.
    fn forward_one(&mut self, number: SwitchId, now: u64, key: u64) {
        let link = self.net.switches[number].inputs[(key & INPUT_MASK) as usize];
        self.time.now = now + (key >> INPUT_BITS);
        self.time.ticket = link.raw();
        self.accounts.counters.events += 1;
        let packet = self.net.wires.pop(&mut self.net.ports[link].wire);
        self.link_crossed(link, packet);
    }

    /// Forwards packets until one needs the general way; returns how many.
    fn forward_batch(&mut self, number: SwitchId, now: u64, incoming: &[u64]) -> usize {
        if !self.net.damage.is_empty()
            || self.accounts.recorder.is_some()
            || self.input.rules.control_share != 0
            || self.input.rules.mark_when == MarkWhen::Enqueue
            || self.net.wires.is_tagged()
        {
            return 0;
        }
        let (mut egress, paths, network) = Egress::new(&mut self.net, &self.input, number);
        let mut hops = 0;
        let mut done = 0;
        let node = self.input.fabric.links()[egress.switch.inputs[0]].to;
        for key in incoming {
            let at = now + (key >> INPUT_BITS);
            let link = egress.switch.inputs[(key & INPUT_MASK) as usize];
            let wire = egress.ports[link].wire;
            let mut packet = egress.wires[wire.head()];
            if packet.flags & (DAMAGED | LANE_MASK) != 0 {
                break;
            }
            let class = self.input.rules.class_in_switch[packet.purpose as usize];
            let next = if packet.flags & ROAMING == 0 {
                packet.route += 1;
                LinkId::of(paths[packet.route as usize - 1])
            } else {
                let choices = self.ends.pairs[PairId::of(packet.route)].choices;
                let here = (self.input.fabric, node);
                match egress.choose(network, here, &packet, choices, at) {
                    Some(next) => next,
                    None => break,
                }
            };
            if !egress.forward(link, next, class, packet, at) {
                break;
            }
            egress.ports[link].wire.drop_head();
            hops += u64::from(packet.purpose == Purpose::Data);
            done += 1;
        }
        self.accounts.counters.ecn_marks += egress.marked;
        self.accounts.counters.packet_hops += hops;
        self.accounts.counters.events += done as u64;
        done
    }

    /// Lists the arrivals at a switch before the horizon, in order of time.
    fn collect_arrivals(&mut self, number: SwitchId, horizon: u64) {
        let mut incoming = std::mem::take(&mut self.net.incoming);
        incoming.clear();
        let reach = horizon - self.time.now;
        self.read_inputs(number);
        for place in 0..self.net.switches[number].inputs.len() {
            let link = self.net.switches[number].inputs[place];
            self.apply_departures_before(link, self.net.inputs_known_until[place]);
            let wire = self.net.ports[link].wire;
            let key = |ahead: u64| ahead << INPUT_BITS | place as u64;
            if self.net.wires.is_tagged() {
                let arrivals =
                    self.net.wires.iter_tagged(wire).map(|(packet, tag)| tag.time(packet.at));
                let ahead =
                    arrivals.map(|at| at - self.time.now).take_while(|ahead| *ahead < reach);
                incoming.extend(ahead.map(key));
                continue;
            }
            for packet in self.net.wires.iter(wire) {
                let ahead = u64::from(packet.at.wrapping_sub(self.time.now as u32));
                if reach <= ahead {
                    break;
                }
                incoming.push(key(ahead));
            }
        }
        self.net.incoming = incoming;
        let outputs = self.net.switches[number].ports.iter().copied();
        self.read_outputs(outputs, self.net.incoming.len());
        self.net.incoming.sort_unstable();
    }
}
