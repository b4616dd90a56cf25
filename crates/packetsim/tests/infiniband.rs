//! What InfiniBand and its neighbours promise: lanes that isolate, sums made by switches, links
//! that repair themselves, every rate of the catalogue.

use fabric::Fabric;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use fabric::transport::Transport;
use packetsim::Settings;
use packetsim::packet::lone_message;
use packetsim::settings::LinkRetry;
use traffic::collective::{Ask, Collective, Communicator, Detail, Group, Request, write};
use traffic::nccl::{self, Usage};
use traffic::{Connection, OpId, Outcome, Transfers};
use units::{Bytes, Rate, Span};

/// Sixteen hosts on a fat tree of three tiers.
fn fat_tree(rate: Rate) -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(16),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let link = LinkConfig { rate: Some(rate), delay: Some(Span::from_ns(300)), length: None };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(4),
        links: vec![link; 3],
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Default::default()).expect("it is well-formed")
}

fn send(transfers: &mut Transfers, fabric: &Fabric, ends: (usize, usize), bytes: Bytes) -> OpId {
    let label = transfers.label("flow");
    let connection = transfers.connect(Connection {
        from: fabric.nic(ends.0),
        to: fabric.nic(ends.1),
        channel: 0,
        queue_pairs: 1,
    });
    transfers.send(connection, bytes, label, &[])
}

fn took(outcome: &Outcome, op: OpId) -> f64 {
    let times = outcome.ops[op].expect("it finished");
    times.finish.since(times.start).as_secs_f64()
}

/// InfiniBand with credits, and Ethernet with pauses alone and so little memory that seven senders
/// to one receiver are paused; with two lanes or priorities each.
fn with_two_lanes() -> [Settings; 2] {
    let mut pauses = Settings::of_transport(Transport::Rocev2);
    pauses.congestion = packetsim::cc::CcConfig::None(Default::default());
    (pauses.nic.send_latency, pauses.nic.receive_latency) = (Span::ZERO, Span::ZERO);
    pauses.buffer.alpha = 0.001;
    let mut both = [Settings::of_transport(Transport::Infiniband), pauses];
    both.iter_mut().for_each(|settings| settings.credits.lanes = 2);
    both
}

/// One tenant's incast of seven to host 0 stalls host 2's cable; another tenant sends from host 2
/// to host 3. In a lane of its own it is held back only by the incast's seventh of that cable.
#[test]
fn an_incast_in_one_lane_does_not_slow_another() {
    let fabric = fat_tree(Rate::from_gbps(400));
    let bytes = Bytes::from_mib(2);
    let run = |settings: &Settings, incast: bool, level: u8| {
        let mut transfers = Transfers::new();
        if incast {
            for from in 1..8 {
                send(&mut transfers, &fabric, (from, 0), Bytes::from_mib(4));
            }
        }
        let first = transfers.connections().len();
        let victim = send(&mut transfers, &fabric, (2, 3), bytes);
        transfers.set_service_level(first, level);
        let outcome = packetsim::run(&fabric, &transfers, settings).expect("it can be run");
        assert_eq!(outcome.counters.drops, 0);
        if incast {
            assert!(0 < outcome.counters.pauses, "the test is of no use where nobody stalls");
        }
        took(&outcome, victim)
    };
    for settings in &with_two_lanes() {
        let [alone, same, own] =
            [(false, 0), (true, 0), (true, 1)].map(|(incast, level)| run(settings, incast, level));
        assert!(own < 1.3 * alone, "{own} for {alone}");
        assert!(1.5 * own < same, "{own} for {same}");
    }
}

