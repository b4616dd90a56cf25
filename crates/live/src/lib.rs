//! The job's traffic as real RoCEv2 packets, between processes, measured beside predicted.
//!
//! # Map of the modules, in reading order
//!
//! * [`plan`]: what a rank is told: its queue pairs, messages, and what must come out.
//! * [`lower`]: from the transfers of a collective, which know only sizes, to plans with data.
//! * [`memory`]: the bytes of a rank, and their sums.
//! * [`wire`]: UDP sockets, and datagrams of a local switch.
//! * [`rank`]: the process of a rank.
//! * [`record`]: what congestion controls were told and said.
//! * [`frame`]: what switches do to packets, answers and pauses.
//! * [`switch`]: switches and links in user space, as the scenario's fabric has them.
//! * [`multipath`]: namespaces and Linux's own multipath routing.
//! * [`capture`]: what a rank sent and received, as a file that other tools read.
//! * [`phase`]: the transfers of one phase of a job.
//! * [`run`]: starts the processes, waits, predicts.
//! * [`trace`], [`probe`]: the process that probes, and what follows from the answers.
//! * [`agent`]: processes on other hosts.
//! * `beside`: what is put beside the prediction.
//! * [`answer`]: how it is shown.
//!
//! # Invariants
//!
//! * Processes end with the controller: the end of their standard input is their end.
//! * Nothing is sent to an address that is not in the plan.
//! * The queue pairs are [`roce`]'s, the congestion controls and the dealing over queue pairs the
//!   packet engine's, the routing policies and hashes the fabric's.
//!
//! Real verbs would take the place of [`wire`] and [`roce::QueuePair`] in [`rank`]; without such
//! NICs nobody could test them, so they are not here.

#![expect(clippy::disallowed_methods, reason = "what happens here happens in real time")]

pub mod agent;
pub mod answer;
pub(crate) mod beside;
pub mod capture;
pub mod frame;
pub mod lower;
pub mod memory;
pub mod multipath;
pub mod phase;
pub mod plan;
pub mod probe;
pub mod rank;
pub mod record;
pub mod run;
pub mod switch;
pub mod trace;
pub mod wire;

pub use run::{Injected, Options, Places, What, run};
