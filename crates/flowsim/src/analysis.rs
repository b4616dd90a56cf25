//! What the links did and why: imbalance, idle links, collisions, the worst links in words.
//!
//! Links are compared with those they stand beside: all that lead from one tier to another, or the
//! NICs of one rail. Only switches and NICs that carried anything count, so that a job on a part of
//! the cluster is not told that the rest was idle.

use std::collections::BTreeMap;

use fabric::graph::LinkKind;
use fabric::hash::FlowKey;
use fabric::{Fabric, LinkId, NodeId, NodeKind};
use serde::Serialize;
use traffic::{ConnectionId, LabelId, OpKind, Outcome, Transfers};
use units::Id;

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

/// How unevenly these are spread; perfect if there are none or nothing.
pub fn imbalance(values: impl Iterator<Item = f64>) -> Imbalance {
    let (mut count, mut sum, mut squares, mut max, mut idle) = (0.0, 0.0, 0.0, 0.0_f64, 0.0);
    for value in values {
        count += 1.0;
        sum += value;
        squares += value * value;
        max = max.max(value);
        idle += f64::from(u8::from(value == 0.0));
    }
    if sum == 0.0 {
        return Imbalance {
            max_over_mean: 1.0,
            jain: 1.0,
            idle: if count == 0.0 { 0.0 } else { 1.0 },
        };
    }
    Imbalance {
        max_over_mean: max * count / sum,
        jain: sum * sum / (count * squares),
        idle: idle / count,
    }
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

/// Analyses an outcome. Without `traces` nobody knows who is on a link, and when.
pub fn analyse(
    fabric: &Fabric,
    transfers: &Transfers,
    outcome: &Outcome,
    traces: Option<Traces<'_, '_>>,
    worst: usize,
) -> Analysis {
    let seconds = outcome.makespan().as_secs_f64();
    let series = traces.map(|traces| traces.series);
    let view = View { fabric, outcome, seconds, series };
    let tiers = view.groups(|link| Some(view.rank(link)), |link| view.tier_name(link));
    let rails = match fabric.nics_per_node() {
        1 => Vec::new(),
        _ => view.groups(|link| Some(view.rail(link)?.0), |link| view.rail_name(link)),
    };
    let means: BTreeMap<String, f64> = tiers
        .iter()
        .map(|group| (group.name.clone(), group.bytes as f64 / group.links.max(1) as f64))
        .collect();
    let mut busiest: Vec<LinkId> = outcome
        .links
        .ids()
        .filter(|link| 0 < outcome.links[*link].bytes)
        .filter(|link| fabric.class(*link).kind != LinkKind::ScaleUp)
        .collect();
    let busier = |a: &LinkId, b: &LinkId| {
        view.utilisation(*b).total_cmp(&view.utilisation(*a)).then(a.cmp(b))
    };
    if worst < busiest.len() {
        busiest.select_nth_unstable_by(worst, busier);
        busiest.truncate(worst);
    }
    busiest.sort_by(busier);
    let words = traces.map(|traces| Words::new(fabric, transfers, traces.paths, &busiest));
    let worst = busiest
        .into_iter()
        .map(|link| {
            let used = &outcome.links[link];
            let mean = means.get(&view.tier_name(link)).copied().unwrap_or(0.0);
            let rate = fabric.class(link).rate.bytes_per_s();
            WorstLink {
                link,
                name: fabric.link_name(link),
                bytes: used.bytes,
                utilisation: view.utilisation(link),
                flows: used.flows,
                excess: if 0.0 < mean { used.bytes as f64 / mean } else { 1.0 },
                lost_s: (used.bytes as f64 - mean).max(0.0) / rate,
                sharers: traces.map_or_else(Vec::new, |traces| sharers(traces.paths, link)),
                over_time: view.over_time(std::iter::once(link), rate),
                why: match &words {
                    Some(words) => words.describe(link),
                    None => format!("{} flows share {}", used.flows, fabric.link_name(link)),
                },
            }
        })
        .collect();
    Analysis { tiers, rails, worst }
}

/// The queue pairs that share a link, with their connections: who collides with whom.
pub fn flows_on<'a>(paths: &'a Paths<'_>, link: LinkId) -> Vec<(ConnectionId, &'a FlowKey)> {
    let crosses = |way: &[LinkId]| way.contains(&link);
    let known = paths.known().filter(|(_, _, way)| crosses(way));
    known.map(|(connection, key, _)| (connection, key)).collect()
}

