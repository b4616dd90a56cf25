//! A transformer's shape: what its parameters, operations and messages are computed from.
//!
//! A [`Model`] is plain data: how many layers of which kind, how wide, with which attention and
//! which feed-forward part. It comes from a preset ([`presets`]), from a Hugging Face
//! `config.json` ([`hugging_face`]) or is written out in a scenario. Everything counted from it is
//! closed-form: [`parameters`] counts weights part by part, [`flops`] counts operations per token.
//!
//! Sources: the models' own reports and configuration files, named at each preset.

pub mod flops;
pub mod hugging_face;
pub mod parameters;
pub mod presets;
pub mod recompute;
pub mod vision;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use flops::{Flops, Masking};
pub use hugging_face::{HfConfig, HfError};
pub use parameters::Parameters;
pub use presets::{Preset, Trust};
pub use recompute::{Module, Recompute, Recomputed, Usual};
pub use vision::Vision;

/// The shape of a decoder-only transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What the model is called.
    #[serde(default = "unnamed")]
    pub name: Cow<'static, str>,
    /// Decoder layers, without multi-token-prediction layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width inside the feed-forward part of a dense layer.
    pub ffn: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads: `heads` without grouping, fewer with grouped queries.
    pub kv_heads: u64,
    /// Width of one head. With latent attention this is the width of a value head.
    pub head_dim: u64,
    /// Rows of the embedding, padding included.
    pub vocab: u64,
    /// The feed-forward part.
    #[serde(default)]
    pub mlp: Mlp,
    /// The normalisation.
    #[serde(default)]
    pub norm: Norm,
    /// Normalisations in a layer. Two is usual; Grok-1 has four.
    #[serde(default = "two")]
    pub norms_per_layer: u64,
    /// Whether queries and keys are normalised per head, as in Qwen3.
    #[serde(default)]
    pub qk_norm: bool,
    /// Which products add a bias.
    #[serde(default)]
    pub biases: Biases,
    /// Whether the output head shares the embedding's weights.
    #[serde(default)]
    pub tied_embeddings: bool,
    /// Rows of a learned position embedding; 0 where positions are rotations.
    #[serde(default)]
    pub positions: u64,
    /// Layers whose attention sees a sliding window only.
    #[serde(default)]
    pub window: Option<Window>,
    /// Multi-head latent attention, as in DeepSeek-V2.
    #[serde(default)]
    pub latent: Option<Latent>,
    /// Mixture of experts.
    #[serde(default)]
    pub experts: Option<Experts>,
    /// Multi-token-prediction layers beside the main model, as in DeepSeek-V3.
    #[serde(default)]
    pub mtp_layers: u64,
    /// A vision encoder before the first layer.
    #[serde(default)]
    pub vision: Option<Vision>,
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mlp {
    /// Three matrices: gate, up and down (SwiGLU, GeGLU).
    #[default]
    Gated,
    /// Two matrices with an activation between them.
    Gelu,
}

impl Mlp {
    /// Matrices of hidden × ffn.
    pub fn matrices(self) -> u64 {
        match self {
            Self::Gated => 3,
            Self::Gelu => 2,
        }
    }
}

/// The normalisation of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// A scale per channel.
    #[default]
    Rms,
    /// A scale and a shift per channel.
    Layer,
}

impl Norm {
    /// Parameters per channel.
    pub fn per_channel(self) -> u64 {
        match self {
            Self::Rms => 1,
            Self::Layer => 2,
        }
    }
}

/// Which matrix products add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Biases {
    /// Query, key and value projections.
    pub qkv: bool,
    /// The attention's output projection.
    pub out: bool,
    /// The feed-forward part, experts included.
    pub mlp: bool,
    /// The router of a mixture of experts.
    pub router: bool,
    /// One learned attention sink per head, as in gpt-oss.
    pub sinks: bool,
}

impl Biases {
    /// No biases: Llama and its kin.
    pub const NONE: Self = Self { qkv: false, out: false, mlp: false, router: false, sinks: false };
    /// Biases everywhere: GPT-2 and its kin.
    pub const ALL: Self = Self { qkv: true, out: true, mlp: true, router: false, sinks: false };
}

/// Sliding-window attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// How many tokens a query sees.
    pub tokens: u64,
    /// How many of the layers are so limited.
    pub layers: u64,
}

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    /// Width of the compressed query; absent where queries are not compressed (V2-Lite).
    #[serde(default)]
    pub q_rank: Option<u64>,
    /// Width of the compressed key and value.
    pub kv_rank: u64,
    /// Width of a query or key head without position.
    pub nope: u64,
    /// Width of its rotated part, whose key is shared by all heads.
    pub rope: u64,
}

