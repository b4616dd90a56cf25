//! The step put together, against closed forms and against itself.

use super::*;
use crate::attribution::critical_path;

fn input(schedule: Schedule, stages: u64, chunks: u64, microbatches: u64) -> StepInput {
    let paired = false;
    let pipeline = Pipeline { schedule, stages, chunks, microbatches, paired };
    let computed = |us: u64| Parts::of(Share::Compute, Span::from_us(us));
    let (input, weight) = (computed(110).with(Share::Tp, Span::from_us(20)), computed(90));
    let costs = PartCosts {
        forward: computed(100).with(Share::Tp, Span::from_us(20)),
        input,
        weight,
        backward: input.plus(&weight),
        layers: 4,
        gather: Span::from_us(40),
        reduce: Span::from_us(80),
    };
    let stages = stages as usize;
    StepInput {
        pipeline,
        parts: vec![costs; pipeline.parts() as usize],
        together: vec![costs.forward.plus(&costs.input).plus(&costs.weight); stages],
        message: Span::from_us(5),
        message_beside_copies: Span::from_us(8),
        sending: Sending::Overlapped,
        copying: Copying::Overlapped,
        closing: vec![Parts::of(Share::Pp, Span::from_us(7)); stages],
        optimizer: vec![Span::from_us(30); stages],
        overhead: Span::from_us(50),
        slowdown: Vec::new(),
    }
}

const COPYING: [Copying; 3] =
    [Copying::Overlapped, Copying::AtTheEnd, Copying::OnOtherCircuits(Span::from_us(300))];

#[test]
fn circuits_that_are_set_anew_cost_their_time_twice() {
    let at_the_end =
        StepInput { copying: Copying::AtTheEnd, ..input(Schedule::OneForwardOneBackward, 1, 1, 4) };
    let takes = Span::from_us(300);
    let set_anew = StepInput { copying: Copying::OnOtherCircuits(takes), ..at_the_end.clone() };
    let [before, after] = [at_the_end.run(), set_anew.run()];
    assert_eq!(after.length, before.length + takes + takes);
    let more = after.breakdown.get(Share::Dp) - before.breakdown.get(Share::Dp);
    assert_eq!(more, takes + takes);
}

#[test]
fn circuits_wait_for_the_passes_of_all_stages() {
    let takes = Span::from_us(300);
    let copying = Copying::OnOtherCircuits(takes);
    let input = StepInput { copying, ..input(Schedule::OneForwardOneBackward, 4, 1, 8) };
    let line = input.run().line;
    let graph = line.graph();
    let of = |work: Work| graph.ops().ids().filter(move |op| graph.ops()[*op].work == work);
    let passed = of(Work::Backward).map(|op| line.end(op)).max().unwrap();
    assert!(of(Work::ReduceGradients).all(|op| passed + takes <= line.start(op)));
}

fn cases() -> Vec<StepInput> {
    let mut cases = Vec::new();
    for schedule in Schedule::ALL {
        for (stages, chunks, microbatches) in [(1, 1, 3), (4, 1, 8), (4, 3, 8), (4, 1, 40)] {
            if chunks == 1 || schedule == Schedule::Interleaved {
                for copying in COPYING {
                    for sending in [Sending::Overlapped, Sending::Blocking] {
                        let base = input(schedule, stages, chunks, microbatches);
                        if schedule != Schedule::DualPipe || 2 * stages <= microbatches {
                            cases.push(StepInput { copying, sending, ..base });
                        }
                    }
                }
            }
        }
    }
    let pairs = |case: &&StepInput| case.pipeline.schedule.pairs();
    let mut paired: Vec<StepInput> = cases.iter().filter(pairs).cloned().collect();
    paired.iter_mut().for_each(|case| case.pipeline.paired = true);
    cases.extend(paired);
    cases.retain(|case| {
        let Pipeline { schedule, stages, microbatches, .. } = case.pipeline;
        schedule != Schedule::DualPipe || (1 < stages && microbatches.is_multiple_of(2))
    });
    cases
}

fn without_communication(mut input: StepInput) -> StepInput {
    let strip = |parts: Parts| {
        let mut kept = Parts::default();
        for share in Share::ALL.into_iter().filter(|share| !share.is_communication()) {
            kept.add(share, parts.get(share));
        }
        kept
    };
    for part in &mut input.parts {
        part.forward = strip(part.forward);
        part.input = strip(part.input);
        part.weight = strip(part.weight);
        part.backward = strip(part.backward);
        (part.gather, part.reduce) = (Span::ZERO, Span::ZERO);
    }
    for together in &mut input.together {
        *together = strip(*together);
    }
    (input.message, input.message_beside_copies) = (Span::ZERO, Span::ZERO);
    input.closing.clear();
    if let Copying::OnOtherCircuits(takes) = &mut input.copying {
        *takes = Span::ZERO;
    }
    input
}

