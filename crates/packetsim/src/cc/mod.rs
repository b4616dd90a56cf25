//! Congestion control: how fast, and how much, a queue pair may send.
//!
//! An algorithm is a state machine that never touches the network. It gets facts
//! (`on_*`), and is asked what the queue pair may do ([`Sender::limit`]) and when it wants to be
//! called again ([`Sender::deadline`]). Its receiving half, where it has one, sees every packet
//! and decides what goes back to the sender ([`Receiver`]).
//!
//! # Adding an algorithm
//!
//! 1. Write `cc/name.rs`: a `Config` with `impl Algorithm` (which also says the ranges of its
//!    settings and what it needs), a state struct, one `impl Sender` (and `impl Receiver` if its
//!    receiver does more than echo marks), and tests.
//! 2. Add its line in `algorithms!` below, which declares the module too.
//! 3. Name it in ARCHITECTURE.md.
//!
//! Nothing else changes. The shared tests then run it, because they loop over
//! [`CcConfig::defaults`]. Whether that is all is tested with `tests/fixtures/steady.rs`.
//!
//! # What an algorithm may ask for
//!
//! * Hop stamps ([`Needs::hops`]): every link adds a [`Hop`] to the packet, and the list comes back
//!   with the acknowledgement.
//! * Room in headers ([`Needs::data_bytes`], [`Needs::ack_bytes`]).
//! * That a change of rate moves the next transmission too ([`Needs::repace`]).
//! * That receivers hand out credit for what is sent ([`Needs::credit`]).
//! * That switches mark ([`Needs::marks`]): a run without marks then says so.

use std::fmt::Debug;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges, Rate, Span, Time, UnusedKeys};

use crate::settings::LONGEST;

/// The sending half of an algorithm, for one queue pair.
pub trait Sender: Debug {
    /// What the queue pair may do until the next call.
    fn limit(&self) -> Limit;

    /// A packet of `size` bytes of payload was handed to the wire.
    fn on_sent(&mut self, _now: Time, _size: Bytes) {}

    /// An acknowledgement came back.
    fn on_ack(&mut self, _now: Time, _ack: &Ack<'_>) {}

    /// The receiver sent a congestion notification (CNP).
    fn on_notified(&mut self, _now: Time) {}

    /// Packets were lost.
    fn on_loss(&mut self, _now: Time, _loss: Loss) {}

    /// The instant named by [`deadline`](Self::deadline) has come.
    fn on_timer(&mut self, _now: Time) {}

    /// Whether nothing but congestion (a mark, a notification, a loss) changes what the queue pair
    /// may do: then packets and acknowledgements that come as before are sent as before.
    fn is_resting(&self) -> bool {
        false
    }

    /// Until when nothing but congestion changes its rate, and the rate alone holds the queue pair
    /// back; nothing where that is not so.
    fn coasts_until(&self) -> Option<Time> {
        self.is_resting().then_some(Time::MAX)
    }

    /// So much time passes from now on, no more than it coasts; then the clock is set back to now.
    fn coast(&mut self, _now: Time, _span: Span) {}

    /// Whether its rate moves all the time, but around a mean that is constant while no message
    /// begins or ends.
    fn has_steady_mean(&self) -> bool {
        false
    }

    /// When [`on_timer`](Self::on_timer) is next wanted. Asked again after every call.
    fn deadline(&self) -> Option<Time> {
        None
    }
}

/// The receiving half of an algorithm, for one queue pair. Without one, every acknowledgement
/// echoes the mark of the packet that caused it.
pub trait Receiver: Debug {
    /// A data packet arrived.
    fn on_data(&mut self, _now: Time, data: &Data) -> Feedback {
        Feedback { echo: data.marked, notify: false }
    }
}

/// What a queue pair may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// Packets leave no faster than this.
    pub rate: Rate,
    /// No packet leaves while at least this much payload is unacknowledged.
    pub window: Bytes,
}

/// What the sender learns from an acknowledgement. Offsets count the payload of the queue pair from
/// its first byte.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// Payload that it acknowledges for the first time.
    pub size: Bytes,
    /// Everything before this offset has arrived.
    pub through: u64,
    /// Everything before this offset has been sent.
    pub sent_through: u64,
    /// When the packet that caused it was handed to the wire.
    pub sent_at: Time,
    /// Whether that packet met congestion, or what the receiving half made of it.
    pub marked: bool,
    /// What that packet saw on its way, first hop first; empty unless asked for.
    pub hops: &'a [Hop],
}

/// What a link stamped on a packet when its transmission began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Hop {
    /// When.
    pub at: Time,
    /// Bytes left in that queue.
    pub queued: Bytes,
    /// Bytes that the link had sent before this packet, since the start of the run.
    pub sent: u64,
    /// The rate of the link in bits per second.
    pub rate_bps: u64,
}

/// What the receiving half learns of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Its payload.
    pub size: Bytes,
    /// Whether it met congestion.
    pub marked: bool,
}

