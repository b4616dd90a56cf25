//! NICs ahead of the clock: a station handles everything that happens to it in the next stretch
//! of time at once.
//!
//! A station is a server with its NICs, or all servers of one scale-up network. What it does
//! follows from its own state and from what arrives over its cables, and all that will arrive
//! within the delay of the shortest of them is on the wires already. So its events (arrivals,
//! wake-ups, timers, the ends of its operations) are in a calendar of its own, and it stands in
//! the common one once, for the first of them. When that comes, everything until the horizon is
//! handled in order, by the same code as ever. That is exact, as it is for switches
//! ([`crate::batch`]), and it brings the memory of a NIC and its queue pairs into the cache once
//! for dozens of packets.
//!
//! One operation's end starts others at once, without a cable in between. That is harmless inside
//! a station, and most of what a collective passes on is: a receiver sends on what it received.
//! Two more kinds are allowed for. A wait that nothing precedes may start operations anywhere;
//! when it ends is known beforehand, and nobody runs past that. A wait that nothing follows may
//! wait for operations anywhere; it begins with the last of them, in whatever order they were
//! handled. Anything else, and every setting in which NICs feel each other sooner than over a
//! cable ([`Stations::new`] lists them), means event by event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fabric::{Fabric, LinkId, NodeId};
use traffic::{OpId, OpKind, Replay, Transfers};
use units::{Id, IdVec};

use crate::calendar::{Entry, Event};
use crate::ids::{Maybe, StationId};
use crate::packet::Clock;
use crate::settings::LinkRetry;
use crate::simulation::{Agenda, Rules, Simulation};

const NEVER: u64 = u64::MAX;

/// Events that lie further ahead than this (timeouts, slow timers) are kept apart, in picoseconds:
/// they seldom come to pass, and the list of the others stays short.
const NEAR: u64 = 20_000_000;

/// So many events are looked at one by one; the place among more is searched for.
const FEW: usize = 6;

/// A timeout of at least so many picoseconds does not happen where nothing is lost. After a shorter
/// one a sender looks up what its receiver misses.
const RARE: u64 = 1_000_000_000_000;

/// What is going to happen to one station.
#[derive(Debug)]
pub(crate) struct Station {
    /// What comes soon, last first.
    near: Vec<Entry>,
    /// When the first of the others comes.
    far_at: u64,
    far: BinaryHeap<Reverse<Entry>>,
    /// For when it stands in the common calendar.
    next_at: u64,
    /// How soon it feels what happens at the far end of a cable, and is felt there.
    lookahead: u64,
    reach: u64,
    /// Links that lead to it.
    inputs: Vec<LinkId>,
    /// The first of them, and its other direction.
    cable: [LinkId; 2],
}

impl Station {
    fn put(&mut self, entry: Entry, now: u64) {
        if now + NEAR < entry.at {
            self.far_at = self.far_at.min(entry.at);
            self.far.push(Reverse(entry));
            return;
        }
        let mut place = self.near.len();
        let least = place.saturating_sub(FEW);
        while least < place && self.near[place - 1] < entry {
            place -= 1;
        }
        if place == least {
            place = self.near[..least].partition_point(|other| entry < *other);
        }
        self.near.insert(place, entry);
    }

    /// What happens first.
    fn first(&self) -> Option<Entry> {
        let near = self.near.last().copied();
        if near.is_some_and(|near| near.at < self.far_at) {
            return near;
        }
        let far = self.far.peek().map(|Reverse(entry)| *entry);
        near.into_iter().chain(far).min()
    }

    /// Takes out what happens first.
    fn pop(&mut self, first: Entry) {
        if self.near.last() == Some(&first) {
            self.near.pop();
        } else {
            self.far.pop();
            self.far_at = self.far.peek().map_or(NEVER, |Reverse(entry)| entry.at);
        }
    }
}

