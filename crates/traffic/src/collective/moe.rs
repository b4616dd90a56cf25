//! Expert-parallel dispatch and combine as DeepEP's normal kernels do them.
//!
//! A token goes over RDMA once to each server that has one of its experts, to the GPU on the
//! sender's own rail there, which hands it over NVLink to the GPUs whose experts want it; tokens
//! for the sender's own server go over NVLink directly. A combine is the same backwards. With
//! node-limited routing a token leaves for at most `node_limit` servers, however many experts it
//! has, so what a NIC sends is bounded by `node_limit` times one copy of the tokens.
//!
//! Both networks work at once. On two servers NVLink is the slower one, because each GPU forwards
//! every copy for its neighbours; from four servers on the NIC is.
//!
//! Source: DeepEP (README, `csrc/kernels/internode.cu`), DeepSeek-V3 (arXiv 2412.19437) section
//! 3.2.2. Departure: copies are the expected ones of equally likely experts; a GPU or server with
//! so many times the mean load is reached as often as one of so many alike. Hot ones get at most
//! one copy of each token, so skewed loads send fewer in all. Kernels post to the NIC themselves,
//! so no proxy limits them. Their copies by SM reach less of NVLink than NCCL's
//! ([`Settings::deepep_efficiency`](crate::nccl::Settings::deepep_efficiency)).

use units::Bytes;

