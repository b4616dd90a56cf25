//! The ranks of a collective, grouped by scale-up domain, and the rings that NCCL lays over them.
//!
//! A communicator knows which GPU each rank is, which ranks share a scale-up domain (an NVSwitch,
//! an xGMI mesh), and through which NICs a domain can be entered: its rails. NCCL's graph search
//! gives one ring for each channel. On servers whose GPUs have NICs of their own a ring enters by
//! one GPU's, visits all GPUs on a path and leaves by the last one's; the next server it passes the
//! other way, so that it stays on two rails (`crossNicRing` in NCCL's `connect.cc`). Each GPU is
//! last on one path of m, so a ring loads NVLink with (m−1)/m of what crosses its edges. Where
//! there are fewer NICs, or an odd number of GPUs, the GPU that is visited last reaches the ring's
//! NIC over NVLink through the GPU next to it (PXN), and a ring loads NVLink as inside one server.
//!
//! On a mesh each ring needs links of its own: the rings are arc-disjoint directed Hamiltonian
//! cycles. A complete mesh of odd size splits into them by Walecki's zigzag, of size 8 into the
//! seven below (found by search; that they exist is Tillson's theorem), of another even size into
//! all but one.
//!
//! Between servers a mesh of even size needs such paths, not cycles: from each GPU one that goes
//! one up, two down, three up, … and ends opposite of where it began. Its steps are all different,
//! so no two of these paths share a link, and there is one more of them than of the cycles. A ring
//! leaves by the NIC of the path's last GPU, enters the next server on that rail and ends there
//! where it began here; with an odd number of servers it changes rails once. RCCL's tables for
//! MI300X have eight such paths, each from one GPU's NIC to that of another.
//!
//! Source: NCCL `src/graph/{search,connect}.cc`; RCCL `src/graph/rome_models.cc` (model 81: rings
//! as paths with a NIC at each end) and its commit 0cbce2a (odd numbers of servers). Departure: the
//! order of GPUs within a server is by rank, not by the search's score, which on a switch is the
//! same thing; PCIe between a GPU and its NIC is not modelled.

use fabric::graph::LinkKind;
use fabric::{Fabric, NodeId, NodeKind};
use units::{Id, Rate};

/// How the GPUs of one domain reach each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScaleUp {
    /// Not at all: every GPU is a domain of its own.
    Absent,
    /// Through switches: any pair at full rate, and reduction in the switch where it has it.
    Switched,
    /// Over a link between each pair.
    Mesh,
}

/// Whether a ring may leave a server through another NIC than it entered (`NCCL_CROSS_NIC`).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    PartialEq,
    serde::Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CrossNic {
    /// It stays on its rail; the last GPU reaches the rail's NIC over NVLink (PXN). What NCCL's
    /// default of 2 comes to on servers with a NIC for each GPU.
    #[default]
    SameRail,
    /// It leaves through the NIC of the GPU that comes last, and so changes rails at each server.
    Crossing,
}

/// What of a communicator matters for planning: sizes and rates, no ids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Ranks in all.
    pub ranks: u32,
    /// Scale-up domains that they lie in.
    pub domains: u32,
    /// Ranks in the largest domain.
    pub per_domain: u32,
    /// Ranks in the smallest domain.
    pub smallest: u32,
    /// NICs that the poorest domain can use.
    pub rails: u32,
    /// How a domain hangs together.
    pub scale_up: ScaleUp,
    /// Of one GPU in one direction, all its links together.
    pub scale_up_rate: Option<Rate>,
    /// Of one link of a mesh in one direction.
    pub mesh_link_rate: Option<Rate>,
    /// Of one NIC in one direction, all its ports together; the slowest of those used.
    pub nic_rate: Option<Rate>,
}

impl Shape {
    /// Whether every domain has the same number of ranks.
    pub fn is_uniform(&self) -> bool {
        self.smallest == self.per_domain
    }

    /// NICs that each GPU has to itself: what is sent between servers is split over them.
    pub fn nics_per_gpu(&self) -> u32 {
        (self.rails / self.per_domain.max(1)).max(1)
    }

    /// GPUs that share a NIC.
    pub fn gpus_per_nic(&self) -> f64 {
        f64::from(self.per_domain) / f64::from(self.rails.min(self.per_domain))
    }

