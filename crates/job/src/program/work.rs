//! What the layers and ends of a model compute in each pass: kernels of one rank.
//!
//! The lists are those of [`crate::compute::layer`]; here they are given the job's sizes. With
//! unevenly loaded experts the rank with the hottest ones counts, since all others wait for it at
//! the next exchange.

use crate::compute::layer::{self, Layer, Residual, TokenSplit};
use crate::compute::{GpuRates, Kernel, MemoryKind, Operands};
use crate::dispatch::Dispatch;
use crate::model::LayerKind;
use crate::parallel::Sharding;
use crate::resolve::Job;
use crate::schedule::Pass;

use super::{Reach, Unit};

/// The kernels of one pass over a unit; the input gradient's include what is computed again.
pub fn of(job: &Job, unit: Unit, pass: Pass) -> Vec<Kernel> {
    if pass == Pass::Backward {
        let mut both = of(job, unit, Pass::Input);
        both.extend(of(job, unit, Pass::Weight));
        return both;
    }
    let share = rank_share(job, unit);
    let kind = kind_of(pass);
    match unit {
        Unit::Encoder => {
            let encoder = job.encoder().expect("a unit of it");
            of(&encoder, Unit::Layer(LayerKind::Dense, Reach::Sequence), pass)
        }
        Unit::Projector => projector(job, pass),
        Unit::Embedding => share.embedding(kind),
        Unit::Head => share.head(kind, job.loss),
        Unit::Layer(layers, _) | Unit::Prediction(layers) => {
            let mut kernels = Vec::new();
            if pass == Pass::Input {
                kernels.extend(share.recomputed(layers, job.recompute));
            }
            kernels.extend(share.kernels(layers, kind));
            if let Unit::Prediction(_) = unit {
                kernels.extend(projection(job, pass));
                kernels.extend(share.head(kind, job.loss));
            }
            kernels
        }
    }
}

/// What of a unit's pass the exchange of tokens can run beside in the same microbatch: its shared
/// experts.
pub fn shared_experts(job: &Job, unit: Unit, pass: Pass) -> Vec<Kernel> {
    let has = matches!(unit, Unit::Layer(LayerKind::Moe, _) | Unit::Prediction(LayerKind::Moe));
    let kind = match pass {
        Pass::Forward => layer::Pass::Forward,
        _ => layer::Pass::InputGradient,
    };
    if has && pass != Pass::Weight { rank_share(job, unit).shared_experts(kind) } else { vec![] }
}

/// The optimizer's kernels on one rank of a stage, with what must be ready for the next step.
pub fn optimizer(job: &Job, stage: u64) -> Vec<Kernel> {
    let held = job.stage_held(stage);
    let owned = match job.parallel.sharding {
        Sharding::None => held.total(),
        _ => job.share_of(held),
    };
    let mut kernels = layer::optimizer(held.total(), owned);
    if job.operands().is_cast() {
        let cast = layer::cast_of(job.precision, job.fp8_recipe);
        kernels.push(Kernel::Memory(cast.over(held.total())));
    }
    kernels
}

/// The classes of kernels in a job whose speed on a GPU follows by a rule, by their keys in the
/// catalogue's `speed`: what widens an interval.
pub fn extrapolated(job: &Job, rates: &GpuRates) -> Vec<String> {
    let mut kernels = optimizer(job, 0);
    let kinds = [LayerKind::Dense, LayerKind::Moe].map(|kind| Unit::Layer(kind, Reach::Sequence));
    let has_experts = job.model.experts.is_some();
    let units = kinds.into_iter().take(1 + usize::from(has_experts)).chain([Unit::Head]);
    for unit in units {
        for pass in [Pass::Forward, Pass::Backward] {
            kernels.extend(of(job, unit, pass));
        }
    }
    rates.extrapolated(&kernels)
}

fn rank_share(job: &Job, unit: Unit) -> Layer<'_> {
    let window = match unit {
        Unit::Layer(_, Reach::Window) => job.model.window.map(|window| window.tokens),
        _ => None,
    };
    let residual = match job.parallel.sequence_parallel {
        true => Residual::Sharded,
        false => Residual::Replicated,
    };
    Layer {
        tensor: job.layout.tp,
        vocabulary: job.vocab_held(),
        context: job.layout.cp,
        expert: job.layout.ep,
        expert_tensor: job.layout.etp,
        // All others wait for the rank with the hottest experts.
        load: Dispatch::of(job, job.layout.etp).map_or(1.0, |dispatch| dispatch.hottest()),
        dealt: TokenSplit::ByRouter,
        accumulation: job.accumulation,
        of_experts: job.moe.accumulation,
        main_gradients: job.parallel.gradients,
        residual,
        precision: job.precision,
        recipe: job.fp8_recipe,
        attention: job.attention,
        dropout: job.dropout,
        window,
        mask: job.mask,
        ..Layer::new(&job.model, job.batch.micro, job.batch.length)
    }
}

/// The projection of two residual streams into one, before a multi-token-prediction layer.
fn projection(job: &Job, pass: Pass) -> Vec<Kernel> {
    let sizes = [job.tokens(), job.model.hidden / job.layout.tp, 2 * job.model.hidden];
    product(job, sizes, job.operands(), pass)
}

/// A product of so many tokens, outputs and inputs.
fn product(job: &Job, sizes: [u64; 3], operands: Operands, pass: Pass) -> Vec<Kernel> {
    let main = (job.accumulation, job.parallel.gradients);
    layer::product(kind_of(pass), main, sizes, operands)
}

/// The part of a backward pass that it is.
fn kind_of(pass: Pass) -> layer::Pass {
    match pass {
        Pass::Forward => layer::Pass::Forward,
        Pass::Weight => layer::Pass::WeightGradient,
        Pass::Input | Pass::Backward => layer::Pass::InputGradient,
    }
}

/// The ends of a vision encoder. The gradient of the images themselves is not needed.
fn projector(job: &Job, pass: Pass) -> Vec<Kernel> {
    let (Some(vision), images) = (job.model.vision, job.images()) else { return Vec::new() };
    let tp = job.vision_tp();
    let (patches, tokens) = (images * vision.patches, images * vision.tokens());
    let [from, inside, to] = vision.projector(job.model.hidden);
    let wide = Operands::Bf16;
    let mut kernels = product(job, [tokens, inside / tp, from], wide, pass);
    kernels.extend(product(job, [tokens, to, inside / tp], wide, pass));
    let norm = |kind: MemoryKind| Kernel::Memory(kind.rows(patches, vision.hidden));
    let act = |kind: MemoryKind| Kernel::Memory(kind.rows(tokens, inside / tp));
    if pass != Pass::Input {
        kernels.extend(product(job, [patches, vision.hidden, vision.patch], wide, pass));
    }
    match pass {
        Pass::Forward => {
            kernels.extend([norm(MemoryKind::LayerNormForward), act(MemoryKind::BiasGeluForward)])
        }
        Pass::Input => {
            kernels.extend([norm(MemoryKind::LayerNormBackward), act(MemoryKind::BiasGeluBackward)])
        }
        _ => {}
    }
    kernels
}
