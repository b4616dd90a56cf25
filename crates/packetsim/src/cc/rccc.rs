//! RCCC: Ultra Ethernet's receiver-credit congestion control.
//!
//! A sender may send a little unasked; everything else waits for credit from its receiver. A
//! receiver has at most so many bytes of credit out that have not arrived, over all its senders
//! together, and hands out the next in turn to those that have something to send, as packets come
//! in. So the last link is always busy and never overrun, whatever the number of senders; what
//! queues elsewhere is left to spraying and trimming.
//!
//! Source: Ultra Ethernet Specification 1.0, receiver-credit congestion control; the same idea in
//! NDP (Handley et al., SIGCOMM 2017) and EQDS (Olteanu et al., NSDI 2022).
//!
//! # Where this model departs from its sources
//!
//! * Credit follows arrivals; the specification paces it by a clock at the receiver's rate.
//! * A receiver knows of a message when it is posted: requests for credit take no time.
//! * Sizes are illustrative; the specification leaves them to the implementation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Ranges, Rate};

use super::{Algorithm, Circumstances, Limit, Needs, ReceiverCredit, Sender};

/// Parameters of RCCC.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What a queue pair may send unasked when it begins.
    pub unasked: Bytes,
    /// What one message of credit allows.
    pub credit: Bytes,
    /// What a receiver may have granted and not yet received, over all its senders.
    pub outstanding: Bytes,
}

impl Default for Config {
    fn default() -> Self {
        // Illustrative: round trips of 5 us (unasked) and 10 us (in all) at 400 Gb/s, two packets
        // at a time.
        Self {
            unasked: Bytes::from_kib(256),
            credit: Bytes::from_kib(8),
            outstanding: Bytes::from_kib(512),
        }
    }
}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(Granted { line: about.line })
    }

    fn needs(&self) -> Needs {
        let Self { unasked, credit, outstanding } = *self;
        let credit = Some(ReceiverCredit { unasked, credit, outstanding });
        Needs { credit, ..Needs::default() }
    }

    fn ranges(&self, check: &mut Ranges) {
        check.positive("credit", self.credit);
    }
}

/// The sending half: what has been granted leaves at line rate.
#[derive(Debug)]
pub struct Granted {
    line: Rate,
}

impl Sender for Granted {
    fn limit(&self) -> Limit {
        Limit { rate: self.line, window: Bytes::MAX }
    }
}
