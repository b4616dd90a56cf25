//! From what was written to what it means: a checked [`Job`].
//!
//! Nothing stops at the first error: [`resolve`] returns every [`Problem`] with the key it
//! concerns and what would fit instead. What works but is unwise is a warning.

use units::Bytes;

use crate::compute::layer::Dropout;
use crate::compute::{Mask, Operands};
use crate::config::{
    Accumulation, AttentionKernel, BatchConfig, DispatchType, Dispatcher, Fp8Recipe, JobConfig,
    Loss, MoeConfig, Optimizer, Precision, RoutingLimit,
};
use crate::model::{Experts, Mlp, Model, Recomputed};
use crate::parallel::{
    Layout, MOST_VOCAB_MULTIPLE, ParallelConfig, Reduction, Sharding, StageSplit,
};
use crate::schedule::Schedule;
use crate::stages;

/// A job whose every number is decided and fits the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The model.
    pub model: Model,
    /// How it is cut.
    pub layout: Layout,
    /// The rest of what was written about parallelism.
    pub parallel: ParallelConfig,
    /// When gradients are reduced.
    pub reduction: Reduction,
    /// Layers of each virtual stage, in the order of the model.
    pub stage_layers: Vec<u64>,
    /// What one step works on.
    pub batch: BatchConfig,
    /// Microbatches per step and pipeline.
    pub microbatches: u64,
    /// The order of passes.
    pub schedule: Schedule,
    /// The type of the matrix products.
    pub precision: Precision,
    /// How fp8 operands are scaled and cast.
    pub fp8_recipe: Fp8Recipe,
    /// What the backward pass computes again.
    pub recompute: Recomputed,
    /// The attention kernels' generation.
    pub attention: AttentionKernel,
    /// Whether activations are dropped: they are where GPT's kind of model is trained with the
    /// software of its time, known by its unfused attention (Megatron-LM's default was 0.1).
    pub dropout: Dropout,
    /// Which tokens a query sees: those before it, or in an encoder all of them.
    pub mask: Mask,
    /// How the loss is computed.
    pub loss: Loss,
    /// How the weight gradients of products outside of experts come into the main gradients.
    pub accumulation: Accumulation,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// How tokens find their experts.
    pub moe: MoeConfig,
    /// The type of tokens on their way to the experts.
    pub dispatch: DispatchType,
    /// What carries them.
    pub dispatcher: Dispatcher,
}

impl Job {
    /// What the matrix products multiply.
    pub fn operands(&self) -> Operands {
        Operands::of(self.precision, self.fp8_recipe)
    }
}

/// The cluster, as far as a job must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// GPUs of the cluster.
    pub gpus: u64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    /// GPUs that the scale-up network joins: a node, or a rack of them.
    pub scale_up: u64,
}

/// Something wrong with a job, or unwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key it concerns, below `job`.
    pub key: &'static str,
    /// What is wrong, and what would fit.
    pub message: String,
}

/// A job and what is unwise about it, or everything that is wrong with it.
pub type Resolved = Result<(Job, Vec<Problem>), Vec<Problem>>;

