//! How long small messages take while everything else goes on.
//!
//! A collective's completion says how fast bytes move; what a barrier, a clear-to-send or a small
//! all-reduce feels is the time of a small message in the queues that the bytes leave behind. All
//! messages between NICs of at most [`MOST`] bytes are counted, from the moment they may start
//! until the receiver's software sees them.

use fabric::NodeKind;
use serde::Serialize;
use traffic::{OpKind, Outcome, Transfers};

/// A message of at most so many bytes is small: two packets.
const MOST: u64 = 8192;

/// Latencies of small messages, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SmallMessages {
    /// How many arrived.
    pub count: u64,
    /// Half were faster.
    pub p50: f64,
    /// Ninety-nine of a hundred were faster.
    pub p99: f64,
    /// 999 of a thousand were faster.
    pub p999: f64,
}

impl SmallMessages {
    /// Those of a run; `None` if there were none.
    pub fn of(fabric: &fabric::Fabric, transfers: &Transfers, outcome: &Outcome) -> Option<Self> {
        let mut times: Vec<f64> = Vec::new();
        for (op, what) in transfers.ops().enumerate() {
            let OpKind::Send { connection, bytes } = what.kind else { continue };
            let to = transfers.connections()[connection].to;
            let is_nic = fabric.nodes()[to].kind == NodeKind::Nic;
            if let Some(ran) = outcome.ops[op].filter(|_| is_nic && bytes.get() <= MOST) {
                times.push(ran.received.since(ran.start).as_secs_f64());
            }
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.max(1) - 1).copied().unwrap_or(0.0)
        };
        let count = times.len() as u64;
        (0 < count).then(|| Self { count, p50: at(0.5), p99: at(0.99), p999: at(0.999) })
    }
}
