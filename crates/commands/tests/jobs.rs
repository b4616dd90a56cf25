//! Several jobs on one fabric, several steps in a row, and random faults on random jobs.

use commands::Engine;
use commands::packets::Patience;
use commands::run_job;
use commands::run_job::several::{self, Options, Report, Steps};
use packetsim::Watch;
use scenario::source::Source;
use scenario::{Loaded, Purpose, Request, load};
use units::Random;

/// Four servers of one GPU, two to a leaf, and one uplink of a NIC's rate to each leaf.
const FABRIC: &str = r#"
[cluster]
gpu = "h100-sxm"
gpus = 4
gpus_per_node = 1
nics_per_node = 1
nic = "connectx-7"
[fabric]
topology = "clos"
tiers = 2
radix = 8
downlinks = 2
uplinks = [1]
[network]
transport = "rocev2"
[jitter]
mean = 0.0
"#;

/// A job whose gradients nothing hides.
const JOB: &str = r#"
schedule = "1f1b"
placement = "linear"
batch = { sequences = 2, micro = 1, length = 256 }
parallel = { tp = 1, dp = 2, sharding = "none", overlap = [] }
[jobs.model]
layers = 4
hidden = 2048
ffn = 8192
head_dim = 64
heads = 32
kv_heads = 32
vocab = 8192
"#;

fn request(text: &str, engine: Engine) -> Request {
    Request {
        scenario: Some("test".to_owned()),
        text: Some(Source::new("test", text)),
        purpose: Purpose::Run(engine),
        ..Request::default()
    }
}

fn loaded(text: &str) -> Loaded {
    match load(&request(text, Engine::Flow)) {
        Ok(loaded) => loaded,
        Err(problems) => panic!("{problems}"),
    }
}

fn refused(text: &str) -> String {
    let Err(problems) = load(&request(text, Engine::Flow)) else { panic!("it is valid") };
    problems.to_string()
}

/// Jobs with these lines of their own.
fn jobs(own: &[&str]) -> String {
    own.iter().fold(FABRIC.to_owned(), |text, own| format!("{text}[[jobs]]\n{own}\n{JOB}"))
}

/// The same job, alone.
fn alone() -> String {
    format!("[job]\n{}", JOB.replace("[jobs.model]", "[job.model]"))
}

fn play(loaded: &Loaded, steps: u32) -> Report {
    let options = Options { engine: Engine::Flow, patience: Patience::Usual, steps };
    several::run(loaded, options, &mut Watch::default()).expect("it runs")
}

fn steps(loaded: &Loaded, steps: u32) -> Steps {
    let options = Options { engine: Engine::Flow, patience: Patience::Usual, steps };
    several::steps(loaded, options, &mut Watch::default()).expect("it runs")
}

/// Max-min arithmetic: both rings go over one uplink, so each has half of it, as if it were alone
/// on uplinks of half the rate; and the gradients (4 bytes of each of 302 M parameters, which a
/// ring of two sends once) take as much longer as they take on the wire.
#[test]
fn rings_that_share_uplinks_halve_each_other() {
    let report = play(&loaded(&jobs(&["nodes = [0, 2]", "nodes = \"node[1,3]\""])), 1);
    let [even, odd] = &report.jobs[..] else { panic!("two jobs") };
    assert_eq!((even.name.as_str(), even.nodes.as_str()), ("job 0", "node[0,2]"));
    let halved = "uplinks = [1]\nlinks = [{}, { rate = \"200Gbps\" }]";
    let halved = jobs(&["nodes = [0, 2]"]).replace("uplinks = [1]", halved);
    let halved = play(&loaded(&halved), 1).jobs[0].alone_s;
    let weights = 4 * (4 * 2048 * 2048 + 3 * 2048 * 8192) + 2 * 8192 * 2048;
    let wire_s = f64::from(4 * weights) / 50e9;
    for job in [even, odd] {
        assert!((job.step_s / halved - 1.0).abs() < 1e-3, "{} {halved}", job.step_s);
        let longer = job.step_s - job.alone_s;
        // 4,096 bytes of payload and 80 of headers.
        assert!((longer / wire_s - 4176.0 / 4096.0).abs() < 0.01, "{longer} {wire_s}");
        let [by] = &job.slowed_by[..] else { panic!("one other: {:?}", job.slowed_by) };
        assert!((by.seconds - longer).abs() < 1e-9, "{by:?}");
        assert!(by.links.iter().all(|link| link.contains("spine")), "{:?}", by.links);
    }
    assert!((even.step_s / odd.step_s - 1.0).abs() < 1e-6);
}

