//! Opcodes: the first byte of every packet, a transport in its upper bits and an operation below.

use std::fmt;

/// The transport service of a packet: bits 7 to 5 of its opcode.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification.
    Cnp,
    /// Extended reliable connection.
    Xrc,
}

impl Transport {
    /// All of them with their bits and the name in front of an opcode's.
    const ALL: [(Self, u8, &str); 6] = [
        (Self::Rc, 0b000, "RC"),
        (Self::Uc, 0b001, "UC"),
        (Self::Rd, 0b010, "RD"),
        (Self::Ud, 0b011, "UD"),
        (Self::Cnp, 0b100, "CNP"),
        (Self::Xrc, 0b101, "XRC"),
    ];

    fn entry(self) -> (Self, u8, &'static str) {
        let found = Self::ALL.into_iter().find(|(known, ..)| *known == self);
        found.expect("the list has all of them")
    }
}

/// What a packet does, whatever the transport: bits 4 to 0 of its opcode.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Operation {
    /// The first packet of a SEND.
    SendFirst,
    /// One in the middle of a SEND.
    SendMiddle,
    /// The last packet of a SEND.
    SendLast,
    /// The last packet of a SEND, with immediate data.
    SendLastImmediate,
    /// A SEND of one packet.
    SendOnly,
    /// A SEND of one packet, with immediate data.
    SendOnlyImmediate,
    /// The first packet of an RDMA WRITE.
    WriteFirst,
    /// One in the middle of an RDMA WRITE.
    WriteMiddle,
    /// The last packet of an RDMA WRITE.
    WriteLast,
    /// The last packet of an RDMA WRITE, with immediate data.
    WriteLastImmediate,
    /// An RDMA WRITE of one packet.
    WriteOnly,
    /// An RDMA WRITE of one packet, with immediate data.
    WriteOnlyImmediate,
    /// The request of an RDMA READ.
    ReadRequest,
    /// The first packet of the answer to an RDMA READ.
    ReadResponseFirst,
    /// One in the middle of the answer to an RDMA READ.
    ReadResponseMiddle,
    /// The last packet of the answer to an RDMA READ.
    ReadResponseLast,
    /// The answer to an RDMA READ in one packet.
    ReadResponseOnly,
    /// An acknowledgement, positive or negative.
    Acknowledge,
    /// The answer to an atomic operation.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Resynchronisation of reliable datagrams.
    Resync,
    /// The last packet of a SEND that invalidates a key.
    SendLastInvalidate,
    /// A SEND of one packet that invalidates a key.
    SendOnlyInvalidate,
    /// A congestion notification.
    Notify,
}

use Operation::{
    Acknowledge, AtomicAcknowledge, CompareSwap, FetchAdd, Notify, ReadRequest, ReadResponseFirst,
    ReadResponseLast, ReadResponseMiddle, ReadResponseOnly, Resync, SendFirst, SendLast,
    SendLastImmediate, SendLastInvalidate, SendMiddle, SendOnly, SendOnlyImmediate,
    SendOnlyInvalidate, WriteFirst, WriteLast, WriteLastImmediate, WriteMiddle, WriteOnly,
    WriteOnlyImmediate,
};

/// All operations with their bits and names.
const OPERATIONS: [(Operation, u8, &str); 25] = [
    (SendFirst, 0x00, "SEND First"),
    (SendMiddle, 0x01, "SEND Middle"),
    (SendLast, 0x02, "SEND Last"),
    (SendLastImmediate, 0x03, "SEND Last with Immediate"),
    (SendOnly, 0x04, "SEND Only"),
    (SendOnlyImmediate, 0x05, "SEND Only with Immediate"),
    (WriteFirst, 0x06, "RDMA WRITE First"),
    (WriteMiddle, 0x07, "RDMA WRITE Middle"),
    (WriteLast, 0x08, "RDMA WRITE Last"),
    (WriteLastImmediate, 0x09, "RDMA WRITE Last with Immediate"),
    (WriteOnly, 0x0a, "RDMA WRITE Only"),
    (WriteOnlyImmediate, 0x0b, "RDMA WRITE Only with Immediate"),
    (ReadRequest, 0x0c, "RDMA READ Request"),
    (ReadResponseFirst, 0x0d, "RDMA READ response First"),
    (ReadResponseMiddle, 0x0e, "RDMA READ response Middle"),
    (ReadResponseLast, 0x0f, "RDMA READ response Last"),
    (ReadResponseOnly, 0x10, "RDMA READ response Only"),
    (Acknowledge, 0x11, "Acknowledge"),
    (AtomicAcknowledge, 0x12, "ATOMIC Acknowledge"),
    (CompareSwap, 0x13, "CmpSwap"),
    (FetchAdd, 0x14, "FetchAdd"),
    (Resync, 0x15, "RESYNC"),
    (SendLastInvalidate, 0x16, "SEND Last with Invalidate"),
    (SendOnlyInvalidate, 0x17, "SEND Only with Invalidate"),
    (Notify, 0x01, "Congestion Notification"),
];

/// A transport and an operation that it has.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Opcode {
    /// The transport service.
    pub transport: Transport,
    /// What the packet does.
    pub operation: Operation,
}

impl Opcode {
    /// A congestion notification, 0x81.
    pub const CNP: Self = Self { transport: Transport::Cnp, operation: Notify };

