//! The Python package's native half: every command as a function, its tables as Arrow.
//!
//! Nothing is computed here. A function loads a scenario as the command does, asks the `commands`
//! crate, and returns an [`Answer`](answer::Answer): the very JSON that the command prints, the
//! page that `--report` writes, and the tables that its files hold. The half that people see is
//! Python (`python/fatflow`): it turns JSON into typed objects.
//!
//! # Map of the modules, in reading order
//!
//! * [`given`]: a scenario, as Python names it.
//! * [`ask`]: the commands. [`guide`]: advice and observations. [`many`]: sweeps.
//! * [`answer`]: what they answer.
//! * [`watched`]: how work is done: off the interpreter's lock, with an ear for Ctrl-C.
//! * [`batches`]: a sweep for whoever has others execute it.
//! * [`table`]: tables as Arrow streams. [`transfers`]: a stream as traffic.

mod answer;
mod ask;
mod batches;
mod given;
mod guide;
mod many;
mod table;
mod transfers;
mod watched;

use pyo3::prelude::*;

/// The native half of fatflow.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", commands::VERSION)?;
    module.add_class::<answer::Answer>()?;
    module.add_class::<given::Scenario>()?;
    module.add_class::<batches::Sweep>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(ask::presets, module)?)?;
    module.add_function(wrap_pyfunction!(ask::ask_run, module)?)?;
    module.add_function(wrap_pyfunction!(ask::ask_collective, module)?)?;
    module.add_function(wrap_pyfunction!(ask::ask_traffic, module)?)?;
    module.add_function(wrap_pyfunction!(ask::ask_topo, module)?)?;
    module.add_function(wrap_pyfunction!(ask::ask_compare, module)?)?;
    module.add_function(wrap_pyfunction!(ask::ask_validate, module)?)?;
    module.add_function(wrap_pyfunction!(guide::ask_advise, module)?)?;
    module.add_function(wrap_pyfunction!(guide::ask_observe, module)?)?;
    module.add_function(wrap_pyfunction!(many::sweep_plan, module)?)?;
    module.add_function(wrap_pyfunction!(many::sweep_run, module)?)?;
    module.add_function(wrap_pyfunction!(many::sweep_exec, module)?)?;
    module.add_function(wrap_pyfunction!(many::sweep_merge, module)?)?;
    module.add_function(wrap_pyfunction!(many::sweep_show, module)?)?;
    module.add_function(wrap_pyfunction!(table::table, module)?)?;
    module.add_function(wrap_pyfunction!(table::flows_for_tests, module)?)
}
