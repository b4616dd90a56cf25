//! What a load of the synthetic traffic has around it: the fabric's NICs and GPUs, its storage, and
//! the sizes of the model that it names.

use std::ops::Range;
use std::path::Path;

use fabric::Fabric;
use job::Model;
use job::config::ModelChoice;
use traffic::pattern::{Load, Surroundings};
use traffic::serving::ModelSizes;

use crate::file::ScenarioFile;
use crate::model;
use crate::problem::Problem;

/// What a load has around it, or why its model is none.
pub(crate) fn of(
    fabric: &Fabric,
    scenario: &ScenarioFile,
    load: &Load,
) -> Result<Surroundings, Problem> {
    let count = |number: usize| u32::try_from(number).expect("node ids have 32 bits");
    let range = |numbers: Range<usize>| count(numbers.start)..count(numbers.end);
    let model = match load.pattern.has_model() {
        true => sizes(&preset(&load.model)?),
        false => ModelSizes::default(),
    };
    let checkpoint = &scenario.reliability.checkpoint;
    Ok(Surroundings {
        nics: count(fabric.compute_nics()),
        gpus: fabric.gpus() as u64,
        model,
        clients: range(fabric.storage_clients()),
        storage: range(fabric.storage()),
        checkpoint: checkpoint.size(model.parameters as f64),
    })
}

/// The model of that name. A load names no files: what it comes to hangs on the scenario alone.
fn preset(name: &str) -> Result<Model, Problem> {
    match Model::preset(name) {
        Some(model) => Ok(model),
        None if name.contains(['/', '\\', '.']) => {
            let help = "`fatflow presets --kind model` lists them";
            Err(Problem::error(format!("`{name}` is a file, not a preset")).with_help(help))
        }
        None => model::find(&ModelChoice::Named(name.to_owned()), Path::new("")),
    }
}

/// What a served model sends depends on.
fn sizes(model: &Model) -> ModelSizes {
    let windowed = model.window.map_or(0, |window| window.layers);
    ModelSizes {
        kept: (model.layers - windowed) * model.kept_values(),
        kept_in_window: windowed * model.kept_values(),
        window: model.window.map_or(0, |window| window.tokens),
        parameters: model.parameters().total(),
        hidden: model.hidden,
        layers: model.layers,
        moe_layers: model.moe_layers(),
        top_k: model.experts.map_or(0, |experts| experts.top_k),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1, bytes in bf16.
    #[test]
    fn keys_and_values_of_a_token_are_as_published() {
        let bytes = |name| 2 * sizes(&preset(name).unwrap()).kept_of(1);
        assert_eq!(bytes("deepseek-v3"), 70_272);
        assert_eq!(bytes("llama3-70b"), 327_680);
        assert_eq!(bytes("llama3-405b"), 516_096);
    }

    #[test]
    fn a_model_that_is_none_is_named() {
        let wrong = |name| preset(name).unwrap_err().message;
        assert_eq!(wrong("llama3-71b"), "there is no model called `llama3-71b`");
        assert_eq!(wrong("a/config.json"), "`a/config.json` is a file, not a preset");
    }
}
