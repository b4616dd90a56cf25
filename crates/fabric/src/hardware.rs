//! What GPUs, NICs, switches and cables can do and what they cost, every figure with its source.
//!
//! The figures live in data files, which the `scenario` crate reads into these types; users add
//! their own the same way. The unit is part of each key.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Ranged, Ranges, Rate};

use crate::transport::Transport;

/// How far to trust a figure.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
pub enum Trust {
    /// Read in the primary artefact: source code, result log, vendor table.
    P,
    /// Text or table of a paper.
    T,
    /// A secondary source only.
    S,
    /// Computed from figures marked P or T.
    C,
    /// Remembered or estimated, unchecked.
    M,
}

impl Trust {
    /// Whether users should be told that the figure is an estimate.
    pub fn is_estimate(self) -> bool {
        matches!(self, Self::S | Self::M)
    }
}

/// A figure and where it comes from.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number, in the unit that its key names.
    pub value: f64,
    /// The least that sources say, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The most that they say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Where it was read.
    pub source: String,
    /// How far to trust it.
    pub trust: Trust,
}

impl Figure {
    /// The least and the most that it may be; both the value where sources agree.
    pub fn ends(&self) -> (f64, f64) {
        (self.low.unwrap_or(self.value), self.high.unwrap_or(self.value))
    }
}

/// What no hardware has less of, and more of.
const AMOUNTS: [f64; 2] = [1e-3, 1e9];

/// Prices and watts, which may be nothing.
const COSTS: [f64; 2] = [0.0, 1e12];

/// Up to ten seconds.
const NANOSECONDS: [f64; 2] = [0.0, 1e10];

/// Holds figures against a range.
fn figures<const N: usize>(
    check: &mut Ranges,
    range: [f64; 2],
    figures: [(&str, Option<&Figure>); N],
) {
    for (key, figure) in figures {
        if let Some(figure) = figure {
            check.within(&format!("{key}.value"), figure.value, range);
            for (end, bound) in [("low", figure.low), ("high", figure.high)] {
                if let Some(bound) = bound {
                    check.within(&format!("{key}.{end}"), bound, range);
                }
            }
        }
    }
}

/// Something that hardware can do, and where that was read.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// Where it was read.
    pub source: String,
    /// How far to trust it.
    pub trust: Trust,
}

/// How GPUs of one scale-up domain reach each other.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleUpKind {
    /// Every GPU on switches: any pair can use its full rate.
    Switched,
    /// A link between each pair: a pair can use only its share.
    Mesh,
    /// Over PCIe and the host.
    Pcie,
}

/// How fast a GPU runs each class of kernels, as a multiple of the H200 whose kernels were
/// measured. Ratios are of one collector on equal shapes, so that what a long run loses to the
/// power limit is on both sides. Products are `large`, `narrow` (a side of the weights below 4,096)
/// or `short` (below 2,048 rows: few tokens for each expert). What is left out follows by a rule
/// from the other figures, and counts as extrapolated.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Speed {
    /// Large products in bf16. Left out, `matmul_bf16_tflops` that lasts, over the H200's 691.
    pub bf16_large: Option<Figure>,
    /// Narrow products in bf16. Left out, as large ones.
    pub bf16_narrow: Option<Figure>,
    /// Short products in bf16. Left out, as narrow ones.
    pub bf16_short: Option<Figure>,
    /// Large products in fp8 with one scale per tensor. Left out, `matmul_fp8_tflops` that lasts,
    /// over the H200's 1,264.
    pub fp8_large: Option<Figure>,
    /// Narrow ones. Left out, as large ones.
    pub fp8_narrow: Option<Figure>,
    /// Short ones. Left out, as narrow ones.
    pub fp8_short: Option<Figure>,
    /// Products in fp8 with a scale per block of 128, over the H200's own. Left out, as with one
    /// scale per tensor.
    pub fp8_block: Option<Figure>,
    /// Large products in MXFP8, over the H200's fp8 with one scale per tensor. Left out, the GPU
    /// has no MXFP8, and block scales of 128 stand for it.
    pub mxfp8_large: Option<Figure>,
    /// Narrow ones. Left out, as large ones.
    pub mxfp8_narrow: Option<Figure>,
    /// Short ones. Left out, as narrow ones.
    pub mxfp8_short: Option<Figure>,
    /// Products in 4 bits (NVFP4, MXFP4), over the H200's fp8. Left out, the GPU has none, and
    /// they run in fp8.
    pub fp4: Option<Figure>,
    /// Attention forward with heads 128 wide. Left out, the ratio of products in bf16, or of the
    /// peaks where that is less.
    pub attention_forward: Option<Figure>,
    /// Attention backward with heads 128 wide. Left out, as forward.
    pub attention_backward: Option<Figure>,
    /// Attention forward with heads of up to 96. Left out, as with 128.
    pub attention_forward_64: Option<Figure>,
    /// Attention backward with heads of up to 96. Left out, it loses what forward loses.
    pub attention_backward_64: Option<Figure>,
    /// Attention forward with keys wider than values (192 and 128: MLA). Left out, as with 128.
    pub attention_forward_mla: Option<Figure>,
    /// Attention backward with keys wider than values. Left out, as with 128.
    pub attention_backward_mla: Option<Figure>,
    /// Kernels at the memory's bandwidth. Left out, the ratio of bandwidths.
    pub memory: Option<Figure>,
    /// Kernels that stay below it, as gradients of norms do. Left out, multiprocessors times clock.
    pub norm_backward: Option<Figure>,
}

