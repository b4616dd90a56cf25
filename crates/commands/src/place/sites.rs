//! Servers of a fabric as sites: which of them nothing tells apart, and how far those are.
//!
//! What is placed together is a unit: a server, or all servers of one scale-up domain where that is
//! larger. Units whose NICs lead to the same switches are one site. The distance of two sites is
//! the number of cables between switches on the way, on average over the rails. A cable counts for
//! more where others beside it are out of service or slow, because what is left carries their load:
//! the climb out of a switch weighs its capacity as built over what is left of it. A NIC that lost
//! ports makes its server as much farther from everybody.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fabric::graph::LinkKind;
use fabric::{Fabric, LinkId, NodeId, NodeKind};
use job::mapping::Sites;
use units::Id;

/// Sites at most: their distances are a table.
const MOST_SITES: usize = 4096;

/// Free units of a fabric, by site.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    /// Servers of a unit.
    pub(super) servers_per_unit: usize,
    /// GPUs of a unit.
    pub(super) gpus_per_unit: usize,
    /// Free units of each site, in order.
    pub(super) units: Vec<Vec<u32>>,
    /// How far the sites are from each other.
    pub(super) sites: Sites,
    /// Free servers that cannot be used, and why.
    pub(super) left_out: Vec<(usize, &'static str)>,
}

impl Ground {
    /// The free servers of a fabric.
    pub(super) fn of(fabric: &Fabric, free: &[usize]) -> Result<Self, String> {
        let gpus_per_unit = fabric.gpus_per_domain().max(fabric.gpus_per_node()).max(1);
        let servers_per_unit = (gpus_per_unit / fabric.gpus_per_node().max(1)).max(1);
        let mut left_out = Vec::new();
        let mut by_ports: BTreeMap<Vec<Vec<NodeId>>, Vec<u32>> = BTreeMap::new();
        for unit in free.chunk_by(|a, b| a / servers_per_unit == b / servers_per_unit) {
            if unit.len() < servers_per_unit {
                let why = "others hold a part of its scale-up domain";
                left_out.extend(unit.iter().map(|server| (*server, why)));
                continue;
            }
            let nics = fabric.nics_per_node();
            let nics = unit[0] * nics..(unit[0] + servers_per_unit) * nics;
            let ports: Vec<Vec<NodeId>> = nics.map(|nic| live_leaves(fabric, nic)).collect();
            if ports.iter().any(Vec::is_empty) {
                let why = "a NIC of its has no cable in service";
                left_out.extend(unit.iter().map(|server| (*server, why)));
                continue;
            }
            by_ports.entry(ports).or_default().push((unit[0] / servers_per_unit) as u32);
        }
        let mut found: Vec<(Vec<Vec<NodeId>>, Vec<u32>)> = by_ports.into_iter().collect();
        found.sort_by_key(|(_, units)| units[0]);
        if MOST_SITES < found.len() {
            return Err(format!(
                "free servers hang on {} different sets of switches; at most {MOST_SITES} can be \
                 weighed against each other",
                found.len()
            ));
        }
        let table = distances(fabric, &found);
        let count = found.len();
        let units: Vec<Vec<u32>> = found.into_iter().map(|(_, units)| units).collect();
        let seats = units.iter().map(|units| units.len() as u32).collect();
        let sites = Sites::new(seats, |a, b| table[a * count + b]);
        Ok(Self { servers_per_unit, gpus_per_unit, units, sites, left_out })
    }

    /// The servers of a unit.
    pub(super) fn servers_of(&self, unit: u32) -> std::ops::Range<usize> {
        let first = unit as usize * self.servers_per_unit;
        first..first + self.servers_per_unit
    }

    /// Free units in all.
    pub(super) fn count(&self) -> usize {
        self.units.iter().map(Vec::len).sum()
    }
}

/// The switches that a NIC's cables in service lead to.
fn live_leaves(fabric: &Fabric, nic: usize) -> Vec<NodeId> {
    let ports = fabric.ports(fabric.nic(nic)).iter();
    let live = ports.filter(|link| {
        let whole =
            [**link, fabric.reverse(**link)].iter().all(|way| !fabric.health().is_down(*way));
        fabric.class(**link).kind == LinkKind::ScaleOut && whole
    });
    live.map(|link| fabric.links()[*link].to).collect()
}

/// Cables of a NIC that are gone, over those that are left, on average over a site's NICs.
fn lost_ports(fabric: &Fabric, unit: u32, ports: &[Vec<NodeId>]) -> f64 {
    let first = unit as usize * ports.len();
    let built = |nic: usize| {
        let ports = fabric.ports(fabric.nic(nic)).iter();
        ports.filter(|link| fabric.class(**link).kind == LinkKind::ScaleOut).count()
    };
    let lost = (first..).zip(ports).map(|(nic, live)| built(nic) as f64 / live.len() as f64 - 1.0);
    lost.sum::<f64>() / ports.len().max(1) as f64
}

