//! The two-dimensional torus: routers in rows and columns, each row and each column a ring.
//!
//! A router has `hosts` NIC ports and `cables` to each of its neighbours: east, west, north, south.
//! Packets take the shortest way in their row first and then in their column (dimension order): a
//! packet never turns back, so of all waits in a circle only those around a ring are left. Rings of
//! four routers and more have such circles, and a lossless network without further lanes can then
//! deadlock; a fabric says so ([`Fabric::can_deadlock`](crate::Fabric::can_deadlock)).
//! Source: Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection
//! networks" (IEEE Transactions on Computers, 1987); without their virtual channels.

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

/// The shape of a torus.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TorusConfig {
    /// Routers in a row; without it, as near to a square as fits.
    pub columns: Option<u32>,
    /// Rows; without it, as many as needed.
    pub rows: Option<u32>,
    /// NIC ports of a router; without it, those of one server.
    pub hosts: Option<u32>,
    /// Cables between two neighbours; without it, a quarter of `hosts`, at least one.
    pub cables: Option<u32>,
}

impl Ranged for TorusConfig {
    fn ranges(&self, check: &mut Ranges) {
        // Distances are kept in 8 bits.
        let numbers = [
            ("columns", self.columns, 250),
            ("rows", self.rows, 250),
            ("hosts", self.hosts, 4_096),
            ("cables", self.cables, 4_096),
        ];
        for (key, value, most) in numbers {
            if let Some(value) = value {
                check.within(key, value, [1, most]);
            }
        }
    }
}

/// See the top of this file.
pub(crate) struct Torus;

/// The numbers of a torus.
#[derive(Clone, Debug)]
struct Grid {
    name: String,
    members: Members,
    ports_per_nic: usize,
    columns: usize,
    rows: usize,
    hosts: usize,
    cables: usize,
    level: Level,
    link: (Rate, Length),
}

fn habits() -> Habits {
    // Illustrative: copper within the rack and to the neighbours.
    let lengths = [Length::from_metres(3), Length::from_metres(5), Length::from_metres(5)];
    Habits { names: ["router"; 3], lengths, ..Habits::default() }
}

fn plan(inputs: &Inputs<'_>, back: &Back, name: &str, errors: &mut Errors) -> Grid {
    let said = inputs.fabric.shapes.torus;
    let ports = back.members.len() * back.ports_per_nic;
    let of_server = back.members.rails.len() * back.ports_per_nic;
    let number = |said: Option<u32>| said.map(|number| number as usize);
    let hosts = number(said.hosts).unwrap_or(of_server).max(1);
    let routers = ports.div_ceil(hosts);
    let columns = number(said.columns).unwrap_or_else(|| match number(said.rows) {
        Some(rows) => routers.div_ceil(rows),
        None => (1..).find(|side| routers <= side * side).expect("squares grow without end"),
    });
    let rows = number(said.rows).unwrap_or(routers.div_ceil(columns.max(1)));
    let path = inputs.at("torus");
    if columns * rows < routers {
        let reason = format!("{columns} × {rows} routers have too few ports for {ports} NIC ports");
        errors.push(&path, reason, &format!("rows = {}", routers.div_ceil(columns)));
    }
    if 250 < columns.max(rows) {
        let reason = format!("{columns} × {rows} routers are more than 250 × 250");
        errors.push(&path, reason, "more `hosts`");
    }
    let cables = number(said.cables).unwrap_or((hosts / 4).max(1));
    let habits = habits();
    let (down, rate) = (inputs.rate(0), inputs.rate(1));
    let fastest = down.max(rate);
    let router = inputs.switch(0, fastest, &habits, errors);
    let neighbours = neighbours(columns) + neighbours(rows);
    let wanted =
        hosts as f64 * down.as_bps_f64() + (neighbours * cables) as f64 * rate.as_bps_f64();
    if router.capacity_at(fastest) as f64 * (1.0 + 1e-9) < wanted {
        let reason = format!(
            "a router cannot have {hosts} NIC ports and {cables} cables to each of {neighbours} \
             neighbours: `{}` has {} ports of {fastest}",
            router.model,
            router.ports_at(fastest),
        );
        errors.push(&path, reason, "fewer `hosts` or `cables`, or a larger `radix`");
    }
    refuse_circuits(inputs, errors);
    let link = inputs.fabric.links.get(1).copied().unwrap_or_default();
    Grid {
        name: name.to_owned(),
        members: back.members.clone(),
        ports_per_nic: back.ports_per_nic,
        columns,
        rows,
        hosts,
        cables,
        level: inputs.level(0, &habits, errors),
        link: (rate, link.length.unwrap_or(habits.lengths[1])),
    }
}

/// Neighbours of a router in a ring of so many.
fn neighbours(ring: usize) -> usize {
    ring.min(3) - 1
}

impl Network for Grid {
    fn cables(&self) -> f64 {
        let routers = (self.columns * self.rows) as f64;
        (self.members.len() * self.ports_per_nic) as f64 + 2.0 * routers * self.cables as f64
    }

