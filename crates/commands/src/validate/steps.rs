//! Published training steps.

use fabric::Fabric;
use fabric::hardware::Catalogue;
use fabric::transport::Transport;
use job::config::ModelChoice;
use step::predict::Assumptions;
use step::published::{Measured, Publication, Row, RowCluster};
use step::validate::{Fit, RowEngine, predict_row, routing_of};
use traffic::Transfers;
use traffic::nccl::Architecture;

use super::Case;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::interval::Class;

/// Predicts a row. The packet engine has no place here: a row's phases are whole clusters.
pub(super) fn predict(
    row: &Row,
    catalogue: &Catalogue,
    engine: Engine,
    assumptions: &Assumptions,
) -> Result<Case, Failure> {
    let mut flow = |cluster: &RowCluster, fabric: &Fabric, transfers: &Transfers| {
        let routing = routing_of(cluster);
        let settings = flowsim::Settings { routing, ..flowsim::Settings::default() };
        Ok(flowsim::run(fabric, transfers, &settings))
    };
    let flow: &mut RowEngine<'_> = &mut flow;
    let engine = engine.has_contention().then_some(flow);
    let verdict = predict_row(row, catalogue, assumptions, engine).map_err(Failure::Run)?;
    let (measured, predicted) = row.compare(verdict.step_s());
    let unit = match row.measured {
        Measured::Seconds(_) => "s",
        Measured::Tflops(_) => "TFLOP/s",
    };
    let mut notes = Vec::new();
    if row.microbatch == Publication::Chosen {
        notes.push(format!("microbatch {}", verdict.chosen.batch.micro));
    }
    if row.virtual_stages == Publication::Chosen && 1 < verdict.chosen.parallel.vpp {
        notes.push(format!("{} virtual stages", verdict.chosen.parallel.vpp));
    }
    if !notes.is_empty() {
        notes.push("chosen".to_owned());
    }
    if row.job.schedule != verdict.chosen.schedule && 1 < row.job.parallel.vpp {
        notes.push("without interleaving".to_owned());
    }
    if let (Some(other), Some(dp)) = (row.other_dp, row.job.parallel.dp) {
        notes.push(format!("dp {dp} by the GPUs, not {other}"));
    }
    if row.cluster.nics == Publication::Chosen {
        notes.push(format!("NICs of {} Gb/s assumed", row.cluster.nic_gbps));
    }
    if row.cluster.transport.is_none() && row.cluster.gpus_per_node < row.cluster.gpus {
        notes.push("transport unpublished".to_owned());
    }
    if row.cluster.queue_pairs.is_none() && row.cluster.transport == Some(Transport::Rocev2) {
        notes.push("queue pairs unpublished".to_owned());
    }
    if row.has_experts() {
        notes.push("middle of what the software may have done".to_owned());
    }
    if verdict.is_extrapolated {
        notes.push("kernels by data sheets".to_owned());
    }
    if verdict.fit == Fit::Overfull {
        notes.push("over the memory estimate".to_owned());
    }
    let (low, high) = (row.compare(verdict.spread_s.0).1, row.compare(verdict.spread_s.1).1);
    let gpu = catalogue.gpu.get(&row.cluster.gpu);
    let architecture = gpu.and_then(|gpu| Architecture::of_scale_up(&gpu.scale_up_name));
    let ModelChoice::Shape(model) = &row.job.model else {
        return Err(Failure::Run("a row has its model's shape".to_owned()));
    };
    Ok(Case {
        note: notes.join(", "),
        source: row.source.clone(),
        cluster: row.origin.clone(),
        exposed: Some(verdict.prediction.exposed_communication()),
        class: Some(Class::of_step(architecture, model, row.job.precision)),
        is_extrapolated: verdict.is_extrapolated,
        spread: Some((low.min(high), low.max(high))).filter(|(low, high)| low < high),
        ..Case::new(&row.id, measured, predicted, unit)
    })
}
