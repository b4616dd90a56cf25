//! What NCCL and RCCL choose: algorithm, protocol, channels and chunks, by size and shape.
//!
//! NCCL keeps a table of latency and bandwidth for each collective, algorithm and protocol, made
//! from constants that its authors measured, and takes the entry with the least
//! `latency + bytes / bandwidth`. [`plan`] does the same. [`estimate`] then says how long the
//! chosen one takes on links without other traffic: the bytes that it puts on the busiest link of
//! each kind, the hand-overs, and the filling and draining of its pipeline. Its terms are also
//! what a folded operation carries, so the flow engine agrees with it where nothing contends.
//!
//! # Map of the modules, in reading order
//!
//! * [`constants`]: NCCL's and RCCL's published constants, each with its source.
//! * [`version`]: the versions of NCCL whose constants and rules are known.
//! * [`plugin`]: what network plug-ins declare and set.
//! * [`tuner`]: a vendor's tuner plug-in, which overrules the table.
//! * [`route`]: what the ways between servers add to them on this fabric.
//! * [`estimate`]: the closed form.
//!
//! # Where this departs from NCCL
//!
//! * The graph search is a closed form that tells how many channels there are. A ring's bandwidth
//!   is the lesser of what the scale-up links and the rails give, without rounding down to the
//!   search's list of speeds.
//! * The choice is NCCL's; the time is ours. NCCL's model is made for choosing and is 20 to 40 %
//!   off as a prediction of the time.
//! * RCCL's latencies and shares are its own, its choice is by NCCL's rule. RCCL at 0cbce2a
//!   corrects bandwidths by size (`tuning_model_5`) so that trees run up to 256 MiB on two servers
//!   of MI300X. Tried, that is 45 % off at 64 MiB and 63 % at 256 MiB of the published log, whose
//!   RCCL is newer and reaches what rings do.

pub mod constants;
pub mod estimate;
pub mod plugin;
pub mod route;
pub mod tuner;
pub mod version;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranged, Ranges, Rate, Span, UnusedKeys};

pub use constants::{Architecture, Cpu, Family};
pub use estimate::{Estimate, Limit, estimate, estimate_of};
pub use plugin::Plugin;
pub use tuner::TunerLine;
pub use version::Version;

pub use crate::collective::sharp::Aggregation;
use crate::collective::{ALGORITHMS, Algorithm, Ask, CrossNic, Pxn, algorithm, ring};
use crate::window::Window;

/// How NCCL moves data through a channel.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Flags with every eight bytes: least latency, a quarter of the bandwidth.
    Ll,
    /// Flags with every 120 bytes: little latency, over 90 % of the bandwidth, NVLink only.
    Ll128,
    /// Large slices, each fenced and posted: all of the bandwidth.
    Simple,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ll, Self::Ll128, Self::Simple];

    /// What NCCL calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ll => "LL",
            Self::Ll128 => "LL128",
            Self::Simple => "Simple",
        }
    }
}

/// Whether something is used where the hardware has it.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Usage {
    /// Where the hardware has it.
    #[default]
    Enabled,
    /// Not at all.
    Disabled,
}

/// Who starts a transfer.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Initiator {
    /// A kernel of the communication library, launched on all ranks.
    #[default]
    Kernel,
    /// A thread that posts to the NIC itself, as latency benchmarks do.
    Host,
}

