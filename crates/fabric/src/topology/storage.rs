//! Storage servers: NICs without GPUs on the front-end or the back-end, after all other servers.
//!
//! A storage server that is slower than its NICs has slower links: its rate is shared out over
//! them, in both directions.

use units::Rate;

use super::cluster::{ClusterConfig, StoragePlace};
use super::error::Errors;
use super::file::GraphConfig;
use super::front_end;
use crate::graph::{Fabric, FabricBuilder};
use crate::routes::Health;

/// Refuses storage servers that have nowhere to be.
pub(crate) fn check(config: &ClusterConfig, graph: Option<&GraphConfig>, errors: &mut Errors) {
    let place = "cluster.storage.place";
    if 0 < config.storage_on(StoragePlace::FrontEnd) && config.front_end.nics == 0 {
        let reason = "servers have no front-end that storage could be on".to_owned();
        errors.push(place, reason, "cluster.front_end.nics = 1, or place = \"back-end\"");
    }
    if 0 < config.storage_on(StoragePlace::BackEnd) && graph.is_some() {
        let reason = "a graph names all its NICs, and none for storage".to_owned();
        errors.push(place, reason, "place = \"front-end\"");
    }
}

/// Adds the NICs of storage servers, and all of the front-end.
pub(crate) fn add_nics(config: &ClusterConfig, servers: usize, builder: &mut FabricBuilder) {
    let (_, per_node) = builder.per_node();
    builder.storage_nics(config.storage_on(StoragePlace::BackEnd) * per_node);
    for nic in 0..front_end::nics(config, servers) {
        builder.front_end_nic(nic);
    }
    let on_front_end = front_end::nics(config, 0);
    if 0 < on_front_end {
        builder.storage_on_front_end(on_front_end);
    }
}

/// Shares the rate of each storage server out over the cables of its NICs.
pub(crate) fn slow_down(
    fabric: &Fabric,
    config: &ClusterConfig,
    health: &mut Health,
    errors: &mut Errors,
) {
    let Some(rate) = config.storage.rate else { return };
    let servers = u64::from(config.storage.servers.max(1));
    let nics = fabric.storage().map(|number| fabric.endpoint(number));
    let ports: Vec<_> = nics.flat_map(|nic| fabric.ports(nic)).copied().collect();
    let cables = (ports.len() as u64 / servers).max(1);
    let each = rate.as_bps() / cables;
    for port in ports {
        let most = fabric.class(port).rate.as_bps();
        if most < each {
            let all = Rate::from_bps(cables * most);
            let reason = format!("{rate} is more than the {all} of a storage server's NICs");
            return errors.push("cluster.storage.rate", reason, "a lower rate");
        }
        let share = Rate::from_bps(each.max(1));
        health.degrade(port, share);
        health.degrade(fabric.reverse(port), share);
    }
}
