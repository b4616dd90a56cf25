//! Solved exercises, and thousands of random networks against the certificate.

use units::Random;

use super::*;

/// A path, a weight and a cap.
type Described<'a> = (&'a [(u32, f64)], f64, Option<f64>);

fn run(capacities: &[f64], flows: &[Described<'_>]) -> Vec<f64> {
    let mut network = MaxMin::new(capacities);
    let define = |network: &mut MaxMin, flow: &Described<'_>| {
        let id = network.define(flow.0, flow.1, flow.2);
        network.start(id);
        network.settle();
        network.certificate(1e-9).unwrap();
        id
    };
    let ids: Vec<FlowId> = flows.iter().map(|flow| define(&mut network, flow)).collect();
    ids.into_iter().map(|id| network.rate(id)).collect()
}

fn check(capacities: &[f64], flows: &[Described<'_>], expected: &[f64]) {
    let rates = run(capacities, flows);
    for (rate, expected) in rates.iter().zip(expected) {
        assert!((rate / expected - 1.0).abs() < 1e-12, "{rates:?} instead of {expected:?}");
    }
}

/// Oracle: one link, three flows.
#[test]
fn a_link_is_shared_equally() {
    let path: &[(u32, f64)] = &[(0, 1.0)];
    check(&[12.0], &[(path, 1.0, None); 3], &[4.0; 3]);
}

/// Oracle, Bertsekas and Gallager's parking lot: the long flow gets what its tightest link has.
#[test]
fn a_flow_held_back_elsewhere_leaves_its_share_to_others() {
    let long: &[(u32, f64)] = &[(0, 1.0), (1, 1.0), (2, 1.0)];
    let (a, b, c): (&[_], &[_], &[_]) = (&[(0, 1.0)], &[(1, 1.0)], &[(2, 1.0)]);
    let flows = [(long, 1.0, None), (a, 1.0, None), (b, 1.0, None), (c, 1.0, None), (c, 1.0, None)];
    check(&[6.0, 10.0, 6.0], &flows, &[2.0, 4.0, 8.0, 2.0, 2.0]);
}

/// Oracle: weights two to one, and a cap whose rest goes to the others.
#[test]
fn weights_and_caps() {
    let path: &[(u32, f64)] = &[(0, 1.0)];
    check(&[12.0], &[(path, 2.0, None), (path, 1.0, None)], &[8.0, 4.0]);
    let flows = [(path, 2.0, Some(3.0)), (path, 1.0, None), (path, 2.0, None)];
    check(&[12.0], &flows, &[3.0, 3.0, 6.0]);
}

/// Oracle: a coupled flow that crosses one link twice and another with half of its rate.
#[test]
fn coefficients() {
    let coupled: &[(u32, f64)] = &[(0, 1.0), (1, 0.5), (0, 1.0)];
    let plain: &[(u32, f64)] = &[(0, 1.0)];
    // Link 0: 2x + x = 12, so both get 4 and link 1 carries 2.
    check(&[12.0, 10.0], &[(coupled, 1.0, None), (plain, 1.0, None)], &[4.0, 4.0]);
    // With link 1 at 1 the coupled flow is held to 2 and leaves 8.
    check(&[12.0, 1.0], &[(coupled, 1.0, None), (plain, 1.0, None)], &[2.0, 8.0]);
}

/// Oracle: when a flow leaves, the rest is as if it had never been there.
#[test]
fn leaving_gives_everything_back() {
    let mut network = MaxMin::new(&[6.0, 10.0]);
    let long = network.define(&[(0, 1.0), (1, 1.0)], 1.0, None);
    let first = network.define(&[(0, 1.0)], 1.0, None);
    let second = network.define(&[(1, 1.0)], 1.0, None);
    for flow in [long, first, second] {
        network.start(flow);
    }
    network.settle();
    network.stop(first);
    network.settle();
    assert_eq!([network.rate(long), network.rate(second)], [5.0, 5.0]);
    network.set_capacity(0, 2.0);
    network.settle();
    assert_eq!([network.rate(long), network.rate(second)], [2.0, 8.0]);
    network.stop(long);
    network.settle();
    assert_eq!(network.rate(second), 10.0);
}

struct Case {
    network: MaxMin,
    idle: Vec<FlowId>,
    running: Vec<FlowId>,
}

/// A random network: some links alike, some not; flows with weights, caps and coefficients.
fn random_case(random: &mut Random) -> Case {
    let links = 2 + random.below(30) as u32;
    let alike = random.below(2) == 0;
    let capacity = |random: &mut Random| match alike {
        true => [25.0, 100.0, 400.0][random.below(3) as usize],
        false => 1.0 + 99.0 * random.unit(),
    };
    let capacities: Vec<f64> = (0..links).map(|_| capacity(random)).collect();
    let mut network = MaxMin::new(&capacities);
    let plain = random.below(2) == 0;
    let idle = (0..1 + random.below(80))
        .map(|_| {
            let hops = 1 + random.below(6);
            let coefficient = |random: &mut Random| match (plain, random.below(3)) {
                (true, _) | (_, 0) => 1.0,
                _ => 0.05 + random.unit() * 2.0,
            };
            let path: Vec<(u32, f64)> = (0..hops)
                .map(|_| (random.below(u64::from(links)) as u32, coefficient(random)))
                .collect();
            let weight = if plain { 1.0 } else { 0.5 + 4.0 * random.unit() };
            let cap = (random.below(6) == 0).then(|| 20.0 * random.unit() + 0.1);
            network.define(&path, weight, cap)
        })
        .collect();
    Case { network, idle, running: Vec::new() }
}

/// Property: after every change of thousands, the rates prove themselves.
#[test]
fn every_flow_has_a_bottleneck_to_show_for_its_rate() {
    for seed in 0..400 {
        let mut random = Random::new(seed, "max-min", 0);
        let Case { mut network, mut idle, mut running } = random_case(&mut random);
        for step in 0..40 {
            for _ in 0..=random.below(3) {
                let arrive = running.is_empty() || (!idle.is_empty() && random.below(5) < 3);
                let pool = if arrive { &mut idle } else { &mut running };
                let flow = pool.swap_remove(random.below(pool.len() as u64) as usize);
                if arrive {
                    network.start(flow);
                    running.push(flow);
                } else {
                    // What was started in this batch must settle before it can stop.
                    network.settle();
                    network.stop(flow);
                    idle.push(flow);
                }
                if random.below(10) == 0 {
                    network.set_capacity(0, 1.0 + 200.0 * random.unit());
                }
            }
            network.settle();
            let proof = network.certificate(1e-9);
            proof.unwrap_or_else(|reason| panic!("seed {seed}, step {step}: {reason}"));
        }
        assert_eq!(
            network.effort().whole_solves,
            0,
            "seed {seed}: fell back to solving everything"
        );
    }
}

/// Property: solving at once and one by one give the same rates.
#[test]
fn at_once_and_one_by_one_agree() {
    for seed in 0..200 {
        let mut random = Random::new(seed, "max-min at once", 0);
        let Case { mut network, idle, .. } = random_case(&mut random);
        let mut at_once = network.clone();
        for &flow in &idle {
            network.start(flow);
            network.settle();
            at_once.start(flow);
        }
        at_once.solve_whole();
        at_once.certificate(1e-9).unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
        for &flow in &idle {
            let (a, b) = (network.rate(flow), at_once.rate(flow));
            assert!((a - b).abs() <= 1e-9 * a.max(b), "seed {seed}: {a} and {b}");
        }
        // And what was solved at once can go on step by step.
        for &flow in &idle[..idle.len() / 2] {
            at_once.stop(flow);
            at_once.settle();
            at_once.certificate(1e-9).unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
        }
    }
}

/// Property: a change at the highest level touches nobody else.
#[test]
fn a_change_touches_only_what_it_can_affect() {
    let mut network = MaxMin::new(&[10.0; 100]);
    let flows: Vec<FlowId> = (0..100)
        .flat_map(|link| (0..=link % 7).map(move |_| link))
        .map(|link| network.define(&[(link, 1.0)], 1.0, None))
        .collect();
    for &flow in &flows {
        network.start(flow);
    }
    network.settle();
    let before = network.effort().looks;
    network.stop(flows[50]);
    network.settle();
    assert!(network.effort().looks - before < 10);
}

/// Property: flows over very many links, most of which never hold anybody back, have exact rates
/// too; and a change of level is told to few of those links.
#[test]
fn wide_flows_have_exact_rates_and_tell_few_links() {
    for seed in 0..60 {
        let mut random = Random::new(seed, "wide flows", 0);
        let capacities: Vec<f64> = (0..300).map(|_| 20.0 + 300.0 * random.unit()).collect();
        let mut network = MaxMin::new(&capacities);
        let mut idle: Vec<FlowId> = (0..40)
            .map(|at| {
                let hops = if at % 3 == 0 { 1 + random.below(5) } else { 65 + random.below(100) };
                let hop = |random: &mut Random| (random.below(300) as u32, 0.1 + random.unit());
                let path: Vec<(u32, f64)> = (0..hops).map(|_| hop(&mut random)).collect();
                network.define(&path, 1.0, None)
            })
            .collect();
        let mut running = Vec::new();
        for step in 0..120 {
            let arrive = running.is_empty() || (!idle.is_empty() && random.below(5) < 3);
            let pool = if arrive { &mut idle } else { &mut running };
            let flow = pool.swap_remove(random.below(pool.len() as u64) as usize);
            if arrive {
                network.start(flow);
                running.push(flow);
            } else {
                network.stop(flow);
                idle.push(flow);
            }
            match random.below(20) {
                0 => network.set_capacity(random.below(300) as u32, 1.0 + 200.0 * random.unit()),
                1 => {
                    network.settle();
                    network.solve_whole();
                }
                _ => {}
            }
            network.settle();
            let proof = network.certificate(1e-9);
            proof.unwrap_or_else(|reason| panic!("seed {seed}, step {step}: {reason}"));
        }
        let wide = running.iter().filter(|flow| network.flows[**flow].wide);
        let (told, all) = wide.fold((0, 0), |(told, all), flow| {
            let at = flow.index();
            (told + network.tight_range(at).len(), all + network.range(at).len())
        });
        assert!(2 * told < all || all == 0, "seed {seed}: {told} of {all} links are told");
    }
}
