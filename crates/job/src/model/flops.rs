//! Floating-point operations per token.
//!
//! Matrix products only, two operations for each multiply-add: what model FLOPs utilisation is
//! measured by. The backward pass costs twice the forward one. Attention's two products (scores,
//! and scores times values) grow with the sequence; a causal mask halves them, which half of the
//! literature counts and the other half does not, hence [`Masking`].
//!
//! Sources: Narayanan et al. (arXiv 2104.04473, section 5.1) for the full count with
//! recomputation, Korthikanti et al. (2205.05198, appendix A) for the selective one. The causal
//! half is exactly `s/2` here, as in those papers, not `(s+1)/2`. Multi-token-prediction layers
//! are not model FLOPs: DeepSeek's own utilisation (2505.09343, table 4) leaves them out too.

use super::{LayerKind, Model, Module, Recomputed};

/// Whether the masked half of attention counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masking {
    /// Only the half that a causal mask leaves.
    Causal,
    /// All scores.
    Full,
}

/// Operations per token, by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// Projections, feed-forward parts, experts and routers of the layers.
    pub layers: u64,
    /// Attention's scores and their product with the values.
    pub attention: u64,
    /// The output head.
    pub head: u64,
    /// The vision encoder's, of the images of a sequence, for each of its tokens.
    pub vision: u64,
}

impl Flops {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.layers + self.attention + self.head + self.vision
    }
}

impl Model {
    /// Forward operations per token of a sequence of `length`.
    pub fn forward_flops(&self, length: u64, masking: Masking) -> Flops {
        let moe = self.moe_layers();
        let weights = self.matrix_parameters(LayerKind::Moe) * moe
            + self.matrix_parameters(LayerKind::Dense) * (self.layers - moe);
        let global = if masking == Masking::Full { 2 * length } else { length };
        let windowed = self.window.map_or(0, |window| window.layers);
        let seen = self.window.map_or(global, |window| global.min(2 * window.tokens));
        let per_position = self.heads * (self.score_dim() + self.head_dim);
        Flops {
            layers: 2 * weights,
            attention: per_position * (global * (self.layers - windowed) + seen * windowed),
            head: 2 * self.vocab * self.hidden,
            vision: self.vision.map_or(0, |vision| {
                vision.images * vision.forward_flops(self.hidden) / length.max(1)
            }),
        }
    }

    /// Forward and backward operations per token: what utilisation is measured by.
    pub fn model_flops(&self, length: u64, masking: Masking) -> Flops {
        let forward = self.forward_flops(length, masking);
        Flops {
            layers: 3 * forward.layers,
            attention: 3 * forward.attention,
            head: 3 * forward.head,
            vision: 3 * forward.vision,
        }
    }

    /// Model operations and those that recomputation repeats: what the hardware really does.
    pub fn hardware_flops(&self, length: u64, masking: Masking, again: Recomputed) -> Flops {
        let forward = self.forward_flops(length, masking);
        let mut all = self.model_flops(length, masking);
        if again.has(Module::CoreAttn) {
            all.attention += forward.attention;
        }
        if again.is_full() {
            all.vision += forward.vision;
        }
        all.layers += if again.is_full() { forward.layers } else { 2 * self.repeated(again) };
        all
    }

    /// Parameters of the matrices that a token is multiplied with again, over all layers.
    fn repeated(&self, again: Recomputed) -> u64 {
        let moe = self.moe_layers();
        let has = |module| u64::from(again.has(module));
        let up = self.latent.map_or(0, |latent| {
            let heads = self.heads;
            let query = latent.q_rank.unwrap_or(self.hidden) * heads * (latent.nope + latent.rope);
            query + latent.kv_rank * heads * (latent.nope + self.head_dim)
        });
        let matrices = self.mlp.matrices() * self.hidden;
        let experts = self.experts.map_or(0, |experts| {
            let shared = matrices * experts.ffn * experts.shared;
            let routed = matrices * experts.ffn * experts.top_k + self.hidden * experts.count;
            let with = has(Module::Moe).max(has(Module::SharedExperts));
            routed * has(Module::Moe) + shared * with
        });
        self.layers * up * has(Module::MlaUpProj)
            + (self.layers - moe) * matrices * self.ffn * has(Module::Mlp)
            + moe * experts
    }

