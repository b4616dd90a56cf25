//! Every number that the engine keeps in fewer bits than it might need, with the largest value of
//! each.
//!
//! Small records are what makes the engine fast, so numbers are packed. None is cut: a run that
//! would need a larger one is refused before it begins ([`Refusal`]). The code that packs a number
//! takes its bits from here. What only a run can tell (how long its lists grow) is checked where it
//! grows, in release builds too.

use fabric::routing::{QueuePairUse, RoutingConfig};
use fabric::{Fabric, LinkId, NodeKind};
use traffic::{Op, OpKind, Transfers};
use units::{Bytes, Id, IdVec, OutOfRange, Ranges, Span, Time};

use crate::cc::Circumstances;
use crate::packet::Sizes;
use crate::paths::Network;
use crate::planes::spreads;
use crate::port::{NOWHERE, Port};
use crate::settings::Settings;
use crate::simulation::{Progress, Simulation};

/// Bits of the number of a link, queue pair, operation or node in an event; the rest is its kind.
pub(crate) const ID_BITS: u32 = 28;

/// Packets on their way to a switch are sorted as one number: the time until they arrive, then the
/// place of their link among the switch's inputs.
pub(crate) const INPUT_BITS: u32 = 24;
const AHEAD_BITS: u32 = u64::BITS - INPUT_BITS;

/// Word of freed blocks is one number: when it comes, then how many they are.
pub(crate) const BLOCK_COUNT_BITS: u32 = 12;

/// Stamps that a packet can carry.
pub(crate) const STAMPS: usize = 12;

/// The most that waits for one link, in bytes. What comes on top is dropped, and a finding says so.
pub(crate) const QUEUE_BYTES: u32 = u32::MAX;

/// The most that one input port may use of a switch's shared memory, in bytes.
pub(crate) const PORT_BYTES: u64 = QUEUE_BYTES as u64 / 2;

/// The age of a packet is known up to twice this, in picoseconds; older ones are reported.
pub(crate) const AGE: u64 = (1 << 31) * 1_000;

/// A number and the largest value that the engine has room for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// What is counted or measured.
    pub what: &'static str,
    /// The largest value.
    pub most: u64,
    /// What the value is.
    pub unit: Unit,
    /// What to do about a larger one.
    pub instead: &'static str,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Picoseconds.
    Time,
}

const FLOW: &str = "--engine flow has no such limit";

const fn count(what: &'static str, most: u64) -> Limit {
    Limit { what, most, unit: Unit::Count, instead: FLOW }
}

/// Links, queue pairs, operations and nodes: their numbers stand in events.
pub const LINKS: Limit = count("directed links", 1 << ID_BITS);
/// See [`LINKS`].
pub const PAIRS: Limit = count("queue pairs", 1 << ID_BITS);
/// See [`LINKS`].
pub const OPERATIONS: Limit = count("operations", 1 << ID_BITS);
/// See [`LINKS`].
pub const NODES: Limit = count("nodes", 1 << ID_BITS);
/// Links that lead to one switch.
pub const INPUTS: Limit = count("ports of one switch", 1 << INPUT_BITS);
/// Parts of operations, one for each queue pair that carries some of it.
pub const MESSAGES: Limit = count("messages on queue pairs", NOWHERE as u64);
/// Sequence numbers of a queue pair; the largest of 32 bits stands for "all of them".
pub const PACKETS: Limit = count("packets of one queue pair", u32::MAX as u64 - 1);
/// Places in the list of all paths.
pub const PATHS: Limit = count("links of all paths together", NOWHERE as u64);
/// Switches that stamp a packet.
pub const STAMPED_HOPS: Limit = Limit {
    what: "switches on a path whose packets are stamped",
    most: STAMPS as u64,
    unit: Unit::Count,
    instead: "choose a congestion control that needs no stamps, or --engine flow",
};
/// A packet in a buffer.
pub const PACKET_BYTES: Limit = Limit {
    what: "a packet with its headers",
    most: u16::MAX as u64,
    unit: Unit::Bytes,
    instead: "lower `network.packet.mtu` or `network.packet.headers`",
};
/// Preamble and gap between frames.
pub const GAP_BYTES: Limit = Limit {
    what: "`network.packet.headers.gap`",
    most: u16::MAX as u64,
    unit: Unit::Bytes,
    instead: "lower it",
};
/// From the end of a transmission until the next node has the packet. Nobody runs further ahead of
/// the clock than two of them.
pub const DELAY: Limit = Limit {
    what: "the delay of a link with the latency of its switch",
    most: (1 << (AHEAD_BITS - 1)) - 1,
    unit: Unit::Time,
    instead: FLOW,
};
/// Packets carry the nanosecond at which they were sent, in 32 bits.
pub const ROUND_TRIP: Limit = Limit {
    what: "the round trip of a packet on an idle path",
    most: u32::MAX as u64 * 1_000,
    unit: Unit::Time,
    instead: "--engine flow takes links this slow or long",
};
/// Sums of instants and timeouts stay below 2⁶⁴ picoseconds.
pub const RUN_TIME: Limit =
    Limit { what: "`network.limits.time`", most: 1 << 62, unit: Unit::Time, instead: "lower it" };
