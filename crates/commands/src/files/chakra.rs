//! A job's step as Chakra execution traces: one file for each rank, groups in a file beside them.
//!
//! How it works. All ranks of a pipeline stage do the same, so the step program tells a stage's
//! operations once and they are written for each of its ranks, with that rank's groups and peers:
//! computations with their measured time, operations and bytes; collectives of the rank's groups;
//! messages between stages, and round the ring of context parallelism, as sends and receives whose
//! tags pair them.
//!
//! Collectives stay whole: which algorithm runs them is the replaying simulator's question. Sizes
//! are what one rank puts in, as PyTorch's converter and ASTRA-sim count them. DeepEP's dispatch
//! and combine, which the format does not know, are all-to-alls of what leaves a rank.
//!
//! Ranks are many and steps are long, so there is a limit on what is written: see [`Ranks`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use exports::chakra::{CollectiveType, End, Node, PeerMessage, Writer, groups_json};
use job::compute::{Kernel, Timer};
use job::dispatch::Dispatch;
use job::program::operations::{Message, Operation, Work};
use job::program::{Call, Unit};
use job::schedule::Pass;
use job::{Coordinates, GroupKind, Program};
use report::number::grouped;
use scenario::Loaded;
use traffic::Collective;

use crate::failure::Failure;
use crate::world::JobWorld;

/// Which ranks are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Ranks {
    /// Every rank: what a simulator replays.
    #[default]
    All,
    /// One rank for each pipeline stage: the others of the stage do the same.
    Representatives,
}

/// More nodes than this are refused: they would be some 10 GB.
const MOST_NODES: u64 = 100_000_000;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Files of ranks.
    pub ranks: u64,
    /// Nodes in all of them.
    pub nodes: u64,
}

/// Writes the traces of a scenario's job into a folder, which is made if it is not there.
pub fn write(loaded: &Loaded, folder: &Path, ranks: Ranks) -> Result<Written, Failure> {
    let world = JobWorld::of(loaded)?;
    let program = Program::new(world.job);
    let chosen = chosen(&program, ranks);
    refuse_too_many(&program, &chosen, ranks)?;
    let failed = |error: io::Error| {
        Failure::Run(format!("cannot write traces to {}: {error}", folder.display()))
    };
    let mut tracer = Tracer::new(&world, &program);
    fs::create_dir_all(folder).map_err(failed)?;
    let mut written = Written::default();
    for rank in chosen {
        let path = folder.join(format!("rank.{rank}.et"));
        written.nodes += tracer.rank(rank, &path).map_err(failed)?;
        written.ranks += 1;
    }
    tracer.groups(&folder.join("comm_groups.json")).map_err(failed)?;
    Ok(written)
}

fn chosen(program: &Program, ranks: Ranks) -> Vec<u64> {
    let layout = &program.job.layout;
    match ranks {
        Ranks::All => (0..layout.gpus()).collect(),
        Ranks::Representatives => (0..layout.pp)
            .map(|pp| layout.rank(Coordinates { pp, ..Coordinates::default() }))
            .collect(),
    }
}

fn refuse_too_many(program: &Program, chosen: &[u64], ranks: Ranks) -> Result<(), Failure> {
    let stages = program.job.layout.pp;
    let each: u64 = (0..stages).map(|stage| program.operations_about(stage)).sum();
    let nodes = u128::from(each) * chosen.len() as u128 / u128::from(stages);
    if nodes <= u128::from(MOST_NODES) {
        return Ok(());
    }
    let advice = match ranks {
        Ranks::All => "--chakra-ranks representatives writes one rank for each pipeline stage",
        Ranks::Representatives => "a smaller `job.batch.sequences` has fewer microbatches",
    };
    Err(Failure::Run(format!(
        "traces of {} ranks would have about {} nodes, above the limit of {}; {advice}",
        grouped(chosen.len() as u64),
        grouped(u64::try_from(nodes).unwrap_or(u64::MAX)),
        grouped(MOST_NODES)
    )))
}

