//! The analytic engine: latency and bandwidth terms on the real routes, nothing shares a link.
//!
//! Every operation is alone on the fabric: it takes its bytes over the tightest link on its way,
//! where its own edges and queue pairs do share, plus the latencies that the flow engine counts.
//! Operations wait only for what they depend on, and they depend only on earlier ones, so one pass
//! in their order is the whole run. Collisions inside one operation show; contention between two
//! does not: the difference to the flow engine is what sharing costs.

use fabric::{Fabric, LinkId};
use traffic::queue_pairs::nic_loads;
use traffic::{ConnectionId, Finding, LinkUse, OpId, OpKind, OpTimes, Outcome, Replay, Transfers};
use units::{Bound, Bytes, Id, IdVec, Span, Time};

use crate::capacity;
use crate::estimate::{allow_beginning, built_memory};
use crate::paths::{Lay, Paths};
use crate::settings::Settings;

/// Runs transfers as if each had the fabric for itself.
pub fn run(fabric: &Fabric, transfers: &Transfers, settings: &Settings) -> Outcome {
    run_within(fabric, transfers, settings, None).expect("nothing bounds it")
}

/// A run is held to its bound before each so many operations.
const HELD_EVERY: usize = 1_024;

/// The same, or a sentence where it would take more than it may.
pub fn run_within(
    fabric: &Fabric,
    transfers: &Transfers,
    settings: &Settings,
    bound: Option<Bound<'_>>,
) -> Result<Outcome, String> {
    allow_beginning(bound, built_memory(fabric, transfers, 100))?;
    let health = capacity::health(fabric, &settings.faults, Time::ZERO);
    let loads = nic_loads(fabric, transfers, &settings.routing, settings.wire.packet);
    let capacities = capacity::capacities(fabric, &health, settings, &loads, Time::ZERO);
    let mut paths = Paths::new(fabric, transfers, &settings.routing, health, settings.seed);
    paths.bundle();
    let links = fabric.links().len();
    let mut alone = Undisturbed {
        transfers,
        settings,
        paths,
        capacities,
        lay: Lay::default(),
        shares: vec![0.0; links],
        wide_shares: Vec::new(),
        wide_capacities: Vec::new(),
        touched: Vec::new(),
        bytes: vec![0.0; links],
        wide_bytes: Vec::new(),
        sent: vec![0.0; transfers.connections().len()],
    };
    let mut outcome = Outcome::default();
    // When each had arrived, and when its sender knew.
    let mut happened: IdVec<OpId, Option<(Time, Time)>> = IdVec::default();
    for op in transfers.ops().ids() {
        if let (0, Some(bound)) = (op.index() % HELD_EVERY, bound) {
            let ended = |why| format!("the run was ended at operation {}: {why}", op.index());
            bound().map_err(ended)?;
        }
        let start = Replay::start_of(transfers, |op| happened[op], op);
        let times = start.and_then(|start| match alone.duration(op) {
            Ok((way, way_and_back)) => {
                let (received, known) = (start + way, start + way_and_back);
                Some((OpTimes { start, received, finish: received.max(known) }, known))
            }
            Err(text) => {
                outcome.findings.push(Finding { at: start, text });
                None
            }
        });
        happened.push(times.map(|(times, known)| (times.received, known)));
        outcome.ops.push(times.map(|(times, _)| times));
    }
    let unfinished = outcome.ops.len() - outcome.completed();
    if 0 < unfinished {
        let text = format!("{unfinished} operations did not finish");
        outcome.findings.push(Finding { at: Time::ZERO + outcome.makespan(), text });
    }
    outcome.counters.events = transfers.ops().len() as u64;
    outcome.links = alone.link_use(fabric);
    Ok(outcome)
}

struct Undisturbed<'a, 'b> {
    transfers: &'b Transfers,
    settings: &'b Settings,
    paths: Paths<'a>,
    capacities: Vec<f64>,
    lay: Lay,
    /// By link: the share of the current operation's rate that crosses it.
    shares: Vec<f64>,
    wide_shares: Vec<f64>,
    wide_capacities: Vec<f64>,
    touched: Vec<u32>,
    bytes: Vec<f64>,
    wide_bytes: Vec<f64>,
    /// By connection: what it has sent.
    sent: Vec<f64>,
}

impl Undisturbed<'_, '_> {
    /// How long an operation takes to its end at the receiver, and until its sender knows.
    fn duration(&mut self, op: OpId) -> Result<(Span, Span), String> {
        let transfers = self.transfers;
        match &transfers.ops()[op].kind {
            OpKind::Wait { span } => Ok((*span, *span)),
            OpKind::Send { connection, bytes } => self.message(*connection, *bytes),
            // Each as if it were alone, as where they are written one by one.
            OpKind::Together { messages } => {
                let mut last = Span::ZERO;
                for &(connection, bytes) in transfers.messages(messages) {
                    last = last.max(self.message(connection, bytes)?.0);
                }
                Ok((last, last))
            }
            OpKind::Coupled { edges, bytes, fill } => {
                let moving = self.moving(transfers.coupled(edges), bytes.as_f64())?;
                let takes = Span::from_secs_f64(moving) + *fill;
                Ok((takes, takes))
            }
        }
    }

