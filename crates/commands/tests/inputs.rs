//! Every input is obeyed, refused or named: the whole schema, setting by setting.
//!
//! For each leaf of the schema other valid values are tried, on every engine, for a job, a
//! collective and synthetic traffic. Then the answer changes, or the key is named as unused, or the
//! run is refused. Some settings decide nothing until something else is set; `CONTEXTS` sets it.
//! `EXCEPTIONS` lists the settings that may change nothing and be named by nobody, with the reason.
//!
//! `FATFLOW_INPUTS=network.ecn` tries the keys that begin so, and fails with what became of each;
//! `FATFLOW_INPUTS_IN=network.transport=uec` tries all where that is set (`tools/inputs.sh`).

#[path = "inputs/leaves.rs"]
mod leaves;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use commands::packets::Patience;
use commands::seeds::Repeat;
use commands::{Engine, campaign, collective, run_job, run_traffic, topo};
use leaves::{Leaf, leaves};
use scenario::{Loaded, Purpose, Request, load};
use serde_json::Value as Json;
use units::Bytes;

/// What is asked of a scenario.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Question {
    Job,
    Collective,
    Traffic,
    Topology,
    Domains,
    Campaign,
}

use Question::{Campaign, Collective, Domains, Job, Topology, Traffic};

impl Question {
    fn file(self) -> &'static str {
        match self {
            Traffic => "tests/inputs/traffic.toml",
            _ => "tests/inputs/job.toml",
        }
    }

    fn purpose(self, engine: Engine) -> Purpose {
        match self {
            Job | Traffic => Purpose::Run(engine),
            Collective => Purpose::Collective(engine, traffic::Collective::AllReduce),
            Topology => Purpose::Topology,
            Domains => Purpose::Domains,
            Campaign => Purpose::Campaign(engine),
        }
    }

    /// The scenario for a purpose, with what is set besides.
    fn load(self, purpose: Purpose, set: &[String]) -> Result<Loaded, String> {
        let scenario = Some(self.file().to_owned());
        let around = std::env::var("FATFLOW_INPUTS_IN").ok().filter(|text| !text.is_empty());
        let set = around.into_iter().chain(set.iter().cloned()).collect();
        let request = Request { scenario, set, purpose, ..Request::default() };
        load(&request).map_err(|problems| problems.to_string())
    }

    /// What comes out, without what differs from run to run.
    fn answer(self, loaded: &Loaded, engine: Engine) -> Result<Json, String> {
        let mut watch = packetsim::Watch::default();
        let patience = Patience::Usual;
        let report = match self {
            Job => run_job::run(loaded, engine, patience, &mut watch)
                .map(|report| serde_json::to_value(report).unwrap()),
            Collective => {
                // Packets cost by bytes; the others need many to be bound by links.
                let factor = if engine == Engine::Packet { 64 } else { 4096 };
                let min = Bytes::from_kib(64);
                let max = Bytes::new(min.get() * factor);
                let sizes = collective::Sizes { min, max, factor };
                let collective = traffic::Collective::AllReduce;
                let gpus = None;
                let options = collective::Options {
                    engine,
                    patience,
                    collective,
                    sizes,
                    gpus,
                    iterations: 1,
                };
                collective::run(loaded, &options, &mut watch)
                    .map(|report| serde_json::to_value(report).unwrap())
            }
            Traffic => {
                let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
                run_traffic::run(loaded, &options, &mut watch)
                    .map(|(report, _, _)| serde_json::to_value(report).unwrap())
            }
            Topology => Ok(serde_json::to_value(topo::run(loaded)).unwrap()),
            Domains => {
                topo::with_domains(loaded, None).map(|report| serde_json::to_value(report).unwrap())
            }
            Campaign => run_job::run(loaded, engine, patience, &mut watch).and_then(|report| {
                let repeat = Repeat { threads: Some(1), ..Repeat::ONCE };
                let options = campaign::Options { days: 30, engine, patience, repeat };
                let played = campaign::play(loaded, &report, &options, &mut watch)?;
                Ok(serde_json::to_value(played).unwrap())
            }),
        };
        let mut report = report.map_err(|failure| failure.to_string())?;
        for key in ["wall_s", "cpu_s", "peak_rss_bytes"] {
            report.as_object_mut().map(|fields| fields.remove(key));
        }
        // Commands repeat what was set.
        for lever in report["verdict"]["levers"].as_array_mut().into_iter().flatten() {
            lever.as_object_mut().map(|fields| fields.remove("command"));
        }
        Ok(report)
    }
}

