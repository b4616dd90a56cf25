//! Which kernels a rank launches for its share of a layer, the embedding, the loss, the optimizer.
//!
//! The lists follow Megatron-LM and Transformer Engine: fused norms, activations and dropout;
//! weight gradients added to fp32 main gradients by the product itself; fp8 operands cast together
//! with their transpose as the job's recipe says, weights once per step and not here.
//! `tools/kernels/layers.py` runs the same lists, and the sums of predicted kernels are tested
//! against it. Communication is not here.

use serde::Serialize;

use super::Kernel;
use super::attention::{Attention, Direction, Mask};
use super::gemm::{Gemm, GroupedGemm, Operands, Role};
use super::memory::MemoryKind;
use crate::config::{Accumulation, AttentionKernel, Fp8Recipe, Loss, Precision};
use crate::model::{Experts, Latent, LayerKind, Mlp, Model, Module, Norm, Recomputed};
use crate::parallel::GradientType;

/// A part of the work on one microbatch that schedules move as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pass {
    /// The forward pass.
    Forward,
    /// Gradients of activations: what the stage before waits for.
    InputGradient,
    /// Gradients of weights: nothing waits for them before the optimizer.
    WeightGradient,
}

/// Whether activations are dropped at random, as GPT-3 and its kin were trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dropout {
    /// Nothing is dropped.
    #[default]
    Absent,
    /// After attention, after the feed-forward part, and of unfused attention's scores.
    Applied,
}

/// Whether norms and residuals work on a tensor-parallel rank's share of the tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Residual {
    /// Every rank of the tensor group works on all tokens.
    Replicated,
    /// Sequence parallelism: each works on its part.
    #[default]
    Sharded,
}

/// The kernel beside a product that could cast what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CastPartner {
    /// None: attention's output, or the gradient that a sum makes.
    Nothing,
    /// The norm in front.
    Norm,
    /// The activation in front, or behind, whose gradient comes first.
    Activation,
}

impl CastPartner {
    /// Whether a recipe casts there.
    fn casts(self, recipe: Fp8Recipe) -> bool {
        match recipe {
            Fp8Recipe::Fused => self != Self::Nothing,
            Fp8Recipe::Delayed => self == Self::Norm,
            Fp8Recipe::Current | Fp8Recipe::Block | Fp8Recipe::Mx => false,
        }
    }
}

/// How many tokens an expert gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenSplit {
    /// As many as fill the tiles of its products: the measured products of many experts.
    #[default]
    WholeTiles,
    /// As many as a router sends: the last tile of each expert is partly empty.
    ByRouter,
}

impl TokenSplit {
    /// Rows that the products of an expert take as long as, beside its tokens. Tiles have 128 or
    /// 256 rows, and a weight gradient sums over 64 tokens at a time, of which half is empty on
    /// average. Measured on an H200, `data/README.md`: 93 and 31.
    fn beside(self, pass: Pass) -> u64 {
        match (self, pass) {
            (Self::WholeTiles, _) => 0,
            (Self::ByRouter, Pass::Forward | Pass::InputGradient) => (64 + 128) / 2,
            (Self::ByRouter, Pass::WeightGradient) => 32,
        }
    }
}

/// One rank's share of a model's layers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layer<'a> {
    /// The model.
    pub model: &'a Model,
    /// Sequences in a microbatch.
    pub batch: u64,
    /// Tokens of a whole sequence.
    pub length: u64,
    /// Tensor-parallel ranks.
    pub tensor: u64,
    /// Rows of embedding and head on the rank.
    pub vocabulary: u64,
    /// Context-parallel ranks.
    pub context: u64,
    /// Ranks that the experts of a layer are spread over.
    pub expert: u64,
    /// Ranks that each expert is cut over.
    pub expert_tensor: u64,
    /// Tokens that come to the rank's experts, as a multiple of the mean.
    pub load: f64,
    /// How many tokens an expert gets.
    pub dealt: TokenSplit,
    /// How the weight gradients come into the main gradients.
    pub accumulation: Accumulation,
    /// The same of experts.
    pub of_experts: Accumulation,
    /// The type of the main gradients.
    pub main_gradients: GradientType,
    /// What the norms and residuals work on.
    pub residual: Residual,
    /// Type of the products' operands.
    pub precision: Precision,
    /// How fp8 operands are scaled, and where they are cast.
    pub recipe: Fp8Recipe,
    /// Generation of the attention kernels.
    pub attention: AttentionKernel,
    /// Whether activations are dropped.
    pub dropout: Dropout,
    /// How many tokens a query of this layer sees at most.
    pub window: Option<u64>,
    /// Which tokens a query sees.
    pub mask: Mask,
}

