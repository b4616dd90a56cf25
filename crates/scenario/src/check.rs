//! Checks what was written against the schema, and keeps going.
//!
//! One walk over a layer's tree finds every unknown key, wrong type, unknown word, malformed
//! quantity and number out of range. What is wrong is taken out of the tree, so that the rest can
//! still be understood and checked for sense; what depends on a part taken out is not complained
//! about again (see [`Checked::dropped`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value as Json;
use units::quantity::check_format;

use crate::nearest::nearest;
use crate::problem::Problem;
use crate::schema::{Fields, Home, Schema, Shape, join};
use crate::source::Sources;
use crate::tree::{Entry, Node, Origin, Table, Value};

/// After so many problems nobody is helped by hints, which cost time.
const MOST_HINTS: usize = 100;

/// More problems than this are not even counted.
const MOST_PROBLEMS: usize = 10_000;

/// What a check found.
#[derive(Debug, Default)]
pub struct Checked {
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
    /// The paths whose values were taken out because they were wrong.
    pub dropped: BTreeSet<String>,
}

/// Checks one layer. `below` is what the weaker layers say: it decides the variant of a table
/// whose own layer does not name it.
pub fn check(node: &mut Node, below: &Node, schema: &Schema, sources: &Sources) -> Checked {
    let known_wrong = BTreeSet::new();
    let mut walk = Walk { schema, sources, checked: Checked::default(), known_wrong };
    walk.node(node, schema.as_json(), Some(below), "");
    walk.checked
}

/// Finds the keys that must be set somewhere and are not. For the merged tree; what was taken out
/// of it because it was wrong is not missing.
pub fn missing(
    node: &Node,
    schema: &Schema,
    sources: &Sources,
    dropped: &BTreeSet<String>,
) -> Vec<Problem> {
    let known_wrong = dropped.clone();
    let mut walk = Walk { schema, sources, checked: Checked::default(), known_wrong };
    walk.missing(node, schema.as_json(), "");
    walk.checked.problems
}

/// Whether a value may stay.
#[derive(Eq, PartialEq)]
enum Fate {
    Keep,
    Drop,
}

/// Which of several tables is meant.
enum Choice<'a> {
    /// This one.
    Fields(Fields<'a>),
    /// One with a tag that no table has.
    WrongTag(Fault, Origin),
    /// None of them.
    None(Fault),
}

