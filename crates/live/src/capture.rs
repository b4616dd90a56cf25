//! What a rank sent and received, as a capture file that tshark and `observe` read.
//!
//! Packets begin with their IP header (link type 101, raw IP); times have nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A capture file that is being written.
#[derive(Debug)]
pub struct Capture {
    file: BufWriter<File>,
}

impl Capture {
    /// Begins one.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 65_536, 101] {
            file.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { file })
    }

    /// Adds a packet that begins with its IP header.
    pub fn add(&mut self, packet: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let length = packet.len() as u32;
        for word in [now.as_secs() as u32, now.subsec_nanos(), length, length] {
            self.file.write_all(&word.to_le_bytes())?;
        }
        self.file.write_all(packet)
    }

    /// Writes what is left.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}
