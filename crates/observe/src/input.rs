//! A stream of bytes or lines with its name and place; gzip, zstd and tar are unpacked on the way.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::Budget;

use crate::format;
use crate::observed::{Observed, Source};

/// So many bytes at the beginning decide what a file is.
pub const HEAD_BYTES: usize = 64 << 10;
/// A longer line is cut there: what is behind it is skipped, and said to be.
pub const LONGEST_LINE: usize = 4 << 20;
/// How deep packed files may lie in each other.
const MAX_DEPTH: usize = 4;
/// What a packed file may come to: more than a day of logs, and less than a bomb.
const BUDGET: Budget = Budget { expansion: 64 << 30, ..Budget::ENDLESS };
/// From one piece that is read to the next.
const BLOCK: usize = 1 << 20;

/// How much has been read, and whether somebody wants to stop.
#[derive(Debug, Default)]
pub struct Watch {
    /// Bytes of the files themselves, before they are unpacked.
    pub bytes_read: AtomicU64,
    /// Set by whoever wants to stop: files then seem to end there.
    pub interrupt: Arc<AtomicBool>,
}

impl Watch {
    /// Whether somebody wanted to stop.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

/// Why a reader stopped before the end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadError {
    /// The line, counted from 1; 0 where lines mean nothing.
    pub line: u64,
    /// What is wrong, in words, with the place in bytes where there are no lines.
    pub reason: String,
}

impl ReadError {
    /// Something that is wrong with a file as a whole, or says its place itself.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { line: 0, reason: reason.into() }
    }

    /// The same at a line.
    pub fn at(line: u64, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::new(match error.kind() {
            io::ErrorKind::UnexpectedEof => "ends in the middle".to_owned(),
            _ => error.to_string(),
        })
    }
}

/// One file, or one member of an archive, while it is read.
///
/// It is a [`BufRead`] for readers of bytes; [`Input::next_line`] is for readers of lines. Do not
/// mix the two.
pub struct Input<'a> {
    /// What to call it: the path as it was given, and behind `!` the member of an archive.
    pub name: String,
    /// The file itself, if it is neither packed nor standard input.
    pub path: Option<PathBuf>,
    /// How much of it there is to see before it is read.
    head: Vec<u8>,
    stream: Box<dyn BufRead + 'a>,
    /// Lines that were given out.
    line: u64,
    /// Bytes that were read of the stream and not given out as lines, and where they begin.
    buffer: Vec<u8>,
    begin: usize,
    /// Lines that were cut because they are too long.
    pub cut_lines: u64,
}

impl<'a> Input<'a> {
    fn new(name: &str, path: Option<&Path>, mut stream: Box<dyn Read + 'a>) -> io::Result<Self> {
        let mut head = Vec::new();
        stream.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        let whole = io::Cursor::new(head.clone()).chain(stream);
        Ok(Self {
            name: name.to_owned(),
            path: path.map(Path::to_owned),
            head,
            stream: Box::new(BufReader::with_capacity(BLOCK, whole)),
            line: 0,
            buffer: Vec::new(),
            begin: 0,
            cut_lines: 0,
        })
    }

    /// The first bytes, as many as there are up to [`HEAD_BYTES`].
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The first bytes as text; what is no UTF-8 is replaced.
    pub fn head_text(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }

    /// The number of the line that was given out last, counted from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The next line without its end, and its number; `None` at the end.
    pub fn next_line(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let mut searched = self.begin;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..]) {
                let (begin, end) = (self.begin, searched + at);
                self.begin = end + 1;
                return Ok(Some(self.given(begin, end)));
            }
            searched = self.buffer.len();
            if LONGEST_LINE < searched - self.begin {
                return self.cut_line().map(Some);
            }
            self.buffer.drain(..self.begin);
            searched -= self.begin;
            self.begin = 0;
            let more = self.stream.fill_buf()?;
            let length = more.len();
            if length == 0 {
                let end = self.buffer.len();
                self.begin = end;
                return Ok((0 < end).then(|| self.given(0, end)));
            }
            self.buffer.extend_from_slice(more);
            self.stream.consume(length);
        }
    }

    fn given(&mut self, begin: usize, end: usize) -> (u64, &[u8]) {
        self.line += 1;
        let line = &self.buffer[begin..end];
        (self.line, line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Gives out the beginning of a line that is too long, and drops the rest of it.
    fn cut_line(&mut self) -> io::Result<(u64, &[u8])> {
        self.cut_lines += 1;
        let mut kept = self.buffer.split_off(self.begin);
        kept.truncate(LONGEST_LINE);
        loop {
            let more = self.stream.fill_buf()?;
            let (length, end) = (more.len(), memchr::memchr(b'\n', more));
            if length == 0 {
                break;
            }
            self.stream.consume(end.map_or(length, |at| at + 1));
            if end.is_some() {
                break;
            }
        }
        let end = kept.len();
        self.buffer = kept;
        self.begin = end;
        Ok(self.given(0, end))
    }
}

impl Read for Input<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl BufRead for Input<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.stream.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.stream.consume(bytes);
    }
}

/// Counts what is read of a file, and lets it end where somebody wants to stop.
struct Counted<'a, R> {
    inner: R,
    watch: &'a Watch,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.watch.is_interrupted() {
            return Ok(0);
        }
        let length = self.inner.read(into)?;
        self.watch.bytes_read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// What comes out of a packed stream, up to what a file may come to.
struct Unpacked<R> {
    inner: R,
    budget: Budget,
}

impl<R> Unpacked<R> {
    fn new(inner: R) -> Self {
        Self { inner, budget: BUDGET }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(into)?;
        self.budget.spend_expansion(length as u64).map_err(io::Error::other)?;
        Ok(length)
    }
}

/// Reads one file, or standard input where it is called `-`.
pub fn open(path: &Path, watch: &Watch, observed: &mut Observed) {
    let name = path.display().to_string();
    if path.as_os_str() == "-" {
        let stream = Counted { inner: io::stdin().lock(), watch };
        return unpack("standard input", None, Box::new(stream), watch, observed);
    }
    match File::open(path).and_then(|file| Ok((file.metadata()?.is_dir(), file))) {
        Ok((true, _)) => open_folder(path, watch, observed),
        Ok((false, file)) => {
            let stream = Counted { inner: file, watch };
            unpack(&name, Some(path), Box::new(stream), watch, observed);
        }
        Err(error) => observed.sources.push(Source::unreadable(&name, &error.to_string())),
    }
}

/// Reads the files of a folder, by name, without the folders in it.
fn open_folder(path: &Path, watch: &Watch, observed: &mut Observed) {
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut paths: Vec<PathBuf> = match entries {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        Err(error) => {
            let name = path.display().to_string();
            return observed.sources.push(Source::unreadable(&name, &error.to_string()));
        }
    };
    paths.retain(|path| path.is_file());
    paths.sort();
    for path in paths.iter().take_while(|_| !watch.is_interrupted()) {
        open(path, watch, observed);
    }
}

/// Reads a stream: unpacks what is packed, and gives the rest to its reader.
pub fn unpack<'a>(
    name: &str,
    path: Option<&Path>,
    stream: Box<dyn Read + 'a>,
    watch: &'a Watch,
    observed: &mut Observed,
) {
    unpack_at(name, path, stream, watch, observed, 0);
}