impl Speed {
    /// Every class by its key.
    pub fn figures(&self) -> [(&'static str, Option<&Figure>); 19] {
        [
            ("bf16_large", self.bf16_large.as_ref()),
            ("bf16_narrow", self.bf16_narrow.as_ref()),
            ("bf16_short", self.bf16_short.as_ref()),
            ("fp8_large", self.fp8_large.as_ref()),
            ("fp8_narrow", self.fp8_narrow.as_ref()),
            ("fp8_short", self.fp8_short.as_ref()),
            ("fp8_block", self.fp8_block.as_ref()),
            ("mxfp8_large", self.mxfp8_large.as_ref()),
            ("mxfp8_narrow", self.mxfp8_narrow.as_ref()),
            ("mxfp8_short", self.mxfp8_short.as_ref()),
            ("fp4", self.fp4.as_ref()),
            ("attention_forward", self.attention_forward.as_ref()),
            ("attention_backward", self.attention_backward.as_ref()),
            ("attention_forward_64", self.attention_forward_64.as_ref()),
            ("attention_backward_64", self.attention_backward_64.as_ref()),
            ("attention_forward_mla", self.attention_forward_mla.as_ref()),
            ("attention_backward_mla", self.attention_backward_mla.as_ref()),
            ("memory", self.memory.as_ref()),
            ("norm_backward", self.norm_backward.as_ref()),
        ]
    }
}

impl Ranged for Speed {
    fn ranges(&self, check: &mut Ranges) {
        figures(check, [1e-3, 1e3], self.figures());
    }
}

/// An accelerator.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Name for people.
    pub title: String,
    /// Dense bf16 peak in TFLOP/s.
    pub bf16_tflops: Figure,
    /// Dense fp8 peak in TFLOP/s, where it has fp8.
    #[serde(default)]
    pub fp8_tflops: Option<Figure>,
    /// Best measured bf16 matrix product in TFLOP/s.
    pub matmul_bf16_tflops: Figure,
    /// Best measured fp8 matrix product in TFLOP/s.
    #[serde(default)]
    pub matmul_fp8_tflops: Option<Figure>,
    /// Share of the best product that long runs of random numbers hold under the power limit.
    /// Left out, all of it.
    #[serde(default)]
    pub matmul_sustained: Option<Figure>,
    /// Rate of FlashAttention-2 as a share of the fastest attention kernel's. Left out, it is the
    /// fastest.
    #[serde(default)]
    pub flash2_share: Option<Figure>,
    /// Memory in 10⁹ bytes.
    pub memory_gb: Figure,
    /// Memory bandwidth in 10⁹ bytes per second.
    pub memory_gbytes_s: Figure,
    /// Scale-up bandwidth of one GPU in one direction, in 10⁹ bytes per second.
    pub scale_up_gbytes_s: Figure,
    /// How GPUs of one domain reach each other.
    pub scale_up: ScaleUpKind,
    /// What the scale-up network is called.
    pub scale_up_name: String,
    /// Streaming multiprocessors or compute units.
    pub sms: Figure,
    /// Their boost clock in GHz. Left out, the H200's.
    #[serde(default)]
    pub clock_ghz: Option<Figure>,
    /// How fast it runs each class of kernels.
    #[serde(default)]
    pub speed: Speed,
    /// Board power in watts.
    pub power_w: Figure,
    /// Price in US dollars.
    pub price_usd: Figure,
    /// What the server around one GPU draws in training, in watts: processors, memory, fans,
    /// scale-up switches and losses, without GPUs and network cards. Left out, not counted.
    #[serde(default)]
    pub host_w: Option<Figure>,
    /// What the server around one GPU costs in US dollars, without GPUs and network cards. Left
    /// out, not counted.
    #[serde(default)]
    pub host_usd: Option<Figure>,
}

