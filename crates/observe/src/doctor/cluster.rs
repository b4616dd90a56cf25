//! What logs, tables and traces say of nodes, NICs, versions, settings and ranks.

use std::collections::{BTreeMap, BTreeSet};

use super::Case;
use crate::observed::{Quote, Severity};
use crate::summary::{real_hosts, straggler_list};

/// A rank that comes last to more of its collectives than this is a straggler.
const LAST_SHARE: f64 = 0.5;
/// Fewer collectives than this say nothing of a rank.
const FEWEST: u64 = 8;
/// A straggler costs at least so much of a collective.
const LATE_SHARE: f64 = 0.1;
/// Rates differ that are further apart.
const RATE_SHARE: f64 = 0.2;

/// Programs that were built without MPI are many jobs of one rank.
pub(super) fn jobs_of_one_rank(case: &mut Case<'_>) {
    let single = case.observed.communicators.iter().filter(|group| group.size == 1);
    let (single, all) = (single.count(), case.observed.communicators.len());
    let hosts = case.cluster.hosts.len();
    if single < 2 || single != all {
        return;
    }
    let mut lines = case.observed.evidence.quotes("joined a communicator of 1");
    lines.truncate(4);
    let text = format!(
        "These are {single} jobs of one rank each on {hosts} {}, not one job: nothing goes over \
         the network. nccl-tests does so when it is built without MPI (build with MPI=1).",
        if hosts == 1 { "server" } else { "servers" }
    );
    case.add(Severity::Critical, "jobs_of_one_rank", text, lines);
}

/// The job has more nodes than the files.
pub(super) fn missing_nodes(case: &mut Case<'_>) {
    let Some(nodes) = case.observed.cluster.nodes else { return };
    let hosts = case.cluster.hosts.len();
    if hosts == 0 || nodes as usize <= hosts || case.observed.cluster.hosts.is_empty() {
        return;
    }
    let (names, more) = match case.cluster.hosts.as_slice() {
        [one] => (one.clone(), ""),
        [first, ..] => (first.clone(), " and others"),
        [] => return,
    };
    let text = format!(
        "The files hold {hosts} of {nodes} nodes ({names}{more}): what the others did is not in \
         them."
    );
    let lines = case.observed.evidence.quotes("nodes");
    case.add(Severity::Warning, "missing_nodes", text, lines);
}

/// A benchmark found wrong results.
pub(super) fn wrong_results(case: &mut Case<'_>) {
    for table in case.observed.benchmarks.iter().filter(|table| 0 < table.wrong) {
        let text = format!("{} found {} wrong results.", table.name, table.wrong);
        let line = Quote::new(&table.file, table.line, "the table begins here");
        case.add(Severity::Critical, "wrong_results", text, vec![line]);
    }
}

/// TCP where there could be RDMA.
pub(super) fn sockets(case: &mut Case<'_>) {
    let count = case.observed.evidence.count("net_socket");
    if count == 0 {
        return;
    }
    let text = format!(
        "{count} connections between servers go over TCP sockets, without RDMA: bandwidth is a \
         fraction of the NICs'. Look for NET/IB or a plug-in that failed to load, NCCL_IB_DISABLE \
         and NCCL_NET."
    );
    let lines = case.observed.evidence.quotes("net_socket");
    case.add(Severity::Critical, "sockets", text, lines);
}

/// Data go through the host's memory.
pub(super) fn gpu_direct(case: &mut Case<'_>) {
    let count = case.observed.evidence.count("net_without_gdr");
    let lines = case.cluster.net_lines;
    if count == 0 {
        return;
    }
    let text = format!(
        "{count} of {} connections between servers do without GPUDirect RDMA: data take the way \
         through the host's memory. Load nvidia-peermem (or use DMA-BUF), and look at \
         NCCL_NET_GDR_LEVEL.",
        lines.all
    );
    let mut quotes = case.observed.evidence.quotes("gdr_disabled");
    quotes.extend(case.observed.evidence.quotes("net_without_gdr"));
    quotes.truncate(3);
    case.add(Severity::Warning, "gdr_off", text, quotes);
}

/// GPU and NIC are too far apart.
pub(super) fn distance(case: &mut Case<'_>) {
    let count = case.observed.evidence.count("gdr_distance");
    let quotes = case.observed.evidence.quotes("gdr_distance");
    if 0 < count {
        let text = format!(
            "{count} lines say that a GPU and its NIC are too far apart on PCIe for GPUDirect: \
             use the NIC at the same switch, or raise NCCL_NET_GDR_LEVEL."
        );
        case.add(Severity::Warning, "pcie_distance", text, quotes);
    }
    let far = case.observed.evidence.quotes("gpu without a near NIC");
    if !far.is_empty() {
        let count = case.observed.evidence.count("gpu without a near NIC");
        let text = format!(
            "{count} GPUs have no NIC at their own PCIe switch (PIX or PXB): their traffic crosses \
             a host bridge or the link between sockets."
        );
        case.add(Severity::Warning, "pcie_distance", text, far);
    }
}

