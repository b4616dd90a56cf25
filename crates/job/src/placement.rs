//! Which rank runs on which GPU.
//!
//! A cluster is seen as [`Slots`]: nodes of equal size, some of them under one leaf, some leaves
//! in one zone (pod), GPUs numbered node by node. A job takes free nodes, and a [`Policy`] says
//! which rank goes where:
//!
//! * `linear`: ranks in order on free nodes in order.
//! * `random`: whole nodes in random order, as a scheduler that knows no topology gives them out.
//!   Ranks of one node stay together, because no launcher splits a tensor group over nodes.
//! * `topology-aware`: tensor, then context (and the experts' part of data), then pipeline, then
//!   data, innermost to outermost, as Llama 3 (arXiv 2407.21783, section 3.3.2), each group kept
//!   under one leaf or in one zone where one has room; what does not fit whole comes last.
//! * `min-cut`: as few bytes over as little distance as a search finds, on the job's traffic matrix
//!   and the fabric's distances ([`crate::mapping`]). The network knows both, so whoever has it
//!   makes the search and hands its answer over, as a rank file's.
//! * a rank file: the GPU of every rank, as read from a file.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use units::Random;

use crate::parallel::{Coordinates, Layout};

/// Where ranks go, and what of the cluster is taken already.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementConfig {
    /// Which rank goes where.
    pub policy: Policy,
    /// The share of the cluster's nodes that other jobs hold, scattered at random.
    pub busy: f64,
}

impl Default for PlacementConfig {
    /// Topology-aware on an empty cluster: what Llama 3 had.
    fn default() -> Self {
        Self { policy: Policy::TopologyAware, busy: 0.0 }
    }
}

/// Which rank goes where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Policy {
    /// Ranks in order on nodes in order.
    Linear,
    /// Nodes in random order.
    Random,
    /// Groups kept together.
    TopologyAware,
    /// Few bytes over short ways.
    MinCut,
    /// A file that lists the GPU of every rank.
    RankFile(String),
}

impl Policy {
    /// The words for all but rank files.
    pub const WORDS: [&str; 4] = ["linear", "random", "topology-aware", "min-cut"];
}

impl From<String> for Policy {
    fn from(word: String) -> Self {
        match word.as_str() {
            "linear" => Self::Linear,
            "random" => Self::Random,
            "topology-aware" => Self::TopologyAware,
            "min-cut" => Self::MinCut,
            _ => Self::RankFile(word),
        }
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Linear => "linear".to_owned(),
            Policy::Random => "random".to_owned(),
            Policy::TopologyAware => "topology-aware".to_owned(),
            Policy::MinCut => "min-cut".to_owned(),
            Policy::RankFile(path) => path,
        }
    }
}

impl<'de> Deserialize<'de> for PlacementConfig {
    /// A word alone is a policy; a table may also say what is busy.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = PlacementConfig;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "a policy, the path of a rank file, or a table with `policy`")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<PlacementConfig, E> {
                Ok(PlacementConfig {
                    policy: Policy::from(word.to_owned()),
                    ..PlacementConfig::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PlacementConfig, A::Error> {
                let table = PlacementTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PlacementConfig { policy: table.policy, busy: table.busy })
            }
        }
        deserializer.deserialize_any(Choice)
    }
}

/// The long form of a placement.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct PlacementTable {
    /// linear, random, topology-aware, min-cut, or the path of a rank file.
    #[schemars(with = "String")]
    policy: Policy,
    /// The share of the cluster's nodes that other jobs hold, scattered at random.
    busy: f64,
}

impl Default for PlacementTable {
    fn default() -> Self {
        let PlacementConfig { policy, busy } = PlacementConfig::default();
        Self { policy, busy }
    }
}

impl JsonSchema for PlacementConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Placement".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<PlacementTable>();
        json_schema!({
            "x-word": "policy",
            "anyOf": [
                {
                    "type": "string",
                    "description": "linear, random, topology-aware, min-cut, or a rank file",
                },
                table,
            ],
        })
    }
}

/// The places of a cluster, GPUs numbered node by node, nodes leaf by leaf, leaves zone by zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Nodes of the cluster.
    pub nodes: u64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    /// Nodes under one leaf switch (or one set of rail leaves).
    pub nodes_per_leaf: u64,
    /// Nodes in one zone: a pod, or the whole cluster where there are none.
    pub nodes_per_zone: u64,
}

/// The GPU of every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    gpus: Vec<u32>,
}

impl Placement {
    /// These GPUs for the ranks, in a cluster of so many.
    pub fn of(gpus: Vec<u32>, cluster: u64) -> Result<Self, PlacementError> {
        let mut taken = vec![false; usize::try_from(cluster).expect("GPUs fit memory")];
        for (rank, &gpu) in (0..).zip(&gpus) {
            let Some(seat) = taken.get_mut(gpu as usize) else {
                return Err(PlacementError::NoSuchGpu { rank, gpu: u64::from(gpu), gpus: cluster });
            };
            if std::mem::replace(seat, true) {
                return Err(PlacementError::Twice { gpu: u64::from(gpu) });
            }
        }
        Ok(Self { gpus })
    }

