//! What its paper says of PowerTCP: queues drain within a few round trips, stay short, and the link
//! stays busy.

use fabric::graph::{LinkKind, Tier};
use fabric::{Fabric, FabricBuilder, LinkClass, LinkId};
use packetsim::cc::{CcConfig, powertcp};
use packetsim::measure::MeasureConfig;
use packetsim::{Settings, Watch};
use traffic::{Connection, OpKind, Transfers};
use units::{Bytes, Length, Rate, Span, Time};

const RATE: Rate = Rate::from_gbps(400);

/// Hosts on one switch.
fn star(hosts: usize, delay: Span) -> Fabric {
    let mut builder = FabricBuilder::new(hosts, 1, 1);
    let (name, kind, length) = ("link".into(), LinkKind::ScaleOut, Length::ZERO);
    let class = builder.class(LinkClass { name, kind, rate: RATE, delay, length });
    let tier = Tier { name: "leaf".into(), model: String::new(), latency: Span::ZERO };
    let tier = builder.tier(tier);
    let switch = builder.plain_switch(tier, 0, 0);
    for host in 0..hosts {
        let nic = builder.nic(host);
        builder.cable(nic, switch, class);
    }
    builder.build()
}

/// The longest queue, in bandwidth-delay products, and the mean rate over the line rate, of the
/// link to the receiver from five round trips after `start` until the first sender is done.
fn queue_and_rate(senders: usize, start: Span, late: Option<Span>) -> (f64, f64) {
    let delay = Span::from_us(5);
    let fabric = star(senders + 1, delay);
    let mut transfers = Transfers::new();
    let label = transfers.label("flow");
    for sender in 1..=senders {
        let (from, to) = (fabric.nic(sender), fabric.nic(0));
        let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 1 });
        let late = late.filter(|_| sender == senders);
        let wait = late.map(|span| transfers.add(OpKind::Wait { span }, label, &[]));
        transfers.send(connection, Bytes::from_mib(64), label, wait.as_slice());
    }
    let congestion = CcConfig::PowerTcp(powertcp::Config::default());
    let settings = Settings { congestion, ..Settings::default() };
    let into: Vec<LinkId> = vec![fabric.reverse(fabric.ports(fabric.nic(0))[0])];
    let interval = Span::from_us(1);
    let measure =
        MeasureConfig { interval, samples: 1_000_000, links: into, ..MeasureConfig::default() };
    let (outcome, recording) = packetsim::run_measured(
        &fabric,
        &transfers,
        &settings,
        &Default::default(),
        &measure,
        &mut Watch::default(),
    )
    .expect("it can be run");
    assert_eq!(outcome.completed(), transfers.ops().len(), "{:?}", outcome.findings);
    // Two links, there and back, and the packets themselves.
    let round_trip = delay * 4 + Span::from_ns(2 * 85);
    let product = RATE.bytes_in(round_trip).as_f64();
    let (_, lane) = &recording.links[0];
    let from = Time::ZERO + start + round_trip * 5;
    // The last packets of the first to finish leave a round trip before it knows.
    let sends = outcome.ops.iter().zip(transfers.ops().iter());
    let ends = sends.filter(|(_, op)| matches!(op.kind, OpKind::Send { .. }));
    let first = ends.filter_map(|(times, _)| times.map(|times| times.finish)).min().unwrap();
    let until = Time::ZERO + first.since(Time::ZERO + round_trip);
    let looked: Vec<usize> =
        (0..recording.at.len()).filter(|at| (from..until).contains(&recording.at[*at])).collect();
    assert!(100 < looked.len(), "only {} samples", looked.len());
    let queue = looked.iter().map(|at| lane.samples[*at].data.as_f64()).fold(0.0, f64::max);
    let (a, b) = (looked[0], looked[looked.len() - 1]);
    let sent = (lane.samples[b].sent - lane.samples[a].sent) as f64;
    let seconds = recording.at[b].since(recording.at[a]).as_secs_f64();
    // Gaps between frames are time on the wire, but no bytes: 20 of each 4,220.
    let busy = 4_220.0 / 4_200.0;
    (queue / product, sent * busy * 8.0 / seconds / RATE.as_bps_f64())
}

/// The paper's claim: two that begin at once, and somebody who joins those who share the link.
#[test]
fn queues_are_short_after_five_round_trips_and_the_link_is_busy() {
    let late = Span::from_us(600);
    let cases = [
        (2, Span::ZERO, None),
        (2, late, Some(late)),
        (4, late, Some(late)),
        (8, late, Some(late)),
    ];
    for (senders, start, late) in cases {
        let (queue, rate) = queue_and_rate(senders, start, late);
        assert!(queue < 0.1, "{senders} senders, {late:?}: {queue:.3} of a product queued");
        assert!(0.95 <= rate, "{senders} senders, {late:?}: {rate:.3} of the line rate");
    }
}
