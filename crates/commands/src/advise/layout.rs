//! Every legal way to cut the job that fits memory, by closed forms.
//!
//! Degrees of tensor, context, pipeline and expert parallelism, virtual stages, the microbatch,
//! sharding, recomputation and overlap are mixed; what the job's own rules refuse and what does not
//! fit a GPU is left out. Where a token's cost is the goal, the job on half and a quarter of its
//! GPUs is looked at too. Closed forms know no contention: they choose what the engine is asked.

use job::config::JobConfig;
use job::memory;
use job::model::{Recompute, Usual};
use job::parallel::Sharding;
use job::placement::Policy;
use job::resolve::{Site, resolve};
use job::schedule::Schedule;
use job::{Axis, Job, Model};
use scenario::Loaded;
use serde::Serialize;
use step::money::{self, Machines};
use step::predict;
use units::{Bytes, Random};

use super::Clock;
use crate::change::{Change, Kind};
use crate::parallel;
use crate::run_job::{BreakdownSeconds, machines};
use crate::world::{JobWorld, assumptions};

/// Mixes that are looked at, at most.
const MOST: usize = 400_000;

/// Mixes that are looked at for each second of the budget: what two cores can do, so that the
/// answer is the machine's only where it is slower than that.
const PER_SECOND: f64 = 200.0;

/// Mixes of degrees among the best whose other mixes are looked at too, although the sample has
/// left them out.
const BEST_DEGREES: usize = 3;

/// So many of their mixes, at most: about two seconds.
const NEIGHBOURS: usize = 400;

/// Layouts that are told with their steps, beside those that no other beats.
const TOLD: usize = 400;

/// Layouts that one thread looks at with one copy of the scenario.
const CHUNK: usize = 64;

/// Layouts that the engine is asked for before anything else; they differ in their degrees.
const FIRST: usize = 10;

/// Why a layout is tried.
pub(super) const WHY: &str = "among the best of all layouts that fit, by closed forms";

/// What the name of a layout says that hides all it sends.
const HIDDEN: &str = ", all communication behind computation";

/// Layouts that the engine is asked for at most.
const ENGINE: usize = 100;

/// How much longer than what is there closed forms may find a layout that the engine is asked for.
const NEAR: f64 = 1.05;

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layouts {
    /// Mixes of the values that were free.
    pub mixes: usize,
    /// Mixes that were looked at: as many as the budget counts, if there was time.
    pub looked_at: usize,
    /// Mixes that the budget counts and for which there was no time.
    pub unseen: usize,
    /// Those that the job's rules allow.
    pub legal: usize,
    /// Those that fit memory.
    pub fit: usize,
    /// Those that were predicted by closed forms before time was up.
    pub predicted: usize,
    /// Seconds that this took.
    pub wall_s: f64,
    /// Layouts that the engine was asked for after that.
    pub by_engine: usize,
    /// Those for which the engine had no time.
    pub left: usize,
    /// The best of them, and those that no other beats in step, memory and cost.
    pub best: Vec<Scored>,
}

/// One layout by closed forms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scored {
    /// In words.
    pub name: String,
    /// What must be set for it.
    pub set: Vec<String>,
    /// The step by closed forms.
    pub step_s: f64,
    /// The share of a GPU's memory that it takes.
    pub memory: f64,
    /// What a million trained tokens cost then, without failures.
    pub usd_per_million_tokens: f64,
    /// Whether no other is better in all three.
    pub front: bool,
    #[serde(skip)]
    degrees: Degrees,
}

/// Tensor, context, pipeline, expert and data parallelism, and virtual stages.
type Degrees = [u64; 6];

fn degrees(config: &JobConfig) -> Degrees {
    let own = &config.parallel;
    [own.tp, own.cp, own.pp, own.ep, own.dp.unwrap_or(0), own.vpp]
}

