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
use fabric::topology::{self, ClusterConfig, FabricConfig, ScaleUpConfig, TopologyKind};
use fabric::transport::Transport;
use job::compute::GpuRates;
use job::compute::rates::{Class, End, Size};
use job::config::ModelChoice;
use job::placement::{Placement, PlacementConfig, Policy, Slots, place};
use job::schedule::Schedule;
use job::{Job, JobConfig, Site, resolve};
use traffic::nccl::{Architecture, Settings, Usage};
use traffic::{NotRun, Outcome, Transfers};
use units::{Bytes, Rate};

use crate::predict::{Assumptions, Prediction, World, predict};
use crate::published::{Row, RowCluster};

/// [`fabric_of`] in words.
pub const FABRIC_RULE: &str = "RoCEv2 and plain Ethernet: leaves and spines without rails, \
    non-blocking, ECMP on the 5-tuple with the row's queue pairs (1 where unpublished; the spread \
    is then what up to 16 make of it). InfiniBand and whatever else spreads packets: \
    rail-optimised, non-blocking, adaptive routing. Ranks are placed in order. GB200 shares NVLink \
    among up to 72 GPUs, other GPUs within a server. Where NICs are unpublished, one for each GPU \
    at the rate of its generation.";

/// Whether a transport hashes each flow onto one path.
fn hashes(cluster: &RowCluster) -> bool {
    matches!(cluster.transport, Some(Transport::Rocev2 | Transport::Tcp | Transport::Iwarp))
}

/// GPUs that share the scale-up network: a server's, or as many of a rack as divide the job.
pub(crate) fn scale_up_domain(cluster: &RowCluster) -> u64 {
    const RACK: u64 = 72;
    let node = cluster.gpus_per_node.max(1);
    if !cluster.gpu.starts_with("gb") || RACK <= node {
        return node;
    }
    let servers = (1..=RACK / node).rev();
    let whole = servers.map(|servers| servers * node);
    whole.into_iter().find(|gpus| cluster.gpus.is_multiple_of(*gpus)).unwrap_or(node)
}

/// The cluster and the fabric of a row: the same rule for all rows.
pub fn fabric_of(cluster: &RowCluster) -> (ClusterConfig, FabricConfig) {
    let nic = match cluster.nic_gbps {
        rate if rate <= 200.0 => "connectx-6",
        rate if rate <= 400.0 => "connectx-7",
        _ => "connectx-8",
    };
    // A NIC faster than PCIe 5.0 came with a PCIe that carries it.
    let rate = Rate::from_bps_f64(cluster.nic_gbps.max(1.0) * 1e9);
    let servers = ClusterConfig {
        pcie: ClusterConfig::default().pcie.max(rate),
        gpu: cluster.gpu.clone(),
        // A job may leave GPUs of its last server idle.
        gpus: Some(cluster.gpus.next_multiple_of(cluster.gpus_per_node.max(1))),
        gpus_per_node: cluster.gpus_per_node as u32,
        nics_per_node: cluster.nics_per_node.max(1) as u32,
        nic: nic.to_owned(),
        nic_rate: Some(rate),
        scale_up: ScaleUpConfig {
            domain: Some(scale_up_domain(cluster) as u32),
            ..ScaleUpConfig::default()
        },
        ..ClusterConfig::default()
    };
    let topology = if hashes(cluster) { TopologyKind::Clos } else { TopologyKind::RailOptimized };
    (servers, FabricConfig { topology, ..FabricConfig::default() })
}

/// How flows find their paths in the fabric of a row: the same rule for all rows.
pub fn routing_of(cluster: &RowCluster) -> RoutingConfig {
    let policy =
        if hashes(cluster) { RoutingPolicy::Ecmp } else { RoutingPolicy::InfinibandAdaptive };
    let qps = cluster.queue_pairs.unwrap_or(1).clamp(1, 128) as u16;
    RoutingConfig { policy, qps, ..RoutingConfig::default() }
}

