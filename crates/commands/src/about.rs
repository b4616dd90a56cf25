//! What an answer is about: cluster, fabric, transport, job, engine, seed, version, and the command
//! that makes it again.
//!
//! A terminal shows it in a few lines below the heading, a page as a table with the scenario to
//! copy, JSON as an object. It has no date: the same question gives the same bytes. The command
//! line writes the day above a page.

use fabric::summary::{TierSummary, back_end_tiers};
use fabric::topology::GENERIC_SWITCH;
use report::number::{bits_per_second, grouped, significant};
use report::{Align, Sheet, Table};
use scenario::Loaded;
use scenario::file::ScenarioFile;
use serde::Serialize;
use serde_json::Map;
use units::Rate;

use crate::VERSION;
use crate::run_job::job_words;

/// What an answer is about. Empty texts do not apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    /// The scenario's name.
    pub name: String,
    /// GPUs and servers.
    pub cluster: String,
    /// GPUs of the cluster.
    pub gpus: u64,
    /// The topology and its tiers.
    pub fabric: String,
    /// Of each tier with uplinks, from the bottom up, as people write it: `2:1`.
    pub oversubscription: String,
    /// The back-end NIC.
    pub nic: String,
    /// The switches, from the bottom up.
    pub switch: String,
    /// What stands in for switches that the scenario does not name; empty where all are named.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub assumed: String,
    /// What a file has left to the preset that it starts from, where it sizes its own cluster or
    /// job.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub inherited: String,
    /// How packets are carried.
    pub transport: String,
    /// How paths are chosen.
    pub routing: String,
    /// Queue pairs of a connection.
    pub queue_pairs: u32,
    /// The congestion control; only packets have one.
    pub congestion_control: String,
    /// The model.
    pub model: String,
    /// How it is cut, and its batch.
    pub layout: String,
    /// What computed the network; empty where nothing did.
    pub engine: String,
    /// The seed.
    pub seed: u64,
    /// The version of fatflow.
    pub version: String,
    /// The command that makes it again; empty where none does.
    pub command: String,
}

impl About {
    /// Of a scenario that an engine may have answered for.
    pub fn of(loaded: &Loaded, engine: Option<&str>, command: &str) -> Self {
        let scenario = &loaded.scenario;
        // Where no engine has run, paths were not asked for: told is what was written.
        let network =
            if engine.is_some() { &scenario.network } else { loaded.network_as_written() };
        let (cluster, routing) = (&scenario.cluster, &network.settings.routing);
        let fabric = loaded.fabric();
        let tiers = back_end_tiers(fabric);
        let mut models: Vec<&str> = tiers.iter().map(|tier| tier.model.as_str()).collect();
        models.dedup();
        let mut switches: Vec<String> = tiers.iter().map(|tier| box_of(loaded, tier)).collect();
        switches.dedup();
        let rates: f64 =
            fabric.ports(fabric.nic(0)).iter().map(|l| fabric.class(*l).rate.as_bps_f64()).sum();
        let names: Vec<&str> = tiers.iter().map(|tier| tier.name.as_str()).collect();
        // The highest tier has nothing above it.
        let below = tiers.len().saturating_sub(1);
        let ratios: Vec<String> = tiers.iter().take(below).map(oversubscription).collect();
        let (gpus, servers) = (fabric.gpus() as u64, fabric.servers() as u64);
        let words = loaded.job.as_ref().map(job_words).unwrap_or_default();
        let (model, layout) = words.split_once(", ").unwrap_or((&words, ""));
        Self {
            name: loaded.title(),
            cluster: format!(
                "{} GPUs, {} servers of {} {}",
                grouped(gpus),
                grouped(servers),
                fabric.gpus_per_node(),
                cluster.gpu
            ),
            gpus,
            fabric: format!("{}: {}", scenario.fabric.topology.name(), names.join(", ")),
            oversubscription: match ratios.is_empty() {
                true => "1:1".to_owned(),
                false => ratios.join(", "),
            },
            nic: format!("{} at {}", cluster.nic, bits_per_second(rates)),
            switch: switches.join(", "),
            assumed: assumed(&models),
            inherited: loaded.inherited().unwrap_or_default(),
            transport: scenario.network.transport.name().to_owned(),
            routing: routing.policy.name().to_owned(),
            queue_pairs: u32::from(routing.qps),
            congestion_control: match engine {
                // What an engine does not obey was put back to its default: its name would mislead.
                Some("flow") if crate::engine::steps_control(loaded) => "dcqcn, as a fluid",
                Some("flow") => "ideal (max-min fair)",
                Some("analytic") | None => "not modelled",
                Some(_) => scenario.network.settings.congestion.name(),
            }
            .to_owned(),
            model: model.to_owned(),
            layout: layout.to_owned(),
            engine: engine.unwrap_or_default().to_owned(),
            seed: scenario.seed,
            version: VERSION.to_owned(),
            command: command.to_owned(),
        }
    }

