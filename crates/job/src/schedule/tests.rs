//! Orders against their rules, times against closed forms, folded against unfolded.

use units::Span;

use super::evaluate::evaluate_unfolded;
use super::*;

fn pipeline(schedule: Schedule, stages: u64, chunks: u64, microbatches: u64) -> Pipeline {
    Pipeline { schedule, stages, chunks, microbatches, paired: false }
}

/// The same with passes in pairs.
fn paired(pipeline: Pipeline) -> Pipeline {
    Pipeline { paired: true, ..pipeline }
}

/// Pipelines of all kinds, small enough to be walked through.
fn zoo() -> Vec<Pipeline> {
    let mut zoo = Vec::new();
    for stages in [1, 2, 4, 6] {
        for microbatches in [1, 2, 4, 7, 8, 12, 16, 26, 64, 101, 130] {
            for schedule in Schedule::ALL {
                let chunks: &[u64] = match schedule {
                    Schedule::Interleaved if 1 < stages => &[1, 2, 3],
                    _ => &[1],
                };
                let odd = microbatches % 2 == 1 || microbatches < 2 * stages;
                if schedule == Schedule::DualPipe && odd {
                    continue;
                }
                let groups = if schedule == Schedule::Interleaved { stages } else { 1 };
                let microbatches = microbatches * groups;
                let all = chunks.iter().map(|&v| pipeline(schedule, stages, v, microbatches));
                zoo.extend(all.clone());
                zoo.extend(all.filter(|_| schedule.pairs()).map(paired));
            }
        }
    }
    zoo
}

/// Property: each part sees each microbatch forward once and backward once, gradients after the
/// forward pass, and the folded order is the plain one.
#[test]
fn every_order_does_everything_once() {
    for pipeline in zoo() {
        for stage in 0..pipeline.stages {
            let order = pipeline.order(stage);
            let slots: Vec<Slot> = order.slots().collect();
            assert_eq!(slots, pipeline.unfolded(stage), "{pipeline:?} stage {stage}");
            assert_eq!(order.len(), slots.len() as u64);
            let weight = |part| 3 + part % 5;
            let settled = pipeline.settled().order(stage).peak(weight);
            assert_eq!(settled, order.peak(weight), "{pipeline:?} stage {stage}");
            let tasks: Vec<Task> = slots.iter().flat_map(|slot| slot.tasks()).collect();
            for part in pipeline.parts_of(stage) {
                for microbatch in 0..pipeline.microbatches {
                    if pipeline.stage_of(part, microbatch) != stage {
                        continue;
                    }
                    let passes: Vec<Pass> = tasks
                        .iter()
                        .filter(|task| (task.part, task.microbatch) == (part, microbatch))
                        .map(|task| task.pass)
                        .collect();
                    let whole = passes == [Pass::Forward, Pass::Backward]
                        || passes == [Pass::Forward, Pass::Input, Pass::Weight];
                    assert!(whole, "{pipeline:?} stage {stage}: {passes:?}");
                }
            }
        }
    }
}

/// Property: two microbatches per stage are enough to know the order, and what it holds, of any
/// number.
#[test]
fn orders_settle_within_two_microbatches_per_stage() {
    for (stages, chunks) in (1..=12).flat_map(|stages| [(stages, 1), (stages, 2), (stages, 5)]) {
        for schedule in Schedule::ALL {
            let step = pipeline(schedule, stages, chunks, 1).step();
            let one = chunks == 1 || schedule == Schedule::Interleaved && 1 < stages;
            let even = stages % 2 == 0 || schedule != Schedule::DualPipe;
            for groups in (0..24).filter(|_| one && even) {
                let microbatches = (2 * stages).next_multiple_of(step) + groups * step;
                let pipeline = pipeline(schedule, stages, chunks, microbatches);
                for stage in 0..stages {
                    let order = pipeline.order(stage);
                    assert!(order.slots().eq(pipeline.unfolded(stage)), "{pipeline:?} {stage}");
                    let settled = pipeline.settled().order(stage).peak(|part| 3 + part % 5);
                    assert_eq!(settled, order.peak(|part| 3 + part % 5), "{pipeline:?} {stage}");
                }
            }
        }
    }
}

