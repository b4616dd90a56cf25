//! The `[job]` table: everything that a scenario says about a training job.
//!
//! This is what was written; what it means, checked and with all defaults decided, is a
//! [`crate::Job`], made by [`JobConfig::resolve`](crate::resolve). Software matters as much as
//! hardware (which attention kernel, whether the loss is fused, what is recomputed), so it is
//! part of the job.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use units::UnusedKeys;

use crate::model::{Mlp, Model, Recompute};
use crate::parallel::{Axis, ParallelConfig};
use crate::placement::{PlacementConfig, Policy};
use crate::schedule::Schedule;

/// A training job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobConfig {
    /// A preset's name, the path of a Hugging Face `config.json`, or a shape written out.
    pub model: ModelChoice,
    /// GPUs of the job: tp·cp·pp·dp. Left out, it is that product, or with `dp` left out too,
    /// what the cluster has.
    pub gpus: Option<u64>,
    /// How the model is cut over them.
    pub parallel: ParallelConfig,
    /// The order of forward and backward passes in the pipeline.
    pub schedule: Schedule,
    /// What one step works on.
    pub batch: BatchConfig,
    /// Which rank runs on which GPU.
    pub placement: PlacementConfig,
    /// The type of the matrix products.
    pub precision: Precision,
    /// How fp8 operands are scaled, and which kernels cast them. Left out, `block` for models with
    /// experts, `fused` for GPT's kind (GELU and biases), else `delayed`.
    pub fp8_recipe: Option<Fp8Recipe>,
    /// What the backward pass computes again: `none`, `selective`, `full`, or a list of modules by
    /// Megatron-LM's names.
    pub recompute: Recompute,
    /// The attention kernels' generation.
    pub attention: AttentionKernel,
    /// How the loss is computed.
    pub loss: Loss,
    /// How the weight gradients of products outside of experts come into the main gradients.
    pub accumulation: Accumulation,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// How tokens find their experts.
    pub moe: MoeConfig,
}

impl JobConfig {
    /// Names what has no effect, given the rest of the job and its model.
    pub fn unused(&self, model: Option<&Model>, idle: &mut UnusedKeys) {
        self.unused_of_model(model, idle);
        self.unused_of_layout(model, idle);
    }

    /// What the model, or its precision, has no use for.
    fn unused_of_model(&self, model: Option<&Model>, idle: &mut UnusedKeys) {
        let experts = model.and_then(|model| model.experts.as_ref());
        if model.is_some() && experts.is_none() {
            idle.key("moe", "the model has no experts", "a model with experts");
        }
        if let Some(experts) = experts {
            if experts.dense_layers == 0 && experts.every == 1 {
                let used_by = "job.model.experts.dense_layers";
                idle.part_of("model.ffn", "every layer has experts instead", used_by);
            }
            if self.moe.loads.is_some() {
                idle.key("moe.skew", "`loads` says how experts are loaded", "leave out `loads`");
            }
            let is_plain = match self.moe.dispatcher {
                Some(dispatcher) => dispatcher == Dispatcher::AllToAll,
                None => experts.groups <= experts.group_limit,
            };
            if is_plain {
                let why = "a plain all-to-all sends a copy for each expert, wherever it is";
                idle.key("moe.limit", why, "job.moe.dispatcher=deepep");
            }
            if self.parallel.ep == 1 {
                let why = "every rank has all experts: no token is sent";
                let used_by = "job.parallel.ep above 1";
                let computed = ["skew", "loads", "capacity_factor", "accumulation"];
                idle.all_but("moe", &computed, why, used_by);
            }
        }
        if let (Some(model), Recompute::Modules(modules)) = (model, &self.recompute) {
            for module in modules {
                if let Some(why) = module.missing(model) {
                    let why = format!("`{}` in it is nothing: {why}", module.word());
                    idle.part_of("recompute", &why, "a model that has it");
                }
            }
        }
        if self.precision != Precision::Fp8 {
            let why = "nothing is computed in fp8";
            idle.key("fp8_recipe", why, "job.precision=fp8");
        }
    }

