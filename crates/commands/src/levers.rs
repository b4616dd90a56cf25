//! The changes that a run makes look worthwhile, the one that could gain most first.
//!
//! Nothing is tried here. Each change has a bound: what the part of the step that it works on
//! takes in this run. A network setting can gain what the fabric costs, hiding an axis can gain
//! what of it is exposed, and so on. [`run`](crate::run_job) names the largest of different kinds,
//! `advise` tries all of them, and [`guesses`], of which no run tells what they could gain.

use fabric::hash::{HashFields, UdpSource};
use fabric::routing::{Policy, QueuePairUse, RoutingConfig};
use fabric::transport::Transport;
use job::config::{Dispatcher, RoutingLimit};
use job::model::{Recompute, Recomputed, Usual};
use job::schedule::Schedule;
use job::{Axis, Job, memory, placement};
use scenario::Loaded;
use traffic::collective::{CrossNic, Pxn};
use traffic::nccl::{Architecture, Usage};
use units::{Bytes, Span};

use crate::change::{Change, Kind};
use crate::run_job::{BreakdownSeconds, Memory, PhaseRow};

/// What a run has shown, as far as changes are named from it.
#[derive(Clone, Copy, Debug)]
pub struct RunFacts<'a> {
    /// Where the step goes.
    pub parts: &'a BreakdownSeconds,
    /// What the fabric costs: the step less the undisturbed one.
    pub fabric_s: f64,
    /// What the fabric made of each phase.
    pub phases: &'a [PhaseRow],
    /// Memory of a GPU of the fullest stage.
    pub memory: &'a Memory,
}

/// A part of the step below this share is not worth a change.
const WORTHWHILE: f64 = 0.002;

/// All changes of settings that could gain something, the largest bound first; those with the same
/// bound in the order in which people would try them.
pub fn levers(loaded: &Loaded, seen: &RunFacts<'_>) -> Vec<Change> {
    let Some(job) = &loaded.job else { return Vec::new() };
    let mut found = Levers { loaded, job, seen, changes: Vec::new() };
    found.paths();
    found.placement();
    found.library();
    found.overlap();
    found.pipeline();
    found.memory();
    found.experts();
    let Levers { mut changes, .. } = found;
    let least = WORTHWHILE * seen.parts.total();
    changes.retain(|change| least <= change.most_s);
    changes.sort_by(|a, b| b.most_s.total_cmp(&a.most_s));
    changes
}

/// Of these, the largest that touch different things.
pub fn different(changes: &[Change], most: usize) -> Vec<&Change> {
    let mut chosen: Vec<&Change> = Vec::new();
    for change in changes {
        let is_like = |other: &&Change| {
            let same_kind = other.kind == change.kind && change.kind != Kind::Layout;
            same_kind || change.keys().any(|key| other.touches(key))
        };
        if chosen.len() < most && !chosen.iter().any(is_like) {
            chosen.push(change);
        }
    }
    chosen
}

struct Levers<'a> {
    loaded: &'a Loaded,
    job: &'a Job,
    seen: &'a RunFacts<'a>,
    changes: Vec<Change>,
}

