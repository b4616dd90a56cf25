//! What a key did in a scenario: the same run with the value doubled, halved, or another word.

use report::number::significant;
use report::{Align, Sheet, Table};
use scenario::Loaded;
use serde::Serialize;
use serde_json::Value as Json;
use units::Span;

use super::{of, toml};
use crate::engine::Engine;
use crate::failure::Failure;
use crate::parallel;
use crate::trial::Bench;

/// What a key did.
#[derive(Clone, Debug, Serialize)]
pub struct Effect {
    /// Its value in the scenario, as TOML.
    pub value: String,
    /// Where that came from.
    pub origin: String,
    /// The step, or the time of synthetic traffic, as it is.
    pub step_s: f64,
    /// On which engine.
    #[serde(skip)]
    pub engine: Engine,
    /// The same with other values.
    pub tried: Vec<Tried>,
    /// Why it has no effect, where the run does not obey it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
}

/// One other value.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// `PATH=VALUE`, as `--set` takes it.
    pub set: String,
    /// The step with it; none where it is refused.
    pub step_s: Option<f64>,
    /// The change of the step, as a share: negative is shorter.
    pub change: Option<f64>,
    /// Why it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Words that are tried at most.
const MOST_WORDS: usize = 12;

/// Tries other values of a key in a scenario that is loaded for this engine.
pub fn effect(
    key: &str,
    loaded: &Loaded,
    bench: &Bench<'_>,
    (engine, threads): (Engine, usize),
) -> Result<Effect, Failure> {
    let json = serde_json::to_value(&loaded.scenario).unwrap_or_default();
    let pointer = format!("/{}", key.replace('.', "/"));
    let value = json.pointer(&pointer).cloned().unwrap_or(Json::Null);
    if value.is_object() {
        return Err(Failure::Usage(format!("`{key}` is a table; name one of its keys")));
    }
    let seed = loaded.scenario.seed;
    let base = bench.run_loaded(loaded, engine)?;
    let others = others(key, &value);
    let tried = parallel::map(threads, &others, |set| {
        let ran = bench.run(std::slice::from_ref(set), engine, seed);
        let (step_s, unused, refused) = match ran {
            Ok(figures) => {
                let own = figures.unused.into_iter().find(|unused| unused.key == key);
                (Some(figures.step_s), own.map(|unused| unused.why), None)
            }
            Err(Failure::Interrupted(reason)) => return Err(Failure::Interrupted(reason)),
            Err(failure) => (None, None, Some(failure.mistake().message)),
        };
        let change = step_s.map(|step_s| step_s / base.step_s - 1.0);
        Ok((Tried { set: set.clone(), step_s, change, refused }, unused))
    });
    let tried: Vec<(Tried, Option<String>)> = tried.into_iter().collect::<Result<_, _>>()?;
    let unused = tried.iter().find_map(|(_, unused)| unused.clone());
    Ok(Effect {
        value: toml(&value).unwrap_or_else(|| "not set".to_owned()),
        origin: loaded.origin_of(key),
        step_s: base.step_s,
        engine,
        tried: tried.into_iter().map(|(tried, _)| tried).collect(),
        unused,
    })
}

