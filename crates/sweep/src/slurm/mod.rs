//! `sweep submit --slurm`: the shards of a sweep as job arrays.
//!
//! The results in the sweep's folder are the only truth. Slurm's states say why something is
//! missing, never that it is there: a task can be COMPLETED without having run, or run twice where
//! its node was believed dead. So every round compares results with the plan, and submits again
//! what is missing. The script and the numbers of the jobs are kept in the folder (`slurm.sh`,
//! `slurm.json`), and jobs are found again by their name, so that whoever follows can stop at any
//! time, or be killed, and the same command goes on.

mod queue;
mod script;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use commands::Failure;
use commands::meter::Meter;
use report::number::grouped;
use report::{Align, Answer, Sheet, Table};
use scenario::hash::hash_bytes;
use serde::{Deserialize, Serialize};

use crate::merge::{self, Status};
use crate::outlook::Outlook;
use crate::{share, store};
use queue::{Task, Unanswered, ranges};
use script::{Ask, Script};

/// How a sweep is submitted.
#[derive(Clone, Debug)]
pub struct Options {
    /// The partition, if somebody says.
    pub partition: Option<String>,
    /// How many shards, if somebody says.
    pub shards: Option<u32>,
    /// Cores of a task.
    pub cpus: u16,
    /// The time limit of a task as `sbatch` takes it, instead of the estimate.
    pub time: Option<String>,
    /// The memory of a task as `sbatch` takes it, instead of the estimate.
    pub memory: Option<String>,
    /// Further flags of `sbatch`.
    pub flags: Vec<String>,
    /// How often missing cases are submitted again.
    pub resubmissions: u32,
    /// Whether to wait for the jobs.
    pub follow: bool,
    /// What the tasks run, as the nodes find it: this program, and flags that say what its cases
    /// are.
    pub command: Vec<String>,
    /// The folder that paths in the grid are relative to, as the nodes find it.
    pub paths_from: PathBuf,
}

/// Who wants to know how it goes, and can stop it.
pub struct Follower<'a> {
    /// Told what happened.
    pub say: &'a dyn Fn(&str),
    /// Told how much is done: what, cases done, cases in all.
    pub progress: &'a dyn Fn(&str, u64, u64),
    /// Stops the following, not the jobs.
    pub interrupt: &'a AtomicBool,
}

/// What is kept in the folder of what was submitted.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Record {
    /// The name of all arrays of this sweep.
    pub name: String,
    /// How many shards there are.
    pub shards: u32,
    /// The arrays, oldest first.
    pub jobs: Vec<Job>,
}

/// One array.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Job {
    /// Slurm's number of it.
    pub id: u64,
    /// Its shards, such as `0-4,7`.
    pub shards: String,
    /// Why it was submitted, where it was not the first.
    pub why: Vec<String>,
}

/// How long Slurm may be silent.
const SILENCE_S: f64 = 600.0;
/// From one question to the next: at least, and at most.
const POLL_S: (f64, f64) = (1.0, 15.0);

/// What was submitted, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Submission {
    /// The sweep's folder.
    pub folder: PathBuf,
    /// What was submitted.
    #[serde(flatten)]
    pub record: Record,
    /// How far the sweep has come.
    #[serde(flatten)]
    pub status: Status,
    /// Whether somebody stopped the following.
    pub interrupted: bool,
}

/// Submits what is missing, and follows it until nothing is.
pub fn submit(
    folder: &Path,
    outlook: &Outlook,
    options: &Options,
    follower: &Follower<'_>,
) -> Result<Submission, Failure> {
    Round::begin(folder, outlook, options, follower)?.run()
}

/// One sweep on its way through Slurm.
struct Round<'a> {
    folder: PathBuf,
    options: &'a Options,
    follower: &'a Follower<'a>,
    record: Record,
    ask: Ask,
    /// The last that was heard of each shard.
    heard: BTreeMap<u32, Task>,
    /// Tasks that have not ended.
    under_way: Vec<Task>,
}

