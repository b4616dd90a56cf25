//! What a calm switch does with the packets of a batch: this is where the engine spends its time.
//!
//! [`Egress`] does what [`Simulation::link_crossed`] does, less what cannot happen in a calm
//! switch, on slices that stay in registers. Packets are taken in one of two orders. In the order
//! of time where one output is felt at another: a packet's next link is chosen by what waits at
//! several, links count credits, or somebody may come near a threshold. Everywhere else what one
//! output does is nothing to the others, so each output takes all of its packets at once
//! ([`Sorter`]): most come over one or two inputs, in order already, and nothing is sorted.

use fabric::routes::towards_leaf;
use fabric::{Fabric, LinkId, NodeId};
use units::{Id, IdVec};

use crate::buffer::{MarkWhen, Switch};
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

const INPUT_MASK: u64 = (1 << INPUT_BITS) - 1;

/// Flags of a packet that is in another lane than the first.
const LANE_MASK: u8 = u8::MAX << LANE_SHIFT;

/// Nothing follows.
const NONE: u32 = u32::MAX;

/// A packet that reaches a switch before its horizon.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// The time until it arrives, then the place of its link among the switch's inputs.
    key: u64,
    /// The next one for the same output.
    then: u32,
    packet: Packet,
}

/// The arrivals for one output, in order.
#[derive(Clone, Copy, Debug)]
struct Line {
    output: LinkId,
    first: u32,
    last: u32,
    /// The one that was added last.
    newest: u32,
    /// The input over which that came.
    input: u32,
}

/// All that reaches a switch before its horizon, by output.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    arrivals: Vec<Arrival>,
    /// How many came over each input.
    taken: Vec<u32>,
    lines: Vec<Line>,
    /// By link: the line of an output, or a larger number.
    line_of: IdVec<LinkId, u32>,
}

impl Sorter {
    /// For so many links.
    pub(crate) fn new(links: usize) -> Self {
        Self { line_of: vec![NONE; links].into(), ..Self::default() }
    }

    /// Adds an arrival to what an output gets. Those of one input come in order.
    #[inline(always)]
    fn add(&mut self, output: LinkId, input: u32, arrival: Arrival) {
        let number = self.arrivals.len() as u32;
        self.arrivals.push(arrival);
        let Some(line) = self.lines.get_mut(self.line_of[output] as usize) else {
            self.line_of[output] = self.lines.len() as u32;
            self.lines.push(Line { output, first: number, last: number, newest: number, input });
            return;
        };
        let before = if self.arrivals[line.last as usize].key < arrival.key {
            std::mem::replace(&mut line.last, number)
        } else {
            let mut before = if line.input == input { line.newest } else { NONE };
            loop {
                let next = match self.arrivals.get(before as usize) {
                    Some(before) => before.then,
                    None => line.first,
                };
                if arrival.key < self.arrivals[next as usize].key {
                    self.arrivals[number as usize].then = next;
                    break before;
                }
                before = next;
            }
        };
        match self.arrivals.get_mut(before as usize) {
            Some(before) => before.then = number,
            None => line.first = number,
        }
        (line.newest, line.input) = (number, input);
    }

    /// Forgets all.
    fn clear(&mut self) {
        self.lines.iter().for_each(|line| self.line_of[line.output] = NONE);
        self.lines.clear();
        self.arrivals.clear();
        self.taken.clear();
    }
}

/// What the hot loop has at hand.
struct Egress<'a> {
    ports: &'a mut IdVec<LinkId, Port>,
    wires: &'a mut [Packet],
    queues: &'a mut [Waiting],
    switch: &'a mut Switch,
    marker: &'a mut Marker,
    /// Links whose wire was empty.
    announced: &'a mut Vec<LinkId>,
    credits: &'a mut Credits,
    lane_pauses: &'a mut [LanePause],
    lanes: usize,
    stamps: &'a mut Stamps,
    gap: u64,
    header: u64,
    lossless: bool,
    by_credit: bool,
    marks_on_leaving: bool,
    marked: u64,
}

