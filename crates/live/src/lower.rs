//! From the transfers of a collective, which know only sizes, to plans with data.
//!
//! A message that waits for the arrival of another passes it on, so messages form chains; a chain
//! begins with what its first rank has. In a ring a chain is added up over the first n − 1 ranks
//! and handed out to the n − 1 after them; in an all-gather it is handed out, in a reduce-scatter
//! added up; in an all-to-all it has one message. In a tree messages join on their way up, where
//! they are added, and split on their way down. Chains of another shape are refused: what they
//! carry cannot be told from sizes. Other traffic is plain: every message has bytes of its own,
//! which must arrive.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fabric::hash::FlowKey;
use fabric::routing::QueuePairs;
use fabric::{Fabric, NodeId, NodeKind};
use packetsim::Settings;
use packetsim::limits::deal;
use traffic::collective::Collective;
use traffic::{OpId, OpKind, Transfers};
use units::Id;

use crate::memory::{DATA, INPUT, STAGING};
use crate::plan::{After, Check, PairPlan, Part, ReadPart, ReceivePlan, SendPlan};

/// What messages carry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// A collective as rings, or pairwise.
    Chains(Collective),
    /// An all-reduce over trees.
    Tree,
    /// Bytes of their own.
    Plain,
}

/// A queue pair of the run.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// What its packets show; none inside a server.
    pub key: Option<FlowKey>,
    /// Its numbers at the sender's and at the receiver's end.
    pub numbers: [u32; 2],
    /// UDP source port.
    pub src_port: u16,
    /// The sending and the receiving rank.
    pub ranks: [u32; 2],
    /// Payload that will be sent on it.
    pub bytes: u64,
    /// Packets that will be sent on it.
    pub packets: u64,
    /// Messages.
    pub messages: u32,
}

/// What each rank does, before addresses are known.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// All queue pairs.
    pub pairs: Vec<Pair>,
    /// By rank.
    pub sends: Vec<Vec<SendPlan>>,
    /// By rank.
    pub receives: Vec<Vec<ReceivePlan>>,
    /// By rank.
    pub checks: Vec<Vec<Check>>,
    /// By rank: what it reads, where receivers read.
    pub reads: Vec<Vec<ReadPart>>,
    /// By connection: its first queue pair.
    pub of_connection: Vec<usize>,
    /// Bytes that each region needs.
    pub bytes: u64,
    /// Bytes that the staging region needs.
    pub staging: u64,
}

/// Where a message comes from and goes to.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: u32,
    from: u64,
    to: u64,
    adds: Option<u64>,
}

/// A message that has been understood.
#[derive(Clone, Copy, Debug)]
struct Message {
    op: OpId,
    connection: usize,
    bytes: u64,
    ranks: [u32; 2],
    /// Which chain, and how many messages of it there are with this one.
    chain: usize,
    hop: usize,
}

/// By message: what it waits for.
type Waits = BTreeMap<OpId, Vec<After>>;

/// Messages that pass on the same bytes.
#[derive(Clone, Copy, Debug)]
struct Chain {
    root: u32,
    end: u32,
    bytes: u64,
    hops: usize,
    /// Where they begin, at the sender and at the receivers.
    from: u64,
    to: u64,
}

