//! What an advice means to the systems that must be told: one file for each.

use scenario::Loaded;

use crate::change::Change;

/// The files that a change needs, by name.
pub(super) fn names(_loaded: &Loaded, _change: &Change) -> Vec<String> {
    vec!["scenario.toml".to_owned()]
}