/// The communication library and how it is set.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The generation of the GPUs, which decides most constants; it follows from the cluster's GPU.
    #[serde(skip)]
    pub architecture: Architecture,
    /// Which NCCL: its tables, rules and algorithms. RCCL has one of its own.
    pub version: Version,
    /// The hosts' processors, which decide what posting to a NIC costs.
    pub cpu: Cpu,
    /// What stands between NCCL and the NICs; it follows from the transport if not given.
    pub plugin: Option<Plugin>,
    /// What each hand-over between servers takes beyond NCCL's own constant, the NICs and the
    /// ways: software of the plug-in. Twice with the simple protocol where that flushes.
    pub crossing: Span,
    /// Run this algorithm wherever it can run (`NCCL_ALGO`); otherwise choose.
    #[schemars(schema_with = "crate::collective::algorithm_names")]
    pub algorithm: Option<String>,
    /// Use this protocol (`NCCL_PROTO`); otherwise choose.
    pub protocol: Option<Protocol>,
    /// Lines of a tuner plug-in's table, as NCCL's example plug-in reads them; the first one that
    /// fits overrules NCCL's own table.
    #[schemars(with = "Vec<String>")]
    pub tuner: Vec<TunerLine>,
    /// Use so many channels (`NCCL_MIN_NCHANNELS` = `NCCL_MAX_NCHANNELS`); otherwise choose.
    pub channels: Option<u32>,
    /// Use at least so many channels (`NCCL_MIN_CTAS`, `NCCL_MIN_NCHANNELS`) where a message is
    /// large enough for them.
    pub least_channels: u32,
    /// Buffer of a channel towards one peer (`NCCL_BUFFSIZE`).
    pub buffer: Bytes,
    /// Chunk of NVLS (`NCCL_NVLS_CHUNKSIZE`); otherwise the architecture's.
    pub nvls_chunk: Option<Bytes>,
    /// The most that a chunk of an NVLS tree is (`NCCL_NVLSTREE_MAX_CHUNKSIZE`); otherwise the
    /// architecture's.
    pub nvls_tree_chunk: Option<Bytes>,
    /// What one message to a NIC carries of a send (`NCCL_P2P_NET_CHUNKSIZE`).
    pub p2p_net_chunk: Bytes,
    /// What one step over NVLink carries of a send (`NCCL_P2P_NVL_CHUNKSIZE`).
    pub p2p_scale_up_chunk: Bytes,
    /// Whether rings may change rails (`NCCL_CROSS_NIC`).
    pub cross_nic: CrossNic,
    /// Whether sends go through the GPU on the receiver's rail (`NCCL_PXN_DISABLE`).
    pub pxn: Pxn,
    /// Reduction and multicast in the scale-up switch (`NCCL_NVLS_ENABLE`). Training jobs leave it
    /// off unless this or the algorithm is given.
    pub nvls: Usage,
    /// Buffers in symmetric windows (`ncclCommWindowRegister`, NCCL 2.27 and later): kernels that
    /// read and write the others' memory compete with the other algorithms inside a domain.
    pub symmetric: Usage,
    /// Networking that GPUs start themselves (GIN, NCCL 2.29 and later): symmetric kernels for
    /// all-gather and reduce-scatter between servers, without a proxy that posts.
    pub gin: Usage,
    /// Copy engines instead of kernels (`NCCL_CTA_POLICY_ZERO`, NCCL 2.28 and later), for
    /// all-gather and all-to-all of symmetric windows inside a domain.
    pub copy_engine: Usage,
    /// Reduction in the scale-out switches (`NCCL_COLLNET_ENABLE`).
    pub sharp: Usage,
    /// What those switches can do.
    pub aggregation: Aggregation,
    /// Starting a kernel on every rank and agreeing that all are there, where that is not
    /// measured with what the collective is started by (a training step, a benchmark).
    pub launch: Span,
    /// The share of NVLS's own rate that is left where the GPUs also feed NICs with it. Set with
    /// measurements: 16 to 64 H100 and H200 of dellh100, aionh100, rhh200 and gtc25-h100.
    pub nvls_network_share: f64,
    /// What one channel of a ring between servers moves at most, in 10⁹ bytes per second. Set with
    /// measurements: rings of dellh100, aionh100, gtc25-h100, aacmi325x and ocimi355x with 16
    /// channels.
    pub ring_channel_gbps: f64,
    /// Who starts the transfers.
    pub initiator: Initiator,
    /// What the two NICs on a message's way take together; the catalogue has it for each card.
    #[serde(skip)]
    pub nic_latency: Span,
    /// The share of the scale-up links' raw rate that the library reaches; otherwise the
    /// architecture's.
    pub scale_up_efficiency: Option<f64>,
    /// The share of a NIC's rate that an all-to-all between very many servers leaves it; two
    /// servers have all of it.
    pub all_to_all_share: f64,
    /// The share of the scale-up links' raw rate that DeepEP's kernels reach.
    pub deepep_efficiency: f64,
    /// What DeepEP's low-latency kernels take beside the bytes: starting on all ranks, a barrier
    /// of the whole grid between sending and receiving, and the exchange of the numbers of tokens.
    pub low_latency_overhead: Span,
    /// The share of a NIC's rate that is left for payload; it follows from the transport.
    #[serde(skip)]
    pub wire_efficiency: f64,
    /// What a connection may have under way; it follows from the congestion control, and most have
    /// no bound that matters.
    #[serde(skip)]
    pub window: Option<Window>,
    /// What the host moves at most between one NIC and its GPU, each way; without it, whatever the
    /// NIC does. It follows from the transport.
    #[serde(skip)]
    pub host_rate: Option<Rate>,
    /// Where tokens go, for the collectives of expert parallelism.
    pub routing: crate::collective::Routing,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            architecture: Architecture::Hopper,
            version: Version::default(),
            cpu: Cpu::Intel,
            plugin: None,
            crossing: Span::ZERO,
            algorithm: None,
            protocol: None,
            tuner: Vec::new(),
            channels: None,
            least_channels: 1,
            // NCCL src/init.cc:813.
            buffer: Bytes::from_mib(4),
            nvls_chunk: None,
            nvls_tree_chunk: None,
            // NCCL src/init.cc:818-820.
            p2p_net_chunk: Bytes::from_kib(128),
            p2p_scale_up_chunk: Bytes::from_kib(512),
            cross_nic: CrossNic::SameRail,
            pxn: Pxn::Enabled,
            nvls: Usage::Enabled,
            symmetric: Usage::Disabled,
            gin: Usage::Disabled,
            copy_engine: Usage::Disabled,
            // NCCL docs env.rst: NCCL_COLLNET_ENABLE is 0.
            sharp: Usage::Disabled,
            aggregation: Aggregation::default(),
            // NCCL's own latencies are what logs of nccl-tests show: 16 B on 16 and 32 H100 take
            // 25.0 and 34.8 us, 25.2 and 35.2 by its table.
            launch: Span::ZERO,
            nvls_network_share: 0.89,
            ring_channel_gbps: 22.0,
            initiator: Initiator::Kernel,
            // ConnectX-7 between GPUs: data/hardware/nics.toml, 1.2 us on either side.
            nic_latency: Span::from_ns(2_400),
            scale_up_efficiency: None,
            // The throughput of queues whose first entry blocks the rest, 2 − √2 for very many
            // outputs (Karol, Hluchyj and Morgan, IEEE Transactions on Communications 35(12),
            // 1987): a channel serves its peers in order.
            all_to_all_share: 2.0 - std::f64::consts::SQRT_2,
            // DeepEP V2 on eight SM100 GPUs (its README at dd758ca: 643 to 740 GB/s, of which one
            // GPU in eight is the sender itself, of a raw 900): 0.63 to 0.72, here their mean.
            deepep_efficiency: 0.68,
            // What NCCL's table charges a kernel with flags in its lines before anything moves
            // (`baseLatencies`, LL128: 14 us), for the sending and for the receiving half.
            low_latency_overhead: Span::from_us(28),
            // 4,096 bytes of payload in a frame of 4,178 (RoCEv2: preamble and gap 20, Ethernet
            // 18, IPv4 20, UDP 8, BTH 12, ICRC 4).
            wire_efficiency: 4096.0 / 4178.0,
            window: None,
            host_rate: None,
            routing: crate::collective::Routing::default(),
        }
    }
}

