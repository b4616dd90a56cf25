//! What a family of topologies is: one file that implements [`Family`], and its line in the list in
//! [`topology`](super).

use super::Back;
use super::error::Errors;
use super::folded::{Folded, Plan};
use super::settings::FabricConfig;
use super::sizing::{Habits, Inputs};
use crate::graph::{FabricBuilder, NetworkKind};

/// The keys that most folded Clos networks obey.
pub(crate) const FOLDED: [&str; 13] = [
    "radix",
    "tiers",
    "oversubscription",
    "uplinks",
    "downlinks",
    "pods",
    "pod_gpus",
    "spines",
    "cores",
    "circuits",
    "sites",
    "spine",
    "core",
];

/// A family of topologies.
pub(crate) trait Family: Sync {
    /// The keys of `[fabric]` that it obeys, besides those that every family does.
    fn keys(&self) -> Vec<&'static str>;

    /// The back-end of these NICs, ready to be wired. `name` is the part's, or empty.
    fn plan(
        &self,
        inputs: &Inputs<'_>,
        back: &Back,
        name: &str,
        errors: &mut Errors,
    ) -> Box<dyn Network>;

    /// How many servers it has where the scenario does not say, if its shape tells; a server has
    /// so many NIC ports.
    fn servers(&self, _inputs: &Inputs<'_>, _ports_per_server: usize) -> Option<usize> {
        None
    }

    /// The ports of a NIC where the scenario says nothing, if that follows from the family.
    fn ports_per_nic(&self, _fabric: &FabricConfig) -> Option<u32> {
        None
    }

    /// Small ones, with names for messages: what the tests of all families run on.
    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, super::ClusterConfig, FabricConfig)>;

    /// Whether two rails are joined.
    #[cfg(test)]
    fn joins(&self, _rail: usize, _other: usize) -> bool {
        true
    }

    /// The settings with numbers in the family's own table, sensible or not.
    #[cfg(test)]
    fn with_numbers(&self, config: FabricConfig, _numbers: &[Option<u32>]) -> FabricConfig {
        config
    }
}

/// A back-end that is ready to be wired.
pub(crate) trait Network {
    /// About how many cables there will be; as a float, since it may be absurd.
    fn cables(&self) -> f64;

    /// Adds everything to the builder. `first_leaf` is the ordinal of the first leaf; the ordinal
    /// after the last one comes back.
    fn wire(
        &self,
        inputs: &Inputs<'_>,
        first_leaf: usize,
        builder: &mut FabricBuilder,
        errors: &mut Errors,
    ) -> usize;
}

/// Declares the families: for each its module, its kind, its name in scenario files and, where it
/// has a shape of its own, the table of that shape, whose key is the module's name.
macro_rules! families {
    ($($(#[$about:meta])* $module:ident::$kind:ident = $name:literal $(, $shape:ident)?;)*) => {
        $(mod $module;)*
        $($(pub use $module::$shape;)?)*

        /// Which family of topologies the back-end belongs to.
        #[derive(
            Clone, Copy, Debug, Default, serde::Deserialize, Eq, schemars::JsonSchema, PartialEq,
            serde::Serialize,
        )]
        pub enum TopologyKind {
            $($(#[$about])* #[serde(rename = $name)] $kind,)*
        }

        impl TopologyKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Its name in scenario files.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            pub(crate) fn family(self) -> &'static dyn Family {
                match self {
                    $(Self::$kind => &$module::$kind,)*
                }
            }
        }

        /// The tables of families that have a shape of their own.
        #[derive(
            Clone, Debug, Default, serde::Deserialize, schemars::JsonSchema, PartialEq,
            serde::Serialize,
        )]
        #[serde(default)]
        pub struct Shapes {
            $($(
                #[doc = concat!("The shape of a fabric of the topology \"", $name, "\".")]
                pub $module: $shape,
            )?)*
        }

        impl units::Ranged for Shapes {
            fn ranges(&self, check: &mut units::Ranges) {
                $($(check.table(stringify!($module), &self.$module as &$shape);)?)*
            }
        }
    };
}
pub(crate) use families;

/// The plan of a family of folded Clos networks.
pub(crate) fn folded(
    inputs: &Inputs<'_>,
    networks: Vec<Folded>,
    habits: &Habits,
    [name, zone_word]: [&str; 2],
    errors: &mut Errors,
) -> Box<dyn Network> {
    let tiers = networks
        .first()
        .map_or(0, |network| network.switches().iter().filter(|switches| 0 < **switches).count());
    Box::new(Plan {
        name: if name.is_empty() { "back-end".to_owned() } else { name.to_owned() },
        kind: NetworkKind::BackEnd,
        zone_word: zone_word.to_owned(),
        levels: (0..tiers).map(|tier| inputs.level(tier, habits, errors)).collect(),
        networks,
    })
}
