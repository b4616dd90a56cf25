//! Topologies that people already have, read into a graph or a server.
//!
//! One file for each format. A format is told by the file's name and, where that says too little,
//! by its content. Whatever the bytes, reading ends with a graph or with an error that names file
//! and line; sizes are limited, so that a few bytes cannot ask for terabytes.
//!
//! To add a format: a file with a `read` function, a value of [`Format`] with its lines in
//! [`detect`] and [`graph`], a fixture under `tests/data`, and a line in the tests.

mod containerlab;
mod edge_list;
mod hostlist;
mod ibnetdiscover;
mod nccl;
mod slurm;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::Path;

use fabric::topology::GraphConfig;
use units::Budget;

use crate::source::{is_allowed, remember, up_to};

pub use hostlist::BUDGET as HOSTS;
pub use hostlist::{compress, expand};
pub use nccl::Server;

/// The largest topology file that is read: an edge list of a million GPUs fits.
pub const MAX_BYTES: u64 = 512 << 20;

/// What a topology file may take: cables of a million GPUs fit; nesting needs six levels or so;
/// what lists and aliases write out is far less than what a file can say by itself.
pub const BUDGET: Budget =
    Budget { bytes: MAX_BYTES, items: 1 << 23, depth: 64, expansion: 256 << 20 };

/// What a topology file is written in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// A table of cables.
    EdgeList,
    /// A containerlab topology.
    Containerlab,
    /// What `ibnetdiscover` prints.
    Ibnetdiscover,
    /// Slurm's `topology.conf`.
    SlurmConf,
    /// Slurm's `topology.yaml`.
    SlurmYaml,
}

impl Format {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::EdgeList => "an edge list",
            Self::Containerlab => "a containerlab topology",
            Self::Ibnetdiscover => "ibnetdiscover output",
            Self::SlurmConf => "a Slurm topology.conf",
            Self::SlurmYaml => "a Slurm topology.yaml",
        }
    }
}

/// Why a file could not be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImportError {
    /// The file, as it was named.
    pub file: String,
    /// The line, counted from 1; 0 if it is the file as a whole.
    pub line: usize,
    /// What is wrong with it, in words.
    pub reason: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, reason } = self;
        match line {
            0 => write!(f, "{file}: {reason}"),
            _ => write!(f, "{file}:{line}: {reason}"),
        }
    }
}

impl std::error::Error for ImportError {}

/// What is wrong with a line, before the file's name is known.
pub(crate) type LineError = (usize, String);

/// What formats need to know that do not say everything.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    /// NICs of a server, for formats that know only servers (Slurm).
    pub nics_per_node: u32,
    /// What reading may take.
    pub budget: Budget,
}

impl Default for Hints {
    fn default() -> Self {
        Self { nics_per_node: 1, budget: BUDGET }
    }
}

