//! The network for storage, checkpoints and control: a Clos network beside the back-end, with NICs
//! of its own.
//!
//! Storage servers, where there are any, come after the compute servers and have as many NICs.

use super::cluster::{Cluster, ClusterConfig, Members, StoragePlace};
use super::error::Errors;
use super::folded::{Cables, Plan};
use super::settings::{FabricConfig, LinkConfig, TierConfig};
use super::sizing::{Habits, Inputs, LeafKind, UsualBox};
use crate::graph::NetworkKind;
use crate::hardware::Catalogue;

/// Front-end NICs in all.
pub(crate) fn nics(config: &ClusterConfig, servers: usize) -> usize {
    (servers + config.storage_on(StoragePlace::FrontEnd)) * config.front_end.nics as usize
}

/// The network, if there is one.
pub(crate) fn plan(
    config: &ClusterConfig,
    cluster: &Cluster,
    servers: usize,
    catalogue: &Catalogue,
    errors: &mut Errors,
) -> Option<Plan> {
    let front = &config.front_end;
    if front.nics == 0 {
        return None;
    }
    let switch = || TierConfig { switch: front.switch.clone(), ..TierConfig::default() };
    let link = |length| LinkConfig { length: Some(length), ..LinkConfig::default() };
    let fabric = FabricConfig {
        oversubscription: vec![front.oversubscription],
        leaf: switch(),
        spine: switch(),
        core: switch(),
        links: vec![link(front.length), link(front.uplink_length), link(front.uplink_length)],
        ..FabricConfig::default()
    };
    let inputs = Inputs {
        fabric: &fabric,
        catalogue,
        path: "cluster.front_end".to_owned(),
        prefix: "front-end ".to_owned(),
        port_rate: cluster.front_end_rate,
        nic_rate: cluster.front_end_rate,
        gpus_per_node: cluster.gpus_per_node,
        nics_per_node: front.nics as usize,
    };
    let on_back_end = config.storage_on(StoragePlace::BackEnd);
    let members = Members {
        servers: 0..servers + config.storage_on(StoragePlace::FrontEnd),
        rails: (0..front.nics as usize).collect(),
        nics_per_node: front.nics as usize,
        first_node: servers * cluster.gpus_per_node
            + (servers + on_back_end) * cluster.nics_per_node,
    };
    // Illustrative: one box of 51.2 Tb/s for every tier.
    let boxes = [UsualBox { model: "tomahawk-5", ports: 128, port_gbps: 400, latency_ns: 900 }; 3];
    let habits = Habits { boxes, ..Habits::default() };
    let folded = inputs.size(members, LeafKind::Rack, Cables::Bonded(1), &habits, errors);
    let tiers = folded.switches().iter().filter(|switches| 0 < **switches).count();
    Some(Plan {
        name: "front-end".to_owned(),
        kind: NetworkKind::FrontEnd,
        zone_word: "pod".to_owned(),
        levels: (0..tiers).map(|tier| inputs.level(tier, &habits, errors)).collect(),
        networks: vec![folded],
    })
}
