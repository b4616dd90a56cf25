//! The bill of materials: what a fabric is made of, what it costs and how much power it takes.
//!
//! GPUs, NICs, switches, and cables with their optics; for each layer of cables the cheapest of the
//! catalogue that carries the rate and reaches as far. A figure that the catalogue trusts only as
//! an estimate makes its line an estimate. Servers around the GPUs (CPUs, memory, fans, chassis)
//! and the scale-up network are part of what a GPU costs and draws, as far as the catalogue says
//! so; a part that the catalogue does not have is listed without a price.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Length, Rate};

use crate::graph::{Fabric, LinkClass, LinkKind, NodeKind};
use crate::hardware::{Cable, Catalogue, Figure};
use crate::topology::ClusterConfig;

/// What kind of part a line of the bill is.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// An accelerator.
    Gpu,
    /// A network card, back-end or front-end.
    Nic,
    /// A switch box.
    Switch,
    /// A cable with what sits at its ends.
    Cable,
}

/// One line of the bill.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BillLine {
    /// What kind of part it is.
    pub part: Part,
    /// Its name in the hardware catalogue.
    pub model: String,
    /// Its name for people.
    pub title: String,
    /// Where it is used: "leaf", "leaf – spine".
    pub place: String,
    /// How many there are.
    pub count: u64,
    /// What one costs; nothing if the catalogue does not say.
    pub unit_usd: Option<f64>,
    /// What one draws; nothing if the catalogue does not say.
    pub unit_w: Option<f64>,
    /// What all of them cost.
    pub cost_usd: f64,
    /// What all of them draw.
    pub power_w: f64,
    /// Whether price or power is an estimate.
    pub is_estimate: bool,
}

/// Everything that a fabric is made of.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Bill {
    /// Line by line.
    pub lines: Vec<BillLine>,
    /// What all of it costs.
    pub cost_usd: f64,
    /// What all of it draws.
    pub power_w: f64,
    /// Parts that the catalogue has no price for; they count as nothing above.
    pub unpriced: u64,
}

impl Bill {
    /// Cost and power of the lines of one kind.
    pub fn of(&self, part: Part) -> (f64, f64) {
        let lines = self.lines.iter().filter(|line| line.part == part);
        lines.fold((0.0, 0.0), |(usd, w), line| (usd + line.cost_usd, w + line.power_w))
    }

    fn add(&mut self, part: Part, names: [&str; 3], count: u64, figures: Option<(Price, Price)>) {
        if count == 0 {
            return;
        }
        let [model, title, place] = names.map(str::to_owned);
        let (usd, w) = (figures.map(|(usd, _)| usd), figures.map(|(_, w)| w));
        let line = BillLine {
            part,
            model,
            title,
            place,
            count,
            unit_usd: usd.map(|usd| usd.value),
            unit_w: w.map(|w| w.value),
            cost_usd: usd.map_or(0.0, |usd| usd.value * count as f64),
            power_w: w.map_or(0.0, |w| w.value * count as f64),
            is_estimate: figures.is_none_or(|(usd, w)| usd.is_estimate || w.is_estimate),
        };
        self.cost_usd += line.cost_usd;
        self.power_w += line.power_w;
        self.unpriced += if figures.is_none() { count } else { 0 };
        self.lines.push(line);
    }
}

/// A figure without its source.
#[derive(Clone, Copy, Debug)]
struct Price {
    value: f64,
    is_estimate: bool,
}

impl From<&Figure> for Price {
    fn from(figure: &Figure) -> Self {
        Self { value: figure.value, is_estimate: figure.trust.is_estimate() }
    }
}

/// The bill of a fabric.
pub fn bill(fabric: &Fabric, cluster: &ClusterConfig, catalogue: &Catalogue) -> Bill {
    let mut bill = Bill::default();
    let gpu = catalogue.gpu.get(&cluster.gpu);
    let figures = gpu.map(|gpu| ((&gpu.price_usd).into(), (&gpu.power_w).into()));
    let title = gpu.map_or("", |gpu| gpu.title.as_str());
    bill.add(Part::Gpu, [&cluster.gpu, title, "server"], fabric.gpus() as u64, figures);

    let front = fabric.nodes().iter().filter(|node| node.kind == NodeKind::FrontEndNic).count();
    let nics = [
        (&cluster.nic, "back-end", fabric.nics() as u64),
        (&cluster.front_end.nic, "front-end", front as u64),
    ];
    for (model, place, count) in nics {
        let nic = catalogue.nic.get(model);
        let figures = nic.map(|nic| ((&nic.price_usd).into(), (&nic.power_w).into()));
        let title = nic.map_or("", |nic| nic.title.as_str());
        bill.add(Part::Nic, [model, title, place], count, figures);
    }

    add_switches(&mut bill, fabric, catalogue);

    let mut by_class = vec![0_u64; fabric.classes().len()];
    for link in fabric.links() {
        by_class[units::Id::index(link.class)] += 1;
    }
    for (class, directed) in fabric.classes().iter().zip(by_class) {
        if class.kind != LinkKind::ScaleUp {
            add_cables(&mut bill, class, directed / 2, catalogue);
        }
    }
    bill
}

