//! Exact parameter counts, part by part.
//!
//! Every weight, bias and norm is counted as the published implementations store them, so the
//! totals agree with the checkpoints to the last parameter where a checkpoint's count is known
//! (see the tests). Multi-token-prediction layers are counted apart, as their reports do.

use super::{LayerKind, Mlp, Model};

/// Parameters of a model, or of a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Token embedding and learned positions.
    pub embedding: u64,
    /// Attention projections, with their biases and inner norms.
    pub attention: u64,
    /// Feed-forward parts of dense layers.
    pub mlp: u64,
    /// Routers.
    pub router: u64,
    /// Routed experts.
    pub experts: u64,
    /// Shared experts.
    pub shared: u64,
    /// Norms of layers and of the output.
    pub norms: u64,
    /// The output head; 0 where it is the embedding's.
    pub head: u64,
    /// The vision encoder with its projector.
    pub vision: u64,
}

impl Parameters {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.layers() + self.embedding + self.head + self.vision
    }

    /// All but embedding and head: norms of the output are among them.
    pub fn layers(&self) -> u64 {
        self.dense() + self.experts
    }

    /// What every data-parallel rank of a stage holds alike, without embedding and head:
    /// everything but routed experts.
    pub fn dense(&self) -> u64 {
        self.attention + self.mlp + self.router + self.shared + self.norms
    }

    /// Part by part.
    pub fn plus(self, other: Self) -> Self {
        Self {
            embedding: self.embedding + other.embedding,
            attention: self.attention + other.attention,
            mlp: self.mlp + other.mlp,
            router: self.router + other.router,
            experts: self.experts + other.experts,
            shared: self.shared + other.shared,
            norms: self.norms + other.norms,
            head: self.head + other.head,
            vision: self.vision + other.vision,
        }
    }

    /// So many times.
    pub fn times(self, n: u64) -> Self {
        Self {
            embedding: self.embedding * n,
            attention: self.attention * n,
            mlp: self.mlp * n,
            router: self.router * n,
            experts: self.experts * n,
            shared: self.shared * n,
            norms: self.norms * n,
            head: self.head * n,
            vision: self.vision * n,
        }
    }
}

impl Model {
    /// The main model's parameters, without multi-token prediction.
    pub fn parameters(&self) -> Parameters {
        let mut all = self.layer_range_parameters(0, self.layers);
        all.embedding = self.embedding_parameters();
        all.norms += self.norm.per_channel() * self.hidden;
        all.head = if self.tied_embeddings { 0 } else { self.vocab * self.hidden };
        all.vision = self.vision.map_or(0, |vision| vision.parameters(self.hidden));
        all
    }

    /// Token embedding and learned positions.
    pub fn embedding_parameters(&self) -> u64 {
        (self.vocab + self.positions) * self.hidden
    }

    /// The layers `from..to`.
    pub fn layer_range_parameters(&self, from: u64, to: u64) -> Parameters {
        let moe = self.moe_layers_in(from, to);
        let dense = to - from - moe;
        let dense = self.layer_parameters(LayerKind::Dense).times(dense);
        dense.plus(self.layer_parameters(LayerKind::Moe).times(moe))
    }

    /// One layer of a kind. The Moe kind of a model without experts is its dense one.
    pub fn layer_parameters(&self, kind: LayerKind) -> Parameters {
        let mut layer = Parameters {
            attention: self.attention_parameters(),
            norms: self.norms_per_layer * self.norm.per_channel() * self.hidden,
            ..Parameters::default()
        };
        match (kind, &self.experts) {
            (LayerKind::Moe, Some(experts)) => {
                let expert = self.mlp_parameters(experts.ffn);
                layer.experts = experts.count * expert;
                layer.shared = experts.shared * expert;
                let bias = if self.biases.router { experts.count } else { 0 };
                layer.router = self.hidden * experts.count + bias;
            }
            _ => layer.mlp = self.mlp_parameters(self.ffn),
        }
        layer
    }

    /// Multi-token-prediction layers: each a layer of the last kind, a projection of two
    /// residual streams into one, two norms before it and one at the head (DeepSeek-V3,
    /// arXiv 2412.19437, section 2.2). Embedding and head are the main model's.
    pub fn mtp_parameters(&self) -> Parameters {
        let mut layer = self.layer_parameters(self.kind(self.layers.saturating_sub(1)));
        layer.mlp += 2 * self.hidden * self.hidden;
        layer.norms += 3 * self.norm.per_channel() * self.hidden;
        layer.times(self.mtp_layers)
    }

    /// Parameters that work on one token: everything but the routed experts it does not visit.
    /// The embedding counts, though only one row of it is read; reports differ on that.
    pub fn active_parameters(&self) -> u64 {
        let all = self.parameters();
        let idle = self.experts.map_or(0, |e| all.experts / e.count * (e.count - e.top_k));
        all.total() - idle
    }

    fn attention_parameters(&self) -> u64 {
        let (hidden, heads) = (self.hidden, self.heads);
        let norm = self.norm.per_channel();
        let mut count = match self.latent {
            None => {
                let qkv = (heads + 2 * self.kv_heads) * self.head_dim;
                let bias = if self.biases.qkv { qkv } else { 0 };
                hidden * qkv + bias + heads * self.head_dim * hidden
            }
            Some(latent) => {
                let score = latent.nope + latent.rope;
                let query = match latent.q_rank {
                    Some(rank) => hidden * rank + norm * rank + rank * heads * score,
                    None => hidden * heads * score,
                };
                let key_value = hidden * (latent.kv_rank + latent.rope)
                    + norm * latent.kv_rank
                    + latent.kv_rank * heads * (latent.nope + self.head_dim);
                query + key_value + heads * self.head_dim * hidden
            }
        };
        count += if self.biases.out { hidden } else { 0 };
        count += if self.qk_norm { 2 * norm * self.head_dim } else { 0 };
        count += if self.biases.sinks { heads } else { 0 };
        count
    }

