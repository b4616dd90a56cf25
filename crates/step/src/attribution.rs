//! Why a step takes as long as it does: its critical path, in words and numbers.
//!
//! How it works. From the operation that ends last, the path goes back to whatever made each
//! operation wait: the one before it on its stream, a message, gathered weights. Neighbouring
//! stretches of the same kind on the same stage are told as one. The path is exactly as long as the
//! step; shortening anything that is not on it gains nothing, which [`Path::gain_if_free`] bounds
//! and a second run with that communication free confirms.

use units::{Span, Time};

use crate::timeline::{Parts, Share, Timeline, Work};

/// Some neighbouring operations on the critical path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// When it begins.
    pub from: Time,
    /// When it ends.
    pub to: Time,
    /// On which pipeline stage.
    pub stage: u32,
    /// What is done.
    pub work: Work,
    /// How many operations it is.
    pub operations: u64,
    /// What the time is spent on.
    pub parts: Parts,
}

impl Segment {
    /// Its length.
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }

    /// In words: "24 backward passes on stage 3, 1.2 s: compute 80 %, tp 20 %".
    pub fn words(&self) -> String {
        let times =
            if self.operations == 1 { String::new() } else { format!("{} × ", self.operations) };
        let mut text = format!(
            "{times}{} on stage {}, {:.3} s",
            self.work.words(),
            self.stage,
            self.length().as_secs_f64()
        );
        let whole = self.parts.total().as_secs_f64();
        let mut shares: Vec<(Share, f64)> =
            Share::ALL.map(|share| (share, self.parts.get(share).as_secs_f64() / whole)).to_vec();
        shares.retain(|(_, part)| 0.005 <= *part);
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (number, (share, part)) in shares.iter().enumerate() {
            let separator = if number == 0 { ": " } else { ", " };
            text += &format!("{separator}{} {:.0} %", share.word(), 100.0 * part);
        }
        text
    }
}

/// The critical path of a step, latest segment first.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Its segments.
    pub segments: Vec<Segment>,
    /// What the whole path is spent on.
    pub parts: Parts,
}

impl Path {
    /// At most this much would be gained if one share of the path cost nothing.
    pub fn gain_if_free(&self, share: Share) -> Span {
        self.parts.get(share)
    }

    /// The largest share of the path that is not computation: what constrains the step.
    pub fn constraint(&self) -> Option<(Share, Span)> {
        let shares = Share::ALL.into_iter().filter(|share| *share != Share::Compute);
        let largest = shares.max_by_key(|share| self.parts.get(*share))?;
        let span = self.parts.get(largest);
        (Span::ZERO < span).then_some((largest, span))
    }
}

/// The critical path of a step.
pub fn critical_path(line: &Timeline) -> Path {
    let mut path = Path { segments: Vec::new(), parts: Parts::default() };
    let Some(last) = line.last() else { return path };
    let graph = line.graph();
    for stretch in line.chain(last, Time::ZERO) {
        let op = graph.ops()[stretch.op];
        // The wait for a message belongs to the message, whoever waits.
        let waits = stretch.to <= line.start(stretch.op);
        let work = if waits { Work::Message } else { op.work };
        let stage = graph.lanes()[op.lane].stage;
        path.parts = path.parts.plus(&stretch.parts);
        match path.segments.last_mut() {
            Some(known) if known.stage == stage && known.work == work => {
                known.from = stretch.from;
                known.operations += 1;
                known.parts = known.parts.plus(&stretch.parts);
            }
            _ => path.segments.push(Segment {
                from: stretch.from,
                to: stretch.to,
                stage,
                work,
                operations: 1,
                parts: stretch.parts,
            }),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{After, StepGraph, StepOp, Stream};

    fn two_stages(message: Span) -> Timeline {
        let mut graph = StepGraph::new();
        let (a, b) = (graph.lane(0, Stream::Compute), graph.lane(1, Stream::Compute));
        let parts = Parts::of(Share::Compute, Span::from_ms(8)).with(Share::Tp, Span::from_ms(2));
        let pass = |lane, work| StepOp { lane, work, micro: 0, chunk: 0, parts };
        let first = graph.push(pass(a, Work::Forward));
        let second = graph.push(pass(b, Work::Forward));
        let third = graph.push(pass(b, Work::Backward));
        let fourth = graph.push(pass(a, Work::Backward));
        let delay_share = Share::Pp;
        graph.wait(second, After { op: first, delay: message, delay_share });
        graph.wait(fourth, After { op: third, delay: message, delay_share });
        graph.run().unwrap()
    }

    #[test]
    fn the_path_is_told_from_the_end_and_is_as_long_as_the_step() {
        let line = two_stages(Span::from_ms(1));
        let path = critical_path(&line);
        let words: Vec<String> = path.segments.iter().map(Segment::words).collect();
        assert_eq!(
            words,
            [
                "backward on stage 0, 0.010 s: compute 80 %, tp 20 %",
                "pipeline message on stage 0, 0.001 s: pp 100 %",
                "backward on stage 1, 0.010 s: compute 80 %, tp 20 %",
                "forward on stage 1, 0.010 s: compute 80 %, tp 20 %",
                "pipeline message on stage 1, 0.001 s: pp 100 %",
                "forward on stage 0, 0.010 s: compute 80 %, tp 20 %",
            ]
        );
        assert_eq!(path.parts.total(), line.length());
        assert_eq!(path.constraint(), Some((Share::Tp, Span::from_ms(8))));
    }

    /// Agreement: what the path says a free message gains is what a run without it gains.
    #[test]
    fn what_would_be_gained_is_gained() {
        let path = critical_path(&two_stages(Span::from_ms(1)));
        let with = two_stages(Span::from_ms(1)).length();
        let without = two_stages(Span::ZERO).length();
        assert_eq!(with.saturating_sub(without), path.gain_if_free(Share::Pp));
    }
}
