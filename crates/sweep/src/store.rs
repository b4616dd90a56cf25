//! What a folder of results holds, and how it gets there.
//!
//! ```text
//! grid.toml        the grid as it was read
//! plan.jsonl       every case with its hash
//! segments/        finished cases, some at a time: SHARD.ATTEMPT.NUMBER.CHECKSUM.parquet
//! shards/          what a shard's segments become at its end: SHARD.ATTEMPT.CHECKSUM.parquet
//! index.json       the files of `segments` and `shards`
//! results.parquet  one row for each case, made by merging; machine.parquet what it cost
//! ```
//!
//! A file is written under a name of its own that begins with a dot, synced, and renamed: it is
//! there whole or not at all. Its last word is the checksum of its content. Rows are told apart by
//! hash, so that nothing depends on who wrote them, how often, or in which file they stand. A file
//! goes away only after another one that has its rows is there.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use commands::Failure;
use exports::table::{Column, Form, Table};
use scenario::hash::hash_bytes;
use serde::Serialize;

/// What became of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Which case.
    pub hash: String,
    /// The version of fatflow that ran it.
    pub version: String,
    /// Its measures, in the order of the plan.
    pub measures: Vec<Option<f64>>,
    /// Why there are none.
    pub error: Option<String>,
    /// What it cost the machine.
    pub machine: Machine,
}

/// What a case cost the machine that ran it.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Seconds on the clock.
    pub wall_s: f64,
    /// Seconds of the processor.
    pub cpu_s: f64,
    /// The most memory that the process had used by then, with all cases before and beside it.
    pub peak_rss_bytes: u64,
    /// The machine.
    pub host: String,
    /// The process.
    pub attempt: String,
    /// What it worked on.
    pub shard: String,
}

/// The folders of data files.
pub(crate) const SEGMENTS: &str = "segments";
pub(crate) const SHARDS: &str = "shards";

/// Temporary files older than this belong to nobody: one lives for a moment.
const ABANDONED: Duration = Duration::from_secs(600);

/// Columns that are no measures.
const OWN: [&str; 9] =
    ["hash", "version", "error", "wall_s", "cpu_s", "peak_rss_bytes", "host", "attempt", "shard"];

/// A failure to do something with a file, in words; a full disk is called that.
pub(crate) fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let kinds =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    Failure::Run(match kinds.contains(&error.kind()) {
        true => format!(
            "the disk is full: cannot {what} `{path}` ({error}); what was written before is kept: \
             make room and run the same again"
        ),
        false => format!("cannot {what} `{path}`: {error}"),
    })
}

/// Writes a file whole or not at all, and makes sure that it stays.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| failed("create", folder, &error))?;
    // Somebody may have swept the temporary file if this process slept for long: once more then.
    for attempt in 0.. {
        let temporary = folder.join(temporary_name());
        let written = File::create_new(&temporary).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        if let Err(error) = written {
            // What could not be written is not needed; if it stays, it is ignored.
            let _ = fs::remove_file(&temporary);
            return Err(failed("write", path, &error));
        }
        match fs::rename(&temporary, path) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < 3 => {}
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                return Err(failed("write", path, &error));
            }
        }
    }
    // The name must be as durable as the content.
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failed("sync", folder, &error))
}

/// A name that no other process and no other call has. Machines in namespaces may share a host's
/// name and the numbers of processes.
fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".tmp-{}-{number}", attempt())
}

/// Whether anything can be written in a folder: tries a file as large as one of results.
pub(crate) fn probe(folder: &Path) -> Result<(), Failure> {
    let path = folder.join(temporary_name());
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(&[0; 1 << 16])?;
        file.sync_all()
    });
    // What could not be written need not be there.
    let _ = fs::remove_file(&path);
    written.map_err(|error| failed("write", &path, &error))
}

/// The name and the bytes of the one file of results in a folder of its own.
pub fn only_file(out: &Path) -> Result<(String, Vec<u8>), Failure> {
    match &names(out)?[..] {
        [name] => {
            let path = out.join(name);
            let bytes = fs::read(&path).map_err(|error| failed("read", &path, &error))?;
            let name = name.split_once('/').map_or(&**name, |(_, name)| name);
            Ok((name.to_owned(), bytes))
        }
        names => Err(Failure::Run(format!("{} files of results, not one", names.len()))),
    }
}

/// Keeps a file of results that came from another machine; how many cases it holds.
pub fn take(out: &Path, name: &str, bytes: Vec<u8>, measures: &[String]) -> Result<usize, Failure> {
    let refused = |why: &str| Failure::Run(format!("results `{name}` are refused: {why}"));
    let words: Vec<&str> = name.split('.').collect();
    let [_, _, checksum, "parquet"] = words[..] else {
        return Err(refused("this is no name of a file of results"));
    };
    if name.contains(['/', '\\']) || name.starts_with('.') {
        return Err(refused("this is no name of a file"));
    }
    if hash_bytes(&bytes).to_string() != checksum {
        return Err(refused("the checksum in the name is another"));
    }
    let table = exports::parquet::read(bytes.clone());
    let table = table.map_err(|error| refused(&error.to_string()))?;
    let records = records(&table, measures).ok_or_else(|| refused("a measure is missing"))?;
    replace(&out.join(SHARDS).join(name), &bytes)?;
    Ok(records.len())
}