/// All stations, and what belongs to them. Without any, everything is in the common calendar.
#[derive(Debug, Default)]
pub(crate) struct Stations {
    all: IdVec<StationId, Station>,
    /// The station that each link leads to, and the one that it leaves.
    of_link: IdVec<LinkId, [Maybe<StationId>; 2]>,
    /// The station where each operation starts.
    of_op: IdVec<OpId, Maybe<StationId>>,
    /// The one that is being handled.
    running: Maybe<StationId>,
    /// When operations end that may start others anywhere.
    starts: BinaryHeap<Reverse<u64>>,
}

/// Servers of one station.
fn servers(fabric: &Fabric) -> usize {
    (fabric.gpus_per_domain() / fabric.gpus_per_node().max(1)).max(1)
}

/// Which station a node belongs to.
pub(crate) fn station_of(fabric: &Fabric, node: NodeId) -> Maybe<StationId> {
    let of_server = |server: usize| Maybe::some(StationId::from_index(server / servers(fabric)));
    fabric.server_of(node).map_or(Maybe::NONE, of_server)
}

/// Where each operation starts, if no operation is felt at once in another station.
fn homes(fabric: &Fabric, transfers: &Transfers) -> Option<IdVec<OpId, Maybe<StationId>>> {
    let ops = transfers.ops();
    let is_nowhere = |node| station_of(fabric, node).is_none();
    if transfers.connections().iter().any(|one| is_nowhere(one.from) || is_nowhere(one.to)) {
        return None;
    }
    let mut homes = IdVec::from(vec![Maybe::NONE; ops.len()]);
    // Waits that wait for more than one station: nothing may follow them.
    let mut joins: IdVec<OpId, bool> = vec![false; ops.len()].into();
    for op in ops.ids() {
        let place = |node| station_of(fabric, node);
        let own = match ops[op].kind {
            OpKind::Send { connection, .. } => {
                Some(place(transfers.connections()[connection].from))
            }
            _ => None,
        };
        let mut felt_at = None;
        for &earlier in transfers.after(op) {
            let at = match ops[earlier].kind {
                OpKind::Send { connection, .. } => {
                    let connection = &transfers.connections()[connection];
                    let waits = Replay::is_patient(transfers, earlier, op);
                    place(if waits { connection.from } else { connection.to })
                }
                _ if joins[earlier] => return None,
                // Nothing precedes it: it starts others when everybody knows that it will.
                _ if homes[earlier].is_none() => continue,
                _ => homes[earlier],
            };
            if at.is_none() {
                return None;
            }
            if own.or(felt_at).is_some_and(|known| known != at) {
                if own.is_some() {
                    return None;
                }
                joins[op] = true;
            }
            felt_at = Some(at);
        }
        homes[op] = own.or(felt_at.filter(|_| !joins[op])).unwrap_or(Maybe::NONE);
    }
    Some(homes)
}

