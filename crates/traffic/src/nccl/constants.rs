//! NCCL's and RCCL's published constants.
//!
//! Latencies are microseconds, bandwidths 10⁹ bytes per second, as in NCCL. Unless a line says
//! otherwise they are those of `src/graph/tuning.cc` and `src/graph/topo.h` of NCCL 2.30 (tables
//! `baseLatencies`, `hwLatencies`, `perChMax…`, `nvlsEfficiency`), read in its source, and where
//! older versions had others those of the version that is set (see [`Version`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use super::{Protocol, Settings, Version};
use crate::collective::{Collective, Communicator, ScaleUp, Shape};

/// A generation of GPUs.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// A100 (NVLink 3).
    Ampere,
    /// Cards on PCIe, without NVLink: L40S, A100 and H100 PCIe. They get Ampere's rows of NCCL's
    /// tables, PCIe's where those part the two, and no LL128.
    Pcie,
    /// H100, H200, H800 (NVLink 4).
    Hopper,
    /// B200, GB200 (NVLink 5).
    Blackwell,
    /// MI300X, MI325X, MI355X and MI250X (xGMI), with RCCL.
    Cdna3,
}

impl Architecture {
    /// The generation whose scale-up network has this name in the catalogue.
    pub fn of_scale_up(name: &str) -> Option<Self> {
        match name {
            // Volta's tables differ little from Ampere's, and neither has NVLS.
            "nvlink2" | "nvlink3" => Some(Self::Ampere),
            "nvlink4" => Some(Self::Hopper),
            "nvlink5" => Some(Self::Blackwell),
            "xgmi" | "xgmi2" => Some(Self::Cdna3),
            "pcie4" | "pcie5" => Some(Self::Pcie),
            _ => None,
        }
    }

    /// The share of the scale-up links' raw rate that collectives reach.
    ///
    /// NVLink: what NCCL counts for a link (`SM80_NVLINK_BW` 20.0, `SM90_NVLINK_BW` 20.6,
    /// `SM100_NVLINK_BW` 40.1) of its raw 25 or 50. On Ampere NCCL 2.8 to 2.11 further capped the
    /// sum of the twelve links at 235 of 240. xGMI: RCCL's `GFX94X_XGMI_WIDTH` of 48 of 64. PCIe:
    /// 24 of 32 for sixteen lanes of its fourth generation, 48 of 64 of its fifth
    /// (`src/graph/topo.cc`).
    pub fn scale_up_efficiency(self) -> f64 {
        match self {
            Self::Ampere => 235.0 / 300.0,
            Self::Hopper => 20.6 / 25.0,
            Self::Blackwell => 40.1 / 50.0,
            Self::Cdna3 => 48.0 / 64.0,
            Self::Pcie => 24.0 / 32.0,
        }
    }

    /// The share of the raw rate that NCCL's search counts for a link (see
    /// [`scale_up_efficiency`](Self::scale_up_efficiency)).
    fn counted(self) -> f64 {
        match self {
            Self::Ampere => 20.0 / 25.0,
            other => other.scale_up_efficiency(),
        }
    }

    /// The share of those that reduction and multicast in the switch reach (`nvlsEfficiency`).
    pub fn nvls_efficiency(self) -> Option<f64> {
        match self {
            Self::Hopper => Some(0.85),
            Self::Blackwell => Some(0.74),
            Self::Ampere | Self::Pcie | Self::Cdna3 => None,
        }
    }
}

/// Whose processors the hosts have.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cpu {
    /// Intel.
    Intel,
    /// AMD.
    Amd,
    /// Arm: NVIDIA's Grace.
    Arm,
}

/// A row of NCCL's tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// Double binary trees.
    Tree,
    /// Rings.
    Ring,
    /// Reduction in the scale-out switches, with all GPUs of a server sending to its heads.
    CollNetDirect,
    /// The same, with the GPUs of a server in a chain.
    CollNetChain,
    /// Reduction and multicast in the scale-up switch.
    Nvls,
    /// The same in the server, trees between servers.
    NvlsTree,
    /// Parallel aggregated trees.
    Pat,
}

