//! Captures of packets as pcapng, which Wireshark, tshark and tcpdump read.
//!
//! A section header, one description for each interface, one enhanced block for each packet, all
//! little-endian, with times in nanoseconds. Source: draft-ietf-opsawg-pcapng.

use std::io::{self, Write};

/// Block types.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// Says in which order bytes are.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Ethernet without its check sequence.
const ETHERNET: u16 = 1;

/// Options: a remark; the application of a section; the name and the time's grain of an interface;
/// the direction of a packet.
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const NAME: u16 = 2;
const GRAIN: u16 = 9;
const FLAGS: u16 = 2;

/// In the flags of a packet: it came in.
const INBOUND: u32 = 1;

/// The shortest file that holds anything.
pub const SHORTEST: u64 = 1024;

/// A capture that is being written, of at most so many bytes.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    limit: u64,
    written: u64,
    interfaces: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a file by an application.
    pub fn new(out: W, application: &str, limit: u64) -> io::Result<Self> {
        let mut writer = Self { out, limit, written: 0, interfaces: 0 };
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        body.extend([1, 0, 0, 0]); // version 1.0
        body.extend(u64::MAX.to_le_bytes()); // of unknown length
        option(&mut body, APPLICATION, application.as_bytes());
        end_of_options(&mut body);
        writer.block(SECTION, &body)?;
        Ok(writer)
    }

    /// Describes the next interface; none if the file is full.
    pub fn interface(&mut self, name: &str) -> io::Result<Option<u32>> {
        let mut body = Vec::new();
        body.extend(ETHERNET.to_le_bytes());
        body.extend([0; 6]); // reserved, and no limit on the length of packets
        option(&mut body, NAME, name.as_bytes());
        option(&mut body, GRAIN, &[9]);
        end_of_options(&mut body);
        if !self.block(INTERFACE, &body)? {
            return Ok(None);
        }
        self.interfaces += 1;
        Ok(Some(self.interfaces - 1))
    }

    /// Writes a packet that came in over an interface; says whether there was room for it.
    pub fn packet(
        &mut self,
        interface: u32,
        at_ns: u64,
        frame: &[u8],
        comment: Option<&str>,
    ) -> io::Result<bool> {
        let mut body = Vec::with_capacity(frame.len() + 64);
        body.extend(interface.to_le_bytes());
        body.extend(((at_ns >> 32) as u32).to_le_bytes());
        body.extend((at_ns as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend(frame);
        pad(&mut body);
        if let Some(comment) = comment {
            option(&mut body, COMMENT, comment.as_bytes());
        }
        option(&mut body, FLAGS, &INBOUND.to_le_bytes());
        end_of_options(&mut body);
        self.block(PACKET, &body)
    }

    /// Ends the file; how long it is.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.written)
    }

    /// Writes a block, if there is room for it; after one that had none, none is written.
    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<bool> {
        let length = body.len() as u64 + 12;
        if self.limit < self.written + length {
            self.limit = self.written;
            return Ok(false);
        }
        let length = (length as u32).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length)?;
        self.out.write_all(body)?;
        self.out.write_all(&length)?;
        self.written += body.len() as u64 + 12;
        Ok(true)
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: lengths by hand. A full file takes no further block, not even a shorter one.
    #[test]
    fn a_file_ends_at_its_limit() {
        let mut bytes = Vec::new();
        // 12 + 16 + 12 (application) + 4 = 44; 12 + 8 + 8 + 8 + 4 = 40; 12 + 20 + 8 + 12 = 52.
        let mut writer = Writer::new(&mut bytes, "fatflow", 44 + 40 + 2 * 52 + 3).unwrap();
        assert_eq!(writer.interface("nic").unwrap(), Some(0));
        assert!(writer.packet(0, 1, &[7; 8], None).unwrap());
        assert!(!writer.packet(0, 2, &[7; 12], Some("too long")).unwrap());
        assert!(!writer.packet(0, 3, &[7; 8], None).unwrap());
        assert_eq!(writer.interface("other").unwrap(), None);
        assert_eq!(writer.finish().unwrap(), 44 + 40 + 52);
        assert_eq!(bytes.len(), 44 + 40 + 52);
        assert_eq!(bytes[..4], SECTION.to_le_bytes());
    }
}
