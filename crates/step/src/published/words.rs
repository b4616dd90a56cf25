//! The words that people write in the columns of a row, and what they mean.
//!
//! Sources name the same thing in several ways; every table here maps what was seen, or is usual in
//! the software that prints it, to one meaning. Letters are lower case, blanks and underscores are
//! hyphens. A word of several parts means what the first entry means whose parts it has in a row:
//! `te-fp8` is `fp8`. So what is more particular stands first.

use fabric::transport::Transport;
use job::config::{Accumulation, AttentionKernel, Fp8Recipe, Loss, Precision};
use job::model::{Mlp, Usual};
use job::parallel::{Axis, Sharding};
use job::schedule::Schedule;

/// A word as the tables have it.
pub fn plain(text: &str) -> String {
    text.trim().to_lowercase().replace(['_', ' '], "-")
}

/// What people write where nothing is known.
const UNSAID: [&str; 13] = [
    "-",
    "--",
    "?",
    "n/a",
    "na",
    "nan",
    "null",
    "unknown",
    "unpublished",
    "not-published",
    "not-stated",
    "not-told",
    "unspecified",
];

/// What a field says; nothing where it says that nothing is known.
pub fn said(text: &str) -> &str {
    let text = text.trim();
    if UNSAID.contains(&plain(text).as_str()) { "" } else { text }
}

/// Letters and digits between everything else.
fn parts(text: &str) -> Vec<&str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|part| !part.is_empty()).collect()
}

/// What a word means: by the whole of it, else by its parts.
pub fn meaning<T: Copy>(text: &str, known: &[(&str, T)]) -> Option<T> {
    let word = plain(text);
    let own = parts(&word);
    let has = |name: &str| {
        let wanted = parts(name);
        // A sign is part of a name: `zero++` is not `zero`.
        !wanted.is_empty()
            && !name.contains('+')
            && own.windows(wanted.len()).any(|run| run == wanted)
    };
    let whole = known.iter().find(|(name, _)| *name == word);
    whole.or_else(|| known.iter().find(|(name, _)| has(name))).map(|(_, meant)| *meant)
}

/// What is multiplied.
pub const PRECISIONS: [(&str, Precision); 19] = [
    ("", Precision::Bf16),
    ("nvfp4", Precision::Fp4),
    ("mxfp4", Precision::Fp4),
    ("fp4", Precision::Fp4),
    ("mxfp8", Precision::Fp8),
    ("fp8", Precision::Fp8),
    ("float8", Precision::Fp8),
    ("e4m3", Precision::Fp8),
    ("bf16", Precision::Bf16),
    ("bfloat16", Precision::Bf16),
    ("16-mixed", Precision::Fp16),
    ("fp16", Precision::Fp16),
    ("float16", Precision::Fp16),
    ("half", Precision::Fp16),
    ("mixed", Precision::Bf16),
    ("amp", Precision::Bf16),
    ("tf32", Precision::Fp32),
    ("fp32", Precision::Fp32),
    ("float32", Precision::Fp32),
];

/// What is multiplied, and the recipe where the word names one too: NeMo's `fp8-cs` (current
/// scaling), `bf16_with_mxfp8_mixed`.
pub fn precision(text: &str) -> Option<(Precision, Option<Fp8Recipe>)> {
    let precision = meaning(text, &PRECISIONS)?;
    let recipe = Some(text).filter(|text| precision == Precision::Fp8 && !text.is_empty());
    Some((precision, recipe.and_then(|text| meaning(text, &RECIPES)).flatten()))
}

