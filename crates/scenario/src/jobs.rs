//! Several jobs on one fabric: what each entry of `[[jobs]]` says, and which servers it has.
//!
//! Every job is loaded by itself, as if it were the scenario's only one, so that whatever is said
//! of a job is said of each of them. Then servers are dealt out: first to those who name theirs,
//! then in the order of the file.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fabric::Fabric;
use job::JobConfig;
use job::placement::{Policy, Slots, free_nodes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use traffic::pattern::{MAX_LEVEL, TrafficConfig};
use units::{Random, Ranged, Ranges, Span};

use crate::export::host_name;
use crate::import::{HOSTS, expand};
use crate::load::Loaded;
use crate::source::read;

/// One of several jobs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
// Unknown keys are the checker's to find: `serde` cannot deny them beside a flattened struct.
#[serde(default)]
pub struct JobEntry {
    /// What results call it. Left out, "job 0" and so on.
    pub name: String,
    /// When its first step begins.
    pub start: Span,
    /// Its servers: how many, a list of numbers or names, a Slurm host list ("node[0-3,8]"), or the
    /// path of a file with such lists. Left out, as many as it needs.
    pub nodes: Option<Nodes>,
    /// The job after whose last step it begins, by name: an earlier entry. `start` counts from
    /// there.
    pub after: Option<String>,
    /// Synthetic traffic in the place of a job: a phase such as the push of new weights.
    pub traffic: Option<TrafficConfig>,
    /// The service level of its connections, which decides their lane (`network.credits.sl_to_vl`).
    pub class: u8,
    /// The keys of `[job]`.
    #[serde(flatten)]
    pub config: JobConfig,
}

/// The keys of an entry that `[job]` has not.
pub(crate) const OWN_KEYS: [&str; 6] = ["name", "start", "nodes", "class", "after", "traffic"];

/// Which servers a job has.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Nodes {
    /// So many: the first that are free, or with `placement = "random"` any.
    Count(u64),
    /// These.
    List(Vec<Host>),
    /// Those of a Slurm host list, or of a file with one.
    Hosts(String),
}

/// A server.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Host {
    /// By its number, from 0.
    Number(u64),
    /// By its name: `node3`, or as its topology was imported.
    Name(String),
}

/// A job begins within 30 days: the clock counts 213.
const LATEST: Span = Span::from_ms(30 * 24 * 3600 * 1000);

impl Ranged for JobEntry {
    fn ranges(&self, check: &mut Ranges) {
        check.at_most("start", self.start, LATEST);
        check.at_most("class", self.class, MAX_LEVEL);
    }
}

impl JobEntry {
    /// What results call it.
    pub fn title(&self, number: usize) -> String {
        if self.name.is_empty() { format!("job {number}") } else { self.name.clone() }
    }
}

/// One of several jobs, as if it were the only one, and where it runs.
#[derive(Clone, Debug)]
pub struct Member {
    /// What results call it.
    pub name: String,
    /// When its first step begins.
    pub start: Span,
    /// The service level of its connections.
    pub class: u8,
    /// The one after whose last step it begins.
    pub after: Option<usize>,
    /// The scenario with this job alone.
    pub loaded: Loaded,
}

/// By entry: the one that it comes after, which stands before it.
pub(crate) fn afters(entries: &[JobEntry]) -> Result<Vec<Option<usize>>, EntryError> {
    let after = |(at, entry): (usize, &JobEntry)| {
        let Some(name) = &entry.after else { return Ok(None) };
        let earlier = entries[..at].iter().enumerate();
        let found = earlier.rev().find(|(at, one)| one.title(*at) == *name);
        found.map(|(at, _)| Some(at)).ok_or_else(|| {
            (format!("jobs.{at}.after"), format!("no earlier job is called \"{name}\""))
        })
    };
    entries.iter().enumerate().map(after).collect()
}

/// What is wrong with an entry's key.
pub(crate) type EntryError = (String, String);