    /// Whether rings between servers run as paths through them and leave by the NIC of their last
    /// GPU.
    pub fn has_paths(&self) -> bool {
        let even = self.per_domain.is_multiple_of(2) && self.is_uniform();
        let own_nics = self.rails.is_multiple_of(self.per_domain.max(1));
        self.scale_up != ScaleUp::Absent && 1 < self.domains && even && own_nics
    }

    /// Whether these paths have links of a mesh of their own.
    pub fn has_mesh_paths(&self) -> bool {
        self.scale_up == ScaleUp::Mesh && self.has_paths()
    }

    /// How many cycles inside a domain share no link.
    pub fn distinct_cycles(&self) -> u32 {
        match self.scale_up {
            ScaleUp::Mesh => mesh_cycles(self.per_domain),
            ScaleUp::Absent | ScaleUp::Switched => 1,
        }
    }

    /// How many rings share no link inside a domain.
    pub fn distinct_rings(&self) -> u32 {
        if self.has_mesh_paths() { self.per_domain } else { self.distinct_cycles() }
    }
}

/// Ranks `first..end` of [`Communicator::members`], and NICs likewise.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Domain {
    members: std::ops::Range<u32>,
    rails: std::ops::Range<u32>,
}

/// The ranks of a collective and where they sit.
#[derive(Clone, Debug)]
pub struct Communicator {
    gpus: Vec<NodeId>,
    domains: Vec<Domain>,
    /// Ranks, domain after domain.
    members: Vec<u32>,
    /// By rank.
    domain_of: Vec<u32>,
    /// NICs, domain after domain.
    rails: Vec<NodeId>,
    /// The numbers of those rails that every domain is on, where domains are on different ones.
    common: Vec<usize>,
    shape: Shape,
}

/// One hop of a ring: over a NIC or over the scale-up network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hop {
    /// Where it begins: a GPU or a NIC.
    pub from: NodeId,
    /// Where it ends.
    pub to: NodeId,
    /// The rank whose message it is.
    pub rank: u32,
    /// Whether the next rank has the data after it; otherwise the following hop goes on (PXN).
    pub arrives: bool,
}

impl Communicator {
    /// Ranks 0, 1, 2 … on these GPUs.
    pub fn new(fabric: &Fabric, gpus: &[NodeId]) -> Self {
        assert!(!gpus.is_empty(), "a communicator has a rank");
        let mut scale_up = ScaleUp::Absent;
        let mut keyed: Vec<(u32, u32)> = Vec::with_capacity(gpus.len());
        for (rank, &gpu) in gpus.iter().enumerate() {
            let (kind, key) = domain_key(fabric, gpu);
            if kind != ScaleUp::Absent {
                scale_up = kind;
            }
            keyed.push((key, rank as u32));
        }
        keyed.sort_unstable();
        let mut groups: Vec<&[(u32, u32)]> = keyed.chunk_by(|a, b| a.0 == b.0).collect();
        groups.sort_unstable_by_key(|group| group[0].1);
        let mut communicator = Self {
            gpus: gpus.to_vec(),
            domains: Vec::with_capacity(groups.len()),
            members: Vec::with_capacity(gpus.len()),
            domain_of: vec![0; gpus.len()],
            rails: Vec::new(),
            common: Vec::new(),
            shape: Shape {
                ranks: gpus.len() as u32,
                domains: groups.len() as u32,
                per_domain: 0,
                smallest: u32::MAX,
                rails: u32::MAX,
                scale_up,
                scale_up_rate: None,
                mesh_link_rate: None,
                nic_rate: None,
            },
        };
        for group in groups {
            communicator.add_domain(fabric, group);
        }
        communicator.find_common_rails(fabric);
        communicator
    }

    /// Where a server is used in part, or servers by different GPUs, rings and trees stay on the
    /// rails that all of them are on: NCCL's search connects NICs of the same rail, and on some
    /// fabrics others do not meet.
    fn find_common_rails(&mut self, fabric: &Fabric) {
        let numbers = |domain: usize| -> Vec<usize> {
            self.rails(domain).iter().map(|&nic| fabric.rail_of(nic)).collect()
        };
        let first = numbers(0);
        let others = 1..self.domains();
        if others.clone().all(|domain| numbers(domain) == first) {
            return;
        }
        let mut common = first;
        for domain in others {
            let own = numbers(domain);
            common.retain(|rail| own.contains(rail));
        }
        common.dedup();
        if !common.is_empty() {
            self.shape.rails = self.shape.rails.min(common.len() as u32);
        }
        self.common = common;
    }

