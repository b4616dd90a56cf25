//! What NCCL and RCCL write with `NCCL_DEBUG=INFO`, from 2.4 to 2.30.
//!
//! The formats are those of the libraries' sources; samples of real clusters have shown the traps:
//! rings that are cut, communicators without a name (before 2.16), devices that are made while
//! it runs (2.24), torn lines. Nothing here depends on the order in which ranks write.

use std::collections::BTreeMap;

use super::groups::{self, Join, Notes};
use super::prefix::{Writer, writer};
use super::words::{after, decimal, digits, find, has, number, split, word};
use crate::format::Reading;
use crate::observed::{Cluster, CollectiveKey, InGroup, Kind, Nic, QueuePair, Quote};

/// So many different warnings are told apart.
const MAX_WARNINGS: usize = 200;

/// One rank's process on one GPU, while its lines are read.
#[derive(Debug, Default)]
struct Gpu {
    host: String,
    process: u32,
    device: i32,
    /// Lines that it wrote.
    lines: u64,
    /// What it wrote about a communicator that it has not named yet.
    pending: Notes,
    /// The communicators that it joined; the last is the current one if the library names them
    /// before it writes about them.
    joins: Vec<usize>,
    /// Those of them that it has begun to join.
    begun: Vec<usize>,
    names_first: bool,
    /// How often it called each collective, by the place of its communicator's address.
    calls: BTreeMap<(Kind, u64, u32, usize), u64>,
    /// Addresses of communicators that it called, as lines say them.
    called: Vec<String>,
}

/// What the lines of a file have said so far.
#[derive(Debug, Default)]
pub(super) struct Nccl {
    gpus: Vec<Gpu>,
    /// Which of them writes, by process and device and then by server.
    places: BTreeMap<(u32, i32), BTreeMap<String, usize>>,
    /// The one that wrote the line which is read.
    current: usize,
    joins: Vec<Join>,
    queue_pairs: BTreeMap<(String, u32, u32, u32, bool), QueuePair>,
    /// Lines that were understood.
    pub lines: u64,
    is_rccl: bool,
}

/// One line of the library.
struct Line<'a> {
    writer: Option<Writer<'a>>,
    message: &'a str,
    whole: &'a str,
    number: u64,
}

impl Nccl {
    /// Reads a line; whether it is one of the library's that says anything.
    pub(super) fn line(&mut self, whole: &str, number: u64, reading: &mut Reading<'_>) -> bool {
        let mut rest = whole;
        let mut is_read = false;
        // A torn line may hold the beginning of one and the whole of another.
        while let Some(at) = find(rest, "NCCL ") {
            let (before, behind) = (&rest[..at], &rest[at + 5..]);
            let level =
                ["INFO ", "WARN ", "TRACE ", "CALL "].iter().find(|l| behind.starts_with(**l));
            let Some(level) = level else {
                let message = &rest[at.saturating_sub(usize::from(before.ends_with('R')))..];
                let line = Line { writer: writer(before), message, whole, number };
                is_read |= self.version(&line, reading);
                rest = behind;
                continue;
            };
            let message = &behind[level.len()..];
            let end = find(message, "NCCL INFO ").unwrap_or(message.len());
            let own = message[..end].trim_end();
            let line = Line { writer: writer(before), message: own, whole, number };
            is_read |= match *level {
                "INFO " => self.info(&line, reading),
                "WARN " => warning(&line, reading),
                _ => false,
            };
            rest = message;
        }
        self.lines += u64::from(is_read);
        is_read
    }

