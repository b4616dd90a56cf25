//! Errors that must not grow: a file with those of every family, and what has become worse.
//!
//! A change that makes predictions better renews the file with one command; one that makes them
//! worse fails until somebody says that it may.

use std::collections::BTreeMap;
use std::path::Path;

use scenario::{Problem, source};
use serde::{Deserialize, Serialize};

use super::{Family, Report};
use crate::failure::Failure;

/// An error may grow by so much, a fifth of a percentage point, before anybody is bothered.
const SLACK: f64 = 0.002;

/// The errors of all families.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ratchet {
    /// By the family's name.
    pub family: BTreeMap<String, Errors>,
}

/// The errors of one family, as shares.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// Cases that were predicted.
    pub cases: usize,
    /// Mean of the errors' sizes.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The largest size.
    pub worst: f64,
    /// Spearman's rank correlation of predicted and measured.
    pub ranks: f64,
}

impl Errors {
    fn of(family: &Family) -> Self {
        // Four digits: what people read, and nothing that changes with the last bit.
        let round = |number: f64| (number * 1e4).round() / 1e4;
        Self {
            cases: family.cases.len(),
            mean: round(family.score.mean_abs_error),
            median: round(family.score.median_abs_error),
            worst: round(family.worst.abs()),
            ranks: round(family.rank_correlation),
        }
    }
}

impl Ratchet {
    /// The errors of a report.
    pub fn of(report: &Report) -> Self {
        let errors = |family: &Family| (family.name.clone(), Errors::of(family));
        Self { family: report.families.iter().map(errors).collect() }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let source = source::read(path)?;
        let parsed = toml::from_str(&source.text);
        Ok(parsed.map_err(|error| Problem::error(format!("{}: {error}", source.name)))?)
    }

    /// The file.
    pub fn text(&self) -> String {
        let table = toml::to_string(self).expect("names and numbers can be written");
        format!(
            "# What `fatflow validate` was off by when somebody last looked; a test fails when it \
             grows.\n# Renewed by `fatflow validate --write-ratchet validation/ratchet.toml`.\n\n\
             {table}"
        )
    }

    /// What has become worse, in words.
    pub fn worse(&self, families: &[Family]) -> Vec<String> {
        let mut worse = Vec::new();
        for (name, before) in &self.family {
            let Some(now) = families.iter().find(|family| family.name == *name) else {
                worse.push(format!("{name} is no longer predicted"));
                continue;
            };
            let now = Errors::of(now);
            if now.cases < before.cases {
                worse.push(format!("{name}: {} cases of {}", now.cases, before.cases));
            }
            let pairs = [
                ("mean error", before.mean, now.mean),
                ("median error", before.median, now.median),
                ("worst error", before.worst, now.worst),
                // A correlation is worse when it falls.
                ("rank correlation", -before.ranks, -now.ranks),
            ];
            for (what, before, now) in pairs {
                if before + SLACK < now {
                    let (before, now) = (before.abs(), now.abs());
                    worse.push(format!("{name}: {what} was {before:.4} and is {now:.4}"));
                }
            }
        }
        worse
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Case, family};
    use super::*;

    fn scored(error: f64) -> Family {
        let case = |id: &str, measured: f64| Case::new(id, measured, measured * (1.0 + error), "s");
        family("steps".to_owned(), (vec![case("a", 1.0), case("b", 2.0)], Vec::new()))
    }

    #[test]
    fn what_grows_is_named_and_what_shrinks_is_not() {
        let before = Ratchet { family: [("steps".to_owned(), Errors::of(&scored(0.05)))].into() };
        assert!(before.worse(&[scored(0.05)]).is_empty());
        assert!(before.worse(&[scored(0.051)]).is_empty(), "within the slack");
        assert!(before.worse(&[scored(0.01)]).is_empty());
        let worse = before.worse(&[scored(0.08)]);
        assert_eq!(worse[0], "steps: mean error was 0.0500 and is 0.0800");
        assert_eq!(worse.len(), 3);
        assert_eq!(before.worse(&[]), ["steps is no longer predicted"]);
        let back: Ratchet = toml::from_str(&before.text()).unwrap();
        assert_eq!(back, before);
    }
}