    fn add_domain(&mut self, fabric: &Fabric, group: &[(u32, u32)]) {
        let first = self.members.len() as u32;
        let first_rail = self.rails.len();
        for &(_, rank) in group {
            self.members.push(rank);
            self.domain_of[rank as usize] = self.domains.len() as u32;
            let gpu = self.gpus[rank as usize];
            self.rails.extend(fabric.nics_of(gpu));
            let (all, one) = scale_up_rates(fabric, gpu);
            self.shape.scale_up_rate = slower(self.shape.scale_up_rate, all);
            self.shape.mesh_link_rate = slower(self.shape.mesh_link_rate, one);
        }
        self.rails[first_rail..].sort_unstable();
        let mut at = first_rail;
        for next in first_rail..self.rails.len() {
            if next == first_rail || self.rails[next] != self.rails[next - 1] {
                self.rails[at] = self.rails[next];
                at += 1;
            }
        }
        self.rails.truncate(at);
        for &nic in &self.rails[first_rail..] {
            self.shape.nic_rate = slower(self.shape.nic_rate, nic_rate(fabric, nic));
        }
        let end = self.members.len() as u32;
        let rails = first_rail as u32..at as u32;
        self.shape.per_domain = self.shape.per_domain.max(end - first);
        self.shape.smallest = self.shape.smallest.min(end - first);
        self.shape.rails = self.shape.rails.min(rails.end - rails.start);
        self.domains.push(Domain { members: first..end, rails });
    }