    /// The GPU of `rank`.
    pub fn gpu(&self, rank: u64) -> u64 {
        u64::from(self.gpus[usize::try_from(rank).expect("ranks fit memory")])
    }

    /// The GPUs of all ranks.
    pub fn gpus(&self) -> &[u32] {
        &self.gpus
    }
}

/// Why ranks cannot be placed.
#[derive(Clone, Debug, PartialEq)]
pub enum PlacementError {
    /// Too few nodes are free.
    NoRoom {
        /// GPUs that the job needs.
        needed: u64,
        /// GPUs on free nodes.
        free: u64,
        /// The share of nodes that is busy.
        busy: f64,
    },
    /// Too few servers can be used.
    NoSeats {
        /// GPUs that the job needs.
        needed: u64,
        /// GPUs that can be used.
        free: u64,
    },
    /// A rank file names too few or too many GPUs.
    Ranks {
        /// Ranks of the job.
        needed: u64,
        /// Lines of the file.
        found: u64,
    },
    /// A rank file names a GPU that the cluster does not have.
    NoSuchGpu {
        /// The rank.
        rank: u64,
        /// Its GPU.
        gpu: u64,
        /// GPUs of the cluster.
        gpus: u64,
    },
    /// A rank file names a GPU twice.
    Twice {
        /// The GPU.
        gpu: u64,
    },
}

impl fmt::Display for PlacementError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom { needed, free, busy } => write!(
                out,
                "the job needs {needed} GPUs and {free} are free with {:.0} % of the nodes busy",
                busy * 100.0
            ),
            Self::NoSeats { needed, free } => {
                write!(out, "the job needs {needed} GPUs and {free} can be used")
            }
            Self::Ranks { needed, found } => {
                write!(out, "the rank file lists {found} GPUs and the job has {needed} ranks")
            }
            Self::NoSuchGpu { rank, gpu, gpus } => {
                write!(out, "rank {rank} is put on GPU {gpu}, but the cluster has {gpus}")
            }
            Self::Twice { gpu } => write!(out, "two ranks are put on GPU {gpu}"),
        }
    }
}

impl std::error::Error for PlacementError {}

/// Places the ranks of a layout. `ranks` is the content of the rank file, or what the search behind
/// `min-cut` has found, if the policy is one of these.
pub fn place(
    config: &PlacementConfig,
    layout: &Layout,
    slots: &Slots,
    ranks: &[u64],
    seed: u64,
) -> Result<Placement, PlacementError> {
    if let Policy::RankFile(_) | Policy::MinCut = config.policy {
        return listed(layout, slots, ranks);
    }
    place_on(config, layout, slots, free_nodes(slots, config.busy, seed), seed)
}

/// The same on these nodes, for policies that need no list of GPUs.
pub fn place_on(
    config: &PlacementConfig,
    layout: &Layout,
    slots: &Slots,
    mut free: Vec<u64>,
    seed: u64,
) -> Result<Placement, PlacementError> {
    let gpus = layout.gpus();
    if (free.len() as u64) * slots.gpus_per_node < gpus {
        let free = free.len() as u64 * slots.gpus_per_node;
        return Err(PlacementError::NoRoom { needed: gpus, free, busy: config.busy });
    }
    let in_order = |nodes: &[u64]| -> Placement {
        let gpus = (0..gpus).map(|rank| gpu_at(nodes, slots, rank)).collect();
        Placement { gpus }
    };
    match config.policy {
        Policy::Linear | Policy::RankFile(_) | Policy::MinCut => Ok(in_order(&free)),
        Policy::Random => {
            Random::new(seed, "placement", 0).shuffle(&mut free);
            Ok(in_order(&free))
        }
        Policy::TopologyAware => Ok(topology_aware(layout, slots, &free)),
    }
}

fn gpu_at(nodes: &[u64], slots: &Slots, position: u64) -> u32 {
    let node = nodes[usize::try_from(position / slots.gpus_per_node).expect("nodes fit memory")];
    let gpu = node * slots.gpus_per_node + position % slots.gpus_per_node;
    u32::try_from(gpu).expect("fewer than 2^32 GPUs")
}

fn listed(layout: &Layout, slots: &Slots, ranks: &[u64]) -> Result<Placement, PlacementError> {
    let (needed, found) = (layout.gpus(), ranks.len() as u64);
    if needed != found {
        return Err(PlacementError::Ranks { needed, found });
    }
    let gpus = slots.nodes * slots.gpus_per_node;
    let narrow = |(rank, &gpu): (u64, &u64)| {
        u32::try_from(gpu).map_err(|_| PlacementError::NoSuchGpu { rank, gpu, gpus })
    };
    let placed: Vec<u32> = (0..).zip(ranks).map(narrow).collect::<Result<_, _>>()?;
    Placement::of(placed, gpus)
}