    /// What the degrees, the schedule and the placement have no use for.
    fn unused_of_layout(&self, model: Option<&Model>, idle: &mut UnusedKeys) {
        let parallel = &self.parallel;
        let experts = model.and_then(|model| model.experts.as_ref());
        if parallel.cp == 1 {
            let why = "sequences are not cut";
            idle.key("parallel.cp_exchange", why, "job.parallel.cp above 1");
        }
        if parallel.tp == 1 {
            let why = "matrices are not cut";
            idle.key("parallel.sequence_parallel", why, "job.parallel.tp above 1");
        }
        if model.is_some_and(|model| model.vision.is_none()) {
            let why = "the model has no vision encoder";
            idle.key("parallel.vision_tp", why, "job.model.vision");
        }
        if parallel.stage_layers.is_some() {
            let why = "`stage_layers` says which layers a stage has";
            idle.key("parallel.stage_split", why, "leave out `stage_layers`");
        }
        if parallel.pp == 1 {
            let used_by = "job.parallel.pp above 1";
            idle.key("schedule", "there is no pipeline", used_by);
            idle.key("parallel.stage_split", "there is no pipeline", used_by);
            idle.key("parallel.order", "there is no pipeline", used_by);
        }
        let vocab = model.map_or(0, |model| model.vocab);
        if parallel.vocab_multiple.is_some() && parallel.padded(vocab) == vocab {
            let why = format!("the vocabulary of {vocab} needs no padding");
            idle.key("parallel.vocab_multiple", &why, "a vocabulary that does not divide by it");
        }
        if self.placement.policy == Policy::TopologyAware {
            let why = "a topology-aware placement numbers ranks by itself";
            idle.key("parallel.order", why, "job.placement=linear");
        }
        if parallel.sharding.gathers_by_layer() {
            let why = "gradients are reduced layer by layer";
            idle.key("parallel.bucket", why, "job.parallel.sharding=zero1");
        }
        let shared = experts.is_some_and(|experts| 0 < experts.shared);
        if parallel.overlap.contains(&Axis::Ep) && !self.schedule.pairs() && !shared {
            let why = "`ep` in it hides nothing: this schedule pairs no passes, and there are no \
                       shared experts to compute meanwhile";
            idle.part_of("parallel.overlap", why, "job.schedule=1f1b");
        }
        let ParallelConfig { tp, cp, pp, ep, .. } = *parallel;
        let alone = [(Axis::Tp, tp), (Axis::Cp, cp), (Axis::Pp, pp), (Axis::Ep, ep)];
        for (axis, degree) in alone {
            if degree == 1 && parallel.overlap.contains(&axis) {
                let (axis, used_by) = (axis.word(), "a larger degree");
                let why = format!("`{axis}` in it hides nothing: its degree is 1");
                idle.part_of("parallel.overlap", &why, used_by);
            }
        }
    }
}

/// Which model: a name to be looked up, or a shape.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ModelChoice {
    /// A preset's name, or the path of a `config.json`.
    Named(String),
    /// The shape itself.
    Shape(Box<Model>),
}

impl Default for ModelChoice {
    /// The smallest of the models that everybody knows; illustrative.
    fn default() -> Self {
        Self::Named("llama3-8b".to_owned())
    }
}

impl<'de> Deserialize<'de> for ModelChoice {
    /// By hand, so that a wrong key inside a shape is named; `untagged` would hide it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = ModelChoice;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "a preset's name, the path of a config.json, or a table with a shape")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ModelChoice, E> {
                Ok(ModelChoice::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelChoice, A::Error> {
                let model = Model::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ModelChoice::Shape(Box::new(model)))
            }
        }
        deserializer.deserialize_any(Choice)
    }
}

/// What one step works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchConfig {
    /// Sequences per step, over all data-parallel copies.
    pub sequences: u64,
    /// Sequences per microbatch and copy.
    pub micro: u64,
    /// Tokens per sequence.
    pub length: u64,
}

impl Default for BatchConfig {
    /// Llama 3's batch at 8K: 16M tokens (arXiv 2407.21783, table 4).
    fn default() -> Self {
        Self { sequences: 2048, micro: 1, length: 8192 }
    }
}

/// The type of the matrix products. Weights and activations are kept in 16 bits with all of them
/// but the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 16-bit brain floats.
    #[default]
    Bf16,
    /// 16-bit floats.
    Fp16,
    /// 8-bit products with 16-bit storage.
    Fp8,
    /// 4-bit products (NVFP4, MXFP4) with 16-bit storage; in fp8 on GPUs that have none.
    Fp4,
    /// 32-bit throughout.
    Fp32,
}

impl Precision {
    /// Bytes of a stored weight or activation.
    pub fn bytes(self) -> u64 {
        if self == Self::Fp32 { 4 } else { 2 }
    }
}

/// How fp8 operands are scaled, and which kernels cast them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fp8Recipe {
    /// One scale per tensor, from the steps before. The norm in front of a product casts for it,
    /// and all else has casts of its own: Megatron-LM's layers of Transformer Engine, which has
    /// activations as kernels of Megatron-LM (`TELayerNormColumnParallelLinear`,
    /// `TERowParallelLinear` in `gpt_layer_specs.py`; `bias_swiglu_impl` in `mlp.py`).
    #[default]
    Delayed,
    /// The same with activations that cast, forward and backward: Transformer Engine's own
    /// `TransformerLayer` (`LayerNormMLP`).
    Fused,
    /// One scale per tensor, from its greatest value now: a pass to find it, then the cast.
    Current,
    /// A scale for each 128 channels of a token and each 128 × 128 of weights. As MXFP8 on GPUs
    /// that have it.
    Block,
    /// A power of two for each 32 numbers (MXFP8). As `block` on GPUs that have no MXFP8.
    Mx,
}

