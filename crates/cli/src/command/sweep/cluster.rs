//! Sweeps on clusters: `sweep submit`, `sweep manifest` and `sweep run --ray`.

use std::path::{Path, PathBuf};
use std::process::Command;

use commands::{Failure, parallel};
use sweep::kubernetes::Manifest;
use sweep::Outlook;
use sweep::slurm::{self, Follower, Options};

use super::{grid, grid_from, keep, outlook, refuse_another, shown};
use crate::terminal::{Ending, Stop, Terminal};

/// Submit all cases as job arrays, follow them, and submit again what is missing
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow sweep submit --slurm grid.toml --out study
  fatflow sweep submit --slurm grid.toml --out study --partition cpu --shards 64
  fatflow sweep submit --slurm grid.toml --out study --sbatch-arg=--account=net --no-follow
  fatflow sweep status study

The folder, the grid and this program must have the same paths on all nodes. Ctrl-C stops the
following, not the jobs; the same command goes on. Results count, not what Slurm says of a task.")]
pub(super) struct SubmitArguments {
    /// The grid file
    grid: PathBuf,
    /// The folder of results, which all nodes share
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Submit to Slurm
    #[arg(long, required = true)]
    slurm: bool,
    /// The partition [default: Slurm's]
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// How many tasks the cases are divided into [default: by estimate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    shards: Option<u32>,
    /// Cores of a task
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    cpus: u16,
    /// The time limit of a task, as sbatch takes it [default: by estimate]
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// The memory of a task, as sbatch takes it [default: by estimate]
    #[arg(long, value_name = "SIZE")]
    mem: Option<String>,
    /// A further flag of sbatch, such as `--account=net`; may be given several times
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, value_parser = one_line)]
    sbatch_arg: Vec<String>,
    /// How often missing cases are submitted again
    #[arg(long, value_name = "N", default_value_t = 3)]
    resubmit: u32,
    /// Submit, and do not wait
    #[arg(long)]
    no_follow: bool,
    /// Take a folder that holds the plan of another grid; results that are there stay
    #[arg(long)]
    replace: bool,
}

/// It becomes a line of a script.
fn one_line(text: &str) -> Result<String, String> {
    match text.starts_with('-') && !text.contains(['\n', '\r']) {
        true => Ok(text.to_owned()),
        false => Err("write one flag of sbatch, such as --sbatch-arg=--account=net".to_owned()),
    }
}

impl SubmitArguments {
    pub(super) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let grid = grid(&self.grid, terminal)?;
        let outlook = outlook(&grid, usize::from(self.cpus), terminal)?;
        refuse_another(&outlook.plan, &self.out, self.replace)?;
        keep(&grid, &outlook.plan, &self.out)?;
        let options = Options {
            partition: self.partition.clone(),
            shards: self.shards,
            cpus: self.cpus,
            time: self.time.clone(),
            memory: self.mem.clone(),
            flags: self.sbatch_arg.clone(),
            resubmissions: self.resubmit,
            follow: !self.no_follow,
            command: command(terminal)?,
            paths_from: folder_of(&self.grid)?,
        };
        let line = terminal.line("following");
        let follower = Follower {
            say: &|text| terminal.remark(text),
            progress: &|text, done, cases| line.tell(text, done, cases),
            interrupt: &terminal.interrupt.happened,
        };
        let submit = || slurm::submit(&self.out, &outlook, &options, &follower);
        let submission = terminal.interrupt.heeded(submit)?;
        drop(line);
        if submission.status.missing == 0 {
            sweep::merge(&self.out)?;
        }
        terminal.answer("sweep submit", None, &submission)?;
        Ok(if submission.interrupted { Ending::Interrupted } else { Ending::Done })
    }
}

/// The folder that a grid lies in, from the root on.
fn folder_of(grid: &Path) -> Result<PathBuf, Failure> {
    let whole = grid
        .canonicalize()
        .map_err(|error| Failure::Run(format!("cannot find {}: {error}", grid.display())))?;
    Ok(whole.parent().map(Path::to_owned).unwrap_or_default())
}

/// This program, with the flags that say what the cases are.
fn command(terminal: &Terminal) -> Result<Vec<String>, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Run(format!("cannot find this program: {error}")))?;
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(flags(terminal)?);
    Ok(words)
}

/// The flags that say what the cases of a grid are, for another process in another folder.
fn flags(terminal: &Terminal) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    for set in &terminal.global.set {
        flag("--set", set.clone());
    }
    if let Some(seed) = terminal.global.seed {
        flag("--seed", seed.to_string());
    }
    if terminal.global.engine.is_some() {
        let engine = terminal.engines().map_or("all", commands::Engine::name);
        flag("--engine", engine.to_owned());
    }
    for path in &terminal.global.catalogue {
        let whole = path
            .canonicalize()
            .map_err(|error| Failure::Run(format!("cannot find {}: {error}", path.display())))?;
        flag("--catalogue", whole.to_string_lossy().into_owned());
    }
    Ok(words)
}

/// Write what another system needs to execute a sweep
#[derive(clap::Args, Debug)]
pub(super) struct ManifestArguments {
    #[command(subcommand)]
    system: System,
}

#[derive(clap::Subcommand, Debug)]
enum System {
    Kubernetes(KubernetesArguments),
}

