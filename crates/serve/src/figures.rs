//! What the list of runs shows: a result's step, MFU, cost and verdict, a person's note, and which
//! settings changed since the run before of the same name.
//!
//! Figures and settings are read once, when somebody first lists the run, and kept.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::{Run, Store};

const FIGURES: &str = "figures.json";
const NOTE: &str = "note.txt";

/// The most characters of a note.
pub const MAX_NOTE: usize = 2_000;

/// What a table shows of a result.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Figures {
    /// Of a job's step, or of synthetic traffic until its end.
    pub step_s: Option<f64>,
    /// Model FLOPs over what the GPUs could do.
    pub mfu: Option<f64>,
    /// Of the cluster, or of the job's share of it.
    pub cost_usd: Option<f64>,
    /// In words.
    pub verdict: Option<String>,
    /// Changes that the run makes look worthwhile; of advice those that gain, the most first.
    #[serde(default)]
    pub levers: Vec<Lever>,
}

/// A change that looks worthwhile.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Lever {
    /// What it is.
    pub name: String,
    /// `PATH=VALUE`, as `--set` takes them.
    pub set: Vec<String>,
    /// The share that it gains, where somebody has tried it.
    #[serde(default)]
    pub gain: Option<f64>,
}

/// Changes of an advice that are listed.
const MOST_CHANGES: usize = 24;

/// Changed settings that are listed.
const MOST_SETTINGS: usize = 12;

/// The settings that a scenario's own text writes, as TOML.
type Written = BTreeMap<String, String>;

/// What is kept of a run that has a result.
#[derive(Deserialize, Serialize)]
struct Kept {
    #[serde(flatten)]
    figures: Figures,
    written: Written,
}

/// How a run's scenario differs from an earlier one's.
#[derive(Debug, Serialize)]
struct Changed {
    /// The run before of the same name.
    since: u64,
    /// Key, value then, value now; empty where it was or is left out.
    settings: Vec<[String; 3]>,
}

/// A run with what the table shows.
#[derive(Debug, Serialize)]
pub struct Listed {
    #[serde(flatten)]
    run: Run,
    figures: Figures,
    note: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Changed>,
}

impl Figures {
    /// Of a command's JSON.
    pub fn of(answer: &Value) -> Self {
        let result = &answer["result"];
        let number = |paths: &[&str]| paths.iter().find_map(|path| result.pointer(path)?.as_f64());
        let at =
            |paths: [&'static str; 2]| paths.into_iter().filter_map(|path| result.pointer(path));
        let verdict = at(["/verdict/text", "/verdict"]).find_map(Value::as_str);
        let levers = at(["/verdict/levers", "/changes"]).find_map(Value::as_array);
        let lever = |value: &Value| Lever::deserialize(value).ok();
        let levers = levers.into_iter().flatten().filter_map(lever);
        Self {
            step_s: number(&["/step_s", "/makespan_s", "/base/step_s"]),
            mfu: number(&["/mfu"]),
            cost_usd: number(&["/cost_usd", "/cost/capital_usd", "/base/cost_usd"]),
            verdict: verdict.map(str::to_owned),
            levers: levers.take(MOST_CHANGES).collect(),
        }
    }
}

/// The runs with what the table shows of them, the first before the last.
pub fn listed(store: &Store, mut runs: Vec<Run>) -> io::Result<Vec<Listed>> {
    runs.sort_by_key(|run| run.id);
    let mut last: BTreeMap<String, (u64, Written)> = BTreeMap::new();
    let shown = runs.into_iter().map(|run| {
        let Kept { figures, written } = kept(store, run.id)?;
        let changed = last.get(&run.name).map(|(since, before)| Changed {
            since: *since,
            settings: differences(before, &written),
        });
        last.insert(run.name.clone(), (run.id, written));
        Ok(Listed { note: note(store, run.id)?, run, figures, changed })
    });
    shown.collect()
}

/// One of them.
pub fn one(store: &Store, run: Run) -> io::Result<Listed> {
    let figures = kept(store, run.id)?.figures;
    Ok(Listed { note: note(store, run.id)?, run, figures, changed: None })
}

fn note(store: &Store, id: u64) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&store.file(id, NOTE)?.unwrap_or_default()).into_owned())
}

