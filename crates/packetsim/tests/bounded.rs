//! Runs that are computed in part: how far they are from whole ones.

use fabric::Fabric;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use fabric::transport::Transport;
use packetsim::Settings;
use packetsim::cc::{CcConfig, dcqcn, hpcc, none};
use packetsim::packet::Forward;
use traffic::{Connection, Outcome, Transfers};
use units::{Bytes, Id, Random, Rate, Span};

fn fabric() -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(16),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let link = LinkConfig {
        rate: Some(Rate::from_gbps(400)),
        delay: Some(Span::from_ns(300)),
        length: None,
    };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(4),
        links: vec![link; 3],
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Default::default()).expect("it is well-formed")
}

/// Everybody sends to one other, several messages one after the other.
fn permutation(fabric: &Fabric, seed: u64) -> Transfers {
    let mut order: Vec<usize> = (0..16).collect();
    Random::new(seed, "bounded", 0).shuffle(&mut order);
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for at in 0..16 {
        let (from, to) = (fabric.nic(order[at]), fabric.nic(order[(at + 1) % 16]));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        let first = transfers.send(connection, Bytes::from_mib(2), label, &[]);
        transfers.send(connection, Bytes::from_mib(2), label, &[first]);
    }
    transfers
}

fn run(fabric: &Fabric, transfers: &Transfers, settings: &Settings, forward: Forward) -> Outcome {
    let mut settings = settings.clone();
    settings.packet.forward = forward;
    let outcome = packetsim::run(fabric, transfers, &settings).expect("it can be run");
    assert_eq!(outcome.completed(), outcome.ops.len(), "{:?}", outcome.findings);
    outcome
}

/// The bound that the finding with these words tells, as a share.
fn told(outcome: &Outcome, words: &str) -> f64 {
    let found = outcome.findings.iter().find(|finding| finding.text.contains(words));
    let text = &found.unwrap_or_else(|| panic!("{:?}", outcome.findings)).text;
    let share = text.split("to within ").nth(1).and_then(|rest| rest.split(' ').next());
    share.and_then(|share| share.parse::<f64>().ok()).expect("a number") / 100.0
}

/// What acknowledgements without links may change.
fn bound(outcome: &Outcome) -> f64 {
    told(outcome, "acknowledgements")
}

/// Bounded against whole: where nothing reacts to congestion, every completion within the bound
/// that the run tells, and the same bytes on every link.
#[test]
fn acknowledgements_without_links_stay_within_their_bound() {
    let fabric = fabric();
    let congestion = CcConfig::None(none::Config {});
    let settings = Settings { congestion, ..Settings::default() };
    let mut largest = 0.0_f64;
    for seed in 0..20 {
        let transfers = permutation(&fabric, seed);
        let whole = run(&fabric, &transfers, &settings, Forward::Off);
        let bounded = run(&fabric, &transfers, &settings, Forward::Bounded);
        let bound = bound(&bounded);
        assert!((0.0..0.1).contains(&bound), "{bound}");
        for (op, (a, b)) in whole.ops.iter().zip(bounded.ops.iter()).enumerate() {
            let [a, b] = [a, b].map(|times| times.expect("it finished").finish.as_secs_f64());
            let error = (b / a - 1.0).abs();
            largest = largest.max(error / bound);
            assert!(error <= bound, "seed {seed}, operation {op}: {error} of {bound}");
        }
        for (a, b) in whole.links.iter().zip(bounded.links.iter()) {
            assert_eq!(a.bytes, b.bytes, "seed {seed}");
        }
        assert!(bounded.counters.events < whole.counters.events * 7 / 10, "seed {seed}");
    }
    assert!(0.05 < largest, "the bound is never near: {largest}");
}

/// With congestion control the mean over seeds stays within the bound, whatever the transport.
#[test]
fn means_stay_within_the_bound_under_every_transport() {
    let fabric = fabric();
    for transport in [Transport::Rocev2, Transport::Uec, Transport::Infiniband] {
        let settings = Settings::of_transport(transport);
        let (mut sums, mut most) = ([0.0; 2], 0.0_f64);
        for seed in 0..20 {
            let settings = Settings { seed, ..settings.clone() };
            let transfers = permutation(&fabric, seed);
            let outcomes = [Forward::Off, Forward::Bounded]
                .map(|forward| run(&fabric, &transfers, &settings, forward));
            most = most.max(bound(&outcomes[1]));
            for (sum, outcome) in sums.iter_mut().zip(&outcomes) {
                *sum += outcome.makespan().as_secs_f64();
            }
        }
        let error = (sums[1] / sums[0] - 1.0).abs();
        assert!(error <= most, "{transport:?}: {error} of {most}");
    }
}