    fn info(&mut self, line: &Line<'_>, reading: &mut Reading<'_>) -> bool {
        let Some(writer) = line.writer else { return false };
        self.current = self.place(&writer, &mut reading.observed.cluster);
        self.gpus[self.current].lines += 1;
        let message = line.message.trim_start();
        if let Some(rest) = message.strip_prefix("Channel ") {
            return self.channel(&writer, rest, line, reading);
        }
        if let Some(rest) = message.strip_prefix("Ring ") {
            return match has(rest, " via ") {
                true => self.channel(&writer, rest, line, reading),
                false => self.ring(rest),
            };
        }
        if let Some(rest) = message.strip_prefix("Trees ") {
            return self.trees(rest);
        }
        if message.starts_with("NET/") {
            return self.network(&writer, message, line, reading);
        }
        if message.starts_with("CollNet ") {
            let is_used = has(message, "via COLLNET");
            reading.observed.cluster.net_lines.in_network += u64::from(is_used);
            return is_used;
        }
        if has(message, "comm") && has(message, "anks ") {
            return self.communicator(&writer, message, line, reading);
        }
        self.remark(&writer, message, line, reading)
    }

    /// Lines that are rare.
    fn remark(
        &mut self,
        writer: &Writer<'_>,
        message: &str,
        line: &Line<'_>,
        reading: &mut Reading<'_>,
    ) -> bool {
        if has(message, " coll channels") {
            let notes = self.notes(None);
            notes.channels = digits(message);
            notes.nvls_channels = before(message, " nvls channels");
            notes.collnet_channels = before(message, " collnet channels");
            return true;
        }
        if has(message, ": opCount ") {
            return self.call(message);
        }
        if has(message, " Bytes -> Algo ") {
            return choice(message, reading);
        }
        if let Some((name, value)) = split(message, " set by environment to ") {
            let name = name.rsplit(' ').next().unwrap_or(name).to_owned();
            let value = value.trim_end_matches('.').to_owned();
            let what = format!("environment {name}={value}");
            if reading.observed.evidence.0.len() < MAX_WARNINGS {
                reading.observed.evidence.add(&what, || line.quote(&reading.source.file));
            }
            let values = reading.observed.cluster.environment.entry(name).or_default();
            values.entry(value).or_default().insert(writer.host.to_owned());
            return true;
        }
        if has(message, "GPU Direct RDMA Disabled") {
            let what = if has(message, "distance") { "gdr_distance" } else { "gdr_disabled" };
            reading.observed.evidence.add(what, || line.quote(reading.source.file.as_str()));
            return true;
        }
        if has(message, "NCCL version ") || has(message, "RCCL version") {
            return self.version(line, reading);
        }
        let known = ["GPU Direct RDMA", "Connected all", "threadThresholds", "Tree ", "Pattern "];
        if has(message, "Abort COMPLETE") {
            reading.observed.evidence.add("abort", || line.quote(reading.source.file.as_str()));
            return true;
        }
        known.iter().any(|known| message.starts_with(known))
    }

