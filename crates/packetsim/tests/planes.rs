//! NICs with several ports: one queue pair over all of them, each port in a plane of its own.

use fabric::Fabric;
use fabric::fault::{FaultConfig, FaultKind, Faults};
use fabric::hardware::{Catalogue, Reorder};
use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use fabric::transport::Transport;
use packetsim::{Settings, Watch, run, run_with_faults};
use traffic::{Connection, Outcome, Transfers};
use units::{Bytes, Rate, Span};

const PLANES: u32 = 8;

/// Two pods of sixteen servers with one NIC, whose 800G are a port of 100G in each of eight planes.
fn planes(nic_rate: Rate, planes: u32) -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(32),
        gpus_per_node: 1,
        nics_per_node: 1,
        nic_rate: Some(nic_rate),
        pcie: Rate::from_gbps(3_200),
        ports_per_nic: planes,
        ..ClusterConfig::default()
    };
    let config = FabricConfig {
        topology: TopologyKind::DualPlane,
        planes: Some(planes),
        segment_nodes: Some(16),
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Catalogue::default()).expect("it is well-formed")
}

fn eight() -> Fabric {
    planes(Rate::from_gbps(800), PLANES)
}

/// Each of some servers sends so much to the one behind it in the other pod.
fn across(fabric: &Fabric, senders: usize, bytes: Bytes) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for host in 0..senders {
        let (from, to) = (fabric.nic(host), fabric.nic(16 + host));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, bytes, label, &[]);
    }
    transfers
}

fn sprayed() -> Settings {
    Settings { seed: 1, ..Settings::of_transport(Transport::Uec) }
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.makespan().as_secs_f64()
}

/// Bytes that a NIC's ports sent, by port.
fn by_port(fabric: &Fabric, outcome: &Outcome, nic: usize) -> Vec<f64> {
    let ports = fabric.ports(fabric.nic(nic)).iter();
    ports.map(|port| outcome.links[*port].bytes as f64).collect()
}

/// Oracle: arithmetic. One queue pair has the eight ports' rate, less headers, and every plane
/// carries an eighth; so have sixteen that share the spines.
#[test]
fn a_queue_pair_has_the_rate_of_all_ports() {
    for senders in [1, 16] {
        check_rate(senders);
    }
}

fn check_rate(senders: usize) {
    let fabric = eight();
    let (bytes, settings) = (Bytes::from_mib(64), sprayed());
    let outcome = run(&fabric, &across(&fabric, senders, bytes), &settings).expect("it can be run");
    let share = Transport::Uec.efficiency(settings.packet.mtu);
    let expected = bytes.as_f64() * 8.0 / (800e9 * share);
    let off = seconds(&outcome) / expected - 1.0;
    assert!((0.0..0.05).contains(&off), "{senders}: {off}");
    let carried = by_port(&fabric, &outcome, 0);
    let mean = carried.iter().sum::<f64>() / f64::from(PLANES);
    let even = |bytes: &f64| (bytes / mean - 1.0).abs() < 0.02;
    assert!(carried.iter().all(even), "{carried:?}");
}

/// Oracle: arithmetic. A plane that dies leaves seven eighths of the rate, so what is left when the
/// routes have followed takes 8/7 of its time.
#[test]
fn a_plane_that_dies_leaves_seven_eighths() {
    let fabric = eight();
    let settings = sprayed();
    let dead = fabric.links()[fabric.ports(fabric.nic(0))[3]].to;
    let fault = FaultConfig {
        at: Span::from_us(200),
        until: None,
        lasting: None,
        on: fabric.name(dead),
        what: FaultKind::SwitchDown,
    };
    let faults = Faults::new(&fabric, &[fault], "faults").unwrap_or_else(|e| panic!("{e:?}"));
    let run = |mib, faults: &Faults| {
        let transfers = across(&fabric, 1, Bytes::from_mib(mib));
        let mut watch = Watch::default();
        let outcome = run_with_faults(&fabric, &transfers, &settings, faults, &mut watch).unwrap();
        assert_eq!(outcome.completed(), 1, "{:?}", outcome.findings);
        outcome
    };
    // What the second half takes, long after the routes have followed.
    let rest = |faults: &Faults| seconds(&run(512, faults)) - seconds(&run(256, faults));
    let off = rest(&faults) / rest(&Faults::default()) * 7.0 / 8.0 - 1.0;
    assert!(off.abs() < 0.03, "{off}");
    // Until then an eighth is lost and sent again, and the others carry all afterwards.
    let carried = by_port(&fabric, &run(512, &faults), 0);
    assert!(carried[3] < 0.2 * carried[2], "{carried:?}");
}

/// Property: an incast over all planes is trimmed, and everything arrives once.
#[test]
fn an_incast_over_planes_is_trimmed_and_arrives() {
    let fabric = eight();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for host in 0..15 {
        let (from, to) = (fabric.nic(host), fabric.nic(31));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::from_mib(4), label, &[]);
    }
    let mut settings = sprayed();
    settings.buffer.size = Bytes::from_mib(2);
    let outcome = run(&fabric, &transfers, &settings).expect("it can be run");
    assert_eq!(outcome.completed(), 15, "{:?}", outcome.findings);
    assert!(0 < outcome.counters.trims, "{:?}", outcome.counters);
}

/// Property: whoever goes back after a loss stays on one port, and the run says so.
#[test]
fn go_back_n_stays_on_one_port() {
    let fabric = eight();
    let mut settings = sprayed();
    settings.nic.reorder = Reorder::None;
    let outcome = run(&fabric, &across(&fabric, 1, Bytes::from_mib(1)), &settings).unwrap();
    let used = by_port(&fabric, &outcome, 0).iter().filter(|bytes| 0.0 < **bytes).count();
    assert_eq!(used, 1);
    let said = outcome.findings.iter().any(|finding| {
        finding.text.contains("each queue pair of NIC 0 stays on one of its 8 ports")
    });
    assert!(said, "{:?}", outcome.findings);
}
