//! The program, asked the same thing in several places and by several builds.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::draw::{Case, text};

/// Where a program is asked: its locale, time zone, threads, and the folder below.
const PLACES: [(&str, &str, &str, &str); 3] = [
    ("C", "UTC", "1", "a"),
    ("de_DE.UTF-8", "America/St_Johns", "2", "b"),
    ("tr_TR.UTF-8", "Pacific/Kiritimati", "7", "c/with spaces/\u{fc}"),
];

/// What costs differ in from run to run.
const COSTS: [&str; 6] =
    ["cpu_s", "wall_s", "peak_rss_bytes", "memory_bytes", "command", "events_per_s"];

/// The exit code, and what was answered without what it cost.
fn ask(program: &str, folder: &Path, place: usize, words: &[&str]) -> (Option<i32>, Value) {
    let (locale, zone, threads, below) = PLACES[place];
    let folder = folder.join(below);
    let mut command = Command::new(program);
    command.current_dir(&folder).args(words).args(["case.toml", "--json"]);
    command.args(["--threads", threads]).env_clear();
    command.env("LC_ALL", locale).env("TZ", zone).env("HOME", &folder).env("COLUMNS", "77");
    let output = command.output().expect("the program runs");
    let mut answer = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    forget_costs(&mut answer);
    (output.status.code(), answer)
}

fn forget_costs(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !COSTS.contains(&name.as_str()));
            fields.values_mut().for_each(forget_costs);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_costs),
        _ => {}
    }
}

/// Where two answers differ first.
fn difference(one: &Value, other: &Value, at: &str) -> Option<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            if one.len() != other.len() {
                return Some(format!("{at}: other fields"));
            }
            let mut fields = one.iter();
            fields.find_map(|(name, value)| {
                difference(value, other.get(name).unwrap_or(&Value::Null), &format!("{at}.{name}"))
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let mut pairs = one.iter().zip(other).enumerate();
            pairs.find_map(|(number, (a, b))| difference(a, b, &format!("{at}.{number}")))
        }
        _ => (one != other).then(|| format!("{at}: {one} and {other}")),
    }
}

/// Any place, thread count and build gives the same answer; `check` says yes to what `run` takes.
pub(crate) fn agrees(case: &Case) -> Result<(), String> {
    let own = std::env::var("FATFLOW_PROGRAM");
    let own = own.unwrap_or_else(|_| env!("CARGO_BIN_EXE_fatflow").to_owned());
    let other = std::env::var("FATFLOW_OTHER").unwrap_or_else(|_| own.clone());
    let folder = tempfile::tempdir().expect("there is a place for files");
    for (.., below) in PLACES {
        let below = folder.path().join(below);
        let written = std::fs::create_dir_all(&below)
            .and_then(|()| std::fs::write(below.join("case.toml"), text(case)));
        written.expect("there is room");
    }
    // Packets of a whole step take too long for thousands of cases.
    let is_job = case.iter().any(|(key, _)| key.starts_with("job"));
    let engines: &[&str] =
        if is_job { &["analytic", "flow"] } else { &["analytic", "flow", "packet"] };
    for engine in engines {
        let run = ["run", "--engine", engine];
        let (code, answer) = ask(&own, folder.path(), 0, &run);
        if !matches!(code, Some(0..=3)) {
            return Err(format!("{engine}: it ends with {code:?}"));
        }
        let (checked, check) = ask(&own, folder.path(), 0, &["check", "--engine", engine]);
        // What is wrong with a scenario is exit code 3 of both.
        if (checked == Some(3)) != (code == Some(3)) {
            return Err(format!("{engine}: check ends with {checked:?}, run with {code:?}"));
        }
        if code == Some(0) && check["scenario"] != answer["scenario"] {
            return Err(format!("{engine}: check and run know another scenario"));
        }
        for place in 1..PLACES.len() {
            let (again, elsewhere) = ask(&other, folder.path(), place, &run);
            if again != code {
                return Err(format!("{engine}: {code:?} here, {again:?} elsewhere"));
            }
            if let Some(place) = difference(&answer, &elsewhere, "answer") {
                return Err(format!("{engine}: elsewhere it says something else: {place}"));
            }
        }
    }
    Ok(())
}
