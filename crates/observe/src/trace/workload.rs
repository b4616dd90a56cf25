//! Text workloads of ASTRA-sim and SimAI: a line of settings, a number, a layer in each line.
//!
//! A layer has twelve columns: name, dependency, and for each of forward pass, gradient of the
//! input and gradient of the weights a time, a collective and its size; then the update.

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{CollectiveKey, Kind};

/// Such a text.
pub const FORMAT: Format =
    Format { name: "SimAI or ASTRA-sim workload", unit: "layers", recognises, read };

const FIRST: [&str; 9] = [
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_TRANSFORMER",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
    "HYBRID_DLRM",
    "HYBRID_CUSTOMIZED",
    "MICRO",
];

fn recognises(input: &Input<'_>) -> bool {
    let text = input.head_text();
    let mut lines = text.lines();
    let first = lines.next().and_then(|line| line.split_whitespace().next()).unwrap_or_default();
    let second = lines.next().map_or("", str::trim);
    FIRST.contains(&first) && second.parse::<u64>().is_ok()
}

/// The number behind a word such as `all_gpus:`.
fn setting(line: &str, name: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    words.find(|word| word.trim_end_matches(':') == name)?;
    words.next()?.parse().ok()
}

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let first = match input.next_line()? {
        Some((_, line)) => String::from_utf8_lossy(line).into_owned(),
        None => return Ok(()),
    };
    let gpus = setting(&first, "all_gpus").and_then(|gpus| u32::try_from(gpus).ok());
    reading.observed.cluster.ranks = reading.observed.cluster.ranks.max(gpus);
    if let Some(bytes) = setting(&first, "pp_comm").filter(|bytes| 0 < *bytes) {
        // A stage sends forward and back for each microbatch and each of its virtual stages.
        let [rounds, parts] = ["ga", "vpp"].map(|name| setting(&first, name).unwrap_or(1).max(1));
        let from = "workload, messages between stages".to_owned();
        let key = CollectiveKey { kind: Kind::SendRecv, bytes, ranks: 0, from };
        let stats = reading.observed.collectives.0.entry(key).or_default();
        stats.count += 2_u64.saturating_mul(rounds).saturating_mul(parts);
    }
    let said: u64 = match input.next_line()? {
        Some((_, line)) => String::from_utf8_lossy(line).trim().parse().unwrap_or(0),
        None => 0,
    };
    while let Some((number, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        if words.len() < 11 {
            reading.source.skipped += 1;
            reading.problem(number, "has fewer columns than a layer");
            continue;
        }
        reading.source.read += 1;
        for at in [3, 6, 9] {
            layer(words[at], words[at + 1], number, reading);
        }
    }
    let layers = reading.source.read;
    if layers != said {
        reading.problem(2, &format!("says {said} layers and has {layers}"));
    }
    Ok(())
}

/// A collective of a layer; the group is behind its name (`ALLTOALL_EP`).
fn layer(name: &str, size: &str, number: u64, reading: &mut Reading<'_>) {
    if name == "NONE" {
        return;
    }
    let (Some(kind), Ok(bytes)) = (Kind::of(name), size.parse::<u64>()) else {
        return reading.problem(number, &format!("`{name} {size}` is no collective"));
    };
    if 0 < bytes {
        let from = "workload".to_owned();
        reading.observed.collectives.add(CollectiveKey { kind, bytes, ranks: 0, from }, None);
    }
}