/// The kernels of a unit in a pass, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Computed {
    micros: u64,
    flops: u64,
    bytes: u64,
}

struct Tracer<'a> {
    world: &'a JobWorld<'a>,
    program: &'a Program,
    copies: f64,
    computed: Vec<((Unit, Pass), Computed)>,
    /// The members of every group that a written rank is in, by its name.
    groups: BTreeMap<u64, Vec<u64>>,
}

impl<'a> Tracer<'a> {
    fn new(world: &'a JobWorld<'a>, program: &'a Program) -> Self {
        let gpus_per_node = world.fabric().gpus_per_node().max(1) as u64;
        let dispatch = Dispatch::of(world.job, gpus_per_node);
        let copies = dispatch.map_or(1.0, |dispatch| dispatch.ranks_per_token());
        Self { world, program, copies, computed: Vec::new(), groups: BTreeMap::new() }
    }

    fn stage(&self, rank: u64) -> u64 {
        self.program.job.layout.coordinates(rank).pp
    }

    /// Writes one rank. How many nodes that took.
    fn rank(&mut self, rank: u64, path: &Path) -> io::Result<u64> {
        let program = self.program;
        let mut trace = RankTrace { rank, ends: Vec::new(), nodes: 0, rings: 0 };
        super::replace(path, |out| {
            let mut writer = Writer::new(out)?;
            let mut result = Ok(());
            program.operations(self.stage(rank), &mut |operation| {
                if result.is_ok() {
                    result = self.operation(&operation, &mut trace, &mut writer);
                }
            });
            result?;
            writer.finish().map(drop)
        })?;
        Ok(trace.nodes)
    }

    fn operation(
        &mut self,
        operation: &Operation,
        trace: &mut RankTrace,
        writer: &mut Writer<BufWriter<File>>,
    ) -> io::Result<()> {
        let after: Vec<u64> =
            operation.after.iter().flat_map(|op| trace.ends[*op as usize].clone()).collect();
        let first = trace.nodes;
        for mut node in self.nodes(operation, trace) {
            node.data_deps.clone_from(&after);
            trace.nodes += 1;
            writer.node(&node)?;
        }
        trace.ends.push(first..trace.nodes);
        Ok(())
    }

    /// An operation as nodes; both ends of a ring's exchange belong to one.
    fn nodes(&mut self, operation: &Operation, trace: &mut RankTrace) -> Vec<Node> {
        let id = trace.nodes;
        match operation.work {
            Work::Compute { unit, pass } => {
                let Computed { micros, flops, bytes } = self.computed(unit, pass);
                let name = format!(
                    "{} {}, part {}, microbatch {}",
                    unit_words(unit),
                    pass_words(pass),
                    operation.part,
                    operation.microbatch
                );
                vec![Node::computation(id, &name, micros, flops, bytes)]
            }
            Work::Optimize => {
                let kernels = self.program.optimizer(self.stage(trace.rank));
                let Computed { micros, flops, bytes } = self.total(&kernels);
                vec![Node::computation(id, "optimizer", micros, flops, bytes)]
            }
            Work::Send(message) => vec![self.message(id, trace.rank, message, End::Sender)],
            Work::Receive(message) => vec![self.message(id, trace.rank, message, End::Receiver)],
            Work::Exchange(call) if call.collective == Collective::SendRecv => {
                self.ring(&call, trace)
            }
            Work::Exchange(call) => vec![self.collective(id, trace.rank, &call)],
        }
    }

    fn message(&self, id: u64, rank: u64, message: Message, end: End) -> Node {
        let layout = &self.program.job.layout;
        let other = layout.rank(Coordinates { pp: message.stage, ..layout.coordinates(rank) });
        let (from, to) = match end {
            End::Sender => (rank, other),
            End::Receiver => (other, rank),
        };
        let (bytes, tag) = (message.bytes.get(), message.tag);
        Node::message(id, message.name, &PeerMessage { from, to, bytes, tag, end })
    }