/// NICs that are listed and do nothing.
pub(super) fn unused_nics(case: &mut Case<'_>) {
    let used: BTreeSet<&str> = case.cluster.nics_used.iter().map(String::as_str).collect();
    if used.is_empty() {
        return;
    }
    // A virtual device is called by the names of its parts.
    let is_used = |name: &str| used.iter().any(|own| own.split('+').any(|part| part == name));
    let idle = case.cluster.nics.iter().filter(|nic| nic.used == 0 && !nic.name.contains('+'));
    let idle: BTreeSet<&str> =
        idle.map(|nic| nic.name.as_str()).filter(|name| !is_used(name)).collect();
    uneven_nics(case);
    if idle.is_empty() {
        return;
    }
    let gpus = case.cluster.gpus_per_node.unwrap_or(0) as usize;
    let severity = if used.len() < gpus { Severity::Warning } else { Severity::Note };
    let names: Vec<&str> = idle.iter().copied().collect();
    let text = format!(
        "{} of {} listed NICs are in no ring: {}. Storage and front-end NICs belong out of the \
         list (NCCL_IB_HCA); a NIC for GPUs that is missing costs its bandwidth.",
        idle.len(),
        idle.len() + used.len(),
        names.join(", ")
    );
    let lines = case.observed.evidence.quotes("nics_listed");
    case.add(severity, "nic_unused", text, lines);
}

/// A server that uses fewer NICs than others.
fn uneven_nics(case: &mut Case<'_>) {
    let hosts = real_hosts(case.observed);
    let used = |host: &&crate::observed::Host| host.nics.iter().filter(|nic| 0 < nic.used).count();
    let counts: BTreeMap<&str, usize> = hosts
        .iter()
        .map(|(name, host)| (*name, used(host)))
        .filter(|(_, used)| 0 < *used)
        .collect();
    let most = counts.values().copied().max().unwrap_or(0);
    let fewer: Vec<String> = counts
        .iter()
        .filter(|(_, count)| **count < most)
        .map(|(name, count)| format!("{name} uses {count}"))
        .collect();
    if fewer.is_empty() {
        return;
    }
    let text = format!("Servers differ: {} where others use {most} NICs.", fewer.join(", "));
    let lines = case.observed.evidence.quotes("nics_listed");
    case.add(Severity::Warning, "nic_missing", text, lines);
}

/// NICs of different speeds in one job.
pub(super) fn unequal_rates(case: &mut Case<'_>) {
    let hosts = real_hosts(case.observed);
    let mut speeds: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for (name, host) in &hosts {
        for nic in host.nics.iter().filter(|nic| 0 < nic.used) {
            if let Some(speed) = nic.speed_mbps {
                speeds.entry(speed).or_default().insert(format!("{name} {}", nic.name));
            }
        }
    }
    if speeds.len() < 2 {
        return;
    }
    let words: Vec<String> = speeds
        .iter()
        .map(|(speed, nics)| {
            let first = nics.first().map_or("", String::as_str);
            format!("{} at {} Gbit/s ({first})", nics.len(), *speed as f64 / 1e3)
        })
        .collect();
    let text = format!(
        "NICs of one job have different rates: {}; a ring is as fast as the slowest.",
        words.join(", ")
    );
    let lines = case.observed.evidence.quotes("nics_listed");
    case.add(Severity::Warning, "unequal_rates", text, lines);
}

/// GIDs that are not RoCEv2's, or differ.
pub(super) fn gid(case: &mut Case<'_>) {
    let seen: BTreeSet<u32> =
        case.observed.queue_pairs.iter().filter_map(|pair| pair.gid_index).collect();
    let quotes =
        |gid: &u32| case.observed.evidence.quotes(&format!("gid {gid}")).into_iter().take(1);
    let lines: Vec<Quote> = seen.iter().flat_map(quotes).take(3).collect();
    let list: Vec<String> = seen.iter().map(u32::to_string).collect();
    if 1 < seen.len() {
        let text = format!(
            "Queue pairs use different GID indices ({}): some may be RoCEv1 or of another address \
             family. Set NCCL_IB_GID_INDEX, or let the library choose everywhere.",
            list.join(", ")
        );
        case.add(Severity::Warning, "gid_differs", text, lines);
    } else if seen.contains(&0) && case.cluster.transport.as_deref() != Some("InfiniBand") {
        let text = "All queue pairs use GID index 0, which is RoCEv1 or a link-local address on \
                    most NICs: routers do not forward it, and DSCP and ECN do not work. RoCEv2 \
                    is index 3 on most (show_gids).";
        case.add(Severity::Warning, "gid_wrong", text, lines);
    }
}

/// Versions that differ between ranks.
pub(super) fn versions(case: &mut Case<'_>) {
    let libraries = &case.observed.cluster.libraries;
    if libraries.len() < 2 {
        return;
    }
    let names: Vec<String> =
        libraries.keys().map(|(name, version)| format!("{name} {version}")).collect();
    let lines = libraries.values().filter_map(|library| library.quote.clone()).take(4).collect();
    let text = format!(
        "The files name {} versions of the library: {}. Ranks of one job must have the same.",
        names.len(),
        names.join(", ")
    );
    case.add(Severity::Warning, "versions_differ", text, lines);
}

