//! From a file's name to a resolved scenario: gather the layers, check each, lay them over each
//! other, and ask whether the whole makes sense.
//!
//! ```text
//! default < catalogue < preset < file < environment < flag
//! ```
//!
//! The result of [`load`] is either a scenario in which every value is known and knows where it
//! came from, or every problem that was found, not only the first.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fabric::Fabric;
use fabric::cost::{Bill, add_gateways, bill};
use fabric::fault::Faults;
use fabric::graph::Tier;
use fabric::hardware::Catalogue;
use fabric::parts::Parts;
use fabric::summary::{Summary, summary};
use fabric::topology::circuits::Setting;
use job::{Job, Model};
use packetsim::Settings;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use traffic::nccl::Architecture;
use traffic::pattern::{self, Flow, Load, Surroundings};
use units::{Random, Unused};

use crate::assignment;
use crate::check::{Checked, check, missing};
use crate::derive;
use crate::fabrics::Fabrics;
use crate::file::{NetworkConfig, ScenarioFile};
use crate::flows::{self, FlowTable};
use crate::hash::{ScenarioHash, hash, hash_bytes};
use crate::import;
use crate::jobs::{self, JobEntry, Member};
use crate::meaning::{self, Finding, Meaning};
use crate::merge::merge;
use crate::model;
use crate::preset;
use crate::problem::{Problem, Problems};
use crate::purpose::{self, Purpose};
use crate::schema::{Schema, join};
use crate::source::{Source, Sources, is_allowed, read, up_to};
use crate::surroundings;
use crate::tree::{Entry, Layer, Node, Origin, Reader, Table, Value};

/// Chains of `from` longer than this are refused.
const MAX_CHAIN: usize = 16;

/// What to load: everything that the outside world says, so that loading itself asks nobody.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A preset's name, a file's path, or `-` for standard input; `None` for the defaults.
    pub scenario: Option<String>,
    /// Files or folders with hardware of the user's own.
    pub catalogue: Vec<PathBuf>,
    /// The environment variables; those that do not begin with `FATFLOW_SET_` are ignored.
    pub environment: Vec<(String, String)>,
    /// `path=value`, one for each flag.
    pub set: Vec<String>,
    /// The seed from its own flag.
    pub seed: Option<u64>,
    /// How far to go.
    pub extent: Extent,
    /// What it is for: settings that this does not obey are taken out, and named.
    pub purpose: Purpose,
    /// The text of a scenario that is in no file; `scenario` is what it is called.
    pub text: Option<Source>,
    /// Flows in memory, in place of the file that `traffic.flows` names.
    pub flows: Option<Arc<FlowTable>>,
    /// Keys that are at their defaults, whoever set them.
    pub without: Vec<String>,
}

/// How far to go: building the fabric of 200,000 GPUs takes a moment, which a list of presets
/// need not spend.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Extent {
    /// The settings, each checked by itself.
    Settings,
    /// The fabric built, the job checked against it.
    #[default]
    Whole,
}

/// A value of the wrong kind, and where.
type TypeMismatch = serde_path_to_error::Error<serde_json::Error>;

/// What a tree of values means. The one way to read settings: each further deserializer would
/// compile all of them once more.
pub(crate) fn of_json<T: DeserializeOwned>(json: &Json) -> Result<T, TypeMismatch> {
    serde_path_to_error::deserialize(json)
}

/// A resolved scenario.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What was asked for: the preset's name or the file's path.
    pub input: String,
    /// The values.
    pub scenario: ScenarioFile,
    /// The scenario's identity.
    pub hash: ScenarioHash,
    /// The job, checked against its model and its cluster, if there is one.
    pub job: Option<Job>,
    /// The faults at given times, on this fabric.
    pub faults: Faults,
    /// What works but is unwise.
    pub warnings: Vec<Problem>,
    /// What somebody wrote and the purpose does not obey.
    pub unused: Vec<Unused>,
    /// The jobs of `[[jobs]]`, if several share the fabric.
    pub members: Vec<Member>,
    /// The synthetic traffic beside them, if there is any.
    pub beside: Option<Box<Loaded>>,
    /// The servers that the job has, where others have the rest.
    pub nodes: Option<Vec<u64>>,
    /// As it was written, before what the purpose does not obey was put back.
    network: NetworkConfig,
    fabric: Option<Arc<Fabric>>,
    flows: Option<Arc<FlowTable>>,
    tree: Node,
    sources: Sources,
}

/// What makes a cluster, a fabric's boxes or a job somebody's own.
const SIZES: [&str; 15] = [
    "cluster.gpu",
    "cluster.gpus",
    "cluster.nodes",
    "cluster.nic",
    "fabric.topology",
    "fabric.leaf.switch",
    "fabric.spine.switch",
    "job.model",
    "job.gpus",
    "job.parallel.tp",
    "job.parallel.cp",
    "job.parallel.pp",
    "job.parallel.vpp",
    "job.parallel.dp",
    "job.parallel.ep",
];

/// One resolved value, for people.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Resolved {
    /// The dotted path.
    pub key: String,
    /// The value as TOML.
    pub value: String,
    /// Where it came from.
    pub origin: String,
}

