//! What NCCL and RCCL can be told beyond what a run makes look worthwhile.

use scenario::Loaded;
use traffic::nccl::Protocol;

use crate::change::{Change, Kind};
use crate::levers;

/// Settings of the library that may help or harm.
pub(super) fn changes(loaded: &Loaded) -> Vec<Change> {
    let mut changes = levers::guesses(loaded);
    let own = loaded.scenario.library.protocol;
    for (protocol, word) in [(Protocol::Simple, "simple"), (Protocol::Ll128, "ll128")] {
        if own != Some(protocol) {
            let set = [format!("library.protocol={word}")];
            changes.push(Change::new(Kind::Library, format!("protocol {word}"), set));
        }
    }
    changes
}
