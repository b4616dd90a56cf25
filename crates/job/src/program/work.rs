//! What the layers and ends of a model compute in each pass: kernels of one rank.
//!
//! The lists are those of [`crate::compute::layer`]; here they are given the job's sizes. With
//! unevenly loaded experts the rank with the hottest ones counts, since all others wait for it at
//! the next exchange.

use crate::compute::gemm::{Gemm, Role};
use crate::compute::layer::{self, Layer, Residual};
use crate::compute::{GpuRates, Kernel};
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
    let kind = match pass {
        Pass::Forward => layer::Pass::Forward,
        Pass::Weight => layer::Pass::WeightGradient,
        Pass::Input | Pass::Backward => layer::Pass::InputGradient,
    };
    match unit {
        Unit::Embedding => share.embedding(kind),
        Unit::Head => share.head(kind, job.loss),
        Unit::Layer(layers, _) | Unit::Prediction(layers) => {
            let mut kernels = Vec::new();
            if pass == Pass::Input {
                kernels.extend(share.recomputed(layers, job.recompute));
            }
            kernels.extend(share.kernels(layers, kind));
            if let Unit::Prediction(_) = unit {
                kernels.push(projection(job, pass));
                kernels.extend(share.head(kind, job.loss));
            }
            heat(job, &mut kernels);
            kernels
        }
    }
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
        context: job.layout.cp,
        expert: job.layout.ep,
        residual,
        precision: job.precision,
        recipe: job.fp8_recipe,
        attention: job.attention,
        dropout: job.dropout,
        window,
        ..Layer::new(&job.model, job.batch.micro, job.batch.length)
    }
}

/// The projection of two residual streams into one, before a multi-token-prediction layer.
fn projection(job: &Job, pass: Pass) -> Kernel {
    let (tokens, outputs, inputs) =
        (job.tokens(), job.model.hidden / job.layout.tp, 2 * job.model.hidden);
    let (m, n, k, role) = match pass {
        Pass::Forward => (tokens, outputs, inputs, Role::Forward),
        Pass::Weight => (outputs, inputs, tokens, Role::AccumulatedWeightGradient),
        Pass::Input | Pass::Backward => (tokens, inputs, outputs, Role::InputGradient),
    };
    Kernel::Gemm(Gemm { m, n, k, operands: job.operands(), role })
}

/// Gives the experts' products the tokens of the rank that has most of them.
fn heat(job: &Job, kernels: &mut [Kernel]) {
    let Some(dispatch) = Dispatch::of(job, job.layout.tp) else { return };
    for kernel in kernels {
        if let Kernel::GroupedGemm(grouped) = kernel {
            grouped.tokens = (grouped.tokens as f64 * dispatch.hottest()).ceil() as u64;
        }
    }
}
