//! The step on one clock: when it is chosen, how an engine runs it, and what is told of it.

use fabric::Fabric;
use fabric::fault::Faults;
use packetsim::Watch;
use packetsim::packet::Forward;
use report::number::grouped;
use report::{Align, Table};
use scenario::Loaded;
use serde::Serialize;
use step::network::Runner;
use step::predict::{Prediction, predict_on};
use step::whole::{self, Meeting, Once, Whole};
use traffic::collective::Detail;
use traffic::{NotRun, Outcome, Transfers};
use units::{Bytes, Span};

use super::BreakdownSeconds;
use super::disturbed::{self, Disturbed, Ran};
use super::prediction::{Predicted, on_engine};
use super::several;
use super::verdict;
use crate::engine::{self, Cost, Engine};
use crate::failure::Failure;
use crate::packets::{Budget, Patience};
use crate::world::{JobWorld, assumptions};

/// How a step is put together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Phases of communication one by one, then a timeline of representative ranks.
    #[default]
    TwoLevel,
    /// Every copy of every stage on one clock.
    Whole,
}

impl Way {
    /// The way that a scenario needs: whole where something comes or goes within the step, which
    /// phases that are run one by one cannot show.
    pub fn needed(loaded: &Loaded) -> Self {
        let timed = loaded.scenario.faults.iter().any(|fault| fault.comes_or_goes());
        if timed { Self::Whole } else { Self::TwoLevel }
    }

    /// The same, or whole because somebody asks for it.
    pub fn asked(loaded: &Loaded, engine: Engine, whole: bool) -> Result<Self, Failure> {
        if whole && !engine.has_contention() {
            let reason = "closed forms have no clock: --whole is for --engine flow and packet";
            return Err(Failure::Usage(reason.to_owned()));
        }
        Ok(if whole { Self::Whole } else { Self::needed(loaded) })
    }
}

/// What is told of a step on one clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WholeStep {
    /// Operations that the engine ran.
    pub operations: u64,
    /// Events that it handled for them.
    pub events: u64,
    /// Links and flows that it looked at to keep rates fair; none on packets.
    pub looks: u64,
    /// Tensor groups, each one actor with its collectives inside the server as closed forms: exact
    /// as long as its ranks are alike.
    pub actors: u64,
    /// Acts of one copy: passes over units, exchanges, messages.
    pub acts: u64,
    /// What they are with chains of kernels as one wait.
    pub folded_acts: u64,
    /// The step by phases that are run one by one, without what comes and goes.
    pub two_level_s: f64,
    /// The step on one clock without what comes and goes; only where something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undisturbed_s: Option<f64>,
    /// The steps that faults hit, those after them, and what that costs; only where some come or
    /// go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<Disturbed>,
    /// Exchanges on the fabric, and which of them met.
    pub exchanges: Vec<Exchanged>,
    /// What was run once and stands for others; only where that is allowed
    /// (`network.packet.forward = "bounded"`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once: Option<RunOnce>,
    /// What the fabric costs by phases that are run one by one: each as slow as its slowest group,
    /// every time.
    pub two_level_fabric_s: f64,
    /// Where its time goes if every exchange takes what it takes alone, on the same clock.
    #[serde(skip)]
    pub alone: BreakdownSeconds,
}

/// Equal exchanges that begin on idle links, each of which was run once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunOnce {
    /// Exchanges of the step on the fabric.
    pub exchanges: u64,
    /// Those that met others and were run with the step.
    pub met: u64,
    /// Different ones that met nobody, each run by itself, and again behind it.
    pub different: u64,
    /// How often each of them was run.
    pub times: u64,
    /// Those that were not run, because an equal one was.
    pub not_run: u64,
    /// By how much the step would be longer or shorter at most, as a share, if another of these
    /// runs stood for them, the first on a network that nothing had used included.
    pub apart: f64,
}

impl RunOnce {
    fn of(once: Once) -> Self {
        let Once { exchanges, met, different, times, apart } = once;
        let not_run = exchanges - met - different;
        Self { exchanges, met, different, times, not_run, apart }
    }

