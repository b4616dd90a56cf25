//! Everything that a scenario can choose about a packet run.

use std::collections::BTreeMap;

use fabric::graph::NodeKind;
use fabric::hash::HashFields;
use fabric::routing::{Policy, RoutingConfig};
use fabric::transport::ScheduledConfig;
use fabric::{Fabric, LinkId, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Ranged, Ranges, Span};

use crate::admission::{AdmissionConfig, AdmissionPolicy};
use crate::buffer::{BufferConfig, EcnConfig, PfcConfig};
use crate::cc::{CcConfig, Needs};
use crate::credits::{CreditConfig, TierCredits};
use crate::nic::{NicConfig, Service, Verb};
use crate::packet::{Clock, PacketConfig};

/// When a switch begins to send a packet on.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// When it has all of it.
    #[default]
    StoreAndForward,
    /// When it has its headers, where the way out is no faster than the way in.
    CutThrough,
}

/// In which queue of a switch acknowledgements, notifications and grants wait.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlClass {
    /// In their own, which is served before data and not paused with it.
    #[default]
    Own,
    /// In the queue of the data.
    WithData,
}

/// What a switch does with a data packet that finds no room.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// Throws it away.
    #[default]
    Drop,
    /// Cuts it to its headers, which go on to the receiver in the queue of control.
    Trim,
}

/// What becomes of a packet that a link has damaged.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkRetry {
    /// It is lost; the ends notice.
    #[default]
    Off,
    /// The link sends it again (Ultra Ethernet's link-level retry). Here it joins the end of its
    /// queue once more; the real one keeps the order of frames.
    On,
}

/// Switches, apart from their memory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchConfig {
    /// When a packet is sent on.
    pub forwarding: Forwarding,
    /// Where acknowledgements and notifications wait.
    pub acks: ControlClass,
    /// Where clear-to-send messages wait.
    pub grants: ControlClass,
    /// What happens to a data packet of a lossy class that finds no room.
    pub overflow: Overflow,
    /// What becomes of a packet that a link has damaged.
    pub link_retry: LinkRetry,
    /// The share of a link that control of its own class gets while data waits too; none means
    /// that it always goes first.
    pub control_share: Option<f64>,
}

/// The longest time that a setting may be: what is longer is no delay of a network, and sums of a
/// few such times can still be counted.
pub(crate) const LONGEST: Span = Span::from_ms(1_000_000);

impl Ranged for SwitchConfig {
    fn ranges(&self, check: &mut Ranges) {
        if let Some(share) = self.control_share {
            check.weight("control_share", share);
        }
    }
}

/// What stops a run that goes on for too long.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The run stops here and says so.
    pub events: u64,
    /// The run stops at this simulated time and says so.
    pub time: Span,
}

impl Default for Limits {
    fn default() -> Self {
        // Ten hours of work for the engine, and ten minutes of simulated time: a run that needs
        // more is stuck.
        Self { events: 1_000_000_000_000, time: Span::from_ms(600_000) }
    }
}

/// All settings of a packet run.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How flows find their paths.
    pub routing: RoutingConfig,
    /// How messages become packets.
    pub packet: PacketConfig,
    /// The NICs.
    pub nic: NicConfig,
    /// The switches.
    pub switch: SwitchConfig,
    /// The memory of switches.
    pub buffer: BufferConfig,
    /// The memory of the switches of single tiers, by the tier's name.
    pub buffer_of_tier: BTreeMap<String, BufferConfig>,
    /// When switches mark.
    pub ecn: EcnConfig,
    /// When switches mark packets of single lanes, in the order of the lanes (on Ethernet,
    /// priorities); those beyond the list take `ecn`.
    pub ecn_of_lane: Vec<EcnConfig>,
    /// When the switches of single tiers mark, by the tier's name, whatever the lane: each part of
    /// a fabric has its own thresholds.
    pub ecn_of_tier: BTreeMap<String, EcnConfig>,
    /// When switches pause.
    pub pfc: PfcConfig,
    /// Flow control by credits, which takes the place of pauses.
    pub credits: CreditConfig,
    /// Room for credits, and the turns of lanes, at the switches of single tiers, by the tier's
    /// name.
    pub credits_of_tier: BTreeMap<String, TierCredits>,
    /// A fabric whose egress ports schedule what its leaves send.
    pub scheduled: ScheduledConfig,
    /// Congestion control.
    pub congestion: CcConfig,
    /// Congestion control of the NICs below the switches of single tiers, by the tier's name: each
    /// of two back-ends side by side has its own.
    pub congestion_of_tier: BTreeMap<String, CcConfig>,
    /// Receiver-driven admission.
    pub admission: AdmissionConfig,
    /// The share of packets that every link damages.
    pub loss: f64,
    /// What stops a run.
    pub limits: Limits,
    /// The share of a scale-up link's rate that the library reaches; all of it unless told.
    #[serde(skip)]
    pub scale_up_efficiency: Option<f64>,
    /// Seeds everything that is random.
    #[serde(skip)]
    pub seed: u64,
}