impl<'a> Round<'a> {
    fn begin(
        folder: &Path,
        outlook: &Outlook,
        options: &'a Options,
        follower: &'a Follower<'a>,
    ) -> Result<Self, Failure> {
        let limit = queue::max_array_size()?;
        let folder =
            folder.canonicalize().map_err(|error| store::failed("find", folder, &error))?;
        let name = name(&folder, &outlook.plan.head.plan);
        // What was submitted of another plan is of no interest.
        let kept = Record::read(&folder)?.filter(|record| record.name == name);
        let mut record = kept.unwrap_or_default();
        let kept = Some(record.shards).filter(|shards| 0 < *shards);
        let shards = options.shards.or(kept).unwrap_or_else(|| share::shards(outlook, limit));
        if limit < shards {
            return Err(Failure::Usage(format!(
                "--shards {shards}: this Slurm takes arrays of at most {limit} tasks \
                 (MaxArraySize)"
            )));
        }
        let is_under_way = || -> Result<bool, Unanswered> {
            Ok(queue::tasks(&name)?.iter().any(|task| !task.has_ended()))
        };
        if kept.is_some_and(|kept| kept != shards) && is_under_way()? {
            return Err(Failure::Usage(format!(
                "--shards {shards}: {} shards of this sweep are under way; wait for them, or end \
                 them with `scancel --name={name}`",
                record.shards
            )));
        }
        (record.name, record.shards) = (name, shards);
        let ask = ask(outlook, shards, options.cpus);
        Ok(Self {
            folder,
            options,
            follower,
            record,
            ask,
            heard: BTreeMap::new(),
            under_way: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Submission, Failure> {
        let mut submitted = 0;
        // Tasks of an earlier call, perhaps of one that was killed, are followed first.
        self.is_under_way()?;
        loop {
            if self.under_way.is_empty() {
                let missing = self.missing()?;
                if missing.is_empty() {
                    return self.end(false);
                }
                let why = if self.heard.is_empty() { Vec::new() } else { self.why(&missing) };
                self.check(submitted, &missing, &why)?;
                self.submit(&missing, why)?;
                submitted += 1;
            }
            if !self.options.follow {
                return self.end(false);
            }
            if !self.follow()? {
                return self.end(true);
            }
        }
    }

    /// The shards that are not complete, with how many cases each lacks.
    fn missing(&self) -> Result<BTreeMap<u32, u64>, Failure> {
        let mut missing = BTreeMap::new();
        for index in merge::missing(&self.folder)? {
            *missing.entry((index % self.record.shards as usize) as u32).or_default() += 1;
        }
        Ok(missing)
    }

    /// Asks Slurm, and notes what it says; whether any task has not ended.
    fn is_under_way(&mut self) -> Result<bool, Unanswered> {
        let tasks = queue::tasks(&self.record.name)?;
        for task in &tasks {
            // Later arrays are of more interest than earlier ones.
            if self.heard.get(&task.shard).is_none_or(|known| known.job <= task.job) {
                self.heard.insert(task.shard, task.clone());
            }
        }
        self.under_way = tasks.into_iter().filter(|task| !task.has_ended()).collect();
        Ok(!self.under_way.is_empty())
    }

    /// Waits until all tasks have ended; `false` if somebody does not want to wait.
    fn follow(&mut self) -> Result<bool, Failure> {
        let (begin, mut answered) = (Meter::start(), Meter::start());
        loop {
            if !self.wait((begin.wall_s() / 20.0).clamp(POLL_S.0, POLL_S.1)) {
                return Ok(false);
            }
            match self.is_under_way() {
                Ok(false) => return Ok(true),
                Ok(true) => answered = Meter::start(),
                // A controller that starts again says nothing for a while.
                Err(Unanswered::Refused(..)) if answered.wall_s() < SILENCE_S => continue,
                Err(reason) => {
                    let next = self.next();
                    return Err(Failure::Run(format!("{reason}; the jobs may go on: {next}")));
                }
            }
            self.tell()?;
            if self.under_way.iter().all(Task::is_held) {
                let (count, first) = (self.under_way.len(), &self.under_way[0]);
                return Err(Failure::Run(format!(
                    "all {count} tasks that are left are held: {first}; `scontrol release {}` lets \
                     them go; {}",
                    first.job,
                    self.next()
                )));
            }
        }
    }

    /// Waits; `false` if somebody does not want to.
    fn wait(&self, seconds: f64) -> bool {
        const BREATH: Duration = Duration::from_millis(100);
        let begin = Meter::start();
        while begin.wall_s() < seconds {
            if self.follower.interrupt.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(BREATH);
        }
        true
    }

    /// Tells how much is done.
    fn tell(&self) -> Result<(), Failure> {
        let status = merge::status(&self.folder)?;
        let states: Vec<String> = by_state(&self.under_way)
            .into_iter()
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        let (done, cases) = (status.done + status.failed, status.cases);
        let text = format!("{done} of {cases} cases; tasks: {}", states.join(", "));
        (self.follower.progress)(&text, done as u64, cases as u64);
        Ok(())
    }

    /// Why shards are not complete, by what Slurm says of them and their own last words.
    fn why(&self, missing: &BTreeMap<u32, u64>) -> Vec<String> {
        let mut reasons: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for shard in missing.keys() {
            let reason = match self.heard.get(shard) {
                None => "Slurm knows nothing of it any more".to_owned(),
                Some(task) if task.state == "COMPLETED" => {
                    "COMPLETED, but not all of its cases are there".to_owned()
                }
                Some(task) => match self.last_words(task) {
                    Some(words) => format!("{task}: {words}"),
                    None => task.to_string(),
                },
            };
            reasons.entry(reason).or_default().push(*shard);
        }
        let line = |(reason, shards): (String, Vec<u32>)| {
            let plural = if shards.len() == 1 { "" } else { "s" };
            format!("shard{plural} {}: {reason}", ranges(&shards))
        };
        reasons.into_iter().map(line).collect()
    }

    /// The last line that a task wrote.
    fn last_words(&self, task: &Task) -> Option<String> {
        let path = self.script().logs().join(format!("{}_{}.log", task.job, task.shard));
        let text = fs::read(path).ok()?;
        let text = String::from_utf8_lossy(&text);
        let words = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(words.trim().chars().take(200).collect())
    }

    /// Whether to submit again; says why not.
    fn check(
        &mut self,
        submitted: u32,
        missing: &BTreeMap<u32, u64>,
        why: &[String],
    ) -> Result<(), Failure> {
        let left: u64 = missing.values().sum();
        let stop = |reason: String| {
            let (why, next) = (why.join("; "), self.next());
            Err(Failure::Run(format!("{reason}: {left} cases are missing; {why}; {next}")))
        };
        let ended_by_hand = |shard: &u32| {
            self.heard.get(shard).is_some_and(|task| task.state.starts_with("CANCELLED"))
        };
        if 0 < submitted && missing.keys().any(ended_by_hand) {
            return stop("tasks were cancelled".to_owned());
        }
        // Where nothing can be written it would end in the same way.
        if let Err(failure) = store::probe(&self.folder) {
            return stop(failure.to_string());
        }
        if self.options.resubmissions < submitted {
            return stop(format!("given up after {submitted} submissions"));
        }
        let ended_with = |state: &str| {
            missing
                .keys()
                .any(|shard| self.heard.get(shard).is_some_and(|task| task.state == state))
        };
        if ended_with("TIMEOUT") {
            self.ask = self.ask.longer();
        }
        if ended_with("OUT_OF_MEMORY") {
            self.ask = self.ask.larger();
        }
        Ok(())
    }

    fn submit(&mut self, missing: &BTreeMap<u32, u64>, why: Vec<String>) -> Result<(), Failure> {
        let script = self.script();
        let path = self.folder.join("slurm.sh");
        let logs = script.logs();
        fs::create_dir_all(&logs).map_err(|error| store::failed("create", &logs, &error))?;
        store::replace(&path, script.text().as_bytes())?;
        let shards: Vec<u32> = missing.keys().copied().collect();
        let shards = ranges(&shards);
        let mut flags = vec![format!("--array={shards}"), script.output()];
        let [time, memory] = self.ask.flags();
        flags.extend(self.options.time.is_none().then_some(time));
        flags.extend(self.options.memory.is_none().then_some(memory));
        let id = queue::submit(&path, &flags)?;
        let again = if why.is_empty() { "" } else { " again" };
        for reason in &why {
            (self.follower.say)(reason);
        }
        (self.follower.say)(&format!("submitted{again}: job {id}, shards {shards}"));
        self.record.jobs.push(Job { id, shards, why });
        self.record.write(&self.folder)
    }

    fn script(&self) -> Script<'_> {
        Script {
            name: &self.record.name,
            shards: self.record.shards,
            ask: self.ask,
            options: self.options,
            folder: &self.folder,
        }
    }

    /// How to go on.
    fn next(&self) -> String {
        format!(
            "the same command goes on, `fatflow sweep status {}` says how far it is, \
             `scancel --name={}` ends it",
            self.folder.display(),
            self.record.name
        )
    }

    fn end(self, interrupted: bool) -> Result<Submission, Failure> {
        if interrupted {
            (self.follower.say)(&format!("no longer following; {}", self.next()));
        }
        let status = merge::status(&self.folder)?;
        Ok(Submission { folder: self.folder, record: self.record, status, interrupted })
    }
}

/// The arrays' name: of this plan in this folder, whoever submits them.
fn name(folder: &Path, plan: &str) -> String {
    let place = format!("{} {plan}", folder.display());
    format!("fatflow-{}", hash_bytes(place.as_bytes()))
}

/// What a task asks for.
fn ask(outlook: &Outlook, shards: u32, cpus: u16) -> Ask {
    let minutes = (share::seconds(outlook, shards, cpus) / 60.0).ceil() as u64;
    Ask { minutes, megabytes: share::memory(outlook).div_ceil(1 << 20) }
}

/// The file of a record.
const FILE: &str = "slurm.json";

impl Record {
    /// What was submitted from a folder, if anything was.
    pub fn read(folder: &Path) -> Result<Option<Self>, Failure> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(store::failed("read", &path, &error)),
        };
        let record = serde_json::from_str(&text);
        record.map(Some).map_err(|error| {
            Failure::Run(format!("{}: {error}; remove it to submit anew", path.display()))
        })
    }

