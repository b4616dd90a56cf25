//! How a sweep is divided among machines: how many shards, and what each of them needs.

use crate::outlook::Outlook;

/// Seconds of estimated work that are worth a start of their own.
const SHARD_S: f64 = 120.0;
/// How much longer than estimated a shard may take, and what its start may.
const PATIENCE: f64 = 2.0;
const START_S: f64 = 120.0;
/// Memory beside what is estimated.
const PROGRAM_BYTES: u64 = 256 << 20;

/// As many shards as are worth a start of their own, and no more than there may be.
pub fn shards(outlook: &Outlook, limit: u32) -> u32 {
    let wanted = (outlook.cpu_s / SHARD_S).ceil().max(1.0);
    let most = outlook.plan.cases.len().min(limit as usize).max(1);
    // A float that is too large becomes the largest integer.
    (wanted as usize).min(most) as u32
}

/// Seconds that a shard may take.
pub fn seconds(outlook: &Outlook, shards: u32, threads: u16) -> f64 {
    let cases = outlook.plan.cases.len() as f64;
    let own = (cases / f64::from(shards)).ceil();
    let work = outlook.cpu_s / cases * own / f64::from(threads);
    PATIENCE * work.max(outlook.longest_s) + START_S
}

/// Memory that a shard may need.
pub fn memory(outlook: &Outlook) -> u64 {
    outlook.memory_bytes + PROGRAM_BYTES
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::grid::Grid;

    fn outlook(cpu_s: f64) -> Outlook {
        let text =
            "from = \"small-16\"\nengine = \"analytic\"\n[axes]\nseed = { from = 0, to = 9 }\n";
        let grid = Grid::parse(text, Path::new("."), &scenario::Request::default());
        let grid = grid.expect("valid");
        let looked = crate::outlook(&grid, grid.plan(1).expect("cases"), 1).expect("it runs");
        Outlook { cpu_s, longest_s: 0.0, memory_bytes: 1 << 20, ..looked }
    }

    #[test]
    fn shards_follow_the_estimate_and_fit() {
        assert_eq!(shards(&outlook(30.0), 1001), 1);
        assert_eq!(shards(&outlook(601.0), 1001), 6);
        // Never more than Slurm takes, and none without a case.
        assert_eq!(shards(&outlook(1e30), 4), 4);
        assert_eq!(shards(&outlook(1e30), 1001), 10);
    }

    #[test]
    fn a_shard_asks_for_its_part_and_some_more() {
        let outlook = outlook(600.0);
        assert!((seconds(&outlook, 1, 1) - 1320.0).abs() < 1e-9);
        // Ten cases in four shards: three in the largest.
        assert!((seconds(&outlook, 4, 2) - 300.0).abs() < 1e-9);
        assert_eq!(memory(&outlook), 257 << 20);
    }
}