/// Settings that decide something only where others are set: the keys, by how they begin, for
/// which question (all if empty), and what is set.
const CONTEXTS: &[(&str, &[Question], &[&str])] = &[
    ("cluster.front_end", &[], &["cluster.front_end.nics=64"]),
    ("cluster.storage", &[Job, Collective, Topology], STORAGE),
    ("cluster.storage", &[Traffic], DATA),
    ("traffic.stripes", &[Traffic], DATA),
    ("reliability.checkpoint.bytes_per_parameter", &[Traffic], SMALL_CHECKPOINT),
    ("cluster.aggregation", &[], &["cluster.ports_per_nic=2"]),
    ("fabric.sites", &[], &["fabric.sites.count=2", "fabric.tiers=3", "fabric.radix=16"]),
    ("fabric.links", &[], &["fabric.links=[{length=\"3m\"},{length=\"10m\"}]"]),
    ("fabric.degraded", &[], &["fabric.degraded=[{link=\"spine 0\",rate=\"100Gbps\"}]"]),
    ("catalogue.nic.connectx-7.reorder", &[Job, Collective, Traffic], &[SPRAY]),
    ("faults", &[Traffic], &[FAULT]),
    ("network.routing.detection", &[Traffic], &[FAULT]),
    ("network.routing.recomputation", &[Traffic], &[FAULT, "network.routing.detection=0s"]),
    ("network.switch.link_retry", &[Traffic], &["network.loss=0.01"]),
    ("network.nic.retries", &[Traffic], &["network.loss=0.1"]),
    ("network.nic.retries", &[Job, Collective], &["network.loss=0.01"]),
    ("network.nic.timeout", &[Traffic], &["network.loss=0.1"]),
    ("network.nic.timeout", &[Job, Collective], &["network.loss=0.01"]),
    ("network.routing.demand", &[Traffic], &[ENGINEERED]),
    ("network.routing.staleness", &[Traffic], &[ENGINEERED, "network.routing.demand=measured"]),
    ("network.nic.reorder", &[Job, Collective, Traffic], &[SPRAY]),
    ("network.nic.qp_contexts", &[Job, Collective, Traffic], &[LONG_MISSES]),
    ("network.nic.qp_miss", &[Job, Collective, Traffic], &[FEW_CONTEXTS, SMALL_PACKETS]),
    ("network.nic.qp_fetch", &[Job, Collective, Traffic], &[FEW_CONTEXTS]),
    ("catalogue.nic.connectx-7.qp_contexts", &[Job, Collective, Traffic], &[LONG_MISSES]),
    (
        "catalogue.nic.connectx-7.qp_miss_ns",
        &[Job, Collective, Traffic],
        &[FEW_CONTEXTS, SMALL_PACKETS],
    ),
    ("network.nic.receive_buffer", &[Traffic], &["network.nic.pcie=50Gbps"]),
    ("network.nic.after_idle", &[Job, Collective, Traffic], &["network.nic.idle_reset=0s"]),
    ("network.nic.cores", &[Job, Collective, Traffic], &["network.transport=tcp"]),
    ("network.admission", &[Traffic], &[ADMISSION, "network.admission.buffer=16KiB"]),
    ("network.packet.headers.grant", &[Traffic], &[ADMISSION]),
    ("network.switch.grants", &[Traffic], &[ADMISSION]),
    ("network.switch.overflow", &[Job, Collective, Traffic], &["network.pfc.enabled=false"]),
    ("network.buffer.alpha_lossy", &[Job, Collective, Traffic], &["network.pfc.enabled=false"]),
    ("network.scheduled", &[Job, Collective, Traffic], SCHEDULED),
    ("network.pfc.action", &[Job, Collective, Traffic], &["network.pfc.watchdog=1us"]),
    ("job.parallel.stage_split", &[Job], &["job.model.vocab=262144"]),
    ("job.moe.limit", &[Job], &["job.moe.dispatcher=deepep"]),
    ("job.placement", &[Job], &["cluster.gpus=32"]),
    ("jitter.events", &[Job], &["jitter.events.per_rank_per_s=1.0"]),
    ("job", &[Domains], &["cluster.gpus=32"]),
    ("reliability", &[Campaign], &[MANY_FAILURES, "reliability.spare_nodes=1"]),
    ("reliability.data_parallel", &[Campaign], &[MANY_FAILURES, "job.parallel.ep=1"]),
    (
        "reliability.stall",
        &[Campaign],
        &[MANY_FAILURES, "job.parallel.ep=1", "reliability.data_parallel=elastic"],
    ),
    (
        "library.aggregation",
        &[Job, Collective],
        &[
            "library.sharp=enabled",
            "library.algorithm=sharp",
            "fabric.uplinks=[4]",
            "fabric.leaf.reduces=true",
            "fabric.spine.reduces=true",
        ],
    ),
    ("library.all_to_all_share", &[Job], &["cluster.gpus_per_node=2", "cluster.nics_per_node=2"]),
    ("library.deepep_efficiency", &[Job], &["job.moe.dispatcher=deepep"]),
    ("library.buffer", &[Job, Collective], &["library.protocol=simple"]),
    ("library.nvls", &[Collective], EIGHT),
    ("library.nvls_chunk", &[Collective], EIGHT),
    ("library.nvls_tree_chunk", &[Collective], EIGHT),
    ("library.nvls_network_share", &[Collective], EIGHT),
    ("library.version", &[Collective], EIGHT),
    ("library.symmetric", &[Collective], &["cluster.gpus_per_node=16", "cluster.nics_per_node=16"]),
    ("software.tensor_exposed", &[Job], &["job.parallel.overlap=[\"tp\",\"dp\"]"]),
    ("traffic.smallest", &[Traffic], &["traffic.pattern=random", "traffic.count=16"]),
    ("traffic.count", &[Traffic], &["traffic.pattern=random", "traffic.count=16"]),
    ("traffic.collective", &[Traffic], &["traffic.pattern=collective"]),
    ("traffic.gpus", &[Traffic], &["traffic.pattern=collective"]),
    ("traffic.groups", &[Traffic], &["traffic.pattern=collective"]),
    ("traffic.placement", &[Traffic], &["traffic.pattern=collective"]),
    ("traffic.service_level", &[Traffic], &["network.credits.lanes=2"]),
    ("traffic.model", &[Traffic], KEYS_AND_VALUES),
    ("traffic.precision", &[Traffic], KEYS_AND_VALUES),
    ("traffic.tokens", &[Traffic], KEYS_AND_VALUES),
    ("traffic.senders", &[Traffic], KEYS_AND_VALUES),
    ("traffic.copy", &[Traffic], KEYS_AND_VALUES),
    ("traffic.interval", &[Traffic], KEYS_AND_VALUES),
];

