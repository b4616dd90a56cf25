//! What readers fill: everything that files say about a cluster, its job and its network.
//!
//! Readers add; nobody takes away. Collectives and packets are counted as they come, so that a file
//! of any length fits. A figure that a file does not have stays `None` or empty.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::capture::Wire;

/// So many problems of one source are written out, the rest is counted.
const MAX_PROBLEMS: usize = 20;
/// So many times of one collective are kept for quantiles.
const MAX_SAMPLES: usize = 1024;
/// So many arrivals are kept to look for stragglers.
const MAX_ARRIVALS: usize = 1 << 20;
/// So many lines are quoted for one finding.
const MAX_QUOTES: usize = 3;
/// The longest line that is quoted whole.
const LONGEST_QUOTE: usize = 240;

/// Everything that was observed.
#[derive(Debug, Default)]
pub struct Observed {
    /// The files.
    pub sources: Vec<Source>,
    /// What the cluster is made of.
    pub cluster: Cluster,
    /// Groups of ranks that talk to each other.
    pub communicators: Vec<Communicator>,
    /// Connections of NICs.
    pub queue_pairs: Vec<QueuePair>,
    /// Collectives, counted.
    pub collectives: Collectives,
    /// What ranks sent in which group, where files say groups.
    pub in_groups: Vec<InGroup>,
    /// When ranks entered and left the same collective.
    pub arrivals: Arrivals,
    /// Packets, counted.
    pub packets: Packets,
    /// Packets in detail.
    pub wire: Wire,
    /// Who is at the other end of which cable.
    pub neighbours: Vec<Neighbour>,
    /// Files that say how the fabric is cabled.
    pub fabrics: Vec<FabricFile>,
    /// Counters of NICs, GPUs and switches.
    pub counters: Vec<Sample>,
    /// Steps of training.
    pub steps: Vec<Step>,
    /// Traces of profilers, one for each rank.
    pub traces: Vec<Trace>,
    /// Runs of training as a whole, as their logs sum them up.
    pub runs: Vec<Run>,
    /// Tables of benchmarks.
    pub benchmarks: Vec<Benchmark>,
    /// Flows of `fatflow run` and `fatflow live`.
    pub flows: Flows,
    /// What ranks do, by execution traces: it can be run again on a fabric.
    pub workloads: Vec<RankWork>,
    /// Who is in which group of such traces, by the group's name.
    pub groups: BTreeMap<String, Vec<u32>>,
    /// What the library chose for a collective of a size.
    pub choices: BTreeMap<(Kind, u64, String), u64>,
    /// How often ranks finished to initialise a communicator, by its size.
    pub initialised: BTreeMap<u32, u64>,
    /// Lines that show something, by a name for it.
    pub evidence: Evidence,
    /// What readers themselves found to be wrong; more follows from the whole.
    pub findings: Vec<Finding>,
}

/// A file, or a member of an archive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Source {
    /// Its path as it was given, and behind `!` the member of an archive.
    pub file: String,
    /// What it is.
    pub kind: String,
    /// How many of its units were understood.
    pub read: u64,
    /// How many were not: they say nothing that `observe` looks for.
    pub skipped: u64,
    /// What is counted: lines, packets, events.
    pub unit: &'static str,
    /// What is wrong with it, each with its place.
    pub problems: Vec<String>,
    /// Problems that are not written out because there are too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_problems: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Source {
    /// A source of which nothing is read yet.
    pub fn new(file: &str, kind: &str) -> Self {
        let (file, kind) = (file.to_owned(), kind.to_owned());
        Self { file, kind, unit: "lines", ..Self::default() }
    }

    /// A source that could not even be opened or unpacked.
    pub fn unreadable(file: &str, reason: &str) -> Self {
        let mut source = Self::new(file, "unreadable");
        source.problem(0, reason);
        source
    }

    /// Adds something that is wrong at a line (0: nowhere in particular).
    pub fn problem(&mut self, line: u64, reason: &str) {
        if MAX_PROBLEMS <= self.problems.len() {
            self.more_problems += 1;
            return;
        }
        let file = &self.file;
        self.problems.push(match line {
            0 => format!("{file}: {reason}"),
            line => format!("{file}:{line}: {reason}"),
        });
    }

    /// Whether anything in it was understood.
    pub fn is_read(&self) -> bool {
        0 < self.read
    }
}

