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
use crate::ids::PairId;

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

/// What a receiving NIC has granted, where it counts.
#[derive(Debug, Default)]
pub(crate) struct GrantLedger {
    /// Bytes granted and not yet received.
    pub granted: u64,
    /// Queue pairs that wait for a clearance, in turn.
    pub queue: std::collections::VecDeque<PairId>,
}
