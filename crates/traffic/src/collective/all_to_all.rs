//! All-to-all as NCCL's grouped sends and receives, with PXN.
//!
//! Every rank sends its part to every other. Inside a domain that is one message over the scale-up
//! network. Between domains, with PXN, a message first goes over NVLink to the GPU on the
//! receiver's rail, which sends what all ranks of its domain have for that receiver as one message
//! from its NIC: traffic never changes rails in the fabric, and a server opens one connection to
//! each receiver instead of one from each of its GPUs. Without PXN each rank's own NIC sends, and
//! traffic crosses rails in the fabric.
//!
//! # What limits it
//!
//! What goes inside the domain and what leaves it move at once, by different warps. A NIC that has
//! one peer sends at its full rate. With several it works through them in rounds that others do not
//! keep pace with: it waits for one receiver that hears two senders while another receiver hears
//! none. What is left of its rate falls with the number of its peers towards
//! [`Settings::all_to_all_share`](crate::nccl::Settings::all_to_all_share), as the throughput of a
//! switch with queues at its inputs does with its ports (Karol, Hluchyj and Morgan, "Input versus
//! output queueing", IEEE Trans. Communications 1987: from 1 towards 2 − √2 = 0.586 where every
//! sender waits for its first packet only; NCCL has several peers under way and loses less).
//!
//! Source: NCCL `src/enqueue.cc` (p2p schedule), `src/init.cc` (chunks), NVIDIA's description of
//! PXN. Departure: no limit of peers at a time; folded, a message on NVLink does not wait for
//! others; the proxy's posts are hidden behind what is under way, as 46 to 48.6 · 10⁹ bytes per
//! second of a 400 Gb/s NIC show (a post for each 128 KiB, one after the other, would allow 43.7).

use std::collections::BTreeMap;

use fabric::NodeId;
use units::Bytes;

