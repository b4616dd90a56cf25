//! Python's pickles, read without executing anything.
//!
//! A pickle is a program for a small machine with a stack. What builds plain values (numbers, text,
//! lists, tuples, dictionaries) is obeyed. What would import or call something is refused, but for
//! the three functions with which TorchScript marks the type of a list: they return their argument.

use std::rc::Rc;

use serde_json::{Map, Number, Value};

/// So many values may come out: references let a few bytes unfold to any number.
const MAX_VALUES: usize = 20_000_000;
/// How deep values may lie in each other.
const MAX_DEPTH: usize = 64;

/// A value on the stack.
#[derive(Clone, Debug)]
enum Item {
    Plain(Value),
    List(Rc<std::cell::RefCell<Vec<Item>>>),
    Dict(Rc<std::cell::RefCell<Vec<(Item, Item)>>>),
    /// One of TorchScript's functions.
    Identity,
    Mark,
}

/// Why it stopped, and at which byte.
type PickleError = (usize, String);

/// Whether the first bytes are of a pickle: protocol 2 to 5, or a dictionary of protocol 0 or 1.
pub(super) fn is_pickle(head: &[u8]) -> bool {
    let memo =
        |rest: &[u8]| matches!(rest, [b'0' | b'1', b'\n', ..] | [b'0' | b'1', b'\r', b'\n', ..]);
    match head {
        [0x80, 2..=5, ..] | [b'}', b'q', 0 | 1, b'(', ..] => true,
        [b'(', b'd', b'p', rest @ ..] => memo(rest),
        _ => false,
    }
}

/// The value that a pickle holds.
pub(super) fn value(bytes: &[u8]) -> Result<Value, PickleError> {
    let mut machine = Machine { bytes, at: 0, stack: Vec::new(), memo: Vec::new() };
    let item = machine.run()?;
    let mut left = MAX_VALUES;
    plain(&item, &mut left, 0).map_err(|reason| (machine.at, reason.to_owned()))
}

fn plain(item: &Item, left: &mut usize, depth: usize) -> Result<Value, &'static str> {
    *left = left.checked_sub(1).ok_or("unfolds to too many values")?;
    if MAX_DEPTH < depth {
        return Err("values lie too deep in each other");
    }
    Ok(match item {
        Item::Plain(value) => value.clone(),
        Item::List(list) => {
            let list = list.borrow();
            let values: Result<_, _> =
                list.iter().map(|item| plain(item, left, depth + 1)).collect();
            Value::Array(values?)
        }
        Item::Dict(pairs) => {
            let mut map = Map::new();
            for (key, value) in pairs.borrow().iter() {
                let key = match plain(key, left, depth + 1)? {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                map.insert(key, plain(value, left, depth + 1)?);
            }
            Value::Object(map)
        }
        Item::Identity | Item::Mark => return Err("a mark is no value"),
    })
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Item>,
    memo: Vec<Option<Item>>,
}