/// Where credits are counted, instants have fewer bits.
pub const RUN_TIME_WITH_CREDITS: Limit = Limit {
    what: "`network.limits.time` where credits are counted",
    most: (1 << (u64::BITS - BLOCK_COUNT_BITS)) - (1 << AHEAD_BITS),
    ..RUN_TIME
};
/// Timeouts and latencies, and waits between messages.
pub const SPAN: Limit = Limit {
    what: "a wait between messages",
    most: 1 << 62,
    unit: Unit::Time,
    instead: "shorten it",
};
/// What a lane of an input port can hold where credits are counted.
pub const CREDIT_BYTES: Limit = Limit {
    what: "the credits of a lane",
    most: u32::MAX as u64 / 2 * crate::credits::BLOCK as u64,
    unit: Unit::Bytes,
    instead: "set `network.credits.buffer`",
};
/// What a port keeps for itself.
pub const RESERVED: Limit = Limit {
    what: "`buffer.reserved`",
    most: PORT_BYTES - u16::MAX as u64,
    unit: Unit::Bytes,
    instead: "lower it",
};
/// What a port keeps for what arrives after a pause was sent.
pub const HEADROOM: Limit = Limit {
    what: "the headroom of a link",
    most: QUEUE_BYTES as u64 - u16::MAX as u64,
    unit: Unit::Bytes,
    instead: "set `network.buffer.headroom`, or turn `network.pfc.enabled` off",
};
/// The memory of a switch, so that it can be multiplied by alpha.
pub const MEMORY: Limit =
    Limit { what: "`buffer.size`", most: 1 << 40, unit: Unit::Bytes, instead: "lower it" };

/// All of them.
pub const ALL: [&Limit; 20] = [
    &LINKS,
    &PAIRS,
    &OPERATIONS,
    &NODES,
    &INPUTS,
    &MESSAGES,
    &PACKETS,
    &PATHS,
    &STAMPED_HOPS,
    &PACKET_BYTES,
    &GAP_BYTES,
    &DELAY,
    &ROUND_TRIP,
    &RUN_TIME,
    &RUN_TIME_WITH_CREDITS,
    &SPAN,
    &CREDIT_BYTES,
    &RESERVED,
    &HEADROOM,
    &MEMORY,
];

impl Limit {
    /// Refuses a value that is too large.
    pub fn check(&'static self, value: u64) -> Result<(), Refusal> {
        if value <= self.most { Ok(()) } else { Err(Refusal::TooLarge { limit: self, value }) }
    }

    fn show(&self, value: u64) -> String {
        match self.unit {
            Unit::Count => value.to_string(),
            Unit::Bytes => Bytes::new(value).to_string(),
            Unit::Time => Span::from_ps(value).to_string(),
        }
    }
}

