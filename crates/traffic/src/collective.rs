//! Collectives: what they are, the algorithms that run them, and how these write themselves out.
//!
//! An [`Algorithm`] is one file. It says which collectives it serves and what NCCL's cost model
//! expects of it, how many bytes it puts on the busiest link of each kind (for the analytic
//! engine), and it writes itself as [`Transfers`]: *folded*, where a channel is one coupled
//! operation whose cost does not depend on the number of steps, or *stepwise*, message by message
//! with NCCL's chunks and dependencies, for engines that move packets. Both put the same bytes on
//! the same connections.
//!
//! To add one: write its file, add it to [`ALGORITHMS`].
//!
//! Connections are persistent: a [`Group`] remembers which ones it has opened, so the second
//! collective of a communicator uses the queue pairs of the first.

pub mod all_pairs;
pub mod all_to_all;
pub mod collnet_chain;
pub mod communicator;
pub mod copy_engine;
pub mod hierarchical;
pub mod hierarchical_all_to_all;
pub mod lower;
pub mod moe;
pub mod moe_low_latency;
pub mod nvls;
pub mod nvls_tree;
pub mod pat;
pub mod ring;
pub mod rooted;
pub mod routing;
pub mod send_recv;
pub mod sharp;
pub mod symmetric;
pub mod tree;
pub mod writer;

pub use communicator::{Communicator, CrossNic, Hop, Pxn, ScaleUp, Shape};
pub use lower::{Limit, Lowered, Unlowered, Wanted, lower};
pub use routing::Routing;
pub use writer::{Detail, Group, Request, Sheet, write};

use fabric::Fabric;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::nccl::{Offer, Plan, Protocol, Settings};

/// All algorithms. Those that NCCL chooses between come first, in its order.
pub const ALGORITHMS: &[&dyn Algorithm] = &[
    &tree::Tree,
    &ring::Ring,
    &sharp::Sharp,
    &collnet_chain::CollNetChain,
    &nvls::Nvls,
    &nvls_tree::NvlsTree,
    &pat::Pat,
    &symmetric::Symmetric,
    &copy_engine::CopyEngine,
    &all_pairs::AllPairs,
    &hierarchical::Hierarchical,
    &all_to_all::AllToAll,
    &hierarchical_all_to_all::HierarchicalAllToAll,
    &moe::Moe,
    &moe_low_latency::MoeLowLatency,
    &send_recv::SendRecv,
    &rooted::Rooted,
];

/// What is to be done with everybody's data.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Everybody gets the sum of all. `bytes` is one rank's buffer.
    AllReduce,
    /// Everybody gets everybody's part. `bytes` is the gathered whole.
    AllGather,
    /// Everybody gets its part of the sum. `bytes` is the whole before it is scattered.
    ReduceScatter,
    /// Everybody gets the root's data. `bytes` is that.
    Broadcast,
    /// The root gets the sum. `bytes` is one rank's buffer.
    Reduce,
    /// The root gets everybody's part. `bytes` is the gathered whole.
    Gather,
    /// Everybody gets a part from the root. `bytes` is the whole before it is scattered.
    Scatter,
    /// Everybody sends a part to everybody. `bytes` is all that one rank sends, its own part
    /// included.
    AllToAll,
    /// Each rank sends `bytes` to the next; the last one only receives.
    SendRecv,
    /// Tokens go to their experts. `bytes` is one copy of each token of one rank.
    MoeDispatch,
    /// Experts' outputs come back. `bytes` is one copy of each token of one rank.
    MoeCombine,
    /// The same with DeepEP's low-latency kernels. `bytes` counts every copy.
    #[serde(rename = "moe_dispatch_ll")]
    MoeDispatchLowLatency,
    /// The same with DeepEP's low-latency kernels. `bytes` counts every copy.
    #[serde(rename = "moe_combine_ll")]
    MoeCombineLowLatency,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
        Self::SendRecv,
        Self::MoeDispatch,
        Self::MoeCombine,
        Self::MoeDispatchLowLatency,
        Self::MoeCombineLowLatency,
    ];

    /// Whether it carries tokens to experts or back.
    pub fn is_expert_parallel(self) -> bool {
        matches!(
            self,
            Self::MoeDispatch
                | Self::MoeCombine
                | Self::MoeDispatchLowLatency
                | Self::MoeCombineLowLatency
        )
    }

    /// Its name in scenario files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::SendRecv => "send_recv",
            Self::MoeDispatch => "moe_dispatch",
            Self::MoeCombine => "moe_combine",
            Self::MoeDispatchLowLatency => "moe_dispatch_ll",
            Self::MoeCombineLowLatency => "moe_combine_ll",
        }
    }

    /// The collective with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|collective| collective.name() == name)
    }

    /// Whether it is messages from rank to rank, and nothing is passed on in slices.
    pub fn is_sends(self) -> bool {
        use Collective::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
        !matches!(self, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce)
    }

    /// What algorithm bandwidth (bytes by time) is multiplied with to give bus bandwidth:
    /// nccl-tests doc/PERFORMANCE.md.
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks);
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (ranks - 1.0) / ranks,
            Self::Gather | Self::Scatter => (ranks - 1.0) / ranks,
            _ => 1.0,
        }
    }
}

