//! Where connections go: their queue pairs' headers, the links that each takes, and the delays.
//!
//! All queue pairs are opened before the run, in the order of the connections, and keep their
//! numbers and ports. A queue pair is walked through the fabric when it is first used, and its way
//! is kept. Policies that spread packets have no single way: the flow goes over all candidates, at
//! each switch in equal or weighted shares. Scale-up connections always spread, because a GPU
//! stripes what it sends over all its links.

use fabric::graph::LinkClass;
use fabric::hash::{FlowKey, ROCE_V2_PORT, UDP, UdpSource};
use fabric::parts::Parts;
use fabric::routing::{
    Demand, EmptyQueues, Grain, KnownDemand, NoPath, QueuePairs, Routing, RoutingConfig, Spread,
    Walker,
};
use fabric::{Fabric, Health, Link, LinkId, NodeId, NodeKind, Routes};
use traffic::{Connection, ConnectionId, LinkUse, OpKind, Transfers};
use units::{Bytes, Id, IdVec};

use crate::bundles::{Bundles, Wide};

/// Not walked yet.
const UNKNOWN: u32 = u32::MAX;

/// A place in a list of links.
#[derive(Clone, Copy, Debug)]
struct Way {
    first: u32,
    length: u32,
}

/// The links of a connection with the share of its rate that each carries, and its delays.
#[derive(Clone, Debug, Default)]
pub struct Lay {
    /// Links and shares.
    pub entries: Vec<(u32, f64)>,
    /// Bundles of links, by place, and the share that each carries as a whole.
    pub wide: Vec<(u32, f64)>,
    /// From the first bit's departure to its arrival, in seconds: cables and switches.
    pub delay: f64,
    /// What store and forward adds for each byte of a packet, in seconds.
    pub per_byte: f64,
    /// On how many ways packets of one queue pair travel at most.
    pub ways: usize,
}

impl Lay {
    fn clear(&mut self) {
        self.entries.clear();
        self.wide.clear();
        (self.delay, self.per_byte, self.ways) = (0.0, 0.0, 1);
    }
}

/// The ways of all connections.
#[derive(Debug)]
pub struct Paths<'a> {
    fabric: &'a Fabric,
    routes: Routes,
    routing: Box<dyn Routing>,
    walker: Walker,
    /// The queue pairs of connection `c` are `first_key[c]..first_key[c + 1]`.
    first_key: Vec<u32>,
    keys: Vec<FlowKey>,
    ways: Vec<Way>,
    links: Vec<LinkId>,
    /// How often each queue pair has paused; empty unless the policy asks.
    flowlets: Vec<u32>,
    /// Where a planner has put each queue pair; empty unless the policy plans.
    planned: Vec<Option<Vec<LinkId>>>,
    /// By link: queue pairs that are spread over it among others.
    crossings: Vec<u32>,
    /// Sets of links that spread traffic uses together, where the fabric allows it.
    bundles: Option<Bundles>,
    bundle_crossings: Vec<u32>,
    wides: Vec<Wide>,
    hops: Vec<LinkId>,
    layer: Vec<(NodeId, f64)>,
    next_layer: Vec<(NodeId, f64)>,
    /// By class of links.
    delays: Vec<Delays>,
    /// By tier: the seconds that a switch takes.
    latencies: Vec<f64>,
    /// What parts of the fabric speak, where not all speak alike.
    parts: Option<Parts>,
}

/// What the links of a class take, in seconds.
#[derive(Clone, Copy, Debug)]
struct Delays {
    /// From end to end.
    cable: f64,
    /// For each byte, at full rate.
    byte: f64,
}

