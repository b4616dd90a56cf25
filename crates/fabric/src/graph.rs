//! Nodes, directed links, and the fabric that they make.
//!
//! A cable between two ports is two directed links; its ids are `2c` and `2c + 1`, so a link's
//! reverse is found by flipping the lowest bit. Links of one kind share a [`LinkClass`], which
//! keeps a link at twelve bytes. The ports of a node lie together, downward ones first and in the
//! order of what they lead to, so that next hops are slices and not searches.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::RwLock;

use units::{Id, IdVec, Length, Rate, Span};

use crate::routes::Health;
use crate::transport::ScheduledConfig;

units::id!(
    /// A GPU, NIC, switch or scale-up switch.
    NodeId,
    /// One direction of a cable.
    LinkId,
    /// A kind of link: what its members have in common.
    ClassId,
);

/// What a node is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum NodeKind {
    /// An accelerator: the endpoint of the scale-up network.
    Gpu,
    /// A network card on the back-end fabric: the endpoint of the scale-out network.
    Nic,
    /// A network card on the front-end network (storage, checkpoints, control).
    FrontEndNic,
    /// A switch of the scale-up network (NVSwitch).
    ScaleUpSwitch,
    /// A switch of the scale-out or front-end network.
    Switch,
}

/// A node. Its name is derived from these fields unless it was imported with one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Index into [`Fabric::tiers`] for switches; 0 for everything else.
    pub tier: u8,
    /// Which zone, pod or plane it belongs to, counted from 0.
    pub zone: u32,
    /// Its number within its kind, tier and zone, counted from 0.
    pub index: u32,
}

/// One direction of a cable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// Where it begins.
    pub from: NodeId,
    /// Where it ends.
    pub to: NodeId,
    /// What it has in common with others.
    pub class: ClassId,
}

/// Which network a link belongs to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LinkKind {
    /// Between NICs and switches of the back-end.
    ScaleOut,
    /// Between GPUs of one scale-up domain.
    ScaleUp,
    /// Of the front-end network.
    FrontEnd,
    /// An optical circuit between pods, present while its circuit is set up.
    Circuit,
}

/// The rates that a link, a NIC or a port may have: from a serial line to far beyond any plan.
pub const RATES: [Rate; 2] = [Rate::from_bps(1_000_000), Rate::from_bps(1_000_000_000_000_000)];

/// The delays that a link, a switch or a NIC may add.
pub const DELAYS: [Span; 2] = [Span::ZERO, Span::from_ms(10_000)];

/// The lengths that a cable may have: a hundred times around the data centre, or to the moon.
pub const LENGTHS: [Length; 2] = [Length::from_metres(0), Length::from_metres(400_000_000)];

/// What links of one kind have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkClass {
    /// What people call it: "leaf – spine".
    pub name: String,
    /// Which network it belongs to.
    pub kind: LinkKind,
    /// Bits per second in one direction.
    pub rate: Rate,
    /// Propagation delay from end to end.
    pub delay: Span,
    /// Length of the cable, which decides its medium, price and power.
    pub length: Length,
}

/// A layer of switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// What people call its switches: "leaf", "spine", "RTSW".
    pub name: String,
    /// The box, by its name in the hardware catalogue.
    pub model: String,
    /// Time from a packet's arrival to its earliest departure, without queueing.
    pub latency: Span,
}

/// Which of a cluster's networks a network is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum NetworkKind {
    /// Between the back-end NICs.
    BackEnd,
    /// Between the front-end NICs.
    FrontEnd,
}

/// One of the switched networks of a cluster: a back-end, or the front-end.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// What it is called.
    pub name: String,
    /// Which one it is.
    pub kind: NetworkKind,
    /// What the zones of its switches are called: "zone", "pod", "rail", "group".
    pub zone_word: String,
    /// Its tiers, bottom up, as indices into [`Fabric::tiers`].
    pub tiers: Range<u8>,
}

/// Where a node lies in a fabric that is routed up and then down.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cover {
    /// Height above the leaves: 0 for a leaf.
    pub level: u8,
    /// First leaf below it, by ordinal.
    pub first: u32,
    /// One past the last leaf below it.
    pub end: u32,
}

impl Cover {
    /// Whether the leaf with this ordinal is below.
    pub fn contains(self, leaf: u32) -> bool {
        (self.first..self.end).contains(&leaf)
    }
}

