//! What `ibnetdiscover` prints: an InfiniBand subnet as its manager sees it.
//!
//! Blocks of a switch or channel adapter, each with its ports and what they lead to. A cable stands
//! in the blocks of both its ends and is taken once. An adapter's description begins with the name
//! of its server. Adapters of the aggregation nodes inside switches (SHARP) are left out: they are
//! no hosts. Line formats: infiniband-diags, `ibnetdiscover.c` (`out_switch`, `out_ca`).

use std::collections::{BTreeMap, BTreeSet};

use fabric::topology::{EdgeConfig, GraphConfig, SwitchConfig};
use units::{Budget, Rate};

use super::{LineError, by_server};

/// A switch or adapter.
#[derive(Clone, Debug)]
struct Device {
    is_switch: bool,
    description: String,
    model: Option<&'static str>,
}

/// A port of a device, by the device's GUID as printed and the port's number.
type Port = (String, u32);

/// What is read so far.
#[derive(Debug, Default)]
struct Subnet {
    devices: BTreeMap<String, Device>,
    /// GUIDs in the order in which they were first met.
    order: Vec<String>,
    /// Cables with the lower end first.
    cables: BTreeMap<(Port, Port), Option<Rate>>,
    device_id: Option<u32>,
    /// Far ends that are reductions in switches: they may have no block of their own.
    aggregations: BTreeSet<String>,
}

pub(crate) fn read(text: &str, budget: &mut Budget) -> Result<GraphConfig, LineError> {
    let mut subnet = Subnet::default();
    let mut current: Option<String> = None;
    let mut lines_of: BTreeMap<String, usize> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())) {
        let word = line.split_whitespace().next().unwrap_or_default();
        let wrong = |reason: String| (number, reason);
        match word {
            "Switch" | "Ca" | "Rt" => {
                let (guid, device) = device(line, &subnet, word == "Switch").map_err(wrong)?;
                if lines_of.insert(guid.clone(), number).is_some() {
                    return Err(wrong(format!("\"{guid}\" is there twice")));
                }
                subnet.order.push(guid.clone());
                subnet.devices.insert(guid.clone(), device);
                current = Some(guid);
                subnet.device_id = None;
            }
            _ if word.starts_with('[') => {
                let Some(guid) = &current else {
                    return Err(wrong("a port before any switch or adapter".to_owned()));
                };
                let (near, far, rate) = port(line).map_err(wrong)?;
                if line.contains("Aggregation Node") {
                    subnet.aggregations.insert(far.0.clone());
                }
                let ends = ((guid.clone(), near), far);
                let ends = if ends.0 <= ends.1 { ends } else { (ends.1, ends.0) };
                budget.spend_items(1).map_err(|over| wrong(over.to_string()))?;
                let known = subnet.cables.entry(ends).or_insert(rate);
                *known = known.or(rate);
            }
            "" => current = None,
            _ if word.starts_with("devid=") => {
                let id = word.trim_start_matches("devid=").trim_start_matches("0x");
                subnet.device_id = u32::from_str_radix(id, 16).ok();
            }
            // GUIDs, chassis and comments say nothing that is needed.
            _ => {}
        }
    }
    subnet.graph(&lines_of)
}

/// `Switch 40 "S-0c42…" # "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 3 lmc 0`
fn device(line: &str, subnet: &Subnet, is_switch: bool) -> Result<(String, Device), String> {
    let (guid, rest) = quoted(line).ok_or("the GUID in quotes is missing".to_owned())?;
    let description = quoted(rest).map_or("", |(description, _)| description);
    let model = match subnet.device_id.filter(|_| is_switch) {
        // PCI device ids of the switch chips, from memory.
        Some(0xcf08) => Some("sb7800"),
        Some(0xd2f0) => Some("quantum-1"),
        Some(0xd2f2) => Some("quantum-2"),
        Some(0xd2f4) => Some("quantum-3"),
        _ => None,
    };
    Ok((guid.to_owned(), Device { is_switch, description: description.to_owned(), model }))
}

/// `[1](guid) "S-0c42…"[17](guid) # "description" lid 3 4xHDR`
fn port(line: &str) -> Result<(u32, Port, Option<Rate>), String> {
    let near = bracketed(line).ok_or("the port's number in brackets is missing".to_owned())?;
    let (guid, rest) = quoted(line).ok_or("the far end in quotes is missing".to_owned())?;
    let far = bracketed(rest).ok_or("the far port's number is missing".to_owned())?;
    let rate = line.split_whitespace().rev().find_map(rate);
    Ok((near, (guid.to_owned(), far), rate))
}