/// The experts of a mixture-of-experts layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Routed experts in a layer.
    pub count: u64,
    /// Routed experts per token.
    pub top_k: u64,
    /// Experts that see every token.
    #[serde(default)]
    pub shared: u64,
    /// Width inside one expert.
    pub ffn: u64,
    /// Leading layers that stay dense.
    #[serde(default)]
    pub dense_layers: u64,
    /// After those, layer `i` (from 0) has experts if `i + 1` is a multiple of this.
    #[serde(default = "one")]
    pub every: u64,
    /// Groups of experts for limited routing; 1 where there are none.
    #[serde(default = "one")]
    pub groups: u64,
    /// Groups that the experts of one token may come from.
    #[serde(default = "one")]
    pub group_limit: u64,
}

/// What the feed-forward part of a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerKind {
    /// One feed-forward part for all tokens.
    Dense,
    /// A router and experts.
    Moe,
}

fn unnamed() -> Cow<'static, str> {
    Cow::Borrowed("unnamed")
}

fn one() -> u64 {
    1
}

fn two() -> u64 {
    2
}

impl Model {
    /// The preset of that name.
    pub fn preset(name: &str) -> Option<Self> {
        presets::find(name).map(|preset| preset.model.clone())
    }

    /// What layer `index`, counted from 0, is.
    pub fn kind(&self, index: u64) -> LayerKind {
        match &self.experts {
            Some(experts)
                if experts.dense_layers <= index && (index + 1).is_multiple_of(experts.every) =>
            {
                LayerKind::Moe
            }
            _ => LayerKind::Dense,
        }
    }

    /// How many of the layers `from..to` have experts.
    pub fn moe_layers_in(&self, from: u64, to: u64) -> u64 {
        let Some(experts) = &self.experts else { return 0 };
        let (from, to) = (from.max(experts.dense_layers), to.max(experts.dense_layers));
        // Multiples of `every` in from+1..=to.
        to / experts.every - from / experts.every
    }

    /// How many layers have experts.
    pub fn moe_layers(&self) -> u64 {
        self.moe_layers_in(0, self.layers)
    }

    /// Width of one query or key head: what a score is summed over.
    pub fn score_dim(&self) -> u64 {
        self.latent.map_or(self.head_dim, |latent| latent.nope + latent.rope)
    }

    /// Values that attention keeps of a token in one layer: keys and values, or their latent.
    pub fn kept_values(&self) -> u64 {
        let plain = 2 * self.kv_heads * self.head_dim;
        self.latent.map_or(plain, |latent| latent.kv_rank + latent.rope)
    }

    /// What cannot be a model, each with the key it concerns.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let mut sizes = vec![
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("ffn", self.ffn),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("vocab", self.vocab),
        ];
        if let Some(Experts { count, top_k, ffn, .. }) = self.experts {
            sizes.extend([
                ("experts.count", count),
                ("experts.top_k", top_k),
                ("experts.ffn", ffn),
            ]);
        }
        for (key, value) in sizes {
            if value == 0 {
                problems.push((key, "0 is too few; 1 or more would fit".to_owned()));
            }
        }
        if MOST_LAYERS < self.layers {
            let text =
                format!("{} layers are too many; up to {MOST_LAYERS} would fit", self.layers);
            problems.push(("layers", text));
        } else if !self.is_countable() {
            let text = "these sizes multiply to more than 10¹⁶ parameters; smaller ones would fit";
            problems.push((self.largest(), text.to_owned()));
        }
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        if kv_heads != 0 && !heads.is_multiple_of(kv_heads) {
            let fit = divisors_in_words(heads);
            let text = format!("{heads} heads cannot share {kv_heads} key/value heads; {fit}");
            problems.push(("kv_heads", text));
        }
        if let Some(window) = self.window.filter(|window| self.layers < window.layers) {
            let (some, all) = (window.layers, self.layers);
            let text = format!("{some} layers of {all} are windowed; up to {all} would fit");
            problems.push(("window.layers", text));
        }
        problems.extend(self.experts.iter().flat_map(Experts::problems));
        problems.extend(self.vision.iter().flat_map(Vision::problems));
        problems
    }

    /// Whether no count of parameters or operations can overflow: 10¹⁶ parameters are ten
    /// thousand times the largest model.
    fn is_countable(&self) -> bool {
        let real = |number: u64| number as f64;
        let experts = self.experts.map_or(0.0, |experts| {
            (real(experts.count) + real(experts.shared)) * (real(experts.ffn) + 1.0)
        });
        let latent = self.latent.map_or(0.0, |latent| {
            let ranks = real(latent.q_rank.unwrap_or(0)) + real(latent.kv_rank);
            ranks + real(self.heads) * (real(latent.nope) + real(latent.rope))
        });
        let inside = real(self.heads) * real(self.head_dim) + real(self.ffn) + experts + latent;
        let layers = real(self.layers) + real(self.mtp_layers);
        let norms = real(self.norms_per_layer);
        let width = layers * (inside + norms) + real(self.vocab) + real(self.positions);
        // A matrix of latent attention is a rank by the width of all heads.
        let widest = real(self.hidden).max(latent);
        let tokens = self.window.map_or(0.0, |window| real(window.tokens));
        4.0 * widest * width <= 1e16 && tokens <= 1e15
    }

    /// The key of the largest size, which is the likeliest to be wrong.
    fn largest(&self) -> &'static str {
        let experts = self.experts;
        let sizes = [
            ("hidden", self.hidden),
            ("ffn", self.ffn),
            ("heads", self.heads),
            ("head_dim", self.head_dim),
            ("vocab", self.vocab),
            ("positions", self.positions),
            ("mtp_layers", self.mtp_layers),
            ("window.tokens", self.window.map_or(0, |window| window.tokens)),
            ("latent.q_rank", self.latent.and_then(|latent| latent.q_rank).unwrap_or(0)),
            ("latent.kv_rank", self.latent.map_or(0, |latent| latent.kv_rank)),
            ("latent.nope", self.latent.map_or(0, |latent| latent.nope)),
            ("latent.rope", self.latent.map_or(0, |latent| latent.rope)),
            ("experts.count", experts.map_or(0, |experts| experts.count)),
            ("experts.shared", experts.map_or(0, |experts| experts.shared)),
            ("experts.ffn", experts.map_or(0, |experts| experts.ffn)),
        ];
        // The first of equals, as `ffn` may follow from `hidden`.
        let mut most = sizes[0];
        for size in sizes {
            // A vocabulary is large by nature.
            if most.1 < size.1 && (size.0 != "vocab" || size.1 >> 32 != 0) {
                most = size;
            }
        }
        most.0
    }
}

