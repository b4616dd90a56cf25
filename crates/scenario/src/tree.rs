//! What was written, before anybody asks what it means: values, each with where it came from.
//!
//! All layers (defaults, presets, files, environment, flags) become trees of one kind, are merged
//! key by key, and only the result is turned into the settings' own types. So precedence is
//! written once, and every leaf of the result still knows its place.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Problem, Problems};
use crate::source::{Source, SourceId, Sources};

/// Deeper nesting than this is refused; the deepest setting has a handful of levels.
const MAX_DEPTH: usize = 40;

/// Who says so. The later in this list, the stronger.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Layer {
    /// Nobody: the setting's own default.
    Default,
    /// The hardware catalogue, fatflow's or the user's.
    Catalogue,
    /// A preset.
    Preset,
    /// A scenario file.
    File,
    /// An environment variable.
    Environment,
    /// A flag on the command line.
    Flag,
}

/// Where a key or a value came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Origin {
    /// Who says so.
    pub layer: Layer,
    /// In which text, and from which byte to which; `None` for defaults.
    pub place: Option<(SourceId, usize, usize)>,
}

impl Origin {
    /// The bytes of its text; nothing for defaults.
    pub fn span(self) -> Range<usize> {
        self.place.map_or(0..0, |(_, start, end)| start..end)
    }

    /// The origin of everything that nobody wrote.
    pub const DEFAULT: Self = Self { layer: Layer::Default, place: None };
}

/// A value and where it came from.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it was written.
    pub origin: Origin,
}

/// A value as it was written.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string, a number or a truth value.
    Scalar(Json),
    /// A list.
    List(Vec<Node>),
    /// A table, shared by all trees that have it until one of them changes it.
    Table(Arc<Table>),
}

impl Value {
    /// A table.
    pub fn table(table: Table) -> Self {
        Self::Table(Arc::new(table))
    }
}

/// A table: its entries by key.
pub type Table = BTreeMap<String, Entry>;

/// One line of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where the key was written.
    pub key: Origin,
    /// What it was set to.
    pub node: Node,
}

impl Node {
    /// The node at a dotted path, through tables and, by number, through lists.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').filter(|step| !step.is_empty()).try_fold(self, |node, step| {
            match &node.value {
                Value::Table(table) => table.get(step).map(|entry| &entry.node),
                Value::List(items) => items.get(step.parse::<usize>().ok()?),
                Value::Scalar(_) => None,
            }
        })
    }

    /// The table inside, if it is one.
    pub fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Whether anything inside was said by this layer or a stronger one.
    pub fn has(&self, layer: Layer) -> bool {
        match &self.value {
            Value::Table(table) => table.values().any(|entry| entry.node.has(layer)),
            _ => layer <= self.origin.layer,
        }
    }

    /// Takes what is at a dotted path out of the tables inside, if it is there.
    pub fn remove(&mut self, path: &str) {
        let Value::Table(table) = &mut self.value else { return };
        match path.split_once('.') {
            None => drop(Arc::make_mut(table).remove(path)),
            Some((key, below)) => {
                if let Some(entry) = Arc::make_mut(table).get_mut(key) {
                    entry.node.remove(below);
                }
            }
        }
    }

    /// The string inside, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(Json::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The values alone.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Scalar(scalar) => scalar.clone(),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Table(table) => Json::Object(
                table.iter().map(|(key, entry)| (key.clone(), entry.node.to_json())).collect(),
            ),
        }
    }

    /// A tree of defaults. What is `null` is left out: nothing is set there.
    pub fn from_defaults(json: &Json) -> Option<Self> {
        Self::from_json(json, Origin::DEFAULT)
    }

    /// A tree whose values all have the same origin. What is `null` is left out.
    pub fn from_json(json: &Json, origin: Origin) -> Option<Self> {
        let inner = |value: &Json| Self::from_json(value, origin);
        let value = match json {
            Json::Null => return None,
            Json::Array(items) => Value::List(items.iter().filter_map(inner).collect()),
            Json::Object(fields) => {
                let entry = |(key, value): (&String, &Json)| {
                    Some((key.clone(), Entry { key: origin, node: inner(value)? }))
                };
                Value::table(fields.iter().filter_map(entry).collect())
            }
            scalar => Value::Scalar(scalar.clone()),
        };
        Some(Self { value, origin })
    }
}

/// Reads a text that is no scenario as a tree whose places are in `source`.
pub fn parse(source: &Source) -> Result<Node, Problems> {
    let id = Sources::default().add(source.clone());
    let mut reader = Reader { layer: Layer::File, id, source, shift: 0, problems: Vec::new() };
    let node = reader.document();
    match node.filter(|_| reader.problems.is_empty()) {
        Some(node) => Ok(node),
        None => Err(Problems(reader.problems)),
    }
}

