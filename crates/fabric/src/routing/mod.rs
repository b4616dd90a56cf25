//! Routing policies: which of several equally near links a packet takes.
//!
//! [`Routes`] says which links lead nearer; a policy picks one of them. A policy never touches the
//! network: it is asked, and answers. Both engines ask the same objects. The packet engine asks at
//! every switch for each packet, flowlet or flow, as [`Routing::grain`] says; the flow engine walks
//! each queue pair once ([`walk`](walk::walk)) or spreads it as [`Routing::spread`] says.
//!
//! # Adding a policy
//!
//! 1. Write `routing/name.rs`: a state struct, one `impl Routing`, and tests.
//! 2. Add its `mod` line, its variant of [`Policy`] and its arm of [`RoutingConfig::build`].
//!
//! Nothing outside this folder changes; the shared tests loop over [`Policy::ALL`].

use std::collections::BTreeMap;
use std::fmt::Debug;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges, Span};

use crate::graph::{Fabric, LinkId, NodeId};
use crate::hash::{FlowKey, HashFields, HashFunction, UdpSource};
use crate::routes::Routes;

pub mod adaptive;
pub mod e_ecmp;
pub mod ecmp;
pub mod flowlet;
pub mod infiniband_adaptive;
mod of_tiers;
pub mod path_pinning;
pub mod queue_pairs;
pub mod reps;
pub mod spray;
pub mod static_up_down;
pub mod traffic_engineering;
pub mod walk;

pub use adaptive::Choice;
pub use ecmp::{Members, Seeds};
pub use flowlet::FlowletChoice;
pub use path_pinning::Slice;
pub use queue_pairs::{QueuePairCost, QueuePairs};
pub use walk::{NoPath, Walker};

/// For how long a choice holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grain {
    /// For all packets of a flow.
    Flow,
    /// For packets of a flow that follow each other within `gap`.
    Flowlet {
        /// A pause this long lets the flow choose again.
        gap: Span,
    },
    /// For one packet.
    Packet,
}

/// How the flow engine lays a flow over the candidates at a switch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spread {
    /// On one of them.
    One,
    /// On all of them, equally.
    Even,
    /// On all of them, less where there is more congestion.
    Weighted,
}

/// What a switch knows of its queues.
pub trait Load {
    /// Bytes that wait to cross the link.
    fn queued(&self, link: LinkId) -> Bytes;
}

/// All queues empty: for policies that do not look, and for walks before a run.
#[derive(Clone, Copy, Debug)]
pub struct EmptyQueues;

impl Load for EmptyQueues {
    fn queued(&self, _link: LinkId) -> Bytes {
        Bytes::ZERO
    }
}

/// A flow as a central planner knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Its addresses and numbers.
    pub key: FlowKey,
    /// What it would send alone, in bits per second.
    pub rate_bps: f64,
}

/// The links that a flow crosses, from the sending NIC to the receiving one.
pub type Path = Vec<LinkId>;

/// One policy on one fabric.
pub trait Routing: Debug {
    /// Which of `candidates`, of which there is at least one, leads the flow on from `at`.
    ///
    /// `packet` counts what [`Self::grain`] names: packets or flowlets of the flow; 0 for flows.
    fn choose(
        &mut self,
        at: NodeId,
        key: &FlowKey,
        packet: u64,
        candidates: &[LinkId],
        load: &dyn Load,
    ) -> usize;

    /// For how long a choice holds.
    fn grain(&self) -> Grain {
        Grain::Flow
    }

    /// How many entropy values a sender alternates between; each has a path of its own.
    fn entropies(&self) -> u16 {
        1
    }

    /// How the flow engine lays a message of this size over the candidates.
    fn spread(&self, _message: Bytes) -> Spread {
        Spread::One
    }

    /// Whether a message of this size is spread at this switch.
    fn spreads_at(&self, _at: NodeId, message: Bytes) -> bool {
        self.spread(message) != Spread::One
    }

    /// Whether all switches choose alike.
    fn is_uniform(&self) -> bool {
        true
    }

    /// Whole paths for flows that are known beforehand; `None` if the policy does not plan, and
    /// `None` for a flow that has no path. Called again every [`Self::interval`].
    fn plan(
        &mut self,
        _fabric: &Fabric,
        _routes: &mut Routes,
        _demands: &[Demand],
    ) -> Option<Vec<Option<Path>>> {
        None
    }

    /// How often the planner looks again.
    fn interval(&self) -> Option<Span> {
        None
    }
}

