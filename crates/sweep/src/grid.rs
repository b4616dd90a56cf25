//! The grid file: which scenarios to run, and what to keep of each.
//!
//! ```toml
//! from = "small-128"                     # a preset or a file
//! engine = "flow"
//! where = ["tp * network.routing.qps <= 64"]
//! budget = "30min"                       # on this machine; a plan that needs more is refused
//!
//! [set]                                  # the same in all cases
//! "job.batch.sequences" = 256
//!
//! [axes]
//! "network.routing.qps" = [1, 4, 16]
//! seed = { from = 0, to = 9 }
//! "network.packet.mtu" = ["1KiB", "4KiB"]
//! tp = [{ "job.parallel.tp" = 4, "job.parallel.dp" = 32 }, { "job.parallel.tp" = 8 }]
//!
//! [sample]
//! method = "latin-hypercube"             # or "random"
//! count = 100
//! seed = 1
//!
//! [keep]
//! measures = ["step_s", "mfu", "breakdown_s.dp"]
//! ```

use std::ops::Range;
use std::path::Path;

use commands::Failure;
use scenario::nearest::nearest;
use scenario::source::{self, Source};
use scenario::tree::{self, Node, Value};
use scenario::{Assigned, Base, Engine, Problem, Problems, Request, preset};
use serde_json::Value as Json;
use units::Span;

use crate::axis::{Axis, GridError, Levels, collect};
use crate::expression::{Expression, Mistake};
use crate::sample::{Method, Sample};
use crate::store;

/// A grid that was read: every key is known, every value has the right type.
#[derive(Debug)]
pub struct Grid {
    /// What varies, in the order of the file.
    pub axes: Vec<Axis>,
    /// How cases are drawn; all of them if nobody says.
    pub sample: Option<Sample>,
    /// What may be spent, on the clock of this machine.
    pub budget: Option<Span>,
    /// The file.
    pub source: Source,
    pub(crate) engine: Engine,
    pub(crate) fixed: Vec<Assigned>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) measures: Option<Vec<(String, Range<usize>)>>,
    /// What cases start from, by the name that the grid has for it.
    pub(crate) bases: Vec<(String, Base)>,
}

/// The keys of a grid.
const KEYS: [&str; 11] = [
    "name",
    "description",
    "from",
    "engine",
    "where",
    "budget",
    "set",
    "axes",
    "sample",
    "keep",
    "constraint",
];

/// Axes that are no scenario's keys.
pub(crate) const ENGINE: &str = "engine";
pub(crate) const FROM: &str = "from";

impl Grid {
    /// Reads a grid file. `request` says what flags and environment say: they lie over the
    /// scenario and below the axes.
    pub fn read(path: &Path, request: &Request) -> Result<Self, Failure> {
        Self::of(read(path)?, request)
    }

    /// The same with the folder that paths in it are relative to.
    pub fn read_from(path: &Path, folder: &Path, request: &Request) -> Result<Self, Failure> {
        Self::of(Source { directory: Some(folder.to_owned()), ..read(path)? }, request)
    }

    /// Reads a grid from a text; paths in it are relative to a folder.
    pub fn parse(text: &str, directory: &Path, request: &Request) -> Result<Self, Failure> {
        let directory = Some(directory.to_owned());
        Self::of(Source { directory, ..Source::new("grid", text) }, request)
    }

    fn of(source: Source, request: &Request) -> Result<Self, Failure> {
        let root = tree::parse(&source)?;
        let mut reader = Reader { source: &source, problems: Vec::new() };
        reader.refuse_unknown(&root, &KEYS, "a grid");
        let engine = root.at(ENGINE).map(|node| reader.kept(engine(node)));
        let axes = reader.axes(&root);
        let mut fixed = Vec::new();
        if let Some(set) = root.at("set") {
            collect("", 0..0, set, &mut |key, span, node| fixed.push(assigned(key, span, node)));
        }
        let conditions = reader.conditions(&root);
        let sample = root.at("sample").and_then(|node| reader.sample(node));
        let measures = root.at("keep").map(|node| reader.measures(node));
        let budget = root.at("budget").and_then(|node| reader.budget(node));
        let from = root.at(FROM).map(|node| (node.to_json(), node.origin.span()));
        reader.refuse_continuous(&axes, sample.as_ref());
        reader.refuse_twice(&axes, &fixed, &root);
        let mut problems = std::mem::take(&mut reader.problems);
        let bases = match bases(&source, &axes, from, request) {
            Ok(bases) => bases,
            Err(Failure::Input(more)) => {
                problems.extend(more.0);
                return Err(Failure::Input(Problems(problems)));
            }
            Err(failure) => return Err(failure),
        };
        let grid = Self {
            axes,
            sample,
            budget,
            engine: engine.flatten().unwrap_or_default(),
            fixed,
            conditions,
            measures,
            bases,
            source,
        };
        problems.extend(grid.problems(request));
        in_order(&mut problems);
        if problems.is_empty() { Ok(grid) } else { Err(Failure::Input(Problems(problems))) }
    }

