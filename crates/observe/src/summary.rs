//! What was observed, summed up: the answer of `fatflow observe` as programs see it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;

pub use axes::{AxisLoad, by_axis};
pub use load::Load;
pub use stragglers::Straggler;
pub(crate) use stragglers::list as straggler_list;

use crate::capture::Wire;
use crate::counter::{CounterRow, PortRates};
use crate::observed::{
    Benchmark, FabricFile, Finding, Host, InGroup, Kind, Neighbour, NetLines, Observed, Packets,
    QueuePair, Run, Source, Step, Times, Trace,
};

mod axes;
mod load;
mod stragglers;

/// A host that wrote fewer lines than this share of the busiest one, and joined nothing, is a torn
/// line.
const TORN_SHARE: f64 = 0.01;

/// What was observed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The files.
    pub sources: Vec<Source>,
    /// What the cluster is made of.
    pub cluster: ClusterSummary,
    /// Groups of ranks that talk to each other.
    pub communicators: Vec<CommunicatorSummary>,
    /// How many ranks finished to initialise communicators of a size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub initialised: Vec<Initialised>,
    /// Queue pairs that files name, each end counted once.
    pub queue_pairs: u64,
    /// The payload of a full packet on those queue pairs, if all have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// Collectives by kind and size.
    pub collectives: Vec<CollectiveSummary>,
    /// What they put on the network, by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The same by axis: what ranks sent in groups that files name, the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_axis: Vec<AxisLoad>,
    /// The same by rank and group.
    #[serde(skip)]
    pub in_groups: Vec<InGroup>,
    /// What the library chose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
    /// Tables of benchmarks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub benchmarks: Vec<Benchmark>,
    /// Flows of `fatflow run` and `fatflow live`, if a table lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowsSummary>,
    /// Runs of training.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
    /// Steps of training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepsSummary>,
    /// The same one by one.
    #[serde(skip)]
    pub step_list: Vec<Step>,
    /// Traces of profilers, one for each rank.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<Trace>,
    /// Ranks that come last to collectives, where files of several ranks tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stragglers: Vec<Straggler>,
    /// Packets, counted.
    pub packets: Packets,
    /// Who sends to whom, by the 5-tuples of captures.
    #[serde(skip)]
    pub tuples: Vec<Tuple>,
    /// Packets in detail, where there are captures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Wire>,
    /// The other ends of cables, by LLDP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
    /// Files that say how the fabric is cabled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fabrics: Vec<FabricFile>,
    /// Counters, with differences where they came more than once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterRow>,
    /// What ports of NICs send over time, where counters come with times.
    #[serde(skip)]
    pub port_rates: Vec<PortRates>,
    /// What looks wrong, the worst first.
    pub findings: Vec<Finding>,
}

/// What one sends to a queue pair of another, as switches see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuple {
    /// The sender.
    pub from: IpAddr,
    /// The receiver.
    pub to: IpAddr,
    /// The UDP source port.
    pub source_port: u16,
    /// The receiver's queue pair.
    pub queue_pair: u32,
    /// Payload.
    pub bytes: u64,
}

fn tuples(observed: &Observed) -> Vec<Tuple> {
    let tuple = |pair: &QueuePair| {
        let (from, to) = (pair.peer.parse().ok()?, pair.host.parse().ok()?);
        let (source_port, queue_pair, bytes) = (pair.source_port?, pair.number, pair.bytes);
        (0 < bytes).then_some(Tuple { from, to, source_port, queue_pair, bytes })
    };
    observed.queue_pairs.iter().filter_map(tuple).collect()
}

/// What the cluster is made of.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterSummary {
    /// Servers of the job; files may hold fewer.
    pub nodes: Option<u32>,
    /// Servers that wrote something.
    pub hosts: Vec<String>,
    /// Ranks of the largest job.
    pub ranks: Option<u32>,
    /// Jobs: groups of processes that share communicators.
    pub jobs: u32,
    /// The most GPUs that one server uses.
    pub gpus_per_node: Option<u32>,
    /// Kinds of GPU, as the files call them.
    pub gpus: Vec<String>,
    /// NICs that connections go through, by name.
    pub nics_used: Vec<String>,
    /// The most NICs that connections of one server go through, if any say so.
    pub nics_per_node: Option<u32>,
    /// All NICs that are listed or used.
    pub nics: Vec<NicSummary>,
    /// What connections between servers go through.
    pub transport: Option<String>,
    /// The library.
    pub library: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// All versions, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// Lines of connections over the network.
    pub net_lines: NetLines,
    /// Lines of connections of any kind, by what they go through.
    pub connections: BTreeMap<String, u64>,
    /// Settings of the environment, each with its values.
    pub environment: BTreeMap<String, Vec<String>>,
}