    /// An operation of a reliable connection.
    pub const fn rc(operation: Operation) -> Self {
        Self { transport: Transport::Rc, operation }
    }

    /// The opcode of a byte; none if that is reserved or the manufacturer's.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let (transport, ..) = Transport::ALL.into_iter().find(|(_, bits, _)| *bits == byte >> 5)?;
        let known = |operation: &&(Operation, u8, &str)| {
            operation.1 == byte & 0x1f && Self { transport, operation: operation.0 }.exists()
        };
        let (operation, ..) = OPERATIONS.iter().find(known)?;
        Some(Self { transport, operation: *operation })
    }

    /// Its byte.
    pub fn byte(self) -> u8 {
        self.transport.entry().1 << 5 | self.entry().1
    }

    /// Every opcode that there is.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=255).filter_map(Self::from_byte)
    }

    /// Whether the transport has the operation (table 38 of the specification; XRC is Annex A14).
    fn exists(self) -> bool {
        match (self.transport, self.operation) {
            (Transport::Cnp, operation) => operation == Notify,
            (_, Notify) => false,
            (Transport::Ud, operation) => matches!(operation, SendOnly | SendOnlyImmediate),
            (Transport::Uc, operation) => operation <= WriteOnlyImmediate,
            (Transport::Rd, operation) => operation <= Resync,
            (Transport::Rc | Transport::Xrc, operation) => operation != Resync,
        }
    }

    fn entry(self) -> (Operation, u8, &'static str) {
        let found = OPERATIONS.into_iter().find(|(known, ..)| *known == self.operation);
        found.expect("the list has all of them")
    }

    /// Whether a datagram header follows (`DETH`).
    pub fn has_deth(self) -> bool {
        match self.transport {
            Transport::Ud => true,
            Transport::Rd => !self.is_response(),
            _ => false,
        }
    }

    /// Whether an RDMA header follows (`RETH`).
    pub fn has_reth(self) -> bool {
        use Operation::{ReadRequest, WriteFirst, WriteOnly, WriteOnlyImmediate};
        matches!(self.operation, WriteFirst | WriteOnly | WriteOnlyImmediate | ReadRequest)
    }

    /// Whether an atomic header follows (`AtomicETH`).
    pub fn has_atomic(self) -> bool {
        matches!(self.operation, CompareSwap | FetchAdd)
    }

    /// Whether an acknowledgement header follows (`AETH`).
    pub fn has_aeth(self) -> bool {
        self.is_response() && self.operation != ReadResponseMiddle
    }

    /// Whether immediate data follow (`ImmDt`).
    pub fn has_immediate(self) -> bool {
        matches!(
            self.operation,
            SendLastImmediate | SendOnlyImmediate | WriteLastImmediate | WriteOnlyImmediate
        )
    }

    /// Whether a key to be invalidated follows (`IETH`).
    pub fn has_invalidate(self) -> bool {
        matches!(self.operation, SendLastInvalidate | SendOnlyInvalidate)
    }

    /// Whether a word of the transport follows the first header: `RDETH` or `XRCETH`.
    pub fn has_context(self) -> bool {
        match self.transport {
            Transport::Rd => true,
            Transport::Xrc => !self.is_response(),
            _ => false,
        }
    }

    /// Whether it answers a request.
    pub fn is_response(self) -> bool {
        (ReadResponseFirst..=AtomicAcknowledge).contains(&self.operation)
    }

    /// Whether it carries a part of a message: a SEND, a WRITE or the answer to a READ.
    pub fn is_data(self) -> bool {
        self.operation < Acknowledge && self.operation != ReadRequest
            || matches!(self.operation, SendLastInvalidate | SendOnlyInvalidate)
    }

    /// Whether a message begins with it.
    pub fn is_first(self) -> bool {
        matches!(self.operation, SendFirst | WriteFirst | ReadResponseFirst) || self.is_only()
    }

    /// Whether a message ends with it.
    pub fn is_last(self) -> bool {
        let last = matches!(
            self.operation,
            SendLast | SendLastImmediate | SendLastInvalidate | WriteLast | WriteLastImmediate
        );
        last || self.operation == ReadResponseLast || self.is_only()
    }

    fn is_only(self) -> bool {
        matches!(
            self.operation,
            SendOnly | SendOnlyImmediate | SendOnlyInvalidate | WriteOnly | WriteOnlyImmediate
        ) || self.operation == ReadResponseOnly
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.transport.entry().2, self.entry().2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: bytes and opcodes are one to one.
    /// Oracle: the counts of the specification's table 38: 23, 12, 22 and 2, and one CNP; XRC has
    /// RC's.
    #[test]
    fn every_opcode_has_its_byte() {
        for opcode in Opcode::all() {
            assert_eq!(Opcode::from_byte(opcode.byte()), Some(opcode));
        }
        let count = |transport| Opcode::all().filter(|code| code.transport == transport).count();
        let all = [Transport::Rc, Transport::Uc, Transport::Rd, Transport::Ud, Transport::Xrc];
        assert_eq!(all.map(count), [23, 12, 22, 2, 23]);
        assert_eq!(Opcode::CNP.byte(), 0x81);
        assert_eq!(Opcode::from_byte(0x80), None);
        assert_eq!(Opcode::from_byte(0x64).unwrap().to_string(), "UD SEND Only");
    }
}