/// Understands what was written step by step.
pub fn lower(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    shape: Shape,
    ranks: usize,
) -> Result<Lowered, String> {
    let rank_of = ranks_by_node(fabric, ranks)?;
    let (mut messages, after) = read(transfers, &rank_of, shape)?;
    let mut lowered = Lowered {
        sends: vec![Vec::new(); ranks],
        receives: vec![Vec::new(); ranks],
        reads: vec![Vec::new(); ranks],
        checks: vec![Vec::new(); ranks],
        ..Lowered::default()
    };
    let places = match shape {
        Shape::Chains(collective) => place_chains(&messages, collective, ranks, &mut lowered)?,
        Shape::Tree => place_trees(&mut messages, ranks, &mut lowered)?,
        Shape::Plain => place_plain(&messages, ranks, &mut lowered),
    };
    if MOST_BYTES < lowered.bytes + lowered.staging {
        let needed = lowered.bytes + lowered.staging;
        return Err(format!(
            "a rank would need {needed} bytes of memory, the most is {MOST_BYTES}"
        ));
    }
    let first_pair = open(fabric, transfers, settings, &rank_of, &mut lowered.pairs);
    lowered.of_connection = first_pair.iter().map(|(first, _)| *first).collect();
    let mut turns = vec![0; transfers.connections().len()];
    for (message, place) in messages.iter().zip(&places) {
        let (first, count) = first_pair[message.connection];
        let turn = &mut turns[message.connection];
        let (dealt, next) = deal(&settings.routing, message.bytes, count, *turn);
        *turn = next;
        let dealt: Vec<(u64, u64)> = dealt.collect();
        let parts = parts(&mut lowered.pairs, first, &dealt, settings.packet.mtu.get())?;
        let [from, to] = message.ranks.map(|rank| rank as usize);
        let op = message.op.index() as u32;
        let (remote_key, remote_address) = match place.adds {
            Some(staged) => (STAGING, staged),
            None => (DATA, place.to),
        };
        for part in &parts {
            let &Part { pair, offset, bytes } = part;
            let (from, place) = ((place.key, place.from + offset), remote_address + offset);
            let part = ReadPart { op, pair, from, to: (remote_key, place), bytes };
            lowered.reads[to].push(part);
        }
        lowered.receives[to].push(ReceivePlan {
            op,
            parts: parts.len() as u32,
            address: place.to,
            bytes: message.bytes,
            adds: place.adds,
        });
        lowered.sends[from].push(SendPlan {
            op,
            after: after[&message.op].clone(),
            key: place.key,
            address: place.from,
            remote_key,
            remote_address,
            parts,
        });
    }
    Ok(lowered)
}

/// The most memory of a rank.
const MOST_BYTES: u64 = 1 << 30;

/// A message dealt over its queue pairs, which count it.
fn parts(
    pairs: &mut [Pair],
    first: usize,
    dealt: &[(u64, u64)],
    mtu: u64,
) -> Result<Vec<Part>, String> {
    let mut offset = 0;
    let mut parts = Vec::new();
    for &(pair, bytes) in dealt {
        let pair = first + pair as usize;
        let counted = &mut pairs[pair];
        counted.bytes += bytes;
        counted.packets += bytes.div_ceil(mtu.max(1)).max(1);
        counted.messages += 1;
        let bytes = u32::try_from(bytes).map_err(|_| "a message has 4 GiB or more".to_owned())?;
        parts.push(Part { pair: pair as u32, offset, bytes });
        offset += u64::from(bytes);
    }
    Ok(parts)
}

/// Places of the messages of chains, and what must come out.
fn place_chains(
    messages: &[Message],
    collective: Collective,
    ranks: usize,
    lowered: &mut Lowered,
) -> Result<Vec<Place>, String> {
    let mut chains = chains(messages);
    place(&mut chains, collective, ranks)?;
    lowered.bytes = chains.iter().map(|chain| chain.bytes).sum::<u64>();
    if collective == Collective::AllToAll {
        lowered.bytes =
            chains.iter().map(|chain| (chain.from.max(chain.to)) + chain.bytes).max().unwrap_or(0);
    }
    lowered.staging = lowered.bytes;
    lowered.checks = checks(&chains, collective, ranks);
    let of_message = |message: &Message| {
        let chain = &chains[message.chain];
        let sums = matches!(collective, Collective::AllReduce | Collective::ReduceScatter);
        let adds = (sums && message.hop < ranks).then_some(chain.to);
        let key = if collective == Collective::AllToAll { INPUT } else { DATA };
        Place { key, from: chain.from, to: chain.to, adds }
    };
    Ok(messages.iter().map(of_message).collect())
}