/// How fp8 is scaled; Transformer Engine's and NeMo's names among them (`cs`, `ds`, `sc`: current,
/// delayed, by sub-channels). Formats of fp8 say nothing about it.
pub const RECIPES: [(&str, Option<Fp8Recipe>); 35] = [
    ("", None),
    ("mx", Some(Fp8Recipe::Mx)),
    ("mxfp8", Some(Fp8Recipe::Mx)),
    ("mxfp8blockscaling", Some(Fp8Recipe::Mx)),
    ("block", Some(Fp8Recipe::Block)),
    ("blockwise", Some(Fp8Recipe::Block)),
    ("blockscale", Some(Fp8Recipe::Block)),
    ("blockscaled", Some(Fp8Recipe::Block)),
    ("float8blockscaling", Some(Fp8Recipe::Block)),
    ("subchannel", Some(Fp8Recipe::Block)),
    ("sub-channel", Some(Fp8Recipe::Block)),
    ("sc", Some(Fp8Recipe::Block)),
    ("tile", Some(Fp8Recipe::Block)),
    ("128x128", Some(Fp8Recipe::Block)),
    ("1x128", Some(Fp8Recipe::Block)),
    ("deepseek", Some(Fp8Recipe::Block)),
    ("deepgemm", Some(Fp8Recipe::Block)),
    ("current", Some(Fp8Recipe::Current)),
    ("float8currentscaling", Some(Fp8Recipe::Current)),
    ("tensorwise", Some(Fp8Recipe::Current)),
    ("rowwise", Some(Fp8Recipe::Current)),
    ("dynamic", Some(Fp8Recipe::Current)),
    ("cs", Some(Fp8Recipe::Current)),
    ("delayed", Some(Fp8Recipe::Delayed)),
    ("delayedscaling", Some(Fp8Recipe::Delayed)),
    ("per-tensor", Some(Fp8Recipe::Delayed)),
    ("ds", Some(Fp8Recipe::Delayed)),
    ("fused", Some(Fp8Recipe::Fused)),
    ("none", None),
    ("auto", None),
    ("default", None),
    ("hybrid", None),
    ("e4m3", None),
    ("nvfp4", None),
    ("mxfp4", None),
];

/// Kernels of attention. Libraries take the hardware's fastest.
pub const ATTENTION: [(&str, AttentionKernel); 42] = [
    ("", AttentionKernel::Flash),
    ("no-flash", AttentionKernel::Unfused),
    ("unfused", AttentionKernel::Unfused),
    ("eager", AttentionKernel::Unfused),
    ("math", AttentionKernel::Unfused),
    ("standard", AttentionKernel::Unfused),
    ("local", AttentionKernel::Unfused),
    ("flash1", AttentionKernel::Flash1),
    ("flash-1", AttentionKernel::Flash1),
    ("fa1", AttentionKernel::Flash1),
    ("flash-attention-1", AttentionKernel::Flash1),
    ("flash2", AttentionKernel::Flash2),
    ("flash-2", AttentionKernel::Flash2),
    ("fa2", AttentionKernel::Flash2),
    ("fa-2", AttentionKernel::Flash2),
    ("flash-attention-2", AttentionKernel::Flash2),
    ("flash-attention2", AttentionKernel::Flash2),
    ("flash-attn-2", AttentionKernel::Flash2),
    ("flashattention2", AttentionKernel::Flash2),
    ("flashattention-2", AttentionKernel::Flash2),
    ("triton", AttentionKernel::Flash2),
    ("xformers", AttentionKernel::Flash2),
    ("memory-efficient", AttentionKernel::Flash2),
    ("flash", AttentionKernel::Flash),
    ("flash3", AttentionKernel::Flash),
    ("flash4", AttentionKernel::Flash),
    ("flashattention", AttentionKernel::Flash),
    ("fa", AttentionKernel::Flash),
    ("fa3", AttentionKernel::Flash),
    ("fa4", AttentionKernel::Flash),
    ("fused", AttentionKernel::Flash),
    ("cudnn", AttentionKernel::Flash),
    ("te", AttentionKernel::Flash),
    ("transformer-engine", AttentionKernel::Flash),
    ("sdpa", AttentionKernel::Flash),
    ("torch", AttentionKernel::Flash),
    ("flex", AttentionKernel::Flash),
    ("auto", AttentionKernel::Flash),
    ("mla", AttentionKernel::Flash),
    // AMD's.
    ("ck", AttentionKernel::Flash),
    ("aiter", AttentionKernel::Flash),
    ("hipkittens", AttentionKernel::Flash),
];

