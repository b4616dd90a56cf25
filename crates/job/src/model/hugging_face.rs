//! Models from Hugging Face `config.json` files.
//!
//! [`HfConfig`] holds the keys that matter, all optional, because hub files leave out or null
//! what a model type has a default for; other keys are ignored. [`Model::from_hf`] gives them
//! their meaning for each model type. The text is read elsewhere: this crate reads no files.
//!
//! Source: the configuration and modelling files of transformers (2026-08). Departures: rotary
//! parameters, dropout, initialisation and how a checkpoint is quantised are not read, since
//! nothing here depends on them; of a model that sees images too, only the text model is taken.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;

use super::{Biases, Experts, Latent, Mlp, Model, Norm, Window};

/// The keys of a `config.json` that decide a model's shape.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the keys are Hugging Face's own, documented there")]
pub struct HfConfig {
    pub model_type: Option<String>,
    #[serde(rename = "_name_or_path")]
    pub name_or_path: Option<String>,
    pub vocab_size: Option<u64>,
    pub hidden_size: Option<u64>,
    pub intermediate_size: Option<u64>,
    pub num_hidden_layers: Option<u64>,
    pub num_attention_heads: Option<u64>,
    pub num_key_value_heads: Option<u64>,
    pub head_dim: Option<u64>,
    pub tie_word_embeddings: Option<bool>,
    pub attention_bias: Option<bool>,
    pub mlp_bias: Option<bool>,
    pub sliding_window: Option<u64>,
    pub use_sliding_window: Option<bool>,
    pub max_window_layers: Option<u64>,
    pub layer_types: Option<Vec<String>>,
    pub num_local_experts: Option<u64>,
    pub num_experts: Option<u64>,
    pub num_experts_per_tok: Option<u64>,
    pub experts_per_token: Option<u64>,
    pub moe_intermediate_size: Option<u64>,
    pub decoder_sparse_step: Option<u64>,
    pub mlp_only_layers: Option<Vec<u64>>,
    pub n_routed_experts: Option<u64>,
    pub n_shared_experts: Option<u64>,
    pub n_group: Option<u64>,
    pub topk_group: Option<u64>,
    pub topk_method: Option<String>,
    pub first_k_dense_replace: Option<u64>,
    pub moe_layer_freq: Option<u64>,
    pub kv_lora_rank: Option<u64>,
    pub q_lora_rank: Option<u64>,
    pub qk_nope_head_dim: Option<u64>,
    pub qk_rope_head_dim: Option<u64>,
    pub v_head_dim: Option<u64>,
    pub num_mtp_layers: Option<u64>,
    pub num_nextn_predict_layers: Option<u64>,
    pub n_layer: Option<u64>,
    pub n_embd: Option<u64>,
    pub n_head: Option<u64>,
    pub n_inner: Option<u64>,
    pub n_positions: Option<u64>,
    pub text_config: Option<Box<HfConfig>>,
}

/// Why a `config.json` is no model here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HfError {
    /// It names no model type.
    NoModelType,
    /// It names a model type that is not known here.
    UnknownModelType(String),
    /// It lacks a key that its model type needs.
    Missing {
        /// The key.
        key: &'static str,
        /// The model type that needs it.
        model_type: String,
    },
    /// A key has a value that is not modelled.
    Unsupported {
        /// The key.
        key: &'static str,
        /// What is not modelled about it.
        reason: String,
    },
}

/// The model types that [`Model::from_hf`] knows.
pub const MODEL_TYPES: [&str; 10] = [
    "llama",
    "mistral",
    "mixtral",
    "deepseek_v2",
    "deepseek_v3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gpt_oss",
    "gpt2",
];

impl fmt::Display for HfError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModelType => write!(out, "the configuration has no `model_type`"),
            Self::UnknownModelType(found) => {
                write!(out, "model_type `{found}` is not known; known are ")?;
                write!(out, "{}", MODEL_TYPES.join(", "))?;
                if found.contains("grok") || found == "git" {
                    write!(out, " (Grok has no configuration of this form: use preset `grok-1`)")?;
                }
                Ok(())
            }
            Self::Missing { key, model_type } => {
                write!(out, "`{key}` is missing, and model_type `{model_type}` needs it")
            }
            Self::Unsupported { key, reason } => write!(out, "`{key}`: {reason}"),
        }
    }
}

