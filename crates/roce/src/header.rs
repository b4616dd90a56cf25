//! The transport headers of a packet, to bytes and back.
//!
//! Every packet has a base header ([`Bth`]); its opcode says which others follow, in the order of
//! the fields of [`Headers`]. Reserved bits are written as zero and not kept.

use crate::opcode::Opcode;
use crate::packet::Malformed;

/// Queue pair numbers, packet sequence numbers and message sequence numbers have 24 bits.
pub const BITS_24: u32 = 0xff_ffff;

/// The partition that every port belongs to unless told otherwise, as a full member.
pub const DEFAULT_PARTITION: u16 = 0xffff;

/// Bytes of each header.
pub mod size {
    /// Base transport header.
    pub const BTH: usize = 12;
    /// Datagram header.
    pub const DETH: usize = 8;
    /// RDMA header.
    pub const RETH: usize = 16;
    /// Atomic header.
    pub const ATOMIC: usize = 28;
    /// Acknowledgement header.
    pub const AETH: usize = 4;
    /// What an atomic operation found.
    pub const ATOMIC_ACK: usize = 8;
    /// Immediate data, a key to invalidate, a context: one word.
    pub const WORD: usize = 4;
    /// What follows the base header of a congestion notification: reserved.
    pub const CNP: usize = 16;
    /// The check at the end.
    pub const ICRC: usize = 4;
}

/// Base transport header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// The receiver raises an event (`SE`).
    pub solicited: bool,
    /// The migration state (`MigReq`): set unless a path is being changed.
    pub migrated: bool,
    /// Partition key.
    pub partition: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination queue pair number, 24 bits.
    pub dest_qp: u32,
    /// The sender asks for an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// One with nothing set but what every packet has.
    pub const fn new(opcode: Opcode, dest_qp: u32, psn: u32) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            partition: DEFAULT_PARTITION,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            psn,
        }
    }
}

/// Datagram header.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Deth {
    /// Queue key.
    pub queue_key: u32,
    /// Source queue pair number, 24 bits.
    pub src_qp: u32,
}

/// RDMA header.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reth {
    /// Where in the other end's memory.
    pub address: u64,
    /// The key that allows it.
    pub key: u32,
    /// Bytes of the whole message.
    pub length: u32,
}

/// Atomic header.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Atomic {
    /// Where in the other end's memory.
    pub address: u64,
    /// The key that allows it.
    pub key: u32,
    /// What is swapped in or added.
    pub value: u64,
    /// What it is compared with.
    pub compare: u64,
}

/// Why a request was refused (table 46 of the specification).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NakCode {
    /// A packet is missing: send again from the PSN of the answer.
    PsnSequence,
    /// The request makes no sense.
    InvalidRequest,
    /// The request may not touch that memory.
    RemoteAccess,
    /// The responder cannot do it.
    RemoteOperational,
    /// The request has no end-to-end context.
    InvalidRdRequest,
}

impl NakCode {
    const ALL: [Self; 5] = [
        Self::PsnSequence,
        Self::InvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperational,
        Self::InvalidRdRequest,
    ];
}

/// What an acknowledgement says: one byte (tables 43 to 46 of the specification).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Syndrome {
    /// Everything until here has arrived; credits are encoded, 31 means that none are counted.
    Ack {
        /// End-to-end credits, 5 bits.
        credits: u8,
    },
    /// The receiver is not ready.
    RnrNak {
        /// When to try again, encoded in 5 bits: [`rnr_wait_us`].
        timer: u8,
    },
    /// Refused.
    Nak(NakCode),
    /// A reserved value.
    Reserved(u8),
}

impl Syndrome {
    /// An acknowledgement that counts no credits.
    pub const ACK: Self = Self::Ack { credits: 31 };

