//! The identities of many scenarios that differ in a few values.
//!
//! To resolve a scenario takes most of a millisecond, nearly all of it for values that all cases of
//! a study share. A key is *plain* if it changes nothing but its own value: no default follows from
//! it, no hardware is named by it, no file. What a plain key's values become is found once for each
//! value; a case then puts them into the resolved rest. Cases that differ in other keys have a
//! resolved rest each, which is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

use crate::base::{Assigned, Base};
use crate::hash::{ScenarioHash, Template};
use crate::load::FILE_KEYS;
use crate::problem::Problems;

/// Values of one key that are looked at one by one.
const MOST_VALUES: usize = 256;

/// Resolved rests that are kept.
const MOST_RESTS: usize = 1024;

/// Keys from which others follow, or that count for more than their value.
const DECISIVE: [&str; 6] =
    ["catalogue", "cluster.nic", "fabric.graph", "job", "network.transport", "traffic"];

/// What the values of a key become.
#[derive(Debug)]
enum Form {
    /// Numbers stay as they are.
    Same,
    /// Numbers become numbers with a fraction.
    Fractional,
    /// Each value is known, by its text.
    Known(BTreeMap<String, Json>),
}

/// The identities of scenarios with a common base.
#[derive(Debug)]
pub struct Identities<'a> {
    base: &'a Base,
    fixed: Vec<Assigned>,
    /// The plain keys, with what their values become.
    paths: Vec<String>,
    forms: Vec<Form>,
    /// The base by itself; nothing if it cannot be resolved.
    start: Option<Json>,
    rests: Mutex<BTreeMap<String, Option<Arc<Template>>>>,
}

impl<'a> Identities<'a> {
    /// Looks at what varies: the values that each key will have, or of numbers the first and the
    /// last. `fixed` is the same in all scenarios.
    pub fn new(base: &'a Base, fixed: Vec<Assigned>, values: &BTreeMap<String, Vec<Json>>) -> Self {
        let start = base.identity(&fixed).ok();
        let (mut paths, mut forms) = (Vec::new(), Vec::new());
        let keys: Vec<&String> = values.keys().collect();
        let lies_in = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.starts_with('.'))
        };
        for (key, values) in values.iter().filter(|(key, _)| {
            // Of two keys of which one lies in the other, the order decides.
            !keys.iter().any(|other| lies_in(key, other) || lies_in(other, key))
        }) {
            let form = start.as_ref().and_then(|start| form((base, &fixed, start), key, values));
            if let Some(form) = form {
                paths.push(key.clone());
                forms.push(form);
            }
        }
        Self { base, fixed, paths, forms, start, rests: Mutex::default() }
    }

    /// The identity of the scenario with these settings; the same as [`Base::hash`].
    pub fn hash(&self, assigned: &[Assigned]) -> Result<ScenarioHash, Problems> {
        self.composed(assigned).map_or_else(|| self.base.hash(&self.with(assigned)), Ok)
    }

    /// The values that all scenarios have, and these.
    fn with(&self, assigned: &[Assigned]) -> Vec<Assigned> {
        self.fixed.iter().chain(assigned).cloned().collect()
    }

    /// The identity from parts that are known, if it can be had from them.
    fn composed(&self, assigned: &[Assigned]) -> Option<ScenarioHash> {
        let start = self.start.as_ref()?;
        let mut values: Vec<Option<Json>> = vec![None; self.paths.len()];
        let mut rest = Vec::new();
        for one in assigned {
            match self.paths.binary_search(&one.key) {
                Ok(at) => values[at] = Some(self.forms[at].of(&one.value)?),
                Err(_) => rest.push(one.clone()),
            }
        }
        let template = self.rest(rest)?;
        let usual = |at: usize| find(start, &self.paths[at]).unwrap_or(&Json::Null);
        let values: Vec<&Json> =
            values.iter().enumerate().map(|(at, v)| v.as_ref().unwrap_or(usual(at))).collect();
        Some(template.hash(&values))
    }

    /// The resolved rest of a scenario, with its plain keys open.
    fn rest(&self, rest: Vec<Assigned>) -> Option<Arc<Template>> {
        let text: String = rest.iter().map(|one| format!("{}={}\n", one.key, one.value)).collect();
        if let Some(known) = self.rests.lock().expect("nobody panics with it").get(&text) {
            return known.clone();
        }
        let json = self.base.identity(&self.with(&rest)).ok();
        let fits = |json: &Json| {
            let start = self.start.as_ref()?;
            let is_same = |path: &String| is_alike(json, start, path);
            self.paths.iter().all(is_same).then(|| Arc::new(Template::new(json, &self.paths)))
        };
        let template = json.as_ref().and_then(fits);
        let mut rests = self.rests.lock().expect("nobody panics with it");
        if rests.len() < MOST_RESTS {
            rests.insert(text, template.clone());
        }
        template
    }
}

