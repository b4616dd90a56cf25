//! The `[cluster]` table: servers, what is in them, and what joins their GPUs.
//!
//! What was written is a [`ClusterConfig`]; what it means, with everything looked up in the
//! catalogue, is a [`Cluster`].

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Length, Ranged, Ranges, Rate, Span};

use super::error::Errors;
use super::settings::RATIOS;
use crate::graph::{DELAYS, LENGTHS, RATES};
use crate::hardware::{Catalogue, ScaleUpKind};

/// The most GPUs a fabric may have. Ids have 32 bits; this leaves room for links of all kinds.
pub const MAX_GPUS: u64 = 16_777_216;

/// The servers of the cluster.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// The accelerator, by its name in the hardware catalogue.
    pub gpu: String,
    /// How many GPUs there are: whole servers. Say this or `nodes`.
    pub gpus: Option<u64>,
    /// How many servers there are. Say this or `gpus`.
    pub nodes: Option<u64>,
    /// GPUs in a server.
    pub gpus_per_node: u32,
    /// Back-end NICs in a server: its rails.
    pub nics_per_node: u32,
    /// The back-end NIC, by its name in the hardware catalogue.
    pub nic: String,
    /// Rate of a back-end NIC, all its ports together; without it, the catalogue's.
    pub nic_rate: Option<Rate>,
    /// Cables from a back-end NIC to the fabric; they share its rate.
    pub ports_per_nic: u32,
    /// Where the ports of a NIC lead.
    pub aggregation: Aggregation,
    /// The network between the GPUs of a server or a larger domain.
    pub scale_up: ScaleUpConfig,
    /// What PCIe carries between a GPU and its NIC in one direction. A NIC gets no more than this,
    /// unless `fabric.links` says at which rate its cable runs.
    pub pcie: Rate,
    /// A file that describes a server, as NCCL dumps it (`NCCL_TOPO_DUMP_FILE`): its GPUs, NICs,
    /// which GPU uses which NIC, PCIe and scale-up. It wins over the keys here.
    pub server_file: Option<String>,
    /// For each GPU of a server, the NIC that it uses, or a list of several; without it, the NICs
    /// are shared out in order. A `server_file` fills this in.
    pub nic_affinity: Vec<NicAffinity>,
    /// The network for storage, checkpoints and control.
    pub front_end: FrontEndConfig,
    /// Storage servers: where checkpoints go, and where data comes from.
    pub storage: StorageConfig,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            gpu: "h100-sxm".to_owned(),
            gpus: None,
            nodes: None,
            // DGX H100, MI300X platforms: 8 GPUs and 8 NICs of 400G (stas00 ml-engineering).
            gpus_per_node: 8,
            nics_per_node: 8,
            nic: "connectx-7".to_owned(),
            nic_rate: None,
            ports_per_nic: 1,
            aggregation: Aggregation::Bond,
            scale_up: ScaleUpConfig::default(),
            // PCIe 5.0 x16: 32 GT/s, 16 lanes, 128b/130b encoding.
            pcie: Rate::from_gbps(504),
            server_file: None,
            nic_affinity: Vec::new(),
            front_end: FrontEndConfig::default(),
            storage: StorageConfig::default(),
        }
    }
}

impl Ranged for ClusterConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.within("gpus_per_node", self.gpus_per_node, [1, 1024]);
        check.within("nics_per_node", self.nics_per_node, [1, 1024]);
        check.within("ports_per_nic", self.ports_per_nic, [1, 16]);
        check.within("pcie", self.pcie, RATES);
        if let Some(rate) = self.nic_rate {
            check.within("nic_rate", rate, RATES);
        }
        check.table("scale_up", &self.scale_up);
        check.table("front_end", &self.front_end);
        check.table("storage", &self.storage);
    }
}

/// The NICs of one GPU, by their numbers in its server.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NicAffinity {
    /// One.
    One(u32),
    /// Several, the one that it uses first at the beginning.
    Several(Vec<u32>),
}