/// Write an indexed Job that executes all shards over a shared volume
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow sweep manifest kubernetes --image registry.example/fatflow --volume-claim scratch \\
      grid.toml > job.yaml
  kubectl apply -f job.yaml

The volume must be writable from many nodes (ReadWriteMany). Results are in a folder of it with the
Job's name: `fatflow sweep merge` and `show` work wherever it is mounted.")]
struct KubernetesArguments {
    /// The grid file; it goes into the manifest
    grid: PathBuf,
    /// The image, with fatflow on its path [default: fatflow, which is said]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The claim of the volume for results [default: fatflow, which is said]
    #[arg(long, value_name = "NAME")]
    volume_claim: Option<String>,
    /// The Job's name [default: of the plan]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many pods the cases are divided into [default: by estimate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    shards: Option<u32>,
    /// How many pods run at the same time at most [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    parallelism: Option<u32>,
    /// How often a shard is tried again
    #[arg(long, value_name = "N", default_value_t = 3)]
    retries: u32,
    /// Cores of a pod
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    cpus: u16,
}

impl ManifestArguments {
    pub(super) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let System::Kubernetes(arguments) = &self.system;
        arguments.run(terminal)
    }
}

impl KubernetesArguments {
    fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.only_text("a manifest for Kubernetes")?;
        let grid = grid(&self.grid, terminal)?;
        let outlook = outlook(&grid, usize::from(self.cpus), terminal)?;
        let manifest = Manifest {
            name: self.name.clone(),
            image: self.image.clone(),
            volume_claim: self.volume_claim.clone(),
            shards: self.shards,
            parallelism: self.parallelism,
            retries: self.retries,
            cpus: self.cpus,
            flags: flags(terminal)?,
            environment: environment(),
        };
        self.refuse_files(&outlook, terminal)?;
        terminal.write(&manifest.yaml(&grid.source.text, &outlook)?)?;
        for line in manifest.assumed() {
            terminal.remark(&line);
        }
        Ok(Ending::Done)
    }
}

impl KubernetesArguments {
    /// Pods have the grid alone: it must mean the same without the files beside it.
    fn refuse_files(&self, outlook: &Outlook, terminal: &Terminal) -> Result<(), Stop> {
        if !terminal.global.catalogue.is_empty() {
            let reason = "--catalogue: pods do not see these files; put the hardware into the grid";
            return Err(Stop::Failure(Failure::Usage(reason.to_owned())));
        }
        let alone = grid_from(&self.grid, Some(Path::new("/grid")), terminal);
        let plan = alone.and_then(|grid| Ok(grid.plan(parallel::threads(terminal.threads()))?));
        match plan {
            Ok(plan) if plan.head.plan == outlook.plan.head.plan => Ok(()),
            _ => Err(Stop::Failure(Failure::Run(format!(
                "{} names files beside it, which pods do not see; name presets, or files on the \
                 volume by their whole path (/sweep/...)",
                self.grid.display()
            )))),
        }
    }
}

/// The variables that say what cases are.
fn environment() -> Vec<(String, String)> {
    let set = std::env::vars().filter(|(name, _)| name.starts_with("FATFLOW_SET_"));
    set.collect()
}

/// `sweep run --ray`: has a Ray cluster execute a plan, through the Python package.
pub(super) fn run_on_ray(
    address: &str,
    (grid, plan, out): (&Path, &str, &Path),
    terminal: &Terminal,
) -> Result<Ending, Stop> {
    let ending = execute_on_ray(address, (grid, plan, out), terminal)?;
    if ending != Ending::Done {
        return Ok(ending);
    }
    let shown = shown(out, terminal)?;
    terminal.answer("sweep run", None, &shown)?;
    Ok(if shown.status.is_all_failed() { Ending::Failed } else { Ending::Done })
}

fn execute_on_ray(
    address: &str,
    (grid, plan, out): (&Path, &str, &Path),
    terminal: &Terminal,
) -> Result<Ending, Failure> {
    find_package()?;
    let mut python = Command::new(PYTHON);
    python.args(["-m", "fatflow.ray", "--address", address, "--plan", plan]);
    python.args(flags(terminal)?).arg("--out").arg(out).arg(grid);
    if terminal.global.quiet {
        python.arg("--quiet");
    }
    // Ctrl-C reaches both; the answer to it is the other's.
    let status = terminal.interrupt.heeded(|| python.status()).map_err(no_python)?;
    match status.code() {
        Some(0) => Ok(Ending::Done),
        Some(130) => Ok(Ending::Interrupted),
        _ => Err(Failure::Run(format!(
            "the sweep on Ray ended early ({status}); what was computed is kept, and the same \
             command goes on"
        ))),
    }
}

const PYTHON: &str = "python3";

fn no_python(error: std::io::Error) -> Failure {
    Failure::Run(format!("cannot run {PYTHON}, through which sweeps reach Ray: {error}"))
}

/// Says what to install where the Python package or Ray is missing.
fn find_package() -> Result<(), Failure> {
    let look = "from importlib.util import find_spec as find; import sys; \
                sys.exit(not (find('fatflow') and find('ray')))";
    let found = Command::new(PYTHON).args(["-c", look]).status().map_err(no_python)?;
    match found.success() {
        true => Ok(()),
        false => Err(Failure::Run(format!(
            "`{PYTHON}` on the PATH has no fatflow with Ray, through which sweeps reach it: \
             pip install 'fatflow[ray]'"
        ))),
    }
}