struct Walk<'a> {
    schema: &'a Schema,
    sources: &'a Sources,
    checked: Checked,
    known_wrong: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    fn node(
        &mut self,
        node: &mut Node,
        schema: &'a Json,
        below: Option<&Node>,
        path: &str,
    ) -> Fate {
        let shapes = self.schema.shapes(schema);
        if shapes.iter().any(|shape| matches!(shape, Shape::Anything)) {
            return Fate::Keep;
        }
        let origin = node.origin;
        self.schema.expand_word(node, schema);
        self.schema.read_ratios(node, schema);
        self.expand_single(node, &shapes, path);
        match &mut node.value {
            Value::Scalar(scalar) => {
                self.schema.rename_word(scalar, schema);
                match scalar_problem(scalar, &shapes, path) {
                    None => Fate::Keep,
                    Some(fault) => {
                        let fault = self.hint_at_table(fault, scalar, &shapes);
                        self.refuse(fault, origin, path)
                    }
                }
            }
            Value::List(items) => {
                let list = shapes.iter().find_map(|shape| match shape {
                    Shape::List(list) => Some(*list),
                    _ => None,
                });
                match list {
                    Some(list) => self.list(items, list, origin, path),
                    None => self.refuse(wrong_kind("a list", &shapes, path), origin, path),
                }
            }
            Value::Table(table) => match self.choose(table, &shapes, below, origin, path) {
                Choice::Fields(fields) => self.table(Arc::make_mut(table), &fields, below, path),
                Choice::WrongTag(fault, origin) => {
                    // Said at the tag; nobody can tell what else the table should hold.
                    let tag = self.schema.tag(&shapes).unwrap_or_default();
                    self.refuse(fault, origin, &join(path, tag));
                    self.checked.dropped.insert(path.to_owned());
                    Fate::Drop
                }
                Choice::None(fault) => self.refuse(fault, origin, path),
            },
        }
    }

    /// Where a list is wanted, one value that fits it is a list of one.
    fn expand_single(&self, node: &mut Node, shapes: &[Shape<'a>], path: &str) {
        let (Value::Scalar(scalar), [Shape::List(list)]) = (&node.value, shapes) else { return };
        let Some(items) = list.get("items").map(|items| self.schema.shapes(items)) else { return };
        if scalar_problem(scalar, &items, path).is_none() {
            node.value = Value::List(vec![node.clone()]);
        }
    }

    /// A word that stands where a table with that tag is wanted.
    fn hint_at_table(&self, fault: Fault, scalar: &Json, shapes: &[Shape<'a>]) -> Fault {
        let Some((tag, word)) = self.schema.tag(shapes).zip(scalar.as_str()) else { return fault };
        let is_meant = |shape: &Shape<'a>| match shape {
            Shape::Table(fields) => Schema::tag_word(fields, tag) == Some(word),
            _ => false,
        };
        if !shapes.iter().any(is_meant) {
            return fault;
        }
        fault.with_help(format!("write {{ {tag} = \"{word}\" }}"))
    }

    fn list(&mut self, items: &mut [Node], list: &'a Json, origin: Origin, path: &str) -> Fate {
        let bound = |key: &str| list.get(key).and_then(Json::as_u64);
        let length = items.len() as u64;
        let fault = match (bound("minItems"), bound("maxItems")) {
            (Some(least), _) if length < least => Some(format!("at least {least}")),
            (_, Some(most)) if most < length => Some(format!("at most {most}")),
            _ => None,
        };
        if let Some(expected) = fault {
            let message = format!("`{path}` has {length} items, but takes {expected}");
            return self.refuse(Fault::new(message, "wrong length"), origin, path);
        }
        let tuple = list.get("prefixItems").and_then(Json::as_array);
        let mut fate = Fate::Keep;
        for (index, item) in items.iter_mut().enumerate() {
            let fixed = tuple.and_then(|schemas| schemas.get(index));
            if let Some(schema) = fixed.or_else(|| list.get("items"))
                && self.node(item, schema, None, &join(path, &index.to_string())) == Fate::Drop
            {
                fate = Fate::Drop;
            }
        }
        if fate == Fate::Drop {
            self.checked.dropped.insert(path.to_owned());
        }
        fate
    }

    fn table(
        &mut self,
        table: &mut Table,
        fields: &Fields<'a>,
        below: Option<&Node>,
        path: &str,
    ) -> Fate {
        let below = below.and_then(Node::as_table);
        self.rename_aliases(table, fields);
        self.report_strangers(table, fields, path);
        let mut wrong = Vec::new();
        for (key, entry) in table.iter_mut() {
            let path = join(path, key);
            let below = below.and_then(|table| table.get(key)).map(|entry| &entry.node);
            let schema = fields.known.get(key.as_str()).copied().or(fields.others);
            let schema = schema.expect("unknown keys have been taken out");
            if self.node(&mut entry.node, schema, below, &path) == Fate::Drop {
                wrong.push(key.clone());
            }
        }
        for key in &wrong {
            table.remove(key);
        }
        // Without a key that it needs, because that was wrong, a table cannot be read at all.
        let absent = |key: &&str| {
            let elsewhere = below.is_some_and(|table| table.contains_key(*key));
            !table.contains_key(*key) && !elsewhere
        };
        let mut absent = fields.required.iter().filter(|key| absent(key));
        if !wrong.is_empty() && absent.any(|key| self.checked.dropped.contains(&join(path, key))) {
            self.checked.dropped.insert(path.to_owned());
            return Fate::Drop;
        }
        Fate::Keep
    }

    /// Gives keys that go by another name the name that the structs know.
    fn rename_aliases(&self, table: &mut Table, fields: &Fields<'a>) {
        for (name, schema) in &fields.known {
            for alias in self.schema.aliases(schema) {
                if !table.contains_key(*name)
                    && let Some(entry) = table.remove(alias)
                {
                    table.insert((*name).to_owned(), entry);
                }
            }
        }
    }

    /// Complains about unknown keys and takes them out. A key that was probably misspelt goes on
    /// under the name that was probably meant, so that the rest is checked with its value.
    fn report_strangers(&mut self, table: &mut Table, fields: &Fields<'a>, path: &str) {
        let known = |key: &str| fields.others.is_some() || fields.known.contains_key(key);
        let strangers: Vec<String> = table.keys().filter(|key| !known(key)).cloned().collect();
        for key in strangers {
            let entry = table.remove(&key).expect("it was there a line ago");
            let meant = self.unknown_key(&key, &entry, fields, path);
            // A value that does not fit says that the guess was wrong, and one mistake is one
            // complaint.
            let fits = |meant: &&str| match &entry.node.value {
                Value::Scalar(scalar) => {
                    let shapes = self.schema.shapes(fields.known[*meant]);
                    scalar_problem(scalar, &shapes, path).is_none()
                }
                Value::List(_) | Value::Table(_) => true,
            };
            if let Some(meant) = meant.filter(|meant| !table.contains_key(*meant)).filter(fits) {
                table.insert(meant.to_owned(), entry);
            }
        }
    }

    /// Complains about an unknown key; returns the one that was probably meant.
    fn unknown_key(
        &mut self,
        key: &str,
        entry: &Entry,
        fields: &Fields<'a>,
        home: &str,
    ) -> Option<&'a str> {
        let place = if home.is_empty() { "a scenario".to_owned() } else { format!("`{home}`") };
        let mut fault = Fault::new(format!("there is no key `{key}` in {place}"), "unknown key");
        let mut near = None;
        if self.checked.problems.len() < MOST_HINTS {
            near = nearest(key, fields.known.keys().copied());
            let mut hints = Vec::new();
            hints.extend(near.map(|near| format!("did you mean `{near}`?")));
            let elsewhere = self.schema.tables_with(key);
            if !elsewhere.is_empty() {
                let homes: Vec<String> = elsewhere.iter().take(3).map(Home::to_string).collect();
                hints.push(format!("`{key}` belongs {}", homes.join(" or ")));
            }
            if hints.is_empty() {
                hints.push(format!("it has {}", listed(fields.known.keys().copied())));
            }
            fault = fault.with_help(hints.join("; "));
        }
        self.refuse(fault, entry.key, &join(home, key));
        near
    }

    /// Which of several tables is meant: by the tag, or else by the keys.
    fn choose(
        &self,
        table: &Table,
        shapes: &[Shape<'a>],
        below: Option<&Node>,
        origin: Origin,
        path: &str,
    ) -> Choice<'a> {
        let candidates: Vec<&Fields<'a>> = shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Table(fields) => Some(fields),
                _ => None,
            })
            .collect();
        let Some(first) = candidates.first() else {
            return Choice::None(wrong_kind("a table", shapes, path));
        };
        let Some(tag) = self.schema.tag(shapes) else {
            let strangers = |fields: &&&Fields<'a>| {
                table.keys().filter(|key| !fields.known.contains_key(key.as_str())).count()
            };
            let best = candidates.iter().min_by_key(strangers).unwrap_or(first);
            return Choice::Fields((*best).clone());
        };
        let own = table.get(tag);
        let word = own.map(|entry| &entry.node).or_else(|| below?.at(tag));
        let Some(word) = word else {
            let words = candidates.iter().filter_map(|fields| Schema::tag_word(fields, tag));
            let fault = Fault::new(format!("`{path}` does not say which `{tag}`"), "incomplete");
            return Choice::None(fault.with_help(format!("`{tag}` is one of {}", quoted(words))));
        };
        let is_meant = |fields: &&&Fields<'a>| Schema::tag_word(fields, tag) == word.as_str();
        if let Some(fields) = candidates.iter().find(is_meant) {
            return Choice::Fields((*fields).clone());
        }
        let words: Vec<Shape<'a>> = candidates
            .iter()
            .filter_map(|fields| Schema::tag_word(fields, tag))
            .map(Shape::Word)
            .collect();
        let tag_path = join(path, tag);
        let fault = match &word.value {
            Value::Scalar(scalar) => scalar_problem(scalar, &words, &tag_path),
            _ => Some(wrong_kind("not a word", &words, &tag_path)),
        };
        let fault = fault.unwrap_or_else(|| wrong_kind("unknown", &words, &tag_path));
        Choice::WrongTag(fault, own.map_or(origin, |entry| entry.node.origin))
    }

    fn refuse(&mut self, fault: Fault, origin: Origin, path: &str) -> Fate {
        let mut problem = Problem::error(fault.message).with_key(path);
        problem.help = fault.help;
        if let Some((source, start, end)) = origin.place {
            problem = problem.at(self.sources.get(source), start..end, fault.label);
        }
        if self.checked.problems.len() < MOST_PROBLEMS {
            self.checked.problems.push(problem);
        }
        self.checked.dropped.insert(path.to_owned());
        Fate::Drop
    }

    fn missing(&mut self, node: &Node, schema: &'a Json, path: &str) {
        let shapes = self.schema.shapes(schema);
        match &node.value {
            Value::Scalar(_) => {}
            Value::List(items) => {
                let list = shapes.iter().find_map(|shape| match shape {
                    Shape::List(list) => list.get("items"),
                    _ => None,
                });
                for (index, item) in items.iter().enumerate() {
                    if let Some(schema) = list {
                        self.missing(item, schema, &join(path, &index.to_string()));
                    }
                }
            }
            Value::Table(table) => {
                let choice = self.choose(table, &shapes, None, node.origin, path);
                let Choice::Fields(fields) = choice else { return };
                self.required(table, &fields, node.origin, path);
                for (key, entry) in table.iter() {
                    if let Some(schema) = fields.known.get(key.as_str()).copied().or(fields.others)
                    {
                        self.missing(&entry.node, schema, &join(path, key));
                    }
                }
            }
        }
    }
}

