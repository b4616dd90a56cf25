//! Results as files that other tools read: what becomes a row, a node, a slice or a sample.
//!
//! The formats themselves are the `exports` crate's business; here stands what of a run goes into
//! them. Tables are written as CSV or Parquet by the ending of their name.
//!
//! # Map of the modules
//!
//! * [`capture`]: packets as RoCEv2 writes them, in a pcapng file.
//! * [`chakra`]: a job's step as execution traces, one file for each rank.
//! * [`film`]: the fabric with what its links did over time, for a picture.
//! * [`perfetto`]: a step, or synthetic traffic, as a trace to look at.
//! * [`profile`]: steps as PyTorch's profiler would have recorded them.
//! * [`metrics`]: what ports counted, under the names of node_exporter, mlx5 and SONiC.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use exports::Column;
use exports::table::{Form, Table};
use fabric::graph::LinkKind;
use fabric::{Fabric, LinkId};
use step::predict::Prediction;
use traffic::{Counters, Outcome};
use units::Id;

use crate::failure::Failure;
use crate::work::Work;
use crate::world::JobWorld;

pub mod capture;
pub mod chakra;
pub mod film;
pub mod metrics;
pub mod perfetto;
pub mod profile;

/// Links of a step whose series are written, the busiest of each kind.
const SERIES_LINKS: usize = 64;

/// A flag, and the file that it asks for.
pub type RequestedFile<'a> = (&'static str, Option<&'a PathBuf>);

/// Refuses two files of the same name, of which the second would overwrite the first. Devices such
/// as `/dev/null` take as many as there are.
pub fn refuse_one_for_two(files: &[RequestedFile<'_>]) -> Result<(), Failure> {
    let mut known: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in files.iter().filter_map(|(flag, path)| Some((*flag, (*path)?))) {
        let whole = resolved(path);
        if whole.exists() && !whole.is_file() {
            continue;
        }
        if let Some((other, _)) = known.iter().find(|(_, other)| *other == whole) {
            let name = path.display();
            let reason = format!("{other} and {flag} cannot both write {name}: give each a name");
            return Err(Failure::Usage(reason));
        }
        known.push((flag, whole));
    }
    Ok(())
}

/// A path without links and dots, of a file that may not be there yet.
fn resolved(path: &Path) -> PathBuf {
    let whole = path.canonicalize().ok();
    let beside = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
    };
    let written = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.or_else(beside).unwrap_or_else(written)
}

/// Writes a file, whole or not at all; what goes wrong names it. A file that was read as an input
/// is not written over.
pub fn save(
    path: &Path,
    write: impl FnOnce(BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    refuse_input(path)?;
    let written = replace(path, write);
    written.map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))
}

