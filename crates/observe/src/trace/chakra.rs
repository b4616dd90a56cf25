//! Chakra execution traces: lengths and messages of Protocol Buffers, one file for each rank.
//!
//! The first message is about the file, the others are nodes. Nodes of the CPU repeat what nodes of
//! the GPU say and have no kind of collective; custom collectives put the type of the node there.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use crate::format::{Format, Reading};
use crate::input::{Input, Trouble};
use crate::observed::{CollectiveKey, Kind};

/// Such a file.
pub const FORMAT: Format =
    Format { name: "Chakra execution trace", unit: "nodes", recognises, read };

/// A message that claims to be longer is damage.
const LONGEST: u64 = 64 << 20;
const SEND: u64 = 5;
const RECEIVE: u64 = 6;
const COLLECTIVE: u64 = 7;

/// Kinds by their number.
const KINDS: [Kind; 10] = [
    Kind::AllReduce,
    Kind::Reduce,
    Kind::AllGather,
    Kind::Gather,
    Kind::Scatter,
    Kind::Broadcast,
    Kind::AllToAll,
    Kind::ReduceScatter,
    Kind::ReduceScatter,
    Kind::Barrier,
];

/// The first message: a version, and perhaps attributes.
fn recognises(input: &Input<'_>) -> bool {
    let head = input.head();
    let mut rest = head;
    let Some(length) = varint(&mut rest) else { return false };
    if !(3..LONGEST).contains(&length) {
        return false;
    }
    let end = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
    let mut fields = Fields(&rest[..end]);
    match fields.next() {
        Some((1, Field::Bytes(version))) => {
            let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
            !version.is_empty() && version.iter().all(is_version)
        }
        Some((2, Field::Bytes(attribute))) => {
            let mut inside = Fields(attribute);
            matches!(inside.next(), Some((1, Field::Bytes(b"schema"))))
        }
        _ => false,
    }
}

/// Takes a number of seven bits a byte from the front.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A field's value.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// The fields of a message, in order; ends where they make no sense.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = varint(&mut self.0)?;
        let mut take = |length: usize| {
            let (first, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            Some(first)
        };
        let field = match key & 7 {
            0 => Field::Number(varint(&mut self.0)?),
            1 => take(8).map(|_| Field::Other)?,
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                let (first, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Field::Bytes(first)
            }
            5 => take(4).map(|_| Field::Other)?,
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

/// What a node says of a collective.
#[derive(Default)]
struct Node {
    kind: u64,
    is_cpu: bool,
    collective: Option<u64>,
    bytes: u64,
    us: u64,
}

/// Collectives of the file: how often, and times where there are any.
type Found = BTreeMap<CollectiveKey, (u64, Vec<f64>)>;

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), Trouble> {
    let mut message = Vec::new();
    let mut number = 0;
    let mut found = Found::new();
    let result = loop {
        let length = match next_length(input) {
            Ok(Some(length)) => length,
            Ok(None) => break Ok(()),
            Err(trouble) => break Err(trouble),
        };
        if LONGEST < length {
            let reason = format!("message {number} claims {length} bytes: damaged");
            break Err(Trouble::new(reason));
        }
        message.clear();
        if let Err(error) = input.by_ref().take(length).read_to_end(&mut message) {
            break Err(error.into());
        }
        if (message.len() as u64) < length {
            break Err(Trouble::new(format!("ends in the middle of message {number}")));
        }
        if 0 < number {
            reading.source.read += 1;
            add(&node(&message), &mut found);
        }
        number += 1;
    };
    for (key, (count, times)) in found {
        reading.observed.collectives.add_rank(key, count, &times);
    }
    result
}

fn next_length(input: &mut Input<'_>) -> Result<Option<u64>, Trouble> {
    let mut length = 0;
    for shift in (0..64).step_by(7) {
        let Some(byte) = input.fill_buf()?.first().copied() else {
            return match shift {
                0 => Ok(None),
                _ => Err(Trouble::new("ends in the middle of a length")),
            };
        };
        input.consume(1);
        length |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(Some(length));
        }
    }
    Err(Trouble::new("a length has more than 64 bits: damaged"))
}

fn node(message: &[u8]) -> Node {
    let mut node = Node::default();
    for (field, value) in Fields(message) {
        match (field, value) {
            (3, Field::Number(kind)) => node.kind = kind,
            (7, Field::Number(us)) => node.us = us,
            (10, Field::Bytes(attribute)) => attribute_of(attribute, &mut node),
            _ => {}
        }
    }
    node
}

fn attribute_of(bytes: &[u8], node: &mut Node) {
    let (mut name, mut value) = (&b""[..], None);
    for (field, found) in Fields(bytes) {
        match (field, found) {
            (1, Field::Bytes(text)) => name = text,
            // Signed numbers of the `sint` kinds are folded: the lowest bit is the sign.
            (15 | 17, Field::Number(number)) => value = Some(number >> 1),
            (_, Field::Number(number)) => value = Some(number),
            _ => {}
        }
    }
    match (name, value) {
        (b"is_cpu_op", Some(value)) => node.is_cpu = value != 0,
        (b"comm_type", Some(value)) => node.collective = Some(value),
        (b"comm_size", Some(value)) => node.bytes = value,
        _ => {}
    }
}

fn add(node: &Node, found: &mut Found) {
    let kind = match (node.kind, node.collective) {
        (COLLECTIVE, Some(number)) => usize::try_from(number).ok().and_then(|n| KINDS.get(n)),
        (SEND, _) => Some(&Kind::SendRecv),
        // Its other end sends it.
        (RECEIVE, _) => None,
        _ => None,
    };
    let Some(kind) = kind.filter(|_| !(node.is_cpu && node.kind == COLLECTIVE && node.bytes == 0))
    else {
        return;
    };
    let (bytes, from) = (node.bytes, "Chakra".to_owned());
    let key = CollectiveKey { kind: *kind, bytes, ranks: 0, from };
    let (count, times) = found.entry(key).or_default();
    *count += 1;
    times.extend((0 < node.us).then_some(node.us as f64));
}
