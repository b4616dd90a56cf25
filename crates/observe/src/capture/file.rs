//! pcap and pcapng, record by record.
//!
//! Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.

use std::io::{ErrorKind, Read};

use crate::input::{Input, ReadError};

/// A record that claims to be longer is damage.
const LONGEST: usize = 16 << 20;
/// Blocks of pcapng.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;

/// One frame as it was captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// What the bytes begin with, by the numbers of tcpdump.org/linktypes.
    pub link: u32,
    /// Nanoseconds since 1970; `None` where the file does not say.
    pub time_ns: Option<u64>,
    /// Bytes of the frame as it was on the wire.
    pub length: usize,
    /// What was captured of it.
    pub bytes: &'a [u8],
}

/// Order of bytes, and how a file counts time.
#[derive(Clone, Copy, Debug, Default)]
struct Interface {
    link: u32,
    snap: u32,
    /// Nanoseconds of a tick, as a fraction.
    tick: (u64, u64),
    offset_s: u64,
}

/// Whether the first bytes are pcap's.
pub(super) fn is_pcap(input: &Input<'_>) -> bool {
    let magic = input.head().first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
    magic.is_some_and(|magic| ticks(magic).or(ticks(magic.swap_bytes())).is_some())
}

/// Whether the first bytes are pcapng's.
pub(super) fn is_pcapng(input: &Input<'_>) -> bool {
    let head = input.head();
    head.starts_with(&SECTION.to_le_bytes())
        && matches!(head.get(8..12), Some([0x1a, 0x2b, 0x3c, 0x4d] | [0x4d, 0x3c, 0x2b, 0x1a]))
}

/// Nanoseconds of a tick.
fn ticks(magic: u32) -> Option<u64> {
    match magic {
        0xa1b2_c3d4 => Some(1000),
        0xa1b2_3c4d => Some(1),
        _ => None,
    }
}

/// A file that is read record by record.
pub(super) struct Records<'a, 'i> {
    input: &'a mut Input<'i>,
    is_ng: bool,
    swapped: bool,
    interfaces: Vec<Interface>,
    buffer: Vec<u8>,
    /// Where the next record begins.
    at: u64,
}

impl<'a, 'i> Records<'a, 'i> {
    pub(super) fn open(input: &'a mut Input<'i>) -> Result<Self, ReadError> {
        let is_ng = is_pcapng(input);
        let mut records = Self {
            input,
            is_ng,
            swapped: false,
            interfaces: Vec::new(),
            buffer: Vec::new(),
            at: 0,
        };
        if !is_ng {
            records.fill(24, "header")?;
            let magic = records.word(0);
            records.swapped = ticks(magic).is_none();
            let tick = ticks(records.word(0)).unwrap_or(1000);
            let (snap, link) = (records.word(16), records.word(20) & 0x0fff_ffff);
            records.interfaces.push(Interface { link, snap, tick: (tick, 1), offset_s: 0 });
        }
        Ok(records)
    }

