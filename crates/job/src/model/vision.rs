//! A vision encoder before the language model.
//!
//! A transformer over the patches of each image (Dosovitskiy et al., arXiv 2010.11929), every patch
//! seeing all others of its image, and a projector into the residual stream of the language model
//! (two products, as LLaVA-1.5, arXiv 2310.03744). Neighbouring patches may be merged into one
//! token before it (Qwen2-VL, arXiv 2409.12191, four). The images' tokens are part of the sequence.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Biases, LayerKind, Masking, Mlp, Model, Norm};

/// A vision encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vision {
    /// Its layers.
    pub layers: u64,
    /// Width of its residual stream.
    pub hidden: u64,
    /// Its heads.
    pub heads: u64,
    /// Width inside its feed-forward part.
    pub ffn: u64,
    /// Patches of an image: the encoder's tokens.
    pub patches: u64,
    /// Values of a patch: three colours of 14 × 14 points are usual.
    #[serde(default = "usual_patch")]
    pub patch: u64,
    /// Patches that are merged into one token of the language model.
    #[serde(default = "one")]
    pub merge: u64,
    /// Images in a sequence.
    #[serde(default = "one")]
    pub images: u64,
}

fn usual_patch() -> u64 {
    3 * 14 * 14
}

fn one() -> u64 {
    1
}

impl Vision {
    /// The encoder's layers as a model.
    pub fn encoder(&self) -> Model {
        let Self { layers, hidden, ffn, heads, patches, .. } = *self;
        Model {
            name: Cow::Borrowed("vision encoder"),
            layers,
            hidden,
            ffn,
            heads,
            kv_heads: heads,
            head_dim: hidden / heads.max(1),
            vocab: 1,
            mlp: Mlp::Gelu,
            norm: Norm::Layer,
            norms_per_layer: 2,
            qk_norm: false,
            biases: Biases::ALL,
            tied_embeddings: true,
            positions: patches,
            window: None,
            latent: None,
            experts: None,
            mtp_layers: 0,
            vision: None,
        }
    }

    /// Tokens of an image in the language model.
    pub fn tokens(&self) -> u64 {
        self.patches / self.merge.max(1)
    }

    /// Widths of the projector: what comes in, and the products' results, for a language model.
    pub fn projector(&self, hidden: u64) -> [u64; 3] {
        [self.merge * self.hidden, hidden, hidden]
    }

    /// Parameters beside the layers: patch embedding, positions, last norm, projector with biases.
    pub fn ends_parameters(&self, hidden: u64) -> u64 {
        let [from, inside, to] = self.projector(hidden);
        let embedding = (self.patch + 1 + self.patches) * self.hidden;
        embedding + 2 * self.hidden + (from + 1) * inside + (inside + 1) * to
    }

    /// All parameters.
    pub fn parameters(&self, hidden: u64) -> u64 {
        let layer = self.encoder().layer_parameters(LayerKind::Dense).layers();
        self.layers * layer + self.ends_parameters(hidden)
    }

    /// Forward operations of one image.
    pub fn forward_flops(&self, hidden: u64) -> u64 {
        let layers = self.encoder().forward_flops(self.patches, Masking::Full);
        let [from, inside, to] = self.projector(hidden);
        let projector = 2 * self.tokens() * (from * inside + inside * to);
        let embedding = 2 * self.patch * self.hidden;
        self.patches * (layers.layers + layers.attention + embedding) + projector
    }

    /// What cannot be, each with the key it concerns.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let Self { layers, hidden, heads, ffn, patches, patch, merge, images } = *self;
        let sizes = [
            ("vision.layers", layers),
            ("vision.hidden", hidden),
            ("vision.heads", heads),
            ("vision.ffn", ffn),
            ("vision.patches", patches),
            ("vision.patch", patch),
            ("vision.merge", merge),
            ("vision.images", images),
        ];
        let mut problems = Vec::new();
        for (key, value) in sizes {
            if value == 0 {
                problems.push((key, "0 is too few; 1 or more would fit".to_owned()));
            } else if MOST < value {
                problems.push((key, format!("{value} is too many; up to {MOST} would fit")));
            }
        }
        if heads != 0 && !hidden.is_multiple_of(heads) {
            let text = format!("{heads} does not divide the encoder's {hidden} channels");
            problems.push(("vision.heads", text));
        }
        if merge != 0 && !patches.is_multiple_of(merge) {
            let text = format!("{merge} does not divide the {patches} patches of an image");
            problems.push(("vision.merge", text));
        }
        problems
    }
}

/// More of anything than this no encoder has, so that no product can overflow.
const MOST: u64 = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    /// CLIP's ViT-L/14 at 336 points, without its class token.
    fn large() -> Vision {
        let (layers, hidden, heads, ffn) = (24, 1024, 16, 4096);
        Vision { layers, hidden, heads, ffn, patches: 576, patch: 588, merge: 1, images: 1 }
    }

    /// Agreement: ViT-L has 307M parameters (Dosovitskiy et al., table 1; CLIP's vision tower with
    /// 336 points 304M); LLaVA-1.5's projector into 4,096 channels has 21M.
    #[test]
    fn vit_large_has_its_parameters() {
        let layers = large().parameters(4096) - large().ends_parameters(4096);
        assert!((layers as f64 / 302.3e6 - 1.0).abs() < 0.005, "{layers}");
        let projector = 1025 * 4096 + 4097 * 4096;
        let ends = large().ends_parameters(4096);
        assert_eq!(ends - projector, (588 + 1 + 576 + 2) * 1024);
        assert!((projector as f64 / 21e6 - 1.0).abs() < 0.01);
    }

    /// Oracle: 24·p·h² + 4·p²·h for each layer (Narayanan et al., arXiv 2104.04473, appendix), the
    /// patch embedding, and the projector's two products.
    #[test]
    fn operations_are_the_closed_form() {
        let (p, h, wide) = (576, 1024, 4096);
        let layers = 24 * (24 * p * h * h + 4 * p * p * h);
        let ends = 2 * p * 588 * h + 2 * p * (h * wide + wide * wide);
        assert_eq!(large().forward_flops(wide), layers + ends);
        // Merging four patches leaves a quarter of the tokens, each four times as wide.
        let merged = Vision { merge: 4, ..large() };
        let ends = 2 * p * 588 * h + 2 * p / 4 * (4 * h * wide + wide * wide);
        assert_eq!(merged.forward_flops(wide), layers + ends);
        assert_eq!(merged.tokens(), 144);
    }
}
