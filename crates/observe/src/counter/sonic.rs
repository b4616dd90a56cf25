//! SONiC's counters: tables of `show`, and its database as JSON.

use std::collections::BTreeMap;

use memchr::memmem::find;
use serde_json::Value;

use super::{add, number};
use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::Quote;
use crate::records::whole;

/// Tables of `show interfaces counters`, `show pfc counters`, `show queue watermark` and their
/// like: a line of names, a line of dashes, a line for each port.
pub const TABLES: Format =
    Format { name: "SONiC show table", unit: "counters", recognises: is_table, read: read_tables };
/// `COUNTERS_DB`, gNMI answers, `show queue counters --json`.
pub const JSON: Format = Format {
    name: "SONiC counters as JSON",
    unit: "counters",
    recognises: |input| {
        let head = input.head();
        let first = head.iter().find(|byte| !byte.is_ascii_whitespace());
        let says = |word: &str| find(head, word.as_bytes()).is_some();
        let known = ["\"SAI_", "\"PFC_WD_", "\"totalpacket\"", "\"Ethernet0:0\""];
        matches!(first, Some(b'{' | b'[')) && known.iter().any(|word| says(word))
    },
    read: read_json,
};

fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.contains("---") && line.bytes().all(|byte| byte == b'-' || byte == b' ')
}

fn is_table(input: &Input<'_>) -> bool {
    let text = input.head_text();
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(3).any(|three| {
        let begins = ["Port", "IFACE", "QUEUE", "Pool", "Queue", "TC"];
        let is_head = begins.iter().any(|word| three[0].trim_start().starts_with(word));
        is_head && is_rule(three[1]) && three[1].trim().contains("  ")
    })
}

/// The columns of a table, by its line of dashes.
fn columns(rule: &str) -> Vec<(usize, usize)> {
    let mut columns = Vec::new();
    let mut start = None;
    for (at, byte) in rule.bytes().chain([b' ']).enumerate() {
        match (byte, start) {
            (b'-', None) => start = Some(at),
            (b' ', Some(begin)) => {
                columns.push((begin, at));
                start = None;
            }
            _ => {}
        }
    }
    columns
}

/// A column's text; a cell may be wider than its dashes on the left.
fn cell(line: &str, (begin, end): (usize, usize)) -> &str {
    line.get(begin..end.min(line.len())).map_or("", str::trim)
}

fn read_tables(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut before = String::new();
    let mut title = String::new();
    let mut head: Vec<String> = Vec::new();
    let mut places: Vec<(usize, usize)> = Vec::new();
    while let Some((line_number, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        if is_rule(&line) {
            places = columns(&line);
            head = places.iter().map(|place| cell(&before, *place).to_owned()).collect();
            continue;
        }
        if line.trim().is_empty() {
            places.clear();
        } else if line.trim_end().ends_with(':') && !line.starts_with("For namespace") {
            line.trim().trim_end_matches(':').clone_into(&mut title);
        }
        if places.len() < 2 {
            before = line;
            continue;
        }
        let mut port = cell(&line, places[0]).to_owned();
        // A second column that names a part of the port.
        if ["Priority", "TxQ", "Queue", "PG"].contains(&head[1].as_str()) {
            port += &format!("|{}", cell(&line, places[1]));
        }
        let port = port.as_str();
        for (name, place) in head.iter().zip(&places).skip(1) {
            row(port, name, cell(&line, *place), (&head[0], &title), line_number, reading);
        }
    }
    Ok(())
}

/// One cell: a number, two with a stroke between them, or a word.
fn row(
    port: &str,
    column: &str,
    text: &str,
    (first, title): (&str, &str),
    line: u64,
    reading: &mut Reading<'_>,
) {
    // `Port Rx` and `Port Tx` have the same columns.
    let side = first.strip_prefix("Port").map_or("", str::trim);
    let name = match (side, title) {
        ("", "") => column.to_owned(),
        ("", title) => format!("{title}: {column}"),
        (side, _) => format!("{side} {column}"),
    };
    let plain = text.split_whitespace().next().unwrap_or_default();
    let plain = plain.trim_end_matches("/s").trim_end_matches('%');
    if text.contains("stormed") {
        let file = reading.source.file.clone();
        let say = || Quote::new(&file, line, &format!("{port} {column}: {text}"));
        reading.observed.evidence.add("stormed", say);
        reading.source.read += 1;
    } else if let Some(value) = number(plain) {
        let factor = match text.split_whitespace().nth(1) {
            Some("KB/s") => 1e3,
            Some("MB/s") => 1e6,
            Some("GB/s") => 1e9,
            _ => 1.0,
        };
        add(reading, port, &name, factor * value, line);
    } else if let Some((one, two)) = plain.split_once('/')
        && let (Some(one), Some(two)) = (number(one), number(two))
    {
        add(reading, port, &format!("{name} (first)"), one, line);
        add(reading, port, &format!("{name} (second)"), two, line);
    } else {
        reading.source.skipped += u64::from(!text.is_empty());
    }
}

fn read_json(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let bytes = whole(input)?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::at(error.line() as u64, error.to_string()))?;
    // What gNMI answers for one port is its counters alone; clients put messages around them.
    let is_bare = |(_, inside): (&String, &Value)| !inside.is_object();
    if value.is_array() || value.as_object().is_some_and(|all| all.iter().all(is_bare)) {
        leaves("", &value, reading);
        return Ok(());
    }
    let all = value.as_object().into_iter().flatten();
    // A dump of the database has maps from names to numbers beside the counters.
    let is_dump = all.clone().any(|(key, _)| key.starts_with("COUNTERS:"));
    let maps = all.clone().filter(|(key, _)| key.ends_with("_NAME_MAP"));
    let names = maps.flat_map(|(_, map)| map.as_object().into_iter().flatten());
    let names: BTreeMap<&str, &str> =
        names.filter_map(|(name, oid)| Some((oid.as_str()?, name.as_str()))).collect();
    for (device, inside) in all.filter(|(key, _)| !is_dump || key.starts_with("COUNTERS:")) {
        let device = device.trim_start_matches("COUNTERS:");
        let device = names.get(device).copied().unwrap_or(device);
        // A key is something that was read, also if nothing is in it.
        if inside.as_object().is_some_and(serde_json::Map::is_empty) {
            reading.source.read += 1;
        }
        leaves(device, inside, reading);
    }
    Ok(())
}

/// Names in messages of gNMI's clients that are no part of a port's name.
const ENVELOPE: [&str; 4] = ["updates", "values", "COUNTERS", "timestamp"];

fn leaves(device: &str, value: &Value, reading: &mut Reading<'_>) {
    for inside in value.as_array().into_iter().flatten() {
        leaves(device, inside, reading);
    }
    for (name, inside) in value.as_object().into_iter().flatten() {
        let name = name.trim_start_matches("COUNTERS/");
        let is_envelope = ENVELOPE.contains(&name);
        match inside {
            Value::Object(_) | Value::Array(_) if is_envelope => leaves(device, inside, reading),
            Value::Object(_) | Value::Array(_) if device.is_empty() => {
                leaves(name, inside, reading)
            }
            Value::Object(_) => leaves(&format!("{device}|{name}"), inside, reading),
            _ if is_envelope => reading.source.skipped += 1,
            Value::String(text) => match number(text) {
                Some(value) => add(reading, device, name, value, 0),
                None => reading.source.skipped += 1,
            },
            Value::Number(value) => {
                add(reading, device, name, value.as_f64().unwrap_or(f64::NAN), 0);
            }
            _ => reading.source.skipped += 1,
        }
    }
}
