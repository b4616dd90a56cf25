//! `place`: which servers should this job get, and which rank runs where?
//!
//! The free servers come from the scenario (`job.placement.busy`) or from what a scheduler says
//! ([`nodes`]). The search ([`search`], `job::mapping`) gives every block of ranks a server so that
//! few bytes of a step go over few cables between switches. Beside it stand the servers in order,
//! what Slurm's tree plug-in would take ([`slurm`]), and the scenario's own placement, each
//! followed byte by byte.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fabric::Fabric;
use job::Program;
use job::mapping::must_leave;
use job::placement::{Placement, PlacementConfig, Policy, free_nodes};
use report::Answer;
use scenario::export::{host_name, slurm_groups};
use scenario::{Loaded, Problem, source};
use serde::Serialize;
use step::predict::library_of;
use traffic::nccl::Settings;

use crate::failure::Failure;
use crate::traffic::{Climbs, Walk};
use crate::world::{self, Places, assumptions, library, slots};

pub mod nodes;
mod page;
mod scotch;
mod search;
mod sites;
mod slurm;

use search::{Placed, Question};
use sites::Ground;

/// What is known of the servers beside the scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What `sinfo` or `scontrol show node` prints: idle nodes are free.
    pub nodes: Option<PathBuf>,
    /// A list of the free nodes.
    pub free: Option<PathBuf>,
    /// A list of nodes that cannot be had.
    pub busy: Option<PathBuf>,
    /// Rank files to show beside the answer.
    pub beside: Vec<PathBuf>,
}

/// A placement in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaceRow {
    /// Its name.
    pub placement: String,
    /// Servers that it uses.
    pub nodes: u64,
    /// Bytes that reach each tier's switches from below.
    pub bytes_per_tier: BTreeMap<String, f64>,
    /// The same for all tiers above the lowest.
    pub upper_bytes: f64,
    /// Bytes times the cables between switches that they go over.
    pub hop_bytes: f64,
}

/// The servers of a job and its ranks on them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The chosen servers, in the order of their ranks.
    pub nodes: Vec<String>,
    /// The GPU of every rank, numbered over the whole cluster: a rank file, line by line.
    pub ranks: Vec<u32>,
    /// Bytes of a step that reach each tier's switches from below.
    pub bytes_per_tier: BTreeMap<String, f64>,
    /// The same with ranks in order on free servers in order.
    pub linear_bytes_per_tier: BTreeMap<String, f64>,
    /// The same on what Slurm's tree plug-in takes.
    pub slurm_bytes_per_tier: BTreeMap<String, f64>,
    /// What Slurm's tree plug-in takes, in order.
    pub slurm_nodes: Vec<String>,
    /// The placement, linear order, Slurm's, the scenario's own, and rank files.
    pub placements: Vec<PlaceRow>,
    /// What no placement on these servers goes below, over all tiers above the lowest.
    pub lower_bound_bytes: f64,
    /// Free servers that could be used.
    pub free_nodes: u64,
    /// Free servers that could not, and why.
    pub left_out: Vec<LeftOut>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    words: String,
    #[serde(skip)]
    tiers: Vec<String>,
    #[serde(skip)]
    remarks: Vec<String>,
    /// The server of every rank, by name.
    #[serde(skip)]
    hosts: Vec<String>,
    #[serde(skip)]
    scotch: scotch::Case,
}

/// A free server that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub node: String,
    /// Why.
    pub why: &'static str,
}

/// The GPUs that `min-cut` gives the ranks of the scenario's job.
pub(crate) fn min_cut(loaded: &Loaded, config: &PlacementConfig) -> Result<Vec<u64>, Failure> {
    let job = loaded.job.as_ref().expect("only a job has a placement");
    let program = Program::new(job);
    let settings = settings(loaded, &program);
    let ground = Ground::of(loaded.fabric(), &free_of(loaded, config.busy))
        .map_err(|reason| loaded.problem("job.placement", reason))?;
    let question = Question { loaded, program: &program, settings: &settings };
    let found = question.answer(&ground)?;
    Ok(found.placement.gpus().iter().map(|gpu| u64::from(*gpu)).collect())
}

