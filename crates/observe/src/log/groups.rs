//! Ranks that joined communicators, put together: who talks to whom, on which rings.
//!
//! From 2.16 on a communicator has a name that all of its ranks print. Before, ranks are told apart
//! by size, rank, server and device: what belongs together is then an assumption that holds for
//! groups of one kind, and the count of communicators is right in any case.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::Reading;
use crate::observed::Communicator;

/// What one rank wrote about a communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    /// Rings as rank 0 lists them; long ones are cut.
    pub headers: BTreeMap<u32, Vec<u32>>,
    /// The channels that such a list speaks of.
    pub listed_channels: Option<u32>,
    /// By channel and rank: to whom it sends first, which is its ring.
    pub next: BTreeMap<(u32, u32), u32>,
    /// From whom it receives first.
    pub previous: BTreeMap<(u32, u32), u32>,
    /// By channel and rank: the parent in the tree, -1 at the root.
    pub parents: BTreeMap<(u32, u32), i32>,
    /// Channels for collectives.
    pub channels: Option<u32>,
    /// Channels for NVLink SHARP.
    pub nvls_channels: Option<u32>,
    /// Channels for reductions in switches.
    pub collnet_channels: Option<u32>,
    /// Nodes that it spans.
    pub nodes: Option<u32>,
    /// Its ranks on this node.
    pub local_ranks: Option<u32>,
    /// Whether any of its connections leaves the server.
    pub has_network: bool,
    /// The highest rank that a connection names.
    pub highest_rank: Option<u32>,
}

/// One rank in one communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct Join {
    /// The server.
    pub host: String,
    /// The process.
    pub process: u32,
    /// The GPU's number in the process.
    pub device: i32,
    /// Its address in that process.
    pub address: String,
    /// Its name, if the library prints one.
    pub id: Option<String>,
    /// The rank.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// Whether it was made.
    pub is_complete: bool,
    /// What it wrote about it.
    pub notes: Notes,
}

/// A GPU: its server, the process, and its number there.
pub(super) type Gpu = (String, u32, i32);

impl Join {
    fn gpu(&self) -> Gpu {
        (self.host.clone(), self.process, self.device)
    }
}

/// Adds the communicators of a file to what was observed. Which of them a GPU means by an address.
pub(super) fn assemble(
    joins: Vec<Join>,
    left: Vec<Notes>,
    reading: &mut Reading<'_>,
) -> BTreeMap<(Gpu, String), usize> {
    let groups = put_together(joins);
    let (jobs, ranks) = jobs(&groups);
    let cluster = &mut reading.observed.cluster;
    cluster.jobs += jobs;
    cluster.ranks = cluster.ranks.max(ranks);
    let nodes = groups.iter().flatten().filter_map(|join| join.notes.nodes).max();
    cluster.nodes = cluster.nodes.max(nodes);
    let world = groups.iter().max_by_key(|group| group.len());
    let world = world.filter(|group| jobs == 1 && group[0].size as usize == group.len());
    let world: BTreeMap<_, u32> =
        world.into_iter().flatten().map(|join| (join.gpu(), join.rank)).collect();
    let mut known = BTreeMap::new();
    for (joins, at) in groups.iter().zip(reading.observed.communicators.len()..) {
        known.extend(joins.iter().map(|join| ((join.gpu(), join.address.clone()), at)));
    }
    let of = |joins: &Vec<Join>| Communicator { members: members(joins, &world), ..of(joins) };
    let mut communicators: Vec<Communicator> = groups.iter().map(of).collect();
    if communicators.is_empty() {
        communicators.extend(without_names(left));
        if let [one] = &communicators[..] {
            cluster.ranks = cluster.ranks.max(Some(one.size));
        }
    }
    reading.observed.communicators.extend(communicators);
    known
}

