//! What a network asks of those who operate it: settings, lines and devices, counted from the files
//! that `advise --write` makes of the scenario as it stands; and beside them what is told of its
//! kind and cannot be computed.
//!
//! Ethernet is told switch by switch and server by server. InfiniBand's switches have their routes
//! and rates from one subnet manager, for which no file is written here: its settings are the keys
//! of `[network]` that are not what the transport begins with.

use std::collections::BTreeSet;

use fabric::hardware::{Buffering, Catalogue, Reorder};
use fabric::routing::Policy;
use fabric::summary::{Summary, TierSummary, back_end_tiers};
use fabric::transport::Transport;
use report::number::grouped;
use report::{Align, Sheet, Table};
use scenario::{Extent, Loaded, Purpose, Request, load};
use serde::Serialize;
use serde_json::Value;

use crate::advise::write::{self, On};
use crate::failure::Failure;

/// What one network asks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operations {
    /// Switches, servers or managers that must be told anything.
    pub devices: u64,
    /// Distinct settings, all files together.
    pub settings: u64,
    /// Lines, on all devices together.
    pub lines: u64,
    /// What they are told.
    pub files: Vec<FileRow>,
    /// Keys of `[network]` that are not what the transport begins with.
    pub set_keys: Vec<String>,
    /// What is told of its kind, with sources.
    pub told: Vec<StatedFact>,
}

/// One kind of file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileRow {
    /// Its name.
    pub name: String,
    /// Devices that have one.
    pub devices: u64,
    /// Distinct settings in it.
    pub settings: u64,
    /// Lines of one.
    pub lines: u64,
}

/// A fact that is told and not computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatedFact {
    /// Of what.
    pub what: &'static str,
    /// The fact.
    pub text: String,
    /// Who tells it.
    pub source: String,
}

/// Makers of boxes and chips, as titles of the catalogue name them.
const MAKERS: [&str; 9] =
    ["Arista", "Broadcom", "Cisco", "H3C", "HPE", "Huawei", "Intel", "Meta", "NVIDIA"];

/// Keys of `[network]` that are a model's and no device's.
const NO_DEVICE: [&str; 7] =
    ["flow", "packet", "limits", "loss", "seed", "scale_up_efficiency", "transport"];

impl Operations {
    /// Of a scenario with its fabric.
    pub fn of(loaded: &Loaded, summary: &Summary) -> Result<Self, Failure> {
        let mut written = loaded.clone();
        written.scenario.network = loaded.network_as_written().clone();
        let transport = written.scenario.network.transport;
        let set_keys = keys(&written)?;
        let mut files = Vec::new();
        for (name, on, text) in write::of_network(&written) {
            let devices = match on {
                On::Switches => summary.switches,
                On::Servers => summary.nodes,
            };
            let (settings, lines) = counted(name, &text);
            if 0 < settings {
                files.push(FileRow { name: name.to_owned(), devices, settings, lines });
            }
        }
        if transport == Transport::Infiniband {
            let settings = set_keys.len() as u64;
            let name = "subnet manager".to_owned();
            files.push(FileRow { name, devices: 1, settings, lines: settings });
        }
        let told_on = |on: On| {
            let own = files.iter().find(|row| write::on(&row.name) == Some(on));
            own.map_or(0, |row| row.devices)
        };
        let (on_switches, on_servers) = (told_on(On::Switches), told_on(On::Servers));
        let managers = u64::from(transport == Transport::Infiniband);
        Ok(Self {
            devices: on_switches + on_servers + managers,
            settings: files.iter().map(|row| row.settings).sum(),
            lines: files.iter().map(|row| row.lines * row.devices).sum(),
            told: told(transport, loaded),
            files,
            set_keys,
        })
    }
}

