//! The fabric and the server as they are: LLDP tables, and the distance of GPUs and NICs.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem::find;
use serde_json::Value;

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{Links, Neighbour, Quote};
use crate::records::whole;

/// `show lldp table` of SONiC, `show lldp neighbors` of NX-OS and EOS.
pub const LLDP_TABLE: Format = Format {
    name: "LLDP table",
    unit: "neighbours",
    recognises: |input| {
        let head = input.head();
        find(head, b"RemotePortID").is_some()
            || find(head, b"Neighbor Port ID").is_some()
            || find(head, b"Device ID").is_some() && find(head, b"Local Intf").is_some()
    },
    read: table,
};
/// `lldpctl` as text.
pub const LLDP_LIST: Format = Format {
    name: "LLDP neighbours",
    unit: "neighbours",
    recognises: |input| find(input.head(), b"LLDP neighbors:").is_some(),
    read: list,
};
/// `lldpctl -f keyvalue`.
pub const LLDP_KEYS: Format = Format {
    name: "LLDP neighbours as keys",
    unit: "neighbours",
    recognises: |input| {
        let text = input.head_text();
        text.lines().any(|line| line.starts_with("lldp.") && line.contains(".chassis."))
    },
    read: keys,
};
/// `lldpctl -f json` and `-f json0`.
pub const LLDP_JSON: Format = Format {
    name: "LLDP neighbours as JSON",
    unit: "neighbours",
    recognises: |input| {
        let head = input.head();
        head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
            && find(head, b"\"lldp\"").is_some()
    },
    read: json,
};
/// `nvidia-smi topo -m` and `rocm-smi --showtopo`.
pub const SMI: Format = Format {
    name: "matrix of GPUs and NICs",
    unit: "rows",
    recognises: |input| {
        let text = input.head_text();
        let nvidia = text.lines().any(|line| line.contains("GPU0") && line.contains("Affinity"));
        nvidia || text.contains("between two GPUs")
    },
    read: matrix,
};

fn push(reading: &mut Reading<'_>, mut neighbour: Neighbour) {
    reading.source.read += 1;
    neighbour.file.clone_from(&reading.source.file);
    reading.observed.neighbours.push(neighbour);
}

