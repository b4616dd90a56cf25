//! The bill of materials: what a fabric is made of, what it costs and how much power it takes.
//!
//! GPUs, the servers around them, NICs, switches, and cables with their optics; for each layer of
//! cables the cheapest of the catalogue that carries the rate and reaches as far. Of a chassis only
//! the line cards are bought that its cables need. A figure that the catalogue trusts only as an
//! estimate makes its line an estimate; a part that the catalogue does not have is listed without a
//! price.
//!
//! Prices differ between sources. Every sum has two ends: all parts at the least that sources say,
//! and all at the most. These are outer bounds: one offer moves all its prices together, but not
//! every dealer is cheapest at everything. Two fabrics must not be compared end against end, since
//! what both buy costs both the same; `docs/cost.md` shows how to pair them.

use std::iter::Sum;
use std::ops::{Add, Mul};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Length, Rate};

use crate::graph::{Fabric, LinkClass, LinkKind, NodeKind};
use crate::hardware::{Cable, Card, Catalogue, Figure};
use crate::topology::ClusterConfig;
use crate::transport::GatewayConfig;

/// An amount of money, and the least and the most that it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dollars {
    /// With every price at its lowest.
    pub low: f64,
    /// With every price as the catalogue has it.
    pub value: f64,
    /// With every price at its highest.
    pub high: f64,
}

impl Dollars {
    /// An amount that is known.
    pub const fn exactly(value: f64) -> Self {
        Self { low: value, value, high: value }
    }
}

impl From<&Figure> for Dollars {
    fn from(figure: &Figure) -> Self {
        // A value that somebody set outside of what sources say moves the end with it.
        let (low, high) = figure.ends();
        Self { low: low.min(figure.value), value: figure.value, high: high.max(figure.value) }
    }
}

impl Add for Dollars {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            low: self.low + other.low,
            value: self.value + other.value,
            high: self.high + other.high,
        }
    }
}

impl Mul<f64> for Dollars {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self { low: self.low * times, value: self.value * times, high: self.high * times }
    }
}

impl Sum for Dollars {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

/// What kind of part a line of the bill is.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// An accelerator.
    Gpu,
    /// The server around the accelerators.
    Host,
    /// A network card, back-end or front-end.
    Nic,
    /// A switch box.
    Switch,
    /// A cable with what sits at its ends.
    Cable,
    /// A gateway between two transports, for one cable.
    Gateway,
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
    /// The least that they may cost, of what sources say.
    pub cost_low_usd: f64,
    /// The most.
    pub cost_high_usd: f64,
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
    /// The least that it may cost: every price at its lowest.
    pub cost_low_usd: f64,
    /// The most: every price at its highest.
    pub cost_high_usd: f64,
    /// What all of it draws.
    pub power_w: f64,
    /// Parts that the catalogue has no price for; they count as nothing above.
    pub unpriced: u64,
}

impl BillLine {
    /// What all of them cost, with its ends.
    pub fn cost(&self) -> Dollars {
        Dollars { low: self.cost_low_usd, value: self.cost_usd, high: self.cost_high_usd }
    }
}

/// All kinds of parts.
pub const ALL: [Part; 6] =
    [Part::Gpu, Part::Host, Part::Nic, Part::Switch, Part::Cable, Part::Gateway];

/// The parts that the network consists of.
pub const NETWORK: [Part; 4] = [Part::Nic, Part::Switch, Part::Cable, Part::Gateway];

impl Bill {
    /// Cost and power of the lines of some kinds.
    pub fn of(&self, parts: &[Part]) -> (Dollars, f64) {
        let lines = || self.lines.iter().filter(|line| parts.contains(&line.part));
        (lines().map(BillLine::cost).sum(), lines().map(|line| line.power_w).sum())
    }

