//! Where tokens go: how evenly experts are loaded, and how many copies of a token travel.
//!
//! A router sends every token to `top_k` experts. How many *places* those lie on decides the
//! traffic: DeepEP sends a token once to each node and forwards it there, a plain all-to-all once
//! per expert. Places are counted exactly for experts drawn without replacement, all alike, from
//! the groups that the router may choose from: node-limited routing (DeepSeek-V3, arXiv
//! 2412.19437, section 2.1.2) and device-limited routing (DeepSeek-V2, arXiv 2405.04434, section
//! 2.2.2) are groups of a node's or a device's experts.
//!
//! Load is uneven by a Zipf exponent or by measured counts, and cut at a capacity if there is one.
//! What is dropped does not travel, and what travels follows the loads: experts get so much of a
//! dispatch, and send as much of the combine. Where it departs from reality: the places here are
//! those of even loads (the collectives know better), and become fewer in proportion to the copies
//! that are left.

use traffic::Collective;
use traffic::collective::Routing;
use units::Bytes;

use crate::config::{Dispatcher, MoeConfig, RoutingLimit};
use crate::model::Experts;
use crate::resolve::Job;

/// How the tokens of one layer are spread over the ranks of an expert group.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    experts: u64,
    top_k: u64,
    ranks: u64,
    /// Groups that the router chooses first, and how many of them.
    groups: u64,
    group_limit: u64,
    /// By rank: its share of all tokens' copies, 1 being the mean.
    loads: Vec<f64>,
    /// The share of copies that no expert had room for.
    dropped: f64,
}

/// Which ranks of a group have more of a call's bytes than others: those with hot experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spread {
    /// None.
    #[default]
    Even,
    /// They receive more: tokens on their way to experts.
    Receivers,
    /// They send more: results on their way back.
    Senders,
}

/// Bytes that one rank's tokens put on each kind of network on their way to the experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// From node to node.
    pub leaving: Bytes,
    /// Between GPUs of a node: the sender's, or that of a receiver that forwards.
    pub staying: Bytes,
}

impl Dispatch {
    /// How the job's experts are visited; nothing for a dense model. Nodes matter for
    /// node-limited routing alone.
    pub fn of(job: &Job, gpus_per_node: u64) -> Option<Self> {
        let experts = job.model.experts.as_ref()?;
        let ranks = job.layout.ep;
        let per_node = (gpus_per_node / job.layout.etp).clamp(1, ranks);
        let (groups, group_limit) = groups(experts, job.moe.limit, ranks, per_node);
        let (expert_loads, dropped) = expert_loads(experts.count, &job.moe);
        let held = usize::try_from(experts.count / ranks).expect("experts fit memory");
        let loads =
            expert_loads.chunks(held).map(|own| own.iter().sum::<f64>() / held as f64).collect();
        let Experts { count, top_k, .. } = *experts;
        Some(Self { experts: count, top_k, ranks, groups, group_limit, loads, dropped })
    }

    /// By rank: its share of the tokens' copies, where 1 is the mean before any is dropped.
    pub fn loads(&self) -> &[f64] {
        &self.loads
    }

    /// The largest of these: what the slowest rank waits for.
    pub fn hottest(&self) -> f64 {
        self.loads.iter().copied().fold(0.0, f64::max)
    }

    /// The share of copies that no expert had room for.
    pub fn dropped(&self) -> f64 {
        self.dropped
    }

    /// The share of a rank's copies that travel.
    pub fn kept(&self) -> f64 {
        1.0 - self.dropped
    }

    /// Whether all ranks have the same load.
    pub fn is_even(&self) -> bool {
        let first = self.loads.first().copied().unwrap_or(1.0);
        self.loads.iter().all(|load| (load - first).abs() <= 1e-9 * first)
    }

    /// The weights of a call's bytes as the collectives want them: of a plain all-to-all back from
    /// the experts by pairs, since ranks send unequally; else by rank.
    pub fn weights(&self, spread: Spread, collective: Collective) -> Vec<f64> {
        let ranks = self.loads.len();
        let mean = self.loads.iter().sum::<f64>() / ranks as f64;
        let loads = self.loads.iter().map(|load| load / mean);
        match (spread, collective) {
            (Spread::Even, _) => Vec::new(),
            (Spread::Senders, Collective::AllToAll) => {
                loads.flat_map(|load| std::iter::repeat_n(load, ranks)).collect()
            }
            _ => loads.collect(),
        }
    }

