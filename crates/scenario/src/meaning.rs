//! Whether a scenario whose every value is well-formed also makes sense as a whole.
//!
//! Each crate knows what its own settings require of each other and of their surroundings, and
//! says so with the paths of the keys concerned; here those answers are collected.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabric::fault::Faults;
use fabric::graph::{NetworkKind, Tier};
use fabric::hardware::{Buffering, Switch};
use fabric::routing::Policy as RoutingPolicy;
use fabric::summary;
use fabric::topology::circuits::Setting;
use fabric::topology::{self, ConfigError, FabricConfig, GENERIC_SWITCH, TopologyKind};
use fabric::transport::Transport;
use fabric::{Fabric, LinkId, NodeKind};
use job::memory::Overfull;
use job::model::{Recompute, Usual};
use job::parallel::Sharding;
use job::placement::Policy;
use job::{Job, JobConfig, Model, Site};
use step::jitter::Straggler;
use traffic::nccl::Usage;
use traffic::pattern::{self, Load};
use units::{Bytes, OutOfRange, Ranges, Rate};

use crate::fabrics::Fabrics;
use crate::file::ScenarioFile;
use crate::import::{self, Hints, ImportError};
use crate::model;
use crate::nearest::nearest;
use crate::surroundings;

/// Something that does not fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The keys concerned, the likeliest culprit first.
    pub keys: Vec<String>,
    /// Other keys that decide it: if one of them is known to be wrong, this says nothing new.
    pub depends_on: Vec<String>,
    /// What does not fit, in one sentence without a full stop.
    pub message: String,
    /// What would.
    pub help: Option<String>,
}

impl From<OutOfRange> for Finding {
    fn from(OutOfRange { keys, message }: OutOfRange) -> Self {
        Self { keys, depends_on: Vec::new(), message, help: None }
    }
}

/// What a scenario comes to.
#[derive(Debug, Default)]
pub struct Meaning {
    /// The fabric, if it could be built.
    pub fabric: Option<Arc<Fabric>>,
    /// The job, if there is one and it fits.
    pub job: Option<Job>,
    /// The faults at given times.
    pub faults: Faults,
    /// What does not fit together.
    pub findings: Vec<Finding>,
    /// What does, but is unwise.
    pub warnings: Vec<Finding>,
}

impl Meaning {
    /// Holds everything that was written against its range, builds the fabric from what counts of
    /// it and checks the job. `directory` names the folder to which the path in a key is relative.
    pub fn of(
        written: &ScenarioFile,
        scenario: &ScenarioFile,
        directory: impl Fn(&str) -> PathBuf,
        fabrics: &Fabrics,
    ) -> Self {
        let mut meaning = Self { findings: check_reported(written), ..Self::default() };
        meaning.findings.extend(Ranges::of("", written).into_iter().map(Finding::from));
        let is_out_of_range = |section: &str| {
            let keys = meaning.findings.iter().flat_map(|finding| &finding.keys);
            keys.into_iter().any(|key| key.starts_with(section))
        };
        if ["cluster.", "fabric.", "catalogue.", "racks."].into_iter().any(is_out_of_range) {
            return meaning;
        }
        match with_file(scenario, &directory) {
            Ok((fabric, assumed)) => {
                meaning.warnings.extend(assumed);
                let fabric = with_racks(scenario, fabric, fabrics);
                match fabrics.get(&scenario.cluster, &fabric, &scenario.catalogue) {
                    Ok(fabric) => {
                        let fabric = with_schedule(scenario, fabric);
                        meaning.add_faults(&fabric, scenario);
                        meaning.add_traffic(&fabric, scenario);
                        meaning.check_reduction(&fabric, scenario);
                        meaning.check_reach(&fabric, scenario);
                        meaning.check_schedule(scenario);
                        meaning.warn_of_deadlock(&fabric, scenario);
                        meaning.warn_of_idle_ports(&fabric, scenario);
                        let by_tier = &written.network.transport_of_tier;
                        meaning.warn_of_misfits(&fabric, scenario, by_tier);
                        meaning.fabric = Some(fabric);
                    }
                    Err(errors) => meaning.findings.extend(errors.into_iter().map(of_fabric)),
                }
            }
            Err(finding) => meaning.findings.push(finding),
        }
        if let (Some(job), Some(site)) = (&scenario.job, site(scenario, meaning.fabric.as_deref()))
        {
            meaning.add_job(job, &site, directory("job.model"));
            let placed = check_placement(job, &directory("job.placement.policy"));
            meaning.findings.extend(placed);
        }
        if scenario.job.is_some() && !scenario.jobs.is_empty() {
            let message = "a scenario has a `job` or `jobs`, not both".to_owned();
            let help = "write the job as one of `[[jobs]]`";
            meaning.findings.push(finding(&["jobs", "job"], message, Some(help)));
        }
        meaning.refuse_stragglers_nowhere(scenario);
        let gpu = scenario.catalogue.gpu.get(&scenario.cluster.gpu);
        if let (Some(job), Some(gpu)) = (&meaning.job, gpu) {
            let capacity = Bytes::new((gpu.memory_gb.value * 1e9) as u64);
            if let Err(full) = job::memory::check(job, capacity) {
                let config = scenario.job.as_ref().zip(site(scenario, meaning.fabric.as_deref()));
                let fits =
                    config.and_then(|(config, site)| fitting(config, &job.model, &site, capacity));
                let mut full = of_memory(full);
                full.help = fits.or(full.help);
                meaning.findings.push(full);
            }
        }
        meaning
    }

