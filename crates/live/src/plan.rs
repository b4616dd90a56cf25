//! What a rank is told: its queue pairs, messages, and what must come out.
//!
//! A plan is one line of JSON on the standard input of the rank's process.

use std::net::IpAddr;
use std::path::PathBuf;

use packetsim::admission::AdmissionConfig;
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
    pub address: IpAddr,
    /// UDP source port, the same in both directions.
    pub src_port: u16,
    /// Whether this end sends data on it.
    pub sends: bool,
    /// Whether it stays inside a server: then it is not counted.
    pub inside: bool,
    /// Messages that will arrive on it.
    pub arrivals: u32,
    /// Packets with data that will cross it.
    pub packets: u32,
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
    /// Where in the staging region it comes first, if it is to be added to what is there.
    pub adds: Option<u64>,
}

/// A part that the receiver reads from the sender's memory.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReadPart {
    /// The operation's number.
    pub op: u32,
    /// Which of the rank's queue pairs.
    pub pair: u32,
    /// The sender's region and place.
    pub from: (u32, u64),
    /// The region and place here.
    pub to: (u32, u64),
    /// Its bytes.
    pub bytes: u32,
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
    pub address: IpAddr,
    /// How packets leave.
    pub wire: WirePlan,
    /// Whether the kernel cuts and joins packets: by UDP over IPv6 alone.
    pub offload: bool,
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
    /// Who decides when data may leave.
    pub admission: AdmissionConfig,
    /// Whether receivers read instead of being written to.
    pub reads: bool,
    /// Bytes of each region.
    pub bytes: u64,
    /// Bytes of the staging region.
    pub staging: u64,
    /// Queue pairs of the whole run.
    pub all_pairs: u32,
    /// The queue pairs.
    pub pairs: Vec<PairPlan>,
    /// Messages out.
    pub sends: Vec<SendPlan>,
    /// Messages in.
    pub receives: Vec<ReceivePlan>,
    /// Parts that this rank reads, if receivers read.
    pub read_parts: Vec<ReadPart>,
    /// What must come out.
    pub checks: Vec<Check>,
    /// Where the rank's packets are captured.
    pub pcap: Option<PathBuf>,
    /// Where everything is written that congestion controls were told and said.
    pub record: Option<PathBuf>,
    /// The rank ends by itself after so many milliseconds.
    pub most_ms: u64,
}

/// What a process is to do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// To be a rank of a run.
    Run(Box<RankPlan>),
    /// To probe the fabric.
    Probe(ProbePlan),
}

/// A packet that traces a path.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Probe {
    /// UDP source port.
    pub src_port: u16,
    /// A queue pair number that nobody uses.
    pub dst_qpn: u32,
    /// Time to live.
    pub ttl: u8,
    /// DSCP and ECN.
    pub class: u8,
    /// Its payload.
    pub payload: u16,
}

/// What a probing process is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ProbePlan {
    /// Its number in the run.
    pub rank: u32,
    /// Its address.
    pub address: IpAddr,
    /// Where probes go.
    pub to: IpAddr,
    /// How packets leave.
    pub wire: WirePlan,
    /// Probes that leave together, one after the other.
    pub rounds: Vec<Vec<Probe>>,
    /// Rounds that leave without a pause at first.
    pub burst: u32,
    /// From one round to the next after that, or as long as twice its bytes take on the link.
    pub gap_us: u64,
    /// The rate of that.
    pub line_bps: u64,
    /// How long answers are waited for in the end.
    pub wait_ms: u64,
}

impl ProbePlan {
    /// How long to wait after a round.
    pub fn pause_us(&self, round: usize) -> u64 {
        let bytes: u64 = self.rounds[round].iter().map(|one| u64::from(one.payload) + 64).sum();
        let takes = 16_000_000 * bytes / self.line_bps.max(1);
        let first = round + 1 < self.burst as usize;
        if first { takes } else { takes.max(self.gap_us) }
    }

    /// How long all rounds take.
    pub fn takes_ms(&self) -> u64 {
        let pauses = (0..self.rounds.len()).map(|round| self.pause_us(round));
        pauses.fold(0_u64, u64::saturating_add) / 1000
    }
}

/// What came back for a probe.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Traced {
    /// Which round, and which probe of it.
    pub probe: [u32; 2],
    /// Who answered.
    pub from: IpAddr,
    /// Whether the probe had come to its destination.
    pub is_end: bool,
    /// DSCP and ECN as the packet had them there.
    pub class: u8,
    /// Whether they were seen there; routers' answers to sockets do not show them.
    pub is_seen: bool,
}

/// What a rank tells.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankMessage {
    /// Its sockets are open.
    Ready,
    /// It has everything and everything it sent was acknowledged.
    Done(Box<RankResult>),
    /// The answers to all probes.
    Traced(Vec<Traced>),
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
    /// When each of its messages was posted, in nanoseconds: operation and time.
    pub posted_ns: Vec<(u32, u64)>,
    /// When each of its messages had arrived.
    pub arrived_ns: Vec<(u32, u64)>,
    /// When the rank knew that a message of its own had arrived.
    pub known_ns: Vec<(u32, u64)>,
    /// Times that a pause frame stopped it.
    pub paused: u64,
}

/// What a queue pair counted.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PairResult {
    /// Its number in the whole run.
    pub id: u32,
    /// Whether this end sends the data.
    pub sends: bool,
    /// At a receiver: packets that had arrived in order, every 100 ms.
    pub arrived: Vec<u64>,
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