/// Nodes that no other job holds, in order.
pub fn free_nodes(slots: &Slots, busy: f64, seed: u64) -> Vec<u64> {
    let mut nodes: Vec<u64> = (0..slots.nodes).collect();
    if 0.0 < busy {
        Random::new(seed, "busy nodes", 0).shuffle(&mut nodes);
        let taken = (slots.nodes as f64 * busy.min(1.0)).round() as usize;
        nodes.drain(..taken.min(nodes.len()));
        nodes.sort_unstable();
    }
    nodes
}

/// The part of data parallelism that experts are spread over, which lies inside the pipeline.
fn near(layout: &Layout) -> u64 {
    let Layout { cp, dp, ep, .. } = *layout;
    if ep.is_multiple_of(cp) && dp.is_multiple_of(ep / cp) { ep / cp } else { 1 }
}

/// The ranks in the order of the seats that they take in `topology-aware`: tensor, then context,
/// then the experts' part of data, then pipeline, then data.
pub fn topology_aware_order(layout: &Layout) -> Vec<u32> {
    let near = near(layout);
    let mut ranks = Vec::with_capacity(usize::try_from(layout.gpus()).expect("ranks fit memory"));
    for outer in 0..layout.dp / near {
        for pp in 0..layout.pp {
            for dp in outer * near..(outer + 1) * near {
                for cp in 0..layout.cp {
                    for tp in 0..layout.tp {
                        let rank = layout.rank(Coordinates { tp, cp, pp, dp });
                        ranks.push(u32::try_from(rank).expect("fewer than 2^32 ranks"));
                    }
                }
            }
        }
    }
    ranks
}

fn topology_aware(layout: &Layout, slots: &Slots, free: &[u64]) -> Placement {
    let near = near(layout);
    let inner = layout.tp * layout.cp * near;
    let nodes_of = |gpus: u64| gpus.div_ceil(slots.gpus_per_node);
    // Groups that share nodes cannot be packed node by node: then order alone keeps them close.
    let whole = |gpus: u64| gpus.is_multiple_of(slots.gpus_per_node);
    let nodes = if whole(inner * layout.pp) {
        let by_zone = bins(free, slots.nodes_per_zone);
        let pipelines = pack(by_zone, nodes_of(inner * layout.pp), layout.dp / near);
        let mut nodes = Vec::with_capacity(free.len());
        for pipeline in pipelines {
            if whole(inner) {
                let by_leaf = bins(&pipeline, slots.nodes_per_leaf);
                nodes.extend(pack(by_leaf, nodes_of(inner), layout.pp).into_iter().flatten());
            } else {
                nodes.extend(pipeline);
            }
        }
        nodes
    } else {
        free.to_vec()
    };
    let mut gpus = vec![0; usize::try_from(layout.gpus()).expect("ranks fit memory")];
    for (position, rank) in (0..).zip(topology_aware_order(layout)) {
        gpus[rank as usize] = gpu_at(&nodes, slots, position);
    }
    Placement { gpus }
}

/// Nodes by the leaf or zone of `size` that they are in.
fn bins(nodes: &[u64], size: u64) -> Vec<Vec<u64>> {
    nodes.chunk_by(|a, b| a / size.max(1) == b / size.max(1)).map(<[u64]>::to_vec).collect()
}

