//! Executing cases: one case is one thread's, and finished ones are kept a few times a second.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use commands::meter::{self, Meter, ThreadMeter};
use commands::packets::Patience;
use commands::run_job::several;
use commands::{Drawing, Failure, VERSION, run_job, run_traffic};
use report::number::grouped;
use report::{Answer, Sheet};
use scenario::Fabrics;
use serde::Serialize;
use serde_json::Value as Json;
use units::{Bytes, Span};

use crate::grid::Grid;
use crate::plan::{Case, Plan};
use crate::store::{self, Damaged, Machine, Record, SEGMENTS};

/// Finished cases are kept this often: so much work is lost at most when a process is killed.
const COMMIT: Duration = Duration::from_millis(250);

/// Finished cases that may wait to be kept.
const QUEUE: usize = 4096;

/// Which cases to execute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selection {
    /// One of several equal parts: the cases whose number leaves `index` when divided by `count`.
    Shard {
        /// From 0.
        index: usize,
        /// At least 1.
        count: usize,
    },
    /// These, by number.
    Cases(Vec<usize>),
}

impl Selection {
    /// All cases.
    pub const ALL: Self = Self::Shard { index: 0, count: 1 };

    /// What files and the machine table call it.
    pub fn label(&self) -> String {
        match self {
            Self::Shard { index, count } => format!("{index}-of-{count}"),
            Self::Cases(cases) => {
                let text: Vec<String> = cases.iter().map(ToString::to_string).collect();
                let hash = scenario::hash::hash_bytes(text.join(",").as_bytes());
                format!("cases-{}-{hash}", cases.iter().min().unwrap_or(&0))
            }
        }
    }
}

/// Cases by number: one, or from one to another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Numbers(pub RangeInclusive<usize>);

impl FromStr for Numbers {
    type Err = String;

    /// Reads `7` and `1-3`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let ends = match text.split_once('-') {
            None => number(text).map(|one| (one, one)),
            Some((first, last)) => number(first).zip(number(last)),
        };
        match ends {
            Some((first, last)) if last < first => {
                Err(format!("{first}-{last} goes down; write {last}-{first}"))
            }
            Some((first, last)) => Ok(Self(first..=last)),
            None => Err("write numbers of cases like 7 or 1-3".to_owned()),
        }
    }
}

impl Selection {
    /// Cases by number; one that the plan does not have is refused.
    pub fn cases(numbers: &[Numbers], plan: &Plan) -> Result<Self, Failure> {
        let (cases, last) = (plan.cases.len(), plan.cases.len().saturating_sub(1));
        if let Some(Numbers(wrong)) = numbers.iter().find(|Numbers(n)| cases <= *n.end()) {
            let index = wrong.end();
            let reason = format!("there is no case {index}: they count from 0 to {last}");
            return Err(Failure::Usage(reason));
        }
        let all: BTreeSet<usize> = numbers.iter().flat_map(|Numbers(n)| n.clone()).collect();
        Ok(Self::Cases(all.into_iter().collect()))
    }
}

impl FromStr for Selection {
    type Err = String;

    /// Reads `3/8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parts = parts.and_then(|(i, n)| Some((i.trim().parse().ok()?, n.trim().parse().ok()?)));
        match parts {
            Some((index, count)) if index < count => Ok(Self::Shard { index, count }),
            Some((_, 0)) => Err("there is at least one part: 0/1 is all cases".to_owned()),
            Some((_, count)) => Err(format!("shards of {count} count from 0 to {}", count - 1)),
            None => Err("write it like 3/8: the fourth of eight parts".to_owned()),
        }
    }
}

/// How far an execution has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Cases that are kept, those of earlier executions among them.
    pub done: usize,
    /// Those that failed in this execution.
    pub failed: usize,
    /// All that were selected.
    pub selected: usize,
    /// Cases per second of this execution.
    pub rate: f64,
}

/// How to execute.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// On how many threads; at least one.
    pub threads: usize,
    /// Whoever wants to hear how far it has come.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Whoever sets it stops the execution; the cases under way are lost.
    pub interrupt: &'a AtomicBool,
}

