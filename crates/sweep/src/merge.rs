//! One table of everything: the rows of all files, each case once, in the order of the plan.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use commands::{Failure, VERSION};
use exports::table::{Column, Table};
use report::number::grouped;
use report::{Answer, Sheet};
use serde::Serialize;
use serde_json::Value as Json;

use crate::plan::{Case, Plan};
use crate::store::{self, Contents, Damaged, DataFile, Record};

/// How far a sweep has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Cases of the plan.
    pub cases: usize,
    /// Those that have a result.
    pub done: usize,
    /// Those that failed, each with its reason.
    pub failed: usize,
    /// Those that are still to be executed.
    pub missing: usize,
    /// Executions of cases that had been executed already.
    pub duplicates: usize,
    /// Results of other versions of fatflow, or of another grid: kept, and not counted.
    pub others: usize,
    /// Files that cannot be trusted; their cases count as missing.
    pub damaged: Vec<Damaged>,
}

/// The plan of a folder with what became of each case.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) plan: Plan,
    pub(crate) status: Status,
    /// All executions of cases of the plan, by hash.
    records: BTreeMap<String, Vec<Record>>,
    files: Vec<DataFile>,
}

impl Results {
    /// Reads a folder.
    pub(crate) fn read(out: &Path) -> Result<Self, Failure> {
        let plan = Plan::read(out)?;
        let Contents { records: all, files, damaged, lacking } =
            store::read(out, &plan.head.measures, None)?;
        let mut records: BTreeMap<String, Vec<Record>> =
            plan.cases.iter().map(|case| (case.hash.clone(), Vec::new())).collect();
        let mut others = lacking.len();
        for record in all {
            match records.get_mut(&record.hash) {
                Some(same) => same.push(record),
                None => others += 1,
            }
        }
        let mut duplicates = 0;
        for (hash, same) in &mut records {
            // One execution may stand in two files: its segment, and the shard made of it.
            same.sort_by(|a, b| a.machine.attempt.cmp(&b.machine.attempt));
            same.dedup_by(|a, b| a.machine.attempt == b.machine.attempt);
            duplicates += same.len().saturating_sub(1);
            refuse_contradiction(hash, same)?;
        }
        let of = |case: &Case| records[&case.hash].first();
        let done = plan.cases.iter().filter(|case| of(case).is_some_and(|r| r.error.is_none()));
        let failed = plan.cases.iter().filter(|case| of(case).is_some_and(|r| r.error.is_some()));
        let (cases, done, failed) = (plan.cases.len(), done.count(), failed.count());
        let missing = cases - done - failed;
        let status = Status { cases, done, failed, missing, duplicates, others, damaged };
        Ok(Self { plan, status, records, files })
    }

    /// What became of a case.
    pub(crate) fn record(&self, case: &Case) -> Option<&Record> {
        self.records[&case.hash].first()
    }

    /// The cases that were executed, with what became of them.
    pub(crate) fn executed(&self) -> Vec<(&Case, &Record)> {
        self.plan.cases.iter().filter_map(|case| Some((case, self.record(case)?))).collect()
    }
}

/// Executions of one case by one version give the same bytes; if not, something is broken.
fn refuse_contradiction(hash: &str, same: &[Record]) -> Result<(), Failure> {
    let bits = |record: &Record| {
        let measures: Vec<_> = record.measures.iter().map(|m| m.map(f64::to_bits)).collect();
        (measures, record.error.clone())
    };
    match same.windows(2).find(|pair| bits(&pair[0]) != bits(&pair[1])) {
        Some(pair) => Err(Failure::Run(format!(
            "case {hash} has two results: {} and {} do not agree",
            pair[0].machine.attempt, pair[1].machine.attempt
        ))),
        None => Ok(()),
    }
}

/// How far a sweep has come.
pub fn status(out: &Path) -> Result<Status, Failure> {
    Results::read(out).map(|results| results.status)
}

/// The cases that are still to be executed, each scenario once, by number.
pub fn missing(out: &Path) -> Result<Vec<usize>, Failure> {
    let results = Results::read(out)?;
    let mut seen = BTreeSet::new();
    let missing = results.plan.cases.iter().filter(|case| results.record(case).is_none());
    let first = missing.filter(|case| seen.insert(&case.hash));
    Ok(first.map(|case| case.index).collect())
}

/// What merging came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Merged {
    /// How far the sweep has come.
    #[serde(flatten)]
    pub status: Status,
    /// The table of results.
    pub results: String,
    /// The table of what cases cost.
    pub machine: String,
}

/// Writes `results.parquet` and `machine.parquet`: the same bytes whoever executed what. Cases
/// that are missing are left out and counted.
pub fn merge(out: &Path) -> Result<Merged, Failure> {
    store::sweep_abandoned(out);
    let results = Results::read(out)?;
    let [table, machine, index] =
        ["results.parquet", "machine.parquet", "index.json"].map(|name| out.join(name));
    store::replace(&table, &store::parquet(&results.table())?)?;
    store::replace(&machine, &store::parquet(&results.machine_table())?)?;
    let files = serde_json::json!({
        "fatflow": VERSION,
        "plan": results.plan.head.plan,
        "files": results.files,
    });
    store::replace(&index, format!("{files:#}\n").as_bytes())?;
    let [results_path, machine_path] = [table, machine].map(|path| path.display().to_string());
    Ok(Merged { status: results.status, results: results_path, machine: machine_path })
}

