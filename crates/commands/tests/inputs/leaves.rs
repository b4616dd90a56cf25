//! The leaves of the scenario's schema, each with other values that might be valid.

use std::collections::BTreeMap;

use scenario::{ScenarioFile, schema};
use serde_json::Value as Json;

/// A setting and the assignments that give it other values.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) path: String,
    pub(crate) others: Vec<String>,
}

/// A figure of the catalogue where there is none.
const FIGURE: &str = "{value = 2, source = \"a test\", trust = \"M\"}";

/// Values that no schema tells: names of the catalogue, of links, and lists.
const HINTS: &[(&str, &[&str])] = &[
    ("cluster.gpu", &["\"h200-sxm\"", "\"b200\""]),
    ("cluster.nic", &["\"connectx-6\""]),
    ("cluster.front_end.nic", &["\"connectx-6\""]),
    ("cluster.front_end.switch", &["\"tomahawk-4\""]),
    ("cluster.nic_affinity", &["[0, 0, 0, 0]", "[1, 0]"]),
    ("cluster.server_file", &["\"no-such-file.xml\""]),
    ("catalogue.gpu.h100-sxm.scale_up_name", &["\"nvlink5\""]),
    ("catalogue.gpu.h100-sxm.speed.fp4", &[FIGURE]),
    ("catalogue.gpu.h100-sxm.speed.mxfp8_large", &[FIGURE]),
    ("catalogue.gpu.h100-sxm.speed.mxfp8_narrow", &[FIGURE]),
    ("catalogue.gpu.h100-sxm.speed.mxfp8_short", &[FIGURE]),
    ("catalogue.nic.bluefield-3.qp_contexts", &[FIGURE]),
    ("catalogue.nic.bluefield-3.qp_miss_ns", &[FIGURE]),
    ("fabric.leaf.switch", &["\"tomahawk-4\""]),
    ("fabric.spine.switch", &["\"tomahawk-4\""]),
    ("fabric.core.switch", &["\"tomahawk-4\""]),
    ("fabric.links", &["[{length = \"100m\"}]"]),
    ("fabric.oversubscription", &["[2.0]"]),
    ("fabric.uplinks", &["[1]", "[2]"]),
    ("fabric.failed", &["[\"leaf 0 - spine 0\"]"]),
    ("fabric.degraded", &["[{link = \"leaf 0 - spine 0\", rate = \"10Gbps\"}]"]),
    ("fabric.parts", &["[{name = \"all\"}]"]),
    ("fabric.graph", &["{endpoints = [\"a\"]}"]),
    ("fabric.circuits.pairs", &["[[0, 1]]"]),
    ("faults", &["[{at = \"0s\", on = \"leaf 0 - spine 0\", what = {kind = \"link-down\"}}]"]),
    ("faults.0.what.kind", &["\"grey\""]),
    ("job.model.latent", &["{q_rank = 64, kv_rank = 64, nope = 32, rope = 32}"]),
    ("job.model.vision", &["{layers = 2, hidden = 64, heads = 4, ffn = 128, patches = 64}"]),
    ("job.model.window", &["{tokens = 64, layers = 2}"]),
    ("job.moe.loads", &["[8.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]"]),
    ("job.moe.limit", &["{devices = 1}"]),
    ("job.parallel.overlap", &["[\"tp\"]", "[\"ep\"]"]),
    ("job.parallel.stage_layers", &["[1, 3]"]),
    ("job.recompute", &["\"full\"", "[\"layernorm\"]", "[\"mla_up_proj\"]"]),
    ("job.placement.policy", &["\"random\""]),
    ("job", &["{model = \"llama3-8b\"}"]),
    ("jobs", &["[{model = \"llama3-405b\"}]"]),
    ("library.tuner", &["[\"allreduce,0,1073741824,ring,simple,4,-1,-1\"]"]),
    ("network.congestion.control", &["\"hpcc\""]),
    ("network.credits.high_priority", &["[0]"]),
    ("network.credits.sl_to_vl", &["[0, 0, 0, 0]"]),
    ("network.credits.weights", &["[2]"]),
    ("network.ecn_of_lane", &["[{min = \"1KiB\", max = \"2KiB\"}]"]),
    ("network.flow.precision", &["0.01", "1e-3"]),
    ("network.routing.staleness", &["\"0s\""]),
    ("network.pfc.lossy_lanes", &["[0]"]),
    ("reliability.rates", &["[{cause = \"gpu\", per_gpu_year = 1.0}]"]),
    ("stragglers", &["[{nic = {node = 0, speed = 0.5}}]", "[{gpu = {stage = 0, speed = 0.5}}]"]),
    ("traffic.background", &["[{pattern = \"ring\", bytes = \"64KiB\"}]"]),
    ("traffic.senders", &["2"]),
    ("traffic.model", &["\"llama3-8b\""]),
    ("traffic.flows", &["\"no-such-file.csv\""]),
    ("traffic", &["{pattern = \"ring\"}"]),
];