impl Form {
    /// What a value becomes.
    fn of(&self, value: &Json) -> Option<Json> {
        match self {
            Self::Same => Some(value.clone()),
            Self::Fractional => value.as_f64().map(Json::from),
            Self::Known(known) => known.get(&value.to_string()).cloned(),
        }
    }
}

/// What the values of a key become if it is plain.
fn form(
    (base, fixed, start): (&Base, &[Assigned], &Json),
    key: &str,
    values: &[Json],
) -> Option<Form> {
    let decisive = DECISIVE.iter().chain(&FILE_KEYS).any(|decisive| key == *decisive);
    if decisive || key.starts_with("catalogue.") {
        return None;
    }
    let resolved = |value: &Json| {
        let (name, value) = (key.to_owned(), value.clone());
        let own = Assigned { key: name, value, span: 0..0, key_span: 0..0 };
        let json = base.identity(&[fixed, &[own]].concat()).ok()?;
        let new = find(&json, key)?;
        let old = find(start, key).unwrap_or(&Json::Null);
        let is_plain = is_alike_but_for(&json, start, key)
            && !base.names_hardware(new)
            && !base.names_hardware(old);
        is_plain.then(|| new.clone())
    };
    let (first, last) = (values.first()?, values.last()?);
    if values.iter().all(Json::is_number) {
        let ends = [first, last];
        let becomes: Option<Vec<Json>> = ends.into_iter().map(resolved).collect();
        let becomes = becomes?;
        let is_one_kind = values.iter().all(|value| value.is_f64() == first.is_f64());
        if is_one_kind && becomes.iter().eq(ends) {
            return Some(Form::Same);
        }
        if becomes
            .iter()
            .map(Some)
            .eq(ends.map(|v| Form::Fractional.of(v)).iter().map(Option::as_ref))
        {
            return Some(Form::Fractional);
        }
    }
    if MOST_VALUES < values.len() {
        return None;
    }
    let known = values.iter().map(|value| Some((value.to_string(), resolved(value)?)));
    known.collect::<Option<BTreeMap<_, _>>>().map(Form::Known)
}

/// The value at a dotted path.
fn find<'a>(json: &'a Json, path: &str) -> Option<&'a Json> {
    path.split('.').try_fold(json, |json, step| json.as_object()?.get(step))
}

/// Whether two values differ at most at a path.
fn is_alike_but_for(one: &Json, other: &Json, path: &str) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return false };
    let (step, rest) = path.split_once('.').map_or((path, None), |(step, rest)| (step, Some(rest)));
    let others = |fields: &serde_json::Map<String, Json>| {
        let set = fields.iter().filter(|(key, value)| *key != step && !value.is_null());
        set.map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    let inside = match (rest, one.get(step), other.get(step)) {
        (Some(rest), Some(one), Some(other)) => is_alike_but_for(one, other, rest),
        (Some(_), ..) => false,
        (None, ..) => true,
    };
    inside && others(one) == others(other)
}

