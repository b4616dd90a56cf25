//! `run` on a job: how long a training step takes, why, and what that costs.
//!
//! The step crate predicts; the chosen engine runs every distinct phase of communication on the
//! scenario's fabric ([`prediction`]): whole on the flow engine, a few mebibytes of each on the
//! packet engine, whose cost grows with bytes. `analytic` is the closed form of every collective,
//! without contention. Where something comes or goes within the step, or where somebody asks for
//! it, the whole step is run on one clock instead ([`whole`]).

use fabric::LinkId;
use fabric::cost::{Dollars, NETWORK};
use fabric::graph::LinkKind;
use fabric::hardware::Gpu;
use job::compute::Operands;
use job::memory::{self, Usage};
use scenario::Loaded;
use serde::Serialize;
use step::breakdown::Breakdown;
use step::faults::Goodput;
use step::money::{self, Bill, Machines, Phases};
use step::network::words;
use step::predict::Prediction;
use step::timeline::Share;

use crate::Drawing;
use crate::campaign::{self, Campaign};
use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::files::capture::Captured;
use crate::interval::Interval;
use crate::meter::{self, Meter};
use crate::packets::Patience;
use crate::seeds::{self, Repeat, Seeds};
use crate::targets::{self, TargetRow};
use crate::world::JobWorld;

mod causes;
mod circuits;
mod disturbed;
mod lanes;
mod latency;
mod model;
mod page;
mod prediction;
pub mod several;
mod verdict;
mod whole;

pub use causes::CausesSeconds;
pub use circuits::{Circuits, Lit, Plan};
pub use disturbed::{Disturbed, FaultRow, Restart, StepRow};
pub(crate) use lanes::busiest_over_time;
pub use model::ModelFigures;
pub(crate) use page::job_words;
use prediction::{Predicted, at_ends, on_engine, with_free_link};
pub use prediction::{Scaled, cost, predicted, refuse_endless};
pub use verdict::{Lever, Verdict};
pub use whole::{Exchanged, Met, Way, WholeStep};

/// Segments of the critical path that are told, the longest.
const TOLD_SEGMENTS: usize = 8;

/// A predicted step.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What somebody would tell a colleague.
    pub verdict: Verdict,
    /// How long a step takes: the sum of `breakdown_s`.
    pub step_s: f64,
    /// The least of its 80 % interval.
    pub step_low_s: f64,
    /// The most.
    pub step_high_s: f64,
    /// The interval, as multiples of the step, and where it comes from.
    pub interval: Interval,
    /// How it was put together.
    pub way: Way,
    /// What was run on one clock, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<WholeStep>,
    /// What of its packets was written, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Captured>,
    /// Tokens per second, over all GPUs.
    pub tokens_per_s: f64,
    /// Model FLOPs of one GPU per second, causal attention counted once, in 10¹².
    pub tflops_per_gpu: f64,
    /// That over the bf16 peak.
    pub mfu: f64,
    /// Where the time goes.
    pub breakdown_s: BreakdownSeconds,
    /// The same time by cause.
    pub causes_s: CausesSeconds,
    /// How the scale-out links were used over the step.
    pub links: Links,
    /// The busiest of them.
    pub worst_links: Vec<WorstLink>,
    /// The share of a long run that trains.
    pub goodput: f64,
    /// GPUs of the job.
    pub gpus: u64,
    /// Tokens of one step.
    pub tokens_per_step: f64,
    /// The share of the step that is communication which nothing hides.
    pub exposed_communication: f64,
    /// What constrains the step most, besides computation.
    pub constraint: String,
    /// The critical path: its longest segments, in the order of time.
    pub critical_path: Vec<String>,
    /// What the fabric made of each phase of communication.
    pub phases: Vec<PhaseRow>,
    /// Memory of a GPU of the fullest stage.
    pub memory: Memory,
    /// The model in figures.
    pub model: ModelFigures,
    /// Failures, checkpoints and restarts.
    pub reliability: Goodput,
    /// Goodput if something about faults were different.
    pub goodput_if: Vec<Variant>,
    /// What the step would be if the busiest link were free; only where an engine ran the fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<FreeLink>,
    /// How optical circuits between pods are set; only where they follow the job's phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuits: Option<Circuits>,
    /// Phases that were run in part and scaled up; only on packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaled: Option<Scaled>,
    /// The same under other seeds, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Seeds>,
    /// Days of the run by dice, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub campaign: Option<Campaign>,
    /// Steps one after the other, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<several::Steps>,
    /// Capital, power, energy by phase, and the price of a token.
    pub cost: Bill,
    /// What the cluster and the step should reach, met or missed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetRow>,
    /// What the engine noticed.
    pub findings: Vec<String>,
    /// Processor cores that the transport keeps busy in the busiest server, on average over the
    /// step; none where no engine ran the fabric.
    pub cpu_cores: Option<f64>,
    /// Seconds that the prediction took on the clock.
    pub wall_s: f64,
    /// Seconds that it took of the processor.
    pub cpu_s: f64,
    /// The most memory that the process has used.
    pub peak_rss_bytes: u64,
    #[serde(skip)]
    drawn: page::Drawn,
}