/// The leaves as a scenario has them; entries of the catalogue only if it names them.
pub(crate) fn leaves(scenario: &ScenarioFile) -> Vec<Leaf> {
    let json = serde_json::to_value(scenario).unwrap();
    let mut words = Vec::new();
    collect_words(&json, &mut words);
    let mut walk = Walk { schema: schema().as_json(), scenario: &json, words, leaves: Vec::new() };
    walk.visit(schema().as_json(), &json, "");
    walk.leaves
}

struct Walk<'a> {
    schema: &'a Json,
    scenario: &'a Json,
    words: Vec<String>,
    leaves: Vec<Leaf>,
}

impl<'a> Walk<'a> {
    fn resolve(&self, mut node: &'a Json) -> &'a Json {
        while let Some(target) = node.get("$ref").and_then(Json::as_str) {
            node = self.schema.pointer(target.trim_start_matches('#')).unwrap();
        }
        node
    }

    fn variants(&self, node: &'a Json) -> impl Iterator<Item = &'a Json> + use<'a> {
        let variants = ["oneOf", "anyOf"].iter().find_map(|key| node.get(key)?.as_array());
        variants.into_iter().flatten()
    }

    /// The keys of the table that a value is, with their schemas; of several tables, the one whose
    /// tag the value has.
    fn fields(&self, node: &'a Json, value: &Json, fields: &mut BTreeMap<&'a str, &'a Json>) {
        let node = self.resolve(node);
        self.variants(node).for_each(|variant| self.fields(variant, value, fields));
        let Some(known) = node.get("properties").and_then(Json::as_object) else { return };
        let fits = |(key, inner): (&String, &Json)| {
            inner.get("const").is_none_or(|word| *word == value[key])
        };
        if known.iter().all(fits) {
            fields.extend(known.iter().map(|(key, inner)| (key.as_str(), inner)));
        }
    }

    fn visit(&mut self, node: &'a Json, value: &Json, path: &str) {
        let node = self.resolve(node);
        let inside =
            |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        if value.is_object() {
            let mut fields = BTreeMap::new();
            self.fields(node, value, &mut fields);
            if !fields.is_empty() {
                for (key, inner) in fields {
                    self.visit(inner, value.get(key).unwrap_or(&Json::Null), &inside(key));
                }
                return;
            }
            let named = |name: &String| !path.starts_with("catalogue") || self.words.contains(name);
            let entries = value.as_object().into_iter().flatten().filter(|(name, _)| named(name));
            let entries: Vec<_> = entries.map(|(name, entry)| (inside(name), entry)).collect();
            if let Some(inner) = node.get("additionalProperties").filter(|inner| inner.is_object())
            {
                return entries.iter().for_each(|(path, entry)| self.visit(inner, entry, path));
            }
        }
        if let Some(items) = value.as_array().filter(|items| items.iter().any(Json::is_object)) {
            let inner = &node["items"];
            let items: Vec<_> = items.iter().enumerate().collect();
            return items
                .iter()
                .for_each(|(at, item)| self.visit(inner, item, &inside(&at.to_string())));
        }
        let hinted = HINTS.iter().filter(|(key, _)| *key == path);
        let mut others: Vec<String> =
            hinted.flat_map(|(_, values)| *values).map(|value| (*value).to_owned()).collect();
        self.candidates(node, value, &mut others);
        let now = toml(value);
        let others = others.into_iter().filter(|other| Some(other) != now.as_ref());
        let others = others.map(|other| self.assignment(path, &other)).collect();
        self.leaves.push(Leaf { path: path.to_owned(), others });
    }

    /// `path=value`; inside a list, the whole list with one value changed.
    fn assignment(&self, path: &str, other: &str) -> String {
        let steps: Vec<&str> = path.split('.').collect();
        let Some(at) = steps.iter().position(|step| step.parse::<usize>().is_ok()) else {
            return format!("{path}={other}");
        };
        let pointer = format!("/{}", steps[..at].join("/"));
        let mut list = self.scenario.pointer(&pointer).unwrap().clone();
        let changed: toml::Table = format!("v={other}").parse().unwrap();
        let mut place = &mut list;
        for step in &steps[at..] {
            place = match step.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[*step],
            };
        }
        *place = serde_json::to_value(&changed["v"]).unwrap();
        format!("{}={}", steps[..at].join("."), toml(&list).unwrap())
    }