/// Searches; names the best as changes: the first, and those for which there may be time later.
pub(super) fn search(
    loaded: &Loaded,
    fixed: &dyn Fn(&str) -> bool,
    (threads, clock, budget_s): (usize, Clock<'_>, f64),
    fewer_gpus: bool,
) -> (Layouts, Vec<Change>, Vec<Change>) {
    let Some((config, job)) = loaded.scenario.job.as_ref().zip(loaded.job.as_ref()) else {
        return Default::default();
    };
    let Some(gpu) = loaded.scenario.catalogue.gpu.get(&loaded.scenario.cluster.gpu) else {
        return Default::default();
    };
    let began_s = clock.meter.wall_s();
    let mut all = mixes(loaded, config, job, fixed, fewer_gpus);
    let mixes = all.len();
    // What is looked at is a fair part of all, and the same on every machine that is fast enough.
    Random::new(loaded.scenario.seed, "layouts", 0).shuffle(&mut all);
    let most = (budget_s * PER_SECOND).max(1.0) as usize;
    let left_out = all.split_off(most.min(all.len()));
    let capacity = gpu.memory_gb.value * 1e9;
    let judge = Judge { config, machines: machines(loaded, gpu, job.layout.gpus()), capacity };
    let chunks: Vec<&[JobConfig]> = all.chunks(CHUNK).collect();
    let looked = parallel::map(threads, &chunks, |chunk| {
        let mut own = loaded.clone();
        let mut found = SearchedLayouts::default();
        for config in chunk.iter().take_while(|_| !clock.is_over()) {
            judge.look(&mut own, config, &job.model, &mut found);
        }
        found
    });
    let mut found = SearchedLayouts::default();
    let mut skipped: Vec<&JobConfig> = left_out.iter().collect();
    for (one, chunk) in looked.into_iter().zip(&chunks) {
        skipped.extend(&chunk[one.all..]);
        found.join(one);
    }
    let unseen = all.len() - found.all;
    judge.complete(loaded, skipped, &job.model, (&mut found, &|| clock.is_over()));
    let SearchedLayouts { all: looked_at, legal, fit, mut scored } = found;
    let predicted = scored.len();
    scored.sort_by(|a, b| a.step_s.total_cmp(&b.step_s).then(a.name.cmp(&b.name)));
    let by = |one: &Scored| if fewer_gpus { one.usd_per_million_tokens } else { one.step_s };
    let now = judge.closed(&mut loaded.clone(), config, job).map_or(f64::INFINITY, |now| by(&now));
    let mut better: Vec<&Scored> =
        scored.iter().filter(|one| by(one) < now && !one.set.is_empty()).collect();
    better.sort_by(|a, b| by(a).total_cmp(&by(b)));
    let first: Vec<&Scored> = different(better.iter().copied()).take(FIRST).collect();
    // Contention may turn what closed forms put close together.
    let mut near: Vec<&Scored> =
        scored.iter().filter(|one| by(one) < NEAR * now && !one.set.is_empty()).collect();
    near.sort_by(|a, b| by(a).total_cmp(&by(b)));
    let is_other = |one: &&&Scored| !first.iter().any(|own| own.set == one.set);
    let others = near.iter().filter(is_other).take(ENGINE - first.len());
    let others = others.map(|one| change(one, now)).collect();
    let first = first.into_iter().map(|one| change(one, now)).collect();
    let wall_s = clock.meter.wall_s() - began_s;
    let best = front(scored);
    let (by_engine, left) = (0, 0);
    let layouts =
        Layouts { mixes, looked_at, unseen, legal, fit, predicted, wall_s, by_engine, left, best };
    (layouts, first, others)
}

/// What mixes are judged by.
struct Judge<'a> {
    config: &'a JobConfig,
    /// Of the job as it is.
    machines: Machines,
    /// Bytes of a GPU.
    capacity: f64,
}

/// What became of some mixes.
#[derive(Default)]
struct SearchedLayouts {
    all: usize,
    legal: usize,
    fit: usize,
    scored: Vec<Scored>,
}

impl SearchedLayouts {
    fn join(&mut self, other: Self) {
        self.all += other.all;
        self.legal += other.legal;
        self.fit += other.fit;
        self.scored.extend(other.scored);
    }
}

