//! A queue pair of a reliable connection, as a state machine.
//!
//! It is told facts (work that is posted, packets that arrived, the time) and asked for packets
//! ([`QueuePair::next_packet`]), for what happened ([`QueuePair::next_event`]) and for when it
//! wants to be asked again ([`QueuePair::deadline`]). It knows no clock and no socket.
//!
//! # What it does
//!
//! * SEND, WRITE (both with and without immediate data) and READ, in the order of posting.
//! * Acknowledgements are cumulative and coalesced: those that are due become one when the queue
//!   pair is next asked for a packet.
//! * A gap is told by one NAK, and the sender goes back and sends everything again. If both ends
//!   agreed on [`Repeat::Selective`], each missing packet is told by one, and it alone is sent
//!   again.
//! * A receiver without a buffer answers RNR NAK; the sender waits as long as that says.
//! * Silence for [`Config::timeout`] is answered by sending again, [`Config::retries`] times.
//! * A congestion control of the packet engine ([`packetsim::cc`]) says how fast and how much may
//!   be sent; its receiving half decides on notifications (CNP). An echo of a mark travels back in
//!   the acknowledgement's BECN bit.
//!
//! # Departures
//!
//! End-to-end credits are not counted; atomic operations are refused. The standard has no selective
//! repeat. Here a NAK then says nothing of the packets before it, and an acknowledgement names in
//! its MSN the packet that caused it, so that the sender knows what came early.

mod requester;
mod responder;

use std::collections::VecDeque;

use packetsim::cc;
use units::{Span, Time};

use crate::header::{Headers, NakCode};
use crate::opcode::{Operation, Transport};
use crate::psn;
use requester::Requester;
use responder::Responder;

/// What a sender does about a gap.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Repeat {
    /// Sends everything again from the gap on; the receiver throws away what comes early.
    #[default]
    GoBackN,
    /// Sends only what is missing; the receiver keeps what comes early.
    Selective,
}

/// What both ends agree on when they connect.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The number at the other end.
    pub remote: u32,
    /// The first number of packets that are sent.
    pub send_psn: u32,
    /// The first number of packets that are received.
    pub receive_psn: u32,
    /// Payload of a full packet.
    pub mtu: u32,
    /// Packets that may be unacknowledged, whatever the congestion control allows.
    pub window: u64,
    /// The receiver acknowledges so many packets at once, and earlier what asks for it: the end of
    /// a message, and what nothing may follow.
    pub ack_every: u64,
    /// Silence after which packets are sent again.
    pub timeout: Span,
    /// How often in a row, before the connection is given up.
    pub retries: u8,
    /// How often a receiver may say that it is not ready; 7 is for ever.
    pub rnr_retries: u8,
    /// What this end says when it is not ready: [`crate::header::rnr_wait_us`].
    pub rnr_timer: u8,
    /// What a sender does about a gap.
    pub repeat: Repeat,
    /// What may leave at once after a pause: so long at the paced rate.
    pub burst: Span,
}

impl Config {
    /// The values that live runs begin with: a timeout above what a busy machine takes to answer.
    pub const fn new(remote: u32) -> Self {
        Self {
            remote,
            send_psn: 0,
            receive_psn: 0,
            mtu: 4096,
            window: 256,
            ack_every: 16,
            timeout: Span::from_ms(200),
            retries: 7,
            rnr_retries: 7,
            rnr_timer: 14,
            repeat: Repeat::GoBackN,
            burst: Span::from_ms(1),
        }
    }
}

/// Where bytes lie: what a key and an address mean at one end.
pub trait Memory {
    /// Appends `length` bytes; `false` if that may not be read.
    fn read(&self, key: u32, address: u64, length: usize, to: &mut Vec<u8>) -> bool;

    /// Stores bytes; `false` if that may not be written.
    fn write(&mut self, key: u32, address: u64, bytes: &[u8]) -> bool;
}

/// What a work request does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Into the buffer that the other end has posted.
    Send {
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// Into the other end's memory.
    Write {
        /// Where.
        address: u64,
        /// The key that allows it.
        key: u32,
        /// Immediate data: takes a receive from the other end.
        immediate: Option<u32>,
    },
    /// From the other end's memory.
    Read {
        /// Where.
        address: u64,
        /// The key that allows it.
        key: u32,
    },
}

