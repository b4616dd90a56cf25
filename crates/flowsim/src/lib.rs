//! The fluid engine: every queue pair on its hashed path, max-min fair rates, event by event.
//!
//! [`run`] takes a fabric, transfers and settings and returns an outcome; nothing else is needed
//! to use it. [`simulate`] returns more of what happened, for an analysis.
//!
//! ```
//! use fabric::graph::{Cover, LinkClass, LinkKind, Tier};
//! use fabric::FabricBuilder;
//! use flowsim::{Settings, run};
//! use traffic::{Connection, Transfers};
//! use units::{Bytes, Length, Rate, Span};
//!
//! // Two servers on one switch.
//! let mut builder = FabricBuilder::new(2, 1, 1);
//! let latency = Span::from_ns(500);
//! let tier = builder.tier(Tier { name: "leaf".into(), model: "any".into(), latency });
//! let (delay, length) = (Span::from_ns(10), Length::from_metres(2));
//! let (kind, rate) = (LinkKind::ScaleOut, Rate::from_gbps(400));
//! let class = builder.class(LinkClass { name: "cable".into(), kind, rate, delay, length });
//! let leaf = builder.switch(tier, 0, 0, Cover { level: 0, first: 0, end: 1 });
//! for nic in 0..2 {
//!     builder.cable(builder.nic(nic), leaf, class);
//! }
//! let fabric = builder.build();
//!
//! // One sends a megabyte to the other.
//! let mut transfers = Transfers::new();
//! let label = transfers.label("a message");
//! let (from, to) = (fabric.nic(0), fabric.nic(1));
//! let connection = transfers.connect(Connection { from, to, channel: 0, queue_pairs: 0 });
//! let message = transfers.send(connection, Bytes::new(1_000_000), label, &[]);
//!
//! let outcome = run(&fabric, &transfers, &Settings::default());
//! let taken = outcome.ops[message].unwrap().received;
//! assert!((23.0..25.0).contains(&(taken.as_secs_f64() * 1e6))); // 20 us of bytes, and latency
//! ```
//!
//! # Map of the modules, in reading order
//!
//! * [`settings`]: what a run can be told.
//! * [`simulation`]: the run: operations start, flows share the links, links fail, what they lose
//!   is sent again.
//! * [`paths`]: which links each connection takes.
//! * [`max_min`]: fair rates, kept up to date; stands alone.
//! * [`progress`]: who finishes next; one clock for each link.
//! * [`series`]: what links carried over time.
//! * [`estimate`]: what a run will cost, before it is begun.
//! * [`analysis`]: imbalance, collisions, the worst links and why, in words.
//! * [`analytic`]: the other engine: latency and bandwidth terms, without contention.
//!
//! # Invariants
//!
//! * The same input gives the same outcome, bit for bit.
//! * Rates are the max-min allocation after every event: to 1e-9 as long as that takes about a
//!   minute, beyond that to about a hundred times the precision that is chosen then (1e-4 or
//!   1e-3) or set; [`Accuracy`] says which, and what was found by looking.
//! * Time is seconds in a double inside a run, and integer picoseconds in what comes out of it
//!   (docs/decisions/0014).
//! * A run ends: what cannot finish is reported.

pub mod analysis;
pub mod analytic;
mod bundles;
mod capacity;
pub mod estimate;
pub mod max_min;
pub mod paths;
pub mod progress;
pub mod series;
pub mod settings;
pub mod simulation;

pub use settings::{
    Background, CongestionRates, Control, FlowConfig, Marks, QueuePairRates, Receiver, Resend,
    Settings, Wire,
};
pub use simulation::{Accuracy, Run, simulate, simulate_until};

use fabric::Fabric;
use traffic::{Outcome, Transfers};

/// Runs transfers over a fabric.
pub fn run(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> Outcome {
    simulate(fabric, transfers, settings).outcome
}
