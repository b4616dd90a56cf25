//! `fatflow sweep`.

mod cluster;

use std::path::{Path, PathBuf};

use commands::{Failure, parallel};
use scenario::Purpose;
use sweep::{Grid, Numbers, Options, Outlook, Plan, Progress, Selection, Summary, slurm};

use crate::terminal::{Ending, Stop, Terminal};

/// Run many scenarios: a grid of cases, on all cores or in shards
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow sweep plan grid.toml
  fatflow sweep run grid.toml --out study
  fatflow sweep exec grid.toml --out study --shard 3/8
  fatflow sweep merge study
  fatflow sweep show study --goal step_s
  fatflow sweep status study --json
  fatflow sweep submit --slurm grid.toml --out study
  fatflow sweep run grid.toml --out study --ray auto
  fatflow sweep manifest kubernetes grid.toml > job.yaml

`run` may be stopped and killed at any time: run again it continues. `exec` is what a cluster runs:
every shard by itself, on any machine that sees the folder; `merge` then makes one table. Both end
with exit code 1 if all cases failed.

A minimal grid:
  from = \"small-16\"
  engine = \"analytic\"
  [axes]
  seed = [0, 1, 2]")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    Plan(PlanArguments),
    Run(RunArguments),
    Exec(ExecArguments),
    Submit(cluster::SubmitArguments),
    Manifest(cluster::ManifestArguments),
    Merge(Folder),
    Status(Folder),
    Show(ShowArguments),
}

/// How many cases, how long, how much memory, and the hash of each
#[derive(clap::Args, Debug)]
struct PlanArguments {
    /// The grid file
    grid: PathBuf,
    /// Also keep the plan in this folder, for `exec`
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Take a folder that holds the plan of another grid; results that are there stay
    #[arg(long, requires = "out")]
    replace: bool,
}

/// Execute all cases on this machine, and merge them
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow sweep run grid.toml --out study
  fatflow sweep run grid.toml --out study --threads 4 --quiet
  fatflow sweep run grid.toml --out study --engine analytic --set cluster.gpus=256

A grid to start from, as grid.toml:
  from = \"small-128\"
  engine = \"flow\"
  where = \"network.routing.qps * job.parallel.tp <= 64\"

  [axes]
  \"network.routing.qps\" = [1, 4, 16]
  seed = { from = 0, to = 9 }
  shape = [
    { \"job.parallel.tp\" = 4, \"job.parallel.dp\" = 32 },
    { \"job.parallel.tp\" = 8, \"job.parallel.dp\" = 16 },
  ]

  [keep]
  measures = [\"step_s\", \"mfu\"]")]
struct RunArguments {
    /// The grid file
    grid: PathBuf,
    /// The folder of results; one that has some is continued
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Take a folder that holds the plan of another grid; results that are there stay
    #[arg(long)]
    replace: bool,
    /// Execute them on a Ray cluster instead: its address, or `auto`
    #[arg(long, value_name = "ADDRESS")]
    ray: Option<String>,
}

/// Execute one shard of the cases: what a cluster runs
#[derive(clap::Args, Debug)]
struct ExecArguments {
    /// The grid file
    grid: PathBuf,
    /// The folder of results, which all shards share
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Which part of how many, counted from 0
    #[arg(long, value_name = "I/N", required_unless_present = "cases")]
    shard: Option<Selection>,
    /// These cases instead, by number: `7`, `1-3,9`
    #[arg(long, value_name = "N,...", value_delimiter = ',', conflicts_with = "shard")]
    cases: Vec<Numbers>,
    /// The folder that paths in the grid are relative to [default: the grid's own]
    #[arg(long, value_name = "DIR")]
    paths_from: Option<PathBuf>,
}

/// Make one table of all results (merge), or say how far they are (status)
#[derive(clap::Args, Debug)]
struct Folder {
    /// The folder of results
    folder: PathBuf,
}

/// The best cases, and which axis matters
#[derive(clap::Args, Debug)]
struct ShowArguments {
    /// The folder of results
    folder: PathBuf,
    /// What is to be small or large, such as `step_s`, `max:mfu`; the first is what is best
    #[arg(long = "goal", value_name = "MEASURE")]
    goals: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        match &self.action {
            Action::Plan(arguments) => arguments.run(terminal),
            Action::Run(arguments) => arguments.run(terminal),
            Action::Exec(arguments) => arguments.run(terminal),
            Action::Submit(arguments) => arguments.run(terminal),
            Action::Manifest(arguments) => arguments.run(terminal),
            Action::Merge(Folder { folder }) => {
                let merged = sweep::merge(folder)?;
                let is_complete = merged.status.missing == 0;
                terminal.answer("sweep merge", None, &merged)?;
                Ok(if is_complete { Ending::Done } else { Ending::FellShort })
            }
            Action::Status(Folder { folder }) => {
                terminal.answer("sweep status", None, &slurm::state(folder)?)?;
                Ok(Ending::Done)
            }
            Action::Show(ShowArguments { folder, goals }) => {
                let width = Some(terminal.width());
                let options = sweep::ShowOptions { goals: goals.clone(), width };
                terminal.answer("sweep show", None, &sweep::show(folder, &options)?)?;
                Ok(Ending::Done)
            }
        }
    }
}

/// Reads a grid with everything that flags and environment say.
fn grid(path: &Path, terminal: &Terminal) -> Result<Grid, Stop> {
    grid_from(path, None, terminal)
}