    /// A few lines for a terminal. What the answer tells itself is left out.
    pub fn words(&self, sheet: &Sheet) -> String {
        let pairs = if self.queue_pairs == 1 { "queue pair" } else { "queue pairs" };
        let mut words = format!(
            "{}; {}, oversubscription {}; {}; {}; {}, {}, {} {pairs}, congestion control {}",
            self.cluster,
            self.fabric,
            self.oversubscription,
            self.nic,
            self.switch,
            self.transport,
            self.routing,
            self.queue_pairs,
            self.congestion_control,
        );
        let is_told = |part: &report::Part| match part {
            report::Part::Text(text) => {
                text.starts_with(&format!("{}, {}", self.model, self.layout))
            }
            _ => false,
        };
        if !self.model.is_empty() && !sheet.parts.iter().any(is_told) {
            words += &format!("; {}, {}", self.model, self.layout);
        }
        words += &format!("; seed {}, fatflow {}.", self.seed, self.version);
        if !self.assumed.is_empty() {
            words += &format!(" {}.", self.assumed);
        }
        if !self.inherited.is_empty() {
            words += &format!(" Inherited from {}.", self.inherited);
        }
        words
    }

    /// What it says, each with what it is.
    fn rows(&self) -> [(&'static str, String); 18] {
        let (pairs, seed) = (self.queue_pairs.to_string(), self.seed.to_string());
        [
            ("scenario", &self.name),
            ("cluster", &self.cluster),
            ("fabric", &self.fabric),
            ("oversubscription, from the bottom up", &self.oversubscription),
            ("NIC", &self.nic),
            ("switches", &self.switch),
            ("assumed", &self.assumed),
            ("inherited from", &self.inherited),
            ("transport", &self.transport),
            ("routing", &self.routing),
            ("queue pairs of a connection", &pairs),
            ("congestion control", &self.congestion_control),
            ("model", &self.model),
            ("layout and batch", &self.layout),
            ("engine", &self.engine),
            ("seed", &seed),
            ("fatflow", &self.version),
            ("made again by", &self.command),
        ]
        .map(|(name, value)| (name, value.clone()))
    }

    /// The same as a table, for a page.
    pub fn table(&self) -> Table {
        let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
        for (name, value) in self.rows().into_iter().filter(|(_, value)| !value.is_empty()) {
            table.row([name, &value]);
        }
        table
    }

    /// Several side by side, under their names, as a table for a page.
    pub fn side_by_side(names: &[String], all: &[Self]) -> Table {
        let heads = names.iter().map(|name| (name.as_str(), Align::Left));
        let mut table = Table::new(std::iter::once(("", Align::Left)).chain(heads));
        let columns: Vec<_> = all.iter().map(Self::rows).collect();
        for at in 0..columns.first().map_or(0, |rows| rows.len()) {
            let cells: Vec<String> = columns.iter().map(|rows| rows[at].1.clone()).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                table.row(std::iter::once(columns[0][at].0.to_owned()).chain(cells));
            }
        }
        table
    }

