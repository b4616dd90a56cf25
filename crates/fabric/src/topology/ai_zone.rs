//! Meta's AI Zones: racks under RTSWs, zones of racks under CTSWs, zones joined by ATSWs.
//!
//! A rack of two servers hangs on one RTSW; the RTSWs of a zone hang on its CTSWs without
//! oversubscription; every CTSW hangs on every ATSW, with a seventh of its capacity.
//!
//! Sources: "The Llama 3 herd of models" (arXiv 2407.21783) section 3.3.1: racks of 16 GPUs, zones
//! of 3,072 GPUs, 8 zones, 1:7; Gangidi et al. (SIGCOMM 2024) for the names. That a zone has 16
//! CTSWs and the cluster 28 ATSWs follows from these numbers (192 downlinks / 7, rounded up to
//! whole cables); the paper does not print it.

use super::error::Errors;
use super::family::{self, Family, Network, folded};
use super::folded::Folded;
use super::sizing::{Habits, Inputs, LeafKind, UsualBox};
use super::{Back, cables_of};
use units::Length;

const RTSW: UsualBox = UsualBox { model: "minipack2", ports: 64, port_gbps: 400, latency_ns: 900 };
const CTSW: UsualBox =
    UsualBox { model: "arista-7800", ports: 576, port_gbps: 400, latency_ns: 3800 };

/// GPUs of a zone.
pub(crate) const ZONE_GPUS: usize = 3_072;

pub(crate) fn habits(inputs: &Inputs<'_>) -> Habits {
    // Two servers a rack, one uplink for each NIC, one CTSW for each uplink.
    let rack = 16 * inputs.nics_per_node / inputs.gpus_per_node.max(1);
    let uplinks = inputs.fabric.uplinks.first().map(|&uplinks| uplinks as usize);
    Habits {
        names: ["RTSW", "CTSW", "ATSW"],
        // Section 3.3.1 names Minipack2 and Arista 7800; what an ATSW is, it does not say.
        boxes: [RTSW, CTSW, CTSW],
        // Section 3.3.1: servers on copper; the rest is illustrative.
        lengths: [Length::from_metres(2), Length::from_metres(50), Length::from_metres(150)],
        downlinks: Some(rack.max(1)),
        spines: Some(uplinks.unwrap_or(rack.max(1)).min(rack.max(1))),
        oversubscription: [1.0, 7.0, 1.0],
        pod_gpus: Some(ZONE_GPUS),
        full_core: true,
        tiers: 2,
    }
}

pub(crate) fn networks(inputs: &Inputs<'_>, back: &Back, errors: &mut Errors) -> Vec<Folded> {
    let cables = cables_of(back);
    let habits = habits(inputs);
    vec![inputs.size(back.members.clone(), LeafKind::Rack, cables, &habits, errors)]
}

/// See the top of this file.
pub(crate) struct AiZone;

impl Family for AiZone {
    fn keys(&self) -> Vec<&'static str> {
        family::FOLDED.to_vec()
    }

    fn plan(
        &self,
        inputs: &Inputs<'_>,
        back: &Back,
        name: &str,
        errors: &mut Errors,
    ) -> Box<dyn Network> {
        let networks = networks(inputs, back, errors);
        folded(inputs, networks, &habits(inputs), [name, "zone"], errors)
    }

    fn servers(&self, inputs: &Inputs<'_>, _: usize) -> Option<usize> {
        // Eight zones: the Llama 3 cluster.
        Some(inputs.fabric.pod_servers(8, ZONE_GPUS, inputs.gpus_per_node))
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, super::ClusterConfig, super::FabricConfig)> {
        use super::tests::{cluster, of};
        use super::{FabricConfig, TopologyKind};
        let zones = FabricConfig { pod_gpus: Some(64), pods: Some(3), ..of(TopologyKind::AiZone) };
        vec![("zones", cluster(160), zones)]
    }
}