    /// Values that the schema allows.
    fn candidates(&self, node: &'a Json, value: &Json, others: &mut Vec<String>) {
        let node = self.resolve(node);
        self.variants(node).for_each(|variant| self.candidates(variant, value, others));
        others.extend(node.get("const").map(Json::to_string));
        let words = node.get("enum").and_then(Json::as_array);
        others.extend(words.into_iter().flatten().map(Json::to_string));
        if node.get("const").or(node.get("enum")).is_some() {
            return;
        }
        let kinds = match node.get("type") {
            Some(Json::Array(kinds)) => kinds.iter().filter_map(Json::as_str).collect(),
            kind => kind.and_then(Json::as_str).into_iter().collect::<Vec<_>>(),
        };
        for kind in kinds {
            match (kind, node.get("format").and_then(Json::as_str)) {
                ("boolean", _) => others.extend(["true", "false"].map(str::to_owned)),
                ("integer", _) => {
                    let now = value.as_u64().unwrap_or(2);
                    let near = [now.saturating_mul(2), now / 2, now + 1, now.saturating_sub(1)];
                    others.extend(near.map(|other| other.to_string()));
                    others.extend(["1", "0", "3", "4", "8", "16", "1000"].map(str::to_owned));
                }
                ("number", _) => {
                    let now = value.as_f64().unwrap_or(1.0);
                    let near = [now * 2.0, now * 0.5, now * 100.0, now + 0.1];
                    others.extend(near.map(|other| format!("{other:?}")));
                    others.extend(["0.5", "0.1", "0.0", "1.0", "0.001"].map(str::to_owned));
                }
                ("string", Some("Span")) => {
                    others.extend(["1ms", "0s", "1us", "10s", "1ns", "20us"].map(quoted));
                }
                ("string", Some("Bytes")) => {
                    others.extend(
                        ["4KiB", "1MiB", "256B", "1GiB", "100B", "0B", "40KiB"].map(quoted),
                    );
                }
                ("string", Some("Rate")) => {
                    others.extend(["100Gbps", "1Gbps", "800Gbps", "10Mbps"].map(quoted));
                }
                ("string", Some("Length")) => others.extend(["100m", "10km", "1m"].map(quoted)),
                ("string", _) => others.push(quoted("something else")),
                _ => {}
            }
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// A value as TOML on one line; nothing for `null`.
fn toml(json: &Json) -> Option<String> {
    match json {
        Json::Null => None,
        Json::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(toml).collect();
            Some(format!("[{}]", items.join(", ")))
        }
        Json::Object(fields) => {
            let field = |(key, value): (&String, &Json)| Some(format!("{key} = {}", toml(value)?));
            let fields: Vec<String> = fields.iter().filter_map(field).collect();
            Some(format!("{{{}}}", fields.join(", ")))
        }
        scalar => Some(scalar.to_string()),
    }
}

fn collect_words(json: &Json, words: &mut Vec<String>) {
    match json {
        Json::String(word) => words.push(word.clone()),
        Json::Array(items) => items.iter().for_each(|item| collect_words(item, words)),
        Json::Object(fields) => {
            let fields = fields.iter().filter(|(key, _)| *key != "catalogue");
            fields.for_each(|(_, value)| collect_words(value, words));
        }
        _ => {}
    }
}