/// Before anything moves (`baseLatencies`).
pub fn base_latency_us(settings: &Settings, family: Family, protocol: Protocol) -> f64 {
    use Protocol::{Ll, Ll128, Simple};
    if settings.architecture == Architecture::Cdna3 {
        // RCCL src/graph/tuning.cc, `baseLat`.
        return match (family, protocol) {
            (Family::Tree | Family::Ring, Ll | Ll128) => 12.0,
            (Family::Tree | Family::Ring, Simple) => 17.0,
            _ => 0.0,
        };
    }
    match (family, protocol) {
        (Family::Tree, Simple) if settings.version < Version::V2_23 => 0.0,
        (Family::Tree, Ll) => 6.8,
        (Family::Ring, Ll) => 6.6,
        (Family::Tree | Family::Ring, Ll128) => 14.0,
        (Family::Tree | Family::Ring, Simple) => 8.4,
        (Family::Pat, _) => 8.0,
        (Family::CollNetDirect | Family::CollNetChain, _) => 0.0,
        (Family::Nvls | Family::NvlsTree, _) => 0.0,
    }
}

/// One hand-over inside a scale-up domain (`hwLatencies`, NVLink; PCI where there is none).
pub fn hop_latency_us(
    settings: &Settings,
    shape: &Shape,
    family: Family,
    protocol: Protocol,
) -> f64 {
    use Protocol::{Ll, Ll128, Simple};
    if settings.architecture == Architecture::Cdna3 {
        // RCCL src/graph/tuning.cc, model 5 (MI300X), xGMI.
        match (family, protocol) {
            (Family::Tree, Ll | Ll128) => return 0.9,
            (Family::Tree, Simple) => return 2.3,
            (Family::Ring, Ll | Ll128) => return 0.8,
            (Family::Ring, Simple) => return 2.1,
            _ => {}
        }
    }
    let by_pcie = settings.architecture == Architecture::Pcie;
    let nvlink = shape.scale_up != ScaleUp::Absent && !by_pcie;
    match (family, protocol, nvlink) {
        (Family::Tree | Family::Ring, Ll, true) => 0.6,
        (Family::Tree, Ll128, true) => 1.25,
        (Family::Ring, Ll128, true) => 1.9,
        (Family::Ring, Simple, true) => 3.4,
        (Family::Tree | Family::Ring, Ll, false) => 1.0,
        (Family::Tree, Ll128, false) => 1.9,
        (Family::Ring, Ll128, false) => 2.5,
        (Family::Ring, Simple, false) => 5.7,
        (Family::Tree | Family::Pat, _, _) => 4.0,
        (Family::CollNetDirect, _, _) => 3.7,
        (Family::CollNetChain, _, _) => 2.8,
        (Family::Nvls | Family::NvlsTree, _, _) if settings.version < Version::V2_21 => 23.0,
        (Family::Nvls | Family::NvlsTree, _, _) => 25.0,
    }
}

/// What the table of some versions has for every hand-over of a tree with the simple protocol, to
/// keep off it: no time.
pub fn tree_simple_kept_off_us(version: Version) -> Option<f64> {
    (Version::V2_19..=Version::V2_22).contains(&version).then_some(28.0)
}

