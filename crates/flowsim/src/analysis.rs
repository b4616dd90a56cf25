//! What the links did and why: imbalance, idle links, collisions, the worst links in words.
//!
//! Links are compared with those they stand beside: all that lead from one tier to another, or the
//! NICs of one rail. Only switches and NICs that carried anything count, so that a job on a part of
//! the cluster is not told that the rest was idle.

use std::collections::BTreeMap;

use fabric::graph::LinkKind;
use fabric::hash::FlowKey;
use fabric::{Fabric, LinkId};
use serde::Serialize;
use traffic::{ConnectionId, LabelId, OpKind, Outcome, Transfers};
use units::Id;

mod groups;

use groups::View;

pub use groups::imbalance;

use crate::paths::Paths;
use crate::series::Series;

/// How unevenly something is spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Imbalance {
    /// The largest over the mean: 1 is perfect. Meta's MMR, if flows are counted.
    pub max_over_mean: f64,
    /// Jain's fairness index: 1 is perfect, `1/n` is everything on one.
    pub jain: f64,
    /// The share that has nothing.
    pub idle: f64,
}

/// What links did over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverTime {
    /// From one point to the next.
    pub interval_s: f64,
    /// The share of their rate that they carried from each point to the next.
    pub utilisation: Vec<f64>,
}

/// Links that stand beside each other, and what they carried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkGroup {
    /// "leaf → spine", "NIC → leaf, rail 3".
    pub name: String,
    /// Whether they lie between switches.
    pub between_switches: bool,
    /// How many there are at switches or NICs that carried anything.
    pub links: usize,
    /// Bytes over all of them.
    pub bytes: u64,
    /// The share of its time that the busiest was busy.
    pub max_utilisation: f64,
    /// The share of their time that they were busy.
    pub mean_utilisation: f64,
    /// By bytes, over all of them.
    pub by_bytes: Imbalance,
    /// By queue pairs, over all of them.
    pub by_flows: Imbalance,
    /// By bytes, over the links of one switch; the mean over the switches.
    pub at_switch: Imbalance,
    /// Over time, their mean; only the flow engine knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
}

/// A queue pair on a link that it shares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sharer {
    /// The sending NIC.
    pub from: String,
    /// The receiving NIC.
    pub to: String,
    /// Its UDP source port.
    pub src_port: u16,
    /// Its number at the receiver.
    pub dst_qpn: u32,
}

/// Queue pairs of a link that are named at most.
const MOST_SHARERS: usize = 16;

/// Who a link carries, where no more is known than how many.
fn crossed(flows: u32, name: &str) -> String {
    match flows {
        0 => format!("no flow has {name} on its own way"),
        1 => format!("1 flow crosses {name}"),
        _ => format!("{flows} flows share {name}"),
    }
}

/// A link that many flows share, and why it is slow.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstLink {
    /// Which.
    pub link: LinkId,
    /// Its name.
    pub name: String,
    /// Bytes that it carried.
    pub bytes: u64,
    /// The share of the run that it was busy.
    pub utilisation: f64,
    /// Queue pairs on it.
    pub flows: u32,
    /// Its bytes over the mean of the links beside it: how much longer they take than if they were
    /// spread.
    pub excess: f64,
    /// What that costs: how much sooner the link would be done with the mean of those beside it.
    pub lost_s: f64,
    /// Why, in words.
    pub why: String,
    /// The first of the queue pairs that share it; none where packets are spread.
    pub sharers: Vec<Sharer>,
    /// Over time; only the flow engine knows.
    pub over_time: Option<OverTime>,
}

/// What links did in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// By tier and direction, from the NICs up and down again.
    pub tiers: Vec<LinkGroup>,
    /// The NICs' links by rail, in both directions.
    pub rails: Vec<LinkGroup>,
    /// The busiest links, busiest first.
    pub worst: Vec<WorstLink>,
}

/// What the flow engine can tell beside an outcome.
#[derive(Clone, Copy, Debug)]
pub struct Traces<'a, 'f> {
    /// Where every queue pair goes.
    pub paths: &'a Paths<'f>,
    /// What links carried over time.
    pub series: &'a Series,
}