fn sharers(paths: &Paths<'_>, link: LinkId) -> Vec<Sharer> {
    let name = |key: &FlowKey| {
        let [from, to] = [key.from, key.to].map(|nic| paths.fabric().name(nic));
        Sharer { from, to, src_port: key.src_port, dst_qpn: key.dst_qpn }
    };
    flows_on(paths, link).iter().take(MOST_SHARERS).map(|(_, key)| name(key)).collect()
}

struct View<'a> {
    fabric: &'a Fabric,
    outcome: &'a Outcome,
    seconds: f64,
    series: Option<&'a Series>,
}

impl View<'_> {
    fn utilisation(&self, link: LinkId) -> f64 {
        let rate = self.fabric.class(link).rate.bytes_per_s();
        match self.seconds {
            0.0 => 0.0,
            seconds => self.outcome.links[link].bytes as f64 / (rate * seconds),
        }
    }

    /// What links did until the end of the run, together, given what they could have carried.
    fn over_time(
        &self,
        links: impl Iterator<Item = LinkId> + Clone,
        bytes_per_s: f64,
    ) -> Option<OverTime> {
        let (interval, bytes) = self.series?.sum(links)?;
        let interval_s = interval.as_secs_f64();
        let last = (self.seconds / interval_s).ceil() as usize;
        let share = |bytes: &f64| bytes / (interval_s * bytes_per_s);
        Some(OverTime { interval_s, utilisation: bytes.iter().take(last).map(share).collect() })
    }

    fn kind_name(&self, node: NodeId) -> String {
        let record = self.fabric.nodes()[node];
        match record.kind {
            NodeKind::Gpu => "GPU".to_owned(),
            NodeKind::Nic => "NIC".to_owned(),
            NodeKind::FrontEndNic => "front-end NIC".to_owned(),
            NodeKind::ScaleUpSwitch => "scale-up switch".to_owned(),
            NodeKind::Switch => self.fabric.tiers()[usize::from(record.tier)].name.clone(),
        }
    }

    fn tier_name(&self, link: LinkId) -> String {
        let ends = self.fabric.links()[link];
        format!("{} → {}", self.kind_name(ends.from), self.kind_name(ends.to))
    }

    /// Where a link's group stands in the list: endpoints first, then up, then down.
    fn rank(&self, link: LinkId) -> u32 {
        let height = |node: NodeId| match self.fabric.nodes()[node] {
            record if record.kind == NodeKind::Switch => 2 + u32::from(record.tier),
            record => u32::from(record.kind != NodeKind::Gpu),
        };
        let ends = self.fabric.links()[link];
        let (from, to) = (height(ends.from), height(ends.to));
        if from <= to { 1000 * from + to } else { 1_000_000 - 1000 * from + to }
    }

    /// Where the group of a NIC's rail stands, and the NIC; `None` for other links.
    fn rail(&self, link: LinkId) -> Option<(u32, NodeId)> {
        let ends = self.fabric.links()[link];
        let (nic, other, down) = match self.fabric.nic_number(ends.from) {
            Some(_) => (ends.from, ends.to, 0),
            None => (ends.to, ends.from, 1),
        };
        self.fabric.nic_number(nic)?;
        let beside_switch = self.fabric.nodes()[other].kind == NodeKind::Switch;
        beside_switch.then(|| (2 * self.fabric.rail_of(nic) as u32 + down, nic))
    }

    fn rail_name(&self, link: LinkId) -> String {
        let rail = self.rail(link).map_or(0, |(_, nic)| self.fabric.rail_of(nic));
        format!("{}, rail {rail}", self.tier_name(link))
    }

    /// The groups that `rank` sorts links into, in that order, named by one of their links.
    fn groups(
        &self,
        rank: impl Fn(LinkId) -> Option<u32>,
        name: impl Fn(LinkId) -> String,
    ) -> Vec<LinkGroup> {
        let mut members: BTreeMap<u32, Vec<LinkId>> = BTreeMap::new();
        for link in self.fabric.links().ids() {
            if let Some(rank) = rank(link) {
                members.entry(rank).or_default().push(link);
            }
        }
        let groups = members.into_values().map(|links| self.group(name(links[0]), links));
        groups.filter(|group| 0 < group.bytes).collect()
    }

    fn group(&self, name: String, mut links: Vec<LinkId>) -> LinkGroup {
        // The switch that chose among them: above on the way up, and on the way down below, so
        // that a leaf's downlinks from all spines are seen together.
        let side = |link: LinkId| {
            let ends = self.fabric.links()[link];
            if self.rank(link) < 500_000 { ends.from } else { ends.to }
        };
        links.sort_by_key(|link| (side(*link), *link));
        let bytes = |link: &LinkId| self.outcome.links[*link].bytes;
        let active: Vec<LinkId> = links
            .chunk_by(|a, b| side(*a) == side(*b))
            .filter(|links| links.iter().any(|link| 0 < bytes(link)))
            .flatten()
            .copied()
            .collect();
        let spread = |links: &[LinkId]| imbalance(links.iter().map(|link| bytes(link) as f64));
        let switches: Vec<Imbalance> =
            active.chunk_by(|a, b| side(*a) == side(*b)).map(spread).collect();
        let mean = |value: fn(&Imbalance) -> f64| match switches.len() {
            0 => 0.0,
            count => switches.iter().map(value).sum::<f64>() / count as f64,
        };
        let ends = active.first().map(|link| self.fabric.links()[*link]);
        let is_switch = |node: NodeId| self.fabric.nodes()[node].kind == NodeKind::Switch;
        let rate = active.iter().map(|link| self.fabric.class(*link).rate.bytes_per_s()).sum();
        let utilisations = || active.iter().map(|link| self.utilisation(*link));
        LinkGroup {
            name,
            between_switches: ends.is_some_and(|ends| is_switch(ends.from) && is_switch(ends.to)),
            links: active.len(),
            bytes: active.iter().map(bytes).sum(),
            max_utilisation: utilisations().fold(0.0, f64::max),
            mean_utilisation: utilisations().sum::<f64>() / active.len().max(1) as f64,
            by_bytes: spread(&active),
            by_flows: imbalance(
                active.iter().map(|link| f64::from(self.outcome.links[*link].flows)),
            ),
            at_switch: Imbalance {
                max_over_mean: mean(|imbalance| imbalance.max_over_mean),
                jain: mean(|imbalance| imbalance.jain),
                idle: mean(|imbalance| imbalance.idle),
            },
            over_time: self.over_time(active.iter().copied(), rate),
        }
    }
}

