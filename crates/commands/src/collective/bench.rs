//! What a cluster writes down by itself while nccl-tests runs on it: the log of the library, and
//! the counters of its NICs over time.
//!
//! The log has the lines that NCCL prints with `NCCL_DEBUG=INFO` and the subsystems INIT, ENV,
//! GRAPH, NET and TUNING: version, NICs, ranks, rings, connections, queue pairs, channels and what
//! was chosen for each size (`src/init.cc`, `src/transport/net.cc`, `src/transport/net_ib.cc`,
//! `src/enqueue.cc`). The counters are those of node_exporter's InfiniBand collector, as a scraper
//! would have read them at equal times: every size has nccl-tests' 5 runs to warm up and 20 runs
//! out of place and 20 in place, and what a run sends moves at an even pace. Runs vary so that the
//! mean of 20 varies as the table's times do.
//!
//! Where it departs from such files: addresses and process numbers are made up, trees are not
//! printed, and nothing but the benchmark sends.

use std::collections::BTreeMap;
use std::fmt::Write;

use fabric::Fabric;
use fabric::transport::Transport;
use scenario::Loaded;
use traffic::collective::{Collective, Communicator, Detail, Group, Hop, Limit, Wanted, lower};
use traffic::transfers::OpKind;
use traffic::{Transfers, nccl};
use units::{Bytes, Random, Span};

use super::{Report, table};
use crate::engine;
use crate::failure::Failure;

/// Runs of nccl-tests before it measures, and those whose mean it prints.
const WARM_UP: u32 = 5;
const RUNS: u32 = 20;
/// Seconds without traffic before and after.
const IDLE_S: f64 = 1.0;
/// More samples than this are not written.
const MOST_SAMPLES: f64 = 1e6;
/// The beginning of 2026: illustrative.
pub const START_S: u64 = 1_767_225_600;

/// How the log and the counters call a server.
pub(super) fn host(server: usize) -> String {
    format!("node-{server:03}")
}

/// What the NIC library calls itself, and the link of its devices.
fn network(loaded: &Loaded) -> Result<(&'static str, &'static str), Failure> {
    match loaded.scenario.network.transport {
        Transport::Rocev2 | Transport::Rocev1 => Ok(("IB", "RoCE")),
        Transport::Infiniband => Ok(("IB", "IB")),
        other => Err(Failure::Usage(format!(
            "--nccl-log writes what NCCL prints of RoCE and InfiniBand (NET/IB), not of {other:?}"
        ))),
    }
}

/// The log of the library.
pub fn log(loaded: &Loaded, report: &Report) -> Result<String, Failure> {
    let (library, link) = network(loaded)?;
    let fabric = loaded.fabric();
    let gpus: Vec<_> = (0..report.gpus).map(|gpu| fabric.gpu(gpu)).collect();
    let communicator = Communicator::new(fabric, &gpus);
    let channels = report.rows.iter().map(|row| row.channels).max().unwrap_or(1);
    let mut text = String::new();
    let log = Log { loaded, fabric, communicator: &communicator, library };
    let version = serde_json::to_value(loaded.scenario.library.version).unwrap_or_default();
    let version = version.as_str().unwrap_or("2.30");
    for rank in 0..report.gpus as u32 {
        let who = log.who(rank);
        if rank == 0 {
            text += &format!("NCCL version {version}.0+cuda12.9\n");
        }
        let nics = (0..fabric.nics_per_node()).map(|nic| format!("[{nic}]mlx5_{nic}:1/{link}"));
        let nics: Vec<String> = nics.collect();
        let address = log.address(rank as usize / log.per_node());
        let nics = nics.join(" ");
        let _ = writeln!(text, "{who}NET/{library} : Using {nics} [RO]; OOB eth0:{address}<0>");
        for (name, value) in log.environment() {
            let _ = writeln!(text, "{who}{name} set by environment to {value}.");
        }
        let _ = writeln!(text, "{who}ncclCommInitRank {} - Init START", log.joins(rank));
        let (nodes, local) = (report.gpus.div_ceil(log.per_node()), rank as usize % log.per_node());
        let _ = writeln!(
            text,
            "{who}comm {} rank {rank} nRanks {} nNodes {nodes} localRanks {} localRank {local} \
             MNNVL 0",
            log.pointer(rank),
            report.gpus,
            log.per_node().min(report.gpus),
        );
    }
    log.rings(channels, &mut text);
    for rank in 0..report.gpus as u32 {
        let who = log.who(rank);
        let each = (channels / 8).max(1);
        let _ = writeln!(
            text,
            "{who}{channels} coll channels, 0 collnet channels, 0 nvls channels, {channels} p2p \
             channels, {each} p2p channels per peer"
        );
        let _ = writeln!(text, "{who}ncclCommInitRank {} - Init COMPLETE", log.joins(rank));
    }
    let collective = Collective::from_name(report.collective);
    for row in &report.rows {
        // NCCL counts what a rank gives or gets.
        let parts = match collective {
            Some(Collective::AllGather | Collective::ReduceScatter) => report.gpus as u64,
            _ => 1,
        };
        let algorithm = row.algorithm.to_ascii_uppercase().replace('-', "_");
        let protocol = row.protocol.to_ascii_uppercase();
        for rank in 0..report.gpus as u32 {
            let _ = writeln!(
                text,
                "{}{}: {} Bytes -> Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{}}}",
                log.who(rank),
                camel(report.collective),
                row.bytes / parts,
                row.channels.saturating_sub(1),
            );
        }
    }
    Ok(text)
}

