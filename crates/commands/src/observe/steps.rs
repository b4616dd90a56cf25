//! Constants of the software around a step, from what profilers recorded of steps.
//!
//! * Kernels: what a rank computed over what it should compute, on average over ranks and steps; by
//!   kind where their names tell products, attention and the rest apart.
//! * Jitter: draws of servers are exponential, so the mean above the least of them is the mean
//!   draw, and its interval is that of a chi-squared distribution.
//! * Overlap: the rank that comes last waits for nobody, so what is exposed on it is communication
//!   alone. Where traces say which group a collective is for, and its ranks are those of a
//!   tensor-parallel group, the share is what of its time nothing hides. Otherwise it is the share
//!   that makes the prediction expose as much.
//!
//! Where it departs from reality: whatever else makes servers unequal counts as jitter, and that
//! computation beside communication is slower cannot be told from slow kernels. Products and
//! softmax of unfused attention count as products and as the rest.

use std::collections::BTreeMap;

use ::observe::Summary;
use ::observe::observed::Step;
use job::compute::KernelKind;
use job::{Axis, GroupKind, Layout};
use scenario::Loaded;
use step::breakdown::busiest_stage;
use step::overheads::Overheads;

use super::calibrate::{Constant, Refused};
use super::fit::student_975;
use crate::Drawing;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::files::profile::{parts_of, ranks_by_server};
use crate::packets::Patience;
use crate::run_job::{self, Options};
use crate::seeds::Repeat;

/// Fewer steps of servers than this determine nothing.
const FEWEST: usize = 8;
/// The widest half of an interval that is believed, as a share of the value: as of collectives.
const WIDEST: f64 = 0.5;
/// A kind of kernel that takes a smaller share of computation is not determined.
const LEAST_KIND: f64 = 0.02;
/// How much longer a kind of kernel is made to see what it takes.
const LONGER: f64 = 0.05;
/// Halvings of the share that stays exposed.
const HALVINGS: usize = 14;
/// How well what a step exposes is predicted where all constants are right, as a share of it.
const MODEL: f64 = 0.01;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct FromSteps {
    pub(super) constants: Vec<Constant>,
    pub(super) refused: Vec<Refused>,
}

/// What profilers saw of one kind of rank: by server and step computation, by step communication
/// that nothing hides on the rank on which it is least, in seconds.
struct Seen {
    compute: BTreeMap<(u64, u64), f64>,
    /// The same by kind of kernel, where their names tell.
    kinds: BTreeMap<(u64, u64), [f64; 3]>,
    /// By step: the least share of tensor-parallel exchanges that a rank has exposed.
    tensor: BTreeMap<u64, f64>,
    exposed: BTreeMap<u64, f64>,
    servers: usize,
}

/// What is predicted of the rank that computes longest.
struct Predicted {
    compute: f64,
    exposed: f64,
    stage: u32,
}

