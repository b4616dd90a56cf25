//! What a scenario is loaded for, and which of its settings that does not obey.
//!
//! Each crate says which of its settings have no effect, given the others (`unused` beside the
//! struct); here those answers are collected for one purpose. [`take_out`] then puts every such
//! setting back to its default before anything is built from the scenario. So what is called
//! unused cannot have an effect; that nothing else is without one is what the test
//! `commands/tests/inputs.rs` shows, over the whole schema.

use fabric::routing::Chooser;
use serde::Serialize;
use serde_json::Value as Json;
use traffic::collective::Detail;
use traffic::pattern::Pattern;
use units::unused::IdleKey;
use units::{Bytes, Idle, Unused};

use crate::file::ScenarioFile;
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

    /// The engine that stands in for this one where phases of whole clusters are run.
    pub fn for_whole_clusters(self) -> Self {
        if self.moves_packets() { Self::Flow } else { self }
    }

    /// The most bytes that a phase of a step is run with, where what it costs grows with bytes;
    /// larger ones take in proportion.
    pub fn phase_bytes(self) -> Option<Bytes> {
        self.moves_packets().then_some(Bytes::from_mib(4))
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
    /// `traffic`: what the job puts on the wire, on its hashed paths.
    Wire,
    /// `collective`: one collective on an engine.
    Collective(Engine),
    /// `run`, `compare`: the scenario's job or its synthetic traffic on an engine.
    Run(Engine),
}

impl Purpose {
    /// The engine that it asks.
    pub fn engine(self) -> Option<Engine> {
        match self {
            Self::Collective(engine) | Self::Run(engine) => Some(engine),
            Self::Settings | Self::Topology | Self::Wire => None,
        }
    }
}

/// What `used_by` says where only packets have it.
const PACKETS: &str = "--engine packet";

/// The settings of a scenario that a purpose does not obey. `experts` tells whether the job's model
/// has any.
pub fn idle(scenario: &ScenarioFile, purpose: Purpose, experts: bool) -> Idle {
    let mut idle = Idle::default();
    let Some(load) = Load::of(scenario, purpose) else { return idle };
    load.tables(&mut idle);
    network(scenario, load, purpose.engine(), &mut idle);
    library(scenario, load, purpose.engine(), &mut idle);
    catalogue(scenario, load, &mut idle);
    if load == Load::Traffic
        && let Some(traffic) = &scenario.traffic
    {
        idle.table("traffic", |idle| traffic.unused(idle));
        levels(scenario, purpose.engine(), &mut idle);
    }
    if let (Load::Job | Load::Wire, Some(job)) = (load, &scenario.job) {
        idle.table("job", |idle| job.unused(experts, idle));
        idle.table("jitter", |idle| scenario.jitter.unused(idle));
        idle.table("software", |idle| scenario.software.unused(job, idle));
        idle.table("reliability", |idle| scenario.reliability.unused(idle));
    }
    if purpose.engine() == Some(Engine::Analytic) && load != Load::Traffic {
        let why = "closed forms have nothing random";
        idle.key("seed", why, "--engine flow or packet");
        if load == Load::Collective {
            idle.key("faults", "closed forms know no time", "--engine flow or packet");
        }
    }
    idle
}

/// What the network carries for a purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Load {
    /// Nothing: the fabric alone.
    Nothing,
    /// A job's bytes, without time.
    Wire,
    /// One collective.
    Collective,
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
            Purpose::Topology => Self::Nothing,
            Purpose::Wire => Self::Wire,
            Purpose::Collective(_) => Self::Collective,
            Purpose::Run(_) if scenario.job.is_some() => Self::Job,
            Purpose::Run(_) => Self::Traffic,
        })
    }

    /// Names the tables of the scenario that it does not look at.
    fn tables(self, idle: &mut Idle) {
        let (why, used_by) = ("it is about a step of a job", "`run` on a job");
        let step = ["software", "jitter", "stragglers", "reliability", "prices"];
        let not_looked_at: &[&str] = match self {
            Self::Job => &[],
            Self::Wire => &["faults"],
            Self::Traffic => &[],
            Self::Collective => &["job", "traffic"],
            Self::Nothing => &["job", "traffic", "faults", "library", "network", "seed"],
        };
        let command = match self {
            Self::Nothing => "this command looks at the fabric alone",
            Self::Wire => "this command counts bytes, without time",
            _ => "this command runs one collective on all GPUs",
        };
        for table in not_looked_at {
            idle.key(table, command, "`run`");
        }
        if self != Self::Job {
            for table in step {
                idle.key(table, why, used_by);
            }
        }
    }
}

