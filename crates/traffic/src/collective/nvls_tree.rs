//! NVLS tree: reduction in the scale-up switch inside domains, double binary trees between them.
//!
//! Every rank is the head of 1/m of the data. The switch sums it up for the head, the heads of all
//! domains reduce up and broadcast down two binary trees over their own rail, half of the data on
//! each, and the head multicasts the result. Each NIC sends its part once to each neighbour in the
//! trees: twice on average, as a ring would, in a logarithmic number of steps.
//!
//! Source: NCCL `src/graph/connect.cc` (`connectNvls`), `src/graph/tuning.cc`. Departure: one
//! coupled channel for each head and tree; NCCL spreads a head over 16 channels that share links.

use units::Bytes;

use super::nvls::{self, HeadEdges};
use super::ring::{chunks, loops};
use super::tree::{self, Half};
use super::writer::{Detail, Flow, SLICES, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::{Architecture, Cpu, Family, Offer, Plan, Protocol, Version, constants};
use crate::transfers::{ConnectionId, OpId};
use fabric::NodeId;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct NvlsTree;

const HALVES: [Half; 2] = [Half::First, Half::Second];

impl Algorithm for NvlsTree {
    fn name(&self) -> &'static str {
        "nvls_tree"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let shape = ask.shape();
        let splits = 1 < shape.domains && 1 < shape.per_domain && shape.is_uniform();
        ask.collective == Collective::AllReduce && splits && nvls::is_available(ask)
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        if protocol != Protocol::Simple {
            return None;
        }
        let (shape, settings) = (ask.shape(), ask.settings);
        let rails = constants::rails_bandwidth(settings, shape)?;
        let old = settings.version < Version::V2_28;
        let between = match (old, shape.domains) {
            (false, 2) => 2.0 * rails,
            (false, _) | (true, 2) => rails,
            (true, _) => rails / 2.0,
        };
        let heads = f64::from(shape.per_domain);
        let most = heads * constants::nvls_tree_channel_max(settings, shape);
        let bus = nvls::inside_bus_bandwidth(ask)?.min(between).min(most);
        // From 2.29 on, with processors of x86.
        let corrected = settings.architecture == Architecture::Blackwell
            && settings.cpu != Cpu::Arm
            && Version::V2_29 <= settings.version;
        let correction = match corrected {
            true => constants::tree_correction(protocol, ask.bytes),
            false => 1.0,
        };
        Some(Offer {
            bandwidth: bus * nvls::ratio(ask) * correction,
            latency_us: latency_us(ask, settings.declared_us(protocol)),
        })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        constants::nvls_channels(ask.settings, ask.shape())
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, channels: u32) -> Bytes {
        // NCCL src/enqueue.cc: NVLS's own rule makes chunks smaller much earlier.
        let concurrent = u64::from(channels) * nvls::heads(ask.shape());
        let mut chunk = constants::nvls_tree_chunk(ask.settings, ask.shape());
        let rule = [(32, 256 << 10), (16, 128 << 10), (4, 64 << 10), (1, 32 << 10)];
        for (times, smaller) in rule {
            if ask.bytes.get() < times * concurrent * chunk && smaller < chunk {
                chunk = smaller;
            }
        }
        Bytes::new(chunk)
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let shape = ask.shape();
        let members = u64::from(shape.per_domain);
        let heads = f64::from(shape.per_domain);
        let sharing = heads / f64::from(shape.rails);
        let degree = tree::degrees(shape.domains as usize).into_iter().map(|[a, b]| a + b).max();
        let copies = f64::from(degree.unwrap_or(0)) / 2.0;
        let scale_up = nvls::inside_bytes(ask);
        let levels = f64::from(shape.domains.ilog2().max(1));
        vec![Phase {
            scale_up,
            nic: copies * ask.bytes.as_f64() / heads * sharing,
            efficiency: nvls::efficiency(ask),
            latency_s: 1e-6 * latency_us(ask, ask.settings.crossing_us(Protocol::Simple))
                + tree::ways_s(ask, Family::NvlsTree, Protocol::Simple),
            first_message: (ask.bytes.as_f64() / (2.0 * heads)).min(most(plan) as f64),
            new_connections: 1.0,
            messages: chunks(ask.bytes.get() / (2 * members), most(plan)),
            slots: SLICES as f64,
            drain_s: levels * nvls::fill_s(ask, plan, scale_up),
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let (domains, members) = (ask.communicator.domains(), ask.shape().per_domain as usize);
        let trees = (2 * members * lanes(ask)) as f64;
        let each = ask.bytes.get() / (2 * members as u64);
        trees * connections(domains, members) as f64 * chunks(each, most(plan))
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let (domains, members) = (communicator.domains(), ask.shape().per_domain as usize);
        let lanes = lanes(ask);
        let first = sheet.open("nvls_tree", 1, |opening| {
            for head in 0..members {
                for (at, half) in HALVES.into_iter().enumerate() {
                    for lane in 0..lanes {
                        let channel = ((2 * head + at) * lanes + lane) as u32;
                        let nic = |domain: usize| {
                            let gpu = communicator.gpu(communicator.members(domain)[head]);
                            fabric.nics_of(gpu).nth(lane).unwrap_or(fabric.nic_of(gpu))
                        };
                        for domain in 0..domains {
                            let ranks = communicator.members(domain).iter();
                            let gpus: Vec<NodeId> =
                                ranks.map(|&rank| communicator.gpu(rank)).collect();
                            nvls::open_head(fabric, &gpus, head, channel, opening);
                            if let Some(parent) = tree::parent(domains, domain, half) {
                                opening.connect(nic(domain), nic(parent), channel);
                                opening.connect(nic(parent), nic(domain), channel);
                            }
                        }
                    }
                }
            }
        });
        let each = connections(domains, members);
        for head in 0..members {
            let bytes = part(ask.bytes.get(), members as u64, head as u64);
            for tree in 0..2 * lanes {
                let half = HALVES[tree / lanes];
                let bytes = part(bytes, 2 * lanes as u64, tree as u64);
                let own = nth(first, (2 * head * lanes + tree) * each);
                let start = sheet.start;
                match sheet.detail {
                    Detail::Folded => {
                        sheet.edges.clear();
                        sheet.edges.extend((0..each).map(|at| nth(own, at)));
                        let op = sheet.couple(bytes, plan.fill(), &[start]);
                        sheet.end(op);
                    }
                    Detail::Stepwise => {
                        let most = (most(plan) / lanes as u64).max(1);
                        HeadTree { first: own, domains, members, half }.step(most, bytes, sheet);
                    }
                }
            }
        }
    }
}

/// NCCL `tuning.cc`: one pass through the switch, and the way up and down the tree.
/// `beyond` is added to each hand-over between servers.
fn latency_us(ask: &Ask<'_>, beyond: f64) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let inside = constants::hop_latency_us(settings, shape, Family::NvlsTree, Protocol::Simple);
    let between = constants::net_latency_us(settings, shape, Family::NvlsTree, Protocol::Simple);
    inside + 2.0 * f64::from(shape.domains.ilog2()) * (between + beyond)
}

/// NICs of a head, each with a tree of its own.
fn lanes(ask: &Ask<'_>) -> usize {
    (ask.shape().rails / ask.shape().per_domain.max(1)).max(1) as usize
}

/// Of one tree. All domains but the root have two to their parent.
fn connections(domains: usize, members: usize) -> usize {
    domains * nvls::per_head(members) + 2 * (domains - 1)
}

/// What goes up or down a tree at once.
fn most(plan: &Plan) -> u64 {
    plan.chunk.get().max(1) * u64::from(plan.channels) / 2
}

/// One head's tree.
struct HeadTree {
    first: ConnectionId,
    domains: usize,
    members: usize,
    half: Half,
}

impl HeadTree {
    /// Where a domain's connections begin.
    fn begins(&self, domain: usize) -> usize {
        let root = (0..self.domains).find(|&at| self.parent(at).is_none()).unwrap_or(0);
        let roots_before = usize::from(root < domain);
        domain * nvls::per_head(self.members) + 2 * (domain - roots_before)
    }

    fn parent(&self, domain: usize) -> Option<usize> {
        tree::parent(self.domains, domain, self.half)
    }

    fn step(&self, most: u64, bytes: u64, sheet: &mut Sheet<'_>) {
        let order = tree::upwards(self.domains, self.half);
        let begins: Vec<usize> = (0..self.domains).map(|at| self.begins(at)).collect();
        let edges = |at: usize| HeadEdges::new(nth(self.first, begins[at]), self.members);
        let to_parent = |at: usize| begins[at] + nvls::per_head(self.members);
        let mut flow = Flow::new(connections(self.domains, self.members), sheet.start);
        for bytes in loops(bytes, most) {
            let mut arrived: Vec<Vec<OpId>> = vec![Vec::new(); self.domains];
            for &domain in &order {
                let sum = edges(domain).reduce(&mut flow, begins[domain], bytes, &[], sheet);
                arrived[domain].push(sum);
                if let Some(parent) = self.parent(domain) {
                    let at = to_parent(domain);
                    let hop = [nth(self.first, at)];
                    let op = flow.send(sheet, at, &hop, bytes, &arrived[domain]);
                    arrived[parent].push(op);
                }
            }
            for &domain in order.iter().rev() {
                if let Some(parent) = self.parent(domain) {
                    let at = to_parent(domain) + 1;
                    let hop = [nth(self.first, at)];
                    let op = flow.send(sheet, at, &hop, bytes, &arrived[parent]);
                    arrived[domain] = vec![op];
                }
                let after = arrived[domain].clone();
                let ends = edges(domain).multicast(&mut flow, begins[domain], bytes, &after, sheet);
                ends.into_iter().for_each(|op| sheet.end(op));
            }
        }
    }
}
