//! Steady state: with `network.packet.forward = "bounded"`, time in which rates do not change is
//! skipped.
//!
//! The network itself does not change: packets on wires, queues, timers and the engine's clock stay
//! as they are. Messages become shorter by what their queue pairs would have sent meanwhile, and
//! from then on every instant of the engine's clock stands for one that is so much later
//! ([`Steady::real_ps`]). This happens at an instant that all nodes have reached and none has
//! passed. No message ends in skipped time, so none begins in it.
//!
//! What queue pairs would have sent is known in one of two ways:
//!
//! * *Coasting*: every rate is fixed until a timer changes it ([`Sender::coasts_until`]), all links
//!   have time for the sum of the rates, and no queue can reach a threshold for marks. Then each
//!   sends a packet every so many picoseconds until the first timer. The error is less than a
//!   packet for each queue pair, however often time is skipped; but which rates the next marks cut,
//!   and by how much, depends on that packet. So the spread of rates after marks is the measure of
//!   that error, and its part in a completion falls with the root of the number of rate cuts. If
//!   one link has too little time, its queue grows: until it comes near the threshold, what it
//!   would have gained is put there at once, in turns.
//! * *Sampling*: rates move all the time, but around a constant mean
//!   ([`Sender::has_steady_mean`]). Samples of what was acknowledged are taken from time to time;
//!   when eight batch means say that the mean of each queue pair is known ([`PRECISE`]), it is used
//!   as the rate until the first message ends. When some have ended, the others keep their shares
//!   of the links that hold them back, and share what those links carry now, unless new samples say
//!   otherwise.
//!
//! No time is skipped while a port is paused, packets are lost or operations are pending, nor where
//! paths are chosen for each packet. A finding says how much was skipped, and how well completions
//! are known (`tests/bounded.rs` compares them with whole runs).
//!
//! [`Sender::coasts_until`]: crate::cc::Sender::coasts_until
//! [`Sender::has_steady_mean`]: crate::cc::Sender::has_steady_mean

use fabric::LinkId;
use traffic::{Counters, OpKind};
use units::{Id, IdVec, Span, Time};

use crate::ids::{PairId, Raw};
use crate::packet::{LANE_SHIFT, MARKED, PATH_END, Packet, Purpose};
use crate::pair::Pair;
use crate::port::NOWHERE;
use crate::simulation::Simulation;

const NEVER: u64 = u64::MAX;

/// Time between two checks of queue pairs that coast now and then, in picoseconds.
const COASTING: u64 = 2_500_000;

/// Less than so many times that is not worth it; where a link is overloaded, the next check comes
/// after so many times that.
const WORTH: u64 = 2;
const OVERLOADED: u64 = 8;

/// And where notifications have come.
const NOTIFIED: u64 = 4;

/// Time between two samples of queue pairs with a constant mean, in base round trips.
const SAMPLING: u64 = 8;

/// With more queue pairs, no time is skipped.
const MAX_PAIRS: usize = 1 << 14;

/// A message must have so many packets for its queue pair to come to rest.
const MIN_PACKETS: u32 = 2_048;

/// Batches of a measurement; at least so many checks are needed, and so many samples are kept.
const BATCHES: usize = 8;
const CHECKS: usize = 2 * BATCHES;
const MAX_CHECKS: usize = 4 * CHECKS;

/// The mean of a queue pair's rate is known when its standard error is less than this share.
const PRECISE: f64 = 0.017;

/// Measured rates are used again if new samples differ by less than so many times the error that
/// is expected of so few.
const UNLIKELY: f64 = 2.0;

/// So many standard errors are the bound: for the furthest of some dozen queue pairs, and because
/// batches are not fully independent.
const ERRORS: f64 = 5.0;

/// A queue may grow to this share of the threshold for marks.
const NEAR_MARKS: f64 = 0.8;

/// The most of a link's time that paced queue pairs may take.
const ROOM: f64 = 0.995;

