//! What ports counted, under the names that exporters of real machines use.
//!
//! NICs as node_exporter reads them from `/proc/net/dev`, from `/sys/class/infiniband` and, for
//! mlx5, from ethtool; switch ports as SONiC's exporter reads them from COUNTERS_DB. Boards made
//! for those show a simulated fabric. A run is taken to repeat: a counter grows by a run's bytes in
//! a run's time, which training does step by step.
//!
//! Sources: node_exporter `collector/{netdev,infiniband,ethtool}_linux.go` (ethtool's `rx` and `tx`
//! become `received` and `transmitted`, without a type); github.com/vinted/sonic-exporter for
//! SONiC. The lossless class is priority and queue 3, as in SONiC's stock maps. What an engine
//! knows only in total (marks, notifications, drops) is one series with `instance="all"`; nothing
//! is shared out over ports by guess.

use std::io::{self, Write};

use exports::openmetrics::{Clock, Family, Kind, Writer};
use fabric::graph::LinkKind;
use fabric::{LinkId, NodeId, NodeKind};

use super::{Carried, Links};

/// A family of NIC ports: a value of what the port sent and received, and of its rate.
struct OfPort {
    family: Family,
    value: fn(&Port) -> f64,
}

/// What the two links of a port did, per second.
struct Port {
    sent: Carried,
    received: Carried,
    bytes_per_s: f64,
    seconds: f64,
}

impl Port {
    fn per_second(&self, value: f64) -> f64 {
        if self.seconds > 0.0 { value / self.seconds } else { 0.0 }
    }
}

const fn family(name: &'static str, kind: Kind, help: &'static str) -> Family {
    Family { name, kind, help }
}

/// What a NIC's network device counts.
const DEVICES: &[OfPort] = &[
    OfPort {
        family: family("node_network_transmit_bytes", Kind::Counter, "Bytes sent by a device."),
        value: |port| port.per_second(port.sent.bytes),
    },
    OfPort {
        family: family("node_network_receive_bytes", Kind::Counter, "Bytes received by a device."),
        value: |port| port.per_second(port.received.bytes),
    },
    OfPort {
        family: family("node_network_speed_bytes", Kind::Gauge, "Rate of a device."),
        value: |port| port.bytes_per_s,
    },
    OfPort {
        family: family(
            "node_ethtool_transmitted_prio3_bytes",
            Kind::Growing,
            "Bytes sent in the lossless class (mlx5 tx_prio3_bytes).",
        ),
        value: |port| port.per_second(port.sent.bytes),
    },
    OfPort {
        family: family(
            "node_ethtool_received_prio3_bytes",
            Kind::Growing,
            "Bytes received in the lossless class (mlx5 rx_prio3_bytes).",
        ),
        value: |port| port.per_second(port.received.bytes),
    },
    OfPort {
        family: family(
            "node_ethtool_received_prio3_pause_duration",
            Kind::Growing,
            "Microseconds that pauses held sending up (mlx5 rx_prio3_pause_duration).",
        ),
        value: |port| port.per_second(port.sent.paused_s * 1e6),
    },
];

/// What a NIC's RDMA device counts.
const RDMA: &[OfPort] = &[
    OfPort {
        family: family(
            "node_infiniband_port_data_transmitted_bytes",
            Kind::Counter,
            "Bytes sent by a port.",
        ),
        value: |port| port.per_second(port.sent.bytes),
    },
    OfPort {
        family: family(
            "node_infiniband_port_data_received_bytes",
            Kind::Counter,
            "Bytes received by a port.",
        ),
        value: |port| port.per_second(port.received.bytes),
    },
    OfPort {
        family: family("node_infiniband_rate_bytes_per_second", Kind::Gauge, "Rate of a port."),
        value: |port| port.bytes_per_s,
    },
];

