//! Faults in the middle of steps: the step that is hit, those after it, and what that costs.
//!
//! Steps are run in a row on one clock, with faults and without, and set side by side. A job that
//! loses a GPU, or whose queue pairs use up their retries, ends there: the communicator aborts, and
//! the job goes on from its last checkpoint with a spare in the place of what broke. Until its last
//! checkpoint lies half an interval on average.

use fabric::fault::{Fault, FaultKind, Faults};
use report::number::dollars;
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, Unit};
use scenario::Loaded;
use serde::Serialize;
use step::faults::DataParallel;
use step::predict::Prediction;
use step::timeline::Share;
use step::whole::Whole;
use units::{Span, Time};

use super::several::{self, Row};
use super::whole::{self, WholeStep, quiet};
use super::{BreakdownSeconds, causes, lanes};
use crate::campaign;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::meter;
use crate::world::JobWorld;

/// At most so many steps are run until a fault comes and has gone.
const MOST_STEPS: u32 = 16;

/// Above so many GPUs steps are counted in memory before they are run in a row.
const MANY_GPUS: u64 = 4096;

/// Faults, and spans of time, that a sentence names at most.
const NAMED: usize = 3;

/// Less than this is the rounding of clocks.
const COUNTS: f64 = 1e-6;

/// Kinds of faults that cut off what is under way.
const OUTAGES: [&str; 4] = ["link-down", "flap", "switch-down", "switch-restart"];

/// Steps with faults that come or go, beside the same without.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Disturbed {
    /// The faults that come or go.
    pub faults: Vec<FaultRow>,
    /// The steps that were run, in a row.
    pub steps: Vec<StepRow>,
    /// How the job ended and what that costs, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// What the faults cost over all these steps.
    pub cost_s: f64,
    /// What they would cost if the first of them came at other instants of the step in which it
    /// does, and the others as long after it; nothing where that would take long, or where some
    /// never end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instants: Vec<Instant>,
    /// Where the time of the step that is told of goes without them.
    #[serde(skip)]
    pub calm: BreakdownSeconds,
}

/// What faults would cost at another time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Instant {
    /// When the first of them comes, on the clock of the steps.
    pub at_s: f64,
    /// What all of them cost then.
    pub cost_s: f64,
}

/// A fault that comes or goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultRow {
    /// What is hit.
    pub on: String,
    /// What happens to it.
    pub kind: &'static str,
    /// When, from the start of the first step.
    pub at_s: f64,
    /// When it is over; none for never.
    pub until_s: Option<f64>,
    /// How long it lasts each time, where it comes and goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_s: Option<f64>,
    /// Of faults that cost nothing: when what is hit carries something in the step in which the
    /// first of them comes, from, until, on the clock of `at_s`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_s: Vec<(f64, f64)>,
}

/// A step with faults beside the same without.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepRow {
    /// Its number in the row.
    pub step: usize,
    /// When it began.
    pub start_s: f64,
    /// How long it takes without them.
    pub undisturbed_s: f64,
    /// How long with them; of one in which the job ends, until training is where it was.
    pub step_s: f64,
    /// The difference.
    pub cost_s: f64,
}

/// A job that ended and was started again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Restart {
    /// When it ended.
    pub at_s: f64,
    /// In which step of the row.
    pub step: usize,
    /// Why.
    pub why: String,
    /// What of that step was done.
    pub lost_s: f64,
    /// What was trained since the last checkpoint, on average, and is trained again; nothing where
    /// the other copies go on.
    pub redone_s: f64,
    /// Until it is known, and the bad node found.
    pub detection_s: f64,
    /// Until training goes on.
    pub restart_s: f64,
    /// All of it.
    pub cost_s: f64,
}

/// Steps with faults and without, and the one to tell of.
pub(super) struct Ran {
    pub(super) told: Disturbed,
    /// The step in which the first fault comes: what is told of it on one clock.
    pub(super) whole: Whole,
    /// Its number in the row.
    pub(super) shown: usize,
    pub(super) undisturbed_s: f64,
}

/// How many steps to run: until the last fault has gone, and one more, as far as memory holds them.
fn steps(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    (engine, step_s): (Engine, f64),
) -> Result<u32, Failure> {
    let wanted = wanted_steps(loaded, step_s);
    if world.job.layout.gpus() <= MANY_GPUS {
        return Ok(wanted);
    }
    let one = whole::cost(loaded, world, engine)?.memory.max(1);
    let fit = meter::available_bytes().map_or(wanted, |bytes| (bytes / one) as u32);
    Ok(wanted.min(fit).max(1))
}

