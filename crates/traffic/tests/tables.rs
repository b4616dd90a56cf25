//! What every algorithm writes, and what NCCL chooses, as tables: a number that changes without a
//! reason is a mistake. (Mutation testing, `tools/mutants.sh`, lives on these.)

mod common;

use std::fmt::Write;

use common::{Cluster, ScaleUp, all_gpus};
use fabric::Fabric;
use fabric::graph::NodeKind;
use traffic::collective::{
    ALGORITHMS, Ask, Communicator, CrossNic, Detail, Group, Pxn, Request, write as write_out,
};
use traffic::nccl::{
    Aggregation, Architecture, Cpu, Initiator, Plugin, Protocol, Settings, Usage, Version,
    estimate, plan,
};
use traffic::{Collective, OpKind, Transfers};
use units::{Bytes, Id, Rate, Span};

/// Whole servers, servers whose GPUs are cabled to each other, and some GPUs of some.
fn shapes() -> Vec<(&'static str, Fabric, Communicator)> {
    let whole = |cluster: Cluster| {
        let fabric = cluster.build();
        let communicator = Communicator::new(&fabric, &all_gpus(&fabric));
        (fabric, communicator)
    };
    let mesh = ScaleUp::Mesh(Rate::from_gbps(512));
    let apart = Cluster { gpus: 2, nics: 2, scale_up: ScaleUp::Absent, ..Cluster::hopper(3) };
    let few = Cluster { gpus: 4, nics: 2, ..Cluster::hopper(4) };
    let shaped = [
        ("1 x 8", Cluster::hopper(1)),
        ("2 x 8", Cluster::hopper(2)),
        ("5 x 4", few),
        ("3 x 4 mesh", Cluster { gpus: 4, nics: 4, scale_up: mesh, ..Cluster::hopper(3) }),
        ("3 x 2 apart", apart),
    ];
    let mut shapes: Vec<_> = shaped
        .into_iter()
        .map(|(name, cluster)| {
            let (fabric, communicator) = whole(cluster);
            (name, fabric, communicator)
        })
        .collect();
    let fabric = Cluster::hopper(4).build();
    let some: Vec<_> = [0, 1, 3, 8, 9, 17, 30].into_iter().map(|gpu| fabric.gpu(gpu)).collect();
    let communicator = Communicator::new(&fabric, &some);
    shapes.push(("7 of 4 x 8", fabric, communicator));
    shapes
}

