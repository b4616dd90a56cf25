//! The dragonfly: groups of routers, joined all-to-all within a group and between groups.
//!
//! A router has `p` NIC ports, a link to each other router of its group of `a`, and `h` links to
//! other groups; a balanced one has a = 2p = 2h, and there are at most a·h + 1 groups. Every pair
//! of groups has equally many links, dealt over the routers in order of the groups' distance.
//! Source: Kim et al., "Technology-driven, highly-scalable dragonfly topology" (ISCA 2008).
//! Shortest ways only: at most one local, one global and one local link. Detours over a third group
//! are a matter of routing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Length, Ranged, Ranges, Rate};

use super::Back;
use super::circuits::refuse_circuits;
use super::cluster::Members;
use super::error::Errors;
use super::family::{Family, Network};
use super::folded::Level;
use super::sizing::{Habits, Inputs};
use crate::graph::{FabricBuilder, LinkClass, LinkKind, NetworkKind, NodeId, Tier};

/// The shape of a dragonfly: `a`, `p`, `h` and `g` of Kim et al. (ISCA 2008).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DragonflyConfig {
    /// Routers of a group (a); without it, twice `global_links`.
    pub routers: Option<u32>,
    /// NIC ports of a router (p); without it, as many as `global_links`.
    pub hosts: Option<u32>,
    /// Cables from a router to other groups (h); without it, the fewest that fit.
    pub global_links: Option<u32>,
    /// Groups (g); without it, as many as needed.
    pub groups: Option<u32>,
}

impl Ranged for DragonflyConfig {
    fn ranges(&self, check: &mut Ranges) {
        let numbers = [
            ("routers", self.routers, 4_096),
            ("hosts", self.hosts, 4_096),
            ("global_links", self.global_links, 4_096),
            ("groups", self.groups, 65_536),
        ];
        for (key, value, most) in numbers {
            if let Some(value) = value {
                check.within(key, value, [1, most]);
            }
        }
    }
}

/// See the top of this file.
pub(crate) struct Dragonfly;

/// A dragonfly's numbers.
#[derive(Clone, Debug)]
struct Groups {
    name: String,
    members: Members,
    cables: usize,
    routers: usize,
    hosts: usize,
    groups: usize,
    global_links: usize,
    level: Level,
    /// Rate and length of the links within a group, and between groups.
    local: (Rate, Length),
    global: (Rate, Length),
}

/// What the scenario and the size make of (a, p, h).
fn shape(inputs: &Inputs<'_>, ports: Option<usize>) -> (usize, usize, usize) {
    let said = inputs.fabric.shapes.dragonfly;
    let number = |said: Option<u32>| said.map(|number| number as usize);
    let balanced = |h: usize| {
        let routers = number(said.routers).unwrap_or(2 * h);
        (routers, number(said.hosts).unwrap_or(h), h)
    };
    if let Some(h) = number(said.global_links) {
        return balanced(h);
    }
    let fits = |&(a, p, h): &(usize, usize, usize)| {
        let groups = number(said.groups).unwrap_or(a * h + 1);
        a * p * groups >= ports.unwrap_or(1)
    };
    (1..4096).map(balanced).find(fits).unwrap_or_else(|| balanced(1))
}

/// The numbers for these NICs.
fn plan(inputs: &Inputs<'_>, back: &Back, name: &str, errors: &mut Errors) -> Groups {
    let habits = Habits {
        names: ["router", "router", "router"],
        // Illustrative: copper within the rack, and within a group; optics between groups.
        lengths: [Length::from_metres(3), Length::from_metres(3), Length::from_metres(50)],
        ..Habits::default()
    };
    let ports = back.members.len() * back.ports_per_nic;
    let (routers, hosts, global_links) = shape(inputs, Some(ports));
    let hosts = hosts.max(1);
    let full = (routers * hosts).max(1);
    let said = inputs.fabric.shapes.dragonfly.groups.map(|groups| groups as usize);
    let groups = said.unwrap_or(ports.div_ceil(full)).max(1);
    let path = inputs.at("dragonfly");
    if groups * full < ports {
        let reason = format!("{groups} groups have {} NIC ports, not {ports}", groups * full);
        let enough = ports.div_ceil(full);
        errors.push(&path, reason, &format!("groups = {enough}"));
    }
    if routers * global_links + 1 < groups {
        let reason = format!(
            "{routers} routers with {global_links} global links join {} groups at most, not \
             {groups}",
            routers * global_links + 1
        );
        errors.push(&path, reason, "more `global_links` or `routers`");
    }
    let length = |tier: usize| {
        let link = inputs.fabric.links.get(tier);
        link.and_then(|link| link.length).unwrap_or(habits.lengths[tier])
    };
    refuse_circuits(inputs, errors);
    Groups {
        name: name.to_owned(),
        members: back.members.clone(),
        cables: back.ports_per_nic,
        routers,
        hosts,
        groups,
        global_links,
        level: inputs.level(0, &habits, errors),
        local: (inputs.rate(1), length(1)),
        global: (inputs.rate(2), length(2)),
    }
}

