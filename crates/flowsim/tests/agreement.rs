//! The engine against itself written differently: folded and stepwise rings, flow and analytic.

mod common;

use common::{leaf_spine, messages, plain};
use fabric::hardware::Catalogue;
use fabric::routing::{Policy, RoutingConfig};
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use fabric::{Fabric, NodeId};
use flowsim::{Settings, analytic, run};
use traffic::collective::{Ask, Collective, Communicator, Detail, Group, Request, write};
use traffic::{Transfers, nccl};
use units::Bytes;

fn cluster(gpus: u64) -> Fabric {
    let cluster = ClusterConfig { gpus: Some(gpus), ..ClusterConfig::default() };
    let (topology, tiers) = (TopologyKind::RailOptimized, Some(2));
    let config = FabricConfig { topology, tiers, radix: Some(64), ..FabricConfig::default() };
    build(&cluster, &config, &Catalogue::default()).unwrap()
}

fn all_reduce(fabric: &Fabric, bytes: Bytes, detail: Detail) -> Transfers {
    let settings = nccl::Settings { algorithm: Some("ring".into()), ..nccl::Settings::default() };
    let mut transfers = Transfers::new();
    let label = transfers.label("ring");
    let gpus: Vec<NodeId> = (0..fabric.gpus()).map(|gpu| fabric.gpu(gpu)).collect();
    let mut group = Group::new(Communicator::new(fabric, &gpus));
    let (collective, weights) = (Collective::AllReduce, &[][..]);
    let (communicator, settings) = (&group.communicator, &settings);
    let ask = Ask { fabric, communicator, collective, bytes, settings, weights };
    let plan = nccl::plan(&ask).unwrap();
    let plan = &plan;
    let request = Request { collective, bytes, detail, label, settings, plan, weights };
    write(fabric, &mut group, &request, &mut transfers, &[]);
    transfers
}

/// Agreement: a ring of 64 ranks, folded into one flow for each channel and written out step by
/// step, takes the same time within 2 %.
#[test]
fn folded_and_stepwise_rings_agree() {
    let fabric = cluster(64);
    let routing = RoutingConfig { policy: Policy::Ecmp, qps: 4, ..RoutingConfig::default() };
    let settings = Settings { routing, ..Settings::default() };
    let time = |detail| {
        let transfers = all_reduce(&fabric, Bytes::from_mib(1024), detail);
        let outcome = run(&fabric, &transfers, &settings);
        assert_eq!(outcome.completed(), transfers.ops().len());
        outcome.makespan().as_secs_f64()
    };
    let (folded, stepwise) = (time(Detail::Folded), time(Detail::Stepwise));
    assert!((folded / stepwise - 1.0).abs() < 0.02, "{folded} and {stepwise}");
}

/// Agreement: one operation alone takes the same time on both engines; several that share a link
/// take longer on the flow engine, and never less.
#[test]
fn the_engines_agree_where_nothing_is_shared() {
    let fabric = leaf_spine(4, 8, 8);
    for qps in [1, 4] {
        let routing = RoutingConfig { qps, ..RoutingConfig::default() };
        let settings = Settings { routing, ..Settings::default() };
        let alone = messages(&fabric, &[(0, 20)], 64 << 20);
        let (flow, analytic) =
            (run(&fabric, &alone, &settings), analytic::run(&fabric, &alone, &settings));
        let (a, b) = (flow.makespan().as_secs_f64(), analytic.makespan().as_secs_f64());
        assert!((a / b - 1.0).abs() < 1e-9, "{qps} queue pairs: {a} and {b}");
        assert_eq!(flow.links, analytic.links);
    }
    let incast = messages(&fabric, &[(0, 20), (1, 20), (2, 20)], 1 << 20);
    let shared = run(&fabric, &incast, &plain()).makespan().as_secs_f64();
    let alone = analytic::run(&fabric, &incast, &plain()).makespan().as_secs_f64();
    assert!((2.9..3.0).contains(&(shared / alone)), "{shared} and {alone}");
}

/// Agreement: a folded ring alone, under every policy.
#[test]
fn the_engines_agree_on_a_ring() {
    let fabric = cluster(128);
    let transfers = all_reduce(&fabric, Bytes::from_mib(256), Detail::Folded);
    for policy in Policy::ALL {
        let routing = RoutingConfig { policy, qps: 2, ..RoutingConfig::default() };
        let settings = Settings { routing, ..Settings::default() };
        let flow = run(&fabric, &transfers, &settings).makespan().as_secs_f64();
        let analytic = analytic::run(&fabric, &transfers, &settings).makespan().as_secs_f64();
        assert!(analytic <= flow * (1.0 + 1e-9), "{policy:?}: {flow} and {analytic}");
    }
}