impl NicAffinity {
    fn numbers(&self) -> Vec<u32> {
        match self {
            Self::One(nic) => vec![*nic],
            Self::Several(nics) => nics.clone(),
        }
    }
}

/// Where the ports of a NIC lead.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// All to the same leaf, as one aggregated link.
    #[default]
    Bond,
    /// Each to a leaf of its own under the same spines, as one link of a leaf pair (MLAG).
    DualTor,
}

/// The network between the GPUs of one domain.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScaleUpConfig {
    /// How GPUs reach each other; without it, as the catalogue says of the GPU.
    pub kind: Option<ScaleUpKind>,
    /// Rate of one GPU into it in one direction; without it, the catalogue's.
    pub rate: Option<Rate>,
    /// GPUs that it joins; without it, those of one server. 72 makes an NVL72.
    pub domain: Option<u32>,
    /// Delay of one of its links.
    pub delay: Option<Span>,
}

impl Ranged for ScaleUpConfig {
    fn ranges(&self, check: &mut Ranges) {
        if let Some(rate) = self.rate {
            check.within("rate", rate, RATES);
        }
        if let Some(domain) = self.domain {
            check.within("domain", domain, [1, 4096]);
        }
        if let Some(delay) = self.delay {
            check.within("delay", delay, DELAYS);
        }
    }
}

/// The network for storage, checkpoints and control.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrontEndConfig {
    /// Front-end NICs in a server; 0 leaves the network out.
    pub nics: u32,
    /// The NIC, by its name in the hardware catalogue.
    pub nic: String,
    /// Rate of one NIC; without it, the catalogue's.
    pub rate: Option<Rate>,
    /// The switches, by their name in the hardware catalogue.
    pub switch: Option<String>,
    /// Capacity below a leaf over capacity above it.
    #[schemars(extend("x-ratio" = true))]
    pub oversubscription: f64,
    /// Length of the cables to the servers.
    pub length: Length,
    /// Length of the cables between switches.
    pub uplink_length: Length,
}

impl Default for FrontEndConfig {
    fn default() -> Self {
        Self {
            nics: 0,
            nic: "bluefield-3".to_owned(),
            rate: None,
            switch: None,
            // Illustrative: storage fabrics are commonly built with some oversubscription.
            oversubscription: 3.0,
            // Illustrative: within a rack, and across a row.
            length: Length::from_metres(3),
            uplink_length: Length::from_metres(50),
        }
    }
}

impl Ranged for FrontEndConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.at_most("nics", self.nics, 64);
        check.within("oversubscription", self.oversubscription, RATIOS);
        check.within("length", self.length, LENGTHS);
        check.within("uplink_length", self.uplink_length, LENGTHS);
        if let Some(rate) = self.rate {
            check.within("rate", rate, RATES);
        }
    }
}

/// Storage servers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// How many there are. Each has as many NICs as another server has on that network.
    pub servers: u32,
    /// What one of them takes in or gives out, over all its NICs. Left out, what its NICs carry.
    pub rate: Option<Rate>,
    /// The network that they are on.
    pub place: StoragePlace,
}

/// Which network storage servers are on.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoragePlace {
    /// A network of their own, which no collective uses.
    #[default]
    FrontEnd,
    /// The network that GPUs use among themselves.
    BackEnd,
}

impl Ranged for StorageConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.at_most("servers", self.servers, 1_048_576);
        if let Some(rate) = self.rate {
            check.within("rate", rate, RATES);
        }
    }
}

/// The servers with everything looked up.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) servers: Option<usize>,
    pub(crate) gpus_per_node: usize,
    pub(crate) nics_per_node: usize,
    /// Rate of a whole NIC, and of one of its ports.
    pub(crate) nic_rate: Rate,
    pub(crate) port_rate: Rate,
    pub(crate) ports_per_nic: usize,
    pub(crate) scale_up: ScaleUp,
    pub(crate) front_end_rate: Rate,
}

