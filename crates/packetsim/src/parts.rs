//! How a network is divided into parts of about equal work, one for each thread.
//!
//! A server stays with its leaf, because its cable is the shortest. Switches whose cables are
//! shorter than the window of the threads stay together too; the window is as long as work can
//! still be divided evenly. Servers are divided in their order, by what their queue pairs will
//! send and receive, so that neighbours stay together and half of an idle fabric counts for
//! nothing. The switches above go to the part that most of their packets come from, as long as
//! that has no more than its share.

use fabric::LinkId;
use traffic::OpKind;
use units::{Id, IdVec};

use crate::ids::{PairId, Raw, StationId, SwitchId};
use crate::packet::PATH_END;
use crate::port::{NOWHERE, Port};
use crate::simulation::Simulation;

/// A part may have so much more than its share of the work before a shorter window is tried.
const UNEVEN: f64 = 1.1;

/// With shorter windows, in picoseconds, threads would do little but wait for each other: five
/// metres of cable.
const SHORTEST: u64 = 25_000;

/// A NIC's work for a packet, in that of a switch.
const NIC_WORK: f64 = 1.5;

/// Which part each switch and each station belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    pub parts: usize,
    pub of_switch: IdVec<SwitchId, u8>,
    pub of_station: IdVec<StationId, u8>,
    /// Packets that cross links, acknowledgements included, in all.
    pub hops: f64,
    /// The same in one window, about.
    pub hops_in_window: f64,
}

/// Switches, then stations, and what they have to do.
struct Nodes {
    switches: usize,
    work: Vec<f64>,
    /// Cables between switches: both ends, the time that they take, and packets that cross them.
    cables: Vec<(usize, usize, u64, f64)>,
    /// Cables of stations: the station and its switch.
    feet: Vec<(usize, usize)>,
}

impl Division {
    /// Divides the network of a run into so many parts, if that is possible.
    pub(crate) fn new(simulation: &Simulation<'_>, parts: usize) -> Option<Self> {
        let packets = packets(simulation);
        let nodes = Nodes::new(simulation, &packets);
        let mut windows: Vec<u64> = nodes.cables.iter().map(|cable| cable.2).collect();
        windows.sort_unstable();
        windows.dedup();
        let mut best: Option<(f64, u64, Vec<u8>)> = None;
        for window in windows.into_iter().rev().filter(|window| SHORTEST <= *window) {
            if let Some((uneven, places)) = nodes.divide(parts, window)
                && best.as_ref().is_none_or(|best| uneven < best.0)
            {
                best = Some((uneven, window, places));
            }
            if best.as_ref().is_some_and(|best| best.0 <= UNEVEN) {
                break;
            }
        }
        let (_, window, places) = best?;
        let hops: f64 = packets.iter().sum();
        let busiest = simulation.net.ports.iter().zip(&packets).map(|(port, packets)| {
            let full = u64::from(simulation.input.sizes.largest());
            packets * port.time_to_send(full, simulation.input.clock) as f64
        });
        let windows = busiest.fold(0.0, f64::max) / window as f64;
        let (switches, stations) = places.split_at(nodes.switches);
        Some(Self {
            parts,
            of_switch: switches.to_vec().into(),
            of_station: stations.to_vec().into(),
            hops,
            hops_in_window: hops / windows.max(1.0),
        })
    }
}

/// How many packets cross links in all, about; acknowledgements too.
pub(crate) fn hops(simulation: &Simulation<'_>) -> f64 {
    packets(simulation).iter().sum()
}

/// How many cross each link.
fn packets(simulation: &Simulation<'_>) -> IdVec<LinkId, f64> {
    let (input, net, ends) = (&simulation.input, &simulation.net, &simulation.ends);
    let mut sent: IdVec<PairId, f64> = vec![0.0; ends.pairs.len()].into();
    for op in input.transfers.ops() {
        if let OpKind::Send { connection, bytes } = op.kind
            && let Some(first) = net.network.first_pair[connection.index()].get()
        {
            let pairs = net.network.pairs_of[connection.index()];
            let each = f64::from(input.sizes.packets(bytes.get())) / f64::from(pairs.max(1));
            for pair in first.index()..first.index() + usize::from(pairs) {
                sent[PairId::from_index(pair)] += each;
            }
        }
    }
    let mut packets: IdVec<LinkId, f64> = vec![0.0; net.ports.len()].into();
    let links = |route: u32| {
        let ahead = net.paths[route as usize..].iter();
        ahead.take_while(|at| **at & PATH_END == 0).map(|at| LinkId::of(*at))
    };
    for (number, pair) in ends.pairs.enumerate() {
        let (data, acks) = (sent[number], sent[number] / f64::from(input.rules.ack_every.max(1)));
        let back = ends.inboxes[number].route;
        links(back).for_each(|link| packets[link] += acks);
        if pair.route == NOWHERE {
            // Chosen on the way: about the way back.
            links(back).for_each(|link| packets[input.fabric.reverse(link)] += data);
        } else {
            links(pair.route).for_each(|link| packets[link] += data);
        }
    }
    packets
}

