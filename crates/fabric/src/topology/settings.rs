//! The `[fabric]` table: which topology, how large, of which switches and cables.
//!
//! Every key has a default that each topology's file explains; lists that go "bottom up" begin at
//! the NICs. What a key means is decided by the topology, and a key that it cannot obey is an
//! error.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Length, Ranged, Ranges, Rate, Span};

use super::circuits::Setting;
use super::error::Errors;
use super::file::GraphConfig;
use super::{Shapes, TopologyKind};
use crate::graph::{DELAYS, LENGTHS, RATES};

/// The back-end network.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
// Unknown keys are the checker's to find: `serde` cannot deny them beside a flattened struct.
#[serde(default)]
pub struct FabricConfig {
    /// The family.
    pub topology: TopologyKind,
    /// Ports of every switch, at the rate of its fastest links; without it, as the switch has.
    pub radix: Option<u32>,
    /// The k of a k-ary fat tree; without it, the smallest that fits.
    pub k: Option<u32>,
    /// Layers of switches; without it, as few as the size allows.
    pub tiers: Option<u32>,
    /// Capacity below over capacity above, for each tier bottom up: `"2:1"` or `2` of the lowest,
    /// `"2:1, 7:1"` or `[2, 7]` of two; 1:1 where nothing is said.
    #[schemars(extend("x-ratio" = true))]
    pub oversubscription: Vec<f64>,
    /// Uplinks of each switch, for each tier bottom up; what is said here wins over
    /// `oversubscription`, and need not divide evenly among the switches above.
    pub uplinks: Vec<u32>,
    /// NIC ports on a leaf; without it, as many as the leaf has left after its uplinks.
    pub downlinks: Option<u32>,
    /// Pods or zones that the leaves are grouped into; without it, as many as needed.
    #[serde(alias = "zones")]
    #[schemars(extend("x-aliases" = ["zones"]))]
    pub pods: Option<u32>,
    /// GPUs of a full pod or zone.
    #[serde(alias = "zone_gpus")]
    #[schemars(extend("x-aliases" = ["zone_gpus"]))]
    pub pod_gpus: Option<u32>,
    /// Servers that share the leaves of their rails (rail-optimised, dual-plane).
    pub segment_nodes: Option<u32>,
    /// Spines of each pod (of each plane, where there are planes).
    pub spines: Option<u32>,
    /// Cores in all (of each plane, where there are planes).
    pub cores: Option<u32>,
    /// Planes that the ports of a NIC are spread over (dual-plane).
    pub planes: Option<u32>,
    /// The lowest tier: leaves, ToRs, RTSWs, routers.
    pub leaf: TierConfig,
    /// The tier above it: spines, aggregation switches, CTSWs.
    pub spine: TierConfig,
    /// The highest of three tiers: cores, ATSWs.
    pub core: TierConfig,
    /// Cables, bottom up: NIC to leaf, leaf to spine, spine to core.
    pub links: Vec<LinkConfig>,
    /// The tables of families that have a shape of their own.
    #[serde(flatten)]
    pub shapes: Shapes,
    /// Direct optical circuits between pods.
    pub circuits: CircuitsConfig,
    /// Pods that are far from each other.
    pub sites: SitesConfig,
    /// A file with the graph; its format is told by its name and content.
    pub file: Option<String>,
    /// The graph itself.
    pub graph: Option<GraphConfig>,
    /// What is out of service, by name: `"leaf 3 - spine 5"` is all cables between the two,
    /// `"leaf 3 - spine 5 (2)"` one of them, `"spine 7"` a switch.
    pub failed: Vec<String>,
    /// Links that run below their rate.
    pub degraded: Vec<DegradedConfig>,
    /// Several back-ends in one cluster, instead of everything above.
    pub parts: Vec<PartConfig>,
}

impl FabricConfig {
    /// Whether there are several sites.
    pub(crate) fn has_sites(&self) -> bool {
        1 < self.sites.count
    }

    /// Pods or zones that the leaves are grouped into, if that is said. Sites are pods.
    pub(crate) fn said_pods(&self) -> Option<u32> {
        if self.has_sites() { Some(self.sites.count) } else { self.pods }
    }

