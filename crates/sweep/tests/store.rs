//! Results: the same whoever executed what, and never lost or doubled.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use scenario::Request;
use sweep::{Grid, Options, Plan, Selection, Summary, exec, merge, missing, show, status, store};

const GRID: &str = r#"
    from = "small-16"
    engine = "analytic"
    [axes]
    "network.routing.qps" = [1, 4]
    seed = { from = 0, to = 4 }
    tp = [{ "job.parallel.tp" = 8, "job.parallel.dp" = 2 }, { "job.parallel.tp" = 3 }]
    [keep]
    measures = ["step_s", "breakdown_s.dp", "mfu"]
"#;

struct Study {
    grid: Grid,
    plan: Plan,
    out: tempfile::TempDir,
}

impl Study {
    fn new(text: &str) -> Self {
        let grid = Grid::parse(text, Path::new("."), &Request::default()).unwrap();
        let plan = grid.plan(1).unwrap();
        let out = tempfile::tempdir().unwrap();
        plan.write(out.path()).unwrap();
        Self { grid, plan, out }
    }

    fn exec(&self, selection: &Selection, threads: usize) -> Summary {
        let (progress, interrupt) = (|_| {}, AtomicBool::new(false));
        let options = Options { threads, progress: &progress, interrupt: &interrupt };
        exec(&self.grid, &self.plan, selection, self.out.path(), options).unwrap()
    }

    fn merged(&self) -> Vec<u8> {
        let merged = merge(self.out.path()).unwrap();
        assert_eq!((merged.status.missing, merged.status.duplicates), (0, 0));
        fs::read(self.out.path().join("results.parquet")).unwrap()
    }

    /// The same where several may have executed one case.
    fn merged_of_several(&self) -> Vec<u8> {
        let status = merge(self.out.path()).unwrap().status;
        assert_eq!((status.done, status.failed, status.missing), (10, 10, 0));
        fs::read(self.out.path().join("results.parquet")).unwrap()
    }

    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.out.path().join(folder)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

fn whole() -> Vec<u8> {
    let study = Study::new(GRID);
    let summary = study.exec(&Selection::ALL, 1);
    assert_eq!((summary.selected, summary.executed, summary.failed), (20, 20, 10));
    study.merged()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// The merged table has the same bytes at any number of shards and threads, in any order.
    #[test]
    fn the_merged_table_does_not_depend_on_who_executed_what(
        count in 1_usize..9, threads in 1_usize..4, rotate in 0_usize..9
    ) {
        let study = Study::new(GRID);
        for index in 0..count {
            let index = (index + rotate) % count;
            study.exec(&Selection::Shard { index, count }, threads);
        }
        prop_assert_eq!(study.files("segments").len(), 0, "segments become shards");
        prop_assert_eq!(study.files("shards").len(), count.min(20));
        prop_assert_eq!(study.merged(), whole());
    }
}

#[test]
fn what_is_done_is_not_done_again_and_lists_of_cases_do_too() {
    let study = Study::new(GRID);
    study.exec(&Selection::Cases(vec![0, 3, 7]), 2);
    let summary = study.exec(&Selection::ALL, 2);
    assert_eq!((summary.before, summary.executed), (3, 17));
    assert_eq!(study.exec(&Selection::ALL, 2).executed, 0);
    assert_eq!(study.merged(), whole());
}

/// Two processes that execute one shard at once do no harm: each case counts once.
#[test]
fn two_attempts_at_one_shard_are_harmless() {
    let study = Study::new(GRID);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| study.exec(&Selection::ALL, 1));
        }
    });
    assert_eq!(study.merged_of_several(), whole());
}

/// A clock that jumps makes files look old while they are written, and others yet to come.
#[test]
fn a_clock_that_jumps_loses_and_doubles_nothing() {
    let study = Study::new(GRID);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clock = scope.spawn(|| {
            let mut jumps = 0_u64;
            while !done.load(Ordering::Relaxed) {
                for path in ["segments", "shards"].iter().flat_map(|name| study.files(name)) {
                    let moment = Duration::from_secs(jumps % 2 * (1 << 33));
                    // It may be gone by now.
                    let file = fs::File::open(path);
                    jumps += u64::from(
                        file.is_ok_and(|file| file.set_modified(UNIX_EPOCH + moment).is_ok()),
                    );
                }
            }
            jumps
        });
        let execs = [(); 3].map(|()| scope.spawn(|| study.exec(&Selection::ALL, 1)));
        let executed = execs.map(|exec| exec.join().unwrap().executed);
        done.store(true, Ordering::Relaxed);
        assert!(0 < clock.join().unwrap(), "no file was met by a jump");
        assert!(20 <= executed.iter().sum::<usize>());
    });
    assert_eq!(study.merged_of_several(), whole());
}