/// Who talks to whom.
fn put_together(joins: Vec<Join>) -> Vec<Vec<Join>> {
    let per_host = gpus_per_host(&joins);
    let mut groups: Vec<Vec<Join>> = Vec::new();
    let mut named: BTreeMap<(String, u32), Vec<usize>> = BTreeMap::new();
    // By size, groups without a name that lack ranks: logs of many jobs have thousands of others.
    let mut open: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for join in joins {
        let place = match &join.id {
            Some(id) => {
                let places = named.entry((id.clone(), join.size)).or_default();
                let free = |place: &&usize| groups[**place].iter().all(|k| k.rank != join.rank);
                let place = places.iter().find(free).copied();
                let place = place.unwrap_or(groups.len());
                if place == groups.len() {
                    places.push(place);
                }
                place
            }
            None => {
                let lacking = open.entry(join.size).or_default();
                let place = place_of(&groups, lacking, &join, per_host);
                if place == groups.len() {
                    lacking.push(place);
                }
                let members = groups.get(place).map_or(0, Vec::len) + 1;
                if join.size as usize <= members {
                    lacking.retain(|open| *open != place);
                }
                place
            }
        };
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(join);
    }
    groups
}

/// The ranks of a group in the job, if all of them are known.
fn members(joins: &[Join], world: &BTreeMap<Gpu, u32>) -> Vec<u32> {
    let ranks: BTreeMap<u32, u32> =
        joins.iter().filter_map(|join| Some((join.rank, *world.get(&join.gpu())?))).collect();
    let is_whole = ranks.len() == joins[0].size as usize;
    if is_whole { ranks.into_values().collect() } else { Vec::new() }
}

/// The most GPUs that one server has.
fn gpus_per_host(joins: &[Join]) -> usize {
    let mut gpus: BTreeMap<&str, BTreeSet<(u32, i32)>> = BTreeMap::new();
    for join in joins {
        gpus.entry(&join.host).or_default().insert((join.process, join.device));
    }
    gpus.values().map(BTreeSet::len).max().unwrap_or(0)
}

/// The group that a rank without a name belongs to: the first of those that lack it.
/// Where a server could hold the whole group, ranks of one server are put together if no
/// connection leaves it, and otherwise ranks of the same server, or else of the same device.
fn place_of(groups: &[Vec<Join>], lacking: &[usize], join: &Join, per_host: usize) -> usize {
    let is_free = |group: &[Join]| {
        let same_gpu = |known: &Join| {
            (&known.host, known.process, known.device) == (&join.host, join.process, join.device)
        };
        group.iter().all(|known| known.rank != join.rank && !same_gpu(known))
    };
    let free = lacking.iter().copied().filter(|place| is_free(&groups[*place]));
    let free: Vec<usize> = free.collect();
    let near = |place: &&usize| groups[**place].iter().any(|known| known.host == join.host);
    let leaves = |place: &&usize| groups[**place].iter().any(|known| known.notes.has_network);
    let device = |place: &&usize| groups[**place].iter().all(|known| known.device == join.device);
    let can_be_local = join.size as usize <= per_host;
    let place = match (can_be_local, join.notes.has_network) {
        (true, false) => {
            let own = free.iter().find(|place| near(place) && !leaves(place));
            own.or_else(|| free.iter().find(near))
        }
        (true, true) => {
            let own = free.iter().find(|place| near(place));
            own.or_else(|| free.iter().find(|place| device(place) && leaves(place)))
        }
        (false, _) => free.iter().find(device).or(free.first()),
    };
    place.copied().unwrap_or(groups.len())
}

/// How many sets of processes share no communicator, and the largest communicator of them.
fn jobs(groups: &[Vec<Join>]) -> (u32, Option<u32>) {
    let mut parents: BTreeMap<(&str, u32), (&str, u32)> = BTreeMap::new();
    fn root<'a>(
        parents: &BTreeMap<(&'a str, u32), (&'a str, u32)>,
        mut of: (&'a str, u32),
    ) -> (&'a str, u32) {
        while parents[&of] != of {
            of = parents[&of];
        }
        of
    }
    for group in groups {
        let mut first = None;
        for join in group {
            let key = (join.host.as_str(), join.process);
            parents.entry(key).or_insert(key);
            let own = root(&parents, key);
            let first = *first.get_or_insert(own);
            let first = root(&parents, first);
            parents.insert(own, first);
        }
    }
    let roots: BTreeSet<_> = parents.keys().map(|key| root(&parents, *key)).collect();
    let largest = groups.iter().flatten().map(|join| join.size).max();
    (u32::try_from(roots.len()).unwrap_or(u32::MAX), largest)
}

