//! How much of a phase is latency: what cannot be scaled up with its bytes.

use fabric::{Fabric, NodeId, Routes};
use traffic::nccl::route::path_latency_on;
use traffic::{OpId, OpKind, Replay, Transfers};
use units::{Bytes, Id, Span};

/// The share of a phase in which bytes are not sent but under way: the latencies of cables and
/// switches on its longest chain of messages, beside the time that its busiest NIC sends for.
pub(super) fn latency_share(fabric: &Fabric, transfers: &Transfers) -> f64 {
    let latency = longest_chain(fabric, transfers).as_secs_f64();
    let whole = latency + longest_sending_s(fabric, transfers);
    if 0.0 < whole { latency / whole } else { 0.0 }
}

/// The latencies on the longest chain of messages that are passed on.
fn longest_chain(fabric: &Fabric, transfers: &Transfers) -> Span {
    let mut routes = Routes::default();
    let mut known: Vec<Option<Span>> = vec![None; transfers.connections().len()];
    let mut latest: Vec<Span> = Vec::with_capacity(transfers.ops().len());
    for (op, what) in transfers.ops().enumerate() {
        // What a sender waits for before it sends again is hidden behind what is under way.
        let passed_on = |earlier: &&OpId| !Replay::is_patient(transfers, **earlier, op);
        let before = transfers.after(op).iter().filter(passed_on);
        let before = before.map(|earlier| latest[earlier.index()]).max();
        let own = match what.kind {
            OpKind::Send { connection, .. } => {
                let ends = transfers.connections()[connection];
                *known[connection.index()].get_or_insert_with(|| {
                    let way = path_latency_on(fabric, &mut routes, ends.from, ends.to, Bytes::ZERO);
                    way.unwrap_or(Span::ZERO)
                })
            }
            _ => Span::ZERO,
        };
        latest.push(before.unwrap_or(Span::ZERO) + own);
    }
    latest.into_iter().max().unwrap_or(Span::ZERO)
}

/// How long the busiest NIC sends for at its full rate.
fn longest_sending_s(fabric: &Fabric, transfers: &Transfers) -> f64 {
    let mut sent = vec![0_u64; fabric.nodes().len()];
    for op in transfers.ops().iter() {
        if let OpKind::Send { connection, bytes } = op.kind {
            let from = transfers.connections()[connection].from;
            sent[from.index()] += bytes.get();
        }
    }
    let seconds = |nic: NodeId| {
        let rates = fabric.ports(nic).iter().map(|link| fabric.class(*link).rate.bytes_per_s());
        sent[nic.index()] as f64 / rates.sum::<f64>().max(1.0)
    };
    let nics = fabric.nodes().ids().filter(|node| fabric.nic_number(*node).is_some());
    nics.map(seconds).fold(0.0, f64::max)
}