impl Stations {
    /// The stations of a run, if they can run ahead.
    pub(crate) fn new(simulation: &Simulation<'_>) -> Self {
        let (fabric, transfers) = (simulation.input.fabric, simulation.input.transfers);
        let Rules { admits, slow_hosts, goes_back, lossless, lanes, .. } = simulation.input.rules;
        // Clearances and the ends of what nobody acknowledges are given, what is missing is looked
        // up and damaged packets go back to their queue without a message; switches that end queue
        // pairs or choose by flowlet feel a NIC at once; with whole nanoseconds the order of all
        // departures counts.
        let is_felt = admits
            || simulation.input.rules.unreliable
            || slow_hosts
            || simulation.input.aggregates
            || simulation.input.rules.flowlet_gap != NEVER
            || simulation.input.settings.switch.link_retry == LinkRetry::On
            || simulation.input.clock != Clock::Picosecond;
        let may_lose =
            (lossless.count_ones() as usize) < lanes || !simulation.net.damage.is_empty();
        let looks = !goes_back && (may_lose || simulation.input.rules.timeout < RARE);
        if is_felt || looks || !simulation.net.troubles.is_empty() {
            return Self::default();
        }
        let Some(of_op) = homes(fabric, transfers) else { return Self::default() };
        let count = fabric.machines().div_ceil(servers(fabric));
        let mut all: IdVec<StationId, Station> = (0..count).map(|_| Station::idle()).collect();
        let mut of_link = IdVec::with_capacity(simulation.net.ports.len());
        for (port, link) in simulation.net.ports.iter().zip(fabric.links().iter()) {
            let far = if port.into.is_none() { station_of(fabric, link.to) } else { Maybe::NONE };
            let near =
                if port.switch.is_none() { station_of(fabric, link.from) } else { Maybe::NONE };
            let is_nic = |node| fabric.nic_number(node).is_some();
            if let Some(far) = far.get()
                && (port.switch.is_some() || is_nic(link.from))
                && is_nic(link.to)
            {
                let link = LinkId::from_index(of_link.len());
                let back = fabric.reverse(link);
                // Credits need nothing but the cable.
                let felt = if simulation.net.credits.are_counted() {
                    port.delay.min(simulation.net.credits.back(back))
                } else {
                    port.delay
                };
                let reach = simulation.net.ports[back].delay;
                all[far].add_cable([link, back], felt, reach);
            }
            of_link.push([far, near]);
        }
        if all.is_empty() || all.iter().any(|station| station.lookahead == 0) {
            return Self::default();
        }
        Self { all, of_link, of_op, running: Maybe::NONE, starts: BinaryHeap::new() }
    }

    /// The station that a link leads to, and the one that it leaves.
    pub(crate) fn ends_of(&self, link: LinkId) -> [Maybe<StationId>; 2] {
        self.of_link.get(link).copied().unwrap_or_default()
    }

    /// The station where an operation starts, if there is one.
    pub(crate) fn home(&self, op: OpId) -> Maybe<StationId> {
        self.of_op[op]
    }

    /// Whether an operation without a station waits for some that have one.
    pub(crate) fn joins(&self, transfers: &Transfers, op: OpId) -> bool {
        let is_wait = |at: &OpId| matches!(transfers.ops()[*at].kind, OpKind::Wait { .. });
        transfers.after(op).iter().any(|at| !is_wait(at) || self.of_op[*at].is_some())
    }

