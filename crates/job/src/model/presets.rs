//! Models known by name, each with its source and how far to trust it.
//!
//! The shapes are those of the models' own reports or configuration files. Two are not published:
//! GPT-4's is an unofficial leak, from which only sizes are known, and Grok 4's is an estimate;
//! both say so in their trust. The GPT sizes are the ones whose training steps were measured and
//! published (see `fatflow validate`); two different models are called "1.7B" there, so each
//! carries its origin in its name.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::{Biases, Experts, Latent, Mlp, Model, Norm, Window};

/// A model known by name.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Where the shape was published.
    pub source: &'static str,
    /// How far to trust it.
    pub trust: Trust,
    /// The shape; its name is the preset's.
    pub model: Model,
}

/// How a preset's shape is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Read in the published configuration or report.
    Published,
    /// Told by an unofficial leak; what it leaves open is derived from the sizes it tells.
    Leak,
    /// Nothing is published; illustrative.
    Estimate,
}

impl Trust {
    /// A word for users.
    pub fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Leak => "unofficial leak",
            Self::Estimate => "estimate",
        }
    }
}

/// The preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.model.name == name)
}

/// All presets.
pub fn all() -> &'static [Preset] {
    &PRESETS
}

const SC21: &str = "Narayanan et al., SC'21 (arXiv 2104.04473), table 1";
const KORTHIKANTI: &str = "Korthikanti et al. (arXiv 2205.05198), table 3";
const VTRAIN: &str = "vTrain (MICRO'24), data/ground_truth_multi.csv; vocabulary of GPT-2";
const MCORE: &str = "Megatron-Core r0.8, weak-scaling table";
const QWEN3: &str = "Qwen3 technical report (arXiv 2505.09388), tables 1, 2; published config.json";
const LLAMA3: &str = "Llama 3 herd of models (arXiv 2407.21783), table 3; published config.json";

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    vec![
        published(
            "MLPerf Training v4 GPT-3 (Brown et al., arXiv 2005.14165; vocabulary padded to 51,200)",
            gpt("gpt3-175b", [96, 12_288, 96, 51_200], 2_048),
        ),
        Preset {
            source: "SemiAnalysis, 2023-07-10: 120 layers, 16 experts of 111B, top-2, 55B attention; \
                     width 10,752 is the one at which all of these agree, heads chosen to divide by 8",
            trust: Trust::Leak,
            model: Model {
                experts: Some(experts(16, 2, 43_008)),
                head_dim: 112,
                ..gpt("gpt4-leak", [120, 10_752, 96, 100_352], 8_192)
            },
        },
        published(LLAMA3, llama("llama3-8b", [32, 4_096, 14_336, 32, 8], 128_256)),
        published(LLAMA3, llama("llama3-70b", [80, 8_192, 28_672, 64, 8], 128_256)),
        published(LLAMA3, llama("llama3-405b", [126, 16_384, 53_248, 128, 8], 128_256)),
        published(
            "DeepSeek-V2 (arXiv 2405.04434); config_236B.json",
            Model {
                head_dim: 128,
                latent: Some(DEEPSEEK_LATENT),
                experts: Some(Experts {
                    shared: 2,
                    dense_layers: 1,
                    groups: 8,
                    group_limit: 3,
                    ..experts(160, 6, 1_536)
                }),
                ..llama("deepseek-v2", [60, 5_120, 12_288, 128, 128], 102_400)
            },
        ),
        published(
            "DeepSeek-V3 (arXiv 2412.19437); config_671B.json",
            Model {
                head_dim: 128,
                latent: Some(DEEPSEEK_LATENT),
                experts: Some(Experts {
                    shared: 1,
                    dense_layers: 3,
                    groups: 8,
                    group_limit: 4,
                    ..experts(256, 8, 2_048)
                }),
                mtp_layers: 1,
                ..llama("deepseek-v3", [61, 7_168, 18_432, 128, 128], 129_280)
            },
        ),
        published(
            "Mixtral of Experts (arXiv 2401.04088), table 1; published config.json",
            Model {
                experts: Some(experts(8, 2, 14_336)),
                ..llama("mixtral-8x7b", [32, 4_096, 14_336, 32, 8], 32_000)
            },
        ),
        published(
            "Mixtral-8x22B-v0.1, published config.json",
            Model {
                experts: Some(experts(8, 2, 16_384)),
                ..llama("mixtral-8x22b", [56, 6_144, 16_384, 48, 8], 32_768)
            },
        ),
        published(
            QWEN3,
            Model {
                head_dim: 128,
                qk_norm: true,
                ..llama("qwen3-32b", [64, 5_120, 25_600, 64, 8], 151_936)
            },
        ),
        published(
            QWEN3,
            Model {
                head_dim: 128,
                qk_norm: true,
                experts: Some(experts(128, 8, 768)),
                ..llama("qwen3-30b-a3b", [48, 2_048, 6_144, 32, 4], 151_936)
            },
        ),
        published(
            QWEN3,
            Model {
                head_dim: 128,
                qk_norm: true,
                experts: Some(experts(128, 8, 1_536)),
                ..llama("qwen3-235b-a22b", [94, 4_096, 12_288, 64, 4], 151_936)
            },
        ),
        published(
            "Kimi K2 (arXiv 2507.20534), table 2; published config.json",
            Model {
                head_dim: 128,
                latent: Some(DEEPSEEK_LATENT),
                experts: Some(Experts { shared: 1, dense_layers: 1, ..experts(384, 8, 2_048) }),
                ..llama("kimi-k2", [61, 7_168, 18_432, 64, 64], 163_840)
            },
        ),
        published(
            "gpt-oss-120b model card (arXiv 2508.10925), table 1; published config.json",
            Model {
                head_dim: 64,
                biases: Biases { router: true, sinks: true, ..Biases::ALL },
                window: Some(Window { tokens: 128, layers: 18 }),
                experts: Some(experts(128, 4, 2_880)),
                ..llama("gpt-oss-120b", [36, 2_880, 2_880, 64, 8], 201_088)
            },
        ),
        published(
            "xai-org/grok-1, run.py and model.py",
            Model {
                experts: Some(experts(8, 2, 32_768)),
                norms_per_layer: 4,
                tied_embeddings: true,
                ..llama("grok-1", [64, 6_144, 32_768, 48, 8], 131_072)
            },
        ),
        Preset {
            source: "none published: Grok-1's proportions carried to the 1.7T parameters that the \
                     press tells; illustrative",
            trust: Trust::Estimate,
            model: Model {
                experts: Some(experts(16, 2, 28_672)),
                norms_per_layer: 4,
                ..llama("grok-4-estimate", [96, 12_288, 28_672, 96, 8], 131_072)
            },
        },
        published(SC21, gpt("gpt-1.7b-sc21", [24, 2_304, 24, 51_200], 2_048)),
        published(MCORE, gpt("gpt-1.7b-mcore", [24, 2_048, 16, 131_072], 4_096)),
        published(VTRAIN, gpt("gpt-3.6b", [30, 3_072, 32, 50_257], 2_048)),
        published(SC21, gpt("gpt-7.5b", [36, 4_096, 32, 51_200], 2_048)),
        published(MCORE, gpt("gpt-16b", [32, 6_144, 48, 131_072], 4_096)),
        published(VTRAIN, gpt("gpt-18.4b", [40, 6_144, 48, 50_257], 2_048)),
        published(KORTHIKANTI, gpt("gpt-22b", [48, 6_144, 64, 51_200], 2_048)),
        published(SC21, gpt("gpt-39.1b", [48, 8_192, 64, 51_200], 2_048)),
        published(MCORE, gpt("gpt-70b", [84, 8_192, 64, 131_072], 4_096)),
        published(SC21, gpt("gpt-145.6b", [80, 12_288, 96, 51_200], 2_048)),
        published(VTRAIN, gpt("gpt-175b", [96, 12_288, 96, 50_257], 2_048)),
        published(
            "MegaScale (arXiv 2402.15627), table 1",
            gpt("gpt-175b-megascale", [96, 12_288, 128, 64_000], 2_048),
        ),
        published(MCORE, gpt("gpt-177b", [96, 12_288, 96, 131_072], 4_096)),
        published(MCORE, gpt("gpt-462b", [112, 18_432, 144, 131_072], 4_096)),
        published(SC21, gpt("gpt-529.6b", [105, 20_480, 128, 51_200], 2_048)),
        published(KORTHIKANTI, gpt("gpt-530b", [105, 20_480, 128, 51_200], 2_048)),
        published(SC21, gpt("gpt-1t", [128, 25_600, 160, 51_200], 2_048)),
    ]
});