/// A question to an algorithm: this collective, of so many bytes, on these ranks.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The network that the ranks are part of.
    pub fabric: &'a Fabric,
    /// The ranks.
    pub communicator: &'a Communicator,
    /// What is to be done.
    pub collective: Collective,
    /// With how much, as nccl-tests counts it.
    pub bytes: Bytes,
    /// By what software.
    pub settings: &'a Settings,
    /// How an all-to-all's bytes are shared out over the ranks that receive them; empty for
    /// equally. Where senders differ, one for each pair, sender by sender, and 1 is an equal
    /// share. For experts' dispatch and combine: how loaded each rank's experts are.
    pub weights: &'a [f64],
}

impl Ask<'_> {
    /// The sizes and rates of the communicator.
    pub fn shape(&self) -> &Shape {
        self.communicator.shape()
    }

    /// What each rank sends to this one in an all-to-all.
    pub fn bytes_to(&self, rank: u32) -> u64 {
        let (whole, ranks) = (self.bytes.get(), u64::from(self.shape().ranks));
        if self.weights.is_empty() {
            return part(whole, ranks, rank.into());
        }
        // Shares are rounded at their bounds, so that they add up.
        let sum: f64 = self.weights.iter().sum();
        let bound = |end: u32| {
            let before: f64 = self.weights[..end as usize].iter().sum();
            (whole as f64 * (before / sum)).round() as u64
        };
        bound(rank + 1) - bound(rank)
    }

    /// What one rank sends to another in an all-to-all.
    pub fn bytes_between(&self, from: u32, to: u32) -> u64 {
        if !self.is_by_pair() {
            return self.bytes_to(to);
        }
        let ranks = self.shape().ranks;
        let weight = self.weights[from as usize * ranks as usize + to as usize];
        (self.bytes.as_f64() / f64::from(ranks) * weight).round() as u64
    }

    /// What the busiest rank sends or receives, 1 being the mean.
    pub fn hottest(&self) -> f64 {
        let ranks = self.shape().ranks as usize;
        let most = |sums: &mut dyn Iterator<Item = f64>| sums.fold(0.0, f64::max);
        let sum: f64 = self.weights.iter().sum();
        if self.weights.is_empty() || sum <= 0.0 {
            return 1.0;
        }
        if !self.is_by_pair() {
            return most(&mut self.weights.iter().copied()) * ranks as f64 / sum;
        }
        let sent = most(&mut self.weights.chunks(ranks).map(|row| row.iter().sum()));
        let to = |rank: usize| self.weights.iter().skip(rank).step_by(ranks).sum();
        let received = most(&mut (0..ranks).map(to));
        sent.max(received) / ranks as f64
    }

    /// Whether there is a weight for each pair.
    fn is_by_pair(&self) -> bool {
        let ranks = self.shape().ranks as usize;
        1 < ranks && self.weights.len() == ranks * ranks
    }
}