    /// The servers of all pods, where the family has so many pods of so many GPUs.
    pub(crate) fn pod_servers(&self, pods: u32, pod_gpus: usize, gpus_per_node: usize) -> usize {
        let pods = self.pods.unwrap_or(pods).clamp(1, 4096) as usize;
        pods * self.pod_gpus.map_or(pod_gpus, |gpus| gpus as usize) / gpus_per_node
    }

    /// Refuses what cannot be meant together.
    pub(crate) fn check_choice(&self, path: &str, errors: &mut Errors) {
        let named = [("file", self.file.is_some()), ("graph", self.graph.is_some())];
        for (key, _) in named.iter().filter(|(_, is_named)| *is_named) {
            if self.topology != TopologyKind::File {
                let topology = self.topology.name();
                let reason = format!("there is a `{key}`, but the topology is \"{topology}\"");
                errors.push(&format!("{path}.{key}"), reason, "topology = \"file\", or neither");
            }
        }
        for (at, part) in self.parts.iter().enumerate() {
            let path = format!("{path}.parts.{at}.fabric");
            if !part.fabric.parts.is_empty() {
                let reason = "a part has no parts of its own".to_owned();
                errors.push(&format!("{path}.parts"), reason, "");
            }
            part.fabric.check_choice(&path, errors);
        }
    }
}

/// The ratios of capacities that an oversubscription may be.
pub(crate) const RATIOS: [f64; 2] = [1e-3, 1e3];

impl Ranged for FabricConfig {
    fn ranges(&self, check: &mut Ranges) {
        let numbers = [
            ("radix", self.radix, [1, 65_536]),
            ("k", self.k, [2, 4_096]),
            ("tiers", self.tiers, [1, 3]),
            ("downlinks", self.downlinks, [1, 65_536]),
            ("pods", self.pods, [1, 65_536]),
            ("pod_gpus", self.pod_gpus, [1, 16_777_216]),
            ("segment_nodes", self.segment_nodes, [1, 65_536]),
            ("spines", self.spines, [1, 65_536]),
            ("cores", self.cores, [0, 1_048_576]),
            ("planes", self.planes, [1, 16]),
        ];
        for (key, value, range) in numbers {
            if let Some(value) = value {
                check.within(key, value, range);
            }
        }
        for (at, ratio) in self.oversubscription.iter().enumerate() {
            check.within(&format!("oversubscription.{at}"), *ratio, RATIOS);
        }
        for (at, uplinks) in self.uplinks.iter().enumerate() {
            check.within(&format!("uplinks.{at}"), *uplinks, [1, 65_536]);
        }
        let lists = [
            ("oversubscription", self.oversubscription.len()),
            ("uplinks", self.uplinks.len()),
            ("links", self.links.len()),
        ];
        for (key, length) in lists.into_iter().filter(|(_, length)| 3 < *length) {
            check.refuse(&[key], format!("a list of {length}"), "of three tiers at most");
        }
        check.table("leaf", &self.leaf);
        check.table("spine", &self.spine);
        check.table("core", &self.core);
        for (at, link) in self.links.iter().enumerate() {
            check.table(&format!("links.{at}"), link);
        }
        check.table("", &self.shapes);
        check.table("circuits", &self.circuits);
        check.table("sites", &self.sites);
        if let Some(graph) = &self.graph {
            check.table("graph", graph);
        }
        for (at, DegradedConfig { rate, .. }) in self.degraded.iter().enumerate() {
            check.within(&format!("degraded.{at}.rate"), *rate, RATES);
        }
        for (at, part) in self.parts.iter().enumerate() {
            check.table(&format!("parts.{at}.fabric"), &part.fabric);
        }
    }
}

/// Sites: pods that are far from each other. The highest tier are gateways, which stand at the
/// first site; the others reach them over the distance.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SitesConfig {
    /// How many sites there are, with equal shares of the leaves.
    pub count: u32,
    /// How far the other sites are from the first.
    pub distance: Length,
    /// Links of each site to the gateways, shared out evenly over its spines; without it, as
    /// `uplinks` or `oversubscription` of the spines say.
    pub links: Option<u32>,
    /// The rate of such a link; without it, that of the cables from spines to cores.
    pub rate: Option<Rate>,
}

impl Default for SitesConfig {
    fn default() -> Self {
        // Illustrative: two halls of one campus, or two towns.
        Self { count: 1, distance: Length::from_metres(100_000), links: None, rate: None }
    }
}