    /// Parameters of the matrices that one token is multiplied with in a layer.
    fn matrix_parameters(&self, kind: LayerKind) -> u64 {
        let (hidden, heads) = (self.hidden, self.heads);
        let attention = match self.latent {
            None => 2 * hidden * (heads + self.kv_heads) * self.head_dim,
            Some(latent) => {
                let score = latent.nope + latent.rope;
                let query = match latent.q_rank {
                    Some(rank) => rank * (hidden + heads * score),
                    None => hidden * heads * score,
                };
                query
                    + hidden * (latent.kv_rank + latent.rope)
                    + latent.kv_rank * heads * (latent.nope + self.head_dim)
                    + heads * self.head_dim * hidden
            }
        };
        let matrices = self.mlp.matrices() * hidden;
        attention
            + match (kind, &self.experts) {
                (LayerKind::Moe, Some(experts)) => {
                    let visited = experts.top_k + experts.shared;
                    matrices * experts.ffn * visited + hidden * experts.count
                }
                _ => matrices * self.ffn,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Recompute, Usual};

    /// Oracle: 96·s·l·h²·(1 + s/6h + V/16lh) per sequence (Narayanan et al., equation 2), which
    /// counts full recomputation and no mask.
    #[test]
    fn full_recomputation_is_the_published_formula() {
        for name in ["gpt-1.7b-sc21", "gpt-39.1b", "gpt-145.6b", "gpt-529.6b"] {
            let model = Model::preset(name).unwrap();
            let (s, l, h, v) = (2048, model.layers, model.hidden, model.vocab);
            let flops = model.hardware_flops(s, Masking::Full, Recomputed::FULL).total();
            assert_eq!(flops, 96 * l * h * h + 16 * s * l * h + 6 * v * h, "{name}");
        }
    }

    /// Oracle: 72·s·l·h²·(1 + s/6h + V/12lh) model and (1 + s/3h + V/12lh) selective-recompute
    /// hardware operations (Korthikanti et al., equations 7 and 8; 72·s/3h is 24 s/h more than
    /// three quarters of it, that is 4·s·h more per token and layer).
    #[test]
    fn selective_recomputation_repeats_attention_once() {
        let model = Model::preset("gpt-22b").unwrap();
        let (s, l, h, v) = (2048, model.layers, model.hidden, model.vocab);
        let model_flops = model.model_flops(s, Masking::Full).total();
        assert_eq!(model_flops, 72 * l * h * h + 12 * s * l * h + 6 * v * h);
        let selective = Recompute::Usual(Usual::Selective).of(&model);
        let hardware = model.hardware_flops(s, Masking::Full, selective).total();
        assert_eq!(hardware, model_flops + 4 * s * l * h);
    }

    /// Agreement, 0.5 %: DeepSeek-V3 did 62.9M tokens in 19.926 s on 2,048 GPUs at 385 TFLOP/s
    /// each with causal counting and 432 without (arXiv 2505.09343, table 4).
    #[test]
    fn deepseek_v3_counts_as_its_authors_count() {
        let model = Model::preset("deepseek-v3").unwrap();
        let tokens = 15_360.0 * 4_096.0;
        for (masking, published) in [(Masking::Causal, 385.0), (Masking::Full, 432.0)] {
            let flops = model.model_flops(4_096, masking).total() as f64;
            let rate = flops * tokens / 19.926 / 2_048.0 / 1e12;
            assert!((rate / published - 1.0).abs() < 0.005, "{masking:?}: {rate}");
        }
    }

    /// Property: a mask never adds work, recomputation never removes any.
    #[test]
    fn counts_are_ordered() {
        for preset in crate::model::presets::all() {
            let model = &preset.model;
            let full = |r| model.hardware_flops(8_192, Masking::Full, r).total();
            let causal = |r| model.hardware_flops(8_192, Masking::Causal, r).total();
            let selective = Recompute::Usual(Usual::Selective).of(model);
            for r in [Recomputed::NONE, selective, Recomputed::FULL] {
                assert!(causal(r) < full(r), "{}", model.name);
            }
            assert!(full(Recomputed::NONE) < full(selective));
            assert!(full(selective) < full(Recomputed::FULL));
        }
    }

    /// Oracle: the modules with products, all of them, are what a whole layer repeats but its
    /// projections into and out of the latent.
    #[test]
    fn modules_add_up_to_layers() {
        let model = Model::preset("deepseek-v3").unwrap();
        let count = |again| model.hardware_flops(4096, Masking::Causal, again).total();
        let all: Vec<Module> = Module::ALL.iter().map(|(_, module)| *module).collect();
        let latent = model.latent.unwrap();
        let down = model.hidden * (latent.q_rank.unwrap() + latent.kv_rank + latent.rope);
        let out = model.heads * model.head_dim * model.hidden;
        let rest = 2 * model.layers * (down + out);
        assert_eq!(count(Recomputed::modules(&all)) + rest, count(Recomputed::FULL));
        // The shared experts are among the module `moe`.
        let shared = [Module::Moe, Module::SharedExperts];
        let both = count(Recomputed::modules(&shared));
        assert_eq!(both, count(Recomputed::modules(&[Module::Moe])));
    }
}
