//! Next hops: which links lead from a node towards a destination.
//!
//! In a fabric with structure a packet goes up until it is above its destination and then down;
//! both are read off the [`Cover`](crate::graph::Cover)s, so nothing is stored per pair. After
//! failures the same ways are searched for one that is whole. Everywhere else, and where failures
//! leave no way of the usual length, a distance field per destination leaf is computed when it is
//! first asked for: one byte for each switch. Candidates come in the order of a node's ports.

use std::collections::BTreeMap;

use units::{Id, Rate};

use crate::graph::{Fabric, LinkId, NodeId, NodeKind};

/// What has failed or is slower than it should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    down: Vec<u64>,
    failures: usize,
    degraded: BTreeMap<LinkId, Rate>,
}

impl Health {
    /// Takes one direction of a cable out of service.
    pub fn fail(&mut self, link: LinkId) {
        let (word, bit) = (link.index() / 64, 1 << (link.index() % 64));
        if self.down.len() <= word {
            self.down.resize(word + 1, 0);
        }
        self.failures += usize::from(self.down[word] & bit == 0);
        self.down[word] |= bit;
    }

    /// Puts it back.
    pub fn restore(&mut self, link: LinkId) {
        if self.is_down(link) {
            self.down[link.index() / 64] &= !(1 << (link.index() % 64));
            self.failures -= 1;
        }
    }

    /// Lets a link run at a lower rate.
    pub fn degrade(&mut self, link: LinkId, rate: Rate) {
        self.degraded.insert(link, rate);
    }

    /// Lets it run as fast as it can again.
    pub fn repair(&mut self, link: LinkId) {
        self.degraded.remove(&link);
    }

    /// Whether the link is out of service.
    pub fn is_down(&self, link: LinkId) -> bool {
        self.down.get(link.index() / 64).is_some_and(|word| word >> (link.index() % 64) & 1 == 1)
    }

    /// Whether any link is out of service.
    pub fn has_failures(&self) -> bool {
        0 < self.failures
    }

    /// Whether any link runs at a lower rate than it could.
    pub fn has_slow_links(&self) -> bool {
        !self.degraded.is_empty()
    }

    /// The rate at which the link runs today.
    pub fn rate(&self, fabric: &Fabric, link: LinkId) -> Rate {
        self.degraded.get(&link).copied().unwrap_or(fabric.class(link).rate)
    }
}

/// Keeps what stays in the row of `at`, if anything does and the row comes first there.
pub(crate) fn keep_rows_first(fabric: &Fabric, at: NodeId, out: &mut Vec<LinkId>) {
    let here = fabric.nodes()[at];
    let is_beside = |link: &LinkId| {
        let next = fabric.nodes()[fabric.links()[*link].to];
        next.kind == NodeKind::Switch && next.zone == here.zone
    };
    let is_ordered = here.kind == NodeKind::Switch && fabric.is_rows_first(here.tier);
    if is_ordered && out.iter().any(is_beside) {
        out.retain(is_beside);
    }
}

/// Not reachable.
const FAR: u8 = u8::MAX;

/// Switches to look at before a distance field is the cheaper way to find out.
const SEARCH_BUDGET: usize = 4096;

/// Next hops on one fabric in one state of health.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    health: Health,
    /// Distance of every switch to a leaf, by the leaf's ordinal; filled on demand.
    fields: Vec<Option<Box<[u8]>>>,
}

impl Routes {
    /// Routes over a fabric in this state.
    pub fn new(health: Health) -> Self {
        Self { health, fields: Vec::new() }
    }

    /// Routes over a fabric as its settings describe it, with what has failed from the start.
    pub fn of(fabric: &Fabric) -> Self {
        Self::new(fabric.health().clone())
    }

    /// The state of the fabric.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Changes the state of the fabric and forgets what followed from the old one.
    pub fn set_health(&mut self, health: Health) {
        self.health = health;
        self.fields.clear();
    }

