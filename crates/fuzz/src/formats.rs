//! Small files of every format that `observe` tells by content. The first of each is whole.

/// What the reader of a kind is called, and a file of it.
pub type Seed = (&'static str, &'static [u8]);

/// Text of libraries and programs.
pub const LOGS: &[Seed] = &[
    (
        "NCCL log",
        b"h:1:2 [0] NCCL INFO NCCL version 2.26.6+cuda12.9\n\
        h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 2 cudaDev 0 busId 1000 - \
        Init COMPLETE\nh:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0\n\
        h:1:2 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 \
        op 0 root 0 comm 0x5 [nranks=2] stream 0x3\n",
    ),
    (
        "nccl-tests output",
        b"# nThread 1 nGpus 8 minBytes 8 maxBytes 8\n#  Rank 0 Pid 1 on h device 0 [0x1b] x\n\
        #  size  count  type redop root  time algbw busbw #wrong\n\
        1048576 262144 float sum -1 100.0 10.4 18.3 0 99.0 10.5 18.4 0\n\
        # Avg bus bandwidth    : 18.3\n",
    ),
    (
        "text",
        b":::MLLOG {\"namespace\": \"\", \"time_ms\": 1, \"event_type\": \"POINT_IN_TIME\", \
        \"key\": \"global_batch_size\", \"value\": 1024, \"metadata\": {\"lineno\": 1}}\n\
        iteration 1/ 10 | elapsed time per iteration (ms): 150.7 | global batch size: 16 |\n\
        busbw: 18.3 Gbps\n",
    ),
];

/// What libraries and benchmarks write down for programs.
pub const RECORDS: &[Seed] = &[
    (
        "a PyTorch flight recorder dump",
        b"{\"version\": \"2.4\", \"pg_config\": {}, \"entries\": [{\"record_id\": 1, \
        \"pg_id\": 0, \"profiling_name\": \"nccl:all_reduce\", \"input_sizes\": [[4]], \
        \"input_dtypes\": [\"Float\"], \"state\": \"completed\", \"time_created_ns\": 1}]}",
    ),
    (
        "a PyTorch flight recorder dump (pickle)",
        b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94\x8c\x07entries\x94]\x94s.",
    ),
    (
        "NCCL Inspector records",
        b"{\"header\": {\"id\": \"0x1\", \"rank\": 0, \"n_ranks\": 2}, \"metadata\": {}, \
        \"coll_perf\": {\"coll\": \"AllReduce\", \"coll_msg_size_bytes\": 4, \
        \"coll_exec_time_us\": 5}}\n",
    ),
    (
        "records of an NCCL profiler plugin",
        b"{\"event\": \"ProfilerInit\", \"commId\": 1, \"nranks\": 2, \"rank\": 0}\n\
        {\"type\": \"ncclProfileColl\", \"func\": \"AllReduce\", \"count\": 4, \
        \"datatype\": \"ncclFloat32\", \"startTs\": 1.0, \"stopTs\": 2.0}\n",
    ),
    (
        "a trace of NCCL's example profiler",
        b"[\n{\"name\": \"Group API\", \"cat\": \"GROUP_API\", \"ph\": \"b\", \"id\": 0, \
        \"pid\": 1, \"tid\": 1, \"ts\": 1.0},\n{\"name\": \"AllReduce\", \"cat\": \"COLL\", \
        \"ph\": \"b\", \"id\": 1, \"ts\": 2.0, \"args\": {\"Count\": 4, \"Datatype\": \
        \"ncclFloat32\", \"CommHash\": 7, \"Rank\": 0}},\n",
    ),
    (
        "nccl-tests JSON",
        b"{\"version\":4,\"args\":[\"./all_reduce_perf\"],\"nccl_version\":\"2.30.7\",\"config\":\
        {\"nthreads\":1,\"ngpus\":8,\"minimum_bytes\":8,\"devices\":[{\"hostname\":\"a\"}]},\
        \"results\":[{\"size\":1048576,\"out_of_place\":{\"time\":50.0,\"bus_bw\":39.3}}]}",
    ),
    (
        "rccl-tests JSON",
        b"[{\"name\":\"all_reduce\",\"nodes\":1,\"ranks\":8,\"size\":1024,\"type\":\"float\",\
        \"redop\":\"sum\",\"inPlace\":0,\"time\":50.0,\"algBw\":1.0,\"busBw\":1.75}]",
    ),
    (
        "rccl-tests CSV",
        b"name,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inPlace,time,algBw,busBw,\
        #wrong\nall_reduce,0,2,16,8,1,1048576,float,sum,0,50,20.97,39.3,0\n",
    ),
    (
        "table of flows",
        b"flow,src,dst,bytes,start_ns,received_ns,finish_ns\n0,0,1,1000,0,800,900\n",
    ),
];

