//! What a scenario is loaded for, and which of its settings that does not obey.
//!
//! Each crate says which of its settings have no effect, given the others (`unused` beside the
//! struct); here those answers are collected for one purpose. [`take_out`] then puts every such
//! setting back to its default before anything is built from the scenario. So what is called
//! unused cannot have an effect; that nothing else is without one is what the test
//! `commands/tests/inputs.rs` shows, over the whole schema.

use fabric::fault::FaultConfig;
use fabric::graph::{Link, NodeKind};
use fabric::routing::{Chooser, QueuePairUse};
use fabric::topology::StoragePlace;
use fabric::{Fabric, NodeId};
use flowsim::CongestionRates;
use job::Model;
use job::config::{Fp8Recipe, Precision};
use job::parallel::{Axis, Sharding};
use job::placement::{PlacementConfig, Policy};
use packetsim::cc::CcConfig;
use packetsim::nic::AfterIdle;
use serde::Serialize;
use serde_json::Value as Json;
use traffic::Collective;
use traffic::collective::Detail;
use traffic::nccl::Usage;
use traffic::pattern::Pattern;
use units::unused::UnusedKey;
use units::{Span, Unused, UnusedKeys};

use crate::Targets;
use crate::file::ScenarioFile;
use crate::jobs::Member;
use crate::load::{Loaded, of_json};
use crate::racks::leaves_lengths_out;
use crate::schema::join;
use crate::tree::{Layer, Node, Value};

/// How the network is computed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Latency and bandwidth terms on the real routes, without contention.
    Analytic,
    /// Every flow on its hashed path, at max-min fair rates.
    #[default]
    Flow,
    /// Every packet through NIC, switch and link.
    Packet,
}

impl Engine {
    /// All of them, from the fastest to the most faithful.
    pub const ALL: [Self; 3] = [Self::Analytic, Self::Flow, Self::Packet];

    /// Its name in flags and envelopes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Analytic => "analytic",
            Self::Flow => "flow",
            Self::Packet => "packet",
        }
    }

    /// How finely collectives are written out for it.
    pub fn detail(self) -> Detail {
        match self {
            Self::Packet => Detail::Stepwise,
            Self::Analytic | Self::Flow => Detail::Folded,
        }
    }

    /// Whether every packet is moved: what that costs grows with bytes, queues and pauses are
    /// seen, and settings of buffers and congestion control are obeyed.
    pub fn moves_packets(self) -> bool {
        self == Self::Packet
    }

    /// Whether flows that share a link get less of it.
    pub fn has_contention(self) -> bool {
        self != Self::Analytic
    }

    /// Whether a step with contention is so cheap that it can be run again with something changed.
    pub fn repeats_steps(self) -> bool {
        self == Self::Flow
    }

    /// Whether a run can take so long, or so much memory, that it is refused.
    pub fn can_take_long(self) -> bool {
        self.has_contention()
    }

    /// The engine that stands in for this one where phases of whole clusters are run.
    pub fn for_whole_clusters(self) -> Self {
        if self.moves_packets() { Self::Flow } else { self }
    }
}

/// What a scenario is loaded for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Purpose {
    /// To look at the settings: all of them count.
    #[default]
    Settings,
    /// `topo`: the fabric alone.
    Topology,
    /// `topo --domains`: the fabric, and which of its GPUs the job has.
    Domains,
    /// `traffic`: what the job puts on the wire, on its hashed paths.
    Wire,
    /// `place`: what the job's blocks exchange, and how far servers are from each other.
    Place,
    /// `collective`: one collective on an engine.
    Collective(Engine, Collective),
    /// `run`, `compare`: the scenario's job or its synthetic traffic on an engine.
    Run(Engine),
    /// `run --days`: the job's step on an engine, and days of failures.
    Campaign(Engine),
}

impl Purpose {
    /// The engine that it asks.
    pub fn engine(self) -> Option<Engine> {
        match self {
            Self::Collective(engine, _) | Self::Run(engine) | Self::Campaign(engine) => {
                Some(engine)
            }
            Self::Settings | Self::Topology | Self::Domains | Self::Wire | Self::Place => None,
        }
    }
}

/// What of the network decides how long a short message takes.
const OF_A_MESSAGE: [&str; 5] = [
    "transport",
    "nic.send_latency",
    "nic.receive_latency",
    "scheduled.enabled",
    "scheduled.latency",
];

/// The same with what the bill knows: the gateways between parts.
const OF_A_FABRIC: [&str; 7] = [
    "transport",
    "nic.send_latency",
    "nic.receive_latency",
    "scheduled.enabled",
    "scheduled.latency",
    "transport_of_tier",
    "gateway.usd",
];

/// What `used_by` says where only packets have it.
const PACKETS: &str = "--engine packet";

/// The same where closed forms lack it.
const ENGINES: &str = "--engine flow or packet";

/// The settings of a scenario that a purpose does not obey, as far as they can be told before its
/// fabric is built. The model is the job's.
pub fn idle(scenario: &ScenarioFile, purpose: Purpose, model: Option<&Model>) -> UnusedKeys {
    let mut idle = UnusedKeys::default();
    let Some(load) = Load::of(scenario, purpose) else { return idle };
    let asked = PurposeOf { scenario, purpose, load, model };
    asked.tables(&mut idle);
    idle.table("cluster", |idle| scenario.cluster.unused(scenario.fabric.topology, idle));
    idle.table("fabric", |idle| scenario.fabric.unused(idle));
    asked.hardware(&mut idle);
    asked.network(&mut idle);
    asked.library(&mut idle);
    asked.work(&mut idle);
    idle
}

