//! `explain`: what a key means, what it may be, who obeys it, and what it does in a scenario.
//!
//! [`entries`] is the one generator: the schema (whose text is the doc comments of the settings),
//! the ranges beside the settings, their defaults, and the purposes that do not obey them, asked
//! of every preset. `explain` shows one entry, the book's reference of keys shows all.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::OnceLock;

use report::{Align, Answer, Sheet, Table};
use scenario::schema::Key;
use scenario::{Engine, Extent, Purpose, Request, ScenarioFile, load, preset, schema};
use serde::Serialize;
use serde_json::Value as Json;
use traffic::Collective;
use units::{Ranges, UnusedKeys};

use crate::failure::Failure;

mod effect;
mod finding;
mod reference;

pub use reference::reference;

pub use effect::{Effect, Tried, effect};
pub use finding::{FINDINGS, Finding, finding};

/// What is known of one key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The dotted path; `*` stands for a name or a number of the user's.
    pub key: String,
    /// What the tag of its table must be for it to be there: `control = "dcqcn"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_with: Option<String>,
    /// What it means.
    pub about: String,
    /// The kinds of value that it takes.
    pub kinds: Vec<&'static str>,
    /// The unit in which it is written, with an example; empty for plain numbers and words.
    pub unit: &'static str,
    /// The words that it takes.
    pub words: Vec<Word>,
    /// What it may be, where it has a range.
    pub range: String,
    /// Its default as TOML; empty where it has none, or follows from others.
    pub default: String,
    /// How it is written, as TOML.
    pub example: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// The commands and engines that obey it, in at least one preset.
    pub obeyed_by: Vec<&'static str>,
    /// What makes the others obey it, as they say.
    pub needs: Vec<String>,
}

/// A word that a key takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Word {
    /// The word.
    pub word: String,
    /// What it means.
    pub about: String,
}

/// Every key of the scenario file, tables before what is in them, but for who obeys it, which
/// [`Entry::whole`] adds: that takes a while.
pub fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let defaults = serde_json::to_value(ScenarioFile::default()).unwrap_or_default();
        // The first scenario that has a key says its range.
        let mut ranges: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for known in scenarios().iter().flat_map(|scenario| Ranges::known("", scenario)) {
            let place = ranges.len();
            ranges.entry(known.key).or_insert((place, known.range));
        }
        let range = |path: &str| {
            let named = path.split('*').next().unwrap_or_default();
            let from = ranges.range::<str, _>((Bound::Included(named), Bound::Unbounded));
            let near = from.take_while(|(key, _)| key.starts_with(named));
            let found = near.filter(|(key, _)| matches(path, key));
            found.min_by_key(|(_, (place, _))| *place).map_or(String::new(), |(_, it)| it.1.clone())
        };
        let entry = |key: Key<'_>| entry(&key, &defaults, range(&key.path));
        let mut entries: Vec<Entry> = schema().keys().into_iter().map(entry).collect();
        // The keys that every variant of a table has are one.
        entries.dedup_by(|b, a| a.key == b.key && a.about == b.about && merge(a, b));
        entries
    })
}

/// Two entries of one key are one that both variants have.
fn merge(a: &mut Entry, b: &Entry) -> bool {
    if let (Some(a), Some(b)) = (&mut a.only_with, &b.only_with) {
        *a = format!("{a} or {b}");
    }
    true
}

/// The entries of a key: several where variants of a table have it with other meanings.
pub fn of(key: &str) -> Vec<&'static Entry> {
    let own = |entry: &&Entry| {
        let by_other_name = || {
            let (home, last) = key.rsplit_once('.').unwrap_or(("", key));
            let own_home = entry.key.rsplit_once('.').map_or("", |(home, _)| home);
            matches(own_home, home) && entry.aliases.iter().any(|alias| alias == last)
        };
        matches(&entry.key, key) || by_other_name()
    };
    let found: Vec<&Entry> = entries().iter().filter(own).collect();
    if !found.is_empty() {
        return found;
    }
    // The place in a list may be left out: `fabric.links.length`.
    let without = |entry: &&Entry| entry.key.split('.').filter(|at| *at != "*").eq(key.split('.'));
    entries().iter().filter(without).collect()
}

/// The entries of a key by its last word, where only one key ends so (`qps`), or by the library's
/// name for it (`NCCL_IB_QPS_PER_CONNECTION`).
fn by_other_word(key: &str) -> Vec<&'static Entry> {
    let ends = |entry: &&Entry| entry.key.rsplit('.').next() == Some(key);
    let found: Vec<&Entry> = entries().iter().filter(ends).collect();
    let is_one = found.first().is_some_and(|one| found.iter().all(|other| other.key == one.key));
    let mentions = |entry: &&Entry| key.contains('_') && entry.about.contains(key);
    if is_one { found } else { entries().iter().filter(mentions).collect() }
}