/// Exposed times that add up to the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BreakdownSeconds {
    /// Kernels.
    pub compute: f64,
    /// Tensor-parallel communication.
    pub tp: f64,
    /// Context-parallel communication.
    pub cp: f64,
    /// Expert-parallel communication.
    pub ep: f64,
    /// Messages between pipeline stages.
    pub pp: f64,
    /// Gradients and weights between copies.
    pub dp: f64,
    /// Waiting for another stage's computation.
    pub bubble: f64,
    /// The optimizer's kernels.
    pub optimizer: f64,
    /// Jitter, data loading, the loop around the step.
    pub other: f64,
}

impl BreakdownSeconds {
    pub(crate) fn of(breakdown: &Breakdown) -> Self {
        let of = |share| breakdown.get(share).as_secs_f64();
        Self {
            compute: of(Share::Compute),
            tp: of(Share::Tp),
            cp: of(Share::Cp),
            ep: of(Share::Ep),
            pp: of(Share::Pp),
            dp: of(Share::Dp),
            bubble: of(Share::Bubble),
            optimizer: of(Share::Optimizer),
            other: of(Share::Other),
        }
    }

    /// How long a GPU does what.
    pub(crate) fn phases(&self) -> Phases {
        Phases {
            compute_s: self.compute + self.optimizer,
            communicate_s: self.communication(),
            idle_s: self.bubble + self.other,
        }
    }

    /// The mean of several; nothing of none.
    pub(crate) fn mean<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let all: Vec<&Self> = all.into_iter().collect();
        let of = |part: fn(&Self) -> f64| {
            all.iter().map(|parts| part(parts)).sum::<f64>() / all.len() as f64
        };
        (!all.is_empty()).then(|| Self {
            compute: of(|parts| parts.compute),
            tp: of(|parts| parts.tp),
            cp: of(|parts| parts.cp),
            ep: of(|parts| parts.ep),
            pp: of(|parts| parts.pp),
            dp: of(|parts| parts.dp),
            bubble: of(|parts| parts.bubble),
            optimizer: of(|parts| parts.optimizer),
            other: of(|parts| parts.other),
        })
    }

    /// The parts with what people call them, in the order of the keys.
    pub fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("compute", self.compute),
            ("tensor parallel", self.tp),
            ("context parallel", self.cp),
            ("expert parallel", self.ep),
            ("pipeline messages", self.pp),
            ("data parallel", self.dp),
            ("pipeline bubble", self.bubble),
            ("optimizer", self.optimizer),
            ("other", self.other),
        ]
    }

    /// The step. Readers who add the parts in their order get the same bits.
    pub fn total(&self) -> f64 {
        self.named().iter().fold(0.0, |sum, (_, part)| sum + part)
    }

    /// Communication that nothing hides.
    pub fn communication(&self) -> f64 {
        self.tp + self.cp + self.ep + self.pp + self.dp
    }
}

/// How the scale-out links were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Links {
    /// The busiest link's bytes over what it could have carried in the step.
    pub max_utilisation: f64,
    /// Busiest over mean, in the tier where that is worst.
    pub imbalance: f64,
}

impl Links {
    fn of(links: &step::network::LinkSummary) -> Self {
        Self { max_utilisation: links.max_utilisation, imbalance: links.imbalance }
    }
}

