//! The process of a rank: reads its plan, waits for the word, sends and receives, tells.
//!
//! Standard input: a line with the name of the run and the plan, a line `go`; its end is the end of
//! the process. Standard output: one line of JSON for each [`RankMessage`]. The process blocks in
//! `ppoll` and never spins.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use packetsim::admission::{AdmissionPolicy, GrantLedger, SenderDemand};
use packetsim::cc::Circumstances;
use roce::packet::{decode, decode_ip, encode, encode_ip};
use roce::queue_pair::{Config, Event, Kind, Receive, Repeat, Work};
use roce::{Envelope, Icrc, QueuePair};
use units::{Bytes, Rate, Span, Time};

use crate::capture::Capture;
use crate::frame::{self, CONTROL_DSCP};
use crate::memory::{CLEARED, CLEARS, Regions};
use crate::plan::{After, PairResult, RankMessage, RankPlan, RankResult, Task, WirePlan};
use crate::record;
use crate::wire::Wire;

/// The queue pair's ECN bits of packets with data: capable, ECT(0).
const CAPABLE: u8 = 2;

/// What a rank posts for itself, beside messages: nobody waits for it.
const OWN: u64 = u64::MAX;

/// Above the number of an operation: it is a READ of its receiver.
const READ: u64 = 1 << 32;

/// How often what has arrived is written down.
const SAMPLE: Span = Span::from_ms(100);

/// How many packets may wait for sockets before queue pairs are asked for no more.
const MOST_WAITING: usize = 64;

/// Runs a rank with the standard streams of this process, and a socket for its own server.
pub fn main(local: UnixDatagram) -> Result<(), String> {
    let mut lines = io::stdin().lock();
    let mut line = || {
        let mut text = String::new();
        let read = lines.read_line(&mut text);
        read.map(|_| text).map_err(|error| format!("cannot read standard input: {error}"))
    };
    let text = line()?;
    if text.is_empty() {
        return Ok(());
    }
    let (run, task): (String, Task) =
        serde_json::from_str(&text).map_err(|error| format!("the plan is malformed: {error}"))?;
    let failed = |error: io::Error| format!("cannot open sockets: {error}");
    let plan = match task {
        Task::Run(plan) => plan,
        Task::Probe(plan) => {
            let mut prober = crate::trace::Prober::open(plan, &run, local).map_err(failed)?;
            tell(&RankMessage::Ready);
            if line()?.trim() == "go" {
                let traced = prober.run().map_err(|error| format!("probing: {error}"))?;
                tell(&RankMessage::Traced(traced));
                // The others may still be listening: the end of the input is everybody's.
                line()?;
            }
            return Ok(());
        }
    };
    let mut rank = Rank::open(*plan, &run, local).map_err(failed)?;
    tell(&RankMessage::Ready);
    match line()?.trim() {
        "go" => rank.run(),
        "" => Ok(()),
        other => Err(format!("the word to begin is `go`, not `{other}`")),
    }
}

