//! RoCEv2 without input and output: the wire format, and queue pairs as state machines.
//!
//! # Map of the modules, in reading order
//!
//! * [`opcode`]: what a packet is, and which headers follow its first.
//! * [`header`]: the transport headers, to bytes and back.
//! * [`packet`]: a whole packet from its IP header to its ICRC, for captures and for sockets.
//! * [`queue_pair`]: a reliable connection as a state machine.
//! * [`datagram`]: a queue pair of unreliable datagrams.
//!
//! # Invariants
//!
//! * No clocks, sockets or files.
//! * What is decoded and encoded again has the same bytes.
//! * Malformed input gives an error with its reason; nothing panics.
//!
//! Sources: InfiniBand Architecture Specification, Volume 1, release 1.2.1, chapter 9 (headers,
//! opcodes, syndromes) and Annex A17 (RoCEv2, CNP, ICRC over IP).

pub mod datagram;
pub mod header;
pub mod opcode;
pub mod packet;
mod psn;
pub mod queue_pair;

pub use header::{Aeth, Bth, Deth, Headers, NakCode, Reth, Syndrome};
pub use opcode::{Opcode, Operation, Transport};
pub use packet::{Decoded, Envelope, Icrc, Malformed};
pub use queue_pair::QueuePair;
