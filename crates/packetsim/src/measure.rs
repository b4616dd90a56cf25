//! What happened over time: queues, pauses, marks, drops and rates at intervals, and latencies.
//!
//! Nothing of this costs anything unless it is asked for. Samples are bounded: when there are too
//! many, every second one is thrown away and the interval doubles, so a long run is drawn as finely
//! as a short one. Latencies go into histograms whose bins grow by a sixteenth: from end to end,
//! and for each kind of hop how long packets waited there for their turn.

use fabric::{Fabric, LinkId, NodeId, NodeKind};
use units::{Bytes, Id, Rate, Span, Time};

use crate::ids::{PairId, Raw};
use crate::packet::{CONTROL, Class, Packet, Purpose};
use crate::paths::Network;
use crate::simulation::{RareEvent, Simulation};
use crate::tap::{Capture, Tap};

/// What is to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasureConfig {
    /// Time between samples, to begin with.
    pub interval: Span,
    /// The most samples that are kept.
    pub samples: usize,
    /// The links that are looked at.
    pub links: Vec<LinkId>,
    /// The queue pairs whose rate is looked at, by number in the order they were opened.
    pub pairs: Vec<u32>,
}

impl Default for MeasureConfig {
    fn default() -> Self {
        // Illustrative: fine enough to see a pause, few enough to draw.
        let interval = Span::from_us(10);
        Self { interval, samples: 2_000, links: Vec::new(), pairs: Vec::new() }
    }
}

/// A lane of a link over time. On Ethernet lanes are priorities; most settings have one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaneSeries {
    /// The lane. What belongs to none, acknowledgements and such, is counted in the first.
    pub lane: u8,
    /// What it did until each instant.
    pub samples: Vec<LinkSample>,
}

/// A lane of a link at one instant. Counts are since the start of the run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkSample {
    /// Data that waits.
    pub data: Bytes,
    /// Acknowledgements and such that wait.
    pub control: Bytes,
    /// Bytes sent.
    pub sent: u64,
    /// Packets marked.
    pub marks: u32,
    /// Data packets lost in its queue or on its way.
    pub data_drops: u32,
    /// Other packets lost there.
    pub control_drops: u32,
    /// How long data has been paused.
    pub paused: Span,
}

/// A queue pair over time.
#[derive(Clone, Debug, PartialEq)]
pub struct PairSeries {
    /// Its number, in the order they were opened.
    pub number: u32,
    /// The NIC that sends.
    pub from: NodeId,
    /// The NIC that receives.
    pub to: NodeId,
    /// What it did until each instant.
    pub samples: Vec<PairSample>,
}

/// One queue pair at one instant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PairSample {
    /// The rate that its congestion control allows.
    pub limit: Rate,
    /// Payload acknowledged since the start of the run.
    pub acknowledged: u64,
}

/// A count of latencies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    bins: Vec<u64>,
    count: u64,
}

impl Histogram {
    /// Adds a latency.
    pub fn add(&mut self, span: Span) {
        let bin = Self::bin(span.as_ps() / 1_000);
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += 1;
        self.count += 1;
    }

    /// How many were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latency that this share of them did not exceed, to a sixteenth.
    pub fn quantile(&self, share: f64) -> Option<Span> {
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.bins.iter().position(|bin| {
            seen += bin;
            rank <= seen
        });
        found.filter(|_| 0 < self.count).map(|bin| Span::from_ns(Self::top(bin)))
    }

    /// Nanoseconds below 16 have bins of their own; above, sixteen bins for each power of two.
    fn bin(ns: u64) -> usize {
        if ns < 16 {
            return ns as usize;
        }
        let power = ns.ilog2();
        ((power - 3) * 16) as usize + (ns >> (power - 4) & 15) as usize
    }

    /// The largest number of nanoseconds in a bin.
    fn top(bin: usize) -> u64 {
        if bin < 16 {
            return bin as u64;
        }
        let (power, part) = ((bin / 16 + 3) as u32, (bin % 16) as u64);
        ((16 + part + 1) << (power - 4)) - 1
    }
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// When the samples were taken.
    pub at: Vec<Time>,
    /// Congestion notifications sent until then, by all receivers.
    pub notifications: Vec<u64>,
    /// The lanes of the links that were looked at, link by link, each with a sample for every
    /// instant.
    pub links: Vec<(LinkId, LaneSeries)>,
    /// The queue pairs that were looked at.
    pub pairs: Vec<PairSeries>,
    /// From handing a data packet to the wire until it reaches the receiver's NIC.
    pub one_way: Histogram,
    /// Until its acknowledgement is back.
    pub round_trip: Histogram,
    /// From the receiver's decision to notify until the sender has the notification.
    pub notification: Histogram,
    /// From the receiver's clearance until the sender may use it.
    pub clearance: Histogram,
    /// How long packets waited for their turn, for each kind of hop that was used.
    pub hops: Vec<HopWaits>,
    /// The packets themselves, if somebody captured them.
    pub capture: Option<Capture>,
}

