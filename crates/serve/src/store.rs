//! Runs and their files in an embedded database (redb: one file, transactions, no server).
//!
//! A run's record is small and kept apart from its files, so that listing runs reads little. Every
//! change is one committed transaction: after a kill at any moment the file opens again with all
//! that had been committed, and runs that were under way are marked as interrupted.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use redb::{Database, Error, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};

const RUNS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("runs");
const FILES: TableDefinition<'_, (u64, &str), &[u8]> = TableDefinition::new("files");
/// One number: the last that a run was given. It outlives the run.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// The most runs that are kept; the oldest finished ones make room.
const MAX_RUNS: usize = 500;
/// Memory in which the database keeps what it has read.
const CACHE_BYTES: usize = 32 << 20;
/// Nothing is begun on a disk that has less room than this.
const RESERVE_BYTES: u64 = 4 << 20;

/// Where a run stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Waits for its turn.
    Waiting,
    /// Computes.
    Running,
    /// Has a result.
    Done,
    /// Ended without one; the message says why.
    Failed,
    /// Was stopped by the user.
    Stopped,
    /// Was under way when the server died.
    Interrupted,
}

impl Status {
    /// Whether nothing more will happen.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

/// A run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Its number.
    pub id: u64,
    /// What people call it: the scenario's name.
    pub name: String,
    /// The command: `run`, `traffic`, `topo`, `collective`, `compare`.
    pub command: String,
    /// The engine, or empty for the command's own choice.
    pub engine: String,
    /// Where it stands.
    pub status: Status,
    /// Why it failed, or what it last said of its progress.
    pub message: String,
    /// Seconds since 1970 when it was asked for.
    pub asked_at: u64,
    /// How long it computed, in seconds.
    pub took_s: f64,
    /// Who asked for it; empty where a server has no users.
    #[serde(default)]
    pub owner: String,
}

type Opener = Box<dyn Fn() -> Result<Database, Error> + Send + Sync>;

/// The database.
///
/// A disk that is full breaks no more than what could not be written: the database is opened again
/// by itself, and records of runs wait in memory until they can be written.
pub struct Store {
    open: Opener,
    /// Where the room is looked at before anything is written.
    folder: Option<PathBuf>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("folder", &self.folder).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    /// None after an error of the disk, until it can be opened again.
    database: Option<Database>,
    /// Records that could not be written yet.
    unwritten: BTreeMap<u64, Run>,
}