fn without_computation(mut input: StepInput) -> StepInput {
    let strip = |parts: Parts| {
        let mut kept = Parts::default();
        for share in Share::ALL.into_iter().filter(|share| share.is_communication()) {
            kept.add(share, parts.get(share));
        }
        kept
    };
    for part in &mut input.parts {
        part.forward = strip(part.forward);
        part.input = strip(part.input);
        part.weight = strip(part.weight);
        part.backward = strip(part.backward);
    }
    for together in &mut input.together {
        *together = strip(*together);
    }
    input.optimizer.fill(Span::ZERO);
    input.overhead = Span::ZERO;
    input
}

/// Property: for every schedule and every way of overlapping, the parts are the step and so is the
/// critical path.
#[test]
fn parts_and_path_are_the_step() {
    for case in cases() {
        let step = case.run();
        assert_eq!(step.breakdown.total(), step.length, "{:?}", case.pipeline);
        assert_eq!(critical_path(&step.line).parts.total(), step.length, "{:?}", case.pipeline);
    }
}

#[test]
fn free_communication_leaves_computation_bubble_optimizer_and_the_rest() {
    for case in cases() {
        let step = without_communication(case.clone()).run();
        assert_eq!(step.breakdown.communication(), Span::ZERO, "{:?}", case.pipeline);
        assert!(step.length <= case.run().length, "{:?}", case.pipeline);
    }
}

#[test]
fn infinitely_fast_gpus_leave_exposed_communication() {
    for case in cases() {
        let step = without_computation(case.clone()).run();
        assert_eq!(step.breakdown.communication(), step.length, "{:?}", case.pipeline);
        assert!(Span::ZERO < step.length);
    }
}

/// Oracle: (p − 1) forward and backward passes of bubble for 1F1B, divided by v when interleaved.
#[test]
fn bubbles_are_the_closed_forms() {
    for chunks in [1, 2, 3] {
        let case = without_communication(input(Schedule::Interleaved, 4, chunks, 8));
        let step = case.run();
        let pass = Span::from_us(300);
        assert_eq!(step.breakdown.get(Share::Bubble), pass * 3, "{chunks} parts per stage");
        assert_eq!(step.breakdown.get(Share::Compute), pass * (8 * chunks));
    }
}

/// Agreement: the job crate's own evaluation of the schedule, where there is nothing else.
#[test]
fn the_pipeline_takes_what_the_schedule_says() {
    use job::schedule::{PassTimes, evaluate};
    for mut case in cases() {
        case.sending = Sending::Overlapped;
        case.optimizer.fill(Span::ZERO);
        case.overhead = Span::ZERO;
        case.closing.clear();
        case.message_beside_copies = case.message;
        for part in &mut case.parts {
            (part.gather, part.reduce) = (Span::ZERO, Span::ZERO);
        }
        let total = |parts: &Parts| parts.total();
        let times = PassTimes {
            forward: case.parts.iter().map(|part| total(&part.forward)).collect(),
            input: case.parts.iter().map(|part| total(&part.input)).collect(),
            weight: case.parts.iter().map(|part| total(&part.weight)).collect(),
            together: case.together.iter().map(total).collect(),
            transfer: case.message,
        };
        let circuits = match case.copying {
            Copying::OnOtherCircuits(takes) => takes + takes,
            _ => Span::ZERO,
        };
        let expected = evaluate(&case.pipeline, &times).makespan + circuits;
        assert_eq!(case.run().length, expected, "{:?}", case.pipeline);
    }
}

/// Property: overlapping never loses, and a blocked sender never wins.
#[test]
fn overlap_never_costs() {
    for mut case in cases() {
        case.message_beside_copies = case.message; // else overlap has its price
        let at_the_end = StepInput { copying: Copying::AtTheEnd, ..case.clone() };
        let overlapped = StepInput { copying: Copying::Overlapped, ..case.clone() };
        assert!(overlapped.run().length <= at_the_end.run().length, "{:?}", case.pipeline);
        let blocking = StepInput { sending: Sending::Blocking, ..case.clone() };
        let beside = StepInput { sending: Sending::Overlapped, ..case.clone() };
        assert!(beside.run().length <= blocking.run().length, "{:?}", case.pipeline);
    }
}

