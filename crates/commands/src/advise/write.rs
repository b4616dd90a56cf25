//! What an advice means to the systems that must be told: one file for each.
//!
//! Each file is made from the changed scenario, so that it says what was simulated, and begins with
//! why, where its format has room for it: DeepSpeed's JSON has, in a key of its own; SONiC's has
//! not, because every key is a table there, and the folder's `README.md` tells it. What a system
//! has no field for is said there, never left out in silence.

use fabric::routing::Policy;
use fabric::transport::Transport;
use scenario::{Loaded, Purpose, Request};

use super::Advised;
use crate::change::Change;
use crate::failure::Failure;
use crate::trial::Bench;

mod framework;
mod host;
mod scheduler;
mod switch;

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its name in the folder.
    pub name: &'static str,
    /// What stands in it.
    pub text: String,
}

/// What somebody reads about each file.
const ABOUT: [(&str, &str); 17] = [
    ("scenario.toml", "the changed scenario: `fatflow run scenario.toml`"),
    (
        "sonic-config_db.json",
        "a patch of SONiC's config_db.json: `config load`; ports as Ethernet0, \
      Ethernet8, …, which must be the switch's own",
    ),
    ("nvue.txt", "NVUE commands for Cumulus Linux 5.15 and later (before that: on, off)"),
    (
        "udf-hash.txt",
        "the queue pair number in the hash: SONiC's model has no field for it, so \
      this is the user-defined field in words, for the vendor's own commands",
    ),
    ("paths.csv", "every path: switch, source, destination, next hop"),
    ("frr-pbr.conf", "the same for FRR: a pbr-map for each port of a leaf"),
    ("nccl.conf", "for /etc/nccl.conf, or a shell: `set -a; . ./nccl.conf`; RCCL reads the same"),
    ("nccl-topo.xml", "for NCCL_TOPO_FILE; `cluster.server_file` reads it back"),
    ("nic.sh", "settings of the NICs, as root on each server"),
    ("ranks.txt", "the GPU of every rank: `job.placement` reads it"),
    ("hosts.txt", "the server of every rank, for SLURM_HOSTFILE"),
    ("topology.conf", "Slurm's topology.conf for topology/tree"),
    ("topology.yaml", "the same for Slurm's topology.yaml"),
    ("megatron.args", "arguments of Megatron-LM"),
    ("torchtitan.toml", "tables of a TorchTitan configuration (up to v0.2.2)"),
    ("deepspeed.json", "a DeepSpeed configuration"),
    ("README.md", "this list"),
];

/// The files that a change needs, by name.
pub(super) fn names(loaded: &Loaded, change: &Change) -> Vec<String> {
    needed(loaded, change).into_iter().map(str::to_owned).collect()
}

fn needed(loaded: &Loaded, change: &Change) -> Vec<&'static str> {
    let mut wanted: Vec<&str> = vec!["scenario.toml"];
    for set in &change.set {
        let (key, value) = set.split_once('=').unwrap_or((set, ""));
        let is_in = |table: &str| key.starts_with(table);
        if is_in("network.routing.policy") {
            wanted.extend(of_policy(value));
        }
        if is_in("network.routing.hash") || value.contains("e-ecmp") {
            wanted.extend(["sonic-config_db.json", "nvue.txt", "udf-hash.txt"]);
        }
        if is_in("network.routing.seeds") {
            wanted.push("udf-hash.txt");
        }
        if is_in("network.routing.qps") || is_in("network.routing.split") || is_in("library") {
            wanted.push("nccl.conf");
        }
        let of_queues = ["network.ecn", "network.pfc", "network.buffer", "network.congestion"];
        if of_queues.iter().any(|table| is_in(table)) {
            wanted.extend(["sonic-config_db.json", "nvue.txt", "nic.sh"]);
        }
        if is_in("job.placement") {
            let files = ["ranks.txt", "hosts.txt", "topology.conf", "topology.yaml"];
            wanted.extend(files.into_iter().chain(["nccl-topo.xml"]));
        }
        let of_layout = ["job.parallel", "job.batch", "job.recompute", "job.schedule", "job.moe"];
        if of_layout.iter().any(|table| is_in(table)) {
            wanted.extend(["megatron.args", "torchtitan.toml", "deepspeed.json"]);
        }
    }
    let has_job = loaded.job.is_some();
    let of_job = ["ranks.txt", "hosts.txt", "megatron.args", "torchtitan.toml", "deepspeed.json"];
    let is_needed = |name: &str| {
        name == "README.md" || (wanted.contains(&name) && (has_job || !of_job.contains(&name)))
    };
    ABOUT.iter().map(|(name, _)| *name).filter(|name| is_needed(name)).collect()
}

fn of_policy(value: &str) -> Vec<&'static str> {
    let policy = Policy::ALL.into_iter().find(|policy| policy.name() == value.trim_matches('"'));
    match policy {
        Some(Policy::PathPinning | Policy::TrafficEngineering) => vec!["paths.csv", "frr-pbr.conf"],
        Some(Policy::Adaptive) => vec!["nvue.txt", "nccl.conf"],
        Some(Policy::InfinibandAdaptive) => vec!["nccl.conf"],
        _ => Vec::new(),
    }
}

