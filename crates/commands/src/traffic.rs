//! `traffic`: what a job puts on the wire, from its configuration alone.
//!
//! Bytes of one step between NICs, by axis and primitive, by GPU, node, rail and tier; how large
//! transfers are, when they happen, how well their flows are told apart, who sends to whom, and
//! what the placement of ranks does to all that.

use std::borrow::Cow;
use std::collections::BTreeMap;

use exports::{Column, Table};
use fabric::graph::LinkKind;
use fabric::{Fabric, NodeId};
use job::placement::{PlacementConfig, Policy};
use job::program::Counted;
use job::{Axis, GroupKind, Program};
use report::Answer;
use scenario::Loaded;
use serde::Serialize;
use step::predict::library_of;
use traffic::Connection;
use units::Id;

use crate::engine::Engine;
use crate::failure::Failure;
use crate::occupancy::Habits;
use crate::run_job::predicted;
use crate::world::{JobWorld, Places, assumptions, placement};

mod burst;
mod ledger;
mod page;
mod paths;
mod profile;

pub use burst::{Burst, PassBurst};
pub(crate) use ledger::Walk;
pub use ledger::{Line, Primitive, TransferSize};
pub use paths::Entropy;
pub(crate) use paths::{Climbs, hashed};
pub use profile::Profile;

/// Transfers above this are elephants: the comparative analysis counts from 100 MB.
pub const ELEPHANT_BYTES: u64 = 100_000_000;

/// Blocks of a traffic matrix at most.
const BLOCKS: usize = 32;

/// What a job puts on the wire.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Bytes between NICs in one step, over all GPUs.
    pub bytes_per_step: f64,
    /// By axis of parallelism.
    pub by_axis: BTreeMap<&'static str, f64>,
    /// By primitive.
    pub by_primitive: BTreeMap<&'static str, f64>,
    /// By part of the step.
    pub by_pass: BTreeMap<&'static str, f64>,
    /// Each part of the step over time.
    pub passes: Vec<PassBurst>,
    /// What each primitive does to the network.
    pub profile: Vec<Profile>,
    /// Large transfers.
    pub elephants: Elephants,
    /// How well flows are told apart.
    pub entropy: Entropy,
    /// Traffic over time.
    pub burst: Burst,
    /// Bytes that reach each tier's switches from below.
    pub per_tier_bytes: BTreeMap<String, f64>,
    /// Bytes that leave one GPU: the mean, and the most.
    pub per_gpu_bytes: MeanMax,
    /// Bytes that leave one node.
    pub per_node_bytes: MeanMax,
    /// Bytes that leave the NICs of each rail.
    pub per_rail_bytes: Vec<f64>,
    /// By size of the transfers.
    pub sizes: Vec<SizeRow>,
    /// What ranks ask their communication library for, inside servers and between them.
    pub calls: Vec<CallRow>,
    /// The share of bytes that leaves its zone, under each placement.
    pub placements: Vec<PlacementRow>,
    /// Who sends to whom.
    pub matrix: Matrix,
    /// Length of a step by the closed form.
    pub step_s: f64,
    /// The last stage's first passes, as rates of a NIC.
    #[serde(skip)]
    within: Vec<PassBurst>,
    #[serde(skip)]
    tiers: Vec<(String, f64)>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    words: String,
    #[serde(skip)]
    lines: Vec<Line>,
    #[serde(skip)]
    fabric_words: FabricWords,
    /// Connections whose ends no path joins.
    pub unreachable: u64,
}

/// What the page needs to know of the fabric.
#[derive(Clone, Debug, Default)]
struct FabricWords {
    zone_word: String,
    qps: u16,
    policy: &'static str,
}

/// Large transfers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Elephants {
    /// What counts as large.
    pub threshold_bytes: u64,
    /// The share of all bytes that large transfers move.
    pub bytes_share: f64,
}

/// A mean and a maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MeanMax {
    /// Over those that send anything.
    pub mean: f64,
    /// The most.
    pub max: f64,
}

/// Transfers of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeRow {
    /// For which axis.
    pub axis: &'static str,
    /// What for.
    pub name: &'static str,
    /// What a rank sends to one peer in one call.
    pub transfer_bytes: f64,
    /// What all such transfers of a step move.
    pub bytes: f64,
}

