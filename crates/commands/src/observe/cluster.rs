//! A scenario of the cluster that files show: its servers, its fabric, its network.
//!
//! Servers come from matrices (`nvidia-smi topo -m`, `rocm-smi --showtopo`) and logs, the fabric
//! from `ibnetdiscover`, Slurm or LLDP tables, the transport and queue pairs from logs. Every line
//! says where it comes from; what no file says is the preset's default, and is named.
//!
//! An LLDP table says what its own device is joined to, but not that device's name: the file must
//! be called by it (`leaf-3.txt`). Management ports are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ::observe::observed::{Host, Links, Neighbour};
use ::observe::summary::real_hosts;
use report::{Align, Sheet, Table};
use serde::Serialize;

use super::Report;
use crate::failure::Failure;
use crate::files::save_text;

/// A scenario that was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Made {
    /// The file.
    pub file: String,
    /// What was set, and by which files.
    pub settings: Vec<Setting>,
    /// What no file says: the defaults hold.
    pub not_said: Vec<String>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// Its value, as a scenario writes it.
    pub value: String,
    /// What says so.
    pub from: String,
}

/// Names of GPUs in files, and the catalogue's; the more special ones first.
const GPUS: [(&str, &str); 16] = [
    ("GB300", "gb300"),
    ("GB200", "gb200"),
    ("B300", "b300"),
    ("B200", "b200"),
    ("H200", "h200-sxm"),
    ("H800", "h800"),
    ("H100", "h100-sxm"),
    ("A800", "a800-80g"),
    ("A100-SXM-80GB", "a100-80g"),
    ("A100-SXM4-80GB", "a100-80g"),
    ("A100", "a100-40g"),
    ("V100", "v100-32g"),
    ("MI355X", "mi355x"),
    ("MI325X", "mi325x"),
    ("MI300X", "mi300x"),
    ("MI300", "mi300x"),
];

/// Writes the scenario of what was observed.
pub fn write(report: &Report, out: &Path) -> Result<Made, Failure> {
    let mut made = Made { file: out.display().to_string(), ..Made::default() };
    let hosts = real_hosts(&report.observed);
    servers(report, &hosts, &mut made);
    fabric(report, out, &mut made)?;
    network(report, &mut made);
    if made.settings.is_empty() {
        let reason = "the files say nothing of servers, cables or the network: a scenario is made \
                      of nvidia-smi topo -m, rocm-smi --showtopo, logs of NCCL, ibnetdiscover, \
                      Slurm's topology.conf and LLDP tables";
        return Err(Failure::Run(reason.to_owned()));
    }
    save_text(out, &made.text(report))?;
    Ok(made)
}

impl Made {
    fn set(&mut self, key: &'static str, value: impl ToString, from: &str) {
        let (value, from) = (value.to_string(), from.to_owned());
        self.settings.push(Setting { key, value, from });
    }

    fn text(&self, report: &Report) -> String {
        let mut text = String::from("# Made by `fatflow observe --write` of:\n");
        for source in report.summary.sources.iter().filter(|source| source.is_read()) {
            let name = source.file.replace(|letter: char| letter.is_control(), " ");
            text += &format!("#   {name} ({})\n", source.kind);
        }
        for what in &self.not_said {
            text += &format!("# Not in the files: {what}.\n");
        }
        text += "\nname = \"A cluster as its files show it\"\n";
        for Setting { key, value, from } in &self.settings {
            text += &format!("# {}\n{key} = {value}\n", from.replace('\n', " "));
        }
        text
    }