fn wanted_steps(loaded: &Loaded, step_s: f64) -> u32 {
    let timed = loaded.faults.all().iter().zip(&loaded.scenario.faults);
    let timed = timed.filter(|(_, config)| config.comes_or_goes());
    let over = timed.map(|(fault, _)| match fault.until {
        Time::MAX => fault.at.as_secs_f64(),
        until => until.as_secs_f64(),
    });
    let last = over.fold(0.0, f64::max);
    ((last / step_s).ceil() as u32).saturating_add(1).clamp(2, MOST_STEPS)
}

/// The scenario without the loss of GPUs, which no engine plays, and the first that the job has.
fn without_losses<'l>(
    loaded: &'l Loaded,
    quiet: &Row,
) -> Result<(Box<Loaded>, Option<&'l Fault>), Failure> {
    let mut played = Box::new(loaded.clone());
    let gpus = &quiet.gpus;
    let is_own =
        |fault: &Fault| fault.kind.is_loss() && fault.nodes.iter().any(|n| gpus.contains(n));
    let faults = loaded.faults.all().iter().zip(&loaded.scenario.faults);
    let kept = faults.filter(|(fault, _)| !is_own(fault)).map(|(_, config)| config.clone());
    played.scenario.faults = kept.collect();
    let faults = Faults::new(loaded.fabric(), &played.scenario.faults, "faults");
    played.faults = faults.map_err(|_| Failure::Run("faults that were checked".to_owned()))?;
    Ok((played, loaded.faults.loss_of(gpus)))
}

