//! Which part of a job runs at which site: as few bytes as possible over as little distance.
//!
//! A job is seen as a [`Exchange`]: blocks (what one server runs) and the bytes that a step moves
//! between two of them. A cluster is seen as [`Sites`]: servers that nothing tells apart (those
//! below one leaf, or one set of rail leaves) are one site with so many seats, and between two
//! sites there is a distance. [`map`] gives every block a site so that the sum of bytes times
//! distance is small: the static mapping problem, which is a minimum cut where there are two sites.
//!
//! How it works. Blocks are put in several orders that keep different neighbours together, sites in
//! several that fill near ones first, and each order of blocks is dealt out along each order of
//! sites. The best of these are improved by swaps: of two blocks, of a block and an empty seat, and
//! of whole runs of blocks along an order, first by annealing (a worse swap is taken with a chance
//! that falls), then only downhill. Everything random comes from the seed, and the work is bounded
//! in swaps, not in time, so that the answer is the same everywhere.
//!
//! Sources: Kernighan and Lin, "An Efficient Heuristic Procedure for Partitioning Graphs" (1970),
//! for swaps; Kirkpatrick, Gelatt and Vecchi, "Optimization by Simulated Annealing" (1983);
//! Pellegrini, "Static mapping by dual recursive bipartitioning of process and architecture graphs"
//! (1994), for the problem and its measure, and for what this is held against
//! (`docs/placement.md`).

mod anneal;
mod bound;

use units::Random;

pub use bound::must_leave;

/// Bytes between blocks: an undirected graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Where the peers of each block begin, and where the last one's end.
    starts: Vec<u32>,
    peers: Vec<(u32, f64)>,
}

impl Exchange {
    /// The graph of so many blocks with these bytes between two; both directions add up, and what
    /// a block sends itself does not count.
    pub fn new(blocks: usize, edges: impl IntoIterator<Item = (u32, u32, f64)>) -> Self {
        let mut ends: Vec<(u32, u32, f64)> = Vec::new();
        for (a, b, bytes) in edges {
            assert!((a.max(b) as usize) < blocks, "block {} of {blocks}", a.max(b));
            if a != b && 0.0 < bytes {
                ends.push((a, b, bytes));
                ends.push((b, a, bytes));
            }
        }
        ends.sort_by_key(|(a, b, _)| (*a, *b));
        let mut exchange = Self { starts: vec![0], peers: Vec::new() };
        let mut rest = ends.as_slice();
        for block in 0..blocks as u32 {
            while let Some((from, to, _)) = rest.first().filter(|(from, ..)| *from == block) {
                let same = rest.iter().take_while(|end| (end.0, end.1) == (*from, *to)).count();
                let bytes = rest[..same].iter().map(|end| end.2).sum();
                exchange.peers.push((*to, bytes));
                rest = &rest[same..];
            }
            exchange.starts.push(exchange.peers.len() as u32);
        }
        exchange
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.starts.len() - 1
    }

    /// What a block exchanges with whom.
    pub fn peers(&self, block: usize) -> &[(u32, f64)] {
        &self.peers[self.starts[block] as usize..self.starts[block + 1] as usize]
    }

    /// Every pair that exchanges anything, once.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32, f64)> + '_ {
        (0..self.blocks()).flat_map(move |block| {
            let later = self.peers(block).iter().filter(move |(peer, _)| block < *peer as usize);
            later.map(move |(peer, bytes)| (block as u32, *peer, *bytes))
        })
    }
}

/// Places for blocks, and how far they are from each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Sites {
    seats: Vec<u32>,
    /// Row by row. Single precision: it is small numbers that are kept, not bytes.
    distance: Vec<f32>,
}

impl Sites {
    /// Sites with so many seats, and the distance between two of them, which is the same both ways.
    pub fn new(seats: Vec<u32>, distance: impl Fn(usize, usize) -> f64) -> Self {
        let count = seats.len();
        let mut table = vec![0.0; count * count];
        for a in 0..count {
            for b in 0..=a {
                let far = distance(a, b) as f32;
                (table[a * count + b], table[b * count + a]) = (far, far);
            }
        }
        Self { seats, distance: table }
    }

    /// How many sites there are.
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Seats of each site.
    pub fn seats(&self) -> &[u32] {
        &self.seats
    }

    /// How far two sites are from each other.
    pub fn distance(&self, a: usize, b: usize) -> f64 {
        f64::from(self.distance[a * self.seats.len() + b])
    }

    fn row(&self, site: u32) -> &[f32] {
        &self.distance[site as usize * self.seats.len()..][..self.seats.len()]
    }

