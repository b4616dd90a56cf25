//! When within a pass which axis is on the fabric.
//!
//! How it works. The units of a part follow each other, and the exchanges of a unit stand between
//! equal pieces of its kernels, in the order of the step program: dispatch behind the first piece,
//! combine behind the second. All take their closed forms. What comes back are shares of the pass,
//! so that they can be laid on a pass that overlaps some of it and is shorter.
//!
//! Where it departs from reality: kernels between two exchanges are not equally long.

use job::Axis;
use job::dispatch::Dispatch;
use job::program::{Part, Program, Unit};
use job::schedule::Pass;

use crate::costs::Costing;
use crate::network::{Network, Unserved};
use crate::predict::{Assumptions, World, library_of};

/// One axis on the fabric, from one share of a pass to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beat {
    /// Whose exchange.
    pub axis: Axis,
    /// The share of the pass that is over when it begins.
    pub from: f64,
    /// The same when it ends.
    pub to: f64,
    /// How long it takes, in seconds: a pass that overlaps some of it shows it shorter.
    pub lasts_s: f64,
}

/// The beats of the passes over one part of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rhythm {
    /// Forward.
    pub forward: Vec<Beat>,
    /// Backward, both gradients.
    pub backward: Vec<Beat>,
    /// Gradients of inputs alone.
    pub input: Vec<Beat>,
    /// Gradients of weights alone.
    pub weight: Vec<Beat>,
}

/// The rhythm of every part of a job's model, by closed forms.
pub fn rhythms(world: World<'_>, assumptions: &Assumptions) -> Result<Vec<Rhythm>, Unserved> {
    let World { job, fabric, placement, rates, library, .. } = world;
    let gpus_per_node = fabric.gpus_per_node().max(1) as u64;
    let library = library_of(job, library, &assumptions.overheads, gpus_per_node);
    let mut network = Network::new(fabric, job.layout, placement, library, None)
        .with_dispatch(Dispatch::of(job, gpus_per_node));
    let program = Program::new(job);
    let mut costing = Costing::new(&program, rates, &assumptions.overheads, &mut network);
    let mut of = |part: &Part| {
        Ok(Rhythm {
            forward: beats(&mut costing, part, Pass::Forward)?,
            backward: beats(&mut costing, part, Pass::Backward)?,
            input: beats(&mut costing, part, Pass::Input)?,
            weight: beats(&mut costing, part, Pass::Weight)?,
        })
    };
    program.parts.iter().map(&mut of).collect()
}

fn beats(costing: &mut Costing<'_, '_>, part: &Part, pass: Pass) -> Result<Vec<Beat>, Unserved> {
    let mut pieces = part.pieces.clone();
    if !pass.is_forward() {
        pieces.reverse();
    }
    let (mut beats, mut at) = (Vec::new(), 0.0);
    for piece in &pieces {
        // Units of a kind are alike: one is told, and repeated.
        let (mut one, mut lasts) = (Vec::new(), 0.0);
        for each in pass.parts() {
            unit_beats(costing, (piece.unit, *each), &mut one, &mut lasts)?;
        }
        for _ in 0..piece.repeat {
            let moved = |beat: &Beat| Beat { from: at + beat.from, to: at + beat.to, ..*beat };
            beats.extend(one.iter().map(moved));
            at += lasts;
        }
    }
    for beat in &mut beats {
        beat.from /= at;
        beat.to /= at;
    }
    Ok(beats)
}

/// The beats of one pass over one unit, in seconds behind `at`.
fn unit_beats(
    costing: &mut Costing<'_, '_>,
    (unit, pass): (Unit, Pass),
    beats: &mut Vec<Beat>,
    at: &mut f64,
) -> Result<(), Unserved> {
    let program = costing.program();
    let calls = program.calls_of(unit, pass);
    let kernels = costing.kernels(&program.kernels_of(unit, pass)).as_secs_f64();
    let piece = kernels / (calls.len() + 1) as f64;
    for call in &calls {
        *at += piece;
        let lasts = costing.call(call)?.as_secs_f64();
        if costing.network().leaves_the_domain(call.kind) {
            beats.push(Beat { axis: call.axis(), from: *at, to: *at + lasts, lasts_s: lasts });
        }
        *at += lasts;
    }
    *at += piece;
    Ok(())
}
