//! The packet engine: every packet through NIC, switch buffer and link.
//!
//! [`run`] takes a fabric, the transfers on it and [`Settings`], and returns an
//! [`Outcome`](traffic::Outcome), or a [`Refusal`]; nothing else is needed to use it.
//!
//! # How a packet travels
//!
//! ```text
//! sending::try_transmit ──► put_on_wire ──► Kind::PacketArrived ──► switching::forward ──► …
//!   a queue pair's turn,      wire delay       at the far end           buffer, pause,      │
//!   its rate                                                            queue, marks        ▼
//!        ▲                                                          receiving::data_received
//!        └── sending::ack_received ◄── the same way back ◄── an acknowledgement ──┘
//! ```
//!
//! # Map of the modules, in reading order
//!
//! * [`settings`]: all that a scenario can choose; each part stands next to the code that obeys it.
//! * [`limits`]: every packed number and its largest value; what is refused.
//! * [`simulation`]: the state of a run, and the loop with one arm for each kind of event.
//! * [`calendar`]: what is going to happen, in order.
//! * [`packet`], [`ring`], [`port`], [`buffer`], [`pair`]: the kinds of state.
//! * [`transmit`], [`switching`], [`sending`], [`receiving`]: what happens to them.
//! * [`batch`], [`forward`], [`stations`]: how switches and NICs run ahead of the clock;
//!   [`clocks`]: how far; [`reading`]: how their memory is in the cache in time.
//! * [`threads`], [`parts`], [`exchange`]: one run on several threads, each with a part of the
//!   network.
//! * [`repetition`]: what repeats itself is not simulated again; [`light_acks`]: acknowledgements
//!   that take no links; [`steady`]: time in which rates stay as they are.
//! * [`measure`], [`tap`], [`estimate`]: what happened over time; the packets themselves; what a
//!   run will cost.
//! * [`faults`]: what goes wrong at given times; [`deadlock`]: why a pause does not end.
//! * [`paths`], [`entropy`], [`planes`], [`build`]: the way to the first instant.
//! * [`credits`], [`trimming`], [`scheduled`]: what else switches do with what has no room.
//! * [`aggregation`]: switches that end queue pairs and begin them.
//! * [`transports`]: which settings make RoCE, InfiniBand, Ultra Ethernet and the others.
//! * [`cc`]: congestion control, one file for each algorithm.
//! * [`nic`], [`lanes`], [`admission`], [`stamps`]: settings of NICs, clear-to-send, hop stamps.
//!
//! # Invariants
//!
//! * No clocks, files or global state: the same input gives the same outcome and digest, on any
//!   number of threads, which one file uses.
//! * A wire has at most one event, and the wires into a calm switch have one together.
//! * Due departures are applied before what they change is read.
//! * Events of one instant run in the order in which what caused them began.

pub mod admission;
mod aggregation;
mod batch;
pub mod buffer;
mod build;
mod calendar;
pub mod cc;
mod clocks;
pub mod credits;
mod datagrams;
mod deadlock;
mod entropy;
pub mod estimate;
mod exchange;
mod faults;
mod forward;
mod ids;
mod lanes;
mod light_acks;
pub mod limits;
pub mod measure;
pub mod nic;
mod ns3;
pub mod packet;
mod pair;
mod parts;
mod paths;
mod planes;
mod port;
mod reading;
mod receiving;
mod repetition;
mod ring;
pub mod scheduled;
mod sending;
pub mod settings;
mod simulation;
mod stamps;
mod stations;
mod steady;
mod switching;
pub mod tap;
mod threads;
mod transmit;
pub mod transports;
mod trimming;
mod unused;

use fabric::Fabric;
use fabric::fault::Faults;
use measure::Recorder;
use tap::Tap;
use traffic::{Outcome, Transfers};
use units::Bytes;

pub use estimate::{Estimate, estimate};
pub use limits::Refusal;
pub use measure::{MeasureConfig, Recording};
pub use paths::queue_pairs;
pub use settings::Settings;
pub use simulation::{Progress, Watch};

/// Runs transfers over a fabric, packet by packet, or says why it will not.
pub fn run(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
) -> Result<Outcome, Refusal> {
    run_watched(fabric, transfers, settings, &mut Watch::default())
}

/// The same, with somebody watching.
pub fn run_watched(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    watch: &mut Watch<'_>,
) -> Result<Outcome, Refusal> {
    run_with_faults(fabric, transfers, settings, &Faults::default(), watch)
}

/// The same, while things fail at given times.
pub fn run_with_faults(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    faults: &Faults,
    watch: &mut Watch<'_>,
) -> Result<Outcome, Refusal> {
    threads::run(fabric, transfers, settings, faults, watch)
}

/// The same, with what happened over time.
pub fn run_measured(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    faults: &Faults,
    measure: &MeasureConfig,
    watch: &mut Watch<'_>,
) -> Result<(Outcome, Recording), Refusal> {
    run_recorded(fabric, transfers, settings, faults, (measure, None), watch)
}

/// The same, with what happened over time, and with the first packets themselves if somebody wants
/// so many bytes of them.
pub fn run_recorded(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    faults: &Faults,
    (measure, capture): (&MeasureConfig, Option<Bytes>),
    watch: &mut Watch<'_>,
) -> Result<(Outcome, Recording), Refusal> {
    let mut simulation = build::build(fabric, transfers, settings, faults)?;
    let lanes = simulation.input.rules.lanes;
    let mut recorder = Recorder::new(measure, fabric, &simulation.net.network, lanes);
    recorder.tap = capture.map(|bytes| Tap::new(bytes.get()));
    simulation.accounts.recorder = Some(recorder);
    threads::stay_on_one(&simulation, watch);
    let outcome = simulation.run(watch);
    let capture = simulation.finish_capture();
    let recorder = simulation.accounts.recorder.expect("it was put there above");
    Ok((outcome, Recording { capture, ..recorder.finish() }))
}