fn settings(loaded: &Loaded, program: &Program) -> Settings {
    let gpus_per_node = loaded.fabric().gpus_per_node().max(1) as u64;
    let overheads = &assumptions(loaded).overheads;
    library_of(&program.job, &library(loaded), overheads, gpus_per_node)
}

/// The servers that no other job holds, as the scenario has it.
fn free_of(loaded: &Loaded, busy: f64) -> Vec<usize> {
    let drawn = || free_nodes(&slots(loaded.fabric()), busy, loaded.scenario.seed);
    let free = loaded.nodes.clone().unwrap_or_else(drawn);
    free.into_iter().map(|node| usize::try_from(node).expect("servers fit memory")).collect()
}

/// Chooses the servers of the scenario's job and the order of its ranks on them.
pub fn run(loaded: &Loaded, options: &Options) -> Result<Report, Failure> {
    let Some(job) = &loaded.job else {
        let problem = Problem::error(format!("`{}` has no job", loaded.title()));
        return Err(problem.with_help("add a `[job]` table; `fatflow init` shows one").into());
    };
    let fabric = loaded.fabric();
    let program = Program::new(job);
    let settings = settings(loaded, &program);
    let mut remarks = Vec::new();
    let FreeServers { free, names } = free_servers(loaded, options, &mut remarks)?;
    let ground =
        Ground::of(fabric, &free).map_err(|reason| loaded.problem("job.placement", reason))?;
    let question = Question { loaded, program: &program, settings: &settings };
    let found = question.answer(&ground)?;
    let places = Places::of(fabric);
    let measure = Measure { question, places: &places };
    let mut usable: Vec<usize> =
        ground.units.concat().iter().flat_map(|unit| ground.servers_of(*unit)).collect();
    usable.sort_unstable();
    let servers = found.unit_of.len() * ground.servers_per_unit;
    let linear = in_order(fabric, &usable[..servers], job.layout.gpus());
    let chosen = slurm::choose(&slurm_groups(fabric), &usable, servers);
    let chosen = chosen.expect("free servers were counted before");
    let by_slurm = in_order(fabric, &chosen, job.layout.gpus());
    let mut rows = vec![
        measure.row("min-cut", &found.placement)?,
        measure.row("linear", &linear)?,
        measure.row("slurm topology/tree", &by_slurm)?,
    ];
    rows.extend(own_row(loaded, options, &measure)?);
    for path in &options.beside {
        let name = path.display().to_string();
        let ranks = world::rank_file(loaded, &name)?;
        let config = PlacementConfig { policy: Policy::RankFile(name.clone()), busy: 0.0 };
        let placed = job::placement::place(&config, &job.layout, &slots(fabric), &ranks, 0);
        let placed = placed.map_err(|error| Problem::error(format!("{name}: {error}")))?;
        rows.push(measure.row(&name, &placed)?);
    }
    let name = |server: &usize| match &names {
        Some(names) => names[*server].clone(),
        None => host_name(fabric, *server),
    };
    let each = fabric.gpus_per_node().max(1);
    let in_rank_order = found.unit_of.iter().flat_map(|unit| ground.servers_of(*unit));
    let left_out = ground.left_out.iter();
    let left_out = left_out.map(|(server, why)| LeftOut { node: name(server), why }).collect();
    Ok(Report {
        nodes: in_rank_order.map(|server| name(&server)).collect(),
        ranks: found.placement.gpus().to_vec(),
        bytes_per_tier: rows[0].bytes_per_tier.clone(),
        linear_bytes_per_tier: rows[1].bytes_per_tier.clone(),
        slurm_bytes_per_tier: rows[2].bytes_per_tier.clone(),
        slurm_nodes: chosen.iter().map(name).collect(),
        placements: rows,
        lower_bound_bytes: lower_bound(fabric, &places, &ground, &found),
        free_nodes: usable.len() as u64,
        left_out,
        title: loaded.title(),
        words: crate::run_job::job_words(job),
        tiers: fabric.tiers().iter().map(|tier| tier.name.clone()).collect(),
        remarks,
        hosts: found.placement.gpus().iter().map(|gpu| name(&(*gpu as usize / each))).collect(),
        scotch: scotch::Case::of(&ground, &found),
    })
}