    /// Writes into `out` the links that lead from `at` one hop nearer to `to`, a NIC or a GPU.
    ///
    /// Empty if there is no way. NICs are reached over the scale-out network, GPUs over the
    /// scale-up network. A switch is reached only from its neighbours: reduction in the network
    /// goes from switch to switch along its own tree.
    pub fn next_hops(&mut self, fabric: &Fabric, at: NodeId, to: NodeId, out: &mut Vec<LinkId>) {
        out.clear();
        if at == to {
            return;
        }
        let kind = fabric.nodes()[to].kind;
        if matches!(kind, NodeKind::Switch | NodeKind::ScaleUpSwitch) {
            let adjacent = |link: &&LinkId| fabric.links()[**link].to == to;
            let live = |link: &&LinkId| !self.health.is_down(**link);
            out.extend(fabric.ports(at).iter().filter(adjacent).filter(live));
        } else if kind == NodeKind::Gpu {
            self.scale_up_hops(fabric, at, to, out);
        } else if !fabric.has_structure() {
            self.field_hops(fabric, at, to, out);
        } else {
            structured_hops(fabric, at, to, out);
            if self.health.has_failures() && !self.keep_live(fabric, to, out) {
                out.clear();
                self.field_hops(fabric, at, to, out);
            }
        }
    }

    /// Keeps the hops from which a way as long as without failures still leads on. No way is
    /// shorter, so what is kept is what distances would say, without computing any. Says no if
    /// nothing is left, or if that is too long to find out.
    fn keep_live(&self, fabric: &Fabric, to: NodeId, out: &mut Vec<LinkId>) -> bool {
        let mut budget = SEARCH_BUDGET;
        out.retain(|link| {
            !self.health.is_down(*link)
                && self.leads_on(fabric, fabric.links()[*link].to, to, &mut budget)
        });
        !out.is_empty() && 0 < budget
    }

    /// Whether a way that follows the structure leads from `at` to `to` over links in service.
    fn leads_on(&self, fabric: &Fabric, at: NodeId, to: NodeId, budget: &mut usize) -> bool {
        if at == to {
            return true;
        }
        *budget = budget.saturating_sub(1);
        if *budget == 0 {
            return false;
        }
        let mut hops = Vec::new();
        structured_hops(fabric, at, to, &mut hops);
        hops.iter().any(|link| {
            !self.health.is_down(*link)
                && self.leads_on(fabric, fabric.links()[*link].to, to, budget)
        })
    }

    fn scale_up_hops(&self, fabric: &Fabric, at: NodeId, to: NodeId, out: &mut Vec<LinkId>) {
        let live = |link: &&LinkId| !self.health.is_down(**link);
        let leads_to = |link: &&LinkId| fabric.links()[**link].to == to;
        out.extend(fabric.ports(at).iter().filter(leads_to).filter(live));
        if !out.is_empty() || fabric.nodes()[at].kind == NodeKind::ScaleUpSwitch {
            return;
        }
        let via = |link: &&LinkId| {
            let next = fabric.links()[**link].to;
            let is_switch = fabric.nodes()[next].kind == NodeKind::ScaleUpSwitch;
            is_switch && fabric.ports(next).iter().any(|down| fabric.links()[*down].to == to)
        };
        out.extend(fabric.ports(at).iter().filter(via).filter(live));
    }

    pub(crate) fn field_hops(
        &mut self,
        fabric: &Fabric,
        at: NodeId,
        to: NodeId,
        out: &mut Vec<LinkId>,
    ) {
        let attached: Vec<LinkId> =
            last_hops(fabric, to).filter(|link| !self.health.is_down(*link)).collect();
        out.extend(attached.iter().filter(|link| fabric.links()[**link].from == at));
        if !out.is_empty() {
            return;
        }
        let leaves: Vec<usize> = attached
            .iter()
            .filter_map(|link| fabric.leaf_ordinal(fabric.links()[*link].from))
            .map(|ordinal| ordinal as usize)
            .collect();
        for &leaf in &leaves {
            self.fill(fabric, leaf);
        }
        let distance = |node: NodeId| {
            let Some(ordinal) = fabric.switch_ordinal(node) else { return FAR };
            let fields = leaves.iter().filter_map(|&leaf| self.fields[leaf].as_ref());
            fields.map(|field| field[ordinal]).min().unwrap_or(FAR)
        };
        let live = |link: &&LinkId| !self.health.is_down(**link);
        let ports = || fabric.ports(at).iter().filter(live);
        let nearest = ports().map(|link| distance(fabric.links()[*link].to)).min().unwrap_or(FAR);
        if nearest < distance(at) {
            out.extend(ports().filter(|link| distance(fabric.links()[**link].to) == nearest));
            keep_rows_first(fabric, at, out);
        }
    }