impl Walk<'_> {
    /// One problem for all the keys that a table needs and has not got.
    fn required(&mut self, table: &Table, fields: &Fields<'_>, origin: Origin, path: &str) {
        let absent = |key: &&str| {
            let known_to_be_wrong = self.known_wrong.contains(&join(path, key));
            !table.contains_key(*key) && !known_to_be_wrong
        };
        let absent: Vec<&str> = fields.required.iter().copied().filter(absent).collect();
        let word = match absent.len() {
            0 => return,
            1 => "key",
            _ => "keys",
        };
        let keys = listed(absent.iter().copied());
        let fault = Fault::new(format!("`{path}` needs the {word} {keys}"), "incomplete");
        let kind = |key: &&str| {
            let shapes = self.schema.shapes(fields.known.get(key)?);
            Some(format!("`{key}` is {}", expected(&shapes)))
        };
        let kinds: Vec<String> = absent.iter().filter_map(kind).collect();
        let fault = if kinds.is_empty() { fault } else { fault.with_help(kinds.join(", ")) };
        self.refuse(fault, origin, path);
    }
}

/// What is wrong with one value, before its place is known.
struct Fault {
    message: String,
    label: String,
    help: Option<String>,
}

impl Fault {
    fn new(message: String, label: impl Into<String>) -> Self {
        Self { message, label: label.into(), help: None }
    }