/// One kind of call that ranks make in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallRow {
    /// For which axis.
    pub axis: &'static str,
    /// What for.
    pub name: &'static str,
    /// What is done.
    pub collective: &'static str,
    /// Among so many ranks.
    pub ranks: u64,
    /// The largest call, as nccl-tests counts it.
    pub call_bytes: u64,
    /// How often a GPU makes one in a step, on average over all.
    pub calls_per_gpu: f64,
    /// What all its calls of a step come to, on average over all GPUs.
    pub bytes_per_gpu: f64,
    /// Whether any of it leaves a server (or what else the scale-up network joins).
    pub leaves: bool,
}

/// What a placement does to bytes between zones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementRow {
    /// Its name.
    pub placement: String,
    /// Bytes of a step that leave their server (or what else the scale-up network joins): what
    /// the shares are of. Placements differ in it.
    pub network_bytes: f64,
    /// The share of bytes that leaves its leaf.
    pub cross_leaf_share: f64,
    /// Bytes of a step that leave their leaf.
    pub cross_leaf_bytes: f64,
    /// The share of bytes that leaves its zone.
    pub cross_zone_share: f64,
    /// Bytes of a step that leave their zone.
    pub cross_zone_bytes: f64,
    /// Whether it is the scenario's own.
    pub chosen: bool,
}

/// Who sends to whom, folded into blocks of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Matrix {
    /// What the rows and columns are.
    pub blocks: Vec<String>,
    /// Bytes from each block to each.
    pub bytes: Vec<Vec<f64>>,
}

/// Analyses what the scenario's job puts on the wire.
pub fn run(loaded: &Loaded) -> Result<Report, Failure> {
    let world = JobWorld::of(loaded)?;
    let program = Program::new(world.job);
    let assumed = assumptions(loaded);
    let gpus_per_node = world.fabric().gpus_per_node().max(1) as u64;
    let settings = library_of(world.job, &world.library, &assumed.overheads, gpus_per_node);
    let walk = Walk {
        program: &program,
        fabric: world.fabric(),
        placement: &world.placement,
        settings: &settings,
    };
    let mut lines: Vec<Line> = Vec::new();
    let sizes = walk.each(&mut |line| lines.push(*line))?;
    let prediction = predicted(loaded, &world, Engine::Analytic)?;
    let rhythms = step::rhythm::rhythms(world.world(), &assumed)?;
    let habits = Habits::of(&program, &prediction).with_rhythms(&rhythms);
    let stages = by_stage(&world, &lines);
    let rate = stage_rate(&world);
    let burst = burst::burst(&prediction.line, &stages, rate, habits);
    let places = Places::of(world.fabric());
    let line = &prediction.line;
    let mut report = summarise(loaded, &world, &places, (&lines, &sizes), burst);
    report.step_s = prediction.step.as_secs_f64();
    [report.passes, report.within] = profile::passes(&world, line, &sizes, (rate, habits));
    report.profile = profile::profile(loaded, &world, &places, &lines, (line, rate, habits));
    report.calls = calls(&program, &sizes);
    report.placements = placements(loaded, &world, &places, &walk, &lines)?;
    report.lines = lines;
    Ok(report)
}

/// Who sends to whom between NICs in a step of the scenario's job, and how many bytes.
pub(crate) fn connections(loaded: &Loaded) -> Result<Vec<(Connection, f64)>, Failure> {
    let lines = run(loaded)?.lines;
    Ok(lines.iter().map(|line| (line.connection, line.total())).collect())
}

fn by_stage(world: &JobWorld<'_>, lines: &[Line]) -> burst::ByStage {
    let stages = usize::try_from(world.job.layout.pp).expect("few stages");
    let mut bytes = vec![[0.0; 5]; stages];
    for line in lines {
        let stage = usize::try_from(line.stage).expect("few stages");
        bytes[stage][line.axis as usize] += line.total();
    }
    bytes
}

