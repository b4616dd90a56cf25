//! Files that people bring: a model's config.json, topologies, logs and traces.
//!
//! Each person has a shelf, a folder of the workspace with plain files alone. Children see the
//! files of whoever asked, as links in their own folder; nothing else of the workspace.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::options::Options;
use crate::users::{User, is_name};

/// The most files of one person.
const MAX_FILES: usize = 200;
/// Names that a child's folder has already.
const TAKEN: [&str; 5] = ["report.html", "fabric.json", "result.json", "grid.toml", "study"];

/// A file on a shelf.
#[derive(Debug, Serialize)]
pub struct File {
    name: String,
    bytes: u64,
}

/// A person's shelf.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    most: u64,
}

impl Shelf {
    /// Of a person.
    pub fn of(options: &Options, user: &User) -> Self {
        let name = if user.name.is_empty() { "_" } else { &user.name };
        Self { folder: options.workspace.join("files").join(name), most: options.max_shelf }
    }

    /// What lies on it, by name.
    pub fn files(&self) -> io::Result<Vec<File>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let about = entry.metadata()?;
            let name = entry.file_name().into_string().unwrap_or_default();
            if about.is_file() && is_free(&name) {
                files.push(File { name, bytes: about.len() });
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// Puts a file on it, in the place of one with the same name.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.path(name)?;
        let others: Vec<File> =
            self.files()?.into_iter().filter(|file| file.name != name).collect();
        let used: u64 = others.iter().map(|file| file.bytes).sum();
        if MAX_FILES <= others.len() || self.most < used.saturating_add(content.len() as u64) {
            let most = format!("{} bytes in {MAX_FILES} files", self.most);
            let why = format!("there is room for {most}: take some away");
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        std::fs::create_dir_all(&self.folder)?;
        // A name that no file can have.
        let beside = self.folder.join(format!(".{name}.new"));
        let written =
            std::fs::write(&beside, content).and_then(|()| std::fs::rename(&beside, path));
        if written.is_err() {
            // It may not be there.
            let _ = std::fs::remove_file(&beside);
        }
        written
    }

    /// Whether a file lies on it.
    pub fn has(&self, name: &str) -> io::Result<()> {
        std::fs::metadata(self.path(name)?).map(|_| ())
    }

    /// A file's content.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.path(name)?)
    }

    /// Takes a file away.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(name)?)
    }

    /// Shows all of them in a child's folder.
    pub fn show_in(&self, folder: &Path) -> io::Result<()> {
        for File { name, .. } in self.files()? {
            std::fs::hard_link(self.folder.join(&name), folder.join(&name))?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> io::Result<PathBuf> {
        match is_free(name) {
            true => Ok(self.folder.join(name)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a file's name has letters, digits, `.`, `_` and `-`, and is not one of a run's own",
            )),
        }
    }
}

fn is_free(name: &str) -> bool {
    is_name(name) && !name.starts_with("scenario") && !TAKEN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shelf_holds_plain_files_of_its_own_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new(folder.path().to_owned(), PathBuf::new());
        options.max_shelf = 10;
        let shelf = Shelf::of(&options, &User::default());
        shelf.put("config.json", b"{}").unwrap();
        shelf.put("config.json", b"{ }").unwrap();
        let wrong = ["../x", "", ".x", "a/b", "-x", "scenario.toml", "report.html", "a\0", "a b"];
        assert!(wrong.iter().all(|name| shelf.put(name, b"").is_err()));
        assert!(wrong.iter().all(|name| shelf.read(name).is_err() && shelf.remove(name).is_err()));
        let error = shelf.put("more", &[0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let names: Vec<String> = shelf.files().unwrap().into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["config.json"]);
        let child = tempfile::tempdir_in(folder.path()).unwrap();
        shelf.show_in(child.path()).unwrap();
        assert_eq!(std::fs::read(child.path().join("config.json")).unwrap(), b"{ }");
        shelf.remove("config.json").unwrap();
        assert!(shelf.files().unwrap().is_empty());
    }
}
