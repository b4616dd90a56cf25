//! Several jobs on one fabric, and several steps of one: all on one clock, state kept.
//!
//! Every job is written out whole and starts when it should; what it exchanges shares links with
//! what the others do. A job whose step is shorter than another's repeats it as long as the other
//! needs, so that nobody is left alone. Steps follow each other on the same connections: queue
//! pairs, rates and queues are kept, and how slow nodes are is drawn anew.
//!
//! Who slows whom is found by leaving each out in turn.

use fabric::{Fabric, LinkId, NodeId};
use report::Answer;
use scenario::import::compress;
use scenario::{Loaded, Member};
use serde::Serialize;
use step::predict::{Assumptions, Prediction};
use step::whole::{Plan, Sheet, Whole};
use traffic::{Finding, NotRun, OpId, OpKind, Outcome, Transfers};
use units::{Id, Span, Time};

use super::prediction::on_engine;
use super::whole::{self, Way, quiet, refuse_long};
use super::{BreakdownSeconds, page};
use crate::engine::{self, Cost, Engine};
use crate::failure::Failure;
use crate::meter::{self, Meter};
use crate::packets::{Budget, Patience};
use crate::seeds::{self, Repeat, Seeds, Spread};
use crate::work::{Work, work};
use crate::world::{JobWorld, assumptions};

mod sheet;

/// A job is repeated at most so often beside a longer one.
const MOST_REPEATS: u32 = 64;

/// So many shared links are named for two jobs.
const TOLD_LINKS: usize = 3;

/// A difference of steps that is no more than rounding, as a share of the step.
const ROUNDING: f64 = 1e-6;

/// How to run it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// On which engine.
    pub engine: Engine,
    /// Whether it may take long.
    pub patience: Patience,
    /// How many steps of the longest job.
    pub steps: u32,
}

/// How steps differ that follow each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Steps {
    /// How many there were.
    pub n: usize,
    /// Half of them are at or below.
    pub p50_s: f64,
    /// Ninety-nine of a hundred are.
    pub p99_s: f64,
    /// The longest.
    pub max_s: f64,
    /// The standard deviation over the mean.
    pub cv: f64,
    /// All of them, in their order.
    pub times_s: Vec<f64>,
}

impl Steps {
    /// How these, which are not none, differ.
    fn of(times_s: Vec<f64>) -> Self {
        let Spread { mean, p50, p99, .. } = Spread::of(&times_s);
        let squares: f64 = times_s.iter().map(|time| (time - mean).powi(2)).sum();
        let n = times_s.len();
        Self {
            n,
            p50_s: p50,
            p99_s: p99,
            max_s: times_s.iter().copied().fold(0.0, f64::max),
            cv: (squares / (n as f64 - 1.0).max(1.0)).sqrt() / mean,
            times_s,
        }
    }

    fn mean(&self) -> f64 {
        self.times_s.iter().sum::<f64>() / self.n.max(1) as f64
    }

    /// The same in a sentence.
    pub fn words(&self) -> String {
        let span = |seconds: f64| format!("{:.3}", Span::from_secs_f64(seconds));
        format!(
            "{} steps in a row, queue pairs and rates kept, nodes' jitter drawn anew for each: \
             median {}, p99 {}, longest {}, coefficient of variation {:.2} %.",
            self.n,
            span(self.p50_s),
            span(self.p99_s),
            span(self.max_s),
            100.0 * self.cv
        )
    }
}

/// Several jobs on one fabric.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How steps were put together.
    pub way: Way,
    /// The longest of the jobs' steps.
    pub step_s: f64,
    /// From 0 until the last of them is over: an iteration, where they come one after the other.
    pub all_s: f64,
    /// The jobs, in the order of the file.
    pub jobs: Vec<JobRow>,
    /// The synthetic traffic beside them, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficRow>,
    /// The same under other seeds, if that was asked for. Servers stay as the first deals them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Seeds>,
    /// Operations that the engine ran, all jobs together.
    pub operations: u64,
    /// What the engine noticed.
    pub findings: Vec<String>,
    /// Seconds that all runs took on the clock.
    pub wall_s: f64,
    /// Seconds that they took of the processor.
    pub cpu_s: f64,
    /// The most memory that the process has used.
    pub peak_rss_bytes: u64,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    engine: Engine,
}