    fn words(self) -> String {
        let (again, which) = match self.times {
            0..=2 => ("once more right behind it".to_owned(), "the two"),
            times => (format!("{} times more behind it", times - 1), "these runs"),
        };
        format!(
            " Of {} exchanges on the fabric {} met others and were run with the step; the others \
             began on idle links and are {} different ones, each of which was run by itself and \
             {again}; {} were not run. Which of {which} stands for them moves the step by {:.2} % \
             at most.",
            grouped(self.exchanges),
            grouped(self.met),
            grouped(self.different),
            grouped(self.not_run),
            100.0 * self.apart,
        )
    }
}

/// Exchanges of one kind and size in a step on one clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exchanged {
    /// Whose, and what.
    pub what: String,
    /// With how many bytes.
    pub bytes: u64,
    /// How often, once for those who meet in it.
    pub times: u64,
    /// An undisturbed group, its launch included.
    pub alone_s: f64,
    /// The mean, from when all are there.
    pub mean_s: f64,
    /// The longest.
    pub longest_s: f64,
    /// What was under way at the same time.
    pub met: Vec<Met>,
}

/// Two kinds of exchange that were under way at the same time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Met {
    /// The other.
    pub what: String,
    /// For so long, over all links.
    pub seconds: f64,
}

impl WholeStep {
    fn of(whole: &Whole, beside: Beside, undisturbed_s: Option<f64>) -> Self {
        let Beside { two_level_s, two_level_fabric_s, alone } = beside;
        let (acts, folded_acts) = whole.folded;
        Self {
            operations: whole.operations,
            events: whole.counters.events,
            looks: whole.counters.looks,
            actors: whole.actors,
            acts,
            folded_acts,
            two_level_s,
            undisturbed_s,
            disturbed: None,
            exchanges: whole.meetings.iter().map(Exchanged::of).collect(),
            once: whole.once.map(RunOnce::of),
            two_level_fabric_s,
            alone,
        }
    }

    /// What was run and what was folded.
    pub(super) fn words(&self, step_s: f64) -> String {
        let beside = match self.undisturbed_s {
            Some(without) => {
                let more = Span::from_secs_f64((step_s - without).max(0.0));
                let without = Span::from_secs_f64(without);
                let cost = match more {
                    more if more < Span::from_us(1) => "nothing".to_owned(),
                    more => format!("{more:.3}"),
                };
                format!("Without faults that come or go it takes {without:.3}: they cost {cost}.")
            }
            None => {
                let by_phases = Span::from_secs_f64(self.two_level_s);
                let apart = 100.0 * (step_s / self.two_level_s - 1.0);
                format!("By phases, one by one, it takes {by_phases:.3} ({apart:+.1} %).")
            }
        };
        let once = self.once.map(RunOnce::words).unwrap_or_default();
        format!(
            "Whole: {} operations on one clock. Folded: {} tensor groups are one actor each, their \
             collectives inside servers closed forms, which is exact as long as their ranks are \
             alike; {} acts of a copy are {} with chains of kernels as one wait. Jitter is this \
             seed's draw for every node.{once} {beside}",
            grouped(self.operations),
            grouped(self.actors),
            grouped(self.acts),
            grouped(self.folded_acts),
        )
    }

    /// What met what.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new([
            ("exchange", Align::Left),
            ("size", Align::Right),
            ("times", Align::Right),
            ("alone", Align::Right),
            ("mean", Align::Right),
            ("longest", Align::Right),
            ("under way with", Align::Left),
        ]);
        let span = |seconds: f64| format!("{:.3}", Span::from_secs_f64(seconds));
        for row in &self.exchanges {
            let met = row.met.iter().map(|met| format!("{} {}", met.what, span(met.seconds)));
            table.row([
                row.what.clone(),
                format!("{:.1}", Bytes::new(row.bytes)),
                grouped(row.times),
                span(row.alone_s),
                span(row.mean_s),
                span(row.longest_s),
                met.collect::<Vec<_>>().join("; "),
            ]);
        }
        table
    }
}

impl Exchanged {
    fn of(meeting: &Meeting) -> Self {
        let met =
            |(what, span): &(String, Span)| Met { what: what.clone(), seconds: span.as_secs_f64() };
        Self {
            what: meeting.what.clone(),
            bytes: meeting.bytes,
            times: meeting.times,
            alone_s: meeting.alone.as_secs_f64(),
            mean_s: meeting.mean.as_secs_f64(),
            longest_s: meeting.longest.as_secs_f64(),
            met: meeting.beside.iter().map(met).collect(),
        }
    }
}