/// The boxes of each tier. A switch with more cables than its box has ports is no such box: it has
/// no price, and its line says why.
fn add_switches(bill: &mut Bill, fabric: &Fabric, catalogue: &Catalogue) {
    // By tier: how many fit their box, how many do not, and the most ports of those.
    let mut by_tier = vec![(0_u64, 0_u64, 0.0_f64); fabric.tiers().len()];
    for switch in fabric.switches() {
        let node = fabric.nodes()[switch];
        if node.kind != NodeKind::Switch {
            continue;
        }
        let tier = usize::from(node.tier);
        let listed = catalogue.switch.get(&fabric.tiers()[tier].model);
        let (fits, exceed, most) = &mut by_tier[tier];
        // A port takes one cable of its rate or above, or several slower ones.
        let port = |port_bps: f64| {
            let share = |link: &crate::LinkId| fabric.class(*link).rate.as_bps_f64() / port_bps;
            fabric.ports(switch).iter().map(|link| share(link).min(1.0)).sum::<f64>()
        };
        match listed.map(|listed| (port(listed.port_gbps.value * 1e9), f64::from(listed.ports))) {
            Some((ports, has)) if has + 1e-6 < ports => {
                *exceed += 1;
                *most = most.max(ports);
            }
            _ => *fits += 1,
        }
    }
    for (tier, (fits, exceed, most)) in fabric.tiers().iter().zip(by_tier) {
        let switch = catalogue.switch.get(&tier.model);
        let figures = switch.map(|switch| ((&switch.price_usd).into(), (&switch.power_w).into()));
        let title = switch.map_or("", |switch| switch.title.as_str());
        bill.add(Part::Switch, [&tier.model, title, &tier.name], fits, figures);
        let title = format!("{} ports, more than: {title}", most.ceil());
        bill.add(Part::Switch, [&tier.model, &title, &tier.name], exceed, None);
    }
}

fn add_cables(bill: &mut Bill, class: &LinkClass, count: u64, catalogue: &Catalogue) {
    let chosen = cheapest(catalogue, class.rate, class.length);
    let figures = chosen.map(|(_, cable)| {
        let ends = Price::from(&cable.ends_usd);
        let metre = Price::from(&cable.metre_usd);
        let usd = Price {
            value: ends.value + metre.value * class.length.as_metres_f64(),
            is_estimate: ends.is_estimate || metre.is_estimate,
        };
        (usd, (&cable.power_w).into())
    });
    let (model, title) = chosen.map_or(("", ""), |(name, cable)| (name, cable.title.as_str()));
    bill.add(Part::Cable, [model, title, &class.name], count, figures);
}