/// A NIC, on all servers that have it under the same number and name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NicSummary {
    /// Its number in the library's list.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// RoCE, IB, Socket.
    pub link: String,
    /// Lines of connections that go through it.
    pub used: u64,
    /// Megabits per second, where the library says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<u64>,
}

/// A group of ranks that talk to each other.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CommunicatorSummary {
    /// What the files call it.
    pub id: String,
    /// How many ranks it has.
    pub ranks: u32,
    /// Their numbers in the job, in their order in the group, where files say them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<u32>,
    /// How many of them wrote something.
    pub seen: u32,
    /// Servers that it spans, if that is said or seen.
    pub nodes: Option<u32>,
    /// Channels for collectives.
    pub channels: u32,
    /// The ranks of each ring in order.
    pub rings: Vec<Vec<u32>>,
    /// For each channel the parent of each rank in the tree, -1 at the root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<Vec<Option<i32>>>,
}

/// Ranks that finished to initialise communicators of a size.
#[derive(Clone, Debug, Serialize)]
pub struct Initialised {
    /// The size.
    pub ranks: u32,
    /// How many said so.
    pub count: u64,
}

/// A collective of one size.
#[derive(Clone, Debug, Serialize)]
pub struct CollectiveSummary {
    /// What it does.
    pub kind: Kind,
    /// As nccl-tests counts them.
    pub bytes: u64,
    /// Ranks of its group, if they are known.
    pub ranks: Option<u32>,
    /// How often it was seen.
    pub count: u64,
    /// The mean time.
    pub time_us: Option<f64>,
    /// The shortest time, if it was seen more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_us: Option<f64>,
    /// The longest time, if it was seen more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_us: Option<f64>,
    /// Bus bandwidth: as printed, otherwise from the mean time.
    #[serde(rename = "busbw_GBps")]
    pub busbw: Option<f64>,
    /// What says so.
    pub from: String,
}

/// What the library chose for a size.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// The collective.
    pub kind: Kind,
    /// Bytes as the library counts them.
    pub bytes: u64,
    /// The algorithm, protocol and channels.
    pub choice: String,
    /// How many lines say so.
    pub count: u64,
}

/// Steps of training.
#[derive(Clone, Debug, Serialize)]
pub struct StepsSummary {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_s: f64,
    /// The middle one.
    pub median_s: f64,
    /// The shortest.
    pub min_s: f64,
    /// The longest.
    pub max_s: f64,
    /// Communication that nothing hides, as a share, where traces show it.
    pub exposed_share: Option<f64>,
}

/// Flows that tables list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowsSummary {
    /// How many.
    pub flows: u64,
    /// Those that have an end.
    pub completed: u64,
    /// Payload of all.
    pub bytes: u64,
    /// From the first start to the last end; none if none ended.
    pub makespan_s: Option<f64>,
    /// Payload per second of that.
    pub goodput_bps: Option<f64>,
    /// The mean time of a flow.
    pub mean_s: Option<f64>,
    /// The longest.
    pub max_s: Option<f64>,
}

fn flows(observed: &Observed) -> Option<FlowsSummary> {
    let flows = &observed.flows;
    let makespan_s = flows.span_ns.map(|(first, last)| (last - first) / 1e9);
    let ended = (0 < flows.times.count).then_some(&flows.times);
    (0 < flows.count).then(|| FlowsSummary {
        flows: flows.count,
        completed: flows.count - flows.unfinished,
        bytes: flows.bytes,
        makespan_s,
        goodput_bps: makespan_s.filter(|s| 0.0 < *s).map(|s| 8.0 * flows.bytes as f64 / s),
        mean_s: ended.map(|times| times.sum_us / times.count as f64 / 1e6),
        max_s: ended.map(|times| times.max_us / 1e6),
    })
}

impl Summary {
    /// Sums up, and says what looks wrong.
    pub fn of(observed: &Observed) -> Self {
        let cluster = cluster(observed);
        let collectives = collectives(observed);
        let in_groups = axes::whole_groups(observed);
        Self {
            sources: observed.sources.clone(),
            communicators: observed.communicators.iter().map(communicator).collect(),
            initialised: initialised(observed),
            queue_pairs: queue_pairs(observed),
            mtu_bytes: mtu_bytes(observed),
            load: load::of(&collectives, &in_groups),
            by_axis: by_axis(&in_groups, axes::told_by_name),
            collectives,
            in_groups,
            choices: choices(observed),
            benchmarks: observed.benchmarks.clone(),
            flows: flows(observed),
            runs: observed.runs.clone(),
            steps: steps(observed),
            step_list: observed.steps.clone(),
            traces: observed.traces.clone(),
            stragglers: stragglers::list(&observed.arrivals).0,
            packets: observed.packets.clone(),
            tuples: tuples(observed),
            capture: (observed.wire != Wire::default()).then(|| observed.wire.clone()),
            neighbours: observed.neighbours.clone(),
            fabrics: observed.fabrics.clone(),
            counters: crate::counter::rows(&observed.counters).0,
            port_rates: crate::counter::port_rates(&observed.counters),
            findings: crate::doctor::findings(observed, &cluster),
            cluster,
        }
    }
}

