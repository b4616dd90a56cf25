//! `[targets]` of every column.

use super::Column;
use crate::targets::{TargetRow, of_fabric};

/// What each column should reach; a name begins with its column's.
pub(super) fn of_columns(names: &[String], columns: &[Column]) -> Vec<TargetRow> {
    let mut rows = Vec::new();
    for (column, scenario) in names.iter().zip(columns) {
        let job = scenario.runs.first().and_then(|run| run.job.as_ref());
        let own = match job {
            Some((step, _)) => step.targets.clone(),
            None => of_fabric(&scenario.loaded, || scenario.fabric.clone()),
        };
        let named = |row: TargetRow| TargetRow { name: format!("{column}: {}", row.name), ..row };
        rows.extend(own.into_iter().map(named));
    }
    rows
}