    fn mlp_parameters(&self, ffn: u64) -> u64 {
        let bias = match (self.biases.mlp, self.mlp) {
            (false, _) => 0,
            (true, Mlp::Gated) => 2 * ffn + self.hidden,
            (true, Mlp::Gelu) => ffn + self.hidden,
        };
        self.mlp.matrices() * self.hidden * ffn + bias
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(count: u64, published: f64) -> f64 {
        (count as f64 / published - 1.0).abs()
    }

    /// Agreement with published counts, to 0.5 %. Sources: Llama 3's model cards (8.03B, 70.6B,
    /// 405B), GPT-3 (arXiv 2005.14165, table D.1: 174,600M), Mixtral (arXiv 2401.04088: 47B,
    /// announced as 46.7B), DeepSeek-V2 (236B) and V3 (671B), Qwen3 (arXiv 2505.09388: 235B),
    /// gpt-oss (arXiv 2508.10925, table 1: 116.83B).
    #[test]
    fn totals_are_within_half_a_per_cent_of_the_published_ones() {
        let published = [
            ("llama3-8b", 8.03e9),
            ("llama3-70b", 70.6e9),
            ("llama3-405b", 405e9),
            ("gpt3-175b", 174.6e9),
            ("mixtral-8x7b", 46.7e9),
            ("deepseek-v2", 236e9),
            ("deepseek-v3", 671e9),
            ("qwen3-235b-a22b", 235e9),
            ("gpt-oss-120b", 116.83e9),
        ];
        for (name, count) in published {
            let total = Model::preset(name).unwrap().parameters().total();
            assert!(off(total, count) < 0.005, "{name}: {total}");
        }
    }

    /// Agreement: the sizes in table 1 of Narayanan et al. (arXiv 2104.04473) and in vTrain's file
    /// are given to a tenth of a billion, and are the names.
    #[test]
    fn gpt_sizes_round_to_their_names() {
        for size in [1.7, 3.6, 7.5, 18.4, 39.1, 145.6, 529.6] {
            let suffix = if size == 1.7 { "-sc21" } else { "" };
            let name = format!("gpt-{size}b{suffix}");
            let total = Model::preset(&name).unwrap().parameters().total();
            assert_eq!((total as f64 / 1e8).round() / 10.0, size, "{name}: {total}");
        }
    }

    /// Oracle: the counts that Hugging Face shows for the published checkpoints, to the last one.
    #[test]
    fn totals_are_those_of_the_checkpoints() {
        let exact = [
            ("llama3-8b", 8_030_261_248),
            ("llama3-70b", 70_553_706_496),
            ("llama3-405b", 405_853_388_800),
            ("mixtral-8x7b", 46_702_792_704),
        ];
        for (name, count) in exact {
            assert_eq!(Model::preset(name).unwrap().parameters().total(), count, "{name}");
        }
    }

    /// Agreement. Grok-1 is told to have 314B parameters: that is its layers (+0.3 %); with the
    /// shared embedding it is 315.7B (+0.54 %).
    #[test]
    fn grok_1_has_its_314_billion_in_its_layers() {
        let parameters = Model::preset("grok-1").unwrap().parameters();
        assert!(off(parameters.layers(), 314e9) < 0.005, "{parameters:?}");
        assert!(off(parameters.total(), 314e9) < 0.006, "{parameters:?}");
    }

    /// Agreement. Published active counts have two or three digits: Mixtral's 12.9B counts the
    /// embedding, and Qwen3's 22B; DeepSeek's 21B and 37B (36.7B in V3's weight notes) and
    /// gpt-oss's 5.13B do not.
    #[test]
    fn active_counts_round_to_the_published_ones() {
        let active = |name: &str| {
            let model = Model::preset(name).unwrap();
            (model.active_parameters(), model.active_parameters() - model.embedding_parameters())
        };
        assert_eq!((active("mixtral-8x7b").0 as f64 / 1e8).round(), 129.0);
        assert_eq!((active("deepseek-v2").1 as f64 / 1e9).round(), 21.0);
        assert_eq!((active("deepseek-v3").1 as f64 / 1e9).round(), 37.0);
        assert!(off(active("deepseek-v3").1, 36.7e9) < 0.005);
        assert_eq!((active("qwen3-235b-a22b").0 as f64 / 1e9).round(), 22.0);
        assert!(off(active("gpt-oss-120b").1, 5.13e9) < 0.005);
    }

    /// Agreement. V3's multi-token-prediction module has 11.5B parameters of its own beside the
    /// shared embedding and head (README_WEIGHTS.md of its repository).
    #[test]
    fn mtp_is_counted_apart() {
        let mtp = Model::preset("deepseek-v3").unwrap().mtp_parameters().total();
        assert!(off(mtp, 11.5e9) < 0.01, "{mtp}");
    }

    /// Agreement with the leak (about 1.8T, 111B per expert, 55B of attention, 280B active).
    #[test]
    fn the_leaked_gpt_4_has_the_told_sizes() {
        let model = Model::preset("gpt4-leak").unwrap();
        let parameters = model.parameters();
        assert!(off(parameters.total(), 1.8e12) < 0.025);
        assert!(off(parameters.experts / 16, 111e9) < 0.005);
        assert!(off(parameters.attention, 55e9) < 0.02);
        assert!(off(model.active_parameters(), 280e9) < 0.01);
    }
}
