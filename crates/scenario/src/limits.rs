//! The ranges of the network's and the library's settings.
//!
//! The engines take what they are given: a period of zero never ends, a probability of 7 is
//! nonsense that looks like a result. So every setting that has a range is held against it here,
//! before anything runs.

use std::fmt::Display;

use fabric::transport::Transport;
use packetsim::buffer::{BufferConfig, EcnConfig};
use packetsim::cc::CcConfig;
use packetsim::credits::CreditConfig;
use packetsim::packet::{Clock, PacketConfig};
use traffic::nccl;
use units::{Bytes, Span};

use crate::file::{NetworkConfig, ScenarioFile};
use crate::meaning::Finding;

/// Settings outside their range.
pub(crate) fn check(scenario: &ScenarioFile) -> Vec<Finding> {
    let mut limits = Limits::default();
    limits.network(&scenario.network);
    limits.packets(&scenario.network.settings.packet);
    limits.congestion(&scenario.network.settings.congestion);
    limits.credits(&scenario.network);
    limits.library(&scenario.library);
    limits.findings
}

/// More header than this is none: switches keep sizes of packets in 16 bits.
const MOST_HEADER: Bytes = Bytes::from_kib(4);

/// So that a packet with all its headers has a size of 16 bits.
const MTU: [Bytes; 2] = [Bytes::new(64), Bytes::from_kib(48)];

/// Timers of NICs count microseconds; far below them a run does nothing else than keep time.
const SHORTEST_PERIOD: Span = Span::from_ns(100);

/// What a channel's number allows (`MAXCHANNELS` of NCCL is 64).
const MOST_CHANNELS: u32 = 1024;

#[derive(Default)]
struct Limits {
    findings: Vec<Finding>,
}

impl Limits {
    fn refuse(&mut self, keys: &[&str], value: impl Display, range: &str) {
        self.findings.push(Finding {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            depends_on: Vec::new(),
            message: format!("`{}` is {value}, but must be {range}", keys[0]),
            help: None,
        });
    }

    /// From `least` to `most`, both allowed.
    fn within<T: Display + PartialOrd>(&mut self, key: &str, value: T, [least, most]: [T; 2]) {
        if !(least <= value && value <= most) {
            self.refuse(&[key], value, &format!("from {least} to {most}"));
        }
    }

    fn at_least<T: Display + PartialOrd>(&mut self, key: &str, value: T, least: T) {
        // Not a number is no number in range.
        if least.partial_cmp(&value).is_none_or(|order| order.is_gt()) {
            self.refuse(&[key], value, &format!("at least {least}"));
        }
    }

    /// A share or a probability, both ends allowed.
    fn share(&mut self, key: &str, value: f64) {
        self.within(key, value, [0.0, 1.0]);
    }

    /// A weight or a share that cannot be nothing.
    fn weight(&mut self, key: &str, value: f64) {
        if !(0.0 < value && value <= 1.0) {
            self.refuse(&[key], value, "above 0 and at most 1");
        }
    }

    /// A period or a size that cannot be nothing.
    fn some<T: Default + Display + PartialEq>(&mut self, key: &str, value: T) {
        if value == T::default() {
            self.refuse(&[key], value, "above 0");
        }
    }