/// Tells the controller something; a controller that is gone hears nothing.
pub fn tell(told: &RankMessage) {
    let mut out = io::stdout().lock();
    let text = serde_json::to_string(told).expect("plain data");
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// A message that is to be sent.
struct Outgoing {
    waits: u32,
    parts_left: u32,
}

struct Rank {
    plan: RankPlan,
    wire: Wire,
    pairs: Vec<QueuePair>,
    /// By number at this end: which.
    by_number: BTreeMap<u32, usize>,
    memory: Regions,
    outgoing: Vec<Outgoing>,
    /// By operation: which message of this rank it is.
    sends: BTreeMap<u32, usize>,
    receives: BTreeMap<u32, usize>,
    parts_missing: Vec<u32>,
    /// By what happens: the messages that wait for it.
    after_arrival: BTreeMap<u32, Vec<usize>>,
    after_knowing: BTreeMap<u32, Vec<usize>>,
    left: usize,
    capture: Option<Capture>,
    log: Option<record::Log>,
    /// What this rank has granted, as a receiver.
    ledger: GrantLedger<usize>,
    /// By queue pair: how far it was granted, what of that was given back, whether it waits.
    grants: Vec<(u32, u32, bool)>,
    /// By queue pair: packets that had arrived, every [`SAMPLE`].
    arrived: Vec<Vec<u64>>,
    next_sample: Time,
    /// When this rank's link is free again, where nothing else shapes it.
    link_free: Time,
    /// The queue pair that is asked for a packet first.
    turn: usize,
    paused: bool,
    begin: Instant,
    result: RankResult,
}

impl Rank {
    fn open(plan: RankPlan, run: &str, local: UnixDatagram) -> io::Result<Self> {
        let wire = Wire::open(&plan, run, local)?;
        let about = Circumstances {
            line: Rate::from_bps(plan.line_bps),
            base_rtt: Span::from_us(plan.base_rtt_us),
            hops: plan.hops,
            mtu: Bytes::new(plan.mtu.into()),
        };
        let log = plan.record.as_deref().map(record::create).transpose()?;
        let mut pairs = Vec::new();
        let mut by_number = BTreeMap::new();
        for pair in &plan.pairs {
            by_number.insert(pair.local, pairs.len());
            pairs.push(open_pair(&plan, pair, &about, log.as_ref()));
        }
        let mut after_arrival: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut after_knowing: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, send) in plan.sends.iter().enumerate() {
            for after in &send.after {
                match after {
                    After::Arrived(op) => after_arrival.entry(*op).or_default().push(at),
                    After::Known(op) => after_knowing.entry(*op).or_default().push(at),
                }
            }
        }
        let outgoing = plan.sends.iter().map(|send| Outgoing {
            waits: send.after.len() as u32,
            parts_left: send.parts.len() as u32,
        });
        let places = |ops: &mut dyn Iterator<Item = u32>| {
            ops.enumerate().map(|(at, op)| (op, at)).collect::<BTreeMap<u32, usize>>()
        };
        Ok(Self {
            memory: Regions::new(plan.rank, plan.bytes, plan.staging, plan.all_pairs),
            outgoing: outgoing.collect(),
            sends: places(&mut plan.sends.iter().map(|send| send.op)),
            receives: places(&mut plan.receives.iter().map(|receive| receive.op)),
            parts_missing: plan.receives.iter().map(|receive| receive.parts).collect(),
            after_arrival,
            after_knowing,
            left: plan.sends.len() + plan.receives.len(),
            capture: plan.pcap.as_deref().map(Capture::create).transpose()?,
            log,
            ledger: GrantLedger::default(),
            grants: vec![(0, 0, false); plan.pairs.len()],
            arrived: vec![Vec::new(); plan.pairs.len()],
            next_sample: Time::ZERO + SAMPLE,
            link_free: Time::ZERO,
            turn: 0,
            paused: false,
            begin: Instant::now(),
            result: RankResult { rank: plan.rank, ..RankResult::default() },
            plan,
            wire,
            pairs,
            by_number,
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from_ns(self.begin.elapsed().as_nanos() as u64)
    }

    fn run(&mut self) -> Result<(), String> {
        // Timers of this thread shall be as exact as the kernel can make them.
        let _ = nix::sys::prctl::set_timerslack(1);
        self.begin = Instant::now();
        for at in 0..self.outgoing.len() {
            if self.outgoing[at].waits == 0 {
                self.post(at);
            }
        }
        let mut told = false;
        let most = Duration::from_millis(self.plan.most_ms);
        loop {
            let rank = self.plan.rank;
            let failed = |error: io::Error| format!("rank {rank}: {error}");
            self.receive().map_err(failed)?;
            self.sample();
            self.events()?;
            self.admit();
            self.send().map_err(failed)?;
            self.events()?;
            if self.left == 0 && !told {
                told = true;
                self.finish();
                if let Some(capture) = self.capture.take() {
                    capture.finish().map_err(failed)?;
                }
                if let Some(log) = &self.log {
                    log.borrow_mut().flush().map_err(failed)?;
                }
                tell(&RankMessage::Done(Box::new(self.result.clone())));
            }
            if most < self.begin.elapsed() {
                let (ms, left) = (most.as_millis(), self.left);
                let more = self.state();
                return Err(format!(
                    "rank {rank}: {left} messages are not done after {ms} ms{more}"
                ));
            }
            if self.wait().map_err(failed)? {
                return Ok(());
            }
        }
    }

    /// What queue pairs that still have something to do counted, for whoever looks for the reason.
    fn state(&self) -> String {
        let busy = self.pairs.iter().zip(&self.plan.pairs).filter(|(pair, _)| !pair.is_idle());
        let told =
            busy.map(|(pair, plan)| format!("; to rank {}: {:?}", plan.peer, pair.counters()));
        told.take(3).collect()
    }

    /// Posts the parts of a message to their queue pairs; where receivers read, only tells them.
    fn post(&mut self, at: usize) {
        let now = self.now();
        let send = &self.plan.sends[at];
        self.result.posted_ns.push((send.op, self.begin.elapsed().as_nanos() as u64));
        for part in &send.parts {
            let (address, immediate) = (send.remote_address + part.offset, Some(send.op));
            let kind = Kind::Write { address, key: send.remote_key, immediate };
            let (id, key) = (send.op.into(), send.key);
            let (address, length) = (send.address + part.offset, part.bytes);
            let work = match self.plan.reads {
                true => tells(send.op),
                false => Work { id, kind, key, address, length },
            };
            self.pairs[part.pair as usize].post(now, work);
        }
    }

    /// As a receiver clears what may be sent to it, and as a sender obeys.
    fn admit(&mut self) {
        if self.plan.admission.policy != AdmissionPolicy::ReceiverDriven {
            return;
        }
        let rules = self.plan.admission.rules(self.plan.mtu);
        for at in 0..self.pairs.len() {
            let plan = &self.plan.pairs[at];
            if plan.sends {
                self.pairs[at].clear(self.memory.cleared(plan.id));
                continue;
            }
            let new = self.pairs[at].received() as u32 - self.grants[at].1;
            self.grants[at].1 += new;
            self.ledger.give_back(&rules, new);
            self.clear(at);
        }
        for _ in 0..self.ledger.waiting() {
            let Some(next) = self.ledger.next_in_turn(&rules) else { break };
            self.grants[next].2 = false;
            self.clear(next);
        }
    }

    /// Clears more of a queue pair, by a WRITE into its sender's memory.
    fn clear(&mut self, at: usize) {
        let rules = self.plan.admission.rules(self.plan.mtu);
        let plan = self.plan.pairs[at];
        let (granted, expected, queued) = self.grants[at];
        let asked = SenderDemand { expected, granted, end: plan.packets, queued };
        let (to, queued) = self.ledger.extend(&rules, at, asked);
        self.grants[at] = (to, expected, queued);
        if granted < to {
            self.memory.clear(plan.id, to.into());
            let place = 8 * u64::from(plan.id);
            let kind = Kind::Write { address: place, key: CLEARED, immediate: None };
            let work = Work { id: OWN, kind, key: CLEARS, address: place, length: 8 };
            let now = self.now();
            self.pairs[at].post(now, work);
        }
    }

    /// Writes down what has arrived, every so often.
    fn sample(&mut self) {
        let now = self.now();
        while self.next_sample <= now {
            for (arrived, pair) in self.arrived.iter_mut().zip(&self.pairs) {
                arrived.push(pair.received());
            }
            self.next_sample += SAMPLE;
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let now = self.now();
        let Self { wire, pairs, by_number, memory, result, capture, plan, paused, .. } = self;
        let mut failed = Ok(());
        wire.receive(|envelope, bytes| {
            if let Some(begins) = frame::read_pause(bytes).filter(|_| envelope.is_none()) {
                *paused = begins;
                result.paused += u64::from(begins);
                return;
            }
            let decoded = match envelope {
                Some(envelope) => decode(envelope, bytes),
                None => decode_ip(bytes),
            };
            let Ok(packet) = decoded else {
                result.malformed += 1;
                return;
            };
            let found = by_number.get(&packet.headers.bth.dest_qp).copied();
            if packet.icrc != Icrc::Right {
                result.icrc_wrong += 1;
                return;
            }
            let Some(at) = found else {
                result.strangers += 1;
                return;
            };
            if !plan.pairs[at].inside {
                result.packets[1] += 1;
                if let Some(capture) = capture {
                    let mut whole = Vec::new();
                    encode_ip(&packet.envelope, &packet.headers, packet.payload, &mut whole);
                    if let Err(error) = capture.add(&whole) {
                        failed = Err(error);
                    }
                }
            }
            let marked = packet.envelope.ecn() == 3;
            pairs[at].on_packet(now, &packet.headers, packet.payload, marked, memory);
        })?;
        failed
    }

    /// Asks queue pairs for packets in turn, until none has one or the sockets are full.
    fn send(&mut self) -> io::Result<()> {
        let mut payload = Vec::with_capacity(4096);
        let now = self.now();
        self.pairs.iter_mut().for_each(|pair| pair.on_timer(now));
        let (mut found, mut next) = (true, self.turn);
        while found && self.wire.waiting() < MOST_WAITING {
            found = false;
            for step in 0..self.pairs.len() {
                let at = (self.turn + step) % self.pairs.len();
                self.hold_back(now, at);
                let packet = self.pairs[at].next_packet(now, &self.memory, &mut payload);
                let Some(packet) = packet else { continue };
                (found, next) = (true, at + 1);
                let pair = &self.plan.pairs[at];
                let mut envelope = Envelope::new(self.plan.address, pair.address, pair.src_port);
                envelope.class = match (packet.is_data, pair.sends) {
                    (true, true) => self.plan.dscp << 2 | CAPABLE,
                    // What a receiver asks for or clears is small, and others wait for it.
                    (true, false) => CONTROL_DSCP << 2,
                    _ => self.plan.dscp << 2,
                };
                let mut bytes = Vec::with_capacity(payload.len() + 96);
                if pair.inside || self.plan.wire != WirePlan::Udp {
                    encode_ip(&envelope, &packet.headers, &payload, &mut bytes);
                } else {
                    encode(&envelope, &packet.headers, &payload, &mut bytes);
                }
                if !pair.inside {
                    self.link_free = after(&self.plan, self.link_free, now, bytes.len());
                    self.result.packets[0] += 1;
                    if let Some(capture) = &mut self.capture {
                        let mut whole = Vec::new();
                        encode_ip(&envelope, &packet.headers, &payload, &mut whole);
                        capture.add(&whole)?;
                    }
                }
                let inside = pair.inside.then_some(pair.peer);
                self.wire.send(&envelope, bytes, inside)?;
            }
            self.turn = next;
        }
        self.wire.flush()?;
        Ok(())
    }

    /// Holds data of a queue pair back that a pause, or the rank's own link, does not let go.
    fn hold_back(&mut self, now: Time, at: usize) {
        let is_full = self.plan.wire == WirePlan::Udp && now + BURST < self.link_free;
        self.pairs[at].hold((self.paused || is_full) && !self.plan.pairs[at].inside);
    }

    /// A message of another rank can be read here, on this queue pair.
    fn read(&mut self, op: u32, at: usize) {
        let now = self.now();
        let mine = |part: &&crate::plan::ReadPart| part.op == op && part.pair == at as u32;
        let Some(part) = self.plan.read_parts.iter().find(mine) else { return };
        let (kind, id) =
            (Kind::Read { address: part.from.1, key: part.from.0 }, READ | u64::from(op));
        let ((key, address), length) = (part.to, part.bytes);
        self.pairs[at].post(now, Work { id, kind, key, address, length });
    }

    /// Handles what queue pairs tell.
    fn events(&mut self) -> Result<(), String> {
        for at in 0..self.pairs.len() {
            while let Some(event) = self.pairs[at].next_event() {
                let (reads, sends) = (self.plan.reads, self.plan.pairs[at].sends);
                match event {
                    Event::Done { id: OWN } => {}
                    Event::Done { id } if READ <= id => {
                        let now = self.now();
                        self.pairs[at].post(now, tells(id as u32));
                        self.arrived(id as u32);
                    }
                    Event::Done { id } => self.known(id as u32),
                    Event::Received { immediate, .. } => {
                        let op = immediate.unwrap_or(u32::MAX);
                        match (reads, sends) {
                            (true, true) => self.known(op),
                            (true, false) => self.read(op, at),
                            _ => self.arrived(op),
                        }
                    }
                    Event::Broken(why) => {
                        let (rank, peer) = (self.plan.rank, self.plan.pairs[at].peer);
                        let counters = self.pairs[at].counters();
                        return Err(format!(
                            "rank {rank}: the connection with rank {peer} broke: {why:?}, \
                             {counters:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn known(&mut self, op: u32) {
        let Some(at) = self.sends.get(&op).copied() else { return };
        self.outgoing[at].parts_left -= 1;
        if self.outgoing[at].parts_left == 0 {
            self.left -= 1;
            self.result.known_ns.push((op, self.begin.elapsed().as_nanos() as u64));
            let waiting = self.after_knowing.remove(&op);
            self.release(waiting);
        }
    }

    fn arrived(&mut self, op: u32) {
        let Some(at) = self.receives.get(&op).copied() else { return };
        self.parts_missing[at] -= 1;
        if self.parts_missing[at] == 0 {
            self.left -= 1;
            let message = self.plan.receives[at];
            self.memory.arrived(&message);
            self.result.arrived_ns.push((op, self.begin.elapsed().as_nanos() as u64));
            let waiting = self.after_arrival.remove(&op);
            self.release(waiting);
        }
    }

    fn release(&mut self, waiting: Option<Vec<usize>>) {
        for at in waiting.into_iter().flatten() {
            self.outgoing[at].waits -= 1;
            if self.outgoing[at].waits == 0 {
                self.post(at);
            }
        }
    }

    /// Blocks until a packet, a deadline or the controller comes; whether the controller is gone.
    fn wait(&mut self) -> io::Result<bool> {
        let now = self.now();
        let deadlines = self.pairs.iter().filter_map(QueuePair::deadline);
        let mut next = deadlines.min().unwrap_or(now + Span::from_ms(100));
        if self.plan.wire == WirePlan::Udp && now + BURST < self.link_free {
            let free = Time::from_ps(self.link_free.as_ps() - BURST.as_ps());
            next = next.min(free + Span::from_us(1));
        }
        let mut timeout = next.max(now).since(now).min(Span::from_ms(100));
        if self.wire.waits_for_room() {
            // Nobody says when another process has made room; a link needs this for a packet.
            timeout = Span::from_us(200);
        } else if MOST_WAITING <= self.wire.waiting() {
            timeout = Span::from_ms(100);
        }
        let (inlets, full) = self.wire.sockets();
        let stdin = io::stdin();
        let mut sockets: Vec<PollFd<'_>> = vec![PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        sockets.extend(inlets.into_iter().map(|one| PollFd::new(one, PollFlags::POLLIN)));
        sockets.extend(full.into_iter().map(|one| PollFd::new(one, PollFlags::POLLOUT)));
        let timeout = TimeSpec::from(Duration::from_nanos(timeout.as_ps() / 1000));
        match ppoll(&mut sockets, Some(timeout), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Nothing more is said on standard input: whatever happens there is its end.
        Ok(sockets[0].revents().is_some_and(|events| !events.is_empty()))
    }

    fn finish(&mut self) {
        self.result.time_us = self.begin.elapsed().as_micros() as u64;
        self.result.wrong = self.memory.wrong(&self.plan.checks, self.plan.ranks);
        let arrived = std::mem::take(&mut self.arrived);
        let pairs = self.pairs.iter().zip(&self.plan.pairs).zip(arrived);
        let counted = pairs.filter(|((_, plan), _)| !plan.inside).map(|((pair, plan), arrived)| {
            let counters = pair.counters();
            PairResult {
                id: plan.id,
                sends: plan.sends,
                arrived: if plan.sends { Vec::new() } else { arrived },
                sent: counters.sent,
                retransmitted: counters.retransmitted,
                bytes: counters.bytes,
                acks: counters.acks,
                naks: counters.naks,
                not_ready: counters.not_ready,
                cnps: counters.cnps,
                notified: counters.notified,
                marked: counters.marked,
                duplicates: counters.duplicates,
                early: counters.early,
                timeouts: counters.timeouts,
                rate_bps: pair.limit().rate.as_bps(),
            }
        });
        self.result.pairs = counted.collect();
    }
}

/// What may leave at once, however fast the rank's link is.
const BURST: Span = Span::from_ms(1);

/// When a link is free after a packet that UDP carries.
fn after(plan: &RankPlan, free: Time, now: Time, bytes: usize) -> Time {
    let takes = 8_000_000_000_000 * bytes as u128 / u128::from(plan.line_bps.max(1));
    free.max(now) + Span::from_ps(takes as u64)
}

/// A message without bytes that tells the other end of an operation.
fn tells(op: u32) -> Work {
    let kind = Kind::Write { address: 0, key: crate::memory::DATA, immediate: Some(op) };
    Work { id: OWN, kind, key: crate::memory::DATA, address: 0, length: 0 }
}

/// A queue pair as the plan has it.
fn open_pair(
    plan: &RankPlan,
    pair: &crate::plan::PairPlan,
    about: &Circumstances,
    log: Option<&record::Log>,
) -> QueuePair {
    let config = Config {
        mtu: plan.mtu,
        window: plan.window,
        ack_every: (plan.window / 4).clamp(1, 16),
        timeout: Span::from_ms(plan.timeout_ms),
        repeat: if plan.selective { Repeat::Selective } else { Repeat::GoBackN },
        ..Config::new(pair.remote)
    };
    let (mut sender, mut receiver) = (plan.control.build(about), plan.control.receiver());
    if let Some(log) = log.filter(|_| !pair.inside) {
        sender = Box::new(record::Sender::new(pair.id, sender, log.clone()));
        receiver = receiver
            .map(|inner| Box::new(record::Receiver::new(pair.id, inner, log.clone())) as Box<_>);
    }
    let mut own = QueuePair::new(config, sender, receiver);
    if plan.admission.policy == AdmissionPolicy::ReceiverDriven && pair.sends {
        own.clear(0);
    }
    for id in 0..u64::from(pair.arrivals) {
        own.post_receive(Receive { id, key: 0, address: 0, capacity: 0 });
    }
    own
}
