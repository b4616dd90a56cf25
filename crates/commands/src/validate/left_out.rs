//! Constants that measurements set, and what they are without one cluster.
//!
//! A prediction is only tested by a cluster that had no part in it. So every constant that was set
//! with published measurements is listed here ([`CONSTANTS`]), and [`set_again`] sets it without
//! each cluster in turn: of a few values the one with the least mean error, where every cluster
//! counts the same. `fatflow validate --leave-out DIR` does that and writes `left_out.toml` and
//! `residuals.csv`; the ones in the binary are in `validation/`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use scenario::ScenarioFile;
use serde::{Deserialize, Serialize};
use step::predict::Assumptions;
use traffic::nccl;

/// What rows are predicted with.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// The communication library, for collectives.
    pub library: nccl::Settings,
    /// Software and machines, for steps.
    pub assumptions: Assumptions,
}

impl Tuning {
    /// With the constants of a scenario.
    pub(super) fn of(scenario: &ScenarioFile) -> Self {
        let (overheads, jitter) = (scenario.software.clone(), scenario.jitter.clone());
        let assumptions = Assumptions { overheads, jitter, ..Assumptions::default() };
        Self { library: scenario.library.clone(), assumptions }
    }
}

/// Which rows set a constant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SetBy {
    /// Training steps.
    Steps,
    /// Collectives.
    Collectives,
}

/// A constant that measurements set.
pub struct Constant {
    /// Its key in a scenario.
    pub key: &'static str,
    /// Its unit; nothing for shares.
    pub unit: &'static str,
    /// Which rows set it.
    pub set_by: SetBy,
    /// The values that are tried.
    values: &'static [f64],
    get: fn(&Tuning) -> f64,
    set: fn(&mut Tuning, f64),
}

/// All of them.
pub const CONSTANTS: &[Constant] = &[
    Constant {
        key: "software.compute_slowdown",
        unit: "",
        set_by: SetBy::Steps,
        values: &[0.03, 0.045, 0.06, 0.075, 0.09, 0.105, 0.12],
        get: |tuning| tuning.assumptions.overheads.compute_slowdown,
        set: |tuning, value| tuning.assumptions.overheads.compute_slowdown = value,
    },
    Constant {
        key: "jitter.mean",
        unit: "",
        set_by: SetBy::Steps,
        values: &[0.0072, 0.0108, 0.0126, 0.0144, 0.0162, 0.018, 0.0216],
        get: |tuning| tuning.assumptions.jitter.mean,
        set: |tuning, value| tuning.assumptions.jitter.mean = value,
    },
    Constant {
        key: "library.nvls_network_share",
        unit: "",
        set_by: SetBy::Collectives,
        values: &[0.85, 0.87, 0.89, 0.91, 0.93, 0.95, 1.0],
        get: |tuning| tuning.library.nvls_network_share,
        set: |tuning, value| tuning.library.nvls_network_share = value,
    },
    Constant {
        key: "library.ring_channel_gbps",
        unit: "GB/s",
        set_by: SetBy::Collectives,
        values: &[19.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 27.0],
        get: |tuning| tuning.library.ring_channel_gbps,
        set: |tuning, value| tuning.library.ring_channel_gbps = value,
    },
];

/// What one constant is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// As everybody uses it.
    pub value: f64,
    /// As all measurements set it.
    pub by_all: f64,
    /// Rows that it changes.
    pub rows: usize,
    /// Their clusters.
    pub clusters: usize,
    /// What it is without one of them, where that differs from `value`.
    #[serde(default)]
    pub without: BTreeMap<String, f64>,
}

/// All constants, by their keys.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// By key.
    pub constant: BTreeMap<String, Setting>,
}

