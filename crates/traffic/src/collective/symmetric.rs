//! Symmetric-memory kernels: all ranks' buffers lie at the same offsets of registered windows, so a
//! kernel reads and writes the others' memory itself.
//!
//! Inside a scale-up domain (NCCL 2.27 and later) there are four kinds. With flags in the data
//! (LL) every rank sends all it has to all others at once: least latency, many bytes. Plain loads
//! and stores move what a direct exchange must. With multicast the switch adds up or copies, as in
//! [`nvls`](super::nvls), without copies in and out of a buffer, so nothing has to fill.
//! Between servers (GIN, NCCL 2.29 and later) an all-gather runs round rings of rails and a
//! reduce-scatter sends sums straight to their ranks on the rail; GPUs post to their NICs
//! themselves, and the switch of each server multicasts or adds up.
//!
//! NCCL has one cost model for all of them, with constants that its authors measured, and takes the
//! kernel with the least time, 2.5 % more counted for each SM that it keeps. The time here is that
//! model's, and at least what the links need.
//!
//! Source: NCCL `src/sym_kernels.cc` (`queryModel_lsa`, `queryModel_gin`, the same constants from
//! 2.27 to 2.30). Departure: NCCL's estimate for the rail ring takes seconds for microseconds and
//! so always wins; here it is its own sum in the right unit.

use fabric::NodeId;
use units::Bytes;

use super::communicator::ScaleUp;
use super::nvls::{self, HeadEdges};
use super::ring::{chunks, loops};
use super::writer::{Detail, Flow, Opening, Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase, part};
use crate::nccl::{Architecture, Family, Offer, Plan, Protocol, Usage, Version, constants};
use crate::transfers::{ConnectionId, OpId};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Symmetric;

/// One kind of kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kernel {
    /// Flags in the data, to all at once.
    Flags,
    /// Loads and stores.
    Direct,
    /// Sums and copies by the switch.
    Multicast,
    /// The same in each server, and rails between them.
    Rails,
}

/// A kernel as NCCL's model sees it.
#[derive(Clone, Copy, Debug)]
struct Choice {
    kernel: Kernel,
    blocks: u32,
    latency_us: f64,
    moving_us: f64,
}

/// `ncclSymkMaxBlocks`.
const MOST_BLOCKS: u32 = 64;

/// GiB a second, in bytes a microsecond.
const GBPS: f64 = (1_u64 << 30) as f64 / 1e6;

/// Chunk of the rails' kernels (`ncclSymkRsGinDefaultChunkBytes`).
const RAIL_CHUNK: f64 = 131_072.0;

