//! What a rank is told: its queue pairs, messages, and what must come out.
//!
//! A plan is one line of JSON on the standard input of the rank's process.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use packetsim::cc::CcConfig;
use serde::{Deserialize, Serialize};

/// How packets leave a rank.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WirePlan {
    /// By UDP sockets of its own address.
    Udp,
    /// As whole IP packets in datagrams of the local switch with this abstract name.
    Switch(String),
}

/// One queue pair of a rank, connected to one of another rank.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PairPlan {
    /// Its number in the whole run.
    pub id: u32,
    /// Its number at this end.
    pub local: u32,
    /// Its number at the other end.
    pub remote: u32,
    /// The rank at the other end.
    pub peer: u32,
    /// Its address.
    pub address: Ipv4Addr,
    /// UDP source port, the same in both directions.
    pub src_port: u16,
    /// Whether this end sends data on it.
    pub sends: bool,
    /// Whether it stays inside a server: then it is not counted.
    pub inside: bool,
    /// Messages that will arrive on it.
    pub arrivals: u32,
}

/// A part of a message, on one queue pair.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Part {
    /// Which of the rank's queue pairs.
    pub pair: u32,
    /// Where in the message it begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u32,
}

/// What a message waits for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum After {
    /// Another message arrived here, and was added where it is to be.
    Arrived(u32),
    /// The sender, this rank, knows that its message has arrived.
    Known(u32),
}

/// A message that the rank sends.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SendPlan {
    /// The operation's number.
    pub op: u32,
    /// What it waits for.
    pub after: Vec<After>,
    /// From which region.
    pub key: u32,
    /// From where.
    pub address: u64,
    /// Into which region of the receiver.
    pub remote_key: u32,
    /// To where.
    pub remote_address: u64,
    /// Its parts.
    pub parts: Vec<Part>,
}

/// A message that the rank receives.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReceivePlan {
    /// The operation's number.
    pub op: u32,
    /// In so many parts.
    pub parts: u32,
    /// Where it is.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Whether it is added to what is there, from the staging region.
    pub adds: bool,
}

/// What must be somewhere in the end.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Check {
    /// Where.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The rank whose bytes it is, and where they were; none is the sum over all ranks.
    pub from: Option<(u32, u64)>,
}

/// Everything a rank is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RankPlan {
    /// Its number.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// Its address.
    pub address: Ipv4Addr,
    /// How packets leave.
    pub wire: WirePlan,
    /// Payload of a full packet.
    pub mtu: u32,
    /// Packets of a queue pair that may be unacknowledged.
    pub window: u64,
    /// Retransmission timeout in milliseconds.
    pub timeout_ms: u64,
    /// Only what is missing is sent again.
    pub selective: bool,
    /// The congestion control.
    pub control: CcConfig,
    /// The rate of the rank's link.
    pub line_bps: u64,
    /// Base round trip in microseconds.
    pub base_rtt_us: u64,
    /// Links from one rank to another.
    pub hops: u32,
    /// DSCP of packets with data.
    pub dscp: u8,
    /// Bytes of each region.
    pub bytes: u64,
    /// The queue pairs.
    pub pairs: Vec<PairPlan>,
    /// Messages out.
    pub sends: Vec<SendPlan>,
    /// Messages in.
    pub receives: Vec<ReceivePlan>,
    /// What must come out.
    pub checks: Vec<Check>,
    /// Where the rank's packets are captured.
    pub pcap: Option<PathBuf>,
    /// The rank ends by itself after so many milliseconds.
    pub most_ms: u64,
}

/// What a rank tells.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// Its sockets are open.
    Ready,
    /// It has everything and everything it sent was acknowledged.
    Done(Box<RankResult>),
    /// The answer to a question.
    Text(String),
    /// It could not go on.
    Failed(String),
}

/// What a rank counted.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RankResult {
    /// Its number.
    pub rank: u32,
    /// From the word to begin until it had everything, in microseconds.
    pub time_us: u64,
    /// Bytes that are not what they should be.
    pub wrong: u64,
    /// What its queue pairs counted.
    pub pairs: Vec<PairResult>,
    /// Packets received whose ICRC was wrong.
    pub icrc_wrong: u64,
    /// Packets received that were none.
    pub malformed: u64,
    /// Packets for a queue pair that it has not.
    pub strangers: u64,
    /// Packets of any kind that it sent and received on the network.
    pub packets: [u64; 2],
    /// When each of its messages had arrived, in microseconds: operation and time.
    pub arrived_us: Vec<(u32, u64)>,
}

/// What a queue pair counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PairResult {
    /// Its number in the whole run.
    pub id: u32,
    /// Requests sent, first transmissions and others.
    pub sent: u64,
    /// Those of them that were sent before.
    pub retransmitted: u64,
    /// Payload sent for the first time.
    pub bytes: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Negative ones.
    pub naks: u64,
    /// Receiver not ready.
    pub not_ready: u64,
    /// Congestion notifications sent.
    pub cnps: u64,
    /// Congestion notifications received.
    pub notified: u64,
    /// Packets that arrived marked.
    pub marked: u64,
    /// Packets that arrived again.
    pub duplicates: u64,
    /// Packets that arrived early.
    pub early: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// The control's rate in the end.
    pub rate_bps: u64,
}
