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
use crate::nccl::{Family, Offer, Plan, Protocol, constants};
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
        let between = if shape.domains == 2 { 2.0 * rails } else { rails };
        let heads = f64::from(shape.per_domain);
        let most = heads * constants::nvls_tree_channel_max(settings, shape);
        let bus = nvls::inside_bus_bandwidth(ask)?.min(between).min(most);
        Some(Offer { bandwidth: bus * nvls::ratio(ask), latency_us: latency_us(ask) })
    }

    fn channels(&self, _: &Ask<'_>) -> u32 {
        nvls::CHANNELS
    }

    fn chunk(&self, ask: &Ask<'_>, protocol: Protocol, channels: u32) -> Bytes {
        nvls::Nvls.chunk(ask, protocol, channels)
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
            latency_s: 1e-6 * latency_us(ask)
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
        let trees = (2 * members) as f64;
        let each = ask.bytes.get() / (2 * members as u64);
        trees * connections(domains, members) as f64 * chunks(each, most(plan))
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let (domains, members) = (communicator.domains(), ask.shape().per_domain as usize);
        let first = sheet.open("nvls_tree", 1, |opening| {
            for head in 0..members {
                for (at, half) in HALVES.into_iter().enumerate() {
                    let channel = (2 * head + at) as u32;
                    let nic = |domain: usize| {
                        fabric.nic_of(communicator.gpu(communicator.members(domain)[head]))
                    };
                    for domain in 0..domains {
                        let ranks = communicator.members(domain).iter();
                        let gpus: Vec<NodeId> = ranks.map(|&rank| communicator.gpu(rank)).collect();
                        nvls::open_head(fabric, &gpus, head, channel, opening);
                        if let Some(parent) = tree::parent(domains, domain, half) {
                            opening.connect(nic(domain), nic(parent), channel);
                            opening.connect(nic(parent), nic(domain), channel);
                        }
                    }
                }
            }
        });
        let each = connections(domains, members);
        for head in 0..members {
            let bytes = part(ask.bytes.get(), members as u64, head as u64);
            for (at, half) in HALVES.into_iter().enumerate() {
                let bytes = part(bytes, 2, at as u64);
                let own = nth(first, (2 * head + at) * each);
                let start = sheet.start;
                match sheet.detail {
                    Detail::Folded => {
                        sheet.edges.clear();
                        sheet.edges.extend((0..each).map(|at| nth(own, at)));
                        let op = sheet.couple(bytes, plan.fill(), &[start]);
                        sheet.end(op);
                    }
                    Detail::Stepwise => {
                        HeadTree { first: own, domains, members, half }.step(plan, bytes, sheet);
                    }
                }
            }
        }
    }
}

/// NCCL `tuning.cc`: one pass through the switch, and the way up and down the tree.
fn latency_us(ask: &Ask<'_>) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let inside = constants::hop_latency_us(settings, shape, Family::NvlsTree, Protocol::Simple);
    let between = constants::net_latency_us(settings, shape, Family::NvlsTree, Protocol::Simple);
    inside + 2.0 * f64::from(shape.domains.ilog2()) * between
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

    fn step(&self, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let order = tree::upwards(self.domains, self.half);
        let begins: Vec<usize> = (0..self.domains).map(|at| self.begins(at)).collect();
        let edges = |at: usize| HeadEdges::new(nth(self.first, begins[at]), self.members);
        let to_parent = |at: usize| begins[at] + nvls::per_head(self.members);
        let mut flow = Flow::new(connections(self.domains, self.members), sheet.start);
        for bytes in loops(bytes, most(plan)) {
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
