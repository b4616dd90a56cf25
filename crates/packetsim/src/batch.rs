//! Switches that run ahead of the clock: conservative lookahead (Chandy, Misra and Bryant), on one
//! thread.
//!
//! Every packet that arrives within the delay of a switch's shortest cable is already on its
//! incoming wires. If the next event anywhere else is at `t`, nothing that it causes arrives here
//! before the horizon `t + lookahead`. What this switch does reaches others only after the delay
//! of its shortest outgoing cable, and may come back. So a batched switch has one event, for the
//! first arrival. When that is due, all packets that arrive before the horizon are forwarded
//! ([`crate::forward`]), each at its own time. This is exact, and the memory of one switch stays in
//! the cache for a hundred packets.
//!
//! A switch that pauses a sender, is paused at a port or has a pause frame on its way to it goes
//! event by event: a pause takes effect sooner than a packet. [`Switch::event_reasons`] counts such
//! reasons. NICs run ahead too ([`crate::stations`]).

use fabric::LinkId;

use crate::calendar::Event;
use crate::ids::{Maybe, SwitchId};
use crate::simulation::Simulation;

const NEVER: u64 = u64::MAX;

impl Simulation<'_> {
    /// Schedules the arrival of the first packet on a wire that was empty.
    #[inline]
    pub(crate) fn schedule_arrival(&mut self, link: LinkId, at: u64, ticket: u32) {
        let into = self.net.ports[link].into;
        if let Some(into) = into.get() {
            let switch = &mut self.net.switches[into];
            if switch.is_batched() {
                if at < switch.next_at {
                    switch.next_at = at;
                    self.time.clocks.set_switch_next(into, at);
                    self.time.calendar.schedule(at, ticket, Event::SwitchBatch(into));
                }
                return;
            }
        } else if self.net.ports[link].leaves {
            // It is sent to another thread at the end of the window.
            return;
        }
        self.schedule(at, ticket, Event::PacketArrived(link));
    }

    /// Handles [`Event::SwitchBatch`]: forwards what arrives before the horizon.
    pub(crate) fn run_switch_batch(&mut self, number: SwitchId) {
        let switch = &mut self.net.switches[number];
        if switch.next_at != self.time.now || !switch.is_batched() {
            return;
        }
        switch.next_at = NEVER;
        self.time.clocks.set_switch_next(number, NEVER);
        let now = self.time.now;
        // What this switch sends now arrives elsewhere after the delay of a cable.
        let (reach, never_pauses, at_edge) =
            (now + switch.egress_delay, switch.stays_below_thresholds(), switch.at_edge);
        let next_elsewhere =
            self.time.calendar.peek().unwrap_or(now).min(reach).min(self.time.window_end);
        // A switch that may pause a sender must not take packets that a pause would hold back.
        let limit = if never_pauses { NEVER } else { reach };
        let limit = limit.min(self.time.window_end);
        // A sample must not count what its links send later.
        let is_measured = self.accounts.recorder.is_some();
        let limit = if is_measured { limit.min(self.time.sample_at.max(now)) } else { limit };
        let barrier = if at_edge { self.time.window_end } else { NEVER };
        let barrier = barrier.min(self.time.barrier);
        // What arrives at this instant is due even if a sample is due too, or the run would stop.
        let horizon = self.horizon(number, next_elsewhere, limit).min(barrier).max(now + 1);
        let next = self.forward_arrivals(number, next_elsewhere, horizon);
        let mut newly_busy = std::mem::take(&mut self.net.newly_busy);
        for link in newly_busy.drain(..) {
            let (at, ticket) = self.next_arrival(link);
            self.schedule_arrival(link, at, ticket);
        }
        self.net.newly_busy = newly_busy;
        if self.net.switches[number].is_batched() {
            self.schedule_batch(number, next);
        }
        self.net.known_until = 0;
        self.time.now = now;
    }

    /// The horizon of a switch: all packets that arrive before it are on its wires. The next event
    /// elsewhere is at `next_elsewhere`; no neighbour is trusted beyond `limit`. Stores until when
    /// each neighbour's departures are known.
    fn horizon(&mut self, number: SwitchId, next_elsewhere: u64, limit: u64) -> u64 {
        let now = self.time.now;
        let switch = &self.net.switches[number];
        let mut horizon = NEVER;
        self.net.inputs_known_until.clear();
        for (link, cable) in switch.inputs.iter().zip(&switch.cables) {
            let known = self.time.clocks.known_until(*link, now, next_elsewhere).min(limit);
            self.net.inputs_known_until.push(known);
            // A pause takes effect at once, a packet after the switch has looked up its route.
            let never_pauses = || {
                let from = cable.from.get();
                from.is_none_or(|from| self.net.switches[from].stays_below_thresholds())
            };
            let delay = if known == next_elsewhere {
                switch.lookahead
            } else if never_pauses() {
                cable.delay
            } else {
                cable.pause_delay
            };
            horizon = horizon.min(known.saturating_add(delay));
        }
        horizon
    }

    /// Schedules the next arrival at a batched switch.
    pub(crate) fn schedule_next_batch(&mut self, number: SwitchId) {
        if self.net.switches[number].is_batched() {
            let next = self.next_of_batch(number);
            self.schedule_batch(number, next);
        }
    }

    /// The time and rank of the next arrival at a switch, at the earliest.
    pub(crate) fn next_of_batch(&self, number: SwitchId) -> (u64, u32) {
        let inputs = self.net.switches[number].inputs.iter();
        let next = inputs.map(|link| match &self.net.ports[*link] {
            port if port.wire.is_empty() => port.next_departure(),
            _ => self.next_arrival(*link),
        });
        next.min().unwrap_or((NEVER, 0))
    }

    #[inline]
    fn schedule_batch(&mut self, number: SwitchId, (at, ticket): (u64, u32)) {
        let switch = &mut self.net.switches[number];
        if at < switch.next_at {
            switch.next_at = at;
            self.time.clocks.set_switch_next(number, at);
            self.time.calendar.schedule(at, ticket, Event::SwitchBatch(number));
        }
    }

    /// Adds a reason for a switch to go event by event.
    #[cold]
    pub(crate) fn require_events(&mut self, number: Maybe<SwitchId>) {
        let Some(number) = number.get() else { return };
        let was_batched = self.net.switches[number].is_batched();
        self.net.switches[number].event_reasons += 1;
        if !was_batched {
            return;
        }
        self.net.switches[number].next_at = NEVER;
        self.time.clocks.set_switch_next(number, 0);
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

    /// Removes such a reason.
    #[cold]
    pub(crate) fn release_events(&mut self, number: Maybe<SwitchId>) {
        let Some(number) = number.get() else { return };
        self.net.switches[number].event_reasons -= 1;
        if self.net.switches[number].is_batched() {
            self.time.clocks.set_switch_next(number, NEVER);
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
