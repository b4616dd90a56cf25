//! The scenario file: its root, and the sections that belong to no other crate.
//!
//! A section is the configuration struct of the crate that obeys it; this file only says under
//! which key it stands. Its doc comments are the descriptions in the JSON Schema and in the help.

use std::collections::BTreeMap;

use fabric::fault::FaultConfig;
use fabric::hardware::{Catalogue, Trust};
use fabric::topology::{ClusterConfig, FabricConfig};
use fabric::transport::{GatewayConfig, Transport};
use flowsim::FlowConfig;
use job::JobConfig;
use packetsim::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use step::faults::Faults;
use step::jitter::{Jitter, Straggler};
use step::money::Prices;
use step::overheads::Overheads;
use traffic::nccl;
use traffic::pattern::TrafficConfig;
use units::{Ranged, Ranges};

use crate::jobs::JobEntry;
use crate::racks::Racks;
use crate::targets::Targets;

/// A scenario: a cluster, its fabric, the network's settings, and what runs on it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "fatflow scenario")]
pub struct ScenarioFile {
    /// A name for people; it stands above tables and reports.
    pub name: String,
    /// What this scenario is, in a sentence or two.
    pub description: String,
    /// The preset or the file to start from; everything else in this file overrides it.
    pub from: Option<String>,
    /// The seed of everything random. The same seed gives the same result.
    pub seed: u64,
    /// The servers and what is in them.
    pub cluster: ClusterConfig,
    /// The networks between them.
    pub fabric: FabricConfig,
    /// The network's settings.
    pub network: NetworkConfig,
    /// The communication library's settings.
    pub library: nccl::Settings,
    /// The training job, if there is one.
    pub job: Option<JobConfig>,
    /// Several jobs on one fabric, instead of `job`.
    pub jobs: Vec<JobEntry>,
    /// Synthetic traffic instead of a job, or beside `jobs`.
    pub traffic: Option<TrafficConfig>,
    /// Links, switches and NICs that fail at given times.
    pub faults: Vec<FaultConfig>,
    /// What the software around a step costs.
    pub software: Overheads,
    /// How unequal the ranks are.
    pub jitter: Jitter,
    /// Parts of the cluster that are slower than they should be.
    pub stragglers: Vec<Straggler>,
    /// How often things fail in the long run, checkpoints and restarts: what goodput rests on.
    pub reliability: Faults,
    /// Prices of power and of what stands around the GPUs.
    pub prices: Prices,
    /// What a rack of servers holds.
    pub racks: Racks,
    /// What the cluster and the step should reach.
    pub targets: Targets,
    /// Hardware of one's own, or other figures for known hardware.
    pub catalogue: Catalogue,
    /// What has been published about this system, to show beside what is computed.
    pub reported: Vec<Reported>,
}

/// The network's settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
// Unknown keys are the checker's to find: `serde` cannot deny them beside a flattened struct.
#[serde(default)]
pub struct NetworkConfig {
    /// Which protocol carries messages. It decides the defaults of what follows.
    pub transport: Transport,
    /// What the switches of single tiers speak, by the tier's name, where parts of a fabric differ;
    /// NICs speak `transport`.
    pub transport_of_tier: BTreeMap<String, Transport>,
    /// What it takes where packets change their transport.
    pub gateway: GatewayConfig,
    /// The flow engine.
    pub flow: FlowConfig,
    /// Everything that the packet engine obeys, and the others as far as they have it.
    #[serde(flatten)]
    pub settings: Settings,
}

impl Ranged for NetworkConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.table("gateway", &self.gateway);
        check.table("flow", &self.flow);
        check.table("", &self.settings);
    }
}

impl Ranged for ScenarioFile {
    fn ranges(&self, check: &mut Ranges) {
        check.table("cluster", &self.cluster);
        check.table("fabric", &self.fabric);
        check.table("network", &self.network);
        check.table("library", &self.library);
        for (at, job) in self.jobs.iter().enumerate() {
            check.table(&format!("jobs.{at}"), job);
        }
        for (at, fault) in self.faults.iter().enumerate() {
            check.table(&format!("faults.{at}"), fault);
        }
        check.table("software", &self.software);
        check.table("jitter", &self.jitter);
        for (at, straggler) in self.stragglers.iter().enumerate() {
            check.table(&format!("stragglers.{at}"), straggler);
        }
        check.table("reliability", &self.reliability);
        check.table("prices", &self.prices);
        check.table("racks", &self.racks);
        check.table("targets", &self.targets);
        check.table("catalogue", &self.catalogue);
    }
}

/// A published figure about the system that a scenario describes.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// What was measured or said; the same metric has the same name in every preset.
    pub metric: String,
    /// The figure, in the unit named below; the lower end where a range was said.
    #[serde(default)]
    pub value: Option<f64>,
    /// The upper end of a range.
    #[serde(default)]
    pub high: Option<f64>,
    /// What was said, where it is no figure.
    #[serde(default)]
    pub text: Option<String>,
    /// Its unit; empty for a plain number.
    #[serde(default)]
    pub unit: String,
    /// Where it stands.
    pub source: String,
    /// How far to trust it.
    pub trust: Trust,
    /// What else one must know to read it, such as a correction.
    #[serde(default)]
    pub note: String,
}
