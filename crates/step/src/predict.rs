//! One step of a job on a fabric: its length, where the time goes, and what follows from it.
//!
//! The passes' costs ([`costs`](crate::costs)) are put together ([`assemble`](crate::assemble)) and
//! run. Then every rank's computation is made slower by the expected slowest of all nodes
//! ([`jitter`](crate::jitter)) and the step is run again; the difference is `other`, together with
//! what happens once per step. So the breakdown adds up to the step exactly.

use fabric::Fabric;
use job::Job;
use job::compute::GpuRates;
use job::dispatch::Dispatch;
use job::model::Masking;
use job::placement::Placement;
use job::program::Program;
use traffic::nccl::Settings;
use units::Span;

use crate::assemble::{StepInput, StepTime};
use crate::attribution::{Path, critical_path};
use crate::breakdown::Breakdown;
use crate::causes::{ByAxis, Cause, Causes};
use crate::costs::{Costing, exchange_of};
use crate::jitter::{Jitter, Straggler};
use crate::network::{
    Engine, Key, LinkSummary, Network, Phase, Repeats, Reset, Runner, Unserved, link_summary,
};
use crate::overheads::Overheads;
use crate::timeline::{Share, Timeline};

/// The job, and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The job.
    pub job: &'a Job,
    /// The network.
    pub fabric: &'a Fabric,
    /// How its circuits are set anew within the step, if they are.
    pub reset: Option<Reset<'a>>,
    /// Which rank runs on which GPU.
    pub placement: &'a Placement,
    /// What the GPU can do.
    pub rates: &'a GpuRates,
    /// The communication library.
    pub library: &'a Settings,
}

/// What is assumed of software and machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assumptions {
    /// The software's constants.
    pub overheads: Overheads,
    /// How unequal ranks are.
    pub jitter: Jitter,
    /// Named slow parts.
    pub stragglers: Vec<Straggler>,
}

/// A predicted step.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// How long it takes.
    pub step: Span,
    /// Tokens of one step.
    pub tokens: f64,
    /// Model FLOPs of one GPU per second, causal attention counted once, in 10¹².
    pub tflops_per_gpu: f64,
    /// That over the bf16 peak.
    pub mfu: f64,
    /// Where the time goes.
    pub breakdown: Breakdown,
    /// The same time by cause.
    pub causes: Causes,
    /// What each axis's exchanges come to, by cause.
    pub by_cause: ByAxis,
    /// What the fabric made of each phase of communication.
    pub phases: Vec<Phase>,
    /// How often each phase's bytes are moved in one step, as a multiple of the phase that was run.
    pub repeats: Repeats,
    /// How much shorter the step were if the groups of one phase met nobody and all others did as
    /// they do, the most first; phases that are not slower than alone are not among them.
    pub costs: Vec<(Key, Span)>,
    /// How the links were used.
    pub links: LinkSummary,
    /// Why it takes as long as it does.
    pub path: Path,
    /// Every operation, without jitter.
    pub line: Timeline,
}

impl Prediction {
    /// Tokens per second.
    pub fn tokens_per_s(&self) -> f64 {
        self.tokens / self.step.as_secs_f64()
    }

    /// The share of the step that is exposed communication.
    pub fn exposed_communication(&self) -> f64 {
        self.breakdown.communication().as_secs_f64() / self.step.as_secs_f64()
    }
}

/// How many worst links a prediction names.
pub(crate) const WORST_LINKS: usize = 8;

/// Predicts one step; without an engine by the closed form of every collective.
pub fn predict<'a>(
    world: World<'a>,
    assumptions: &Assumptions,
    engine: Option<&'a mut Engine<'a>>,
) -> Result<Prediction, Unserved> {
    predict_on(world, assumptions, engine.map(Runner::folded))
}

