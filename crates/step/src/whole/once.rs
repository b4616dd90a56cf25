//! Equal exchanges run once, for engines whose cost grows with bytes.
//!
//! An exchange that begins on an idle fabric, and is over before any other begins, takes as long as
//! every equal one that does. So each such exchange is run by itself, on the engine, and again
//! behind the shortest pause that the step has before one like it: what the first one leaves
//! behind (rates, congestion windows) is the state in which those of the step begin. The step then
//! has waits in their place, of the mean of those behind the first: where dice fall, no two are
//! equal. Exchanges that are under way at the same time as others are run, all
//! of them, with the step.
//!
//! Who meets whom follows from the times, and the times from who meets whom: it is repeated until
//! no exchange that became a wait meets another. More are run each time, so that ends.

use std::collections::{BTreeMap, BTreeSet};

use traffic::collective::Detail;
use traffic::{Finding, OpId, Outcome};
use units::{Span, Time};

use super::write::{Book, Made, Sheet, Who, write_alone, write_book};
use super::{Plan, refuse_unfinished};
use crate::network::{Engine, Exchange, Unserved};
use crate::whole::score::Doing;

/// Exchanges that are not written out, because what they take is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// An undisturbed one by its closed form, for the first look.
    estimates: BTreeMap<Exchange, Span>,
    measured: BTreeMap<Who, Span>,
    /// Those that are run all the same, by their number in the order of writing.
    run: BTreeSet<usize>,
}

impl Known {
    /// Every exchange takes what it takes undisturbed.
    pub(super) fn alone(plan: &mut Plan<'_>) -> Result<Self, Unserved> {
        Ok(Self { estimates: plan.estimates()?, ..Self::default() })
    }

    /// How long an exchange takes; nothing where it is to be run.
    pub(super) fn span(&self, number: usize, who: Who, exchange: Exchange) -> Option<Span> {
        if self.run.contains(&number) {
            return None;
        }
        let measured = self.measured.get(&who).or_else(|| self.estimates.get(&exchange));
        measured.copied()
    }
}

/// What was run once and stands for others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Once {
    /// Exchanges of the step on the fabric.
    pub exchanges: u64,
    /// Those that met others and were run with the step.
    pub met: u64,
    /// Different ones that met nobody, each run by itself.
    pub different: u64,
    /// How often each of these was run.
    pub times: u64,
    /// By how much the step would be longer or shorter at most, as a share, if another of the runs
    /// stood for all of them, the first on a network that nothing had used included: what rates
    /// that others left behind, and dice, make of them.
    pub apart: f64,
}

/// An exchange that was run by itself.
struct Alone {
    /// What it takes behind another one, on average.
    span: Span,
    /// By how much one of its runs differs from that at most.
    apart: Span,
    times: u64,
    outcome: Outcome,
}

/// Runs a step with equal exchanges once.
pub(super) fn run(
    plan: &mut Plan<'_>,
    drawn: (u64, u32),
    (how, times): ((Detail, usize), usize),
    engine: &mut Engine<'_>,
) -> Result<(Sheet, Outcome, Once), Unserved> {
    let mut known = Known::alone(plan)?;
    let mut alone: BTreeMap<Who, Alone> = BTreeMap::new();
    let order = plan.write_with(drawn, how, Some((&known, &Book::default())))?.made;
    let order: Vec<Who> = order.into_iter().map(|made| made.who).collect();
    let book = write_book(plan.writing(how, None), &order)?;
    loop {
        let sheet = plan.write_with(drawn, how, Some((&known, &book)))?;
        let outcome = engine(plan.world.fabric, &sheet.transfers).map_err(Unserved::NotRun)?;
        refuse_unfinished(&outcome)?;
        let stretches = stretches(&sheet, &outcome);
        let before = known.run.len();
        known.run.extend(meeting(&stretches));
        let pauses = pauses(&sheet, &stretches, &known);
        let unknown: Vec<(Who, (u64, Span))> =
            pauses.into_iter().filter(|(who, _)| !alone.contains_key(who)).collect();
        if known.run.len() == before && unknown.is_empty() {
            return Ok(put_together(sheet, outcome, &known, &alone));
        }
        for (who, (count, pause)) in unknown {
            let one =
                measure(plan, (who, &book), (times.min(count as usize), pause), (how, engine))?;
            known.measured.insert(who, one.span);
            alone.insert(who, one);
        }
    }
}