/// Runs steps in a row with faults and without.
pub(super) fn run(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    phases: &Prediction,
    options: several::Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Ran, Failure> {
    let step_s = BreakdownSeconds::of(&phases.breakdown).total();
    let steps = steps(loaded, world, (options.engine, step_s))?;
    let options = several::Options { steps, ..options };
    let calm = several::in_a_row(&*quiet(loaded)?, world, phases.clone(), options, watch)?;
    let (rough, mut told) = play(loaded, world, (phases, &calm), options, watch)?;
    let rows = Rows { calm: &calm, rough: &rough };
    let first = told.first_s();
    let shown = shown(&calm, first);
    for at_s in other_instants(loaded, world, &told, (&calm, shown), options) {
        let moved = moved(loaded, at_s - first)?;
        let (_, other) = play(&moved, world, (phases, &calm), options, watch)?;
        told.instants.push(Instant { at_s, cost_s: other.cost_s });
    }
    told.calm = BreakdownSeconds::of(&calm.wholes[shown].prediction.breakdown);
    if !told.costs() {
        let start_s = told.steps[shown].start_s;
        let all = loaded.faults.all().iter().zip(&loaded.scenario.faults);
        let timed = all.filter(|(_, config)| config.comes_or_goes());
        for (row, (fault, _)) in told.faults.iter_mut().zip(timed) {
            let used = lanes::used(world, &calm.wholes[shown].prediction, &fault.links);
            row.used_s = used.iter().map(|span| (start_s + span.0, start_s + span.1)).collect();
        }
    }
    let whole = rows.whole(shown, &told);
    Ok(Ran { undisturbed_s: told.steps[shown].undisturbed_s, shown, told, whole })
}

/// The steps with the faults of a scenario, beside those without.
fn play(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    (phases, calm): (&Prediction, &Row),
    options: several::Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<(Row, Disturbed), Failure> {
    let (played, loss) = without_losses(loaded, calm)?;
    let rough = several::in_a_row(&played, world, phases.clone(), options, watch)?;
    let end = |row: &Row| row.ends.last().copied().unwrap_or(Time::ZERO);
    let lost = loss.filter(|fault| rough.gave_up.is_some() || fault.at < end(&rough));
    let gave_up = rough.gave_up.as_ref().map(|finding| (finding.at, finding.text.clone()));
    let over = lost.map(|fault| (fault.at, format!("{}: {}", fault.name, fault.kind.name())));
    let over = [over, gave_up].into_iter().flatten().min_by_key(|(at, _)| *at);
    let rows = Rows { calm, rough: &rough };
    let restart = over.map(|(at, why)| rows.restart(loaded, world, at, why));
    let told = rows.told(loaded, restart);
    Ok((rough, told))
}

/// At so many instants of a step faults are tried.
const INSTANTS: usize = 5;

/// Steps of more operations are not run again for every instant.
const FEW_OPERATIONS: u64 = 400_000;

/// The instants of the step in which the first fault comes at which to try them too: spread over
/// it, and two of the last time that what is hit first carries something.
fn other_instants(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    told: &Disturbed,
    (calm, shown): (&Row, usize),
    options: several::Options,
) -> Vec<f64> {
    let timed = loaded.scenario.faults.iter().filter(|fault| fault.comes_or_goes());
    let mut ends = told
        .faults
        .iter()
        .zip(timed)
        .map(|(fault, config)| fault.until_s.is_some() || config.what.is_loss());
    let operations = calm.wholes[shown].operations * u64::from(options.steps);
    if !options.engine.repeats_steps() || FEW_OPERATIONS < operations || !ends.all(|ends| ends) {
        return Vec::new();
    }
    let row = &told.steps[shown];
    let start_s: f64 = told.steps[..shown].iter().map(|step| step.undisturbed_s).sum();
    let part = |number: usize| number as f64 / INSTANTS as f64 * row.undisturbed_s;
    let all = loaded.faults.all().iter().zip(&loaded.scenario.faults);
    let first = all.filter(|(_, config)| config.comes_or_goes()).min_by_key(|(fault, _)| fault.at);
    let used = first.map_or_else(Vec::new, |(fault, _)| {
        lanes::used(world, &calm.wholes[shown].prediction, &fault.links)
    });
    let within = |(from, until): &(f64, f64)| [0.5, 0.9].map(|at| from + at * (until - from));
    let mut instants: Vec<f64> = (0..INSTANTS).map(part).collect();
    instants.extend(used.last().map(within).into_iter().flatten());
    instants.sort_by(f64::total_cmp);
    instants.into_iter().map(|at| start_s + at).collect()
}

/// The scenario with its faults that come or go so much later, in seconds.
fn moved(loaded: &Loaded, later_s: f64) -> Result<Box<Loaded>, Failure> {
    let mut moved = Box::new(loaded.clone());
    let later = |at: Span| Span::from_secs_f64((at.as_secs_f64() + later_s).max(0.0));
    for fault in moved.scenario.faults.iter_mut().filter(|fault| fault.comes_or_goes()) {
        (fault.at, fault.until) = (later(fault.at), fault.until.map(later));
    }
    let faults = Faults::new(loaded.fabric(), &moved.scenario.faults, "faults");
    moved.faults = faults.map_err(|_| Failure::Run("faults that were checked".to_owned()))?;
    Ok(moved)
}

/// The step in which the first fault comes; the first where it comes after all of them.
fn shown(calm: &Row, first_s: f64) -> usize {
    let over = calm.ends.iter().position(|end| first_s < end.as_secs_f64());
    over.unwrap_or(0)
}

/// Steps without faults and with them.
struct Rows<'r> {
    calm: &'r Row,
    rough: &'r Row,
}

fn seconds(whole: &Whole) -> f64 {
    BreakdownSeconds::of(&whole.prediction.breakdown).total()
}

impl Rows<'_> {
    /// What it costs that the job ends at an instant.
    fn restart(&self, loaded: &Loaded, world: &JobWorld<'_>, at: Time, why: String) -> Restart {
        let starts = self.rough.starts();
        let step = starts.iter().rposition(|start| *start <= at).unwrap_or(0);
        let exposed = BreakdownSeconds::of(&self.calm.wholes[0].prediction.breakdown);
        let exposed = exposed.communication() / exposed.total();
        let reliability = &loaded.scenario.reliability;
        let size = campaign::run_size(world.job, world.fabric(), exposed);
        let lost_s = at.since(starts[step]).as_secs_f64();
        let is_elastic = reliability.data_parallel == DataParallel::Elastic;
        let (redone_s, detection_s, restart_s) = match is_elastic {
            true => (0.0, 0.0, reliability.stall.as_secs_f64()),
            false => (
                0.5 * reliability.goodput(size).interval_s,
                reliability.detection.as_secs_f64(),
                reliability.restart.as_secs_f64(),
            ),
        };
        let cost_s = lost_s + redone_s + detection_s + restart_s;
        let at_s = at.as_secs_f64();
        Restart { at_s, step, why, lost_s, redone_s, detection_s, restart_s, cost_s }
    }

    fn told(&self, loaded: &Loaded, restart: Option<Restart>) -> Disturbed {
        let faults = loaded.faults.all().iter().zip(&loaded.scenario.faults);
        let timed =
            faults.filter(|(_, config)| config.comes_or_goes()).map(|(fault, config)| FaultRow {
                down_s: match config.what {
                    FaultKind::Flap { period, down } => {
                        Some(down.unwrap_or(period / 2).as_secs_f64())
                    }
                    _ => None,
                },
                on: fault.title(),
                used_s: Vec::new(),
                kind: FaultKind::name(fault.kind),
                at_s: fault.at.as_secs_f64(),
                until_s: (fault.until < Time::MAX).then(|| fault.until.as_secs_f64()),
            });
        let mut steps: Vec<StepRow> = Vec::new();
        let mut start_s = 0.0;
        for (step, calm) in self.calm.wholes.iter().enumerate() {
            let undisturbed_s = seconds(calm);
            let step_s = match (&restart, self.rough.wholes.get(step)) {
                (Some(restart), _) if restart.step == step => undisturbed_s + restart.cost_s,
                // What broke has been replaced by then.
                (Some(restart), _) if restart.step < step => undisturbed_s,
                (_, Some(rough)) => seconds(rough),
                (_, None) => undisturbed_s,
            };
            let cost_s = step_s - undisturbed_s;
            steps.push(StepRow { step, start_s, undisturbed_s, step_s, cost_s });
            start_s += step_s;
        }
        let cost_s = steps.iter().map(|step| step.cost_s).sum();
        let calm = BreakdownSeconds::default();
        let (faults, instants) = (timed.collect(), Vec::new());
        Disturbed { faults, steps, restart, cost_s, instants, calm }
    }

    /// A step as it is told of.
    fn whole(&self, shown: usize, told: &Disturbed) -> Whole {
        let calm = &self.calm.wholes[shown];
        let mut whole = match (&told.restart, self.rough.wholes.get(shown)) {
            (Some(restart), _) if restart.step <= shown => {
                let mut ended = calm.clone();
                if restart.step == shown {
                    lengthen(&mut ended.prediction, Span::from_secs_f64(restart.cost_s));
                }
                ended
            }
            (_, Some(rough)) => rough.clone(),
            (_, None) => calm.clone(),
        };
        whole.prediction.causes = causes::with_faults(&calm.prediction, &whole.prediction);
        whole.findings.extend(self.rough.findings.iter().cloned());
        whole.findings.sort_unstable();
        whole.findings.dedup();
        whole
    }
}

