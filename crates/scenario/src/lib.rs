//! Scenario files and presets: what was written, where it came from, and what it means.
//!
//! ```
//! use scenario::{Request, load};
//!
//! let set = ["seed=7", "cluster.gpus=16"].map(str::to_owned).to_vec();
//! let loaded = load(&Request { set, ..Request::default() }).unwrap();
//! assert_eq!(loaded.scenario.seed, 7);
//! assert_eq!(loaded.fabric().gpus(), 16);
//! assert_eq!(loaded.origin_of("seed"), "--set");
//! assert_eq!(loaded.origin_of("name"), "default");
//! ```
//!
//! # Map of the modules, in reading order
//!
//! * [`file`]: the root of the scenario file; its sections are other crates' structs.
//! * [`load`](mod@load): the way through: layers, checks, merge, meaning.
//! * [`source`]: texts, read with limits. [`tree`]: values with their places.
//! * [`assignment`]: `--set` and environment variables.
//! * [`schema`] and [`check`](mod@check): every mistake of a layer, found at once.
//! * [`merge`](mod@merge): one layer over another. [`meaning`]: whether the whole makes sense.
//! * [`purpose`]: what a scenario is loaded for, and what of it that does not obey.
//! * [`jobs`]: several jobs on one fabric. [`model`]: the model that a job names.
//! * [`flows`]: flow files.
//! * [`base`]: one scenario with many other values. [`fabrics`]: networks that such cases share.
//! * [`preset`]: what comes with the binary. [`hash`](mod@hash): a scenario's identity.
//! * [`import`] and [`export`]: topologies of other tools, one file for each format.
//! * [`problem`]: how it is said. [`nearest`](mod@nearest): what was probably meant.
//!
//! # Invariants
//!
//! * Nothing here asks the environment or the clock: a [`Request`] says it all.
//! * Whatever the bytes of a file, loading ends with a scenario or with problems, never a panic.
//! * A setting is one field of one struct; no other place lists its name.

pub mod assignment;
pub mod base;
pub mod check;
mod derive;
pub mod example;
pub mod export;
pub mod fabrics;
pub mod file;
pub mod flows;
pub mod hash;
pub mod identities;
pub mod import;
pub mod jobs;
pub mod load;
pub mod meaning;
pub mod merge;
pub mod model;
pub mod nearest;
pub mod preset;
mod prices;
pub mod problem;
pub mod purpose;
pub mod racks;
pub mod schema;
pub mod source;
mod surroundings;
pub mod targets;
pub mod tree;

pub use base::{Assigned, Base};
pub use fabrics::Fabrics;
pub use file::ScenarioFile;
pub use identities::Identities;
pub use jobs::Member;
pub use load::{Extent, Loaded, Request, Resolved, load, schema};
pub use problem::{Colour, Problem, Problems, Style};
pub use purpose::{Engine, Purpose};
pub use source::{confine, is_allowed, was_read};
pub use targets::Targets;