    fn write(&self, folder: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::Run(format!("cannot write {FILE}: {error}")))?;
        store::replace(&folder.join(FILE), (text + "\n").as_bytes())
    }
}

/// How many tasks are in each state.
fn by_state<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    for task in tasks {
        *states.entry(task.to_string()).or_default() += 1;
    }
    states
}

/// What Slurm says of a sweep.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Queue {
    /// What was submitted.
    #[serde(flatten)]
    pub record: Record,
    /// How many tasks are in each state, by the latest that is known of each shard.
    pub tasks: BTreeMap<String, usize>,
    /// Missing cases of shards that run now.
    pub under_way: usize,
    /// Why Slurm could not be asked.
    pub unanswered: Option<String>,
}

/// How far a sweep is, by its results and, where it was submitted, by Slurm.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    /// What is there.
    #[serde(flatten)]
    pub status: Status,
    /// What Slurm says, where it was submitted.
    pub slurm: Option<Queue>,
}

/// How far a sweep is; from anywhere that sees its folder.
pub fn state(folder: &Path) -> Result<State, Failure> {
    Ok(State { slurm: queue(folder)?, status: merge::status(folder)? })
}

impl Answer for State {
    fn sheet(&self) -> Sheet {
        let sheet = self.status.sheet();
        let Some(Queue { record, tasks, under_way, unanswered }) = &self.slurm else {
            return sheet;
        };
        let jobs: Vec<String> = record.jobs.iter().map(|job| job.id.to_string()).collect();
        let sheet = sheet.heading(format!("Slurm: job {}", jobs.join(", ")));
        if let Some(reason) = unanswered {
            return sheet.note(format!("Slurm cannot be asked here: {reason}."));
        }
        let mut table = Table::new([("tasks", Align::Right), ("state", Align::Left)]);
        for (state, count) in tasks {
            table.row([count.to_string(), state.clone()]);
        }
        let sheet = if tasks.is_empty() {
            sheet.text("Slurm remembers none of its tasks: they ended some time ago.")
        } else {
            sheet.table(table)
        };
        sheet.text(format!(
            "{} missing cases are in shards that run now.",
            grouped(*under_way as u64)
        ))
    }
}