/// Runs an exchange by itself.
fn measure(
    plan: &mut Plan<'_>,
    (who, book): (Who, &Book),
    repeated: (usize, Span),
    (how, engine): ((Detail, usize), &mut Engine<'_>),
) -> Result<Alone, Unserved> {
    let fabric = plan.world.fabric;
    let known = Known::default();
    let sheet = write_alone(plan.writing(how, Some((&known, book))), who, repeated)?;
    let outcome = engine(fabric, &sheet.transfers).map_err(Unserved::NotRun)?;
    refuse_unfinished(&outcome)?;
    let spans = stretches(&sheet, &outcome);
    let spans: Vec<Span> = spans.iter().map(|(from, to)| to.since(*from)).collect();
    let behind = &spans[1.min(spans.len() - 1)..];
    let span = behind.iter().copied().sum::<Span>() / behind.len() as u64;
    let apart = |one: &Span| one.max(&span).saturating_sub(span.min(*one));
    let apart = spans.iter().map(apart).max().unwrap_or_default();
    Ok(Alone { span, apart, times: spans.len() as u64, outcome })
}

/// From when to when each exchange was under way, in the order of writing.
fn stretches(sheet: &Sheet, outcome: &Outcome) -> Vec<(Time, Time)> {
    let times = |op: OpId| outcome.ops[op].expect("all operations ended");
    let under_way = |made: &Made| (times(made.begin).start, times(made.end).received);
    sheet.made.iter().map(under_way).collect()
}

/// The numbers of exchanges that were under way at the same time as others.
fn meeting(stretches: &[(Time, Time)]) -> BTreeSet<usize> {
    let mut order: Vec<usize> = (0..stretches.len()).collect();
    order.sort_unstable_by_key(|at| stretches[*at]);
    let mut met = BTreeSet::new();
    let mut last: Option<usize> = None;
    for at in order {
        if let Some(before) = last
            && stretches[at].0 < stretches[before].1
        {
            met.extend([before, at]);
        }
        if last.is_none_or(|before| stretches[before].1 < stretches[at].1) {
            last = Some(at);
        }
    }
    met
}

/// Of each exchange that meets nobody: how often it is made, and the shortest time from the end of
/// whatever was before it.
fn pauses(sheet: &Sheet, stretches: &[(Time, Time)], known: &Known) -> BTreeMap<Who, (u64, Span)> {
    let mut order: Vec<usize> = (0..stretches.len()).collect();
    order.sort_unstable_by_key(|at| stretches[*at]);
    let mut pauses: BTreeMap<Who, (u64, Span)> = BTreeMap::new();
    let mut idle_since: Option<Time> = None;
    for at in order {
        let (from, to) = stretches[at];
        if !known.run.contains(&at) {
            let (count, shortest) = pauses.entry(sheet.made[at].who).or_insert((0, Span::MAX));
            *count += 1;
            let pause = idle_since.map_or(Span::MAX, |end| from.since(end.min(from)));
            *shortest = pause.min(*shortest);
        }
        idle_since = Some(idle_since.map_or(to, |end| end.max(to)));
    }
    for (_, pause) in pauses.values_mut() {
        // Nothing was before the only one.
        *pause = if *pause == Span::MAX { Span::ZERO } else { *pause };
    }
    pauses
}

/// The outcome of the step with what the links did in exchanges that were run by themselves.
fn put_together(
    sheet: Sheet,
    mut outcome: Outcome,
    known: &Known,
    alone: &BTreeMap<Who, Alone>,
) -> (Sheet, Outcome, Once) {
    let mut counts: BTreeMap<Who, u64> = BTreeMap::new();
    for (number, made) in sheet.made.iter().enumerate() {
        if !known.run.contains(&number) {
            *counts.entry(made.who).or_default() += 1;
        }
    }
    let step_s = outcome.makespan().as_secs_f64().max(1e-12);
    let mut once = Once {
        exchanges: sheet.made.len() as u64,
        met: known.run.len() as u64,
        different: counts.len() as u64,
        times: alone.values().map(|one| one.times).max().unwrap_or(0),
        apart: 0.0,
    };
    for (who, count) in counts {
        let one = &alone[&who];
        once.apart += count as f64 * one.apart.as_secs_f64() / step_s;
        add(&mut outcome, &one.outcome, (count, one.times));
    }
    (sheet, outcome, once)
}

/// Adds what a run did, for so many exchanges of which it had others.
fn add(outcome: &mut Outcome, run: &Outcome, (count, times): (u64, u64)) {
    let scaled = |value: u64| (u128::from(value) * u128::from(count) / u128::from(times)) as u64;
    for (link, seen) in run.links.enumerate() {
        let sum = &mut outcome.links[link];
        sum.bytes += scaled(seen.bytes);
        sum.flows = sum.flows.max(seen.flows);
        sum.peak_queue = sum.peak_queue.max(seen.peak_queue);
        sum.paused += Span::from_ps(scaled(seen.paused.as_ps()));
    }
    let (sum, seen) = (&mut outcome.counters, &run.counters);
    sum.events += seen.events;
    for (sum, seen) in [
        (&mut sum.packets, seen.packets),
        (&mut sum.packet_hops, seen.packet_hops),
        (&mut sum.drops, seen.drops),
        (&mut sum.retransmits, seen.retransmits),
        (&mut sum.ecn_marks, seen.ecn_marks),
        (&mut sum.cnps, seen.cnps),
        (&mut sum.pauses, seen.pauses),
        (&mut sum.trims, seen.trims),
    ] {
        *sum += scaled(seen);
    }
    sum.paused += Span::from_ps(scaled(seen.paused.as_ps()));
    outcome.digest = outcome.digest.rotate_left(1) ^ run.digest;
    for finding in &run.findings {
        keep(&mut outcome.findings, finding);
    }
}

/// Adds a finding; of those that differ in their figures only, the one that says most.
fn keep(findings: &mut Vec<Finding>, new: &Finding) {
    let words = |finding: &Finding| finding.text.replace(|c: char| c.is_ascii_digit(), "");
    let Some(known) = findings.iter_mut().find(|known| words(known) == words(new)) else {
        return findings.push(new.clone());
    };
    if last_figure(&known.text) < last_figure(&new.text) {
        *known = new.clone();
    }
}

fn last_figure(text: &str) -> f64 {
    let figures = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    figures.filter_map(|figure| figure.parse().ok()).next_back().unwrap_or(0.0)
}

impl Plan<'_> {
    /// What each exchange takes undisturbed.
    fn estimates(&mut self) -> Result<BTreeMap<Exchange, Span>, Unserved> {
        let nodes = self.stages.iter().flat_map(|stage| &stage.nodes);
        let mut all: BTreeSet<Exchange> = nodes
            .filter_map(|node| match node.doing {
                Doing::Exchange(exchange) => Some(exchange),
                _ => None,
            })
            .collect();
        all.insert(self.message);
        let network = &mut self.network;
        all.into_iter().map(|exchange| Ok((exchange, network.time(exchange)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    /// Two that overlap meet, and so does one inside a longer one; one that begins when another
    /// ends does not.
    #[test]
    fn those_that_overlap_meet() {
        let all = [(at(0), at(4)), (at(4), at(9)), (at(5), at(6)), (at(7), at(8)), (at(9), at(10))];
        assert_eq!(meeting(&all), BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn of_findings_that_differ_in_figures_the_larger_is_kept() {
        let finding = |text: &str| Finding { at: Time::ZERO, text: text.to_owned() };
        let mut all = vec![finding("known to within 0.50 %")];
        keep(&mut all, &finding("known to within 1.25 %"));
        keep(&mut all, &finding("known to within 0.75 %"));
        keep(&mut all, &finding("something else"));
        assert_eq!(all, [finding("known to within 1.25 %"), finding("something else")]);
    }
}
