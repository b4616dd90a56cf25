//! What the layers and ends of a model exchange in each pass.
//!
//! Tensor parallelism (Shoeybi et al., arXiv 1909.08053): the products of a block's first
//! matrices are cut by columns, those of its last by rows, so that a block ends in a sum over the
//! group. With sequence parallelism (Korthikanti et al., arXiv 2205.05198, section 4.2.2) the sum
//! is scattered and the next block's input gathered instead; the gathered input is not kept, so
//! the weight gradient gathers it again.
//!
//! Context parallelism: keys and values of the other parts of the sequence, round a ring (Liu et
//! al., arXiv 2310.01889) or gathered before attention (Llama 3, arXiv 2407.21783, section
//! 3.3.2). Their gradients go the other way.
//!
//! Expert parallelism: tokens to their experts and back, in both passes. Where experts are cut too
//! (expert tensor parallelism), the ranks that share one gather each other's tokens behind the
//! dispatch. Without sequence parallelism each of them has and sends all tokens, and the experts'
//! outputs are summed (DeepSpeed-TED, arXiv 2303.06318, section 4, without its dropping of
//! duplicates).

use traffic::Collective;
use units::Bytes;

use super::{Call, OverlapsWith, Reach, Unit};
use crate::config::{Dispatcher, Precision};
use crate::dispatch::{Dispatch, Spread};
use crate::model::{Experts, LayerKind, Module};
use crate::parallel::{CpExchange, GroupKind};
use crate::resolve::Job;
use crate::schedule::Pass;

/// What a unit exchanges in a pass; the input gradient's includes what recomputation repeats.
pub fn of(job: &Job, unit: Unit, pass: Pass) -> Vec<Call> {
    let mut calls = Vec::new();
    match unit {
        Unit::Encoder => {
            let encoder = job.encoder().expect("a unit of it");
            return of(&encoder, Unit::Layer(LayerKind::Dense, Reach::Sequence), pass);
        }
        Unit::Projector => projector(job, pass, &mut calls),
        Unit::Embedding => embedding(job, pass, &mut calls),
        Unit::Head => head(job, pass, &mut calls),
        Unit::Layer(kind, _) => layer(job, kind, pass, &mut calls),
        Unit::Prediction(kind) => {
            layer(job, kind, pass, &mut calls);
            head(job, pass, &mut calls);
        }
    }
    calls.retain(|call| 1 < job.layout.group_size(call.kind) && 0 < call.times);
    calls
}

/// How tokens are spread; only models with experts ask.
pub(super) fn dispatch(job: &Job) -> Dispatch {
    // How many nodes a group spans does not change what leaves a rank.
    Dispatch::of(job, job.layout.etp).expect("a model with experts")
}

fn layer(job: &Job, kind: LayerKind, pass: Pass, calls: &mut Vec<Call>) {
    if pass == Pass::Input {
        repeated(job, kind, calls);
    }
    let mut block = Vec::new();
    linear_block(job, pass, &mut block);
    let mut feed_forward = Vec::new();
    match (kind, &job.model.experts) {
        (LayerKind::Moe, Some(experts)) => moe(job, experts, pass, &mut feed_forward),
        _ => linear_block(job, pass, &mut feed_forward),
    }
    match pass {
        Pass::Forward => {
            calls.extend(block.first());
            context(job, pass, calls);
            calls.extend(block.iter().skip(1));
            calls.extend(feed_forward);
        }
        _ => {
            calls.extend(feed_forward);
            calls.extend(block.first());
            context(job, pass, calls);
            calls.extend(block.iter().skip(1));
        }
    }
}

/// What is exchanged again with what is computed again.
fn repeated(job: &Job, kind: LayerKind, calls: &mut Vec<Call>) {
    let again = job.recompute;
    if again.is_full() {
        return layer(job, kind, Pass::Forward, calls);
    }
    let experts = job.model.experts.as_ref().filter(|_| kind == LayerKind::Moe);
    if let Some(experts) = experts.filter(|_| again.has(Module::Moe)) {
        return moe(job, experts, Pass::Forward, calls);
    }
    let is_block_again = match experts {
        Some(experts) => again.has(Module::SharedExperts) && 0 < experts.shared,
        None => again.has(Module::Mlp),
    };
    if is_block_again {
        linear_block(job, Pass::Forward, calls);
    }
}

