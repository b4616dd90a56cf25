//! What each primitive does to a network, and what each part of a step puts on it.

use std::collections::BTreeMap;

use job::During;
use report::number::{bits_per_second, bytes, grouped, significant};
use report::{Align, Chart, ChartKind, Frame, Table, Unit};
use scenario::Loaded;
use serde::Serialize;
use step::timeline::Timeline;
use traffic::Connection;

use super::burst::{self, PassBurst};
use super::{Line, Primitive, TransferSize, paths};
use crate::occupancy::Habits;
use crate::world::{JobWorld, Places};

/// What one primitive of a job does to the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Which.
    pub primitive: &'static str,
    /// Its highest rate over its mean, along the step.
    pub peak_to_mean: f64,
    /// The most NICs that send to one.
    pub fan_in: u64,
    /// Its queue pairs.
    pub flows: u64,
    /// Their entropy over the uplinks of their leaf, over the most there could be.
    pub entropy: f64,
    /// The most bytes of a step that it puts on one link.
    pub max_link_bytes: f64,
}

/// Bytes of each part of a step.
pub(super) fn by_pass(sizes: &[TransferSize]) -> BTreeMap<&'static str, f64> {
    let mut by_pass: BTreeMap<_, _> =
        During::ALL.iter().map(|during| (during.word(), 0.0)).collect();
    for size in sizes {
        *by_pass.entry(size.during.word()).or_default() += size.volume;
    }
    by_pass
}

/// The traffic of each part of a step along it, and the first passes from within.
pub(super) fn passes(
    world: &JobWorld<'_>,
    line: &Timeline,
    sizes: &[TransferSize],
    (rate, habits): (f64, Habits<'_>),
) -> [Vec<PassBurst>; 2] {
    let stages = usize::try_from(world.job.layout.pp).expect("few stages");
    let mut moved = vec![[[0.0; 5]; 4]; stages];
    for size in sizes {
        let stage = usize::try_from(size.stage).expect("few stages");
        moved[stage][size.during as usize][size.axis as usize] += size.volume;
    }
    let within = burst::within(line, &moved, (rate, super::stage_nics(world)), habits);
    [burst::passes(line, &moved, rate, habits), within]
}

/// Every primitive that the job uses between NICs.
pub(super) fn profile(
    loaded: &Loaded,
    world: &JobWorld<'_>,
    places: &Places,
    lines: &[Line],
    (line, rate, habits): (&Timeline, f64, Habits<'_>),
) -> Vec<Profile> {
    let routing = &loaded.scenario.network.settings.routing;
    let stages = usize::try_from(world.job.layout.pp).expect("few stages");
    let mut rows = Vec::new();
    for primitive in Primitive::ALL {
        let mut by_stage = vec![[0.0; 5]; stages];
        let mut own: Vec<(Connection, f64)> = Vec::new();
        for one in lines.iter().filter(|one| 0.0 < one.bytes[primitive as usize]) {
            let moved = one.bytes[primitive as usize];
            own.push((one.connection, moved));
            by_stage[usize::try_from(one.stage).expect("few")][one.axis as usize] += moved;
        }
        if own.is_empty() {
            continue;
        }
        let load = paths::load(world.fabric(), places, &own, routing, loaded.scenario.seed);
        rows.push(Profile {
            primitive: primitive.word(),
            peak_to_mean: burst::burst(line, &by_stage, rate, habits).peak_to_mean,
            fan_in: paths::fan_in(&own),
            flows: load.entropy.flows,
            entropy: load.entropy.normalised,
            max_link_bytes: load.max_link_bytes,
        });
    }
    rows
}

/// The parts of the step as a table.
pub(super) fn passes_table(passes: &[PassBurst], all: f64) -> Table {
    let mut table = Table::new([
        ("part of the step", Align::Left),
        ("bytes", Align::Right),
        ("share", Align::Right),
        ("peak", Align::Right),
        ("peak over mean", Align::Right),
        ("of the step", Align::Right),
    ]);
    for pass in passes {
        table.row([
            pass.pass.to_owned(),
            bytes(pass.bytes),
            format!("{:.1} %", 100.0 * pass.bytes / all),
            bits_per_second(pass.peak_bps),
            significant(pass.peak_to_mean),
            format!("{:.1} %", 100.0 * pass.duty_cycle),
        ]);
    }
    table
}

/// The parts of the step over time.
pub(super) fn passes_chart(passes: &[PassBurst]) -> Chart {
    let mut frame = Frame::new(&["s", "bps", "part"]);
    for pass in passes.iter().filter(|pass| 0.0 < pass.bytes) {
        for (at, rate) in report::chart::decimate(&pass.series, 500) {
            frame.push(vec![at.into(), rate.into(), pass.pass.into()]);
        }
    }
    Chart::new(ChartKind::Area, "Traffic of each part of the step", frame)
        .caption(
            "All NICs together, by the closed form's timeline: what forward passes, backward \
             passes with their gradients, experts and the optimizer's new weights put on the \
             network, each while its operations run.",
        )
        .axes("s", "bps")
        .by("part")
        .labels("time", "rate of all NICs")
        .units(Unit::Seconds, Unit::BitsPerSecond)
}

/// Passes from within.
pub(super) fn within_chart(within: &[PassBurst]) -> Chart {
    let mut frame = Frame::new(&["s", "bps", "part"]);
    for pass in within.iter().filter(|pass| 0.0 < pass.bytes) {
        for (at, rate) in report::chart::decimate(&pass.series, 500) {
            frame.push(vec![at.into(), rate.into(), pass.pass.into()]);
        }
    }
    Chart::new(ChartKind::Area, "Passes from within: the bursts of a NIC", frame)
        .caption(
            "A NIC of the last stage, from the beginning of its first forward pass to the end of \
             its first backward pass. Kernels and exchanges take their closed forms; those of a \
             layer stand between equal pieces of its computation.",
        )
        .axes("s", "bps")
        .by("part")
        .labels("time from the first forward pass", "rate of a NIC")
        .units(Unit::Seconds, Unit::BitsPerSecond)
}

/// What each primitive does, as a table.
pub(super) fn profile_table(rows: &[Profile]) -> Table {
    let mut table = Table::new([
        ("primitive", Align::Left),
        ("peak over mean", Align::Right),
        ("senders to one NIC", Align::Right),
        ("queue pairs", Align::Right),
        ("entropy", Align::Right),
        ("most on one link", Align::Right),
    ]);
    for row in rows {
        table.row([
            row.primitive.to_owned(),
            significant(row.peak_to_mean),
            grouped(row.fan_in),
            grouped(row.flows),
            format!("{:.1} %", 100.0 * row.entropy),
            bytes(row.max_link_bytes),
        ]);
    }
    table
}