const MANY_FAILURES: &str = "reliability.scale=10000.0";
const KEYS_AND_VALUES: &[&str] =
    &["traffic.pattern=kv-transfer", "traffic.count=4", "traffic.tokens=1", "traffic.copy=2"];
const STORAGE: &[&str] = &["cluster.storage.servers=2", "cluster.front_end.nics=1"];
const DATA: &[&str] =
    &["cluster.storage.servers=2", "cluster.front_end.nics=1", "traffic.pattern=dataset-read"];
const SMALL_CHECKPOINT: &[&str] = &[
    "cluster.storage.servers=2",
    "cluster.front_end.nics=1",
    "traffic.pattern=checkpoint",
    "reliability.checkpoint.bytes_per_parameter=1e-5",
];
const EIGHT: &[&str] = &["cluster.gpus_per_node=8", "cluster.nics_per_node=8"];
const LONG_MISSES: &str = "network.nic.qp_miss=1us";
const FEW_CONTEXTS: &str = "network.nic.qp_contexts=1";
const SMALL_PACKETS: &str = "network.packet.mtu=256B";
const ENGINEERED: &str = "network.routing.policy=traffic-engineering";
const SCHEDULED: &[&str] = &["network.transport=scheduled-ethernet", SPRAY];
const SPRAY: &str = "network.routing.policy=spray";
const ADMISSION: &str = "network.admission.policy=receiver-driven";
const FAULT: &str =
    "faults=[{at=\"5us\",for=\"200us\",on=\"leaf 0 - spine 0\",what={kind=\"link-down\"}}]";

