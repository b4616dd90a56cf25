//! Training steps that somebody has measured and published, as jobs that can be predicted.
//!
//! A row names its model, its layout, its software and its cluster in columns; the columns are the
//! contract, so that users can add rows of their own. What was not published is chosen by one rule
//! for all rows: of the microbatch sizes 1, 2, 4, 8 and 16 and of the numbers of virtual stages
//! that divide the layers of a stage, the fastest of those that fit the GPUs' memory; with a
//! pipeline the fastest of the smallest microbatch, which is what people run (42 of 47 published
//! rows that have stages and tell it). Where nothing fits, the memory estimate must be too careful
//! (the run did happen): then the fastest of the smallest microbatch, too. What the software
//! decides besides, and nobody published, is run too and widens the spread, but is not chosen from
//! ([`Row::variants`]).
//!
//! Reading files is other crates' business; a row is made from a header and its fields.

use std::borrow::Cow;

use crate::validate::scale_up_domain;
use fabric::transport::Transport;
use job::config::{
    Accumulation, BatchConfig, DispatchType, Fp8Recipe, JobConfig, ModelChoice, Precision,
};
use job::model::{Biases, Experts, Masking, Mlp, Model, Module, Norm, Recompute, presets};
use job::parallel::{CpExchange, GradientType, ParallelConfig, RankOrder, Sharding, StageSplit};
use job::schedule::Schedule;

pub mod words;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measured {
    /// The step, in seconds.
    Seconds(f64),
    /// Model FLOP/s of one GPU, causal attention counted once, in 10¹².
    Tflops(f64),
}

/// The cluster of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowCluster {
    /// Name of the GPU in the catalogue.
    pub gpu: String,
    /// GPUs of the job, which are all that the row's cluster has.
    pub gpus: u64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    /// NICs of a node.
    pub nics_per_node: u64,
    /// Rate of a NIC in 10⁹ bits per second.
    pub nic_gbps: f64,
    /// The transport; absent where unpublished, or where all GPUs share a scale-up network.
    pub transport: Option<Transport>,
    /// Queue pairs per connection; absent where unpublished.
    pub queue_pairs: Option<u32>,
    /// Whether the NICs were published; where not, one for each GPU at the rate of its generation.
    pub nics: Publication,
}

impl RowCluster {
    /// Whether its GPUs multiply with a scale for every 32 numbers: Blackwell's.
    fn has_mxfp8(&self) -> bool {
        ["b2", "b3", "gb2", "gb3"].iter().any(|chip| self.gpu.starts_with(chip))
    }

    /// Reads the transport, or says why nothing can be predicted with it. A row that names only
    /// its scale-up network and has more GPUs than that joins does not tell what joins them.
    pub fn with_transport(self, word: &str) -> Result<Self, String> {
        let word = words::said(word).to_lowercase();
        let is_scale_up = words::is_scale_up(&word);
        let transport = match words::transport(&word) {
            None if words::is_no_transport(&word) => None,
            None if is_scale_up && self.gpus <= scale_up_domain(&self) => None,
            None if is_scale_up => {
                let (own, gpus) = (scale_up_domain(&self), self.gpus);
                return Err(format!("`{word}` joins {own} GPUs; what joins {gpus} is missing"));
            }
            None => return Err(format!("`{word}` is not known")),
            known => known,
        };
        Ok(Self { transport, ..self })
    }
}

/// One published step.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name.
    pub id: String,
    /// Where it was published.
    pub source: String,
    /// Whose cluster it was; rows of one are not independent.
    pub origin: String,
    /// What was measured.
    pub measured: Measured,
    /// The job, with 1 where the microbatch or the virtual stages were not published.
    pub job: JobConfig,
    /// Whether the microbatch was published.
    pub microbatch: Publication,
    /// Whether the number of virtual stages was published.
    pub virtual_stages: Publication,
    /// The cluster.
    pub cluster: RowCluster,
    /// The column `dp`, where it is not what the GPUs leave for copies of the model: sources write
    /// shards there, or copies of experts.
    pub other_dp: Option<u64>,
    /// What the row's author adds.
    pub note: String,
}

/// Whether an input was published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Publication {
    /// It was.
    Published,
    /// It was not; the rule chooses.
    Chosen,
}

/// Why a row cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RowProblem {
    /// The column.
    pub column: String,
    /// What is wrong with it.
    pub message: String,
}

impl std::fmt::Display for RowProblem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.column, self.message)
    }
}

