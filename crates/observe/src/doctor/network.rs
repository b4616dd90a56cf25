//! What captures and counters say of marks, pauses, loss, paths and classes.

use std::collections::{BTreeMap, BTreeSet};

use super::Case;
use crate::observed::{QueuePair, Quote, Severity};

/// One of several that has more than this share has "most".
const MOST: f64 = 0.8;
/// Fewer marks or pauses than this say nothing.
const FEWEST: u64 = 8;
/// More packets that are sent again than this share cost bandwidth.
const LOSS_SHARE: f64 = 1e-4;

/// The file that a capture's figures are from.
fn capture_file(case: &Case<'_>) -> String {
    let sources = case.observed.sources.iter();
    let captures = sources.filter(|source| source.kind.contains("capture"));
    captures.map(|source| source.file.clone()).next().unwrap_or_default()
}

fn data_pairs<'a>(case: &'a Case<'_>) -> impl Iterator<Item = &'a QueuePair> {
    case.observed.queue_pairs.iter().filter(|pair| 0 < pair.bytes)
}

/// Marks: how many, and whether they sit on one destination.
pub(super) fn marks(case: &mut Case<'_>) {
    let packets = &case.observed.packets;
    if packets.marked < FEWEST {
        return;
    }
    let (marked, data) = (packets.marked, packets.data);
    let mut to: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for pair in data_pairs(case) {
        let entry = to.entry(&pair.host).or_default();
        *entry = (entry.0 + pair.marked, entry.1 + pair.packets);
    }
    let Some((host, (most, of))) = to.iter().max_by_key(|(_, (marked, _))| *marked) else { return };
    let share = *most as f64 / marked as f64;
    if to.len() < 2 || share < MOST {
        return;
    }
    let text = format!(
        "{:.0} % of the {marked} marks are on packets to {host}, which gets {of} of {data} data \
         packets: its port or the link before it is congested (an incast).",
        100.0 * share
    );
    let quote = format!("{host}: {most} of {of} packets are marked");
    let line = Quote::new(&capture_file(case), 0, &quote);
    case.add(Severity::Warning, "marks_concentrated", text, vec![line]);
}

/// Pause frames: whether one station sends most of them.
pub(super) fn pauses(case: &mut Case<'_>) {
    let wire = &case.observed.wire;
    let total = case.observed.packets.pauses;
    let Some((station, most)) = wire.pausing.iter().max_by_key(|(_, count)| **count) else {
        return;
    };
    if total < FEWEST || (wire.pausing.len() < 2 && case.observed.packets.data == 0) {
        return;
    }
    let share = *most as f64 / total as f64;
    if share < MOST {
        return;
    }
    let classes: Vec<&str> = wire.pauses.keys().map(String::as_str).collect();
    let text = format!(
        "{most} of {total} pause frames come from {station} (class {}): what is behind it cannot \
         take what is sent.",
        classes.join(", ")
    );
    let line = Quote::new(&capture_file(case), 0, &format!("{station}: {most} pause frames"));
    case.add(Severity::Warning, "pauses_concentrated", text, vec![line]);
}

/// Packets that are lost and sent again.
pub(super) fn loss(case: &mut Case<'_>) {
    let (packets, wire) = (&case.observed.packets, &case.observed.wire);
    let share = packets.retransmitted as f64 / packets.data.max(1) as f64;
    if packets.retransmitted == 0 || share < LOSS_SHARE {
        return;
    }
    let text = format!(
        "{} of {} data packets ({:.2} %) are sent again, {} NAKs ask for it: a lossless class \
         drops, or packets overtake each other ({} out of order).",
        packets.retransmitted,
        packets.data,
        100.0 * share,
        packets.naks,
        wire.out_of_order
    );
    let naks: Vec<String> =
        wire.naks.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let line = Quote::new(&capture_file(case), 0, &format!("NAKs: {}", naks.join(", ")));
    case.add(Severity::Warning, "retransmissions", text, vec![line]);
}