fn unpack_at<'a>(
    name: &str,
    path: Option<&Path>,
    stream: Box<dyn Read + 'a>,
    watch: &'a Watch,
    observed: &mut Observed,
    depth: usize,
) {
    let input = match Input::new(name, path, stream) {
        Ok(input) => input,
        Err(error) => return observed.sources.push(Source::unreadable(name, &error.to_string())),
    };
    let head = input.head();
    if MAX_DEPTH < depth {
        let reason = format!("is packed more than {MAX_DEPTH} times");
        return observed.sources.push(Source::unreadable(name, &reason));
    }
    if head.starts_with(&[0x1f, 0x8b]) {
        let inner = Unpacked::new(flate2::bufread::MultiGzDecoder::new(input));
        return unpack_at(name, None, Box::new(inner), watch, observed, depth + 1);
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        match ruzstd::decoding::StreamingDecoder::new(input) {
            Ok(inner) => {
                let inner = Unpacked::new(inner);
                unpack_at(name, None, Box::new(inner), watch, observed, depth + 1);
            }
            Err(error) => {
                observed.sources.push(Source::unreadable(name, &format!("zstd: {error}")));
            }
        }
        return;
    }
    if head.get(257..262) == Some(b"ustar") {
        return unpack_tar(name, input, watch, observed, depth);
    }
    format::read(input, observed);
    if watch.is_interrupted()
        && let Some(source) = observed.sources.last_mut()
    {
        source.problems.push("interrupted: what stands behind that place was not read".to_owned());
    }
}

fn unpack_tar(name: &str, input: Input<'_>, watch: &Watch, observed: &mut Observed, depth: usize) {
    let mut archive = tar::Archive::new(input);
    let entries = match archive.entries() {
        Ok(entries) => entries,
        Err(error) => return observed.sources.push(Source::unreadable(name, &error.to_string())),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                return observed.sources.push(Source::unreadable(name, &error.to_string()));
            }
        };
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let member = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let member = format!("{name}!{member}");
        unpack_at(&member, None, Box::new(entry), watch, observed, depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut input = Input::new("it", None, Box::new(bytes)).expect("memory can be read");
        let mut lines = Vec::new();
        while let Some((number, line)) = input.next_line().expect("memory can be read") {
            lines.push(format!("{number} {}", String::from_utf8_lossy(line)));
        }
        lines
    }

    #[test]
    fn lines_are_counted_and_end_with_or_without_a_return() {
        assert_eq!(lines(b"a\r\n\nb"), ["1 a", "2 ", "3 b"]);
        assert_eq!(lines(b""), Vec::<String>::new());
        assert_eq!(lines(b"a\n"), ["1 a"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_the_next_is_whole() {
        let mut bytes = vec![b'x'; LONGEST_LINE + BLOCK + 17];
        bytes.extend_from_slice(b"\nnext\n");
        let lines = lines(&bytes);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), LONGEST_LINE + 2);
        assert_eq!(lines[1], "2 next");
    }

    #[test]
    fn packed_files_are_unpacked_and_members_have_names() {
        let log = b"h:1:2 [0] NCCL INFO NCCL version 2.26.6+cuda12.9\n";
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(log.len() as u64);
        header.set_cksum();
        archive.append_data(&mut header, "a/nccl.log", &log[..]).expect("memory");
        let tar = archive.into_inner().expect("memory");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar).expect("memory");
        let packed = gzip.finish().expect("memory");
        let observed = crate::read_bytes("logs.tgz", &packed);
        assert_eq!(observed.sources.len(), 1);
        assert_eq!(observed.sources[0].file, "logs.tgz!a/nccl.log");
        assert!(observed.sources[0].is_read(), "{:?}", observed.sources[0]);
    }

    #[test]
    fn what_a_packed_file_comes_to_is_limited() {
        let budget = Budget { expansion: 100, ..BUDGET };
        let mut bomb = Unpacked { inner: io::repeat(b'x'), budget };
        let error = io::copy(&mut bomb, &mut io::sink()).expect_err("it never ends");
        assert!(error.to_string().contains("too many bytes once it is written out"), "{error}");
    }

    #[test]
    fn a_packed_file_that_ends_early_says_so() {
        let observed = crate::read_bytes("x.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 75]);
        assert_eq!(observed.sources.len(), 1);
        assert!(!observed.sources[0].problems.is_empty());
    }
}
