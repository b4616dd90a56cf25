//! Slurm's own commands: what they are asked, and what their answers mean.
//!
//! Slurm's C library has no stable interface; its commands have.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use commands::Failure;

/// One task of an array, as Slurm tells it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Task {
    /// The array's job.
    pub(crate) job: u64,
    /// Which task of it: the shard.
    pub(crate) shard: u32,
    /// `RUNNING`, `NODE_FAIL`, … Not the exit code, which is 0 for a task whose node was lost.
    pub(crate) state: String,
    /// Why it waits, or how it ended; `None` where Slurm has nothing to say.
    pub(crate) reason: Option<String>,
}

impl Task {
    /// Whether Slurm will do nothing more for it.
    pub(crate) fn has_ended(&self) -> bool {
        // CONFIGURING, COMPLETING, REQUEUED, … are all on their way.
        const ENDED: [&str; 10] = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "REVOKED",
            "TIMEOUT",
        ];
        ENDED.contains(&self.state.as_str())
    }

    /// Whether it waits for a person.
    pub(crate) fn is_held(&self) -> bool {
        let held = |reason: &String| reason.to_lowercase().contains("held");
        self.state == "PENDING" && self.reason.as_ref().is_some_and(held)
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.state)?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// Why one of Slurm's commands gave no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Unanswered {
    /// The command is not installed here.
    Missing(&'static str),
    /// It said this.
    Refused(&'static str, String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(program) => write!(
                f,
                "Slurm's command `{program}` is not on the PATH; use a machine from which jobs \
                 are submitted, such as a login node"
            ),
            Self::Refused(program, said) => {
                let what = explained(said).unwrap_or("Slurm did not do what it was asked");
                write!(f, "{what} (`{program}` says: {said})")
            }
        }
    }
}

/// What Slurm's own words mean, by a part of them.
const MEANINGS: [(&str, &str); 9] = [
    (
        "Unable to contact slurm controller",
        "Slurm's controller (slurmctld) does not answer from this machine; `scontrol ping` says \
         whether it is up, and SLURM_CONF which cluster is asked",
    ),
    (
        "Could not establish a configuration source",
        "this machine belongs to no Slurm cluster: there is no slurm.conf; use a machine from \
         which jobs are submitted, such as a login node",
    ),
    (
        "Unable to process configuration file",
        "Slurm's configuration on this machine cannot be read; SLURM_CONF says which it is",
    ),
    (
        "Connection refused",
        "Slurm's controller (slurmctld) is not running where this machine looks for it; `scontrol \
         ping` says whether it is up",
    ),
    (
        "Protocol authentication error",
        "Slurm does not know who you are here: munge is not running, or has another key",
    ),
    ("munge", "Slurm does not know who you are here: munge is not running, or has another key"),
    (
        "invalid partition",
        "there is no such partition; `sinfo` lists them, and --partition names one",
    ),
    (
        "Invalid account",
        "Slurm wants another account or partition of you; name it with --sbatch-arg=--account=NAME",
    ),
    (
        "Requested node configuration is not available",
        "no node of the partition has what a task asks for; --mem and --cpus ask for less",
    ),
];

/// What Slurm's own words mean, if they are known.
fn explained(said: &str) -> Option<&'static str> {
    let known = MEANINGS.iter().find(|(words, _)| said.contains(words));
    known.map(|(_, meaning)| *meaning)
}

impl From<Unanswered> for Failure {
    fn from(reason: Unanswered) -> Self {
        Self::Run(reason.to_string())
    }
}

/// All tasks of arrays with this name that Slurm remembers, ended ones too.
pub(crate) fn tasks(name: &str) -> Result<Vec<Task>, Unanswered> {
    let name = format!("--name={name}");
    let answer =
        ask("squeue", &["--noheader", "--array", "--states=all", "--format=%F|%K|%T|%r", &name])?;
    Ok(answer.lines().filter_map(task).collect())
}

/// `12|3|PENDING|Resources`.
fn task(line: &str) -> Option<Task> {
    let mut fields = line.trim().splitn(4, '|');
    let job = fields.next()?.parse().ok()?;
    let shard = fields.next()?.parse().ok()?;
    let state = fields.next()?.to_owned();
    let reason = fields.next().map(str::to_owned).filter(|reason| reason != "None");
    Some(Task { job, shard, state, reason })
}

/// How many tasks an array may have.
pub(crate) fn max_array_size() -> Result<u32, Unanswered> {
    let answer = ask("scontrol", &["show", "config"])?;
    let value = answer.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "MaxArraySize").then(|| value.trim().parse().ok())?
    });
    let missing = || Unanswered::Refused("scontrol", "its answer has no MaxArraySize".to_owned());
    value.ok_or_else(missing)
}

/// Submits a script, with these flags besides its own; the job's number.
pub(crate) fn submit(script: &Path, flags: &[String]) -> Result<u64, Unanswered> {
    let script = script.to_string_lossy();
    let mut arguments = vec!["--parsable"];
    arguments.extend(flags.iter().map(String::as_str));
    arguments.push(&script);
    let answer = ask("sbatch", &arguments)?;
    // `12`, or `12;cluster` where there are several clusters.
    let number = answer.trim().split(';').next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| Unanswered::Refused("sbatch", format!("no job number in `{answer}`")))
}

fn ask(program: &'static str, arguments: &[&str]) -> Result<String, Unanswered> {
    let mut command = Command::new(program);
    // Messages and states in the words that are looked for.
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Unanswered::Missing(program),
        _ => Unanswered::Refused(program, error.to_string()),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    let said = if said.is_empty() { output.status.to_string() } else { said };
    Err(Unanswered::Refused(program, said))
}

/// `0-4,7`, as `--array` takes it.
pub(crate) fn ranges(shards: &[u32]) -> String {
    let mut text: Vec<String> = Vec::new();
    let mut rest = shards;
    while let [first, ..] = rest {
        let follow = rest.iter().zip(*first..).take_while(|(shard, next)| *shard == next);
        let length = follow.count();
        text.push(match length {
            1 => first.to_string(),
            _ => format!("{first}-{}", rest[length - 1]),
        });
        rest = &rest[length..];
    }
    text.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squeue_are_tasks() {
        let waits = task("12|3|PENDING|launch failed requeued held").expect("a task");
        assert_eq!((waits.job, waits.shard), (12, 3));
        assert!(waits.is_held() && !waits.has_ended());
        let lost = task("12|0|NODE_FAIL|None").expect("a task");
        assert!(lost.has_ended());
        assert_eq!(lost.to_string(), "NODE_FAIL");
        // A job that is no array, and no job at all.
        assert_eq!(task("12|N/A|RUNNING|None"), None);
        assert_eq!(task(""), None);
    }

    #[test]
    fn words_of_slurm_are_explained() {
        let said =
            "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)";
        let text = Unanswered::Refused("scontrol", said.to_owned()).to_string();
        assert!(text.starts_with("Slurm's controller (slurmctld) does not answer"), "{text}");
        assert!(text.ends_with(&format!("(`scontrol` says: {said})")), "{text}");
        let other = Unanswered::Refused("sbatch", "error: 42".to_owned()).to_string();
        assert_eq!(other, "Slurm did not do what it was asked (`sbatch` says: error: 42)");
    }

    #[test]
    fn shards_become_ranges() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[4]), "4");
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
