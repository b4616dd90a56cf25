//! Network plug-ins: what a library between NCCL and the NICs declares and sets.
//!
//! NCCL asks its network plug-in for a latency and adds it to every hand-over between servers
//! when it chooses, twice with the simple protocol (`latencyInter`, and again for the flush; NCCL
//! `src/graph/tuning.cc`). Its own plug-ins for InfiniBand and sockets declare none. A plug-in may
//! also set NCCL's environment: buffers and chunks.
//!
//! Source: aws-ofi-nccl `src/platform-aws.cpp` (`platform_data_map`), the same from 1.7 to 1.21
//! but for platforms that were added.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Rate, Span};

use super::Architecture;

/// What stands between NCCL and the NICs.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Plugin {
    /// NCCL's own, for InfiniBand, RoCE and sockets.
    #[default]
    Internal,
    /// aws-ofi-nccl on p4d and p4de: eight A100, four EFA NICs.
    AwsP4d,
    /// aws-ofi-nccl on p5 and p5e: eight H100 or H200, 32 EFA NICs of 100 Gb/s.
    AwsP5,
    /// aws-ofi-nccl on p5en and p6: sixteen of 200 Gb/s, or eight of 400.
    AwsP5en,
}

impl Plugin {
    /// The plug-in that EFA comes with, by the GPUs and NICs of the instance.
    pub fn of_efa(architecture: Architecture, nic: Option<Rate>) -> Self {
        let slow = nic.is_some_and(|rate| rate <= Rate::from_gbps(100));
        match architecture {
            Architecture::Ampere => Self::AwsP4d,
            Architecture::Hopper if slow => Self::AwsP5,
            _ => Self::AwsP5en,
        }
    }

    /// The latency that it declares.
    pub fn declared(self) -> Span {
        match self {
            Self::Internal => Span::ZERO,
            Self::AwsP4d | Self::AwsP5 => Span::from_us(75),
            Self::AwsP5en => Span::from_us(35),
        }
    }

    /// `NCCL_BUFFSIZE`, if it sets it.
    pub fn buffer(self) -> Option<Bytes> {
        (self != Self::Internal).then(|| Bytes::from_mib(8))
    }

    /// `NCCL_P2P_NET_CHUNKSIZE`, if it sets it.
    pub fn p2p_net_chunk(self) -> Option<Bytes> {
        (self != Self::Internal).then(|| Bytes::from_kib(512))
    }

    /// `NCCL_NVLS_CHUNKSIZE` and `NCCL_NVLSTREE_MAX_CHUNKSIZE`, if it sets them.
    pub fn nvls_chunk(self) -> Option<Bytes> {
        matches!(self, Self::AwsP5 | Self::AwsP5en).then(|| Bytes::from_kib(512))
    }

    /// Whether all NICs of a GPU are one device to NCCL and every message is spread over them:
    /// the plug-in's RDMA protocol, which p5 and later use.
    pub fn stripes(self) -> bool {
        matches!(self, Self::AwsP5 | Self::AwsP5en)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::Settings;

    /// aws-ofi-nccl, `platform_data_map`: all three platforms set buffers and chunks of
    /// point-to-point messages, those with NVLink SHARP its chunks too; what somebody has set
    /// stays.
    #[test]
    fn a_plugin_sets_what_nobody_else_has() {
        let (kib, mib) = (Bytes::from_kib(512), Bytes::from_mib(8));
        let set = |plugin| {
            let settings = Settings::default().with_plugin(plugin);
            let Settings { buffer, p2p_net_chunk, nvls_chunk, nvls_tree_chunk, .. } = settings;
            assert_eq!(settings.plugin, Some(plugin));
            (buffer, p2p_net_chunk, nvls_chunk, nvls_tree_chunk)
        };
        assert_eq!(set(Plugin::AwsP4d), (mib, kib, None, None));
        assert_eq!(set(Plugin::AwsP5), (mib, kib, Some(kib), Some(kib)));
        assert_eq!(set(Plugin::AwsP5en), (mib, kib, Some(kib), Some(kib)));
        let usual = Settings::default();
        assert_eq!(set(Plugin::Internal), (usual.buffer, usual.p2p_net_chunk, None, None));
        let own = Bytes::from_kib(96);
        let mine = Settings {
            buffer: own,
            p2p_net_chunk: own,
            nvls_chunk: Some(own),
            nvls_tree_chunk: Some(own),
            ..usual
        };
        let kept = mine.with_plugin(Plugin::AwsP5);
        assert_eq!((kept.buffer, kept.p2p_net_chunk), (own, own));
        assert_eq!((kept.nvls_chunk, kept.nvls_tree_chunk), (Some(own), Some(own)));
    }

    #[test]
    fn efa_comes_with_the_plugin_of_its_instance() {
        let of = |architecture, gbps| Plugin::of_efa(architecture, Some(Rate::from_gbps(gbps)));
        assert_eq!(of(Architecture::Ampere, 100), Plugin::AwsP4d);
        assert_eq!(of(Architecture::Hopper, 100), Plugin::AwsP5);
        assert_eq!(of(Architecture::Hopper, 200), Plugin::AwsP5en);
        assert_eq!(of(Architecture::Blackwell, 400), Plugin::AwsP5en);
        assert_eq!(Plugin::of_efa(Architecture::Hopper, None), Plugin::AwsP5en);
    }
}