/// What a switch's port counts.
const SWITCHES: &[OfPort] = &[
    OfPort {
        family: family("sonic_interface_transmit_bytes", Kind::Growing, "Bytes sent by a port."),
        value: |port| port.per_second(port.sent.bytes),
    },
    OfPort {
        family: family("sonic_interface_receive_bytes", Kind::Growing, "Bytes received by a port."),
        value: |port| port.per_second(port.received.bytes),
    },
    OfPort {
        family: family("sonic_interface_speed_bytes", Kind::Gauge, "Rate of a port."),
        value: |port| port.bytes_per_s,
    },
];

/// How deep a switch port's queue has been.
const WATERMARK: Family = family(
    "sonic_queue_watermark_bytes_total",
    Kind::Standing,
    "The deepest that a queue has been.",
);

/// A family that is known over all ports together.
struct OfAll {
    family: Family,
    value: fn(&traffic::Counters) -> u64,
}

/// Totals over all ports.
const TOTALS: &[OfAll] = &[
    OfAll {
        family: family(
            "node_infiniband_np_cnp_packets_sent",
            Kind::Counter,
            "Congestion notifications sent, all ports together.",
        ),
        value: |counters| counters.cnps,
    },
    OfAll {
        family: family(
            "node_infiniband_np_ecn_marked_roce_packets_received",
            Kind::Counter,
            "Marked packets received, all ports together.",
        ),
        value: |counters| counters.ecn_marks,
    },
    OfAll {
        family: family(
            "sonic_queue_dropped_packets",
            Kind::Counter,
            "Packets dropped, all queues together.",
        ),
        value: |counters| counters.drops,
    },
];

/// The names of all metrics, as queries name them.
pub fn names() -> Vec<String> {
    let of_ports = [DEVICES, RDMA, SWITCHES].into_iter().flatten().map(|of| of.family);
    let all = of_ports.chain([WATERMARK]).chain(TOTALS.iter().map(|of| of.family));
    all.map(|family| family.sample_name()).collect()
}

/// Writes what the ports of a fabric counted.
pub fn write(links: &Links<'_>, clock: Clock, out: impl Write) -> io::Result<()> {
    let mut writer = Writer::new(out, clock);
    let nics = nic_ports(links);
    let switches = switch_ports(links);
    for of in DEVICES {
        writer.family(&of.family)?;
        for (place, port) in &nics {
            let labels = [("instance", &*place.node), ("device", &*place.netdev)];
            writer.series(&labels, (of.value)(port))?;
        }
    }
    for of in RDMA {
        writer.family(&of.family)?;
        for (place, port) in &nics {
            let device =
                [("instance", &*place.node), ("device", &*place.rdma), ("port", &*place.port)];
            writer.series(&device, (of.value)(port))?;
        }
    }
    for of in SWITCHES {
        writer.family(&of.family)?;
        for (switch, port, what) in &switches {
            writer.series(&[("instance", switch), ("device", port)], (of.value)(what))?;
        }
    }
    if links.carried.iter().any(|link| 0 < link.peak_queue) {
        writer.family(&WATERMARK)?;
        for (switch, port, what) in &switches {
            let labels = [("instance", &**switch), ("device", port), ("queue", "3")];
            let kind = [("type", "persistent"), ("watermark", "shared")];
            let labels: Vec<_> = labels.into_iter().chain(kind).collect();
            writer.series(&labels, what.sent.peak_queue as f64)?;
        }
    }
    if let Some(counters) = &links.counters {
        for of in TOTALS {
            writer.family(&of.family)?;
            let per_second = (of.value)(counters) as f64 / links.seconds.max(1e-12);
            writer.series(&[("instance", "all"), ("device", "all")], per_second)?;
        }
    }
    writer.finish()
}