/// A busy link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstLink {
    /// What people call it.
    pub link: String,
    /// Over the step.
    pub utilisation: f64,
    /// Who is on it.
    pub why: String,
}

impl WorstLink {
    fn of(worst: &step::network::WorstLink) -> Self {
        let (link, why) = (worst.name.clone(), worst.why.clone());
        Self { link, utilisation: worst.utilisation, why }
    }
}

/// One kind of communication on the whole cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseRow {
    /// The axis.
    pub axis: &'static str,
    /// Whose it is.
    pub groups_of: &'static str,
    /// What they do.
    pub collective: &'static str,
    /// Of so many bytes, as the collective counts them.
    pub bytes: u64,
    /// So many groups at once.
    pub groups: u64,
    /// Whether it leaves the scale-up domain and was run on the fabric.
    pub on_fabric: bool,
    /// One group, undisturbed.
    pub alone_s: f64,
    /// The slowest of all.
    pub slowest_s: f64,
    /// Slowest over undisturbed.
    pub slowdown: f64,
    /// What the step would be shorter if the groups of this phase alone met nobody.
    pub cost_s: f64,
    /// The busiest link while it lasts, as a share of that link's rate.
    pub busiest_utilisation: f64,
    /// What that link carries.
    pub busiest_bps: f64,
}

/// A different world.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variant {
    /// What is different.
    pub what: &'static str,
    /// Goodput then.
    pub goodput: f64,
}

/// A step in which one link is free.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FreeLink {
    /// Which link.
    pub link: String,
    /// Its share of the step at full rate, as things are.
    pub utilisation: f64,
    /// How long the step would take.
    pub step_s: f64,
    /// The share of the step that would be gained.
    pub gained: f64,
}

/// What a GPU holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// What it has.
    pub capacity_bytes: u64,
    /// What it needs.
    pub total_bytes: u64,
    /// Weights.
    pub weights_bytes: u64,
    /// Gradients.
    pub gradients_bytes: u64,
    /// Optimizer state.
    pub optimizer_bytes: u64,
    /// Activations.
    pub activations_bytes: u64,
    /// Logits.
    pub logits_bytes: u64,
    /// The framework's own.
    pub framework_bytes: u64,
    /// The pipeline stage that needs most.
    pub stage: u64,
}

/// How to predict it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// On which engine.
    pub engine: Engine,
    /// Whether it may take long.
    pub patience: Patience,
    /// Where anybody will look at pictures.
    pub drawing: Drawing,
    /// Whether to run the step again with its busiest link free, as a check of the attribution;
    /// on engines where that is cheap.
    pub ask_what_if: bool,
    /// Whether to run the whole step on one clock, even if nothing needs it.
    pub whole: bool,
}

/// Predicts one step of the scenario's job, for its figures.
pub fn run(
    loaded: &Loaded,
    engine: Engine,
    patience: Patience,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    run_once(loaded, engine, patience, false, watch)
}

/// The same on one clock, if somebody asks for it.
pub fn run_once(
    loaded: &Loaded,
    engine: Engine,
    patience: Patience,
    whole: bool,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    let (drawing, ask_what_if) = (Drawing::Omitted, false);
    let options = Options { engine, patience, drawing, ask_what_if, whole };
    run_and(loaded, &options, Repeat::ONCE, watch, |_, _| Ok(()))
}