    /// RoCEv1 stays inside one layer-2 domain, and every leaf is one; and it has nothing to mark.
    fn check_reach(&mut self, fabric: &Fabric, scenario: &ScenarioFile) {
        let network = &scenario.network;
        if network.transport.is_routable() {
            return;
        }
        let name = network.transport.name();
        let links = fabric.links();
        let leaves = (0..fabric.nics()).flat_map(|nic| fabric.ports(fabric.nic(nic)));
        let leads_on = |port: &LinkId| fabric.nodes()[links[*port].to].kind == NodeKind::Switch;
        let out = |leaf: &LinkId| fabric.ports(links[*leaf].to).iter().copied().find(leads_on);
        if let Some(link) = leaves.filter_map(out).next() {
            let [from, to] = [links[link].from, links[link].to].map(|node| fabric.name(node));
            let message = format!(
                "{name} has no IP header and stays inside one layer-2 domain, but {from} and {to} \
                 are routers"
            );
            let help = "transport = \"rocev2\", or one tier of switches (fabric.tiers = 1)";
            self.findings.push(finding(&["network.transport"], message, Some(help)));
        }
        if network.settings.ecn.enabled {
            let message = format!("{name} has no IP header that a switch could mark");
            let help = Some("transport = \"rocev2\"");
            self.findings.push(finding(&["network.ecn.enabled"], message, help));
        }
    }

    /// Credit is asked for across the whole fabric: no part of it can be scheduled alone.
    fn check_schedule(&mut self, scenario: &ScenarioFile) {
        let network = &scenario.network;
        let scheduled = network.settings.scheduled.enabled;
        let other =
            |(_, own): &(&String, &Transport)| (**own == Transport::ScheduledEthernet) != scheduled;
        if let Some((tier, own)) = network.transport_of_tier.iter().find(other) {
            let key = format!("network.transport_of_tier.{tier}");
            let message = format!(
                "a fabric is scheduled from leaf to leaf: {} is not a part of {}",
                own.name(),
                network.transport.name()
            );
            let help = "one transport for all tiers, or rocev2 in the other part too";
            self.findings.push(finding(&[&key, "network.transport"], message, Some(help)));
        }
    }

    fn add_faults(&mut self, fabric: &Fabric, scenario: &ScenarioFile) {
        match Faults::new(fabric, &scenario.faults, "faults") {
            Ok(faults) => self.faults = faults,
            Err(errors) => self.findings.extend(errors.into_iter().map(of_fabric)),
        }
    }

    /// A slow GPU is in a stage of the pipeline.
    fn refuse_stragglers_nowhere(&mut self, scenario: &ScenarioFile) {
        let Some(job) = &self.job else { return };
        let stages = job.layout.pp;
        for (at, straggler) in scenario.stragglers.iter().enumerate() {
            if let Straggler::Gpu { stage, .. } = straggler
                && stages <= u64::from(*stage)
            {
                let key = format!("stragglers.{at}.gpu.stage");
                let message = format!("`{key}` is {stage}, but the pipeline has {stages} stages");
                self.findings.push(finding(&[&key], message, Some("stages count from 0")));
            }
        }
    }