    /// All events of all stations, station by station, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for station in &self.all {
            let first = entries.len();
            entries.extend_from_slice(&station.near);
            entries.extend(station.far.iter().map(|Reverse(entry)| *entry));
            entries[first..].sort_unstable();
        }
        entries
    }

    /// Forgets all events.
    pub(crate) fn clear(&mut self) {
        for station in self.all.iter_mut() {
            station.near.clear();
            station.far.clear();
            (station.far_at, station.next_at) = (NEVER, NEVER);
        }
    }

    /// Their ids.
    pub(crate) fn ids(&self) -> impl Iterator<Item = StationId> + use<> {
        self.all.ids()
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A cable of a station: the link that leads to it, and the one that leaves it.
    #[inline]
    pub(crate) fn cable(&self, number: StationId) -> [LinkId; 2] {
        self.all[number].cable
    }

    /// What happens to a station first of what comes soon.
    #[inline]
    pub(crate) fn soonest(&self, number: StationId) -> u64 {
        self.all[number].near.last().map_or(0, |entry| entry.at)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The instant that nobody may pass before everybody has reached it.
    pub(crate) fn next_start(&self) -> u64 {
        self.starts.peek().map_or(NEVER, |Reverse(at)| *at)
    }
}

impl Station {
    /// One to which nothing happens.
    fn idle() -> Self {
        Self {
            near: Vec::new(),
            far_at: NEVER,
            far: BinaryHeap::new(),
            next_at: NEVER,
            lookahead: NEVER,
            reach: NEVER,
            inputs: Vec::new(),
            cable: [LinkId::from_index(0); 2],
        }
    }

    fn add_cable(&mut self, cable: [LinkId; 2], felt: u64, reach: u64) {
        if self.inputs.is_empty() {
            self.cable = cable;
        }
        self.inputs.push(cable[0]);
        self.lookahead = self.lookahead.min(felt);
        self.reach = self.reach.min(reach);
    }
}

impl Simulation<'_> {
    /// Arranges for an event to happen.
    #[inline]
    pub(crate) fn schedule(&mut self, at: u64, ticket: u32, event: Event) {
        let number =
            if self.time.stations.is_empty() { Maybe::NONE } else { self.station_for(event) };
        let Some(number) = number.get() else {
            self.time.calendar.schedule(at, ticket, event);
            return;
        };
        let station = &mut self.time.stations.all[number];
        station.put(Entry::new(at, ticket, event), self.time.now);
        if at < station.next_at && self.time.stations.running != Maybe::some(number) {
            station.next_at = at;
            self.time.clocks.set_station(number, at);
            self.time.calendar.schedule(at, ticket, Event::StationAhead(number));
        }
    }

    /// The station that an event belongs to, or nowhere.
    #[inline]
    fn station_for(&self, event: Event) -> Maybe<StationId> {
        let stations = &self.time.stations;
        match event {
            Event::PacketArrived(link) | Event::PauseFrame(link) => stations.of_link[link][0],
            Event::TransmitterFreed(link) | Event::SenderWoken(link) => stations.of_link[link][1],
            Event::ControlTimer(pair) | Event::Timeout(pair) | Event::AckArrived(pair) => {
                stations.of_link[self.ends.pairs[pair].port][1]
            }
            Event::OperationEnded(op) => stations.of_op[op],
            Event::Rare(number) => match self.time.agenda[number as usize] {
                Agenda::Expire { link, .. } | Agenda::Watchdog { link, .. } => {
                    stations.of_link[link][1]
                }
                Agenda::MessageRead { op } => self.station_of_receiver(op),
                _ => Maybe::NONE,
            },
            Event::SwitchBatch(_) | Event::StationAhead(_) => Maybe::NONE,
        }
    }

    fn station_of_receiver(&self, op: OpId) -> Maybe<StationId> {
        match self.input.transfers.ops()[op].kind {
            OpKind::Send { connection, .. } => {
                station_of(self.input.fabric, self.input.transfers.connections()[connection].to)
            }
            _ => Maybe::NONE,
        }
    }

    /// Handles [`Event::StationAhead`]: handles what happens to a station before its horizon.
    pub(crate) fn run_station_ahead(&mut self, number: StationId) {
        let now = self.time.now;
        let station = &mut self.time.stations.all[number];
        if station.next_at != now {
            return;
        }
        station.next_at = NEVER;
        self.time.clocks.set_station(number, NEVER);
        let (lookahead, reach) = (station.lookahead, station.reach);
        let elsewhere = self.time.calendar.first();
        // What this station does now is itself felt elsewhere after the delay of a cable.
        let least = elsewhere.map_or(now, |entry| entry.at).min(now.saturating_add(reach));
        let least = least.min(self.time.window_end);
        let mut horizon = self.time.barrier.min(self.time.stations.next_start());
        self.time.stations.running = Maybe::some(number);
        for at in 0..self.time.stations.all[number].inputs.len() {
            let link = self.time.stations.all[number].inputs[at];
            let felt = self.time.clocks.of_source(link, now, least).min(self.time.window_end);
            let cable = if felt == least { lookahead } else { self.net.ports[link].delay };
            horizon = horizon.min(felt.saturating_add(cable));
            self.apply_departures_before(link, felt);
        }
        while let Some(first) = self.time.stations.all[number].first() {
            let is_due = first.at <= now && elsewhere.is_none_or(|other| first <= other);
            let in_reach =
                first.at < horizon && (first.at == now || !self.affects_all_stations(first));
            if !is_due && !in_reach {
                break;
            }
            self.time.stations.all[number].pop(first);
            self.handle(first);
        }
        self.time.stations.running = Maybe::NONE;
        self.time.now = now;
        for at in 0..self.time.stations.all[number].inputs.len() {
            let link = self.time.stations.all[number].inputs[at];
            if self.net.ports[link].wire.is_empty() {
                self.schedule_free_event(link);
            }
        }
        self.schedule_station(number);
    }

    /// Puts a station into the common calendar for what happens to it next.
    fn schedule_station(&mut self, number: StationId) {
        let station = &mut self.time.stations.all[number];
        if let Some(first) = station.first()
            && first.at < station.next_at
        {
            station.next_at = first.at;
            self.time.clocks.set_station(number, first.at);
            self.time.calendar.schedule(first.at, first.ticket, Event::StationAhead(number));
        }
    }

    /// Whether an event looks at more than its station.
    #[inline]
    fn affects_all_stations(&self, entry: Entry) -> bool {
        let Event::Rare(number) = entry.event() else { return false };
        !matches!(self.time.agenda[number as usize], Agenda::MessageRead { .. })
    }

    /// Whether a NIC that runs ahead looks at this instant.
    #[inline]
    pub(crate) fn runs_ahead(&self) -> bool {
        self.time.stations.running.is_some() && !self.time.stations.is_empty()
    }

    /// Notes that an operation ends then which may start others anywhere.
    pub(crate) fn note_global_start(&mut self, op: OpId, at: u64) {
        if !self.time.stations.is_empty() && self.time.stations.of_op[op].is_none() {
            self.time.stations.starts.push(Reverse(at));
        }
    }

    /// The same operation has ended.
    pub(crate) fn drop_global_start(&mut self, op: OpId) {
        if !self.time.stations.is_empty() && self.time.stations.of_op[op].is_none() {
            self.time.stations.starts.pop();
        }
    }

    /// When a wait that may begin does: with the last of those it waited for, in whatever order
    /// stations were handled.
    pub(crate) fn start_of_wait(&self, op: OpId) -> u64 {
        if self.time.stations.is_empty() || self.time.stations.of_op[op].is_some() {
            return self.time.now;
        }
        let ends = self.input.transfers.after(op).iter();
        let ends = ends.map(|earlier| self.ends.operations.received_at[earlier.index()]);
        ends.max().unwrap_or(self.time.now)
    }
}

