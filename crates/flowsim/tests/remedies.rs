//! A few fat flows on Meta's kind of fabric, and what each remedy buys.
//!
//! An all-reduce of 1,024 GPUs in one AI zone: racks of 16 GPUs, 16 uplinks each. Linear placement
//! keeps neighbours of the ring in a rack where it can; fragmented placement deals servers out at
//! random, so that every server sends to another rack.

use fabric::hardware::Catalogue;
use fabric::routing::{Policy, QueuePairUse, RoutingConfig};
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use fabric::{Fabric, NodeId};
use flowsim::analysis::analyse;
use flowsim::{Settings, simulate};
use traffic::collective::{Ask, Collective, Communicator, Detail, Group, Request, write};
use traffic::{Transfers, nccl};
use units::{Bytes, Random};

fn zone(gpus: u64) -> Fabric {
    let cluster = ClusterConfig { gpus: Some(gpus), ..ClusterConfig::default() };
    let config = FabricConfig { topology: TopologyKind::AiZone, ..FabricConfig::default() };
    build(&cluster, &config, &Catalogue::default()).unwrap()
}

fn all_reduce(fabric: &Fabric, fragmented: Option<u64>) -> Transfers {
    let settings = nccl::Settings { algorithm: Some("ring".into()), ..nccl::Settings::default() };
    let mut servers: Vec<usize> = (0..fabric.servers()).collect();
    if let Some(seed) = fragmented {
        Random::new(seed, "placement", 0).shuffle(&mut servers);
    }
    let gpus: Vec<NodeId> = servers
        .iter()
        .flat_map(|s| (0..8).map(move |at| s * 8 + at))
        .map(|at| fabric.gpu(at))
        .collect();
    let mut transfers = Transfers::new();
    let label = transfers.label("the ring");
    let mut group = Group::new(Communicator::new(fabric, &gpus));
    let (collective, bytes, weights) = (Collective::AllReduce, Bytes::from_mib(4096), &[][..]);
    let (communicator, settings) = (&group.communicator, &settings);
    let ask = Ask { fabric, communicator, collective, bytes, settings, weights };
    let plan = nccl::plan(&ask).unwrap();
    let (plan, detail) = (&plan, Detail::Folded);
    let request = Request { collective, bytes, detail, label, settings, plan, weights };
    write(fabric, &mut group, &request, &mut transfers, &[]);
    transfers
}

/// Time, fullest over mean and idle share of a rack's uplinks.
fn run(fabric: &Fabric, transfers: &Transfers, policy: Policy, qps: u16, seed: u64) -> [f64; 3] {
    let split = QueuePairUse::Split;
    let routing = RoutingConfig { policy, qps, split, ..RoutingConfig::default() };
    let settings = Settings { routing, seed, ..Settings::default() };
    let run = simulate(fabric, transfers, &settings);
    let analysis = analyse(fabric, transfers, &run.outcome, Some(run.traces()), 1);
    let up = &analysis.tiers.iter().find(|group| group.name == "RTSW → CTSW").unwrap().at_switch;
    [run.outcome.makespan().as_secs_f64(), up.max_over_mean, up.idle]
}

/// Golden: bus bandwidth as a share of what even spreading gives, and how the uplinks of a rack
/// are used, for every remedy and both placements; the mean over two seeds.
#[test]
fn what_each_remedy_buys() {
    let fabric = zone(1024);
    let seeds = 2;
    let mut table = String::new();
    for (placement, fragmented) in [("linear", false), ("fragmented", true)] {
        for (policy, qps) in [
            (Policy::Ecmp, 1),
            (Policy::PathPinning, 1),
            (Policy::EEcmp, 4),
            (Policy::EEcmp, 16),
            (Policy::EEcmp, 32),
            (Policy::TrafficEngineering, 1),
            (Policy::Spray, 1),
            (Policy::Adaptive, 1),
        ] {
            let mut mean = [0.0; 3];
            for seed in 0..seeds {
                let transfers = all_reduce(&fabric, fragmented.then_some(seed));
                let [best, ..] = run(&fabric, &transfers, Policy::Spray, 1, seed);
                let [time, fullest, idle] = run(&fabric, &transfers, policy, qps, seed);
                for (sum, value) in mean.iter_mut().zip([best / time, fullest, idle]) {
                    *sum += value / seeds as f64;
                }
            }
            let [share, fullest, idle] = mean;
            table += &format!(
                "{placement:10} {:19} {qps:2} {share:.2} {fullest:.2} {idle:.2}\n",
                policy.name()
            );
        }
    }
    insta::assert_snapshot!(table, @r"
    linear     ecmp                 1 0.51 3.14 0.36
    linear     path-pinning         1 1.00 2.00 0.50
    linear     e-ecmp               4 0.74 1.98 0.02
    linear     e-ecmp              16 1.00 1.46 0.00
    linear     e-ecmp              32 1.00 1.32 0.00
    linear     traffic-engineering  1 1.00 2.00 0.50
    linear     spray                1 1.00 1.00 0.00
    linear     adaptive             1 1.00 1.00 0.00
    fragmented ecmp                 1 0.33 2.37 0.12
    fragmented path-pinning         1 0.62 1.02 0.01
    fragmented e-ecmp               4 0.55 1.69 0.00
    fragmented e-ecmp              16 0.69 1.33 0.00
    fragmented e-ecmp              32 0.75 1.23 0.00
    fragmented traffic-engineering  1 1.00 1.02 0.01
    fragmented spray                1 1.00 1.00 0.00
    fragmented adaptive             1 1.00 1.00 0.00
    ");
}