/// Servers that exist: lines that tear make names that do not.
pub fn real_hosts(observed: &Observed) -> BTreeMap<&str, &Host> {
    let hosts = &observed.cluster.hosts;
    let any_certain = hosts.values().any(|host| host.is_certain);
    let most = hosts.values().map(|host| host.lines).max().unwrap_or(0);
    let is_real = |host: &Host| match any_certain {
        true => host.is_certain,
        false => (TORN_SHARE * most as f64).max(1.0) <= host.lines as f64,
    };
    let real = hosts.iter().filter(|(_, host)| is_real(host));
    real.map(|(name, host)| (name.as_str(), host)).collect()
}

fn cluster(observed: &Observed) -> ClusterSummary {
    let facts = &observed.cluster;
    let hosts = real_hosts(observed);
    let seen = u32::try_from(hosts.len()).ok().filter(|nodes| 0 < *nodes);
    let gpus = |host: &&Host| host.gpus.len().max(host.benchmark_gpus.len());
    let gpus_per_node = hosts.values().map(gpus).max().filter(|gpus| 0 < *gpus);
    let nics = nics(&hosts);
    let through = |host: &&Host| host.nics.iter().filter(|nic| 0 < nic.used).count();
    let nics_per_node = hosts.values().map(through).max().filter(|nics| 0 < *nics);
    let used: BTreeSet<&NicSummary> = nics.iter().filter(|nic| 0 < nic.used).collect();
    let mut versions: Vec<&(String, String)> = facts.libraries.keys().collect();
    versions.sort_by_key(|(_, version)| std::cmp::Reverse(parts(version)));
    let first = versions.first();
    ClusterSummary {
        nodes: facts.nodes.max(seen),
        ranks: facts.ranks,
        jobs: facts.jobs,
        gpus_per_node: gpus_per_node.and_then(|gpus| u32::try_from(gpus).ok()),
        gpus: facts.gpu_names.iter().cloned().collect(),
        nics_used: used.iter().map(|nic| nic.name.clone()).collect(),
        nics_per_node: nics_per_node.and_then(|nics| u32::try_from(nics).ok()),
        transport: transport(observed, &used),
        library: first.map(|(library, _)| library.clone()),
        version: first.map(|(_, version)| version.clone()),
        versions: match versions.len() {
            0 | 1 => Vec::new(),
            _ => versions.iter().map(|(library, version)| format!("{library} {version}")).collect(),
        },
        net_lines: facts.net_lines,
        connections: facts.transports.clone(),
        environment: environment(observed),
        hosts: hosts.into_keys().map(str::to_owned).collect(),
        nics,
    }
}

impl Eq for NicSummary {}

impl PartialOrd for NicSummary {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NicSummary {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.index, &self.name).cmp(&(other.index, &other.name))
    }
}

