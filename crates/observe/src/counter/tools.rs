//! What tools of a server print: `ethtool -S`, `rdma statistic`, `perfquery`, sysfs in a `ttar`.

use memchr::memmem::find;
use serde_json::{Map, Value};

use super::{add, number};
use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::records::whole;

/// `ethtool -S`.
pub const ETHTOOL: Format = Format {
    name: "ethtool statistics",
    unit: "counters",
    recognises: |input| find(input.head(), b"NIC statistics:").is_some(),
    read: ethtool,
};
/// `rdma statistic`, also with `-j`.
pub const RDMA: Format = Format {
    name: "rdma statistics",
    unit: "counters",
    recognises: |input| {
        let text = input.head_text();
        if text.trim_start().starts_with('[') {
            return text.contains("\"ifname\"") && text.contains("\"port\"");
        }
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let words: Vec<&str> = first.split_whitespace().take(4).collect();
        matches!(words[..], ["link", device, _, value]
            if device.contains('/') && value.parse::<u64>().is_ok())
    },
    read: rdma,
};
/// `perfquery`.
pub const PERFQUERY: Format = Format {
    name: "perfquery output",
    unit: "counters",
    recognises: |input| {
        let head = input.head();
        find(head, b"PortSelect:.").is_some() && find(head, b"CounterSelect:.").is_some()
    },
    read: perfquery,
};
/// `/sys/class/infiniband` in one text.
pub const SYSFS: Format = Format {
    name: "sysfs counters (ttar)",
    unit: "counters",
    recognises: |input| {
        let head = input.head();
        find(head, b"# ttar - ").is_some() && find(head, b"Path: ").is_some()
    },
    read: sysfs,
};

fn ethtool(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut device = String::new();
    while let Some((line_number, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        // Whoever collects several puts the name of each before it.
        if !line.starts_with(' ') && !line.contains("NIC statistics") && !line.trim().is_empty() {
            let last = line.trim().trim_end_matches(':').split_whitespace().last();
            device = last.unwrap_or_default().to_owned();
            continue;
        }
        let Some((name, value)) = line.trim().rsplit_once(':') else { continue };
        match number(value) {
            Some(value) => add(reading, &device, name.trim(), value, line_number),
            None if name.trim() == "NIC statistics" => {}
            None => reading.source.skipped += 1,
        }
    }
    Ok(())
}

fn rdma(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    if input.head().trim_ascii_start().starts_with(b"[") {
        return rdma_json(input, reading);
    }
    while let Some((line_number, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        let mut words = line.split_whitespace();
        if words.next() != Some("link") {
            reading.source.skipped += u64::from(!line.trim().is_empty());
            continue;
        }
        let device = words.next().unwrap_or_default().to_owned();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            match number(value) {
                Some(value) => add(reading, &device, name, value, line_number),
                None => reading.problem(line_number, &format!("`{name} {value}` is no counter")),
            }
        }
    }
    Ok(())
}

/// A list of links, each an object: who it is, and counters.
fn rdma_json(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let bytes = whole(input)?;
    let links: Vec<Map<String, Value>> = serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::at(error.line() as u64, error.to_string()))?;
    for link in links {
        let name = link.get("ifname").and_then(Value::as_str).unwrap_or_default();
        let port = link.get("port").and_then(Value::as_u64);
        let device = port.map_or(name.to_owned(), |port| format!("{name}/{port}"));
        let counters = link.iter().filter(|(key, _)| !["ifindex", "port"].contains(&key.as_str()));
        for (key, value) in counters.filter_map(|(key, value)| Some((key, value.as_f64()?))) {
            add(reading, &device, key, value, 0);
        }
    }
    Ok(())
}

fn perfquery(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut device = String::new();
    while let Some((line_number, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        if let Some((_, rest)) = line.split_once("counters: ") {
            let words: Vec<&str> = rest.split_whitespace().take(4).collect();
            device = words.join(" ");
            continue;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        let Some(value) = number(value.trim_start_matches('.')) else {
            reading.source.skipped += 1;
            continue;
        };
        if name.ends_with("Select") || name.ends_with("Select2") {
            continue;
        }
        add(reading, &device, name, value, line_number);
        // Words of four bytes.
        if name == "PortXmitData" || name == "PortRcvData" {
            add(reading, &device, &format!("{name} in bytes"), 4.0 * value, line_number);
        }
    }
    Ok(())
}

fn sysfs(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut path = String::new();
    while let Some((line_number, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        if let Some(next) = line.strip_prefix("Path: ") {
            path = next.trim().to_owned();
            continue;
        }
        let Some((_, below)) = path.split_once("class/infiniband/") else { continue };
        let parts: Vec<&str> = below.split('/').collect();
        let [device, "ports", port, kind @ ("counters" | "hw_counters"), name] = parts[..] else {
            continue;
        };
        // How long values are kept is no counter.
        if name == "lifespan" || line.starts_with("Lines:") || line.starts_with("Mode:") {
            continue;
        }
        let Some(value) = number(&line) else { continue };
        let device = format!("{device}:{port}");
        add(reading, &device, name, value, line_number);
        if kind == "counters" && (name == "port_xmit_data" || name == "port_rcv_data") {
            add(reading, &device, &format!("{name} in bytes"), 4.0 * value, line_number);
        }
        path.clear();
    }
    Ok(())
}
