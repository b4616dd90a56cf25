//! Queue pairs by what they promise: reliable connections, unreliable ones, datagrams.

use fabric::Fabric;
use fabric::fault::{FaultConfig, FaultKind, Faults};
use fabric::hash::{HashFields, UdpSource};
use fabric::routing::Policy;
use fabric::topology::{ClusterConfig, FabricConfig, LinkConfig, TopologyKind, build};
use packetsim::cc::{CcConfig, dcqcn, hpcc, none};
use packetsim::nic::Service;
use packetsim::{Settings, Watch, run, run_with_faults};
use traffic::{Connection, Outcome, Transfers};
use units::{Bytes, Rate, Span};

const MESSAGES: usize = 64;

/// Eight hosts under two leaves and two spines.
fn fabric() -> Fabric {
    let cluster = ClusterConfig {
        gpus: Some(8),
        gpus_per_node: 1,
        nics_per_node: 1,
        ..ClusterConfig::default()
    };
    let delay = Some(Span::from_ns(500));
    let link = LinkConfig { rate: Some(Rate::from_gbps(400)), delay, length: None };
    let config = FabricConfig {
        topology: TopologyKind::FatTree,
        k: Some(4),
        links: vec![link; 3],
        ..FabricConfig::default()
    };
    build(&cluster, &config, &Default::default()).unwrap()
}

/// Messages of sixteen packets from the first host to the last, on one queue pair.
fn send(fabric: &Fabric, settings: &Settings) -> Outcome {
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    let (from, to) = (fabric.nic(0), fabric.nic(7));
    let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
    for _ in 0..MESSAGES {
        transfers.send(connection, Bytes::from_kib(64), label, &[]);
    }
    run(fabric, &transfers, settings).expect("it can be run")
}

fn settings(service: Service) -> Settings {
    let mut settings = Settings { seed: 1, ..Settings::default() };
    settings.congestion = CcConfig::None(none::Config {});
    settings.nic.service = service;
    settings
}

/// Property: where ports say nothing, the Q_Key of datagrams tells queue pairs apart, and whoever
/// carries none is refused.
#[test]
fn switches_hash_the_q_key_of_datagrams_alone() {
    let fabric = fabric();
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    let (from, to) = (fabric.nic(0), fabric.nic(7));
    let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 16 });
    transfers.send(connection, Bytes::from_mib(16), label, &[]);
    let leaf = fabric.links()[fabric.ports(from)[0]].to;
    let (_, up) = fabric.ports_down_up(leaf);
    let used = |hash| {
        let mut settings = settings(Service::Ud);
        settings.routing.udp_source = UdpSource::ConnectxFixed;
        settings.routing.hash = hash;
        let outcome = run(&fabric, &transfers, &settings).expect("it can be run");
        up.iter().filter(|link| 0 < outcome.links[**link].bytes).count()
    };
    assert_eq!([HashFields::FiveTuple, HashFields::FiveTupleQkey].map(used), [1, 2]);
    let mut reliable = settings(Service::Rc);
    reliable.routing.hash = HashFields::FiveTupleQkey;
    let refused = run(&fabric, &transfers, &reliable).unwrap_err().to_string();
    assert!(refused.contains("Q_Key"), "{refused}");
}

/// Oracle: by hand. Unreliable services send nothing back, and a datagram has eight bytes more and
/// neither RETH nor immediate data.
#[test]
fn unreliable_services_send_no_acknowledgements() {
    let fabric = fabric();
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let settings = settings(service);
        let outcome = send(&fabric, &settings);
        assert_eq!(outcome.completed(), MESSAGES, "{service:?}: {:?}", outcome.findings);
        let port = |nic| outcome.links[fabric.ports(fabric.nic(nic))[0]].bytes;
        assert_eq!(port(7) == 0, service != Service::Rc, "{service:?}");
        let headers = &settings.packet.headers;
        let packet = settings.packet.mtu + headers.data;
        let message = match service {
            Service::Rc | Service::Uc => packet.get() * 16 + (headers.first + headers.last).get(),
            Service::Ud => (packet.get() + 8) * 16,
        };
        assert_eq!(port(0), message * MESSAGES as u64, "{service:?}");
    }
}

/// Property: where packets are lost, a reliable connection delivers everything, and the others lose
/// whole messages, say so and end.
#[test]
fn what_unreliable_services_lose_stays_lost() {
    let fabric = fabric();
    let with_loss = |service| {
        let mut settings = settings(service);
        settings.loss = 0.003;
        settings.nic.timeout = Span::from_us(200);
        send(&fabric, &settings)
    };
    assert_eq!(with_loss(Service::Rc).completed(), MESSAGES);
    for service in [Service::Uc, Service::Ud] {
        let outcome = with_loss(service);
        let lost = MESSAGES - outcome.completed();
        assert!(0 < lost && lost < MESSAGES, "{service:?}: {lost}");
        assert_eq!(outcome.counters.retransmits, 0, "{service:?}");
        let said = format!("{lost} messages did not arrive whole");
        let told = |said: &str| outcome.findings.iter().any(|finding| finding.text.contains(said));
        assert!(told(&said), "{service:?}: {:?}", outcome.findings);
    }
}

/// Property: an unreliable connection takes packets in order only; datagrams come as they like.
#[test]
fn datagrams_may_overtake_each_other_and_connections_may_not() {
    let fabric = fabric();
    let sprayed = |service| {
        let mut settings = settings(service);
        settings.routing.policy = Policy::Spray;
        // One of the ways is slower than the others.
        let slow = FaultConfig {
            at: Span::ZERO,
            until: None,
            lasting: None,
            on: "pod 0 aggregation 0".to_owned(),
            what: FaultKind::Degraded { rate: Rate::from_gbps(10) },
        };
        let faults = Faults::new(&fabric, &[slow], "faults").unwrap_or_else(|e| panic!("{e:?}"));
        let mut transfers = Transfers::new();
        let label = transfers.label("flow");
        let (from, to) = (fabric.nic(0), fabric.nic(7));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        transfers.send(connection, Bytes::from_mib(1), label, &[]);
        let mut watch = Watch::default();
        let outcome = run_with_faults(&fabric, &transfers, &settings, &faults, &mut watch);
        outcome.expect("it can be run").completed()
    };
    assert_eq!(sprayed(Service::Ud), 1);
    assert_eq!(sprayed(Service::Uc), 0);
}

/// Marks come back as notifications, which need no acknowledgement; what goes by those is refused.
#[test]
fn congestion_control_by_acknowledgements_is_refused() {
    let fabric = fabric();
    let mut settings = settings(Service::Ud);
    settings.congestion = CcConfig::Dcqcn(dcqcn::Config::default());
    assert_eq!(send(&fabric, &settings).completed(), MESSAGES);
    settings.congestion = CcConfig::Hpcc(hpcc::Config::default());
    let refusal = run(&fabric, &Transfers::new(), &settings).unwrap_err().to_string();
    assert!(refusal.contains("`network.nic.service` is `ud`, but must be `rc`"), "{refusal}");
}