/// How the downward ports of a switch are dealt out where all its children are alike: every
/// `leaves` leaves share the next `ports` ports. Zero where they are not alike.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Stride {
    leaves: u32,
    ports: u32,
}

/// A whole network, only read once it is built.
#[derive(Clone, Debug)]
pub struct Fabric {
    nodes: IdVec<NodeId, Node>,
    links: IdVec<LinkId, Link>,
    classes: IdVec<ClassId, LinkClass>,
    tiers: Vec<Tier>,
    /// The outgoing links of node `n` are `ports[first_port[n]..first_port[n + 1]]`.
    first_port: Vec<u32>,
    ports: Vec<LinkId>,
    /// How many of a node's ports lead downwards; they come first. Empty without structure.
    down_ports: Vec<u32>,
    /// By switch, in order of node id. Empty without structure.
    covers: Vec<Cover>,
    /// By switch likewise: how its downward ports are dealt out to the leaves below it.
    strides: Vec<Stride>,
    first_switch: usize,
    /// The switches that NICs hang on, in order of their ordinals.
    leaves: Vec<NodeId>,
    /// The ordinal of each switch among the leaves, or `u32::MAX`.
    leaf_ordinals: Vec<u32>,
    gpus: usize,
    nics: usize,
    gpus_per_node: usize,
    nics_per_node: usize,
    gpus_per_domain: usize,
    /// The NICs of storage servers, as flows number them.
    storage: Range<usize>,
    /// For each GPU of a server the NICs it uses; empty where GPUs are spread in order.
    affinity: Vec<Vec<u32>>,
    /// Names of imported nodes, by node id; empty where names are derived.
    names: Vec<String>,
    scale_up_name: String,
    networks: Vec<Network>,
    /// By tier: the oversubscription that was meant, before rounding to whole cables.
    designed: Vec<Option<f64>>,
    /// By tier: the word for its zones, if it has more than one.
    zone_words: Vec<Option<String>>,
    /// Tiers whose packets stay in their zone as long as a shortest way does.
    rows_first: Vec<u8>,
    can_deadlock: bool,
    health: Health,
    scheduled: Option<ScheduledConfig>,
    ways: Ways,
}

/// The latencies of ways that somebody has looked up, for whoever asks next.
#[derive(Debug, Default)]
struct Ways(RwLock<BTreeMap<(NodeId, NodeId), Span>>);

impl Clone for Ways {
    /// A copy may be given another health, so it begins with nothing.
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// So many ways are kept at most: 40 MB.
const WAYS: usize = 1 << 20;

impl Fabric {
    /// The same fabric with all rates divided: small machines stand for it.
    #[must_use]
    pub fn slower(&self, by: f64) -> Self {
        let mut slower = self.clone();
        for class in slower.classes.iter_mut() {
            class.rate = Rate::from_bps_f64(class.rate.as_bps() as f64 / by);
        }
        slower
    }

    /// The same fabric with links of other classes, where `class` names one.
    #[must_use]
    pub fn with_classes(&self, class: impl Fn(LinkId) -> Option<LinkClass>) -> Self {
        let mut changed = self.clone();
        for link in self.links.ids() {
            let Some(own) = class(link) else { continue };
            let known = changed.classes.ids().find(|id| changed.classes[*id] == own);
            changed.links[link].class = known.unwrap_or_else(|| changed.classes.push(own));
        }
        changed
    }

    /// The same fabric with leaves that wait for credit of the ports that packets will leave by.
    #[must_use]
    pub fn with_schedule(&self, config: &ScheduledConfig) -> Self {
        let scheduled = config.enabled.then(|| config.clone());
        Self { scheduled, ..self.clone() }
    }

    /// How its ports schedule what leaves send, if they do.
    pub fn scheduled(&self) -> Option<&ScheduledConfig> {
        self.scheduled.as_ref()
    }

    /// Whether a link is inside a scheduled fabric: between two of its switches.
    pub fn carries_cells(&self, link: LinkId) -> bool {
        let Link { from, to, .. } = self.links[link];
        let is_switch = |node: NodeId| self.nodes[node].kind == NodeKind::Switch;
        self.scheduled.is_some() && is_switch(from) && is_switch(to)
    }