    fn add(&mut self, part: Part, names: [&str; 3], count: u64, figures: Option<Price>) {
        if count == 0 {
            return;
        }
        let [model, title, place] = names.map(str::to_owned);
        let cost = figures.map_or(Dollars::default(), |price| price.usd * count as f64);
        let line = BillLine {
            part,
            model,
            title,
            place,
            count,
            unit_usd: figures.map(|price| price.usd.value),
            unit_w: figures.map(|price| price.w),
            cost_usd: cost.value,
            cost_low_usd: cost.low,
            cost_high_usd: cost.high,
            power_w: figures.map_or(0.0, |price| price.w * count as f64),
            is_estimate: figures.is_none_or(|price| price.is_estimate),
        };
        self.cost_usd += cost.value;
        self.cost_low_usd += cost.low;
        self.cost_high_usd += cost.high;
        self.power_w += line.power_w;
        self.unpriced += if figures.is_none() { count } else { 0 };
        self.lines.push(line);
    }
}

/// What one part costs and draws.
#[derive(Clone, Copy, Debug)]
struct Price {
    usd: Dollars,
    w: f64,
    is_estimate: bool,
}

impl Price {
    fn of(usd: &Figure, w: &Figure) -> Self {
        let is_estimate = usd.trust.is_estimate() || w.trust.is_estimate();
        Self { usd: usd.into(), w: w.value, is_estimate }
    }

    /// So many at once.
    fn times(self, count: f64) -> Self {
        Self { usd: self.usd * count, w: self.w * count, ..self }
    }
}