impl<'a> Layer<'a> {
    /// A layer on one rank alone, in bf16 with today's kernels.
    pub fn new(model: &'a Model, batch: u64, length: u64) -> Self {
        Self {
            model,
            batch,
            length,
            tensor: 1,
            vocabulary: model.vocab,
            context: 1,
            expert: 1,
            expert_tensor: 1,
            load: 1.0,
            dealt: TokenSplit::WholeTiles,
            accumulation: Accumulation::Fused,
            of_experts: Accumulation::Separate,
            main_gradients: GradientType::Fp32,
            residual: Residual::default(),
            precision: Precision::Bf16,
            recipe: Fp8Recipe::Delayed,
            attention: AttentionKernel::Flash,
            dropout: Dropout::Absent,
            window: None,
            mask: Mask::Causal,
        }
    }

    /// Tokens of the microbatch that the products see.
    pub fn tokens(&self) -> u64 {
        self.batch * self.length / self.context
    }

    /// Rows of norms and residuals.
    fn rows(&self) -> u64 {
        match self.residual {
            Residual::Replicated => self.tokens(),
            Residual::Sharded => self.tokens() / self.tensor,
        }
    }

    /// The kernels of one pass over one layer.
    pub fn kernels(&self, kind: LayerKind, pass: Pass) -> Vec<Kernel> {
        let mut kernels = self.mixer(pass);
        kernels.extend(self.feed_forward(kind, pass));
        kernels
    }

    /// The part of a layer in which tokens see each other: norm, projections, attention, residual.
    pub fn mixer(&self, pass: Pass) -> Vec<Kernel> {
        let mut list = self.list(pass);
        self.norms(&mut list);
        self.project(&mut list);
        list.kernels
    }

    /// The other part: norm, feed-forward products or experts, residual.
    pub fn feed_forward(&self, kind: LayerKind, pass: Pass) -> Vec<Kernel> {
        let mut list = self.list(pass);
        self.norms(&mut list);
        match (kind, &self.model.experts) {
            (LayerKind::Moe, Some(experts)) => self.experts(experts, &mut list),
            _ => {
                self.feed(&mut list, self.model.ffn);
                self.join(&mut list, self.model.biases.mlp);
            }
        }
        list.kernels
    }

    /// What the backward pass launches again before it starts.
    pub fn recomputed(&self, kind: LayerKind, again: Recomputed) -> Vec<Kernel> {
        if again.is_full() {
            return self.kernels(kind, Pass::Forward);
        }
        let mut list = self.list(Pass::Forward);
        if again.has(Module::Layernorm) {
            (0..2).for_each(|_| self.norms(&mut list));
        }
        if let Some(latent) = self.model.latent.filter(|_| again.has(Module::MlaUpProj)) {
            self.up_projections(&mut list, &latent);
        }
        if again.has(Module::CoreAttn) {
            self.scores(&mut list);
        }
        match (kind, &self.model.experts) {
            (LayerKind::Moe, Some(experts)) => {
                if again.has(Module::Moe) {
                    self.experts(experts, &mut list);
                } else if again.has(Module::MoeAct) {
                    self.activation(experts, &mut list);
                }
                let shared = again.has(Module::SharedExperts) && !again.has(Module::Moe);
                if shared && 0 < experts.shared {
                    self.feed(&mut list, experts.shared * experts.ffn);
                }
            }
            _ if again.has(Module::Mlp) => self.feed(&mut list, self.model.ffn),
            _ => {}
        }
        list.kernels
    }

    /// The shared experts alone: what the exchange of tokens can run beside.
    pub fn shared_experts(&self, pass: Pass) -> Vec<Kernel> {
        let mut list = self.list(pass);
        if let Some(experts) = self.model.experts.filter(|experts| 0 < experts.shared) {
            self.feed(&mut list, experts.shared * experts.ffn);
        }
        list.kernels
    }

    fn list(&self, pass: Pass) -> List {
        let main = (self.accumulation, self.main_gradients);
        List { pass, main, kernels: Vec::new() }
    }

    /// The norms of half a layer.
    fn norms(&self, list: &mut List) {
        for _ in 0..self.model.norms_per_layer.div_ceil(2) {
            self.norm(list);
        }
    }

