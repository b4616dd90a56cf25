//! Captures: packets of RoCEv2, RoCEv1 and InfiniBand, pause frames and LLDP.
//!
//! * [`file`]: pcap and pcapng, record by record.
//! * [`frame`]: from the link layer to a packet of the transport: VLAN, IP, ERF, mirrors.
//! * [`flow`]: what the packets of one direction of a queue pair say: order, messages, marks.
//! * [`lldp`]: neighbours, and what they agreed on with DCBX.
//!
//! A record is read, counted and forgotten; memory grows with queue pairs alone.

mod file;
mod flow;
mod frame;
mod lldp;
mod rate;

pub use flow::Wire;

use crate::format::{Format, Reading};
use crate::input::{Input, ReadError};
use flow::Flows;

/// The capture files of tcpdump and Wireshark.
pub const PCAP: Format =
    Format { name: "pcap capture", unit: "packets", recognises: file::is_pcap, read };
/// Their newer form.
pub const PCAPNG: Format =
    Format { name: "pcapng capture", unit: "packets", recognises: file::is_pcapng, read };

fn read(input: &mut Input<'_>, reading: &mut Reading<'_>) -> Result<(), ReadError> {
    let mut flows = Flows::default();
    let mut records = file::Records::open(input)?;
    let result = loop {
        match records.next() {
            Ok(Some(record)) => {
                let known = frame::read(&record, &mut flows);
                match known {
                    true => reading.source.read += 1,
                    false => reading.source.skipped += 1,
                }
            }
            Ok(None) => break Ok(()),
            Err(trouble) => break Err(trouble),
        }
    };
    flows.finish(reading);
    result
}
