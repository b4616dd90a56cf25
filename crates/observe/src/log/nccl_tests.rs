//! Tables of nccl-tests and rccl-tests, text of all versions.
//!
//! Columns are found from the header's words and from the right: versions differ in whether there
//! is a root, a count of wrong results or an error, statistics of iterations, a timestamp. Lines
//! of the library may stand between rows, and four programs may write into each other.

use std::collections::BTreeSet;

use super::also;
use super::words::{after, find, has, number, word};
use crate::format::Reading;
use crate::observed::{Benchmark, BenchmarkRow, CollectiveKey, Kind};

/// Names of programs, which is how a table says what it ran.
const PROGRAMS: [&str; 11] = [
    "all_reduce_perf",
    "all_gather_perf",
    "reduce_scatter_perf",
    "alltoallv_perf",
    "alltoall_perf",
    "broadcast_perf",
    "reduce_perf",
    "sendrecv_perf",
    "hypercube_perf",
    "gather_perf",
    "scatter_perf",
];

/// The columns of a table, as its header has them.
#[derive(Clone, Debug, Default)]
struct Columns {
    /// Words of a row, from its beginning to its time.
    before_time: usize,
    /// Words of each of the two halves.
    half: usize,
}

/// What the lines of a file have said so far.
#[derive(Debug, Default)]
pub(super) struct NcclTests {
    columns: Option<Columns>,
    current: Benchmark,
    /// Tables of other programs that write at the same time.
    beside: Vec<Benchmark>,
    /// Programs that began and have not ended.
    programs: usize,
    hosts: BTreeSet<String>,
    ranks: BTreeSet<(String, u32)>,
    /// The program as a command line names it; the last.
    program: Option<&'static str>,
    is_open: bool,
    /// Tables that ended.
    tables: usize,
}

impl NcclTests {
    /// Reads a line; whether it is of a table.
    pub(super) fn line(&mut self, line: &str, number: u64, reading: &mut Reading<'_>) -> bool {
        if has(line, "_perf") {
            let program = PROGRAMS.iter().find(|program| line.contains(**program));
            self.program = program.copied().or(self.program);
        }
        if let Some(at) = find(line, "#") {
            return self.comment(line[at + 1..].trim(), reading);
        }
        let Some(columns) = &self.columns else { return false };
        let Some(row) = row(line, columns) else { return false };
        let sums = [" sum ", " prod ", " min ", " max ", " avg "].iter().any(|op| has(line, op));
        self.is_open = true;
        let table = self.table_of(&row);
        if table.rows.is_empty() {
            table.line = number;
        }
        table.rows.push(row);
        table.sums |= sums;
        true
    }

    /// The table that a row belongs to. Where several programs write at once, sizes that fall
    /// begin another's.
    fn table_of(&mut self, row: &BenchmarkRow) -> &mut Benchmark {
        let follows =
            |table: &Benchmark| table.rows.last().is_none_or(|last| last.bytes < row.bytes);
        if self.programs < 2 || follows(&self.current) {
            return &mut self.current;
        }
        let place = self.beside.iter().position(follows);
        let place = place.unwrap_or_else(|| {
            self.beside.push(Benchmark::default());
            self.beside.len() - 1
        });
        &mut self.beside[place]
    }

    fn comment(&mut self, text: &str, reading: &mut Reading<'_>) -> bool {
        if let Some(rest) = text.strip_prefix("Rank") {
            return self.rank(rest, reading);
        }
        if text.contains("algbw") && text.contains("busbw") {
            self.columns = columns(text);
            return self.columns.is_some();
        }
        if let Some(average) = after(text, "Avg bus bandwidth") {
            let average = average.trim_start_matches([' ', ':']).split_whitespace().next();
            self.current.average_busbw = average.and_then(|number| number.parse().ok());
            self.current.is_complete = self.current.average_busbw.is_some();
            self.close(reading);
            return true;
        }
        if text.starts_with("Out of bounds values") {
            let wrong = text.split(':').nth(1).and_then(|n| n.split_whitespace().next());
            self.current.wrong = wrong.and_then(|n| n.parse().ok()).unwrap_or(0);
            return true;
        }
        if let Some(code) = number::<u32>(text, "nccl-library=").filter(|code| 2000 < *code) {
            let (thousands, rest) = if code < 10_000 { (1000, 10) } else { (10_000, 100) };
            let (minor, patch) = (code % thousands / rest, code % rest);
            let version = format!("{}.{minor}.{patch}", code / thousands);
            let libraries = &mut reading.observed.cluster.libraries;
            libraries.entry(("NCCL".to_owned(), version)).or_default();
            return true;
        }
        if text.starts_with("nThread") {
            // Another table begins: the one before has no end.
            if self.is_open && self.programs < 2 {
                self.close(reading);
            }
            self.programs += 1;
            return true;
        }
        let known =
            ["Using devices", "Collective test", "size", "(B)", "out-of-place", "nccl-tests"];
        known.iter().any(|known| text.starts_with(known))
    }