/// Adds what only the built fabric tells.
pub(crate) fn look_at(
    fabric: &Fabric,
    scenario: &ScenarioFile,
    purpose: Purpose,
    idle: &mut UnusedKeys,
) {
    if purpose == Purpose::Settings {
        return;
    }
    idle.table("fabric", |idle| scenario.fabric.unused_tiers(fabric, idle));
    let tiers: Vec<&str> = fabric.tiers().iter().map(|tier| tier.name.as_str()).collect();
    let network = &scenario.network;
    let buffers = network.settings.buffer_of_tier.keys().map(|name| ("buffer", name));
    let marks = network.settings.ecn_of_tier.keys().map(|name| ("ecn", name));
    let credits = network.settings.credits_of_tier.keys().map(|name| ("credits", name));
    let controls = network.settings.congestion_of_tier.keys().map(|name| ("congestion", name));
    let transports = network.transport_of_tier.keys().map(|name| ("transport", name));
    let policies = network.settings.routing.policy_of_tier.keys();
    let policies = policies.map(|name| ("routing.policy", name));
    for (what, name) in
        buffers.chain(marks).chain(credits).chain(controls).chain(transports).chain(policies)
    {
        if !tiers.contains(&name.as_str()) {
            let (key, has) = (format!("network.{what}_of_tier.{name}"), tiers.join(", "));
            idle.part_of(&key, &format!("the tiers are {has}"), "the name of a tier");
        } else if what == "congestion" && !has_nics(fabric, name) {
            let key = format!("network.congestion_of_tier.{name}");
            idle.part_of(&key, "no NIC is below its switches", "the name of a tier of leaves");
        }
    }
    let is_switch = |node: NodeId| fabric.nodes()[node].kind == NodeKind::Switch;
    let joins = |link: &Link| is_switch(link.from) && is_switch(link.to);
    if tiers.len() < 2 && !fabric.links().iter().any(joins) {
        for key in ["policy", "hash", "function", "seeds", "members", "udp_source"] {
            let why = "one switch leaves no choice of paths";
            idle.part_of(&format!("network.routing.{key}"), why, "a fabric of several switches");
        }
    }
    let boxes: Vec<&str> = fabric.tiers().iter().map(|tier| tier.model.as_str()).collect();
    let front_end = scenario.cluster.front_end.switch.as_deref();
    for name in scenario.catalogue.switch.keys() {
        if !boxes.contains(&name.as_str()) && front_end != Some(name) {
            let key = format!("catalogue.switch.{name}");
            idle.part_of(&key, "no tier of this fabric has this box", "fabric.leaf.switch");
        }
    }
}

/// Whether NICs are below the switches of a tier.
fn has_nics(fabric: &Fabric, tier: &str) -> bool {
    let mut ends = (0..fabric.endpoints()).map(|nic| fabric.nic(nic));
    ends.any(|nic| {
        fabric.ports(nic).iter().any(|port| {
            let next = fabric.nodes()[fabric.links()[*port].to];
            let own = fabric.tiers().get(usize::from(next.tier));
            next.kind == NodeKind::Switch && own.is_some_and(|own| own.name == tier)
        })
    })
}

/// What the network carries for a purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Load {
    /// Nothing: the fabric alone.
    Nothing,
    /// A job's bytes, without time.
    Wire,
    /// One collective.
    Collective(Collective),
    /// A job's step.
    Job,
    /// Synthetic traffic.
    Traffic,
}

impl Load {
    /// What a purpose puts on the scenario's network; `None` where all settings count.
    fn of(scenario: &ScenarioFile, purpose: Purpose) -> Option<Self> {
        Some(match purpose {
            Purpose::Settings => return None,
            Purpose::Topology | Purpose::Domains => Self::Nothing,
            Purpose::Wire | Purpose::Place => Self::Wire,
            Purpose::Collective(_, collective) => Self::Collective(collective),
            // Each job, and the traffic beside them, says what it does not obey.
            Purpose::Run(_) | Purpose::Campaign(_) if !scenario.jobs.is_empty() => return None,
            Purpose::Run(_) | Purpose::Campaign(_) if scenario.job.is_some() => Self::Job,
            Purpose::Run(_) | Purpose::Campaign(_) => Self::Traffic,
        })
    }
}

/// A scenario and what is asked of it.
struct PurposeOf<'a> {
    scenario: &'a ScenarioFile,
    purpose: Purpose,
    load: Load,
    model: Option<&'a Model>,
}