/// What an execution came to.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Cases that were selected, each scenario counted once.
    pub selected: usize,
    /// Those that were there before.
    pub before: usize,
    /// Those that were executed now, the failed among them.
    pub executed: usize,
    /// Those of them that failed: each is recorded with its reason.
    pub failed: usize,
    /// Those that an interrupt has left.
    pub left: usize,
    /// Those that were there before and had failed.
    pub failed_before: usize,
    /// Those that were executed although a result was there: it lacks a measure of this plan.
    pub lacking: usize,
    /// Results of other versions of fatflow, which do not count.
    pub other_versions: usize,
    /// Files that could not be trusted; their cases were executed again.
    pub damaged: Vec<Damaged>,
    /// Seconds on the clock.
    pub wall_s: f64,
    /// Seconds of the processor within the cases.
    pub cases_cpu_s: f64,
    /// That over what the threads could have had.
    pub efficiency: f64,
    /// The most memory that the process has used.
    pub peak_rss_bytes: u64,
}

impl Summary {
    /// Whether every case that was selected has been executed, and none has a result.
    pub fn is_all_failed(&self) -> bool {
        0 < self.selected && self.failed + self.failed_before == self.selected
    }
}

impl Answer for Summary {
    fn sheet(&self) -> Sheet {
        let number = |count: usize| grouped(count as u64);
        let mut sheet = Sheet::new().text(format!(
            "{} cases, of which {} were there before; {} executed in {:.1} at {:.0} a second, {} \
             failed; {:.0} % of the threads' time was within cases; at most {:.0} of memory.",
            number(self.selected),
            number(self.before),
            number(self.executed),
            Span::from_secs_f64(self.wall_s),
            self.executed as f64 / self.wall_s.max(1e-9),
            number(self.failed),
            100.0 * self.efficiency,
            Bytes::new(self.peak_rss_bytes),
        ));
        if 0 < self.left {
            let left = number(self.left);
            sheet = sheet.note(format!("stopped: {left} cases are left; run the same again"));
        }
        if 0 < self.lacking {
            let lacking = number(self.lacking);
            sheet = sheet.note(format!(
                "{lacking} cases had results that lack a measure of this grid: these are kept, and \
                 the cases are executed again"
            ));
        }
        if 0 < self.other_versions {
            let others = number(self.other_versions);
            sheet = sheet.note(format!("{others} results of other versions do not count"));
        }
        for Damaged { file, why } in &self.damaged {
            let text = format!("damaged, set aside, its cases executed again: {file}: {why}");
            sheet = sheet.note(text);
        }
        sheet
    }
}

/// Executes the selected cases that are not done yet, and keeps every result under `out`.
pub fn exec(
    grid: &Grid,
    plan: &Plan,
    selection: &Selection,
    out: &Path,
    options: Options<'_>,
) -> Result<Summary, Failure> {
    let clock = Meter::start();
    store::sweep_abandoned(out);
    let contents = store::read(out, &plan.head.measures, None)?;
    store::set_aside(out, &contents.damaged);
    let other_versions = contents.records.iter().filter(|record| record.version != VERSION).count();
    let done: BTreeSet<&str> = contents.records.iter().map(|record| &*record.hash).collect();
    let mut seen = BTreeSet::new();
    let listed: BTreeSet<usize> = match selection {
        Selection::Cases(cases) => cases.iter().copied().collect(),
        Selection::Shard { .. } => BTreeSet::new(),
    };
    let selected = |index: usize| match selection {
        Selection::Shard { index: own, count } => index % count == *own,
        Selection::Cases(_) => listed.contains(&index),
    };
    let selected: Vec<&Case> =
        plan.cases.iter().filter(|case| selected(case.index) && seen.insert(&*case.hash)).collect();
    let pending: Vec<&Case> =
        selected.iter().copied().filter(|case| !done.contains(&*case.hash)).collect();
    let before = selected.len() - pending.len();
    let errors = contents.records.iter().filter(|record| record.error.is_some());
    let errors: BTreeSet<&str> = errors.map(|record| &*record.hash).collect();
    let failed_before = selected.iter().filter(|case| errors.contains(&*case.hash)).count();
    let old: BTreeSet<&str> = contents.lacking.iter().map(String::as_str).collect();
    let lacking = pending.iter().filter(|case| old.contains(&*case.hash)).count();
    let label = selection.label();
    let attempt = store::attempt();
    let about = Attempt { host: store::host(), attempt: attempt.clone(), shard: label.clone() };
    let work = Work { grid, plan, pending: &pending, about: &about, options };
    let writer = Writer { out, plan, about: &about, before, selected: selected.len(), options };
    let kept = work.run(&writer, &clock)?;
    let left = pending.len() - kept.executed;
    if left == 0 {
        store::compact(out, &plan.head.measures, &label, &attempt)?;
    }
    let wall_s = clock.wall_s();
    Ok(Summary {
        selected: selected.len(),
        before,
        executed: kept.executed,
        failed: kept.failed,
        left,
        failed_before,
        lacking,
        other_versions,
        damaged: contents.damaged,
        wall_s,
        cases_cpu_s: kept.cpu_s,
        efficiency: kept.cpu_s / (wall_s * options.threads as f64).max(1e-9),
        peak_rss_bytes: meter::peak_rss_bytes(),
    })
}

