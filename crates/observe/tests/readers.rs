//! Traces, counters and tables made here: the figures that were written come out.

use observe::observed::Kind;
use observe::{Observed, Summary, read_bytes};

fn read(text: &str) -> Observed {
    read_bytes("it", text.as_bytes())
}

/// One kernel of a collective in a PyTorch trace.
fn kernel(name: &str, start: f64, length: f64, args: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{start},"dur":{length},"args":{{{args}}}}}"#
    )
}

fn trace(rank: u32, events: &[String]) -> String {
    format!(
        r#"{{"schemaVersion":1,"distributedInfo":{{"rank":{rank},"world_size":4}},"traceEvents":[{}]}}"#,
        events.join(",")
    )
}

const REDUCE: &str = r#""Collective name":"allreduce","In msg nelems":1048576,"Out msg nelems":1048576,"Group size":4,"dtype":"Float","Process Group Name":"0","Process Group Ranks":"[0, 1, 2, 3]""#;

#[test]
fn a_trace_says_sizes_times_and_what_is_exposed() {
    let step = r#"{"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":1,"tid":1,"ts":0,"dur":1000}"#;
    let exchange = r#""Collective name":"all_to_allv","In msg nelems":4096,"Out msg nelems":4096,"Group size":4,"dtype":"BFloat16""#;
    let events = [
        step.to_owned(),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 100.0, 300.0, REDUCE),
        kernel("ncclDevKernel_SendRecv(ncclDevKernelArgs)", 500.0, 50.0, exchange),
        kernel("gemm", 200.0, 100.0, ""),
    ];
    let observed = read(&trace(2, &events));
    let summary = Summary::of(&observed);
    let row = |kind: Kind| summary.collectives.iter().find(|row| row.kind == kind).expect("seen");
    let (reduce, exchange) = (row(Kind::AllReduce), row(Kind::AllToAll));
    assert_eq!((reduce.bytes, reduce.ranks, reduce.time_us), (4 << 20, Some(4), Some(300.0)));
    assert_eq!((exchange.bytes, exchange.count), (8192, 1));
    let steps = summary.steps.expect("one");
    assert!((steps.exposed_share.expect("kernels") - 0.25).abs() < 1e-12);
    let load = summary.load.expect("sizes");
    // 2 · 3/4 of 4 MiB against 3/4 of 8 KiB.
    assert!((load.all_to_all_share - 1.0 / 1025.0).abs() < 1e-9, "{load:?}");
    assert!(load.text.contains("all_reduce dominates"), "{}", load.text);
    assert_eq!(summary.communicators[0].ranks, 4);
}

#[test]
fn ranks_of_one_job_are_counted_once_and_the_last_is_found() {
    let of = |slow: u32| {
        let mut observed = Observed::default();
        for rank in 0..4 {
            // Who comes last spends the least time in each.
            let length = if rank == slow { 100.0 } else { 400.0 };
            let events: Vec<String> = (0..10)
                .map(|at| kernel("ncclDevKernel_AllReduce", f64::from(at) * 1e3, length, REDUCE))
                .collect();
            let text = trace(rank, &events);
            let watch = observe::Watch::default();
            observe::input::unpack("it", None, Box::new(text.as_bytes()), &watch, &mut observed);
        }
        Summary::of(&observed)
    };
    assert_eq!(of(9).findings, Vec::new());
    let summary = of(2);
    assert_eq!(summary.collectives[0].count, 10);
    assert_eq!((summary.stragglers[0].rank, summary.stragglers[0].last), (2, 10));
    assert!((summary.stragglers[0].late_us - 300.0).abs() < 1e-9);
    assert!(summary.findings.iter().any(|finding| finding.code == "slow_rank"), "{summary:?}");
}

#[test]
fn a_trace_that_ends_early_says_where() {
    let whole = trace(0, &[kernel("gemm", 0.0, 1.0, "")]);
    let observed = read(&whole[..whole.len() - 2]);
    assert!(observed.sources[0].problems[0].starts_with("it:1: "), "{:?}", observed.sources);
    assert_eq!(observed.traces[0].kernels, 1);
}