/// Bytes of one microbatch's residual stream.
fn stream_bytes(job: &Job) -> u64 {
    job.tokens() * job.model.hidden * job.precision.bytes()
}

fn tensor(name: &'static str, collective: Collective, bytes: u64, beside: OverlapsWith) -> Call {
    let bytes = Bytes::new(bytes);
    Call {
        name,
        kind: GroupKind::Tensor,
        collective,
        bytes,
        times: 1,
        beside,
        spread: Spread::Even,
    }
}

/// A pair of products, the first cut by columns, the second by rows: attention, or a dense
/// feed-forward part.
fn linear_block(job: &Job, pass: Pass, calls: &mut Vec<Call>) {
    let bytes = stream_bytes(job);
    // What a product takes in is cast before it is gathered (Transformer Engine's linear layers).
    let taken = match job.precision {
        Precision::Fp8 | Precision::Fp4 => bytes / 2,
        _ => bytes,
    };
    let gather = |name, beside| tensor(name, Collective::AllGather, taken, beside);
    let scatter = |name, beside| tensor(name, Collective::ReduceScatter, bytes, beside);
    let sum = |name, beside| tensor(name, Collective::AllReduce, bytes, beside);
    match (job.parallel.sequence_parallel, pass) {
        (true, Pass::Forward) => calls.extend([
            gather("block input", OverlapsWith::Product),
            scatter("block output", OverlapsWith::Product),
        ]),
        (true, Pass::Weight) => calls.push(gather("block input again", OverlapsWith::OtherProduct)),
        (true, _) => calls.extend([
            gather("output gradient", OverlapsWith::Product),
            scatter("input gradient", OverlapsWith::OtherProduct),
        ]),
        (false, Pass::Forward) => calls.push(sum("block output", OverlapsWith::Nothing)),
        (false, Pass::Weight) => {}
        (false, _) => calls.push(sum("input gradient", OverlapsWith::OtherProduct)),
    }
}

fn context(job: &Job, pass: Pass, calls: &mut Vec<Call>) {
    let others = job.layout.cp - 1;
    let width = match job.model.latent {
        None => 2 * job.kv_heads_held() * job.model.head_dim,
        Some(_) => job.model.heads / job.layout.tp * (job.model.score_dim() + job.model.head_dim),
    };
    let block = job.tokens() * width * job.precision.bytes();
    let ring = |name| Call {
        name,
        kind: GroupKind::Context,
        collective: Collective::SendRecv,
        bytes: Bytes::new(block),
        times: others,
        beside: OverlapsWith::Attention,
        spread: Spread::Even,
    };
    let whole = |name, collective| Call {
        name,
        kind: GroupKind::Context,
        collective,
        bytes: Bytes::new(block * job.layout.cp),
        times: 1,
        beside: OverlapsWith::Nothing,
        spread: Spread::Even,
    };
    match (job.parallel.cp_exchange, pass) {
        (_, Pass::Weight) => {}
        (CpExchange::Ring, Pass::Forward) => calls.push(ring("keys and values")),
        (CpExchange::Ring, _) => {
            calls.extend([ring("keys and values"), ring("their gradients")]);
        }
        (CpExchange::AllGather, Pass::Forward) => {
            calls.push(whole("keys and values", Collective::AllGather));
        }
        (CpExchange::AllGather, _) => calls.extend([
            whole("keys and values", Collective::AllGather),
            whole("their gradients", Collective::ReduceScatter),
        ]),
    }
}

