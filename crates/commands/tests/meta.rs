//! Meta's three optimisations on the cluster that trained Llama 3, beside its InfiniBand twin.

use commands::packets::Patience;
use commands::{Engine, run_job};
use scenario::{Request, load};

fn step_s(name: &str) -> f64 {
    // A quarter of the run: the whole takes a minute for recursive doubling over 16 queue pairs.
    let set = ["job.gpus=4096", "job.parallel.dp=32", "job.batch.sequences=512"];
    let set = set.map(str::to_owned).to_vec();
    let request = Request { scenario: Some(name.to_owned()), set, ..Request::default() };
    let loaded = load(&request).expect("it is in the binary");
    let mut watch = packetsim::Watch::default();
    run_job::run(&loaded, Engine::Flow, Patience::Usual, &mut watch).expect("it runs").step_s
}

/// Mapping and load balancing help, the algorithm changes gigabytes by less than 1 %, and all three
/// bring RoCE to InfiniBand within 5 %.
#[test]
fn three_optimisations_bring_roce_to_infiniband() {
    let names = ["meta-as-it-comes", "meta-mapped", "meta-collectives", "meta-balanced"];
    let steps = names.map(|name| step_s(&format!("claims/{name}")));
    let [as_it_comes, mapped, collectives, balanced] = steps;
    assert!(mapped < as_it_comes && balanced < mapped, "{steps:?}");
    assert!((collectives / mapped - 1.0).abs() < 0.01, "{steps:?}");
    let infiniband = step_s("llama3-meta-ib");
    assert!(1.05 < as_it_comes / infiniband, "there was something to gain: {steps:?}");
    assert!(balanced / infiniband < 1.05, "{steps:?} beside {infiniband}");
}