/// Whether a key is a table or a list of tables, which has no value of its own.
pub fn is_table(key: &str) -> bool {
    let depth = key.split('.').count();
    entries().iter().any(|entry| {
        let head: Vec<&str> = entry.key.split('.').take(depth).collect();
        depth < entry.key.split('.').count() && matches(&head.join("."), key)
    })
}

/// Whether a path is what a pattern with `*` describes.
fn matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('.'), path.split('.'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if one == "*" || one == other => {}
            _ => return false,
        }
    }
}

impl Entry {
    /// With who obeys it, and what makes others obey it.
    pub fn whole(&self) -> Self {
        let (mut obeyed_by, mut needs): (Vec<&'static str>, Vec<String>) = Default::default();
        for KeyUse { who, idle, scenario } in asked() {
            match idle.find(&concrete(&self.key, scenario)) {
                None => obeyed_by.push(who),
                Some(idle) => needs.push(idle.used_by.clone()),
            }
        }
        needs.sort();
        needs.dedup();
        // Those of one name stand together.
        obeyed_by.dedup();
        Self { obeyed_by, needs, ..self.clone() }
    }
}

fn entry(key: &Key<'_>, defaults: &Json, range: String) -> Entry {
    let pointer = format!("/{}", key.path.replace('.', "/"));
    let default = defaults.pointer(&pointer).or(key.default);
    let default = default.filter(|value| !value.is_object()).and_then(toml).unwrap_or_default();
    let word = |(word, about): &(&str, &str)| Word {
        word: (*word).to_owned(),
        about: (*about).to_owned(),
    };
    let words: Vec<&str> = key.words.iter().map(|(word, _)| *word).collect();
    let example = example(key, &words, (&default, &range));
    Entry {
        example,
        key: key.path.clone(),
        only_with: key.variant.clone(),
        about: key.about.to_owned(),
        kinds: key.kinds.clone(),
        unit: unit(&key.kinds),
        words: key.words.iter().map(word).collect(),
        range,
        default,
        aliases: key.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        obeyed_by: Vec::new(),
        needs: Vec::new(),
    }
}

/// How a key is written: as the examples say, else with its default, a word, or a value of its
/// kind.
fn example(key: &Key<'_>, words: &[&str], (default, range): (&str, &str)) -> String {
    let Key { path, kinds, .. } = key;
    if let Some(text) = scenario::example::example(path) {
        return text.trim_end().to_owned();
    }
    let usual = [
        ("time", "\"1.5us\""),
        ("size", "\"4MiB\""),
        ("rate", "\"400Gbps\""),
        ("length", "\"2m\""),
        ("truth", "true"),
        ("whole number", "8"),
        ("number", "0.5"),
    ];
    let of_kind = usual.iter().find(|(kind, _)| kinds.contains(kind));
    let value = match (words.first(), of_kind) {
        _ if !default.is_empty() && default != "[]" => default.to_owned(),
        (Some(word), _) => match key.tag {
            Some(tag) => format!("{{ {tag} = \"{word}\" }}"),
            None => format!("\"{word}\""),
        },
        (None, Some((_, value))) => within(range, value),
        (None, None) => return String::new(),
    };
    format!("{path} = {value}")
}

/// A value, or the nearest that a range `from A to B` allows.
fn within(range: &str, value: &str) -> String {
    let ends = range.strip_prefix("from ").and_then(|ends| ends.split_once(" to "));
    let Some((low, high)) = ends else { return value.to_owned() };
    let number = |text: &str| text.parse::<f64>().ok();
    match (number(low), number(value), number(high)) {
        (Some(least), Some(own), _) if own < least => low.to_owned(),
        (_, Some(own), Some(most)) if most < own => high.to_owned(),
        _ => value.to_owned(),
    }
}

/// In what it is written.
fn unit(kinds: &[&str]) -> &'static str {
    let units = [
        ("time", "ps, ns, us, ms, s, min, h, d: \"1.5us\""),
        ("size", "B, KiB, MiB, GiB, KB, MB, GB: \"4MiB\""),
        ("rate", "bps, Kbps, Mbps, Gbps, Tbps: \"400Gbps\""),
        ("length", "m, km: \"2m\""),
    ];
    units.iter().find(|(kind, _)| kinds.contains(kind)).map_or("", |(_, unit)| unit)
}