/// How long packets waited in the queues of one kind of hop. Data in a NIC waits in its queue pair,
/// not in a queue, and is not counted.
#[derive(Clone, Debug, PartialEq)]
pub struct HopWaits {
    /// The tier of the switches whose queues these are, or `NIC`.
    pub from: String,
    /// The tier that they lead to.
    pub to: String,
    /// Data.
    pub data: Histogram,
    /// Acknowledgements, whole and negative, and what is left of trimmed packets.
    pub acknowledgement: Histogram,
    /// Congestion notifications.
    pub notification: Histogram,
    /// Clear-to-send messages.
    pub clearance: Histogram,
}

impl HopWaits {
    fn of(&mut self, purpose: Purpose) -> &mut Histogram {
        match purpose {
            Purpose::Data | Purpose::Cell => &mut self.data,
            Purpose::Notification => &mut self.notification,
            Purpose::Grant => &mut self.clearance,
            Purpose::Ack | Purpose::Nak | Purpose::Trimmed | Purpose::Pause => {
                &mut self.acknowledgement
            }
        }
    }
}

/// Every kind of hop of a fabric, and which of them each link is.
fn kinds_of_hops(fabric: &Fabric) -> (Vec<HopWaits>, Vec<u32>) {
    let tier = |node: NodeId| {
        let node = &fabric.nodes()[node];
        match node.kind {
            NodeKind::Switch => fabric.tiers().get(usize::from(node.tier)),
            _ => None,
        }
    };
    let name = |node| tier(node).map_or_else(|| "NIC".to_owned(), |tier| tier.name.clone());
    let mut kinds: Vec<HopWaits> = Vec::new();
    let mut of_links = Vec::with_capacity(fabric.links().len());
    for link in fabric.links() {
        let (from, to) = (name(link.from), name(link.to));
        let known = kinds.iter().position(|kind| kind.from == from && kind.to == to);
        of_links.push(known.unwrap_or(kinds.len()) as u32);
        if known.is_none() {
            let none = Histogram::default;
            let (data, acknowledgement, notification, clearance) = (none(), none(), none(), none());
            kinds.push(HopWaits { from, to, data, acknowledgement, notification, clearance });
        }
    }
    (kinds, of_links)
}

/// A recording in the making.
#[derive(Debug)]
pub(crate) struct Recorder {
    config: MeasureConfig,
    /// Picoseconds between samples now.
    interval: u64,
    /// Which kind of hop each link is.
    kinds: Vec<u32>,
    pub recording: Recording,
    /// Who keeps the packets themselves.
    pub tap: Option<Tap>,
}

impl Recorder {
    /// Nothing recorded yet.
    pub(crate) fn new(
        config: &MeasureConfig,
        fabric: &Fabric,
        network: &Network,
        lanes: usize,
    ) -> Self {
        let lane = |lane: usize| LaneSeries { lane: lane as u8, samples: Vec::new() };
        let of_link = |link: &LinkId| (0..lanes).map(|at| (*link, lane(at))).collect::<Vec<_>>();
        let links = config.links.iter().flat_map(of_link).collect();
        let pair = |number: &u32| {
            let (key, _) = network.keys.get(PairId::of(*number))?;
            Some(PairSeries { number: *number, from: key.from, to: key.to, samples: Vec::new() })
        };
        let pairs = config.pairs.iter().filter_map(pair).collect();
        let (hops, kinds) = kinds_of_hops(fabric);
        let recording = Recording { links, pairs, hops, ..Recording::default() };
        let interval = config.interval.as_ps().max(1);
        Self { config: config.clone(), interval, kinds, recording, tap: None }
    }

    /// What was recorded, without the kinds of hops that nobody crossed.
    pub(crate) fn finish(mut self) -> Recording {
        self.recording.hops.retain(|hop| {
            let counts = [&hop.data, &hop.acknowledgement, &hop.notification, &hop.clearance];
            counts.iter().any(|histogram| 0 < histogram.count())
        });
        self.recording
    }

    /// Removes every second sample, and halves the rate of sampling.
    fn decimate(&mut self) {
        fn halve<T>(samples: &mut Vec<T>) {
            let mut number = 0;
            samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        halve(&mut self.recording.at);
        halve(&mut self.recording.notifications);
        self.recording.links.iter_mut().for_each(|(_, lane)| halve(&mut lane.samples));
        self.recording.pairs.iter_mut().for_each(|pair| halve(&mut pair.samples));
        self.interval *= 2;
    }
}

impl Simulation<'_> {
    /// Takes a sample where the run has ended, unless one has just been taken.
    pub(crate) fn sample_last(&mut self) {
        let taken =
            self.accounts.recorder.as_ref().and_then(|recorder| recorder.recording.at.last());
        if taken.is_some_and(|last| *last < Time::from_ps(self.time.now)) {
            self.take_sample(true);
        }
    }

    /// Takes a sample and arranges for the next.
    pub(crate) fn sample(&mut self) {
        self.take_sample(false);
    }