/// `all_gather` as NCCL's functions are called.
fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| {
            first.to_ascii_uppercase().to_string() + letters.as_str()
        })
    };
    name.split('_').map(capital).collect()
}

/// Who writes a log.
struct Log<'a> {
    loaded: &'a Loaded,
    fabric: &'a Fabric,
    communicator: &'a Communicator,
    library: &'static str,
}

impl Log<'_> {
    fn per_node(&self) -> usize {
        self.fabric.gpus_per_node().max(1)
    }

    /// What stands before a line.
    fn who(&self, rank: u32) -> String {
        let (server, device) = (rank as usize / self.per_node(), rank as usize % self.per_node());
        let process = 1000 + rank;
        format!("{}:{process}:{} [{device}] NCCL INFO ", host(server), process + 4000)
    }

    fn pointer(&self, rank: u32) -> String {
        format!("0x55d0{:08x}", 0x10_0000 + 0x1000 * rank)
    }

    fn address(&self, server: usize) -> String {
        format!("10.{}.{}.{}", server >> 16 & 255, server >> 8 & 255, server & 255)
    }

    fn joins(&self, rank: u32) -> String {
        let device = rank as usize % self.per_node();
        format!(
            "comm {} rank {rank} nranks {} cudaDev {device} nvmlDev {device} busId {:x} commId \
             0xfa7f10e",
            self.pointer(rank),
            self.communicator.ranks(),
            0x1000 * (device + 1),
        )
    }

    /// Settings that the scenario has and NCCL's default has not.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let library = &self.loaded.scenario.library;
        let pairs = self.loaded.settings().routing.qps;
        let mut all = Vec::new();
        if pairs != 1 {
            all.push(("NCCL_IB_QPS_PER_CONNECTION", pairs.to_string()));
        }
        if let Some(channels) = library.channels {
            all.push(("NCCL_MIN_NCHANNELS", channels.to_string()));
            all.push(("NCCL_MAX_NCHANNELS", channels.to_string()));
        }
        if library.buffer != nccl::Settings::default().buffer {
            all.push(("NCCL_BUFFSIZE", library.buffer.get().to_string()));
        }
        all
    }

    /// Rings, the connections of each rank on them, and their queue pairs.
    fn rings(&self, channels: u32, text: &mut String) {
        let mut hops = Vec::new();
        let mut numbers: BTreeMap<usize, u32> = BTreeMap::new();
        for channel in 0..channels {
            let cross = self.loaded.scenario.library.cross_nic;
            self.communicator.ring(self.fabric, channel, cross, &mut hops);
            let order: Vec<u32> =
                hops.iter().filter(|hop| hop.arrives).map(|hop| hop.rank).collect();
            let words: Vec<String> = order.iter().map(u32::to_string).collect();
            let who = self.who(0);
            let _ = writeln!(text, "{who}Channel {channel:02}/{channels:02} : {}", words.join(" "));
        }
        for channel in 0..channels {
            let cross = self.loaded.scenario.library.cross_nic;
            self.communicator.ring(self.fabric, channel, cross, &mut hops);
            let mut begin = 0;
            let arriving: Vec<usize> = (0..hops.len()).filter(|at| hops[*at].arrives).collect();
            for (number, end) in arriving.iter().enumerate() {
                let next = hops[arriving[(number + 1) % arriving.len()]].rank;
                self.edge(channel, &hops[begin..=*end], next, &mut numbers, text);
                begin = end + 1;
            }
        }
    }

    /// One rank's way to the next.
    fn edge(
        &self,
        channel: u32,
        hops: &[Hop],
        next: u32,
        numbers: &mut BTreeMap<usize, u32>,
        text: &mut String,
    ) {
        let Some(last) = hops.last() else { return };
        let rank = last.rank;
        let device = |rank: u32| rank as usize % self.per_node();
        let ends = format!("{rank}[{}] -> {next}[{}]", device(rank), device(next));
        let nics = (self.fabric.nic_number(last.from), self.fabric.nic_number(last.to));
        let (Some(leaves), Some(enters)) = nics else {
            let who = self.who(rank);
            let _ = writeln!(text, "{who}Channel {channel:02}/0 : {ends} via P2P/CUMEM");
            return;
        };
        let own = |nic: usize| nic % self.fabric.nics_per_node().max(1);
        // Through another GPU of the server first (PXN).
        let through = hops.len().checked_sub(2).and_then(|at| {
            (0..self.communicator.ranks() as u32)
                .find(|other| self.communicator.gpu(*other) == hops[at].to)
        });
        let through = through.map_or(String::new(), |other| format!("({other})"));
        let library = self.library;
        for (writer, nic, way, through) in
            [(rank, leaves, "send", through.as_str()), (next, enters, "receive", "")]
        {
            let who = self.who(writer);
            let number = own(nic);
            let _ = writeln!(
                text,
                "{who}Channel {channel:02}/0 : {ends} [{way}] via \
                 NET/{library}/{number}{through}/GDRDMA"
            );
            for _ in 0..self.loaded.settings().routing.qps {
                let pair = numbers.entry(nic).or_insert(600);
                *pair += 1;
                let _ = writeln!(text, "{who}{}", self.queue_pair(nic, number, *pair));
            }
        }
    }

    fn queue_pair(&self, nic: usize, number: usize, pair: u32) -> String {
        // InfiniBand's code: 1 is 256 bytes, 5 is 4,096.
        let mtu = self.loaded.settings().packet.mtu.get().clamp(256, 4096).ilog2() - 7;
        let begin = format!(
            "NET/IB: NCCL Dev {number} IbDev {number} Port 1 qpn {pair} mtu {mtu} \
             query_ece={{supported=0, vendor_id=0x0, options=0x0, comp_mask=0x0}}"
        );
        match self.loaded.scenario.network.transport {
            Transport::Infiniband => format!("{begin} LID {} subnet-prefix 65152", nic + 1),
            _ => {
                let address = u32::try_from(nic + 1).unwrap_or(u32::MAX).swap_bytes() | 0x0a;
                format!("{begin} GID 3 (0/{address:X}FFFF0000)")
            }
        }
    }
}

