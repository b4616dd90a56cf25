//! Whether a scenario whose every value is well-formed also makes sense as a whole.
//!
//! Each crate knows what its own settings require of each other and of their surroundings, and
//! says so with the paths of the keys concerned; here those answers are collected.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use fabric::Fabric;
use fabric::fault::Faults;
use fabric::topology::circuits::Setting;
use fabric::topology::{self, ClusterConfig, ConfigError, FabricConfig, TopologyKind};
use job::memory::Overfull;
use job::placement::Policy;
use job::{Job, JobConfig, Site};
use traffic::pattern;
use units::{Bytes, OutOfRange};

use crate::file::ScenarioFile;
use crate::import::{self, Hints, ImportError};
use crate::limits;
use crate::model;
use crate::nearest::nearest;

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
    pub fabric: Option<Fabric>,
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
    /// Builds the fabric and checks the job. `directory` names the folder to which the path in a
    /// key is relative.
    pub fn of(scenario: &ScenarioFile, directory: impl Fn(&str) -> PathBuf) -> Self {
        let mut meaning = Self { findings: check_reported(scenario), ..Self::default() };
        meaning.findings.extend(limits::check(scenario));
        match with_files(scenario, &directory) {
            Ok((cluster, fabric)) => {
                match topology::build(&cluster, &fabric, &scenario.catalogue) {
                    Ok(fabric) => {
                        meaning.add_faults(&fabric, scenario);
                        meaning.add_traffic(&fabric, scenario);
                        meaning.fabric = Some(fabric);
                    }
                    Err(errors) => meaning.findings.extend(errors.into_iter().map(of_fabric)),
                }
            }
            Err(findings) => meaning.findings.extend(findings),
        }
        if let (Some(job), Some(site)) = (&scenario.job, site(scenario, meaning.fabric.as_ref())) {
            meaning.add_job(job, &site, directory("job.model"));
            let placed = check_placement(job, &directory("job.placement.policy"));
            meaning.findings.extend(placed);
        }
        let gpu = scenario.catalogue.gpu.get(&scenario.cluster.gpu);
        if let (Some(job), Some(gpu)) = (&meaning.job, gpu) {
            let capacity = Bytes::new((gpu.memory_gb.value * 1e9) as u64);
            let full = job::memory::check(job, capacity).err().map(of_memory);
            meaning.findings.extend(full);
        }
        meaning
    }

    fn add_faults(&mut self, fabric: &Fabric, scenario: &ScenarioFile) {
        match Faults::new(fabric, &scenario.faults, "faults") {
            Ok(faults) => self.faults = faults,
            Err(errors) => self.findings.extend(errors.into_iter().map(of_fabric)),
        }
    }

    fn add_traffic(&mut self, fabric: &Fabric, scenario: &ScenarioFile) {
        let Some(traffic) = &scenario.traffic else { return };
        let nics = u32::try_from(fabric.nics()).expect("node ids have 32 bits");
        for (key, message) in pattern::check(traffic, nics, fabric.gpus() as u64) {
            let (reason, help) = split_suggestion(&message);
            let key = format!("traffic.{key}");
            let message = format!("`{key}`: {reason}");
            self.findings.push(Finding { keys: vec![key], depends_on: Vec::new(), message, help });
        }
        if scenario.job.is_some() {
            self.findings.push(Finding {
                keys: vec!["traffic".to_owned()],
                depends_on: Vec::new(),
                message: "a scenario has a `job` or `traffic`, not both".to_owned(),
                help: Some("keep one of them".to_owned()),
            });
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

/// Cluster and fabric, with what stands in the files that they name.
fn with_files<'a>(
    scenario: &'a ScenarioFile,
    directory: &impl Fn(&str) -> PathBuf,
) -> Result<(Cow<'a, ClusterConfig>, Cow<'a, FabricConfig>), Vec<Finding>> {
    let mut cluster = Cow::Borrowed(&scenario.cluster);
    let mut fabric = Cow::Borrowed(&scenario.fabric);
    let mut findings = Vec::new();
    let text = |key: &str, file: &str| import::read(&directory(key).join(file));
    if let Some(file) = &scenario.cluster.server_file {
        let key = "cluster.server_file";
        match text(key, file).and_then(|text| import::server(file, &text)) {
            Ok(server) => import::apply(&server, cluster.to_mut()),
            Err(error) => findings.push(of_file(key, &error)),
        }
    }
    if let (TopologyKind::File, None, Some(file)) = (fabric.topology, &fabric.graph, &fabric.file) {
        let key = "fabric.file";
        let hints = Hints { nics_per_node: cluster.nics_per_node };
        match text(key, file).and_then(|text| import::graph(file, &text, hints)) {
            Ok(graph) => fabric.to_mut().graph = Some(graph),
            Err(error) => findings.push(of_file(key, &error)),
        }
    }
    if findings.is_empty() { Ok((cluster, fabric)) } else { Err(findings) }
}

/// The fabric with the circuits of several settings of its circuit switches in place of its own.
pub(crate) fn with_circuits(
    scenario: &ScenarioFile,
    directory: impl Fn(&str) -> PathBuf,
    settings: &[Setting],
) -> Result<Fabric, String> {
    let first = |findings: Vec<Finding>| findings.into_iter().map(|f| f.message).next();
    let (cluster, mut fabric) =
        with_files(scenario, &directory).map_err(|findings| first(findings).unwrap_or_default())?;
    fabric.to_mut().circuits.settings = settings.to_vec();
    topology::build(&cluster, &fabric, &scenario.catalogue)
        .map_err(|errors| first(errors.into_iter().map(of_fabric).collect()).unwrap_or_default())
}

fn of_file(key: &str, error: &ImportError) -> Finding {
    Finding {
        keys: vec![key.to_owned()],
        depends_on: Vec::new(),
        message: format!("`{key}`: {error}"),
        help: None,
    }
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