impl std::error::Error for HfError {}

impl Model {
    /// The model that a Hugging Face configuration describes.
    pub fn from_hf(config: &HfConfig) -> Result<Self, HfError> {
        let model_type = config.model_type.as_deref().ok_or(HfError::NoModelType)?;
        match model_type {
            "gpt2" => gpt2(config),
            "llama" => {
                let biases = Biases {
                    qkv: config.attention_bias == Some(true),
                    out: config.attention_bias == Some(true),
                    mlp: config.mlp_bias == Some(true),
                    ..Biases::NONE
                };
                Ok(Self { biases, ..base(config)? })
            }
            "mistral" => Ok(Self { window: mistral_window(config), ..base(config)? }),
            "mixtral" => mixtral(config),
            "qwen2" => {
                let biases = Biases { qkv: true, ..Biases::NONE };
                Ok(Self { biases, window: qwen_window(config), ..base(config)? })
            }
            "qwen3" => Ok(qwen3(config)?),
            "qwen3_moe" => qwen3_moe(config),
            "gpt_oss" => gpt_oss(config),
            "deepseek_v2" | "deepseek_v3" => deepseek(config, model_type),
            // A model of several kinds of input has its language model inside.
            other => match &config.text_config {
                Some(text) => Self::from_hf(text),
                None => Err(HfError::UnknownModelType(other.to_owned())),
            },
        }
    }
}

