//! NCCL's profiler plugins: the Inspector's JSON lines, the example plugin's trace, and plugins
//! that write one object for each event.

use std::collections::BTreeMap;

use serde_json::Value;

use super::lenient;
use super::type_bytes;
use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{CollectiveKey, Communicator, Kind};

/// The Inspector that comes with NCCL.
pub const INSPECTOR: Format = Format {
    name: "NCCL Inspector records",
    unit: "records",
    recognises: |input| begins(input, &["\"coll_perf\"", "\"p2p_perf\""]),
    read: |input, reading| each_line(input, reading, inspector),
};

/// Plugins that write an object for each event of the profiler's interface.
pub const PROFILER: Format = Format {
    name: "records of an NCCL profiler plugin",
    unit: "records",
    recognises: |input| begins(input, &["\"ProfilerInit\"", "\"ncclProfile"]),
    read: |input, reading| each_line(input, reading, event),
};

/// NCCL's example plugin: a trace that is almost JSON, an event on each line.
pub const EXAMPLE: Format = Format {
    name: "a trace of NCCL's example profiler",
    unit: "events",
    recognises: |input| {
        let head = input.head_text();
        let has = |part: &str| head.contains(part);
        head.trim_start().starts_with('[')
            && (has("\"GROUP_API\"") || has("\"cat\": \"GROUP\"") || has("\"cat\": \"PROXY\""))
    },
    read: |input, reading| each_line(input, reading, example),
};

fn begins(input: &Input<'_>, keys: &[&str]) -> bool {
    let head = input.head_text();
    let mut lines = head.lines().filter(|line| !line.trim().is_empty());
    lines.next().is_some_and(|line| line.trim_start().starts_with('{'))
        && head.lines().take(20).any(|line| keys.iter().any(|key| line.contains(key)))
}

/// What is gathered over the lines.
#[derive(Default)]
struct Gathered {
    /// By communicator, collective and rank: how often.
    counts: BTreeMap<(String, CollectiveKey, u64), u64>,
    /// Sizes of communicators and the ranks that were seen.
    groups: BTreeMap<String, Communicator>,
    /// Collectives by the address of their event, and when their channels worked.
    open: BTreeMap<String, (CollectiveKey, Option<(f64, f64)>)>,
}