    /// What a link on a packet's way makes it wait for credit in a scheduled fabric: one between
    /// switches as long as a request and a credit are on it, one from a NIC what chips take.
    pub fn credit_wait(&self, link: LinkId) -> Span {
        let Some(scheduled) = &self.scheduled else { return Span::ZERO };
        let Link { from, to, .. } = self.links[link];
        match [from, to].map(|node| self.nodes[node].kind) {
            [NodeKind::Switch, NodeKind::Switch] => self.class(link).delay * 2,
            [NodeKind::Nic | NodeKind::FrontEndNic, NodeKind::Switch] => scheduled.latency,
            _ => Span::ZERO,
        }
    }

    /// The latency of the way between two nodes: `find` looks it up once, and it is kept.
    pub fn way(&self, from: NodeId, to: NodeId, find: impl FnOnce() -> Span) -> Span {
        let known = self.ways.0.read().expect("nobody panics with it");
        if let Some(way) = known.get(&(from, to)) {
            return *way;
        }
        drop(known);
        let way = find();
        let mut known = self.ways.0.write().expect("nobody panics with it");
        if known.len() < WAYS {
            known.insert((from, to), way);
        }
        way
    }

    /// All nodes: GPUs, then back-end NICs, then everything else.
    #[inline]
    pub fn nodes(&self) -> &IdVec<NodeId, Node> {
        &self.nodes
    }

    /// All directed links.
    #[inline]
    pub fn links(&self) -> &IdVec<LinkId, Link> {
        &self.links
    }

    /// All kinds of link.
    pub fn classes(&self) -> &IdVec<ClassId, LinkClass> {
        &self.classes
    }

    /// The layers of switches.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// What the link has in common with others.
    #[inline]
    pub fn class(&self, link: LinkId) -> &LinkClass {
        &self.classes[self.links[link].class]
    }

    /// The other direction of the same cable.
    #[inline]
    pub fn reverse(&self, link: LinkId) -> LinkId {
        LinkId::from_index(link.index() ^ 1)
    }

    /// The links that leave a node: downward ones first where the fabric has a structure.
    #[inline]
    pub fn ports(&self, node: NodeId) -> &[LinkId] {
        let at = node.index();
        &self.ports[self.first_port[at] as usize..self.first_port[at + 1] as usize]
    }

    /// The ports of a node that lead downwards, and those that lead upwards or sideways.
    #[inline]
    pub fn ports_down_up(&self, node: NodeId) -> (&[LinkId], &[LinkId]) {
        let down = self.down_ports.get(node.index()).copied().unwrap_or(0) as usize;
        self.ports(node).split_at(down)
    }

    /// The downward ports of a switch whose far ends are above a leaf that is below it: by
    /// arithmetic where its children are alike, else by a search, for equal covers lie together.
    #[inline]
    pub(crate) fn ports_above(&self, switch: NodeId, leaf: u32) -> &[LinkId] {
        let down = self.ports_down_up(switch).0;
        let at = switch.index() - self.first_switch;
        let Stride { leaves, ports } = self.strides[at];
        if let Some(child) = (leaf - self.covers[at].first).checked_div(leaves) {
            return &down[(child * ports) as usize..][..ports as usize];
        }
        let cover = |link: &LinkId| {
            self.cover(self.links[*link].to).expect("what is between switch and leaf is a switch")
        };
        let start = down.partition_point(|link| cover(link).end <= leaf);
        let end = down.partition_point(|link| cover(link).first <= leaf);
        if start <= end { &down[start..end] } else { &[] }
    }

    /// How many GPUs there are.
    pub fn gpus(&self) -> usize {
        self.gpus
    }

    /// How many back-end NICs there are.
    pub fn nics(&self) -> usize {
        self.nics
    }

    /// GPUs in one server.
    pub fn gpus_per_node(&self) -> usize {
        self.gpus_per_node
    }

    /// Back-end NICs in one server.
    pub fn nics_per_node(&self) -> usize {
        self.nics_per_node
    }

    /// GPUs that the scale-up network joins: those of a server, fewer, or more.
    pub fn gpus_per_domain(&self) -> usize {
        self.gpus_per_domain
    }

    /// The back-ends, then the front-end.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// Capacity below a tier over capacity above it, as it was meant: before uplinks were rounded
    /// to whole cables.
    pub fn designed_oversubscription(&self, tier: u8) -> Option<f64> {
        self.designed.get(usize::from(tier)).copied().flatten()
    }

