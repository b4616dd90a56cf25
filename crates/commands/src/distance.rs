//! What long links ask of windows and buffers: the bandwidth-delay product, and what is set.

use fabric::graph::{LinkKind, NodeKind};
use fabric::{Fabric, LinkId};
use packetsim::buffer::PfcConfig;
use scenario::Loaded;
use units::{Bytes, Span};

use crate::engine::{self, Engine};

/// A link is long from 10 km on: one that PFC's headroom was never meant for.
const LONG: Span = Span::from_us(50);

/// The link whose round trip holds the most, if it is a long one.
fn longest(fabric: &Fabric) -> Option<LinkId> {
    let is_long = |link: &LinkId| {
        let class = fabric.class(*link);
        matches!(class.kind, LinkKind::ScaleOut | LinkKind::Circuit) && LONG <= class.delay
    };
    let holds = |link: &LinkId| product(fabric, *link);
    fabric.links().ids().filter(is_long).max_by_key(holds)
}

/// What a link's round trip holds.
fn product(fabric: &Fabric, link: LinkId) -> Bytes {
    let class = fabric.class(link);
    class.rate.bytes_in(class.delay * 2)
}

/// What the longest link asks for and what is set, where there is a long one.
pub fn findings(loaded: &Loaded, engine: Engine) -> Vec<String> {
    let fabric = loaded.fabric();
    let Some(link) = longest(fabric) else { return Vec::new() };
    let (class, product) = (fabric.class(link), product(fabric, link));
    let (name, trip) = (fabric.link_name(link), class.delay * 2);
    let window = match engine::library(loaded).window {
        Some(window) => format!(
            "a queue pair may have {:.1} under way (network.congestion.max_window)",
            window.most
        ),
        None => "queue pairs may have that much under way".to_owned(),
    };
    let mut found = vec![format!(
        "{name} is {} long: at {} its round trip of {trip:.1} holds {product:.1}; {window}",
        class.length, class.rate
    )];
    let of_packets = engine.moves_packets().then(|| buffers(loaded, link));
    found.extend(of_packets.flatten());
    found
}

/// What the switches at both ends of a link have for it.
fn buffers(loaded: &Loaded, link: LinkId) -> Option<String> {
    let (fabric, settings) = (loaded.fabric(), loaded.settings());
    if !settings.pfc.enabled || settings.credits.enabled {
        return None;
    }
    let class = fabric.class(link);
    let ends = [fabric.links()[link].from, fabric.links()[link].to];
    let switches = ends.into_iter().filter(|end| fabric.nodes()[*end].kind == NodeKind::Switch);
    let told = switches.map(|node| {
        let tier = &fabric.tiers()[usize::from(fabric.nodes()[node].tier)].name;
        let buffer = settings.buffer_of_tier.get(tier).unwrap_or(&settings.buffer);
        let usual = || PfcConfig::headroom(class.rate, class.delay, settings.packet.mtu);
        let headroom = buffer.headroom.unwrap_or_else(usual);
        format!("a {tier} keeps {headroom:.1} of its {:.1} for each such port", buffer.size)
    });
    Some(format!(
        "without loss a port must take in what is under way when it pauses: {} \
         (network.buffer_of_tier)",
        told.collect::<Vec<_>>().join(", ")
    ))
}
