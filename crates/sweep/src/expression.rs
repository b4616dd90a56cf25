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

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use scenario::nearest::nearest;
use serde_json::Value as Json;

/// A condition that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    root: Node,
}

/// A part of a condition, and which bytes of its text it is.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    part: Part,
    at: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
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

/// What is wrong with a condition, and at which bytes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// In words.
    pub message: String,
    /// What would be right, if there is something to say.
    pub help: Option<String>,
    /// Where.
    pub at: Range<usize>,
}

/// Operators by strength, the weakest first; the longer of two that begin alike first.
const LEVELS: [&[&str]; 5] =
    [&["or"], &["and"], &["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];
const COMPARISONS: usize = 2;

/// What other languages write, and what it is here; the longer of two that begin alike first.
const FOREIGN: [(&str, &str); 9] = [
    ("=<", "<="),
    ("=>", ">="),
    ("=", "=="),
    ("<>", "!="),
    ("&&", "and"),
    ("&", "and"),
    ("||", "or"),
    ("|", "or"),
    ("!", "not"),
];

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

    /// The keys that it names, and where.
    pub fn keys(&self) -> Vec<(&str, Range<usize>)> {
        fn walk<'a>(node: &'a Node, keys: &mut Vec<(&'a str, Range<usize>)>) {
            match &node.part {
                Part::Value(_) => {}
                Part::Key(key) => keys.push((key, node.at.clone())),
                Part::Not(inner) | Part::Minus(inner) => walk(inner, keys),
                Part::Both(_, left, right) => {
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
    pub fn holds(&self, value: &dyn Fn(&str) -> Option<Json>) -> Result<bool, Mistake> {
        match self.root.evaluate(value)? {
            Value::Truth(truth) => Ok(truth),
            _ => Err(self.root.mistake(format!("`{self}` is a value and no condition"))),
        }
    }

    /// Everything that is wrong with it, given all values that each key can have; nothing is known
    /// of a key without any.
    pub fn mistakes(&self, values: &dyn Fn(&str) -> Vec<Json>) -> Vec<Mistake> {
        let mut checker = Checker { values, mistakes: Vec::new() };
        let kinds = checker.kinds(&self.root);
        if !kinds.may(Kind::Truth) && checker.mistakes.is_empty() {
            let message = format!("`{self}` is a value and no condition");
            checker.mistakes.push(self.root.mistake(message));
        }
        checker.mistakes
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Number,
    Text,
    Truth,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Truth => "a condition",
        })
    }
}

/// What a part can be; nothing if that is not known.
#[derive(Clone, Debug)]
struct Kinds(Vec<Kind>);

impl Kinds {
    fn may(&self, kind: Kind) -> bool {
        self.0.is_empty() || self.0.contains(&kind)
    }

    fn words(&self) -> String {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        words.join(" or ")
    }
}

/// Looks for what can never be decided.
struct Checker<'a> {
    values: &'a dyn Fn(&str) -> Vec<Json>,
    mistakes: Vec<Mistake>,
}

impl Checker<'_> {
    fn kinds(&mut self, node: &Node) -> Kinds {
        match &node.part {
            Part::Value(value) => Kinds(vec![value.kind()]),
            Part::Key(key) => self.kinds_of_key(key, node),
            Part::Not(inner) => self.wanted("not", Kind::Truth, &[inner]),
            Part::Minus(inner) => self.wanted("-", Kind::Number, &[inner]),
            Part::Both(operator @ ("and" | "or"), left, right) => {
                self.wanted(operator, Kind::Truth, &[left, right])
            }
            Part::Both(operator @ ("==" | "!="), left, right) => {
                self.compared(operator, left, right);
                Kinds(vec![Kind::Truth])
            }
            Part::Both(operator @ ("<" | "<=" | ">" | ">="), left, right) => {
                self.wanted(operator, Kind::Number, &[left, right]);
                Kinds(vec![Kind::Truth])
            }
            Part::Both(operator, left, right) => {
                self.wanted(operator, Kind::Number, &[left, right])
            }
        }
    }

    fn kinds_of_key(&mut self, key: &str, node: &Node) -> Kinds {
        let mut kinds = Vec::new();
        for value in (self.values)(key) {
            match Value::of(key, value) {
                Ok(value) if !kinds.contains(&value.kind()) => kinds.push(value.kind()),
                Ok(_) => {}
                Err(message) => {
                    self.mistakes.push(node.mistake(message));
                    return Kinds(Vec::new());
                }
            }
        }
        Kinds(kinds)
    }

    /// Operands that must be of one kind, which the result is, too.
    fn wanted(&mut self, operator: &str, kind: Kind, operands: &[&Node]) -> Kinds {
        for operand in operands {
            let found = self.kinds(operand);
            if !found.may(kind) {
                let what = self.called(operand);
                let message = format!("`{operator}` wants {kind}, and {what} is {}", found.words());
                let mistake = Mistake { help: self.quantity(operand), ..operand.mistake(message) };
                self.mistakes.push(mistake);
            }
        }
        Kinds(vec![kind])
    }

    /// Equality wants two of one kind, and a text that can be.
    fn compared(&mut self, operator: &str, left: &Node, right: &Node) {
        let (one, other) = (self.kinds(left), self.kinds(right));
        let share = [Kind::Number, Kind::Text, Kind::Truth];
        if !share.into_iter().any(|kind| one.may(kind) && other.may(kind)) {
            let [here, there] = [left, right].map(|node| self.called(node));
            let message = format!(
                "`{operator}` compares what is never alike: {here} is {}, and {there} is {}",
                one.words(),
                other.words()
            );
            let at = left.at.start..right.at.end;
            let help = self.quantity(left).or_else(|| self.quantity(right));
            return self.mistakes.push(Mistake { message, help, at });
        }
        for (key, text) in [(left, right), (right, left)] {
            let (Part::Key(key), Part::Value(Value::Text(word))) = (&key.part, &text.part) else {
                continue;
            };
            let known = (self.values)(key);
            let known: BTreeSet<&str> = known.iter().filter_map(Json::as_str).collect();
            // Of what does not vary, any word may be asked.
            if 1 < known.len() && !known.contains(word.as_str()) {
                let near = nearest(word, known.iter().copied());
                let near = near.map(|near| format!("did you mean '{near}'? "));
                let all = known.iter().take(12).copied().collect::<Vec<_>>().join(", ");
                let help = format!("{}it is one of {all}", near.unwrap_or_default());
                let message = format!("`{key}` is never '{word}'");
                let help = Some(help);
                self.mistakes.push(Mistake { help, ..text.mistake(message) });
            }
        }
    }

    /// What an operand is called in a sentence.
    fn called(&self, node: &Node) -> String {
        match &node.part {
            Part::Key(key) => format!("`{key}`"),
            Part::Value(value) => value.to_string(),
            _ => "this".to_owned(),
        }
    }

    /// What to do with a quantity that stands in quotes.
    fn quantity(&self, node: &Node) -> Option<String> {
        let Part::Key(key) = &node.part else { return None };
        let text = (self.values)(key).into_iter().find(Json::is_string)?;
        Some(format!("its value is {text}: compare it with `==` and `!=`, in quotes"))
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn fail<T>(&self, message: &str) -> Result<T, Mistake> {
        let at = self.at.min(self.text.len());
        let word = FOREIGN.iter().find(|(word, _)| self.text[at..].starts_with(word));
        let (message, help, length) = match word {
            Some((word, own)) => {
                let help = Some(format!("write `{own}`"));
                (format!("there is no operator `{word}`"), help, word.len())
            }
            None => (message.to_owned(), None, 1),
        };
        Err(Mistake { message, help, at: at..at + length })
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
        // `<>` is no `<`.
        if (is_word && after.starts_with(is_key_letter)) || (word == "<" && after.starts_with('>'))
        {
            return false;
        }
        self.at += word.len();
        true
    }

    fn node(&self, part: Part, start: usize) -> Node {
        Node { part, at: start..self.at }
    }

    fn level(&mut self, level: usize) -> Result<Node, Mistake> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        self.skip_blanks();
        let start = self.at;
        if level == COMPARISONS && self.take("not") {
            let inner = Box::new(self.nested(COMPARISONS)?);
            return Ok(self.node(Part::Not(inner), start));
        }
        let mut left = self.level(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            let right = self.level(level + 1)?;
            left = self.node(Part::Both(operator, Box::new(left), Box::new(right)), start);
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
        self.skip_blanks();
        let start = self.at;
        if self.take("-") {
            let inner = Box::new(self.nested(LEVELS.len())?);
            return Ok(self.node(Part::Minus(inner), start));
        }
        if self.take("(") {
            let node = self.nested(0)?;
            return if self.take(")") { Ok(node) } else { self.fail("a `)` is missing here") };
        }
        for (word, truth) in [("true", true), ("false", false)] {
            if self.take(word) {
                return Ok(self.node(Part::Value(Value::Truth(truth)), start));
            }
        }
        let part = self.operand()?;
        Ok(self.node(part, start))
    }

    /// A text, a number or a key.
    fn operand(&mut self) -> Result<Part, Mistake> {
        let rest = self.rest();
        match rest.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let Some(end) = rest[1..].find(quote) else {
                    return self.fail("this text does not end");
                };
                let text = rest[1..=end].to_owned();
                self.at += end + 2;
                Ok(Part::Value(Value::Text(text)))
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
                Ok(Part::Value(Value::Number(number)))
            }
            Some(letter) if is_key_letter(letter) => {
                let end = rest.find(|letter| !is_key_letter(letter)).unwrap_or(rest.len());
                let key = rest[..end].to_owned();
                self.at += end;
                Ok(Part::Key(key))
            }
            _ => self.fail("a value was expected here"),
        }
    }
}