/// One hand-over between servers (`hwLatencies`, network). With one rank in each server nothing
/// hides a ring's, so NCCL takes the tree's.
pub fn net_latency_us(
    settings: &Settings,
    shape: &Shape,
    family: Family,
    protocol: Protocol,
) -> f64 {
    use Protocol::{Ll, Ll128, Simple};
    if settings.architecture == Architecture::Cdna3 {
        // RCCL src/graph/tuning.cc, model 0; model 5 has 320 us for a ring, which steers the
        // choice rather than tells a time.
        match (family, protocol) {
            (Family::Tree, Ll) => return 11.8,
            (Family::Tree, Ll128) => return 18.2,
            (Family::Tree, Simple) => return 20.8,
            (Family::Ring, Ll) => return 9.5,
            (Family::Ring, Ll128) => return 19.8,
            (Family::Ring, Simple) => return 15.1,
            _ => {}
        }
    }
    let family = match family {
        Family::Ring if shape.per_domain == 1 => Family::Tree,
        family => family,
    };
    match (family, protocol) {
        (Family::Tree, Ll) => 5.0,
        (Family::Tree, Ll128) => 8.5,
        (Family::Ring, Ll) => 2.7,
        (Family::Ring, Ll128) => 4.0,
        (Family::Tree | Family::Ring, Simple) | (Family::Pat, _) => 14.0,
        (Family::CollNetDirect, _) => 31.0,
        (Family::CollNetChain, _) => 30.0,
        (Family::Nvls, _) => 18.0,
        (Family::NvlsTree, _) if settings.version < Version::V2_19 => 19.0,
        (Family::NvlsTree, _) if settings.version < Version::V2_28 => 14.0,
        (Family::NvlsTree, _) => 20.9,
    }
}

/// Posting one message to a NIC (`getNetOverhead`): three posts with the simple protocol, for the
/// send, the receive and the flush. Nothing inside one domain.
pub fn post_us(settings: &Settings, shape: &Shape, protocol: Protocol) -> f64 {
    if shape.domains == 1 {
        return 0.0;
    }
    let one = match settings.cpu {
        Cpu::Intel | Cpu::Arm => 1.0,
        Cpu::Amd => 2.0,
    };
    if protocol == Protocol::Simple { 3.0 * one } else { one }
}

/// Whether a message with the simple protocol ends with a flush: before Hopper GPUs may see its
/// flag before its bytes, and up to 2.18 NCCL flushed on Hopper too (NCCL `src/graph/paths.cc`,
/// `ncclTopoNeedFlush`).
pub fn flushes(settings: &Settings) -> bool {
    match settings.architecture {
        Architecture::Ampere | Architecture::Pcie | Architecture::Cdna3 => true,
        Architecture::Hopper | Architecture::Blackwell => settings.version < Version::V2_19,
    }
}

/// What a proxy's thread spends on one message, of whatever channel: as [`post_us`], without the
/// flush where there is none.
pub fn proxy_us(settings: &Settings, shape: &Shape, protocol: Protocol) -> f64 {
    let flushed = protocol == Protocol::Simple && flushes(settings);
    post_us(settings, shape, if flushed { Protocol::Simple } else { Protocol::Ll })
}

/// The most that LL moves, all channels together (`llMaxBws`).
pub fn ll_max(settings: &Settings, shape: &Shape) -> f64 {
    let by_scale = |one: f64, two: f64, more: f64| match shape.domains {
        1 => one,
        2 => two,
        _ => more,
    };
    // Inside a server by GPU, between servers by processor.
    let one = match settings.architecture {
        Architecture::Ampere | Architecture::Pcie | Architecture::Cdna3 => 87.7,
        Architecture::Hopper if settings.version < Version::V2_21 => 87.7,
        Architecture::Hopper => 141.0,
        Architecture::Blackwell => 282.0,
    };
    match settings.cpu {
        Cpu::Intel | Cpu::Arm => by_scale(one, 39.0, 20.4),
        Cpu::Amd => by_scale(one, 22.5, 19.0),
    }
}

/// What NCCL expects flags with every eight bytes to leave of a ring's bandwidth.
pub fn expected_ll_factor(settings: &Settings, shape: &Shape, collective: Collective) -> f64 {
    match settings.architecture {
        Architecture::Cdna3 => ll_factor(settings, shape, collective),
        _ if settings.version < Version::V2_21 => ll_factor(settings, shape, collective),
        _ => 0.5,
    }
}

