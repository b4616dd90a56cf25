//! Pauses where they meet other mechanisms.

use fabric::topology::{ClusterConfig, FabricConfig, TopologyKind, build};
use packetsim::Settings;
use packetsim::buffer::Organisation;
use packetsim::cc::{CcConfig, none};
use traffic::{Connection, Counters, OpKind, Transfers};
use units::{Bytes, Rate, Span};

/// An incast whose timeouts are too short: when the last message is acknowledged, packets that were
/// sent once too often still wait in switches that pause their senders. The receiver's software
/// sees the message later, and what happens in the network until then still happens: what ends a
/// pause does so when it is due (a debug assertion says so).
#[test]
fn what_happens_before_the_last_message_is_read_still_happens() {
    let cluster = ClusterConfig {
        gpus: Some(16),
        gpus_per_node: 2,
        nics_per_node: 2,
        ..ClusterConfig::default()
    };
    let config = FabricConfig {
        topology: TopologyKind::Clos,
        tiers: Some(2),
        radix: Some(8),
        ..FabricConfig::default()
    };
    let fabric = build(&cluster, &config, &Default::default()).expect("it is well-formed");
    let mut settings =
        Settings { congestion: CcConfig::None(none::Config {}), ..Settings::default() };
    settings.buffer.organisation = Organisation::DeepVoq;
    settings.buffer.size = Bytes::from_mib(2);
    settings.buffer.headroom = Some(Bytes::from_kib(120));
    settings.buffer.reserved = Bytes::from_kib(2);
    settings.nic.timeout = Span::from_us(30);
    settings.nic.retries = 1_000;
    settings.nic.pcie = Some(Rate::from_gbps(25));
    settings.nic.receive_buffer = Bytes::from_kib(512);
    settings.nic.receive_latency = Span::from_us(300);
    let run = |kib: u64, wait: Option<Span>| {
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        for from in 1..12 {
            let (from, to) = (fabric.nic(from), fabric.nic(0));
            let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
            transfers.send(connection, Bytes::from_kib(kib), label, &[]);
        }
        if let Some(span) = wait {
            transfers.add(OpKind::Wait { span }, label, &[]);
        }
        packetsim::run(&fabric, &transfers, &settings).expect("it can be run")
    };
    let mut pauses = 0;
    for kib in (100..400).step_by(50) {
        let first = run(kib, None);
        assert_eq!(first.completed(), first.ops.len(), "{:?}", first.findings);
        let longer = run(kib, Some(first.makespan()));
        assert_eq!(first.makespan(), longer.makespan());
        assert_eq!(first.links, longer.links, "{kib} KiB");
        let counts =
            |c: &Counters| [c.packets, c.packet_hops, c.retransmits, c.pauses, c.ecn_marks];
        assert_eq!(counts(&first.counters), counts(&longer.counters), "{kib} KiB");
        pauses += first.counters.pauses;
    }
    assert!(100 < pauses, "only {pauses} pauses");
}