fn fold(hash: u64, text: &str) -> u64 {
    text.bytes()
        .fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Messages, bytes inside servers and between them, the longest chain of operations that wait for
/// each other, and a fold of everything.
fn about(fabric: &Fabric, transfers: &Transfers) -> String {
    let (mut messages, mut inside, mut between) = (0, 0, 0);
    let mut chains = vec![0_u32; transfers.ops().len()];
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for (id, op) in transfers.ops().enumerate() {
        let after = transfers.after(id);
        let longest = after.iter().map(|before| chains[before.index()]).max();
        chains[id.index()] = longest.unwrap_or(0) + 1;
        let edges = match &op.kind {
            OpKind::Send { connection, bytes } => vec![(*connection, bytes.get())],
            OpKind::Coupled { edges, bytes, .. } => {
                transfers.coupled(edges).iter().map(|edge| (*edge, bytes.get())).collect()
            }
            OpKind::Together { messages } => {
                transfers.messages(messages).iter().map(|(on, b)| (*on, b.get())).collect()
            }
            OpKind::Wait { .. } => Vec::new(),
        };
        for (connection, bytes) in edges {
            let from = transfers.connections()[connection].from;
            let is_between = fabric.nodes()[from].kind == NodeKind::Nic;
            *if is_between { &mut between } else { &mut inside } += bytes;
            hash = fold(hash, &format!("{:?}", transfers.connections()[connection]));
        }
        messages += u64::from(!matches!(op.kind, OpKind::Wait { .. }));
        hash = fold(hash, &format!("{:?} {after:?}", op.kind));
    }
    let longest = chains.iter().max().unwrap_or(&0);
    format!("{messages:5} {inside:9} {between:9} {longest:4} {:08x}", hash as u32)
}

fn enabled(algorithm: &str) -> Settings {
    Settings {
        algorithm: Some(algorithm.into()),
        channels: Some(2),
        sharp: Usage::Enabled,
        aggregation: Aggregation { gathers: Usage::Enabled, ..Aggregation::default() },
        symmetric: Usage::Enabled,
        gin: Usage::Enabled,
        copy_engine: Usage::Enabled,
        ..Settings::default()
    }
}

#[test]
fn what_algorithms_write() {
    let mut table = "shape, collective, algorithm, written: messages, bytes inside and between, \
                     longest chain, fold; µs of 3,001 B, 1 MB, 1 GB\n"
        .to_owned();
    for (shape, fabric, communicator) in shapes() {
        let weights: Vec<f64> = (1..=communicator.ranks()).map(|rank| 1.0 + rank as f64).collect();
        for algorithm in ALGORITHMS {
            let settings = enabled(algorithm.name());
            for collective in Collective::ALL {
                let bytes = Bytes::new(1_000_003);
                let settings = &settings;
                let weights = if collective.is_expert_parallel() { &weights[..] } else { &[] };
                let communicator = &communicator;
                let fabric = &fabric;
                let ask = Ask { fabric, communicator, collective, bytes, settings, weights };
                let Some(plan) = plan(&ask) else { continue };
                if plan.algorithm.name() != algorithm.name() {
                    continue;
                }
                let name = collective.name();
                write!(table, "{shape:11} {name:15} {:12}", algorithm.name()).unwrap();
                for detail in [Detail::Stepwise, Detail::Folded] {
                    let mut transfers = Transfers::new();
                    let label = transfers.label("test");
                    let mut group = Group::new(communicator.clone());
                    let plan = &plan;
                    let request =
                        Request { collective, bytes, detail, label, settings, plan, weights };
                    write_out(fabric, &mut group, &request, &mut transfers, &[]);
                    if detail == Detail::Stepwise {
                        // What is refused as too large is refused by this figure.
                        let about = plan.algorithm.operations(&ask, plan);
                        let share = about / transfers.ops().len() as f64;
                        assert!(
                            (0.5..=2.0).contains(&share),
                            "{shape} {name} {}: about {about}, {}",
                            algorithm.name(),
                            transfers.ops().len()
                        );
                    }
                    write!(table, " | {}", about(fabric, &transfers)).unwrap();
                }
                let time = |bytes| {
                    let bytes = Bytes::new(bytes);
                    let found = estimate(fabric, communicator, collective, bytes, settings);
                    found.map_or(f64::NAN, |found| found.time.as_secs_f64() * 1e6)
                };
                let times = [3_001, 1_000_003, 1_000_000_007].map(time);
                writeln!(table, " | {:.3} {:.3} {:.2}", times[0], times[1], times[2]).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn what_nccl_chooses() {
    let of = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings
    };
    let asked = [
        ("as it is", of(&|_| {})),
        ("ampere", of(&|s| s.architecture = Architecture::Ampere)),
        ("blackwell", of(&|s| s.architecture = Architecture::Blackwell)),
        ("rccl", of(&|s| s.architecture = Architecture::Cdna3)),
        ("2.18", of(&|s| s.version = Version::V2_18)),
        ("2.22", of(&|s| s.version = Version::V2_22)),
        ("arm", of(&|s| s.cpu = Cpu::Arm)),
        ("p5", of(&|s| s.plugin = Some(Plugin::AwsP5))),
        ("p4d", of(&|s| s.plugin = Some(Plugin::AwsP4d))),
        ("crossing", of(&|s| s.crossing = Span::from_us(7))),
        ("ll", of(&|s| s.protocol = Some(Protocol::Ll))),
        ("ll128", of(&|s| s.protocol = Some(Protocol::Ll128))),
        ("channels", of(&|s| s.least_channels = 24)),
        ("cross", of(&|s| s.cross_nic = CrossNic::Crossing)),
        ("no pxn", of(&|s| s.pxn = Pxn::Disabled)),
        ("no nvls", of(&|s| s.nvls = Usage::Disabled)),
        ("windows", of(&|s| (s.symmetric, s.gin) = (Usage::Enabled, Usage::Enabled))),
        ("engines", of(&|s| s.copy_engine = Usage::Enabled)),
        ("sharp", of(&|s| s.sharp = Usage::Enabled)),
        ("host", of(&|s| s.initiator = Initiator::Host)),
        ("nics", of(&|s| s.nic_latency = Span::from_us(3))),
        ("share", of(&|s| s.all_to_all_share = 0.5)),
        ("wire", of(&|s| s.wire_efficiency = 0.9)),
    ];
    let mut table = "shape, collective, settings; for 1 KiB, 64 KiB, 2 MiB, 64 MiB, 2 GiB: \
                     algorithm, protocol, channels, µs\n"
        .to_owned();
    for (shape, fabric, communicator) in shapes() {
        for (name, settings) in &asked {
            for collective in Collective::ALL {
                // What no setting changes is told once.
                let is_plain = *name == "as it is";
                let is_main = collective == Collective::AllReduce
                    || collective == Collective::AllGather
                    || collective == Collective::AllToAll;
                if !is_plain && !is_main {
                    continue;
                }
                let mut row = String::new();
                for kib in [1_u64, 64, 2 << 10, 64 << 10, 2 << 20] {
                    let bytes = Bytes::from_kib(kib);
                    let found = estimate(&fabric, &communicator, collective, bytes, settings);
                    let Some(found) = found else { continue };
                    let plan = &found.plan;
                    let (algorithm, protocol) = (plan.algorithm.name(), plan.protocol.name());
                    let us = found.time.as_secs_f64() * 1e6;
                    write!(row, " | {algorithm} {protocol} {} {us:.3}", plan.channels).unwrap();
                }
                writeln!(table, "{shape:11} {:15} {name:10}{row}", collective.name()).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}