/// How fast counters of NICs grow, by name: of each port, or of all ports together.
pub fn growth(links: &Links<'_>) -> Vec<(String, Growth)> {
    let nics = nic_ports(links);
    let grows = |family: &Family| !matches!(family.kind, Kind::Gauge);
    let of_ports = DEVICES.iter().chain(RDMA).filter(|of| grows(&of.family)).map(|of| {
        let values = nics.iter().map(|(_, port)| (of.value)(port)).collect();
        (of.family.sample_name(), Growth { per_s: values, ports: nics.len(), of_all: false })
    });
    let of_all = links.counters.iter().flat_map(|counters| {
        TOTALS.iter().map(|of| {
            let per_s = (of.value)(counters) as f64 / links.seconds.max(1e-12);
            (
                of.family.sample_name(),
                Growth { per_s: vec![per_s], ports: nics.len(), of_all: true },
            )
        })
    });
    of_ports.chain(of_all).collect()
}

/// How fast a counter grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// By how much in a second: a value for each port, or one for all together.
    pub per_s: Vec<f64>,
    /// Ports that there are.
    pub ports: usize,
    /// Whether it is known of all ports together only.
    pub of_all: bool,
}

/// Where a NIC's port is, in the labels of exporters.
struct Place {
    node: String,
    netdev: String,
    rdma: String,
    port: String,
}

fn port(links: &Links<'_>, out: LinkId) -> Port {
    Port {
        sent: links.of(out),
        received: links.of(links.fabric.reverse(out)),
        bytes_per_s: links.fabric.class(out).rate.bytes_per_s(),
        seconds: links.seconds,
    }
}

fn scale_out_ports(links: &Links<'_>, node: NodeId) -> Vec<LinkId> {
    let fabric = links.fabric;
    let ports = fabric.ports(node).iter().copied();
    ports.filter(|link| fabric.class(*link).kind == LinkKind::ScaleOut).collect()
}

fn nic_ports(links: &Links<'_>) -> Vec<(Place, Port)> {
    let fabric = links.fabric;
    let per_node = fabric.nics_per_node().max(1);
    let mut ports = Vec::new();
    for nic in 0..fabric.nics() {
        let (node, index) = (nic / per_node, nic % per_node);
        let own = scale_out_ports(links, fabric.nic(nic));
        for (number, link) in own.iter().enumerate() {
            let suffix = if own.len() < 2 { String::new() } else { format!("p{number}") };
            let place = Place {
                node: format!("node{node}"),
                netdev: format!("eth{index}{suffix}"),
                rdma: format!("mlx5_{index}"),
                port: (number + 1).to_string(),
            };
            ports.push((place, port(links, *link)));
        }
    }
    ports
}

fn switch_ports(links: &Links<'_>) -> Vec<(String, String, Port)> {
    let fabric = links.fabric;
    let switches = fabric.switches().filter(|node| fabric.nodes()[*node].kind == NodeKind::Switch);
    let mut ports = Vec::new();
    for switch in switches {
        let name = fabric.name(switch);
        for (number, link) in scale_out_ports(links, switch).into_iter().enumerate() {
            ports.push((name.clone(), format!("Ethernet{number}"), port(links, link)));
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every query of the dashboards in the tree names metrics that are written.
    #[test]
    fn dashboards_ask_for_what_there_is() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboards");
        let known = names();
        let mut queries = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let board: serde_json::Value = serde_json::from_str(&text).unwrap();
            for panel in board["panels"].as_array().unwrap() {
                for target in panel["targets"].as_array().into_iter().flatten() {
                    let query = target["expr"].as_str().unwrap();
                    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    let metrics: Vec<&str> = words
                        .filter(|word| ["node_", "sonic_"].iter().any(|p| word.starts_with(p)))
                        .collect();
                    assert!(!metrics.is_empty(), "{query} asks for nothing");
                    for metric in metrics {
                        assert!(known.iter().any(|name| name == metric), "{metric} in {query}");
                    }
                    queries += 1;
                }
            }
        }
        assert!(8 <= queries, "only {queries} queries");
    }
}
