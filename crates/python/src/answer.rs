//! What a command answers: its JSON, its text, its page, its tables.

use std::path::PathBuf;

use anstream::adapter::strip_str;
use commands::about::About;
use commands::advise::write::File;
use commands::files::save_text;
use commands::{Failure, advise, answer};
use exports::table::Table as Columns;
use pyo3::prelude::*;
use report::Sheet;
use scenario::Loaded;
use units::Unused;

use crate::table::Table;
use crate::watched::watched;

/// Columns of an answer's text.
const WIDTH: usize = 100;

/// What is kept of an answer, to be drawn or read when somebody wants to.
pub(crate) trait StoredAnswer: Send + Sync {
    /// What people see.
    fn sheet(&self) -> Sheet;

    /// A table that is too long for JSON.
    fn table(&self, about: Option<&Loaded>, name: &str) -> Result<Columns, Failure> {
        let _ = about;
        Err(no_table(name))
    }

    /// The files of a change of an advice, and the change's name.
    fn files(&self, take: Option<u32>) -> Result<(String, Vec<File>), Failure> {
        let _ = take;
        Err(Failure::Usage("this answer is no advice: it has no files".to_owned()))
    }
}

/// An answer without that table.
pub(crate) fn no_table(name: &str) -> Failure {
    Failure::Usage(format!("this answer has no table `{name}`"))
}

/// An answer that has no tables.
pub(crate) struct Shown<A>(pub(crate) A);

impl<A: report::Answer + Send + Sync> StoredAnswer for Shown<A> {
    fn sheet(&self) -> Sheet {
        self.0.sheet()
    }
}

/// What a command answers.
#[pyclass(frozen, module = "fatflow._native")]
pub(crate) struct Answer {
    /// The JSON that the command prints.
    #[pyo3(get)]
    json: String,
    /// What was read and is unwise.
    #[pyo3(get)]
    warnings: Vec<String>,
    command: &'static str,
    about: Option<Loaded>,
    what: Option<About>,
    unused: Vec<Unused>,
    known: Box<dyn StoredAnswer>,
}

impl Answer {
    /// Puts an answer into its envelope; `vain` are parameters that did nothing.
    pub(crate) fn new<A: report::Answer>(
        command: &'static str,
        about: Option<Loaded>,
        vain: Vec<Unused>,
        report: A,
        known: impl FnOnce(A) -> Box<dyn StoredAnswer>,
    ) -> Result<Self, Failure> {
        let mut unused = answer::unused(about.as_ref(), &report);
        unused.extend(vain);
        let json = answer::json(command, about.as_ref(), &unused, &report, "")?;
        let what = answer::about(about.as_ref(), &report, "");
        let warnings = about.iter().flat_map(|loaded| &loaded.warnings);
        let warnings = warnings.map(ToString::to_string).collect();
        Ok(Self { json, warnings, command, about, what, unused, known: known(report) })
    }

    fn sheet(&self) -> Sheet {
        self.known.sheet().with_unused(&self.unused)
    }
}

#[pymethods]
impl Answer {
    /// What the command prints for people.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        // Without the bold of headings: nobody knows where this will be shown.
        watched(py, |_| {
            let mut sheet = self.sheet();
            if let Some(what) = &self.what {
                let words = what.words(&sheet);
                sheet = sheet.with_about(&words);
            }
            Ok(strip_str(&sheet.unfolded().render(WIDTH)).to_string())
        })
    }

    /// The page that `--report` writes.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        let (about, what) = (self.about.as_ref(), self.what.as_ref());
        let again = what.map_or("", |what| what.command.as_str());
        watched(py, |_| Ok(answer::page(self.command, about, &self.sheet(), what, again).html()))
    }

    /// Writes the files of a change of an advice into a folder; their names.
    fn write(&self, py: Python<'_>, folder: PathBuf, take: Option<u32>) -> PyResult<Vec<PathBuf>> {
        watched(py, |_| {
            let (_, files) = self.known.files(take)?;
            let written = files.iter().map(|file| {
                let path = folder.join(file.name);
                save_text(&path, &file.text)?;
                Ok(path)
            });
            written.collect()
        })
    }

    /// Holds files against those of a change of an advice.
    fn check(&self, py: Python<'_>, paths: Vec<PathBuf>, take: Option<u32>) -> PyResult<Self> {
        watched(py, |_| {
            let (name, files) = self.known.files(take)?;
            let checked = advise::check(&name, &files, &paths)?;
            let about = self.about.clone();
            Self::new(self.command, about, Vec::new(), checked, |it| Box::new(Shown(it)))
        })
    }

    /// One of the tables that are too long for JSON.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        watched(py, |_| Table::of(self.known.table(self.about.as_ref(), name)?))
    }
}