use super::communicator::{Pxn, ScaleUp};
use super::ring::{chunks, loops};
use super::writer::{Detail, Flow, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::route::{Ways, beyond_constants_s};
use crate::nccl::{Family, Offer, Plan, Protocol, constants};
use crate::transfers::{ConnectionId, OpId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct AllToAll;

impl Algorithm for AllToAll {
    fn name(&self) -> &'static str {
        "pairwise"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        ask.collective == Collective::AllToAll
    }

    fn offer(&self, _: &Ask<'_>, _: Protocol) -> Option<Offer> {
        None // NCCL has no table for sends: this is the only way.
    }

    fn channels(&self, _: &Ask<'_>) -> u32 {
        1
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        ask.settings.p2p_net_chunk
    }

    fn phases(&self, ask: &Ask<'_>, _: &Plan) -> Vec<Phase> {
        let shape = ask.shape();
        // The rank that gets or sends most is the last to end.
        let bytes = ask.bytes.as_f64() * ask.hottest();
        let (ranks, members) = (f64::from(shape.ranks), f64::from(shape.per_domain));
        let own = bytes * (members - 1.0) / ranks;
        let each = bytes / ranks;
        let Busiest { handed, nic } = Busiest::of(ask);
        let scale_up = own + each * handed;
        vec![Phase {
            scale_up,
            mesh_link: match shape.scale_up {
                ScaleUp::Mesh if 1.0 < members => scale_up / (members - 1.0),
                _ => 0.0,
            },
            nic: each * nic / f64::from(shape.nics_per_gpu()),
            net_efficiency: net_share(ask),
            latency_s: 1e-6 * latency_us(ask) + ways_s(ask),
            first_message: match ask.settings.pxn {
                Pxn::Enabled => bytes * members / ranks,
                Pxn::Disabled => bytes / ranks,
            },
            new_connections: 1.0,
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let (shape, settings) = (ask.shape(), ask.settings);
        let (ranks, members) = (f64::from(shape.ranks), f64::from(shape.per_domain));
        let each = ask.bytes.get() / u64::from(shape.ranks);
        let inside = (members - 1.0) * chunks(each, settings.p2p_scale_up_chunk.get());
        let hops = match settings.pxn {
            Pxn::Enabled => 2.0 - 1.0 / members,
            Pxn::Disabled => 1.0,
        };
        ranks * (inside + (ranks - members) * hops * chunks(each, plan.chunk.get()))
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        let pairs = Pairs::of(ask);
        let first = sheet.open("pairwise", 1, |opening| pairs.open(ask, opening));
        match sheet.detail {
            Detail::Folded => pairs.fold(ask, first, sheet),
            Detail::Stepwise => pairs.step(ask, plan, first, sheet),
        }
    }
}

pub(super) fn latency_us(ask: &Ask<'_>) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    let base = constants::base_latency_us(settings, Family::Ring, Protocol::Simple);
    match shape.domains {
        1 => base + constants::hop_latency_us(settings, shape, Family::Ring, Protocol::Simple),
        _ => base + constants::net_latency_us(settings, shape, Family::Ring, Protocol::Simple),
    }
}

/// What is left of a NIC's rate for this number of servers: all with one other, and less with each
/// more.
pub(super) fn net_share(ask: &Ask<'_>) -> f64 {
    let peers = f64::from(ask.shape().domains.saturating_sub(1).max(1));
    let least = ask.settings.all_to_all_share;
    least + (1.0 - least) / peers
}

/// What the busiest of each kind has to do, in parts that one rank sends to one other.
struct Busiest {
    /// A GPU hands on to others of its server.
    handed: f64,
    /// A NIC sends or receives.
    nic: f64,
}

impl Busiest {
    /// Servers may be used in part: each is looked at, in one pass over the ranks.
    fn of(ask: &Ask<'_>) -> Self {
        let Ask { fabric, communicator, settings, .. } = *ask;
        let nic_of = |rank: u32| fabric.nic_of(communicator.gpu(rank));
        let rail_of = |rank: u32| fabric.rail_of(nic_of(rank));
        let count = communicator.ranks();
        let mut on_rail: BTreeMap<usize, usize> = BTreeMap::new();
        for rank in 0..count as u32 {
            *on_rail.entry(rail_of(rank)).or_default() += 1;
        }
        let mut busiest = Self { handed: 0.0, nic: 0.0 };
        for domain in 0..communicator.domains() {
            let members = communicator.members(domain);
            let away = count - members.len();
            // By NIC: the ranks next to it, and what it sends.
            let mut nics: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
            let mut rails: BTreeMap<usize, usize> = BTreeMap::new();
            for &rank in members {
                nics.entry(nic_of(rank)).or_default().0 += 1;
                *rails.entry(rail_of(rank)).or_default() += 1;
            }
            let mut through = 0;
            if settings.pxn == Pxn::Enabled {
                through = rails.iter().map(|(rail, own)| on_rail[rail] - own).sum();
                // The NICs of a rail share its receivers by the ranks next to them.
                for (nic, (near, sent)) in &mut nics {
                    let rail = fabric.rail_of(*nic);
                    let own = rails[&rail];
                    let receivers = on_rail[&rail] - own;
                    *sent += (members.len() * receivers * *near).div_ceil(own);
                }
                let handed = through * (members.len() - 1) / members.len();
                busiest.handed = busiest.handed.max(handed as f64);
            }
            for &(near, sent) in nics.values() {
                // What no rank of this server has the rail for leaves by each one's own NIC.
                let sent = sent + near * (away - through);
                let most = sent.max(near * away);
                busiest.nic = busiest.nic.max(most as f64);
            }
        }
        busiest
    }
}

/// What the way between servers adds: all messages cross it at once.
pub(super) fn ways_s(ask: &Ask<'_>) -> f64 {
    let (shape, settings) = (ask.shape(), ask.settings);
    if shape.domains == 1 {
        return 0.0;
    }
    let constant = constants::net_latency_us(settings, shape, Family::Ring, Protocol::Simple);
    beyond_constants_s(Ways::of(ask).farthest_s(), 1.0, constant)
}

/// The messages between domains: from a domain to a receiver.
struct Away {
    domain: u32,
    to: u32,
    /// The rank on the receiver's rail through which all go; without it each goes by itself.
    through: Option<u32>,
}

/// Connections in the order in which they are opened: inside domains from each rank to each other
/// one, twice (its own messages, those that it hands on); then between domains.
pub(super) struct Pairs {
    away: Vec<Away>,
    /// By rank: where its connections inside its domain begin.
    inside: Vec<usize>,
    first_away: usize,
}

impl Pairs {
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        let Ask { fabric, communicator, settings, .. } = *ask;
        let mut inside = Vec::with_capacity(communicator.ranks());
        let mut count = 0;
        for rank in 0..communicator.ranks() as u32 {
            inside.push(count);
            count += 2 * communicator.members(communicator.domain_of(rank)).len();
        }
        let mut away = Vec::new();
        for to in 0..communicator.ranks() as u32 {
            let nic = fabric.nic_of(communicator.gpu(to));
            for domain in (0..communicator.domains()).filter(|&d| d != communicator.domain_of(to)) {
                let through = match settings.pxn {
                    Pxn::Enabled => {
                        // The GPU with the receiver's place in its domain, if it has its rail: in
                        // a domain of several servers each NIC of a rail takes its share.
                        let members = communicator.members(domain);
                        let some = members.get(communicator.local(to)).unwrap_or(&members[0]);
                        communicator.on_rail(fabric, *some, nic)
                    }
                    Pxn::Disabled => None,
                };
                away.push(Away { domain: domain as u32, to, through });
            }
        }
        Self { away, inside, first_away: count }
    }

    pub(super) fn open(&self, ask: &Ask<'_>, opening: &mut super::writer::Opening<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        for rank in 0..communicator.ranks() as u32 {
            for &other in communicator.members(communicator.domain_of(rank)) {
                let [from, to] = [rank, other].map(|rank| communicator.gpu(rank));
                opening.connect(from, to, 0);
                opening.connect(from, to, 1);
            }
        }
        let mut connect = |from: u32, to: u32| {
            for lane in 0..ask.shape().nics_per_gpu() {
                let [from, to] = [from, to].map(|rank| communicator.nic(fabric, rank, lane));
                opening.connect(from, to, lane);
            }
        };
        for &Away { domain, to, through } in &self.away {
            match through {
                Some(through) => connect(through, to),
                None => {
                    for &from in communicator.members(domain as usize) {
                        connect(from, communicator.landing(fabric, from, to).unwrap_or(to));
                    }
                }
            }
        }
    }

    /// The connection inside a domain: of a rank's own messages (0) or of those handed on (1).
    fn inside(&self, ask: &Ask<'_>, from: u32, to: u32, which: usize) -> usize {
        self.inside[from as usize] + 2 * ask.communicator.local(to) + which
    }

    /// Calls for each message between domains: the first of its connections, one for each NIC of a
    /// GPU, from whom, to whom, through whom.
    fn for_each_away<'a>(
        &'a self,
        ask: &Ask<'a>,
        mut then: impl FnMut(usize, &'a Away, &'a [u32]),
    ) {
        let mut at = self.first_away;
        let lanes = ask.shape().nics_per_gpu() as usize;
        for away in &self.away {
            let senders = ask.communicator.members(away.domain as usize);
            let together = if away.through.is_some() { senders.len() } else { 1 };
            for senders in senders.chunks(together) {
                then(at, away, senders);
                at += lanes;
            }
        }
    }

    /// Where the message of a lone sender lands if not at its receiver, and who sends it.
    fn landing(&self, ask: &Ask<'_>, away: &Away, senders: &[u32]) -> Option<(u32, u32)> {
        let (None, [from]) = (away.through, senders) else { return None };
        Some((ask.communicator.landing(ask.fabric, *from, away.to)?, *from))
    }

    fn fold(&self, ask: &Ask<'_>, first: ConnectionId, sheet: &mut Sheet<'_>) {
        let communicator = ask.communicator;
        // By connection: what is sent over it, by its own rank or handed on.
        let mut sends: Vec<(usize, u64)> = Vec::new();
        for from in 0..communicator.ranks() as u32 {
            let members = communicator.members(communicator.domain_of(from));
            for &to in members.iter().filter(|&&to| to != from) {
                sends.push((self.inside(ask, from, to, 0), ask.bytes_between(from, to)));
            }
        }
        let mut handed = vec![0_u64; self.first_away];
        let lanes = u64::from(ask.shape().nics_per_gpu());
        self.for_each_away(ask, |at, away, senders| {
            let bytes = |&from: &u32| ask.bytes_between(from, away.to);
            let whole = senders.iter().map(bytes).sum();
            let by_lane = (0..lanes).map(|lane| part(whole, lanes, lane));
            sends.extend(by_lane.enumerate().map(|(lane, bytes)| (at + lane, bytes)));
            if let Some((landing, from)) = self.landing(ask, away, senders) {
                handed[self.inside(ask, landing, away.to, 1)] += bytes(&from);
            }
            if let Some(through) = away.through {
                for &from in senders.iter().filter(|&&from| from != through) {
                    handed[self.inside(ask, from, through, 1)] += bytes(&from);
                }
            }
        });
        sends.extend(handed.into_iter().enumerate());
        let start = sheet.start;
        for (at, bytes) in sends.into_iter().filter(|(_, bytes)| 0 < *bytes) {
            let op = sheet.send(nth(first, at), bytes, &[start]);
            sheet.end(op);
        }
    }

    fn step(&self, ask: &Ask<'_>, plan: &Plan, first: ConnectionId, sheet: &mut Sheet<'_>) {
        let communicator = ask.communicator;
        let mut last = self.first_away;
        let lanes = ask.shape().nics_per_gpu() as usize;
        self.for_each_away(ask, |at, _, _| last = at + lanes);
        let mut flow = Flow::of_sends(last, sheet.start);
        let mut ends: Vec<OpId> = Vec::new();
        // In rounds, as ranks work through their peers: from each to the one so many places on.
        for shift in 1..ask.shape().per_domain as usize {
            for from in 0..communicator.ranks() as u32 {
                let members = communicator.members(communicator.domain_of(from));
                let to = members[(communicator.local(from) + shift) % members.len()];
                let bytes = ask.bytes_between(from, to);
                if members.len() <= shift || bytes == 0 {
                    continue;
                }
                let at = self.inside(ask, from, to, 0);
                for bytes in loops(bytes, ask.settings.p2p_scale_up_chunk.get()) {
                    ends.push(flow.send(sheet, at, &[nth(first, at)], bytes, &[]));
                }
            }
        }
        let mut rounds: Vec<(usize, usize, &Away, &[u32])> = Vec::new();
        self.for_each_away(ask, |at, away, senders| {
            let domains = communicator.domains();
            let to = communicator.domain_of(away.to);
            rounds.push(((to + domains - away.domain as usize) % domains, at, away, senders));
        });
        rounds.sort_by_key(|(shift, at, _, _)| (*shift, *at));
        for (_, at, away, senders) in rounds {
            let bytes = |from: u32| ask.bytes_between(from, away.to);
            for &from in senders.iter().filter(|&&from| 0 < bytes(from)) {
                for (number, bytes) in loops(bytes(from), plan.chunk.get()).enumerate() {
                    let at = at + number % lanes;
                    let handed = away.through.filter(|&through| through != from).map(|through| {
                        let at = self.inside(ask, from, through, 1);
                        flow.send(sheet, at, &[nth(first, at)], bytes, &[])
                    });
                    let mut op = flow.send(sheet, at, &[nth(first, at)], bytes, handed.as_slice());
                    if let Some((landing, _)) = self.landing(ask, away, &[from]) {
                        let at = self.inside(ask, landing, away.to, 1);
                        op = flow.send(sheet, at, &[nth(first, at)], bytes, &[op]);
                    }
                    ends.push(op);
                }
            }
        }
        ends.into_iter().for_each(|op| sheet.end(op));
    }
}