/// Traces of profilers and of execution.
pub const TRACES: &[Seed] = &[
    (
        "PyTorch trace",
        b"{\"schemaVersion\":1,\"distributedInfo\":{\"rank\":0,\"world_size\":4},\
        \"traceEvents\":[{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#3\",\
        \"pid\":1,\"tid\":1,\"ts\":0,\"dur\":1000},{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\
        \"ncclDevKernel_AllReduce\",\"pid\":0,\"tid\":7,\"ts\":1.5,\"dur\":2,\"args\":\
        {\"Collective name\":\"allreduce\",\"In msg nelems\":1048576,\"Group size\":4,\
        \"dtype\":\"Float\",\"Process Group Ranks\":\"[0, 1, 2, 3]\"}}]}",
    ),
    (
        "XLA trace",
        b"{\"traceEvents\":[{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\
        \"/device:TPU:0\"}},{\"ph\":\"M\",\"pid\":1,\"tid\":3,\"name\":\"thread_name\",\"args\":\
        {\"name\":\"XLA Ops\"}},{\"ph\":\"X\",\"pid\":1,\"tid\":3,\"ts\":0,\"dur\":10,\
        \"name\":\"all-gather.5\"}]}",
    ),
    (
        "rocprofv3 table of kernels",
        b"\"Kind\",\"Kernel_Name\",\"Start_Timestamp\",\"End_Timestamp\"\n\
        \"KERNEL_DISPATCH\",\"ncclDevKernel_AllReduce(a, b)\",1000,5000\n",
    ),
    (
        "rocprofv3 results",
        b"{\"rocprofiler-sdk-tool\":[{\"kernel_symbols\":[{\"kernel_id\":1,\
        \"formatted_kernel_name\":\"ncclDevKernel_AllReduce\"}],\"buffer_records\":\
        {\"kernel_dispatch\":[{\"start_timestamp\":1,\"end_timestamp\":5,\"dispatch_info\":\
        {\"kernel_id\":1}}]}}]}",
    ),
    (
        "SimAI or ASTRA-sim workload",
        b"HYBRID_TRANSFORMER model_parallel_NPU_group: 8 all_gpus: 16\n2\n\
        a -1 5 ALLREDUCE 1024 1 NONE 0 1 NONE 0 1\n\
        b -1 5 ALLTOALL_EP 2048 1 NONE 0 1 REDUCESCATTER 4096 1\n",
    ),
    (
        "PyTorch execution trace",
        b"{\"schema\":\"1.0.2-chakra.0.0.4\",\"nodes\":[{\"name\":\"[pytorch|profiler|\
        execution_trace|thread]\"},{\"name\":\"record_param_comms\",\"inputs\":{\"values\":[\
        [1,2,0,4,4,\"cuda:0\"],\"allreduce\"],\"shapes\":[[4]],\"types\":[\"Tensor(float)\"]},\
        \"attrs\":[{\"name\":\"pg_size\",\"value\":4}]}]}",
    ),
    (
        "Chakra execution trace",
        b"\x07\x0a\x050.0.4\x21\x18\x07\x52\x0d\x0a\x09comm_type\x48\x06\
        \x52\x0d\x0a\x09comm_size\x48\x64",
    ),
    ("groups of ranks", b"{\"1\": [0, 1], \"2\": [2, 3]}"),
];

/// Counters of NICs, switches and systems.
pub const COUNTERS: &[Seed] = &[
    ("ethtool statistics", b"NIC statistics:\n     rx_prio3_pause: 12\n     rx_discards_phy: 0\n"),
    ("rdma statistics", b"link mlx5_0/1 out_of_sequence 12 rx_write_requests 7\n"),
    ("rdma statistics", b"[{\"ifindex\":0,\"ifname\":\"mlx5_0\",\"port\":1,\"np_cnp_sent\":77}]"),
    (
        "perfquery output",
        b"# Port extended counters: Lid 5 port 1\nPortSelect:......1\n\
        CounterSelect:....0x0\nPortXmitData:....3\n",
    ),
    (
        "sysfs counters (ttar)",
        b"# Archive created by ttar - .\nDirectory: class\nPath: \
        class/infiniband/mlx5_0/ports/1/counters/port_xmit_data\nLines: 1\n12\nMode: 444\n# ttar - \
        - - -\n",
    ),
    (
        "SONiC counters as JSON",
        b"[{\"source\":\"s:8080\",\"timestamp\":17,\"updates\":[{\"Path\":\"COUNTERS/Ethernet0\",\
        \"values\":{\"COUNTERS/Ethernet0\":{\"SAI_PORT_STAT_IF_OUT_OCTETS\":\"999\"}}}]}]",
    ),
    ("SONiC counters as JSON", b"{\"Ethernet0:3\":{\"SAI_QUEUE_STAT_BYTES\":\"12\"}}"),
    (
        "SONiC show table",
        b"  Port Rx    PFC0    PFC1\n---------  ------  ------\nEthernet0   1,200      12\n",
    ),
    (
        "Prometheus text",
        b"# TYPE a_total counter\na_total{device=\"mlx5_0\",instance=\"h\"} 12\n\
        a_total{device=\"mlx5_1\"} 9223372036854775794\n",
    ),
];

