//! Settings that do nothing where they stand, said beside the code that would obey them.
//!
//! A struct of settings names those of its fields that have no effect, given the others, why, and
//! what would obey them. Whoever loads a scenario takes the named settings out before anything is
//! built from it, so that a setting that is called unused is unused; and tells the user which of
//! them somebody wrote.
//!
//! ```
//! use units::UnusedKeys;
//!
//! struct Pauses {
//!     enabled: bool,
//! }
//!
//! impl Pauses {
//!     fn unused(&self, idle: &mut UnusedKeys) {
//!         if !self.enabled {
//!             idle.all_but("", &["enabled"], "pauses are off", "pfc.enabled=true");
//!         }
//!     }
//! }
//!
//! let mut idle = UnusedKeys::default();
//! idle.table("network.pfc", |idle| Pauses { enabled: false }.unused(idle));
//! assert_eq!(idle.find("network.pfc.quanta").unwrap().why, "pauses are off");
//! assert!(idle.find("network.pfc.enabled").is_none());
//! ```

use serde::Serialize;

/// A setting that somebody wrote and that this run does not obey.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Unused {
    /// Its dotted path, or a flag.
    pub key: String,
    /// Why it has no effect.
    pub why: String,
    /// What would obey it.
    pub used_by: String,
}

/// A table or a key without effect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnusedKey {
    /// The dotted path.
    pub key: String,
    /// Paths inside it that are obeyed all the same.
    pub but: Vec<String>,
    /// Whether nothing at all obeys it; otherwise a part of its value has no effect.
    pub whole: bool,
    /// Why it has no effect.
    pub why: String,
    /// What would obey it.
    pub used_by: String,
}

impl UnusedKey {
    /// Whether a path is this one or inside it, and not among those that are obeyed.
    pub fn covers(&self, path: &str) -> bool {
        is_inside(path, &self.key) && !self.but.iter().any(|but| is_inside(path, but))
    }

    /// Whether a path is this one, inside it, or on the way to it.
    pub fn concerns(&self, path: &str) -> bool {
        is_inside(path, &self.key) || is_inside(&self.key, path)
    }

    /// Whether something inside a path is obeyed all the same.
    pub fn spares_inside(&self, path: &str) -> bool {
        self.but.iter().any(|but| is_inside(but, path))
    }
}

/// Collects the settings that have no effect.
#[derive(Clone, Debug, Default)]
pub struct UnusedKeys {
    path: String,
    keys: Vec<UnusedKey>,
}

impl UnusedKeys {
    /// Names a key, or a table with all that is in it.
    pub fn key(&mut self, key: &str, why: &str, used_by: &str) {
        self.all_but(key, &[], why, used_by);
    }

    /// Names all of a table but the keys that are obeyed; those stand below the table.
    pub fn all_but(&mut self, table: &str, but: &[&str], why: &str, used_by: &str) {
        let key = join(&self.path, table);
        let but = but.iter().map(|but| join(&key, but)).collect();
        self.push(key, but, true, why, used_by);
    }

    /// Names a key of which a part has no effect, or one that cannot be left out.
    pub fn part_of(&mut self, key: &str, why: &str, used_by: &str) {
        self.push(join(&self.path, key), Vec::new(), false, why, used_by);
    }

    /// Names all of a table but some keys, where nothing of it can be left out.
    pub fn parts_but(&mut self, table: &str, but: &[&str], why: &str, used_by: &str) {
        let key = join(&self.path, table);
        let but = but.iter().map(|but| join(&key, but)).collect();
        self.push(key, but, false, why, used_by);
    }

    fn push(&mut self, key: String, but: Vec<String>, whole: bool, why: &str, used_by: &str) {
        let (why, used_by) = (why.to_owned(), used_by.to_owned());
        self.keys.push(UnusedKey { key, but, whole, why, used_by });
    }

    /// Asks the settings of a table inside the one at hand.
    pub fn table(&mut self, key: &str, ask: impl FnOnce(&mut Self)) {
        let inside = join(&self.path, key);
        let outside = std::mem::replace(&mut self.path, inside);
        ask(self);
        self.path = outside;
    }

    /// The first reason why a path has no effect.
    pub fn find(&self, path: &str) -> Option<&UnusedKey> {
        self.keys.iter().find(|key| key.covers(path))
    }

    /// Everything that was named.
    pub fn keys(&self) -> &[UnusedKey] {
        &self.keys
    }
}

/// Whether one path is another or lies below it; everything lies below the empty path.
fn is_inside(path: &str, home: &str) -> bool {
    home.is_empty()
        || path.strip_prefix(home).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() || key.is_empty() { format!("{path}{key}") } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_covered_with_all_that_is_in_them_but_for_what_is_spared() {
        let mut idle = UnusedKeys::default();
        idle.table("network", |idle| {
            idle.all_but("nic", &["latency", "pci.rate"], "first", "packets");
            idle.key("nic.latency.send", "second", "nobody");
        });
        let why = |path| idle.find(path).map(|key| key.why.as_str());
        assert_eq!(why("network.nic"), Some("first"));
        assert_eq!(why("network.nic.timeout"), Some("first"));
        assert_eq!(why("network.nic.latency"), None);
        assert_eq!(why("network.nic.latency.send"), Some("second"));
        assert_eq!(why("network.nic.pci.rate"), None);
        assert_eq!(why("network.nice"), None);
        let concerned = ["network", "network.nic", "network.nic.timeout", "network.nice", "job"];
        let concerned = concerned.map(|path| idle.keys()[0].concerns(path));
        assert_eq!(concerned, [true, true, true, false, false]);
        assert!(idle.keys()[0].spares_inside("network.nic.pci"));
        assert!(!idle.keys()[0].spares_inside("network.nic.timeout"));
    }
}