    fn take_sample(&mut self, is_last: bool) {
        let watched = |recorder: &Recorder, at: usize| recorder.config.links.get(at).copied();
        // Before the recorder is put aside: what departs until now is to be recorded too.
        let mut at = 0;
        while let Some(link) =
            self.accounts.recorder.as_ref().and_then(|recorder| watched(recorder, at))
        {
            self.apply_departures(link);
            at += 1;
        }
        let Some(mut recorder) = self.accounts.recorder.take() else { return };
        recorder.recording.at.push(Time::from_ps(self.time.now));
        recorder.recording.notifications.push(self.accounts.counters.cnps);
        for (link, lane) in &mut recorder.recording.links {
            lane.samples.push(self.sample_lane(*link, usize::from(lane.lane)));
        }
        for series in &mut recorder.recording.pairs {
            let pair = &self.ends.pairs[PairId::of(series.number)];
            let limit = Rate::from_bps(pair.rate_bps);
            series.samples.push(PairSample { limit, acknowledged: pair.acked_bytes });
        }
        // The last one is kept: nothing comes after it.
        if !is_last && recorder.config.samples.max(2) <= recorder.recording.at.len() {
            recorder.decimate();
        }
        // Where nothing else is going to happen, looking again would keep the run alive.
        let goes_on = !is_last && (self.time.now == 0 || self.time.calendar.peek().is_some());
        self.time.sample_at = if goes_on { self.time.now + recorder.interval } else { u64::MAX };
        self.accounts.recorder = Some(recorder);
        if goes_on {
            self.schedule_rare(self.time.sample_at, RareEvent::Sample);
        }
        self.set_barrier();
    }

    fn sample_lane(&self, link: LinkId, lane: usize) -> LinkSample {
        let port = &self.net.ports[link];
        let data = &port.classes[Class::of_lane(lane)];
        let sample = LinkSample {
            data: Bytes::new(u64::from(data.queued)),
            data_drops: port.drops[Class::of_lane(lane)],
            paused: Span::from_ps(self.paused_for(link, lane)),
            ..LinkSample::default()
        };
        let lanes = self.input.rules.lanes;
        let of_lanes = &self.net.lane_counts[link.index() * lanes..(link.index() + 1) * lanes];
        if 0 < lane {
            return LinkSample {
                sent: of_lanes[lane].bytes,
                marks: of_lanes[lane].marks,
                ..sample
            };
        }
        let others = of_lanes.iter().skip(1);
        LinkSample {
            control: Bytes::new(u64::from(port.classes[CONTROL].queued)),
            control_drops: port.drops[CONTROL],
            sent: port.bytes - others.clone().map(|lane| lane.bytes).sum::<u64>(),
            marks: port.marks - others.map(|lane| lane.marks).sum::<u32>(),
            ..sample
        }
    }

    /// Notes how long a packet has been under way when it arrives, or the one it acknowledges.
    #[cold]
    pub(crate) fn record_age(&mut self, packet: &Packet) {
        let ago = self.age(packet);
        let Some(recorder) = &mut self.accounts.recorder else { return };
        match packet.purpose {
            Purpose::Data => recorder.recording.one_way.add(ago),
            Purpose::Ack => recorder.recording.round_trip.add(ago),
            Purpose::Notification => recorder.recording.notification.add(ago),
            Purpose::Grant => recorder.recording.clearance.add(ago),
            Purpose::Nak | Purpose::Trimmed | Purpose::Pause | Purpose::Cell => {}
        }
    }

    /// Notes how long a packet that a port begins to send has waited for its turn.
    #[cold]
    pub(crate) fn record_wait(&mut self, link: LinkId, purpose: Purpose, waited: Span) {
        let Some(recorder) = &mut self.accounts.recorder else { return };
        let kind = recorder.kinds[link.index()] as usize;
        recorder.recording.hops[kind].of(purpose).add(waited);
    }

    /// Since when a packet, or the one that it acknowledges, has been under way.
    pub(crate) fn age(&self, packet: &Packet) -> Span {
        if packet.flags & crate::packet::STAMPED != 0 {
            return Span::from_ps(self.time.now - self.net.stamps.get(packet.sent).0);
        }
        // The low 32 bits of nanoseconds: it was sent less than four seconds ago.
        let ns = ((self.time.now / 1_000) as u32).wrapping_sub(packet.sent);
        Span::from_ns(u64::from(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: the quantiles of 1 to 100,000 ns, to a sixteenth.
    #[test]
    fn quantiles_are_right_to_a_sixteenth() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=100_000).for_each(|ns| histogram.add(Span::from_ns(ns)));
        for share in [0.001, 0.5, 0.99, 0.999, 1.0] {
            let exact = (share * 100_000.0_f64).ceil();
            let found = histogram.quantile(share).unwrap().as_ps() as f64 / 1e3;
            assert!((1.0..1.0 + 1.0 / 15.0).contains(&(found / exact)), "{share}: {found}");
        }
        assert_eq!(histogram.count(), 100_000);
    }

    #[test]
    fn bins_are_in_order_and_know_their_top() {
        let mut last = 0;
        for ns in 0..100_000 {
            let bin = Histogram::bin(ns);
            assert!(last <= bin && bin <= last + 1, "{ns}");
            assert!(ns <= Histogram::top(bin), "{ns} in {bin}");
            last = bin;
        }
    }
}
