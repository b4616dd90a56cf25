//! Topologies: from the `[cluster]` and `[fabric]` tables to a [`Fabric`].
//!
//! ```
//! use fabric::hardware::Catalogue;
//! use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
//!
//! let fabric = FabricConfig { topology: TopologyKind::FatTree, k: Some(8), ..Default::default() };
//! let fabric = build(&ClusterConfig::default(), &fabric, &Catalogue::default()).unwrap();
//! assert_eq!((fabric.nics(), fabric.gpus()), (128, 128));
//! ```
//!
//! Each family has a file that turns settings into numbers (how many switches, how many uplinks);
//! [`folded`](self) networks share the wiring. Servers come first, then the scale-up network, then
//! the back-end or several of them, then the front-end. To add a family: a file that implements
//! `Family` with small examples for the tests, and its entry in the list below: a sentence and a
//! line with its module, kind, name and, where it has one, the table of its shape. The tests of all
//! families run it.

pub mod circuits;
mod cluster;
mod error;
mod family;
mod folded;
mod front_end;
mod scale_up;
mod settings;
mod sizing;
mod storage;
mod unused;

#[cfg(test)]
mod tests;

pub use cluster::{
    Aggregation, ClusterConfig, FrontEndConfig, MAX_GPUS, NicAffinity, ScaleUpConfig,
    StorageConfig, StoragePlace,
};
pub use error::ConfigError;
pub use file::{EdgeConfig, GraphConfig, SwitchConfig};
pub use settings::{
    CircuitSchedule, CircuitsConfig, DegradedConfig, FabricConfig, LinkConfig, PartConfig,
    SitesConfig, TierConfig,
};
pub use sizing::GENERIC_SWITCH;

use units::{OutOfRange, Ranges};

use cluster::{Cluster, Members};
use error::Errors;
use family::{Family, families};
use folded::Cables;
use sizing::Inputs;

use crate::graph::{Fabric, FabricBuilder};
use crate::hardware::Catalogue;
use crate::naming;
use crate::routes::Health;

families! {
    /// Leaves and spines, and cores above them where two tiers are too few.
    #[default]
    clos::Clos = "clos";
    /// The k-ary fat tree.
    fat_tree::FatTree = "fat-tree";
    /// One leaf for each rail of a segment of servers, spines between them.
    #[serde(alias = "rail-optimised")]
    #[schemars(extend("x-aliases" = ["rail-optimised"]))]
    rail_optimized::RailOptimized = "rail-optimized";
    /// One network for each rail and none between them.
    rail_only::RailOnly = "rail-only";
    /// Two planes, each NIC with a port in both (Alibaba HPN).
    dual_plane::DualPlane = "dual-plane";
    /// Meta's AI Zones: racks, cluster switches, oversubscribed aggregation between zones.
    ai_zone::AiZone = "ai-zone";
    /// Groups of routers, all-to-all within and between groups.
    dragonfly::Dragonfly = "dragonfly", DragonflyConfig;
    /// Routers in rows and columns, each row and each column a ring.
    torus::Torus = "torus", TorusConfig;
    /// An explicit graph: `graph`, or `file` for the scenario reader to import.
    file::File = "file";
}

/// The NICs that a back-end joins, and how they are attached.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    members: Members,
    ports_per_nic: usize,
    aggregation: Aggregation,
}

fn cables_of(back: &Back) -> Cables {
    match back.aggregation {
        Aggregation::DualTor if 1 < back.ports_per_nic => Cables::Spread(back.ports_per_nic),
        Aggregation::Bond | Aggregation::DualTor => Cables::Bonded(back.ports_per_nic),
    }
}

/// Builds the fabric, or says everything that is wrong with the settings.
pub fn build(
    cluster: &ClusterConfig,
    fabric: &FabricConfig,
    catalogue: &Catalogue,
) -> Result<Fabric, Vec<ConfigError>> {
    let mut errors = Errors::default();
    for wrong in ranges(cluster, fabric) {
        errors.push(&wrong.keys[0], wrong.message, "");
    }
    fabric.check_choice("fabric", &mut errors);
    let mut resolved = cluster.resolve(catalogue, &mut errors);
    if !errors.is_empty() {
        return Err(errors.into_vec());
    }
    let usual = fabric.topology.family().ports_per_nic(fabric);
    if let Some(ports) = usual.filter(|_| cluster.ports_per_nic == 1) {
        resolved.ports_per_nic = ports as usize;
        resolved.port_rate =
            units::Rate::from_bps((resolved.nic_rate.as_bps() / u64::from(ports)).max(1));
    }
    let builder = match (fabric.topology, fabric.parts.is_empty()) {
        (TopologyKind::File, true) => explicit(cluster, fabric, catalogue, &resolved, &mut errors),
        _ => families(cluster, fabric, catalogue, &resolved, &mut errors),
    };
    let Some(mut builder) = builder.filter(|_| errors.is_empty()) else {
        return Err(errors.into_vec());
    };
    let (gpus_per_node, nics_per_node) = builder.per_node();
    let affinity = cluster.affinity(gpus_per_node, nics_per_node, &mut errors);
    if !errors.is_empty() {
        return Err(errors.into_vec());
    }
    builder.affinity(affinity);
    let mut built = builder.build();
    match health(&built, fabric) {
        Ok(mut health) => {
            storage::slow_down(&built, cluster, &mut health, &mut errors);
            built.set_health(health);
        }
        Err(wrong) => errors.append(wrong),
    }
    errors.or(built)
}