impl std::error::Error for RowProblem {}

/// The fields of one row by the names of its columns.
struct Fields<'a> {
    header: &'a [String],
    fields: &'a [String],
}

impl Fields<'_> {
    /// The field of a column; empty where the column or the field is missing.
    fn text(&self, column: &str) -> &str {
        let at = self.header.iter().position(|name| name.trim().eq_ignore_ascii_case(column));
        at.and_then(|at| self.fields.get(at)).map_or("", |field| words::said(field))
    }

    /// Whose cluster it was: what the row says, or who published it.
    fn origin(&self) -> &str {
        let words = [self.text("cluster"), self.text("source"), self.text("id")];
        words.into_iter().find(|word| !word.is_empty()).unwrap_or_default()
    }

    fn problem(column: &str, message: String) -> RowProblem {
        RowProblem { column: column.to_owned(), message }
    }

    fn number(&self, column: &str) -> Result<Option<f64>, RowProblem> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        // People group digits: 16,384.
        let digits = text.replace([',', '_'], "");
        let number = digits.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| Self::problem(column, format!("`{text}` is not a number")))
    }

    /// A number that may have a unit behind it: `400G`, "400 Gb/s".
    fn rate(&self, column: &str) -> Result<Option<f64>, RowProblem> {
        let text = self.text(column);
        let end = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
        match text[..end].trim().parse::<f64>() {
            Ok(rate) if rate.is_finite() && text[end..].to_lowercase().starts_with('g') => {
                Ok(Some(rate))
            }
            _ => self.number(column),
        }
    }

    fn count(&self, column: &str) -> Result<Option<u64>, RowProblem> {
        let Some(number) = self.number(column)? else { return Ok(None) };
        if number.fract() != 0.0 || !(0.0..1e15).contains(&number) {
            return Err(Self::problem(column, format!("`{number}` is not a count")));
        }
        Ok(Some(number as u64))
    }

    fn needed(&self, column: &str) -> Result<u64, RowProblem> {
        let count = self.count(column)?;
        count.ok_or_else(|| Self::problem(column, "is missing".to_owned()))
    }

    /// Yes or no; absent where nothing is said.
    fn flag(&self, column: &str) -> Result<Option<bool>, RowProblem> {
        let text = self.text(column);
        match text.to_lowercase().as_str() {
            "" => Ok(None),
            "1" | "true" | "yes" | "on" => Ok(Some(true)),
            "0" | "false" | "no" | "off" => Ok(Some(false)),
            _ => Err(Self::problem(column, format!("`{text}` is neither 1 nor 0"))),
        }
    }

    /// One of some words, however its letters and blanks are written.
    fn word<T: Copy>(&self, column: &str, known: &[(&str, T)]) -> Result<T, RowProblem> {
        let text = self.text(column);
        words::meaning(text, known).ok_or_else(|| Self::unknown(column, text, known))
    }

    fn unknown<T>(column: &str, text: &str, known: &[(&str, T)]) -> RowProblem {
        let words = known.iter().map(|(word, _)| *word).filter(|word| !word.is_empty());
        let words: Vec<&str> = words.collect();
        Self::problem(column, format!("`{text}` is none of {}", words.join(", ")))
    }
}

impl Row {
    /// Reads a row.
    pub fn read(header: &[String], fields: &[String]) -> Result<Self, RowProblem> {
        let fields = Fields { header, fields };
        let measured =
            match (fields.number("measured_step_s")?, fields.number("measured_tflops_per_gpu")?) {
                (Some(seconds), _) if 0.0 < seconds => Measured::Seconds(seconds),
                (None, Some(tflops)) if 0.0 < tflops => Measured::Tflops(tflops),
                _ => {
                    let message = "neither a step nor a rate was measured".to_owned();
                    return Err(Fields::problem("measured_step_s", message));
                }
            };
        let known = |count: Option<u64>| match count {
            Some(_) => Publication::Published,
            None => Publication::Chosen,
        };
        let mut job = read_job(&fields)?;
        let ParallelConfig { tp, cp, pp, dp, .. } = job.parallel;
        let copies = job.gpus.unwrap_or(1) / (tp * cp * pp).max(1);
        let divides = copies * tp * cp * pp == job.gpus.unwrap_or(1);
        let other_dp = dp.filter(|dp| divides && *dp != copies);
        job.parallel.dp = other_dp.map(|_| copies).or(dp);
        Ok(Self {
            id: fields.text("id").to_owned(),
            source: fields.text("source").to_owned(),
            origin: fields.origin().to_owned(),
            measured,
            microbatch: known(fields.count("microbatch")?),
            virtual_stages: known(fields.count("vpp")?),
            job,
            cluster: read_cluster(&fields)?,
            other_dp,
            note: fields.text("note").to_owned(),
        })
    }

