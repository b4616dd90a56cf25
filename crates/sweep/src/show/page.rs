//! A sweep for people: tables, and charts that are linked case by case.

use std::collections::BTreeSet;

use report::number::grouped;
use report::{Align, Answer, Chart, ChartKind, Frame, Sheet, Table, Unit};
use serde_json::Value as Json;

use super::{FailureReason, Goal, Sensitivity, Show, rows};
use crate::plan::{Case, Plan};
use crate::store::Record;

/// Cases on a page: more than that nobody can tell apart.
pub(super) const MOST_CASES: usize = 2000;

/// Charts of one measure against another.
const MOST_SCATTERS: usize = 4;

/// Lines of the front.
const MOST_FRONT: usize = 20;

/// Failures that are told.
const MOST_FAILURES: usize = 12;

/// What charts show: a row for each case.
#[derive(Clone, Debug, Default)]
pub(super) struct Drawn {
    /// `case`, the axes, the measures.
    frame: Frame,
    axes: usize,
    left_out: usize,
}

impl Drawn {
    /// The cases that have the goal, thinned evenly; the best and the front stay.
    pub(super) fn of(plan: &Plan, ranked: &[(&Case, &Record)], stay: &BTreeSet<usize>) -> Self {
        let axes = &plan.head.axes;
        let mut columns = vec!["case"];
        let all: Vec<&str> = axes.iter().chain(&plan.head.measures).map(String::as_str).collect();
        columns.extend(axes.iter().map(|axis| rows::short(axis, &all)));
        let names: Vec<String> =
            plan.head.measures.iter().map(|name| own(name, &columns)).collect();
        columns.extend(names.iter().map(String::as_str));
        let mut frame = Frame::new(&columns);
        let each = ranked.len().div_ceil(MOST_CASES).max(1);
        for (at, (case, record)) in ranked.iter().enumerate() {
            if at % each != 0 && !stay.contains(&case.index) {
                continue;
            }
            let mut row = vec![Json::from(case.index)];
            row.extend(case.values.iter().map(|value| match value {
                Json::Object(_) | Json::Array(_) | Json::Bool(_) => Json::from(value.to_string()),
                plain => plain.clone(),
            }));
            row.extend(record.measures.iter().map(|value| value.map_or(Json::Null, Json::from)));
            frame.push(row);
        }
        let left_out = ranked.len() - frame.rows.len();
        Self { frame, axes: axes.len(), left_out }
    }

    fn columns(&self, of: impl Fn(usize) -> bool) -> Frame {
        let kept = |at: &usize| *at == 0 || of(*at);
        let places: Vec<usize> = (0..self.frame.columns.len()).filter(kept).collect();
        Frame {
            columns: places.iter().map(|at| self.frame.columns[*at].clone()).collect(),
            rows: self
                .frame
                .rows
                .iter()
                .map(|row| places.iter().map(|at| row[*at].clone()).collect())
                .collect(),
        }
    }
}

/// A measure's column: another name where an axis has its own.
fn own(measure: &str, taken: &[&str]) -> String {
    if taken.contains(&measure) { format!("result.{measure}") } else { measure.to_owned() }
}

fn unit(measure: &str) -> Unit {
    let last = measure.rsplit('.').next().unwrap_or(measure);
    const SHARES: [&str; 5] =
        ["mfu", "goodput", "exposed_communication", "max_utilisation", "busiest_utilisation"];
    match last {
        last if SHARES.contains(&last) => Unit::Share,
        last if last.ends_with("tokens_per_s") => Unit::Number,
        last if last.ends_with("_s") || measure.contains("_s.") => Unit::Seconds,
        last if last.ends_with("_bps") => Unit::BitsPerSecond,
        last if last.ends_with("_bytes") => Unit::Bytes,
        last if last.ends_with("_w") => Unit::Watts,
        last if last.ends_with("_usd") || last.starts_with("usd_") => Unit::Dollars,
        _ => Unit::Number,
    }
}