/// How the loss is computed.
pub const LOSSES: [(&str, Loss); 14] = [
    ("", Loss::Fused),
    ("unfused", Loss::Unfused),
    ("fused", Loss::Fused),
    ("te", Loss::Fused),
    ("native", Loss::Fused),
    ("liger", Loss::Fused),
    ("chunked", Loss::Fused),
    ("cce", Loss::Fused),
    ("cut-cross-entropy", Loss::Fused),
    ("vocab-parallel", Loss::Unfused),
    ("torch", Loss::Unfused),
    ("eager", Loss::Unfused),
    ("cross-entropy", Loss::Unfused),
    ("none", Loss::Unfused),
];

/// How weight gradients come into the main gradients.
pub const ACCUMULATIONS: [(&str, Accumulation); 4] = [
    ("", Accumulation::Fused),
    ("unfused", Accumulation::Separate),
    ("separate", Accumulation::Separate),
    ("fused", Accumulation::Fused),
];

/// What is computed again; all layers, whole, in Megatron-LM's two ways. What is said to be partial
/// is what a layer does over again at least.
pub const RECOMPUTE: [(&str, Usual); 23] = [
    ("", Usual::None),
    ("none", Usual::None),
    ("no", Usual::None),
    ("off", Usual::None),
    ("false", Usual::None),
    ("0", Usual::None),
    ("disabled", Usual::None),
    ("full", Usual::Full),
    ("uniform", Usual::Full),
    ("selective", Usual::Selective),
    ("partial", Usual::Selective),
    ("core-attn", Usual::Selective),
    ("core-attention", Usual::Selective),
    ("attn", Usual::Selective),
    ("attention", Usual::Selective),
    ("block", Usual::Full),
    ("all", Usual::Full),
    ("yes", Usual::Full),
    ("on", Usual::Full),
    ("true", Usual::Full),
    ("checkpointing", Usual::Full),
    ("activation", Usual::Full),
    ("1", Usual::Full),
];

/// Orders of microbatches, by any name that has one of these in it.
pub const SCHEDULES: [(&str, Schedule); 16] = [
    ("gpipe", Schedule::Gpipe),
    ("afab", Schedule::Gpipe),
    ("interleaved", Schedule::Interleaved),
    ("zero-bubble", Schedule::ZeroBubble),
    ("zb", Schedule::ZeroBubble),
    ("dualpipe", Schedule::DualPipe),
    ("vpp", Schedule::Interleaved),
    ("virtual", Schedule::Interleaved),
    ("looped", Schedule::Interleaved),
    ("breadth-first", Schedule::Interleaved),
    ("bfs", Schedule::Interleaved),
    ("1f1b-i", Schedule::Interleaved),
    ("1f1b", Schedule::OneForwardOneBackward),
    ("pipedream", Schedule::OneForwardOneBackward),
    ("dapple", Schedule::OneForwardOneBackward),
    ("default", Schedule::OneForwardOneBackward),
];