    fn norm(&self, list: &mut List) {
        let (forward, backward) = match self.model.norm {
            Norm::Rms => (MemoryKind::RmsNormForward, MemoryKind::RmsNormBackward),
            Norm::Layer => (MemoryKind::LayerNormForward, MemoryKind::LayerNormBackward),
        };
        list.memory(Pass::Forward, forward, self.rows(), self.model.hidden);
        list.memory(Pass::InputGradient, backward, self.rows(), self.model.hidden);
    }

    /// The end of a branch: bias, dropout and the sum with the residual.
    fn join(&self, list: &mut List, biased: bool) {
        let (rows, hidden) = (self.rows(), self.model.hidden);
        match self.dropout {
            Dropout::Applied => {
                list.memory(Pass::Forward, MemoryKind::BiasDropoutAdd, rows, hidden);
                list.memory(Pass::InputGradient, MemoryKind::DropoutBackward, rows, hidden);
            }
            Dropout::Absent => list.elements(Pass::Forward, MemoryKind::Add, rows * hidden),
        }
        list.elements(Pass::InputGradient, MemoryKind::Add, rows * hidden);
        if biased {
            list.memory(Pass::WeightGradient, MemoryKind::BiasGradient, rows, hidden);
        }
    }

    fn operands(&self) -> Operands {
        Operands::of(self.precision, self.recipe)
    }

    fn linear(&self, list: &mut List, outputs: u64, inputs: u64) {
        self.linear_beside(list, outputs, inputs, CastPartner::Nothing, CastPartner::Nothing);
    }

    /// A linear layer whose input comes out of one kernel, and the gradient of its output out of
    /// another.
    fn linear_beside(
        &self,
        list: &mut List,
        outputs: u64,
        inputs: u64,
        input: CastPartner,
        gradient: CastPartner,
    ) {
        let cast = match list.pass {
            Pass::Forward => input.casts(self.recipe),
            Pass::InputGradient => gradient.casts(self.recipe),
            Pass::WeightGradient => true, // both were cast before
        };
        if !cast {
            self.casts(list, outputs, inputs, self.tokens());
        }
        list.product(self.tokens(), outputs, inputs, self.operands());
    }

    /// Casts by kernels of their own: the input forward, the output's gradient backward, each with
    /// its transpose, for the gradient of the weights.
    fn casts(&self, list: &mut List, outputs: u64, inputs: u64, tokens: u64) {
        if !self.operands().is_cast() {
            return;
        }
        let cast = cast_of(self.precision, self.recipe);
        for (pass, columns) in [(Pass::Forward, inputs), (Pass::InputGradient, outputs)] {
            if self.recipe == Fp8Recipe::Current {
                list.memory(pass, MemoryKind::Fp8Amax, tokens, columns);
            }
            list.memory(pass, cast, tokens, columns);
        }
    }

    fn project(&self, list: &mut List) {
        let Model { hidden, head_dim, biases, .. } = *self.model;
        let (heads, kv_heads) = (self.heads(), self.kv_heads());
        match &self.model.latent {
            None => {
                let width = (heads + 2 * kv_heads) * head_dim;
                self.linear_beside(list, width, hidden, CastPartner::Norm, CastPartner::Nothing);
                if biases.qkv {
                    list.memory(
                        Pass::WeightGradient,
                        MemoryKind::BiasGradient,
                        self.tokens(),
                        width,
                    );
                }
                if self.model.qk_norm {
                    let (tokens, width) = (self.tokens(), (heads + kv_heads) * head_dim);
                    list.memory(Pass::Forward, MemoryKind::RmsNormForward, tokens, width);
                    list.memory(Pass::InputGradient, MemoryKind::RmsNormBackward, tokens, width);
                }
                if self.model.positions == 0 {
                    self.turn(list, heads * head_dim, kv_heads * head_dim);
                }
            }
            Some(latent) => self.latent(list, latent),
        }
        self.scores(list);
        self.move_heads(list);
        self.linear(list, hidden, heads * head_dim);
        self.join(list, biases.out);
    }

    fn heads(&self) -> u64 {
        self.model.heads / self.tensor
    }

    fn kv_heads(&self) -> u64 {
        (self.model.kv_heads / self.tensor).max(1)
    }