/// Names what of the network's settings an engine does not obey.
fn network(scenario: &ScenarioFile, load: Load, engine: Option<Engine>, idle: &mut Idle) {
    let faults = !scenario.faults.is_empty();
    let settings = &scenario.network.settings;
    idle.table("network", |idle| match engine {
        Some(Engine::Packet) => {
            idle.key("flow", "these are the flow engine's settings", "--engine flow");
            settings.unused(faults, idle);
        }
        _ => {
            let why = "only packets meet queues, marks, pauses and losses";
            let mut but = vec!["transport", "packet.mtu", "nic.send_latency"];
            but.extend(["nic.receive_latency", "nic.reorder", "routing", "flow"]);
            idle.all_but("", &but, why, PACKETS);
            idle.table("flow", |idle| scenario.network.flow.unused(faults, idle));
            idle.table("routing", |idle| settings.routing.unused(Chooser::Flow, idle));
            if !settings.routing.policy.spreads() {
                let why = "packets of a flow stay on one path";
                idle.key("nic.reorder", why, "a network.routing.policy that spreads packets");
            }
        }
    });
    let closed = engine == Some(Engine::Analytic) && load != Load::Traffic;
    if closed {
        let why = "closed forms know no other traffic and no paths";
        idle.key("network.routing", why, "--engine flow or packet");
        idle.key("network.nic.reorder", why, "--engine flow or packet");
    }
    if engine == Some(Engine::Analytic) {
        let why = "closed forms know no rates that change";
        let but: &[&str] = if closed { &[] } else { &["protocol_latency"] };
        idle.all_but("network.flow", but, why, "--engine flow");
    }
    if engine == Some(Engine::Flow) && load != Load::Traffic {
        let why = "a folded collective uses all queue pairs at once";
        idle.key("network.routing.split", why, PACKETS);
        idle.key("network.routing.chunk", why, PACKETS);
        idle.key("network.flow.points", "only synthetic traffic draws it", "`run` on traffic");
    }
}

/// Names what of the communication library's settings is not obeyed.
fn library(scenario: &ScenarioFile, load: Load, engine: Option<Engine>, idle: &mut Idle) {
    let is_collective = |load: &traffic::pattern::Load| load.pattern == Pattern::Collective;
    if load == Load::Traffic {
        let traffic = scenario.traffic.iter();
        let mut loads =
            traffic.flat_map(|traffic| std::iter::once(&traffic.load).chain(&traffic.background));
        if !loads.any(is_collective) {
            let why = "flows between NICs need no communication library";
            return idle.key("library", why, "traffic.pattern=collective, or a job");
        }
    }
    idle.table("library", |idle| {
        scenario.library.unused(idle);
        if load == Load::Job {
            idle.key("launch", "a step's calls cost `software.collective`", "`collective`");
            idle.key("routing", "the job's model says where tokens go", "`collective`");
        }
        if engine != Some(Engine::Packet) {
            let why = "a folded collective is not cut into pieces";
            idle.key("p2p_scale_up_chunk", why, PACKETS);
            idle.key("aggregation.buffers", why, PACKETS);
            idle.key("aggregation.chunk", why, PACKETS);
        }
    });
}

/// Names figures of the catalogue that nothing looks at: those of hardware that the scenario does
/// not have, and prices, powers and rates that this load does not count. They have no defaults, so
/// they stay as they are.
fn catalogue(scenario: &ScenarioFile, load: Load, idle: &mut Idle) {
    let money = ["power_w", "price_usd"];
    let compute = [
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
    ];
    let catalogue = &scenario.catalogue;
    for name in catalogue.gpu.keys() {
        let path = format!("catalogue.gpu.{name}");
        if *name != scenario.cluster.gpu {
            idle.part_of(&path, "the cluster has other GPUs", "cluster.gpu");
            continue;
        }
        if load != Load::Job {
            for figure in compute {
                idle.part_of(&format!("{path}.{figure}"), "nothing is computed", "`run` on a job");
            }
        }
        if matches!(load, Load::Wire | Load::Collective | Load::Traffic) {
            for figure in money {
                idle.part_of(&format!("{path}.{figure}"), "nothing is paid for", "`run` on a job");
            }
        }
    }
}

/// Names service levels where no lanes tell them apart.
fn levels(scenario: &ScenarioFile, engine: Option<Engine>, idle: &mut Idle) {
    let background = scenario.traffic.iter().flat_map(|traffic| &traffic.background);
    let background = (0..background.count()).map(|at| format!("traffic.background.{at}."));
    for load in std::iter::once("traffic.".to_owned()).chain(background) {
        let key = format!("{load}service_level");
        if engine != Some(Engine::Packet) {
            idle.key(&key, "flows share links alike", "--engine packet with several lanes");
        } else if scenario.network.settings.credits.lanes == 1 {
            idle.key(&key, "data has one lane", "network.credits.lanes above 1");
        }
    }
}

/// Puts settings without effect back to their defaults.
pub(crate) fn take_out(scenario: &ScenarioFile, idle: &Idle) -> ScenarioFile {
    if idle.keys().is_empty() {
        return scenario.clone();
    }
    let mut json = serde_json::to_value(scenario).expect("it came from JSON");
    for key in idle.keys().iter().filter(|key| key.whole) {
        remove(&mut json, "", key);
    }
    serde_json::from_value(json).expect("what is left out has a default")
}

/// Removes what a key covers; what is spared stays with the tables around it.
fn remove(json: &mut Json, path: &str, idle: &IdleKey) {
    let fields: Vec<String> = match json {
        Json::Object(fields) => fields.keys().cloned().collect(),
        Json::Array(items) => (0..items.len()).map(|at| at.to_string()).collect(),
        _ => return,
    };
    for field in fields {
        let inner = join(path, &field);
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

/// What somebody wrote and the purpose does not obey, in the order of the keys.
pub(crate) fn written(tree: &Node, idle: &Idle) -> Vec<Unused> {
    let mut found = Vec::new();
    collect(tree, "", idle, &mut found);
    found
}

fn collect(node: &Node, path: &str, idle: &Idle, found: &mut Vec<Unused>) {
    match &node.value {
        Value::Table(table) => {
            for (key, entry) in table {
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