/// One of the jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRow {
    /// Its name.
    pub name: String,
    /// A step beside the others, the mean of those that were run; of traffic, from its start until
    /// its last flow is over.
    pub step_s: f64,
    /// A step with nobody else on the fabric.
    pub alone_s: f64,
    /// One over the other.
    pub slowdown: f64,
    /// Its GPUs.
    pub gpus: u64,
    /// Its servers, as Slurm writes them.
    pub nodes: String,
    /// When its first step began.
    pub start_s: f64,
    /// When its last one ended.
    pub end_s: f64,
    /// Its steps beside the others.
    pub steps: Steps,
    /// Where the time of its first step goes.
    pub breakdown_s: BreakdownSeconds,
    /// Who slows it.
    pub slowed_by: Vec<SlowedBy>,
    /// What it is, in words.
    #[serde(skip)]
    words: String,
}

/// What one job does to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowedBy {
    /// Who slows it.
    pub by: String,
    /// By how much its step would be shorter without.
    pub seconds: f64,
    /// The links that both use, those first that both use most.
    pub links: Vec<String>,
}

/// The traffic beside the jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficRow {
    /// From its start until its last flow was over, beside the jobs.
    pub makespan_s: f64,
    /// The same without them.
    pub alone_s: f64,
    /// One over the other.
    pub slowdown: f64,
    /// Which jobs slow it.
    pub slowed_by: Vec<SlowedBy>,
}

impl Answer for Report {
    fn engine(&self) -> Option<&'static str> {
        Some(self.engine.name())
    }

    fn sheet(&self) -> report::Sheet {
        sheet::sheet(self)
    }
}

/// Somebody on the fabric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Who {
    Job(usize),
    Traffic,
}

/// A run of some of them.
struct Played {
    outcome: Outcome,
    /// By job: its steps, if it took part.
    steps: Vec<Vec<Stretch>>,
    /// Where the operations of the traffic are.
    traffic: std::ops::Range<usize>,
    operations: u64,
}

/// A step of a job, or its traffic.
struct Stretch {
    /// Of traffic none.
    sheet: Option<Sheet>,
    ops: std::ops::Range<usize>,
    /// The operation that ends it.
    end: OpId,
    from: Time,
    to: Option<Time>,
}

/// What a member does.
enum Act<'a> {
    /// Steps of a job.
    Job(Box<Plan<'a>>),
    /// Traffic, once.
    Traffic(Box<Work>),
}

/// Everything that takes part.
struct Stage<'s, 'a> {
    loaded: &'s Loaded,
    members: &'s [Member],
    fabric: &'s Fabric,
    acts: Vec<Act<'a>>,
    work: Option<Work>,
    options: Options,
}

impl Stage<'_, '_> {
    /// Runs some of them together, each job with so many steps.
    fn play(
        &mut self,
        who: &[Who],
        steps: &[u32],
        watch: &mut packetsim::Watch<'_>,
    ) -> Result<Played, Failure> {
        let mut transfers = Transfers::new();
        let label = transfers.label("start");
        let mut played: Vec<Vec<Stretch>> = Vec::new();
        let mut starts: Vec<OpId> = Vec::new();
        for (at, member) in self.members.iter().enumerate() {
            played.push(Vec::new());
            // Where the one before takes no part, the one before that counts.
            let earlier = std::iter::successors(member.after, |at| self.members[*at].after);
            let before = earlier.flat_map(|at| played[at].last()).next().map(|last| last.end);
            let wait = OpKind::Wait { span: member.start };
            starts.push(transfers.add(wait, label, before.as_slice()));
            if who.contains(&Who::Job(at)) {
                played[at] = self.write(at, (steps[at], starts[at]), &mut transfers)?;
            }
        }
        let first = transfers.ops().len();
        if let Some(work) = self.work.as_ref().filter(|_| who.contains(&Who::Traffic)) {
            transfers.append(&work.transfers, "traffic", &[], None);
        }
        let traffic = first..transfers.ops().len();
        let outcome = self.run(&transfers, watch)?;
        let over = |op: OpId| outcome.ops[op].map(|times| times.received);
        for (stretches, start) in played.iter_mut().zip(starts) {
            let mut from = over(start).unwrap_or(Time::ZERO);
            for stretch in stretches {
                (stretch.from, stretch.to) = (from, over(stretch.end));
                from = stretch.to.unwrap_or(from);
            }
        }
        let operations = transfers.ops().len() as u64;
        Ok(Played { steps: played, traffic, operations, outcome })
    }

