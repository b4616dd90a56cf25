//! The search: a job's blocks, what they exchange, and the sites that they get.
//!
//! A block is what one unit runs: as many consecutive ranks as it has GPUs, in the job's own
//! numbering or in the one of `topology-aware`. What blocks exchange is followed byte by byte as
//! `traffic` does it, on the servers in order; rings and trees follow the ranks, so it is the same
//! wherever the blocks go.

use job::mapping::{self, Effort, Exchange};
use job::placement::{Placement, PlacementError, topology_aware_order};
use job::{Layout, Program};
use scenario::Loaded;
use traffic::nccl::Settings;

use super::sites::Ground;
use crate::failure::Failure;
use crate::traffic::Walk;

/// A way to cut a job into blocks: its ranks in the order of the seats that they take.
pub(super) type Order = Vec<u32>;

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// The GPU of every rank.
    pub(crate) placement: Placement,
    /// The unit of every block, and the ranks of the blocks one after the other.
    pub(super) unit_of: Vec<u32>,
    pub(super) order: Order,
    /// What the blocks exchange.
    pub(super) exchange: Exchange,
}

/// What the search looks at.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    /// The scenario.
    pub(crate) loaded: &'a Loaded,
    /// What a step exchanges.
    pub(crate) program: &'a Program,
    /// By what software.
    pub(crate) settings: &'a Settings,
}

impl Question<'_> {
    fn layout(&self) -> &Layout {
        &self.program.job.layout
    }

    /// Gives every rank a GPU on the free servers.
    pub(super) fn answer(&self, ground: &Ground) -> Result<Placed, Failure> {
        let fabric = self.loaded.fabric();
        let layout = self.layout();
        let ranks = layout.gpus();
        let each = ground.gpus_per_unit as u64;
        let blocks = usize::try_from(ranks.div_ceil(each)).expect("blocks fit memory");
        if ground.count() < blocks {
            let free = ground.count() as u64 * each;
            let error = PlacementError::NoSeats { needed: ranks, free };
            return Err(self.loaded.problem("job.placement", error.to_string()).into());
        }
        let as_numbered: Order = (0..ranks as u32).collect();
        let mut best: Option<(f64, Placed)> = None;
        for order in [as_numbered, topology_aware_order(layout)] {
            let cut = |order: &Order| -> Vec<Vec<u32>> {
                order.chunks(ground.gpus_per_unit).map(<[u32]>::to_vec).collect()
            };
            let alike = best.as_ref().is_some_and(|(_, found)| {
                let (mut own, mut known) = (cut(&order), cut(&found.order));
                own.sort_unstable();
                known.sort_unstable();
                own == known
            });
            if alike {
                continue;
            }
            let exchange = self.exchange(ground, &order)?;
            let orders = block_orders(layout, &order, ground.gpus_per_unit);
            let seed = self.loaded.scenario.seed;
            let site_of = mapping::map(&exchange, &ground.sites, &orders, seed, Effort::default());
            let site_of = site_of.expect("seats were counted before");
            let cost = mapping::cost(&exchange, &ground.sites, &site_of);
            if best.as_ref().is_none_or(|(known, _)| cost < *known) {
                let unit_of = units_of(ground, &site_of);
                let gpus = gpus_of(&order, &unit_of, ground.gpus_per_unit);
                let placement = Placement::of(gpus, fabric.gpus() as u64);
                let placement = placement.expect("units were taken once");
                best = Some((cost, Placed { placement, unit_of, order, exchange }));
            }
        }
        Ok(best.expect("the job's own numbering was tried").1)
    }

    /// What blocks exchange in a step, in bytes.
    fn exchange(&self, ground: &Ground, order: &Order) -> Result<Exchange, Failure> {
        let fabric = self.loaded.fabric();
        let mut units: Vec<u32> = ground.units.concat();
        units.sort_unstable();
        let blocks = order.len().div_ceil(ground.gpus_per_unit);
        let gpus = gpus_of(order, &units[..blocks], ground.gpus_per_unit);
        let placement = Placement::of(gpus, fabric.gpus() as u64);
        let placement = placement.expect("units are taken once");
        let settings = self.settings;
        let walk = Walk { program: self.program, fabric, placement: &placement, settings };
        let mut block_of = vec![u32::MAX; fabric.servers() / ground.servers_per_unit + 1];
        for (block, unit) in (0..).zip(&units[..blocks]) {
            block_of[*unit as usize] = block;
        }
        let block = |nic| {
            let server = fabric.server_of(nic)?;
            Some(block_of[server / ground.servers_per_unit])
        };
        let mut edges: Vec<(u32, u32, f64)> = Vec::new();
        walk.each(&mut |line| {
            // What switches reduce has a switch at one end; it follows the blocks anyway.
            if let (Some(a), Some(b)) = (block(line.connection.from), block(line.connection.to)) {
                match edges.last_mut() {
                    Some(last) if (last.0, last.1) == (a, b) => last.2 += line.total(),
                    _ => edges.push((a, b, line.total())),
                }
            }
        })?;
        Ok(Exchange::new(blocks, edges))
    }
}

/// The units of the blocks: those of each site in order.
fn units_of(ground: &Ground, site_of: &[u32]) -> Vec<u32> {
    let mut next = vec![0; ground.units.len()];
    let unit = |site: &u32| {
        let (site, next) = (*site as usize, &mut next[*site as usize]);
        *next += 1;
        ground.units[site][*next - 1]
    };
    site_of.iter().map(unit).collect()
}

/// The GPU of every rank.
fn gpus_of(order: &Order, unit_of: &[u32], each: usize) -> Vec<u32> {
    let mut gpus = vec![0; order.len()];
    for (at, rank) in order.iter().enumerate() {
        gpus[*rank as usize] = unit_of[at / each] * each as u32 + (at % each) as u32;
    }
    gpus
}

/// Orders of the blocks that keep different neighbours together: tiles of so many stages by so many
/// copies, laid out along either.
fn block_orders(layout: &Layout, order: &Order, each: usize) -> Vec<Vec<u32>> {
    let places: Vec<(u64, u64)> = order
        .chunks(each)
        .map(|block| {
            let at = layout.coordinates(u64::from(block[0]));
            (at.pp, at.cp + layout.cp * at.dp)
        })
        .collect();
    let sides = |all: u64| -> Vec<u64> {
        let mut sides: Vec<u64> =
            (0..).map(|power| 1 << power).take_while(|side| *side < all).collect();
        sides.push(all);
        sides
    };
    let mut orders = Vec::new();
    for stages in sides(layout.pp) {
        for copies in sides(layout.cp * layout.dp) {
            let by_stage = |(stage, copy): (u64, u64)| {
                (stage / stages, copy / copies, stage % stages, copy % copies)
            };
            let by_copy = |(stage, copy): (u64, u64)| {
                (copy / copies, stage / stages, copy % copies, stage % stages)
            };
            let mut blocks: Vec<u32> = (0..places.len() as u32).collect();
            blocks.sort_by_key(|block| by_stage(places[*block as usize]));
            orders.push(blocks.clone());
            blocks.sort_by_key(|block| by_copy(places[*block as usize]));
            orders.push(blocks);
        }
    }
    orders.sort_unstable();
    orders.dedup();
    orders
}