impl LeftOut {
    /// Those in the binary: `validation/left_out.toml`.
    pub fn published() -> &'static Self {
        static PUBLISHED: OnceLock<LeftOut> = OnceLock::new();
        let read = || toml::from_str(&embedded::text!("left_out.toml"));
        PUBLISHED.get_or_init(|| read().expect("a test reads it"))
    }

    /// The file.
    pub fn text(&self) -> String {
        let table = toml::to_string(self).expect("names and numbers can be written");
        format!(
            "# Constants that published measurements set, and what they are without one cluster.\n\
             # Renewed by `fatflow validate --leave-out validation`.\n\n{table}"
        )
    }

    /// What rows of a cluster are predicted with, so that they have no part in it; nothing where
    /// that is what everybody uses.
    pub fn without(&self, cluster: &str, base: &Tuning) -> Option<Tuning> {
        let mut tuning = None;
        for constant in CONSTANTS {
            let value = self.constant.get(constant.key).and_then(|set| set.without.get(cluster));
            if let Some(value) = value {
                (constant.set)(tuning.get_or_insert_with(|| base.clone()), *value);
            }
        }
        tuning
    }
}

/// A row that sets constants: its cluster, which constants it can set.
pub(super) type Setter = (String, SetBy);

/// Sets every constant again without each cluster. `errors` gives ln (measured / predicted) of
/// every row, nothing where a row cannot be predicted.
pub(super) fn set_again(
    rows: &[Setter],
    errors: &dyn Fn(&Tuning, SetBy) -> Vec<Option<f64>>,
) -> LeftOut {
    let mut search = Search { rows, errors, known: BTreeMap::new() };
    let mut found = LeftOut::default();
    let mut clusters: Vec<&Setter> = rows.iter().collect();
    clusters.sort_by(|a, b| a.0.cmp(&b.0));
    clusters.dedup();
    for set_by in [SetBy::Steps, SetBy::Collectives] {
        let mine: Vec<&Constant> = CONSTANTS.iter().filter(|one| one.set_by == set_by).collect();
        let shipped: Vec<f64> = mine.iter().map(|one| (one.get)(&Tuning::default())).collect();
        let by_all = search.descend(set_by, &mine, &shipped, "");
        for (at, constant) in mine.iter().enumerate() {
            let (rows, clusters) = search.changed(set_by, &mine, &shipped, at);
            let (value, by_all) = (shipped[at], by_all[at]);
            let setting = Setting { value, by_all, rows, clusters, without: BTreeMap::new() };
            found.constant.insert(constant.key.to_owned(), setting);
        }
        for (cluster, _) in clusters.iter().filter(|(_, by)| *by == set_by) {
            let values = search.descend(set_by, &mine, &shipped, cluster);
            for ((constant, value), shipped) in mine.iter().zip(values).zip(&shipped) {
                let setting = found.constant.get_mut(constant.key).expect("it was just made");
                if value != *shipped {
                    setting.without.insert(cluster.clone(), value);
                }
            }
        }
    }
    found
}

/// Values of one group of constants, and the errors with them.
type Known = BTreeMap<(bool, Vec<u64>), Vec<Option<f64>>>;

struct Search<'a> {
    rows: &'a [Setter],
    errors: &'a dyn Fn(&Tuning, SetBy) -> Vec<Option<f64>>,
    known: Known,
}

