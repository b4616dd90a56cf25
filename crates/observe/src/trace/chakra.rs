//! Chakra execution traces: lengths and messages of Protocol Buffers, one file for each rank.
//!
//! The first message is about the file, the others are nodes. Nodes of the CPU repeat what nodes of
//! the GPU say and have no kind of collective; custom collectives put the type of the node there.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use crate::observed::{
    CalledByRank as CollectiveTimes, CollectiveKey, Does, InGroup, Kind, RankWork, WorkNode,
};

/// Such a file.
pub const FORMAT: Format =
    Format { name: "Chakra execution trace", unit: "nodes", recognises, read };

/// Groups of ranks beside such traces: `{"1": [0, 1], …}`.
pub const GROUPS: Format = Format {
    name: "groups of ranks",
    unit: "groups",
    recognises: |input| begins_groups(input.head()),
    read: read_groups,
};

/// A message that claims to be longer is damage.
const LONGEST: u64 = 64 << 20;
/// So many nodes of all files are kept, to be run again.
const MAX_NODES: usize = 4 << 20;
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
            // `0.0.4`, and what converters write: `1.0.2-chakra.0.0.4`.
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+_".contains(byte);
            version.first().is_some_and(u8::is_ascii_digit)
                && version.contains(&b'.')
                && version.iter().all(is_part)
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

/// What a node says.
#[derive(Default)]
struct Node {
    id: u64,
    after: Vec<u64>,
    start_us: u64,
    kind: u64,
    is_cpu: bool,
    collective: Option<u64>,
    bytes: u64,
    us: u64,
    group: String,
    /// Sender, receiver and tag of a message.
    ends: [u64; 3],
}

impl Node {
    /// Which collective it is; none for those of the CPU that repeat one of the GPU.
    fn collective(&self) -> Option<Kind> {
        let number = self.collective.filter(|_| self.kind == COLLECTIVE)?;
        let kind = usize::try_from(number).ok().and_then(|n| KINDS.get(n)).copied();
        kind.filter(|_| !(self.is_cpu && self.bytes == 0))
    }

    /// What it is to do when the trace is run again.
    fn work(&self) -> WorkNode {
        let us = self.us as f64;
        let [from, to, tag] = self.ends;
        let rank = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let does = match (self.kind, self.collective()) {
            (_, Some(kind)) => {
                Does::Collective { kind, bytes: self.bytes, group: self.group.clone(), us }
            }
            (SEND | RECEIVE, _) => Does::Message {
                from: rank(from),
                to: rank(to),
                tag,
                bytes: self.bytes,
                is_send: self.kind == SEND,
            },
            _ => Does::Compute { us, on_host: self.is_cpu },
        };
        WorkNode { id: self.id, after: self.after.clone(), start_us: self.start_us, does }
    }
}

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut message = Vec::new();
    let mut number = 0;
    let mut found = CollectiveTimes::new();
    let mut in_groups: BTreeMap<(String, [u64; 2]), InGroup> = BTreeMap::new();
    let kept: usize = reading.observed.workloads.iter().map(|work| work.nodes.len()).sum();
    let file = reading.source.file.clone();
    let mut work = RankWork { rank: rank_of(&file), file, ..RankWork::default() };
    let result = loop {
        let length = match next_length(input) {
            Ok(Some(length)) => length,
            Ok(None) => break Ok(()),
            Err(trouble) => break Err(trouble),
        };
        if LONGEST < length {
            let reason = format!("message {number} claims {length} bytes: damaged");
            break Err(ReadError::new(reason));
        }
        message.clear();
        if let Err(error) = input.by_ref().take(length).read_to_end(&mut message) {
            break Err(error.into());
        }
        if (message.len() as u64) < length {
            break Err(ReadError::new(format!("ends in the middle of message {number}")));
        }
        if 0 < number {
            reading.source.read += 1;
            let node = node(&message);
            add(&node, &mut found);
            in_group(&node, &mut in_groups);
            match kept + work.nodes.len() < MAX_NODES {
                true => work.nodes.push(node.work()),
                false => work.left_out += 1,
            }
        }
        number += 1;
    };
    reading.observed.collectives.add_ranks(found);
    reading.observed.workloads.push(work);
    let whose = (reading.observed.sources.len(), 0);
    let own = in_groups.into_values().map(|own| InGroup { whose, ..own });
    reading.observed.in_groups.extend(own);
    result
}

/// The rank that a file's name says: `all_reduce.3.et`.
fn rank_of(file: &str) -> Option<u32> {
    let name = file.rsplit(['/', '!']).next().unwrap_or(file);
    let mut parts = name.split('.').rev().skip_while(|part| part.parse::<u32>().is_err());
    parts.next().and_then(|part| part.parse().ok())
}