impl Machine<'_> {
    fn wrong<T>(&self, reason: impl Into<String>) -> Result<T, PickleError> {
        Err((self.at, reason.into()))
    }

    fn take(&mut self, length: usize) -> Result<&[u8], PickleError> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else { return self.wrong("ends in the middle") };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// A number of so many bytes, the lowest first.
    fn unsigned(&mut self, length: usize) -> Result<usize, PickleError> {
        let bytes = self.take(length)?;
        let number = bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).or_else(|_| self.wrong("a length is too large"))
    }

    fn line(&mut self) -> Result<String, PickleError> {
        let rest = &self.bytes[self.at..];
        let Some(end) = memchr::memchr(b'\n', rest) else { return self.wrong("a name has no end") };
        // Bytes are the first 256 letters of Unicode.
        let line = rest[..end].iter().copied().map(char::from).collect();
        self.at += end + 1;
        Ok(line)
    }

    /// A number that is written out, as protocol 0 does.
    fn digits<T: std::str::FromStr>(&mut self) -> Result<T, PickleError> {
        let line = self.line()?;
        line.trim().trim_end_matches('L').parse().or_else(|_| self.wrong("no number stands there"))
    }

    /// Text with escapes: between quotes, or of Unicode without any.
    fn escaped(&mut self) -> Result<String, PickleError> {
        let line = self.line()?;
        let line = line.trim_end_matches('\r');
        let inner = |quote| line.strip_prefix(quote)?.strip_suffix(quote);
        let (inner, is_quoted) = match inner('\'').or_else(|| inner('"')) {
            Some(inner) => (inner, true),
            None => (line, false),
        };
        let (mut text, mut letters) = (String::new(), inner.chars());
        while let Some(letter) = letters.next() {
            let escape = if letter == '\\' { letters.next() } else { None };
            let digits = match (escape, is_quoted) {
                (Some('x'), true) => 2,
                (Some('u'), false) => 4,
                (Some('U'), false) => 8,
                (other, _) => {
                    text.push(other.unwrap_or(letter));
                    continue;
                }
            };
            let code: String = letters.by_ref().take(digits).collect();
            let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
            text.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        Ok(text)
    }

    fn pop(&mut self) -> Result<Item, PickleError> {
        let at = self.at;
        self.stack.pop().ok_or_else(|| (at, "the stack is empty".to_owned()))
    }

    /// What lies above the last mark.
    fn above_mark(&mut self) -> Result<Vec<Item>, PickleError> {
        let mark = self.stack.iter().rposition(|item| matches!(item, Item::Mark));
        let Some(mark) = mark else { return self.wrong("there is no mark") };
        let above = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(above)
    }

    fn push(&mut self, value: impl Into<Value>) {
        self.stack.push(Item::Plain(value.into()));
    }

    fn push_list(&mut self, items: Vec<Item>) {
        self.stack.push(Item::List(Rc::new(std::cell::RefCell::new(items))));
    }

    fn push_text(&mut self, length: usize) -> Result<(), PickleError> {
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.push(text);
        Ok(())
    }

    fn append(&mut self, items: Vec<Item>) -> Result<(), PickleError> {
        match self.stack.last() {
            Some(Item::List(list)) => list.borrow_mut().extend(items),
            _ => return self.wrong("something is appended to what is no list"),
        }
        Ok(())
    }

    fn set(&mut self, items: Vec<Item>) -> Result<(), PickleError> {
        let pairs = items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        match self.stack.last() {
            Some(Item::Dict(dict)) => dict.borrow_mut().extend(pairs),
            _ => return self.wrong("something is set in what is no dictionary"),
        }
        Ok(())
    }

    fn remember(&mut self, index: usize) -> Result<(), PickleError> {
        if self.bytes.len() < index {
            return self.wrong("a number of the memo is too large");
        }
        if self.memo.len() <= index {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = self.stack.last().cloned();
        Ok(())
    }

    fn recall(&mut self, index: usize) -> Result<(), PickleError> {
        match self.memo.get(index).cloned().flatten() {
            Some(item) => self.stack.push(item),
            None => return self.wrong("nothing has that number in the memo"),
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Item, PickleError> {
        loop {
            let code = self.take(1)?[0];
            match code {
                b'.' => return self.pop(),
                0x80 => drop(self.take(1)?.len()),
                0x95 => drop(self.take(8)?.len()),
                b'(' => self.stack.push(Item::Mark),
                b'0' => drop(self.pop()?),
                b'1' => drop(self.above_mark()?),
                b'q' => self.unsigned(1).and_then(|index| self.remember(index))?,
                b'r' => self.unsigned(4).and_then(|index| self.remember(index))?,
                0x94 => self.remember(self.memo.len())?,
                b'p' => self.digits().and_then(|index| self.remember(index))?,
                b'g' => self.digits().and_then(|index| self.recall(index))?,
                b'h' => self.unsigned(1).and_then(|index| self.recall(index))?,
                b'j' => self.unsigned(4).and_then(|index| self.recall(index))?,
                b'N' | 0x88 | 0x89 | b'K' | b'M' | b'J' | b'G' | 0x8a | 0x8b => {
                    self.number(code)?
                }
                b'I' | b'L' | b'F' => self.written(code)?,
                b'S' | b'V' => self.escaped().map(|text| self.push(text))?,
                b'X' | 0x8c | 0x8d | b'U' | b'T' | b'C' | b'B' | 0x8e => self.text(code)?,
                b']' | b'}' | b')' | b'l' | b'd' | b't' | 0x85..=0x87 => self.container(code)?,
                b'a' | b'e' | b's' | b'u' => self.fill(code)?,
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.import(&module, &name)?;
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    let text = |item| match item {
                        Item::Plain(Value::String(text)) => text,
                        _ => String::new(),
                    };
                    self.import(&text(module), &text(name))?;
                }
                b'R' => self.call()?,
                code => {
                    let what = char::from(code).escape_default();
                    return self.wrong(format!("the instruction `{what}` is not obeyed"));
                }
            }
        }
    }

    fn import(&mut self, module: &str, name: &str) -> Result<(), PickleError> {
        let is_harmless = module == "torch.jit._pickle"
            && ["build_intlist", "build_doublelist", "build_boollist"].contains(&name);
        if !is_harmless {
            return self.wrong(format!("wants to import {module}.{name}, which is not done"));
        }
        self.stack.push(Item::Identity);
        Ok(())
    }

    /// The call of a function that returns its argument.
    fn call(&mut self) -> Result<(), PickleError> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        match (function, arguments) {
            (Item::Identity, Item::List(list)) if list.borrow().len() == 1 => {
                let first = list.borrow()[0].clone();
                self.stack.push(first);
                Ok(())
            }
            _ => self.wrong("wants to call something, which is not done"),
        }
    }

    fn number(&mut self, code: u8) -> Result<(), PickleError> {
        match code {
            b'N' => self.push(Value::Null),
            0x88 => self.push(true),
            0x89 => self.push(false),
            b'K' => self.unsigned(1).map(|number| self.push(number))?,
            b'M' => self.unsigned(2).map(|number| self.push(number))?,
            b'J' => {
                let bytes: [u8; 4] = self.take(4)?.try_into().expect("four bytes");
                self.push(i32::from_le_bytes(bytes));
            }
            b'G' => {
                let bytes: [u8; 8] = self.take(8)?.try_into().expect("eight bytes");
                let number = Number::from_f64(f64::from_be_bytes(bytes));
                self.push(number.map_or(Value::Null, Value::Number));
            }
            _ => {
                let length = self.unsigned(if code == 0x8a { 1 } else { 4 })?;
                let bytes = self.take(length)?;
                let is_negative = bytes.last().is_some_and(|byte| 0x80 <= *byte);
                let mut all = [if is_negative { 0xff } else { 0 }; 16];
                if all.len() < bytes.len() {
                    return self.wrong("a number is too large");
                }
                all[..bytes.len()].copy_from_slice(bytes);
                let number = i128::from_le_bytes(all);
                match (i64::try_from(number), u64::try_from(number)) {
                    (Ok(number), _) => self.push(number),
                    (_, Ok(number)) => self.push(number),
                    _ => self.push(number.to_string()),
                }
            }
        }
        Ok(())
    }

    /// A number of protocol 0; truth is the integer `01` or `00`.
    fn written(&mut self, code: u8) -> Result<(), PickleError> {
        let rest = &self.bytes[self.at..];
        if code == b'I' && (rest.starts_with(b"01\n") || rest.starts_with(b"00\n")) {
            let is_true = rest[1] == b'1';
            self.at += 3;
            self.push(is_true);
            return Ok(());
        }
        match code {
            b'F' => {
                let number = Number::from_f64(self.digits()?);
                self.push(number.map_or(Value::Null, Value::Number));
            }
            _ => {
                let number: i64 = self.digits()?;
                self.push(number);
            }
        }
        Ok(())
    }

    fn text(&mut self, code: u8) -> Result<(), PickleError> {
        let length = match code {
            0x8c | b'U' | b'C' => self.unsigned(1)?,
            0x8d | 0x8e => self.unsigned(8)?,
            _ => self.unsigned(4)?,
        };
        self.push_text(length)
    }

    fn container(&mut self, code: u8) -> Result<(), PickleError> {
        match code {
            b']' | b')' => self.push_list(Vec::new()),
            b'}' => self.stack.push(Item::Dict(Rc::default())),
            b'l' | b't' => self.above_mark().map(|items| self.push_list(items))?,
            b'd' => {
                let items = self.above_mark()?;
                self.stack.push(Item::Dict(Rc::default()));
                self.set(items)?;
            }
            _ => {
                let mut items = Vec::new();
                for _ in 0x84..code {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push_list(items);
            }
        }
        Ok(())
    }

    fn fill(&mut self, code: u8) -> Result<(), PickleError> {
        match code {
            b'a' => self.pop().and_then(|item| self.append(vec![item])),
            b'e' => self.above_mark().and_then(|items| self.append(items)),
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![key, value])
            }
            _ => self.above_mark().and_then(|items| self.set(items)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// `pickle.dumps({"a": [1, -2, 2**40], "b": (None, True, 1.5), "c": "é"}, protocol=4)`.
    const FOUR: &[u8] = b"\x80\x04\x956\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01e\x8c\x01b\x94N\x88G?\xf8\x00\x00\x00\x00\x00\x00\x87\x94\x8c\x01c\x94\x8c\x02\xc3\xa9\x94u.";

    #[test]
    fn plain_values_come_out() {
        let wanted = json!({"a": [1, -2, 1_u64 << 40], "b": [null, true, 1.5], "c": "é"});
        assert_eq!(value(FOUR), Ok(wanted));
    }

    /// Oracle: what Python 3.11 writes under protocols 0 and 1.
    #[test]
    fn old_protocols_are_read() {
        let zero =
            b"(dp0\nVversion\np1\nV2.5\np2\nsVa\np3\n(lp4\nI1\naI-2\naL70000000000L\naF1.5\n\
            aI01\naI00\naNaVit's \xe9\\u005c ok\np5\nasVt\np6\n(I1\nI2\ntp7\ns.";
        let one =
            b"}q\x00(X\x07\x00\x00\x00versionq\x01X\x03\x00\x00\x002.5q\x02X\x01\x00\x00\x00a\
            q\x03]q\x04(K\x01J\xfe\xff\xff\xffL70000000000L\nG?\xf8\x00\x00\x00\x00\x00\x00I01\n\
            I00\nNX\x0b\
            \x00\x00\x00it's \xc3\xa9\\ okq\x05eX\x01\x00\x00\x00tq\x06(K\x01K\x02tq\x07u.";
        let list = json!([1, -2, 70_000_000_000_u64, 1.5, true, false, null, "it's é\\ ok"]);
        let wanted = json!({"version": "2.5", "a": list, "t": [1, 2]});
        for bytes in [&zero[..], &one[..]] {
            assert!(is_pickle(bytes));
            assert_eq!(value(bytes).as_ref(), Ok(&wanted));
            assert!((0..bytes.len()).all(|end| value(&bytes[..end]).is_err()));
        }
        assert_eq!(value(b"S'a\\x41\\''\n."), Ok(json!("aA'")));
        assert!(value(b"I1x\n.").is_err() && value(b"g5\n.").is_err());
    }

    #[test]
    fn nothing_is_imported_or_called() {
        let evil = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.";
        let (at, reason) = value(evil).expect_err("it imports");
        assert_eq!((at, reason.as_str()), (13, "wants to import os.system, which is not done"));
        let typed = b"\x80\x02ctorch.jit._pickle\nbuild_intlist\n](K\x03K\x04e\x85R.";
        assert_eq!(value(typed), Ok(json!([3, 4])));
    }

    #[test]
    fn references_do_not_unfold_without_end() {
        // A list that holds itself, and one that doubles forty times.
        assert!(value(b"\x80\x02]q\x00h\x00a.").is_err());
        let mut bytes = b"\x80\x02]q\x00".to_vec();
        for index in 0..40_u8 {
            bytes.extend([b'(', b'h', index, b'h', index, b'l', b'q', index + 1]);
        }
        bytes.push(b'.');
        let (_, reason) = value(&bytes).expect_err("it is too large");
        assert_eq!(reason, "unfolds to too many values");
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = value(&bytes);
        }

        #[test]
        fn a_pickle_that_ends_early_says_so(length in 0..FOUR.len()) {
            prop_assert!(value(&FOUR[..length]).is_err());
        }
    }
}