    /// Reduction in the switches needs switches that can.
    fn check_reduction(&mut self, fabric: &Fabric, scenario: &ScenarioFile) {
        if scenario.library.sharp == Usage::Disabled {
            return;
        }
        for (key, tier, said) in back_end_tiers(fabric, &scenario.fabric) {
            let listed = scenario.catalogue.switch.get(&tier.model);
            let is_able = listed.is_some_and(|switch| switch.reduction.is_some());
            let Tier { name, model, .. } = tier;
            match said {
                Some(true) if !is_able => self.warnings.push(finding(
                    &[&key],
                    format!(
                        "`{key}` says that {name} switches (`{model}`) reduce; the catalogue \
                             does not"
                    ),
                    None,
                )),
                Some(true) => {}
                None if is_able => {}
                _ => self.findings.push(finding(
                    &["library.sharp", &key],
                    format!("`library.sharp`: the {name} switches (`{model}`) cannot reduce"),
                    Some(&format!("try a box that can, such as \"quantum-2\", or `{key} = true`")),
                )),
            }
        }
    }

    /// Rings of routers and a network that loses nothing can wait for each other in a circle.
    fn warn_of_deadlock(&mut self, fabric: &Fabric, scenario: &ScenarioFile) {
        let settings = &scenario.network.settings;
        let keeps = match (settings.credits.enabled, settings.pfc.enabled) {
            (true, _) => "network.credits.enabled",
            (false, true) => "network.pfc.enabled",
            (false, false) => return,
        };
        if fabric.can_deadlock() {
            let message = format!(
                "rings of four routers and more can deadlock where nothing is dropped (`{keeps}`): \
                 real ones have further lanes for that, which this one has not; the packet engine \
                 says if it happens"
            );
            self.warnings.push(finding(&["fabric.topology", keeps], message, None));
        }
    }

    /// A box that somebody named costs the same with ports that stay empty, and has no more than
    /// it has.
    fn warn_of_idle_ports(&mut self, fabric: &Fabric, scenario: &ScenarioFile) {
        let config = &scenario.fabric;
        let Some(radix) = config.radix.filter(|_| config.parts.is_empty()) else { return };
        let tiers = summary::back_end_tiers(fabric);
        let named = [&config.leaf, &config.spine, &config.core].map(|tier| tier.switch.is_some());
        for (tier, _) in tiers.iter().zip(named).filter(|(_, is_named)| *is_named) {
            let listed = scenario.catalogue.switch.get(&tier.model);
            let rate = Rate::from_bps_f64(tier.rate_bps);
            let ports = listed.map_or(0, |listed| listed.ports_at(rate));
            if 0 < ports && u64::from(radix) != ports {
                let few = u64::from(radix) < ports;
                let then = match few {
                    true => "the others stay empty",
                    false => "the fabric is built, and priced, as if one box had them all",
                };
                let message = format!(
                    "`fabric.radix` is {radix}, but a `{}` has {ports} ports of {rate}: {then}",
                    tier.model
                );
                let help = match few {
                    true => "leave `radix` out to use all of them",
                    false => "leave `radix` out, or name a larger box",
                };
                return self.warnings.push(finding(&["fabric.radix"], message, Some(help)));
            }
        }
    }