    /// Reads a table: a line of names, then a row for each line.
    pub fn read_all(text: &str) -> Result<Vec<Self>, RowProblem> {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let header = split(lines.next().unwrap_or_default());
        lines.map(|line| Self::read(&header, &split(line))).collect()
    }

    /// The jobs that the row may mean: one where everything was published, else all that the rule
    /// chooses from, smallest microbatch first.
    pub fn candidates(&self) -> Vec<JobConfig> {
        let job = &self.job;
        let copies = job.parallel.dp.unwrap_or(1);
        let sequences = job.batch.sequences / copies.max(1);
        let micros: Vec<u64> = match self.microbatch {
            Publication::Published => vec![job.batch.micro],
            Publication::Chosen => [1, 2, 4, 8, 16]
                .into_iter()
                .filter(|micro| sequences.is_multiple_of(*micro))
                .collect(),
        };
        let mut candidates = Vec::new();
        for micro in micros {
            for vpp in self.virtual_stage_choices(sequences / micro) {
                let mut candidate = job.clone();
                candidate.batch.micro = micro;
                candidate.parallel.vpp = vpp;
                if vpp == 1 && candidate.schedule == Schedule::Interleaved {
                    candidate.schedule = Schedule::OneForwardOneBackward;
                }
                candidates.push(candidate);
            }
        }
        candidates
    }

    /// The same without interleaving, for rows whose microbatches it cannot take in groups.
    pub fn plain_candidates(&self) -> Vec<JobConfig> {
        let mut plain = self.clone();
        plain.job.schedule = Schedule::OneForwardOneBackward;
        plain.job.parallel.vpp = 1;
        plain.candidates()
    }

    /// Whether its model has experts.
    pub fn has_experts(&self) -> bool {
        matches!(&self.job.model, ModelChoice::Shape(model) if model.experts.is_some())
    }

    /// What else a job may be that the rule has chosen, of what the software decides and nobody
    /// published: the layers of each stage where they do not divide, the recipe of fp8, and of
    /// models with experts the type of the main gradients (the column `grad_bytes` is assumed by
    /// family), what adds to them, and the type of tokens on their way. Every combination, the job
    /// itself first. DeepSeek's own software, known by DualPipe, is published: scales by blocks,
    /// tokens in fp8 (arXiv 2412.19437), gradients added by the products (DeepGEMM).
    pub fn variants(&self, chosen: &JobConfig) -> Vec<JobConfig> {
        let ModelChoice::Shape(model) = &chosen.model else { return vec![chosen.clone()] };
        let parts = chosen.parallel.pp * chosen.parallel.vpp;
        let divides = model.layers.is_multiple_of(parts) && model.mtp_layers == 0;
        let mut all = vec![chosen.clone()];
        let mut either = |change: &dyn Fn(&mut JobConfig)| {
            let mut others = all.clone();
            others.iter_mut().for_each(change);
            all.extend(others);
        };
        if chosen.parallel.stage_layers.is_none() && 1 < parts && !divides {
            either(&|job| job.parallel.stage_split = Some(StageSplit::Even));
        }
        let is_deepseek = chosen.schedule == Schedule::DualPipe;
        let is_fp8 = chosen.precision == Precision::Fp8;
        if model.experts.is_some() && is_fp8 && !is_deepseek {
            either(&|job| job.moe.dispatch = Some(DispatchType::Fp8));
        }
        if model.experts.is_some() && !is_deepseek {
            either(&|job| {
                job.moe.accumulation = match job.moe.accumulation {
                    Accumulation::Fused => Accumulation::Separate,
                    Accumulation::Separate => Accumulation::Fused,
                };
            });
        }
        if model.experts.is_some() {
            either(&|job| {
                job.parallel.gradients = match job.parallel.gradients {
                    GradientType::Bf16 => GradientType::Fp32,
                    GradientType::Fp32 => GradientType::Bf16,
                };
            });
        }
        if is_fp8 && chosen.fp8_recipe.is_none() && !is_deepseek {
            let usual = Fp8Recipe::usual(model);
            // Dense models are scaled by blocks only where the GPU does it in hardware.
            let blocks = model.experts.is_some() || self.cluster.has_mxfp8();
            let fits = |recipe: &Fp8Recipe| blocks || *recipe != Fp8Recipe::Block;
            let others = RECIPES.into_iter().filter(|recipe| *recipe != usual && fits(recipe));
            let others: Vec<Fp8Recipe> = others.collect();
            let more = all.iter().flat_map(|job| {
                others.iter().map(|recipe| JobConfig { fp8_recipe: Some(*recipe), ..job.clone() })
            });
            all = all.iter().cloned().chain(more.collect::<Vec<_>>()).collect();
        }
        all
    }