impl Store {
    /// Opens the database, or makes a new one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, folder) = (path.to_owned(), path.parent().map(Path::to_owned));
        let open = move || Ok(Database::builder().set_cache_size(CACHE_BYTES).create(&file)?);
        Self::open_with(Box::new(open), folder).map_err(|error| {
            let kind = error.kind();
            let path = path.display();
            io::Error::new(kind, match kind {
                io::ErrorKind::AddrInUse => {
                    format!("{path} is in use: another server has this workspace")
                }
                io::ErrorKind::InvalidData => format!(
                    "{path} is damaged ({error}): move it away and start again; a new one is made"
                ),
                _ => format!("{path}: {error}"),
            })
        })
    }

    fn open_with(open: Opener, folder: Option<PathBuf>) -> io::Result<Self> {
        let state = Mutex::new(State { database: None, unwritten: BTreeMap::new() });
        let store = Self { open, folder, state };
        store.write(|_| Ok(()))?;
        Ok(store)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Does something with the database, and opens it again if an error has closed it.
    fn with<T>(
        &self,
        state: &mut State,
        work: impl Fn(&Database) -> Result<T, Error>,
    ) -> io::Result<T> {
        let mut last = Error::PreviousIo;
        for _ in 0..2 {
            // A damaged file can make the database panic; that is an error like any other.
            let tried = catch_unwind(AssertUnwindSafe(|| {
                let database = match state.database.take() {
                    Some(database) => database,
                    None => (self.open)()?,
                };
                let done = work(&database);
                state.database = Some(database);
                done
            }));
            last = match tried {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) => error,
                Err(_) => Error::Corrupted("a page makes no sense".to_owned()),
            };
            close(state);
            if !matches!(last, Error::PreviousIo) {
                break;
            }
        }
        Err(in_words(last))
    }

    /// One transaction, with the records that wait.
    fn write<T>(&self, work: impl Fn(&WriteTransaction) -> Result<T, Error>) -> io::Result<T> {
        self.look_for_room()?;
        let mut state = self.lock();
        let waiting: Vec<Run> = state.unwritten.values().cloned().collect();
        let done = self.with(&mut state, |database| {
            let write = database.begin_write()?;
            {
                let mut runs = write.open_table(RUNS)?;
                write.open_table(FILES)?;
                write.open_table(NUMBERS)?;
                for run in &waiting {
                    runs.insert(run.id, encode(run).as_slice())?;
                }
            }
            let done = work(&write)?;
            write.commit()?;
            Ok(done)
        })?;
        state.unwritten.clear();
        Ok(done)
    }

    fn look_for_room(&self) -> io::Result<()> {
        let Some(room) = self.folder.as_ref().and_then(|folder| crate::child::room(folder)) else {
            return Ok(());
        };
        if RESERVE_BYTES <= room {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full: make room"))
    }

    /// Adds a run with its scenario and returns its record with its number.
    pub fn add(&self, run: Run, scenarios: &[(String, String)]) -> io::Result<Run> {
        self.write(|write| {
            let mut run = run.clone();
            let mut runs = write.open_table(RUNS)?;
            let mut files = write.open_table(FILES)?;
            let mut numbers = write.open_table(NUMBERS)?;
            let given = numbers.get("run")?.map_or(0, |number| number.value());
            let known = runs.last()?.map_or(0, |(id, _)| id.value());
            run.id = given.max(known) + 1;
            numbers.insert("run", run.id)?;
            runs.insert(run.id, encode(&run).as_slice())?;
            for (name, text) in scenarios {
                files.insert((run.id, name.as_str()), text.as_bytes())?;
            }
            make_room(&mut runs, &mut files)?;
            Ok(run)
        })
    }

    /// Changes a run's record. If it cannot be written, it is kept in memory until it can.
    pub fn update(&self, id: u64, change: impl FnOnce(&mut Run)) -> io::Result<()> {
        let Some(mut run) = self.run(id)? else { return Ok(()) };
        change(&mut run);
        self.lock().unwritten.insert(id, run);
        // What could not be written waits, and is shown all the same.
        let _ = self.write(|_| Ok(()));
        Ok(())
    }

    /// Says how far a run is. That is shown, and written with the next thing that is.
    pub fn note(&self, id: u64, message: &str) {
        // Progress that cannot be told is no reason to stop a run.
        if let Ok(Some(mut run)) = self.run(id) {
            message.clone_into(&mut run.message);
            self.lock().unwritten.insert(id, run);
        }
    }

    /// Keeps a file of a run: `result.json`, `report.html`. A run that is gone keeps nothing.
    pub fn keep(&self, id: u64, name: &str, content: &[u8]) -> io::Result<()> {
        self.write(|write| {
            if write.open_table(RUNS)?.get(id)?.is_some() {
                write.open_table(FILES)?.insert((id, name), content)?;
            }
            Ok(())
        })
    }

    /// A run's record.
    pub fn run(&self, id: u64) -> io::Result<Option<Run>> {
        let mut state = self.lock();
        if let Some(run) = state.unwritten.get(&id) {
            return Ok(Some(run.clone()));
        }
        self.with(&mut state, |database| {
            let runs = database.begin_read()?.open_table(RUNS)?;
            let record = runs.get(id)?;
            record.map(|record| decode(id, record.value())).transpose()
        })
    }

    /// All records, newest first.
    pub fn runs(&self) -> io::Result<Vec<Run>> {
        let mut state = self.lock();
        let mut runs = self.with(&mut state, |database| {
            let runs = database.begin_read()?.open_table(RUNS)?;
            let records = runs.iter()?.rev();
            records
                .map(|entry| {
                    let (id, record) = entry?;
                    decode(id.value(), record.value())
                })
                .collect::<Result<Vec<Run>, Error>>()
        })?;
        for run in &mut runs {
            if let Some(newer) = state.unwritten.get(&run.id) {
                run.clone_from(newer);
            }
        }
        Ok(runs)
    }

    /// A file of a run.
    pub fn file(&self, id: u64, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.with(&mut self.lock(), |database| {
            let files = database.begin_read()?.open_table(FILES)?;
            Ok(files.get((id, name))?.map(|content| content.value().to_vec()))
        })
    }

    /// Forgets a run and its files; its number is never given again.
    pub fn remove(&self, id: u64) -> io::Result<()> {
        self.lock().unwritten.remove(&id);
        self.write(|write| {
            let mut runs = write.open_table(RUNS)?;
            let mut files = write.open_table(FILES)?;
            forget(&mut runs, &mut files, id)
        })
    }

    /// Marks runs that were under way when the server died.
    pub fn interrupt_unfinished(&self) -> io::Result<()> {
        for run in self.runs()?.iter().filter(|run| !run.status.is_final()) {
            self.update(run.id, |run| {
                run.status = Status::Interrupted;
                run.message = "the server ended while this run was under way".to_owned();
            })?;
        }
        Ok(())
    }
}

