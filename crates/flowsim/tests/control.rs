//! Flows under congestion control.

use fabric::NodeId;
use fabric::hardware::Catalogue;
use fabric::routing::{Policy, RoutingConfig};
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use flowsim::{Control, Settings, run};
use traffic::collective::{Ask, Collective, Communicator, Detail, Group, Request, write};
use traffic::{Transfers, nccl};
use units::{Bytes, Span};

fn control() -> Control {
    Control {
        dcqcn: traffic::dcqcn::Config::default(),
        marks_from: Bytes::from_mib(1),
        marks_all: Bytes::from_mib(2),
        probability: 0.05,
        restart_after: None,
    }
}

#[test]
fn rings() {
    let cluster = ClusterConfig { gpus: Some(128), ..ClusterConfig::default() };
    let (topology, tiers) = (TopologyKind::Clos, Some(2));
    let config = FabricConfig { topology, tiers, radix: Some(32), ..FabricConfig::default() };
    let fabric = build(&cluster, &config, &Catalogue::default()).unwrap();
    let routing = RoutingConfig { policy: Policy::Ecmp, qps: 1, ..RoutingConfig::default() };
    let settings = nccl::Settings { algorithm: Some("ring".into()), ..nccl::Settings::default() };
    let mut transfers = Transfers::new();
    let label = transfers.label("ring");
    let mut groups: Vec<Group> = (0..8)
        .map(|tp| {
            let gpus: Vec<NodeId> = (0..16).map(|server| fabric.gpu(8 * server + tp)).collect();
            Group::new(Communicator::new(&fabric, &gpus))
        })
        .collect();
    let (collective, weights) = (Collective::AllGather, &[][..]);
    let bytes = Bytes::from_mib(204);
    let mut after = Vec::new();
    let mut ends = Vec::new();
    let repeats: usize = std::env::var("REP").map_or(40, |n| n.parse().unwrap());
    let pause: u64 = std::env::var("PAUSE").map_or(1000, |n| n.parse().unwrap());
    for _ in 0..repeats {
        let mut now = Vec::new();
        for group in &mut groups {
            let ask = Ask {
                fabric: &fabric,
                communicator: &group.communicator,
                collective,
                bytes,
                settings: &settings,
                weights,
            };
            let plan = nccl::plan(&ask).unwrap();
            let request = Request {
                collective,
                bytes,
                detail: Detail::Folded,
                label,
                settings: &settings,
                plan: &plan,
                weights,
            };
            now.push(write(&fabric, group, &request, &mut transfers, &after));
        }
        let wait = transfers.add(traffic::OpKind::Wait { span: Span::from_us(pause) }, label, &now);
        after = vec![wait];
        ends.push(wait);
    }
    for control in [None, Some(control())] {
        let settings = Settings { routing: routing.clone(), control, ..Settings::default() };
        let outcome = run(&fabric, &transfers, &settings);
        eprintln!("{:?} events {}", outcome.makespan(), outcome.counters.events);
        let mut before = 0.0;
        for end in &ends {
            let at = outcome.ops[*end].unwrap().received.as_secs_f64() * 1e6;
            eprint!(" {:.0}", at - before - pause as f64);
            before = at;
        }
        eprintln!();
    }
}
