//! What the backward pass computes again instead of keeping it.
//!
//! [`Recompute`] is what a job says: one of three usual words, or a list of [`Module`]s by the
//! names that Megatron-LM gives them (`--recompute-modules`). [`Recomputed`] is what it means for a
//! model.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::Model;

/// What the backward pass computes again instead of keeping it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Recompute {
    /// What is usual, by a word.
    Usual(Usual),
    /// These modules of every layer that has them.
    Modules(Vec<Module>),
}

/// The usual choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Usual {
    /// Nothing: all activations are kept.
    #[default]
    None,
    /// The attention between its projections (Korthikanti et al., arXiv 2205.05198). With latent
    /// attention what DeepSeek-V3 computes again (arXiv 2412.19437, sections 3.2.3 and 3.3.3):
    /// up-projections, norms and the experts' activation.
    Selective,
    /// Whole layers, from their inputs.
    Full,
}

/// A part of a layer that can be computed again, as Megatron-LM calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Module {
    /// The attention between its projections.
    CoreAttn,
    /// Queries, keys and values out of the latent, with its norms and rotations.
    MlaUpProj,
    /// The norms of a layer.
    Layernorm,
    /// The activation inside the routed experts.
    MoeAct,
    /// The feed-forward part of a dense layer.
    Mlp,
    /// Router, experts and the exchange of tokens.
    Moe,
    /// The shared experts.
    SharedExperts,
}

impl Module {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("core_attn", Self::CoreAttn),
        ("mla_up_proj", Self::MlaUpProj),
        ("layernorm", Self::Layernorm),
        ("moe_act", Self::MoeAct),
        ("mlp", Self::Mlp),
        ("moe", Self::Moe),
        ("shared_experts", Self::SharedExperts),
    ];

    /// Its name.
    pub fn word(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, module)| *module == self);
        known.expect("all are listed").0
    }

    /// Why a model has no such part, if it has none.
    pub fn missing(self, model: &Model) -> Option<&'static str> {
        let experts = model.experts.as_ref();
        let dense = model.layers - model.moe_layers();
        match self {
            Self::CoreAttn | Self::Layernorm => None,
            Self::MlaUpProj => model.latent.is_none().then_some("attention is not latent"),
            Self::Mlp => (dense == 0).then_some("every layer has experts"),
            Self::Moe | Self::MoeAct => experts.is_none().then_some("the model has no experts"),
            Self::SharedExperts => experts
                .is_none_or(|experts| experts.shared == 0)
                .then_some("the model has no shared experts"),
        }
    }
}

impl Default for Recompute {
    fn default() -> Self {
        Self::Usual(Usual::None)
    }
}

impl From<Usual> for Recompute {
    fn from(usual: Usual) -> Self {
        Self::Usual(usual)
    }
}

impl Recompute {
    /// What it means for a model.
    pub fn of(&self, model: &Model) -> Recomputed {
        match self {
            Self::Usual(Usual::None) => Recomputed::NONE,
            Self::Usual(Usual::Full) => Recomputed::FULL,
            Self::Usual(Usual::Selective) if model.latent.is_some() => {
                Recomputed::modules(&[Module::MlaUpProj, Module::Layernorm, Module::MoeAct])
            }
            Self::Usual(Usual::Selective) => Recomputed::modules(&[Module::CoreAttn]),
            Self::Modules(modules) => Recomputed::modules(modules),
        }
    }
}

impl<'de> Deserialize<'de> for Recompute {
    /// By hand, so that a wrong module is named; `untagged` would hide it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = Recompute;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "none, selective, full, or a list of modules")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Recompute, E> {
                Usual::deserialize(word.into_deserializer()).map(Recompute::Usual)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Recompute, A::Error> {
                let modules = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Recompute::Modules(modules))
            }
        }
        deserializer.deserialize_any(Choice)
    }
}

/// What is computed again in the layers of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recomputed {
    modules: [bool; Module::ALL.len()],
    layers: bool,
}

impl Recomputed {
    /// Nothing.
    pub const NONE: Self = Self { modules: [false; Module::ALL.len()], layers: false };
    /// Whole layers.
    pub const FULL: Self = Self { modules: [true; Module::ALL.len()], layers: true };

    /// These modules.
    pub fn modules(modules: &[Module]) -> Self {
        let mut again = Self::NONE;
        for module in modules {
            again.modules[*module as usize] = true;
        }
        again
    }

    /// Whether a module is computed again.
    pub fn has(self, module: Module) -> bool {
        self.modules[module as usize]
    }

    /// Whether whole layers are, from their inputs.
    pub fn is_full(self) -> bool {
        self.layers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `selective` is the scores' name for most models, DeepSeek's own list for latent attention.
    #[test]
    fn selective_means_what_the_papers_did() {
        let selective = Recompute::Usual(Usual::Selective);
        let again = |name: &str| selective.of(&Model::preset(name).unwrap());
        let llama = again("llama3-8b");
        assert!(llama.has(Module::CoreAttn) && !llama.has(Module::Layernorm));
        let deepseek = again("deepseek-v3");
        assert!(deepseek.has(Module::MlaUpProj) && !deepseek.has(Module::CoreAttn));
        assert!(!deepseek.is_full() && Recomputed::FULL.has(Module::Moe));
    }

    #[test]
    fn a_module_that_a_model_lacks_is_told() {
        let llama = Model::preset("llama3-8b").unwrap();
        let missing = Module::ALL.iter().filter(|(_, module)| module.missing(&llama).is_some());
        let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
        assert_eq!(missing, ["mla_up_proj", "moe_act", "moe", "shared_experts"]);
        let deepseek = Model::preset("deepseek-v3").unwrap();
        assert!(Module::ALL.iter().all(|(_, module)| module.missing(&deepseek).is_none()));
    }
}
