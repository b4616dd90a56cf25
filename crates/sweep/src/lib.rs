//! Many scenarios: a grid of cases, executed in shards, kept durably, merged and shown.
//!
//! ```
//! use std::path::Path;
//! use std::sync::atomic::AtomicBool;
//! use sweep::{Grid, Options, Selection, exec, merge, show};
//!
//! let text = r#"
//!     from = "small-16"
//!     engine = "analytic"
//!     [axes]
//!     "network.routing.qps" = [1, 4]
//!     seed = { from = 0, to = 2 }
//!     [keep]
//!     measures = ["step_s", "breakdown_s.dp"]
//! "#;
//! let request = scenario::Request::default(); // flags and environment: none
//! let grid = Grid::parse(text, Path::new("."), &request)?;
//! let plan = grid.plan(1)?;
//! assert_eq!(plan.cases.len(), 6);
//!
//! let out = tempfile::tempdir().unwrap();
//! plan.write(out.path())?;
//! let (progress, interrupt) = (|_| {}, AtomicBool::new(false));
//! let options = Options { threads: 1, progress: &progress, interrupt: &interrupt };
//! for index in 0..2 {
//!     let shard = Selection::Shard { index, count: 2 };
//!     exec(&grid, &plan, &shard, out.path(), options)?; // here, or on any machine that sees `out`
//! }
//! assert_eq!(merge(out.path())?.status.done, 6); // results.parquet, machine.parquet
//! assert_eq!(show(out.path(), &Default::default())?.status.duplicates, 0);
//! # Ok::<(), commands::Failure>(())
//! ```
//!
//! # Map of the modules, in reading order
//!
//! * [`grid`]: the file; [`axis`]: what varies; [`expression`]: conditions; [`sample`]: draws.
//! * [`plan`]: every case with its hash; [`outlook`](mod@outlook): what it will take.
//! * [`exec`](mod@exec): cases on threads. [`store`]: how results are kept.
//! * [`merge`](mod@merge): one table of everything. [`show`](mod@show): what it says.
//! * [`share`]: what one of many machines gets; [`slurm`] and [`kubernetes`]: how it gets that.
//!
//! # Invariants
//!
//! * A case is its hash. Whoever executes it, wherever, however often: the merged table is the
//!   same.
//! * Killing any process at any time loses at most the cases that were not kept yet, and doubles
//!   none.

pub mod axis;
pub mod exec;
pub mod expression;
pub mod grid;
pub mod kubernetes;
pub mod merge;
pub mod outlook;
pub mod plan;
pub mod sample;
pub mod share;
pub mod show;
pub mod slurm;
pub mod store;

pub use exec::{Numbers, Options, Progress, Selection, Summary, exec};
pub use grid::Grid;
pub use merge::{Merged, Status, merge, missing, status};
pub use outlook::{Outlook, outlook};
pub use plan::{Case, Head, Plan};
pub use show::{Show, ShowOptions, show};