/// Settings that may change nothing and be named by nobody: the keys, by how they begin or end, for
/// which question (all if empty), and why.
const EXCEPTIONS: &[(&str, &[Question], &str)] = &[
    ("name", &[], "words for people"),
    ("description", &[], "words for people"),
    ("network.packet.forward", &[], "what is computed comes out as if it had been simulated"),
    ("network.packet.threads", &[], "results are the same at any number of threads"),
    ("from", &[], "what it starts from is in the other settings"),
    ("reported", &[], "published figures, shown by `compare` alone"),
    ("targets", &[Campaign], "met or missed by the step beside the days"),
    (".source", &[], "words for people"),
    (".trust", &[], "words for people"),
    (".low", &[], "the ends of a published range, for intervals"),
    (".high", &[], "the ends of a published range, for intervals"),
    (".title", &[], "words for people"),
    (".name", &[], "words for people"),
    (".transports", &[], "what a card speaks decides a warning alone"),
    ("cluster.nodes", &[], "says the same as `cluster.gpus`, or is refused"),
    ("cluster.aggregation", &[Topology], "as many cables and switches either way"),
    ("cluster.ports_per_nic", &[Collective], "closed forms count a NIC's rate, not its ports"),
    ("fabric.downlinks", &[Collective], "closed forms count the longest routes alone"),
    ("fabric.tiers", &[Collective, Traffic], "a tier more that these servers do not cross"),
    ("network.flow.precision", &[Job, Collective], "so few rates settle at once"),
    ("catalogue.gpu.h100-sxm.flash2_share", &[Job], "this GPU runs FlashAttention-3"),
    ("catalogue.gpu.h100-sxm.speed.bf16_large", &[Job], "this job's products are short"),
    ("catalogue.gpu.h100-sxm.speed.bf16_narrow", &[Job], "this job's products are short"),
    ("network.scheduled.cell", &[Traffic], "its flows are bound by the links of NICs"),
    ("network.scheduled.cell_header", &[Traffic], "its flows are bound by the links of NICs"),
    ("network.flow.merge", &[Job], "no two of its few ends lie so close"),
    ("cluster.gpus", &[Job], "GPUs beside the job's own change no closed form"),
    ("cluster.scale_up.delay", &[Job], "messages inside a server are never the last ones"),
    ("job.placement.policy", &[Domains], "a server to a leaf: as many parts stop it anywhere"),
    ("job.placement.policy", &[Job], "closed forms of groups that cross servers either way"),
    ("library.aggregation.trees_per_port", &[], "one tree to a port is all that NCCL asks for"),
    ("library.p2p_scale_up_chunk", &[Job], "its messages are smaller than a chunk"),
    ("library.nvls", &[Job], "jobs leave it off unless it is given, as off"),
    ("library.nvls_chunk", &[Job], "jobs leave NVLS off unless it is given"),
    ("library.nvls_tree_chunk", &[Job], "jobs leave NVLS off unless it is given"),
    ("library.nvls_network_share", &[Job], "jobs leave NVLS off unless it is given"),
    ("catalogue.gpu.h100-sxm.scale_up_name", &[Collective], "its NICs bound both generations"),
    ("network.congestion.big_step", &[Job, Collective], "no rate is left alone for so long"),
    ("library.plugin", &[Job], "its messages are smaller than a chunk, and run with LL anyway"),
    ("library.aggregation.gathers", &[Job], "its groups gather inside servers"),
];

/// Keys that are named for the part of their value that has no effect.
const PARTLY: [&str; 5] = [
    "fabric.failed",
    "fabric.degraded",
    "fabric.oversubscription",
    "job.parallel.overlap",
    "cluster.storage",
];

fn is_excepted(path: &str, question: Question) -> bool {
    EXCEPTIONS.iter().any(|(key, on, _)| {
        let asked = on.is_empty() || on.contains(&question);
        let is_key = match key.strip_prefix('.') {
            Some(_) => path.ends_with(key),
            None => path == *key || path.starts_with(&format!("{key}.")),
        };
        asked && is_key
    })
}

/// What became of a setting that was changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Obeyed,
    Named,
    Refused,
    /// The answer stayed the same, and nobody said why.
    Silent,
    /// The answer changed although the key was named as unused.
    Contradicted,
    /// There was none.
    Panicked,
}