impl Answer for Show {
    fn sheet(&self) -> Sheet {
        let goal = &self.goals[0];
        let way = if goal.more_is_better { "Largest" } else { "Smallest" };
        let names: Vec<String> = self.goals.iter().map(Goal::words).collect();
        let title = format!("Sweep {}: {}", self.folder, names.join(", "));
        let mut sheet = self.status.on(Sheet::new().heading(title).text(self.about.clone()));
        for measure in &self.unseen {
            sheet = sheet.note(format!("no result has a number `{measure}`"));
        }
        let (table, left_out) = rows::table(&self.best, &self.varying, (&self.goals, self.width));
        sheet = sheet.heading(format!("{way} {}", goal.name)).table(table);
        if self.best.iter().chain(&self.pareto).any(|row| !row.is_product) {
            sheet = sheet.text(
                "A line of several cases names the values that they have; where there are more \
                 combinations than cases, some are on other lines.",
            );
        }
        for remark in &self.remarks {
            sheet = sheet.text(remark.clone());
        }
        if !left_out.is_empty() {
            sheet = sheet.hint(format!(
                "No room for {}: the table of all cases (--report FILE.html) and --json have them.",
                left_out.join(", ")
            ));
        }
        sheet = self.with_charts(sheet);
        sheet = self.with_front(sheet);
        sheet = self.with_sensitivity(sheet);
        sheet = self.with_scaling(sheet);
        self.with_failures(sheet).on_page(self.all_cases()).on_page(self.grid_file())
    }
}

impl Show {
    /// Every case with every measure.
    fn all_cases(&self) -> Sheet {
        let (table, _) = rows::table(&self.all, &self.varying, (&self.goals, usize::MAX));
        let sheet = Sheet::new().heading("All cases").table(table);
        match self.all.len() {
            MOST_CASES => sheet.text(format!(
                "The best {MOST_CASES}: the folder has every case (`fatflow sweep show --json`)."
            )),
            _ => sheet,
        }
    }

    /// The grid to copy, and what runs it again.
    fn grid_file(&self) -> Sheet {
        let again = format!("fatflow sweep run grid.toml --out {}", self.folder);
        Sheet::new().heading("The grid").verbatim(self.grid.trim_end()).verbatim(again)
    }

