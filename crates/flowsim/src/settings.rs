//! What a run of the flow engine can be told.

use std::collections::BTreeMap;

use fabric::fault::{Faults, Leave};
use fabric::graph::DELAYS;
use fabric::parts::Parts;
use fabric::routing::{QueuePairCost, RoutingConfig};
use fabric::{LinkId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use traffic::{Window, dcqcn};
use units::{Bytes, Ranged, Ranges, Rate, Span, Time};

/// What a receiver does with packets that overtake each other.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Receiver {
    /// It places them in any order: a reorder buffer, or selective repeat.
    #[default]
    AnyOrder,
    /// It asks for everything again from the one it misses.
    GoBackN,
}

/// What hardware and protocol leave of the links: the scenario's NICs and transport say it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// Time in a NIC, on each side of a message.
    pub nic_latency: Span,
    /// Payload of a packet: switches pass it on when they have it whole.
    pub packet: Bytes,
    /// The share of a scale-out link's rate that is left for payload.
    pub efficiency: f64,
    /// The share of a scale-up link's rate that is left for payload.
    pub scale_up_efficiency: f64,
    /// What receivers do with packets that overtake each other.
    pub receiver: Receiver,
    /// What a queue pair may have under way, where its congestion control bounds it from the
    /// start.
    pub window: Option<Window>,
    /// What the host moves at most between one NIC and its memory, each way; without it, whatever
    /// the NIC does.
    pub host_rate: Option<Rate>,
    /// What queue pairs cost NICs and hosts.
    pub queue_pairs: QueuePairCost,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            // Half of it on each side makes 64 bytes over one switch take about the 3.6 µs that
            // DeepSeek measured on RoCE (ISCA 2025, table 5): 2 × 1.4 + 0.5 + cables.
            nic_latency: Span::from_ns(1_400),
            // The largest MTU of InfiniBand and RoCE.
            packet: Bytes::from_kib(4),
            // 4,096 bytes of payload in a frame of 4,178: preamble and gap 20, Ethernet 18,
            // IPv4 20, UDP 8, BTH 12, ICRC 4.
            efficiency: 4096.0 / 4178.0,
            // NCCL counts 20.6 of an NVLink 4's 25 GB/s (nccl, src/graph/topo.h).
            scale_up_efficiency: 20.6 / 25.0,
            receiver: Receiver::default(),
            window: None,
            host_rate: None,
            queue_pairs: QueuePairCost::default(),
        }
    }
}

/// How the queue pairs of a connection move the parts of a folded message.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum QueuePairRates {
    /// At one rate: they are one flow over all their ways.
    #[default]
    Together,
    /// Each at its own: they are a flow each, and the message is there when the last part is.
    Apart,
}

/// What flows make of the scenario's congestion control.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum CongestionRates {
    /// Nothing: every flow has its fair share at every instant.
    #[default]
    Fair,
    /// What DCQCN makes of them: rates that are cut where a link is too full, and that climb when
    /// there is room again.
    Controlled,
}

/// The flow engine's own settings.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowConfig {
    /// Time that software and protocol add to each message before it is on the wire.
    pub protocol_latency: Span,
    /// What a queue pair may have in flight; it then sends no more than this in a round trip.
    pub window: Option<Bytes>,
    /// Finishes that lie closer than this share of the time that has passed are one event.
    #[schemars(range(min = 0.0, max = 0.1))]
    pub merge: f64,
    /// Changes of rates below this share are not passed on. Without it rates are exact to 1e-9
    /// as long as that takes about a minute; then 1e-4 is chosen, and 1e-3 beyond that.
    #[schemars(range(min = 1e-12, max = 0.01))]
    pub precision: Option<f64>,
    /// Points of a link's utilisation over time; 0 leaves it out.
    pub points: u32,
    /// How the queue pairs of a connection move a message of a step, whose parts they have.
    pub queue_pairs: QueuePairRates,
    /// What becomes of the scenario's congestion control, which has to be DCQCN.
    pub congestion: CongestionRates,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self {
            protocol_latency: Span::ZERO,
            // Without congestion control, or with one that keeps the bottleneck full.
            window: None,
            // Below what a picosecond can tell apart in any run of seconds.
            merge: 1e-12,
            precision: None,
            points: 32,
            queue_pairs: QueuePairRates::default(),
            congestion: CongestionRates::default(),
        }
    }
}