/// Latent attention of DeepSeek-V2 and V3 alike: their published configurations.
const DEEPSEEK_LATENT: Latent = Latent { q_rank: Some(1_536), kv_rank: 512, nope: 128, rope: 64 };

fn published(source: &'static str, model: Model) -> Preset {
    Preset { source, trust: Trust::Published, model }
}

fn experts(count: u64, top_k: u64, ffn: u64) -> Experts {
    Experts { count, top_k, shared: 0, ffn, dense_layers: 0, every: 1, groups: 1, group_limit: 1 }
}

/// A model of GPT-2's kind: layers, hidden, heads and vocabulary; `ffn` is four times hidden,
/// every product has a bias, positions are learned and the head is the embedding.
fn gpt(name: &'static str, shape: [u64; 4], positions: u64) -> Model {
    let [layers, hidden, heads, vocab] = shape;
    Model {
        mlp: Mlp::Gelu,
        norm: Norm::Layer,
        biases: Biases::ALL,
        tied_embeddings: true,
        positions,
        ..llama(name, [layers, hidden, 4 * hidden, heads, heads], vocab)
    }
}

/// A model of Llama's kind: layers, hidden, ffn, heads and key/value heads.
fn llama(name: &'static str, shape: [u64; 5], vocab: u64) -> Model {
    let [layers, hidden, ffn, heads, kv_heads] = shape;
    Model {
        name: Cow::Borrowed(name),
        layers,
        hidden,
        ffn,
        heads,
        kv_heads,
        head_dim: hidden / heads,
        vocab,
        mlp: Mlp::Gated,
        norm: Norm::Rms,
        norms_per_layer: 2,
        qk_norm: false,
        biases: Biases::NONE,
        tied_embeddings: false,
        positions: 0,
        window: None,
        latent: None,
        experts: None,
        mtp_layers: 0,
        vision: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_model_with_a_name_of_its_own() {
        let mut names: Vec<_> = all().iter().map(|preset| &preset.model.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all().len());
        for preset in all() {
            assert_eq!(preset.model.problems(), [], "{}", preset.model.name);
            assert!(!preset.source.is_empty());
        }
    }

    #[test]
    fn what_is_not_published_says_so() {
        let trust = |name| find(name).unwrap().trust.word();
        assert_eq!(trust("gpt4-leak"), "unofficial leak");
        assert_eq!(trust("grok-4-estimate"), "estimate");
        assert_eq!(trust("llama3-405b"), "published");
    }
}