impl Judge<'_> {
    /// Looks at what was skipped of the degrees of the best: a sample that has found the best
    /// degrees may have missed their best sharding, microbatch, recomputation or overlap.
    fn complete(
        &self,
        loaded: &Loaded,
        skipped: Vec<&JobConfig>,
        model: &Model,
        (found, is_over): (&mut SearchedLayouts, &dyn Fn() -> bool),
    ) {
        found.scored.sort_by(|a, b| a.step_s.total_cmp(&b.step_s).then(a.name.cmp(&b.name)));
        let mut best: Vec<Degrees> = Vec::new();
        for one in &found.scored {
            if best.len() < BEST_DEGREES && !best.contains(&one.degrees) {
                best.push(one.degrees);
            }
        }
        let place = |config: &JobConfig| best.iter().position(|own| *own == degrees(config));
        let mut near: Vec<(usize, &JobConfig)> =
            skipped.into_iter().filter_map(|config| Some((place(config)?, config))).collect();
        near.sort_by_key(|(place, _)| *place);
        let mut own = loaded.clone();
        for (_, config) in near.into_iter().take(NEIGHBOURS).take_while(|_| !is_over()) {
            self.look(&mut own, config, model, found);
        }
    }

    fn look(
        &self,
        own: &mut Loaded,
        config: &JobConfig,
        model: &Model,
        found: &mut SearchedLayouts,
    ) {
        found.all += 1;
        let Ok((job, _)) = resolve(config, model.clone(), &site(own)) else { return };
        found.legal += 1;
        if memory::check(&job, Bytes::new(self.capacity as u64)).is_err() {
            return;
        }
        found.fit += 1;
        found.scored.extend(self.closed(own, config, &job));
    }

    /// A layout by closed forms.
    fn closed(&self, own: &mut Loaded, config: &JobConfig, job: &Job) -> Option<Scored> {
        let fullest = memory::usage(job).iter().map(memory::Usage::total).max()?;
        own.scenario.job = Some(config.clone());
        own.job = Some(job.clone());
        let world = JobWorld::of(own).ok()?;
        let breakdown = predict::breakdown(world.world(), &assumptions(own)).ok()?;
        let parts = BreakdownSeconds::of(&breakdown);
        let share = job.layout.gpus() as f64 / self.machines.gpus.max(1) as f64;
        let machines = Machines {
            gpus: job.layout.gpus(),
            network_w: self.machines.network_w * share,
            network_usd: self.machines.network_usd * share,
            ..self.machines
        };
        let tokens = job.batch.sequences as f64 * job.batch.length as f64;
        let bill = money::bill(&own.scenario.prices, &machines, &parts.phases(), tokens, 1.0);
        let (name, set) = words(self.config, config, job);
        Some(Scored {
            name,
            set,
            step_s: parts.total(),
            memory: fullest.get() as f64 / self.capacity.max(1.0),
            usd_per_million_tokens: bill.usd_per_million_tokens,
            front: false,
            degrees: degrees(config),
        })
    }
}

fn site(loaded: &Loaded) -> Site {
    let fabric = loaded.fabric();
    Site {
        gpus: fabric.gpus() as u64,
        gpus_per_node: fabric.gpus_per_node() as u64,
        scale_up: fabric.gpus_per_domain() as u64,
    }
}

/// All axes that the software does not hide, hidden at once; one alone is a lever already.
pub(super) fn overlap(loaded: &Loaded) -> Option<Change> {
    let job = loaded.job.as_ref()?;
    let layout = &job.layout;
    let degrees = [layout.tp, layout.cp, layout.ep, layout.pp, layout.dp];
    let own = &job.parallel.overlap;
    let open: Vec<Axis> = used(degrees).filter(|axis| !own.contains(axis)).collect();
    if open.len() < 2 {
        return None;
    }
    let mut all: Vec<Axis> = own.iter().chain(&open).copied().collect();
    all.sort();
    let set = [format!("job.parallel.overlap={}", list(&all))];
    let words: Vec<String> = open.iter().map(|axis| axis.word().to_uppercase()).collect();
    let name = format!("{} communication behind computation", words.join(", "));
    Some(Change::new(Kind::Layout, name, set))
}

/// The axes whose degrees, of tp, cp, ep, pp and dp, make them communicate.
fn used(degrees: [u64; 5]) -> impl Iterator<Item = Axis> {
    let axes = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp, Axis::Dp].into_iter().zip(degrees);
    axes.filter(|(_, degree)| 1 < *degree).map(|(axis, _)| axis)
}