/// As many queue pairs as anybody has published (Llama 3: 16).
const MANY_QUEUE_PAIRS: u32 = 16;

/// What runs the transfers of a row.
pub type RowEngine<'e> =
    dyn FnMut(&RowCluster, &Fabric, &Transfers) -> Result<Outcome, NotRun> + 'e;

/// What is known of a row after predicting it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The job that the rule chose.
    pub chosen: JobConfig,
    /// Its prediction.
    pub prediction: Prediction,
    /// Whether any candidate fits memory.
    pub fit: Fit,
    /// What the step is multiplied by where nobody published what the software decided and nothing
    /// tells its default: the middle of what was run over the chosen one, else 1.
    pub middle: f64,
    /// The fastest and the slowest closed form of the candidates that fit, and of what else the
    /// software may have done with the one that was chosen, in seconds.
    pub spread_s: (f64, f64),
    /// Whether the speed of the GPU's products follows by a rule; then the ends of its kernels'
    /// speeds are in the spread too.
    pub is_extrapolated: bool,
}

impl Verdict {
    /// The predicted step in seconds.
    pub fn step_s(&self) -> f64 {
        self.prediction.step.as_secs_f64() * self.middle
    }

    /// Predicted / measured − 1, in the row's own unit.
    pub fn error(&self, row: &Row) -> f64 {
        let (measured, predicted) = row.compare(self.step_s());
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
    rates: GpuRates,
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
        let scale_up = scale_up_domain(&row.cluster);
        let site = Site { gpus: row.cluster.gpus, gpus_per_node, scale_up };
        Ok(Self { fabric, gpu, rates: GpuRates::from(gpu), library, site })
    }

    /// Whether no product of the GPU was published.
    fn is_extrapolated(&self) -> bool {
        let large = self.rates.ratio(Class::Bf16(Size::Large));
        large.is_some_and(|ratio| ratio.extrapolated)
    }

    fn job(&self, config: &JobConfig) -> Result<(Job, Placement), String> {
        let ModelChoice::Shape(model) = &config.model else {
            return Err("a row has its model's shape".to_owned());
        };
        let resolved = resolve(config, (**model).clone(), &self.site);
        let (job, _) = resolved
            .map_err(|problems| joined(problems.into_iter().map(|problem| problem.message)))?;
        let nodes = self.site.gpus.div_ceil(self.site.gpus_per_node);
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
        let (fabric, library) = (&self.fabric, &self.library);
        let (placement, rates, reset) = (&placement, &self.rates, None);
        let world = World { job: &job, fabric, reset, placement, rates, library };
        let prediction = match engine {
            None => predict(world, assumptions, None),
            Some((cluster, engine)) => {
                let mut run =
                    |fabric: &Fabric, transfers: &Transfers| engine(cluster, fabric, transfers);
                predict(world, assumptions, Some(&mut run))
            }
        };
        Ok((self.fit(&job), prediction.map_err(|error| error.to_string())?))
    }
}

/// The candidate that the rule takes, by the closed form.
struct Choice {
    fit: Fit,
    seconds: f64,
    chosen: JobConfig,
    prediction: Prediction,
}