fn parts(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

fn nics(hosts: &BTreeMap<&str, &Host>) -> Vec<NicSummary> {
    let mut all: BTreeMap<(u32, String), NicSummary> = BTreeMap::new();
    let named = hosts.values().flat_map(|host| &host.nics).filter(|nic| !nic.name.is_empty());
    let names: BTreeMap<u32, &str> = named.map(|nic| (nic.index, nic.name.as_str())).collect();
    for nic in hosts.values().flat_map(|host| &host.nics) {
        let name = match (nic.name.as_str(), names.get(&nic.index)) {
            ("", Some(name)) => (*name).to_owned(),
            ("", None) => format!("device {}", nic.index),
            (name, _) => name.to_owned(),
        };
        let entry = all.entry((nic.index, name.clone())).or_default();
        (entry.index, entry.name) = (nic.index, name);
        if !nic.link.is_empty() {
            entry.link.clone_from(&nic.link);
        }
        entry.used += nic.used;
        entry.speed_mbps = entry.speed_mbps.or(nic.speed_mbps);
    }
    all.into_values().collect()
}

fn transport(observed: &Observed, used: &BTreeSet<&NicSummary>) -> Option<String> {
    if observed.cluster.net_lines.all == 0 {
        return None;
    }
    let of = |nic: &&NicSummary| match nic.link.as_str() {
        _ if nic.name.starts_with("hfi1") => "Omni-Path",
        link if link.contains("RoCE") => "RoCE",
        link if link.starts_with("IB") => "InfiniBand",
        "Socket" => "sockets",
        _ => "",
    };
    let mut kinds: BTreeSet<&str> = used.iter().map(of).filter(|kind| !kind.is_empty()).collect();
    // Only RoCE's queue pairs have an index among GIDs.
    let has_gids = observed.queue_pairs.iter().any(|pair| pair.gid_index.is_some());
    if kinds.is_empty() && has_gids {
        kinds.insert("RoCE");
    }
    if kinds.is_empty() {
        let names = observed.cluster.transports.keys();
        kinds.extend(names.filter_map(|name| name.strip_prefix("NET/")));
    }
    Some(kinds.into_iter().collect::<Vec<_>>().join(" and "))
}

/// Secrets may stand in any environment; only what the libraries themselves read is kept.
fn environment(observed: &Observed) -> BTreeMap<String, Vec<String>> {
    let known = |name: &str| ["NCCL_", "RCCL_", "UCX_"].iter().any(|begin| name.starts_with(begin));
    let settings = observed.cluster.environment.iter().filter(|(name, _)| known(name));
    settings.map(|(name, values)| (name.clone(), values.keys().cloned().collect())).collect()
}

fn communicator(of: &crate::observed::Communicator) -> CommunicatorSummary {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let seen = count(of.hosts.len());
    CommunicatorSummary {
        id: of.id.clone(),
        ranks: of.size,
        members: of.members.clone(),
        seen: count(of.seen.len()),
        nodes: of.nodes.or((0 < seen).then_some(seen)),
        channels: of.channels,
        rings: of.rings.clone(),
        trees: of.trees.clone(),
    }
}

/// Ends of connections: a queue pair that several send to is one.
fn queue_pairs(observed: &Observed) -> u64 {
    let pairs = observed.queue_pairs.iter();
    let captured = |pair: &&crate::observed::QueuePair| 0 < pair.packets;
    let ends: BTreeSet<(&str, u32)> =
        pairs.clone().filter(captured).map(|pair| (pair.host.as_str(), pair.number)).collect();
    (pairs.filter(|pair| pair.packets == 0).count() + ends.len()) as u64
}

fn mtu_bytes(observed: &Observed) -> Option<u32> {
    let sizes = observed.queue_pairs.iter().filter_map(|pair| pair.mtu_bytes);
    let sizes: BTreeSet<u32> = sizes.collect();
    sizes.first().copied().filter(|_| sizes.len() == 1)
}

fn initialised(observed: &Observed) -> Vec<Initialised> {
    let sizes = observed.initialised.iter().rev();
    sizes.map(|(ranks, count)| Initialised { ranks: *ranks, count: *count }).collect()
}

fn collectives(observed: &Observed) -> Vec<CollectiveSummary> {
    let row = |(key, stats): (&crate::observed::CollectiveKey, &_)| {
        let crate::observed::CollectiveStats { count, times, printed_busbw, .. } = stats;
        let time_us = times.mean_us();
        let several = |us: f64| (1 < times.count).then_some(us);
        let computed = time_us.filter(|us| 0.0 < *us && 0 < key.ranks && 0 < key.bytes);
        let factor = key.kind.bus_factor(key.ranks.max(1));
        CollectiveSummary {
            kind: key.kind,
            bytes: key.bytes,
            ranks: (0 < key.ranks).then_some(key.ranks),
            count: *count,
            time_us,
            min_us: several(times.min_us),
            max_us: several(times.max_us),
            busbw: printed_busbw.or(computed.map(|us| factor * key.bytes as f64 / us / 1e3)),
            from: key.from.clone(),
        }
    };
    observed.collectives.0.iter().map(row).collect()
}

fn choices(observed: &Observed) -> Vec<Choice> {
    let choice = |((kind, bytes, choice), count): (&(Kind, u64, String), &u64)| Choice {
        kind: *kind,
        bytes: *bytes,
        choice: choice.clone(),
        count: *count,
    };
    observed.choices.iter().map(choice).collect()
}

fn steps(observed: &Observed) -> Option<StepsSummary> {
    let mut times = Times::default();
    observed.steps.iter().for_each(|step| times.add(step.seconds));
    let exposed: f64 = observed.steps.iter().filter_map(|step| step.exposed_s).sum();
    let with = observed.steps.iter().filter(|step| step.exposed_s.is_some());
    let total: f64 = with.map(|step| step.seconds).sum();
    Some(StepsSummary {
        count: times.count,
        mean_s: times.mean_us()?,
        median_s: times.median_us()?,
        min_s: times.min_us,
        max_s: times.max_us,
        exposed_share: (0.0 < total).then(|| exposed / total),
    })
}
