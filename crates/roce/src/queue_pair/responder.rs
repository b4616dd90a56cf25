//! The half of a queue pair that takes requests and answers them.

use std::collections::{BTreeMap, VecDeque};

use packetsim::cc;
use units::{Bytes, Time};

use super::{Broken, Config, Counters, Event, Memory, Outgoing, Receive, Repeat};
use crate::header::{Aeth, BITS_24, Bth, Headers, NakCode, Reth, Syndrome};
use crate::opcode::{Opcode, Operation};
use crate::packet::CNP_PAYLOAD;
use crate::psn;

/// How far ahead a selective receiver keeps what comes early.
const MOST_EARLY: u64 = 4096;

/// A message that has begun and not ended.
#[derive(Clone, Copy, Debug)]
enum Message {
    Send { into: Receive, bytes: u64 },
    Write { key: u32, address: u64, left: u64, bytes: u64 },
}

/// The answer to a READ, from a packet on.
#[derive(Clone, Copy, Debug)]
struct Answer {
    number: u64,
    key: u32,
    address: u64,
    left: u32,
    is_first: bool,
}

/// A negative answer that is due.
#[derive(Clone, Copy, Debug)]
struct Negative {
    number: u64,
    syndrome: Syndrome,
}

#[derive(Debug)]
pub(super) struct Responder {
    expected: u64,
    /// Messages completed.
    msn: u32,
    /// A gap was told, and nothing fitting has come since.
    told: bool,
    /// Selective repeat: everything missing before this number was told.
    told_before: u64,
    /// Selective repeat: missing numbers to tell, and early ones to acknowledge.
    missing: VecDeque<u64>,
    kept: VecDeque<u64>,
    pub(super) receives: VecDeque<Receive>,
    message: Option<Message>,
    early: BTreeMap<u64, (Headers, Vec<u8>)>,
    ack_due: bool,
    /// Packets in order since the last acknowledgement.
    unacked: u64,
    /// The packet at hand carries a mark that is to be echoed; and one before it did.
    echoes: bool,
    echo: bool,
    negative: Option<Negative>,
    cnp_due: bool,
    answers: VecDeque<Answer>,
    watcher: Option<Box<dyn cc::Receiver>>,
}

/// Why a request was not carried out.
enum Not {
    Ready,
    Allowed(NakCode),
}

impl Responder {
    pub(super) fn new(config: &Config, watcher: Option<Box<dyn cc::Receiver>>) -> Self {
        Self {
            expected: psn::first(config.receive_psn),
            msn: 0,
            told: false,
            told_before: 0,
            missing: VecDeque::new(),
            kept: VecDeque::new(),
            receives: VecDeque::new(),
            message: None,
            early: BTreeMap::new(),
            ack_due: false,
            unacked: 0,
            echoes: false,
            echo: false,
            negative: None,
            cnp_due: false,
            answers: VecDeque::new(),
            watcher,
        }
    }

    /// Packets that have arrived in order.
    pub(super) fn received(&self, config: &Config) -> u64 {
        self.expected - psn::first(config.receive_psn)
    }

    /// The receiving half of the congestion control sees every packet with data.
    pub(super) fn watch(&mut self, now: Time, bytes: usize, marked: bool, counters: &mut Counters) {
        let data = cc::Data { size: Bytes::new(bytes as u64), marked };
        let feedback = match &mut self.watcher {
            Some(watcher) => watcher.on_data(now, &data),
            None => cc::Feedback { echo: marked, notify: false },
        };
        self.echoes = feedback.echo;
        self.echo |= feedback.echo;
        if feedback.notify && !self.cnp_due {
            self.cnp_due = true;
            counters.cnps += 1;
        }
    }

