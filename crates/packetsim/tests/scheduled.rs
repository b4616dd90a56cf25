//! Scheduled Ethernet: credits from the egress, virtual output queues, cells over all links.

use fabric::fault::{FaultConfig, FaultKind, Faults};
use fabric::hardware::Reorder;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use fabric::transport::Transport;
use fabric::{Fabric, NodeKind};
use packetsim::{Settings, Watch, run, run_with_faults};
use traffic::{Connection, OpKind, Outcome, Transfers};
use units::{Bytes, Random, Rate, Span};

const HOST: u64 = 400;
const HOP: Span = Span::from_ns(300);
/// A full packet on the wire: 4,096 and 62 bytes, gap and preamble.
const FULL: u64 = 4_178;

/// A fat tree whose cables between switches are so many times as fast as those of hosts, as
/// Jericho's and Ramon's are, and whose leaves are not.
fn fat_tree(k: u32, hosts: u64, gbps: u64) -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(hosts),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let link =
        |gbps| LinkConfig { rate: Some(Rate::from_gbps(gbps)), delay: Some(HOP), length: None };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(k),
        links: vec![link(HOST), link(gbps), link(gbps)],
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Default::default()).expect("it is well-formed")
}

fn settings() -> Settings {
    Settings { seed: 1, ..Settings::of_transport(Transport::ScheduledEthernet) }
}

/// Messages from one host to another.
fn sends(fabric: &Fabric, pairs: &[(usize, usize)], bytes: Bytes) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for &(from, to) in pairs {
        let (from, to) = (fabric.nic(from), fabric.nic(to));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, bytes, label, &[]);
    }
    transfers
}

fn ran(fabric: &Fabric, pairs: &[(usize, usize)], bytes: Bytes, settings: &Settings) -> Outcome {
    let transfers = sends(fabric, pairs, bytes);
    let outcome = run(fabric, &transfers, settings).expect("it can be run");
    assert_eq!(outcome.completed(), pairs.len(), "{:?}", outcome.findings);
    outcome
}

/// When the last message was there, in picoseconds.
fn received(outcome: &Outcome) -> u64 {
    let times = outcome.ops.iter().flatten();
    times.map(|times| times.received.as_ps()).max().expect("there is one")
}

fn on_wire(bytes: u64, gbps: u64) -> u64 {
    Rate::from_gbps(gbps).time_to_send(Bytes::new(bytes)).as_ps()
}

/// Latencies of the switches from pod to pod.
fn switches(fabric: &Fabric) -> u64 {
    [0, 1, 2, 1, 0].iter().map(|tier| fabric.tiers()[*tier].latency.as_ps()).sum()
}

/// Oracle: a sum by hand, to the picosecond. A message of one cell crosses its cable, asks for
/// credit over four cables and waits for the chips, gets it over four, crosses them, and is sent.
#[test]
fn a_short_message_waits_for_one_credit_loop() {
    let fabric = fat_tree(4, 16, 500);
    for wait in [0, 500, 1_700] {
        let mut settings = settings();
        settings.scheduled.latency = Span::from_ns(wait);
        let outcome = ran(&fabric, &[(15, 0)], Bytes::new(64), &settings);
        // Headers of a first and last packet: 62 + 16 + 4; a cell has eight bytes more and no gap.
        let packet = 64 + 62 + 20;
        let cables = (6 + 2 * 4) * HOP.as_ps();
        let ends = 2 * on_wire(packet + 20, HOST) + 4 * on_wire(packet + 8, 500);
        let expected = switches(&fabric) + cables + ends + wait * 1_000;
        assert_eq!(received(&outcome), expected, "{wait}");
    }
    // Under one leaf nothing but the chips is waited for.
    let outcome = ran(&fabric, &[(1, 0)], Bytes::new(64), &settings());
    let leaf = fabric.tiers()[0].latency.as_ps();
    let expected = leaf + 2 * HOP.as_ps() + 2 * on_wire(64 + 62 + 40, HOST) + 500_000;
    assert_eq!(received(&outcome), expected);
}

/// Oracle: arithmetic. A long message alone takes its packets at line rate and one latency.
#[test]
fn a_long_message_has_the_whole_rate() {
    let fabric = fat_tree(4, 16, 500);
    let packets = 4_096;
    let bytes = Bytes::new(packets * 4_096);
    let outcome = ran(&fabric, &[(15, 0)], bytes, &settings());
    let least = packets * on_wire(FULL, HOST);
    let latency = switches(&fabric) + 14 * HOP.as_ps() + 500_000;
    let took = received(&outcome);
    assert!((least + latency..least + latency + 1_000_000).contains(&took), "{took}");
    assert_eq!([outcome.counters.drops, outcome.counters.pauses], [0, 0]);
}

