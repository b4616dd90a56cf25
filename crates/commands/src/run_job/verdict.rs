//! What somebody would tell a colleague of a predicted step.
//!
//! What the fabric costs is the step less the same step in which every phase of communication
//! takes what one group alone would take. In money it is that share of what the job's machines
//! cost in a day. What limits is the largest part besides computation, and where the fabric has
//! run, the phase that loses most and its busiest link. The changes are named, not tried.

use fabric::fault::{FaultConfig, FaultKind};
use report::number::dollars;
use scenario::{Loaded, ScenarioFile};
use serde::Serialize;
use step::faults::DataParallel;
use step::network::words;
use step::predict::{Prediction, predict_on};
use units::Span;

use super::disturbed::Disturbed;
use super::whole::WholeStep;
use super::{BreakdownSeconds, PhaseRow, Report};
use crate::change::{Change, Kind};
use crate::engine::{self, Engine};
use crate::explain;
use crate::levers::{self, RunFacts};
use crate::world::{JobWorld, assumptions};

/// A smaller share of the step is not worth a word.
const LEAST: f64 = 0.0005;

/// A link that carries less than this share is not worth a word.
const BUSY: f64 = 0.01;

/// Changes that are named.
const NAMED: usize = 3;

/// What somebody would tell a colleague.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// In words.
    pub text: String,
    /// What the fabric costs: the step less the undisturbed one, in seconds.
    pub fabric_s: f64,
    /// That share of what the job's machines cost in a day.
    pub fabric_usd_per_day: f64,
    /// Communication that nothing hides of the axes that use the fabric, in seconds; nothing where
    /// none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed_s: Option<f64>,
    /// What limits the step, besides computation.
    pub limit: String,
    /// The changes that look largest; they were not tried.
    pub levers: Vec<Lever>,
}

/// A change that looks worthwhile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lever {
    /// What it is.
    pub name: String,
    /// `PATH=VALUE`, as `--set` takes them.
    pub set: Vec<String>,
    /// What makes it look worthwhile.
    pub why: String,
    /// What it could gain at most: the part of the step that it works on, in seconds.
    pub most_s: f64,
    /// The command that tries it.
    pub command: String,
}

/// The step in which nothing disturbs anybody, by the closed form of every collective.
pub(super) fn undisturbed(loaded: &Loaded, world: &JobWorld<'_>) -> Option<BreakdownSeconds> {
    let prediction = predict_on(world.world(), &assumptions(loaded), None).ok()?;
    Some(BreakdownSeconds::of(&prediction.breakdown))
}

impl Report {
    fn disturbed(&self) -> Option<&Disturbed> {
        self.whole.as_ref()?.disturbed.as_ref()
    }

    /// Where the time goes without faults that come or go.
    pub(crate) fn without_faults(&self) -> &BreakdownSeconds {
        self.disturbed().map_or(&self.breakdown_s, |disturbed| &disturbed.calm)
    }

    /// What would make its faults cost less.
    pub(crate) fn remedies(&self, loaded: &Loaded) -> Vec<Change> {
        self.disturbed().map_or_else(Vec::new, |disturbed| remedies(loaded, disturbed))
    }
}