impl Operations {
    /// Every kind of file: who has one, and how long it is.
    pub(crate) fn files(&self) -> Table {
        let mut table = Table::new([
            ("file", Align::Left),
            ("devices", Align::Right),
            ("settings", Align::Right),
            ("lines of one", Align::Right),
        ]);
        for FileRow { name, devices, settings, lines } in &self.files {
            let counts = [devices, settings, lines].map(|count| grouped(*count));
            table.row(std::iter::once(name.clone()).chain(counts));
        }
        table
    }
}

/// Keys whose values are not what the transport begins with.
fn keys(loaded: &Loaded) -> Result<Vec<String>, Failure> {
    let network = &loaded.scenario.network;
    let set = vec![format!("network.transport=\"{}\"", network.transport.name())];
    let (extent, purpose) = (Extent::Settings, Purpose::Settings);
    let plain = load(&Request { set, extent, purpose, ..Request::default() })?.scenario.network;
    let [own, plain] = [network, &plain].map(|one| serde_json::to_value(one).unwrap_or_default());
    let mut keys = Vec::new();
    differing(&own, &plain, "", &mut keys);
    keys.retain(|key| !NO_DEVICE.iter().any(|table| key.split('.').next() == Some(*table)));
    // What follows from the catalogue's boxes or from another key nobody has to set.
    keys.retain(|key| loaded.is_given(&format!("network.{key}")));
    Ok(keys)
}

fn differing(own: &Value, plain: &Value, path: &str, keys: &mut Vec<String>) {
    match (own, plain) {
        (Value::Object(own), Value::Object(plain)) => {
            for (key, value) in own {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differing(value, plain.get(key).unwrap_or(&Value::Null), &path, keys);
            }
        }
        _ if own != plain => keys.push(path.to_owned()),
        _ => {}
    }
}

/// Distinct settings and lines of a file; remarks are neither.
fn counted(name: &str, text: &str) -> (u64, u64) {
    if name.ends_with(".json") {
        let mut fields: BTreeSet<(String, String)> = BTreeSet::new();
        let json: Value = serde_json::from_str(text).unwrap_or_default();
        for (table, entries) in json.as_object().into_iter().flatten() {
            for entry in entries.as_object().into_iter().flatten().map(|(_, entry)| entry) {
                let own = entry.as_object().into_iter().flatten();
                fields.extend(own.map(|(field, _)| (table.clone(), field.clone())));
            }
        }
        return (fields.len() as u64, text.lines().count() as u64);
    }
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    let sets = |line: &&&str| match name.ends_with(".sh") {
        true => ["mlnx_qos", "echo", "bnxt_setupcc.sh"].iter().any(|word| line.starts_with(word)),
        false => true,
    };
    (lines.iter().filter(sets).count() as u64, lines.len() as u64)
}

fn told(transport: Transport, loaded: &Loaded) -> Vec<StatedFact> {
    let catalogue = &loaded.scenario.catalogue;
    let credits = transport == Transport::Infiniband;
    let isolation = match credits {
        true => StatedFact {
            what: "isolation",
            text: "partitions by P_Key, which the subnet manager gives out".to_owned(),
            source: "NVIDIA, Config Manager: \"InfiniBand PKey Creation\"".to_owned(),
        },
        false => StatedFact {
            what: "isolation",
            text: "VLANs, and routing tables by tenant (VRF) under VXLAN with EVPN".to_owned(),
            source: "Cisco, NX-OS data model: \"VRF\", \"EVPN\"".to_owned(),
        },
    };
    let vendors = match is_spectrum_x(loaded) {
        true => StatedFact {
            what: "vendors",
            text: "NVIDIA alone: its switches and its SuperNICs work together".to_owned(),
            source: "NVIDIA, Spectrum-X (SN5600 and BlueField-3)".to_owned(),
        },
        false => StatedFact {
            what: "vendors",
            text: makers(catalogue, credits).join(", "),
            source: "makers of boxes and chips in the catalogue".to_owned(),
        },
    };
    vec![vendors, isolation, offload(loaded)]
}