/// A path with the names that a scenario has in place of `*`.
fn concrete(path: &str, scenario: &ScenarioFile) -> String {
    let name = match path.split('.').nth(1).filter(|_| path.starts_with("catalogue.")) {
        Some("gpu") => scenario.cluster.gpu.clone(),
        Some("nic") => scenario.cluster.nic.clone(),
        Some("switch") => scenario.fabric.leaf.switch.clone().unwrap_or_default(),
        _ => "0".to_owned(),
    };
    path.replacen('*', &name, 1).replace('*', "0")
}

/// A scenario, and what somebody who wants something of it does not obey.
struct KeyUse {
    who: &'static str,
    idle: UnusedKeys,
    scenario: &'static ScenarioFile,
}

/// Every preset, and synthetic traffic of every pattern.
fn scenarios() -> &'static [ScenarioFile] {
    static SCENARIOS: OnceLock<Vec<ScenarioFile>> = OnceLock::new();
    SCENARIOS.get_or_init(read_scenarios)
}

fn read_scenarios() -> Vec<ScenarioFile> {
    let request = |scenario: Option<String>, set: Vec<String>| Request {
        scenario,
        set,
        extent: Extent::Settings,
        ..Request::default()
    };
    let presets = preset::names().map(|name| request(Some(name.to_owned()), Vec::new()));
    // What is obeyed only where something fails.
    let fault = "faults=[{on=\"NIC 0\",at=\"1s\",for=\"1s\",what={kind=\"link-down\"}}]";
    let presets = presets.chain([request(Some("small-16".to_owned()), vec![fault.to_owned()])]);
    let patterns = schema().words("traffic.pattern").into_iter();
    let traffic = patterns.map(|(word, _)| {
        request(None, vec![format!("traffic.pattern={word}"), "traffic.bytes=1MiB".to_owned()])
    });
    let all = presets.chain(traffic);
    all.filter_map(|request| Some(load(&request).ok()?.scenario)).collect()
}

/// Every purpose on every scenario.
fn asked() -> &'static [KeyUse] {
    static ASKED: OnceLock<Vec<KeyUse>> = OnceLock::new();
    let of = |who, purpose| {
        scenarios().iter().map(move |scenario| KeyUse {
            who,
            idle: scenario::purpose::idle(scenario, purpose, None),
            scenario,
        })
    };
    ASKED.get_or_init(|| PURPOSES.into_iter().flat_map(|(who, purpose)| of(who, purpose)).collect())
}

/// Who may obey a key.
const PURPOSES: [(&str, Purpose); 14] = [
    ("topo", Purpose::Topology),
    ("topo --domains", Purpose::Domains),
    ("traffic", Purpose::Wire),
    ("place", Purpose::Place),
    ("collective on closed forms", Purpose::Collective(Engine::Analytic, Collective::AllReduce)),
    ("collective on closed forms", Purpose::Collective(Engine::Analytic, Collective::AllToAll)),
    ("collective on flows", Purpose::Collective(Engine::Flow, Collective::AllReduce)),
    ("collective on flows", Purpose::Collective(Engine::Flow, Collective::AllToAll)),
    ("collective on packets", Purpose::Collective(Engine::Packet, Collective::AllReduce)),
    ("collective on packets", Purpose::Collective(Engine::Packet, Collective::AllToAll)),
    ("run on closed forms", Purpose::Run(Engine::Analytic)),
    ("run on flows", Purpose::Run(Engine::Flow)),
    ("run on packets", Purpose::Run(Engine::Packet)),
    ("run --days", Purpose::Campaign(Engine::Flow)),
];

/// A value as TOML on one line; nothing for `null`.
pub(crate) fn toml(json: &Json) -> Option<String> {
    match json {
        Json::Null => None,
        Json::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(toml).collect();
            Some(format!("[{}]", items.join(", ")))
        }
        Json::Object(fields) => {
            let field = |(key, value): (&String, &Json)| Some(format!("{key} = {}", toml(value)?));
            let fields: Vec<String> = fields.iter().filter_map(field).collect();
            Some(format!("{{ {} }}", fields.join(", ")))
        }
        scalar => Some(scalar.to_string()),
    }
}

/// A key, and what it did.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// The finding, where that was asked; the entries are those of its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<&'static Finding>,
    /// What a word of the glossary means, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// What is known of it.
    pub entries: Vec<Entry>,
    /// The keys inside it, if it is a table.
    pub inside: Vec<String>,
    /// What it did in a scenario, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// What each key of a finding did in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<(&'static str, Effect)>,
}

