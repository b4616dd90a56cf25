//! Files that other tools read: one format a file, each from plain data.
//!
//! Nothing here knows a job, a fabric or an engine: callers say what a row, a node, a slice or a
//! sample is, and this crate knows how the format writes it down. So the formats' libraries are
//! compiled once, below everything that changes often.
//!
//! # Map of the modules
//!
//! * [`table`]: columns with names, as CSV.
//! * [`mod@parquet`]: the same columns as Parquet.
//! * [`chakra`]: execution traces, one file for each rank, that other simulators replay.
//! * [`perfetto`]: tracks, slices, flow arrows and counters for Perfetto's trace viewer.
//! * [`openmetrics`]: samples that Prometheus ingests.
//! * [`pcapng`]: packets that Wireshark reads.
//!
//! # Invariants
//!
//! * Equal data gives equal bytes: nothing here looks at a clock.

pub mod chakra;
pub mod openmetrics;
pub mod parquet;
pub mod pcapng;
pub mod perfetto;
pub mod table;

pub use table::{Column, Table};