    /// What has failed or is slow from the start; [`Routes::of`](crate::Routes::of) begins there.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Whether packets of a tier finish their row before their column (dimension order).
    pub(crate) fn is_rows_first(&self, tier: u8) -> bool {
        self.rows_first.contains(&tier)
    }

    /// Whether its routes have waits in a circle, so that a lossless network can deadlock.
    pub fn can_deadlock(&self) -> bool {
        self.can_deadlock
    }

    /// Says what has failed or is slow from the start.
    pub fn set_health(&mut self, health: Health) {
        self.health = health;
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.gpus.div_ceil(self.gpus_per_node)
    }

    /// The GPU with this number.
    pub fn gpu(&self, number: usize) -> NodeId {
        assert!(number < self.gpus, "GPU {number} of {}", self.gpus);
        NodeId::from_index(number)
    }

    /// The back-end NIC with this number; flow files count these.
    pub fn nic(&self, number: usize) -> NodeId {
        assert!(number < self.nics, "NIC {number} of {}", self.nics);
        NodeId::from_index(self.gpus + number)
    }

    /// How many NICs there are, those of the front-end included.
    pub fn endpoints(&self) -> usize {
        self.first_switch - self.gpus
    }

    /// The NIC that flows know by this number: those of the back-end, then those of the front-end.
    pub fn endpoint(&self, number: usize) -> NodeId {
        assert!(number < self.endpoints(), "NIC {number} of {}", self.endpoints());
        NodeId::from_index(self.gpus + number)
    }

    /// The NICs of storage servers, by their numbers as endpoints.
    pub fn storage(&self) -> Range<usize> {
        self.storage.clone()
    }

    /// The NICs of the other servers on the network that storage is on.
    pub fn storage_clients(&self) -> Range<usize> {
        let first = if self.storage.start < self.nics { 0 } else { self.nics };
        if self.storage.is_empty() { 0..0 } else { first..self.storage.start }
    }

    /// The back-end NICs of servers with GPUs: all but those of storage servers.
    pub fn compute_nics(&self) -> usize {
        if self.storage.is_empty() { self.nics } else { self.nics.min(self.storage.start) }
    }

    /// How many servers have back-end NICs, with GPUs or for storage.
    pub fn machines(&self) -> usize {
        self.servers().max(self.nics.div_ceil(self.nics_per_node))
    }

    /// The number of a back-end NIC, if the node is one.
    pub fn nic_number(&self, node: NodeId) -> Option<usize> {
        let number = node.index().checked_sub(self.gpus)?;
        (number < self.nics).then_some(number)
    }

    /// The server that a GPU or back-end NIC sits in.
    pub fn server_of(&self, node: NodeId) -> Option<usize> {
        if node.index() < self.gpus {
            return Some(node.index() / self.gpus_per_node);
        }
        self.nic_number(node).map(|number| number / self.nics_per_node)
    }

    /// The NIC that a GPU reaches over PCIe without crossing a socket: its rail. The first where
    /// it has several.
    pub fn nic_of(&self, gpu: NodeId) -> NodeId {
        self.nics_of(gpu).next().expect("a GPU has a NIC")
    }

    /// All NICs that a GPU uses: as the affinity says, else an even share of its server's.
    pub fn nics_of(&self, gpu: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let (server, local) = (gpu.index() / self.gpus_per_node, gpu.index() % self.gpus_per_node);
        let named = self.affinity.get(local).map_or(&[][..], Vec::as_slice);
        let share = |local: usize| local * self.nics_per_node / self.gpus_per_node;
        let spread = match named {
            [] => share(local)..share(local + 1).max(share(local) + 1),
            _ => 0..0,
        };
        let rails = named.iter().map(|&nic| nic as usize).chain(spread);
        rails.map(move |rail| self.nic(server * self.nics_per_node + rail))
    }

    /// The rail of a back-end NIC: its number within its server.
    pub fn rail_of(&self, nic: NodeId) -> usize {
        self.nic_number(nic).expect("only a back-end NIC has a rail") % self.nics_per_node
    }

    /// The switches that NICs hang on, by ordinal.
    pub fn leaves(&self) -> &[NodeId] {
        &self.leaves
    }

