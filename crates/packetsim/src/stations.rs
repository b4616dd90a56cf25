//! NICs that run ahead of the clock, by the same conservative lookahead as switches
//! ([`crate::batch`]).
//!
//! A station is a server with its NICs, or all servers of one scale-up network. What it does
//! follows from its own state and from what arrives over its cables, and all that arrives within
//! the delay of the shortest of them is already on the wires. So each station has an event queue
//! of its own (arrivals, wake-ups, timers, the ends of its operations) and one entry in the common
//! calendar, for the first of them. When that is due, all its events before the horizon are
//! handled in order, by the same code as single events. This is exact, and brings the memory of a
//! NIC and its queue pairs into the cache once for dozens of packets.
//!
//! The end of an operation starts others at once, without a cable in between. Inside a station
//! that is allowed, and it covers most of a collective: a receiver forwards what it received. Two
//! more kinds are allowed. A wait without predecessors may start operations anywhere: its end is
//! known beforehand, and no station runs past it. A wait without successors may wait for operations
//! anywhere: it begins with the last of them. Anything else, and every setting in which a NIC acts
//! on another sooner than over a cable ([`Stations::new`] has the list), means event by event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fabric::{Fabric, LinkId, NodeId};
use traffic::{OpId, OpKind, Replay, Transfers};
use units::{Id, IdVec};

use crate::calendar::{Entry, Event};
use crate::ids::{Maybe, StationId};
use crate::packet::Clock;
use crate::settings::LinkRetry;
use crate::simulation::{RareEvent, Rules, Simulation};

const NEVER: u64 = u64::MAX;

/// Events further ahead than this (timeouts, slow timers) are kept apart, in picoseconds: few of
/// them ever happen, and the list of the others stays short.
const NEAR_SPAN: u64 = 20_000_000;

/// The place of an event is searched among so many one by one, then by bisection.
const LINEAR_SEARCH: usize = 6;

/// A timeout of at least so many picoseconds does not expire where nothing is lost. After a shorter
/// one a sender reads from its receiver's state which packets are missing.
const NO_TIMEOUT: u64 = 1_000_000_000_000;

/// The pending events of one station, and its lookahead.
#[derive(Debug)]
pub(crate) struct Station {
    /// Those that are near, last first.
    near: Vec<Entry>,
    /// When the first of the others comes.
    far_at: u64,
    far: BinaryHeap<Reverse<Entry>>,
    /// The time of its entry in the common calendar.
    next_at: u64,
    /// How soon an event at the far end of a cable acts on it, and its events act there.
    lookahead: u64,
    egress_delay: u64,
    /// Links that lead to it.
    inputs: Vec<LinkId>,
    /// The first of them, and its other direction.
    cable: [LinkId; 2],
}

impl Station {
    fn put(&mut self, entry: Entry, now: u64) {
        if now + NEAR_SPAN < entry.at {
            self.far_at = self.far_at.min(entry.at);
            self.far.push(Reverse(entry));
            return;
        }
        let mut place = self.near.len();
        let first = place.saturating_sub(LINEAR_SEARCH);
        while first < place && self.near[place - 1] < entry {
            place -= 1;
        }
        if place == first {
            place = self.near[..first].partition_point(|other| entry < *other);
        }
        self.near.insert(place, entry);
    }

    /// The next event.
    fn first(&self) -> Option<Entry> {
        let near = self.near.last().copied();
        if near.is_some_and(|near| near.at < self.far_at) {
            return near;
        }
        let far = self.far.peek().map(|Reverse(entry)| *entry);
        near.into_iter().chain(far).min()
    }

    /// Removes the next event.
    fn pop(&mut self, first: Entry) {
        if self.near.last() == Some(&first) {
            self.near.pop();
        } else {
            self.far.pop();
            self.far_at = self.far.peek().map_or(NEVER, |Reverse(entry)| entry.at);
        }
    }
}

