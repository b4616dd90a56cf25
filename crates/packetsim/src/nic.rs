//! The settings of NICs, and the state of a NIC's sending port: whose turn it is.

use fabric::fault::{Failover, Leave};
use fabric::hardware::Reorder;
use fabric::routing::QueuePairCost;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges, Rate, Span, UnusedKeys};

use crate::ids::PairId;
use crate::ns3::Turns;
use crate::settings::LONGEST;

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

/// Whether a change of rate moves a transmission that is already timed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// The next packet leaves as if the last one had been paced by the new rate, as a token bucket
    /// makes it.
    #[default]
    Follow,
    /// The next packet leaves when the old rate let it (HPCC's ns-3).
    Fixed,
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

/// What a queue pair promises.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Reliable connection: what is lost is sent again.
    #[default]
    Rc,
    /// Unreliable connection: nothing is acknowledged, and a message of which a packet is lost or
    /// out of order is lost.
    Uc,
    /// Unreliable datagrams: nothing is acknowledged, every packet is a message of its own and
    /// carries a DETH of eight bytes.
    Ud,
}

impl Service {
    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
        }
    }
}

/// By which operation of RDMA messages travel.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Write with immediate data in the last packet, which tells the receiver: as NCCL ends a
    /// message.
    #[default]
    WriteWithImmediate,
    /// Write: the first packet says where to.
    Write,
    /// Send: the receiver has said where to.
    Send,
    /// Read: the receiver asks for the data with a request, and the sender answers. Nothing is
    /// acknowledged; what is missing is asked for again.
    Read,
}

/// A NIC.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NicConfig {
    /// From the doorbell until the first bit is on the wire.
    pub send_latency: Span,
    /// From the last bit of a message until the receiver's software has it. A sender's operation
    /// is over when its NIC has the last acknowledgement.
    pub receive_latency: Span,
    /// By which operation messages travel.
    pub verb: Verb,
    /// What a queue pair promises.
    pub service: Service,
    /// Data packets for one acknowledgement. The last packet of a message always causes one, and
    /// so does one that is marked, out of order, or the last that a window allows.
    pub ack_every: u32,
    /// What it does with packets that arrive out of order.
    pub reorder: Reorder,
    /// With direct placement, a packet that is this many packets late is taken for lost.
    pub reorder_window: u32,
    /// Retransmission timeout: what was lost when a link died is sent again after it. NCCL's
    /// `NCCL_IB_TIMEOUT` n is 4.096 us · 2ⁿ. Never less than two idle round trips of a queue pair.
    pub timeout: Span,
    /// Timeouts without progress after which a queue pair gives up.
    pub retries: u32,
    /// What becomes of the queue pairs of a port that goes down, where the NIC has others.
    pub failover: Failover,
    /// Contexts of queue pairs that it holds in its own memory; others it fetches over PCIe.
    pub qp_contexts: u32,
    /// What a context that is not there holds up its pipeline.
    pub qp_miss: Span,
    /// What a message that finds its queue pair idle waits for a context that is not there, at
    /// either end.
    pub qp_fetch: Span,
    /// What posting one more part of a message that is split over queue pairs takes the host.
    pub qp_post: Span,
    /// At what rate a queue pair goes on after it had nothing to send.
    pub after_idle: AfterIdle,
    /// How long a queue pair must be idle for that.
    pub idle_reset: Span,
    /// Whether a change of rate moves a transmission that is already timed.
    pub pacing: Pacing,
    /// Whether a pause of data also holds back acknowledgements.
    pub acks_while_paused: AcksWhilePaused,
    /// The rate at which the host takes data over PCIe; without it, as fast as it comes.
    pub pcie: Option<Rate>,
    /// What one core of the host moves through the kernel's stack, each way, copies included;
    /// without it the NIC moves data itself (RDMA).
    pub core_rate: Option<Rate>,
    /// Cores that do so for one NIC: threads of the communication library that serve its sockets
    /// (`NCCL_SOCKET_NTHREADS`, at least the proxy thread itself).
    pub cores: u32,
    /// What the NIC can hold of data that the host has not taken; above half of it, it pauses its
    /// switch.
    pub receive_buffer: Bytes,
}

impl Default for NicConfig {
    fn default() -> Self {
        let QueuePairCost { contexts, miss, fetch, post } = QueuePairCost::default();
        Self {
            qp_contexts: contexts,
            qp_miss: miss,
            qp_fetch: fetch,
            qp_post: post,
            // The scenario fills in what the catalogue says of the card.
            send_latency: Span::ZERO,
            receive_latency: Span::ZERO,
            verb: Verb::WriteWithImmediate,
            service: Service::Rc,
            // ConnectX acknowledges as it likes; one for each packet is the worst case.
            ack_every: 1,
            // What RoCE NICs before ConnectX-6 Dx do, and every NIC without being asked.
            reorder: Reorder::None,
            // Illustrative: two bandwidth-delay products of a 400G fabric of 10 us.
            reorder_window: 256,
            // NCCL_IB_TIMEOUT 20: 4.096 us * 2^20; NCCL_IB_RETRY_CNT 7 (nccl, net_ib/connect.cc).
            timeout: Span::from_ps(4_096_000 << 20),
            retries: 7,
            failover: Failover::default(),
            after_idle: AfterIdle::Keep,
            idle_reset: Span::from_ms(1),
            pacing: Pacing::Follow,
            acks_while_paused: AcksWhilePaused::Send,
            pcie: None,
            core_rate: None,
            // NCCL src/transport/net_socket.cc: no helper threads unless told so (2 on AWS, 4 on
            // Google's), so the proxy thread serves all sockets of its GPU.
            cores: 1,
            // Illustrative: a couple of bandwidth-delay products of the last link.
            receive_buffer: Bytes::from_mib(2),
        }
    }
}