    /// The ordinal of a switch among the leaves.
    #[inline]
    pub fn leaf_ordinal(&self, switch: NodeId) -> Option<u32> {
        let at = switch.index().checked_sub(self.first_switch)?;
        self.leaf_ordinals.get(at).copied().filter(|&ordinal| ordinal != u32::MAX)
    }

    /// Where a switch lies, if the fabric is routed up and then down.
    #[inline]
    pub fn cover(&self, switch: NodeId) -> Option<Cover> {
        let at = switch.index().checked_sub(self.first_switch)?;
        self.covers.get(at).copied()
    }

    /// Whether next hops follow from the structure (up, then down).
    pub fn has_structure(&self) -> bool {
        !self.covers.is_empty()
    }

    /// Ids of all switches: scale-up, back-end and front-end.
    pub fn switches(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (self.first_switch..self.nodes.len()).map(NodeId::from_index)
    }

    /// The ordinal of a switch among [`Self::switches`].
    pub fn switch_ordinal(&self, node: NodeId) -> Option<usize> {
        node.index().checked_sub(self.first_switch)
    }

    /// Whether nodes carry the names they were imported with.
    pub fn has_imported_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// What people call the node: "leaf 3", "zone 2 CTSW 5", "NIC 17", or its imported name.
    pub fn name(&self, id: NodeId) -> String {
        if let Some(name) = self.names.get(id.index()) {
            return name.clone();
        }
        let Node { kind, tier, zone, index } = self.nodes[id];
        match kind {
            NodeKind::Gpu => format!("GPU {}", id.index()),
            NodeKind::Nic => format!("NIC {}", id.index() - self.gpus),
            NodeKind::FrontEndNic => format!("front-end NIC {index}"),
            NodeKind::ScaleUpSwitch => format!("{} {index}", self.scale_up_name),
            NodeKind::Switch => {
                let name = &self.tiers[usize::from(tier)].name;
                match &self.zone_words[usize::from(tier)] {
                    None => format!("{name} {index}"),
                    Some(word) => format!("{word} {zone} {name} {index}"),
                }
            }
        }
    }

    /// What people call the link: "leaf 3 → spine 5"; one of several between the same two ends has
    /// its number, counted from 1: "leaf 3 → spine 5 (2)".
    pub fn link_name(&self, link: LinkId) -> String {
        let Link { from, to, .. } = self.links[link];
        let ends = format!("{} → {}", self.name(from), self.name(to));
        match self.number_of(link) {
            (_, 1) => ends,
            (number, _) => format!("{ends} ({number})"),
        }
    }

    /// Which of the links from its one end to its other a link is, counted from 1, and how many
    /// there are. Both directions of a cable have the same number.
    pub fn number_of(&self, link: LinkId) -> (usize, usize) {
        let Link { from, to, .. } = self.links[link];
        let alike = || self.ports(from).iter().filter(|port| self.links[**port].to == to);
        (alike().filter(|port| **port <= link).count(), alike().count())
    }
}

/// Collects nodes and cables, then makes a [`Fabric`] of them.
#[derive(Debug)]
pub struct FabricBuilder {
    nodes: IdVec<NodeId, Node>,
    links: IdVec<LinkId, Link>,
    classes: IdVec<ClassId, LinkClass>,
    tiers: Vec<Tier>,
    covers: Vec<Cover>,
    first_switch: usize,
    gpus: usize,
    nics: usize,
    gpus_per_node: usize,
    nics_per_node: usize,
    gpus_per_domain: usize,
    storage: Range<usize>,
    affinity: Vec<Vec<u32>>,
    names: Vec<String>,
    scale_up_name: String,
    networks: Vec<Network>,
    designed: Vec<Option<f64>>,
    rows_first: Vec<u8>,
    can_deadlock: bool,
}

impl FabricBuilder {
    /// Begins with the GPUs and back-end NICs of `servers` equal servers.
    pub fn new(servers: usize, gpus_per_node: usize, nics_per_node: usize) -> Self {
        assert!(0 < gpus_per_node && 0 < nics_per_node, "a server has a GPU and a NIC");
        let (gpus, nics) = (servers * gpus_per_node, servers * nics_per_node);
        let mut nodes = IdVec::with_capacity(gpus + nics + nics / 8);
        for index in 0..gpus {
            nodes.push(Node { kind: NodeKind::Gpu, tier: 0, zone: 0, index: index as u32 });
        }
        for index in 0..nics {
            nodes.push(Node { kind: NodeKind::Nic, tier: 0, zone: 0, index: index as u32 });
        }
        Self {
            nodes,
            links: IdVec::default(),
            classes: IdVec::default(),
            tiers: Vec::new(),
            covers: Vec::new(),
            first_switch: gpus + nics,
            gpus,
            nics,
            gpus_per_node,
            nics_per_node,
            gpus_per_domain: gpus_per_node,
            storage: 0..0,
            affinity: Vec::new(),
            names: Vec::new(),
            scale_up_name: "NVSwitch".to_owned(),
            networks: Vec::new(),
            designed: Vec::new(),
            rows_first: Vec::new(),
            can_deadlock: false,
        }
    }

