//! What numbers of many cases say together.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value as Json;

use crate::plan::{Case, Head};
use crate::store::Record;

/// How throughput grows with the cluster, over all cases that differ in nothing else.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scaling {
    /// Whether the work stays (strong), or grows with the GPUs (weak), or neither.
    pub kind: Kind,
    /// GPUs.
    pub gpus: u64,
    /// GPUs of the smallest case, against which it is counted.
    pub smallest: u64,
    /// Cases that were averaged.
    pub cases: usize,
    /// Tokens per second over the smallest case's: the acceleration ratio.
    pub speedup: f64,
    /// That over the ratio of GPUs.
    pub efficiency: f64,
    /// The least efficiency of one of the cases.
    pub efficiency_min: f64,
    /// The most.
    pub efficiency_max: f64,
}

/// What happens to the work of a step when the cluster grows.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It stays.
    Strong,
    /// It grows as the GPUs do.
    Weak,
    /// It grows otherwise.
    Mixed,
}

/// The measures that scaling is told from.
pub(crate) const SCALING_MEASURES: [&str; 3] = ["step_s", "gpus", "tokens_per_step"];

/// The end of the key of a sequence's length.
const LENGTH: &str = "batch.length";

/// Bins of an axis with many values: at least and at most.
const BINS: (usize, usize) = (4, 10);

/// Numbers that differ by less than this share of them are the same.
const SAME: f64 = 1e-9;

/// With fewer cases a group than that, nothing can be said of the groups' means.
const LEAST_EACH: usize = 3;

/// Whether every combination of the values that occur is there once.
pub(crate) fn is_full(cases: &[&Case], axes: usize) -> bool {
    let levels = |axis: usize| {
        let labels = cases.iter().map(|case| case.values[axis].to_string());
        labels.collect::<BTreeSet<String>>().len()
    };
    let combinations: BTreeSet<String> =
        cases.iter().map(|case| Json::from(case.values.clone()).to_string()).collect();
    let product = (0..axes).try_fold(1_usize, |product, axis| product.checked_mul(levels(axis)));
    combinations.len() == cases.len() && product == Some(cases.len())
}

/// The share of the variance of values that an axis explains by itself, of values with their
/// labels of the axis. In a full grid it is the variance of the means over the axis's levels, over
/// the whole: the first-order index of Sobol'. Otherwise a part of that is chance, which is taken
/// off (Kelley's epsilon squared), and numbers with few cases each are first put into bins. None
/// where there are too few cases to say.
pub(crate) fn explained(values: &[(&Json, f64)], full: bool) -> Option<f64> {
    let whole = mean(values.iter().map(|(_, value)| *value));
    let groups = if full { by_label(values) } else { by_label_or_bin(values) };
    let total: f64 = values.iter().map(|(_, value)| (value - whole).powi(2)).sum();
    let between: f64 = groups
        .iter()
        .map(|group| group.len() as f64 * (mean(group.iter().copied()) - whole).powi(2))
        .sum();
    match (values.len(), groups.len()) {
        // Sums of equal numbers are not quite equal.
        (count, _) if total <= count as f64 * (SAME * whole).powi(2) => Some(0.0),
        _ if full => Some((between / total).min(1.0)),
        (count, groups) if count < LEAST_EACH * groups => None,
        (count, groups) => {
            let within = (total - between).max(0.0) / (count - groups) as f64;
            Some(((between - (groups - 1) as f64 * within) / total).max(0.0))
        }
    }
}

/// The values of each label.
fn by_label(values: &[(&Json, f64)]) -> Vec<Vec<f64>> {
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (label, value) in values {
        groups.entry(label.to_string()).or_default().push(*value);
    }
    groups.into_values().collect()
}

/// The same; numbers of which there are many go into bins of equally many cases by rank.
fn by_label_or_bin(values: &[(&Json, f64)]) -> Vec<Vec<f64>> {
    let groups = by_label(values);
    let root = (values.len() as f64).sqrt();
    let bins = (root as usize).clamp(BINS.0, BINS.1);
    let number = |(label, value): &(&Json, f64)| Some((label.as_f64()?, *value));
    let numbers: Option<Vec<(f64, f64)>> = values.iter().map(number).collect();
    let Some(mut numbers) = numbers.filter(|_| bins.max(root as usize) < groups.len()) else {
        return groups;
    };
    numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut binned = vec![Vec::new(); bins];
    let mut first = 0;
    for (rank, (label, value)) in numbers.iter().enumerate() {
        // Equal numbers stay together.
        if numbers[first].0 != *label {
            first = rank;
        }
        binned[first * bins / numbers.len()].push(*value);
    }
    binned.retain(|bin| !bin.is_empty());
    binned
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}