    fn version(&mut self, line: &Line<'_>, reading: &mut Reading<'_>) -> bool {
        let (library, rest) = match line.message {
            text if has(text, "RCCL version") => ("RCCL", after(text, "RCCL version")),
            text => ("NCCL", after(text, "NCCL version ")),
        };
        let Some(rest) = rest else { return false };
        let rest = rest.trim_start_matches([' ', ':']);
        let is_part = |letter: char| letter.is_ascii_digit() || letter == '.';
        let version = &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())];
        let version = version.trim_end_matches('.');
        if version.is_empty() || !version.contains('.') {
            return false;
        }
        self.is_rccl |= library == "RCCL";
        let key = (library.to_owned(), version.to_owned());
        let entry = reading.observed.cluster.libraries.entry(key).or_default();
        entry.hosts.extend(line.writer.map(|writer| writer.host.to_owned()));
        let file = reading.source.file.as_str();
        entry.quote.get_or_insert_with(|| line.quote(file));
        true
    }

    /// The number of the GPU that writes; mostly it wrote the line before.
    fn place(&mut self, writer: &Writer<'_>, cluster: &mut Cluster) -> usize {
        let is_writer = |gpu: &Gpu| {
            (gpu.process, gpu.device) == (writer.process, writer.device) && gpu.host == writer.host
        };
        if self.gpus.get(self.current).is_some_and(is_writer) {
            return self.current;
        }
        let places = self.places.entry((writer.process, writer.device)).or_default();
        if let Some(place) = places.get(writer.host) {
            return *place;
        }
        let (host, process, device) = (writer.host.to_owned(), writer.process, writer.device);
        cluster.hosts.entry(host.clone()).or_default().processes.insert(process);
        places.insert(host.clone(), self.gpus.len());
        self.gpus.push(Gpu { host, process, device, ..Gpu::default() });
        self.gpus.len() - 1
    }

    /// Where to note what this GPU writes: at the communicator with that address, at its current
    /// one, or at the next that it will name.
    fn notes(&mut self, address: Option<&str>) -> &mut Notes {
        let gpu = &mut self.gpus[self.current];
        let named = address.and_then(|address| {
            gpu.joins.iter().rev().find(|join| self.joins[**join].address == address)
        });
        let current = gpu.joins.last().filter(|_| gpu.names_first);
        match named.or(current) {
            Some(join) => &mut self.joins[*join].notes,
            None => &mut gpu.pending,
        }
    }

    /// `00/24 : 0 7 6 …`, `00/0 : 7[3] -> 8[0] [send] via NET/IB/1/GDRDMA`, and older ones.
    fn channel(
        &mut self,
        writer: &Writer<'_>,
        rest: &str,
        line: &Line<'_>,
        reading: &mut Reading<'_>,
    ) -> bool {
        let Some(channel) = digits::<u32>(rest) else { return false };
        let end = rest.find([':', ' ']).unwrap_or(rest.len());
        let second: Option<u32> = rest[..end].split_once('/').and_then(|(_, n)| n.parse().ok());
        let body = rest[end..].trim_start_matches([' ', ':']);
        let Some((from, to)) = split(body, "->") else {
            let ring: Vec<u32> = body.split_whitespace().map_while(|n| n.parse().ok()).collect();
            let notes = self.notes(None);
            notes.listed_channels = notes.listed_channels.max(second);
            return !ring.is_empty() && notes.headers.insert(channel, ring).is_none_or(|_| true);
        };
        let (Some(from), Some(to)) = (digits::<u32>(from.trim()), digits::<u32>(to.trim())) else {
            return false;
        };
        let Some((_, via)) = split(body, " via ") else { return false };
        let (via, address) = match split(via, " comm ") {
            Some((via, comm)) => (via, comm.split(' ').next()),
            None => (via, None),
        };
        let is_receive = has(body, "[receive]");
        let notes = self.notes(address);
        notes.highest_rank = notes.highest_rank.max(Some(from.max(to)));
        // Connections of channel 00/1 are for sends alone.
        if second != Some(1) {
            match is_receive {
                true => notes.previous.entry((channel, to)).or_insert(from),
                false => notes.next.entry((channel, from)).or_insert(to),
            };
        }
        let is_net = via.starts_with("NET/");
        notes.has_network |= is_net;
        if is_net {
            return connection(writer, via, line, reading);
        }
        let kind = match via {
            "direct shared memory" => "SHM",
            _ => via.split([' ', '(']).next().unwrap_or(via),
        };
        count(&mut reading.observed.cluster.transports, kind);
        true
    }

    /// `00 : prev -> rank -> next`.
    fn ring(&mut self, rest: &str) -> bool {
        let Some(channel) = digits::<u32>(rest) else { return false };
        let Some((_, body)) = rest.split_once(':') else { return false };
        let ranks: Vec<u32> = body.split("->").map_while(|n| n.trim().parse().ok()).collect();
        let [previous, rank, next] = ranks[..] else { return false };
        let notes = self.notes(None);
        notes.next.insert((channel, rank), next);
        notes.previous.insert((channel, rank), previous);
        true
    }

    /// `[0] 1/8/-1->0->-1 [1] …`, before 2.8 with the way down behind `|`.
    fn trees(&mut self, rest: &str) -> bool {
        let notes = self.notes(None);
        let mut is_read = false;
        for part in rest.split('[').skip(1) {
            let Some((channel, tree)) = part.split_once(']') else { continue };
            let tree = tree.split('|').next().unwrap_or(tree).trim();
            let mut steps = tree.rsplit("->");
            let parent = steps.next().and_then(|n| n.trim().parse::<i32>().ok());
            let rank = steps.next().and_then(|n| n.trim().parse::<u32>().ok());
            if let (Ok(channel), Some(rank), Some(parent)) = (channel.parse(), rank, parent) {
                notes.parents.insert((channel, rank), parent);
                is_read = true;
            }
        }
        is_read
    }

    /// `[ncclCommInitRank ]comm 0x… rank 0 nranks 8 … - Init COMPLETE`, `… nNodes 2 …`.
    fn communicator(
        &mut self,
        writer: &Writer<'_>,
        message: &str,
        line: &Line<'_>,
        reading: &mut Reading<'_>,
    ) -> bool {
        if has(message, ": opCount ") {
            return self.call(message);
        }
        let Some(address) = word(message, "comm ") else { return false };
        let rank = number(message, " rank ");
        let size = number(message, "nranks ").or_else(|| number(message, "nRanks "));
        let (Some(rank), Some(size)) = (rank, size) else { return false };
        if let Some(nodes) = number(message, "nNodes ") {
            let notes = self.notes(Some(address));
            notes.nodes = Some(nodes);
            notes.local_ranks = number(message, "localRanks ");
            if 1 < nodes {
                reading.observed.evidence.add("nodes", || line.quote(&reading.source.file));
            }
            return true;
        }
        let is_start = has(message, "Init START");
        let is_complete = has(message, "Init COMPLETE");
        if !is_start && !is_complete {
            if has(message, "Abort COMPLETE") {
                reading.observed.evidence.add("abort", || line.quote(&reading.source.file));
            }
            return has(message, "COMPLETE");
        }
        let host = reading.observed.cluster.hosts.entry(writer.host.to_owned()).or_default();
        host.is_certain = true;
        let bus = word(message, "busId ").map(str::to_owned);
        host.gpus.insert(bus.unwrap_or_else(|| writer.device.to_string()));
        if is_complete {
            *reading.observed.initialised.entry(size).or_default() += 1;
            if size == 1 {
                let what = "joined a communicator of 1";
                reading.observed.evidence.add(what, || line.quote(&reading.source.file));
            }
        }
        let gpu = &mut self.gpus[self.current];
        gpu.names_first |= is_start;
        if is_complete {
            let begun = gpu.begun.iter().rposition(|join| {
                let join = &self.joins[*join];
                join.address == address && join.size == size
            });
            if let Some(begun) = begun {
                self.joins[gpu.begun.remove(begun)].is_complete = true;
                return true;
            }
        } else {
            gpu.begun.push(self.joins.len());
        }
        gpu.joins.push(self.joins.len());
        self.joins.push(Join {
            host: writer.host.to_owned(),
            process: writer.process,
            device: writer.device,
            address: address.to_owned(),
            id: word(message, "commId ").map(str::to_owned),
            rank,
            size,
            is_complete,
            notes: if is_start { Notes::default() } else { std::mem::take(&mut gpu.pending) },
        });
        true
    }

    /// `AllGather: opCount 2 … count 67108864 datatype 7 … [nranks=4] …`.
    fn call(&mut self, message: &str) -> bool {
        let (name, _) = split(message, ": opCount ").unwrap_or_default();
        let Some(kind) = Kind::of(name) else { return false };
        let count: Option<u64> = number(message, " count ");
        let size = number::<usize>(message, "datatype ").and_then(type_bytes);
        let ranks: Option<u32> = number(message, "[nranks=");
        let (Some(count), Some(size)) = (count, size) else { return false };
        let ranks = ranks.unwrap_or(0);
        let parts = match kind {
            Kind::AllGather | Kind::ReduceScatter => u64::from(ranks.max(1)),
            _ => 1,
        };
        let bytes = count.saturating_mul(size).saturating_mul(parts);
        let gpu = &mut self.gpus[self.current];
        let address = word(message, " comm ").unwrap_or_default();
        let place = gpu.called.iter().rposition(|known| known == address).unwrap_or_else(|| {
            gpu.called.push(address.to_owned());
            gpu.called.len() - 1
        });
        *gpu.calls.entry((kind, bytes, ranks, place)).or_default() += 1;
        true
    }

    /// What begins with `NET/`: devices and queue pairs.
    fn network(
        &mut self,
        writer: &Writer<'_>,
        message: &str,
        line: &Line<'_>,
        reading: &mut Reading<'_>,
    ) -> bool {
        if has(message, "GPU Direct RDMA Disabled") {
            let what = if has(message, "distance") { "gdr_distance" } else { "gdr_disabled" };
            reading.observed.evidence.add(what, || line.quote(&reading.source.file));
            return true;
        }
        if let Some(list) = after(message, "Using [") {
            reading.observed.evidence.add("nics_listed", || line.quote(&reading.source.file));
            let host = reading.observed.cluster.hosts.entry(writer.host.to_owned()).or_default();
            devices(&message[message.len() - list.len() - 1..], &mut host.nics);
            return true;
        }
        if let Some(rest) = after(message, "Made virtual device [") {
            let Some(index) = digits(rest) else { return false };
            let host = reading.observed.cluster.hosts.entry(writer.host.to_owned()).or_default();
            let name = word(rest, "name=").unwrap_or_default().to_owned();
            let first = name.split('+').next().unwrap_or(&name);
            let same = host.nics.iter().find(|nic| nic.name == first);
            let link = same.map_or(String::new(), |nic| nic.link.clone());
            let speed_mbps = number(rest, "speed=");
            add_device(&mut host.nics, Nic { index, name, link, speed_mbps, used: 0 });
            return true;
        }
        let number_of = |key: &str| number::<u32>(message, key);
        let queue_pair = number_of(" qpn ").or_else(|| number_of("qp_num="));
        let Some(queue_pair) = queue_pair.or_else(|| number_of(" qp_num ")) else { return false };
        let device =
            number_of("IbDev ").or_else(|| number_of("Dev ")).or_else(|| number_of("dev="));
        let is_remote = has(message, "set_ece") && !has(message, " mtu ");
        let host = writer.host.to_owned();
        let key = (host, writer.process, device.unwrap_or(0), queue_pair, is_remote);
        let entry = self.queue_pairs.entry(key).or_default();
        entry.host = writer.host.to_owned();
        entry.device = device.map_or(String::new(), |device| device.to_string());
        entry.number = queue_pair;
        entry.peer = if is_remote { "the other end".to_owned() } else { String::new() };
        // NCCL prints InfiniBand's code: 1 is 256 bytes, 5 is 4,096.
        let mtu = number_of(" mtu ").filter(|code| (1..=5).contains(code));
        entry.mtu_bytes = mtu.map(|code| 128 << code);
        entry.gid_index = number_of(" GID ");
        if let Some(gid) = entry.gid_index {
            let what = format!("gid {gid}");
            reading.observed.evidence.add(&what, || line.quote(&reading.source.file));
        }
        true
    }

    /// Puts together what the lines of all ranks said.
    pub(super) fn finish(mut self, reading: &mut Reading<'_>) {
        let place = |gpu: &Gpu| (gpu.host.clone(), gpu.process, gpu.device);
        self.gpus.sort_by_cached_key(place);
        let mut calls: BTreeMap<(Kind, u64, u32), u64> = BTreeMap::new();
        for gpu in &self.gpus {
            if let Some(host) = reading.observed.cluster.hosts.get_mut(&gpu.host) {
                host.lines += gpu.lines;
            }
            let mut own: BTreeMap<(Kind, u64, u32), u64> = BTreeMap::new();
            for ((kind, bytes, ranks, _), times) in &gpu.calls {
                *own.entry((*kind, *bytes, *ranks)).or_default() += times;
            }
            for (key, times) in own {
                let most = calls.entry(key).or_default();
                *most = (*most).max(times);
            }
        }
        for ((kind, bytes, ranks), times) in calls {
            let from = "NCCL log, calls of one rank".to_owned();
            let key = CollectiveKey { kind, bytes, ranks, from };
            reading.observed.collectives.0.entry(key).or_default().count += times;
        }
        reading.observed.queue_pairs.extend(self.queue_pairs.into_values());
        let left: Vec<Notes> =
            self.gpus.iter_mut().map(|gpu| std::mem::take(&mut gpu.pending)).collect();
        let known = groups::assemble(self.joins, left, reading);
        for (number, gpu) in self.gpus.into_iter().enumerate() {
            let whose = (reading.observed.sources.len(), number);
            let mut own: BTreeMap<usize, InGroup> = BTreeMap::new();
            for ((kind, bytes, ranks, place), times) in gpu.calls {
                let group = own.entry(place).or_default();
                group.size = group.size.max(ranks);
                group.add(kind, times, bytes);
            }
            let mut called = gpu.called;
            for (place, mut group) in own {
                let address = std::mem::take(&mut called[place]);
                let at = ((gpu.host.clone(), gpu.process, gpu.device), address);
                if let Some(joined) = known.get(&at) {
                    let joined = &reading.observed.communicators[*joined];
                    group.size = joined.size;
                    group.members.clone_from(&joined.members);
                }
                reading.observed.in_groups.push(InGroup { whose, ..group });
            }
        }
        let library = if self.is_rccl { "an RCCL log" } else { "an NCCL log" };
        if 0 < self.lines {
            reading.source.kind = library.to_owned();
        }
    }
}