/// The name of this machine.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_alphanumeric() || *c == '-').collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// A word for this process that no other has, on this machine or another.
pub fn attempt() -> String {
    let moment = now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{:x}", host(), std::process::id(), moment.as_nanos())
}

#[expect(clippy::disallowed_methods, reason = "names of files, never a result")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Everything in a folder of results.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    pub(crate) files: Vec<DataFile>,
    /// Files that cannot be trusted, and why; their cases count as not done.
    pub(crate) damaged: Vec<Damaged>,
    /// The hashes of results without a measure that is wanted: kept, and no results of this plan.
    pub(crate) lacking: Vec<String>,
}

/// A file of results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DataFile {
    /// Relative to the folder.
    pub(crate) name: String,
    pub(crate) rows: usize,
    pub(crate) checksum: String,
    #[serde(skip)]
    pub(crate) shard: String,
}

/// A file that cannot be trusted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Damaged {
    /// Relative to the folder.
    pub file: String,
    /// What is wrong with it.
    pub why: String,
}

/// Reads all records of a folder; if a shard is named, those of its files that hold these measures
/// and no others. Files come and go while others work: if one is gone its rows are in another, and
/// everything is read again.
pub(crate) fn read(
    out: &Path,
    measures: &[String],
    shard: Option<&str>,
) -> Result<Contents, Failure> {
    for _ in 0..100 {
        if let Some(contents) = read_once(out, measures, shard)? {
            return Ok(contents);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(Failure::Run(format!("the files of `{}` do not stay while they are read", out.display())))
}

fn read_once(
    out: &Path,
    measures: &[String],
    shard: Option<&str>,
) -> Result<Option<Contents>, Failure> {
    let mut contents = Contents::default();
    for name in names(out)? {
        let (_, file) = name.split_once('/').expect("a folder and a name");
        let words: Vec<&str> = file.split('.').collect();
        let (Some(own), Some(checksum)) = (words.first(), words.iter().rev().nth(1)) else {
            continue;
        };
        if shard.is_some_and(|shard| shard != *own) {
            continue;
        }
        let bytes = match fs::read(out.join(&name)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &out.join(&name), &error)),
        };
        if hash_bytes(&bytes).to_string() != *checksum {
            let why = format!("its {} bytes do not have the checksum of its name", bytes.len());
            contents.damaged.push(Damaged { file: name, why });
            continue;
        }
        let (own, checksum) = ((*own).to_owned(), (*checksum).to_owned());
        let table = match exports::parquet::read(bytes) {
            Ok(table) => table,
            Err(error) => {
                contents.damaged.push(Damaged { file: name, why: error.to_string() });
                continue;
            }
        };
        let holds_more = measures.len() + OWN.len() < table.columns().len();
        if shard.is_some() && holds_more {
            continue;
        }
        match records(&table, measures) {
            Some(records) => {
                let rows = records.len();
                contents.files.push(DataFile { name, rows, checksum, shard: own });
                contents.records.extend(records);
            }
            None => {
                if let Some(Column::Words(hashes)) = table.column("hash") {
                    contents.lacking.extend(hashes.iter().map(ToString::to_string));
                }
            }
        }
    }
    Ok(Some(contents))
}