impl Algorithm for Symmetric {
    fn name(&self) -> &'static str {
        "symmetric"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        use Collective::{AllGather, AllReduce, ReduceScatter};
        let (shape, settings) = (ask.shape(), ask.settings);
        let recent =
            matches!(settings.architecture, Architecture::Hopper | Architecture::Blackwell);
        let usable = settings.symmetric == Usage::Enabled
            && Version::V2_27 <= settings.version
            && recent
            && shape.scale_up == ScaleUp::Switched
            && 1 < shape.per_domain;
        match (ask.collective, shape.domains) {
            (AllReduce | AllGather | ReduceScatter, 1) => usable,
            (AllGather | ReduceScatter, _) => {
                usable
                    && settings.gin == Usage::Enabled
                    && Version::V2_29 <= settings.version
                    && nvls::is_available(ask)
                    && shape.is_uniform()
                    && shape.rails % shape.per_domain == 0
            }
            _ => false,
        }
    }

    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        if protocol != Protocol::Simple {
            return None;
        }
        let Choice { latency_us, moving_us, .. } = choice(ask);
        Some(Offer { bandwidth: f64::INFINITY, latency_us: latency_us + moving_us })
    }

    fn channels(&self, ask: &Ask<'_>) -> u32 {
        choice(ask).blocks
    }

    fn chunk(&self, _: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        Bytes::new(RAIL_CHUNK as u64)
    }

    fn phases(&self, ask: &Ask<'_>, _: &Plan) -> Vec<Phase> {
        let choice = choice(ask);
        let shape = ask.shape();
        let ranks = f64::from(shape.ranks);
        let others = f64::from(shape.per_domain - 1);
        let scale_up = match choice.kernel {
            Kernel::Flags | Kernel::Direct => others * pair_bytes(ask, choice.kernel) as f64,
            Kernel::Multicast | Kernel::Rails => nvls::inside_bytes(ask),
        };
        let away = f64::from(shape.domains - 1);
        let lanes = f64::from(shape.rails) / f64::from(shape.per_domain);
        vec![Phase {
            scale_up,
            nic: away * ask.bytes.as_f64() / ranks / lanes.max(1.0),
            channels_s: 1e-6 * choice.moving_us,
            latency_s: 1e-6 * choice.latency_us,
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64 {
        let shape = ask.shape();
        let (members, domains) = (f64::from(shape.per_domain), f64::from(shape.domains));
        let rounds = chunks(ask.bytes.get() / u64::from(shape.per_domain), nvls::most(plan));
        let halves = if ask.collective == Collective::AllReduce { 2.0 } else { 1.0 };
        match choice(ask).kernel {
            Kernel::Flags => members * (members - 1.0),
            Kernel::Direct => halves * members * (members - 1.0),
            Kernel::Multicast | Kernel::Rails => {
                let lanes = f64::from(shape.rails.max(1)) / members;
                let rails = domains * distances(ask).len() as f64 * lanes.max(1.0);
                members * (halves * domains * (members + 1.0) + rails) * rounds
            }
        }
    }

    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
        match choice(ask).kernel {
            kernel @ (Kernel::Flags | Kernel::Direct) => write_pairs(ask, plan, kernel, sheet),
            Kernel::Multicast | Kernel::Rails => write_heads(ask, plan, sheet),
        }
    }
}

/// The kernel that NCCL takes.
fn choice(ask: &Ask<'_>) -> Choice {
    if 1 < ask.shape().domains {
        return rails(ask);
    }
    let multicast = nvls::is_available(ask) && 2 < ask.shape().ranks;
    let kernels = [Kernel::Flags, Kernel::Direct, Kernel::Multicast];
    let usable = kernels.into_iter().filter(|kernel| *kernel != Kernel::Multicast || multicast);
    let cost = |choice: &Choice| {
        (choice.latency_us + choice.moving_us) * (1.0 + 0.025 * f64::from(choice.blocks))
    };
    let all = usable.map(|kernel| inside(ask, kernel));
    all.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("loads and stores always work")
}

/// NCCL's model of a kernel inside one domain.
fn inside(ask: &Ask<'_>, kernel: Kernel) -> Choice {
    let ranks = f64::from(ask.shape().ranks);
    let hopper = ask.settings.architecture == Architecture::Hopper;
    let reduces = ask.collective == Collective::AllReduce;
    // NCCL counts one rank's part of what is gathered or scattered.
    let own = ask.bytes.as_f64() / if reduces { 1.0 } else { ranks };
    let (bus, multiplier, most) = match (kernel, reduces) {
        (Kernel::Flags, _) => (9.0 * ranks * own, 1.0, MOST_BLOCKS),
        (Kernel::Direct, true) => (2.0 * own * (ranks - 1.0) / ranks, 1.0, MOST_BLOCKS),
        (_, true) => (own + own / ranks, ranks, multicast_blocks(ask)),
        (Kernel::Direct, false) => ((ranks - 1.0) * own, 1.0, MOST_BLOCKS),
        (_, false) => ((ranks - 1.0) * own, 0.55 * ranks, multicast_blocks(ask)),
    };
    let gathers = ask.collective == Collective::AllGather;
    let latency_us = match (kernel, hopper) {
        (Kernel::Flags, true) => 4.5,
        (_, true) => 7.8,
        (Kernel::Flags, false) if gathers => 8.5,
        (Kernel::Flags, false) => 11.0,
        (_, false) if reduces => 19.5,
        (_, false) => 13.0,
    };
    let block = match (hopper, reduces) {
        (true, true) => 65.0,
        (true, false) => 44.0,
        (false, _) => 55.0,
    };
    let peak = match (hopper, kernel == Kernel::Multicast && reduces) {
        (true, true) => 480.0,
        (true, false) => 320.0,
        (false, true) => 1000.0,
        (false, false) => 600.0,
    };
    let moving = |blocks: u32| {
        let wanted = f64::from(blocks) * block * GBPS * multiplier;
        soft_max_0(bus / soft_min(wanted, peak * GBPS, block * GBPS) - 1.0)
    };
    // The fewest blocks that come near to all of them.
    let all = latency_us + moving(most);
    let near = |blocks: &u32| latency_us + moving(*blocks) <= 1.025 * all;
    let blocks = (1..most).find(near).unwrap_or(most);
    Choice { kernel, blocks, latency_us, moving_us: moving(blocks) }
}

/// NCCL's model of its kernels between servers.
fn rails(ask: &Ask<'_>) -> Choice {
    let (shape, settings) = (ask.shape(), ask.settings);
    let own = ask.bytes.as_f64() / f64::from(shape.ranks);
    let away = f64::from(shape.domains - 1);
    let hopper = settings.architecture == Architecture::Hopper;
    let inside = if hopper { 360e3 } else { 720e3 };
    let nic = constants::rails_bandwidth(settings, shape).unwrap_or(1.0) * 1e3
        / f64::from(shape.per_domain);
    let hop = constants::net_latency_us(settings, shape, Family::Ring, Protocol::Simple);
    let whole = own * f64::from(shape.ranks) / inside;
    let blocks = ((own / RAIL_CHUNK).ceil() as u32).clamp(1, MOST_BLOCKS);
    let chunk = own.min(RAIL_CHUNK * f64::from(blocks));
    // Until the first chunk has been added up or handed out, and has crossed.
    let first = chunk * f64::from(shape.ranks) / inside + chunk * away / nic;
    let (latency_us, moving_us) = match ask.collective {
        Collective::AllGather => (away * hop, whole.max(own * away / nic)),
        _ => {
            let block = if hopper { 4.22e3 } else { 8.44e3 };
            // Stage 0 for each other server, stage 1, and what comes in.
            let reads = away + 1.0 + away;
            let blocks = f64::from(blocks) * block / reads;
            (hop, (own / blocks).max(whole).max(own * away / nic) + first)
        }
    };
    Choice { kernel: Kernel::Rails, blocks, latency_us, moving_us }
}

/// Blocks that NCCL uses at most with multicast.
fn multicast_blocks(ask: &Ask<'_>) -> u32 {
    let all = if ask.settings.architecture == Architecture::Hopper { 16_u32 } else { 32 };
    all.div_ceil(ask.shape().ranks)
}

/// A smooth least of a number and a ceiling.
fn soft_min(number: f64, ceiling: f64, softness: f64) -> f64 {
    let far = (ceiling / softness).exp_m1() * (-number / softness).exp();
    ceiling - softness * far.ln_1p()
}

/// A smooth greatest of a number and nothing.
fn soft_max_0(number: f64) -> f64 {
    if 100.0 <= number { number } else { number.exp().ln_1p() }
}

/// What each rank sends to each other.
fn pair_bytes(ask: &Ask<'_>, kernel: Kernel) -> u64 {
    let (whole, ranks) = (ask.bytes.get(), u64::from(ask.shape().ranks));
    match (ask.collective, kernel) {
        // As many flags as data.
        (Collective::AllReduce, Kernel::Flags) => 2 * whole,
        (_, Kernel::Flags) | (Collective::AllReduce, _) => 2 * whole.div_ceil(ranks),
        _ => whole.div_ceil(ranks),
    }
}

/// Everybody to everybody, once or for each half of an all-reduce.
fn write_pairs(ask: &Ask<'_>, plan: &Plan, kernel: Kernel, sheet: &mut Sheet<'_>) {
    let gpus: Vec<NodeId> = (0..ask.shape().ranks).map(|rank| ask.communicator.gpu(rank)).collect();
    let pairs = gpus.len() * (gpus.len() - 1);
    let first = sheet.open("symmetric", 1, |opening| {
        for (at, &from) in gpus.iter().enumerate() {
            for (other, &to) in gpus.iter().enumerate() {
                if at != other {
                    opening.connect(from, to, 0);
                }
            }
        }
    });
    let (bytes, start) = (pair_bytes(ask, kernel), sheet.start);
    if sheet.detail == Detail::Folded {
        sheet.edges.clear();
        sheet.edges.extend((0..pairs).map(|at| nth(first, at)));
        let op = sheet.couple(bytes, plan.fill(), &[start]);
        sheet.end(op);
        return;
    }
    let twice = ask.collective == Collective::AllReduce && kernel == Kernel::Direct;
    let (mut after, halves) = (start, if twice { 2 } else { 1 });
    for half in 0..halves {
        let bytes = part(bytes, halves, half);
        let sent: Vec<OpId> =
            (0..pairs).map(|at| sheet.send(nth(first, at), bytes, &[after])).collect();
        after = sheet.join(&sent);
    }
    sheet.end(after);
}

/// The connections of one head: its switch in every domain, and of its rail each domain to the
/// next, or to all others where it scatters.
struct HeadOnSheet<'a> {
    first: ConnectionId,
    ask: &'a Ask<'a>,
}

