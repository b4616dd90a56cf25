//! A sweep for whoever has others execute it, batch by batch, such as a Ray cluster.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use commands::{Engine, Failure, VERSION, parallel};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use scenario::{Purpose, Request};
use sweep::{Grid, Options, Plan, Selection, store};

use crate::watched::watched;

/// A grid with its plan.
#[pyclass(frozen, module = "fatflow._native")]
#[derive(Debug)]
pub(crate) struct Sweep {
    grid: Grid,
    plan: Plan,
}

/// What a grid is read from: its text, the folder of its paths, and what flags and environment say.
#[derive(FromPyObject)]
struct Inputs {
    text: String,
    folder: PathBuf,
    settings: Vec<String>,
    seed: Option<u64>,
    engine: Option<String>,
    catalogue: Vec<PathBuf>,
    environment: Vec<(String, String)>,
}

impl Inputs {
    fn grid(self) -> Result<Grid, Failure> {
        let request = Request {
            set: self.settings,
            seed: self.seed,
            catalogue: self.catalogue,
            environment: self.environment,
            purpose: Purpose::Settings,
            ..Request::default()
        };
        let mut grid = Grid::parse(&self.text, &self.folder, &request)?;
        if let Some(name) = self.engine {
            let engine = Engine::ALL.into_iter().find(|engine| engine.name() == name);
            let unknown = || Failure::Usage(format!("there is no engine `{name}`"));
            grid.on_engine(engine.ok_or_else(unknown)?)?;
        }
        Ok(grid)
    }
}

#[pymethods]
impl Sweep {
    /// Reads a grid from an object with the attributes of `Inputs`, and plans it; `kept` is the
    /// text of its plan where somebody else has made it.
    #[new]
    fn new(py: Python<'_>, inputs: Inputs, kept: Option<String>) -> PyResult<Self> {
        watched(py, |_| {
            let grid = inputs.grid()?;
            let kept = kept.map(|text| Plan::parse(&text, "the plan")).transpose()?;
            let theirs = kept.as_ref().map(|kept| kept.head.plan.clone());
            let plan = grid.planned_with(kept, parallel::threads(None))?;
            match theirs {
                Some(theirs) if theirs != plan.head.plan => Err(Failure::Run(format!(
                    "fatflow {VERSION} on {} makes the plan {} of this grid, and not {theirs}: \
                     versions, and files that the grid names, must be the same on all machines",
                    store::host(),
                    plan.head.plan
                ))),
                _ => Ok(Self { grid, plan }),
            }
        })
    }

    /// The plan's identity.
    #[getter]
    fn plan(&self) -> &str {
        &self.plan.head.plan
    }

    /// The plan as a file has it.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        watched(py, |_| self.plan.text())
    }

    /// Keeps the plan and the grid in a folder of results.
    fn keep(&self, py: Python<'_>, out: PathBuf) -> PyResult<()> {
        watched(py, |_| {
            self.plan.refuse_another(&out, "`fatflow sweep plan --out DIR --replace`")?;
            self.plan.write(&out)?;
            self.grid.write(&out)
        })
    }

    /// Seconds of a case, and memory of a process that executes one after the other.
    fn estimate(&self, py: Python<'_>) -> PyResult<(f64, u64)> {
        watched(py, |_| {
            let outlook = sweep::outlook(&self.grid, self.plan.clone(), 1)?;
            Ok((outlook.cpu_s / self.plan.cases.len() as f64, sweep::share::memory(&outlook)))
        })
    }

    /// The cases that a folder lacks, by number.
    fn missing(&self, py: Python<'_>, out: PathBuf) -> PyResult<Vec<usize>> {
        watched(py, |_| sweep::missing(&out))
    }

    /// Executes some cases in an empty folder: the name and the bytes of a file of results.
    fn execute<'py>(
        &self,
        py: Python<'py>,
        cases: Vec<usize>,
        folder: PathBuf,
    ) -> PyResult<(String, Bound<'py, PyBytes>)> {
        let (name, bytes) = watched(py, |stop| self.run(cases, &folder, stop))?;
        Ok((name, PyBytes::new(py, &bytes)))
    }

    /// Keeps a file of results that came from elsewhere; how many cases it holds.
    fn take(&self, py: Python<'_>, out: PathBuf, name: &str, content: Vec<u8>) -> PyResult<usize> {
        watched(py, |_| store::take(&out, name, content, &self.plan.head.measures))
    }

    /// Makes one table of everything; what `sweep merge --json` tells.
    fn merge(&self, py: Python<'_>, out: PathBuf) -> PyResult<String> {
        watched(py, |_| {
            let merged = sweep::merge(&out)?;
            serde_json::to_string(&merged)
                .map_err(|error| Failure::Run(format!("cannot write JSON: {error}")))
        })
    }
}

impl Sweep {
    fn run(
        &self,
        cases: Vec<usize>,
        folder: &std::path::Path,
        interrupt: &AtomicBool,
    ) -> Result<(String, Vec<u8>), Failure> {
        let selection = Selection::Cases(cases);
        let options = Options { threads: 1, progress: &|_| {}, interrupt };
        sweep::exec(&self.grid, &self.plan, &selection, folder, options)?;
        store::only_file(folder)
    }
}
