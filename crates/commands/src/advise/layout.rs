//! Every legal way to cut the job that fits memory, by closed forms.
//!
//! Degrees of tensor, context, pipeline and expert parallelism, virtual stages, the microbatch,
//! sharding and recomputation are mixed; what the job's own rules refuse and what does not fit a
//! GPU is left out. Closed forms know no contention: they choose what the engine is asked.

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
use step::predict::predict_on;
use units::Bytes;

use super::Clock;
use crate::change::{Change, Kind};
use crate::parallel;
use crate::world::{JobWorld, assumptions};

/// Layouts that are looked at, at most.
const MOST: usize = 20_000;

/// Of those, so many are told with their steps.
const TOLD: usize = 400;

/// Layouts that one thread looks at with one copy of the scenario.
const CHUNK: usize = 16;

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layouts {
    /// Mixes that the job's rules allow.
    pub legal: usize,
    /// Those that fit memory.
    pub fit: usize,
    /// Those that were predicted by closed forms before time was up.
    pub predicted: usize,
    /// The best of them, and those that no other beats in both step and memory.
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
    /// Whether no other is better in both.
    pub front: bool,
}

/// Searches, and names the best as changes.
pub(super) fn search(
    loaded: &Loaded,
    fixed: &dyn Fn(&str) -> bool,
    (threads, clock): (usize, Clock<'_>),
    most: usize,
) -> (Layouts, Vec<Change>) {
    let Some((config, job)) = loaded.scenario.job.as_ref().zip(loaded.job.as_ref()) else {
        return Default::default();
    };
    let gpu = loaded.scenario.catalogue.gpu.get(&loaded.scenario.cluster.gpu);
    let capacity = gpu.map_or(0.0, |gpu| gpu.memory_gb.value * 1e9);
    let all = mixes(loaded, config, job, fixed);
    let legal = all.len();
    let fit: Vec<(JobConfig, Job, f64)> = all
        .into_iter()
        .filter_map(|(config, job)| {
            let fullest = memory::usage(&job).iter().map(memory::Usage::total).max()?;
            let share = fullest.get() as f64 / capacity.max(1.0);
            memory::check(&job, Bytes::new(capacity as u64)).is_ok().then_some((config, job, share))
        })
        .collect();
    let chunks: Vec<&[(JobConfig, Job, f64)]> = fit.chunks(CHUNK).collect();
    let scored = parallel::map(threads, &chunks, |chunk| {
        let mut own = loaded.clone();
        let score = |(new, job, memory): &(JobConfig, Job, f64)| {
            if clock.is_over() {
                return None;
            }
            own.scenario.job = Some(new.clone());
            own.job = Some(job.clone());
            let step_s = closed(&own)?;
            let (name, set) = words(config, new, job);
            Some(Scored { name, set, step_s, memory: *memory, front: false })
        };
        chunk.iter().map(score).collect::<Vec<_>>()
    });
    let mut scored: Vec<Scored> = scored.into_iter().flatten().flatten().collect();
    let predicted = scored.len();
    scored.sort_by(|a, b| a.step_s.total_cmp(&b.step_s).then(a.name.cmp(&b.name)));
    let now = closed(loaded).unwrap_or(f64::INFINITY);
    let better = scored.iter().filter(|one| one.step_s < now && !one.set.is_empty());
    let changes = different(better, most).map(|one| change(one, now)).collect();
    let layouts = Layouts { legal, fit: fit.len(), predicted, best: front(scored) };
    (layouts, changes)
}

/// All axes that the software does not hide, hidden at once; one alone is a lever already.
pub(super) fn overlap(loaded: &Loaded) -> Option<Change> {
    let job = loaded.job.as_ref()?;
    let (layout, own) = (&job.layout, &job.parallel.overlap);
    let degrees = [layout.tp, layout.cp, layout.ep, layout.pp, layout.dp];
    let axes = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp, Axis::Dp].into_iter().zip(degrees);
    let open: Vec<Axis> = axes
        .filter(|(axis, degree)| 1 < *degree && !own.contains(axis))
        .map(|(axis, _)| axis)
        .collect();
    if open.len() < 2 {
        return None;
    }
    let mut all: Vec<Axis> = own.iter().chain(&open).copied().collect();
    all.sort();
    let all: Vec<String> = all.iter().map(|axis| format!("\"{}\"", axis.word())).collect();
    let set = [format!("job.parallel.overlap=[{}]", all.join(", "))];
    let words: Vec<String> = open.iter().map(|axis| axis.word().to_uppercase()).collect();
    let name = format!("{} communication behind computation", words.join(", "));
    Some(Change::new(Kind::Layout, name, set))
}