/// Loads a scenario.
pub fn load(request: &Request) -> Result<Loaded, Problems> {
    let mut loader = Loader::begin();
    loader.lay_user_catalogue(&request.catalogue);
    if let Some(input) = &request.scenario {
        loader.lay_scenario(input, request.text.as_ref(), &request.set);
    }
    loader.lay_environment(&request.environment);
    loader.lay_flags(&request.set, request.seed);
    loader.lay_flows(request.flows.as_ref());
    request.without.iter().for_each(|key| loader.merged.remove(key));
    let input = request.scenario.as_deref().unwrap_or("defaults");
    loader.finish(input, (request.extent, request.purpose), &Fabrics::default())
}

/// The schema of the scenario file.
pub fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(Schema::of::<ScenarioFile>)
}

#[derive(Clone, Debug)]
pub(crate) struct Loader {
    schema: &'static Schema,
    pub(crate) sources: Sources,
    pub(crate) merged: Node,
    pub(crate) problems: Vec<Problem>,
    warnings: Vec<Problem>,
    dropped: BTreeSet<String>,
    /// Whether every layer could be read; without one of them the whole cannot make sense.
    complete: bool,
    /// The catalogue as it was when somebody last read it, for those who leave it as it is: it is
    /// most of a scenario.
    known: Option<Arc<Known>>,
    /// Flows in memory, in place of a file.
    flows: Option<Arc<FlowTable>>,
}

/// A catalogue, and the part of the tree that it was read from.
#[derive(Debug)]
struct Known {
    table: Arc<Table>,
    catalogue: Catalogue,
}

impl Loader {
    /// A loader that has laid what every scenario begins with: defaults and embedded hardware.
    pub(crate) fn begin() -> Self {
        static BEGINNING: OnceLock<Loader> = OnceLock::new();
        let first = || {
            let mut loader = Self::new();
            for node in loader.parsed_catalogue(preset::hardware().collect()) {
                // What is embedded is right, which a test shows: no process checks it again.
                merge(&mut loader.merged, node, loader.schema);
            }
            loader.know_catalogue();
            loader
        };
        BEGINNING.get_or_init(first).clone()
    }

    fn new() -> Self {
        let defaults = serde_json::to_value(ScenarioFile::default())
            .expect("settings have text keys and finite numbers, which JSON can hold");
        let merged = Node::from_defaults(&defaults).expect("the root is a table");
        Self {
            schema: schema(),
            sources: Sources::default(),
            merged,
            problems: Vec::new(),
            warnings: Vec::new(),
            dropped: BTreeSet::new(),
            complete: true,
            known: None,
            flows: None,
        }
    }

    /// Reads the catalogue as it is now; what is wrong with it is said when the whole is read.
    pub(crate) fn know_catalogue(&mut self) {
        let Some(node) = self.merged.at("catalogue") else { return };
        let Value::Table(table) = &node.value else { return };
        if self.known.as_ref().is_some_and(|known| Arc::ptr_eq(&known.table, table)) {
            return;
        }
        let read = of_json(&node.to_json()).ok();
        let known = |catalogue| Arc::new(Known { table: Arc::clone(table), catalogue });
        self.known = read.map(known);
    }

    /// The catalogue, if it is as it was, and the tree without it.
    fn apart(&self) -> Option<(Arc<Known>, Node)> {
        let known = self.known.clone()?;
        let mut rest = self.merged.clone();
        match &rest.at("catalogue")?.value {
            Value::Table(table) if Arc::ptr_eq(table, &known.table) => {}
            _ => return None,
        }
        rest.remove("catalogue");
        Some((known, rest))
    }

    /// Reads the whole tree.
    fn read(&self) -> Result<ScenarioFile, TypeMismatch> {
        let apart = self.apart();
        let json = apart.as_ref().map_or(&self.merged, |(_, rest)| rest).to_json();
        let mut read: ScenarioFile = of_json(&json)?;
        if let Some((known, _)) = apart {
            read.catalogue = known.catalogue.clone();
        }
        Ok(read)
    }

    /// Checks a layer and lays it over the ones before.
    pub(crate) fn lay(&mut self, mut node: Node) {
        let Checked { problems, dropped } =
            check(&mut node, &self.merged, self.schema, &self.sources);
        self.problems.extend(problems);
        self.dropped.extend(dropped);
        // A scenario has one or the other: what is laid later takes the earlier one's place.
        let alone = [("traffic", "job"), ("job", "traffic"), ("jobs", "job"), ("job", "jobs")];
        for (new, old) in alone {
            // What flags and variables say of both does not fit together, and is refused.
            let is_kept = self.merged.at(old).is_some_and(|node| node.has(Layer::Environment));
            if is_there(&node, new) && !is_there(&node, old) && !is_kept {
                self.merged.remove(old);
            }
        }
        merge(&mut self.merged, node, self.schema);
    }

    fn parse(&mut self, layer: Layer, source: Source) -> Option<Node> {
        let id = self.sources.add(source);
        let source = self.sources.get(id);
        let mut reader = Reader { layer, id, source, shift: 0, problems: Vec::new() };
        let node = reader.document();
        self.problems.append(&mut reader.problems);
        node
    }

    pub(crate) fn lay_user_catalogue(&mut self, paths: &[PathBuf]) {
        for path in paths {
            match preset::user_hardware(path) {
                Ok(files) => self.lay_catalogue(files),
                Err(problem) => self.problems.push(problem),
            }
        }
    }

    fn lay_catalogue(&mut self, files: Vec<Source>) {
        for node in self.parsed_catalogue(files) {
            self.lay(node);
        }
    }

