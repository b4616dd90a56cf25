//! Kernels that compute and kernels that communicate: how long, and what hides what.

use crate::observed::{Step, Trace};

/// Kernels of one rank.
#[derive(Debug, Default)]
pub(super) struct Spans {
    compute: Vec<(f64, f64)>,
    communication: Vec<(f64, f64)>,
    /// Steps: their number, beginning and end.
    pub steps: Vec<(u64, f64, f64)>,
    first: Option<f64>,
    last: f64,
}

impl Spans {
    /// Any event, for the span of the whole.
    pub(super) fn event(&mut self, start: f64, end: f64) {
        self.first = Some(self.first.map_or(start, |first| first.min(start)));
        self.last = self.last.max(end);
    }

    pub(super) fn kernel(&mut self, start: f64, end: f64, communicates: bool) {
        self.event(start, end);
        match communicates {
            true => self.communication.push((start, end)),
            false => self.compute.push((start, end)),
        }
    }

    /// Sums up: the trace, and its steps.
    pub(super) fn finish(mut self, file: &str, rank: Option<u32>) -> (Trace, Vec<Step>) {
        let kernels = (self.compute.len() + self.communication.len()) as u64;
        let collectives = self.communication.len() as u64;
        let compute = merged(&mut self.compute);
        let communication = merged(&mut self.communication);
        let exposed = without(&communication, &compute);
        let all = |spans: &[(f64, f64)]| total(spans, f64::NEG_INFINITY, f64::INFINITY) * 1e-6;
        let step = |(number, start, end): &(u64, f64, f64)| Step {
            rank,
            number: *number,
            seconds: (end - start) * 1e-6,
            compute_s: Some(total(&compute, *start, *end) * 1e-6),
            communication_s: Some(total(&communication, *start, *end) * 1e-6),
            exposed_s: Some(total(&exposed, *start, *end) * 1e-6),
        };
        let steps = match kernels {
            0 => Vec::new(),
            _ => self.steps.iter().map(step).collect(),
        };
        let trace = Trace {
            file: file.to_owned(),
            rank,
            span_s: self.first.map_or(0.0, |first| (self.last - first) * 1e-6),
            kernels,
            collectives,
            compute_s: all(&compute),
            communication_s: all(&communication),
            exposed_s: all(&exposed),
        };
        (trace, steps)
    }
}

/// Spans in order, those that touch as one.
fn merged(spans: &mut [(f64, f64)]) -> Vec<(f64, f64)> {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<(f64, f64)> = Vec::new();
    for (start, end) in spans.iter().copied() {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// What of `spans` lies outside `others`; both in order.
fn without(spans: &[(f64, f64)], others: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut left = Vec::new();
    let mut first = 0;
    for (start, end) in spans.iter().copied() {
        let mut at = start;
        while others.get(first).is_some_and(|other| other.1 <= start) {
            first += 1;
        }
        for other in others[first..].iter().take_while(|other| other.0 < end) {
            if at < other.0 {
                left.push((at, other.0));
            }
            at = at.max(other.1);
        }
        if at < end {
            left.push((at, end));
        }
    }
    left
}

/// How much of `spans` lies between two times.
fn total(spans: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let begin = spans.partition_point(|span| span.1 <= from);
    let inside = spans[begin..].iter().take_while(|span| span.0 < to);
    inside.fold(0.0, |sum, span| sum + span.1.min(to) - span.0.max(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: by hand. Collectives at 0 to 10 and 20 to 30, kernels at 5 to 8 and 25 to 40.
    #[test]
    fn what_kernels_hide_is_not_exposed() {
        let mut spans = Spans::default();
        for (start, end) in [(20.0, 30.0), (0.0, 10.0)] {
            spans.kernel(start, end, true);
        }
        for (start, end) in [(25.0, 40.0), (5.0, 7.0), (6.0, 8.0)] {
            spans.kernel(start, end, false);
        }
        spans.steps.push((7, 0.0, 20.0));
        let (trace, steps) = spans.finish("it", Some(3));
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(trace.span_s, 40e-6) && close(trace.compute_s, 18e-6), "{trace:?}");
        assert!(close(trace.communication_s, 20e-6) && close(trace.exposed_s, 12e-6), "{trace:?}");
        assert_eq!((steps[0].number, steps[0].rank), (7, Some(3)));
        assert!(close(steps[0].exposed_s.unwrap(), 7e-6), "{steps:?}");
    }
}