/// Which policy.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// A hash of the fields that `hash` names, at each switch.
    #[default]
    Ecmp,
    /// ECMP on the 5-tuple and the destination queue pair number, whatever `hash` says.
    EEcmp,
    /// Each port of a leaf has its own uplink: Meta's first scheme.
    PathPinning,
    /// A central controller lays known flows on the least loaded shortest paths.
    TrafficEngineering,
    /// A flow may choose again after a pause.
    Flowlet,
    /// Packets in turn over all candidates.
    Spray,
    /// Packets over several hashed paths, those first that met no congestion.
    Reps,
    /// Packets to the emptiest candidate.
    Adaptive,
    /// InfiniBand's adaptive routing: the static port until that is busy, then the emptiest.
    InfinibandAdaptive,
    /// InfiniBand's static routing: the destination decides (D-mod-k).
    StaticUpDown,
}

impl Policy {
    /// All policies, for tests and help texts.
    pub const ALL: [Self; 10] = [
        Self::Ecmp,
        Self::EEcmp,
        Self::PathPinning,
        Self::TrafficEngineering,
        Self::Flowlet,
        Self::Spray,
        Self::Reps,
        Self::Adaptive,
        Self::InfinibandAdaptive,
        Self::StaticUpDown,
    ];

    /// Whether packets of one flow may take several paths.
    pub fn spreads(self) -> bool {
        matches!(self, Self::Spray | Self::Reps | Self::Adaptive | Self::InfinibandAdaptive)
    }

    /// The name that scenarios use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecmp => "ecmp",
            Self::EEcmp => "e-ecmp",
            Self::PathPinning => "path-pinning",
            Self::TrafficEngineering => "traffic-engineering",
            Self::Flowlet => "flowlet",
            Self::Spray => "spray",
            Self::Reps => "reps",
            Self::Adaptive => "adaptive",
            Self::InfinibandAdaptive => "infiniband-adaptive",
            Self::StaticUpDown => "static-up-down",
        }
    }
}

/// What the controller of traffic engineering knows.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum KnownDemand {
    /// All that will be sent, before any of it is: a scheduler told it.
    #[default]
    Planned,
    /// What queue pairs had to send when they were last measured; before that, flows are hashed.
    Measured,
}

/// How a connection uses its queue pairs.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum QueuePairUse {
    /// Every message is cut into equal parts, one for each (`NCCL_IB_SPLIT_DATA_ON_QPS=1`).
    Split,
    /// Whole messages in turn (`NCCL_IB_SPLIT_DATA_ON_QPS=0`).
    #[default]
    RoundRobin,
}

/// How flows find their paths: the table `[network] routing`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoutingConfig {
    /// Which policy.
    pub policy: Policy,
    /// The policy of switches of single tiers, by the tier's name, where parts of a fabric choose
    /// differently.
    pub policy_of_tier: BTreeMap<String, Policy>,
    /// Which fields of a packet switches hash.
    pub hash: HashFields,
    /// The hash function of the switches.
    pub function: HashFunction,
    /// Whether switches have different hash seeds; equal ones polarise.
    pub seeds: Seeds,
    /// How a hash becomes a member of a group, and what happens when a member fails.
    pub members: Members,
    /// Queue pairs of a connection that does not say how many it has: NCCL's
    /// `NCCL_IB_QPS_PER_CONNECTION`.
    pub qps: u16,
    /// How a connection uses its queue pairs.
    pub split: QueuePairUse,
    /// The size of the pieces in which a large operation is dealt out, round robin, to the queue
    /// pairs of its connection; what one of them gets follows as one message.
    pub chunk: Bytes,
    /// How the sender chooses the UDP source port of a queue pair.
    pub udp_source: UdpSource,
    /// Path pinning: whether the sender's or the receiver's port decides.
    pub slice: Slice,
    /// Traffic engineering: how often the controller recomputes, and measures.
    pub interval: Span,
    /// Traffic engineering: what the controller knows.
    pub demand: KnownDemand,
    /// Traffic engineering: from a measurement until flows follow the plan that it led to.
    pub staleness: Span,
    /// Flowlets: the pause after which a flow may choose again.
    pub gap: Span,
    /// Flowlets: what the next path is chosen by.
    pub flowlets: FlowletChoice,
    /// Recycled entropies: the values, and so the paths, that a queue pair alternates between.
    pub entropies: u16,
    /// Adaptive routing: how a switch uses what it knows of its queues.
    pub choice: Choice,
    /// InfiniBand adaptive routing: how full the static port must be before another is tried.
    pub busy: Bytes,
    /// InfiniBand adaptive routing: messages up to this size stay on the static port.
    pub static_below: Bytes,
    /// From a failure, or its end, until the switches next to it know.
    pub detection: Span,
    /// From there until packets take other ways. Left out: nothing where switches choose among
    /// ports themselves, 10 s where a subnet manager computes routes (`static-up-down`).
    pub recomputation: Option<Span>,
}