/// The scenario's own placement, where it is another and the servers are the scenario's.
fn own_row(
    loaded: &Loaded,
    options: &Options,
    measure: &Measure<'_>,
) -> Result<Option<PlaceRow>, Failure> {
    let config = loaded.scenario.job.as_ref().map(|job| job.placement.clone()).unwrap_or_default();
    let is_shown = matches!(config.policy, Policy::Linear | Policy::MinCut);
    if is_shown || options.nodes.is_some() || options.free.is_some() || options.busy.is_some() {
        return Ok(None);
    }
    let job = loaded.job.as_ref().expect("checked before");
    let own = world::placement(loaded, &job.layout, &config)?;
    measure.row(&format!("{} (job.placement)", String::from(config.policy)), &own).map(Some)
}

/// The free servers, in order, and the scheduler's names of all where they are not the fabric's.
struct FreeServers {
    free: Vec<usize>,
    names: Option<Vec<String>>,
}

fn free_servers(
    loaded: &Loaded,
    options: &Options,
    remarks: &mut Vec<String>,
) -> Result<FreeServers, Failure> {
    let fabric = loaded.fabric();
    let given = [&options.nodes, &options.free, &options.busy];
    let Some(path) = given.into_iter().flatten().next() else {
        let config = loaded.scenario.job.as_ref().map(|job| job.placement.clone());
        let free = free_of(loaded, config.unwrap_or_default().busy);
        return Ok(FreeServers { free, names: None });
    };
    let text = source::read(path)?;
    let listed = nodes::read(&text)?;
    if options.nodes.is_some() && listed.nodes.iter().any(|(_, idle)| idle.is_none()) {
        let problem =
            Problem::error(format!("`{}` does not say what state nodes are in", text.name));
        return Err(problem.with_help("a list of free nodes is given with --free").into());
    }
    let names: BTreeMap<String, usize> =
        (0..fabric.servers()).map(|server| (host_name(fabric, server), server)).collect();
    let unknown = listed.nodes.iter().find(|(name, _)| !names.contains_key(name));
    // A scheduler's own names, all of them: in their order they are the servers.
    let by_order = unknown.is_some() && listed.nodes.len() == fabric.servers();
    if by_order {
        let (first, last) = (&listed.nodes[0].0, &listed.nodes[listed.nodes.len() - 1].0);
        remarks.push(format!(
            "The names in `{}` are not the fabric's: {first} to {last} are taken for its servers \
             in this order.",
            text.name
        ));
    } else if let Some((name, _)) = unknown {
        let problem = Problem::error(format!("`{}`: the fabric has no node `{name}`", text.name));
        let help = format!(
            "its {} nodes are called {} to {}; a list of all of them in order may have other names",
            fabric.servers(),
            host_name(fabric, 0),
            host_name(fabric, fabric.servers().saturating_sub(1))
        );
        return Err(problem.with_help(help).into());
    }
    let mut marked: Vec<usize> = Vec::new();
    for (at, (name, idle)) in listed.nodes.iter().enumerate() {
        if idle.unwrap_or(true) || options.busy.is_some() {
            marked.push(if by_order { at } else { names[name] });
        }
    }
    marked.sort_unstable();
    let is_marked = |server: &usize| marked.binary_search(server).is_ok();
    let is_free = |server: &usize| is_marked(server) != options.busy.is_some();
    let free = (0..fabric.servers()).filter(is_free).collect();
    let names = by_order.then(|| listed.nodes.into_iter().map(|node| node.0).collect());
    Ok(FreeServers { free, names })
}