impl Verdict {
    /// Of a step that is known but for its verdict.
    pub(super) fn of(
        loaded: &Loaded,
        world: &JobWorld<'_>,
        (prediction, engine): (&Prediction, Engine),
        report: &Report,
    ) -> Self {
        // Each way beside itself: by phases, or on one clock.
        let alone = match &report.whole {
            Some(whole) => Some(whole.alone),
            None if engine.has_contention() => undisturbed(loaded, world),
            None => None,
        };
        // A fault is one event: what every step of the day loses is without it.
        let (disturbed, parts) = (report.disturbed(), report.without_faults());
        let step_s = disturbed.map_or(report.step_s, |_| parts.total());
        let fabric_s = alone.map_or(0.0, |alone| (step_s - alone.total()).max(0.0));
        let waiting_s = alone.map_or(0.0, |alone| (parts.bubble - alone.bubble).max(0.0));
        let day = report.cost.step_usd / report.step_s * 86_400.0;
        let fabric_usd_per_day = fabric_s / step_s * day;
        let phases = &report.phases[..];
        let seen = RunFacts { parts, fabric_s, phases, memory: &report.memory };
        let limit = limit(report, prediction);
        let changes = levers::levers(loaded, &seen);
        let command = |change: &Change, but: &[&str]| {
            let engine = match engine {
                Engine::Flow => String::new(),
                other => format!(" --engine {}", other.name()),
            };
            let flags = change.after_flags(loaded, but).flags();
            format!("fatflow run {}{engine} {flags}", loaded.input)
        };
        let lever = |change: &Change| Lever {
            name: change.name.clone(),
            set: change.set.clone(),
            why: change.why.clone(),
            most_s: change.most_s,
            // What it gains is told of the step without faults.
            command: command(change, &["faults"]),
        };
        let named = levers::different(&changes, NAMED);
        let remedies = report.remedies(loaded);
        let remedies =
            remedies.iter().map(|change| Lever { command: command(change, &[]), ..lever(change) });
        let levers = remedies.chain(named.into_iter().map(lever)).collect();
        let exposed_s = exposed_on_fabric(parts, &report.phases);
        let verdict =
            Self { text: String::new(), fabric_s, fabric_usd_per_day, exposed_s, limit, levers };
        let timer_s = loaded.scenario.network.settings.nic.timeout.as_secs_f64();
        let is_fair = engine::leaves_control_out(loaded, engine);
        let faults = disturbed.map(|it| it.verdict(timer_s, day / 86_400.0));
        let text = verdict.words(report, (engine, is_fair), (step_s, waiting_s, faults));
        Self { text, ..verdict }
    }

    fn words(
        &self,
        report: &Report,
        (engine, is_fair): (Engine, bool),
        (step_s, waiting_s, faults): (f64, f64, Option<String>),
    ) -> String {
        let Self { fabric_s, fabric_usd_per_day, limit, .. } = self;
        let share = fabric_s / step_s;
        let mut text = match share {
            _ if !engine.has_contention() => {
                "Closed forms know no contention, so what the fabric costs is not told.".to_owned()
            }
            ..0.0005 if is_slowed(report) => "The fabric costs the step nothing: what is slower \
                                              than alone on it hides behind computation."
                .to_owned(),
            ..0.0005 => "The fabric costs nothing: every exchange is as fast as alone.".to_owned(),
            _ => format!(
                "The fabric costs {} of {} ({:.1} %), ${} a day{}.",
                span(*fabric_s),
                span(step_s),
                100.0 * share,
                dollars(*fabric_usd_per_day).trim_start_matches('$'),
                self.other_way(report.whole.as_ref()),
            ),
        };
        text += &self.exposure((engine, is_fair), (step_s, waiting_s));
        if let Some(faults) = faults {
            // A day's cost beside a single event's would be read as the event's.
            let without = text.replacen("The fabric costs", "Without them the fabric costs", 1);
            text = format!("{faults} {without}");
        }
        text += &format!(" What limits: {limit}.");
        let doubt = report.step_high_s / report.step_low_s - 1.0;
        text += &format!(
            " The step is within {} to {} (80 %)",
            span(report.step_low_s),
            span(report.step_high_s)
        );
        text += match &report.seeds {
            Some(seeds) => {
                let mean = seeds.figures.first().map_or(0.0, |figure| figure.spread.mean);
                format!("; the mean of {} seeds is {}", seeds.count, span(mean))
            }
            None => ", of one seed".to_owned(),
        }
        .as_str();
        if 0.0005 < share && share < doubt / 2.0 {
            text += "; what the fabric costs is less than that, but between two settings of it \
                     most of the error is the same";
        }
        text + "."
    }