/// Bytes per second that the NICs of one stage's ranks can send.
fn stage_rate(world: &JobWorld<'_>) -> f64 {
    let fabric = world.fabric();
    let ports = fabric.ports(fabric.nic(0)).iter().map(|link| fabric.class(*link));
    let nic: f64 = ports
        .filter(|class| class.kind == LinkKind::ScaleOut)
        .map(|class| class.rate.bytes_per_s())
        .sum();
    stage_nics(world) * nic
}

/// The NICs of one stage's ranks.
fn stage_nics(world: &JobWorld<'_>) -> f64 {
    let fabric = world.fabric();
    let nics_per_gpu = fabric.nics_per_node() as f64 / fabric.gpus_per_node().max(1) as f64;
    let layout = &world.job.layout;
    (layout.gpus() / layout.pp) as f64 * nics_per_gpu
}

fn summarise(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    places: &Places,
    (lines, sizes): (&[Line], &[TransferSize]),
    burst: Burst,
) -> Report {
    let fabric = world.fabric();
    let mut by_axis: BTreeMap<_, _> = Axis::ALL.iter().map(|axis| (axis.word(), 0.0)).collect();
    let mut by_primitive: BTreeMap<_, _> =
        Primitive::ALL.iter().map(|primitive| (primitive.word(), 0.0)).collect();
    let mut per_nic = vec![0.0; fabric.nics()];
    let mut connections: Vec<(Connection, f64)> = Vec::with_capacity(lines.len());
    for line in lines {
        *by_axis.entry(line.axis.word()).or_default() += line.total();
        for primitive in Primitive::ALL {
            *by_primitive.entry(primitive.word()).or_default() += line.bytes[primitive as usize];
        }
        per_nic[fabric.nic_number(line.connection.from).expect("it is a NIC")] += line.total();
        connections.push((line.connection, line.total()));
    }
    let all: f64 = by_axis.values().sum();
    let routing = &loaded.scenario.network.settings.routing;
    let load = paths::load(fabric, places, &connections, routing, loaded.scenario.seed);
    let large = sizes.iter().filter(|size| ELEPHANT_BYTES as f64 <= size.bytes);
    // The sum of nothing is -0.
    let large = large.map(|size| size.volume).fold(0.0, |sum, volume| sum + volume);
    let moved: f64 = sizes.iter().map(|size| size.volume).sum();
    let nics = fabric.nics_per_node().max(1);
    let per_node: Vec<f64> = per_nic.chunks(nics).map(|nics| nics.iter().sum()).collect();
    let gpus_per_nic = fabric.gpus_per_node() as f64 / nics as f64;
    let MeanMax { mean, max } = mean_max(&per_nic);
    let zone_word = fabric.networks().first().map_or("zone", |network| &network.zone_word);
    Report {
        bytes_per_step: all,
        by_axis,
        by_primitive,
        by_pass: profile::by_pass(sizes),
        passes: Vec::new(),
        within: Vec::new(),
        profile: Vec::new(),
        elephants: Elephants {
            threshold_bytes: ELEPHANT_BYTES,
            bytes_share: if moved > 0.0 { large / moved } else { 0.0 },
        },
        entropy: load.entropy,
        burst,
        per_tier_bytes: load.per_tier.iter().cloned().collect(),
        per_gpu_bytes: MeanMax { mean: mean / gpus_per_nic, max: max / gpus_per_nic },
        per_node_bytes: mean_max(&per_node),
        per_rail_bytes: per_rail(fabric, &per_nic),
        sizes: size_rows(sizes),
        calls: Vec::new(),
        placements: Vec::new(),
        matrix: matrix(fabric, lines),
        step_s: 0.0,
        tiers: load.per_tier,
        title: loaded.title(),
        words: crate::run_job::job_words(world.job),
        lines: Vec::new(),
        unreachable: load.unreachable,
        fabric_words: FabricWords {
            zone_word: zone_word.to_owned(),
            qps: routing.qps,
            policy: routing.policy.name(),
        },
    }
}

fn per_rail(fabric: &Fabric, per_nic: &[f64]) -> Vec<f64> {
    let mut per_rail = vec![0.0; fabric.nics_per_node().max(1)];
    for (number, bytes) in per_nic.iter().enumerate() {
        per_rail[fabric.rail_of(fabric.nic(number))] += bytes;
    }
    per_rail
}