    /// What is the same in all of several, in a few words; nothing where that is not even the
    /// cluster's seed.
    pub fn shared(all: &[Self]) -> String {
        let columns: Vec<_> = all.iter().map(Self::rows).collect();
        let Some((first, others)) = columns.split_first() else { return String::new() };
        let is_said = |(name, value): &(&str, String)| {
            // The heading has the engine, and a name says nothing.
            !value.is_empty() && !["scenario", "engine"].contains(name)
        };
        let same = first
            .iter()
            .enumerate()
            .filter(|(at, row)| is_said(row) && others.iter().all(|other| other[*at].1 == row.1));
        let words: Vec<String> = same.map(|(_, (name, value))| written(name, value)).collect();
        words.join("; ")
    }
}

/// A tier's oversubscription as people write it, and as it was built where whole cables make that
/// another: `2:1 (built 1.6:1)`.
pub fn oversubscription(tier: &TierSummary) -> String {
    let asked = format!("{}:1", significant(tier.oversubscription));
    match built_otherwise(tier) {
        true => format!("{asked} (built {}:1)", significant(tier.oversubscription_built)),
        false => asked,
    }
}

/// Whether whole cables and boxes make a tier's oversubscription another than the one asked for.
pub fn built_otherwise(tier: &TierSummary) -> bool {
    0.01 < (tier.oversubscription_built / tier.oversubscription - 1.0).abs()
}

/// A tier's box, and how many of its ports `fabric.radix` lets it use.
fn box_of(loaded: &Loaded, tier: &TierSummary) -> String {
    let ScenarioFile { fabric, catalogue, .. } = &loaded.scenario;
    let listed = catalogue.switch.get(&tier.model);
    let ports = listed.map(|listed| listed.ports_at(Rate::from_bps_f64(tier.rate_bps)));
    let used = fabric.radix.map(u64::from).filter(|_| fabric.parts.is_empty());
    match (used, ports) {
        (Some(used), Some(all)) if used < all => {
            format!("{} with {used} of its {all} ports (radix)", tier.model)
        }
        _ => tier.model.clone(),
    }
}

/// Of a switch that is no product, what its figures are.
fn assumed(models: &[&str]) -> String {
    match models.iter().find(|model| **model == GENERIC_SWITCH) {
        Some(model) => format!(
            "{model} is no product: its ports, latency, buffer, power and price are illustrative \
             (fabric.leaf.switch names another)"
        ),
        None => String::new(),
    }
}

/// A part of what an answer is about, in words: bare where it says itself what it is.
fn written(name: &str, value: &str) -> String {
    match name {
        "cluster" | "fabric" | "NIC" | "switches" | "assumed" | "transport" | "model"
        | "layout and batch" => value.to_owned(),
        "oversubscription, from the bottom up" => format!("oversubscription {value}"),
        "queue pairs of a connection" if value == "1" => "1 queue pair".to_owned(),
        "queue pairs of a connection" => format!("{value} queue pairs"),
        name => format!("{name} {value}"),
    }
}

/// The scenario as one file that gives the same answer: what presets, files, the environment and
/// flags have set together.
pub fn scenario_file(loaded: &Loaded) -> String {
    let serde_json::Value::Object(given) = loaded.given() else { return String::new() };
    let (tables, keys): (Map<_, _>, Map<_, _>) =
        given.into_iter().partition(|(_, value)| is_table(value));
    let text = |map: &Map<_, _>| toml::to_string(map).expect("what TOML gave, TOML can hold");
    format!("{}\n{}", text(&keys), text(&tables))
}

fn is_table(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Array(items) => items.iter().any(serde_json::Value::is_object),
        value => value.is_object(),
    }
}
