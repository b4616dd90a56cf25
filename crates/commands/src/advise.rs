//! `advise`: what to change, what it gains, and the files that do it.
//!
//! Candidates come from one file for each area: the network, the library, placement, the layout,
//! the fabric, operation, the transport; what a run makes look worthwhile comes from
//! [`levers`](crate::levers). Each is tried by the same functions as `run` ([`trial`]): first all
//! with the scenario's own seed, then the best with other seeds, then together, greedily. What a
//! change gains is compared seed by seed, and the interval is that of one more seed. The seed by
//! which candidates were chosen takes no part in it: the best of many on one seed is lucky there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use scenario::{Loaded, Purpose, Request};
use serde::Serialize;

use crate::change::{Change, Kind};
use crate::engine::Engine;
use crate::failure::Failure;
use crate::interval::{Class, Residuals};
use crate::levers::{self, RunFacts};
use crate::meter::Meter;
use crate::packets::Patience;
use crate::parallel;
use crate::run_job;
use crate::traffic;
use crate::trial::{Bench, Figures};

mod check;
mod combine;
mod fabric;
mod layout;
mod library;
mod network;
mod operation;
mod page;
mod placement;
mod score;
mod transport;
pub mod write;

pub use check::{Checked, Difference, check};
pub use layout::{Layouts, Scored};
pub use operation::Spares;
use score::Score;

/// What is to become better.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The step.
    #[default]
    Step,
    /// The step over the share of the time that trains.
    Goodput,
    /// What a trained token costs.
    Cost,
}

impl Goal {
    /// The figure that should be small.
    fn of(self, figures: &Figures) -> f64 {
        match self {
            Self::Step => figures.step_s,
            Self::Goodput => figures.step_s / figures.goodput,
            Self::Cost => figures.usd_per_million_tokens,
        }
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// What should become better.
    pub goal: Goal,
    /// Look for the cheapest fabric that makes the step at most this share longer.
    pub within: Option<f64>,
    /// Try the article's four future directions instead.
    pub future: bool,
    /// Keys that may not change, with all that is inside them.
    pub fixed: Vec<String>,
    /// Seconds after which nothing more is begun.
    pub budget_s: f64,
    /// The engine.
    pub engine: Engine,
    /// Seeds for each of the best, the scenario's own included.
    pub seeds: u32,
    /// Threads.
    pub threads: Option<u16>,
    /// Whoever sets it gets what is known by then.
    pub interrupt: Option<&'a AtomicBool>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Trials that ended.
    pub done: usize,
    /// Trials that are known of.
    pub all: usize,
    /// The best so far: its name and what it gains.
    pub best: Option<(String, f64)>,
}

/// What to change.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// What somebody would tell a colleague.
    pub verdict: String,
    /// What should become better.
    pub goal: Goal,
    /// As it is.
    pub base: Baseline,
    /// What gains, the most first.
    pub changes: Vec<Advised>,
    /// The layouts that were looked at by closed forms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layouts: Option<Layouts>,
    /// What spare servers bring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spares: Option<Spares>,
    /// Changes that were tried.
    pub tried: usize,
    /// Those that gain nothing that the seeds would confirm.
    pub without_gain: Vec<String>,
    /// Those that gain with the scenario's own seed; others gained more and were asked again.
    pub unconfirmed: Vec<String>,
    /// Those that this cluster or job does not take, and why.
    pub refused: Vec<Refused>,
    /// Those for which there was no time, or that an interrupt left out.
    pub left: Vec<String>,
    /// Runs in all.
    pub runs: usize,
    /// Seconds on the clock.
    pub wall_s: f64,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    engine: Engine,
    #[serde(skip)]
    within: Option<f64>,
    #[serde(skip)]
    budget_s: f64,
}