    /// What the cost of the fabric is of, and all traffic on it that nothing hides.
    fn exposure(
        &self,
        (engine, is_fair): (Engine, bool),
        (step_s, waiting_s): (f64, f64),
    ) -> String {
        let (Some(exposed_s), true) = (self.exposed_s, engine.has_contention()) else {
            return String::new();
        };
        let share = self.fabric_s / step_s;
        let contention = match is_fair {
            _ if share < 0.0005 => "",
            false => " That is contention;",
            true => {
                " That is contention at fair shares: what congestion control makes of them is not \
                 in it (--engine packet);"
            }
        };
        let all = if contention.is_empty() { " All" } else { " all" };
        if exposed_s < 1e-9 {
            return format!("{contention}{all} traffic on it hides behind computation.");
        }
        let waits = 0.0005 <= share && 0.1 * self.fabric_s < waiting_s;
        let bubble = match waits {
            true => format!(", and {} of the cost is bubble that it makes", span(waiting_s)),
            false => String::new(),
        };
        format!(
            "{contention}{all} traffic on it that nothing hides takes {} ({:.1} %){bubble}.",
            span(exposed_s),
            100.0 * exposed_s / step_s,
        )
    }
}

/// A phase on the fabric that takes more than this many times as long as alone is slowed.
const SLOWED: f64 = 1.01;

/// Whether something on the fabric is slower than alone.
fn is_slowed(report: &Report) -> bool {
    report.phases.iter().any(|row| row.on_fabric && SLOWED < row.slowdown)
}

/// Below this share of each other the two ways tell the same of what the fabric costs.
const ALIKE: f64 = 0.1;

impl Verdict {
    /// What the other way makes of what the fabric costs.
    fn other_way(&self, whole: Option<&WholeStep>) -> String {
        let Some(whole) = whole else {
            return ", phase by phase (--whole: on one clock)".to_owned();
        };
        let by_phases = whole.two_level_fabric_s;
        let apart = (by_phases - self.fabric_s).abs();
        if apart < ALIKE * self.fabric_s.max(by_phases) {
            return String::new();
        }
        format!(", on one clock (phase by phase it would be {})", span(by_phases))
    }
}

/// Communication that nothing hides of the axes that have something on the fabric.
fn exposed_on_fabric(parts: &BreakdownSeconds, phases: &[PhaseRow]) -> Option<f64> {
    let axes =
        [("tp", parts.tp), ("cp", parts.cp), ("ep", parts.ep), ("pp", parts.pp), ("dp", parts.dp)];
    let uses = |axis: &str| phases.iter().any(|row| row.on_fabric && row.axis == axis);
    let exposed: Vec<f64> =
        axes.into_iter().filter(|(axis, _)| uses(axis)).map(|(_, seconds)| seconds).collect();
    (!exposed.is_empty()).then(|| exposed.iter().sum())
}

/// As often as a queue pair sends again at most: `retry_cnt` has three bits.
const RETRIES: u32 = 7;

/// The shortest timer whose retries outlast an outage, with its code: 4.096 µs times two to the
/// power of it, and not below 4 ms, at which late answers would pass for losses.
fn timer_over(outage_s: f64) -> (u32, Span) {
    let timer = |code: u32| Span::from_ns(4096 << code);
    let is_enough = |code: &u32| outage_s < f64::from(RETRIES) * timer(*code).as_secs_f64();
    let code = (10..31).find(is_enough).unwrap_or(31);
    (code, timer(code))
}

