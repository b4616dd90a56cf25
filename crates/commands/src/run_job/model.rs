//! The model in figures: how large it is, part by part, and what a token costs.

use job::Job;
use job::model::Masking;
use report::number::{grouped, significant};
use report::{Align, Table};
use serde::Serialize;

/// The model of a job in figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelFigures {
    /// Parameters, without multi-token prediction.
    pub parameters: u64,
    /// The same by part: those that there are.
    pub parameters_of: Vec<Part>,
    /// Floating-point operations of a token, forward and backward.
    pub flops_per_token: FlopsPerToken,
    /// Layers of each stage, or virtual stage, in the order of the model.
    pub stage_layers: Vec<u64>,
}

/// A part of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What it is called.
    pub part: &'static str,
    /// Its parameters.
    pub parameters: u64,
}

/// Floating-point operations of a token, forward and backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlopsPerToken {
    /// With the attention that a causal mask leaves: what MFU is measured by.
    pub causal: u64,
    /// With attention between all positions, as Megatron-LM counts.
    pub full: u64,
    /// What the GPUs really do: causal, and what the backward pass computes again.
    pub with_recomputation: u64,
}

impl ModelFigures {
    pub(super) fn of(job: &Job) -> Self {
        let (model, length) = (&job.model, job.batch.length);
        let counted = model.parameters();
        let parts = [
            ("embedding", counted.embedding),
            ("attention", counted.attention),
            ("feed-forward", counted.mlp),
            ("routers", counted.router),
            ("experts", counted.experts),
            ("shared experts", counted.shared),
            ("norms", counted.norms),
            ("head", counted.head),
            ("vision encoder", counted.vision),
        ];
        let parts = parts.into_iter().filter(|(_, parameters)| 0 < *parameters);
        let again = model.hardware_flops(length, Masking::Causal, job.recompute);
        Self {
            stage_layers: job.stage_layers.clone(),
            parameters: counted.total(),
            parameters_of: parts.map(|(part, parameters)| Part { part, parameters }).collect(),
            flops_per_token: FlopsPerToken {
                causal: model.model_flops(length, Masking::Causal).total(),
                full: model.model_flops(length, Masking::Full).total(),
                with_recomputation: again.total(),
            },
        }
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new([("", Align::Left), ("", Align::Right)]);
        for Part { part, parameters } in &self.parameters_of {
            table.row([(*part).to_owned(), grouped(*parameters)]);
        }
        let gflops = |flops: u64| format!("{} GFLOP", significant(flops as f64 / 1e9));
        let FlopsPerToken { causal, full, with_recomputation } = self.flops_per_token;
        table.row(["parameters in all".to_owned(), grouped(self.parameters)]);
        table.row(["a token, causal attention".to_owned(), gflops(causal)]);
        table.row(["a token, attention in full".to_owned(), gflops(full)]);
        table.row(["a token, with recomputation".to_owned(), gflops(with_recomputation)]);
        table
    }
}

#[cfg(test)]
mod tests {
    use scenario::{Request, load};

    use super::*;

    /// Source: the safetensors index of Llama 3 8B has 8,030,261,248 parameters.
    #[test]
    fn parts_add_up_to_the_published_count() {
        let request = Request { scenario: Some("small-16".to_owned()), ..Request::default() };
        let loaded = load(&request).expect("it is in the binary");
        let figures = ModelFigures::of(loaded.job.as_ref().expect("it has a job"));
        assert_eq!(figures.parameters, 8_030_261_248);
        let parts = figures.parameters_of.iter().map(|part| part.parameters);
        assert_eq!(parts.sum::<u64>(), figures.parameters);
        let FlopsPerToken { causal, full, with_recomputation } = figures.flops_per_token;
        assert!(6 * 7_000_000_000 < causal && causal < full && causal <= with_recomputation);
    }
}
