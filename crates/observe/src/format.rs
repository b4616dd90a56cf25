//! The list of readers, and which of them a file is given to.
//!
//! To add a reader: write a value of [`Format`] in its file and add its line to [`FORMATS`]. The
//! first whose `recognises` says yes to the content gets the file; the order matters only where
//! two could say yes. Any other text goes through [`crate::log`], line by line; what that finds
//! nothing in is named by [`unread`] and said not to be read.

pub mod unread;

use crate::input::{Input, ReadError};
use crate::observed::{Observed, Source};
use crate::records;

/// A kind of file.
#[derive(Debug)]
pub struct Format {
    /// What people call it, as in "a pcap capture".
    pub name: &'static str,
    /// What is counted in it: lines, packets, events.
    pub unit: &'static str,
    /// Whether the first bytes are of this kind. Names of files do not count.
    pub recognises: fn(&Input<'_>) -> bool,
    /// Reads it. `Err` says why it stopped; what was found until then stays.
    pub read: fn(&mut Input<'_>, &mut Reading<'_>) -> Result<(), ReadError>,
}

/// What a reader fills: the source that it reads, and everything that was observed.
#[derive(Debug)]
pub struct Reading<'a> {
    /// How much of it was read and skipped.
    pub source: Source,
    /// Everything that was observed, in all files.
    pub observed: &'a mut Observed,
}

impl Reading<'_> {
    /// Adds something that is wrong at a line, unless there are many already.
    pub fn problem(&mut self, line: u64, reason: &str) {
        self.source.problem(line, reason);
    }
}

/// All readers, the most certain first.
pub const FORMATS: &[&Format] = &[
    &crate::capture::PCAP,
    &crate::capture::PCAPNG,
    &crate::trace::EVENTS,
    &records::FLIGHT_RECORDER_PICKLE,
    &records::FLIGHT_RECORDER,
    &crate::trace::ROCPD,
    &crate::trace::ROCPROF_CSV,
    &crate::trace::ROCPROF_JSON,
    &crate::trace::WORKLOAD,
    &crate::trace::EXECUTION,
    &crate::trace::CHAKRA,
    &crate::trace::GROUPS,
    &records::INSPECTOR,
    &records::PROFILER,
    &records::EXAMPLE_PROFILER,
    &records::NCCL_TESTS_JSON,
    &records::RCCL_TESTS_JSON,
    &records::RCCL_TESTS_CSV,
    &records::FLOWS,
    &crate::counter::ETHTOOL,
    &crate::counter::RDMA,
    &crate::counter::PERFQUERY,
    &crate::counter::SYSFS,
    &crate::counter::SONIC_JSON,
    &crate::counter::LLDP_TABLE,
    &crate::counter::LLDP_LIST,
    &crate::counter::LLDP_KEYS,
    &crate::counter::LLDP_JSON,
    &crate::counter::SMI,
    &crate::counter::IBNETDISCOVER,
    &crate::counter::SLURM,
    &crate::counter::SLURM_YAML,
    &crate::counter::SONIC_TABLES,
    &crate::counter::PROMETHEUS,
    &crate::log::FORMAT,
];

/// Gives an input to its reader.
pub(crate) fn read(mut input: Input<'_>, observed: &mut Observed) {
    let mut source = Source::new(&input.name, "nothing");
    if input.head().is_empty() {
        source.problems.push(format!("{}: is empty", input.name));
        return observed.sources.push(source);
    }
    let Some(format) = FORMATS.iter().find(|format| (format.recognises)(&input)) else {
        let kind = unread::binary_kind(input.head());
        source.kind = kind.unwrap_or("data of an unknown kind").to_owned();
        source.problems.push(format!("{}: observe does not read this", input.name));
        return observed.sources.push(source);
    };
    source.kind = format.name.to_owned();
    source.unit = format.unit;
    let mut reading = Reading { source, observed };
    let ended = (format.read)(&mut input, &mut reading);
    if let Err(trouble) = ended {
        reading.source.problem(trouble.line, &trouble.reason);
    }
    if 0 < input.cut_lines {
        let cut = format!("{} lines are longer than 4 MiB and were cut", input.cut_lines);
        reading.source.problem(0, &cut);
    }
    let source = reading.source;
    observed.sources.push(source);
}
