//! Every command: a scenario in, a result out that can be serialised and shown.
//!
//! The terminal, the server and the Python package call the same functions, so they cannot give
//! different answers. Nothing here prints, reads arguments or ends the process.
//!
//! The whole way, from what somebody writes to what somebody reads:
//!
//! ```
//! use commands::{Engine, engine, packets::Patience, run_traffic, work::work};
//! use report::Answer;
//! let set = ["cluster.gpus=16", "traffic.pattern=permutation", "traffic.bytes=1MiB"];
//! let set = set.map(str::to_owned).to_vec();
//! let loaded = scenario::load(&scenario::Request { set, ..Default::default() })?; // the fabric
//! let work = work(&loaded, Engine::Flow, Patience::Usual)?; // who sends what to whom, after what
//! let mut watch = packetsim::Watch::default(); // progress, and whether to stop
//! let outcome = engine::run(&loaded, Engine::Flow, &work.transfers, &mut watch)?; // when it ends
//! let options = run_traffic::Options::default(); // the same with its analysis:
//! let (report, ..) = run_traffic::run(&loaded, &options, &mut watch)?;
//! assert_eq!(report.makespan_s, Some(outcome.makespan().as_secs_f64()));
//! let sheet = report.sheet(); // for people; `report` is what JSON has
//! assert!(sheet.render(100).contains("Busiest links"));
//! # Ok::<(), commands::Failure>(())
//! ```
//!
//! # Map of the modules
//!
//! One file for each command, with its options, its result and `run`; [`engine`] is the door to
//! the engines, [`work`] writes synthetic traffic out for them, [`packets`] is what packet runs
//! need before and beside, [`series`] what they measured, [`cross_check`] the engines side by side,
//! [`campaign`] days of a job by dice, [`seeds`] the same under several seeds, [`meter`] what runs
//! cost the machine, [`bounds`] what they may cost, [`failure`] how a command can fail, [`files`]
//! what results become for other tools.
//! [`about`] says what an answer is about, [`answer`] is what all of them become, [`clock`] what
//! becomes of a run that simulated time cannot hold.
//! [`change`] is something that could be done otherwise, [`levers`] names what a run makes look
//! worthwhile, [`trial`] runs a scenario with other settings.
//! `links` draws what links did, `occupancy` tells when in a step they did it.

pub mod about;
pub mod advise;
pub mod answer;
pub mod bounds;
pub mod campaign;
pub mod change;
pub mod check;
pub mod claims;
pub mod clock;
pub mod collective;
pub mod compare;
pub mod cross_check;
pub mod distance;
pub mod engine;
pub mod explain;
pub mod failure;
pub mod files;
pub mod history;
pub mod init;
pub mod interval;
pub mod levers;
mod links;
pub mod meter;
pub mod observe;
mod occupancy;
pub mod operations;
pub mod packets;
pub mod parallel;
pub mod place;
pub mod presets;
pub mod run_job;
pub mod run_traffic;
pub mod seeds;
pub mod series;
pub mod targets;
pub mod told;
pub mod topo;
pub mod traffic;
pub mod trial;
pub mod validate;
pub mod work;
pub mod world;

pub use engine::Engine;
pub use failure::Failure;

/// The version that every answer carries.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What pictures are drawn: on a large fabric they take longer than a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Drawing {
    /// All of them.
    #[default]
    OnPage,
    /// Those that a terminal can show.
    OnTerminal,
    /// None: only figures are wanted.
    Omitted,
}
