//! What the source documents say: the list in `data/claims.toml`.

use serde::{Deserialize, Serialize};

/// The list, as it stands in the tree.
fn text() -> String {
    embedded::text!("claims.toml")
}

/// One statement of the source documents.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// A short name.
    pub id: String,
    /// Where it stands.
    pub place: String,
    /// What is said, in words.
    pub says: String,
    /// The figure that is said.
    pub about: Option<f64>,
    /// The least that is said.
    pub low: Option<f64>,
    /// The most that is said.
    pub high: Option<f64>,
    /// The unit of all of them.
    #[serde(default)]
    pub unit: String,
    /// The measure that tests it.
    pub test: Option<String>,
    /// The scenarios that it is tested on.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// How many clusters of the scenario the statement is about; 1 if it does not say.
    pub times: Option<f64>,
    /// Tokens of a whole run.
    pub tokens: Option<f64>,
    /// The switch that it is about, by its name in the catalogue.
    pub switch: Option<String>,
    /// Why nothing tests it.
    pub untestable: Option<String>,
    /// What better sources say.
    pub correction: Option<String>,
    /// The better source that contradicts it too, by name.
    pub contradicted: Option<String>,
    /// Whether it says only which is more: then nothing is allowed beside its ends.
    #[serde(default)]
    pub ranking: bool,
    /// Settings under which the measure is taken, once for each; as the scenarios are if there are
    /// none.
    #[serde(default, rename = "case", skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
}

/// Settings that belong together, such as prices of one offer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// Settings of both scenarios, as `--set` takes them.
    #[serde(default)]
    pub set: Vec<String>,
    /// Further settings of the first.
    #[serde(default)]
    pub first: Vec<String>,
    /// Further settings of the second.
    #[serde(default)]
    pub second: Vec<String>,
}

impl Claim {
    /// The ends of what is said.
    pub fn ends(&self) -> (Option<f64>, Option<f64>) {
        (self.low.or(self.about), self.high.or(self.about))
    }
}

#[derive(Deserialize)]
struct List {
    claim: Vec<Claim>,
}

/// Every statement of the source documents, in their order.
pub(super) fn all() -> Vec<Claim> {
    let list: List = toml::from_str(&text()).expect("a test reads the list");
    list.claim
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::measures;
    use super::*;

    /// Whoever adds a claim says what tests it and against which figure, or why nothing can.
    #[test]
    fn every_claim_can_be_tested_or_says_why_not() {
        let claims = all();
        let ids: BTreeSet<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
        assert_eq!(ids.len(), claims.len(), "two claims share a name");
        for claim in &claims {
            let has_ends = claim.ends() != (None, None);
            match (&claim.test, &claim.untestable) {
                (Some(test), None) => {
                    assert!(measures::find(test).is_some(), "{}: no measure {test}", claim.id);
                    assert!(has_ends && !claim.unit.is_empty(), "{}: no figure", claim.id);
                }
                (None, Some(_)) => assert!(claim.scenarios.is_empty(), "{}", claim.id),
                _ => panic!("{}: either a test or a reason why there is none", claim.id),
            }
            for scenario in &claim.scenarios {
                assert!(scenario::preset::text(scenario).is_some(), "{}: {scenario}", claim.id);
            }
        }
    }

    #[test]
    fn every_measure_is_used() {
        let claims = all();
        let used: BTreeSet<&str> =
            claims.iter().filter_map(|claim| claim.test.as_deref()).collect();
        for measure in measures::MEASURES {
            assert!(used.contains(measure.name), "nothing uses {}", measure.name);
        }
    }
}