    /// Runs every case on another engine; a grid with an axis of engines refuses.
    pub fn on_engine(&mut self, engine: Engine) -> Result<(), Failure> {
        if self.axes.iter().any(|axis| axis.keys().contains(&ENGINE)) {
            let message = "`--engine` does nothing here: the grid has an axis of engines";
            return Err(Failure::Usage(message.to_owned()));
        }
        self.engine = engine;
        Ok(())
    }

    /// Keeps a copy of the file in a folder of results.
    pub fn write(&self, out: &Path) -> Result<(), Failure> {
        store::replace(&out.join("grid.toml"), self.source.text.as_bytes())
    }

    /// What is wrong with single values: they are laid over the scenario one by one.
    fn problems(&self, request: &Request) -> Vec<Problem> {
        let mut problems = Vec::new();
        let (_, base) = &self.bases[0];
        problems.extend(base.check(&self.fixed));
        for axis in &self.axes {
            let set = match &axis.levels {
                Levels::List(levels) => levels.iter().map(|level| level.set.clone()).collect(),
                Levels::Between { .. } => vec![axis.at(0.0).set, axis.at(1.0).set],
            };
            for set in set {
                let mut own = Vec::new();
                for assigned in set {
                    match assigned.key.as_str() {
                        ENGINE => problems.extend(
                            engine_named(&assigned.value)
                                .err()
                                .map(|p| p.at(&self.source, assigned.span.clone(), "here")),
                        ),
                        FROM => {}
                        _ => own.push(assigned),
                    }
                }
                problems.extend(base.check(&own));
            }
            let flag = axis.keys().into_iter().find(|key| {
                let is_it = |set: &String| set.split('=').next().is_some_and(|k| k.trim() == *key);
                request.set.iter().any(is_it) || (*key == "seed" && request.seed.is_some())
            });
            if let Some(key) = flag {
                let message = format!("`{key}` is set by a flag and is an axis of the grid");
                let problem = Problem::error(message).with_help("leave out one of them");
                problems.push(problem.at(&self.source, axis.span.clone(), "the axis"));
            }
        }
        problems.extend(self.check_conditions());
        problems
    }

    /// Conditions name axes or keys that have a value, and compare what can be compared.
    fn check_conditions(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for condition in &self.conditions {
            let before = problems.len();
            for (key, at) in condition.expression.keys() {
                if self.values(key).is_empty() {
                    problems.push(condition.problem(self.no_such_key(key, at), &self.source));
                }
            }
            // What a key that is none should be compared with, nobody knows.
            if problems.len() == before {
                let mistakes = condition.expression.mistakes(&|key| self.values(key));
                let placed = mistakes.into_iter().map(|m| condition.problem(m, &self.source));
                problems.extend(placed);
            }
        }
        problems
    }

    /// All values that an axis or a key has in the cases; the ends of a continuous axis.
    fn values(&self, key: &str) -> Vec<Json> {
        let mut values: Vec<Json> = Vec::new();
        for axis in &self.axes {
            let is_named = axis.name == key && !axis.keys().contains(&key);
            let ends;
            let levels = match &axis.levels {
                Levels::List(levels) => levels,
                Levels::Between { .. } => {
                    ends = vec![axis.at(0.0), axis.at(1.0)];
                    &ends
                }
            };
            for level in levels {
                let own = level.set.iter().find(|set| set.key == key).map(|set| &set.value);
                values.extend(own.or(is_named.then_some(&level.label)).cloned());
            }
        }
        let fixed = self.fixed.iter().filter(|set| set.key == key);
        values.extend(fixed.map(|set| set.value.clone()));
        if values.is_empty() {
            values.extend(self.bases.iter().filter_map(|(_, base)| base.value(key)));
        }
        values
    }