/// Oracle: arithmetic. Without faster cables inside, cells' headers are what a message pays.
#[test]
fn headers_of_cells_cost_what_they_take() {
    let fabric = fat_tree(4, 16, HOST);
    let pairs: Vec<_> = (0..16).map(|host| (host, (host + 4) % 16)).collect();
    let packets = 2_048;
    let outcome = ran(&fabric, &pairs, Bytes::new(packets * 4_096), &settings());
    let least = packets * on_wire(4_158 + 17 * 8, HOST);
    let moving = received(&outcome) - switches(&fabric) - 14 * HOP.as_ps() - 500_000;
    let ratio = moving as f64 / least as f64;
    assert!((0.995..1.03).contains(&ratio), "{ratio}");
}

/// Oracle: arithmetic. Whoever sends to whom, nobody collides: all have the whole rate, where
/// hashing leaves the unlucky a part of it.
#[test]
fn a_permutation_has_the_whole_rate() {
    let fabric = fat_tree(8, 128, 450);
    let pairs: Vec<_> = (0..128).map(|host| (host, host ^ 84)).collect();
    assert!(pairs.iter().all(|(from, to)| from / 4 != to / 4), "all cross the fabric");
    let packets = 512;
    let bytes = Bytes::new(packets * 4_096);
    let outcome = ran(&fabric, &pairs, bytes, &settings());
    let least = packets * on_wire(FULL, HOST);
    let latency = switches(&fabric) + 14 * HOP.as_ps() + 500_000;
    let took = received(&outcome);
    assert!(took < least * 103 / 100 + latency, "{took} for {least} and {latency}");
    assert_eq!([outcome.counters.drops, outcome.counters.pauses], [0, 0]);
    let hashed = Settings { seed: 1, ..Settings::of_transport(Transport::Rocev2) };
    assert!(1.5 * (took as f64) < received(&ran(&fabric, &pairs, bytes, &hashed)) as f64);
}

/// Property: the cells of one message take the links of every switch in turn.
#[test]
fn cells_balance_links_to_within_a_packets_rounding() {
    let fabric = fat_tree(8, 128, 400);
    let outcome = ran(&fabric, &[(127, 0)], Bytes::from_mib(4), &settings());
    let leaf = fabric.links()[fabric.ports(fabric.nic(127))[0]].to;
    let (_, up) = fabric.ports_down_up(leaf);
    let carried: Vec<u64> = up.iter().map(|link| outcome.links[*link].bytes).collect();
    let (least, most) = (carried.iter().min().unwrap(), carried.iter().max().unwrap());
    assert_eq!(carried.len(), 4);
    // A cell, and what the shorter last cell of each fourth packet leaves.
    assert!(most - least <= 2 * 264, "{carried:?}");
    let whole = 1_024 * (4_158 + 17 * 8);
    assert!((whole..whole + 264).contains(&carried.iter().sum::<u64>()), "{carried:?}");
}

/// Oracle: arithmetic. An incast of fifteen keeps its one port busy without a break, its fabric
/// empty, and loses nothing; what waits does so at the leaves of the senders.
#[test]
fn an_incast_fills_its_port_and_nothing_else() {
    let fabric = fat_tree(4, 16, 500);
    let pairs: Vec<_> = (1..16).map(|host| (host, 0)).collect();
    let packets = 256;
    let outcome = ran(&fabric, &pairs, Bytes::new(packets * 4_096), &settings());
    let least = 15 * packets * on_wire(FULL, HOST);
    let moving = received(&outcome) - switches(&fabric) - 14 * HOP.as_ps() - 500_000;
    let ratio = moving as f64 / least as f64;
    assert!((0.995..1.005).contains(&ratio), "{ratio}");
    assert_eq!(outcome.counters.drops + outcome.counters.retransmits, 0);
    let inside = fabric.links().ids().filter(|link| {
        let link = fabric.links()[*link];
        let is_switch = |node| fabric.nodes()[node].kind == NodeKind::Switch;
        is_switch(link.from) && is_switch(link.to)
    });
    let deepest = inside.map(|link| outcome.links[link].peak_queue.get()).max();
    assert!(deepest < Some(64 << 10), "{deepest:?}");
}