    /// How many groups of experts the router may choose from, if that is a limit.
    pub fn limit(&self) -> Option<u64> {
        (self.group_limit < self.groups).then_some(self.group_limit)
    }

    /// The same as the collectives want it: at most how many nodes a token goes to, if the group's
    /// ranks are spread over so many. A limit of devices is one of nodes too, since no more nodes
    /// than devices are reached.
    pub fn routing(&self, nodes: u64) -> Routing {
        let narrow = |number: u64| u32::try_from(number).expect("experts and nodes fit 32 bits");
        let most = match self.limit() {
            // Groups within nodes: each may be on another one. Groups of several nodes reach all.
            Some(limit) if nodes <= self.groups => Some(limit),
            Some(limit) => Some(limit * nodes.div_ceil(self.groups)),
            None => None,
        };
        Routing {
            experts: narrow(self.experts),
            top_k: narrow(self.top_k),
            node_limit: most.filter(|&most| most < nodes).map(narrow),
        }
    }

    /// On how many ranks the experts of a token lie, on average, its own among them.
    pub fn ranks_per_token(&self) -> f64 {
        self.places(self.ranks)
    }

    /// On how many nodes they lie, if the group's ranks are spread over so many.
    pub fn nodes_per_token(&self, nodes: u64) -> f64 {
        self.places(nodes)
    }

    /// What becomes of the tokens of one rank on their way to the experts, if the group's ranks
    /// are spread over so many nodes. `bytes` is one copy of each token.
    pub fn crossing(&self, dispatcher: Dispatcher, bytes: u64, nodes: u64) -> Crossing {
        let (ranks, nodes) = (self.ranks as f64, nodes as f64);
        let copies = match dispatcher {
            // One for each expert, wherever it is.
            Dispatcher::AllToAll => {
                let copies = self.top_k as f64 * self.kept();
                (copies * (1.0 - 1.0 / nodes), copies * (1.0 / nodes - 1.0 / ranks))
            }
            // One for each node, to the GPU on the same rail; from there one for each other GPU.
            Dispatcher::DeepEp => {
                let (to_node, to_rank) = (self.places(nodes as u64), self.ranks_per_token());
                let kept = self.kept();
                let leaving = to_node * (1.0 - 1.0 / nodes);
                // The chance that the GPU on the rail is among a reached node's.
                let there = (to_rank / ranks) / (to_node / nodes);
                (kept * leaving, kept * (to_rank * (1.0 - 1.0 / ranks) - leaving * there))
            }
        };
        let of = |copies: f64| Bytes::new((bytes as f64 * copies).round() as u64);
        Crossing { leaving: of(copies.0), staying: of(copies.1) }
    }

    /// What a rank that sends `bytes` of copies to all experts, none of them dropped, sends to each
    /// rank. The parts add up to the bytes.
    pub fn shares(&self, bytes: u64) -> Vec<u64> {
        let mut sum = 0.0;
        let mut sent = 0;
        let ranks = self.loads.len() as f64;
        let share = |load: &f64| {
            sum += load / ranks / self.kept();
            let until = (bytes as f64 * sum).round() as u64;
            until - std::mem::replace(&mut sent, until)
        };
        self.loads.iter().map(share).collect()
    }

    /// The expected number of blocks, of `blocks` that part the experts evenly, that have one of
    /// a token's experts.
    fn places(&self, blocks: u64) -> f64 {
        let block = self.experts as f64 / blocks as f64;
        let group = self.experts as f64 / self.groups as f64;
        let chosen = self.group_limit as f64 * group;
        let missed = |own: f64| none_among(own, chosen, self.top_k);
        if block <= group {
            let reached = self.group_limit as f64 / self.groups as f64;
            return blocks as f64 * reached * (1.0 - missed(block));
        }
        // A block of several groups: by how many of them were chosen.
        let inside = self.groups / blocks;
        let hit: f64 = (1..=inside.min(self.group_limit))
            .map(|some| {
                let chance = hypergeometric(some, inside, self.group_limit, self.groups);
                chance * (1.0 - missed(some as f64 * group))
            })
            .sum();
        blocks as f64 * hit
    }
}