/// Checks a job against its model and its cluster.
pub fn resolve(config: &JobConfig, model: Model, site: &Site) -> Resolved {
    let mut check = Check::default();
    for (key, message) in model.problems() {
        check.wrong("model", format!("{key}: {message}"));
    }
    degrees(&mut check, config);
    if !check.errors.is_empty() {
        return Err(check.errors);
    }
    let layout = layout(&mut check, config, site);
    tensor(&mut check, config, &model, &layout, site);
    experts(&mut check, config, &model, &layout);
    vision(&mut check, config, &model, &layout);
    let stage_layers = stages(&mut check, config, &model);
    let microbatches = batch(&mut check, config, &layout);
    schedule(&mut check, config, microbatches);
    sharding(&mut check, config, microbatches);
    if !check.errors.is_empty() {
        return Err(check.errors);
    }
    // DeepSeek's software is the one that is known to send fp8.
    let dispatch = config.moe.dispatch.unwrap_or(match (config.precision, config.schedule) {
        (Precision::Fp8 | Precision::Fp4, Schedule::DualPipe) => DispatchType::Fp8,
        _ => DispatchType::Bf16,
    });
    let limited = model.experts.is_some_and(|experts| experts.group_limit < experts.groups);
    let usual = if limited { Dispatcher::DeepEp } else { Dispatcher::AllToAll };
    let gpt = model.mlp == Mlp::Gelu && model.biases.mlp;
    let dropout = match (gpt, config.attention) {
        (true, AttentionKernel::Unfused) => Dropout::Applied,
        _ => Dropout::Absent,
    };
    let mut job = Job {
        dropout,
        dispatcher: config.moe.dispatcher.unwrap_or(usual),
        layout,
        reduction: {
            let parallel = &config.parallel;
            parallel.reduction.unwrap_or(parallel.sharding.reduction(parallel.pp))
        },
        parallel: config.parallel.clone(),
        stage_layers,
        batch: config.batch,
        microbatches,
        schedule: config.schedule,
        precision: config.precision,
        fp8_recipe: config.fp8_recipe.unwrap_or(Fp8Recipe::usual(&model)),
        recompute: config.recompute.of(&model),
        attention: config.attention,
        mask: Mask::Causal,
        loss: config.loss,
        accumulation: config.accumulation,
        optimizer: config.optimizer,
        moe: config.moe.clone(),
        dispatch,
        model,
    };
    balance(&mut check, &mut job);
    Ok((job, check.warnings))
}

#[derive(Default)]
struct Check {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Check {
    fn wrong(&mut self, key: &'static str, message: String) {
        self.errors.push(Problem { key, message });
    }