/// Adds what a restart costs to a step.
fn lengthen(prediction: &mut Prediction, more: Span) {
    let step = prediction.step + more;
    let share = prediction.step.as_secs_f64() / step.as_secs_f64();
    prediction.step = step;
    prediction.breakdown = prediction.breakdown.with(Share::Other, more);
    prediction.tflops_per_gpu *= share;
    prediction.mfu *= share;
}

impl WholeStep {
    /// The faults of the steps that were run, if some came or went.
    pub(super) fn show_faults(&self, sheet: Sheet) -> Sheet {
        match &self.disturbed {
            Some(disturbed) => disturbed.show(sheet),
            None => sheet,
        }
    }
}

fn span(seconds: f64) -> String {
    match seconds {
        ..1e-9 => "0 s".to_owned(),
        _ => format!("{:.3}", Span::from_secs_f64(seconds)),
    }
}

impl FaultRow {
    /// When what is hit carries something.
    fn when_used(&self) -> String {
        let until_s = self.until_s.unwrap_or(f64::INFINITY);
        let spans = &self.used_s;
        let is_hit = spans.iter().any(|(from, until)| *from < until_s && self.at_s < *until);
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
            return format!("This job puts nothing on {}.", self.on);
        };
        let listed: Vec<String> = match spans.len() {
            ..=NAMED => {
                spans.iter().map(|(from, to)| format!("{} to {}", span(*from), span(*to))).collect()
            }
            more => vec![format!("{} to {}, {more} times", span(first.0), span(last.1))],
        };
        let listed = listed.join(" and from ");
        match is_hit {
            true => format!(
                "{} carries something from {listed}, but what waits then has time to spare.",
                self.on
            ),
            false => format!(
                "Nothing crosses {} then; it carries something from {listed}, when a fault may \
                 cost.",
                self.on
            ),
        }
    }
}

impl Disturbed {
    /// When the first fault comes.
    fn first_s(&self) -> f64 {
        self.faults.iter().map(|fault| fault.at_s).fold(f64::INFINITY, f64::min)
    }

