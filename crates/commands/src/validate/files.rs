//! Which files are scored, and what is in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use scenario::{Problem, source};
use step::published::{Row, split};

use super::{Task, collectives, packets};
use crate::failure::Failure;

/// Measurements that belong together.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) tasks: Vec<Task>,
}

macro_rules! tables {
    ($($name:literal)*) => {
        [$(($name, || embedded::text!(concat!($name, ".csv"))),)*]
    };
}

/// A name, and what unpacks it.
type Packed<T> = (&'static str, fn() -> T);

/// The tables in the binary: what the tests of the crates that predict them read.
const TABLES: [Packed<String>; 6] = tables!(
    "training_steps" "training_steps_2" "training_steps_3" "training_steps_vtrain" "collectives"
    "collectives_2"
);

/// Tables that were found after all constants had been set. They set none: they are scored, and
/// intervals are made from their errors too.
pub(super) const FOUND_LATER: [&str; 1] = ["training_steps_3"];

macro_rules! packet_runs {
    ($($name:literal)*) => {
        [$((
            $name,
            || {
                [
                    embedded::text!(concat!($name, ".toml")),
                    embedded::text!(concat!($name, ".csv")),
                ]
            },
        ),)*]
    };
}

/// The packet runs in the binary: name, parameters, flows.
const RUNS: [Packed<[String; 2]>; 13] = packet_runs!(
    "probe-star-dcqcn" "probe-chain-dcqcn" "pfc-only-none" "dumbbell-dcqcnstep"
    "star-incast-1m-dcqcnstep" "dumbbell-dcqcn" "star-incast-1m-dcqcn" "probe-star-hpcc"
    "probe-chain-hpcc" "parking-lot-hpcc" "star-incast-1m-hpcc" "star-incast-1m-timely"
    "star-incast-1m-dctcp"
);

/// What the binary has.
pub(super) fn embedded() -> Result<Vec<Group>, Failure> {
    let mut groups = Vec::new();
    for (name, text) in TABLES {
        groups.push(table(name, &format!("{name}.csv"), &text())?);
    }
    let run = |(name, text): Packed<[String; 2]>| {
        let [parameters, flows] = text();
        let case = packets::ReferenceRun::read(
            (&format!("{name}.toml"), &parameters),
            (&format!("{name}.csv"), &flows),
        )?;
        Ok(Task::Packets(Box::new(case)))
    };
    let tasks: Result<Vec<Task>, Failure> = RUNS.into_iter().map(run).collect();
    groups.push(Group { name: "packet runs".to_owned(), tasks: tasks? });
    Ok(groups)
}

/// The published step of this name in the binary.
pub(crate) fn published(id: &str) -> Option<Row> {
    let is_step = |(name, _): &Packed<String>| name.starts_with("training");
    let rows = TABLES.into_iter().filter(is_step).flat_map(|(_, text)| Row::read_all(&text()));
    rows.flatten().find(|row| row.id == id)
}

/// What files and folders have.
pub(super) fn read(inputs: &[PathBuf]) -> Result<Vec<Group>, Failure> {
    let mut groups: Vec<Group> = Vec::new();
    for input in inputs {
        let mut files = Vec::new();
        list(input, &mut files)?;
        let known: BTreeSet<&PathBuf> = files.iter().collect();
        // A flow file belongs to the run beside it, and so do its pauses and seeds.
        let belongs = |path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let stem = name.and_then(|name| name.split('.').next().map(str::to_owned));
            stem.is_some_and(|stem| known.contains(&path.with_file_name(format!("{stem}.toml"))))
        };
        let mut runs: Vec<Task> = Vec::new();
        for path in &files {
            match extension(path) {
                "toml" => {
                    runs.push(packet_run(path).unwrap_or_else(|failure| {
                        Task::unreadable(&stem(path), &failure.to_string())
                    }))
                }
                "csv" if !belongs(path) => {
                    let source = source::read(path)?;
                    let name = stem(path);
                    let group = table(&name, &source.name, &source.text);
                    // A folder may hold something else; a file that was named must be a table.
                    groups.push(match group {
                        Err(failure) if input.is_dir() => {
                            let tasks = vec![Task::unreadable(&name, &failure.to_string())];
                            Group { name, tasks }
                        }
                        group => group?,
                    });
                }
                _ => {}
            }
        }
        if !runs.is_empty() {
            let folder = if input.is_dir() { input.as_path() } else { Path::new("") };
            let folder = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            let name =
                folder.map_or("packet runs".to_owned(), |name| format!("packet runs: {name}"));
            match groups.iter_mut().find(|group| group.name == name) {
                Some(group) => group.tasks.extend(runs),
                None => groups.push(Group { name, tasks: runs }),
            }
        }
    }
    if groups.is_empty() {
        let problem = Problem::error("there is nothing to score in what was named");
        let help = "tables are `*.csv`, packet runs `*.toml` with the `.csv` beside it";
        return Err(problem.with_help(help).into());
    }
    Ok(groups)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

/// The file, or the tables and runs of a folder and the folders in it, in the order of names.
fn list(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let failed = |error: std::io::Error| {
        Failure::from(Problem::error(format!("cannot read {}: {error}", path.display())))
    };
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    for entry in entries {
        if entry.is_dir() || matches!(extension(&entry), "csv" | "toml") {
            list(&entry, files)?;
        }
    }
    Ok(())
}

fn packet_run(path: &Path) -> Result<Task, Failure> {
    let parameters = source::read(path)?;
    let flows = source::read(&path.with_extension("csv")).map_err(|problem| {
        problem.with_help(format!("the flows of {} lie beside it", path.display()))
    })?;
    let case = packets::ReferenceRun::read(
        (&parameters.name, &parameters.text),
        (&flows.name, &flows.text),
    )?;
    Ok(Task::Packets(Box::new(case)))
}

/// The rows of a table of measurements: what each is called, or why it cannot be read.
pub fn rows(name: &str, text: &str) -> Result<Vec<String>, Failure> {
    let told = |task: Task| match task {
        Task::Step(row) => row.id,
        Task::Collective(row) => row.id,
        Task::Packets(_) => String::new(),
        Task::Unreadable(row) => row.reason,
    };
    Ok(table(name, name, text)?.tasks.into_iter().map(told).collect())
}

/// A table, by its columns.
fn table(name: &str, file: &str, text: &str) -> Result<Group, Failure> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let header = split(lines.next().map_or("", |(_, line)| line));
    let header: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
    let has = |columns: &[&str]| columns.iter().all(|one| header.iter().any(|name| name == one));
    let is_steps = has(&["id", "layers", "hidden", "gpus", "global_batch"])
        && (has(&["measured_step_s"]) || has(&["measured_tflops_per_gpu"]));
    let is_collectives = has(&["id", "collective", "gpu", "gpus", "bytes"])
        && (has(&["measured_us"]) || has(&["measured_busbw_GBps"]));
    if !is_steps && !is_collectives {
        let message = format!("{file}:1: these columns are neither of steps nor of collectives");
        let help = "steps have `id`, `layers`, `gpus`, `measured_step_s` …; collectives `id`, \
                    `collective`, `gpu`, `bytes`, `measured_us` or `measured_busbw_GBps`; packet \
                    runs lie beside a `.toml`";
        return Err(Problem::error(message).with_help(help).into());
    }
    let read = |line: &str| -> Result<Task, String> {
        let fields = split(line);
        if fields.len() != header.len() {
            let (found, needed) = (fields.len(), header.len());
            return Err(format!("{found} fields where the header has {needed}"));
        }
        if is_steps {
            let row = Row::read(&header, &fields).map_err(|problem| problem.to_string())?;
            return Ok(Task::Step(Box::new(row)));
        }
        Ok(Task::Collective(Box::new(collectives::Row::read(&header, &fields)?)))
    };
    let tasks = lines.map(|(number, line)| {
        read(line).unwrap_or_else(|reason| {
            let id = split(line).into_iter().next().unwrap_or_default();
            Task::unreadable(&id, &format!("{file}:{number}: {reason}"))
        })
    });
    let tasks = tasks.collect();
    Ok(Group { name: name.to_owned(), tasks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_in_the_binary_can_be_read() {
        let groups = embedded().unwrap();
        let counts: Vec<usize> = groups.iter().map(|group| group.tasks.len()).collect();
        assert_eq!(groups.len(), 7);
        assert!(counts.iter().all(|count| 10 < *count), "{counts:?}");
    }

    #[test]
    fn a_malformed_row_is_named_by_file_and_line() {
        let table = |text: &str| match table("x", "x.csv", text) {
            Ok(group) => match group.tasks.into_iter().next_back() {
                Some(Task::Unreadable(row)) => row.reason,
                _ => String::new(),
            },
            Err(failure) => failure.to_string(),
        };
        let header = "id,collective,gpu,gpus,gpus_per_node,bytes,measured_us";
        let answer = table(&format!("{header}\na,all_reduce,h100-sxm,8,8,1024,5\nb,all_reduce"));
        assert!(answer.contains("x.csv:3: 2 fields where the header has 7"), "{answer}");
        let answer = table(&format!("{header}\na,all_reduce,h100-sxm,8,8,many,5"));
        assert!(answer.contains("x.csv:2: bytes: `many`"), "{answer}");
        let answer = table("a,b\n1,2");
        assert!(answer.contains("x.csv:1: these columns"), "{answer}");
    }
}
