//! One number that says whether two scenarios are the same.
//!
//! FNV-1a, 64 bits (<http://www.isthe.com/chongo/tech/comp/fnv/>), over the resolved scenario as
//! JSON with sorted keys, and over the content of the files that it names. Names and descriptions
//! do not count, nor does catalogue hardware that the scenario does not name. It is an identifier,
//! not a defence against forgery.

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
    let mut state = START;
    fold(json, &mut state);
    ScenarioHash(state)
}

/// Hashes the content of a file.
pub fn hash_bytes(bytes: &[u8]) -> ScenarioHash {
    ScenarioHash(absorb_bytes(bytes, START))
}

fn fold(json: &Json, state: &mut u64) {
    match json {
        Json::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
            sorted.sort_by_key(|(key, _)| *key);
            absorb("{", state);
            for (key, value) in sorted {
                absorb(key, state);
                absorb(":", state);
                fold(value, state);
            }
            absorb("}", state);
        }
        Json::Array(items) => {
            absorb("[", state);
            for item in items {
                fold(item, state);
            }
            absorb("]", state);
        }
        scalar => absorb(&scalar.to_string(), state),
    }
}

/// Absorbs a text and a byte that no text contains, so that neighbours cannot run together.
fn absorb(text: &str, state: &mut u64) {
    *state = absorb_bytes(&[0xff], absorb_bytes(text.as_bytes(), *state));
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
}