/// A line that proves something.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Quote {
    /// The file.
    pub file: String,
    /// The line, counted from 1; 0 where lines mean nothing.
    pub line: u64,
    /// What stands there, cut if it is long.
    pub text: String,
}

impl Quote {
    /// Quotes a line.
    pub fn new(file: &str, line: u64, text: &str) -> Self {
        let end = text.char_indices().nth(LONGEST_QUOTE).map(|(at, _)| at);
        let text = match end {
            Some(end) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        Self { file: file.to_owned(), line, text }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The job does not do what its owner thinks, or loses most of its bandwidth.
    Critical,
    /// It costs bandwidth or time.
    Warning,
    /// Worth knowing.
    Note,
}

/// Something that looks wrong, with the lines that show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A short name that stays, such as `gdr_off`.
    pub code: &'static str,
    /// What is wrong, what it costs, what to do.
    pub text: String,
    /// The lines that show it, a few of them.
    pub lines: Vec<Quote>,
}

/// Lines that show something: how many there are, and the first few of them.
#[derive(Debug, Default)]
pub struct Evidence(pub BTreeMap<String, (u64, Vec<Quote>)>);

impl Evidence {
    /// Adds a line to what shows `what`.
    pub fn add(&mut self, what: &str, quote: impl FnOnce() -> Quote) {
        let (count, quotes) = match self.0.get_mut(what) {
            Some(entry) => entry,
            None => self.0.entry(what.to_owned()).or_default(),
        };
        *count += 1;
        if quotes.len() < MAX_QUOTES {
            quotes.push(quote());
        }
    }

    /// How many lines show it.
    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).map_or(0, |(count, _)| *count)
    }

    /// The first few of them.
    pub fn quotes(&self, what: &str) -> Vec<Quote> {
        self.0.get(what).map_or(Vec::new(), |(_, quotes)| quotes.clone())
    }
}

/// Flows that a table lists.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// How many.
    pub count: u64,
    /// Those without an end.
    pub unfinished: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the first start to the last end.
    pub span_ns: Option<(f64, f64)>,
    /// How long each took, until its sender knew or, if that is not told, it had arrived.
    pub times: Times,
}

/// A run of training, summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// The benchmark or program, if it says.
    pub name: Option<String>,
    /// From its start to its stop.
    pub seconds: Option<f64>,
    /// Samples of a step.
    pub global_batch_size: Option<u64>,
    /// Samples per second: the median of what it printed.
    pub samples_per_s: Option<f64>,
    /// The last of these: often the mean of the whole run.
    pub last_samples_per_s: Option<f64>,
    /// How often it printed that.
    pub throughput_lines: u64,
    /// The file.
    pub file: String,
}

/// A table of nccl-tests, rccl-tests or another benchmark of collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Benchmark {
    /// The program, if it says.
    pub name: String,
    /// What it ran, if that is known.
    pub kind: Option<Kind>,
    /// Its ranks.
    pub ranks: Option<u32>,
    /// Its servers.
    pub nodes: Option<u32>,
    /// Rows of its table.
    pub rows: Vec<BenchmarkRow>,
    /// The mean bus bandwidth that it prints at the end.
    #[serde(rename = "average_busbw_GBps")]
    pub average_busbw: Option<f64>,
    /// Results that were wrong, as it counts them.
    pub wrong: u64,
    /// Whether it came to its end.
    pub is_complete: bool,
    /// Whether something was reduced, as its rows say.
    #[serde(skip)]
    pub sums: bool,
    /// The file.
    pub file: String,
    /// The line of its first row.
    pub line: u64,
}

/// One row of a benchmark's table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BenchmarkRow {
    /// The size as the benchmark counts it.
    pub bytes: u64,
    /// The time out of place; in place where there is no other.
    pub time_us: f64,
    /// Bus bandwidth out of place.
    #[serde(rename = "busbw_GBps")]
    pub busbw: f64,
    /// The time in place.
    pub in_place_us: Option<f64>,
    /// Bus bandwidth in place.
    #[serde(rename = "in_place_busbw_GBps")]
    pub in_place_busbw: Option<f64>,
}

