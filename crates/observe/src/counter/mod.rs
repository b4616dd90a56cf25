//! Counters of NICs, GPUs and switches, and the cables between them, as tools print them.
//!
//! * `prometheus`: text of node_exporter, DCGM and other exporters.
//! * `tools`: `ethtool -S`, `rdma statistic`, `perfquery`, sysfs as `ttar` packs it.
//! * `sonic`: tables of `show`, and the database as JSON.
//! * `fabric`: files that a scenario reads as its fabric, counted.
//! * `topology`: LLDP tables, `nvidia-smi topo -m`, `rocm-smi --showtopo`.
//!
//! A counter that comes twice (in two files, or in two blocks of one) has a difference.

mod fabric;
mod prometheus;
mod sonic;
mod tools;
mod topology;

pub use fabric::{IBNETDISCOVER, SLURM, SLURM_YAML};
pub use prometheus::{FORMAT as PROMETHEUS, Labels, parse as parse_sample};
pub use sonic::{JSON as SONIC_JSON, TABLES as SONIC_TABLES};
pub use tools::{ETHTOOL, PERFQUERY, RDMA, SYSFS};
pub use topology::{LLDP_JSON, LLDP_KEYS, LLDP_LIST, LLDP_TABLE, SMI};

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::format::Reading;
use crate::observed::{Finding, Quote, Sample, Severity, Source};

/// More values than this are not kept.
const MAX_SAMPLES: usize = 1 << 20;
/// Rows of JSON.
const MAX_ROWS: usize = 10_000;
/// DCGM's and others' ways to say that there is no value begin here.
const NO_VALUE: f64 = 9.22e18;
/// One of several devices that has more than this share has "most".
const MOST: f64 = 0.8;
/// Fewer than this say nothing.
const FEWEST: f64 = 8.0;

/// Adds a value. A number by which a tool says that it has none, and what is too much to keep,
/// count as skipped.
fn add(reading: &mut Reading<'_>, device: &str, name: &str, value: f64, line: u64) {
    let observed = &mut *reading.observed;
    let is_none = !value.is_finite() || NO_VALUE <= value;
    if is_none || MAX_SAMPLES <= observed.counters.len() {
        reading.source.skipped += 1;
        return;
    }
    reading.source.read += 1;
    let source = observed.sources.len();
    observed.counters.push(Sample {
        host: String::new(),
        device: device.to_owned(),
        name: name.to_owned(),
        value,
        time_s: None,
        snapshot: u32::try_from(source).unwrap_or(u32::MAX),
        place: (source, line),
    });
}

/// A number as tools print it: `15,437`, `0x10`; `None` for `N/A`.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|number| number as f64);
    }
    let plain: String = text.chars().filter(|letter| *letter != ',').collect();
    plain.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A counter, with its difference where it came more than once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterRow {
    /// The host, if the file says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The NIC, GPU or port.
    pub device: String,
    /// Its name.
    pub name: String,
    /// Its last value.
    pub value: f64,
    /// The last value less the first, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// From the first to the last, where the files say when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    #[serde(skip)]
    place: (usize, u64),
}

impl CounterRow {
    /// By how much it grows in a second, where files say when it was read.
    pub fn per_second(&self) -> Option<f64> {
        let seconds = self.seconds.filter(|seconds| 0.0 < *seconds)?;
        self.difference.filter(|grown| 0.0 <= *grown).map(|grown| grown / seconds)
    }

    /// What counts of it: the difference, if there is one.
    fn grown(&self) -> f64 {
        self.difference.unwrap_or(self.value)
    }
}

