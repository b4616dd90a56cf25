//! The settings of NICs, and the state of a NIC's sending port: whose turn it is.

use fabric::hardware::Reorder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Rate, Span};

/// At what rate a queue pair goes on after it had nothing to send.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterIdle {
    /// At the rate that its congestion control has by then.
    #[default]
    Keep,
    /// As a new queue pair: at line rate, if it was idle for at least `idle_reset`.
    Restart,
}

/// Whether a pause of data also holds back acknowledgements in the NIC.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcksWhilePaused {
    /// They go on.
    #[default]
    Send,
    /// They wait too.
    Hold,
}

/// A NIC.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NicConfig {
    /// From the doorbell until the first bit is on the wire.
    pub send_latency: Span,
    /// From the last bit until software sees the completion.
    pub receive_latency: Span,
    /// Data packets for one acknowledgement; the last packet of a message always causes one.
    pub ack_every: u32,
    /// What it does with packets that arrive out of order.
    pub reorder: Reorder,
    /// With direct placement, a packet that is this many packets late is taken for lost.
    pub reorder_window: u32,
    /// Retransmission timeout.
    pub timeout: Span,
    /// Timeouts without progress after which a queue pair gives up.
    pub retries: u32,
    /// At what rate a queue pair goes on after it had nothing to send.
    pub after_idle: AfterIdle,
    /// How long a queue pair must be idle for that.
    pub idle_reset: Span,
    /// Whether a pause of data also holds back acknowledgements.
    pub acks_while_paused: AcksWhilePaused,
    /// The rate at which the host takes data over PCIe; without it, as fast as it comes.
    pub pcie: Option<Rate>,
    /// What the NIC can hold of data that the host has not taken; above half of it, it pauses its
    /// switch.
    pub receive_buffer: Bytes,
}

impl Default for NicConfig {
    fn default() -> Self {
        Self {
            // The scenario fills in what the catalogue says of the card.
            send_latency: Span::ZERO,
            receive_latency: Span::ZERO,
            // ConnectX acknowledges as it likes; one for each packet is the worst case.
            ack_every: 1,
            // What RoCE NICs before ConnectX-6 Dx do, and every NIC without being asked.
            reorder: Reorder::None,
            // Illustrative: two bandwidth-delay products of a 400G fabric of 10 us.
            reorder_window: 256,
            // NCCL_IB_TIMEOUT 20: 4.096 us * 2^20; NCCL_IB_RETRY_CNT 7 (nccl, net_ib/connect.cc).
            timeout: Span::from_ps(4_096_000 << 20),
            retries: 7,
            after_idle: AfterIdle::Keep,
            idle_reset: Span::from_ms(1),
            acks_while_paused: AcksWhilePaused::Send,
            pcie: None,
            // Illustrative: a couple of bandwidth-delay products of the last link.
            receive_buffer: Bytes::from_mib(2),
        }
    }
}

/// The sending port of a NIC: the queue pairs that have something to send, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    /// Queue pairs, in the order in which they got something to send.
    pub pairs: Vec<u32>,
    /// Where the last packet came from.
    pub last: usize,
    /// When a wake-up is due, or never.
    pub wake_at: u64,
}