/// Closes the database. A damaged file can make that panic too, and then nothing is left to keep.
fn close(state: &mut State) {
    let database = state.database.take();
    let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
}

impl Drop for Store {
    fn drop(&mut self) {
        close(&mut self.lock());
    }
}

type Runs<'a> = redb::Table<'a, u64, &'static [u8]>;
type Files<'a> = redb::Table<'a, (u64, &'static str), &'static [u8]>;

fn make_room(runs: &mut Runs<'_>, files: &mut Files<'_>) -> Result<(), Error> {
    let mut finished = Vec::new();
    for entry in runs.iter()? {
        let (id, record) = entry?;
        if decode(id.value(), record.value())?.status.is_final() {
            finished.push(id.value());
        }
    }
    let excess = finished.len().saturating_sub(MAX_RUNS);
    for id in &finished[..excess] {
        forget(runs, files, *id)?;
    }
    Ok(())
}

fn forget(runs: &mut Runs<'_>, files: &mut Files<'_>, id: u64) -> Result<(), Error> {
    runs.remove(id)?;
    let entries = files.range((id, "")..(id.saturating_add(1), ""))?;
    let names: Result<Vec<String>, Error> =
        entries.map(|entry| Ok(entry?.0.value().1.to_owned())).collect();
    for name in &names? {
        files.remove((id, name.as_str()))?;
    }
    Ok(())
}

fn encode(run: &Run) -> Vec<u8> {
    serde_json::to_vec(run).expect("plain data serialises")
}

fn decode(id: u64, record: &[u8]) -> Result<Run, Error> {
    let wrong = |error| Error::Corrupted(format!("the record of run {id}: {error}"));
    serde_json::from_slice(record).map_err(wrong)
}

/// What went wrong, of a kind that callers can tell apart.
fn in_words(error: Error) -> io::Error {
    use io::ErrorKind::{AddrInUse, FileTooLarge, InvalidData, QuotaExceeded, StorageFull};
    match error {
        Error::Io(error) if [StorageFull, QuotaExceeded, FileTooLarge].contains(&error.kind()) => {
            io::Error::new(StorageFull, format!("the disk is full ({error}): make room"))
        }
        Error::Io(error) => error,
        Error::DatabaseAlreadyOpen => io::Error::new(AddrInUse, error),
        Error::Corrupted(_) | Error::UpgradeRequired(_) | Error::RepairAborted => {
            io::Error::new(InvalidData, error)
        }
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::StorageBackend;

    use super::*;

    fn run(name: &str) -> Run {
        Run {
            id: 0,
            name: name.to_owned(),
            command: "run".to_owned(),
            engine: String::new(),
            status: Status::Waiting,
            message: String::new(),
            asked_at: 0,
            took_s: 0.0,
            owner: String::new(),
        }
    }

    #[test]
    fn runs_survive_reopening_and_unfinished_ones_are_marked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.redb");
        {
            let store = Store::open(&path).unwrap();
            let first = store.add(run("first"), &[("scenario.toml".into(), "a".into())]).unwrap();
            let second = store.add(run("second"), &[]).unwrap();
            assert_eq!((first.id, second.id), (1, 2));
            store.update(1, |run| run.status = Status::Done).unwrap();
            store.keep(1, "result.json", b"{}").unwrap();
        }
        let store = Store::open(&path).unwrap();
        store.interrupt_unfinished().unwrap();
        let runs = store.runs().unwrap();
        let seen: Vec<(u64, Status)> = runs.iter().map(|run| (run.id, run.status)).collect();
        assert_eq!(seen, [(2, Status::Interrupted), (1, Status::Done)]);
        assert_eq!(store.file(1, "result.json").unwrap().unwrap(), b"{}");
        store.remove(1).unwrap();
        assert_eq!(store.file(1, "result.json").unwrap(), None);
        assert_eq!(store.file(1, "scenario.toml").unwrap(), None);
    }

    #[test]
    fn a_number_is_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.redb");
        let store = Store::open(&path).unwrap();
        assert_eq!(store.add(run("a"), &[]).unwrap().id, 1);
        store.remove(1).unwrap();
        assert_eq!(store.add(run("b"), &[]).unwrap().id, 2);
        store.remove(2).unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.add(run("c"), &[]).unwrap().id, 3);
        // What comes late for a run that is gone is not kept.
        store.keep(2, "result.json", b"{}").unwrap();
        store.update(2, |run| run.status = Status::Stopped).unwrap();
        assert_eq!(store.file(2, "result.json").unwrap(), None);
        assert_eq!(store.run(2).unwrap(), None);
    }

    #[test]
    fn a_workspace_has_one_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.redb");
        let _store = Store::open(&path).unwrap();
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.contains("another server has this workspace"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_refused_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.redb");
        for content in [&b"not a database at all"[..], &[0; 8192], &[0xff; 100_000]] {
            std::fs::write(&path, content).unwrap();
            let error = Store::open(&path).unwrap_err().to_string();
            assert!(error.contains("move it away"), "{error}");
        }
    }

    /// A disk in memory that can be full.
    #[derive(Clone, Debug, Default)]
    struct Disk {
        bytes: Arc<Mutex<Vec<u8>>>,
        full: Arc<AtomicBool>,
    }

    impl Disk {
        fn check(&self) -> io::Result<()> {
            match self.full.load(Ordering::Relaxed) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().unwrap().len() as u64)
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let bytes = self.bytes.lock().unwrap();
            out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()]);
            Ok(())
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.check()?;
            self.bytes.lock().unwrap().resize(len as usize, 0);
            Ok(())
        }
        fn sync_data(&self) -> io::Result<()> {
            self.check()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.check()?;
            let mut bytes = self.bytes.lock().unwrap();
            bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_breaks_no_more_than_what_could_not_be_written() {
        let disk = Disk::default();
        let opened = disk.clone();
        let open = move || Ok(Database::builder().create_with_backend(opened.clone())?);
        let store = Store::open_with(Box::new(open), None).unwrap();
        store.add(run("first"), &[]).unwrap();
        store.update(1, |run| run.status = Status::Running).unwrap();

        disk.full.store(true, Ordering::Relaxed);
        let error = store.add(run("second"), &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert!(store.keep(1, "result.json", &[b'x'; 100_000]).is_err());

        // Room again: everything goes on without a restart.
        disk.full.store(false, Ordering::Relaxed);
        store.update(1, |run| run.status = Status::Failed).unwrap();
        assert_eq!(store.run(1).unwrap().unwrap().status, Status::Failed);
        assert_eq!(store.runs().unwrap().len(), 1);
        assert_eq!(store.add(run("third"), &[]).unwrap().id, 2);
    }

    #[test]
    fn a_status_that_cannot_be_written_is_shown_and_written_later() {
        let disk = Disk::default();
        let opened = disk.clone();
        let open = move || Ok(Database::builder().create_with_backend(opened.clone())?);
        let store = Store::open_with(Box::new(open), None).unwrap();
        store.add(run("first"), &[]).unwrap();
        disk.full.store(true, Ordering::Relaxed);
        store.update(1, |run| run.status = Status::Failed).unwrap();
        assert_eq!(store.run(1).unwrap().unwrap().status, Status::Failed);
        disk.full.store(false, Ordering::Relaxed);
        assert_eq!(store.runs().unwrap()[0].status, Status::Failed);
        store.add(run("second"), &[]).unwrap();
        assert!(store.lock().unwritten.is_empty());
        assert_eq!(store.runs().unwrap()[1].status, Status::Failed);
    }
}
