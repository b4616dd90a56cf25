//! Links that evenly spread traffic always uses together, each set as one wide link.
//!
//! Where packets are spread over all candidates, every way up from a leaf carries the same share of
//! each flow: the leaf's uplinks, then all uplinks of all switches above it, and so on; on the way
//! down the same sets in reverse. So a set with `n` links of capacity `c` is exactly one link of
//! capacity `n · c`, and a flow that is spread over thousands of links crosses six of them. This
//! holds in regular fabrics that are routed up and then down and have not failed; elsewhere flows
//! are laid link by link.

use fabric::{Fabric, Health, LinkId, NodeId};

/// No bundle.
const NONE: u32 = u32::MAX;

/// A set of links that lead from one set of switches up to another.
#[derive(Clone, Debug)]
struct Bundle {
    links: Vec<LinkId>,
    /// The switches that it leads up from: the first of them and how many.
    peers: (NodeId, usize),
    /// The switches that it leads to.
    above: (NodeId, usize),
}

/// The bundles of a fabric, found when they are first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundles {
    bundles: Vec<Bundle>,
    /// By switch: the bundle that leads up from it and its peers.
    up_from: Vec<u32>,
}

/// One direction of a bundle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Wide {
    bundle: u32,
    down: bool,
}

impl Wide {
    /// Its place among all directed bundles.
    pub(crate) fn index(self) -> usize {
        2 * self.bundle as usize + usize::from(self.down)
    }
}

impl Bundles {
    /// Bundles for a fabric that allows them: structured, and with nothing failed or slow.
    pub(crate) fn new(fabric: &Fabric, health: &Health) -> Option<Self> {
        let usable = fabric.has_structure() && *health == Health::default();
        usable.then(|| Self { up_from: vec![NONE; fabric.switches().len()], ..Self::default() })
    }

    /// The bundles between two leaves, up and then down; `None` if the fabric is not regular there
    /// or one cannot be reached from the other.
    pub(crate) fn between(
        &mut self,
        fabric: &Fabric,
        from: NodeId,
        to: NodeId,
        out: &mut Vec<Wide>,
    ) -> Option<()> {
        out.clear();
        let target = fabric.leaf_ordinal(to)?;
        let (mut here, mut there) = ((from, 1), (to, 1));
        while !fabric.cover(here.0)?.contains(target) {
            let (up, down) = (self.above(fabric, here)?, self.above(fabric, there)?);
            out.push(Wide { bundle: up, down: false });
            out.push(Wide { bundle: down, down: true });
            here = self.bundles[up as usize].above;
            there = self.bundles[down as usize].above;
        }
        if here != there {
            return None;
        }
        // Pushed in pairs: the way up in order, then the way down in reverse.
        let (ups, downs): (Vec<Wide>, Vec<Wide>) = out.iter().partition(|wide| !wide.down);
        out.clear();
        out.extend(ups.into_iter().chain(downs.into_iter().rev()));
        Some(())
    }

    /// How many directed bundles there are.
    pub(crate) fn len(&self) -> usize {
        2 * self.bundles.len()
    }

    /// The links of a directed bundle, by its place.
    pub(crate) fn links(&self, fabric: &Fabric, index: usize) -> impl Iterator<Item = LinkId> {
        let reverse = index % 2 == 1;
        let links = self.bundles[index / 2].links.iter();
        links.map(move |link| if reverse { fabric.reverse(*link) } else { *link })
    }

    /// The bundle that leads up from a set of switches, given the first of them and how many.
    fn above(&mut self, fabric: &Fabric, peers: (NodeId, usize)) -> Option<u32> {
        let at = fabric.switch_ordinal(peers.0)?;
        if self.up_from[at] == NONE {
            self.find(fabric, peers.0)?;
        }
        let id = self.up_from[at];
        (self.bundles[id as usize].peers == peers).then_some(id)
    }

    /// Finds the peers of a switch that is above a leaf or one itself, and what leads up from all.
    fn find(&mut self, fabric: &Fabric, switch: NodeId) -> Option<()> {
        // Peers are the switches of its level above the same leaves that its first leaf reaches.
        let mut peers = vec![first_leaf_below(fabric, switch)?];
        while !peers.contains(&switch) {
            peers = parents(fabric, &peers)?;
        }
        let degree = fabric.ports_down_up(switch).1.len();
        let mut links = Vec::with_capacity(degree * peers.len());
        for &peer in &peers {
            let up = fabric.ports_down_up(peer).1;
            if up.len() != degree || up.is_empty() {
                return None;
            }
            links.extend_from_slice(up);
        }
        let alike =
            links.iter().all(|link| fabric.links()[*link].class == fabric.links()[links[0]].class);
        let above = parents(fabric, &peers)?;
        if !alike {
            return None;
        }
        let id = self.bundles.len() as u32;
        for &peer in &peers {
            self.up_from[fabric.switch_ordinal(peer)?] = id;
        }
        let (peers, above) = ((peers[0], peers.len()), (above[0], above.len()));
        self.bundles.push(Bundle { links, peers, above });
        Some(())
    }
}

/// A leaf below a switch, or the switch itself if it is one.
fn first_leaf_below(fabric: &Fabric, switch: NodeId) -> Option<NodeId> {
    let first = fabric.cover(switch)?.first;
    fabric.leaves().get(first as usize).copied()
}

/// The switches directly above a set of switches, if each is reached by equally many links.
fn parents(fabric: &Fabric, switches: &[NodeId]) -> Option<Vec<NodeId>> {
    let ups = switches.iter().flat_map(|switch| fabric.ports_down_up(*switch).1);
    let mut above: Vec<NodeId> = ups.map(|link| fabric.links()[*link].to).collect();
    above.sort_unstable();
    let mut runs = above.chunk_by(|a, b| a == b).map(<[NodeId]>::len);
    let first = runs.next()?;
    if !runs.all(|run| run == first) {
        return None;
    }
    above.dedup();
    Some(above)
}
