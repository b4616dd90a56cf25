//! Switches ahead of the clock: a calm switch handles everything that reaches it in the next
//! stretch of time at once.
//!
//! Whatever will reach a switch within the delay of its shortest cable is already on its wires: if
//! the next event anywhere else is at `t`, nothing that it causes can be felt at this switch
//! before `t + lookahead`. What it does itself is such an event, felt elsewhere after the delay of
//! its shortest way out. So a switch has one event, for the earliest packet on its incoming
//! wires; when that comes, all packets that arrive before that horizon are merged by time and
//! forwarded, each at its own instant. That is exact (it is the conservative synchronisation of
//! Chandy, Misra and Bryant, on one thread), and it keeps the memory of one switch in the cache
//! while a hundred packets pass.
//!
//! It ends where something could be felt sooner: a switch that pauses somebody, is paused on some
//! port or has a pause frame on its way to it goes event by event ([`Switch::eventful`]
//! counts the reasons). NICs run ahead in a way of their own ([`crate::stations`]).

use fabric::routes::towards_leaf;
use fabric::{Fabric, LinkId, NodeId};
use units::{Id, IdVec};

use crate::buffer::{MarkWhen, Switch};
use crate::calendar::Event;
use crate::credits::Credits;
use crate::ids::{Maybe, PairId, Raw, SwitchId};
use crate::limits::INPUT_BITS;
use crate::packet::{
    Class, Clock, DAMAGED, DATA, LANE_SHIFT, MARKED, Packet, Purpose, ROAMING, STAMPED, Waiting,
    joined,
};
use crate::paths::Network;
use crate::port::{COMMAND, Port};
use crate::simulation::Simulation;
use crate::stamps::Stamps;
use crate::switching::{LanePause, Marker};

const NEVER: u64 = u64::MAX;

const INPUT_MASK: u64 = (1 << INPUT_BITS) - 1;

/// Flags of a packet that is in another lane than the first.
const LANE_MASK: u8 = u8::MAX << LANE_SHIFT;

/// What the hot loop has at hand.
struct Hot<'a> {
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

