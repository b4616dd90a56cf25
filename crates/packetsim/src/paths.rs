//! Paths: which links a queue pair's packets cross.
//!
//! Where a policy chooses once for a flow, the path of each queue pair and that of its
//! acknowledgements are computed before the run and kept in one list; a packet carries its place in
//! it. Where a policy chooses for every packet or flowlet, it chooses at each switch, and the next
//! hops for a pair of switch and destination are looked up once. Acknowledgements keep to one path,
//! or have one for each entropy value where the sender has several.

use std::collections::BTreeMap;

use fabric::hash::FlowKey;
use fabric::routes::towards_leaf;
use fabric::routing::{Demand, Grain, Load, NoPath, QueuePairs, Routing, Walker};
use fabric::{Fabric, Health, LinkId, NodeId, NodeKind, Routes};
use traffic::{Connection, Transfers};
use units::{Bytes, Id, IdVec};

use crate::ids::{Maybe, PairId, Raw};
use crate::packet::Packet;
use crate::port::{NOWHERE, Port};
use crate::settings::Settings;
use crate::simulation::Simulation;

/// The paths of all queue pairs, and what is needed to choose again.
#[derive(Debug)]
pub(crate) struct Network {
    /// The policy.
    pub routing: Box<dyn Routing>,
    /// Next hops in the present state of health.
    pub routes: Routes,
    /// What the packets of each queue pair show, forth and back.
    pub keys: IdVec<PairId, (FlowKey, FlowKey)>,
    /// The first queue pair of each connection, or nowhere for scale-up connections.
    pub first_pair: Vec<Maybe<PairId>>,
    /// Where the path of each scale-up connection begins in the list of paths.
    pub first_serial: Vec<u32>,
    /// How many queue pairs each connection has.
    pub pairs_of: Vec<u16>,
    walker: Walker,
    /// The links that lead on from a switch to a destination, where the fabric's structure does not
    /// say and they have been looked up in the present state of health.
    cached_next_hops: BTreeMap<(NodeId, NodeId), Box<[LinkId]>>,
    /// Where each queue pair's packets end, if that is a NIC with one port; empty where the
    /// fabric has no structure.
    homes: Vec<Option<Home>>,
}

/// The leaf that a NIC hangs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub leaf: NodeId,
    /// The leaf's number among the leaves.
    pub ordinal: u32,
    /// The link from it to the NIC.
    pub last: LinkId,
}

impl Home {
    fn of(fabric: &Fabric, nic: NodeId) -> Option<Self> {
        let [port] = fabric.ports(nic) else { return None };
        let last = fabric.reverse(*port);
        let leaf = fabric.links()[last].from;
        Some(Self { leaf, ordinal: fabric.leaf_ordinal(leaf)?, last })
    }
}

/// How many queue pairs a connection of the scale-out network has.
fn pairs_of_connection(connection: &Connection, settings: &Settings) -> u16 {
    match connection.queue_pairs {
        0 => settings.routing.qps.max(1),
        count => count,
    }
}