/// Refuses a file that this process has read: an answer would destroy what was asked.
pub fn refuse_input(path: &Path) -> Result<(), Failure> {
    match scenario::was_read(path) {
        true => Err(Failure::Usage(format!(
            "{} was read as an input and is not written over: give another name",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Writes beside the file, makes sure that it stays, and puts it in the file's place: who looks, or
/// whatever breaks, finds the old file or the new one. Devices and pipes are written as they are.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let target = resolved(path);
    let old = std::fs::metadata(&target).ok();
    if old.as_ref().is_some_and(|about| !about.is_file()) {
        return write(BufWriter::new(File::options().write(true).open(&target)?));
    }
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name: String = name.chars().take(100).collect();
    let beside = target.with_file_name(format!(".{name}.{}-{number}.new", std::process::id()));
    let written = File::create_new(&beside).and_then(|file| {
        if let Some(old) = old {
            file.set_permissions(old.permissions())?;
        }
        write(BufWriter::new(file.try_clone()?))?;
        file.sync_all()?;
        std::fs::rename(&beside, &target)
    });
    if written.is_err() {
        // It may not be there; the error is what matters.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// Writes a text, and the folder that it lies in where there is none.
pub fn save_text(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| {
            Failure::Run(format!("cannot create {}: {error}", folder.display()))
        })?;
    }
    save_bytes(path, text.as_bytes())
}

/// Writes bytes.
pub fn save_bytes(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    save(path, |mut out| {
        io::Write::write_all(&mut out, bytes)?;
        io::Write::flush(&mut out)
    })
}

/// Writes a table as its name asks for.
pub fn save_table(path: &Path, table: &Table) -> Result<(), Failure> {
    save(path, |mut out| {
        table.write(Form::of(path), &mut out)?;
        io::Write::flush(&mut out)
    })
}

/// What one link did over a run or a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    /// Bytes that crossed it.
    pub bytes: f64,
    /// Queue pairs that were routed over it.
    pub flows: u64,
    /// The deepest its queue has been.
    pub peak_queue: u64,
    /// How long it was paused or without credits.
    pub paused_s: f64,
}

/// What the links of a fabric did.
#[derive(Clone, Debug)]
pub struct Links<'a> {
    /// The network.
    pub fabric: &'a Fabric,
    /// How long the run or the step was.
    pub seconds: f64,
    /// By link.
    pub carried: Vec<Carried>,
    /// Totals of all ports, where packets were counted.
    pub counters: Option<Counters>,
}

impl<'a> Links<'a> {
    /// Of a run on synthetic traffic.
    pub fn of_run(fabric: &'a Fabric, outcome: &Outcome) -> Self {
        let carried = outcome.links.iter().map(|used| Carried {
            bytes: used.bytes as f64,
            flows: u64::from(used.flows),
            peak_queue: used.peak_queue.get(),
            paused_s: used.paused.as_secs_f64(),
        });
        let counters = Some(outcome.counters).filter(|counters| 0 < counters.packets);
        let seconds = outcome.elapsed().as_secs_f64();
        Self { fabric, seconds, carried: carried.collect(), counters }
    }

    /// Of a step: every phase as often as the step has it. Nothing where no engine ran.
    pub fn of_step(world: &'a JobWorld<'_>, prediction: &Prediction) -> Self {
        let fabric = world.fabric();
        let mut carried = vec![Carried::default(); fabric.links().len()];
        for phase in prediction.phases.iter().filter(|phase| !phase.links.is_empty()) {
            let times = prediction.repeats.get(&phase.exchange.key()).copied().unwrap_or(1.0);
            for (link, used) in phase.links.enumerate() {
                let on = &mut carried[link.index()];
                on.bytes += used.bytes as f64 * times;
                on.flows += u64::from(used.flows);
                on.peak_queue = on.peak_queue.max(used.peak_queue.get());
                on.paused_s += used.paused.as_secs_f64() * times;
            }
        }
        Self { fabric, seconds: prediction.step.as_secs_f64(), carried, counters: None }
    }

    /// Links of the scale-out network, in the order of their numbers.
    pub fn scale_out(&self) -> impl Iterator<Item = LinkId> + '_ {
        let kind = |link: &LinkId| self.fabric.class(*link).kind;
        let wanted = [LinkKind::ScaleOut, LinkKind::Circuit];
        self.fabric.links().ids().filter(move |link| wanted.contains(&kind(link)))
    }

    /// What one of them did.
    pub fn of(&self, link: LinkId) -> Carried {
        self.carried.get(link.index()).copied().unwrap_or_default()
    }

    /// The share of a link's capacity that was used.
    pub fn utilisation(&self, link: LinkId) -> f64 {
        let capacity = self.fabric.class(link).rate.bytes_per_s() * self.seconds;
        if capacity > 0.0 { self.of(link).bytes / capacity } else { 0.0 }
    }

    /// One row for each link of the scale-out network.
    pub fn table(&self) -> Table {
        let links: Vec<LinkId> = self.scale_out().collect();
        let name = |node| Cow::Owned(self.fabric.name(node));
        let ends = |link: &LinkId| self.fabric.links()[*link];
        let words = |of: &dyn Fn(&LinkId) -> Cow<'static, str>| {
            Column::Words(links.iter().map(of).collect())
        };
        let integers = |of: &dyn Fn(LinkId) -> u64| {
            Column::Integers(links.iter().map(|link| of(*link)).collect())
        };
        let numbers = |of: &dyn Fn(LinkId) -> f64| {
            Column::Numbers(links.iter().map(|link| of(*link)).collect())
        };
        Table::new()
            .with("link", integers(&|link| link.index() as u64))
            .with("from", words(&|link| name(ends(link).from)))
            .with("to", words(&|link| name(ends(link).to)))
            .with("class", words(&|link| self.fabric.class(*link).name.clone().into()))
            .with("rate_bps", integers(&|link| self.fabric.class(link).rate.as_bps()))
            .with("bytes", integers(&|link| self.of(link).bytes.round() as u64))
            .with("utilisation", numbers(&|link| self.utilisation(link)))
            .with("queue_pairs", integers(&|link| self.of(link).flows))
            .with("peak_queue_bytes", integers(&|link| self.of(link).peak_queue))
            .with("paused_s", numbers(&|link| self.of(link).paused_s))
    }
}

/// One row for each of the busiest links and each step of the clock, over a training step: the same
/// columns as of synthetic traffic, as far as they are known.
pub fn series_of_step(world: &JobWorld<'_>, prediction: &Prediction) -> Table {
    let fabric = world.fabric();
    let loads = crate::run_job::busiest_over_time(world, prediction, SERIES_LINKS);
    let step_s = prediction.line.length().as_secs_f64();
    let (mut at_s, mut names, mut sent_bps) = (Vec::new(), Vec::new(), Vec::new());
    for (link, loads) in &loads {
        let (name, rate) = (fabric.link_name(*link), fabric.class(*link).rate.as_bps_f64());
        for (at, load) in loads.iter().enumerate() {
            at_s.push(step_s * at as f64 / loads.len() as f64);
            names.push(Cow::Owned(name.clone()));
            sent_bps.push(load * rate);
        }
    }
    Table::new()
        .with("at_s", Column::Numbers(at_s))
        .with("link", Column::Words(names))
        .with("sent_bps", Column::Numbers(sent_bps))
}

/// One row for each flow: DESIGN's `flow,src,dst,bytes,start_ns,received_ns,finish_ns`.
pub fn flows(work: &Work, outcome: &Outcome) -> Table {
    let ns = |ps: u64| ps as f64 / 1e3;
    let integers = |of: &dyn Fn(&traffic::pattern::Flow) -> u64| {
        Column::Integers(work.flows.iter().map(of).collect())
    };
    let times = |of: &dyn Fn(&traffic::OpTimes) -> units::Time| {
        let ends =
            work.ends.iter().map(|end| outcome.ops[*end].map(|times| ns(of(&times).as_ps())));
        Column::SomeNumbers(ends.collect())
    };
    Table::new()
        .with("flow", Column::Integers((0..work.flows.len() as u64).collect()))
        .with("src", integers(&|flow| u64::from(flow.src)))
        .with("dst", integers(&|flow| u64::from(flow.dst)))
        .with("bytes", integers(&|flow| flow.bytes.get()))
        .with("start_ns", Column::Numbers(work.flows.iter().map(|f| ns(f.start.as_ps())).collect()))
        .with("received_ns", times(&|times| times.received))
        .with("finish_ns", times(&|times| times.finish))
}
