//! `presets`: what can I start from, and what may I write?
//!
//! Presets and hardware come from the catalogue; everything else that has names comes from the
//! schema of the scenario file, so that this list cannot lag behind the code.

use fabric::hardware::{Cable, Catalogue, Gpu, Nic, Switch};
use job::model::presets as models;
use report::number::{grouped, significant};
use report::{Align, Answer, Sheet, Table};
use scenario::file::Reported;
use scenario::{Extent, Problem, Problems, Request, load, preset};
use serde::Serialize;

use crate::Failure;

/// What can be listed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kind {
    /// Its name on the command line and in JSON.
    pub name: &'static str,
    contents: Contents,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Contents {
    Presets,
    Gpus,
    Nics,
    Switches,
    Cables,
    Models,
    /// The words that this key of a scenario may be set to.
    Words(&'static str),
}

impl Kind {
    /// All kinds.
    pub const ALL: &'static [Self] = &[
        Self::new("preset", Contents::Presets),
        Self::new("gpu", Contents::Gpus),
        Self::new("nic", Contents::Nics),
        Self::new("switch", Contents::Switches),
        Self::new("cable", Contents::Cables),
        Self::new("model", Contents::Models),
        Self::new("topology", Contents::Words("fabric.topology")),
        Self::new("transport", Contents::Words("network.transport")),
        Self::new("routing", Contents::Words("network.routing.policy")),
        Self::new("congestion", Contents::Words("network.congestion")),
        Self::new("pattern", Contents::Words("traffic.pattern")),
        Self::new("collective", Contents::Words("traffic.collective")),
        Self::new("schedule", Contents::Words("job.schedule")),
        Self::new("sharding", Contents::Words("job.parallel.sharding")),
        Self::new("fault", Contents::Words("faults.what")),
    ];

    /// The kind of this name, in the singular or the plural; no preset has one.
    pub fn named(name: &str) -> Option<Self> {
        let is_it = |kind: &&Self| name == kind.name || name.strip_suffix("s") == Some(kind.name);
        let kinds = Self::ALL.iter().find(is_it).copied();
        kinds.or_else(|| (name == "switches").then(|| Self::named("switch")).flatten())
    }

    /// Whole scenarios.
    pub const PRESETS: Self = Self::new("preset", Contents::Presets);

    const fn new(name: &'static str, contents: Contents) -> Self {
        Self { name, contents }
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

/// Lists presets, hardware or words. The request says whose catalogue.
pub fn run(kind: Kind, request: &Request) -> Result<Presets, Failure> {
    let entries = match kind.contents {
        Contents::Presets => scenarios()?,
        Contents::Models => models(),
        Contents::Words(path) => words(path),
        _ => hardware(kind.contents, &settings(request)?.catalogue),
    };
    Ok(Presets { kind: kind.name, entries })
}

fn settings(request: &Request) -> Result<scenario::ScenarioFile, Problems> {
    Ok(load(&Request { extent: Extent::Settings, ..request.clone() })?.scenario)
}

fn scenarios() -> Result<Vec<Entry>, Problems> {
    let entry = |name: &str| {
        let request = Request { scenario: Some(name.to_owned()), ..Request::default() };
        let scenario = settings(&request)?;
        let (title, description) = (scenario.name, scenario.description);
        Ok(Entry { name: name.to_owned(), title, description })
    };
    preset::names().map(entry).collect()
}

fn models() -> Vec<Entry> {
    let entry = |preset: &models::Preset| {
        let model = &preset.model;
        let billions = |count: u64| significant(count as f64 / 1e9);
        let (all, active) = (model.parameters().total(), model.active_parameters());
        let experts = match active < all {
            true => format!(" ({} B active)", billions(active)),
            false => String::new(),
        };
        let trust = preset.trust.word();
        Entry {
            name: model.name.to_string(),
            title: format!("{} B parameters{experts}, {} layers", billions(all), model.layers),
            description: format!("{trust}: {}", preset.source),
        }
    };
    models::all().iter().map(entry).collect()
}

fn words(path: &str) -> Vec<Entry> {
    let words = scenario::schema().words(path).into_iter();
    let entry = |(word, about): (&str, &str)| Entry {
        name: word.to_owned(),
        title: about.lines().next().unwrap_or("").trim_end_matches('.').to_owned(),
        description: about.to_owned(),
    };
    words.map(entry).collect()
}

fn hardware(contents: Contents, catalogue: &Catalogue) -> Vec<Entry> {
    let entry = |name: &String, title: &String, description: String| Entry {
        name: name.clone(),
        title: title.clone(),
        description,
    };
    let Catalogue { gpu, nic, switch, cable, .. } = catalogue;
    match contents {
        Contents::Gpus => gpu.iter().map(|(name, it)| entry(name, &it.title, of_gpu(it))).collect(),
        Contents::Nics => nic.iter().map(|(name, it)| entry(name, &it.title, of_nic(it))).collect(),
        Contents::Switches => {
            switch.iter().map(|(name, it)| entry(name, &it.title, of_switch(it))).collect()
        }
        Contents::Cables => {
            cable.iter().map(|(name, it)| entry(name, &it.title, of_cable(it))).collect()
        }
        _ => Vec::new(),
    }
}

fn of_gpu(gpu: &Gpu) -> String {
    let (flops, memory) = (gpu.bf16_tflops.value, gpu.memory_gb.value);
    let (rate, name) = (gpu.scale_up_gbytes_s.value, &gpu.scale_up_name);
    format!("{flops} TFLOP/s bf16, {memory} GB, {name} {rate} GB/s each way")
}

fn of_nic(nic: &Nic) -> String {
    let ports = if nic.ports == 1 { "1 port".to_owned() } else { format!("{} ports", nic.ports) };
    format!("{} Gb/s on {ports}", nic.rate_gbps.value)
}

fn of_switch(switch: &Switch) -> String {
    let (ports, rate, buffer) = (switch.ports, switch.port_gbps.value, switch.buffer_mb.value);
    format!("{ports} × {rate} Gb/s, {buffer} MB buffer")
}

fn of_cable(cable: &Cable) -> String {
    format!("{} Gb/s, up to {} m", cable.rate_gbps.value, cable.reach_m.value)
}

impl Answer for Presets {
    fn sheet(&self) -> Sheet {
        // Sentences have no room in a table; `presets NAME` and JSON have them.
        let says_more = |entry: &Entry| entry.description.trim_end_matches('.') != entry.title;
        let is_short = |entry: &Entry| entry.description.len() <= 60;
        let mut columns = vec![(self.kind, Align::Left), ("what", Align::Left)];
        if self.entries.iter().all(is_short) && self.entries.iter().any(says_more) {
            columns.push(("figures", Align::Left));
        }
        let mut table = Table::new(columns.iter().copied());
        for Entry { name, title, description } in &self.entries {
            table.row([name, title, description].into_iter().take(columns.len()));
        }
        let sheet = Sheet::new().table(table);
        match self.kind == Kind::PRESETS.name {
            true => sheet.text(
                "`fatflow init own` writes a file for a cluster of your own, from no preset. \
                 `fatflow presets models`, `gpus`, `nics`, `switches` list the catalogue.",
            ),
            false => sheet,
        }
    }
}

/// One preset, and what has been published about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Details {
    /// The name to use in a scenario.
    pub name: String,
    /// The name for people.
    pub title: String,
    /// What it is.
    pub description: String,
    /// GPUs of the cluster.
    pub gpus: u64,
    /// What has been published.
    pub reported: Vec<Reported>,
}

/// Describes one preset.
pub fn details(name: &str) -> Result<Details, Failure> {
    if preset::text(name).is_none() {
        return Err(unknown(name).into());
    }
    let request = Request { scenario: Some(name.to_owned()), ..Request::default() };
    let loaded = load(&request)?;
    let gpus = loaded.fabric().gpus() as u64;
    let scenario::ScenarioFile { name: title, description, reported, .. } = loaded.scenario;
    Ok(Details { name: name.to_owned(), title, description, gpus, reported })
}

/// The problem of a preset that does not exist.
pub(crate) fn unknown(name: &str) -> Problem {
    if ["hardware", "catalogue", "catalog"].contains(&name) {
        let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name).collect();
        let problem = Problem::error(format!("there is no preset called `{name}`"));
        return problem.with_help(format!(
            "`fatflow presets --kind KIND` lists what the catalogue has: {}",
            kinds.join(", ")
        ));
    }
    let problem = Problem::error(format!("there is no preset called `{name}`"));
    problem.with_help(match scenario::nearest::nearest(name, preset::names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the presets are {}", preset::names().collect::<Vec<_>>().join(", ")),
    })
}

