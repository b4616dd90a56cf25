//! Axes: what varies, and over which values.

use std::ops::Range;

use scenario::problem::Problem;
use scenario::tree::{Node, Value};
use scenario::{Assigned, nearest::nearest};
use serde_json::Value as Json;

/// One thing that varies.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// A scenario's key, `engine`, `from`, or the name of keys that are bound together.
    pub name: String,
    /// Its values.
    pub levels: Levels,
    /// Where its values were written.
    pub(crate) span: Range<usize>,
    /// Where its name was written.
    pub(crate) key_span: Range<usize>,
}

/// The values of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Levels {
    /// These.
    List(Vec<Level>),
    /// Any number between two, for samples.
    Between {
        /// The least.
        low: f64,
        /// The most.
        high: f64,
        /// How it is spread.
        scale: Scale,
    },
}

/// How numbers between two ends are spread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scale {
    /// Equal steps.
    #[default]
    Linear,
    /// Equal factors.
    Log,
}

impl Scale {
    /// The number at a share of the way from one end to the other.
    pub fn at(self, low: f64, high: f64, share: f64) -> f64 {
        match self {
            Self::Linear => low + (high - low) * share,
            Self::Log => low * (high / low).powf(share),
        }
    }
}

/// One value of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// What results call it: the value, or the name of values that are bound together.
    pub label: Json,
    /// What it sets.
    pub set: Vec<Assigned>,
}

/// The most values of one axis.
const MOST_LEVELS: f64 = 1e6;

/// The keys of a range.
const RANGE: [&str; 5] = ["from", "to", "step", "points", "scale"];

/// Whether a table is a range: from one number to another.
pub(crate) fn is_range(node: &Node) -> bool {
    let Some(table) = node.as_table() else { return false };
    table.contains_key("to") || (table.contains_key("points") && table.contains_key("from"))
}

/// What is wrong, and where in the grid.
pub(crate) type GridError = (Problem, Range<usize>);

fn wrong(message: impl Into<String>, at: &Node) -> GridError {
    (Problem::error(message), at.origin.span())
}

impl Axis {
    /// Reads the values of an axis; `binds` says that they are tables of keys.
    pub(crate) fn read(
        name: &str,
        key_span: Range<usize>,
        node: &Node,
        binds: bool,
    ) -> Result<Self, GridError> {
        let span = node.origin.span();
        let plain = |value: Json, span: Range<usize>| Level {
            label: value.clone(),
            set: vec![Assigned { key: name.to_owned(), value, span, key_span: key_span.clone() }],
        };
        let levels = match &node.value {
            Value::List(items) if items.is_empty() => {
                return Err(wrong(format!("axis `{name}` has no values"), node));
            }
            Value::List(items) if binds => {
                if items.iter().all(|item| item.as_table().is_none()) {
                    return Err((unknown(name), key_span));
                }
                let bound: Result<Vec<Level>, GridError> =
                    items.iter().map(|item| Level::bound(name, item)).collect();
                Levels::List(bound?)
            }
            Value::List(items) => Levels::List(
                items.iter().map(|item| plain(item.to_json(), item.origin.span())).collect(),
            ),
            Value::Table(_) if binds => return Err((unknown(name), key_span)),
            Value::Table(_) => match ranged(name, node)? {
                Ranged::Values(values) => Levels::List(
                    values.into_iter().map(|value| plain(value, span.clone())).collect(),
                ),
                Ranged::Between { low, high, scale } => Levels::Between { low, high, scale },
            },
            Value::Scalar(_) => {
                let (problem, span) = wrong(format!("axis `{name}` has one value, no list"), node);
                let help =
                    "write `[a, b]`, or `{ from = 1, to = 8 }`; one value belongs to `[set]`";
                return Err((problem.with_help(help), span));
            }
        };
        let axis = Self { name: name.to_owned(), levels, span, key_span };
        axis.refuse_twice(node).map(|()| axis)
    }

