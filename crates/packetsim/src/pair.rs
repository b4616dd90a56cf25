//! A queue pair: messages, packets in order, what has been sent and what has been acknowledged.
//!
//! Its sending half is a [`Pair`], its receiving half an [`Inbox`]. Sequence numbers count packets
//! from the first that the queue pair ever sent (a real one wraps at 24 bits). A message is a
//! contiguous run of them; messages of a queue pair form a list in the order they were posted.

use crate::cc;
use crate::port::NOWHERE;
use fabric::{LinkId, NodeId};
use traffic::OpId;

/// One message on one queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// The operation it belongs to.
    pub op: OpId,
    /// Sequence number of its first packet.
    pub first: u32,
    /// How many packets it is.
    pub packets: u32,
    /// How many have arrived, where nothing is acknowledged.
    pub received: u32,
    /// The next message of the same queue pair.
    pub next: u32,
    /// Its payload.
    pub bytes: u64,
    /// Payload of the queue pair before it.
    pub before: u64,
    /// When the host has posted it.
    pub posted: u64,
}

impl Message {
    /// One past the sequence number of its last packet.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.first + self.packets
    }

    /// Payload of the packet with this sequence number.
    #[inline]
    pub(crate) fn payload(&self, psn: u32, mtu: u32) -> u32 {
        let index = psn - self.first;
        if index + 1 == self.packets {
            (self.bytes - u64::from(index) * u64::from(mtu)) as u32
        } else {
            mtu
        }
    }

    /// Payload of the queue pair before the packet with this sequence number.
    #[inline]
    pub(crate) fn offset(&self, psn: u32, mtu: u32) -> u64 {
        let index = u64::from(psn - self.first);
        self.before + (index * u64::from(mtu)).min(self.bytes)
    }
}

/// The sending half of a queue pair.
#[derive(Debug)]
pub(crate) struct Pair {
    /// It may not send before.
    pub next_send: u64,
    /// Nor before the message that it is at has been posted.
    pub posted: u64,
    /// Time between full packets at its present rate.
    pub gap: u64,
    /// Sequence number of the next packet to send.
    pub next: u32,
    /// One past the last packet posted.
    pub end: u32,
    /// The oldest packet not acknowledged.
    pub una: u32,
    /// One past the last packet that the receiver has granted.
    pub granted: u32,
    /// One past the highest packet ever sent.
    pub high: u32,
    /// The port of the NIC that it sends through.
    pub port: LinkId,
    /// Where its path begins in the list of paths.
    pub route: u32,
    /// The message of `next`.
    pub sending: u32,
    /// The message of `una`.
    pub waiting: u32,
    /// The last message posted.
    pub last: u32,
    /// Its place in its port's list, or nowhere.
    pub place: u32,
    /// It has given up.
    pub broken: bool,
    /// A timeout event is pending.
    pub overdue_pending: bool,
    /// It takes silence of this length for a loss.
    pub timeout: u64,
    /// Timeouts since the last progress.
    pub tries: u32,
    /// Payload sent, and payload acknowledged.
    pub sent_bytes: u64,
    pub acked_bytes: u64,
    /// No packet leaves while at least this much is unacknowledged.
    pub window: u64,
    /// Its rate now, in bits per second.
    pub rate_bps: u64,
    /// Size on the wire of the packet sent last.
    pub last_size: u32,
    /// Packets counted for the routing policy, and flowlets.
    pub choices: u32,
    /// When its congestion control's timer event is due, or never.
    pub timer_at: u64,
    /// When it last sent after a pause or heard of progress.
    pub progress_at: u64,
    /// When it last had something to send.
    pub busy_until: u64,
    /// Packets that the receiver asked for again, out of order.
    pub resend: Vec<u32>,
    /// One past the last packet that asked for an acknowledgement.
    pub asked: u32,
    /// The next packet is sent whatever the window says, and asks for an acknowledgement.
    pub probes: bool,
    /// Packets that are known to have arrived, in order or not.
    pub arrived: u32,
    /// The lane of its data.
    pub lane: u8,
    /// Payload of a packet where packets are acknowledged one by one; else zero.
    pub selective: u32,
    /// The rate of its NIC's link.
    pub line_bps: u64,
    /// Its congestion control.
    pub control: Box<dyn cc::Sender>,
}

impl Pair {
    /// Payload on its way: sent, and neither acknowledged nor known to be lost.
    #[inline]
    pub(crate) fn outstanding(&self) -> u64 {
        if self.selective == 0 {
            return self.sent_bytes.saturating_sub(self.acked_bytes);
        }
        let known = self.arrived + self.resend.len() as u32;
        u64::from(self.next.saturating_sub(known)) * u64::from(self.selective)
    }

    /// Whether a packet that is being sent asks for an acknowledgement: nothing follows it before
    /// one comes.
    #[inline]
    pub(crate) fn asks(&mut self, psn: u32) -> bool {
        let asks = self.window <= self.outstanding() || self.probes;
        self.probes = false;
        if asks {
            self.asked = self.asked.max(psn + 1);
        }
        asks
    }