impl Levers<'_> {
    fn add(&mut self, change: Change, why: impl Into<String>, most_s: f64) {
        self.changes.push(change.because(why, most_s));
    }

    /// How flows find their paths.
    fn paths(&mut self) {
        let routing = &self.loaded.scenario.network.settings.routing;
        let cost = self.seen.fabric_s;
        let Some(worst) = self.slowest_phase() else { return };
        let why = format!(
            "{} {} takes {:.2} times what it takes undisturbed",
            worst.groups_of, worst.collective, worst.slowdown
        );
        for change in path_changes(routing, self.loaded.scenario.network.transport) {
            self.add(change, why.clone(), cost);
        }
    }

    /// The phase on the fabric that costs the step most.
    fn slowest_phase(&self) -> Option<&PhaseRow> {
        let lost = |row: &PhaseRow| (row.cost_s, row.slowest_s - row.alone_s);
        let on_fabric = self.seen.phases.iter().filter(|row| row.on_fabric);
        on_fabric.max_by(|a, b| {
            let ((own, more), (other, much)) = (lost(a), lost(b));
            own.total_cmp(&other).then(more.total_cmp(&much))
        })
    }

    fn placement(&mut self) {
        let config = self.loaded.scenario.job.as_ref().map(|job| &job.placement.policy);
        let Some(config) = config.filter(|policy| **policy != placement::Policy::TopologyAware)
        else {
            return;
        };
        let now: String = config.clone().into();
        let parts = self.seen.parts;
        let why = format!("ranks are placed by `{now}`, whatever they say to each other");
        let set = ["job.placement.policy=topology-aware"];
        let change = Change::new(Kind::Placement, "ranks placed by topology", set);
        self.add(change, why, parts.communication().max(self.seen.fabric_s));
    }

    /// What the communication library can be told.
    fn library(&mut self) {
        let (scenario, parts) = (&self.loaded.scenario, self.seen.parts);
        let reduces = |name: &str| {
            scenario.catalogue.switch.get(name).is_some_and(|switch| switch.reduction.is_some())
        };
        let mut tiers = self.loaded.fabric().tiers().iter();
        if scenario.library.sharp == Usage::Disabled && tiers.all(|tier| reduces(&tier.model)) {
            let set = ["library.sharp=enabled", "library.aggregation.gathers=enabled"];
            let change = Change::new(Kind::Library, "reduction in the switches (SHARP)", set);
            let exposed = span(parts.dp);
            let why = format!("the switches can add up, and {exposed} of gradients are exposed");
            self.add(change, why, parts.dp);
        }
    }

    /// Axes that the software could hide.
    fn overlap(&mut self) {
        let (parts, layout) = (self.seen.parts, &self.job.layout);
        let now = &self.job.parallel.overlap;
        let axes = [
            (Axis::Tp, parts.tp, layout.tp),
            (Axis::Cp, parts.cp, layout.cp),
            (Axis::Ep, parts.ep, layout.ep),
            (Axis::Pp, parts.pp, layout.pp),
            (Axis::Dp, parts.dp, layout.dp),
        ];
        for (axis, exposed, degree) in axes {
            if degree < 2 || now.contains(&axis) {
                continue;
            }
            let mut all: Vec<Axis> = now.iter().copied().chain([axis]).collect();
            all.sort();
            let words: Vec<String> =
                all.iter().map(|axis| format!("\"{}\"", axis.word())).collect();
            let set = [format!("job.parallel.overlap=[{}]", words.join(", "))];
            let name = format!("{} communication behind computation", axis.word().to_uppercase());
            let why = format!("{} of it is exposed, and none is hidden", span(exposed));
            self.add(Change::new(Kind::Layout, name, set), why, exposed);
        }
    }

    /// The order of passes, and how finely they are cut.
    fn pipeline(&mut self) {
        let layout = &self.job.layout;
        let bubble = self.seen.parts.bubble;
        if layout.pp < 2 {
            return;
        }
        let why = format!("stages wait {} for each other", span(bubble));
        let chunks = self.job.model.layers / layout.pp;
        // Interleaving takes microbatches in groups of as many as there are stages.
        let groups = self.job.microbatches.is_multiple_of(layout.pp);
        let divides =
            |vpp: &u64| groups && 1 < *vpp && layout.vpp < *vpp && chunks.is_multiple_of(*vpp);
        // Chunks of unequal numbers of layers would wait for each other instead.
        let is_even = self.job.model.layers.is_multiple_of(layout.pp);
        let free = is_even && self.job.parallel.stage_layers.is_none();
        for vpp in [2, chunks].into_iter().filter(divides).filter(|_| free) {
            let set =
                [format!("job.parallel.vpp={vpp}"), "job.schedule=interleaved-1f1b".to_owned()];
            let name = format!("{vpp} virtual stages");
            self.add(Change::new(Kind::Layout, name, set), why.clone(), bubble);
        }
        // What hides exchanges of experts behind passes in pairs would hide none without pairs.
        let pairs = self.job.parallel.overlap.contains(&Axis::Ep);
        if self.job.schedule != Schedule::ZeroBubble && layout.vpp == 1 && !pairs {
            let set = ["job.schedule=zero-bubble"];
            self.add(Change::new(Kind::Layout, "zero-bubble schedule", set), why, bubble);
        }
    }

    /// What there is memory for.
    fn memory(&mut self) {
        let Memory { capacity_bytes, total_bytes, .. } = *self.seen.memory;
        let free = capacity_bytes.saturating_sub(total_bytes) as f64 / 1e9;
        let why = format!("layers are computed again, and {free:.0} GB of a GPU are free");
        let less = [("none", Usual::None), ("selective", Usual::Selective)];
        for (word, recompute) in less {
            let recompute = Recompute::Usual(recompute).of(&self.job.model);
            let job = Job { recompute, ..self.job.clone() };
            let fits = memory::check(&job, Bytes::new(capacity_bytes)).is_ok();
            if recompute == self.job.recompute || self.job.recompute == Recomputed::NONE || !fits {
                continue;
            }
            let set = [format!("job.recompute={word}")];
            let change = Change::new(Kind::Layout, format!("recompute {word}"), set)
                .risking("less memory is left");
            // The pass forward is at most one of four, with two of the backward pass.
            self.add(change, why.clone(), 0.25 * self.seen.parts.compute);
        }
    }

    /// How tokens find their experts.
    fn experts(&mut self) {
        let Some(experts) = self.job.model.experts.filter(|_| 1 < self.job.layout.ep) else {
            return;
        };
        let ep = self.seen.parts.ep;
        let why = format!("{} of the expert exchange is exposed", span(ep));
        if self.job.dispatcher != Dispatcher::DeepEp {
            let set = ["job.moe.dispatcher=deepep"];
            self.add(Change::new(Kind::Layout, "DeepEP dispatch", set), why.clone(), ep);
        }
        let per_node = self.loaded.fabric().gpus_per_node() as u64;
        let nodes = (self.job.layout.ep * self.job.layout.etp).div_ceil(per_node.max(1));
        let limited = experts.group_limit < experts.groups;
        let is_free = matches!(self.job.moe.limit, RoutingLimit::Model | RoutingLimit::None);
        let limit = nodes.div_ceil(2).min(4);
        if is_free && !limited && limit < nodes {
            let set = [
                format!("job.moe.limit={{ nodes = {limit} }}"),
                "job.moe.dispatcher=deepep".to_owned(),
            ];
            let name = format!("tokens to at most {limit} servers");
            let change = Change::new(Kind::Model, name, set)
                .risking("changes the model: another router is trained");
            self.add(change, why.clone(), ep);
        }
        // DeepSeek-V2 sends a token to 3 devices for 6 experts.
        let devices = experts.top_k.div_ceil(2).max(2);
        if is_free && !limited && devices < experts.top_k && devices < self.job.layout.ep {
            let set = [
                format!("job.moe.limit={{ devices = {devices} }}"),
                "job.moe.dispatcher=deepep".to_owned(),
            ];
            let name = format!("tokens to at most {devices} GPUs");
            let change = Change::new(Kind::Model, name, set)
                .risking("changes the model: another router is trained");
            self.add(change, why, ep);
        }
    }
}

