//! Folded Clos networks of one, two or three tiers: what most families are made of.
//!
//! A [`Folded`] says how many switches there are and how they are joined; [`Folded::wire`] makes
//! nodes and cables of it. Leaves are grouped into pods. Each leaf spreads its uplinks over the
//! spines of its pod; where they do not divide evenly, the odd ones rotate from leaf to leaf, so
//! that spines stay balanced. Spines are dealt into groups, and each group has cores of its own
//! (as many groups as spines make a fat tree, one group makes every spine meet every core).
//!
//! As long as every leaf reaches every spine of its pod, and every spine every core of its group,
//! next hops follow from the structure. Otherwise the switches are marked as having none.

use units::{Id, Length, Rate, Span};

use super::circuits;
use super::cluster::Members;
use super::error::Errors;
use super::family::Network;
use super::sizing::Inputs;
use crate::graph::{ClassId, Cover, FabricBuilder, LinkClass, LinkKind, NetworkKind, NodeId, Tier};

/// How endpoints are attached to leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wiring {
    /// So many consecutive NICs on each leaf: all NICs of a server on one leaf, if they fit.
    Rack(usize),
    /// So many servers share a set of leaves, one for each rail.
    Rails(usize),
}

/// What the ports of one NIC are connected to, within one network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cables {
    /// So many cables to one leaf.
    Bonded(usize),
    /// One cable to each of so many neighbouring leaves.
    Spread(usize),
}

impl Cables {
    /// Cables from a NIC to one of its leaves.
    pub(crate) fn per_leaf(self) -> usize {
        match self {
            Self::Bonded(cables) => cables,
            Self::Spread(_) => 1,
        }
    }

    /// Leaves that a NIC is on.
    pub(crate) fn leaves(self) -> usize {
        match self {
            Self::Bonded(_) => 1,
            Self::Spread(leaves) => leaves,
        }
    }
}

/// How the switches of a network are numbered for people.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Numbering {
    /// By pod; within a pod, those of this plane after those of the planes before it.
    Pods {
        /// Which plane this is.
        plane: usize,
    },
    /// The whole network is one zone.
    Zone(usize),
}

/// A folded Clos network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Folded {
    pub(crate) members: Members,
    pub(crate) wiring: Wiring,
    pub(crate) cables: Cables,
    /// Leaves of a full pod; the last pod may have fewer.
    pub(crate) leaves_per_pod: usize,
    /// Cables from a leaf to the spines of its pod.
    pub(crate) uplinks: usize,
    /// Spines of a pod; none in a network of one tier.
    pub(crate) spines: usize,
    /// Cables from a spine to the cores of its group.
    pub(crate) spine_uplinks: usize,
    /// Cores of a group; none in a network of two tiers.
    pub(crate) cores: usize,
    /// Groups that spines and cores are dealt into.
    pub(crate) groups: usize,
    pub(crate) numbering: Numbering,
    /// Whether circuits join its pods sideways.
    pub(crate) has_circuits: bool,
}

/// A layer of switches and the cables below it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) name: String,
    pub(crate) model: String,
    pub(crate) latency: Span,
    pub(crate) rate: Rate,
    pub(crate) delay: Span,
    pub(crate) length: Length,
    /// How far all pods but the first are, where pods are sites.
    pub(crate) far: Option<Length>,
    /// Capacity below over capacity above, as it was meant; none where uplinks were counted.
    pub(crate) oversubscription: Option<f64>,
}

/// Equal networks side by side (planes, rails), with the layers that they have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) kind: NetworkKind,
    pub(crate) zone_word: String,
    pub(crate) levels: Vec<Level>,
    pub(crate) networks: Vec<Folded>,
}

impl Folded {
    /// How many leaves there are.
    pub(crate) fn leaves(&self) -> usize {
        let units = match self.wiring {
            Wiring::Rack(down) => self.members.len().div_ceil(down),
            Wiring::Rails(segment) => {
                self.members.servers.len().div_ceil(segment) * self.members.rails.len()
            }
        };
        units * self.cables.leaves()
    }

    /// How many pods there are.
    pub(crate) fn pods(&self) -> usize {
        self.leaves().div_ceil(self.leaves_per_pod)
    }

    /// Switches of all tiers, bottom up.
    pub(crate) fn switches(&self) -> [usize; 3] {
        [self.leaves(), self.pods() * self.spines, self.groups * self.cores]
    }

    /// How many cables there will be; as a float, since it may be absurd.
    pub(crate) fn expected_cables(&self) -> f64 {
        let [leaves, spines, _] = self.switches().map(|switches| switches as f64);
        let ports = self.cables.leaves() * self.cables.per_leaf();
        (self.members.len() * ports) as f64
            + leaves * self.uplinks as f64
            + spines * self.spine_uplinks as f64
    }

