//! Every finding is provoked by a file made for it, and absent from an undisturbed one.

use std::net::{IpAddr, Ipv4Addr};

use observe::{Summary, read_bytes};
use roce::packet::encode_ip;
use roce::{Bth, Envelope, Headers, Opcode, Operation};

/// A log of two servers with two GPUs and two NICs each.
struct Log {
    version: [&'static str; 2],
    via: &'static str,
    devices: [[u32; 2]; 2],
    gid: [u32; 2],
    class: [&'static str; 2],
    more: &'static str,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            version: ["2.27.7"; 2],
            via: "NET/IB/{}/GDRDMA",
            devices: [[0, 1]; 2],
            gid: [3; 2],
            class: ["106"; 2],
            more: "",
        }
    }
}

impl Log {
    fn text(&self) -> String {
        let mut text = String::new();
        for host in 0..2_usize {
            for gpu in 0..2_usize {
                let (rank, process) = (2 * host + gpu, 100 + gpu);
                let from = format!("node{host}:{process}:{process} [{gpu}] NCCL INFO");
                let other = (rank + 2) % 4;
                let via = self.via.replace("{}", &self.devices[host][gpu].to_string());
                let lines = [
                    format!("NCCL version {}+cuda12.9", self.version[host]),
                    "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
                        .to_owned(),
                    format!("NCCL_IB_TC set by environment to {}.", self.class[host]),
                    format!(
                        "ncclCommInitRank comm 0xa{rank} rank {rank} nranks 4 cudaDev {gpu} nvmlDev \
                         {gpu} busId {gpu}b000 commId 0x77 - Init START"
                    ),
                    format!(
                        "comm 0xa{rank} rank {rank} nRanks 4 nNodes 2 localRanks 2 localRank {gpu} MNNVL 0"
                    ),
                    format!("Channel 00/0 : {rank}[{gpu}] -> {other}[{gpu}] [send] via {via}"),
                    format!(
                        "NET/IB: NCCL Dev {gpu} IbDev {gpu} Port 1 qpn {} mtu 5 query_ece={{x}} GID {} \
                         (0/100000AFFFF0000)",
                        500 + rank,
                        self.gid[host]
                    ),
                    format!(
                        "ncclCommInitRank comm 0xa{rank} rank {rank} nranks 4 cudaDev {gpu} nvmlDev \
                         {gpu} busId {gpu}b000 commId 0x77 - Init COMPLETE"
                    ),
                ];
                lines.iter().for_each(|line| text += &format!("{from} {line}\n"));
            }
        }
        text + self.more
    }
}

fn summary(name: &str, bytes: &[u8]) -> Summary {
    Summary::of(&read_bytes(name, bytes))
}

fn codes(bytes: &[u8]) -> Vec<&'static str> {
    let summary = summary("it", bytes);
    assert!(summary.findings.iter().all(|finding| !finding.lines.is_empty()), "{summary:?}");
    summary.findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn an_undisturbed_log_has_no_findings() {
    let found = summary("it", Log::default().text().as_bytes());
    assert_eq!(found.findings, Vec::new());
    assert_eq!(
        (found.cluster.nodes, found.cluster.ranks, found.queue_pairs),
        (Some(2), Some(4), 4)
    );
    assert_eq!(found.cluster.nics_used, ["mlx5_0", "mlx5_1"]);
}

#[test]
fn each_disturbance_of_a_log_is_found_alone() {
    let base = Log::default;
    let warn = "node0:100:100 [0] socket.cc:545 NCCL WARN Net : Connection closed by remote peer\n";
    let abort = "node0:100:100 [0] NCCL INFO comm 0xa0 rank 0 nranks 4 cudaDev 0 busId b000 - \
                 Abort COMPLETE\n";
    let differs = "node0:100:100 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 4194304.\n\
                   node1:100:100 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 8388608.\n";
    let slower = "node0:100:100 [0] NCCL INFO NET/IB : Made virtual device [0] name=mlx5_0 \
                  speed=400000 ndevs=1\n\
                  node0:100:100 [0] NCCL INFO NET/IB : Made virtual device [1] name=mlx5_1 \
                  speed=200000 ndevs=1\n";
    let far = "node0:100:100 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU 0 / HCA 0 \
               (distance 7 > 4)\n";
    let cases = [
        ("gdr_off", Log { via: "NET/IB/{}", ..base() }),
        ("sockets", Log { via: "NET/Socket/{}", ..base() }),
        ("nic_unused", Log { devices: [[0, 0]; 2], ..base() }),
        ("nic_missing", Log { devices: [[0, 1], [0, 0]], ..base() }),
        ("gid_differs", Log { gid: [3, 1], ..base() }),
        ("gid_wrong", Log { gid: [0, 0], ..base() }),
        ("versions_differ", Log { version: ["2.27.7", "2.26.2"], ..base() }),
        ("traffic_class", Log { class: ["106", "0"], ..base() }),
        ("pcie_distance", Log { more: far, ..base() }),
        ("warnings", Log { more: warn, ..base() }),
        ("abort", Log { more: abort, ..base() }),
        ("environment_differs", Log { more: differs, ..base() }),
        ("unequal_rates", Log { more: slower, ..base() }),
    ];
    for (code, log) in cases {
        assert_eq!(codes(log.text().as_bytes()), [code], "{code}");
    }
}

