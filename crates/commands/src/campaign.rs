//! `run JOB --days N`: days of a run by dice, from one prediction of its step.
//!
//! The step crate plays ([`step::campaign`]); here the fleet is read off the job and its fabric,
//! smaller jobs are predicted where copies can be missing, and the campaign is repeated under
//! other seeds. Seeds decide failures alone: the step is that of the scenario's own seed.

use std::sync::atomic::Ordering;

use fabric::Fabric;
use fabric::graph::{LinkKind, NetworkKind, NodeKind};
use job::parallel::Sharding;
use job::{Job, JobConfig, Site, resolve};
use scenario::Loaded;
use serde::Serialize;
use step::campaign::{FT_HSDP_SCALE, Fleet, Flood, Loss, Played, Stretch};
use step::faults::{
    Cause, CheckpointMode, CheckpointNetwork, DataParallel, Faults, Restore, RunSize,
};

use crate::failure::Failure;
use crate::packets::Patience;
use crate::run_job::{self, Report};
use crate::seeds::{Repeat, Spread};
use crate::world::{JobWorld, slots};
use crate::{Engine, parallel};

mod page;

/// Days of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Campaign {
    /// How many.
    pub days: u32,
    /// Campaigns that were played, each with its own seed.
    pub campaigns: u32,
    /// The first seed; the others follow it.
    pub first_seed: u64,
    /// Whether copies go on when one is lost: `fixed` or `elastic`.
    pub data_parallel: DataParallel,
    /// The share of the time that trains.
    pub goodput: Spread,
    /// The same by the closed form, in which copies never go on alone.
    pub closed_form: f64,
    /// Failures in those days.
    pub failures: Spread,
    /// What the rest of the time is lost to, as shares of it.
    pub lost: Vec<CampaignLoss>,
    /// By cause.
    pub causes: Vec<CampaignCause>,
    /// How fast the job trains whole, and with copies missing.
    pub steps: Vec<CampaignStep>,
    /// What checkpoints and lost state put on the network.
    pub traffic: CampaignTraffic,
    /// Mean goodput if something were different.
    pub goodput_if: Vec<run_job::Variant>,
    /// What is hit by faults that come or go (`[[faults]]`). They are in the step that stands
    /// beside these days, and not in these days, whose failures are drawn by `reliability`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_played: Vec<String>,
    /// What all of this rests on.
    pub inputs: Vec<CampaignInput>,
    /// What happened in the first campaign, in the order of time.
    pub timeline: Vec<CampaignStretch>,
    /// Until when that is told: its first 20,000 stretches.
    pub timeline_until_s: f64,
    #[serde(skip)]
    drawn: page::Drawn,
}

/// What time is lost to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CampaignLoss {
    /// In words.
    pub what: &'static str,
    /// The share of the time, over the campaigns.
    #[serde(flatten)]
    pub share: Spread,
}

/// One cause of failures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CampaignCause {
    /// The cause.
    pub cause: Cause,
    /// Failures of a campaign, on average.
    pub failures: f64,
    /// The share of the time that they cost, on average; copies that are missing while others
    /// train are not counted.
    pub lost_share: f64,
}

/// The job with copies missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CampaignStep {
    /// GPUs that train.
    pub gpus: u64,
    /// Copies of the model.
    pub copies: u64,
    /// How long a step takes.
    pub step_s: f64,
    /// Tokens per second.
    pub tokens_per_s: f64,
    /// That over the whole job's.
    pub speed: f64,
}

/// What checkpoints and lost state put on the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CampaignTraffic {
    /// Which network carries checkpoints: `front-end` or `back-end`.
    pub network: &'static str,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: f64,
    /// How long its burst lasts.
    pub burst_s: f64,
    /// Time between two.
    pub interval_s: f64,
    /// Checkpoints of a campaign, on average.
    pub checkpoints: f64,
    /// Bytes per second that checkpoints put on that network, on average.
    pub checkpoint_bytes_per_s: f64,
    /// One flood of state after a failure.
    pub flood: Flood,
    /// Floods of a campaign, on average.
    pub floods: f64,
    /// Bytes of floods in a campaign, on average.
    pub flood_bytes: f64,
}

/// Something that a campaign rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CampaignInput {
    /// The setting.
    pub key: &'static str,
    /// What it is.
    pub value: String,
    /// Where that comes from.
    pub source: String,
}