/// Oracle: where two lanes want the same link they share it by their weights, and one of high
/// priority takes it whole. Two hosts under one leaf send to a third, so its cable is the link;
/// who is done first, and when, follows from the shares.
#[test]
fn lanes_share_a_link_by_their_weights() {
    let fabric = fat_tree(Rate::from_gbps(400));
    let bytes = Bytes::from_mib(8);
    let run = |settings: &Settings, weights: &[u8], high_priority: &[u8]| {
        let mut transfers = Transfers::new();
        let ops = [(2, 0), (3, 0)].map(|ends| send(&mut transfers, &fabric, ends, bytes));
        transfers.set_service_level(1, 1);
        let mut settings = settings.clone();
        settings.credits.weights = weights.to_vec();
        settings.credits.high_priority = high_priority.to_vec();
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        let [first, second] = ops.map(|op| took(&outcome, op));
        first / second
    };
    // Packets have 65 blocks: 64 are one packet, 192 are three. With a share s of the link the
    // first is done at 1 / s of its own time, and the second at twice that, since the link is never
    // idle: a ratio of 1 / (2 s).
    for settings in &with_two_lanes() {
        for (weights, share) in [([0, 0], 0.5), ([192, 64], 0.75), ([128, 64], 2.0 / 3.0)] {
            let (ratio, expected) = (run(settings, &weights, &[]), 0.5 / share);
            assert!((ratio / expected - 1.0).abs() < 0.03, "{weights:?}: {ratio} for {expected}");
        }
        let alone = run(settings, &[], &[0]);
        assert!((alone / 0.5 - 1.0).abs() < 0.03, "{alone}");
    }
}

/// The turns of lanes, and the room for credits, are those of the tier of the switch: of the one
/// that the link belongs to they count as those of all do, and of another they change nothing.
#[test]
fn tiers_have_their_own_turns_and_their_own_room() {
    use packetsim::credits::TierCredits;
    let fabric = fat_tree(Rate::from_gbps(400));
    let tiers: Vec<String> = fabric.tiers().iter().map(|tier| tier.name.clone()).collect();
    let run = |settings: &Settings, level: u8, ends: [(usize, usize); 2]| {
        let mut transfers = Transfers::new();
        let ops = ends.map(|ends| send(&mut transfers, &fabric, ends, Bytes::from_mib(8)));
        transfers.set_service_level(1, level);
        let outcome = packetsim::run(&fabric, &transfers, settings).expect("it can be run");
        ops.map(|op| took(&outcome, op))
    };
    let own = |settings: &Settings, tier: &str, own: TierCredits| {
        let mut settings = settings.clone();
        settings.credits_of_tier.insert(tier.to_owned(), own);
        settings
    };
    for settings in &with_two_lanes() {
        let mut all = settings.clone();
        all.credits.weights = vec![192, 64];
        let turns = || TierCredits { weights: Some(vec![192, 64]), ..TierCredits::default() };
        let ends = [(2, 0), (3, 0)];
        let of = |tier: usize| run(&own(settings, &tiers[tier], turns()), 1, ends);
        let (as_all, plain) = (run(&all, 1, ends), run(settings, 1, ends));
        assert!(as_all[0] < 0.8 * plain[0], "{as_all:?} {plain:?}");
        // Both are below one pair of leaves: what the core does counts for nothing.
        assert_eq!(of(2), plain);
        assert!((of(0)[0] / as_all[0] - 1.0).abs() < 0.03, "{:?} {as_all:?}", of(0));
    }
    // A packet or two for each round trip.
    let [credits, _] = with_two_lanes();
    let small = || TierCredits { buffer: Some(Bytes::from_kib(1)), ..TierCredits::default() };
    let ends = [(15, 0), (14, 1)];
    let plain = run(&credits, 0, ends);
    let core = run(&own(&credits, &tiers[2], small()), 0, ends);
    assert!(1.2 * plain[0] < core[0], "{plain:?} {core:?}");
    let near = [(2, 3), (3, 2)];
    assert_eq!(run(&own(&credits, &tiers[2], small()), 0, near), run(&credits, 0, near));
}

