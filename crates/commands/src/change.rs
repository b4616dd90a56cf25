//! Something that could be done otherwise: which settings, and why.
//!
//! A [`Change`] is a candidate that nobody has tried; [`levers`](crate::levers) names those that a
//! run makes look worthwhile. What trying it showed is an advice, which has a change inside.

use scenario::Loaded;
use serde::Serialize;
use serde_json::Value as Json;

/// Who must do it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Switches and NICs are set otherwise.
    Network,
    /// The communication library is: NCCL's or RCCL's variables.
    Library,
    /// Ranks run on other servers.
    Placement,
    /// The model is cut otherwise, or its software hides and computes again otherwise.
    Layout,
    /// Tokens may go to fewer places: what is trained changes.
    Model,
    /// Something else is bought.
    Fabric,
    /// Checkpoints, spares and restarts.
    Operation,
    /// Several at once.
    Combined,
}

impl Kind {
    /// The word that results use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Library => "library",
            Self::Placement => "placement",
            Self::Layout => "layout",
            Self::Model => "model",
            Self::Fabric => "fabric",
            Self::Operation => "operation",
            Self::Combined => "combined",
        }
    }
}

/// Settings that could be otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What it is, in a few words.
    pub name: String,
    /// Who must do it.
    pub kind: Kind,
    /// `PATH=VALUE`, as `--set` takes them.
    pub set: Vec<String>,
    /// What makes it look worthwhile, with the figures of a run.
    pub why: String,
    /// What it risks; empty where nothing is known.
    pub risk: String,
    /// What it could gain at most by the run that it was named from, in seconds.
    #[serde(skip)]
    pub most_s: f64,
}

impl Change {
    /// A change of these settings.
    pub fn new<S: Into<String>>(
        kind: Kind,
        name: impl Into<String>,
        set: impl IntoIterator<Item = S>,
    ) -> Self {
        let set = set.into_iter().map(Into::into).collect();
        let (why, risk) = (String::new(), String::new());
        Self { name: name.into(), kind, set, why, risk, most_s: 0.0 }
    }

    /// The same for this reason, which could gain so much.
    #[must_use]
    pub fn because(self, why: impl Into<String>, most_s: f64) -> Self {
        Self { why: why.into(), most_s, ..self }
    }

    /// The same with what it risks.
    #[must_use]
    pub fn risking(self, risk: impl Into<String>) -> Self {
        Self { risk: risk.into(), ..self }
    }

    /// The keys that it sets.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.set.iter().map(|set| set.split('=').next().unwrap_or_default().trim())
    }

    /// Whether it touches a key, something inside it, or the table around it.
    pub fn touches(&self, key: &str) -> bool {
        let is_inside = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.keys().any(|own| is_inside(own, key) || is_inside(key, own))
    }

    /// The same with what flags have set before, but for what it sets itself and for these keys: a
    /// command that tries it begins where the answer did.
    #[must_use]
    pub fn after_flags(&self, loaded: &Loaded, but: &[&str]) -> Self {
        let mut given = Vec::new();
        leaves("", &loaded.set_by_flags(), &mut given);
        let set = given.into_iter().filter(|(key, _)| {
            !self.touches(key) && !but.iter().any(|own| key == own || key.starts_with(own))
        });
        let set = set.filter_map(|(key, value)| {
            let word = value.as_str().map(str::to_owned);
            Some(format!("{key}={}", word.or_else(|| crate::explain::toml(&value))?))
        });
        Self { set: set.chain(self.set.iter().cloned()).collect(), ..self.clone() }
    }

    /// The flags that try it.
    pub fn flags(&self) -> String {
        let quoted = |set: &String| match set.contains(['[', ' ', '"', '{', '*']) {
            true => format!("--set '{set}'"),
            false => format!("--set {set}"),
        };
        self.set.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

/// What is no table, with its dotted path.
pub(crate) fn leaves(path: &str, value: &Json, found: &mut Vec<(String, Json)>) {
    let Json::Object(fields) = value else { return found.push((path.to_owned(), value.clone())) };
    for (key, value) in fields {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        leaves(&path, value, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_touched_with_its_table_and_what_is_inside() {
        let change = Change::new(Kind::Network, "", ["network.routing.qps=16", "job.gpus=8"]);
        for key in ["network", "network.routing", "network.routing.qps", "job.gpus"] {
            assert!(change.touches(key), "{key}");
        }
        for key in ["network.routing.q", "job.gpus_per_node", "library", "job.parallel"] {
            assert!(!change.touches(key), "{key}");
        }
        let whole = Change::new(Kind::Network, "", ["network.routing={ qps = 16 }"]);
        assert!(whole.touches("network.routing.qps"));
        assert_eq!(whole.flags(), "--set 'network.routing={ qps = 16 }'");
    }
}
