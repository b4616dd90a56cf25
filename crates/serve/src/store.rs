//! Runs and their files in an embedded database (redb: one file, transactions, no server).
//!
//! A run's record is small and kept apart from its files, so that listing runs reads little. Every
//! change is one committed transaction: after a kill at any moment the file opens again with all
//! that had been committed, and runs that were under way are marked as interrupted.

use std::io;
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

const RUNS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("runs");
const FILES: TableDefinition<'_, (u64, &str), &[u8]> = TableDefinition::new("files");

/// The most runs that are kept; the oldest finished ones make room.
const MAX_RUNS: usize = 500;

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
}

/// The database.
#[derive(Debug)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the database, or makes a new one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let database = Database::create(path).map_err(wrong)?;
        let write = database.begin_write().map_err(wrong)?;
        write.open_table(RUNS).map_err(wrong)?;
        write.open_table(FILES).map_err(wrong)?;
        write.commit().map_err(wrong)?;
        Ok(Self { database })
    }

    /// Adds a run with its scenario and returns its record with its number.
    pub fn add(&self, mut run: Run, scenarios: &[(String, String)]) -> io::Result<Run> {
        let write = self.database.begin_write().map_err(wrong)?;
        {
            let mut runs = write.open_table(RUNS).map_err(wrong)?;
            let mut files = write.open_table(FILES).map_err(wrong)?;
            run.id = runs.last().map_err(wrong)?.map_or(1, |(id, _)| id.value() + 1);
            runs.insert(run.id, encode(&run).as_slice()).map_err(wrong)?;
            for (name, text) in scenarios {
                files.insert((run.id, name.as_str()), text.as_bytes()).map_err(wrong)?;
            }
            make_room(&mut runs, &mut files)?;
        }
        write.commit().map_err(wrong)?;
        Ok(run)
    }

    /// Changes a run's record.
    pub fn update(&self, id: u64, change: impl FnOnce(&mut Run)) -> io::Result<()> {
        let write = self.database.begin_write().map_err(wrong)?;
        {
            let mut runs = write.open_table(RUNS).map_err(wrong)?;
            let known = runs.get(id).map_err(wrong)?.and_then(|record| decode(record.value()));
            if let Some(mut run) = known {
                change(&mut run);
                runs.insert(id, encode(&run).as_slice()).map_err(wrong)?;
            }
        }
        write.commit().map_err(wrong)
    }

    /// Keeps a file of a run: `result.json`, `report.html`.
    pub fn keep(&self, id: u64, name: &str, content: &[u8]) -> io::Result<()> {
        let write = self.database.begin_write().map_err(wrong)?;
        write.open_table(FILES).map_err(wrong)?.insert((id, name), content).map_err(wrong)?;
        write.commit().map_err(wrong)
    }

    /// A run's record.
    pub fn run(&self, id: u64) -> io::Result<Option<Run>> {
        let read = self.database.begin_read().map_err(wrong)?;
        let runs = read.open_table(RUNS).map_err(wrong)?;
        Ok(runs.get(id).map_err(wrong)?.and_then(|record| decode(record.value())))
    }

    /// All records, newest first.
    pub fn runs(&self) -> io::Result<Vec<Run>> {
        let read = self.database.begin_read().map_err(wrong)?;
        let runs = read.open_table(RUNS).map_err(wrong)?;
        let records = runs.iter().map_err(wrong)?.rev();
        Ok(records.filter_map(|entry| decode(entry.ok()?.1.value())).collect())
    }

    /// A file of a run.
    pub fn file(&self, id: u64, name: &str) -> io::Result<Option<Vec<u8>>> {
        let read = self.database.begin_read().map_err(wrong)?;
        let files = read.open_table(FILES).map_err(wrong)?;
        Ok(files.get((id, name)).map_err(wrong)?.map(|content| content.value().to_vec()))
    }

    /// Forgets a run and its files.
    pub fn remove(&self, id: u64) -> io::Result<()> {
        let write = self.database.begin_write().map_err(wrong)?;
        {
            let mut runs = write.open_table(RUNS).map_err(wrong)?;
            let mut files = write.open_table(FILES).map_err(wrong)?;
            forget(&mut runs, &mut files, id)?;
        }
        write.commit().map_err(wrong)
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

type Runs<'a> = redb::Table<'a, u64, &'static [u8]>;
type Files<'a> = redb::Table<'a, (u64, &'static str), &'static [u8]>;

fn make_room(runs: &mut Runs<'_>, files: &mut Files<'_>) -> io::Result<()> {
    let records: Vec<Run> = runs
        .iter()
        .map_err(wrong)?
        .filter_map(|entry| decode(entry.ok()?.1.value()))
        .filter(|run| run.status.is_final())
        .collect();
    let excess = records.len().saturating_sub(MAX_RUNS);
    for run in &records[..excess] {
        forget(runs, files, run.id)?;
    }
    Ok(())
}

fn forget(runs: &mut Runs<'_>, files: &mut Files<'_>, id: u64) -> io::Result<()> {
    runs.remove(id).map_err(wrong)?;
    let names: Vec<String> = files
        .range((id, "")..(id + 1, ""))
        .map_err(wrong)?
        .filter_map(|entry| Some(entry.ok()?.0.value().1.to_owned()))
        .collect();
    for name in &names {
        files.remove((id, name.as_str())).map_err(wrong)?;
    }
    Ok(())
}

fn encode(run: &Run) -> Vec<u8> {
    serde_json::to_vec(run).expect("plain data serialises")
}

fn decode(record: &[u8]) -> Option<Run> {
    serde_json::from_slice(record).ok()
}

fn wrong(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
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
}