/// Places of the messages of trees: up, where they are added, and down again.
fn place_trees(
    messages: &mut [Message],
    ranks: usize,
    lowered: &mut Lowered,
) -> Result<Vec<Place>, String> {
    // By tree: where its bytes are, how many, and the pairs of ranks that have had a message.
    let mut trees: BTreeMap<usize, (u64, u64, Vec<[u32; 2]>)> = BTreeMap::new();
    let mut next = 0;
    let mut slots: Vec<Option<u64>> = Vec::new();
    for message in messages.iter() {
        let (_, bytes, seen) = trees.entry(message.chain).or_insert_with(|| {
            next += message.bytes;
            (next - message.bytes, message.bytes, Vec::new())
        });
        let [from, to] = message.ranks;
        if *bytes != message.bytes || seen.contains(&message.ranks) {
            return Err("messages that join and split are not those of a tree".to_owned());
        }
        let is_down = seen.contains(&[to, from]);
        let before = seen.iter().filter(|ranks| ranks[1] == to && !seen.contains(&[to, ranks[0]]));
        slots.push((!is_down).then_some(before.count() as u64));
        seen.push(message.ranks);
    }
    let widest = slots.iter().flatten().max().map_or(0, |slot| slot + 1);
    (lowered.bytes, lowered.staging) = (next, widest * next);
    for (address, bytes, seen) in trees.values() {
        if seen.len() != 2 * (ranks - 1) {
            return Err("a tree does not reach every rank once up and once down".to_owned());
        }
        let check = Check { address: *address, bytes: *bytes, from: None };
        lowered.checks.iter_mut().for_each(|own| own.push(check));
    }
    let places = messages.iter().zip(slots).map(|(message, slot)| {
        let to = trees[&message.chain].0;
        Place { key: DATA, from: to, to, adds: slot.map(|slot| slot * next + to) }
    });
    Ok(places.collect())
}

/// Every message has bytes of its own.
fn place_plain(messages: &[Message], ranks: usize, lowered: &mut Lowered) -> Vec<Place> {
    let mut of_rank = vec![[0_u64; 2]; ranks];
    let mut places = Vec::new();
    for message in messages {
        let [from, to] = message.ranks.map(|rank| rank as usize);
        let (bytes, out) = (message.bytes, of_rank[from][0]);
        let inward = of_rank[to][1];
        of_rank[from][0] += bytes;
        of_rank[to][1] += bytes;
        let check = Check { address: inward, bytes, from: Some((from as u32, out)) };
        lowered.checks[to].push(check);
        places.push(Place { key: INPUT, from: out, to: inward, adds: None });
    }
    lowered.bytes = of_rank.iter().flatten().copied().max().unwrap_or(0);
    places
}

/// The rank of each GPU that takes part and of its NIC.
fn ranks_by_node(fabric: &Fabric, ranks: usize) -> Result<BTreeMap<NodeId, u32>, String> {
    let mut rank_of = BTreeMap::new();
    for rank in 0..ranks {
        let gpu = fabric.gpu(rank);
        for node in [gpu, fabric.nic_of(gpu)] {
            if rank_of.insert(node, rank as u32).is_some() {
                return Err("live needs a NIC for each GPU: set cluster.nics_per_node to \
                            cluster.gpus_per_node"
                    .to_owned());
            }
        }
    }
    Ok(rank_of)
}