impl PurposeOf<'_> {
    fn engine(&self) -> Option<Engine> {
        self.purpose.engine()
    }

    /// Whether collectives are closed forms, without transfers.
    fn is_closed(&self) -> bool {
        self.engine() == Some(Engine::Analytic) && self.load != Load::Traffic
    }

    /// Whether the synthetic traffic has such a load.
    fn has(&self, is_such: impl Fn(Pattern) -> bool) -> bool {
        let traffic = self.scenario.traffic.iter();
        let mut loads =
            traffic.flat_map(|traffic| std::iter::once(&traffic.load).chain(&traffic.background));
        self.load == Load::Traffic && loads.any(|load| is_such(load.pattern))
    }

    /// Whether GPUs take part, and with them the scale-up network and the library.
    fn has_gpus(&self) -> bool {
        self.load != Load::Traffic || self.has(Pattern::has_gpus)
    }

    /// Whether anything goes to storage or comes from there, over this network.
    fn has_storage(&self, place: StoragePlace) -> bool {
        self.has(Pattern::has_storage) && self.scenario.cluster.storage.place == place
    }

    /// Whether any of these collectives is run; synthetic traffic may run any.
    fn runs(&self, wanted: &[Collective]) -> bool {
        match self.load {
            Load::Collective(collective) => wanted.contains(&collective),
            Load::Job | Load::Wire => self.of_job().iter().any(|own| wanted.contains(own)),
            Load::Traffic | Load::Nothing => true,
        }
    }

    /// The collectives that the job may run.
    fn of_job(&self) -> Vec<Collective> {
        let Some(job) = &self.scenario.job else { return Vec::new() };
        let parallel = &job.parallel;
        let mut all = vec![Collective::AllGather, Collective::ReduceScatter];
        let tied = self.model.is_none_or(|model| model.tied_embeddings) && 1 < parallel.pp;
        let sums = matches!(parallel.sharding, Sharding::None | Sharding::Hybrid);
        if sums || tied || (1 < parallel.tp && !parallel.sequence_parallel) {
            all.push(Collective::AllReduce);
        }
        if 1 < parallel.pp || 1 < parallel.cp {
            all.push(Collective::SendRecv);
        }
        if 1 < parallel.ep {
            all.extend([Collective::AllToAll, Collective::MoeDispatch, Collective::MoeCombine]);
        }
        all
    }

    /// Names the tables of the scenario that are not looked at.
    fn tables(&self, idle: &mut UnusedKeys) {
        let (not_looked_at, why): (&[&str], &str) = match self.load {
            Load::Job | Load::Traffic => (&[], ""),
            Load::Wire => (&["faults"], "this command counts bytes, without time"),
            Load::Collective(_) => {
                (&["job", "jobs", "traffic"], "this command runs one collective")
            }
            Load::Nothing => (
                &["job", "jobs", "traffic", "faults", "library", "network"],
                "this command looks at the fabric alone",
            ),
        };
        let is_domains = self.purpose == Purpose::Domains;
        for table in not_looked_at.iter().filter(|table| !is_domains || **table != "job") {
            // The latency of a message is the fabric's and its NICs'.
            let but: &[&str] = match *table {
                "network" if is_domains => &OF_A_MESSAGE,
                "network" => &OF_A_FABRIC,
                _ => &[],
            };
            idle.all_but(table, but, why, "`run`");
        }
        if self.load == Load::Nothing && !self.scenario.network.settings.scheduled.enabled {
            let used_by = "network.transport=scheduled-ethernet";
            idle.key("network.scheduled.latency", "no fabric is scheduled", used_by);
        }
        self.targets(idle);
        if self.purpose == Purpose::Place {
            let why = "shortest ways climb through the same tiers, whichever is taken";
            idle.key("network.routing", why, "`run`");
        }
        if is_domains {
            self.domains(idle);
        } else if self.load == Load::Nothing {
            // The answer still says which it was.
            idle.part_of("seed", why, "`run`");
        }
        if self.load != Load::Job {
            let why = "it is about a step of a job";
            for table in ["software", "jitter", "stragglers", "prices"] {
                idle.key(table, why, "`run` on a job");
            }
            let obeyed: &[&str] = match self.has(Pattern::has_checkpoint) {
                true => &["checkpoint.bytes_per_parameter"],
                false if is_domains => &["rates", "scale"],
                false => &[],
            };
            idle.all_but("reliability", obeyed, why, "`run` on a job");
        }
        if self.is_closed() {
            if !matches!(self.purpose, Purpose::Campaign(_)) {
                idle.part_of("seed", "closed forms have nothing random", ENGINES);
            }
            idle.key("faults", "closed forms know no faults", "--engine flow");
            let why = "closed forms look at a few routes: what fails on others changes nothing";
            idle.part_of("fabric.failed", why, ENGINES);
            idle.part_of("fabric.degraded", why, ENGINES);
        }
    }

    /// Names targets that nothing here can meet or miss.
    fn targets(&self, idle: &mut UnusedKeys) {
        if self.load != Load::Nothing && !leaves_lengths_out(&self.scenario.fabric) {
            let why = "every cable has a length of its own";
            idle.key("racks", why, "`topo`, or leave out fabric.links.length");
        }
        match self.load {
            Load::Job => {}
            Load::Nothing => {
                for key in Targets::OF_A_STEP {
                    idle.key(&join("targets", key), "there is no step", "`run` on a job");
                }
            }
            _ => idle.key("targets", "this command has no targets", "`topo`, `run` on a job"),
        }
    }

    /// Names what does not decide which GPUs the job has.
    fn domains(&self, idle: &mut UnusedKeys) {
        let degrees = ["tp", "cp", "pp", "dp"].map(|degree| format!("parallel.{degree}"));
        let mut but = vec!["gpus", "placement"];
        but.extend(degrees.iter().map(String::as_str));
        let placement = self.scenario.job.as_ref().map(|job| &job.placement);
        // Which GPUs those are follows from all that the job exchanges.
        if !placement.is_some_and(|placed| placed.policy == Policy::MinCut) {
            let why = "of the job, only its GPUs are looked at";
            idle.parts_but("job", &but, why, "`run`");
        }
        let is_drawn = |placed: &PlacementConfig| {
            matches!(placed.policy, Policy::Random | Policy::MinCut) || 0.0 < placed.busy
        };
        if !placement.is_some_and(is_drawn) {
            idle.part_of("seed", "no GPU is drawn by lot", "job.placement=random");
        }
    }

    /// Names hardware that takes no part. What cannot be left out stays as it is.
    fn hardware(&self, idle: &mut UnusedKeys) {
        let scenario = self.scenario;
        let counts_money = matches!(self.load, Load::Job | Load::Nothing);
        if !self.has(Pattern::has_storage) {
            let (why, used_by) = ("nothing is stored or read", "pattern = \"checkpoint\"");
            let keys: &[&str] =
                if counts_money { &["rate"] } else { &["servers", "rate", "place"] };
            for key in keys {
                idle.part_of(&format!("cluster.storage.{key}"), why, used_by);
            }
        }
        if !counts_money && !self.has_storage(StoragePlace::FrontEnd) {
            let why = "the front-end carries nothing here";
            let keys = ["nic", "rate", "switch", "oversubscription", "length", "uplink_length"];
            for key in keys {
                idle.part_of(&format!("cluster.front_end.{key}"), why, "`topo`, `run` on a job");
            }
        }
        if !self.has_gpus() {
            let why = "flows between NICs need no GPU";
            for key in ["gpu", "scale_up.rate", "scale_up.delay", "nic_affinity"] {
                idle.part_of(&format!("cluster.{key}"), why, "a job or a collective");
            }
        }
        if self.load == Load::Nothing {
            let why = "this command does not look at time";
            if self.purpose != Purpose::Domains {
                idle.part_of("cluster.nic_affinity", why, "`run`");
            }
        }
        if self.is_closed() {
            let why = "the library's own constants contain it";
            idle.part_of("cluster.scale_up.delay", why, PACKETS);
        }
        if self.is_closed() && !counts_money {
            let why = "closed forms share no links";
            for key in ["oversubscription", "uplinks", "sites.links"] {
                idle.part_of(&format!("fabric.{key}"), why, ENGINES);
            }
            idle.part_of("cluster.front_end", "the front-end carries nothing here", "`topo`");
        }
        let is_folded = matches!(self.load, Load::Collective(_) | Load::Job);
        if self.engine() == Some(Engine::Flow) && is_folded && !self.runs(EXCHANGES) {
            let why = "the library's own constants contain it";
            idle.part_of("cluster.scale_up.delay", why, PACKETS);
        }
        if scenario.library.sharp == Usage::Disabled {
            for tier in ["leaf", "spine", "core"] {
                let why = "no switch is asked to reduce";
                idle.key(&format!("fabric.{tier}.reduces"), why, "library.sharp=enabled");
            }
        }
        self.catalogue(counts_money, idle);
    }

    /// Names figures of the catalogue that nothing looks at: of hardware that the scenario does not
    /// have, and prices, powers and rates that do not count.
    fn catalogue(&self, counts_money: bool, idle: &mut UnusedKeys) {
        let scenario = self.scenario;
        for name in scenario.catalogue.gpu.keys() {
            let gpu = format!("catalogue.gpu.{name}");
            if *name != scenario.cluster.gpu {
                idle.part_of(&gpu, "the cluster has other GPUs", "cluster.gpu");
            }
            let mut figures = |keys: &[&str], why: &str, used_by: &str| {
                keys.iter().for_each(|key| idle.part_of(&join(&gpu, key), why, used_by));
            };
            if self.load != Load::Job {
                figures(&COMPUTE, "nothing is computed", "`run` on a job");
            }
            if scenario.job.as_ref().map(|job| job.precision) != Some(Precision::Fp8) {
                let keys = ["fp8_tflops", "matmul_fp8_tflops"];
                figures(&keys, "nothing is computed in fp8", "job.precision=fp8");
            }
            self.speeds(name, &mut figures);
            if !self.has_gpus() {
                let keys = ["scale_up_gbytes_s", "scale_up_name"];
                figures(&keys, "flows between NICs need no GPU", "a collective");
            }
            if self.load == Load::Nothing {
                figures(&["scale_up_name"], "time is not looked at", "`run`");
            }
            if !counts_money {
                figures(&MONEY, "nothing is paid for", "`topo`, `run` on a job");
            }
        }
        for name in scenario.catalogue.nic.keys() {
            self.card(name, counts_money, idle);
        }
        for name in scenario.catalogue.switch.keys() {
            let mut figures = |keys: &[&str], why: &str, used_by: &str| {
                let switch = format!("catalogue.switch.{name}");
                keys.iter().for_each(|key| idle.part_of(&join(&switch, key), why, used_by));
            };
            if !counts_money {
                figures(&MONEY, "nothing is paid for", "`topo`, `run` on a job");
            }
            if self.load == Load::Nothing {
                figures(&["latency_ns"], "time is not looked at", "`run`");
            }
            if self.engine() != Some(Engine::Packet) {
                figures(&["buffer_mb", "buffering"], "only packets meet queues", PACKETS);
            }
        }
        if !counts_money {
            idle.part_of("catalogue.cable", "nothing is paid for", "`topo`, `run` on a job");
        }
    }

    /// The same of a GPU's kernels: figures of which published ones say more, and classes that the
    /// job has no kernels of.
    fn speeds(&self, name: &str, figures: &mut impl FnMut(&[&str], &str, &str)) {
        let speed = &self.scenario.catalogue.gpu[name].speed;
        let by_rule = [
            ("matmul_bf16_tflops", speed.bf16_large.is_some()),
            ("matmul_fp8_tflops", speed.fp8_large.is_some()),
            ("matmul_sustained", speed.bf16_large.is_some() && speed.fp8_large.is_some()),
            ("clock_ghz", speed.norm_backward.is_some()),
            ("memory_gbytes_s", speed.memory.is_some()),
        ];
        for (key, published) in by_rule {
            if published {
                figures(&[key], "published kernels say more: `speed`", "leave out `speed`");
            }
        }
        let (Some(job), Some(model)) = (&self.scenario.job, self.model) else { return };
        if speed.norm_backward.is_some() && !job.parallel.overlap.contains(&Axis::Ep) {
            let why = "no exchange of experts takes multiprocessors from computation";
            figures(&["sms"], why, "job.parallel.overlap=[\"ep\"]");
        }
        let recipe = job.fp8_recipe.unwrap_or(Fp8Recipe::usual(model));
        let is_plain = !matches!(recipe, Fp8Recipe::Block | Fp8Recipe::Mx);
        let eight = job.precision == Precision::Fp8;
        let (mla, narrow) = (model.head_dim < model.score_dim(), model.score_dim() <= 96);
        let classes = [
            (&["fp8_large", "fp8_narrow", "fp8_short"][..], eight && is_plain),
            (&["fp8_block"], eight && !is_plain && speed.mxfp8_large.is_none()),
            (
                &["mxfp8_large", "mxfp8_narrow", "mxfp8_short"],
                eight && !is_plain || job.precision == Precision::Fp4,
            ),
            (&["fp4"], job.precision == Precision::Fp4),
            (&["attention_forward_mla", "attention_backward_mla"], mla),
            (&["attention_forward_64", "attention_backward_64"], narrow && !mla),
            (&["attention_forward", "attention_backward"], !narrow && !mla),
        ];
        let why = "the job has no such kernels";
        for (keys, has) in classes {
            for key in keys.iter().filter(|_| !has) {
                figures(&[&format!("speed.{key}")], why, "job.precision, job.model");
            }
        }
    }

    /// The same of a NIC.
    fn card(&self, name: &str, counts_money: bool, idle: &mut UnusedKeys) {
        let (cluster, nic) = (&self.scenario.cluster, format!("catalogue.nic.{name}"));
        let in_front = 0 < cluster.front_end.nics && name == cluster.front_end.nic;
        if name != cluster.nic && !in_front {
            idle.part_of(&nic, "the servers have other NICs", "cluster.nic");
        }
        let mut figures = |keys: &[&str], why: &str, used_by: &str| {
            keys.iter().for_each(|key| idle.part_of(&join(&nic, key), why, used_by));
        };
        let why = "`cluster.ports_per_nic` says how many are cabled";
        figures(&["ports"], why, "cluster.ports_per_nic");
        if self.load == Load::Nothing {
            let keys = ["reorder", "qp_contexts", "qp_miss_ns"];
            figures(&keys, "only the latency of a message is looked at", "`run`");
        }
        if self.is_closed() {
            let why = "closed forms know no queue pairs";
            figures(&["qp_contexts", "qp_miss_ns"], why, ENGINES);
        }
        let spreads = self.scenario.network.settings.routing.policy.spreads();
        let reorders = match self.engine() {
            Some(Engine::Packet) => true,
            engine => engine == Some(Engine::Flow) && spreads,
        };
        if !reorders {
            let used_by = "a network.routing.policy that spreads packets";
            figures(&["reorder"], "packets of a flow stay on one path", used_by);
        }
        if !counts_money {
            figures(&MONEY, "nothing is paid for", "`topo`, `run` on a job");
        }
    }

    /// The same of what queue pairs cost.
    fn queue_pairs(&self, idle: &mut UnusedKeys) {
        let routing = &self.scenario.network.settings.routing;
        if self.is_closed() {
            for key in ["qp_contexts", "qp_miss", "qp_fetch", "qp_post"] {
                let why = "closed forms know no queue pairs";
                idle.key(&format!("network.nic.{key}"), why, ENGINES);
            }
            return;
        }
        if routing.qps == 1 || routing.split != QueuePairUse::Split {
            let why = "messages are not split over queue pairs";
            idle.key("network.nic.qp_post", why, "network.routing.split=split and qps above 1");
        }
        if self.engine() == Some(Engine::Analytic) {
            let why = "bounds know no queue pairs that wait for their contexts";
            idle.key("network.nic.qp_fetch", why, ENGINES);
        }
    }

    /// What flows and closed forms obey of a scheduled fabric; names it where there is none.
    fn scheduled(&self, idle: &mut UnusedKeys) -> &'static [&'static str] {
        if self.engine().is_none() {
            return &[];
        }
        if !self.scenario.network.settings.scheduled.enabled {
            let why = "no fabric is scheduled";
            let used_by = "network.transport=scheduled-ethernet";
            idle.all_but("scheduled", &["enabled"], why, used_by);
        }
        match self.is_closed() {
            // The links of NICs bound them, which carry no cells.
            true => &["scheduled.enabled", "scheduled.latency"],
            false => &[
                "scheduled.enabled",
                "scheduled.latency",
                "scheduled.cell",
                "scheduled.cell_header",
            ],
        }
    }

    /// Names what of the network's settings the engine does not obey.
    fn network(&self, idle: &mut UnusedKeys) {
        let faults = !self.scenario.faults.is_empty();
        let settings = &self.scenario.network.settings;
        if !faults || self.engine() == Some(Engine::Analytic) {
            idle.table("network.routing", |idle| settings.routing.unused_without_faults(idle));
        }
        idle.table("network", |idle| match self.engine() {
            Some(Engine::Packet) => {
                idle.key("flow", "these are the flow engine's settings", "--engine flow");
                settings.unused(faults, idle);
                idle.table("nic", |idle| self.failover(idle));
                if self.load != Load::Job {
                    idle.key("packet.phase_bytes", "only steps have phases", "`run` on a job");
                }
                if self.load != Load::Traffic && !settings.credits.enabled {
                    let why = "all messages have one service level";
                    idle.key("credits.lanes", why, "traffic.service_level");
                }
            }
            _ => {
                let why = "only packets meet queues, marks, pauses and losses";
                let mut but = vec!["transport", "packet.mtu", "nic.send_latency", "nic.cores"];
                but.extend(["nic.receive_latency", "nic.reorder", "nic.core_rate", "nic.pcie"]);
                but.extend(["routing", "flow", "transport_of_tier", "gateway"]);
                but.extend(["nic.qp_contexts", "nic.qp_miss", "nic.qp_fetch", "nic.qp_post"]);
                if settings.congestion.window().is_some() {
                    but.extend(["congestion.control", "congestion.initial_window"]);
                    but.push("congestion.max_window");
                }
                if self.resends() {
                    but.extend(["nic.timeout", "nic.retries"]);
                }
                if self.controls() {
                    but.extend(["congestion", "ecn", "nic.after_idle", "nic.idle_reset"]);
                    but.push("ecn_of_tier");
                }
                but.push("nic.failover");
                but.extend(self.scheduled(idle));
                idle.all_but("", &but, why, PACKETS);
                if self.controls() {
                    self.fluid_control(idle);
                }
                idle.table("nic", |idle| settings.nic.unused_cores(idle));
                idle.table("nic", |idle| self.failover(idle));
                idle.table("routing", |idle| settings.routing.unused(Chooser::Flow, idle));
                if !settings.routing.policy.spreads() {
                    let why = "packets of a flow stay on one path";
                    idle.key("nic.reorder", why, "a network.routing.policy that spreads packets");
                } else if settings.scheduled.enabled {
                    let why = "a scheduled fabric keeps the order of packets";
                    idle.key("nic.reorder", why, "a transport whose packets overtake each other");
                }
            }
        });
        if self.is_closed() {
            let why = "closed forms know no other traffic and no paths";
            idle.key("network.routing", why, ENGINES);
        }
        self.parts(idle);
        self.queue_pairs(idle);
        if self.engine() == Some(Engine::Analytic) {
            idle.key("network.nic.reorder", "closed forms know no order of packets", ENGINES);
            let why = "closed forms know no rates that change";
            let but: &[&str] = if self.is_closed() { &[] } else { &["protocol_latency"] };
            idle.all_but("network.flow", but, why, "--engine flow");
        }
        if self.engine() == Some(Engine::Flow) {
            self.flows(idle);
        }
    }

    /// Whether flows step the state machine of congestion control.
    fn controls(&self) -> bool {
        let network = &self.scenario.network;
        let is_dcqcn = matches!(network.settings.congestion, CcConfig::Dcqcn(_));
        let is_asked = network.flow.congestion == CongestionRates::Controlled;
        self.engine() == Some(Engine::Flow) && is_asked && is_dcqcn
    }

    /// Names what flows do not obey of congestion control and marks where they step them.
    fn fluid_control(&self, idle: &mut UnusedKeys) {
        let settings = &self.scenario.network.settings;
        idle.table("congestion", |idle| settings.congestion.unused(idle));
        idle.key("ecn.when", "packets of a fluid do not wait one by one", PACKETS);
        if !settings.ecn.enabled {
            idle.all_but("ecn", &["enabled"], "switches do not mark", "network.ecn.enabled=true");
        }
        for (tier, ecn) in &settings.ecn_of_tier {
            idle.table(&format!("ecn_of_tier.{tier}"), |idle| ecn.unused(idle));
            let why = "packets of a fluid do not wait one by one";
            idle.key(&format!("ecn_of_tier.{tier}.when"), why, PACKETS);
        }
        if settings.nic.after_idle == AfterIdle::Keep {
            idle.key("nic.idle_reset", "rates are kept", "network.nic.after_idle=restart");
        }
    }

    /// Names what flows do not obey of how queue pairs are used.
    fn flows(&self, idle: &mut UnusedKeys) {
        let network = &self.scenario.network;
        if network.flow.congestion == CongestionRates::Controlled && !self.controls() {
            let why = "flows step DCQCN alone, and are fair under others";
            idle.key("network.flow.congestion", why, "network.congestion.control=dcqcn");
        }
        let has_messages =
            self.runs(&[Collective::SendRecv, Collective::Broadcast, Collective::Reduce]);
        let splits = 1 < self.scenario.network.settings.routing.qps;
        if !splits || self.load == Load::Traffic || !has_messages {
            let why = "no message of a step has several queue pairs";
            let used_by = "a job with pipeline stages, with network.routing.qps above 1";
            idle.key("network.flow.queue_pairs", why, used_by);
        }
        if self.load != Load::Traffic {
            let why = "a folded collective uses all queue pairs at once";
            idle.key("network.routing.split", why, PACKETS);
            idle.key("network.routing.chunk", why, PACKETS);
            idle.key("network.flow.points", "only synthetic traffic draws it", "`run` on traffic");
            if !self.runs(EXCHANGES) {
                let why = "a folded collective has the library's own hand-overs";
                idle.key("network.flow.protocol_latency", why, "traffic, or an all-to-all");
                idle.key("network.flow.window", why, "traffic, or an all-to-all");
            }
        }
    }

    /// Names transports of parts where the engine knows one alone.
    fn parts(&self, idle: &mut UnusedKeys) {
        let own = &self.scenario.network.transport_of_tier;
        if self.load == Load::Nothing {
            // The bill has gateways where transports meet; what they take is told above.
            if own.values().all(|one| *one == self.scenario.network.transport) {
                let why = "no cable joins two transports";
                idle.key("network.gateway.usd", why, "network.transport_of_tier");
            }
        } else if self.engine().is_none_or(|engine| engine == Engine::Analytic) {
            let why = "this knows the NICs' transport alone";
            idle.key("network.transport_of_tier", why, ENGINES);
            idle.key("network.gateway", why, ENGINES);
        } else if own.values().all(|one| *one == self.scenario.network.transport) {
            let why = "no packet changes its transport";
            idle.key("network.gateway", why, "network.transport_of_tier");
        } else if self.load != Load::Job {
            let why = "traffic without a job is not paid for";
            idle.key("network.gateway.usd", why, "topo, or `run` on a job");
        }
    }

    /// Whether queue pairs of flows send again what they lost: where something fails meanwhile.
    fn resends(&self) -> bool {
        self.engine() == Some(Engine::Flow) && self.is_hit()
    }

    /// Whether something fails, or is mended, meanwhile.
    fn is_hit(&self) -> bool {
        self.scenario.faults.iter().any(FaultConfig::comes_or_goes)
    }

    /// Names the fail-over of ports where nothing can fail over.
    fn failover(&self, idle: &mut UnusedKeys) {
        if self.scenario.faults.is_empty() {
            idle.key("failover", "nothing fails", "[[faults]]");
        } else if self.scenario.cluster.ports_per_nic == 1 {
            idle.key("failover", "NICs have one port", "cluster.ports_per_nic=2");
        }
    }

    /// Names what of the communication library's settings is not obeyed.
    fn library(&self, idle: &mut UnusedKeys) {
        if !self.has_gpus() {
            let why = "flows between NICs need no communication library";
            return idle.key("library", why, "traffic.pattern=collective, or a job");
        }
        idle.table("library", |idle| {
            self.scenario.library.unused(idle);
            if matches!(self.load, Load::Job | Load::Wire) {
                idle.key("launch", "a step's calls cost `software.collective`", "`collective`");
                idle.key("routing", "the job's model says where tokens go", "`collective`");
            }
            if self.engine() != Some(Engine::Packet) {
                let why = "a folded collective is not cut into pieces";
                idle.key("p2p_scale_up_chunk", why, PACKETS);
                idle.key("aggregation.buffers", why, PACKETS);
                idle.key("aggregation.chunk", why, PACKETS);
            }
            if self.scenario.library.launch == Span::ZERO && !self.runs(&[Collective::SendRecv]) {
                let why = "nothing is added for starting a kernel";
                idle.key("initiator", why, "library.launch above 0, and send_recv");
            }
            let halves = [Collective::AllGather, Collective::ReduceScatter];
            let is_half = matches!(self.load, Load::Collective(own) if halves.contains(&own));
            if is_half && self.scenario.library.aggregation.gathers == Usage::Disabled {
                let why = "the plug-in of these switches only reduces";
                idle.key("sharp", why, "library.aggregation.gathers=enabled");
            }
            if self.is_closed() {
                idle.key("cross_nic", "closed forms know no rails", ENGINES);
                idle.key("pxn", "closed forms know no rails", ENGINES);
            }
            for (key, wanted, used_by) in OF_COLLECTIVES {
                if !self.runs(wanted) {
                    idle.key(key, "no collective here looks at it", used_by);
                }
            }
        });
    }

    /// Names what of the job or of the synthetic traffic has no effect.
    fn work(&self, idle: &mut UnusedKeys) {
        let scenario = self.scenario;
        if let (Load::Traffic, Some(traffic)) = (self.load, &scenario.traffic) {
            idle.table("traffic", |idle| traffic.unused(idle));
            let background = (0..traffic.background.len()).map(|at| format!("background.{at}."));
            for load in std::iter::once(String::new()).chain(background) {
                let key = format!("traffic.{load}service_level");
                if self.engine() != Some(Engine::Packet) {
                    idle.key(&key, "flows share links alike", "--engine packet with lanes");
                } else if scenario.network.settings.credits.lanes == 1 {
                    idle.key(&key, "data has one lane", "network.credits.lanes above 1");
                }
            }
        }
        if (self.engine(), self.load) == (Some(Engine::Analytic), Load::Traffic) {
            let why = "closed forms know all that is sent";
            idle.key("network.routing.demand", why, "--engine flow");
            idle.key("network.routing.staleness", why, "--engine flow");
            let later = |fault: &FaultConfig| fault.at != Span::ZERO;
            for (at, _) in scenario.faults.iter().enumerate().filter(|(_, fault)| later(fault)) {
                let why = "closed forms know only what fails at 0 s";
                idle.part_of(&format!("faults.{at}"), why, ENGINES);
            }
        }
        if matches!(self.load, Load::Traffic | Load::Collective(_)) {
            let compute = |fault: &FaultConfig| fault.what.hits_computation();
            for (at, _) in scenario.faults.iter().enumerate().filter(|(_, one)| compute(one)) {
                let why = "nothing is computed: no GPU is slow or lost";
                idle.part_of(&format!("faults.{at}.what"), why, "`run` on a job");
            }
        }
        if let (Load::Job | Load::Wire, Some(job)) = (self.load, &scenario.job) {
            idle.table("job", |idle| job.unused(self.model, idle));
            idle.table("jitter", |idle| scenario.jitter.unused(idle));
            idle.table("software", |idle| scenario.software.unused(job, idle));
            let is_campaign = matches!(self.purpose, Purpose::Campaign(_));
            let may_end = self.load == Load::Job && self.is_hit() && !self.is_closed();
            idle.table("reliability", |idle| {
                scenario.reliability.unused(is_campaign, may_end, idle);
            });
        }
        if self.load != Load::Job {
            let why = "circuits follow the phases of a job";
            idle.key("fabric.circuits.schedule", why, "`run` on a job");
            idle.key("fabric.circuits.reconfiguration", why, "`run` on a job");
        }
    }
}