fn kept(store: &Store, id: u64) -> io::Result<Kept> {
    // What an earlier version has kept may lack something, and is read anew.
    let known = store.file(id, FIGURES)?;
    if let Some(known) = known.and_then(|known| serde_json::from_slice(&known).ok()) {
        return Ok(known);
    }
    let scenario = store.file(id, "scenario.toml")?.unwrap_or_default();
    let written = written(&String::from_utf8_lossy(&scenario));
    let Some(result) = store.file(id, "result.json")? else {
        return Ok(Kept { figures: Figures::default(), written });
    };
    let figures = Figures::of(&serde_json::from_slice(&result).unwrap_or_default());
    let kept = Kept { figures, written };
    store.keep(id, FIGURES, &serde_json::to_vec(&kept).expect("plain data serialises"))?;
    Ok(kept)
}

/// The settings of a scenario's text; what is in lists of tables is called by its number.
fn written(text: &str) -> Written {
    fn add(path: &str, value: &toml::Value, all: &mut Written) {
        let below = |key: &str| if path.is_empty() { key.into() } else { format!("{path}.{key}") };
        match value {
            toml::Value::Table(table) => {
                table.iter().for_each(|(key, value)| add(&below(key), value, all));
            }
            toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => {
                let numbered = list.iter().enumerate();
                numbered.for_each(|(at, value)| add(&below(&at.to_string()), value, all));
            }
            plain => drop(all.insert(path.to_owned(), plain.to_string())),
        }
    }
    let mut all = Written::new();
    add("", &toml::Value::Table(text.parse().unwrap_or_default()), &mut all);
    all
}

fn differences(before: &Written, now: &Written) -> Vec<[String; 3]> {
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let differ = keys.into_iter().filter(|key| before.get(*key) != now.get(*key));
    let cut = |value: Option<&String>| -> String {
        value.map_or_else(String::new, |value| value.chars().take(60).collect())
    };
    let row = |key: &String| [key.clone(), cut(before.get(key)), cut(now.get(key))];
    differ.map(row).take(MOST_SETTINGS).collect()
}

/// Keeps a person's note.
pub fn annotate(store: &Store, id: u64, note: &str) -> io::Result<()> {
    let note: String = note.chars().take(MAX_NOTE).collect();
    store.keep(id, NOTE, note.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scenario_writes_differs_by_key() {
        let of = |text: &str| written(text);
        let before = of("from = \"small-16\"\n[network]\nrouting = { qps = 1 }\nx = [1, 2]\n");
        assert_eq!(before["network.x"], "[1, 2]");
        let now = of("from = \"small-16\"\n[network.routing]\nqps = 16\n[network]\nx = [1, 2]\n\
                      [[faults]]\non = \"NIC 0\"\n");
        let differ = [["faults.0.on", "", "\"NIC 0\""], ["network.routing.qps", "1", "16"]];
        assert_eq!(differences(&before, &now), differ.map(|row| row.map(str::to_owned)));
        assert!(differences(&now, &now).is_empty());
        assert!(of("= broken").is_empty());
    }

    #[test]
    fn figures_are_found_wherever_a_command_puts_them() {
        let of = |text: &str| Figures::of(&serde_json::from_str(text).unwrap());
        let job = of(r#"{"result":{"step_s":2.5,"mfu":0.4,"cost":{"capital_usd":7},
                        "verdict":{"text":"fine","levers":[{"name":"more","set":["a.b=2"],"why":""}]}}}"#);
        assert_eq!(job.levers[0].set, ["a.b=2"]);
        assert_eq!((job.step_s, job.mfu, job.cost_usd), (Some(2.5), Some(0.4), Some(7.0)));
        assert_eq!(job.verdict.as_deref(), Some("fine"));
        assert_eq!(of(r#"{"result":{"cost_usd":3}}"#).cost_usd, Some(3.0));
        assert_eq!(of(r#"{"result":{"makespan_s":1e-3}}"#).step_s, Some(1e-3));
        assert_eq!(of("null"), Figures::default());
        let advice = of(r#"{"result":{"verdict":"change it","base":{"step_s":3,"cost_usd":9},
                           "changes":[{"name":"x","set":["c=1"],"gain":0.2,"kind":"layout"}]}}"#);
        assert_eq!((advice.step_s, advice.cost_usd), (Some(3.0), Some(9.0)));
        assert_eq!(
            (advice.verdict.as_deref(), advice.levers[0].gain),
            (Some("change it"), Some(0.2))
        );
    }
}