/// The counters of all NICs that take part, a sample each `every` from a second since 1970 on.
pub fn counters(
    loaded: &Loaded,
    report: &Report,
    noise: f64,
    (start_s, every): (u64, Span),
) -> Result<String, Failure> {
    let rows = runs(loaded, report, noise)?;
    let end = IDLE_S + rows.last().map_or(0.0, |row| row.from_s + row.takes()) + IDLE_S;
    let every = every.as_secs_f64();
    if every <= 0.0 || MOST_SAMPLES < end / every {
        let reason = format!("--counters-every: {end:.0} s cannot be sampled each {every} s");
        return Err(Failure::Usage(reason));
    }
    let times: Vec<f64> = (0..=(end / every) as u64).map(|at| at as f64 * every).collect();
    let mut nics: BTreeMap<usize, [Vec<f64>; 2]> = BTreeMap::new();
    for at in rows.iter().flat_map(|row| row.nics.keys()) {
        nics.entry(*at).or_insert_with(|| [Vec::new(), Vec::new()]);
    }
    let mut done: BTreeMap<usize, [f64; 2]> = BTreeMap::new();
    let mut next = 0;
    for time in &times {
        let now = time - IDLE_S;
        while let Some(row) = rows.get(next).filter(|row| row.from_s + row.takes() <= now) {
            for (nic, bytes) in &row.nics {
                let sum = done.entry(*nic).or_default();
                *sum = [0, 1].map(|way| sum[way] + bytes[way] * row.lengths.len() as f64);
            }
            next += 1;
        }
        let running = rows.get(next).map(|row| (row, row.progress(now)));
        for (nic, samples) in &mut nics {
            let before = done.get(nic).copied().unwrap_or_default();
            let now = running.as_ref().and_then(|(row, runs)| Some((row.nics.get(nic)?, runs)));
            for way in [0, 1] {
                let more = now.map_or(0.0, |(bytes, runs)| bytes[way] * runs);
                samples[way].push((before[way] + more).floor());
            }
        }
    }
    Ok(page(loaded.fabric(), (start_s, &times), &nics))
}

/// One size of the benchmark, run by run.
struct Runs {
    /// When the first begins.
    from_s: f64,
    /// How long each takes.
    lengths: Vec<f64>,
    /// What each NIC sends and receives in one, frames included.
    nics: BTreeMap<usize, [f64; 2]>,
}