/// Groups, and how many the router chooses.
fn groups(experts: &Experts, limit: RoutingLimit, ranks: u64, per_node: u64) -> (u64, u64) {
    let (groups, most) = match limit {
        RoutingLimit::None => (1, 1),
        RoutingLimit::Model => (experts.groups, experts.group_limit),
        RoutingLimit::Nodes(most) => (ranks.div_ceil(per_node), most),
        RoutingLimit::Devices(most) => (ranks, most),
    };
    (groups, most.min(groups))
}

/// Loads by expert, 1 being the mean, and what capacity drops of them.
fn expert_loads(count: u64, moe: &MoeConfig) -> (Vec<f64>, f64) {
    let raw: Vec<f64> = match &moe.loads {
        Some(loads) => loads.clone(),
        None => (1..=count).map(|place| (place as f64).powf(-moe.skew)).collect(),
    };
    let mean = raw.iter().sum::<f64>() / raw.len() as f64;
    let room = moe.capacity_factor.unwrap_or(f64::INFINITY);
    let loads: Vec<f64> = raw.iter().map(|load| (load / mean).min(room)).collect();
    let kept = loads.iter().sum::<f64>() / loads.len() as f64;
    // Rounding must not drop what nothing limits.
    (loads, if moe.capacity_factor.is_some() { 1.0 - kept } else { 0.0 })
}

/// The chance that none of `draws` from `all` is among `own`.
fn none_among(own: f64, all: f64, draws: u64) -> f64 {
    (0..draws).map(|draw| ((all - own - draw as f64) / (all - draw as f64)).max(0.0)).product()
}