    fn refuse_twice(&self, node: &Node) -> Result<(), GridError> {
        let Levels::List(levels) = &self.levels else { return Ok(()) };
        let mut labels: Vec<String> = levels.iter().map(|level| level.label.to_string()).collect();
        labels.sort();
        let twice = labels.windows(2).find(|pair| pair[0] == pair[1]);
        match twice {
            Some(pair) => Err(wrong(format!("axis `{}` has {} twice", self.name, pair[0]), node)),
            None => Ok(()),
        }
    }

    /// The keys that it sets.
    pub fn keys(&self) -> Vec<&str> {
        let Levels::List(levels) = &self.levels else { return vec![&self.name] };
        let mut keys: Vec<&str> = Vec::new();
        for set in levels.iter().flat_map(|level| &level.set) {
            if !keys.contains(&&*set.key) {
                keys.push(&set.key);
            }
        }
        keys
    }

    /// The value at a share of the way through a continuous axis, or the level there of a list.
    pub(crate) fn at(&self, share: f64) -> Level {
        match &self.levels {
            Levels::List(levels) => {
                let place = (share * levels.len() as f64) as usize;
                levels[place.min(levels.len() - 1)].clone()
            }
            Levels::Between { low, high, scale } => {
                let value = Json::from(scale.at(*low, *high, share));
                let set = Assigned {
                    key: self.name.clone(),
                    value: value.clone(),
                    span: self.span.clone(),
                    key_span: self.key_span.clone(),
                };
                Level { label: value, set: vec![set] }
            }
        }
    }
}

impl Level {
    /// Values that are bound together: a table of keys, with a name or called by its first value.
    fn bound(axis: &str, node: &Node) -> Result<Self, GridError> {
        if node.as_table().is_none() {
            return Err(wrong(format!("a value of axis `{axis}` is no table of keys"), node));
        }
        let (mut set, mut name) = (Vec::new(), None);
        collect("", 0..0, node, &mut |key, key_span, node| match key {
            "name" => name = Some(node.to_json()),
            key => set.push(Assigned {
                key: key.to_owned(),
                value: node.to_json(),
                span: node.origin.span(),
                key_span,
            }),
        });
        set.sort_by_key(|assigned| assigned.span.start);
        let Some(first) = set.first() else {
            return Err(wrong(format!("a value of axis `{axis}` sets no key"), node));
        };
        Ok(Self { label: name.unwrap_or_else(|| first.value.clone()), set })
    }
}

/// An axis that is no key of a scenario and binds none.
fn unknown(axis: &str) -> Problem {
    let schema = scenario::schema();
    let whole = schema.paths_to(axis).into_iter().next();
    let properties = schema.as_json().get("properties").and_then(Json::as_object);
    let near = nearest(axis, properties.into_iter().flatten().map(|(key, _)| key.as_str()));
    let help = match (whole, near) {
        (Some(whole), _) => format!("did you mean \"{whole}\"?"),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => format!(
            "an axis is a key of a scenario, such as \"network.routing.qps\", or has tables of \
             keys for its values: `{axis} = [{{ \"cluster.gpus\" = 128, \"job.gpus\" = 128 }}]`"
        ),
    };
    Problem::error(format!("there is no key `{axis}` in a scenario")).with_help(help)
}

/// Walks the leaves of a table with their dotted paths and where their keys stand; lists and
/// ranges are leaves.
pub(crate) fn collect<'a>(
    path: &str,
    key_span: Range<usize>,
    node: &'a Node,
    found: &mut dyn FnMut(&str, Range<usize>, &'a Node),
) {
    match &node.value {
        Value::Table(table) if !is_range(node) => {
            for (key, entry) in table.iter() {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(&path, entry.key.span(), &entry.node, found);
            }
        }
        _ => found(path, key_span, node),
    }
}

enum Ranged {
    Values(Vec<Json>),
    Between { low: f64, high: f64, scale: Scale },
}