#[cfg(test)]
mod tests {
    use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
    use fabric::transport::Transport;
    use traffic::{Connection, Outcome};
    use units::{Bytes, Random, Rate, Span};

    use super::*;
    use crate::Settings;
    use crate::buffer::{BufferConfig, EcnConfig};
    use crate::cc::{CcConfig, none};
    use crate::simulation::Watch;

    fn fabric(random: &mut Random) -> Fabric {
        let per_node = 1 + random.below(2) as u32;
        let cluster = ClusterConfig {
            gpus: Some(16),
            gpus_per_node: per_node,
            nics_per_node: per_node,
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
            links: vec![link(100 + random.below(1_500)), link(100), link(1 + random.below(1_000))],
            ..FabricConfig::default()
        };
        build(&cluster, &config, &Default::default()).expect("it is well-formed")
    }

    /// Messages at random times that are passed on and followed by others, from a common start to a
    /// common end.
    fn messages(random: &mut Random, fabric: &Fabric) -> Transfers {
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        let start = OpKind::Wait { span: Span::from_ps(random.below(2_000_000)) };
        let start = transfers.add(start, label, &[]);
        let mut last = Vec::new();
        for _ in 0..25 {
            let mut from = random.below(16) as usize;
            let span = Span::from_ps(random.below(20_000_000));
            let mut before = match random.below(3) {
                0 => vec![],
                1 => vec![start],
                _ => vec![transfers.add(OpKind::Wait { span }, label, &[])],
            };
            for _ in 0..1 + random.below(4) {
                let to = (from + 1 + random.below(3) as usize) % 16;
                let (a, b) = (fabric.nic(from), fabric.nic(to));
                let pair = Connection { from: a, to: b, channel: 0, queue_pairs: 1 };
                let connection = transfers.connect(pair);
                transfers.set_service_level(connection.index(), random.below(2) as u8);
                let bytes = Bytes::new(1 + random.below(200_000));
                before = vec![transfers.send(connection, bytes, label, &before)];
                if random.below(2) == 0 {
                    from = to; // passed on; else the same sender sends again
                    let span = Span::from_ps(random.below(2) * 300_000);
                    before = vec![transfers.add(OpKind::Wait { span }, label, &before)];
                }
            }
            last.extend(before);
        }
        transfers.add(OpKind::Wait { span: Span::from_ns(7) }, label, &last);
        transfers
    }

