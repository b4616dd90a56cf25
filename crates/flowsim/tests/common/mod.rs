//! The fabrics and settings that the tests of the flow engine share.

#![allow(dead_code)] // every test file uses some of it

use fabric::graph::{Cover, LinkClass, LinkKind, Tier};
use fabric::{Fabric, FabricBuilder};
use flowsim::{Settings, Wire};
use traffic::{Connection, ConnectionId, Outcome, Transfers};
use units::{Bytes, Length, Rate, Span};

/// 100 Gb/s in bytes per second: easy to divide.
pub(crate) const RATE: f64 = 12.5e9;

/// `leaves` leaves with `nics` servers of one GPU and one NIC each, below `spines` spines.
pub(crate) fn leaf_spine(leaves: usize, nics: usize, spines: usize) -> Fabric {
    let mut builder = FabricBuilder::new(leaves * nics, 1, 1);
    let tier = |name: &str| Tier {
        name: name.to_owned(),
        model: "test".to_owned(),
        latency: Span::from_ns(500),
    };
    let (leaf_tier, spine_tier) = (builder.tier(tier("leaf")), builder.tier(tier("spine")));
    let class = builder.class(LinkClass {
        name: "all".to_owned(),
        kind: LinkKind::ScaleOut,
        rate: Rate::from_gbps(100),
        delay: Span::from_ns(100),
        length: Length::from_metres(20),
    });
    let leaf = |at: u32| Cover { level: 0, first: at, end: at + 1 };
    let above = Cover { level: 1, first: 0, end: leaves as u32 };
    let low: Vec<_> =
        (0..leaves).map(|at| builder.switch(leaf_tier, 0, at, leaf(at as u32))).collect();
    let high: Vec<_> = (0..spines).map(|at| builder.switch(spine_tier, 0, at, above)).collect();
    for nic in 0..leaves * nics {
        builder.cable(builder.nic(nic), low[nic / nics], class);
    }
    for &leaf in &low {
        for &spine in &high {
            builder.cable(leaf, spine, class);
        }
    }
    builder.build()
}

/// No latencies and no headers: times are bytes over rates.
pub(crate) fn plain() -> Settings {
    let wire = Wire {
        nic_latency: Span::ZERO,
        efficiency: 1.0,
        scale_up_efficiency: 1.0,
        packet: Bytes::ZERO,
        ..Wire::default()
    };
    Settings { wire, ..Settings::default() }
}

/// Opens a connection between two NICs.
pub(crate) fn connect(
    transfers: &mut Transfers,
    fabric: &Fabric,
    from: usize,
    to: usize,
) -> ConnectionId {
    let (from, to) = (fabric.nic(from), fabric.nic(to));
    transfers.connect(Connection { from, to, channel: 0, queue_pairs: 0 })
}

/// One message for each pair of NICs.
pub(crate) fn messages(fabric: &Fabric, pairs: &[(usize, usize)], bytes: u64) -> Transfers {
    let mut transfers = Transfers::new();
    let label = transfers.label("messages");
    for &(from, to) in pairs {
        let connection = connect(&mut transfers, fabric, from, to);
        transfers.send(connection, Bytes::new(bytes), label, &[]);
    }
    transfers
}

/// When each operation's last byte arrived, in seconds.
pub(crate) fn arrivals(outcome: &Outcome) -> Vec<f64> {
    let received = |op: &Option<traffic::OpTimes>| op.unwrap().received.as_secs_f64();
    outcome.ops.iter().map(received).collect()
}