/// Chooses among candidates, and says how far those that fit lie apart.
fn choose(
    world: &RowWorld<'_>,
    assumptions: &Assumptions,
    candidates: Vec<JobConfig>,
) -> Result<(Choice, (f64, f64)), String> {
    let mut best: Option<((Fit, u64, f64), Choice)> = None;
    let mut spread = (f64::INFINITY, 0.0_f64);
    let mut refusal = None;
    for chosen in candidates {
        let (fit, prediction) = match world.predict(&chosen, assumptions, None) {
            Ok(predicted) => predicted,
            Err(reason) => {
                refusal.get_or_insert(reason);
                continue;
            }
        };
        let seconds = prediction.step.as_secs_f64();
        if fit == Fit::Fits {
            spread = (spread.0.min(seconds), spread.1.max(seconds));
        }
        // With a pipeline, and where nothing fits, the smallest microbatch; then the fastest.
        let is_any = fit == Fit::Fits && chosen.parallel.pp < 2;
        let micro = if is_any { 0 } else { chosen.batch.micro };
        let key = (fit, micro, seconds);
        if best.as_ref().is_none_or(|(known, _)| key < *known) {
            best = Some((key, Choice { fit, seconds, chosen, prediction }));
        }
    }
    let none = || refusal.unwrap_or_else(|| "no microbatch divides the row's batch".to_owned());
    best.map(|(_, choice)| (choice, spread)).ok_or_else(none)
}

/// Predicts a row.
pub fn predict_row(
    row: &Row,
    catalogue: &Catalogue,
    assumptions: &Assumptions,
    engine: Option<&mut RowEngine<'_>>,
) -> Result<Verdict, String> {
    let mut world = RowWorld::new(row, catalogue)?;
    let (choice, mut spread) = match choose(&world, assumptions, row.candidates()) {
        Err(reason) if row.job.schedule == Schedule::Interleaved => {
            let plain = choose(&world, assumptions, row.plain_candidates());
            plain.map_err(|_| reason)?
        }
        chosen => chosen?,
    };
    let Choice { fit, seconds, chosen, mut prediction } = choice;
    if fit == Fit::Overfull {
        spread = (seconds, seconds);
    }
    let is_extrapolated = world.is_extrapolated();
    let middle = world.rates.clone();
    for end in [End::Fast, End::Slow].into_iter().filter(|_| is_extrapolated) {
        world.rates = middle.at(end);
        let (_, prediction) = world.predict(&chosen, assumptions, None)?;
        let seconds = prediction.step.as_secs_f64();
        spread = (spread.0.min(seconds), spread.1.max(seconds));
    }
    world.rates = middle;
    let run = variants(&world, assumptions, row, (&chosen, fit, seconds));
    spread = (spread.0.min(run.0), spread.1.max(run.1));
    // Software that trains dense models has known defaults; of experts only the range is known.
    let middle = if row.has_experts() { (run.0 + run.1) / 2.0 / seconds } else { 1.0 };
    if let Some(engine) = engine {
        let cluster = &row.cluster;
        (_, prediction) = world.predict(&chosen, assumptions, Some((cluster, &mut *engine)))?;
        if hashes(cluster) && cluster.queue_pairs.is_none() && cluster.gpus_per_node < cluster.gpus
        {
            // Nobody said how many there were; with many, collisions are few.
            let many = RowCluster { queue_pairs: Some(MANY_QUEUE_PAIRS), ..cluster.clone() };
            let (_, other) = world.predict(&chosen, assumptions, Some((&many, engine)))?;
            let ends = [prediction.step.as_secs_f64(), other.step.as_secs_f64()];
            spread = ends.iter().fold(spread, |(low, high), s| (low.min(*s), high.max(*s)));
        }
    }
    Ok(Verdict { chosen, prediction, fit, middle, spread_s: spread, is_extrapolated })
}

/// The fastest and the slowest of what else the software may have done with a job that was chosen
/// and takes so many seconds, by the closed form; of what fits memory if the job does.
fn variants(
    world: &RowWorld<'_>,
    assumptions: &Assumptions,
    row: &Row,
    (chosen, fit, seconds): (&JobConfig, Fit, f64),
) -> (f64, f64) {
    let mut ends = (seconds, seconds);
    for variant in row.variants(chosen).iter().skip(1) {
        let Ok((other, prediction)) = world.predict(variant, assumptions, None) else { continue };
        let seconds = prediction.step.as_secs_f64();
        if other <= fit {
            ends = (ends.0.min(seconds), ends.1.max(seconds));
        }
    }
    ends
}

fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join("; ")
}