impl Hot<'_> {
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
    /// Sees to it that the oldest packet of a wire that was empty is noticed when it arrives.
    #[inline]
    pub(crate) fn schedule_arrival(&mut self, link: LinkId, at: u64, ticket: u32) {
        let into = self.net.ports[link].into;
        if let Some(into) = into.get() {
            let switch = &mut self.net.switches[into];
            if switch.is_batched() {
                if at < switch.next_at {
                    switch.next_at = at;
                    self.time.clocks.set_switch(into, at);
                    self.time.calendar.schedule(at, ticket, Event::SwitchBatch(into));
                }
                return;
            }
        } else if self.net.ports[link].leaves {
            // It is told at the end of the window.
            return;
        }
        self.schedule(at, ticket, Event::PacketArrived(link));
    }

    /// Handles [`Event::SwitchBatch`]: handles what reaches a switch before its horizon.
    pub(crate) fn run_switch_batch(&mut self, number: SwitchId) {
        let switch = &mut self.net.switches[number];
        if switch.next_at != self.time.now || !switch.is_batched() {
            return;
        }
        switch.next_at = NEVER;
        self.time.clocks.set_switch(number, NEVER);
        let now = self.time.now;
        // What this switch does now is itself felt elsewhere after the delay of a cable.
        let (reach, calm, at_edge) = (now + switch.reach, switch.stays_calm(), switch.at_edge);
        let least = self.time.calendar.peek().unwrap_or(now).min(reach).min(self.time.window_end);
        // A switch that may pause somebody must not have taken what that one has not sent yet.
        let most = if calm { NEVER } else { reach };
        let most = most.min(self.time.window_end);
        let barrier = if at_edge { self.time.window_end } else { NEVER };
        let barrier = barrier.min(self.time.barrier);
        // What arrives at this instant is due even if a sample is due too, or nobody would move.
        let horizon = self.horizon(number, least, most).min(barrier).max(now + 1);
        self.collect_arrivals(number, (least, most), horizon);
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
        let mut announced = std::mem::take(&mut self.net.announced);
        for link in announced.drain(..) {
            let (at, ticket) = self.next_arrival(link);
            self.schedule_arrival(link, at, ticket);
        }
        self.net.announced = announced;
        self.schedule_next_batch(number);
        self.net.known = 0;
        self.time.now = now;
    }

    /// Until when all that reaches a switch is on its wires, if nothing happens elsewhere before
    /// `least` and what happens there from `most` on is not looked at.
    fn horizon(&self, number: SwitchId, least: u64, most: u64) -> u64 {
        let switch = &self.net.switches[number];
        let mut horizon = NEVER;
        for &link in &switch.inputs {
            let port = &self.net.ports[link];
            let felt = self.time.clocks.of_source(link, self.time.now, least).min(most);
            // A neighbour that pauses is felt before the switch has looked a packet up.
            let calm = port.switch.get().is_none_or(|from| self.net.switches[from].stays_calm());
            let cable = if felt == least {
                switch.lookahead
            } else if calm {
                port.delay
            } else {
                port.delay - port.latency
            };
            horizon = horizon.min(felt.saturating_add(cable));
        }
        horizon
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
        let mut hot = Hot {
            ports: &mut self.net.ports,
            wires: self.net.wires.places(),
            queues: self.net.queued.places(),
            switch: &mut self.net.switches[number],
            marker: &mut self.net.marker,
            announced: &mut self.net.announced,
            credits: &mut self.net.credits,
            lane_pauses: &mut self.net.lane_pauses,
            lanes: self.input.rules.lanes,
            stamps: &mut self.net.stamps,
            gap: self.input.sizes.gap,
            header: self.input.rules.header_bytes,
            lossless: DATA.is_in(self.input.rules.lossless),
            by_credit: self.input.settings.credits.enabled,
            marks_on_leaving: self.input.rules.mark_when == MarkWhen::Dequeue,
            marked: 0,
        };
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
                LinkId::of(self.net.paths[packet.route as usize - 1])
            } else {
                let choices = self.ends.pairs[PairId::of(packet.route)].choices;
                let here = (self.input.fabric, node);
                match hot.choose(&mut self.net.network, here, &packet, choices, at) {
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
    fn collect_arrivals(&mut self, number: SwitchId, (least, most): (u64, u64), horizon: u64) {
        let mut incoming = std::mem::take(&mut self.net.incoming);
        incoming.clear();
        let reach = horizon - self.time.now;
        self.read_inputs(number);
        for place in 0..self.net.switches[number].inputs.len() {
            let link = self.net.switches[number].inputs[place];
            let felt = self.time.clocks.of_source(link, self.time.now, least).min(most);
            self.apply_departures_before(link, felt);
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
        self.read_outputs(number);
        self.net.incoming.sort_unstable();
    }

    /// Arranges for the next packet that reaches a batched switch to be noticed.
    pub(crate) fn schedule_next_batch(&mut self, number: SwitchId) {
        if !self.net.switches[number].is_batched() {
            return;
        }
        let mut next = (NEVER, 0);
        for &link in &self.net.switches[number].inputs {
            let port = &self.net.ports[link];
            if !port.wire.is_empty() {
                next = next.min(self.next_arrival(link));
            } else if port.sendable() != 0 {
                // Being sent, but nobody has looked yet: it cannot arrive before this.
                next = next.min((port.free_at + port.delay, port.free_ticket));
            }
        }
        let switch = &mut self.net.switches[number];
        if next.0 < switch.next_at {
            switch.next_at = next.0;
            self.time.clocks.set_switch(number, next.0);
            self.time.calendar.schedule(next.0, next.1, Event::SwitchBatch(number));
        }
    }

    /// One more reason for a switch to go event by event.
    #[cold]
    pub(crate) fn require_events(&mut self, number: Maybe<SwitchId>) {
        let Some(number) = number.get() else { return };
        let was_batched = self.net.switches[number].is_batched();
        self.net.switches[number].eventful += 1;
        if !was_batched {
            return;
        }
        self.net.switches[number].next_at = NEVER;
        self.time.clocks.set_switch(number, 0);
        for at in 0..self.net.switches[number].inputs.len() {
            let link = self.net.switches[number].inputs[at];
            let port = &self.net.ports[link];
            if !port.wire.is_empty() {
                let (at, ticket) = self.next_arrival(link);
                self.schedule(at, ticket, Event::PacketArrived(link));
            } else {
                self.schedule_free_event(link);
            }
        }
    }

    /// One reason less.
    #[cold]
    pub(crate) fn release_events(&mut self, number: Maybe<SwitchId>) {
        let Some(number) = number.get() else { return };
        self.net.switches[number].eventful -= 1;
        if self.net.switches[number].is_batched() {
            self.time.clocks.set_switch(number, NEVER);
        }
        self.schedule_next_batch(number);
    }
}

#[cfg(test)]
mod tests {
    use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
    use fabric::transport::Transport;
    use traffic::{Connection, Counters, OpKind, Outcome, Transfers};
    use units::{Bytes, Random, Rate, Span};

    use crate::Settings;
    use crate::buffer::BufferConfig;
    use crate::cc::{CcConfig, none};
    use crate::ids::Maybe;
    use crate::simulation::Watch;

    /// Random messages at random times between the hosts of a small fat tree.
    fn run(seed: u64, settings: &Settings, in_batches: bool) -> Outcome {
        let mut random = Random::new(seed, "batch", 0);
        let cluster = ClusterConfig {
            gpus: Some(16),
            gpus_per_node: 1,
            nics_per_node: 1,
            ..ClusterConfig::default()
        };
        let link = |ns: u64| LinkConfig {
            rate: Some(Rate::from_gbps(400)),
            delay: Some(Span::from_ns(ns)),
            length: None,
        };
        let config = FabricConfig {
            topology: TopologyKind::FatTree,
            k: Some(4),
            links: vec![link(15), link(100), link(1 + random.below(1_000))],
            ..FabricConfig::default()
        };
        let fabric = build(&cluster, &config, &Default::default()).expect("it is well-formed");
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        for _ in 0..40 {
            let from = random.below(16) as usize;
            let to = (from + 1 + random.below(3) as usize) % 16;
            let connection = transfers.connect(Connection {
                from: fabric.nic(from),
                to: fabric.nic(to),
                channel: 0,
                queue_pairs: 1,
            });
            let first = transfers.connections().len() - 1;
            transfers.set_service_level(first, random.below(2) as u8);
            let span = Span::from_ps(random.below(20_000_000));
            let wait = transfers.add(OpKind::Wait { span }, label, &[]);
            let bytes = Bytes::new(1 + random.below(300_000));
            transfers.send(connection, bytes, label, &[wait]);
        }
        let faults = Default::default();
        let mut simulation =
            crate::build::build(&fabric, &transfers, settings, &faults).expect("it can be run");
        if !in_batches {
            let all: Vec<_> = simulation.net.switches.ids().collect();
            all.into_iter().for_each(|switch| simulation.require_events(Maybe::some(switch)));
        }
        simulation.run(&mut Watch::default())
    }

    /// Buffers so small that senders are paused.
    fn tight() -> Settings {
        Settings {
            congestion: CcConfig::None(none::Config {}),
            buffer: BufferConfig {
                size: Bytes::new(700_000),
                alpha: 0.125,
                reserved: Bytes::new(4096),
                ..BufferConfig::default()
            },
            ..Settings::default()
        }
    }

    /// Agreement: running ahead changes nothing, with marks and pauses and without.
    #[test]
    fn switches_ahead_of_the_clock_do_what_they_would_have_done() {
        let tight = tight();
        // Pauses that come and go while marks slow the senders: switches calm down with pause
        // frames still waiting for a transmitter.
        let tense = Settings {
            congestion: Settings::default().congestion,
            ecn: crate::buffer::EcnConfig {
                min: Bytes::from_kib(64),
                max: Bytes::from_kib(128),
                ..Default::default()
            },
            ..tight.clone()
        };
        let mut priorities = tense.clone();
        priorities.credits.lanes = 2;
        let mut pauses = 0;
        for seed in 0..50 {
            for settings in [&Settings::default(), &tight, &tense, &priorities] {
                let (ahead, along) = (run(seed, settings, true), run(seed, settings, false));
                assert_eq!(ahead.ops, along.ops, "seed {seed}");
                assert_eq!(ahead.counters.ecn_marks, along.counters.ecn_marks, "seed {seed}");
                assert_eq!(ahead.counters.pauses, along.counters.pauses, "seed {seed}");
                assert_eq!(ahead.counters.drops, 0, "seed {seed}");
                pauses += ahead.counters.pauses;
            }
        }
        assert!(100 < pauses, "only {pauses} pauses: the test must reach them");
    }

    /// Agreement: the same where credits run out, in one lane and in two, and where switches choose
    /// a path for every packet by their queues.
    #[test]
    fn credits_and_choices_do_not_depend_on_running_ahead() {
        let mut credits = Settings::of_transport(Transport::Infiniband);
        credits.credits.spare = Bytes::from_kib(16);
        credits.routing.busy = Bytes::from_kib(8);
        let mut lanes = credits.clone();
        lanes.credits.lanes = 2;
        let mut marks = credits.clone();
        marks.congestion = CcConfig::Infiniband(Default::default());
        marks.ecn.min = Bytes::from_kib(16);
        let stamps = Settings { congestion: CcConfig::Hpcc(Default::default()), ..tight() };
        let cases = [credits, lanes, marks, stamps, Settings::spectrum_x()];
        let mut stalls = 0;
        for seed in 0..50 {
            for settings in &cases {
                let (ahead, along) = (run(seed, settings, true), run(seed, settings, false));
                assert_eq!(ahead.ops, along.ops, "seed {seed}");
                let counts = |c: &Counters| [c.ecn_marks, c.pauses, c.drops, c.retransmits];
                assert_eq!(counts(&ahead.counters), counts(&along.counters), "seed {seed}");
                assert_eq!(ahead.counters.paused, along.counters.paused, "seed {seed}");
                assert_eq!(ahead.counters.drops, 0, "seed {seed}");
                stalls += ahead.counters.pauses;
            }
        }
        assert!(100 < stalls, "only {stalls} stalls: the test must reach them");
    }
}
