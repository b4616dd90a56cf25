//! A scenario, as Python names it: a preset, a file or the text of one, and what was set.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use commands::Failure;
use pyo3::prelude::*;
use scenario::flows::FlowTable;
use scenario::source::Source;
use scenario::{Purpose, Request};

use crate::watched::failed;

/// What a scenario that is in no file is called.
const IN_MEMORY: &str = "scenario";

/// A scenario, before anything of it is read.
#[pyclass(frozen, from_py_object, module = "fatflow._native")]
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// A preset's name or a file's path.
    #[pyo3(get)]
    name: String,
    /// Its text, where it is in no file.
    #[pyo3(get)]
    text: Option<String>,
    /// `path=value`, in the order of the calls.
    #[pyo3(get)]
    set: Vec<String>,
}

#[pymethods]
impl Scenario {
    #[new]
    fn new(name: String, set: Vec<String>) -> Self {
        Self { name, text: None, set }
    }

    /// One that comes with fatflow.
    #[staticmethod]
    fn preset(py: Python<'_>, name: String) -> PyResult<Self> {
        match scenario::preset::text(&name) {
            Some(_) => Ok(Self::new(name, Vec::new())),
            None => Err(failed(py, &scenario::preset::unknown(&name).into())),
        }
    }

    /// A scenario from the JSON of its tables, which becomes the TOML that problems point at.
    #[staticmethod]
    fn of_json(py: Python<'_>, json: &str) -> PyResult<Self> {
        let text = toml_of(json).map_err(|failure| failed(py, &failure))?;
        Ok(Self { name: IN_MEMORY.to_owned(), text: Some(text), set: Vec::new() })
    }

    /// The same with more set.
    fn with_(&self, set: Vec<String>) -> Self {
        Self { set: [self.set.clone(), set].concat(), ..self.clone() }
    }
}

impl Scenario {
    /// The request to load it, with what the environment says, as the command has it.
    pub(crate) fn request(&self, seed: Option<u64>, purpose: Purpose) -> Request {
        Request {
            scenario: Some(self.name.clone()),
            text: self.text.as_ref().map(|text| Source::new(IN_MEMORY, text.as_str())),
            set: self.set.clone(),
            seed,
            purpose,
            ..outside()
        }
    }

    /// What was set, if the scenario itself is one that another can start from.
    pub(crate) fn set_on_a_file(&self) -> Option<&[String]> {
        self.text.is_none().then_some(self.set.as_slice())
    }

    /// A file with the same set on it.
    pub(crate) fn in_place_of(&self, file: &Path) -> Self {
        Self::new(file.display().to_string(), self.set.clone())
    }

    /// The same with traffic of its own.
    pub(crate) fn request_with(
        &self,
        flows: Option<Arc<FlowTable>>,
        seed: Option<u64>,
        purpose: Purpose,
    ) -> Request {
        Request { flows, ..self.request(seed, purpose) }
    }
}

/// The TOML of tables that are JSON.
pub(crate) fn toml_of(json: &str) -> Result<String, Failure> {
    let tables = serde_json::from_str::<serde_json::Value>(json).map_err(|e| e.to_string());
    let text = tables
        .and_then(|tables| toml::to_string_pretty(&tables).map_err(|error| error.to_string()));
    text.map_err(|reason| scenario::Problem::error(format!("this is no TOML: {reason}")).into())
}

/// What the environment says.
pub(crate) fn outside() -> Request {
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let catalogue = std::env::var_os("FATFLOW_CATALOGUE").filter(|path| !path.is_empty());
    Request {
        catalogue: catalogue.map(PathBuf::from).into_iter().collect(),
        environment,
        ..Request::default()
    }
}
