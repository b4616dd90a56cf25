//! Measured beside predicted: paths with their queue pairs, ranks in the order of their ends, and
//! how full the fullest uplink is.

use std::collections::BTreeMap;

use fabric::graph::NodeKind;
use fabric::{Fabric, LinkId, NodeId};
use traffic::{OpKind, Outcome, Transfers};
use units::{Id, Random};

use crate::answer::{Fullest, Path, RankEnd};
use crate::lower::Lowered;
use crate::plan::RankResult;

/// By queue pair: the links of each path that it took, or should take.
pub(crate) type Paths = BTreeMap<usize, Vec<Vec<LinkId>>>;

/// The switches of a path.
fn switches(fabric: &Fabric, path: &[LinkId]) -> Vec<String> {
    let nodes = path.iter().map(|link| fabric.links()[*link].to);
    let nodes = nodes.filter(|node| fabric.nodes()[*node].kind != NodeKind::Nic);
    nodes.map(|node| fabric.name(node)).collect()
}

/// Every path by its switches, and how many queue pairs took it and should have.
pub(crate) fn paths(fabric: &Fabric, taken: Option<&Paths>, predicted: &Paths) -> Vec<Path> {
    let mut counts: BTreeMap<Vec<String>, [usize; 2]> = BTreeMap::new();
    for (at, paths) in [taken, Some(predicted)].into_iter().enumerate() {
        for path in paths.into_iter().flat_map(BTreeMap::values).flatten() {
            counts.entry(switches(fabric, path)).or_default()[at] += 1;
        }
    }
    let path = |(switches, [queue_pairs, predicted]): (Vec<String>, [usize; 2])| Path {
        switches,
        queue_pairs: taken.is_some().then_some(queue_pairs),
        predicted,
    };
    counts.into_iter().map(path).collect()
}

/// The ranks in the order in which they had everything, with the time that was predicted.
pub(crate) fn ends(
    transfers: &Transfers,
    lowered: &Lowered,
    results: &[RankResult],
    outcome: &Outcome,
) -> Vec<RankEnd> {
    let mut predicted: BTreeMap<u32, f64> = BTreeMap::new();
    for (op, one) in transfers.ops().enumerate() {
        let OpKind::Send { connection, .. } = one.kind else { continue };
        let Some(over) = outcome.over(op) else { continue };
        for rank in lowered.pairs[lowered.of_connection[connection.index()]].ranks {
            let latest = predicted.entry(rank).or_default();
            *latest = latest.max(over.as_secs_f64() * 1e6);
        }
    }
    let end = |result: &RankResult| RankEnd {
        rank: result.rank,
        time_us: result.time_us as f64,
        predicted_us: predicted.get(&result.rank).copied().unwrap_or(0.0),
    };
    let mut ends: Vec<RankEnd> = results.iter().map(end).collect();
    ends.sort_by(|one, other| one.time_us.total_cmp(&other.time_us));
    ends
}

/// Throws of balls with which a fullest bin is predicted.
const THROWS: usize = 2000;

/// The fullest uplink's share of the queue pairs that leave a switch upwards, the mean over
/// switches; beside it what chance gives for as many queue pairs and uplinks.
pub(crate) fn fullest(fabric: &Fabric, taken: &Paths) -> Option<Fullest> {
    let tier = |node: NodeId| fabric.nodes()[node].tier;
    let mut leaving: BTreeMap<NodeId, BTreeMap<LinkId, usize>> = BTreeMap::new();
    for link in taken.values().flatten().flatten() {
        let ends = fabric.links()[*link];
        let are_switches =
            [ends.from, ends.to].iter().all(|node| fabric.switch_ordinal(*node).is_some());
        if are_switches && tier(ends.from) < tier(ends.to) {
            *leaving.entry(ends.from).or_default().entry(*link).or_default() += 1;
        }
    }
    let uplinks = |node: NodeId| {
        let ports = fabric.ports(node).iter().map(|link| fabric.links()[*link].to);
        ports.filter(|to| fabric.switch_ordinal(*to).is_some() && tier(node) < tier(*to)).count()
    };
    let shape: Vec<(usize, usize)> = leaving
        .iter()
        .map(|(node, links)| (links.values().sum(), uplinks(*node)))
        .filter(|(_, uplinks)| 1 < *uplinks)
        .collect();
    let full = leaving.iter().filter(|(node, _)| 1 < uplinks(**node)).map(|(_, links)| {
        let most = links.values().max().copied().unwrap_or(0);
        most as f64 / links.values().sum::<usize>().max(1) as f64
    });
    let share = full.sum::<f64>() / shape.len().max(1) as f64;
    let (expected, deviation) = balls_in_bins(&shape);
    (!shape.is_empty()).then_some(Fullest { share, expected, deviation })
}

/// Mean and standard deviation of the fullest bin's share, the mean over groups of balls and bins.
fn balls_in_bins(groups: &[(usize, usize)]) -> (f64, f64) {
    let mut random = Random::new(1, "balls in bins", 0);
    let mut shares = Vec::with_capacity(THROWS);
    for _ in 0..THROWS {
        let mut sum = 0.0;
        for (balls, bins) in groups {
            let mut thrown = vec![0_usize; *bins];
            (0..*balls).for_each(|_| thrown[random.below(*bins as u64) as usize] += 1);
            sum += thrown.iter().max().copied().unwrap_or(0) as f64 / (*balls).max(1) as f64;
        }
        shares.push(sum / groups.len().max(1) as f64);
    }
    let mean = shares.iter().sum::<f64>() / THROWS as f64;
    let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / THROWS as f64;
    (mean, variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One ball is all in one bin; two balls in two bins share one half of the time.
    #[test]
    fn few_balls_in_bins_are_as_by_hand() {
        assert_eq!(balls_in_bins(&[(1, 4)]), (1.0, 0.0));
        let (mean, deviation) = balls_in_bins(&[(2, 2)]);
        assert!((mean - 0.75).abs() < 0.02 && (deviation - 0.25).abs() < 0.02);
    }
}