impl Experts {
    /// What cannot be, each with the key it concerns; zeros are the model's to find.
    fn problems(&self) -> Vec<(&'static str, String)> {
        let Self { count, top_k, every, groups, group_limit, .. } = *self;
        let mut problems = Vec::new();
        if 0 < count && count < top_k {
            let text = format!("{top_k} of {count} experts per token; 1 to {count} would fit");
            problems.push(("experts.top_k", text));
        }
        if every == 0 {
            let text = "every 0th layer has experts; 1 or more would fit".to_owned();
            problems.push(("experts.every", text));
        }
        if groups == 0 || !count.is_multiple_of(groups) {
            let fit = divisors_in_words(count);
            let text = format!("{count} experts do not divide into {groups} groups; {fit}");
            problems.push(("experts.groups", text));
        } else if group_limit == 0 || groups < group_limit {
            let text = format!("{group_limit} of {groups} groups; 1 to {groups} would fit");
            problems.push(("experts.group_limit", text));
        }
        problems
    }
}

/// Deeper than this is no model: a hundred times the deepest.
const MOST_LAYERS: u64 = 100_000;

/// What divides a number, such as "1, 2, 4 would fit".
fn divisors_in_words(number: u64) -> String {
    let all = (1..=number.min(1 << 12)).filter(|divisor| number.is_multiple_of(*divisor));
    let words: Vec<String> = all.take(12).map(|divisor| divisor.to_string()).collect();
    format!("{} would fit", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: counting layers one by one.
    #[test]
    fn layers_with_experts_are_counted_as_they_are_named() {
        let mut model = Model::preset("deepseek-v3").unwrap();
        for every in 1..4 {
            for dense_layers in 0..5 {
                let experts = model.experts.as_mut().unwrap();
                (experts.every, experts.dense_layers) = (every, dense_layers);
                for from in 0..20 {
                    for to in from..24 {
                        let counted =
                            (from..to).filter(|&i| model.kind(i) == LayerKind::Moe).count() as u64;
                        assert_eq!(model.moe_layers_in(from, to), counted);
                    }
                }
            }
        }
    }

    #[test]
    fn a_wrong_shape_says_which_key_is_wrong() {
        let mut model = Model::preset("mixtral-8x7b").unwrap();
        model.kv_heads = 7;
        model.experts.as_mut().unwrap().top_k = 9;
        let keys: Vec<_> = model.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["kv_heads", "experts.top_k"]);
    }

    /// Property: sizes that no machine counts are refused by name, and nothing overflows.
    #[test]
    fn huge_sizes_are_named_not_multiplied() {
        type Set = fn(&mut Model, u64);
        let cases: [(&str, Set); 7] = [
            ("layers", |model, size| model.layers = size),
            ("hidden", |model, size| model.hidden = size),
            ("ffn", |model, size| model.ffn = size),
            ("vocab", |model, size| model.vocab = size),
            ("mtp_layers", |model, size| model.mtp_layers = size),
            ("latent.rope", |model, size| model.latent.as_mut().unwrap().rope = size),
            ("experts.shared", |model, size| model.experts.as_mut().unwrap().shared = size),
        ];
        for (key, set) in cases {
            for size in [1 << 62, u64::MAX] {
                let mut model = Model::preset("deepseek-v3").unwrap();
                set(&mut model, size);
                let keys: Vec<_> = model.problems().into_iter().map(|(key, _)| key).collect();
                assert_eq!(keys, [key], "{size}");
            }
        }
        for preset in presets::all() {
            assert_eq!(preset.model.problems(), []);
        }
    }
}
