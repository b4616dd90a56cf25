//! Whether a scenario whose every value is well-formed also makes sense as a whole.
//!
//! Each crate knows what its own settings require of each other and of their surroundings, and
//! says so with the paths of the keys concerned; here those answers are collected.

use crate::file::ScenarioFile;

/// Something that does not fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The keys concerned, the likeliest culprit first.
    pub keys: Vec<String>,
    /// Other keys that decide it: if one of them is known to be wrong, this says nothing new.
    pub depends_on: Vec<String>,
    /// What does not fit, in one sentence without a full stop.
    pub message: String,
    /// What would.
    pub help: Option<String>,
}

/// Everything that does not fit together.
pub fn check(scenario: &ScenarioFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, reported) in scenario.reported.iter().enumerate() {
        let figures = [reported.value, reported.high];
        let problem = if figures.iter().flatten().any(|figure| !figure.is_finite()) {
            "a reported figure must be finite"
        } else if reported.value.is_none() == reported.text.is_none() {
            "a reported metric has either a value or a text"
        } else {
            continue;
        };
        findings.push(Finding {
            keys: vec![format!("reported.{index}.value"), format!("reported.{index}")],
            depends_on: Vec::new(),
            message: problem.to_owned(),
            help: None,
        });
    }
    findings
}