    fn network(&mut self, network: &NetworkConfig) {
        let settings = &network.settings;
        self.at_least("network.routing.qps", settings.routing.qps, 1);
        self.at_least("network.routing.entropies", settings.routing.entropies, 1);
        self.some("network.routing.chunk", settings.routing.chunk);
        self.some("network.routing.interval", settings.routing.interval);
        self.some("network.nic.timeout", settings.nic.timeout);
        self.at_least("network.nic.ack_every", settings.nic.ack_every, 1);
        if let Some(share) = settings.switch.control_share {
            self.weight("network.switch.control_share", share);
            if 1 < settings.credits.lanes {
                let keys = ["network.switch.control_share", "network.credits.lanes"];
                self.refuse(&keys, share, "left out where data has several lanes");
            }
        }
        // The field of a pause frame has 16 bits.
        self.within("network.pfc.quanta", settings.pfc.quanta, [0, 65_535]);
        self.within("network.pfc.response_quanta", settings.pfc.response_quanta, [0, 65_535]);
        self.at_least("network.nic.reorder_window", settings.nic.reorder_window, 1);
        self.buffer("network.buffer", &settings.buffer);
        for (tier, buffer) in &settings.buffer_of_tier {
            self.buffer(&format!("network.buffer_of_tier.{tier}"), buffer);
        }
        self.marks("network.ecn", &settings.ecn);
        for (lane, ecn) in settings.ecn_of_lane.iter().enumerate() {
            self.marks(&format!("network.ecn_of_lane.{lane}"), ecn);
        }
        self.lanes(settings);
        self.some("network.admission.buffer", settings.admission.buffer);
        self.at_least("network.admission.window", settings.admission.window, 1);
        if let Some(window) = settings.admission.receiver_window {
            self.at_least("network.admission.receiver_window", window, settings.admission.buffer);
        }
        self.share("network.loss", settings.loss);
    }

    fn marks(&mut self, path: &str, ecn: &EcnConfig) {
        self.share(&format!("{path}.probability"), ecn.probability);
        if ecn.max < ecn.min {
            let [min, max] = ["min", "max"].map(|key| format!("{path}.{key}"));
            let range = format!("at most `{max}`, which is {}", ecn.max);
            self.refuse(&[&min, &max], ecn.min, &range);
        }
    }

    fn lanes(&mut self, settings: &packetsim::Settings) {
        const LANES: &str = "network.credits.lanes";
        let credits = &settings.credits;
        let lanes = credits.lanes;
        self.within(LANES, lanes, [1, 4]);
        // The default has an entry for every lane that there can be.
        let is_default = credits.sl_to_vl == CreditConfig::default().sl_to_vl;
        let named = [
            ("network.credits.high_priority", &credits.high_priority),
            ("network.credits.sl_to_vl", if is_default { &Vec::new() } else { &credits.sl_to_vl }),
            ("network.pfc.lossy_lanes", &settings.pfc.lossy_lanes),
        ];
        for (key, named) in named {
            if let Some(lane) = named.iter().find(|lane| lanes <= **lane) {
                let range = format!("a lane below {lanes}, which is `{LANES}`");
                self.refuse(&[key, LANES], lane, &range);
            }
        }
        let lists = [
            ("network.credits.weights", credits.weights.len()),
            ("network.ecn_of_lane", settings.ecn_of_lane.len()),
        ];
        for (key, length) in lists.into_iter().filter(|(_, length)| usize::from(lanes) < *length) {
            let range = format!("a list of at most {lanes}, one entry for each lane");
            self.refuse(&[key, LANES], format!("a list of {length}"), &range);
        }
    }

    fn buffer(&mut self, path: &str, buffer: &BufferConfig) {
        self.at_least(&format!("{path}.alpha"), buffer.alpha, 0.0);
        self.at_least(&format!("{path}.alpha_lossy"), buffer.alpha_lossy, 0.0);
    }

    fn packets(&mut self, packet: &PacketConfig) {
        self.within("network.packet.mtu", packet.mtu, MTU);
        let headers = &packet.headers;
        let all = [
            ("data", headers.data),
            ("first", headers.first),
            ("last", headers.last),
            ("ack", headers.ack),
            ("notification", headers.notification),
            ("grant", headers.grant),
            ("pause", headers.pause),
            ("gap", headers.gap),
        ];
        for (name, bytes) in all {
            let key = format!("network.packet.headers.{name}");
            self.within(&key, bytes, [Bytes::ZERO, MOST_HEADER]);
        }
    }

