//! Chakra execution traces: one file for each rank, a graph of computations and communications.
//!
//! A file is a sequence of messages, each behind its length as a varint: first [`GlobalMetadata`],
//! then [`Node`]s until the end. ASTRA-sim and other simulators replay them with MLCommons' feeder,
//! which reads the attributes below by name. Groups of ranks are named by a number in `pg_name`; a
//! JSON file beside the traces says who is in each ([`groups_json`]).
//!
//! Source: MLCommons Chakra `schema/protobuf/et_def.proto` for the fields and their numbers,
//! `src/feeder` for the attributes that are read; ASTRA-sim `Workload.cc` for the groups (names are
//! whole numbers from 1 on). Only those messages and fields that are written are declared here.

use std::io::{self, Write};

use prost::Message;

/// The first message of a file.
#[derive(Clone, PartialEq, Message)]
pub struct GlobalMetadata {
    /// Of the schema.
    #[prost(string, tag = "1")]
    pub version: String,
    /// What to know about the trace.
    #[prost(message, repeated, tag = "2")]
    pub attr: Vec<Attribute>,
}

/// One operation of a rank.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Unique in its file.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// In words.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What it is.
    #[prost(enumeration = "NodeType", tag = "3")]
    pub kind: i32,
    /// Nodes that must have been issued before: order without data.
    #[prost(uint64, repeated, tag = "4")]
    pub ctrl_deps: Vec<u64>,
    /// Nodes that must have ended before.
    #[prost(uint64, repeated, tag = "5")]
    pub data_deps: Vec<u64>,
    /// How long it takes; computations only.
    #[prost(uint64, tag = "7")]
    pub duration_micros: u64,
    /// What kind of computation or communication, and how much.
    #[prost(message, repeated, tag = "10")]
    pub attr: Vec<Attribute>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NodeType {
    /// Nothing.
    Invalid = 0,
    /// A computation.
    Comp = 4,
    /// A message to another rank.
    CommSend = 5,
    /// A message from another rank.
    CommRecv = 6,
    /// A collective.
    CommColl = 7,
}

/// Which collective a node is; the value of `comm_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveType {
    /// Sums for everybody.
    AllReduce = 0,
    /// Parts for everybody.
    AllGather = 2,
    /// From everybody to everybody.
    AllToAll = 6,
    /// A part of the sum for each.
    ReduceScatter = 7,
}

/// A value with a name.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value.
    #[prost(oneof = "Value", tags = "7, 9, 13, 27, 29")]
    pub value: Option<Value>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// A 32-bit integer.
    #[prost(int32, tag = "7")]
    Int32(i32),
    /// A 64-bit integer.
    #[prost(int64, tag = "9")]
    Int64(i64),
    /// A 64-bit integer without sign.
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    /// Yes or no.
    #[prost(bool, tag = "27")]
    Bool(bool),
    /// Text.
    #[prost(string, tag = "29")]
    Text(String),
}

/// The schema that the files follow, as MLCommons' converters write it.
pub const VERSION: &str = "1.0.2-chakra.0.0.4";

fn attribute(name: &str, value: Value) -> Attribute {
    Attribute { name: name.to_owned(), value: Some(value) }
}

fn signed(name: &str, value: u64) -> Attribute {
    attribute(name, Value::Int64(i64::try_from(value).unwrap_or(i64::MAX)))
}

impl Node {
    fn new(id: u64, name: &str, kind: NodeType, mut attr: Vec<Attribute>) -> Self {
        attr.insert(0, attribute("is_cpu_op", Value::Bool(false)));
        Self { id, name: name.to_owned(), kind: kind as i32, attr, ..Self::default() }
    }

    /// A computation of so many operations on so many bytes.
    pub fn computation(id: u64, name: &str, micros: u64, flops: u64, bytes: u64) -> Self {
        let attr = vec![signed("num_ops", flops), attribute("tensor_size", Value::Uint64(bytes))];
        Self { duration_micros: micros, ..Self::new(id, name, NodeType::Comp, attr) }
    }