/// Who executes.
struct Attempt {
    host: String,
    attempt: String,
    shard: String,
}

struct Work<'a> {
    grid: &'a Grid,
    plan: &'a Plan,
    pending: &'a [&'a Case],
    about: &'a Attempt,
    options: Options<'a>,
}

impl Work<'_> {
    /// Executes on all threads and keeps what comes.
    fn run(&self, writer: &Writer<'_>, clock: &Meter) -> Result<StoredResults, Failure> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let fabrics = Fabrics::default();
        let memory = AtomicU64::new(0);
        let (send, receive) = mpsc::sync_channel(QUEUE);
        std::thread::scope(|scope| {
            for _ in 0..self.options.threads.clamp(1, self.pending.len().max(1)) {
                let send = send.clone();
                let (next, stop, fabrics, memory) = (&next, &stop, &fabrics, &memory);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed)
                        && !self.options.interrupt.load(Ordering::Relaxed)
                    {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = self.pending.get(at) else { break };
                        let Some(record) = self.record(case, fabrics, (at, memory)) else { break };
                        if send.send(record).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(send);
            let kept = writer.keep_all(&receive, clock);
            // Nobody can keep anything any more: the others need not finish.
            stop.store(kept.is_err(), Ordering::Relaxed);
            drop(receive);
            kept
        })
    }

    /// Executes one case; nothing if somebody stopped it.
    fn record(
        &self,
        case: &Case,
        fabrics: &Fabrics,
        (at, memory): (usize, &AtomicU64),
    ) -> Option<Record> {
        let clock = ThreadMeter::start();
        let run = || result(self.grid, case, fabrics, self.options.interrupt);
        let ran = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Err(Failure::Run(format!("a defect of fatflow: {text}")))
        });
        let (measures, error) = match ran {
            Ok(result) => {
                let names = self.plan.head.measures.iter();
                (names.map(|name| measure(&result, name)).collect(), None)
            }
            Err(Failure::Interrupted(_)) => return None,
            Err(failure) => (vec![None; self.plan.head.measures.len()], Some(reason(&failure))),
        };
        // Reading it takes longer than some cases do.
        if at.is_multiple_of(16) {
            memory.store(meter::peak_rss_bytes(), Ordering::Relaxed);
        }
        let Attempt { host, attempt, shard } = self.about;
        Some(Record {
            hash: case.hash.clone(),
            version: VERSION.to_owned(),
            measures,
            error,
            machine: Machine {
                wall_s: clock.wall_s(),
                cpu_s: clock.cpu_s(),
                peak_rss_bytes: memory.load(Ordering::Relaxed),
                host: host.clone(),
                attempt: attempt.clone(),
                shard: shard.clone(),
            },
        })
    }
}