/// Deals out servers. `directory` names the folder to which a path in a key is relative.
pub(crate) fn deal(
    fabric: &Fabric,
    entries: &[JobEntry],
    needed: &[u64],
    seed: u64,
    directory: impl Fn(&str) -> PathBuf,
) -> Result<Vec<Vec<u64>>, EntryError> {
    let mut named = Vec::new();
    let mut taken = BTreeSet::new();
    for (at, (entry, needed)) in entries.iter().zip(needed).enumerate() {
        let key = format!("jobs.{at}.nodes");
        if entry.traffic.is_some() && entry.nodes.is_some() {
            let why = "traffic names its hosts itself (`traffic.hosts`)".to_owned();
            return Err((key, why));
        }
        let hosts = match &entry.nodes {
            Some(Nodes::List(hosts)) => Some(hosts.clone()),
            Some(Nodes::Hosts(text)) => {
                let listed = listed(text, &directory(&key));
                let names = listed.map_err(|why| (key.clone(), why))?;
                Some(names.into_iter().map(Host::Name).collect())
            }
            Some(Nodes::Count(_)) | None => None,
        };
        let own = hosts.map(|hosts| numbers(fabric, &hosts, &mut taken)).transpose();
        let own = own.map_err(|why| (key.clone(), why))?;
        let count = match (&own, &entry.nodes) {
            (Some(own), _) => own.len() as u64,
            (None, Some(Nodes::Count(count))) => *count,
            (None, _) => *needed,
        };
        if count < *needed {
            let why = format!("these are {count} servers, and the job needs {needed}");
            return Err((key, why));
        }
        named.push((own, count));
    }
    let slots = Slots {
        nodes: fabric.servers() as u64,
        gpus_per_node: fabric.gpus_per_node() as u64,
        nodes_per_leaf: 1,
        nodes_per_zone: 1,
    };
    let mut dealt = Vec::new();
    for (at, ((own, count), entry)) in named.into_iter().zip(entries).enumerate() {
        let nodes = own.unwrap_or_else(|| {
            let placement = &entry.config.placement;
            let mut free = free_nodes(&slots, placement.busy, seed);
            free.retain(|node| !taken.contains(node));
            if placement.policy == Policy::Random {
                Random::new(seed, "servers of a job", at as u64).shuffle(&mut free);
            }
            free.truncate(usize::try_from(count).unwrap_or(usize::MAX));
            free.sort_unstable();
            free
        });
        if (nodes.len() as u64) < count {
            let why = format!("{count} servers are wanted and {} are left", nodes.len());
            return Err((format!("jobs.{at}.nodes"), why));
        }
        taken.extend(nodes.iter().copied());
        dealt.push(nodes);
    }
    Ok(dealt)
}

/// The hosts of a list, or of a file with lists.
fn listed(text: &str, directory: &std::path::Path) -> Result<Vec<String>, String> {
    let path = directory.join(text);
    let mut budget = HOSTS;
    if !text.contains(['/', '\\']) && !path.is_file() {
        return expand(text, &mut budget);
    }
    let source = read(&path).map_err(|problem| problem.message)?;
    let lines = source.text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut hosts = Vec::new();
    for list in lines.flat_map(str::split_whitespace) {
        hosts.extend(expand(list, &mut budget)?);
    }
    Ok(hosts)
}

/// The numbers of servers, each of which nobody has yet.
fn numbers(fabric: &Fabric, hosts: &[Host], taken: &mut BTreeSet<u64>) -> Result<Vec<u64>, String> {
    let servers = fabric.servers() as u64;
    let by_name: std::collections::BTreeMap<String, u64> =
        (0..servers).map(|number| (host_name(fabric, number as usize), number)).collect();
    let mut numbers = Vec::new();
    for host in hosts {
        let (number, words) = match host {
            Host::Number(number) => (Some(*number), number.to_string()),
            Host::Name(name) => (by_name.get(name).copied(), name.clone()),
        };
        let Some(number) = number.filter(|number| *number < servers) else {
            let (first, last) = (host_name(fabric, 0), host_name(fabric, fabric.servers() - 1));
            return Err(format!("there is no server {words}: they are {first} to {last}"));
        };
        if !taken.insert(number) {
            return Err(format!("server {words} is given out twice"));
        }
        numbers.push(number);
    }
    Ok(numbers)
}