impl Advice {
    /// The change whose files are meant: one by its number from 1 on, else the best that needs
    /// nothing bought.
    pub fn chosen(&self, number: Option<u32>) -> Result<&Advised, Failure> {
        let changes = &self.changes;
        let chosen = match number {
            Some(number) => changes.get((number as usize).wrapping_sub(1)),
            None => changes.iter().find(|change| change.kind != Kind::Fabric).or(changes.first()),
        };
        chosen.ok_or_else(|| {
            Failure::Run(format!("there are {} changes in the advice: no files", changes.len()))
        })
    }
}

/// The scenario as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Baseline {
    /// The step with the scenario's own seed, as `run` tells it.
    pub step_s: f64,
    /// The model's 80 % interval of it.
    pub step_low_s: f64,
    /// Its upper end.
    pub step_high_s: f64,
    /// What everything costs to buy.
    pub cost_usd: f64,
    /// The share of a long run that trains.
    pub goodput: f64,
    /// What a million trained tokens cost.
    pub usd_per_million_tokens: f64,
    /// The mean step over the seeds.
    pub mean_step_s: f64,
    /// The seeds that were run.
    pub seeds: Vec<u64>,
}

/// A change and what it does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advised {
    /// What it is.
    pub name: String,
    /// Who must do it.
    pub kind: Kind,
    /// `PATH=VALUE`, as `--set` takes them.
    pub set: Vec<String>,
    /// The step with the scenario's own seed, as `run` tells it with these settings.
    pub step_s: f64,
    /// The share of the goal's figure that is gained, on average over the seeds.
    pub gain: f64,
    /// Seeds that it was run with: the scenario's own alone where time left no more.
    pub seeds: usize,
    /// Of ten other seeds, nine gain more.
    pub low: f64,
    /// Of ten other seeds, nine gain less.
    pub high: f64,
    /// How far the model itself may be off between the two, as a share of the step.
    pub model_error: f64,
    /// What everything costs to buy then.
    pub cost_usd: f64,
    /// The share of a long run that trains then.
    pub goodput: f64,
    /// What a million trained tokens cost then.
    pub usd_per_million_tokens: f64,
    /// What it risks.
    pub risk: String,
    /// What made it look worthwhile.
    pub why: String,
    /// The files that `--write` makes of it.
    pub files: Vec<String>,
    /// The engine that judged it.
    pub engine: &'static str,
    /// The command that gives the same step.
    pub command: String,
}

/// A change that cannot be made here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// Which.
    pub name: String,
    /// Why.
    pub why: String,
}

/// Changes that go on to other seeds.
const FINALISTS: usize = 20;

/// Of those, layouts: many are alike.
const MOST_LAYOUTS: usize = 5;

/// The share of the budget in which layouts are looked at by closed forms, at most.
const LAYOUTS: f64 = 0.2;

/// Seconds on packets up to which one trial of thresholds is affordable.
const AFFORDABLE_S: f64 = 4.0;

/// A gain below this share is none.
const LEAST_GAIN: f64 = 0.002;

/// The time that is left, and whether somebody has had enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock<'a> {
    meter: Meter,
    until_s: f64,
    interrupt: Option<&'a AtomicBool>,
}

impl Clock<'_> {
    fn is_over(self) -> bool {
        let stopped = self.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed));
        stopped || self.until_s < self.meter.wall_s()
    }
}

/// Tries changes and ranks them.
pub fn run(
    request: &Request,
    options: &Options<'_>,
    progress: &(dyn Fn(&Progress) + Sync),
) -> Result<Advice, Failure> {
    let bench = Bench::new(request, options.interrupt)?;
    let loaded = bench.load(&[], Purpose::Run(options.engine))?;
    options.refuse(&loaded)?;
    let meter = Meter::start();
    let runs = AtomicUsize::new(0);
    let search = Search { bench, loaded, options, meter, runs, progress };
    search.advice()
}