/// The same on an engine that wants its transfers in a way of its own.
pub fn predict_on<'a>(
    world: World<'a>,
    assumptions: &Assumptions,
    runner: Option<Runner<'a>>,
) -> Result<Prediction, Unserved> {
    let World { job, fabric, rates, .. } = world;
    let mut network = network(world, assumptions, runner);
    let program = Program::new(job);
    let mut costing = Costing::new(&program, rates, &assumptions.overheads, &mut network);
    let input = slowed(costing.input()?, job, assumptions);
    let repeats = costing.repeats();
    let counted = program.counted();
    let often =
        counted.iter().map(|one| (exchange_of(&one.call), one.times as f64 * one.groups as f64));
    let by_cause = network.by_cause(often.clone())?;
    let (even, late) = run(&input, world, assumptions);
    let breakdown = even.breakdown.with(Share::Other, late);
    let step = breakdown.total();
    let mut costing = Costing::new(&program, rates, &assumptions.overheads, &mut network);
    let costs = costs(&mut costing, &input, even.length)?;
    network.disturb_nobody();
    let mut costing = Costing::new(&program, rates, &assumptions.overheads, &mut network);
    let alone = costing.input()?;
    let alone = (alone, network.by_cause(often)?);
    let causes = causes((&input, &even, &by_cause), alone, late);

    let phases: Vec<Phase> = network.phases().cloned().collect();
    let seen: Vec<&Phase> = phases.iter().collect();
    let links = link_summary(fabric, &seen, &repeats, step, WORST_LINKS);
    let tokens = job.batch.sequences as f64 * job.batch.length as f64;
    let flops = job.model.model_flops(job.batch.length, Masking::Causal).total() as f64 * tokens;
    let tflops_per_gpu = flops / job.layout.gpus() as f64 / step.as_secs_f64() / 1e12;
    Ok(Prediction {
        step,
        tokens,
        tflops_per_gpu,
        mfu: tflops_per_gpu / rates.peak_bf16_tflops,
        breakdown,
        causes,
        by_cause,
        repeats,
        costs,
        links,
        path: critical_path(&even.line),
        line: even.line,
        phases,
    })
}

/// Where the time of a step goes by closed forms, and nothing else: for whoever looks at thousands.
pub fn breakdown(world: World<'_>, assumptions: &Assumptions) -> Result<Breakdown, Unserved> {
    let World { job, rates, .. } = world;
    let mut network = network(world, assumptions, None);
    let program = Program::new(job);
    let mut costing = Costing::new(&program, rates, &assumptions.overheads, &mut network);
    let input = slowed(costing.input()?, job, assumptions);
    let (even, late) = run(&input, world, assumptions);
    Ok(even.breakdown.with(Share::Other, late))
}

fn network<'a>(
    world: World<'a>,
    assumptions: &Assumptions,
    runner: Option<Runner<'a>>,
) -> Network<'a> {
    let World { job, fabric, reset, placement, library, .. } = world;
    let gpus_per_node = fabric.gpus_per_node().max(1) as u64;
    let library = library_of(job, library, &assumptions.overheads, gpus_per_node);
    Network::new(fabric, job.layout, placement, library, runner)
        .with_reset(reset)
        .with_dispatch(Dispatch::of(job, gpus_per_node))
}

/// A phase that takes more than this many times as long as alone may cost something.
const SLOWED: f64 = 1.001;

/// What each phase costs the step that contention makes longer: the step less the one in which that
/// phase alone takes what it takes alone.
fn costs(
    costing: &mut Costing<'_, '_>,
    input: &StepInput,
    length: Span,
) -> Result<Vec<(Key, Span)>, Unserved> {
    let slowed = |phase: &&Phase| !phase.links.is_empty() && SLOWED < phase.slowdown();
    let keys: Vec<Key> =
        costing.network().phases().filter(slowed).map(|phase| phase.exchange.key()).collect();
    let mut costs = Vec::new();
    for key in keys {
        costing.network().disturb_all_but(Some(key));
        let calm = StepInput { slowdown: input.slowdown.clone(), ..costing.input()? };
        costs.push((key, length.saturating_sub(calm.run().length)));
    }
    costing.network().disturb_all_but(None);
    costs.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
    Ok(costs)
}

