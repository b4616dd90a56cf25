//! The texts that values come from: files, presets, environment variables and flags.
//!
//! Every text gets a number, so that an [`Origin`](crate::tree::Origin) stays small and `Copy`.
//! [`read`] is the only place that opens scenario files. It looks before it reads, so that a
//! directory, a disk image or a picture is refused with one sentence instead of filling memory.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::problem::Problem;

/// The largest scenario file that is read. The largest written by hand has a few kilobytes; one
/// that lists every link of a big fabric belongs into a topology file.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// One text that values were read from.
#[derive(Clone, Debug)]
pub struct Source {
    /// How people know it: a path, `preset NAME`, `--set`, or a variable's name.
    pub name: Arc<str>,
    /// The text itself.
    pub text: Arc<str>,
    /// The folder of the file, to which the paths inside it are relative.
    pub directory: Option<PathBuf>,
}

impl Source {
    /// A text and the name to show for it.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), text: text.into(), directory: None }
    }

    /// Line and column of a byte offset, both counted from 1, the column in characters.
    pub fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let offset = floor_boundary(&self.text, offset);
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }

    /// The span, moved to character boundaries inside the text.
    pub(crate) fn clamp(&self, span: Range<usize>) -> Range<usize> {
        let start = floor_boundary(&self.text, span.start);
        start..floor_boundary(&self.text, span.end).max(start)
    }
}

/// The last character boundary at or before `offset`.
fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// The number of a source within one load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SourceId(usize);

/// All sources of one load, in the order in which they were met.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Source>);

impl Sources {
    /// Adds a source.
    pub fn add(&mut self, source: Source) -> SourceId {
        self.0.push(source);
        SourceId(self.0.len() - 1)
    }

    /// The source with this number.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.0[id.0]
    }
}

/// The folder outside which nothing is read, if the process is confined to one.
static CONFINED: OnceLock<PathBuf> = OnceLock::new();

/// Confines this process: from now on nothing outside `folder` is read. Said once, by a program
/// that loads what strangers wrote; it cannot be taken back.
pub fn confine(folder: &Path) -> io::Result<()> {
    let folder = folder.canonicalize()?;
    CONFINED.set(folder).map_err(|_| io::Error::other("this process is confined already"))
}

/// Whether a path may be read; links are followed before they are judged.
pub fn is_allowed(path: &Path) -> bool {
    let inside = |folder: &PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(folder));
    CONFINED.get().is_none_or(inside)
}

/// The files that were read: device and number, whatever they are called.
static READ: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// Remembers a file that is read, so that no answer is written over it.
pub(crate) fn remember(about: &Metadata) {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if about.is_file() {
        read.insert((about.dev(), about.ino()));
    }
}

/// Whether this process has read the file of that name as an input, by whatever name.
pub fn was_read(path: &Path) -> bool {
    let read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    std::fs::metadata(path).is_ok_and(|about| read.contains(&(about.dev(), about.ino())))
}

/// Reads a scenario file, or standard input if the path is `-`.
pub fn read(path: &Path) -> Result<Source, Problem> {
    read_within(path, MAX_FILE_BYTES)
}

/// Reads a text file of at most so many bytes, or standard input if the path is `-`.
pub fn read_within(path: &Path, limit: u64) -> Result<Source, Problem> {
    let name = path.display().to_string();
    let refuse = |reason: &str, help: &str| {
        Problem::error(format!("cannot read `{name}`: {reason}")).with_help(help)
    };
    let bytes = if path == Path::new("-") {
        up_to(limit, io::stdin().lock())
    } else if !is_allowed(path) {
        return Err(refuse("it lies outside the workspace", "put it beside the scenario"));
    } else {
        let about = std::fs::metadata(path).map_err(|error| refuse_open(&name, &error))?;
        if about.is_dir() {
            return Err(refuse("it is a directory", "name a file inside it"));
        }
        if limit < about.len() {
            return Err(too_large(&name, Some(about.len()), limit));
        }
        remember(&about);
        File::open(path).and_then(|file| up_to(limit, file))
    };
    let bytes = bytes.map_err(|error| refuse_open(&name, &error))?;
    if limit < bytes.len() as u64 {
        return Err(too_large(&name, None, limit));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[offset];
        refuse(
            &format!("it is not UTF-8 text; byte {offset} is 0x{byte:02x}"),
            "a scenario is a TOML text file; is this the right file?",
        )
    })?;
    // Some editors begin a file with a byte order mark, which TOML allows and means nothing.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
    if text.trim().is_empty() {
        return Err(refuse("it is empty", "`fatflow init PRESET` writes one to start from"));
    }
    let directory = path.parent().map(Path::to_path_buf);
    Ok(Source { directory, ..Source::new(name, text) })
}

/// What a reader gives, and one byte more than the limit if there is more.
pub(crate) fn up_to(limit: u64, reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn too_large(name: &str, bytes: Option<u64>, limit: u64) -> Problem {
    let limit = units::Bytes::new(limit);
    let reason = match bytes {
        Some(bytes) => {
            let size = units::Bytes::new(bytes);
            format!("it has {size:.0}, and at most {limit} are read")
        }
        None => format!("it is longer than {limit}, and no more is read"),
    };
    Problem::error(format!("cannot read `{name}`: {reason}"))
        .with_help("a scenario is a TOML text file; is this the right file?")
}

fn refuse_open(name: &str, error: &io::Error) -> Problem {
    let problem = |reason: &str| Problem::error(format!("cannot read `{name}`: {reason}"));
    match error.kind() {
        io::ErrorKind::NotFound => problem("there is no such file")
            .with_help("`fatflow presets` lists the scenarios that need no file"),
        io::ErrorKind::PermissionDenied => problem("permission denied"),
        io::ErrorKind::IsADirectory => {
            problem("it is a directory").with_help("name a file inside it")
        }
        _ => problem(&error.to_string()),
    }
}
