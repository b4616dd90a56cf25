//! Traffic beside training against closed forms, on all engines.

use commands::{Engine, collective, run_traffic};
use packetsim::Watch;
use scenario::source::Source;
use scenario::{Loaded, Purpose, Request, load};
use traffic::Collective;
use units::Bytes;

fn loaded(name: &str, purpose: Purpose, set: &[&str]) -> Loaded {
    let scenario = Some(format!("../../scenarios/{name}.toml"));
    let set = set.iter().map(|one| (*one).to_owned()).collect();
    load(&Request { scenario, set, purpose, ..Request::default() }).expect("it is valid")
}

fn run(name: &str, engine: Engine, set: &[&str]) -> run_traffic::Report {
    let loaded = loaded(name, Purpose::Run(engine), set);
    let options = run_traffic::Options { engine, ..run_traffic::Options::default() };
    run_traffic::run(&loaded, &options, &mut Watch::default()).expect("it runs").0
}

fn assert_near(found: f64, expected: f64, share: f64, what: &str) {
    let off = found / expected - 1.0;
    assert!(off.abs() < share, "{what}: {found} beside {expected}, {:.2} %", 100.0 * off);
}

/// Payload of a NIC in bytes per second: 400 Gb/s, and of 4,096 bytes of payload 82 bytes of
/// headers and gaps (RoCEv2).
const NIC: f64 = 50e9 * 4_096.0 / (4_096.0 + 82.0);

/// Closed form: a NIC sends an eighth of what is kept of a prompt, at its rate; prompts that go to
/// the same server wait for each other where links are shared.
#[test]
fn keys_and_values_take_their_bytes_over_the_rate_of_a_nic() {
    let part = 327_680.0 * 500.0 / 8.0;
    for engine in Engine::ALL {
        let time = |count: &str| {
            let set = ["cluster.gpus=32", "traffic.tokens=500", &format!("traffic.count={count}")];
            run("beside/kv-transfer", engine, &set).makespan_s.expect("all arrive")
        };
        assert_near(time("2"), part / NIC, 0.02, engine.name());
        let prompts = if engine.has_contention() { 3.0 } else { 1.0 };
        assert_near(time("6"), prompts * part / NIC, 0.02, engine.name());
    }
}

/// Pauses alone hold senders back: what congestion control costs besides is no closed form.
const PAUSES: &str = "network.congestion.control=none";

/// Closed form: the copy gets the model whole, and each of its NICs a half; two trainers feed one
/// of them.
#[test]
fn new_weights_take_the_part_of_a_nic_over_its_rate() {
    let weights = 8_030_261_248.0;
    for engine in Engine::ALL {
        let set = [
            "cluster.gpus=16",
            // One leaf: between several, pauses hold back what does not go to a full port.
            "fabric.topology=clos",
            "traffic.model=llama3-8b",
            "traffic.hosts=6",
            "traffic.senders=4",
            "traffic.copy=2",
            PAUSES,
        ];
        let report = run("beside/weight-push", engine, &set);
        assert_eq!((report.flows, report.bytes), (4, 8_030_261_248), "{}", engine.name());
        // Alone, a trainer's quarter; together, the half that a NIC gets.
        let part = if engine.has_contention() { weights / 2.0 } else { weights / 4.0 };
        let time = report.makespan_s.expect("all arrive");
        assert_near(time, part / NIC, 0.02, engine.name());
    }
}

/// Closed form: a token takes its collectives one after the other, and each takes what it takes
/// alone.
#[test]
fn a_token_takes_the_sum_of_its_collectives() {
    let (gpus, bytes) = (Some(16), Bytes::new(8 * 8_192 * 2));
    for engine in Engine::ALL {
        let set = ["traffic.model=llama3-70b", "traffic.gpus=16", "traffic.tokens=8"];
        let report = run("beside/decode", engine, &[&set[..], &["traffic.messages=1"]].concat());
        let token = report.parts[0].token_s.expect("it decodes");
        let purpose = Purpose::Collective(engine, Collective::AllReduce);
        let options = collective::Options {
            engine,
            patience: commands::packets::Patience::Usual,
            collective: Collective::AllReduce,
            sizes: collective::Sizes { min: bytes, max: bytes, factor: 2 },
            gpus,
            iterations: 1,
        };
        let alone = collective::run(
            &loaded("beside/decode", purpose, &[]),
            &options,
            &mut Watch::default(),
        );
        let alone = alone.expect("it runs").rows[0].time_us * 1e-6;
        assert_near(token, 160.0 * alone, 0.1, engine.name());
    }
}