impl Settings {
    /// The plug-in; NCCL's own if no other is given.
    pub fn plugin(&self) -> Plugin {
        self.plugin.unwrap_or_default()
    }

    /// With a plug-in and what that sets of NCCL's environment where nobody else did.
    pub fn with_plugin(self, plugin: Plugin) -> Self {
        let defaults = Self::default();
        let or = |own: Bytes, default: Bytes, set: Option<Bytes>| match own == default {
            true => set.unwrap_or(own),
            false => own,
        };
        Self {
            plugin: Some(plugin),
            buffer: or(self.buffer, defaults.buffer, plugin.buffer()),
            p2p_net_chunk: or(self.p2p_net_chunk, defaults.p2p_net_chunk, plugin.p2p_net_chunk()),
            nvls_chunk: self.nvls_chunk.or(plugin.nvls_chunk()),
            nvls_tree_chunk: self.nvls_tree_chunk.or(plugin.nvls_chunk()),
            ..self
        }
    }

    /// What the plug-in says that a hand-over between servers takes, which counts in the choice.
    pub fn declared_us(&self, protocol: Protocol) -> f64 {
        flushed(protocol) * 1e6 * self.plugin().declared().as_secs_f64()
    }

    /// What a hand-over between servers takes beyond constants and ways.
    pub fn crossing_us(&self, protocol: Protocol) -> f64 {
        let times = if constants::flushes(self) { flushed(protocol) } else { 1.0 };
        times * 1e6 * self.crossing.as_secs_f64()
    }

