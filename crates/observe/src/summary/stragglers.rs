//! Who comes last to collectives.
//!
//! Clocks of servers differ, but a collective ends for all at about the same time: whoever spends
//! the least time in it came last, and came later than the first by the difference.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::observed::Arrivals;

/// A rank that comes last to collectives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Straggler {
    /// The rank.
    pub rank: u32,
    /// How often it came last.
    pub last: u64,
    /// Collectives that it was in and that files of at least two ranks show.
    pub of: u64,
    /// By how much it came after the first, on average.
    pub late_us: f64,
}

/// All ranks that came last at least once, the most frequent first, and the mean time of those
/// that came first.
pub(crate) fn list(arrivals: &Arrivals) -> (Vec<Straggler>, f64) {
    let mut together: BTreeMap<(&str, u64), BTreeMap<u32, f64>> = BTreeMap::new();
    for arrival in &arrivals.kept {
        let ranks = together.entry((&arrival.group, arrival.sequence)).or_default();
        ranks.insert(arrival.rank, arrival.end_us - arrival.start_us);
    }
    let mut found: BTreeMap<u32, Straggler> = BTreeMap::new();
    let (mut sum_us, mut count) = (0.0, 0.0);
    for ranks in together.values().filter(|ranks| 1 < ranks.len()) {
        let most = ranks.values().copied().fold(f64::MIN, f64::max);
        (sum_us, count) = (sum_us + most, count + 1.0);
        let last = ranks.iter().min_by(|a, b| a.1.total_cmp(b.1)).map(|(rank, _)| *rank);
        for (rank, us) in ranks {
            let empty = Straggler { rank: *rank, last: 0, of: 0, late_us: 0.0 };
            let entry = found.entry(*rank).or_insert(empty);
            entry.of += 1;
            entry.last += u64::from(Some(*rank) == last);
            entry.late_us += most - us;
        }
    }
    let mut found: Vec<Straggler> = found.into_values().filter(|one| 0 < one.last).collect();
    found.iter_mut().for_each(|one| one.late_us /= one.of as f64);
    found.sort_by(|a, b| b.last.cmp(&a.last).then(a.rank.cmp(&b.rank)));
    (found, if 0.0 < count { sum_us / count } else { 0.0 })
}
