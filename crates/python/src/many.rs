//! Sweeps: many scenarios, kept in a folder. What `fatflow sweep` does, for Python and for those
//! who hand out cases to other machines.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use commands::{Failure, parallel};
use exports::table::Table as Columns;
use pyo3::prelude::*;
use report::Sheet;
use scenario::{Engine, Loaded, Purpose, Request};
use sweep::{Grid, Options, Outlook, Plan, Selection, Show, ShowOptions, Summary};

use crate::answer::{Answer, Shown, StoredAnswer, no_table};
use crate::given::{outside, toml_of};
use crate::watched::watched;

/// A grid, as Python names it.
#[derive(FromPyObject, Clone, Debug)]
#[pyo3(from_item_all)]
pub(crate) struct GridInput {
    /// A grid file.
    path: Option<PathBuf>,
    /// Or the JSON of its tables.
    json: Option<String>,
    /// In place of the grid's own.
    engine: Option<String>,
    /// At most.
    threads: Option<u16>,
}

impl GridInput {
    /// Reads it, with what the environment says.
    fn grid(&self) -> Result<Grid, Failure> {
        let request = Request { purpose: Purpose::Settings, ..outside() };
        let mut grid = match (&self.path, &self.json) {
            (Some(path), _) => Grid::read(path, &request)?,
            (None, json) => {
                let text = toml_of(json.as_deref().unwrap_or("{}"))?;
                Grid::parse(&text, Path::new(""), &request)?
            }
        };
        if let Some(name) = &self.engine {
            let known = Engine::ALL.into_iter().find(|engine| engine.name() == name);
            let engine = known.ok_or_else(|| {
                Failure::Usage(format!("there is no engine `{name}`: analytic, flow or packet"))
            })?;
            grid.on_engine(engine)?;
        }
        Ok(grid)
    }

    fn threads(&self) -> usize {
        parallel::threads(self.threads)
    }
}

/// What a sweep says, with its tables.
struct SweepAnswer {
    show: Show,
    out: PathBuf,
}

impl StoredAnswer for SweepAnswer {
    fn sheet(&self) -> Sheet {
        report::Answer::sheet(&self.show)
    }

    fn table(&self, _: Option<&Loaded>, name: &str) -> Result<Columns, Failure> {
        let file = match name {
            "cases" => "results.parquet",
            "machine" => "machine.parquet",
            _ => return Err(no_table(name)),
        };
        let path = self.out.join(file);
        let bytes = std::fs::read(&path).and_then(exports::parquet::read);
        bytes.map_err(|error| Failure::Run(format!("cannot read {}: {error}", path.display())))
    }
}

fn told(command: &'static str, out: PathBuf, goals: Vec<String>) -> Result<Answer, Failure> {
    let show = sweep::show(&out, &ShowOptions { goals, ..Default::default() })?;
    Answer::new(command, None, Vec::new(), show, |show| Box::new(SweepAnswer { show, out }))
}

fn execute(
    grid: &Grid,
    plan: &Plan,
    selection: &Selection,
    out: &Path,
    (threads, stop): (usize, &AtomicBool),
) -> Result<Summary, Failure> {
    let options = Options { threads, progress: &|_| {}, interrupt: stop };
    let summary = sweep::exec(grid, plan, selection, out, options)?;
    match summary.left {
        0 => Ok(summary),
        left => Err(Failure::Interrupted(format!("{left} cases are left; run the same again"))),
    }
}

/// Keeps a plan and its grid in a folder of results.
fn keep(grid: &Grid, plan: &Plan, out: &Path) -> Result<(), Failure> {
    plan.write(out)?;
    grid.write(out)
}

/// How many cases, how long, how much memory; kept in a folder if one is given.
#[pyfunction]
pub(crate) fn sweep_plan(
    py: Python<'_>,
    given: GridInput,
    out: Option<PathBuf>,
) -> PyResult<Answer> {
    watched(py, |_| {
        let (grid, threads) = (given.grid()?, given.threads());
        let outlook: Outlook = sweep::outlook(&grid, grid.plan(threads)?, threads)?;
        if let Some(out) = &out {
            let way = "`fatflow sweep plan --out DIR --replace`";
            outlook.plan.refuse_another(out, way)?;
            keep(&grid, &outlook.plan, out)?;
        }
        Answer::new("sweep plan", None, Vec::new(), outlook, |outlook| Box::new(Shown(outlook)))
    })
}

/// Executes all cases that are not done yet, and merges them.
#[pyfunction]
pub(crate) fn sweep_run(
    py: Python<'_>,
    given: GridInput,
    out: PathBuf,
    goals: Vec<String>,
    replace: bool,
) -> PyResult<Answer> {
    watched(py, |stop| {
        let (grid, threads) = (given.grid()?, given.threads());
        let outlook = sweep::outlook(&grid, grid.plan(threads)?, threads)?;
        outlook.refuse_beyond(grid.budget)?;
        if !replace {
            outlook.plan.refuse_another(&out, "`replace=True`")?;
        }
        keep(&grid, &outlook.plan, &out)?;
        execute(&grid, &outlook.plan, &Selection::ALL, &out, (threads, stop))?;
        sweep::merge(&out)?;
        told("sweep run", out, goals)
    })
}

/// Executes these cases, by number, into a folder that others write to as well.
#[pyfunction]
pub(crate) fn sweep_exec(
    py: Python<'_>,
    given: GridInput,
    out: PathBuf,
    cases: Vec<usize>,
) -> PyResult<Answer> {
    watched(py, |stop| {
        let (grid, threads) = (given.grid()?, given.threads());
        let plan = grid.plan(threads)?;
        plan.refuse_another(&out, "`fatflow.sweep(…, replace=True)`")?;
        if Plan::find(&out)?.is_none() {
            keep(&grid, &plan, &out)?;
        }
        if let Some(index) = cases.iter().find(|index| plan.cases.len() <= **index) {
            let last = plan.cases.len().saturating_sub(1);
            let reason = format!("there is no case {index}: they count from 0 to {last}");
            return Err(Failure::Usage(reason));
        }
        let cases = Selection::Cases(cases);
        let summary = execute(&grid, &plan, &cases, &out, (threads, stop))?;
        Answer::new("sweep exec", None, Vec::new(), summary, |summary| Box::new(Shown(summary)))
    })
}

/// Makes one table of all results.
#[pyfunction]
pub(crate) fn sweep_merge(py: Python<'_>, out: PathBuf) -> PyResult<Answer> {
    watched(py, |_| {
        let merged = sweep::merge(&out)?;
        Answer::new("sweep merge", None, Vec::new(), merged, |merged| Box::new(Shown(merged)))
    })
}

/// What the results in a folder say.
#[pyfunction]
pub(crate) fn sweep_show(py: Python<'_>, out: PathBuf, goals: Vec<String>) -> PyResult<Answer> {
    watched(py, |_| told("sweep show", out, goals))
}