/// All counters in order; those beyond a limit are left out and counted.
pub fn rows(samples: &[Sample]) -> (Vec<CounterRow>, u64) {
    let clocks = clocks(samples);
    let mut all: BTreeMap<(&str, &str, &str), CounterRow> = BTreeMap::new();
    let mut first: BTreeMap<(&str, &str, &str), (f64, Option<f64>)> = BTreeMap::new();
    for sample in samples {
        let key = (sample.host.as_str(), sample.device.as_str(), sample.name.as_str());
        let time = time_of(sample, &clocks);
        let (start, begin) = *first.entry(key).or_insert((sample.value, time));
        let row = all.entry(key).or_insert_with(|| CounterRow {
            host: sample.host.clone(),
            device: sample.device.clone(),
            name: sample.name.clone(),
            value: sample.value,
            difference: None,
            seconds: None,
            place: sample.place,
        });
        if row.place != sample.place {
            (row.value, row.place) = (sample.value, sample.place);
            row.difference = Some(sample.value - start);
            row.seconds = begin.zip(time).map(|(begin, end)| end - begin);
        }
    }
    let left_out = all.len().saturating_sub(MAX_ROWS) as u64;
    (all.into_values().take(MAX_ROWS).collect(), left_out)
}

/// The clock of a page of node_exporter, which itself says no times.
const CLOCK: &str = "node_time_seconds";

/// What clocks say, by snapshot and host.
fn clocks(samples: &[Sample]) -> BTreeMap<(u32, &str), f64> {
    let clocks = samples.iter().filter(|sample| sample.name == CLOCK);
    clocks.map(|sample| ((sample.snapshot, sample.host.as_str()), sample.value)).collect()
}

fn time_of(sample: &Sample, clocks: &BTreeMap<(u32, &str), f64>) -> Option<f64> {
    let clock = || clocks.get(&(sample.snapshot, sample.host.as_str())).copied();
    sample.time_s.or_else(clock)
}

/// What a port of a NIC sends over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortRates {
    /// The host, if the file says.
    pub host: String,
    /// The port.
    pub device: String,
    /// When each interval begins, how long it is, and bytes per second in it.
    pub intervals: Vec<[f64; 3]>,
}

/// What ports of NICs send, where counters come with their times: those of RDMA, or those of the
/// host's network where there are no others.
pub fn port_rates(samples: &[Sample]) -> Vec<PortRates> {
    const RDMA: &str = "node_infiniband_port_data_transmitted_bytes_total";
    const HOST: &str = "node_network_transmit_bytes_total";
    let clocks = clocks(samples);
    let of = |name: &str| {
        let mut ports: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.name == name) {
            if let Some(time) = time_of(sample, &clocks) {
                let key = (sample.host.as_str(), sample.device.as_str());
                ports.entry(key).or_default().push((time, sample.value));
            }
        }
        ports
    };
    let mut ports = of(RDMA);
    if ports.is_empty() {
        ports = of(HOST);
    }
    let port = |((host, device), mut values): ((&str, &str), Vec<(f64, f64)>)| {
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        // A counter that falls began anew.
        let pairs =
            values.windows(2).filter(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let interval = |pair: &[(f64, f64)]| {
            let seconds = pair[1].0 - pair[0].0;
            [pair[0].0, seconds, (pair[1].1 - pair[0].1) / seconds]
        };
        let (host, device) = (host.to_owned(), device.to_owned());
        PortRates { host, device, intervals: pairs.map(interval).collect() }
    };
    ports.into_iter().map(port).filter(|port| !port.intervals.is_empty()).collect()
}

/// What a counter counts, by its name.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Meaning {
    Loss,
    Pauses,
    Marks,
    Rate,
}

fn meaning(name: &str) -> Option<Meaning> {
    let name = name.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&["rate_bytes_per_second", "port_speed", "link_speed"]) {
        return Some(Meaning::Rate);
    }
    if has(&["time", "duration", "_wd_", "status", "watermark"]) {
        return None;
    }
    if has(&["ecn_marked", "ecn-marked", "cnp_sent", "cnp_packets_sent", "cnp_handled"]) {
        return Some(Meaning::Marks);
    }
    if has(&["pause", "pfc"]) {
        return Some(Meaning::Pauses);
    }
    let losses = [
        "out_of_sequence",
        "packet_seq_err",
        "packet_sequence_err",
        "local_ack_timeout",
        "rnr_nak_retry",
        "discard",
        "drop",
        "out_of_buffer",
        "rx_err",
        "tx_err",
        "symbolerror",
        "rcverrors",
        "linkdowned",
        "icrc_encapsulated",
        "xmitdiscards",
        "fec_uncorr",
    ];
    has(&losses).then_some(Meaning::Loss)
}