impl Status {
    /// Whether every case has been executed, and none has a result.
    pub fn is_all_failed(&self) -> bool {
        0 < self.cases && self.failed == self.cases
    }

    /// What is to be said of it in sentences.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut say = |count: usize, what: &str| {
            if 0 < count {
                remarks.push(format!("{} {what}", grouped(count as u64)));
            }
        };
        say(self.missing, "cases are missing: execute them with `fatflow sweep run` or `exec`");
        say(self.duplicates, "executions were of cases that had been executed; each counts once");
        say(self.others, "results of another version or another grid are kept and do not count");
        let damaged = |damaged: &Damaged| format!("damaged: {}: {}", damaged.file, damaged.why);
        remarks.extend(self.damaged.iter().map(damaged));
        remarks
    }

    pub(crate) fn on(&self, sheet: Sheet) -> Sheet {
        let number = |count: usize| grouped(count as u64);
        let sheet = sheet.facts([
            ("cases", number(self.cases), ""),
            ("done", number(self.done), ""),
            ("failed", number(self.failed), ""),
            ("missing", number(self.missing), ""),
        ]);
        self.remarks().into_iter().fold(sheet, Sheet::note)
    }
}

impl Answer for Status {
    fn sheet(&self) -> Sheet {
        self.on(Sheet::new().heading("How far the sweep is"))
    }
}

impl Answer for Merged {
    fn sheet(&self) -> Sheet {
        let sheet = self.status.on(Sheet::new().heading("Merged"));
        sheet
            .text(format!("{}: a row for each case.", self.results))
            .text(format!("{}: what each execution cost its machine.", self.machine))
    }
}

impl Results {
    /// A row for each case that was executed.
    fn table(&self) -> Table {
        let executed = self.executed();
        let words = |of: fn(&(&Case, &Record)) -> String| {
            Column::Words(executed.iter().map(|row| of(row).into()).collect())
        };
        let whole = |of: fn(&Case) -> u64| {
            Column::Integers(executed.iter().map(|(case, _)| of(case)).collect())
        };
        let mut table = Table::new()
            .with("case", whole(|case| case.index as u64))
            .with("hash", words(|(case, _)| case.hash.clone()))
            .with("engine", words(|(case, _)| case.engine.name().to_owned()))
            .with("seed", whole(|case| case.seed));
        for (at, axis) in self.plan.head.axes.iter().enumerate() {
            if table.column(axis).is_none() {
                let values = executed.iter().map(|(case, _)| case.values.get(at));
                table = table.with(axis.clone(), column(values.collect()));
            }
        }
        for key in self.bound_keys() {
            if table.column(&key).is_none() {
                let sets = executed.iter().map(|(case, _)| &case.set);
                let own = sets.map(|set| set.iter().find(|one| one.key == key));
                let values = own.map(|own| own.map(|set| &set.value)).collect();
                table = table.with(key, column(values));
            }
        }
        for (at, measure) in self.plan.head.measures.iter().enumerate() {
            let values = executed.iter().map(|(_, record)| record.measures[at]).collect();
            let taken = table.column(measure).is_some() || measure == "error";
            let name = if taken { format!("result.{measure}") } else { measure.clone() };
            table = table.with(name, Column::SomeNumbers(values));
        }
        let errors = executed.iter().map(|(_, record)| record.error.clone().map(Cow::Owned));
        table.with("error", Column::SomeWords(errors.collect()))
    }

    /// Keys that axes set beside their own names, in the order of the plan.
    fn bound_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for set in self.plan.cases.iter().flat_map(|case| &case.set) {
            if !keys.contains(&set.key) {
                keys.push(set.key.clone());
            }
        }
        keys
    }

    /// A row for each execution.
    fn machine_table(&self) -> Table {
        let rows: Vec<(&Case, &Record)> = self
            .plan
            .cases
            .iter()
            .flat_map(|case| self.records[&case.hash].iter().map(move |record| (case, record)))
            .collect();
        let records: Vec<Record> = rows.iter().map(|(_, record)| (*record).clone()).collect();
        let index = rows.iter().map(|(case, _)| case.index as u64).collect();
        let hash = rows.iter().map(|(case, _)| case.hash.clone().into()).collect();
        Table::new()
            .with("case", Column::Integers(index))
            .with("hash", Column::Words(hash))
            .joined(store::machine_table(&records))
    }
}

/// Values of an axis as a column: whole numbers, numbers, or else words.
fn column(values: Vec<Option<&Json>>) -> Column {
    let word = |value: &Json| -> Cow<'static, str> {
        value.as_str().map_or_else(|| value.to_string(), str::to_owned).into()
    };
    let all = |is: fn(&Json) -> bool| values.iter().all(|value| value.is_some_and(is));
    if all(Json::is_u64) {
        return Column::Integers(values.iter().filter_map(|v| v.and_then(Json::as_u64)).collect());
    }
    if all(Json::is_number) {
        return Column::Numbers(values.iter().filter_map(|v| v.and_then(Json::as_f64)).collect());
    }
    if values.iter().flatten().all(|value| value.is_number()) {
        return Column::SomeNumbers(values.iter().map(|v| v.and_then(Json::as_f64)).collect());
    }
    if values.iter().all(Option::is_some) {
        return Column::Words(values.iter().flatten().map(|value| word(value)).collect());
    }
    Column::SomeWords(values.iter().map(|value| value.map(word)).collect())
}
