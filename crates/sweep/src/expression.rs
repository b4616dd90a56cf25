//! What `where` says: a condition over the keys of a case.
//!
//! ```text
//! where = ["job.parallel.tp * dp == cluster.gpus", "not (qps > 8 and policy == 'spray')"]
//! ```
//!
//! From the weakest: `or`, `and`, `not`, one of `== != < <= > >=`, `+ -`, `* / %`, a minus sign,
//! parentheses. Operands are numbers, texts in single or double quotes, `true`, `false`, axes by
//! name and scenario keys by path. Texts and truths are compared with `==` and `!=` only. (Small
//! libraries for this exist; none takes dotted keys and says in which column a mistake stands.)

use std::fmt;

use serde_json::Value as Json;

/// A condition that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Value(Value),
    Key(String),
    Not(Box<Node>),
    Minus(Box<Node>),
    Both(&'static str, Box<Node>, Box<Node>),
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    Text(String),
    Truth(bool),
}

/// What is wrong with a condition, and at which byte of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// In words.
    pub message: String,
    /// Where.
    pub at: usize,
}

/// Operators by strength, the weakest first; the longer of two that begin alike first.
const LEVELS: [&[&str]; 5] =
    [&["or"], &["and"], &["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];
const COMPARISONS: usize = 2;

/// Deeper nesting is refused.
const DEEPEST: usize = 64;

impl Expression {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let root = parser.level(0)?;
        parser.skip_blanks();
        match parser.at < text.len() {
            true => parser.fail("an operator was expected here"),
            false => Ok(Self { text: text.to_owned(), root }),
        }
    }

    /// The keys that it names.
    pub fn keys(&self) -> Vec<&str> {
        fn walk<'a>(node: &'a Node, keys: &mut Vec<&'a str>) {
            match node {
                Node::Value(_) => {}
                Node::Key(key) => keys.push(key),
                Node::Not(inner) | Node::Minus(inner) => walk(inner, keys),
                Node::Both(_, left, right) => {
                    walk(left, keys);
                    walk(right, keys);
                }
            }
        }
        let mut keys = Vec::new();
        walk(&self.root, &mut keys);
        keys
    }

    /// Whether it holds, given the value of each key.
    pub fn holds(&self, value: &dyn Fn(&str) -> Option<Json>) -> Result<bool, String> {
        match self.root.evaluate(value)? {
            Value::Truth(truth) => Ok(truth),
            _ => Err(format!("`{self}` is a value and no condition")),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn fail<T>(&self, message: &str) -> Result<T, Mistake> {
        Err(Mistake { message: message.to_owned(), at: self.at.min(self.text.len()) })
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Takes an operator or a word if it stands here.
    fn take(&mut self, word: &str) -> bool {
        self.skip_blanks();
        let Some(after) = self.rest().strip_prefix(word) else { return false };
        let is_word = word.ends_with(char::is_alphabetic);
        if is_word && after.starts_with(is_key_letter) {
            return false;
        }
        self.at += word.len();
        true
    }

    fn level(&mut self, level: usize) -> Result<Node, Mistake> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        if level == COMPARISONS && self.take("not") {
            return Ok(Node::Not(Box::new(self.nested(COMPARISONS)?)));
        }
        let mut left = self.level(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            let right = self.level(level + 1)?;
            left = Node::Both(operator, Box::new(left), Box::new(right));
            if level == COMPARISONS {
                break;
            }
        }
        Ok(left)
    }

    fn nested(&mut self, level: usize) -> Result<Node, Mistake> {
        self.depth += 1;
        if DEEPEST < self.depth {
            return self.fail("this is nested too deeply");
        }
        let node = self.level(level)?;
        self.depth -= 1;
        Ok(node)
    }

    fn unary(&mut self) -> Result<Node, Mistake> {
        if self.take("-") {
            return Ok(Node::Minus(Box::new(self.nested(LEVELS.len())?)));
        }
        if self.take("(") {
            let node = self.nested(0)?;
            return if self.take(")") { Ok(node) } else { self.fail("a `)` is missing here") };
        }
        for (word, truth) in [("true", true), ("false", false)] {
            if self.take(word) {
                return Ok(Node::Value(Value::Truth(truth)));
            }
        }
        let rest = self.rest();
        match rest.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let Some(end) = rest[1..].find(quote) else {
                    return self.fail("this text does not end");
                };
                let text = rest[1..=end].to_owned();
                self.at += end + 2;
                Ok(Node::Value(Value::Text(text)))
            }
            Some(digit) if digit.is_ascii_digit() => {
                let is_part =
                    |letter: char| letter.is_ascii_alphanumeric() || ".+-".contains(letter);
                // A sign belongs to a number only behind its exponent.
                let mut end = 0;
                for (at, letter) in rest.char_indices() {
                    let after_exponent = rest[..at].ends_with(['e', 'E']);
                    if !is_part(letter) || ("+-".contains(letter) && !after_exponent) {
                        break;
                    }
                    end = at + 1;
                }
                let Ok(number) = rest[..end].parse() else {
                    return self.fail("this is not a number");
                };
                self.at += end;
                Ok(Node::Value(Value::Number(number)))
            }
            Some(letter) if is_key_letter(letter) => {
                let end = rest.find(|letter| !is_key_letter(letter)).unwrap_or(rest.len());
                let key = rest[..end].to_owned();
                self.at += end;
                Ok(Node::Key(key))
            }
            _ => self.fail("a value was expected here"),
        }
    }
}