/// Whether a path means the same in two scenarios: all tables on the way have the same keys, and
/// it has the same value.
fn is_alike(one: &Json, other: &Json, path: &str) -> bool {
    let keys = |json: &Json| {
        let fields = json.as_object();
        fields.map(|fields| fields.keys().cloned().collect::<std::collections::BTreeSet<_>>())
    };
    let (mut one, mut other) = (Some(one), Some(other));
    for (depth, step) in path.split('.').enumerate() {
        let (Some(a), Some(b)) = (one, other) else { return false };
        // Hardware and the contents of files stand beside the sections.
        if 0 < depth && keys(a) != keys(b) {
            return false;
        }
        (one, other) = (a.get(step), b.get(step));
    }
    one == other
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::load::Request;
    use crate::source::Source;

    fn base(preset: &str) -> Base {
        let request = Request { scenario: Some(preset.to_owned()), ..Request::default() };
        Base::read(&request, Source::new("grid", "")).expect("a preset")
    }

    fn set(key: &str, value: &Json) -> Assigned {
        Assigned { key: key.to_owned(), value: value.clone(), span: 0..0, key_span: 0..0 }
    }

    /// Keys of every kind: numbers, quantities, words, absent ones, tables, hardware, files, those
    /// from which others follow, and two of the same table.
    fn keys() -> Vec<(&'static str, Vec<Json>)> {
        vec![
            ("seed", vec![json!(0), json!(3), json!(99)]),
            ("network.routing.qps", vec![json!(1), json!(4), json!(16)]),
            ("network.packet.mtu", vec![json!("1KiB"), json!("4KiB"), json!("4096B")]),
            ("prices.pue", vec![json!(1), json!(1.25), json!(2)]),
            ("cluster.gpus", vec![json!(64), json!(128)]),
            ("job.batch.length", vec![json!(4096), json!(8192)]),
            ("job.model", vec![json!("llama3-8b"), json!("llama3-70b")]),
            ("cluster.nic", vec![json!("connectx-7"), json!("bluefield-3")]),
            ("cluster.gpu", vec![json!("h100-sxm"), json!("h200-sxm")]),
            ("network.transport", vec![json!("rocev2"), json!("infiniband"), json!("tcp")]),
            ("network.nic.send_latency", vec![json!("300ns"), json!("1us")]),
            ("network.congestion.control", vec![json!("dcqcn"), json!("hpcc")]),
            ("network.pfc.enabled", vec![json!(true), json!(false)]),
            ("network.routing", vec![json!({"policy": "spray"}), json!({"policy": "ecmp"})]),
            ("fabric.radix", vec![json!(32), json!(64)]),
            ("network.routing.no_such", vec![json!(1)]),
        ]
    }

    /// Whatever varies together: the identity from parts is that of the whole.
    #[test]
    fn composed_identities_are_those_of_the_whole() {
        for preset in ["small-128", "small-16"] {
            let base = base(preset);
            let keys = keys();
            let fixed = vec![set("job.batch.sequences", &json!(256))];
            for (at, one) in keys.iter().enumerate() {
                for other in &keys[at + 1..] {
                    let third = &keys[(at * 7 + 3) % 6];
                    let varied = [one, other, third];
                    let values = varied.iter().map(|(k, v)| ((*k).to_owned(), v.clone()));
                    let values: BTreeMap<String, Vec<Json>> = values.collect();
                    let identities = Identities::new(&base, fixed.clone(), &values);
                    for number in 0..3 {
                        let of = |(key, values): &(&str, Vec<Json>), shift: usize| {
                            set(key, &values[(number + shift) % values.len()])
                        };
                        let mut own = vec![of(one, 0), of(other, number / 2), of(third, 1)];
                        if varied[..2].iter().any(|(key, _)| *key == third.0) {
                            own.pop();
                        }
                        let whole = base.hash(&[fixed.clone(), own.clone()].concat());
                        assert_eq!(identities.hash(&own).ok(), whole.ok(), "{preset}: {own:?}");
                    }
                }
            }
        }
    }

    /// What most studies vary is plain, so that planning them costs next to nothing.
    #[test]
    fn usual_axes_are_plain() {
        let base = base("small-128");
        let values = |key: &str| keys().into_iter().find(|(known, _)| *known == key).unwrap().1;
        let usual =
            ["seed", "network.routing.qps", "network.packet.mtu", "prices.pue", "cluster.gpus"];
        let others = ["job.model", "cluster.nic", "network.transport", "network.routing.no_such"];
        let all = usual.iter().chain(&others).map(|key| ((*key).to_owned(), values(key)));
        let identities = Identities::new(&base, Vec::new(), &all.collect());
        let mut usual = usual.map(str::to_owned);
        usual.sort();
        assert_eq!(identities.paths, usual);
        let own = usual.each_ref().map(|key| set(key, &values(key)[0]));
        assert!(identities.composed(&own).is_some());
        let with_model = [&own[..], &[set("job.model", &json!("llama3-8b"))]].concat();
        assert!(identities.composed(&with_model).is_some(), "the rest is resolved once");
    }
}
