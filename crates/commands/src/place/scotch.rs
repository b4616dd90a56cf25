//! The search's question in the formats of Scotch, to set its answer beside ours.
//!
//! The graph is Scotch's `.grf`: blocks as vertices, bytes as edge loads, scaled to whole numbers.
//! The target is a `sub`-architecture of a `tleaf` tree: the free units among all units of a tree
//! of zones, leaves and units; a unit that is not free, or that only fills the tree, is left out.
//! Source: the Scotch 7.0 user's guide, sections "Graph format" and "Target architecture file
//! format".

use std::fmt::Write as _;

use job::mapping::{Exchange, Sites};

use super::search::Placed;
use super::sites::Ground;

/// What Scotch needs to know.
#[derive(Clone, Debug)]
pub(super) struct Case {
    exchange: Exchange,
    sites: Sites,
    units: Vec<Vec<u32>>,
    order: Vec<u32>,
    gpus_per_unit: usize,
}

/// Edge loads add up to less than this, because Debian's Scotch counts in 32 bits.
const MOST_LOAD: f64 = 1e9;

impl Case {
    pub(super) fn of(ground: &Ground, found: &Placed) -> Self {
        Self {
            exchange: found.exchange.clone(),
            sites: ground.sites.clone(),
            units: ground.units.clone(),
            order: found.order.clone(),
            gpus_per_unit: ground.gpus_per_unit,
        }
    }

    pub(super) fn files(&self) -> [(&'static str, String); 3] {
        let (target, seats) = self.target();
        [("blocks.grf", self.graph()), ("servers.tgt", target), ("seats.csv", seats)]
    }

    fn graph(&self) -> String {
        let exchange = &self.exchange;
        let all: f64 = exchange.pairs().map(|pair| pair.2).sum();
        let scale = if 0.0 < all { MOST_LOAD / (2.0 * all) } else { 1.0 };
        let arcs: usize = (0..exchange.blocks()).map(|block| exchange.peers(block).len()).sum();
        let mut text = format!("0\n{} {arcs}\n0 010\n", exchange.blocks());
        for block in 0..exchange.blocks() {
            let peers = exchange.peers(block);
            write!(text, "{}", peers.len()).expect("a string takes it all");
            for (peer, bytes) in peers {
                let load = (bytes * scale).round().max(1.0) as u64;
                write!(text, "\t{load} {peer}").expect("a string takes it all");
            }
            text.push('\n');
        }
        text
    }

    /// The target, and for each of its domains the unit that it is: the first GPU.
    fn target(&self) -> (String, String) {
        // Sites that meet below the same switches: two cables apart.
        let mut zones: Vec<Vec<usize>> = Vec::new();
        for site in 0..self.sites.len() {
            let near = |zone: &&mut Vec<usize>| self.sites.distance(zone[0], site) < 2.5;
            match zones.iter_mut().find(near) {
                Some(zone) => zone.push(site),
                None => zones.push(vec![site]),
            }
        }
        let leaves = zones.iter().map(Vec::len).max().unwrap_or(1);
        let each = self.units.iter().map(Vec::len).max().unwrap_or(1);
        let mut domains = Vec::new();
        let mut seats = String::from("domain,first_gpu\n");
        for (zone, sites) in zones.iter().enumerate() {
            for (leaf, site) in sites.iter().enumerate() {
                for (at, unit) in self.units[*site].iter().enumerate() {
                    let domain = domains.len();
                    domains.push((zone * leaves + leaf) * each + at);
                    let gpu = *unit as usize * self.gpus_per_unit;
                    writeln!(seats, "{domain},{gpu}").expect("a string takes it all");
                }
            }
        }
        writeln!(seats, "# ranks,{}", self.gpus_per_unit).expect("a string takes it all");
        let ranks: Vec<String> = self.order.iter().map(u32::to_string).collect();
        writeln!(seats, "# order,{}", ranks.join(" ")).expect("a string takes it all");
        // A cable above a leaf weighs so much more than one below that only those count.
        let levels = [(zones.len(), 1000), (leaves, 1000), (each, 1)];
        let levels: Vec<_> = levels.into_iter().filter(|level| 1 < level.0).collect();
        let mut target = format!("sub\n{}\n", domains.len());
        for domain in domains {
            writeln!(target, "{domain}").expect("a string takes it all");
        }
        write!(target, "tleaf\n{}", levels.len()).expect("a string takes it all");
        for (size, cost) in levels {
            write!(target, " {size} {cost}").expect("a string takes it all");
        }
        target.push('\n');
        (target, seats)
    }
}
