//! Single settings from outside a file: `--set network.routing.qps=16` and the environment
//! variable `FATFLOW_SET_network__routing__qps=16`.
//!
//! The value is read as TOML; what is not TOML but a plain word (`ecmp`, `400Gbps`) is a text, so
//! that nobody has to quote twice.

use toml::de::DeValue;

use crate::problem::Problem;
use crate::source::{Source, SourceId, Sources};
use crate::tree::{Entry, Layer, Node, Origin, Reader, Table, Value};

/// What the names of environment variables that set something begin with.
pub const ENVIRONMENT_PREFIX: &str = "FATFLOW_SET_";

/// Reads `path=value` from a flag. The flag's name is shown with what is wrong.
pub(crate) fn from_flag(flag: &str, text: &str, sources: &mut Sources) -> Result<Node, Problem> {
    let source = Source::new(flag, text);
    let Some(equals) = text.find('=') else {
        let problem = Problem::error(format!("`{text}` sets nothing: the `=` is missing"))
            .with_help("write it like `--set network.routing.qps=16`");
        return Err(problem.at(&source, 0..text.len(), "no `=`"));
    };
    let steps = split(&text[..equals], ".", 0);
    let id = sources.add(source);
    build(Layer::Flag, id, sources.get(id), &steps, equals + 1)
}

/// Reads an environment variable; `None` if it is not one that sets something.
pub(crate) fn from_environment(
    name: &str,
    value: &str,
    sources: &mut Sources,
) -> Option<Result<Node, Problem>> {
    let path = name.strip_prefix(ENVIRONMENT_PREFIX)?;
    let steps = split(path, "__", ENVIRONMENT_PREFIX.len());
    // Variables are often written in capitals; keys never are.
    let steps: Vec<Step> =
        steps.into_iter().map(|step| Step { key: step.key.to_lowercase(), ..step }).collect();
    let id = sources.add(Source::new(format!("environment {name}"), format!("{name}={value}")));
    Some(build(Layer::Environment, id, sources.get(id), &steps, name.len() + 1))
}

/// One key of a path, and where it stands.
struct Step {
    key: String,
    start: usize,
    end: usize,
}

fn split(path: &str, separator: &str, mut start: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in path.split(separator) {
        let end = start + part.len();
        steps.push(Step { key: part.trim().to_owned(), start, end });
        start = end + separator.len();
    }
    steps
}

/// The tree with one leaf that the path and the value behind it make.
fn build(
    layer: Layer,
    id: SourceId,
    source: &Source,
    steps: &[Step],
    value_at: usize,
) -> Result<Node, Problem> {
    const MOST_STEPS: usize = 32;
    let empty = steps.iter().find(|step| step.key.is_empty());
    if let Some(step) = empty {
        let problem = Problem::error("a key is missing before, after or between the dots");
        return Err(problem.at(source, step.start..step.end, "here"));
    }
    if MOST_STEPS < steps.len() {
        let problem = Problem::error("no setting lies so deep");
        return Err(problem.at(source, 0..value_at - 1, "too many keys"));
    }
    let mut node = value(layer, id, source, value_at)?;
    for step in steps.iter().rev() {
        let origin = Origin { layer, place: Some((id, step.start, step.end)) };
        let mut table = Table::new();
        table.insert(step.key.clone(), Entry { key: origin, node });
        node = Node { value: Value::table(table), origin };
    }
    Ok(node)
}

fn value(layer: Layer, id: SourceId, source: &Source, at: usize) -> Result<Node, Problem> {
    let text = &source.text[at..];
    let mut reader = Reader { layer, id, source, shift: at, problems: Vec::new() };
    let node = match DeValue::parse(text.trim()) {
        Ok(parsed) => {
            reader.shift += text.len() - text.trim_start().len();
            reader.value(&parsed, 0)
        }
        Err(error) if text.trim_start().starts_with(['[', '{', '"', '\'']) => {
            let message = format!("this value is not TOML: {}", error.message());
            return Err(Problem::error(message).at(source, at..source.text.len(), "here"));
        }
        Err(_) => {
            let word = Value::Scalar(text.trim().into());
            let place = Some((id, at, source.text.len()));
            Some(Node { value: word, origin: Origin { layer, place } })
        }
    };
    node.ok_or_else(|| reader.problems.swap_remove(0))
}