    /// `0 Group 0 Pid 123 on host device 0 [0000:1b:00] NVIDIA H100`.
    fn rank(&mut self, rest: &str, reading: &mut Reading<'_>) -> bool {
        let rank = rest.split_whitespace().next().and_then(|rank| rank.parse::<u32>().ok());
        let process = number::<u32>(rest, "Pid ");
        let (Some(rank), Some(process), Some(host)) = (rank, process, word(rest, " on ")) else {
            return false;
        };
        if rank == 0 && self.current.rows.is_empty() && self.hosts.len() != 1 {
            // A new list; where several programs write at once they all have a rank 0.
            self.ranks.clear();
            self.hosts.clear();
        }
        self.hosts.insert(host.to_owned());
        self.ranks.insert((host.to_owned(), rank));
        let cluster = &mut reading.observed.cluster;
        let entry = cluster.hosts.entry(host.to_owned()).or_default();
        entry.is_certain = true;
        entry.processes.insert(process);
        let bus = rest.split_once('[').and_then(|(_, bus)| bus.split_once(']'));
        let device = word(rest, "device ").unwrap_or_default();
        // Old versions print 0x00 for every bus.
        let gpu = bus.map(|(bus, _)| bus).filter(|bus| bus.contains(':')).unwrap_or(device);
        entry.benchmark_gpus.insert(gpu.to_owned());
        if let Some((_, name)) = bus {
            cluster.gpu_names.insert(name.trim().to_owned());
        }
        true
    }

    fn close(&mut self, reading: &mut Reading<'_>) {
        let mut table = std::mem::take(&mut self.current);
        if !self.beside.is_empty() {
            self.current = self.beside.remove(0);
        }
        self.programs = self.programs.saturating_sub(1);
        self.is_open = !self.current.rows.is_empty();
        self.tables += 1;
        let highest = self.ranks.iter().map(|(_, rank)| rank + 1).max();
        let listed = highest.filter(|ranks| *ranks as usize == self.ranks.len());
        table.name = self.program.unwrap_or("nccl-tests").to_owned();
        table.kind = self.program.and_then(Kind::of);
        table.kind = table.kind.or_else(|| listed.and_then(|ranks| kind_of(&table, ranks)));
        table.ranks = listed.or_else(|| ranks_of(&table));
        table.nodes = u32::try_from(self.hosts.len()).ok().filter(|nodes| 0 < *nodes);
        table.file.clone_from(&reading.source.file);
        let cluster = &mut reading.observed.cluster;
        cluster.ranks = cluster.ranks.max(table.ranks);
        cluster.nodes = cluster.nodes.max(table.nodes);
        add(&table, "nccl-tests", reading);
        reading.observed.benchmarks.push(table);
    }

    /// Closes a table that has no end.
    pub(super) fn finish(mut self, reading: &mut Reading<'_>) {
        while self.is_open {
            reading.source.problem(0, "the last table of nccl-tests has no end");
            self.close(reading);
        }
        if 0 < self.tables {
            also(reading, "nccl-tests output");
        }
    }
}