/// The chance that `some` of `draws` from `all` are among `own`.
fn hypergeometric(some: u64, own: u64, draws: u64, all: u64) -> f64 {
    let choose = |n: u64, k: u64| -> f64 {
        if n < k {
            return 0.0;
        }
        (0..k).map(|i| (n - i) as f64 / (k - i) as f64).product()
    };
    choose(own, some) * choose(all - own, draws - some) / choose(all, draws)
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Random;

    fn even(experts: u64, top_k: u64, ranks: u64, groups: u64, group_limit: u64) -> Dispatch {
        let loads = vec![1.0; usize::try_from(ranks).unwrap()];
        Dispatch { experts, top_k, ranks, groups, group_limit, loads, dropped: 0.0 }
    }

    /// Oracle: drawing experts at random, many times.
    #[test]
    fn places_are_those_of_drawing() {
        for (experts, top_k, ranks, groups, limit) in
            [(256, 8, 64, 8, 4), (160, 6, 8, 8, 3), (64, 6, 16, 1, 1), (8, 2, 8, 1, 1)]
        {
            let dispatch = even(experts, top_k, ranks, groups, limit);
            let mut random = Random::new(3, "draw", 0);
            for blocks in [ranks, ranks / 4, 2] {
                let tokens = 20_000;
                let mut places = 0;
                for _ in 0..tokens {
                    let mut order: Vec<u64> = (0..groups).collect();
                    random.shuffle(&mut order);
                    let chosen = &order[..usize::try_from(limit).unwrap()];
                    let mut pool: Vec<u64> = (0..experts)
                        .filter(|expert| chosen.contains(&(expert * groups / experts)))
                        .collect();
                    random.shuffle(&mut pool);
                    let mut hit: Vec<u64> = pool[..usize::try_from(top_k).unwrap()]
                        .iter()
                        .map(|expert| expert * blocks / experts)
                        .collect();
                    hit.sort_unstable();
                    hit.dedup();
                    places += hit.len();
                }
                let drawn = places as f64 / f64::from(tokens);
                let counted = dispatch.places(blocks);
                assert!((drawn / counted - 1.0).abs() < 0.01, "{experts} {blocks}: {counted}");
            }
        }
    }

    /// DeepSeek-V3 sends a token to at most four of eight nodes, V2 to at most three devices.
    #[test]
    fn limits_bound_the_places() {
        let v3 = even(256, 8, 64, 8, 4);
        assert!(v3.nodes_per_token(8) <= 4.0);
        assert!(4.0 < even(256, 8, 64, 1, 1).nodes_per_token(8));
        let v2 = even(160, 6, 8, 8, 3);
        assert!(v2.ranks_per_token() <= 3.0);
        assert!(3.0 < even(160, 6, 8, 1, 1).ranks_per_token());
    }

    /// DeepSeek-V3 on eight nodes: the collectives' own count of places agrees with this one.
    #[test]
    fn collectives_are_told_the_same() {
        let v3 = even(256, 8, 64, 8, 4);
        let routing = v3.routing(8);
        assert_eq!(routing, Routing { experts: 256, top_k: 8, node_limit: Some(4) });
        let copies = routing.copies(8, 8);
        assert!((8.0 * copies.to_node - v3.nodes_per_token(8)).abs() < 1e-9);
        assert!((64.0 * copies.to_gpu - v3.ranks_per_token()).abs() < 1e-9);
        assert_eq!(even(256, 8, 64, 1, 1).routing(8).node_limit, None);
        assert_eq!(even(160, 6, 8, 8, 3).routing(1).node_limit, None);
    }

    /// Oracle: DeepSeek-V3's dispatch of 4,096 tokens in fp8. With eight of 64 ranks on each of
    /// eight nodes and a limit of four nodes, at most 3.5 copies leave a node on average; a plain
    /// all-to-all sends seven of eight copies away, and all copies but its own are sent.
    #[test]
    fn deepep_keeps_copies_in_the_node() {
        let v3 = even(256, 8, 64, 8, 4);
        let bytes = 4096 * 7168;
        let plain = v3.crossing(Dispatcher::AllToAll, bytes, 8);
        assert_eq!(plain.leaving.get(), 7 * bytes);
        assert_eq!((plain.leaving + plain.staying).get(), 8 * bytes * 63 / 64);
        let deepep = v3.crossing(Dispatcher::DeepEp, bytes, 8);
        let leaving = deepep.leaving.as_f64() / bytes as f64;
        assert!((3.1..=3.5).contains(&leaving), "{leaving}");
        let free = even(256, 8, 64, 1, 1).crossing(Dispatcher::DeepEp, bytes, 8);
        assert!(deepep.leaving < free.leaving && free.leaving < plain.leaving);
        // On one node nothing leaves it.
        let v2 = even(160, 6, 8, 8, 3).crossing(Dispatcher::DeepEp, bytes, 1);
        assert_eq!(v2.leaving, Bytes::ZERO);
        assert!(Bytes::ZERO < v2.staying);
    }

    /// Property: shares add up to the bytes; a skew makes them uneven; capacity bounds and drops.
    #[test]
    fn loads_follow_skew_capacity_and_traces() {
        let moe = MoeConfig { skew: 1.0, ..MoeConfig::default() };
        let (skewed, dropped) = expert_loads(64, &moe);
        assert_eq!(dropped, 0.0);
        assert!((skewed[0] / skewed[1] - 2.0).abs() < 1e-12);
        let limited = MoeConfig { capacity_factor: Some(1.25), ..moe };
        let (limited, dropped) = expert_loads(64, &limited);
        assert!(limited.iter().all(|load| *load <= 1.25));
        assert!(0.3 < dropped && dropped < 0.9, "{dropped}");
        let traced = MoeConfig { loads: Some(vec![3.0, 1.0]), ..MoeConfig::default() };
        assert_eq!(expert_loads(2, &traced), (vec![1.5, 0.5], 0.0));
        for bytes in [0, 1, 1_000_003, u64::from(u32::MAX)] {
            let dispatch = Dispatch { loads: skewed.clone(), ..even(64, 6, 64, 1, 1) };
            assert_eq!(dispatch.shares(bytes).iter().sum::<u64>(), bytes);
            let cut = Dispatch { loads: limited.clone(), dropped, ..dispatch };
            assert_eq!(cut.shares(bytes).iter().sum::<u64>(), bytes);
        }
    }

    /// Property: weights are 1 on average; those of the way back are the transpose of those there.
    #[test]
    fn weights_back_are_the_transpose() {
        let dispatch = Dispatch { loads: vec![0.5, 0.25, 0.25, 0.0], ..even(8, 2, 4, 1, 1) };
        let there = dispatch.weights(Spread::Receivers, Collective::AllToAll);
        let back = dispatch.weights(Spread::Senders, Collective::AllToAll);
        assert_eq!(there, [2.0, 1.0, 1.0, 0.0]);
        for (from, sent) in back.chunks(4).enumerate() {
            assert_eq!(sent, [there[from]; 4]);
        }
        assert_eq!(dispatch.weights(Spread::Senders, Collective::MoeCombine), there);
        assert!(dispatch.weights(Spread::Even, Collective::AllToAll).is_empty());
        assert!(!dispatch.is_even() && even(8, 2, 4, 1, 1).is_even());
    }
}