#[test]
fn other_traces_are_read() {
    let xla = r#"{"traceEvents":[
        {"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:TPU:0"}},
        {"ph":"M","pid":1,"tid":3,"name":"thread_name","args":{"name":"XLA Ops"}},
        {"ph":"X","pid":1,"tid":3,"ts":0,"dur":10,"name":"fusion.1"},
        {"ph":"X","pid":1,"tid":3,"ts":10,"dur":30,"name":"all-gather.5"}]}"#;
    let observed = read(xla);
    assert_eq!(observed.sources[0].kind, "XLA trace");
    assert!((observed.traces[0].exposed_s - 30e-6).abs() < 1e-15);
    let csv = "\"Kind\",\"Kernel_Name\",\"Start_Timestamp\",\"End_Timestamp\"\n\
               \"KERNEL_DISPATCH\",\"ncclDevKernel_AllReduce(a, b)\",1000,5000\n";
    let observed = read(csv);
    assert_eq!((observed.traces[0].collectives, observed.traces[0].kernels), (1, 1));
    let workload = "HYBRID_TRANSFORMER model_parallel_NPU_group: 8 all_gpus: 16\n2\n\
                    a -1 5 ALLREDUCE 1024 1 NONE 0 1 NONE 0 1\n\
                    b -1 5 ALLTOALL_EP 2048 1 NONE 0 1 REDUCESCATTER 4096 1\n";
    let observed = read(workload);
    assert_eq!(observed.cluster.ranks, Some(16));
    assert_eq!(observed.collectives.0.len(), 3);
}

/// A Chakra file by hand: metadata, a collective of the GPU, its shadow on the CPU.
#[test]
fn chakra_nodes_of_the_cpu_do_not_count_twice() {
    let attribute = |name: &str, value: u8| {
        let mut bytes = vec![0x0a, name.len() as u8];
        bytes.extend(name.bytes());
        bytes.extend([0x48, value]);
        [vec![0x52, bytes.len() as u8], bytes].concat()
    };
    let node = |attributes: Vec<Vec<u8>>| {
        let body = [vec![0x18, 7], attributes.concat()].concat();
        [vec![body.len() as u8], body].concat()
    };
    let gpu = node(vec![attribute("comm_type", 6), attribute("comm_size", 100)]);
    let cpu = node(vec![attribute("is_cpu_op", 1)]);
    let file = [&[7, 0x0a, 5, b'0', b'.', b'0', b'.', b'4'][..], &gpu, &cpu].concat();
    let observed = read_bytes("it", &file);
    assert_eq!(observed.sources[0].kind, "Chakra execution trace");
    let (key, stats) = observed.collectives.0.first_key_value().expect("one");
    assert_eq!((key.kind, key.bytes, stats.count), (Kind::AllToAll, 100, 1));
    assert_eq!(observed.sources[0].read, 2);
    // One trace does not say how many ranks there are: there may be many.
    let load = Summary::of(&read_bytes("it.0.et", &file)).load.expect("it has a size");
    assert!((load.bytes_per_rank["all_to_all"] - 100.0).abs() < 1e-6, "{load:?}");
}