    pub(super) fn on_request(
        &mut self,
        config: &Config,
        headers: &Headers,
        payload: &[u8],
        memory: &mut dyn Memory,
        counters: &mut Counters,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Broken> {
        let number = psn::near(headers.bth.psn, self.expected);
        if number < self.expected {
            counters.duplicates += 1;
            // The acknowledgement may have been lost.
            self.ack_due = true;
            if let (Operation::ReadRequest, Some(reth)) =
                (headers.bth.opcode.operation, headers.reth)
            {
                self.answer(number, reth);
            }
            return Ok(());
        }
        if self.expected < number {
            counters.early += 1;
            match config.repeat {
                Repeat::GoBackN => self.tell_gap(),
                Repeat::Selective => self.keep(number, headers, payload),
            }
            return Ok(());
        }
        self.told = false;
        // Acknowledgements of what came early said less than the sender must know now.
        self.ack_due |= self.echoes || !self.early.is_empty();
        self.carry_out(config, headers, payload, memory, counters, events)?;
        while let Some((headers, payload)) = self.early.remove(&self.expected) {
            if self.told {
                break;
            }
            self.carry_out(config, &headers, &payload, memory, counters, events)?;
        }
        Ok(())
    }

    /// Keeps what came early, tells each number before it that is missing and was not told, and
    /// acknowledges it.
    fn keep(&mut self, number: u64, headers: &Headers, payload: &[u8]) {
        if MOST_EARLY <= number - self.expected {
            return; // As if lost.
        }
        let is_new = !self.early.contains_key(&number);
        self.early.entry(number).or_insert_with(|| (*headers, payload.to_vec()));
        self.kept.push_back(number);
        if is_new {
            let untold = self.told_before.max(self.expected)..number;
            self.missing.extend(untold.filter(|one| !self.early.contains_key(one)));
            self.told_before = self.told_before.max(number);
        }
    }

    fn tell_gap(&mut self) {
        if !self.told {
            self.told = true;
            let syndrome = Syndrome::Nak(NakCode::PsnSequence);
            self.negative = Some(Negative { number: self.expected, syndrome });
        }
    }

    /// Does what the expected packet says.
    fn carry_out(
        &mut self,
        config: &Config,
        headers: &Headers,
        payload: &[u8],
        memory: &mut dyn Memory,
        counters: &mut Counters,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Broken> {
        let number = self.expected;
        match self.perform(config, headers, payload, memory, events) {
            Ok(packets) => {
                self.expected += packets;
                self.unacked += 1;
                self.ack_due |= headers.bth.ack_request || config.ack_every <= self.unacked;
                Ok(())
            }
            Err(Not::Ready) => {
                counters.not_ready += 1;
                self.told = true;
                // The sender goes back: what came early will come again.
                self.early.clear();
                (self.told_before, self.missing, self.kept) = Default::default();
                let syndrome = Syndrome::RnrNak { timer: config.rnr_timer };
                self.negative = Some(Negative { number, syndrome });
                Ok(())
            }
            Err(Not::Allowed(code)) => {
                let syndrome = Syndrome::Nak(code);
                self.negative = Some(Negative { number, syndrome });
                Err(Broken::Refused(code))
            }
        }
    }

    /// How many numbers the request takes.
    fn perform(
        &mut self,
        config: &Config,
        headers: &Headers,
        payload: &[u8],
        memory: &mut dyn Memory,
        events: &mut VecDeque<Event>,
    ) -> Result<u64, Not> {
        use Operation::{
            SendFirst, SendLast, SendLastImmediate, SendMiddle, SendOnly, SendOnlyImmediate,
            WriteFirst, WriteLast, WriteLastImmediate, WriteMiddle, WriteOnly, WriteOnlyImmediate,
        };
        let operation = headers.bth.opcode.operation;
        let invalid = Not::Allowed(NakCode::InvalidRequest);
        let begins = matches!(
            operation,
            SendFirst | SendOnly | SendOnlyImmediate | WriteFirst | WriteOnly | WriteOnlyImmediate
        );
        let ends = headers.immediate.is_some()
            || matches!(operation, SendLast | SendOnly | WriteLast | WriteOnly);
        if begins != self.message.is_none() && operation != Operation::ReadRequest {
            return Err(invalid);
        }
        // A message that does not end fills its packets.
        let full = payload.len() == config.mtu as usize;
        match operation {
            Operation::ReadRequest => {
                let reth = headers.reth.ok_or(invalid)?;
                self.msn = self.msn.wrapping_add(1) & BITS_24;
                self.answer(self.expected, reth);
                return Ok(u64::from(reth.length.div_ceil(config.mtu).max(1)));
            }
            SendFirst | SendMiddle | WriteFirst | WriteMiddle if full => {}
            SendLast | SendLastImmediate | SendOnly | SendOnlyImmediate => {}
            WriteLast | WriteLastImmediate | WriteOnly | WriteOnlyImmediate => {}
            _ => return Err(invalid),
        }
        let message = self.store(headers, payload, memory)?;
        self.message = Some(message);
        if ends {
            self.end(message, headers.immediate, events)?;
        }
        Ok(1)
    }

    /// Puts the payload where the message wants it; what the message has become.
    fn store(
        &mut self,
        headers: &Headers,
        payload: &[u8],
        memory: &mut dyn Memory,
    ) -> Result<Message, Not> {
        let access = Not::Allowed(NakCode::RemoteAccess);
        let size = payload.len() as u64;
        let is_send = headers.bth.opcode.operation < Operation::WriteFirst;
        let message = match (self.message, headers.reth) {
            (Some(message), None) => message,
            (None, Some(Reth { address, key, length })) => {
                Message::Write { key, address, left: length.into(), bytes: 0 }
            }
            (None, None) => {
                let into = *self.receives.front().ok_or(Not::Ready)?;
                Message::Send { into, bytes: 0 }
            }
            (Some(_), Some(_)) => return Err(Not::Allowed(NakCode::InvalidRequest)),
        };
        match message {
            Message::Send { into, bytes } if is_send => {
                let fits = bytes + size <= u64::from(into.capacity);
                if !fits || !memory.write(into.key, into.address + bytes, payload) {
                    return Err(access);
                }
                Ok(Message::Send { into, bytes: bytes + size })
            }
            Message::Write { key, address, left, bytes } if !is_send => {
                // A receive is taken at the end; nothing is written where there is none.
                if headers.immediate.is_some() && self.receives.is_empty() {
                    return Err(Not::Ready);
                }
                if left < size || size != 0 && !memory.write(key, address, payload) {
                    return Err(access);
                }
                let (address, left) = (address + size, left - size);
                Ok(Message::Write { key, address, left, bytes: bytes + size })
            }
            _ => Err(Not::Allowed(NakCode::InvalidRequest)),
        }
    }

    fn end(
        &mut self,
        message: Message,
        immediate: Option<u32>,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Not> {
        self.message = None;
        self.msn = self.msn.wrapping_add(1) & BITS_24;
        let bytes = match message {
            Message::Send { bytes, .. } => Some(bytes),
            Message::Write { left, .. } if left != 0 => {
                return Err(Not::Allowed(NakCode::InvalidRequest));
            }
            Message::Write { bytes, .. } => immediate.map(|_| bytes),
        };
        if let Some(bytes) = bytes {
            let taken = self.receives.pop_front().ok_or(Not::Ready)?;
            events.push_back(Event::Received { id: taken.id, bytes, immediate });
        }
        Ok(())
    }

    fn answer(&mut self, number: u64, reth: Reth) {
        let Reth { address, key, length } = reth;
        // Whoever asks again wants no more of the answer before.
        self.answers.retain(|answer| answer.number < number);
        self.answers.push_back(Answer { number, key, address, left: length, is_first: true });
    }

    pub(super) fn has_answer(&self) -> bool {
        self.ack_due
            || self.cnp_due
            || self.negative.is_some()
            || !self.missing.is_empty()
            || !self.kept.is_empty()
    }

    pub(super) fn has_response(&self) -> bool {
        !self.answers.is_empty()
    }

    /// A packet without data that is due: they are small and come first.
    pub(super) fn next_answer(
        &mut self,
        config: &Config,
        counters: &mut Counters,
        payload: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        if std::mem::take(&mut self.cnp_due) {
            payload.extend(CNP_PAYLOAD);
            return Some(Outgoing { headers: Headers::cnp(config.remote), is_data: false });
        }
        let (number, syndrome) = if let Some(negative) = self.negative.take() {
            (negative.number, negative.syndrome)
        } else if let Some(number) = self.next_missing() {
            (number, Syndrome::Nak(NakCode::PsnSequence))
        } else {
            let is_due = std::mem::take(&mut self.ack_due) || !self.kept.is_empty();
            // What answers to a READ will say must not be said before them.
            if !is_due || !self.answers.is_empty() {
                self.kept.clear();
                return None;
            }
            (self.expected - 1, Syndrome::ACK)
        };
        let mut msn = self.msn;
        match syndrome {
            Syndrome::Ack { .. } => {
                let named = self.kept.pop_front();
                if number < psn::first(config.receive_psn) && named.is_none() {
                    return None;
                }
                self.unacked = 0;
                if config.repeat == Repeat::Selective {
                    msn = psn::wire(named.unwrap_or(number));
                }
                counters.acks += 1;
            }
            _ => counters.naks += u64::from(!matches!(syndrome, Syndrome::RnrNak { .. })),
        }
        let aeth = Aeth { syndrome, msn };
        let mut headers = Headers::ack(config.remote, psn::wire(number), aeth);
        headers.bth.becn = std::mem::take(&mut self.echo);
        Some(Outgoing { headers, is_data: false })
    }

    /// The next number to tell that is still missing.
    fn next_missing(&mut self) -> Option<u64> {
        loop {
            let number = self.missing.pop_front()?;
            if self.expected <= number && !self.early.contains_key(&number) {
                return Some(number);
            }
        }
    }

    /// The next part of an answer to a READ.
    pub(super) fn next_response(
        &mut self,
        config: &Config,
        memory: &dyn Memory,
        payload: &mut Vec<u8>,
    ) -> Option<Headers> {
        let answer = self.answers.front_mut()?;
        let size = answer.left.min(config.mtu);
        if !memory.read(answer.key, answer.address, size as usize, payload) {
            let number = answer.number;
            self.answers.clear();
            let syndrome = Syndrome::Nak(NakCode::RemoteAccess);
            self.negative = Some(Negative { number, syndrome });
            payload.clear();
            return None;
        }
        let is_last = answer.left == size;
        let operation = match (answer.is_first, is_last) {
            (true, true) => Operation::ReadResponseOnly,
            (true, false) => Operation::ReadResponseFirst,
            (false, true) => Operation::ReadResponseLast,
            (false, false) => Operation::ReadResponseMiddle,
        };
        let number = psn::wire(answer.number);
        let mut headers = Headers::new(Bth::new(Opcode::rc(operation), config.remote, number));
        if operation != Operation::ReadResponseMiddle {
            headers.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: self.msn });
        }
        answer.left -= size;
        answer.address += u64::from(size);
        answer.number += 1;
        answer.is_first = false;
        if is_last {
            // An acknowledgement of what came after it may have waited. One of the READ itself
            // would say nothing new, and could overtake the answer in another class.
            self.ack_due |= answer.number < self.expected;
            self.answers.pop_front();
        }
        Some(headers)
    }
}