    /// Blocks passed round the ring of context parallelism: one to the next, one from the last.
    fn ring(&self, call: &Call, trace: &mut RankTrace) -> Vec<Node> {
        let layout = &self.program.job.layout;
        let at = layout.coordinates(trace.rank);
        let turn = |by: u64| layout.rank(Coordinates { cp: (at.cp + by) % layout.cp, ..at });
        let (next, last) = (turn(1), turn(layout.cp - 1));
        let (bytes, tag, rank) = (call.bytes.get(), trace.rings, trace.rank);
        trace.rings += 1;
        let send = PeerMessage { from: rank, to: next, bytes, tag, end: End::Sender };
        let receive = PeerMessage { from: last, to: rank, end: End::Receiver, ..send };
        [send, receive]
            .iter()
            .zip(trace.nodes..)
            .map(|(message, id)| Node::message(id, call.name, message))
            .collect()
    }

    fn collective(&mut self, id: u64, rank: u64, call: &Call) -> Node {
        let layout = &self.program.job.layout;
        let group = layout.group_of(call.kind, rank).expect("who makes a call is in its group");
        let name = group_name(layout.gpus(), call.kind, group.member(0));
        self.groups.entry(name).or_insert_with(|| group.members().collect());
        let whole = call.bytes.get();
        let (kind, bytes) = match call.collective {
            Collective::AllReduce => (CollectiveType::AllReduce, whole),
            Collective::AllGather => (CollectiveType::AllGather, whole / group.size()),
            Collective::ReduceScatter => (CollectiveType::ReduceScatter, whole),
            Collective::MoeDispatch | Collective::MoeCombine => {
                (CollectiveType::AllToAll, (whole as f64 * self.copies).round() as u64)
            }
            _ => (CollectiveType::AllToAll, whole),
        };
        Node::collective(id, call.name, kind, bytes, name)
    }

    fn computed(&mut self, unit: Unit, pass: Pass) -> Computed {
        let known = self.computed.iter().find(|(key, _)| *key == (unit, pass));
        if let Some((_, computed)) = known {
            return *computed;
        }
        let computed = self.total(&self.program.kernels_of(unit, pass));
        self.computed.push(((unit, pass), computed));
        computed
    }

    fn total(&self, kernels: &[Kernel]) -> Computed {
        let span = Timer::measured().total(kernels, &self.world.rates);
        Computed {
            micros: (span.as_secs_f64() * 1e6).round() as u64,
            flops: kernels.iter().map(Kernel::flops).sum::<f64>() as u64,
            bytes: kernels.iter().map(Kernel::bytes).sum::<f64>() as u64,
        }
    }

    fn groups(&self, path: &Path) -> io::Result<()> {
        let groups: Vec<(u64, Vec<u64>)> =
            self.groups.iter().map(|(name, ranks)| (*name, ranks.clone())).collect();
        super::replace(path, |mut out| {
            groups_json(&groups, &mut out)?;
            io::Write::flush(&mut out)
        })
    }
}

/// What is known of a rank while it is written.
struct RankTrace {
    rank: u64,
    /// By operation: its nodes.
    ends: Vec<std::ops::Range<u64>>,
    nodes: u64,
    /// Exchanges round the ring so far: their tags.
    rings: u64,
}

/// A whole number from 1 on, as simulators want a group's name: its kind and its first rank.
fn group_name(gpus: u64, kind: GroupKind, first: u64) -> u64 {
    let kind = GroupKind::ALL.iter().position(|known| *known == kind).expect("all are listed");
    1 + kind as u64 * gpus + first
}

fn unit_words(unit: Unit) -> &'static str {
    match unit {
        Unit::Encoder => "vision encoder layer",
        Unit::Projector => "vision projector",
        Unit::Embedding => "embedding",
        Unit::Layer(..) => "layer",
        Unit::Prediction(_) => "prediction layer",
        Unit::Head => "head",
    }
}

fn pass_words(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
        Pass::Input => "backward (inputs)",
        Pass::Weight => "backward (weights)",
    }
}
