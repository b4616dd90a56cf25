//! Dual-plane networks: each NIC has one port in each of two planes that never meet.
//!
//! Within a plane the network is rail-optimised: NIC `r` of every server of a segment hangs on ToR
//! `r` of the segment, and every ToR on every aggregation switch of the plane. A NIC that loses a
//! ToR goes on with half of its rate over the other plane, and a packet's plane, once chosen, fixes
//! the ToR it arrives at, so that only the ToR hashes.
//!
//! Source: Qian et al., "Alibaba HPN" (SIGCOMM 2024), sections 4 to 6: segments of 128 servers with
//! 8 rails, 2 × 200G per NIC, 60 uplinks of 400G per ToR to 60 aggregation switches per plane, 15
//! segments a pod (15,360 GPUs), aggregation to core 15:1. Here the cores above several pods keep
//! the planes apart too, and the 64 backup GPUs of a segment are left out.

use super::error::Errors;
use super::family::{self, Family, Network, folded};
use super::folded::{Cables, Folded, Numbering};
use super::sizing::{Habits, Inputs, LeafKind, UsualBox};
use super::{Back, FabricConfig};
use units::Length;

const CHIP: UsualBox =
    UsualBox { model: "tomahawk-5", ports: 128, port_gbps: 400, latency_ns: 900 };

/// GPUs of a pod.
pub(crate) const POD_GPUS: usize = 15_360;

pub(crate) fn habits(inputs: &Inputs<'_>) -> Habits {
    // HPN's own numbers hold for its own servers; other sizes follow from the switches.
    let is_hpn = inputs.fabric.radix.is_none() && inputs.gpus_per_node == 8;
    Habits {
        names: ["ToR", "aggregation", "core"],
        // Section 4: single-chip switches of 51.2 Tb/s.
        boxes: [CHIP; 3],
        // Section 6: multi-mode optics below 100 m.
        lengths: [Length::from_metres(20), Length::from_metres(80), Length::from_metres(300)],
        downlinks: is_hpn.then_some(128),
        // As many as uplinks: with fewer uplinks some ToRs would have no switch in common.
        spines: (is_hpn && inputs.fabric.uplinks.is_empty()).then_some(60),
        oversubscription: [if is_hpn { 128.0 * 200.0 / (60.0 * 400.0) } else { 1.0 }, 15.0, 1.0],
        pod_gpus: is_hpn.then_some(POD_GPUS),
        full_core: false,
        tiers: 2,
    }
}

pub(crate) fn planes(back: &Back, configured: Option<u32>) -> usize {
    configured.map_or(back.ports_per_nic.max(2), |planes| planes.max(1) as usize)
}

pub(crate) fn networks(inputs: &Inputs<'_>, back: &Back, errors: &mut Errors) -> Vec<Folded> {
    let planes = planes(back, inputs.fabric.planes);
    let habits = habits(inputs);
    let cables = Cables::Bonded((back.ports_per_nic / planes).max(1));
    let first = inputs.size(back.members.clone(), LeafKind::Rail, cables, &habits, errors);
    (0..planes)
        .map(|plane| Folded { numbering: Numbering::Pods { plane }, ..first.clone() })
        .collect()
}

/// See the top of this file.
pub(crate) struct DualPlane;

impl Family for DualPlane {
    fn keys(&self) -> Vec<&'static str> {
        [&family::FOLDED[..], &["segment_nodes", "planes"]].concat()
    }

    fn plan(
        &self,
        inputs: &Inputs<'_>,
        back: &Back,
        name: &str,
        errors: &mut Errors,
    ) -> Box<dyn Network> {
        let networks = networks(inputs, back, errors);
        folded(inputs, networks, &habits(inputs), [name, "pod"], errors)
    }

    fn servers(&self, inputs: &Inputs<'_>, _: usize) -> Option<usize> {
        Some(inputs.fabric.pod_servers(1, POD_GPUS, inputs.gpus_per_node))
    }

    /// A NIC has a port in each plane even if the scenario does not say so.
    fn ports_per_nic(&self, fabric: &FabricConfig) -> Option<u32> {
        Some(fabric.planes.unwrap_or(2).max(1))
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, super::ClusterConfig, super::FabricConfig)> {
        use super::TopologyKind;
        use super::tests::{cluster, small};
        vec![("dual plane", cluster(64), small(TopologyKind::DualPlane))]
    }
}