#[test]
fn counters_of_all_tools_are_read() {
    let files = [
        (
            "NIC statistics:\n     rx_prio3_pause: 12\n     rx_discards_phy: 0\n",
            2,
            "rx_prio3_pause",
        ),
        ("link mlx5_0/1 out_of_sequence 12 rx_write_requests 7\n", 2, "out_of_sequence"),
        (
            "# Port extended counters: Lid 5 port 1\nPortSelect:......1\nCounterSelect:....0x0\n\
             PortXmitData:....3\n",
            2,
            "PortXmitData in bytes",
        ),
        (
            "  Port Rx    PFC0    PFC1\n---------  ------  ------\nEthernet0   1,200      12\n",
            2,
            "Rx PFC1",
        ),
        ("{\"Ethernet0:3\":{\"SAI_QUEUE_STAT_BYTES\":\"12\"}}", 1, "SAI_QUEUE_STAT_BYTES"),
        (
            "# TYPE a_total counter\na_total{device=\"mlx5_0\",instance=\"h\"} 12\n\
             a_total{device=\"mlx5_1\"} 9223372036854775794\n",
            1,
            "a_total",
        ),
    ];
    for (text, count, name) in files {
        let observed = read(text);
        assert_eq!(observed.counters.len(), count, "{:?}", observed.sources);
        let sample = observed.counters.iter().find(|sample| sample.name == name);
        assert!((sample.expect(name).value - 12.0).abs() < 1e-9, "{name}");
        assert_eq!(observed.sources[0].problems, Vec::<String>::new());
    }
}

#[test]
fn cables_and_distances_are_read() {
    let table = "LocalPort    RemoteDevice    RemotePortID    Capability    RemotePortDescr\n\
                 -----------  --------------  --------------  ------------  ---------------\n\
                 Ethernet0    T1-1            hundredGigE1    BR            up\n";
    assert_eq!(read(table).neighbours[0].system, "T1-1");
    let json = r#"{"lldp":{"interface":{"eth0":{"chassis":{"leaf":{"id":{"value":"aa"}}},"port":{"id":{"value":"p1"}}}}}}"#;
    let observed = read(json);
    let found = &observed.neighbours[0];
    assert_eq!(
        (found.local.as_str(), found.system.as_str(), found.port.as_str()),
        ("eth0", "leaf", "p1")
    );
    let smi = "\t\u{1b}[4mGPU0\tGPU1\tNIC0\tCPU Affinity\u{1b}[0m\n\
               GPU0\t X \tNV18\tPIX\t0-7\nGPU1\tNV18\t X \tSYS\t0-7\n\nNIC0: mlx5_0\n";
    let summary = Summary::of(&read(smi));
    assert_eq!(summary.cluster.gpus_per_node, Some(2));
    let far: Vec<_> = summary.findings.iter().filter(|f| f.code == "pcie_distance").collect();
    assert_eq!(far[0].lines[0].line, 3);
}

/// `data/rocpd.py` made the database: pages of 1 KiB, so that tables are trees and a
/// name overflows.
#[test]
fn a_rocpd_database_has_kernels_calls_and_sizes() {
    let packed = include_bytes!("data/rocpd.db.gz");
    let summary = Summary::of(&read_bytes("x.db.gz", packed));
    assert_eq!(summary.sources[0].kind, "rocpd database");
    assert_eq!(summary.sources[0].problems, [""; 0]);
    assert_eq!(summary.cluster.hosts, ["mi300x-7"]);
    let calls: Vec<_> = summary.collectives.iter().map(|c| (c.kind, c.bytes, c.count)).collect();
    assert_eq!(calls, [(Kind::AllReduce, 2 << 20, 200), (Kind::AllToAll, 16 << 10, 100)]);
    assert_eq!(summary.traces.len(), 2, "a GPU each");
    for trace in &summary.traces {
        assert_eq!((trace.kernels, trace.collectives), (600, 300));
        assert!((trace.compute_s - 300.0 * 60e-6).abs() < 1e-9, "{trace:?}");
        assert!((trace.exposed_s - 300.0 * 30e-6).abs() < 1e-9, "{trace:?}");
    }
}

/// Cut anywhere, a database is an error that says so, or less of it.
#[test]
fn a_cut_rocpd_database_says_so() {
    let mut whole = Vec::new();
    let packed = &include_bytes!("data/rocpd.db.gz")[..];
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut whole)
        .expect("gzip");
    for length in (0..whole.len()).step_by(4_001) {
        let observed = read_bytes("x.db", &whole[..length]);
        assert!(!observed.sources[0].problems.is_empty(), "{length}");
    }
    for place in (100..whole.len()).step_by(997) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0xff;
        drop(read_bytes("x.db", &damaged));
    }
}