/// The cheapest cable that carries the rate and reaches the length.
pub fn cheapest(catalogue: &Catalogue, rate: Rate, length: Length) -> Option<(&str, &Cable)> {
    let metres = length.as_metres_f64();
    let price = |cable: &Cable| cable.ends_usd.value + cable.metre_usd.value * metres;
    catalogue
        .cable
        .iter()
        .filter(|(_, cable)| rate.as_bps_f64() <= cable.rate_gbps.value * 1e9 * (1.0 + 1e-9))
        .filter(|(_, cable)| metres <= cable.reach_m.value)
        .min_by(|(_, a), (_, b)| price(a).total_cmp(&price(b)))
        .map(|(name, cable)| (name.as_str(), cable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Buffering, Switch, Trust};
    use crate::topology::{FabricConfig, build};

    fn figure(value: f64, trust: Trust) -> Figure {
        Figure { value, low: None, high: None, source: "made up".to_owned(), trust }
    }

    fn cable(rate: f64, reach: f64, ends: f64, metre: f64) -> Cable {
        Cable {
            title: String::new(),
            rate_gbps: figure(rate, Trust::P),
            reach_m: figure(reach, Trust::P),
            ends_usd: figure(ends, Trust::P),
            metre_usd: figure(metre, Trust::P),
            power_w: figure(1.0, Trust::P),
        }
    }

    fn catalogue() -> Catalogue {
        let mut catalogue = Catalogue::default();
        catalogue.cable.insert("copper".to_owned(), cable(400.0, 3.0, 100.0, 40.0));
        catalogue.cable.insert("fibre".to_owned(), cable(400.0, 100.0, 900.0, 1.0));
        catalogue.cable.insert("slow".to_owned(), cable(100.0, 100.0, 1.0, 0.0));
        let switch = Switch {
            reduction: None,
            title: "a switch".to_owned(),
            chip: String::new(),
            ports: 64,
            port_gbps: figure(400.0, Trust::P),
            buffer_mb: figure(64.0, Trust::P),
            buffering: Buffering::Shared,
            latency_ns: figure(500.0, Trust::P),
            power_w: figure(700.0, Trust::M),
            price_usd: figure(50_000.0, Trust::P),
        };
        catalogue.switch.insert("generic-64x400".to_owned(), switch);
        catalogue
    }

    #[test]
    fn the_cheapest_cable_that_reaches_is_taken() {
        let catalogue = catalogue();
        let choice = |gbps, metres| {
            let rate = Rate::from_gbps(gbps);
            cheapest(&catalogue, rate, Length::from_metres(metres)).map(|(name, _)| name)
        };
        assert_eq!(choice(400, 2), Some("copper"));
        assert_eq!(choice(400, 4), Some("fibre"));
        assert_eq!(choice(100, 50), Some("slow"));
        assert_eq!(choice(400, 101), None);
        assert_eq!(choice(800, 1), None);
    }

    /// A switch with more ports than its box has is not sold at the price of the box.
    #[test]
    fn what_no_box_can_be_has_no_price() {
        let cluster = ClusterConfig { gpus: Some(128), ..ClusterConfig::default() };
        let config = FabricConfig { radix: Some(128), ..FabricConfig::default() };
        let fabric = build(&cluster, &config, &catalogue()).unwrap();
        let bill = bill(&fabric, &cluster, &catalogue());
        let line = bill.lines.iter().find(|line| line.part == Part::Switch).unwrap();
        assert_eq!((line.count, line.unit_usd, line.cost_usd), (1, None, 0.0));
        assert_eq!(line.title, "128 ports, more than: a switch");
        assert_eq!(bill.unpriced, 128 + 128 + 1);
    }

    /// Oracle, by hand: 128 NICs on 4 leaves, 128 uplinks of 30 m to 2 spines.
    #[test]
    fn a_small_clos_costs_the_sum_of_its_parts() {
        let cluster = ClusterConfig { gpus: Some(128), ..ClusterConfig::default() };
        let config = FabricConfig { tiers: Some(2), ..FabricConfig::default() };
        let fabric = build(&cluster, &config, &catalogue()).unwrap();
        let bill = bill(&fabric, &cluster, &catalogue());
        let lines: Vec<(Part, &str, u64, f64)> = bill
            .lines
            .iter()
            .map(|line| (line.part, line.model.as_str(), line.count, line.cost_usd))
            .collect();
        let cables = (128.0 * (100.0 + 3.0 * 40.0), 128.0 * (900.0 + 30.0));
        assert_eq!(
            lines,
            [
                (Part::Gpu, "h100-sxm", 128, 0.0),
                (Part::Nic, "connectx-7", 128, 0.0),
                (Part::Switch, "generic-64x400", 4, 200_000.0),
                (Part::Switch, "generic-64x400", 2, 100_000.0),
                (Part::Cable, "copper", 128, cables.0),
                (Part::Cable, "fibre", 128, cables.1),
            ]
        );
        assert_eq!(bill.cost_usd, 300_000.0 + cables.0 + cables.1);
        assert_eq!(bill.power_w, 6.0 * 700.0 + 256.0);
        assert_eq!(bill.unpriced, 256);
        assert!(bill.lines[2].is_estimate && !bill.lines[4].is_estimate);
        assert_eq!(bill.of(Part::Switch), (300_000.0, 4_200.0));
    }
}
