//! Lays one layer over another, key by key.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::schema::{Fields, Schema, Shape};
use crate::tree::{Entry, Node, Table, Value};

/// Lays `upper` over `lower`.
///
/// Tables are merged key by key, everything else is replaced: a list as a whole. A table whose
/// tag changes (another congestion control, say) is replaced too, because the old variant's
/// parameters mean nothing to the new one; so is one whose only key names the variant (a limit of
/// nodes over a limit of devices).
pub fn merge(lower: &mut Node, upper: Node, schema: &Schema) {
    merge_at(lower, upper, schema.as_json(), schema);
}

fn merge_at(lower: &mut Node, upper: Node, here: &Json, schema: &Schema) {
    match (&mut lower.value, upper.value) {
        (Value::Table(low), Value::Table(high)) => {
            let (low, high) = (Arc::make_mut(low), Arc::unwrap_or_clone(high));
            let shapes = schema.shapes(here);
            let other = match schema.tag(&shapes) {
                Some(tag) => changes(tag, low, &high),
                None => excludes(&shapes, low, &high),
            };
            if other {
                low.clear();
            }
            for (key, entry) in high {
                match low.get_mut(&key) {
                    Some(old) => {
                        old.key = entry.key;
                        let below = schema_of(&shapes, &key);
                        merge_at(&mut old.node, entry.node, below, schema);
                    }
                    None => {
                        let below = schema_of(&shapes, &key);
                        low.insert(key, over_defaults(entry, below, schema));
                    }
                }
            }
            lower.origin = upper.origin;
        }
        (value, replacement) => {
            *value = replacement;
            lower.origin = upper.origin;
        }
    }
}

/// A table that nobody has mentioned before lies over its own defaults.
fn over_defaults(entry: Entry, here: &Json, schema: &Schema) -> Entry {
    let defaults = entry.node.as_table().and_then(|_| schema.defaults(here));
    let Some(mut node) = defaults else { return entry };
    merge_at(&mut node, entry.node, here, schema);
    Entry { key: entry.key, node }
}

fn changes(tag: &str, low: &Table, high: &Table) -> bool {
    let word = |table: &Table| table.get(tag).map(|entry| entry.node.to_json());
    word(high).is_some_and(|new| word(low).is_some_and(|old| old != new))
}

/// Whether there are several forms of a table, and none that could have the keys of both.
fn excludes(shapes: &[Shape<'_>], low: &Table, high: &Table) -> bool {
    let tables = || {
        shapes.iter().filter_map(|shape| match shape {
            Shape::Table(fields) => Some(fields),
            _ => None,
        })
    };
    let fits = |fields: &Fields<'_>, table: &Table| {
        fields.others.is_some() || table.keys().all(|key| fields.known.contains_key(key.as_str()))
    };
    1 < tables().count()
        && tables().any(|fields| fits(fields, high))
        && !tables().any(|fields| fits(fields, low) && fits(fields, high))
}

/// The schema of a key in whichever table has it.
fn schema_of<'a>(shapes: &[Shape<'a>], key: &str) -> &'a Json {
    let known = shapes.iter().find_map(|shape| match shape {
        Shape::Table(fields) => fields.known.get(key).copied().or(fields.others),
        _ => None,
    });
    known.unwrap_or(&Json::Null)
}
