//! The fabric and the server as they are: LLDP tables, and the distance of GPUs and NICs.

use memchr::memmem::find;
use serde_json::Value;

use crate::format::{Format, Reading};
use crate::input::{Input, Trouble};
use crate::observed::{Neighbour, Quote};
use crate::records::whole;

/// `show lldp table` of SONiC, `show lldp neighbors` of NX-OS.
pub const LLDP_TABLE: Format = Format {
    name: "LLDP table",
    unit: "neighbours",
    recognises: |input| {
        let head = input.head();
        find(head, b"RemotePortID").is_some()
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
        let nvidia = text.lines().any(|line| line.contains("GPU0\t") && line.contains("Affinity"));
        nvidia || text.contains("Link Type between two GPUs")
    },
    read: matrix,
};

fn push(reading: &mut Reading<'_>, neighbour: Neighbour) {
    reading.source.read += 1;
    reading.observed.neighbours.push(neighbour);
}

fn table(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), Trouble> {
    // Where each column begins, by its name; and the beginning of a line that was wrapped.
    let mut begins: Vec<usize> = Vec::new();
    let mut is_nxos = false;
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
        if begins.len() < 5 || is_rule || line.trim().is_empty() || line.starts_with("Total") {
            continue;
        }
        let cell = |at: usize| {
            let end = begins.get(at + 1).copied().unwrap_or(line.len()).min(line.len());
            line.get(begins[at].min(end)..end).map_or("", str::trim).to_owned()
        };
        if is_nxos && cell(1).is_empty() {
            line.trim().clone_into(&mut wrapped);
            continue;
        }
        let name = match std::mem::take(&mut wrapped) {
            name if name.is_empty() => cell(usize::from(!is_nxos)),
            name => name,
        };
        let (local, port) = if is_nxos { (cell(1), cell(4)) } else { (cell(0), cell(2)) };
        let description = if is_nxos { String::new() } else { cell(4) };
        let system = name;
        push(reading, Neighbour { local, system, port, description, ..Neighbour::default() });
    }
    Ok(())
}

fn list(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), Trouble> {
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

fn json(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), Trouble> {
    let bytes = whole(input)?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Trouble::at(error.line() as u64, error.to_string()))?;
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

fn matrix(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), Trouble> {
    let mut head: Vec<String> = Vec::new();
    let mut gpus = 0;
    let mut nics: Vec<String> = Vec::new();
    while let Some((number, line)) = input.next_line()? {
        let line = plain(&String::from_utf8_lossy(line));
        let cells: Vec<String> = match line.contains('\t') {
            true => line.split('\t').map(|cell| cell.trim().to_owned()).collect(),
            false => line.split_whitespace().map(str::to_owned).collect(),
        };
        if head.is_empty() && cells.iter().any(|cell| cell == "GPU0") {
            let start = cells.iter().position(|cell| cell == "GPU0").unwrap_or(0);
            head = cells[start..].to_vec();
            continue;
        }
        let first = cells.first().map_or("", String::as_str);
        if first.starts_with("GPU") && head.contains(&first.to_owned()) {
            reading.source.read += 1;
            gpus += 1;
            near(&head, &cells[1..], number, first, reading);
        } else if let Some((name, device)) = line.trim().split_once(": ")
            && name.starts_with("NIC")
        {
            reading.source.read += 1;
            nics.push(device.trim().to_owned());
        } else {
            reading.source.skipped += u64::from(!line.trim().is_empty());
        }
    }
    let host = reading.source.file.clone();
    let host = reading.observed.cluster.hosts.entry(host).or_default();
    host.benchmark_gpus.extend((0..gpus).map(|gpu: u32| format!("GPU{gpu}")));
    host.is_certain = true;
    for (index, name) in nics.into_iter().enumerate() {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        host.nics.push(crate::observed::Nic { index, name, ..Default::default() });
    }
    Ok(())
}

/// Whether a GPU has a NIC at its own PCIe switch.
fn near(head: &[String], cells: &[String], line: u64, gpu: &str, reading: &mut Reading<'_>) {
    let to = head.iter().zip(cells).filter(|(name, _)| name.starts_with("NIC"));
    let distances: Vec<&str> = to.map(|(_, distance)| distance.as_str()).collect();
    let is_near = |distance: &&str| ["PIX", "PXB"].contains(distance);
    if distances.is_empty() || distances.iter().any(is_near) {
        return;
    }
    let file = reading.source.file.clone();
    let say = || Quote::new(&file, line, &format!("{gpu}: {}", distances.join(" ")));
    reading.observed.evidence.add("gpu without a near NIC", say);
}