    /// What matters for planning.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.gpus.len()
    }

    /// How many scale-up domains they lie in.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// The GPU of a rank.
    pub fn gpu(&self, rank: u32) -> NodeId {
        self.gpus[rank as usize]
    }

    /// The domain of a rank.
    pub fn domain_of(&self, rank: u32) -> usize {
        self.domain_of[rank as usize] as usize
    }

    /// The ranks of a domain, in order.
    pub fn members(&self, domain: usize) -> &[u32] {
        let Domain { members, .. } = &self.domains[domain];
        &self.members[members.start as usize..members.end as usize]
    }

    /// The NICs of a domain, in order.
    pub fn rails(&self, domain: usize) -> &[NodeId] {
        let Domain { rails, .. } = &self.domains[domain];
        &self.rails[rails.start as usize..rails.end as usize]
    }

    /// One of the NICs near a rank.
    pub fn nic(&self, fabric: &Fabric, rank: u32, number: u32) -> NodeId {
        let count = fabric.nics_of(self.gpu(rank)).count().max(1);
        let chosen = fabric.nics_of(self.gpu(rank)).nth(number as usize % count);
        chosen.unwrap_or_else(|| fabric.nic_of(self.gpu(rank)))
    }

    /// A rank's place among the ranks of its domain.
    pub fn local(&self, rank: u32) -> usize {
        let members = self.members(self.domain_of(rank));
        members.binary_search(&rank).expect("a rank lies in its domain")
    }

    /// The NIC through which a channel enters a domain, and the rank next to it.
    pub fn entry(&self, fabric: &Fabric, domain: usize, channel: u32) -> (u32, NodeId) {
        let rails = self.rails(domain);
        let nic = match self.common.len() {
            0 => rails[channel as usize % rails.len()],
            count => {
                let rail = self.common[channel as usize % count];
                let on_it = rails.iter().copied().find(|&nic| fabric.rail_of(nic) == rail);
                on_it.expect("every domain is on it")
            }
        };
        let members = self.members(domain);
        let near = members.iter().copied().find(|&rank| is_near(fabric, self.gpu(rank), nic));
        (near.expect("a rail is near some rank"), nic)
    }

    /// Writes into `order` the ranks of a domain as a channel's cycle inside visits them.
    pub fn order(&self, fabric: &Fabric, domain: usize, channel: u32, order: &mut Vec<u32>) {
        order.clear();
        let members = self.members(domain);
        let size = members.len();
        let first = match self.domains() {
            1 => 0,
            _ => self.local(self.entry(fabric, domain, channel).0),
        };
        if self.shape.scale_up == ScaleUp::Mesh && 2 < size {
            let cycle = mesh_cycle(size, channel as usize % mesh_cycles(size as u32) as usize);
            let at = cycle.iter().position(|&local| local == first).expect("a cycle visits all");
            order.extend((0..size).map(|step| members[cycle[(at + step) % size]]));
        } else {
            order.extend((0..size).map(|step| members[(first + step) % size]));
        }
    }

    /// Writes into `order` the ranks of a domain on a path from the GPU where a channel enters it
    /// to the opposite one; see the module. Where rings stay on their rails they enter every
    /// second domain where they leave the others.
    fn path_order(
        &self,
        fabric: &Fabric,
        domain: usize,
        channel: u32,
        cross: CrossNic,
        order: &mut Vec<u32>,
    ) {
        order.clear();
        let members = self.members(domain);
        let size = members.len();
        let entry = self.local(self.entry(fabric, domain, channel).0);
        let first = match cross {
            CrossNic::SameRail => entry + domain % 2 * (size / 2),
            CrossNic::Crossing => entry,
        };
        order.extend((0..size).map(|step| members[zigzag(first, step, size)]));
    }

    /// The same as [`Self::ring`] where rings are paths through servers.
    fn ring_of_paths(&self, fabric: &Fabric, channel: u32, cross: CrossNic, hops: &mut Vec<Hop>) {
        let domains = self.domains();
        let (near, entry) = self.entry(fabric, 0, channel);
        // Of the NICs of a GPU, a channel always takes the same one.
        let which = fabric.nics_of(self.gpu(near)).position(|nic| nic == entry).unwrap_or(0);
        let nic = |gpu: NodeId| fabric.nics_of(gpu).nth(which).unwrap_or(fabric.nic_of(gpu));
        let (mut order, mut next) = (Vec::new(), Vec::new());
        self.path_order(fabric, 0, channel, cross, &mut order);
        for domain in 0..domains {
            for pair in order.windows(2) {
                let [from, to] = [pair[0], pair[1]].map(|rank| self.gpu(rank));
                hops.push(Hop { from, to, rank: pair[0], arrives: true });
            }
            let rank = order[order.len() - 1];
            self.path_order(fabric, (domain + 1) % domains, channel, cross, &mut next);
            let (last, enters) = (self.gpu(rank), nic(self.gpu(next[0])));
            let mut leaves = nic(last);
            if !meet(fabric, leaves, enters)
                && let Some(through) = self.on_rail(fabric, rank, enters)
            {
                let to = self.gpu(through);
                hops.push(Hop { from: last, to, rank, arrives: false });
                leaves = nic(to);
            }
            hops.push(Hop { from: leaves, to: enters, rank, arrives: true });
            std::mem::swap(&mut order, &mut next);
        }
    }

    /// Writes into `hops` the hops of a channel's ring, beginning at domain 0's first rank.
    pub fn ring(&self, fabric: &Fabric, channel: u32, cross: CrossNic, hops: &mut Vec<Hop>) {
        hops.clear();
        if self.shape.has_paths() {
            return self.ring_of_paths(fabric, channel, cross, hops);
        }
        let mut order = Vec::new();
        let domains = self.domains();
        for domain in 0..domains {
            self.order(fabric, domain, channel, &mut order);
            let gpu = |at: usize| self.gpu(order[at]);
            let inside = order.len() - usize::from(domains != 1 || order.len() == 1);
            for at in 0..inside {
                let (from, to) = (gpu(at), gpu((at + 1) % order.len()));
                hops.push(Hop { from, to, rank: order[at], arrives: true });
            }
            if 1 < domains {
                let rank = order[order.len() - 1];
                let last = self.gpu(rank);
                let leaves = match cross {
                    CrossNic::SameRail => self.entry(fabric, domain, channel).1,
                    CrossNic::Crossing => fabric.nic_of(last),
                };
                if !is_near(fabric, last, leaves) {
                    hops.push(Hop { from: last, to: gpu(0), rank, arrives: false });
                }
                let (_, enters) = self.entry(fabric, (domain + 1) % domains, channel);
                hops.push(Hop { from: leaves, to: enters, rank, arrives: true });
            }
        }
    }

    /// Writes into `hops` the hops from one rank to another over the network's shortest way.
    ///
    /// Within a domain that is one hop. Between domains it leaves through the sender's own NIC,
    /// or, with `Pxn::Enabled`, over NVLink through the GPU on the receiver's rail.
    pub fn path(&self, fabric: &Fabric, from: u32, to: u32, pxn: Pxn, hops: &mut Vec<Hop>) {
        hops.clear();
        let (sender, receiver) = (self.gpu(from), self.gpu(to));
        if self.domain_of(from) == self.domain_of(to) {
            hops.push(Hop { from: sender, to: receiver, rank: from, arrives: true });
            return;
        }
        let (mut leaves, enters) = (fabric.nic_of(sender), fabric.nic_of(receiver));
        if let Some(landing) = self.landing(fabric, from, to) {
            let [nic, gpu] = [fabric.nic_of(self.gpu(landing)), self.gpu(landing)];
            hops.push(Hop { from: leaves, to: nic, rank: from, arrives: false });
            hops.push(Hop { from: gpu, to: receiver, rank: from, arrives: true });
            return;
        }
        if let (Pxn::Enabled, Some(through)) = (pxn, self.on_rail(fabric, from, enters)) {
            if self.gpu(through) != sender {
                let to = self.gpu(through);
                hops.push(Hop { from: sender, to, rank: from, arrives: false });
            }
            leaves = fabric.nic_of(self.gpu(through));
        }
        hops.push(Hop { from: leaves, to: enters, rank: from, arrives: true });
    }

    /// The rank of the receiver's server through which a message gets there if rails do not meet
    /// and the sender's server is not on the receiver's.
    pub(super) fn landing(&self, fabric: &Fabric, from: u32, to: u32) -> Option<u32> {
        let [leaves, enters] = [from, to].map(|rank| fabric.nic_of(self.gpu(rank)));
        if self.common.is_empty() || self.on_rail(fabric, from, enters).is_some() {
            return None;
        }
        if meet(fabric, leaves, enters) { None } else { self.on_rail(fabric, to, leaves) }
    }

    /// The rank in the domain of `rank` whose NIC is on the same rail as `nic`.
    pub fn on_rail(&self, fabric: &Fabric, rank: u32, nic: NodeId) -> Option<u32> {
        let rail = fabric.rail_of(nic);
        let same = |rank: u32| fabric.rail_of(fabric.nic_of(self.gpu(rank))) == rail;
        if same(rank) {
            return Some(rank);
        }
        self.members(self.domain_of(rank)).iter().copied().find(|&other| same(other))
    }
}

