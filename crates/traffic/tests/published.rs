//! Published collectives beside the closed form: a table of errors, and bounds that only shrink.
//!
//! One rule gives every row its cluster: servers with the catalogue's scale-up rates, a NIC for
//! each GPU, rail `r` of all servers on one leaf (one leaf for each server where the row says
//! "cross leaf"), 300 ns for an InfiniBand switch and 900 ns for an Ethernet one, 5 m cables. No
//! constant is fitted to a row.

mod common;

use std::fmt::Write as _;

use common::{Cluster, ScaleUp, all_gpus};
use traffic::collective::{Collective, Communicator};
use traffic::nccl::{Architecture, Initiator, Settings, Usage, estimate};
use units::{Bytes, Rate, Span};

const DATA: &str = include_str!("../../../validation/collectives.csv");

#[derive(Debug)]
struct Row {
    id: String,
    bytes: u64,
    measured: f64,
    predicted: f64,
    /// Signed: predicted over measured, less one.
    error: f64,
    chosen: String,
}

/// Splits a line of CSV at commas outside quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().unwrap().push(other),
        }
    }
    fields
}

fn rows() -> Vec<Row> {
    let mut lines = DATA.lines();
    let header = fields(lines.next().unwrap());
    let column = |name: &str| header.iter().position(|known| known == name).unwrap();
    let columns = [
        "id",
        "collective",
        "algorithm",
        "gpu",
        "gpus",
        "gpus_per_node",
        "transport",
        "in_network",
        "bytes",
        "measured_us",
        "measured_busbw_GBps",
        "harness_us",
        "note",
    ]
    .map(column);
    lines
        .map(|line| {
            let line = fields(line);
            predict(&columns.map(|at| line[at].as_str()))
        })
        .collect()
}

fn predict(row: &[&str; 13]) -> Row {
    let [
        id,
        collective,
        algorithm,
        gpu,
        gpus,
        per_node,
        transport,
        in_network,
        bytes,
        us,
        bus,
        harness,
        note,
    ] = *row;
    let collective = Collective::from_name(collective).unwrap();
    let (architecture, scale_up) = match gpu {
        "a100-80g" => (Architecture::Ampere, ScaleUp::Switch(Rate::from_gbps(8 * 300))),
        "h100-sxm" | "h200-sxm" => {
            (Architecture::Hopper, ScaleUp::Switch(Rate::from_gbps(8 * 450)))
        }
        "h800" => (Architecture::Hopper, ScaleUp::Switch(Rate::from_gbps(8 * 200))),
        "mi300x" => (Architecture::Cdna3, ScaleUp::Mesh(Rate::from_gbps(8 * 64))),
        other => panic!("unknown GPU {other}"),
    };
    let latency_row = collective == Collective::SendRecv;
    let gpus: usize = gpus.parse().unwrap();
    let per_node: usize = per_node.parse().unwrap();
    let servers = if latency_row { 2 } else { gpus.div_ceil(per_node) };
    let infiniband = transport == "infiniband";
    let cluster = Cluster {
        scale_up,
        switch_latency: Span::from_ns(if infiniband { 300 } else { 900 }),
        servers_per_leaf: if note.contains("cross leaf") { 1 } else { 64 },
        ..Cluster::hopper(servers)
    };
    let fabric = cluster.build();
    let ranks = match latency_row {
        true => vec![fabric.gpu(0), fabric.gpu(per_node)],
        false => all_gpus(&fabric),
    };
    let communicator = Communicator::new(&fabric, &ranks);
    let mut settings = Settings { architecture, ..Settings::default() };
    if infiniband {
        // 4,096 bytes of payload with LRH 8, BTH 12, ICRC 4, VCRC 2.
        settings.wire_efficiency = 4096.0 / 4122.0;
    }
    if latency_row {
        settings.initiator = Initiator::Host;
    }
    if note.contains("NVLS off") {
        settings.nvls = Usage::Disabled;
    }
    if in_network == "sharp" {
        settings.sharp = Usage::Enabled;
        settings.algorithm = Some("sharp".into());
    }
    if algorithm == "ring" {
        settings.algorithm = Some("ring".into());
    }
    let bytes: u64 = bytes.parse().unwrap();
    let size = Bytes::new(bytes);
    let answer = estimate(&fabric, &communicator, collective, size, &settings).unwrap();
    // What the harness that measured adds to each call.
    let time = answer.time.as_secs_f64() + 1e-6 * harness.parse().unwrap_or(0.0);
    let logical = match collective {
        // Servers that a token goes to, its own among them.
        Collective::MoeDispatch | Collective::MoeCombine => {
            let nodes = communicator.domains() as u32;
            f64::from(nodes) * settings.routing.copies(nodes, per_node as u32).to_node
        }
        other => other.bus_factor(gpus as u32),
    };
    let (measured, predicted, error) = match us.parse::<f64>() {
        Ok(measured) => (measured, time * 1e6, time * 1e6 / measured - 1.0),
        Err(_) => {
            let measured: f64 = bus.parse().unwrap();
            let predicted = logical * bytes as f64 / time / 1e9;
            (measured, predicted, predicted / measured - 1.0)
        }
    };
    let plan = answer.plan;
    let chosen = format!("{} {} ×{}", plan.algorithm.name(), plan.protocol.name(), plan.channels);
    Row { id: id.into(), bytes, measured, predicted, error, chosen }
}

