//! How far a set of predictions is off, and how often their intervals are right.

use serde::{Serialize, Serializer};

use super::{Case, Unpredicted};
use crate::interval::Class;

/// The figures of a set of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Mean of the errors' sizes; a row that could not be predicted counts as off by 100 %.
    pub mean_abs_error: f64,
    /// Their median.
    pub median_abs_error: f64,
    /// The mean over clusters of each cluster's mean.
    pub mean_over_clusters: f64,
    /// The mean, with rates turned into times.
    pub mean_abs_time_error: f64,
    /// The mean where every constant was set again without the row's cluster.
    pub left_out_mean_abs_error: f64,
    /// The median of the same.
    pub left_out_median_abs_error: f64,
    /// Mean of the signed errors.
    pub bias: f64,
    /// The share of cases within 12 %.
    pub within_12_percent: f64,
    /// The share of measurements inside their 80 % interval.
    pub coverage_80: f64,
    /// Mean half-width of those intervals, as a share of the prediction.
    pub half_width_80: f64,
}

/// The figures of one cluster or class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its rows, those that could not be predicted among them.
    pub rows: usize,
    /// How far off they are.
    #[serde(flatten)]
    pub score: Score,
}

/// Writes a class by its name.
pub(super) fn class_name<S: Serializer>(
    class: &Option<Class>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    class.as_ref().map(Class::name).serialize(serializer)
}

impl Score {
    /// Of cases, and so many rows that could not be predicted.
    pub(super) fn of(cases: &[&Case], unpredicted: usize) -> Self {
        let rows = cases.len() + unpredicted;
        if rows == 0 {
            return Self::default();
        }
        let count = rows as f64;
        let sizes = |error: &dyn Fn(&Case) -> f64| -> Vec<f64> {
            let known = cases.iter().map(|case| error(case).abs());
            known.chain(std::iter::repeat_n(1.0, unpredicted)).collect()
        };
        let mean = |sizes: Vec<f64>| sizes.iter().sum::<f64>() / count;
        let sorted = |mut sizes: Vec<f64>| {
            sizes.sort_by(f64::total_cmp);
            sizes
        };
        let median = |sizes: &[f64]| f64::midpoint(sizes[(rows - 1) / 2], sizes[rows / 2]);
        let errors = sorted(sizes(&|case| case.error));
        let predicted = cases.len().max(1) as f64;
        let inside = |case: &&&Case| (case.low..=case.high).contains(&case.measured);
        let half = |case: &&Case| (case.high - case.low) / 2.0 / case.predicted;
        Self {
            mean_abs_error: mean(sizes(&|case| case.error)),
            median_abs_error: median(&errors),
            mean_over_clusters: over_clusters(cases),
            mean_abs_time_error: mean(sizes(&|case| match case.is_time() {
                true => case.error,
                false => 1.0 / (1.0 + case.error) - 1.0,
            })),
            left_out_mean_abs_error: mean(sizes(&|case| case.left_out_error)),
            left_out_median_abs_error: median(&sorted(sizes(&|case| case.left_out_error))),
            bias: cases.iter().map(|case| case.error).sum::<f64>() / predicted,
            within_12_percent: errors.iter().filter(|size| **size <= 0.12).count() as f64 / count,
            coverage_80: cases.iter().filter(inside).count() as f64 / count,
            half_width_80: cases.iter().map(half).sum::<f64>() / predicted,
        }
    }
}

/// The mean over clusters of the mean size of their errors.
fn over_clusters(cases: &[&Case]) -> f64 {
    let names = distinct(cases.iter().map(|case| case.cluster.clone()));
    let of = |name: &String| {
        let mine = cases.iter().filter(|case| case.cluster == *name);
        let sizes: Vec<f64> = mine.map(|case| case.error.abs()).collect();
        sizes.iter().sum::<f64>() / sizes.len() as f64
    };
    names.iter().map(of).sum::<f64>() / names.len().max(1) as f64
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A part for each cluster.
pub(super) fn by_cluster(cases: &[Case], unpredicted: &[Unpredicted]) -> Vec<Part> {
    let known = cases.iter().map(|case| case.cluster.clone());
    let names = distinct(known.chain(unpredicted.iter().map(|row| row.cluster.clone())));
    let part = |name: String| {
        let mine: Vec<&Case> = cases.iter().filter(|case| case.cluster == name).collect();
        let missing = unpredicted.iter().filter(|row| row.cluster == name).count();
        Part { rows: mine.len() + missing, score: Score::of(&mine, missing), name }
    };
    names.into_iter().map(part).collect()
}

/// A part for each class; before them, for each size of collectives, the rows whose class another
/// cluster has too.
pub(super) fn by_class(cases: &[Case]) -> Vec<Part> {
    let part = |name: String, mine: Vec<&Case>| Part {
        rows: mine.len(),
        score: Score::of(&mine, 0),
        name,
    };
    let class = |case: &Case| case.class.as_ref().map(Class::name).unwrap_or_default();
    let of_size = |case: &Case| {
        let size = case.class.as_ref().and_then(Class::size).filter(|_| !case.is_alone);
        size.map(|size| format!("{size}, classes of several clusters")).unwrap_or_default()
    };
    let mut parts = Vec::new();
    for name in distinct(cases.iter().map(of_size)) {
        let mine = cases.iter().filter(|case| of_size(case) == name).collect();
        parts.push(part(name, mine));
    }
    for name in distinct(cases.iter().map(class)) {
        let mine: Vec<&Case> = cases.iter().filter(|case| class(case) == name).collect();
        let alone = if mine.iter().all(|case| case.is_alone) { " (one cluster)" } else { "" };
        parts.push(part(format!("{name}{alone}"), mine));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(cluster: &str, predicted: f64, (low, high): (f64, f64)) -> Case {
        let cluster = cluster.to_owned();
        Case { cluster, low, high, ..Case::new("", 100.0, predicted, "GB/s") }
    }

    #[test]
    fn scores_by_hand() {
        let cases = [
            case("a", 110.0, (90.0, 120.0)),
            case("a", 80.0, (70.0, 90.0)),
            case("b", 100.0, (95.0, 105.0)),
        ];
        let cases: Vec<&Case> = cases.iter().collect();
        let score = Score::of(&cases, 1);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(score.mean_abs_error, (0.1 + 0.2 + 0.0 + 1.0) / 4.0);
        near(score.median_abs_error, 0.15);
        near(score.left_out_median_abs_error, 0.15);
        near(score.mean_over_clusters, (0.15 + 0.0) / 2.0);
        near(score.mean_abs_time_error, (1.0 / 11.0 + 0.25 + 0.0 + 1.0) / 4.0);
        near(score.bias, -0.1 / 3.0);
        near(score.within_12_percent, 0.5);
        near(score.coverage_80, 0.5);
        near(score.half_width_80, (15.0 / 110.0 + 10.0 / 80.0 + 5.0 / 100.0) / 3.0);
    }
}