/// What the cluster is made of.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Servers that wrote something.
    pub hosts: BTreeMap<String, Host>,
    /// Libraries by name and version, with the hosts that say so and a line.
    pub libraries: BTreeMap<(String, String), Library>,
    /// What connections between ranks go through (`NET/IB`, `P2P/CUMEM`, `SHM`), and how many.
    pub transports: BTreeMap<String, u64>,
    /// Settings of the environment: the name, and each value with the hosts that have it.
    pub environment: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// Jobs: groups of processes that share communicators.
    pub jobs: u32,
    /// The largest number of ranks of a job.
    pub ranks: Option<u32>,
    /// Nodes as the library counts them; files often hold fewer.
    pub nodes: Option<u32>,
    /// Lines of connections over the network, and of them with GPUDirect and through a proxy rank.
    pub net_lines: NetLines,
    /// What kinds of GPU there are, as the files call them.
    pub gpu_names: BTreeSet<String>,
}

/// Lines of connections over the network.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct NetLines {
    /// All.
    pub all: u64,
    /// NIC and GPU meet without the host's memory.
    pub gpu_direct: u64,
    /// Through the NIC of another rank of the server (PXN).
    pub proxied: u64,
    /// Through a switch that reduces.
    pub in_network: u64,
}

/// One server.
#[derive(Debug, Default)]
pub struct Host {
    /// GPUs that ranks on it use, by bus or device.
    pub gpus: BTreeSet<String>,
    /// The same as benchmarks list them.
    pub benchmark_gpus: BTreeSet<String>,
    /// Processes that wrote something.
    pub processes: BTreeSet<u32>,
    /// Lines that it wrote.
    pub lines: u64,
    /// Whether one of its ranks joined a communicator or is in a benchmark's list.
    pub is_certain: bool,
    /// NICs that the library lists.
    pub nics: Vec<Nic>,
    /// How its GPUs reach each other, if a matrix says.
    pub scale_up: Option<Links>,
    /// For each GPU the numbers of the NICs nearest to it, if a matrix says.
    pub near_nics: Vec<Vec<u32>>,
}

/// How the GPUs of a server reach each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// Through NVSwitches, with so many NVLinks a GPU.
    NvSwitch(u32),
    /// NVLinks to some or all other GPUs directly.
    NvLink(u32),
    /// AMD's links.
    Xgmi,
    /// PCIe alone.
    Pcie,
}

/// A NIC as a library lists it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Nic {
    /// Its number in the list.
    pub index: u32,
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// `RoCE`, `IB`, `IB/SHARP`, `Socket`.
    pub link: String,
    /// Megabits per second, where the library says.
    pub speed_mbps: Option<u64>,
    /// Lines of connections that go through it.
    pub used: u64,
}

/// A version of a library.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// Hosts that say so; empty where the line names none.
    pub hosts: BTreeSet<String>,
    /// The first line that says so.
    pub quote: Option<Quote>,
}

/// A group of ranks that talk to each other.
#[derive(Clone, Debug, Default)]
pub struct Communicator {
    /// What files call it, made unique.
    pub id: String,
    /// How many ranks it has.
    pub size: u32,
    /// Nodes that it spans, if that is said.
    pub nodes: Option<u32>,
    /// Its ranks' numbers in the job, in their order in the group, if that is known.
    pub members: Vec<u32>,
    /// Ranks that wrote something.
    pub seen: BTreeSet<u32>,
    /// Servers of those ranks.
    pub hosts: BTreeSet<String>,
    /// Channels for collectives.
    pub channels: u32,
    /// Channels for NVLink SHARP, if that is said.
    pub nvls_channels: Option<u32>,
    /// The ranks of each ring in order, one for each channel; ranks that no line names are left
    /// out.
    pub rings: Vec<Vec<u32>>,
    /// For each channel the parent of each rank in the tree, -1 at the root.
    pub trees: Vec<Vec<Option<i32>>>,
}

/// A connection of two NICs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueuePair {
    /// The server or address that has it.
    pub host: String,
    /// The NIC.
    pub device: String,
    /// Its number.
    pub number: u32,
    /// The other end: an address or a host, with its number where it is known.
    pub peer: String,
    /// The number of the other end.
    pub peer_number: Option<u32>,
    /// The UDP source port, where it was seen.
    pub source_port: Option<u16>,
    /// The maximal payload of a packet.
    pub mtu_bytes: Option<u32>,
    /// Index of its GID.
    pub gid_index: Option<u32>,
    /// Traffic class or DSCP, where it was seen.
    pub dscp: Option<u8>,
    /// Bytes that were seen of it.
    pub bytes: u64,
    /// Packets that were seen of it.
    pub packets: u64,
    /// Of them, those that carry a mark of congestion.
    pub marked: u64,
}