    /// Reads exactly so many bytes; `false` at a clean end.
    fn take(&mut self, length: usize, what: &str) -> Result<bool, ReadError> {
        self.buffer.resize(length, 0);
        let mut done = 0;
        while done < length {
            match self.input.read(&mut self.buffer[done..]) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(self.cut(what)),
                Ok(more) => done += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(ReadError::new(format!("at byte {}: {error}", self.at)));
                }
            }
        }
        self.at += length as u64;
        Ok(true)
    }

    fn fill(&mut self, length: usize, what: &str) -> Result<(), ReadError> {
        match self.take(length, what)? || length == 0 {
            true => Ok(()),
            false => Err(self.cut(what)),
        }
    }

    fn cut(&self, what: &str) -> ReadError {
        ReadError::new(format!("ends in the middle of a {what}, which begins at byte {}", self.at))
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.buffer.get(at..at + 4).and_then(|b| b.first_chunk::<4>());
        let word = u32::from_le_bytes(bytes.copied().unwrap_or_default());
        if self.swapped { word.swap_bytes() } else { word }
    }

    fn half(&self, at: usize) -> u16 {
        let bytes = self.buffer.get(at..at + 2).and_then(|b| b.first_chunk::<2>());
        let half = u16::from_le_bytes(bytes.copied().unwrap_or_default());
        if self.swapped { half.swap_bytes() } else { half }
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        if self.is_ng { self.next_block() } else { self.next_pcap() }
    }

    fn next_pcap(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let begin = self.at;
        if !self.take(16, "packet")? {
            return Ok(None);
        }
        let [seconds, fraction, captured, length] = [0, 4, 8, 12].map(|at| self.word(at));
        let captured = captured as usize;
        if LONGEST < captured {
            let reason = format!("the packet at byte {begin} claims {captured} bytes: damaged");
            return Err(ReadError::new(reason));
        }
        self.fill(captured, "packet")?;
        let Interface { link, tick, .. } = self.interfaces[0];
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * tick.0;
        let bytes = &self.buffer[..captured];
        let length = (length as usize).max(captured);
        Ok(Some(Record { link, time_ns: Some(time_ns), length, bytes }))
    }

    fn next_block(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        loop {
            let begin = self.at;
            if !self.take(8, "block")? {
                return Ok(None);
            }
            let kind = self.word(0);
            if kind == SECTION {
                self.section(begin)?;
                continue;
            }
            let length = self.word(4) as usize;
            if !(12..=LONGEST).contains(&length) || !length.is_multiple_of(4) {
                let reason = format!("the block at byte {begin} claims {length} bytes: damaged");
                return Err(ReadError::new(reason));
            }
            self.fill(length - 8, "block")?;
            if self.word(length - 12) as usize != length {
                let reason = format!("the block at byte {begin} has two lengths: damaged");
                return Err(ReadError::new(reason));
            }
            match kind {
                INTERFACE => self.interface(length - 12),
                PACKET | OLD_PACKET | SIMPLE_PACKET => {
                    let (interface, time, captured, length, start) = self.packet(kind, length - 12);
                    let Some(about) = self.interfaces.get(interface).copied() else {
                        let reason = format!("the packet at byte {begin} is of no interface");
                        return Err(ReadError::new(reason));
                    };
                    let Some(bytes) = self.buffer.get(start..start + captured) else {
                        let reason = format!("the packet at byte {begin} is longer than its block");
                        return Err(ReadError::new(reason));
                    };
                    let time_ns = time.map(|time| about.nanoseconds(time));
                    let length = length.max(captured);
                    return Ok(Some(Record { link: about.link, time_ns, length, bytes }));
                }
                _ => {}
            }
        }
    }

    /// Interface, time, bytes that were captured, bytes on the wire, and where they begin.
    fn packet(&self, kind: u32, body: usize) -> (usize, Option<u64>, usize, usize, usize) {
        if kind == SIMPLE_PACKET {
            let length = self.word(0) as usize;
            let snap = self.interfaces.first().map_or(0, |first| first.snap as usize);
            let most = if snap == 0 { length } else { snap.min(length) };
            return (0, None, most.min(body.saturating_sub(4)), length, 4);
        }
        let interface = if kind == PACKET { self.word(0) } else { u32::from(self.half(0)) };
        let time = u64::from(self.word(4)) << 32 | u64::from(self.word(8));
        let (captured, length) = (self.word(12) as usize, self.word(16) as usize);
        (interface as usize, Some(time), captured, length, 20)
    }

    fn section(&mut self, begin: u64) -> Result<(), ReadError> {
        let length = [self.buffer[4], self.buffer[5], self.buffer[6], self.buffer[7]];
        self.fill(4, "section")?;
        self.swapped = match self.buffer[..4] {
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            _ => return Err(ReadError::new(format!("the section at byte {begin} is damaged"))),
        };
        let length = u32::from_le_bytes(length);
        let length = if self.swapped { length.swap_bytes() } else { length } as usize;
        if !(28..=LONGEST).contains(&length) || !length.is_multiple_of(4) {
            return Err(ReadError::new(format!(
                "the section at byte {begin} claims {length} bytes"
            )));
        }
        self.interfaces.clear();
        self.fill(length - 12, "section")
    }

    fn interface(&mut self, body: usize) {
        let mut about = Interface {
            link: u32::from(self.half(0)),
            snap: self.word(4),
            tick: (1000, 1),
            offset_s: 0,
        };
        let mut at = 8;
        while at + 4 <= body {
            let (code, length) = (self.half(at), usize::from(self.half(at + 2)));
            let value = at + 4;
            match (code, length) {
                (0, _) => break,
                (9, 1) => about.tick = tick(self.buffer[value]),
                (14, 8) => about.offset_s = u64::from(self.word(value)),
                _ => {}
            }
            at = value + length.next_multiple_of(4);
        }
        self.interfaces.push(about);
    }
}

/// `if_tsresol`: a power of ten, or of two where the highest bit is set.
fn tick(resolution: u8) -> (u64, u64) {
    const SECOND: u64 = 1_000_000_000;
    match resolution {
        r if r & 0x80 != 0 => (SECOND, 1 << (r & 0x7f).min(63)),
        r if r <= 9 => (SECOND / 10_u64.pow(u32::from(r)), 1),
        r => (1, 10_u64.pow(u32::from(r.min(18)) - 9)),
    }
}

impl Interface {
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let (multiple, part) = self.tick;
        let ns = u128::from(ticks) * u128::from(multiple) / u128::from(part);
        let ns = ns + u128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}
