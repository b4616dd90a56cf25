//! nccl-tests' JSON (`-J`, versions 1 to 4), and rccl-tests' JSON and CSV.
//!
//! The environment that nccl-tests writes down may hold secrets: only the libraries' own settings
//! are looked at. Truth values are text (`"true"`), what is not measured is `null` or `"nan"`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::whole;
use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::log::add_benchmark;
use crate::observed::{Benchmark, BenchmarkRow, Kind};

/// What `-J` of nccl-tests writes.
pub const NCCL: Format = Format {
    name: "nccl-tests JSON",
    unit: "rows",
    recognises: |input| {
        let head = input.head_text();
        head.trim_start().starts_with('{')
            && head.contains("\"nccl_version\"")
            && (head.contains("\"minimum_bytes\"") || head.contains("\"out_of_place\""))
    },
    read: read_nccl,
};

/// What `-Z json` of rccl-tests writes: objects in lines, or a list of them.
pub const RCCL: Format = Format {
    name: "rccl-tests JSON",
    unit: "rows",
    recognises: |input| {
        let head = input.head_text();
        let head = head.trim_start();
        head.starts_with(['{', '[']) && head.contains("\"busBw\"") && head.contains("\"inPlace\"")
    },
    read: read_rccl,
};

/// What `-Z csv` of rccl-tests writes.
pub const RCCL_CSV: Format = Format {
    name: "rccl-tests CSV",
    unit: "rows",
    recognises: |input| {
        let head = input.head_text();
        let first = head.lines().next().unwrap_or_default();
        first.contains("inPlace") && first.contains("busBw") && first.contains(',')
    },
    read: read_csv,
};

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn float(value: &Value) -> Option<f64> {
    text(value)?.parse().ok().filter(|number: &f64| number.is_finite())
}

fn read_nccl(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let bytes = whole(input)?;
    let file: Value = serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::at(error.line() as u64, error.to_string()))?;
    let program = file["args"].as_array().and_then(|args| args.first()).and_then(Value::as_str);
    let name = program.and_then(|path| path.rsplit('/').next()).unwrap_or("nccl-tests").to_owned();
    let mut table = Benchmark { kind: Kind::of(&name), name, ..Benchmark::default() };
    for row in file["results"].as_array().into_iter().flatten() {
        match row_of(row) {
            Some(row) => {
                reading.source.read += 1;
                table.rows.push(row);
            }
            None => reading.source.skipped += 1,
        }
    }
    let config = &file["config"];
    let devices = config["devices"].as_array();
    // The list has the first rank of each process; each process has so many.
    let number = |key: &str| float(&config[key]).filter(|n| (1.0..=1e3).contains(n));
    let each = number("nthreads").unwrap_or(1.0) * number("ngpus").unwrap_or(1.0);
    let mut hosts: BTreeMap<String, u64> = BTreeMap::new();
    for device in devices.into_iter().flatten() {
        let Some(host) = device["hostname"].as_str() else { continue };
        *hosts.entry(host.to_owned()).or_default() += 1;
        let entry = reading.observed.cluster.hosts.entry(host.to_owned()).or_default();
        entry.is_certain = true;
        if let Some(gpu) = text(&device["device_hex"]).or_else(|| text(&device["device"])) {
            let all = (0..each as u32).map(|other| format!("{gpu}+{other}"));
            entry.benchmark_gpus.extend(all);
        }
        if let Some(gpu) = device["device_info"].as_str() {
            reading.observed.cluster.gpu_names.insert(gpu.to_owned());
        }
    }
    let listed = devices.map_or(0, Vec::len) as f64;
    table.ranks = (0.0 < listed).then_some((listed * each) as u32);
    table.nodes = u32::try_from(hosts.len()).ok().filter(|nodes| 0 < *nodes);
    table.average_busbw = float(&file["average_bus_bandwidth"]["bandwidth"]);
    table.wrong = float(&file["out_of_bounds"]["count"]).unwrap_or(0.0) as u64;
    table.is_complete = !file["end_time"].is_null();
    if let Some(version) = text(&file["nccl_version"]) {
        let key = ("NCCL".to_owned(), version);
        reading.observed.cluster.libraries.entry(key).or_default();
    }
    finish(table, "nccl-tests", reading);
    Ok(())
}