impl<'a> Paths<'a> {
    /// Opens all queue pairs.
    pub fn new(
        fabric: &'a Fabric,
        transfers: &Transfers,
        config: &RoutingConfig,
        health: Health,
        seed: u64,
    ) -> Self {
        let mut queue_pairs = QueuePairs::new(fabric, config, seed);
        let (mut first_key, mut keys) = (vec![0], Vec::new());
        for connection in transfers.connections() {
            for _ in 0..queue_pair_count(fabric, connection, config) {
                keys.push(queue_pairs.open(connection.from, connection.to));
            }
            first_key.push(u32::try_from(keys.len()).expect("under 2³² queue pairs"));
        }
        let routing = config.build(fabric, seed);
        let delays = |class: &LinkClass| {
            let (cable, byte) = (class.delay.as_secs_f64(), 1.0 / class.rate.bytes_per_s());
            Delays { cable, byte }
        };
        let pauses = matches!(routing.grain(), Grain::Flowlet { .. });
        let mut paths = Self {
            fabric,
            routes: Routes::new(health),
            routing,
            walker: Walker::default(),
            ways: vec![Way { first: UNKNOWN, length: 0 }; keys.len()],
            flowlets: if pauses { vec![0; keys.len()] } else { Vec::new() },
            first_key,
            keys,
            links: Vec::new(),
            planned: Vec::new(),
            crossings: Vec::new(),
            bundles: None,
            bundle_crossings: Vec::new(),
            wides: Vec::new(),
            hops: Vec::new(),
            layer: Vec::new(),
            next_layer: Vec::new(),
            delays: fabric.classes().iter().map(delays).collect(),
            latencies: fabric.tiers().iter().map(|tier| tier.latency.as_secs_f64()).collect(),
            parts: None,
        };
        if config.demand == KnownDemand::Planned {
            paths.plan(transfers);
        }
        paths
    }

    /// Lets packets that change their transport take this long for it.
    pub fn set_parts(&mut self, parts: &Parts) {
        self.parts = Some(parts.clone());
    }

    /// Lets evenly spread traffic treat parallel links as one, if the policy spreads everything
    /// and the fabric is regular and stays so.
    pub fn bundle(&mut self) {
        if self.routing.spread(Bytes::MAX) != Spread::One && self.routing.is_uniform() {
            self.bundles = Bundles::new(self.fabric, self.routes.health());
        }
    }

    /// The links of a bundle, by its place.
    pub fn bundled(&self, place: usize) -> impl Iterator<Item = LinkId> {
        self.bundles.iter().flat_map(move |bundles| bundles.links(self.fabric, place))
    }

    /// What a bundle carries if its links can carry so much: each carries the same, so that the
    /// narrowest decides for all.
    pub fn bundle_capacity(&self, place: usize, capacity: impl Fn(LinkId) -> f64) -> f64 {
        let narrowest = self.bundled(place).map(capacity).fold(f64::INFINITY, f64::min);
        self.bundled(place).map(|_| narrowest).sum()
    }

    /// Lets the policy plan with what it knows now: who will send how much to whom.
    pub fn plan(&mut self, transfers: &Transfers) {
        if self.routing.interval().is_none() {
            return;
        }
        let mut bytes = vec![0_u64; transfers.connections().len()];
        for op in transfers.ops() {
            match &op.kind {
                OpKind::Send { connection, bytes: more } => bytes[connection.index()] += more.get(),
                OpKind::Coupled { edges, bytes: more, .. } => {
                    for connection in transfers.coupled(edges) {
                        bytes[connection.index()] += more.get();
                    }
                }
                OpKind::Together { messages } => {
                    for (connection, more) in transfers.messages(messages) {
                        bytes[connection.index()] += more.get();
                    }
                }
                OpKind::Wait { .. } => {}
            }
        }
        self.plan_for(&bytes);
    }

    /// The same for what each connection is known to send.
    pub fn plan_for(&mut self, bytes: &[u64]) {
        let demands: Vec<Demand> = (0..bytes.len())
            .flat_map(|at| {
                let keys = self.range(at);
                let each = bytes[at] as f64 * 8.0 / keys.len().max(1) as f64;
                keys.map(move |key| (key, each))
            })
            .map(|(key, rate_bps)| Demand { key: self.keys[key], rate_bps })
            .collect();
        if let Some(paths) = self.routing.plan(self.fabric, &mut self.routes, &demands) {
            self.planned = paths;
            self.forget();
        }
    }