fn moe(job: &Job, experts: &Experts, pass: Pass, calls: &mut Vec<Call>) {
    if 0 < experts.shared {
        linear_block(job, pass, calls);
    }
    if pass == Pass::Weight {
        return;
    }
    let hidden = job.model.hidden;
    let sequence_parallel = job.parallel.sequence_parallel;
    // Every tensor rank sends what it has of the tokens.
    let tokens = job.tokens() / if sequence_parallel { job.layout.tp } else { 1 };
    let out = job.dispatch.token_bytes(hidden);
    let back = hidden * job.precision.bytes();
    let (collectives, copies) = match job.dispatcher {
        Dispatcher::AllToAll => ([Collective::AllToAll; 2], experts.top_k),
        Dispatcher::DeepEp => ([Collective::MoeDispatch, Collective::MoeCombine], 1),
    };
    let dispatch = dispatch(job);
    // Copies that no expert has room for do not travel.
    let kept = |bytes: u64| (bytes as f64 * dispatch.kept()).round() as u64;
    let expert = |name, collective, bytes, spread| Call {
        name,
        kind: GroupKind::Expert,
        collective,
        bytes: Bytes::new(kept(bytes)),
        times: 1,
        beside: OverlapsWith::Microbatch,
        spread: if dispatch.is_even() { Spread::Even } else { spread },
    };
    let routed = job.routed(experts);
    let (there, again) = match pass {
        Pass::Forward => ("tokens to experts", "results to tokens"),
        _ => ("gradients to experts", "gradients to tokens"),
    };
    calls.push(expert(there, collectives[0], tokens * copies * out, Spread::Receivers));
    let within = |name, collective, bytes| Call {
        kind: GroupKind::ExpertTensor,
        ..tensor(name, collective, kept(bytes), OverlapsWith::Nothing)
    };
    if sequence_parallel {
        calls.extend([
            within("experts' input", Collective::AllGather, routed * out),
            within("experts' output", Collective::ReduceScatter, routed * back),
        ]);
    } else {
        calls.push(within("experts' output", Collective::AllReduce, routed * back));
    }
    calls.push(expert(again, collectives[1], tokens * copies * back, Spread::Senders));
}

/// Where images are dealt out over the tensor ranks, what they become is gathered.
fn projector(job: &Job, pass: Pass, calls: &mut Vec<Call>) {
    let Some(vision) = job.model.vision.filter(|_| job.deals_images()) else { return };
    let tokens = job.images() * vision.tokens() * job.layout.tp;
    let bytes = tokens * job.model.hidden * job.precision.bytes();
    match pass {
        Pass::Forward => {
            calls.push(tensor("images", Collective::AllGather, bytes, OverlapsWith::Nothing));
        }
        Pass::Input => {
            let name = "images' gradients";
            calls.push(tensor(name, Collective::ReduceScatter, bytes, OverlapsWith::Nothing));
        }
        _ => {}
    }
}

/// Every tensor rank looks up the tokens that are in its rows.
fn embedding(job: &Job, pass: Pass, calls: &mut Vec<Call>) {
    let bytes = stream_bytes(job);
    match (job.parallel.sequence_parallel, pass) {
        (true, Pass::Forward) => {
            calls.push(tensor(
                "embedding",
                Collective::ReduceScatter,
                bytes,
                OverlapsWith::Nothing,
            ));
        }
        (true, Pass::Weight) => {
            let call =
                tensor("embedding's gradient", Collective::AllGather, bytes, OverlapsWith::Nothing);
            calls.push(call);
        }
        (false, Pass::Forward) => {
            calls.push(tensor("embedding", Collective::AllReduce, bytes, OverlapsWith::Nothing));
        }
        _ => {}
    }
}

/// The head is cut by columns of the vocabulary; the loss needs each token's greatest logit, the
/// sum of exponentials and the target's logit over all of them, in fp32.
fn head(job: &Job, pass: Pass, calls: &mut Vec<Call>) {
    let bytes = stream_bytes(job);
    match (job.parallel.sequence_parallel, pass) {
        (true, Pass::Forward) => {
            calls.push(tensor("head input", Collective::AllGather, bytes, OverlapsWith::Product));
        }
        (true, Pass::Weight) => {
            let name = "head input again";
            calls.push(tensor(name, Collective::AllGather, bytes, OverlapsWith::OtherProduct));
        }
        (true, _) => {
            let name = "head's input gradient";
            calls.push(tensor(name, Collective::ReduceScatter, bytes, OverlapsWith::OtherProduct));
        }
        (false, Pass::Input | Pass::Backward) => {
            let name = "head's input gradient";
            calls.push(tensor(name, Collective::AllReduce, bytes, OverlapsWith::OtherProduct));
        }
        (false, _) => {}
    }
    if pass == Pass::Forward {
        let loss = tensor("loss", Collective::AllReduce, 4 * job.tokens(), OverlapsWith::Nothing);
        calls.push(Call { times: 3, ..loss });
    }
}