/// One 5-tuple for each pair of NICs: all of it takes one path.
pub(super) fn few_paths(case: &mut Case<'_>) {
    let mut ports: BTreeMap<(&str, &str), (BTreeSet<u16>, BTreeSet<u32>, u64)> = BTreeMap::new();
    for pair in data_pairs(case) {
        let entry = ports.entry((&pair.peer, &pair.host)).or_default();
        entry.0.extend(pair.source_port);
        entry.1.insert(pair.number);
        entry.2 += pair.bytes;
    }
    // Datagrams and handshakes are small.
    ports.retain(|_, (ports, _, bytes)| 1 << 20 < *bytes && !ports.is_empty());
    let single = ports.values().filter(|(ports, ..)| ports.len() == 1).count();
    if ports.len() < 2 || single < ports.len() {
        return;
    }
    let several = ports.values().filter(|(_, pairs, _)| 1 < pairs.len()).count();
    let why = match several {
        0 => "one queue pair each (NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_SPLIT_DATA_ON_QPS)",
        _ => "several queue pairs with the same UDP source port: set the NIC to a port for each",
    };
    let text = format!(
        "{} pairs of addresses use one 5-tuple each ({why}): switches put each on one path, and \
         two on one uplink halve each other.",
        ports.len()
    );
    let lines = ports.iter().take(3).map(|((from, to), (ports, pairs, bytes))| {
        let port = ports.first().copied().unwrap_or(0);
        let quote =
            format!("{from} to {to}: source port {port}, {} queue pairs, {bytes} B", pairs.len());
        Quote::new(&capture_file(case), 0, &quote)
    });
    let lines = lines.collect();
    case.add(Severity::Warning, "few_queue_pairs", text, lines);
}

/// Data in several classes, or in the best-effort one.
pub(super) fn classes(case: &mut Case<'_>) {
    let mut classes: BTreeMap<u8, (u64, &str)> = BTreeMap::new();
    for pair in data_pairs(case).filter(|pair| 1 < pair.number) {
        if let Some(dscp) = pair.dscp {
            let entry = classes.entry(dscp).or_insert((0, &pair.host));
            entry.0 += pair.bytes;
        }
    }
    let lines: Vec<Quote> = classes
        .iter()
        .map(|(dscp, (bytes, host))| {
            let quote = format!("DSCP {dscp}: {bytes} B, for example to {host}");
            Quote::new(&capture_file(case), 0, &quote)
        })
        .collect();
    let list: Vec<String> = classes.keys().map(u8::to_string).collect();
    if 1 < classes.len() {
        let text = format!(
            "RDMA data go with different DSCPs ({}): some of them are in another class than the \
             lossless one (NCCL_IB_TC).",
            list.join(", ")
        );
        case.add(Severity::Warning, "traffic_class", text, lines);
    } else if list == ["0"] && 0 < case.observed.packets.pauses + case.observed.packets.marked {
        let text = "All RDMA data go with DSCP 0, the best-effort class, on a network that pauses \
                    or marks: set NCCL_IB_TC to the class that switches treat as lossless.";
        case.add(Severity::Warning, "traffic_class", text, lines);
    }
}

/// Checks at the ends of packets that are wrong.
pub(super) fn damage(case: &mut Case<'_>) {
    let wrong = case.observed.wire.icrc_wrong;
    if wrong == 0 {
        return;
    }
    let text = format!(
        "{wrong} packets have a wrong ICRC: something on the way changes them, or the capture did."
    );
    let line = Quote::new(&capture_file(case), 0, &format!("{wrong} wrong ICRCs"));
    case.add(Severity::Warning, "icrc_wrong", text, vec![line]);
}

/// Counters that grew, or one port that has most of them.
pub(super) fn counters(case: &mut Case<'_>) {
    let stormed = case.observed.evidence.count("stormed");
    if 0 < stormed {
        let text = format!(
            "The PFC watchdog says that {stormed} queues are stormed: something pauses them \
             without end, and their packets are dropped."
        );
        let lines = case.observed.evidence.quotes("stormed");
        case.add(Severity::Critical, "pfc_storm", text, lines);
    }
    for finding in crate::counter::findings(&case.observed.counters, &case.observed.sources) {
        case.found.push(finding);
    }
}