/// What a subnet manager takes to compute and hand out the routes of a large fabric: "as long as
/// 10-20 seconds" (J. Lotto, Mellanox, at the announcement of SHIELD, EnterpriseAI, 15 June 2017).
const SUBNET_MANAGER: Span = Span::from_ms(10_000);

/// Nobody waits longer for a network.
const LONGEST_REROUTING: Span = Span::from_ms(1_000_000);

impl Default for RoutingConfig {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            policy_of_tier: BTreeMap::new(),
            hash: HashFields::default(),
            function: HashFunction::default(),
            seeds: Seeds::default(),
            members: Members::default(),
            // NCCL_IB_QPS_PER_CONNECTION's default (nccl, src/transport/net_ib/connect.cc).
            qps: 1,
            // NCCL_IB_SPLIT_DATA_ON_QPS is 0 since 2.20 (nccl, net_ib/common.cc).
            split: QueuePairUse::default(),
            // NCCL_BUFFSIZE 4 MiB in NCCL_STEPS 8 slots (nccl, src/init.cc, include/device.h).
            chunk: Bytes::from_kib(512),
            udp_source: UdpSource::default(),
            slice: Slice::default(),
            // Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale",
            // SIGCOMM 2024: the controller recomputes about every 30 s.
            interval: Span::from_ms(30_000),
            demand: KnownDemand::default(),
            // Illustrative: collect, compute and write the switches' tables.
            staleness: Span::from_ms(1_000),
            // The same paper: 256 to 512 µs at 200 Gb/s kept reordering rare.
            gap: Span::from_us(256),
            flowlets: FlowletChoice::default(),
            // Illustrative: as many as Meta's queue pairs.
            entropies: 16,
            choice: Choice::default(),
            // Illustrative: sixteen packets of 4 KiB.
            busy: Bytes::from_kib(64),
            // NCCL_IB_AR_THRESHOLD's default (nccl, net_ib).
            static_below: Bytes::from_kib(8),
            // A physical failure is "often detected in milliseconds" (RFC 7938, section 7.1).
            detection: Span::from_ms(1),
            recomputation: None,
        }
    }
}

/// Who computes the paths: a switch chooses for each packet, or flows are laid out beforehand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Chooser {
    /// Every switch, packet by packet.
    Switch,
    /// The flow engine, for whole flows.
    Flow,
}

impl Ranged for RoutingConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.within("qps", self.qps, [1, 4096]);
        check.at_least("entropies", self.entropies, 1);
        check.positive("chunk", self.chunk);
        check.positive("interval", self.interval);
        let mut policies = self.policy_of_tier.values().chain([&self.policy]);
        let planned = |policy: &Policy| {
            matches!(policy, Policy::TrafficEngineering | Policy::Flowlet | Policy::PathPinning)
        };
        if !self.policy_of_tier.is_empty()
            && let Some(policy) = policies.find(|policy| planned(policy))
        {
            let (keys, range) = (["policy_of_tier", "policy"], "a policy that decides hop by hop");
            check.refuse(&keys, format!("`{}`", policy.name()), range);
        }
        check.at_most("detection", self.detection, LONGEST_REROUTING);
        if let Some(span) = self.recomputation {
            check.at_most("recomputation", span, LONGEST_REROUTING);
        }
    }
}

impl RoutingConfig {
    /// Names the settings that the policy does not look at.
    pub fn unused(&self, chooser: Chooser, idle: &mut units::UnusedKeys) {
        // Where tiers have policies of their own, each looks at settings of its own.
        if self.policy_of_tier.is_empty() {
            self.unused_by_one(chooser, idle);
        }
    }