/// The search for steady state, and skipped time.
#[derive(Debug)]
pub(crate) struct Steady {
    /// When the next check is.
    pub check_at: u64,
    /// From these instants of the engine's clock on, real time is so much later.
    skipped_spans: Vec<(u64, u64)>,
    /// By queue pair: packets that were skipped.
    skipped: IdVec<PairId, u64>,
    /// By link: the share of its time that is taken, and by how many; links that are not zero.
    loads: IdVec<LinkId, (f64, u64)>,
    loaded: Vec<LinkId>,
    /// By queue pair: skipped time that has not sent a packet yet.
    remainders: IdVec<PairId, u64>,
    sample: Sample,
    steady_rates: Option<SteadyRates>,
    checks: u64,
    /// How often time was skipped.
    pub jumps: u64,
    /// Notifications have come since time was last skipped at fixed rates.
    disturbed: bool,
    /// How often they had, and the sum of how far rates lay apart then.
    rounds: u64,
    spread: f64,
    /// The largest standard error of a rate that was used, and time skipped with such rates.
    error: f64,
    sampled: u64,
}

/// Samples of the queue pairs since the set of those that send last changed.
#[derive(Debug, Default)]
struct Sample {
    /// Those that send, and what.
    active: Vec<(PairId, u32)>,
    /// The time of each sample, and how many packets of each were acknowledged by then.
    samples: Vec<(u64, Vec<u32>)>,
    /// One in so many checks gives a sample, and this is the number of the last check.
    stride: u32,
    check: u32,
    counters: Counters,
}

/// Rates of queue pairs that were found to be steady.
#[derive(Debug)]
struct SteadyRates {
    active: Vec<(PairId, u32)>,
    /// Packets in a picosecond.
    rates: Vec<f64>,
    error: f64,
    /// For how long they were measured.
    span: u64,
}

/// What is to be skipped: time, and packets of each queue pair.
struct Skip {
    span: u64,
    packets: Vec<(PairId, u32)>,
    /// The link whose queue grows meanwhile.
    overload: Option<Overload>,
}

/// A link that has too little time for what is sent over it.
#[derive(Clone, Copy)]
struct Overload {
    link: LinkId,
    /// What is sent over it, as a share of what it carries.
    load: f64,
}

/// The result of a check.
enum Decision {
    Skip(Skip),
    /// The next check is not before then.
    Wait(u64),
}

impl Steady {
    /// No search.
    pub(crate) fn off() -> Self {
        Self {
            check_at: NEVER,
            skipped_spans: Vec::new(),
            skipped: IdVec::default(),
            loads: IdVec::default(),
            loaded: Vec::new(),
            remainders: IdVec::default(),
            sample: Sample::default(),
            steady_rates: None,
            checks: 0,
            jumps: 0,
            disturbed: false,
            rounds: 0,
            spread: 0.0,
            error: 0.0,
            sampled: 0,
        }
    }

    /// For a run, if it may come to one.
    pub(crate) fn new(simulation: &Simulation<'_>) -> Self {
        let (input, net, ends) = (&simulation.input, &simulation.net, &simulation.ends);
        let rules = &input.rules;
        let ops = input.transfers.ops();
        let waits = |op| {
            matches!(ops[op].kind, OpKind::Wait { .. }) && !input.transfers.after(op).is_empty()
        };
        let is_long = |op: traffic::OpId| match ops[op].kind {
            OpKind::Send { connection, bytes } => {
                let pairs = u32::from(net.network.pairs_of[connection.index()]).max(1);
                MIN_PACKETS <= input.sizes.packets(bytes.get()) / pairs
            }
            _ => false,
        };
        let is_simple = rules.light_acks
            && !rules.admits
            && !rules.reads
            && !rules.unreliable
            && !rules.slow_hosts
            && rules.lanes == 1
            && !input.aggregates
            && !net.credits.are_counted()
            && !net.schedule.is_on
            && !ends.entropy.is_used()
            && !ends.planes.are_several()
            && !net.network.chooses_on_the_way()
            && net.damage.is_empty()
            && ends.pairs.len() <= MAX_PAIRS;
        if !is_simple || ops.ids().any(waits) || !ops.ids().any(is_long) {
            return Self::off();
        }
        let pairs = ends.pairs.len();
        let (skipped, remainders) = (vec![0; pairs].into(), vec![0; pairs].into());
        let loads = vec![(0.0, 0); net.ports.len()].into();
        let check_at = COASTING.max(2 * net.longest + 1);
        Self { check_at, skipped, loads, remainders, ..Self::off() }
    }