/// A stretch of the first campaign.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CampaignStretch {
    /// When it begins.
    pub from_s: f64,
    /// When it ends.
    pub to_s: f64,
    /// The share of it that trains.
    pub trains: f64,
    /// What it is lost to, or what loses most while it trains.
    pub loss: Loss,
    /// The failure behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// How a campaign is played.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Days.
    pub days: u32,
    /// The engine of the step.
    pub engine: Engine,
    /// How patient somebody is with it.
    pub patience: Patience,
    /// Seeds and threads.
    pub repeat: Repeat<'a>,
}

/// Stretches of the first campaign that are told.
const MOST_TOLD: usize = 20_000;

/// Campaigns for one answer of "what if".
const MOST_WHAT_IF: usize = 100;

/// Plays campaigns of a job whose step is known.
pub fn play(
    loaded: &Loaded,
    report: &Report,
    options: &Options<'_>,
    watch: &mut packetsim::Watch<'_>,
) -> Result<Campaign, Failure> {
    let faults = &loaded.scenario.reliability;
    let world = JobWorld::of(loaded)?;
    let smaller = Smaller::of(loaded, world.job);
    let is_elastic = faults.data_parallel == DataParallel::Elastic;
    if is_elastic && smaller.is_none() {
        let message = "`elastic`, but the job has no smaller layout: no copy can be missing";
        let problem = loaded.problem("reliability.data_parallel", message);
        return Err(problem.with_help("job.parallel.dp above 1 makes copies").into());
    }
    let copies_each = smaller.as_ref().map_or(world.job.layout.dp, |smaller| smaller.each);
    let mut fleet = fleet(&world, report, copies_each);
    let first = loaded.scenario.seed;
    let seeds = 0..u64::from(options.repeat.seeds);
    let seeds: Vec<u64> = seeds.map(|at| first.wrapping_add(at)).collect();
    let dice = Dice { faults, days: options.days, seeds: &seeds, repeat: options.repeat };
    let mut steps = vec![whole(report, world.job)];
    if let Some(smaller) = smaller.filter(|_| is_elastic) {
        // Who is missing when does not depend on how fast the others are.
        let played = dice.play(&fleet)?;
        let deepest = played.iter().map(|played| played.most_missing).max().unwrap_or(0);
        let deepest = deepest.min(fleet.copies - 1);
        for missing in [1, deepest] {
            if 0 < missing && fleet.speeds.iter().all(|(known, _)| *known != missing) {
                let step = smaller.predict(loaded, missing, (options, report), watch)?;
                fleet.speeds.push((missing, step.speed));
                steps.push(step);
            }
        }
    }
    let mut played = dice.play(&fleet)?;
    let stretches = std::mem::take(&mut played[0].stretches);
    let goodput_if = dice.variants(&fleet)?;
    let inputs = inputs(loaded, &fleet);
    let facts = Facts { faults, fleet: &fleet, days: options.days, first };
    let campaign = facts.campaign(&played, steps, goodput_if, inputs, &stretches);
    let timed = loaded.faults.all().iter().zip(&loaded.scenario.faults);
    let timed = timed.filter(|(_, config)| config.comes_or_goes()).map(|(fault, _)| fault.title());
    Ok(Campaign { not_played: timed.collect(), ..campaign })
}

/// What of a job and its fabric a campaign needs to know.
fn fleet(world: &JobWorld<'_>, report: &Report, copies_each: u64) -> Fleet {
    let (job, fabric) = (world.job, world.fabric());
    let servers = job.layout.gpus().div_ceil(fabric.gpus_per_node() as u64) as f64;
    Fleet {
        run: run_size(job, fabric, report.exposed_communication),
        copies: job.layout.dp / copies_each,
        weight_copies: weight_copies(job),
        servers_per_leaf: slots(fabric).nodes_per_leaf as u32,
        to_storage: servers * to_storage(fabric),
        speeds: Vec::new(),
    }
}

/// What failures and checkpoints need to know of a job.
pub(crate) fn run_size(job: &Job, fabric: &Fabric, exposed_communication: f64) -> RunSize {
    RunSize {
        gpus: job.layout.gpus(),
        parameters: job.model.parameters().total() as f64,
        exposed_communication,
        nic_bytes_per_s: nic_bytes_per_s(fabric),
    }
}

/// What one GPU's share of its server's NICs carries.
fn nic_bytes_per_s(fabric: &Fabric) -> f64 {
    let server = (0..fabric.nics_per_node().min(fabric.nics())).map(|nic| fabric.nic(nic));
    let ports = server.flat_map(|nic| fabric.ports(nic));
    let carried = |link: &fabric::LinkId| {
        let class = fabric.class(*link);
        if class.kind == LinkKind::ScaleOut { class.rate.bytes_per_s() } else { 0.0 }
    };
    (ports.map(carried).sum::<f64>() / fabric.gpus_per_node() as f64).max(1.0)
}