/// The data files of a folder, sorted.
fn names(out: &Path) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    // Segments are listed first: those that have gone by then are in a shard's file already.
    for folder in [SEGMENTS, SHARDS] {
        let entries = match fs::read_dir(out.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("list", &out.join(folder), &error)),
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !name.starts_with('.') && name.ends_with(".parquet") {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// The rows of a file; nothing if it lacks a measure.
fn records(table: &Table, measures: &[String]) -> Option<Vec<Record>> {
    let words = |name: &str| match table.column(name) {
        Some(Column::Words(words)) => Some(words),
        _ => None,
    };
    let numbers = |name: &str| match table.column(name) {
        Some(Column::Numbers(numbers)) => Some(numbers),
        _ => None,
    };
    let kept = measures.iter().map(|name| match table.column(&column_name(name)) {
        Some(Column::SomeNumbers(numbers)) => Some(numbers),
        _ => None,
    });
    let kept: Option<Vec<&Vec<Option<f64>>>> = kept.collect();
    let kept = kept?;
    let (hash, version) = (words("hash")?, words("version")?);
    let (host, attempt, shard) = (words("host")?, words("attempt")?, words("shard")?);
    let (wall, cpu) = (numbers("wall_s")?, numbers("cpu_s")?);
    let Some(Column::Integers(memory)) = table.column("peak_rss_bytes") else { return None };
    let Some(Column::SomeWords(errors)) = table.column("error") else { return None };
    let record = |at: usize| Record {
        hash: hash[at].to_string(),
        version: version[at].to_string(),
        measures: kept.iter().map(|column| column[at]).collect(),
        error: errors[at].as_ref().map(ToString::to_string),
        machine: Machine {
            wall_s: wall[at],
            cpu_s: cpu[at],
            peak_rss_bytes: memory[at],
            host: host[at].to_string(),
            attempt: attempt[at].to_string(),
            shard: shard[at].to_string(),
        },
    };
    Some((0..table.rows()).map(record).collect())
}

/// What a measure's column is called: a name of its own where another column has it.
fn column_name(measure: &str) -> String {
    if OWN.contains(&measure) { format!("result.{measure}") } else { measure.to_owned() }
}

/// Records as a table.
fn table(records: &[Record], measures: &[String]) -> Table {
    let words = |of: fn(&Record) -> &str| {
        Column::Words(records.iter().map(|record| of(record).to_owned().into()).collect())
    };
    let mut table = Table::new()
        .with("hash", words(|record| &record.hash))
        .with("version", words(|record| &record.version));
    for (at, name) in measures.iter().enumerate() {
        let values = records.iter().map(|record| record.measures.get(at).copied().flatten());
        table = table.with(column_name(name), Column::SomeNumbers(values.collect()));
    }
    let errors = records.iter().map(|record| record.error.clone().map(Cow::Owned));
    table.with("error", Column::SomeWords(errors.collect())).joined(machine_table(records))
}

/// What cases cost the machine, as a table without their identity.
pub(crate) fn machine_table(records: &[Record]) -> Table {
    let words = |of: fn(&Machine) -> &str| {
        Column::Words(records.iter().map(|record| of(&record.machine).to_owned().into()).collect())
    };
    let numbers = |of: fn(&Machine) -> f64| {
        Column::Numbers(records.iter().map(|record| of(&record.machine)).collect())
    };
    let memory = records.iter().map(|record| record.machine.peak_rss_bytes).collect();
    Table::new()
        .with("wall_s", numbers(|machine| machine.wall_s))
        .with("cpu_s", numbers(|machine| machine.cpu_s))
        .with("peak_rss_bytes", Column::Integers(memory))
        .with("host", words(|machine| &machine.host))
        .with("attempt", words(|machine| &machine.attempt))
        .with("shard", words(|machine| &machine.shard))
}

/// A table as the bytes of a Parquet file.
pub(crate) fn parquet(table: &Table) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let written = table.write(Form::Parquet, &mut bytes);
    written.map_err(|error| Failure::Run(format!("cannot write a table: {error}")))?;
    Ok(bytes)
}

/// Keeps records in a file; `stem` is everything before the checksum.
pub(crate) fn keep(
    folder: &Path,
    stem: &str,
    records: &[Record],
    measures: &[String],
) -> Result<PathBuf, Failure> {
    let bytes = parquet(&table(records, measures))?;
    let path = folder.join(format!("{stem}.{}.parquet", hash_bytes(&bytes)));
    replace(&path, &bytes)?;
    Ok(path)
}

/// Makes one file of everything that a shard has recorded, then takes the others away. Files of
/// other measures stay as they are: another grid wrote them, and may want them again.
pub(crate) fn compact(
    out: &Path,
    measures: &[String],
    shard: &str,
    attempt: &str,
) -> Result<(), Failure> {
    let mut contents = read(out, measures, Some(shard))?;
    let is_done = matches!(&contents.files[..], [file] if file.name.starts_with(SHARDS));
    if contents.files.is_empty() || is_done {
        return Ok(());
    }
    let key = |record: &Record| (record.hash.clone(), record.machine.attempt.clone());
    contents.records.sort_by_key(key);
    contents.records.dedup_by_key(|record| key(record));
    let stem = format!("{shard}.{attempt}");
    let path = keep(&out.join(SHARDS), &stem, &contents.records, measures)?;
    for file in contents.files {
        let old = out.join(&file.name);
        if old != path {
            // Another process that finishes the same shard may have been faster.
            match fs::remove_file(&old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &old, &error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Takes away temporary files that nobody can still be writing.
pub(crate) fn sweep_abandoned(out: &Path) {
    for folder in [out.to_owned(), out.join(SEGMENTS), out.join(SHARDS)] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_temporary = entry.file_name().to_string_lossy().starts_with(".tmp-");
            let age = entry.metadata().and_then(|about| about.modified());
            let age = age.ok().and_then(|modified| now().duration_since(modified).ok());
            if is_temporary && age.is_some_and(|age| ABANDONED < age) {
                // Somebody else may have been faster, or may not let us: it is ignored anyway.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Sets damaged files aside, so that their cases are run again and nobody reads them twice.
pub(crate) fn set_aside(out: &Path, damaged: &[Damaged]) {
    for Damaged { file, .. } in damaged {
        let path = out.join(file);
        // If it cannot be renamed it is ignored all the same.
        let _ = fs::rename(&path, path.with_extension("damaged"));
    }
}
