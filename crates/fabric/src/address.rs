//! IPv4 and MAC addresses of NICs, as an operator's plan gives them.
//!
//! Every leaf has a subnet of its own, in the order of the leaves: 10.0.0.0/8 for the back-end,
//! 172.16.0.0/12 for the front-end. A subnet is the smallest power of two that holds the NICs of
//! the fullest leaf, the network, the gateway and the broadcast address, and at least a /26, as
//! racks commonly have; the gateway is the first address and NICs follow in order of their numbers.
//! A NIC with ports on several leaves has one address, in the subnet of the first: leaves of a pair
//! announce it as a host route (Qian et al., "Alibaba HPN", SIGCOMM 2024, section 5). Fabrics too
//! large for the range, and graphs without leaves, number their NICs straight through.
//!
//! MAC addresses are locally administered, so that they meet no real card's. Queue pair numbers are
//! handed out by [`queue_pairs`](crate::routing::queue_pairs).

use std::net::{Ipv4Addr, Ipv6Addr};

use units::Id;

use crate::graph::{Fabric, NodeId, NodeKind};

/// Private ranges of RFC 1918: first address, and bits below the prefix.
const BACK_END: (u32, u32) = (0x0a00_0000, 24);
const FRONT_END: (u32, u32) = (0xac10_0000, 20);

/// The smallest subnet of a leaf, in bits: a /26.
const SMALLEST: u32 = 6;

/// Network, gateway and broadcast address.
const RESERVED: u32 = 3;

/// The IPv6 address that goes with an IPv4 address: fd00::/96, a unique local prefix of RFC 4193.
pub fn ipv6(address: u32) -> Ipv6Addr {
    Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(address))
}

/// A MAC address.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Mac(pub [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The addresses of all NICs of a fabric.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Addresses {
    /// By NIC, back-end first: the node after the GPUs is the first.
    ips: Vec<u32>,
    first: usize,
    subnet_bits: [u32; 2],
}

impl Addresses {
    /// Numbers the NICs of a fabric.
    pub fn of(fabric: &Fabric) -> Self {
        let first = fabric.gpus();
        let nics = fabric.nodes().len() - fabric.switches().len() - first;
        let mut ips = vec![0; nics];
        let mut subnet_bits = [0; 2];
        let kinds = [(NodeKind::Nic, BACK_END), (NodeKind::FrontEndNic, FRONT_END)];
        for (at, (kind, (base, range))) in kinds.into_iter().enumerate() {
            let of_kind = |node: &NodeId| fabric.nodes()[*node].kind == kind;
            let nodes: Vec<NodeId> =
                (first..first + nics).map(NodeId::from_index).filter(of_kind).collect();
            let leaf = |node: NodeId| {
                let port = fabric.ports(node).first()?;
                fabric.leaf_ordinal(fabric.links()[*port].to)
            };
            let mut on_leaf = vec![0_u32; fabric.leaves().len()];
            let mut leaves: Vec<u32> = Vec::new();
            for ordinal in nodes.iter().filter_map(|node| leaf(*node)) {
                if on_leaf[ordinal as usize] == 0 {
                    leaves.push(ordinal);
                }
                on_leaf[ordinal as usize] += 1;
            }
            leaves.sort_unstable();
            let fullest = on_leaf.iter().copied().max().unwrap_or(0) + RESERVED;
            let bits = fullest.next_power_of_two().trailing_zeros().max(SMALLEST);
            let fits = (leaves.len() as u64) << bits <= 1 << range;
            subnet_bits[at] = bits;
            let mut taken = vec![0_u32; fabric.leaves().len()];
            for (number, node) in nodes.iter().enumerate() {
                let planned = leaf(*node).filter(|_| fits).map(|ordinal| {
                    let subnet = leaves.binary_search(&ordinal).expect("its leaf was counted");
                    taken[ordinal as usize] += 1;
                    // The first address is the network's, the second the gateway's.
                    ((subnet as u32) << bits) + 1 + taken[ordinal as usize]
                });
                // Straight through: wraps only beyond the range's size.
                let offset = planned.unwrap_or((number as u32 + 1) & ((1 << range) - 1));
                ips[node.index() - first] = base + offset;
            }
        }
        Self { ips, first, subnet_bits }
    }

    /// The address of a NIC, as a number; of a switch that of its loopback, 172.16.0.0/12.
    pub fn bits(&self, node: NodeId) -> u32 {
        const LOOPBACKS: u32 = (172 << 24) | (16 << 16);
        let at = node.index() - self.first;
        let switch = at.saturating_sub(self.ips.len()) as u32;
        self.ips.get(at).copied().unwrap_or(LOOPBACKS | (switch & 0xf_ffff))
    }

    /// The address of a NIC.
    pub fn ip(&self, nic: NodeId) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.bits(nic))
    }

    /// The length of the prefix of back-end subnets: 26 for a /26.
    pub fn prefix_length(&self) -> u32 {
        32 - self.subnet_bits[0]
    }

    /// The MAC address of one port of a NIC.
    pub fn mac(&self, nic: NodeId, port: u8) -> Mac {
        let [a, b, c, d] = (nic.index() as u32).to_be_bytes();
        // The second lowest bit of the first byte says "locally administered".
        Mac([0x02, port, a, b, c, d])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Catalogue;
    use crate::topology::{ClusterConfig, FabricConfig, FrontEndConfig, TopologyKind, build};

    fn rails(gpus: u64) -> Fabric {
        let front_end = FrontEndConfig { nics: 1, ..FrontEndConfig::default() };
        let cluster = ClusterConfig { gpus: Some(gpus), front_end, ..ClusterConfig::default() };
        let topology = TopologyKind::RailOptimized;
        let config = FabricConfig { topology, ..FabricConfig::default() };
        build(&cluster, &config, &Catalogue::default()).unwrap()
    }

    /// Golden: 32 servers share the leaves of their eight rails.
    #[test]
    fn nics_of_a_leaf_share_a_subnet() {
        let fabric = rails(512);
        let addresses = Addresses::of(&fabric);
        let shown = |nic: usize| addresses.ip(fabric.nic(nic)).to_string();
        assert_eq!(shown(0), "10.0.0.2");
        assert_eq!(shown(8), "10.0.0.3");
        assert_eq!(shown(1), "10.0.0.66");
        assert_eq!(shown(256), "10.0.2.2");
        assert_eq!(addresses.prefix_length(), 26);
        let front = NodeId::from_index(fabric.gpus() + fabric.nics());
        assert_eq!(addresses.ip(front).to_string(), "172.16.0.2");
        assert_eq!(addresses.mac(fabric.nic(0), 1).to_string(), "02:01:00:00:02:00");
    }

    /// Property: no two NICs share an address, and leaves keep to their subnets.
    #[test]
    fn addresses_are_unique() {
        for gpus in [8, 512, 5_000, 40_000] {
            let fabric = rails(gpus);
            let addresses = Addresses::of(&fabric);
            let all = fabric.gpus()..fabric.nodes().len() - fabric.switches().len();
            let mut seen: Vec<u32> =
                all.map(|node| addresses.bits(NodeId::from_index(node))).collect();
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count, "{gpus} GPUs");
            for nic in (0..fabric.nics()).step_by(37).map(|number| fabric.nic(number)) {
                let leaf = fabric.links()[fabric.ports(nic)[0]].to;
                let ordinal = fabric.leaf_ordinal(leaf).unwrap();
                let subnet = (addresses.bits(nic) & 0xff_ffff) >> (32 - addresses.prefix_length());
                assert_eq!(subnet, ordinal, "{gpus} GPUs");
            }
        }
    }
}