/// The same under several seeds, with what else is wanted; `also` sees what the report is made
/// from. The figures are the first seed's, and how they are spread over all.
pub fn run_and(
    loaded: &Loaded,
    options: &Options,
    repeat: Repeat<'_>,
    watch: &mut packetsim::Watch<'_>,
    also: impl FnOnce(&JobWorld<'_>, &Prediction) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let Options { engine, patience, drawing, ask_what_if, whole } = *options;
    let clock = Meter::start();
    let way = Way::asked(loaded, engine, whole)?;
    let (world, circuits) = circuits::world(loaded, engine)?;
    let predicted = match way {
        Way::TwoLevel => on_engine(loaded, &world, engine, patience, watch)?,
        Way::Whole => whole::on_one_clock(loaded, &world, engine, patience, watch)?,
    };
    let Predicted { prediction, .. } = &predicted;
    also(&world, prediction)?;
    let asked = ask_what_if && engine.repeats_steps() && way == Way::TwoLevel;
    let what_if = if asked { what_if(loaded, &world, prediction, engine)? } else { None };
    let others = seeds::others(loaded, repeat, |loaded, watch| {
        run_once(loaded, engine, patience, whole, watch).map(|report| figures(&report))
    })?;
    let mut lanes = lanes::Lanes::of(&world, prediction, drawing);
    if let Some((WholeStep { disturbed: Some(disturbed), .. }, _)) = &predicted.whole {
        lanes.add_faults(&disturbed.within(prediction.step.as_secs_f64()));
    }
    let beside = ReportParts { circuits, what_if, lanes, others, repeat };
    Ok(report(loaded, &world, &predicted, engine, beside, &clock))
}

/// The job on the fabric on which [`run_and`] predicts it.
pub fn world(loaded: &Loaded, engine: Engine) -> Result<JobWorld<'_>, Failure> {
    circuits::world(loaded, engine).map(|(world, _)| world)
}

/// What is told of every seed.
fn figures(report: &Report) -> Vec<seeds::Value> {
    let mut figures = vec![
        ("step".to_owned(), "s", report.step_s),
        ("tokens per second".to_owned(), "", report.tokens_per_s),
        ("TFLOP/s per GPU".to_owned(), "TFLOP/s", report.tflops_per_gpu),
        ("model FLOPs utilisation".to_owned(), "share", report.mfu),
        ("exposed communication".to_owned(), "share", report.exposed_communication),
        ("goodput".to_owned(), "share", report.goodput),
        ("busiest link over mean".to_owned(), "", report.links.imbalance),
    ];
    let parts = report.breakdown_s.named().into_iter().filter(|(_, seconds)| 0.0 < *seconds);
    figures.extend(parts.map(|(name, seconds)| (name.to_owned(), "s", seconds)));
    figures
}

/// What would be gained if the busiest link were free.
fn what_if(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    prediction: &Prediction,
    engine: Engine,
) -> Result<Option<FreeLink>, Failure> {
    let Some(worst) = prediction.links.worst.first() else { return Ok(None) };
    let free = with_free_link(loaded, world, engine, (prediction, worst.link))?;
    let [step_s, now_s] = [&free, prediction].map(|p| BreakdownSeconds::of(&p.breakdown).total());
    let gained = 1.0 - step_s / now_s;
    let (link, utilisation) = (worst.name.clone(), worst.utilisation);
    Ok(Some(FreeLink { link, utilisation, step_s, gained }))
}

/// What stands in a report beside the step.
struct ReportParts<'a> {
    circuits: Option<Circuits>,
    what_if: Option<FreeLink>,
    lanes: lanes::Lanes,
    /// What the other seeds answered.
    others: Vec<Vec<seeds::Value>>,
    repeat: Repeat<'a>,
}