    /// Computes the distances of all switches to one leaf, over links that are in service.
    fn fill(&mut self, fabric: &Fabric, leaf: usize) {
        if self.fields.len() <= leaf {
            self.fields.resize(fabric.leaves().len(), None);
        }
        if self.fields[leaf].is_some() {
            return;
        }
        let mut field = vec![FAR; fabric.switches().len()].into_boxed_slice();
        let start = fabric.leaves()[leaf];
        let ordinal = |node: NodeId| fabric.switch_ordinal(node);
        field[ordinal(start).expect("a leaf is a switch")] = 0;
        let (mut frontier, mut distance) = (vec![start], 0);
        while !frontier.is_empty() && distance < FAR - 1 {
            distance += 1;
            let mut reached = Vec::new();
            for &near in &frontier {
                for &out in fabric.ports(near) {
                    let inward = fabric.reverse(out);
                    let far = fabric.links()[out].to;
                    let Some(at) = ordinal(far) else { continue };
                    if field[at] == FAR && !self.health.is_down(inward) {
                        field[at] = distance;
                        reached.push(far);
                    }
                }
            }
            frontier = reached;
        }
        self.fields[leaf] = Some(field);
    }
}

/// The links from leaves to a NIC.
fn last_hops(fabric: &Fabric, nic: NodeId) -> impl Iterator<Item = LinkId> {
    fabric.ports(nic).iter().map(|link| fabric.reverse(*link))
}

fn structured_hops(fabric: &Fabric, at: NodeId, to: NodeId, out: &mut Vec<LinkId>) {
    out.extend(last_hops(fabric, to).filter(|link| fabric.links()[*link].from == at));
    if !out.is_empty() {
        return;
    }
    let leaf_of = |last: LinkId| fabric.leaf_ordinal(fabric.links()[last].from);
    let mut leaves = last_hops(fabric, to).filter_map(leaf_of);
    let Some(first) = leaves.next() else { return };
    let is_one = leaves.all(|leaf| leaf == first);
    let is_above = |node: NodeId| {
        let mut leaves = last_hops(fabric, to).filter_map(leaf_of);
        fabric.cover(node).is_some_and(|cover| leaves.any(|leaf| cover.contains(leaf)))
    };
    let (down, up) = fabric.ports_down_up(at);
    let Some(cover) = fabric.cover(at) else {
        // A NIC with a port in each plane must leave through one that its peer has too.
        let reaches = |link: &&LinkId| leads_above(fabric, fabric.links()[**link].to, &is_above);
        out.extend(up.iter().filter(reaches));
        return;
    };
    if is_one && cover.contains(first) {
        out.extend_from_slice(fabric.ports_above(at, first));
    } else if is_above(at) {
        out.extend(down.iter().filter(|link| is_above(fabric.links()[**link].to)));
    } else if leads_above(fabric, at, &is_above) {
        out.extend_from_slice(up);
    }
}

/// Whether a switch is above the destination, or has a switch above it that is. What is directly
/// above one switch leads to the same leaves in the end, so the first upward port is enough.
fn leads_above(fabric: &Fabric, switch: NodeId, is_above: &impl Fn(NodeId) -> bool) -> bool {
    let mut at = switch;
    loop {
        if is_above(at) {
            return true;
        }
        match fabric.ports_down_up(at).1.first() {
            Some(&up) => at = fabric.links()[up].to,
            None => return false,
        }
    }
}

/// The links that lead from a switch towards a leaf: down if it is above the leaf, and else up.
///
/// In a fabric with structure and without failures this is what [`Routes::next_hops`] finds for
/// NICs that hang on that leaf alone, without copying. Empty at the top of a plane that the leaf
/// is not part of.
#[inline]
pub fn towards_leaf(fabric: &Fabric, at: NodeId, leaf: u32) -> &[LinkId] {
    match fabric.cover(at) {
        Some(cover) if cover.contains(leaf) => fabric.ports_above(at, leaf),
        _ => fabric.ports_down_up(at).1,
    }
}
