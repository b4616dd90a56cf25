//! What looks wrong, in words and ranked, with the lines that show it.
//!
//! * `cluster`: what logs say of nodes, NICs, GPUDirect, versions and settings.
//! * `network`: what captures and counters say of marks, pauses, loss, paths and classes.
//!
//! To add a check, write a function and add its line to [`CHECKS`].

mod cluster;
mod network;

use crate::observed::{Finding, Observed, Quote, Severity};
use crate::summary::ClusterSummary;

/// What a check gets.
struct Case<'a> {
    observed: &'a Observed,
    cluster: &'a ClusterSummary,
    found: Vec<Finding>,
}

impl Case<'_> {
    fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        text: impl Into<String>,
        lines: Vec<Quote>,
    ) {
        self.found.push(Finding { severity, code, text: text.into(), lines });
    }
}

/// All checks.
const CHECKS: &[fn(&mut Case<'_>)] = &[
    cluster::jobs_of_one_rank,
    cluster::missing_nodes,
    cluster::wrong_results,
    cluster::sockets,
    cluster::gpu_direct,
    cluster::distance,
    cluster::unused_nics,
    cluster::unequal_rates,
    cluster::gid,
    cluster::versions,
    cluster::environment,
    cluster::slow_rank,
    cluster::slow_table,
    cluster::warnings,
    network::marks,
    network::pauses,
    network::loss,
    network::few_paths,
    network::classes,
    network::damage,
    network::counters,
];

/// All findings, the worst first.
pub fn findings(observed: &Observed, cluster: &ClusterSummary) -> Vec<Finding> {
    let mut case = Case { observed, cluster, found: observed.findings.clone() };
    CHECKS.iter().for_each(|check| check(&mut case));
    case.found.sort_by_key(|finding| finding.severity);
    case.found
}