impl Nodes {
    fn new(simulation: &Simulation<'_>, packets: &IdVec<LinkId, f64>) -> Self {
        let (net, stations) = (&simulation.net, &simulation.time.stations);
        let switches = net.switches.len();
        let mut nodes = Self {
            switches,
            work: vec![0.0; switches + stations.len()],
            cables: Vec::new(),
            feet: Vec::new(),
        };
        for (link, port) in net.ports.enumerate() {
            let [far, near] = stations.ends_of(link);
            let Port { switch, into, .. } = port;
            let station = |id: StationId| switches + id.index();
            let from = switch.get().map(SwitchId::index).or(near.get().map(station));
            let to = into.get().map(SwitchId::index).or(far.get().map(station));
            let (Some(from), Some(to)) = (from, to) else { continue };
            let of = |node: usize| if node < switches { 1.0 } else { NIC_WORK };
            nodes.work[to] += of(to) * packets[link];
            if switches <= from {
                nodes.work[from] += packets[link];
            }
            if from < switches && to < switches {
                nodes.cables.push((from, to, port.delay - port.latency, packets[link]));
            } else if from != to {
                nodes.feet.push((from.max(to), from.min(to)));
            }
        }
        nodes
    }

    /// Divides the nodes so that only cables of at least this length are cut: by how much the
    /// largest part exceeds its share, and the part of each node.
    fn divide(&self, parts: usize, window: u64) -> Option<(f64, Vec<u8>)> {
        let count = self.work.len();
        let mut groups = Groups::new(count);
        self.feet.iter().for_each(|(station, switch)| groups.join(*station, *switch));
        let short = self.cables.iter().filter(|cable| cable.2 < window);
        short.for_each(|(from, to, ..)| groups.join(*from, *to));
        let of: Vec<usize> = (0..count).map(|node| groups.of(node)).collect();
        let mut work = vec![0.0; count];
        of.iter().zip(&self.work).for_each(|(group, more)| work[*group] += more);
        let total: f64 = work.iter().sum();
        let share = total / parts as f64;
        if total == 0.0 {
            return None;
        }
        let mut part: Vec<Option<u8>> = vec![None; count];
        let mut loads = vec![0.0; parts];
        // Groups with servers, in their order.
        let mut seen = vec![false; count];
        let first = |at: &&usize| !std::mem::replace(&mut seen[**at], true);
        let below: f64 = of[self.switches..].iter().filter(first).map(|at| work[*at]).sum();
        let mut before = 0.0;
        for &group in &of[self.switches..] {
            if part[group].is_none() {
                let middle = before + work[group] / 2.0;
                let place = (middle / below.max(f64::MIN_POSITIVE) * parts as f64) as usize;
                let place = place.min(parts - 1);
                part[group] = Some(place as u8);
                loads[place] += work[group];
                before += work[group];
            }
        }
        self.place_others(&of, &work, share, &mut part, &mut loads);
        let places: Vec<u8> = of.iter().map(|group| part[*group].unwrap_or(0)).collect();
        let used = loads.iter().filter(|load| 0.0 < **load).count();
        let most = loads.iter().copied().fold(0.0, f64::max);
        (used == parts).then_some((most / share, places))
    }

    /// Places the groups without servers, those next to what has been placed first.
    fn place_others(
        &self,
        of: &[usize],
        work: &[f64],
        share: f64,
        part: &mut [Option<u8>],
        loads: &mut [f64],
    ) {
        loop {
            let mut near: Vec<Option<Vec<f64>>> = vec![None; of.len()];
            for &(from, to, _, packets) in &self.cables {
                for (one, other) in [(of[from], of[to]), (of[to], of[from])] {
                    if part[one].is_none()
                        && let Some(place) = part[other]
                    {
                        let near = near[one].get_or_insert_with(|| vec![0.0; loads.len()]);
                        near[usize::from(place)] += packets;
                    }
                }
            }
            let mut placed = false;
            for (group, near) in near.iter().enumerate() {
                let Some(near) = near else { continue };
                let most = near.iter().copied().fold(0.0, f64::max);
                let fits = |place: &usize| {
                    0.8 * most <= near[*place] && loads[*place] + work[group] <= share
                };
                let least = |one: &usize, other: &usize| loads[*one].total_cmp(&loads[*other]);
                let place = (0..loads.len()).filter(fits).min_by(least);
                let place = place.or_else(|| (0..loads.len()).min_by(least)).unwrap_or(0);
                part[group] = Some(place as u8);
                loads[place] += work[group];
                placed = true;
            }
            if !placed {
                return;
            }
        }
    }
}

/// Nodes that stay together.
struct Groups {
    parents: Vec<usize>,
}

impl Groups {
    fn new(count: usize) -> Self {
        Self { parents: (0..count).collect() }
    }

    fn of(&mut self, node: usize) -> usize {
        let mut at = node;
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of(one), self.of(other));
        self.parents[one.max(other)] = one.min(other);
    }
}
