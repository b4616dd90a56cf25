//! What ranks send in which of their groups.
//!
//! A group is told by the numbers of its ranks: those that tensor parallelism joins are next to
//! each other, those of pipelines far apart. Which axis of a job it is follows from the name that
//! the framework gave it, or from the layout of a scenario's job.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::observed::{InGroup, Kind, Observed};

/// So many names of groups are told.
const MOST_NAMES: usize = 3;

/// What a rank sends in groups of one shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AxisLoad {
    /// The axis: `tp`, `dp`, `pp`, `ep`, `cp`; `None` where nothing tells.
    pub axis: Option<&'static str>,
    /// Ranks of a group, where known.
    pub ranks: Option<u32>,
    /// How far apart its ranks are, if all are equally far from the next: 1 are neighbours.
    pub apart: Option<u32>,
    /// What files call these groups, the first of them.
    pub names: Vec<String>,
    /// Calls of a rank, on average over the ranks that files show.
    pub calls_per_rank: f64,
    /// Bytes that a rank sends, on average over the ranks that files show: sizes times the factor
    /// of bus bandwidth.
    pub bytes_per_rank: f64,
    /// The share of that in all groups.
    pub share: f64,
    /// The same by what is done.
    pub by_primitive: BTreeMap<&'static str, f64>,
}

impl AxisLoad {
    /// The group in words: `8 ranks next to each other`.
    pub fn shape(&self) -> String {
        let ranks = self.ranks.map_or("ranks".to_owned(), |ranks| format!("{ranks} ranks"));
        match self.apart {
            Some(1) => format!("{ranks} next to each other"),
            Some(apart) => format!("{ranks}, {apart} apart"),
            None => ranks,
        }
    }
}

/// Groups with their ranks, which some formats list in another file.
pub(super) fn whole_groups(observed: &Observed) -> Vec<InGroup> {
    // Who is in the group of all ranks is known if every rank has a trace.
    let ranks: BTreeSet<u32> = observed.workloads.iter().filter_map(|work| work.rank).collect();
    let is_whole = 1 < ranks.len() && ranks.iter().copied().eq(0..ranks.len() as u32);
    let everybody: Vec<u32> = ranks.into_iter().filter(|_| is_whole).collect();
    let whole = |own: &InGroup| {
        let mut own = own.clone();
        if own.members.is_empty() && own.puts_in {
            own.members = match observed.groups.get(&own.name) {
                Some(members) => members.clone(),
                None if own.name.is_empty() => everybody.clone(),
                None => Vec::new(),
            };
        }
        own.members.sort_unstable();
        if own.size == 0 {
            own.size = u32::try_from(own.members.len()).unwrap_or(u32::MAX);
        }
        own
    };
    observed.in_groups.iter().map(whole).collect()
}

/// Bytes that a rank sends: sizes times the factor of bus bandwidth.
pub(super) fn sent(group: &InGroup, kind: Kind, bytes: u64) -> f64 {
    // Where nobody says how many ranks there are, there are many.
    let ranks = if group.size == 0 { u32::MAX } else { group.size };
    let whole = match kind {
        Kind::AllGather if group.puts_in && 0 < group.size => f64::from(ranks),
        _ => 1.0,
    };
    kind.bus_factor(ranks) * whole * bytes as f64
}

/// Sums up by axis, as `axis` tells it of a group and what is done there.
pub fn by_axis(
    groups: &[InGroup],
    axis: impl Fn(&InGroup, Kind) -> Option<&'static str>,
) -> Vec<AxisLoad> {
    let ranks: BTreeSet<(usize, usize)> = groups.iter().map(|group| group.whose).collect();
    let each = 1.0 / ranks.len().max(1) as f64;
    let mut all: BTreeMap<_, AxisLoad> = BTreeMap::new();
    for group in groups {
        let ranks = (0 < group.size).then_some(group.size);
        let apart = apart(&group.members);
        for (kind, (calls, bytes)) in group.sent.iter().filter(|(kind, _)| **kind != Kind::Barrier)
        {
            let axis = axis(group, *kind);
            let load = all.entry((axis, ranks, apart)).or_default();
            (load.axis, load.ranks, load.apart) = (axis, ranks, apart);
            let bytes = each * sent(group, *kind, *bytes);
            load.bytes_per_rank += bytes;
            load.calls_per_rank += each * *calls as f64;
            *load.by_primitive.entry(kind.name()).or_default() += bytes;
            let is_new = !group.name.is_empty() && !load.names.contains(&group.name);
            if is_new && load.names.len() < MOST_NAMES {
                load.names.push(group.name.clone());
            }
        }
    }
    let total: f64 = all.values().map(|load| load.bytes_per_rank).sum();
    let mut all: Vec<AxisLoad> = all.into_values().filter(|l| 0.0 < l.bytes_per_rank).collect();
    all.iter_mut().for_each(|load| load.share = load.bytes_per_rank / total);
    all.sort_by(|a, b| b.bytes_per_rank.total_cmp(&a.bytes_per_rank));
    all
}