    /// Adds the back-end NICs of storage servers, which have no GPUs, after those of the others.
    pub fn storage_nics(&mut self, count: usize) {
        assert_eq!(self.first_switch, self.gpus + self.nics, "they come before all but NICs");
        self.storage = self.nics..self.nics + count;
        for index in self.storage.clone() {
            let index = index as u32;
            self.nodes.push(Node { kind: NodeKind::Nic, tier: 0, zone: 0, index });
        }
        self.nics += count;
        self.first_switch += count;
    }

    /// Says that the last so many front-end NICs are those of storage servers.
    pub fn storage_on_front_end(&mut self, count: usize) {
        let end = self.first_switch - self.gpus;
        self.storage = end - count..end;
    }

    /// How many nodes there are so far.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Begins a network: the tiers that follow belong to it.
    pub fn network(&mut self, name: &str, kind: NetworkKind, zone_word: &str) {
        let next = u8::try_from(self.tiers.len()).expect("fewer than 256 tiers");
        let (name, zone_word) = (name.to_owned(), zone_word.to_owned());
        self.networks.push(Network { name, kind, zone_word, tiers: next..next });
    }

    /// Says which oversubscription the newest tier was meant to have.
    pub fn designed_oversubscription(&mut self, ratio: f64) {
        *self.designed.last_mut().expect("a tier comes before its oversubscription") = Some(ratio);
    }

    /// Says that packets of a tier finish their row, which is a zone, before their column, and
    /// whether the rings have waits in a circle.
    pub fn rows_first(&mut self, tier: u8, can_deadlock: bool) {
        self.rows_first.push(tier);
        self.can_deadlock |= can_deadlock;
    }

    /// Says how many GPUs the scale-up network joins, and what its switches are called.
    pub fn scale_up_domain(&mut self, gpus: usize, name: &str) {
        assert!(0 < gpus, "a scale-up domain has a GPU");
        self.gpus_per_domain = gpus;
        name.clone_into(&mut self.scale_up_name);
    }

    /// Says which NICs each GPU of a server uses; empty for an even spread.
    pub fn affinity(&mut self, nics: Vec<Vec<u32>>) {
        let known = |nic: &u32| (*nic as usize) < self.nics_per_node;
        assert!(
            nics.iter().all(|own| !own.is_empty() && own.iter().all(known)),
            "NICs of a server"
        );
        self.affinity = nics;
    }

    /// GPUs and back-end NICs in one server.
    pub fn per_node(&self) -> (usize, usize) {
        (self.gpus_per_node, self.nics_per_node)
    }

    /// The GPU with this number.
    pub fn gpu(&self, number: usize) -> NodeId {
        assert!(number < self.gpus, "GPU {number} of {}", self.gpus);
        NodeId::from_index(number)
    }

    /// The back-end NIC with this number.
    pub fn nic(&self, number: usize) -> NodeId {
        assert!(number < self.nics, "NIC {number} of {}", self.nics);
        NodeId::from_index(self.gpus + number)
    }

    /// Adds a layer of switches and returns its index.
    pub fn tier(&mut self, tier: Tier) -> u8 {
        if self.networks.is_empty() {
            self.network("back-end", NetworkKind::BackEnd, "zone");
        }
        self.tiers.push(tier);
        self.designed.push(None);
        let network = self.networks.last_mut().expect("there is a network now");
        network.tiers.end = u8::try_from(self.tiers.len()).expect("fewer than 256 tiers");
        u8::try_from(self.tiers.len() - 1).expect("fewer than 256 tiers")
    }