/// Oracle: a lone message at every rate takes what arithmetic says, from HDR to 1.6 Tb/s.
#[test]
fn every_rate_is_served() {
    for gbps in [200, 400, 800, 1600] {
        let rate = Rate::from_gbps(gbps);
        let fabric = fat_tree(rate);
        // What waits for credits has arithmetic of its own (`scheduled.rs`).
        let at_once = |of: &Transport| *of != Transport::ScheduledEthernet;
        for (name, transport) in Transport::ALL.into_iter().filter(|(_, of)| at_once(of)) {
            let mut settings = Settings::of_transport(transport);
            settings.congestion = packetsim::cc::CcConfig::None(Default::default());
            (settings.nic.send_latency, settings.nic.receive_latency) = (Span::ZERO, Span::ZERO);
            settings.nic.core_rate = None;
            let bytes = Bytes::from_kib(512);
            let mut transfers = Transfers::new();
            let op = send(&mut transfers, &fabric, (15, 0), bytes);
            let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
            let tiers = [0, 1, 2, 1, 0];
            let hop = |hop: usize| {
                let tier = tiers.get(hop).map(|tier| fabric.tiers()[*tier].latency);
                (rate, Span::from_ns(300) + tier.unwrap_or(Span::ZERO))
            };
            let hops: Vec<(Rate, Span)> = (0..6).map(hop).collect();
            let expected = lone_message(&settings.packet, &hops, bytes).as_secs_f64();
            let ratio = took(&outcome, op) / expected;
            // Packets that wait for a path that another has just taken come in a little later.
            assert!((0.9999..1.02).contains(&ratio), "{name} at {gbps}: {ratio}");
        }
    }
}

/// An all-reduce by an algorithm on eight servers of eight GPUs under two leaves for each rail:
/// what ran, and what came of it.
fn all_reduce(library: &nccl::Settings, loss: f64) -> (&'static str, Fabric, Outcome) {
    let cluster = ClusterConfig { gpus: Some(64), ..ClusterConfig::default() };
    let topology = TopologyKind::RailOptimized;
    let config = FabricConfig { topology, segment_nodes: Some(4), ..Default::default() };
    let fabric = build(&cluster, &config, &Default::default()).expect("it is well-formed");
    let gpus: Vec<_> = (0..fabric.gpus()).map(|gpu| fabric.gpu(gpu)).collect();
    let mut group = Group::new(Communicator::new(&fabric, &gpus));
    let bytes = Bytes::from_mib(16);
    let collective = Collective::AllReduce;
    let ask = Ask {
        fabric: &fabric,
        communicator: &group.communicator,
        collective,
        bytes,
        settings: library,
        weights: &[],
    };
    let plan = nccl::plan(&ask).expect("something serves");
    let mut transfers = Transfers::new();
    let label = transfers.label("sum");
    let detail = Detail::Stepwise;
    let request =
        Request { collective, bytes, detail, label, settings: library, plan: &plan, weights: &[] };
    write(&fabric, &mut group, &request, &mut transfers, &[]);
    let mut settings = Settings::of_transport(Transport::Infiniband);
    settings.loss = loss;
    settings.nic.timeout = Span::from_us(200);
    settings.nic.retries = 50;
    let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
    assert_eq!(outcome.completed(), transfers.ops().len(), "{:?}", outcome.findings);
    (plan.algorithm.name(), fabric, outcome)
}

/// Bytes on the wires that end at NICs.
fn received(fabric: &Fabric, outcome: &Outcome) -> f64 {
    let ends_at_nic = |link: &fabric::LinkId| {
        fabric.nodes()[fabric.links()[*link].to].kind == fabric::NodeKind::Nic
    };
    let links = outcome.links.ids().filter(ends_at_nic);
    links.map(|link| outcome.links[link].bytes as f64).sum()
}