/// Who shares the worst links.
struct Words<'a> {
    fabric: &'a Fabric,
    transfers: &'a Transfers,
    /// By link: queue pairs of each label on it.
    on_link: BTreeMap<LinkId, BTreeMap<LabelId, u32>>,
    /// By where a link begins and its class: queue pairs of each label on any such link.
    beside: BTreeMap<(NodeId, u32), BTreeMap<LabelId, u32>>,
}

impl<'a> Words<'a> {
    fn new(
        fabric: &'a Fabric,
        transfers: &'a Transfers,
        paths: &Paths<'_>,
        links: &[LinkId],
    ) -> Self {
        let labels = labels(transfers);
        let place = |link: LinkId| {
            let ends = fabric.links()[link];
            (ends.from, ends.class.index() as u32)
        };
        let mut on_link: BTreeMap<LinkId, BTreeMap<LabelId, u32>> =
            links.iter().map(|link| (*link, BTreeMap::new())).collect();
        let mut beside: BTreeMap<(NodeId, u32), BTreeMap<LabelId, u32>> =
            links.iter().map(|link| (place(*link), BTreeMap::new())).collect();
        for (connection, _, way) in paths.known() {
            let Some(label) = labels[connection.index()] else { continue };
            for &link in way {
                if let Some(flows) = beside.get_mut(&place(link)) {
                    *flows.entry(label).or_default() += 1;
                }
                if let Some(flows) = on_link.get_mut(&link) {
                    *flows.entry(label).or_default() += 1;
                }
            }
        }
        Self { fabric, transfers, on_link, beside }
    }

    /// "7 of 16 flows of data-parallel ring 12 share leaf 3 → spine 5".
    fn describe(&self, link: LinkId) -> String {
        let name = self.fabric.link_name(link);
        let ends = self.fabric.links()[link];
        let place = (ends.from, ends.class.index() as u32);
        let most = self.on_link[&link]
            .iter()
            .max_by_key(|(label, flows)| (**flows, std::cmp::Reverse(**label)));
        let Some((label, flows)) = most else {
            return format!("packets of all flows are spread over {name}");
        };
        let all = self.beside[&place][label];
        let text = self.transfers.label_text(*label);
        let others: u32 = self.on_link[&link].values().sum::<u32>() - flows;
        match (others, self.on_link[&link].len() - 1) {
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
