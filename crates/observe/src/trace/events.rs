//! Trace-event JSON: PyTorch's profiler (Kineto) and XLA's, event by event.
//!
//! The file may have any length: an event is counted and forgotten, but for the times of kernels.
//! Newer traces say sizes and groups at the kernels of collectives, older ones nothing; then only
//! kinds and times are known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use memchr::memmem::find;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::spans::{Does, Spans};
use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{Arrival, CollectiveKey, Communicator, InGroup, Kind};
use crate::records::type_bytes;

/// PyTorch's and XLA's traces.
pub const FORMAT: Format = Format { name: "trace events", unit: "events", recognises, read };

fn recognises(input: &Input<'_>) -> bool {
    let head = input.head();
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace());
    first == Some(&b'{')
        && (find(head, b"\"traceEvents\"").is_some()
            || find(head, b"\"deviceProperties\"").is_some()
                && find(head, b"\"schemaVersion\"").is_some())
}

/// One event, as far as it is looked at.
#[derive(Debug, Default, Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
    #[serde(default)]
    ts: Value,
    #[serde(default)]
    dur: Value,
    #[serde(default)]
    args: Option<Args>,
}

/// What an event says of a collective.
#[derive(Debug, Default, Deserialize)]
struct Args {
    #[serde(default)]
    name: Value,
    #[serde(default, rename = "Collective name")]
    collective: Value,
    #[serde(default, rename = "In msg nelems")]
    elements_in: Value,
    #[serde(default, rename = "Out msg nelems")]
    elements_out: Value,
    #[serde(default)]
    dtype: Value,
    #[serde(default, rename = "Group size")]
    group_size: Value,
    #[serde(default, rename = "Process Group Name")]
    group_name: Value,
    #[serde(default, rename = "Process Group Description")]
    group_purpose: Value,
    #[serde(default, rename = "Process Group Ranks")]
    group_ranks: Value,
}

/// A number, also one that is written as text.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim_matches('"').parse().ok())
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().map(|text| text.trim_matches('"')).filter(|text| !text.is_empty())
}

fn whole(value: &Value) -> Option<u32> {
    number(value).filter(|n| 0.0 <= *n && *n < 4e9).map(|n| n as u32)
}

/// What the events of a file have said.
#[derive(Debug, Default)]
struct Events {
    spans: Spans,
    count: u64,
    other: u64,
    /// Collectives without a size, by the kernel's kind: their times.
    bare: BTreeMap<Kind, Vec<f64>>,
    sized: BTreeMap<CollectiveKey, Vec<f64>>,
    groups: BTreeMap<String, (u32, Vec<u32>)>,
    in_groups: BTreeMap<String, InGroup>,
    arrivals: Vec<(String, f64, f64)>,
    /// Whether all-to-alls, and whether sends to single ranks, were called.
    exchanges: bool,
    sends: bool,
    /// Calls of collectives on the CPU.
    calls: u64,
    /// Names of processes and threads, where an XLA trace has them.
    devices: BTreeSet<String>,
    lanes: BTreeMap<(String, String), String>,
    rank: Option<u32>,
    world: Option<u32>,
    version: Option<String>,
    gpus: BTreeSet<String>,
    is_xla: bool,
}

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut events = Events::default();
    let mut json = serde_json::Deserializer::from_reader(&mut *input);
    let result = Top(&mut events).deserialize(&mut json);
    events.finish(reading);
    result.map_err(|error| {
        let reason = match error.is_eof() {
            true => format!("ends in the middle: {error}"),
            false => error.to_string(),
        };
        ReadError::at(error.line() as u64, reason)
    })
}

/// The object of the file.
struct Top<'a>(&'a mut Events);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with traceEvents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => map.next_value_seed(List(self.0))?,
                "distributedInfo" => self.0.about(&map.next_value::<Value>()?),
                "deviceProperties" => self.0.devices_of(&map.next_value::<Value>()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The list of events.
struct List<'a>(&'a mut Events);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(event) = list.next_element::<Event>()? {
            self.0.event(&event);
        }
        Ok(())
    }
}

impl Events {
    fn about(&mut self, value: &Value) {
        self.rank = whole(&value["rank"]);
        self.world = whole(&value["world_size"]);
        self.version = text(&value["nccl_version"]).map(str::to_owned);
        for group in value["pg_config"].as_array().into_iter().flatten() {
            let Some(name) = text(&group["pg_name"]) else { continue };
            let ranks = group["ranks"].as_array().into_iter().flatten().filter_map(whole);
            let size = whole(&group["pg_size"]).unwrap_or(0);
            if let Some(purpose) = text(&group["pg_desc"]) {
                self.in_groups.entry(name.to_owned()).or_default().name =
                    named(name, Some(purpose));
            }
            self.groups.insert(name.to_owned(), (size, ranks.collect()));
        }
    }

    fn devices_of(&mut self, value: &Value) {
        let names = value.as_array().into_iter().flatten().filter_map(|gpu| text(&gpu["name"]));
        self.gpus.extend(names.map(str::to_owned));
    }

