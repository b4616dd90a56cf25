//! The mapping against cases whose best answer is known, and against its own bound.

use super::*;

/// Distance 0 inside a site, 1 inside a zone of so many sites, 2 beyond.
fn tree(seats: Vec<u32>, zone: usize) -> Sites {
    Sites::new(seats, |a, b| match (a == b, a / zone == b / zone) {
        (true, _) => 0.0,
        (_, true) => 1.0,
        _ => 2.0,
    })
}

fn random_exchange(blocks: usize, random: &mut Random) -> Exchange {
    let edges: Vec<(u32, u32, f64)> = (0..blocks * 2)
        .map(|_| {
            let mut end = || random.below(blocks as u64) as u32;
            (end(), end(), 1.0 + random.below(9) as f64)
        })
        .collect();
    Exchange::new(blocks, edges)
}

/// Every mapping there is, by trying all.
fn cheapest(exchange: &Exchange, sites: &Sites, site_of: &mut Vec<u32>) -> f64 {
    if site_of.len() == exchange.blocks() {
        return cost(exchange, sites, site_of);
    }
    let mut best = f64::INFINITY;
    for site in 0..sites.len() as u32 {
        let taken = site_of.iter().filter(|taken| **taken == site).count() as u32;
        if taken < sites.seats()[site as usize] {
            site_of.push(site);
            best = best.min(cheapest(exchange, sites, site_of));
            site_of.pop();
        }
    }
    best
}

#[test]
fn both_directions_add_up() {
    let exchange = Exchange::new(3, [(0, 1, 2.0), (1, 0, 3.0), (2, 2, 9.0), (1, 2, 0.0)]);
    assert_eq!(exchange.peers(0), [(1, 5.0)]);
    assert_eq!(exchange.peers(1), [(0, 5.0)]);
    assert!(exchange.peers(2).is_empty());
    assert_eq!(exchange.pairs().collect::<Vec<_>>(), [(0, 1, 5.0)]);
}

/// Small jobs on sites with holes: as cheap as the cheapest of all mappings, and never below the
/// bound.
#[test]
fn small_jobs_are_mapped_as_well_as_can_be() {
    let mut random = Random::new(3, "cases", 0);
    for case in 0..40 {
        let exchange = random_exchange(7, &mut random);
        let seats = (0..4).map(|_| 1 + random.below(3) as u32).chain([3]).collect();
        let sites = tree(seats, 2);
        let Some(site_of) = map(&exchange, &sites, &[], case, Effort(400_000)) else { continue };
        for (site, seats) in sites.seats().iter().enumerate() {
            let taken = site_of.iter().filter(|taken| **taken == site as u32).count();
            assert!(taken <= *seats as usize);
        }
        let found = cost(&exchange, &sites, &site_of);
        let best = cheapest(&exchange, &sites, &mut Vec::new());
        assert!((found - best).abs() < 1e-6, "case {case}: {found} and {best}");
        let bound = must_leave(&exchange, sites.seats());
        assert!(bound <= best + 1e-6, "case {case}: bound {bound} above {best}");
    }
}

/// Groups of four that exchange much, numbered so that linear order tears all of them apart: each
/// gets a site of its own, and the bound says that nothing is left to gain.
#[test]
fn groups_come_together() {
    let edges = (0..8_u32).flat_map(|group| {
        let pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
        pairs.map(move |(a, b)| (group + 8 * a, group + 8 * b, 1.0))
    });
    let exchange = Exchange::new(32, edges);
    let sites = tree(vec![4; 8], 4);
    let in_order: Vec<u32> = (0..32).map(|block| block / 4).collect();
    assert_eq!(cost(&exchange, &sites, &in_order), 80.0);
    let site_of = map(&exchange, &sites, &[], 1, Effort(4_000_000)).unwrap();
    assert_eq!(cost(&exchange, &sites, &site_of), 0.0);
    assert_eq!(must_leave(&exchange, sites.seats()), 0.0);
    // Sites of two: each block keeps one of its three peers.
    let sites = tree(vec![2; 16], 2);
    let site_of = map(&exchange, &sites, &[], 1, Effort(4_000_000)).unwrap();
    assert_eq!(cost(&exchange, &sites, &site_of), 32.0);
    assert_eq!(must_leave(&exchange, sites.seats()), 32.0);
}

/// Of more seats than blocks, those are taken that are near each other.
#[test]
fn near_seats_are_chosen() {
    let ring = |count: u32| (0..count).map(move |at| (at, (at + 1) % count, 1.0));
    let exchange = Exchange::new(8, ring(8));
    let sites = tree(vec![1, 2, 1, 4, 1, 4, 2, 1], 4);
    let site_of = map(&exchange, &sites, &[], 1, Effort(1_000_000)).unwrap();

    assert!(site_of.iter().all(|site| *site < 4) || site_of.iter().all(|site| 4 <= *site));
    assert!(map(&exchange, &tree(vec![3, 4], 2), &[], 1, Effort::default()).is_none());
}

/// The same seed gives the same mapping, and improving never makes it worse.
#[test]
fn mappings_repeat() {
    let mut random = Random::new(5, "cases", 0);
    let exchange = random_exchange(60, &mut random);
    let sites = tree((0..12).map(|site| 4 + site % 4).collect(), 4);
    let mapped = |effort| map(&exchange, &sites, &[], 9, Effort(effort)).unwrap();
    assert_eq!(mapped(2_000_000), mapped(2_000_000));
    let (little, much) = (mapped(20_000), mapped(20_000_000));
    assert!(cost(&exchange, &sites, &much) <= cost(&exchange, &sites, &little));
}