/// All messages, and what each waits for.
fn read(
    transfers: &Transfers,
    rank_of: &BTreeMap<NodeId, u32>,
    shape: Shape,
) -> Result<(Vec<Message>, Waits), String> {
    let mut messages: Vec<Message> = Vec::new();
    let mut after = BTreeMap::new();
    let mut known: BTreeMap<OpId, usize> = BTreeMap::new();
    // What an operation without a message stands for.
    let mut stands_for: BTreeMap<OpId, Vec<OpId>> = BTreeMap::new();
    let mut chains = 0;
    for op in transfers.ops().ids() {
        let mut before: Vec<OpId> = Vec::new();
        for earlier in transfers.after(op) {
            match stands_for.get(earlier) {
                Some(several) => before.extend(several),
                None => before.push(*earlier),
            }
        }
        before.sort_unstable();
        before.dedup();
        let (connection, bytes) = match transfers.ops()[op].kind {
            OpKind::Send { connection, bytes } => (connection, bytes.get()),
            OpKind::Wait { .. } => {
                stands_for.insert(op, before);
                continue;
            }
            OpKind::Coupled { .. } | OpKind::Together { .. } => {
                return Err("a folded collective has no messages".to_owned());
            }
        };
        let ends = transfers.connections()[connection];
        let rank = |node: NodeId| rank_of.get(&node).copied();
        let (Some(from), Some(to)) = (rank(ends.from), rank(ends.to)) else {
            return Err("a message leads through a NIC or switch that is no rank's".to_owned());
        };
        let mut waits = Vec::new();
        let mut passed_on: Option<usize> = None;
        for earlier in before {
            let other = messages[known[&earlier]];
            let number = earlier.index() as u32;
            if other.ranks[1] == from && other.ranks[0] != from {
                waits.push(After::Arrived(number));
                let joined = passed_on.replace(known[&earlier]).map(|at| messages[at].chain);
                if let Some(chain) = joined {
                    join(&mut messages, chain, other.chain, shape)?;
                }
            } else if other.ranks[0] == from {
                waits.push(After::Known(number));
            } else {
                return Err("a message waits for others elsewhere".to_owned());
            }
        }
        let (chain, hop) = match passed_on.map(|at| messages[at]) {
            Some(before) => (before.chain, before.hop + 1),
            None => {
                chains += 1;
                (chains - 1, 1)
            }
        };
        known.insert(op, messages.len());
        after.insert(op, waits);
        let connection = connection.index();
        messages.push(Message { op, connection, bytes, ranks: [from, to], chain, hop });
    }
    Ok((messages, after))
}

/// Two chains are one tree from here on.
fn join(messages: &mut [Message], chain: usize, other: usize, shape: Shape) -> Result<(), String> {
    if matches!(shape, Shape::Chains(_)) {
        return Err("messages that join several others are not understood".to_owned());
    }
    let both = messages.iter_mut().filter(|one| one.chain == chain);
    both.for_each(|one| one.chain = other);
    Ok(())
}

fn chains(messages: &[Message]) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    for message in messages {
        let [root, end] = message.ranks;
        match chains.get_mut(message.chain) {
            Some(chain) => {
                chain.end = end;
                chain.hops = message.hop;
            }
            None => {
                let bytes = message.bytes;
                chains.push(Chain { root, end, bytes, hops: 1, from: 0, to: 0 });
            }
        }
    }
    chains
}

/// Gives every chain its place; refuses those of another shape.
fn place(chains: &mut [Chain], collective: Collective, ranks: usize) -> Result<(), String> {
    let hops = match collective {
        Collective::AllReduce => 2 * (ranks - 1),
        Collective::AllGather | Collective::ReduceScatter => ranks - 1,
        Collective::AllToAll => 1,
        _ => {
            let name = collective.name();
            return Err(format!(
                "live runs all_reduce, all_gather, reduce_scatter and all_to_all, not {name}"
            ));
        }
    };
    let mut next = 0;
    let mut of_rank = vec![[0_u64; 2]; ranks];
    for chain in chains {
        if chain.hops != hops {
            return Err(format!(
                "a chain of {} messages where {hops} were expected: with several GPUs in a server \
                 messages change GPUs on their way, which live does not follow; \
                 set cluster.gpus_per_node=1",
                chain.hops
            ));
        }
        if collective == Collective::AllToAll {
            let [out, _] = &mut of_rank[chain.root as usize];
            chain.from = std::mem::replace(out, *out + chain.bytes);
            let [_, inward] = &mut of_rank[chain.end as usize];
            chain.to = std::mem::replace(inward, *inward + chain.bytes);
        } else {
            (chain.from, chain.to) = (next, next);
            next += chain.bytes;
        }
    }
    Ok(())
}