/// Jobs on one plane halve each other, as above; with a plane for each they do not meet.
#[test]
fn jobs_on_separate_planes_do_not_slow_each_other() {
    let one = jobs(&["nodes = [0, 2]", "nodes = [1, 3]"]);
    let shared = play(&loaded(&one), 1);
    assert!(shared.jobs.iter().all(|job| 1.05 < job.slowdown), "{:?}", shared.jobs);
    let plane = |name: &str, first: u32, last: u32| {
        format!(
            "[[fabric.parts]]\nname = \"{name}\"\nservers = [{first}, {last}]\n\
             [fabric.parts.fabric]\ntopology = \"clos\"\ntiers = 2\nradix = 8\ndownlinks = 1\n\
             uplinks = [1]\n"
        )
    };
    let planes = format!("{}{}", plane("plane a", 0, 1), plane("plane b", 2, 3));
    let (head, rest) = FABRIC.split_once("[fabric]").expect("it has a fabric");
    let (_, network) = rest.split_once("[network]").expect("it has a network");
    let fabric = format!("{head}{planes}[network]{network}");
    let own = jobs(&["nodes = [0, 1]", "nodes = [2, 3]"]).replace(FABRIC, &fabric);
    let apart = play(&loaded(&own), 1);
    for job in &apart.jobs {
        assert!((job.slowdown - 1.0).abs() < 1e-12, "{job:?}");
        assert!(job.slowed_by.is_empty(), "{:?}", job.slowed_by);
    }
}

#[test]
fn jobs_that_share_no_link_do_not_slow_each_other() {
    let report = play(&loaded(&jobs(&["nodes = [0, 1]", "nodes = [2, 3]"])), 1);
    for job in &report.jobs {
        assert!((job.slowdown - 1.0).abs() < 1e-9, "{job:?}");
        assert!(job.slowed_by.is_empty(), "{:?}", job.slowed_by);
    }
    // An uplink for every NIC, evenly used: both have the same links, and neither waits.
    let wide =
        jobs(&["nodes = [0, 2]", "nodes = [1, 3]"]).replace("uplinks = [1]", "uplinks = [2]");
    let spread = format!("{wide}[network.routing]\npolicy = \"spray\"\n");
    let report = play(&loaded(&spread), 1);
    assert!(report.jobs.iter().all(|job| (job.slowdown - 1.0).abs() < 1e-3), "{:?}", report.jobs);
}

/// One that begins when the other is over meets nobody; half a step later it meets it for a while.
#[test]
fn a_later_start_meets_less() {
    let with_start = |start: &str| {
        let second = format!("nodes = [1, 3]\nstart = \"{start}\"");
        play(&loaded(&jobs(&["nodes = [0, 2]", &second])), 1)
    };
    let both = with_start("0s");
    let late = with_start("10s");
    assert_eq!(late.jobs[1].start_s, 10.0);
    assert!((late.jobs[1].slowdown - 1.0).abs() < 0.2, "{:?}", late.jobs[1]);
    assert!(late.jobs[1].step_s <= both.jobs[1].step_s);
}

#[test]
fn traffic_beside_a_job_slows_it_and_is_slowed() {
    let beside = "\n[traffic]\npattern = \"permutation\"\nbytes = \"1GiB\"\n";
    let loaded = loaded(&format!("{}{beside}", jobs(&["nodes = [0, 2]"])));
    let report = play(&loaded, 1);
    let traffic = report.traffic.expect("there is traffic");
    assert!(1.0 < report.jobs[0].slowdown && 1.0 <= traffic.slowdown, "{traffic:?}");
    assert_eq!(report.jobs[0].slowed_by[0].by, "traffic");
}

#[test]
fn servers_are_dealt_out_once() {
    let counted = loaded(&jobs(&["nodes = 2", "nodes = [1, 2]"]));
    let nodes = |at: usize| counted.members[at].loaded.nodes.clone().unwrap();
    assert_eq!((nodes(0), nodes(1)), (vec![0, 3], vec![1, 2]));
    let scattered = jobs(&["", ""]).replace("\"linear\"", "\"random\"");
    let drawn = |seed: u64| {
        let drawn = loaded(&format!("seed = {seed}\n{scattered}"));
        drawn.members[0].loaded.nodes.clone().unwrap()
    };
    assert!((0..8).any(|seed| drawn(seed) != drawn(0)), "an allocation follows its seed");
    assert_eq!(drawn(3), drawn(3));
    assert!(refused(&jobs(&["nodes = [0, 2]", "nodes = [2, 3]"])).contains("given out twice"));
    assert!(refused(&jobs(&["nodes = [0, 9]"])).contains("there is no server 9"));
    assert!(refused(&jobs(&["nodes = \"gpu[0-1]\""])).contains("there is no server gpu0"));
    assert!(refused(&jobs(&["class = 64"])).contains("jobs.0.class"));
    assert!(refused(&jobs(&["start = \"2700000s\""])).contains("jobs.0.start"));
    assert!(refused(&jobs(&["nodes = 1"])).contains("the job needs 2"));
    assert!(refused(&jobs(&["", "", ""])).contains("are left"));
    let both = format!("{}{}", jobs(&["nodes = [0, 2]"]), alone());
    assert!(refused(&both).contains("not both"), "{}", refused(&both));
    assert!(refused(&jobs(&["node = 3"])).contains("node"));
}