/// Where parameters, gradients and the optimizer's state lie: DeepSpeed's stages, PyTorch's
/// strategies, Megatron-LM's optimizer, and what papers call these.
pub const SHARDINGS: [(&str, Sharding); 36] = [
    ("", Sharding::None),
    ("fsdp-no-reshard", Sharding::FsdpNoReshard),
    ("hsdp", Sharding::Hybrid),
    ("hybrid", Sharding::Hybrid),
    ("mics", Sharding::Hybrid),
    ("shard-grad-op", Sharding::Zero2),
    ("no-shard", Sharding::None),
    ("fsdp", Sharding::Fsdp),
    ("fsdp1", Sharding::Fsdp),
    ("fsdp2", Sharding::Fsdp),
    ("full-shard", Sharding::Fsdp),
    ("fully-shard", Sharding::Fsdp),
    ("fully-sharded", Sharding::Fsdp),
    ("zero++", Sharding::Zero3),
    ("zero3", Sharding::Zero3),
    ("zero-3", Sharding::Zero3),
    ("stage3", Sharding::Zero3),
    ("stage-3", Sharding::Zero3),
    ("zero2", Sharding::Zero2),
    ("zero-2", Sharding::Zero2),
    ("stage2", Sharding::Zero2),
    ("stage-2", Sharding::Zero2),
    ("os+g", Sharding::Zero2),
    ("os", Sharding::Zero1),
    ("zero0", Sharding::None),
    ("zero-0", Sharding::None),
    ("zero", Sharding::Zero1),
    ("zero1", Sharding::Zero1),
    ("stage1", Sharding::Zero1),
    ("distributed-optimizer", Sharding::Zero1),
    ("dist-opt", Sharding::Zero1),
    ("distopt", Sharding::Zero1),
    ("optimizer", Sharding::Zero1),
    ("none", Sharding::None),
    ("ddp", Sharding::None),
    ("dp", Sharding::None),
];

/// What stands between a layer's two halves.
pub const MLPS: [(&str, Mlp); 11] = [
    ("gated", Mlp::Gated),
    ("swiglu", Mlp::Gated),
    ("geglu", Mlp::Gated),
    ("reglu", Mlp::Gated),
    ("glu", Mlp::Gated),
    ("silu", Mlp::Gated),
    ("gelu", Mlp::Gelu),
    ("relu", Mlp::Gelu),
    ("relu2", Mlp::Gelu),
    ("squared-relu", Mlp::Gelu),
    ("plain", Mlp::Gelu),
];

/// Axes whose communication software hides, by the names of its switches.
const OVERLAPS: [(&str, Axis); 17] = [
    ("ddp", Axis::Dp),
    ("fsdp", Axis::Dp),
    ("grad", Axis::Dp),
    ("gradient", Axis::Dp),
    ("param", Axis::Dp),
    ("edp", Axis::Dp),
    ("tp", Axis::Tp),
    ("userbuffers", Axis::Tp),
    ("ub", Axis::Tp),
    ("sp", Axis::Tp),
    ("moe", Axis::Ep),
    ("a2a", Axis::Ep),
    ("alltoall", Axis::Ep),
    ("all-to-all", Axis::Ep),
    ("p2p", Axis::Pp),
    ("pipeline", Axis::Pp),
    ("ring", Axis::Cp),
];

/// The axes that a word of `overlap` names; absent where it names none.
pub fn overlap(word: &str) -> Option<Vec<Axis>> {
    let word = plain(word);
    let own = parts(&word);
    let by_name = || Axis::ALL.into_iter().find(|axis| own.contains(&axis.word()));
    match word.as_str() {
        "none" | "no" | "off" | "false" | "0" => Some(Vec::new()),
        "all" | "yes" | "on" | "true" | "1" => Some(Axis::ALL.to_vec()),
        _ => by_name().or_else(|| meaning(&word, &OVERLAPS)).map(|axis| vec![axis]),
    }
}

