//! Checkpoints, restarts, spares, and what a failed link stops.

use scenario::Loaded;
use serde::Serialize;
use step::faults::{CheckpointMode, Goodput, NetworkFaults};

use crate::campaign;
use crate::change::{Change, Kind};
use crate::engine::Engine;
use crate::packets::Patience;
use crate::run_job::Report;
use crate::seeds::Repeat;

/// Numbers of spare servers that are played, beside the scenario's own.
const SPARES: [u32; 7] = [0, 1, 2, 4, 8, 16, 32];

/// Days and seeds of a campaign with spares.
const DAYS: u32 = 30;
const CAMPAIGNS: u32 = 20;

/// Goodput that a further spare must bring to be worth naming.
const LEAST: f64 = 0.001;

/// What spare servers bring: the share of 30 days that trains, by dice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spares {
    /// The scenario's own.
    pub now: u32,
    /// The fewest that more would not improve by a tenth of a per cent.
    pub enough: u32,
    /// Spare servers, and the share of the time that trains with them.
    pub goodput: Vec<(u32, f64)>,
    /// The command that tells the same.
    pub command: String,
}

/// Plays campaigns with more and fewer spares.
pub(super) fn spares(loaded: &Loaded, report: &Report, engine: Engine) -> Option<Spares> {
    let now = loaded.scenario.reliability.spare_nodes;
    let mut numbers = SPARES.to_vec();
    numbers.push(now);
    numbers.sort_unstable();
    numbers.dedup();
    let mut own = loaded.clone();
    let mut play = |spares: u32| {
        own.scenario.reliability.spare_nodes = spares;
        let repeat = Repeat { seeds: CAMPAIGNS, ..Repeat::ONCE };
        let options = campaign::Options { days: DAYS, engine, patience: Patience::Usual, repeat };
        let played = campaign::play(&own, report, &options, &mut packetsim::Watch::default());
        Some((spares, played.ok()?.goodput.mean))
    };
    let goodput: Vec<(u32, f64)> = numbers.into_iter().map(&mut play).collect::<Option<_>>()?;
    let best = goodput.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    let enough = goodput.iter().find(|(_, share)| best <= share + LEAST)?.0;
    let command = format!(
        "fatflow run {} --days {DAYS} --seeds {CAMPAIGNS} --set reliability.spare_nodes={enough}",
        loaded.input
    );
    Some(Spares { now, enough, goodput, command })
}

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
