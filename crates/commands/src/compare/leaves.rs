//! Why less capacity above the leaves may be faster: another ratio puts another number of servers
//! on a leaf, and other groups of ranks lie on one leaf then.

use fabric::topology::TopologyKind;
use job::GroupKind;
use report::number::dollars;
use scenario::{Purpose, Request, ScenarioFile, load};
use step::network::words;

use super::Column;
use super::metrics::oversubscription_built;
use super::verdict::flags;
use crate::change::{Change, Kind};
use crate::run_job::Lever;
use crate::world::{JobWorld, leaf_of, slots};

/// From this share on one step is longer than another.
const LONGER: f64 = 0.002;

/// From this share of the bytes on it is worth saying that they go elsewhere.
const APART: f64 = 0.05;

/// Groups of one kind.
struct Fit {
    kind: GroupKind,
    /// Servers of a group.
    servers: u64,
    /// Groups that have all their servers on one leaf.
    within: u64,
    all: u64,
}

/// What of a job stays below the leaves of its fabric.
struct Leaves {
    /// Servers of a leaf.
    servers: u64,
    groups: Vec<Fit>,
    /// The share of the bytes between NICs that rises above the leaves.
    above: f64,
}

impl Leaves {
    fn of(column: &Column) -> Option<Self> {
        let (step, wire) = column.runs.first()?.job.as_ref()?;
        let fabric = column.loaded.fabric();
        let world = JobWorld::of(&column.loaded).ok()?;
        let (slots, layout) = (slots(fabric), &world.job.layout);
        let server = |rank: u64| world.placement.gpu(rank) / slots.gpus_per_node;
        let first_nic = |server| fabric.nic(server * fabric.nics_per_node());
        let leaves: Vec<_> =
            (0..fabric.servers()).map(|server| leaf_of(fabric, first_nic(server))).collect();
        let leaf = |server: u64| leaves[server as usize];
        let talks = |kind: &GroupKind| {
            step.phases.iter().any(|it| it.on_fabric && it.groups_of == words(*kind))
        };
        let fit = |kind: GroupKind| {
            let all = layout.groups(kind);
            let (mut within, mut most) = (0, 0);
            for index in 0..all {
                let mut servers: Vec<u64> =
                    layout.group(kind, index).members().map(server).collect();
                servers.sort_unstable();
                servers.dedup();
                most = most.max(servers.len() as u64);
                within += u64::from(servers.iter().all(|at| leaf(*at) == leaf(servers[0])));
            }
            Fit { kind, servers: most, within, all }
        };
        let groups = GroupKind::ALL.into_iter().filter(talks).map(fit).collect();
        Some(Self { servers: slots.nodes_per_leaf, groups, above: wire.above_leaves()? })
    }
}

/// Of columns of one job with several ratios: what besides the ratio differs between them, because
/// another number of servers is on a leaf. Also why one is slower than another although it has more
/// capacity above its leaves. Nothing where neither is so.
pub(super) fn besides_the_ratio(
    names: &[String],
    columns: &[Column],
    vary: &[String],
) -> Option<(String, Option<Lever>)> {
    let first = columns.first()?;
    let same = columns.iter().all(|column| {
        let own = (&column.loaded.job, column.loaded.scenario.fabric.topology);
        own == (&first.loaded.job, first.loaded.scenario.fabric.topology)
    });
    let has_spines = columns.iter().all(|column| 1 < column.fabric.tiers.len());
    if !same || !has_spines {
        return None;
    }
    let step = |at: usize| columns[at].breakdown().map(|parts| parts.total());
    let ratio = |at: usize| oversubscription_built(&columns[at].fabric);
    let above = |at: usize| columns[at].runs.first()?.job.as_ref()?.1.above_leaves();
    let all = || 0..columns.len();
    let pairs = || all().flat_map(|wide| all().map(move |narrow| (wide, narrow)));
    let tapered = || pairs().filter(|(wide, narrow)| ratio(*wide) < 0.99 * ratio(*narrow));
    let longer = tapered().filter_map(|pair| Some((pair, step(pair.0)? / step(pair.1)? - 1.0)));
    let inverted = longer.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, by)| LONGER < *by);
    let apart = |(wide, narrow): (usize, usize)| Some((above(narrow)? - above(wide)?).abs());
    let others = tapered().filter_map(|pair| Some((pair, apart(pair)?)));
    let other = others.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, apart)| APART < *apart);
    let (wide, narrow) = inverted.or(other)?.0;
    let (own, other) = (Leaves::of(&columns[wide])?, Leaves::of(&columns[narrow])?);
    let [name, less] = [&names[wide], &names[narrow]];
    let mut text = match inverted {
        Some((_, by)) => format!(
            "{name} takes {:.1} % longer than {less}, which has less capacity above its leaves",
            100.0 * by
        ),
        None => "The ratio is not all that differs".to_owned(),
    };
    if own.servers == other.servers && own.above <= other.above {
        text += ": both have as many servers on a leaf, so it is where queue pairs hash (--seeds 8 \
                 tells how much is chance)";
        return Some((text, None));
    }
    let is_split = |(own, other): &(&Fit, &Fit)| own.within * other.all != other.within * own.all;
    let split = own.groups.iter().zip(&other.groups).find(is_split);
    let of = |leaves: &Leaves, fit: Option<&Fit>| {
        let servers = if leaves.servers == 1 { "server" } else { "servers" };
        let groups = fit.map_or_else(String::new, |fit| {
            let (within, all, of) = (fit.within, fit.all, fit.servers);
            let kind = words(fit.kind);
            format!(", {within} of {all} {kind} groups ({of} servers each) lie on one leaf")
        });
        let above = 100.0 * leaves.above;
        format!(
            "{} {servers} share a leaf{groups}, and {above:.0} % of the bytes between NICs go \
             above the leaves",
            leaves.servers
        )
    };
    let (own_fit, other_fit) = split.unzip();
    text += &format!(": with {name} {}; with {less} {}", of(&own, own_fit), of(&other, other_fit));
    let least = columns.iter().map(|column| slots(column.loaded.fabric()).nodes_per_leaf).min()?;
    let nics = first.loaded.scenario.cluster.nics_per_node.max(1);
    let set = match first.loaded.scenario.fabric.topology {
        TopologyKind::Clos => format!("fabric.downlinks={}", least * u64::from(nics)),
        TopologyKind::RailOptimized => format!("fabric.segment_nodes={least}"),
        _ => return Some((text, None)),
    };
    let [vary] = vary else { return Some((text, None)) };
    let change = Change::new(Kind::Fabric, format!("{least} servers on a leaf"), [set]);
    let command = format!("fatflow compare {}", flags(&first.loaded, vary, &change));
    text += &format!(". To compare ratios alone, keep the servers of a leaf ({command})");
    Some((text, Some(lever(change, command))))
}