/// What a job does not obey is named under its own key, and what is wrong too.
#[test]
fn keys_of_jobs_are_named_as_theirs() {
    let named = loaded(&jobs(&["nodes = [0, 2]\nclass = 1\nmoe = { skew = 0.5 }"]));
    let keys: Vec<&str> = named.unused.iter().map(|unused| unused.key.as_str()).collect();
    assert!(keys.contains(&"jobs.0.class") && keys.contains(&"jobs.0.moe.skew"), "{keys:?}");
    let wrong = refused(&jobs(&["", "nodes = [0, 1]\nloss = \"none\""]));
    assert!(wrong.contains("loss"), "{wrong}");
    let split = refused(&jobs(&[""]).replace("tp = 1", "tp = 3"));
    assert!(split.contains("jobs.0."), "{split}");
}

/// Steps in a row: alike where nodes are, and each drawn anew where they are not.
#[test]
fn steps_follow_each_other() {
    let text = format!("{FABRIC}{}", alone());
    let alike = loaded(&text);
    let one = run_job::run_once(&alike, Engine::Flow, Patience::Usual, true, &mut Watch::default());
    let one = one.expect("it runs").step_s;
    let several = steps(&alike, 5);
    assert_eq!(several.n, 5);
    assert!(several.times_s.iter().all(|time| (time / one - 1.0).abs() < 1e-6), "{several:?}");
    assert!(several.cv < 1e-6, "{several:?}");
    let uneven = steps(&loaded(&text.replace("mean = 0.0", "mean = 0.1")), 20);
    assert!(0.001 < uneven.cv && uneven.p50_s <= uneven.p99_s, "{uneven:?}");
    assert!(uneven.p99_s <= uneven.max_s, "{uneven:?}");
}

/// A fault hits the step that is under way, and not those after it.
#[test]
fn a_fault_hits_its_step() {
    let fault = |at: f64| {
        format!(
            "[[faults]]\non = \"NIC 0\"\nat = \"{at}s\"\nfor = \"1s\"\n\
             what = {{ kind = \"link-down\" }}\n"
        )
    };
    let text = format!("{FABRIC}{}", alone());
    let quiet = steps(&loaded(&text), 4);
    let one = quiet.p50_s;
    let hit = steps(&loaded(&format!("{text}{}", fault(1.5 * one))), 4);
    assert!((hit.times_s[0] / one - 1.0).abs() < 1e-6, "{hit:?}");
    // What was lost is sent again after NCCL's 4.295 s.
    let more = hit.times_s[1] - one;
    assert!(4.1 < more && more < 4.4, "{hit:?}");
    assert!(hit.times_s[2..].iter().all(|time| (time / one - 1.0).abs() < 1e-3), "{hit:?}");
}

