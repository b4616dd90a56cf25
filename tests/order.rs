//! One meaning of time and order: all engines start and end operations by the rule of
//! `traffic::replay`, on chains, trees and diamonds of small messages.

#[path = "../crates/traffic/tests/common/mod.rs"]
mod common;

use common::Cluster;
use fabric::Fabric;
use packetsim::cc::{CcConfig, none};
use traffic::{Connection, OpId, OpKind, Outcome, Transfers};
use units::{Bytes, Span, Time};

/// Every cable, long enough that an acknowledgement is felt.
const CABLE: Span = Span::from_us(10);
/// Either NIC.
const NIC: Span = Span::from_us(1);
const BYTES: Bytes = Bytes::new(1024);

/// From one NIC to another under the same leaf: two NICs, two cables, a switch of 300 ns; and the
/// headers and bytes twice, at 50 bytes a nanosecond.
const WAY_NS: u64 = 2 * 1_000 + 2 * 10_000 + 300 + 2 * (1024 + 82) / 50;
/// From the arrival until the sender's NIC has the acknowledgement, which the receiving one sent
/// before its software knew.
const BACK_NS: u64 = 2 * 10_000 + 300 - 1_000;

fn fabric() -> Fabric {
    Cluster { link_delay: CABLE, ..Cluster::hopper(4) }.build()
}

/// Messages between the first NICs of servers, and waits.
struct Graph<'a> {
    fabric: &'a Fabric,
    transfers: Transfers,
    /// When each should start, in nanoseconds.
    starts: Vec<u64>,
}

impl<'a> Graph<'a> {
    fn new(fabric: &'a Fabric) -> Self {
        Self { fabric, transfers: Transfers::new(), starts: Vec::new() }
    }

    fn send(&mut self, from: usize, to: usize, after: &[OpId], start_ns: u64) -> OpId {
        let [from, to] = [from, to].map(|server| self.fabric.nic(8 * server));
        let label = self.transfers.label("message");
        let connection = Connection { from, to, channel: self.starts.len() as u32, queue_pairs: 1 };
        let connection = self.transfers.connect(connection);
        self.starts.push(start_ns);
        self.transfers.send(connection, BYTES, label, after)
    }

    fn wait(&mut self, span: Span, after: &[OpId], start_ns: u64) -> OpId {
        let label = self.transfers.label("wait");
        self.starts.push(start_ns);
        self.transfers.add(OpKind::Wait { span }, label, after)
    }

    /// Holds every engine to the starts, and to a message's way and the way back.
    fn check(&self, name: &str) {
        for (engine, outcome) in outcomes(self.fabric, &self.transfers) {
            for (op, &start_ns) in self.transfers.ops().ids().zip(&self.starts) {
                let times = outcome.ops[op].expect("it finished");
                let near = |got: Time, want_ns: u64, what: &str| {
                    let off = got.as_secs_f64() * 1e9 - want_ns as f64;
                    let most = 5.0 + 0.005 * want_ns as f64;
                    assert!(off.abs() < most, "{name}, {engine}: {op:?} {what} at {got}");
                };
                near(times.start, start_ns, "started");
                if let OpKind::Send { .. } = self.transfers.ops()[op].kind {
                    near(times.received, start_ns + WAY_NS, "arrived");
                    near(times.finish, start_ns + WAY_NS + BACK_NS, "was known");
                }
            }
        }
    }
}

fn outcomes(fabric: &Fabric, transfers: &Transfers) -> [(&'static str, Outcome); 3] {
    let mut flow = flowsim::Settings::default();
    flow.wire.nic_latency = NIC;
    let congestion = CcConfig::None(none::Config {});
    let mut packet = packetsim::Settings { congestion, ..packetsim::Settings::default() };
    (packet.nic.send_latency, packet.nic.receive_latency) = (NIC, NIC);
    [
        ("analytic", flowsim::analytic::run(fabric, transfers, &flow)),
        ("flow", flowsim::run(fabric, transfers, &flow)),
        ("packet", packetsim::run(fabric, transfers, &packet).unwrap()),
    ]
}

/// Oracle: by hand. Who passes on starts at the arrival; who sends again waits until it knows.
#[test]
fn a_chain_passes_on_at_arrival_and_a_sender_goes_on_when_it_knows() {
    let fabric = fabric();
    let mut graph = Graph::new(&fabric);
    let first = graph.send(0, 1, &[], 0);
    let second = graph.send(1, 2, &[first], WAY_NS);
    let third = graph.send(2, 3, &[second], 2 * WAY_NS);
    graph.wait(Span::from_us(3), &[third], 3 * WAY_NS);
    let again = graph.send(0, 1, &[first], WAY_NS + BACK_NS);
    graph.send(1, 0, &[again], 2 * WAY_NS + BACK_NS);
    graph.check("chain");
}

/// Oracle: by hand. Down a tree, up again, and a pause on the way.
#[test]
fn a_tree_goes_down_and_up() {
    let fabric = fabric();
    let mut graph = Graph::new(&fabric);
    let down = graph.send(0, 1, &[], 0);
    let pause = graph.wait(Span::from_us(5), &[down], WAY_NS);
    let left = graph.send(1, 2, &[down], WAY_NS);
    let right = graph.send(1, 3, &[pause], WAY_NS + 5_000);
    let up_left = graph.send(2, 1, &[left], 2 * WAY_NS);
    let up_right = graph.send(3, 1, &[right], 2 * WAY_NS + 5_000);
    let sum = graph.wait(Span::ZERO, &[up_left, up_right], 3 * WAY_NS + 5_000);
    graph.send(1, 0, &[sum], 3 * WAY_NS + 5_000);
    graph.check("tree");
}

/// Oracle: by hand. Two ways of different length meet, and the last decides; of two that a message
/// waits for, one arrived there and one went out from there.
#[test]
fn a_diamond_waits_for_its_longer_side() {
    let fabric = fabric();
    let mut graph = Graph::new(&fabric);
    let first = graph.send(0, 1, &[], 0);
    let short = graph.send(1, 3, &[first], WAY_NS);
    let long = graph.send(1, 2, &[first], WAY_NS);
    let detour = graph.send(2, 3, &[long], 2 * WAY_NS);
    let both = graph.wait(Span::from_us(2), &[short, detour], 3 * WAY_NS);
    graph.send(3, 0, &[both], 3 * WAY_NS + 2_000);
    // What came from 2 is there sooner than the word that it is back at 1.
    let back = graph.send(2, 1, &[long], 2 * WAY_NS);
    graph.send(1, 0, &[back, short], 3 * WAY_NS);
    graph.send(1, 3, &[short], 2 * WAY_NS + BACK_NS);
    graph.check("diamond");
}