/// The text of a topology file.
pub fn read(path: &Path) -> Result<String, ImportError> {
    let refuse = |reason: String| ImportError {
        file: path.display().to_string(),
        line: 0,
        reason: format!("cannot be read: {reason}"),
    };
    if !is_allowed(path) {
        return Err(refuse("it lies outside the workspace".to_owned()));
    }
    let about = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if about.is_dir() {
        return Err(refuse("it is a directory".to_owned()));
    }
    remember(&about);
    // A device or a pipe has no length to go by.
    let bytes = File::open(path).and_then(|file| up_to(MAX_BYTES, file));
    let bytes = bytes.map_err(|error| refuse(error.to_string()))?;
    if MAX_BYTES < bytes.len() as u64 {
        return Err(refuse(format!("it has more than {MAX_BYTES} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        refuse(format!("it is not UTF-8 text; look at byte {}", error.utf8_error().valid_up_to()))
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}

/// Which format a file has, by its name and its first lines.
pub fn detect(name: &str, text: &str) -> Option<Format> {
    let name = name.to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    let head: String = text.chars().take(1 << 16).collect();
    if ends(&[".clab.yml", ".clab.yaml"]) {
        return Some(Format::Containerlab);
    }
    if ends(&[".yml", ".yaml"]) {
        let says_nodes = head.lines().any(|line| line.trim_start().starts_with("endpoints:"));
        let has_topology = head.lines().any(|line| line.starts_with("topology:"));
        return Some(match says_nodes || has_topology {
            true => Format::Containerlab,
            false => Format::SlurmYaml,
        });
    }
    if ends(&[".csv", ".tsv"]) {
        return Some(Format::EdgeList);
    }
    let begins = |words: &[&str]| {
        let lines = head.lines().map(|line| line.trim_start().to_lowercase());
        let starts = |line: &String| words.iter().any(|word| line.starts_with(word));
        lines.filter(|line| !line.starts_with('#')).any(|line| starts(&line))
    };
    if begins(&["vendid=", "switchguid=", "caguid=", "switch\t", "ca\t"]) {
        return Some(Format::Ibnetdiscover);
    }
    if begins(&["switchname=", "blockname=", "ringname="]) || ends(&["topology.conf"]) {
        return Some(Format::SlurmConf);
    }
    let first = head.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'))?;
    first.contains([',', ';', '\t']).then_some(Format::EdgeList)
}

/// A graph, and what the file does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The graph.
    pub graph: GraphConfig,
    /// What was assumed where the file says nothing, each in a sentence without a full stop.
    pub assumed: Vec<String>,
}

/// Reads a graph. `name` is the file's, for its format and for errors.
pub fn graph(name: &str, text: &str, hints: Hints) -> Result<Graph, ImportError> {
    let error = |(line, reason): LineError| ImportError { file: name.to_owned(), line, reason };
    let Some(format) = detect(name, text) else {
        return Err(error((
            0,
            "is in no known format: an edge list (.csv), containerlab (.clab.yml), ibnetdiscover \
             output, Slurm's topology.conf or topology.yaml"
                .to_owned(),
        )));
    };
    let mut budget = hints.budget;
    let size = budget.spend_bytes(text.len() as u64);
    size.map_err(|over| error((0, over.to_string())))?;
    let graph = match format {
        Format::EdgeList => edge_list::read(text, &mut budget),
        Format::Containerlab => containerlab::read(text, &mut budget),
        Format::Ibnetdiscover => ibnetdiscover::read(text, &mut budget),
        Format::SlurmConf => slurm::read_conf(text, hints, &mut budget),
        Format::SlurmYaml => slurm::read_yaml(text, hints, &mut budget),
    };
    let graph = graph.map_err(|(line, reason)| {
        error((line, if line == 0 { format!("as {}: {reason}", format.name()) } else { reason }))
    })?;
    if graph.endpoints.is_empty() || graph.edges.is_empty() {
        let what = if graph.edges.is_empty() { "no cables" } else { "no endpoints" };
        return Err(error((0, format!("as {}: it has {what}", format.name()))));
    }
    let assumed = match format {
        Format::SlurmConf | Format::SlurmYaml => slurm::assumptions(hints),
        _ => Vec::new(),
    };
    Ok(Graph { graph, assumed })
}

/// Reads the inside of a server from an NCCL topology file.
pub fn server(name: &str, text: &str) -> Result<Server, ImportError> {
    let error = |(line, reason): LineError| ImportError { file: name.to_owned(), line, reason };
    nccl::read(text, &mut { BUDGET }).map_err(error)
}

/// Endpoints put together by server, in the order in which servers and NICs were first met, and
/// how many each server has if all have equally many.
pub(crate) fn by_server(endpoints: Vec<(String, String)>) -> (Vec<String>, Option<u32>) {
    let mut servers: Vec<Vec<String>> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (server, endpoint) in endpoints {
        let place = *places.entry(server).or_insert_with(|| {
            servers.push(Vec::new());
            servers.len() - 1
        });
        servers[place].push(endpoint);
    }
    let first = servers.first().map_or(0, Vec::len);
    let is_equal = servers.iter().all(|server| server.len() == first);
    let per_node = if is_equal && 0 < first { u32::try_from(first).ok() } else { Some(1) };
    (servers.into_iter().flatten().collect(), per_node)
}

/// The server that a NIC's name speaks of: what stands before the last `/` or `:`.
pub(crate) fn server_of(endpoint: &str) -> &str {
    endpoint.rsplit_once(['/', ':']).map_or(endpoint, |(server, _)| server)
}