type OfRecord = fn(&Value, &mut Gathered, &mut Reading<'_>) -> bool;

fn each_line(
    input: &mut Input<'_>,
    reading: &mut Reading<'_>,
    of: OfRecord,
) -> Result<(), ReadError> {
    let mut gathered = Gathered::default();
    while let Some((number, line)) = input.next_line()? {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        if !text.starts_with('{') {
            continue;
        }
        let value = serde_json::from_str(text).or_else(|_| lenient::value(text).map(|(v, _)| v));
        match value {
            Ok(value) if of(&value, &mut gathered, reading) => reading.source.read += 1,
            Ok(_) => reading.source.skipped += 1,
            Err((_, reason)) => reading.problem(number, reason),
        }
    }
    let mut most: BTreeMap<CollectiveKey, u64> = BTreeMap::new();
    for ((_, key, _), count) in gathered.counts {
        let entry = most.entry(key).or_default();
        *entry = (*entry).max(count);
    }
    for (key, times) in gathered.open.into_values() {
        let us = times.map(|(start, stop)| stop - start);
        let stats = reading.observed.collectives.add(key, us);
        stats.count -= 1;
    }
    for (key, count) in most {
        reading.observed.collectives.0.entry(key).or_default().count += count;
    }
    let largest = gathered.groups.values().map(|group| group.size).max();
    let cluster = &mut reading.observed.cluster;
    cluster.ranks = cluster.ranks.max(largest);
    reading.observed.communicators.extend(gathered.groups.into_values());
    Ok(())
}

impl Gathered {
    fn group(&mut self, id: &str, size: u32, rank: u32, nodes: Option<u32>) {
        let group = self.groups.entry(id.to_owned()).or_default();
        group.id = id.to_owned();
        group.size = group.size.max(size);
        group.nodes = group.nodes.max(nodes);
        group.seen.insert(rank);
    }

    fn count(&mut self, id: &str, key: CollectiveKey, rank: u32) {
        *self.counts.entry((id.to_owned(), key, u64::from(rank))).or_default() += 1;
    }
}

fn whole_number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

/// A message as the library counts it, as nccl-tests counts it.
fn as_tests_count(kind: Kind, bytes: u64, ranks: u32) -> u64 {
    match kind {
        Kind::AllGather | Kind::ReduceScatter => bytes.saturating_mul(u64::from(ranks.max(1))),
        _ => bytes,
    }
}

fn inspector(record: &Value, gathered: &mut Gathered, reading: &mut Reading<'_>) -> bool {
    let header = &record["header"];
    let id = header["id"].as_str().unwrap_or_default();
    let (Some(ranks), Some(rank)) =
        (whole_number(&header["n_ranks"]), whole_number(&header["rank"]))
    else {
        return false;
    };
    gathered.group(id, ranks, rank, whole_number(&header["nnodes"]));
    if let Some(host) = record["metadata"]["hostname"].as_str() {
        let host = reading.observed.cluster.hosts.entry(host.to_owned()).or_default();
        host.is_certain = true;
        host.processes.extend(whole_number(&record["metadata"]["pid"]));
    }
    for (part, begin) in [("coll_perf", "coll"), ("p2p_perf", "p2p")] {
        let perf = &record[part];
        let get = |name: &str| &perf[format!("{begin}_{name}")];
        let kind = perf[begin].as_str().and_then(Kind::of);
        let (Some(kind), Some(bytes)) = (kind, get("msg_size_bytes").as_u64()) else { continue };
        let source = get("timing_source").as_str().unwrap_or("its own clock");
        let from = format!("NCCL Inspector, {source}");
        let key = CollectiveKey { kind, bytes: as_tests_count(kind, bytes, ranks), ranks, from };
        gathered.count(id, key.clone(), rank);
        let stats = reading.observed.collectives.add(key, get("exec_time_us").as_f64());
        stats.count -= 1;
        stats.printed_busbw = get("busbw_gbs").as_f64().or(stats.printed_busbw);
        return true;
    }
    false
}

fn event(record: &Value, gathered: &mut Gathered, _: &mut Reading<'_>) -> bool {
    let id = record["commId"].to_string();
    let details = &record["details"];
    let Some(rank) = whole_number(&record["rank"]) else { return false };
    if let Some(ranks) = whole_number(&details["nranks"]) {
        gathered.group(&id, ranks, rank, None);
        return true;
    }
    let address = |key: &str| record[key].as_str().map(|at| format!("{rank} {at}"));
    match record["type"].as_str().unwrap_or_default() {
        "ncclProfileColl" => {
            let kind = details["func"].as_str().and_then(Kind::of);
            let size = details["dtype"].as_str().and_then(type_bytes);
            let (Some(kind), Some(size), Some(count), Some(at)) =
                (kind, size, details["count"].as_u64(), address("eventAddr"))
            else {
                return false;
            };
            let ranks = gathered.groups.get(&id).map_or(0, |group| group.size);
            let bytes = as_tests_count(kind, count.saturating_mul(size), ranks);
            let from = "NCCL profiler plugin, kernels".to_owned();
            let key = CollectiveKey { kind, bytes, ranks, from };
            gathered.count(&id, key.clone(), rank);
            if let Some(channels) = whole_number(&details["channels"]) {
                let group = gathered.groups.entry(id).or_default();
                group.channels = group.channels.max(channels);
            }
            // Channels may have been written before their collective.
            let entry = gathered.open.entry(at).or_insert_with(|| (key.clone(), None));
            entry.0 = key;
            true
        }
        "ncclProfileKernelCh" => {
            let times = record["start"]["ts"].as_f64().zip(record["stop"]["ts"].as_f64());
            let (Some((start, stop)), Some(at)) = (times, address("parentObj")) else {
                return false;
            };
            let Some(entry) = gathered.open.get_mut(&at) else { return true };
            let (first, last) = entry.1.unwrap_or((start, stop));
            entry.1 = Some((first.min(start), last.max(stop)));
            true
        }
        _ => false,
    }
}

fn example(record: &Value, gathered: &mut Gathered, _: &mut Reading<'_>) -> bool {
    let arguments = &record["args"];
    let kind = record["name"].as_str().and_then(Kind::of);
    let begins = record["ph"].as_str() == Some("b");
    let is_operation = matches!(record["cat"].as_str(), Some("COLL" | "P2P"));
    let (Some(kind), true, true) = (kind, begins, is_operation) else { return true };
    let id = arguments["CommHash"].to_string();
    let size = arguments["Datatype"].as_str().and_then(type_bytes).unwrap_or(1);
    let (Some(count), Some(rank)) = (arguments["Count"].as_u64(), whole_number(&arguments["Rank"]))
    else {
        return true;
    };
    // The trace does not say how many ranks there are: as many as its numbers need.
    let peer = whole_number(&arguments["Peer"]).unwrap_or(rank);
    gathered.group(&id, rank.max(peer) + 1, rank, None);
    if let Some(channels) = whole_number(&arguments["nChannels"]) {
        let group = gathered.groups.entry(id.clone()).or_default();
        group.channels = group.channels.max(channels);
    }
    let from = match record["name"].as_str() {
        Some(name @ ("Send" | "Recv")) => format!("NCCL example profiler, {name}"),
        _ => "NCCL example profiler".to_owned(),
    };
    let bytes = count.saturating_mul(size);
    gathered.count(&id, CollectiveKey { kind, bytes, ranks: 0, from }, rank);
    true
}
