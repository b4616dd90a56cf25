//! Servers: the communication library's variables and topology, and the NICs.

use fabric::hardware::ScaleUpKind;
use fabric::routing::{Policy, QueuePairUse};
use scenario::Loaded;
use traffic::collective::{CrossNic, Pxn};
use traffic::nccl::{Protocol, Usage};

use super::switch::DSCP;

/// NCCL's variables: those that somebody has set in the scenario, by the names that NCCL's and
/// RCCL's documents have.
pub(super) fn nccl(loaded: &Loaded) -> String {
    let library = &loaded.scenario.library;
    let routing = &loaded.scenario.network.settings.routing;
    let mut text = String::new();
    let mut set = |key: &str, variable: &str, value: String| {
        if loaded.is_given(key) {
            text += &format!("{variable}={value}\n");
        }
    };
    let truth = |truth: bool| u8::from(truth).to_string();
    set("network.routing.qps", "NCCL_IB_QPS_PER_CONNECTION", routing.qps.to_string());
    let split = truth(routing.split == QueuePairUse::Split);
    set("network.routing.split", "NCCL_IB_SPLIT_DATA_ON_QPS", split);
    let adaptive = matches!(routing.policy, Policy::Adaptive | Policy::InfinibandAdaptive);
    set("network.routing.policy", "NCCL_IB_ADAPTIVE_ROUTING", truth(adaptive));
    if let Some(algorithm) = &library.algorithm {
        set("library.algorithm", "NCCL_ALGO", algorithm.clone());
    }
    let protocol = match library.protocol {
        Some(Protocol::Ll) => "LL",
        Some(Protocol::Ll128) => "LL128",
        Some(Protocol::Simple) | None => "Simple",
    };
    if library.protocol.is_some() {
        set("library.protocol", "NCCL_PROTO", protocol.to_owned());
    }
    if let Some(channels) = library.channels {
        set("library.channels", "NCCL_MIN_NCHANNELS", channels.to_string());
        set("library.channels", "NCCL_MAX_NCHANNELS", channels.to_string());
    }
    set("library.buffer", "NCCL_BUFFSIZE", library.buffer.get().to_string());
    let chunk = library.p2p_net_chunk.get().to_string();
    set("library.p2p_net_chunk", "NCCL_P2P_NET_CHUNKSIZE", chunk);
    let crossing = truth(library.cross_nic == CrossNic::Crossing);
    set("library.cross_nic", "NCCL_CROSS_NIC", crossing);
    set("library.pxn", "NCCL_PXN_DISABLE", truth(library.pxn == Pxn::Disabled));
    set("library.nvls", "NCCL_NVLS_ENABLE", truth(library.nvls == Usage::Enabled));
    set("library.sharp", "NCCL_COLLNET_ENABLE", truth(library.sharp == Usage::Enabled));
    text
}

/// Speeds of PCIe that NCCL knows, in GT/s.
const SPEEDS: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];

/// The inside of a server, as NCCL reads it: a PCI switch for each NIC and the GPUs that use it.
pub(super) fn topology(loaded: &Loaded, why: &str) -> String {
    let cluster = &loaded.scenario.cluster;
    let catalogue = &loaded.scenario.catalogue;
    let gpu = catalogue.gpu.get(&cluster.gpu);
    let kind = cluster.scale_up.kind.or(gpu.map(|gpu| gpu.scale_up));
    let nic = catalogue.nic.get(&cluster.nic);
    let mbps = cluster.nic_rate.map_or_else(
        || nic.map_or(0.0, |nic| 1e3 * nic.rate_gbps.value),
        |rate| 8.0 * rate.bytes_per_s() / 1e6,
    );
    let fabric = loaded.fabric();
    let (gpus, nics) = (fabric.gpus_per_node(), fabric.nics_per_node());
    let of_gpu = |gpu: usize| -> Vec<usize> {
        let own = cluster.nic_affinity.get(gpu).and_then(|own| serde_json::to_value(own).ok());
        match own {
            Some(serde_json::Value::Array(list)) => {
                list.iter().filter_map(|nic| Some(nic.as_u64()? as usize)).collect()
            }
            Some(other) => other.as_u64().into_iter().map(|nic| nic as usize).collect(),
            None => vec![gpu * nics.max(1) / gpus.max(1)],
        }
    };
    let lanes = 16.0;
    let exact = 8.0 * cluster.pcie.bytes_per_s() / (lanes * 1e9) * 130.0 / 128.0;
    let near = SPEEDS.into_iter().find(|speed| (exact / speed - 1.0).abs() < 2e-3);
    let speed = format!("{:?} GT/s PCIe", near.unwrap_or(exact));
    let mut text = format!("<!-- {} -->\n<system version=\"1\">\n", why.replace("--", "- -"));
    text += "  <cpu numaid=\"0\" arch=\"x86_64\">\n";
    for nic in 0..nics {
        let own: Vec<usize> = (0..gpus).filter(|gpu| of_gpu(*gpu).first() == Some(&nic)).collect();
        let is_second =
            (0..gpus).any(|gpu| of_gpu(gpu).contains(&nic) && of_gpu(gpu).first() != Some(&nic));
        if own.is_empty() && is_second {
            continue;
        }
        let pci = |at: usize, class: &str| {
            format!(
                "<pci busid=\"0000:{at:02x}:00.0\" class=\"{class}\" link_speed=\"{speed}\" \
                 link_width=\"16\">"
            )
        };
        text += &format!("    {}\n", pci(0x80 + nic, "0x060400"));
        let mut cards: Vec<usize> = own.iter().flat_map(|gpu| of_gpu(*gpu)).collect();
        cards.push(nic);
        cards.sort_unstable();
        cards.dedup();
        for gpu in &own {
            text += &format!("      {}\n        <gpu dev=\"{gpu}\">", pci(0x10 + gpu, "0x030200"));
            text += &links(kind, *gpu, gpus);
            text += "</gpu>\n      </pci>\n";
        }
        for card in cards {
            text += &format!(
                "      {}\n        <nic><net name=\"net{card}\" dev=\"{card}\" speed=\"{mbps}\" \
                 port=\"1\"/></nic>\n      </pci>\n",
                pci(0x40 + card, "0x020000")
            );
        }
        text += "    </pci>\n";
    }
    text + "  </cpu>\n</system>\n"
}

