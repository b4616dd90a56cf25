//! How many switches and cables a folded Clos network needs.
//!
//! A switch is a capacity cut into ports: a 64 × 800G box is also one of 128 × 400G. A leaf gives
//! `o / (1 + o)` of its capacity to NICs, for an oversubscription of `o`, and the rest to uplinks,
//! rounded up to whole cables. Tiers are added only when the spines have too few ports for all
//! leaves. Of the numbers of spines and cores that divide the uplinks evenly the smallest is
//! taken. Whatever the scenario says itself wins, and is checked against the ports there are.

use units::{Length, Rate, Span};

use super::cluster::Members;
use super::error::Errors;
use super::folded::{Cables, Folded, Level, Numbering, Wiring};
use super::settings::{FabricConfig, LinkConfig, TierConfig};
use crate::hardware::{Catalogue, broken_out};

/// A switch that stands in where the scenario names none; the catalogue's figures win.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsualBox {
    pub(crate) model: &'static str,
    pub(crate) ports: u64,
    pub(crate) port_gbps: u64,
    pub(crate) latency_ns: u64,
}

/// The switch that stands in where nobody names one, and that nobody sells.
pub const GENERIC_SWITCH: &str = "generic-64x400";

/// 64 ports of 400G. Illustrative.
pub(crate) const GENERIC: UsualBox =
    UsualBox { model: GENERIC_SWITCH, ports: 64, port_gbps: 400, latency_ns: 500 };

/// A switch box, as far as sizing asks.
#[derive(Clone, Debug)]
pub(crate) struct SwitchBox {
    pub(crate) model: String,
    ports: u64,
    port_bps: u64,
    pub(crate) latency: Span,
}

impl SwitchBox {
    /// Bits per second over all ports, when they run at `rate`.
    pub(crate) fn capacity_at(&self, rate: Rate) -> u64 {
        self.ports_at(rate) * rate.as_bps()
    }

    /// How many ports of this rate it has.
    pub(crate) fn ports_at(&self, rate: Rate) -> u64 {
        broken_out(self.ports, self.port_bps, rate)
    }
}

/// The order in which a scenario gives tiers and links.
pub(crate) const TIER_KEYS: [&str; 3] = ["leaf", "spine", "core"];

/// What sizing reads, and where it tells what is wrong.
pub(crate) struct Inputs<'a> {
    pub(crate) fabric: &'a FabricConfig,
    pub(crate) catalogue: &'a Catalogue,
    /// Where the settings stand in the scenario: `fabric`.
    pub(crate) path: String,
    /// Put before the names of tiers.
    pub(crate) prefix: String,
    /// Rate of a NIC port, and of a whole NIC.
    pub(crate) port_rate: Rate,
    pub(crate) nic_rate: Rate,
    pub(crate) gpus_per_node: usize,
    pub(crate) nics_per_node: usize,
}

/// What a family wants where the scenario says nothing.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub(crate) names: [&'static str; 3],
    pub(crate) boxes: [UsualBox; 3],
    pub(crate) lengths: [Length; 3],
    /// Endpoints of a leaf (servers, where leaves are by rail).
    pub(crate) downlinks: Option<usize>,
    pub(crate) spines: Option<usize>,
    pub(crate) oversubscription: [f64; 3],
    pub(crate) pod_gpus: Option<usize>,
    /// Whether every spine meets every core, with one cable.
    pub(crate) full_core: bool,
    /// The fewest tiers.
    pub(crate) tiers: usize,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            names: ["leaf", "spine", "core"],
            boxes: [GENERIC; 3],
            // Illustrative: copper within the rack, then across rows, then across the hall.
            lengths: [Length::from_metres(3), Length::from_metres(30), Length::from_metres(100)],
            downlinks: None,
            spines: None,
            oversubscription: [1.0; 3],
            pod_gpus: None,
            full_core: false,
            tiers: 1,
        }
    }
}

/// Whether leaves are by rack or by rail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LeafKind {
    Rack,
    Rail,
}

