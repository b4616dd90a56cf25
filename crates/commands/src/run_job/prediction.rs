//! The step of a job on an engine: every distinct phase of communication is run on the fabric.
//!
//! Packets cost in proportion to bytes. Where all bytes of a step would take longer than people
//! wait, or where the user says so, its phases are run in part, at two sizes. How well the smaller
//! predicts the larger is what is known of the error ([`Scaled`]).

use fabric::{Fabric, LinkId};
use job::compute::{End, GpuRates};
use packetsim::packet::Forward;
use scenario::Loaded;
use serde::Serialize;
use step::network::{Phase, Runner, Unserved, words};
use step::predict::{Prediction, World, predict_on};
use traffic::{NotRun, Outcome, Transfers};
use units::{Bytes, Span};

use super::latency::latency_share;
use super::whole::{self, Way, WholeStep};
use crate::engine::{self, Cost, Engine};
use crate::failure::Failure;
use crate::packets::{Budget, LONGEST_S, Patience};
use crate::world::{JobWorld, assumptions};

/// A phase is not scaled up of which more than this share is latency: latency is taken off before,
/// and little would be left of the difference.
const MOST_LATENCY: f64 = 0.9;

/// Phases that were run in part, and how far off what they were scaled up to may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scaled {
    /// Phases that were run in part.
    pub phases: usize,
    /// With how many bytes.
    pub run_bytes: u64,
    /// The most that one of them moves.
    pub largest_bytes: u64,
    /// The step from phases of half as many bytes, over the step, less one.
    pub step_error: f64,
    /// The same of the phase where it is largest in size.
    pub worst_phase_error: f64,
    /// Which phase that is.
    pub worst_phase: String,
    /// What all bytes of all phases would take to run, in seconds, by the engine's estimate.
    pub whole_run_s: f64,
}

/// A step, and what of it was scaled up.
#[derive(Debug)]
pub(super) struct Predicted {
    pub(super) prediction: Prediction,
    pub(super) scaled: Option<Scaled>,
    /// What is told of it, and what the engine noticed, where it was run on one clock.
    pub(super) whole: Option<(WholeStep, Vec<String>)>,
}

/// The step crate's own answer, for commands that need more of it. On an engine that runs phases
/// whole.
pub fn predicted(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    engine: Engine,
) -> Result<Prediction, Failure> {
    on_engine(loaded, world, engine, Patience::Usual, &mut packetsim::Watch::default())
        .map(|predicted| predicted.prediction)
}

/// A phase that takes at most this many times what an undisturbed group takes meets nobody.
const UNDISTURBED: f64 = 1.0005;

/// A step that is known, if one link were free, both ways, and not slow. Phases that do not cross
/// it stay as they are. So do those that are undisturbed, unless it is slow: every group is held by
/// NICs of its own, and this link is one of many.
pub(super) fn with_free_link(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    engine: Engine,
    (known, link): (&Prediction, LinkId),
) -> Result<Prediction, Failure> {
    let repaired = world.with_repaired(link);
    let world = repaired.as_ref().unwrap_or(world);
    let gains = |phase: &&Phase| {
        let uses = |link| phase.links.get(link).is_some_and(|used| 0 < used.bytes);
        let crosses = uses(link) || uses(world.fabric().reverse(link));
        crosses && (repaired.is_some() || UNDISTURBED < phase.slowdown())
    };
    let known = known.phases.iter().filter(|phase| !gains(phase)).cloned().collect();
    let mut run = |fabric: &Fabric, transfers: &Transfers| {
        engine::run_freed(loaded, fabric, engine, transfers, link)
    };
    let beside = engine::beside(loaded, world.fabric(), engine);
    let runner = Runner { known, beside, ..Runner::folded(&mut run) };
    Ok(predict_on(world.world(), &assumptions(loaded), Some(runner))?)
}

/// What the step would be, over what it is, if every kernel were as fast as any source says, and
/// if it were as slow; by the closed forms of collectives.
pub(super) fn at_ends(loaded: &Loaded, world: &JobWorld<'_>) -> Option<(f64, f64)> {
    let with = |rates: &GpuRates| {
        let world = World { rates, ..world.world() };
        let prediction = predict_on(world, &assumptions(loaded), None).ok()?;
        Some(prediction.step.as_secs_f64())
    };
    let middle = with(&world.rates)?;
    let [fast, slow] = [End::Fast, End::Slow].map(|end| with(&world.rates.at(end)));
    Some((fast? / middle, slow? / middle))
}