    fn with_charts(&self, sheet: Sheet) -> Sheet {
        let Drawn { frame, left_out, axes } = &self.drawn;
        if frame.rows.len() < 2 {
            return sheet;
        }
        let (names, goal) = (&frame.columns[1 + axes..], &self.goals[0]);
        let main = names[goal.at].clone();
        let thinned = match left_out {
            0 => String::new(),
            left_out => {
                format!(" {} of the cases between are left out.", grouped(*left_out as u64))
            }
        };
        let caption = format!(
            "A line is a case, its colour {}. Drag over an axis to choose cases here and in the \
             charts below; a click frees them.{thinned}",
            goal.name
        );
        let shown = |at: usize| at <= *axes || at < 1 + axes + 6 || at == 1 + axes + goal.at;
        let parallel =
            Chart::new(ChartKind::Parallel, "Every case of the sweep", self.drawn.columns(shown))
                .coloured_by(&main)
                .legend(&goal.name, unit(&goal.name))
                .linked_by("case")
                .caption(caption);
        let mut sheet = sheet.heading("Case by case").chart(parallel);
        let goals: Vec<usize> = self.goals[1..].iter().map(|goal| goal.at).collect();
        let others = (0..names.len()).filter(|at| *at != goal.at && !goals.contains(at));
        // Money first: what follows from the step alone tells nothing new beside it.
        let (money, rest): (Vec<usize>, Vec<usize>) =
            others.partition(|at| names[*at].contains("usd"));
        let others: Vec<usize> = goals.iter().copied().chain(money).chain(rest).collect();
        // What is the same in all cases goes together with nothing.
        let varies = |at: &usize| {
            let mut values = frame.rows.iter().map(|row| &row[1 + axes + *at]);
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        let others = others.into_iter().filter(|at| varies(at) && varies(&goal.at));
        for at in others.take(MOST_SCATTERS) {
            let name = &names[at];
            let data = self.drawn.columns(|place| {
                place <= *axes || [at, goal.at].contains(&(place.wrapping_sub(1 + axes)))
            });
            let chart =
                Chart::new(ChartKind::Scatter, format!("How {main} and {name} go together"), data)
                    .axes(&main, name)
                    .labels(&main, name)
                    .units(unit(&main), unit(name))
                    .linked_by("case")
                    .caption("A point is a case. Drag over some to choose them everywhere.");
            sheet = sheet.chart(chart);
        }
        sheet
    }

    fn with_front(&self, sheet: Sheet) -> Sheet {
        if self.pareto.is_empty() {
            return sheet;
        }
        let names: Vec<String> = self.goals.iter().map(Goal::words).collect();
        let text = "Of these cases none can be bettered in one goal without losing in another.";
        let sheet = sheet.heading(format!("Pareto front: {}", names.join(", ")));
        let shown = &self.pareto[..self.pareto.len().min(MOST_FRONT)];
        let (table, _) = rows::table(shown, &self.varying, (&self.goals, self.width));
        let sheet = sheet.text(text).table(table);
        match &self.pareto[shown.len()..] {
            [] => sheet,
            more => {
                let cases: usize = more.iter().map(|row| row.cases).sum();
                let (lines, cases) = (grouped(more.len() as u64), grouped(cases as u64));
                sheet.text(format!("And {lines} more with {cases} cases: --json has all."))
            }
        }
    }

    fn with_sensitivity(&self, sheet: Sheet) -> Sheet {
        if self.sensitivity.is_empty() {
            return sheet;
        }
        let name = &self.goals[0].name;
        let mut frame = Frame::new(&["axis", "share"]);
        let mut unsaid = Vec::new();
        for Sensitivity { key, share } in &self.sensitivity {
            match share {
                Some(share) => frame.push(vec![Json::from(key.as_str()), Json::from(*share)]),
                None => unsaid.push(key.as_str()),
            }
        }
        let chart = Chart::new(ChartKind::Bars, format!("Share of the variance of {name}"), frame)
            .axes("share", "axis")
            .units(Unit::Share, Unit::Number)
            .caption(
                "The variance of the means over an axis's values, over the whole, less what chance \
                 explains.",
            );
        let text = format!(
            "The share of the variance of {name} over the cases that each axis explains by itself: \
             1 (100 %) if it alone decides, 0 if {name} is the same whatever its value. What is \
             missing to 1 is what axes do together."
        );
        let sheet = sheet.heading(format!("What decides {name}")).text(text);
        let some = unsaid.len() < self.sensitivity.len();
        let sheet = if some { sheet.chart(chart) } else { sheet };
        match &unsaid[..] {
            [] => sheet,
            unsaid => sheet.text(format!(
                "Too few cases for each value: what {} explain cannot be said.",
                unsaid.join(", ")
            )),
        }
    }

    fn with_scaling(&self, sheet: Sheet) -> Sheet {
        if self.scaling.is_empty() {
            return sheet;
        }
        let columns = ["scaling", "GPUs", "against", "speed-up", "efficiency", "least", "most"];
        let align = |at: usize| if at == 0 { Align::Left } else { Align::Right };
        let columns = columns.into_iter().enumerate().map(|(at, name)| (name, align(at)));
        let mut table = Table::new(columns);
        let mut frame = Frame::new(&["GPUs", "efficiency", "scaling"]);
        for one in &self.scaling {
            let kind = format!("{:?}", one.kind).to_lowercase();
            let percent = |share: f64| format!("{:.1} %", 100.0 * share);
            let (gpus, smallest) = (grouped(one.gpus), grouped(one.smallest));
            let [mean, least, most] =
                [one.efficiency, one.efficiency_min, one.efficiency_max].map(percent);
            frame.push(vec![
                Json::from(one.gpus),
                Json::from(one.efficiency),
                Json::from(kind.as_str()),
            ]);
            table.row([kind, gpus, smallest, format!("{:.2}", one.speedup), mean, least, most]);
        }
        let chart = Chart::new(ChartKind::Line, "Efficiency over the number of GPUs", frame)
            .axes("GPUs", "efficiency")
            .by("scaling")
            .labels("GPUs", "efficiency")
            .units(Unit::Number, Unit::Share)
            .log_x();
        let text = "Tokens per second against the smallest case that differs in nothing else (the \
                    acceleration ratio), and that over the ratio of GPUs. Strong: the same batch; \
                    weak: a batch that grows with the GPUs.";
        sheet.heading("Over sizes").text(text).table(table).chart(chart)
    }

    fn with_failures(&self, sheet: Sheet) -> Sheet {
        if self.failures.is_empty() {
            return sheet;
        }
        let mut sheet = sheet.heading("Cases that failed");
        for FailureReason { error, cases, first } in self.failures.iter().take(MOST_FAILURES) {
            sheet = sheet.text(match cases {
                1 => format!("Case {first}: {error}"),
                cases => format!("{} cases, first {first}: {error}", grouped(*cases as u64)),
            });
        }
        match self.failures.len().checked_sub(MOST_FAILURES).filter(|more| 0 < *more) {
            Some(more) => sheet.text(format!("And {more} other reasons: --json has all.")),
            None => sheet,
        }
    }
}