    fn event(&mut self, event: &Event) {
        self.count += 1;
        if event.ph == "M" {
            return self.name(event);
        }
        let (Some(start), Some(length)) = (number(&event.ts), number(&event.dur)) else {
            self.other += 1;
            if let Some(at) = number(&event.ts).filter(|_| event.ph != "i") {
                self.spans.event(at, at);
            }
            return;
        };
        if event.ph != "X" || !(0.0..1e15).contains(&length) {
            self.other += 1;
            return;
        }
        let end = start + length;
        // What the profiler recorded altogether.
        if event.cat == "Trace" {
            self.other += 1;
            return self.spans.event(start, end);
        }
        if event.name.starts_with("ProfilerStep#") && event.cat != "gpu_user_annotation" {
            let digits = event.name.trim_start_matches("ProfilerStep#");
            self.spans.steps.push((digits.parse().unwrap_or(0), start, end));
        }
        let is_kernel = event.cat.eq_ignore_ascii_case("kernel");
        if is_kernel || self.is_device(event) {
            let kind = communicates(&event.name);
            let does = match kind {
                Some(_) => Does::Communication,
                None => Does::computes(&event.name),
            };
            self.spans.kernel(start, end, does);
            if let Some(kind) = kind {
                self.collective(kind, event, start, end);
            }
            return;
        }
        self.spans.event(start, end);
        if event.name == "record_param_comms" {
            self.calls += 1;
        }
        if event.cat != "gpu_user_annotation" && event.name.len() < 64 {
            self.exchanges |= event.name.contains("all_to_all") || event.name.contains("alltoall");
            self.sends |= ["nccl:send", "nccl:recv", "c10d::send", "c10d::recv"]
                .iter()
                .any(|begin| event.name.starts_with(begin));
        }
    }

    /// Names of processes and threads: XLA's devices are processes.
    fn name(&mut self, event: &Event) {
        let Some(name) = event.args.as_ref().and_then(|args| text(&args.name)) else { return };
        match event.name.as_str() {
            "process_name" if name.starts_with("/device:") => {
                self.is_xla = true;
                self.devices.insert(event.pid.to_string());
            }
            "thread_name" => {
                let lane = (event.pid.to_string(), event.tid.to_string());
                self.lanes.insert(lane, name.to_owned());
            }
            _ => {}
        }
    }

    /// Whether an event without a category is a kernel of an XLA trace.
    fn is_device(&self, event: &Event) -> bool {
        if !self.is_xla || !self.devices.contains(&event.pid.to_string()) {
            return false;
        }
        let lane = self.lanes.get(&(event.pid.to_string(), event.tid.to_string()));
        lane.is_some_and(|lane| lane.starts_with("XLA Ops") || lane.starts_with("Stream #"))
    }

    fn collective(&mut self, kernel: Option<Kind>, event: &Event, start: f64, end: f64) {
        let args = event.args.as_ref();
        let said = args.and_then(|args| text(&args.collective)).and_then(Kind::of);
        let Some(kind) = said.or(kernel) else { return };
        let us = end - start;
        let elements = args.map_or(0.0, |args| {
            let [before, after] = [&args.elements_in, &args.elements_out].map(number);
            before.unwrap_or(0.0).max(after.unwrap_or(0.0))
        });
        let bytes = args.and_then(|args| text(&args.dtype)).and_then(type_bytes);
        let ranks = args.and_then(|args| whole(&args.group_size)).unwrap_or(0);
        if let Some(args) = args {
            self.group(args, start, end);
        }
        match bytes.filter(|_| 0.0 < elements && elements < 1e18) {
            Some(each) => {
                let (bytes, from) = (elements as u64 * each, "trace".to_owned());
                if let Some(args) = args
                    && let Some(name) = text(&args.group_name)
                {
                    let own = self.in_groups.entry(name.to_owned()).or_default();
                    own.add(kind, 1, bytes);
                    if own.name.is_empty() {
                        own.name = named(name, text(&args.group_purpose));
                    }
                }
                let key = CollectiveKey { kind, bytes, ranks, from };
                self.sized.entry(key).or_default().push(us);
            }
            None => self.bare.entry(kind).or_default().push(us),
        }
    }

    fn group(&mut self, args: &Args, start: f64, end: f64) {
        let Some(name) = text(&args.group_name) else { return };
        let ranks = text(&args.group_ranks).map_or(Vec::new(), |list| {
            let parts = list.trim_matches(['[', ']']).split(',');
            parts.filter_map(|part| part.trim().parse().ok()).collect()
        });
        let size = whole(&args.group_size).unwrap_or(0);
        let entry = self.groups.entry(name.to_owned()).or_default();
        entry.0 = entry.0.max(size);
        // A list that was cut has dots in it, and so fewer numbers than ranks.
        if ranks.len() == size as usize {
            entry.1 = ranks;
        }
        self.spans.of_group(name, start, end);
        self.arrivals.push((name.to_owned(), start, end));
    }

