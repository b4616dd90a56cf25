//! What numbers of many cases say together.

use std::collections::BTreeMap;

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

/// The share of the variance of values that an axis explains by itself: the variance of the means
/// over its levels, over the whole. Where all combinations are there this is the first-order index
/// of Sobol'.
pub(crate) fn explained(values: &[(&Case, f64)], axis: usize) -> f64 {
    let whole = mean(values.iter().map(|(_, value)| *value));
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (case, value) in values {
        groups.entry(case.values[axis].to_string()).or_default().push(*value);
    }
    let total: f64 = values.iter().map(|(_, value)| (value - whole).powi(2)).sum();
    let between: f64 = groups
        .values()
        .map(|group| group.len() as f64 * (mean(group.iter().copied()) - whole).powi(2))
        .sum();
    if 0.0 < total { between / total } else { 0.0 }
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
    let sizes = size_axes(head.axes.len(), &points);
    let mut groups: BTreeMap<String, Vec<&Point>> = BTreeMap::new();
    for point in &points {
        let others = point.values.iter().enumerate().filter(|(at, _)| !sizes.contains(at));
        let key: Vec<String> = others.map(|(_, value)| value.to_string()).collect();
        groups.entry(key.join("\u{1}")).or_default().push(point);
    }
    let mut found: BTreeMap<(Kind, u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for group in groups.values() {
        let smallest = group.iter().min_by(|a, b| a.gpus.total_cmp(&b.gpus));
        let Some(smallest) = smallest else { continue };
        for point in group.iter().filter(|point| smallest.gpus < point.gpus) {
            let (kind, speedup, efficiency) = point.against(smallest);
            let key = (kind, point.gpus as u64, smallest.gpus as u64);
            found.entry(key).or_default().push((speedup, efficiency));
        }
    }
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

/// The axes that decide the number of GPUs: whose levels each have one number, and not all the
/// same, when every other axis stays.
fn size_axes(axes: usize, points: &[Point]) -> Vec<usize> {
    let decides = |axis: &usize| {
        let mut others: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for point in points {
            let rest = point.values.iter().enumerate().filter(|(at, _)| at != axis);
            let key: Vec<String> = rest.map(|(_, value)| value.to_string()).collect();
            others.entry(key.join("\u{1}")).or_default().push(point.gpus);
        }
        others.values().any(|gpus| gpus.iter().any(|other| *other != gpus[0]))
    };
    (0..axes).filter(decides).collect()
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