/// Counts the rows of a table as collectives.
pub(crate) fn add(table: &Benchmark, from: &str, reading: &mut Reading<'_>) {
    let Some(kind) = table.kind else { return };
    for row in &table.rows {
        let mut add = |place: &str, us: f64, busbw: f64| {
            let (bytes, ranks) = (row.bytes, table.ranks.unwrap_or(0));
            let key = CollectiveKey { kind, bytes, ranks, from: format!("{from}, {place}") };
            let stats = reading.observed.collectives.add(key, Some(us));
            stats.printed_busbw = Some(busbw);
        };
        add("out of place", row.time_us, row.busbw);
        if let (Some(us), Some(busbw)) = (row.in_place_us, row.in_place_busbw) {
            add("in place", us, busbw);
        }
    }
}

/// Where the columns are: the time is the first word of two equal halves.
fn columns(header: &str) -> Option<Columns> {
    let words: Vec<&str> = header.split_whitespace().collect();
    let first = words.iter().position(|word| *word == "time" || *word == "cpu_time")?;
    let second = first + 1 + words[first + 1..].iter().position(|w| w.ends_with("time"))?;
    Some(Columns { before_time: first, half: second - first })
}

/// A row: size, count, type, operation (which may be empty), root (which may be absent), halves.
fn row(line: &str, columns: &Columns) -> Option<BenchmarkRow> {
    // Launchers put words before; the size and the count are the first two whole numbers in a row.
    let is_whole = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let mut all = line.split_whitespace();
    let (mut size, mut count) = (all.next()?, all.next()?);
    let kind = loop {
        let word = all.next()?;
        let is_type = word.starts_with(|letter: char| letter.is_ascii_alphabetic());
        if is_type && is_whole(size) && is_whole(count) {
            break word;
        }
        (size, count) = (count, word);
    };
    let mut words = Vec::with_capacity(16);
    words.extend([size, count, kind]);
    words.extend(all);
    let bytes = words[0].parse().ok()?;
    // An operation that is left out makes the row one word shorter.
    let has_time = |at: usize| words.get(at).is_some_and(|word| word.parse::<f64>().is_ok());
    let full = columns.before_time + columns.half;
    let time = match words.len() {
        length if length + 1 < full => return None,
        length if full + columns.half <= length => columns.before_time,
        _ if has_time(columns.before_time - 1) && words[columns.before_time - 1].contains('.') => {
            columns.before_time - 1
        }
        _ => columns.before_time,
    };
    let value = |at: usize| words.get(at)?.parse::<f64>().ok().filter(|n| n.is_finite());
    let (time_us, busbw) = (value(time), value(time + 2));
    let other = time + columns.half;
    let (in_place_us, in_place_busbw) = (value(other), value(other + 2));
    Some(BenchmarkRow {
        bytes,
        time_us: time_us.or(in_place_us)?,
        busbw: busbw.or(in_place_busbw)?,
        in_place_us,
        in_place_busbw,
    })
}

/// What a table ran that does not say so: the factor between the two bandwidths tells it, where
/// something was summed up. All-gathers and all-to-alls have the same.
fn kind_of(table: &Benchmark, ranks: u32) -> Option<Kind> {
    let row = table.rows.iter().max_by_key(|row| row.bytes).filter(|_| table.sums && 2 < ranks)?;
    let factor = row.busbw / (row.bytes as f64 / row.time_us / 1e3);
    let kinds = [Kind::AllReduce, Kind::ReduceScatter, Kind::Reduce];
    kinds.into_iter().find(|kind| (factor / kind.bus_factor(ranks) - 1.0).abs() < 0.02)
}

/// The number of ranks that bus and algorithm bandwidth tell, where the row says enough.
fn ranks_of(table: &Benchmark) -> Option<u32> {
    let kind = table.kind?;
    let row = table.rows.iter().max_by_key(|row| row.bytes)?;
    let algbw = row.bytes as f64 / row.time_us / 1e3;
    let factor = row.busbw / algbw;
    let ranks = match kind {
        Kind::AllReduce => 2.0 / (2.0 - factor),
        Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll => 1.0 / (1.0 - factor),
        _ => return None,
    };
    // Three digits are printed: beyond some 32 ranks neighbours look alike.
    let rounded = ranks.round();
    ((1.0..=32.0).contains(&rounded) && (ranks - rounded).abs() < 0.2).then_some(rounded as u32)
}
