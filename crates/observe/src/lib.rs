//! What real clusters wrote down, read into one type.
//!
//! Operators have logs, benchmark tables, traces, captures and counters. [`read`] takes any number
//! of such files, tells by their content what they are, unpacks gzip, zstd and tar on the way, and
//! returns [`Observed`]: what the cluster is, what it sent, how long that took.
//!
//! # Map of the modules, in reading order
//!
//! * [`observed`]: what readers fill.
//! * [`input`]: a stream of bytes or lines with its name and place; packed files.
//! * [`format`]: the list of readers. A new one is its file and a line there.
//! * [`log`]: text logs, line by line: NCCL and RCCL, nccl-tests, MLPerf.
//! * [`records`]: benchmarks, profilers and flight recorders that write objects.
//! * [`trace`]: traces of profilers and workloads. [`capture`]: packets. [`counter`]: counters of
//!   NICs and switches, and tables of cables.
//! * [`summary`]: what follows from all of it. [`doctor`]: what looks wrong.
//!
//! # Rules for readers
//!
//! 1. A reader streams: it keeps what it counts, not what it reads.
//! 2. What it cannot read it counts as skipped; what is wrong it says with file and line. It never
//!    panics, whatever the bytes.
//! 3. It states what the file says. What follows from that is said in one place for all readers.

pub mod capture;
pub mod counter;
pub mod doctor;
pub mod format;
pub mod input;
pub mod log;
pub mod observed;
pub mod records;
pub mod summary;
pub mod trace;

use std::path::Path;

pub use format::Format;
pub use input::{Input, ReadError, Watch};
pub use observed::Observed;
pub use summary::Summary;

/// Reads all files in the order in which they were named.
///
/// What cannot be read stands in the `problems` of its source; the rest is read all the same.
pub fn read<P: AsRef<Path>>(files: &[P], watch: &Watch) -> Observed {
    let mut observed = Observed::default();
    for file in files {
        input::open(file.as_ref(), watch, &mut observed);
        if watch.is_interrupted() {
            break;
        }
    }
    observed
}

/// Reads bytes that are already there, as if they were a file of that name.
pub fn read_bytes(name: &str, bytes: &[u8]) -> Observed {
    let mut observed = Observed::default();
    input::unpack(name, None, Box::new(bytes), &Watch::default(), &mut observed);
    observed
}