/// How far sites are from each other, row by row.
fn distances(fabric: &Fabric, sites: &[(Vec<Vec<NodeId>>, Vec<u32>)]) -> Vec<f64> {
    let count = sites.len();
    let mut table = vec![0.0; count * count];
    let Some((ports, _)) = sites.first() else { return table };
    let switches = Switches::of(fabric);
    let lost: Vec<f64> =
        sites.iter().map(|(ports, units)| lost_ports(fabric, units[0], ports)).collect();
    // Rails are alike unless something is out of service; then each is looked at.
    let is_whole = !fabric.health().has_failures() && !fabric.health().has_slow_links();
    let rails = if is_whole { 1 } else { ports.len() };
    for (from, (ports, _)) in sites.iter().enumerate() {
        for rail in 0..rails {
            if 0 < rail && ports[rail] == ports[rail - 1] {
                continue;
            }
            // As many rails as follow on the same switches.
            let same = ports[rail..rails].iter().take_while(|other| **other == ports[rail]).count();
            let far = switches.from(&ports[rail]);
            for (to, (others, _)) in sites.iter().enumerate() {
                let ends = others[rail].iter().map(|leaf| far[switches.number(*leaf)]);
                let nearest = ends.fold(UNREACHABLE, f64::min);
                table[from * count + to] += nearest * same as f64 / rails as f64;
            }
        }
    }
    for (at, far) in table.iter_mut().enumerate() {
        *far += lost[at / count] + lost[at % count];
    }
    // What differs a little by the direction, where failures are, is made one.
    for a in 0..count {
        for b in 0..a {
            let mean = (table[a * count + b] + table[b * count + a]) / 2.0;
            (table[a * count + b], table[b * count + a]) = (mean, mean);
        }
    }
    table
}

/// Farther than any way through a fabric.
const UNREACHABLE: f64 = 1e6;

/// The switches of a fabric and what a cable between two of them counts for.
struct Switches {
    first: usize,
    next: Vec<Vec<(usize, f64)>>,
}

impl Switches {
    fn of(fabric: &Fabric) -> Self {
        let first = fabric.nodes().len() - fabric.switches().len();
        let next = fabric.switches().map(|switch| {
            let mut next: BTreeMap<usize, f64> = BTreeMap::new();
            for link in fabric.ports(switch).iter().filter(|link| is_cable(fabric, **link)) {
                let to = fabric.links()[*link].to;
                if !fabric.health().is_down(*link) {
                    next.entry(to.index() - first).or_insert_with(|| weight(fabric, switch, to));
                }
            }
            next.into_iter().collect()
        });
        Self { first, next: next.collect() }
    }

    fn number(&self, switch: NodeId) -> usize {
        switch.index() - self.first
    }

    /// How far every switch is from the nearest of these.
    fn from(&self, starts: &[NodeId]) -> Vec<f64> {
        let mut far = vec![UNREACHABLE; self.next.len()];
        // Distances are sums of positive numbers, whose bits are in their order.
        let mut heap: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        for start in starts {
            far[start.index() - self.first] = 0.0;
            heap.push(Reverse((0, start.index() - self.first)));
        }
        while let Some(Reverse((bits, at))) = heap.pop() {
            let here = f64::from_bits(bits);
            if far[at] < here {
                continue;
            }
            for (next, weight) in &self.next[at] {
                let there = here + weight;
                if there < far[*next] {
                    far[*next] = there;
                    heap.push(Reverse((there.to_bits(), *next)));
                }
            }
        }
        far
    }
}

fn is_cable(fabric: &Fabric, link: LinkId) -> bool {
    let kind = fabric.class(link).kind;
    let ends = fabric.links()[link];
    matches!(kind, LinkKind::ScaleOut | LinkKind::Circuit)
        && fabric.nodes()[ends.to].kind == NodeKind::Switch
}

/// What a cable between two switches counts for: one, and more where those beside it are gone.
/// Those beside it all lead up from the lower one; between equals, from one to the other.
fn weight(fabric: &Fabric, from: NodeId, to: NodeId) -> f64 {
    let tier = |node: NodeId| fabric.nodes()[node].tier;
    let (low, high) = if tier(to) < tier(from) { (to, from) } else { (from, to) };
    let beside = |link: &&LinkId| {
        let end = fabric.links()[**link].to;
        let climbs = tier(low) != tier(high) && tier(low) < tier(end);
        is_cable(fabric, **link) && (end == high || climbs)
    };
    let (mut built, mut left) = (0.0, 0.0);
    for link in fabric.ports(low).iter().filter(beside) {
        built += fabric.class(*link).rate.bytes_per_s();
        let ways = [*link, fabric.reverse(*link)];
        if ways.iter().all(|way| !fabric.health().is_down(*way)) {
            let rates = ways.map(|way| fabric.health().rate(fabric, way).bytes_per_s());
            left += rates[0].min(rates[1]);
        }
    }
    if left <= 0.0 { UNREACHABLE } else { built / left }
}