    fn no_such_key(&self, key: &str, at: Range<usize>) -> Mistake {
        let names = self.axes.iter().flat_map(|axis| {
            let mut names = axis.keys();
            names.push(&axis.name);
            names
        });
        let near = nearest(key, names).map(|near| format!("did you mean `{near}`?"));
        // A word of an axis without its quotation marks.
        let is_word = || {
            let mut levels = self.axes.iter().flat_map(|axis| self.values(&axis.name));
            levels.any(|value| value.as_str() == Some(key))
        };
        let help = match near {
            None if is_word() => format!("texts stand in quotes: '{key}'"),
            None => "`fatflow schema` lists the keys".to_owned(),
            Some(near) => near,
        };
        let message = format!("`{key}` is no axis and no key with a value");
        Mistake { message, help: Some(help), at }
    }
}

/// Problems in the order of the file, each once: a key that is misspelt is so for all its values.
fn in_order(problems: &mut Vec<Problem>) {
    let begin = |problem: &Problem| problem.place.as_ref().map(|place| place.span.start);
    problems.sort_by_key(begin);
    problems.dedup_by(|a, b| a.message == b.message && begin(a) == begin(b));
    problems.truncate(100);
}

/// A condition, and where its text stands.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) expression: Expression,
    span: Range<usize>,
}

impl Condition {
    /// A mistake in it as a problem with its place.
    pub(crate) fn problem(&self, mistake: Mistake, source: &Source) -> Problem {
        let (problem, at) = placed(source, &self.expression.to_string(), &self.span, mistake);
        problem.at(source, at, "in this condition")
    }
}

/// A mistake in a text, and where in the file it stands: behind the quotation mark, or, where the
/// file writes the text otherwise (with escapes), the whole of it.
fn placed(
    source: &Source,
    text: &str,
    span: &Range<usize>,
    mistake: Mistake,
) -> (Problem, Range<usize>) {
    let Mistake { message, help, at } = mistake;
    let mut problem = Problem::error(message);
    problem.help = help;
    let written = source.text.get(span.clone()).and_then(|written| written.find(text));
    let place = match written {
        Some(begin) => span.start + begin + at.start..span.start + begin + at.end,
        None => span.clone(),
    };
    (problem, place)
}

/// Reads the file; what to do without one is not what the reader of scenarios says.
fn read(path: &Path) -> Result<Source, Problem> {
    let help = "`fatflow sweep run --help` shows a grid to start from";
    source::read(path).map_err(|problem| problem.with_help(help))
}

/// Reads what each case starts from, once for each name.
fn bases(
    source: &Source,
    axes: &[Axis],
    from: Option<(Json, Range<usize>)>,
    request: &Request,
) -> Result<Vec<(String, Base)>, Failure> {
    let mut names: Vec<(Json, Range<usize>)> = Vec::new();
    for axis in axes {
        let Levels::List(levels) = &axis.levels else { continue };
        let set = levels.iter().flat_map(|level| &level.set).filter(|set| set.key == FROM);
        names.extend(set.map(|set| (set.value.clone(), set.span.clone())));
    }
    if names.is_empty() {
        names.extend(from);
    }
    let mut bases: Vec<(String, Base)> = Vec::new();
    for (name, span) in &names {
        let Some(name) = name.as_str() else {
            let problem = Problem::error("`from` is the name of a preset or of a file");
            return Err(problem.at(source, span.clone(), "here").into());
        };
        if bases.iter().any(|(known, _)| known == name) {
            continue;
        }
        let request = Request { scenario: Some(located(source, name)), ..request.clone() };
        let placed = |problem: Problem| match problem.place {
            Some(_) => problem,
            None => problem.at(source, span.clone(), "named here"),
        };
        let base = Base::read(&request, source.clone())
            .map_err(|problems| Problems(problems.0.into_iter().map(placed).collect()))?;
        bases.push((name.to_owned(), base));
    }
    if bases.is_empty() {
        bases.push((String::new(), Base::read(request, source.clone())?));
    }
    Ok(bases)
}

/// A preset's name as it is, a file's relative to the grid.
fn located(source: &Source, name: &str) -> String {
    if preset::text(name).is_some() {
        return name.to_owned();
    }
    let path = source.directory.as_deref().unwrap_or(Path::new("")).join(name);
    // A word that is neither gets the loader's answer, with the nearest preset.
    if path.exists() || name.contains(['/', '\\', '.']) {
        path.display().to_string()
    } else {
        name.to_owned()
    }
}