/// Cables, servers and fabrics.
pub const CABLES: &[Seed] = &[
    (
        "LLDP table",
        b"LocalPort    RemoteDevice    RemotePortID    Capability    RemotePortDescr\n\
        -----------  --------------  --------------  ------------  ---------------\n\
        Ethernet0    T1-1            hundredGigE1    BR            up\n",
    ),
    (
        "LLDP table",
        b"Port          Neighbor Device ID       Neighbor Port ID    TTL\n\
        ---------- ------------------------ ---------------------- ---\n\
        Et1           spine1.lab               Ethernet3           120\n",
    ),
    (
        "LLDP neighbours",
        b"----\nLLDP neighbors:\n----\nInterface:    eth0, via: LLDP, RID: 1\n  Chassis:\n    \
        SysName:      leaf1\n  Port:\n    PortID:       ifname Ethernet3\n",
    ),
    (
        "LLDP neighbours as keys",
        b"lldp.eth0.via=LLDP\nlldp.eth0.chassis.name=spine1.lab\nlldp.eth0.port.ifname=Ethernet3\n",
    ),
    (
        "LLDP neighbours as JSON",
        b"{\"lldp\":{\"interface\":{\"eth0\":{\"chassis\":{\"leaf\":{\"id\":{\"value\":\"aa\"}}},\
        \"port\":{\"id\":{\"value\":\"p1\"}}}}}}",
    ),
    (
        "matrix of GPUs and NICs",
        b"\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\x1b[0m\n\
        GPU0\t X \tNV18\tPIX\t0-7\nGPU1\tNV18\t X \tSYS\t0-7\n\nNIC0: mlx5_0\n",
    ),
    (
        "ibnetdiscover output",
        b"vendid=0x2c9\nswitchguid=0x1(1)\nSwitch 2 \"S-1\" # \"leaf\" base port 0 lid 1\n\
        [1] \"H-2\"[1](3) # \"n1\" lid 2 4xHDR\n\ncaguid=0x2\nCa 1 \"H-2\" # \"n1\"\n\
        [1](3) \"S-1\"[1] # lid 2 4xHDR\n",
    ),
    (
        "Slurm topology.conf",
        b"SwitchName=s[0-1] Nodes=r[1-2]n[01-04],x\nSwitchName=top Switches=s[0-1]\n",
    ),
    (
        "Slurm topology.yaml",
        b"- topology: t\n  tree:\n    switches:\n      - switch: top\n        children: s[0-1]\n\
        \x20     - switch: s0\n        nodes: n[1-4]\n",
    ),
];

/// Captures of one packet each: pcap from its IP header on, and pcapng.
pub fn captures() -> Vec<(&'static str, Vec<u8>)> {
    let packet = super::targets::PACKET;
    let length = (packet.len() as u32).to_le_bytes();
    let mut pcap = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    pcap.extend([0xff, 0xff, 0, 0, 101, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    pcap.extend([length, length].concat());
    pcap.extend(packet);
    let block = |kind: u32, body: &[u8]| {
        let all = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &all, body, &all].concat()
    };
    let section = [&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat();
    let interface = [101, 0, 0, 0, 0xff, 0xff, 0, 0];
    let enhanced = [&[0; 12][..], &length, &length, packet].concat();
    let blocks = [block(0x0a0d_0d0a, &section), block(1, &interface), block(6, &enhanced)];
    vec![("pcap capture", pcap), ("pcapng capture", blocks.concat())]
}

/// Files in files: gzip and zstd of a letter, an archive with a file in it.
pub fn packed() -> Vec<Vec<u8>> {
    let gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 75, 4, 0, 67, 0xbe, 0xb7, 0xe8, 1, 0, 0, 0];
    let zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 4, 0, 9, 0, 0, b'a', 0, 0, 0, 0];
    let mut tar = vec![0; 1024];
    tar[..5].copy_from_slice(b"a.log");
    tar[124..135].copy_from_slice(b"00000000010");
    tar[257..262].copy_from_slice(b"ustar");
    vec![gzip, zstd, tar]
}
