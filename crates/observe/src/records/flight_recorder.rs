//! PyTorch's flight recorder: the last collectives of each process group on one rank.
//!
//! Dumps are pickles or JSON; what Python prints of them is read too. The rank is not in the file:
//! it is the number at the end of its name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::lenient;
use super::pickle;
use super::{type_bytes, whole};
use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{Arrival, CollectiveKey, Communicator, InGroup, Kind, Quote};

/// As JSON, or as Python prints it.
pub const JSON: Format = Format {
    name: "a PyTorch flight recorder dump",
    unit: "entries",
    recognises: |input| {
        let head = input.head_text();
        let begins = head.trim_start().starts_with('{');
        begins && ["\"pg_config\"", "'pg_config'"].iter().any(|key| head.contains(key))
            || begins && head.contains("collective_seq_id") && head.contains("entries")
    },
    read: |input, reading| {
        let bytes = whole(input)?;
        let text = String::from_utf8_lossy(&bytes);
        let dump = match serde_json::from_str(&text) {
            Ok(dump) => dump,
            Err(_) => {
                let (dump, _) = lenient::value(&text).map_err(|(at, reason)| {
                    let line = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count();
                    ReadError::at(line as u64, reason)
                })?;
                dump
            }
        };
        dump_of(&dump, reading)
    },
};

/// As a pickle, which is read without executing anything.
pub const PICKLE: Format = Format {
    name: "a PyTorch flight recorder dump (pickle)",
    unit: "entries",
    recognises: |input: &Input<'_>| pickle::is_pickle(input.head()),
    read: |input, reading| {
        let bytes = whole(input)?;
        let dump = pickle::value(&bytes)
            .map_err(|(at, reason)| ReadError::new(format!("pickle, byte {at}: {reason}")))?;
        if dump["entries"].is_null() && dump["pg_config"].is_null() {
            return Err(ReadError::new("a pickle without `entries`: no flight recorder dump"));
        }
        dump_of(&dump, reading)
    },
};

fn dump_of(dump: &Value, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let rank = rank_of(&reading.source.file);
    groups(&dump["pg_config"], reading);
    let entries = match &dump["entries"] {
        Value::Array(entries) => entries.as_slice(),
        Value::Null => &[],
        _ => return Err(ReadError::new("`entries` is no list")),
    };
    let mut in_groups = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        match add(entry, rank, index, &mut in_groups, reading) {
            true => reading.source.read += 1,
            false => reading.source.skipped += 1,
        }
    }
    let whose = (reading.observed.sources.len(), 0);
    let own = in_groups.into_values().map(|own| InGroup { whose, ..own });
    reading.observed.in_groups.extend(own);
    Ok(())
}

/// The number at the end of a name, before its ending.
fn rank_of(file: &str) -> Option<u32> {
    let name = file.rsplit(['/', '!']).next()?;
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let digits = stem.len() - stem.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    stem[stem.len() - digits..].parse().ok()
}

/// Numbers of a list, or of text that looks like one.
fn numbers(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(list) => {
            list.iter().filter_map(Value::as_u64).filter_map(|n| u32::try_from(n).ok()).collect()
        }
        Value::String(text) => {
            let words = text.split(|letter: char| !letter.is_ascii_digit());
            words.filter_map(|word| word.parse().ok()).collect()
        }
        _ => Vec::new(),
    }
}

fn groups(config: &Value, reading: &mut Reading<'_>) {
    for (key, group) in config.as_object().into_iter().flatten() {
        let members = numbers(&group["ranks"]);
        let text = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
        let id = format!("process group {key} {}", text("desc")).trim().to_owned();
        let size = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let ranks = &mut reading.observed.cluster.ranks;
        *ranks = (*ranks).max(members.iter().max().map(|rank| rank + 1));
        let known = &reading.observed.communicators;
        if known.iter().all(|known| known.id != id || known.members != members) {
            let group = Communicator { id, size, members, ..Communicator::default() };
            reading.observed.communicators.push(group);
        }
    }
}

fn add(
    entry: &Value,
    rank: Option<u32>,
    index: usize,
    in_groups: &mut BTreeMap<String, InGroup>,
    reading: &mut Reading<'_>,
) -> bool {
    let name = entry["profiling_name"].as_str().unwrap_or_default();
    let Some(kind) = Kind::of(name) else { return false };
    let bytes = |sizes: &str, types: &str| {
        let types = entry[types].as_array();
        let sizes = entry[sizes].as_array().into_iter().flatten();
        let tensors = sizes.enumerate().map(|(place, size)| {
            let dims = size.as_array().into_iter().flatten().filter_map(Value::as_u64);
            let elements = dims.fold(1_u64, u64::saturating_mul);
            let types = types.and_then(|types| types.get(place).or(types.first()));
            let name = types.and_then(Value::as_str).unwrap_or("Float");
            elements.saturating_mul(type_bytes(name).unwrap_or(4))
        });
        tensors.fold(0_u64, u64::saturating_add)
    };
    let bytes = bytes("input_sizes", "input_dtypes").max(bytes("output_sizes", "output_dtypes"));
    let group = match &entry["process_group"] {
        Value::Array(names) => names.first().and_then(Value::as_str).unwrap_or_default().to_owned(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    let begins = format!("process group {group}");
    let known = reading.observed.communicators.iter().rev();
    let mut known = known.filter(|known| {
        let rest = known.id.strip_prefix(&begins);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    });
    let known = known.next();
    let ranks = known.map(|known| known.size);
    let own = in_groups.entry(group.clone()).or_insert_with(|| InGroup {
        name: known.map_or(group.as_str(), |known| &known.id["process group ".len()..]).to_owned(),
        size: ranks.unwrap_or(0),
        members: known.map_or(Vec::new(), |known| known.members.clone()),
        ..InGroup::default()
    });
    own.add(kind, 1, bytes);
    let ns = |key: &str| entry[key].as_f64();
    let seen = ns("time_discovered_started_ns").zip(ns("time_discovered_completed_ns"));
    let time_us = ns("duration_ms").map(|ms| ms * 1e3);
    let time_us = time_us.or(seen.map(|(start, end)| (end - start) / 1e3));
    let from = "flight recorder".to_owned();
    let key = CollectiveKey { kind, bytes, ranks: ranks.unwrap_or(0), from };
    reading.observed.collectives.add(key, time_us);
    let start = ns("time_discovered_started_ns").or_else(|| ns("time_created_ns"));
    let end = ns("time_discovered_completed_ns");
    let sequence = entry["collective_seq_id"].as_u64().or_else(|| entry["seq_id"].as_u64());
    if let (Some(rank), Some(start), Some(sequence)) = (rank, start, sequence)
        && entry["is_p2p"].as_bool() != Some(true)
    {
        let (start_us, end_us) = (start / 1e3, end.unwrap_or(start) / 1e3);
        let group = format!("{group} {name}");
        reading.observed.arrivals.add(Arrival { group, sequence, rank, start_us, end_us });
    }
    let state = entry["state"].as_str().unwrap_or_default();
    if matches!(state, "scheduled" | "started") {
        let text = format!("{name} {sequence:?} of process group {group}: {state}, not completed");
        let file = reading.source.file.clone();
        reading
            .observed
            .evidence
            .add("not_completed", || Quote::new(&file, 0, &format!("entry {index}: {text}")));
    }
    true
}