/// Figures that only a bill looks at.
const MONEY: [&str; 5] = ["power_w", "price_usd", "host_w", "host_usd", "card"];

/// Figures of a GPU that only computation looks at.
const COMPUTE: [&str; 11] = [
    "bf16_tflops",
    "fp8_tflops",
    "matmul_bf16_tflops",
    "matmul_fp8_tflops",
    "matmul_sustained",
    "flash2_share",
    "memory_gb",
    "memory_gbytes_s",
    "sms",
    "clock_ghz",
    "speed",
];

/// Collectives that are a message for each pair of ranks, on flows too.
const EXCHANGES: &[Collective] = &[
    Collective::Gather,
    Collective::Scatter,
    Collective::AllToAll,
    Collective::MoeDispatch,
    Collective::MoeCombine,
    Collective::MoeDispatchLowLatency,
    Collective::MoeCombineLowLatency,
];

/// The same, and messages from one to the next.
const SENDS: &[Collective] = &[
    Collective::SendRecv,
    Collective::Gather,
    Collective::Scatter,
    Collective::AllToAll,
    Collective::MoeDispatch,
    Collective::MoeCombine,
    Collective::MoeDispatchLowLatency,
    Collective::MoeCombineLowLatency,
];

/// Collectives that switches can do, and their halves.
const SUMS: &[Collective] =
    &[Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter];