/// Networks by other names than ours: of their boxes, rates and makers. Slingshot and Falcon spread
/// packets as Ultra Ethernet does; GPUDirect-TCPX and TCPXO are TCP whose payload goes to the GPU;
/// SRD is EFA's transport; Omni-Path has credits and adaptive ways, as InfiniBand.
const TRANSPORTS: [(&str, Transport); 34] = [
    ("efa", Transport::Efa),
    ("srd", Transport::Efa),
    ("infiniband", Transport::Infiniband),
    ("ib", Transport::Infiniband),
    ("quantum", Transport::Infiniband),
    ("fdr", Transport::Infiniband),
    ("edr", Transport::Infiniband),
    ("hdr", Transport::Infiniband),
    ("ndr", Transport::Infiniband),
    ("xdr", Transport::Infiniband),
    ("omni-path", Transport::Infiniband),
    ("omnipath", Transport::Infiniband),
    ("slingshot", Transport::Uec),
    ("uec", Transport::Uec),
    ("uet", Transport::Uec),
    ("ultra-ethernet", Transport::Uec),
    ("falcon", Transport::Uec),
    ("dsf", Transport::ScheduledEthernet),
    ("scheduled", Transport::ScheduledEthernet),
    ("tcp", Transport::Tcp),
    ("tcpx", Transport::Tcp),
    ("tcpxo", Transport::Tcp),
    ("socket", Transport::Tcp),
    ("sockets", Transport::Tcp),
    ("iwarp", Transport::Iwarp),
    ("roce", Transport::Rocev2),
    ("erdma", Transport::Rocev2),
    ("spectrum", Transport::Rocev2),
    ("thor", Transport::Rocev2),
    ("pollara", Transport::Rocev2),
    ("oci", Transport::Rocev2),
    ("minipack", Transport::Rocev2),
    ("tomahawk", Transport::Rocev2),
    ("ethernet", Transport::Rocev2),
];

/// Words for a network that do not say which: InfiniBand has RDMA, and RoCE.
const NO_TRANSPORT: [&str; 5] = ["none", "rdma", "gpudirect", "connectx", "nccl"];

/// Whether a word does not say which network it was.
pub fn is_no_transport(text: &str) -> bool {
    let word = plain(text);
    let own = without_generations(&word);
    own.is_empty() || parts(&own).into_iter().all(|part| NO_TRANSPORT.contains(&part))
}

/// Whether a word names what joins the GPUs of a server or rack, and nothing beyond.
pub fn is_scale_up(text: &str) -> bool {
    const NAMES: [&str; 9] =
        ["nvl", "nvs", "mnnvl", "xgmi", "infinity", "pcie", "intra", "local", "single"];
    let word = text.trim().to_lowercase();
    NAMES.iter().any(|name| word.starts_with(name)) && transport(&word).is_none()
}