impl Ranged for SitesConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.within("count", self.count, [1, 64]);
        check.within("distance", self.distance, LENGTHS);
        if let Some(links) = self.links {
            check.within("links", links, [1, 65_536]);
        }
        if let Some(rate) = self.rate {
            check.within("rate", rate, RATES);
        }
    }
}

/// One layer of switches.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TierConfig {
    /// What its switches are called; without it, as the topology calls them.
    pub name: Option<String>,
    /// The box, by its name in the hardware catalogue; without it, a generic one of 64 × 400G.
    pub switch: Option<String>,
    /// Time from arrival to earliest departure; without it, the catalogue's.
    pub latency: Option<Span>,
    /// Whether its switches add up messages (`library.sharp`); without it, as the catalogue says.
    pub reduces: Option<bool>,
}

impl Ranged for TierConfig {
    fn ranges(&self, check: &mut Ranges) {
        if let Some(latency) = self.latency {
            check.within("latency", latency, DELAYS);
        }
    }
}

/// The cables of one layer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkConfig {
    /// Bits per second in each direction; without it, the rate of the NIC.
    pub rate: Option<Rate>,
    /// Delay from end to end; without it, what the length makes.
    pub delay: Option<Span>,
    /// Length of the cable, which decides its medium, price and power.
    pub length: Option<Length>,
}

impl Ranged for LinkConfig {
    fn ranges(&self, check: &mut Ranges) {
        if let Some(rate) = self.rate {
            check.within("rate", rate, RATES);
        }
        if let Some(delay) = self.delay {
            check.within("delay", delay, DELAYS);
        }
        if let Some(length) = self.length {
            check.within("length", length, LENGTHS);
        }
    }
}

/// Direct optical circuits between pods: a layer of circuit switches that can be set anew.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitsConfig {
    /// Circuits that each pod can hold at once; 0 leaves the layer out.
    pub per_pod: u32,
    /// Rate of a circuit; without it, that of the spines' uplinks.
    pub rate: Option<Rate>,
    /// Length of a circuit from spine to spine.
    pub length: Length,
    /// Time during which a circuit carries nothing while it is set anew.
    pub reconfiguration: Span,
    /// Pairs of pods to join; without it, each pod to those next to it in a ring, evenly.
    pub pairs: Setting,
    /// Whether the circuits stay as they are or follow the phases of a job's step.
    pub schedule: CircuitSchedule,
    /// Several settings of the circuit switches in place of one; made from a job's phases.
    #[serde(skip)]
    pub settings: Vec<Setting>,
}

/// When circuits are set.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CircuitSchedule {
    /// Once, before the run.
    #[default]
    Fixed,
    /// By what the job's phases exchange between pods: once for the whole step, or anew between
    /// the passes and the exchange of gradients and weights, whichever makes the step shorter.
    Phases,
}

impl Default for CircuitsConfig {
    fn default() -> Self {
        Self {
            per_pod: 0,
            rate: None,
            // Illustrative: across a hall.
            length: Length::from_metres(100),
            // Illustrative: mirrors of a MEMS circuit switch settle in some milliseconds.
            reconfiguration: Span::from_ms(10),
            pairs: Setting::new(),
            schedule: CircuitSchedule::Fixed,
            settings: Vec::new(),
        }
    }
}

impl Ranged for CircuitsConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.at_most("per_pod", self.per_pod, 65_536);
        check.within("length", self.length, LENGTHS);
        check.at_most("reconfiguration", self.reconfiguration, Span::from_ms(3_600_000));
        if let Some(rate) = self.rate {
            check.within("rate", rate, RATES);
        }
    }
}

/// Links that run below their rate.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DegradedConfig {
    /// The link or switch, by name: `"leaf 3 - spine 5"`.
    pub link: String,
    /// The rate that is left, in each direction.
    pub rate: Rate,
}

/// One of several back-ends: some NICs of some servers, on a network of their own.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PartConfig {
    /// What it is called; its switches carry the name.
    pub name: String,
    /// The first and the last of its servers; without it, all.
    pub servers: Option<[u32; 2]>,
    /// The NICs of each server that are on it, by number; without it, all.
    pub nics: Vec<u32>,
    /// Its network.
    pub fabric: FabricConfig,
}
