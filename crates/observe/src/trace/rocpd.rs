//! rocpd: the SQLite database that rocprofv3 writes from ROCm 7 on, and the one of the older RPD
//! tracer.
//!
//! rocprofv3's tables end in an identity of the run (`rocpd_kernel_dispatch_0000…`); several runs
//! may be merged into one file, each with its own tables. Kernels have times and a symbol; calls of
//! RCCL are regions whose arguments (count, datatype) stand in a table of their own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Cursor};

use super::rocprof::Kernels;
use super::sqlite::{Database, MAGIC, Pages, Table, Value};
use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{CollectiveKey, Kind};
use crate::records::{type_bytes, whole};

/// Such a database.
pub const FORMAT: Format =
    Format { name: "rocpd database", unit: "kernels and calls", recognises, read };

fn recognises(input: &Input<'_>) -> bool {
    let head = input.head();
    head.starts_with(MAGIC) && memchr::memmem::find(head, b"rocpd_").is_some()
}

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let pages: Box<dyn Pages> = match &input.path {
        Some(path) => Box::new(BufReader::new(File::open(path)?)),
        None => Box::new(Cursor::new(whole(input)?)),
    };
    let mut database = Database::open(pages)?;
    let tables = database.tables.clone();
    let runs = tables.iter().filter_map(|table| run_of(&table.name, "rocpd_kernel_dispatch"));
    let runs: Vec<String> = runs.map(str::to_owned).collect();
    for run in &runs {
        read_run(&mut database, &tables, run, reading)?;
    }
    if runs.is_empty() {
        read_rpd(&mut database, &tables, reading)?;
    }
    if reading.source.read == 0 {
        return Err(ReadError::new("the database has no kernels: were they traced?"));
    }
    Ok(())
}

/// What stands behind the name of a table: the identity of its run.
fn run_of<'a>(table: &'a str, name: &str) -> Option<&'a str> {
    let rest = table.trim_start_matches('_').strip_prefix(name)?;
    (rest.is_empty() || rest.starts_with('_')).then_some(rest)
}

/// The table of a run.
fn table<'a>(tables: &'a [Table], name: &str, run: &str) -> Option<&'a Table> {
    tables.iter().find(|table| run_of(&table.name, name) == Some(run))
}

/// A column of texts by the number of their row.
fn texts(
    database: &mut Database<'_>,
    table: Option<&Table>,
    columns: &[&str],
) -> Result<BTreeMap<i64, String>, ReadError> {
    let mut texts = BTreeMap::new();
    let Some(table) = table else { return Ok(texts) };
    let id = table.column("id");
    let places: Vec<usize> = columns.iter().filter_map(|name| table.column(name)).collect();
    database.rows(table, |row| {
        let text = places.iter().find_map(|at| row[*at].text().filter(|text| !text.is_empty()));
        if let (Some(id), Some(text)) = (id.and_then(|at| row[at].whole()), text) {
            texts.insert(id, text.to_owned());
        }
    })?;
    Ok(texts)
}

/// One run of rocprofv3: its kernels, and its calls of RCCL.
fn read_run(
    database: &mut Database<'_>,
    tables: &[Table],
    run: &str,
    reading: &mut Reading<'_>,
) -> Result<(), ReadError> {
    let strings = texts(database, table(tables, "rocpd_string", run), &["string"])?;
    let symbols = table(tables, "rocpd_info_kernel_symbol", run);
    let symbols =
        texts(database, symbols, &["display_name", "formatted_kernel_name", "kernel_name"])?;
    let hosts = table(tables, "rocpd_info_node", run);
    for host in texts(database, hosts, &["hostname"])?.into_values() {
        reading.observed.cluster.hosts.entry(host).or_default().is_certain = true;
    }
    let calls = calls(database, tables, run, &strings)?;
    let mut kernels = Kernels::default();
    if let Some(dispatches) = table(tables, "rocpd_kernel_dispatch", run) {
        let column = |name: &str| dispatches.column(name);
        let times = [column("start"), column("end")];
        let names = [column("kernel_id"), column("region_name_id")];
        let agent = column("agent_id");
        // Kernels of all GPUs of a process stand in one table.
        let mut gpus: BTreeMap<i64, Kernels> = BTreeMap::new();
        database.rows(dispatches, |row| {
            let of = |at: Option<usize>| at.map(|at| &row[at]);
            let [start, end] = times.map(|at| of(at).and_then(Value::number));
            let [symbol, region] = names.map(|at| of(at).and_then(Value::whole));
            let name = symbol.and_then(|id| symbols.get(&id));
            let name = name.or_else(|| region.and_then(|id| strings.get(&id)));
            match (name, start, end) {
                (Some(name), Some(start), Some(end)) => {
                    let gpu = of(agent).and_then(Value::whole).unwrap_or(0);
                    let kernels = gpus.entry(gpu).or_default();
                    kernels.add(name, start, end, calls.is_empty(), reading);
                }
                _ => reading.source.skipped += 1,
            }
        })?;
        let mut gpus = gpus.into_values();
        kernels = gpus.next().unwrap_or_default();
        gpus.for_each(|kernels| kernels.finish(reading));
    }
    kernels.finish(reading);
    for ((kind, bytes), (count, times)) in calls {
        reading.source.read += count;
        let from = "rocprofv3, calls of RCCL".to_owned();
        let key = CollectiveKey { kind, bytes, ranks: 0, from };
        reading.observed.collectives.add_rank(key, count, &times);
    }
    Ok(())
}