/// A file that says how the fabric is cabled.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FabricFile {
    /// Its name.
    pub file: String,
    /// Where a scenario finds it; none if it is packed.
    #[serde(skip)]
    pub path: Option<String>,
    /// The tool that wrote it.
    pub kind: &'static str,
    /// Switches.
    pub switches: u64,
    /// Adapters of hosts (InfiniBand), or hosts (Slurm).
    pub hosts: u64,
    /// Cables, where they are listed.
    pub cables: u64,
}

/// What is at the other end of a cable, by LLDP.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Neighbour {
    /// Where that was read; empty in captures.
    #[serde(skip)]
    pub file: String,
    /// The port on this side, if a table says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub local: String,
    /// The other side: its chassis.
    pub chassis: String,
    /// Its port.
    pub port: String,
    /// What it says of the port.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its name.
    pub system: String,
    /// Classes that it pauses (DCBX), if it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pfc: Option<Vec<u8>>,
    /// Percentages of its traffic classes (DCBX), if it says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bandwidths: Vec<u8>,
    /// Priority, selector and protocol of applications (DCBX).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<(u8, u8, u16)>,
    /// Whether it takes over what the other side wants (DCBX), if it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_willing: Option<bool>,
    /// Whether it speaks of quantised congestion notification.
    pub has_qcn: bool,
    /// Frames that say so; 0 in tables.
    pub frames: u64,
}

/// What a collective does.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// All have the sum.
    AllReduce,
    /// All have everything.
    AllGather,
    /// Each has its part of the sum.
    ReduceScatter,
    /// Each has its part of everybody's.
    AllToAll,
    /// All have what one had.
    Broadcast,
    /// One has the sum.
    Reduce,
    /// One has everything.
    Gather,
    /// Each has its part of what one had.
    Scatter,
    /// One sends to another.
    SendRecv,
    /// Nothing but waiting.
    Barrier,
}

impl Kind {
    /// Told by any name that a library, a profiler or a benchmark has for it.
    pub fn of(name: &str) -> Option<Self> {
        let letters: String = name.chars().filter(char::is_ascii_alphabetic).collect();
        let letters = letters.to_ascii_lowercase();
        let has = |part: &str| letters.contains(part);
        Some(match () {
            () if has("allreduce") => Self::AllReduce,
            () if has("reducescatter") => Self::ReduceScatter,
            () if has("allgather") => Self::AllGather,
            () if has("alltoall") || has("atoa") => Self::AllToAll,
            () if has("sendrecv") || has("hypercube") => Self::SendRecv,
            () if has("broadcast") || has("bcast") => Self::Broadcast,
            () if has("barrier") => Self::Barrier,
            () if has("scatter") => Self::Scatter,
            () if has("gather") => Self::Gather,
            () if has("reduce") => Self::Reduce,
            () if has("send") || has("recv") => Self::SendRecv,
            () => return None,
        })
    }

    /// What JSON and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::SendRecv => "send_recv",
            Self::Barrier => "barrier",
        }
    }

    /// What algorithm bandwidth is multiplied with for bus bandwidth, as nccl-tests does.
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let n = f64::from(ranks);
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (n - 1.0) / n,
            Self::Gather | Self::Scatter => (n - 1.0) / n,
            Self::Broadcast | Self::Reduce | Self::SendRecv | Self::Barrier => 1.0,
        }
    }
}

/// What makes two collectives the same.
///
/// Bytes are as nccl-tests counts them: the larger of what a rank has before and after, so that bus
/// bandwidth follows from [`Kind::bus_factor`].
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CollectiveKey {
    /// What it does.
    pub kind: Kind,
    /// Its size.
    pub bytes: u64,
    /// Ranks of its group; 0 where nobody says.
    pub ranks: u32,
    /// What says so, such as `nccl-tests, out of place` or `Kineto`.
    pub from: String,
}

/// How often, and how long.
#[derive(Clone, Debug, Default)]
pub struct CollectiveStats {
    /// How often it was seen, counted on one rank where files of several ranks show the same.
    pub count: u64,
    /// Times, where there are any.
    pub times: Times,
    /// Bus bandwidth as the file prints it, in 10⁹ bytes per second: the last.
    pub printed_busbw: Option<f64>,
    /// The algorithm, protocol and channels, as the library says.
    pub choice: Option<String>,
    /// The group's ranks in the job, where known.
    pub group: Vec<u32>,
}

