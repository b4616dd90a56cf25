//! The job of a scenario, ready to be predicted: its ranks on GPUs, its GPUs' rates, its software.

use std::borrow::Cow;

use fabric::graph::{LinkKind, Node, NodeKind};
use fabric::hardware::Gpu;
use fabric::{Fabric, LinkId, NodeId};
use job::compute::GpuRates;
use job::placement::{Placement, PlacementConfig, Policy, Slots, place_on};
use job::{Job, Layout};
use scenario::{Loaded, Problem, source};
use step::network::{Reset, straggling};
use step::predict::{Assumptions, World};
use traffic::nccl::estimate::path_latency;
use traffic::nccl::{self, Usage};
use units::{Bytes, Id, Span};

use crate::engine;
use crate::failure::Failure;
use crate::place;

/// A job with everything that a prediction needs.
#[derive(Debug)]
pub struct JobWorld<'a> {
    /// The job.
    pub job: &'a Job,
    /// The network, slow where the scenario's stragglers are.
    fabric: Cow<'a, Fabric>,
    /// The network as it is while copies exchange weights and gradients, and how long it takes to
    /// set its circuits, where that is done within a step.
    reset: Option<(Fabric, Span)>,
    /// Which rank runs on which GPU.
    pub placement: Placement,
    /// The GPU, as the catalogue has it.
    pub gpu: &'a Gpu,
    /// What it can do.
    pub rates: GpuRates,
    /// The communication library.
    pub library: nccl::Settings,
}

impl<'a> JobWorld<'a> {
    /// The job of a scenario; a scenario without one is an error.
    pub fn of(loaded: &'a Loaded) -> Result<Self, Failure> {
        let Some(job) = &loaded.job else {
            let problem = Problem::error(format!("`{}` has no job", loaded.title()));
            let help = match loaded.members.is_empty() {
                true => "add a `[job]` table; `fatflow init` shows one",
                false => "several jobs are for `run`; write one of them as `[job]`",
            };
            return Err(problem.with_help(help).into());
        };
        let scenario = &loaded.scenario;
        let gpu = scenario.catalogue.gpu.get(&scenario.cluster.gpu);
        let gpu = gpu.ok_or_else(|| {
            loaded.problem("cluster.gpu", format!("no GPU is called `{}`", scenario.cluster.gpu))
        })?;
        let config = scenario.job.as_ref().map(|job| job.placement.clone()).unwrap_or_default();
        Ok(Self {
            job,
            fabric: slowed(loaded, Cow::Borrowed(loaded.fabric()))?,
            reset: None,
            placement: placement(loaded, &job.layout, &config)?,
            gpu,
            rates: GpuRates::from(gpu),
            library: library(loaded),
        })
    }

    /// The same as the step crate wants it.
    pub fn world(&self) -> World<'_> {
        let Self { job, placement, rates, library, .. } = self;
        let reset = self.reset.as_ref().map(|(fabric, takes)| Reset { fabric, takes: *takes });
        World { job, fabric: self.fabric(), reset, placement, rates, library }
    }

    /// The same on the scenario's fabric with other circuits, and with others again while copies
    /// exchange weights and gradients.
    pub fn on_circuits(
        &self,
        loaded: &Loaded,
        fabric: Fabric,
        reset: Option<(Fabric, Span)>,
    ) -> Result<Self, Failure> {
        let own = |fabric: Fabric| slowed(loaded, Cow::Owned(fabric)).map(Cow::into_owned);
        let reset = reset.map(|(fabric, takes)| Ok::<_, Failure>((own(fabric)?, takes)));
        Ok(self.with(Cow::Owned(own(fabric)?), reset.transpose()?))
    }

    /// The same where a cable that is slow runs as fast as it can; nothing if it is not slow.
    pub fn with_repaired(&self, link: LinkId) -> Option<Self> {
        let mut fabric = self.fabric().clone();
        let mut health = self.fabric().health().clone();
        let both = [link, fabric.reverse(link)];
        both.iter().for_each(|link| health.repair(*link));
        if health == *self.fabric().health() {
            return None;
        }
        fabric.set_health(health);
        Some(self.with(Cow::Owned(fabric), self.reset.clone()))
    }

    fn with(&self, fabric: Cow<'a, Fabric>, reset: Option<(Fabric, Span)>) -> Self {
        Self {
            job: self.job,
            fabric,
            reset,
            placement: self.placement.clone(),
            gpu: self.gpu,
            rates: self.rates.clone(),
            library: self.library.clone(),
        }
    }

    /// The network, slow where the scenario's stragglers are.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }
}

/// A fabric of the scenario with its slow NICs and links.
fn slowed<'a>(loaded: &Loaded, fabric: Cow<'a, Fabric>) -> Result<Cow<'a, Fabric>, Failure> {
    let stragglers = &loaded.scenario.stragglers;
    if stragglers.is_empty() {
        return Ok(fabric);
    }
    let slow = straggling(&fabric, stragglers);
    Ok(Cow::Owned(slow.map_err(|reason| loaded.problem("stragglers", reason))?))
}

/// What the scenario assumes of software and machines.
pub fn assumptions(loaded: &Loaded) -> Assumptions {
    let scenario = &loaded.scenario;
    Assumptions {
        overheads: scenario.software.clone(),
        jitter: scenario.jitter.clone(),
        stragglers: scenario.stragglers.clone(),
    }
}