impl Inputs<'_> {
    pub(crate) fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    fn tier(&self, tier: usize) -> &TierConfig {
        [&self.fabric.leaf, &self.fabric.spine, &self.fabric.core][tier]
    }

    fn link(&self, tier: usize) -> LinkConfig {
        self.fabric.links.get(tier).copied().unwrap_or_default()
    }

    /// The rate of the cables below a tier.
    pub(crate) fn rate(&self, tier: usize) -> Rate {
        let usual = if tier == 0 { self.port_rate } else { self.nic_rate };
        let between = self.fabric.sites.rate.filter(|_| tier == 2 && self.fabric.has_sites());
        between.or(self.link(tier).rate).unwrap_or(usual)
    }

    /// The box of a tier whose fastest cables have this rate.
    pub(crate) fn switch(
        &self,
        tier: usize,
        rate: Rate,
        habits: &Habits,
        errors: &mut Errors,
    ) -> SwitchBox {
        let wanted = &self.tier(tier).switch;
        let usual = habits.boxes[tier];
        let name = wanted.as_deref().unwrap_or(usual.model);
        let listed = self.catalogue.switch.get(name);
        let path = self.at(&format!("{}.switch", TIER_KEYS[tier]));
        if let (None, Some(wanted)) = (listed, wanted) {
            errors.unknown(&path, wanted, self.catalogue.switch.keys());
        }
        let mut made = SwitchBox {
            model: name.to_owned(),
            ports: listed.map_or(usual.ports, |switch| u64::from(switch.ports)),
            port_bps: listed.map_or(usual.port_gbps * 1_000_000_000, |switch| {
                Rate::from_bps_f64(switch.port_gbps.value * 1e9).as_bps()
            }),
            latency: listed.map_or(Span::from_ns(usual.latency_ns), |switch| {
                Span::from_secs_f64(switch.latency_ns.value * 1e-9)
            }),
        };
        if let Some(latency) = self.tier(tier).latency {
            made.latency = latency;
        }
        if let Some(radix) = self.fabric.radix {
            (made.ports, made.port_bps) = (u64::from(radix), rate.as_bps());
        } else if made.port_bps < rate.as_bps() {
            // The usual box keeps its ports at any rate; one that was named does not.
            if wanted.is_some() {
                let reason = format!("a port of `{name}` is slower than its {rate} cables");
                errors.push(&path, reason, "");
            }
            made.port_bps = rate.as_bps();
        }
        made
    }

    /// Capacity below a tier over capacity above it.
    pub(crate) fn oversubscription(&self, tier: usize, habits: &Habits) -> f64 {
        let said = self.fabric.oversubscription.get(tier).copied();
        said.unwrap_or(habits.oversubscription[tier])
    }

    /// What the scenario says of a tier, with the family's habits where it says nothing.
    pub(crate) fn level(&self, tier: usize, habits: &Habits, errors: &mut Errors) -> Level {
        let rate = self.rate(tier);
        let switch = self.switch(tier, rate, habits, errors);
        let link = self.link(tier);
        let length = link.length.unwrap_or(habits.lengths[tier]);
        let name = self.tier(tier).name.clone();
        let far = self.fabric.has_sites().then_some(self.fabric.sites.distance);
        let usual = if tier == 2 && far.is_some() { "gateway" } else { habits.names[tier] };
        let name = name.unwrap_or_else(|| usual.to_owned());
        Level {
            name: format!("{}{name}", self.prefix),
            model: switch.model,
            latency: switch.latency,
            rate,
            delay: link.delay.unwrap_or(length.propagation()),
            length,
            far: far.filter(|_| tier == 2),
            oversubscription: match self.fabric.uplinks.get(tier) {
                Some(_) => None,
                None => Some(self.oversubscription(tier, habits)),
            },
        }
    }

    /// The numbers of a folded Clos network for these members.
    pub(crate) fn size(
        &self,
        members: Members,
        kind: LeafKind,
        cables: Cables,
        habits: &Habits,
        errors: &mut Errors,
    ) -> Folded {
        let mut folded = Folded {
            members,
            wiring: Wiring::Rack(1),
            cables,
            leaves_per_pod: 1,
            uplinks: 0,
            spines: 0,
            spine_uplinks: 0,
            cores: 0,
            groups: 1,
            numbering: Numbering::Pods { plane: 0 },
            has_circuits: 0 < self.fabric.circuits.per_pod,
        };
        if self.size_leaves(&mut folded, kind, habits, errors) {
            self.size_spines(&mut folded, habits, errors);
        }
        folded
    }

    /// Sets the leaves and their uplinks; says whether there is anything above them.
    fn size_leaves(
        &self,
        folded: &mut Folded,
        kind: LeafKind,
        habits: &Habits,
        errors: &mut Errors,
    ) -> bool {
        let (down_rate, up_rate) = (self.rate(0), self.rate(1));
        let leaf = self.switch(0, down_rate.max(up_rate), habits, errors);
        let capacity = leaf.capacity_at(down_rate.max(up_rate)) as f64;
        let ratio = self.oversubscription(0, habits);
        // What one NIC takes of a leaf.
        let share = folded.cables.per_leaf() as f64 * down_rate.as_bps_f64();
        let up_bps = up_rate.as_bps_f64();
        let said_up = self.fabric.uplinks.first().map(|&uplinks| uplinks as usize);
        let tiers = self.fabric.tiers.map_or(habits.tiers, |tiers| tiers as usize);

        let rails = folded.members.rails.len();
        let all = match kind {
            LeafKind::Rack => folded.members.len(),
            LeafKind::Rail => folded.members.servers.len(),
        };
        let fits_one = all as f64 * share <= capacity && self.fabric.said_pods().unwrap_or(1) <= 1;
        let one_leaf = kind == LeafKind::Rack && folded.cables.leaves() == 1;
        let said_down = self.said_downlinks(kind, folded.cables.per_leaf());
        let is_small = self.fabric.tiers == Some(1) || tiers <= 1 && said_up.is_none() && fits_one;
        if one_leaf && is_small && said_down.is_none_or(|down| all <= down) {
            if !fits_one {
                let reason = format!("{all} NIC ports do not fit one leaf");
                errors.push(&self.at("tiers"), reason, "tiers = 2");
            }
            folded.wiring = Wiring::Rack(all);
            return false;
        }
        let down = said_down.or(habits.downlinks).unwrap_or_else(|| {
            let for_nics = match said_up {
                Some(up) => capacity - up as f64 * up_bps,
                None => capacity * ratio / (1.0 + ratio),
            };
            let down = (for_nics / share + 1e-9).max(0.0) as usize;
            // Servers stay whole where leaves are by rack.
            if kind == LeafKind::Rack && rails < down { down - down % rails } else { down }
        });
        // Every site has a leaf of its own.
        let sites = self.fabric.sites.count.max(1) as usize;
        let down = down.clamp(1, all.div_ceil(sites).max(1));
        folded.wiring = match kind {
            LeafKind::Rack => Wiring::Rack(down),
            LeafKind::Rail => Wiring::Rails(down),
        };
        let meant = (down as f64 * share / (ratio * up_bps) - 1e-9).ceil() as usize;
        folded.uplinks = said_up.unwrap_or(meant.max(1));
        let used = down as f64 * share + folded.uplinks as f64 * up_bps;
        if capacity * (1.0 + 1e-9) < used || folded.uplinks == 0 {
            let reason = format!(
                "a leaf cannot have {down} NICs and {} uplinks: `{}` has {} ports of {}",
                folded.uplinks,
                leaf.model,
                leaf.ports_at(down_rate.max(up_rate)),
                down_rate.max(up_rate),
            );
            errors.push(&self.at("downlinks"), reason, "fewer, or a larger `radix`");
        }
        folded.leaves_per_pod = folded.leaves();
        true
    }

    fn said_downlinks(&self, kind: LeafKind, per_leaf: usize) -> Option<usize> {
        let ports = self.fabric.downlinks.map(|ports| ports as usize / per_leaf);
        match kind {
            LeafKind::Rack => ports,
            LeafKind::Rail => self.fabric.segment_nodes.map(|nodes| nodes as usize).or(ports),
        }
    }

    fn size_spines(&self, folded: &mut Folded, habits: &Habits, errors: &mut Errors) {
        let (up_rate, over_rate) = (self.rate(1), self.rate(2));
        let fastest = up_rate.max(over_rate);
        let spine = self.switch(1, fastest, habits, errors);
        let two_tier_ports = self.switch(1, up_rate, habits, errors).ports_at(up_rate) as usize;
        let leaves = folded.leaves();
        let said = self.fabric.spines.map(|spines| spines as usize).or(habits.spines);
        let per_pod = self.leaves_per_pod(folded, habits);
        let tiers = self.fabric.tiers.map(|tiers| tiers as usize);
        let three = per_pod.is_some_and(|per_pod| per_pod < leaves)
            || tiers == Some(3)
            || tiers.is_none() && two_tier_ports < leaves;
        if self.fabric.has_sites() && (!three || tiers == Some(2)) {
            let reason = "sites are joined by a third tier of switches".to_owned();
            errors.push(&self.at("tiers"), reason, "tiers = 3");
        }
        if !three || tiers == Some(2) {
            folded.spines = said.unwrap_or_else(|| {
                fewest(folded.uplinks, |spines| leaves * folded.uplinks / spines <= two_tier_ports)
            });
            self.check_ports(1, leaves * folded.uplinks, folded.spines, two_tier_ports, errors);
            return;
        }
        let ratio = self.oversubscription(1, habits);
        let capacity = spine.capacity_at(fastest) as f64;
        let over_bps = over_rate.as_bps_f64();
        let said_over = self.fabric.uplinks.get(1).map(|&uplinks| uplinks as usize);
        let for_leaves = match said_over {
            Some(over) => (capacity - over as f64 * over_bps).max(0.0),
            None => capacity * ratio / (1.0 + ratio),
        };
        let ports = ((for_leaves / up_rate.as_bps_f64() + 1e-9) as usize).max(1);
        let unit = self.leaf_unit(folded);
        let per_pod = per_pod.unwrap_or_else(|| {
            let spines = said.unwrap_or(folded.uplinks).max(1);
            let most = ports * spines / folded.uplinks.max(1);
            if unit < most { most - most % unit } else { most.max(1) }
        });
        folded.leaves_per_pod = per_pod.clamp(1, leaves);
        let below = folded.leaves_per_pod * folded.uplinks;
        folded.spines = said.unwrap_or_else(|| fewest(folded.uplinks, |n| below / n <= ports));
        self.check_ports(1, below, folded.spines, ports, errors);
        let down_bps = below as f64 / folded.spines.max(1) as f64 * up_rate.as_bps_f64();
        let meant = (down_bps / (ratio * over_bps) - 1e-9).ceil().max(1.0) as usize;
        folded.spine_uplinks = said_over.unwrap_or(meant);
        if let Some(uplinks) = self.site_uplinks(folded.spines.max(1), errors) {
            folded.spine_uplinks = uplinks;
        }
        if self.fabric.cores == Some(0) {
            // Pods that only optical circuits join.
            folded.spine_uplinks = 0;
            return;
        }
        self.size_cores(folded, habits, errors);
    }

    /// Cables from a spine to the gateways of all sites, if that is said.
    fn site_uplinks(&self, spines: usize, errors: &mut Errors) -> Option<usize> {
        let links = self.fabric.sites.links.filter(|_| self.fabric.has_sites())? as usize;
        if !links.is_multiple_of(spines) {
            let reason = format!("{links} links do not divide among the {spines} spines");
            let fit = format!("links = {}", links.div_ceil(spines) * spines);
            errors.push(&self.at("sites.links"), reason, &fit);
        }
        Some((links / spines).max(1))
    }

    fn size_cores(&self, folded: &mut Folded, habits: &Habits, errors: &mut Errors) {
        let rate = self.rate(2);
        let ports = self.switch(2, rate, habits, errors).ports_at(rate) as usize;
        let (spines, pods, uplinks) = (folded.spines.max(1), folded.pods(), folded.spine_uplinks);
        let full_core = habits.full_core || self.fabric.has_sites();
        let groups = if full_core { 1 } else { spines };
        match self.fabric.cores {
            Some(cores) => {
                let cores = (cores as usize).max(1);
                folded.groups = if full_core { 1 } else { greatest_divisor(cores, spines) };
                folded.cores = cores / folded.groups;
            }
            None => {
                let below = pods * (spines / groups) * uplinks;
                folded.groups = groups;
                folded.cores = match full_core {
                    true => uplinks,
                    false => fewest(uplinks, |cores| below / cores <= ports),
                };
            }
        }
        let below = pods * (spines / folded.groups) * uplinks;
        self.check_ports(2, below, folded.cores, ports, errors);
    }

    /// Leaves of a pod, if the scenario or the family says how large a pod is.
    fn leaves_per_pod(&self, folded: &Folded, habits: &Habits) -> Option<usize> {
        let spread = folded.cables.leaves();
        let said = self.fabric.pod_gpus.filter(|_| !self.fabric.has_sites());
        let said = said.map(|gpus| gpus as usize);
        if let (None, Some(pods)) = (said, self.fabric.said_pods()) {
            let unit = self.leaf_unit(folded);
            let units = (folded.leaves() / unit).max(1);
            return Some(units.div_ceil((pods as usize).max(1)) * unit);
        }
        let nodes = said.or(habits.pod_gpus)?.div_ceil(self.gpus_per_node).max(1);
        let rails = folded.members.rails.len();
        Some(match folded.wiring {
            Wiring::Rack(down) => (nodes * rails).div_ceil(down) * spread,
            Wiring::Rails(segment) => nodes.div_ceil(segment) * rails * spread,
        })
    }

    /// Leaves that belong together: those of a segment's rails, or of a NIC.
    fn leaf_unit(&self, folded: &Folded) -> usize {
        match folded.wiring {
            Wiring::Rack(_) => folded.cables.leaves(),
            Wiring::Rails(_) => folded.members.rails.len() * folded.cables.leaves(),
        }
    }

    fn check_ports(
        &self,
        tier: usize,
        below: usize,
        switches: usize,
        ports: usize,
        errors: &mut Errors,
    ) {
        let key = TIER_KEYS[tier];
        if switches == 0 {
            errors.push(&self.at(&format!("{key}s")), format!("there are no {key}s"), "");
        } else if ports < below.div_ceil(switches) {
            let reason = format!(
                "each {key} would need {} ports downwards and has {ports}",
                below.div_ceil(switches)
            );
            let suggestion = if tier == 1 { "tiers = 3" } else { "a larger `radix`" };
            errors.push(&self.at(&format!("{key}.switch")), reason, suggestion);
        }
    }
}

/// The smallest divisor of `cables` that is enough switches; all of `cables` if none is.
fn fewest(cables: usize, enough: impl Fn(usize) -> bool) -> usize {
    (1..=cables).filter(|n| cables.is_multiple_of(*n)).find(|&n| enough(n)).unwrap_or(cables.max(1))
}

fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}