#[test]
fn an_interrupt_leaves_what_was_done() {
    let study = Study::new(GRID);
    let (progress, interrupt) = (|_| {}, AtomicBool::new(true));
    let options = Options { threads: 2, progress: &progress, interrupt: &interrupt };
    let stopped = exec(&study.grid, &study.plan, &Selection::ALL, study.out.path(), options);
    assert_eq!(stopped.unwrap().left, 20);
    interrupt.store(false, Ordering::Relaxed);
    assert_eq!(study.exec(&Selection::ALL, 2).executed, 20);
    assert_eq!(study.merged(), whole());
}

/// Files that were cut short, changed, or are none: named, and their cases executed again.
#[test]
fn damage_is_named_and_mended() {
    let cut: fn(&mut Vec<u8>) = |bytes| bytes.truncate(bytes.len() / 2);
    let empty: fn(&mut Vec<u8>) = Vec::clear;
    let flipped: fn(&mut Vec<u8>) = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    for damage in [cut, empty, flipped] {
        let study = Study::new(GRID);
        study.exec(&Selection::Shard { index: 0, count: 2 }, 1);
        study.exec(&Selection::Shard { index: 1, count: 2 }, 1);
        let path = study.files("shards").remove(0);
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let before = status(study.out.path()).unwrap();
        assert_eq!((before.missing, before.damaged.len()), (10, 1));
        assert!(before.damaged[0].why.contains("checksum"), "{:?}", before.damaged);
        let summary = study.exec(&Selection::ALL, 2);
        assert_eq!((summary.executed, summary.damaged.len()), (10, 1));
        assert_eq!(study.merged(), whole());
        assert!(status(study.out.path()).unwrap().damaged.is_empty(), "it was set aside");
    }
}

/// Shards take the plan of their folder, and notice when it is another's.
#[test]
fn a_kept_plan_is_taken_as_it_is() {
    let study = Study::new(GRID);
    let planned = study.grid.planned(study.out.path(), 1).unwrap();
    assert_eq!(planned.head, study.plan.head);
    let hashes = |plan: &Plan| plan.cases.iter().map(|case| case.hash.clone()).collect::<Vec<_>>();
    assert_eq!(hashes(&planned), hashes(&study.plan));
    let other = Study::new(&GRID.replace("to = 4", "to = 2"));
    assert_eq!(other.grid.planned(study.out.path(), 1).unwrap().cases.len(), 12);
}

#[test]
fn temporary_files_are_ignored() {
    let study = Study::new(GRID);
    study.exec(&Selection::ALL, 1);
    fs::write(study.out.path().join("shards/.tmp-x-1-1"), "half a file").unwrap();
    assert_eq!(study.merged(), whole());
}

/// A grid that grows keeps what it has; results that belong to no case of it are kept and counted.
#[test]
fn another_grid_over_the_same_folder() {
    let study = Study::new(GRID);
    study.exec(&Selection::ALL, 1);
    let text = GRID.replace("to = 4", "to = 5").replace("[1, 4]", "[4]");
    let mut larger = Study::new(&text);
    larger.out = study.out;
    larger.plan.write(larger.out.path()).unwrap();
    assert_eq!(larger.exec(&Selection::ALL, 1).executed, 2);
    let status = status(larger.out.path()).unwrap();
    assert_eq!((status.cases, status.done, status.failed, status.others), (12, 6, 6, 10));
}

