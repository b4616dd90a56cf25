//! PyTorch execution traces as JSON (schemas 1.0.1 and 1.0.2): calls of collectives with sizes.

use memchr::memmem::find;
use serde::Deserialize;
use serde_json::Value;

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{CalledByRank, CollectiveKey, Kind};
use crate::records::whole;

/// `ExecutionTraceObserver`'s file.
pub const FORMAT: Format =
    Format { name: "PyTorch execution trace", unit: "nodes", recognises, read };

fn recognises(input: &Input<'_>) -> bool {
    let head = input.head();
    find(head, b"\"schema\"").is_some()
        && find(head, b"\"nodes\"").is_some()
        && find(head, b"execution_").is_some()
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    nodes: Vec<Node>,
}

/// A node; values stand in it, or in `inputs` of it.
#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    name: String,
    #[serde(default)]
    inputs: Value,
    #[serde(default)]
    outputs: Value,
    #[serde(default)]
    attrs: Value,
}

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let bytes = whole(input)?;
    let file: File = serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::at(error.line() as u64, error.to_string()))?;
    let mut calls = CalledByRank::new();
    for node in &file.nodes {
        reading.source.read += 1;
        if let Some(key) = call(node).filter(|_| node.name == "record_param_comms") {
            calls.entry(key).or_default().0 += 1;
        }
    }
    reading.observed.collectives.add_ranks(calls);
    Ok(())
}

fn values(of: &Value) -> &Value {
    if of.is_array() { of } else { &of["values"] }
}

fn call(node: &Node) -> Option<CollectiveKey> {
    let inputs = values(&node.inputs);
    let words = inputs.as_array().into_iter().flatten().filter_map(Value::as_str);
    let kind = words.filter(|word| *word != "wait").find_map(Kind::of)?;
    let bytes = tensors(inputs).max(tensors(values(&node.outputs)));
    let attribute = |name: &str| {
        let mut list = node.attrs.as_array().into_iter().flatten();
        list.find(|attribute| attribute["name"] == name).map(|found| &found["value"])
    };
    let ranks = attribute("pg_size").or(attribute("Group size")).and_then(Value::as_u64);
    let ranks = ranks.and_then(|ranks| u32::try_from(ranks).ok()).unwrap_or(0);
    let from = "execution trace".to_owned();
    Some(CollectiveKey { kind, bytes, ranks, from })
}

/// Bytes of the tensors in a value: `[tensor, storage, offset, elements, bytes of one, device]`.
fn tensors(value: &Value) -> u64 {
    let Some(list) = value.as_array() else { return 0 };
    if let [_, _, _, elements, size, device] = list.as_slice()
        && device.is_string()
    {
        return elements.as_u64().unwrap_or(0).saturating_mul(size.as_u64().unwrap_or(0));
    }
    list.iter().map(tensors).fold(0, u64::saturating_add)
}