    fn parsed_catalogue(&mut self, files: Vec<Source>) -> Vec<Node> {
        let mut nodes = Vec::new();
        for file in files {
            if let Some(node) = self.parse(Layer::Catalogue, file) {
                let origin = node.origin;
                let entry = Entry { key: origin, node };
                let table = Table::from([("catalogue".to_owned(), entry)]);
                nodes.push(Node { value: Value::table(table), origin });
            }
        }
        nodes
    }

    /// Lays a preset, a file or the text of one, after everything that it says it starts from; a
    /// flag `from=…` takes the place of what it says.
    pub(crate) fn lay_scenario(&mut self, input: &str, text: Option<&Source>, set: &[String]) {
        let flag = set.iter().rev().find_map(|text| text.trim().strip_prefix("from="));
        let mut chain: Vec<Node> = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        let mut next = Some((input.to_owned(), None::<Origin>));
        let mut text = text.cloned();
        while let Some((name, asked_at)) = next.take() {
            let directory = asked_at.and_then(|origin| self.directory_of(origin));
            let given = text.take().map(|source| Ok((Layer::File, source)));
            let (layer, source) = match given.unwrap_or_else(|| open(&name, directory.as_deref())) {
                Ok(found) => found,
                Err(problem) => {
                    let problem = self.placed(problem, asked_at, "not found");
                    self.problems.push(problem);
                    self.complete = false;
                    break;
                }
            };
            let identity = identity(&source);
            if seen.contains(&identity) || MAX_CHAIN <= seen.len() {
                let path = [&seen[..], &[identity]].concat().join(" → ");
                let problem = Problem::error(format!("`from` goes round in a circle: {path}"))
                    .with_help("a scenario starts from another one, never from itself");
                let problem = self.placed(problem, asked_at, "back to the beginning");
                self.problems.push(problem);
                self.complete = false;
                break;
            }
            seen.push(identity);
            let Some(node) = self.parse(layer, source) else {
                self.complete = false;
                break;
            };
            if let Some(from) = node.at("from") {
                next = from.as_str().map(|name| (name.to_owned(), Some(from.origin)));
            }
            if let Some(name) = flag.filter(|_| chain.is_empty()) {
                next = Some((name.trim_matches(['"', '\'']).to_owned(), None));
            }
            chain.push(node);
        }
        for node in chain.into_iter().rev() {
            self.lay(node);
        }
    }

    pub(crate) fn lay_environment(&mut self, variables: &[(String, String)]) {
        let mut variables = variables.to_vec();
        variables.sort();
        for (name, value) in &variables {
            match assignment::from_environment(name, value, &mut self.sources) {
                Some(Ok(node)) => self.lay(node),
                Some(Err(problem)) => self.problems.push(problem),
                None => {}
            }
        }
    }

    pub(crate) fn lay_flags(&mut self, set: &[String], seed: Option<u64>) {
        let seed = seed.map(|seed| ("--seed", format!("seed={seed}")));
        let set = set.iter().map(|text| ("--set", text.clone()));
        for (flag, text) in set.chain(seed) {
            self.lay_flag(flag, &text);
        }
    }

    /// Lays flows in memory: `traffic.flows` names them as it would name a file.
    pub(crate) fn lay_flows(&mut self, flows: Option<&Arc<FlowTable>>) {
        if let Some(flows) = flows {
            self.lay_flag("transfers", &format!("traffic.flows={}", flows.name));
        }
        self.flows = flows.cloned();
    }

