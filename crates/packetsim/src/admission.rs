//! Receiver-driven admission: a sender may send only what the receiver has granted.
//!
//! NCCL's receiver posts buffers and tells the sender with a small RDMA write (clear to send); the
//! sender waits for it. So at most a window of buffers is on its way for each connection, and a
//! receiver that falls behind slows its senders without a single mark or pause. Meta gave these
//! messages their own high-priority queue (Gangidi et al., SIGCOMM 2024, section 5.2.2).
//!
//! Here a message is cut into buffers of `buffer` bytes. When a message may start, its receiver
//! clears the first `window` of them, and one more whenever one has arrived in full. With
//! `receiver_window` a receiver also limits what it has granted over all its senders together and
//! serves those that wait in turn: what NCCL's limited number of channels does to a gather.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges};

use crate::cc::ReceiverCredit;

/// Who decides when a message may be sent.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionPolicy {
    /// The sender: at once.
    #[default]
    None,
    /// The receiver, by clear-to-send messages.
    ReceiverDriven,
}

/// Receiver-driven admission.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionConfig {
    /// Who decides.
    pub policy: AdmissionPolicy,
    /// What one clear-to-send allows.
    pub buffer: Bytes,
    /// Buffers that one queue pair may have granted and not yet received.
    pub window: u32,
    /// Bytes that one receiver may have granted and not yet received, over all senders; none
    /// means that it does not count.
    pub receiver_window: Option<Bytes>,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            policy: AdmissionPolicy::None,
            // NCCL_BUFFSIZE 4 MiB in NCCL_STEPS 8 slots (nccl, src/init.cc, include/device.h).
            buffer: Bytes::from_kib(512),
            window: 8,
            receiver_window: None,
        }
    }
}

impl Ranged for AdmissionConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.positive("buffer", self.buffer);
        check.at_least("window", self.window, 1);
        if let Some(window) = self.receiver_window {
            check.at_least("receiver_window", window, self.buffer);
        }
    }
}

impl From<ReceiverCredit> for AdmissionConfig {
    fn from(credit: ReceiverCredit) -> Self {
        Self {
            policy: AdmissionPolicy::ReceiverDriven,
            buffer: credit.credit,
            // The receiver's own bound holds; this one is out of its way.
            window: 1 << 16,
            receiver_window: Some(credit.outstanding),
        }
    }
}

/// What a receiver may grant, in packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GrantRules {
    /// Packets of one clear-to-send; `u32::MAX` is all of a message at once.
    pub buffer: u32,
    /// How many of them one queue pair may have granted and not yet received.
    pub window: u32,
    /// Bytes granted and not yet received over all senders; `u64::MAX` does not count.
    pub total: u64,
    /// Bytes of one clear-to-send.
    pub buffer_bytes: u64,
    /// Payload of a full packet.
    pub mtu: u32,
}

impl AdmissionConfig {
    /// The rules for packets of this size.
    pub fn rules(&self, mtu: u32) -> GrantRules {
        let buffer_bytes = self.buffer.get();
        let packets = buffer_bytes.div_ceil(u64::from(mtu.max(1))).max(1);
        // A receiver that reads without being careful asks for all of a message at once.
        let buffer = match self.policy {
            AdmissionPolicy::None => u32::MAX,
            AdmissionPolicy::ReceiverDriven => u32::try_from(packets).unwrap_or(u32::MAX),
        };
        let total = self.receiver_window.map_or(u64::MAX, Bytes::get);
        GrantRules { buffer, window: self.window, total, buffer_bytes, mtu }
    }
}

/// What is known of one sender, in packets of its queue pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SenderDemand {
    /// What has arrived in order.
    pub expected: u32,
    /// What was granted.
    pub granted: u32,
    /// What it wants to send in all.
    pub end: u32,
    /// Whether it waits in turn already.
    pub queued: bool,
}

/// What a receiver has granted, and who waits.
#[derive(Clone, Debug)]
pub struct GrantLedger<K> {
    /// Bytes granted and not yet received.
    granted: u64,
    /// Senders that wait for a clearance, in turn.
    queue: std::collections::VecDeque<K>,
}

impl<K> Default for GrantLedger<K> {
    fn default() -> Self {
        Self { granted: 0, queue: std::collections::VecDeque::new() }
    }
}

impl<K> GrantLedger<K> {
    /// Clears more packets for a sender, as far as the rules allow: up to which, and whether it
    /// waits in turn for more.
    pub fn extend(&mut self, rules: &GrantRules, sender: K, asked: SenderDemand) -> (u32, bool) {
        let SenderDemand { expected, granted: mut to, end, mut queued } = asked;
        let reach = expected.saturating_add(rules.buffer.saturating_mul(rules.window));
        while to < end {
            // A buffer is used again when all of it has arrived.
            let more = rules.buffer.min(end - to);
            if reach < to.saturating_add(more) {
                break;
            }
            let bytes = u64::from(more) * u64::from(rules.mtu);
            if 0 < self.granted && rules.total < self.granted.saturating_add(bytes) {
                if !queued {
                    queued = true;
                    self.queue.push_back(sender);
                }
                break;
            }
            self.granted += bytes;
            to += more;
        }
        (to, queued)
    }

    /// So many packets that were granted have arrived, or never will.
    pub fn give_back(&mut self, rules: &GrantRules, packets: u32) {
        self.granted = self.granted.saturating_sub(u64::from(packets) * u64::from(rules.mtu));
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The next sender whose turn it is, if there is room for a clearance.
    pub fn next_in_turn(&mut self, rules: &GrantRules) -> Option<K> {
        if 0 < self.granted && rules.total < self.granted + rules.buffer_bytes {
            return None;
        }
        self.queue.pop_front()
    }
}