#[test]
fn jobs_of_one_rank_and_missing_nodes_are_told() {
    let single = |at: u32| {
        format!(
            "h{}:{at}:{at} [0] NCCL INFO ncclCommInitAll comm 0x{at} rank 0 nranks 1 cudaDev 0 busId \
             1b000 commId 0x{at} - Init START\n\
             h{}:{at}:{at} [0] NCCL INFO ncclCommInitAll comm 0x{at} rank 0 nranks 1 cudaDev 0 busId 1b000 commId 0x{at} - Init COMPLETE\n",
            at % 2,
            at % 2
        )
    };
    let text: String = (10..14).map(single).collect();
    let found = summary("it", text.as_bytes());
    assert_eq!(found.findings[0].code, "jobs_of_one_rank");
    assert!(found.findings[0].text.starts_with("These are 4 jobs of one rank each on 2 servers"));
    let whole = Log::default().text();
    let half: String =
        whole.lines().filter(|line| line.starts_with("node0")).map(|l| format!("{l}\n")).collect();
    let found = summary("it", half.as_bytes());
    assert_eq!(found.findings.len(), 1);
    assert!(found.findings[0].text.starts_with("The files hold 1 of 2 nodes (node0)"));
    assert!(found.findings[0].lines[0].text.contains("nNodes 2"));
}

/// WRITEs of 1 KiB from one address to another.
struct Flow {
    from: u8,
    to: u8,
    qp: u32,
    port: u16,
    class: u8,
    packets: u32,
}

fn capture(flows: &[Flow], again: u32) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for flow in flows {
        let address = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let mut envelope = Envelope::new(address(flow.from), address(flow.to), flow.port);
        envelope.class = flow.class;
        for psn in (0..flow.packets).chain(0..again) {
            let opcode = Opcode::rc(Operation::WriteMiddle);
            let mut frame = vec![2; 12];
            frame.extend([8, 0]);
            encode_ip(
                &envelope,
                &Headers::new(Bth::new(opcode, flow.qp, psn)),
                &[0; 1024],
                &mut frame,
            );
            for word in [1, psn, frame.len() as u32, frame.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
    }
    file
}

/// Four flows of more than 1 MiB, two for each pair of addresses.
fn flows() -> Vec<Flow> {
    let flow = |at: u8| Flow {
        from: 1 + at / 2,
        to: 11 + at / 2,
        qp: 100 + u32::from(at),
        port: 50_000 + u16::from(at),
        class: 0x6a,
        packets: 1100,
    };
    (0..4).map(flow).collect()
}

#[test]
fn each_disturbance_of_a_capture_is_found_alone() {
    assert_eq!(codes(&capture(&flows(), 0)), Vec::<&str>::new());
    let mut marked = flows();
    marked[0].class |= 3;
    marked[1].class |= 3;
    assert_eq!(codes(&capture(&marked, 0)), ["marks_concentrated"]);
    let mut one_port = flows();
    one_port.iter_mut().for_each(|flow| flow.port = 50_000);
    assert_eq!(codes(&capture(&one_port, 0)), ["few_queue_pairs"]);
    let mut classes = flows();
    classes[3].class = 0;
    assert_eq!(codes(&capture(&classes, 0)), ["traffic_class"]);
    assert_eq!(codes(&capture(&flows(), 50)), ["retransmissions"]);
    // The last byte of the first packet of the second file block is of its check.
    let mut damaged = capture(&flows(), 0);
    let length = u32::from_le_bytes(damaged[32..36].try_into().expect("four bytes")) as usize;
    damaged[40 + length - 1] ^= 1;
    assert_eq!(codes(&damaged), ["icrc_wrong"]);
}

/// A frame of IEEE 802.1Qbb for class 3 from a station.
fn pause(station: u8, quanta: u16) -> Vec<u8> {
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, station, 0x88, 8, 1, 1, 0, 8];
    for class in 0..8 {
        frame.extend(if class == 3 { quanta } else { 0 }.to_be_bytes());
    }
    frame.resize(60, 0);
    frame
}