/// All stations. Without any, all events are in the common calendar.
#[derive(Debug, Default)]
pub(crate) struct Stations {
    all: IdVec<StationId, Station>,
    /// The station that each link leads to, and the one that it leaves.
    of_link: IdVec<LinkId, [Maybe<StationId>; 2]>,
    /// The station where each operation starts.
    of_op: IdVec<OpId, Maybe<StationId>>,
    /// The one that is being handled.
    running: Maybe<StationId>,
    /// The ends of operations that may start others anywhere.
    global_starts: BinaryHeap<Reverse<u64>>,
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

/// The station where each operation starts; none if one operation starts another in a different
/// station.
fn stations_of_operations(
    fabric: &Fabric,
    transfers: &Transfers,
) -> Option<IdVec<OpId, Maybe<StationId>>> {
    let ops = transfers.ops();
    let is_nowhere = |node| station_of(fabric, node).is_none();
    if transfers.connections().iter().any(|one| is_nowhere(one.from) || is_nowhere(one.to)) {
        return None;
    }
    let mut stations_of_operations = IdVec::from(vec![Maybe::NONE; ops.len()]);
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
        let mut waits_at = None;
        for &earlier in transfers.after(op) {
            let at = match ops[earlier].kind {
                OpKind::Send { connection, .. } => {
                    let connection = &transfers.connections()[connection];
                    let waits = Replay::is_patient(transfers, earlier, op);
                    place(if waits { connection.from } else { connection.to })
                }
                _ if joins[earlier] => return None,
                // No predecessors: every station knows when it ends.
                _ if stations_of_operations[earlier].is_none() => continue,
                _ => stations_of_operations[earlier],
            };
            if at.is_none() {
                return None;
            }
            if own.or(waits_at).is_some_and(|known| known != at) {
                if own.is_some() {
                    return None;
                }
                joins[op] = true;
            }
            waits_at = Some(at);
        }
        stations_of_operations[op] = own.or(waits_at.filter(|_| !joins[op])).unwrap_or(Maybe::NONE);
    }
    Some(stations_of_operations)
}

impl Stations {
    /// The stations of a run, if they can run ahead.
    pub(crate) fn new(simulation: &Simulation<'_>) -> Self {
        let (fabric, transfers) = (simulation.input.fabric, simulation.input.transfers);
        let Rules { admits, slow_hosts, goes_back, lossless, lanes, .. } = simulation.input.rules;
        // Without a packet in between: grants, the ends of unacknowledged messages, lists of
        // missing packets, and retries of a link act on other NICs; NICs act on switches that end
        // queue pairs or choose by flowlet. With whole nanoseconds the order of all departures
        // counts.
        let acts_at_once = admits
            || simulation.input.rules.unreliable
            || slow_hosts
            || simulation.input.aggregates
            || simulation.input.rules.flowlet_gap != NEVER
            || simulation.input.settings.switch.link_retry == LinkRetry::On
            || simulation.input.clock != Clock::Picosecond;
        let may_lose =
            (lossless.count_ones() as usize) < lanes || !simulation.net.damage.is_empty();
        let reads_receiver =
            !goes_back && (may_lose || simulation.input.rules.timeout < NO_TIMEOUT);
        if acts_at_once || reads_receiver || !simulation.net.troubles.is_empty() {
            return Self::default();
        }
        let Some(of_op) = stations_of_operations(fabric, transfers) else { return Self::default() };
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
                let lookahead = if simulation.net.credits.are_counted() {
                    port.delay.min(simulation.net.credits.back(back))
                } else {
                    port.delay
                };
                let egress_delay = simulation.net.ports[back].delay;
                all[far].add_cable([link, back], lookahead, egress_delay);
            }
            of_link.push([far, near]);
        }
        if all.is_empty() || all.iter().any(|station| station.lookahead == 0) {
            return Self::default();
        }
        Self { all, of_link, of_op, running: Maybe::NONE, global_starts: BinaryHeap::new() }
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

    /// Removes all events.
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

    /// The first of the near events of a station.
    #[inline]
    pub(crate) fn soonest(&self, number: StationId) -> u64 {
        self.all[number].near.last().map_or(0, |entry| entry.at)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The instant that no node may pass before all have reached it.
    pub(crate) fn next_global_start(&self) -> u64 {
        self.global_starts.peek().map_or(NEVER, |Reverse(at)| *at)
    }
}