fn table(rows: &[Row]) -> String {
    let mut table = String::new();
    for Row { id, measured, predicted, error, chosen, .. } in rows {
        writeln!(
            table,
            "{id:<32} {measured:>8.2} {predicted:>8.2} {:>+7.1}%  {chosen}",
            error * 100.0
        )
        .unwrap();
    }
    table
}

/// Large messages within 15 %, small ones within a factor of 1.5, latencies within 10 %.
#[test]
fn published_collectives_are_met() {
    let rows = rows();
    let table = table(&rows);
    let misses: Vec<&Row> = rows
        .iter()
        .filter(|row| {
            let ratio = 1.0 + row.error;
            let bounds = match row.bytes {
                _ if row.id.starts_with("latency") => 0.9..=1.1,
                bytes if bytes < 64 << 20 => 1.0 / 1.5..=1.5,
                _ => 0.85..=1.15,
            };
            !bounds.contains(&ratio)
        })
        .collect();
    assert!(misses.is_empty(), "{} of {} missed:\n{table}\n{misses:#?}", misses.len(), rows.len());
    // The ratchet: how far the whole is off today, to be lowered, never raised.
    let large: Vec<f64> =
        rows.iter().filter(|r| 64 << 20 <= r.bytes).map(|r| r.error.abs()).collect();
    let mean = large.iter().sum::<f64>() / large.len() as f64;
    assert!(mean < 0.05, "{mean}\n{table}");
}