/// What the receiving half sends back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Feedback {
    /// The acknowledgement carries a mark.
    pub echo: bool,
    /// A congestion notification is sent at once.
    pub notify: bool,
}

/// How the sender learnt of a loss.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Loss {
    /// The receiver said what is missing.
    Reported,
    /// Nothing was heard for the retransmission timeout.
    Timeout,
}

/// What an algorithm needs of packets and pacing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Needs {
    /// Every link stamps every data packet.
    pub hops: bool,
    /// More header on each data packet.
    pub data_bytes: Bytes,
    /// More header on each acknowledgement.
    pub ack_bytes: Bytes,
    /// A change of rate moves the next transmission, as if the last packet had been paced by it.
    pub repace: bool,
    /// Receivers hand out credit for what is sent.
    pub credit: Option<ReceiverCredit>,
    /// Without marks it controls nothing.
    pub marks: bool,
    /// It does not go by acknowledgements: answers to a read, which RoCE and InfiniBand do not
    /// acknowledge, have none, and a mark comes back as a notification.
    pub no_acks: bool,
}

/// How receivers hand out credit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceiverCredit {
    /// What a queue pair may send unasked when it begins.
    pub unasked: Bytes,
    /// What one message of credit allows.
    pub credit: Bytes,
    /// What a receiver may have granted and not yet received, over all its senders.
    pub outstanding: Bytes,
}

/// What an algorithm knows of its queue pair when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// The rate of the sender's link.
    pub line: Rate,
    /// From handing a full packet to the wire until its acknowledgement comes back, unloaded.
    pub base_rtt: Span,
    /// Links from sender to receiver.
    pub hops: u32,
    /// Payload of a full packet.
    pub mtu: Bytes,
}

/// An algorithm's settings, and how they become its two halves.
pub trait Algorithm {
    /// A fresh sending half.
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender>;

    /// A fresh receiving half, where the algorithm has one.
    fn receiver(&self) -> Option<Box<dyn Receiver>> {
        None
    }

    /// What it needs of packets and pacing.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Holds its settings against their ranges.
    fn ranges(&self, _check: &mut Ranges) {}

    /// Names those of its settings that have no effect, given the others.
    fn unused(&self, _idle: &mut UnusedKeys) {}

    /// What a queue pair may have under way at first and at most, where that is less than a round
    /// trip holds: the settings `initial_window` and `max_window`.
    fn window(&self) -> Option<(Bytes, Bytes)> {
        None
    }

    /// What its user should hear about a queue pair's path, if that does not suit it.
    fn finding(&self, _about: &Circumstances) -> Option<String> {
        None
    }
}

/// Timers of NICs count microseconds; far below them a run does nothing else than keep time.
const PERIOD: [Span; 2] = [Span::from_ns(100), LONGEST];

/// What an algorithm may add to a packet.
const MOST_ROOM: Bytes = Bytes::from_kib(1);

/// No step of a rate is larger: 1 Pb/s.
const MOST_RATE: Rate = Rate::from_gbps(1_000_000);

/// No factor and no count of packets is larger.
const MOST_FACTOR: f64 = 1e9;

/// Makes the registry: each line is an algorithm's variant and its module, whose name is also what
/// scenarios write.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $variant:ident = $module:ident;)*) => {
        $(pub mod $module;)*

        /// The choice of an algorithm, as a scenario states it.
        #[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
        #[serde(tag = "control", rename_all = "lowercase")]
        pub enum CcConfig {
            $($(#[$doc])* $variant($module::Config),)*
        }

        impl CcConfig {
            pub(super) fn algorithm(&self) -> &dyn Algorithm {
                match self {
                    $(Self::$variant(config) => config,)*
                }
            }

            /// Its name, as scenarios write it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($module),)*
                }
            }

            /// Every algorithm with its published defaults, by name: what the shared tests loop
            /// over.
            pub fn defaults() -> Vec<(&'static str, Self)> {
                vec![$((stringify!($module), Self::$variant($module::Config::default())),)*]
            }
        }
    };
}

algorithms! {
    /// No congestion control: flow control alone keeps the network from losing packets.
    None = none;
    /// DCQCN: marks at the switch, a rate at the sender (Zhu et al., SIGCOMM 2015).
    Dcqcn = dcqcn;
    /// HPCC: telemetry from every hop, a window at the sender (Li et al., SIGCOMM 2019).
    Hpcc = hpcc;
    /// TIMELY: the gradient of the round trip, a rate at the sender (Mittal et al., SIGCOMM 2015).
    Timely = timely;
    /// Swift: a target for the round trip, a window at the sender (Kumar et al., SIGCOMM 2020).
    Swift = swift;
    /// DCTCP: the share of marked packets, a window at the sender (RFC 8257).
    Dctcp = dctcp;
    /// InfiniBand's: FECN at the switch, BECN back, a table of delays at the sender (IBTA Volume 1,
    /// Annex A10).
    Infiniband = infiniband;
    /// NSCC: Ultra Ethernet's marks and delays, a window at the sender (UE Specification 1.0).
    Nscc = nscc;
    /// RCCC: Ultra Ethernet's credit from the receiver (UE Specification 1.0).
    Rccc = rccc;
    /// CUBIC: losses, a window at the sender; kernel TCP's (RFC 9438).
    Cubic = cubic;
    /// PowerTCP: telemetry from every hop, queues and their growth, a window at the sender (Addanki
    /// et al., NSDI 2022).
    PowerTcp = powertcp;
}

