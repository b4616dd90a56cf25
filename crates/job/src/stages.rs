//! Which layers a stage has, where a job does not say it.
//!
//! Evenly, or so that the slowest stage is as fast as it can be. For the latter every unit of the
//! model (vision encoder, embedding, layers, head with loss, multi-token prediction) is weighed by
//! what its kernels take, forward and backward, on the measured GPU: their ratios hardly differ
//! between GPUs. Exchanges are not weighed: layers of a kind have the same.
//!
//! How it works. The least time of the slowest part is found part by part along the model; of the
//! ways that reach it, the one whose times are the most alike (the least sum of squares) is taken.

use crate::compute::{GpuRates, Timer};
use crate::parallel::StageSplit;
use crate::program::{Unit, work};
use crate::resolve::Job;
use crate::schedule::Pass;

/// Layers of each part. Where they do not divide evenly, one layer is left out at the last part,
/// which has the head, then at the first, which has the embedding, then at the last but one, and so
/// on inwards: Llama 3's "one layer fewer on the first and the last stage".
pub(crate) fn even(layers: u64, parts: u64) -> Vec<u64> {
    let most = layers.div_ceil(parts);
    let short = usize::try_from(most * parts - layers).expect("fewer than the stages");
    let mut stages = vec![most; usize::try_from(parts).expect("stages fit memory")];
    let last = stages.len() - 1;
    for index in 0..short {
        let inwards = index / 2;
        stages[if index % 2 == 0 { last - inwards } else { inwards }] -= 1;
    }
    stages
}

/// What a job does that says nothing: evenly if layers divide and nothing but embedding and head
/// comes on top, as Megatron-LM does by itself; else balanced.
pub(crate) fn usual(layers: u64, mtp_layers: u64, parts: u64) -> StageSplit {
    match layers.is_multiple_of(parts) && mtp_layers == 0 {
        true => StageSplit::Even,
        false => StageSplit::Balanced,
    }
}

/// A layout in words: "15×4, 1×1".
pub fn in_words(stages: &[u64]) -> String {
    let runs = stages.chunk_by(|a, b| a == b);
    let words: Vec<String> = runs.map(|run| format!("{}×{}", run.len(), run[0])).collect();
    words.join(", ")
}

/// Ways that are looked at, at most: more stages and layers are spread evenly.
const MOST: u64 = 10_000_000;

/// How many layers a part may have more or fewer than the mean.
const APART: u64 = 12;

/// Layers of each part of a job, balanced. The job's own layers say how many parts there are.
pub(crate) fn balanced(job: &Job) -> Vec<u64> {
    let (layers, parts) = (job.model.layers, job.parts());
    if MOST < layers.saturating_mul(parts) * APART {
        return even(layers, parts);
    }
    let units = units(job);
    let encoder = job.model.vision.map_or(0.0, |vision| {
        vision.layers as f64 * time(job, Unit::Encoder) + time(job, Unit::Projector)
    });
    let first = time(job, Unit::Embedding) + encoder;
    let last = time(job, Unit::Head)
        + (0..job.model.mtp_layers).map(|_| time(job, Unit::prediction(&job.model))).sum::<f64>();
    spread(&units, parts, [first, last])
}

/// What each layer takes.
fn units(job: &Job) -> Vec<f64> {
    let mut known: Vec<(Unit, f64)> = Vec::new();
    let of = |layer| {
        let unit = Unit::layer(&job.model, layer);
        if let Some((_, time)) = known.iter().find(|(other, _)| *other == unit) {
            return *time;
        }
        let time = time(job, unit);
        known.push((unit, time));
        time
    };
    (0..job.model.layers).map(of).collect()
}

/// What a unit takes, forward and backward, in seconds on the measured GPU.
fn time(job: &Job, unit: Unit) -> f64 {
    let (timer, rates) = (Timer::measured(), GpuRates::h200());
    let passes = [Pass::Forward, Pass::Backward].iter();
    passes.map(|pass| timer.total(&work::of(job, unit, *pass), &rates).as_secs_f64()).sum()
}

