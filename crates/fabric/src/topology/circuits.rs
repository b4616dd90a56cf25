//! A layer of optical circuits: direct light paths between spines of different pods.
//!
//! Each pod can hold so many circuits at once; which pods they join can be set anew, which takes
//! the time in the settings. Here the circuits of one setting are cables between spines; a later
//! setting is another [`CircuitsConfig`]. Circuits bypass the cores, which may be left out
//! (`cores = 0`). Sources: the layer between pods of Jupiter (Poutievski et al., SIGCOMM 2022) and
//! TPU v4 (Jouppi et al., ISCA 2023), without their engineering.

use units::Rate;

use super::error::Errors;
use super::settings::CircuitsConfig;
use super::sizing::Inputs;
use crate::graph::{FabricBuilder, LinkClass, LinkKind, NodeId};

/// The pairs of pods to join, each as often as it has circuits.
pub(crate) fn pairs(
    config: &CircuitsConfig,
    pods: usize,
    inputs: &Inputs<'_>,
    errors: &mut Errors,
) -> Vec<(usize, usize)> {
    let path = inputs.at("circuits");
    if pods < 2 {
        errors.push(&path, "circuits join pods, and there is one".to_owned(), "pods = 4");
        return Vec::new();
    }
    let mut held = vec![0_u32; pods];
    let mut made = Vec::new();
    for &[a, b] in &config.pairs {
        let (a, b) = (a as usize, b as usize);
        if pods <= a.max(b) || a == b {
            let last = pods - 1;
            let reason = format!("pods {a} and {b} cannot be joined: there are pods 0 to {last}");
            errors.push(&format!("{path}.pairs"), reason, "");
            continue;
        }
        held[a] += 1;
        held[b] += 1;
        made.push((a.min(b), a.max(b)));
    }
    if config.pairs.is_empty() {
        // To pods further and further ahead in their circle, as long as both have room, and again.
        loop {
            let before = made.len();
            for ahead in 1..=pods / 2 {
                for a in (0..pods).filter(|a| 2 * ahead != pods || *a < ahead) {
                    let b = (a + ahead) % pods;
                    if held[a].max(held[b]) < config.per_pod {
                        held[a] += 1;
                        held[b] += 1;
                        made.push((a.min(b), a.max(b)));
                    }
                }
            }
            if made.len() == before {
                break;
            }
        }
    }
    if let Some(pod) = held.iter().position(|held| config.per_pod < *held) {
        let reason = format!("pod {pod} would hold {} circuits of {}", held[pod], config.per_pod);
        errors.push(&format!("{path}.pairs"), reason, &format!("per_pod = {}", held[pod]));
    }
    made
}

/// Adds the circuits, dealt over the spines of each pod in turn.
pub(crate) fn wire(
    config: &CircuitsConfig,
    pairs: &[(usize, usize)],
    spines: &[Vec<NodeId>],
    usual_rate: Rate,
    builder: &mut FabricBuilder,
) {
    let class = builder.class(LinkClass {
        name: "circuit".to_owned(),
        kind: LinkKind::Circuit,
        rate: config.rate.unwrap_or(usual_rate),
        delay: config.length.propagation(),
        length: config.length,
    });
    let mut next = vec![0; spines.len()];
    for &(a, b) in pairs {
        let mut end = |pod: usize| {
            let spine = spines[pod][next[pod] % spines[pod].len()];
            next[pod] += 1;
            spine
        };
        let (from, to) = (end(a), end(b));
        builder.cable(from, to, class);
    }
}
