//! A batch of a switch whose outputs are independent: all packets of one output, then all of the
//! next. This is where most runs spend their time.
//!
//! Outputs depend on each other where a packet's next link is chosen by the queues of several,
//! where links count credits, or where a threshold of the shared buffer is near; then packets are
//! forwarded in the order of time ([`crate::forward`]). Everywhere else, the arrivals at a switch
//! are listed by output ([`ArrivalsByOutput`]). Most outputs get packets from one or two inputs,
//! each in order already, so nothing is sorted. Then each [`Output`] forwards its own. What it
//! cannot do (pauses, a full wire, a queue that no arrival would cause a read of) is done by
//! [`Simulation::link_crossed`], the reference.

use fabric::LinkId;
use units::{Id, IdVec};

use crate::buffer::Switch;
use crate::ids::{Maybe, Raw, SwitchId};
use crate::limits::INPUT_BITS;
use crate::packet::{Class, Clock, DATA, MARKED, Packet, Purpose, STAMPED, Waiting, joined};
use crate::port::{COMMAND, Port};
use crate::simulation::Simulation;
use crate::stamps::Stamps;
use crate::switching::Marker;

/// Of the key of an arrival: the index of its link among the switch's inputs.
pub(crate) const INPUT_MASK: u64 = (1 << INPUT_BITS) - 1;

/// No arrival, or no list.
const NONE: u32 = u32::MAX;

/// A packet that arrives at a switch before its horizon.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// The time until it arrives, then the index of its link among the switch's inputs.
    key: u64,
    /// The next one for the same output.
    then: u32,
    /// Where the packet is: the place on its wire is not written before the batch is over.
    place: u32,
}

/// The arrivals for one output, a list in order of time.
#[derive(Clone, Copy, Debug)]
struct OutputArrivals {
    output: LinkId,
    first: u32,
    last: u32,
    /// The key of the last.
    last_key: u64,
    /// The one that was added last.
    newest: u32,
    /// The input over which that came.
    input: u32,
}

/// All arrivals at a switch before its horizon, by output.
#[derive(Debug, Default)]
pub(crate) struct ArrivalsByOutput {
    all: Vec<Arrival>,
    /// How many came over each input.
    taken: Vec<u32>,
    outputs: Vec<OutputArrivals>,
    /// By link: the place of an output among those, or none.
    place_of: IdVec<LinkId, u32>,
}

impl ArrivalsByOutput {
    /// For so many links.
    pub(crate) fn new(links: usize) -> Self {
        Self { place_of: vec![NONE; links].into(), ..Self::default() }
    }

    /// Adds an arrival for an output. Those of one input come in order.
    #[inline(always)]
    fn add(&mut self, output: LinkId, input: u32, arrival: Arrival) {
        let (number, key) = (self.all.len() as u32, arrival.key);
        self.all.push(arrival);
        let Some(of_output) = self.outputs.get_mut(self.place_of[output] as usize) else {
            self.place_of[output] = self.outputs.len() as u32;
            self.outputs.push(OutputArrivals {
                output,
                first: number,
                last: number,
                last_key: key,
                newest: number,
                input,
            });
            return;
        };
        let before = if of_output.last_key < key {
            of_output.last_key = key;
            std::mem::replace(&mut of_output.last, number)
        } else {
            let mut before = if of_output.input == input { of_output.newest } else { NONE };
            loop {
                let next = match self.all.get(before as usize) {
                    Some(before) => before.then,
                    None => of_output.first,
                };
                if key < self.all[next as usize].key {
                    self.all[number as usize].then = next;
                    break before;
                }
                before = next;
            }
        };
        match self.all.get_mut(before as usize) {
            Some(before) => before.then = number,
            None => of_output.first = number,
        }
        (of_output.newest, of_output.input) = (number, input);
    }

    /// Removes all.
    fn clear(&mut self) {
        self.outputs.iter().for_each(|of_output| self.place_of[of_output.output] = NONE);
        self.outputs.clear();
        self.all.clear();
        self.taken.clear();
    }
}

/// One output and what its packets act on. Data has one lane, and no links count credits.
struct Output<'a> {
    link: LinkId,
    port: &'a mut Port,
    /// All ports before and after it, by number: among them the switch's inputs.
    before: &'a mut [Port],
    after: &'a mut [Port],
    wires: &'a mut [Packet],
    queues: &'a mut [Waiting],
    switch: &'a mut Switch,
    marker: &'a mut Marker,
    stamps: &'a mut Stamps,
    /// Packets have hop stamps.
    stamps_hops: bool,
    gap: u64,
    /// The next node forwards a packet after so long, even if that is before its end.
    cut_through: u64,
    /// Data is charged to its input.
    lossless: bool,
    marked: u64,
}

