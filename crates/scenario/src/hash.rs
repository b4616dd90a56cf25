//! One number that says whether two scenarios are the same.
//!
//! FNV-1a, 64 bits (<http://www.isthe.com/chongo/tech/comp/fnv/>), over the resolved scenario as
//! JSON with sorted keys, and over the content of the files that it names. Names and descriptions
//! do not count, nor does catalogue hardware that the scenario does not name. It is an identifier,
//! not a defence against forgery.

use std::collections::BTreeSet;

use serde_json::Value as Json;

/// The hash of a resolved scenario, as it is printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScenarioHash(pub u64);

impl std::fmt::Display for ScenarioHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// FNV's offset basis and prime.
const START: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Hashes JSON so that the order of keys does not matter.
pub fn hash(json: &Json) -> ScenarioHash {
    let mut text = Vec::new();
    fold(json, &mut text);
    hash_bytes(&text)
}

/// Hashes the content of a file.
pub fn hash_bytes(bytes: &[u8]) -> ScenarioHash {
    ScenarioHash(absorb_bytes(bytes, START))
}

/// JSON whose hash is wanted many times with other values at some of its paths.
#[derive(Debug)]
pub(crate) struct Template {
    /// What is absorbed before each open path, and after the last.
    parts: Vec<Vec<u8>>,
    /// The last key of each open path, and which of the paths it is.
    open: Vec<(String, usize)>,
}

impl Template {
    /// Leaves these dotted paths of some JSON open. All tables around them must be there.
    pub(crate) fn new(json: &Json, paths: &[String]) -> Self {
        let mut template = Self { parts: vec![Vec::new()], open: Vec::new() };
        template.fold(json, "", paths);
        template
    }

    /// The hash with these values, one for each path; `null` is none.
    pub(crate) fn hash(&self, values: &[&Json]) -> ScenarioHash {
        let mut state = absorb_bytes(&self.parts[0], START);
        for ((key, path), part) in self.open.iter().zip(&self.parts[1..]) {
            if !values[*path].is_null() {
                let mut text = Vec::new();
                absorb_entry(key, values[*path], &mut text);
                state = absorb_bytes(&text, state);
            }
            state = absorb_bytes(part, state);
        }
        ScenarioHash(state)
    }

    fn last(&mut self) -> &mut Vec<u8> {
        self.parts.last_mut().expect("there is one from the beginning")
    }

    fn fold(&mut self, json: &Json, home: &str, paths: &[String]) {
        let Json::Object(fields) = json else { return fold(json, self.last()) };
        let path = |key: &str| if home.is_empty() { key.into() } else { format!("{home}.{key}") };
        let inside = |path: &String| {
            let rest =
                if home.is_empty() { path } else { path.strip_prefix(home)?.strip_prefix('.')? };
            (!rest.is_empty() && !rest.contains('.')).then(|| rest.to_owned())
        };
        let mut keys: BTreeSet<String> = paths.iter().filter_map(inside).collect();
        keys.extend(fields.iter().filter(|(_, value)| !value.is_null()).map(|(k, _)| k.clone()));
        absorb("{", self.last());
        for key in keys {
            let path = path(&key);
            if let Some(at) = paths.iter().position(|open| *open == path) {
                self.open.push((key, at));
                self.parts.push(Vec::new());
                continue;
            }
            absorb(&key, self.last());
            absorb(":", self.last());
            self.fold(&fields[&key], &path, paths);
        }
        absorb("}", self.last());
    }
}

/// What the hash is taken of: JSON with sorted keys.
fn fold(json: &Json, text: &mut Vec<u8>) {
    match json {
        Json::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
            sorted.sort_by_key(|(key, _)| *key);
            absorb("{", text);
            for (key, value) in sorted {
                absorb_entry(key, value, text);
            }
            absorb("}", text);
        }
        Json::Array(items) => {
            absorb("[", text);
            for item in items {
                fold(item, text);
            }
            absorb("]", text);
        }
        scalar => absorb(&scalar.to_string(), text),
    }
}

fn absorb_entry(key: &str, value: &Json, text: &mut Vec<u8>) {
    absorb(key, text);
    absorb(":", text);
    fold(value, text);
}

/// Absorbs a word and a byte that no text contains, so that neighbours cannot run together.
fn absorb(word: &str, text: &mut Vec<u8>) {
    text.extend(word.as_bytes());
    text.push(0xff);
}

fn absorb_bytes(bytes: &[u8], state: u64) -> u64 {
    bytes.iter().fold(state, |state, byte| (state ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn order_and_absence_do_not_matter_but_values_do() {
        let one = hash(&json!({"a": 1, "b": [1, 2], "c": null}));
        assert_eq!(one, hash(&json!({"b": [1, 2], "a": 1})));
        assert_ne!(one, hash(&json!({"b": [2, 1], "a": 1})));
        assert_ne!(one, hash(&json!({"b": [12], "a": 1})));
        assert_eq!(one.to_string().len(), 16);
    }

    #[test]
    fn a_template_has_the_hash_of_the_whole() {
        let whole = json!({"a": {"b": 1, "d": [1, {"e": 2}], "z": 3}, "c": "x", "seed": 7});
        let paths = ["seed", "a.b", "a.c", "a.d"].map(str::to_owned);
        let template = Template::new(&whole, &paths);
        let own = [json!(7), json!(1), Json::Null, json!([1, {"e": 2}])];
        assert_eq!(template.hash(&own.each_ref()), hash(&whole));
        let other = json!({"a": {"b": "one", "c": 4, "z": 3}, "c": "x", "seed": 8});
        let values = [json!(8), json!("one"), json!(4), Json::Null];
        assert_eq!(template.hash(&values.each_ref()), hash(&other));
    }
}
