//! The one way from a collective to transfers: the library's choice, the limit, the writing.

use std::fmt;

use fabric::Fabric;
use units::Bytes;

use super::writer::{Detail, Group, Request, write};
use super::{Ask, Collective};
use crate::nccl::{self, Plan, Settings};
use crate::transfers::{LabelId, OpId, Transfers};

/// A collective that a group is to run, before anybody has chosen how.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// What is to be done.
    pub collective: Collective,
    /// With how much, as nccl-tests counts it.
    pub bytes: Bytes,
    /// By what software.
    pub settings: &'a Settings,
    /// How finely it is written.
    pub detail: Detail,
    /// See [`Ask::weights`].
    pub weights: &'a [f64],
    /// The most that may be written.
    pub limit: Limit,
    /// What its operations belong to: "data-parallel all_reduce 12".
    pub label: LabelId,
}

/// The most operations that collectives may be written out to: above, nothing is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// All of them together.
    pub operations: usize,
    /// How often the collective is written in all: by other groups, or again.
    pub copies: u64,
}

impl Limit {
    /// Whatever it takes.
    pub const NONE: Self = Self { operations: usize::MAX, copies: 1 };
}

/// A collective that was written out.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The operation that ends it.
    pub end: OpId,
    /// How the library runs it.
    pub plan: Plan,
}

/// Why a collective was not written out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unlowered {
    /// No algorithm runs it on these ranks.
    NoAlgorithm {
        /// What was wanted.
        collective: Collective,
        /// On how many ranks.
        ranks: u32,
    },
    /// It is more than may be written.
    TooManyOperations {
        /// What was wanted.
        collective: Collective,
        /// About how many they are, over all copies.
        operations: u64,
        /// How many they may be.
        most: usize,
    },
}

impl fmt::Display for Unlowered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAlgorithm { collective, ranks } => {
                write!(out, "no algorithm runs {} on {ranks} ranks here", collective.name())
            }
            Self::TooManyOperations { collective, operations, .. } => {
                let name = collective.name();
                write!(
                    out,
                    "{name} written out step by step is about {operations} messages, more than \
                     memory holds"
                )
            }
        }
    }
}

impl std::error::Error for Unlowered {}

/// Writes a collective of a group as transfers, the way its library would run it.
pub fn lower(
    fabric: &Fabric,
    group: &mut Group,
    wanted: &Wanted<'_>,
    transfers: &mut Transfers,
    after: &[OpId],
) -> Result<Lowered, Unlowered> {
    let Wanted { collective, bytes, settings, detail, weights, limit, label } = *wanted;
    let communicator = &group.communicator;
    let ask = Ask { fabric, communicator, collective, bytes, settings, weights };
    let ranks = communicator.ranks() as u32;
    let plan = nccl::plan(&ask).ok_or(Unlowered::NoAlgorithm { collective, ranks })?;
    let most = limit.operations;
    if most < usize::MAX {
        let operations = plan.algorithm.operations(&ask, &plan) * limit.copies as f64;
        if (most as f64) < operations {
            let operations = operations as u64;
            return Err(Unlowered::TooManyOperations { collective, operations, most });
        }
    }
    let request = Request { collective, bytes, detail, label, settings, plan: &plan, weights };
    Ok(Lowered { end: write(fabric, group, &request, transfers, after), plan })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Communicator;
    use fabric::hardware::Catalogue;
    use fabric::topology::{ClusterConfig, FabricConfig, build};
    use units::Id;

    /// The limit holds for all copies together, is not reached by fewer, and stops before anything
    /// is written.
    #[test]
    fn more_than_memory_holds_is_not_written() {
        let cluster = ClusterConfig { nodes: Some(4), ..ClusterConfig::default() };
        let fabric = build(&cluster, &FabricConfig::default(), &Catalogue::default()).unwrap();
        let gpus: Vec<_> = (0..32).map(|gpu| fabric.gpu(gpu)).collect();
        let settings = Settings::default();
        let write = |operations: usize, copies: u64| {
            let mut transfers = Transfers::new();
            let label = transfers.label("all-reduce");
            let wanted = Wanted {
                collective: Collective::AllReduce,
                bytes: Bytes::from_mib(64),
                settings: &settings,
                detail: Detail::Stepwise,
                weights: &[],
                limit: Limit { operations, copies },
                label,
            };
            let mut group = Group::new(Communicator::new(&fabric, &gpus));
            let lowered = lower(&fabric, &mut group, &wanted, &mut transfers, &[]);
            (lowered.map(|lowered| lowered.end), transfers.ops().len())
        };
        let (end, written) = write(usize::MAX, 1);
        assert_eq!(end.unwrap(), OpId::from_index(written - 1));
        assert!(write(2 * written, 1).0.is_ok());
        let (refused, nothing) = write(2 * written, 1_000);
        let Err(Unlowered::TooManyOperations { operations, most, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(most == 2 * written && (most as u64) < operations && nothing == 0);
    }
}