/// The rows of which no other is at least as good in everything and better in something; less is
/// better. Rows that are equal in everything stay together.
pub(crate) fn pareto(costs: &[Vec<f64>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    let compare = |a: &Vec<f64>, b: &Vec<f64>| {
        let differing = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
        differing.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    };
    order.sort_by(|a, b| compare(&costs[*a], &costs[*b]).then(a.cmp(b)));
    let dominates = |a: &[f64], b: &[f64]| a != b && a.iter().zip(b).all(|(a, b)| a <= b);
    // Whatever dominates a row comes before it, and so does something on the front that does.
    let mut front: Vec<usize> = Vec::new();
    for row in order {
        if !front.iter().any(|other| dominates(&costs[*other], &costs[row])) {
            front.push(row);
        }
    }
    front
}

/// How throughput grows with the GPUs: cases that differ only in axes which change their number.
pub(crate) fn scaling(head: &Head, executed: &[(&Case, &Record)]) -> Vec<Scaling> {
    let place = |name: &str| head.measures.iter().position(|measure| measure == name);
    let places: Vec<usize> = SCALING_MEASURES.iter().filter_map(|name| place(name)).collect();
    let &[step, gpus, tokens] = &places[..] else { return Vec::new() };
    let point = |(case, record): &(&Case, &Record)| {
        let of = |at: usize| record.measures[at].filter(|value| 0.0 < *value);
        Some(Point {
            values: case.values.clone(),
            step: of(step)?,
            gpus: of(gpus)?,
            tokens: of(tokens)?,
        })
    };
    let points: Vec<Point> = executed.iter().filter_map(point).collect();
    let found = found(head, &points);
    let row = |((kind, gpus, smallest), all): ((Kind, u64, u64), Vec<(f64, f64)>)| {
        let efficiencies = || all.iter().map(|(_, efficiency)| *efficiency);
        Scaling {
            kind,
            gpus,
            smallest,
            cases: all.len(),
            speedup: mean(all.iter().map(|(speedup, _)| *speedup)),
            efficiency: mean(efficiencies()),
            efficiency_min: efficiencies().fold(f64::INFINITY, f64::min),
            efficiency_max: efficiencies().fold(0.0, f64::max),
        }
    };
    found.into_iter().map(row).collect()
}

/// Speed-ups and efficiencies by kind, GPUs and the smallest case's GPUs.
type ScalingPoints = BTreeMap<(Kind, u64, u64), Vec<(f64, f64)>>;

fn found(head: &Head, points: &[Point]) -> ScalingPoints {
    let axes = head.axes.len();
    let sizes = deciding_axes(axes, points, |point| point.gpus);
    let mut found = ScalingPoints::new();
    let mut add = |point: &Point, smallest: &Point| {
        let (kind, speedup, efficiency) = point.against(smallest);
        let key = (kind, point.gpus as u64, smallest.gpus as u64);
        found.entry(key).or_default().push((speedup, efficiency));
    };
    for group in groups(points, &sizes) {
        let smallest = group.iter().min_by(|a, b| a.gpus.total_cmp(&b.gpus));
        let Some(smallest) = smallest else { continue };
        for point in group.iter().filter(|point| smallest.gpus < point.gpus) {
            add(point, smallest);
        }
    }
    // Where sizes and batches are crossed, a batch that grows with the GPUs is another case's. One
    // that grows by longer sequences is other work.
    let is_batch = |axis: &usize| !sizes.contains(axis) && !head.axes[*axis].ends_with(LENGTH);
    let batches = deciding_axes(axes, points, |point| point.tokens);
    for batch in batches.into_iter().filter(is_batch) {
        let mut apart = sizes.clone();
        apart.push(batch);
        for group in groups(points, &apart) {
            let least = group.iter().map(|point| point.gpus).fold(f64::INFINITY, f64::min);
            for smallest in group.iter().filter(|point| point.gpus == least) {
                let others = group.iter().filter(|point| least < point.gpus);
                let others = others.filter(|o| o.values[batch] != smallest.values[batch]);
                for point in others.filter(|other| other.against(smallest).0 == Kind::Weak) {
                    add(point, smallest);
                }
            }
        }
    }
    found
}

/// The points that differ only in these axes.
fn groups<'a>(points: &'a [Point], apart: &[usize]) -> Vec<Vec<&'a Point>> {
    let mut groups: BTreeMap<String, Vec<&Point>> = BTreeMap::new();
    for point in points {
        let others = point.values.iter().enumerate().filter(|(at, _)| !apart.contains(at));
        let key: Vec<String> = others.map(|(_, value)| value.to_string()).collect();
        groups.entry(key.join("\u{1}")).or_default().push(point);
    }
    groups.into_values().collect()
}