    /// InfiniBand's boxes grant credits and no others do, and a card speaks what its maker says.
    /// What is spoken by tier is what was written, also where nobody obeys it.
    fn warn_of_misfits(
        &mut self,
        fabric: &Fabric,
        scenario: &ScenarioFile,
        by_tier: &BTreeMap<String, Transport>,
    ) {
        let ScenarioFile { network, catalogue, cluster, .. } = scenario;
        let spoken = |tier: &Tier| *by_tier.get(&tier.name).unwrap_or(&network.transport);
        let tiers = back_end_tiers(fabric, &scenario.fabric);
        for (key, tier, _) in &tiers {
            let model = &tier.model;
            let listed = catalogue.switch.get(model).filter(|_| model != GENERIC_SWITCH);
            let is_wanted = spoken(tier) == Transport::Infiniband;
            let is_infiniband = |switch: &Switch| switch.buffering == Buffering::Credits;
            let policy = scenario.network.settings.routing.policy;
            let is_hashed = matches!(policy, RoutingPolicy::Ecmp | RoutingPolicy::EEcmp);
            if is_wanted && model == GENERIC_SWITCH && is_hashed {
                let message = format!(
                    "InfiniBand on generic Ethernet switches with {}: its switches forward by the \
                     tables of a subnet manager",
                    policy.name()
                );
                let help = "fabric.leaf.switch = \"quantum-2\" and network.routing.policy = \
                            \"infiniband-adaptive\" are such";
                let keys = ["network.transport", "network.routing.policy"];
                self.warnings.push(finding(&keys, message, Some(help)));
            }
            if listed.is_some_and(|switch| is_infiniband(switch) != is_wanted) {
                let kind = if is_wanted { "Ethernet" } else { "InfiniBand" };
                let name = spoken(tier).name();
                let message = format!("`{model}` is an {kind} switch, the transport is {name}");
                let key = key.replace(".reduces", ".switch");
                self.warnings.push(finding(&[&key, "network.transport"], message, None));
            }
        }
        let Some(nic) = catalogue.nic.get(&cluster.nic) else { return };
        let transport = tiers.first().map_or(network.transport, |(_, tier, _)| spoken(tier));
        if !nic.speaks(transport) {
            let others = catalogue.nic.iter().filter(|(_, other)| other.speaks(transport));
            let others: Vec<String> = others.map(|(name, _)| format!("`{name}`")).collect();
            let (nic, name) = (&cluster.nic, transport.name());
            let message = format!("the catalogue does not say that `{nic}` speaks {name}");
            let help = (!others.is_empty()).then(|| format!("it says so of {}", others.join(", ")));
            let keys = ["cluster.nic", "network.transport"];
            self.warnings.push(finding(&keys, message, help.as_deref()));
        }
    }

    fn add_traffic(&mut self, fabric: &Fabric, scenario: &ScenarioFile) {
        let Some(traffic) = &scenario.traffic else { return };
        let loads = std::iter::once(("traffic".to_owned(), &traffic.load));
        let background = traffic.background.iter().enumerate();
        let others = background.map(|(at, load)| (format!("traffic.background.{at}"), load));
        for (table, load) in loads.chain(others) {
            if let Err(problem) = surroundings::of(fabric, scenario, load) {
                let key = format!("{table}.model");
                let message = format!("`{key}`: {}", problem.message);
                self.findings.push(finding(&[&key], message, problem.help.as_deref()));
            }
        }
        let around = |load: &Load| surroundings::of(fabric, scenario, load).unwrap_or_default();
        for (key, message) in pattern::check(traffic, around) {
            let (reason, help) = split_suggestion(&message);
            let key = format!("traffic.{key}");
            let message = format!("`{key}`: {reason}");
            self.findings.push(Finding { keys: vec![key], depends_on: Vec::new(), message, help });
        }
        if scenario.job.is_some() {
            let message = "a scenario has a `job` or `traffic`, not both".to_owned();
            let help = "keep one of them, or write the job as `[[jobs]]`: traffic may be beside";
            self.findings.push(finding(&["traffic"], message, Some(help)));
        }
    }

    fn add_job(&mut self, config: &JobConfig, site: &Site, directory: PathBuf) {
        let model = match model::find(&config.model, &directory) {
            Ok(model) => model,
            Err(problem) => {
                return self.findings.push(Finding {
                    keys: vec!["job.model".to_owned()],
                    depends_on: Vec::new(),
                    message: problem.message,
                    help: problem.help,
                });
            }
        };
        match job::resolve(config, model, site) {
            Ok((job, warnings)) => {
                self.job = Some(job);
                self.warnings.extend(of_job(warnings));
            }
            Err(problems) => self.findings.extend(of_job(problems)),
        }
    }
}