    fn wire(
        &self,
        inputs: &Inputs<'_>,
        first_leaf: usize,
        builder: &mut FabricBuilder,
        _: &mut Errors,
    ) -> usize {
        builder.network(&self.name, NetworkKind::BackEnd, "row");
        let Level { name, model, latency, rate, delay, length, .. } = self.level.clone();
        let kind = LinkKind::ScaleOut;
        let tier = builder.tier(Tier { name: name.clone(), model, latency });
        builder.rows_first(tier, 3 < self.columns.max(self.rows));
        let class = format!("NIC – {name}");
        let down = builder.class(LinkClass { name: class, kind, rate, delay, length });
        let (rate, length) = self.link;
        let said = inputs.fabric.links.get(1).and_then(|link| link.delay);
        let delay = said.unwrap_or(length.propagation());
        let class = format!("{name} – {name}");
        let beside = builder.class(LinkClass { name: class, kind, rate, delay, length });

        let (columns, rows) = (self.columns, self.rows);
        let routers: Vec<NodeId> = (0..rows * columns)
            .map(|at| builder.plain_switch(tier, at / columns, at % columns))
            .collect();
        let rails = self.members.rails.len();
        for at in 0..self.members.len() {
            let nic = self.members.node(at / rails, at % rails);
            for port in 0..self.ports_per_nic {
                let router = (at * self.ports_per_nic + port) / self.hosts;
                builder.cable(nic, routers[router], down);
            }
        }
        let mut join = |a: usize, b: usize| {
            for _ in 0..self.cables {
                builder.cable(routers[a], routers[b], beside);
            }
        };
        for at in 0..rows * columns {
            let (row, column) = (at / columns, at % columns);
            // Each router joins the next of its ring; the last of two has been joined already.
            if column + 1 < columns || 2 < columns {
                join(at, row * columns + (column + 1) % columns);
            }
            if row + 1 < rows || 2 < rows {
                join(at, (row + 1) % rows * columns + column);
            }
        }
        first_leaf + routers.len()
    }
}

#[cfg(test)]
fn with(config: super::FabricConfig, torus: TorusConfig) -> super::FabricConfig {
    let shapes = super::Shapes { torus, ..config.shapes };
    super::FabricConfig { shapes, ..config }
}

impl Family for Torus {
    fn keys(&self) -> Vec<&'static str> {
        vec!["radix", "torus"]
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
        let said = inputs.fabric.shapes.torus;
        let routers = said.columns? as usize * said.rows? as usize;
        let hosts = said.hosts.map_or(ports_per_server, |hosts| hosts as usize);
        Some((routers * hosts / ports_per_server).max(1))
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(&'static str, super::ClusterConfig, super::FabricConfig)> {
        use super::tests::{cluster, hosts, of};
        let with = |torus| with(of(super::TopologyKind::Torus), torus);
        let wide = TorusConfig { columns: Some(5), rows: Some(2), ..TorusConfig::default() };
        vec![
            ("torus of 4 × 4", hosts(16), with(TorusConfig::default())),
            ("torus of servers, 3 × 3 in part", cluster(64), with(TorusConfig::default())),
            ("torus of 5 × 2", hosts(10), with(wide)),
        ]
    }

    #[cfg(test)]
    fn with_numbers(
        &self,
        config: super::FabricConfig,
        numbers: &[Option<u32>],
    ) -> super::FabricConfig {
        let &[columns, rows, hosts, cables] = numbers else { return config };
        with(config, TorusConfig { columns, rows, hosts, cables })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Catalogue;
    use crate::routes::Routes;
    use crate::topology::tests::{hosts, of};
    use crate::topology::{FabricConfig, TopologyKind, build};

    /// Oracle, by hand: a way has as many hops as the two rings are apart, in the row first.
    #[test]
    fn packets_finish_their_row_before_their_column() {
        let torus = TorusConfig { columns: Some(6), rows: Some(5), ..TorusConfig::default() };
        let config = with(of(TopologyKind::Torus), torus);
        let fabric = build(&hosts(30), &config, &Catalogue::default()).unwrap();
        assert!(fabric.can_deadlock());
        let mut routes = Routes::default();
        let mut hops = Vec::new();
        for (from, to) in [(0, 29), (7, 22), (3, 4), (0, 3), (12, 0)] {
            let apart = |a: usize, b: usize, ring: usize| a.abs_diff(b).min(ring - a.abs_diff(b));
            let expected = apart(from % 6, to % 6, 6) + apart(from / 6, to / 6, 5);
            let mut at = fabric.links()[fabric.ports(fabric.nic(from))[0]].to;
            let mut way = vec![at];
            loop {
                routes.next_hops(&fabric, at, fabric.nic(to), &mut hops);
                at = fabric.links()[hops[0]].to;
                if at == fabric.nic(to) {
                    break;
                }
                way.push(at);
            }
            assert_eq!(way.len() - 1, expected, "{from} to {to}");
            let turns = way.windows(2).map(|pair| {
                let [a, b] = [pair[0], pair[1]].map(|node| fabric.nodes()[node].zone);
                a != b
            });
            assert!(turns.is_sorted(), "{from} to {to}: {way:?}");
        }
        // Two cables of a ring in each of five rows.
        let bisection = |config: &FabricConfig, gpus: u64| {
            let fabric = build(&hosts(gpus), config, &Catalogue::default()).unwrap();
            crate::summary::summary(&fabric, &hosts(gpus), &Catalogue::default()).bisection_bps
        };
        assert_eq!(bisection(&config, 30), 10.0 * 400e9);
        let small = of(TopologyKind::Torus);
        assert!(!build(&hosts(9), &small, &Catalogue::default()).unwrap().can_deadlock());
    }

    #[test]
    fn a_router_has_no_more_cables_than_its_box_has_ports() {
        let torus = TorusConfig { hosts: Some(4), cables: Some(2), ..TorusConfig::default() };
        let config = FabricConfig { radix: Some(8), ..with(of(TopologyKind::Torus), torus) };
        let refused = build(&hosts(64), &config, &Catalogue::default()).unwrap_err();
        assert!(refused[0].reason.contains("a router cannot have 4 NIC ports"), "{refused:?}");
        let enough = FabricConfig { radix: Some(12), ..config };
        let fabric = build(&hosts(64), &enough, &Catalogue::default()).unwrap();
        assert_eq!((fabric.switches().len(), fabric.links().len()), (16, 2 * (64 + 2 * 32)));
    }
}