/// Whether messages between servers go over NVLink to the receiver's rail first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    PartialEq,
    serde::Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Pxn {
    /// They do, and those to one receiver are sent together. NCCL's default (`NCCL_PXN_DISABLE`
    /// is 0, `NCCL_P2P_PXN_LEVEL` is 2; NCCL docs env.rst).
    #[default]
    Enabled,
    /// They leave through the sender's own NIC and may cross rails in the fabric.
    Disabled,
}

fn slower(a: Option<Rate>, b: Option<Rate>) -> Option<Rate> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What tells the domain of a GPU from others: its lowest switch, or its lowest neighbour.
fn domain_key(fabric: &Fabric, gpu: NodeId) -> (ScaleUp, u32) {
    let own = gpu.index() as u32;
    let mut key = (ScaleUp::Absent, own);
    for &link in fabric.ports(gpu) {
        if fabric.class(link).kind != LinkKind::ScaleUp {
            continue;
        }
        let to = fabric.links()[link].to;
        let number = to.index() as u32;
        let switched = fabric.nodes()[to].kind == NodeKind::ScaleUpSwitch;
        key = match (key.0, switched) {
            (ScaleUp::Switched, true) => (ScaleUp::Switched, key.1.min(number)),
            (_, true) => (ScaleUp::Switched, number),
            (ScaleUp::Switched, false) => key,
            (_, false) => (ScaleUp::Mesh, key.1.min(number)),
        };
    }
    key
}

/// All scale-up links of a GPU together, and one of them where they lead to GPUs.
fn scale_up_rates(fabric: &Fabric, gpu: NodeId) -> (Option<Rate>, Option<Rate>) {
    let (mut all, mut one) = (0_u64, None);
    for &link in fabric.ports(gpu) {
        let class = fabric.class(link);
        if class.kind == LinkKind::ScaleUp {
            all += class.rate.as_bps();
            if fabric.nodes()[fabric.links()[link].to].kind == NodeKind::Gpu {
                one = slower(one, Some(class.rate));
            }
        }
    }
    ((0 < all).then(|| Rate::from_bps(all)), one)
}