impl Output<'_> {
    /// Applies the departures until an instant; false if the wire has no room.
    #[inline(always)]
    fn dequeue_until(&mut self, at: u64) -> bool {
        while self.port.waiting != 0 && self.port.free_at <= at {
            let Some(place) = self.port.wire.add_tail() else { return false };
            self.dequeue(place);
        }
        true
    }

    /// Transmits the first packet that waits, when the transmitter is free.
    #[inline(always)]
    fn dequeue(&mut self, place: usize) {
        let class = Class::first_of(self.port.waiting);
        let queue = &mut self.port.classes[class].queue;
        let Waiting { mut packet, from } = self.queues[queue.head()];
        queue.drop_head();
        let size = u32::from(packet.size);
        let left = self.port.left(class, size);
        if class == DATA
            && self.marker.marks(left, self.link, DATA)
            && packet.purpose == Purpose::Data
        {
            packet.flags |= MARKED;
            self.port.marks += 1;
            self.marked += 1;
        }
        if class == DATA && self.lossless {
            let (switch, input) = self.charged(from.known());
            switch.discharge(input, class, size);
        } else {
            self.switch.release_lossy(size);
        }
        let start = self.port.free_at;
        self.stamp(&packet, start, left);
        packet.at = self.transmit(start, u64::from(size));
        self.wires[place] = packet;
    }

    /// Puts a packet into its queue; false, and nothing done, if that needs the general path. No
    /// threshold is near: all arrivals of the batch were counted before.
    #[inline(always)]
    fn enqueue(&mut self, class: Class, from: LinkId, at: u64, packet: &Packet) -> bool {
        debug_assert!(self.switch.is_below_thresholds(), "all arrivals were counted before");
        let port = &mut *self.port;
        // With an empty wire, the packet that is being sent has reached the far end, which cuts
        // through: no arrival would cause a read of this port.
        let is_unread = port.wire.is_empty() && !port.leaves;
        let size = u32::from(packet.size);
        if is_unread || port.queued.checked_add(size).is_none() {
            return false;
        }
        let Some(place) = port.classes[class].queue.add_tail() else { return false };
        let packet = Packet { at: joined(at), ..*packet };
        self.queues[place] = Waiting { packet, from: Maybe::some(from) };
        port.joined(class, size);
        if class == DATA && self.lossless {
            let (switch, input) = self.charged(from);
            switch.charge(input, class, size);
        } else {
            self.switch.charge_lossy(size);
        }
        true
    }

    /// The switch, and the input whose packets are charged to it.
    #[inline(always)]
    fn charged(&mut self, input: LinkId) -> (&mut Switch, &mut Port) {
        let (own, input) = (self.link.index(), input.index());
        let port =
            if input < own { &mut self.before[input] } else { &mut self.after[input - own - 1] };
        (self.switch, port)
    }

    /// Puts a packet of so many bytes on the wire at `start`; returns when it arrives.
    #[inline(always)]
    fn transmit(&mut self, start: u64, size: u64) -> u32 {
        let time = self.port.time_to_send(size + self.gap, Clock::Picosecond);
        self.port.free_at = start + time;
        self.port.bytes += size;
        (start + time.min(self.cut_through) + self.port.delay) as u32
    }

    /// Adds a hop stamp to a packet that leaves at `start`; so much stays in the queue.
    #[inline(always)]
    fn stamp(&mut self, packet: &Packet, start: u64, queued: u64) {
        if self.stamps_hops && packet.flags & STAMPED != 0 && packet.purpose == Purpose::Data {
            self.stamps.push(packet.sent, self.port.hop(start, queued));
        }
    }

    /// Forwards a packet from one wire to the other at once; returns whether it is data, as a
    /// number.
    #[inline(always)]
    fn pass_on(&mut self, from: usize, to: usize, start: u64) -> u64 {
        let Packet { size, purpose, .. } = self.wires[from];
        if self.stamps_hops {
            let packet = self.wires[from];
            self.stamp(&packet, start, 0);
        }
        let at = self.transmit(start, u64::from(size));
        self.wires.copy_within(from..from + 1, to);
        let packet = &mut self.wires[to];
        packet.at = at;
        packet.route += 1;
        u64::from(purpose == Purpose::Data)
    }
}

