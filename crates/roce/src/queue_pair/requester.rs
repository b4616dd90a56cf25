//! The half of a queue pair that sends requests and waits for their acknowledgement.

use std::collections::{BTreeSet, VecDeque};

use packetsim::cc;
use units::{Bytes, Span, Time};

use super::{Broken, Config, Counters, Event, Kind, Memory, Repeat, Work};
use crate::header::{Aeth, Bth, Headers, Reth, Syndrome, rnr_wait_us};
use crate::opcode::{Opcode, Operation};
use crate::psn;

/// Work with the numbers of its packets.
#[derive(Clone, Copy, Debug)]
struct Pending {
    first: u64,
    packets: u64,
    work: Work,
}

impl Pending {
    fn end(&self) -> u64 {
        self.first + self.packets
    }

    fn is_read(&self) -> bool {
        matches!(self.work.kind, Kind::Read { .. })
    }
}

/// Numbers are counts ([`psn`]): everything before `oldest` is acknowledged, everything before
/// `frontier` was sent at least once, and `cursor` is what comes next.
#[derive(Debug)]
pub(super) struct Requester {
    works: VecDeque<Pending>,
    oldest: u64,
    cursor: u64,
    frontier: u64,
    end: u64,
    /// Selective repeat: what is to be sent again, and what is known to have arrived early.
    again: BTreeSet<u64>,
    early: BTreeSet<u64>,
    /// From `oldest` on: when it was last sent.
    sent_at: VecDeque<Time>,
    /// Payload that was sent for the first time, and that was acknowledged.
    sent_bytes: u64,
    acknowledged_bytes: u64,
    /// When something was last heard, or first sent after silence.
    heard_at: Time,
    tries: u8,
    rnr_tries: u8,
    /// The receiver asked to wait until then.
    wait_until: Option<Time>,
    /// The oldest number when a missing answer to a READ was last asked for again.
    asked_again: Option<u64>,
    /// Where a receiver admits: what it has cleared, as a count.
    pub(super) cleared: Option<u64>,
    pub(super) ready_at: Time,
    pub(super) control: Box<dyn cc::Sender>,
}

impl Requester {
    pub(super) fn new(config: &Config, control: Box<dyn cc::Sender>) -> Self {
        let first = psn::first(config.send_psn);
        Self {
            works: VecDeque::new(),
            oldest: first,
            cursor: first,
            frontier: first,
            end: first,
            again: BTreeSet::new(),
            early: BTreeSet::new(),
            sent_at: VecDeque::new(),
            sent_bytes: 0,
            acknowledged_bytes: 0,
            heard_at: Time::ZERO,
            tries: 0,
            rnr_tries: 0,
            wait_until: None,
            asked_again: None,
            cleared: None,
            ready_at: Time::ZERO,
            control,
        }
    }

    pub(super) fn post(&mut self, config: &Config, now: Time, work: Work) {
        if self.is_idle() {
            self.heard_at = now;
        }
        let packets = u64::from(work.length.div_ceil(config.mtu).max(1));
        self.works.push_back(Pending { first: self.end, packets, work });
        self.end += packets;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.oldest == self.end
    }

    /// Acknowledges all before `through`; answers to reads that are missing stop it.
    fn acknowledge(
        &mut self,
        now: Time,
        through: u64,
        marked: bool,
        config: &Config,
        events: &mut VecDeque<Event>,
    ) {
        let through = through.min(self.frontier);
        if through <= self.oldest {
            return;
        }
        let mut size = 0;
        let mut sent_at = Time::ZERO;
        for number in self.oldest..through {
            size += u64::from(self.payload_of(config, number).1);
            sent_at = self.sent_at.pop_front().unwrap_or(now);
        }
        self.acknowledged_bytes += size;
        self.oldest = through;
        self.cursor = self.cursor.max(through);
        self.heard_at = now;
        (self.tries, self.rnr_tries) = (0, 0);
        self.again = self.again.split_off(&through);
        self.early = self.early.split_off(&through);
        while let Some(done) = self.works.front().filter(|work| work.end() <= through) {
            events.push_back(Event::Done { id: done.work.id });
            self.works.pop_front();
        }
        let ack = cc::Ack {
            size: Bytes::new(size),
            through: self.acknowledged_bytes,
            sent_through: self.sent_bytes,
            sent_at,
            marked,
            hops: &[],
        };
        self.control.on_ack(now, &ack);
    }