    fn virtual_stage_choices(&self, microbatches: u64) -> Vec<u64> {
        let pp = self.job.parallel.pp;
        let interleaved = self.job.schedule == Schedule::Interleaved && 1 < pp;
        match self.virtual_stages {
            Publication::Published if interleaved => vec![self.job.parallel.vpp],
            Publication::Chosen if interleaved && microbatches.is_multiple_of(pp) => {
                let ModelChoice::Shape(model) = &self.job.model else { return vec![1] };
                let layers = model.layers.div_ceil(pp);
                (1..=layers).filter(|vpp| layers.is_multiple_of(*vpp)).collect()
            }
            _ => vec![1],
        }
    }

    /// What the row measured, in seconds per step.
    pub fn measured_s(&self) -> f64 {
        match self.measured {
            Measured::Seconds(seconds) => seconds,
            Measured::Tflops(tflops) => {
                model_flops(&self.job) / self.cluster.gpus as f64 / (tflops * 1e12)
            }
        }
    }

    /// What the row measured and what is predicted for it, in the row's own unit: seconds, or
    /// TFLOP/s where that was published.
    pub fn compare(&self, predicted_s: f64) -> (f64, f64) {
        match self.measured {
            Measured::Seconds(seconds) => (seconds, predicted_s),
            Measured::Tflops(tflops) => (tflops, tflops * self.measured_s() / predicted_s),
        }
    }
}

/// What fp8 may have been; MXFP8 is what scales by blocks are on GPUs that have it.
const RECIPES: [Fp8Recipe; 4] =
    [Fp8Recipe::Delayed, Fp8Recipe::Fused, Fp8Recipe::Current, Fp8Recipe::Block];

/// The fields of a line: separated by commas, those with commas in double quotes.
pub fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for letter in line.trim_end_matches('\r').chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("there is a field").push(letter),
        }
    }
    fields
}

/// Model FLOPs of one step, causal attention counted once.
fn model_flops(job: &JobConfig) -> f64 {
    let ModelChoice::Shape(model) = &job.model else { return 0.0 };
    let tokens = job.batch.sequences as f64 * job.batch.length as f64;
    model.model_flops(job.batch.length, Masking::Causal).total() as f64 * tokens
}

fn read_cluster(fields: &Fields<'_>) -> Result<RowCluster, RowProblem> {
    let gpu = words::gpu_name(fields.text("gpu"));
    let gpus = fields.needed("gpus")?;
    let gpus_per_node = fields.count("gpus_per_node")?.unwrap_or(8).clamp(1, gpus.max(1));
    let (nics, rate) = (fields.count("nics_per_node")?, fields.rate("nic_gbps")?);
    let has_rate = rate.is_some_and(|rate| 0.0 < rate);
    let is_published = (has_rate && nics.is_some_and(|nics| 0 < nics)) || gpus <= gpus_per_node;
    let usual = words::usual_nic_gbps(&gpu);
    let cluster = RowCluster {
        gpu,
        gpus,
        gpus_per_node,
        nics_per_node: nics.filter(|nics| 0 < *nics).unwrap_or(gpus_per_node),
        nic_gbps: rate.filter(|_| has_rate).unwrap_or(usual),
        transport: None,
        queue_pairs: fields.count("qps")?.map(|count| count as u32),
        nics: if is_published { Publication::Published } else { Publication::Chosen },
    };
    // A step that names its scale-up network alone did not publish its transport.
    let word = Some(fields.text("transport")).filter(|word| !words::is_scale_up(word));
    let read = cluster.with_transport(word.unwrap_or_default());
    read.map_err(|reason| Fields::problem("transport", reason))
}