/// What looks wrong in counters.
pub(crate) fn findings(samples: &[Sample], sources: &[Source]) -> Vec<Finding> {
    let (rows, _) = rows(samples);
    let mut by_name: BTreeMap<(Meaning, &str), Vec<&CounterRow>> = BTreeMap::new();
    for row in &rows {
        if let Some(meaning) = meaning(&row.name) {
            by_name.entry((meaning, &row.name)).or_default().push(row);
        }
    }
    let quote = |row: &CounterRow| {
        let file = sources.get(row.place.0).map_or("", |source| source.file.as_str());
        let text = match row.difference {
            Some(grown) => format!("{} {}: {} ({grown:+})", row.device, row.name, row.value),
            None => format!("{} {}: {}", row.device, row.name, row.value),
        };
        Quote::new(file, row.place.1, &text)
    };
    let mut found = Vec::new();
    for ((meaning, name), rows) in by_name {
        match meaning {
            Meaning::Loss => found.extend(grew(name, &rows, &quote)),
            Meaning::Pauses => {
                found.extend(concentrated("pauses_concentrated", name, &rows, &quote))
            }
            Meaning::Marks => found.extend(concentrated("marks_concentrated", name, &rows, &quote)),
            Meaning::Rate => found.extend(unequal(name, &rows, &quote)),
        }
    }
    found
}

/// Counters of loss that grew between two snapshots.
fn grew(
    name: &str,
    rows: &[&CounterRow],
    quote: &impl Fn(&CounterRow) -> Quote,
) -> Option<Finding> {
    let mut grown: Vec<&&CounterRow> =
        rows.iter().filter(|row| row.difference.is_some_and(|grown| 0.0 < grown)).collect();
    grown.sort_by(|a, b| b.grown().total_cmp(&a.grown()));
    let worst = grown.first()?;
    Some(Finding {
        severity: Severity::Warning,
        code: "loss",
        text: format!(
            "`{name}` grew on {} of {} devices, by {} on {}: packets are lost or damaged there.",
            grown.len(),
            rows.len(),
            worst.grown(),
            if worst.device.is_empty() { "the only one" } else { &worst.device }
        ),
        lines: grown.iter().take(3).map(|row| quote(row)).collect(),
    })
}

/// One device that has most of what all have.
fn concentrated(
    code: &'static str,
    name: &str,
    rows: &[&CounterRow],
    quote: &impl Fn(&CounterRow) -> Quote,
) -> Option<Finding> {
    let total: f64 = rows.iter().map(|row| row.grown().max(0.0)).sum();
    let worst = rows.iter().max_by(|a, b| a.grown().total_cmp(&b.grown()))?;
    if rows.len() < 3 || total < FEWEST || worst.grown() < MOST * total {
        return None;
    }
    Some(Finding {
        severity: Severity::Warning,
        code,
        text: format!(
            "{:.0} % of `{name}` is on {}: {} of {total} over {} devices.",
            100.0 * worst.grown() / total,
            worst.device,
            worst.grown(),
            rows.len()
        ),
        lines: vec![quote(worst)],
    })
}

/// Rates that differ between devices.
fn unequal(
    name: &str,
    rows: &[&CounterRow],
    quote: &impl Fn(&CounterRow) -> Quote,
) -> Option<Finding> {
    let rates: BTreeSet<u64> = rows.iter().map(|row| row.value as u64).filter(|r| 0 < *r).collect();
    let (slow, fast) = (*rates.first()?, *rates.last()?);
    let slowest = rows.iter().find(|row| row.value as u64 == slow)?;
    (slow < fast).then(|| Finding {
        severity: Severity::Warning,
        code: "unequal_rates",
        text: format!(
            "`{name}` differs: {slow} on {}, {fast} elsewhere. A ring is as fast as its slowest \
             link.",
            slowest.device
        ),
        lines: vec![quote(slowest)],
    })
}