/// Agreement: a step of which no more is walked through than shows how it repeats itself, against
/// the same step walked through, for every schedule, with stages that differ and messages that take
/// from nothing to longer than a pass.
#[test]
fn a_long_step_is_a_short_one_with_more_rounds() {
    for mut case in cases() {
        let Pipeline { stages, .. } = case.pipeline;
        let round = round_of(&case.pipeline);
        let needed = case.microbatches_needed();
        case.pipeline.microbatches = needed.next_multiple_of(round) + 24 * round;
        for (message, slow) in [(0, 1.0), (5, 1.0), (5, 1.3), (37, 1.1), (150, 1.0)] {
            case.message = Span::from_us(message);
            case.slowdown = vec![1.0; stages as usize];
            case.slowdown[stages as usize / 2] = slow;
            let walked = case.run_without(0);
            let left_out = case.run_without(24);
            let off = left_out.length.as_secs_f64() / walked.length.as_secs_f64() - 1.0;
            // Senders that wait take long to settle.
            let most = if case.sending == Sending::Blocking { 1e-2 } else { 1.5e-3 };
            assert!(off.abs() < most, "{:?}, messages of {message} µs: {off}", case.pipeline);
            // What a stage waits for between two phases depends on how long the first one is, where
            // messages take longer than passes.
            for share in Share::ALL.into_iter().filter(|_| message < 100) {
                let part = |step: &StepTime| step.breakdown.get(share).as_secs_f64();
                let off = (part(&left_out) - part(&walked)) / walked.length.as_secs_f64();
                let context = format!("{:?}, {message} µs, {share:?}", case.pipeline);
                assert!(off.abs() < 1e-2, "{context}: {off}");
            }
        }
    }
    // Messages that take no time leave nothing but passes in the middle.
    let huge = input(Schedule::OneForwardOneBackward, 4, 1, 1 << 20);
    let huge = StepInput { message: Span::ZERO, message_beside_copies: Span::ZERO, ..huge }.run();
    assert!(0 < huge.rounds_left_out);
    let pass = Span::from_us(340).as_secs_f64();
    let expected = pass * f64::from(1 << 20);
    assert!((huge.length.as_secs_f64() / expected - 1.0).abs() < 1e-3);
}

/// Guard: a million microbatches are walked through for no more operations than six microbatches
/// per stage have, nine with DualPipe, whose warm-up and end are longer.
#[test]
fn a_million_microbatches_are_a_few_thousand_operations() {
    for (stages, chunks) in [(1, 1), (8, 1), (16, 1), (16, 8)] {
        for schedule in Schedule::ALL {
            if chunks == 1 || schedule == Schedule::Interleaved {
                let step = input(schedule, stages, chunks, 1 << 20).run();
                let tasks = if schedule == Schedule::ZeroBubble { 3 } else { 2 };
                let ends = if schedule == Schedule::DualPipe { 9 } else { 6 };
                let needed = (ends + 1) * stages * stages * chunks * tasks;
                // Beside the passes: weights, gradients, what closes a step.
                let most = needed + stages * (chunks * 16 + 4) + 100;
                let walked = step.line.graph().ops().len() as u64;
                assert!(walked <= most, "{schedule:?} {stages} {chunks}: {walked} of {most}");
            }
        }
    }
}

#[test]
fn messages_beside_gradients_are_slower() {
    let base = input(Schedule::OneForwardOneBackward, 4, 1, 8);
    let slower = StepInput { message_beside_copies: Span::from_us(50), ..base.clone() };
    let more = slower.run().length - base.run().length;
    // The last backward pass crosses three boundaries, the first forward one too.
    assert_eq!(more, Span::from_us(42) * 6);
}

/// Agreement: a step that is timed again takes as long as one put together anew; rounding may take
/// a picosecond for each operation on the way, and for each part of further rounds.
#[test]
fn a_slowed_step_takes_as_long_as_one_of_slow_stages() {
    for (mut case, microbatches) in cases().into_iter().flat_map(|c| [(c.clone(), 0), (c, 1 << 16)])
    {
        case.pipeline.microbatches = case.pipeline.microbatches.max(microbatches);
        let slow = StepInput { slowdown: vec![1.07; case.parts.len()], ..case.clone() }.run();
        let step = case.run();
        let again = case.length_slowed(&step, 1.07).as_secs_f64();
        let off = again / slow.length.as_secs_f64() - 1.0;
        assert!(off.abs() < 1e-7, "{:?}: {off}", case.pipeline);
        let same = case.length_slowed(&step, 1.0).as_ps().abs_diff(step.length.as_ps());
        assert!(same < 2 * Share::ALL.len() as u64, "{:?}: {same} ps", case.pipeline);
    }
}

#[test]
fn a_slow_stage_slows_everybody() {
    let base = input(Schedule::OneForwardOneBackward, 4, 1, 40);
    let slow = StepInput { slowdown: vec![1.0, 1.25, 1.0, 1.0], ..base.clone() };
    let gain = slow.run().length.as_secs_f64() / base.run().length.as_secs_f64();
    assert!((1.15..1.25).contains(&gain), "{gain}");
}