/// A work request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Work {
    /// What the event will say.
    pub id: u64,
    /// What to do.
    pub kind: Kind,
    /// The key of the bytes at this end.
    pub key: u32,
    /// Where they lie, or are to lie.
    pub address: u64,
    /// How many, at most 2³¹.
    pub length: u32,
}

/// A buffer for what the other end sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Receive {
    /// What the event will say.
    pub id: u64,
    /// The key of the buffer.
    pub key: u32,
    /// Where it lies.
    pub address: u64,
    /// Its size.
    pub capacity: u32,
}

/// Why a connection came to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Broken {
    /// Nothing was heard, however often packets were sent.
    Silence,
    /// The receiver was never ready.
    NotReady,
    /// The other end refused.
    Refused(NakCode),
    /// The bytes at this end may not be touched.
    LocalAccess,
}

/// What happened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// A work request is done: acknowledged, or its bytes have been read.
    Done {
        /// Its id.
        id: u64,
    },
    /// A message arrived in full in a posted buffer, or a WRITE with immediate data.
    Received {
        /// The id of the receive that it took.
        id: u64,
        /// Its bytes.
        bytes: u64,
        /// Its immediate data.
        immediate: Option<u32>,
    },
    /// The connection is over; nothing more will happen.
    Broken(Broken),
}

/// What a queue pair counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Packets with data or requests, first transmissions and others.
    pub sent: u64,
    /// Those of them that were sent before.
    pub retransmitted: u64,
    /// Payload of first transmissions.
    pub bytes: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Negative ones sent, for gaps.
    pub naks: u64,
    /// Times this end said that it was not ready.
    pub not_ready: u64,
    /// Congestion notifications sent.
    pub cnps: u64,
    /// Congestion notifications received.
    pub notified: u64,
    /// Requests that arrived again.
    pub duplicates: u64,
    /// Requests that arrived early.
    pub early: u64,
    /// Packets that arrived with a mark.
    pub marked: u64,
    /// Timeouts.
    pub timeouts: u64,
}

/// A packet that wants to leave; the payload is in the buffer that was lent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outgoing {
    /// Its transport headers.
    pub headers: Headers,
    /// Whether it carries data: such packets are capable of ECN.
    pub is_data: bool,
}

/// See the module.
#[derive(Debug)]
pub struct QueuePair {
    config: Config,
    requester: Requester,
    responder: Responder,
    events: VecDeque<Event>,
    counters: Counters,
    broken: bool,
    held: bool,
}

impl QueuePair {
    /// One that is connected, with the two halves of a congestion control.
    pub fn new(
        config: Config,
        control: Box<dyn cc::Sender>,
        watcher: Option<Box<dyn cc::Receiver>>,
    ) -> Self {
        Self {
            requester: Requester::new(&config, control),
            responder: Responder::new(&config, watcher),
            config,
            events: VecDeque::new(),
            counters: Counters::default(),
            broken: false,
            held: false,
        }
    }

    /// From now on requests leave only as far as the other end has cleared them, counted in
    /// packets from the first on (receiver-driven admission). What is cleared stays so.
    pub fn clear(&mut self, packets: u64) {
        let through = psn::first(self.config.send_psn) + packets;
        self.requester.cleared = Some(self.requester.cleared.unwrap_or(0).max(through));
    }

    /// Requests and answers to READs are held back, or are free to leave again: a pause.
    /// Acknowledgements and notifications still leave.
    pub fn hold(&mut self, is_held: bool) {
        self.held = is_held;
    }

    /// Packets of requests that have arrived in order.
    pub fn received(&self) -> u64 {
        self.responder.received(&self.config)
    }

    /// Posts work; it is done in order.
    pub fn post(&mut self, now: Time, work: Work) {
        self.requester.post(&self.config, now, work);
    }

    /// Posts a buffer; they are taken in order.
    pub fn post_receive(&mut self, receive: Receive) {
        self.responder.receives.push_back(receive);
    }