impl Search<'_> {
    /// The errors of all rows with these values.
    fn errors(&mut self, set_by: SetBy, mine: &[&Constant], values: &[f64]) -> &[Option<f64>] {
        let bits = values.iter().map(|value| value.to_bits()).collect();
        let errors = self.errors;
        self.known.entry((set_by == SetBy::Steps, bits)).or_insert_with(|| {
            let mut tuning = Tuning::default();
            for (constant, value) in mine.iter().zip(values) {
                (constant.set)(&mut tuning, *value);
            }
            errors(&tuning, set_by)
        })
    }

    /// The mean over clusters of the mean size of their errors, without one cluster.
    fn badness(&mut self, set_by: SetBy, mine: &[&Constant], values: &[f64], without: &str) -> f64 {
        let rows = self.rows;
        let mut clusters: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for ((cluster, by), error) in rows.iter().zip(self.errors(set_by, mine, values)) {
            if let Some(error) = error.filter(|_| *by == set_by && cluster != without) {
                let (sum, count) = clusters.entry(cluster).or_default();
                (*sum, *count) = (*sum + error.abs(), *count + 1.0);
            }
        }
        let means = clusters.values().map(|(sum, count)| sum / count);
        means.sum::<f64>() / clusters.len().max(1) as f64
    }

    /// The best values without one cluster: each constant in turn, until none moves.
    fn descend(
        &mut self,
        set_by: SetBy,
        mine: &[&Constant],
        from: &[f64],
        without: &str,
    ) -> Vec<f64> {
        const MOST_ROUNDS: usize = 4;
        let mut values = from.to_vec();
        for _ in 0..MOST_ROUNDS {
            let before = values.clone();
            for at in 0..mine.len() {
                let mut best = (self.badness(set_by, mine, &values, without), values[at]);
                for value in mine[at].values {
                    let mut tried = values.clone();
                    tried[at] = *value;
                    let badness = self.badness(set_by, mine, &tried, without);
                    if badness < best.0 - 1e-9 {
                        best = (badness, *value);
                    }
                }
                values[at] = best.1;
            }
            if values == before {
                break;
            }
        }
        values
    }

    /// How many rows of how many clusters a constant changes by more than a thousandth.
    fn changed(
        &mut self,
        set_by: SetBy,
        mine: &[&Constant],
        shipped: &[f64],
        at: usize,
    ) -> (usize, usize) {
        let ends = [mine[at].values.first(), mine[at].values.last()];
        let [low, high] = ends.map(|end| {
            let mut values = shipped.to_vec();
            values[at] = *end.expect("values are tried");
            self.errors(set_by, mine, &values).to_vec()
        });
        let rows = self.rows.iter().zip(low.iter().zip(&high));
        let differs = rows.filter(|(_, (low, high))| match (low, high) {
            (Some(low), Some(high)) => 1e-3 < (low - high).abs(),
            _ => false,
        });
        let mut clusters: Vec<&str> = differs.map(|((cluster, _), _)| cluster.as_str()).collect();
        let rows = clusters.len();
        clusters.sort_unstable();
        clusters.dedup();
        (rows, clusters.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three clusters whose steps want a jitter of 0.36, 1.08 and 1.8 %: without one of them the
    /// constant moves away from it.
    #[test]
    fn a_constant_moves_away_from_the_cluster_that_is_left_out() {
        let wanted = [("a", 0.0072), ("b", 0.0144), ("c", 0.0216)];
        let rows: Vec<Setter> =
            wanted.iter().map(|(name, _)| ((*name).to_owned(), SetBy::Steps)).collect();
        let errors = |tuning: &Tuning, set_by: SetBy| -> Vec<Option<f64>> {
            let mean = tuning.assumptions.jitter.mean;
            let error = |(_, want): &(&str, f64)| 1e3 * (mean - want).powi(2);
            wanted.iter().map(|row| (set_by == SetBy::Steps).then(|| error(row))).collect()
        };
        let found = set_again(&rows, &errors);
        let setting = &found.constant["jitter.mean"];
        assert_eq!(setting.by_all, 0.0144);
        assert_eq!((setting.rows, setting.clusters), (2, 2), "b moves as far to either end");
        let without = |cluster: &str| {
            let tuning = found.without(cluster, &Tuning::default()).unwrap_or_default();
            tuning.assumptions.jitter.mean
        };
        assert_eq!((without("a"), without("c")), (0.018, 0.0108));
        assert_eq!(without("nobody"), Tuning::default().assumptions.jitter.mean);
        assert_eq!(toml::from_str::<LeftOut>(&found.text()).unwrap(), found);
    }

    /// The file in the binary knows every constant, as it is.
    #[test]
    fn the_constants_in_the_binary_are_those_in_use() {
        let published = LeftOut::published();
        for constant in CONSTANTS {
            let setting = &published.constant[constant.key];
            let now = (constant.get)(&Tuning::default());
            assert!((setting.value - now).abs() <= 1e-9, "{}: {now}", constant.key);
        }
        assert_eq!(published.constant.len(), CONSTANTS.len());
    }
}