impl Ranged for Settings {
    fn ranges(&self, check: &mut Ranges) {
        check.table("routing", &self.routing);
        check.table("packet", &self.packet);
        check.table("nic", &self.nic);
        check.table("switch", &self.switch);
        check.table("buffer", &self.buffer);
        for (tier, buffer) in &self.buffer_of_tier {
            check.table(&format!("buffer_of_tier.{tier}"), buffer);
        }
        check.table("ecn", &self.ecn);
        for (lane, ecn) in self.ecn_of_lane.iter().enumerate() {
            check.table(&format!("ecn_of_lane.{lane}"), ecn);
        }
        for (tier, ecn) in &self.ecn_of_tier {
            check.table(&format!("ecn_of_tier.{tier}"), ecn);
        }
        check.table("pfc", &self.pfc);
        check.table("credits", &self.credits);
        check.table("scheduled", &self.scheduled);
        check.table("congestion", &self.congestion);
        self.check_congestion(check);
        check.table("admission", &self.admission);
        check.share("loss", self.loss);
        self.check_lanes(check);
        self.check_credits(check);
        self.check_service(check);
        self.check_scheduled(check);
    }
}

/// The name of the tier of a switch.
pub(crate) fn tier_of(fabric: &Fabric, node: NodeId) -> Option<&str> {
    let switch = fabric.nodes()[node];
    let tier = fabric.tiers().get(usize::from(switch.tier))?;
    (switch.kind == NodeKind::Switch).then_some(tier.name.as_str())
}

impl Settings {
    /// All that says when switches mark.
    pub fn all_marks(&self) -> impl Iterator<Item = &EcnConfig> {
        std::iter::once(&self.ecn).chain(&self.ecn_of_lane).chain(self.ecn_of_tier.values())
    }

    /// Congestion control of what sends from a port.
    pub(crate) fn congestion_from(&self, fabric: &Fabric, port: LinkId) -> &CcConfig {
        let tier = tier_of(fabric, fabric.links()[port].to);
        let own = tier.and_then(|tier| self.congestion_of_tier.get(tier));
        own.unwrap_or(&self.congestion)
    }

    /// What the congestion control of all NICs together needs.
    pub(crate) fn needs(&self) -> Needs {
        let own = self.congestion_of_tier.values().map(CcConfig::needs);
        own.fold(self.congestion.needs(), |all, own| Needs {
            marks: all.marks || own.marks,
            no_acks: all.no_acks && own.no_acks,
            ..all
        })
    }

    /// All packets of a run look alike, and all receivers hand out credit or none.
    fn check_congestion(&self, check: &mut Ranges) {
        let all = self.congestion.needs();
        for (tier, own) in &self.congestion_of_tier {
            let key = format!("congestion_of_tier.{tier}");
            check.table(&key, own);
            if (Needs { marks: all.marks, no_acks: all.no_acks, ..own.needs() }) != all {
                let range = "one that needs the same stamps, headers and credit as the other NICs'";
                check.refuse(&[key.as_str(), "congestion.control"], own.name(), range);
            }
        }
    }