fn checks(chains: &[Chain], collective: Collective, ranks: usize) -> Vec<Vec<Check>> {
    let mut checks = vec![Vec::new(); ranks];
    for chain in chains {
        let (address, bytes) = (chain.to, chain.bytes);
        match collective {
            Collective::AllReduce => {
                let everybody = checks.iter_mut();
                everybody.for_each(|own| own.push(Check { address, bytes, from: None }));
            }
            Collective::AllGather => {
                let from = Some((chain.root, chain.from));
                let everybody = checks.iter_mut();
                everybody.for_each(|own| own.push(Check { address, bytes, from }));
            }
            Collective::ReduceScatter => {
                checks[chain.end as usize].push(Check { address, bytes, from: None });
            }
            _ => {
                let from = Some((chain.root, chain.from));
                checks[chain.end as usize].push(Check { address, bytes, from });
            }
        }
    }
    checks
}

/// Opens the queue pairs of all connections, as the engines number them; by connection the first
/// and how many.
fn open(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    rank_of: &BTreeMap<NodeId, u32>,
    pairs: &mut Vec<Pair>,
) -> Vec<(usize, u64)> {
    let mut numbers = QueuePairs::new(fabric, &settings.routing, settings.seed);
    // Those inside servers are no NIC's; their numbers begin where those of NICs do not come.
    let mut inside = 0xe0_0000;
    let mut of_connection = Vec::new();
    for connection in transfers.connections() {
        let ranks = [connection.from, connection.to].map(|node| rank_of.get(&node).copied());
        let ranks = ranks.map(|rank| rank.unwrap_or(u32::MAX));
        let first = pairs.len();
        let empty = |key, numbers, src_port| Pair {
            key,
            numbers,
            src_port,
            ranks,
            bytes: 0,
            packets: 0,
            messages: 0,
        };
        if fabric.nodes()[connection.from].kind == NodeKind::Nic {
            let count = match connection.queue_pairs {
                0 => settings.routing.qps.max(1),
                own => own,
            };
            for _ in 0..count {
                let (key, local) = numbers.open_numbered(connection.from, connection.to);
                pairs.push(empty(Some(key), [local, key.dst_qpn], key.src_port));
            }
        } else {
            inside += 2;
            pairs.push(empty(None, [inside, inside + 1], 0xc000));
        }
        of_connection.push((first, (pairs.len() - first) as u64));
    }
    of_connection
}

/// The queue pairs of one rank, which its messages then name by their place.
pub fn pairs_of(
    lowered: &mut Lowered,
    rank: u32,
    reads: bool,
    address: impl Fn(u32) -> IpAddr,
) -> Vec<PairPlan> {
    let mut place = BTreeMap::new();
    let mut own = Vec::new();
    for (id, pair) in lowered.pairs.iter().enumerate() {
        let [from, to] = pair.ranks;
        if (from != rank && to != rank) || pair.messages == 0 {
            continue;
        }
        let sends = from == rank;
        let [local, remote] = if sends { pair.numbers } else { [pair.numbers[1], pair.numbers[0]] };
        let peer = if sends { to } else { from };
        place.insert(id as u32, own.len() as u32);
        own.push(PairPlan {
            id: id as u32,
            local,
            remote,
            peer,
            address: address(peer),
            src_port: pair.src_port,
            sends,
            inside: pair.key.is_none(),
            arrivals: if sends && !reads { 0 } else { pair.messages },
            packets: pair.packets as u32,
        });
    }
    for part in &mut lowered.reads[rank as usize] {
        part.pair = place[&part.pair];
    }
    for send in &mut lowered.sends[rank as usize] {
        for part in &mut send.parts {
            part.pair = place[&part.pair];
        }
    }
    own
}
