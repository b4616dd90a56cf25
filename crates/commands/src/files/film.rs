//! The fabric with what its links did, moment by moment, as JSON for a picture that can be zoomed
//! and wound back: `run --fabric-out`.
//!
//! Every link has its totals. Over time there are at most [`CELLS`] values of a kind: of all links
//! where that allows, else of the busiest of each tier. A frame shows the most of what it stands
//! for, so that no peak is lost.

use std::collections::BTreeMap;

use fabric::graph::LinkKind;
use fabric::{Fabric, LinkId, NodeId, NodeKind};
use serde::Serialize;
use step::predict::Prediction;

use super::Links;
use crate::links::busiest_of_each;
use crate::world::JobWorld;

/// Moments of a film.
const FRAMES: usize = 60;
/// Values of one kind over time.
const CELLS: usize = 400_000;

/// What one link did over time: each list has a value for each frame, or none where the engine
/// does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// Bits per second.
    pub sent_bps: Vec<f64>,
    /// Bytes that waited.
    pub queued: Vec<f64>,
    /// The share of the time in which it was paused.
    pub paused: Vec<f64>,
}

/// What links did over time, thinned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reel {
    /// When each frame begins, in seconds.
    pub at_s: Vec<f64>,
    /// By link.
    pub links: BTreeMap<LinkId, Moments>,
}

/// The picture as it is written.
#[derive(Debug, Serialize)]
pub struct Film {
    /// How long the run or the step was.
    seconds: f64,
    /// What the levels are called, from the bottom up.
    tiers: Vec<String>,
    /// What a zone is called here.
    zone_word: String,
    nodes: Nodes,
    links: Lines,
    at_s: Vec<f64>,
    over_time: OverTime,
}

#[derive(Debug, Default, Serialize)]
struct Nodes {
    name: Vec<String>,
    tier: Vec<u8>,
    zone: Vec<u32>,
    /// The server of a NIC; null for switches.
    server: Vec<Option<u32>>,
}

#[derive(Debug, Default, Serialize)]
struct Lines {
    from: Vec<usize>,
    to: Vec<usize>,
    rate_bps: Vec<u64>,
    load: Vec<f64>,
    bytes: Vec<f64>,
    queue_pairs: Vec<u64>,
    peak_queue_bytes: Vec<u64>,
    paused_s: Vec<f64>,
}

#[derive(Debug, Default, Serialize)]
struct OverTime {
    /// Places in the lists of links.
    link: Vec<usize>,
    load: Vec<Vec<f64>>,
    queued_bytes: Vec<Vec<f64>>,
    paused: Vec<Vec<f64>>,
}

impl Reel {
    /// So many frames of what was sampled more often: the most of each stretch.
    pub fn thinned(at_s: &[f64], links: impl IntoIterator<Item = (LinkId, Moments)>) -> Self {
        let each = at_s.len().div_ceil(FRAMES).max(1);
        let most = |values: Vec<f64>| -> Vec<f64> {
            values.chunks(each).map(|part| part.iter().copied().fold(0.0, f64::max)).collect()
        };
        let mut reel =
            Self { at_s: at_s.iter().step_by(each).copied().collect(), ..Self::default() };
        for (link, moments) in links {
            let moments = Moments {
                sent_bps: most(moments.sent_bps),
                queued: most(moments.queued),
                paused: most(moments.paused),
            };
            reel.links.entry(link).or_default().join(moments);
        }
        reel
    }

    /// Of a step.
    pub fn of_step(world: &JobWorld<'_>, prediction: &Prediction) -> Self {
        let loads = crate::run_job::busiest_over_time(world, prediction, CELLS / FRAMES);
        let bins = loads.iter().map(|(_, loads)| loads.len()).max().unwrap_or(0);
        let step_s = prediction.line.length().as_secs_f64();
        let at_s: Vec<f64> = (0..bins).map(|bin| step_s * bin as f64 / bins as f64).collect();
        let rate = |link: LinkId| world.fabric().class(link).rate.as_bps_f64();
        let moments = loads.into_iter().map(|(link, loads)| {
            let sent_bps = loads.into_iter().map(|load| load * rate(link)).collect();
            (link, Moments { sent_bps, ..Moments::default() })
        });
        Self::thinned(&at_s, moments)
    }
}