impl Simulation<'_> {
    /// Forwards what arrives before the horizon, output by output. Returns the time and rank of the
    /// next arrival after that; none, and nothing is done, if a threshold may be near.
    pub(crate) fn forward_by_output(
        &mut self,
        number: SwitchId,
        horizon: u64,
    ) -> Option<(u64, u32)> {
        let now = self.time.now;
        let mut arrivals = std::mem::take(&mut self.net.arrivals);
        let next = self.collect_by_output(number, horizon, &mut arrivals);
        if next.is_some() {
            self.accounts.counters.events += arrivals.all.len() as u64;
            for of_output in &arrivals.outputs {
                let OutputArrivals { output, mut first, .. } = *of_output;
                loop {
                    first = self.forward_to_output(number, now, (output, first), &arrivals.all);
                    let Some(arrival) = arrivals.all.get(first as usize) else { break };
                    let packet = *self.net.wires.at(arrival.place as usize);
                    let input = (arrival.key & INPUT_MASK) as usize;
                    let link = self.net.switches[number].inputs[input];
                    self.time.now = now + (arrival.key >> INPUT_BITS);
                    self.time.ticket = link.raw();
                    self.link_crossed(link, packet);
                    first = arrival.then;
                }
            }
        }
        arrivals.clear();
        self.net.arrivals = arrivals;
        next
    }

    /// Takes what arrives before the horizon off the wires, by output. Returns as
    /// [`Self::forward_by_output`] does; none, and nothing is taken.
    fn collect_by_output(
        &mut self,
        number: SwitchId,
        horizon: u64,
        arrivals: &mut ArrivalsByOutput,
    ) -> Option<(u64, u32)> {
        let now = self.time.now;
        let reach = horizon - now;
        let mut next = (u64::MAX, 0);
        let mut charged = self.net.switches[number].charged;
        self.read_inputs(number);
        for place in 0..self.net.switches[number].inputs.len() {
            let link = self.net.switches[number].inputs[place];
            self.apply_departures_before(link, self.net.inputs_known_until[place]);
        }
        let (ports, paths) = (&self.net.ports, self.net.paths.as_slice());
        let wires = self.net.wires.as_slice();
        for (input, link) in self.net.switches[number].inputs.iter().enumerate() {
            let port = &ports[*link];
            let (mut taken, mut rest) = (0, None);
            'wire: for places in port.wire.places() {
                for (at, packet) in wires[places.clone()].iter().enumerate() {
                    let ahead = u64::from(packet.at.wrapping_sub(now as u32));
                    if reach <= ahead {
                        rest = Some((now + ahead, link.raw()));
                        break 'wire;
                    }
                    taken += 1;
                    charged += u64::from(packet.size);
                    let output = LinkId::of(paths[packet.route as usize]);
                    let key = ahead << INPUT_BITS | input as u64;
                    let place = (places.start + at) as u32;
                    arrivals.add(output, input as u32, Arrival { key, then: NONE, place });
                }
            }
            next = next.min(rest.unwrap_or_else(|| port.next_departure()));
            arrivals.taken.push(taken);
        }
        let switch = &self.net.switches[number];
        if switch.departures_are_events || switch.safe_level <= charged {
            return None;
        }
        for (link, taken) in switch.inputs.iter().zip(&arrivals.taken) {
            self.net.ports[*link].wire.drop_heads(*taken);
        }
        self.read_outputs(
            arrivals.outputs.iter().map(|of_output| of_output.output),
            arrivals.all.len(),
        );
        Some(next)
    }

    /// Forwards the arrivals of one output, from `first` on, in order; returns the number of the
    /// first that needs the general path ([`Simulation::link_crossed`]).
    fn forward_to_output(
        &mut self,
        number: SwitchId,
        now: u64,
        (output, first): (LinkId, u32),
        arrivals: &[Arrival],
    ) -> u32 {
        let rules = &self.input.rules;
        let net = &mut self.net;
        let (before, rest) = net.ports.iter_mut().into_slice().split_at_mut(output.index());
        let Some((port, after)) = rest.split_first_mut() else { return first };
        let was_empty = port.wire.is_empty();
        if port.waiting & COMMAND != 0 || port.paused != 0 {
            return first;
        }
        let mut out = Output {
            cut_through: if port.cut_through {
                port.time_to_send(rules.header_bytes, Clock::Picosecond)
            } else {
                u64::MAX
            },
            link: output,
            port,
            before,
            after,
            wires: net.wires.places(),
            queues: net.queued.places(),
            switch: &mut net.switches[number],
            marker: &mut net.marker,
            stamps: &mut net.stamps,
            stamps_hops: rules.needs.hops,
            gap: self.input.sizes.gap,
            lossless: DATA.is_in(rules.lossless),
            marked: 0,
        };
        let (mut left, mut hops) = (first, 0);
        while let Some(Arrival { key, then, place }) = arrivals.get(left as usize) {
            let at = now + (key >> INPUT_BITS);
            if !out.dequeue_until(at) {
                break;
            }
            if out.port.free_at <= at {
                let Some(to) = out.port.wire.add_tail() else { break };
                hops += out.pass_on(*place as usize, to, at);
            } else {
                let mut packet = out.wires[*place as usize];
                packet.route += 1;
                let from = out.switch.inputs[(key & INPUT_MASK) as usize];
                let class = rules.class_in_switch[packet.purpose as usize];
                if !out.enqueue(class, from, at, &packet) {
                    break;
                }
                hops += u64::from(packet.purpose == Purpose::Data);
            }
            left = *then;
        }
        if was_empty && !out.port.wire.is_empty() {
            net.newly_busy.push(output);
        }
        self.accounts.counters.ecn_marks += out.marked;
        self.accounts.counters.packet_hops += hops;
        left
    }
}