    /// The share of the scale-up links' raw rate that collectives reach.
    pub fn scale_up_share(&self) -> f64 {
        self.scale_up_efficiency.unwrap_or(self.architecture.scale_up_efficiency())
    }

    /// Names what has no effect, given the other settings of the library.
    pub fn unused(&self, idle: &mut UnusedKeys) {
        if self.initiator == Initiator::Host {
            let why = "a thread of the host posts by itself";
            idle.key("launch", why, "library.initiator=kernel");
        }
        if self.nvls == Usage::Disabled {
            let why = "the scale-up switch does not reduce";
            for key in ["nvls_chunk", "nvls_tree_chunk", "nvls_network_share"] {
                idle.key(key, why, "library.nvls=enabled");
            }
        }
        if self.symmetric == Usage::Disabled {
            let why = "buffers are in no symmetric window";
            idle.key("gin", why, "library.symmetric=enabled");
            idle.key("copy_engine", why, "library.symmetric=enabled");
        }
        if self.sharp == Usage::Disabled {
            idle.key("aggregation", "no switch reduces", "library.sharp=enabled");
        }
    }
}

/// With the simple protocol a hand-over ends with a flush, which crosses again.
fn flushed(protocol: Protocol) -> f64 {
    if protocol == Protocol::Simple { 2.0 } else { 1.0 }
}

impl Ranged for Settings {
    fn ranges(&self, check: &mut Ranges) {
        if let Some(channels) = self.channels {
            // `MAXCHANNELS` of NCCL is 64; a channel's number allows this.
            check.within("channels", channels, [1, 1024]);
        }
        check.within("least_channels", self.least_channels, [1, 1024]);
        check.at_most("crossing", self.crossing, Span::from_ms(1_000));
        check.within("nvls_network_share", self.nvls_network_share, [1e-3, 1.0]);
        check.within("ring_channel_gbps", self.ring_channel_gbps, [1e-3, 1e6]);
        for (key, chunk) in
            [("nvls_chunk", self.nvls_chunk), ("nvls_tree_chunk", self.nvls_tree_chunk)]
        {
            if let Some(chunk) = chunk {
                check.positive(key, chunk);
            }
        }
        check.positive("buffer", self.buffer);
        check.positive("p2p_net_chunk", self.p2p_net_chunk);
        check.positive("p2p_scale_up_chunk", self.p2p_scale_up_chunk);
        check.at_most("launch", self.launch, Span::from_ms(10_000));
        if let Some(share) = self.scale_up_efficiency {
            check.within("scale_up_efficiency", share, [1e-3, 1.0]);
        }
        check.within("all_to_all_share", self.all_to_all_share, [1e-3, 1.0]);
        check.within("deepep_efficiency", self.deepep_efficiency, [1e-3, 1.0]);
        check.at_most("low_latency_overhead", self.low_latency_overhead, Span::from_ms(10_000));
    }
}

/// An entry of NCCL's table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Algorithm bandwidth in 10⁹ bytes per second.
    pub bandwidth: f64,
    /// Before and between the bytes, in microseconds.
    pub latency_us: f64,
}

/// How a collective will be run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// By which algorithm.
    pub algorithm: &'static dyn Algorithm,
    /// By which protocol.
    pub protocol: Protocol,
    /// Over so many channels.
    pub channels: u32,
    /// A channel sends at most so much in one step.
    pub chunk: Bytes,
    /// In so many slices.
    pub slices: u32,
    /// Starting it everywhere.
    pub launch: Span,
    /// Hand-overs between its steps.
    pub latency: Span,
    /// Filling and draining its pipeline.
    pub drain: Span,
    /// What the software adds to the time that the links need.
    pub slowdown: Span,
    /// What waiting for answers adds where less may be under way than a round trip holds: windows
    /// of new connections, and the library's buffers.
    pub answers: Span,
}