    /// The first number before `through` whose answer to a READ is missing.
    fn missing_answer(&self, through: u64) -> Option<u64> {
        let read = self.works.iter().find(|pending| pending.is_read())?;
        let first = read.first.max(self.oldest);
        (first < through.min(self.frontier)).then_some(first)
    }

    /// A packet is missing, or one has arrived, and says nothing of those before it.
    fn on_selective(&mut self, now: Time, number: u64, aeth: Aeth) {
        if matches!(aeth.syndrome, Syndrome::Nak(_)) {
            self.control.on_loss(now, cc::Loss::Reported);
            if (self.oldest..self.cursor).contains(&number) {
                self.again.insert(number);
            }
            return;
        }
        // What was asked for is sent again even so, as by the packet engine.
        let named = psn::near(aeth.msn, self.oldest);
        if (self.oldest..self.frontier).contains(&named) {
            self.early.insert(named);
        }
    }

    /// An acknowledgement, positive or negative, of this number; with a mark or without.
    pub(super) fn on_acknowledge(
        &mut self,
        config: &Config,
        now: Time,
        (number, marked): (u32, bool),
        aeth: Aeth,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Broken> {
        let syndrome = aeth.syndrome;
        let number = psn::near(number, self.oldest);
        if self.frontier <= number {
            return Ok(()); // Of something never sent.
        }
        let is_gap = syndrome == Syndrome::Nak(crate::header::NakCode::PsnSequence);
        let is_selective = config.repeat == Repeat::Selective;
        if is_selective && (is_gap || matches!(syndrome, Syndrome::Ack { .. })) {
            self.on_selective(now, number, aeth);
        }
        let through = match syndrome {
            Syndrome::Ack { .. } => number + 1,
            // There, what is missing may be far behind what has arrived.
            _ if is_gap && is_selective => return Ok(()),
            _ => number,
        };
        if let Some(read) = self.missing_answer(through) {
            self.acknowledge(now, read, marked, config, events);
            self.ask_again();
            return Ok(());
        }
        self.acknowledge(now, through, marked, config, events);
        match syndrome {
            Syndrome::Nak(code) if code != crate::header::NakCode::PsnSequence => {
                return Err(Broken::Refused(code));
            }
            Syndrome::Nak(_) if number == self.oldest => {
                self.control.on_loss(now, cc::Loss::Reported);
                self.heard_at = now;
                self.cursor = number;
            }
            Syndrome::RnrNak { timer } if number == self.oldest => {
                self.rnr_tries += 1;
                if config.rnr_retries < self.rnr_tries && config.rnr_retries < 7 {
                    return Err(Broken::NotReady);
                }
                self.rnr_tries = self.rnr_tries.min(100);
                self.wait_until = Some(now + Span::from_us(rnr_wait_us(timer).into()));
                self.heard_at = now;
                self.cursor = number;
                self.again.clear();
                self.early.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Goes back to the READ that lacks its answer, once.
    fn ask_again(&mut self) {
        if self.asked_again != Some(self.oldest) {
            self.asked_again = Some(self.oldest);
            self.cursor = self.oldest;
        }
    }

    /// A part of the answer to a READ.
    pub(super) fn on_response(
        &mut self,
        config: &Config,
        now: Time,
        number: u32,
        payload: &[u8],
        memory: &mut dyn Memory,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Broken> {
        let number = psn::near(number, self.oldest);
        let Some(read) = self.works.iter().find(|pending| pending.is_read()).copied() else {
            return Ok(());
        };
        if !(read.first..read.end()).contains(&number) || self.frontier <= number {
            return Ok(()); // Old, or of a later READ: that one will be asked for again.
        }
        // It says that all before the READ has arrived.
        self.acknowledge(now, read.first, false, config, events);
        if self.oldest < number {
            self.ask_again();
        }
        if number != self.oldest {
            return Ok(());
        }
        let at = (number - read.first) * u64::from(config.mtu);
        let expected = (u64::from(read.work.length) - at).min(config.mtu.into());
        if payload.len() as u64 != expected {
            return Ok(()); // Malformed: as if lost.
        }
        if !memory.write(read.work.key, read.work.address + at, payload) {
            return Err(Broken::LocalAccess);
        }
        self.acknowledge(now, number + 1, false, config, events);
        Ok(())
    }

    /// Where the payload of a number begins in its work, and how long it is; a READ's is not sent.
    fn payload_of(&self, config: &Config, number: u64) -> (u64, u32) {
        let pending = &self.works[self.index_of(number)];
        let at = (number - pending.first) * u64::from(config.mtu);
        (at, (u64::from(pending.work.length) - at).min(config.mtu.into()) as u32)
    }

    /// Which of the works a number belongs to.
    fn index_of(&self, number: u64) -> usize {
        self.works.partition_point(|pending| pending.end() <= number)
    }

    /// The next request that may leave: one that is to be sent again, or a new one.
    pub(super) fn next_request(
        &mut self,
        config: &Config,
        now: Time,
        memory: &dyn Memory,
        payload: &mut Vec<u8>,
        counters: &mut Counters,
    ) -> Result<Option<Headers>, Broken> {
        if self.wait_until.is_some_and(|until| now < until) {
            return Ok(None);
        }
        self.wait_until = None;
        let (number, is_gap) = match self.again.pop_first() {
            Some(number) => (number, true),
            None if self.may_send(config) => (self.cursor, false),
            None => return Ok(None),
        };
        let pending = self.works[self.index_of(number)];
        let (at, length) = self.payload_of(config, number);
        if self.oldest == self.frontier && number == self.frontier {
            self.heard_at = now;
        }
        let next = if pending.is_read() { pending.end() } else { number + 1 };
        let is_new = self.frontier < next;
        if !pending.is_read() {
            let source = pending.work.address + at;
            if !memory.read(pending.work.key, source, length as usize, payload) {
                return Err(Broken::LocalAccess);
            }
        }
        counters.sent += 1;
        if is_new {
            let fresh =
                if pending.is_read() { u64::from(pending.work.length) } else { length.into() };
            self.sent_bytes += fresh;
            counters.bytes += fresh;
        }
        counters.retransmitted += u64::from(number < self.frontier);
        self.frontier = self.frontier.max(next);
        let known = (self.frontier - self.oldest) as usize;
        self.sent_at.resize(known, now);
        if let Some(slot) = self.sent_at.get_mut((number - self.oldest) as usize) {
            *slot = now;
        }
        let last_allowed = !is_gap && {
            self.cursor = next;
            !self.may_send(config)
        };
        Ok(Some(headers(config, &pending, number, last_allowed || !is_new)))
    }

    /// Whether the windows leave room, and there is something to send.
    fn may_send(&self, config: &Config) -> bool {
        let under_way = self.cursor - self.oldest;
        let bytes = under_way * u64::from(config.mtu);
        self.cursor < self.end
            && self.cleared.is_none_or(|cleared| self.cursor < cleared)
            && under_way < config.window
            && (under_way == 0 || bytes < self.control.limit().window.get())
    }

    /// A packet of so many bytes left: when the next may.
    pub(super) fn pace(&mut self, config: &Config, now: Time, bytes: usize, payload: usize) {
        let rate = self.control.limit().rate.as_bps().max(1);
        let takes = 8_000_000_000_000 * bytes as u128 / u128::from(rate);
        let earliest = Time::from_ps(now.as_ps().saturating_sub(config.burst.as_ps()));
        let takes = Span::from_ps(takes.min(3_600_000_000_000_000) as u64);
        self.ready_at = self.ready_at.max(earliest) + takes;
        self.control.on_sent(now, Bytes::new(payload as u64));
    }

    pub(super) fn deadline(&self, config: &Config, is_held: bool) -> Option<Time> {
        let timeout = (self.oldest < self.frontier).then(|| self.heard_at + config.timeout);
        let can_send = !is_held && (!self.again.is_empty() || self.may_send(config));
        let send = can_send.then(|| self.ready_at.max(self.wait_until.unwrap_or(Time::ZERO)));
        let timeout = timeout.map(|at| at.max(self.wait_until.unwrap_or(Time::ZERO)));
        let all = [timeout, send, self.control.deadline()];
        all.into_iter().flatten().min()
    }

    /// Everything is to be sent again that is not known to have arrived. If that is nothing, one
    /// packet asks for the acknowledgement.
    fn repeat_missing(&mut self) {
        self.again.clear();
        let mut number = self.oldest;
        while number < self.cursor {
            let pending = &self.works[self.index_of(number)];
            // A READ has arrived when its answer has.
            let is_read = pending.is_read();
            let next = if is_read { pending.end() } else { number + 1 };
            if is_read || !self.early.contains(&number) {
                self.again.insert(number);
            }
            number = next;
        }
        if self.again.is_empty() {
            self.again.insert(self.oldest);
        }
    }

    pub(super) fn on_timer(
        &mut self,
        config: &Config,
        now: Time,
        counters: &mut Counters,
    ) -> Result<(), Broken> {
        while self.control.deadline().is_some_and(|at| at <= now) {
            self.control.on_timer(now);
        }
        let waits = self.wait_until.is_some_and(|until| now < until);
        if self.oldest == self.frontier || now < self.heard_at + config.timeout || waits {
            return Ok(());
        }
        counters.timeouts += 1;
        if config.retries <= self.tries {
            return Err(Broken::Silence);
        }
        self.tries += 1;
        self.heard_at = now;
        match config.repeat {
            Repeat::GoBackN => self.cursor = self.oldest,
            Repeat::Selective => self.repeat_missing(),
        }
        self.asked_again = None;
        self.control.on_loss(now, cc::Loss::Timeout);
        Ok(())
    }
}

/// The headers of a packet of some work.
fn headers(config: &Config, pending: &Pending, number: u64, ask: bool) -> Headers {
    let at = number - pending.first;
    let (is_first, is_last) = (at == 0, number + 1 == pending.end());
    let operation = operation(pending.work.kind, is_first, is_last);
    let mut headers =
        Headers::new(Bth::new(Opcode::rc(operation), config.remote, psn::wire(number)));
    headers.bth.ack_request = is_last || ask;
    match pending.work.kind {
        Kind::Send { immediate } => headers.immediate = immediate.filter(|_| is_last),
        Kind::Write { address, key, immediate } => {
            let length = pending.work.length;
            headers.reth = is_first.then_some(Reth { address, key, length });
            headers.immediate = immediate.filter(|_| is_last);
        }
        Kind::Read { address, key } => {
            let before = at * u64::from(config.mtu);
            let length = pending.work.length - before as u32;
            headers.reth = Some(Reth { address: address + before, key, length });
            headers.bth.ack_request = true;
        }
    }
    headers
}

fn operation(kind: Kind, is_first: bool, is_last: bool) -> Operation {
    use Operation::{
        ReadRequest, SendFirst, SendLast, SendLastImmediate, SendMiddle, SendOnly,
        SendOnlyImmediate, WriteFirst, WriteLast, WriteLastImmediate, WriteMiddle, WriteOnly,
        WriteOnlyImmediate,
    };
    match (kind, is_first, is_last) {
        (Kind::Read { .. }, ..) => ReadRequest,
        (Kind::Send { immediate: Some(_) }, true, true) => SendOnlyImmediate,
        (Kind::Send { immediate: Some(_) }, false, true) => SendLastImmediate,
        (Kind::Send { .. }, true, true) => SendOnly,
        (Kind::Send { .. }, true, false) => SendFirst,
        (Kind::Send { .. }, false, false) => SendMiddle,
        (Kind::Send { .. }, false, true) => SendLast,
        (Kind::Write { immediate: Some(_), .. }, true, true) => WriteOnlyImmediate,
        (Kind::Write { immediate: Some(_), .. }, false, true) => WriteLastImmediate,
        (Kind::Write { .. }, true, true) => WriteOnly,
        (Kind::Write { .. }, true, false) => WriteFirst,
        (Kind::Write { .. }, false, false) => WriteMiddle,
        (Kind::Write { .. }, false, true) => WriteLast,
    }
}