/// How a finding about time that was passed over begins.
const STEADY: &str = "steady state (`network.packet.forward`): ";

/// Hosts 1 to `count` send as much to host 0, and one of them twice.
fn incast(fabric: &Fabric, count: usize, bytes: Bytes) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for from in 1..=count {
        let (from, to) = (fabric.nic(from), fabric.nic(0));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, bytes, label, &[]);
        if connection == traffic::ConnectionId::from_index(0) {
            transfers.send(connection, bytes, label, &[]);
        }
    }
    transfers
}

/// The largest error of a completion, and the share of events that bounded took.
fn compare(transfers: &Transfers, settings: &Settings) -> (f64, f64, Outcome) {
    let fabric = fabric();
    let [whole, bounded] = [Forward::Exact, Forward::Bounded]
        .map(|forward| run(&fabric, transfers, settings, forward));
    let mut largest = 0.0_f64;
    for (a, b) in whole.ops.iter().zip(bounded.ops.iter()) {
        let [a, b] = [a, b].map(|times| times.expect("it finished").finish.as_secs_f64());
        largest = largest.max((b / a - 1.0).abs());
    }
    for (link, (a, b)) in whole.links.iter().zip(bounded.links.iter()).enumerate() {
        assert_eq!(a.bytes, b.bytes, "link {link}");
    }
    assert_eq!(whole.counters.packets, bounded.counters.packets);
    assert_eq!(whole.counters.packet_hops, bounded.counters.packet_hops);
    let share = bounded.counters.events as f64 / whole.counters.events as f64;
    (largest, share, bounded)
}

/// Bounded against whole: rates that only a timer changes are taken for granted until it does, and
/// a queue that grows meanwhile is as long as it would be.
#[test]
fn fixed_rates_are_passed_over() {
    let line = Rate::from_gbps(400);
    let mut settings =
        Settings { congestion: CcConfig::Dcqcn(dcqcn::Config::ns3(line)), ..Settings::default() };
    (settings.ecn.min, settings.ecn.max) = (Bytes::new(400_000), Bytes::new(400_000));
    settings.ecn.probability = 1.0;
    let transfers = incast(&fabric(), 12, Bytes::from_mib(48));
    let (error, share, bounded) = compare(&transfers, &settings);
    let bound = told(&bounded, "rates were fixed there");
    assert!(error < bound && bound < 0.1, "{error} of {bound}");
    assert!(share < 0.25, "{share}");
}

/// Bounded against whole: rates that move about a mean are taken for it.
#[test]
fn settled_rates_are_passed_over() {
    let config = hpcc::Config::ns3(Rate::from_gbps(400), Span::ZERO);
    let congestion = CcConfig::Hpcc(hpcc::Config { base_rtt: None, ..config });
    let settings = Settings { congestion, ..Settings::default() };
    let transfers = incast(&fabric(), 12, Bytes::from_mib(192));
    let (error, share, bounded) = compare(&transfers, &settings);
    let bound = told(&bounded, "means of samples");
    assert!(error < bound && bound < 0.1, "{error} of {bound}");
    // Acknowledgements that take no links leave six tenths of the events by themselves.
    assert!(share < 0.62, "{share}: {:?}", bounded.findings);
    let passed = bounded.findings.iter().find_map(|finding| {
        let (share, _) = finding.text.strip_prefix(STEADY)?.split_once(" %")?;
        share.parse::<f64>().ok()
    });
    assert!(passed.is_some_and(|passed| 10.0 < passed), "{:?}", bounded.findings);
}

/// Where rates move all the time, the run says that it was simulated.
#[test]
fn a_run_without_steady_state_says_so() {
    let fabric = fabric();
    let transfers = incast(&fabric, 4, Bytes::from_mib(16));
    let congestion = CcConfig::Timely(Default::default());
    let settings = Settings { congestion, ..Settings::default() };
    let bounded = run(&fabric, &transfers, &settings, Forward::Bounded);
    let told = bounded.findings.iter().any(|finding| finding.text.contains("no steady state"));
    assert!(told, "{:?}", bounded.findings);
}
