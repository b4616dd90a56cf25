//! A training job, from its configuration alone to the operations of one step.
//!
//! # Map of the modules, in reading order
//!
//! # Invariants
//!
//! * No network here: the job says who exchanges how many bytes with whom, after what.