/// Asks Slurm about a sweep; nothing if it was not submitted.
fn queue(folder: &Path) -> Result<Option<Queue>, Failure> {
    let Some(record) = Record::read(folder)? else { return Ok(None) };
    let mut queue = Queue { record, ..Queue::default() };
    let tasks = match queue::tasks(&queue.record.name) {
        Ok(mut tasks) => {
            tasks.sort_by_key(|task| task.job);
            tasks
        }
        Err(reason) => {
            queue.unanswered = Some(reason.to_string());
            return Ok(Some(queue));
        }
    };
    let latest: BTreeMap<u32, &Task> = tasks.iter().map(|task| (task.shard, task)).collect();
    queue.tasks = by_state(latest.values().copied());
    let shards = queue.record.shards.max(1) as usize;
    let runs = |index: &usize| {
        let task = latest.get(&((index % shards) as u32));
        task.is_some_and(|task| ["RUNNING", "COMPLETING"].contains(&task.state.as_str()))
    };
    queue.under_way = merge::missing(folder)?.iter().filter(|index| runs(index)).count();
    Ok(Some(queue))
}

impl Answer for Submission {
    fn sheet(&self) -> Sheet {
        let Self { folder, record, status, .. } = self;
        let (folder, shards) = (folder.display(), record.shards);
        let count = |count: usize| grouped(count as u64);
        let mut sheet = Sheet::new().heading(format!("Sweep {folder} on Slurm")).facts([
            ("cases", count(status.cases), ""),
            ("done", count(status.done), ""),
            ("failed", count(status.failed), ""),
            ("missing", count(status.missing), ""),
            ("shards", count(shards as usize), ""),
        ]);
        for job in &record.jobs {
            for why in &job.why {
                sheet = sheet.text(why.clone());
            }
            sheet = sheet.text(format!("Job {}: shards {}.", job.id, job.shards));
        }
        sheet.text(match status.missing {
            0 => format!("All is there: `fatflow sweep show {folder}`."),
            _ => format!("`fatflow sweep status {folder}` says how far it is."),
        })
    }
}