/// How far apart ranks are, if all are equally far from the next.
fn apart(members: &[u32]) -> Option<u32> {
    let mut gaps = members.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    let first = gaps.next().filter(|gap| 0 < *gap)?;
    gaps.all(|gap| gap == first).then_some(first)
}

/// The axis that a framework's name of a group tells, such as `TENSOR_MODEL_PARALLEL_GROUP`,
/// `mesh_dp_shard` or `tp0`.
pub(super) fn told_by_name(group: &InGroup, _: Kind) -> Option<&'static str> {
    let name = group.name.to_ascii_lowercase();
    let words = name.split(|letter: char| !letter.is_ascii_alphabetic());
    let axis = |word: &str| match word {
        "tp" | "tensor" => Some("tp"),
        "dp" | "data" | "fsdp" | "hsdp" => Some("dp"),
        "pp" | "pipeline" => Some("pp"),
        "ep" | "expert" => Some("ep"),
        "cp" | "context" => Some("cp"),
        _ => None,
    };
    let told: BTreeSet<&'static str> = words.filter_map(axis).collect();
    let has = |axis: &str| told.contains(axis);
    match (told.len(), told.first()) {
        // Copies of experts, and copies that context parallelism makes, are copies.
        (2, _) if has("dp") && (has("ep") || has("cp")) => Some("dp"),
        (2, _) if has("tp") && has("ep") => Some("tp"),
        (1, Some(axis)) => Some(axis),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, members: &[u32]) -> InGroup {
        let size = u32::try_from(members.len()).unwrap();
        let (name, members) = (name.to_owned(), members.to_vec());
        let sent = BTreeMap::from([(Kind::AllReduce, (2, 800))]);
        InGroup { name, size, members, sent, ..InGroup::default() }
    }

    /// Oracle: the names that Megatron-LM and PyTorch's device meshes give groups.
    #[test]
    fn names_of_frameworks_tell_the_axis() {
        let told = |name: &str| told_by_name(&group(name, &[]), Kind::AllReduce);
        for (name, axis) in [
            ("3 TENSOR_MODEL_PARALLEL_GROUP", Some("tp")),
            ("DATA_PARALLEL_GROUP_WITH_CP", Some("dp")),
            ("CONTEXT_PARALLEL_GROUP", Some("cp")),
            ("PIPELINE_MODEL_PARALLEL_GROUP", Some("pp")),
            ("EXPERT_MODEL_PARALLEL_GROUP", Some("ep")),
            ("EXPERT_DATA_PARALLEL_GROUP", Some("dp")),
            ("EXPERT_TENSOR_PARALLEL_GROUP", Some("tp")),
            ("TENSOR_AND_DATA_PARALLEL_GROUP", None),
            ("7 mesh_dp_shard", Some("dp")),
            ("tp0", Some("tp")),
            ("default_pg", None),
            ("", None),
        ] {
            assert_eq!(told(name), axis, "{name}");
        }
    }

    /// Oracle: by hand. Two ranks in two groups of each kind: groups alike are one row, and a rank
    /// sends the mean.
    #[test]
    fn groups_alike_are_one() {
        let mut all = vec![
            group("tp0", &[0, 1]),
            group("dp0", &[0, 2, 4, 6]),
            group("tp4", &[4, 5]),
            group("?", &[4, 5, 9]),
        ];
        all[2].whose = (1, 0);
        all[3].whose = (1, 0);
        let told = by_axis(&all, told_by_name);
        let rows: Vec<_> = told
            .iter()
            .map(|load| (load.axis, load.shape(), load.calls_per_rank, load.bytes_per_rank))
            .collect();
        assert_eq!(
            rows,
            [
                (Some("tp"), "2 ranks next to each other".to_owned(), 2.0, 800.0),
                (Some("dp"), "4 ranks, 2 apart".to_owned(), 1.0, 600.0),
                (None, "3 ranks".to_owned(), 1.0, 2.0 * 2.0 / 3.0 * 800.0 / 2.0),
            ]
        );
        assert_eq!(told[0].names, ["tp0", "tp4"]);
        assert!((told.iter().map(|load| load.share).sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