/// What flags with every eight bytes leave of the bandwidth. NCCL up to 2.21: a quarter where the
/// data is also reduced or sent on a network, else a third; NCCL has since raised it to a half for
/// the choice ([`expected_ll_factor`]). RCCL's model 5: 8 %.
pub fn ll_factor(settings: &Settings, shape: &Shape, collective: Collective) -> f64 {
    let reduces = matches!(collective, Collective::AllReduce | Collective::Reduce);
    match settings.architecture {
        Architecture::Cdna3 => 0.08,
        _ if 1 < shape.domains || reduces => 0.25,
        _ => 1.0 / 3.0,
    }
}

/// The most that a ring channel moves with LL128 (`perChMaxRingLL128Bws`).
pub fn ring_ll128_channel_max(settings: &Settings, shape: &Shape) -> f64 {
    match settings.architecture {
        Architecture::Ampere | Architecture::Pcie | Architecture::Cdna3 => 20.0,
        Architecture::Hopper => 36.7,
        Architecture::Blackwell if Version::V2_28 < settings.version => 40.0,
        Architecture::Blackwell if settings.version == Version::V2_28 && shape.domains == 2 => 34.6,
        Architecture::Blackwell => 73.4,
    }
}

/// The most that a tree channel moves (`perChMaxTreeBws`, `perChMaxTreeLL128Bws`).
pub fn tree_channel_max(settings: &Settings, shape: &Shape, protocol: Protocol) -> f64 {
    let by_scale = |[one, two, more]: [f64; 3]| match shape.domains {
        1 => one,
        2 => two,
        _ => more,
    };
    let old = settings.version < Version::V2_28;
    match (settings.architecture, protocol) {
        (Architecture::Ampere | Architecture::Pcie | Architecture::Cdna3, Protocol::Ll128) => 20.0,
        (Architecture::Hopper, Protocol::Ll128) => by_scale([36.7, 36.7, 29.0]),
        (Architecture::Blackwell, Protocol::Ll128) if old => by_scale([73.4, 73.4, 58.0]),
        (Architecture::Blackwell, Protocol::Ll128) => by_scale([55.6, 31.67, 20.0]),
        (Architecture::Ampere | Architecture::Pcie | Architecture::Cdna3, _) => {
            by_scale([24.0, 23.6, 17.8])
        }
        (Architecture::Hopper, _) => by_scale([38.7, 41.4, 36.0]),
        (Architecture::Blackwell, _) if old => by_scale([77.4, 82.8, 72.0]),
        (Architecture::Blackwell, _) => by_scale([70.0, 42.8, 24.0]),
    }
}

/// The most that a channel of an NVLS tree moves (`perChMaxNVLSTreeBws`, from 2.28 on).
pub fn nvls_tree_channel_max(settings: &Settings, shape: &Shape) -> f64 {
    match (settings.architecture, shape.domains) {
        _ if settings.version < Version::V2_28 => f64::INFINITY,
        (Architecture::Blackwell, 2) => 96.0,
        (Architecture::Blackwell, _) if settings.version < Version::V2_30 => 43.8,
        (Architecture::Blackwell, _) => 80.0,
        (_, 2) => 57.7,
        _ => 45.5,
    }
}

/// NCCL's correction of a tree's bandwidth (`treeCorrectionFactor`): powers of two from 64 B on.
pub fn tree_correction(protocol: Protocol, bytes: Bytes) -> f64 {
    const LL: [f64; 24] = [
        1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.0, 1.0, 1.0, 1.0,
    ];
    const LL128: [f64; 24] = [
        1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9,
        0.9, 0.9, 0.9, 1.0, 1.0, 1.0,
    ];
    const SIMPLE: [f64; 24] = [
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8,
        0.7, 0.7, 0.8, 0.9, 0.9, 0.9,
    ];
    let row = match protocol {
        Protocol::Ll => &LL,
        Protocol::Ll128 => &LL128,
        Protocol::Simple => &SIMPLE,
    };
    let at = (bytes.get() >> 6).max(1).ilog2() as usize;
    row.get(at).copied().unwrap_or(1.0)
}

