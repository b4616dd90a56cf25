//! YAML as a tree that knows its lines.
//!
//! Built from the events of `saphyr-parser`, because errors must name lines and because an alias
//! must not multiply: what aliases repeat is taken from a budget by its bytes, and so is depth.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser};

use units::{Budget, OverBudget};

use super::LineError;

/// What a value takes in memory besides its letters.
const EACH: u64 = 64;

/// A value and the line on which it begins.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A scalar, as text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A table, in order.
    Table(Vec<(String, Node)>),
}

impl Node {
    /// The entry of a table.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// The text, if it is one that says something.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) if !text.is_empty() && text != "~" && text != "null" => Some(text),
            _ => None,
        }
    }

    /// The items of a list; none if it is none.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The entries of a table; none if it is none.
    pub(crate) fn entries(&self) -> &[(String, Node)] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }
}

/// What is open while events come in.
enum Open {
    List(Vec<Node>),
    Table(Vec<(String, Node)>, Option<String>),
}

/// The first document of a text.
pub(crate) fn read(text: &str, budget: &mut Budget) -> Result<Node, LineError> {
    let mut open: Vec<(usize, usize, Open)> = Vec::new();
    let mut anchors: BTreeMap<usize, Node> = BTreeMap::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| (error.marker().line(), format!("is not YAML: {}", error.info())))?;
        let line = span.start.line();
        let over = |over: OverBudget| (line, over.to_string());
        budget.allow_depth(open.len() as u64).map_err(over)?;
        budget.spend_items(1).map_err(over)?;
        let (anchor, node) = match event {
            Event::Scalar(text, _, anchor, _) => {
                (anchor, Node { line, value: Value::Text(text.into_owned()) })
            }
            Event::SequenceStart(anchor, _) => {
                open.push((line, anchor, Open::List(Vec::new())));
                continue;
            }
            Event::MappingStart(anchor, _) => {
                open.push((line, anchor, Open::Table(Vec::new(), None)));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((line, anchor, closed)) = open.pop() else { continue };
                let value = match closed {
                    Open::List(items) => Value::List(items),
                    Open::Table(entries, _) => Value::Table(entries),
                };
                (anchor, Node { line, value })
            }
            Event::Alias(anchor) => {
                let Some(node) = anchors.get(&anchor) else {
                    return Err((line, "an alias of something that is not complete".to_owned()));
                };
                budget.spend_expansion(size(node)).map_err(over)?;
                (0, node.clone())
            }
            Event::DocumentEnd | Event::StreamEnd => break,
            _ => continue,
        };
        if 0 < anchor {
            budget.spend_expansion(size(&node)).map_err(over)?;
            anchors.insert(anchor, node.clone());
        }
        match open.last_mut() {
            None => return Ok(node),
            Some((_, _, Open::List(items))) => items.push(node),
            Some((_, _, Open::Table(entries, key))) => match (key.take(), node.value) {
                (Some(name), value) => entries.push((name, Node { line: node.line, value })),
                (None, Value::Text(text)) => *key = Some(text),
                (None, _) => return Err((line, "a key must be a word".to_owned())),
            },
        }
    }
    Err((0, "it is empty".to_owned()))
}

/// Bytes that a copy takes.
fn size(node: &Node) -> u64 {
    EACH + match &node.value {
        Value::Text(text) => text.len() as u64,
        Value::List(items) => items.iter().map(size).sum::<u64>(),
        Value::Table(entries) => {
            entries.iter().map(|(name, node)| name.len() as u64 + size(node)).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Node, LineError> {
        super::read(text, &mut { super::super::BUDGET })
    }

    #[test]
    fn values_know_their_lines() {
        let node = read("a:\n  - x\n  - {b: y}\nc: &name 3\nd: *name\n").unwrap();
        assert_eq!(node.get("a").unwrap().items()[1].get("b").unwrap().line, 3);
        assert_eq!(node.get("d").unwrap().text(), Some("3"));
    }

    #[test]
    fn broken_and_explosive_documents_are_refused() {
        assert!(read("a: [1, 2\nb: 3").is_err());
        assert!(read("").is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..20 {
            let item = format!("*a{}", level - 1);
            let items = vec![item; 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(read(&bomb).unwrap_err().1.contains("too many bytes once it is written out"));
    }

    /// A hundred kilobytes, repeated five thousand times.
    #[test]
    fn aliases_to_a_long_text_are_refused_with_their_line() {
        let text = format!("a: &a {}\nb:\n{}", "x".repeat(100_000), "- *a\n".repeat(5000));
        let (line, reason) = read(&text).unwrap_err();
        assert!(reason.contains("too many bytes once it is written out"), "{reason}");
        assert!((2000..5000).contains(&line), "{line}");
    }
}