#[test]
fn show_tells_the_best_the_front_what_decides_and_what_failed() {
    let study = Study::new(GRID);
    study.exec(&Selection::ALL, 1);
    let goals = ["step_s", "max:mfu"].map(str::to_owned).to_vec();
    let shown =
        show(study.out.path(), &sweep::ShowOptions { goals, ..Default::default() }).unwrap();
    // The analytic engine draws nothing: cases that differ in their seed are one line.
    assert_eq!(shown.best.iter().map(|row| row.cases).sum::<usize>(), 10);
    assert!(shown.best.len() <= 2 && shown.best[0].differ.contains(&"seed".to_owned()));
    assert_eq!(shown.best[0].axes["tp"], 8);
    let steps: Vec<f64> =
        shown.best.iter().map(|row| row.measures["step_s"].as_f64().unwrap()).collect();
    assert!(steps.is_sorted());
    assert!(!shown.pareto.is_empty());
    assert_eq!(shown.sensitivity.len(), 3);
    assert!(shown.sensitivity.iter().all(|one| (0.0..=1.0 + 1e-9).contains(&one.share.unwrap())));
    assert_eq!(shown.failures.iter().map(|reason| reason.cases).sum::<usize>(), 10);
    assert!(shown.failures[0].error.contains("tp"), "{:?}", shown.failures);
    let wrong = sweep::ShowOptions { goals: vec!["step".to_owned()], width: None };
    assert!(show(study.out.path(), &wrong).unwrap_err().to_string().contains("step_s"));
}

/// A column for each axis, alike cases once, and how sure the order is.
#[test]
fn show_has_columns_for_axes_and_says_how_sure_an_order_is() {
    let study = Study::new(
        r#"
        from = "small-16"
        engine = "analytic"
        [axes]
        seed = [0, 1, 2]
        "job.batch.length" = [4096, 8192]
        "#,
    );
    study.exec(&Selection::ALL, 1);
    let shown = show(study.out.path(), &Default::default()).unwrap();
    let text = report::Answer::sheet(&shown).render(100);
    assert!(text.contains("length") && !text.contains("job.batch.length=4096"), "{text}");
    assert!(text.contains("any") && text.contains("80 % interval"), "{text}");
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["pareto"], serde_json::json!([]));
    assert_eq!(json["scaling"], serde_json::json!([]));
    assert_eq!(json["best"][0]["set"].as_array().unwrap().len(), 2);
}

/// Longer sequences take longer and use GPUs better: all cases are on the front.
#[test]
fn a_long_front_is_cut_and_says_so() {
    let study = Study::new(
        r#"
        from = "small-16"
        engine = "analytic"
        [axes]
        "job.batch.length" = { from = 1024, to = 3968, step = 128 }
        "#,
    );
    study.exec(&Selection::ALL, 1);
    let goals = ["step_s", "max:mfu"].map(str::to_owned).to_vec();
    let shown =
        show(study.out.path(), &sweep::ShowOptions { goals, ..Default::default() }).unwrap();
    assert_eq!(shown.pareto.len(), 24);
    let text = report::Answer::sheet(&shown).render(100);
    assert!(text.contains("And 4 more with 4 cases"), "{text}");
}

/// Strong scaling is against the smallest case that differs in nothing else, weak against one whose
/// batch is as much smaller as the cluster.
#[test]
fn sizes_are_compared_with_the_smallest() {
    let study = Study::new(
        r#"
        from = "small-128"
        engine = "analytic"
        [axes]
        gpus = [
          { "cluster.gpus" = 64, "job.gpus" = 64, "job.parallel.dp" = 8 },
          { "cluster.gpus" = 128, "job.gpus" = 128, "job.parallel.dp" = 16 },
        ]
        "job.batch.sequences" = [128, 256]
        [keep]
        measures = ["mfu"]
        "#,
    );
    assert_eq!(study.plan.head.measures, ["mfu", "step_s", "gpus", "tokens_per_step"]);
    study.exec(&Selection::ALL, 1);
    let scaling = show(study.out.path(), &Default::default()).unwrap().scaling;
    assert_eq!(scaling.len(), 2, "{scaling:?}");
    let weak = &scaling[1];
    assert_eq!((weak.kind, weak.gpus, weak.cases), (sweep::show::Kind::Weak, 128, 1));
    assert!(0.5 < weak.efficiency && weak.efficiency < 1.2, "{weak:?}");
    assert_eq!((scaling[0].gpus, scaling[0].smallest, scaling[0].cases), (128, 64, 2));
    assert_eq!(scaling[0].kind, sweep::show::Kind::Strong);
    assert!(1.0 < scaling[0].speedup && scaling[0].speedup < 2.0);
    assert!((scaling[0].efficiency - scaling[0].speedup / 2.0).abs() < 1e-12);
}