/// Predicts a step on an engine. Somebody who interrupts it gets none: phases that were not run
/// are no part of an answer.
pub(super) fn on_engine(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    engine: Engine,
    patience: Patience,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Predicted, Failure> {
    patience.tell(watch);
    if !engine.moves_packets() {
        let prediction = with_runner(loaded, world, (engine, None), patience, &mut |of, moved| {
            engine::run_whole(loaded, of, engine, moved, watch)
        })?;
        return Ok(Predicted { prediction, scaled: None, whole: None });
    }
    // Packets that a capture wants are all simulated.
    let may_bound = watch.tape.is_none();
    let share = share(loaded, world, engine, (patience, may_bound))?;
    let loaded = share.bounded.as_deref().unwrap_or(loaded);
    let mut done = 0;
    let mut run = |largest: Option<Bytes>, is_last: bool| {
        let sizes = (engine, largest);
        let tape = watch.tape.take_if(|_| !is_last);
        let predicted = with_runner(loaded, world, sizes, patience, &mut |fabric, transfers| {
            watch.expected_events = engine::events(loaded, fabric, engine, transfers);
            let outcome = engine::run_whole(loaded, fabric, engine, transfers, watch)?;
            done += 1;
            Ok(outcome)
        });
        watch.tape = tape.or(watch.tape.take());
        predicted.map_err(|reason| match reason {
            Unserved::NotRun(NotRun::Interrupted) => Failure::Interrupted(format!(
                "stopped: {done} runs of phases, packet by packet, were done; there is no step"
            )),
            other => other.into(),
        })
    };
    let Some(most) = share.most else {
        return Ok(Predicted { prediction: run(None, true)?, scaled: None, whole: None });
    };
    let half = run(Some(half(most)), false)?;
    let prediction = run(Some(most), true)?;
    let scaled = Scaled::of(&half, &prediction, share.whole_s);
    Ok(Predicted { prediction, scaled, whole: None })
}

/// The smaller of the two sizes.
fn half(most: Bytes) -> Bytes {
    Bytes::new(most.get() / 2)
}

/// How much of each phase packets are run with.
struct Share {
    /// The most bytes of a phase; all of them if there is no limit.
    most: Option<Bytes>,
    /// What all bytes of all phases would take, by the engine's estimate.
    whole_s: f64,
    /// The scenario with what is computed within a bound, where it would not do to simulate all.
    bounded: Option<Box<Loaded>>,
}

/// The least that a phase is cut to, and what a larger share is estimated from.
const LEAST_SHARE: Bytes = Bytes::from_mib(4);

/// How much of each phase can be run: what the user says, else all of it if patience and memory
/// reach, else all of it within a bound, else the largest power of two for which they do.
fn share(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    engine: Engine,
    (patience, may_bound): (Patience, bool),
) -> Result<Share, Failure> {
    let whole_s = probe(loaded, world, engine)?.seconds(u64::MAX);
    let share = |most, bounded| Share { most, whole_s, bounded };
    if let Some(most) = loaded.settings().packet.phase_bytes {
        estimated(loaded, world, (engine, &[Some(half(most)), Some(most)]), patience)?;
        return Ok(share(Some(most), None));
    }
    let is_whole = |of: &Loaded, seconds: f64| {
        seconds <= LONGEST_S && estimated(of, world, (engine, &[None]), patience).is_ok()
    };
    if patience == Patience::Endless || is_whole(loaded, whole_s) {
        return Ok(share(None, None));
    }
    let bounded = bounded(loaded).filter(|_| may_bound);
    let of = bounded.as_deref().unwrap_or(loaded);
    let probed = probe(of, world, engine)?;
    if bounded.is_some() && is_whole(of, probed.seconds(u64::MAX)) {
        return Ok(share(None, bounded));
    }
    let mut most = LEAST_SHARE.get() << 10;
    loop {
        let sizes = [Some(Bytes::new(most / 2)), Some(Bytes::new(most))];
        let is_least = most <= LEAST_SHARE.get();
        if is_least || probed.seconds(most) + probed.seconds(most / 2) <= LONGEST_S {
            match estimated(of, world, (engine, &sizes), patience) {
                Ok(()) => return Ok(share(sizes[1], bounded)),
                Err(refusal) if is_least => return Err(refusal),
                Err(_) => {}
            }
        }
        most /= 2;
    }
}

/// The scenario with what can be computed within a bound, unless somebody wrote how much should be.
fn bounded(loaded: &Loaded) -> Option<Box<Loaded>> {
    if loaded.is_given("network.packet.forward") {
        return None;
    }
    let mut bounded = Box::new(loaded.clone());
    bounded.scenario.network.settings.packet.forward = Forward::Bounded;
    Some(bounded)
}

/// What phases take by the engine's estimate when they are run with [`LEAST_SHARE`].
struct Probe {
    /// Of each phase its seconds, the bytes that they are of, and all its bytes.
    phases: Vec<(f64, u64, u64)>,
}

impl Probe {
    /// What all phases take with at most so many bytes of each.
    fn seconds(&self, most: u64) -> f64 {
        let of = |&(seconds, run, whole): &(f64, u64, u64)| {
            seconds * whole.min(most) as f64 / run.max(1) as f64
        };
        self.phases.iter().map(of).sum()
    }
}

fn probe(loaded: &Loaded, world: &JobWorld<'_>, engine: Engine) -> Result<Probe, Failure> {
    let settings = loaded.settings();
    let mut costs = Vec::new();
    let sizes = (engine, Some(LEAST_SHARE));
    let seen = with_runner(loaded, world, sizes, Patience::Usual, &mut |fabric, transfers| {
        let seconds = packetsim::estimate(fabric, transfers, &settings).seconds;
        costs.push((label(transfers), seconds));
        Err(NotRun::OnlySeen)
    })?;
    let phases = seen.phases.iter().map(|phase| {
        let mine = costs.iter().filter(|(label, _)| label.starts_with(&named(phase)));
        let run = phase.whole.min(LEAST_SHARE);
        (mine.map(|(_, seconds)| *seconds).sum(), run.get(), phase.whole.get())
    });
    Ok(Probe { phases: phases.collect() })
}

/// What the first operation of a phase is called.
fn label(transfers: &Transfers) -> String {
    let first = transfers.ops().iter().next();
    first.map(|op| transfers.label_text(op.label).to_owned()).unwrap_or_default()
}

/// Refuses a step that would take too long on an engine, before anything of it runs.
pub fn refuse_endless(loaded: &Loaded, engine: Engine, patience: Patience) -> Result<(), Failure> {
    if !engine.moves_packets() || Way::needed(loaded) == Way::Whole {
        return Ok(());
    }
    share(loaded, &JobWorld::of(loaded)?, engine, (patience, true)).map(|_| ())
}

/// What a step will cost on an engine, by the engine's own estimates of its phases.
pub fn cost(loaded: &Loaded, engine: Engine) -> Result<Cost, Failure> {
    let world = JobWorld::of(loaded)?;
    if Way::needed(loaded) == Way::Whole && engine.has_contention() {
        return whole::cost(loaded, &world, engine);
    }
    let share = match engine.moves_packets() {
        true => Some(share(loaded, &world, engine, (Patience::Usual, true))?),
        false => None,
    };
    let loaded = share.as_ref().and_then(|share| share.bounded.as_deref()).unwrap_or(loaded);
    let sizes = match share.as_ref().and_then(|share| share.most) {
        Some(most) => vec![Some(half(most)), Some(most)],
        None => vec![None],
    };
    let mut cost = Cost::default();
    for largest in sizes {
        let sizes = (engine, largest);
        with_runner(loaded, &world, sizes, Patience::Endless, &mut |fabric, transfers| {
            cost = cost.and(engine::cost(loaded, fabric, engine, transfers));
            Err(NotRun::OnlySeen)
        })?;
    }
    Ok(cost)
}

/// Estimates every run of every phase with these sizes, and refuses what patience does not reach
/// for.
fn estimated(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    (engine, sizes): (Engine, &[Option<Bytes>]),
    patience: Patience,
) -> Result<(), Failure> {
    let settings = loaded.settings();
    let mut budget = Budget::new(patience);
    let (mut refusal, mut shares) = (None, Vec::new());
    for &largest in sizes {
        let sizes = (engine, largest);
        let seen = with_runner(loaded, world, sizes, patience, &mut |fabric, transfers| {
            refusal = budget.check(fabric, transfers, &settings).err().or(refusal.take());
            shares.push((label(transfers), latency_share(fabric, transfers)));
            Err(NotRun::OnlySeen)
        })?;
        if let Some(largest) = largest {
            refuse_latency(&seen, largest, &shares)?;
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// Refuses to scale up a phase that is mostly latency: that would grow with the bytes.
fn refuse_latency(
    seen: &Prediction,
    largest: Bytes,
    shares: &[(String, f64)],
) -> Result<(), Failure> {
    for phase in seen.phases.iter().filter(|phase| largest < phase.whole) {
        let (name, whole) = (named(phase), phase.whole);
        let of_it = shares.iter().filter(|(label, _)| label.starts_with(&name));
        let share = of_it.map(|(_, share)| *share).fold(0.0, f64::max);
        if MOST_LATENCY < share {
            let percent = 100.0 * share;
            return Err(Failure::Run(format!(
                "packets run {largest} of each phase, and what that takes is scaled up: of the \
                 {name} of {whole}, {percent:.0} % of it would be the latency of cables and \
                 switches, which does not grow with bytes; --engine flow runs phases whole"
            )));
        }
    }
    Ok(())
}

/// Predicts with every phase given to `run`, of at most so many bytes.
fn with_runner(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    (engine, largest): (Engine, Option<Bytes>),
    patience: Patience,
    run: &mut dyn FnMut(&Fabric, &Transfers) -> Result<Outcome, NotRun>,
) -> Result<Prediction, Unserved> {
    engine::finely(loaded, engine, &mut |detail| {
        let mut run = |fabric: &Fabric, transfers: &Transfers| run(fabric, transfers);
        let runner = engine.has_contention().then_some(Runner {
            engine: &mut run,
            detail,
            largest,
            most_operations: engine::most_operations(engine, detail, patience),
            known: Vec::new(),
            beside: engine::beside(loaded, world.fabric(), engine),
            once: 0,
        });
        predict_on(world.world(), &assumptions(loaded), runner)
    })
}

impl Scaled {
    /// What was run in part, and what is known of the error.
    pub fn words(&self) -> String {
        let Self { phases, step_error, worst_phase, worst_phase_error, .. } = self;
        let sizes = [self.run_bytes, self.run_bytes / 2, self.largest_bytes];
        let [run, half, largest] = sizes.map(|bytes| Bytes::new(bytes).to_string());
        let signed = |error: f64| format!("{:+.1} %", 100.0 * error);
        let whole = Span::from_secs_f64(self.whole_run_s);
        format!(
            "Scaled up: {phases} phases of up to {largest} were run with {run}, packet by packet, \
             and take in proportion. With {half} instead the step would be {} off, and the worst \
             phase ({worst_phase}) {}: expect no smaller error. All bytes would take about \
             {whole:.0} to run (--force); network.packet.phase_bytes sets the share.",
            signed(*step_error),
            signed(*worst_phase_error)
        )
    }

    /// What the two sizes say of each other; nothing if every phase was run whole.
    fn of(half: &Prediction, full: &Prediction, whole_run_s: f64) -> Option<Self> {
        let scaled = || full.phases.iter().filter(|phase| phase.is_part());
        let error = |phase: &Phase| {
            let key = phase.exchange.key();
            let smaller = half.phases.iter().find(|other| other.exchange.key() == key);
            let scaled_up = |phase: &Phase| phase.contention.max(1.0);
            smaller.map_or(0.0, |smaller| scaled_up(smaller) / scaled_up(phase) - 1.0)
        };
        let worst = scaled().max_by(|a, b| error(a).abs().total_cmp(&error(b).abs()))?;
        let [half_s, full_s] = [half, full].map(|prediction| prediction.step.as_secs_f64());
        Some(Self {
            phases: scaled().count(),
            run_bytes: worst.exchange.bytes.get(),
            largest_bytes: scaled().map(|phase| phase.whole.get()).max().unwrap_or(0),
            step_error: half_s / full_s - 1.0,
            worst_phase_error: error(worst),
            worst_phase: named(worst),
            whole_run_s,
        })
    }
}

fn named(phase: &Phase) -> String {
    format!("{} {}", words(phase.exchange.kind), phase.exchange.collective.name())
}