/// Analyses an outcome. Without `traces` it is not known which flows are on a link, and when.
pub fn analyse(
    fabric: &Fabric,
    transfers: &Transfers,
    outcome: &Outcome,
    traces: Option<Traces<'_, '_>>,
    worst: usize,
) -> Analysis {
    let seconds = outcome.elapsed().as_secs_f64();
    let series = traces.map(|traces| traces.series);
    let view = View { fabric, outcome, seconds, series };
    let (tiers, rails) = view.groups();
    let means: BTreeMap<&str, f64> = tiers
        .iter()
        .map(|group| (group.name.as_str(), group.bytes as f64 / group.links.max(1) as f64))
        .collect();
    let busiest = busiest(&view, worst);
    let over_time = series.map_or_else(Vec::new, |series| series.of_each(&busiest));
    let mut over_time = over_time.into_iter();
    let sharing = traces.map(|traces| Sharing::new(fabric, transfers, traces.paths, &busiest));
    let worst = (0..).zip(&busiest).map(|(place, &link)| {
        let used = &outcome.links[link];
        let mean = means.get(view.tier_name(link).as_str()).copied().unwrap_or(0.0);
        let rate = fabric.class(link).rate.bytes_per_s();
        WorstLink {
            link,
            name: fabric.link_name(link),
            bytes: used.bytes,
            utilisation: view.utilisation(link),
            flows: used.flows,
            excess: if 0.0 < mean { used.bytes as f64 / mean } else { 1.0 },
            lost_s: (used.bytes as f64 - mean).max(0.0) / rate,
            over_time: view.over_time(over_time.next().flatten(), rate),
            sharers: sharing.as_ref().map_or_else(Vec::new, |sharing| sharing.sharers(place)),
            why: match &sharing {
                Some(sharing) => sharing.describe(place, used.flows),
                None => crossed(used.flows, &fabric.link_name(link)),
            },
        }
    });
    let worst = worst.collect();
    Analysis { tiers, rails, worst }
}

/// The busiest links of the scale-out network, busiest first.
fn busiest(view: &View<'_>, most: usize) -> Vec<LinkId> {
    let mut busiest: Vec<(f64, LinkId)> = Vec::new();
    for (link, used) in view.outcome.links.enumerate() {
        if used.bytes == 0 || view.fabric.class(link).kind == LinkKind::ScaleUp {
            continue;
        }
        let load = view.utilisation(link);
        if busiest.len() < most || busiest.last().is_some_and(|last| last.0 < load) {
            let place = busiest.partition_point(|(theirs, _)| load <= *theirs);
            busiest.insert(place, (load, link));
            busiest.truncate(most);
        }
    }
    busiest.into_iter().map(|(_, link)| link).collect()
}

/// The queue pairs that share a link, with their connections: who collides with whom.
pub fn flows_on<'a>(paths: &'a Paths<'_>, link: LinkId) -> Vec<(ConnectionId, &'a FlowKey)> {
    let crosses = |way: &[LinkId]| way.contains(&link);
    let known = paths.known().filter(|(_, _, way)| crosses(way));
    known.map(|(connection, key, _)| (connection, key)).collect()
}

/// Who shares the worst links.
struct Sharing<'a> {
    fabric: &'a Fabric,
    transfers: &'a Transfers,
    /// The links.
    links: &'a [LinkId],
    /// For each of them: queue pairs of each label on it.
    on_link: Vec<BTreeMap<LabelId, u32>>,
    /// For each of them: queue pairs of each label on any link of its class from where it begins.
    beside: Vec<BTreeMap<LabelId, u32>>,
    /// For each of them: its first queue pairs.
    first: Vec<Vec<FlowKey>>,
}

/// What a link is to the worst links, as numbers from 1 on; 0 for nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// It is this one.
    worst: u16,
    /// It begins where this one begins, and is of the same class. Of several the first.
    beside: u16,
}