    /// What means nothing where credits are counted: whole nanoseconds, which are for comparisons
    /// with a simulator that knows none, and lanes that lose.
    fn credits(&mut self, network: &NetworkConfig) {
        let settings = &network.settings;
        if !settings.credits.enabled && network.transport != Transport::Infiniband {
            return;
        }
        let range = "left out where credits are counted";
        if settings.packet.clock == Clock::Nanosecond {
            let keys = ["network.packet.clock", "network.transport"];
            self.refuse(&keys, "`nanosecond`", range);
        }
        if !settings.pfc.lossy_lanes.is_empty() {
            let keys = ["network.pfc.lossy_lanes", "network.transport"];
            self.refuse(&keys, "a list of lanes", range);
        }
    }

    fn congestion(&mut self, congestion: &CcConfig) {
        match congestion {
            CcConfig::Dcqcn(config) => {
                self.period("alpha_every", config.alpha_every);
                self.period("increase_every", config.increase_every);
                self.period("cut_every", config.cut_every);
                self.weight("network.congestion.gain", config.gain);
                self.share("network.congestion.alpha_start", config.alpha_start);
            }
            CcConfig::Dctcp(config) => {
                self.weight("network.congestion.gain", config.gain);
                self.share("network.congestion.alpha_start", config.alpha_start);
            }
            CcConfig::Hpcc(config) => {
                self.weight("network.congestion.utilisation", config.utilisation);
                self.some("network.congestion.sent_unit", config.sent_unit);
                self.some("network.congestion.queue_unit", config.queue_unit);
                self.stamp("data_bytes", config.data_bytes);
                self.stamp("ack_bytes", config.ack_bytes);
            }
            CcConfig::Infiniband(config) => {
                self.period("timer", config.timer);
                self.at_least("network.congestion.slope", config.slope, 0.0);
            }
            CcConfig::Timely(config) => {
                self.weight("network.congestion.gain", config.gain);
                self.share("network.congestion.cut", config.cut);
                self.period("min_rtt", config.min_rtt);
                if config.high < config.low {
                    let keys = ["network.congestion.low", "network.congestion.high"];
                    let range = format!("at most `{}`, which is {}", keys[1], config.high);
                    self.refuse(&keys, config.low, &range);
                }
                self.stamp("data_bytes", config.data_bytes);
            }
            CcConfig::Swift(config) => {
                self.share("network.congestion.max_cut", config.max_cut);
                self.at_least("network.congestion.cut", config.cut, 0.0);
                self.stamp("data_bytes", config.data_bytes);
            }
            CcConfig::Cubic(config) => self.weight("network.congestion.keep", config.keep),
            CcConfig::Nscc(config) => {
                self.weight("network.congestion.delay_gain", config.delay_gain);
                self.some("network.congestion.target", config.target);
                self.some("network.congestion.max_window", config.max_window);
            }
            CcConfig::Rccc(config) => self.some("network.congestion.credit", config.credit),
            CcConfig::None(_) => {}
        }
    }

    fn period(&mut self, name: &str, period: Span) {
        self.at_least(&format!("network.congestion.{name}"), period, SHORTEST_PERIOD);
    }

    /// What an algorithm adds to packets: less than is left of 64 KiB.
    fn stamp(&mut self, name: &str, bytes: Bytes) {
        let key = format!("network.congestion.{name}");
        self.within(&key, bytes, [Bytes::ZERO, Bytes::from_kib(1)]);
    }

    fn library(&mut self, library: &nccl::Settings) {
        if let Some(channels) = library.channels {
            self.within("library.channels", channels, [1, MOST_CHANNELS]);
        }
        self.some("library.buffer", library.buffer);
        self.some("library.p2p_net_chunk", library.p2p_net_chunk);
        self.some("library.p2p_scale_up_chunk", library.p2p_scale_up_chunk);
        if let Some(share) = library.scale_up_efficiency {
            self.weight("library.scale_up_efficiency", share);
        }
    }
}