    fn run(seed: u64, settings: &Settings, ahead: bool) -> Outcome {
        let mut random = Random::new(seed, "stations", 0);
        let fabric = fabric(&mut random);
        let transfers = messages(&mut random, &fabric);
        let faults = Default::default();
        let mut simulation =
            crate::build::build(&fabric, &transfers, settings, &faults).expect("it can be run");
        assert!(!simulation.time.stations.is_empty(), "these can run ahead");
        if !ahead {
            simulation.time.stations = Stations::default();
            simulation.time.clocks = crate::build::clocks(&simulation);
        }
        simulation.run(&mut Watch::default())
    }

    /// Agreement: running ahead changes nothing, with marks and pauses and without.
    #[test]
    fn nics_ahead_of_the_clock_do_what_they_would_have_done() {
        let tight = Settings {
            congestion: CcConfig::None(none::Config {}),
            buffer: BufferConfig {
                size: Bytes::new(700_000),
                alpha: 0.125,
                reserved: Bytes::new(4096),
                ..BufferConfig::default()
            },
            ..Settings::default()
        };
        let ecn =
            EcnConfig { min: Bytes::from_kib(8), max: Bytes::from_kib(32), ..Default::default() };
        let tense = Settings { congestion: Settings::default().congestion, ecn, ..tight.clone() };
        let mut credits = Settings::of_transport(Transport::Infiniband);
        credits.credits.spare = Bytes::from_kib(16);
        credits.routing.busy = Bytes::from_kib(8);
        let mut lanes = credits.clone();
        lanes.credits.lanes = 2;
        let mut priorities = tense.clone();
        priorities.credits.lanes = 2;
        let adaptive = Settings::spectrum_x();
        let (mut pauses, mut marks) = (0, 0);
        for seed in 0..50 {
            let credits = [&credits, &lanes];
            let pauses_and_choices = [&Settings::default(), &tight, &tense, &priorities, &adaptive];
            for settings in pauses_and_choices.into_iter().chain(credits) {
                let (ahead, along) = (run(seed, settings, true), run(seed, settings, false));
                assert_eq!(ahead.ops, along.ops, "seed {seed}");
                let (a, b) = (&ahead.counters, &along.counters);
                assert_eq!(a.ecn_marks, b.ecn_marks, "seed {seed}");
                assert_eq!(a.pauses, b.pauses, "seed {seed}");
                assert_eq!(a.cnps, b.cnps, "seed {seed}");
                assert_eq!((a.packets, a.retransmits), (b.packets, b.retransmits), "seed {seed}");
                assert_eq!(ahead.links, along.links, "seed {seed}");
                pauses += a.pauses;
                marks += a.ecn_marks;
            }
        }
        assert!(100 < pauses && 200 < marks, "only {pauses} pauses and {marks} marks");
    }
}