impl<'a> Sharing<'a> {
    /// One pass over all ways.
    fn new(
        fabric: &'a Fabric,
        transfers: &'a Transfers,
        paths: &Paths<'_>,
        links: &'a [LinkId],
    ) -> Self {
        let mut marks = vec![Marks::default(); fabric.links().len()];
        for (number, &link) in (1..).zip(links) {
            marks[link.index()].worst = number;
            for beside in beside(fabric, link) {
                let mark = &mut marks[beside.index()].beside;
                *mark = if *mark == 0 { number } else { *mark };
            }
        }
        let mut sharing = Self {
            fabric,
            transfers,
            links,
            on_link: vec![BTreeMap::new(); links.len()],
            beside: vec![BTreeMap::new(); links.len()],
            first: vec![Vec::new(); links.len()],
        };
        let labels = labels(transfers);
        for (connection, key, way) in paths.known() {
            for &link in way {
                let Marks { worst, beside } = marks[link.index()];
                if beside == 0 {
                    continue;
                }
                if let Some(label) = labels[connection.index()] {
                    *sharing.beside[usize::from(beside) - 1].entry(label).or_default() += 1;
                    if let Some(worst) = usize::from(worst).checked_sub(1) {
                        *sharing.on_link[worst].entry(label).or_default() += 1;
                    }
                }
                if let Some(worst) = usize::from(worst).checked_sub(1)
                    && sharing.first[worst].len() < MOST_SHARERS
                {
                    sharing.first[worst].push(*key);
                }
            }
        }
        for (place, &link) in links.iter().enumerate() {
            let counted = usize::from(marks[link.index()].beside) - 1;
            sharing.beside[place] = sharing.beside[counted].clone();
        }
        sharing
    }

    /// The first queue pairs on a link.
    fn sharers(&self, place: usize) -> Vec<Sharer> {
        let name = |key: &FlowKey| {
            let [from, to] = [key.from, key.to].map(|nic| self.fabric.name(nic));
            Sharer { from, to, src_port: key.src_port, dst_qpn: key.dst_qpn }
        };
        self.first[place].iter().map(name).collect()
    }

    /// "7 of 16 flows of data-parallel ring 12 share leaf 3 → spine 5".
    fn describe(&self, place: usize, flows: u32) -> String {
        let name = self.fabric.link_name(self.links[place]);
        let on_link = &self.on_link[place];
        let most =
            on_link.iter().max_by_key(|(label, flows)| (**flows, std::cmp::Reverse(**label)));
        let Some((label, flows)) = most else {
            return format!("packets of {flows} queue pairs cross {name}");
        };
        let all = self.beside[place][label];
        let text = self.transfers.label_text(*label);
        let others: u32 = on_link.values().sum::<u32>() - flows;
        match (others, on_link.len() - 1) {
            (0, _) => format!("{flows} of {all} flows of {text} share {name}"),
            (others, 1) => {
                format!("{flows} of {all} flows of {text} and {others} of another share {name}")
            }
            (others, several) => format!(
                "{flows} of {all} flows of {text} and {others} of {several} others share {name}"
            ),
        }
    }
}

/// The links of the same class that begin where a link begins, itself included.
fn beside(fabric: &Fabric, link: LinkId) -> impl Iterator<Item = LinkId> {
    let ends = fabric.links()[link];
    let ports = fabric.ports(ends.from).iter().copied();
    ports.filter(move |port| fabric.links()[*port].class == ends.class)
}

/// What each connection belongs to: the label of the first operation on it.
fn labels(transfers: &Transfers) -> Vec<Option<LabelId>> {
    let mut labels = vec![None; transfers.connections().len()];
    let mut name = |connection: ConnectionId, label| {
        labels[connection.index()].get_or_insert(label);
    };
    for op in transfers.ops() {
        match &op.kind {
            OpKind::Send { connection, .. } => name(*connection, op.label),
            OpKind::Coupled { edges, .. } => {
                for &connection in transfers.coupled(edges) {
                    name(connection, op.label);
                }
            }
            OpKind::Together { messages } => {
                for &(connection, _) in transfers.messages(messages) {
                    name(connection, op.label);
                }
            }
            OpKind::Wait { .. } => {}
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: one, three and nothing.
    #[test]
    fn imbalance_of_three() {
        let found = imbalance([1.0, 3.0, 0.0].into_iter());
        assert_eq!(found.max_over_mean, 9.0 / 4.0);
        assert!((found.jain - 16.0 / 30.0).abs() < 1e-12);
        assert!((found.idle - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(imbalance([].into_iter()).max_over_mean, 1.0);
        assert_eq!(imbalance([0.0].into_iter()).idle, 1.0);
    }
}