    /// Rotary positions: queries and keys at once forward, one after the other backward, where the
    /// values' gradients are copied beside them.
    fn turn(&self, list: &mut List, queries: u64, keys: u64) {
        let tokens = self.tokens();
        list.memory(Pass::Forward, MemoryKind::Rope, tokens, queries + keys);
        list.memory(Pass::InputGradient, MemoryKind::Rope, tokens, queries);
        list.memory(Pass::InputGradient, MemoryKind::Rope, tokens, keys);
        list.elements(Pass::InputGradient, MemoryKind::Copy, tokens * keys);
    }

    /// Queries, keys and values out of a latent (DeepSeek-V2, arXiv 2405.04434, section 2.1).
    fn latent(&self, list: &mut List, latent: &Latent) {
        let hidden = self.model.hidden;
        let Latent { q_rank, kv_rank, rope, .. } = *latent;
        let down = q_rank.unwrap_or(0) + kv_rank + rope;
        self.linear(list, down, hidden);
        self.up_projections(list, latent);
    }

    /// The same from the latent on.
    fn up_projections(&self, list: &mut List, latent: &Latent) {
        let Model { hidden, head_dim, .. } = *self.model;
        let Latent { q_rank, kv_rank, nope, rope } = *latent;
        let (heads, tokens) = (self.heads(), self.tokens());
        let norm = |list: &mut List, width| {
            list.memory(Pass::Forward, MemoryKind::RmsNormForward, tokens, width);
            list.memory(Pass::InputGradient, MemoryKind::RmsNormBackward, tokens, width);
        };
        norm(list, kv_rank);
        if let Some(rank) = q_rank {
            norm(list, rank);
        }
        self.linear(list, heads * (nope + rope), q_rank.unwrap_or(hidden));
        self.linear(list, heads * (nope + head_dim), kv_rank);
        // The rotated parts are joined to the others by copies.
        self.turn(list, heads * (nope + rope), heads * (nope + rope));
    }

    /// Attention itself: of its own chunk of the sequence, and of the other chunks under context
    /// parallelism, where chunks are dealt out so that each rank has the same work.
    fn scores(&self, list: &mut List) {
        let direction = match list.pass {
            Pass::Forward => Direction::Forward,
            Pass::InputGradient => Direction::Backward,
            Pass::WeightGradient => return,
        };
        let chunk = self.length / self.context;
        let kv_heads = if self.model.latent.is_some() { self.heads() } else { self.kv_heads() };
        let mut push = |keys, mask| {
            let attention = Attention {
                batch: self.batch,
                queries: chunk,
                keys,
                heads: self.heads(),
                kv_heads,
                key_dim: self.model.score_dim(),
                value_dim: self.model.head_dim,
                mask,
                direction,
                kernel: self.attention,
            };
            list.kernels.push(Kernel::Attention(attention));
        };
        match self.window {
            Some(window) if window < chunk => push(window, Mask::Full),
            _ if self.mask == Mask::Full => push(self.length, Mask::Full),
            _ => {
                push(chunk, Mask::Causal);
                for _ in 1..self.context {
                    push((chunk / 2).max(1), Mask::Full);
                }
            }
        }
        if self.attention == AttentionKernel::Unfused && self.dropout == Dropout::Applied {
            let rows = self.batch * self.heads() * chunk;
            let kind = match direction {
                Direction::Forward => MemoryKind::DropoutForward,
                Direction::Backward => MemoryKind::DropoutBackward,
            };
            list.memory(list.pass, kind, rows, chunk);
        }
    }

    /// Copies between the products' order of tokens and heads and attention's. Fused kernels and
    /// rotary positions read and write either order.
    fn move_heads(&self, list: &mut List) {
        let width = self.heads() * self.model.head_dim;
        if self.attention == AttentionKernel::Unfused {
            list.memory(Pass::Forward, MemoryKind::Permute, self.tokens(), width);
        }
        if self.model.positions != 0 {
            for _ in 0..3 {
                list.memory(Pass::InputGradient, MemoryKind::Permute, self.tokens(), width);
            }
        }
    }

