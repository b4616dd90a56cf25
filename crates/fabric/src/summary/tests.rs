//! Closed forms of bisection and oversubscription against maximum flow, and the published fabrics.

use units::Rate;

use super::*;
use crate::topology::{
    CircuitsConfig, DragonflyConfig, FabricConfig, FrontEndConfig, Shapes, TopologyKind, build,
};

fn hosts(hosts: u64) -> ClusterConfig {
    ClusterConfig { gpus: Some(hosts), gpus_per_node: 1, nics_per_node: 1, ..Default::default() }
}

fn cluster(gpus: u64) -> ClusterConfig {
    ClusterConfig { gpus: Some(gpus), ..ClusterConfig::default() }
}

fn with(dragonfly: DragonflyConfig) -> FabricConfig {
    let shapes = Shapes { dragonfly, ..Shapes::default() };
    FabricConfig { shapes, ..of(TopologyKind::Dragonfly) }
}

fn of(topology: TopologyKind) -> FabricConfig {
    FabricConfig { topology, ..FabricConfig::default() }
}

fn described(cluster: &ClusterConfig, config: &FabricConfig) -> (Fabric, Summary) {
    let catalogue = Catalogue::default();
    let fabric = build(cluster, config, &catalogue).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    let summary = summary(&fabric, cluster, &catalogue);
    (fabric, summary)
}

/// The largest flow from one set of nodes to another, by shortest augmenting paths (Edmonds and
/// Karp), with links as they are in service. Slow, and obviously right.
fn max_flow(fabric: &Fabric, from: &[NodeId], to: &[NodeId]) -> u64 {
    let mut spare: Vec<u64> = fabric
        .links()
        .ids()
        .map(|link| {
            let health = fabric.health();
            let bps = health.rate(fabric, link).as_bps();
            let used = fabric.class(link).kind != LinkKind::ScaleUp && !health.is_down(link);
            if used { bps / 1_000_000_000 } else { 0 }
        })
        .collect();
    let is_end = |node: NodeId| to.contains(&node);
    let mut total = 0;
    loop {
        let mut came: Vec<Option<LinkId>> = vec![None; fabric.nodes().len()];
        let mut seen = vec![false; fabric.nodes().len()];
        let mut queue: std::collections::VecDeque<NodeId> = from.iter().copied().collect();
        from.iter().for_each(|node| seen[node.index()] = true);
        let mut reached = None;
        while let Some(at) = queue.pop_front() {
            if is_end(at) {
                reached = Some(at);
                break;
            }
            for &link in fabric.ports(at) {
                let next = fabric.links()[link].to;
                if 0 < spare[link.index()] && !seen[next.index()] {
                    seen[next.index()] = true;
                    came[next.index()] = Some(link);
                    queue.push_back(next);
                }
            }
        }
        let Some(end) = reached else { return total };
        let mut path = Vec::new();
        let mut at = end;
        while let Some(link) = came[at.index()] {
            path.push(link);
            at = fabric.links()[link].from;
        }
        let least = path.iter().map(|link| spare[link.index()]).min().unwrap();
        for link in path {
            spare[link.index()] -= least;
            spare[fabric.reverse(link).index()] += least;
        }
        total += least;
    }
}

/// The maximum flow between the first and the second half of the NICs in order of their leaves.
fn halves_by_flow(fabric: &Fabric) -> f64 {
    let mut nics: Vec<NodeId> = (0..fabric.nics()).map(|number| fabric.nic(number)).collect();
    nics.sort_by_key(|nic| fabric.links()[fabric.ports(*nic)[0]].to);
    let (first, second) = nics.split_at(nics.len() / 2);
    max_flow(fabric, first, second) as f64 * 1e9
}