/// Whether NCCL uses the protocol there: LL128 needs stores of 128 bytes to stay whole, which
/// NVLink keeps, and RCCL's does not use it on xGMI between servers.
pub fn has_protocol(settings: &Settings, shape: &Shape, protocol: Protocol) -> bool {
    let keeps = !matches!(settings.architecture, Architecture::Pcie | Architecture::Cdna3);
    protocol != Protocol::Ll128 || (shape.scale_up == ScaleUp::Switched && keeps)
}

/// The buffer of a channel towards one peer, in bytes of data: LL's and LL128's are smaller
/// (`src/include/device.h`: 8 slots of 512 threads with 8 lines of 8 bytes of data; of 640
/// threads with 120 elements of 8 bytes, 120/128 of them data).
pub fn buffer(settings: &Settings, protocol: Protocol) -> Bytes {
    match protocol {
        Protocol::Ll => Bytes::new(8 * 512 * 8 * 8),
        Protocol::Ll128 => Bytes::new(8 * 640 * 120 * 8 * 15 / 16),
        Protocol::Simple => settings.buffer,
    }
}

/// A channel is not used for less than this: threads of a block times the bytes that are worth a
/// thread (`NCCL_LL_THREAD_THRESHOLD` 8, of a ring for each of its `parts`; `…LL128…` 8,
/// `…SIMPLE…` 64).
pub fn least_channel_bytes(protocol: Protocol, parts: u32) -> u64 {
    match protocol {
        Protocol::Ll => 512 * 8 * u64::from(parts),
        Protocol::Ll128 => 640 * 8,
        Protocol::Simple => 512 * 64,
    }
}

/// How many channels NCCL's search finds: [`searched`]. RCCL has two for each cycle of a mesh, and
/// between servers one for each rail.
pub fn search_channels(settings: &Settings, communicator: &Communicator) -> u32 {
    let shape = communicator.shape();
    match (settings.architecture, shape.domains) {
        (Architecture::Cdna3, 1) => 2 * shape.distinct_cycles(),
        (Architecture::Cdna3, _) => shape.rails,
        _ => searched(settings, shape).channels,
    }
}

/// What the search finds.
struct Searched {
    channels: u32,
    /// What each is to move.
    speed: f64,
}

