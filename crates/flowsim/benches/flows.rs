//! The flow engine at the sizes it is built for: `cargo bench -p flowsim`.
//!
//! Every figure stands beside `reference`, a fixed loop of floating-point additions over memory
//! that does not fit the first cache: on another machine, compare ratios to it. Memory is what was
//! allocated at most.

use divan::{AllocProfiler, Bencher, black_box};
use fabric::hardware::Catalogue;
use fabric::routing::{Policy, RoutingConfig};
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use fabric::{Fabric, NodeId};
use flowsim::{Settings, run};
use traffic::collective::{Ask, Collective, Communicator, Detail, Group, Request, write};
use traffic::{Connection, Transfers, nccl};
use units::{Bytes, Random};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// The fixed loop: 64 passes over 4 MiB, eight bytes at a time, in a fixed scattered order.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn reference() -> f64 {
    let mut cells = vec![1.0_f64; 1 << 19];
    let mut at = 0_usize;
    for _ in 0..64 * cells.len() {
        at = (at * 5 + 12_345) & (cells.len() - 1);
        cells[at] += 0.5 * cells[at ^ 1];
        cells[at] *= 0.5;
    }
    black_box(cells[at])
}

/// Two tiers without oversubscription, 32 NICs on a leaf.
fn two_tiers(nics: u64) -> Fabric {
    let cluster = ClusterConfig { gpus: Some(nics), ..ClusterConfig::default() };
    let (topology, tiers) = (TopologyKind::Clos, Some(2));
    let config = FabricConfig { topology, tiers, radix: Some(64), ..FabricConfig::default() };
    build(&cluster, &config, &Catalogue::default()).expect("it can be built")
}

fn messages(fabric: &Fabric, list: impl Iterator<Item = (usize, usize, u64)>) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("messages");
    for (from, to, bytes) in list {
        let (from, to) = (fabric.nic(from), fabric.nic(to));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::new(bytes), label, &[]);
    }
    transfers
}

/// So many flows of 0.1 to 10 MB between random pairs of NICs, all at once.
fn mix(fabric: &Fabric, flows: usize) -> Transfers {
    let mut random = Random::new(1, "mix", 0);
    let nics = fabric.nics() as u64;
    let list = (0..flows).map(|_| {
        let from = random.below(nics);
        let to = (from + 1 + random.below(nics - 1)) % nics;
        (from as usize, to as usize, 100_000 + random.below(9_900_001))
    });
    messages(fabric, list)
}

#[divan::bench(args = [2_000, 20_000], sample_count = 1, sample_size = 1)]
fn mix_on_1024_hosts(bencher: Bencher<'_, '_>, flows: usize) {
    let fabric = two_tiers(1024);
    let transfers = mix(&fabric, flows);
    bencher.bench(|| run(&fabric, &transfers, &Settings::default()).digest);
}

#[divan::bench(args = [256, 1024], sample_count = 1, sample_size = 1)]
fn all_to_all(bencher: Bencher<'_, '_>, hosts: usize) {
    let fabric = two_tiers(hosts as u64);
    let pairs = (0..hosts).flat_map(|a| (0..hosts).map(move |b| (a, b, 1 << 20)));
    let transfers = messages(&fabric, pairs.filter(|(a, b, _)| a != b));
    bencher.bench(|| run(&fabric, &transfers, &Settings::default()).digest);
}

/// Eight rails of 400G in three tiers, as Colossus has.
fn rails(gpus: u64) -> Fabric {
    let cluster = ClusterConfig { gpus: Some(gpus), ..ClusterConfig::default() };
    let (topology, tiers) = (TopologyKind::RailOptimized, Some(3));
    let config = FabricConfig { topology, tiers, radix: Some(128), ..FabricConfig::default() };
    build(&cluster, &config, &Catalogue::default()).expect("it can be built")
}

/// The data-parallel phase of a job with eight tensor-parallel ranks in a server and sixteen
/// pipeline stages next to each other: all-reduces of one rank in every sixteenth server.
fn data_parallel(fabric: &Fabric) -> Transfers {
    let settings = nccl::Settings::default();
    let mut transfers = Transfers::new();
    let (collective, bytes) = (Collective::AllReduce, Bytes::from_mib(512));
    let replicas = fabric.servers() / 16;
    for stage in 0..16 {
        for rail in 0..8 {
            let label = transfers.label(format!("data-parallel group {}", stage * 8 + rail));
            let gpus: Vec<NodeId> = (0..replicas)
                .map(|replica| fabric.gpu((replica * 16 + stage) * 8 + rail))
                .collect();
            let mut group = Group::new(Communicator::new(fabric, &gpus));
            let communicator = &group.communicator;
            let (settings, weights) = (&settings, &[][..]);
            let ask = Ask { fabric, communicator, collective, bytes, settings, weights };
            let plan = nccl::plan(&ask).expect("rings always run");
            let (plan, detail) = (&plan, Detail::Folded);
            let request = Request { collective, bytes, detail, label, settings, plan, weights };
            write(fabric, &mut group, &request, &mut transfers, &[]);
        }
    }
    transfers
}

fn with(policy: Policy) -> Settings {
    let routing = RoutingConfig { policy, qps: 4, ..RoutingConfig::default() };
    Settings { routing, ..Settings::default() }
}

#[divan::bench(args = [2_000, 20_000, 200_000], sample_count = 1, sample_size = 1)]
fn data_parallel_ecmp(bencher: Bencher<'_, '_>, gpus: u64) {
    let fabric = rails(gpus);
    let transfers = data_parallel(&fabric);
    bencher.bench(|| run(&fabric, &transfers, &with(Policy::Ecmp)).digest);
}

#[divan::bench(args = [2_000, 20_000, 200_000], sample_count = 1, sample_size = 1)]
fn data_parallel_adaptive(bencher: Bencher<'_, '_>, gpus: u64) {
    let fabric = rails(gpus);
    let transfers = data_parallel(&fabric);
    bencher.bench(|| run(&fabric, &transfers, &with(Policy::Adaptive)).digest);
}

/// The analytic engine on the same phase, with one queue pair for each connection.
#[divan::bench(args = [200_000, 1_000_000], sample_count = 1, sample_size = 1)]
fn data_parallel_analytic(bencher: Bencher<'_, '_>, gpus: u64) {
    let cluster = ClusterConfig { gpus: Some(gpus), ..ClusterConfig::default() };
    let (topology, tiers) = (TopologyKind::RailOptimized, Some(3));
    let config = FabricConfig { topology, tiers, radix: Some(256), ..FabricConfig::default() };
    let fabric = build(&cluster, &config, &Catalogue::default()).expect("it can be built");
    let transfers = data_parallel(&fabric);
    let settings = Settings::default();
    bencher.bench(|| flowsim::analytic::run(&fabric, &transfers, &settings).makespan());
}