    /// Writes what a member does, so many times, after an operation.
    fn write(
        &mut self,
        at: usize,
        (steps, start): (u32, OpId),
        transfers: &mut Transfers,
    ) -> Result<Vec<Stretch>, Failure> {
        let member = &self.members[at];
        let (mut after, mut same) = (start, None);
        let mut stretches = Vec::new();
        let nowhere = (Time::ZERO, None);
        let plan = match &mut self.acts[at] {
            Act::Job(plan) => plan,
            Act::Traffic(work) => {
                let own = transfers.append(&work.transfers, &member.name, &[start], None);
                let last: Vec<OpId> = own.ops.clone().map(OpId::from_index).collect();
                let label = transfers.label(format!("{}: end", member.name));
                let end = transfers.add(OpKind::Wait { span: Span::ZERO }, label, &last);
                let (from, to) = nowhere;
                return Ok(vec![Stretch { sheet: None, ops: own.ops, end, from, to }]);
            }
        };
        for step in 0..steps {
            let most = self.options.patience.most_operations();
            let most = most.saturating_sub(transfers.ops().len());
            let detail = self.options.engine.detail();
            let sheet = plan.write((self.loaded.scenario.seed, step), detail, most)?;
            let first = transfers.connections().len();
            let own = transfers.append(&sheet.transfers, &member.name, &[after], same.as_ref());
            if same.is_none() {
                transfers.set_service_level(first, member.class);
            }
            let end = OpId::from_index(own.ops.start + sheet.end.index());
            after = end;
            let (from, to) = nowhere;
            stretches.push(Stretch { sheet: Some(sheet), ops: own.ops.clone(), end, from, to });
            same = same.or(Some(own));
        }
        Ok(stretches)
    }

    fn run(
        &self,
        transfers: &Transfers,
        watch: &mut packetsim::Watch<'_>,
    ) -> Result<Outcome, NotRun> {
        let Options { engine, patience, .. } = self.options;
        refuse_long(self.loaded, self.fabric, engine, transfers, &mut Budget::new(patience))?;
        watch.expected_events = engine::events(self.loaded, self.fabric, engine, transfers);
        engine::run_whole(self.loaded, self.fabric, engine, transfers, watch)
    }

    /// The steps of a job in a run, and where the time of the first goes.
    fn steps(&mut self, played: &Played, at: usize) -> Result<(Steps, BreakdownSeconds), Failure> {
        let (mut times, mut parts) = (Vec::new(), BreakdownSeconds::default());
        for stretch in &played.steps[at] {
            match (&mut self.acts[at], &stretch.sheet) {
                (Act::Job(plan), Some(sheet)) => {
                    let own = played.outcome.part(stretch.ops.clone(), stretch.from);
                    let breakdown =
                        BreakdownSeconds::of(&plan.read(sheet, &own)?.prediction.breakdown);
                    if times.is_empty() {
                        parts = breakdown;
                    }
                    times.push(breakdown.total());
                }
                _ => {
                    let name = &self.members[at].name;
                    let to = stretch.to.ok_or_else(|| {
                        Failure::Run(format!("not all of the traffic of {name} ended"))
                    })?;
                    times.push(to.since(stretch.from).as_secs_f64());
                }
            }
        }
        Ok((Steps::of(times), parts))
    }

    /// From when the traffic begins until it is over.
    fn makespan(&self, played: &Played) -> Result<f64, Failure> {
        let ops = played.traffic.clone().map(|at| played.outcome.ops[OpId::from_index(at)]);
        let ends = ops.map(|times| times.map(|times| times.finish));
        let ends: Option<Vec<Time>> = ends.collect();
        let Some(ends) = ends else {
            return Err(Failure::Run("not all of the traffic beside the jobs ended".to_owned()));
        };
        let starts = self.work.iter().flat_map(|work| &work.parts).map(|part| part.start);
        let start = starts.min().unwrap_or(Span::ZERO);
        let end = ends.into_iter().max().unwrap_or(Time::ZERO).since(Time::ZERO);
        Ok(end.saturating_sub(start).as_secs_f64())
    }
}