/// `ndr` of `ndr400`, `efa` of `efav2`: the rate is in a column of its own.
fn without_generations(word: &str) -> String {
    let bare =
        |part: &str| part.trim_end_matches(char::is_numeric).trim_end_matches('v').to_owned();
    let bare: Vec<String> = parts(word).into_iter().map(bare).collect();
    bare.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// The transport of that name.
pub fn transport(text: &str) -> Option<Transport> {
    let word = plain(text);
    let own = Transport::ALL.iter().find(|(name, _)| *name == word);
    own.map(|(_, transport)| *transport)
        .or_else(|| meaning(&without_generations(&word), &TRANSPORTS))
}

/// Chips as people call them, and what the catalogue calls them; longer names of a chip follow
/// [`gpu_name`]'s rule.
const CHIPS: [(&str, &str); 30] = [
    ("v100", "v100-32g"),
    ("a100", "a100-80g"),
    ("a800", "a800-80g"),
    ("h100", "h100-sxm"),
    ("h200", "h200-sxm"),
    ("h800", "h800"),
    ("h20", "h20"),
    ("gh200", "gh200"),
    ("b200", "b200"),
    ("b300", "b300"),
    ("gb200", "gb200"),
    ("gb300", "gb300"),
    ("l40s", "l40s"),
    ("mi250", "mi250x"),
    ("mi250x", "mi250x"),
    ("mi300", "mi300x"),
    ("mi300x", "mi300x"),
    ("mi325", "mi325x"),
    ("mi325x", "mi325x"),
    ("mi350", "mi350x"),
    ("mi350x", "mi350x"),
    ("mi355", "mi355x"),
    ("mi355x", "mi355x"),
    // On other boards, or with another memory.
    ("a100-40", "a100-40g"),
    ("a100-pcie", "a100-pcie"),
    ("a100-40-pcie", "a100-pcie"),
    ("h100-pcie", "h100-pcie"),
    ("h100-nvl", "h100-nvl"),
    ("h200-nvl", "h200-nvl"),
    ("h20-141", "h20"),
];

/// The catalogue's name of a GPU, however its maker, box, board and memory are written beside it:
/// "NVIDIA H100 80GB HBM3", `a100-sxm4-40gb`, "DGX B200". A name with anything else in it is left
/// as it is, for a catalogue of one's own.
pub fn gpu_name(text: &str) -> String {
    const MAKERS: [&str; 9] =
        ["nvidia", "amd", "instinct", "tesla", "hgx", "dgx", "oam", "gcd", "gpu"];
    let plain = plain(text);
    let mut chip = None;
    let mut memory = None;
    let mut board = None;
    for part in parts(&plain) {
        let digits = part.strip_suffix("gb").or_else(|| part.strip_suffix('g'));
        let is_rack = part.strip_prefix("nvl").is_some_and(|gpus| !gpus.is_empty());
        if let Some(size) = digits.filter(|size| size.parse::<u32>().is_ok()) {
            memory = Some(size);
        } else if part.starts_with("pcie") || part == "nvl" {
            board = Some(if part == "nvl" { "nvl" } else { "pcie" });
        } else if CHIPS.iter().any(|(name, _)| *name == part) && chip.is_none() {
            chip = Some(part);
        } else if !(MAKERS.contains(&part)
            || is_rack
            || part.starts_with("sxm")
            || part.starts_with("hbm"))
        {
            return plain;
        }
    }
    let Some(chip) = chip else { return plain };
    let names = [vec![memory, board], vec![board], vec![memory], vec![]];
    let full = names.iter().filter(|of| of.iter().all(Option::is_some)).map(|of| {
        let words = std::iter::once(chip).chain(of.iter().flatten().copied());
        words.collect::<Vec<_>>().join("-")
    });
    let found = full.into_iter().find_map(|name| CHIPS.iter().find(|(known, _)| *known == name));
    found.map_or(plain, |(_, name)| (*name).to_owned())
}

/// The rate of the NICs that were sold with a GPU, in 10⁹ bits per second: EDR beside V100, HDR
/// beside A100, A800 and L40S, Slingshot 11 beside MI250X, XDR beside Blackwell Ultra (ConnectX-8
/// on DGX B300 and GB300), NDR beside others.
pub fn usual_nic_gbps(gpu: &str) -> f64 {
    match gpu.split('-').next() {
        Some("v100") => 100.0,
        Some("a100" | "a800" | "l40s" | "mi250x") => 200.0,
        Some("b300" | "gb300") => 800.0,
        _ => 400.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_mean_the_same() {
        for (text, name) in [
            ("NVIDIA GB300 NVL72", "gb300"),
            ("GB200-NVL36", "gb200"),
            ("H200", "h200-sxm"),
            ("NVIDIA H100 80GB HBM3", "h100-sxm"),
            ("h100-sxm5-80g", "h100-sxm"),
            ("NVIDIA H100 PCIe", "h100-pcie"),
            ("H100 NVL", "h100-nvl"),
            ("NVIDIA A100-SXM4-40GB", "a100-40g"),
            ("A100-PCIE-80GB", "a100-pcie"),
            ("A100 PCIe 40GB", "a100-pcie"),
            ("a100-sxm-64gb", "a100-80g"),
            ("NVIDIA A800-SXM4-80GB", "a800-80g"),
            ("Tesla V100-SXM2-16GB", "v100-32g"),
            ("DGX B200", "b200"),
            ("AMD Instinct MI300X OAM", "mi300x"),
            ("MI250X-GCD", "mi250x"),
            ("NVIDIA GH200 480GB", "gh200"),
            ("h20-96g", "h20"),
            // Somebody's own.
            ("h100-ours", "h100-ours"),
            ("tpu v5p", "tpu-v5p"),
        ] {
            assert_eq!(gpu_name(text), name, "{text}");
        }
        assert_eq!(transport("nvlink5"), None);
        for (words, meant) in [
            (
                "IB HDR,infiniband-ndr,infiniband,ndr400,200G HDR,Quantum-X800",
                Transport::Infiniband,
            ),
            ("EFA v2,efav3,efa,aws-efa", Transport::Efa),
            ("RoCE v2,RoCEv2 400G,spectrum-4,ethernet,gcp-roce", Transport::Rocev2),
            ("GPUDirect-TCPXO,sockets,tcp", Transport::Tcp),
            ("Slingshot11,uec", Transport::Uec),
        ] {
            for word in words.split(',') {
                assert_eq!(transport(word), Some(meant), "{word}");
            }
        }
        assert_eq!((transport("efax"), transport("rocev1")), (None, Some(Transport::Rocev1)));
        assert!(is_no_transport("GPUDirect RDMA") && !is_no_transport("carrier pigeon"));
        assert!(is_scale_up("MNNVL") && is_scale_up("NVL72") && !is_scale_up("infiniband"));
        assert!(is_scale_up("Infinity Fabric") && !is_scale_up("nvlink+infiniband"));
        assert_eq!((usual_nic_gbps("gb300"), usual_nic_gbps("h100-sxm")), (800.0, 400.0));
    }

    #[test]
    fn words_mean_what_their_parts_do() {
        let fp8 = |recipe| Some((Precision::Fp8, recipe));
        for (text, meant) in [
            ("", Some((Precision::Bf16, None))),
            ("fp8", fp8(None)),
            ("FP8 (E4M3)", fp8(None)),
            ("fp8-delayed", fp8(Some(Fp8Recipe::Delayed))),
            ("fp8_cs", fp8(Some(Fp8Recipe::Current))),
            ("fp8-block-scaled", fp8(Some(Fp8Recipe::Block))),
            ("fp8-128x128", fp8(Some(Fp8Recipe::Block))),
            ("bf16_with_mxfp8_mixed", fp8(Some(Fp8Recipe::Mx))),
            ("nvfp4-mixed", Some((Precision::Fp4, None))),
            ("16-mixed", Some((Precision::Fp16, None))),
            ("int8", None),
        ] {
            assert_eq!(precision(text), meant, "{text}");
        }
        for (text, meant) in [
            ("Full_Shard", Sharding::Fsdp),
            ("fsdp-hybrid", Sharding::Hybrid),
            ("zero1+fsdp", Sharding::Fsdp),
            ("ZeRO Stage 2", Sharding::Zero2),
            ("ZeRO++", Sharding::Zero3),
            ("zero", Sharding::Zero1),
            ("no_shard", Sharding::None),
            ("dist-opt", Sharding::Zero1),
        ] {
            assert_eq!(meaning(text, &SHARDINGS), Some(meant), "{text}");
        }
        assert_eq!(meaning("flash-attn-2", &ATTENTION), Some(AttentionKernel::Flash2));
        assert_eq!(meaning("flash_attention_3", &ATTENTION), Some(AttentionKernel::Flash));
        assert_eq!(meaning("no-recompute", &RECOMPUTE), Some(Usual::None));
        assert_eq!(meaning("sparse", &ATTENTION), None);
        assert_eq!(overlap("grad_reduce"), Some(vec![Axis::Dp]));
        assert_eq!((overlap("off"), overlap("whatever")), (Some(vec![]), None));
        assert_eq!((said("N/A"), said(" unknown "), said("none")), ("", "", "none"));
    }
}