    /// The least and the most that they cost, at the instants that were tried and at their own.
    fn range(&self) -> Option<(f64, f64)> {
        let costs = || self.instants.iter().map(|one| one.cost_s).chain([self.cost_s]);
        let range = (costs().fold(f64::INFINITY, f64::min), costs().fold(0.0, f64::max));
        (!self.instants.is_empty()).then_some(range)
    }

    /// The same in a sentence.
    fn range_words(&self) -> String {
        let Some((least, most)) = self.range() else { return String::new() };
        let least = least.max(0.0);
        let tried = self.instants.len();
        match most - least {
            ..=COUNTS => format!(" At {tried} instants of the step they cost the same."),
            _ => format!(
                " It depends on the instant: {} to {} at {tried} over the step.",
                span(least),
                span(most)
            ),
        }
    }

    /// How long all steps that were run take.
    fn ran_s(&self) -> f64 {
        self.steps.last().map_or(0.0, |last| last.start_s + last.step_s)
    }

    /// Whether some last longer than what was run.
    fn outlast(&self) -> bool {
        self.faults.iter().any(|fault| fault.until_s.is_some_and(|until| self.ran_s() < until))
    }

    /// Whether any step takes longer for them.
    pub(super) fn costs(&self) -> bool {
        COUNTS < self.cost_s
    }

    /// How long the longest of the outages that end lasts.
    pub(super) fn longest_outage_s(&self) -> f64 {
        let is_outage = |fault: &&FaultRow| OUTAGES.contains(&fault.kind);
        let lasting =
            |fault: &FaultRow| fault.down_s.or(fault.until_s.map(|until| until - fault.at_s));
        self.faults.iter().filter(is_outage).filter_map(lasting).fold(0.0, f64::max)
    }

    /// Whether what was lost waited for the timer of its queue pair longer than the outage lasted:
    /// that, and not the outage, is what it costs then.
    pub(super) fn waits_for_timer(&self, timer_s: f64) -> bool {
        let longest = self.longest_outage_s();
        0.0 < longest && longest < timer_s && longest < self.cost_s && self.restart.is_none()
    }

    /// What they cost, as a single event, and why; of those that cost nothing, when they would.
    pub(super) fn verdict(&self, timer_s: f64, usd_per_s: f64) -> String {
        let when = |fault: &FaultRow| {
            let until = fault.until_s.map(|until| format!(" to {}", span(until)));
            let FaultRow { on, kind, at_s, .. } = fault;
            format!("{on} {kind} from {}{}", span(*at_s), until.unwrap_or_default())
        };
        let mut named: Vec<String> = self.faults.iter().take(NAMED).map(when).collect();
        if NAMED < self.faults.len() {
            named.push(format!("{} more", self.faults.len() - NAMED));
        }
        let named = named.join(", ");
        if self.costs() {
            let usd = match self.cost_s * usd_per_s {
                few @ ..100.0 => format!("${few:.2}"),
                many => dollars(many),
            };
            let cost = span(self.cost_s);
            let endless = self.faults.iter().any(|fault| fault.until_s.is_none());
            let mut text = match (&self.steps[..], endless && self.restart.is_none()) {
                ([steps @ .., last], true) => {
                    let first = steps.iter().find(|step| COUNTS < step.cost_s).unwrap_or(last);
                    format!(
                        "Faults that do not end (`for` says how long) make the step that they hit \
                         {} instead of {}, and cost {cost} in {} steps, {usd} of the job's \
                         machines: {named}.",
                        span(first.step_s),
                        span(first.undisturbed_s),
                        self.steps.len(),
                    )
                }
                (steps, _) if self.outlast() => format!(
                    "Faults that come or go cost {cost} in the {} steps that were run, {usd} of \
                     the job's machines, {:.1} % of these {}; they last longer: {named}.",
                    steps.len(),
                    100.0 * self.cost_s / self.ran_s(),
                    span(self.ran_s())
                ),
                _ => format!(
                    "Faults that come or go cost {cost}, once, {usd} of the job's machines: \
                     {named}."
                ),
            };
            if self.waits_for_timer(timer_s) {
                text += &format!(
                    " What was lost when the link died is sent again only when its queue pair's \
                     timer is over, {} (network.nic.timeout), however soon the link is back.",
                    span(timer_s)
                );
            }
            return text + &self.range_words();
        }
        let saved = if self.cost_s < -COUNTS {
            format!(" (the step is {} shorter: flows meet otherwise)", span(-self.cost_s))
        } else {
            String::new()
        };
        let told = self.faults.iter().take(NAMED).map(FaultRow::when_used);
        let told: Vec<String> = told.collect();
        let range = self.range_words();
        format!("Faults that come or go cost nothing{saved}: {named}. {}{range}", told.join(" "))
    }