/// The ways to spread flows that a fabric of this transport does not have yet.
pub fn path_changes(routing: &RoutingConfig, transport: Transport) -> Vec<Change> {
    let network = |name: String, set: Vec<String>| Change::new(Kind::Network, name, set);
    let RoutingConfig { policy, hash, qps, udp_source, .. } = routing;
    let mut changes = Vec::new();
    if transport == Transport::Infiniband {
        if *policy != Policy::InfinibandAdaptive {
            let set = vec!["network.routing.policy=infiniband-adaptive".to_owned()];
            changes.push(network("adaptive routing".to_owned(), set));
        }
        return changes;
    }
    if matches!(policy, Policy::Adaptive | Policy::Spray | Policy::Reps) {
        return changes;
    }
    let sees_pairs = *policy == Policy::EEcmp
        || hash.sees_queue_pairs()
        || (*hash == HashFields::FiveTuple && *udp_source == UdpSource::Linux);
    let udf = "network.routing.hash=5-tuple+qpn".to_owned();
    for pairs in [16, 4, 32].into_iter().filter(|pairs| qps < pairs) {
        let set = format!("network.routing.qps={pairs}");
        let risk = "queue pairs take memory of the NIC; messages are cut and posted as often";
        let change = match sees_pairs {
            true => network(format!("{pairs} queue pairs"), vec![set]),
            false => network(
                format!("{pairs} queue pairs, their number hashed (UDF)"),
                vec![set, udf.clone()],
            ),
        };
        changes.push(change.risking(risk));
    }
    if !sees_pairs && 1 < *qps {
        let name = "the queue pair number hashed (UDF)".to_owned();
        changes.push(network(name, vec![udf]));
    }
    let policies = [
        (Policy::Adaptive, "adaptive routing", "reorders packets: NICs must place them directly"),
        (Policy::TrafficEngineering, "paths by a controller", "the controller must know the job"),
        (Policy::PathPinning, "pinned paths", "a partly filled rack leaves uplinks idle"),
        (
            Policy::Flowlet,
            "flowlets by load",
            "reorders where pauses are shorter than paths differ",
        ),
    ];
    for (other, name, risk) in policies.into_iter().filter(|(other, ..)| other != policy) {
        let mut set = vec![format!("network.routing.policy={}", other.name())];
        if other == Policy::Flowlet {
            set.push("network.routing.flowlets=least-queue".to_owned());
        }
        changes.push(network(name.to_owned(), set).risking(risk));
    }
    changes
}

