//! The words that people write in the columns of a row, and what they mean.
//!
//! Sources name the same thing in several ways; every table here maps what was seen, or is usual in
//! the software that prints it, to one meaning. Letters are lower case, blanks and underscores are
//! hyphens.

use fabric::transport::Transport;
use job::config::{Accumulation, AttentionKernel, Fp8Recipe, Loss, Precision};
use job::model::Usual;
use job::parallel::Sharding;
use job::schedule::Schedule;

/// A word as the tables have it.
pub fn plain(text: &str) -> String {
    text.trim().to_lowercase().replace(['_', ' '], "-")
}

/// What is multiplied, and the recipe where the word names one too: NeMo's `fp8-cs` (current
/// scaling), `fp8-ds` (delayed), `fp8-sc` (sub-channel: by blocks), `fp8-mx`.
pub const PRECISIONS: [(&str, (Precision, Option<Fp8Recipe>)); 22] = [
    ("", (Precision::Bf16, None)),
    ("bf16", (Precision::Bf16, None)),
    ("bfloat16", (Precision::Bf16, None)),
    ("bf16-mixed", (Precision::Bf16, None)),
    ("mixed", (Precision::Bf16, None)),
    ("fp16", (Precision::Fp16, None)),
    ("fp16-mixed", (Precision::Fp16, None)),
    ("fp8", (Precision::Fp8, None)),
    ("fp8-mixed", (Precision::Fp8, None)),
    ("bf16-fp8", (Precision::Fp8, None)),
    ("fp8-ds", (Precision::Fp8, Some(Fp8Recipe::Delayed))),
    ("fp8-cs", (Precision::Fp8, Some(Fp8Recipe::Current))),
    ("fp8-sc", (Precision::Fp8, Some(Fp8Recipe::Block))),
    ("fp8-block", (Precision::Fp8, Some(Fp8Recipe::Block))),
    ("fp8-blockwise", (Precision::Fp8, Some(Fp8Recipe::Block))),
    ("fp8-mx", (Precision::Fp8, Some(Fp8Recipe::Mx))),
    ("mxfp8", (Precision::Fp8, Some(Fp8Recipe::Mx))),
    ("fp4", (Precision::Fp4, None)),
    ("nvfp4", (Precision::Fp4, None)),
    ("mxfp4", (Precision::Fp4, None)),
    ("fp32", (Precision::Fp32, None)),
    ("tf32", (Precision::Fp32, None)),
];

/// How fp8 is scaled; Transformer Engine's and NeMo's names among them.
pub const RECIPES: [(&str, Option<Fp8Recipe>); 15] = [
    ("", None),
    ("delayed", Some(Fp8Recipe::Delayed)),
    ("delayed-scaling", Some(Fp8Recipe::Delayed)),
    ("per-tensor", Some(Fp8Recipe::Delayed)),
    ("fused", Some(Fp8Recipe::Fused)),
    ("current", Some(Fp8Recipe::Current)),
    ("current-scaling", Some(Fp8Recipe::Current)),
    ("tensorwise", Some(Fp8Recipe::Current)),
    ("rowwise", Some(Fp8Recipe::Current)),
    ("block", Some(Fp8Recipe::Block)),
    ("blockwise", Some(Fp8Recipe::Block)),
    ("subchannel", Some(Fp8Recipe::Block)),
    ("mx", Some(Fp8Recipe::Mx)),
    ("mxfp8", Some(Fp8Recipe::Mx)),
    ("nvfp4", None),
];

/// Kernels of attention. Libraries take the hardware's fastest.
pub const ATTENTION: [(&str, AttentionKernel); 14] = [
    ("", AttentionKernel::Flash),
    ("unfused", AttentionKernel::Unfused),
    ("flash1", AttentionKernel::Flash1),
    ("flash2", AttentionKernel::Flash2),
    ("fa2", AttentionKernel::Flash2),
    ("flash-attention-2", AttentionKernel::Flash2),
    ("flash", AttentionKernel::Flash),
    ("flash3", AttentionKernel::Flash),
    ("fa3", AttentionKernel::Flash),
    ("flash4", AttentionKernel::Flash),
    ("fused", AttentionKernel::Flash),
    ("cudnn", AttentionKernel::Flash),
    ("te", AttentionKernel::Flash),
    ("sdpa", AttentionKernel::Flash),
];

