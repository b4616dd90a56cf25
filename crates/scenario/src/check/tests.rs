//! Every kind of mistake, on settings made up for the purpose.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Rate, Span};

use super::*;
use crate::merge::merge;
use crate::problem::{Colour, Problems, Style};
use crate::source::Source;
use crate::tree::{Layer, Reader};

#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Root {
    count: u32,
    share: f64,
    on: bool,
    title: Option<String>,
    rate: Rate,
    delay: Option<Span>,
    ratios: Vec<f64>,
    pair: [u32; 2],
    colour: Hue,
    control: Control,
    parts: Vec<Part>,
    by_name: BTreeMap<String, Part>,
    size: Size,
    inner: Inner,
    limit: Limit,
}

impl Default for Root {
    fn default() -> Self {
        Self {
            count: 1,
            share: 0.5,
            on: true,
            title: None,
            rate: Rate::from_gbps(400),
            delay: None,
            ratios: vec![1.0],
            pair: [1, 2],
            colour: Hue::Red,
            control: Control::Dcqcn(Dcqcn::default()),
            parts: Vec::new(),
            by_name: BTreeMap::new(),
            size: Size::Number(1),
            inner: Inner { depth: 7, zones: 3 },
            limit: Limit::Anywhere,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Hue {
    Red,
    BlueGreen,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Limit {
    Anywhere,
    Nodes(u64),
    Devices(u64),
}

#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(tag = "control", rename_all = "kebab-case", deny_unknown_fields)]
enum Control {
    /// Nothing.
    None,
    /// With parameters.
    Dcqcn(Dcqcn),
    /// With others.
    Hpcc {
        #[serde(default)]
        window: u32,
    },
}

#[derive(Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Dcqcn {
    #[schemars(range(min = 1, max = 100))]
    steps: u32,
    g: f64,
}

#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct Part {
    name: String,
    bytes: Bytes,
    #[serde(default)]
    inside: Vec<Part>,
}

#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(untagged)]
enum Size {
    Number(u64),
    Words(Vec<String>),
}

/// Its defaults here differ from those of the type.
#[derive(Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Inner {
    depth: u32,
    #[schemars(extend("x-aliases" = ["pods"]))]
    zones: u32,
}

/// Lays texts over the defaults, one after the other.
fn lay(texts: &[&str]) -> (Node, Vec<Problem>, BTreeSet<String>) {
    let schema = Schema::of::<Root>();
    let mut sources = Sources::default();
    let defaults = serde_json::to_value(Root::default()).unwrap();
    let mut merged = Node::from_defaults(&defaults).unwrap();
    let (mut problems, mut dropped) = (Vec::new(), BTreeSet::new());
    for text in texts {
        let id = sources.add(Source::new("test.toml", *text));
        let source = sources.get(id);
        let mut reader = Reader { layer: Layer::File, id, source, shift: 0, problems: Vec::new() };
        let node = reader.document();
        problems.append(&mut reader.problems);
        let Some(mut node) = node else { continue };
        let checked = check(&mut node, &merged, &schema, &sources);
        problems.extend(checked.problems);
        dropped.extend(checked.dropped);
        merge(&mut merged, node, &schema);
    }
    problems.extend(missing(&merged, &schema, &sources, &dropped));
    (merged, problems, dropped)
}

fn complaints(text: &str) -> String {
    let (merged, problems, _) = lay(&[text]);
    // Whatever was wrong has been taken out: the rest must always be readable.
    if problems.iter().all(|problem| !problem.message.contains("needs the key")) {
        serde_json::from_value::<Root>(merged.to_json()).unwrap();
    }
    Problems(problems).render(Style { colour: Colour::Never, width: 90 })
}

#[test]
fn every_kind_of_mistake_has_its_words() {
    let cases = [
        "cuont = 3",
        "[inner]\ncount = 3",
        "[inner]\nflux = 3",
        "steps = 3",
        "count = \"3\"",
        "count = 3.0",
        "count = 3.5",
        "count = -3",
        "count = 5_000_000_000",
        "count = [3]",
        "count = { a = 3 }",
        "share = \"half\"",
        "share = inf",
        "on = \"true\"",
        "on = 1",
        "title = 5",
        "rate = 400",
        "rate = \"400\"",
        "rate = \"400 parsecs\"",
        "rate = true",
        "delay = \"1.5 m\"",
        "ratios = true",
        "ratios = [1, \"two\", 3]",
        "pair = [1, 2, 3]",
        "colour = \"blue-gren\"",
        "colour = 3",
        "control = \"dcqcn\"",
        "control = { control = \"dcqn\", anything = 1 }",
        "control = { control = \"hpcc\", g = 1 }",
        "control = { stesp = 1 }",
        "control = { steps = 0 }",
        "[[parts]]\nname = \"a\"",
        "[[parts]]\nname = \"a\"\nbytes = \"4\"\n[[parts]]\nnmae = \"b\"\nbytes = \"1KiB\"",
        "[by_name.x]\nbytes = \"1KiB\"",
        "size = 1.5",
        "count = 2026-01-01",
        "count = 99999999999999999999",
        "count = 1\ncount = 2",
        "inner = 3\n[control",
    ];
    let mut text = String::new();
    for case in cases {
        text.push_str(&format!("=== {}\n{}\n", case.replace('\n', " ¶ "), complaints(case)));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn what_is_right_passes() {
    let cases = [
        "count = 0x10\nshare = 1\non = false\ntitle = \"t\"\nrate = \"50GB/s\"\ndelay = \"1us\"",
        "ratios = [1, 2.5]\npair = [3, 4]\ncolour = \"blue-green\"\nsize = [\"a\"]",
        "control = { control = \"none\" }",
        "control = { steps = 5 }",
        "[[parts]]\nname = \"a\"\nbytes = \"4KiB\"\n[[parts.inside]]\nname = \"b\"\nbytes = \"1B\"",
        "[by_name.\"with a blank\"]\nname = \"a\"\nbytes = \"4KiB\"",
        "[inner]\npods = 4",
    ];
    for case in cases {
        assert_eq!(complaints(case), "", "{case}");
    }
}

#[test]
fn a_part_of_a_table_keeps_the_rest_of_what_its_owner_chose() {
    let (merged, problems, _) = lay(&["[inner]\ndepth = 1"]);
    assert!(problems.is_empty());
    let root: Root = serde_json::from_value(merged.to_json()).unwrap();
    assert_eq!((root.inner.depth, root.inner.zones), (1, 3));
}

#[test]
fn another_tag_forgets_the_old_parameters_and_the_same_tag_keeps_them() {
    let (merged, problems, _) = lay(&["control = { steps = 9 }", "control = { g = 0.5 }"]);
    assert!(problems.is_empty());
    let table = merged.at("control").unwrap().to_json();
    assert_eq!(table, serde_json::json!({"control": "dcqcn", "steps": 9, "g": 0.5}));

    let (merged, problems, _) = lay(&["control = { steps = 9 }", "control.control = \"hpcc\""]);
    assert!(problems.is_empty());
    let table = merged.at("control").unwrap().to_json();
    assert_eq!(table, serde_json::json!({"control": "hpcc"}));
}

#[test]
fn an_alias_becomes_the_key_itself_in_every_layer() {
    let (merged, problems, _) = lay(&["[inner]\npods = 4", "[inner]\nzones = 5"]);
    assert!(problems.is_empty());
    assert_eq!(merged.at("inner").unwrap().to_json()["zones"], 5);
    assert!(merged.at("inner.pods").is_none());
}

#[test]
fn a_misspelt_key_is_one_mistake_and_its_value_stands_where_it_fits() {
    let (merged, problems, _) = lay(&["cuont = 5\nrte = 400"]);
    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        messages,
        ["there is no key `cuont` in a scenario", "there is no key `rte` in a scenario",]
    );
    assert_eq!(merged.to_json()["count"], 5);
}

#[test]
fn wrong_values_are_named_as_taken_out() {
    let (_, _, dropped) = lay(&["count = \"x\"\ncontrol = { control = \"x\", y = 1 }\nz = 1"]);
    assert_eq!(Vec::from_iter(dropped), ["control", "control.control", "count", "z"]);
}

#[test]
fn a_variant_named_by_its_key_gives_way_to_another() {
    let limit = |texts: &[&str]| {
        let (merged, problems, _) = lay(texts);
        assert!(problems.is_empty(), "{problems:?}");
        serde_json::from_value::<Root>(merged.to_json()).unwrap().limit
    };
    let devices = "limit = { devices = 3 }";
    assert_eq!(limit(&[devices]), Limit::Devices(3));
    assert_eq!(limit(&[devices, "limit.nodes = 4"]), Limit::Nodes(4));
    assert_eq!(limit(&[devices, "limit = { devices = 5 }"]), Limit::Devices(5));
    assert_eq!(limit(&[devices, "limit = \"anywhere\"", "limit.nodes = 2"]), Limit::Nodes(2));
}