    fn lay_flag(&mut self, flag: &str, text: &str) {
        match assignment::from_flag(flag, text, &mut self.sources) {
            Ok(node) => self.lay(node),
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Lays what a server file says over the keys of the cluster; its own keys win over theirs.
    fn lay_server_file(&mut self) {
        const KEY: &str = "cluster.server_file";
        let Some(node) = self.merged.at(KEY) else { return };
        let (layer, name) = (node.origin.layer, node.as_str().unwrap_or_default().to_owned());
        let path = self.directory_at(KEY).join(&name);
        let read = import::read(&path);
        let server = read.and_then(|text| Ok((import::server(&name, &text)?, text)));
        let (server, text) = match server {
            Ok(server) => server,
            Err(error) => return self.add_findings(vec![meaning::of_file(KEY, &error)]),
        };
        let id = self.sources.add(Source::new(name.clone(), text));
        for (key, value) in server.settings() {
            let origin = Origin { layer, place: Some((id, 0, 0)) };
            let old = self.merged.at(key).filter(|old| layer <= old.origin.layer);
            if let Some(old) = old.map(Node::to_json).filter(|old| *old != value) {
                let message = format!("`{key}` is {old} here, but `{name}` says {value}, and wins");
                let depends_on = Vec::new();
                let warning =
                    Finding { keys: vec![key.to_owned()], depends_on, message, help: None };
                self.warnings.push(self.explain(warning));
            }
            if let Some(node) = Node::from_json(&value, origin) {
                derive::set(&mut self.merged, &key.split('.').collect::<Vec<_>>(), node);
            }
        }
    }

    /// The values of all layers together.
    fn settle(&mut self, extent: Extent) -> Result<ScenarioFile, TypeMismatch> {
        let apart = self.apart();
        let looked_at = apart.as_ref().map_or(&self.merged, |(_, rest)| rest);
        let absent = missing(looked_at, self.schema, &self.sources, &self.dropped);
        self.problems.extend(absent);
        derive::fill_nic(&mut self.merged);
        derive::fill_transport(&mut self.merged);
        derive::fill_topology(&mut self.merged);
        if extent == Extent::Whole {
            self.lay_server_file();
        }
        self.read()
    }

    /// What the identity is the hash of.
    pub(crate) fn identity(mut self) -> Result<Json, Problems> {
        match self.settle(Extent::Settings) {
            Ok(written) if self.problems.is_empty() => {
                let flows = self.flows.take();
                Ok(identity_json(&written, &self.merged, &self.contents(flows.as_deref())))
            }
            Ok(_) => Err(in_order(self.problems)),
            Err(error) => {
                let problem = self.misread(&error);
                self.problems.push(problem);
                Err(in_order(self.problems))
            }
        }
    }

    pub(crate) fn finish(
        self,
        input: &str,
        (extent, purpose): (Extent, Purpose),
        fabrics: &Fabrics,
    ) -> Result<Loaded, Problems> {
        let several = extent == Extent::Whole && is_there(&self.merged, "jobs");
        let shared = several.then(|| self.clone());
        let loaded = self.finish_one(input, (extent, purpose), fabrics)?;
        match shared {
            Some(loader) => loader.with_members(loaded, purpose, fabrics),
            None => Ok(loaded),
        }
    }

    /// Loads each of several jobs, and the traffic beside them, as if there were nothing else.
    fn with_members(
        self,
        mut loaded: Loaded,
        purpose: Purpose,
        fabrics: &Fabrics,
    ) -> Result<Loaded, Problems> {
        let input = loaded.input.clone();
        let finish = |alone: Self| alone.finish_one(&input, (Extent::Whole, purpose), fabrics);
        let entries = std::mem::take(&mut loaded.scenario.jobs);
        let wrong = |(key, why): (String, String)| {
            Problems(vec![loaded.problem(&key, format!("`{key}`: {why}"))])
        };
        let afters = jobs::afters(&entries).map_err(wrong)?;
        let mut members = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let member =
                finish(self.alone(at, &loaded)).map_err(|problems| of_entry(problems, at))?;
            let JobEntry { start, class, .. } = *entry;
            members.push(Member {
                name: entry.title(at),
                start,
                class,
                after: afters[at],
                loaded: member,
            });
        }
        if self.merged.at("traffic").is_some() {
            let mut alone = self.clone();
            alone.merged.remove("jobs");
            loaded.beside = Some(Box::new(finish(alone)?));
        }
        let each = loaded.fabric().gpus_per_node().max(1) as u64;
        let gpus = |member: &Member| member.loaded.job.as_ref().map_or(0, |job| job.layout.gpus());
        let needed: Vec<u64> = members.iter().map(|member| gpus(member).div_ceil(each)).collect();
        let directory = |key: &str| self.directory_at(key);
        let (fabric, seed) = (loaded.fabric(), loaded.scenario.seed);
        let dealt = jobs::deal(fabric, &entries, &needed, seed, directory);
        let wrong = |(key, why): (String, String)| {
            Problems(vec![loaded.problem(&key, format!("`{key}`: {why}"))])
        };
        let dealt = dealt.map_err(wrong)?;
        for (member, nodes) in members.iter_mut().zip(dealt) {
            member.loaded.nodes = Some(nodes);
        }
        loaded.unused = purpose::of_members(&loaded, &members, purpose);
        (loaded.scenario.jobs, loaded.members) = (entries, members);
        Ok(loaded)
    }

    /// The same scenario with one of its jobs alone.
    fn alone(&self, at: usize, loaded: &Loaded) -> Self {
        let mut alone = self.clone();
        let Some(entry) = self.merged.at(&format!("jobs.{at}")) else { return alone };
        let mut job = entry.clone();
        if let Some(traffic) = entry.at("traffic") {
            for key in ["jobs", "job"] {
                alone.merged.remove(key);
            }
            derive::set(&mut alone.merged, &["traffic"], traffic.clone());
            return alone;
        }
        let given = |key: &str| job.at(key).is_some();
        let fabric = loaded.fabric();
        let nodes = match job.at("nodes").map(Node::to_json) {
            Some(Json::Number(count)) => count.as_u64(),
            Some(Json::Array(hosts)) => Some(hosts.len() as u64),
            _ => None,
        };
        if let Some(nodes) = nodes.filter(|_| !given("gpus") && !given("parallel.dp")) {
            let gpus = nodes.saturating_mul(fabric.gpus_per_node() as u64);
            let value = Value::Scalar(Json::from(gpus));
            derive::set(&mut job, &["gpus"], Node { value, origin: entry.origin });
        }
        jobs::OWN_KEYS.iter().for_each(|key| job.remove(key));
        for key in ["jobs", "traffic"] {
            alone.merged.remove(key);
        }
        derive::set(&mut alone.merged, &["job"], job);
        alone
    }

    fn finish_one(
        mut self,
        input: &str,
        (extent, purpose): (Extent, Purpose),
        fabrics: &Fabrics,
    ) -> Result<Loaded, Problems> {
        let whole = match self.settle(extent) {
            Ok(written) => {
                let model = self.model(&written);
                let mut idle = purpose::idle(&written, purpose, model.as_ref());
                let obeyed = purpose::take_out(&written, &idle);
                let mut meaning = Meaning::default();
                if extent == Extent::Whole && self.complete {
                    let directory = |key: &str| self.directory_at(key);
                    meaning = Meaning::of(&written, &obeyed, directory, fabrics);
                    if let Some(fabric) = &meaning.fabric {
                        purpose::look_at(fabric, &obeyed, purpose, &mut idle);
                    }
                    let findings = std::mem::take(&mut meaning.findings);
                    self.add_findings(findings);
                }
                Some((written, idle, obeyed, meaning))
            }
            Err(error) => {
                if self.problems.is_empty() {
                    let problem = self.misread(&error);
                    self.problems.push(problem);
                }
                None
            }
        };
        let whole = whole.filter(|_| self.problems.is_empty());
        let Some((written, idle, mut scenario, meaning)) = whole else {
            return Err(in_order(self.problems));
        };
        let flows = self.flows.take();
        let hash = hash(&identity_json(&written, &self.merged, &self.contents(flows.as_deref())));
        let unused = purpose::written(&self.merged, &idle);
        let Meaning { fabric, job, faults, warnings, .. } = meaning;
        if let Some(fabric) = &fabric {
            derive::fill_buffers(&mut scenario, &mut self.merged, fabric);
        }
        let later = warnings.into_iter().map(|warning| self.explain(warning)).collect::<Vec<_>>();
        let Self { merged: tree, sources, mut warnings, .. } = self;
        warnings.extend(later);
        let input = input.to_owned();
        Ok(Loaded {
            input,
            scenario,
            hash,
            job,
            faults,
            warnings,
            unused,
            members: Vec::new(),
            beside: None,
            nodes: None,
            network: written.network,
            fabric,
            flows,
            tree,
            sources,
        })
    }

    /// The job's model; one that cannot be read is somebody else's problem.
    fn model(&self, scenario: &ScenarioFile) -> Option<Model> {
        let job = scenario.job.as_ref()?;
        model::find(&job.model, &self.directory_at("job.model")).ok()
    }

    /// Reports what does not fit, unless something that decides it is known to be wrong already.
    fn add_findings(&mut self, findings: Vec<Finding>) {
        let found: Vec<String> =
            findings.iter().filter_map(|finding| finding.keys.first().cloned()).collect();
        for finding in findings {
            let is_dropped = |key: &String| {
                self.dropped.iter().any(|path| is_inside(key, path) || is_inside(path, key))
            };
            let mut decided_by = finding.depends_on.iter();
            let follows = decided_by.any(|key| is_dropped(key) || found.contains(key));
            if !follows && !finding.keys.iter().any(is_dropped) {
                let problem = self.explain(finding);
                self.problems.push(problem);
            }
        }
    }

    /// What `serde` refuses although the schema allows it, at the place it names.
    fn misread(&self, error: &TypeMismatch) -> Problem {
        let path = error.path().to_string();
        let mut path = path.trim_end_matches(".?").replace('[', ".").replace(']', "");
        let problem = Problem::error(error.inner().to_string()).with_key(&path);
        loop {
            if let Some(node) = self.merged.at(&path).filter(|node| node.origin.place.is_some()) {
                return self.placed(problem, Some(node.origin), "here");
            }
            match path.rsplit_once('.') {
                Some((parent, _)) => path = parent.to_owned(),
                None => return problem,
            }
        }
    }

    /// A finding at the first of its keys that somebody wrote, or else at the table around it.
    fn explain(&self, finding: Finding) -> Problem {
        let own = finding.keys.iter().find_map(|key| self.written(key));
        let around = || {
            let mut home = finding.keys.first()?.as_str();
            while let Some((parent, _)) = home.rsplit_once('.') {
                home = parent;
                if let Some(origin) = self.written(home) {
                    return Some(origin);
                }
            }
            None
        };
        let origin = own.or_else(around);
        let key = finding.keys.first().cloned().unwrap_or_default();
        let mut problem = Problem::error(finding.message).with_key(key);
        problem.help = finding.help;
        self.placed(problem, origin, "because of this")
    }

    fn written(&self, key: &str) -> Option<Origin> {
        let origin = self.merged.at(key)?.origin;
        origin.place.map(|_| origin)
    }

    /// What stands in the files that the scenario names, by key: it decides the result as much as
    /// the scenario does. Whoever uses a file says what is wrong with it.
    fn contents(&self, flows: Option<&FlowTable>) -> Vec<(String, ScenarioHash)> {
        let content = |key: String| {
            if let Some(flows) = flows.filter(|_| key == "traffic.flows") {
                return Some((key, flows.hash()));
            }
            let name = self.merged.at(&key)?.as_str()?;
            let path = self.directory_at(&key).join(name);
            let file = File::open(&path).ok().filter(|_| path.is_file() && is_allowed(&path))?;
            Some((key, hash_bytes(&up_to(MAX_NAMED_BYTES, file).ok()?)))
        };
        let own = FILE_KEYS.into_iter().map(str::to_owned);
        let jobs = match self.merged.at("jobs").map(|jobs| &jobs.value) {
            Some(Value::List(jobs)) => jobs.len(),
            _ => 0,
        };
        let of_job = |at| FILES_OF_JOBS.map(|key| format!("jobs.{at}.{key}"));
        own.chain((0..jobs).flat_map(of_job)).filter_map(content).collect()
    }

    /// The folder to which a path in this key is relative.
    fn directory_at(&self, key: &str) -> PathBuf {
        let origin = self.written(key);
        origin.and_then(|origin| self.directory_of(origin)).unwrap_or_default()
    }

    fn placed(&self, problem: Problem, origin: Option<Origin>, label: &str) -> Problem {
        match origin.and_then(|origin| origin.place) {
            Some((id, start, end)) => problem.at(self.sources.get(id), start..end, label),
            None => problem,
        }
    }

    fn directory_of(&self, origin: Origin) -> Option<PathBuf> {
        let (id, _, _) = origin.place?;
        self.sources.get(id).directory.clone()
    }
}

impl Loaded {
    /// What the engines obey, with the scenario's seed.
    pub fn settings(&self) -> Settings {
        let ScenarioFile { seed, catalogue, cluster, library, network, .. } = &self.scenario;
        let gpu = catalogue.gpu.get(&cluster.gpu);
        let architecture = gpu.and_then(|gpu| Architecture::of_scale_up(&gpu.scale_up_name));
        let usual = architecture.unwrap_or(library.architecture).scale_up_efficiency();
        let scale_up_efficiency = Some(library.scale_up_efficiency.unwrap_or(usual));
        Settings { seed: *seed, scale_up_efficiency, ..network.settings.clone() }
    }