    /// What an instant of the engine's clock stands for.
    pub(crate) fn real_ps(&self, at: u64) -> u64 {
        let later = self.skipped_spans.partition_point(|(from, _)| *from <= at);
        let shift = later.checked_sub(1).map_or(0, |last| self.skipped_spans[last].1);
        at.saturating_add(shift)
    }

    /// The same, of a time.
    pub(crate) fn real_time(&self, at: Time) -> Time {
        Time::from_ps(self.real_ps(at.as_ps()))
    }

    /// How much time was skipped.
    fn total_skipped(&self) -> u64 {
        self.skipped_spans.last().map_or(0, |(_, shift)| *shift)
    }
}

/// The mean of some numbers, and the standard error of it.
fn mean_and_error(batches: &[f64]) -> (f64, f64) {
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    let variance = batches.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

/// Whole packets that are sent in a span, and what is left of it; what was left before, at another
/// rate perhaps, is less than a packet.
fn whole_packets(span: u64, gap: u64, rest: &mut u64) -> u32 {
    let time = span + (*rest).min(gap - 1);
    *rest = time % gap;
    (time / gap) as u32
}

/// The root of the mean square.
fn root_mean_square(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    (values.map(|x| x * x).sum::<f64>() / count).sqrt()
}

impl Sample {
    /// Restarts with other queue pairs.
    fn restart(&mut self, active: Vec<(PairId, u32)>, counters: Counters) {
        *self = Self { active, stride: 1, counters, ..Self::default() };
    }

    /// Takes a sample of what has been acknowledged.
    fn record(&mut self, at: u64, acked: Vec<u32>) {
        self.check += 1;
        if !self.check.is_multiple_of(self.stride) {
            return;
        }
        self.samples.push((at, acked));
        if MAX_CHECKS <= self.samples.len() {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.stride *= 2;
        }
    }

    /// Packets in a picosecond of one of them between two samples.
    fn rate(&self, pair: usize, [from, to]: [usize; 2]) -> f64 {
        let ((begin, before), (end, after)) = (&self.samples[from], &self.samples[to]);
        f64::from(after[pair] - before[pair]) / (end - begin) as f64
    }

    /// The mean rates and the standard error of them as a share, leaving out the first eighth.
    fn rates(&self) -> Option<SteadyRates> {
        let last = self.samples.len().checked_sub(1)?;
        let size = (last - last / 8) / BATCHES;
        if size < 2 {
            return None;
        }
        let first = last - size * BATCHES;
        let mut steady_rates = SteadyRates {
            active: self.active.clone(),
            rates: Vec::new(),
            error: 0.0,
            span: self.samples[last].0 - self.samples[first].0,
        };
        let mut errors = Vec::new();
        for pair in 0..self.active.len() {
            let batch = |at: usize| [first + at * size, first + (at + 1) * size];
            let batches: Vec<f64> = (0..BATCHES).map(|at| self.rate(pair, batch(at))).collect();
            let (mean, error) = mean_and_error(&batches);
            // A rate that still moves in one direction shows in its halves.
            let half = |at: &[f64]| at.iter().sum::<f64>() / at.len() as f64;
            let moved = half(&batches[..BATCHES / 2]) - half(&batches[BATCHES / 2..]);
            if mean <= 0.0 {
                return None;
            }
            errors.push(error.max(moved.abs() / 2.0) / mean);
            steady_rates.rates.push(mean);
        }
        steady_rates.error = root_mean_square(errors.into_iter());
        Some(steady_rates)
    }
}

impl Simulation<'_> {
    /// Skips time if the run is in a steady state.
    pub(crate) fn check_steady_state(&mut self, next: u64) {
        let at = self.steady.check_at.max(self.time.now);
        self.steady.checks += 1;
        let decision = if self.is_undisturbed() { self.decide(at) } else { Decision::Wait(0) };
        let least = at.max(next).saturating_add(COASTING.max(2 * self.net.longest + 1));
        let again = match decision {
            Decision::Skip(skip) => {
                self.skip_time(at, &skip);
                least
            }
            Decision::Wait(until) => until.max(least),
        };
        self.steady.check_at = again;
        self.set_barrier();
    }

    /// Whether no operation is pending and no sender is paused.
    fn is_undisturbed(&self) -> bool {
        self.ends.operations.pending == 0
            && self.ends.operations.ready.is_empty()
            && self.net.switches.iter().all(|switch| switch.pausing == 0)
    }

    fn decide(&mut self, at: u64) -> Decision {
        let Some(active) = self.active_pairs(at) else { return Decision::Wait(0) };
        let control = |pair: PairId| &self.ends.pairs[pair].control;
        let coast = active.iter().map(|(pair, _)| control(*pair).coasts_until());
        let coast: Option<Vec<Time>> = coast.collect();
        if let Some(coast) = coast {
            let until = coast.into_iter().min().unwrap_or(Time::MAX).as_ps();
            return self.decide_coasting(at, until, &active);
        }
        if active.iter().all(|(pair, _)| control(*pair).has_steady_mean()) {
            return self.decide_sampling(at, active);
        }
        self.steady.disturbed = true;
        Decision::Wait(at + NOTIFIED * COASTING)
    }

    /// The queue pairs that send, and the message of each; nothing if one does anything else.
    fn active_pairs(&self, at: u64) -> Option<Vec<(PairId, u32)>> {
        let mut active = Vec::new();
        for (number, pair) in self.ends.pairs.enumerate() {
            if pair.una == pair.end || pair.broken {
                continue;
            }
            let is_sending = pair.sending != NOWHERE && pair.resend.is_empty();
            if !is_sending || at < pair.posted || pair.next != pair.high {
                return None;
            }
            active.push((number, pair.sending));
        }
        (!active.is_empty()).then_some(active)
    }

    /// Packets that a queue pair has still to send of its message.
    fn packets_left(&self, pair: &Pair) -> u32 {
        self.ends.messages[pair.sending as usize].end() - pair.next
    }

    /// The links from a place in the list of paths on.
    fn links_from(&self, route: u32) -> impl Iterator<Item = LinkId> {
        let way = self.net.paths[route as usize..].iter();
        way.take_while(|link| **link & PATH_END == 0).map(|link| LinkId::of(*link))
    }

    /// Size of a full data packet on the wire, with the gap behind it.
    fn full_packet(&self) -> u64 {
        u64::from(self.input.sizes.mtu + self.input.sizes.data) + self.input.sizes.gap
    }

    /// Every rate is fixed until an instant.
    fn decide_coasting(&mut self, at: u64, until: u64, active: &[(PairId, u32)]) -> Decision {
        let mut span = until.saturating_sub(at).saturating_sub(1);
        for (number, _) in active {
            let pair = &self.ends.pairs[*number];
            if pair.window != u64::MAX {
                return Decision::Wait(0);
            }
            span = span.min(u64::from(self.packets_left(pair).saturating_sub(2)) * pair.gap);
        }
        let limit = self.input.settings.limits.time.as_ps();
        span = span.min(limit.saturating_sub(self.steady.real_ps(at)));
        if span < WORTH * COASTING {
            return Decision::Wait(if until == NEVER { 0 } else { until + 1 });
        }
        self.sum_loads(active);
        let Ok(overload) = self.overload() else {
            return Decision::Wait(at + OVERLOADED * COASTING);
        };
        if !self.has_room(at, overload) || self.has_marks_under_way() {
            return Decision::Wait(0);
        }
        if let Some(overload) = overload {
            span = span.min(self.time_until_marks(overload));
            if span < WORTH * COASTING {
                return Decision::Wait(at + OVERLOADED * COASTING);
            }
        }
        if std::mem::take(&mut self.steady.disturbed) {
            self.record_spread(active);
        }
        let mut packets = Vec::with_capacity(active.len());
        for (number, _) in active {
            let gap = self.ends.pairs[*number].gap.max(1);
            packets.push((*number, whole_packets(span, gap, &mut self.steady.remainders[*number])));
        }
        Decision::Skip(Skip { span, packets, overload })
    }

    /// Notes how far the rates lie apart that congestion has left queue pairs with.
    fn record_spread(&mut self, active: &[(PairId, u32)]) {
        let rate = |(pair, _): &(PairId, u32)| self.ends.pairs[*pair].rate_bps as f64;
        let rates: Vec<f64> = active.iter().map(rate).collect();
        if let [_, _, ..] = rates[..] {
            let (mean, error) = mean_and_error(&rates);
            self.steady.spread += error * (rates.len() as f64).sqrt() / mean.max(1.0);
        }
        self.steady.rounds += 1;
    }

    /// How much of each link's time queue pairs take.
    fn sum_loads(&mut self, active: &[(PairId, u32)]) {
        let full = self.full_packet();
        let mut loads = std::mem::take(&mut self.steady.loads);
        let mut loaded = std::mem::take(&mut self.steady.loaded);
        loaded.drain(..).for_each(|link| loads[link] = (0.0, 0));
        for (number, _) in active {
            let pair = &self.ends.pairs[*number];
            for link in self.links_from(pair.route) {
                let takes = self.net.ports[link].time_to_send(full, self.input.clock);
                let (load, count) = &mut loads[link];
                if *count == 0 {
                    loaded.push(link);
                }
                *load += takes as f64 / pair.gap.max(1) as f64;
                *count += 1;
            }
        }
        (self.steady.loads, self.steady.loaded) = (loads, loaded);
    }

    /// The link that has too little time; an error if there are several, or if it is a NIC's.
    fn overload(&self) -> Result<Option<Overload>, ()> {
        let loaded = self.steady.loaded.iter().copied();
        let mut over = loaded.filter(|link| ROOM < self.steady.loads[*link].0);
        let Some(link) = over.next() else { return Ok(None) };
        let load = self.steady.loads[link].0;
        let is_simple = over.next().is_none() && 1.0 < load && self.is_switch_port(link);
        if is_simple { Ok(Some(Overload { link, load })) } else { Err(()) }
    }

    /// How long the queue of a link that has too little time stays below the threshold for marks.
    fn time_until_marks(&self, Overload { link, load }: Overload) -> u64 {
        let Some(least) = self.net.marker.marks_from(link) else { return 0 };
        let (port, full) = (&self.net.ports[link], self.full_packet());
        let room = NEAR_MARKS * least as f64 - f64::from(port.queued);
        let takes = port.time_to_send(full, self.input.clock);
        (room.max(0.0) / full as f64 * takes as f64 / (load - 1.0)) as u64
    }

    /// Whether no more than one packet of each waits now, and that is too little to be marked.
    fn has_room(&mut self, at: u64, overload: Option<Overload>) -> bool {
        let full = self.full_packet();
        let loaded = std::mem::take(&mut self.steady.loaded);
        let has_room = loaded.iter().all(|link| {
            self.apply_departures_before(*link, at);
            let (_, count) = self.steady.loads[*link];
            let (port, most) = (&self.net.ports[*link], count * full);
            let marks_from = self.net.marker.marks_from(*link);
            let is_marked = 1 < count && marks_from.is_some_and(|least| least <= most);
            let is_held = port.paused != 0 || port.pausing != 0;
            let grows = overload.is_some_and(|overload| overload.link == *link);
            (grows || u64::from(port.queued) <= most) && !is_marked && !is_held
        });
        self.steady.loaded = loaded;
        has_room
    }

    /// Whether something is on its way, forth or back, that will change a rate.
    fn has_marks_under_way(&self) -> bool {
        let tells = |packet: &Packet| {
            let is_notice = matches!(packet.purpose, Purpose::Notification | Purpose::Nak);
            is_notice || packet.flags & MARKED != 0
        };
        let loaded = self.steady.loaded.iter().copied();
        let back = |link: LinkId| self.input.fabric.reverse(link);
        let mut links = loaded.clone().chain(loaded.map(back));
        let on_links = links.any(|link| {
            let port = &self.net.ports[link];
            let queues = port.classes.iter().map(|class| class.queue);
            let mut queued = queues.flat_map(|queue| self.net.queued.iter(queue));
            self.net.wires.iter(port.wire).any(tells)
                || queued.any(|waiting| tells(&waiting.packet))
        });
        on_links || self.ends.light_acks.iter().any(|acks| acks.packets().any(tells))
    }

    /// Rates move about a mean.
    fn decide_sampling(&mut self, at: u64, active: Vec<(PairId, u32)>) -> Decision {
        let counters = self.accounts.counters;
        let odd = |c: &Counters| [c.drops, c.retransmits, c.pauses, c.trims];
        let base = |(pair, _): &(PairId, u32)| self.circumstances(*pair).base_rtt.as_ps();
        let every = SAMPLING * active.iter().map(base).max().unwrap_or(0);
        let acked: Vec<u32> = active.iter().map(|(pair, _)| self.ends.pairs[*pair].una).collect();
        let sample = &mut self.steady.sample;
        if sample.active != active || odd(&sample.counters) != odd(&counters) {
            sample.restart(active, counters);
        }
        sample.record(at, acked);
        let steady_rates = self.rates_by_shares().or_else(|| {
            let steady_rates = self.steady.sample.rates()?;
            (steady_rates.error <= PRECISE).then_some(steady_rates)
        });
        let skip = steady_rates.and_then(|steady_rates| self.skip_for(at, steady_rates));
        skip.map_or(Decision::Wait(at + every), Decision::Skip)
    }

    /// What is skipped at measured rates, if that is worth it.
    fn skip_for(&mut self, at: u64, steady_rates: SteadyRates) -> Option<Skip> {
        let limit = self.input.settings.limits.time.as_ps();
        let mut span = limit.saturating_sub(self.steady.real_ps(at));
        for ((number, _), rate) in steady_rates.active.iter().zip(&steady_rates.rates) {
            let packets_left = self.packets_left(&self.ends.pairs[*number]).saturating_sub(2);
            span = span.min((f64::from(packets_left) / rate) as u64);
        }
        let (begin, end) =
            (self.steady.sample.samples.first()?.0, self.steady.sample.samples.last()?.0);
        if span < (end - begin) / 4 {
            return None;
        }
        let packets = steady_rates.active.iter().zip(&steady_rates.rates);
        let packets = packets.map(|((pair, _), rate)| (*pair, (span as f64 * rate) as u32));
        let packets = packets.collect();
        let Steady { error, sampled, sample, .. } = &mut self.steady;
        *error = error.max(steady_rates.error);
        *sampled += span;
        sample.active.clear();
        self.steady.steady_rates = Some(steady_rates);
        Some(Skip { span, packets, overload: None })
    }

    /// The rates of those that are left of a set whose rates were known: each keeps its share of
    /// the link that holds it back. Nothing if they are others, or if they do not look like that.
    fn rates_by_shares(&self) -> Option<SteadyRates> {
        let (sample, steady_rates) = (&self.steady.sample, self.steady.steady_rates.as_ref()?);
        let last = sample.samples.len().checked_sub(1)?;
        if last < BATCHES || 1 < sample.stride {
            return None;
        }
        let place = |one: &(PairId, u32)| steady_rates.active.iter().position(|other| other == one);
        let places: Option<Vec<usize>> = sample.active.iter().map(place).collect();
        let before: Vec<f64> = places?.into_iter().map(|at| steady_rates.rates[at]).collect();
        let checks = [last / 4, last];
        let samples: Vec<f64> = (0..before.len()).map(|pair| sample.rate(pair, checks)).collect();
        let mut links: std::collections::BTreeMap<LinkId, [f64; 2]> = Default::default();
        let ways = |pair: usize| {
            let (number, _) = sample.active[pair];
            self.links_from(self.ends.pairs[number].route)
        };
        for (pair, rates) in before.iter().zip(&samples).enumerate() {
            for link in ways(pair) {
                let sums = links.entry(link).or_default();
                sums[0] += rates.0;
                sums[1] += rates.1;
            }
        }
        let load = |link: &LinkId| {
            links[link][1] * self.net.ports[*link].time_to_send(1_000, self.input.clock) as f64
        };
        let scaled = |(pair, before): (usize, &f64)| {
            let busiest = ways(pair).max_by(|a, b| load(a).total_cmp(&load(b)))?;
            let [then, now] = links[&busiest];
            Some(before * now / then)
        };
        let rates: Vec<f64> = before.iter().enumerate().map(scaled).collect::<Option<_>>()?;
        let span = sample.samples[checks[1]].0 - sample.samples[checks[0]].0;
        let expected =
            steady_rates.error.max(PRECISE / 2.0) * (steady_rates.span as f64 / span as f64).sqrt();
        let misses = root_mean_square(
            rates.iter().zip(&samples).map(|(rate, samples)| samples / rate - 1.0),
        );
        let (active, error) = (sample.active.clone(), steady_rates.error);
        let found = SteadyRates { active, rates, error, span: steady_rates.span };
        (misses <= UNLIKELY * expected).then_some(found)
    }

    /// Passes over a stretch of time.
    fn skip_time(&mut self, at: u64, skip: &Skip) {
        let shift = self.steady.total_skipped() + skip.span;
        self.steady.skipped_spans.push((at, shift));
        self.steady.jumps += 1;
        self.time.now = self.time.now.max(at);
        let extra = match skip.overload {
            Some(overload) => self.grow_queue(overload, skip),
            None => vec![0; skip.packets.len()],
        };
        for ((number, packets), extra) in skip.packets.iter().zip(extra) {
            self.shorten_message(*number, packets - extra);
            let pair = &mut self.ends.pairs[*number];
            pair.control.coast(Time::from_ps(at), Span::from_ps(skip.span));
            pair.timer_at = NEVER;
            self.update_limit(*number);
        }
    }

    /// Lets the queue of a link grow by what it could not send: packets that were sent meanwhile
    /// are put there, and those that are on their way there are later ones. Returns how many of
    /// each queue pair that are.
    fn grow_queue(&mut self, Overload { link, .. }: Overload, skip: &Skip) -> Vec<u32> {
        let takes = self.net.ports[link].time_to_send(self.full_packet(), self.input.clock);
        let place = |number: PairId| {
            let mut way = self.links_from(self.ends.pairs[number].route);
            way.position(|other| other == link).map(|at| at as u32)
        };
        let places: Vec<Option<u32>> = skip.packets.iter().map(|(pair, _)| place(*pair)).collect();
        let crossing = skip.packets.iter().zip(&places).filter(|(_, place)| place.is_some());
        let sent: u64 = crossing.map(|((_, packets), _)| u64::from(*packets)).sum();
        let share = 1.0 - (skip.span / takes.max(1)) as f64 / sent.max(1) as f64;
        let extra: Vec<u32> = skip
            .packets
            .iter()
            .zip(&places)
            .map(|((_, packets), place)| match place {
                Some(_) => (f64::from(*packets) * share.max(0.0)).round() as u32,
                None => 0,
            })
            .collect();
        let mut firsts = Vec::with_capacity(extra.len());
        for (((number, _), place), extra) in skip.packets.iter().zip(&places).zip(&extra) {
            let ahead = place.map_or(0, |place| self.shift_times(*number, place, *extra));
            let pair = &mut self.ends.pairs[*number];
            firsts.push(pair.next - ahead);
            pair.next += extra;
            pair.high += extra;
            pair.sent_bytes += u64::from(*extra) * u64::from(self.input.sizes.mtu);
        }
        for turn in 0..extra.iter().copied().max().unwrap_or(0) {
            for at in 0..extra.len() {
                if let Some(place) = places[at].filter(|_| turn < extra[at]) {
                    self.put_before(skip.packets[at].0, place, firsts[at] + turn);
                }
            }
        }
        extra
    }

    /// Makes the packets of a queue pair later ones that have not yet reached a link of its way,
    /// the one at this place; returns how many there are.
    fn shift_times(&mut self, number: PairId, place: u32, by: u32) -> u32 {
        let route = self.ends.pairs[number].route;
        let links: Vec<LinkId> = self.links_from(route).take(place as usize).collect();
        let mut count = 0;
        let mut delay = |packet: &mut Packet| {
            // Behind the links of a way stands its end, so no other packets are there.
            if (route + 1..=route + place).contains(&packet.route) {
                packet.psn += by;
                count += 1;
            }
        };
        for link in links {
            let wire = self.net.ports[link].wire;
            for behind in 0..wire.len() {
                delay(&mut self.net.wires.places()[wire.place(behind)]);
            }
            let queues: Vec<_> =
                self.net.ports[link].classes.iter().map(|class| class.queue).collect();
            for queue in queues {
                for behind in 0..queue.len() {
                    delay(&mut self.net.queued.places()[queue.place(behind)].packet);
                }
            }
        }
        count
    }

    /// Lets a full packet of a queue pair reach the switch before the link at a place of its way.
    fn put_before(&mut self, number: PairId, place: u32, psn: u32) {
        let pair = &self.ends.pairs[number];
        let size = self.input.sizes.mtu + self.input.sizes.data;
        let packet = Packet {
            at: 0,
            psn,
            sent: (self.time.now / 1_000) as u32,
            route: pair.route + place,
            size: size as u16,
            purpose: Purpose::Data,
            flags: pair.lane << LANE_SHIFT,
        };
        let before: Vec<LinkId> = self.links_from(pair.route).take(place as usize).collect();
        before.iter().for_each(|link| self.net.ports[*link].bytes += u64::from(size));
        self.accounts.counters.packets += 1;
        self.accounts.counters.packet_hops += u64::from(place) - 1;
        self.link_crossed(*before.last().expect("a NIC's link comes first"), packet);
    }

    /// Removes skipped packets from the message that a queue pair sends.
    fn shorten_message(&mut self, number: PairId, packets: u32) {
        let bytes = u64::from(packets) * u64::from(self.input.sizes.mtu);
        self.steady.skipped[number] += u64::from(packets);
        let pair = &mut self.ends.pairs[number];
        pair.end -= packets;
        let message = &mut self.ends.messages[pair.sending as usize];
        assert!(
            pair.next + packets < message.end(),
            "no message ends in what is skipped_spans over"
        );
        message.packets -= packets;
        message.bytes -= bytes;
        let mut at = message.next;
        while at != NOWHERE {
            let later = &mut self.ends.messages[at as usize];
            later.first -= packets;
            later.before -= bytes;
            at = later.next;
        }
        let inbox = &mut self.ends.inboxes[number];
        if inbox.message != NOWHERE {
            inbox.message_end = self.ends.messages[inbox.message as usize].end();
        }
    }

    /// Adds skipped packets to the counters, and reports them.
    pub(crate) fn account_for_steady_state(&mut self) {
        let data = u64::from(self.input.sizes.mtu + self.input.sizes.data);
        let ack = u64::from(self.input.sizes.ack);
        for number in self.steady.skipped.ids() {
            let packets = std::mem::take(&mut self.steady.skipped[number]);
            if packets == 0 {
                continue;
            }
            let forth: Vec<LinkId> = self.links_from(self.ends.pairs[number].route).collect();
            let back: Vec<LinkId> = self.links_from(self.ends.inboxes[number].route).collect();
            forth.iter().for_each(|link| self.net.ports[*link].bytes += packets * data);
            let acks = packets / u64::from(self.input.rules.ack_every);
            back.iter().for_each(|link| self.net.ports[*link].bytes += acks * ack);
            let Counters { packets: sent, packet_hops, .. } = &mut self.accounts.counters;
            *sent += packets;
            *packet_hops += packets * forth.len() as u64;
            self.accounts.tally.delivered_data += packets;
        }
        self.report_steady_state();
    }

    fn report_steady_state(&mut self) {
        let Steady { jumps, checks, rounds, spread, error, sampled, .. } = self.steady;
        let all = self.steady.real_ps(self.time.now).max(1) as f64;
        if checks < CHECKS as u64 {
            return;
        }
        if jumps == 0 {
            self.report_finding(
                "no steady state was found (`network.packet.forward`): rates move all the time, and \
                 all of it was simulated"
                    .to_owned(),
            );
            return;
        }
        let skipped_spans = 100.0 * self.steady.total_skipped() as f64 / all;
        let bound = 100.0 * ERRORS * error * sampled as f64 / all;
        let how = if sampled == 0 {
            let rounds = (rounds.max(1) as f64).sqrt();
            let bound = 100.0 * ERRORS * spread / rounds.powi(3);
            let mut all = self.input.settings.all_marks();
            let throws = all.any(|ecn| ecn.enabled && ecn.min < ecn.max);
            let what = if throws { "means over seeds" } else { "completions" };
            format!(
                "rates were fixed there, and each queue pair is less than a packet off; who is cut by \
                 how much when marks come depends on that, so {what} are steady_rates to within {bound:.2} %"
            )
        } else {
            format!(
                "rates there are means of samples, so completions are steady_rates to within {bound:.2} %"
            )
        };
        self.report_finding(format!(
            "steady state (`network.packet.forward`): {skipped_spans:.1} % of the time was skipped_spans over in \
             {jumps} stretches; {how}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: by hand. What a slow rate has left is no more than a packet of a fast one.
    #[test]
    fn what_is_left_at_one_rate_is_less_than_a_packet_at_the_next() {
        let mut rest = 0;
        assert_eq!((whole_packets(1_900, 1_000, &mut rest), rest), (1, 900));
        assert_eq!((whole_packets(200, 100, &mut rest), rest), (2, 99));
    }
}