/// The tiers of the back-ends, with the key that says whether each can reduce, and what it says.
fn back_end_tiers<'a>(
    fabric: &'a Fabric,
    config: &FabricConfig,
) -> Vec<(String, &'a Tier, Option<bool>)> {
    let mut tiers = Vec::new();
    let networks = fabric.networks().iter().filter(|one| one.kind == NetworkKind::BackEnd);
    for (number, network) in networks.enumerate() {
        let (path, config) = match config.parts.get(number) {
            Some(part) => (format!("fabric.parts.{number}.fabric"), &part.fabric),
            None => ("fabric".to_owned(), config),
        };
        let settings = [("leaf", &config.leaf), ("spine", &config.spine), ("core", &config.core)];
        for (place, tier) in network.tiers.clone().enumerate() {
            let tier = &fabric.tiers()[usize::from(tier)];
            // The tiers of a graph are told by their names: a height may have several.
            let named = settings
                .iter()
                .position(|(name, _)| fabric.has_imported_names() && *name == tier.name);
            let (name, said) = settings[named.unwrap_or(place).min(2)];
            tiers.push((format!("{path}.{name}.reduces"), tier, said.reduces));
        }
    }
    tiers
}

/// The fabric with what stands in the file that it names, and what had to be assumed for it.
fn with_file<'a>(
    scenario: &'a ScenarioFile,
    directory: &impl Fn(&str) -> PathBuf,
) -> Result<(Cow<'a, FabricConfig>, Vec<Finding>), Finding> {
    const KEY: &str = "fabric.file";
    let mut fabric = Cow::Borrowed(&scenario.fabric);
    let (TopologyKind::File, Some(file)) = (fabric.topology, &scenario.fabric.file) else {
        return Ok((fabric, Vec::new()));
    };
    if fabric.graph.is_some() {
        let message = "`fabric.file` and `fabric.graph` both say what the network is".to_owned();
        return Err(finding(&[KEY, "fabric.graph"], message, Some("keep one of them")));
    }
    let hints = Hints { nics_per_node: scenario.cluster.nics_per_node, ..Hints::default() };
    let text = import::read(&directory(KEY).join(file));
    let graph = text.and_then(|text| import::graph(file, &text, hints));
    let import::Graph { graph, assumed } = graph.map_err(|error| of_file(KEY, &error))?;
    fabric.to_mut().graph = Some(graph);
    let named = |assumed: String| finding(&[KEY], format!("`{file}`: {assumed}"), None);
    Ok((fabric, assumed.into_iter().map(named).collect()))
}

/// The fabric with cables as long as rows of racks make them, where the scenario tells of racks
/// and not of the cables. What cannot be built is told by whoever builds it.
fn with_racks<'a>(
    scenario: &ScenarioFile,
    fabric: Cow<'a, FabricConfig>,
    fabrics: &Fabrics,
) -> Cow<'a, FabricConfig> {
    if !scenario.racks.lay_cables(&fabric) {
        return fabric;
    }
    match fabrics.get(&scenario.cluster, &fabric, &scenario.catalogue) {
        Ok(built) => {
            let summary = fabric::summary::summary(&built, &scenario.cluster, &scenario.catalogue);
            scenario.racks.laid(fabric, &built, &summary)
        }
        Err(_) => fabric,
    }
}

/// The fabric as its transport uses it.
fn with_schedule(scenario: &ScenarioFile, fabric: Arc<Fabric>) -> Arc<Fabric> {
    let scheduled = &scenario.network.settings.scheduled;
    if scheduled.enabled { Arc::new(fabric.with_schedule(scheduled)) } else { fabric }
}

/// The fabric with the circuits of several settings of its circuit switches in place of its own.
pub(crate) fn with_circuits(
    scenario: &ScenarioFile,
    directory: impl Fn(&str) -> PathBuf,
    settings: &[Setting],
) -> Result<Fabric, String> {
    let first = |findings: Vec<Finding>| findings.into_iter().map(|f| f.message).next();
    let (fabric, _) = with_file(scenario, &directory).map_err(|finding| finding.message)?;
    let mut fabric = with_racks(scenario, fabric, &Fabrics::default());
    fabric.to_mut().circuits.settings = settings.to_vec();
    topology::build(&scenario.cluster, &fabric, &scenario.catalogue)
        .map(|built| built.with_schedule(&scenario.network.settings.scheduled))
        .map_err(|errors| first(errors.into_iter().map(of_fabric).collect()).unwrap_or_default())
}