/// What one phase of a collective costs. Phases follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Bytes through the busiest direction of the busiest GPU's scale-up links.
    pub scale_up: f64,
    /// Bytes over the busiest link of a mesh.
    pub mesh_link: f64,
    /// Bytes through the busiest direction of the busiest NIC.
    pub nic: f64,
    /// Messages that one rank's proxy posts to its NIC.
    pub posts: f64,
    /// The protocol of these, which decides what a post costs.
    pub protocol: Protocol,
    /// Seconds that the library's channels take at least to move the bytes.
    pub channels_s: f64,
    /// What share of the scale-up links' usable rate the software reaches in this phase.
    pub efficiency: f64,
    /// The same for the NICs.
    pub net_efficiency: f64,
    /// Seconds that steps and hand-overs take without any bytes, with the ways between servers.
    pub latency_s: f64,
    /// Messages over one connection between servers.
    pub messages: f64,
    /// How many of them may be under way before its peer answers: the slots of its buffer.
    pub slots: f64,
    /// How long the answer takes, in round trips.
    pub answer: f64,
    /// Seconds of the latency that pass anyway while answers come.
    pub overlap_s: f64,
    /// What a connection between servers is first given to send at once, in bytes: it begins with
    /// its first window.
    pub first_message: f64,
    /// How many so new ones follow each other on the critical path, in farthest ones.
    pub new_connections: f64,
    /// Seconds until the pipeline is full and again until it has drained.
    pub drain_s: f64,
}

impl Default for Phase {
    /// Nothing moves, and what does moves at full rate.
    fn default() -> Self {
        Self {
            scale_up: 0.0,
            mesh_link: 0.0,
            nic: 0.0,
            posts: 0.0,
            protocol: Protocol::Simple,
            channels_s: 0.0,
            efficiency: 1.0,
            net_efficiency: 1.0,
            latency_s: 0.0,
            messages: 0.0,
            slots: 1.0,
            answer: 1.0,
            overlap_s: 0.0,
            first_message: 0.0,
            new_connections: 0.0,
            drain_s: 0.0,
        }
    }
}

/// One way to run collectives.
pub trait Algorithm: std::fmt::Debug + Sync {
    /// Its name in scenario files and tables.
    fn name(&self) -> &'static str;

    /// Whether it can run this collective on these ranks.
    fn serves(&self, ask: &Ask<'_>) -> bool;

    /// What NCCL's cost model expects of it; `None` keeps it out of the automatic choice.
    fn offer(&self, ask: &Ask<'_>, protocol: Protocol) -> Option<Offer>;

    /// How many channels it uses when all are worth using.
    fn channels(&self, ask: &Ask<'_>) -> u32;

    /// The most that a channel sends in one step.
    fn chunk(&self, ask: &Ask<'_>, protocol: Protocol, channels: u32) -> Bytes;

    /// What it costs on links without other traffic.
    fn phases(&self, ask: &Ask<'_>, plan: &Plan) -> Vec<Phase>;

    /// About how many operations it is when every message is written out. Known before it is, since
    /// they can be more than memory holds.
    fn operations(&self, ask: &Ask<'_>, plan: &Plan) -> f64;

    /// Writes it out.
    fn write(&self, ask: &Ask<'_>, plan: &Plan, sheet: &mut Sheet<'_>);
}

/// The algorithm with this name.
pub fn algorithm(name: &str) -> Option<&'static dyn Algorithm> {
    ALGORITHMS.iter().copied().find(|algorithm| algorithm.name() == name)
}

/// The schema of a setting that names an algorithm, so that other names are refused.
pub(crate) fn algorithm_names(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let names: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name()).collect();
    schemars::json_schema!({ "enum": names })
}

/// Part `index` of `parts` of a whole that need not divide: parts differ by at most one byte.
pub(crate) fn part(whole: u64, parts: u64, index: u64) -> u64 {
    let bound = |at: u64| (u128::from(whole) * u128::from(at) / u128::from(parts)) as u64;
    bound(index + 1) - bound(index)
}

/// `whole · numerator / denominator`, rounded up.
pub(crate) fn share(whole: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(whole) * u128::from(numerator);
    u64::try_from(scaled.div_ceil(u128::from(denominator))).expect("a share fits 64 bits")
}