    fn unused_by_one(&self, chooser: Chooser, idle: &mut units::UnusedKeys) {
        use Policy::{
            Adaptive, EEcmp, Ecmp, Flowlet, InfinibandAdaptive, PathPinning, Reps, Spray,
            StaticUpDown, TrafficEngineering,
        };
        let packets = chooser == Chooser::Switch;
        let of_one_policy: [(&str, Policy, bool); 10] = [
            ("slice", PathPinning, true),
            ("interval", TrafficEngineering, !packets),
            ("demand", TrafficEngineering, !packets),
            ("staleness", TrafficEngineering, !packets),
            ("gap", Flowlet, true),
            ("flowlets", Flowlet, true),
            ("entropies", Reps, packets),
            ("choice", Adaptive, packets),
            ("busy", InfinibandAdaptive, packets),
            ("static_below", InfinibandAdaptive, !packets),
        ];
        for (key, policy, on_this_engine) in of_one_policy {
            let used_by = format!("network.routing.policy={}", policy.name());
            if self.policy != policy {
                let why = format!("the policy is {}", self.policy.name());
                idle.key(key, &why, &used_by);
            } else if !on_this_engine {
                let engine = if packets { "flow" } else { "packet" };
                let used_by = format!("--engine {engine} with {used_by}");
                idle.key(key, "this engine has no such choice to make", &used_by);
            }
        }
        if self.demand == KnownDemand::Planned {
            let why = "the plan knows what will be sent";
            idle.key("staleness", why, "network.routing.demand=measured");
        }
        let by_flows = [Ecmp, EEcmp, Flowlet, PathPinning, TrafficEngineering];
        let hashes = match self.policy {
            InfinibandAdaptive | StaticUpDown => false,
            Spray | Reps | Adaptive => packets,
            Flowlet => packets || self.flowlets == FlowletChoice::Hash,
            _ => true,
        };
        let why = format!("{} hashes nothing here", self.policy.name());
        let used_by = "network.routing.policy=ecmp";
        if !hashes {
            for key in ["hash", "function", "seeds", "members", "udp_source"] {
                idle.key(key, &why, used_by);
            }
        }
        if self.policy == EEcmp {
            idle.key("hash", "e-ecmp hashes the 5-tuple and the queue pair number", used_by);
        }
        let picks_members = match self.policy {
            Flowlet => self.flowlets == FlowletChoice::Hash,
            Reps => packets,
            policy => by_flows.contains(&policy),
        };
        if hashes && !picks_members {
            idle.key("members", "the hash picks no member of a group here", used_by);
        }
        let ports = self.hash == HashFields::Addresses && ![EEcmp, Reps].contains(&self.policy);
        if hashes && ports {
            idle.key("udp_source", "ports are not hashed", "network.routing.hash=5-tuple");
        }
        if self.qps == 1 {
            let why = "a connection has one queue pair";
            idle.key("split", why, "network.routing.qps above 1");
            idle.key("chunk", why, "network.routing.qps above 1");
        } else if self.split == QueuePairUse::Split {
            idle.key("chunk", "messages are split evenly", "network.routing.split=round-robin");
        }
    }

    /// From a failure, or its end, until packets take other ways.
    ///
    /// A switch that hashes takes a dead port out of its groups, and one that routes adaptively
    /// chooses among the others (on InfiniBand SHIELD, which is on by default): both at once.
    pub fn rerouting(&self) -> Span {
        let computed = match self.policy {
            Policy::StaticUpDown => SUBNET_MANAGER,
            _ => Span::ZERO,
        };
        self.detection + self.recomputation.unwrap_or(computed)
    }

    /// Names what only counts when something fails.
    pub fn unused_without_faults(&self, idle: &mut units::UnusedKeys) {
        for key in ["detection", "recomputation"] {
            idle.key(key, "nothing fails", "[[faults]]");
        }
    }

    /// The policy on a fabric, in a run with this seed.
    pub fn build(&self, fabric: &Fabric, seed: u64) -> Box<dyn Routing> {
        if !self.policy_of_tier.is_empty() {
            return Box::new(of_tiers::OfTiers::new(self, fabric, seed));
        }
        match self.policy {
            Policy::Ecmp => Box::new(ecmp::Ecmp::new(self, fabric, seed)),
            Policy::EEcmp => Box::new(e_ecmp::e_ecmp(self, fabric, seed)),
            Policy::PathPinning => Box::new(path_pinning::PathPinning::new(self, fabric, seed)),
            Policy::TrafficEngineering => {
                Box::new(traffic_engineering::TrafficEngineering::new(self, fabric, seed))
            }
            Policy::Flowlet => Box::new(flowlet::Flowlet::new(self, fabric, seed)),
            Policy::Spray => Box::new(spray::Spray::new(self, fabric, seed)),
            Policy::Reps => Box::new(reps::Reps::new(self, fabric, seed)),
            Policy::Adaptive => Box::new(adaptive::Adaptive::new(self, fabric, seed)),
            Policy::InfinibandAdaptive => {
                Box::new(infiniband_adaptive::InfinibandAdaptive::new(self, fabric))
            }
            Policy::StaticUpDown => Box::new(static_up_down::StaticUpDown::new(fabric)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
