//! Plans without packets: messages are handed over by hand, in any order that they allow, and the
//! sums are right.

use std::collections::BTreeSet;

use fabric::hardware::Catalogue;
use fabric::topology::{ClusterConfig, FabricConfig, build};
use live::lower::{Shape, lower};
use live::memory::Regions;
use live::plan::After;
use packetsim::Settings;
use roce::queue_pair::Memory;
use traffic::Transfers;
use traffic::collective::{Collective, Communicator, Detail, Group, Limit, Wanted};
use traffic::nccl::{self, Protocol};
use units::{Bytes, Random};

/// Writes a collective for real ranks and carries it out.
fn wrong_bytes(
    (collective, algorithm): (Collective, &str),
    ranks: usize,
    bytes: u64,
    seed: u64,
) -> u64 {
    let cluster = ClusterConfig {
        nodes: Some(ranks as u64),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let fabric = build(&cluster, &FabricConfig::default(), &Catalogue::default()).unwrap();
    let gpus: Vec<_> = (0..ranks).map(|gpu| fabric.gpu(gpu)).collect();
    let asked = Some(algorithm.to_owned()).filter(|name| !name.is_empty());
    let simple = Some(Protocol::Simple);
    let library = nccl::Settings { protocol: simple, algorithm: asked, ..Default::default() };
    let mut transfers = Transfers::new();
    let label = transfers.label("test");
    let wanted = Wanted {
        collective,
        bytes: Bytes::new(bytes),
        settings: &library,
        detail: Detail::Stepwise,
        weights: &[],
        limit: Limit::NONE,
        label,
    };
    let mut group = Group::new(Communicator::new(&fabric, &gpus));
    traffic::collective::lower(&fabric, &mut group, &wanted, &mut transfers, &[]).unwrap();
    let mut settings = Settings::default();
    settings.routing.qps = 3;
    let shape = if algorithm == "tree" { Shape::Tree } else { Shape::Chains(collective) };
    let lowered = lower(&fabric, &transfers, &settings, shape, ranks).unwrap();
    let mut memory: Vec<Regions> = (0..ranks as u32)
        .map(|rank| Regions::new(rank, lowered.bytes, lowered.staging, 0))
        .collect();
    let mut left: Vec<(usize, usize)> = (0..ranks)
        .flat_map(|rank| (0..lowered.sends[rank].len()).map(move |at| (rank, at)))
        .collect();
    let mut done: BTreeSet<u32> = BTreeSet::new();
    let mut random = Random::new(seed, "order", 0);
    while !left.is_empty() {
        random.shuffle(&mut left);
        let is_free = |(rank, at): &(usize, usize)| {
            let after = lowered.sends[*rank][*at].after.iter();
            after.clone().all(|after| match after {
                After::Arrived(op) | After::Known(op) => done.contains(op),
            })
        };
        let next = left.iter().position(is_free).expect("something can be sent");
        let (rank, at) = left.swap_remove(next);
        let send = &lowered.sends[rank][at];
        let find = |to: &usize| lowered.receives[*to].iter().any(|one| one.op == send.op);
        let to = (0..ranks).find(find).expect("somebody receives it");
        for part in &send.parts {
            let mut payload = Vec::new();
            let (from, length) = (send.address + part.offset, part.bytes as usize);
            assert!(memory[rank].read(send.key, from, length, &mut payload));
            let there = send.remote_address + part.offset;
            assert!(memory[to].write(send.remote_key, there, &payload));
        }
        let receive = lowered.receives[to].iter().find(|one| one.op == send.op).unwrap();
        assert_eq!(receive.parts as usize, send.parts.len());
        memory[to].arrived(receive);
        done.insert(send.op);
    }
    let ranks = ranks as u32;
    (0..).zip(&memory).map(|(rank, own): (usize, _)| own.wrong(&lowered.checks[rank], ranks)).sum()
}

#[test]
fn every_collective_ends_with_right_sums_in_any_order() {
    let all = [
        (Collective::AllReduce, "ring"),
        (Collective::AllReduce, "tree"),
        (Collective::AllGather, "ring"),
        (Collective::ReduceScatter, "ring"),
        (Collective::AllToAll, ""),
    ];
    for collective in all {
        for (ranks, bytes) in [(2, 1000), (3, 100_001), (8, 65_536)] {
            for seed in 0..3 {
                let wrong = wrong_bytes(collective, ranks, bytes, seed);
                let name = (collective.0.name(), collective.1);
                assert_eq!(wrong, 0, "{name:?} on {ranks} ranks, {bytes} bytes");
            }
        }
    }
}

/// The check finds what is wrong: without any message nothing but one's own is right.
#[test]
fn nothing_sent_is_wrong() {
    use live::plan::Check;
    let memory = Regions::new(1, 1000, 0, 0);
    let sum = [Check { address: 0, bytes: 1000, from: None }];
    assert!(900 < memory.wrong(&sum, 8));
    let own = [Check { address: 0, bytes: 1000, from: Some((1, 0)) }];
    assert_eq!(memory.wrong(&own, 8), 0);
}