/// What each takes by itself.
struct AloneTimes {
    /// By job: a step.
    step_s: Vec<f64>,
    /// The traffic.
    makespan_s: f64,
    /// By whom, jobs first: the bytes of each link over what it can carry in that time.
    loads: Vec<Vec<f64>>,
}

/// Runs the jobs of a scenario, and the traffic beside them, on one clock.
pub fn run(
    loaded: &Loaded,
    options: Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    let clock = Meter::start();
    let members = &loaded.members[..];
    let Ready { worlds, assumed } = Ready::of(members)?;
    let mut stage = stage(loaded, members, (&worlds, &assumed), options, watch)?;
    let (alone, counts) = alone(&mut stage, watch)?;
    let everybody = everybody(&stage);
    let together = stage.play(&everybody, &counts, watch)?;
    let mut rows = Vec::new();
    let all = together_s(&mut stage, &together)?;
    let without = leave_out(&mut stage, &everybody, &counts, &alone, watch)?;
    for (at, world) in worlds.iter().enumerate() {
        let (steps, breakdown_s) = stage.steps(&together, at)?;
        let own = (Who::Job(at), all[at]);
        let slowed_by = slowed_by(&stage, &everybody, own, &without, &alone);
        let member = &members[at];
        rows.push(JobRow {
            name: member.name.clone(),
            step_s: steps.mean(),
            alone_s: alone.step_s[at],
            slowdown: steps.mean() / alone.step_s[at],
            gpus: world.as_ref().map_or(0, |world| world.job.layout.gpus()),
            nodes: hosts(loaded.fabric(), member),
            start_s: together.steps[at].first().map_or(0.0, |one| one.from.as_secs_f64()),
            end_s: end_s(&together, at),
            steps,
            breakdown_s,
            slowed_by,
            words: match world {
                Some(world) => page::job_words(world.job),
                None => "synthetic traffic".to_owned(),
            },
        });
    }
    let traffic = stage.work.is_some().then(|| {
        let makespan_s = all[members.len()];
        let own = (Who::Traffic, makespan_s);
        TrafficRow {
            makespan_s,
            alone_s: alone.makespan_s,
            slowdown: makespan_s / alone.makespan_s,
            slowed_by: slowed_by(&stage, &everybody, own, &without, &alone),
        }
    });
    let findings = together.outcome.findings.iter().map(|finding| finding.text.clone());
    Ok(Report {
        way: Way::Whole,
        step_s: rows.iter().map(|row| row.step_s).fold(0.0, f64::max),
        all_s: rows.iter().map(|row| row.end_s).fold(0.0, f64::max),
        jobs: rows,
        traffic,
        seeds: None,
        operations: together.operations,
        findings: findings.collect(),
        wall_s: clock.wall_s(),
        cpu_s: clock.cpu_s(),
        peak_rss_bytes: meter::peak_rss_bytes(),
        title: loaded.title(),
        engine: options.engine,
    })
}

/// When a member's last step ended.
fn end_s(played: &Played, at: usize) -> f64 {
    played.steps[at].last().and_then(|last| last.to).map_or(0.0, Time::as_secs_f64)
}

/// The same under several seeds: the figures are the first one's, and how they are spread.
pub fn run_seeds(
    loaded: &Loaded,
    options: Options,
    repeat: Repeat<'_>,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Report, Failure> {
    let first = run(loaded, options, watch)?;
    let ask = |loaded: &Loaded, watch: &mut packetsim::Watch<'_>| {
        run(loaded, options, watch).map(|report| report.figures())
    };
    let others = seeds::others(loaded, repeat, ask)?;
    let seeds = (1 < repeat.seeds).then(|| {
        let answers: Vec<_> = std::iter::once(first.figures()).chain(others).collect();
        Seeds::of(loaded.scenario.seed, &answers)
    });
    Ok(Report { seeds, ..first })
}