/// The best of each mix of tensor and pipeline parallelism first, so that not all are alike.
fn different<'a>(
    scored: impl Iterator<Item = &'a Scored>,
    most: usize,
) -> impl Iterator<Item = &'a Scored> {
    let mut seen: Vec<String> = Vec::new();
    let kind = |one: &Scored| one.name.split(", micro").next().unwrap_or_default().to_owned();
    let is_new = move |one: &&Scored| {
        let kind = kind(one);
        let known = seen.iter().filter(|other| **other == kind).count();
        seen.push(kind);
        known < 2
    };
    scored.filter(is_new).take(most)
}

fn change(one: &Scored, now: f64) -> Change {
    let why = format!(
        "closed forms say {:.3} s in place of {now:.3} s, of all layouts that fit",
        one.step_s
    );
    let risk = format!("takes {:.0} % of a GPU's memory", 100.0 * one.memory);
    let change = Change::new(Kind::Layout, one.name.clone(), one.set.clone());
    change.because(why, now - one.step_s).risking(risk)
}

/// The best, and what no other beats in step and memory.
fn front(scored: Vec<Scored>) -> Vec<Scored> {
    let mut least = f64::INFINITY;
    let mut told = Vec::new();
    for (at, one) in scored.into_iter().enumerate() {
        let front = one.memory < least;
        least = least.min(one.memory);
        if front || at < TOLD {
            told.push(Scored { front, ..one });
        }
    }
    told
}

/// The step by closed forms.
fn closed(loaded: &Loaded) -> Option<f64> {
    let world = JobWorld::of(loaded).ok()?;
    let prediction = predict_on(world.world(), &assumptions(loaded), None).ok()?;
    Some(prediction.step.as_secs_f64())
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
        let others = [Sharding::Zero1, Sharding::Fsdp].into_iter();
        let others = others.filter(|_| is_free("parallel.sharding"));
        shardings.extend(others.filter(|it| *it != own.sharding));
        Self {
            tps: degree("tp", own.tp, domain.min(model.heads)),
            cps: degree("cp", own.cp, long.max(own.cp)),
            pps,
            eps,
            micros: or_own("batch.micro", config.batch.micro, &[1, 2, 4, 8]),
            recomputes,
            shardings,
        }
    }
}

/// All mixes that the job's rules allow, the one that is there included.
fn mixes(
    loaded: &Loaded,
    config: &JobConfig,
    job: &Job,
    fixed: &dyn Fn(&str) -> bool,
) -> Vec<(JobConfig, Job)> {
    let fabric = loaded.fabric();
    let site = Site {
        gpus: fabric.gpus() as u64,
        gpus_per_node: fabric.gpus_per_node() as u64,
        scale_up: fabric.gpus_per_domain() as u64,
    };
    let is_free = |key: &str| !fixed(&format!("job.{key}"));
    let free = Free::of(loaded, config, job, &is_free);
    let (gpus, model) = (job.layout.gpus(), &job.model);
    let mut found = Vec::new();
    for (tp, cp, pp, ep) in product(&free.tps, &free.cps, &free.pps, &free.eps) {
        if !gpus.is_multiple_of(tp * cp * pp) {
            continue;
        }
        let mut new = config.clone();
        let parallel = &mut new.parallel;
        (parallel.tp, parallel.cp, parallel.pp, parallel.ep) = (tp, cp, pp, ep);
        parallel.dp = Some(gpus / (tp * cp * pp));
        if new.placement.policy == Policy::MinCut {
            new.placement.policy = Policy::TopologyAware;
        }
        for vpp in vpps(config, model, pp, is_free("parallel.vpp")) {
            new.parallel.vpp = vpp;
            new.schedule = schedule(config, vpp, pp);
            for new in free.finer(&new) {
                if let Ok((job, _)) = resolve(&new, model.clone(), &site) {
                    found.push((new, job));
                }
                if MOST <= found.len() {
                    return found;
                }
            }
        }
    }
    found
}

impl Free {
    /// A mix of degrees with every microbatch, sharding and recomputation.
    fn finer(&self, config: &JobConfig) -> Vec<JobConfig> {
        let mut all = Vec::new();
        for &micro in &self.micros {
            for &sharding in &self.shardings {
                for recompute in &self.recomputes {
                    let mut new = config.clone();
                    new.batch.micro = micro;
                    new.parallel.sharding = sharding;
                    new.recompute = recompute.clone();
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
    let mut all: Vec<u64> =
        divisors(model.layers / pp).into_iter().filter(|vpp| *vpp <= 8).collect();
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
    let named = [
        ("parallel.sharding", word(&was.sharding), word(&is.sharding)),
        ("recompute", word(&old.recompute), word(&new.recompute)),
        ("schedule", word(&old.schedule), word(&new.schedule)),
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
