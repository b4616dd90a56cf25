//! The JSON Schema of the scenario file, as the checker reads it.
//!
//! The settings' structs derive their schema, so it cannot lag behind them. A schema node is
//! flattened into the [`Shape`]s that a value may have: `Option` disappears, references are
//! followed, each variant of an enum is a shape of its own. Only the part of JSON Schema that
//! `schemars` writes is understood; what is not understood allows anything, and is left to
//! `serde`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde_json::Value as Json;

use crate::tree::{Entry, Node, Origin, Table, Value};

/// A schema that values can be checked against.
#[derive(Clone, Debug)]
pub struct Schema {
    json: Json,
    /// All tables by the keys that they have, the shallowest first; made when first needed.
    homes: OnceLock<BTreeMap<String, Vec<Home>>>,
}

/// One of the forms that a value may take.
#[derive(Clone, Debug)]
pub(crate) enum Shape<'a> {
    /// Exactly this word.
    Word(&'a str),
    /// Any text, or a quantity if there is a format that names one.
    Text { format: Option<&'a str> },
    /// True or false.
    Truth,
    /// A whole number; the schema holds its bounds.
    Integer(&'a Json),
    /// A number; the schema holds its bounds.
    Number(&'a Json),
    /// A list; the schema holds its items.
    List(&'a Json),
    /// A table.
    Table(Fields<'a>),
    /// Whatever `serde` will make of it.
    Anything,
}

/// The keys that a table may have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields<'a> {
    /// The schema of each known key.
    pub(crate) known: BTreeMap<&'a str, &'a Json>,
    /// The schema of all others, if there may be others.
    pub(crate) others: Option<&'a Json>,
    /// The keys that must be there.
    pub(crate) required: Vec<&'a str>,
}

/// A table, as people call it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Home {
    path: String,
    /// What its tag must be, if it has one.
    variant: Option<String>,
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.path {
            "" => write!(f, "at the top of the file")?,
            path => write!(f, "in `[{path}]`")?,
        }
        match &self.variant {
            Some(variant) => write!(f, " with `{variant}`"),
            None => Ok(()),
        }
    }
}

/// A key of the schema, as far as the schema tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Key<'a> {
    /// The dotted path; `*` stands for a name or a number of the user's.
    pub path: String,
    /// What the tag of its table must be for it to be there, if that has one.
    pub variant: Option<String>,
    /// Its doc comment.
    pub about: &'a str,
    /// The kinds of value that it takes: `number`, `time`, `table` and so on.
    pub kinds: Vec<&'static str>,
    /// The words that it takes, with what each means.
    pub words: Vec<(&'a str, &'a str)>,
    /// Of a table that a word chooses, the key of that word; nothing where the word alone will do.
    pub tag: Option<&'a str>,
    /// Its default, where the schema has one.
    pub default: Option<&'a Json>,
    /// Other names of it.
    pub aliases: Vec<&'a str>,
}

/// References inside references end here; the schema's own nesting is a handful.
const MAX_DEPTH: usize = 40;

/// What a tag is, which has no doc comment of its own.
const WHICH: &str = "Which of these it is.";

/// `7:1`, `7:2` or `7` as a number.
fn ratio(text: &str) -> Option<f64> {
    let (above, below) = text.split_once(':').unwrap_or((text, "1"));
    let [above, below] = [above, below].map(|part| part.trim().parse::<f64>().ok());
    let ratio = above? / below.filter(|below| 0.0 < *below)?;
    ratio.is_finite().then_some(ratio)
}

impl Shape<'_> {
    /// What people call it.
    fn kind(&self) -> &'static str {
        match self {
            Self::Word(_) => "word",
            Self::Text { format: Some("Span") } => "time",
            Self::Text { format: Some("Bytes") } => "size",
            Self::Text { format: Some("Rate") } => "rate",
            Self::Text { format: Some("Length") } => "length",
            Self::Text { .. } => "text",
            Self::Truth => "truth",
            Self::Integer(_) => "whole number",
            Self::Number(_) => "number",
            Self::List(_) => "list",
            Self::Table(_) => "table",
            Self::Anything => "anything",
        }
    }
}

impl Schema {
    /// The schema of a type.
    pub fn of<T: JsonSchema>() -> Self {
        Self { json: schemars::schema_for!(T).to_value(), homes: OnceLock::new() }
    }

    /// The schema as JSON.
    pub fn as_json(&self) -> &Json {
        &self.json
    }

    /// The forms that a value of this schema may take.
    pub(crate) fn shapes<'a>(&'a self, schema: &'a Json) -> Vec<Shape<'a>> {
        let mut shapes = Vec::new();
        self.add_shapes(schema, &mut shapes, 0);
        shapes
    }