/// Times in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_us: f64,
    /// The shortest.
    pub min_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Every so-manieth of them.
    pub samples_us: Vec<f64>,
    every: u64,
}

impl Times {
    /// Adds one.
    pub fn add(&mut self, us: f64) {
        if !us.is_finite() || us < 0.0 {
            return;
        }
        (self.min_us, self.max_us) = match self.count {
            0 => (us, us),
            _ => (self.min_us.min(us), self.max_us.max(us)),
        };
        self.every = self.every.max(1);
        if self.count.is_multiple_of(self.every) {
            self.samples_us.push(us);
        }
        if self.samples_us.len() == MAX_SAMPLES {
            let mut index = 0;
            self.samples_us.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
        }
        self.count += 1;
        self.sum_us += us;
    }

    /// The mean; `None` without any.
    pub fn mean_us(&self) -> Option<f64> {
        (0 < self.count).then(|| self.sum_us / self.count as f64)
    }

    /// The middle one of those that were kept.
    pub fn median_us(&self) -> Option<f64> {
        let mut sorted = self.samples_us.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

/// Collectives of one rank: how often each, and times where there are any.
pub type CalledByRank = BTreeMap<CollectiveKey, (u64, Vec<f64>)>;

/// All collectives, counted.
#[derive(Debug, Default)]
pub struct Collectives(pub BTreeMap<CollectiveKey, CollectiveStats>);

impl Collectives {
    /// Adds what one rank did so often; other ranks did the same and are not counted again.
    pub fn add_rank(&mut self, key: CollectiveKey, count: u64, times_us: &[f64]) {
        let stats = self.0.entry(key).or_default();
        stats.count = stats.count.max(count);
        times_us.iter().for_each(|us| stats.times.add(*us));
    }

    /// Adds all that one rank did. Where everybody sends parts of other sizes, as in an all-to-all
    /// of lookups, the rank with the most calls is the one that counts.
    pub fn add_ranks(&mut self, mut found: CalledByRank) {
        let is_uneven = |key: &CollectiveKey| key.kind == Kind::AllToAll;
        let mut groups: BTreeMap<(u32, String), u64> = BTreeMap::new();
        for (key, (count, _)) in found.iter().filter(|(key, _)| is_uneven(key)) {
            *groups.entry((key.ranks, key.from.clone())).or_default() += count;
        }
        for ((ranks, from), count) in groups {
            let same = |key: &CollectiveKey| {
                is_uneven(key) && (key.ranks, key.from.as_str()) == (ranks, from.as_str())
            };
            let known: u64 =
                self.0.iter().filter(|(key, _)| same(key)).map(|(_, stats)| stats.count).sum();
            match known < count {
                true => self.0.retain(|key, _| !same(key)),
                false => found.retain(|key, _| !same(key) || self.0.contains_key(key)),
            }
        }
        for (key, (count, times)) in found {
            self.add_rank(key, count, &times);
        }
    }

    /// Adds one; what it returns can be told more.
    pub fn add(&mut self, key: CollectiveKey, time_us: Option<f64>) -> &mut CollectiveStats {
        let stats = self.0.entry(key).or_default();
        stats.count += 1;
        if let Some(us) = time_us {
            stats.times.add(us);
        }
        stats
    }
}

/// What one rank sent in one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InGroup {
    /// The number of the file, and of the rank among those that it holds.
    pub whose: (usize, usize),
    /// What the file calls the group, with what it says of its purpose.
    pub name: String,
    /// How many ranks it has; 0 where nobody says.
    pub size: u32,
    /// Their numbers in the job, where known.
    pub members: Vec<u32>,
    /// How often each collective was called, and its bytes as nccl-tests counts them.
    pub sent: BTreeMap<Kind, (u64, u64)>,
    /// Whether bytes are those that the rank puts in instead, as Chakra counts them.
    pub puts_in: bool,
}

impl InGroup {
    /// Adds calls of a size.
    pub fn add(&mut self, kind: Kind, calls: u64, bytes: u64) {
        let sent = self.sent.entry(kind).or_default();
        sent.0 += calls;
        sent.1 = sent.1.saturating_add(bytes.saturating_mul(calls));
    }
}

/// When one rank entered and left a collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// The communicator or process group.
    pub group: String,
    /// The collective's number in it.
    pub sequence: u64,
    /// The rank in the job.
    pub rank: u32,
    /// When it came, on a clock that all ranks share, in microseconds.
    pub start_us: f64,
    /// When it was done.
    pub end_us: f64,
}