    /// A packet for this queue pair arrived, with a mark or without.
    pub fn on_packet(
        &mut self,
        now: Time,
        headers: &Headers,
        payload: &[u8],
        marked: bool,
        memory: &mut dyn Memory,
    ) {
        if self.broken {
            return;
        }
        self.counters.marked += u64::from(marked);
        let opcode = headers.bth.opcode;
        match (opcode.transport, opcode.operation) {
            (Transport::Cnp, _) => {
                self.counters.notified += 1;
                self.requester.control.on_notified(now);
            }
            (Transport::Rc, Operation::Acknowledge) => self.on_acknowledge(now, headers),
            (Transport::Rc, operation) if opcode.is_response() => {
                let is_read = matches!(
                    operation,
                    Operation::ReadResponseFirst
                        | Operation::ReadResponseMiddle
                        | Operation::ReadResponseLast
                        | Operation::ReadResponseOnly
                );
                if is_read {
                    self.responder.watch(now, payload.len(), marked, &mut self.counters);
                    self.on_response(now, headers.bth.psn, payload, memory);
                }
            }
            (Transport::Rc, _) => {
                self.responder.watch(now, payload.len(), marked, &mut self.counters);
                let counters = &mut self.counters;
                let found = self.responder.on_request(
                    &self.config,
                    headers,
                    payload,
                    memory,
                    counters,
                    &mut self.events,
                );
                if let Err(why) = found {
                    self.give_up(why);
                }
            }
            _ => {}
        }
    }

    fn on_acknowledge(&mut self, now: Time, headers: &Headers) {
        let Some(aeth) = headers.aeth else { return };
        let told = self.requester.on_acknowledge(
            &self.config,
            now,
            (headers.bth.psn, headers.bth.becn),
            aeth,
            &mut self.events,
        );
        if let Err(why) = told {
            self.give_up(why);
        }
    }

    fn on_response(&mut self, now: Time, psn: u32, payload: &[u8], memory: &mut dyn Memory) {
        let events = &mut self.events;
        let told = self.requester.on_response(&self.config, now, psn, payload, memory, events);
        if let Err(why) = told {
            self.give_up(why);
        }
    }

    /// The next packet to send, if one may leave now; its payload is put into `payload`.
    pub fn next_packet(
        &mut self,
        now: Time,
        memory: &dyn Memory,
        payload: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        payload.clear();
        if self.broken {
            // What was owed to the other end before is still said: why the connection is over.
            return self.responder.next_answer(&self.config, &mut self.counters, payload);
        }
        if let Some(answer) = self.responder.next_answer(&self.config, &mut self.counters, payload)
        {
            return Some(answer);
        }
        if self.held || now < self.requester.ready_at {
            return None;
        }
        let response = self.responder.next_response(&self.config, memory, payload);
        let found = match response {
            Some(headers) => Ok(Some(headers)),
            None => {
                self.requester.next_request(&self.config, now, memory, payload, &mut self.counters)
            }
        };
        match found {
            Ok(headers) => {
                let headers = headers?;
                let bytes = crate::packet::udp_payload_bytes(&headers, payload.len());
                self.requester.pace(&self.config, now, bytes, payload.len());
                Some(Outgoing { headers, is_data: true })
            }
            Err(why) => {
                self.give_up(why);
                None
            }
        }
    }

    /// What happened, one after the other.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to ask for packets again, or to call [`on_timer`](Self::on_timer), if nothing arrives
    /// before.
    pub fn deadline(&self) -> Option<Time> {
        if self.broken {
            return None;
        }
        if self.responder.has_answer() {
            return Some(Time::ZERO);
        }
        let has_response = self.responder.has_response() && !self.held;
        let response = has_response.then_some(self.requester.ready_at);
        let all = [response, self.requester.deadline(&self.config, self.held)];
        all.into_iter().flatten().min()
    }

    /// The time that [`deadline`](Self::deadline) named has come.
    pub fn on_timer(&mut self, now: Time) {
        if self.broken {
            return;
        }
        if let Err(why) = self.requester.on_timer(&self.config, now, &mut self.counters) {
            self.give_up(why);
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What the congestion control allows at present.
    pub fn limit(&self) -> cc::Limit {
        self.requester.control.limit()
    }

    /// Whether everything that was posted is done and nothing is left to say.
    pub fn is_idle(&self) -> bool {
        self.broken
            || self.requester.is_idle()
                && !self.responder.has_answer()
                && !self.responder.has_response()
    }

    fn give_up(&mut self, why: Broken) {
        self.broken = true;
        self.events.push_back(Event::Broken(why));
    }
}