/// Settings that differ between servers.
pub(super) fn environment(case: &mut Case<'_>) {
    // These name things of a server and may differ.
    let own = ["NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG_FILE", "NCCL_TOPO_FILE"];
    let settings = case.observed.cluster.environment.iter();
    let differs = settings.filter(|(name, values)| {
        let known = ["NCCL_", "RCCL_"].iter().any(|begin| name.starts_with(begin));
        let hosts: Vec<&BTreeSet<String>> = values.values().collect();
        let apart = hosts.windows(2).any(|pair| pair[0].is_disjoint(pair[1]));
        known && 1 < values.len() && apart && !own.contains(&name.as_str())
    });
    let differs: Vec<(String, Vec<String>)> =
        differs.map(|(name, values)| (name.clone(), values.keys().cloned().collect())).collect();
    for (name, values) in differs {
        let (code, what) = match name.as_str() {
            "NCCL_IB_TC" | "NCCL_IB_SL" => ("traffic_class", "traffic goes in different classes"),
            "NCCL_IB_GID_INDEX" => ("gid_differs", "servers use different GIDs"),
            _ => ("environment_differs", "servers are set differently"),
        };
        let quote = |value: &String| {
            let quotes = case.observed.evidence.quotes(&format!("environment {name}={value}"));
            quotes.into_iter().take(1)
        };
        let lines = values.iter().flat_map(quote).collect();
        let text = format!("{name} differs between servers ({}): {what}.", values.join(", "));
        case.add(Severity::Warning, code, text, lines);
    }
}

/// One rank that the others wait for.
pub(super) fn slow_rank(case: &mut Case<'_>) {
    let (list, mean_us) = straggler_list(&case.observed.arrivals);
    let Some(worst) = list.first() else { return };
    let share = worst.last as f64 / worst.of as f64;
    if worst.of < FEWEST || share < LAST_SHARE || worst.late_us < LATE_SHARE * mean_us {
        return;
    }
    // Of two ranks one is always last.
    let ranks = case.observed.arrivals.kept.iter().map(|arrival| arrival.rank);
    if ranks.collect::<BTreeSet<u32>>().len() < 3 && share < 0.9 {
        return;
    }
    let text = format!(
        "Rank {} comes last to {} of {} collectives, {:.0} µs after the first on average: the \
         others wait for it.",
        worst.rank, worst.last, worst.of, worst.late_us
    );
    let trace = case.observed.traces.iter().find(|trace| trace.rank == Some(worst.rank));
    let lines = trace.map(|trace| Quote::new(&trace.file, 0, "the trace of this rank"));
    case.add(Severity::Warning, "slow_rank", text, lines.into_iter().collect());
}

/// Tables of the same benchmark on other servers that are slower: a slow server or link.
pub(super) fn slow_table(case: &mut Case<'_>) {
    let mut alike: BTreeMap<(String, Option<u32>, usize), Vec<usize>> = BTreeMap::new();
    for (at, table) in case.observed.benchmarks.iter().enumerate() {
        let key = (table.name.clone(), table.ranks, table.rows.len());
        alike.entry(key).or_default().push(at);
    }
    for tables in alike.into_values().filter(|tables| 2 < tables.len()) {
        let busbw = |at: &usize| case.observed.benchmarks[*at].average_busbw.unwrap_or(0.0);
        let mut sorted: Vec<f64> = tables.iter().map(busbw).collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        let slow = |at: &&usize| 0.0 < busbw(at) && busbw(at) < (1.0 - RATE_SHARE) * median;
        let slow: Vec<usize> = tables.iter().filter(slow).copied().collect();
        for at in slow {
            let table = &case.observed.benchmarks[at];
            let text = format!(
                "{} reaches {:.1} GB/s in {} where the same table reaches {median:.1} elsewhere: \
                 a slow server or link.",
                table.name,
                table.average_busbw.unwrap_or(0.0),
                table.file
            );
            let line = Quote::new(&table.file, table.line, "the table begins here");
            case.add(Severity::Warning, "slow_link", text, vec![line]);
        }
    }
}

/// What the library itself warns of.
pub(super) fn warnings(case: &mut Case<'_>) {
    let evidence = &case.observed.evidence.0;
    let own = evidence.iter().filter(|(what, _)| what.starts_with("warning: "));
    let mut own: Vec<(u64, Vec<Quote>)> = own.map(|(_, entry)| entry.clone()).collect();
    own.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let total: u64 = own.iter().map(|(count, _)| count).sum();
    if 0 < total {
        let lines = own.iter().filter_map(|(_, quotes)| quotes.first().cloned()).take(3).collect();
        let text = format!("The library warns {total} times, of {} things.", own.len());
        case.add(Severity::Note, "warnings", text, lines);
    }
    let aborts = case.observed.evidence.count("abort");
    if 0 < aborts {
        let lines = case.observed.evidence.quotes("abort");
        let text = format!("{aborts} communicators were aborted.");
        case.add(Severity::Note, "abort", text, lines);
    }
}