fn table(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    // Where each column begins, by its name; and the beginning of a line that was wrapped.
    let mut begins: Vec<usize> = Vec::new();
    let (mut is_nxos, mut is_eos) = (false, false);
    let mut wrapped = String::new();
    while let Some((_, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        let names = match () {
            () if line.contains("RemotePortID") => {
                ["LocalPort", "RemoteDevice", "RemotePortID", "Capability", "RemotePortDescr"]
            }
            () if line.contains("Local Intf") => {
                is_nxos = true;
                ["Device ID", "Local Intf", "Hold-time", "Capability", "Port ID"]
            }
            () => [""; 5],
        };
        if !names[0].is_empty() {
            begins = names.iter().filter_map(|name| line.find(name)).collect();
            continue;
        }
        let is_rule = line.trim_start().starts_with("---");
        if line.contains("Neighbor Port ID") {
            is_eos = true;
            continue;
        }
        if is_eos {
            let words: Vec<&str> = line.split_whitespace().collect();
            // The last word is the time to live; a rule has none.
            if let [local, system @ .., port, ttl] = &words[..]
                && ttl.parse::<u32>().is_ok()
            {
                let (local, port) = ((*local).to_owned(), (*port).to_owned());
                let system = system.join(" ");
                push(reading, Neighbour { local, system, port, ..Neighbour::default() });
            }
            continue;
        }
        if begins.len() < 5 || is_rule || line.trim().is_empty() || line.starts_with("Total") {
            continue;
        }
        let cell = |at: usize| {
            let end = begins.get(at + 1).copied().unwrap_or(line.len()).min(line.len());
            line.get(begins[at].min(end)..end).map_or("", str::trim).to_owned()
        };
        if is_nxos {
            // Long names push the columns to the right, or the rest to the next line.
            match by_hold_time(&line) {
                Some((name, local, port)) => {
                    let name = if name.is_empty() { std::mem::take(&mut wrapped) } else { name };
                    wrapped.clear();
                    push(reading, Neighbour { local, system: name, port, ..Neighbour::default() });
                }
                None => line.trim().clone_into(&mut wrapped),
            }
            continue;
        }
        let (local, system, port, description) = (cell(0), cell(1), cell(2), cell(4));
        push(reading, Neighbour { local, system, port, description, ..Neighbour::default() });
    }
    Ok(())
}

/// Name, port and the other's port of a row `NAME PORT SECONDS [CAPABILITIES] ITS PORT`, found from
/// the seconds; the name may stand on the line before.
fn by_hold_time(line: &str) -> Option<(String, String, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let hold = words.iter().skip(1).position(is_number)? + 1;
    let capability = |word: &&&str| word.bytes().all(|byte| b"RBTCWPSO,".contains(&byte));
    let behind = &words[hold + 1..];
    let skipped = usize::from(1 < behind.len() && behind.first().as_ref().is_some_and(capability));
    let port = behind[skipped..].join(" ");
    let name = words[..hold - 1].join(" ");
    (!port.is_empty()).then(|| (name, words[hold - 1].to_owned(), port))
}

fn list(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut current: Option<Neighbour> = None;
    while let Some((_, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        let Some((name, value)) = line.trim().split_once(':') else { continue };
        let value = value.trim();
        if name == "Interface" {
            if let Some(done) = current.take() {
                push(reading, done);
            }
            let local = value.split(',').next().unwrap_or(value).to_owned();
            current = Some(Neighbour { local, ..Neighbour::default() });
            continue;
        }
        let Some(neighbour) = &mut current else { continue };
        let id = || value.split_once(' ').map_or(value, |(_, id)| id).to_owned();
        match name {
            "ChassisID" => neighbour.chassis = id(),
            "SysName" => value.clone_into(&mut neighbour.system),
            "PortID" => neighbour.port = id(),
            "PortDescr" => value.clone_into(&mut neighbour.description),
            _ => {}
        }
    }
    if let Some(done) = current {
        push(reading, done);
    }
    Ok(())
}

/// `lldp.PORT.chassis.name=NAME`: ports may have dots.
fn keys(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut found: BTreeMap<String, Neighbour> = BTreeMap::new();
    while let Some((_, line)) = input.next_line()? {
        let line = String::from_utf8_lossy(line).into_owned();
        let Some((key, value)) = line.trim().split_once('=') else { continue };
        let Some(key) = key.strip_prefix("lldp.") else { continue };
        let about = |part: &str| key.find(part).map(|at| (&key[..at], &key[at + part.len()..]));
        let Some((local, name)) = about(".chassis.").or_else(|| about(".port.")) else { continue };
        let neighbour = found.entry(local.to_owned()).or_default();
        local.clone_into(&mut neighbour.local);
        match (name, key.contains(".chassis.")) {
            ("name", true) => value.clone_into(&mut neighbour.system),
            ("mac" | "ifname" | "local", true) => value.clone_into(&mut neighbour.chassis),
            ("ifname" | "mac" | "local", false) => value.clone_into(&mut neighbour.port),
            ("descr", false) => value.clone_into(&mut neighbour.description),
            _ => {}
        }
    }
    found.into_values().for_each(|neighbour| push(reading, neighbour));
    Ok(())
}

/// One or many: an object, or a list of objects.
fn each(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Null => Vec::new(),
        one => vec![one],
    }
}

/// A text, or the `value` of it.
fn said(value: &Value) -> String {
    let first = each(value).first().copied().unwrap_or(&Value::Null);
    let text = first.as_str().or_else(|| first["value"].as_str());
    text.unwrap_or_default().to_owned()
}

fn json(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let bytes = whole(input)?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::at(error.line() as u64, error.to_string()))?;
    for lldp in each(&value["lldp"]) {
        for interfaces in each(&lldp["interface"]) {
            match interfaces.get("name").map(said).filter(|name| !name.is_empty()) {
                Some(name) => push(reading, interface(name, interfaces)),
                None => interfaces.as_object().into_iter().flatten().for_each(|(name, inside)| {
                    push(reading, interface(name.clone(), inside));
                }),
            }
        }
    }
    Ok(())
}

fn interface(local: String, value: &Value) -> Neighbour {
    let chassis = each(&value["chassis"]).first().copied().unwrap_or(&Value::Null);
    // `-f json` puts the name where the object is.
    let named = chassis.as_object().filter(|all| all.len() == 1).and_then(|all| all.iter().next());
    let (system, about) = match named {
        Some((name, inside)) if inside.is_object() => (name.clone(), inside),
        _ => (said(&chassis["name"]), chassis),
    };
    let port = each(&value["port"]).first().copied().unwrap_or(&Value::Null);
    let (id, description) = (said(&port["id"]), said(&port["descr"]));
    let chassis = said(&about["id"]);
    Neighbour { local, chassis, port: id, description, system, ..Neighbour::default() }
}

/// Without the escapes of terminals.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                letters.by_ref().find(char::is_ascii_alphabetic);
            }
            letter => text.push(letter),
        }
    }
    text
}

/// Columns of a matrix that are neither GPUs nor NICs.
const OTHER_COLUMNS: [&str; 6] = ["CPU", "Affinity", "NUMA", "GPU", "ID", "N/A"];

