//! PyTorch execution traces as JSON (schemas 1.0.1 and 1.0.2): calls of collectives with sizes.

use std::collections::BTreeMap;

use memchr::memmem::find;
use serde::Deserialize;
use serde_json::Value;

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{CalledByRank, CollectiveKey, InGroup, Kind};
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
    let mut in_groups: BTreeMap<String, InGroup> = BTreeMap::new();
    for node in &file.nodes {
        reading.source.read += 1;
        if let Some(key) = call(node).filter(|_| node.name == "record_param_comms") {
            if let Some(name) = attribute(node, "pg_name").and_then(Value::as_str) {
                let purpose = attribute(node, "pg_desc").and_then(Value::as_str).unwrap_or("");
                let own = in_groups.entry(name.to_owned()).or_default();
                (own.name, own.size) = (format!("{name} {purpose}").trim().to_owned(), key.ranks);
                own.add(key.kind, 1, key.bytes);
            }
            calls.entry(key).or_default().0 += 1;
        }
    }
    reading.observed.collectives.add_ranks(calls);
    let whose = (reading.observed.sources.len(), 0);
    let own = in_groups.into_values().map(|own| InGroup { whose, ..own });
    reading.observed.in_groups.extend(own);
    Ok(())
}

fn attribute<'a>(node: &'a Node, name: &str) -> Option<&'a Value> {
    let mut list = node.attrs.as_array().into_iter().flatten();
    list.find(|attribute| attribute["name"] == name).map(|found| &found["value"])
}

fn values(of: &Value) -> &Value {
    if of.is_array() { of } else { &of["values"] }
}

fn call(node: &Node) -> Option<CollectiveKey> {
    let inputs = values(&node.inputs);
    let words = inputs.as_array().into_iter().flatten().filter_map(Value::as_str);
    let kind = words.filter(|word| *word != "wait").find_map(Kind::of)?;
    let bytes = tensors(inputs).max(tensors(values(&node.outputs)));
    let ranks = attribute(node, "pg_size").or(attribute(node, "Group size"));
    let ranks = ranks.and_then(Value::as_u64);
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