    /// How long a message takes, and until its sender knows.
    fn message(&mut self, connection: ConnectionId, bytes: Bytes) -> Result<(Span, Span), String> {
        let Settings { flow, wire, .. } = self.settings;
        let ends = &self.transfers.connections()[connection];
        let moving = self.moving(&[connection], bytes.as_f64())?;
        if ends.from == ends.to {
            return Ok((flow.protocol_latency, flow.protocol_latency));
        }
        let nics = wire.nic_latency * self.paths.nics(ends) as u64;
        let wires = Span::from_secs_f64(self.lay.delay);
        let packet = bytes.as_f64().min(wire.packet.as_f64());
        let moving = moving.max(self.window_s(connection, bytes.as_f64()));
        let forward = Span::from_secs_f64(moving + packet * self.lay.per_byte);
        // The receiving NIC acknowledges before its software knows.
        let way = flow.protocol_latency + forward + wires + nics;
        Ok((way, (way + wires).saturating_sub(nics / 2)))
    }

    /// How long the window of a connection's queue pairs makes its bytes take.
    fn window_s(&mut self, connection: ConnectionId, bytes: f64) -> f64 {
        let wire = &self.settings.wire;
        let pairs = self.paths.queue_pairs(connection) as f64;
        let (Some(window), true) = (wire.window, 0.0 < pairs) else { return 0.0 };
        let sent = self.sent[connection.index()];
        self.sent[connection.index()] += bytes;
        let store = self.lay.per_byte * wire.packet.as_f64();
        let line = self
            .lay
            .entries
            .first()
            .map_or(f64::INFINITY, |(first, _)| self.capacities[*first as usize]);
        let round_trip = 2.0 * self.lay.delay + store;
        window.least_s(bytes / pairs, sent / pairs, round_trip, line / pairs)
    }

    /// How long bytes take over all these connections at one rate.
    fn moving(&mut self, edges: &[ConnectionId], bytes: f64) -> Result<f64, String> {
        self.paths.clear(&mut self.lay);
        for &edge in edges {
            let ends = &self.transfers.connections()[edge];
            let message = Bytes::new(bytes as u64);
            let laid = self.paths.add_all(edge, ends, message, &mut self.lay);
            laid.map_err(|no_path| no_path.describe(self.paths.fabric()))?;
        }
        self.touched.clear();
        for &(link, share) in &self.lay.entries {
            if self.shares[link as usize] == 0.0 {
                self.touched.push(link);
            }
            self.shares[link as usize] += share;
        }
        let mut longest = 0.0_f64;
        for &link in &self.touched {
            let share = std::mem::take(&mut self.shares[link as usize]);
            longest = longest.max(share / self.capacities[link as usize]);
            self.bytes[link as usize] += share * bytes;
        }
        Ok(bytes * longest.max(self.wide(bytes)))
    }

    /// The same for what is spread over bundles.
    fn wide(&mut self, bytes: f64) -> f64 {
        self.touched.clear();
        for &(place, share) in &self.lay.wide {
            let at = place as usize;
            while self.wide_shares.len() <= at {
                let capacity = |link: LinkId| self.capacities[link.index()];
                let capacity = self.paths.bundle_capacity(self.wide_shares.len(), capacity);
                self.wide_shares.push(0.0);
                self.wide_capacities.push(capacity);
                self.wide_bytes.push(0.0);
            }
            if self.wide_shares[at] == 0.0 {
                self.touched.push(place);
            }
            self.wide_shares[at] += share;
        }
        let mut longest = 0.0_f64;
        for &place in &self.touched {
            let share = std::mem::take(&mut self.wide_shares[place as usize]);
            longest = longest.max(share / self.wide_capacities[place as usize]);
            self.wide_bytes[place as usize] += share * bytes;
        }
        longest
    }

    fn link_use(mut self, fabric: &Fabric) -> IdVec<LinkId, LinkUse> {
        for (place, bytes) in self.wide_bytes.iter().enumerate() {
            let share = bytes / self.paths.bundled(place).count() as f64;
            for link in self.paths.bundled(place) {
                self.bytes[link.index()] += share;
            }
        }
        let used = |link: LinkId| LinkUse {
            bytes: self.bytes[link.index()].round() as u64,
            ..LinkUse::default()
        };
        let mut links: IdVec<LinkId, LinkUse> = fabric.links().ids().map(used).collect();
        self.paths.count(&mut links);
        links
    }
}
