//! `check`: is this scenario valid, and what does it come to?

use report::{Align, Answer, Sheet, Table};
use scenario::{Loaded, Problems, Resolved};
use serde::Serialize;

/// How much of a valid scenario to show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Detail {
    /// That it is valid.
    Verdict,
    /// Every resolved value and where it came from.
    Values,
}

/// The verdict on a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Whether there are no problems.
    pub valid: bool,
    /// What is wrong.
    pub problems: Vec<Complaint>,
    /// What is valid and unwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Complaint>,
    /// Layers of each stage of the job, in the order of the model, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stage_layers: Vec<u64>,
    /// The resolved values, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<Resolved>>,
    /// What a file has left to the preset that it starts from, where it sizes its own cluster or
    /// job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited: Option<String>,
    #[serde(skip)]
    title: String,
}

/// One problem, for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Complaint {
    /// What is wrong.
    pub message: String,
    /// The dotted path of the key, if one is concerned.
    pub key: String,
    /// What would be right.
    pub help: Option<String>,
    /// The file, preset, variable or flag.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// The column, counted from 1.
    pub column: Option<usize>,
}

/// The verdict on a scenario that was loaded.
pub fn run(loaded: &Loaded, detail: Detail) -> Check {
    let job = loaded.job.as_ref().filter(|job| 1 < job.stage_layers.len());
    let stage_layers = job.map(|job| job.stage_layers.clone()).unwrap_or_default();
    let name = &loaded.scenario.name;
    let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
    Check {
        valid: true,
        problems: Vec::new(),
        warnings: loaded.warnings.iter().map(complaint).collect(),
        stage_layers,
        inherited: loaded.inherited(),
        values: (detail == Detail::Values).then(|| loaded.resolved()),
        title: format!("{}{name} is valid.", loaded.input),
    }
}

/// The verdict on a scenario that could not be loaded.
pub fn refusal(problems: &Problems) -> Check {
    Check {
        valid: false,
        problems: problems.0.iter().map(complaint).collect(),
        warnings: Vec::new(),
        stage_layers: Vec::new(),
        inherited: None,
        values: None,
        title: String::new(),
    }
}

fn complaint(problem: &scenario::Problem) -> Complaint {
    let place = problem.place.as_ref();
    let position = place.map(|place| place.line_and_column());
    Complaint {
        message: problem.message.clone(),
        key: problem.key.clone(),
        help: problem.help.clone(),
        file: place.map(|place| place.source.name.to_string()),
        line: position.map(|(line, _)| line),
        column: position.map(|(_, column)| column),
    }
}

impl Answer for Check {
    fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new().text(&self.title);
        for Complaint { message, help, .. } in &self.warnings {
            let help = help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
            sheet = sheet.note(format!("Warning: {message}{help}."));
        }
        if !self.stage_layers.is_empty() {
            let words = job::stages::in_words(&self.stage_layers);
            sheet = sheet.text(format!("Layers of its stages: {words}."));
        }
        if let Some(inherited) = &self.inherited {
            sheet = sheet.text(format!("Inherited from {inherited}."));
        }
        let Some(values) = &self.values else { return sheet };
        let columns = [("key", Align::Left), ("value", Align::Left), ("from", Align::Left)];
        let mut table = Table::new(columns);
        for Resolved { key, value, origin } in values {
            table.row([key, value, origin]);
        }
        sheet.table(table)
    }
}