impl Fp8Recipe {
    /// What the software that trains such models does: DeepSeek-V3's (arXiv 2412.19437, section
    /// 3.3.2) with experts; Transformer Engine's whole layer for GPT's kind, which NeMo has as its
    /// default for those (`use_transformer_engine_full_layer_spec` of `GPTConfig5B` to
    /// `GPTConfig175B`; MLPerf's GPT-3 has the same layer); else Megatron-LM's, as NeMo has it for
    /// all other models.
    pub fn usual(model: &Model) -> Self {
        match (&model.experts, model.mlp == Mlp::Gelu && model.biases.mlp) {
            (Some(_), _) => Self::Block,
            (None, true) => Self::Fused,
            (None, false) => Self::Delayed,
        }
    }
}

/// The attention kernels' generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKernel {
    /// Scores are written out: products, softmax and dropout as kernels of their own.
    Unfused,
    /// FlashAttention of the first generation.
    Flash1,
    /// FlashAttention-2, also where the hardware has a faster one.
    Flash2,
    /// FlashAttention-2 or -3, as the hardware has it.
    #[default]
    Flash,
}

/// How the loss is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Logits are written out.
    Unfused,
    /// Cross entropy in the head's kernels.
    #[default]
    Fused,
}

/// The optimizer, which decides how much state a parameter has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Adam with fp32 master weights and moments: 12 bytes (Rajbhandari et al., arXiv
    /// 1910.02054, section 3.1).
    #[default]
    Adam,
    /// Adam with bf16 moments and fp32 master weights: 8 bytes (DeepSeek-V3, arXiv 2412.19437,
    /// section 3.3.3).
    AdamBf16,
}

impl Optimizer {
    /// Bytes of state per parameter, master weight included.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Adam => 12,
            Self::AdamBf16 => 8,
        }
    }
}

/// How tokens find their experts, and what of it crosses the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MoeConfig {
    /// Places per expert as a multiple of the mean load; tokens above are dropped. Left out,
    /// none is dropped.
    pub capacity_factor: Option<f64>,
    /// How many nodes or devices the experts of one token may lie on.
    pub limit: RoutingLimit,
    /// How unevenly experts are loaded: the exponent of a Zipf distribution over the experts.
    /// 0 is even, 1 gives the second expert half the tokens of the first.
    pub skew: f64,
    /// Measured relative loads, one per expert, instead of `skew`: a routing trace's counts.
    pub loads: Option<Vec<f64>>,
    /// The type of tokens on their way to the experts. Left out, bf16, but fp8 with fp8 products
    /// under DualPipe: DeepSeek's own software is the one that is known to send it. On the way back
    /// they are bf16 always.
    pub dispatch: Option<DispatchType>,
    /// What carries tokens to their experts. Left out, DeepEP for models whose routing is
    /// limited, which was made for it, else a plain all-to-all.
    pub dispatcher: Option<Dispatcher>,
    /// How the experts' weight gradients come into the main gradients.
    pub accumulation: Accumulation,
}

/// How the weight gradients of products come into the main gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accumulation {
    /// The product reads and writes the main gradients itself (Megatron-LM's
    /// `gradient_accumulation_fusion`, its default since it came on 2022-02-13, 83b1e42f;
    /// DeepGEMM).
    #[default]
    Fused,
    /// The product writes 16 bits, and a kernel of its own adds them: Megatron-LM before that,
    /// Megatron-DeepSpeed (`megatron/core/tensor_parallel/layers.py` has the other in comments).
    Separate,
}

/// What carries tokens to their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dispatcher {
    /// A plain all-to-all: one copy of a token for each of its experts (Megatron-LM).
    AllToAll,
    /// One copy for each node and device that has some of its experts (DeepEP).
    #[serde(rename = "deepep")]
    DeepEp,
}

/// How many places the experts of one token may lie on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingLimit {
    /// What the model itself says: its `group_limit` of `groups`, a group being ep/groups ranks.
    #[default]
    Model,
    /// Anywhere.
    None,
    /// On this many nodes (DeepSeek-V3: 4).
    Nodes(u64),
    /// On this many devices (DeepSeek-V2: 3).
    Devices(u64),
}

/// The type of tokens on their way to the experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DispatchType {
    /// Two bytes per channel.
    Bf16,
    /// One byte per channel and an fp32 scale per 128 of them (DeepSeek-V3, arXiv 2412.19437,
    /// section 3.3.2).
    Fp8,
}

impl DispatchType {
    /// Bytes of one token of `hidden` channels.
    pub fn token_bytes(self, hidden: u64) -> u64 {
        match self {
            Self::Bf16 => 2 * hidden,
            Self::Fp8 => hidden + 4 * hidden.div_ceil(128),
        }
    }
}