    /// The next packet of its message has been sent, which so much payload goes before; returns
    /// the operation of another message that it turns to.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        messages: &[Message],
        before: u64,
        payload: u32,
    ) -> Option<OpId> {
        self.next += 1;
        self.sent_bytes = before + u64::from(payload);
        let message = &messages[self.sending as usize];
        if self.next < message.end() {
            return None;
        }
        self.sending = message.next;
        let next = messages.get(message.next as usize)?;
        self.posted = next.posted;
        Some(next.op)
    }

    /// Whether anything is left to be sent that has been granted.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.next < self.end.min(self.granted) || !self.resend.is_empty()
    }

    /// When it may send next, as far as pacing and window go.
    #[inline]
    pub(crate) fn due(&self) -> u64 {
        let probes = self.probes && !self.resend.is_empty();
        if self.window <= self.outstanding() && !probes {
            return u64::MAX;
        }
        self.next_send.max(self.posted)
    }
}

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The next packet in order.
    pub expected: u32,
    /// Where the path of its acknowledgements begins in the list of paths.
    pub route: u32,
    /// The message of `expected`.
    pub message: u32,
    /// One past its last packet.
    pub message_end: u32,
    /// Packets since the last acknowledgement.
    pub unacked: u32,
    /// The packet that was last asked for again.
    pub asked: u32,
    /// One past the last packet granted to the sender.
    pub granted: u32,
    /// It waits for its receiver's turn to clear more.
    pub queued: bool,
    /// The receiving node.
    pub node: NodeId,
    /// Packets that arrived early: bit `n` stands for `expected + 1 + n`.
    pub early: Early,
    /// The receiving half of its congestion control, where there is one.
    pub control: Option<Box<dyn cc::Receiver>>,
}

impl Inbox {
    /// One that has received nothing.
    pub(crate) fn new(route: u32, node: NodeId, control: Option<Box<dyn cc::Receiver>>) -> Self {
        Self {
            expected: 0,
            route,
            message: NOWHERE,
            message_end: u32::MAX,
            unacked: 0,
            asked: NOWHERE,
            granted: 0,
            queued: false,
            node,
            early: Early::default(),
            control,
        }
    }
}

/// A set of sequence numbers that lie ahead of an expected one.
#[derive(Debug, Default)]
pub(crate) struct Early {
    words: std::collections::VecDeque<u64>,
    /// The sequence number of bit 0 of the first word.
    base: u32,
    count: u32,
}

impl Early {
    /// Adds a number; false if it was there.
    pub(crate) fn insert(&mut self, psn: u32) -> bool {
        if self.count == 0 {
            self.words.clear();
            self.base = psn & !63;
        }
        while psn < self.base {
            self.words.push_front(0);
            self.base -= 64;
        }
        let (word, bit) = ((psn - self.base) as usize / 64, psn % 64);
        while self.words.len() <= word {
            self.words.push_back(0);
        }
        let fresh = self.words[word] >> bit & 1 == 0;
        self.words[word] |= 1 << bit;
        self.count += u32::from(fresh);
        fresh
    }

    /// Whether a number is in it.
    pub(crate) fn contains(&self, psn: u32) -> bool {
        let Some(ahead) = psn.checked_sub(self.base) else { return false };
        self.words.get(ahead as usize / 64).is_some_and(|word| word >> (psn % 64) & 1 == 1)
    }

    /// Takes a number out; false if it was not there.
    pub(crate) fn remove(&mut self, psn: u32) -> bool {
        if self.count == 0 || !self.contains(psn) {
            return false;
        }
        let word = (psn - self.base) as usize / 64;
        self.words[word] &= !(1 << (psn % 64));
        self.count -= 1;
        while self.words.front() == Some(&0) {
            self.words.pop_front();
            self.base += 64;
        }
        true
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use units::Id;

    use super::*;

    #[test]
    fn payloads_add_up_to_the_message() {
        for bytes in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let packets = u32::try_from(u64::div_ceil(bytes, 4096).max(1)).unwrap();
            let message = Message {
                op: OpId::from_index(0),
                first: 7,
                packets,
                received: 0,
                next: NOWHERE,
                bytes,
                before: 100,
                posted: 0,
            };
            let sum: u64 =
                (7..message.end()).map(|psn| u64::from(message.payload(psn, 4096))).sum();
            assert_eq!(sum, bytes);
            assert_eq!(message.offset(7, 4096), 100);
            assert_eq!(message.offset(message.end(), 4096), 100 + bytes);
        }
    }

    /// Agreement with a plain set, whatever comes in whatever order.
    #[test]
    fn early_packets_are_a_set() {
        for seed in 0..20 {
            let mut random = units::Random::new(seed, "early", 0);
            let (mut early, mut oracle) = (Early::default(), std::collections::BTreeSet::new());
            let mut expected = 0_u32;
            for _ in 0..2_000 {
                let psn = expected + 1 + random.below(300) as u32;
                assert_eq!(early.insert(psn), oracle.insert(psn), "seed {seed}");
                if random.below(2) == 0 {
                    expected += 1;
                    while early.remove(expected) {
                        assert!(oracle.remove(&expected));
                        expected += 1;
                    }
                    assert!(!oracle.contains(&expected), "seed {seed}");
                }
                assert_eq!(early.len() as usize, oracle.len(), "seed {seed}");
            }
        }
    }
}
