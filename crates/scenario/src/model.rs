//! The model that a job names: a preset, a Hugging Face `config.json`, or a shape written out.

use std::path::Path;

use job::Model;
use job::config::ModelChoice;
use job::model::{HfConfig, presets};

use crate::nearest::nearest;
use crate::problem::Problem;
use crate::source::read;

/// Finds the model. A path is relative to `directory`.
pub fn find(choice: &ModelChoice, directory: &Path) -> Result<Model, Problem> {
    let name = match choice {
        ModelChoice::Shape(model) => return Ok((**model).clone()),
        ModelChoice::Named(name) => name,
    };
    if let Some(model) = Model::preset(name) {
        return Ok(model);
    }
    if !name.contains(['/', '\\']) && !name.ends_with(".json") {
        let names: Vec<&str> = presets::all().iter().map(|preset| &*preset.model.name).collect();
        let problem = Problem::error(format!("there is no model called `{name}`"));
        return Err(match nearest(name, names.iter().copied()) {
            Some(near) => problem.with_help(format!("did you mean \"{near}\"?")),
            None => problem.with_help(
                "`fatflow presets --kind model` lists them; a path to a config.json will do too",
            ),
        });
    }
    from_hugging_face(&directory.join(name))
}

fn from_hugging_face(path: &Path) -> Result<Model, Problem> {
    let help = "the path is relative to the file that names it; a model's name will do too";
    let source = read(path).map_err(|problem| problem.with_help(help))?;
    let refuse = |reason: String| {
        Problem::error(format!("`{}` describes no model: {reason}", source.name))
            .with_help("it should be the config.json of a Hugging Face model")
    };
    let config: HfConfig =
        serde_json::from_str(&source.text).map_err(|error| refuse(error.to_string()))?;
    let model = Model::from_hf(&config).map_err(|error| refuse(error.to_string()))?;
    check(&model, &config, &source.name)?;
    let unnamed = config.name_or_path.as_deref().unwrap_or("").is_empty();
    let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy());
    match folder.filter(|folder| unnamed && !folder.is_empty()) {
        Some(folder) => Ok(Model { name: folder.into_owned().into(), ..model }),
        None => Ok(model),
    }
}

/// Refuses a shape that cannot be, in the words of the file that describes it.
fn check(model: &Model, config: &HfConfig, name: &str) -> Result<(), Problem> {
    let (mut reasons, mut fits) = (Vec::new(), Vec::new());
    for (key, message) in model.problems() {
        let key = config.key_of(key);
        let (reason, fit) = message.split_once("; ").unwrap_or((&message, ""));
        reasons.push(format!("`{key}`: {reason}"));
        fits.push(format!("`{key}`: {fit}"));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let message = format!("`job.model`: `{name}` describes no model: {}", reasons.join("; "));
    Err(Problem::error(message).with_help(fits.join("; ")))
}