fn read_job(fields: &Fields<'_>) -> Result<JobConfig, RowProblem> {
    let model = read_model(fields)?;
    let word = fields.text("precision");
    let unknown = || Fields::unknown("precision", word, &words::PRECISIONS);
    let (precision, recipe) = words::precision(word).ok_or_else(unknown)?;
    Ok(JobConfig {
        model: ModelChoice::Shape(Box::new(model)),
        gpus: Some(fields.needed("gpus")?),
        parallel: read_parallel(fields)?,
        schedule: read_schedule(fields)?,
        batch: BatchConfig {
            sequences: fields.needed("global_batch")?,
            micro: fields.count("microbatch")?.unwrap_or(1),
            length: fields.needed("seq")?,
        },
        precision,
        fp8_recipe: fields.word("fp8_recipe", &words::RECIPES)?.or(recipe),
        recompute: read_recompute(fields)?,
        attention: fields.word("attention", &words::ATTENTION)?,
        loss: fields.word("loss", &words::LOSSES)?,
        accumulation: fields.word("accumulation", &words::ACCUMULATIONS)?,
        ..JobConfig::default()
    })
}

/// What is computed again: a word, or modules by Megatron-LM's names.
fn read_recompute(fields: &Fields<'_>) -> Result<Recompute, RowProblem> {
    let text = fields.text("recompute");
    let names: Vec<&str> =
        text.split([',', ';', '+', ' ', '/']).filter(|name| !name.is_empty()).collect();
    // Beside modules "selective" is the one that it stands for alone.
    let module = |name: &str| match name {
        "selective" if 1 < names.len() => Some(Module::CoreAttn),
        name => Module::ALL.iter().find(|(known, _)| *known == name).map(|(_, module)| *module),
    };
    let modules: Option<Vec<Module>> = names.iter().map(|name| module(name)).collect();
    if let Some(modules) = modules.filter(|modules| !modules.is_empty()) {
        return Ok(Recompute::Modules(modules));
    }
    let usual = fields.word("recompute", &words::RECOMPUTE)?;
    Ok(usual.into())
}

/// Layers of each stage, where published: "15x4,1" is fifteen stages of four layers, then one of
/// one.
fn read_stage_layers(fields: &Fields<'_>) -> Result<Option<Vec<u64>>, RowProblem> {
    let text = fields.text("stage_layers");
    if text.is_empty() {
        return Ok(None);
    }
    let run = |word: &str| {
        let (times, layers) = word.split_once(['x', '×', '*']).unwrap_or(("1", word));
        let times = times.trim().parse().ok().filter(|times| *times <= MOST_STAGES)?;
        Some(std::iter::repeat_n(layers.trim().parse().ok()?, times))
    };
    let runs: Option<Vec<_>> = text.split([',', ';', '+']).map(run).collect();
    let problem = || {
        let message = format!("`{text}` is not a list of layers such as 15x4,1");
        Fields::problem("stage_layers", message)
    };
    Ok(Some(runs.ok_or_else(problem)?.into_iter().flatten().collect()))
}

/// More stages than this nobody has.
const MOST_STAGES: usize = 1 << 16;

/// The schedule; where none is said, the interleaved one if there are virtual stages, else 1F1B.
fn read_schedule(fields: &Fields<'_>) -> Result<Schedule, RowProblem> {
    let virtual_stages = fields.count("vpp")?.unwrap_or(1);
    let unsaid =
        if 1 < virtual_stages { Schedule::Interleaved } else { Schedule::OneForwardOneBackward };
    let text = words::plain(fields.text("schedule"));
    // One stage has no order to choose.
    if matches!(text.as_str(), "" | "none") || fields.count("pp")?.unwrap_or(1) < 2 {
        return Ok(unsaid);
    }
    let named = words::SCHEDULES.iter().find(|(name, _)| text.contains(name));
    let unknown = || Fields::unknown("schedule", &text, &words::SCHEDULES);
    named.map(|(_, schedule)| *schedule).ok_or_else(unknown)
}