fn row_of(row: &Value) -> Option<BenchmarkRow> {
    let half = |key: &str| {
        let half = &row[key];
        let time = float(&half["time"]).or_else(|| float(&half["cpu_time"]));
        time.zip(float(&half["bus_bw"]))
    };
    let (out, inside) = (half("out_of_place"), half("in_place"));
    let (time_us, busbw) = out.or(inside)?;
    Some(BenchmarkRow {
        bytes: text(&row["size"])?.parse().ok()?,
        time_us,
        busbw,
        in_place_us: inside.map(|(time, _)| time),
        in_place_busbw: inside.map(|(_, busbw)| busbw),
    })
}

fn finish(mut table: Benchmark, from: &str, reading: &mut Reading<'_>) {
    table.file.clone_from(&reading.source.file);
    let cluster = &mut reading.observed.cluster;
    cluster.ranks = cluster.ranks.max(table.ranks);
    cluster.nodes = cluster.nodes.max(table.nodes);
    add_benchmark(&table, from, reading);
    reading.observed.benchmarks.push(table);
}

/// Rows of rccl-tests by the name of the collective: each has its place in or out of place.
#[derive(Default)]
struct Rows(BTreeMap<String, Benchmark>);

impl Rows {
    fn add(&mut self, get: impl Fn(&str) -> Option<String>) -> Option<()> {
        let number = |key: &str| get(key)?.parse::<f64>().ok().filter(|n| n.is_finite());
        let name = get("name")?;
        let bytes = get("size")?.parse().ok()?;
        let (time, busbw) = (number("time")?, number("busBw")?);
        let gpus = number("ranks").map(|ranks| ranks * number("gpusPerRank").unwrap_or(1.0));
        let table = self.0.entry(name.clone()).or_default();
        table.kind = Kind::of(&name);
        table.name = name;
        table.ranks = gpus.or_else(|| number("gpus")).map(|gpus| gpus as u32);
        table.nodes = number("nodes").map(|nodes| nodes as u32);
        table.wrong += number("#wrong").unwrap_or(0.0) as u64;
        table.is_complete = true;
        let in_place = number("inPlace") == Some(1.0);
        match table.rows.last_mut().filter(|row| in_place && row.bytes == bytes) {
            Some(row) => (row.in_place_us, row.in_place_busbw) = (Some(time), Some(busbw)),
            None => {
                let row = BenchmarkRow { bytes, time_us: time, busbw, ..BenchmarkRow::default() };
                table.rows.push(row);
            }
        }
        Some(())
    }
}

fn read_rccl(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let bytes = whole(input)?;
    let all = String::from_utf8_lossy(&bytes);
    let mut rows = Rows::default();
    let mut result = Ok(());
    // Fragments without commas, lines, or one list: each object stands for itself.
    let mut rest = all.as_ref();
    while let Some(open) = rest.find('{') {
        rest = &rest[open..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let Some(Ok(row)) = stream.next() else {
            let line = 1 + all[..all.len() - rest.len()].matches('\n').count();
            result = Err(ReadError::at(line as u64, "a row is torn or no JSON"));
            break;
        };
        match rows.add(|key| text(&row[key])) {
            Some(()) => reading.source.read += 1,
            None => reading.source.skipped += 1,
        }
        rest = &rest[stream.byte_offset()..];
    }
    rows.0.into_values().for_each(|table| finish(table, "rccl-tests", reading));
    result
}

fn read_csv(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut names: Vec<String> = Vec::new();
    let mut rows = Rows::default();
    while let Some((number, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if number == 1 {
            names = cells.into_iter().map(str::to_owned).collect();
            continue;
        }
        // Builds with MPI wrote one name too few: `numCycle`, before or behind the collective's.
        let missing = usize::from(cells.len() == names.len() + 1);
        let begin = usize::from(cells.first().is_some_and(|cell| Kind::of(cell).is_some()));
        let get = |key: &str| {
            let place = names.iter().position(|name| name == key)?;
            cells.get(if begin <= place { place + missing } else { place }).map(|c| (*c).to_owned())
        };
        match rows.add(get) {
            Some(()) => reading.source.read += 1,
            None if line.trim().is_empty() => {}
            None => reading.source.skipped += 1,
        }
    }
    rows.0.into_values().for_each(|table| finish(table, "rccl-tests", reading));
    Ok(())
}