/// Reads `{ from, to, step }` and `{ from, to, points, scale }`.
fn ranged(name: &str, node: &Node) -> Result<Ranged, GridError> {
    let table = node.as_table().expect("the caller looked");
    if let Some((key, entry)) = table.iter().find(|(key, _)| !RANGE.contains(&key.as_str())) {
        let problem = Problem::error(format!("there is no key `{key}` in a range"));
        let near = nearest(key, RANGE).map(|near| format!("did you mean `{near}`?"));
        let help = near.unwrap_or_else(|| format!("it has {}", RANGE.join(", ")));
        return Err((problem.with_help(help), entry.key.span()));
    }
    let number = |key: &str| -> Result<Option<f64>, GridError> {
        let Some(entry) = table.get(key) else { return Ok(None) };
        let number = entry.node.to_json().as_f64().filter(|number| number.is_finite());
        let refused = || wrong(format!("`{key}` of axis `{name}` is not a number"), &entry.node);
        number.ok_or_else(refused).map(Some)
    };
    let needed = |key: &str| {
        let missing = || wrong(format!("axis `{name}` has no `{key}`"), node);
        number(key)?.ok_or_else(missing)
    };
    let (low, high) = (needed("from")?, needed("to")?);
    let (step, points) = (number("step")?, number("points")?);
    let scale = match table.get("scale").map(|entry| entry.node.as_str()) {
        None | Some(Some("linear")) => Scale::Linear,
        Some(Some("log")) => Scale::Log,
        Some(_) => {
            let message = format!("`scale` of axis `{name}` is \"linear\" or \"log\"");
            return Err(wrong(message, &table["scale"].node));
        }
    };
    if high < low {
        return Err(wrong(format!("axis `{name}` goes from {low} down to {high}"), node));
    }
    if scale == Scale::Log && low <= 0.0 {
        return Err(wrong(format!("axis `{name}` has a logarithm of {low}"), node));
    }
    let whole = |key: &str| table.get(key).is_none_or(|entry| !entry.node.to_json().is_f64());
    let is_whole = whole("from") && whole("to") && whole("step");
    let values = match (step, points) {
        (Some(_), Some(_)) => {
            return Err(wrong(format!("axis `{name}` has both `step` and `points`"), node));
        }
        (Some(_), _) if scale == Scale::Log => {
            return Err(wrong(format!("axis `{name}`: equal factors need `points`"), node));
        }
        (Some(step), _) => steps(low, high, step),
        (None, Some(points)) if 1.0 <= points && points.fract() == 0.0 && points <= MOST_LEVELS => {
            let last = (points - 1.0).max(1.0);
            Some((0..points as u64).map(|at| scale.at(low, high, at as f64 / last)).collect())
        }
        (None, Some(_)) => None,
        (None, None) if is_whole && scale == Scale::Linear => steps(low, high, 1.0),
        (None, None) => return Ok(Ranged::Between { low, high, scale }),
    };
    let values: Vec<f64> = values.ok_or_else(|| {
        wrong(format!("axis `{name}` needs a positive `step` and 1 to 1,000,000 values"), node)
    })?;
    // Whole ends make whole values: a step of GPUs, or powers of two on a logarithmic scale.
    let rounded = |value: f64| {
        let near = value.round();
        let is_near = (value - near).abs() <= 1e-9 * near.abs().max(1.0);
        if is_whole && is_near { Json::from(near as i64) } else { Json::from(value) }
    };
    Ok(Ranged::Values(values.into_iter().map(rounded).collect()))
}

fn steps(low: f64, high: f64, step: f64) -> Option<Vec<f64>> {
    let count = ((high - low) / step + 1e-9).floor() + 1.0;
    let fits = 0.0 < step && count <= MOST_LEVELS;
    fits.then(|| (0..count as u64).map(|at| low + at as f64 * step).collect())
}
