//! What a run may take, and how one ends that would take more.
//!
//! Somebody outside says it ([`Watch::bound`]): before the run, and every 65,536 events. Packets
//! under way, and what is written on them, are all that can grow without end between two such
//! looks; they ask for room as they grow. Whoever finds none unwinds the run from wherever it is,
//! on any of its threads: nothing of it is of use any more, and its memory is free by the time
//! that the sentence is shown.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fabric::Fabric;
use traffic::Transfers;
use units::{OutOfRoom, Room};

use crate::limits::Refusal;
use crate::simulation::{Progress, Simulation, Watch};

/// The reason, on its way out of the run.
struct Ended(String);

/// Ends the run.
pub(crate) fn end(why: String) -> ! {
    // No panic: nothing is wrong with the run, and no hook is to tell of it.
    resume_unwind(Box::new(Ended(why)))
}

/// Ends the run for want of memory.
#[cold]
pub(crate) fn end_for(out: OutOfRoom) -> ! {
    end(format!("{out}; {ADVICE}"))
}

/// What makes packets take less.
const ADVICE: &str = "give it more, or it shorter cables, smaller buffers, larger packets or fewer \
                      messages at once; --engine flow has no packets";

/// Does all of a run within the bound of its watch.
pub(crate) fn within<R>(
    (fabric, transfers): (&Fabric, &Transfers),
    watch: &mut Watch<'_>,
    run: impl FnOnce(&mut Watch<'_>, &Room) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    let refused = |why: String, reached| Err(Refusal::BeyondBound { why, reached });
    let left = match watch.bound.as_ref().map_or(Ok(None), |bound| bound()) {
        Ok(left) => left,
        Err(why) => return refused(why, None),
    };
    let room = left.map_or_else(Room::default, Room::of);
    if let Err(out) = room.allow("its ports and queue pairs", built_memory(fabric, transfers)) {
        return refused(format!("{out}; {ADVICE}"), None);
    }
    (watch.room, watch.reached) = (room.clone(), None);
    // What a run leaves half done is thrown away with it.
    match catch_unwind(AssertUnwindSafe(|| run(watch, &room))) {
        Ok(answer) => answer,
        Err(thrown) => match thrown.downcast::<Ended>() {
            Ok(ended) => refused(ended.0, watch.reached),
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// About what a run takes before its first event: measured with up to 300,000 queue pairs on
/// 393,216 links.
pub(crate) fn built_memory(fabric: &Fabric, transfers: &Transfers) -> u64 {
    let of = |count: usize, bytes: u64| bytes.saturating_mul(count as u64);
    let links = of(fabric.links().len(), 600);
    let pairs = of(transfers.connections().len(), 1_200);
    links.saturating_add(pairs).saturating_add(of(transfers.ops().len(), 100))
}

impl Simulation<'_> {
    /// Lets what grows take no more than there is room for.
    pub(crate) fn stay_within(&mut self, room: &Room) {
        self.net.wires.stay_within(room);
        self.net.queued.stay_within(room);
        self.net.stamps.stay_within(room);
    }
}

impl Watch<'_> {
    /// Asks whether the run may go on, and ends it if not.
    pub(crate) fn hold_to_bound(&mut self, progress: Progress) {
        self.reached = Some(progress);
        match self.bound.as_ref().map_or(Ok(None), |bound| bound()) {
            Ok(left) => left.into_iter().for_each(|left| self.room.set(left)),
            Err(why) => end(why),
        }
    }
}