/// Axes as a scenario lists them.
fn list(axes: &[Axis]) -> String {
    let words: Vec<String> = axes.iter().map(|axis| format!("\"{}\"", axis.word())).collect();
    format!("[{}]", words.join(", "))
}

/// The best of each mix of degrees first, so that not all are alike.
fn different<'a>(scored: impl Iterator<Item = &'a Scored>) -> impl Iterator<Item = &'a Scored> {
    let mut seen: Vec<String> = Vec::new();
    scored.filter(move |one| {
        let hides = one.name.ends_with(HIDDEN);
        let kind = format!("{} {hides}", one.name.split(", micro").next().unwrap_or_default());
        let known = seen.iter().filter(|other| **other == kind).count();
        seen.push(kind);
        known < 2
    })
}

fn change(one: &Scored, now: f64) -> Change {
    let why = format!("{WHY}: {:.3} s", one.step_s);
    let risk = format!("takes {:.0} % of a GPU's memory", 100.0 * one.memory);
    let change = Change::new(Kind::Layout, one.name.clone(), one.set.clone());
    change.because(why, (now - one.step_s).max(0.0)).risking(risk)
}

/// The best, and what no other beats in step, memory and cost; the list is sorted by step.
fn front(scored: Vec<Scored>) -> Vec<Scored> {
    // Of what is as fast, what no later one can beat: memory and cost of the front so far.
    let mut known: Vec<(f64, f64)> = Vec::new();
    let mut told = Vec::new();
    for (at, one) in scored.into_iter().enumerate() {
        let own = (one.memory, one.usd_per_million_tokens);
        let front = !known.iter().any(|(memory, cost)| *memory <= own.0 && *cost <= own.1);
        if front {
            known.retain(|(memory, cost)| *memory < own.0 || *cost < own.1);
            known.push(own);
        }
        if front || at < TOLD {
            told.push(Scored { front, ..one });
        }
    }
    told
}

/// The values that are mixed.
struct Free {
    tps: Vec<u64>,
    cps: Vec<u64>,
    pps: Vec<u64>,
    eps: Vec<u64>,
    micros: Vec<u64>,
    recomputes: Vec<Recompute>,
    shardings: Vec<Sharding>,
    /// Whether what is exposed may be hidden too.
    hides: bool,
}

impl Free {
    fn of(loaded: &Loaded, config: &JobConfig, job: &Job, is_free: &dyn Fn(&str) -> bool) -> Self {
        let domain = loaded.fabric().gpus_per_domain() as u64;
        let all = divisors(job.layout.gpus());
        let degree = |key: &str, now: u64, most: u64| match is_free(&format!("parallel.{key}")) {
            true => all.iter().copied().filter(|degree| *degree <= most).collect(),
            false => vec![now],
        };
        let (model, own) = (&job.model, &config.parallel);
        // A piece of a sequence below some thousand tokens is not worth a ring.
        let long = (config.batch.length / 2048).clamp(1, 64);
        let pps = match own.stage_layers {
            Some(_) => vec![own.pp],
            None => degree("pp", own.pp, model.layers),
        };
        let eps = match model.experts {
            Some(experts) => degree("ep", own.ep, experts.count),
            None => vec![own.ep],
        };
        let or_own = |key: &str, own: u64, others: &[u64]| match is_free(key) {
            true => {
                let others = others.iter().copied().filter(|other| *other != own);
                std::iter::once(own).chain(others).collect()
            }
            false => vec![own],
        };
        let mut recomputes = vec![config.recompute.clone()];
        let usual = [Usual::None, Usual::Selective, Usual::Full].map(Recompute::Usual);
        let usual = usual.into_iter().filter(|_| is_free("recompute"));
        recomputes.extend(usual.filter(|it| *it != config.recompute));
        let mut shardings = vec![own.sharding];
        let others = [Sharding::Zero1, Sharding::Zero2, Sharding::Fsdp].into_iter();
        let others = others.filter(|_| is_free("parallel.sharding"));
        shardings.extend(others.filter(|it| *it != own.sharding));
        Self {
            tps: degree("tp", own.tp, domain.min(model.heads).max(own.tp)),
            cps: degree("cp", own.cp, long.max(own.cp)),
            pps,
            eps,
            micros: or_own("batch.micro", config.batch.micro, &[1, 2, 4, 8, 16]),
            recomputes,
            shardings,
            hides: is_free("parallel.overlap"),
        }
    }
}