/// NCCL's search for rings, in closed form (`ncclTopoCompute` and `ncclTopoDupChannels` of
/// `src/graph/search.cc`). It goes down a list of speeds and keeps the first one of which the most
/// channels fit, all together: as many as a NIC carries of them, times the NICs, and as the links
/// of a GPU do. Where the plug-in makes one device of all NICs of a GPU, that is a NIC. Few and
/// fast channels are then halved: 8 × 96 at NICs of 800 Gb/s become 16 × 48, where 8 × 48 at 400
/// stay as they are.
fn searched(settings: &Settings, shape: &Shape) -> Searched {
    let (blackwell, hopper) = match settings.architecture {
        Architecture::Blackwell => (true, false),
        Architecture::Hopper => (false, true),
        Architecture::Ampere | Architecture::Pcie | Architecture::Cdna3 => (false, false),
    };
    let inside = shape.domains == 1;
    let speeds: &[f64] = match inside {
        true if blackwell => &[90., 80., 70., 60., 50., 45., 40., 30., 24., 20., 19., 18.],
        true if hopper => &[60., 50., 40., 30., 24., 20., 15., 12., 11., 6., 3.],
        true => &[40., 30., 20., 18., 15., 12., 10., 9., 7., 6., 5., 4., 3.],
        false if blackwell => &[
            96., 86., 80., 48., 45.1, 42., 40., 30., 24., 22., 20., 17.5, 15., 12., 6., 3., 2.4,
            1.2, 0.24, 0.12,
        ],
        false if hopper => {
            &[48., 45., 42., 40., 30., 24., 22., 20., 17.5, 15., 12., 6., 3., 2.4, 1.2, 0.24, 0.12]
        }
        false => &[
            48., 30., 28., 24., 20., 18., 15., 12., 10., 9., 7., 6., 5., 4., 3., 2.4, 1.2, 0.24,
            0.12,
        ],
    };
    let links = shape
        .scale_up_rate
        .map_or(f64::INFINITY, |rate| 1e-9 * rate.bytes_per_s() * settings.architecture.counted());
    let nics = stripes(settings, shape);
    let (devices, nic) = match inside {
        true => (1, links),
        false => (shape.rails / nics, f64::from(nics) * nic_gbytes(shape)),
    };
    // The most that there are: half of `MAXCHANNELS`, for they are doubled.
    let most = 32;
    let fit = |speed: f64| -> u32 {
        let by_nics = (nic / speed) as u32 * devices;
        let by_links = (links / speed) as u32;
        // Of m channels between servers each GPU is the last of one, which leaves by its NIC.
        let spared = if inside { 0 } else { by_links / shape.per_domain.saturating_sub(1).max(1) };
        by_nics.min(by_links.saturating_add(spared)).min(most)
    };
    let mut best = Searched { channels: 0, speed: 1.0 };
    for &speed in speeds {
        let all = f64::from(best.channels) * best.speed;
        if best.channels == most
            || links <= all
            || (0 < best.channels && speed <= 0.49 * best.speed)
        {
            break;
        }
        let channels = fit(speed);
        if all < f64::from(channels) * speed {
            best = Searched { channels, speed };
        }
    }
    let Searched { channels, speed } = best;
    let stays = speed < 25.0 || ((blackwell || hopper) && speed < 50.0 && 4 < channels);
    match (channels, stays) {
        (0, _) => Searched { channels: 1, speed: 0.1 },
        (_, true) => best,
        (_, false) => {
            let doubled = (2 * channels).min(most);
            Searched { channels: doubled, speed: speed / f64::from(doubled.div_ceil(channels)) }
        }
    }
}

/// Channels of the search that move as much as all those that there are: NCCL's limits for each
/// were measured with two for one of the search.
pub fn search_equivalent(settings: &Settings, communicator: &Communicator) -> f64 {
    0.5 * f64::from(ring_channels(settings, communicator))
}

/// Over how many NICs each channel is spread.
pub fn stripes(settings: &Settings, shape: &Shape) -> u32 {
    let several = shape.rails / shape.per_domain.max(1);
    if settings.plugin().stripes() && 1 < shape.domains { several.max(1) } else { 1 }
}

/// How many channels rings and trees have: those of the search, doubled, and at most 64
/// (`MAXCHANNELS`). From Hopper on, fewer than 16 between servers are doubled again where each
/// moves more than 45 (NCCL `src/graph/connect.cc`).
pub fn ring_channels(settings: &Settings, communicator: &Communicator) -> u32 {
    let shape = communicator.shape();
    let doubled = 2 * search_channels(settings, communicator);
    let is_recent = matches!(settings.architecture, Architecture::Hopper | Architecture::Blackwell);
    let again =
        is_recent && 1 < shape.domains && doubled < 16 && 45.0 < searched(settings, shape).speed;
    let channels = if again { 2 * doubled } else { doubled };
    channels.max(settings.least_channels).clamp(1, 64)
}

/// How many channels NVLS has (NCCL `src/transport/nvls.cc`): 16 on Hopper; on Blackwell 24 in one
/// domain and 32 between servers, from 2.30 on 24 with more than two of them and fast NICs.
pub fn nvls_channels(settings: &Settings, shape: &Shape) -> u32 {
    let nic = nic_gbytes(shape);
    let version = settings.version;
    let channels = match shape.per_domain {
        _ if settings.architecture != Architecture::Blackwell => 16,
        _ if version < Version::V2_25 => 16,
        _ if shape.domains == 1 && Version::V2_26 < version => 24,
        _ if !is_tuned(settings, shape) || shape.domains == 2 => 32,
        9.. if 96.0 <= nic => 32,
        _ => 24,
    };
    channels.max(settings.least_channels).min(64)
}

