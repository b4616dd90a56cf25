//! Packets where the other engines answer too: collectives take the same time, and a step that is
//! interrupted is told as far as it is known.

use std::sync::atomic::AtomicBool;

use commands::packets::Patience;
use commands::{Engine, collective, run_job};
use packetsim::Watch;
use scenario::{Loaded, Request, load};
use traffic::collective::Collective;
use units::Bytes;

fn loaded(name: &str) -> Loaded {
    let request = Request { scenario: Some(name.to_owned()), ..Request::default() };
    load(&request).expect("it is in the binary")
}

/// Agreement: collectives that are written out step by step and moved packet by packet take what
/// the closed form of their hand-overs, drain and bytes says on the flow engine, within a tenth.
#[test]
fn collectives_of_packets_and_flows_agree() {
    let small = loaded("small-16");
    for asked in [Collective::AllReduce, Collective::AllGather, Collective::Broadcast] {
        let times = |engine| {
            let sizes = collective::Sizes {
                min: Bytes::from_kib(256),
                max: Bytes::from_mib(16),
                factor: 8,
            };
            let (patience, collective) = (Patience::Usual, asked);
            let options = collective::Options { engine, patience, collective, sizes, gpus: None };
            let report = collective::run(&small, &options, &mut Watch::default()).expect("it runs");
            report.rows.iter().map(|row| row.time_us).collect::<Vec<_>>()
        };
        let (packets, flows) = (times(Engine::Packet), times(Engine::Flow));
        for (at, (packet, flow)) in packets.iter().zip(&flows).enumerate() {
            let off = packet / flow - 1.0;
            assert!(off.abs() < 0.10, "{} {at}: {packet} and {flow}", asked.name());
        }
    }
}

/// Whoever interrupts a step gets what is known: the phases that were run.
#[test]
fn an_interrupted_step_is_told_as_far_as_it_is_known() {
    let small = loaded("small-16");
    let stop = AtomicBool::new(true);
    let mut watch = Watch { interrupt: Some(&stop), ..Watch::default() };
    let stopped = run_job::run(&small, Engine::Packet, Patience::Usual, &mut watch);
    let stopped = stopped.expect("it tells what it knows");
    let undisturbed =
        run_job::run(&small, Engine::Analytic, Patience::Usual, &mut Watch::default());
    let undisturbed = undisturbed.expect("it runs");
    assert_eq!(stopped.step_s, undisturbed.step_s);
    let told = stopped.findings.iter().any(|finding| finding.starts_with("stopped: 0 of "));
    assert!(told, "{:?}", stopped.findings);
}