impl Runs {
    fn takes(&self) -> f64 {
        self.lengths.iter().sum()
    }

    /// How many runs are over at a time, with the part of the one that is not.
    fn progress(&self, now: f64) -> f64 {
        let mut left = now - self.from_s;
        let mut runs = 0.0;
        for length in &self.lengths {
            if left <= 0.0 {
                break;
            }
            runs += (left / length).min(1.0);
            left -= length;
        }
        runs
    }
}

fn runs(loaded: &Loaded, report: &Report, noise: f64) -> Result<Vec<Runs>, Failure> {
    let collective = Collective::from_name(report.collective);
    let collective = collective.ok_or_else(|| Failure::Run("not a collective".to_owned()))?;
    let mut random = Random::new(loaded.scenario.seed, "nccl-tests, runs", 0);
    let mut from_s = 0.0;
    let mut all = Vec::new();
    for (row, factors) in report.rows.iter().zip(table::factors(loaded, report, noise)) {
        let mut lengths = vec![row.time_us * 1e-6; WARM_UP as usize];
        for factor in factors {
            // The mean of the runs is what the table prints.
            let spread = noise * f64::from(RUNS).sqrt();
            let draws: Vec<f64> = (0..RUNS).map(|_| (spread * random.normal()).exp()).collect();
            let mean = draws.iter().sum::<f64>() / f64::from(RUNS);
            lengths.extend(draws.iter().map(|draw| row.time_us * 1e-6 * factor * draw / mean));
        }
        let nics = sent(loaded, collective, report.gpus, Bytes::new(row.bytes))?;
        all.push(Runs { from_s, lengths, nics });
        from_s += all.last().map_or(0.0, Runs::takes);
    }
    Ok(all)
}

/// What each NIC sends and receives in one run of a collective, frames included.
pub fn sent(
    loaded: &Loaded,
    collective: Collective,
    gpus: usize,
    bytes: Bytes,
) -> Result<BTreeMap<usize, [f64; 2]>, Failure> {
    let fabric = loaded.fabric();
    let gpus: Vec<_> = (0..gpus).map(|gpu| fabric.gpu(gpu)).collect();
    let settings = &engine::library(loaded);
    let mut transfers = Transfers::new();
    let label = transfers.label(collective.name());
    let (detail, weights, limit) = (Detail::Folded, &[][..], Limit::NONE);
    let wanted = Wanted { collective, bytes, settings, detail, weights, limit, label };
    let mut group = Group::new(Communicator::new(fabric, &gpus));
    lower(fabric, &mut group, &wanted, &mut transfers, &[])?;
    let mut nics: BTreeMap<usize, [f64; 2]> = BTreeMap::new();
    let mut add = |connection, bytes: Bytes| {
        let ends = transfers.connections()[connection];
        for (way, node) in [ends.from, ends.to].into_iter().enumerate() {
            if let Some(nic) = fabric.nic_number(node) {
                nics.entry(nic).or_default()[way] += bytes.as_f64() / settings.wire_efficiency;
            }
        }
    };
    for op in transfers.ops().iter() {
        match &op.kind {
            OpKind::Send { connection, bytes } => add(*connection, *bytes),
            OpKind::Coupled { edges, bytes, .. } => {
                transfers.coupled(edges).iter().for_each(|edge| add(*edge, *bytes));
            }
            OpKind::Together { messages } => {
                transfers.messages(messages).iter().for_each(|&(edge, bytes)| add(edge, bytes));
            }
            OpKind::Wait { .. } => {}
        }
    }
    Ok(nics)
}

fn page(
    fabric: &Fabric,
    (start_s, times): (u64, &[f64]),
    nics: &BTreeMap<usize, [Vec<f64>; 2]>,
) -> String {
    let each = fabric.nics_per_node().max(1);
    let mut text = String::new();
    let families = [
        ("node_infiniband_port_data_transmitted_bytes", "Bytes sent by a port."),
        ("node_infiniband_port_data_received_bytes", "Bytes received by a port."),
    ];
    for (way, (name, help)) in families.into_iter().enumerate() {
        let _ = writeln!(text, "# TYPE {name} counter\n# HELP {name} {help}");
        for (nic, samples) in nics {
            let (server, device) = (host(nic / each), nic % each);
            for (time, value) in times.iter().zip(&samples[way]) {
                let _ = writeln!(
                    text,
                    "{name}_total{{instance=\"{server}\",device=\"mlx5_{device}\",port=\"1\"}} \
                     {value} {:.3}",
                    start_s as f64 + time
                );
            }
        }
    }
    text + "# EOF\n"
}
