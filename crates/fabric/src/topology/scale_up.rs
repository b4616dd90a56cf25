//! The network between the GPUs of one domain: a server, or more than one (NVL72).
//!
//! * Switched: every GPU has one link, at its whole rate, to the switch of its domain. The
//!   NVSwitches of a domain work as one: they are joined with every GPU alike and never block.
//! * Mesh (xGMI): a link between each pair of GPUs, each with an equal share of a GPU's rate.
//! * PCIe: every GPU on the host's PCIe switch, at the rate of its slot.

use units::{Id, Length, Rate};

use super::cluster::ScaleUp;
use crate::graph::{FabricBuilder, LinkClass, LinkKind, NodeId};
use crate::hardware::ScaleUpKind;

pub(crate) fn wire(scale_up: &ScaleUp, gpus: usize, builder: &mut FabricBuilder) {
    builder.scale_up_domain(scale_up.domain, &scale_up.name);
    if scale_up.domain < 2 || gpus < 2 {
        return;
    }
    let (name, rate) = match scale_up.kind {
        ScaleUpKind::Switched | ScaleUpKind::Pcie => {
            (format!("GPU – {}", scale_up.name), scale_up.rate)
        }
        ScaleUpKind::Mesh => {
            let share = scale_up.rate.as_bps() / (scale_up.domain as u64 - 1);
            ("GPU – GPU".to_owned(), Rate::from_bps(share.max(1)))
        }
    };
    let class = builder.class(LinkClass {
        name,
        kind: LinkKind::ScaleUp,
        rate,
        delay: scale_up.delay,
        length: Length::ZERO,
    });
    for domain in 0..gpus.div_ceil(scale_up.domain) {
        let first = domain * scale_up.domain;
        let members: Vec<NodeId> =
            (first..(first + scale_up.domain).min(gpus)).map(NodeId::from_index).collect();
        match scale_up.kind {
            ScaleUpKind::Switched | ScaleUpKind::Pcie => {
                let switch = builder.scale_up_switch(domain);
                for gpu in members {
                    builder.cable(gpu, switch, class);
                }
            }
            ScaleUpKind::Mesh => {
                for (at, gpu) in members.iter().enumerate() {
                    for peer in &members[at + 1..] {
                        builder.cable(*gpu, *peer, class);
                    }
                }
            }
        }
    }
}