/// Places the ranks of a layout on the scenario's GPUs.
pub fn placement(
    loaded: &Loaded,
    layout: &Layout,
    config: &PlacementConfig,
) -> Result<Placement, Failure> {
    let ranks = match &config.policy {
        Policy::RankFile(path) => rank_file(loaded, path)?,
        Policy::MinCut => place::min_cut(loaded, config)?,
        _ => Vec::new(),
    };
    let (slots, seed) = (slots(loaded.fabric()), loaded.scenario.seed);
    let placed = match (&loaded.nodes, &config.policy) {
        (Some(nodes), Policy::Linear | Policy::Random | Policy::TopologyAware) => {
            place_on(config, layout, &slots, nodes.clone(), seed)
        }
        _ => job::placement::place(config, layout, &slots, &ranks, seed),
    };
    let elsewhere = |placed: &Placement| {
        let of_others = |gpu: &u32| {
            let node = u64::from(*gpu) / slots.gpus_per_node;
            loaded.nodes.as_ref().is_some_and(|nodes| !nodes.contains(&node))
        };
        placed.gpus().iter().copied().find(of_others)
    };
    if let Some(gpu) = placed.as_ref().ok().and_then(elsewhere) {
        let reason = format!("GPU {gpu} is in a server that the job has not got (`nodes`)");
        return Err(loaded.problem("job.placement", reason).into());
    }
    placed.map_err(|error| loaded.problem("job.placement", error.to_string()).into())
}

/// The GPU of every rank: one number for each line; what follows `#` is a remark.
pub(crate) fn rank_file(loaded: &Loaded, path: &str) -> Result<Vec<u64>, Failure> {
    let source = source::read(&loaded.path("job.placement", path))?;
    let mut ranks = Vec::new();
    for (number, line) in (1..).zip(source.text.lines()) {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        ranks.push(word.parse().map_err(|_| {
            let message = format!("{}:{number}: `{word}` is not a GPU's number", source.name);
            loaded.problem("job.placement", message)
        })?);
    }
    Ok(ranks)
}

/// The places of a fabric: how many nodes lie under one leaf, and in one zone.
pub fn slots(fabric: &Fabric) -> Slots {
    let nodes = fabric.servers();
    let first = fabric.nics_per_node();
    let leaf = |server: usize| leaf_of(fabric, fabric.nic(server * first));
    let zone = |server: usize| leaf(server).map(|leaf| fabric.nodes()[leaf].zone);
    let alike = |same: &dyn Fn(usize) -> bool| (0..nodes).take_while(|at| same(*at)).count() as u64;
    let (first_leaf, first_zone) = (leaf(0), zone(0));
    Slots {
        nodes: nodes as u64,
        gpus_per_node: fabric.gpus_per_node() as u64,
        nodes_per_leaf: alike(&|at| leaf(at) == first_leaf).max(1),
        nodes_per_zone: alike(&|at| zone(at) == first_zone).max(1),
    }
}

/// How long 64 bytes take between the first NICs of two servers with nothing else on the network,
/// both NICs included.
pub fn message_latency(loaded: &Loaded, from: usize, to: usize) -> Option<Span> {
    let fabric = loaded.fabric();
    let nic = |server: usize| fabric.nic(server * fabric.nics_per_node());
    if from == to || fabric.servers() <= from.max(to) || leaf_of(fabric, nic(from)).is_none() {
        return None;
    }
    let settings = loaded.settings();
    let ends = settings.nic.send_latency + settings.nic.receive_latency;
    Some(path_latency(fabric, nic(from), nic(to), Bytes::new(64))? + ends)
}

/// The communication library of a job. Training jobs leave NVLS off unless somebody wants it: it
/// takes memory and SMs from computation (MLPerf's logs say so of theirs); `validate` predicts
/// published steps the same way.
pub(crate) fn library(loaded: &Loaded) -> nccl::Settings {
    let library = engine::library(loaded);
    if loaded.is_given("library.nvls") || loaded.is_given("library.algorithm") {
        return library;
    }
    nccl::Settings { nvls: Usage::Disabled, ..library }
}

/// The leaf and the zone of everything that sends, looked up once: analyses ask for them millions
/// of times.
#[derive(Clone, Debug)]
pub struct Places {
    /// By node.
    of: Vec<Option<(NodeId, u32)>>,
}

impl Places {
    /// Those of a fabric.
    pub fn of(fabric: &Fabric) -> Self {
        let place = |(id, node): (NodeId, &Node)| {
            let leaf = match node.kind {
                NodeKind::Nic => leaf_of(fabric, id)?,
                NodeKind::Switch => id,
                _ => return None,
            };
            Some((leaf, fabric.nodes()[leaf].zone))
        };
        Self { of: fabric.nodes().enumerate().map(place).collect() }
    }

    /// The leaf and the zone of a NIC; a switch that ends connections, because it reduces what
    /// they carry, is its own.
    pub fn get(&self, node: NodeId) -> Option<(NodeId, u32)> {
        self.of[node.index()]
    }
}

/// The switch that a NIC's first cable leads to.
pub fn leaf_of(fabric: &Fabric, nic: NodeId) -> Option<NodeId> {
    let mut ports = fabric.ports(nic).iter();
    let port = ports.find(|link| fabric.class(**link).kind == LinkKind::ScaleOut)?;
    Some(fabric.links()[*port].to)
}
