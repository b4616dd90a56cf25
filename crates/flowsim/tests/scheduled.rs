//! Scheduled Ethernet on flows: a loop of credit, cells' headers, and no collisions. The closed
//! forms are those of `crates/packetsim/tests/scheduled.rs`.

use fabric::Fabric;
use fabric::routing::Policy;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use fabric::transport::{ScheduledConfig, Transport};
use flowsim::{Settings, Wire};
use traffic::{Connection, Outcome, Transfers};
use units::{Bytes, Rate, Span};

const HOP: Span = Span::from_ns(300);

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
        links: vec![link(400), link(gbps), link(gbps)],
        ..FabricConfig::default()
    };
    let fabric = build(&cluster, &config, &Default::default()).expect("it is well-formed");
    fabric.with_schedule(&ScheduledConfig { enabled: true, ..ScheduledConfig::default() })
}

fn settings() -> Settings {
    let efficiency = Transport::ScheduledEthernet.efficiency(Bytes::from_kib(4));
    let wire = Wire { nic_latency: Span::ZERO, efficiency, ..Wire::default() };
    let mut settings = Settings { wire, seed: 1, ..Settings::default() };
    settings.routing.policy = Policy::Spray;
    settings
}

fn runs(fabric: &Fabric, pairs: &[(usize, usize)], bytes: Bytes) -> [Outcome; 2] {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for &(from, to) in pairs {
        let (from, to) = (fabric.nic(from), fabric.nic(to));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, bytes, label, &[]);
    }
    let settings = settings();
    let flows = flowsim::run(fabric, &transfers, &settings);
    [flows, flowsim::analytic::run(fabric, &transfers, &settings)]
}

/// When the last message was there, in seconds.
fn received(outcome: &Outcome) -> f64 {
    let times = outcome.ops.iter().map(|times| times.expect("it finished").received);
    times.map(|at| at.as_secs_f64()).fold(0.0, f64::max)
}

/// From pod to pod: cables there, four of them twice more for credit, switches and chips.
fn latency(fabric: &Fabric) -> f64 {
    let switches = [0, 1, 2, 1, 0].iter().map(|tier| fabric.tiers()[*tier].latency.as_secs_f64());
    14.0 * HOP.as_secs_f64() + 500e-9 + switches.sum::<f64>()
}

/// Oracle: a sum by hand. A short message waits for one loop of credit, on flows and alone.
#[test]
fn a_short_message_waits_for_one_credit_loop() {
    let fabric = fat_tree(4, 16, 500);
    for outcome in runs(&fabric, &[(15, 0)], Bytes::new(64)) {
        let more = received(&outcome) - latency(&fabric);
        // Its bytes on the first and the last cable.
        assert!((0.0..4e-9).contains(&more), "{more}");
    }
}

/// Oracle: arithmetic. A permutation has the rate of its hosts' cables, or that of the fabric's
/// less the headers of cells.
#[test]
fn a_permutation_has_the_whole_rate() {
    let bytes = Bytes::from_mib(8);
    let pairs: Vec<_> = (0..128).map(|host| (host, host ^ 84)).collect();
    let scheduled = ScheduledConfig::default().efficiency(Bytes::from_kib(4));
    for (gbps, rate) in [(450, 400e9 * 4096.0 / 4178.0), (400, 400e9 * scheduled)] {
        let fabric = fat_tree(8, 128, gbps);
        // Alone, a message has a part of four links at every hop: its own cable bounds it.
        let rates = [rate, 400e9 * 4096.0 / 4178.0];
        for (outcome, rate) in runs(&fabric, &pairs, bytes).iter().zip(rates) {
            let expected = bytes.as_f64() * 8.0 / rate + latency(&fabric);
            let off = received(outcome) / expected - 1.0;
            assert!((0.0..0.002).contains(&off), "{gbps}: {off}");
        }
    }
}

/// Oracle: arithmetic. An incast shares its port, and the fabric is wide enough.
#[test]
fn an_incast_has_the_rate_of_its_port() {
    let fabric = fat_tree(4, 16, 500);
    let pairs: Vec<_> = (1..16).map(|host| (host, 0)).collect();
    let [flows, _] = runs(&fabric, &pairs, Bytes::from_mib(1));
    let moving = 15.0 * 1_048_576.0 * 8.0 / 400e9 * 4178.0 / 4096.0;
    let off = (received(&flows) - latency(&fabric)) / moving - 1.0;
    assert!((0.0..0.005).contains(&off), "{off}");
}