/// What does not fit: the keys concerned, a sentence, and what would fit.
fn finding(keys: &[&str], message: String, help: Option<&str>) -> Finding {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    Finding { keys, depends_on: Vec::new(), message, help: help.map(str::to_owned) }
}

pub(crate) fn of_file(key: &str, error: &ImportError) -> Finding {
    finding(&[key], format!("`{key}`: {error}"), None)
}

/// The cluster as far as a job must know it: as built, or as written if it cannot be built.
fn site(scenario: &ScenarioFile, fabric: Option<&Fabric>) -> Option<Site> {
    if let Some(fabric) = fabric {
        let numbers = [fabric.gpus(), fabric.gpus_per_node(), fabric.gpus_per_domain()];
        let [gpus, gpus_per_node, scale_up] = numbers.map(|number| number as u64);
        return Some(Site { gpus, gpus_per_node, scale_up });
    }
    let cluster = &scenario.cluster;
    let gpus_per_node = u64::from(cluster.gpus_per_node).max(1);
    let written = cluster.gpus.or(cluster.nodes.map(|nodes| nodes.saturating_mul(gpus_per_node)));
    let scale_up = cluster.scale_up.domain.map_or(gpus_per_node, u64::from);
    Some(Site { gpus: written?, gpus_per_node, scale_up })
}

/// The smallest change of a job with which it fits its GPUs' memory, as settings to write: what is
/// sharded, then what is computed again, then how far the model is cut inside a server, over the
/// holders of its experts, over stages.
fn fitting(config: &JobConfig, model: &Model, site: &Site, capacity: Bytes) -> Option<String> {
    let full = Recompute::Usual(Usual::Full);
    // Copies that were counted stay so many.
    let is_free = config.parallel.dp.is_none();
    let own = &config.parallel;
    let mut degrees = vec![(own.tp, own.pp, own.ep)];
    if is_free {
        let experts = model.experts.map_or(1, |experts| experts.count);
        // Whoever spreads experts spreads them over a server at least.
        let spreads = |ep: &u64| experts.is_multiple_of(*ep) && site.scale_up.min(8) <= *ep;
        let eps: Vec<u64> = FINER.into_iter().map(|by| own.ep * by).filter(spreads).collect();
        let pps: Vec<u64> = FINER.into_iter().map(|by| own.pp * by).collect();
        degrees.push((site.scale_up, own.pp, own.ep));
        degrees.extend(eps.iter().map(|ep| (own.tp, own.pp, *ep)));
        degrees.extend(pps.iter().map(|pp| (own.tp, *pp, own.ep)));
        degrees.extend(eps.iter().flat_map(|ep| pps.iter().map(|pp| (own.tp, *pp, *ep))));
    }
    let tries = degrees.into_iter().flat_map(|degrees| {
        let shardings = [config.parallel.sharding, Sharding::Fsdp];
        let recomputes = [config.recompute.clone(), full.clone()];
        recomputes.into_iter().flat_map(move |recompute| {
            shardings.map(|sharding| (degrees, sharding, recompute.clone()))
        })
    });
    for ((tp, pp, ep), sharding, recompute) in tries {
        // Sharded weights are gathered again for every microbatch of a pipeline that was cut.
        if sharding != own.sharding && (pp, ep) != (own.pp, own.ep) {
            continue;
        }
        let mut tried = config.clone();
        (tried.parallel.tp, tried.parallel.pp, tried.parallel.ep) = (tp, pp, ep);
        tried.parallel.sharding = sharding;
        tried.recompute = recompute;
        let fits = job::resolve(&tried, model.clone(), site)
            .is_ok_and(|(job, _)| job::memory::check(&job, capacity).is_ok());
        if !fits {
            continue;
        }
        let mut set = Vec::new();
        let degrees = [("tp", own.tp, tp), ("pp", own.pp, pp), ("ep", own.ep, ep)];
        for (key, _, is) in degrees.into_iter().filter(|(_, was, is)| was != is) {
            set.push(format!("job.parallel.{key} = {is}"));
        }
        if sharding != config.parallel.sharding {
            set.push(format!("job.parallel.sharding = \"{}\"", sharding.word()));
        }
        if tried.recompute != config.recompute {
            set.push("job.recompute = \"full\"".to_owned());
        }
        return Some(format!("{} would fit", set.join(" with ")));
    }
    None
}

