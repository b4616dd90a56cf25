//! The script of a job array: what each task asks for, and what it runs.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::Options;

/// What a task asks Slurm for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ask {
    /// Minutes until Slurm ends it.
    pub(crate) minutes: u64,
    /// Memory.
    pub(crate) megabytes: u64,
}

impl Ask {
    /// Twice as long, for a task that was not done in time.
    pub(crate) fn longer(self) -> Self {
        Self { minutes: 2 * self.minutes, ..self }
    }

    /// Twice the memory.
    pub(crate) fn larger(self) -> Self {
        Self { megabytes: 2 * self.megabytes, ..self }
    }

    /// As `sbatch` takes it.
    pub(crate) fn flags(self) -> [String; 2] {
        [self.time(), self.memory()]
    }

    fn time(self) -> String {
        format!("--time={}", self.minutes)
    }

    fn memory(self) -> String {
        format!("--mem={}M", self.megabytes)
    }
}

/// A script for all shards of a sweep.
#[derive(Clone, Debug)]
pub(crate) struct Script<'a> {
    /// The arrays' name, by which they are found again.
    pub(crate) name: &'a str,
    /// How many shards there are.
    pub(crate) shards: u32,
    /// What a task asks for.
    pub(crate) ask: Ask,
    /// How somebody wants it.
    pub(crate) options: &'a Options,
    /// The sweep's folder, as the nodes find it.
    pub(crate) folder: &'a Path,
}

impl Script<'_> {
    /// Where the tasks' output goes.
    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.join("slurm")
    }

    /// The flag that says so; `%` is special there.
    pub(crate) fn output(&self) -> String {
        let logs = self.logs().display().to_string().replace('%', "%%");
        format!("--output={logs}/%A_%a.log")
    }

    /// The text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("#!/bin/sh\n# Written by `fatflow sweep submit --slurm`.\n");
        let mut flag = |flag: &str| {
            let _ = writeln!(text, "#SBATCH {flag}");
        };
        flag(&format!("--job-name={}", self.name));
        flag(&format!("--array=0-{}", self.shards - 1));
        // A task that lost its node begins again, and goes on where the results end.
        flag("--requeue");
        flag("--open-mode=append");
        flag("--nodes=1");
        flag("--ntasks=1");
        let options = self.options;
        flag(&format!("--cpus-per-task={}", options.cpus));
        let [time, memory] = self.ask.flags();
        flag(&options.time.as_ref().map_or(time, |time| format!("--time={time}")));
        flag(&options.memory.as_ref().map_or(memory, |memory| format!("--mem={memory}")));
        if let Some(partition) = &options.partition {
            flag(&format!("--partition={partition}"));
        }
        options.flags.iter().for_each(|given| flag(given));
        let [out, grid] = [self.folder.to_owned(), self.folder.join("grid.toml")];
        let words = [&["exec".to_owned()], &options.command[..]].concat();
        let _ = write!(
            text,
            "{} sweep exec --shard \"$SLURM_ARRAY_TASK_ID/{}\" \\\n    \
             --threads {} --out {} --paths-from {} {}\n",
            words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            self.shards,
            options.cpus,
            quoted(&out.to_string_lossy()),
            quoted(&options.paths_from.to_string_lossy()),
            quoted(&grid.to_string_lossy())
        );
        text
    }
}

/// Text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./=".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_asks_and_runs() {
        let options = Options {
            partition: Some("low".to_owned()),
            shards: None,
            cpus: 2,
            time: None,
            memory: None,
            flags: vec!["--account=net".to_owned()],
            resubmissions: 3,
            follow: true,
            paths_from: PathBuf::from("/home/a b"),
            command: vec!["/opt/it's/fatflow".to_owned(), "--set".to_owned(), "a=1".to_owned()],
        };
        let script = Script {
            name: "fatflow-1a2b",
            shards: 8,
            ask: Ask { minutes: 5, megabytes: 300 }.longer().larger(),
            options: &options,
            folder: Path::new("/scratch/100%"),
        };
        let text = "\
#!/bin/sh
# Written by `fatflow sweep submit --slurm`.
#SBATCH --job-name=fatflow-1a2b
#SBATCH --array=0-7
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=10
#SBATCH --mem=600M
#SBATCH --partition=low
#SBATCH --account=net
exec '/opt/it'\\''s/fatflow' --set a=1 sweep exec --shard \"$SLURM_ARRAY_TASK_ID/8\" \\
    --threads 2 --out '/scratch/100%' --paths-from '/home/a b' '/scratch/100%/grid.toml'
";
        assert_eq!(script.text(), text);
        assert_eq!(script.output(), "--output=/scratch/100%%/slurm/%A_%a.log");
    }
}