    /// What parts of the fabric speak, where not all speak alike.
    pub fn parts(&self) -> Option<Parts> {
        let network = &self.scenario.network;
        let own = |tier: &Tier| network.transport_of_tier.get(&tier.name).copied();
        let tiers = self.fabric().tiers().iter();
        let transports = tiers.map(|tier| own(tier).unwrap_or(network.transport)).collect();
        let gateway = network.gateway.clone();
        (!network.transport_of_tier.is_empty()).then_some(Parts { transports, gateway })
    }

    /// The fabric in figures, with its bill.
    pub fn summary(&self) -> Summary {
        let ScenarioFile { cluster, catalogue, .. } = &self.scenario;
        summary(self.fabric(), cluster, catalogue).with_bill(self.bill())
    }

    /// What everything costs, the gateways between parts of the fabric included.
    pub fn bill(&self) -> Bill {
        let ScenarioFile { cluster, catalogue, .. } = &self.scenario;
        let mut bill = bill(self.fabric(), cluster, catalogue);
        if let Some(parts) = self.parts() {
            let gateways = (parts.gateways(self.fabric()), &parts.gateway);
            add_gateways(&mut bill, gateways, cluster, catalogue);
        }
        bill
    }

    /// What somebody wrote and a purpose would not obey; for a scenario that was loaded for none.
    pub fn unused_for(&self, purpose: Purpose) -> Vec<Unused> {
        let model = self.job.as_ref().map(|job| &job.model);
        let mut idle = purpose::idle(&self.scenario, purpose, model);
        if let Some(fabric) = &self.fabric {
            purpose::look_at(fabric, &self.scenario, purpose, &mut idle);
        }
        purpose::written(&self.tree, &idle)
    }