/// Closed form: with experts every layer waits twice for the farthest message, so 3 µs more on the
/// way (5 µs and not 2) are 348 µs more for a token, whatever it carries.
#[test]
fn a_token_waits_twice_in_each_layer_with_experts() {
    for engine in Engine::ALL {
        let token = |latency: &str| {
            let latency = format!("network.nic.send_latency={latency}");
            let set = ["traffic.gpus=16", "traffic.tokens=1", "traffic.messages=1", &latency];
            run("beside/decode", engine, &set).parts[0].token_s.expect("it decodes")
        };
        let more = token("4300ns") - token("1300ns");
        assert_near(more, 2.0 * 58.0 * 3e-6, 0.05, engine.name());
    }
}

/// Sixteen servers of one GPU beside one storage server, without anything else.
const STORED: [&str; 6] = [
    "cluster.gpus=16",
    "cluster.gpus_per_node=1",
    "cluster.nics_per_node=1",
    "cluster.storage.servers=1",
    "fabric.topology=clos",
    "traffic.background=[]",
];

/// Closed form: 16 servers that write to one storage server take their bytes over its rate, on
/// either network and both ways.
#[test]
fn storage_takes_its_bytes_over_its_rate() {
    let bytes = 70_553_706.0;
    let rate = 12.5e9 * 4_096.0 / (4_096.0 + 82.0);
    for engine in [Engine::Flow, Engine::Packet] {
        for place in ["front-end", "back-end"] {
            for pattern in ["checkpoint", "restore"] {
                let place = format!("cluster.storage.place={place}");
                let pattern = format!("traffic.pattern={pattern}");
                let set = [
                    "cluster.storage.rate=100Gbps",
                    "reliability.checkpoint.bytes_per_parameter=0.001",
                    "traffic.messages=1",
                    PAUSES,
                    &place,
                    &pattern,
                ];
                let report = run("beside/checkpoint", engine, &[&STORED[..], &set].concat());
                assert_eq!((report.flows, report.bytes), (16, 70_553_706), "{place}");
                let what = format!("{} {place} {pattern}", engine.name());
                assert_near(report.makespan_s.expect("all arrive"), bytes / rate, 0.03, &what);
            }
        }
    }
}

/// Closed form: on a network of its own a checkpoint costs nothing. On a shared one each NIC gives
/// it a sixteenth of the storage server's 400 Gb/s, as max-min arithmetic says.
#[test]
fn a_shared_fabric_costs_its_share() {
    let ring = |place: &str| {
        let place = format!("cluster.storage.place={place}");
        let background = "traffic.background=[{pattern=\"checkpoint\",model=\"llama3-8b\"}]";
        let set =
            ["traffic.pattern=ring", "traffic.messages=1", "cluster.storage.rate=400Gbps", &place];
        let set = [&STORED[..5], &set, &[background]].concat();
        let report = run("beside/checkpoint", Engine::Flow, &set);
        report.parts[0].finish_s.expect("all arrive")
    };
    let (own, shared) = (ring("front-end"), ring("back-end"));
    assert_near(shared / own, 400.0 / 375.0, 0.001, "a ring beside a checkpoint");
}

/// Two sites at 1,000 km: what closed forms, flows and packets say lies within 5 %, of messages and
/// of an all-reduce that crosses once in each direction and round.
#[test]
fn two_sites_are_as_far_on_every_engine() {
    // 5.05 ms of fibre there, and as much back, and the bytes of a NIC.
    let one_way = 1e6 / 198e6;
    let part = 327_680.0 * 2_000.0 / 8.0;
    for engine in Engine::ALL {
        let report = run("beside/two-sites", engine, &["traffic.tokens=2000"]);
        let time = report.makespan_s.expect("all arrive");
        assert_near(time, part / NIC + 2.0 * one_way, 0.05, engine.name());
        assert!(report.findings.iter().any(|told| told.contains("505.1MB")), "{report:?}");
    }
    // One server at each site, and two.
    for (gpus, bytes) in [("16", "64MiB"), ("32", "16MiB")] {
        let (gpus, bytes) = (format!("cluster.gpus={gpus}"), format!("traffic.bytes={bytes}"));
        let times = Engine::ALL.map(|engine| {
            let rails = "library.algorithm=hierarchical";
            let set = ["traffic.pattern=collective", &gpus, &bytes, rails];
            run("beside/two-sites", engine, &set).makespan_s.expect("it ends")
        });
        for (engine, time) in Engine::ALL.into_iter().zip(times) {
            assert_near(time, times[1], 0.05, engine.name());
        }
    }
}