    /// Feed-forward products of so many channels before sharding.
    fn feed(&self, list: &mut List, ffn: u64) {
        let (hidden, width, tokens) = (self.model.hidden, ffn / self.tensor, self.tokens());
        match self.model.mlp {
            Mlp::Gated => {
                self.linear_beside(
                    list,
                    2 * width,
                    hidden,
                    CastPartner::Norm,
                    CastPartner::Activation,
                );
                list.memory(Pass::Forward, MemoryKind::SwigluForward, tokens, width);
                list.memory(Pass::InputGradient, MemoryKind::SwigluBackward, tokens, width);
            }
            Mlp::Gelu => {
                self.linear_beside(list, width, hidden, CastPartner::Norm, CastPartner::Activation);
                list.memory(Pass::Forward, MemoryKind::BiasGeluForward, tokens, width);
                list.memory(Pass::InputGradient, MemoryKind::BiasGeluBackward, tokens, width);
                if self.model.biases.mlp {
                    list.memory(Pass::WeightGradient, MemoryKind::BiasGradient, tokens, width);
                }
            }
        }
        self.linear_beside(list, hidden, width, CastPartner::Activation, CastPartner::Nothing);
    }

    /// Router, dispatch, experts and combination, with tokens spread evenly over the experts.
    fn experts(&self, experts: &Experts, list: &mut List) {
        let (hidden, tokens) = (self.model.hidden, self.tokens());
        let Experts { count, shared, ffn, .. } = *experts;
        list.product(tokens, count, hidden, Operands::Bf16);
        list.memory(Pass::Forward, MemoryKind::RouterTopK, tokens, count);
        let (routed, width) = (self.routed(experts), ffn / self.expert_tensor);
        let groups = (count / self.expert).max(1);
        // Tokens are brought into the experts' order, and back into their own with weights.
        list.memory(Pass::Forward, MemoryKind::Gather, routed, hidden);
        list.memory(Pass::InputGradient, MemoryKind::Gather, routed, hidden);
        let up = if self.model.mlp == Mlp::Gated { 2 * width } else { width };
        self.grouped(list, groups, routed, up, hidden);
        self.activation(experts, list);
        self.grouped(list, groups, routed, hidden, width);
        // Measured with eight rows for each token; others cost in proportion.
        let combined = (routed / 8).max(1);
        list.memory(Pass::Forward, MemoryKind::MoeCombine, combined, hidden);
        list.memory(Pass::InputGradient, MemoryKind::MoeCombine, combined, hidden);
        if 0 < shared {
            self.feed(list, shared * ffn);
            list.elements(Pass::Forward, MemoryKind::Add, tokens * hidden);
            list.elements(Pass::InputGradient, MemoryKind::Add, tokens * hidden);
        }
        self.join(list, false);
    }

    /// Copies of tokens that come to the experts of a rank. The ranks that an expert is cut over
    /// gather each other's; of those that share a sequence each has its part of the tokens.
    fn routed(&self, experts: &Experts) -> u64 {
        let copies = self.tokens() * experts.top_k;
        let mean = match self.residual {
            Residual::Sharded => copies * self.expert_tensor / self.tensor,
            Residual::Replicated => copies,
        };
        (mean as f64 * self.load).ceil() as u64
    }

    /// The activation inside the routed experts.
    fn activation(&self, experts: &Experts, list: &mut List) {
        let (routed, width) = (self.routed(experts), experts.ffn / self.expert_tensor);
        let (forward, backward) = match self.model.mlp {
            Mlp::Gated => (MemoryKind::SwigluForward, MemoryKind::SwigluBackward),
            Mlp::Gelu => (MemoryKind::GeluForward, MemoryKind::GeluBackward),
        };
        list.memory(Pass::Forward, forward, routed, width);
        list.memory(Pass::InputGradient, backward, routed, width);
    }

    /// The products of the experts of a rank.
    fn grouped(&self, list: &mut List, groups: u64, tokens: u64, n: u64, k: u64) {
        self.casts(list, n, k, tokens);
        let main = (self.of_experts, self.main_gradients);
        let role = role(list.pass, main);
        let operands = self.operands();
        let tokens = tokens + groups * self.dealt.beside(list.pass);
        let gemm = GroupedGemm { groups, tokens, n, k, operands, role };
        list.kernels.push(Kernel::GroupedGemm(gemm));
        list.kernels.extend(added(role, main, groups * n * k));
    }

    /// The embedding of a rank, its rows shared by the tensor group.
    pub fn embedding(&self, pass: Pass) -> Vec<Kernel> {
        let (hidden, vocabulary) = (self.model.hidden, self.vocabulary);
        let mut list = self.list(pass);
        list.memory(Pass::Forward, MemoryKind::EmbeddingForward, self.tokens(), hidden);
        let backward = MemoryKind::EmbeddingBackward { vocabulary };
        list.memory(Pass::WeightGradient, backward, self.tokens(), hidden);
        list.kernels
    }