impl Report {
    /// What is told of every seed.
    fn figures(&self) -> Vec<seeds::Value> {
        let mut figures = vec![("until all are over".to_owned(), "s", self.all_s)];
        for job in &self.jobs {
            figures.push((format!("{}: step", job.name), "s", job.step_s));
            figures.push((format!("{}: slowdown", job.name), "", job.slowdown));
        }
        figures
    }
}

/// What that will cost: every job by itself, all together, and all but each.
pub fn cost(loaded: &Loaded, engine: Engine) -> Result<Cost, Failure> {
    let mut all = Cost::default();
    for member in loaded.members.iter().filter(|member| member.loaded.job.is_some()) {
        let world = JobWorld::of(&member.loaded)?;
        let one = whole::cost(&member.loaded, &world, engine)?;
        all = Cost { seconds: all.seconds + one.seconds, memory: all.memory + one.memory };
    }
    let runs = loaded.members.len() as f64 + 2.0;
    Ok(Cost { seconds: all.seconds * runs, ..all })
}

/// So many steps of the scenario's only job, one after the other.
pub fn steps(
    loaded: &Loaded,
    options: Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Steps, Failure> {
    let name = loaded.title();
    let member = Member { name, start: Span::ZERO, class: 0, after: None, loaded: loaded.clone() };
    let members = &[member][..];
    let Ready { worlds, assumed } = Ready::of(members)?;
    let mut stage = stage(loaded, members, (&worlds, &assumed), options, watch)?;
    let played = stage.play(&[Who::Job(0)], &[options.steps], watch)?;
    stage.steps(&played, 0).map(|(steps, _)| steps)
}

/// Steps of one job in a row.
pub(super) struct Row {
    /// Those that ended.
    pub(super) wholes: Vec<Whole>,
    /// When each of them ended.
    pub(super) ends: Vec<Time>,
    /// The queue pair that gave up, if one did.
    pub(super) gave_up: Option<Finding>,
    /// What the engine noticed.
    pub(super) findings: Vec<String>,
    /// The GPUs of the job.
    pub(super) gpus: Vec<NodeId>,
}

impl Row {
    /// When each step began, and the one that did not end.
    pub(super) fn starts(&self) -> Vec<Time> {
        std::iter::once(Time::ZERO).chain(self.ends.iter().copied()).collect()
    }
}

/// Steps of a job in a row, until it ends.
pub(super) fn in_a_row(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    phases: Prediction,
    options: Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Row, Failure> {
    let (name, start) = (loaded.title(), Span::ZERO);
    let members = [Member { name, start, class: 0, after: None, loaded: loaded.clone() }];
    let assumed = assumptions(loaded);
    let plan = Plan::new(world.world(), &assumed, phases)?.with_faults(&loaded.faults);
    let (gpus, fabric) = (plan.gpus(), world.fabric());
    let (members, acts) = (&members[..], vec![Act::Job(Box::new(plan))]);
    let mut stage = Stage { loaded, members, fabric, acts, work: None, options };
    let played = stage.play(&[Who::Job(0)], &[options.steps], watch)?;
    let outcome = &played.outcome;
    let findings = outcome.findings.iter().map(|finding| finding.text.clone()).collect();
    let gave_up = outcome.gave_up.clone();
    let mut row = Row { wholes: Vec::new(), ends: Vec::new(), gave_up, findings, gpus };
    let Some(Act::Job(plan)) = stage.acts.first_mut() else { return Ok(row) };
    let ended = played.steps[0].iter().filter(|stretch| stretch.to.is_some()).count();
    for stretch in &played.steps[0] {
        if stretch.to.is_none() && row.gave_up.is_some() {
            break;
        }
        let Some(sheet) = &stretch.sheet else { break };
        let mut own = outcome.part(stretch.ops.clone(), stretch.from);
        // Links count over all steps; what a step sends is the same in each.
        for link in own.links.iter_mut() {
            link.bytes /= ended.max(1) as u64;
        }
        row.wholes.push(plan.read(sheet, &own)?);
        row.ends.extend(stretch.to);
    }
    Ok(row)
}

/// What plans are made from.
struct Ready<'m> {
    /// Of traffic none.
    worlds: Vec<Option<JobWorld<'m>>>,
    assumed: Vec<Assumptions>,
}

impl<'m> Ready<'m> {
    fn of(members: &'m [Member]) -> Result<Self, Failure> {
        let worlds: Result<Vec<_>, _> = members
            .iter()
            .map(|member| {
                let is_job = member.loaded.scenario.traffic.is_none();
                is_job.then(|| JobWorld::of(&member.loaded)).transpose()
            })
            .collect();
        let assumed = members.iter().map(|member| assumptions(&member.loaded)).collect();
        Ok(Self { worlds: worlds?, assumed })
    }
}

fn stage<'s, 'a: 's>(
    loaded: &'s Loaded,
    members: &'s [Member],
    (worlds, assumed): (&'a [Option<JobWorld<'a>>], &'a [Assumptions]),
    options: Options,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Stage<'s, 'a>, Failure> {
    let Options { engine, patience, .. } = options;
    patience.tell(watch);
    if !engine.has_contention() {
        let reason = "closed forms have no clock: several jobs, and several steps, are for \
                      --engine flow and packet";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let mut acts = Vec::new();
    for ((member, world), assumed) in members.iter().zip(worlds).zip(assumed) {
        let Some(world) = world else {
            acts.push(Act::Traffic(Box::new(work(&member.loaded, engine, patience)?)));
            continue;
        };
        let quiet = quiet(&member.loaded)?;
        let by_phases = engine.for_whole_clusters();
        let phases = on_engine(&quiet, world, by_phases, patience, watch)?.prediction;
        let plan = Plan::new(world.world(), assumed, phases)?.with_faults(&member.loaded.faults);
        if let Some(loss) = member.loaded.faults.loss_of(&plan.gpus()) {
            return Err(Failure::Run(format!(
                "`{}` ends the job {} ({}): what that costs says `run` on this job alone, without \
                 --steps",
                loss.name,
                member.name,
                loss.kind.name()
            )));
        }
        acts.push(Act::Job(Box::new(plan)));
    }
    let beside = loaded.beside.as_deref();
    let work = beside.map(|beside| work(beside, engine, patience)).transpose()?;
    let fabric = worlds.iter().flatten().next().map_or(loaded.fabric(), JobWorld::fabric);
    Ok(Stage { loaded, members, fabric, acts, work, options })
}

fn everybody(stage: &Stage<'_, '_>) -> Vec<Who> {
    let jobs = (0..stage.members.len()).map(Who::Job);
    jobs.chain(stage.work.is_some().then_some(Who::Traffic)).collect()
}

/// Runs each by itself, first with the steps that were asked for, then with as many as it has
/// beside the others: every step draws its own jitter, and only equal ones can be compared.
fn alone(
    stage: &mut Stage<'_, '_>,
    watch: &mut packetsim::Watch<'_>,
) -> Result<(AloneTimes, Vec<u32>), Failure> {
    let asked = vec![stage.options.steps; stage.members.len()];
    let mut alone = AloneTimes { step_s: Vec::new(), makespan_s: 0.0, loads: Vec::new() };
    for who in everybody(stage) {
        alone.add(stage, who, &asked, watch)?;
    }
    let counts = counts(stage.members, &alone, stage.options.steps);
    for (at, count) in counts.iter().enumerate().filter(|(at, count)| asked[*at] != **count) {
        let mut again = AloneTimes { step_s: Vec::new(), makespan_s: 0.0, loads: Vec::new() };
        let mut own = asked.clone();
        own[at] = *count;
        again.add(stage, Who::Job(at), &own, watch)?;
        (alone.step_s[at], alone.loads[at]) = (again.step_s[0], again.loads.remove(0));
    }
    Ok((alone, counts))
}

impl AloneTimes {
    fn add(
        &mut self,
        stage: &mut Stage<'_, '_>,
        who: Who,
        counts: &[u32],
        watch: &mut packetsim::Watch<'_>,
    ) -> Result<(), Failure> {
        let played = stage.play(&[who], counts, watch)?;
        let seconds = match who {
            Who::Job(at) => {
                let (steps, _) = stage.steps(&played, at)?;
                self.step_s.push(steps.mean());
                steps.times_s.iter().sum()
            }
            Who::Traffic => {
                self.makespan_s = stage.makespan(&played)?;
                self.makespan_s
            }
        };
        let load = |link: LinkId| engine::load(stage.fabric, &played.outcome, seconds, link);
        self.loads.push(played.outcome.links.ids().map(load).collect());
        Ok(())
    }
}

/// How many steps of each: as many as asked for of the one that takes longest, and of the others as
/// many as that takes.
fn counts(members: &[Member], alone: &AloneTimes, steps: u32) -> Vec<u32> {
    let ends = members.iter().zip(&alone.step_s);
    let ends = ends.map(|(member, step)| member.start.as_secs_f64() + f64::from(steps) * step);
    let last = ends.fold(0.0, f64::max);
    // Phases of an iteration are not repeated, and traffic is run once.
    let in_phases = members.iter().any(|member| member.after.is_some());
    let count = |(member, step): (&Member, &f64)| {
        if in_phases || member.loaded.job.is_none() {
            return steps;
        }
        let left = last - member.start.as_secs_f64();
        // Equal jobs have as many steps, whatever their jitter.
        let fits = (left / step - 0.05).ceil().clamp(1.0, f64::from(MOST_REPEATS)) as u32;
        fits.max(steps)
    };
    members.iter().zip(&alone.step_s).map(count).collect()
}

/// What each takes in a run, jobs first; nothing for those that take no part.
fn together_s(stage: &mut Stage<'_, '_>, played: &Played) -> Result<Vec<f64>, Failure> {
    let mut all = Vec::new();
    for at in 0..stage.members.len() {
        let took_part = !played.steps[at].is_empty();
        all.push(if took_part { stage.steps(played, at)?.0.mean() } else { 0.0 });
    }
    all.push(if played.traffic.is_empty() { 0.0 } else { stage.makespan(played)? });
    Ok(all)
}

/// By whom is left out: what each of the others takes then.
fn leave_out(
    stage: &mut Stage<'_, '_>,
    everybody: &[Who],
    counts: &[u32],
    alone: &AloneTimes,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Vec<Vec<f64>>, Failure> {
    let mut without = Vec::new();
    for out in everybody {
        if everybody.len() <= 2 {
            let mut all = alone.step_s.clone();
            all.push(alone.makespan_s);
            without.push(all);
            continue;
        }
        let others: Vec<Who> = everybody.iter().copied().filter(|who| who != out).collect();
        let played = stage.play(&others, counts, watch)?;
        without.push(together_s(stage, &played)?);
    }
    Ok(without)
}

/// Who slows one of them, by how much, and where they meet.
fn slowed_by(
    stage: &Stage<'_, '_>,
    everybody: &[Who],
    (own, own_s): (Who, f64),
    without: &[Vec<f64>],
    alone: &AloneTimes,
) -> Vec<SlowedBy> {
    let place = |who: Who| match who {
        Who::Job(at) => at,
        Who::Traffic => stage.members.len(),
    };
    let mut found = Vec::new();
    for (other, without) in everybody.iter().zip(without).filter(|(other, _)| **other != own) {
        let by = match other {
            Who::Job(at) => stage.members[*at].name.clone(),
            Who::Traffic => "traffic".to_owned(),
        };
        let [mine, theirs] = [own, *other].map(|who| &alone.loads[place(who)]);
        let both = mine.iter().zip(theirs).map(|(a, b)| a.min(*b)).enumerate();
        let mut both: Vec<(usize, f64)> = both.filter(|(_, both)| 0.0 < *both).collect();
        both.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        // Parallel cables have one name.
        let mut links: Vec<String> = Vec::new();
        for (at, _) in &both {
            let name = stage.fabric.link_name(LinkId::from_index(*at));
            if !links.contains(&name) {
                links.push(name);
            }
            if links.len() == TOLD_LINKS {
                break;
            }
        }
        let gained = own_s - without[place(own)];
        let seconds = if ROUNDING * own_s < gained.abs() { gained } else { 0.0 };
        if seconds != 0.0 || !links.is_empty() {
            found.push(SlowedBy { by, seconds, links });
        }
    }
    found
}

/// The servers of a job as Slurm writes them.
fn hosts(fabric: &Fabric, member: &Member) -> String {
    let nodes = member.loaded.nodes.iter().flatten();
    let names = nodes.map(|node| scenario::export::host_name(fabric, *node as usize));
    compress(&names.collect::<Vec<_>>())
}