/// Whether a text begins as a list of groups does: `{"1": [`.
fn begins_groups(head: &[u8]) -> bool {
    let plain: Vec<u8> =
        head.iter().copied().filter(|b| !b.is_ascii_whitespace()).take(64).collect();
    let digits = plain.iter().skip(2).take_while(|byte| byte.is_ascii_digit()).count();
    let behind = plain.get(2 + digits..).unwrap_or_default();
    0 < digits
        && plain.starts_with(b"{\"")
        && behind.starts_with(b"\":[")
        && behind.get(3).is_some_and(u8::is_ascii_digit)
}

fn read_groups(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let bytes = crate::records::whole(input)?;
    let groups: BTreeMap<String, Vec<u32>> = serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::at(error.line() as u64, error.to_string()))?;
    reading.source.read += groups.len() as u64;
    reading.observed.groups.extend(groups);
    Ok(())
}

fn next_length(input: &mut Input<'_>) -> Result<Option<u64>, ReadError> {
    let mut length = 0;
    for shift in (0..64).step_by(7) {
        let Some(byte) = input.fill_buf()?.first().copied() else {
            return match shift {
                0 => Ok(None),
                _ => Err(ReadError::new("ends in the middle of a length")),
            };
        };
        input.consume(1);
        length |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(Some(length));
        }
    }
    Err(ReadError::new("a length has more than 64 bits: damaged"))
}

fn node(message: &[u8]) -> Node {
    let mut node = Node::default();
    for (field, value) in Fields(message) {
        match (field, value) {
            (1, Field::Number(id)) => node.id = id,
            (3, Field::Number(kind)) => node.kind = kind,
            // Field 4 names the caller, which waits for this one: ASTRA-sim leaves it out too.
            (5, Field::Number(id)) => node.after.push(id),
            (5, Field::Bytes(mut packed)) => {
                while let Some(id) = varint(&mut packed) {
                    node.after.push(id);
                }
            }
            (6, Field::Number(us)) => node.start_us = us,
            (7, Field::Number(us)) => node.us = us,
            (10, Field::Bytes(attribute)) => attribute_of(attribute, &mut node),
            _ => {}
        }
    }
    node
}

fn attribute_of(bytes: &[u8], node: &mut Node) {
    let (mut name, mut value, mut text) = (&b""[..], None, None);
    for (field, found) in Fields(bytes) {
        match (field, found) {
            (1, Field::Bytes(text)) => name = text,
            // Signed numbers of the `sint` kinds are folded: the lowest bit is the sign.
            (15 | 17, Field::Number(number)) => value = Some(number >> 1),
            (_, Field::Number(number)) => value = Some(number),
            (29, Field::Bytes(words)) => text = Some(words),
            _ => {}
        }
    }
    match (name, value) {
        (b"pg_name", _) => {
            let text = text.map(|text| String::from_utf8_lossy(text).into_owned());
            node.group = text.or(value.map(|number| number.to_string())).unwrap_or_default();
        }
        (b"comm_src", Some(value)) => node.ends[0] = value,
        (b"comm_dst", Some(value)) => node.ends[1] = value,
        (b"comm_tag", Some(value)) => node.ends[2] = value,
        (b"is_cpu_op", Some(value)) => node.is_cpu = value != 0,
        (b"comm_type", Some(value)) => node.collective = Some(value),
        (b"comm_size", Some(value)) => node.bytes = value,
        _ => {}
    }
}

/// Adds what a node sends to its group: that of a message is its two ends.
fn in_group(node: &Node, groups: &mut BTreeMap<(String, [u64; 2]), InGroup>) {
    let [from, to, _] = node.ends;
    let (kind, ends) = match (node.collective(), node.kind) {
        (Some(kind), _) => (kind, [0, 0]),
        (None, SEND) => (Kind::SendRecv, [from.min(to), from.max(to)]),
        (None, _) => return,
    };
    let own = groups.entry((node.group.clone(), ends)).or_insert_with(|| InGroup {
        name: node.group.clone(),
        puts_in: true,
        ..InGroup::default()
    });
    if kind == Kind::SendRecv && from != to {
        own.members = ends.iter().filter_map(|end| u32::try_from(*end).ok()).collect();
        own.size = 2;
    }
    own.add(kind, 1, node.bytes);
}

fn add(node: &Node, found: &mut CollectiveTimes) {
    // Of a message the end that sends counts.
    let message = (node.kind == SEND).then_some(Kind::SendRecv);
    let Some(kind) = node.collective().or(message) else { return };
    let (bytes, from) = (node.bytes, "Chakra".to_owned());
    let key = CollectiveKey { kind, bytes, ranks: 0, from };
    let (count, times) = found.entry(key).or_default();
    *count += 1;
    times.extend((0 < node.us).then_some(node.us as f64));
}