impl Options<'_> {
    fn refuse(&self, loaded: &Loaded) -> Result<(), Failure> {
        let has_job = loaded.job.is_some();
        if !has_job && loaded.scenario.traffic.is_none() {
            let reason = "the scenario has neither a job nor traffic";
            return Err(Failure::Run(reason.to_owned()));
        }
        if !has_job && (self.goal != Goal::Step || self.within.is_some() || self.future) {
            let reason = "synthetic traffic has a time and no tokens: --goal step is all there is";
            return Err(Failure::Usage(reason.to_owned()));
        }
        let unknown = self.fixed.iter().find(|key| crate::explain::of(key).is_empty());
        match unknown {
            Some(key) => Err(crate::explain::run(key).err().unwrap_or_else(Failure::interrupted)),
            None => Ok(()),
        }
    }
}

/// One advice that is being made.
struct Search<'a> {
    bench: Bench<'a>,
    loaded: Loaded,
    options: &'a Options<'a>,
    meter: Meter,
    runs: AtomicUsize,
    progress: &'a (dyn Fn(&Progress) + Sync),
}

/// A change with what it showed.
struct Tried {
    change: Change,
    engine: Engine,
    score: Score,
    /// Whether it is one of those that other seeds are asked about.
    is_finalist: bool,
}