/// The scale-up network with everything looked up.
#[derive(Clone, Debug)]
pub(crate) struct ScaleUp {
    pub(crate) kind: ScaleUpKind,
    pub(crate) name: String,
    pub(crate) rate: Rate,
    pub(crate) domain: usize,
    pub(crate) delay: Span,
}

impl ClusterConfig {
    /// How many storage servers are on a network.
    pub(crate) fn storage_on(&self, place: StoragePlace) -> usize {
        if self.storage.place == place { self.storage.servers as usize } else { 0 }
    }

    /// Looks everything up; what is wrong goes into `errors`, with a stand-in in its place.
    pub(crate) fn resolve(&self, catalogue: &Catalogue, errors: &mut Errors) -> Cluster {
        let gpus_per_node = self.gpus_per_node.max(1) as usize;
        let nics_per_node = self.nics_per_node.max(1) as usize;
        let known = |name: &String| !catalogue.nic.is_empty() && !catalogue.nic.contains_key(name);
        if known(&self.nic) {
            errors.unknown("cluster.nic", &self.nic, catalogue.nic.keys());
        }
        let ports_per_nic = self.ports_per_nic.max(1) as usize;
        let nic_rate = self.nic_rate.unwrap_or_else(|| catalogue_nic(catalogue, &self.nic));
        let nic_rate = nic_rate.min(self.pcie);
        let port_rate = Rate::from_bps((nic_rate.as_bps() / ports_per_nic as u64).max(1));
        let front = &self.front_end;
        if 0 < front.nics && known(&front.nic) {
            errors.unknown("cluster.front_end.nic", &front.nic, catalogue.nic.keys());
        }
        let front_end_rate = front.rate.unwrap_or_else(|| catalogue_nic(catalogue, &front.nic));
        Cluster {
            servers: self.servers(errors),
            gpus_per_node,
            nics_per_node,
            nic_rate,
            port_rate,
            ports_per_nic,
            scale_up: self.resolve_scale_up(catalogue, errors),
            front_end_rate,
        }
    }

    /// Which NICs each GPU of a server uses, where servers have so many GPUs and NICs.
    pub(crate) fn affinity(&self, gpus: usize, nics: usize, errors: &mut Errors) -> Vec<Vec<u32>> {
        let path = "cluster.nic_affinity";
        let all: Vec<Vec<u32>> = self.nic_affinity.iter().map(NicAffinity::numbers).collect();
        if !all.is_empty() && all.len() != gpus {
            let reason = format!("it names NICs for {} of the {gpus} GPUs of a server", all.len());
            errors.push(path, reason, "one NIC number for each GPU");
        }
        if all.iter().any(Vec::is_empty) {
            errors.push(path, "a GPU has no NIC".to_owned(), "one NIC number for each GPU");
        }
        if let Some(nic) = all.iter().flatten().find(|nic| nics <= **nic as usize) {
            let reason = format!("NIC {nic} of the {nics} of a server");
            errors.push(path, reason, "numbers counted from 0");
        }
        all
    }

    fn servers(&self, errors: &mut Errors) -> Option<usize> {
        let per_node = u64::from(self.gpus_per_node.max(1));
        let nodes = match (self.gpus, self.nodes) {
            (None, None) => return None,
            (Some(gpus), None) if gpus % per_node == 0 => gpus / per_node,
            (Some(gpus), None) => {
                let reason = format!("{gpus} GPUs are no whole number of {per_node}-GPU servers");
                let whole = gpus.div_ceil(per_node).saturating_mul(per_node);
                errors.push("cluster.gpus", reason, &format!("gpus = {whole}"));
                gpus.div_ceil(per_node)
            }
            (None, Some(nodes)) => nodes,
            (Some(gpus), Some(nodes)) => {
                if nodes.checked_mul(per_node) != Some(gpus) {
                    let reason = format!(
                        "{gpus} GPUs, but {nodes} nodes of {per_node} have a different sum"
                    );
                    errors.push("cluster.gpus", reason, "only one of `gpus` and `nodes`");
                }
                nodes
            }
        };
        if !(1..=MAX_GPUS).contains(&nodes.saturating_mul(per_node)) {
            let path = if self.nodes.is_some() { "cluster.nodes" } else { "cluster.gpus" };
            errors.push(path, format!("a cluster has 1 to {MAX_GPUS} GPUs"), "gpus = 1024");
            return Some(1);
        }
        usize::try_from(nodes).ok()
    }