/// Explains a key, or a finding by its keys.
pub fn run(key: &str) -> Result<Explained, Failure> {
    if let Some(finding) = finding(key) {
        let entries = finding.keys.iter().flat_map(|key| of(key)).map(Entry::whole).collect();
        let (inside, effects) = (Vec::new(), Vec::new());
        let (finding, meaning) = (Some(finding), None);
        return Ok(Explained { finding, meaning, entries, inside, effect: None, effects });
    }
    let is_key = || schema().keys().iter().any(|known| known.path == key);
    if let Some(meaning) = glossary(key).filter(|_| !is_key()) {
        let meaning = Some(meaning);
        let (entries, inside, effects) = Default::default();
        return Ok(Explained { finding: None, meaning, entries, inside, effect: None, effects });
    }
    let mut found = of(key);
    if found.is_empty() {
        found = by_other_word(key);
    }
    let entries: Vec<Entry> = found.into_iter().map(Entry::whole).collect();
    let Some(first) = entries.first() else { return Err(unknown(key)) };
    // With the places in lists that somebody may have left out.
    let key = first.key.as_str();
    let depth = key.split('.').count();
    let is_inside = |inner: &&Entry| {
        let head: Vec<&str> = inner.key.split('.').take(depth).collect();
        let rest = inner.key.split('.').skip(depth).filter(|step| *step != "*").count();
        rest == 1 && matches(&head.join("."), key)
    };
    let mut inside: Vec<String> =
        self::entries().iter().filter(is_inside).map(|inner| inner.key.clone()).collect();
    // Several variants of a table may have a key of one name.
    inside.dedup();
    let (finding, meaning, effects) = (None, None, Vec::new());
    Ok(Explained { finding, meaning, entries, inside, effect: None, effects })
}

/// What the book's glossary says of a word, as answers print it: "the fabric costs", "bubble".
fn glossary(asked: &str) -> Option<String> {
    let plain = |word: &str| {
        let word = word.trim().to_lowercase();
        word.strip_prefix("the ").map_or_else(|| word.clone(), str::to_owned)
    };
    let asked = plain(asked);
    let page = embedded::text!("glossary.md");
    let mut rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let row = rows.find(|(words, _)| words.split(", ").any(|word| plain(word) == asked));
    row.map(|(words, meaning)| format!("{words}: {}.", meaning.trim_end_matches([' ', '|'])))
}

fn unknown(key: &str) -> Failure {
    let last = key.rsplit('.').next().unwrap_or(key);
    let mut paths = schema().paths_to(last);
    paths.truncate(5);
    if paths.is_empty() {
        let known = entries().iter().map(|entry| entry.key.as_str());
        let known = known.chain(FINDINGS.iter().map(|finding| finding.name));
        paths.extend(scenario::nearest::nearest(key, known).map(str::to_owned));
    }
    let hint = match paths.as_slice() {
        [] => "`fatflow schema` has them all".to_owned(),
        paths => format!("is it {}?", paths.join(" or ")),
    };
    Failure::Usage(format!("no key, finding or word of the glossary is `{key}`; {hint}"))
}

impl Answer for Explained {
    fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new();
        if let Some(finding) = self.finding {
            sheet = sheet.heading(format!("{}, as `{}` finds it", finding.name, finding.by));
            sheet = sheet.text(match finding.keys {
                [] => format!("{} No key of a scenario has to do with it.", finding.about),
                keys => format!("{} Keys: {}.", finding.about, keys.join(", ")),
            });
        }
        if let Some(meaning) = &self.meaning {
            sheet = sheet.text(meaning);
        }
        if !self.effects.is_empty() {
            for (key, effect) in &self.effects {
                sheet = effect.show(sheet, &format!("{key} in this scenario"));
            }
            return sheet;
        }
        for entry in &self.entries {
            let heading = match &entry.only_with {
                Some(with) => format!("{} (with {with})", entry.key),
                None => entry.key.clone(),
            };
            sheet = sheet.heading(heading).text(entry.about.replace('\n', " "));
            sheet = sheet.table(facts(entry));
            if entry.example.contains('\n') {
                sheet = sheet.verbatim(entry.example.clone());
            }
            if !entry.words.is_empty() {
                let mut words = Table::new([("value", Align::Left), ("meaning", Align::Left)]);
                for Word { word, about } in &entry.words {
                    words.row([word.clone(), about.replace('\n', " ")]);
                }
                sheet = sheet.table(words);
            }
        }
        if !self.inside.is_empty() {
            sheet = sheet.heading("Keys inside").text(self.inside.join(", "));
        }
        match &self.effect {
            Some(effect) => effect.show(sheet, "In this scenario"),
            None => sheet,
        }
    }
}

