//! Which collectives dominate the load of the network.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{CollectiveSummary, axes};
use crate::observed::{InGroup, Kind};

/// What collectives put on the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// The same in a sentence.
    pub text: String,
    /// Bytes that a rank sends, by kind: size times the factor of bus bandwidth.
    pub bytes_per_rank: BTreeMap<&'static str, f64>,
    /// The share of all-reduces in them.
    pub all_reduce_share: f64,
    /// The share of all-to-alls in them.
    pub all_to_all_share: f64,
    /// Collectives whose size no file says; they are not in the shares.
    pub without_size: u64,
}

/// Sums up collectives; those of benchmarks only where there are no others. What Chakra traces
/// count is what a rank puts in, so that their groups tell what it sends.
pub(super) fn of(collectives: &[CollectiveSummary], in_groups: &[InGroup]) -> Option<Load> {
    let is_table = |row: &&CollectiveSummary| row.from.contains("-tests");
    let (tables, others): (Vec<_>, Vec<_>) = collectives.iter().partition(is_table);
    let (rows, whose) = match others.is_empty() {
        true => (tables, "Of what the benchmarks sent"),
        false => (others, "Of what collectives sent"),
    };
    let mut by_kind: BTreeMap<&'static str, f64> = BTreeMap::new();
    let mut without_size = 0;
    let puts_in: Vec<&InGroup> = in_groups.iter().filter(|group| group.puts_in).collect();
    let files: BTreeSet<_> = puts_in.iter().map(|group| group.whose).collect();
    for group in &puts_in {
        for (kind, (_, bytes)) in group.sent.iter().filter(|(kind, _)| **kind != Kind::Barrier) {
            *by_kind.entry(kind.name()).or_default() +=
                axes::sent(group, *kind, *bytes) / files.len() as f64;
        }
    }
    for row in rows.iter().filter(|row| row.kind != Kind::Barrier) {
        if row.bytes == 0 {
            // Benchmarks and logs say 0 where nothing is sent.
            let is_said = row.from.contains("-tests") || row.from.starts_with("NCCL log");
            without_size += if is_said { 0 } else { row.count };
            continue;
        }
        if row.from == "Chakra" && !puts_in.is_empty() {
            continue;
        }
        // Where nobody says how many ranks there are, there are many.
        let factor = row.kind.bus_factor(row.ranks.unwrap_or(u32::MAX));
        *by_kind.entry(row.kind.name()).or_default() +=
            factor * row.bytes as f64 * row.count as f64;
    }
    let total: f64 = by_kind.values().sum();
    if total <= 0.0 {
        return (0 < without_size).then(|| unknown(&rows, without_size));
    }
    let share = |kind: Kind| by_kind.get(kind.name()).map_or(0.0, |bytes| bytes / total);
    let (reduce, exchange) = (share(Kind::AllReduce), share(Kind::AllToAll));
    let (most, bytes) = by_kind.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    let mut text = format!(
        "{whose}, {} dominates: {:.1} %; all_reduce {:.1} % against all_to_all {:.1} %.",
        most,
        100.0 * bytes / total,
        100.0 * reduce,
        100.0 * exchange
    );
    if 0 < without_size {
        text += &format!(" {without_size} more do not say their size.");
    }
    let (all_reduce_share, all_to_all_share) = (reduce, exchange);
    Some(Load { text, bytes_per_rank: by_kind, all_reduce_share, all_to_all_share, without_size })
}

/// No size is known: what took the time.
fn unknown(rows: &[&CollectiveSummary], without_size: u64) -> Load {
    let mut times: BTreeMap<&'static str, f64> = BTreeMap::new();
    for row in rows {
        *times.entry(row.kind.name()).or_default() += row.time_us.unwrap_or(0.0) * row.count as f64;
    }
    let total: f64 = times.values().sum();
    let share = |kind: Kind| match 0.0 < total {
        true => times.get(kind.name()).map_or(0.0, |us| us / total),
        false => 0.0,
    };
    let most = times.iter().max_by(|a, b| a.1.total_cmp(b.1)).filter(|_| 0.0 < total);
    let by_time = most.map_or(String::new(), |(kind, us)| {
        format!(
            " By time {kind} dominates: {:.1} %; all_reduce {:.1} % against all_to_all {:.1} %.",
            100.0 * us / total,
            100.0 * share(Kind::AllReduce),
            100.0 * share(Kind::AllToAll)
        )
    });
    Load {
        text: format!("{without_size} collectives, and no file says their sizes.{by_time}"),
        bytes_per_rank: BTreeMap::new(),
        all_reduce_share: share(Kind::AllReduce),
        all_to_all_share: share(Kind::AllToAll),
        without_size,
    }
}