/// Agreement: folded and unfolded runs give the same picoseconds, for uneven times too.
#[test]
fn folding_changes_nothing() {
    let mut random = units::Random::new(1, "schedule", 0);
    for pipeline in zoo() {
        for kind in 0..3 {
            let mut span = |most: u64| Span::from_ps(1 + random.below(most));
            let parts = pipeline.parts();
            let mut spans = |n: u64, most: u64| (0..n).map(|_| span(most)).collect::<Vec<_>>();
            let mut times = PassTimes::uniform(
                &pipeline,
                Span::from_ps(1_000),
                Span::from_ps(1_100),
                Span::from_ps(900),
            );
            if kind != 0 {
                // Wildly different, or nearly alike: then the start takes long to be forgotten.
                let (base, most) = if kind == 1 { (0, 1_000) } else { (1_000_000, 100) };
                let base = Span::from_ps(base);
                let mut uneven =
                    |n: u64| spans(n, most).into_iter().map(|s| s + base).collect::<Vec<_>>();
                times.forward = uneven(parts);
                times.input = uneven(parts);
                times.weight = uneven(parts);
                times.together = uneven(pipeline.stages);
                times.transfer = spans(1, most)[0];
            }
            let folded = evaluate(&pipeline, &times);
            let plain = evaluate_unfolded(&pipeline, &times);
            let walked = plain.walked;
            assert_eq!(Evaluation { walked, ..folded }, plain, "{pipeline:?} {times:?}");
        }
    }
}

/// A million microbatches are walked through no further than four thousand.
#[test]
fn a_long_run_costs_no_more_than_a_short_one() {
    for (schedule, chunks) in [
        (Schedule::Gpipe, 1),
        (Schedule::OneForwardOneBackward, 1),
        (Schedule::Interleaved, 4),
        (Schedule::ZeroBubble, 1),
        (Schedule::DualPipe, 1),
    ] {
        let run = |microbatches| {
            let pipeline = pipeline(schedule, 16, chunks, microbatches);
            let span = Span::from_us;
            let mut times = PassTimes::uniform(&pipeline, span(1_000), span(1_200), span(800));
            times.forward[3] += span(90);
            times.transfer = span(7);
            evaluate(&pipeline, &times)
        };
        let (short, long) = (run(4_096), run(1_048_576));
        assert!(long.walked * 10 <= short.walked * 11, "{schedule:?}: {short:?} {long:?}");
        assert!(short.makespan < long.makespan);
    }
}

fn uniform(pipeline: &Pipeline, forward: u64, input: u64, weight: u64) -> Evaluation {
    let times = PassTimes::uniform(
        pipeline,
        Span::from_us(forward),
        Span::from_us(input),
        Span::from_us(weight),
    );
    evaluate(pipeline, &times)
}

/// Oracle: (p-1)/m of the work for GPipe and 1F1B, (p-1)/(v·m) for interleaved 1F1B (Narayanan et
/// al., arXiv 2104.04473, section 2.2).
#[test]
fn bubbles_of_gpipe_and_1f1b_are_the_closed_forms() {
    for stages in [2, 4, 8, 16] {
        for groups in [1, 2, 3, 8, 1_024] {
            let microbatches = stages * groups;
            for (schedule, chunks) in [
                (Schedule::Gpipe, 1),
                (Schedule::OneForwardOneBackward, 1),
                (Schedule::Interleaved, 2),
                (Schedule::Interleaved, 8),
            ] {
                let pipeline = pipeline(schedule, stages, chunks, microbatches);
                let run = uniform(&pipeline, 10, 13, 7);
                let expected = (stages - 1) as f64 / (chunks * microbatches) as f64;
                assert!((run.bubble() - expected).abs() < 1e-12, "{pipeline:?}");
                let exact = Span::from_us(30) * (microbatches * chunks + stages - 1);
                assert_eq!(run.makespan, exact, "{pipeline:?}");
            }
        }
    }
}

