//! Who sends how many bytes to whom, on which queue pair, after what; and what an engine answers.
//!
//! [`Transfers`] is the narrow waist between collectives and engines: collectives write it and know
//! nothing of queues, engines run it and know nothing of models. [`Outcome`] is the waist behind
//! the engines: all three return it, so they check each other and every report works on all.
//!
//! # Map of the modules, in reading order
//!
//! * [`transfers`]: connections, operations and their dependencies.
//! * [`replay`]: the walk through them that all engines share.
//! * [`collective`]: the communicator, and one file for each algorithm.
//! * [`nccl`]: what NCCL and RCCL choose, and how long that takes without other traffic.
//! * [`pattern`]: traffic without a job: permutation, incast, all-to-all, ring, flow files.
//! * [`serving`]: what a served model sends: keys and values, decoding, new weights.
//! * [`storage`]: checkpoints and data, to and from storage servers.
//! * [`dcqcn`]: what DCQCN makes of the rate of a queue pair.
//! * [`window`]: what a sender may have under way before it hears from its receiver.
//! * [`outcome`]: when each operation started and ended, and what the links did.
//!
//! # Invariants
//!
//! * A connection's queue pairs are opened once and never change: nothing is re-rolled per message.
//! * Operations depend only on earlier ones, so there are no cycles.

pub mod collective;
pub mod dcqcn;
pub mod nccl;
pub mod outcome;
pub mod pattern;
pub mod queue_pairs;
pub mod replay;
pub mod serving;
pub mod storage;
pub mod transfers;
pub mod window;

pub use collective::{Collective, Communicator};
pub use outcome::{Counters, Finding, LinkUse, NotRun, OpTimes, Outcome};
pub use replay::Replay;
pub use transfers::{
    Appended, Connection, ConnectionId, LabelId, Op, OpId, OpKind, Pace, Transfers,
};
pub use window::Window;