/// Whether this is Spectrum-X: NVIDIA's Ethernet switches choose a port for every packet, and its
/// card places what comes out of order.
fn is_spectrum_x(loaded: &Loaded) -> bool {
    let scenario = &loaded.scenario;
    let (network, catalogue) = (&scenario.network, &scenario.catalogue);
    let is_own = |title: Option<&str>| title.is_some_and(|title| title.contains("NVIDIA"));
    let is_own_box = |tier: &TierSummary| {
        let listed = catalogue.switch.get(&tier.model);
        is_own(listed.map(|listed| listed.title.as_str()))
    };
    network.transport == Transport::Rocev2
        && network.settings.routing.policy == Policy::Adaptive
        && network.settings.nic.reorder == Reorder::DirectPlacement
        && is_own(catalogue.nic.get(&scenario.cluster.nic).map(|nic| nic.title.as_str()))
        && back_end_tiers(loaded.fabric()).iter().all(is_own_box)
}

/// Who makes a switch of the catalogue that holds packets by credits, or otherwise.
pub(crate) fn makers(catalogue: &Catalogue, credits: bool) -> Vec<&'static str> {
    let boxes = catalogue.switch.values();
    let own: Vec<_> = boxes.filter(|b| (b.buffering == Buffering::Credits) == credits).collect();
    let names = |maker: &&str| {
        own.iter().any(|b| [&b.title, &b.chip].iter().any(|text| text.contains(*maker)))
    };
    MAKERS.into_iter().filter(|maker| names(maker)).collect()
}

/// Which of the fabric's boxes add up messages.
fn offload(loaded: &Loaded) -> StatedFact {
    let (catalogue, fabric) = (&loaded.scenario.catalogue, loaded.fabric());
    let models: BTreeSet<&str> = fabric.tiers().iter().map(|tier| tier.model.as_str()).collect();
    let (mut words, mut sources) = (Vec::new(), Vec::new());
    for model in models {
        let Some(listed) = catalogue.switch.get(model) else { continue };
        match &listed.reduction {
            Some(told) => {
                words.push(format!("{model}: reduction"));
                sources.push(told.source.clone());
            }
            None => words.push(format!("{model}: none told")),
        }
    }
    let source = if sources.is_empty() { "the catalogue".to_owned() } else { sources.join("; ") };
    StatedFact { what: "offload by box", text: words.join("; "), source }
}

/// What the columns ask, as a table.
pub(crate) fn show(sheet: Sheet, names: &[String], columns: &[Operations]) -> Sheet {
    if columns.is_empty() {
        return sheet;
    }
    let mut heads = vec![("", Align::Left)];
    heads.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let mut table = Table::new(heads).turning();
    let mut row = |name: &str, of: fn(&Operations) -> u64| {
        let cells = columns.iter().map(|one| grouped(of(one)));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("devices to configure", |one| one.devices);
    row("settings", |one| one.settings);
    row("lines, on all devices", |one| one.lines);
    row("keys that differ from the transport's", |one| one.set_keys.len() as u64);
    let mut told = Table::new([
        ("told, not computed", Align::Left),
        ("of", Align::Left),
        ("fact", Align::Left),
        ("source", Align::Left),
    ]);
    let all = names.iter().zip(columns);
    for (name, StatedFact { what, text, source }) in
        all.flat_map(|(name, one)| one.told.iter().map(move |fact| (name, fact)))
    {
        told.row([(*what).to_owned(), name.clone(), text.clone(), source.clone()]);
    }
    sheet
        .heading("What it asks of operators")
        .text(
            "Counted from the files that `advise --write` makes of each scenario as it is written \
             (SONiC's tables on every switch, commands for the NICs and NCCL's variables on every \
             server), whatever the engine obeys; InfiniBand's switches have theirs from one \
             subnet manager, whose settings are the keys that differ.",
        )
        .table(table)
        .table(told)
}
