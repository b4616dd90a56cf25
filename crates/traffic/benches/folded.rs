//! Writing the data-parallel phase of a 200,000-GPU job, folded: `cargo bench -p traffic`.
//!
//! Two layouts: one rank in each of 128 servers (tensor parallelism inside the server), 1,562
//! groups of each of eight rails; and whole servers, 16 of them in a group, on 16 channels.

use fabric::graph::{Cover, LinkKind, Tier};
use fabric::{Fabric, FabricBuilder, LinkClass, NodeId};
use traffic::Transfers;
use traffic::collective::{Ask, Collective, Communicator, Detail, Group, Request, write};
use traffic::nccl::{Settings, plan};
use units::{Bytes, Length, Rate, Span};

fn main() {
    divan::main();
}

/// 25,000 servers of eight, rails on leaves of 64.
fn cluster() -> Fabric {
    const SERVERS: usize = 25_000;
    let mut builder = FabricBuilder::new(SERVERS, 8, 8);
    let latency = Span::from_ns(600);
    let leaf = builder.tier(Tier { name: "leaf".into(), model: "bench".into(), latency });
    let class = |name: &str, kind, gbps| LinkClass {
        name: name.into(),
        kind,
        rate: Rate::from_gbps(gbps),
        delay: Span::from_ns(25),
        length: Length::from_metres(5),
    };
    let inside = builder.class(class("GPU – NVSwitch", LinkKind::ScaleUp, 3600));
    let host = builder.class(class("NIC – leaf", LinkKind::ScaleOut, 400));
    for server in 0..SERVERS {
        let switch = builder.scale_up_switch(server);
        for at in 0..8 {
            let gpu = builder.gpu(server * 8 + at);
            builder.cable(gpu, switch, inside);
        }
    }
    for at in 0..SERVERS.div_ceil(64) * 8 {
        let cover = Cover { level: 0, first: at as u32, end: at as u32 + 1 };
        let switch = builder.switch(leaf, 0, at, cover);
        let (group, rail) = (at / 8, at % 8);
        for server in group * 64..((group + 1) * 64).min(SERVERS) {
            let nic = builder.nic(server * 8 + rail);
            builder.cable(nic, switch, host);
        }
    }
    builder.build()
}

fn phase(fabric: &Fabric, groups: &[Vec<NodeId>]) -> Transfers {
    let settings = Settings::default();
    let mut transfers = Transfers::new();
    let (collective, bytes) = (Collective::AllReduce, Bytes::from_mib(512));
    let label = transfers.label("data parallel");
    for gpus in groups {
        let mut group = Group::new(Communicator::new(fabric, gpus));
        let ask = Ask {
            fabric,
            communicator: &group.communicator,
            collective,
            bytes,
            settings: &settings,
            weights: &[],
        };
        let plan = plan(&ask).expect("rings always run");
        let request = Request {
            collective,
            bytes,
            detail: Detail::Folded,
            label,
            settings: &settings,
            plan: &plan,
            weights: &[],
        };
        write(fabric, &mut group, &request, &mut transfers, &[]);
    }
    transfers
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn one_rank_in_each_server(bencher: divan::Bencher<'_, '_>) {
    let fabric = cluster();
    let groups: Vec<Vec<NodeId>> = (0..25_000 / 128)
        .flat_map(|block| (0..8).map(move |rail| (block, rail)))
        .map(|(block, rail)| (0..128).map(|at| fabric.gpu((block * 128 + at) * 8 + rail)).collect())
        .collect();
    bencher.bench(|| phase(&fabric, &groups));
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn whole_servers(bencher: divan::Bencher<'_, '_>) {
    let fabric = cluster();
    let groups: Vec<Vec<NodeId>> = (0..25_000 / 16)
        .map(|block| (0..128).map(|at| fabric.gpu(block * 128 + at)).collect())
        .collect();
    bencher.bench(|| phase(&fabric, &groups));
}
