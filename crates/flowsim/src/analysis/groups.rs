//! Links that stand beside each other, added up in one pass over the fabric.
//!
//! Links are grouped by what they lead from and to, and those of NICs also by rail. Within a group
//! those of one switch are compared with each other: the switch that chose among them on the way
//! up, and on the way down the one below, so that a leaf's downlinks from all spines are seen
//! together. Every link is met at that end, so nothing has to be sorted.

use fabric::{Fabric, LinkId, NodeId, NodeKind};
use traffic::Outcome;
use units::{Id, Span};

use super::{Imbalance, LinkGroup, OverTime};
use crate::series::Series;

/// In no group.
const NONE: u32 = u32::MAX;

/// An outcome, and what is known of it besides.
pub(super) struct View<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) outcome: &'a Outcome,
    pub(super) seconds: f64,
    pub(super) series: Option<&'a Series>,
}

impl View<'_> {
    pub(super) fn utilisation(&self, link: LinkId) -> f64 {
        let rate = self.fabric.class(link).rate.bytes_per_s();
        match self.seconds {
            0.0 => 0.0,
            seconds => self.outcome.links[link].bytes as f64 / (rate * seconds),
        }
    }

    /// A series as shares of what could have been carried, until the end of the run.
    pub(super) fn over_time(
        &self,
        series: Option<(Span, Vec<f64>)>,
        bytes_per_s: f64,
    ) -> Option<OverTime> {
        let (interval, bytes) = series?;
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

    pub(super) fn tier_name(&self, link: LinkId) -> String {
        let ends = self.fabric.links()[link];
        format!("{} → {}", self.kind_name(ends.from), self.kind_name(ends.to))
    }

    fn height(&self, node: NodeId) -> u32 {
        match self.fabric.nodes()[node] {
            record if record.kind == NodeKind::Switch => 2 + u32::from(record.tier),
            record => u32::from(record.kind != NodeKind::Gpu),
        }
    }

    /// The groups by tier and direction, and those of NICs by rail where there are several.
    pub(super) fn groups(&self) -> (Vec<LinkGroup>, Vec<LinkGroup>) {
        let fabric = self.fabric;
        let links = if self.series.is_some() { fabric.links().len() } else { 0 };
        let (mut tiers, mut rails) = (Tallies::new(links), Tallies::new(links));
        let has_rails = 1 < fabric.nics_per_node();
        for node in fabric.nodes().ids() {
            let here = self.height(node);
            let is_nic = has_rails && fabric.nic_number(node).is_some();
            let rail = is_nic.then(|| fabric.rail_of(node) as u32);
            for &out in fabric.ports(node) {
                let other = fabric.links()[out].to;
                let there = self.height(other);
                if here <= there {
                    tiers.meet(1000 * here + there, out);
                }
                if here < there {
                    tiers.meet(1_000_000 - 1000 * there + here, fabric.reverse(out));
                }
                if let (Some(rail), NodeKind::Switch) = (rail, fabric.nodes()[other].kind) {
                    rails.meet(2 * rail, out);
                    rails.meet(2 * rail + 1, fabric.reverse(out));
                }
            }
            tiers.leave(self);
            rails.leave(self);
        }
        let rail_name = |link| {
            let ends = fabric.links()[link];
            let nic = if fabric.nic_number(ends.from).is_some() { ends.from } else { ends.to };
            format!("{}, rail {}", self.tier_name(link), fabric.rail_of(nic))
        };
        (tiers.finish(self, |link| self.tier_name(link)), rails.finish(self, rail_name))
    }
}

/// Sums of a row of numbers, from which its imbalance follows.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    sum: f64,
    squares: f64,
    max: f64,
    idle: f64,
}

impl Sums {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
        self.max = self.max.max(value);
        self.idle += f64::from(u8::from(value == 0.0));
    }

    fn imbalance(&self) -> Imbalance {
        let Self { count, sum, squares, max, idle } = *self;
        if sum == 0.0 {
            let idle = if count == 0.0 { 0.0 } else { 1.0 };
            return Imbalance { max_over_mean: 1.0, jain: 1.0, idle };
        }
        Imbalance {
            max_over_mean: max * count / sum,
            jain: sum * sum / (count * squares),
            idle: idle / count,
        }
    }
}

/// How unevenly these are spread; perfect if there are none or nothing.
pub fn imbalance(values: impl Iterator<Item = f64>) -> Imbalance {
    let mut sums = Sums::default();
    values.for_each(|value| sums.add(value));
    sums.imbalance()
}