/// Batches executed elsewhere and taken over make the same table; what is not whole is refused.
#[test]
fn files_of_other_machines_are_taken_if_they_are_whole() {
    let here = Study::new(GRID);
    assert_eq!(missing(here.out.path()).unwrap().len(), 20);
    for batch in (0..20).collect::<Vec<usize>>().chunks(7) {
        let there = Study::new(GRID);
        there.exec(&Selection::Cases(batch.to_vec()), 1);
        let (name, bytes) = store::only_file(there.out.path()).unwrap();
        let take = |name: &str, bytes: &[u8]| {
            store::take(here.out.path(), name, bytes.to_vec(), &here.plan.head.measures)
        };
        assert!(take(&name, &bytes[..bytes.len() / 2]).is_err());
        assert!(take(&name, b"").is_err());
        assert!(take("results.parquet", &bytes).is_err());
        assert!(take(&format!("../{name}"), &bytes).is_err());
        assert_eq!(take(&name, &bytes).unwrap(), batch.len());
        // Once more, as a task that Ray ran twice.
        assert_eq!(take(&name, &bytes).unwrap(), batch.len());
    }
    assert!(missing(here.out.path()).unwrap().is_empty());
    assert_eq!(here.merged(), whole());
}

/// Two grids that keep different measures share a folder: neither destroys what the other has.
#[test]
fn grids_with_other_measures_destroy_nothing() {
    let few = GRID.replace(r#""step_s", "breakdown_s.dp", "mfu""#, r#""step_s""#);
    let few = few.replace("to = 4", "to = 5");
    let exec_in = |mut study: Study, text: &str| {
        let Study { grid, plan, out: _ } = Study::new(text);
        plan.write(study.out.path()).unwrap();
        (study.grid, study.plan) = (grid, plan);
        let summary = study.exec(&Selection::ALL, 1);
        (study, (summary.before, summary.executed, summary.lacking))
    };
    let (study, first) = exec_in(Study::new(GRID), GRID);
    let (study, fewer) = exec_in(study, &few);
    let (study, again) = exec_in(study, GRID);
    assert_eq!([first, fewer, again], [(0, 20, 0), (20, 4, 0), (20, 0, 0)]);
    assert_eq!(status(study.out.path()).unwrap().others, 4);
    assert_eq!(study.merged(), whole());

    // What lacks a measure is executed again, which is said, and stays all the same.
    let (study, fewer) = exec_in(Study::new(&few), &few);
    let (study, more) = exec_in(study, GRID);
    let (_, again) = exec_in(study, &few);
    assert_eq!([fewer, more, again], [(0, 24, 0), (0, 20, 20), (24, 0, 0)]);
}

/// Ranges of cases, and numbers that there are not.
#[test]
fn cases_are_named_by_numbers_and_ranges() {
    let study = Study::new(GRID);
    let read = |text: &str| -> Result<Selection, String> {
        let numbers: Result<Vec<sweep::Numbers>, String> =
            text.split(',').map(str::parse).collect();
        Selection::cases(&numbers?, &study.plan).map_err(|failure| failure.to_string())
    };
    assert_eq!(read("1-3,7,2"), Ok(Selection::Cases(vec![1, 2, 3, 7])));
    assert_eq!(study.exec(&read("1-3,7").unwrap(), 1).executed, 4);
    assert!(read("3-1").unwrap_err().contains("write 1-3"));
    assert!(read("18-20").unwrap_err().contains("there is no case 20: they count from 0 to 19"));
    assert!(read("a-b").unwrap_err().contains("like 7 or 1-3"));
}

/// What a sweep costs beside its cases: planning, keeping, merging. By the processor's time, so
/// that a busy machine does not matter; the best of some tries, since it is not alone.
#[test]
fn a_sweep_costs_little_beside_its_cases() {
    let text = r#"
        from = "small-128"
        engine = "analytic"
        [axes]
        "network.routing.qps" = [1, 2, 4, 8, 16]
        seed = { from = 0, to = 59 }
        [keep]
        measures = ["step_s", "mfu"]
    "#;
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        let grid = Grid::parse(text, Path::new("."), &Request::default()).unwrap();
        let meter = commands::meter::Meter::start();
        let plan = grid.plan(1).unwrap();
        let planning = meter.cpu_s();
        let out = tempfile::tempdir().unwrap();
        let study = Study { grid, plan, out };
        study.plan.write(study.out.path()).unwrap();
        let cases = study.exec(&Selection::ALL, 1).cases_cpu_s;
        study.merged();
        let beside = meter.cpu_s() - cases;
        best = (best.0.min(planning / cases), best.1.min(beside / cases));
        if best.0 < 0.05 && best.1 < 0.15 {
            return;
        }
    }
    panic!(
        "of the cases' own time, planning takes {:.3}, all that is beside {:.3}",
        best.0, best.1
    );
}