    /// Adds a kind of link.
    pub fn class(&mut self, class: LinkClass) -> ClassId {
        self.classes.push(class)
    }

    /// Adds a front-end NIC. All of them come before the first switch.
    pub fn front_end_nic(&mut self, index: usize) -> NodeId {
        assert_eq!(self.first_switch, self.nodes.len(), "front-end NICs come before switches");
        self.first_switch += 1;
        let index = index as u32;
        self.nodes.push(Node { kind: NodeKind::FrontEndNic, tier: 0, zone: 0, index })
    }

    /// Adds a scale-up switch; it needs no cover, its domain is what hangs on it.
    pub fn scale_up_switch(&mut self, index: usize) -> NodeId {
        self.covers.push(Cover { level: 0, first: 0, end: 0 });
        let index = index as u32;
        self.nodes.push(Node { kind: NodeKind::ScaleUpSwitch, tier: 0, zone: 0, index })
    }

    /// Adds a switch of a fabric that is routed up and then down.
    pub fn switch(&mut self, tier: u8, zone: usize, index: usize, cover: Cover) -> NodeId {
        self.covers.push(cover);
        let (zone, index) = (zone as u32, index as u32);
        self.nodes.push(Node { kind: NodeKind::Switch, tier, zone, index })
    }

    /// Adds a switch of a fabric without structure; one of them makes the whole unstructured.
    pub fn plain_switch(&mut self, tier: u8, zone: usize, index: usize) -> NodeId {
        let (zone, index) = (zone as u32, index as u32);
        self.nodes.push(Node { kind: NodeKind::Switch, tier, zone, index })
    }

    /// Adds a cable: two links, of which the returned one leads from `a` to `b`.
    pub fn cable(&mut self, a: NodeId, b: NodeId, class: ClassId) -> LinkId {
        let forth = self.links.push(Link { from: a, to: b, class });
        self.links.push(Link { from: b, to: a, class });
        forth
    }

    /// Gives all nodes, in order of their ids, the names they were imported with.
    pub fn names(&mut self, names: Vec<String>) {
        self.names = names;
    }