/// With the named slow parts.
fn slowed(mut input: StepInput, job: &Job, assumptions: &Assumptions) -> StepInput {
    let straggling = |stage: u32| -> f64 {
        let factors = assumptions.stragglers.iter().map(|slow| slow.compute_factor(stage));
        factors.fold(1.0, f64::max)
    };
    input.slowdown = (0..job.layout.pp as u32).map(straggling).collect();
    input
}

/// The step with equal ranks, and what it is longer because they are not.
fn run(input: &StepInput, world: World<'_>, assumptions: &Assumptions) -> (StepTime, Span) {
    let even = input.run();
    let gpus_per_node = world.fabric.gpus_per_node().max(1) as u64;
    let nodes = (world.job.layout.gpus() / gpus_per_node).max(1);
    let jitter = 1.0 + assumptions.jitter.slowdown(nodes);
    let uneven = input.length_slowed(&even, jitter);
    let late = uneven.saturating_sub(even.length) + events(world.job, assumptions, even.length);
    (even, late)
}

/// The step by cause. What it is longer than without slow GPUs, and `late` for jitter, are
/// stragglers; what it is longer then than with every group alone is contention, told apart axis by
/// axis; the rest is what groups take alone.
fn causes(
    (input, even, by_cause): (&StepInput, &StepTime, &ByAxis),
    (mut alone, alone_by_cause): (StepInput, ByAxis),
    late: Span,
) -> Causes {
    let alike = vec![1.0; input.slowdown.len()];
    let mut stragglers = late.as_secs_f64();
    let mut disturbed = (even.length, even.breakdown);
    if input.slowdown != alike {
        let equal = StepInput { slowdown: alike.clone(), ..input.clone() }.run();
        if equal.length <= even.length {
            stragglers += even.length.saturating_sub(equal.length).as_secs_f64();
            disturbed = (equal.length, equal.breakdown);
        }
    }
    alone.slowdown = alike;
    let alone = alone.run();
    let (length, breakdown) = disturbed;
    let more = length.as_secs_f64() - alone.length.as_secs_f64();
    let contention = contention(&breakdown, &alone.breakdown, by_cause);
    let mut causes = if more <= 0.0 || contention.total() <= 0.0 {
        Causes::of(&breakdown, by_cause)
    } else {
        let mut causes = Causes::of(&alone.breakdown, &alone_by_cause);
        causes.add_all(&contention, more / contention.total());
        causes
    };
    causes.add(Cause::Stragglers, stragglers);
    causes
}

/// What each axis is longer for contention, by cause.
fn contention(breakdown: &Breakdown, alone: &Breakdown, by_cause: &ByAxis) -> Causes {
    let mut sum = Causes::default();
    for (axis, mix) in by_cause {
        let mut own = *mix;
        own.keep_contention();
        let more = breakdown.get(*axis).saturating_sub(alone.get(*axis)).as_secs_f64();
        if 0.0 < own.total() {
            sum.add_all(&own, more / own.total());
        }
    }
    sum
}

/// What short delays of single ranks add to a step: tensor groups and stages synchronise with every
/// layer, all ranks with every step.
pub(crate) fn events(job: &Job, assumptions: &Assumptions, step: Span) -> Span {
    let layers = job.model.layers.div_ceil(job.layout.pp) * job.microbatches * 2;
    let interval = Span::from_ps(step.as_ps() / layers.max(1));
    let ranks = job.layout.gpus();
    let share = assumptions.jitter.events.slowdown(ranks, interval);
    Span::from_secs_f64(step.as_secs_f64() * share)
}

/// The library's settings as a training step meets them.
pub fn library_of(
    job: &Job,
    library: &Settings,
    overheads: &Overheads,
    gpus_per_node: u64,
) -> Settings {
    let mut settings = library.clone();
    settings.launch = overheads.collective;
    if let Some(dispatch) = Dispatch::of(job, gpus_per_node) {
        let nodes = (job.layout.ep * job.layout.etp).div_ceil(gpus_per_node).max(1);
        settings.routing = dispatch.routing(nodes);
    }
    settings
}