/// Golden. Measured, predicted, error, and what was chosen: any change of the model shows here.
#[test]
fn the_table_of_errors() {
    insta::assert_snapshot!(table(&rows()), @r"
    ar-a100x8-32768                      1.31     1.37    +4.3%  ring LL ×1
    ar-a100x8-65536                      2.45     2.67    +9.0%  ring LL ×2
    ar-a100x8-131072                     4.43     5.11   +15.3%  ring LL ×4
    ar-a100x8-262144                     7.47     9.40   +25.8%  ring LL ×8
    ar-a100x8-524288                    11.41    16.21   +42.0%  ring LL ×16
    ar-a100x8-1048576                   18.00    25.40   +41.1%  ring LL ×24
    ar-a100x8-2097152                   36.20    35.47    -2.0%  ring LL ×24
    ar-a100x8-4194304                   72.30    73.00    +1.0%  ring LL128 ×24
    ar-a100x8-8388608                  109.90   109.15    -0.7%  ring LL128 ×24
    ar-a100x8-16777216                 106.20   145.06   +36.6%  ring LL128 ×24
    ar-a100x8-33554432                 138.50   151.19    +9.2%  ring Simple ×24
    ar-a100x8-67108864                 171.50   181.46    +5.8%  ring Simple ×24
    ar-a100x8-134217728                176.90   201.65   +14.0%  ring Simple ×24
    ar-a100x8-268435456                194.10   213.53   +10.0%  ring Simple ×24
    ar-a100x8-536870912                222.70   221.87    -0.4%  ring Simple ×24
    ar-a100x8-1073741824               229.00   228.24    -0.3%  ring Simple ×24
    ar-a100x8-2147483648               231.40   231.57    +0.1%  ring Simple ×24
    ar-a100x8-4294967296               233.90   233.27    -0.3%  ring Simple ×24
    ar-a100x8-8589934592               234.60   234.13    -0.2%  ring Simple ×24
    ar-a100x8-17179869184              234.90   234.57    -0.1%  ring Simple ×24
    ar-h200x8-32768                      1.44     1.38    -4.3%  ring LL ×1
    ar-h200x8-65536                      2.93     2.72    -7.3%  ring LL ×2
    ar-h200x8-131072                     5.73     5.28    -7.9%  ring LL ×4
    ar-h200x8-262144                    11.74     9.98   -15.0%  ring LL ×8
    ar-h200x8-524288                    23.94    18.03   -24.7%  ring LL ×16
    ar-h200x8-1048576                   39.93    30.18   -24.4%  ring LL ×24
    ar-h200x8-2097152                   64.53    49.96   -22.6%  nvls Simple ×16
    ar-h200x8-4194304                  107.16    90.68   -15.4%  nvls Simple ×16
    ar-h200x8-8388608                  155.50   132.39   -14.9%  nvls Simple ×16
    ar-h200x8-16777216                 219.90   208.48    -5.2%  nvls Simple ×16
    ar-h200x8-33554432                 275.80   292.56    +6.1%  nvls Simple ×16
    ar-h200x8-67108864                 346.50   335.14    -3.3%  nvls Simple ×16
    ar-h200x8-134217728                401.90   398.13    -0.9%  nvls Simple ×16
    ar-h200x8-268435456                436.20   439.43    +0.7%  nvls Simple ×16
    ar-h200x8-536870912                450.30   463.46    +2.9%  nvls Simple ×16
    ar-h200x8-1073741824               463.60   469.37    +1.2%  nvls Simple ×16
    ar-h200x8-2147483648               469.20   479.60    +2.2%  nvls Simple ×16
    ar-h200x8-4294967296               473.10   484.88    +2.5%  nvls Simple ×16
    ar-h200x8-8589934592               477.50   487.56    +2.1%  nvls Simple ×16
    ar-h200x8-17179869184              482.30   488.92    +1.4%  nvls Simple ×16
    all_reduce-h200x8-ring-16g         367.60   370.02    +0.7%  ring Simple ×24
    all_gather-h200x8-ring-16g         361.40   369.67    +2.3%  ring Simple ×24
    reduce_scatter-h200x8-ring-16g     362.90   369.67    +1.9%  ring Simple ×24
    ar-h100x32                         370.00   350.07    -5.4%  ring Simple ×16
    a2a-h100x32                         48.00    46.45    -3.2%  pairwise Simple ×1
    ar-h100x32-sharp                   480.00   481.86    +0.4%  sharp Simple ×16
    ar-mi300x8                         312.90   333.57    +6.6%  ring Simple ×28
    deepep-moe_dispatch-ep16            43.00    46.95    +9.2%  moe Simple ×1
    deepep-moe_combine-ep16             43.00    47.22    +9.8%  moe Simple ×1
    deepep-moe_dispatch-ep64            51.00    56.36   +10.5%  moe Simple ×1
    deepep-moe_combine-ep64             50.00    56.57   +13.1%  moe Simple ×1
    deepep-moe_dispatch_ll-ep8          77.00    80.10    +4.0%  moe_low_latency Simple ×1
    deepep-moe_combine_ll-ep8          114.00   125.85   +10.4%  moe_low_latency Simple ×1
    deepep-moe_dispatch_ll-ep32        155.00   145.01    -6.4%  moe_low_latency Simple ×1
    deepep-moe_combine_ll-ep32         273.00   252.35    -7.6%  moe_low_latency Simple ×1
    deepep-moe_dispatch_ll-ep256       194.00   178.34    -8.1%  moe_low_latency Simple ×1
    deepep-moe_combine_ll-ep256        360.00   316.98   -11.9%  moe_low_latency Simple ×1
    latency-rocev2-same-leaf             3.60     3.35    -6.9%  send_recv Simple ×1
    latency-rocev2-cross-leaf            5.60     5.21    -7.1%  send_recv Simple ×1
    latency-infiniband-same-leaf         2.80     2.75    -1.7%  send_recv Simple ×1
    latency-infiniband-cross-leaf        3.70     3.41    -8.0%  send_recv Simple ×1
    ");
}
