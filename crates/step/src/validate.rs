//! Predicts published steps, row by row, and says how far off that is.
//!
//! Rows name no topology. One rule, the same for all rows and printed with the results
//! ([`FABRIC_RULE`]), gives them their fabric. What a row leaves open is chosen by the rule of
//! [`published`](crate::published): every candidate is predicted by the closed form, the fastest
//! that fits memory is taken, and that one is run on the engine. How far the candidates lie apart
//! is kept: a row whose inputs are partly unpublished cannot be predicted better than that.

use fabric::Fabric;
use fabric::hardware::{Catalogue, Gpu};
use fabric::routing::{Policy as RoutingPolicy, RoutingConfig};
use fabric::topology::{self, ClusterConfig, FabricConfig, TopologyKind};
use job::compute::GpuRates;
use job::config::ModelChoice;
use job::placement::{Placement, PlacementConfig, Policy, Slots, place};
use job::{Job, JobConfig, Site, resolve};
use traffic::nccl::{Architecture, Settings, Usage};
use traffic::{Outcome, Transfers};
use units::{Bytes, Rate};

use crate::predict::{Assumptions, Prediction, World, predict};
use crate::published::{Row, RowCluster};

/// [`fabric_of`] in words.
pub const FABRIC_RULE: &str = "InfiniBand: rail-optimised, non-blocking, adaptive routing. RoCEv2: \
    leaves and spines without rails, non-blocking, ECMP on the 5-tuple with the row's queue pairs \
    (1 where unpublished). Ranks are placed in order.";

/// The cluster and the fabric of a row: the same rule for all rows.
pub fn fabric_of(cluster: &RowCluster) -> (ClusterConfig, FabricConfig) {
    let nic = if cluster.nic_gbps <= 200.0 { "connectx-6" } else { "connectx-7" };
    let servers = ClusterConfig {
        gpu: cluster.gpu.clone(),
        gpus: Some(cluster.gpus),
        gpus_per_node: cluster.gpus_per_node as u32,
        nics_per_node: cluster.nics_per_node.max(1) as u32,
        nic: nic.to_owned(),
        nic_rate: Some(Rate::from_bps_f64(cluster.nic_gbps.max(1.0) * 1e9)),
        ..ClusterConfig::default()
    };
    let topology = match cluster.transport.as_str() {
        "rocev2" => TopologyKind::Clos,
        _ => TopologyKind::RailOptimized,
    };
    (servers, FabricConfig { topology, ..FabricConfig::default() })
}

/// How flows find their paths in the fabric of a row: the same rule for all rows.
pub fn routing_of(cluster: &RowCluster) -> RoutingConfig {
    let policy = match cluster.transport.as_str() {
        "rocev2" => RoutingPolicy::Ecmp,
        _ => RoutingPolicy::InfinibandAdaptive,
    };
    let qps = cluster.queue_pairs.unwrap_or(1).clamp(1, 128) as u16;
    RoutingConfig { policy, qps, ..RoutingConfig::default() }
}

/// What runs the transfers of a row.
pub type RowEngine<'e> = dyn FnMut(&RowCluster, &Fabric, &Transfers) -> Outcome + 'e;

/// What is known of a row after predicting it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The job that the rule chose.
    pub chosen: JobConfig,
    /// Its prediction.
    pub prediction: Prediction,
    /// Whether any candidate fits memory.
    pub fit: Fit,
    /// The fastest and the slowest closed form of the candidates that fit, in seconds.
    pub spread_s: (f64, f64),
}

impl Verdict {
    /// Predicted / measured − 1, in the row's own unit.
    pub fn error(&self, row: &Row) -> f64 {
        let (measured, predicted) = row.compare(self.prediction.step.as_secs_f64());
        predicted / measured - 1.0
    }
}

/// Whether a job fits its GPUs' memory.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fit {
    /// It does.
    Fits,
    /// By the estimate it does not; the run did happen.
    Overfull,
}

/// A row's cluster, ready to run on.
#[derive(Debug)]
pub struct RowWorld<'c> {
    fabric: Fabric,
    gpu: &'c Gpu,
    library: Settings,
    site: Site,
}