impl HeadOnSheet<'_> {
    fn open(ask: &Ask<'_>, head: usize, opening: &mut Opening<'_>) {
        let Ask { fabric, communicator, .. } = *ask;
        let domains = communicator.domains();
        for domain in 0..domains {
            let ranks = communicator.members(domain).iter();
            let gpus: Vec<NodeId> = ranks.map(|&rank| communicator.gpu(rank)).collect();
            nvls::open_head(fabric, &gpus, head, head as u32, opening);
        }
        let nics =
            |domain: usize| fabric.nics_of(communicator.gpu(communicator.members(domain)[head]));
        for domain in 0..domains {
            for distance in distances(ask) {
                for (from, to) in nics(domain).zip(nics((domain + distance) % domains)) {
                    opening.connect(from, to, head as u32);
                }
            }
        }
    }

    fn lanes(&self) -> usize {
        (self.ask.shape().rails / self.ask.shape().per_domain).max(1) as usize
    }

    fn inside(&self) -> usize {
        self.ask.communicator.domains() * nvls::per_head(self.ask.shape().per_domain as usize)
    }

    fn count(&self) -> usize {
        let rail = self.ask.communicator.domains() * distances(self.ask).len() * self.lanes();
        self.inside() + rail
    }

    fn head_edges(&self, domain: usize) -> (usize, HeadEdges) {
        let members = self.ask.shape().per_domain as usize;
        let begins = domain * nvls::per_head(members);
        (begins, HeadEdges::new(nth(self.first, begins), members))
    }

    /// What one connection of the rail carries of a head's bytes.
    fn rail_bytes(&self, bytes: u64) -> u64 {
        let domains = self.ask.communicator.domains() as u64;
        let rounds = (domains - 1) / distances(self.ask).len().max(1) as u64;
        (bytes * rounds).div_ceil(domains * self.lanes() as u64)
    }

    fn fold(&self, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let (start, domains) = (sheet.start, self.ask.communicator.domains());
        sheet.edges.clear();
        for domain in 0..domains {
            let (_, edges) = self.head_edges(domain);
            sheet.edges.extend(edges.used(self.ask.collective));
        }
        let op = sheet.couple(bytes, plan.fill(), &[start]);
        sheet.end(op);
        if 1 < domains {
            sheet.edges.clear();
            sheet.edges.extend((self.inside()..self.count()).map(|at| nth(self.first, at)));
            let op = sheet.couple(self.rail_bytes(bytes), plan.fill(), &[start]);
            sheet.end(op);
        }
    }

    fn step(&self, plan: &Plan, bytes: u64, sheet: &mut Sheet<'_>) {
        let domains = self.ask.communicator.domains();
        let mut flow = Flow::new(self.count(), sheet.start);
        for bytes in loops(bytes, nvls::most(plan)) {
            let mut sums: Vec<OpId> = Vec::new();
            if self.ask.collective != Collective::AllGather {
                for domain in 0..domains {
                    let (begins, edges) = self.head_edges(domain);
                    sums.push(edges.reduce(&mut flow, begins, bytes, &[], sheet));
                }
            }
            let rail = self.rail_bytes(bytes);
            let mut ready = sums.clone();
            for at in self.inside()..self.count() {
                ready.push(flow.send(sheet, at, &[nth(self.first, at)], rail, &sums));
            }
            if self.ask.collective != Collective::ReduceScatter {
                let arrived = sheet.join(&ready);
                for domain in 0..domains {
                    let (begins, edges) = self.head_edges(domain);
                    ready.extend(edges.multicast(&mut flow, begins, bytes, &[arrived], sheet));
                }
            }
            ready.into_iter().for_each(|op| sheet.end(op));
        }
    }
}