/// Why the engine will not run something.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// Coupled operations are for engines that move fluids; collectives can write themselves out.
    Coupled,
    /// Settings are out of range.
    OutOfRange(Vec<OutOfRange>),
    /// A number is larger than there is room for.
    TooLarge {
        /// Which number, and how large it may be.
        limit: &'static Limit,
        /// What it is.
        value: u64,
    },
    /// Packets of a queue pair would have to leave by several ports of their NIC, by credits.
    SeveralPorts {
        /// The first such NIC.
        nic: String,
        /// How many ports it has.
        ports: usize,
        /// The routing policy that spreads packets.
        policy: &'static str,
    },
    /// Two GPUs of one scale-up network cannot reach each other.
    NoPath(String),
    /// It would take more memory or time than it may.
    BeyondBound {
        /// More of what.
        why: String,
        /// How far it had come when somebody last looked.
        reached: Option<Progress>,
    },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Coupled => f.write_str(
                "the packet engine cannot run folded collectives; write them out step by step",
            ),
            Self::OutOfRange(found) => {
                let messages: Vec<&str> = found.iter().map(|one| one.message.as_str()).collect();
                f.write_str(&messages.join("; "))
            }
            Self::TooLarge { limit, value } => {
                let Limit { what, most, instead, .. } = limit;
                let (value, most) = (limit.show(*value), limit.show(*most));
                write!(f, "{what}: {value}, but the packet engine takes at most {most}; {instead}")
            }
            Self::SeveralPorts { nic, ports, policy } => write!(
                f,
                "{nic} has {ports} ports and `network.routing.policy` is \"{policy}\", which \
                 spreads the packets of a queue pair over paths, but where links count credits \
                 (`network.credits`) the packet engine keeps a queue pair on one port; use \
                 --engine flow, one port for each NIC, or a policy that keeps a flow on one path, \
                 such as \"static-up-down\""
            ),
            Self::NoPath(text) => f.write_str(text),
            Self::BeyondBound { why, reached } => {
                match reached {
                    Some(Progress { at, events, .. }) => write!(
                        f,
                        "the run was ended at {:.1} of its own time, after {events} events: ",
                        at.since(Time::ZERO)
                    )?,
                    None => f.write_str("the run was ended as it began: ")?,
                }
                f.write_str(why)
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Refuses what cannot be run, as far as that is known before anything is built.
pub(crate) fn check_input(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
) -> Result<(), Refusal> {
    let is_folded = |op: &Op| matches!(op.kind, OpKind::Coupled { .. } | OpKind::Together { .. });
    if transfers.ops().iter().any(is_folded) {
        return Err(Refusal::Coupled);
    }
    let found = Ranges::of("network", settings);
    if !found.is_empty() {
        return Err(Refusal::OutOfRange(found));
    }
    LINKS.check(fabric.links().len() as u64)?;
    NODES.check(fabric.nodes().len() as u64)?;
    OPERATIONS.check(transfers.ops().len() as u64)?;
    PAIRS.check(crate::queue_pairs(fabric, transfers, settings))?;
    let most = if settings.credits.enabled { &RUN_TIME_WITH_CREDITS } else { &RUN_TIME };
    most.check(settings.limits.time.as_ps())?;
    for switch in fabric.switches() {
        INPUTS.check(fabric.ports(switch).len() as u64)?;
    }
    Ok(())
}

/// Into how many pieces of how many bytes an operation is cut that so many queue pairs carry.
pub(crate) fn pieces(settings: &Settings, bytes: u64, pairs: u64) -> (u64, u64) {
    dealt(&settings.routing, bytes, pairs)
}

fn dealt(routing: &RoutingConfig, bytes: u64, pairs: u64) -> (u64, u64) {
    let unit = match routing.split {
        _ if pairs == 1 => bytes.max(1),
        QueuePairUse::Split => bytes.div_ceil(pairs).max(1),
        QueuePairUse::RoundRobin => routing.chunk.get().max(1),
    };
    (bytes.div_ceil(unit).max(1), unit)
}

/// How an operation is dealt over the queue pairs of its connection: which of them get how many
/// bytes, and whose turn is next. The pieces of one queue pair follow each other as one message.
pub fn deal(
    routing: &RoutingConfig,
    bytes: u64,
    pairs: u64,
    turn: u64,
) -> (impl Iterator<Item = (u64, u64)> + use<>, u64) {
    let (pieces, unit) = dealt(routing, bytes, pairs);
    let next = match routing.split {
        QueuePairUse::RoundRobin if 1 < pairs => (turn + pieces) % pairs,
        _ => turn,
    };
    let parts = (0..pieces.min(pairs)).map(move |part| {
        let mine = (pieces - part).div_ceil(pairs);
        let has_last = (pieces - 1) % pairs == part;
        let last = if has_last { bytes - (pieces - 1) * unit } else { unit };
        ((turn + part) % pairs, (mine - 1) * unit + last)
    });
    (parts, next)
}

/// Refuses more messages, or more packets on one queue pair, than can be numbered.
pub(crate) fn check_messages(
    network: &Network,
    transfers: &Transfers,
    settings: &Settings,
    sizes: &Sizes,
) -> Result<(), Refusal> {
    let mut packets = vec![0_u64; transfers.connections().len()];
    let mut messages = 0_u64;
    for op in transfers.ops() {
        match op.kind {
            OpKind::Wait { span } => SPAN.check(span.as_ps())?,
            OpKind::Send { connection, bytes } => {
                let connection = connection.index();
                if network.first_pair[connection].is_none() {
                    continue;
                }
                let pairs = u64::from(network.pairs_of[connection]);
                let (pieces, unit) = pieces(settings, bytes.get(), pairs);
                // The queue pair that gets most of it.
                let largest = (pieces.div_ceil(pairs)).saturating_mul(unit).min(bytes.get());
                let count = &mut packets[connection];
                *count = count.saturating_add(largest.div_ceil(u64::from(sizes.mtu)).max(1));
                PACKETS.check(*count)?;
                messages = messages.saturating_add(pieces.min(pairs));
            }
            OpKind::Coupled { .. } | OpKind::Together { .. } => return Err(Refusal::Coupled),
        }
    }
    MESSAGES.check(messages)
}

/// Refuses packets that would have to leave by several ports of one NIC where credits are counted.
pub(crate) fn check_ports(
    fabric: &Fabric,
    network: &Network,
    settings: &Settings,
) -> Result<(), Refusal> {
    let ends = network.keys.iter().map(|(there, _)| there.from);
    let is_nic = |node| matches!(fabric.nodes()[node].kind, NodeKind::Nic | NodeKind::FrontEndNic);
    let mut nics = ends.filter(|end| is_nic(*end) && 1 < fabric.ports(*end).len());
    let refused = settings.credits.enabled && spreads(network);
    match nics.next().filter(|_| refused) {
        None => Ok(()),
        Some(nic) => Err(Refusal::SeveralPorts {
            nic: fabric.name(nic),
            ports: fabric.ports(nic).len(),
            policy: settings.routing.policy.name(),
        }),
    }
}

/// Refuses links that take longer than anybody may run ahead of the clock.
pub(crate) fn check_delays(ports: &IdVec<LinkId, Port>) -> Result<(), Refusal> {
    ports.iter().try_for_each(|port| DELAY.check(port.delay))
}

/// Refuses a path over which packets take too long, or that has more switches than stamps.
pub(crate) fn check_path(
    simulation: &Simulation<'_>,
    about: &Circumstances,
) -> Result<(), Refusal> {
    PATHS.check(simulation.net.paths.len() as u64)?;
    ROUND_TRIP.check(about.base_rtt.as_ps())?;
    if simulation.input.rules.needs.hops {
        // A NIC stamps nothing.
        STAMPED_HOPS.check(u64::from(about.hops) - 1)?;
    }
    Ok(())
}