/// How a GPU reaches the others.
fn links(kind: Option<ScaleUpKind>, own: usize, gpus: usize) -> String {
    match kind {
        Some(ScaleUpKind::Switched) => {
            "<nvlink target=\"0000:ff:00.0\" count=\"1\" tclass=\"0x068000\"/>".to_owned()
        }
        Some(ScaleUpKind::Mesh) => {
            let others = (0..gpus).filter(|gpu| *gpu != own);
            let link = |gpu: usize| {
                let target = 0x10 + gpu;
                format!(
                    "<nvlink target=\"0000:{target:02x}:00.0\" count=\"1\" tclass=\"0x030200\"/>"
                )
            };
            others.map(link).collect()
        }
        _ => String::new(),
    }
}

/// Commands that set the NICs.
pub(super) fn nic(loaded: &Loaded) -> String {
    let settings = &loaded.scenario.network.settings;
    let controlled = serde_json::to_value(&settings.congestion).unwrap_or_default();
    let control = controlled["control"].as_str().unwrap_or("none").to_owned();
    let is_on = u8::from(control == "dcqcn");
    let pfc = u8::from(settings.pfc.enabled);
    let nic = loaded.scenario.cluster.nic.as_str();
    let mut text = String::from("set -eu\n");
    if nic.starts_with("connectx") || nic.starts_with("bluefield") {
        text += "for device in /sys/class/infiniband/mlx5_*; do\n\
                 \x20 for port in \"$device\"/device/net/*; do\n\
                 \x20   eth=${port##*/}\n\
                 \x20   mlnx_qos -i \"$eth\" --trust dscp\n";
        text += &format!("    mlnx_qos -i \"$eth\" --pfc 0,0,0,{pfc},0,0,0,0\n");
        for end in ["roce_np", "roce_rp"] {
            text += &format!("    echo {is_on} > \"/sys/class/net/$eth/ecn/{end}/enable/3\"\n");
        }
        text += "  done\ndone\n";
    } else if nic == "thor2" {
        text += &format!(
            "# Broadcom's bnxt_setupcc.sh: -m 1 pauses, 2 congestion control, 3 both. Code points\n\
             # and classes as Juniper's validated design for AMD has them: RoCE 26 in 3, CNP 48 in 7.\n\
             for device in /sys/class/infiniband/bnxt_re*; do\n\
             \x20 eth=$(ls \"$device\"/device/net | head -n 1)\n\
             \x20 bnxt_setupcc.sh -d \"${{device##*/}}\" -i \"$eth\" -m {} -s 26 -p 48 -r 3 -c 7\n\
             done\n",
            pfc + 2 * is_on
        );
    } else {
        text += &format!("# How {nic} is told is not known here:\n");
    }
    text += &format!("# Congestion control: {control}; pauses for class 3: {pfc}.\n");
    let class = 4 * DSCP.parse::<u32>().unwrap_or(0);
    text += &format!("# Class 3 is code point {DSCP}: NCCL_IB_TC={class} in NCCL's environment.\n");
    text
}