/// Property: however small the memory of leaves, nothing is lost: NICs are paused, and a packet
/// that goes back after a loss never does. Neither does order suffer.
#[test]
fn whatever_is_sent_nothing_is_lost() {
    let fabric = fat_tree(4, 16, 450);
    let mut pauses = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed, "messages", 0);
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        for _ in 0..24 {
            let to = random.below(4) as usize;
            let from = (to + 1 + random.below(15) as usize) % 16;
            let (from, to) = (fabric.nic(from), fabric.nic(to));
            let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
            let span = Span::from_ps(random.below(5_000_000));
            let wait = transfers.add(OpKind::Wait { span }, label, &[]);
            transfers.send(connection, Bytes::new(1 + random.below(600_000)), label, &[wait]);
        }
        let mut settings = Settings { seed, ..settings() };
        settings.nic.reorder = Reorder::None;
        settings.buffer.size = Bytes::from_kib(700 << (seed % 3));
        settings.buffer.alpha = 0.125;
        settings.scheduled.credit = Bytes::new([256, 1_024, 16_384][seed as usize % 3]);
        settings.scheduled.window = [None, Some(Bytes::from_kib(16))][seed as usize % 2];
        settings.limits.time = Span::from_ms(100);
        let outcome = run(&fabric, &transfers, &settings).expect("it can be run");
        let unfinished = outcome.ops.len() - outcome.completed();
        assert_eq!(unfinished, 0, "seed {seed}: {:?}", outcome.findings);
        let c = &outcome.counters;
        assert_eq!([c.drops, c.retransmits], [0, 0], "seed {seed}");
        pauses += c.pauses;
        assert_eq!(outcome.digest, run(&fabric, &transfers, &settings).unwrap().digest);
    }
    assert!(0 < pauses, "the test is of no use where nobody is paused");
}

/// Property: a NIC that takes less than its port sends holds back those who send to it, through
/// the credits that its port does not grant, and nobody else.
#[test]
fn a_slow_receiver_holds_back_its_own_senders_alone() {
    let fabric = fat_tree(4, 16, 500);
    let bytes = Bytes::from_mib(2);
    let fault = FaultConfig {
        at: Span::ZERO,
        until: None,
        lasting: None,
        on: "NIC 0".to_owned(),
        what: FaultKind::SlowReceiver { rate: Rate::from_gbps(50) },
    };
    let faults = Faults::new(&fabric, &[fault], "faults").expect("it is well-formed");
    let transfers = sends(&fabric, &[(12, 0), (13, 1)], bytes);
    let mut watch = Watch::default();
    let outcome = run_with_faults(&fabric, &transfers, &settings(), &faults, &mut watch).unwrap();
    assert_eq!(outcome.completed(), 2, "{:?}", outcome.findings);
    let took: Vec<f64> =
        outcome.ops.iter().flatten().map(|times| times.received.as_secs_f64() * 1e6).collect();
    let alone = bytes.as_f64() * 8e-3 / 400.0 * 4_178.0 / 4_096.0;
    assert!((7.0 * alone..10.0 * alone).contains(&took[0]), "{took:?}");
    assert!((alone..1.25 * alone).contains(&took[1]), "{took:?}");
    assert_eq!(outcome.counters.drops, 0);
}

/// Property: a switch of the fabric that dies costs what it held, which the NICs send again, and
/// then its share of the links; one that restarts comes back.
#[test]
fn a_switch_that_dies_is_left_out() {
    let fabric = fat_tree(8, 128, 400);
    let top = fabric.name(fabric.switches().last().expect("there are some"));
    let leaf = fabric.name(fabric.leaves()[3]);
    let pairs: Vec<_> = (0..128).map(|host| (host, (host + 16) % 128)).collect();
    let transfers = sends(&fabric, &pairs, Bytes::from_mib(1));
    for (on, what) in [(&top, FaultKind::SwitchDown), (&leaf, FaultKind::SwitchRestart)] {
        let lasting = matches!(what, FaultKind::SwitchRestart).then(|| Span::from_us(40));
        let at = Span::from_us(10);
        let fault = FaultConfig { at, until: None, lasting, on: on.clone(), what };
        let faults = Faults::new(&fabric, &[fault], "faults").expect("it is well-formed");
        let mut settings = settings();
        settings.nic.timeout = Span::from_us(200);
        settings.nic.retries = 50;
        let mut watch = Watch::default();
        let outcome = run_with_faults(&fabric, &transfers, &settings, &faults, &mut watch).unwrap();
        assert_eq!(outcome.completed(), 128, "{on}: {:?}", outcome.findings);
        assert!(0 < outcome.counters.drops && 0 < outcome.counters.retransmits, "{on}");
    }
}