    fn from_byte(byte: u8) -> Self {
        let low = byte & 0x1f;
        match byte >> 5 {
            0b000 => Self::Ack { credits: low },
            0b001 => Self::RnrNak { timer: low },
            0b011 => match NakCode::ALL.get(usize::from(low)) {
                Some(code) => Self::Nak(*code),
                None => Self::Reserved(byte),
            },
            _ => Self::Reserved(byte),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::RnrNak { timer } => 0b001 << 5 | (timer & 0x1f),
            Self::Nak(code) => 0b011 << 5 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

/// How long an encoded wait of a receiver that is not ready is, in microseconds (table 45).
pub fn rnr_wait_us(timer: u8) -> u32 {
    const WAITS: [u32; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560,
        3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880,
        163_840, 245_760, 327_680, 491_520,
    ];
    WAITS[usize::from(timer & 0x1f)]
}

/// Acknowledgement header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Aeth {
    /// What it says.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits: requests completed so far.
    pub msn: u32,
}

/// All transport headers of a packet, in the order of the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// The end-to-end context of RD (`RDETH`) or the receive queue of XRC (`XRCETH`).
    pub context: Option<u32>,
    /// Datagram header.
    pub deth: Option<Deth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Atomic header.
    pub atomic: Option<Atomic>,
    /// Acknowledgement header.
    pub aeth: Option<Aeth>,
    /// What an atomic operation found.
    pub atomic_ack: Option<u64>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// The key to invalidate.
    pub invalidate: Option<u32>,
}

impl Headers {
    /// The base header alone; what the opcode asks for besides must be put in.
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            context: None,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            immediate: None,
            invalidate: None,
        }
    }

    /// A congestion notification for a queue pair.
    pub const fn cnp(dest_qp: u32) -> Self {
        let mut bth = Bth::new(Opcode::CNP, dest_qp, 0);
        bth.becn = true;
        Self::new(bth)
    }

    /// An acknowledgement, positive or negative.
    pub const fn ack(dest_qp: u32, psn: u32, aeth: Aeth) -> Self {
        let opcode = Opcode::rc(crate::opcode::Operation::Acknowledge);
        let mut headers = Self::new(Bth::new(opcode, dest_qp, psn));
        headers.aeth = Some(aeth);
        headers
    }

    /// Bytes of all headers.
    pub fn length(&self) -> usize {
        length(self.bth.opcode)
    }

    /// Whether the headers are those that the opcode asks for.
    pub fn fit_opcode(&self) -> bool {
        let opcode = self.bth.opcode;
        let atomic_ack = opcode.operation == crate::opcode::Operation::AtomicAcknowledge;
        self.context.is_some() == opcode.has_context()
            && self.deth.is_some() == opcode.has_deth()
            && self.reth.is_some() == opcode.has_reth()
            && self.atomic.is_some() == opcode.has_atomic()
            && self.aeth.is_some() == opcode.has_aeth()
            && self.atomic_ack.is_some() == atomic_ack
            && self.immediate.is_some() == opcode.has_immediate()
            && self.invalidate.is_some() == opcode.has_invalidate()
    }

    /// Writes them; `pad` bytes (0 to 3) will follow the payload.
    ///
    /// # Panics
    ///
    /// If they are not those that the opcode asks for, or a number has more than 24 bits.
    pub(crate) fn write(&self, pad: usize, to: &mut Vec<u8>) {
        assert!(self.fit_opcode(), "headers that do not fit {}", self.bth.opcode);
        assert!(self.bth.dest_qp | self.bth.psn <= BITS_24, "24 bits");
        let bit = |set: bool, at: u32| u8::from(set) << at;
        let bth = &self.bth;
        let flags = bit(bth.solicited, 7) | bit(bth.migrated, 6) | (pad as u8) << 4;
        to.extend([bth.opcode.byte(), flags]);
        to.extend(bth.partition.to_be_bytes());
        to.extend(
            (u32::from(bit(bth.fecn, 7) | bit(bth.becn, 6)) << 24 | bth.dest_qp).to_be_bytes(),
        );
        to.extend((u32::from(bit(bth.ack_request, 7)) << 24 | bth.psn).to_be_bytes());
        if let Some(context) = self.context {
            to.extend(context.to_be_bytes());
        }
        if let Some(deth) = self.deth {
            to.extend(deth.queue_key.to_be_bytes());
            to.extend((deth.src_qp & BITS_24).to_be_bytes());
        }
        if let Some(Reth { address, key, length }) = self.reth {
            to.extend(address.to_be_bytes());
            to.extend(key.to_be_bytes());
            to.extend(length.to_be_bytes());
        }
        if let Some(Atomic { address, key, value, compare }) = self.atomic {
            to.extend(address.to_be_bytes());
            to.extend(key.to_be_bytes());
            to.extend(value.to_be_bytes());
            to.extend(compare.to_be_bytes());
        }
        if let Some(Aeth { syndrome, msn }) = self.aeth {
            to.extend((u32::from(syndrome.byte()) << 24 | (msn & BITS_24)).to_be_bytes());
        }
        if let Some(found) = self.atomic_ack {
            to.extend(found.to_be_bytes());
        }
        for word in [self.immediate, self.invalidate].into_iter().flatten() {
            to.extend(word.to_be_bytes());
        }
    }

    /// Reads them; returns them with the number of bytes that pad the payload.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let [code, flags, ..] = reader.take::<2>()?;
        let opcode = Opcode::from_byte(code).ok_or(Malformed::Opcode(code))?;
        if flags & 0x0f != 0 {
            return Err(Malformed::Version(flags & 0x0f));
        }
        let partition = u16::from_be_bytes(reader.take()?);
        let (to, psn) = (reader.word()?, reader.word()?);
        let bth = Bth {
            opcode,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            partition,
            fecn: to >> 31 == 1,
            becn: to >> 30 & 1 == 1,
            dest_qp: to & BITS_24,
            ack_request: psn >> 31 == 1,
            psn: psn & BITS_24,
        };
        let mut headers = Self::new(bth);
        headers.read_extensions(&mut reader)?;
        Ok((headers, usize::from(flags >> 4 & 3)))
    }

    fn read_extensions(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let opcode = self.bth.opcode;
        if opcode.has_context() {
            self.context = Some(reader.word()?);
        }
        if opcode.has_deth() {
            let (queue_key, src_qp) = (reader.word()?, reader.word()? & BITS_24);
            self.deth = Some(Deth { queue_key, src_qp });
        }
        if opcode.has_reth() {
            let (address, key, length) = (reader.long()?, reader.word()?, reader.word()?);
            self.reth = Some(Reth { address, key, length });
        }
        if opcode.has_atomic() {
            let (address, key) = (reader.long()?, reader.word()?);
            let (value, compare) = (reader.long()?, reader.long()?);
            self.atomic = Some(Atomic { address, key, value, compare });
        }
        if opcode.has_aeth() {
            let word = reader.word()?;
            let syndrome = Syndrome::from_byte((word >> 24) as u8);
            self.aeth = Some(Aeth { syndrome, msn: word & BITS_24 });
        }
        if opcode.operation == crate::opcode::Operation::AtomicAcknowledge {
            self.atomic_ack = Some(reader.long()?);
        }
        if opcode.has_immediate() {
            self.immediate = Some(reader.word()?);
        }
        if opcode.has_invalidate() {
            self.invalidate = Some(reader.word()?);
        }
        Ok(())
    }
}

/// Bytes of the headers that a packet with this opcode has.
pub fn length(opcode: Opcode) -> usize {
    let atomic_ack = opcode.operation == crate::opcode::Operation::AtomicAcknowledge;
    let parts = [
        (opcode.has_context(), size::WORD),
        (opcode.has_deth(), size::DETH),
        (opcode.has_reth(), size::RETH),
        (opcode.has_atomic(), size::ATOMIC),
        (opcode.has_aeth(), size::AETH),
        (atomic_ack, size::ATOMIC_ACK),
        (opcode.has_immediate(), size::WORD),
        (opcode.has_invalidate(), size::WORD),
    ];
    size::BTH + parts.into_iter().filter(|(has, _)| *has).map(|(_, size)| size).sum::<usize>()
}

/// Takes numbers from the front of bytes.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let part = self
            .bytes
            .get(self.at..self.at + N)
            .ok_or(Malformed::Short { what: "transport headers", bytes: self.bytes.len() })?;
        self.at += N;
        Ok(part.try_into().expect("as many as were taken"))
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_be_bytes)
    }
}