/// Ranks in order on servers in order.
fn in_order(fabric: &Fabric, servers: &[usize], ranks: u64) -> Placement {
    let each = fabric.gpus_per_node();
    let gpu = |rank: usize| (servers[rank / each] * each + rank % each) as u32;
    let ranks = usize::try_from(ranks).expect("ranks fit memory");
    let gpus = (0..ranks).map(gpu).collect();
    Placement::of(gpus, fabric.gpus() as u64).expect("servers are listed once")
}

/// What placements do, byte by byte.
struct Measure<'a> {
    question: Question<'a>,
    places: &'a Places,
}

impl Measure<'_> {
    fn row(&self, name: &str, placement: &Placement) -> Result<PlaceRow, Failure> {
        let Question { loaded, program, settings } = self.question;
        let fabric = loaded.fabric();
        let walk = Walk { program, fabric, placement, settings };
        let mut climbs = Climbs::new(fabric, self.places);
        walk.each(&mut |line| {
            climbs.add((line.connection.from, line.connection.to), line.total());
        })?;
        let each = fabric.gpus_per_node() as u32;
        let mut nodes: Vec<u32> = placement.gpus().iter().map(|gpu| gpu / each).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let tiers = climbs.per_tier();
        Ok(PlaceRow {
            placement: name.to_owned(),
            nodes: nodes.len() as u64,
            upper_bytes: tiers.iter().skip(1).map(|tier| tier.1).sum(),
            hop_bytes: climbs.hop_bytes,
            bytes_per_tier: tiers.into_iter().collect(),
        })
    }
}

/// What must leave its leaf, and its zone, and whatever there is above, wherever ranks go.
fn lower_bound(fabric: &Fabric, places: &Places, ground: &Ground, found: &Placed) -> f64 {
    let nic = |site: usize| {
        fabric
            .nic(ground.units[site][0] as usize * ground.servers_per_unit * fabric.nics_per_node())
    };
    let mut climbs = Climbs::new(fabric, places);
    let mut bound = 0.0;
    for height in 1..fabric.tiers().len() {
        // Sites that meet within so many tiers: the first of each group, and its seats.
        let mut groups: Vec<(usize, u32)> = Vec::new();
        for (site, seats) in ground.sites.seats().iter().enumerate() {
            let mut meets = |first: usize| {
                let tiers = climbs.add((nic(first), nic(site)), 0.0);
                first == site || tiers.is_some_and(|tiers| tiers <= height)
            };
            match groups.iter_mut().find(|(first, _)| meets(*first)) {
                Some((_, all)) => *all += seats,
                None => groups.push((site, *seats)),
            }
        }
        let groups: Vec<u32> = groups.into_iter().map(|group| group.1).collect();
        bound += must_leave(&found.exchange, &groups);
    }
    bound
}

impl Report {
    /// One line for each rank, as `job.placement` reads it.
    pub fn rank_file(&self) -> String {
        let mut text = format!("# {}: the GPU of every rank, by min-cut.\n", self.title);
        for gpu in &self.ranks {
            text += &format!("{gpu}\n");
        }
        text
    }

    /// One line for each rank, its server's name: what `SLURM_HOSTFILE` names for
    /// `srun --distribution=arbitrary`.
    pub fn host_file(&self) -> String {
        self.hosts.iter().map(|host| format!("{host}\n")).collect()
    }

    /// The search's question for Scotch: its graph, its target and what its domains are.
    pub fn scotch(&self) -> [(&'static str, String); 3] {
        self.scotch.files()
    }
}

impl Answer for Report {
    fn sheet(&self) -> report::Sheet {
        page::sheet(self)
    }
}