    fn add_shapes<'a>(&'a self, schema: &'a Json, shapes: &mut Vec<Shape<'a>>, depth: usize) {
        let schema = self.resolve(schema);
        if MAX_DEPTH < depth || !schema.is_object() {
            return shapes.push(Shape::Anything);
        }
        let variants = ["oneOf", "anyOf"].iter().find_map(|key| schema.get(key)?.as_array());
        if let Some(variants) = variants {
            let first = shapes.len();
            for variant in variants {
                self.add_shapes(variant, shapes, depth + 1);
            }
            // A flattened enum: the struct's own keys stand beside the variants.
            let shared = fields(schema);
            for shape in &mut shapes[first..] {
                if let Shape::Table(fields) = shape {
                    fields.known.extend(&shared.known);
                    fields.required.extend(&shared.required);
                }
            }
            return;
        }
        if let Some(word) = schema.get("const").and_then(Json::as_str) {
            return shapes.push(Shape::Word(word));
        }
        if let Some(words) = schema.get("enum").and_then(Json::as_array) {
            return shapes.extend(words.iter().filter_map(Json::as_str).map(Shape::Word));
        }
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Json::String(kind)) => vec![kind],
            Some(Json::Array(kinds)) => kinds.iter().filter_map(Json::as_str).collect(),
            _ => return shapes.push(Shape::Anything),
        };
        for kind in kinds {
            match kind {
                "null" => {}
                "string" => {
                    let format = schema.get("format").and_then(Json::as_str);
                    shapes.push(Shape::Text { format });
                }
                "boolean" => shapes.push(Shape::Truth),
                "integer" => shapes.push(Shape::Integer(schema)),
                "number" => shapes.push(Shape::Number(schema)),
                "array" => shapes.push(Shape::List(schema)),
                "object" => shapes.push(Shape::Table(fields(schema))),
                _ => shapes.push(Shape::Anything),
            }
        }
    }

    /// Follows references to the end.
    pub(crate) fn resolve<'a>(&'a self, mut schema: &'a Json) -> &'a Json {
        for _ in 0..MAX_DEPTH {
            let target = schema.get("$ref").and_then(Json::as_str);
            let pointer = target.and_then(|target| target.strip_prefix('#'));
            match pointer.and_then(|pointer| self.json.pointer(pointer)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    /// The key whose word decides which of several tables is meant, if there is one.
    pub(crate) fn tag<'a>(&'a self, shapes: &[Shape<'a>]) -> Option<&'a str> {
        let mut tables = shapes.iter().filter_map(|shape| match shape {
            Shape::Table(fields) => Some(fields),
            _ => None,
        });
        let first = tables.next()?;
        let is_tag = |fields: &Fields<'a>, key: &str| {
            fields.known.get(key).is_some_and(|schema| schema.get("const").is_some())
        };
        let rest: Vec<_> = tables.collect();
        let mut keys = first.known.keys().copied();
        keys.find(|key| is_tag(first, key) && rest.iter().all(|fields| is_tag(fields, key)))
    }

    /// The word that stands for a table of this tag.
    pub(crate) fn tag_word<'a>(fields: &Fields<'a>, tag: &str) -> Option<&'a str> {
        fields.known.get(tag)?.get("const")?.as_str()
    }

    /// The words that a key may be set to, with what each means: the values of an enum, or the
    /// tags of a table. The path leads through tables and lists.
    pub fn words(&self, path: &str) -> Vec<(&str, &str)> {
        let mut schema = &self.json;
        let mut words = Vec::new();
        for step in path.split('.') {
            words.clear();
            if self.tag(&self.shapes(schema)) == Some(step) {
                self.collect_words(schema, &mut words);
            }
            let inner = self.shapes(schema).into_iter().find_map(|shape| match shape {
                Shape::Table(fields) => fields.known.get(step).copied(),
                Shape::List(list) => match self.shapes(list.get("items")?).into_iter().next()? {
                    Shape::Table(fields) => fields.known.get(step).copied(),
                    _ => None,
                },
                _ => None,
            });
            let Some(inner) = inner else { return Vec::new() };
            schema = inner;
        }
        if words.is_empty() {
            self.collect_words(schema, &mut words);
        }
        words
    }

    fn collect_words<'a>(&'a self, schema: &'a Json, words: &mut Vec<(&'a str, &'a str)>) {
        let schema = self.resolve(schema);
        let about = schema.get("description").and_then(Json::as_str).unwrap_or("");
        let variants = ["oneOf", "anyOf"].iter().find_map(|key| schema.get(key)?.as_array());
        for variant in variants.into_iter().flatten() {
            self.collect_words(variant, words);
        }
        let listed = schema.get("enum").and_then(Json::as_array);
        words.extend(listed.into_iter().flatten().filter_map(|word| Some((word.as_str()?, ""))));
        words.extend(schema.get("const").and_then(Json::as_str).map(|word| (word, about)));
        if variants.is_none() && schema.get("properties").is_some() {
            let tags = fields(schema).known.into_values().filter_map(|key| key.get("const"));
            words.extend(tags.filter_map(|word| Some((word.as_str()?, about))));
        }
    }

    /// Other names of a key or a word: `#[schemars(extend("x-aliases" = ["zones"]))]`.
    ///
    /// (`serde`'s own aliases are not part of the schema, and would be two keys to the merge.)
    pub(crate) fn aliases<'a>(&self, schema: &'a Json) -> impl Iterator<Item = &'a str> + use<'a> {
        let names = schema.get("x-aliases").and_then(Json::as_array);
        names.into_iter().flatten().filter_map(Json::as_str)
    }

    /// Gives a word that goes by another name the name that the enum knows.
    pub(crate) fn rename_word(&self, scalar: &mut Json, schema: &Json) {
        let Some(text) = scalar.as_str() else { return };
        let variants = self.resolve(schema).get("oneOf").and_then(Json::as_array);
        let variants = variants.into_iter().flatten();
        let meant = variants.filter(|variant| self.aliases(variant).any(|alias| alias == text));
        if let Some(word) = meant.filter_map(|variant| variant.get("const")).next() {
            *scalar = word.clone();
        }
    }

    /// Turns a word into the table that it is short for: a schema with `"x-word": "policy"` says
    /// that `"linear"` means `{ policy = "linear" }`. Without this, a weaker layer's short form and
    /// a stronger layer's table could not be merged.
    pub(crate) fn expand_word(&self, node: &mut Node, schema: &Json) {
        let key = self.resolve(schema).get("x-word").and_then(Json::as_str);
        if let (Some(key), Some(_)) = (key, node.as_str()) {
            let origin = node.origin;
            let entry = Entry { key: origin, node: node.clone() };
            node.value = Value::table(Table::from([(key.to_owned(), entry)]));
        }
    }

    /// Reads ratios as people write them: a schema with `"x-ratio"` says that `"7:1"` is 7, and of
    /// a list that `"7:1, 1:1"` is `[7, 1]`. What is no ratio stays, and is refused later.
    pub(crate) fn read_ratios(&self, node: &mut Node, schema: &Json) {
        if self.resolve(schema).get("x-ratio").is_none() {
            return;
        }
        let origin = node.origin;
        let read = |text: &str| Some(Node { value: Value::Scalar(ratio(text)?.into()), origin });
        match &mut node.value {
            Value::Scalar(Json::String(text)) if text.contains(',') => {
                if let Some(items) = text.split(',').map(read).collect() {
                    node.value = Value::List(items);
                }
            }
            Value::Scalar(Json::String(text)) => {
                if let Some(one) = read(text) {
                    *node = one;
                }
            }
            Value::List(items) => {
                for item in items {
                    if let Some(ratio) = item.as_str().and_then(ratio) {
                        item.value = Value::Scalar(ratio.into());
                    }
                }
            }
            _ => {}
        }
    }

    /// The defaults of a table that nobody has mentioned before, as its schema lists them.
    pub(crate) fn defaults(&self, schema: &Json) -> Option<Node> {
        let shapes = self.shapes(schema);
        let mut tables = shapes.iter().filter_map(|shape| match shape {
            Shape::Table(fields) => Some(fields),
            _ => None,
        });
        // Of several tables, none is the default one.
        let fields = tables.next().filter(|_| tables.next().is_none())?;
        let defaults = fields.known.iter().filter_map(|(key, schema)| {
            let node = Node::from_defaults(schema.get("default")?)?;
            Some(((*key).to_owned(), Entry { key: Origin::DEFAULT, node }))
        });
        Some(Node { value: Value::table(defaults.collect()), origin: Origin::DEFAULT })
    }

    /// Every key of the scenario file with what is known of it, tables before what is in them.
    pub fn keys(&self) -> Vec<Key<'_>> {
        let mut keys = Vec::new();
        self.collect_keys(&self.json, "", &mut keys);
        keys
    }

    fn collect_keys<'a>(&'a self, schema: &'a Json, path: &str, keys: &mut Vec<Key<'a>>) {
        let table = schema;
        // A table inside one of its own kind has nothing new to say.
        let steps: Vec<&str> = path.split('.').filter(|step| *step != "*").collect();
        if steps.split_last().is_some_and(|(last, before)| before.contains(last)) {
            return;
        }
        let shapes = self.shapes(schema);
        let tag = self.tag(&shapes);
        let above = self.about(schema);
        let mut seen: Vec<&str> = Vec::new();
        for shape in shapes {
            let inner = match shape {
                Shape::List(list) => list.get("items"),
                Shape::Table(fields) => {
                    let word = tag.and_then(|tag| Self::tag_word(&fields, tag));
                    let variant = tag.zip(word).map(|(tag, word)| format!("{tag} = \"{word}\""));
                    for (name, schema) in &fields.known {
                        if tag == Some(*name) && seen.contains(name) {
                            continue;
                        }
                        seen.push(name);
                        let variant = variant.clone().filter(|_| tag != Some(*name));
                        let inside = join(path, name);
                        let mut key = self.key(inside.clone(), variant, schema);
                        if key.about.is_empty() {
                            key.about = if tag == Some(*name) { WHICH } else { above };
                        }
                        // Each table has its own word; the key takes those of all of them.
                        if tag == Some(*name) {
                            key.words.clear();
                            self.collect_words(table, &mut key.words);
                        }
                        keys.push(key);
                        self.collect_keys(schema, &inside, keys);
                    }
                    fields.others.filter(|others| others.is_object())
                }
                _ => None,
            };
            if let Some(inner) = inner {
                self.collect_keys(inner, &join(path, "*"), keys);
            }
        }
    }

    /// What the doc comment says: the field's, or else its type's.
    fn about<'a>(&'a self, schema: &'a Json) -> &'a str {
        let text = |schema: &'a Json| schema.get("description").and_then(Json::as_str);
        text(schema).or_else(|| text(self.resolve(schema))).unwrap_or_default()
    }

    fn key<'a>(&'a self, path: String, variant: Option<String>, schema: &'a Json) -> Key<'a> {
        let about = self.about(schema);
        let mut kinds: Vec<&'static str> = self.shapes(schema).iter().map(Shape::kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut words = Vec::new();
        self.collect_words(schema, &mut words);
        words.dedup();
        let aliases = self.aliases(schema).collect();
        let is_short = self.resolve(schema).get("x-word").is_some();
        let tag = self.tag(&self.shapes(schema)).filter(|_| !is_short);
        Key { path, variant, about, kinds, words, tag, default: schema.get("default"), aliases }
    }

    /// All tables that have this key, the shallowest first.
    pub(crate) fn tables_with(&self, key: &str) -> &[Home] {
        let homes = self.homes.get_or_init(|| {
            let mut homes = BTreeMap::new();
            self.collect_homes(&self.json, "", &mut homes);
            for tables in homes.values_mut() {
                tables.sort_by_key(|home: &Home| home.path.len());
                tables.dedup();
            }
            homes
        });
        homes.get(key).map_or(&[], Vec::as_slice)
    }

    /// All dotted paths that end in a key, the shortest first.
    pub fn paths_to(&self, key: &str) -> Vec<String> {
        self.tables_with(key).iter().map(|home| join(&home.path, key)).collect()
    }

    fn collect_homes(&self, schema: &Json, path: &str, homes: &mut BTreeMap<String, Vec<Home>>) {
        let shapes = self.shapes(schema);
        let tag = self.tag(&shapes);
        for shape in shapes {
            match shape {
                Shape::Table(fields) => {
                    let word = tag.and_then(|tag| Self::tag_word(&fields, tag));
                    let variant = tag.zip(word).map(|(tag, word)| format!("{tag} = \"{word}\""));
                    for (name, schema) in &fields.known {
                        let home = Home { path: path.to_owned(), variant: variant.clone() };
                        homes.entry((*name).to_owned()).or_default().push(home);
                        // A table inside one of its own kind has nothing new to say.
                        if !path.split('.').any(|step| step == *name) {
                            self.collect_homes(schema, &join(path, name), homes);
                        }
                    }
                }
                Shape::List(list) => {
                    if let Some(items) = list.get("items") {
                        self.collect_homes(items, path, homes);
                    }
                }
                _ => {}
            }
        }
    }
}

/// A dotted path and one more step.
pub(crate) fn join(path: &str, step: &str) -> String {
    match (path, step) {
        ("", only) | (only, "") => only.to_owned(),
        _ => format!("{path}.{step}"),
    }
}

fn fields(schema: &Json) -> Fields<'_> {
    let properties = schema.get("properties").and_then(Json::as_object);
    let known = properties.into_iter().flatten().map(|(key, schema)| (key.as_str(), schema));
    let others = schema.get("additionalProperties").or(schema.get("unevaluatedProperties"));
    let required = schema.get("required").and_then(Json::as_array);
    Fields {
        known: known.collect(),
        others: match others {
            Some(Json::Bool(false)) => None,
            Some(schema) => Some(schema),
            // Without the word, JSON Schema allows all keys; the house rule forbids them.
            None if properties.is_some() => None,
            None => Some(&Json::Bool(true)),
        },
        required: required.into_iter().flatten().filter_map(Json::as_str).collect(),
    }
}