    /// Orders of all seats, each given as its site: sites as they come, and from several first ones
    /// always the nearest next, of equally near ones the one with most seats.
    fn fills(&self) -> Vec<Vec<u32>> {
        let deal = |order: &[u32]| -> Vec<u32> {
            let seats =
                |site: &u32| std::iter::repeat_n(*site, self.seats[*site as usize] as usize);
            order.iter().flat_map(seats).collect()
        };
        let in_order: Vec<u32> = (0..self.seats.len() as u32).collect();
        let mut fills = vec![deal(&in_order)];
        let mut firsts: Vec<u32> = in_order.clone();
        // Where much is near: seats over distance, all sites together.
        let pull = |site: &u32| -> f64 {
            let near = self.row(*site).iter().zip(&self.seats);
            near.map(|(far, seats)| f64::from(*seats) / (1.0 + f64::from(*far))).sum()
        };
        firsts.sort_by(|a, b| pull(b).total_cmp(&pull(a)));
        firsts.truncate(FIRSTS);
        fills.extend(firsts.iter().map(|first| deal(&self.nearest_next(*first))));
        fills
    }

    fn nearest_next(&self, first: u32) -> Vec<u32> {
        let mut order = vec![first];
        let mut left: Vec<(u32, f64)> = (0..self.seats.len() as u32)
            .filter(|site| *site != first)
            .map(|site| (site, f64::from(self.row(first)[site as usize])))
            .collect();
        while !left.is_empty() {
            let best = (0..left.len()).min_by(|a, b| {
                let (a, b) = (left[*a], left[*b]);
                let seats = |site: u32| self.seats[site as usize];
                a.1.total_cmp(&b.1).then(seats(b.0).cmp(&seats(a.0))).then(a.0.cmp(&b.0))
            });
            let (site, _) = left.swap_remove(best.expect("some are left"));
            // Near to the sites filled last counts more than near to the first ones.
            let row = self.row(site);
            for (other, far) in &mut left {
                *far = *far * REMEMBERED + f64::from(row[*other as usize]);
            }
            order.push(site);
        }
        order
    }
}

/// First sites that are tried.
const FIRSTS: usize = 4;

/// How much of the distance to earlier sites counts when the next one is chosen.
const REMEMBERED: f64 = 0.9;

/// What a mapping costs: bytes times distance, over all pairs.
pub fn cost(exchange: &Exchange, sites: &Sites, site_of: &[u32]) -> f64 {
    let far =
        |a: u32, b: u32| sites.distance(site_of[a as usize] as usize, site_of[b as usize] as usize);
    exchange.pairs().map(|(a, b, bytes)| bytes * far(a, b)).sum()
}

/// How much is tried: the most peers that are looked at while swaps are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort(pub u64);

impl Default for Effort {
    /// A few seconds on one core for the largest jobs, and less where there is less to do.
    fn default() -> Self {
        Self(1_500_000_000)
    }
}

/// Gives every block a site. Each of `orders` lists all blocks so that neighbours are likely to
/// exchange much; without any, they stand as they are numbered.
///
/// None if there are fewer seats than blocks.
pub fn map(
    exchange: &Exchange,
    sites: &Sites,
    orders: &[Vec<u32>],
    seed: u64,
    effort: Effort,
) -> Option<Vec<u32>> {
    let seats: u64 = sites.seats.iter().map(|seats| u64::from(*seats)).sum();
    if seats < exchange.blocks() as u64 {
        return None;
    }
    let as_numbered: Vec<u32> = (0..exchange.blocks() as u32).collect();
    let mut starts: Vec<(f64, Vec<u32>, &[u32])> = Vec::new();
    let fills = sites.fills();
    for order in std::iter::once(&as_numbered).chain(orders) {
        assert_eq!(order.len(), exchange.blocks(), "an order lists all blocks");
        for fill in &fills {
            let mut site_of = vec![0; exchange.blocks()];
            for (block, site) in order.iter().zip(fill) {
                site_of[*block as usize] = *site;
            }
            starts.push((cost(exchange, sites, &site_of), site_of, order));
        }
    }
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    starts.dedup_by(|a, b| a.1 == b.1);
    starts.truncate(HEAT.len());
    let each = effort.0 / HEAT.len() as u64;
    let improved = (0..).zip(HEAT).map(|(number, hot)| {
        let (_, site_of, order) = &starts[number % starts.len()];
        let random = Random::new(seed, "mapping", number as u64);
        anneal::improve(exchange, sites, (site_of, order), random, each, hot)
    });
    let best = improved.min_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, site_of)| site_of)
}

/// How hot the annealing of each start begins: the best one stays near what it is, the others may
/// become something else.
const HEAT: [f64; 3] = [0.1, 0.5, 3.0];

#[cfg(test)]
mod tests;
