//! What the links of a fabric did, as pictures: tier by link, how evenly, and the fabric drawn.
//!
//! A link's load is what it carried over what it could have carried, both directions apart. All
//! pictures are thinned here, never in the page: cells of the heat map and cables of the drawing
//! show the busiest of what they stand for, so that no hot link is lost.

use std::collections::BTreeMap;

use fabric::graph::LinkKind;
use fabric::{Fabric, Link, LinkId, Node, NodeId, NodeKind};
use report::chart::histogram;
use report::number::{bits_per_second, grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Sheet, Table, TreeNode, Unit};

/// Cells of a tier in the heat map.
const CELLS: usize = 96;
/// Ranges of the histogram.
const RANGES: usize = 30;
/// Above so many NICs the drawing ends at the leaves.
const MOST_NICS: usize = 32_768;

/// One direction of one kind of cable.
#[derive(Clone, Debug, PartialEq)]
struct Tier {
    name: String,
    between_switches: bool,
    links: Vec<(LinkId, f64)>,
}

/// What the links did, ready to be drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pictures {
    balance: Vec<Balance>,
    cells: Frame,
    merged: usize,
    ranges: Frame,
    /// Of the links in the histogram those that carry nothing, and all of them.
    idle: [usize; 2],
    root: TreeNode,
}

/// How evenly one tier was used.
#[derive(Clone, Debug, PartialEq)]
struct Balance {
    tier: String,
    links: u64,
    mean: f64,
    most: f64,
    idle: f64,
}

impl Pictures {
    /// Draws links by their load.
    pub(crate) fn of(fabric: &Fabric, load: &dyn Fn(LinkId) -> f64) -> Self {
        let tiers = tiers(fabric, load);
        let (cells, merged) = cells(fabric, &tiers);
        let (ranges, idle) = ranges(&tiers);
        Self {
            balance: tiers.iter().map(balance).collect(),
            cells,
            merged,
            ranges,
            idle,
            root: unfolded(tree(fabric, Some(load))),
        }
    }

    /// Adds all of them to a sheet.
    pub(crate) fn show(&self, sheet: Sheet, heading: &str) -> Sheet {
        let sheet = sheet.heading(heading);
        if self.balance.iter().all(|tier| tier.most <= 0.0) {
            return sheet.text("No link between NICs was used.");
        }
        let sheet = sheet.table(self.table()).chart(self.heat()).chart(self.histogram());
        sheet.chart(self.drawing())
    }

    /// How evenly each tier was used.
    fn table(&self) -> Table {
        let mut table = Table::new([
            ("links", Align::Left),
            ("count", Align::Right),
            ("mean load", Align::Right),
            ("busiest", Align::Right),
            ("imbalance", Align::Right),
            ("idle", Align::Right),
        ]);
        for Balance { tier, links, mean, most, idle } in &self.balance {
            let ratio = if *mean > 0.0 { significant(most / mean) } else { "–".to_owned() };
            let [mean, most, idle] = [mean, most, idle].map(|share| percent(*share));
            table.row([tier.clone(), grouped(*links), mean, most, ratio, idle]);
        }
        table
    }

    /// Tier by link.
    fn heat(&self) -> Chart {
        let merged = match self.merged {
            0 | 1 => String::new(),
            most => format!(" A cell is the busiest of up to {most} neighbours."),
        };
        Chart::new(ChartKind::Heat, "Load of every link, tier by tier", self.cells.clone())
            .caption(format!(
                "A row is one direction of one kind of cable, a cell a link, in the order of the \
                 switches; an empty one carries nothing. An even row is balanced; bright cells in \
                 a dark row are collisions.{merged}"
            ))
            .axes("position", "links")
            .coloured_by("load")
            .named_by("link")
            .labels(if 1 < self.merged { "cells in order" } else { "links in order" }, "")
            .legend("load", Unit::Share)
    }

    /// How evenly.
    fn histogram(&self) -> Chart {
        let idle = match self.idle {
            [0, _] => String::new(),
            [idle, all] => {
                let [idle, all] = [idle, all].map(|count| grouped(count as u64));
                format!(" Not drawn: {idle} of {all} that nobody uses.")
            }
        };
        Chart::new(ChartKind::Histogram, "How evenly links are loaded", self.ranges.clone())
            .caption(format!(
                "Links by their load. One narrow peak is even; a tail to the right are the links \
                 that everybody waits for.{idle}"
            ))
            .axes("from", "count")
            .spans("from", "to")
            .by("links")
            .labels("load", "links")
            .units(Unit::Share, Unit::Number)
    }