/// What would make a fault cost less, bounded by what it costs, once.
fn remedies(loaded: &Loaded, disturbed: &Disturbed) -> Vec<Change> {
    let ScenarioFile { network, cluster, reliability, .. } = &loaded.scenario;
    let timer = network.settings.nic.timeout;
    let once = disturbed.cost_s;
    let mut found = Vec::new();
    let (code, shorter) = timer_over(disturbed.longest_outage_s());
    if disturbed.waits_for_timer(timer.as_secs_f64()) && shorter < timer {
        let short = [
            format!("network.nic.timeout={}ns", shorter.as_ps() / 1000),
            format!("network.nic.retries={RETRIES}"),
        ];
        let name = format!("a timer of {shorter:.0} (NCCL_IB_TIMEOUT {code})");
        let why = format!("the fault, once: what it lost waits {timer:.3} for the timer");
        found.push(Change::new(Kind::Network, name, short.clone()).because(&why, once));
        let cable = second_cable(&loaded.scenario).filter(|_| cluster.ports_per_nic == 1);
        if let Some(fault) = cable {
            let two = ["cluster.ports_per_nic=2", "cluster.aggregation=dual-tor"];
            let set = two.map(str::to_owned).into_iter().chain(short).chain([fault]);
            let change = Change::new(Kind::Fabric, "that, and each NIC on two leaves", set);
            let why = "the fault, once: one of two cables is down, and the other carries all";
            found.push(change.because(why, once));
        }
    }
    if disturbed.restart.is_some() && reliability.data_parallel != DataParallel::Elastic {
        let set = ["reliability.data_parallel=elastic"];
        let why = "the fault, once: all copies stop and go back to the last checkpoint";
        found.push(Change::new(Kind::Operation, "the other copies go on", set).because(why, once));
    }
    found
}

/// The faults with one of two cables down where a NIC with its only one is; nothing where none is.
fn second_cable(scenario: &ScenarioFile) -> Option<String> {
    let mut faults = scenario.faults.clone();
    let is_nic = |fault: &FaultConfig| {
        let words: Vec<&str> = fault.on.split_whitespace().collect();
        let is_cut = matches!(fault.what, FaultKind::LinkDown | FaultKind::Flap { .. });
        matches!(words[..], [kind, _] if kind.eq_ignore_ascii_case("nic")) && is_cut
    };
    if !faults.iter().any(is_nic) {
        return None;
    }
    faults.iter_mut().filter(|fault| is_nic(fault)).for_each(|fault| fault.on += " port 0");
    let json = serde_json::to_value(faults).ok()?;
    Some(format!("faults={}", explain::toml(&json)?))
}

/// What limits: the largest part, the largest besides computation, and on the fabric the phase that
/// costs most.
fn limit(report: &Report, prediction: &Prediction) -> String {
    let parts = &report.breakdown_s;
    let mut text = report.constraint.clone();
    let longest = parts.named().iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    if parts.compute == longest && parts.compute < parts.total() {
        let share = 100.0 * parts.compute / parts.total();
        text = format!("computation ({share:.1} %), then {text}");
    }
    let Some((key, cost)) = prediction.costs.first() else { return text };
    let told = |phase: &&step::network::Phase| phase.exchange.key() == *key;
    let phase = prediction.phases.iter().find(told);
    let is_much = LEAST * prediction.line.length().as_secs_f64() < cost.as_secs_f64();
    let Some(phase) = phase.filter(|_| is_much) else { return text };
    let (whose, what) = (words(phase.exchange.kind), phase.exchange.collective.name());
    text += &format!(
        "; on the fabric most by the {whose} {what}, {:.2} times as long as undisturbed",
        phase.slowdown()
    );
    // One clock has no phases that could be left out one by one.
    if report.whole.is_none() {
        text += &format!(", which costs {cost:.3}");
    }
    let uses = |worst: &&step::network::WorstLink| {
        0 < phase.links[worst.link].bytes && BUSY < worst.utilisation
    };
    if let Some(worst) = prediction.links.worst.iter().find(uses) {
        text += &format!(" (busiest link: {}, {:.0} %)", worst.name, 100.0 * worst.utilisation);
    }
    text
}

fn span(seconds: f64) -> String {
    format!("{:.3}", Span::from_secs_f64(seconds))
}