fn matrix(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut head: Vec<String> = Vec::new();
    let mut gpus: BTreeSet<String> = BTreeSet::new();
    let mut nics: BTreeMap<String, String> = BTreeMap::new();
    let mut links: BTreeSet<String> = BTreeSet::new();
    let mut near_nics: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    while let Some((number, line)) = input.next_line()? {
        let line = plain(&String::from_utf8_lossy(line));
        let cells: Vec<String> = match line.contains('\t') {
            true => line.split('\t').map(|cell| cell.trim().to_owned()).collect(),
            false => line.split_whitespace().map(str::to_owned).collect(),
        };
        if let Some(start) = cells.iter().position(|cell| cell == "GPU0")
            && (start != 0 || cells.get(1).is_some_and(|cell| cell == "GPU1"))
        {
            head = cells[start..].to_vec();
            let is_other = |name: &str| {
                name.is_empty()
                    || name.starts_with("GPU")
                    || OTHER_COLUMNS.iter().any(|other| name.starts_with(other))
            };
            for name in head.iter().filter(|name| !is_other(name)) {
                nics.entry(name.clone()).or_insert_with(|| name.clone());
            }
            continue;
        }
        let first = cells.first().map_or("", String::as_str);
        if first.starts_with("GPU") && head.contains(&first.to_owned()) {
            reading.source.read += 1;
            let distances = near(&head, &cells[1..], &nics, number, first, reading);
            near_nics.extend(first[3..].parse().ok().map(|gpu: usize| (gpu, distances)));
            let to_gpus = head.iter().zip(&cells[1..]).filter(|(name, _)| name.starts_with("GPU"));
            links.extend(to_gpus.map(|(_, link)| link.clone()));
            gpus.insert(first.to_owned());
        } else if let Some((name, device)) = line.trim().split_once(": ")
            && nics.contains_key(name.trim())
        {
            reading.source.read += 1;
            nics.insert(name.trim().to_owned(), device.trim().to_owned());
        } else {
            reading.source.skipped += u64::from(!line.trim().is_empty());
        }
    }
    let host = reading.source.file.clone();
    let host = reading.observed.cluster.hosts.entry(host).or_default();
    let count = gpus.len();
    host.benchmark_gpus.extend(gpus);
    host.is_certain = true;
    host.scale_up = scale_up(&links);
    host.near_nics = near_nics.into_values().filter(|near| !near.is_empty()).collect();
    if host.near_nics.len() != count {
        host.near_nics.clear();
    }
    for (index, name) in numbered(&nics).into_iter().enumerate() {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let name = nics[&name].clone();
        host.nics.push(crate::observed::Nic { index, name, ..Default::default() });
    }
    Ok(())
}

/// Names of columns in the order of their numbers: `NIC2` before `NIC10`.
fn numbered(nics: &BTreeMap<String, String>) -> Vec<String> {
    let mut names: Vec<String> = nics.keys().cloned().collect();
    names.sort_by_key(|name| {
        let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        (digits.parse::<u64>().unwrap_or(u64::MAX), name.clone())
    });
    names
}

/// How GPUs reach each other, by the words of the matrix between them.
fn scale_up(links: &BTreeSet<String>) -> Option<Links> {
    let nvlinks = links.iter().filter_map(|link| link.strip_prefix("NV")?.parse::<u32>().ok());
    let most = nvlinks.max();
    let is_far = |link: &String| ["PIX", "PXB", "PHB", "NODE", "SYS"].contains(&link.as_str());
    match most {
        // Eighteen, twelve and six are all links of a GPU: they end at switches.
        Some(count @ (6 | 12 | 18)) if !links.iter().any(is_far) => Some(Links::NvSwitch(count)),
        Some(count) => Some(Links::NvLink(count)),
        None if links.contains("XGMI") => Some(Links::Xgmi),
        None if links.iter().any(is_far) || links.contains("PCIE") => Some(Links::Pcie),
        None => None,
    }
}

/// The NICs nearest to a GPU, by their numbers; and whether there is one at its own PCIe switch.
fn near(
    head: &[String],
    cells: &[String],
    nics: &BTreeMap<String, String>,
    line: u64,
    gpu: &str,
    reading: &mut Reading<'_>,
) -> Vec<u32> {
    const NEARNESS: [&str; 5] = ["PIX", "PXB", "PHB", "NODE", "SYS"];
    let to = head.iter().zip(cells).filter(|(name, _)| nics.contains_key(*name));
    let to: Vec<(&String, &str)> = to.map(|(name, distance)| (name, distance.as_str())).collect();
    let place = |distance: &str| NEARNESS.iter().position(|known| *known == distance);
    let nearest = to.iter().filter_map(|(_, distance)| place(distance)).min();
    if nearest.is_some_and(|nearest| 1 < nearest) {
        let file = reading.source.file.clone();
        let words: Vec<&str> = to.iter().map(|(_, distance)| *distance).collect();
        let say = || Quote::new(&file, line, &format!("{gpu}: {}", words.join(" ")));
        reading.observed.evidence.add("gpu without a near NIC", say);
    }
    let order = numbered(nics);
    let number = |name: &String| order.iter().position(|known| known == name);
    let near = to.iter().filter(|(_, distance)| nearest.is_some() && place(distance) == nearest);
    near.filter_map(|(name, _)| u32::try_from(number(name)?).ok()).collect()
}