/// A fabric whose core speaks otherwise, on flows and on packets: with all parts alike it is the
/// undivided one; a gateway's latency is paid twice by what crosses the core and twice by its
/// acknowledgement, its rate by all; switches that hash collide where others spread.
#[test]
fn parts_of_a_fabric_count_on_flows_and_packets() {
    for engine in [Engine::Flow, Engine::Packet] {
        let time = |set: &[&str]| {
            let all = [&["traffic.bytes=256KiB", "network.routing.policy=spray", PAUSES], set];
            run("bench/permutation-128", engine, &all.concat()).makespan_s.expect("all arrive")
        };
        let undivided = time(&[]);
        let alike = [
            "network.transport_of_tier={core=\"rocev2\"}",
            "network.routing.policy_of_tier={core=\"spray\"}",
        ];
        assert_near(time(&alike), undivided, 0.01, engine.name());
        let joined = "network.transport_of_tier={core=\"uec\"}";
        let latency = |us: u32| time(&[joined, &format!("network.gateway.latency={us}us")]);
        let (none, some) = (latency(0), latency(20));
        assert_near(some - none, 80e-6, 0.1, engine.name());
        let slow = time(&[joined, "network.gateway.rate=100Gbps"]);
        assert!(2.0 * none < slow, "{}: {none} {slow}", engine.name());
        let hashed = "network.routing.policy_of_tier={edge=\"ecmp\",aggregation=\"ecmp\"}";
        let hashed = time(&[hashed]);
        assert!(1.2 * undivided < hashed, "{}: {undivided} {hashed}", engine.name());
    }
}

/// A gateway keeps the lane of a packet: all arrives where parts speak different transports.
#[test]
fn lanes_hold_where_parts_differ() {
    let load = |transport: &str| {
        let own = format!("network.transport_of_tier={{core=\"{transport}\"}}");
        let set = vec![own, "network.credits.lanes=2".to_owned()];
        let scenario = Some("../../scenarios/bench/permutation-128.toml".to_owned());
        let purpose = Purpose::Run(Engine::Packet);
        load(&Request { scenario, set, purpose, ..Request::default() })
    };
    for transport in ["rocev2", "uec"] {
        let loaded = load(transport).unwrap_or_else(|problems| panic!("{problems}"));
        let options = run_traffic::Options { engine: Engine::Packet, ..Default::default() };
        let report = run_traffic::run(&loaded, &options, &mut Watch::default()).expect("it runs").0;
        assert_eq!((report.completed, report.flows), (128, 128), "{transport}");
    }
}

/// Flows that step DCQCN take what packets take where they meet, which is a fifth and more above
/// fair rates, and what they take under fair rates where they are alone.
#[test]
fn flows_step_congestion_control_as_packets_do() {
    let incast = |hosts: u32, engine: Engine, congestion: &str| {
        let text = format!(
            "[cluster]\ngpu = \"h100-sxm\"\ngpus = 64\nnic = \"connectx-7\"\n\
             [network]\ntransport = \"rocev2\"\nflow = {{ congestion = \"{congestion}\" }}\n\
             [traffic]\npattern = \"incast\"\nhosts = {hosts}\nbytes = \"16MB\"\n"
        );
        let (purpose, text) = (Purpose::Run(engine), Source::new("test", text.as_str()));
        let scenario = Some("test".to_owned());
        let request = Request { scenario, text: Some(text), purpose, ..Request::default() };
        let loaded = load(&request).unwrap_or_else(|problems| panic!("{problems}"));
        let options = run_traffic::Options { engine, ..Default::default() };
        let report = run_traffic::run(&loaded, &options, &mut Watch::default()).expect("it runs").0;
        report.makespan_s.expect("all arrive")
    };
    for hosts in [4, 7] {
        let fair = incast(hosts, Engine::Flow, "fair");
        let controlled = incast(hosts, Engine::Flow, "controlled");
        let packets = incast(hosts, Engine::Packet, "fair");
        assert_near(controlled, packets, 0.1, "controlled");
        assert!(1.2 * fair < packets.min(controlled), "{fair} {controlled} {packets}");
    }
    let [fair, controlled] = ["fair", "controlled"].map(|how| incast(2, Engine::Flow, how));
    assert_eq!(fair, controlled);
}