/// To which domains a rail leads: to the next round a ring, or to all others.
fn distances(ask: &Ask<'_>) -> std::ops::Range<usize> {
    match (ask.communicator.domains(), ask.collective) {
        (1, _) => 0..0,
        (_, Collective::AllGather) => 1..2,
        (domains, _) => 1..domains,
    }
}

fn write_heads(ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>) {
    let members = ask.shape().per_domain as usize;
    let name = match (ask.shape().domains, ask.collective) {
        (1, _) => "symmetric multicast",
        (_, Collective::AllGather) => "symmetric ring of rails",
        _ => "symmetric rails",
    };
    let first = sheet.open(name, 1, |opening| {
        for head in 0..members {
            HeadOnSheet::open(ask, head, opening);
        }
    });
    let mut at = 0;
    for head in 0..members {
        let bytes = part(ask.bytes.get(), members as u64, head as u64);
        let own = HeadOnSheet { first: nth(first, at), ask };
        match sheet.detail {
            Detail::Folded => own.fold(plan, bytes, sheet),
            Detail::Stepwise => own.step(plan, bytes, sheet),
        }
        at += own.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle. Far from the bend the smooth functions are the sharp ones.
    #[test]
    fn smooth_limits_are_limits() {
        assert!((soft_min(10.0, 480.0, 6.5) - 10.0).abs() < 1e-6);
        assert!((soft_min(5000.0, 480.0, 6.5) - 480.0).abs() < 1e-6);
        assert!(soft_max_0(-50.0) < 1e-9 && (soft_max_0(50.0) - 50.0).abs() < 1e-9);
    }
}