    /// Whether next hops follow from the structure.
    pub(crate) fn is_regular(&self) -> bool {
        self.spines <= self.uplinks && self.cores <= self.spine_uplinks && !self.has_circuits
    }

    /// The members on a unit of leaves: one leaf, or those that a NIC is spread over.
    fn attached(&self, unit: usize) -> impl Iterator<Item = NodeId> + '_ {
        let rails = self.members.rails.len();
        let (first, end, step) = match self.wiring {
            Wiring::Rack(down) => (unit * down, ((unit + 1) * down).min(self.members.len()), 1),
            Wiring::Rails(segment) => {
                let first = unit / rails * segment;
                let end = (first + segment).min(self.members.servers.len());
                (first * rails + unit % rails, end * rails, rails)
            }
        };
        (first..end).step_by(step).map(move |at| self.members.node(at / rails, at % rails))
    }

    /// Adds the switches and cables. `first_leaf` is the ordinal of the first leaf; the ordinal
    /// after the last one comes back.
    fn wire(&self, builder: &mut FabricBuilder, layers: &Layers, first_leaf: usize) -> usize {
        let leaves = self.add_leaves(builder, layers, first_leaf);
        if 0 < self.spines {
            let spines = self.add_spines(builder, layers, first_leaf, &leaves);
            if 0 < self.cores {
                self.add_cores(builder, layers, first_leaf, &spines);
            }
        }
        first_leaf + leaves.len()
    }

    fn add_leaves(&self, builder: &mut FabricBuilder, layers: &Layers, base: usize) -> Vec<NodeId> {
        let leaves: Vec<NodeId> = (0..self.leaves())
            .map(|leaf| {
                let (pod, within) = (leaf / self.leaves_per_pod, leaf % self.leaves_per_pod);
                let (zone, index) = match self.numbering {
                    Numbering::Pods { plane } => (pod, plane * self.leaves_per_pod + within),
                    Numbering::Zone(zone) => (zone, leaf),
                };
                let cover = cover(0, base + leaf, base + leaf + 1);
                self.add_switch(builder, layers.tiers[0], zone, index, cover)
            })
            .collect();
        let spread = self.cables.leaves();
        for unit in 0..leaves.len() / spread {
            for leaf in &leaves[unit * spread..(unit + 1) * spread] {
                for endpoint in self.attached(unit) {
                    for _ in 0..self.cables.per_leaf() {
                        builder.cable(endpoint, *leaf, layers.classes[0]);
                    }
                }
            }
        }
        leaves
    }

    fn add_spines(
        &self,
        builder: &mut FabricBuilder,
        layers: &Layers,
        base: usize,
        leaves: &[NodeId],
    ) -> Vec<NodeId> {
        let mut spines = Vec::with_capacity(self.pods() * self.spines);
        for pod in 0..self.pods() {
            let first = pod * self.leaves_per_pod;
            let end = (first + self.leaves_per_pod).min(leaves.len());
            for spine in 0..self.spines {
                let (zone, index) = match self.numbering {
                    Numbering::Pods { plane } => (pod, plane * self.spines + spine),
                    Numbering::Zone(zone) => (zone, pod * self.spines + spine),
                };
                let cover = cover(1, base + first, base + end);
                spines.push(self.add_switch(builder, layers.tiers[1], zone, index, cover));
            }
            let above = &spines[pod * self.spines..];
            for (at, leaf) in leaves[first..end].iter().enumerate() {
                for spine in spread_over(self.uplinks, self.spines, at) {
                    builder.cable(*leaf, above[spine], layers.classes[1]);
                }
            }
        }
        spines
    }

    fn add_cores(
        &self,
        builder: &mut FabricBuilder,
        layers: &Layers,
        base: usize,
        spines: &[NodeId],
    ) {
        let cores: Vec<NodeId> = (0..self.groups * self.cores)
            .map(|core| {
                let (zone, index) = match self.numbering {
                    Numbering::Pods { plane } => (0, plane * self.groups * self.cores + core),
                    Numbering::Zone(zone) => (zone, core),
                };
                let cover = cover(2, base, base + self.leaves());
                self.add_switch(builder, layers.tiers[2], zone, index, cover)
            })
            .collect();
        for (at, spine) in spines.iter().enumerate() {
            let group = at % self.spines % self.groups;
            let above = &cores[group * self.cores..(group + 1) * self.cores];
            for core in spread_over(self.spine_uplinks, self.cores, at / self.groups) {
                let is_far = self.spines <= at;
                let class = layers.far.filter(|_| is_far).unwrap_or(layers.classes[2]);
                builder.cable(*spine, above[core], class);
            }
        }
    }

    fn add_switch(
        &self,
        builder: &mut FabricBuilder,
        tier: u8,
        zone: usize,
        index: usize,
        cover: Cover,
    ) -> NodeId {
        if self.is_regular() {
            builder.switch(tier, zone, index, cover)
        } else {
            builder.plain_switch(tier, zone, index)
        }
    }
}