/// Agreement: the closed form against maximum flow, on instances that divide evenly.
#[test]
fn bisection_is_the_maximum_flow_between_halves() {
    let clos = |oversubscription: &[f64], radix| FabricConfig {
        oversubscription: oversubscription.to_vec(),
        radix: Some(radix),
        ..of(TopologyKind::Clos)
    };
    let three = |oversubscription: &[f64]| FabricConfig {
        pods: Some(4),
        downlinks: Some(4),
        ..clos(oversubscription, 12)
    };
    let dragonfly = DragonflyConfig {
        routers: Some(4),
        hosts: Some(2),
        global_links: Some(2),
        groups: Some(8),
    };
    let cases: Vec<(&str, ClusterConfig, FabricConfig)> = vec![
        ("k=4", hosts(16), FabricConfig { k: Some(4), ..of(TopologyKind::FatTree) }),
        ("k=6", hosts(54), FabricConfig { k: Some(6), ..of(TopologyKind::FatTree) }),
        ("two tiers 1:1", hosts(32), clos(&[1.0], 8)),
        ("two tiers 3:1", hosts(48), clos(&[3.0], 8)),
        ("two tiers, wide", hosts(32), clos(&[0.5], 12)),
        ("three tiers 1:1", hosts(64), three(&[1.0, 1.0])),
        ("three tiers 2:1 at leaves", hosts(64), three(&[2.0, 1.0])),
        ("three tiers 4:1 at spines", hosts(64), three(&[1.0, 4.0])),
        ("zones", cluster(128), FabricConfig { pod_gpus: Some(32), ..of(TopologyKind::AiZone) }),
        ("rails", cluster(64), FabricConfig { radix: Some(8), ..of(TopologyKind::RailOptimized) }),
        ("planes", cluster(64), FabricConfig { radix: Some(8), ..of(TopologyKind::DualPlane) }),
        ("dragonfly", hosts(64), with(dragonfly)),
        (
            "circuits",
            hosts(64),
            FabricConfig {
                cores: Some(0),
                circuits: CircuitsConfig { per_pod: 6, ..Default::default() },
                ..three(&[1.0, 1.0])
            },
        ),
    ];
    for (name, cluster, config) in cases {
        let (fabric, summary) = described(&cluster, &config);
        assert_eq!(summary.bisection_bps, halves_by_flow(&fabric), "{name}: {summary:?}");
    }
}

/// Property: on what does not divide evenly, no halves carry less than the closed form says.
#[test]
fn bisection_is_never_more_than_the_flow() {
    for hosts_count in [17_u64, 23, 30, 41, 57] {
        for ratio in [1.0, 2.0] {
            let config = FabricConfig {
                radix: Some(8),
                oversubscription: vec![ratio, ratio],
                ..of(TopologyKind::Clos)
            };
            let (fabric, summary) = described(&hosts(hosts_count), &config);
            let flow = halves_by_flow(&fabric);
            let nic = 4e11;
            assert!(
                summary.bisection_bps <= flow + nic,
                "{hosts_count} hosts, {ratio}: {} against {flow}",
                summary.bisection_bps
            );
        }
    }
}

/// Oracle: Al-Fares et al. 2008; the first of the numbers that `topo` must show.
#[test]
fn a_fat_tree_of_eight_has_full_bisection() {
    let config = FabricConfig { k: Some(8), ..of(TopologyKind::FatTree) };
    let (_, summary) = described(&hosts(128), &config);
    assert_eq!((summary.nics, summary.switches, summary.links), (128, 80, 384));
    assert_eq!((summary.paths_max, summary.hops_max), (16, 6));
    assert_eq!(summary.bisection_bps, 64.0 * 4e11);
    assert_eq!(summary.bisection_share, 1.0);
    let tiers: Vec<(&str, u64, u64, f64)> = summary
        .tiers
        .iter()
        .map(|tier| (tier.name.as_str(), tier.switches, tier.links, tier.oversubscription))
        .collect();
    assert_eq!(
        tiers,
        [("edge", 32, 128, 1.0), ("aggregation", 32, 128, 1.0), ("core", 16, 128, 1.0)]
    );
}

/// Oracle: Llama 3 section 3.3.1.
#[test]
fn zones_are_oversubscribed_seven_times() {
    let (_, summary) = described(&ClusterConfig::default(), &of(TopologyKind::AiZone));
    assert_eq!((summary.gpus, summary.nodes), (24_576, 3_072));
    assert_eq!((summary.zones, summary.gpus_per_zone), (8, 3_072));
    let ratios: Vec<f64> = summary.tiers.iter().map(|tier| tier.oversubscription).collect();
    assert_eq!(ratios, [1.0, 7.0, 1.0]);
    assert_eq!(summary.tiers[1].oversubscription_built, 192.0 / 28.0);
    assert_eq!(summary.bisection_bps, 4.0 * 16.0 * 28.0 * 4e11);
    assert_eq!(summary.paths_max, 16 * 28 * 16);
}