/// Arrivals, up to a limit.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Those that were kept.
    pub kept: Vec<Arrival>,
    /// Those that were not, because there are too many.
    pub left_out: u64,
}

impl Arrivals {
    /// Adds one.
    pub fn add(&mut self, arrival: Arrival) {
        match self.kept.len() < MAX_ARRIVALS {
            true => self.kept.push(arrival),
            false => self.left_out += 1,
        }
    }
}

/// Packets, counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Packets {
    /// Packets that carry data.
    pub data: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// Negative ones.
    pub naks: u64,
    /// Congestion notifications.
    pub cnps: u64,
    /// Pause frames, of PFC or of the whole link.
    pub pauses: u64,
    /// Data packets with the mark "congestion experienced".
    pub marked: u64,
    /// Data packets that were sent again.
    pub retransmitted: u64,
    /// Payload of data packets, what was cut from the capture too.
    pub bytes: u64,
}

/// One value of a counter.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The host or switch.
    pub host: String,
    /// The NIC, GPU or port, and its part, such as `mlx5_0:1` or `Ethernet4|UC3`.
    pub device: String,
    /// The counter, by the name that its file gives it.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Seconds since 1970; `None` where the file does not say.
    pub time_s: Option<f64>,
    /// The number of the snapshot it belongs to: files in their order, or blocks of one.
    pub snapshot: u32,
    /// Where it stands.
    pub place: (usize, u64),
}

/// What a profiler recorded on one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trace {
    /// The file.
    pub file: String,
    /// The rank, if the file or its name says.
    pub rank: Option<u32>,
    /// From the first event to the end of the last.
    pub span_s: f64,
    /// Kernels.
    pub kernels: u64,
    /// Of them, those that communicate.
    pub collectives: u64,
    /// Calls of collectives on the host.
    pub calls: u64,
    /// Time in which something computes.
    pub compute_s: f64,
    /// Time in which something communicates.
    pub communication_s: f64,
    /// Of that, time in which nothing computes.
    pub exposed_s: f64,
    /// What the time in which something computes is spent on.
    pub computing: KernelTimes,
}

/// Time in which kernels of a kind run; two at once count for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KernelTimes {
    /// Products of matrices.
    pub product_s: f64,
    /// Attention.
    pub attention_s: f64,
    /// All others: their time is the bytes that they move.
    pub memory_s: f64,
}

/// What one rank does, as its execution trace says.
#[derive(Clone, Debug, Default)]
pub struct RankWork {
    /// The file.
    pub file: String,
    /// The rank, if the file's name says.
    pub rank: Option<u32>,
    /// Everything that it does.
    pub nodes: Vec<WorkNode>,
    /// Nodes that were not kept, because there are too many.
    pub left_out: u64,
}

/// One thing that a rank does.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkNode {
    /// Its number in the trace.
    pub id: u64,
    /// The numbers of those that it waits for.
    pub after: Vec<u64>,
    /// When it began where it was recorded.
    pub start_us: u64,
    /// What it is.
    pub does: Does,
}

/// What a node of an execution trace is.
#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    /// Takes time.
    Compute {
        /// So long, where it was recorded.
        us: f64,
        /// On the host instead of the GPU.
        on_host: bool,
    },
    /// A collective of a group.
    Collective {
        /// Which.
        kind: Kind,
        /// What this rank puts in.
        bytes: u64,
        /// The group's name; empty for all ranks.
        group: String,
        /// How long it took where it was recorded; 0 if that is not said.
        us: f64,
    },
    /// A message.
    Message {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// Which of several between the two.
        tag: u64,
        /// Its size.
        bytes: u64,
        /// Whether this is the end that sends.
        is_send: bool,
    },
}

/// One step of training, on one rank or on all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Step {
    /// The rank; `None` where the file speaks for all.
    pub rank: Option<u32>,
    /// Its number.
    pub number: u64,
    /// How long it took.
    pub seconds: f64,
    /// Of that, kernels that compute.
    pub compute_s: Option<f64>,
    /// Of that, collectives, hidden or not.
    pub communication_s: Option<f64>,
    /// Of that, collectives that nothing hides.
    pub exposed_s: Option<f64>,
    /// What computes, by kind, where kernels have names.
    pub kernels: Option<KernelTimes>,
    /// Collectives of process groups by their names: all of the time, and what nothing hides.
    pub groups: BTreeMap<String, [f64; 2]>,
}