/// Settings of the library that only some collectives look at.
const OF_COLLECTIVES: [(&str, &[Collective], &str); 11] = [
    ("routing", &[Collective::MoeDispatch, Collective::MoeCombine], "moe_dispatch and moe_combine"),
    ("all_to_all_share", &[Collective::AllToAll], "all_to_all"),
    (
        "deepep_efficiency",
        &[
            Collective::MoeDispatch,
            Collective::MoeCombine,
            Collective::MoeDispatchLowLatency,
            Collective::MoeCombineLowLatency,
        ],
        "moe_dispatch and moe_combine",
    ),
    (
        "low_latency_overhead",
        &[Collective::MoeDispatchLowLatency, Collective::MoeCombineLowLatency],
        "moe_dispatch_ll and moe_combine_ll",
    ),
    ("p2p_net_chunk", SENDS, "all_to_all, send_recv, gather and scatter"),
    ("p2p_scale_up_chunk", SENDS, "all_to_all, send_recv, gather and scatter"),
    ("pxn", SENDS, "all_to_all, send_recv, gather and scatter"),
    ("nvls", SUMS, "all_reduce, all_gather and reduce_scatter"),
    ("sharp", SUMS, "all_reduce, all_gather and reduce_scatter"),
    ("aggregation", SUMS, "all_reduce, all_gather and reduce_scatter"),
    (
        "aggregation.gathers",
        &[Collective::AllGather, Collective::ReduceScatter],
        "all_gather and reduce_scatter",
    ),
];