/// What is known of a group so far. Only switches and NICs that carried anything count.
#[derive(Clone, Debug)]
struct Tally {
    /// Where it stands in the list of groups.
    rank: u32,
    /// The first of its links.
    first: LinkId,
    bytes: u64,
    by_bytes: Sums,
    by_flows: Sums,
    utilisation: Sums,
    /// Sums over switches of the imbalance at each, and how many they are.
    at_switch: Imbalance,
    switches: f64,
    /// What its links can carry together, in bytes per second.
    rate: f64,
}

/// All groups of one kind.
struct Tallies {
    groups: Vec<Tally>,
    /// The links that were met at the node that is looked at, with their groups.
    met: Vec<(u32, LinkId)>,
    /// By link: its group; empty if it is not needed.
    group_of: Vec<u32>,
}

impl Tallies {
    fn new(links: usize) -> Self {
        Self { groups: Vec::new(), met: Vec::new(), group_of: vec![NONE; links] }
    }

    /// Notes a link of the node that is looked at.
    fn meet(&mut self, rank: u32, link: LinkId) {
        let place = self.groups.iter().position(|group| group.rank == rank);
        let group = place.unwrap_or_else(|| {
            self.groups.push(Tally::new(rank, link));
            self.groups.len() - 1
        });
        self.met.push((group as u32, link));
        if let Some(group_of) = self.group_of.get_mut(link.index()) {
            *group_of = group as u32;
        }
    }

    /// Adds up what was met at a node.
    fn leave(&mut self, view: &View<'_>) {
        while let Some(&(group, _)) = self.met.first() {
            let links = self.met.iter().filter(|(of, _)| *of == group).map(|(_, link)| *link);
            self.groups[group as usize].add_switch(view, links);
            self.met.retain(|(of, _)| *of != group);
        }
    }

    /// The groups that carried anything, in order.
    fn finish(self, view: &View<'_>, name: impl Fn(LinkId) -> String) -> Vec<LinkGroup> {
        let nothing = || vec![None; self.groups.len()];
        let series = view
            .series
            .map_or_else(nothing, |series| series.sums(self.groups.len(), &self.group_of));
        let mut groups: Vec<_> = self.groups.into_iter().zip(series).collect();
        groups.sort_by_key(|(group, _)| group.rank);
        let used = groups.into_iter().filter(|(group, _)| 0 < group.bytes);
        used.map(|(group, series)| {
            let over_time = view.over_time(series, group.rate);
            LinkGroup { over_time, ..group.finish(view, name(group.first)) }
        })
        .collect()
    }
}

impl Tally {
    fn new(rank: u32, first: LinkId) -> Self {
        Self {
            rank,
            first,
            bytes: 0,
            by_bytes: Sums::default(),
            by_flows: Sums::default(),
            utilisation: Sums::default(),
            at_switch: Imbalance::default(),
            switches: 0.0,
            rate: 0.0,
        }
    }

    /// Adds the links of one switch, unless it carried nothing.
    fn add_switch(&mut self, view: &View<'_>, links: impl Iterator<Item = LinkId> + Clone) {
        let bytes = |link: LinkId| view.outcome.links[link].bytes;
        let sum: u64 = links.clone().map(bytes).sum();
        if sum == 0 {
            return;
        }
        self.bytes += sum;
        let mut here = Sums::default();
        for link in links {
            let bytes = bytes(link) as f64;
            here.add(bytes);
            self.by_bytes.add(bytes);
            self.by_flows.add(f64::from(view.outcome.links[link].flows));
            let rate = view.fabric.class(link).rate.bytes_per_s();
            self.rate += rate;
            self.utilisation.add(bytes / (rate * view.seconds).max(f64::MIN_POSITIVE));
        }
        let here = here.imbalance();
        self.at_switch.max_over_mean += here.max_over_mean;
        self.at_switch.jain += here.jain;
        self.at_switch.idle += here.idle;
        self.switches += 1.0;
    }

    fn finish(&self, view: &View<'_>, name: String) -> LinkGroup {
        let ends = view.fabric.links()[self.first];
        let is_switch = |node: NodeId| view.fabric.nodes()[node].kind == NodeKind::Switch;
        let Imbalance { max_over_mean, jain, idle } = self.at_switch;
        let [max_over_mean, jain, idle] =
            [max_over_mean, jain, idle].map(|sum| sum / self.switches.max(1.0));
        LinkGroup {
            name,
            between_switches: is_switch(ends.from) && is_switch(ends.to),
            links: self.by_bytes.count as usize,
            bytes: self.bytes,
            max_utilisation: self.utilisation.max,
            mean_utilisation: self.utilisation.sum / self.utilisation.count.max(1.0),
            by_bytes: self.by_bytes.imbalance(),
            by_flows: self.by_flows.imbalance(),
            at_switch: Imbalance { max_over_mean, jain, idle },
            over_time: None,
        }
    }
}