fn read_parallel(fields: &Fields<'_>) -> Result<ParallelConfig, RowProblem> {
    let mut overlap = Vec::new();
    let words = fields.text("overlap").split([',', ';', '+', ' ', '/']).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        overlap.extend(words::overlap(word).ok_or_else(|| {
            Fields::problem("overlap", format!("`{word}` is none of tp, cp, ep, pp, dp"))
        })?);
    }
    let sharding = fields.word("sharding", &words::SHARDINGS)?;
    Ok(ParallelConfig {
        tp: fields.count("tp")?.unwrap_or(1),
        cp: fields.count("cp")?.unwrap_or(1),
        pp: fields.count("pp")?.unwrap_or(1),
        vpp: fields.count("vpp")?.unwrap_or(1),
        dp: fields.count("dp")?,
        ep: fields.count("ep")?.unwrap_or(1),
        sharding,
        sequence_parallel: fields.flag("seq_parallel")?.unwrap_or(true),
        // Gathered keys and values are what FSDP-style software does (Llama 3), rings Megatron's.
        cp_exchange: match sharding {
            Sharding::Fsdp | Sharding::FsdpNoReshard => CpExchange::AllGather,
            _ => CpExchange::Ring,
        },
        order: match sharding {
            Sharding::Fsdp | Sharding::FsdpNoReshard => RankOrder::TpCpPpDp,
            _ => RankOrder::TpCpDpPp,
        },
        gradients: match fields.count("grad_bytes")? {
            Some(2) => GradientType::Bf16,
            _ => GradientType::Fp32,
        },
        stage_layers: read_stage_layers(fields)?,
        etp: read_expert_tensor(fields)?,
        overlap,
        ..ParallelConfig::default()
    })
}

/// Over how many GPUs each expert is cut. Where experts are spread over GPUs and nothing is said it
/// is 1: what published recipes of Megatron-LM's kind set beside tensor parallelism (its default,
/// as much as tensor parallelism, cuts experts into products too small to be fast).
fn read_expert_tensor(fields: &Fields<'_>) -> Result<Option<u64>, RowProblem> {
    let are_spread = fields.count("ep")?.is_some_and(|ep| 1 < ep);
    Ok(fields.count("etp")?.or(are_spread.then_some(1)))
}

/// The preset that a row means: by its name, however that is written, or by its shape where the
/// name is nobody's. It has the row's layers and vocabulary, which people pad and cut.
fn known_model(fields: &Fields<'_>) -> Result<Option<Model>, RowProblem> {
    let name = words::plain(fields.text("model"));
    let (layers, vocab) = (fields.count("layers")?, fields.count("vocab")?);
    let (hidden, ffn) = (fields.count("hidden")?, fields.count("ffn")?);
    let (heads, experts) = (fields.count("heads")?, fields.count("experts")?);
    let count = |model: &Model| model.experts.as_ref().map_or(0, |experts| experts.count);
    let agrees = |said: Option<u64>, own: u64| said.is_none_or(|said| said == own);
    let models = || presets::all().iter().map(|preset| &preset.model);
    let named = models().find(|model| {
        words::plain(&model.name) == name
            && agrees(hidden, model.hidden)
            && agrees(heads, model.heads)
            && agrees(experts, count(model))
    });
    let shaped = || {
        models().find(|model| {
            let own = [model.layers, model.hidden, model.ffn, model.heads].map(Some);
            // GPTs differ by nothing that a name would add.
            let is_same = model.mlp == Mlp::Gated && [layers, hidden, ffn, heads] == own;
            is_same && experts.unwrap_or(0) == count(model)
        })
    };
    Ok(named.or_else(shaped).map(|model| Model {
        layers: layers.unwrap_or(model.layers),
        vocab: vocab.unwrap_or(model.vocab),
        ..model.clone()
    }))
}

/// The model of a row: the preset that it means (a preset knows more, latent attention for one),
/// else what the columns say.
fn read_model(fields: &Fields<'_>) -> Result<Model, RowProblem> {
    if let Some(model) = known_model(fields)? {
        return Ok(model);
    }
    let heads = fields.needed("heads")?;
    let hidden = fields.needed("hidden")?;
    let layers = fields.needed("layers")?;
    let ffn = fields.count("ffn")?.unwrap_or(4 * hidden);
    // Where nothing is said: two matrices of four times the width are GPT's, three are Llama's.
    let unsaid = if ffn == 4 * hidden { Mlp::Gelu } else { Mlp::Gated };
    let gated = match fields.text("mlp") {
        "" => unsaid,
        _ => fields.word("mlp", &words::MLPS)?,
    };
    let experts = match fields.count("experts")? {
        None | Some(0) => None,
        Some(count) => Some(Experts {
            count,
            top_k: fields.needed("top_k")?,
            shared: fields.count("shared_experts")?.unwrap_or(0),
            // One width for all, as Mixtral's.
            ffn: fields.count("expert_ffn")?.unwrap_or(ffn),
            dense_layers: fields.count("dense_layers")?.unwrap_or(0),
            every: 1,
            groups: 1,
            group_limit: 1,
        }),
    };
    Ok(Model {
        name: Cow::Owned(fields.text("model").to_owned()),
        layers,
        hidden,
        ffn,
        heads,
        kv_heads: fields.count("kv_heads")?.unwrap_or(heads),
        head_dim: fields.count("head_dim")?.unwrap_or(hidden / heads.max(1)),
        vocab: fields.needed("vocab")?,
        mlp: gated,
        norm: if gated == Mlp::Gated { Norm::Rms } else { Norm::Layer },
        norms_per_layer: 2,
        qk_norm: false,
        biases: if gated == Mlp::Gated { Biases::NONE } else { Biases::ALL },
        tied_embeddings: gated == Mlp::Gelu,
        positions: 0,
        window: None,
        latent: None,
        experts,
        mtp_layers: 0,
        vision: None,
    })
}