/// How the loss is computed.
pub const LOSSES: [(&str, Loss); 5] = [
    ("", Loss::Fused),
    ("unfused", Loss::Unfused),
    ("fused", Loss::Fused),
    ("te", Loss::Fused),
    ("native", Loss::Fused),
];

/// How weight gradients come into the main gradients.
pub const ACCUMULATIONS: [(&str, Accumulation); 3] = [
    ("", Accumulation::Fused),
    ("fused", Accumulation::Fused),
    ("separate", Accumulation::Separate),
];

/// What is computed again; all layers, whole, in Megatron-LM's two ways.
pub const RECOMPUTE: [(&str, Usual); 6] = [
    ("", Usual::None),
    ("none", Usual::None),
    ("selective", Usual::Selective),
    ("full", Usual::Full),
    ("uniform", Usual::Full),
    ("block", Usual::Full),
];

/// Orders of microbatches, by any name that has one of these in it.
pub const SCHEDULES: [(&str, Schedule); 7] = [
    ("gpipe", Schedule::Gpipe),
    ("interleaved", Schedule::Interleaved),
    ("zero-bubble", Schedule::ZeroBubble),
    ("zb", Schedule::ZeroBubble),
    ("dualpipe", Schedule::DualPipe),
    ("vpp", Schedule::Interleaved),
    ("1f1b", Schedule::OneForwardOneBackward),
];

/// Where parameters, gradients and the optimizer's state lie.
pub const SHARDINGS: [(&str, Sharding); 18] = [
    ("", Sharding::None),
    ("none", Sharding::None),
    ("ddp", Sharding::None),
    ("zero1", Sharding::Zero1),
    ("zero2", Sharding::Zero2),
    ("zero3", Sharding::Zero3),
    ("zero-1", Sharding::Zero1),
    ("zero-2", Sharding::Zero2),
    ("zero-3", Sharding::Zero3),
    ("distributed-optimizer", Sharding::Zero1),
    ("fsdp", Sharding::Fsdp),
    ("fsdp1", Sharding::Fsdp),
    ("fsdp2", Sharding::Fsdp),
    ("megatron-fsdp", Sharding::Fsdp),
    ("custom-fsdp", Sharding::Fsdp),
    ("hsdp", Sharding::Hybrid),
    ("fsdp-no-reshard", Sharding::FsdpNoReshard),
    ("hybrid", Sharding::Hybrid),
];

/// Networks by other names than ours. Slingshot spreads packets as Ultra Ethernet does; GPUDirect-
/// TCPX and TCPXO are TCP whose payload goes to the GPU; SRD is EFA's transport.
const TRANSPORTS: [(&str, Transport); 12] = [
    ("roce", Transport::Rocev2),
    ("roce-v2", Transport::Rocev2),
    ("ethernet", Transport::Rocev2),
    ("spectrum-x", Transport::Rocev2),
    ("ib", Transport::Infiniband),
    ("slingshot", Transport::Uec),
    ("slingshot-11", Transport::Uec),
    ("srd", Transport::Efa),
    ("dsf", Transport::ScheduledEthernet),
    ("scheduled-fabric", Transport::ScheduledEthernet),
    ("tcpx", Transport::Tcp),
    ("tcpxo", Transport::Tcp),
];

/// Whether a word names what joins the GPUs of a server or rack.
pub fn is_scale_up(text: &str) -> bool {
    let word = text.to_lowercase();
    ["nvl", "mnnvl", "xgmi", "pcie"].iter().any(|name| word.starts_with(name))
}

/// `infiniband` of `infiniband-ndr`, `ib` of `ib-hdr`, `efa` of `efav2`: the rate is in a column of
/// its own.
fn without_generation(word: &str) -> &str {
    const INFINIBAND: [&str; 5] = ["-fdr", "-edr", "-hdr", "-ndr", "-xdr"];
    let named = word.starts_with("ib-") || word.starts_with("infiniband-");
    match INFINIBAND.iter().find_map(|rate| word.strip_suffix(rate)) {
        Some(name) if named => name,
        _ if word.starts_with("efa") => {
            word.trim_end_matches(char::is_numeric).trim_end_matches(['v', '-'])
        }
        _ => word,
    }
}