/// `count` groups of `size` nodes: whole ones from each bin first, then from what is left over.
fn pack(bins: Vec<Vec<u64>>, size: u64, count: u64) -> Vec<Vec<u64>> {
    let size = usize::try_from(size).expect("nodes fit memory");
    let count = usize::try_from(count).expect("groups fit memory");
    let mut groups = Vec::with_capacity(count);
    let mut left = Vec::new();
    for bin in bins {
        let mut chunks = bin.chunks_exact(size);
        while groups.len() < count {
            let Some(group) = chunks.next() else { break };
            groups.push(group.to_vec());
        }
        left.extend(chunks.clone().flatten().chain(chunks.remainder()).copied());
    }
    for group in left.chunks_exact(size).take(count - groups.len()) {
        groups.push(group.to_vec());
    }
    assert_eq!(groups.len(), count, "free nodes were counted before");
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::{GroupKind, RankOrder};

    const SLOTS: Slots =
        Slots { nodes: 96, gpus_per_node: 8, nodes_per_leaf: 2, nodes_per_zone: 24 };

    fn layout(pp: u64, dp: u64, order: RankOrder) -> Layout {
        Layout { tp: 8, cp: 1, pp, vpp: 1, dp, ep: 1, etp: 8, shard: dp, order }
    }

    fn config(policy: Policy, busy: f64) -> PlacementConfig {
        PlacementConfig { policy, busy }
    }

    /// How many pipelines lie in more than one zone.
    fn split(layout: &Layout, placement: &Placement) -> usize {
        let zone = |rank| placement.gpu(rank) / SLOTS.gpus_per_node / SLOTS.nodes_per_zone;
        (0..layout.groups(GroupKind::Pipeline))
            .map(|index| layout.group(GroupKind::Pipeline, index))
            .filter(|group| group.members().any(|rank| zone(rank) != zone(group.member(0))))
            .count()
    }

    /// Property: no GPU is used twice, whatever the policy.
    #[test]
    fn every_rank_has_a_gpu_of_its_own() {
        for order in [RankOrder::TpCpPpDp, RankOrder::TpCpDpPp] {
            for policy in [Policy::Linear, Policy::Random, Policy::TopologyAware] {
                for busy in [0.0, 0.3] {
                    let layout = layout(8, 8, order);
                    let config = config(policy.clone(), busy);
                    let placement = place(&config, &layout, &SLOTS, &[], 7).unwrap();
                    let mut gpus = placement.gpus().to_vec();
                    gpus.sort_unstable();
                    gpus.dedup();
                    assert_eq!(gpus.len() as u64, layout.gpus(), "{config:?}");
                    assert!(u64::from(*gpus.last().unwrap()) < 96 * 8);
                    assert_eq!(placement, place(&config, &layout, &SLOTS, &[], 7).unwrap());
                }
            }
        }
    }

    /// A zone has room for three pipelines of eight nodes, so none needs to be split, whatever
    /// the numbering; with holes in the zones at most what does not fit whole.
    #[test]
    fn topology_aware_placement_keeps_pipelines_in_a_zone() {
        for order in [RankOrder::TpCpPpDp, RankOrder::TpCpDpPp] {
            let layout = layout(8, 8, order);
            let split = |policy, busy| {
                let config = config(policy, busy);
                split(&layout, &place(&config, &layout, &SLOTS, &[], 7).unwrap())
            };
            assert_eq!(split(Policy::TopologyAware, 0.0), 0);
            assert_eq!(split(Policy::Random, 0.0), 64);
            // 67 free nodes, 64 needed: what a zone has beyond a multiple of eight is a rest, and
            // only pipelines made of rests are split. Each of a node's eight ranks has its own.
            let whole: usize = bins(&free_nodes(&SLOTS, 0.3, 7), SLOTS.nodes_per_zone)
                .iter()
                .map(|zone| zone.len() / 8)
                .sum();
            assert_eq!(split(Policy::TopologyAware, 0.3), 8 * (8 - whole.min(8)));
            assert!(split(Policy::TopologyAware, 0.3) <= split(Policy::Linear, 0.3));
            assert!(split(Policy::TopologyAware, 0.3) < split(Policy::Random, 0.3));
        }
    }

    #[test]
    fn what_cannot_be_placed_is_said() {
        let layout = layout(4, 24, RankOrder::TpCpPpDp);
        let message = |policy, busy, ranks: &[u64]| {
            place(&config(policy, busy), &layout, &SLOTS, ranks, 1).unwrap_err().to_string()
        };
        assert_eq!(
            message(Policy::Linear, 0.25, &[]),
            "the job needs 768 GPUs and 576 are free with 25 % of the nodes busy"
        );
        let file = || Policy::RankFile("ranks.txt".to_owned());
        assert_eq!(
            message(file(), 0.0, &[1, 2]),
            "the rank file lists 2 GPUs and the job has 768 ranks"
        );
        let mut ranks: Vec<u64> = (0..768).collect();
        ranks[5] = 768;
        let missing = "rank 5 is put on GPU 768, but the cluster has 768";
        assert_eq!(message(file(), 0.0, &ranks), missing);
        ranks[5] = 4;
        assert_eq!(message(file(), 0.0, &ranks), "two ranks are put on GPU 4");
    }

    #[test]
    fn a_word_or_a_table() {
        let read = |text: &str| serde_json::from_str::<PlacementConfig>(text).unwrap();
        assert_eq!(read("\"random\""), config(Policy::Random, 0.0));
        assert_eq!(read("\"my/ranks\""), config(Policy::RankFile("my/ranks".to_owned()), 0.0));
        let table = config(Policy::Linear, 0.25);
        assert_eq!(read("{\"policy\": \"linear\", \"busy\": 0.25}"), table);
        assert_eq!(read(&serde_json::to_string(&table).unwrap()), table);
        let wrong = serde_json::from_str::<PlacementConfig>("{\"polcy\": \"linear\"}");
        assert!(wrong.unwrap_err().to_string().contains("unknown field `polcy`"));
    }
}
