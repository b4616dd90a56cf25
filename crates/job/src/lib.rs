//! A training job, from its configuration alone to the operations of one step.
//!
//! # Map of the modules, in reading order
//!
//! * [`model`]: a transformer's shape, its parameters and operations; presets, `config.json`.
//! * [`parallel`]: degrees of parallelism, the numbering of ranks, groups as arithmetic.
//! * [`config`]: the `[job]` table as written; [`resolve`] checks it and says what it means;
//!   [`stages`] gives every stage its layers.
//! * [`placement`]: which rank runs on which GPU; [`mapping`]: the search behind `min-cut`.
//! * [`compute`]: how long kernels and layers take on a GPU, from measured kernels.
//! * [`schedule`]: the order of forward and backward passes in a pipeline.
//! * [`partition`]: which parameters one rank holds; [`memory`]: what that and activations take.
//! * [`dispatch`]: where tokens go under expert parallelism.
//! * [`program`]: the step program: what one iteration computes and exchanges.
//!
//! # Invariants
//!
//! * No network here: the job says who exchanges how many bytes with whom, after what.

pub mod compute;
pub mod config;
pub mod dispatch;
pub mod mapping;
pub mod memory;
pub mod model;
pub mod parallel;
pub mod partition;
pub mod placement;
pub mod program;
pub mod resolve;
pub mod schedule;
pub mod stages;

pub use config::JobConfig;
pub use model::Model;
pub use parallel::{Axis, Coordinates, Group, GroupKind, Layout};
pub use program::{During, Program};
pub use resolve::{Job, Problem, Site, resolve};
pub use schedule::Schedule;
