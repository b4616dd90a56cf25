//! Small clusters for the tests: servers with a scale-up network, NICs on leaves, spines above.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part")]

use fabric::graph::{Cover, LinkKind, Tier};
use fabric::{Fabric, FabricBuilder, LinkClass, NodeId};
use traffic::collective::{Ask, Communicator, Detail, Group, Request, write};
use traffic::nccl::{Settings, plan};
use traffic::{Collective, Connection, OpKind, Transfers};
use units::{Bytes, Id, Length, Rate, Span};

/// How the GPUs of a server hang together.
#[derive(Clone, Copy, Debug)]
pub enum ScaleUp {
    Absent,
    Switch(Rate),
    Mesh(Rate),
}

#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    pub servers: usize,
    pub gpus: usize,
    pub nics: usize,
    pub scale_up: ScaleUp,
    pub nic_rate: Rate,
    pub switch_latency: Span,
    pub link_delay: Span,
    /// Of a link between leaf and spine; the NICs' without it.
    pub trunk_rate: Option<Rate>,
    /// Servers under one set of leaves.
    pub servers_per_leaf: usize,
}

impl Cluster {
    pub fn hopper(servers: usize) -> Self {
        Self {
            servers,
            gpus: 8,
            nics: 8,
            scale_up: ScaleUp::Switch(Rate::from_gbps(3600)),
            nic_rate: Rate::from_gbps(400),
            switch_latency: Span::from_ns(300),
            link_delay: Span::from_ns(25),
            trunk_rate: None,
            servers_per_leaf: 32,
        }
    }

    /// Rail-optimised: NIC `r` of each server hangs on leaf `r` of its group; four spines.
    pub fn build(self) -> Fabric {
        let mut builder = FabricBuilder::new(self.servers, self.gpus, self.nics);
        let tier = |name: &str| Tier {
            name: name.into(),
            model: "test".into(),
            latency: self.switch_latency,
        };
        let (leaf, spine) = (builder.tier(tier("leaf")), builder.tier(tier("spine")));
        let mut class = |name: &str, kind: LinkKind, rate: Rate| {
            let (delay, length) = (self.link_delay, Length::from_metres(5));
            builder.class(LinkClass { name: name.into(), kind, rate, delay, length })
        };
        let up_rate = match self.scale_up {
            ScaleUp::Absent => Rate::from_gbps(1),
            ScaleUp::Switch(rate) | ScaleUp::Mesh(rate) => rate,
        };
        let inside = class("scale-up", LinkKind::ScaleUp, up_rate);
        let host = class("NIC – leaf", LinkKind::ScaleOut, self.nic_rate);
        let trunk_rate = self.trunk_rate.unwrap_or(self.nic_rate);
        let trunk = class("leaf – spine", LinkKind::ScaleOut, trunk_rate);
        for server in 0..self.servers {
            let gpu = |builder: &FabricBuilder, at: usize| builder.gpu(server * self.gpus + at);
            match self.scale_up {
                ScaleUp::Absent => {}
                ScaleUp::Switch(_) => {
                    let switch = builder.scale_up_switch(server);
                    for at in 0..self.gpus {
                        let gpu = gpu(&builder, at);
                        builder.cable(gpu, switch, inside);
                    }
                }
                ScaleUp::Mesh(_) => {
                    for a in 0..self.gpus {
                        for b in a + 1..self.gpus {
                            let (a, b) = (gpu(&builder, a), gpu(&builder, b));
                            builder.cable(a, b, inside);
                        }
                    }
                }
            }
        }
        let groups = self.servers.div_ceil(self.servers_per_leaf);
        let leaves = groups * self.nics;
        let mut leaf_ids = Vec::new();
        for at in 0..leaves {
            let cover = Cover { level: 0, first: at as u32, end: at as u32 + 1 };
            leaf_ids.push(builder.switch(leaf, 0, at, cover));
        }
        for at in 0..4 {
            let cover = Cover { level: 1, first: 0, end: leaves as u32 };
            let id = builder.switch(spine, 0, at, cover);
            for &leaf in &leaf_ids {
                builder.cable(leaf, id, trunk);
            }
        }
        for server in 0..self.servers {
            for rail in 0..self.nics {
                let nic = builder.nic(server * self.nics + rail);
                let leaf = leaf_ids[server / self.servers_per_leaf * self.nics + rail];
                builder.cable(nic, leaf, host);
            }
        }
        builder.build()
    }
}

pub fn all_gpus(fabric: &Fabric) -> Vec<NodeId> {
    (0..fabric.gpus()).map(|at| fabric.gpu(at)).collect()
}

/// Writes one collective and returns what was written.
pub fn written(
    fabric: &Fabric,
    communicator: &Communicator,
    collective: Collective,
    bytes: u64,
    settings: &Settings,
    detail: Detail,
) -> Transfers {
    let bytes = Bytes::new(bytes);
    let ask = Ask { fabric, communicator, collective, bytes, settings, weights: &[] };
    let plan = plan(&ask).expect("something runs it");
    let mut transfers = Transfers::new();
    let label = transfers.label("test");
    let mut group = Group::new(communicator.clone());
    let request = Request { collective, bytes, detail, label, settings, plan: &plan, weights: &[] };
    write(fabric, &mut group, &request, &mut transfers, &[]);
    transfers
}

/// Bytes on each connection, added up by (from, to, channel).
pub fn bytes_by_connection(transfers: &Transfers) -> Vec<(Connection, u64)> {
    let mut bytes = vec![0_u64; transfers.connections().len()];
    for op in transfers.ops() {
        match &op.kind {
            OpKind::Send { connection, bytes: sent } => bytes[connection.index()] += sent.get(),
            OpKind::Coupled { edges, bytes: sent, .. } => {
                for edge in transfers.coupled(edges) {
                    bytes[edge.index()] += sent.get();
                }
            }
            OpKind::Together { messages } => {
                for (connection, sent) in transfers.messages(messages) {
                    bytes[connection.index()] += sent.get();
                }
            }
            OpKind::Wait { .. } => {}
        }
    }
    transfers.connections().iter().copied().zip(bytes).collect()
}

/// Bytes that leave and that reach each node, in order of node ids.
pub fn sent_and_received(fabric: &Fabric, transfers: &Transfers) -> (Vec<u64>, Vec<u64>) {
    let nodes = fabric.nodes().len();
    let (mut sent, mut received) = (vec![0; nodes], vec![0; nodes]);
    for (connection, bytes) in bytes_by_connection(transfers) {
        sent[connection.from.index()] += bytes;
        received[connection.to.index()] += bytes;
    }
    (sent, received)
}
