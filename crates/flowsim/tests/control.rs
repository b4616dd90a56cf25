//! Flows under congestion control.

mod common;

use common::{leaf_spine, messages, plain};
use flowsim::{Control, Settings, run};
use traffic::{Outcome, dcqcn};
use units::Bytes;

fn control(dcqcn: dcqcn::Config) -> Option<Control> {
    let (marks_from, marks_all) = (Bytes::from_mib(1), Bytes::from_mib(2));
    Some(Control { dcqcn, marks_from, marks_all, probability: 0.05, restart_after: None })
}

/// The last arrival of `count` messages to one NIC, under fair rates and under DCQCN.
fn incast(count: usize, bytes: u64, dcqcn: dcqcn::Config) -> [f64; 2] {
    let fabric = leaf_spine(count + 1, 1, count);
    let pairs: Vec<(usize, usize)> = (1..=count).map(|from| (from, 0)).collect();
    let transfers = messages(&fabric, &pairs, bytes);
    [None, control(dcqcn)].map(|control| {
        let outcome = run(&fabric, &transfers, &Settings { control, ..plain() });
        assert_eq!(outcome.completed(), count);
        Outcome::makespan(&outcome).as_secs_f64()
    })
}

/// Property: who is alone is not touched, and who shares a link takes longer, the less the longer
/// it lasts.
#[test]
fn only_what_is_shared_takes_longer() {
    for dcqcn in [dcqcn::Config::default(), dcqcn::Config::paper()] {
        let [fair, controlled] = incast(1, 16_000_000, dcqcn.clone());
        assert_eq!(fair, controlled);
        for count in [2, 4, 8] {
            let over = |bytes: u64| {
                let [fair, controlled] = incast(count, bytes, dcqcn.clone());
                controlled / fair - 1.0
            };
            let (short, long) = (over(8_000_000), over(512_000_000));
            assert!(-1e-9 < long && long <= short && short < 4.0, "{count}: {short} {long}");
            assert!(count < 4 || 0.1 < short, "{count}: {short}");
        }
    }
}
