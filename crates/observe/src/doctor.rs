//! What looks wrong, in words and ranked, with the lines that show it.

use crate::observed::{Finding, Observed};
use crate::summary::ClusterSummary;

/// All findings, the worst first.
pub fn findings(observed: &Observed, _cluster: &ClusterSummary) -> Vec<Finding> {
    let mut findings = observed.findings.clone();
    findings.sort_by_key(|finding| finding.severity);
    findings
}