/// The bill of a fabric.
pub fn bill(fabric: &Fabric, cluster: &ClusterConfig, catalogue: &Catalogue) -> Bill {
    let mut bill = Bill::default();
    let gpu = catalogue.gpu.get(&cluster.gpu);
    let price = gpu.map(|gpu| Price::of(&gpu.price_usd, &gpu.power_w));
    let title = gpu.map_or("", |gpu| gpu.title.as_str());
    bill.add(Part::Gpu, [&cluster.gpu, title, "server"], fabric.gpus() as u64, price);
    let host = gpu.and_then(|gpu| Some(Price::of(gpu.host_usd.as_ref()?, gpu.host_w.as_ref()?)));
    let each = host.map(|host| host.times(fabric.gpus() as f64 / fabric.servers().max(1) as f64));
    let names = [&cluster.gpu, "Server without GPUs and NICs", "server"];
    bill.add(Part::Host, names, fabric.servers() as u64, each);

    let front = fabric.nodes().iter().filter(|node| node.kind == NodeKind::FrontEndNic).count();
    let nics = [
        (&cluster.nic, "back-end", fabric.nics() as u64),
        (&cluster.front_end.nic, "front-end", front as u64),
    ];
    for (model, place, count) in nics {
        let nic = catalogue.nic.get(model);
        let price = nic.map(|nic| Price::of(&nic.price_usd, &nic.power_w));
        let title = nic.map_or("", |nic| nic.title.as_str());
        bill.add(Part::Nic, [model, title, place], count, price);
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

/// Adds the gateways between parts of a fabric. What one costs and draws is the scenario's, or that
/// of one of the cluster's NICs: NVIDIA's Skyway has a dual-port ConnectX for each cable, one port
/// of InfiniBand and one of Ethernet. An estimate: the box around it is not in it.
pub fn add_gateways(
    bill: &mut Bill,
    (count, config): (u64, &GatewayConfig),
    cluster: &ClusterConfig,
    catalogue: &Catalogue,
) {
    let nic = catalogue.nic.get(&cluster.nic);
    let usual = nic.map(|nic| Price::of(&nic.price_usd, &nic.power_w));
    let price = match (config.usd, usual) {
        (Some(usd), nic) => {
            let (usd, w) = (Dollars::exactly(usd), nic.map_or(0.0, |nic| nic.w));
            Some(Price { usd, w, is_estimate: true })
        }
        (None, nic) => nic.map(|nic| Price { is_estimate: true, ..nic }),
    };
    let title = if config.usd.is_some() { "Gateway" } else { "Gateway, as one of the NICs" };
    bill.add(Part::Gateway, ["", title, "between transports"], count, price);
}

/// The switches of one tier.
#[derive(Clone, Copy, Debug, Default)]
struct Boxes {
    /// Those that fit their box.
    fit: u64,
    /// Their line cards, where the box is a chassis.
    cards: u64,
    /// Those that do not.
    exceed: u64,
    /// The most ports of those.
    most: f64,
}

/// The boxes of each tier. A switch with more cables than its box has ports is no such box: it has
/// no price, and its line says why.
fn add_switches(bill: &mut Bill, fabric: &Fabric, catalogue: &Catalogue) {
    let mut by_tier = vec![Boxes::default(); fabric.tiers().len()];
    for switch in fabric.switches() {
        let node = fabric.nodes()[switch];
        if node.kind != NodeKind::Switch {
            continue;
        }
        let tier = usize::from(node.tier);
        let listed = catalogue.switch.get(&fabric.tiers()[tier].model);
        let boxes = &mut by_tier[tier];
        // A port takes one cable of its rate or above, or several slower ones.
        let port = |port_bps: f64| {
            let share = |link: &crate::LinkId| fabric.class(*link).rate.as_bps_f64() / port_bps;
            fabric.ports(switch).iter().map(|link| share(link).min(1.0)).sum::<f64>()
        };
        let Some(listed) = listed else {
            boxes.fit += 1;
            continue;
        };
        let ports = port(listed.port_gbps.value * 1e9);
        if f64::from(listed.ports) + 1e-6 < ports {
            boxes.exceed += 1;
            boxes.most = boxes.most.max(ports);
            continue;
        }
        boxes.fit += 1;
        let cards = |card: &Card| (ports / f64::from(card.ports) - 1e-6).ceil() as u64;
        boxes.cards += listed.card.as_ref().map_or(0, cards);
    }
    for (tier, boxes) in fabric.tiers().iter().zip(by_tier) {
        let switch = catalogue.switch.get(&tier.model);
        let price = switch.map(|switch| Price::of(&switch.price_usd, &switch.power_w));
        let title = switch.map_or("", |switch| switch.title.as_str());
        bill.add(Part::Switch, [&tier.model, title, &tier.name], boxes.fit, price);
        if let Some(card) = switch.and_then(|switch| switch.card.as_ref()) {
            let price = Price::of(&card.price_usd, &card.power_w);
            let title = format!("Line card, {} ports: {title}", card.ports);
            bill.add(Part::Switch, [&tier.model, &title, &tier.name], boxes.cards, Some(price));
        }
        let title = format!("{} ports, more than: {title}", boxes.most.ceil());
        bill.add(Part::Switch, [&tier.model, &title, &tier.name], boxes.exceed, None);
    }
}

fn add_cables(bill: &mut Bill, class: &LinkClass, count: u64, catalogue: &Catalogue) {
    let chosen = cheapest(catalogue, class.rate, class.length);
    let price = chosen.map(|(_, cable)| {
        let ends = Price::of(&cable.ends_usd, &cable.power_w);
        let metres = Dollars::from(&cable.metre_usd) * class.length.as_metres_f64();
        let is_estimate = ends.is_estimate || cable.metre_usd.trust.is_estimate();
        Price { usd: ends.usd + metres, is_estimate, ..ends }
    });
    let (model, title) = chosen.map_or(("", ""), |(name, cable)| (name, cable.title.as_str()));
    bill.add(Part::Cable, [model, title, &class.name], count, price);
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
            card: None,
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
        assert_eq!(bill.unpriced, 128 + 16 + 128 + 1);
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
                (Part::Host, "h100-sxm", 16, 0.0),
                (Part::Nic, "connectx-7", 128, 0.0),
                (Part::Switch, "generic-64x400", 4, 200_000.0),
                (Part::Switch, "generic-64x400", 2, 100_000.0),
                (Part::Cable, "copper", 128, cables.0),
                (Part::Cable, "fibre", 128, cables.1),
            ]
        );
        assert_eq!(bill.cost_usd, 300_000.0 + cables.0 + cables.1);
        assert_eq!(bill.power_w, 6.0 * 700.0 + 256.0);
        assert_eq!(bill.unpriced, 256 + 16);
        assert!(bill.lines[3].is_estimate && !bill.lines[5].is_estimate);
        assert_eq!(bill.of(&[Part::Switch]), (Dollars::exactly(300_000.0), 4_200.0));
    }

    /// Oracle, by hand: the same fabric with prices that differ between sources.
    #[test]
    fn a_bill_has_the_ends_of_its_prices() {
        let mut catalogue = catalogue();
        let price = |low, value, high| Figure {
            low: Some(low),
            high: Some(high),
            ..figure(value, Trust::P)
        };
        let switch = catalogue.switch.get_mut("generic-64x400").unwrap();
        switch.price_usd = price(40_000.0, 50_000.0, 120_000.0);
        let fibre = catalogue.cable.get_mut("fibre").unwrap();
        fibre.ends_usd = price(600.0, 900.0, 1_100.0);
        fibre.metre_usd = price(0.5, 1.0, 2.0);
        let cluster = ClusterConfig { gpus: Some(128), ..ClusterConfig::default() };
        let config = FabricConfig { tiers: Some(2), ..FabricConfig::default() };
        let fabric = build(&cluster, &config, &catalogue).unwrap();
        let bill = bill(&fabric, &cluster, &catalogue);
        let copper = 128.0 * 220.0;
        let low = 6.0 * 40_000.0 + copper + 128.0 * (600.0 + 15.0);
        let high = 6.0 * 120_000.0 + copper + 128.0 * (1_100.0 + 60.0);
        assert_eq!((bill.cost_low_usd, bill.cost_high_usd), (low, high));
        assert_eq!(bill.cost_usd, 300_000.0 + copper + 128.0 * 930.0);
        assert_eq!(bill.of(&NETWORK).0.low, low);
        // Whoever sets a price is not contradicted by what others paid.
        let own = Dollars::from(&price(40_000.0, 150_000.0, 120_000.0));
        assert_eq!(own, Dollars { low: 40_000.0, value: 150_000.0, high: 150_000.0 });
    }

    /// Oracle, by hand: a leaf with 32 cables down and 32 up fills two cards of 32 and not a third;
    /// a spine with 64 cables needs two.
    #[test]
    fn a_chassis_is_charged_for_the_cards_that_it_needs() {
        let mut catalogue = catalogue();
        let switch = catalogue.switch.get_mut("generic-64x400").unwrap();
        switch.ports = 96;
        switch.card = Some(Card {
            ports: 32,
            power_w: figure(300.0, Trust::P),
            price_usd: figure(10_000.0, Trust::P),
        });
        let cluster = ClusterConfig { gpus: Some(128), ..ClusterConfig::default() };
        let radix = Some(64);
        let config = FabricConfig { tiers: Some(2), radix, ..FabricConfig::default() };
        let fabric = build(&cluster, &config, &catalogue).unwrap();
        let bill = bill(&fabric, &cluster, &catalogue);
        let switches = bill.lines.iter().filter(|line| line.part == Part::Switch);
        let lines: Vec<(u64, f64, f64)> =
            switches.map(|line| (line.count, line.cost_usd, line.power_w)).collect();
        let leaves = [(4, 200_000.0, 2_800.0), (8, 80_000.0, 2_400.0)];
        let spines = [(2, 100_000.0, 1_400.0), (4, 40_000.0, 1_200.0)];
        assert_eq!(lines, [leaves, spines].concat());
    }
}