/// All mixes of the values that are free, the one that is there included.
fn mixes(
    loaded: &Loaded,
    config: &JobConfig,
    job: &Job,
    fixed: &dyn Fn(&str) -> bool,
    fewer_gpus: bool,
) -> Vec<JobConfig> {
    let is_free = |key: &str| !fixed(&format!("job.{key}"));
    let free = Free::of(loaded, config, job, &is_free);
    let (all, model) = (job.layout.gpus(), &job.model);
    let halves: &[u64] = if fewer_gpus && is_free("gpus") { &[1, 2, 4] } else { &[1] };
    let mut found = Vec::new();
    for (tp, cp, pp, ep) in product(&free.tps, &free.cps, &free.pps, &free.eps) {
        for gpus in halves.iter().map(|part| all / part) {
            if !gpus.is_multiple_of(tp * cp * pp) || gpus == 0 {
                continue;
            }
            let mut new = config.clone();
            if gpus != all {
                new.gpus = Some(gpus);
            }
            let parallel = &mut new.parallel;
            (parallel.tp, parallel.cp, parallel.pp, parallel.ep) = (tp, cp, pp, ep);
            parallel.dp = Some(gpus / (tp * cp * pp));
            if new.placement.policy == Policy::MinCut {
                new.placement.policy = Policy::TopologyAware;
            }
            for vpp in vpps(config, model, pp, is_free("parallel.vpp")) {
                new.parallel.vpp = vpp;
                new.schedule = schedule(config, vpp, pp);
                found.extend(free.finer(&new));
                if MOST <= found.len() {
                    return found;
                }
            }
        }
    }
    found
}

impl Free {
    /// A mix of degrees with every microbatch, sharding, recomputation and overlap.
    fn finer(&self, config: &JobConfig) -> Vec<JobConfig> {
        let mut all = Vec::new();
        let own = &config.parallel;
        let degrees = [own.tp, own.cp, own.ep, own.pp, own.dp.unwrap_or(1)];
        let mut hidden: Vec<Axis> = own.overlap.iter().copied().chain(used(degrees)).collect();
        hidden.sort();
        hidden.dedup();
        let hides = self.hides && hidden.len() != own.overlap.len();
        for &micro in &self.micros {
            for &sharding in &self.shardings {
                for recompute in &self.recomputes {
                    let mut new = config.clone();
                    new.batch.micro = micro;
                    new.parallel.sharding = sharding;
                    new.recompute = recompute.clone();
                    if hides {
                        let mut hiding = new.clone();
                        hiding.parallel.overlap.clone_from(&hidden);
                        all.push(hiding);
                    }
                    all.push(new);
                }
            }
        }
        all
    }
}

fn divisors(number: u64) -> Vec<u64> {
    (1..=number.min(4096)).filter(|degree| number.is_multiple_of(*degree)).collect()
}

fn product(a: &[u64], b: &[u64], c: &[u64], d: &[u64]) -> Vec<(u64, u64, u64, u64)> {
    let mut all = Vec::new();
    for &a in a {
        for &b in b {
            for &c in c {
                all.extend(d.iter().map(|&d| (a, b, c, d)));
            }
        }
    }
    all
}

/// Virtual stages that divide the layers of a stage.
fn vpps(config: &JobConfig, model: &Model, pp: u64, is_free: bool) -> Vec<u64> {
    let own = config.parallel.vpp;
    let cuts = matches!(config.schedule, Schedule::OneForwardOneBackward | Schedule::Interleaved);
    if pp < 2 {
        return vec![1];
    }
    if !is_free || !cuts || config.parallel.stage_layers.is_some() {
        return vec![own];
    }
    let mut all = divisors(model.layers.div_ceil(pp));
    if !all.contains(&own) {
        all.push(own);
    }
    all
}

/// The order of passes that so many virtual stages need.
fn schedule(config: &JobConfig, vpp: u64, pp: u64) -> Schedule {
    match config.schedule {
        Schedule::OneForwardOneBackward if 1 < vpp => Schedule::Interleaved,
        Schedule::Interleaved if vpp == 1 => Schedule::OneForwardOneBackward,
        _ if pp == 1 => Schedule::OneForwardOneBackward,
        own => own,
    }
}