/// Oracle: (p-1)(F + B - W) for ZB-H1 (Qi et al., arXiv 2401.10241, table 2), with B the input
/// half and W the weight half of the backward pass, W no longer than F; no stage holds more than p
/// microbatches.
#[test]
fn the_bubble_of_zero_bubble_is_as_published() {
    for stages in [2, 4, 8, 16] {
        for microbatches in [2 * stages, 3 * stages + 1, 100 * stages] {
            for (forward, input, weight) in [(10, 10, 10), (10, 12, 8), (9, 7, 6)] {
                let pipeline = pipeline(Schedule::ZeroBubble, stages, 1, microbatches);
                let run = uniform(&pipeline, forward, input, weight);
                let work = (forward + input + weight) * microbatches;
                let bubble = (stages - 1) * (forward + input - weight);
                assert_eq!(run.makespan, Span::from_us(work + bubble), "{pipeline:?}");
                for stage in 0..stages {
                    assert!(pipeline.order(stage).in_flight() <= stages);
                }
            }
        }
    }
}

/// Oracle: (PP/2 - 1)(F&B + B - 3W) for DualPipe (DeepSeek-V3, arXiv 2412.19437, table 2), B
/// being the whole backward pass, and PP + 1 microbatches held at most. The formula is exact if
/// the gradient of inputs is as long as the forward pass, that of weights no longer, and an
/// overlapped pair as long as its passes in turn; shorter pairs have less idle time than it says.
#[test]
fn the_bubble_of_dualpipe_is_as_published() {
    for stages in [4, 8, 16] {
        for microbatches in [2 * stages, 4 * stages, 60 * stages] {
            for (forward, weight) in [(10, 10), (10, 9), (10, 6)] {
                let pipeline = pipeline(Schedule::DualPipe, stages, 1, microbatches);
                let run = uniform(&pipeline, forward, forward, weight);
                let backward = forward + weight;
                let bubble = (stages / 2 - 1) * (forward + 2 * backward - 3 * weight);
                assert_eq!(run.idle(0), Span::from_us(bubble), "{pipeline:?}");
                for stage in 0..stages {
                    assert!(pipeline.order(stage).in_flight() <= stages + 1);
                }
            }
        }
    }
}

/// Oracle: 1F1B holds p - i microbatches on stage i, GPipe all of them, interleaved 1F1B
/// p(1 + (p-1)/(pv)) stages' worth on the first (Narayanan et al., section 2.2.2).
#[test]
fn activations_in_flight_are_as_published() {
    for (stages, chunks) in [(4, 2), (8, 4), (16, 8)] {
        let held = |schedule, chunks, stage| {
            pipeline(schedule, stages, chunks, 1_024 * stages).order(stage).in_flight()
        };
        for stage in 0..stages {
            assert_eq!(held(Schedule::OneForwardOneBackward, 1, stage), stages - stage);
            assert_eq!(held(Schedule::Gpipe, 1, stage), 1_024 * stages);
        }
        let parts = held(Schedule::Interleaved, chunks, 0);
        assert_eq!(parts, stages * chunks + stages - 1);
    }
}

/// Oracle: with pairs as long as their passes in turn, 1F1B in pairs idles as long as 1F1B, holds
/// twice as many microbatches, less one; a pair that hides something gains that for all but the
/// first and last passes.
#[test]
fn pairs_cost_memory_and_gain_what_they_hide() {
    for stages in [1, 2, 4, 8] {
        for microbatches in [2 * stages, 5 * stages, 64 * stages] {
            let plain = pipeline(Schedule::OneForwardOneBackward, stages, 1, microbatches);
            let run = uniform(&paired(plain), 10, 13, 7);
            let exact = Span::from_us(30) * (microbatches + stages - 1);
            assert_eq!(run.makespan, exact, "{stages} {microbatches}");
            assert_eq!(paired(plain).order(0).in_flight(), 2 * stages);
            let [forward, input, weight] = [10, 13, 7].map(Span::from_us);
            let mut times = PassTimes::uniform(&plain, forward, input, weight);
            times.together.fill(Span::from_us(24));
            let hidden = evaluate(&paired(plain), &times).makespan;
            assert_eq!(exact - hidden, Span::from_us(6) * (microbatches - 1));
        }
    }
}
