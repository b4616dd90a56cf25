//! A mapping, improved by swaps.

use units::Random;

use super::{Exchange, Sites};

/// The share of the work that goes into annealing; the rest goes downhill.
const ANNEALED: f64 = 0.8;

/// Proposals between two looks at the temperature.
const ROUND: u64 = 1024;

/// A worse swap is taken in the end with a chance of 1/e if it costs this share of what a block
/// costs on average.
const COLD: f64 = 0.002;

/// Improves a mapping by weighing swaps until `effort` peers have been looked at. At first a worse
/// swap is taken with a chance of 1/e if it costs `hot` of what a block costs on average. The cost
/// comes back with it; it is never above that of the start.
pub(super) fn improve(
    exchange: &Exchange,
    sites: &Sites,
    (start, order): (&[u32], &[u32]),
    random: Random,
    effort: u64,
    hot: f64,
) -> (f64, Vec<u32>) {
    let mut search = Search::new(exchange, sites, start, order, random);
    let start_cost = search.cost;
    let mean = start_cost / exchange.blocks().max(1) as f64;
    if mean <= 0.0 || sites.len() < 2 {
        return (start_cost, start.to_vec());
    }
    search.descend(effort / 10);
    let mut best = (search.cost, search.site_of());
    // Work enough for a few hundred proposals for every block is enough for small jobs.
    let proposals_worth = search.work_of_proposals(PROPOSALS_PER_BLOCK);
    let hot_until = search.looked + ((effort as f64 * ANNEALED) as u64).min(proposals_worth);
    let begin = search.looked;
    while search.looked < hot_until {
        let done = (search.looked - begin) as f64 / (hot_until - begin) as f64;
        let temperature = mean * hot * (COLD / hot).powf(done);
        for _ in 0..ROUND {
            search.propose(temperature);
        }
        if search.cost < best.0 * (1.0 - 1e-12) {
            best = (search.cost, search.site_of());
        }
    }
    search.descend(effort / 10);
    if search.cost < best.0 {
        best = (search.cost, search.site_of());
    }
    best
}

/// Proposals for every block beyond which annealing has nothing to find.
const PROPOSALS_PER_BLOCK: u64 = 6000;

/// Nobody sits there.
const EMPTY: u32 = u32::MAX;

struct Search<'a> {
    exchange: &'a Exchange,
    sites: &'a Sites,
    order: &'a [u32],
    /// By block.
    site_of: Vec<u32>,
    seat_of: Vec<u32>,
    /// By seat, site after site: the block, or [`EMPTY`].
    block_at: Vec<u32>,
    /// Where the seats of each site begin, and where the last one's end.
    first_seat: Vec<u32>,
    cost: f64,
    /// Peers looked at so far.
    looked: u64,
    random: Random,
}

impl<'a> Search<'a> {
    fn new(
        exchange: &'a Exchange,
        sites: &'a Sites,
        start: &[u32],
        order: &'a [u32],
        random: Random,
    ) -> Self {
        let mut first_seat = vec![0];
        for seats in sites.seats() {
            first_seat.push(first_seat.last().expect("it has one") + seats);
        }
        let mut free: Vec<u32> = first_seat[..sites.len()].to_vec();
        let mut block_at = vec![EMPTY; *first_seat.last().expect("it has one") as usize];
        let mut seat_of = Vec::with_capacity(start.len());
        for (block, site) in (0..).zip(start) {
            let seat = &mut free[*site as usize];
            assert!(*seat < first_seat[*site as usize + 1], "a site has too many blocks");
            block_at[*seat as usize] = block;
            seat_of.push(*seat);
            *seat += 1;
        }
        let cost = super::cost(exchange, sites, start);
        let site_of = start.to_vec();
        Self {
            exchange,
            sites,
            order,
            site_of,
            seat_of,
            block_at,
            first_seat,
            cost,
            looked: 0,
            random,
        }
    }

    fn site_of(&self) -> Vec<u32> {
        self.site_of.clone()
    }

    /// Peers that so many proposals for every block look at, two blocks each.
    fn work_of_proposals(&self, each: u64) -> u64 {
        2 * each * (self.exchange.peers.len() as u64 + self.exchange.blocks() as u64)
    }

    /// What it costs more if `block` moves to `site` and nobody else moves.
    fn change(&mut self, block: u32, site: u32) -> f64 {
        let (here, there) = (self.sites.row(self.site_of[block as usize]), self.sites.row(site));
        let peers = self.exchange.peers(block as usize);
        self.looked += peers.len() as u64 + 1;
        let mut change = 0.0;
        for (peer, bytes) in peers {
            let other = self.site_of[*peer as usize] as usize;
            change += bytes * f64::from(there[other] - here[other]);
        }
        change
    }