fn assigned(key: &str, key_span: Range<usize>, node: &Node) -> Assigned {
    Assigned { key: key.to_owned(), value: node.to_json(), span: node.origin.span(), key_span }
}

/// The engine of a name.
pub(crate) fn engine_named(name: &Json) -> Result<Engine, Problem> {
    let word = name.as_str().unwrap_or_default();
    let found = Engine::ALL.into_iter().find(|engine| engine.name() == word);
    found.ok_or_else(|| {
        let names = Engine::ALL.map(Engine::name);
        let near = nearest(word, names).map(|near| format!("did you mean \"{near}\"? "));
        let help = format!("{}it is one of {}", near.unwrap_or_default(), names.join(", "));
        Problem::error(format!("there is no engine {name}")).with_help(help)
    })
}

fn engine(node: &Node) -> Result<Engine, GridError> {
    engine_named(&node.to_json()).map_err(|problem| (problem, node.origin.span()))
}

struct Reader<'a> {
    source: &'a Source,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn refuse(&mut self, problem: Problem, span: Range<usize>) {
        self.problems.push(problem.at(self.source, span, "here"));
    }

    /// What was read, or nothing and a problem.
    fn kept<T>(&mut self, read: Result<T, GridError>) -> Option<T> {
        read.map_err(|(problem, span)| self.refuse(problem, span)).ok()
    }

    fn refuse_unknown(&mut self, node: &Node, known: &[&str], home: &str) {
        let Some(table) = node.as_table() else {
            let problem = Problem::error(format!("{home} is a table"));
            return self.refuse(problem, node.origin.span());
        };
        for (key, entry) in table.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
            let near = nearest(key, known.iter().copied());
            let near = near.map(|near| format!("did you mean `{near}`?"));
            let help = near.unwrap_or_else(|| format!("it has {}", known.join(", ")));
            let problem = Problem::error(format!("there is no key `{key}` in {home}"));
            self.refuse(problem.with_help(help), entry.key.span());
        }
    }

    fn axes(&mut self, root: &Node) -> Vec<Axis> {
        let Some(node) = root.at("axes") else { return Vec::new() };
        let properties = scenario::schema().as_json().get("properties");
        let is_section = |key: &str| properties.is_some_and(|known| known.get(key).is_some());
        let mut found: Vec<(String, Range<usize>, &Node)> = Vec::new();
        collect("", 0..0, node, &mut |key, span, node| found.push((key.to_owned(), span, node)));
        found.sort_by_key(|(_, _, node)| node.origin.span().start);
        let mut axes = Vec::new();
        for (name, span, node) in found {
            let is_key = name.contains('.') || is_section(&name) || name == ENGINE;
            let axis = Axis::read(&name, span, node, !is_key);
            axes.extend(self.kept(axis));
        }
        axes
    }

    fn conditions(&mut self, root: &Node) -> Vec<Condition> {
        let mut texts: Vec<&Node> = Vec::new();
        match root.at("where").map(|node| (&node.value, node)) {
            Some((Value::List(items), _)) => texts.extend(items),
            Some((_, node)) => texts.push(node),
            None => {}
        }
        if let Some(Value::List(items)) = root.at("constraint").map(|node| &node.value) {
            for item in items {
                self.refuse_unknown(item, &["where"], "a constraint");
                texts.extend(item.at("where"));
            }
        }
        let mut conditions = Vec::new();
        for node in texts {
            let span = node.origin.span();
            let Some(text) = node.as_str() else {
                self.refuse(Problem::error("a condition is a text"), span);
                continue;
            };
            match Expression::parse(text) {
                Ok(expression) => conditions.push(Condition { expression, span }),
                Err(mistake) => {
                    let (problem, at) = placed(self.source, text, &span, mistake);
                    self.problems.push(problem.at(self.source, at, "in this condition"));
                }
            }
        }
        conditions
    }

    fn sample(&mut self, node: &Node) -> Option<Sample> {
        self.refuse_unknown(node, &["method", "count", "seed"], "`[sample]`");
        let whole = |key: &str| node.at(key).map(|node| (node.to_json().as_u64(), node));
        let count = match whole("count") {
            Some((Some(count @ 1..=1_000_000), _)) => count as usize,
            Some((_, node)) => {
                let problem = Problem::error("`count` is a number from 1 to 1,000,000");
                self.refuse(problem, node.origin.span());
                return None;
            }
            None => {
                let problem = Problem::error("`[sample]` has no `count`");
                self.refuse(problem, node.origin.span());
                return None;
            }
        };
        let seed = match whole("seed") {
            Some((None, node)) => {
                self.refuse(Problem::error("`seed` is a whole number"), node.origin.span());
                return None;
            }
            seed => seed.and_then(|(seed, _)| seed).unwrap_or(0),
        };
        let method = match node.at("method").map(|node| (node.as_str(), node)) {
            None | Some((Some("random"), _)) => Method::Random,
            Some((Some("latin-hypercube"), _)) => Method::LatinHypercube,
            Some((_, node)) => {
                let problem = Problem::error("`method` is \"random\" or \"latin-hypercube\"");
                self.refuse(problem, node.origin.span());
                return None;
            }
        };
        Some(Sample { method, count, seed })
    }

    fn measures(&mut self, node: &Node) -> Vec<(String, Range<usize>)> {
        let before = self.problems.len();
        self.refuse_unknown(node, &["measures"], "`[keep]`");
        if before < self.problems.len() {
            return Vec::new();
        }
        let Some(Value::List(items)) = node.at("measures").map(|node| &node.value) else {
            let problem = Problem::error("`[keep]` has no list of `measures`");
            self.refuse(problem, node.origin.span());
            return Vec::new();
        };
        let mut measures: Vec<(String, Range<usize>)> = Vec::new();
        for item in items {
            let span = item.origin.span();
            match item.as_str().filter(|name| !name.is_empty()) {
                Some(name) if measures.iter().any(|(known, _)| known == name) => {
                    self.refuse(Problem::error(format!("`{name}` is kept twice")), span);
                }
                Some(name) => measures.push((name.to_owned(), span)),
                None => self.refuse(Problem::error("a measure is a key of the result"), span),
            }
        }
        if items.is_empty() {
            self.refuse(Problem::error("no measure is kept"), node.origin.span());
        }
        measures
    }

    fn budget(&mut self, node: &Node) -> Option<Span> {
        let read = node.as_str().map(str::parse::<Span>);
        match read {
            Some(Ok(budget)) => Some(budget),
            Some(Err(error)) => {
                self.refuse(Problem::error(error.to_string()), node.origin.span());
                None
            }
            None => {
                let problem = Problem::error("`budget` is a time such as \"30min\"");
                self.refuse(problem, node.origin.span());
                None
            }
        }
    }

    fn refuse_continuous(&mut self, axes: &[Axis], sample: Option<&Sample>) {
        for axis in axes.iter().filter(|_| sample.is_none()) {
            if let Levels::Between { .. } = axis.levels {
                let name = &axis.name;
                let message = format!("axis `{name}` has infinitely many values and no `step`");
                let help = "add `step` or `points`, or draw cases with `[sample]`";
                self.refuse(Problem::error(message).with_help(help), axis.span.clone());
            }
        }
    }

    /// A key has one place in a grid.
    fn refuse_twice(&mut self, axes: &[Axis], fixed: &[Assigned], root: &Node) {
        let mut seen: Vec<(&str, Range<usize>)> =
            fixed.iter().map(|set| (set.key.as_str(), set.span.clone())).collect();
        let named = [FROM, ENGINE].into_iter().filter_map(|key| root.at(key).map(|n| (key, n)));
        seen.extend(named.map(|(key, node)| (key, node.origin.span())));
        for axis in axes {
            for key in axis.keys() {
                let other = seen.iter().find(|(known, _)| overlaps(known, key));
                if let Some((known, _)) = other {
                    let message =
                        format!("`{key}` is set by axis `{}`, and so is `{known}`", axis.name);
                    let help = "a key stands in one axis, in `[set]`, or at the top";
                    let problem = Problem::error(message).with_help(help);
                    self.refuse(problem, axis.span.clone());
                }
            }
            seen.extend(axis.keys().into_iter().map(|key| (key, axis.span.clone())));
        }
    }
}

/// Whether one key is another or lies inside it.
fn overlaps(one: &str, other: &str) -> bool {
    let inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    inside(one, other) || inside(other, one)
}
