//! A training job, from its configuration alone to the operations of one step.
//!
//! # Map of the modules, in reading order
//!
//! * [`model`]: a transformer's shape, its parameters and operations; presets, `config.json`.
//!
//! # Invariants
//!
//! * No network here: the job says who exchanges how many bytes with whom, after what.

pub mod model;

pub use model::Model;