/// Settings of the library that may help or harm; what they could gain, no run tells.
pub fn guesses(loaded: &Loaded) -> Vec<Change> {
    let scenario = &loaded.scenario;
    let library = &scenario.library;
    let of = |name: String, set: String| Change::new(Kind::Library, name, [set]);
    let mut changes = Vec::new();
    let gpu = scenario.catalogue.gpu.get(&scenario.cluster.gpu);
    let architecture = gpu.and_then(|gpu| Architecture::of_scale_up(&gpu.scale_up_name));
    let has_nvls = matches!(architecture, Some(Architecture::Hopper | Architecture::Blackwell));
    if has_nvls && !loaded.is_given("library.nvls") {
        let risk = "takes memory and SMs from computation, which is not simulated";
        changes.push(of("NVLS".to_owned(), "library.nvls=enabled".to_owned()).risking(risk));
    }
    for algorithm in ["ring", "tree"] {
        if library.algorithm.as_deref() != Some(algorithm) {
            let set = format!("library.algorithm={algorithm}");
            changes.push(of(format!("algorithm {algorithm}"), set));
        }
    }
    for channels in [16, 32, 8].into_iter().filter(|number| library.channels != Some(*number)) {
        let set = format!("library.channels={channels}");
        let change = of(format!("{channels} channels"), set);
        changes.push(change.risking("each channel takes an SM from computation"));
    }
    if library.buffer < Bytes::from_mib(16) {
        let change = of("buffers of 16 MiB".to_owned(), "library.buffer=16MiB".to_owned());
        changes.push(change.risking("more memory for each channel and peer"));
    }
    if library.p2p_net_chunk < Bytes::from_kib(512) {
        let set = "library.p2p_net_chunk=512KiB".to_owned();
        changes.push(of("sends in pieces of 512 KiB".to_owned(), set));
    }
    if library.cross_nic == CrossNic::SameRail {
        let set = "library.cross_nic=crossing".to_owned();
        changes.push(of("rings that change rails".to_owned(), set));
    }
    if library.pxn == Pxn::Disabled {
        changes.push(of("PXN".to_owned(), "library.pxn=enabled".to_owned()));
    }
    let routing = &scenario.network.settings.routing;
    if 1 < routing.qps && routing.split == QueuePairUse::RoundRobin {
        let set = "network.routing.split=split".to_owned();
        changes.push(of("messages split over queue pairs".to_owned(), set));
    }
    changes
}

fn span(seconds: f64) -> String {
    format!("{:.3}", Span::from_secs_f64(seconds))
}