/// Oracle: a ring brings every NIC 2(n−1)/n of its part, switches that add up bring it once. So
/// reduction in the network halves what reaches hosts, no more; the seeds tell of a fifth.
#[test]
fn sums_made_by_switches_halve_what_reaches_hosts() {
    let library = |name: &str| nccl::Settings {
        algorithm: Some(name.into()),
        sharp: Usage::Enabled,
        ..nccl::Settings::default()
    };
    let (ring_name, fabric, ring) = all_reduce(&library("ring"), 0.0);
    let (sharp_name, _, sharp) = all_reduce(&library("sharp"), 0.0);
    assert_eq!((ring_name, sharp_name), ("ring", "sharp"));
    assert_eq!(sharp.counters.drops, 0);
    let ratio = received(&fabric, &ring) / received(&fabric, &sharp);
    let closed_form = 2.0 * 63.0 / 64.0;
    assert!((ratio / closed_form - 1.0).abs() < 0.03, "{ratio} for {closed_form}");
    // Damaged packets are sent again from switch to switch.
    let (_, _, lossy) = all_reduce(&library("sharp"), 0.01);
    assert!(0 < lossy.counters.retransmits);
}

/// Where a switch has no tree left, hosts reduce.
#[test]
fn without_trees_the_hosts_reduce() {
    let mut library = nccl::Settings {
        algorithm: Some("sharp".into()),
        sharp: Usage::Enabled,
        ..nccl::Settings::default()
    };
    library.aggregation.trees = 0;
    let (name, _, outcome) = all_reduce(&library, 0.0);
    assert_ne!(name, "sharp");
    assert!(0 < outcome.counters.packets);
}

/// A flow that pauses for longer than the gap between flowlets leaves its hashed path; one that
/// never pauses keeps it.
#[test]
fn flowlets_part_only_where_flows_pause() {
    use fabric::routing::Policy;
    let fabric = fat_tree(Rate::from_gbps(400));
    let used = |policy: Policy, pause: Span| {
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        let ends =
            Connection { from: fabric.nic(15), to: fabric.nic(0), channel: 0, queue_pairs: 1 };
        let connection = transfers.connect(ends);
        let mut last = transfers.send(connection, Bytes::from_kib(64), label, &[]);
        for _ in 0..8 {
            last = transfers.add(traffic::OpKind::Wait { span: pause }, label, &[last]);
            last = transfers.send(connection, Bytes::from_kib(64), label, &[last]);
        }
        let mut settings = Settings::default();
        settings.routing.policy = policy;
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        assert_eq!(outcome.completed(), transfers.ops().len());
        outcome.links.iter().filter(|link| 65_536 <= link.bytes).count()
    };
    let (short, long) = (Span::from_us(10), Span::from_us(300));
    assert_eq!(used(Policy::Ecmp, long), 6);
    assert_eq!(used(Policy::Flowlet, short), 6);
    assert!(6 < used(Policy::Flowlet, long));
}

/// Links that send damaged packets again lose none, and the ends notice nothing.
#[test]
fn link_level_retry_hides_damage() {
    let fabric = fat_tree(Rate::from_gbps(400));
    let run = |retry: LinkRetry| {
        let mut transfers = Transfers::new();
        let ops: Vec<OpId> = (0..8)
            .map(|from| send(&mut transfers, &fabric, (from, from + 8), Bytes::from_mib(1)))
            .collect();
        let mut settings = Settings::of_transport(Transport::Uec);
        settings.loss = 0.01;
        settings.switch.link_retry = retry;
        let outcome = packetsim::run(&fabric, &transfers, &settings).expect("it can be run");
        let last = ops.iter().map(|op| took(&outcome, *op)).fold(0.0, f64::max);
        (outcome.counters.drops, outcome.counters.retransmits, last)
    };
    let ((drops, again, repaired), (lost, _, unrepaired)) =
        (run(LinkRetry::On), run(LinkRetry::Off));
    assert_eq!((drops, again), (0, 0));
    assert!(0 < lost && repaired < unrepaired, "{repaired} and {unrepaired}");
}