fn is_key_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '.'
}

impl Value {
    fn of(key: &str, json: Json) -> Result<Self, String> {
        match json {
            Json::Number(number) => Ok(Self::Number(number.as_f64().unwrap_or(f64::NAN))),
            Json::String(text) => Ok(Self::Text(text)),
            Json::Bool(truth) => Ok(Self::Truth(truth)),
            other => Err(format!("`{key}` is {other}, no plain value")),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Number(_) => Kind::Number,
            Self::Text(_) => Kind::Text,
            Self::Truth(_) => Kind::Truth,
        }
    }
}

impl Node {
    fn mistake(&self, message: String) -> Mistake {
        Mistake { message, help: None, at: self.at.clone() }
    }

    fn evaluate(&self, value: &dyn Fn(&str) -> Option<Json>) -> Result<Value, Mistake> {
        Ok(match &self.part {
            Part::Value(value) => value.clone(),
            Part::Key(key) => {
                let found = value(key).ok_or_else(|| format!("`{key}` has no value"));
                let found = found.and_then(|json| Value::of(key, json));
                found.map_err(|message| self.mistake(message))?
            }
            Part::Not(inner) => match inner.evaluate(value)? {
                Value::Truth(truth) => Value::Truth(!truth),
                _ => return Err(self.mistake("`not` is for conditions".to_owned())),
            },
            Part::Minus(inner) => match inner.evaluate(value)? {
                Value::Number(number) => Value::Number(-number),
                _ => return Err(self.mistake("a minus sign is for numbers".to_owned())),
            },
            Part::Both(operator, left, right) => {
                let left = left.evaluate(value)?;
                match (*operator, &left) {
                    ("and", Value::Truth(false)) | ("or", Value::Truth(true)) => left,
                    _ => apply(operator, &left, &right.evaluate(value)?)
                        .map_err(|message| self.mistake(message))?,
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
    left.kind() == right.kind()
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
        Expression::parse(text)
            .map_err(|mistake| mistake.message)?
            .holds(&value)
            .map_err(|mistake| mistake.message)
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
        let at = |text: &str| Expression::parse(text).unwrap_err().at.start;
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
    #[test]
    fn what_can_never_be_decided_is_found_before_anything_runs() {
        let values = |key: &str| match key {
            "tp" => vec![Json::from(4), Json::from(8)],
            "policy" => vec![Json::from("ecmp"), Json::from("spray")],
            "mtu" => vec![Json::from("4KiB")],
            "shared" => vec![Json::from(true)],
            "mixed" => vec![Json::from(1), Json::from("auto")],
            _ => vec![],
        };
        let mistakes = |text: &str| Expression::parse(text).unwrap().mistakes(&values);
        for fine in ["tp * 2 <= 16", "policy == 'spray' or not shared", "mixed == 'auto'", "x < 3"]
        {
            assert_eq!(mistakes(fine), [], "{fine}");
        }
        let first = |text: &str| mistakes(text).remove(0);
        let spelt = first("tp == 4 and policy == 'spary'");
        assert_eq!((spelt.message.as_str(), spelt.at), ("`policy` is never 'spary'", 22..29));
        assert!(spelt.help.unwrap().contains("did you mean 'spray'"));
        assert!(first("tp == '8'").message.contains("`tp` is a number, and \"8\" is a text"));
        assert!(first("mtu >= 4096").help.unwrap().contains("4KiB"));
        assert!(first("tp").message.contains("no condition"));
        assert!(first("not tp").message.contains("`not` wants a condition, and `tp` is a number"));
        assert_eq!(mistakes("policy < 3 or policy == 3").len(), 2, "all are told");
        let foreign = |text: &str| Expression::parse(text).unwrap_err();
        for (text, own, at) in [
            ("tp = 4", "write `==`", 3..4),
            ("tp =< 4", "write `<=`", 3..5),
            ("tp => 4", "write `>=`", 3..5),
            ("tp <> 4", "write `!=`", 3..5),
            ("tp == 4 && tp == 8", "write `and`", 8..10),
            ("!shared", "write `not`", 0..1),
        ] {
            let Mistake { help, at: found, .. } = foreign(text);
            assert_eq!((help.as_deref(), found), (Some(own), at), "{text}");
        }
    }
}