impl Answer for Details {
    fn sheet(&self) -> Sheet {
        let Self { name, title, description, gpus, reported } = self;
        let sheet = Sheet::new()
            .heading(format!("{title} ({name})"))
            .text(description)
            .text(format!("{} GPUs.", grouped(*gpus)));
        if reported.is_empty() {
            return sheet;
        }
        let mut table = Table::new([
            ("published", Align::Left),
            ("figure", Align::Right),
            ("source", Align::Right),
            ("note", Align::Left),
        ]);
        let mut sources: Vec<&str> = Vec::new();
        for figure in reported {
            let known = sources.iter().position(|source| *source == figure.source);
            let number = known.unwrap_or_else(|| {
                sources.push(&figure.source);
                sources.len() - 1
            });
            let estimate = if figure.trust.is_estimate() { "estimate; " } else { "" };
            let note = format!("{estimate}{}", figure.note);
            table.row([
                figure.metric.clone(),
                written(figure),
                format!("[{}]", number + 1),
                note.trim_end_matches("; ").to_owned(),
            ]);
        }
        let numbered = sources.iter().enumerate();
        let list: String =
            numbered.map(|(at, source)| format!("[{}] {source}\n", at + 1)).collect();
        sheet.table(table).verbatim(list)
    }
}

fn written(figure: &Reported) -> String {
    let number = |value: f64| match value {
        value if value.fract() == 0.0 && (1e3..1e15).contains(&value) => grouped(value as u64),
        value if 1e15 <= value => format!("{value:e}"),
        value => significant(value),
    };
    let amount = match (figure.value, figure.high) {
        (Some(low), Some(high)) => format!("{} to {}", number(low), number(high)),
        (Some(value), None) => number(value),
        (None, _) => figure.text.clone().unwrap_or_default(),
    };
    format!("{amount} {}", figure.unit).trim_end().to_owned()
}
