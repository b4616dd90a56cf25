//! CollNetChain: reduction in the scale-out switches, with the GPUs of a server in a chain.
//!
//! Beside [`sharp`](super::sharp), which is CollNetDirect (or NVLS) inside a server. A channel
//! belongs to one rail. In every server its data is added up along a chain of all GPUs that ends
//! next to the rail's NIC, goes up the aggregation tree of switches once, comes down once, and is
//! handed on down the chain. So a NIC sends and receives 1/m of the data, and a GPU sends all of it
//! up and all of it down but for the channels in which it is the chain's first or last: as much as
//! in a ring of its server alone, however many servers there are.
//!
//! The pipeline is deep: 2m hand-overs of a chunk, half of a channel's threads up and half down, so
//! a chunk passes at half a channel's rate. NCCL takes it where the switches reduce and neither
//! CollNetDirect nor NVLS can run, or by its name.
//!
//! Source: NCCL `src/device/all_reduce.h` (`COLLNET_CHAIN`), `src/enqueue.cc` (chunks),
//! `src/graph/{connect,tuning}.cc`. Departure: as in [`sharp`](super::sharp) for what switches do.

use fabric::NodeId;
use units::Bytes;

use super::communicator::ScaleUp;
use super::ring::{chunks, loops};
use super::sharp::{self, Buffers, Edge, TreeEdges};
use super::writer::{Detail, Flow, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::{Family, Offer, Plan, Plugin, Protocol, Usage, constants};
use crate::transfers::{ConnectionId, OpId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct CollNetChain;

impl Algorithm for CollNetChain {
    fn name(&self) -> &'static str {
        "collnet-chain"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let shape = ask.shape();
        // No plug-in but NCCL's own has the calls.
        let enabled = ask.settings.sharp == Usage::Enabled
            && ask.settings.plugin() == Plugin::Internal
            && 1 < shape.domains;
        let serves = enabled && shape.is_uniform() && ask.collective == Collective::AllReduce;
        serves && shape.scale_up != ScaleUp::Mesh && sharp::has_room(ask)
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        if protocol != Protocol::Simple {
            return None;
        }
        // NCCL counts the links inside a server, and half of that for up and down.
        let (settings, shape) = (ask.settings, ask.shape());
        let inside = constants::scale_up_bandwidth(settings, shape);
        let bandwidth = 0.5 * inside.or_else(|| constants::rails_bandwidth(settings, shape))?;
        Some(Offer { bandwidth, latency_us: latency_us(ask, settings.declared_us(protocol)) })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        // NCCL src/graph/connect.cc: half as many more, unless every GPU is alone in its server.
        let channels = constants::ring_channels(ask.settings, ask.communicator);
        let more = if ask.shape().per_domain == 1 { 0 } else { channels / 2 };
        (channels + more).min(64)
    }

    fn chunk(&self, ask: &Ask<'_>, protocol: Protocol, channels: u32) -> Bytes {
        // NCCL src/enqueue.cc: a slot of the buffer, shorter until there are several for each GPU.
        let slot = constants::buffer(ask.settings, protocol).get() / 8;
        let mut chunk = slot.min(256 << 10);
        let (each, depth) = (ask.bytes.get() / u64::from(channels), depth(ask));
        for (times, least) in [(64, 128 << 10), (8, 64 << 10), (1, 32 << 10)] {
            while each / chunk < depth * times && least < chunk {
                chunk /= 2;
            }
        }
        Bytes::new(chunk)
    }

    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase> {
        let (shape, settings) = (ask.shape(), ask.settings);
        let each = ask.bytes.as_f64() / f64::from(plan.channels);
        let links = constants::scale_up_bandwidth(settings, shape).filter(|_| 1 < shape.per_domain);
        // Each GPU ends the chain of so many channels at least, and passes the others' on.
        let passed_on = plan.channels - plan.channels / shape.per_domain.max(1);
        let fill = 2.0 * depth(ask) as f64 * plan.chunk.as_f64().min(each);
        vec![Phase {
            scale_up: 2.0 * each * f64::from(passed_on),
            nic: ask.bytes.as_f64() / f64::from(shape.rails.min(plan.channels)),
            latency_s: 1e-6 * latency_us(ask, settings.crossing_us(Protocol::Simple))
                + sharp::tree_ways_s(ask, Family::CollNetChain),
            messages: chunks(each as u64, settings.aggregation.chunk.get()),
            slots: f64::from(settings.aggregation.buffers.max(1)),
            answer: 0.5,
            drain_s: links.map_or(0.0, |links| fill * f64::from(plan.channels) / (0.5e9 * links)),
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let shape = ask.shape();
        let each = ask.bytes.get().div_ceil(plan.channels.into());
        let chain = 2.0 * f64::from(shape.domains) * f64::from(shape.per_domain - 1);
        let edges = sharp::tree(ask, 0).map_or(0, |tree| tree.len()) as f64;
        let sums = chunks(each, plan.chunk.get().min(ask.settings.aggregation.chunk.get()));
        let inside = (chain + f64::from(shape.domains)) * chunks(each, plan.chunk.get());
        f64::from(plan.channels) * (inside + (2.0 * edges + 1.0) * sums)
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let trees: Vec<Vec<Edge>> = (0..plan.channels).map(|channel| tree(ask, channel)).collect();
        let first = sheet.open("collnet-chain", plan.channels, |opening| {
            let mut order = Vec::new();
            for channel in 0..plan.channels {
                for domain in 0..communicator.domains() {
                    communicator.order(fabric, domain, channel, &mut order);
                    for pair in order.windows(2) {
                        let [near, far]: [NodeId; 2] =
                            [pair[0], pair[1]].map(|rank| communicator.gpu(rank));
                        opening.connect(far, near, channel);
                        opening.connect(near, far, channel);
                    }
                }
                for &Edge { below, above, .. } in &trees[channel as usize] {
                    opening.connect(below, above, channel);
                    opening.connect(above, below, channel);
                }
            }
        });
        let mut at = 0;
        for channel in 0..plan.channels {
            let bytes = part(ask.bytes.get(), plan.channels.into(), channel.into());
            let chain = ChainOnSheet { first: nth(first, at), tree: &trees[channel as usize], ask };
            let (start, count) = (sheet.start, chain.count());
            match sheet.detail {
                Detail::Folded => {
                    sheet.edges.clear();
                    sheet.edges.extend((at..at + count).map(|at| nth(first, at)));
                    let op = sheet.couple(bytes, plan.fill(), &[start]);
                    sheet.end(op);
                }
                Detail::Stepwise => chain.step(plan, bytes, sheet),
            }
            at += count;
        }
    }
}

/// The aggregation tree of the rail of a channel.
fn tree(ask: &Ask<'_>, channel: u32) -> Vec<Edge> {
    let (near, nic) = ask.communicator.entry(ask.fabric, 0, channel);
    let mut nics = ask.fabric.nics_of(ask.communicator.gpu(near));
    let lane = nics.position(|own| own == nic).unwrap_or(0).min(sharp::lanes(ask) - 1);
    let rail = ask.communicator.local(near) * sharp::lanes(ask) + lane;
    sharp::tree(ask, rail).unwrap_or_default()
}

/// GPUs of a chain.
fn depth(ask: &Ask<'_>) -> u64 {
    ask.shape().per_domain.into()
}

/// NCCL `tuning.cc`: up the chain, the network once, down the chain. `beyond` is added to the
/// network's.
fn latency_us(ask: &Ask<'_>, beyond: f64) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let family = Family::CollNetChain;
    let inside = constants::hop_latency_us(settings, shape, family, Protocol::Simple);
    let between = constants::net_latency_us(settings, shape, family, Protocol::Simple);
    2.0 * f64::from(shape.per_domain - 1) * inside + between + beyond
}

/// One channel's connections: the chains of all domains, then its tree.
struct ChainOnSheet<'a> {
    first: ConnectionId,
    tree: &'a [Edge],
    ask: &'a Ask<'a>,
}

impl ChainOnSheet<'_> {
    fn links(&self) -> usize {
        self.ask.shape().per_domain as usize - 1
    }

    fn count(&self) -> usize {
        2 * self.ask.communicator.domains() * self.links() + 2 * self.tree.len()
    }

    /// Chunk by chunk: up the chains, in sums up the tree and down, down the chains.
    fn step(&self, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let aggregation = self.ask.settings.aggregation;
        let (domains, links) = (self.ask.communicator.domains(), self.links());
        let mut flow = Flow::new(self.count(), sheet.start);
        let mut buffers = Buffers::of(&aggregation);
        let tree = TreeEdges { first: self.first, offset: 2 * domains * links, tree: self.tree };
        let edge = |at: usize| [nth(self.first, at)];
        for bytes in loops(bytes, plan.chunk.get().max(1)) {
            let mut collected: Vec<Vec<OpId>> = vec![Vec::new(); domains];
            for (domain, last) in collected.iter_mut().enumerate() {
                for link in (0..links).rev() {
                    let at = 2 * (domain * links + link);
                    *last = vec![flow.send(sheet, at, &edge(at), bytes, last)];
                }
            }
            let mut arrived = vec![Vec::new(); domains];
            for sum in loops(bytes, aggregation.chunk.get().max(1)) {
                tree.aggregate(&mut flow, &mut buffers, sum, &collected, &mut arrived, sheet);
            }
            for (domain, arrived) in arrived.into_iter().enumerate() {
                let mut last = sheet.join(&arrived);
                for link in 0..links {
                    let at = 2 * (domain * links + link) + 1;
                    last = flow.send(sheet, at, &edge(at), bytes, &[last]);
                }
                sheet.end(last);
            }
        }
    }
}