fn report(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    predicted: &Predicted,
    engine: Engine,
    beside: ReportParts<'_>,
    clock: &Meter,
) -> Report {
    let Predicted { prediction, scaled, whole } = predicted;
    let ReportParts { circuits, what_if, lanes, others, repeat } = beside;
    let breakdown_s = BreakdownSeconds::of(&prediction.breakdown);
    let step_s = breakdown_s.total();
    let exposed = breakdown_s.communication() / step_s;
    let size = campaign::run_size(world.job, world.fabric(), exposed);
    let reliability = loaded.scenario.reliability.goodput(size);
    let variants = loaded.scenario.reliability.variants(size);
    let goodput = reliability.goodput;
    let interval = Interval::of_step(world, engine, exposed, || at_ends(loaded, world));
    let cost = bill(loaded, world, &breakdown_s, prediction.tokens, goodput);
    let cost = cost.within(interval.low, interval.high);
    let left_out = seeds::left_out(1 + others.len(), repeat);
    let (step_low_s, step_high_s) = interval.of_time(step_s);
    let first = Report {
        verdict: Verdict::default(),
        step_s,
        step_low_s,
        step_high_s,
        interval,
        way: if whole.is_some() { Way::Whole } else { Way::TwoLevel },
        whole: whole.as_ref().map(|(told, _)| told.clone()),
        tokens_per_s: prediction.tokens / step_s,
        tflops_per_gpu: prediction.tflops_per_gpu,
        mfu: prediction.mfu,
        breakdown_s,
        causes_s: CausesSeconds::of(prediction),
        links: Links::of(&prediction.links),
        worst_links: prediction.links.worst.iter().map(WorstLink::of).collect(),
        goodput,
        gpus: world.job.layout.gpus(),
        tokens_per_step: prediction.tokens,
        exposed_communication: exposed,
        constraint: constraint(&breakdown_s),
        critical_path: told(prediction),
        phases: prediction.phases.iter().map(|run| phase(world, prediction, run)).collect(),
        memory: memory_of(world),
        model: ModelFigures::of(world.job),
        reliability,
        goodput_if: variants.into_iter().map(|(what, goodput)| Variant { what, goodput }).collect(),
        what_if,
        circuits,
        scaled: scaled.clone(),
        seeds: None,
        campaign: None,
        capture: None,
        cost,
        targets: Vec::new(),
        findings: findings(world, predicted, left_out),
        cpu_cores: cpu_cores(loaded, prediction, step_s),
        steps: None,
        wall_s: clock.wall_s(),
        cpu_s: clock.cpu_s(),
        peak_rss_bytes: meter::peak_rss_bytes(),
        drawn: page::Drawn::of(loaded, world, engine, lanes),
    };
    let seeds = (1 < repeat.seeds).then(|| {
        let answers: Vec<_> = std::iter::once(figures(&first)).chain(others).collect();
        Seeds::of(loaded.scenario.seed, &answers)
    });
    judged(loaded, world, (prediction, engine), Report { seeds, ..first })
}

/// The report with its verdict, and with the targets that it meets or misses.
fn judged(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    predicted: (&Prediction, Engine),
    report: Report,
) -> Report {
    let targets = targets::of_step(loaded, &report);
    let verdict = Verdict::of(loaded, world, predicted, &report);
    Report { verdict, targets, ..report }
}

/// Cores of the busiest server that the transport takes over the step.
fn cpu_cores(loaded: &Loaded, prediction: &Prediction, step_s: f64) -> Option<f64> {
    let on_fabric = |phase: &&step::network::Phase| !phase.links.is_empty();
    let phases: Vec<_> = prediction.phases.iter().filter(on_fabric).collect();
    let repeats = |phase: &step::network::Phase| {
        prediction.repeats.get(&phase.exchange.key()).copied().unwrap_or(0.0)
    };
    let bytes = |link: LinkId| -> f64 {
        let carried = phases.iter().map(|phase| repeats(phase) * phase.links[link].bytes as f64);
        carried.sum()
    };
    (!phases.is_empty()).then(|| engine::cpu_cores(loaded, &bytes, step_s))
}

/// The longest part that is not computation, in words.
pub(crate) fn constraint(parts: &BreakdownSeconds) -> String {
    let named = parts.named();
    let others = named.iter().filter(|(name, _)| *name != "compute");
    let longest = others.max_by(|a, b| a.1.total_cmp(&b.1));
    match longest {
        Some((name, seconds)) if 0.0 < *seconds => {
            format!("{name} ({:.1} % of the step)", 100.0 * seconds / parts.total())
        }
        _ => "computation alone".to_owned(),
    }
}

/// The longest segments of the critical path, in the order of time.
fn told(prediction: &Prediction) -> Vec<String> {
    let mut segments = prediction.path.segments.clone();
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.length()));
    segments.truncate(TOLD_SEGMENTS);
    segments.sort_by_key(|segment| segment.from);
    let tell = |segment: &step::attribution::Segment| {
        format!("from {:.3} s: {}", segment.from.as_secs_f64(), segment.words())
    };
    segments.iter().map(tell).collect()
}

