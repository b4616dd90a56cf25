//! Traces: what profilers recorded, and workloads for simulators.
//!
//! * `events`: trace-event JSON of PyTorch (Kineto) and of XLA, event by event.
//! * `spans`: kernels that compute and kernels that communicate, and what hides what.
//! * `rocprof`: tables of rocprofv3. `rocpd`: its database, with `sqlite`. `chakra`: execution traces. `workload`: texts of simulators.

mod chakra;
mod events;
mod execution;
mod rocpd;
mod rocprof;
mod spans;
mod sqlite;
mod workload;

pub use chakra::{FORMAT as CHAKRA, GROUPS};
pub use events::FORMAT as EVENTS;
pub use execution::FORMAT as EXECUTION;
pub use rocpd::FORMAT as ROCPD;
pub use rocprof::{CSV as ROCPROF_CSV, JSON as ROCPROF_JSON};
pub use workload::FORMAT as WORKLOAD;