/// Rings that collide, written out message by message: their queue pairs send in bursts, wait for
/// each other, and the one with the lowest rate paces its ring. Packets take 40 % longer than fair
/// rates. DCQCN is chaotic: other dice move what packets take by 8 %.
#[test]
fn rings_that_step_congestion_control_take_what_packets_take() {
    let exchange = |engine, congestion: &str| {
        let congestion = format!("network.flow.congestion={congestion}");
        let set = ["traffic.bytes=64MiB", &congestion];
        run("bench/dp-128", engine, &set).makespan_s.expect("all arrive")
    };
    let [fair, controlled] = ["fair", "controlled"].map(|how| exchange(Engine::Flow, how));
    let packets = exchange(Engine::Packet, "fair");
    assert_near(controlled, packets, 0.1, "controlled");
    assert!(1.25 * fair < packets.min(controlled), "{fair} {controlled} {packets}");
}

/// A planner that measures and acts at once lays what it was told beforehand; one that acts after
/// all is over leaves everything to the hash; what lies between is what the loop is worth.
#[test]
fn measured_demand_without_staleness_is_planned_demand() {
    let time = |set: &[&str]| {
        let base = ["network.routing.policy=traffic-engineering", "network.routing.interval=1ms"];
        let report = run("bench/permutation-128", Engine::Flow, &[&base, set].concat());
        report.makespan_s.expect("all arrive")
    };
    let measured = |staleness: &str| {
        time(&[
            "network.routing.demand=measured",
            &format!("network.routing.staleness={staleness}"),
        ])
    };
    let (planned, hashed) = (time(&[]), time(&["network.routing.policy=ecmp"]));
    assert_eq!(measured("0s"), planned);
    assert_eq!(measured("10s"), hashed);
    let late = measured("50us");
    assert!(planned < late && late < hashed, "{planned} {late} {hashed}");
}

/// Two back-ends side by side, each with an incast of its own: the congestion control of the one
/// does not concern the other, and each incast takes what it takes where all NICs have its.
#[test]
fn back_ends_side_by_side_have_their_own_congestion_control() {
    let part = |name: &str, first: u32, last: u32| {
        format!(
            "[[fabric.parts]]\nname = \"{name}\"\nservers = [{first}, {last}]\n\
             [fabric.parts.fabric]\ntopology = \"clos\"\n"
        )
    };
    let text = format!(
        "[cluster]\ngpu = \"h100-sxm\"\ngpus = 16\ngpus_per_node = 1\nnics_per_node = 1\n\
         nic = \"connectx-7\"\n{}{}[traffic]\npattern = \"incast\"\nhosts = 8\n\
         bytes = \"4MiB\"\nbackground = [{{ pattern = \"incast\", hosts = 8, first = 8, \
         bytes = \"4MiB\" }}]\n",
        part("a", 0, 7),
        part("b", 8, 15)
    );
    let with = |set: &[&str]| {
        let (purpose, text) = (Purpose::Run(Engine::Packet), Source::new("test", text.as_str()));
        let set = set.iter().map(|one| (*one).to_owned()).collect();
        let scenario = Some("test".to_owned());
        load(&Request { scenario, text: Some(text), set, purpose, ..Request::default() })
    };
    let ends = |set: &[&str]| {
        let loaded = with(set).unwrap_or_else(|problems| panic!("{problems}"));
        let options = run_traffic::Options { engine: Engine::Packet, ..Default::default() };
        let report = run_traffic::run(&loaded, &options, &mut Watch::default()).expect("it runs").0;
        [0, 1].map(|part| report.parts[part].finish_s.expect("all arrive"))
    };
    let [dcqcn, none] =
        ["dcqcn", "none"].map(|control| ends(&[&format!("network.congestion.control={control}")]));
    assert!(1.01 < dcqcn[0] / none[0], "{dcqcn:?} {none:?}");
    let own = "network.congestion_of_tier={\"b leaf\"={control=\"none\"}}";
    assert_eq!(ends(&["network.congestion.control=dcqcn", own]), [dcqcn[0], none[1]]);
    let stamps = "network.congestion_of_tier={\"b leaf\"={control=\"hpcc\"}}";
    let Err(problems) = with(&[stamps]) else { panic!("packets of one run look alike") };
    assert!(problems.to_string().contains("the same stamps"), "{problems}");
}
