//! dev only
use fabric::hardware::Catalogue;
use job::compute::{GpuRates, Kernel, Timer};
use job::config::ModelChoice;
use job::model::LayerKind;
use job::program::{Program, Reach, Unit};
use job::schedule::Pass;
use std::collections::BTreeMap;
use step::published::Row;
fn main() {
    let id = std::env::args().nth(1).unwrap();
    let micro: u64 = std::env::args().nth(2).map_or(0, |m| m.parse().unwrap());
    let all: Catalogue =
        toml::from_str(include_str!("../../scenario/data/hardware/gpus.toml")).unwrap();
    for text in [
        include_str!("../../../validation/training_steps.csv"),
        include_str!("../../../validation/training_steps_vtrain.csv"),
    ] {
        for row in Row::read_all(text).unwrap() {
            if row.id != id {
                continue;
            }
            let mut config = row.job.clone();
            if micro > 0 {
                config.batch.micro = micro;
            }
            if config.parallel.vpp == 1 {
                config.schedule = if config.schedule == job::Schedule::Interleaved {
                    job::Schedule::OneForwardOneBackward
                } else {
                    config.schedule
                };
            }
            let ModelChoice::Shape(m) = config.model.clone() else { panic!() };
            let site = job::Site { gpus: row.cluster.gpus, gpus_per_node: 8, scale_up: 8 };
            let (job, _) = job::resolve(&config, *m, &site).unwrap();
            let program = Program::new(&job);
            let rates = GpuRates::from(&all.gpu[&row.cluster.gpu]);
            let units = [
                Unit::Layer(LayerKind::Dense, Reach::Sequence),
                Unit::Layer(LayerKind::Moe, Reach::Sequence),
                Unit::Head,
            ];
            for unit in units {
                if matches!(unit, Unit::Layer(LayerKind::Moe, _)) && job.model.experts.is_none() {
                    continue;
                }
                for pass in [Pass::Forward, Pass::Input, Pass::Weight] {
                    let mut sums: BTreeMap<String, (f64, f64, u32)> = BTreeMap::new();
                    for k in program.kernels_of(unit, pass) {
                        let t = Timer::measured().time(&k, &rates).as_secs_f64();
                        let name = match &k {
                            Kernel::Gemm(g) => {
                                format!("gemm {}x{}x{} {:?}", g.m, g.n, g.k, g.precision)
                            }
                            Kernel::GroupedGemm(g) => format!("grouped {:?}", g),
                            Kernel::BatchedGemm(_) => "batched".into(),
                            Kernel::Attention(a) => format!(
                                "attention {}q {}k heads {} b{}",
                                a.queries, a.keys, a.heads, a.batch
                            ),
                            Kernel::Memory(m) => format!("{:?}", m.kind),
                        };
                        let e = sums.entry(name).or_default();
                        e.0 += t;
                        e.1 += k.flops();
                        e.2 += 1;
                    }
                    println!(
                        "{unit:?} {pass:?}: {:.3} ms",
                        1e3 * sums.values().map(|v| v.0).sum::<f64>()
                    );
                    for (n, (t, f, c)) in sums {
                        println!("    {:7.3} ms x{c} {:6.0} TF/s  {n}", 1e3 * t, f / t / 1e12);
                    }
                }
            }
        }
    }
}