/// What a layout is called, and what must be set for it.
fn words(old: &JobConfig, new: &JobConfig, job: &Job) -> (String, Vec<String>) {
    let (was, is) = (&old.parallel, &new.parallel);
    let mut set = Vec::new();
    let mut differ = |key: &str, was: u64, is: u64| {
        if was != is {
            set.push(format!("job.{key}={is}"));
        }
    };
    differ("parallel.tp", was.tp, is.tp);
    differ("parallel.cp", was.cp, is.cp);
    differ("parallel.pp", was.pp, is.pp);
    differ("parallel.vpp", was.vpp, is.vpp);
    differ("parallel.ep", was.ep, is.ep);
    differ("parallel.dp", was.dp.unwrap_or(job.layout.dp), job.layout.dp);
    differ("batch.micro", old.batch.micro, new.batch.micro);
    let all = |config: &JobConfig| config.gpus.unwrap_or(0);
    differ("gpus", all(old), all(new));
    let named = [
        ("parallel.sharding", word(&was.sharding), word(&is.sharding)),
        ("recompute", word(&old.recompute), word(&new.recompute)),
        ("schedule", word(&old.schedule), word(&new.schedule)),
        ("parallel.overlap", list(&was.overlap), list(&is.overlap)),
    ];
    for (key, was, is) in named {
        if was != is {
            set.push(format!("job.{key}={is}"));
        }
    }
    let mut name = format!("TP {}, ", is.tp);
    for (what, degree) in [("CP", is.cp), ("PP", is.pp), ("EP", is.ep)] {
        if 1 < degree {
            name += &format!("{what} {degree}, ");
        }
    }
    name += &format!("DP {}, micro {}", job.layout.dp, new.batch.micro);
    if 1 < is.vpp {
        name += &format!(", {} virtual stages", is.vpp);
    }
    name += &format!(", {}, recompute {}", word(&is.sharding), word(&new.recompute));
    if all(old) != all(new) {
        name += &format!(", on {} GPUs", job.layout.gpus());
    }
    if was.overlap != is.overlap {
        name += HIDDEN;
    }
    (name, set)
}

/// The word or list that a scenario has for a setting.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => crate::explain::toml(&other).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use scenario::{Request, load};

    use super::*;

    /// One layout of the best degrees, computing all layers again, is all that a sample has.
    #[test]
    fn what_a_sample_has_missed_of_the_best_degrees_is_looked_at() {
        let set = vec!["job.recompute=full".to_owned()];
        let scenario = Some("small-16".to_owned());
        let loaded = load(&Request { scenario, set, ..Request::default() }).unwrap();
        let config = loaded.scenario.job.clone().unwrap();
        let job = loaded.job.clone().unwrap();
        let gpu = &loaded.scenario.catalogue.gpu[&loaded.scenario.cluster.gpu];
        let machines = machines(&loaded, gpu, job.layout.gpus());
        let judge = Judge { config: &config, machines, capacity: gpu.memory_gb.value * 1e9 };
        let all = mixes(&loaded, &config, &job, &|_| false, false);
        let is_sampled = |mix: &&JobConfig| mix.recompute == config.recompute;
        let sampled = all.iter().filter(is_sampled);
        let mut found = SearchedLayouts::default();
        for one in sampled {
            judge.look(&mut loaded.clone(), one, &job.model, &mut found);
            if 0 < found.fit {
                break;
            }
        }
        let sampled = found.scored.clone();
        judge.complete(&loaded, all.iter().collect(), &job.model, (&mut found, &|| false));
        let step = |all: &[Scored]| all.iter().map(|one| one.step_s).fold(f64::INFINITY, f64::min);
        assert!(step(&found.scored) < step(&sampled));
        let none = |one: &Scored| one.set.iter().any(|set| set == "job.recompute=none");
        let best = found.scored.iter().min_by(|a, b| a.step_s.total_cmp(&b.step_s)).unwrap();
        assert!(none(best), "{}", best.name);
        assert!(found.scored.iter().all(|one| one.degrees == sampled[0].degrees));
    }
}