impl Moments {
    /// Lanes of one link are one link here.
    fn join(&mut self, other: Self) {
        let sum = |a: f64, b: f64| a + b;
        for (mine, others, with) in [
            (&mut self.sent_bps, other.sent_bps, sum as fn(f64, f64) -> f64),
            (&mut self.queued, other.queued, sum),
            (&mut self.paused, other.paused, f64::max),
        ] {
            if mine.is_empty() {
                *mine = others;
                continue;
            }
            for (mine, other) in mine.iter_mut().zip(others) {
                *mine = with(*mine, other);
            }
        }
    }
}

impl Film {
    /// Of links that did something, and what they did over time.
    pub fn of(links: &Links<'_>, reel: &Reel) -> Self {
        let fabric = links.fabric;
        let is_shown = |link: &LinkId| {
            matches!(fabric.class(*link).kind, LinkKind::ScaleOut | LinkKind::Circuit)
        };
        let shown: Vec<LinkId> = fabric.links().ids().filter(is_shown).collect();
        let mut places: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut nodes = Nodes::default();
        let mut place = |node: NodeId| {
            *places.entry(node).or_insert_with(|| {
                nodes.push(fabric, node);
                nodes.name.len() - 1
            })
        };
        let mut lines = Lines::default();
        for link in &shown {
            let ends = fabric.links()[*link];
            lines.from.push(place(ends.from));
            lines.to.push(place(ends.to));
            lines.push(links, *link);
        }
        let mut names: Vec<String> = vec!["NIC".to_owned()];
        names.extend(fabric.tiers().iter().map(|tier| tier.name.clone()));
        Self {
            seconds: links.seconds,
            tiers: names,
            zone_word: fabric.networks().first().map_or("zone", |net| &net.zone_word).to_owned(),
            nodes,
            links: lines,
            at_s: reel.at_s.clone(),
            over_time: OverTime::of(links, &shown, reel),
        }
    }
}

impl Nodes {
    fn push(&mut self, fabric: &Fabric, id: NodeId) {
        let node = fabric.nodes()[id];
        let is_switch = node.kind == NodeKind::Switch;
        self.name.push(fabric.name(id));
        self.tier.push(if is_switch { node.tier + 1 } else { 0 });
        self.zone.push(node.zone);
        let server = fabric.server_of(id).filter(|_| !is_switch);
        self.server.push(server.and_then(|server| u32::try_from(server).ok()));
    }
}

impl Lines {
    fn push(&mut self, links: &Links<'_>, link: LinkId) {
        let carried = links.of(link);
        self.rate_bps.push(links.fabric.class(link).rate.as_bps());
        self.load.push(rounded(links.utilisation(link)));
        self.bytes.push(carried.bytes.round());
        self.queue_pairs.push(carried.flows);
        self.peak_queue_bytes.push(carried.peak_queue);
        self.paused_s.push(carried.paused_s);
    }
}

impl OverTime {
    fn of(links: &Links<'_>, shown: &[LinkId], reel: &Reel) -> Self {
        let fabric = links.fabric;
        let most = CELLS / reel.at_s.len().max(1);
        let kept: Vec<LinkId> = match reel.links.len() <= most {
            true => reel.links.keys().copied().collect(),
            false => busiest_of_each(fabric, &|link| links.utilisation(link), most),
        };
        let mut over_time = Self::default();
        for link in kept {
            let (Ok(place), Some(did)) = (shown.binary_search(&link), reel.links.get(&link)) else {
                continue;
            };
            let rate = fabric.class(link).rate.as_bps_f64().max(1.0);
            let shares = |values: &[f64], whole: f64| {
                values.iter().map(|value| rounded(value / whole)).collect::<Vec<f64>>()
            };
            over_time.link.push(place);
            over_time.load.push(shares(&did.sent_bps, rate));
            over_time.queued_bytes.push(did.queued.iter().map(|bytes| bytes.round()).collect());
            over_time.paused.push(shares(&did.paused, 1.0));
        }
        over_time
    }
}

/// Four digits are enough for a colour.
fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_shows_the_most_of_its_stretch_and_lanes_are_joined() {
        let at_s: Vec<f64> = (0..120).map(f64::from).collect();
        let moments = |peak: f64| Moments {
            sent_bps: (0..120).map(|at| if at == 61 { peak } else { 1.0 }).collect(),
            ..Moments::default()
        };
        let link = <LinkId as units::Id>::from_index(7);
        let reel = Reel::thinned(&at_s, [(link, moments(9.0)), (link, moments(5.0))]);
        assert_eq!((reel.at_s.len(), reel.at_s[30]), (60, 60.0));
        let sent = &reel.links[&link].sent_bps;
        assert_eq!((sent[30], sent[29], sent.len()), (14.0, 2.0, 60));
        assert!(reel.links[&link].queued.is_empty());
    }
}
