"""fatflow: what traffic a training job puts on a scale-out fabric, what the fabric does with it,
and what that costs the job.

>>> import fatflow
>>> run = fatflow.Scenario.preset("small-128").set("network.routing.qps", 16).run(seed=3)
>>> 0 < run.mfu < 1
True

The answers are those of the `fatflow` command, to the last digit: attributes are the keys of its
JSON (`fatflow.results`), `str(run)` is its text, and in a notebook its page with charts is shown.
Anything long is an Arrow stream: `polars.DataFrame(run.links)`.
"""

from __future__ import annotations

from . import results
from ._base import Cases, Envelope, Flows, Record, Result, Rows, Run, Unused
from ._errors import Error, InvalidInput, RunFailed, ScenarioWarning, UnusedInput, WrongUsage
from ._native import VERSION as __version__
from ._native import Table
from ._scenario import Scenario, advise, compare, observe, presets, sweep, validate
from .results import (
    Advice,
    CollectiveRun,
    Comparison,
    CrossCheck,
    FilesCheck,
    Growth,
    JobRun,
    JobsRun,
    Observation,
    Sweep,
    Topo,
    Traffic,
    TrafficRun,
    Validation,
)

__all__ = [
    "Advice",
    "Cases",
    "CollectiveRun",
    "Comparison",
    "CrossCheck",
    "Envelope",
    "Error",
    "FilesCheck",
    "Flows",
    "Growth",
    "InvalidInput",
    "JobRun",
    "JobsRun",
    "Observation",
    "Record",
    "Result",
    "Rows",
    "Run",
    "RunFailed",
    "Scenario",
    "ScenarioWarning",
    "Sweep",
    "Table",
    "Topo",
    "Traffic",
    "TrafficRun",
    "Unused",
    "UnusedInput",
    "Validation",
    "WrongUsage",
    "__version__",
    "advise",
    "compare",
    "observe",
    "presets",
    "results",
    "sweep",
    "validate",
]