/// What is out of range in the settings; [`build`] refuses it too.
pub fn ranges(cluster: &ClusterConfig, fabric: &FabricConfig) -> Vec<OutOfRange> {
    let mut found = Ranges::of("cluster", cluster);
    found.extend(Ranges::of("fabric", fabric));
    found
}

/// What the settings say has failed or is slow.
pub fn health(fabric: &Fabric, config: &FabricConfig) -> Result<Health, Vec<ConfigError>> {
    let mut errors = Errors::default();
    let mut health = Health::default();
    for (at, name) in config.failed.iter().enumerate() {
        match naming::links(fabric, name) {
            Ok(links) => links.into_iter().for_each(|link| health.fail(link)),
            Err(wrong) => {
                errors.push(&format!("fabric.failed.{at}"), wrong.reason, &wrong.suggestion);
            }
        }
    }
    for (at, DegradedConfig { link, rate }) in config.degraded.iter().enumerate() {
        match naming::links(fabric, link) {
            Ok(links) => {
                for link in links {
                    let most = fabric.class(link).rate;
                    if most < *rate {
                        let reason =
                            format!("{rate} is above the {most} of {}", fabric.link_name(link));
                        errors.push(&format!("fabric.degraded.{at}.rate"), reason, "a lower rate");
                        break;
                    }
                    health.degrade(link, *rate);
                }
            }
            Err(wrong) => {
                errors.push(&format!("fabric.degraded.{at}"), wrong.reason, &wrong.suggestion);
            }
        }
    }
    errors.or(health)
}

fn explicit(
    cluster: &ClusterConfig,
    fabric: &FabricConfig,
    catalogue: &Catalogue,
    resolved: &Cluster,
    errors: &mut Errors,
) -> Option<FabricBuilder> {
    let Some(graph) = &fabric.graph else {
        let reason = match &fabric.file {
            Some(file) => format!("`{file}` has not been read"),
            None => "topology = \"file\" needs a graph".to_owned(),
        };
        errors.push("fabric.file", reason, "file = \"edges.csv\"");
        return None;
    };
    storage::check(cluster, Some(graph), errors);
    let servers = file::servers(graph, cluster, "fabric.graph", errors);
    let mut resolved = resolved.clone();
    if servers.gpus_per_node != resolved.gpus_per_node && cluster.scale_up.domain.is_none() {
        resolved.scale_up.domain = servers.gpus_per_node;
    }
    (resolved.gpus_per_node, resolved.nics_per_node) =
        (servers.gpus_per_node, servers.nics_per_node);
    let front = front_end::plan(cluster, &resolved, servers.servers, catalogue, errors);
    let inputs = inputs(fabric, catalogue, &resolved, "fabric", "");
    let front_nics = front_end::nics(cluster, servers.servers);
    let mut builder = file::build(graph, &inputs, servers, front_nics, &resolved.scale_up, errors);
    builder.storage_on_front_end(front_end::nics(cluster, 0));
    if let Some(front) = front.filter(|_| errors.is_empty()) {
        front.wire(&mut builder, 0);
    }
    Some(builder)
}

fn inputs<'a>(
    fabric: &'a FabricConfig,
    catalogue: &'a Catalogue,
    resolved: &Cluster,
    path: &str,
    prefix: &str,
) -> Inputs<'a> {
    Inputs {
        fabric,
        catalogue,
        path: path.to_owned(),
        prefix: prefix.to_owned(),
        port_rate: resolved.port_rate,
        nic_rate: resolved.nic_rate,
        gpus_per_node: resolved.gpus_per_node,
        nics_per_node: resolved.nics_per_node,
    }
}

/// The most cables of a fabric: ids have 32 bits, and memory an end.
const MAX_CABLES: f64 = 5e8;

/// Refuses parts that share a NIC, and NICs that are on no part.
fn check_parts(backs: &[&Back], servers: usize, errors: &mut Errors) {
    for (at, one) in backs.iter().enumerate() {
        for (other_at, other) in backs.iter().enumerate().skip(at + 1) {
            let (a, b) = (&one.members, &other.members);
            let meet = a.servers.start.max(b.servers.start) < a.servers.end.min(b.servers.end);
            let shared = a.rails.iter().find(|rail| b.rails.contains(rail));
            if let (true, Some(rail)) = (meet, shared) {
                let reason = format!("NIC {rail} of some servers is on part {at} too");
                errors.push(&format!("fabric.parts.{other_at}.nics"), reason, "");
            }
        }
    }
    let all = backs.first().map_or(0, |back| back.members.nics_per_node) * servers;
    let attached: usize = backs.iter().map(|back| back.members.len()).sum();
    if attached < all {
        let reason = format!("{} NICs are on no part", all - attached);
        errors.push("fabric.parts", reason, "");
    }
}