fn mean_max(values: &[f64]) -> MeanMax {
    let sending = values.iter().filter(|value| 0.0 < **value).count().max(1);
    MeanMax {
        mean: values.iter().sum::<f64>() / sending as f64,
        max: values.iter().copied().fold(0.0, f64::max),
    }
}

/// Equal sizes of one use as one row, the largest volume first.
fn size_rows(sizes: &[TransferSize]) -> Vec<SizeRow> {
    let mut rows: Vec<SizeRow> = Vec::new();
    for size in sizes.iter().filter(|size| 0.0 < size.volume) {
        let axis = size.axis.word();
        let same = |row: &&mut SizeRow| {
            row.axis == axis && row.name == size.name && row.transfer_bytes == size.bytes
        };
        match rows.iter_mut().find(same) {
            Some(row) => row.bytes += size.volume,
            None => rows.push(SizeRow {
                axis,
                name: size.name,
                transfer_bytes: size.bytes,
                bytes: size.volume,
            }),
        }
    }
    rows.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    rows
}

/// Calls for the same thing as one row, the largest sum first.
fn calls(program: &Program, sizes: &[TransferSize]) -> Vec<CallRow> {
    let layout = &program.job.layout;
    let mut rows: Vec<CallRow> = Vec::new();
    for Counted { call, groups, times, .. } in program.counted() {
        let (axis, ranks) = (call.axis().word(), layout.group_size(call.kind));
        // Of a message between stages the sender counts it.
        let callers = if call.kind == GroupKind::Pipeline { 1 } else { ranks };
        let often = (groups * times * callers) as f64 / layout.gpus() as f64;
        let bytes = call.bytes.get();
        let collective = call.collective.name();
        let same = |row: &&mut CallRow| {
            (row.axis, row.name, row.collective, row.ranks) == (axis, call.name, collective, ranks)
        };
        let row = match rows.iter_mut().find(same) {
            Some(row) => row,
            None => {
                let is_own = |size: &&TransferSize| {
                    size.axis == call.axis() && size.name == call.name && 0.0 < size.volume
                };
                rows.push(CallRow {
                    axis,
                    name: call.name,
                    collective,
                    ranks,
                    call_bytes: 0,
                    calls_per_gpu: 0.0,
                    bytes_per_gpu: 0.0,
                    leaves: sizes.iter().any(|size| is_own(&size)),
                });
                rows.last_mut().expect("just pushed")
            }
        };
        row.call_bytes = row.call_bytes.max(bytes);
        row.calls_per_gpu += often;
        row.bytes_per_gpu += often * bytes as f64;
    }
    rows.sort_by(|a, b| b.bytes_per_gpu.total_cmp(&a.bytes_per_gpu));
    rows
}

/// Bytes that a GPU sends in a step by axis, inside servers and between them, on average over all
/// GPUs.
pub fn sent_by_axis(loaded: &Loaded) -> Result<BTreeMap<&'static str, f64>, Failure> {
    let world = JobWorld::of(loaded)?;
    let program = Program::new(world.job);
    let gpus = program.job.layout.gpus() as f64;
    let sent = |axis: Axis| (axis.word(), program.volumes(axis).sent as f64 / gpus);
    Ok(Axis::ALL.into_iter().map(sent).collect())
}

/// What leaves its leaf and its zone under the usual placements and the scenario's own.
fn placements(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    places: &Places,
    walk: &Walk<'_>,
    own: &[Line],
) -> Result<Vec<PlacementRow>, Failure> {
    let config = loaded.scenario.job.as_ref().map(|job| job.placement.clone());
    let config = config.unwrap_or_default();
    let mut rows = Vec::new();
    let mut chosen = Crossing::default();
    own.iter().for_each(|line| chosen.add(places, line));
    rows.push(chosen.row(String::from(config.policy.clone()), true));
    for policy in [Policy::TopologyAware, Policy::Linear, Policy::Random] {
        if policy == config.policy {
            continue;
        }
        let name = String::from(policy.clone());
        let other = PlacementConfig { policy, busy: config.busy };
        let placement = placement(loaded, &world.job.layout, &other)?;
        let mut crossing = Crossing::default();
        let other = Walk { placement: &placement, ..*walk };
        other.each(&mut |line| crossing.add(places, line))?;
        rows.push(crossing.row(name, false));
    }
    Ok(rows)
}

