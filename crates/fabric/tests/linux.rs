//! Linux's multipath hash against what a running kernel answered.
//!
//! Oracle: Linux 6.18, `ip route get 10.0.64.3 from 10.0.0.7 iif … ipproto udp sport PORT dport
//! 4791` with a route of five equal next hops, `fib_multipath_hash_policy` 1, and 3 with fields
//! 0x37.

use fabric::NodeId;
use fabric::hash::{FlowKey, HashFields, HashFunction, Hasher, UDP, linux};
use units::Id;

/// Policy, seed, source port, next hop.
const ANSWERS: [(u8, u32, u16, usize); 24] = [
    (1, 1, 49_152, 4),
    (1, 1, 50_001, 3),
    (1, 1, 54_321, 0),
    (1, 1, 65_535, 4),
    (1, 1, 60_000, 1),
    (1, 1, 61_111, 2),
    (1, 2_882_343_476, 49_152, 3),
    (1, 2_882_343_476, 50_001, 3),
    (1, 2_882_343_476, 54_321, 0),
    (1, 2_882_343_476, 65_535, 4),
    (1, 2_882_343_476, 60_000, 1),
    (1, 2_882_343_476, 61_111, 1),
    (3, 1, 49_152, 1),
    (3, 1, 50_001, 0),
    (3, 1, 54_321, 0),
    (3, 1, 65_535, 4),
    (3, 1, 60_000, 3),
    (3, 1, 61_111, 0),
    (3, 2_882_343_476, 49_152, 2),
    (3, 2_882_343_476, 50_001, 3),
    (3, 2_882_343_476, 54_321, 3),
    (3, 2_882_343_476, 65_535, 3),
    (3, 2_882_343_476, 60_000, 2),
    (3, 2_882_343_476, 61_111, 1),
];

#[test]
fn a_running_kernel_chooses_the_same_next_hops() {
    for (policy, seed, src_port, next_hop) in ANSWERS {
        let function = if policy == 3 { HashFunction::LinuxCustom } else { HashFunction::Linux };
        let hasher = Hasher { fields: HashFields::FiveTuple, function };
        let key = FlowKey {
            from: NodeId::from_index(0),
            to: NodeId::from_index(1),
            src_ip: u32::from_be_bytes([10, 0, 0, 7]),
            dst_ip: u32::from_be_bytes([10, 0, 64, 3]),
            protocol: UDP,
            src_port,
            dst_port: 4791,
            dst_qpn: 5,
        };
        let hash = hasher.hash(&key, seed);
        assert_eq!(linux::next_hop(hash, 5), next_hop, "policy {policy}, seed {seed}, {src_port}");
    }
}