/// One case as scaling sees it.
#[derive(Clone, Debug)]
struct Point {
    values: Vec<Json>,
    step: f64,
    gpus: f64,
    tokens: f64,
}

impl Point {
    /// Throughput against a smaller case's.
    fn against(&self, smallest: &Self) -> (Kind, f64, f64) {
        let rate = |point: &Self| point.tokens / point.step;
        let (ratio, work) = (self.gpus / smallest.gpus, self.tokens / smallest.tokens);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
        let kind = match work {
            work if near(work, 1.0) => Kind::Strong,
            work if near(work, ratio) => Kind::Weak,
            _ => Kind::Mixed,
        };
        let speedup = rate(self) / rate(smallest);
        (kind, speedup, speedup / ratio)
    }
}

/// The axes that decide a number: it differs between cases that differ in nothing else.
fn deciding_axes(axes: usize, points: &[Point], number: fn(&Point) -> f64) -> Vec<usize> {
    let differs = |group: &Vec<&Point>| group.iter().any(|p| number(p) != number(group[0]));
    (0..axes).filter(|axis| groups(points, &[*axis]).iter().any(differs)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(gpus: f64, tokens: f64, step: f64) -> Point {
        Point { values: Vec::new(), step, gpus, tokens }
    }

    #[test]
    fn scaling_is_strong_weak_or_neither() {
        let small = point(8.0, 100.0, 10.0);
        assert_eq!(point(16.0, 100.0, 6.25).against(&small), (Kind::Strong, 1.6, 0.8));
        assert_eq!(point(16.0, 200.0, 12.5).against(&small), (Kind::Weak, 1.6, 0.8));
        assert_eq!(point(16.0, 150.0, 10.0).against(&small).0, Kind::Mixed);
    }

    /// The mean of equal numbers is not quite that number: no axis explains what is no difference.
    #[test]
    fn equal_results_have_no_variance_to_explain() {
        let labels: Vec<Json> = (0..3000).map(|at| Json::from(at % 5)).collect();
        let values: Vec<(&Json, f64)> = labels.iter().map(|label| (label, 14.837_21)).collect();
        assert_eq!([true, false].map(|full| explained(&values, full)), [Some(0.0); 2]);
    }

    /// One of three continuous axes decides, as a random and as a Latin hypercube sample have it.
    #[test]
    fn what_decides_a_sample_is_told_from_what_does_not() {
        for (count, is_latin) in [(400, false), (60, true)] {
            let mut random = units::Random::new(7, "test", 0);
            let mut axis = || {
                let mut parts: Vec<usize> = (0..count).collect();
                random.shuffle(&mut parts);
                let place = |part: usize| match is_latin {
                    true => (part as f64 + random.unit()) / count as f64,
                    false => random.unit(),
                };
                parts.into_iter().map(place).collect::<Vec<f64>>()
            };
            let axes = [axis(), axis(), axis()];
            let share = |of: &[f64]| {
                let labels: Vec<Json> = of.iter().map(|label| Json::from(*label)).collect();
                let values: Vec<(&Json, f64)> =
                    labels.iter().zip(axes[1].iter().map(|x| 3.0 + x * x)).collect();
                explained(&values, false).unwrap()
            };
            let [first, decides, last] = [0, 1, 2].map(|at| share(&axes[at]));
            assert!(0.8 < decides, "{count}: {decides}");
            assert!(first < 0.15 && last < 0.15, "{count}: {first} {last}");
        }
    }

    #[test]
    fn too_few_cases_say_nothing_and_a_full_grid_says_all() {
        let labels: Vec<Json> = (0..8).map(Json::from).collect();
        let values: Vec<(&Json, f64)> = labels.iter().zip((0..8).map(f64::from)).collect();
        assert_eq!(explained(&values, false), None);
        assert_eq!(explained(&values, true), Some(1.0));
    }

    proptest! {
        /// A front by its definition, the slow way.
        #[test]
        fn nothing_dominates_a_front_and_it_dominates_the_rest(
            rows in prop::collection::vec(prop::collection::vec(0_u8..5, 3), 0..40)
        ) {
            let row = |row: &Vec<u8>| row.iter().map(|value| f64::from(*value)).collect();
            let costs: Vec<Vec<f64>> = rows.iter().map(row).collect();
            let dominates =
                |a: &[f64], b: &[f64]| a != b && a.iter().zip(b).all(|(a, b)| a <= b);
            let mut front = pareto(&costs);
            front.sort_unstable();
            let is_free = |at: &usize| !costs.iter().any(|other| dominates(other, &costs[*at]));
            prop_assert_eq!(front, (0..costs.len()).filter(is_free).collect::<Vec<_>>());
        }
    }
}
