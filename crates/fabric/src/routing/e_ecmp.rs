//! E-ECMP: ECMP that also hashes the destination queue pair number.
//!
//! Meta's switches parse the RoCE transport header with a user-defined field, so that the queue
//! pairs of one connection part even where their UDP source ports are equal. It needs queue pairs
//! to part: `qps` above 1. Source: Gangidi et al., SIGCOMM 2024.

use super::RoutingConfig;
use super::ecmp::Ecmp;
use crate::graph::Fabric;
use crate::hash::{HashFields, Hasher};

/// ECMP on the 5-tuple and the destination queue pair number.
pub fn e_ecmp(config: &RoutingConfig, fabric: &Fabric, seed: u64) -> Ecmp {
    let ecmp = Ecmp::new(config, fabric, seed);
    let hasher = Hasher { fields: HashFields::FiveTupleQpn, ..ecmp.hasher() };
    ecmp.with_hasher(hasher)
}

#[cfg(test)]
mod tests {
    use super::super::tests::leaf_spine;
    use super::super::{Policy, QueuePairs, RoutingConfig, Walker};
    use crate::hash::UdpSource;
    use crate::routes::Routes;

    /// Oracle: where all queue pairs of a pair share a source port, plain ECMP puts them on one
    /// path, and the queue pair number parts them.
    #[test]
    fn the_queue_pair_number_parts_what_the_source_port_does_not() {
        let fabric = leaf_spine(2, 16, 16);
        let distinct = |policy| {
            let udp_source = UdpSource::PerPair;
            let config = RoutingConfig { policy, udp_source, ..RoutingConfig::default() };
            let mut routing = config.build(&fabric, 1);
            let mut queue_pairs = QueuePairs::new(&fabric, &config, 1);
            let (mut routes, mut walker) = (Routes::default(), Walker::default());
            let mut paths: Vec<_> = (0..16)
                .map(|_| {
                    let key = queue_pairs.open(fabric.nic(0), fabric.nic(16));
                    walker.path(&fabric, &mut routes, routing.as_mut(), &key, 0).unwrap().to_vec()
                })
                .collect();
            paths.sort_unstable();
            paths.dedup();
            paths.len()
        };
        assert_eq!(distinct(Policy::Ecmp), 1);
        assert!(6 < distinct(Policy::EEcmp));
    }
}