    /// The loads of the synthetic traffic, what is looked at first, each with the flows of its
    /// pattern or its file; a collective has none.
    pub fn loads(&self) -> Result<Vec<(&Load, Vec<Flow>)>, Problems> {
        let Some(traffic) = &self.scenario.traffic else { return Ok(Vec::new()) };
        let nics = u32::try_from(self.fabric().nics()).expect("node ids have 32 bits");
        let draw = |number: u64, load| {
            let random = Random::new(self.scenario.seed, "pattern", number);
            pattern::flows(load, &self.surroundings(load), random)
        };
        let first = match (&self.flows, &traffic.flows) {
            (Some(table), _) => table.flows(nics)?,
            (None, Some(file)) => flows::read(&self.path("traffic.flows", file), nics)?,
            (None, None) => draw(0, &traffic.load),
        };
        let others = (1..).zip(&traffic.background);
        let others = others.map(|(number, load)| (load, draw(number, load)));
        Ok(std::iter::once((&traffic.load, first)).chain(others).collect())
    }

    /// What a load of the synthetic traffic has around it.
    pub fn surroundings(&self, load: &Load) -> Surroundings {
        surroundings::of(self.fabric(), &self.scenario, load)
            .expect("its model was found when it was loaded")
    }

    /// The earlier flows that a flow of the first load waits for, by their numbers.
    pub fn after(&self, flow: usize) -> &[u32] {
        self.flows.as_ref().map_or(&[], |table| table.after(flow))
    }

    /// The same scenario with another seed.
    pub fn with_seed(&self, seed: u64) -> Self {
        let mut other = self.clone();
        other.scenario.seed = seed;
        for member in &mut other.members {
            member.loaded.scenario.seed = seed;
        }
        if let Some(beside) = &mut other.beside {
            beside.scenario.seed = seed;
        }
        other
    }

    /// What to call the scenario above tables: its name, or else what was asked for.
    pub fn title(&self) -> String {
        let name = &self.scenario.name;
        if name.is_empty() { self.input.clone() } else { name.clone() }
    }

    /// Whether there is a fabric: the scenario was loaded whole.
    pub fn is_whole(&self) -> bool {
        self.fabric.is_some()
    }

    /// The fabric. Only a scenario that was loaded whole has one.
    pub fn fabric(&self) -> &Fabric {
        self.fabric.as_deref().expect("a scenario that was loaded whole has a fabric")
    }