    /// The last norm, the output head and the loss; the loss's own gradient counts as forward
    /// where it is fused.
    pub fn head(&self, pass: Pass, loss: Loss) -> Vec<Kernel> {
        let mut list = self.list(pass);
        let (tokens, vocabulary) = (self.tokens(), self.vocabulary);
        self.norm(&mut list);
        list.product(tokens, vocabulary, self.model.hidden, Operands::Bf16);
        match loss {
            Loss::Fused => {
                list.memory(Pass::Forward, MemoryKind::CrossEntropyFused, tokens, vocabulary);
            }
            Loss::Unfused => {
                list.memory(Pass::Forward, MemoryKind::CrossEntropyForward, tokens, vocabulary);
                let backward = MemoryKind::CrossEntropyBackward;
                list.memory(Pass::InputGradient, backward, tokens, vocabulary);
            }
        }
        list.kernels
    }
}

/// The kernel that casts a tensor and its transpose.
pub fn cast_of(precision: Precision, recipe: Fp8Recipe) -> MemoryKind {
    match Operands::of(precision, recipe) {
        Operands::Fp8Block | Operands::Mxfp8 | Operands::Fp4 => MemoryKind::Fp8BlockTranspose,
        _ => MemoryKind::Fp8CastTranspose,
    }
}

/// The optimizer's step over a rank's share: the norm of `gradients` fp32 gradients, clipping and
/// AdamW over `owned` parameters, the new bf16 weights of those, and zeroed gradients.
pub fn optimizer(gradients: u64, owned: u64) -> Vec<Kernel> {
    [
        MemoryKind::L2Norm.over(owned),
        MemoryKind::Scale.over(owned),
        MemoryKind::AdamW.over(owned),
        MemoryKind::CastDown.over(owned),
        MemoryKind::Zero.over(gradients),
    ]
    .map(Kernel::Memory)
    .to_vec()
}

/// The kernels of one pass, as they are collected.
struct List {
    pass: Pass,
    main: Main,
    kernels: Vec<Kernel>,
}

impl List {
    fn memory(&mut self, pass: Pass, kind: MemoryKind, rows: u64, columns: u64) {
        if self.pass == pass {
            self.kernels.push(Kernel::Memory(kind.rows(rows, columns)));
        }
    }

    fn elements(&mut self, pass: Pass, kind: MemoryKind, elements: u64) {
        if self.pass == pass {
            self.kernels.push(Kernel::Memory(kind.over(elements)));
        }
    }

    /// The product of a linear layer with weights of outputs × inputs.
    fn product(&mut self, tokens: u64, outputs: u64, inputs: u64, operands: Operands) {
        let sizes = [tokens, outputs, inputs];
        self.kernels.extend(product(self.pass, self.main, sizes, operands));
    }
}

/// How weight gradients come into the main gradients, and the type of those.
type Main = (Accumulation, GradientType);

/// The kernels of a linear layer's product, of so many tokens, outputs and inputs.
pub fn product(pass: Pass, main: Main, sizes: [u64; 3], operands: Operands) -> Vec<Kernel> {
    let [tokens, outputs, inputs] = sizes;
    let (m, n, k) = match pass {
        Pass::Forward => (tokens, outputs, inputs),
        Pass::InputGradient => (tokens, inputs, outputs),
        Pass::WeightGradient => (outputs, inputs, tokens),
    };
    let role = role(pass, main);
    let gemm = Kernel::Gemm(Gemm { m, n, k, operands, role });
    [gemm].into_iter().chain(added(role, main, outputs * inputs)).collect()
}

fn role(pass: Pass, main: Main) -> Role {
    match (pass, main) {
        (Pass::Forward, _) => Role::Forward,
        (Pass::InputGradient, _) => Role::InputGradient,
        (Pass::WeightGradient, (Accumulation::Fused, main)) => {
            Role::AccumulatedWeightGradient(main)
        }
        (Pass::WeightGradient, (Accumulation::Separate, _)) => Role::WeightGradient,
    }
}

/// The kernel that adds the gradients of so many weights, where the product does not: it reads them
/// in 16 bits, reads the main gradients and writes them.
fn added(role: Role, (_, main): Main, weights: u64) -> Option<Kernel> {
    // The measured kernel moves ten bytes for each element; these are as many bytes.
    let elements = weights * (2 * main.bytes() + 2) / 10;
    let kernel = Kernel::Memory(MemoryKind::Accumulate.over(elements));
    (role == Role::WeightGradient).then_some(kernel)
}