/// Oracle: HPN, and 200,000 GPUs on eight rails with a front-end NIC each server.
#[test]
fn large_fabrics_are_described_by_their_published_numbers() {
    let (_, pod) = described(&ClusterConfig::default(), &of(TopologyKind::DualPlane));
    assert_eq!((pod.gpus, pod.switches, pod.paths_max), (15_360, 360, 120));
    assert_eq!(pod.tiers.len(), 2);

    let front_end = FrontEndConfig { nics: 1, ..FrontEndConfig::default() };
    let colossus = ClusterConfig { front_end, ..cluster(200_000) };
    let config = FabricConfig { radix: Some(128), ..of(TopologyKind::RailOptimized) };
    let (_, summary) = described(&colossus, &config);
    assert_eq!((summary.gpus, summary.nodes, summary.nics), (200_000, 25_000, 200_000));
    assert_eq!(summary.tiers.len(), 3);
    assert_eq!(summary.switches, 391 * 8 + 49 * 64 + 64 * 32);
    assert_eq!(summary.front_end.unwrap().nics, 25_000);
    assert_eq!(summary.scale_up.switches, 25_000);
    assert_eq!(summary.scale_up.rate_bps, 3.6e12);
}

#[test]
fn what_has_failed_is_left_out_of_bisection_and_paths() {
    let whole = FabricConfig { k: Some(4), ..of(TopologyKind::FatTree) };
    let failed = FabricConfig { failed: vec!["core 0".to_owned()], ..whole.clone() };
    let (_, summary) = described(&hosts(16), &failed);
    assert_eq!(summary.failed_links, 8);
    assert_eq!(summary.bisection_bps, 6.0 * 4e11);
    assert_eq!(summary.paths_max, 3);
    let slow = crate::topology::DegradedConfig {
        link: "pod * aggregation * - core *".to_owned(),
        rate: Rate::from_gbps(100),
    };
    let (_, summary) = described(&hosts(16), &FabricConfig { degraded: vec![slow], ..whole });
    assert_eq!(summary.bisection_bps, 8.0 * 1e11);
}

/// Oracle: a full balanced dragonfly has a·p·(a·h + 1) hosts; a pair of groups has one link.
#[test]
fn a_balanced_dragonfly_has_its_counts() {
    let dragonfly = DragonflyConfig { global_links: Some(2), ..DragonflyConfig::default() };
    let config = with(dragonfly);
    let cluster = ClusterConfig { gpus_per_node: 1, nics_per_node: 1, ..Default::default() };
    let (fabric, summary) = described(&cluster, &config);
    assert_eq!((summary.nics, summary.switches, summary.zones), (72, 36, 9));
    let (locals, globals) = (9 * 6, 36);
    assert_eq!(summary.links, 72 + locals + globals);
    assert_eq!(summary.tiers[0].oversubscription, 1.0);
    assert_eq!(summary.hops_max, 5);
    for switch in fabric.leaves() {
        assert_eq!(fabric.ports(*switch).len(), 2 + 3 + 2, "{}", fabric.name(*switch));
    }
}

#[test]
fn an_nvl72_domain_is_larger_than_a_server() {
    let scale_up = crate::topology::ScaleUpConfig {
        domain: Some(72),
        ..crate::topology::ScaleUpConfig::default()
    };
    let cluster = ClusterConfig {
        gpus: Some(144),
        gpus_per_node: 4,
        nics_per_node: 4,
        scale_up,
        ..ClusterConfig::default()
    };
    let (fabric, summary) = described(&cluster, &of(TopologyKind::Clos));
    assert_eq!((summary.scale_up.domain_gpus, summary.scale_up.switches), (72, 2));
    let mut hops = Vec::new();
    Routes::default().next_hops(&fabric, fabric.gpu(0), fabric.gpu(71), &mut hops);
    assert_eq!(hops.len(), 1);
    Routes::default().next_hops(&fabric, fabric.gpu(0), fabric.gpu(72), &mut hops);
    assert!(hops.is_empty());
}