/// How far predictions of some rows are off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Rows.
    pub rows: usize,
    /// Mean of the errors' sizes.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The largest.
    pub worst: f64,
    /// Share of rows within 12 %.
    pub within_12: f64,
    /// Mean of the signed errors.
    pub bias: f64,
}

/// Scores signed errors (predicted / measured − 1).
pub fn score(errors: &[f64]) -> Score {
    if errors.is_empty() {
        return Score::default();
    }
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let rows = sizes.len();
    let median = f64::midpoint(sizes[(rows - 1) / 2], sizes[rows / 2]);
    let count = rows as f64;
    Score {
        rows,
        mean: sizes.iter().sum::<f64>() / count,
        median,
        worst: sizes[rows - 1],
        within_12: sizes.iter().filter(|size| **size <= 0.12).count() as f64 / count,
        bias: errors.iter().sum::<f64>() / count,
    }
}

/// Spearman's rank correlation between measured and predicted.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |values: Vec<f64>| -> Vec<f64> {
        let below = |value: f64| values.iter().filter(|other| **other < value).count() as f64;
        let equal = |value: f64| values.iter().filter(|other| **other == value).count() as f64;
        values.iter().map(|value| below(*value) + (equal(*value) - 1.0) / 2.0).collect()
    };
    let measured = ranks(pairs.iter().map(|pair| pair.0).collect());
    let predicted = ranks(pairs.iter().map(|pair| pair.1).collect());
    let middle = (pairs.len() as f64 - 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum()
    };
    let scale = (product(&measured, &measured) * product(&predicted, &predicted)).sqrt();
    if scale == 0.0 { 0.0 } else { product(&measured, &predicted) / scale }
}

#[cfg(test)]
mod tests {
    use job::parallel::Axis;

    use super::*;

    const HEADER: &str = "id,source,trust,model,layers,hidden,ffn,heads,kv_heads,vocab,mlp,experts,\
        top_k,shared_experts,expert_ffn,dense_layers,seq,gpu,gpus,gpus_per_node,nics_per_node,\
        nic_gbps,transport,tp,cp,pp,vpp,ep,dp,sharding,schedule,microbatch,global_batch,precision,\
        recompute,seq_parallel,overlap,attention,loss,grad_bytes,qps,measured_step_s,\
        measured_tflops_per_gpu,note";

    fn parted(line: &str, separator: char) -> Vec<String> {
        line.split(separator).map(|field| field.trim().to_owned()).collect()
    }

    fn row(line: &str) -> Result<Row, RowProblem> {
        Row::read(&parted(HEADER, ','), &parted(line, ';'))
    }

    const MCORE: &str = "mcore;a table;image;gpt-177b-x;96;12288;49152;96;96;131072;gelu;;;;;;4096;\
        h100-sxm;2304;8;8;400;infiniband;8;1;6;;;48;zero1;interleaved-1f1b;;1152;bf16;none;1;\
        dp,tp,pp;flash;unfused;4;;;432.8;";