/// Puts settings without effect back to their defaults.
pub(crate) fn take_out(scenario: &ScenarioFile, idle: &UnusedKeys) -> ScenarioFile {
    if idle.keys().is_empty() {
        return scenario.clone();
    }
    // The catalogue is most of a scenario, and there is rarely anything to take out of it.
    let mut scenario = scenario.clone();
    let is_concerned = idle.keys().iter().any(|key| key.concerns("catalogue"));
    let catalogue = (!is_concerned).then(|| std::mem::take(&mut scenario.catalogue));
    let mut json = serde_json::to_value(scenario).expect("it came from JSON");
    for key in idle.keys().iter().filter(|key| key.whole) {
        remove(&mut json, "", key);
    }
    let mut obeyed: ScenarioFile = of_json(&json).expect("what is left out has a default");
    if let Some(catalogue) = catalogue {
        obeyed.catalogue = catalogue;
    }
    obeyed
}

/// Removes what a key covers; what is spared stays with the tables around it.
fn remove(json: &mut Json, path: &str, idle: &UnusedKey) {
    let fields: Vec<String> = match json {
        Json::Object(fields) => fields.keys().cloned().collect(),
        Json::Array(items) => (0..items.len()).map(|at| at.to_string()).collect(),
        _ => return,
    };
    for field in fields {
        let inner = join(path, &field);
        if !idle.concerns(&inner) {
            continue;
        }
        if idle.covers(&inner) && !idle.spares_inside(&inner) {
            // An item of a list cannot be left out without moving the others.
            if let Json::Object(fields) = json {
                fields.remove(&field);
            }
        } else if let Some(value) = match json {
            Json::Object(fields) => fields.get_mut(&field),
            Json::Array(items) => items.get_mut(field.parse::<usize>().unwrap_or(usize::MAX)),
            _ => None,
        } {
            remove(value, &inner, idle);
        }
    }
}