impl Default for CcConfig {
    fn default() -> Self {
        // What RoCE NICs run unless told otherwise.
        Self::Dcqcn(dcqcn::Config::default())
    }
}

impl CcConfig {
    /// A fresh sending half.
    pub fn build(&self, about: &Circumstances) -> Box<dyn Sender> {
        self.algorithm().sender(about)
    }

    /// A fresh receiving half, where the algorithm has one.
    pub fn receiver(&self) -> Option<Box<dyn Receiver>> {
        self.algorithm().receiver()
    }

    /// What it needs of packets and pacing.
    pub fn needs(&self) -> Needs {
        self.algorithm().needs()
    }

    /// What a queue pair may have under way at first and at most, where the algorithm starts with
    /// less than a round trip holds.
    pub fn window(&self) -> Option<(Bytes, Bytes)> {
        self.algorithm().window()
    }

    /// Names the settings of the algorithm that have no effect, given the others.
    pub fn unused(&self, idle: &mut UnusedKeys) {
        self.algorithm().unused(idle);
    }

    /// What its user should hear about a queue pair's path, if that does not suit it.
    pub fn finding(&self, about: &Circumstances) -> Option<String> {
        self.algorithm().finding(about)
    }
}

impl Ranged for CcConfig {
    fn ranges(&self, check: &mut Ranges) {
        self.algorithm().ranges(check);
    }
}

/// What a window of a base round trip at line rate holds, in bytes.
fn bandwidth_delay(line: Rate, base_rtt: Span) -> u64 {
    (u128::from(base_rtt.as_ps()) * u128::from(line.as_bps()) / 8_000_000_000_000) as u64
}

/// The part of a window that goes with a rate: all of it at line rate, never less than a byte.
fn window_at(window: u64, rate_bps: u64, line_bps: u64) -> Bytes {
    let part = u128::from(window) * u128::from(rate_bps) / u128::from(line_bps.max(1));
    Bytes::new((part as u64).max(1))
}

/// The registry once more, with an algorithm from the tests alone.
#[cfg(test)]
#[path = "../../tests/fixtures"]
pub mod recipe {
    use super::*;

    algorithms! {
        /// A share of the line rate.
        Steady = steady;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every algorithm of a registry must keep, whatever it does.
    fn check(name: &str, schema: &str, algorithm: &dyn Algorithm) {
        let about = Circumstances {
            line: Rate::from_gbps(400),
            base_rtt: Span::from_us(8),
            hops: 4,
            mtu: Bytes::new(4096),
        };
        assert!(schema.contains(&format!("\"const\":\"{name}\"")), "{name} is not in {schema}");
        let limit = algorithm.sender(&about).limit();
        assert!(0 < limit.rate.as_bps() && Bytes::ZERO < limit.window, "{name}");
        assert_eq!(algorithm.finding(&about), None, "{name}: defaults suit an ordinary path");
        struct Defaults<'a>(&'a dyn Algorithm);
        impl Ranged for Defaults<'_> {
            fn ranges(&self, check: &mut Ranges) {
                self.0.ranges(check);
            }
        }
        assert_eq!(Ranges::of("congestion", &Defaults(algorithm)), [], "{name}");
    }

    /// The registry is closed under its own names: what a scenario writes is what it gets.
    #[test]
    fn every_algorithm_is_read_by_its_name_and_starts() {
        let schema = schemars::schema_for!(CcConfig).to_value().to_string();
        for (name, config) in CcConfig::defaults() {
            assert_eq!(config.name(), name);
            check(name, &schema, config.algorithm());
        }
    }

    /// One file and one line: the registry of a test has an algorithm that this folder does not.
    #[test]
    fn an_algorithm_is_one_file_and_one_line() {
        use super::recipe::CcConfig;
        let schema = schemars::schema_for!(CcConfig).to_value().to_string();
        let [(name, config)] = &CcConfig::defaults()[..] else { panic!("there is one line") };
        assert_eq!((*name, config.name()), ("steady", "steady"));
        assert!(config.algorithm().needs().marks);
        check(name, &schema, config.algorithm());
    }

    #[test]
    fn a_window_follows_its_rate() {
        let line = Rate::from_gbps(400);
        let window = bandwidth_delay(line, Span::from_ns(4162));
        assert_eq!(window, 208_100);
        assert_eq!(window_at(window, line.as_bps() / 2, line.as_bps()), Bytes::new(104_050));
        assert_eq!(window_at(window, 1, line.as_bps()), Bytes::new(1));
    }
}
