//! No congestion control: always send at line rate and leave the rest to PFC.
//!
//! This is how Meta has run its 400G training clusters (Gangidi et al., "RDMA over Ethernet for
//! Distributed AI Training at Meta Scale", SIGCOMM 2024, section 5.2), and the yardstick for the
//! other algorithms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Rate};

use super::{Algorithm, Circumstances, Limit, Needs, Sender};

/// There is nothing to choose.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Algorithm for Config {
    fn sender(&self, about: &Circumstances) -> Box<dyn Sender> {
        Box::new(LineRate::new(about.line))
    }

    fn needs(&self) -> Needs {
        Needs { no_acks: true, ..Needs::default() }
    }
}

/// Sends at line rate, whatever happens.
#[derive(Debug)]
pub struct LineRate {
    line: Rate,
}

impl LineRate {
    /// For a queue pair whose link runs at `line`.
    pub fn new(line: Rate) -> Self {
        Self { line }
    }
}

impl Sender for LineRate {
    fn limit(&self) -> Limit {
        Limit { rate: self.line, window: Bytes::MAX }
    }

    fn is_resting(&self) -> bool {
        true
    }
}