/// What none of several jobs obeys, nor the traffic beside them, and what each does not obey of its
/// own table.
pub(crate) fn of_members(loaded: &Loaded, members: &[Member], purpose: Purpose) -> Vec<Unused> {
    let Some(engine) = purpose.engine().filter(|_| matches!(purpose, Purpose::Run(_))) else {
        return loaded.unused.clone();
    };
    let mut found: Vec<Unused> = Vec::new();
    let mut everybody: Vec<&[Unused]> = members.iter().map(|one| &one.loaded.unused[..]).collect();
    everybody.extend(loaded.beside.as_ref().map(|beside| &beside.unused[..]));
    let own = |key: &str| ["job.", "traffic."].iter().any(|table| key.starts_with(table));
    let (first, others) = everybody.split_first().expect("there is a job");
    let by_all = |key: &str| others.iter().all(|one| one.iter().any(|unused| unused.key == key));
    found.extend(first.iter().filter(|one| !own(&one.key) && by_all(&one.key)).cloned());
    for (at, member) in members.iter().enumerate() {
        for unused in &member.loaded.unused {
            let key = match unused.key.split_once('.') {
                Some(("job", rest)) => format!("jobs.{at}.{rest}"),
                Some(("traffic", _)) => format!("jobs.{at}.{}", unused.key),
                _ => continue,
            };
            found.push(Unused { key, ..unused.clone() });
        }
        let key = format!("jobs.{at}.class");
        let lanes = loaded.scenario.network.settings.credits.lanes;
        let (why, used_by) = match engine {
            Engine::Packet if 1 < lanes => continue,
            Engine::Packet => ("data has one lane", "network.credits.lanes above 1"),
            _ => ("flows share links alike", "--engine packet with lanes"),
        };
        if loaded.is_given(&key) {
            found.push(Unused { key, why: why.to_owned(), used_by: used_by.to_owned() });
        }
    }
    let beside = loaded.beside.iter().flat_map(|beside| &beside.unused);
    found.extend(beside.filter(|unused| unused.key.starts_with("traffic.")).cloned());
    found
}

/// What somebody wrote and the purpose does not obey, in the order of the keys.
pub(crate) fn written(tree: &Node, idle: &UnusedKeys) -> Vec<Unused> {
    let mut found = Vec::new();
    // The catalogue is most of a scenario, and there is rarely anything to find in it.
    for (key, entry) in tree.as_table().into_iter().flat_map(|table| table.iter()) {
        if idle.keys().iter().any(|idle| idle.concerns(key)) {
            collect(&entry.node, key, idle, &mut found);
        }
    }
    found
}

fn collect(node: &Node, path: &str, idle: &UnusedKeys, found: &mut Vec<Unused>) {
    match &node.value {
        Value::Table(table) => {
            for (key, entry) in table.iter() {
                collect(&entry.node, &join(path, key), idle, found);
            }
        }
        Value::List(items) if items.iter().any(|item| item.as_table().is_some()) => {
            for (at, item) in items.iter().enumerate() {
                collect(item, &join(path, &at.to_string()), idle, found);
            }
        }
        _ if node.origin.layer < Layer::File => {}
        _ => found.extend(idle.find(path).map(|because| Unused {
            key: path.to_owned(),
            why: because.why.clone(),
            used_by: because.used_by.clone(),
        })),
    }
}