/// What other tools and versions make of the same: each gives its figures.
#[test]
fn variants_of_counters_are_read() {
    let cases = [
        (r#"{"SAI_PORT_STAT_PFC_3_RX_PKTS":"15437"}"#, "", "SAI_PORT_STAT_PFC_3_RX_PKTS", 15437.0),
        (
            r#"[{"source":"s:8080","timestamp":17,"updates":[{"Path":"COUNTERS/Ethernet0",
                "values":{"COUNTERS/Ethernet0":{"SAI_PORT_STAT_IF_OUT_OCTETS":"999"}}}]}]"#,
            "Ethernet0",
            "SAI_PORT_STAT_IF_OUT_OCTETS",
            999.0,
        ),
        (
            r#"[{"ifindex":0,"ifname":"mlx5_0","port":1,"np_cnp_sent":77}]"#,
            "mlx5_0/1",
            "np_cnp_sent",
            77.0,
        ),
        (
            "For namespace :\n     Port    TxQ    Counter/pkts\n\
             ---------  -----  --------------\nEthernet0    UC3          12,345\n",
            "Ethernet0|UC3",
            "Counter/pkts",
            12345.0,
        ),
    ];
    for (text, device, name, value) in cases {
        let observed = read(text);
        let found: Vec<_> =
            observed.counters.iter().map(|c| (&*c.device, &*c.name, c.value)).collect();
        assert_eq!(found, [(device, name, value)], "{text}");
    }
}

#[test]
fn neighbours_come_from_eos_and_from_keys() {
    let eos = "Port          Neighbor Device ID       Neighbor Port ID    TTL\n\
               ---------- ------------------------ ---------------------- ---\n\
               Et1           spine1.lab               Ethernet3           120\n";
    let keys = "lldp.eth0.via=LLDP\nlldp.eth0.chassis.name=spine1.lab\n\
                lldp.eth0.port.ifname=Ethernet3\n";
    for (text, local) in [(eos, "Et1"), (keys, "eth0")] {
        let neighbours = read(text).neighbours;
        let found: Vec<_> = neighbours.iter().map(|n| (&*n.local, &*n.system, &*n.port)).collect();
        assert_eq!(found, [(local, "spine1.lab", "Ethernet3")], "{text}");
    }
}

#[test]
fn slurms_yaml_is_counted() {
    let text = "- topology: t\n  tree:\n    switches:\n      - switch: top\n        children: s[0-1]\n\
                \x20     - switch: s0\n        nodes: n[1-4]\n      - switch: s1\n        nodes: n[5-8]\n";
    let fabrics = read(text).fabrics;
    assert_eq!((fabrics[0].kind, fabrics[0].switches, fabrics[0].hosts), ("Slurm", 3, 8));
}

/// In nccl-tests' JSON a process lists its first GPU alone; rccl-tests' tables of MPI builds have
/// one name too few.
#[test]
fn benchmarks_of_many_gpus_in_a_process_are_counted() {
    let json = r#"{"version":4,"args":["./all_reduce_perf"],"nccl_version":"2.30.7","config":
        {"nthreads":1,"ngpus":8,"minimum_bytes":8,"devices":[{"hostname":"a","device_hex":"1b"},
        {"hostname":"b","device_hex":"1b"}]},"results":[{"size":1048576,"out_of_place":
        {"time":50.0,"bus_bw":39.3}}],"end_time":"x"}"#;
    let summary = Summary::of(&read(json));
    assert_eq!((summary.cluster.ranks, summary.cluster.gpus_per_node), (Some(16), Some(8)));
    for row in ["all_reduce,0,2", "0,all_reduce,2"] {
        let head = "name,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inPlace,time,algBw,\
                    busBw,#wrong";
        let text = format!("{head}\n{row},16,8,1,1048576,float,sum,0,50,20.97,39.3,0\n");
        let rows = Summary::of(&read(&text)).collectives;
        assert_eq!((rows[0].kind, rows[0].ranks), (Kind::AllReduce, Some(16)), "{text}");
    }
}

