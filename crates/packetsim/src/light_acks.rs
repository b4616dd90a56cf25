//! Acknowledgements that take no links: with `network.packet.forward = "bounded"`.
//!
//! Half of all packets are acknowledgements, and they take at most two per cent of a link's time.
//! Here they reach their sender after the delay of an idle path, and use no link: data does not
//! wait for them, nor they for data. Each queue pair has them at some rate while it sends. The time
//! that a link would have spent on those of all queue pairs, if all sent at once, is by how much it
//! can have been too fast for data. The most of any link, and half as much more ([`MARGIN`]), is
//! the bound in the result. It holds for every completion where nothing reacts to congestion;
//! where something does, runs are chaotic, and it holds for means over seeds (`tests/bounded.rs`).
//!
//! Bytes of links are counted as if the acknowledgements had crossed them.

use std::collections::VecDeque;

use fabric::LinkId;
use units::IdVec;

use crate::calendar::Event;
use crate::ids::{PairId, Raw};
use crate::packet::{Packet, Purpose, STAMPED};
use crate::simulation::Simulation;

/// Rates are means over the time in which a queue pair sends, and waits add up along a way. The
/// largest error that was seen is 1.1 times the estimate.
const MARGIN: f64 = 1.5;

/// Those of one queue pair.
#[derive(Debug, Default)]
pub(crate) struct LightAcks {
    /// On their way, and when they arrive.
    pub under_way: VecDeque<(u64, Packet)>,
    /// How long one takes, and over how many links.
    delay: u64,
    hops: u32,
    /// How many were sent, and when the first and the last of them were.
    pub sent: u64,
    sent_at: [u64; 2],
}

impl LightAcks {
    /// None yet, over so many links.
    pub(crate) fn new(delay: u64, hops: u32) -> Self {
        Self { delay, hops, ..Self::default() }
    }

    /// Those on their way.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.under_way.iter().map(|(_, packet)| packet)
    }
}

impl Simulation<'_> {
    /// How long an acknowledgement takes over a path where nothing holds it up.
    pub(crate) fn ack_delay(&self, path: &[LinkId]) -> u64 {
        let bytes = u64::from(self.input.sizes.ack) + self.input.sizes.gap;
        let hop = |link: &LinkId| {
            let port = &self.net.ports[*link];
            let time = port.time_to_send(bytes, self.input.clock);
            let header = port.time_to_send(self.input.rules.header_bytes, self.input.clock);
            port.delay + if port.cut_through { time.min(header) } else { time }
        };
        path.iter().map(hop).fold(0, u64::saturating_add)
    }

    /// Acknowledges everything before a packet, without taking links.
    #[inline]
    pub(crate) fn send_light_ack(&mut self, number: PairId, cause: &Packet, psn: u32, flags: u8) {
        let way = self.way_back(number, psn, Some(cause));
        let acks = &mut self.ends.light_acks[number];
        if acks.sent == 0 {
            acks.sent_at[0] = self.time.now;
        }
        acks.sent_at[1] = self.time.now;
        acks.sent += 1;
        let at = self.time.now + acks.delay;
        let packet = Packet {
            at: 0,
            psn,
            sent: cause.sent,
            route: way + acks.hops,
            size: self.input.sizes.ack,
            purpose: Purpose::Ack,
            flags: flags | (cause.flags & STAMPED),
        };
        acks.under_way.push_back((at, packet));
        if acks.under_way.len() == 1 {
            self.schedule(at, number.raw(), Event::AckArrived(number));
        }
    }

    /// Handles [`Event::AckArrived`].
    pub(crate) fn light_ack_arrived(&mut self, number: PairId) {
        let acks = &mut self.ends.light_acks[number].under_way;
        let (at, packet) = acks.pop_front().expect("one was on its way");
        assert_eq!(at, self.time.now, "acknowledgements arrive in order");
        if let Some(&(next, _)) = acks.front() {
            self.schedule(next, number.raw(), Event::AckArrived(number));
        }
        if self.accounts.recorder.is_some() {
            self.record_age(&packet);
        }
        self.ack_received(number, &packet);
    }

    /// Counts the bytes of these acknowledgements where they would have crossed, and says how much
    /// of a link's time they would have taken at most.
    pub(crate) fn account_for_light_acks(&mut self) {
        if !self.input.rules.light_acks || self.time.now == 0 {
            return;
        }
        let values = u64::from(self.ends.entropy.values.max(1));
        let mut acks: IdVec<LinkId, (u64, f64)> = vec![(0, 0.0); self.net.ports.len()].into();
        for (inbox, light) in self.ends.inboxes.iter().zip(&self.ends.light_acks) {
            let [first, last] = light.sent_at;
            for value in 0..values {
                // Those of one queue pair are spread over the ways that it has.
                let count = (light.sent + value) / values;
                let per_ps = count as f64 / (last - first).max(1) as f64;
                let way = inbox.route as usize + value as usize * (light.hops as usize + 1);
                for link in &self.net.paths[way..way + light.hops as usize] {
                    let (acks, rate) = &mut acks[LinkId::of(*link)];
                    *acks += count;
                    *rate += if 1 < count { per_ps } else { 0.0 };
                }
            }
        }
        let size = u64::from(self.input.sizes.ack);
        let mut most = 0.0_f64;
        for (link, (count, per_ps)) in acks.enumerate() {
            let port = &mut self.net.ports[link];
            let is_shared = 0 < port.bytes;
            port.bytes += count * size;
            let each = port.time_to_send(size + self.input.sizes.gap, self.input.clock);
            most = if is_shared { most.max(per_ps * each as f64) } else { most };
        }
        self.report_finding(format!(
            "acknowledgements took no time of the links (`network.packet.forward`): they would have \
             taken {:.2} % of one that carries data, so completions are known to within {:.2} %",
            100.0 * most,
            100.0 * MARGIN * most
        ));
    }
}