    /// What it costs more if a block and whoever has a seat elsewhere swap.
    fn swap_change(&mut self, block: u32, seat: u32, site: u32) -> f64 {
        let home = self.site_of[block as usize];
        let mut change = self.change(block, site);
        let other = self.block_at[seat as usize];
        if other != EMPTY {
            // The distance between the two stays what it was; both sums took it for changed.
            change += self.change(other, home);
            let peers = self.exchange.peers(block as usize);
            if let Ok(at) = peers.binary_search_by_key(&other, |peer| peer.0) {
                let far = |a: u32, b: u32| self.sites.distance(a as usize, b as usize);
                let both = 2.0 * far(home, site) - far(home, home) - far(site, site);
                change += peers[at].1 * both;
            }
        }
        change
    }

    fn swap(&mut self, block: u32, seat: u32, site: u32, change: f64) {
        let (home, home_seat) = (self.site_of[block as usize], self.seat_of[block as usize]);
        let other = self.block_at[seat as usize];
        self.block_at[seat as usize] = block;
        self.block_at[home_seat as usize] = other;
        (self.site_of[block as usize], self.seat_of[block as usize]) = (site, seat);
        if other != EMPTY {
            (self.site_of[other as usize], self.seat_of[other as usize]) = (home, home_seat);
        }
        self.cost += change;
    }

    /// Weighs one random swap.
    fn propose(&mut self, temperature: f64) {
        let blocks = self.exchange.blocks() as u64;
        match self.random.below(16) {
            0 => self.propose_runs(temperature),
            1 => {
                let seat = self.random.below(self.block_at.len() as u64) as u32;
                let site = self.first_seat.partition_point(|first| *first <= seat) as u32 - 1;
                let block = self.random.below(blocks) as u32;
                self.weigh(block, seat, site, temperature);
            }
            _ => {
                let block = self.random.below(blocks) as u32;
                let peers = self.exchange.peers(block as usize);
                if peers.is_empty() {
                    return;
                }
                let peer = peers[self.random.below(peers.len() as u64) as usize].0;
                let site = self.site_of[peer as usize];
                let seats = self.first_seat[site as usize]..self.first_seat[site as usize + 1];
                let seat =
                    seats.start + self.random.below(u64::from(seats.end - seats.start)) as u32;
                self.weigh(block, seat, site, temperature);
            }
        }
    }

    fn takes(&mut self, change: f64, temperature: f64) -> bool {
        change <= 0.0 || self.random.unit() < (-change / temperature).exp()
    }

    fn weigh(&mut self, block: u32, seat: u32, site: u32, temperature: f64) {
        if self.site_of[block as usize] == site {
            return;
        }
        let change = self.swap_change(block, seat, site);
        if self.takes(change, temperature) {
            self.swap(block, seat, site, change);
        }
    }

    /// Two runs of blocks along the order change places, block by block.
    fn propose_runs(&mut self, temperature: f64) {
        let blocks = self.order.len() as u64;
        let most = (blocks / 2).min(64);
        if most < 2 {
            return;
        }
        let length = 2 + self.random.below(most - 1);
        let a = self.random.below(blocks + 1 - length);
        let b = self.random.below(blocks + 1 - length);
        if a.abs_diff(b) < length {
            return;
        }
        let before = self.cost;
        for at in 0..length {
            let (one, other) = (self.order[(a + at) as usize], self.order[(b + at) as usize]);
            self.exchange_places(one, other);
        }
        let change = self.cost - before;
        if !self.takes(change, temperature) {
            for at in 0..length {
                let (one, other) = (self.order[(a + at) as usize], self.order[(b + at) as usize]);
                self.exchange_places(one, other);
            }
            self.cost = before;
        }
    }

    fn exchange_places(&mut self, one: u32, other: u32) {
        let (site, seat) = (self.site_of[other as usize], self.seat_of[other as usize]);
        if site != self.site_of[one as usize] {
            let change = self.swap_change(one, seat, site);
            self.swap(one, seat, site, change);
        }
    }

    /// Takes the best swap of every block with somebody beside one of its peers, over and over,
    /// until no block has a better place or the work is done.
    fn descend(&mut self, effort: u64) {
        let until = self.looked + effort;
        let threshold = 1e-9 * self.cost / self.exchange.blocks() as f64;
        let mut targets: Vec<u32> = Vec::new();
        loop {
            let before = self.cost;
            for block in 0..self.exchange.blocks() as u32 {
                if until <= self.looked {
                    return;
                }
                targets.clear();
                let peers = self.exchange.peers(block as usize);
                targets.extend(peers.iter().map(|peer| self.site_of[peer.0 as usize]));
                targets.sort_unstable();
                targets.dedup();
                let mut best = (-threshold, 0, 0);
                for site in &targets {
                    if *site == self.site_of[block as usize] {
                        continue;
                    }
                    let first = self.first_seat[*site as usize];
                    for seat in first..self.first_seat[*site as usize + 1] {
                        let change = self.swap_change(block, seat, *site);
                        if change < best.0 {
                            best = (change, seat, *site);
                        }
                    }
                }
                if best.0 < -threshold {
                    self.swap(block, best.1, best.2, best.0);
                }
            }
            if before - self.cost <= threshold {
                return;
            }
        }
    }
}