/// A change whose gain nobody has looked at.
fn lever(change: Change, command: String) -> Lever {
    let Change { name, set, why, most_s, .. } = change;
    Lever { name, set, why, most_s, command }
}

/// Where nothing is above the leaves, ratios are all the same.
pub(super) fn one_switch(columns: &[Column]) -> Option<String> {
    let is_one = |column: &Column| column.fabric.tiers.len() == 1;
    let servers = columns.first()?.fabric.nodes;
    columns.iter().all(is_one).then(|| {
        format!(
            "One tier of switches joins all {servers} servers: there is nothing above it to \
             oversubscribe, and all columns are the same fabric"
        )
    })
}

/// What is set for one switch for each rail.
const RAILS: [&str; 2] = ["fabric.topology=rail-only", "fabric.tiers=1"];

/// What sizes leaves and what is above them.
const SIZES: [&str; 6] = [
    "fabric.oversubscription",
    "fabric.downlinks",
    "fabric.uplinks",
    "fabric.spines",
    "fabric.cores",
    "fabric.segment_nodes",
];

/// The first of these scenarios with one switch for each rail and no spines, if that is enough for
/// it and none of them is built so; `first` is how it was asked for.
pub(super) fn rails_alone(columns: &[Column], first: Request) -> Option<Request> {
    let ScenarioFile { cluster, fabric, .. } = &columns.first()?.loaded.scenario;
    let has_spines = |column: &Column| 1 < column.fabric.tiers.len();
    let is_built_of_leaves =
        matches!(fabric.topology, TopologyKind::Clos | TopologyKind::RailOptimized);
    let is_plain = fabric.parts.is_empty() && fabric.pods.is_none();
    let may = 1 < cluster.nics_per_node && is_built_of_leaves && is_plain;
    if !may || !columns.iter().all(has_spines) {
        return None;
    }
    let request = Request {
        set: [&first.set[..], &RAILS.map(str::to_owned)].concat(),
        without: [&first.without[..], &SIZES.map(str::to_owned)].concat(),
        ..first
    };
    let topology = Request { purpose: Purpose::Topology, ..request.clone() };
    let rails = load(&topology).ok()?.summary();
    (rails.tiers.len() == 1 && rails.nodes == columns[0].fabric.nodes).then_some(request)
}

/// What nobody asked for: what such rails come to beside the column with the shortest step.
pub(super) fn told_of_rails(
    names: &[String],
    columns: &[Column],
    rails: &Column,
) -> Option<(String, Option<Lever>)> {
    let step = |column: &Column| column.breakdown().map(|parts| parts.total());
    let by_step = |a: &usize, b: &usize| {
        let [a, b] = [a, b].map(|at| step(&columns[*at]).unwrap_or(f64::INFINITY));
        a.total_cmp(&b)
    };
    let best = (0..columns.len()).min_by(by_step)?;
    let (own, other) = (step(rails)?, step(&columns[best])?);
    let saved = columns[best].fabric.cost_usd - rails.fabric.cost_usd;
    let apart = match own / other - 1.0 {
        apart if apart.abs() < LONGER => "as long".to_owned(),
        apart if 0.0 < apart => format!("{:.1} % longer", 100.0 * apart),
        apart => format!("{:.1} % shorter", -100.0 * apart),
    };
    let change = Change::new(Kind::Fabric, "one switch for each rail", RAILS);
    let loaded = &columns[0].loaded;
    let command =
        format!("fatflow run {} {}", loaded.input, change.after_flags(loaded, &SIZES).flags());
    let price = if 0.0 <= saved { "less" } else { "more" };
    let text = format!(
        "Not asked for: one switch for each of the {} rails, with no spines, is enough for {} \
         servers; its step is {apart} and it costs {} {price} than {} (servers reach other rails \
         through their own GPUs): {command}",
        rails.fabric.switches,
        rails.fabric.nodes,
        dollars(saved.abs()),
        names[best],
    );
    Some((text, Some(lever(change, command))))
}