/// The transport of that name.
pub fn transport(text: &str) -> Option<Transport> {
    let word = plain(text);
    let word = word.strip_prefix("gpudirect-").unwrap_or(&word);
    let word = without_generation(word);
    let known = Transport::ALL.iter().chain(&TRANSPORTS);
    known.into_iter().find(|(name, _)| *name == word).map(|(_, transport)| *transport)
}

/// What people call a GPU that the catalogue has under another name.
const GPUS: [(&str, &str); 38] = [
    ("h20-96g", "h20"),
    ("h20-96gb", "h20"),
    ("h20-sxm", "h20"),
    ("gh200-96gb", "gh200"),
    ("gh200-480gb", "gh200"),
    ("l40s-48gb", "l40s"),
    ("a100-pcie-80gb", "a100-pcie"),
    ("h100-pcie-80gb", "h100-pcie"),
    ("mi250", "mi250x"),
    ("mi250x-gcd", "mi250x"),
    ("mi250x-64gb", "mi250x"),
    ("h100", "h100-sxm"),
    ("h100-80g", "h100-sxm"),
    ("h100-80gb", "h100-sxm"),
    ("h100-sxm5", "h100-sxm"),
    ("h100-sxm5-80gb", "h100-sxm"),
    ("h200", "h200-sxm"),
    ("h200-141gb", "h200-sxm"),
    ("h200-sxm5", "h200-sxm"),
    ("h800-80gb", "h800"),
    ("h800-sxm", "h800"),
    ("a100", "a100-80g"),
    ("a100-80gb", "a100-80g"),
    ("a100-sxm", "a100-80g"),
    ("a100-sxm4-80gb", "a100-80g"),
    ("a100-40gb", "a100-40g"),
    ("a100-sxm4-40gb", "a100-40g"),
    ("a800", "a800-80g"),
    ("a800-80gb", "a800-80g"),
    ("b200-sxm", "b200"),
    ("b300-sxm", "b300"),
    ("gb200-nvl72", "gb200"),
    ("gb300-nvl72", "gb300"),
    ("mi355", "mi355x"),
    ("mi300", "mi300x"),
    ("v100", "v100-32g"),
    ("v100-32gb", "v100-32g"),
    ("v100-sxm3-32gb", "v100-32g"),
];

/// The catalogue's name of a GPU.
pub fn gpu_name(text: &str) -> String {
    let plain = plain(text);
    let plain = ["nvidia-", "amd-", "instinct-"]
        .iter()
        .fold(plain.as_str(), |name, maker| name.strip_prefix(maker).unwrap_or(name));
    let known = GPUS.iter().find(|(other, _)| *other == plain);
    known.map_or(plain, |(_, name)| name).to_owned()
}

/// The rate of the NICs that were sold with a GPU, in 10⁹ bits per second: EDR beside V100, HDR
/// beside A100 and L40S, Slingshot 11 beside MI250X, XDR beside Blackwell Ultra (ConnectX-8 on
/// DGX B300 and GB300), NDR beside others.
pub fn usual_nic_gbps(gpu: &str) -> f64 {
    match gpu.split('-').next() {
        Some("v100") => 100.0,
        Some("a100" | "l40s" | "mi250x") => 200.0,
        Some("b300" | "gb300") => 800.0,
        _ => 400.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_mean_the_same() {
        assert_eq!(gpu_name("NVIDIA GB300 NVL72"), "gb300");
        assert_eq!(gpu_name("H200"), "h200-sxm");
        assert_eq!(transport("GPUDirect-TCPXO"), Some(Transport::Tcp));
        assert_eq!(transport("RoCE v2"), Some(Transport::Rocev2));
        assert_eq!(transport("nvlink5"), None);
        for word in ["IB HDR", "infiniband-ndr", "infiniband"] {
            assert_eq!(transport(word), Some(Transport::Infiniband), "{word}");
        }
        for word in ["EFA v2", "efav3", "efa"] {
            assert_eq!(transport(word), Some(Transport::Efa), "{word}");
        }
        assert_eq!((transport("efax"), transport("hdr")), (None, None));
        assert!(is_scale_up("MNNVL") && is_scale_up("NVL72") && !is_scale_up("infiniband"));
        assert_eq!((usual_nic_gbps("gb300"), usual_nic_gbps("h100-sxm")), (800.0, 400.0));
    }
}
