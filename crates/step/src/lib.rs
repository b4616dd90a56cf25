//! A training step on a fabric: how long it takes, what of it nothing hides, and what it costs.
//!
//! # Map of the modules, in reading order
//!
//! * [`overheads`]: the few global constants of the software, each with its source.
//! * [`jitter`]: ranks are not equally fast, and everybody waits for the slowest.
//! * [`network`]: what the step's communication costs on the fabric, on an engine.
//! * [`costs`]: from a job to what its passes cost: kernels on the GPU, exchanges on the fabric.
//! * [`timeline`]: the operations of one step on representative ranks, and when each happens.
//! * [`assemble`]: passes, messages, weights and gradients put together into one step.
//! * [`breakdown`]: where the time goes, as parts that add up exactly.
//! * [`attribution`]: the critical path, in words and numbers.
//! * [`causes`]: the same time once more, by cause.
//! * [`predict`]: one step of a job on a fabric, from all of these.
//! * [`rhythm`]: when within a pass which axis is on the fabric.
//! * [`whole`]: the same on one clock, every copy of every stage in one run.
//! * [`faults`]: failures, checkpoints, restarts; the share of the time that trains.
//! * [`campaign`]: the same by dice, over days: spares, floods, copies that go on alone.
//! * [`parts`]: how often each kind of part fails, and whose the lost time is.
//! * [`published`]: steps that somebody has measured, as jobs that can be predicted.
//! * [`validate`]: those predicted, and how far off that is.
//! * [`money`]: energy by phase, capital, and what a trained token costs.
//!
//! # Invariants
//!
//! * No constant belongs to one job, one cluster or one measurement.
//! * No clock and no dice but the seed's: the same input gives the same result.

pub mod assemble;
pub mod attribution;
pub mod breakdown;
pub mod campaign;
pub mod causes;
pub mod costs;
pub mod faults;
pub mod jitter;
pub mod money;
pub mod network;
pub mod overheads;
pub mod parts;
pub mod predict;
pub mod published;
pub mod rhythm;
pub mod timeline;
pub mod validate;
pub mod whole;