fn families(
    cluster: &ClusterConfig,
    fabric: &FabricConfig,
    catalogue: &Catalogue,
    resolved: &Cluster,
    errors: &mut Errors,
) -> Option<FabricBuilder> {
    let natural = || {
        let ports = resolved.nics_per_node * resolved.ports_per_nic;
        let inputs = inputs(fabric, catalogue, resolved, "fabric", "");
        fabric.topology.family().servers(&inputs, ports)
    };
    let servers = resolved.servers.or_else(natural);
    let servers = servers.unwrap_or_else(|| resolved.servers(errors));
    if MAX_GPUS < (servers * resolved.gpus_per_node) as u64 || servers == 0 {
        let reason = format!("a cluster has 1 to {MAX_GPUS} GPUs");
        errors.push("cluster", reason, "gpus = 1024");
    }
    storage::check(cluster, None, errors);
    if !errors.is_empty() {
        return None;
    }
    let storage = cluster.storage_on(StoragePlace::BackEnd);
    let whole = PartConfig { fabric: fabric.clone(), ..PartConfig::default() };
    let parts = if fabric.parts.is_empty() { std::slice::from_ref(&whole) } else { &fabric.parts };
    let mut networks = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let (path, prefix) = match fabric.parts.is_empty() {
            true => ("fabric".to_owned(), String::new()),
            false if part.name.is_empty() => (format!("fabric.parts.{at}.fabric"), String::new()),
            false => (format!("fabric.parts.{at}.fabric"), format!("{} ", part.name)),
        };
        let inputs = inputs(&part.fabric, catalogue, resolved, &path, &prefix);
        let back = part_members(part, at, cluster, resolved, servers, errors);
        let family = part.fabric.topology.family();
        networks.push((family.plan(&inputs, &back, &part.name, errors), inputs, back));
    }
    if !fabric.parts.is_empty() {
        let backs: Vec<&Back> = networks.iter().map(|(_, _, back)| back).collect();
        check_parts(&backs, servers + storage, errors);
    }
    let front = front_end::plan(cluster, resolved, servers, catalogue, errors);
    let cables = networks.iter().map(|(network, _, _)| network.cables()).sum::<f64>();
    if MAX_CABLES < cables {
        let reason = format!("{cables:.0} cables are more than {MAX_CABLES:.0}");
        errors.push("fabric", reason, "fewer GPUs or uplinks");
    }
    if !errors.is_empty() {
        return None;
    }
    let mut builder = FabricBuilder::new(servers, resolved.gpus_per_node, resolved.nics_per_node);
    storage::add_nics(cluster, servers, &mut builder);
    scale_up::wire(&resolved.scale_up, servers * resolved.gpus_per_node, &mut builder);
    let mut leaf = 0;
    for (network, inputs, _) in &networks {
        leaf = network.wire(inputs, leaf, &mut builder, errors);
    }
    if let Some(front) = front {
        front.wire(&mut builder, leaf);
    }
    Some(builder)
}

fn part_members(
    part: &PartConfig,
    at: usize,
    cluster: &ClusterConfig,
    resolved: &Cluster,
    servers: usize,
    errors: &mut Errors,
) -> Back {
    let all = servers + cluster.storage_on(StoragePlace::BackEnd);
    let [first, last] = part.servers.map_or([0, all - 1], |said| said.map(|n| n as usize));
    let in_order = first <= last && last < all;
    if !in_order {
        let reason = format!("servers {first} to {last} of 0 to {}", all - 1);
        errors.push(&format!("fabric.parts.{at}.servers"), reason, "[first, last]");
    }
    let mut rails: Vec<usize> = part.nics.iter().map(|&nic| nic as usize).collect();
    rails.sort_unstable();
    rails.dedup();
    if rails.iter().any(|&rail| resolved.nics_per_node <= rail) {
        let reason = format!("a server has NICs 0 to {}", resolved.nics_per_node - 1);
        errors.push(&format!("fabric.parts.{at}.nics"), reason, "");
        rails.clear();
    }
    if rails.is_empty() {
        rails = (0..resolved.nics_per_node).collect();
    }
    Back {
        members: Members {
            servers: if in_order { first..last + 1 } else { 0..1 },
            rails,
            nics_per_node: resolved.nics_per_node,
            first_node: servers * resolved.gpus_per_node,
        },
        ports_per_nic: resolved.ports_per_nic,
        aggregation: cluster.aggregation,
    }
}