/// Bytes that leave their leaf, and their zone.
#[derive(Default)]
struct Crossing {
    all: f64,
    leaf: f64,
    zone: f64,
}

impl Crossing {
    fn add(&mut self, places: &Places, line: &Line) {
        let (from, to) = (places.get(line.connection.from), places.get(line.connection.to));
        let bytes = line.total();
        self.all += bytes;
        if from != to {
            self.leaf += bytes;
        }
        if from.map(|(_, zone)| zone) != to.map(|(_, zone)| zone) {
            self.zone += bytes;
        }
    }

    fn row(&self, placement: String, chosen: bool) -> PlacementRow {
        let share = |part: f64| if self.all > 0.0 { part / self.all } else { 0.0 };
        PlacementRow {
            placement,
            network_bytes: self.all,
            cross_leaf_share: share(self.leaf),
            cross_leaf_bytes: self.leaf,
            cross_zone_share: share(self.zone),
            cross_zone_bytes: self.zone,
            chosen,
        }
    }
}

/// Bytes between blocks of consecutive nodes.
fn matrix(fabric: &Fabric, lines: &[Line]) -> Matrix {
    let ends = lines.iter().flat_map(|line| [line.connection.from, line.connection.to]);
    let used = ends.filter_map(|nic| fabric.server_of(nic)).max();
    let servers = used.map_or(0, |last| last + 1);
    let each = servers.div_ceil(BLOCKS).max(1);
    let count = servers.div_ceil(each);
    let block = |nic: NodeId| fabric.server_of(nic).unwrap_or(0) / each;
    let mut bytes = vec![vec![0.0; count]; count];
    for line in lines {
        bytes[block(line.connection.from)][block(line.connection.to)] += line.total();
    }
    let name = |at: usize| match each {
        1 => format!("node {at}"),
        _ => format!("nodes {}–{}", at * each, ((at + 1) * each).min(servers) - 1),
    };
    Matrix { blocks: (0..count).map(name).collect(), bytes }
}

impl Report {
    /// The share of the bytes between NICs that rises above the leaves; nothing where there are
    /// no bytes.
    pub(crate) fn above_leaves(&self) -> Option<f64> {
        let (_, all) = self.tiers.first()?;
        Some(self.tiers.get(1).map_or(0.0, |(_, above)| above / all))
    }

    /// Every connection with its bytes of one step, one row for each primitive. NICs are numbered
    /// from 0.
    pub fn transfers(&self, fabric: &Fabric) -> Table {
        let nic = |node: NodeId| fabric.nic_number(node).unwrap_or(node.index()) as u64;
        let mut rows: Vec<(&Line, Primitive)> = Vec::new();
        for line in &self.lines {
            let moved = |primitive: &Primitive| 0.0 < line.bytes[*primitive as usize];
            let primitives = Primitive::ALL.into_iter().filter(moved);
            rows.extend(primitives.map(|primitive| (line, primitive)));
        }
        let integers = |of: &dyn Fn(&Line, Primitive) -> u64| {
            Column::Integers(rows.iter().map(|(line, primitive)| of(line, *primitive)).collect())
        };
        let words = |of: &dyn Fn(&Line, Primitive) -> &'static str| {
            Column::Words(rows.iter().map(|(line, by)| Cow::Borrowed(of(line, *by))).collect())
        };
        Table::new()
            .with("src", integers(&|line, _| nic(line.connection.from)))
            .with("dst", integers(&|line, _| nic(line.connection.to)))
            .with("channel", integers(&|line, _| u64::from(line.connection.channel)))
            .with("axis", words(&|line, _| line.axis.word()))
            .with("stage", integers(&|line, _| line.stage))
            .with("primitive", words(&|_, primitive| primitive.word()))
            .with("bytes", integers(&|line, by| line.bytes[by as usize].round() as u64))
    }
}

impl Answer for Report {
    fn sheet(&self) -> report::Sheet {
        page::sheet(self)
    }
}
