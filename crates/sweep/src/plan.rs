//! The plan: every case of a grid, each with its identity.
//!
//! A case is its content hash: of the resolved scenario with the contents of its files, the engine
//! and fatflow's version. Two cases that come to the same scenario have one hash and are run once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use commands::{Failure, VERSION, parallel};
use report::number::grouped;
use scenario::hash::hash_bytes;
use scenario::load::FILE_KEYS;
use scenario::{Assigned, Engine, Extent, Fabrics, Identities, Loaded, Problems, Purpose};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::axis::{Axis, Levels};
use crate::grid::{ENGINE, FROM, Grid, engine_named};
use crate::sample::{self, Combination, Drawn, MOST_CASES, Method, Sample};
use crate::show::{SCALING_MEASURES, STEP_ENDS};
use crate::store;

/// What is kept of a training step if nobody says.
const JOB_MEASURES: [&str; 12] = [
    "step_s",
    "mfu",
    "cost.usd_per_million_tokens",
    "cost.capital_usd",
    "cost.network_capital_usd",
    "exposed_communication",
    "tokens_per_s",
    "tflops_per_gpu",
    "links.max_utilisation",
    "goodput",
    STEP_ENDS[0],
    STEP_ENDS[1],
];

/// What is kept of synthetic traffic if nobody says.
const TRAFFIC_MEASURES: [&str; 6] = [
    "makespan_s",
    "goodput_bps",
    "fct_s.p50",
    "fct_s.p99",
    "links.max_utilisation",
    "links.imbalance",
];

/// Who wants to hear how many cases of how many are planned.
pub type Planned<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// So many cases are planned from one word about it to the next.
const PLANNED_AT_ONCE: usize = 1000;

/// Every case of a grid. It is data alone: [`exec`](crate::exec()) needs the grid beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What a reader must know before the cases.
    pub head: Head,
    /// The cases, in their order.
    pub cases: Vec<Case>,
}

/// What a reader of a plan must know before its cases.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Head {
    /// The version of fatflow that made it.
    pub fatflow: String,
    /// The identity of the whole: of all cases and measures.
    pub plan: String,
    /// How many cases there are.
    pub cases: usize,
    /// The axes, in the order of the grid.
    pub axes: Vec<String>,
    /// What is kept of each result: keys of the result's JSON.
    pub measures: Vec<String>,
    /// Combinations that a condition has refused.
    pub refused: u64,
    /// The identity of the grid that it was made from, where that alone decides the plan.
    pub grid: Option<String>,
    /// What its cases start from.
    #[serde(default)]
    pub from: Vec<String>,
    /// What is the same in all cases, as `--set` takes it.
    #[serde(default)]
    pub set: Vec<String>,
    /// What must be known of the number of cases and of what they have in common.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its number, from 0.
    pub index: usize,
    /// Its identity.
    pub hash: String,
    /// The engine that runs it.
    pub engine: Engine,
    /// The scenario's seed.
    pub seed: u64,
    /// Its value of each axis.
    pub values: Vec<Json>,
    /// What it sets, axis by axis; what it starts from is `from`.
    pub set: Vec<Assigned>,
    /// Which of the grid's scenarios it starts from.
    base: usize,
}

/// A case as one line of a file.
#[derive(Deserialize, Serialize)]
struct Line {
    case: usize,
    hash: String,
    engine: String,
    seed: u64,
    values: Vec<Json>,
    set: Vec<(String, Json)>,
}

impl Case {
    /// What it sets, as `--set` takes it.
    pub fn assignments(&self) -> Vec<String> {
        self.set.iter().map(assignment).collect()
    }
}

/// A value of a key as `--set` takes it.
fn assignment(set: &Assigned) -> String {
    match &set.value {
        Json::String(word) => format!("{}={word}", set.key),
        value => format!("{}={}", set.key, inline(value)),
    }
}