/// Why a case failed, without the places of files, which differ from machine to machine.
fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Input(problems) => {
            let texts: Vec<&str> = problems.0.iter().map(|problem| &*problem.message).collect();
            texts.join("; ")
        }
        other => other.to_string(),
    }
}

/// The result of a case, as `run --json` has it.
pub(crate) fn result(
    grid: &Grid,
    case: &Case,
    fabrics: &Fabrics,
    interrupt: &AtomicBool,
) -> Result<Json, Failure> {
    let loaded = grid.load(case, fabrics)?;
    let mut watch = packetsim::Watch { interrupt: Some(interrupt), ..Default::default() };
    // Whether a case is refused must not depend on the memory of who runs it.
    let (engine, patience) = (case.engine, Patience::Endless);
    let json = if !loaded.members.is_empty() {
        let options = several::Options { engine, patience, steps: 1 };
        serde_json::to_value(several::run(&loaded, options, &mut watch)?)
    } else if loaded.job.is_some() {
        serde_json::to_value(run_job::run(&loaded, engine, patience, &mut watch)?)
    } else if loaded.scenario.traffic.is_some() {
        let options = run_traffic::Options {
            engine,
            patience,
            series: None,
            capture: None,
            drawing: Drawing::Omitted,
        };
        let (report, ..) = run_traffic::run(&loaded, &options, &mut watch)?;
        if watch.is_interrupted() {
            return Err(Failure::interrupted());
        }
        serde_json::to_value(report)
    } else {
        return Err(Failure::Run("the scenario has neither a job nor traffic".to_owned()));
    };
    json.map_err(|error| Failure::Run(format!("cannot write the result: {error}")))
}

/// A number of a result by its path, through tables and, by number, through lists.
pub(crate) fn measure(result: &Json, path: &str) -> Option<f64> {
    let found = path.split('.').try_fold(result, |json, step| match json {
        Json::Object(fields) => fields.get(step),
        Json::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })?;
    found.as_f64().or_else(|| found.as_bool().map(|truth| f64::from(u8::from(truth))))
}

struct Writer<'a> {
    out: &'a Path,
    plan: &'a Plan,
    about: &'a Attempt,
    before: usize,
    selected: usize,
    options: Options<'a>,
}

/// What was kept.
#[derive(Default)]
struct StoredResults {
    executed: usize,
    failed: usize,
    cpu_s: f64,
}

impl Writer<'_> {
    /// Keeps records as they come, several in one file, until nobody sends any more.
    fn keep_all(
        &self,
        receive: &Receiver<Record>,
        clock: &Meter,
    ) -> Result<StoredResults, Failure> {
        let folder = self.out.join(SEGMENTS);
        let Attempt { attempt, shard, .. } = self.about;
        let (mut kept, mut waiting, mut number) = (StoredResults::default(), Vec::new(), 0_u64);
        let mut last_commit = clock.wall_s();
        loop {
            let received = receive.recv_timeout(COMMIT);
            let has_ended = received == Err(RecvTimeoutError::Disconnected);
            waiting.extend(received.ok());
            let is_due = COMMIT.as_secs_f64() <= clock.wall_s() - last_commit;
            if !waiting.is_empty() && (has_ended || is_due) {
                let stem = format!("{shard}.{attempt}.{number}");
                store::keep(&folder, &stem, &waiting, &self.plan.head.measures)?;
                number += 1;
                kept.add(&waiting);
                waiting.clear();
            }
            if is_due || has_ended {
                last_commit = clock.wall_s();
                (self.options.progress)(Progress {
                    done: self.before + kept.executed,
                    failed: kept.failed,
                    selected: self.selected,
                    rate: kept.executed as f64 / clock.wall_s().max(1e-3),
                });
            }
            if has_ended {
                return Ok(kept);
            }
        }
    }
}

impl StoredResults {
    fn add(&mut self, records: &[Record]) {
        self.executed += records.len();
        self.failed += records.iter().filter(|record| record.error.is_some()).count();
        self.cpu_s += records.iter().map(|record| record.machine.cpu_s).sum::<f64>();
    }
}