    /// A collective of a group; `bytes` is what one rank puts in, as PyTorch counts it.
    pub fn collective(id: u64, name: &str, kind: CollectiveType, bytes: u64, group: u64) -> Self {
        let attr = vec![
            signed("comm_type", kind as u64),
            signed("comm_size", bytes),
            // The feeder leaves it to chance if it is not there.
            attribute("comm_priority", Value::Int32(0)),
            attribute("pg_name", Value::Text(group.to_string())),
        ];
        Self::new(id, name, NodeType::CommColl, attr)
    }

    /// A message to another rank, or from it. The tag tells messages between the same two apart.
    pub fn message(id: u64, name: &str, message: &PeerMessage) -> Self {
        let PeerMessage { from, to, bytes, tag, end } = *message;
        let kind = match end {
            End::Sender => NodeType::CommSend,
            End::Receiver => NodeType::CommRecv,
        };
        let rank = |name, rank: u64| {
            attribute(name, Value::Int32(i32::try_from(rank).expect("ranks fit 31 bits")))
        };
        let attr = vec![
            signed("comm_size", bytes),
            rank("comm_src", from),
            rank("comm_dst", to),
            rank("comm_tag", tag),
        ];
        Self::new(id, name, kind, attr)
    }
}

/// A message between two ranks, seen from one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// Who sends.
    pub from: u64,
    /// Who receives.
    pub to: u64,
    /// How much.
    pub bytes: u64,
    /// Which of the messages between the two.
    pub tag: u64,
    /// Whose node this is.
    pub end: End,
}

/// An end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where it begins.
    Sender,
    /// Where it ends.
    Receiver,
}

/// Writes the file of one rank.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, buffer: Vec::new() };
        writer.message(&GlobalMetadata { version: VERSION.to_owned(), attr: Vec::new() })?;
        Ok(writer)
    }

    /// Adds a node. What it depends on must have been added before.
    pub fn node(&mut self, node: &Node) -> io::Result<()> {
        self.message(node)
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn message(&mut self, message: &impl Message) -> io::Result<()> {
        self.buffer.clear();
        message.encode_length_delimited(&mut self.buffer).expect("a vector grows");
        self.out.write_all(&self.buffer)
    }
}

/// Who is in each group: `{"1": [0, 1], …}`, as ASTRA-sim's `--comm-group-configuration` reads it.
pub fn groups_json(groups: &[(u64, Vec<u64>)], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"{")?;
    for (place, (name, ranks)) in groups.iter().enumerate() {
        let ranks: Vec<String> = ranks.iter().map(u64::to_string).collect();
        let comma = if place == 0 { "" } else { "," };
        write!(out, "{comma}\n  \"{name}\": [{}]", ranks.join(", "))?;
    }
    out.write_all(b"\n}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: the bytes of a node written out by hand from the schema's field numbers.
    #[test]
    fn a_node_is_the_bytes_that_the_schema_says() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        let mut node = Node::collective(300, "sum", CollectiveType::ReduceScatter, 5, 12);
        node.data_deps = vec![1, 299];
        writer.node(&node).unwrap();
        writer.finish().unwrap();
        let mut expected = vec![20, 0x0a, 18];
        expected.extend(b"1.0.2-chakra.0.0.4");
        let mut body = vec![0x08, 0xac, 0x02, 0x12, 3];
        body.extend(b"sum");
        body.extend([0x18, 7]);
        body.extend([0x2a, 3, 1, 0xab, 0x02]);
        let mut attribute = |name: &[u8], value: &[u8]| {
            body.extend([0x52, (2 + name.len() + value.len()) as u8, 0x0a, name.len() as u8]);
            body.extend(name);
            body.extend(value);
        };
        attribute(b"is_cpu_op", &[0xd8, 0x01, 0]);
        attribute(b"comm_type", &[0x48, 7]);
        attribute(b"comm_size", &[0x48, 5]);
        attribute(b"comm_priority", &[0x38, 0]);
        attribute(b"pg_name", &[0xea, 0x01, 2, b'1', b'2']);
        expected.push(body.len() as u8);
        expected.extend(body);
        assert_eq!(file, expected);
    }

    #[test]
    fn groups_are_json() {
        let mut text = Vec::new();
        groups_json(&[(1, vec![0, 1]), (2, vec![2, 3])], &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "{\n  \"1\": [0, 1],\n  \"2\": [2, 3]\n}\n");
    }
}
