//! Paths: which links a queue pair's packets cross.
//!
//! Where a policy chooses once for a flow, the path of each queue pair and that of its
//! acknowledgements are walked before the run and kept in one list; a packet carries its place in
//! it. Where a policy chooses for every packet or flowlet, it is asked at each switch, and the
//! candidates for a pair of switch and destination are looked up once. Acknowledgements keep to one
//! path, and take as many as there are entropy values where the sender has several.

use fabric::hash::FlowKey;
use fabric::routing::{Demand, Grain, Load, NoPath, QueuePairs, Routing, Walker};
use fabric::{Fabric, LinkId, NodeId, NodeKind, Routes};
use traffic::{Connection, Transfers};
use units::{Bytes, Id};

use crate::packet::Packet;
use crate::port::{NOWHERE, Port};
use crate::settings::Settings;
use crate::simulation::Simulation;

/// The paths of all queue pairs, and what is needed to choose anew.
#[derive(Debug)]
pub(crate) struct Network {
    /// The policy.
    pub routing: Box<dyn Routing>,
    /// Next hops in the present state of health.
    pub routes: Routes,
    /// What the packets of each queue pair show, forth and back.
    pub keys: Vec<(FlowKey, FlowKey)>,
    /// The first queue pair of each connection, or nowhere for scale-up connections.
    pub first_pair: Vec<u32>,
    /// Where the path of each scale-up connection begins in the list of paths.
    pub first_serial: Vec<u32>,
    /// How many queue pairs each connection has.
    pub pairs_of: Vec<u16>,
    walker: Walker,
    candidates: Vec<LinkId>,
}

impl Network {
    /// Opens the queue pairs of all connections, in order.
    pub(crate) fn new(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> Self {
        let config = &settings.routing;
        let mut queue_pairs = QueuePairs::new(fabric, config, settings.seed);
        let (mut keys, mut first_pair, mut pairs_of) = (Vec::new(), Vec::new(), Vec::new());
        for connection in transfers.connections() {
            if is_scale_up(fabric, connection) {
                first_pair.push(NOWHERE);
                pairs_of.push(0);
                continue;
            }
            let count =
                if connection.queue_pairs == 0 { config.qps } else { connection.queue_pairs };
            first_pair.push(keys.len() as u32);
            pairs_of.push(count.max(1));
            for _ in 0..count.max(1) {
                let key = queue_pairs.open(connection.from, connection.to);
                keys.push((key, reversed(&key)));
            }
        }
        Self {
            routing: config.build(fabric, settings.seed),
            routes: Routes::default(),
            keys,
            first_pair,
            pairs_of,
            first_serial: vec![NOWHERE; transfers.connections().len()],
            walker: Walker::default(),
            candidates: Vec::new(),
        }
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

    /// The path of a flow.
    pub(crate) fn walk(&mut self, fabric: &Fabric, key: &FlowKey) -> Result<&[LinkId], NoPath> {
        self.walker.path(fabric, &mut self.routes, self.routing.as_mut(), key, 0)
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

/// What an acknowledgement shows. Linux derives the same source port at both ends.
fn reversed(key: &FlowKey) -> FlowKey {
    FlowKey { from: key.to, to: key.from, src_ip: key.dst_ip, dst_ip: key.src_ip, ..*key }
}

/// What a policy may know of the queues.
struct Queues<'a>(&'a [Port]);

impl Load for Queues<'_> {
    fn queued(&self, link: LinkId) -> Bytes {
        Bytes::new(u64::from(self.0[link.index()].total_queued()))
    }
}

impl Simulation<'_> {
    /// Asks the policy at the end of a link where a packet goes on.
    pub(crate) fn choose_link(&mut self, link: usize, packet: &Packet) -> usize {
        let at = self.fabric.links()[LinkId::from_index(link)].to;
        self.choose_at(at, packet.route as usize, packet.psn)
    }

    /// Asks the policy at a node where a packet of a queue pair goes on.
    pub(crate) fn choose_at(&mut self, at: NodeId, pair: usize, psn: u32) -> usize {
        let network = &mut self.network;
        let (key, _) = network.keys[pair];
        network.routes.next_hops(self.fabric, at, key.to, &mut network.candidates);
        let count = match network.routing.grain() {
            Grain::Flow => 0,
            Grain::Flowlet { .. } => u64::from(self.pairs[pair].choices),
            Grain::Packet => u64::from(psn),
        };
        let candidates = std::mem::take(&mut self.network.candidates);
        let chosen = match candidates.as_slice() {
            [] => NOWHERE as usize,
            [only] => only.index(),
            several => {
                for link in several {
                    self.catch_up(link.index());
                }
                let load = Queues(&self.ports);
                let routing = &mut self.network.routing;
                several[routing.choose(at, &key, count, several, &load)].index()
            }
        };
        self.network.candidates = candidates;
        chosen
    }
}
