//! Kernels that compute and kernels that communicate: how long, and what hides what.

use std::collections::BTreeMap;

use crate::observed::{KernelTimes, Step, Trace};

/// What a kernel does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Does {
    /// Communicates.
    Communication,
    /// Multiplies matrices.
    Product,
    /// Attention.
    Attention,
    /// Anything else: its time is the bytes that it moves.
    Memory,
}

impl Does {
    /// What a kernel that does not communicate does, by its name: those of cuBLAS, CUTLASS,
    /// Tensile, FlashAttention, cuDNN, Triton and XLA.
    pub(super) fn computes(name: &str) -> Self {
        const ATTENTION: [&str; 6] = ["flash", "fmha", "attention", "attn", "sdpa", "_mla_"];
        const PRODUCTS: [&str; 10] = [
            "gemm",
            "nvjet",
            "cutlass",
            "cijk_",
            "xmma",
            "matmul",
            "grouped_mm",
            "splitk",
            "gemv",
            "wgrad",
        ];
        let end = name.char_indices().nth(256).map_or(name.len(), |(at, _)| at);
        let lower = name[..end].to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        match () {
            () if has(&ATTENTION) => Self::Attention,
            () if has(&PRODUCTS) => Self::Product,
            () => Self::Memory,
        }
    }
}

/// Kernels of one rank.
#[derive(Debug, Default)]
pub(super) struct Spans {
    compute: Vec<(f64, f64)>,
    communication: Vec<(f64, f64)>,
    /// Products, attention, and the rest.
    kinds: [Vec<(f64, f64)>; 3],
    /// Communication of process groups.
    groups: BTreeMap<String, Vec<(f64, f64)>>,
    /// Steps: their number, beginning and end.
    pub steps: Vec<(u64, f64, f64)>,
    first: Option<f64>,
    last: f64,
}

impl Spans {
    /// Any event, for the span of the whole.
    pub(super) fn event(&mut self, start: f64, end: f64) {
        self.first = Some(self.first.map_or(start, |first| first.min(start)));
        self.last = self.last.max(end);
    }

    pub(super) fn kernel(&mut self, start: f64, end: f64, does: Does) {
        self.event(start, end);
        let kind = match does {
            Does::Communication => return self.communication.push((start, end)),
            Does::Product => 0,
            Does::Attention => 1,
            Does::Memory => 2,
        };
        self.compute.push((start, end));
        self.kinds[kind].push((start, end));
    }

    /// Says of a kernel that communicates for which group it does.
    pub(super) fn of_group(&mut self, group: &str, start: f64, end: f64) {
        match self.groups.get_mut(group) {
            Some(spans) => spans.push((start, end)),
            None => drop(self.groups.insert(group.to_owned(), vec![(start, end)])),
        }
    }

    /// Sums up: the trace, and its steps.
    pub(super) fn finish(mut self, file: &str, rank: Option<u32>) -> (Trace, Vec<Step>) {
        let kernels = (self.compute.len() + self.communication.len()) as u64;
        let collectives = self.communication.len() as u64;
        let compute = merged(&mut self.compute);
        let communication = merged(&mut self.communication);
        let exposed = without(&communication, &compute);
        let kinds = self.kinds.each_mut().map(|spans| merged(spans));
        let times = |from: f64, to: f64| {
            let [product_s, attention_s, memory_s] =
                kinds.each_ref().map(|spans| total(spans, from, to) * 1e-6);
            KernelTimes { product_s, attention_s, memory_s }
        };
        let groups: Vec<_> = std::mem::take(&mut self.groups)
            .into_iter()
            .map(|(name, mut spans)| {
                let all = merged(&mut spans);
                let exposed = without(&all, &compute);
                (name, all, exposed)
            })
            .collect();
        let by_group = |from: f64, to: f64| {
            let of = |spans: &[(f64, f64)]| total(spans, from, to) * 1e-6;
            groups.iter().map(|(name, all, bare)| (name.clone(), [of(all), of(bare)])).collect()
        };
        let all = |spans: &[(f64, f64)]| total(spans, f64::NEG_INFINITY, f64::INFINITY) * 1e-6;
        let step = |(number, start, end): &(u64, f64, f64)| Step {
            rank,
            number: *number,
            seconds: (end - start) * 1e-6,
            compute_s: Some(total(&compute, *start, *end) * 1e-6),
            communication_s: Some(total(&communication, *start, *end) * 1e-6),
            exposed_s: Some(total(&exposed, *start, *end) * 1e-6),
            kernels: Some(times(*start, *end)),
            groups: by_group(*start, *end),
        };
        let steps = match kernels {
            0 => Vec::new(),
            _ => self.steps.iter().map(step).collect(),
        };
        let trace = Trace {
            file: file.to_owned(),
            rank,
            span_s: self.first.map_or(0.0, |first| (self.last - first) * 1e-6),
            kernels,
            collectives,
            calls: 0,
            compute_s: all(&compute),
            communication_s: all(&communication),
            exposed_s: all(&exposed),
            computing: times(f64::NEG_INFINITY, f64::INFINITY),
        };
        (trace, steps)
    }
}