/// How many queue pairs transfers open. They are numbered from 0.
pub fn queue_pairs(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> u64 {
    let connections = transfers.connections().iter();
    let scale_out = connections.filter(|connection| !is_scale_up(fabric, connection));
    scale_out.map(|connection| u64::from(pairs_of_connection(connection, settings))).sum()
}

impl Network {
    /// Opens the queue pairs of all connections, in order.
    pub(crate) fn new(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> Self {
        let config = &settings.routing;
        let mut queue_pairs = QueuePairs::new(fabric, config, settings.seed);
        let (mut keys, mut first_pair, mut pairs_of) = (IdVec::default(), Vec::new(), Vec::new());
        for connection in transfers.connections() {
            if is_scale_up(fabric, connection) {
                first_pair.push(Maybe::NONE);
                pairs_of.push(0);
                continue;
            }
            let count = pairs_of_connection(connection, settings);
            first_pair.push(Maybe::some(PairId::from_index(keys.len())));
            pairs_of.push(count);
            for _ in 0..count {
                let key = queue_pairs.open(connection.from, connection.to);
                keys.push((key, key.reversed(config.udp_source)));
            }
        }
        let routing = config.build(fabric, settings.seed);
        let home = |(key, _): &(FlowKey, FlowKey)| Home::of(fabric, key.to);
        let roams = routing.grain() != Grain::Flow && fabric.has_structure();
        let homes = if roams { keys.iter().map(home).collect() } else { Vec::new() };
        Self {
            homes,
            routing,
            routes: Routes::default(),
            keys,
            first_pair,
            pairs_of,
            first_serial: vec![NOWHERE; transfers.connections().len()],
            walker: Walker::default(),
            cached_next_hops: BTreeMap::new(),
        }
    }

    /// Lets the routes follow the health of the fabric.
    pub(crate) fn set_health(&mut self, health: Health) {
        self.routes.set_health(health);
        self.cached_next_hops.clear();
    }

    /// What routes know of it.
    pub(crate) fn health(&self) -> &Health {
        self.routes.health()
    }

    /// Whether the policy chooses along the way.
    pub(crate) fn chooses_on_the_way(&self) -> bool {
        self.routing.grain() != Grain::Flow
    }

    /// The paths of all queue pairs as a planning policy lays them, if it is one.
    pub(crate) fn planned(&mut self, fabric: &Fabric) -> Option<Vec<Option<Vec<LinkId>>>> {
        let demand = |(key, _): &(FlowKey, FlowKey)| {
            let first = fabric.ports(key.from).first();
            let rate_bps = first.map_or(0.0, |link| fabric.class(*link).rate.as_bps_f64());
            Demand { key: *key, rate_bps }
        };
        let demands: Vec<Demand> = self.keys.iter().map(demand).collect();
        self.routing.plan(fabric, &mut self.routes, &demands)
    }

    /// Which of several links a packet takes: a queue pair's, with this sequence number, after so
    /// many pauses of its flow.
    #[inline]
    pub(crate) fn choose(
        &mut self,
        ports: &IdVec<LinkId, Port>,
        at: NodeId,
        (pair, psn, choices): (PairId, u32, u32),
        several: &[LinkId],
    ) -> LinkId {
        let count = match self.routing.grain() {
            Grain::Flow => 0,
            Grain::Flowlet { .. } => u64::from(choices),
            Grain::Packet => u64::from(psn),
        };
        let (key, _) = &self.keys[pair];
        several[self.routing.choose(at, key, count, several, &Queues(ports))]
    }

    /// The leaf that a queue pair's packets go to, if that alone says which links lead there.
    #[inline]
    pub(crate) fn home(&self, pair: PairId) -> Option<Home> {
        let home = self.homes.get(pair.index()).copied().flatten();
        home.filter(|_| !self.routes.health().has_failures())
    }

    /// Collects the links that a queue pair's packets may take from a node.
    fn collect_candidates(
        &mut self,
        fabric: &Fabric,
        at: NodeId,
        pair: PairId,
        out: &mut Vec<LinkId>,
    ) {
        out.clear();
        match self.home(pair).filter(|_| fabric.cover(at).is_some()) {
            Some(home) if home.leaf == at => out.push(home.last),
            Some(home) => out.extend_from_slice(towards_leaf(fabric, at, home.ordinal)),
            None => {
                let to = self.keys[pair].0.to;
                self.lookup_next_hops(fabric, at, to, out);
            }
        }
    }

    /// Looks up the links that lead from a node to a NIC.
    pub(crate) fn lookup_next_hops(
        &mut self,
        fabric: &Fabric,
        at: NodeId,
        to: NodeId,
        out: &mut Vec<LinkId>,
    ) {
        if let Some(cached_next_hops) = self.cached_next_hops.get(&(at, to)) {
            out.extend_from_slice(cached_next_hops);
        } else {
            self.routes.next_hops(fabric, at, to, out);
            self.cached_next_hops.insert((at, to), out.as_slice().into());
        }
    }

    /// The path of a flow.
    pub(crate) fn walk(&mut self, fabric: &Fabric, key: &FlowKey) -> Result<&[LinkId], NoPath> {
        self.walker.path(fabric, &mut self.routes, self.routing.as_mut(), key, 0)
    }

    /// The path of a flow that leaves by a given port of its NIC, if that leads to its receiver.
    pub(crate) fn walk_from(
        &mut self,
        fabric: &Fabric,
        key: &FlowKey,
        port: LinkId,
    ) -> Option<Vec<LinkId>> {
        let mut hops = Vec::new();
        self.routes.next_hops(fabric, key.from, key.to, &mut hops);
        if !hops.contains(&port) {
            return None;
        }
        let mut path = vec![port];
        let key = FlowKey { from: fabric.links()[port].to, ..*key };
        path.extend_from_slice(self.walk(fabric, &key).ok()?);
        Some(path)
    }

    /// The path of a scale-up connection.
    pub(crate) fn walk_scale_up(
        &mut self,
        fabric: &Fabric,
        connection: &Connection,
    ) -> Result<&[LinkId], NoPath> {
        let (from, to) = (connection.from, connection.to);
        let key = FlowKey {
            from,
            to,
            src_ip: from.index() as u32,
            dst_ip: to.index() as u32,
            protocol: 0,
            src_port: connection.channel as u16,
            dst_port: 0,
            dst_qpn: 0,
        };
        self.walker.path(fabric, &mut self.routes, self.routing.as_mut(), &key, 0)
    }
}

/// Whether a connection runs over the scale-up network.
pub(crate) fn is_scale_up(fabric: &Fabric, connection: &Connection) -> bool {
    matches!(fabric.nodes()[connection.to].kind, NodeKind::Gpu | NodeKind::ScaleUpSwitch)
}

/// What a policy may know of the queues.
struct Queues<'a>(&'a IdVec<LinkId, Port>);

impl Load for Queues<'_> {
    fn queued(&self, link: LinkId) -> Bytes {
        Bytes::new(u64::from(self.0[link].queued))
    }
}

impl Simulation<'_> {
    /// Asks the policy at the end of a link where a packet goes on.
    pub(crate) fn choose_link(&mut self, link: LinkId, packet: &Packet) -> Option<LinkId> {
        let at = self.input.fabric.links()[link].to;
        self.choose_at(at, PairId::of(packet.route), packet.psn)
    }

    /// Asks the policy at a node where a packet of a queue pair goes on.
    pub(crate) fn choose_at(&mut self, at: NodeId, pair: PairId, psn: u32) -> Option<LinkId> {
        let mut candidates = std::mem::take(&mut self.net.candidates);
        self.net.network.collect_candidates(self.input.fabric, at, pair, &mut candidates);
        let chosen = match candidates.as_slice() {
            [] => None,
            [only] => Some(*only),
            several => {
                for link in several {
                    self.apply_departures(*link);
                }
                let choices = self.ends.pairs[pair].choices;
                Some(self.net.network.choose(&self.net.ports, at, (pair, psn, choices), several))
            }
        };
        self.net.candidates = candidates;
        chosen
    }
}