#[test]
fn one_station_that_pauses_is_found() {
    let file = |stations: &[u8]| {
        let mut file = capture(&flows(), 0);
        for station in stations {
            let frame = pause(*station, 0xffff);
            for word in [2, 0, frame.len() as u32, frame.len() as u32] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
        file
    };
    let even: Vec<u8> = (0..40).map(|at| at % 4).collect();
    assert_eq!(codes(&file(&even)), Vec::<&str>::new());
    assert_eq!(codes(&file(&[7; 40])), ["pauses_concentrated"]);
}

#[test]
fn queues_that_the_watchdog_calls_stormed_are_found() {
    let table = |status: &str| {
        format!(
            "       QUEUE       STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP\n\
             ------------  -----------  -------------------------  ------------  ------------\n\
             Ethernet0:3  operational                        0/0           0/0           0/0\n\
             Ethernet4:3  {status:>11}                        1/0     100/300       100/300\n"
        )
    };
    assert_eq!(codes(table("operational").as_bytes()), Vec::<&str>::new());
    assert_eq!(codes(table("stormed").as_bytes()), ["pfc_storm"]);
}

#[test]
fn wrong_results_are_found() {
    let table = |wrong: u32| {
        format!(
            "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024\n\
             # size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n \
             1024 256 float sum -1 10.0 0.1 0.1 {wrong} 10.0 0.1 0.1 {wrong}\n\
             # Out of bounds values : {wrong} {}\n\
             # Avg bus bandwidth    : 0.1\n",
            if wrong == 0 { "OK" } else { "FAILED" }
        )
    };
    assert_eq!(codes(table(0).as_bytes()), Vec::<&str>::new());
    assert_eq!(codes(table(7).as_bytes()), ["wrong_results"]);
}

#[test]
fn counters_that_grow_and_ports_that_stand_out_are_found() {
    let exporter = |name: &str, values: [u64; 4]| {
        let line = |(at, value): (usize, &u64)| format!("{name}{{device=\"mlx5_{at}\"}} {value}\n");
        format!("# TYPE {name} counter\n")
            + &values.iter().enumerate().map(line).collect::<String>()
    };
    let rates = "node_infiniband_rate_bytes_per_second";
    assert_eq!(codes(exporter(rates, [50; 4]).as_bytes()), Vec::<&str>::new());
    assert_eq!(codes(exporter(rates, [50, 50, 25, 50]).as_bytes()), ["unequal_rates"]);
    let pauses = "node_ethtool_received_prio3_pause";
    assert_eq!(codes(exporter(pauses, [5, 6, 5, 6]).as_bytes()), Vec::<&str>::new());
    assert_eq!(codes(exporter(pauses, [5, 6, 500, 6]).as_bytes()), ["pauses_concentrated"]);
    // Two snapshots: what was lost before the first does not count.
    let lost = "node_infiniband_out_of_sequence_packets_received_total";
    let mut observed = observe::Observed::default();
    for values in [[7, 7, 7, 7], [7, 7, 9, 7]] {
        let text = exporter(lost, values);
        let watch = observe::Watch::default();
        observe::input::unpack("it", None, Box::new(text.as_bytes()), &watch, &mut observed);
    }
    let summary = Summary::of(&observed);
    assert_eq!(summary.findings.len(), 1);
    assert!(summary.findings[0].text.contains("grew on 1 of 4 devices, by 2 on mlx5_2"));
    assert_eq!(codes(exporter(lost, [7, 7, 9, 7]).as_bytes()), Vec::<&str>::new());
}

/// Tables of the same benchmark on four pairs of servers: one is slow.
#[test]
fn a_slow_pair_of_servers_is_found() {
    let table = |busbw: f64| {
        format!(
            "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024\n\
             # Rank  0 Group  0 Pid 7 on a device  0 [0000:1b:00] H100\n\
             # Rank  1 Group  0 Pid 8 on b device  0 [0000:1b:00] H100\n\
             # size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n \
             1024 256 float sum -1 10.0 {busbw} {busbw} 0 10.0 {busbw} {busbw} 0\n\
             # Out of bounds values : 0 OK\n\
             # Avg bus bandwidth    : {busbw}\n"
        )
    };
    let text = |slow: f64| [40.0, 41.0, slow, 40.0].map(table).concat();
    assert_eq!(codes(text(41.0).as_bytes()), Vec::<&str>::new());
    assert_eq!(codes(text(20.0).as_bytes()), ["slow_link"]);
}