/// `4xHDR`: lanes times the rate of a lane, in data bits.
fn rate(word: &str) -> Option<Rate> {
    let (lanes, speed) = word.split_once('x')?;
    let lanes: u64 = lanes.parse().ok().filter(|lanes| [1, 2, 4, 8, 12].contains(lanes))?;
    // Signalling rates by generation (IBTA): 8b/10b up to QDR, 64b/66b from FDR on.
    let mbps = match speed {
        "SDR" => 2_000,
        "DDR" => 4_000,
        "QDR" => 8_000,
        "FDR10" => 10_000,
        "FDR" => 13_640,
        "EDR" => 25_000,
        "HDR" => 50_000,
        "NDR" => 100_000,
        "XDR" => 200_000,
        _ => return None,
    };
    Some(Rate::from_bps(lanes * mbps * 1_000_000))
}

fn quoted(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once('"')?;
    rest.split_once('"')
}

fn bracketed(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']')?.0.parse().ok()
}

impl Subnet {
    fn graph(self, lines_of: &BTreeMap<String, usize>) -> Result<GraphConfig, LineError> {
        let names = self.names();
        let is_aggregation = |device: &Device| device.description.contains("Aggregation Node");
        let mut edges = Vec::new();
        for ((a, b), rate) in &self.cables {
            let device = |guid: &String| self.devices.get(guid);
            let (Some(one), Some(other)) = (device(&a.0), device(&b.0)) else {
                if self.aggregations.contains(&a.0) || self.aggregations.contains(&b.0) {
                    continue;
                }
                let (known, lost) = if device(&a.0).is_some() { (a, b) } else { (b, a) };
                let line = lines_of.get(&known.0).copied().unwrap_or(0);
                return Err((line, format!("\"{}\" has no block of its own: truncated?", lost.0)));
            };
            if is_aggregation(one) || is_aggregation(other) {
                continue;
            }
            edges.push(EdgeConfig {
                a: names[&a.0].clone(),
                b: names[&b.0].clone(),
                rate: *rate,
                ..EdgeConfig::default()
            });
        }
        let adapters = self.order.iter().filter(|guid| {
            let device = &self.devices[*guid];
            !device.is_switch && !is_aggregation(device)
        });
        let mut adapters: Vec<&String> = adapters.collect();
        // Servers by name, as people number them; their adapters likewise.
        adapters.sort_by_key(|guid| natural(&self.devices[*guid].description));
        let (endpoints, nics_per_node) = by_server(
            adapters
                .into_iter()
                .map(|guid| {
                    let description = &self.devices[guid].description;
                    let server = description.split_whitespace().next().unwrap_or(guid);
                    (server.to_owned(), names[guid].clone())
                })
                .collect(),
        );
        let switches = self.order.iter().filter(|guid| self.devices[*guid].is_switch);
        let switches = switches
            .map(|guid| SwitchConfig {
                name: names[guid].clone(),
                model: self.devices[guid].model.map(str::to_owned),
            })
            .collect();
        Ok(GraphConfig { endpoints, nics_per_node, switches, edges })
    }

    /// What each device is called: its description without the vendor's ornaments, or its GUID
    /// where that is empty or another device's too.
    fn names(&self) -> BTreeMap<String, String> {
        let plain = |guid: &String| -> String {
            let description = &self.devices[guid].description;
            let bare = description.strip_prefix("MF0;").unwrap_or(description);
            match bare.rsplit_once(':') {
                Some((name, _)) if self.devices[guid].is_switch => name.to_owned(),
                _ => bare.to_owned(),
            }
        };
        let mut seen = BTreeSet::new();
        let mut twice = BTreeSet::new();
        for guid in &self.order {
            let name = plain(guid);
            if !seen.insert(name.clone()) {
                twice.insert(name);
            }
        }
        let name = |guid: &String| match plain(guid) {
            name if name.is_empty() || twice.contains(&name) => guid.clone(),
            name => name,
        };
        self.order.iter().map(|guid| (guid.clone(), name(guid))).collect()
    }
}

/// A key that puts `node2` before `node10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            key.push((u64::MAX, rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            key.push((rest[..digits].parse().unwrap_or(u64::MAX - 1), String::new()));
            rest = &rest[digits..];
        }
    }
    key
}
