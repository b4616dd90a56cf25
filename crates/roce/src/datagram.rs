//! A queue pair of unreliable datagrams: every message is one packet, and nobody acknowledges it.

use std::collections::VecDeque;

use crate::header::{BITS_24, Bth, Deth, Headers};
use crate::opcode::{Opcode, Operation, Transport};

/// A datagram that arrived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Received {
    /// The queue pair that sent it.
    pub src_qp: u32,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// What it carried.
    pub payload: Vec<u8>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Datagrams {
    number: u32,
    queue_key: u32,
    next_psn: u32,
    /// Datagrams that are kept until somebody takes them.
    room: usize,
    received: VecDeque<Received>,
    dropped: u64,
}

impl Datagrams {
    /// One with this number, which takes datagrams with this key and keeps so many.
    pub fn new(number: u32, queue_key: u32, room: usize) -> Self {
        let received = VecDeque::new();
        Self { number: number & BITS_24, queue_key, next_psn: 0, room, received, dropped: 0 }
    }

    /// The headers of a datagram to another queue pair, with the key that it wants.
    pub fn send(&mut self, dest_qp: u32, queue_key: u32, immediate: Option<u32>) -> Headers {
        let operation = match immediate {
            Some(_) => Operation::SendOnlyImmediate,
            None => Operation::SendOnly,
        };
        let opcode = Opcode { transport: Transport::Ud, operation };
        let mut headers = Headers::new(Bth::new(opcode, dest_qp & BITS_24, self.next_psn));
        headers.deth = Some(Deth { queue_key, src_qp: self.number });
        headers.immediate = immediate;
        self.next_psn = (self.next_psn + 1) & BITS_24;
        headers
    }

    /// A packet arrived. One with a wrong key, of another kind or without room is dropped.
    pub fn on_packet(&mut self, headers: &Headers, payload: &[u8]) {
        let fits = headers.bth.opcode.transport == Transport::Ud
            && headers.bth.dest_qp == self.number
            && self.received.len() < self.room;
        match headers.deth.filter(|deth| fits && deth.queue_key == self.queue_key) {
            Some(Deth { src_qp, .. }) => {
                let (immediate, payload) = (headers.immediate, payload.to_vec());
                self.received.push_back(Received { src_qp, immediate, payload });
            }
            None => self.dropped += 1,
        }
    }

    /// The oldest datagram that nobody has taken.
    pub fn take(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    /// How many were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fits arrives with its immediate data; a wrong key and a full queue drop it.
    #[test]
    fn datagrams_arrive_or_are_dropped() {
        let mut sender = Datagrams::new(7, 1, 1);
        let mut receiver = Datagrams::new(9, 2, 1);
        let headers = sender.send(9, 2, Some(5));
        receiver.on_packet(&headers, b"abc");
        receiver.on_packet(&sender.send(9, 2, None), b"no room");
        let wrong = sender.send(9, 3, None);
        assert_eq!(wrong.bth.psn, 2);
        let taken = receiver.take().unwrap();
        assert_eq!((taken.src_qp, taken.immediate, &taken.payload[..]), (7, Some(5), &b"abc"[..]));
        receiver.on_packet(&wrong, b"wrong key");
        assert_eq!((receiver.take(), receiver.dropped()), (None, 2));
    }
}
