//! What all policies must do, and the small fabrics and flows that their tests use.

use units::{Bytes, Length, Random, Rate, Span};

use super::*;
use crate::graph::{Cover, FabricBuilder, LinkClass, LinkKind, Tier};
use crate::hash::FlowKey;
use crate::routes::Health;

/// `leaves` leaves with `nics` NICs each, below `spines` spines.
pub(crate) fn leaf_spine(leaves: usize, nics: usize, spines: usize) -> Fabric {
    let mut builder = FabricBuilder::new(leaves * nics, 1, 1);
    let tier = |name: &str| Tier {
        name: name.to_owned(),
        model: "test".to_owned(),
        latency: Span::from_ns(500),
    };
    let (leaf_tier, spine_tier) = (builder.tier(tier("leaf")), builder.tier(tier("spine")));
    let class = builder.class(LinkClass {
        name: "all".to_owned(),
        kind: LinkKind::ScaleOut,
        rate: Rate::from_gbps(400),
        delay: Span::from_ns(100),
        length: Length::from_metres(20),
    });
    let count = leaves as u32;
    let leaf = |at: u32| Cover { level: 0, first: at, end: at + 1 };
    let above = Cover { level: 1, first: 0, end: count };
    let low: Vec<_> =
        (0..leaves).map(|at| builder.switch(leaf_tier, 0, at, leaf(at as u32))).collect();
    let high: Vec<_> = (0..spines).map(|at| builder.switch(spine_tier, 0, at, above)).collect();
    for nic in 0..leaves * nics {
        builder.cable(builder.nic(nic), low[nic / nics], class);
    }
    for &leaf in &low {
        for &spine in &high {
            builder.cable(leaf, spine, class);
        }
    }
    builder.build()
}

/// Flows from the NICs of the first leaf, in turn, to random NICs of the others.
pub(crate) fn keys(fabric: &Fabric, flows: usize, seed: u64) -> impl Iterator<Item = FlowKey> {
    let mut queue_pairs = QueuePairs::new(fabric, &RoutingConfig::default(), seed);
    let mut random = Random::new(seed, "keys", 0);
    let per_leaf = fabric.nics() / fabric.leaves().len();
    (0..flows).map(move |flow| {
        let to = per_leaf + random.below((fabric.nics() - per_leaf) as u64) as usize;
        queue_pairs.open(fabric.nic(flow % per_leaf), fabric.nic(to))
    })
}

/// Property, for every policy: paths are shortest, arrive, and avoid what has failed.
#[test]
fn every_policy_walks_shortest_paths() {
    let fabric = leaf_spine(4, 8, 8);
    for policy in Policy::ALL {
        let config = RoutingConfig { policy, ..RoutingConfig::default() };
        for failed in [0, 3] {
            let mut health = Health::default();
            for &link in &fabric.ports_down_up(fabric.leaves()[0]).1[..failed] {
                health.fail(link);
            }
            let mut routes = Routes::new(health.clone());
            let mut routing = config.build(&fabric, 5);
            let mut walker = Walker::default();
            for key in keys(&fabric, 100, 5) {
                let path = walker
                    .path(&fabric, &mut routes, routing.as_mut(), &key, 1)
                    .unwrap_or_else(|error| panic!("{policy:?}: {error}"));
                assert_eq!(path.len(), 4, "{policy:?}");
                assert_eq!(fabric.links()[path[0]].from, key.from);
                assert_eq!(fabric.links()[path[3]].to, key.to);
                assert!(path.iter().all(|link| !health.is_down(*link)), "{policy:?}");
            }
        }
    }
}

/// Oracle: a leaf without uplinks is a clear error.
#[test]
fn a_cut_fabric_says_so() {
    let fabric = leaf_spine(2, 2, 2);
    let mut health = Health::default();
    for &link in fabric.ports_down_up(fabric.leaves()[0]).1 {
        health.fail(link);
    }
    let config = RoutingConfig::default();
    let key = QueuePairs::new(&fabric, &config, 1).open(fabric.nic(0), fabric.nic(3));
    let mut routing = config.build(&fabric, 1);
    let error = Walker::default()
        .path(&fabric, &mut Routes::new(health), routing.as_mut(), &key, 0)
        .unwrap_err();
    let text = error.describe(&fabric);
    assert_eq!(
        text,
        "there is no path from NIC 0 to NIC 3: no link that is up leads there from NIC 0"
    );
}

/// Golden: what a scenario may write, and that nothing else is accepted.
#[test]
fn names_are_those_of_the_scenario_file() {
    let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
    let expected = "ecmp e-ecmp path-pinning traffic-engineering flowlet spray reps adaptive \
                    infiniband-adaptive static-up-down";
    assert_eq!(names.join(" "), expected);
    assert_eq!(RoutingConfig::default().chunk, Bytes::from_kib(512));
}

/// Agreement: the walk over slices of ports and the walk over copied next hops find the same.
#[test]
fn both_walks_agree() {
    use crate::hardware::Catalogue;
    use crate::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
    use units::Id;
    let mut walker = Walker::default();
    for topology in [TopologyKind::FatTree, TopologyKind::RailOptimized, TopologyKind::Clos] {
        let cluster = ClusterConfig { gpus: Some(256), ..ClusterConfig::default() };
        let config = FabricConfig { topology, tiers: Some(3), ..FabricConfig::default() };
        let fabric = build(&cluster, &config, &Catalogue::default()).unwrap();
        let settings = RoutingConfig::default();
        let mut queue_pairs = QueuePairs::new(&fabric, &settings, 1);
        let mut routing = settings.build(&fabric, 1);
        let mut routes = Routes::default();
        // A failure that no path crosses: it only makes the walk take the other way.
        let mut health = Health::default();
        health.fail(fabric.ports(fabric.gpu(0))[0]);
        let mut others = Routes::new(health);
        let mut random = Random::new(1, "walks", 0);
        for _ in 0..500 {
            let mut nic = || fabric.nic(random.below(fabric.nics() as u64) as usize);
            let key = queue_pairs.open(nic(), nic());
            let fast = walker.path(&fabric, &mut routes, routing.as_mut(), &key, 0);
            let fast = fast.map(<[LinkId]>::to_vec);
            let slow = walker.path(&fabric, &mut others, routing.as_mut(), &key, 0);
            let slow = slow.map(<[LinkId]>::to_vec);
            assert_eq!(fast, slow, "{topology:?} {}", key.from.index());
        }
    }
}