/// Tries the other values of a leaf until one shows that somebody cares.
fn fate(question: Question, engine: Engine, set: &[String], before: &Json, leaf: &Leaf) -> Fate {
    let mut fate = Fate::Refused;
    for other in &leaf.others {
        let set = [set, std::slice::from_ref(other)].concat();
        let Ok(loaded) = question.load(question.purpose(engine), &set) else { continue };
        let is_named = loaded.unused.iter().any(|unused| unused.key.starts_with(&leaf.path));
        // What runs until another value stops it is obeyed.
        let Ok(after) = question.answer(&loaded, engine) else { return Fate::Refused };
        match (is_named, after == *before) {
            (true, true) => return Fate::Named,
            (true, false) if PARTLY.iter().any(|key| leaf.path.starts_with(key)) => {
                return Fate::Obeyed;
            }
            (true, false) => return Fate::Contradicted,
            (false, false) => return Fate::Obeyed,
            (false, true) => fate = Fate::Silent,
        }
    }
    fate
}

/// The settings of a scenario that are changed one by one, each with what is set beside it.
fn tried(question: Question, engine: Engine, only: &str) -> Vec<(Vec<String>, Json, Vec<Leaf>)> {
    let asked = |questions: &[Question]| questions.is_empty() || questions.contains(&question);
    let begins = |path: &str, key: &str| path == key || path.starts_with(&format!("{key}."));
    let contexts: Vec<_> = CONTEXTS.iter().filter(|(_, on, _)| asked(on)).collect();
    let base = ("", &[][..], &[][..]);
    let mut groups = Vec::new();
    for (key, _, set) in std::iter::once(&base).chain(contexts.iter().copied()) {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let mut all = match question.load(Purpose::Settings, &set) {
            Ok(written) => leaves(&written.scenario),
            // A context need not fit every world that the script puts around it.
            Err(_) if std::env::var("FATFLOW_INPUTS_IN").is_ok() => continue,
            Err(why) => panic!("{key}: {why}"),
        };
        all.retain(|leaf| {
            let own = contexts.iter().filter(|(key, _, _)| begins(&leaf.path, key));
            let own = own.map(|(key, _, _)| *key).max_by_key(|key| key.len()).unwrap_or("");
            own == *key && leaf.path.starts_with(only) && !is_excepted(&leaf.path, question)
        });
        if all.is_empty() {
            continue;
        }
        let loaded = question.load(question.purpose(engine), &set).unwrap();
        let before = question.answer(&loaded, engine);
        let before =
            before.unwrap_or_else(|why| panic!("{key}, {question:?} on {engine:?}: {why}"));
        groups.push((set, before, all));
    }
    groups
}

#[test]
fn every_setting_is_obeyed_refused_or_named() {
    let only = std::env::var("FATFLOW_INPUTS");
    let mut work = Vec::new();
    for question in [Job, Collective, Traffic, Topology, Domains, Campaign] {
        let is_one = matches!(question, Topology | Domains | Campaign);
        let engines = if is_one { &Engine::ALL[..1] } else { &Engine::ALL[..] };
        for engine in engines {
            let only = only.as_deref().unwrap_or("");
            // The step of a campaign is a job's, which is tried as such.
            let only = match question {
                Campaign if "reliability".starts_with(only) => "reliability",
                Campaign if !only.starts_with("reliability") => continue,
                _ => only,
            };
            for (set, before, leaves) in tried(question, *engine, only) {
                let before = std::sync::Arc::new(before);
                for leaf in leaves {
                    work.push((question, *engine, set.clone(), before.clone(), leaf));
                }
            }
        }
    }
    let (next, fates) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((question, engine, set, before, leaf)) =
                    work.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let ask = || fate(*question, *engine, set, before, leaf);
                    let fate = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask));
                    let fate = fate.unwrap_or(Fate::Panicked);
                    let at = (leaf.path.clone(), *question, engine.name());
                    fates.lock().unwrap().insert(at, (fate, leaf.others.is_empty()));
                }
            });
        }
    });
    let fates = fates.into_inner().unwrap();
    let mut wrong = Vec::new();
    for ((path, question, engine), (fate, is_untried)) in &fates {
        let line = format!("{path}, {question:?} on {engine}: {fate:?}");
        if only.is_ok()
            || matches!(fate, Fate::Silent | Fate::Contradicted | Fate::Panicked)
            || *is_untried
        {
            wrong.push(line);
        }
    }
    assert!(only.is_ok() || 2500 < fates.len(), "only {} were tried", fates.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), fates.len(), wrong.join("\n"));
}