    /// The network's settings as they were written, obeyed by this purpose or not.
    pub fn network_as_written(&self) -> &NetworkConfig {
        &self.network
    }

    /// The same fabric with the circuits of several settings in place of its own.
    pub fn fabric_with_circuits(&self, settings: &[Setting]) -> Result<Fabric, Problem> {
        let directory = |key: &str| self.path(key, "");
        meaning::with_circuits(&self.scenario, directory, settings)
            .map_err(|message| self.problem("fabric.circuits", message))
    }

    /// Every resolved value and where it came from, in the order of the settings' structs.
    /// Catalogue entries are left out unless somebody outside the catalogue touched them.
    pub fn resolved(&self) -> Vec<Resolved> {
        let json = serde_json::to_value(&self.scenario).expect("it came from JSON");
        let mut leaves = Vec::new();
        flatten(&json, "", &mut leaves);
        let mut resolved = Vec::new();
        for (key, value) in leaves {
            let origin = self.origin(&key);
            if key.starts_with("catalogue") && origin.layer <= Layer::Catalogue {
                continue;
            }
            resolved.push(Resolved { value, origin: self.describe(origin), key });
        }
        resolved
    }

    /// Where the value of a key came from: `my.toml:12`, `preset x:3`, `--set`, `default`.
    pub fn origin_of(&self, key: &str) -> String {
        self.describe(self.origin(key))
    }

    /// Whether somebody has set a key, rather than left it at its default.
    pub fn is_given(&self, key: &str) -> bool {
        self.origin(key).layer != Layer::Default
    }

    /// What a file has left to the preset that it starts from although it says itself what
    /// cluster, model or layout there is: the preset chose these keys of `[job.parallel]` and
    /// `[fabric]` for its own. As in "small-128: sharding fsdp, radix 32".
    pub fn inherited(&self) -> Option<String> {
        if !SIZES.iter().any(|key| self.origin(key).layer == Layer::File) {
            return None;
        }
        let kept = |one: &Resolved| {
            let key = one.key.strip_prefix("job.parallel.");
            let key = key.or_else(|| one.key.strip_prefix("fabric.")).filter(|_| {
                !SIZES.contains(&one.key.as_str()) && self.origin(&one.key).layer == Layer::Preset
            })?;
            Some((one.origin.clone(), format!("{key} {}", one.value.replace('"', ""))))
        };
        let (origins, keys): (Vec<String>, Vec<String>) =
            self.resolved().iter().filter_map(kept).unzip();
        let preset = origins.first()?.trim_start_matches("preset ").split(':').next()?;
        Some(format!("{preset}: {}", keys.join(", ")))
    }

    /// What flags have set, and nothing else.
    pub fn set_by_flags(&self) -> Json {
        self.set_by(|layer| layer == Layer::Flag)
    }

    /// What presets, files, the environment and flags have set together: without `from`, for it is
    /// all there, and without published figures.
    pub fn given(&self) -> Json {
        let mut given = self.set_by(|layer| Layer::Catalogue < layer);
        if let Json::Object(fields) = &mut given {
            fields.retain(|key, _| !["from", "reported"].contains(&key.as_str()));
            fields.insert("seed".to_owned(), self.scenario.seed.into());
        }
        given
    }

    fn set_by(&self, is_wanted: impl Fn(Layer) -> bool) -> Json {
        fn picked(node: &Node, is_wanted: &dyn Fn(Layer) -> bool) -> Option<Json> {
            let Some(table) = node.as_table() else {
                return is_wanted(node.origin.layer).then(|| node.to_json());
            };
            let inner = |(key, entry): (&String, &Entry)| {
                Some((key.clone(), picked(&entry.node, is_wanted)?))
            };
            let fields: serde_json::Map<_, _> = table.iter().filter_map(inner).collect();
            (!fields.is_empty()).then_some(Json::Object(fields))
        }
        let empty = || Json::Object(serde_json::Map::new());
        picked(&self.tree, &is_wanted).unwrap_or_else(empty)
    }

    /// A path that a setting names, relative to the file in which it was written.
    pub fn path(&self, key: &str, value: &str) -> PathBuf {
        let directory =
            self.origin(key).place.and_then(|(id, _, _)| self.sources.get(id).directory.clone());
        directory.unwrap_or_default().join(value)
    }

    /// A problem with the value of a key, found after loading, shown where it was written.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> Problem {
        let problem = Problem::error(message).with_key(key);
        match self.origin(key).place {
            Some((id, start, end)) => {
                problem.at(self.sources.get(id), start..end, "because of this")
            }
            None => problem,
        }
    }

    fn origin(&self, key: &str) -> Origin {
        self.tree.at(key).map_or(Origin::DEFAULT, |node| node.origin)
    }

    fn describe(&self, origin: Origin) -> String {
        let Some((id, start, _)) = origin.place else { return "default".to_owned() };
        let source = self.sources.get(id);
        match origin.layer {
            Layer::Environment | Layer::Flag => source.name.to_string(),
            _ => format!("{}:{}", source.name, source.line_and_column(start).0),
        }
    }
}

/// Whether a table, or a list that is not empty, stands under a key.
fn is_there(node: &Node, key: &str) -> bool {
    node.at(key).is_some_and(|node| !matches!(&node.value, Value::List(items) if items.is_empty()))
}