    #[test]
    fn a_row_is_a_job_and_a_cluster() {
        let row = row(MCORE).unwrap();
        assert_eq!(row.measured, Measured::Tflops(432.8));
        assert_eq!(row.job.parallel.overlap, [Axis::Dp, Axis::Tp, Axis::Pp]);
        assert_eq!(
            (row.microbatch, row.virtual_stages),
            (Publication::Chosen, Publication::Chosen)
        );
        assert_eq!(row.cluster.queue_pairs, None);
        // The step that the rate stands for, by hand: 6·N and causal attention, per token.
        let weights = 96.0 * 12.0 * 12288.0_f64.powi(2) + 131_072.0 * 12_288.0;
        let attention = 96.0 * 6.0 * 4096.0 * 12_288.0;
        let flop = (6.0 * weights + attention) * 1152.0 * 4096.0;
        let seconds = flop / 2304.0 / 432.8e12;
        assert!((row.measured_s() / seconds - 1.0).abs() < 1e-3, "{}", row.measured_s());
        // A step half as long is a rate twice as high.
        let (measured, predicted) = row.compare(row.measured_s() / 2.0);
        assert!((predicted / measured - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_published_is_chosen_by_one_rule() {
        let row = row(MCORE).unwrap();
        let choices: Vec<(u64, u64)> =
            row.candidates().iter().map(|job| (job.batch.micro, job.parallel.vpp)).collect();
        // 24 sequences per copy: microbatches of 1, 2, 4, 8; interleaving where 6 divides them.
        let stages = [1, 2, 4, 8, 16];
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for micro in [1, 2, 4] {
            expected.extend(stages.map(|vpp| (micro, vpp)));
        }
        expected.push((8, 1));
        assert_eq!(choices, expected);
    }

    /// 2304 GPUs over 8 and 6 are 48 copies, whatever else the source calls so.
    #[test]
    fn copies_are_what_the_gpus_leave() {
        let own = row(MCORE).unwrap();
        assert_eq!((own.job.parallel.dp, own.other_dp), (Some(48), None));
        let other = row(&MCORE.replace(";;48;zero1", ";;16;zero1")).unwrap();
        assert_eq!((other.job.parallel.dp, other.other_dp), (Some(48), Some(16)));
        let unit = row(&MCORE.replace(";400;", ";400 Gb/s;")).unwrap();
        assert!((unit.cluster.nic_gbps - 400.0).abs() < 1e-9);
        assert!(row(&MCORE.replace(";400;", ";fast;")).is_err());
    }

    #[test]
    fn wrong_fields_are_named() {
        let wrong = |from: &str, to: &str| row(&MCORE.replace(from, to)).unwrap_err().to_string();
        assert_eq!(wrong("dp,tp,pp", "dp,np"), "overlap: `np` is none of tp, cp, ep, pp, dp");
        assert_eq!(wrong(";96;12288", ";96.5;12288"), "layers: `96.5` is not a count");
        assert_eq!(wrong("432.8", ""), "measured_step_s: neither a step nor a rate was measured");
        assert!(wrong("zero1", "zero9").starts_with("sharding: `zero9` is none of"));
    }

    /// A preset under another name, padded, and with experts beside tensor parallelism.
    #[test]
    fn models_and_words_are_known_by_other_names() {
        let line = "x;a;log;DeepSeek R1;61;7168;18432;128;128;129536;gated;256;8;1;2048;3;4096;\
            GB300;256;4;;;NVLink5;2;1;4;4;64;32;FSDP2;1F1B-interleaved;1;2048;fp8_mx;mla_up_proj;1;\
            all;cudnn;te;2;;;900;";
        let row = row(line).unwrap();
        let ModelChoice::Shape(model) = &row.job.model else { panic!("a shape") };
        assert!(model.latent.is_some() && model.vocab == 129_536);
        assert_eq!((row.job.precision, row.job.fp8_recipe), (Precision::Fp8, Some(Fp8Recipe::Mx)));
        assert_eq!(row.job.schedule, Schedule::Interleaved);
        assert_eq!(row.job.parallel.sharding, Sharding::Fsdp);
        assert_eq!((row.job.parallel.etp, row.job.parallel.overlap.len()), (Some(1), 5));
        assert_eq!((row.cluster.gpu.as_str(), row.cluster.nic_gbps), ("gb300", 800.0));
    }

    #[test]
    fn commas_in_quotes_do_not_part_fields() {
        assert_eq!(split("a,\"dp,tp\",,b"), ["a", "dp,tp", "", "b"]);
    }

    #[test]
    fn scores_by_hand() {
        let score = score(&[0.1, -0.2, 0.0, 0.05]);
        assert_eq!((score.rows, score.worst, score.within_12), (4, 0.2, 0.75));
        assert!((score.mean - 0.0875).abs() < 1e-12 && (score.median - 0.075).abs() < 1e-12);
        assert!((score.bias + 0.0125).abs() < 1e-12);
        assert_eq!(rank_correlation(&[(1.0, 10.0), (2.0, 20.0), (3.0, 25.0)]), 1.0);
        assert_eq!(rank_correlation(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), -1.0);
    }
}