impl Search<'_> {
    fn clock(&self, share: f64) -> Clock<'_> {
        let until_s = share * self.options.budget_s;
        Clock { meter: self.meter, until_s, interrupt: self.options.interrupt }
    }

    fn threads(&self) -> usize {
        parallel::threads(self.options.threads)
    }

    fn own_seed(&self) -> u64 {
        self.loaded.scenario.seed
    }

    /// The scenario's own seed, and those that follow it.
    fn seeds(&self) -> Vec<u64> {
        let own = self.own_seed();
        let count = match self.options.engine.has_contention() {
            true => self.options.seeds.max(1),
            false => 1,
        };
        (0..u64::from(count)).map(|at| own.wrapping_add(at)).collect()
    }

    fn run(&self, set: &[String], engine: Engine, seed: u64) -> Result<Figures, Failure> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.bench.run(set, engine, seed)
    }

    /// The scenario as it is under the other seeds, as far as there is time: the seeds, the own one
    /// before them, and what they show.
    fn other_seeds(&self, clock: Clock<'_>) -> (Vec<u64>, Vec<Figures>) {
        let all = self.seeds();
        let ran = parallel::map(self.threads(), &all[1..], |seed| {
            let figures = || self.run(&[], self.options.engine, *seed).ok();
            if clock.is_over() { None } else { figures() }
        });
        let known = all[1..].iter().zip(ran).filter_map(|(seed, ran)| Some((*seed, ran?)));
        let (seeds, figures): (Vec<u64>, Vec<Figures>) = known.unzip();
        (std::iter::once(all[0]).chain(seeds).collect(), figures)
    }

    /// The changes to try on the engine, those to try on packets, and the layouts.
    fn candidates(&self) -> Result<Candidates, Failure> {
        let loaded = &self.loaded;
        let Options { engine, within, future, .. } = *self.options;
        let mut all = Candidates::default();
        let mut changes = match (future, within) {
            (true, _) => fabric::future(loaded),
            (_, Some(_)) => fabric::mixes(loaded),
            _ => self.everything(&mut all)?,
        };
        let is_free = |change: &Change| !self.options.fixed.iter().any(|key| change.touches(key));
        changes.retain(is_free);
        let mut packets = Vec::new();
        if !future && within.is_none() {
            let all = network::on_packets(loaded).into_iter().filter(is_free);
            match engine.moves_packets() {
                true => changes.extend(all),
                false => packets.extend(all),
            }
        }
        Ok(Candidates { changes, packets, ..all })
    }

    fn everything(&self, all: &mut Candidates) -> Result<Vec<Change>, Failure> {
        let loaded = &self.loaded;
        let routing = &loaded.scenario.network.settings.routing;
        let transport = loaded.scenario.network.transport;
        if loaded.job.is_none() {
            let mut changes = levers::path_changes(routing, transport);
            changes.extend(network::seeds(loaded));
            changes.extend(transport::changes(loaded));
            return Ok(changes);
        }
        let mut watch = packetsim::Watch::default();
        let (engine, patience) = (self.options.engine, Patience::Usual);
        let report = run_job::run(loaded, engine, patience, &mut watch)?;
        let run_job::Report { verdict, phases, memory, .. } = &report;
        let parts = report.without_faults();
        let seen = RunFacts { parts, fabric_s: verdict.fabric_s, phases, memory };
        // Of a scenario with a fault that comes or goes, first what is asked for.
        let mut changes = report.remedies(loaded);
        changes.extend(levers::levers(loaded, &seen));
        let is_fixed = |key: &str| {
            let change = Change::new(Kind::Layout, "", [format!("{key}=")]);
            self.options.fixed.iter().any(|fixed| change.touches(fixed))
        };
        // Of a large cluster the scenario itself may have taken long.
        let so_far = self.meter.wall_s() / self.options.budget_s.max(1e-9);
        let clock = self.clock((so_far + LAYOUTS).max(0.3));
        let of = (self.threads(), clock, self.options.budget_s);
        let for_cost = self.options.goal == Goal::Cost;
        let (searched, found, others) = layout::search(loaded, &is_fixed, of, for_cost);
        all.layouts = Some(searched);
        all.further = others;
        if !is_fixed("reliability.spare_nodes") && engine.has_contention() {
            all.spares = operation::spares(loaded, &report, engine);
        }
        // Where time runs out, something of everything was tried.
        changes.extend(in_turns(vec![
            network::seeds(loaded),
            found,
            library::changes(loaded),
            placement::changes(loaded),
            fabric::changes(loaded),
            transport::changes(loaded),
            layout::overlap(loaded).into_iter().collect(),
            operation::changes(loaded, &report.reliability),
        ]));
        self.with_shares(&mut changes);
        Ok(changes)
    }

    /// Tells changes of how tokens find their experts what all-to-all is beside the rest.
    fn with_shares(&self, changes: &mut [Change]) {
        let is_experts = |change: &&mut Change| change.touches("job.moe");
        let mut about: Vec<&mut Change> = changes.iter_mut().filter(is_experts).collect();
        if about.is_empty() {
            return;
        }
        let loaded = self.bench.load(&[], Purpose::Wire);
        let Ok(Ok(wire)) = loaded.map(|loaded| traffic::run(&loaded)) else { return };
        let share = |names: &[&str]| {
            let bytes: f64 = names.iter().map(|name| wire.by_primitive[name]).sum();
            100.0 * bytes / wire.bytes_per_step.max(f64::MIN_POSITIVE)
        };
        let (experts, sums) =
            (share(&["all_to_all"]), share(&["all_reduce", "reduce_scatter", "all_gather"]));
        for change in &mut about {
            change.why += &format!(
                "; of the bytes between servers all-to-all is {experts:.0} %, all-reduce and its \
                 halves {sums:.0} %"
            );
        }
    }

    fn advice(&self) -> Result<Advice, Failure> {
        let engine = self.options.engine;
        let mut base = vec![self.run(&[], engine, self.own_seed())?];
        let Candidates { changes, packets: on_packets, mut layouts, further, spares } =
            self.candidates()?;
        let asked = changes.len() + on_packets.len();
        let mut found = self.screen(changes, engine, &base[0], self.clock(0.6));
        let further = self.screen(further, engine, &base[0], self.clock(0.7));
        found.tried.extend(further.tried);
        let is_layout = |tried: &&Tried| tried.change.why.starts_with(layout::WHY);
        if let Some(layouts) = &mut layouts {
            layouts.by_engine = found.tried.iter().filter(is_layout).count();
            layouts.left = further.left.len();
        }
        let packets = self.on_packets(on_packets, &mut found);
        let (seeds, others) = self.other_seeds(self.clock(0.75));
        base.extend(others);
        self.confirm(&mut found.tried, (engine, &seeds, &base), self.clock(0.85));
        let together = combine::together(self, &found.tried, (engine, &seeds, &base));
        let mut changes: Vec<Advised> = Vec::new();
        let (mut without_gain, mut unconfirmed) = (Vec::new(), Vec::new());
        for tried in found.tried.iter().chain(&together) {
            match self.is_worthwhile(tried) {
                true => changes.push(self.advised(tried, &base[0])),
                // There are many, and pictures of them.
                false if is_layout(&tried) => {}
                false if tried.score.is_open(LEAST_GAIN) => {
                    unconfirmed.push(tried.change.name.clone())
                }
                false => without_gain.push(tried.change.name.clone()),
            }
        }
        if let Some((base, tried)) = packets {
            for tried in &tried {
                match self.is_worthwhile(tried) {
                    true => changes.push(self.advised(tried, &base)),
                    false => without_gain.push(tried.change.name.clone()),
                }
            }
        }
        match self.options.within {
            Some(_) => {
                changes.sort_by(|a, b| a.cost_usd.total_cmp(&b.cost_usd));
                // Mixes that come to the same fabric are one.
                changes.dedup_by(|b, a| (a.cost_usd, a.step_s) == (b.cost_usd, b.step_s));
            }
            None => changes.sort_by(|a, b| b.gain.total_cmp(&a.gain)),
        }
        let advice = Advice {
            verdict: String::new(),
            goal: self.options.goal,
            base: baseline(&base, &seeds),
            changes,
            layouts,
            spares,
            tried: asked - found.left.len(),
            without_gain,
            unconfirmed,
            refused: found.refused,
            left: found.left,
            runs: self.runs.load(Ordering::Relaxed),
            wall_s: self.meter.wall_s(),
            title: self.loaded.title(),
            engine,
            within: self.options.within,
            budget_s: self.options.budget_s,
        };
        Ok(Advice { verdict: page::verdict(&advice), ..advice })
    }

    /// Tries every change with the scenario's own seed.
    fn screen(
        &self,
        changes: Vec<Change>,
        engine: Engine,
        base: &Figures,
        clock: Clock<'_>,
    ) -> TrialResults {
        let goal = self.options.goal;
        let (all, done) = (changes.len(), AtomicUsize::new(0));
        let best = std::sync::Mutex::new(None::<(String, f64)>);
        let tried = parallel::map(self.threads(), &changes, |change| {
            if clock.is_over() {
                return None;
            }
            let ran = self.run(&change.set, engine, self.own_seed());
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let mut best = best.lock().expect("nobody panics with it");
            if let Ok(figures) = &ran {
                let gain = 1.0 - goal.of(figures) / goal.of(base);
                if best.as_ref().is_none_or(|(_, known)| *known < gain) {
                    *best = Some((change.name.clone(), gain));
                }
            }
            (self.progress)(&Progress { done, all, best: best.clone() });
            Some(ran)
        });
        let mut found = TrialResults::default();
        for (change, ran) in changes.into_iter().zip(tried) {
            match ran {
                None | Some(Err(Failure::Interrupted(_))) => found.left.push(change.name),
                Some(Err(failure)) => {
                    let why = failure.mistake().message;
                    found.refused.push(Refused { name: change.name, why });
                }
                Some(Ok(figures)) => {
                    let score = Score::new(goal, base, figures);
                    found.tried.push(Tried { change, engine, score, is_finalist: false });
                }
            }
        }
        found
    }

    /// Tries what only packets obey, where that is affordable.
    fn on_packets(
        &self,
        changes: Vec<Change>,
        found: &mut TrialResults,
    ) -> Option<(Figures, Vec<Tried>)> {
        if changes.is_empty() {
            return None;
        }
        let engine = Engine::Packet;
        let purpose = Purpose::Run(engine);
        let affordable = self.loaded.job.is_none() && self.packet_seconds() <= AFFORDABLE_S;
        let loaded = self.bench.load(&[], purpose).ok().filter(|_| affordable);
        let base = loaded.and_then(|loaded| self.bench.run_loaded(&loaded, engine).ok());
        let Some(base) = base else {
            let why = "queues are seen on packets, which would take too long here: --engine packet";
            let refused = changes.into_iter();
            let refused = refused.map(|it| Refused { name: it.name, why: why.to_owned() });
            found.refused.extend(refused);
            return None;
        };
        let mut of_packets = self.screen(changes, engine, &base, self.clock(0.75));
        found.left.append(&mut of_packets.left);
        found.refused.append(&mut of_packets.refused);
        Some((base, of_packets.tried))
    }

    /// What the scenario would take on packets, by the engine's estimate.
    fn packet_seconds(&self) -> f64 {
        let loaded = self.bench.load(&[], Purpose::Run(Engine::Packet)).ok();
        let cost = loaded.and_then(|loaded| {
            let work = crate::work::work(&loaded, Engine::Packet, Patience::Endless).ok()?;
            let settings = loaded.settings();
            Some(packetsim::estimate(loaded.fabric(), &work.transfers, &settings).seconds)
        });
        cost.unwrap_or(f64::INFINITY)
    }

    /// Asks the best with the other seeds too; the rest keep what they have.
    fn confirm(
        &self,
        tried: &mut [Tried],
        (engine, seeds, base): (Engine, &[u64], &[Figures]),
        clock: Clock<'_>,
    ) {
        tried.sort_by(|a, b| b.score.own().total_cmp(&a.score.own()));
        let may_gain = |tried: &&mut Tried| match self.options.within {
            Some(_) => self.keeps(tried),
            None => LEAST_GAIN / 2.0 < tried.score.own() || self.options.future,
        };
        let mut best: Vec<&mut Tried> = tried.iter_mut().filter(may_gain).collect();
        if self.options.within.is_some() {
            best.sort_by(|a, b| a.score.figures.cost_usd.total_cmp(&b.score.figures.cost_usd));
        }
        let mut layouts = 0;
        best.retain(|tried| {
            layouts += usize::from(tried.change.kind == Kind::Layout);
            tried.change.kind != Kind::Layout || layouts <= MOST_LAYOUTS
        });
        best.truncate(FINALISTS);
        best.iter_mut().for_each(|tried| tried.is_finalist = true);
        let others = || seeds.iter().zip(base).skip(1);
        let asked: Vec<(usize, u64)> =
            (0..best.len()).flat_map(|at| others().map(move |(seed, _)| (at, *seed))).collect();
        let answers = parallel::map(self.threads(), &asked, |(at, seed)| match clock.is_over() {
            true => None,
            false => self.run(&best[*at].change.set, engine, *seed).ok(),
        });
        for ((at, seed), figures) in asked.iter().zip(answers) {
            let base = others().find(|(own, _)| *own == seed).map(|(_, base)| base);
            if let (Some(base), Some(figures)) = (base, figures) {
                best[*at].score.add(base, &figures);
            }
        }
    }

    /// Whether a fabric keeps what `--within` asks.
    fn keeps(&self, tried: &Tried) -> bool {
        let within = self.options.within.unwrap_or(0.0);
        -within <= tried.score.mean().min(tried.score.own())
    }

    fn is_worthwhile(&self, tried: &Tried) -> bool {
        if self.options.future {
            return true;
        }
        match self.options.within {
            Some(_) => self.keeps(tried) && tried.score.saves_money(),
            None => {
                // For the best there may have been no time, or an interrupt.
                let is_asked = tried.is_finalist || self.seeds().len() < 3;
                let is_asked = is_asked || tried.engine != self.options.engine;
                is_asked && LEAST_GAIN <= tried.score.mean() && tried.score.is_sure()
            }
        }
    }

    /// The change as it is told.
    fn advised(&self, tried: &Tried, base: &Figures) -> Advised {
        let Tried { change, engine, score, .. } = tried;
        let figures = &score.figures;
        let (low, high) = score.interval();
        let flag = match engine {
            Engine::Flow => String::new(),
            other => format!(" --engine {}", other.name()),
        };
        let mut risk = change.risk.clone();
        let mut also = |text: String| {
            risk = if risk.is_empty() { text } else { format!("{risk}; {text}") };
        };
        if base.pauses < figures.pauses {
            also(format!("{} pauses in place of {}", figures.pauses, base.pauses));
        }
        if base.drops < figures.drops {
            also(format!("{} packets dropped in place of {}", figures.drops, base.drops));
        }
        if figures.memory_free + 0.02 < base.memory_free {
            also(format!("{:.0} % of memory stays free", 100.0 * figures.memory_free));
        }
        Advised {
            name: change.name.clone(),
            kind: change.kind,
            set: change.set.clone(),
            step_s: figures.step_s,
            gain: score.mean(),
            seeds: score.seeds(),
            low,
            high,
            model_error: self.model_error(change, base, figures),
            cost_usd: figures.cost_usd,
            goodput: figures.goodput,
            usd_per_million_tokens: figures.usd_per_million_tokens,
            risk,
            why: change.why.clone(),
            files: write::names(&self.loaded, change),
            engine: engine.name(),
            command: format!(
                "fatflow run {}{flag} {}",
                self.loaded.input,
                change.after_flags(&self.loaded, &[]).flags()
            ),
        }
    }

    /// How far the two may be off from each other: of the same job on the same GPUs by what
    /// communication is off by, else by both intervals.
    fn model_error(&self, change: &Change, base: &Figures, figures: &Figures) -> f64 {
        if self.loaded.job.is_none() {
            return 0.0;
        }
        let half = |(low, high): (f64, f64)| (high / low.max(1e-12)).ln() / 2.0;
        let is_same_job = change.keys().all(|key| !key.starts_with("job."));
        if !is_same_job {
            return half(base.model_s).hypot(half(figures.model_s));
        }
        let network =
            Residuals::published().half_width(&Class::between_servers(), self.options.engine, "");
        network.log * base.exposed.max(figures.exposed)
    }
}