fn facts(entry: &Entry) -> Table {
    let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            table.row([name.to_owned(), value]);
        }
    };
    row("kind", entry.kinds.join(" or "));
    row("written in", entry.unit.to_owned());
    row("range", entry.range.clone());
    row("default", entry.default.clone());
    row(
        "example",
        if entry.example.contains('\n') { "below".into() } else { entry.example.clone() },
    );
    row("also called", entry.aliases.join(", "));
    row("obeyed by", entry.obeyed_by.join(", "));
    row("by others with", entry.needs.join("; "));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_meaning_and_who_obeys_it_or_what_it_needs() {
        let has_none = |entry: &Entry| {
            let has_reader = !entry.obeyed_by.is_empty() || !entry.needs.is_empty();
            entry.about.is_empty() || !has_reader
        };
        let whole = entries().iter().map(Entry::whole);
        let without: Vec<String> = whole.filter(has_none).map(|entry| entry.key).collect();
        assert!(without.is_empty(), "{without:?}");
        assert!(400 < entries().len(), "{}", entries().len());
    }

    #[test]
    fn a_key_has_its_default_its_range_and_who_obeys_it() {
        let entry = |key: &str| match of(key)[..] {
            [one] => one.whole(),
            _ => panic!("{key}"),
        };
        let qps = entry("network.routing.qps");
        assert_eq!((&*qps.default, &*qps.range), ("1", "from 1 to 4096"));
        assert!(qps.obeyed_by.contains(&"run on flows"), "{qps:?}");
        assert!(!qps.obeyed_by.contains(&"topo"), "{qps:?}");
        let min = entry("network.ecn.min");
        assert_eq!(min.kinds, ["size"]);
        assert!(!min.obeyed_by.contains(&"run on flows"), "{min:?}");
        assert!(min.obeyed_by.contains(&"run on packets"), "{min:?}");
        let [gpus] = of("fabric.zone_gpus")[..] else { panic!() };
        assert_eq!(gpus.key, "fabric.pod_gpus");
        let [length] = of("fabric.links.length")[..] else { panic!() };
        assert_eq!(length.key, "fabric.links.*.length");
        assert!(!of("catalogue.gpu.h100-sxm.memory_gb").is_empty());
    }

    #[test]
    fn what_is_no_key_is_refused_with_what_was_meant() {
        let refusal = run("network.qps").unwrap_err().to_string();
        assert!(refusal.contains("network.routing.qps"), "{refusal}");
    }

    #[test]
    fn keys_are_known_by_their_last_word_and_by_the_librarys_name() {
        for word in ["qps", "NCCL_IB_QPS_PER_CONNECTION"] {
            let explained = run(word).unwrap();
            assert_eq!(explained.entries[0].key, "network.routing.qps", "{word}");
        }
    }

    /// Each variant of a table has one word; the key that chooses has all of them.
    #[test]
    fn a_key_that_chooses_a_table_has_the_words_of_all() {
        for (key, most) in [("network.congestion.control", "hpcc"), ("faults.what.kind", "flap")] {
            let explained = run(key).unwrap();
            let words = explained.entries[0].words.iter();
            let words: Vec<&str> = words.map(|word| word.word.as_str()).collect();
            assert!(2 < words.len() && words.contains(&most), "{key}: {words:?}");
        }
    }

    #[test]
    fn examples_lie_within_ranges() {
        let [tiers] = of("fabric.tiers")[..] else { panic!() };
        assert_eq!((&*tiers.range, &*tiers.example), ("from 1 to 3", "fabric.tiers = 3"));
    }

    /// What answers print is explained under the name that they print.
    #[test]
    fn words_of_answers_are_explained() {
        let meaning = |word: &str| run(word).unwrap().meaning.expect("it is in the glossary");
        for word in ["the fabric costs", "exposed communication", "bubble", "Goodput", "MFU"] {
            assert!(20 < meaning(word).len(), "{word}");
        }
        let told = meaning("the fabric costs");
        assert!(told.contains("contention"), "{told}");
    }

    /// Some keys are obeyed on flows only where something fails.
    #[test]
    fn a_key_that_faults_make_flows_obey_says_so() {
        let timeout = of("network.nic.timeout")[0].whole();
        assert!(timeout.obeyed_by.contains(&"run on flows"), "{timeout:?}");
    }
}
