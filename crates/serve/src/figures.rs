//! What the list of runs shows of a result: its step, MFU, cost and verdict, and a person's note.
//!
//! Both are small files of the run. Figures are read out of `result.json` once, when somebody first
//! lists the run, and kept.

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

/// A run with what the table shows.
#[derive(Debug, Serialize)]
pub struct Listed {
    #[serde(flatten)]
    run: Run,
    figures: Figures,
    note: String,
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

/// The runs with what the table shows of them.
pub fn listed(store: &Store, runs: Vec<Run>) -> io::Result<Vec<Listed>> {
    runs.into_iter().map(|run| one(store, run)).collect()
}

/// One of them.
pub fn one(store: &Store, run: Run) -> io::Result<Listed> {
    let note = store.file(run.id, NOTE)?.unwrap_or_default();
    let note = String::from_utf8_lossy(&note).into_owned();
    Ok(Listed { figures: figures(store, run.id)?, run, note })
}

fn figures(store: &Store, id: u64) -> io::Result<Figures> {
    if let Some(known) = store.file(id, FIGURES)? {
        return Ok(serde_json::from_slice(&known).unwrap_or_default());
    }
    let Some(result) = store.file(id, "result.json")? else { return Ok(Figures::default()) };
    let figures = Figures::of(&serde_json::from_slice(&result).unwrap_or_default());
    store.keep(id, FIGURES, &serde_json::to_vec(&figures).expect("plain data serialises"))?;
    Ok(figures)
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