/// The first of each list, then the second of each, and so on.
fn in_turns(lists: Vec<Vec<Change>>) -> Vec<Change> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    while lists.iter().any(|list| 0 < list.len()) {
        all.extend(lists.iter_mut().filter_map(Iterator::next));
    }
    all
}

/// What is to be tried.
#[derive(Default)]
struct Candidates {
    /// On the engine.
    changes: Vec<Change>,
    /// On packets.
    packets: Vec<Change>,
    layouts: Option<Layouts>,
    /// Layouts for which there may be time when the rest was tried.
    further: Vec<Change>,
    /// Played already.
    spares: Option<Spares>,
}

/// What trying changes once came to.
#[derive(Default)]
struct TrialResults {
    tried: Vec<Tried>,
    refused: Vec<Refused>,
    left: Vec<String>,
}

fn baseline(base: &[Figures], seeds: &[u64]) -> Baseline {
    let own = &base[0];
    Baseline {
        step_s: own.step_s,
        step_low_s: own.model_s.0,
        step_high_s: own.model_s.1,
        cost_usd: own.cost_usd,
        goodput: own.goodput,
        usd_per_million_tokens: own.usd_per_million_tokens,
        mean_step_s: base.iter().map(|one| one.step_s).sum::<f64>() / base.len() as f64,
        seeds: seeds.to_vec(),
    }
}