/// Spans in order, those that touch as one.
fn merged(spans: &mut [(f64, f64)]) -> Vec<(f64, f64)> {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<(f64, f64)> = Vec::new();
    for (start, end) in spans.iter().copied() {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// What of `spans` lies outside `others`; both in order.
fn without(spans: &[(f64, f64)], others: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut left = Vec::new();
    let mut first = 0;
    for (start, end) in spans.iter().copied() {
        let mut at = start;
        while others.get(first).is_some_and(|other| other.1 <= start) {
            first += 1;
        }
        for other in others[first..].iter().take_while(|other| other.0 < end) {
            if at < other.0 {
                left.push((at, other.0));
            }
            at = at.max(other.1);
        }
        if at < end {
            left.push((at, end));
        }
    }
    left
}

/// How much of `spans` lies between two times.
fn total(spans: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let begin = spans.partition_point(|span| span.1 <= from);
    let inside = spans[begin..].iter().take_while(|span| span.0 < to);
    inside.fold(0.0, |sum, span| sum + span.1.min(to) - span.0.max(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: by hand. Collectives at 0 to 10 and 20 to 30, kernels at 5 to 8 and 25 to 40.
    #[test]
    fn what_kernels_hide_is_not_exposed() {
        let mut spans = Spans::default();
        for (start, end) in [(20.0, 30.0), (0.0, 10.0)] {
            spans.kernel(start, end, Does::Communication);
            spans.of_group("0", start, end);
        }
        for (start, end, does) in
            [(25.0, 40.0, Does::Memory), (5.0, 7.0, Does::Product), (6.0, 8.0, Does::Attention)]
        {
            spans.kernel(start, end, does);
        }
        spans.steps.push((7, 0.0, 20.0));
        let (trace, steps) = spans.finish("it", Some(3));
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(trace.span_s, 40e-6) && close(trace.compute_s, 18e-6), "{trace:?}");
        assert!(close(trace.communication_s, 20e-6) && close(trace.exposed_s, 12e-6), "{trace:?}");
        assert_eq!((steps[0].number, steps[0].rank), (7, Some(3)));
        assert!(close(steps[0].exposed_s.unwrap(), 7e-6), "{steps:?}");
        let [all, exposed] = steps[0].groups["0"];
        assert!(close(all, 10e-6) && close(exposed, 7e-6), "{steps:?}");
        let KernelTimes { product_s, attention_s, memory_s } = trace.computing;
        assert!(close(product_s, 2e-6) && close(attention_s, 2e-6), "{trace:?}");
        assert!(close(memory_s, 15e-6), "{trace:?}");
    }

    #[test]
    fn kernels_are_known_by_their_names() {
        let known = [
            ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", Does::Product),
            ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", Does::Product),
            ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>", Does::Product),
            ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", Does::Product),
            ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", Does::Attention),
            ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", Does::Attention),
            ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma", Does::Attention),
            ("void at::native::vectorized_elementwise_kernel<4>", Does::Memory),
            ("triton_poi_fused_add_mul_0", Does::Memory),
        ];
        for (name, does) in known {
            assert_eq!(Does::computes(name), does, "{name}");
        }
    }
}