impl Line<'_> {
    fn quote(&self, file: &str) -> Quote {
        Quote::new(file, self.number, self.whole.trim())
    }
}

/// `NET/IB/1(3)/GDRDMA/Shared`: which device, with GPUDirect or not, through whom.
fn connection(writer: &Writer<'_>, via: &str, line: &Line<'_>, reading: &mut Reading<'_>) -> bool {
    let mut parts = via.split('/').skip(1);
    let name = parts.next().unwrap_or_default();
    let device = parts.next().unwrap_or_default();
    let Some(index) = digits::<u32>(device) else { return false };
    let is_direct = parts.any(|part| part.starts_with("GDRDMA"));
    let cluster = &mut reading.observed.cluster;
    count(&mut cluster.transports, &via[.."NET/".len() + name.len()]);
    cluster.net_lines.all += 1;
    cluster.net_lines.gpu_direct += u64::from(is_direct);
    cluster.net_lines.proxied += u64::from(device.contains('('));
    if let Some(host) = cluster.hosts.get_mut(writer.host) {
        match host.nics.iter_mut().find(|nic| nic.index == index) {
            Some(nic) => nic.used += 1,
            None => host.nics.push(Nic { index, used: 1, ..Nic::default() }),
        }
    }
    let what = match (name, is_direct) {
        ("Socket", _) => Some("net_socket"),
        (_, false) => Some("net_without_gdr"),
        (_, true) => None,
    };
    if let Some(what) = what {
        reading.observed.evidence.add(what, || line.quote(&reading.source.file));
    }
    true
}