    fn resolve_scale_up(&self, catalogue: &Catalogue, errors: &mut Errors) -> ScaleUp {
        let gpu = catalogue.gpu.get(&self.gpu);
        if gpu.is_none() && !catalogue.gpu.is_empty() {
            errors.unknown("cluster.gpu", &self.gpu, catalogue.gpu.keys());
        }
        let ScaleUpConfig { kind, rate, domain, delay } = &self.scale_up;
        let kind = kind.or(gpu.map(|gpu| gpu.scale_up)).unwrap_or(ScaleUpKind::Switched);
        let name = match (kind, gpu) {
            (ScaleUpKind::Pcie, _) => "PCIe switch".to_owned(),
            (_, Some(gpu)) if gpu.scale_up == kind && gpu.scale_up_name.contains("NVLink") => {
                "NVSwitch".to_owned()
            }
            (_, Some(gpu)) if gpu.scale_up == kind => gpu.scale_up_name.clone(),
            _ => "scale-up switch".to_owned(),
        };
        // NVLink 4 where there is no catalogue: 450 GB/s (stas00 ml-engineering).
        let listed = gpu.map_or(450.0, |gpu| gpu.scale_up_gbytes_s.value);
        let rate = rate.unwrap_or(match kind {
            ScaleUpKind::Pcie => self.pcie,
            _ => Rate::from_bps_f64(listed * 8e9),
        });
        let per_node = self.gpus_per_node.max(1);
        let domain = domain.unwrap_or(per_node);
        if domain % per_node != 0 && !per_node.is_multiple_of(domain) {
            let reason = format!("a domain of {domain} GPUs fits no {per_node}-GPU servers");
            errors.push("cluster.scale_up.domain", reason, &format!("domain = {per_node}"));
        }
        if kind == ScaleUpKind::Mesh && 64 < domain {
            let reason = format!("a mesh joins each pair: {domain} GPUs are too many");
            errors.push("cluster.scale_up.domain", reason, "kind = \"switched\"");
        }
        // NVLink latency of SimAI's topology defaults: 25 ns (SimAI docs/Tutorial.md).
        let delay = delay.unwrap_or(Span::from_ns(25));
        ScaleUp { kind, name, rate, domain: domain.max(1) as usize, delay }
    }
}

impl Cluster {
    /// The servers, or an error that says how to give their number.
    pub(crate) fn servers(&self, errors: &mut Errors) -> usize {
        self.servers.unwrap_or_else(|| {
            errors.push("cluster", "how many GPUs there are is missing".to_owned(), "gpus = 128");
            1
        })
    }
}

/// Some of the servers, and some of the NICs in each: what one network joins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Members {
    pub(crate) servers: Range<usize>,
    /// Numbers of the NICs within a server.
    pub(crate) rails: Vec<usize>,
    pub(crate) nics_per_node: usize,
    /// The node of the first NIC of the first server.
    pub(crate) first_node: usize,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.servers.len() * self.rails.len()
    }

    /// The number of the NIC of a server, by the places of both among the members.
    pub(crate) fn number(&self, server: usize, rail: usize) -> usize {
        (self.servers.start + server) * self.nics_per_node + self.rails[rail]
    }
}

fn catalogue_nic(catalogue: &Catalogue, name: &str) -> Rate {
    // 400G where there is no catalogue: the rate of the default NIC.
    catalogue
        .nic
        .get(name)
        .map_or(Rate::from_gbps(400), |nic| Rate::from_bps_f64(nic.rate_gbps.value * 1e9))
}
