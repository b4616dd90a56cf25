//! Prometheus text: `name{label="value"} number [milliseconds]`, and OpenMetrics, where times are
//! seconds.

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};

/// What exporters serve.
pub const FORMAT: Format = Format { name: "Prometheus text", unit: "samples", recognises, read };

/// Labels that name the host.
const HOST: [&str; 4] = ["instance", "Hostname", "node", "host"];
/// Labels that say nothing of what is counted.
const IDLE: [&str; 6] =
    ["UUID", "job", "DCGM_FI_DRIVER_VERSION", "modelName", "pci_bus_id", "mode"];

fn recognises(input: &Input<'_>) -> bool {
    let text = input.head_text();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next() else { return false };
    if first.starts_with("# HELP ") || first.starts_with("# TYPE ") {
        return true;
    }
    let all: Vec<&str> = lines.take(8).chain([first]).filter(|l| !l.starts_with('#')).collect();
    !all.is_empty() && all.iter().all(|line| line.contains('{') && parse(line).is_some())
}

/// Labels with their values, as they are written.
pub type Labels<'a> = Vec<(&'a str, &'a str)>;

/// Name, labels and value of a line; none if it is no sample.
pub fn parse(line: &str) -> Option<(&str, Labels<'_>, f64)> {
    sample(line).map(|(name, labels, value, _)| (name, labels, value))
}

/// Milliseconds since 1970 are more than this, seconds are fewer.
const MILLISECONDS: f64 = 1e11;

/// The same, and the time in seconds since 1970 where there is one.
fn sample(line: &str) -> Option<(&str, Labels<'_>, f64, Option<f64>)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let mut labels = Vec::new();
    let mut rest = rest;
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, after) = rest.split_once("=\"")?;
            let end = closing(after)?;
            labels.push((label, &after[..end]));
            rest = &after[end + 1..];
        }
    }
    let mut words = rest.split_whitespace();
    let value = words.next()?.parse().ok()?;
    let time = words.next().and_then(|word| word.parse().ok());
    let time = time.filter(|time: &f64| time.is_finite() && 0.0 < *time);
    let seconds = time.map(|time| if MILLISECONDS < time { time / 1e3 } else { time });
    Some((name, labels, value, seconds))
}

/// Where a label's value ends: a quote without a backslash before it.
fn closing(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
    None
}

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    while let Some((number, line)) = input.next_line()? {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let Some((name, labels, value, time_s)) = sample(text) else {
            reading.source.skipped += 1;
            reading.problem(number, "is no sample of Prometheus");
            continue;
        };
        let host = labels.iter().find(|(label, _)| HOST.contains(label)).map_or("", |(_, h)| h);
        let rest = labels.iter().filter(|(label, value)| {
            !HOST.contains(label) && !IDLE.contains(label) && !value.is_empty()
        });
        let device: Vec<&str> = rest.map(|(_, value)| *value).collect();
        let before = reading.observed.counters.len();
        super::add(reading, &device.join(":"), name, value, number);
        if let Some(sample) = reading.observed.counters.get_mut(before) {
            host.clone_into(&mut sample.host);
            sample.time_s = time_s;
        }
    }
    Ok(())
}
