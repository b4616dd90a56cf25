//! Objects that are almost JSON: what Python prints, and what profilers write by hand.
//!
//! Beyond JSON it takes tuples, single quotes, bare words and hexadecimal numbers (as text),
//! `None`, `True`, `False`, `...`, commas before the end, and ends that are missing.

use serde_json::{Map, Value};

/// How deep values may lie in each other.
const MAX_DEPTH: usize = 64;

/// Reads one value at the beginning, and says how many bytes it took.
///
/// The error says at which byte it stopped, and why.
pub fn value(text: &str) -> Result<(Value, usize), (usize, &'static str)> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    let value = reader.value()?;
    Ok((value, reader.at))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

type Read<T> = Result<T, (usize, &'static str)>;

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// The next byte behind blanks, commas and `...`.
    fn next(&mut self) -> Option<u8> {
        loop {
            let trimmed = self.rest().trim_start_matches([' ', '\t', '\r', '\n', ',']);
            let trimmed = trimmed.strip_prefix("...").unwrap_or(trimmed);
            let at = self.text.len() - trimmed.len();
            if at == self.at {
                return self.rest().bytes().next();
            }
            self.at = at;
        }
    }

    fn value(&mut self) -> Read<Value> {
        if self.depth == MAX_DEPTH {
            return Err((self.at, "values lie too deep in each other"));
        }
        self.depth += 1;
        let value = match self.next() {
            None => return Err((self.at, "ends in the middle")),
            Some(b'{') => self.object()?,
            Some(b'[' | b'(') => self.list()?,
            Some(quote @ (b'"' | b'\'')) => Value::String(self.string(quote)?),
            Some(_) => self.word()?,
        };
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Read<Value> {
        self.at += 1;
        let mut map = Map::new();
        loop {
            match self.next() {
                None => return Ok(Value::Object(map)),
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(map));
                }
                Some(_) => {}
            }
            let key = match self.value()? {
                Value::String(key) => key,
                other => other.to_string(),
            };
            if self.next() != Some(b':') {
                return Err((self.at, "a colon is missing"));
            }
            self.at += 1;
            map.insert(key, self.value()?);
        }
    }

    fn list(&mut self) -> Read<Value> {
        self.at += 1;
        let mut list = Vec::new();
        loop {
            match self.next() {
                None => return Ok(Value::Array(list)),
                Some(b']' | b')') => {
                    self.at += 1;
                    return Ok(Value::Array(list));
                }
                Some(b'}') => return Err((self.at, "a bracket is missing")),
                Some(_) => list.push(self.value()?),
            }
        }
    }

    fn string(&mut self, quote: u8) -> Read<String> {
        self.at += 1;
        let mut text = String::new();
        let mut letters = self.rest().char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => match letters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                letter if letter == char::from(quote) => {
                    self.at += at + 1;
                    return Ok(text);
                }
                letter => text.push(letter),
            }
        }
        Err((self.at, "a string has no end"))
    }

    /// A number, a constant, or a bare word, which is text.
    fn word(&mut self) -> Read<Value> {
        let ends = [' ', '\t', '\r', '\n', ',', ':', ']', ')', '}', '[', '(', '{', '"', '\''];
        let word = self.rest();
        let word = &word[..word.find(ends).unwrap_or(word.len())];
        if word.is_empty() {
            return Err((self.at, "a value is missing"));
        }
        let value = match word {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" | "nan" | "NaN" => Value::Null,
            word => serde_json::from_str(word).unwrap_or_else(|_| Value::String(word.to_owned())),
        };
        self.at += word.len();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_almost_json_is_read() {
        let text =
            r#"{'a': (1, 'x',), "b": ncclFloat32, "c": 0x1f, "d": [True, None, ...], "e": -2.5e3"#;
        let wanted = json!({"a": [1, "x"], "b": "ncclFloat32", "c": "0x1f", "d": [true, null], "e": -2500.0});
        assert_eq!(value(text), Ok((wanted, text.len())));
    }

    #[test]
    fn what_is_wrong_says_where() {
        assert_eq!(value("{\"a\" 1}"), Err((5, "a colon is missing")));
        assert_eq!(value(&"[".repeat(99)), Err((64, "values lie too deep in each other")));
        assert_eq!(value("  "), Err((2, "ends in the middle")));
        assert_eq!(value("'abc"), Err((1, "a string has no end")));
    }

    proptest! {
        #[test]
        fn any_text_ends(text in "\\PC*") {
            let _ = value(&text);
        }

        #[test]
        fn json_is_read_as_json(number in any::<i64>(), text in "[a-z ]*") {
            let wanted = json!({"n": number, "t": text, "l": [number, text]});
            prop_assert_eq!(value(&wanted.to_string()).map(|(value, _)| value), Ok(wanted));
        }
    }
}