fn count(map: &mut BTreeMap<String, u64>, key: &str) {
    match map.get_mut(key) {
        Some(times) => *times += 1,
        None => {
            map.insert(key.to_owned(), 1);
        }
    }
}

/// `[0]mlx5_0:1/RoCE [1]={[0] a:1/IB, [1] b:1/IB} [2]eth0:10.0.0.1<0> [RO]; OOB …`.
fn devices(list: &str, nics: &mut Vec<Nic>) {
    let list = list.split("; OOB").next().unwrap_or(list);
    let mut rest = list;
    while let Some(open) = rest.find('[') {
        rest = &rest[open + 1..];
        let Some(index) = digits::<u32>(rest) else { continue };
        let Some(close) = rest.find(']') else { return };
        rest = &rest[close + 1..];
        if let Some(merged) = rest.strip_prefix("={") {
            let end = merged.find('}').unwrap_or(merged.len());
            let parts = merged[..end].split(',').filter_map(|part| part.rsplit(']').next());
            let parts: Vec<&str> = parts.map(str::trim).collect();
            let names: Vec<&str> = parts.iter().filter_map(|part| part.split(':').next()).collect();
            let link = parts.first().map_or("", |part| part.split_once('/').unwrap_or_default().1);
            let (name, link) = (names.join("+"), link.to_owned());
            add_device(nics, Nic { index, name, link, ..Nic::default() });
            rest = &merged[end..];
            continue;
        }
        let word = rest.split_whitespace().next().unwrap_or_default();
        let name = word.split(':').next().unwrap_or(word).to_owned();
        let link = match word.split_once('/') {
            Some((_, link)) => link.trim_end_matches(';').to_owned(),
            None => "Socket".to_owned(),
        };
        add_device(nics, Nic { index, name, link, ..Nic::default() });
    }
}