/// Problems of a job that is one of several: their keys are its own.
fn of_entry(mut problems: Problems, at: usize) -> Problems {
    for problem in &mut problems.0 {
        let message = problem.message.replace("`job.", &format!("`jobs.{at}."));
        problem.message = message.replace("`traffic.", &format!("`jobs.{at}.traffic."));
        problem.key = match problem.key.split_once('.') {
            Some(("job", rest)) => format!("jobs.{at}.{rest}"),
            Some(("traffic", rest)) => format!("jobs.{at}.traffic.{rest}"),
            _ => continue,
        };
    }
    problems
}

/// Problems in the order of the texts that they stand in.
fn in_order(mut problems: Vec<Problem>) -> Problems {
    problems.sort_by_key(|problem| {
        let place = problem.place.as_ref();
        place.map(|place| (place.source.name.to_string(), place.span.start))
    });
    Problems(problems)
}

/// Whether one path is another or lies below it.
fn is_inside(path: &str, home: &str) -> bool {
    path.strip_prefix(home).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Finds what a name means: a preset, or a file (relative to the file that names it).
fn open(name: &str, directory: Option<&Path>) -> Result<(Layer, Source), Problem> {
    if let Some(text) = preset::text(name) {
        return Ok((Layer::Preset, Source::new(format!("preset {name}"), text)));
    }
    let path = directory.unwrap_or(Path::new("")).join(name);
    let looks_like_a_path = name == "-" || name.contains(['/', '\\', '.']);
    if !looks_like_a_path && !path.exists() {
        return Err(preset::unknown(name));
    }
    let path = if name == "-" { PathBuf::from("-") } else { path };
    read(&path).map(|source| (Layer::File, source))
}

/// What tells a source from all others: a file may be reached by several paths.
fn identity(source: &Source) -> String {
    let path = Path::new(&*source.name);
    let canonical = source.directory.as_ref().and_then(|_| path.canonicalize().ok());
    canonical.map_or(source.name.to_string(), |path| path.display().to_string())
}

/// The keys that may name a file.
pub const FILE_KEYS: [&str; 4] =
    ["cluster.server_file", "fabric.file", "job.model", "traffic.flows"];

/// The same of each of several jobs.
const FILES_OF_JOBS: [&str; 4] = ["model", "nodes", "placement", "traffic.flows"];

/// So much of a named file counts.
const MAX_NAMED_BYTES: u64 = 1 << 30;

/// The scenario without what does not change a result, with the contents of its files.
fn identity_json(
    scenario: &ScenarioFile,
    tree: &Node,
    contents: &[(String, ScenarioHash)],
) -> Json {
    let without_catalogue = ScenarioFile { catalogue: Catalogue::default(), ..scenario.clone() };
    let mut json = serde_json::to_value(without_catalogue).expect("it came from JSON");
    let fields = json.as_object_mut().expect("the root is a table");
    for key in ["name", "description", "from", "reported", "catalogue"] {
        fields.remove(key);
    }
    let mut words = Vec::new();
    collect_words(&Json::Object(fields.clone()), &mut words);
    let used = |kind: &str, name: &str, entry: &Entry| {
        let key = join(&join("catalogue", kind), name);
        let touched = tree.at(&key).is_some_and(|node| Layer::Catalogue < node.origin.layer);
        (touched || words.iter().any(|word| word == name)).then(|| (key, entry.node.to_json()))
    };
    let kinds = tree.at("catalogue").and_then(Node::as_table);
    for (kind, entries) in kinds.into_iter().flatten() {
        let entries = entries.node.as_table().into_iter().flatten();
        let entries = entries.filter_map(|(name, entry)| used(kind, name, entry));
        fields.extend(entries.collect::<Vec<_>>());
    }
    for (key, content) in contents {
        fields.insert(format!("{key} content"), content.to_string().into());
    }
    json
}

/// All texts in a value.
pub(crate) fn collect_words(json: &Json, words: &mut Vec<String>) {
    match json {
        Json::String(word) => words.push(word.clone()),
        Json::Array(items) => items.iter().for_each(|item| collect_words(item, words)),
        Json::Object(fields) => fields.values().for_each(|value| collect_words(value, words)),
        _ => {}
    }
}

/// The leaves of a value, with their paths; lists of plain values are leaves.
fn flatten(json: &Json, path: &str, leaves: &mut Vec<(String, String)>) {
    match json {
        Json::Object(fields) => {
            for (key, value) in fields {
                flatten(value, &join(path, key), leaves);
            }
        }
        Json::Array(items) if items.iter().any(Json::is_object) => {
            for (index, item) in items.iter().enumerate() {
                flatten(item, &join(path, &index.to_string()), leaves);
            }
        }
        Json::Null => {}
        leaf => leaves.push((path.to_owned(), leaf.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every process relies on: the check of the embedded catalogue finds and changes nothing.
    #[test]
    fn embedded_hardware_needs_no_check() {
        let mut loader = Loader::new();
        for node in loader.parsed_catalogue(preset::hardware().collect()) {
            let mut checked = node.clone();
            let Checked { problems, dropped } =
                check(&mut checked, &loader.merged, loader.schema, &loader.sources);
            assert!(problems.is_empty() && dropped.is_empty(), "{problems:?}, {dropped:?}");
            assert_eq!(format!("{checked:?}"), format!("{node:?}"));
            merge(&mut loader.merged, node, loader.schema);
        }
        assert!(loader.problems.is_empty(), "{:?}", loader.problems);
    }
}