/// The tiers and classes of a plan, as the builder numbered them.
struct Layers {
    tiers: Vec<u8>,
    classes: Vec<ClassId>,
    /// The cables from other sites.
    far: Option<ClassId>,
}

impl Plan {
    /// Adds everything to the builder. `first_leaf` is the ordinal of the first leaf; the ordinal
    /// after the last one comes back.
    pub(crate) fn wire(&self, builder: &mut FabricBuilder, first_leaf: usize) -> usize {
        builder.network(&self.name, self.kind, &self.zone_word);
        let kind = match self.kind {
            NetworkKind::BackEnd => LinkKind::ScaleOut,
            NetworkKind::FrontEnd => LinkKind::FrontEnd,
        };
        let mut layers = Layers { tiers: Vec::new(), classes: Vec::new(), far: None };
        let mut below = match self.kind {
            NetworkKind::BackEnd => "NIC",
            NetworkKind::FrontEnd => "front-end NIC",
        };
        for level in &self.levels {
            let Level { name, model, latency, rate, delay, length, far, oversubscription } = level;
            let tier = Tier { name: name.clone(), model: model.clone(), latency: *latency };
            layers.tiers.push(builder.tier(tier));
            if let Some(ratio) = oversubscription {
                builder.designed_oversubscription(*ratio);
            }
            let class = format!("{below} – {name}");
            let (rate, delay, length) = (*rate, *delay, *length);
            if let Some(length) = *far {
                let (name, delay) = (format!("{class} of another site"), length.propagation());
                layers.far = Some(builder.class(LinkClass { name, kind, rate, delay, length }));
            }
            layers.classes.push(builder.class(LinkClass {
                name: class,
                kind,
                rate,
                delay,
                length,
            }));
            below = name;
        }
        let wire = |leaf, network: &Folded| network.wire(builder, &layers, leaf);
        self.networks.iter().fold(first_leaf, wire)
    }
}

impl Network for Plan {
    fn cables(&self) -> f64 {
        self.networks.iter().map(Folded::expected_cables).sum()
    }

    fn wire(
        &self,
        inputs: &Inputs<'_>,
        first_leaf: usize,
        builder: &mut FabricBuilder,
        errors: &mut Errors,
    ) -> usize {
        let first = builder.len();
        let leaf = self.wire(builder, first_leaf);
        add_circuits(self, inputs, first, builder, errors);
        leaf
    }
}

fn add_circuits(
    plan: &Plan,
    inputs: &Inputs<'_>,
    first_switch: usize,
    builder: &mut FabricBuilder,
    errors: &mut Errors,
) {
    let config = &inputs.fabric.circuits;
    let Some(network) = plan.networks.first().filter(|_| 0 < config.per_pod) else { return };
    let settings = match &config.settings[..] {
        [] => vec![circuits::pairs(config, network.pods(), inputs, errors)],
        settings => settings.to_vec(),
    };
    let mut first = first_switch;
    for network in &plan.networks {
        let spines = first + network.leaves();
        let of_pod = |pod: usize| -> Vec<NodeId> {
            let range = spines + pod * network.spines..spines + (pod + 1) * network.spines;
            range.map(NodeId::from_index).collect()
        };
        let pods: Vec<Vec<NodeId>> = (0..network.pods()).map(of_pod).collect();
        for pairs in &settings {
            circuits::wire(config, pairs, &pods, inputs.rate(2), builder);
        }
        first += network.switches().iter().sum::<usize>();
    }
}

fn cover(level: u8, first: usize, end: usize) -> Cover {
    Cover { level, first: first as u32, end: end as u32 }
}

/// Which of `above` switches each of `cables` goes to. Where they do not divide evenly, number
/// `at` begins where the one before it stopped.
fn spread_over(cables: usize, above: usize, at: usize) -> impl Iterator<Item = usize> {
    let start = at * (cables % above) % above;
    (0..cables).map(move |cable| (start + cable) % above)
}

impl Members {
    /// The node of a member, by the places of its server and rail.
    pub(crate) fn node(&self, server: usize, rail: usize) -> NodeId {
        NodeId::from_index(self.first_node + self.number(server, rail))
    }
}
