//! What Slurm's tree plug-in would take.
//!
//! `topology/tree` looks for the lowest switch that has enough free nodes below it, of several the
//! one with the fewest, and fills its leaves best fit first: a leaf that has room for all that is
//! left, the tightest of those, else the one with most free nodes. The job's nodes are then in the
//! order of the node table, and ranks follow them. Source: `eval_nodes_topo` of Slurm's
//! `select/cons_tres`; `tests/slurm` asks a real `slurmctld`.

use scenario::export::SlurmGroup;

/// The free servers that the plug-in takes for a job of so many, in order. None if there are too
/// few.
pub(super) fn choose(groups: &[SlurmGroup], free: &[usize], needed: usize) -> Option<Vec<usize>> {
    if free.len() < needed {
        return None;
    }
    let leaves: Vec<(u32, Vec<usize>)> = groups
        .iter()
        .map(|group| {
            let is_free = |server: &&usize| free.binary_search(server).is_ok();
            (group.zone, group.servers.iter().filter(is_free).copied().collect())
        })
        .collect();
    let below = |has: &dyn Fn(usize) -> bool| -> Vec<usize> {
        (0..leaves.len()).filter(|leaf| has(*leaf)).collect()
    };
    let count = |among: &[usize]| -> usize { among.iter().map(|leaf| leaves[*leaf].1.len()).sum() };
    let mut zones: Vec<u32> = leaves.iter().map(|leaf| leaf.0).collect();
    zones.sort_unstable();
    zones.dedup();
    let single = (0..leaves.len()).map(|leaf| vec![leaf]);
    let pods = zones.iter().map(|zone| below(&|leaf| leaves[leaf].0 == *zone));
    let fits = |among: &Vec<usize>| needed <= count(among);
    let tightest = |several: &mut dyn Iterator<Item = Vec<usize>>| {
        several.filter(fits).min_by_key(|among| count(among))
    };
    let among = tightest(&mut { single })
        .or_else(|| tightest(&mut { pods }))
        .unwrap_or_else(|| below(&|_| true));
    let (mut left, mut taken, mut rest) = (needed, Vec::with_capacity(needed), among);
    while 0 < left {
        let has = |leaf: &usize| leaves[*leaf].1.len();
        let roomy = rest.iter().copied().filter(|leaf| left <= has(leaf)).min_by_key(has);
        // Of equals the first.
        let most = rest.iter().copied().rev().max_by_key(has);
        let leaf = roomy.or(most)?;
        rest.retain(|other| *other != leaf);
        let own = left.min(has(&leaf));
        taken.extend(&leaves[leaf].1[..own]);
        left -= own;
    }
    taken.sort_unstable();
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four leaves of four servers, two in each pod.
    fn groups() -> Vec<SlurmGroup> {
        let leaf = |leaf: usize| (4 * leaf..4 * leaf + 4).collect();
        (0..4).map(|at| SlurmGroup { servers: leaf(at), zone: at as u32 / 2 }).collect()
    }

    #[test]
    fn the_tightest_switch_and_its_fullest_leaves() {
        let taken = |free: &[usize], needed| choose(&groups(), free, needed);
        let all: Vec<usize> = (0..16).collect();
        // Any leaf would do: the first; with a hole in the third, that one is tighter.
        assert_eq!(taken(&all, 3).unwrap(), [0, 1, 2]);
        let holes: Vec<usize> = (0..16).filter(|server| *server != 9).collect();
        assert_eq!(taken(&holes, 3).unwrap(), [8, 10, 11]);
        // No leaf has five: the pod with fewer free ones, its fullest leaf and then the rest.
        assert_eq!(taken(&holes, 5).unwrap(), [8, 12, 13, 14, 15]);
        // No pod has nine: the top, largest leaves first, then the tightest for the last.
        assert_eq!(taken(&all, 9).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(taken(&holes, 11).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]);
        assert_eq!(taken(&[0, 5], 3), None);
    }
}