impl Ranged for FlowConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.within("protocol_latency", self.protocol_latency, DELAYS);
        check.at_most("points", self.points, 65_536);
        if let Some(window) = self.window {
            check.positive("window", window);
        }
    }
}

/// Traffic that shares the links and that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Background {
    /// The sending NIC.
    pub from: NodeId,
    /// The receiving NIC.
    pub to: NodeId,
    /// What it sends if the links let it.
    pub rate: Rate,
    /// When it begins.
    pub start: Time,
    /// When it ends; [`Time::MAX`] for never.
    pub end: Time,
}

/// How queue pairs send again what a fault has lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resend {
    /// How long they wait for an answer.
    pub timeout: Span,
    /// Timeouts without progress after which they give up.
    pub retries: u32,
    /// What a folded channel posts at most on an edge: the library's buffers towards one peer, each
    /// of which the receiver must have named.
    pub buffer: Bytes,
}

/// When a queue marks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marks {
    /// Shorter than this it does not.
    pub from: Bytes,
    /// Longer than this it marks every packet.
    pub all: Bytes,
    /// The share of packets that are marked just below that.
    pub probability: f64,
}

impl Marks {
    /// The share of packets that a queue of so many bytes marks.
    pub fn share(&self, bytes: f64) -> f64 {
        let (least, most) = (self.from.as_f64(), self.all.as_f64());
        match bytes {
            _ if bytes < least => 0.0,
            _ if most <= bytes => 1.0,
            _ => self.probability * (bytes - least) / (most - least),
        }
    }
}

/// DCQCN at the senders, and marks at the switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// What queue pairs do.
    pub dcqcn: dcqcn::Config,
    /// When switches mark.
    pub marks: Marks,
    /// When those of single tiers do, by the tier's number.
    pub marks_of_tier: BTreeMap<u8, Marks>,
    /// Queue pairs that were idle for so long begin anew.
    pub restart_after: Option<Span>,
}

impl Control {
    /// When the switches of a tier mark.
    pub fn marks_at(&self, tier: u8) -> &Marks {
        self.marks_of_tier.get(&tier).unwrap_or(&self.marks)
    }

    /// How often a queue that marks is looked at, in seconds: as often as notifications count.
    pub fn tick_s(&self) -> f64 {
        let counted = match self.dcqcn.notify {
            dcqcn::Notify::Cnp => self.dcqcn.notify_every,
            dcqcn::Notify::Echo => self.dcqcn.alpha_every,
        };
        counted.as_secs_f64().clamp(1e-6, 4e-6)
    }
}

/// All settings of a run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How flows find their paths.
    pub routing: RoutingConfig,
    /// The engine's own settings.
    pub flow: FlowConfig,
    /// What hardware and protocol leave of the links.
    pub wire: Wire,
    /// What fails while the run goes on; what is broken from the start the fabric knows.
    pub faults: Faults,
    /// When queue pairs leave a dead port of their NIC for another.
    pub leave: Leave,
    /// A queue pair that moves nothing for so long gives up, and its communicator with it; without
    /// this, it waits for ever.
    pub give_up: Option<Span>,
    /// How queue pairs send again what a fault has lost; without it they go on as soon as they have
    /// a way.
    pub resend: Option<Resend>,
    /// What congestion control makes of rates; without it they are fair at every instant.
    pub control: Option<Control>,
    /// What parts of the fabric speak, where not all speak alike.
    pub parts: Option<Parts>,
    /// Traffic that shares the links.
    pub background: Vec<Background>,
    /// A link that is so fast that it is free, both ways, while flows take the ways that they take
    /// anyhow: to ask what its cable costs.
    pub free: Option<LinkId>,
    /// Seeds everything that is random.
    pub seed: u64,
}