impl Station {
    /// A station without events.
    fn idle() -> Self {
        Self {
            near: Vec::new(),
            far_at: NEVER,
            far: BinaryHeap::new(),
            next_at: NEVER,
            lookahead: NEVER,
            egress_delay: NEVER,
            inputs: Vec::new(),
            cable: [LinkId::from_index(0); 2],
        }
    }

    fn add_cable(&mut self, cable: [LinkId; 2], lookahead: u64, egress_delay: u64) {
        if self.inputs.is_empty() {
            self.cable = cable;
        }
        self.inputs.push(cable[0]);
        self.lookahead = self.lookahead.min(lookahead);
        self.egress_delay = self.egress_delay.min(egress_delay);
    }
}

impl Simulation<'_> {
    /// Schedules an event, at its station or in the common calendar.
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
            self.time.clocks.set_station_next(number, at);
            self.time.calendar.schedule(at, ticket, Event::StationAhead(number));
        }
    }

    /// The station that an event belongs to, if there is one.
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
            Event::Rare(number) => match self.time.rare_events[number as usize] {
                RareEvent::Expire { link, .. } | RareEvent::Watchdog { link, .. } => {
                    stations.of_link[link][1]
                }
                RareEvent::MessageRead { op } => self.station_of_receiver(op),
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

    /// Handles [`Event::StationAhead`]: handles all events of a station before its horizon.
    pub(crate) fn run_station_ahead(&mut self, number: StationId) {
        let now = self.time.now;
        let station = &mut self.time.stations.all[number];
        if station.next_at != now {
            return;
        }
        station.next_at = NEVER;
        self.time.clocks.set_station_next(number, NEVER);
        let (lookahead, reach) = (station.lookahead, station.egress_delay);
        let elsewhere = self.time.calendar.first();
        // What this station sends now arrives elsewhere after the delay of a cable.
        let next_elsewhere = elsewhere.map_or(now, |entry| entry.at).min(now.saturating_add(reach));
        let next_elsewhere = next_elsewhere.min(self.time.window_end);
        let mut horizon = self.time.barrier.min(self.time.stations.next_global_start());
        self.time.stations.running = Maybe::some(number);
        for at in 0..self.time.stations.all[number].inputs.len() {
            let link = self.time.stations.all[number].inputs[at];
            let known =
                self.time.clocks.known_until(link, now, next_elsewhere).min(self.time.window_end);
            let cable =
                if known == next_elsewhere { lookahead } else { self.net.ports[link].delay };
            horizon = horizon.min(known.saturating_add(cable));
            self.apply_departures_before(link, known);
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

    /// Puts a station into the common calendar for its next event.
    fn schedule_station(&mut self, number: StationId) {
        let station = &mut self.time.stations.all[number];
        if let Some(first) = station.first()
            && first.at < station.next_at
        {
            station.next_at = first.at;
            self.time.clocks.set_station_next(number, first.at);
            self.time.calendar.schedule(first.at, first.ticket, Event::StationAhead(number));
        }
    }

    /// Whether an event acts on more than its station.
    #[inline]
    fn affects_all_stations(&self, entry: Entry) -> bool {
        let Event::Rare(number) = entry.event() else { return false };
        !matches!(self.time.rare_events[number as usize], RareEvent::MessageRead { .. })
    }

    /// Whether the present event is one of a station that runs ahead.
    #[inline]
    pub(crate) fn runs_ahead(&self) -> bool {
        self.time.stations.running.is_some() && !self.time.stations.is_empty()
    }

    /// Notes the end of an operation that may start others anywhere.
    pub(crate) fn note_global_start(&mut self, op: OpId, at: u64) {
        if !self.time.stations.is_empty() && self.time.stations.of_op[op].is_none() {
            self.time.stations.global_starts.push(Reverse(at));
        }
    }

    /// Removes it when the operation has ended.
    pub(crate) fn drop_global_start(&mut self, op: OpId) {
        if !self.time.stations.is_empty() && self.time.stations.of_op[op].is_none() {
            self.time.stations.global_starts.pop();
        }
    }

    /// When a wait begins: with the last of its predecessors, in whatever order stations were
    /// handled.
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