/// What one server can read from storage: over the front-end, or the back-end where it has none.
fn to_storage(fabric: &Fabric) -> f64 {
    let front = fabric.networks().iter().any(|network| network.kind == NetworkKind::FrontEnd);
    if !front {
        return nic_bytes_per_s(fabric) * fabric.gpus_per_node() as f64;
    }
    let nics = fabric.nodes().enumerate().filter(|(_, node)| node.kind == NodeKind::FrontEndNic);
    let rates = nics.flat_map(|(nic, _)| fabric.ports(nic));
    let all: f64 = rates.map(|link| fabric.class(*link).rate.bytes_per_s()).sum();
    (all / fabric.servers().max(1) as f64).max(1.0)
}

/// Times that the weights are kept between steps: experts less often than the rest.
fn weight_copies(job: &Job) -> f64 {
    let layout = &job.layout;
    let parameters = job.model.parameters();
    let (experts, all) = (parameters.experts as f64, parameters.total() as f64);
    let copies = (layout.dp * layout.cp) as f64;
    let of_experts = (layout.tp * layout.cp * layout.dp) as f64 / (layout.ep * layout.etp) as f64;
    match job.parallel.sharding {
        Sharding::None | Sharding::Zero1 | Sharding::Zero2 => {
            ((all - experts) * copies + experts * of_experts) / all
        }
        Sharding::Zero3 | Sharding::Fsdp | Sharding::FsdpNoReshard => 1.0,
        Sharding::Hybrid => copies / layout.shard as f64,
    }
}

/// The same job with fewer copies.
struct Smaller {
    config: JobConfig,
    job: Job,
    site: Site,
    /// Copies that must be missing together: expert groups, say, span several.
    each: u64,
}

impl Smaller {
    /// The least that a job can be smaller by, if it can be smaller at all.
    fn of(loaded: &Loaded, job: &Job) -> Option<Self> {
        let fabric = loaded.fabric();
        let site = Site {
            gpus: fabric.gpus() as u64,
            gpus_per_node: fabric.gpus_per_node() as u64,
            scale_up: fabric.gpus_per_domain() as u64,
        };
        let config = loaded.scenario.job.clone()?;
        let mut smaller = Self { config, job: job.clone(), site, each: 1 };
        let divides = |each: &u64| job.layout.dp.is_multiple_of(*each);
        let each = (1..job.layout.dp).filter(divides).find(|each| smaller.without(*each).is_some());
        smaller.each = each?;
        Some(smaller)
    }

    /// The job with so many copies fewer, each with as many sequences as before.
    fn without(&self, copies: u64) -> Option<(JobConfig, Job)> {
        let layout = &self.job.layout;
        let mut config = self.config.clone();
        let dp = layout.dp - copies;
        config.parallel.dp = Some(dp);
        config.gpus = Some(layout.gpus() / layout.dp * dp);
        config.batch.sequences = self.job.batch.sequences / layout.dp * dp;
        let (job, _) = resolve(&config, self.job.model.clone(), &self.site).ok()?;
        Some((config, job))
    }

    /// How fast it trains with so many groups of copies missing.
    fn predict(
        &self,
        loaded: &Loaded,
        missing: u64,
        (options, whole): (&Options<'_>, &Report),
        watch: &mut packetsim::Watch<'_>,
    ) -> Result<CampaignStep, Failure> {
        let missing = missing * self.each;
        let Some((config, job)) = self.without(missing) else {
            let copies = self.job.layout.dp - missing;
            return Err(Failure::Run(format!("there is no layout with {copies} copies")));
        };
        let mut smaller = loaded.clone();
        let (gpus, copies) = (job.layout.gpus(), job.layout.dp);
        (smaller.scenario.job, smaller.job) = (Some(config), Some(job));
        let report = run_job::run(&smaller, options.engine, options.patience, watch)?;
        let speed = report.tokens_per_s / whole.tokens_per_s;
        let Report { step_s, tokens_per_s, .. } = report;
        Ok(CampaignStep { gpus, copies, step_s, tokens_per_s, speed })
    }
}

fn whole(report: &Report, job: &Job) -> CampaignStep {
    let Report { gpus, step_s, tokens_per_s, .. } = *report;
    CampaignStep { gpus, copies: job.layout.dp, step_s, tokens_per_s, speed: 1.0 }
}

/// A way in which things could be different.
type Change = fn(&mut Faults);

/// Campaigns under several seeds.
struct Dice<'a> {
    faults: &'a Faults,
    days: u32,
    seeds: &'a [u64],
    repeat: Repeat<'a>,
}