/// Oracle: by hand. Four GPUs of one server, two tensor-parallel groups of neighbours and two
/// data-parallel groups of every other rank: a log, a Kineto trace and a flight recorder tell which
/// ranks they have.
#[test]
fn groups_are_known_by_their_ranks() {
    use std::fmt::Write;

    let mut log = String::new();
    for rank in 0..4 {
        let (pair, place, other) = (rank / 2, rank % 2, rank / 2);
        let mut line = |text: &str| {
            let process = 100 + rank;
            let _ = writeln!(log, "n0:{process}:{process} [{rank}] NCCL INFO {text}");
        };
        for (at, id, rank, size) in
            [("0xa", 1, rank, 4), ("0xb", 10 + pair, place, 2), ("0xc", 20 + place, other, 2)]
        {
            line(&format!(
                "ncclCommInitRank comm {at} rank {rank} nranks {size} cudaDev {rank} busId 1b000 \
                 commId 0x{id} - Init COMPLETE"
            ));
        }
        for (at, count) in [("0xb", 1000), ("0xb", 1000), ("0xc", 500)] {
            line(&format!(
                "AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 root \
                 0 comm {at} [nranks=2] stream 0x3"
            ));
        }
    }
    let summary = Summary::of(&observe::read_bytes("nccl.log", log.as_bytes()));
    let rows = |summary: &Summary| -> Vec<_> {
        let loads = summary.by_axis.iter();
        loads.map(|load| (load.axis, load.shape(), load.bytes_per_rank)).collect()
    };
    let shapes = ["2 ranks next to each other", "2 ranks, 2 apart"].map(str::to_owned);
    let [near, far] = shapes;
    let want =
        |near_is, far_is| vec![(near_is, near.clone(), 8000.0), (far_is, far.clone(), 2000.0)];
    assert_eq!(rows(&summary), want(None, None));

    let event = |group: &str, ranks: &str, purpose: &str, elements: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 1, "dur": 5,
            "args": {{"Collective name": "allreduce", "In msg nelems": {elements}, "Out msg nelems":
            {elements}, "dtype": "Float", "Group size": 2, "Process Group Name": "{group}",
            "Process Group Description": "{purpose}", "Process Group Ranks": "{ranks}"}}}}"#
        )
    };
    let tensor = event("7", "[2, 3]", "TENSOR_MODEL_PARALLEL_GROUP", 2000);
    let data = event("9", "[0, 2]", "undefined", 500);
    let trace = format!(r#"{{"traceEvents": [{tensor}, {data}], "schemaVersion": 1}}"#);
    let summary = Summary::of(&observe::read_bytes("rank2.json", trace.as_bytes()));
    assert_eq!(rows(&summary), want(Some("tp"), None));

    let entry = |group: &str, elements: u32| {
        format!(
            r#"{{"profiling_name": "nccl:all_reduce", "process_group": ["{group}", "x"],
            "input_sizes": [[{elements}]], "input_dtypes": ["Float"], "output_sizes":
            [[{elements}]], "output_dtypes": ["Float"], "state": "completed", "seq_id": 1}}"#
        )
    };
    let dump = format!(
        r#"{{"version": "2.5", "pg_config": {{"1": {{"name": "1", "desc": "mesh_tp", "ranks":
        "[2, 3]"}}, "12": {{"name": "12", "desc": "mesh_dp", "ranks": "[0, 2]"}}}}, "entries":
        [{}, {}]}}"#,
        entry("1", 2000),
        entry("12", 500)
    );
    let summary = Summary::of(&observe::read_bytes("dump_2", dump.as_bytes()));
    assert_eq!(rows(&summary), want(Some("tp"), Some("dp")));
}