    fn unwise(&mut self, key: &'static str, message: String) {
        self.warnings.push(Problem { key, message });
    }
}

/// Zeros, which nothing below could divide by.
fn degrees(check: &mut Check, config: &JobConfig) {
    let ParallelConfig { tp, cp, pp, vpp, dp, ep, etp, shard_group, vocab_multiple, .. } =
        &config.parallel;
    let all = [
        ("gpus", config.gpus.unwrap_or(1)),
        ("parallel.tp", *tp),
        ("parallel.cp", *cp),
        ("parallel.pp", *pp),
        ("parallel.vpp", *vpp),
        ("parallel.dp", dp.unwrap_or(1)),
        ("parallel.ep", *ep),
        ("parallel.etp", etp.unwrap_or(1)),
        ("parallel.shard_group", shard_group.unwrap_or(1)),
        ("parallel.vocab_multiple", vocab_multiple.unwrap_or(1)),
        ("batch.sequences", config.batch.sequences),
        ("batch.micro", config.batch.micro),
        ("batch.length", config.batch.length),
    ];
    for (key, value) in all {
        if value == 0 {
            check.wrong(key, "is 0; the least is 1".to_owned());
        } else if MOST < value {
            check.wrong(key, format!("is {value}; the most is {MOST}"));
        }
    }
    if let Some(bucket) = config.parallel.bucket.filter(|bucket| *bucket < LEAST_BUCKET) {
        let message = format!(
            "{bucket}, but each bucket of gradients is an operation of its own, and smaller ones \
             are too many to simulate; {LEAST_BUCKET} or more would fit"
        );
        check.wrong("parallel.bucket", message);
    }
    if let Some(multiple) = vocab_multiple.filter(|multiple| MOST_VOCAB_MULTIPLE < *multiple) {
        let message = format!("is {multiple}; the most is {MOST_VOCAB_MULTIPLE}");
        check.wrong("parallel.vocab_multiple", message);
    }
    // So that no product below can overflow.
    let degrees = [*tp, *cp, *pp, *vpp, dp.unwrap_or(1)];
    let product = degrees.iter().fold(1, |product: u64, degree| product.saturating_mul(*degree));
    if check.errors.is_empty() && MOST < product {
        let message = format!("tp·cp·pp·vpp·dp = {product} ranks and stages; the most is {MOST}");
        check.wrong("parallel", message);
    }
}

/// Smaller buckets than this would be millions of operations; PyTorch's first one is 1 MiB.
const LEAST_BUCKET: Bytes = Bytes::from_mib(1);

/// More GPUs, sequences or tokens than this nobody has.
const MOST: u64 = 1 << 40;

/// The degrees that multiply to the job's GPUs.
fn layout(check: &mut Check, config: &JobConfig, site: &Site) -> Layout {
    let ParallelConfig { tp, cp, pp, vpp, ep, order, .. } = config.parallel;
    let replica = tp * cp * pp;
    let available = config.gpus.unwrap_or(site.gpus);
    let dp = config.parallel.dp.unwrap_or((available / replica).max(1));
    let product = replica * dp;
    let gpus = config.gpus.unwrap_or(product);
    if product != gpus {
        let fit = if gpus.is_multiple_of(replica) {
            format!("dp = {} would fit", gpus / replica)
        } else {
            let below = gpus / replica;
            let fits: Vec<String> = [below, below + 1]
                .iter()
                .filter(|&&dp| 0 < dp)
                .map(|dp| format!("gpus = {} (dp = {dp})", dp * replica))
                .collect();
            format!("{} would fit", fits.join(" or "))
        };
        check.wrong(
            "parallel.dp",
            format!("tp·cp·pp·dp = {tp}·{cp}·{pp}·{dp} = {product}, not the job's {gpus}; {fit}"),
        );
    }
    if config.parallel.dp.is_none() && config.gpus.is_none() && product < available {
        let idle = available - product;
        let message = format!(
            "left out: tp·cp·pp = {replica} does not divide the cluster's {available} GPUs; with \
             dp = {dp} {idle} of them are idle"
        );
        check.unwise("parallel.dp", message);
    }
    if site.gpus < gpus.max(product) {
        let fit = match site.gpus / replica {
            0 => format!("even dp = 1 needs {replica}"),
            dp => format!("dp = {dp} ({} GPUs) would fit", dp * replica),
        };
        check.wrong(
            "gpus",
            format!("{} GPUs, but the cluster has {}; {fit}", gpus.max(product), site.gpus),
        );
    }
    let copies = dp * cp;
    let shard = match (config.parallel.sharding, config.parallel.shard_group) {
        (Sharding::Hybrid, Some(group)) => group,
        (Sharding::Hybrid, None) => site.gpus_per_node.max(tp) / tp,
        (_, Some(_)) => {
            let message = "is for sharding = \"hybrid\" alone".to_owned();
            check.wrong("parallel.shard_group", message);
            copies
        }
        (_, None) => copies,
    };
    if !copies.is_multiple_of(shard) {
        let fit = list(divisors(copies).into_iter());
        let message = format!("{shard} does not divide dp·cp = {copies}; {fit} would");
        check.wrong("parallel.shard_group", message);
    }
    let etp = config.parallel.etp.unwrap_or(tp);
    Layout { tp, cp, pp, vpp, dp, ep, etp, shard, order }
}

/// A stage of a pipeline has several microbatches under way, and weights that are freed after each
/// use come over the network for all of them.
fn sharding(check: &mut Check, config: &JobConfig, microbatches: u64) {
    let ParallelConfig { pp, sharding, .. } = config.parallel;
    let is_freed = matches!(sharding, Sharding::Zero3 | Sharding::Fsdp);
    if is_freed && 1 < pp && 1 < microbatches {
        let message = format!(
            "with a pipeline weights are gathered again for each of {microbatches} microbatches; \
             fsdp-no-reshard, which gathers them once a step, or zero1 would"
        );
        check.unwise("parallel.sharding", message);
    }
}

/// What is cut by tp and cp.
fn tensor(check: &mut Check, config: &JobConfig, model: &Model, layout: &Layout, site: &Site) {
    let Layout { tp, cp, .. } = *layout;
    if !site.scale_up.is_multiple_of(tp) && !tp.is_multiple_of(site.scale_up) {
        // Some groups lie within a domain and others across two, at another speed.
        let fit = list(divisors(site.scale_up).into_iter());
        let domain = format!("the {} GPUs of a scale-up domain", site.scale_up);
        let message = format!("{tp} does not divide {domain}: some groups cross NICs; {fit} would");
        check.unwise("parallel.tp", message);
    }
    // Shared experts are cut like any other matrix. By reference: of a model without experts the
    // compiler would read their number before it knows that there are none.
    let shared = model.experts.as_ref().filter(|experts| 0 < experts.shared);
    let shared = shared.map(|experts| ("shared experts' ffn", experts.ffn));
    let widths = [("heads", model.heads), ("hidden", model.hidden), ("ffn", model.ffn)];
    for (name, width) in widths.into_iter().chain(shared) {
        if !width.is_multiple_of(tp) {
            let fit = list(divisors(width).into_iter().filter(|&d| d <= 2 * tp));
            let message = format!("{tp} does not divide the model's {width} {name}; {fit} would");
            check.wrong("parallel.tp", message);
        }
    }
    let kv_heads = model.kv_heads;
    if !kv_heads.is_multiple_of(tp) && model.latent.is_none() {
        let message = format!("{tp} GPUs share {kv_heads} key/value heads");
        if tp.is_multiple_of(kv_heads) {
            check.unwise("parallel.tp", format!("{message}: each is kept {} times", tp / kv_heads));
        } else {
            check.wrong("parallel.tp", format!("{message}, which divide neither way"));
        }
    }
    if site.scale_up < tp {
        check.unwise(
            "parallel.tp",
            format!("{tp} GPUs do not fit the scale-up domain of {}", site.scale_up),
        );
    }
    let length = config.batch.length;
    if !length.is_multiple_of(2 * cp) && 1 < cp {
        // Causal attention is balanced by giving each rank one early and one late part.
        let halves = if length.is_multiple_of(2) { length / 2 } else { 1 };
        let fit = list(divisors(halves).into_iter().filter(|&d| d <= 2 * cp));
        let parts = 2 * cp;
        let message =
            format!("{length} tokens do not divide into 2·cp = {parts} parts; {fit} would");
        check.wrong("parallel.cp", message);
    } else if config.parallel.sequence_parallel && !(length / cp).is_multiple_of(tp) {
        let message = format!("{} tokens per rank do not divide by tp = {tp}", length / cp);
        check.wrong("parallel.sequence_parallel", message);
    }
}

/// What experts are cut by.
fn expert_tensor(check: &mut Check, config: &JobConfig, experts: &Experts, layout: &Layout) {
    let Layout { tp, cp, dp, etp, .. } = *layout;
    let (ffn, ranks) = (experts.ffn, tp * cp * dp);
    if !ranks.is_multiple_of(etp) || !ffn.is_multiple_of(etp) {
        let both = divisors(ranks).into_iter().filter(|d| ffn.is_multiple_of(*d));
        let fit = list(both.filter(|&d| d <= 2 * etp));
        let (key, what) = match config.parallel.etp {
            Some(_) => ("parallel.etp", format!("tp·cp·dp = {ranks} and the experts' ffn {ffn}")),
            None => ("parallel.tp", format!("the model's {ffn} expert ffn")),
        };
        check.wrong(key, format!("{etp} does not divide {what}; {fit} would"));
    }
    if etp != tp && 1 < tp && !config.parallel.sequence_parallel {
        let message = "experts that are cut otherwise than the rest need sequence parallelism, so \
                       that every rank has its own tokens to send; etp = tp would fit";
        check.wrong("parallel.etp", message.to_owned());
    }
}

fn experts(check: &mut Check, config: &JobConfig, model: &Model, layout: &Layout) {
    let ep = layout.ep;
    let Some(experts) = &model.experts else {
        if let Some(etp) = config.parallel.etp {
            let message = format!("{etp}, but {} has no experts; leave it out", model.name);
            check.wrong("parallel.etp", message);
        }
        if 1 < ep {
            let message = format!("{ep}, but {} has no experts; only 1 would", model.name);
            check.wrong("parallel.ep", message);
        }
        return;
    };
    expert_tensor(check, config, experts, layout);
    let Layout { tp, cp, dp, etp, .. } = *layout;
    // Ranks among which the experts of a layer can be spread.
    let (count, copies) = (experts.count, tp * cp * dp / etp);
    let ranks = if tp == etp { "dp·cp" } else { "tp·cp·dp/etp" };
    let pp = layout.pp;
    let left_out = match config.parallel.dp {
        Some(_) => String::new(),
        None => format!(", with the dp = {dp} that tp·cp·pp = {} leaves", tp * cp * pp),
    };
    for (parts, what) in
        [(copies, format!("{ranks} = {copies}{left_out}")), (count, format!("{count} experts"))]
    {
        if !parts.is_multiple_of(ep) {
            let both = divisors(copies).into_iter().filter(|d| count.is_multiple_of(*d));
            let fit = list(both.filter(|&d| d <= 2 * ep));
            check.wrong("parallel.ep", format!("{ep} does not divide {what}; {fit} would"));
        }
    }
    if 1 < layout.tp && !config.parallel.sequence_parallel {
        let message = "is off: every tensor rank sends all tokens to the experts (Megatron-LM \
                       insists on it here)";
        check.unwise("parallel.sequence_parallel", message.to_owned());
    }
    let moe = &config.moe;
    if moe.capacity_factor.is_some_and(|factor| factor.is_nan() || factor <= 0.0) {
        check.wrong("moe.capacity_factor", "must be above 0".to_owned());
    }
    if moe.skew.is_nan() || moe.skew < 0.0 {
        check.wrong("moe.skew", "must not be below 0".to_owned());
    }
    if let Some(loads) = &moe.loads {
        if loads.len() as u64 != count {
            let message = format!("{} loads for {count} experts", loads.len());
            check.wrong("moe.loads", message);
        }
        let sound = loads.iter().all(|load| load.is_finite() && 0.0 <= *load);
        if !sound || loads.iter().sum::<f64>() <= 0.0 {
            check.wrong("moe.loads", "must be counts, not all of them 0".to_owned());
        }
    }
    if let RoutingLimit::Nodes(0) | RoutingLimit::Devices(0) = moe.limit {
        check.wrong("moe.limit", "is 0; the least is 1".to_owned());
    }
}

/// What a vision encoder is cut by, and what it makes of the sequence.
fn vision(check: &mut Check, config: &JobConfig, model: &Model, layout: &Layout) {
    let Some(vision) = &model.vision else { return };
    let (tokens, length) = (vision.images.saturating_mul(vision.tokens()), config.batch.length);
    if length < tokens {
        let fit = length / vision.tokens().max(1);
        let message = format!(
            "vision.images: {} images of {} tokens do not fit a sequence of {length}; up to {fit} \
             would",
            vision.images,
            vision.tokens()
        );
        check.wrong("model", message);
    }
    let tp = config.parallel.vision_tp.unwrap_or(layout.tp);
    if tp != layout.tp && tp != 1 {
        let message = format!("{tp}; 1 or tp = {} would fit", layout.tp);
        check.wrong("parallel.vision_tp", message);
    }
    for (name, width) in [("heads", vision.heads), ("ffn", vision.ffn)] {
        if tp != 0 && !width.is_multiple_of(tp) {
            let message = format!("{tp} does not divide the encoder's {width} {name}; 1 would");
            check.wrong("parallel.vision_tp", message);
        }
    }
}

/// Layers of each virtual stage as they are written, else evenly spread.
fn stages(check: &mut Check, config: &JobConfig, model: &Model) -> Vec<u64> {
    let parts = config.parallel.pp * config.parallel.vpp;
    let layers = model.layers;
    if let Some(written) = &config.parallel.stage_layers {
        if written.len() as u64 != parts || written.iter().sum::<u64>() != layers {
            check.wrong(
                "parallel.stage_layers",
                format!(
                    "{} stages of {} layers in all, but pp·vpp = {parts} and the model has {layers}",
                    written.len(),
                    written.iter().sum::<u64>()
                ),
            );
        }
        return written.clone();
    }
    if layers + 2 < parts {
        let vpp = (layers + 2) / config.parallel.pp;
        let fit = match vpp {
            0 => format!("pp up to {} would fit", layers + 2),
            _ => format!("vpp up to {vpp} would fit"),
        };
        let message = format!("pp·vpp = {parts} stages for {layers} layers; {fit}");
        check.wrong("parallel.pp", message);
        return Vec::new();
    }
    stages::even(layers, parts)
}

/// Balances the stages of a job that is else complete, if it is to be.
fn balance(check: &mut Check, job: &mut Job) {
    let ParallelConfig { stage_layers, stage_split, .. } = &job.parallel;
    let (layers, parts) = (job.model.layers, job.parts());
    if stage_layers.is_some() || parts == 1 {
        return;
    }
    let split = stage_split.unwrap_or(stages::usual(layers, job.model.mtp_layers, parts));
    if split == StageSplit::Balanced {
        job.stage_layers = stages::balanced(job);
    }
    // Who asked for a split knows that it is needed.
    if stage_split.is_none() && !layers.is_multiple_of(parts) {
        let spelt = stages::in_words(&job.stage_layers);
        let message = format!("{layers} layers do not divide by {parts}: {spelt} layers");
        check.unwise("parallel.stage_layers", message);
    }
}

/// Microbatches per step and pipeline.
fn batch(check: &mut Check, config: &JobConfig, layout: &Layout) -> u64 {
    let BatchConfig { sequences, micro, .. } = config.batch;
    let at_once = layout.dp * micro;
    if !sequences.is_multiple_of(at_once) {
        let below = sequences / at_once * at_once;
        let fits: Vec<String> =
            [below, below + at_once].iter().filter(|&&n| 0 < n).map(u64::to_string).collect();
        check.wrong(
            "batch.sequences",
            format!(
                "{sequences} sequences do not divide into dp·micro = {}·{micro} = {at_once}; {} \
                 would",
                layout.dp,
                fits.join(" or ")
            ),
        );
    }
    (sequences / at_once).max(1)
}

fn schedule(check: &mut Check, config: &JobConfig, microbatches: u64) {
    let ParallelConfig { pp, vpp, .. } = config.parallel;
    if 1 < vpp && config.schedule != Schedule::Interleaved {
        let message = format!("vpp = {vpp} needs schedule = \"interleaved-1f1b\"");
        check.wrong("parallel.vpp", message);
    }
    if 1 < vpp && pp == 1 {
        check.wrong("parallel.vpp", format!("{vpp} virtual stages need a pipeline: pp = 1"));
    }
    if 1 < vpp && !microbatches.is_multiple_of(pp) {
        let below = microbatches / pp * pp;
        let fits: Vec<String> =
            [below, below + pp].iter().filter(|&&n| 0 < n).map(u64::to_string).collect();
        check.wrong(
            "batch.sequences",
            format!(
                "interleaving takes microbatches in groups of pp = {pp}: {microbatches} per \
                 pipeline do not divide; {} would",
                fits.join(" or ")
            ),
        );
    }
    if config.schedule == Schedule::DualPipe && 1 < pp {
        if !pp.is_multiple_of(2) {
            check.wrong("parallel.pp", format!("dualpipe runs from both ends: {pp} is odd"));
        }
        if microbatches < 2 * pp || !microbatches.is_multiple_of(2) {
            check.wrong(
                "schedule",
                format!(
                    "dualpipe needs an even number of microbatches, at least 2·pp = {}: there are \
                     {microbatches}",
                    2 * pp
                ),
            );
        }
    }
    if microbatches < pp {
        check.unwise(
            "batch.sequences",
            format!("{microbatches} microbatches do not fill a pipeline of {pp} stages"),
        );
    }
}

fn divisors(number: u64) -> Vec<u64> {
    let mut divisors = Vec::new();
    let mut candidate = 1;
    while candidate * candidate <= number {
        if number.is_multiple_of(candidate) {
            divisors.push(candidate);
            divisors.push(number / candidate);
        }
        candidate += 1;
    }
    divisors.sort_unstable();
    divisors.dedup();
    divisors
}

/// The largest few, as words.
fn list(numbers: impl Iterator<Item = u64>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let from = numbers.len().saturating_sub(6);
    numbers[from..].join(", ")
}

#[cfg(test)]
mod tests;