use super::communicator::ScaleUp;
use super::ring::chunks;
use super::routing::Copies;
use super::writer::{Detail, Flow, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase};
use crate::nccl::{Family, Offer, Plan, Protocol, Settings, constants};
use crate::transfers::{ConnectionId, OpId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Moe;

impl Algorithm for Moe {
    fn name(&self) -> &'static str {
        "moe"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let moe = matches!(ask.collective, Collective::MoeDispatch | Collective::MoeCombine);
        moe && ask.shape().is_uniform()
    }

    fn offer(&self, _: &Ask<'_>, _: Protocol) -> Option<Offer> {
        None // The only way to run these.
    }

    fn channels(&self, _: &Ask<'_>) -> u32 {
        1
    }

    fn chunk(&self, _: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        // Ten channels (20 SMs) of 16 tokens of 7 KiB: DeepEP `deep_ep/buffer.py`, defaults.
        Bytes::from_kib(10 * 16 * 7)
    }

    fn phases(&self, ask: &Ask<'_>, _: &Plan) -> Vec<Phase> {
        let (shape, settings) = (ask.shape(), ask.settings);
        let volumes = Volumes::of(ask);
        let (to_node, to_gpu) = (volumes.most_to_node(), volumes.most_to_gpu());
        let (domains, members) = (f64::from(shape.domains), f64::from(shape.per_domain));
        // One NIC for each GPU, however many there are: NVSHMEM's choice for a process.
        let sharing = shape.gpus_per_nic();
        let scale_up = to_gpu as f64 * (members - 1.0);
        let latency = match shape.domains {
            1 => constants::hop_latency_us(settings, shape, Family::Ring, Protocol::Simple),
            _ => constants::net_latency_us(settings, shape, Family::Ring, Protocol::Simple),
        };
        vec![Phase {
            scale_up,
            mesh_link: if shape.scale_up == ScaleUp::Mesh { to_gpu as f64 } else { 0.0 },
            nic: to_node as f64 * (domains - 1.0) * sharing,
            efficiency: copy_efficiency(settings),
            latency_s: 1e-6 * latency + super::all_to_all::ways_s(ask),
            first_message: to_node as f64,
            new_connections: 1.0,
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let shape = ask.shape();
        let streams = f64::from(shape.ranks) * f64::from(shape.domains);
        let chunks = chunks(Volumes::of(ask).most_to_node(), plan.chunk.get());
        streams * f64::from(shape.per_domain) * chunks
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let (domains, members) = (communicator.domains(), ask.shape().per_domain as usize);
        let gpu = |domain: usize, local: usize| {
            communicator.gpu(communicator.members(domain % domains)[local % members])
        };
        let first = sheet.open("moe", 1, |opening| {
            for domain in 0..domains {
                for local in 0..members {
                    for step in 1..members {
                        opening.connect(gpu(domain, local), gpu(domain, local + step), 0);
                    }
                    for step in 1..domains {
                        let [from, to] =
                            [domain, domain + step].map(|at| fabric.nic_of(gpu(at, local)));
                        opening.connect(from, to, 0);
                    }
                }
            }
        });
        let volumes = Volumes::of(ask);
        match sheet.detail {
            Detail::Folded => {
                let start = sheet.start;
                for rank in 0..domains * members {
                    let own = rank * (members + domains - 2);
                    let (domain, local) = (rank / members, rank % members);
                    for at in 0..members + domains - 2 {
                        let bytes = match at.checked_sub(members - 1) {
                            None => volumes.to_gpu(domain, local, local + at + 1),
                            Some(other) => volumes.to_node(domain, domain + other + 1),
                        };
                        let op = sheet.send(nth(first, own + at), bytes, &[start]);
                        sheet.end(op);
                    }
                }
            }
            Detail::Stepwise => {
                let grid = Grid { first, domains, members };
                match ask.collective {
                    Collective::MoeDispatch => grid.dispatch(&volumes, plan, sheet),
                    _ => grid.combine(&volumes, plan, sheet),
                }
            }
        }
    }
}

/// What DeepEP's copies reach of what NCCL's do.
pub(super) fn copy_efficiency(settings: &Settings) -> f64 {
    settings.deepep_efficiency / settings.scale_up_share()
}

/// How often a place with this load is reached, where one of mean load is this often.
fn reached(mean: f64, load: f64) -> f64 {
    if load == 1.0 { mean } else { 1.0 - (1.0 - mean).powf(load) }
}

/// Bytes between two: the expected copies of one rank's tokens, or of those of a whole rail. Those
/// of a dispatch grow with the receiver's load, those of a combine with the sender's.
struct Volumes {
    bytes: f64,
    copies: Copies,
    is_combine: bool,
    /// By server, and there by GPU: how loaded its experts are, 1 being the mean.
    loads: Vec<Vec<f64>>,
}

impl Volumes {
    fn of(ask: &Ask<'_>) -> Self {
        let (shape, communicator) = (ask.shape(), ask.communicator);
        let mean = ask.weights.iter().sum::<f64>() / f64::from(shape.ranks);
        let load = |rank: &u32| match ask.weights.get(*rank as usize) {
            Some(weight) if 0.0 < mean => weight / mean,
            _ => 1.0,
        };
        let domains = 0..communicator.domains();
        Self {
            bytes: ask.bytes.as_f64(),
            copies: ask.settings.routing.copies(shape.domains, shape.per_domain),
            is_combine: ask.collective == Collective::MoeCombine,
            loads: domains.map(|at| communicator.members(at).iter().map(load).collect()).collect(),
        }
    }

    fn copies_to_node(&self, load: f64) -> u64 {
        (self.bytes * reached(self.copies.to_node, load)).round() as u64
    }

    fn copies_to_gpu(&self, load: f64) -> u64 {
        let own = (self.bytes * reached(self.copies.to_gpu, load)).round() as u64;
        own * self.loads.len() as u64
    }

    fn node_load(&self, domain: usize) -> f64 {
        let gpus = &self.loads[domain % self.loads.len()];
        gpus.iter().sum::<f64>() / gpus.len() as f64
    }

    /// From a GPU to its counterpart in another server.
    fn to_node(&self, from: usize, to: usize) -> u64 {
        self.copies_to_node(self.node_load(if self.is_combine { from } else { to }))
    }

    /// From a GPU to another one of its server: its own tokens and those it received for its rail.
    fn to_gpu(&self, domain: usize, from: usize, to: usize) -> u64 {
        let gpus = &self.loads[domain % self.loads.len()];
        self.copies_to_gpu(gpus[if self.is_combine { from } else { to } % gpus.len()])
    }

    /// What the most loaded server gets from a GPU.
    fn most_to_node(&self) -> u64 {
        let loads = (0..self.loads.len()).map(|domain| self.node_load(domain));
        self.copies_to_node(loads.fold(0.0, f64::max))
    }

    /// What the most loaded GPU gets from another one of its server.
    fn most_to_gpu(&self) -> u64 {
        self.copies_to_gpu(self.loads.iter().flatten().copied().fold(0.0, f64::max))
    }
}

/// Connections by rank: to the others of its server, then to its counterparts.
struct Grid {
    first: ConnectionId,
    domains: usize,
    members: usize,
}

impl Grid {
    fn at(&self, domain: usize, local: usize, offset: usize) -> usize {
        let rank = domain % self.domains * self.members + local % self.members;
        rank * (self.members + self.domains - 2) + offset
    }

    /// Every server's tokens have places of their own in a receiver's buffer.
    fn flow(&self, sheet: &Sheet<'_>) -> Flow {
        let connections = self.domains * self.members * (self.members + self.domains - 2);
        Flow::of_sends(connections * self.domains, sheet.start)
    }

    /// The place of a stream on a connection.
    fn place(&self, connection: usize, step: usize) -> usize {
        connection * self.domains + step
    }

    /// Calls for each chunk of each stream of each server: all servers work at once, chunk by
    /// chunk.
    fn for_each_chunk(
        &self,
        volumes: &Volumes,
        plan: &Plan,
        mut then: impl FnMut(usize, usize, Chunk),
    ) {
        let chunks = volumes.most_to_node().div_ceil(plan.chunk.get()).max(1);
        for number in 0..chunks {
            for step in 0..self.domains {
                let (stream, streams) = (step as u64, self.domains as u64);
                for domain in 0..self.domains {
                    then(domain, step, Chunk { number, chunks, stream, streams });
                }
            }
        }
    }

    /// A chunk of tokens reaches another server, then the GPUs there.
    fn dispatch(&self, volumes: &Volumes, plan: &Plan, sheet: &mut Sheet<'_>) {
        let mut flow = self.flow(sheet);
        self.for_each_chunk(volumes, plan, |domain, step, chunk| {
            let to_node = chunk.to_node(volumes.to_node(domain, domain + step));
            let arrived: Vec<OpId> = match step {
                // Its own tokens are there.
                0 => Vec::new(),
                _ => (0..self.members)
                    .map(|local| {
                        let at = self.at(domain, local, self.members - 1 + step - 1);
                        let (place, hop) = (self.place(at, step), [nth(self.first, at)]);
                        flow.send(sheet, place, &hop, to_node, &[])
                    })
                    .collect(),
            };
            for peer in 0..self.members - 1 {
                for local in 0..self.members {
                    let at = self.at(domain + step, local, peer);
                    let (place, hop) = (self.place(at, step), [nth(self.first, at)]);
                    let bytes = volumes.to_gpu(domain + step, local, local + peer + 1);
                    let (bytes, after) = (chunk.to_gpu(bytes), arrived.get(local).copied());
                    let op = flow.send(sheet, place, &hop, bytes, after.as_slice());
                    sheet.end(op);
                }
            }
            arrived.into_iter().for_each(|op| sheet.end(op));
        });
    }

    /// A chunk of results is collected in a server, then sent to where its tokens came from.
    fn combine(&self, volumes: &Volumes, plan: &Plan, sheet: &mut Sheet<'_>) {
        let mut flow = self.flow(sheet);
        self.for_each_chunk(volumes, plan, |domain, step, chunk| {
            let to_node = chunk.to_node(volumes.to_node(domain, domain + step));
            let mut collected: Vec<Vec<OpId>> = vec![Vec::new(); self.members];
            for peer in 1..self.members {
                for (local, collected) in collected.iter_mut().enumerate() {
                    let at = self.at(domain, local + peer, self.members - peer - 1);
                    let (place, hop) = (self.place(at, step), [nth(self.first, at)]);
                    let bytes = chunk.to_gpu(volumes.to_gpu(domain, local + peer, local));
                    collected.push(flow.send(sheet, place, &hop, bytes, &[]));
                }
            }
            for (local, collected) in collected.into_iter().enumerate() {
                if step != 0 {
                    let at = self.at(domain, local, self.members - 1 + step - 1);
                    let (place, hop) = (self.place(at, step), [nth(self.first, at)]);
                    let op = flow.send(sheet, place, &hop, to_node, &collected);
                    sheet.end(op);
                }
                collected.into_iter().for_each(|op| sheet.end(op));
            }
        });
    }
}

/// One of the chunks of one server's stream.
#[derive(Clone, Copy)]
struct Chunk {
    number: u64,
    chunks: u64,
    stream: u64,
    streams: u64,
}

impl Chunk {
    /// Its part of what a GPU sends another server.
    fn to_node(self, whole: u64) -> u64 {
        super::part(whole, self.chunks, self.number)
    }

    /// Its part of what a GPU sends another one for all servers.
    fn to_gpu(self, whole: u64) -> u64 {
        let stream = super::part(whole, self.streams, self.stream);
        super::part(stream, self.chunks, self.number)
    }
}