    /// Adds it to a sheet.
    pub(super) fn show(&self, sheet: Sheet) -> Sheet {
        let mut table =
            Table::new([("setting", Align::Left), ("value", Align::Left), ("from", Align::Left)]);
        for Setting { key, value, from } in &self.settings {
            table.row([(*key).to_owned(), value.clone(), from.clone()]);
        }
        let sheet = sheet.heading(format!("Written: {}", self.file)).table(table);
        self.not_said
            .iter()
            .fold(sheet, |sheet, what| sheet.note(format!("not in the files: {what}")))
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// What a server is made of.
fn servers(report: &Report, hosts: &BTreeMap<&str, &Host>, made: &mut Made) {
    let cluster = &report.summary.cluster;
    let gpu = GPUS.iter().find(|(name, _)| cluster.gpus.iter().any(|gpu| gpu.contains(name)));
    match gpu {
        Some((name, gpu)) => made.set("cluster.gpu", quoted(gpu), &format!("files say {name}")),
        None => made.not_said.push("which GPU it is (cluster.gpu)".to_owned()),
    }
    if let Some(gpus) = cluster.gpus_per_node {
        made.set("cluster.gpus_per_node", gpus, "the most GPUs that one server shows");
    }
    let matrix = hosts.iter().find(|(_, host)| !host.nics.is_empty() && host.scale_up.is_some());
    if let Some((file, host)) = matrix {
        made.set("cluster.nics_per_node", host.nics.len(), file);
        if let Some(affinity) = affinity(host) {
            made.set("cluster.nic_affinity", affinity, &format!("{file}: the nearest NICs"));
        }
    } else if let Some(used) = cluster.nics_per_node {
        made.set("cluster.nics_per_node", used, "NICs that connections of a server go through");
    } else {
        made.not_said.push("how many NICs a server has (cluster.nics_per_node)".to_owned());
    }
    if let Some((file, links)) = hosts.iter().find_map(|(file, host)| Some((file, host.scale_up?)))
    {
        let kind = match links {
            Links::NvSwitch(_) => "switched",
            Links::NvLink(_) | Links::Xgmi => "mesh",
            Links::Pcie => "pcie",
        };
        made.set("cluster.scale_up.kind", quoted(kind), &format!("{file}: {links:?}"));
    }
    let speeds = hosts.values().flat_map(|host| &host.nics).filter_map(|nic| nic.speed_mbps);
    match speeds.min() {
        Some(mbps) => {
            let rate = quoted(&format!("{}Gbps", mbps as f64 / 1e3));
            made.set("cluster.nic_rate", rate, "the slowest NIC that the library lists");
        }
        None => made.not_said.push("the rate of NICs (cluster.nic_rate)".to_owned()),
    }
}

/// For each GPU its NICs, each NIC to the GPUs in turn where several share it.
fn affinity(host: &Host) -> Option<String> {
    if host.near_nics.is_empty() {
        return None;
    }
    let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
    let mut each = Vec::new();
    for near in &host.near_nics {
        let least = near.iter().copied().min_by_key(|nic| taken.get(nic).copied().unwrap_or(0))?;
        *taken.entry(least).or_default() += 1;
        each.push(least.to_string());
    }
    // A NIC that is nobody's would carry nothing.
    let all = (0..host.nics.len() as u32).all(|nic| taken.contains_key(&nic));
    all.then(|| format!("[{}]", each.join(", ")))
}

/// How the servers are joined.
fn fabric(report: &Report, out: &Path, made: &mut Made) -> Result<(), Failure> {
    let packed = report.observed.fabrics.iter().filter(|file| file.path.is_none());
    for file in packed {
        made.not_said.push(format!("{} is packed: a scenario reads it unpacked", file.file));
    }
    let known = report.observed.fabrics.iter().find_map(|file| Some((file, file.path.clone()?)));
    if let Some((file, path)) = known {
        made.set("fabric.topology", quoted("file"), &file.file);
        let path = std::path::absolute(&path).map_or(path, |path| path.display().to_string());
        made.set(
            "fabric.file",
            quoted(&path),
            &format!("{}, {} switches", file.kind, file.switches),
        );
        return Ok(());
    }
    let cables = cables(&report.observed.neighbours);
    if cables.is_empty() {
        if let Some(nodes) = report.summary.cluster.nodes {
            made.set("cluster.nodes", nodes, "servers that logs or benchmarks name");
        }
        made.not_said.push("how the servers are joined (fabric): the default topology".to_owned());
        return Ok(());
    }
    let table = out.with_extension("cables.csv");
    save_text(&table, &csv(&cables))?;
    let name = table.file_name().map(|name| name.to_string_lossy().into_owned());
    made.set("fabric.topology", quoted("file"), "LLDP");
    let from = format!("{} cables of LLDP tables, written beside this file", cables.len());
    made.set("fabric.file", quoted(&name.unwrap_or_default()), &from);
    Ok(())
}

/// One end of a cable: its device, its port, and whether that is a switch's.
type End = (String, String, bool);

/// All cables of LLDP tables, each once.
fn cables(neighbours: &[Neighbour]) -> BTreeSet<(End, End)> {
    let own = |file: &str| {
        let name = file.rsplit(['/', '!']).next().unwrap_or(file);
        name.split('.').next().unwrap_or(name).to_owned()
    };
    let plain = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    let mut cables = BTreeSet::new();
    for other in neighbours.iter().filter(|other| !other.file.is_empty()) {
        let far = if other.system.is_empty() { &other.chassis } else { &other.system };
        // Some put the name of the port into its description, and an address into the number.
        let is_address = |text: &str| text.matches(':').count() == 5;
        let said = !other.description.is_empty() && is_address(&other.port);
        let port = if said { &other.description } else { &other.port };
        let is_management = |port: &str| {
            let port = port.to_ascii_lowercase();
            port.starts_with("mgmt") || port.starts_with("management")
        };
        let near_is_switch = is_switch_port(&other.local);
        if is_management(&other.local)
            || is_management(port)
            || (other.local == "eth0" && !near_is_switch && is_switch_table(neighbours, other))
            || far.is_empty()
        {
            continue;
        }
        let ends = [
            (own(&other.file), other.local.clone(), near_is_switch),
            (plain(far), port.clone(), is_switch_port(port)),
        ];
        let [a, b] = ends;
        cables.insert(if a <= b { (a, b) } else { (b, a) });
    }
    cables
}

/// Whether the other rows of a row's table are ports of a switch.
fn is_switch_table(neighbours: &[Neighbour], row: &Neighbour) -> bool {
    let same = neighbours.iter().filter(|other| other.file == row.file);
    same.clone().any(|other| is_switch_port(&other.local))
}

/// Whether a port is called as switches call theirs.
fn is_switch_port(port: &str) -> bool {
    let lower = port.to_ascii_lowercase();
    let begins = ["ethernet", "swp", "hundredgig", "fourhundredgig", "gigabit"];
    let short = ["gi", "te", "fo", "hu", "et-", "xe-", "eth"];
    let has_slot = lower.contains('/');
    begins.iter().any(|begin| lower.starts_with(begin))
        || (has_slot && short.iter().any(|begin| lower.starts_with(begin)))
}

fn csv(cables: &BTreeSet<(End, End)>) -> String {
    let mut text = String::from("a,a_kind,b,b_kind\n");
    let end = |(device, port, is_switch): &End| match is_switch {
        true => format!("{},switch", field(device)),
        // NICs of one server share what stands before the slash.
        false => format!("{},nic", field(&format!("{device}/{}", port.replace('/', "-")))),
    };
    for (a, b) in cables {
        text += &format!("{},{}\n", end(a), end(b));
    }
    text
}

/// A field of a CSV file, in quotes where it needs them (RFC 4180).
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r', '#']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// What carries the messages.
fn network(report: &Report, made: &mut Made) {
    let cluster = &report.summary.cluster;
    let transport = match cluster.transport.as_deref() {
        Some("RoCE") => Some("rocev2"),
        Some("InfiniBand") => Some("infiniband"),
        Some("sockets") => Some("tcp"),
        _ if cluster.nics.iter().any(|nic| nic.name.contains("roce")) => Some("rocev2"),
        _ if report.observed.fabrics.iter().any(|file| file.kind == "ibnetdiscover") => {
            Some("infiniband")
        }
        _ => None,
    };
    match transport {
        Some(transport) => {
            made.set("network.transport", quoted(transport), "what connections go through");
        }
        None => made.not_said.push("the transport (network.transport)".to_owned()),
    }
    let setting = cluster.environment.get("NCCL_IB_QPS_PER_CONNECTION");
    let pairs = setting.and_then(|values| values.first()?.parse::<u32>().ok());
    if let Some(pairs) = pairs.filter(|pairs| (1..=128).contains(pairs)) {
        made.set("network.routing.qps", pairs, "NCCL_IB_QPS_PER_CONNECTION");
    }
}