/// The same with the folder that its paths are relative to, if that is not its own.
fn grid_from(path: &Path, folder: Option<&Path>, terminal: &Terminal) -> Result<Grid, Stop> {
    let request = terminal.request(None, Purpose::Settings);
    let mut grid = match folder {
        None => Grid::read(path, &request)?,
        Some(folder) => Grid::read_from(path, folder, &request)?,
    };
    if terminal.global.engine.is_some() {
        grid.on_engine(terminal.engine()?)?;
    }
    Ok(grid)
}

impl PlanArguments {
    fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let grid = grid(&self.grid, terminal)?;
        let outlook = outlook(&grid, parallel::threads(terminal.threads()), terminal)?;
        if let Some(out) = &self.out {
            refuse_another(&outlook.plan, out, self.replace)?;
            keep(&grid, &outlook.plan, out)?;
        }
        terminal.answer("sweep plan", None, &outlook)?;
        Ok(Ending::Done)
    }
}

impl RunArguments {
    fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let grid = grid(&self.grid, terminal)?;
        let outlook = outlook(&grid, parallel::threads(terminal.threads()), terminal)?;
        outlook.refuse_beyond(grid.budget)?;
        for idle in &outlook.idle {
            let (key, why, used_by) = (&idle.key, &idle.why, &idle.used_by);
            terminal.remark(&format!("unused: {key}: {why}; used by {used_by}"));
        }
        refuse_another(&outlook.plan, &self.out, self.replace)?;
        keep(&grid, &outlook.plan, &self.out)?;
        if let Some(address) = &self.ray {
            let plan = &outlook.plan.head.plan;
            return cluster::run_on_ray(address, (&self.grid, plan, &self.out), terminal);
        }
        let summary = execute(&grid, &outlook.plan, &Selection::ALL, &self.out, terminal)?;
        if 0 < summary.left {
            terminal.answer("sweep run", None, &summary)?;
            return Ok(Ending::Interrupted);
        }
        sweep::merge(&self.out)?;
        terminal.remark(&report::Answer::sheet(&summary).render(100));
        terminal.answer("sweep run", None, &shown(&self.out, terminal)?)?;
        Ok(if summary.is_all_failed() { Ending::Failed } else { Ending::Done })
    }
}

/// The plan of a grid and what it will take on so many threads, with progress for whoever looks.
fn outlook(grid: &Grid, threads: usize, terminal: &Terminal) -> Result<Outlook, Failure> {
    let line = terminal.line("planning");
    let tell = |done: usize, all: usize| {
        line.tell(&format!("{done} of {all} cases planned"), done as u64, all as u64);
    };
    let plan = grid.plan_with(parallel::threads(terminal.threads()), &tell)?;
    line.tell("looking at some cases", 0, 0);
    sweep::outlook(grid, plan, threads)
}

/// What the results in a folder say, as wide as the terminal.
fn shown(out: &Path, terminal: &Terminal) -> Result<sweep::Show, Failure> {
    let options = sweep::ShowOptions { width: Some(terminal.width()), ..Default::default() };
    sweep::show(out, &options)
}

/// Another grid's folder is not taken by mistake.
fn refuse_another(plan: &Plan, out: &Path, replace: bool) -> Result<(), Failure> {
    if replace { Ok(()) } else { plan.refuse_another(out, "`--replace`") }
}

impl ExecArguments {
    fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        let grid = grid_from(&self.grid, self.paths_from.as_deref(), terminal)?;
        let plan = grid.planned(&self.out, parallel::threads(terminal.threads()))?;
        let (file, out) = (self.grid.display(), self.out.display());
        let way = format!("`fatflow sweep plan {file} --out {out} --replace`");
        plan.refuse_another(&self.out, &way)?;
        if Plan::find(&self.out)?.is_none() {
            keep(&grid, &plan, &self.out)?;
        }
        let selection = match &self.shard {
            Some(shard) => shard.clone(),
            None => Selection::cases(&self.cases, &plan)?,
        };
        let summary = execute(&grid, &plan, &selection, &self.out, terminal)?;
        let (is_complete, is_all_failed) = (summary.left == 0, summary.is_all_failed());
        terminal.answer("sweep exec", None, &summary)?;
        Ok(match is_complete {
            true if is_all_failed => Ending::Failed,
            true => Ending::Done,
            false => Ending::Interrupted,
        })
    }
}

/// Keeps a plan and its grid in a folder of results.
fn keep(grid: &Grid, plan: &Plan, out: &Path) -> Result<(), Failure> {
    plan.write(out)?;
    grid.write(out)
}

/// Executes with progress for whoever looks and an ear for Ctrl-C.
fn execute(
    grid: &Grid,
    plan: &Plan,
    selection: &Selection,
    out: &Path,
    terminal: &Terminal,
) -> Result<Summary, Failure> {
    let line = terminal.line("cases");
    let progress = |progress: Progress| {
        let Progress { done, failed, selected, rate } = progress;
        let left = units::Span::from_secs_f64((selected - done) as f64 / rate.max(1e-3));
        let failures = if failed == 0 { String::new() } else { format!(", {failed} failed") };
        let text = format!(
            "{done} of {selected} cases{failures}, {rate:.0} a second; about {left:.0} left"
        );
        line.tell(&text, done as u64, selected as u64);
    };
    let threads = parallel::threads(terminal.threads());
    let interrupt = &terminal.interrupt;
    let options = Options { threads, progress: &progress, interrupt: &interrupt.happened };
    interrupt.heeded(|| sweep::exec(grid, plan, selection, out, options))
}
