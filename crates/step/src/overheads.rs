//! The few global constants of the software around a step, each with its source.
//!
//! They are the same for every job on every cluster. What differs between frameworks in kind (which
//! axes overlap, how attention is computed) belongs to the job; what differs between networks
//! (collisions, congestion) comes out of an engine.

use job::compute::KernelKind;
use job::{Axis, Job, JobConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Ranged, Ranges, Span, UnusedKeys};

/// Costs that no kernel and no link accounts for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overheads {
    /// Once per step: data loading, logging, gradient norm across ranks, the Python of the loop.
    pub per_step: Span,
    /// The share of overlapped tensor-parallel communication that stays exposed. Left out, it is
    /// one of the chunks that it is cut into: the first of a gather, which has as many as the group
    /// has ranks, and the last of a scatter, which has four, have no matrix product to hide under.
    pub tensor_exposed: Option<f64>,
    /// How much slower computation runs while communication kernels take SMs and memory bandwidth.
    pub compute_slowdown: f64,
    /// Starting one collective or message in a stream of kernels, and finding all ranks there.
    pub collective: Span,
    /// How long kernels take, over those that were measured: what a slower clock, cooling or
    /// software do to all of them.
    pub kernel_time: f64,
    /// How long matrix products take, over what was measured, instead of `kernel_time`.
    pub product_time: Option<f64>,
    /// How long attention takes, over what was measured, instead of `kernel_time`.
    pub attention_time: Option<f64>,
    /// How long kernels at the memory's rate take, over what was measured, instead of
    /// `kernel_time`.
    pub memory_time: Option<f64>,
    /// SMs that expert-parallel kernels keep for themselves while they run beside computation.
    pub expert_sms: u32,
}

impl Default for Overheads {
    fn default() -> Self {
        Self {
            // Nobody has published it apart from the rest of a step.
            per_step: Span::ZERO,
            // Transformer Engine's user buffers gather one chunk for each rank round a ring of
            // sends and scatter in four splits (pytorch/module/base.py, `initialize_ub`:
            // `ring_exchange`; `pipeline` with `num_splits` 4).
            tensor_exposed: None,
            // Set with measurements: published steps (`fatflow validate --leave-out`).
            compute_slowdown: 0.09,
            // NCCL's base latency of the Simple protocol, 8.4 µs (NCCL src/graph/tuning.cc), and a
            // graph's launch gap of 1 to 2 µs; nccl-tests' further 16 µs are the host's launch,
            // which a stream of kernels hides.
            collective: Span::from_us(10),
            // As measured.
            kernel_time: 1.0,
            product_time: None,
            attention_time: None,
            memory_time: None,
            // DeepSeek-V3 (arXiv 2412.19437) section 3.2.2 and the public training trace
            // (deepseek-ai/profile-data): grids of 20 blocks.
            expert_sms: 20,
        }
    }
}

impl Ranged for Overheads {
    fn ranges(&self, check: &mut Ranges) {
        check.at_most("per_step", self.per_step, Span::from_ms(3_600_000));
        if let Some(share) = self.tensor_exposed {
            check.share("tensor_exposed", share);
        }
        check.within("compute_slowdown", self.compute_slowdown, [0.0, 100.0]);
        check.within("kernel_time", self.kernel_time, [0.001, 1000.0]);
        for (key, own) in self.own_times() {
            check.within(key, own.unwrap_or(1.0), [0.001, 1000.0]);
        }
        check.at_most("collective", self.collective, Span::from_ms(10_000));
        check.at_most("expert_sms", self.expert_sms, 1024);
    }
}

impl Overheads {
    /// Names what has no effect on a job.
    pub fn unused(&self, job: &JobConfig, idle: &mut UnusedKeys) {
        let overlaps = |axis| job.parallel.overlap.contains(&axis);
        if !overlaps(Axis::Tp) || job.parallel.tp == 1 {
            let why = "tensor-parallel communication is not overlapped";
            idle.key("tensor_exposed", why, "job.parallel.overlap with \"tp\"");
        }
        if job.parallel.overlap.is_empty() {
            let why = "nothing is overlapped";
            idle.key("compute_slowdown", why, "job.parallel.overlap");
        }
        if self.own_times().iter().all(|(_, own)| own.is_some()) {
            let why = "every kind of kernel has a factor of its own";
            idle.key("kernel_time", why, "leaving out software.memory_time");
        }
        if !overlaps(Axis::Ep) || !job.schedule.pairs() || job.parallel.ep == 1 {
            let why = "no pass hides the expert-parallel communication of another";
            let used_by = "job.parallel.overlap with \"ep\", job.schedule=1f1b";
            idle.key("expert_sms", why, used_by);
        }
    }

    /// Software that costs nothing: what is left is kernels and links.
    pub fn none() -> Self {
        Self {
            per_step: Span::ZERO,
            tensor_exposed: Some(0.0),
            compute_slowdown: 0.0,
            collective: Span::ZERO,
            expert_sms: 0,
            ..Self::default()
        }
    }

    /// The factors of single kinds of kernels, with their keys.
    fn own_times(&self) -> [(&'static str, Option<f64>); 3] {
        [
            ("product_time", self.product_time),
            ("attention_time", self.attention_time),
            ("memory_time", self.memory_time),
        ]
    }

    /// How long kernels of a kind take, over those that were measured.
    pub fn time_of(&self, kind: KernelKind) -> f64 {
        let own = match kind {
            KernelKind::Product => self.product_time,
            KernelKind::Attention => self.attention_time,
            KernelKind::Memory => self.memory_time,
        };
        own.unwrap_or(self.kernel_time)
    }

    /// The share of a job's tensor-parallel communication that stays exposed.
    pub fn exposed_tensor(&self, job: &Job) -> f64 {
        const SPLITS: f64 = 4.0;
        let chunk = || f64::midpoint(1.0 / job.layout.tp.max(1) as f64, 1.0 / SPLITS);
        match job.parallel.overlap.contains(&Axis::Tp) {
            true => self.tensor_exposed.unwrap_or_else(chunk),
            false => 1.0,
        }
    }
}
