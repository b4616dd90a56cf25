//! The whole step of a job on one clock: every copy of every stage as one set of operations.
//!
//! [`predict`](crate::predict) runs phases of communication one by one and puts what they take into
//! a timeline of representative ranks. Here the same order of operations ([`job::program::order`])
//! is written out for all data-parallel copies, pipeline stages and expert groups, and one engine
//! runs it: what happens at a given time happens to whatever is under way then, and phases that
//! meet share the links.
//!
//! What is folded, because it is exact: a tensor group is one actor with its collectives inside
//! the server as closed forms (its ranks are alike), and chains of kernels are one wait. Messages
//! are written rank by rank. Jitter is drawn for every node; its mean is the closed form's.

mod cast;
mod once;
mod read;
mod score;
mod write;

use fabric::NodeId;
use fabric::fault::Faults;
use job::dispatch::Dispatch;
use job::program::Program;
use job::{Axis, GroupKind};
use traffic::collective::Detail;
use traffic::{Counters, NotRun, Outcome};
use units::Span;

use crate::attribution::critical_path;
use crate::breakdown::{self, Breakdown};
use crate::costs::Costing;
use crate::network::{Engine, Exchange, Network, Runner, Unserved, summary_of};
use crate::predict::{Assumptions, Prediction, WORST_LINKS, World, events, library_of};
use crate::timeline::Share;
use cast::Cast;
use once::Known;
pub use once::Once;
pub use read::Meeting;
use read::{Reading, last_copy};
use score::Stage;
pub use write::Sheet;
use write::{Book, Writing, write};

/// A step that was run whole.
#[derive(Clone, Debug)]
pub struct Whole {
    /// What the two-level way answers too, read off this run. Its phases are that way's.
    pub prediction: Prediction,
    /// Operations that the engine ran.
    pub operations: u64,
    /// What the engine counted.
    pub counters: Counters,
    /// Tensor groups, each one actor.
    pub actors: u64,
    /// Kernels and exchanges of one copy that became so many waits.
    pub folded: (u64, u64),
    /// Its exchanges on the fabric, and which of them met.
    pub meetings: Vec<Meeting>,
    /// What the engine noticed.
    pub findings: Vec<String>,
    /// What was run once and stands for others, where that was allowed.
    pub once: Option<Once>,
}

/// Operations of one stage above which a step is not written out.
const MOST_ACTS: u64 = 4_000_000;

/// A step before it is run: everything that can be said of it without an engine.
#[derive(Debug)]
pub struct Plan<'a> {
    world: World<'a>,
    assumptions: &'a Assumptions,
    network: Network<'a>,
    stages: Vec<Stage>,
    cast: Cast,
    /// The message between two stages.
    message: Exchange,
    /// How long it takes where it stays inside a server.
    message_inside: Option<Span>,
    /// The two-level way's answer.
    phases: Prediction,
}

impl<'a> Plan<'a> {
    /// Plans a step. `phases` is the two-level way's answer, whose phases say what each exchange
    /// takes by itself.
    pub fn new(
        world: World<'a>,
        assumptions: &'a Assumptions,
        phases: Prediction,
    ) -> Result<Self, Unserved> {
        let World { job, fabric, placement, rates, library, .. } = world;
        refuse(&world)?;
        let gpus_per_node = fabric.gpus_per_node().max(1) as u64;
        let library = library_of(job, library, &assumptions.overheads, gpus_per_node);
        let mut network = Network::new(fabric, job.layout, placement, library, None)
            .with_dispatch(Dispatch::of(job, gpus_per_node));
        let program = Program::new(job);
        let mut costing = Costing::new(&program, rates, &assumptions.overheads, &mut network);
        let stages: Result<Vec<Stage>, Unserved> =
            (0..job.layout.pp).map(|stage| score::stage(&mut costing, stage)).collect();
        let stages = stages?;
        let message = costing.message_exchange();
        let away = costing.network().leaves_the_domain(GroupKind::Pipeline);
        let message_inside = if away { None } else { Some(costing.network().time(message)?) };
        let cast = Cast::new(job.layout);
        Ok(Self { world, assumptions, network, stages, cast, message, message_inside, phases })
    }

    /// Lets the GPUs be slow that these faults make slow, at their times.
    #[must_use]
    pub fn with_faults(mut self, faults: &Faults) -> Self {
        self.cast.set_paces(&self.network, faults);
        self
    }

    /// The GPUs of the job.
    pub fn gpus(&self) -> Vec<NodeId> {
        (0..self.world.job.layout.gpus()).map(|rank| self.network.gpu(rank)).collect()
    }

    /// Writes the step with so many others before it: how slow nodes are is drawn anew for each.
    pub fn write(
        &mut self,
        drawn: (u64, u32),
        detail: Detail,
        most: usize,
    ) -> Result<Sheet, Unserved> {
        self.write_with(drawn, (detail, most), None)
    }

    /// The same with waits in the place of exchanges that are known.
    fn write_with(
        &mut self,
        (seed, step): (u64, u32),
        how: (Detail, usize),
        known: Option<(&Known, &Book)>,
    ) -> Result<Sheet, Unserved> {
        let Assumptions { jitter, stragglers, overheads } = self.assumptions;
        self.cast.slow_down(&self.network, jitter, stragglers, (seed, step));
        write(self.writing(how, known), overheads.per_step)
    }