impl Ranged for NicConfig {
    fn ranges(&self, check: &mut Ranges) {
        check.at_most("send_latency", self.send_latency, LONGEST);
        check.at_most("receive_latency", self.receive_latency, LONGEST);
        check.at_least("ack_every", self.ack_every, 1);
        check.at_least("reorder_window", self.reorder_window, 1);
        check.positive("timeout", self.timeout);
        check.at_most("timeout", self.timeout, LONGEST);
        check.at_least("qp_contexts", self.qp_contexts, 1);
        check.at_most("qp_miss", self.qp_miss, LONGEST);
        check.at_most("qp_fetch", self.qp_fetch, LONGEST);
        check.at_most("qp_post", self.qp_post, LONGEST);
        check.at_most("idle_reset", self.idle_reset, LONGEST);
        if let Some(rate) = self.pcie {
            check.within("pcie", rate, fabric::graph::RATES);
        }
    }
}

impl NicConfig {
    /// Names the cores where the NIC needs none.
    pub fn unused_cores(&self, idle: &mut UnusedKeys) {
        if self.core_rate.is_none() {
            idle.key("cores", "the NIC moves data itself", "network.transport=tcp");
        }
    }

    /// How long a queue pair goes on without an answer until it gives up.
    pub fn give_up(&self) -> Span {
        let retries = u64::from(self.retries).saturating_add(1);
        Span::from_ps(self.timeout.as_ps().saturating_mul(retries)).min(LONGEST * 1000)
    }

    /// When its queue pairs leave a dead port for another.
    pub fn leave(&self) -> Leave {
        self.failover.leave(self.give_up())
    }

    /// What queue pairs cost.
    pub fn queue_pair_cost(&self) -> QueuePairCost {
        let Self { qp_contexts, qp_miss, qp_fetch, qp_post, .. } = *self;
        QueuePairCost { contexts: qp_contexts, miss: qp_miss, fetch: qp_fetch, post: qp_post }
    }

    /// What the host takes at most from one NIC, each way: over PCIe, and through the kernel;
    /// nothing if the NIC is never held back.
    pub fn host_rate(&self) -> Option<Rate> {
        let kernel = self.core_rate.map(|rate| rate.scaled(f64::from(self.cores.max(1))));
        self.pcie.into_iter().chain(kernel).min()
    }

    /// Cores of the host that one NIC takes while it sends and receives so many bytes a second.
    ///
    /// With RDMA that is the library's proxy thread, which polls: NCCL has one for each GPU
    /// (`src/proxy.cc`, `ncclProxyProgress`). Through the kernel's stack, whatever its copies need
    /// beyond that one.
    pub fn cpu_cores(&self, sent: f64, received: f64) -> f64 {
        let moved = sent + received;
        match self.core_rate {
            _ if moved == 0.0 => 0.0,
            None => 1.0,
            Some(each) => (moved / each.bytes_per_s().max(1.0)).max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: by hand. RDMA takes the proxy's core; TCP as many as copy.
    #[test]
    fn transports_take_cores() {
        let (idle, full) = (0.0, 84e9 / 8.0);
        let rdma = NicConfig::default();
        assert_eq!(rdma.cpu_cores(full, full), 1.0);
        assert_eq!(rdma.cpu_cores(idle, idle), 0.0);
        assert_eq!(rdma.host_rate(), None);
        let core_rate = Some(Rate::from_gbps(42));
        let tcp = NicConfig { core_rate, cores: 2, ..NicConfig::default() };
        assert_eq!(tcp.cpu_cores(full, full), 4.0);
        assert_eq!(tcp.cpu_cores(idle, 1e9 / 8.0), 1.0);
        assert_eq!(tcp.host_rate(), Some(Rate::from_gbps(84)));
        let pcie = Some(Rate::from_gbps(64));
        assert_eq!(NicConfig { pcie, ..tcp }.host_rate(), pcie);
    }
}

/// The sending port of a NIC: the queue pairs that have something to send, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    /// Queue pairs, in the order in which they got something to send.
    pub pairs: Vec<PairId>,
    /// When each of them may send next, or never while its window is closed.
    pub due: Vec<u64>,
    /// Where the next turn begins.
    pub turn: usize,
    /// When a wake-up is due, or never.
    pub wake_at: u64,
    /// Until when the host is busy with posting.
    pub posting_until: u64,
    /// What contexts that are fetched add to each packet.
    pub fetching: u64,
    /// Whose turn it is on the clock of HPCC's ns-3.
    pub as_ns3: Turns,
}

impl Sender {
    /// One with nothing to send.
    pub(crate) fn idle() -> Self {
        Self { wake_at: u64::MAX, ..Self::default() }
    }

    /// The place of the queue pair whose turn it is among those that may send now.
    #[inline]
    pub(crate) fn next(&self, now: u64) -> Option<usize> {
        if let [due] = self.due.as_slice() {
            return (*due <= now).then_some(0);
        }
        let turn = if self.turn < self.due.len() { self.turn } else { 0 };
        let (before, after) = self.due.split_at(turn);
        let may = |due: &u64| *due <= now;
        let place = after.iter().position(may).map(|place| place + turn);
        place.or_else(|| before.iter().position(may))
    }

    /// When the first of them may send.
    #[inline]
    pub(crate) fn first_due(&self) -> u64 {
        self.due.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Takes a queue pair off the list.
    pub(crate) fn remove(&mut self, place: usize) {
        self.pairs.remove(place);
        self.due.remove(place);
        if place < self.turn {
            self.turn -= 1;
        }
    }
}