/// A communicator from what its ranks wrote.
fn of(joins: &[Join]) -> Communicator {
    let first = &joins[0];
    let size = first.size;
    let channels = joins.iter().filter_map(|join| join.notes.channels).max();
    let listed = joins.iter().filter_map(|join| join.notes.listed_channels).max();
    let mut all = first.notes.clone();
    for join in &joins[1..] {
        merge(&mut all, &join.notes);
    }
    let channels = channels.or(listed).unwrap_or_else(|| highest_channel(&all));
    let hosts: BTreeSet<&str> = joins.iter().map(|join| join.host.as_str()).collect();
    let id = match &first.id {
        Some(id) => id.clone(),
        None => format!("{}:{} {}", first.host, first.process, first.address),
    };
    Communicator {
        id,
        size,
        nodes: joins.iter().filter_map(|join| join.notes.nodes).max(),
        members: Vec::new(),
        seen: joins.iter().map(|join| join.rank).collect(),
        hosts: hosts.into_iter().map(str::to_owned).collect(),
        channels,
        nvls_channels: joins.iter().filter_map(|join| join.notes.nvls_channels).max(),
        rings: rings(&all, size, channels),
        trees: trees(&all, size, channels),
    }
}

fn merge(all: &mut Notes, notes: &Notes) {
    for (channel, ring) in &notes.headers {
        let known = all.headers.entry(*channel).or_default();
        if known.len() < ring.len() {
            known.clone_from(ring);
        }
    }
    all.next.extend(&notes.next);
    all.previous.extend(&notes.previous);
    all.parents.extend(&notes.parents);
    all.highest_rank = all.highest_rank.max(notes.highest_rank);
}

fn highest_channel(notes: &Notes) -> u32 {
    let channels = notes.next.keys().chain(notes.previous.keys()).map(|(channel, _)| *channel);
    channels.max().map_or(0, |channel| channel.saturating_add(1))
}

/// The rings, as far as lines name them.
fn rings(notes: &Notes, size: u32, channels: u32) -> Vec<Vec<u32>> {
    let channels = channels.min(1 << 10);
    let ring = |channel: u32| {
        let header = notes.headers.get(&channel);
        if let Some(header) = header.filter(|header| header.len() == size as usize) {
            return header.clone();
        }
        let mut next: BTreeMap<u32, u32> = BTreeMap::new();
        let own = (channel, 0)..=(channel, u32::MAX);
        let sent = notes.next.range(own.clone()).map(|((_, from), to)| (*from, *to));
        let received = notes.previous.range(own).map(|((_, to), from)| (*from, *to));
        for (from, to) in sent.chain(received) {
            next.entry(from).or_insert(to);
        }
        for pair in header.into_iter().flat_map(|header| header.windows(2)) {
            next.insert(pair[0], pair[1]);
        }
        let start = header.and_then(|header| header.first().copied());
        let Some(mut at) = start.or_else(|| next.keys().next().copied()) else { return Vec::new() };
        let mut ring = vec![at];
        while let Some(to) = next.remove(&at).filter(|to| *to != ring[0]) {
            if size as usize <= ring.len() {
                break;
            }
            ring.push(to);
            at = to;
        }
        ring
    };
    let rings: Vec<Vec<u32>> = (0..channels).map(ring).collect();
    if rings.iter().all(Vec::is_empty) { Vec::new() } else { rings }
}

/// For each channel the parent of each rank; `None` where no line says.
fn trees(notes: &Notes, size: u32, channels: u32) -> Vec<Vec<Option<i32>>> {
    if notes.parents.is_empty() || (1 << 16) < size {
        return Vec::new();
    }
    let tree =
        |channel| (0..size).map(|rank| notes.parents.get(&(channel, rank)).copied()).collect();
    (0..channels.min(1 << 10)).map(tree).collect()
}

/// A communicator whose ranks do not say its name or size: what its connections tell.
fn without_names(left: Vec<Notes>) -> Option<Communicator> {
    let mut all = Notes::default();
    let mut channels = 0;
    for notes in &left {
        merge(&mut all, notes);
        channels = channels.max(notes.channels.or(notes.listed_channels).unwrap_or(0));
    }
    let size = all.highest_rank?.checked_add(1)?;
    let channels = if channels == 0 { highest_channel(&all) } else { channels };
    let id = "no name: ranks are those that connections name".to_owned();
    let rings = rings(&all, size, channels);
    Some(Communicator { id, size, channels, rings, ..Communicator::default() })
}