impl Ranged for Gpu {
    fn ranges(&self, check: &mut Ranges) {
        let amounts = [
            ("bf16_tflops", Some(&self.bf16_tflops)),
            ("fp8_tflops", self.fp8_tflops.as_ref()),
            ("matmul_bf16_tflops", Some(&self.matmul_bf16_tflops)),
            ("matmul_fp8_tflops", self.matmul_fp8_tflops.as_ref()),
            ("memory_gb", Some(&self.memory_gb)),
            ("memory_gbytes_s", Some(&self.memory_gbytes_s)),
            ("scale_up_gbytes_s", Some(&self.scale_up_gbytes_s)),
            ("sms", Some(&self.sms)),
            ("clock_ghz", self.clock_ghz.as_ref()),
        ];
        figures(check, AMOUNTS, amounts);
        let shares = [
            ("matmul_sustained", self.matmul_sustained.as_ref()),
            ("flash2_share", self.flash2_share.as_ref()),
        ];
        figures(check, [1e-3, 1.0], shares);
        check.table("speed", &self.speed);
        let costs = [
            ("power_w", Some(&self.power_w)),
            ("price_usd", Some(&self.price_usd)),
            ("host_w", self.host_w.as_ref()),
            ("host_usd", self.host_usd.as_ref()),
        ];
        figures(check, COSTS, costs);
    }
}

/// How a NIC takes packets that arrive out of order.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reorder {
    /// It asks for everything from the gap on again (go-back-N).
    None,
    /// It keeps what came early and asks for what is missing (selective repeat).
    SelectiveRepeat,
    /// It places every packet directly where it belongs (direct data placement).
    DirectPlacement,
}

/// A network card.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Name for people.
    pub title: String,
    /// Rate of the card in 10⁹ bits per second, all ports together.
    pub rate_gbps: Figure,
    /// Ports.
    pub ports: u32,
    /// From the doorbell to the first bit on the wire, in nanoseconds.
    pub send_latency_ns: Figure,
    /// From the last bit off the wire to the completion that software sees, in nanoseconds.
    pub receive_latency_ns: Figure,
    /// What it does with packets that arrive out of order.
    pub reorder: Reorder,
    /// The transports for RDMA that it speaks. Left out, any.
    #[serde(default)]
    pub transports: Vec<Transport>,
    /// Contexts of queue pairs that it holds in its own memory. Left out, a ConnectX's.
    #[serde(default)]
    pub qp_contexts: Option<Figure>,
    /// What a context that is not there holds up its pipeline, in nanoseconds. Left out, a
    /// ConnectX's.
    #[serde(default)]
    pub qp_miss_ns: Option<Figure>,
    /// Power in watts.
    pub power_w: Figure,
    /// Price in US dollars.
    pub price_usd: Figure,
}

impl Nic {
    /// Whether it speaks a transport, as far as that is said. Any card takes the kernel's TCP.
    pub fn speaks(&self, transport: Transport) -> bool {
        let wanted = match transport {
            Transport::Tcp => return true,
            Transport::Rocev1 | Transport::ScheduledEthernet => Transport::Rocev2,
            own => own,
        };
        self.transports.is_empty() || self.transports.contains(&wanted)
    }
}

impl Ranged for Nic {
    fn ranges(&self, check: &mut Ranges) {
        check.within("ports", self.ports, [1, 1024]);
        figures(check, [1e-3, 1e6], [("rate_gbps", Some(&self.rate_gbps))]);
        let latencies = [
            ("send_latency_ns", Some(&self.send_latency_ns)),
            ("receive_latency_ns", Some(&self.receive_latency_ns)),
        ];
        figures(check, NANOSECONDS, latencies);
        figures(check, NANOSECONDS, [("qp_miss_ns", self.qp_miss_ns.as_ref())]);
        figures(check, [1.0, 1e9], [("qp_contexts", self.qp_contexts.as_ref())]);
        let costs = [("power_w", Some(&self.power_w)), ("price_usd", Some(&self.price_usd))];
        figures(check, COSTS, costs);
    }
}

/// How a switch holds packets.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buffering {
    /// One memory on the chip that all ports share.
    Shared,
    /// Deep memory with a virtual output queue for each egress port at each ingress.
    DeepVoq,
    /// Credits: a sender may send only into buffer that the receiver has granted.
    Credits,
}