    /// The fabric with the loads on its cables.
    fn drawing(&self) -> Chart {
        Chart::tree("The fabric, with the load on its cables", self.root.clone()).caption(
            "Each line stands for the cables that lead up from a part; its width tells how many \
             there are, its colour and label how loaded the busiest direction of them is. Click, \
             or press Enter, to unfold.",
        )
    }
}

/// The fabric as it is built, before anything runs.
pub(crate) fn drawing(fabric: &Fabric) -> Chart {
    Chart::tree("The fabric, from the cluster down to the nodes", tree(fabric, None)).caption(
        "Each line stands for the cables that lead up from a part; its width tells how many there \
         are. Click, or press Enter, to unfold.",
    )
}

/// The busiest links of every tier, from the bottom up; idle ones are left out.
pub(crate) fn busiest_of_each(
    fabric: &Fabric,
    load: &dyn Fn(LinkId) -> f64,
    all: usize,
) -> Vec<LinkId> {
    let mut tiers = tiers(fabric, load);
    let each = (all / tiers.len().max(1)).max(1);
    let mut busiest = Vec::new();
    for tier in &mut tiers {
        tier.links.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let used = tier.links.iter().take(each).filter(|(_, load)| 0.0 < *load);
        busiest.extend(used.map(|(link, _)| *link));
    }
    busiest
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// How high a node stands: endpoints below switches.
fn level(node: Node) -> u8 {
    if node.kind == NodeKind::Switch { node.tier + 1 } else { 0 }
}

/// The links of the back-end by kind and direction, from the bottom up.
fn tiers(fabric: &Fabric, load: &dyn Fn(LinkId) -> f64) -> Vec<Tier> {
    let mut tiers: BTreeMap<(u8, u8, bool), Tier> = BTreeMap::new();
    for (id, link) in fabric.links().enumerate() {
        if !is_back_end(fabric, id) {
            continue;
        }
        let ends = [link.from, link.to].map(|end| fabric.nodes()[end]);
        let (from, to) = (level(ends[0]), level(ends[1]));
        let key = (from.min(to), from.max(to), to < from);
        let tier = tiers.entry(key).or_insert_with(|| Tier {
            name: format!("{} → {}", what(fabric, ends[0]), what(fabric, ends[1])),
            between_switches: 0 < from && 0 < to,
            links: Vec::new(),
        });
        tier.links.push((id, load(id)));
    }
    tiers.into_values().collect()
}

fn is_back_end(fabric: &Fabric, link: LinkId) -> bool {
    matches!(fabric.class(link).kind, LinkKind::ScaleOut | LinkKind::Circuit)
}

fn what(fabric: &Fabric, node: Node) -> &str {
    match node.kind {
        NodeKind::Switch => &fabric.tiers()[usize::from(node.tier)].name,
        _ => "NIC",
    }
}

fn balance(tier: &Tier) -> Balance {
    let count = tier.links.len().max(1) as f64;
    Balance {
        tier: tier.name.clone(),
        links: tier.links.len() as u64,
        mean: tier.links.iter().map(|(_, load)| load).sum::<f64>() / count,
        most: tier.links.iter().map(|(_, load)| *load).fold(0.0, f64::max),
        idle: tier.links.iter().filter(|(_, load)| *load <= 0.0).count() as f64 / count,
    }
}

/// The cells of the heat map, and how many links the fullest stands for.
fn cells(fabric: &Fabric, tiers: &[Tier]) -> (Frame, usize) {
    let mut frame = Frame::new(&["position", "links", "load", "link"]);
    let mut merged = 0;
    for Tier { name, links, .. } in tiers.iter().rev() {
        let cells = links.len().min(CELLS);
        for cell in 0..cells {
            let range = links.len() * cell / cells..links.len() * (cell + 1) / cells;
            merged = merged.max(range.len());
            let busiest = links[range].iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let (link, load) = busiest.expect("a cell stands for a link");
            let name_of_link = fabric.link_name(*link);
            frame.push(vec![
                (cell + 1).into(),
                name.as_str().into(),
                rounded(*load),
                name_of_link.into(),
            ]);
        }
    }
    (frame, merged)
}

/// Four digits are enough for a colour, and keep pages small.
fn rounded(load: f64) -> serde_json::Value {
    ((load * 1e5).round() / 1e5).into()
}

/// Links in use between switches by load, or those of NICs where there are no others; and how many
/// of how many are idle.
fn ranges(tiers: &[Tier]) -> (Frame, [usize; 2]) {
    let inner = tiers.iter().any(|tier| tier.between_switches);
    let shown = || tiers.iter().filter(|tier| tier.between_switches || !inner);
    let loads = shown().flat_map(|tier| tier.links.iter().map(|(_, load)| *load));
    let most = loads.fold(0.0, f64::max);
    let mut frame = Frame::new(&["from", "to", "count", "links"]);
    let mut idle = [0, 0];
    for tier in shown() {
        let used = tier.links.iter().map(|(_, load)| *load).filter(|load| 0.0 < *load);
        let loads: Vec<f64> = used.collect();
        idle = [idle[0] + tier.links.len() - loads.len(), idle[1] + tier.links.len()];
        for (from, to, count) in histogram(&loads, most, RANGES) {
            frame.push(vec![from.into(), to.into(), count.into(), tier.name.as_str().into()]);
        }
    }
    (frame, idle)
}

type Load<'a> = Option<&'a dyn Fn(LinkId) -> f64>;

/// From the cluster to zones, to leaves, to nodes or NICs.
fn tree(fabric: &Fabric, load: Load<'_>) -> TreeNode {
    let mut zones: BTreeMap<u32, Vec<TreeNode>> = BTreeMap::new();
    for leaf in fabric.leaves() {
        let below: Vec<NodeId> = neighbours(fabric, *leaf)
            .filter(|(_, node)| fabric.nodes()[*node].kind == NodeKind::Nic)
            .map(|(_, node)| node)
            .collect();
        if !below.is_empty() {
            let zone = fabric.nodes()[*leaf].zone;
            zones.entry(zone).or_default().push(leaf_part(fabric, *leaf, &below, load));
        }
    }
    let mut root = TreeNode {
        name: format!("{} GPUs", grouped(fabric.gpus() as u64)),
        open: true,
        ..TreeNode::default()
    };
    if zones.len() == 1 {
        root.children = zones.into_values().flatten().collect();
        return root;
    }
    let word = fabric.networks().first().map_or("zone", |network| &network.zone_word);
    let mut leaving = leaving_zones(fabric);
    for (zone, leaves) in zones {
        let up = leaving.remove(&zone).unwrap_or_default();
        let name = format!("{word} {zone}");
        root.children.push(TreeNode { children: leaves, ..part(fabric, name, &up, load) });
    }
    root
}

/// The same, open down to where something is loaded, where nothing leads up to what is shown.
fn unfolded(mut node: TreeNode) -> TreeNode {
    fn below(node: &TreeNode) -> f64 {
        node.children
            .iter()
            .map(|child| child.load.unwrap_or(0.0).max(below(child)))
            .fold(0.0, f64::max)
    }
    if node.children.iter().all(|child| child.load.unwrap_or(0.0) <= 0.0)
        && let Some(busiest) = node.children.iter_mut().max_by(|a, b| below(a).total_cmp(&below(b)))
        && 0.0 < below(busiest)
    {
        *busiest = unfolded(TreeNode { open: true, ..std::mem::take(busiest) });
    }
    node
}

fn neighbours(fabric: &Fabric, node: NodeId) -> impl Iterator<Item = (LinkId, NodeId)> {
    let back_end = fabric.ports(node).iter().filter(|link| is_back_end(fabric, **link));
    back_end.map(|link| (*link, fabric.links()[*link].to))
}

/// By zone: links from its switches to switches that belong to another zone, or to none.
fn leaving_zones(fabric: &Fabric) -> BTreeMap<u32, Vec<LinkId>> {
    let in_zones = zoned_tiers(fabric);
    let is_in_zone = |node: Node| in_zones.get(usize::from(node.tier)).is_some_and(|is| *is);
    let zone_of = |node: Node| is_in_zone(node).then_some(node.zone);
    let mut leaving: BTreeMap<u32, Vec<LinkId>> = BTreeMap::new();
    for (id, &Link { from, to, .. }) in fabric.links().enumerate() {
        let [from, to] = [from, to].map(|node| fabric.nodes()[node]);
        let between_switches = [from, to].iter().all(|node| node.kind == NodeKind::Switch);
        if let (true, Some(zone)) = (between_switches && is_back_end(fabric, id), zone_of(from))
            && zone_of(to) != Some(zone)
        {
            leaving.entry(zone).or_default().push(id);
        }
    }
    leaving
}

/// By tier: whether its switches belong to several zones.
fn zoned_tiers(fabric: &Fabric) -> Vec<bool> {
    let mut seen = vec![None; fabric.tiers().len()];
    let mut zoned = vec![false; fabric.tiers().len()];
    for switch in fabric.switches() {
        let Node { kind, tier, zone, .. } = fabric.nodes()[switch];
        if kind == NodeKind::Switch {
            let tier = usize::from(tier);
            zoned[tier] |= *seen[tier].get_or_insert(zone) != zone;
        }
    }
    zoned
}

fn leaf_part(fabric: &Fabric, leaf: NodeId, nics: &[NodeId], load: Load<'_>) -> TreeNode {
    let is_switch = |node: NodeId| fabric.nodes()[node].kind == NodeKind::Switch;
    let up: Vec<LinkId> =
        neighbours(fabric, leaf).filter(|(_, to)| is_switch(*to)).map(|(link, _)| link).collect();
    let mut node = part(fabric, fabric.name(leaf), &up, load);
    if fabric.nics() <= MOST_NICS {
        node.children = endpoints(fabric, leaf, nics, load);
    }
    node
}

/// What hangs on a leaf: whole nodes where all their NICs do, single NICs otherwise.
fn endpoints(fabric: &Fabric, leaf: NodeId, nics: &[NodeId], load: Load<'_>) -> Vec<TreeNode> {
    let mut servers: BTreeMap<Option<usize>, Vec<NodeId>> = BTreeMap::new();
    for nic in nics {
        servers.entry(fabric.server_of(*nic)).or_default().push(*nic);
    }
    let to_leaf = |nic: &NodeId| {
        let cables = neighbours(fabric, *nic).filter(|(_, to)| *to == leaf);
        cables.map(|(link, _)| link).collect::<Vec<_>>()
    };
    let mut parts = Vec::new();
    for (server, mut nics) in servers {
        nics.sort_unstable();
        nics.dedup();
        let whole = nics.len() == fabric.nics_per_node();
        match server {
            Some(server) if whole => {
                let up: Vec<LinkId> = nics.iter().flat_map(to_leaf).collect();
                parts.push(part(fabric, format!("node {server}"), &up, load));
            }
            _ => parts.extend(nics.iter().map(|nic| {
                let node = server.map_or_else(String::new, |server| format!(" (node {server})"));
                part(fabric, fabric.name(*nic) + &node, &to_leaf(nic), load)
            })),
        }
    }
    parts
}

/// A part with the cables that lead up from it.
fn part(fabric: &Fabric, name: String, up: &[LinkId], load: Load<'_>) -> TreeNode {
    let cables = up.len() as u64;
    let both = up.iter().flat_map(|link| [*link, fabric.reverse(*link)]);
    let loads: Option<Vec<f64>> = load.map(|load| both.map(load).collect());
    let rate: f64 = up.iter().map(|link| fabric.class(*link).rate.bytes_per_s() * 8.0).sum();
    let note = match &loads {
        _ if up.is_empty() => "nothing leads up".to_owned(),
        Some(loads) => {
            let mean = loads.iter().sum::<f64>() / loads.len() as f64;
            format!("{} up, mean {}", bits_per_second(rate), percent(mean))
        }
        None => format!("{} up", bits_per_second(rate)),
    };
    let busiest = loads.map(|loads| loads.into_iter().fold(0.0, f64::max));
    let load = busiest.filter(|_| 0 < cables).map(|load| (load * 1e5).round() / 1e5);
    TreeNode { name, cables, load, note, ..TreeNode::default() }
}