/// So many times as finely a model may be cut that does not fit.
const FINER: [u64; 6] = [2, 4, 8, 16, 32, 64];

fn of_memory(full: Overfull) -> Finding {
    let keys = ["job.parallel", "job.recompute", "job.batch", "cluster.gpu"];
    Finding {
        keys: keys.map(str::to_owned).to_vec(),
        depends_on: Vec::new(),
        message: full.to_string(),
        help: Some("recompute more, shard more, or cut the model over more GPUs".to_owned()),
    }
}

fn of_fabric(error: ConfigError) -> Finding {
    Finding {
        message: format!("`{}`: {}", error.path, error.reason),
        keys: vec![error.path],
        depends_on: Vec::new(),
        help: error.suggestion.map(|suggestion| format!("try {suggestion}")),
    }
}

/// What decides everything else about a job. Nothing else is worth saying while one is wrong.
const DECISIVE: [&str; 3] = ["job.parallel.tp", "job.parallel.cp", "job.parallel.pp"];

/// One finding for each key, however many reasons there are against its value.
fn of_job(problems: Vec<job::Problem>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for job::Problem { key, message } in problems {
        let key = format!("job.{key}");
        let (reason, help) = split_suggestion(&message);
        if let Some(same) = findings.iter_mut().find(|finding| finding.keys[0] == key) {
            same.message = format!("{}; {reason}", same.message);
            same.help = same.help.take().or(help);
            continue;
        }
        let cluster = ["job.model", "cluster.gpus", "cluster.nodes", "cluster.gpus_per_node"];
        let decisive = DECISIVE.iter().filter(|_| !DECISIVE.contains(&key.as_str()));
        // Nothing follows from itself: a model that cannot be would go unsaid.
        let others = cluster.iter().chain(decisive).filter(|other| **other != key);
        let depends_on = others.map(|key| (*key).to_owned()).collect();
        let message = format!("`{key}`: {reason}");
        findings.push(Finding { keys: vec![key], depends_on, message, help });
    }
    findings
}

/// A sentence such as "3 does not divide 32 heads; 2 or 4 would", cut before the suggestion.
fn split_suggestion(message: &str) -> (&str, Option<String>) {
    match message.rsplit_once("; ") {
        Some((reason, suggestion)) if suggestion.contains("would") => {
            let fit = if suggestion.ends_with("would") { " fit" } else { "" };
            (reason, Some(format!("{suggestion}{fit}")))
        }
        _ => (message, None),
    }
}

/// A policy that is none, and no rank file either. What looks like a path is left to its reader.
fn check_placement(config: &JobConfig, directory: &Path) -> Option<Finding> {
    let Policy::RankFile(word) = &config.placement.policy else { return None };
    if word.contains(['/', '\\', '.']) || directory.join(word).exists() {
        return None;
    }
    let near = nearest(word, Policy::WORDS);
    let near = near.map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
    let words = Policy::WORDS.map(|word| format!("\"{word}\"")).join(", ");
    Some(Finding {
        keys: vec!["job.placement.policy".to_owned(), "job.placement".to_owned()],
        depends_on: Vec::new(),
        message: format!(
            "`job.placement`: \"{word}\" is no policy, and there is no such rank file"
        ),
        help: Some(format!("{near}it is one of {words}, or the path of a rank file")),
    })
}

fn check_reported(scenario: &ScenarioFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, reported) in scenario.reported.iter().enumerate() {
        let figures = [reported.value, reported.high];
        let problem = if figures.iter().flatten().any(|figure| !figure.is_finite()) {
            "a reported figure must be finite"
        } else if reported.value.is_none() == reported.text.is_none() {
            "a reported metric has either a value or a text"
        } else {
            continue;
        };
        findings.push(Finding {
            keys: vec![format!("reported.{index}.value"), format!("reported.{index}")],
            depends_on: Vec::new(),
            message: problem.to_owned(),
            help: None,
        });
    }
    findings
}
