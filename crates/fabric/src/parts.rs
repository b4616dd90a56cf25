//! Parts of a fabric that speak transports of their own, and the gateways between them.
//!
//! A cable speaks what the higher of its switches does. Where it joins two transports stands a
//! gateway: a box that every packet of the cable passes, with a latency and perhaps a rate.

use units::Bytes;

use crate::graph::{Fabric, Link, LinkClass, LinkId, LinkKind, NodeKind};
use crate::transport::{GatewayConfig, Transport};

/// A fabric whose parts have transports of their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// By tier: which protocol its switches speak.
    pub transports: Vec<Transport>,
    /// What it takes where packets change it.
    pub gateway: GatewayConfig,
}

impl Parts {
    /// What a cable speaks; nothing where it is none between switches, or between a switch and a
    /// NIC.
    pub fn transport(&self, fabric: &Fabric, link: LinkId) -> Option<Transport> {
        let Link { from, to, .. } = fabric.links()[link];
        let ends = [from, to].map(|node| fabric.nodes()[node]);
        let switches = ends.iter().filter(|node| node.kind == NodeKind::Switch);
        let tier = switches.map(|node| node.tier).max()?;
        (fabric.class(link).kind != LinkKind::ScaleUp).then(|| self.transports[usize::from(tier)])
    }

    /// Whether packets change their transport on a cable.
    pub fn has_gateway(&self, fabric: &Fabric, link: LinkId) -> bool {
        let Link { from, to, .. } = fabric.links()[link];
        let [from, to] = [from, to].map(|node| fabric.nodes()[node]);
        let switches = from.kind == NodeKind::Switch && to.kind == NodeKind::Switch;
        switches && self.transports[usize::from(from.tier)] != self.transports[usize::from(to.tier)]
    }

    /// Gateways: one for each cable that joins two transports.
    pub fn gateways(&self, fabric: &Fabric) -> u64 {
        let links = fabric.links().ids();
        links.filter(|link| self.has_gateway(fabric, *link)).count() as u64 / 2
    }

    /// The fabric for an engine that knows the NICs' transport alone: cables are as long as their
    /// gateways make them, and as fast as headers of their own leave them for packets of this
    /// payload.
    #[must_use]
    pub fn laid_out(&self, fabric: &Fabric, nics: Transport, payload: Bytes) -> Fabric {
        fabric.with_classes(|link| {
            let class = fabric.class(link);
            let own = self.transport(fabric, link)?;
            let share = own.efficiency(payload) / nics.efficiency(payload);
            let mut rate = class.rate.as_bps_f64() * share;
            let mut delay = class.delay;
            if self.has_gateway(fabric, link) {
                delay += self.gateway.latency;
                let most = self.gateway.rate.map_or(f64::INFINITY, |rate| rate.as_bps_f64());
                rate = rate.min(most * share);
            }
            let rate = units::Rate::from_bps_f64(rate);
            Some(LinkClass { rate, delay, ..class.clone() })
        })
    }
}

#[cfg(test)]
mod tests {
    use units::Span;

    use super::*;
    use crate::hardware::Catalogue;
    use crate::topology::{ClusterConfig, FabricConfig, build};

    /// Oracle, by hand: leaves speak InfiniBand and spines RoCE, so every cable between them has a
    /// gateway and none to a NIC has; both together have as many links as before.
    #[test]
    fn gateways_stand_where_transports_meet() {
        let cluster = ClusterConfig { gpus: Some(64), ..ClusterConfig::default() };
        let fabric = build(&cluster, &FabricConfig::default(), &Catalogue::default());
        let fabric = fabric.expect("it can be built");
        let of =
            |transports: Vec<Transport>| Parts { transports, gateway: GatewayConfig::default() };
        let tiers = fabric.tiers().len();
        let mut transports = vec![Transport::Infiniband; tiers];
        assert_eq!(of(transports.clone()).gateways(&fabric), 0);
        transports[tiers - 1] = Transport::Rocev2;
        let parts = of(transports);
        let is_switch = |node| fabric.nodes()[node].kind == NodeKind::Switch;
        let between = fabric.links().ids().filter(|link| {
            let Link { from, to, .. } = fabric.links()[*link];
            let tier = |node| usize::from(fabric.nodes()[node].tier);
            is_switch(from) && is_switch(to) && tier(from).max(tier(to)) == tiers - 1
        });
        assert_eq!(parts.gateways(&fabric), between.count() as u64 / 2);
        let laid = parts.laid_out(&fabric, Transport::Infiniband, Bytes::new(4096));
        assert_eq!(laid.links().len(), fabric.links().len());
        for link in fabric.links().ids() {
            let more = laid.class(link).delay - fabric.class(link).delay;
            let gateway = parts.has_gateway(&fabric, link);
            assert_eq!(more, if gateway { Span::from_us(2) } else { Span::ZERO });
        }
    }
}