/// Turns parsed TOML into a tree, noting what no setting can hold.
pub(crate) struct Reader<'a> {
    pub(crate) layer: Layer,
    pub(crate) id: SourceId,
    pub(crate) source: &'a Source,
    /// Added to every offset: a flag's value stands behind its key.
    pub(crate) shift: usize,
    pub(crate) problems: Vec<Problem>,
}

impl Reader<'_> {
    /// Reads a whole document. A text that is not TOML has one problem: the first.
    pub(crate) fn document(&mut self) -> Option<Node> {
        let text = std::sync::Arc::clone(&self.source.text);
        match DeTable::parse(&text) {
            Ok(table) => {
                let value = Value::table(self.table(table.get_ref(), 0));
                Some(Node { value, origin: self.origin(0..0) })
            }
            Err(error) => {
                self.problems.push(syntax_problem(self.source, &error));
                None
            }
        }
    }

    fn table(&mut self, table: &DeTable<'_>, depth: usize) -> Table {
        let mut entries = Table::new();
        for (key, value) in table.iter() {
            if let Some(node) = self.value(value, depth + 1) {
                let entry = Entry { key: self.origin(key.span()), node };
                entries.insert(key.get_ref().clone().into_owned(), entry);
            }
        }
        entries
    }

    pub(crate) fn value(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Option<Node> {
        let span = value.span();
        if MAX_DEPTH < depth {
            self.refuse(span, "this is nested too deeply", "no setting needs so many levels");
            return None;
        }
        let scalar = match value.get_ref() {
            DeValue::Table(table) => {
                let value = Value::table(self.table(table, depth));
                return Some(Node { value, origin: self.origin(span) });
            }
            DeValue::Array(items) => {
                let read: Vec<Node> =
                    items.iter().filter_map(|item| self.value(item, depth + 1)).collect();
                let origin = self.origin(span);
                let complete = read.len() == items.len();
                return complete.then_some(Node { value: Value::List(read), origin });
            }
            DeValue::String(text) => Json::String(text.clone().into_owned()),
            DeValue::Boolean(truth) => Json::Bool(*truth),
            DeValue::Integer(integer) => {
                let (digits, radix) = (integer.as_str(), integer.radix());
                let signed = i64::from_str_radix(digits, radix).map(Json::from);
                match signed.or_else(|_| u64::from_str_radix(digits, radix).map(Json::from)) {
                    Ok(number) => number,
                    Err(_) => {
                        self.refuse(span, "this number is too large", "at most 64 bits are kept");
                        return None;
                    }
                }
            }
            DeValue::Float(float) => {
                let number = float.as_str().parse::<f64>().ok();
                match number.and_then(serde_json::Number::from_f64) {
                    Some(number) => Json::Number(number),
                    None => {
                        self.refuse(span, "this number is not finite", "write a finite number");
                        return None;
                    }
                }
            }
            DeValue::Datetime(_) => {
                self.refuse(
                    span,
                    "no setting is a date or a time of day",
                    "write a text in quotes",
                );
                return None;
            }
        };
        Some(Node { value: Value::Scalar(scalar), origin: self.origin(span) })
    }

    fn origin(&self, span: Range<usize>) -> Origin {
        let place = (self.id, span.start + self.shift, span.end + self.shift);
        Origin { layer: self.layer, place: Some(place) }
    }

    fn refuse(&mut self, span: Range<usize>, message: &str, help: &str) {
        let span = span.start + self.shift..span.end + self.shift;
        let problem = Problem::error(message).with_help(help).at(self.source, span, "here");
        self.problems.push(problem);
    }
}

fn syntax_problem(source: &Source, error: &toml::de::Error) -> Problem {
    let end = source.text.trim_end().len();
    let span = error.span().unwrap_or(end..end);
    let cut_off = end <= span.start;
    if cut_off {
        let problem = Problem::error(format!("the file ends too early: {}", error.message()));
        // The last thing that is there, since nothing can be underlined that is not.
        let last = source.text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
        let help = "something is not finished here; is the file complete?";
        return problem.with_help(help).at(source, last..end, "the file ends here");
    }
    let problem = Problem::error(format!("this is not TOML: {}", error.message()));
    let help = match error.message() {
        message if message.contains("recursion") => "no setting needs so many levels",
        message if message.contains("duplicate") => "keep one of them",
        _ => "keys look like `seed = 7`, tables like `[cluster]`",
    };
    problem.with_help(help).at(source, span, "here")
}