    fn with_help(mut self, help: String) -> Self {
        self.help = Some(help);
        self
    }
}

/// What is wrong with a scalar, if anything is: it must fit one of the shapes.
fn scalar_problem(scalar: &Json, shapes: &[Shape<'_>], path: &str) -> Option<Fault> {
    let mut nearest_miss = None;
    for shape in shapes {
        let miss = match (shape, scalar) {
            (Shape::Word(word), Json::String(text)) if word == text => return None,
            (Shape::Text { format }, Json::String(text)) => {
                quantity_problem(format.unwrap_or(""), text)
            }
            (Shape::Text { format: Some(format) }, Json::Number(number)) => {
                let Some(fault) = quantity_problem(format, &number.to_string()) else { continue };
                nearest_miss = Some(fault);
                continue;
            }
            (Shape::Truth, Json::Bool(_)) => None,
            (Shape::Integer(schema), Json::Number(number)) if !number.is_f64() => {
                bounds_problem(number, schema, path)
            }
            (Shape::Number(schema), Json::Number(number)) => bounds_problem(number, schema, path),
            _ => continue,
        };
        match miss {
            None => return None,
            Some(fault) => nearest_miss = Some(fault),
        }
    }
    let words: Vec<&str> = shapes
        .iter()
        .filter_map(|shape| match shape {
            Shape::Word(word) => Some(*word),
            _ => None,
        })
        .collect();
    Some(match (nearest_miss, scalar) {
        (Some(fault), _) => fault,
        (None, Json::String(text)) if !words.is_empty() => {
            let near = nearest(text, words.iter().copied());
            let near = near.map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
            Fault::new(format!("`{path}` cannot be \"{text}\""), "unknown value")
                .with_help(format!("{near}it is one of {}", quoted(words)))
        }
        (None, scalar) => wrong_scalar(scalar, shapes, path),
    })
}

fn wrong_scalar(scalar: &Json, shapes: &[Shape<'_>], path: &str) -> Fault {
    let found = match scalar {
        Json::String(_) => "a text",
        Json::Bool(_) => "a truth value",
        Json::Number(number) if number.is_f64() => "a fraction",
        _ => "a number",
    };
    let fault = wrong_kind(found, shapes, path);
    let wants_number =
        shapes.iter().any(|shape| matches!(shape, Shape::Integer(_) | Shape::Number(_)));
    match scalar {
        Json::String(text) if wants_number && text.trim().parse::<f64>().is_ok() => {
            fault.with_help(format!("write {} without quotes", text.trim()))
        }
        Json::String(text)
            if matches!(shapes, [Shape::Truth]) && (text == "true" || text == "false") =>
        {
            fault.with_help(format!("write {text} without quotes"))
        }
        Json::Number(number) if shapes.iter().any(|shape| matches!(shape, Shape::Text { .. })) => {
            fault.with_help(format!("write \"{number}\" in quotes"))
        }
        Json::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && wants_number => {
                fault.with_help(format!("write {float:.0} without the point"))
            }
            _ => fault,
        },
        _ => fault,
    }
}

fn wrong_kind(found: &str, shapes: &[Shape<'_>], path: &str) -> Fault {
    let expected = expected(shapes);
    let path = if path.is_empty() { "this" } else { path };
    let fault = Fault::new(
        format!("`{path}` must be {expected}, but this is {found}"),
        format!("not {expected}"),
    );
    if let Some(text) = crate::example::line(path) {
        return fault
            .with_help(format!("write it like `{text}`; `fatflow explain {path}` has more"));
    }
    match shapes.iter().find_map(|shape| example(shape, path)) {
        Some(example) => fault.with_help(example),
        None => fault,
    }
}

/// How a value of this shape is written, where the words alone do not say.
fn example(shape: &Shape<'_>, path: &str) -> Option<String> {
    const KEYS: usize = 8;
    let last = path.rsplit('.').next().unwrap_or(path);
    let is_item = last.bytes().all(|byte| byte.is_ascii_digit());
    Some(match shape {
        Shape::Integer(_) if is_item => "write it like `8`".to_owned(),
        Shape::Integer(_) => format!("write it like `{last} = 8`"),
        Shape::Number(_) if is_item => "write it like `0.5`".to_owned(),
        Shape::Number(_) => format!("write it like `{last} = 0.5`"),
        Shape::List(schema) => match schema["items"]["type"].as_str() {
            Some("number") if schema.get("x-ratio").is_some() => format!(
                "write it like `{last} = \"2:1\"`, several like `\"2:1, 1:1\"` or `[2, 1]`; for \
                 `--vary`, `{path}=1:1,2:1`"
            ),
            Some("number") => format!("write it like `{last} = [2.0]`, several like `[2.0, 1.0]`"),
            Some("integer") => format!("write it like `{last} = [8, 4]`"),
            Some("string") => format!("write it like `{last} = [\"one\", \"two\"]`"),
            _ => format!("write each entry as a table of its own, below `[[{path}]]`"),
        },
        Shape::Table(fields) => {
            let mut keys: Vec<&str> = fields.known.keys().copied().collect();
            let first = keys.first()?.to_string();
            let more = if KEYS < keys.len() { " …" } else { "" };
            keys.truncate(KEYS);
            let keys = keys.join(", ");
            format!("write it like `{last} = {{ {first} = … }}`; its keys are {keys}{more}")
        }
        _ => return None,
    })
}

/// What the shapes allow, in words.
fn expected(shapes: &[Shape<'_>]) -> String {
    let mut forms: Vec<String> = Vec::new();
    let words = shapes.iter().filter_map(|shape| match shape {
        Shape::Word(word) => Some(*word),
        _ => None,
    });
    let words: Vec<&str> = words.collect();
    if !words.is_empty() {
        forms.push(format!("one of {}", quoted(words)));
    }
    for shape in shapes {
        forms.push(match shape {
            Shape::Word(_) | Shape::Anything => continue,
            Shape::Text { format: Some("Rate") } => "a rate such as \"400Gbps\"".to_owned(),
            Shape::Text { format: Some("Bytes") } => "a size such as \"4MiB\"".to_owned(),
            Shape::Text { format: Some("Span") } => "a time such as \"1.5us\"".to_owned(),
            Shape::Text { format: Some("Length") } => "a length such as \"2m\"".to_owned(),
            Shape::Text { .. } => "a text".to_owned(),
            Shape::Truth => "true or false".to_owned(),
            Shape::Integer(_) => "a whole number".to_owned(),
            Shape::Number(_) => "a number".to_owned(),
            Shape::List(_) => "a list".to_owned(),
            Shape::Table(_) => "a table".to_owned(),
        });
    }
    forms.dedup();
    forms.join(" or ")
}

fn quantity_problem(format: &str, text: &str) -> Option<Fault> {
    let error = check_format(format, text).err()?;
    let unit = match format {
        "Rate" => "Gbps",
        "Bytes" => "MiB",
        "Span" => "us",
        _ => "m",
    };
    let bare = text.trim().parse::<f64>().is_ok_and(|number| 0.0 < number);
    let example = if bare { format!("{}{unit}", text.trim()) } else { error.example.to_owned() };
    let message = format!("`{text}` is not {}: {}", error.expected, error.reason);
    let fault = Fault::new(message, format!("not {}", error.expected));
    Some(fault.with_help(format!("write it with its unit, like \"{example}\"")))
}

fn bounds_problem(number: &serde_json::Number, schema: &Json, path: &str) -> Option<Fault> {
    let value = number.as_f64()?;
    let of_format = match schema.get("format").and_then(Json::as_str) {
        Some("uint8") => (0.0, f64::from(u8::MAX)),
        Some("uint16") => (0.0, f64::from(u16::MAX)),
        Some("uint32") => (0.0, f64::from(u32::MAX)),
        Some("uint64" | "uint") => (0.0, f64::INFINITY),
        Some("int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    let bound = |key: &str| schema.get(key).and_then(Json::as_f64);
    let least = bound("minimum").unwrap_or(of_format.0).max(of_format.0);
    let most = bound("maximum").unwrap_or(of_format.1).min(of_format.1);
    let fault = |rule: String| {
        let message = format!("`{path}` cannot be {number}");
        Some(Fault::new(message, "out of range").with_help(format!("it must be {rule}")))
    };
    match (bound("exclusiveMinimum"), bound("exclusiveMaximum")) {
        (Some(bound), _) if value <= bound => return fault(format!("more than {bound}")),
        (_, Some(bound)) if bound <= value => return fault(format!("less than {bound}")),
        _ => {}
    }
    if value < least {
        return fault(format!("{least} or more"));
    }
    if most < value {
        return fault(format!("{most} or less"));
    }
    None
}

fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("\"{word}\"")).collect();
    words.join(", ")
}

fn listed<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let keys: Vec<String> = keys.map(|key| format!("`{key}`")).collect();
    if keys.is_empty() { "no keys".to_owned() } else { keys.join(", ") }
}

#[cfg(test)]
mod tests;