/// What stands beside a step on one clock.
#[derive(Clone, Copy, Debug)]
struct Beside {
    two_level_s: f64,
    two_level_fabric_s: f64,
    alone: BreakdownSeconds,
}

impl Beside {
    /// Of the step before which there are so many others.
    fn of(
        loaded: &Loaded,
        world: &JobWorld<'_>,
        step: usize,
        phases: Prediction,
        watch: &mut packetsim::Watch<'_>,
    ) -> Result<Self, Failure> {
        let two_level_s = BreakdownSeconds::of(&phases.breakdown).total();
        let by_closed_forms = verdict::undisturbed(loaded, world).map(|parts| parts.total());
        let drawn = (loaded.scenario.seed, step as u32);
        let mut run = |fabric: &Fabric, transfers: &Transfers| {
            // Nothing is sent: flows keep the clock of any engine.
            engine::run_whole(loaded, fabric, Engine::Flow, transfers, watch)
        };
        let assumptions = assumptions(loaded);
        let alone = whole::undisturbed(world.world(), &assumptions, drawn, &mut run, phases)?;
        Ok(Self {
            two_level_s,
            two_level_fabric_s: by_closed_forms.map_or(0.0, |alone| two_level_s - alone).max(0.0),
            alone: BreakdownSeconds::of(&alone),
        })
    }
}

/// The scenario without what comes and goes.
pub(super) fn quiet(loaded: &Loaded) -> Result<Box<Loaded>, Failure> {
    let mut quiet = Box::new(loaded.clone());
    quiet.scenario.faults.retain(|fault| !fault.comes_or_goes());
    let faults = Faults::new(loaded.fabric(), &quiet.scenario.faults, "faults");
    quiet.faults = faults.map_err(|errors| {
        let reason = errors.first().map(|error| error.reason.clone()).unwrap_or_default();
        Failure::Run(reason)
    })?;
    Ok(quiet)
}

/// Predicts a step on one clock. Its phases are run one by one too, as flows, for what each takes
/// by itself.
pub(super) fn on_one_clock(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    engine: Engine,
    patience: Patience,
    watch: &mut Watch<'_>,
) -> Result<Predicted, Failure> {
    let quiet = quiet(loaded)?;
    let by_phases = engine.for_whole_clusters();
    let phases = on_engine(&quiet, world, by_phases, patience, watch)?.prediction;
    if Way::needed(loaded) == Way::Whole {
        let options = several::Options { engine, patience, steps: 1 };
        let Ran { told, mut whole, shown, undisturbed_s } =
            disturbed::run(loaded, world, &phases, options, watch)?;
        let beside = Beside::of(&quiet, world, shown, phases, watch)?;
        let findings = std::mem::take(&mut whole.findings);
        let whole_step = WholeStep::of(&whole, beside, Some(undisturbed_s));
        let whole_step = WholeStep { disturbed: Some(told), ..whole_step };
        let whole_told = Some((whole_step, findings));
        return Ok(Predicted { prediction: whole.prediction, scaled: None, whole: whole_told });
    }
    let how = (engine, patience);
    let mut budget = Budget::new(patience);
    let beside = Beside::of(loaded, world, 0, phases.clone(), watch)?;
    let mut whole = whole_step(loaded, world, how, phases, &mut |fabric, transfers| {
        refuse_long(loaded, fabric, engine, transfers, &mut budget)?;
        watch.expected_events = engine::events(loaded, fabric, engine, transfers);
        engine::run_whole(loaded, fabric, engine, transfers, watch)
    })?;
    let told = WholeStep::of(&whole, beside, None);
    let mut findings = std::mem::take(&mut whole.findings);
    findings.extend(uneven(loaded, engine, &told));
    Ok(Predicted { prediction: whole.prediction, scaled: None, whole: Some((told, findings)) })
}

