//! The packet engine: every packet through NIC, switch buffer and link.
//!
//! [`run`] takes a fabric, the transfers on it and [`Settings`], and returns an
//! [`Outcome`](traffic::Outcome), or a [`Refusal`]; nothing else is needed to use it.
//!
//! # Who owns what
//!
//! [`simulation`] has the state of a run, one struct for each owner:
//!
//! * `Input`: the fabric, the transfers and the settings. It never changes.
//! * `Net`: a `Port` for each directed link (queues, transmitter, wire), a `Switch` for each switch
//!   (shared buffer), the packets themselves (`wires` and `queued`, rings in two slabs), the paths.
//! * `Ends`: NIC ports (`Sender`), queue pairs (`Pair` at the sender, `Inbox` at the receiver),
//!   messages, operations.
//! * `Timeline`: the clock, the event queue (`Calendar`), the stations with theirs, the lookahead
//!   between neighbours (`Clocks`).
//! * `Accounts`: counters and findings.
//!
//! A packet is 20 bytes and owns nothing. Its `route` is a place in the list of paths: the links
//! that it still has to cross, and at their end the number of its queue pair.
//!
//! # The way of a data packet and of its acknowledgement
//!
//! 1. `simulation.rs`: `start_operation` → `post_parts` → `sending.rs`: `post_message` gives the
//!    message to a queue pair.
//! 2. `sending.rs`: `try_transmit` chooses the next queue pair of a NIC port, by pacing and window;
//!    `send_packet` makes the packet.
//! 3. `transmit.rs`: `put_on_wire` occupies the transmitter, appends the packet to the wire of the
//!    port, and schedules its arrival if the wire was empty. A wire has one event, for its oldest
//!    packet.
//! 4. At a switch that runs ahead, `batch.rs`: `run_switch_batch` computes the horizon, and
//!    `by_output.rs` or `forward.rs` forwards all packets that arrive before it. At any other,
//!    `switching.rs`: `packet_arrived` → `forward`: route lookup, admission to the buffer, pause of
//!    the sender, `enqueue`. All three do the same.
//! 5. `transmit.rs`: `apply_departures` dequeues what was due (`transmit_class`: marks, credits,
//!    release of the buffer), at the latest when the port is read next.
//! 6. `receiving.rs`: `packet_delivered` → `data_received`: order, duplicates, the end of the
//!    message; then `send_ack`. The acknowledgement goes back the same way, from 3 on.
//! 7. `sending.rs`: `ack_received` moves the window, asks the congestion control ([`cc`]) for new
//!    limits, and finishes the operation with the last packet. What waits for it starts, at 1.
//!
//! # Running ahead of the clock
//!
//! A link of 1 µs is 1 µs of warning: all packets that arrive within its delay are already on the
//! wire. So a switch or a server need not go event by event. It handles everything before its
//! *horizon* at once: the earliest time at which an event anywhere else could act on it, the next
//! event of each neighbour plus the cable from there. This is conservative lookahead (Chandy, Misra
//! and Bryant): no event is ever undone, and the result is that of single events, to the
//! picosecond. [`batch`] does it for switches, [`stations`] for servers with their NICs, [`clocks`]
//! has the clocks of neighbours, and [`threads`] does it once more with parts of the network.
//!
//! # Why runs are deterministic
//!
//! * Time is whole picoseconds. Events of one instant have an order of their own: departures before
//!   arrivals, arrivals by number of the link, others by a ticket drawn when they are scheduled.
//! * Randomness comes from streams by seed, purpose and link or queue pair (`units::Random`).
//! * Departures are applied late, but each at its own time, and always before what they change is
//!   read. So it does not matter when a port is read, nor which thread does it.
//! * No wall clock, file, environment or global state; iteration never follows a hash.
//!
//! # Where to add
//!
//! * A congestion control: a file in [`cc`], a line in `cc/mod.rs`.
//! * A transport: a function of [`transports`], if its mechanisms exist. A mechanism is a setting
//!   next to the code that obeys it ([`nic`], [`settings`]), a field of `Rules` in [`simulation`]
//!   filled by `rules` in [`build`], a branch in [`sending`] or [`receiving`].
//! * A counter: a field of `traffic::Counters` (in the result) or of `Tally` in [`simulation`]
//!   (internal); `add` in [`threads`] sums it, `extrapolate_counters` in [`repetition`]
//!   extrapolates it or `is_uneventful` there asks that it stays.
//! * A setting that lets a node act on another sooner than over a cable: `Stations::new` in
//!   [`stations`] must know it, and `obstacle` in [`threads`]. `tests/anything.rs` finds what was
//!   forgotten.
//!
//! # Map of the modules, in reading order
//!
//! * [`settings`]: all that a scenario can choose; each part stands next to the code that obeys it.
//! * [`limits`]: every packed number and its largest value; what is refused.
//! * [`simulation`]: the state of a run, and the event loop.
//! * [`calendar`]: the event queue.
//! * [`packet`], [`ring`], [`port`], [`buffer`], [`pair`]: the kinds of state.
//! * [`transmit`], [`switching`], [`sending`], [`receiving`]: the handlers.
//! * [`batch`], [`forward`], [`by_output`], [`stations`], [`clocks`]: running ahead; [`reading`]:
//!   prefetching.
//! * [`threads`], [`parts`], [`exchange`]: one run on several threads, each with a part of the
//!   network.
//! * [`repetition`]: periods that repeat are skipped; [`light_acks`]: acknowledgements that use no
//!   links; [`steady`]: time with steady rates is skipped.
//! * [`measure`], [`tap`], [`estimate`]: samples over time; captured packets; what a run will cost.
//! * [`bound`]: what a run may take, and how one ends that would take more.
//! * [`faults`]: failures at given times; [`deadlock`]: why a pause does not end.
//! * [`paths`], [`entropy`], [`planes`], [`build`]: what is set up before the first event.
//! * [`credits`], [`trimming`], [`scheduled`]: other ways to deal with a full buffer.
//! * [`aggregation`]: switches that end queue pairs and begin them.
//! * [`transports`]: which settings make RoCE, InfiniBand, Ultra Ethernet and the others.
//! * [`cc`]: congestion control, one file for each algorithm.
//! * [`nic`], [`lanes`], [`admission`], [`stamps`]: settings of NICs, lanes, clear-to-send, hop
//!   stamps.

pub mod admission;
mod aggregation;
mod batch;
mod bound;
pub mod buffer;
mod build;
mod by_output;
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
    bound::within((fabric, transfers), watch, |watch, room| {
        threads::run(fabric, transfers, (settings, faults), room, watch)
    })
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
    bound::within((fabric, transfers), watch, |watch, room| {
        let mut simulation = build::build(fabric, transfers, settings, faults)?;
        simulation.stay_within(room);
        let lanes = simulation.input.rules.lanes;
        let mut recorder = Recorder::new(measure, fabric, &simulation.net.network, lanes);
        recorder.tap = capture.map(|bytes| Tap::new(bytes.get()));
        simulation.accounts.recorder = Some(recorder);
        threads::stay_on_one(&simulation, watch);
        let outcome = simulation.run(watch);
        let capture = simulation.finish_capture();
        let recorder = simulation.accounts.recorder.expect("it was put there above");
        Ok((outcome, Recording { capture, ..recorder.finish() }))
    })
}
