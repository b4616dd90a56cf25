//! Copy engines: all-gather and all-to-all inside a scale-up domain without any SM.
//!
//! Every rank's copy engines write its part into the others' windows; before and after, ranks tell
//! each other through memory that they are ready. Kernels that compute keep all SMs.
//!
//! Source: NCCL `src/ce_coll.cc` (2.28 and later, with `NCCL_CTA_POLICY_ZERO` and symmetric
//! windows; it also scatters and gathers). NCCL has no cost model for it and takes it wherever it
//! can run. Departure: its two rounds of telling each other take what the table has for a hand-over
//! of the simple protocol, and copies reach what kernels reach of the links.

use fabric::NodeId;
use units::Bytes;

use super::communicator::ScaleUp;
use super::writer::{Sheet, nth};
use super::{Algorithm, Ask, Collective, Phase};
use crate::nccl::{Family, Offer, Plan, Protocol, Usage, Version, constants};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct CopyEngine;

impl Algorithm for CopyEngine {
    fn name(&self) -> &'static str {
        "copy-engine"
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let (shape, settings) = (ask.shape(), ask.settings);
        settings.copy_engine == Usage::Enabled
            && settings.symmetric == Usage::Enabled
            && Version::V2_28 <= settings.version
            && shape.domains == 1
            && shape.scale_up == ScaleUp::Switched
            && ask.weights.is_empty()
            && matches!(ask.collective, Collective::AllGather | Collective::AllToAll)
    }

    fn offer(&self, _: &Ask<'_>, protocol: Protocol) -> Option<Offer> {
        // It is taken wherever it can run.
        let simple = protocol == Protocol::Simple;
        simple.then_some(Offer { bandwidth: f64::INFINITY, latency_us: 0.0 })
    }

    fn channels(&self, _: &Ask<'_>) -> u32 {
        1
    }

    fn chunk(&self, ask: &Ask<'_>, _: Protocol, _: u32) -> Bytes {
        ask.bytes
    }

    fn phases(&self, ask: &Ask<'_>, _: &Plan) -> Vec<Phase> {
        let (shape, settings) = (ask.shape(), ask.settings);
        let ranks = f64::from(shape.ranks);
        let hop = constants::hop_latency_us(settings, shape, Family::Ring, Protocol::Simple);
        vec![Phase {
            scale_up: ask.bytes.as_f64() * (ranks - 1.0) / ranks,
            latency_s: 2e-6 * hop,
            ..Phase::default()
        }]
    }

    fn operations(&self, ask: &Ask<'_>, _: &Plan) -> f64 {
        f64::from(ask.shape().ranks).powi(2)
    }

    fn write(&self, ask: &Ask<'_>, _: &Plan, sheet: &mut Sheet<'_>) {
        let gpus: Vec<NodeId> =
            (0..ask.shape().ranks).map(|rank| ask.communicator.gpu(rank)).collect();
        let first = sheet.open("copy-engine", 1, |opening| {
            for (at, &from) in gpus.iter().enumerate() {
                for (other, &to) in gpus.iter().enumerate() {
                    if at != other {
                        opening.connect(from, to, 0);
                    }
                }
            }
        });
        let start = sheet.start;
        let mut at = 0;
        for from in 0..ask.shape().ranks {
            for to in (0..ask.shape().ranks).filter(|to| *to != from) {
                let bytes = match ask.collective {
                    Collective::AllToAll => ask.bytes_to(to),
                    _ => ask.bytes_to(from),
                };
                let op = sheet.send(nth(first, at), bytes, &[start]);
                sheet.end(op);
                at += 1;
            }
        }
    }
}
