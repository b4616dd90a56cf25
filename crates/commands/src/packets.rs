//! What packet runs need before they begin: an estimate, and a refusal of what would take too long.
//!
//! The other engines answer at once whatever the size; packets cost in proportion to bytes.

use fabric::Fabric;
use packetsim::{Estimate, Settings, Watch};
use report::number::grouped;
use traffic::{Op, OpKind, Transfers};
use units::Bytes;

use crate::bounds;
use crate::engine::Cost;
use crate::failure::Failure;
use crate::meter;

/// A run that would take longer than this is refused unless the user insists.
pub const LONGEST_S: f64 = 600.0;

/// What an operation that waits to be run takes in memory, in its graph and in the engine.
const OPERATION_BYTES: u64 = 256;

/// Whether a run may take longer, or more memory, than people usually want.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Patience {
    /// Runs above ten minutes or the memory that there is are refused.
    #[default]
    Usual,
    /// The user insists.
    Endless,
}

impl Patience {
    /// The most operations that collectives may be written out to: as many as memory holds with
    /// their run, or, for who insists, as can be written at all.
    pub fn most_operations(self) -> usize {
        let (left, each) = match self {
            Self::Usual => (meter::left(), OPERATION_BYTES),
            Self::Endless => (meter::left_to_a_run(), size_of::<Op>() as u64),
        };
        left.map_or(usize::MAX, |left| (left.bytes / each) as usize)
    }

    /// Lets the runs of a watch take as long.
    pub fn tell(self, watch: &mut Watch<'_>) {
        watch.is_patient = self == Self::Endless;
    }
}

/// What the runs of one command have cost so far, by their estimates.
#[derive(Clone, Debug)]
pub struct Budget {
    patience: Patience,
    seconds: f64,
    packet_hops: u64,
    /// Of the largest.
    memory: u64,
}

impl Budget {
    /// Nothing spent yet.
    pub fn new(patience: Patience) -> Self {
        Self { patience, seconds: 0.0, packet_hops: 0, memory: 0 }
    }

    /// Whether runs may take long.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Estimates a run, and refuses what is too large or beyond counting.
    pub fn check(
        &mut self,
        fabric: &Fabric,
        transfers: &Transfers,
        settings: &Settings,
    ) -> Result<Estimate, Failure> {
        refuse_endless_messages(transfers, settings)?;
        let estimate = packetsim::estimate(fabric, transfers, settings);
        self.seconds += estimate.seconds;
        self.packet_hops += estimate.packet_hops;
        self.memory = self.memory.max(estimate.memory);
        let cost = Cost { seconds: self.seconds, memory: self.memory };
        let why = bounds::refusal(cost).filter(|_| self.patience == Patience::Usual);
        let Some(why) = why else { return Ok(estimate) };
        let hops = grouped(self.packet_hops);
        Err(Failure::Run(format!(
            "about {hops} packet-hops would take {why}; --force runs it all the same, --engine \
             flow answers at once"
        )))
    }
}

/// Refuses messages whose packets the engine cannot number.
fn refuse_endless_messages(transfers: &Transfers, settings: &Settings) -> Result<(), Failure> {
    let most = settings.packet.mtu.get().max(1).saturating_mul(u64::from(u32::MAX));
    let endless = |op: &Op| match op.kind {
        OpKind::Send { bytes, .. } => Some(bytes).filter(|bytes| most < bytes.get()),
        _ => None,
    };
    let found = transfers.ops().iter().find_map(endless);
    found.map_or(Ok(()), |bytes| {
        let size = Bytes::new(most);
        let text = format!("a message of {bytes} is above the {size:.0} that packets count");
        Err(Failure::Run(format!("{text}; --engine flow takes any size")))
    })
}
