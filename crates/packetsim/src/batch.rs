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
use units::Id;

use crate::buffer::{MarkWhen, Switch};
use crate::calendar::Kind;
use crate::credits::Credits;
use crate::limits::INPUT_BITS;
use crate::packet::{
    Clock, DAMAGED, DATA, LANE_SHIFT, MARKED, Packet, Purpose, ROAMING, STAMPED, Waiting, joined,
};
use crate::paths::Network;
use crate::port::{COMMAND, NOWHERE, Port};
use crate::simulation::{Simulation, fold_digest};
use crate::stamps::Stamps;
use crate::switching::{LanePause, Marker};

const NEVER: u64 = u64::MAX;

const INPUT_MASK: u64 = (1 << INPUT_BITS) - 1;

/// Flags of a packet that is in another lane than the first.
const LANE_MASK: u8 = u8::MAX << LANE_SHIFT;

/// What the hot loop has at hand.
struct Hot<'a> {
    ports: &'a mut [Port],
    wires: &'a mut [Packet],
    queues: &'a mut [Waiting],
    switch: &'a mut Switch,
    marker: &'a mut Marker,
    /// Links whose wire was empty.
    announced: &'a mut Vec<u32>,
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
    fn take(&mut self, link: usize, next: usize, class: usize, packet: Packet, at: u64) -> bool {
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
        if at < port.free_at && port.wire.is_empty() {
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
        self.queues[place] = Waiting { packet, from: link as u32 };
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
    ) -> Option<usize> {
        let pair = packet.route as usize;
        let home = network.home(pair)?;
        if home.leaf == node {
            return Some(home.last.index());
        }
        let several = towards_leaf(fabric, node, home.ordinal);
        if several.len() < 2 {
            return several.first().map(|only| only.index());
        }
        if !several.iter().all(|link| self.catch_up(link.index(), at)) {
            return None;
        }
        Some(network.choose(self.ports, node, (pair, packet.psn, choices), several).index())
    }

    /// Sends a packet on that nothing holds up.
    #[inline(always)]
    fn pass_through(
        &mut self,
        link: usize,
        next: usize,
        class: usize,
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
    fn catch_up(&mut self, link: usize, at: u64) -> bool {
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
    fn is_stalled(&self, link: usize, at: u64) -> bool {
        let only_data = self.ports[link].waiting == 1 << DATA && self.lanes == 1;
        only_data && self.credits.are_out(link, at)
    }

    /// Lets the first waiting packet go when the transmitter is free; false if there is no room.
    #[inline(always)]
    fn depart(&mut self, link: usize) -> bool {
        let port = &self.ports[link];
        let start = port.free_at;
        let class = port.waiting.trailing_zeros() as usize;
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
            self.credits.give(from as usize, class, size, start);
        } else if class == DATA && self.lossless {
            self.switch.discharge(&mut self.ports[from as usize], class, size);
        } else {
            self.switch.release_lossy(size);
        }
        self.stamp(&packet, link, start, left);
        self.send(link, class, start, packet);
        true
    }

    /// Writes on a packet what its link looks like, if it asks for that.
    #[inline(always)]
    fn stamp(&mut self, packet: &Packet, link: usize, start: u64, queued: u64) {
        if packet.flags & STAMPED != 0 && packet.purpose == Purpose::Data {
            self.stamps.push(packet.sent, self.ports[link].hop(start, queued));
        }
    }

    /// Whether the wire has room for a packet, and the far end.
    #[inline(always)]
    fn may_send(&mut self, link: usize, class: usize, start: u64) -> bool {
        let has_room = self.ports[link].wire.has_room();
        has_room && (!self.by_credit || self.credits.suffice(link, class, start))
    }

    /// Occupies a transmitter with a packet that may be sent.
    #[inline(always)]
    fn send(&mut self, link: usize, class: usize, start: u64, packet: Packet) {
        if self.by_credit {
            let waited = self.credits.spend(link, class, u32::from(packet.size), start);
            if 0 < waited {
                self.lane_pauses[link * self.lanes + class - DATA].total += waited;
            }
        }
        let port = &mut self.ports[link];
        if port.wire.is_empty() {
            self.announced.push(link as u32);
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
    pub(crate) fn schedule_arrival(&mut self, link: usize, at: u64, ticket: u32) {
        let into = self.ports[link].into;
        if into != NOWHERE {
            let switch = &mut self.switches[into as usize];
            if switch.is_batched() {
                if at < switch.next_at {
                    switch.next_at = at;
                    self.calendar.schedule(at, ticket, Kind::SwitchBatch, into as usize);
                }
                return;
            }
        }
        self.schedule(at, ticket, Kind::PacketArrived, link);
    }

    /// Handles [`Kind::SwitchBatch`]: handles what reaches a switch before its horizon.
    pub(crate) fn run_switch_batch(&mut self, number: usize) {
        let switch = &mut self.switches[number];
        if switch.next_at != self.now || !switch.is_batched() {
            return;
        }
        switch.next_at = NEVER;
        let now = self.now;
        // What this switch does now is itself felt elsewhere after the delay of a cable.
        let (lookahead, reach) = (switch.lookahead, switch.reach);
        let elsewhere = self.calendar.peek().unwrap_or(now).min(now + reach);
        // What arrives at this instant is due even if a sample is due too, or nobody would move.
        let horizon = (elsewhere + lookahead).min(self.barrier).max(now + 1);
        self.collect_arrivals(number, elsewhere, horizon);
        self.known = elsewhere.saturating_sub(1);
        let incoming = std::mem::take(&mut self.incoming);
        let mut done = 0;
        while done < incoming.len() && self.switches[number].is_batched() {
            done += self.forward_batch(number, now, &incoming[done..]);
            if let Some(key) = incoming.get(done) {
                self.forward_one(number, now, *key);
                done += 1;
            }
        }
        self.incoming = incoming;
        let mut announced = std::mem::take(&mut self.announced);
        for link in announced.drain(..) {
            let (at, ticket) = self.next_arrival(link as usize);
            self.schedule_arrival(link as usize, at, ticket);
        }
        self.announced = announced;
        self.schedule_next_batch(number);
        self.known = 0;
        self.now = now;
    }

    /// Takes in one packet with everything that may follow from it.
    fn forward_one(&mut self, number: usize, now: u64, key: u64) {
        let link = self.switches[number].inputs[(key & INPUT_MASK) as usize];
        self.now = now + (key >> INPUT_BITS);
        self.ticket = link;
        self.count_event(self.now, u64::from(link));
        let packet = self.wires.pop(&mut self.ports[link as usize].wire);
        self.link_crossed(link as usize, packet);
    }

    /// Takes in packets as long as nothing out of the ordinary happens; returns how many.
    ///
    /// This is where the engine spends its time. It does what [`Simulation::link_crossed`] does,
    /// less what cannot happen in a calm switch, on slices that stay in registers.
    fn forward_batch(&mut self, number: usize, now: u64, incoming: &[u64]) -> usize {
        if !self.damage.is_empty()
            || self.recorder.is_some()
            || self.rules.control_share != 0
            || self.rules.mark_when == MarkWhen::Enqueue
            || self.wires.is_tagged()
        {
            return 0;
        }
        let mut hot = Hot {
            ports: &mut self.ports,
            wires: self.wires.places(),
            queues: self.queued.places(),
            switch: &mut self.switches[number],
            marker: &mut self.marker,
            announced: &mut self.announced,
            credits: &mut self.credits,
            lane_pauses: &mut self.lane_pauses,
            lanes: self.rules.lanes,
            stamps: &mut self.stamps,
            gap: self.sizes.gap,
            header: self.rules.header_bytes,
            lossless: self.rules.lossless >> DATA & 1 == 1,
            by_credit: self.settings.credits.enabled,
            marks_on_leaving: self.rules.mark_when == MarkWhen::Dequeue,
            marked: 0,
        };
        let (mut digest, mut hops) = (self.digest, 0);
        let mut done = 0;
        let node = self.fabric.links()[LinkId::from_index(hot.switch.inputs[0] as usize)].to;
        for key in incoming {
            let at = now + (key >> INPUT_BITS);
            let link = hot.switch.inputs[(key & INPUT_MASK) as usize] as usize;
            let wire = hot.ports[link].wire;
            let mut packet = hot.wires[wire.head()];
            if packet.flags & (DAMAGED | LANE_MASK) != 0 {
                break;
            }
            let class = usize::from(self.rules.class_in_switch[packet.purpose as usize]);
            let next = if packet.flags & ROAMING == 0 {
                packet.route += 1;
                self.paths[packet.route as usize - 1] as usize
            } else {
                let choices = self.pairs[packet.route as usize].choices;
                let here = (self.fabric, node);
                match hot.choose(&mut self.network, here, &packet, choices, at) {
                    Some(next) => next,
                    None => break,
                }
            };
            if !hot.take(link, next, class, packet, at) {
                break;
            }
            hot.ports[link].wire.drop_head();
            digest = fold_digest(digest, at, link as u64);
            hops += u64::from(packet.purpose == Purpose::Data);
            done += 1;
        }
        self.counters.ecn_marks += hot.marked;
        self.counters.packet_hops += hops;
        self.counters.events += done as u64;
        self.digest = digest;
        done
    }

    /// Lists what reaches a switch before the horizon, in order.
    fn collect_arrivals(&mut self, number: usize, elsewhere: u64, horizon: u64) {
        let mut incoming = std::mem::take(&mut self.incoming);
        incoming.clear();
        let reach = horizon - self.now;
        self.read_inputs(number);
        for place in 0..self.switches[number].inputs.len() {
            let link = self.switches[number].inputs[place] as usize;
            self.apply_departures_before(link, elsewhere);
            let wire = self.ports[link].wire;
            let key = |ahead: u64| ahead << INPUT_BITS | place as u64;
            if self.wires.is_tagged() {
                let arrivals =
                    self.wires.iter_tagged(wire).map(|(packet, tag)| tag.time(packet.at));
                let ahead = arrivals.map(|at| at - self.now).take_while(|ahead| *ahead < reach);
                incoming.extend(ahead.map(key));
                continue;
            }
            for packet in self.wires.iter(wire) {
                let ahead = u64::from(packet.at.wrapping_sub(self.now as u32));
                if reach <= ahead {
                    break;
                }
                incoming.push(key(ahead));
            }
        }
        self.incoming = incoming;
        self.read_outputs(number);
        self.incoming.sort_unstable();
    }

    /// Arranges for the next packet that reaches a batched switch to be noticed.
    pub(crate) fn schedule_next_batch(&mut self, number: usize) {
        if !self.switches[number].is_batched() {
            return;
        }
        let mut next = (NEVER, 0);
        for &link in &self.switches[number].inputs {
            let port = &self.ports[link as usize];
            if !port.wire.is_empty() {
                next = next.min(self.next_arrival(link as usize));
            } else if port.sendable() != 0 {
                // Being sent, but nobody has looked yet: it cannot arrive before this.
                next = next.min((port.free_at + port.delay, port.free_ticket));
            }
        }
        let switch = &mut self.switches[number];
        if next.0 < switch.next_at {
            switch.next_at = next.0;
            self.calendar.schedule(next.0, next.1, Kind::SwitchBatch, number);
        }
    }

    /// One more reason for a switch to go event by event.
    #[cold]
    pub(crate) fn require_events(&mut self, number: u32) {
        if number == NOWHERE {
            return;
        }
        let number = number as usize;
        let was_batched = self.switches[number].is_batched();
        self.switches[number].eventful += 1;
        if !was_batched {
            return;
        }
        self.switches[number].next_at = NEVER;
        for at in 0..self.switches[number].inputs.len() {
            let link = self.switches[number].inputs[at] as usize;
            let port = &self.ports[link];
            if !port.wire.is_empty() {
                let (at, ticket) = self.next_arrival(link);
                self.schedule(at, ticket, Kind::PacketArrived, link);
            } else {
                self.schedule_free_event(link);
            }
        }
    }

    /// One reason less.
    #[cold]
    pub(crate) fn release_events(&mut self, number: u32) {
        if number == NOWHERE {
            return;
        }
        self.switches[number as usize].eventful -= 1;
        self.schedule_next_batch(number as usize);
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
            simulation.switches.iter_mut().for_each(|switch| switch.eventful += 1);
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