    fn writing<'w>(
        &'w mut self,
        (detail, most): (Detail, usize),
        known: Option<(&'w Known, &'w Book)>,
    ) -> Writing<'w, 'a> {
        let (known, book) = known.unzip();
        let (message, message_inside) = (self.message, self.message_inside);
        let (network, cast, stages) = (&self.network, &mut self.cast, &self.stages[..]);
        Writing { network, cast, stages, detail, most, message, message_inside, known, book }
    }

    /// Reads the step off what an engine made of it.
    pub fn read(&mut self, sheet: &Sheet, outcome: &Outcome) -> Result<Whole, Unserved> {
        refuse_unfinished(outcome)?;
        let World { job, fabric, .. } = self.world;
        let copy = last_copy(&self.stages, &self.cast, sheet, outcome);
        let blocking = !job.parallel.overlap.contains(&Axis::Pp);
        let (stages, overhead) = (&self.stages[..], self.assumptions.overheads.per_step);
        let reading = Reading { stages, sheet, outcome, blocking, overhead, copy };
        let network = &mut self.network;
        let meetings = reading.meetings(self.message, &mut |exchange| network.time(exchange));
        let line = reading.graph().run().expect("it has run on an engine");
        let busiest = breakdown::busiest_stage(&line);
        let events = events(job, self.assumptions, line.length());
        let breakdown = breakdown::of_stage(&line, busiest).with(Share::Other, events);
        let (step, phases) = (breakdown.total(), &self.phases);
        let causes = phases.causes.on_one_clock(&breakdown, overhead);
        let bytes: Vec<f64> = outcome.links.iter().map(|link| link.bytes as f64).collect();
        let seen: Vec<&_> = phases.phases.iter().collect();
        let links = summary_of(fabric, &bytes, (&seen, &phases.repeats), step, WORST_LINKS);
        let faster = phases.step.as_secs_f64() / step.as_secs_f64();
        let folded = stages.iter().map(|stage| (stage.unfolded, stage.nodes.len() as u64));
        let prediction = Prediction {
            step,
            tflops_per_gpu: phases.tflops_per_gpu * faster,
            mfu: phases.mfu * faster,
            breakdown,
            causes,
            links,
            path: critical_path(&line),
            line,
            ..phases.clone()
        };
        Ok(Whole {
            prediction,
            operations: sheet.transfers.ops().len() as u64,
            counters: outcome.counters,
            actors: self.cast.slowness.len() as u64,
            folded: folded.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
            meetings: meetings?,
            findings: outcome.findings.iter().map(|finding| finding.text.clone()).collect(),
            once: None,
        })
    }
}

/// Predicts a step on one clock. `phases` is the two-level way's answer, whose phases say what
/// each exchange takes by itself.
pub fn predict<'a>(
    world: World<'a>,
    assumptions: &'a Assumptions,
    seed: u64,
    runner: Runner<'a>,
    phases: Prediction,
) -> Result<Whole, Unserved> {
    let Runner { engine, detail, most_operations: most, once, .. } = runner;
    let mut plan = Plan::new(world, assumptions, phases)?;
    if 0 < once {
        let how = (detail, most);
        let (sheet, outcome, once) = once::run(&mut plan, (seed, 0), (how, once), engine)?;
        return Ok(Whole { once: Some(once), ..plan.read(&sheet, &outcome)? });
    }
    let sheet = plan.write((seed, 0), detail, most)?;
    let outcome = engine(world.fabric, &sheet.transfers).map_err(Unserved::NotRun)?;
    plan.read(&sheet, &outcome)
}

/// Where the time of a step on one clock goes if every exchange takes what it takes alone: what the
/// fabric costs is the difference. The waits that stand for exchanges are run on the engine, which
/// keeps the clock. `drawn` is the seed and how many steps come before.
pub fn undisturbed<'a>(
    world: World<'a>,
    assumptions: &'a Assumptions,
    drawn: (u64, u32),
    engine: &mut Engine<'_>,
    phases: Prediction,
) -> Result<Breakdown, Unserved> {
    let mut plan = Plan::new(world, assumptions, phases)?;
    let known = Known::alone(&mut plan)?;
    let how = (Detail::Folded, usize::MAX);
    let sheet = plan.write_with(drawn, how, Some((&known, &Book::default())))?;
    let outcome = engine(world.fabric, &sheet.transfers).map_err(Unserved::NotRun)?;
    Ok(plan.read(&sheet, &outcome)?.prediction.breakdown)
}

/// Refuses a step that did not end.
fn refuse_unfinished(outcome: &Outcome) -> Result<(), Unserved> {
    let lost = outcome.ops.len() - outcome.completed();
    if lost == 0 {
        return Ok(());
    }
    let told: Vec<&str> = outcome.findings.iter().take(2).map(|f| f.text.as_str()).collect();
    let reason = format!("{lost} operations of the step did not end: {}", told.join("; "));
    Err(Unserved::NotRun(NotRun::Refused(reason)))
}

/// Refuses what has no place on one clock yet.
fn refuse(world: &World<'_>) -> Result<(), Unserved> {
    let refused = |reason: &str| Err(Unserved::NotRun(NotRun::Refused(reason.to_owned())));
    let (job, program) = (world.job, Program::new(world.job));
    if world.reset.is_some() {
        return refused(
            "circuits that are set anew within a step are not written on one clock: leave out \
             --whole, or set fabric.circuits.schedule otherwise",
        );
    }
    let longest = (0..job.layout.pp).map(|stage| program.operations_about(stage)).max();
    if longest.is_some_and(|acts| MOST_ACTS < acts) {
        return refused("the step has too many microbatches to be written out whole");
    }
    Ok(())
}