/// Makes the files of a change of a scenario.
pub fn files(request: &Request, advised: &Advised) -> Result<Vec<File>, Failure> {
    let bench = Bench::new(request, None)?;
    let loaded = bench.load(&advised.set, Purpose::Settings)?;
    let change = Change::new(advised.kind, "", advised.set.clone());
    let why = Why { advised, input: &loaded.input };
    let made = needed(&loaded, &change).into_iter().map(|name| {
        let text = match name {
            "scenario.toml" => why.before("#", scenario_file(&loaded, advised)),
            "sonic-config_db.json" => switch::sonic(&loaded),
            "nvue.txt" => why.before("#", switch::nvue(&loaded)),
            "udf-hash.txt" => why.before("#", switch::udf(&loaded)),
            "paths.csv" => why.before("#", switch::paths(&loaded)?),
            "frr-pbr.conf" => why.before("!", switch::pbr(&loaded)?),
            "nccl.conf" => why.before("#", host::nccl(&loaded)),
            "nccl-topo.xml" => host::topology(&loaded, &why.text()),
            "nic.sh" => format!("#!/bin/sh\n{}", why.before("#", host::nic(&loaded))),
            "ranks.txt" => why.before("#", scheduler::ranks(&loaded)?),
            "hosts.txt" => scheduler::hosts(&loaded)?,
            "topology.conf" => why.before("#", scenario::export::slurm(loaded.fabric())),
            "topology.yaml" => why.before("#", scheduler::topology_yaml(&loaded)),
            "megatron.args" => why.before("#", framework::megatron(&loaded)),
            "torchtitan.toml" => why.before("#", framework::torchtitan(&loaded)),
            "deepspeed.json" => framework::deepspeed(&loaded, &why.text()),
            _ => readme(&why, &needed(&loaded, &change)),
        };
        Ok(File { name, text })
    });
    made.collect()
}

/// Which devices have a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum On {
    /// Every switch.
    Switches,
    /// Every server.
    Servers,
}

/// The files by which a network is set up, as `files` makes them, and who has them.
const OF_NETWORK: [(&str, On); 4] = [
    ("sonic-config_db.json", On::Switches),
    ("udf-hash.txt", On::Switches),
    ("nic.sh", On::Servers),
    ("nccl.conf", On::Servers),
];

/// Who has a file of a network.
pub(crate) fn on(name: &str) -> Option<On> {
    OF_NETWORK.iter().find(|(own, _)| *own == name).map(|(_, on)| *on)
}

/// The files that set up a scenario's network as it stands. InfiniBand's switches and NICs need
/// none of their own.
pub(crate) fn of_network(loaded: &Loaded) -> Vec<(&'static str, On, String)> {
    let credits = loaded.scenario.network.transport == Transport::Infiniband;
    let wanted = OF_NETWORK.into_iter().filter(|(name, _)| !credits || *name == "nccl.conf");
    let made = wanted.map(|(name, on)| {
        let text = match name {
            "sonic-config_db.json" => switch::sonic(loaded),
            "udf-hash.txt" => switch::udf(loaded),
            "nic.sh" => host::nic(loaded),
            _ => host::nccl(loaded),
        };
        (name, on, text)
    });
    made.collect()
}

/// Why a file is there.
struct Why<'a> {
    advised: &'a Advised,
    input: &'a str,
}

impl Why<'_> {
    fn text(&self) -> String {
        let Advised { name, gain, low, high, why, risk, .. } = self.advised;
        let [gain, low, high] = [gain, low, high].map(|share| 100.0 * share);
        let mut text =
            format!("Advised for {}: {name}. It gains {gain:.1} % by simulation", self.input);
        text += &match low < high {
            true => format!(" ({low:.1} to {high:.1} % with eight of ten other seeds)."),
            false => ".".to_owned(),
        };
        if !why.is_empty() {
            text += &format!(" Why: {why}.");
        }
        if !risk.is_empty() {
            text += &format!(" Risk: {risk}.");
        }
        text
    }

    /// The same as remarks before a text.
    fn before(&self, remark: &str, text: String) -> String {
        format!("{remark} {}\n{text}", self.text())
    }
}

/// A scenario that starts from the one that was asked about.
fn scenario_file(loaded: &Loaded, advised: &Advised) -> String {
    let from = match scenario::preset::text(&loaded.input) {
        Some(_) => loaded.input.clone(),
        None => std::path::absolute(&loaded.input)
            .map_or_else(|_| loaded.input.clone(), |path| path.display().to_string()),
    };
    let mut text = format!(
        "name = {}\nfrom = {}\nseed = {}\n",
        serde_json::Value::from(format!("{}: {}", loaded.title(), advised.name)),
        serde_json::Value::from(from),
        loaded.scenario.seed
    );
    let mut last = loaded.set_by_flags();
    if let Some(fields) = last.as_object_mut() {
        fields.remove("seed");
        fields.remove("name");
    }
    let table: Result<toml::Table, _> = serde_json::from_value(last);
    text += &table.ok().and_then(|table| toml::to_string(&table).ok()).unwrap_or_default();
    text
}

fn readme(why: &Why<'_>, names: &[&str]) -> String {
    let mut text = format!("# {}\n\n{}\n\n", why.advised.name, why.text());
    text += &format!("The command that gives the same step: `{}`\n\n", why.advised.command);
    for (name, about) in ABOUT.iter().filter(|(name, _)| names.contains(name)) {
        text += &format!("* `{name}`: {about}.\n");
    }
    text
}