/// Other values of a key: doubled, halved, the other truth, the other words.
fn others(key: &str, value: &Json) -> Vec<String> {
    let mut others: Vec<String> = match value {
        Json::Bool(truth) => vec![(!truth).to_string()],
        Json::Number(number) if number.is_u64() => {
            let now = number.as_u64().unwrap_or(0);
            // One cannot be halved: it is doubled further.
            let near = match now {
                0 => vec![1],
                1 => vec![2, 4, 8, 16, 32],
                _ => vec![now.saturating_mul(2), now / 2],
            };
            near.iter().map(u64::to_string).collect()
        }
        Json::Number(number) => {
            let now = number.as_f64().unwrap_or(0.0);
            [2.0 * now, now / 2.0].iter().map(|other| format!("{other:?}")).collect()
        }
        Json::String(text) => [2.0, 0.5].iter().filter_map(|by| scaled(text, *by)).collect(),
        // Nothing said is 1:1; these are what people ask for.
        Json::Array(items) if items.is_empty() && key.ends_with("oversubscription") => {
            ["2:1", "4:1"].map(str::to_owned).to_vec()
        }
        Json::Array(items) if items.iter().all(Json::is_number) && !items.is_empty() => {
            let times = |by: f64| {
                let item = |item: &Json| format!("{:?}", by * item.as_f64().unwrap_or(0.0));
                format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(", "))
            };
            vec![times(2.0), times(0.5)]
        }
        _ => Vec::new(),
    };
    if others.is_empty() {
        let now = value.as_str().unwrap_or_default();
        let words = of(key).into_iter().flat_map(|entry| &entry.words);
        let words = words.filter(|word| word.word != now).take(MOST_WORDS);
        others.extend(words.map(|word| word.word.clone()));
    }
    others.into_iter().map(|other| format!("{key}={other}")).collect()
}

/// A quantity times a factor: `400Gbps` becomes `800Gbps`.
fn scaled(text: &str, by: f64) -> Option<String> {
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let number: f64 = text[..at].parse().ok()?;
    Some(format!("{}{}", by * number, &text[at..]))
}

impl Effect {
    /// Adds what it did to a sheet.
    pub(super) fn show(&self, sheet: Sheet, heading: &str) -> Sheet {
        let step = format!("{:.4}", Span::from_secs_f64(self.step_s));
        let engine = self.engine.name();
        let mut sheet = sheet.heading(heading).text(format!(
            "It is {} ({}), and the step takes {step} on the {engine} engine.",
            self.value, self.origin
        ));
        if let Some(why) = &self.unused {
            sheet = sheet.note(format!("It has no effect here: {why}."));
        }
        if self.tried.is_empty() {
            return sheet.text("It has no other value that could be tried by itself.");
        }
        let columns = [("with", Align::Left), ("step", Align::Right), ("change", Align::Right)];
        let mut table = Table::new(columns);
        for Tried { set, step_s, change, refused } in &self.tried {
            let step = step_s.map(|step_s| format!("{:.4}", Span::from_secs_f64(step_s)));
            let change = change.map(|change| match change {
                0.0 => "none".to_owned(),
                _ => format!("{:+.2} %", 100.0 * change),
            });
            let name = match refused {
                Some(reason) => format!("{set}: {reason}"),
                None => set.clone(),
            };
            let refused = || "refused".to_owned();
            table.row([name, step.unwrap_or_else(refused), change.unwrap_or_default()]);
        }
        let largest = self.tried.iter().filter_map(|tried| tried.change).map(f64::abs);
        let largest = 100.0 * largest.fold(0.0, f64::max);
        let words = match largest {
            0.0 => "Nothing moves the step.".to_owned(),
            _ => format!("The most that one of them moves the step is {} %.", significant(largest)),
        };
        sheet.table(table).text(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_doubled_and_halved_in_their_unit() {
        assert_eq!(scaled("400Gbps", 0.5).unwrap(), "200Gbps");
        assert_eq!(scaled("1.5us", 2.0).unwrap(), "3us");
        assert_eq!(scaled("ecmp", 2.0), None);
        let whole = others("network.routing.qps", &16.into());
        assert_eq!(whole, ["network.routing.qps=32", "network.routing.qps=8"]);
        let of_one = others("network.routing.qps", &1.into());
        assert_eq!(of_one.len(), 5);
        assert!(of_one.contains(&"network.routing.qps=32".to_owned()), "{of_one:?}");
        let words = others("network.routing.policy", &"ecmp".into());
        assert!(words.contains(&"network.routing.policy=adaptive".to_owned()), "{words:?}");
        assert!(!words.contains(&"network.routing.policy=ecmp".to_owned()));
    }
}