impl<'c> RowWorld<'c> {
    /// The cluster of a row.
    pub fn new(row: &Row, catalogue: &'c Catalogue) -> Result<Self, String> {
        let (cluster, config) = fabric_of(&row.cluster);
        let fabric = topology::build(&cluster, &config, catalogue);
        let fabric = fabric.map_err(|errors| joined(errors.iter().map(ToString::to_string)))?;
        let gpu = catalogue.gpu.get(&row.cluster.gpu);
        let gpu = gpu.ok_or_else(|| format!("no GPU is called `{}`", row.cluster.gpu))?;
        let architecture = Architecture::of_scale_up(&gpu.scale_up_name);
        let library = Settings {
            architecture: architecture.unwrap_or(Architecture::Hopper),
            // Training jobs leave it off: it takes memory and SMs from computation (MLPerf's logs
            // say so of theirs).
            nvls: Usage::Disabled,
            ..Settings::default()
        };
        let gpus_per_node = row.cluster.gpus_per_node.max(1);
        let site = Site { gpus: row.cluster.gpus, gpus_per_node, scale_up: gpus_per_node };
        Ok(Self { fabric, gpu, library, site })
    }

    fn job(&self, config: &JobConfig) -> Result<(Job, Placement), String> {
        let ModelChoice::Shape(model) = &config.model else {
            return Err("a row has its model's shape".to_owned());
        };
        let resolved = resolve(config, (**model).clone(), &self.site);
        let (job, _) = resolved
            .map_err(|problems| joined(problems.into_iter().map(|problem| problem.message)))?;
        let nodes = self.site.gpus / self.site.gpus_per_node;
        let slots = Slots {
            nodes,
            gpus_per_node: self.site.gpus_per_node,
            nodes_per_leaf: 1,
            nodes_per_zone: nodes.max(1),
        };
        let linear = PlacementConfig { policy: Policy::Linear, busy: 0.0 };
        let placement = place(&linear, &job.layout, &slots, &[], 0);
        Ok((job, placement.map_err(|error| error.to_string())?))
    }

    fn fit(&self, job: &Job) -> Fit {
        let capacity = Bytes::new((self.gpu.memory_gb.value * 1e9) as u64);
        match job::memory::check(job, capacity) {
            Ok(()) => Fit::Fits,
            Err(_) => Fit::Overfull,
        }
    }

    fn predict(
        &self,
        config: &JobConfig,
        assumptions: &Assumptions,
        engine: Option<(&RowCluster, &mut RowEngine<'_>)>,
    ) -> Result<(Fit, Prediction), String> {
        let (job, placement) = self.job(config)?;
        let rates = GpuRates::from(self.gpu);
        let (fabric, library) = (&self.fabric, &self.library);
        let world = World { job: &job, fabric, placement: &placement, rates: &rates, library };
        let prediction = match engine {
            None => predict(world, assumptions, None),
            Some((cluster, engine)) => {
                let mut run = |transfers: &Transfers| engine(cluster, fabric, transfers);
                predict(world, assumptions, Some(&mut run))
            }
        };
        Ok((self.fit(&job), prediction.map_err(|error| error.to_string())?))
    }
}

/// Predicts a row.
pub fn predict_row(
    row: &Row,
    catalogue: &Catalogue,
    assumptions: &Assumptions,
    engine: Option<&mut RowEngine<'_>>,
) -> Result<Verdict, String> {
    let world = RowWorld::new(row, catalogue)?;
    let mut best: Option<((Fit, u64, f64), JobConfig, Prediction)> = None;
    let mut spread = (f64::INFINITY, 0.0_f64);
    for candidate in row.candidates() {
        let (fit, prediction) = world.predict(&candidate, assumptions, None)?;
        let seconds = prediction.step.as_secs_f64();
        if fit == Fit::Fits {
            spread = (spread.0.min(seconds), spread.1.max(seconds));
        }
        // Where nothing fits, the smallest microbatch; then the fastest.
        let micro = if fit == Fit::Fits { 0 } else { candidate.batch.micro };
        let key = (fit, micro, seconds);
        if best.as_ref().is_none_or(|(known, ..)| key < *known) {
            best = Some((key, candidate, prediction));
        }
    }
    let ((fit, _, seconds), chosen, mut prediction) = best.ok_or("no job fits the row's batch")?;
    if fit == Fit::Overfull {
        spread = (seconds, seconds);
    }
    if let Some(engine) = engine {
        (_, prediction) = world.predict(&chosen, assumptions, Some((&row.cluster, engine)))?;
    }
    Ok(Verdict { chosen, prediction, fit, spread_s: spread })
}

fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join("; ")
}