fn whole_step(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    (engine, patience): (Engine, Patience),
    phases: Prediction,
    run: &mut dyn FnMut(&Fabric, &Transfers) -> Result<Outcome, NotRun>,
) -> Result<Whole, Failure> {
    let (seed, assumptions) = (loaded.scenario.seed, assumptions(loaded));
    Ok(engine::finely(loaded, engine, &mut |detail| {
        let mut run = |fabric: &Fabric, transfers: &Transfers| run(fabric, transfers);
        let most_operations = engine::most_operations(engine, detail, patience);
        let most_operations = most_operations.min(patience.most_operations());
        let once = runs_once(loaded, engine, detail);
        let runner = Runner { detail, most_operations, once, ..Runner::folded(&mut run) };
        whole::predict(world.world(), &assumptions, seed, runner, phases.clone())
    })?)
}

/// So many times what it takes alone makes an exchange one that shares links.
const SHARES: f64 = 1.05;

/// What flows leave out where exchanges share links: what congestion control makes of that.
fn uneven(loaded: &Loaded, engine: Engine, told: &WholeStep) -> Option<String> {
    let is_fair = engine::leaves_control_out(loaded, engine);
    let steps_control = engine == Engine::Flow && engine::steps_control(loaded);
    let is_folded = steps_control && told.once.is_none();
    if !is_fair && !is_folded {
        return None;
    }
    let times = |row: &&Exchanged| row.mean_s / row.alone_s.max(1e-12);
    let row = told.exchanges.iter().max_by(|a, b| times(a).total_cmp(&times(b)))?;
    let times = Some(times(&row)).filter(|times| SHARES < *times)?;
    let (what, size) = (&row.what, Bytes::new(row.bytes));
    let packets = "--engine packet with `network.packet.forward=bounded` counts every packet";
    Some(match is_fair {
        true => format!(
            "{what} of {size:.1} takes {times:.2} times as long as alone, with links that are \
             shared evenly at every instant; congestion control does not share so, and what it \
             costs is not in the step: `network.flow.congestion=controlled` steps DCQCN, and \
             {packets}"
        ),
        false => format!(
            "{what} of {size:.1} takes {times:.2} times as long as alone, with the rates that \
             DCQCN gives to rings that are folded; queue pairs of rings send in bursts, which \
             fill queues and cut rates, and that is not in the step: {packets}"
        ),
    })
}

/// How often exchanges are run that begin on idle links and stand for equal ones; 0 where all are.
fn runs_once(loaded: &Loaded, engine: Engine, detail: Detail) -> usize {
    let is_bounded = loaded.settings().packet.forward == Forward::Bounded;
    match detail {
        Detail::Stepwise if !engine.moves_packets() => RUNS_OF_FLOWS,
        Detail::Stepwise if is_bounded => 2,
        _ => 0,
    }
}

/// Dice decide how long an exchange takes under DCQCN, and flows are cheap: the mean of four behind
/// the first stands for all.
const RUNS_OF_FLOWS: usize = 5;

/// Refuses packets that would take too long.
pub(super) fn refuse_long(
    loaded: &Loaded,
    fabric: &Fabric,
    engine: Engine,
    transfers: &Transfers,
    budget: &mut Budget,
) -> Result<(), NotRun> {
    if !engine.moves_packets() {
        return Ok(());
    }
    let checked = budget.check(fabric, transfers, &loaded.settings());
    checked.map(|_| ()).map_err(|failure| NotRun::Refused(failure.to_string()))
}

/// What a step on one clock will cost.
pub(super) fn cost(loaded: &Loaded, world: &JobWorld<'_>, engine: Engine) -> Result<Cost, Failure> {
    let phases = predict_on(world.world(), &assumptions(loaded), None)?;
    let mut cost = Cost::default();
    let how = (engine, Patience::Endless);
    let seen = whole_step(loaded, world, how, phases, &mut |fabric, transfers| {
        let one = engine::cost(loaded, fabric, engine, transfers);
        cost = cost.and(one);
        if runs_once(loaded, engine, engine::detail(loaded, engine)) == 0 {
            return Err(NotRun::OnlySeen);
        }
        // What is run next depends on what came out: closed forms will do.
        engine::run_on(loaded, fabric, Engine::Analytic, transfers, &mut Watch::default())
    });
    match seen {
        // Nothing was to be run.
        Ok(_) => Ok(cost),
        Err(_) if cost != Cost::default() => Ok(cost),
        Err(refusal) => Err(refusal),
    }
}