impl Dice<'_> {
    /// Plays all of them, and tells the first; somebody who interrupts it gets none.
    fn play(&self, fleet: &Fleet) -> Result<Vec<Played>, Failure> {
        let interrupt = self.repeat.interrupt;
        let is_stopped = || interrupt.is_some_and(|happened| happened.load(Ordering::Relaxed));
        let threads = parallel::threads(self.repeat.threads);
        let played = parallel::map(threads, self.seeds, |seed| {
            let tells = *seed == self.seeds[0];
            (!is_stopped()).then(|| self.faults.play(fleet, self.days, *seed, tells))
        });
        played.into_iter().map(|played| played.ok_or_else(Failure::interrupted)).collect()
    }

    /// Mean goodput if something were different, over fewer seeds; smaller jobs train in
    /// proportion where their step was not predicted.
    fn variants(&self, fleet: &Fleet) -> Result<Vec<run_job::Variant>, Failure> {
        let changes: [(&'static str, Change); 7] = [
            ("all copies stop at each failure", |f| f.data_parallel = DataParallel::Fixed),
            ("the other copies go on (elastic)", |f| f.data_parallel = DataParallel::Elastic),
            ("no spare nodes", |f| f.spare_nodes = 0),
            ("twice as many failures", |f| f.scale *= 2.0),
            ("as many failures as 44 % of 100,000 GPUs imply", |f| f.scale = FT_HSDP_SCALE),
            ("every rank reads its state from storage", |f| {
                f.checkpoint.restore = Restore::Storage;
            }),
            ("checkpoints in peers' memory", |f| f.checkpoint.mode = CheckpointMode::PeerMemory),
        ];
        let seeds = &self.seeds[..self.seeds.len().min(MOST_WHAT_IF)];
        let mut variants = Vec::new();
        for (what, change) in changes {
            let mut other = self.faults.clone();
            change(&mut other);
            let can_shrink = 1 < fleet.copies || other.data_parallel == DataParallel::Fixed;
            if other != *self.faults && can_shrink {
                let dice = Dice { faults: &other, seeds, ..*self };
                let goodputs: Vec<f64> =
                    dice.play(fleet)?.iter().map(|played| played.goodput).collect();
                variants.push(run_job::Variant { what, goodput: Spread::of(&goodputs).mean });
            }
        }
        Ok(variants)
    }
}

/// What the answer is made of.
struct Facts<'a> {
    faults: &'a Faults,
    fleet: &'a Fleet,
    days: u32,
    first: u64,
}

impl Facts<'_> {
    fn campaign(
        &self,
        played: &[Played],
        steps: Vec<CampaignStep>,
        goodput_if: Vec<run_job::Variant>,
        inputs: Vec<CampaignInput>,
        stretches: &[Stretch],
    ) -> Campaign {
        let over = |of: &dyn Fn(&Played) -> f64| played.iter().map(of).collect::<Vec<f64>>();
        let lost = Loss::ALL.into_iter().map(|loss| CampaignLoss {
            what: loss.words(),
            share: Spread::of(&over(&|played| played.lost[loss as usize])),
        });
        let stretch = |stretch: &Stretch| CampaignStretch {
            from_s: stretch.from_s,
            to_s: stretch.to_s,
            trains: stretch.trains,
            loss: stretch.loss,
            cause: stretch.cause,
        };
        let goodputs = over(&|played| played.goodput);
        let told = &stretches[..stretches.len().min(MOST_TOLD)];
        Campaign {
            days: self.days,
            campaigns: played.len() as u32,
            first_seed: self.first,
            data_parallel: self.faults.data_parallel,
            goodput: Spread::of(&goodputs),
            closed_form: self.faults.goodput(self.fleet.run).goodput,
            failures: Spread::of(&over(&|played| played.failures as f64)),
            lost: lost.filter(|loss| 0.0 < loss.share.mean).collect(),
            causes: self.causes(played),
            steps,
            traffic: self.traffic(played),
            goodput_if,
            not_played: Vec::new(),
            inputs,
            timeline: told.iter().map(stretch).collect(),
            timeline_until_s: told.last().map_or(0.0, |last| last.to_s),
            drawn: page::Drawn::of(self.days, stretches, goodputs),
        }
    }

    fn causes(&self, played: &[Played]) -> Vec<CampaignCause> {
        let campaigns = played.len().max(1) as f64;
        let seconds = f64::from(self.days) * 86_400.0;
        let count = played.first().map_or(0, |first| first.causes.len());
        let mut causes: Vec<CampaignCause> = (0..count)
            .map(|at| {
                let of = || played.iter().map(|played| &played.causes[at]);
                CampaignCause {
                    cause: played[0].causes[at].cause,
                    failures: of().map(|cause| cause.failures as f64).sum::<f64>() / campaigns,
                    lost_share: of().map(|cause| cause.lost_s).sum::<f64>() / campaigns / seconds,
                }
            })
            .collect();
        causes.sort_by(|a, b| b.failures.total_cmp(&a.failures));
        causes
    }

    fn traffic(&self, played: &[Played]) -> CampaignTraffic {
        let planned = self.faults.goodput(self.fleet.run);
        let checkpoint = &self.faults.checkpoint;
        let flood = self.faults.flood(self.fleet);
        let campaigns = played.len().max(1) as f64;
        let checkpoints = played.iter().map(|played| played.checkpoints).sum::<u64>() as f64;
        let floods = played.iter().map(|played| played.floods).sum::<u64>() as f64 / campaigns;
        let checkpoints = checkpoints / campaigns;
        let in_peers = checkpoint.mode == CheckpointMode::PeerMemory;
        let is_back = in_peers || checkpoint.network == CheckpointNetwork::BackEnd;
        let seconds = f64::from(self.days) * 86_400.0;
        CampaignTraffic {
            network: if is_back { "back-end" } else { "front-end" },
            checkpoint_bytes: planned.checkpoint_bytes,
            burst_s: planned.burst_s,
            interval_s: planned.interval_s,
            checkpoints,
            checkpoint_bytes_per_s: checkpoints * planned.checkpoint_bytes / seconds,
            flood,
            floods,
            flood_bytes: floods * (flood.from_storage_bytes + flood.between_bytes),
        }
    }
}