    /// Sorts the ports and hands over the fabric.
    pub fn build(self) -> Fabric {
        let structured = self.covers.len() == self.nodes.len() - self.first_switch;
        let covers = if structured { self.covers } else { Vec::new() };
        let height = |node: NodeId| match self.nodes[node].kind {
            NodeKind::Gpu | NodeKind::Nic | NodeKind::FrontEndNic => -1,
            _ => covers.get(node.index() - self.first_switch).map_or(0, |c| i32::from(c.level)),
        };
        let (first_port, mut ports) = ports_by_node(self.nodes.len(), &self.links);
        let mut down_ports = Vec::new();
        if structured {
            // Downward links by the first leaf they lead to, then the others as created.
            down_ports = vec![0_u32; self.nodes.len()];
            for node in self.nodes.ids() {
                let range =
                    first_port[node.index()] as usize..first_port[node.index() + 1] as usize;
                let down = |link: LinkId| height(self.links[link].to) < height(node);
                let key = |link: &LinkId| {
                    let to = self.links[*link].to.index();
                    let first = to.checked_sub(self.first_switch).map_or(0, |at| covers[at].first);
                    (!down(*link), if down(*link) { first } else { 0 })
                };
                ports[range.clone()].sort_by_key(key);
                down_ports[node.index()] =
                    ports[range].iter().filter(|link| down(**link)).count() as u32;
            }
        }
        let zone_words = zone_words(&self.nodes, self.tiers.len(), &self.networks);
        let (leaves, leaf_ordinals) = leaves(&self.nodes, &self.links, self.first_switch, &covers);
        let below = |at: usize| {
            let node = self.first_switch + at;
            let down = &ports[first_port[node] as usize..][..down_ports[node] as usize];
            let cover = |link: &LinkId| {
                let child = self.links[*link].to.index().checked_sub(self.first_switch)?;
                Some(covers[child])
            };
            stride(covers[at], down, cover).unwrap_or_default()
        };
        let strides = (0..covers.len()).map(below).collect();
        Fabric {
            nodes: self.nodes,
            links: self.links,
            classes: self.classes,
            tiers: self.tiers,
            first_port,
            ports,
            down_ports,
            covers,
            strides,
            first_switch: self.first_switch,
            leaves,
            leaf_ordinals,
            gpus: self.gpus,
            nics: self.nics,
            gpus_per_node: self.gpus_per_node,
            nics_per_node: self.nics_per_node,
            gpus_per_domain: self.gpus_per_domain,
            storage: self.storage,
            affinity: self.affinity,
            names: self.names,
            scale_up_name: self.scale_up_name,
            networks: self.networks,
            designed: self.designed,
            zone_words,
            rows_first: self.rows_first,
            can_deadlock: self.can_deadlock,
            health: Health::default(),
            scheduled: None,
            ways: Ways::default(),
        }
    }
}

/// The links that leave each node, node after node, and where each node's begin.
fn ports_by_node(nodes: usize, links: &IdVec<LinkId, Link>) -> (Vec<u32>, Vec<LinkId>) {
    let mut first_port = vec![0_u32; nodes + 1];
    for link in links {
        first_port[link.from.index() + 1] += 1;
    }
    for at in 0..nodes {
        first_port[at + 1] += first_port[at];
    }
    let mut ports = vec![LinkId::from_index(0); links.len()];
    let mut next = first_port.clone();
    for (id, link) in links.enumerate() {
        let slot = &mut next[link.from.index()];
        ports[*slot as usize] = id;
        *slot += 1;
    }
    (first_port, ports)
}

/// How a switch with this cover deals its downward ports out, if its children are alike: each has
/// as many ports and as many leaves as the first; only the last may have fewer leaves.
fn stride(
    above: Cover,
    down: &[LinkId],
    cover: impl Fn(&LinkId) -> Option<Cover>,
) -> Option<Stride> {
    let first = cover(down.first()?)?;
    let ports = down.iter().take_while(|link| cover(link) == Some(first)).count();
    let leaves = first.end - first.first;
    if leaves == 0 || (above.end - above.first).div_ceil(leaves) as usize * ports != down.len() {
        return None;
    }
    let expected = |at: usize| {
        let first = above.first + (at / ports) as u32 * leaves;
        (first, above.end.min(first + leaves))
    };
    let fits = |(at, link)| cover(link).map(|c| (c.first, c.end)) == Some(expected(at));
    down.iter().enumerate().all(fits).then_some(Stride { leaves, ports: ports as u32 })
}

/// By tier: what its zones are called, if it has more than one.
fn zone_words(
    nodes: &IdVec<NodeId, Node>,
    tiers: usize,
    networks: &[Network],
) -> Vec<Option<String>> {
    let mut words = vec![None; tiers];
    for node in nodes.iter().filter(|node| node.kind == NodeKind::Switch && 0 < node.zone) {
        let word = &mut words[usize::from(node.tier)];
        if word.is_none() {
            let network = networks.iter().find(|network| network.tiers.contains(&node.tier));
            *word = network.map(|network| network.zone_word.clone());
        }
    }
    words
}

/// The switches that NICs hang on: by the ordinal of their cover, or in order of creation.
fn leaves(
    nodes: &IdVec<NodeId, Node>,
    links: &IdVec<LinkId, Link>,
    first_switch: usize,
    covers: &[Cover],
) -> (Vec<NodeId>, Vec<u32>) {
    let mut is_leaf = vec![false; nodes.len() - first_switch];
    for link in links {
        let from_nic = matches!(nodes[link.from].kind, NodeKind::Nic | NodeKind::FrontEndNic);
        if let (true, Some(at)) = (from_nic, link.to.index().checked_sub(first_switch)) {
            is_leaf[at] = true;
        }
    }
    let mut leaves: Vec<usize> = (0..is_leaf.len()).filter(|&at| is_leaf[at]).collect();
    if !covers.is_empty() {
        leaves.sort_by_key(|&at| covers[at].first);
    }
    let mut ordinals = vec![u32::MAX; is_leaf.len()];
    for (ordinal, &at) in leaves.iter().enumerate() {
        ordinals[at] = ordinal as u32;
        let agrees = covers.get(at).is_none_or(|cover| cover.first as usize == ordinal);
        assert!(agrees, "leaf {at} is number {ordinal} but says otherwise");
    }
    (leaves.iter().map(|at| NodeId::from_index(first_switch + at)).collect(), ordinals)
}