impl<'a> Egress<'a> {
    /// Of a switch; and the list of paths, and the network's ways.
    #[inline(always)]
    fn new(
        net: &'a mut Net,
        input: &Input<'_>,
        number: SwitchId,
    ) -> (Self, &'a [u32], &'a mut Network) {
        let hot = Self {
            ports: &mut net.ports,
            wires: net.wires.places(),
            queues: net.queued.places(),
            switch: &mut net.switches[number],
            marker: &mut net.marker,
            announced: &mut net.announced,
            credits: &mut net.credits,
            lane_pauses: &mut net.lane_pauses,
            lanes: input.rules.lanes,
            stamps: &mut net.stamps,
            gap: input.sizes.gap,
            header: input.rules.header_bytes,
            lossless: DATA.is_in(input.rules.lossless),
            by_credit: input.settings.credits.enabled,
            marks_on_leaving: input.rules.mark_when == MarkWhen::Dequeue,
            marked: 0,
        };
        (hot, &net.paths, &mut net.network)
    }

    /// Takes a packet into the switch; false, and nothing done, if that is not simple.
    #[inline(always)]
    fn take(&mut self, link: LinkId, next: LinkId, class: Class, packet: Packet, at: u64) -> bool {
        if !self.switch.is_calm() {
            return false;
        }
        let port = &self.ports[next];
        if port.waiting == 0 && port.free_at <= at && port.paused == 0 {
            return self.pass_through(link, next, class, packet, at);
        }
        if !self.catch_up(next, at) {
            return false;
        }
        let port = &mut self.ports[next];
        if port.free_at <= at && (port.waiting == 0 || class < DATA) {
            // Idle, or stalled with data, which holds up nothing else.
            return self.pass_through(link, next, class, packet, at);
        }
        if at < port.free_at && port.wire.is_empty() && !port.leaves {
            // What is being sent has reached the far end already, since that cuts through: nobody
            // would look for what follows.
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

    /// The link that a packet takes next whose way is chosen at every switch; none if that is not
    /// simple. What [`Simulation::choose_at`] does.
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
        if !several.iter().all(|link| self.catch_up(*link, at)) {
            return None;
        }
        Some(network.choose(self.ports, node, (pair, packet.psn, choices), several))
    }

    /// Sends a packet on that nothing holds up.
    #[inline(always)]
    fn pass_through(
        &mut self,
        link: LinkId,
        next: LinkId,
        class: Class,
        packet: Packet,
        at: u64,
    ) -> bool {
        if !self.may_send(next, class, at) {
            return false;
        }
        self.stamp(&packet, next, at, 0);
        self.send(next, class, at, packet);
        if self.by_credit {
            self.credits.give(link, class, u32::from(packet.size), at);
        }
        true
    }

    /// Applies the departures of a port until an instant; false if that is not simple.
    #[inline(always)]
    fn catch_up(&mut self, link: LinkId, at: u64) -> bool {
        let port = &self.ports[link];
        if port.waiting & COMMAND != 0 || port.paused != 0 {
            return false;
        }
        while self.ports[link].waiting != 0 && self.ports[link].free_at <= at {
            if !self.depart(link) {
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

    /// Lets the first waiting packet go when the transmitter is free; false if there is no room.
    #[inline(always)]
    fn depart(&mut self, link: LinkId) -> bool {
        let port = &self.ports[link];
        let start = port.free_at;
        let class = Class::first_of(port.waiting);
        if (1 < self.lanes && DATA <= class) || !self.may_send(link, class, start) {
            return false;
        }
        let port = &mut self.ports[link];
        let queue = &mut port.classes[class].queue;
        let Waiting { mut packet, from } = self.queues[queue.head()];
        queue.drop_head();
        let size = u32::from(packet.size);
        let left = port.left(class, size);
        if class == DATA
            && self.marks_on_leaving
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
        self.send(link, class, start, packet);
        true
    }

    /// Writes on a packet what its link looks like, if it asks for that.
    #[inline(always)]
    fn stamp(&mut self, packet: &Packet, link: LinkId, start: u64, queued: u64) {
        if packet.flags & STAMPED != 0 && packet.purpose == Purpose::Data {
            self.stamps.push(packet.sent, self.ports[link].hop(start, queued));
        }
    }

    /// Whether the wire has room for a packet, and the far end.
    #[inline(always)]
    fn may_send(&mut self, link: LinkId, class: Class, start: u64) -> bool {
        let has_room = self.ports[link].wire.has_room();
        has_room && (!self.by_credit || self.credits.suffice(link, class, start))
    }

    /// Occupies a transmitter with a packet that may be sent.
    #[inline(always)]
    fn send(&mut self, link: LinkId, class: Class, start: u64, packet: Packet) {
        if self.by_credit {
            let waited = self.credits.spend(link, class, u32::from(packet.size), start);
            if 0 < waited {
                self.lane_pauses[link.index() * self.lanes + class.lane()].total += waited;
            }
        }
        let port = &mut self.ports[link];
        if port.wire.is_empty() {
            self.announced.push(link);
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
    /// Sends on what reaches a switch before the horizon; the instants until which its inputs are
    /// felt are known, and nothing happens elsewhere before `least`. Returns when the first packet
    /// after that arrives, and its rank.
    pub(crate) fn forward_arrivals(
        &mut self,
        number: SwitchId,
        least: u64,
        horizon: u64,
    ) -> (u64, u32) {
        if self.net.by_output
            && self.net.switches[number].is_calm()
            && self.accounts.recorder.is_none()
            && let Some(next) = self.forward_by_output(number, horizon)
        {
            return next;
        }
        self.forward_in_order(number, least, horizon);
        self.next_of_batch(number)
    }

    /// The same, all that goes to one output after the other; none, and nothing done, if the switch
    /// may not stay calm meanwhile.
    fn forward_by_output(&mut self, number: SwitchId, horizon: u64) -> Option<(u64, u32)> {
        let now = self.time.now;
        let mut sorter = std::mem::take(&mut self.net.sorter);
        let next = self.sort_arrivals(number, horizon, &mut sorter);
        let lines = if next.is_some() { sorter.lines.len() } else { 0 };
        self.accounts.counters.events += if lines == 0 { 0 } else { sorter.arrivals.len() as u64 };
        for at in 0..lines {
            let Line { output, mut first, .. } = sorter.lines[at];
            loop {
                first = self.forward_line(number, now, output, first, &sorter.arrivals);
                // What is out of the ordinary goes the ordinary way.
                let Some(arrival) = sorter.arrivals.get(first as usize) else { break };
                let mut packet = arrival.packet;
                packet.route -= 1;
                let link = self.net.switches[number].inputs[(arrival.key & INPUT_MASK) as usize];
                self.time.now = now + (arrival.key >> INPUT_BITS);
                self.time.ticket = link.raw();
                self.link_crossed(link, packet);
                first = arrival.then;
            }
        }
        sorter.clear();
        self.net.sorter = sorter;
        next
    }

    /// Takes what reaches a switch before the horizon off its wires, by output. Returns when the
    /// first packet after that arrives, and its rank; none, and nothing is taken, if the switch may
    /// not stay calm meanwhile.
    fn sort_arrivals(
        &mut self,
        number: SwitchId,
        horizon: u64,
        sorter: &mut Sorter,
    ) -> Option<(u64, u32)> {
        let now = self.time.now;
        let reach = horizon - now;
        let mut next = (u64::MAX, 0);
        let mut charged = self.net.switches[number].charged;
        self.read_inputs(number);
        for place in 0..self.net.switches[number].inputs.len() {
            let link = self.net.switches[number].inputs[place];
            self.apply_departures_before(link, self.net.felt[place]);
            let port = &self.net.ports[link];
            let (wire, mut taken) = (port.wire, 0);
            loop {
                if taken == wire.len() {
                    next = next.min(port.next_departure());
                    break;
                }
                let mut packet = *self.net.wires.at(wire.place(taken));
                let ahead = u64::from(packet.at.wrapping_sub(now as u32));
                if reach <= ahead {
                    next = next.min((now + ahead, link.raw()));
                    break;
                }
                taken += 1;
                charged += u64::from(packet.size);
                let output = LinkId::of(self.net.paths[packet.route as usize]);
                packet.route += 1;
                let key = ahead << INPUT_BITS | place as u64;
                sorter.add(output, place as u32, Arrival { key, then: NONE, packet });
            }
            sorter.taken.push(taken);
        }
        let switch = &self.net.switches[number];
        if switch.alert || switch.safe <= charged {
            return None;
        }
        for (link, taken) in switch.inputs.iter().zip(&sorter.taken) {
            self.net.ports[*link].wire.drop_heads(*taken);
        }
        self.read_outputs(sorter.lines.iter().map(|line| line.output), sorter.arrivals.len());
        Some(next)
    }

    /// Sends on what an output gets as long as nothing out of the ordinary happens; returns the
    /// number of what is left.
    fn forward_line(
        &mut self,
        number: SwitchId,
        now: u64,
        output: LinkId,
        first: u32,
        arrivals: &[Arrival],
    ) -> u32 {
        let classes = self.input.rules.class_in_switch;
        let (mut hot, ..) = Egress::new(&mut self.net, &self.input, number);
        let (mut left, mut hops) = (first, 0);
        while let Some(arrival) = arrivals.get(left as usize) {
            let Arrival { key, then, packet } = *arrival;
            let link = hot.switch.inputs[(key & INPUT_MASK) as usize];
            let class = classes[packet.purpose as usize];
            if !hot.take(link, output, class, packet, now + (key >> INPUT_BITS)) {
                break;
            }
            hops += u64::from(packet.purpose == Purpose::Data);
            left = then;
        }
        self.accounts.counters.ecn_marks += hot.marked;
        self.accounts.counters.packet_hops += hops;
        left
    }

    /// The same in the order of time.
    fn forward_in_order(&mut self, number: SwitchId, least: u64, horizon: u64) {
        let now = self.time.now;
        self.collect_arrivals(number, horizon);
        self.net.known = least.saturating_sub(1);
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

    /// Takes in one packet with everything that may follow from it.
    fn forward_one(&mut self, number: SwitchId, now: u64, key: u64) {
        let link = self.net.switches[number].inputs[(key & INPUT_MASK) as usize];
        self.time.now = now + (key >> INPUT_BITS);
        self.time.ticket = link.raw();
        self.accounts.counters.events += 1;
        let packet = self.net.wires.pop(&mut self.net.ports[link].wire);
        self.link_crossed(link, packet);
    }

    /// Takes in packets as long as nothing out of the ordinary happens; returns how many.
    ///
    /// This is where the engine spends its time. It does what [`Simulation::link_crossed`] does,
    /// less what cannot happen in a calm switch, on slices that stay in registers.
    fn forward_batch(&mut self, number: SwitchId, now: u64, incoming: &[u64]) -> usize {
        if !self.net.damage.is_empty()
            || self.accounts.recorder.is_some()
            || self.input.rules.control_share != 0
            || self.input.rules.mark_when == MarkWhen::Enqueue
            || self.net.wires.is_tagged()
        {
            return 0;
        }
        let (mut hot, paths, network) = Egress::new(&mut self.net, &self.input, number);
        let mut hops = 0;
        let mut done = 0;
        let node = self.input.fabric.links()[hot.switch.inputs[0]].to;
        for key in incoming {
            let at = now + (key >> INPUT_BITS);
            let link = hot.switch.inputs[(key & INPUT_MASK) as usize];
            let wire = hot.ports[link].wire;
            let mut packet = hot.wires[wire.head()];
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
                match hot.choose(network, here, &packet, choices, at) {
                    Some(next) => next,
                    None => break,
                }
            };
            if !hot.take(link, next, class, packet, at) {
                break;
            }
            hot.ports[link].wire.drop_head();
            hops += u64::from(packet.purpose == Purpose::Data);
            done += 1;
        }
        self.accounts.counters.ecn_marks += hot.marked;
        self.accounts.counters.packet_hops += hops;
        self.accounts.counters.events += done as u64;
        done
    }

    /// Lists what reaches a switch before the horizon, in order.
    fn collect_arrivals(&mut self, number: SwitchId, horizon: u64) {
        let mut incoming = std::mem::take(&mut self.net.incoming);
        incoming.clear();
        let reach = horizon - self.time.now;
        self.read_inputs(number);
        for place in 0..self.net.switches[number].inputs.len() {
            let link = self.net.switches[number].inputs[place];
            self.apply_departures_before(link, self.net.felt[place]);
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
