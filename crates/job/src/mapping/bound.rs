//! What no mapping can keep together.

use super::Exchange;

/// Bytes that leave their group wherever the blocks go, for groups with so many seats each.
///
/// A block in a group of s seats has at most s − 1 others beside it: of its peers at most those
/// that it exchanges most with. Each pair is counted from both ends, hence the half. Two bounds of
/// what can stay are taken together: the best block on every seat, and every block on the best one.
pub fn must_leave(exchange: &Exchange, groups: &[u32]) -> f64 {
    // By block: its largest shares added up.
    let sums = |block: usize| -> Vec<f64> {
        let mut bytes: Vec<f64> = exchange.peers(block).iter().map(|peer| peer.1).collect();
        bytes.sort_by(|a, b| b.total_cmp(a));
        let mut sums = vec![0.0];
        for own in bytes {
            sums.push(sums.last().expect("it has one") + own);
        }
        sums
    };
    let kept: Vec<Vec<f64>> = (0..exchange.blocks()).map(sums).collect();
    let kept_by = |block: &Vec<f64>, seats: u32| block[(seats as usize - 1).min(block.len() - 1)];
    let most = |seats: u32| kept.iter().map(|block| kept_by(block, seats)).fold(0.0, f64::max);
    let mut groups: Vec<u32> = groups.iter().copied().filter(|seats| 0 < *seats).collect();
    groups.sort_unstable_by(|a, b| b.cmp(a));
    let (mut left, mut by_seat) = (exchange.blocks(), 0.0);
    for alike in groups.chunk_by(|a, b| a == b) {
        let own = left.min(alike.iter().map(|seats| *seats as usize).sum());
        by_seat += own as f64 * most(alike[0]);
        left -= own;
    }
    let largest = groups.first().copied().unwrap_or(1);
    let by_block: f64 = kept.iter().map(|block| kept_by(block, largest)).sum();
    let all: f64 = kept.iter().filter_map(|block| block.last()).sum();
    (all - by_seat.min(by_block)).max(0.0) / 2.0
}