/// Calls of collectives, by kind and size: how many. Times of calls are the host's and tell nothing
/// of the network, so there are none.
type Calls = BTreeMap<(Kind, u64), (u64, Vec<f64>)>;

fn calls(
    database: &mut Database<'_>,
    tables: &[Table],
    run: &str,
    strings: &BTreeMap<i64, String>,
) -> Result<Calls, ReadError> {
    let mut found = Calls::new();
    let Some(regions) = table(tables, "rocpd_region", run) else { return Ok(found) };
    let (name, event) = (regions.column("name_id"), regions.column("event_id"));
    let mut events: BTreeMap<i64, Kind> = BTreeMap::new();
    let mut without = Vec::new();
    database.rows(regions, |row| {
        let of = |at: Option<usize>| at.and_then(|at| row[at].whole());
        let name = of(name).and_then(|id| strings.get(&id));
        let Some(kind) = name.and_then(|name| collective(name)) else { return };
        match of(event) {
            Some(event) => drop(events.insert(event, kind)),
            None => without.push(kind),
        }
    })?;
    let mut arguments: BTreeMap<i64, (Option<u64>, Option<u64>)> = BTreeMap::new();
    if let Some(table) = table(tables, "rocpd_arg", run) {
        let [event, name, value] = ["event_id", "name", "value"].map(|name| table.column(name));
        database.rows(table, |row| {
            let text = |at: Option<usize>| at.and_then(|at| row[at].text());
            let event = event.and_then(|at| row[at].whole()).filter(|at| events.contains_key(at));
            let (Some(event), Some(name)) = (event, text(name)) else { return };
            let value = text(value).unwrap_or_default();
            let known = arguments.entry(event).or_default();
            match name {
                "count" | "sendcount" | "recvcount" => known.0 = value.parse().ok(),
                "datatype" => known.1 = size_of(value),
                _ => {}
            }
        })?;
    }
    for (event, kind) in events {
        let bytes = match arguments.get(&event) {
            Some((Some(count), Some(size))) => count.saturating_mul(*size),
            _ => 0,
        };
        found.entry((kind, bytes)).or_default().0 += 1;
    }
    without.into_iter().for_each(|kind| found.entry((kind, 0)).or_default().0 += 1);
    Ok(found)
}

/// The collective that a call of RCCL is; initialisation and the like are none.
fn collective(name: &str) -> Option<Kind> {
    let call = name.strip_prefix("nccl").or_else(|| name.strip_prefix("mscclpp_nccl"))?;
    let is_other = ["Comm", "Group", "Get", "RedOp", "Mem", "Debug"];
    if is_other.iter().any(|other| call.starts_with(other)) {
        return None;
    }
    Kind::of(call)
}

/// Bytes of a data type, by its number or name (`ncclBfloat16`, `9`).
fn size_of(text: &str) -> Option<u64> {
    match text.parse() {
        Ok(number) => crate::log::type_bytes(number),
        Err(_) => type_bytes(text),
    }
}

/// The RPD tracer's database: operations with the numbers of their strings.
fn read_rpd(
    database: &mut Database<'_>,
    tables: &[Table],
    reading: &mut Reading<'_>,
) -> Result<(), ReadError> {
    let strings = texts(database, table(tables, "rocpd_string", ""), &["string"])?;
    let Some(operations) = table(tables, "rocpd_op", "") else { return Ok(()) };
    let column = |name: &str| operations.column(name);
    let [start, end] = ["start", "end"].map(column);
    let [name, kind, gpu] = ["description_id", "opType_id", "gpuId"].map(column);
    let mut gpus: BTreeMap<i64, Kernels> = BTreeMap::new();
    database.rows(operations, |row| {
        let text = |at: Option<usize>| at.and_then(|at| strings.get(&row[at].whole()?));
        let time = |at: Option<usize>| at.and_then(|at| row[at].number());
        let is_kernel = text(kind).is_none_or(|kind| kind.contains("Kernel"));
        match (text(name).filter(|_| is_kernel), time(start), time(end)) {
            (Some(name), Some(start), Some(end)) => {
                let gpu = gpu.and_then(|at| row[at].whole()).unwrap_or(0);
                gpus.entry(gpu).or_default().add(name, start, end, true, reading);
            }
            _ => reading.source.skipped += 1,
        }
    })?;
    gpus.into_values().for_each(|kernels| kernels.finish(reading));
    Ok(())
}