fn phase(world: &JobWorld<'_>, prediction: &Prediction, phase: &step::network::Phase) -> PhaseRow {
    let fabric = world.fabric();
    let own = prediction.costs.iter().find(|(key, _)| *key == phase.exchange.key());
    let seconds = phase.slowest.as_secs_f64().max(1e-12);
    let scale_out =
        |link: &LinkId| matches!(fabric.class(*link).kind, LinkKind::ScaleOut | LinkKind::Circuit);
    let carried = |link: LinkId| {
        let bytes_per_s = phase.links[link].bytes as f64 / seconds;
        (bytes_per_s / fabric.class(link).rate.bytes_per_s(), 8.0 * bytes_per_s)
    };
    let busiest = phase.links.ids().filter(scale_out).map(carried);
    let busiest = busiest.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    PhaseRow {
        busiest_utilisation: busiest.0,
        busiest_bps: busiest.1,
        axis: phase.exchange.kind.axis().word(),
        groups_of: words(phase.exchange.kind),
        collective: phase.exchange.collective.name(),
        bytes: phase.exchange.bytes.get(),
        groups: phase.groups,
        on_fabric: !phase.links.is_empty(),
        alone_s: phase.alone.as_secs_f64(),
        slowest_s: phase.slowest.as_secs_f64(),
        slowdown: phase.slowdown(),
        cost_s: own.map_or(0.0, |(_, cost)| cost.as_secs_f64()),
    }
}

fn findings(world: &JobWorld<'_>, predicted: &Predicted, left_out: Option<String>) -> Vec<String> {
    let mut findings: Vec<String> = left_out.into_iter().collect();
    findings.extend(other_operands(world));
    let of_phases = predicted.prediction.phases.iter().flat_map(|phase| &phase.findings);
    let noticed = predicted.whole.iter().flat_map(|(_, noticed)| noticed);
    for finding in of_phases.chain(noticed) {
        if !findings.contains(finding) {
            findings.push(finding.clone());
        }
    }
    findings
}

/// What products run with where the GPU lacks what was asked for.
fn other_operands(world: &JobWorld<'_>) -> Option<String> {
    let (gpu, asked) = (&world.gpu.title, world.job.operands());
    let runs = world.rates.runs(asked);
    let lacks = match asked {
        Operands::Fp4 => "fp4",
        Operands::Mxfp8 => "MXFP8",
        // Block scales run as MXFP8, which is what they are there for.
        Operands::Fp8Block if runs == Operands::Mxfp8 => return None,
        _ => "fp8",
    };
    let as_in = match runs {
        other if other == asked => return None,
        Operands::Bf16 | Operands::Fp32 => "bf16",
        Operands::Fp8Block => "fp8 with block scales",
        Operands::Mxfp8 => "MXFP8",
        Operands::Fp8 | Operands::Fp4 => "fp8",
    };
    Some(format!("{gpu} has no {lacks}: its matrix products take as long as in {as_in}"))
}

fn memory_of(world: &JobWorld<'_>) -> Memory {
    let usage = memory::usage(world.job);
    let fullest = usage.iter().max_by_key(|usage| usage.total()).expect("a job has a stage");
    let Usage { stage, weights, gradients, optimizer, activations, logits, framework, .. } =
        *fullest;
    Memory {
        capacity_bytes: (world.gpu.memory_gb.value * 1e9) as u64,
        total_bytes: fullest.total().get(),
        weights_bytes: weights.get(),
        gradients_bytes: gradients.get(),
        optimizer_bytes: optimizer.get(),
        activations_bytes: activations.get(),
        logits_bytes: logits.get(),
        framework_bytes: framework.get(),
        stage,
    }
}

/// What the job's share of the cluster costs and draws.
fn bill(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    parts: &BreakdownSeconds,
    tokens: f64,
    goodput: f64,
) -> Bill {
    let machines = machines(loaded, world.gpu, world.job.layout.gpus());
    money::bill(&loaded.scenario.prices, &machines, &parts.phases(), tokens, goodput)
}

/// So many GPUs of the cluster with their share of its network.
pub(crate) fn machines(loaded: &Loaded, gpu: &Gpu, gpus: u64) -> Machines {
    let parts_list = loaded.bill();
    let share = gpus as f64 / loaded.fabric().gpus().max(1) as f64;
    let (network_usd, network_w) = parts_list.of(&NETWORK);
    Machines {
        gpus,
        gpu_w: gpu.power_w.value,
        gpu_usd: (&gpu.price_usd).into(),
        host_w: gpu.host_w.as_ref().map_or(0.0, |watts| watts.value),
        host_usd: gpu.host_usd.as_ref().map_or(Dollars::default(), Dollars::from),
        network_w: network_w * share,
        network_usd: network_usd * share,
    }
}