fn predict(
    loaded: &Loaded,
    engine: Engine,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Predicted, Failure> {
    let (patience, drawing) = (Patience::Usual, Drawing::Omitted);
    let options = Options { engine, patience, drawing, ask_what_if: false, whole: false };
    let mut found = Predicted { compute: 0.0, exposed: 0.0, stage: 0 };
    run_job::run_and(loaded, &options, Repeat::ONCE, watch, |_, prediction| {
        let (compute, exposed) = parts_of(&prediction.breakdown);
        found = Predicted { compute, exposed, stage: busiest_stage(&prediction.line) };
        Ok(())
    })?;
    Ok(found)
}

fn seen(summary: &Summary, loaded: &Loaded, engine: Engine, stage: u32) -> Result<Seen, Failure> {
    let world = run_job::world(loaded, engine)?;
    let each = world.fabric().gpus_per_node().max(1) as u64;
    let layout = &world.job.layout;
    let mut sums: BTreeMap<(u64, u64), (f64, f64)> = BTreeMap::new();
    let mut kinds: BTreeMap<(u64, u64), [f64; 3]> = BTreeMap::new();
    let mut exposed: BTreeMap<u64, f64> = BTreeMap::new();
    let mut tensor: BTreeMap<u64, f64> = BTreeMap::new();
    for step in &summary.step_list {
        let Some(rank) = step.rank.map(u64::from).filter(|rank| *rank < layout.gpus()) else {
            continue;
        };
        if let Some(share) = tensor_share(summary, layout, step) {
            let least = tensor.entry(step.number).or_insert(share);
            *least = least.min(share);
        }
        let compute = step.compute_s.filter(|seconds| 0.0 < *seconds);
        let own = u64::from(stage) == layout.coordinates(rank).pp;
        let Some(compute) = compute.filter(|_| own) else { continue };
        let sum = sums.entry((world.placement.gpu(rank) / each, step.number)).or_default();
        *sum = (sum.0 + compute, sum.1 + 1.0);
        if let Some(own) = step.kernels.filter(|own| 0.0 < own.product_s + own.attention_s) {
            let sums = kinds.entry((world.placement.gpu(rank) / each, step.number)).or_default();
            let own = [own.product_s, own.attention_s, own.memory_s];
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        if let Some(seconds) = step.exposed_s {
            let least = exposed.entry(step.number).or_insert(seconds);
            *least = least.min(seconds);
        }
    }
    for (key, own) in &mut kinds {
        own.iter_mut().for_each(|sum| *sum /= sums[key].1);
    }
    let compute = sums.into_iter().map(|(key, (sum, count))| (key, sum / count)).collect();
    Ok(Seen { compute, kinds, tensor, exposed, servers: ranks_by_server(&world).len() })
}

/// What share of its tensor-parallel exchanges a rank has exposed in a step: those of the process
/// groups whose ranks are a tensor-parallel group.
fn tensor_share(summary: &Summary, layout: &Layout, step: &Step) -> Option<f64> {
    let is_tensor = |name: &str| {
        let id = format!("process group {name}");
        let mut known = summary.communicators.iter().filter(|group| group.id == id);
        known.any(|group| {
            let members: Vec<u64> = group.members.iter().copied().map(u64::from).collect();
            let first = members.first().filter(|first| **first < layout.gpus());
            let own = first.and_then(|first| layout.group_of(GroupKind::Tensor, *first));
            1 < members.len() && own.is_some_and(|own| own.members().eq(members.iter().copied()))
        })
    };
    let own = step.groups.iter().filter(|(name, _)| is_tensor(name));
    let [all, bare] = own.fold([0.0; 2], |sum, (_, own)| [sum[0] + own[0], sum[1] + own[1]]);
    (0.0 < all).then(|| bare / all)
}

/// Fits what the steps determine; `loaded` already has what collectives determine, and `edges`
/// have one constant of those at the end of its interval each.
pub(super) fn fit(
    summary: &Summary,
    mut loaded: Loaded,
    mut edges: Vec<Loaded>,
    engine: Engine,
    watch: &mut packetsim::Watch<'_>,
) -> Result<FromSteps, Failure> {
    let mut found = FromSteps::default();
    if loaded.job.is_none() || summary.step_list.is_empty() {
        return Ok(found);
    }
    let nominal = predict(&loaded, engine, watch)?;
    let seen = seen(summary, &loaded, engine, nominal.stage)?;
    let ratios: Vec<f64> = seen.compute.values().map(|s| s / nominal.compute).collect();
    if ratios.len() < FEWEST {
        let why = format!("{} steps of ranks that compute are too few for it", ratios.len());
        found.refused.push(Refused { key: "software.kernel_time", why });
        return Ok(found);
    }
    let [mean, _] = mean_of(&ratios);
    let constants = match seen.kinds.is_empty() {
        true => {
            for kind in KernelKind::ALL {
                let why = "kernels of the traces have no names that tell kinds apart".to_owned();
                found.refused.push(Refused { key: key_of(kind), why });
            }
            vec![Kernels { kind: None, factor: mean_of(&ratios) }]
        }
        false => kernels(&loaded, (engine, &nominal), &seen, watch, &mut found)?,
    };
    for edge in &mut edges {
        constants.iter().for_each(|one| one.set(edge, one.factor[0]));
    }
    let before = loaded.clone();
    constants.iter().for_each(|one| one.set(&mut loaded, one.factor[0]));
    for one in &constants {
        let mut edge = loaded.clone();
        one.set(&mut edge, 1.0 + one.factor[1] / one.factor[0]);
        edges.push(edge);
        found.constants.push(one.constant(&before));
    }
    jitter(&ratios, mean, &seen, &mut found);
    overlap(&loaded, &edges, engine, &seen, watch, &mut found)?;
    Ok(found)
}

/// How long kernels take, over what the scenario says: of a kind, or of all.
struct Kernels {
    kind: Option<KernelKind>,
    /// The mean and the half-width of its interval.
    factor: [f64; 2],
}

fn key_of(kind: KernelKind) -> &'static str {
    match kind {
        KernelKind::Product => "software.product_time",
        KernelKind::Attention => "software.attention_time",
        KernelKind::Memory => "software.memory_time",
    }
}

impl Kernels {
    fn set(&self, loaded: &mut Loaded, factor: f64) {
        let software = &mut loaded.scenario.software;
        match self.kind {
            None => software.kernel_time *= factor,
            Some(kind) => set(software, kind, factor),
        }
    }

    fn constant(&self, before: &Loaded) -> Constant {
        let software = &before.scenario.software;
        let old = self.kind.map_or(software.kernel_time, |kind| software.time_of(kind));
        let [value, half] = self.factor.map(|factor| factor * old);
        Constant {
            key: self.kind.map_or("software.kernel_time", key_of),
            value,
            low: value - half,
            high: value + half,
            unit: "",
            what: match self.kind {
                None => "how long kernels take, over those that were measured",
                Some(KernelKind::Product) => "how long matrix products take",
                Some(KernelKind::Attention) => "how long attention takes",
                Some(KernelKind::Memory) => "how long kernels at the memory's rate take",
            },
            written: format!("{value:.6}"),
        }
    }
}

fn set(software: &mut Overheads, kind: KernelKind, factor: f64) {
    let time = Some(software.time_of(kind) * factor);
    match kind {
        KernelKind::Product => software.product_time = time,
        KernelKind::Attention => software.attention_time = time,
        KernelKind::Memory => software.memory_time = time,
    }
}

/// Fits each kind of kernel that takes a part of the step worth speaking of.
fn kernels(
    loaded: &Loaded,
    (engine, nominal): (Engine, &Predicted),
    seen: &Seen,
    watch: &mut packetsim::Watch<'_>,
    found: &mut FromSteps,
) -> Result<Vec<Kernels>, Failure> {
    let why = "each kind of kernel is fitted by itself".to_owned();
    found.refused.push(Refused { key: "software.kernel_time", why });
    let mut constants = Vec::new();
    for (at, kind) in KernelKind::ALL.into_iter().enumerate() {
        let mut trial = loaded.clone();
        set(&mut trial.scenario.software, kind, 1.0 + LONGER);
        let longer = predict(&trial, engine, watch)?;
        let takes = (longer.compute - nominal.compute) / LONGER;
        let ratios: Vec<f64> = seen.kinds.values().map(|own| own[at] / takes).collect();
        let [mean, half] = mean_of(&ratios);
        let why = if longer.stage != nominal.stage || takes < LEAST_KIND * nominal.compute {
            "it is less than 2 % of what the job computes".to_owned()
        } else if mean <= 0.0 {
            "the traces have no kernels of this kind by name".to_owned()
        } else if WIDEST * mean <= half {
            format!("its 95 % interval would be ±{:.0} %", 100.0 * half / mean)
        } else {
            constants.push(Kernels { kind: Some(kind), factor: [mean, half] });
            continue;
        };
        found.refused.push(Refused { key: key_of(kind), why });
    }
    Ok(constants)
}

/// The mean, and the half-width of its 95 % interval.
pub(super) fn mean_of(values: &[f64]) -> [f64; 2] {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let freedom = (n - 1.0).max(1.0);
    [mean, student_975(freedom) * (squares / freedom / n).sqrt()]
}

fn jitter(ratios: &[f64], mean: f64, seen: &Seen, found: &mut FromSteps) {
    let key = "jitter.mean";
    let refuse = |why: String| Refused { key, why };
    let mut servers: Vec<u64> = seen.compute.keys().map(|(server, _)| *server).collect();
    servers.dedup();
    if servers.len() < 2 {
        let why = format!("traces of {} of {} servers do not show it", servers.len(), seen.servers);
        return found.refused.push(refuse(why));
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let n = ratios.len() as f64;
    let value = (mean - least) * n / (n - 1.0) / mean;
    let freedom = 2.0 * (n - 1.0);
    let [low, high] = [1.0, -1.0].map(|side| value * freedom / chi_squared(freedom, side));
    let half = 0.5 * (high - low) / value.max(f64::MIN_POSITIVE);
    if half.is_nan() || WIDEST <= half {
        let why = format!("its 95 % interval would be ±{:.0} %", 100.0 * half);
        return found.refused.push(refuse(why));
    }
    found.constants.push(Constant {
        key,
        value,
        low,
        high,
        unit: "",
        what: "how much slower a server computes in a step, on average",
        written: format!("{value:.6}"),
    });
}

/// The 97.5 % quantile of a chi-squared distribution, or its 2.5 % quantile with -1 (Wilson and
/// Hilferty, 1931).
fn chi_squared(freedom: f64, side: f64) -> f64 {
    let part = 2.0 / (9.0 * freedom);
    freedom * (1.0 - part + side * 1.959_964 * part.sqrt()).powi(3)
}

/// The share of overlapped tensor-parallel exchanges that stays exposed.
fn overlap(
    loaded: &Loaded,
    edges: &[Loaded],
    engine: Engine,
    seen: &Seen,
    watch: &mut packetsim::Watch<'_>,
    found: &mut FromSteps,
) -> Result<(), Failure> {
    let key = "software.tensor_exposed";
    let job = loaded.job.as_ref();
    if !job.is_some_and(|job| job.parallel.overlap.contains(&Axis::Tp) && 1 < job.layout.tp) {
        let why = "the job does not overlap tensor-parallel communication".to_owned();
        found.refused.push(Refused { key, why });
        return Ok(());
    }
    let told: Vec<f64> = seen.tensor.values().copied().collect();
    if FEWEST <= told.len() {
        let [value, half] = mean_of(&told);
        found.constants.push(exposed_share(value, value - half, value + half));
        return Ok(());
    }
    let steps: Vec<f64> = seen.exposed.values().copied().collect();
    let [mean, half] = mean_of(&steps);
    let mut exposed_at = |loaded: &Loaded, share: f64| {
        let mut trial = loaded.clone();
        trial.scenario.software.tensor_exposed = Some(share);
        predict(&trial, engine, watch).map(|predicted| predicted.exposed)
    };
    let [none, all] = [exposed_at(loaded, 0.0)?, exposed_at(loaded, 1.0)?];
    if steps.len() < FEWEST || !(none..all).contains(&mean) {
        let why = format!(
            "{} steps with {mean:.4} s exposed, and it would be {none:.4} to {all:.4} s",
            steps.len()
        );
        found.refused.push(Refused { key, why });
        return Ok(());
    }
    let mut share_for = |loaded: &Loaded, exposed: f64| -> Result<f64, Failure> {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            match exposed_at(loaded, middle)? < exposed {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(f64::midpoint(low, high))
    };
    let value = share_for(loaded, mean)?;
    // What is exposed besides is no better predicted than this, and where that hides what depends
    // on the share, many shares expose as much.
    let half = half.hypot(MODEL * mean);
    let mut ends = [share_for(loaded, mean - half)?, share_for(loaded, mean + half)?];
    // What the other constants leave open, this one does too.
    for edge in edges {
        let moved = share_for(edge, mean)? - value;
        ends = [(-1.0, ends[0]), (1.0, ends[1])]
            .map(|(side, end)| value + side * (end - value).hypot(moved));
    }
    let [low, high] = ends.map(|end| end.clamp(0.0, 1.0));
    if WIDEST * value <= 0.5 * (high - low) {
        let why = format!("shares from {low:.2} to {high:.2} expose as much");
        found.refused.push(Refused { key, why });
        return Ok(());
    }
    found.constants.push(exposed_share(value, low, high));
    Ok(())
}

fn exposed_share(value: f64, low: f64, high: f64) -> Constant {
    Constant {
        key: "software.tensor_exposed",
        value,
        low: low.clamp(0.0, 1.0),
        high: high.clamp(0.0, 1.0),
        unit: "",
        what: "the share of overlapped tensor-parallel exchanges that stays exposed",
        written: format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::chi_squared;

    /// Oracle: tables of the distribution.
    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, low, high) in [(10.0, 3.247, 20.483), (50.0, 32.357, 71.420)] {
            assert!((chi_squared(freedom, -1.0) / low - 1.0).abs() < 0.01, "{freedom}");
            assert!((chi_squared(freedom, 1.0) / high - 1.0).abs() < 0.01, "{freedom}");
        }
    }
}
