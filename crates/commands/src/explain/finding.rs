//! What a finding means, and the keys of a scenario that it has to do with.
//!
//! Findings are the causes that `run` tells a step by (`causes_s`), and what `observe` finds wrong
//! in the files of a real cluster (`findings[].code`).

use serde::Serialize;

/// A finding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name, as results have it.
    pub name: &'static str,
    /// Who finds it: `run` or `observe`.
    pub by: &'static str,
    /// What it means.
    pub about: &'static str,
    /// The keys that cause or cure it in a scenario.
    pub keys: &'static [&'static str],
}

/// The finding of this name.
pub fn finding(name: &str) -> Option<&'static Finding> {
    FINDINGS.iter().find(|finding| finding.name == name)
}

const PATHS: &[&str] = &[
    "network.routing.policy",
    "network.routing.qps",
    "network.routing.hash",
    "network.routing.udp_source",
    "job.placement.policy",
];
const QUEUES: &[&str] = &[
    "network.congestion.control",
    "network.ecn.min",
    "network.ecn.max",
    "network.buffer.alpha",
    "network.pfc.enabled",
    "network.admission.policy",
];
const LOSS: &[&str] =
    &["network.buffer.headroom", "network.buffer.alpha", "network.pfc.enabled", "network.ecn.max"];
const RATES: &[&str] = &["cluster.nic_rate", "cluster.nics_per_node", "fabric.oversubscription"];

macro_rules! findings {
    ($($by:literal $name:ident $about:literal $keys:expr;)*) => {
        &[$(Finding { name: stringify!($name), by: $by, about: $about, keys: $keys },)*]
    };
}

/// All of them.
pub const FINDINGS: &[Finding] = findings! {
    "run" compute
        "Kernels, the optimizer's too: no network shortens them."
        &["cluster.gpu", "job.batch.micro", "job.recompute", "job.precision"];
    "run" latency
        "Launches, hand-overs, ways through NICs, cables and switches: many small messages."
        &["library.protocol", "library.algorithm", "library.channels", "job.batch.micro"];
    "run" line_rate
        "Bytes at the rate of the links that an undisturbed group has."
        &["cluster.nic_rate", "job.parallel.overlap", "job.parallel.sharding", "library.sharp"];
    "run" boundary
        "A tier, zone or site that has less bandwidth than what crosses it."
        &["fabric.oversubscription", "job.placement.policy", "job.parallel.order"];
    "run" collisions
        "Flows that share a link while others like it are free: too few, too fat flows."
        PATHS;
    "run" stalls
        "Pauses, and waiting for credits; seen on packets."
        QUEUES;
    "run" reordering
        "Packets sent again because they came in another order."
        &["network.routing.policy", "network.nic.reorder"];
    "run" stragglers
        "Ranks and links that are slower than others: all wait for the slowest."
        &["jitter.mean", "stragglers"];
    "run" pipeline
        "Stages that wait for each other's computation."
        &["job.parallel.pp", "job.parallel.vpp", "job.schedule", "job.batch.micro"];
    "run" faults
        "Links and switches that are down."
        &["faults", "reliability.network"];
    "observe" marks_concentrated
        "Most packets that carry a congestion mark come over few links."
        PATHS;
    "observe" pauses_concentrated
        "Most pauses come from few ports: an incast, or a slow receiver."
        QUEUES;
    "observe" pfc_storm
        "A port pauses nearly all the time: a NIC that does not take what it gets."
        &["network.pfc.watchdog", "network.pfc.action", "network.pfc.enabled"];
    "observe" retransmissions
        "Packets are sent again: losses, or an order that NICs do not take."
        LOSS;
    "observe" loss
        "Counters of drops or of errors grow."
        LOSS;
    "observe" few_queue_pairs
        "Few queue pairs carry most bytes: hashing cannot spread them."
        PATHS;
    "observe" traffic_class
        "RDMA packets carry another class than the lossless one."
        &["network.pfc.enabled", "network.switch.acks", "network.switch.grants"];
    "observe" icrc_wrong
        "Packets whose checksum does not fit: a capture that was cut, or a fault."
        &[];
    "observe" unequal_rates
        "Links or NICs of one kind run at different rates."
        RATES;
    "observe" slow_link
        "A link runs below its rate."
        RATES;
    "observe" slow_rank
        "One rank is slower than the others: all wait for it."
        &["stragglers", "jitter.mean"];
    "observe" nic_missing
        "A server has fewer NICs than the others."
        RATES;
    "observe" nic_unused
        "A NIC is there and carries nothing."
        &["library.cross_nic", "library.pxn"];
    "observe" pcie_distance
        "A GPU reaches its NIC over another processor or bridge."
        &["cluster.nic_affinity", "cluster.pcie"];
    "observe" gdr_off
        "GPUDirect RDMA is off: bytes go through the host's memory."
        &["cluster.pcie"];
    "observe" gid_wrong
        "The address of a NIC is not one of RoCEv2."
        &["network.transport"];
    "observe" gid_differs
        "NICs use addresses of different kinds."
        &["network.transport"];
    "observe" sockets
        "NCCL speaks TCP: no RDMA at all."
        &["network.transport"];
    "observe" versions_differ
        "Servers run different versions of the library or the driver."
        &[];
    "observe" jobs_of_one_rank
        "Every rank is a job of its own: the launcher tells nobody of others."
        &["job.gpus"];
    "observe" missing_nodes
        "Servers of the job are not in its logs."
        &["job.gpus"];
    "observe" wrong_results
        "A benchmark checked its numbers and some were wrong."
        &[];
    "observe" warnings
        "The library warned."
        &[];
    "observe" abort
        "The library gave up, or was told to."
        &[];
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::of;

    #[test]
    fn every_finding_has_keys_that_exist() {
        for finding in FINDINGS {
            let unknown = finding.keys.iter().find(|key| of(key).is_empty());
            assert!(unknown.is_none(), "{}: {unknown:?}", finding.name);
        }
        let names: std::collections::BTreeSet<_> = FINDINGS.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), FINDINGS.len());
    }

    /// Oracle: the source of the checks themselves.
    #[test]
    fn every_check_of_observe_is_explained() {
        let sources = [
            include_str!("../../../observe/src/doctor/cluster.rs"),
            include_str!("../../../observe/src/doctor/network.rs"),
            include_str!("../../../observe/src/counter/mod.rs"),
        ];
        let mut codes = 0;
        for source in sources {
            let parts = source.split("Severity::").skip(1).map(|rest| rest.split_once(','));
            for (_, rest) in parts.flatten() {
                let code =
                    rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'));
                let Some((code, _)) = code else { continue };
                codes += 1;
                assert!(finding(code).is_some_and(|one| one.by == "observe"), "{code}");
            }
        }
        assert!(15 < codes, "{codes}");
    }

    #[test]
    fn every_cause_of_a_step_is_explained() {
        let causes = serde_json::to_value(crate::run_job::CausesSeconds::default()).unwrap();
        let names = causes.as_object().unwrap().keys().filter(|name| *name != "other");
        for name in names {
            assert!(finding(name).is_some_and(|one| one.by == "run"), "{name}");
        }
    }
}