    fn words(&self) -> String {
        let hit: Vec<&StepRow> = self.steps.iter().filter(|step| COUNTS < step.cost_s).collect();
        let mut text = match hit.first() {
            None => "No step takes longer for them.".to_owned(),
            Some(first) => format!(
                "Step {} was hit and takes {} instead of {}; in all they cost {}.",
                first.step,
                span(first.step_s),
                span(first.undisturbed_s),
                span(self.cost_s)
            ),
        };
        let after = hit.first().and_then(|first| self.steps.get(first.step + 1));
        if let Some(after) = after {
            text += &format!(" The step after it takes {}.", span(after.step_s));
        } else if self.steps.len() == 1 {
            text += " Steps after it were not run: memory holds one.";
        }
        if let Some(restart) = &self.restart {
            text += &format!(
                " The job ended at {} ({}) and goes on from its last checkpoint: {} of the step \
                 are lost, {} since the checkpoint are trained again, {} until it is known and {} \
                 until training goes on, with a spare for what broke.",
                span(restart.at_s),
                restart.why,
                span(restart.lost_s),
                span(restart.redone_s),
                span(restart.detection_s),
                span(restart.restart_s),
            );
        }
        text
    }

    fn show(&self, sheet: Sheet) -> Sheet {
        let mut table = Table::new([
            ("step", Align::Right),
            ("begins", Align::Right),
            ("undisturbed", Align::Right),
            ("with faults", Align::Right),
            ("costs", Align::Right),
        ]);
        for row in &self.steps {
            table.row([
                row.step.to_string(),
                span(row.start_s),
                span(row.undisturbed_s),
                span(row.step_s),
                span(row.cost_s),
            ]);
        }
        let sheet = sheet.heading("Faults in the middle").text(self.words()).table(table);
        if self.instants.is_empty() {
            return sheet.chart(self.chart());
        }
        let mut table =
            Table::new([("had the first come at", Align::Right), ("they cost", Align::Right)]);
        for one in &self.instants {
            table.row([span(one.at_s), span(one.cost_s.max(0.0))]);
        }
        sheet.table(table).chart(self.chart())
    }

    /// Steps and faults on one clock.
    fn chart(&self) -> Chart {
        let mut frame = Frame::new(&["lane", "start_s", "end_s", "name", "work"]);
        let mut undisturbed = 0.0;
        for row in &self.steps {
            let end = undisturbed + row.undisturbed_s;
            let name = format!("step {}", row.step);
            let lane = "undisturbed";
            let work = "step";
            frame.push(vec![
                lane.into(),
                undisturbed.into(),
                end.into(),
                name.as_str().into(),
                work.into(),
            ]);
            undisturbed = end;
            let (lane, end) = ("with faults", row.start_s + row.step_s);
            let work = if COUNTS < row.cost_s { "step that was hit" } else { "step" };
            let name = name.as_str().into();
            frame.push(vec![lane.into(), row.start_s.into(), end.into(), name, work.into()]);
        }
        let last = self.ran_s();
        for fault in &self.faults {
            let until = fault.until_s.unwrap_or(last).min(last);
            let name = format!("{}: {}", fault.on, fault.kind);
            if fault.at_s < until {
                let (lane, name) = (fault.on.as_str().into(), name.as_str().into());
                frame.push(vec![lane, fault.at_s.into(), until.into(), name, fault.kind.into()]);
            }
        }
        Chart::new(ChartKind::Timeline, "Steps and faults on one clock", frame)
            .caption("The steps without faults, the same with them, and when each fault lasts.")
            .axes("start_s", "lane")
            .spans("start_s", "end_s")
            .by("work")
            .named_by("name")
            .labels("time", "")
            .units(Unit::Seconds, Unit::Number)
    }

    /// The faults that fall into the step that is drawn, on its own clock: what, from, until.
    pub(super) fn within(&self, step_s: f64) -> Vec<(String, f64, f64)> {
        let first = self.first_s();
        let shown = self.steps.iter().rfind(|row| row.start_s <= first);
        let from = shown.map_or(0.0, |row| row.start_s);
        let told = self.faults.iter().map(|fault| {
            let until = fault.until_s.map_or(step_s, |until| until - from).min(step_s);
            (format!("{}: {}", fault.on, fault.kind), (fault.at_s - from).max(0.0), until)
        });
        told.filter(|(_, from, until)| from < until).collect()
    }
}
