//! Who did what when: a line for every change and every refusal, in a file of the workspace.
//!
//! `audit.jsonl` grows to [`MOST_BYTES`]; then it becomes `audit.old.jsonl`, and a new one begins.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// The longest that the file gets.
const MOST_BYTES: u64 = 8 << 20;
/// How much of its end is shown.
const SHOWN_BYTES: u64 = 256 << 10;

/// A line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Entry {
    /// Seconds since 1970.
    pub at: u64,
    /// Who asked; empty for those who were not known.
    pub user: String,
    /// From which address.
    pub from: String,
    /// What was asked: the method and the path, without what may be secret.
    pub asked: String,
    /// What was answered.
    pub status: u16,
}

/// The list.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    /// One writer at a time.
    turn: Mutex<()>,
}

impl Audit {
    /// In a file.
    pub fn new(path: PathBuf) -> Self {
        Self { path, turn: Mutex::new(()) }
    }

    /// Adds a line.
    pub fn note(&self, entry: &Entry) -> io::Result<()> {
        let _turn = self.turn.lock().expect("no holder panics");
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(&line)?;
        if MOST_BYTES < file.metadata()?.len() {
            std::fs::rename(&self.path, self.path.with_extension("old.jsonl"))?;
        }
        Ok(())
    }

    /// The last lines, newest first.
    pub fn last(&self) -> io::Result<Vec<Entry>> {
        let mut file = match std::fs::File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_BYTES)))?;
        let mut text = Vec::new();
        file.take(SHOWN_BYTES).read_to_end(&mut text)?;
        let lines = text.split(|byte| *byte == b'\n').rev();
        // The first line may have lost its beginning.
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_come_first_and_the_file_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::new(path.clone());
        assert_eq!(audit.last().unwrap(), []);
        let entry = |at| Entry {
            at,
            user: "ana".to_owned(),
            from: "127.0.0.1".to_owned(),
            asked: "POST /api/runs".to_owned(),
            status: 201,
        };
        for at in 0..3 {
            audit.note(&entry(at)).unwrap();
        }
        assert_eq!(audit.last().unwrap(), [entry(2), entry(1), entry(0)]);
        std::fs::write(&path, vec![b'x'; MOST_BYTES as usize]).unwrap();
        audit.note(&entry(3)).unwrap();
        assert!(!path.exists() && folder.path().join("audit.old.jsonl").exists());
    }
}