/// A value as TOML has it.
fn inline(value: &Json) -> String {
    match value {
        Json::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key} = {}", inline(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Json::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

impl Grid {
    /// Lists every case and computes its hash, on so many threads.
    pub fn plan(&self, threads: usize) -> Result<Plan, Failure> {
        self.plan_with(threads, &|_, _| {})
    }

    /// The same for whoever wants to hear how many cases of how many are planned.
    pub fn plan_with(&self, threads: usize, progress: Planned<'_>) -> Result<Plan, Failure> {
        let Drawn { combinations, refused, twice } = self.drawn()?;
        if combinations.is_empty() {
            let reason = match refused {
                0 => "the grid has no cases".to_owned(),
                _ => format!("the conditions refuse all {refused} combinations"),
            };
            return Err(Failure::Run(reason));
        }
        let identities = self.identities();
        let (done, all) = (AtomicUsize::new(0), combinations.len());
        let numbered: Vec<(usize, Combination)> = combinations.into_iter().enumerate().collect();
        let cases = parallel::map(threads, &numbered, |(index, combination)| {
            let case = self.case(*index, combination, &identities);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(PLANNED_AT_ONCE) {
                progress(done, all);
            }
            case
        });
        let measures = self.kept();
        let mut identity = measures.join(",");
        for case in &cases {
            identity += &case.hash;
        }
        let head = Head {
            fatflow: VERSION.to_owned(),
            plan: hash_bytes(identity.as_bytes()).to_string(),
            cases: cases.len(),
            axes: self.axes.iter().map(|axis| axis.name.clone()).collect(),
            measures,
            refused,
            grid: self.identity(),
            from: self.bases.iter().map(|(name, _)| name.clone()).collect(),
            set: self.fixed.iter().map(assignment).collect(),
            remarks: self.remarks(cases.len(), refused, twice),
        };
        Ok(Plan { head, cases })
    }

    /// The plan that a folder holds if this grid made it, or else a new one: a thousand shards need
    /// not compute the same hashes.
    pub fn planned(&self, out: &Path, threads: usize) -> Result<Plan, Failure> {
        self.planned_with(Plan::find(out)?, threads)
    }

    /// The same with a plan that was found.
    pub fn planned_with(&self, kept: Option<Plan>, threads: usize) -> Result<Plan, Failure> {
        let kept = kept.filter(|kept| kept.head.fatflow == VERSION);
        let kept = kept.filter(|kept| kept.head.grid.is_some());
        let Some(mut plan) = kept.filter(|kept| kept.head.grid == self.identity()) else {
            return self.plan(threads);
        };
        for case in &mut plan.cases {
            case.base = self.base(case.set.iter());
        }
        Ok(plan)
    }

    /// What decides the plan: the grid, and what its cases start from with all files they name. A
    /// grid whose axes name files is not decided by its text.
    fn identity(&self) -> Option<String> {
        let names_file = |key: &str| {
            let home = |file: &&str| file.split('.').next() == Some(key);
            FILE_KEYS.contains(&key) || FILE_KEYS.iter().any(home)
        };
        let fixed = self.fixed.iter().map(|set| set.key.as_str());
        if self.axes.iter().flat_map(Axis::keys).chain(fixed).any(names_file) {
            return None;
        }
        let mut text = format!("{} {VERSION}\n{}", self.engine.name(), self.source.text);
        for (name, base) in &self.bases {
            let hash = base.hash(&[]).ok()?;
            text += &format!("{name} {hash}\n");
        }
        Some(hash_bytes(text.as_bytes()).to_string())
    }

    fn drawn(&self) -> Result<Drawn, Failure> {
        let admits = |combination: &Combination| {
            for condition in &self.conditions {
                let holds = condition.expression.holds(&|key| self.value(combination, key));
                let problem = |mistake| condition.problem(mistake, &self.source);
                if !holds.map_err(|mistake| Failure::from(problem(mistake)))? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match (&self.sample, sample::combinations(&self.axes)) {
            (Some(sample), _) => sample.draw(&self.axes, &admits),
            (None, Some(count)) if count <= MOST_CASES => sample::all(&self.axes, count, &admits),
            (None, _) => Err(Failure::Run(format!(
                "the grid has more than {MOST_CASES} combinations; draw some with `[sample]`"
            ))),
        }
    }

    /// What must be known of the number of cases and of what they have in common.
    fn remarks(&self, cases: usize, refused: u64, twice: u64) -> Vec<String> {
        let number = |count: u64| grouped(count);
        let mut remarks = Vec::new();
        if let Some(Sample { method, count, .. }) = self.sample
            && cases < count
        {
            let (cases, wanted) = (number(cases as u64), number(count as u64));
            let mut why = Vec::new();
            match sample::combinations(&self.axes) {
                Some(all) if method == Method::Random => {
                    why.push(format!("the axes have {} combinations", number(all)));
                }
                _ if 0 < twice => why.push(format!("{} were drawn before", number(twice))),
                _ => {}
            }
            if 0 < refused {
                why.push(format!("conditions refuse {}", number(refused)));
            }
            let why = why.join(" and ");
            remarks.push(format!("`[sample]` asks for {wanted} cases and gets {cases}: {why}."));
        }
        remarks.extend(self.same_hardware());
        remarks
    }

    /// A transport is no hardware: what stays where it varies.
    fn same_hardware(&self) -> Option<String> {
        let varies = |key: &str| self.axes.iter().any(|axis| axis.keys().contains(&key));
        if !varies("network.transport") || varies(FROM) {
            return None;
        }
        let (_, base) = &self.bases[0];
        let fixed = |key: &str| self.fixed.iter().find(|set| set.key == key);
        let value = |key: &str| fixed(key).map(|set| set.value.clone()).or_else(|| base.value(key));
        let mut stays = Vec::new();
        for (what, key) in [("NIC", "cluster.nic"), ("switches", "fabric.switch")] {
            if !varies(key) {
                let name = value(key).and_then(|name| name.as_str().map(str::to_owned));
                let name = name.map(|name| format!(" {name}")).unwrap_or_default();
                stays.push(format!("the {what}{name} (`{key}`)"));
            }
        }
        (!stays.is_empty()).then(|| {
            format!(
                "`network.transport` changes what is done with packets, not the hardware: all \
                 cases have {}. To change both, bind them in one axis.",
                stays.join(" and ")
            )
        })
    }

    /// What a key is in a combination: an axis's value, or what the scenario has.
    fn value(&self, combination: &Combination, key: &str) -> Option<Json> {
        let axis = self.axes.iter().position(|axis| axis.name == key);
        let set = || combination.iter().flat_map(|level| &level.set);
        let own = set().find(|set| set.key == key).map(|set| set.value.clone());
        let own = own.or_else(|| axis.map(|at| combination[at].label.clone()));
        let fixed = || self.fixed.iter().find(|set| set.key == key).map(|set| set.value.clone());
        own.or_else(fixed).or_else(|| self.bases[self.base(set())].1.value(key))
    }

    /// Which scenario these start from.
    fn base<'a>(&self, mut set: impl Iterator<Item = &'a Assigned>) -> usize {
        let from = set.find(|set| set.key == FROM).and_then(|set| set.value.as_str());
        from.and_then(|name| self.bases.iter().position(|(known, _)| known == name)).unwrap_or(0)
    }

    /// The identities of the cases of each scenario that they start from.
    fn identities(&self) -> Vec<Identities<'_>> {
        let mut values: BTreeMap<String, Vec<Json>> = BTreeMap::new();
        for axis in &self.axes {
            let levels = match &axis.levels {
                Levels::List(levels) => levels.clone(),
                Levels::Between { .. } => vec![axis.at(0.0), axis.at(1.0)],
            };
            for set in levels.into_iter().flat_map(|level| level.set) {
                if ![ENGINE, FROM].contains(&set.key.as_str()) {
                    values.entry(set.key).or_default().push(set.value);
                }
            }
        }
        let bases = self.bases.iter();
        bases.map(|(_, base)| Identities::new(base, self.fixed.clone(), &values)).collect()
    }

    fn case(&self, index: usize, combination: &Combination, known: &[Identities<'_>]) -> Case {
        let values = combination.iter().map(|level| level.label.clone()).collect();
        let all = || combination.iter().flat_map(|level| &level.set);
        let engine = all().find(|set| set.key == ENGINE).map(|set| engine_named(&set.value));
        let engine = engine.and_then(Result::ok).unwrap_or(self.engine);
        let base = self.base(all());
        let set: Vec<Assigned> = all().filter(|set| set.key != ENGINE).cloned().collect();
        let seed = set.iter().find(|set| set.key == "seed").map(|set| set.value.clone());
        let seed =
            seed.or_else(|| self.fixed.iter().find(|s| s.key == "seed").map(|s| s.value.clone()));
        let seed = seed.or_else(|| self.bases[base].1.value("seed")).and_then(|seed| seed.as_u64());
        let seed = seed.unwrap_or(0);
        let mut case = Case { index, hash: String::new(), engine, seed, values, set, base };
        case.hash = self.hash(&case, &known[base]);
        case
    }

    /// The identity of a case. What cannot even be read is told apart by what was written.
    fn hash(&self, case: &Case, known: &Identities<'_>) -> String {
        let own = case.set.iter().filter(|set| set.key != FROM);
        let scenario = match known.hash(&own.cloned().collect::<Vec<_>>()) {
            Ok(hash) => hash.to_string(),
            Err(_) => format!("{} {}", self.bases[case.base].0, case.assignments().join(" ")),
        };
        let text = format!("{scenario} {} {VERSION}", case.engine.name());
        hash_bytes(text.as_bytes()).to_string()
    }

    /// The scenario of a case.
    pub(crate) fn load(&self, case: &Case, fabrics: &Fabrics) -> Result<Loaded, Problems> {
        let purpose = Purpose::Run(case.engine);
        self.bases[case.base].1.load(&self.assigned(case), (Extent::Whole, purpose), fabrics)
    }

    /// What a case lays over its scenario.
    fn assigned(&self, case: &Case) -> Vec<Assigned> {
        let own = case.set.iter().filter(|set| set.key != FROM);
        self.fixed.iter().chain(own).cloned().collect()
    }

    /// What is kept of each result.
    fn kept(&self) -> Vec<String> {
        let mut measures = match &self.measures {
            Some(measures) => measures.iter().map(|(name, _)| name.clone()).collect(),
            None => self.usual(),
        };
        // Where the cluster grows, people ask how throughput grows with it.
        let grows = |key: &str| ["cluster.gpus", "cluster.nodes", "job.gpus"].contains(&key);
        let has_job = self.bases.iter().all(|(_, base)| base.value("job").is_some());
        if has_job && self.axes.iter().any(|axis| axis.keys().into_iter().any(grows)) {
            for name in SCALING_MEASURES {
                if !measures.iter().any(|known| known == name) {
                    measures.push(name.to_owned());
                }
            }
        }
        measures
    }

    /// What is kept if nobody says.
    fn usual(&self) -> Vec<String> {
        let has = |key: &str| self.bases.iter().any(|(_, base)| base.value(key).is_some());
        let job = if has("job") { &JOB_MEASURES[..] } else { &[] };
        let traffic = if has("traffic") { &TRAFFIC_MEASURES[..] } else { &[] };
        let both = if job.is_empty() && traffic.is_empty() { &JOB_MEASURES[..] } else { job };
        let mut measures: Vec<String> = Vec::new();
        for name in both.iter().chain(traffic) {
            if !measures.iter().any(|known| known == name) {
                measures.push((*name).to_owned());
            }
        }
        measures
    }
}

/// The file of a plan in a folder of results: the head, and a line for each case.
const FILE: &str = "plan.jsonl";

impl Plan {
    /// Keeps the plan in a folder, whole or not at all.
    pub fn write(&self, out: &Path) -> Result<(), Failure> {
        store::replace(&out.join(FILE), self.text()?.as_bytes())
    }

    /// The plan as a file has it.
    pub fn text(&self) -> Result<String, Failure> {
        let mut text = serde_json::to_string(&self.head).map_err(unwritten)? + "\n";
        for case in &self.cases {
            let set = case.set.iter().map(|set| (set.key.clone(), set.value.clone())).collect();
            let line = Line {
                case: case.index,
                hash: case.hash.clone(),
                engine: case.engine.name().to_owned(),
                seed: case.seed,
                values: case.values.clone(),
                set,
            };
            text += &serde_json::to_string(&line).map_err(unwritten)?;
            text.push('\n');
        }
        Ok(text)
    }

    /// In what another plan differs from this one, in words; nothing if it is the same.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        if self.head.plan == other.head.plan {
            return Vec::new();
        }
        let engines = |plan: &Self| -> Vec<String> {
            let names: BTreeSet<&str> = plan.cases.iter().map(|case| case.engine.name()).collect();
            names.into_iter().map(str::to_owned).collect()
        };
        let [mine, theirs] =
            [self, other].map(|plan| (plan.head.from.clone(), plan.head.set.clone()));
        // Plans of before do not say.
        let ((from, set), (other_from, other_set)) =
            if mine.0.is_empty() { (theirs.clone(), theirs) } else { (mine, theirs) };
        let lists = [
            ("fatflow", vec![self.head.fatflow.clone()], vec![other.head.fatflow.clone()]),
            ("from", from, other_from),
            ("[set]", set, other_set),
            ("engine", engines(self), engines(other)),
            ("axes", self.head.axes.clone(), other.head.axes.clone()),
            ("measures", self.head.measures.clone(), other.head.measures.clone()),
        ];
        let mut differences: Vec<String> = Vec::new();
        for (what, here, there) in lists.iter().filter(|(_, here, there)| here != there) {
            let [here, there] = [here, there].map(|list| match &list[..] {
                [] => "nothing".to_owned(),
                list => list.join(", "),
            });
            differences.push(format!("{what}: {here} there, {there} here"));
        }
        let known: BTreeSet<&str> = self.cases.iter().map(|case| &*case.hash).collect();
        let same = other.cases.iter().filter(|case| known.contains(&*case.hash)).count();
        let (here, there) = (self.cases.len(), other.cases.len());
        if same < here.max(there) {
            let is_unexplained = differences.is_empty() && here == there;
            let text = format!("cases: {here} there, {there} here, {same} of them the same");
            differences.push(text);
            if is_unexplained {
                differences.push(
                    "values of an axis, a file that they start from, or flags and environment"
                        .to_owned(),
                );
            }
        }
        if differences.is_empty() {
            differences.push("the order of the cases".to_owned());
        }
        differences
    }

    /// Refuses a folder that holds another plan, and says in what they differ and how it can be
    /// taken all the same.
    pub fn refuse_another(&self, out: &Path, way: &str) -> Result<(), Failure> {
        let kept = Self::find(out)?;
        let differences = kept.map(|kept| kept.differences(self)).unwrap_or_default();
        if differences.is_empty() {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "`{}` holds the sweep of another grid ({}); name another folder, or take this one with \
             {way}: grid.toml, plan.jsonl and results.parquet become this grid's, and all results \
             stay",
            out.display(),
            differences.join("; ")
        )))
    }

    /// The plan of a folder; a folder without one is an error.
    pub fn read(out: &Path) -> Result<Self, Failure> {
        Self::find(out)?.ok_or_else(|| {
            let folder = out.display();
            Failure::Run(format!("`{folder}` holds no sweep; `fatflow sweep run` makes one"))
        })
    }

    /// The plan of a folder, if it has one.
    pub fn find(out: &Path) -> Result<Option<Self>, Failure> {
        let path = out.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(store::failed("read", &path, &error)),
        };
        Self::parse(&text, &path.display().to_string()).map(Some)
    }

    /// Reads the text of a plan, which is called so.
    pub fn parse(text: &str, name: &str) -> Result<Self, Failure> {
        let wrong = |number: usize, reason: String| {
            Failure::Run(format!("{name}:{number}: {reason}; plan again"))
        };
        let mut lines = (1..).zip(text.lines());
        let (_, first) = lines.next().ok_or_else(|| wrong(1, "the file is empty".to_owned()))?;
        let head: Head = serde_json::from_str(first).map_err(|e| wrong(1, e.to_string()))?;
        let mut cases = Vec::with_capacity(head.cases.min(MOST_CASES as usize));
        for (number, line) in lines {
            let line: Line =
                serde_json::from_str(line).map_err(|e| wrong(number, e.to_string()))?;
            let engine = engine_named(&Json::from(line.engine));
            let engine = engine.map_err(|problem| wrong(number, problem.message))?;
            let assigned = |(key, value)| Assigned { key, value, span: 0..0, key_span: 0..0 };
            cases.push(Case {
                index: line.case,
                hash: line.hash,
                engine,
                seed: line.seed,
                values: line.values,
                set: line.set.into_iter().map(assigned).collect(),
                base: 0,
            });
        }
        if cases.len() != head.cases {
            let reason = format!("{} of {} cases are there", cases.len(), head.cases);
            return Err(wrong(cases.len() + 1, reason));
        }
        Ok(Self { head, cases })
    }
}

fn unwritten(error: serde_json::Error) -> Failure {
    Failure::Run(format!("cannot write the plan: {error}"))
}