    /// What names lanes names some that there are.
    fn check_lanes(&self, check: &mut Ranges) {
        const LANES: &str = "credits.lanes";
        let lanes = self.credits.lanes;
        if let Some(lane) = self.pfc.lossy_lanes.iter().find(|lane| lanes <= **lane) {
            check.refuse(&["pfc.lossy_lanes", LANES], lane, &format!("a lane below {lanes}"));
        }
        let length = self.ecn_of_lane.len();
        if usize::from(lanes) < length {
            let range = format!("a list of at most {lanes}, one entry for each lane");
            check.refuse(&["ecn_of_lane", LANES], format!("a list of {length}"), &range);
        }
        for (tier, own) in &self.credits_of_tier {
            let first = own.high_priority.iter().flatten().find(|lane| lanes <= **lane);
            if let Some(lane) = first {
                let key = format!("credits_of_tier.{tier}.high_priority");
                check.refuse(&[key.as_str(), LANES], lane, &format!("a lane below {lanes}"));
            }
            let length = own.weights.as_ref().map_or(0, Vec::len);
            if usize::from(lanes) < length {
                let key = format!("credits_of_tier.{tier}.weights");
                let range = format!("a list of at most {lanes}, one entry for each lane");
                check.refuse(&[key.as_str(), LANES], format!("a list of {length}"), &range);
            }
        }
        if let Some(share) = self.switch.control_share.filter(|_| 1 < lanes) {
            let keys = ["switch.control_share", LANES];
            check.refuse(&keys, share, "left out where data has several lanes");
        }
    }

    /// What needs acknowledgements, or a connection that keeps its promises.
    fn check_service(&self, check: &mut Ranges) {
        const SERVICE: &str = "nic.service";
        let service = self.nic.service;
        if self.routing.hash == HashFields::FiveTupleQkey && service != Service::Ud {
            let range = "a list of fields that packets carry: only datagrams (`ud`) have a Q_Key";
            check.refuse(&["routing.hash", SERVICE], "`5-tuple+qkey`", range);
        }
        if service == Service::Rc {
            return;
        }
        let name = format!("`{}`", service.name());
        let needs = self.needs();
        if !needs.no_acks || needs.credit.is_some() {
            let range = "`rc` where the congestion control goes by acknowledgements or credit";
            check.refuse(&[SERVICE, "congestion.control"], &name, range);
        }
        if self.nic.verb == Verb::Read {
            check.refuse(&[SERVICE, "nic.verb"], &name, "`rc` for reads");
        }
        if self.admission.policy != AdmissionPolicy::None {
            check.refuse(&[SERVICE, "admission.policy"], &name, "`rc` where receivers admit");
        }
    }

    /// What a scheduled fabric does by itself, or cannot do.
    fn check_scheduled(&self, check: &mut Ranges) {
        const ENABLED: &str = "scheduled.enabled";
        if !self.scheduled.enabled {
            return;
        }
        let policies = self.routing.policy_of_tier.values().chain([&self.routing.policy]);
        if let Some(policy) = policies.into_iter().find(|policy| **policy != Policy::Spray) {
            let range = "`spray` where cells take all links";
            check.refuse(&["routing.policy", ENABLED], format!("`{}`", policy.name()), range);
        }
        let range = "left out where leaves wait for credit of ports";
        if self.credits.enabled {
            check.refuse(&["credits.enabled", ENABLED], true, range);
        }
        if self.switch.overflow == Overflow::Trim {
            check.refuse(&["switch.overflow", ENABLED], "`trim`", range);
        }
        if self.packet.clock == Clock::Nanosecond {
            check.refuse(&["packet.clock", ENABLED], "`nanosecond`", range);
        }
    }

    /// What means nothing where credits are counted: whole nanoseconds, which are for comparisons
    /// with a simulator that knows none, lanes that lose, and a share of the link for control,
    /// which goes first.
    fn check_credits(&self, check: &mut Ranges) {
        if !self.credits.enabled {
            return;
        }
        const ENABLED: &str = "credits.enabled";
        let range = "left out where credits are counted";
        if self.packet.clock == Clock::Nanosecond {
            check.refuse(&["packet.clock", ENABLED], "`nanosecond`", range);
        }
        if !self.pfc.lossy_lanes.is_empty() {
            check.refuse(&["pfc.lossy_lanes", ENABLED], "a list of lanes", range);
        }
        if let Some(share) = self.switch.control_share {
            check.refuse(&["switch.control_share", ENABLED], share, range);
        }
    }
}