/// Where defaults come from.
const SOURCES: [(&str, &str); 12] = [
    ("rates", "Llama 3 (arXiv 2407.21783) table 5: 419 in 54 days on 16,384 GPUs"),
    ("scale", "as the rates say"),
    ("network", "Llama 3's cluster: one ToR for each NIC"),
    ("detection", "MegaScale (arXiv 2402.15627) section 6.3"),
    ("restart", "MegaScale (arXiv 2402.15627) section 6.3"),
    ("interval", "the best one by the closed form (Daly, FGCS 2006)"),
    ("checkpoint.bytes_per_parameter", "mixed-precision Adam (ZeRO, SC'20)"),
    ("checkpoint.storage", "Llama 3 (arXiv 2407.21783) section 3.3.1"),
    ("checkpoint.pause", "MegaScale (arXiv 2402.15627) section 4.4"),
    ("spare_nodes", "Alibaba HPN (SIGCOMM'24): 64 of 1,088 GPUs of a segment"),
    ("repair", "illustrative: a technician within a working day"),
    ("stall", "FT-HSDP (arXiv 2602.00277)"),
];

/// What a campaign rests on, with where it comes from.
fn inputs(loaded: &Loaded, fleet: &Fleet) -> Vec<CampaignInput> {
    let faults = &loaded.scenario.reliability;
    let planned = faults.goodput(fleet.run);
    let input = |(key, usual): (&'static str, &str)| {
        let checkpoint = &faults.checkpoint;
        let value = match key {
            "rates" => format!("a failure in {:.2} h", planned.mtbf_s / 3600.0),
            "scale" => format!("{}", faults.scale),
            "network" => word(&faults.network),
            "detection" => format!("{}", faults.detection),
            "restart" => format!("{}", faults.restart),
            "interval" => format!("{:.1} min", planned.interval_s / 60.0),
            "checkpoint.bytes_per_parameter" => format!("{}", checkpoint.bytes_per_parameter),
            "checkpoint.storage" => format!("{}", checkpoint.storage),
            "checkpoint.pause" => format!("{}", checkpoint.pause),
            "spare_nodes" => format!("{}", faults.spare_nodes),
            "repair" => format!("{}", faults.repair),
            _ => format!("{}", faults.stall),
        };
        let full = format!("reliability.{key}");
        let source = match loaded.is_given(&full) {
            true => loaded.origin_of(&full),
            false => usual.to_owned(),
        };
        CampaignInput { key, value, source }
    };
    let is_elastic = faults.data_parallel == DataParallel::Elastic;
    let asked = SOURCES.into_iter().filter(|(key, _)| is_elastic || *key != "stall");
    asked.map(input).collect()
}

/// A setting's word, as files have it.
fn word(setting: &impl Serialize) -> String {
    let json = serde_json::to_value(setting).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}