/// The chunk of NVLS before messages are too small for it: 128 KiB, or what 2.30 gives Blackwell.
pub fn nvls_chunk(settings: &Settings, shape: &Shape) -> u64 {
    let tuned = match shape.per_domain {
        _ if !is_tuned(settings, shape) => 128 << 10,
        ..=4 if shape.domains == 2 => 256 << 10,
        ..=8 if shape.domains != 2 && 96.0 <= nic_gbytes(shape) => 256 << 10,
        _ => 128 << 10,
    };
    settings.nvls_chunk.map_or(tuned, Bytes::get)
}

/// The same for NVLS trees. Up to 2.20 they began with a slot of the buffer.
pub fn nvls_tree_chunk(settings: &Settings, shape: &Shape) -> u64 {
    let (nic, chunk) = (nic_gbytes(shape), nvls_chunk(settings, shape));
    let slot = settings.buffer.get() / 8;
    let (old, fast) = (settings.version < Version::V2_21, 96.0 <= nic);
    let most = match (shape.domains, shape.per_domain) {
        _ if settings.version == Version::V2_18 => slot,
        (..4, _) if old => slot,
        (4.., _) if !is_tuned(settings, shape) => 64 << 10,
        _ if !is_tuned(settings, shape) => chunk,
        // NIC and GPU are taken to share a PCIe switch.
        (2, ..=4) => 256 << 10,
        (2, 9..=15) => 128 << 10,
        (2, ..=8) if fast => 128 << 10,
        (2, _) => 64 << 10,
        (_, ..=8) if fast => 256 << 10,
        (_, ..=31) if fast => 128 << 10,
        _ => 64 << 10,
    };
    let most = settings.nvls_tree_chunk.map_or(most, Bytes::get);
    if old { most } else { chunk.min(most) }
}

/// Whether NCCL 2.30 has chunks of its own for NVLS between servers there.
fn is_tuned(settings: &Settings, shape: &Shape) -> bool {
    let blackwell = settings.architecture == Architecture::Blackwell;
    let recent = Version::V2_30 <= settings.version;
    blackwell && recent && 1 < shape.domains && 48.0 <= nic_gbytes(shape)
}

/// What a NIC moves, as NCCL counts it.
fn nic_gbytes(shape: &Shape) -> f64 {
    shape.nic_rate.map_or(0.0, |rate| rate.bytes_per_s() / 1e9)
}

/// What a GPU's scale-up links give a collective; `None` without any.
pub fn scale_up_bandwidth(settings: &Settings, shape: &Shape) -> Option<f64> {
    let efficiency =
        settings.scale_up_efficiency.unwrap_or(settings.architecture.scale_up_efficiency());
    let raw = match shape.scale_up {
        ScaleUp::Absent => return None,
        ScaleUp::Switched => shape.scale_up_rate?.bytes_per_s(),
        // A ring takes one link of each GPU, and there are as many rings as cycles.
        ScaleUp::Mesh => {
            let cycles = shape.per_domain.saturating_sub(1).max(1);
            shape.mesh_link_rate?.bytes_per_s() * f64::from(cycles)
        }
    };
    Some(raw * efficiency / 1e9)
}

/// What the NICs of a domain give it together.
pub fn rails_bandwidth(settings: &Settings, shape: &Shape) -> Option<f64> {
    let nic = shape.nic_rate?.bytes_per_s() * settings.wire_efficiency / 1e9;
    Some(nic * f64::from(shape.rails))
}

/// The bus bandwidth of rings: what the links inside and between domains both give.
pub fn bus_bandwidth(settings: &Settings, shape: &Shape) -> f64 {
    let inside = scale_up_bandwidth(settings, shape).filter(|_| 1 < shape.per_domain);
    let between = rails_bandwidth(settings, shape).filter(|_| 1 < shape.domains);
    // A lone rank moves nothing: any positive number does.
    inside.unwrap_or(f64::INFINITY).min(between.unwrap_or(f64::INFINITY)).min(1e6)
}