impl HfConfig {
    /// The key in such a file that decides a key of [`Model`].
    pub fn key_of(&self, key: &'static str) -> &'static str {
        let model_type = self.model_type.as_deref().unwrap_or_default();
        if let Some(text) = self.text_config.as_ref().filter(|_| !MODEL_TYPES.contains(&model_type))
        {
            return text.key_of(key);
        }
        let is_gpt2 = model_type == "gpt2";
        match key {
            "layers" if is_gpt2 => "n_layer",
            "hidden" if is_gpt2 => "n_embd",
            "ffn" if is_gpt2 => "n_inner",
            "heads" | "kv_heads" | "head_dim" if is_gpt2 => "n_head",
            "layers" => "num_hidden_layers",
            "hidden" => "hidden_size",
            "ffn" => "intermediate_size",
            "heads" => "num_attention_heads",
            "kv_heads" => "num_key_value_heads",
            "head_dim" if self.v_head_dim.is_some() => "v_head_dim",
            "vocab" => "vocab_size",
            "positions" => "n_positions",
            "mtp_layers" if self.num_mtp_layers.is_some() => "num_mtp_layers",
            "mtp_layers" => "num_nextn_predict_layers",
            "window.tokens" => "sliding_window",
            "window.layers" => "layer_types",
            "latent.q_rank" => "q_lora_rank",
            "latent.kv_rank" => "kv_lora_rank",
            "latent.nope" => "qk_nope_head_dim",
            "latent.rope" => "qk_rope_head_dim",
            "experts.count" if self.n_routed_experts.is_some() => "n_routed_experts",
            "experts.count" if self.num_experts.is_some() => "num_experts",
            "experts.count" => "num_local_experts",
            "experts.top_k" => "num_experts_per_tok",
            "experts.shared" => "n_shared_experts",
            "experts.ffn" if self.moe_intermediate_size.is_some() => "moe_intermediate_size",
            "experts.ffn" => "intermediate_size",
            "experts.every" => "decoder_sparse_step",
            "experts.groups" => "n_group",
            "experts.group_limit" => "topk_group",
            other => other,
        }
    }
}

/// What Llama and its relatives share.
fn base(config: &HfConfig) -> Result<Model, HfError> {
    let hidden = need(config, "hidden_size", config.hidden_size)?;
    let heads = need(config, "num_attention_heads", config.num_attention_heads)?;
    let head_dim = config.head_dim.unwrap_or(hidden / heads.max(1));
    Ok(Model {
        name: name(config),
        layers: need(config, "num_hidden_layers", config.num_hidden_layers)?,
        hidden,
        ffn: need(config, "intermediate_size", config.intermediate_size)?,
        heads,
        kv_heads: config.num_key_value_heads.unwrap_or(heads),
        head_dim,
        vocab: need(config, "vocab_size", config.vocab_size)?,
        mlp: Mlp::Gated,
        norm: Norm::Rms,
        norms_per_layer: 2,
        qk_norm: false,
        biases: Biases::NONE,
        tied_embeddings: config.tie_word_embeddings.unwrap_or(false),
        positions: 0,
        window: None,
        latent: None,
        experts: None,
        mtp_layers: 0,
        vision: None,
    })
}

fn gpt2(config: &HfConfig) -> Result<Model, HfError> {
    let hidden = need(config, "n_embd", config.n_embd)?;
    let heads = need(config, "n_head", config.n_head)?;
    Ok(Model {
        name: name(config),
        layers: need(config, "n_layer", config.n_layer)?,
        hidden,
        ffn: config.n_inner.unwrap_or(hidden.saturating_mul(4)),
        heads,
        kv_heads: heads,
        head_dim: hidden / heads.max(1),
        vocab: need(config, "vocab_size", config.vocab_size)?,
        mlp: Mlp::Gelu,
        norm: Norm::Layer,
        norms_per_layer: 2,
        qk_norm: false,
        biases: Biases::ALL,
        tied_embeddings: config.tie_word_embeddings.unwrap_or(true),
        positions: need(config, "n_positions", config.n_positions)?,
        window: None,
        latent: None,
        experts: None,
        mtp_layers: 0,
        vision: None,
    })
}

fn mixtral(config: &HfConfig) -> Result<Model, HfError> {
    let model = base(config)?;
    let experts = Experts {
        count: need(config, "num_local_experts", config.num_local_experts)?,
        top_k: need(config, "num_experts_per_tok", config.num_experts_per_tok)?,
        ..plain_experts(model.ffn)
    };
    Ok(Model { experts: Some(experts), window: mistral_window(config), ..model })
}

fn qwen3(config: &HfConfig) -> Result<Model, HfError> {
    let bias = config.attention_bias == Some(true);
    let biases = Biases { qkv: bias, out: bias, ..Biases::NONE };
    // Qwen3's heads are 128 wide whatever the hidden size, where the file does not say.
    let head_dim = config.head_dim.unwrap_or(128);
    Ok(Model { head_dim, qk_norm: true, biases, window: qwen_window(config), ..base(config)? })
}

fn qwen3_moe(config: &HfConfig) -> Result<Model, HfError> {
    let head_dim = config.head_dim;
    let dense = config.mlp_only_layers.as_deref().unwrap_or_default();
    let leading = dense.len() as u64;
    if !dense.iter().copied().eq(0..leading) {
        return Err(HfError::Unsupported {
            key: "mlp_only_layers",
            reason: format!("only leading layers can be dense, not {dense:?}"),
        });
    }
    let experts = Experts {
        count: need(config, "num_experts", config.num_experts)?,
        top_k: need(config, "num_experts_per_tok", config.num_experts_per_tok)?,
        dense_layers: leading,
        every: config.decoder_sparse_step.unwrap_or(1),
        ..plain_experts(need(config, "moe_intermediate_size", config.moe_intermediate_size)?)
    };
    let model = qwen3(config)?;
    let head_dim = head_dim.unwrap_or(model.hidden / model.heads.max(1));
    Ok(Model { head_dim, experts: Some(experts), ..model })
}

fn gpt_oss(config: &HfConfig) -> Result<Model, HfError> {
    let model = base(config)?;
    let top_k = config.num_experts_per_tok.or(config.experts_per_token);
    let experts = Experts {
        count: need(config, "num_local_experts", config.num_local_experts)?,
        top_k: need(config, "num_experts_per_tok", top_k)?,
        ..plain_experts(model.ffn)
    };
    // Without `layer_types` every other layer is windowed, the first one among them.
    let windowed = match &config.layer_types {
        Some(types) => types.iter().filter(|kind| *kind == "sliding_attention").count() as u64,
        None => model.layers.div_ceil(2),
    };
    let window = Window { tokens: config.sliding_window.unwrap_or(128), layers: windowed };
    let biases = Biases { qkv: true, out: true, mlp: true, router: true, sinks: true };
    Ok(Model { experts: Some(experts), window: Some(window), biases, ..model })
}

fn deepseek(config: &HfConfig, model_type: &str) -> Result<Model, HfError> {
    if !matches!(config.moe_layer_freq, None | Some(1)) {
        return Err(HfError::Unsupported {
            key: "moe_layer_freq",
            reason: "only 1 (every layer after the dense ones) is modelled".to_owned(),
        });
    }
    let bias = config.attention_bias == Some(true);
    if bias {
        return Err(HfError::Unsupported {
            key: "attention_bias",
            reason: "latent attention is modelled without biases".to_owned(),
        });
    }
    // V2-Lite's "greedy" looks at no groups, whatever their number says.
    let grouped = config.topk_method.as_deref() != Some("greedy");
    let groups = config.n_group.filter(|_| grouped).unwrap_or(1);
    let experts = Experts {
        count: need(config, "n_routed_experts", config.n_routed_experts)?,
        top_k: need(config, "num_experts_per_tok", config.num_experts_per_tok)?,
        shared: config.n_shared_experts.unwrap_or(0),
        dense_layers: config.first_k_dense_replace.unwrap_or(0),
        groups,
        group_limit: config.topk_group.filter(|_| grouped).unwrap_or(groups),
        ..plain_experts(need(config, "moe_intermediate_size", config.moe_intermediate_size)?)
    };
    let latent = Latent {
        q_rank: config.q_lora_rank,
        kv_rank: need(config, "kv_lora_rank", config.kv_lora_rank)?,
        nope: need(config, "qk_nope_head_dim", config.qk_nope_head_dim)?,
        rope: need(config, "qk_rope_head_dim", config.qk_rope_head_dim)?,
    };
    let mtp = config.num_mtp_layers.or(config.num_nextn_predict_layers);
    Ok(Model {
        head_dim: need(config, "v_head_dim", config.v_head_dim)?,
        latent: Some(latent),
        experts: Some(experts),
        mtp_layers: if model_type == "deepseek_v3" { mtp.unwrap_or(0) } else { 0 },
        ..base(config)?
    })
}

fn plain_experts(ffn: u64) -> Experts {
    Experts {
        count: 1,
        top_k: 1,
        shared: 0,
        ffn,
        dense_layers: 0,
        every: 1,
        groups: 1,
        group_limit: 1,
    }
}

/// Mistral windows every layer, or none where the key is null.
fn mistral_window(config: &HfConfig) -> Option<Window> {
    let layers = config.num_hidden_layers?;
    config.sliding_window.map(|tokens| Window { tokens, layers })
}

/// Qwen windows the layers from `max_window_layers` on, if it is told to window at all.
fn qwen_window(config: &HfConfig) -> Option<Window> {
    if config.use_sliding_window != Some(true) {
        return None;
    }
    let layers = config.num_hidden_layers?.saturating_sub(config.max_window_layers.unwrap_or(0));
    config.sliding_window.map(|tokens| Window { tokens, layers })
}

fn name(config: &HfConfig) -> Cow<'static, str> {
    let written = config.name_or_path.as_deref().filter(|name| !name.is_empty());
    let name = written.or(config.model_type.as_deref()).unwrap_or("unnamed");
    Cow::Owned(name.to_owned())
}

fn need(config: &HfConfig, key: &'static str, value: Option<u64>) -> Result<u64, HfError> {
    let model_type = config.model_type.clone().unwrap_or_default();
    value.ok_or(HfError::Missing { key, model_type })
}

#[cfg(test)]
mod tests;
