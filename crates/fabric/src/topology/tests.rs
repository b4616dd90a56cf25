//! Every family against closed forms and against brute force: counting, path counting over next
//! hops, breadth-first distances, maximum flow.

use std::collections::BTreeMap;

use units::Id;

use super::*;
use crate::graph::{LinkId, NodeId};
use crate::routes::Routes;

pub(super) fn cluster(gpus: u64) -> ClusterConfig {
    ClusterConfig { gpus: Some(gpus), ..ClusterConfig::default() }
}

/// Servers of one GPU and one NIC: "hosts".
pub(super) fn hosts(hosts: u64) -> ClusterConfig {
    ClusterConfig { gpus: Some(hosts), gpus_per_node: 1, nics_per_node: 1, ..Default::default() }
}

pub(super) fn of(topology: TopologyKind) -> FabricConfig {
    FabricConfig { topology, ..FabricConfig::default() }
}

/// With small switches.
pub(super) fn small(topology: TopologyKind) -> FabricConfig {
    FabricConfig { radix: Some(8), ..of(topology) }
}

fn made(cluster: &ClusterConfig, fabric: &FabricConfig) -> Fabric {
    build(cluster, fabric, &Catalogue::default()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Switches of each tier, bottom up.
fn switches(fabric: &Fabric) -> Vec<usize> {
    let of_tier = |tier: usize| {
        let nodes = fabric.nodes().iter().filter(|node| node.kind == crate::NodeKind::Switch);
        nodes.filter(|node| usize::from(node.tier) == tier).count()
    };
    (0..fabric.tiers().len()).map(of_tier).collect()
}

/// Distinct shortest ways, counted over next hops.
fn paths(fabric: &Fabric, routes: &mut Routes, from: NodeId, to: NodeId) -> u64 {
    fn count(
        fabric: &Fabric,
        routes: &mut Routes,
        at: NodeId,
        to: NodeId,
        known: &mut BTreeMap<NodeId, u64>,
    ) -> u64 {
        if at == to {
            return 1;
        }
        if let Some(&paths) = known.get(&at) {
            return paths;
        }
        let mut hops = Vec::new();
        routes.next_hops(fabric, at, to, &mut hops);
        let nodes: Vec<NodeId> = hops.iter().map(|link| fabric.links()[*link].to).collect();
        let paths = nodes.into_iter().map(|next| count(fabric, routes, next, to, known)).sum();
        known.insert(at, paths);
        paths
    }
    count(fabric, routes, from, to, &mut BTreeMap::new())
}

fn sorted(links: &[LinkId]) -> Vec<LinkId> {
    let mut links = links.to_vec();
    links.sort_unstable();
    links
}

/// Small fabrics of every family and with every special case.
fn zoo() -> Vec<(String, TopologyKind, Fabric)> {
    let two_ports = ClusterConfig { ports_per_nic: 2, ..cluster(64) };
    let dual_tor = ClusterConfig { aggregation: Aggregation::DualTor, ..two_ports.clone() };
    let front = ClusterConfig {
        front_end: FrontEndConfig { nics: 1, ..Default::default() },
        ..cluster(64)
    };
    let examples = TopologyKind::ALL.iter().flat_map(|kind| kind.family().examples());
    let mut zoo: Vec<(&str, ClusterConfig, FabricConfig)> = examples.collect();
    zoo.extend([
        ("bonded", two_ports, FabricConfig { radix: Some(64), ..of(TopologyKind::Clos) }),
        ("dual ToR", dual_tor, FabricConfig { radix: Some(16), ..of(TopologyKind::Clos) }),
        ("with front-end", front, FabricConfig { radix: Some(16), ..of(TopologyKind::Clos) }),
    ]);
    let unequal = FabricConfig {
        downlinks: Some(4),
        uplinks: vec![5],
        spines: Some(3),
        radix: Some(32),
        ..of(TopologyKind::Clos)
    };
    zoo.push(("unequal uplinks", hosts(22), unequal.clone()));
    let sparse = FabricConfig { uplinks: vec![2], ..unequal };
    zoo.push(("fewer uplinks than spines", hosts(22), sparse));
    let circuits = FabricConfig {
        pods: Some(4),
        cores: Some(0),
        circuits: CircuitsConfig { per_pod: 6, ..Default::default() },
        radix: Some(16),
        ..of(TopologyKind::Clos)
    };
    zoo.push(("circuits", cluster(128), circuits));
    let part = |nics: &[u32], topology| PartConfig {
        name: format!("{topology:?}"),
        nics: nics.to_vec(),
        fabric: small(topology),
        ..PartConfig::default()
    };
    let parts = FabricConfig {
        parts: vec![
            part(&[0, 1, 2, 3], TopologyKind::RailOptimized),
            part(&[4, 5, 6, 7], TopologyKind::Clos),
        ],
        ..FabricConfig::default()
    };
    zoo.push(("two back-ends", cluster(64), parts));
    zoo.into_iter()
        .map(|(name, cluster, config)| {
            let fabric = build(&cluster, &config, &Catalogue::default());
            let fabric = fabric.unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
            (name.to_owned(), config.topology, fabric)
        })
        .collect()
}

/// Whether two NICs are meant to reach each other.
fn are_joined(name: &str, kind: TopologyKind, fabric: &Fabric, a: NodeId, b: NodeId) -> bool {
    let (a, b) = (fabric.rail_of(a), fabric.rail_of(b));
    if name == "two back-ends" { (a < 4) == (b < 4) } else { kind.family().joins(a, b) }
}

/// Property. Without failures every NIC reaches every NIC it should; what the structure says is
/// what breadth-first distances say; and every hop leads one nearer.
#[test]
fn next_hops_agree_with_distances_everywhere() {
    for (name, kind, fabric) in zoo() {
        let mut routes = Routes::default();
        let mut hops = Vec::new();
        let step = (fabric.nics() / 16).max(1);
        for to in (0..fabric.nics()).map(|number| fabric.nic(number)) {
            for from in (0..fabric.nics()).step_by(step).map(|number| fabric.nic(number)) {
                let mut frontier = vec![from];
                let mut length = 0;
                while !frontier.is_empty() && !frontier.contains(&to) {
                    let mut next = Vec::new();
                    for &at in &frontier {
                        routes.next_hops(&fabric, at, to, &mut hops);
                        let mut by_distance = Vec::new();
                        routes.field_hops(&fabric, at, to, &mut by_distance);
                        let place = format!("{name}: {} to {}", fabric.name(at), fabric.name(to));
                        assert_eq!(sorted(&hops), sorted(&by_distance), "{place}");
                        let unique = hops.iter().collect::<std::collections::BTreeSet<_>>();
                        assert_eq!(unique.len(), hops.len(), "{place}");
                        next.extend(hops.iter().map(|link| fabric.links()[*link].to));
                    }
                    next.sort_unstable();
                    next.dedup();
                    frontier = next;
                    length += 1;
                    assert!(length <= fabric.switches().len() + 1, "{name}: a way without end");
                }
                let is_there = frontier.contains(&to);
                assert_eq!(
                    is_there,
                    are_joined(&name, kind, &fabric, from, to),
                    "{name}: {from:?}"
                );
                assert!(frontier.len() <= 1, "{name}: not all ways to {to:?} are equally long");
            }
        }
    }
}

/// Oracle: Al-Fares et al. 2008.
#[test]
fn a_fat_tree_has_the_published_counts_and_paths() {
    for k in [4, 6, 8] {
        let half = k as usize / 2;
        let fabric = made(
            &hosts(fat_tree::hosts(k)),
            &FabricConfig { k: Some(k), ..of(TopologyKind::FatTree) },
        );
        assert_eq!(fabric.nics(), half * half * k as usize);
        let k = k as usize;
        assert_eq!(switches(&fabric), [k * half, k * half, half * half]);
        let mut routes = Routes::default();
        let (first, last) = (fabric.nic(0), fabric.nic(fabric.nics() - 1));
        assert_eq!(paths(&fabric, &mut routes, first, last), (half * half) as u64);
        let beside = fabric.nic(half);
        assert_eq!(paths(&fabric, &mut routes, first, beside), half as u64);
    }
}

/// Oracle: Llama 3 section 3.3.1.
#[test]
fn eight_zones_make_24576_gpus() {
    let fabric = made(&ClusterConfig::default(), &of(TopologyKind::AiZone));
    assert_eq!((fabric.gpus(), fabric.servers()), (24_576, 3_072));
    assert_eq!(switches(&fabric), [8 * 192, 8 * 16, 28]);
    let rtsw = fabric.leaves()[192];
    assert_eq!(fabric.name(rtsw), "zone 1 RTSW 0");
    let (down, up) = fabric.ports_down_up(rtsw);
    assert_eq!((down.len(), up.len()), (16, 16));
    let ctsw = fabric.links()[up[3]].to;
    assert_eq!(fabric.name(ctsw), "zone 1 CTSW 3");
    let (down, up) = fabric.ports_down_up(ctsw);
    assert_eq!((down.len(), up.len()), (192, 28));
    assert_eq!(fabric.designed_oversubscription(1), Some(7.0));
    let (first, last) = (fabric.nic(0), fabric.nic(24_575));
    let counted = paths(&fabric, &mut Routes::default(), first, last);
    assert_eq!(counted, 16 * 28 * 16);
}

/// Oracle: Alibaba HPN, SIGCOMM 2024.
#[test]
fn a_dual_plane_pod_has_15360_gpus() {
    let fabric = made(&ClusterConfig::default(), &of(TopologyKind::DualPlane));
    assert_eq!((fabric.gpus(), fabric.servers()), (15_360, 1_920));
    assert_eq!(switches(&fabric), [2 * 15 * 8, 2 * 60]);
    let nic = fabric.nic(0);
    let leaves: Vec<NodeId> =
        fabric.ports(nic).iter().map(|link| fabric.links()[*link].to).collect();
    assert_eq!(leaves.len(), 2);
    let rate = fabric.class(fabric.ports(nic)[0]).rate;
    assert_eq!(rate, units::Rate::from_gbps(200));
    let (down, up) = fabric.ports_down_up(leaves[1]);
    assert_eq!((down.len(), up.len()), (128, 60));
    assert_eq!(paths(&fabric, &mut Routes::default(), nic, fabric.nic(15_359)), 2 * 60);
}

/// Oracle, by hand: 64 × 400G up and down per leaf, 512 servers a pod, 49 pods.
#[test]
fn two_hundred_thousand_gpus_fit_three_tiers() {
    let fabric = FabricConfig { radix: Some(128), ..of(TopologyKind::RailOptimized) };
    let fabric = made(&cluster(200_000), &fabric);
    assert_eq!((fabric.gpus(), fabric.servers()), (200_000, 25_000));
    assert_eq!(switches(&fabric), [391 * 8, 49 * 64, 64 * 32]);
    assert!(fabric.has_structure());
    let (first, last) = (fabric.nic(0), fabric.nic(199_999));
    assert_eq!(paths(&fabric, &mut Routes::default(), first, last), 64 * 32 * 2 * 2);
}

/// Property. Leaves are shared out evenly, nothing is left unattached, and ports suffice.
#[test]
fn counts_that_do_not_divide_make_partial_leaves_and_pods() {
    for gpus in [8, 24, 136, 1_000, 1_032, 4_104, 8_000] {
        for topology in [TopologyKind::Clos, TopologyKind::RailOptimized, TopologyKind::RailOnly] {
            let fabric = made(&cluster(gpus), &FabricConfig { radix: Some(32), ..of(topology) });
            let context = format!("{gpus} GPUs, {}", topology.name());
            for nic in 0..fabric.nics() {
                assert_eq!(fabric.ports(fabric.nic(nic)).len(), 1, "{context}");
            }
            let back_end = fabric
                .switches()
                .filter(|switch| fabric.nodes()[*switch].kind == crate::NodeKind::Switch);
            for switch in back_end {
                assert!(fabric.ports(switch).len() <= 32, "{context}: {}", fabric.name(switch));
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let refused = |cluster: &ClusterConfig, fabric: &FabricConfig| -> Vec<String> {
        let errors = build(cluster, fabric, &Catalogue::default()).expect_err("this cannot be");
        errors.iter().map(ToString::to_string).collect()
    };
    let fat_tree = FabricConfig { k: Some(4), ..of(TopologyKind::FatTree) };
    assert_eq!(
        refused(&hosts(17), &fat_tree),
        ["fabric.k: a fat tree with k = 4 has 16 host ports, not 17 (try k = 6)"]
    );
    assert_eq!(
        refused(&cluster(100), &of(TopologyKind::Clos)),
        ["cluster.gpus: 100 GPUs are no whole number of 8-GPU servers (try gpus = 104)"]
    );
    assert_eq!(
        refused(&ClusterConfig::default(), &of(TopologyKind::Clos)),
        ["cluster: how many GPUs there are is missing (try gpus = 128)"]
    );
    let failed = FabricConfig { failed: vec!["spine 9".to_owned()], ..of(TopologyKind::Clos) };
    assert_eq!(
        refused(&cluster(16), &failed),
        ["fabric.failed.0: nothing is called `spine 9` (try leaf 0)"]
    );
    let two_tiers = FabricConfig { tiers: Some(2), radix: Some(8), ..of(TopologyKind::Clos) };
    let errors = refused(&hosts(1_000), &two_tiers);
    assert!(errors[0].contains("each spine would need"), "{errors:?}");
}

/// Distances of all nodes to one NIC over links in service, by breadth-first search backwards.
fn distances(fabric: &Fabric, health: &Health, to: NodeId) -> Vec<Option<u32>> {
    let mut found = vec![None; fabric.nodes().len()];
    found[to.index()] = Some(0);
    let mut frontier = vec![to];
    let mut distance = 0;
    while !frontier.is_empty() {
        distance += 1;
        let mut reached = Vec::new();
        for &near in &frontier {
            for &out in fabric.ports(near) {
                let far = fabric.links()[out].to;
                let is_scale_out = fabric.class(out).kind != crate::graph::LinkKind::ScaleUp;
                let is_live = !health.is_down(fabric.reverse(out)) && is_scale_out;
                if is_live && found[far.index()].is_none() {
                    found[far.index()] = Some(distance);
                    // NICs and GPUs carry nobody else's packets.
                    if fabric.nodes()[far].kind == crate::NodeKind::Switch {
                        reached.push(far);
                    }
                }
            }
        }
        frontier = reached;
    }
    found
}

/// Property. Whatever has failed, next hops are exactly the links in service that lead to a node
/// one nearer, and there are none only where there is no way.
#[test]
fn next_hops_decrease_the_distance_whatever_has_failed() {
    for (name, _, fabric) in zoo() {
        for seed in 0..12 {
            let mut random = units::Random::new(seed, "failures", 0);
            let mut health = Health::default();
            let share = [0.01, 0.1, 0.4][seed as usize % 3];
            for link in fabric.links().ids() {
                if random.unit() < share {
                    health.fail(link);
                }
            }
            let mut routes = Routes::new(health.clone());
            let mut hops = Vec::new();
            for _ in 0..6 {
                let to = fabric.nic(random.below(fabric.nics() as u64) as usize);
                let distances = distances(&fabric, &health, to);
                let nodes = fabric.nodes().ids().filter(|node| {
                    let kind = fabric.nodes()[*node].kind;
                    matches!(kind, crate::NodeKind::Nic | crate::NodeKind::Switch)
                });
                for at in nodes.filter(|node| *node != to) {
                    routes.next_hops(&fabric, at, to, &mut hops);
                    let own = distances[at.index()];
                    let nearer = |link: &&LinkId| {
                        let next = fabric.links()[**link].to;
                        let is_carrier =
                            next == to || fabric.nodes()[next].kind == crate::NodeKind::Switch;
                        let distance = distances[next.index()].filter(|_| is_carrier);
                        !health.is_down(**link)
                            && distance.zip(own).is_some_and(|(next, own)| next + 1 == own)
                    };
                    let mut expected: Vec<LinkId> =
                        fabric.ports(at).iter().filter(nearer).copied().collect();
                    crate::routes::keep_rows_first(&fabric, at, &mut expected);
                    let place = format!("{name}, seed {seed}: {}", fabric.name(at));
                    assert_eq!(sorted(&hops), sorted(&expected), "{place} to {}", fabric.name(to));
                }
            }
        }
    }
}

/// Oracle: the small graphs that reference runs use.
#[test]
fn stars_dumbbells_and_chains_are_what_they_say() {
    let (rate, delay) = (units::Rate::from_gbps(400), units::Span::from_us(1));
    let made = |graph: GraphConfig| {
        let config = FabricConfig { graph: Some(graph), ..of(TopologyKind::File) };
        super::tests::made(&ClusterConfig::default(), &config)
    };
    let hops = |fabric: &Fabric, from: usize, to: usize| {
        let (from, to) = (fabric.nic(from), fabric.nic(to));
        crate::summary::ways(fabric, &mut Routes::default(), from, to).unwrap().1
    };
    let star = made(GraphConfig::star(5, rate, delay));
    assert_eq!((star.nics(), star.gpus(), hops(&star, 0, 4)), (5, 5, 2));
    let slow = units::Rate::from_gbps(100);
    let dumbbell = made(GraphConfig::dumbbell(8, rate, slow, delay));
    assert_eq!((dumbbell.nics(), hops(&dumbbell, 0, 7), hops(&dumbbell, 0, 8)), (16, 2, 3));
    let trunk = naming::links(&dumbbell, "switch0 - switch1").unwrap();
    assert_eq!(dumbbell.class(trunk[0]).rate, slow);
    let front_end = FrontEndConfig { nics: 1, ..Default::default() };
    let fronted = ClusterConfig { front_end, ..ClusterConfig::default() };
    let graph = Some(GraphConfig::star(5, rate, delay));
    let fronted = super::tests::made(&fronted, &FabricConfig { graph, ..of(TopologyKind::File) });
    assert_eq!(hops(&fronted, 0, 4), 2);
    let [first, last] = ["front-end NIC 0", "front-end NIC 4"]
        .map(|name| naming::nodes(&fronted, name).unwrap()[0]);
    assert_eq!(paths(&fronted, &mut Routes::default(), first, last), 1);
    assert!(naming::nodes(&fronted, "front-end leaf 0").is_ok());
    let chain = made(GraphConfig::chain(&[1, 0, 2], rate, delay));
    assert_eq!((chain.nics(), hops(&chain, 0, 2)), (3, 4));
    assert_eq!(chain.name(chain.nic(2)), "host2");
}

#[test]
fn parts_may_neither_overlap_nor_leave_nics_out() {
    let part = |nics: &[u32]| PartConfig { nics: nics.to_vec(), ..PartConfig::default() };
    let refused = |parts: Vec<PartConfig>| {
        let config = FabricConfig { parts, ..FabricConfig::default() };
        build(&cluster(16), &config, &Catalogue::default()).unwrap_err()[0].to_string()
    };
    assert_eq!(
        refused(vec![part(&[0, 1, 2, 3, 4]), part(&[4, 5, 6, 7])]),
        "fabric.parts.1.nics: NIC 4 of some servers is on part 0 too"
    );
    assert_eq!(
        refused(vec![part(&[0, 1, 2, 3]), part(&[4, 5, 6])]),
        "fabric.parts: 2 NICs are on no part"
    );
}

mod any_settings {
    use proptest::prelude::*;

    use super::*;

    /// Mostly sensible, sometimes absurd.
    fn number() -> impl Strategy<Value = Option<u32>> {
        prop_oneof![
            4 => Just(None),
            4 => (1_u32..40).prop_map(Some),
            1 => prop_oneof![Just(0), Just(u32::MAX), Just(65_536), 40_u32..5_000].prop_map(Some),
        ]
    }

    fn ratio() -> impl Strategy<Value = f64> {
        prop_oneof![Just(1.0), Just(7.0), 0.2_f64..9.0, Just(0.0), Just(-1.0), Just(f64::NAN)]
    }

    fn fabrics() -> impl Strategy<Value = FabricConfig> {
        let kind = prop::sample::select(TopologyKind::ALL.to_vec());
        let numbers = prop::collection::vec(number(), 14);
        let lists = (prop::collection::vec(ratio(), 0..4), prop::collection::vec(1_u32..40, 0..3));
        (kind, numbers, lists, 0_u32..9).prop_map(
            |(topology, n, (oversubscription, uplinks), c)| {
                let config = FabricConfig {
                    topology,
                    radix: n[0],
                    k: n[1],
                    tiers: n[2].map(|tiers| tiers % 5),
                    downlinks: n[3],
                    pods: n[4],
                    pod_gpus: n[5],
                    segment_nodes: n[6],
                    spines: n[7],
                    cores: n[8],
                    planes: n[9],
                    circuits: CircuitsConfig { per_pod: c.saturating_sub(4), ..Default::default() },
                    oversubscription,
                    uplinks,
                    ..FabricConfig::default()
                };
                topology.family().with_numbers(config, &n[10..])
            },
        )
    }

    fn clusters() -> impl Strategy<Value = ClusterConfig> {
        let gpus = prop_oneof![
            Just(None),
            (1_u64..40).prop_map(|nodes| Some(8 * nodes)),
            Just(Some(u64::MAX)),
            (0_u64..300).prop_map(Some)
        ];
        let counts = (number(), number(), number(), number());
        (gpus, counts, any::<bool>()).prop_map(|(gpus, (per_node, nics, ports, domain), dual)| {
            let usual = ClusterConfig::default();
            // Hundreds of NICs with hundreds of ports each take minutes, and show nothing more.
            let few = |said: Option<u32>, usual: u32| said.map_or(usual, |number| number % 40);
            ClusterConfig {
                gpus,
                gpus_per_node: few(per_node, usual.gpus_per_node),
                nics_per_node: few(nics, usual.nics_per_node),
                ports_per_nic: few(ports, 1) % 9,
                aggregation: if dual { Aggregation::DualTor } else { Aggregation::Bond },
                scale_up: ScaleUpConfig { domain, ..Default::default() },
                ..usual
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Whatever the settings, a fabric or reasons come out; and in a fabric no way visits a
        /// switch twice, and in a folded one none is longer than up and down again.
        #[test]
        fn end_in_a_fabric_or_in_reasons(cluster in clusters(), config in fabrics()) {
            let catalogue = Catalogue::default();
            // Whole trees of large switches are right, but slow to build by the thousand.
            let k = config.k.filter(|k| *k <= 40);
            match build(&cluster, &FabricConfig { k, ..config }, &catalogue) {
                Err(errors) => prop_assert!(!errors.is_empty()),
                Ok(fabric) => {
                    let summary = crate::summary::summary(&fabric, &cluster, &catalogue);
                    prop_assert!(summary.bisection_share <= 1.0 + 1e-9, "{summary:?}");
                    let most = match fabric.has_structure() {
                        true => 2 * summary.tiers.len(),
                        false => fabric.switches().len() + 1,
                    };
                    prop_assert!(summary.hops_max as usize <= most, "{summary:?}");
                    prop_assert_eq!(summary.nics as usize, fabric.nics());
                }
            }
        }
    }
}