fn nic_rate(fabric: &Fabric, nic: NodeId) -> Option<Rate> {
    let ports = fabric.ports(nic).iter().map(|&link| fabric.class(link));
    let all: u64 = ports.filter(|c| c.kind == LinkKind::ScaleOut).map(|c| c.rate.as_bps()).sum();
    (0 < all).then(|| Rate::from_bps(all))
}

/// Whether the network leads from one NIC to another.
fn meet(fabric: &Fabric, from: NodeId, to: NodeId) -> bool {
    if fabric.rail_of(from) == fabric.rail_of(to) {
        return true;
    }
    let mut hops = Vec::new();
    fabric::Routes::of(fabric).next_hops(fabric, from, to, &mut hops);
    !hops.is_empty()
}

fn is_near(fabric: &Fabric, gpu: NodeId, nic: NodeId) -> bool {
    fabric.nics_of(gpu).any(|near| near == nic)
}

/// Arc-disjoint directed Hamiltonian cycles of the complete mesh of eight.
const EIGHT: [[usize; 8]; 7] = [
    [0, 1, 2, 3, 4, 5, 6, 7],
    [0, 2, 1, 3, 5, 4, 7, 6],
    [0, 3, 1, 4, 6, 2, 7, 5],
    [0, 4, 1, 5, 7, 2, 6, 3],
    [0, 5, 3, 6, 1, 7, 4, 2],
    [0, 6, 5, 2, 4, 3, 7, 1],
    [0, 7, 3, 2, 5, 1, 6, 4],
];

/// Step `step` of the path from `first` through a mesh of even size: one up, two down, three up, …
fn zigzag(first: usize, step: usize, size: usize) -> usize {
    let offset = step.div_ceil(2);
    (if step % 2 == 1 { first + offset } else { first + size - offset }) % size
}

/// How many arc-disjoint directed Hamiltonian cycles [`mesh_cycle`] gives.
fn mesh_cycles(size: u32) -> u32 {
    match size {
        0..=2 => 1,
        8 => 7,
        odd if odd % 2 == 1 => odd - 1,
        even => even - 2,
    }
}

/// One of those cycles: Walecki's zigzag through all but one, turned by half its number, forwards
/// or backwards; the one left out is visited last.
fn mesh_cycle(size: usize, number: usize) -> Vec<usize> {
    if size <= 2 {
        return (0..size).collect();
    }
    if size == 8 {
        return EIGHT[number].to_vec();
    }
    let (turn, backwards) = (number / 2, number % 2 == 1);
    // On an odd mesh the zigzag runs over the even number of others, on an even mesh over the
    // odd number of others.
    let circle = size - 1;
    let zigzag = (0..circle).map(|step| match step % 2 {
        0 => (turn + step / 2) % circle,
        _ => (turn + circle - step.div_ceil(2)) % circle,
    });
    let mut cycle: Vec<usize> = zigzag.collect();
    cycle.push(size - 1);
    if backwards {
        cycle.reverse();
    }
    cycle
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property. From every GPU of a mesh of even size a path leads through all the others, no two
    /// of them use the same arc, and each ends opposite of where it began.
    #[test]
    fn the_paths_of_a_mesh_share_no_link() {
        for size in [2, 4, 6, 8, 10, 16] {
            let mut arcs = std::collections::BTreeSet::new();
            for first in 0..size {
                let path: Vec<usize> = (0..size).map(|step| zigzag(first, step, size)).collect();
                assert_eq!((path[0], path[size - 1]), (first, (first + size / 2) % size));
                let visited: std::collections::BTreeSet<_> = path.iter().collect();
                assert_eq!(visited.len(), size);
                for arc in path.windows(2) {
                    assert!(arcs.insert((arc[0], arc[1])), "size {size}: {arc:?} twice");
                }
            }
        }
    }

    /// Property. Every cycle visits all, and no two of them use the same arc.
    #[test]
    fn the_cycles_of_a_mesh_share_no_link() {
        for size in 2..=17 {
            let mut arcs = std::collections::BTreeSet::new();
            for number in 0..mesh_cycles(size) {
                let cycle = mesh_cycle(size as usize, number as usize);
                let mut visited = cycle.clone();
                visited.sort_unstable();
                assert_eq!(visited, (0..size as usize).collect::<Vec<_>>());
                for at in 0..cycle.len() {
                    let arc = (cycle[at], cycle[(at + 1) % cycle.len()]);
                    assert!(arcs.insert(arc), "size {size}: {arc:?} twice");
                }
            }
        }
    }
}
