//! `presets`: what can I start from?

use report::{Align, Answer, Sheet, Table};
use scenario::{Extent, Problems, Request, load, preset};
use serde::Serialize;

use crate::Failure;

/// What can be listed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Whole scenarios.
    Preset,
    /// Accelerators.
    Gpu,
    /// Network cards.
    Nic,
    /// Switch boxes.
    Switch,
    /// Cables and optics.
    Cable,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Preset, Self::Gpu, Self::Nic, Self::Switch, Self::Cable];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preset => "preset",
            Self::Gpu => "gpu",
            Self::Nic => "nic",
            Self::Switch => "switch",
            Self::Cable => "cable",
        }
    }
}

/// What there is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Presets {
    /// What was asked for: `preset`, `gpu`, …
    pub kind: &'static str,
    /// The entries.
    pub entries: Vec<Entry>,
}

/// One thing to start from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The name to use in a scenario.
    pub name: String,
    /// The name for people.
    pub title: String,
    /// What it is.
    pub description: String,
}

/// Lists presets or hardware. The request says whose catalogue.
pub fn run(kind: Kind, request: &Request) -> Result<Presets, Failure> {
    let entries = match kind {
        Kind::Preset => scenarios()?,
        _ => hardware(kind, request)?,
    };
    Ok(Presets { kind: kind.name(), entries })
}

fn scenarios() -> Result<Vec<Entry>, Problems> {
    preset::names()
        .map(|name| {
            let scenario = Some(name.to_owned());
            let request = Request { scenario, extent: Extent::Settings, ..Request::default() };
            let scenario = load(&request)?.scenario;
            let (title, description) = (scenario.name, scenario.description);
            Ok(Entry { name: name.to_owned(), title, description })
        })
        .collect()
}

fn hardware(kind: Kind, request: &Request) -> Result<Vec<Entry>, Problems> {
    let request = Request { extent: Extent::Settings, ..request.clone() };
    let catalogue = load(&request)?.scenario.catalogue;
    let entry = |name: &String, title: &String, description: String| Entry {
        name: name.clone(),
        title: title.clone(),
        description,
    };
    Ok(match kind {
        Kind::Preset => Vec::new(),
        Kind::Gpu => {
            let about = |gpu: &fabric::hardware::Gpu| {
                let (flops, memory) = (gpu.bf16_tflops.value, gpu.memory_gb.value);
                let (rate, name) = (gpu.scale_up_gbytes_s.value, &gpu.scale_up_name);
                format!("{flops} TFLOP/s bf16, {memory} GB, {name} {rate} GB/s each way")
            };
            catalogue.gpu.iter().map(|(name, gpu)| entry(name, &gpu.title, about(gpu))).collect()
        }
        Kind::Nic => {
            let about = |nic: &fabric::hardware::Nic| {
                format!("{} Gb/s on {} ports", nic.rate_gbps.value, nic.ports)
            };
            catalogue.nic.iter().map(|(name, nic)| entry(name, &nic.title, about(nic))).collect()
        }
        Kind::Switch => {
            let about = |switch: &fabric::hardware::Switch| {
                let (ports, rate) = (switch.ports, switch.port_gbps.value);
                format!("{ports} × {rate} Gb/s, {} MB buffer", switch.buffer_mb.value)
            };
            let entries = catalogue.switch.iter();
            entries.map(|(name, switch)| entry(name, &switch.title, about(switch))).collect()
        }
        Kind::Cable => {
            let about = |cable: &fabric::hardware::Cable| {
                format!("{} Gb/s, up to {} m", cable.rate_gbps.value, cable.reach_m.value)
            };
            let entries = catalogue.cable.iter();
            entries.map(|(name, cable)| entry(name, &cable.title, about(cable))).collect()
        }
    })
}

impl Answer for Presets {
    fn sheet(&self) -> Sheet {
        let columns = [(self.kind, Align::Left), ("name", Align::Left), ("what", Align::Left)];
        let mut table = Table::new(columns);
        for Entry { name, title, description } in &self.entries {
            table.row([name, title, description]);
        }
        Sheet::new().table(table)
    }
}