    /// The fabric.
    pub fn fabric(&self) -> &'a Fabric {
        self.fabric
    }

    /// The routing policy.
    pub fn routing(&self) -> &dyn Routing {
        self.routing.as_ref()
    }

    /// The state of the fabric that routes know of.
    pub fn health(&self) -> &Health {
        self.routes.health()
    }

    /// Routes follow a change of the fabric. Planned paths that cross a dead link are dropped.
    pub fn set_health(&mut self, health: Health) {
        for planned in &mut self.planned {
            if planned.as_ref().is_some_and(|path| path.iter().any(|link| health.is_down(*link))) {
                *planned = None;
            }
        }
        self.routes.set_health(health);
        self.forget();
    }

    /// How many queue pairs a connection has; 0 for scale-up connections.
    pub fn queue_pairs(&self, connection: ConnectionId) -> usize {
        self.range(connection.index()).len()
    }

    /// At how many of its ends a connection passes through a NIC.
    pub fn nics(&self, ends: &Connection) -> usize {
        [ends.from, ends.to].into_iter().filter(|node| is_nic(self.fabric, *node)).count()
    }

    /// A connection's queue pair has paused and may choose again.
    pub fn pause(&mut self, connection: ConnectionId, number: usize) {
        let key = self.first_key[connection.index()] as usize + number;
        self.flowlets[key] += 1;
        self.ways[key].first = UNKNOWN;
    }

    /// Lays one queue pair of a connection.
    pub fn lay_one(
        &mut self,
        connection: ConnectionId,
        number: usize,
        message: Bytes,
        lay: &mut Lay,
    ) -> Result<(), NoPath> {
        lay.clear();
        let key = self.first_key[connection.index()] as usize + number;
        self.add_queue_pair(key, message, 1.0, lay)
    }

    /// Lays all queue pairs of a connection, each with an equal share; adds to what is there.
    pub fn add_all(
        &mut self,
        connection: ConnectionId,
        ends: &Connection,
        message: Bytes,
        lay: &mut Lay,
    ) -> Result<(), NoPath> {
        let keys = self.range(connection.index());
        if ends.from == ends.to {
            return Ok(());
        }
        if keys.is_empty() {
            let from = lay.entries.len();
            let ends = (ends.from, ends.to);
            return self.spread(ends, Spread::Even, None, 1.0, lay).inspect_err(|_| {
                lay.entries.truncate(from);
            });
        }
        let share = 1.0 / keys.len() as f64;
        for key in keys {
            self.add_queue_pair(key, message, share, lay)?;
        }
        Ok(())
    }

    /// Lays all queue pairs of a connection, each with an equal share.
    pub fn lay_all(
        &mut self,
        connection: ConnectionId,
        ends: &Connection,
        message: Bytes,
        lay: &mut Lay,
    ) -> Result<(), NoPath> {
        lay.clear();
        self.add_all(connection, ends, message, lay)
    }

    /// Lays background traffic: one more queue pair, numbered outside of all others.
    pub fn lay_background(
        &mut self,
        (from, to): (NodeId, NodeId),
        number: u64,
        lay: &mut Lay,
    ) -> Result<(), NoPath> {
        lay.clear();
        let qpn = (1 << 23) | number as u32;
        let (src_ip, dst_ip) = (from.index() as u32, to.index() as u32);
        let src_port = UdpSource::Linux.port(src_ip, dst_ip, qpn, qpn + 1);
        let (protocol, dst_port, dst_qpn) = (UDP, ROCE_V2_PORT, qpn + 1);
        let key = FlowKey { from, to, src_ip, dst_ip, protocol, src_port, dst_port, dst_qpn };
        let routing = self.routing.as_mut();
        let way = self.walker.path(self.fabric, &mut self.routes, routing, &key, 0)?;
        lay.entries.extend(way.iter().map(|link| (link.index() as u32, 1.0)));
        Ok(())
    }

    /// An empty lay to add to.
    pub fn clear(&self, lay: &mut Lay) {
        lay.clear();
    }

    /// The queue pairs whose way is known, each with its connection's number and its links.
    pub fn known(&self) -> impl Iterator<Item = (ConnectionId, &FlowKey, &[LinkId])> {
        let connections = 0..self.first_key.len() - 1;
        let keys = connections.flat_map(|at| self.range(at).map(move |key| (at, key)));
        keys.filter(|(_, key)| self.ways[*key].first != UNKNOWN).map(|(at, key)| {
            (ConnectionId::from_index(at), &self.keys[key], self.links_of(self.ways[key]))
        })
    }

    /// Adds to each link's use the queue pairs that go over it.
    pub fn count(&self, links: &mut IdVec<LinkId, LinkUse>) {
        // Counted in a list of their own first: links are met in no order, and it fits a cache.
        let mut crossings = self.crossings.clone();
        crossings.resize(links.len(), 0);
        for (_, _, way) in self.known() {
            for &link in way {
                crossings[link.index()] += 1;
            }
        }
        for (at, crossing) in crossings.into_iter().enumerate() {
            links[LinkId::from_index(at)].flows += crossing;
        }
        for (place, crossing) in self.bundle_crossings.iter().enumerate() {
            for link in self.bundled(place) {
                links[link].flows += crossing;
            }
        }
    }

    fn range(&self, connection: usize) -> std::ops::Range<usize> {
        self.first_key[connection] as usize..self.first_key[connection + 1] as usize
    }

    fn links_of(&self, way: Way) -> &[LinkId] {
        &self.links[way.first as usize..][..way.length as usize]
    }

    fn forget(&mut self) {
        self.ways.fill(Way { first: UNKNOWN, length: 0 });
        self.links.clear();
        self.crossings.clear();
        self.bundle_crossings.clear();
    }

    fn add_queue_pair(
        &mut self,
        key: usize,
        message: Bytes,
        share: f64,
        lay: &mut Lay,
    ) -> Result<(), NoPath> {
        let FlowKey { from, to, .. } = self.keys[key];
        let spread = self.routing.spread(message);
        if self.add_bundles(key, share, lay) {
            return Ok(());
        }
        if spread != Spread::One {
            let first = lay.entries.len();
            self.spread((from, to), spread, Some((key, message)), share, lay)?;
            if self.ways[key].first == UNKNOWN {
                self.ways[key] = Way { first: 0, length: 0 };
                self.crossings.resize(self.fabric.links().len(), 0);
                for (link, _) in &lay.entries[first..] {
                    self.crossings[*link as usize] += 1;
                }
            }
            return Ok(());
        }
        let way = self.walk(key)?;
        let (mut delay, mut per_byte) = (0.0, 0.0);
        for at in 0..way.length as usize {
            let link = self.links[way.first as usize + at];
            lay.entries.push((link.index() as u32, share));
            self.add_delay(link, at == 0, &mut delay, &mut per_byte);
        }
        (lay.delay, lay.per_byte) = (lay.delay.max(delay), lay.per_byte.max(per_byte));
        Ok(())
    }

    /// Lays a queue pair over bundles, if that is possible.
    fn add_bundles(&mut self, key: usize, share: f64, lay: &mut Lay) -> bool {
        let Some(bundles) = &mut self.bundles else { return false };
        let FlowKey { from, to, .. } = self.keys[key];
        let ([first], [last]) = (self.fabric.ports(from), self.fabric.ports(to)) else {
            return false;
        };
        let last = self.fabric.reverse(*last);
        let links = self.fabric.links();
        let (start, end) = (links[*first].to, links[last].from);
        if bundles.between(self.fabric, start, end, &mut self.wides).is_none() {
            return false;
        }
        self.bundle_crossings.resize(bundles.len(), 0);
        let is_new = self.ways[key].first == UNKNOWN;
        self.ways[key] = Way { first: 0, length: 0 };
        let (mut delay, mut per_byte) = (0.0, 0.0);
        lay.entries.push((first.index() as u32, share));
        self.add_delay(*first, true, &mut delay, &mut per_byte);
        for at in 0..self.wides.len() {
            let place = self.wides[at].index();
            let bundles = self.bundles.as_ref().expect("asked for above");
            let mut members = bundles.links(self.fabric, place);
            let member = members.next().expect("a bundle has a link");
            lay.ways = lay.ways.max(1 + members.count());
            lay.wide.push((place as u32, share));
            self.bundle_crossings[place] += u32::from(is_new);
            self.add_delay(member, false, &mut delay, &mut per_byte);
        }
        lay.entries.push((last.index() as u32, share));
        self.add_delay(last, false, &mut delay, &mut per_byte);
        if is_new {
            self.crossings.resize(self.fabric.links().len(), 0);
            self.crossings[first.index()] += 1;
            self.crossings[last.index()] += 1;
        }
        (lay.delay, lay.per_byte) = (lay.delay.max(delay), lay.per_byte.max(per_byte));
        true
    }

    fn walk(&mut self, key: usize) -> Result<Way, NoPath> {
        if self.ways[key].first != UNKNOWN {
            return Ok(self.ways[key]);
        }
        let first = self.links.len() as u32;
        if let Some(Some(planned)) = self.planned.get(key) {
            self.links.extend_from_slice(planned);
        } else {
            let flowlet = self.flowlets.get(key).copied().unwrap_or(0);
            let routing = self.routing.as_mut();
            let way = self.walker.path(
                self.fabric,
                &mut self.routes,
                routing,
                &self.keys[key],
                flowlet.into(),
            )?;
            self.links.extend_from_slice(way);
        }
        let way = Way { first, length: self.links.len() as u32 - first };
        self.ways[key] = way;
        Ok(way)
    }

    fn add_delay(&self, link: LinkId, is_first: bool, delay: &mut f64, per_byte: &mut f64) {
        let Link { from, class, .. } = self.fabric.links()[link];
        if let Some(parts) = &self.parts
            && parts.has_gateway(self.fabric, link)
        {
            *delay += parts.gateway.latency.as_secs_f64();
        }
        let Delays { cable, byte } = self.delays[class.index()];
        *delay += cable + self.fabric.credit_wait(link).as_secs_f64();
        if !is_first {
            let from = self.fabric.nodes()[from];
            if from.kind == NodeKind::Switch {
                *delay += self.latencies[usize::from(from.tier)];
            }
            // The cells of a packet take all links at once.
            if self.fabric.carries_cells(link) {
                return;
            }
            *per_byte += match self.routes.health().has_slow_links() {
                true => 1.0 / self.routes.health().rate(self.fabric, link).bytes_per_s(),
                false => byte,
            };
        }
    }

    /// Leaves one of several candidates where the switches of this part do not spread.
    fn choose_at(&mut self, node: NodeId, of: Option<(usize, Bytes)>) {
        let Some((key, message)) = of.filter(|_| 1 < self.hops.len()) else { return };
        if !self.routing.spreads_at(node, message) {
            let chosen = self.routing.choose(node, &self.keys[key], 0, &self.hops, &EmptyQueues);
            self.hops.swap(0, chosen);
            self.hops.truncate(1);
        }
    }

    /// Spreads a flow over all candidates at each hop, layer by layer.
    fn spread(
        &mut self,
        (from, to): (NodeId, NodeId),
        spread: Spread,
        of: Option<(usize, Bytes)>,
        share: f64,
        lay: &mut Lay,
    ) -> Result<(), NoPath> {
        let (mut delay, mut per_byte) = (0.0, 0.0);
        self.layer.clear();
        self.layer.push((from, share));
        let mut hop = 0;
        while self.layer.iter().any(|(node, _)| *node != to) {
            self.next_layer.clear();
            let mut last = None;
            for at in 0..self.layer.len() {
                let (node, share) = self.layer[at];
                self.routes.next_hops(self.fabric, node, to, &mut self.hops);
                if self.hops.is_empty() {
                    return Err(NoPath { from, to, stuck_at: node });
                }
                self.choose_at(node, of);
                let weight = |link: LinkId| match spread {
                    Spread::Weighted => self.routes.health().rate(self.fabric, link).bytes_per_s(),
                    Spread::Even | Spread::One => 1.0,
                };
                let total: f64 = self.hops.iter().map(|link| weight(*link)).sum();
                for &link in &self.hops {
                    let part = share * weight(link) / total;
                    lay.entries.push((link.index() as u32, part));
                    self.next_layer.push((self.fabric.links()[link].to, part));
                }
                last = self.hops.last().copied();
            }
            let link = last.expect("every node of the layer led on");
            self.add_delay(link, hop == 0, &mut delay, &mut per_byte);
            lay.ways = lay.ways.max(self.next_layer.len());
            merge(&mut self.next_layer);
            std::mem::swap(&mut self.layer, &mut self.next_layer);
            hop += 1;
            assert!(hop < 256, "a path of 256 hops goes round in circles");
        }
        (lay.delay, lay.per_byte) = (lay.delay.max(delay), lay.per_byte.max(per_byte));
        Ok(())
    }
}

/// Adds up the shares of equal nodes.
fn merge(layer: &mut Vec<(NodeId, f64)>) {
    layer.sort_by_key(|(node, _)| *node);
    layer.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 += later.1;
        }
        same
    });
}

fn is_nic(fabric: &Fabric, node: NodeId) -> bool {
    matches!(fabric.nodes()[node].kind, NodeKind::Nic | NodeKind::FrontEndNic)
}

fn queue_pair_count(fabric: &Fabric, connection: &Connection, config: &RoutingConfig) -> u16 {
    let both = is_nic(fabric, connection.from) && is_nic(fabric, connection.to);
    match (both, connection.queue_pairs) {
        (false, _) => 0,
        (true, 0) => config.qps.max(1),
        (true, several) => several,
    }
}