fn add_device(nics: &mut Vec<Nic>, nic: Nic) {
    match nics.iter_mut().find(|known| known.index == nic.index) {
        Some(known) => {
            let used = known.used;
            let speed_mbps = nic.speed_mbps.or(known.speed_mbps);
            let link = if nic.link.is_empty() { known.link.clone() } else { nic.link.clone() };
            *known = Nic { used, speed_mbps, link, ..nic };
        }
        None => nics.push(nic),
    }
}

/// `AllGather: 268435456 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}`, and before 2.22
/// `268435456 Bytes -> Algo 1 proto 2 time 123.4`.
fn choice(message: &str, reading: &mut Reading<'_>) -> bool {
    let Some((before, after)) = split(message, " Bytes -> Algo ") else { return false };
    let Some(bytes) = before.rsplit(' ').next().and_then(|n| n.parse().ok()) else { return false };
    let Some(kind) = Kind::of(before).or(Some(Kind::AllReduce)) else { return false };
    let mut words = after.split(' ');
    let algorithm = words.next().unwrap_or_default();
    let protocol = word(after, "proto ").unwrap_or_default();
    let named = |names: &[&str], word: &str| match word.parse::<usize>() {
        Ok(index) => names.get(index).map_or_else(|| word.to_owned(), |name| (*name).to_owned()),
        Err(_) => word.to_owned(),
    };
    let algorithms =
        ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];
    let mut text = format!(
        "{} {}",
        named(&algorithms, algorithm),
        named(&["LL", "LL128", "SIMPLE"], protocol)
    );
    if let Some(channels) = word(after, "={").map(|word| word.trim_end_matches('}')) {
        text += &format!(" channels {channels}");
    }
    if let Some(us) = decimal(after, "time ") {
        text += &format!(", {us} us estimated");
    }
    *reading.observed.choices.entry((kind, bytes, text)).or_default() += 1;
    true
}

fn warning(line: &Line<'_>, reading: &mut Reading<'_>) -> bool {
    let mut what = String::from("warning: ");
    let mut was_digit = false;
    for letter in line.message.chars().take(160) {
        match letter.is_ascii_digit() {
            true if was_digit => {}
            true => what.push('N'),
            false => what.push(letter),
        }
        was_digit = letter.is_ascii_digit();
    }
    let evidence = &mut reading.observed.evidence;
    if evidence.0.len() < MAX_WARNINGS || evidence.0.contains_key(&what) {
        evidence.add(&what, || line.quote(&reading.source.file));
    }
    true
}

/// The number that stands before the first `key`.
fn before(text: &str, key: &str) -> Option<u32> {
    text[..find(text, key)?].rsplit(' ').next()?.parse().ok()
}

/// Bytes of NCCL's data types, by number.
pub(crate) fn type_bytes(number: usize) -> Option<u64> {
    [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1].get(number).copied()
}