fn is_key_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '.'
}

impl Node {
    fn evaluate(&self, value: &dyn Fn(&str) -> Option<Json>) -> Result<Value, String> {
        Ok(match self {
            Self::Value(value) => value.clone(),
            Self::Key(key) => match value(key) {
                Some(Json::Number(number)) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
                Some(Json::String(text)) => Value::Text(text),
                Some(Json::Bool(truth)) => Value::Truth(truth),
                Some(other) => return Err(format!("`{key}` is {other}, no plain value")),
                None => return Err(format!("`{key}` has no value")),
            },
            Self::Not(inner) => match inner.evaluate(value)? {
                Value::Truth(truth) => Value::Truth(!truth),
                _ => return Err("`not` is for conditions".to_owned()),
            },
            Self::Minus(inner) => match inner.evaluate(value)? {
                Value::Number(number) => Value::Number(-number),
                _ => return Err("a minus sign is for numbers".to_owned()),
            },
            Self::Both(operator, left, right) => {
                let left = left.evaluate(value)?;
                match (*operator, &left) {
                    ("and", Value::Truth(false)) | ("or", Value::Truth(true)) => left,
                    _ => apply(operator, &left, &right.evaluate(value)?)?,
                }
            }
        })
    }
}

fn apply(operator: &str, left: &Value, right: &Value) -> Result<Value, String> {
    let truth = match (operator, left, right) {
        ("==", left, right) if same_kind(left, right) => left == right,
        ("!=", left, right) if same_kind(left, right) => left != right,
        ("and", Value::Truth(left), Value::Truth(right)) => *left && *right,
        ("or", Value::Truth(left), Value::Truth(right)) => *left || *right,
        (_, Value::Number(left), Value::Number(right)) => match operator {
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            ">=" => left >= right,
            "+" => return Ok(Value::Number(left + right)),
            "-" => return Ok(Value::Number(left - right)),
            "*" => return Ok(Value::Number(left * right)),
            "/" => return Ok(Value::Number(left / right)),
            "%" => return Ok(Value::Number(left % right)),
            _ => return Err(format!("`{operator}` is for conditions")),
        },
        _ => return Err(format!("`{operator}` does not fit {left} and {right}")),
    };
    Ok(Value::Truth(truth))
}

fn same_kind(left: &Value, right: &Value) -> bool {
    std::mem::discriminant(left) == std::mem::discriminant(right)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Truth(truth) => truth.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> Result<bool, String> {
        let value = |key: &str| match key {
            "job.parallel.tp" => Some(Json::from(8)),
            "gpus" => Some(Json::from(128)),
            "policy" => Some(Json::from("ecmp")),
            "order" => Some(Json::from(3)),
            _ => None,
        };
        Expression::parse(text).map_err(|mistake| mistake.message)?.holds(&value)
    }

    #[test]
    fn conditions_mean_what_arithmetic_says() {
        let cases = [
            ("job.parallel.tp * 16 == gpus", true),
            ("2 + 3 * 4 == 14 and 10 - 2 - 3 == 5", true),
            ("gpus % 3 != 2", false),
            ("not policy == 'spray' and policy == \"ecmp\"", true),
            ("-gpus < -1.28e2 or order >= 3", true),
            ("not (gpus > 64 and order == 3)", false),
            ("true or missing == 1", true),
        ];
        for (text, expected) in cases {
            assert_eq!(holds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_and_placed() {
        let at = |text: &str| Expression::parse(text).unwrap_err().at;
        assert_eq!(
            [at("gpus <"), at("gpus == 1 2"), at("(gpus"), at("'open"), at("")],
            [6, 10, 5, 0, 0]
        );
        assert!(Expression::parse(&"(".repeat(10_000)).unwrap_err().message.contains("deeply"));
        assert_eq!(holds("policy < 3").unwrap_err(), "`<` does not fit \"ecmp\" and 3");
        assert_eq!(holds("nothing == 3").unwrap_err(), "`nothing` has no value");
        assert!(holds("gpus + 1").unwrap_err().contains("no condition"));
        assert!(holds("1 < 2 < 3").is_err());
    }
}