/// Layers of each part, of layers that take these times; the ends have something besides.
fn spread(layers: &[f64], parts: u64, ends: [f64; 2]) -> Vec<u64> {
    let slowest = best(layers, parts, ends, &|so_far: f64, time: f64| so_far.max(time));
    let most = slowest.0 * (1.0 + 1e-9);
    let squares = |so_far: f64, time: f64| match time <= most {
        true => so_far + time * time,
        false => f64::INFINITY,
    };
    best(layers, parts, ends, &squares).1
}

/// The least of what a part's time adds, part by part, and how many layers each then has.
fn best(
    layers: &[f64],
    parts: u64,
    [first, last]: [f64; 2],
    add: &dyn Fn(f64, f64) -> f64,
) -> (f64, Vec<u64>) {
    let parts = usize::try_from(parts).expect("stages fit memory");
    let mean = layers.len() / parts;
    let apart = usize::try_from(APART).expect("small");
    let until: Vec<f64> = std::iter::once(0.0)
        .chain(layers.iter().scan(0.0, |sum, time| {
            *sum += time;
            Some(*sum)
        }))
        .collect();
    // By layers so far: the least, and by part how many layers the last part of that has.
    let mut least = vec![f64::INFINITY; until.len()];
    least[0] = 0.0;
    let mut taken: Vec<Vec<usize>> = Vec::with_capacity(parts);
    for part in 0..parts {
        let besides = if part == 0 { first } else { 0.0 };
        let besides = besides + if part + 1 == parts { last } else { 0.0 };
        let mut next = vec![f64::INFINITY; until.len()];
        let mut own = vec![0; until.len()];
        for to in 0..until.len() {
            for count in mean.saturating_sub(apart)..=(mean + 1 + apart).min(to) {
                let time = until[to] - until[to - count] + besides;
                let with = add(least[to - count], time);
                // Of equal ways the one with more layers later: the ends have fewer.
                if with < next[to] {
                    (next[to], own[to]) = (with, count);
                }
            }
        }
        least = next;
        taken.push(own);
    }
    let mut left = layers.len();
    let mut counts: Vec<u64> = Vec::with_capacity(parts);
    for own in taken.iter().rev() {
        counts.push(own[left] as u64);
        left -= own[left];
    }
    counts.reverse();
    (least[layers.len()], counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle, by hand: ten equal layers with a head like two of them on four stages are three,
    /// three, three, and one beside the head; a light head changes nothing.
    #[test]
    fn a_heavy_head_takes_the_place_of_layers() {
        assert_eq!(spread(&[1.0; 10], 4, [0.0, 2.0]), [3, 3, 3, 1]);
        assert_eq!(spread(&[1.0; 8], 4, [0.1, 0.5]), [2, 2, 2, 2]);
        assert_eq!(spread(&[1.0; 6], 8, [0.1, 0.5]), [0, 1, 1, 1, 1, 1, 1, 0]);
    }

    /// Oracle: every way of cutting a short model, tried.
    #[test]
    fn no_other_way_is_faster() {
        let layers = [1.0, 1.0, 2.0, 2.0, 2.0, 1.5, 2.0, 2.0, 1.0];
        let ends = [0.3, 2.5];
        let slowest = |counts: &[u64]| {
            let mut from = 0;
            let mut most = 0.0_f64;
            for (part, count) in counts.iter().enumerate() {
                let to = from + usize::try_from(*count).unwrap();
                let mut time: f64 = layers[from..to].iter().sum();
                time += if part == 0 { ends[0] } else { 0.0 };
                time += if part == 2 { ends[1] } else { 0.0 };
                most = most.max(time);
                from = to;
            }
            most
        };
        let mut least = f64::INFINITY;
        for a in 0..=9 {
            for b in 0..=9 - a {
                least = least.min(slowest(&[a, b, 9 - a - b]));
            }
        }
        let found = spread(&layers, 3, ends);
        assert_eq!(found.iter().sum::<u64>(), 9);
        assert!((slowest(&found) - least).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn words() {
        assert_eq!(in_words(&[4, 4, 4, 1]), "3×4, 1×1");
    }
}