/// A switch box.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Name for people.
    pub title: String,
    /// The chip inside.
    pub chip: String,
    /// Ports at `port_gbps`.
    pub ports: u32,
    /// Rate of a port in 10⁹ bits per second.
    pub port_gbps: Figure,
    /// Packet memory in 10⁶ bytes.
    pub buffer_mb: Figure,
    /// How it holds packets.
    pub buffering: Buffering,
    /// Port to port, without queueing, in nanoseconds.
    pub latency_ns: Figure,
    /// Where it is said that it adds up messages on their way (SHARP). Left out, it cannot.
    #[serde(default)]
    pub reduction: Option<Capability>,
    /// Power in watts, without optics and line cards.
    pub power_w: Figure,
    /// Price in US dollars, without optics and line cards. Of one box, however its ports are split.
    pub price_usd: Figure,
    /// The line card of a chassis: only those are paid for that the cables need. Left out, the
    /// ports are part of the box.
    #[serde(default)]
    pub card: Option<Card>,
}

/// A line card of a chassis.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Ports at the rate of the chassis' ports.
    pub ports: u32,
    /// Power in watts, without optics.
    pub power_w: Figure,
    /// Price in US dollars, without optics.
    pub price_usd: Figure,
}

impl Ranged for Card {
    fn ranges(&self, check: &mut Ranges) {
        check.within("ports", self.ports, [1, 65_536]);
        let costs = [("power_w", Some(&self.power_w)), ("price_usd", Some(&self.price_usd))];
        figures(check, COSTS, costs);
    }
}

/// A port can be broken out into at most so many (2 × 400G or 4 × 200G of one 800G).
const BREAKOUT: u64 = 4;

/// How many ports of this rate a box has that has so many of that rate.
pub(crate) fn broken_out(ports: u64, port_bps: u64, rate: Rate) -> u64 {
    ports * (port_bps / rate.as_bps().max(1)).min(BREAKOUT)
}

impl Switch {
    /// How many ports of this rate it has.
    pub fn ports_at(&self, rate: Rate) -> u64 {
        let port = Rate::from_bps_f64(self.port_gbps.value * 1e9);
        broken_out(u64::from(self.ports), port.as_bps(), rate)
    }
}

impl Ranged for Switch {
    fn ranges(&self, check: &mut Ranges) {
        if let Some(card) = &self.card {
            check.table("card", card);
        }
        check.within("ports", self.ports, [1, 65_536]);
        figures(check, [1e-3, 1e6], [("port_gbps", Some(&self.port_gbps))]);
        figures(check, AMOUNTS, [("buffer_mb", Some(&self.buffer_mb))]);
        figures(check, NANOSECONDS, [("latency_ns", Some(&self.latency_ns))]);
        let costs = [("power_w", Some(&self.power_w)), ("price_usd", Some(&self.price_usd))];
        figures(check, COSTS, costs);
    }
}

/// A cable with what sits at its ends.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cable {
    /// Name for people.
    pub title: String,
    /// Rate in 10⁹ bits per second.
    pub rate_gbps: Figure,
    /// The longest it can be, in metres.
    pub reach_m: Figure,
    /// Price of both ends together, in US dollars.
    pub ends_usd: Figure,
    /// Price of a metre, in US dollars.
    pub metre_usd: Figure,
    /// Power of both ends together, in watts.
    pub power_w: Figure,
}

impl Ranged for Cable {
    fn ranges(&self, check: &mut Ranges) {
        figures(check, [1e-3, 1e6], [("rate_gbps", Some(&self.rate_gbps))]);
        figures(
            check,
            COSTS,
            [
                ("reach_m", Some(&self.reach_m)),
                ("ends_usd", Some(&self.ends_usd)),
                ("metre_usd", Some(&self.metre_usd)),
                ("power_w", Some(&self.power_w)),
            ],
        );
    }
}

/// Everything that can be bought, by its short name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Catalogue {
    /// Accelerators.
    pub gpu: BTreeMap<String, Gpu>,
    /// Network cards.
    pub nic: BTreeMap<String, Nic>,
    /// Switch boxes.
    pub switch: BTreeMap<String, Switch>,
    /// Cables and optics.
    pub cable: BTreeMap<String, Cable>,
}

impl Ranged for Catalogue {
    fn ranges(&self, check: &mut Ranges) {
        for (name, gpu) in &self.gpu {
            check.table(&format!("gpu.{name}"), gpu);
        }
        for (name, nic) in &self.nic {
            check.table(&format!("nic.{name}"), nic);
        }
        for (name, switch) in &self.switch {
            check.table(&format!("switch.{name}"), switch);
        }
        for (name, cable) in &self.cable {
            check.table(&format!("cable.{name}"), cable);
        }
    }
}