    fn finish(mut self, reading: &mut Reading<'_>) {
        let file = reading.source.file.clone();
        let rank = self.rank.or_else(|| rank_of(&file));
        reading.source.read += self.count - self.other;
        reading.source.skipped += self.other;
        reading.source.kind = match (self.is_xla, self.count) {
            (true, _) => "XLA trace".to_owned(),
            (false, _) => "PyTorch (Kineto) trace".to_owned(),
        };
        if self.exchanges
            && !self.sends
            && let Some(times) = self.bare.remove(&Kind::SendRecv)
        {
            // NCCL makes all-to-alls of sends and receives, and calls the kernel so.
            self.bare.entry(Kind::AllToAll).or_default().extend(times);
        }
        if 0 < self.calls && self.sized.is_empty() && self.bare.is_empty() {
            let reason = format!("{} calls of collectives, but no kernels of them", self.calls);
            reading.problem(0, &reason);
        }
        let observed = &mut *reading.observed;
        for (key, times) in std::mem::take(&mut self.sized) {
            observed.collectives.add_rank(key, times.len() as u64, &times);
        }
        for (kind, times) in std::mem::take(&mut self.bare) {
            let from = "trace, without sizes".to_owned();
            let key = CollectiveKey { kind, bytes: 0, ranks: self.world.unwrap_or(0), from };
            observed.collectives.add_rank(key, times.len() as u64, &times);
        }
        let facts = &mut observed.cluster;
        facts.ranks = facts.ranks.max(self.world);
        facts.gpu_names.extend(std::mem::take(&mut self.gpus));
        if let Some(version) = self.version.take() {
            facts.libraries.entry(("NCCL".to_owned(), version)).or_default();
        }
        self.groups(rank, reading);
        let (mut trace, steps) = self.spans.finish(&file, rank);
        trace.calls = self.calls;
        reading.observed.traces.push(trace);
        reading.observed.steps.extend(steps);
    }

    fn groups(&mut self, rank: Option<u32>, reading: &mut Reading<'_>) {
        let mut sequence: BTreeMap<&str, u64> = BTreeMap::new();
        for (group, start_us, end_us) in &self.arrivals {
            let number = sequence.entry(group).or_default();
            *number += 1;
            if let Some(rank) = rank {
                let (group, sequence) = (group.clone(), *number);
                let (start_us, end_us) = (*start_us, *end_us);
                let arrival = Arrival { group, sequence, rank, start_us, end_us };
                reading.observed.arrivals.add(arrival);
            }
        }
        let whose = (reading.observed.sources.len(), 0);
        for (name, mut own) in std::mem::take(&mut self.in_groups) {
            if let Some((size, members)) = self.groups.get(&name).filter(|_| !own.sent.is_empty()) {
                (own.whose, own.size) = (whose, *size);
                own.members.clone_from(members);
                reading.observed.in_groups.push(own);
            }
        }
        for (name, (size, members)) in std::mem::take(&mut self.groups) {
            let id = format!("process group {name}");
            let known = &mut reading.observed.communicators;
            let same = |other: &&mut Communicator| other.id == id && other.members == members;
            if let Some(other) = known.iter_mut().find(same) {
                other.seen.extend(rank);
                continue;
            }
            let seen = rank.into_iter().collect();
            known.push(Communicator { id, size, members, seen, ..Communicator::default() });
        }
    }
}

/// A group's name, with what it is for if that is said.
fn named(name: &str, purpose: Option<&str>) -> String {
    match purpose.filter(|purpose| !matches!(*purpose, "undefined" | "")) {
        Some(purpose) => format!("{name} {purpose}"),
        None => name.to_owned(),
    }
}

/// Whether a kernel communicates, and what it does if its name says.
fn communicates(name: &str) -> Option<Option<Kind>> {
    let lower = name.get(..name.len().min(96)).unwrap_or(name).to_ascii_lowercase();
    let is_library = lower.contains("nccl") || lower.contains("rccl");
    if is_library {
        return Some(Kind::of(lower.split('(').next().unwrap_or(&lower)));
    }
    if lower.contains("deep_ep") || lower.contains("nvshmem") {
        let exchanges = lower.contains("dispatch") || lower.contains("combine");
        return Some(exchanges.then_some(Kind::AllToAll));
    }
    // XLA's operations.
    let begins = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"];
    if begins.iter().any(|begin| lower.starts_with(begin)) {
        return Some(Kind::of(&lower));
    }
    lower.starts_with("collective-permute").then_some(Some(Kind::SendRecv))
}

/// The rank that a file's name says: the number behind `rank` or `worker`.
fn rank_of(file: &str) -> Option<u32> {
    let name = file.rsplit(['/', '!']).next().unwrap_or(file).to_ascii_lowercase();
    ["rank", "worker"].iter().find_map(|word| {
        let rest = &name[name.find(word)? + word.len()..];
        let rest = rest.trim_start_matches(['_', '-', '.']);
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}
