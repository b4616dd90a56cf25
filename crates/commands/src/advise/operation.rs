//! Checkpoints, restarts, and what a failed link stops.

use scenario::Loaded;
use step::faults::{CheckpointMode, Goodput, NetworkFaults};

use crate::change::{Change, Kind};

/// Changes that leave the step as it is and make more of the time train.
pub(super) fn changes(loaded: &Loaded, now: &Goodput) -> Vec<Change> {
    if loaded.job.is_none() {
        return Vec::new();
    }
    let reliability = &loaded.scenario.reliability;
    let change = |name: String, set: Vec<String>| Change::new(Kind::Operation, name, set);
    let mut changes = Vec::new();
    if reliability.interval.is_some() {
        // Young's first order of the best interval; Daly's differs little where failures are rare.
        let best = (2.0 * now.checkpoint_s * now.mtbf_s).sqrt().clamp(1.0, 86_400.0).round();
        let why = format!(
            "a checkpoint takes {:.1} s and the job fails every {:.1} h",
            now.checkpoint_s,
            now.mtbf_s / 3600.0
        );
        let set = vec![format!("reliability.interval={best}s")];
        changes.push(change(format!("a checkpoint every {best} s"), set).because(why, 0.0));
    }
    if reliability.checkpoint.mode == CheckpointMode::Blocking {
        let set = vec!["reliability.checkpoint.mode=two-stage".to_owned()];
        let risk = "host memory for one checkpoint";
        let name = "checkpoints through host memory".to_owned();
        changes.push(change(name, set).risking(risk));
    }
    if reliability.checkpoint.mode != CheckpointMode::PeerMemory {
        let set = vec!["reliability.checkpoint.mode=peer-memory".to_owned()];
        let risk = "a server that fails with its peer loses the state";
        let name = "checkpoints in another server's memory".to_owned();
        changes.push(change(name, set).risking(risk));
    }
    if reliability.network == NetworkFaults::StopTheJob {
        let set = vec!["reliability.network=dual-tor".to_owned()];
        let risk = "needs NICs of two ports and twice the leaf ports, which are not priced here";
        changes.push(change("two ToRs for each NIC".to_owned(), set).risking(risk));
    }
    changes
}