impl Plan {
    /// What a folded channel adds to the time of its bytes.
    pub fn fill(&self) -> Span {
        self.latency + self.drain + self.slowdown + self.answers
    }
}

/// Chooses as NCCL would.
///
/// The algorithm that the settings name is taken where it can run. `None` if nothing can run this
/// collective on these ranks.
pub fn plan(ask: &Ask<'_>) -> Option<Plan> {
    let named = ask.settings.algorithm.as_deref().and_then(algorithm);
    if named.is_none()
        && let Some((algorithm, protocol, channels)) = tuner::chosen(ask)
    {
        let protocol = ask.settings.protocol.unwrap_or(protocol);
        return Some(complete(ask, algorithm, protocol, channels));
    }
    let mut best: Option<(f64, &'static dyn Algorithm, Protocol)> = None;
    let mut fallback = None;
    for &candidate in ALGORITHMS {
        if !candidate.serves(ask) {
            continue;
        }
        let is_named = named.is_some_and(|named| named.name() == candidate.name());
        fallback = fallback.filter(|_| !is_named).or(Some(candidate));
        if named.is_some_and(|named| named.serves(ask)) && !is_named {
            continue;
        }
        for protocol in Protocol::ALL {
            if ask.settings.protocol.is_some_and(|wanted| wanted != protocol)
                || !constants::has_protocol(ask.settings, ask.shape(), protocol)
            {
                continue;
            }
            let Some(Offer { bandwidth, latency_us }) = candidate.offer(ask, protocol) else {
                continue;
            };
            let time_us = latency_us + ask.bytes.as_f64() / (1e3 * bandwidth);
            if best.is_none_or(|(least, _, _)| time_us < least) {
                best = Some((time_us, candidate, protocol));
            }
        }
    }
    let (algorithm, protocol) = match best {
        Some((_, algorithm, protocol)) => (algorithm, protocol),
        None => (fallback?, ask.settings.protocol.unwrap_or(Protocol::Simple)),
    };
    Some(complete(ask, algorithm, protocol, None))
}

/// Channels, chunks and times of an algorithm that has been chosen, with the tuner's channels if it
/// has any.
fn complete(
    ask: &Ask<'_>,
    algorithm: &'static dyn Algorithm,
    protocol: Protocol,
    tuned: Option<u32>,
) -> Plan {
    let wanted = ask.settings.channels.or(tuned.map(|channels| channels.min(64)));
    let channels = wanted.unwrap_or_else(|| algorithm.channels(ask)).max(1);
    // NCCL gives up channels before it gives a thread less than a few flits to carry.
    let is_ring = algorithm.name() == ring::Ring.name();
    let parts = if is_ring { ask.shape().ranks } else { 1 };
    let least = constants::least_channel_bytes(protocol, parts);
    let worth = (ask.bytes.get() / least).clamp(1, u64::from(channels)) as u32;
    let channels = if wanted.is_some() { channels } else { worth };
    let chunk = algorithm.chunk(ask, protocol, channels);
    let mut plan = Plan {
        algorithm,
        protocol,
        channels,
        chunk,
        // NCCL src/include/collectives.h: chunks of four slots in slices of two, in a chain of one.
        slices: match protocol {
            Protocol::Simple if !ring::is_chain(ask.collective) && !ask.collective.is_sends() => 2,
            _ => 1,
        },
        launch: match ask.settings.initiator {
            Initiator::Kernel => ask.settings.launch,
            Initiator::Host => Span::ZERO,
        },
        latency: Span::ZERO,
        drain: Span::ZERO,
        slowdown: Span::ZERO,
        answers: Span::ZERO,
    };
    let times = estimate::times(ask, &algorithm.phases(ask, &plan));
    plan.latency = Span::from_secs_f64(times.latency_s);
    plan.drain = Span::from_secs_f64(times.drain_s);
    plan.slowdown = Span::from_secs_f64(times.slowdown_s);
    plan.answers = Span::from_secs_f64(times.answers_s);
    plan
}