impl Groups {
    /// Links between each two groups.
    fn links_per_pair(&self) -> usize {
        self.routers * self.global_links / (self.groups - 1).max(1)
    }
}

impl Network for Groups {
    fn cables(&self) -> f64 {
        let [groups, routers] = [self.groups, self.routers].map(|count| count as f64);
        (self.members.len() * self.cables) as f64
            + groups * routers * (routers / 2.0 + self.global_links as f64 / 2.0)
    }

    fn wire(
        &self,
        inputs: &Inputs<'_>,
        first_leaf: usize,
        builder: &mut FabricBuilder,
        _: &mut Errors,
    ) -> usize {
        builder.network(&self.name, NetworkKind::BackEnd, "group");
        let Level { name, model, latency, rate, delay, length, .. } = self.level.clone();
        let kind = LinkKind::ScaleOut;
        let tier = builder.tier(Tier { name: name.clone(), model, latency });
        let class = format!("NIC – {name}");
        let down = builder.class(LinkClass { name: class, kind, rate, delay, length });
        let mut class = |name: &str, tier: usize, (rate, length): (Rate, Length)| {
            let said = inputs.fabric.links.get(tier).and_then(|link| link.delay);
            let delay = said.unwrap_or(length.propagation());
            builder.class(LinkClass { name: name.to_owned(), kind, rate, delay, length })
        };
        let local = class("local", 1, self.local);
        let global = class("global", 2, self.global);

        let mut routers: Vec<NodeId> = Vec::with_capacity(self.groups * self.routers);
        for group in 0..self.groups {
            for router in 0..self.routers {
                routers.push(builder.plain_switch(tier, group, router));
            }
        }
        let rails = self.members.rails.len();
        for at in 0..self.members.len() {
            let nic = self.members.node(at / rails, at % rails);
            for cable in 0..self.cables {
                let router = (at * self.cables + cable) / self.hosts;
                builder.cable(nic, routers[router], down);
            }
        }
        for group in routers.chunks(self.routers) {
            for (at, router) in group.iter().enumerate() {
                for other in &group[at + 1..] {
                    builder.cable(*router, *other, local);
                }
            }
        }
        let links = self.links_per_pair();
        // The router of a group that holds a link to the group so far ahead in the circle.
        let router = |group: usize, ahead: usize, link: usize| {
            let slot = (ahead - 1) * links + link;
            routers[group * self.routers + slot / self.global_links]
        };
        for group in 0..self.groups {
            for other in group + 1..self.groups {
                let (ahead, back) = (other - group, self.groups - (other - group));
                for link in 0..links {
                    builder.cable(router(group, ahead, link), router(other, back, link), global);
                }
            }
        }
        first_leaf + routers.len()
    }
}

impl Family for Dragonfly {
    fn keys(&self) -> Vec<&'static str> {
        vec!["dragonfly"]
    }

    fn plan(
        &self,
        inputs: &Inputs<'_>,
        back: &Back,
        name: &str,
        errors: &mut Errors,
    ) -> Box<dyn Network> {
        Box::new(plan(inputs, back, name, errors))
    }

    fn servers(&self, inputs: &Inputs<'_>, ports_per_server: usize) -> Option<usize> {
        let said = inputs.fabric.shapes.dragonfly;
        said.global_links?;
        let (a, p, h) = shape(inputs, None);
        let groups = said.groups.map_or(a * h + 1, |groups| groups as usize);
        Some((a * p * groups / ports_per_server).clamp(1, super::MAX_GPUS as usize))
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, super::ClusterConfig, super::FabricConfig)> {
        use super::tests::{hosts, of};
        vec![("dragonfly", hosts(72), of(super::TopologyKind::Dragonfly))]
    }

    #[cfg(test)]
    fn with_numbers(
        &self,
        config: super::FabricConfig,
        numbers: &[Option<u32>],
    ) -> super::FabricConfig {
        let &[routers, hosts, global_links, groups] = numbers else { return config };
        let dragonfly = DragonflyConfig { routers, hosts, global_links, groups };
        let shapes = super::Shapes { dragonfly, ..super::Shapes::default() };
        super::FabricConfig { shapes, ..config }
    }
}
