//! Flows under congestion control.

mod common;

use std::collections::BTreeMap;

use common::{connect, leaf_spine, messages, plain};
use flowsim::{Control, Marks, Settings, run};
use traffic::{Outcome, Transfers, dcqcn};
use units::Bytes;

fn control(dcqcn: dcqcn::Config) -> Option<Control> {
    let marks = Marks { from: Bytes::from_mib(1), all: Bytes::from_mib(2), probability: 0.05 };
    Some(Control { dcqcn, marks, marks_of_tier: BTreeMap::new(), restart_after: None })
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

/// Switches of a tier mark by thresholds of their own: of one that marks nothing nobody is cut, and
/// thresholds of a tier that has no queue change nothing.
#[test]
fn tiers_mark_by_their_own_thresholds() {
    let (count, bytes) = (4, 16_000_000);
    let fabric = leaf_spine(count + 1, 1, count);
    let pairs: Vec<(usize, usize)> = (1..=count).map(|from| (from, 0)).collect();
    let transfers = messages(&fabric, &pairs, bytes);
    let leaf = fabric.nodes()[fabric.links()[fabric.ports(fabric.nic(0))[0]].to].tier;
    let takes = |tier: Option<u8>| {
        let never = Marks { from: Bytes::MAX, all: Bytes::MAX, probability: 0.0 };
        let mut control = control(dcqcn::Config::default());
        if let (Some(control), Some(tier)) = (&mut control, tier) {
            control.marks_of_tier.insert(tier, never);
        }
        let outcome = run(&fabric, &transfers, &Settings { control, ..plain() });
        Outcome::makespan(&outcome).as_secs_f64()
    };
    let [fair, controlled] = incast(count, bytes, dcqcn::Config::default());
    assert!(1.1 * fair < controlled, "{fair} {controlled}");
    assert_eq!([takes(Some(leaf)), takes(Some(leaf + 1))], [fair, controlled]);
}

/// Property: what a queue pair has to send counts, and not in how many messages. The next one is
/// posted behind the one whose rest is in the queue.
#[test]
fn messages_posted_behind_one_another_are_cut_like_one() {
    let (count, bytes) = (4, 16_000_000);
    let fabric = leaf_spine(count + 1, 1, count);
    let [_, one] = incast(count, bytes, dcqcn::Config::default());
    for parts in [4, 16, 64] {
        let mut transfers = Transfers::new();
        let label = transfers.label("messages");
        for from in 1..=count {
            let connection = connect(&mut transfers, &fabric, from, 0);
            for _ in 0..parts {
                transfers.send(connection, Bytes::new(bytes / parts), label, &[]);
            }
        }
        let control = control(dcqcn::Config::default());
        let outcome = run(&fabric, &transfers, &Settings { control, ..plain() });
        let takes = Outcome::makespan(&outcome).as_secs_f64();
        assert!((takes / one - 1.0).abs() < 0.05, "{parts}: {takes} {one}");
    }
}