/// A job of a random layout on a random fabric with random faults.
fn random_case(number: u64) -> String {
    let mut random = Random::new(number, "random faults", 0);
    let mut pick = |words: &[&'static str]| words[random.below(words.len() as u64) as usize];
    let (tp, dp, pp) = (pick(&["1", "2", "4"]), pick(&["2", "4"]), pick(&["1", "2"]));
    let transport = pick(&["rocev2", "infiniband", "uec"]);
    let policy = pick(&["ecmp", "spray", "e-ecmp"]);
    let sharding = pick(&["none", "fsdp", "zero1"]);
    let mut text = format!(
        "seed = {number}\n[cluster]\ngpu = \"h100-sxm\"\ngpus = 32\ngpus_per_node = 4\n\
         nics_per_node = 4\nnic = \"connectx-7\"\n[fabric]\ntopology = \"clos\"\ntiers = 2\n\
         radix = 16\nuplinks = [2]\n[network]\ntransport = \"{transport}\"\n\
         routing = {{ policy = \"{policy}\" }}\n[job]\nschedule = \"1f1b\"\n\
         batch = {{ sequences = 16, micro = 1, length = 256 }}\n\
         parallel = {{ tp = {tp}, pp = {pp}, dp = {dp}, sharding = \"{sharding}\" }}\n\
         model = {{ layers = 4, hidden = 256, ffn = 512, head_dim = 64, heads = 8, kv_heads = 4, \
         vocab = 1024 }}\n"
    );
    for _ in 0..1 + random.below(3) {
        let mut pick = |words: &[&'static str]| words[random.below(words.len() as u64) as usize];
        let parts = ["leaf 1", "GPU 0", "GPU 9", "server 1", "NIC 2 port 0", "NIC 0"];
        let cables = ["leaf 0 - spine 0", "leaf 1 - spine 1", "NIC 0", "NIC 5"];
        let on =
            if pick(&["cable", "part", "part"]) == "cable" { pick(&cables) } else { pick(&parts) };
        let kind = match on {
            "leaf 1" => pick(&["switch-down", "switch-restart"]),
            "GPU 0" | "GPU 9" => pick(&["slow-gpu", "slow-gpu", "gpu-down"]),
            "server 1" => "server-down",
            "NIC 0" => pick(&["link-down", "flap", "degraded", "slow-nic"]),
            _ => pick(&["link-down", "flap", "degraded"]),
        };
        let more = match kind {
            "flap" => ", period = \"1ms\"",
            "degraded" | "slow-nic" => ", rate = \"10Gbps\"",
            "slow-gpu" => ", speed = 0.3",
            _ => "",
        };
        let (at, length) = (random.below(20_000), 1 + random.below(20_000));
        text += &format!(
            "[[faults]]\non = \"{on}\"\nat = \"{at}us\"\nfor = \"{length}us\"\n\
             what = {{ kind = \"{kind}\"{more} }}\n"
        );
    }
    text
}

/// Whatever fails, a run ends with an answer or a reason, and twice with the same one.
/// `FATFLOW_RANDOM_FAULTS=500` runs more.
#[test]
fn random_faults_on_random_jobs_end() {
    let cases = std::env::var("FATFLOW_RANDOM_FAULTS").ok().and_then(|text| text.parse().ok());
    let (mut ran, mut valid) = (0, 0);
    let cases = cases.unwrap_or(50);
    for number in 0..cases {
        let text = random_case(number);
        let Ok(loaded) = load(&request(&text, Engine::Flow)) else { continue };
        valid += 1;
        let run = |loaded: &Loaded| {
            run_job::run_once(loaded, Engine::Flow, Patience::Usual, true, &mut Watch::default())
        };
        let once =
            run(&loaded).map(|report| report.step_s.to_bits()).map_err(|why| why.to_string());
        // On another thread, which has other addresses and another stack.
        let again = std::thread::scope(|scope| {
            let again = scope.spawn(|| run(&loaded));
            again.join().expect("it does not panic")
        });
        let again = again.map(|report| report.step_s.to_bits()).map_err(|why| why.to_string());
        assert_eq!(once, again, "case {number}:\n{text}");
        ran += u64::from(once.is_ok());
    }
    assert!(
        cases / 2 <= valid && valid * 4 / 5 <= ran,
        "{ran} of {valid} of {cases} had an answer"
    );
}

/// Phases of an iteration come one after the other, and each is as long as alone: decoding by its
/// closed form on the engine, a step, and the weights over a NIC's rate.
#[test]
fn phases_of_an_iteration_follow_each_other() {
    let push = "name = \"push\"\nafter = \"training\"\n[jobs.traffic]\npattern = \"weight-push\"\n\
                model = \"llama3-8b\"\nsenders = 2\ncopy = 2\n";
    let rollout = "[[jobs]]\nname = \"rollout\"\n[jobs.traffic]\npattern = \"decode\"\n\
                   model = \"llama3-8b\"\ntokens = 16\nmessages = 2\n";
    let training = format!("[[jobs]]\nname = \"training\"\nafter = \"rollout\"\n{JOB}");
    let text = format!("{FABRIC}{rollout}{training}[[jobs]]\n{push}");
    let report = play(&loaded(&text), 1);
    let [rollout, training, push] = &report.jobs[..] else { panic!("three phases") };
    assert_eq!(rollout.start_s, 0.0);
    assert_eq!((training.start_s, push.start_s), (rollout.end_s, training.end_s));
    assert_eq!(report.all_s, push.end_s);
    for phase in [rollout, training, push] {
        assert!((phase.slowdown - 1.0).abs() < 1e-6, "{phase:?}");
        assert!((phase.end_s - phase.start_s - phase.step_s).abs() < 1e-6, "{phase:?}");
    }
    // Two trainers send the half of 16 GB that each holds over the one uplink of their leaf.
    let bytes = 2.0 * 8.03e9;
    assert!((push.step_s / (bytes / 50e9 * 4178.0 / 4096.0) - 1.0).abs() < 0.02, "{push:?}");
    let wrong = refused(&text.replace("after = \"training\"", "after = \"nobody\""));
    assert!(wrong.contains("jobs.2.after"), "{wrong}");
}
