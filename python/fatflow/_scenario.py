"""Scenarios, and the commands on them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Optional, Protocol, Union, overload

from . import _native
from ._base import Run
from ._errors import WrongUsage
from .results import (
    Advice,
    CollectiveRun,
    Comparison,
    CrossCheck,
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

Engine = Literal["analytic", "flow", "packet"]
"""How the network is computed: closed forms, max-min fair flows, or every packet."""

Collective = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
]
"""The collectives by the names that people know."""

Goal = Literal["step", "goodput", "cost"]
"""What an advice should make better."""

Path = Union[str, "os.PathLike[str]"]


class ArrowStream(Protocol):
    """Whatever hands out an Arrow stream: tables of polars, pyarrow, pandas, DuckDB, and ours."""

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        """The stream."""


class Scenario:
    """A cluster, its fabric and network, and a job or traffic on it.

    >>> import fatflow
    >>> scenario = fatflow.Scenario.preset("small-128").set("network.routing.qps", 16)
    >>> scenario.run(engine="flow", seed=3).step_s > 0
    True

    A scenario never changes: `set` returns another one. It is read when something is asked of it,
    so that this is when an `InvalidInput` says what is wrong with it. Variables of the environment
    that begin with `FATFLOW_SET_`, and `FATFLOW_CATALOGUE`, count as they do for the command.
    """

    def __init__(self, tables: Mapping[str, Any]) -> None:
        """A scenario from the tables of its file: `Scenario({"from": "small-128", "seed": 7})`."""
        self._native = _native.Scenario.of_json(json.dumps(_plain(tables)))

    @classmethod
    def preset(cls, name: str) -> Scenario:
        """One that comes with fatflow; `fatflow.presets()` has their names."""
        return cls._of(_native.Scenario.preset(name))

    @classmethod
    def file(cls, path: Path) -> Scenario:
        """A scenario file."""
        path = os.fspath(path)
        # A file may be called as a preset is.
        named = path if os.path.dirname(path) else os.path.join(".", path)
        return cls._of(_native.Scenario(named, []))

    @classmethod
    def _of(cls, native: _native.Scenario) -> Scenario:
        scenario = cls.__new__(cls)
        scenario._native = native
        return scenario

    @overload
    def set(self, key: str, value: Any, /) -> Scenario: ...
    @overload
    def set(self, values: Mapping[str, Any], /) -> Scenario: ...
    def set(self, key: Union[str, Mapping[str, Any]], value: Any = None, /) -> Scenario:
        """The same scenario with one value set, or several: `set("network.routing.qps", 16)`,
        `set({"job.parallel.tp": 8, "job.parallel.pp": 2})`. Quantities are text with their unit
        ("400Gbps"), as in a file."""
        values = key if isinstance(key, Mapping) else {key: value}
        return self._of(self._native.with_(_assignments(values)))

    @property
    def toml(self) -> Optional[str]:
        """The text of a scenario that is in no file, without what was set."""
        return self._native.text

    def __repr__(self) -> str:
        return f"<fatflow scenario {' '.join([self._native.name, *self._native.set])}>"

    @overload
    def run(
        self,
        *,
        transfers: ArrowStream,
        engine: Engine = "flow",
        seed: Optional[int] = None,
        seeds: int = 1,
        threads: Optional[int] = None,
        series: Optional[str] = None,
        series_links: Sequence[str] = (),
        series_pairs: Sequence[int] = (),
        force: bool = False,
        charts: Optional[bool] = None,
    ) -> TrafficRun: ...
    @overload
    def run(
        self,
        *,
        engine: Literal["all"],
        seed: Optional[int] = None,
        force: bool = False,
    ) -> CrossCheck: ...
    @overload
    def run(
        self,
        *,
        transfers: None = None,
        engine: Engine = "flow",
        seed: Optional[int] = None,
        seeds: int = 1,
        threads: Optional[int] = None,
        whole: bool = False,
        days: Optional[int] = None,
        steps: Optional[int] = None,
        series: Optional[str] = None,
        series_links: Sequence[str] = (),
        series_pairs: Sequence[int] = (),
        force: bool = False,
        charts: Optional[bool] = None,
    ) -> Run: ...
    def run(
        self,
        *,
        transfers: Optional[ArrowStream] = None,
        engine: str = "flow",
        seed: Optional[int] = None,
        seeds: int = 1,
        threads: Optional[int] = None,
        whole: bool = False,
        days: Optional[int] = None,
        steps: Optional[int] = None,
        series: Optional[str] = None,
        series_links: Sequence[str] = (),
        series_pairs: Sequence[int] = (),
        force: bool = False,
        charts: Optional[bool] = None,
    ) -> Union[Run, CrossCheck]:
        """Runs the scenario: a training step, several jobs (`[[jobs]]`), or synthetic traffic.

        `transfers`: traffic of one's own in place of the scenario's, as an Arrow table with the
        columns `src`, `dst` (numbers of NICs), `bytes`, and if wanted `start_ns` and `after` (the
        number of an earlier row, or a list of them, that must have finished before).
        `seeds`: run so many seeds from the first on, on `threads` threads.
        `whole`: put every rank of a job's step on one clock, in one run. `days`: play so many days
        of the job by dice (`campaign`); `steps`: run so many steps in a row (`steps`).
        `series`: measure over time, once in an interval such as "10us"; `series_links` and
        `series_pairs` say of what. `force`: run even if it will take long.
        `charts`: also make what the page's charts need; by default in notebooks.
        `engine="all"` asks every engine and returns a `CrossCheck`.
        """
        how = _how(engine, seed, seeds, threads, force)
        wanted = _in_notebook() if charts is None else charts
        measured: dict[str, Any] = {
            "whole": whole,
            "days": days,
            "steps": steps,
            "series": series,
            "series_links": list(series_links),
            "series_pairs": list(series_pairs),
            "charts": wanted,
        }

        def ask(charts: bool) -> _native.Answer:
            return _native.run(self._native, how, {**measured, "charts": charts}, transfers)

        answer = ask(wanted)
        if engine == "all":
            return CrossCheck._of(answer)
        again = None if wanted else lambda: ask(True)
        result = json.loads(answer.json)["result"]
        if "jobs" in result:
            return JobsRun._of(answer)
        return (JobRun if "step_s" in result else TrafficRun)._of(answer, again)

    @overload
    def collective(
        self,
        collective: Collective,
        *,
        min: Union[int, str] = "1M",
        max: Union[int, str] = "1G",
        factor: int = 2,
        gpus: Optional[int] = None,
        iterations: int = 1,
        measured: Optional[Path] = None,
        engine: Engine = "flow",
        seed: Optional[int] = None,
        seeds: int = 1,
        threads: Optional[int] = None,
        force: bool = False,
    ) -> CollectiveRun: ...
    @overload
    def collective(
        self,
        collective: Collective,
        *,
        engine: Literal["all"],
        min: Union[int, str] = "1M",
        max: Union[int, str] = "1G",
        factor: int = 2,
        gpus: Optional[int] = None,
        seed: Optional[int] = None,
        force: bool = False,
    ) -> CrossCheck: ...
    def collective(
        self,
        collective: str,
        *,
        min: Union[int, str] = "1M",
        max: Union[int, str] = "1G",
        factor: int = 2,
        gpus: Optional[int] = None,
        iterations: int = 1,
        measured: Optional[Path] = None,
        engine: str = "flow",
        seed: Optional[int] = None,
        seeds: int = 1,
        threads: Optional[int] = None,
        force: bool = False,
    ) -> Union[CollectiveRun, CrossCheck]:
        """Runs one collective over message sizes from `min` to `max`, each `factor` times the one
        before: bytes, or text as nccl-tests takes it ("1M" is 1,048,576 bytes). `measured`: a file
        of what nccl-tests printed, to stand beside the prediction. `iterations`: each size so often
        in a row, with queue pairs, rates and queues kept."""
        sweep = {
            "collective": collective,
            "min": _size(min),
            "max": _size(max),
            "factor": factor,
            "gpus": gpus,
            "iterations": iterations,
            "measured": None if measured is None else os.fspath(measured),
        }
        how = _how(engine, seed, seeds, threads, force)
        answer = _native.collective(self._native, sweep, how)
        return CrossCheck._of(answer) if engine == "all" else CollectiveRun._of(answer)

    def traffic(self) -> Traffic:
        """What the job puts on the wire: by axis and primitive, elephants, bursts, entropy."""
        return Traffic._of(_native.traffic(self._native))

    @overload
    def topo(self, *, domains: bool = False, rack_servers: Optional[int] = None) -> Topo: ...
    @overload
    def topo(self, *, grows_into: Union[Scenario, str]) -> Growth: ...
    def topo(
        self,
        *,
        domains: bool = False,
        rack_servers: Optional[int] = None,
        grows_into: Optional[Union[Scenario, str]] = None,
    ) -> Union[Topo, Growth]:
        """What the fabric is: tiers, links, bisection, paths, cost and power.

        `domains`: also what one failure of each kind of part stops, in racks of `rack_servers`.
        `grows_into`: what going to another fabric keeps, buys, moves and leaves over."""
        if grows_into is None:
            return Topo._of(_native.topo(self._native, domains, rack_servers, None))
        to = _scenario(grows_into)._native
        return Growth._of(_native.topo(self._native, domains, rack_servers, to))

    def advise(
        self,
        *,
        goal: Goal = "step",
        within: Optional[float] = None,
        future: bool = False,
        fix: Iterable[str] = (),
        budget: Union[float, str] = "60s",
        seeds: int = 6,
        engine: Engine = "flow",
        seed: Optional[int] = None,
        threads: Optional[int] = None,
    ) -> Advice:
        """Tries changes by simulation and ranks what they gain.

        `goal`: "step", "goodput" or "cost". `within`: the cheapest fabric that makes the step at
        most this share longer. `future`: the four future directions instead. `fix`: keys that may
        not change. `budget`: begin nothing new after so many seconds (or "60s"). `result.write`
        makes the files of a change, `result.check` holds a cluster's files against them."""
        if isinstance(fix, str):
            raise TypeError("fix is a list of keys")
        wanted = {
            "goal": goal,
            "within": within,
            "future": future,
            "fix": list(fix),
            "budget": budget if isinstance(budget, str) else f"{budget}s",
        }
        answer = _native.advise(self._native, wanted, _how(engine, seed, seeds, threads, False))
        return Advice._of(answer)


def presets() -> list[str]:
    """The names of the scenarios that come with fatflow."""
    return _native.presets()


def compare(
    scenarios: Union[Iterable[Union[Scenario, str]], Mapping[str, Union[Scenario, str]]] = (),
    *,
    vary: Optional[Mapping[str, Iterable[Any]]] = None,
    engine: Engine = "flow",
    seed: Optional[int] = None,
    seeds: int = 1,
    threads: Optional[int] = None,
    force: bool = False,
) -> Comparison:
    """Scenarios side by side: a list of scenarios, presets' names and files, or a mapping from the
    columns' names; without any, the deployments of the comparative analysis. `vary` runs each with
    every combination of values: `vary={"network.routing.qps": [1, 4, 16]}`."""
    named: list[tuple[str, Scenario]]
    if isinstance(scenarios, Mapping):
        named = [(str(name), _scenario(scenario)) for name, scenario in scenarios.items()]
    else:
        named = [(_column(one), one) for one in map(_scenario, scenarios)]
    if vary and not named:
        named = [(name, Scenario.preset(name)) for name in _DEPLOYMENTS]
    values = {key: ",".join(map(_toml, own)) for key, own in (vary or {}).items()}
    varied = [f"{key}={written}" for key, written in values.items()]
    how = _how(engine, seed, seeds, threads, force)
    given = [(name, scenario._native) for name, scenario in named]
    return Comparison._of(_native.compare(given, varied, how))


_DEPLOYMENTS = ("gpt4-azure", "llama3-meta-roce", "deepseek-v2", "grok4-colossus", "amd-mi300x")


def advise(
    scenario: Union[Scenario, str],
    *,
    goal: Goal = "step",
    within: Optional[float] = None,
    future: bool = False,
    fix: Iterable[str] = (),
    budget: Union[float, str] = "60s",
    seeds: int = 6,
    engine: Engine = "flow",
    seed: Optional[int] = None,
    threads: Optional[int] = None,
) -> Advice:
    """What to change in a scenario, a preset or a file: `Scenario.advise`."""
    return _scenario(scenario).advise(
        goal=goal,
        within=within,
        future=future,
        fix=fix,
        budget=budget,
        seeds=seeds,
        engine=engine,
        seed=seed,
        threads=threads,
    )


def observe(
    *files: Path,
    scenario: Optional[Union[Scenario, str]] = None,
    calibrate: Optional[Path] = None,
    engine: Optional[Engine] = None,
    seed: Optional[int] = None,
    threads: Optional[int] = None,
) -> Observation:
    """Reads what a real cluster wrote: logs, benchmarks, traces, captures, counters; folders and
    archives too. A file that cannot be opened, or files of which nothing is understood, are an
    `InvalidInput`.

    `scenario`: predict every observed collective and the step on it (`result.predicted`), on the
    flow engine unless `engine` says otherwise. `calibrate`: fit the constants that the files
    determine (`result.calibration`) and write a scenario with them to this file; with closed forms
    unless `engine` says otherwise."""
    beside = {"calibrate": calibrate, "engine": engine, "seed": seed, "threads": threads}
    if scenario is None and any(value is not None for value in beside.values()):
        given = ", ".join(name for name, value in beside.items() if value is not None)
        raise WrongUsage(f"{given}: for a prediction; give a scenario too")
    how = _how(engine or ("flow" if calibrate is None else "analytic"), seed, 1, threads, False)
    native = None if scenario is None else _scenario(scenario)._native
    out = None if calibrate is None else os.fspath(calibrate)
    return Observation._of(_native.observe([os.fspath(one) for one in files], native, out, how))


def validate(
    *inputs: Path,
    engine: Engine = "flow",
    threshold: Optional[float] = None,
    ratchet: Optional[Path] = None,
    set: Optional[Mapping[str, Any]] = None,
    threads: Optional[int] = None,
) -> Validation:
    """Scores predictions: every published measurement beside what is predicted, with the error.
    Without files those that come with fatflow are scored. `result.passed` says whether `threshold`
    (the most that a family's mean error may be) and `ratchet` (a file of errors that must not have
    grown) were kept."""
    how = _how(engine, None, 1, threads, False)
    kept = None if ratchet is None else os.fspath(ratchet)
    paths = [os.fspath(path) for path in inputs]
    return Validation._of(_native.validate(paths, threshold, kept, _assignments(set or {}), how))


def sweep(
    grid: Union[Path, Mapping[str, Any]],
    out: Path,
    *,
    engine: Optional[Engine] = None,
    threads: Optional[int] = None,
    goals: Iterable[str] = (),
    replace: bool = False,
) -> Sweep:
    """Runs many scenarios: a grid file, or its tables, such as
    `{"from": "small-128", "axes": {"network.routing.qps": [1, 4, 16]}}`.

    Results are kept in the folder `out`; a sweep that was stopped continues where it was. A folder
    that holds the sweep of another grid is refused unless `replace` says so.
    `result.cases` is the table of all cases with their measures."""
    folder = os.fspath(out)
    answer = _native.sweep_run(_grid(grid, engine, threads), folder, list(goals), replace)
    result = Sweep._of(answer)
    result._out = folder
    return result


def _grid(
    grid: Union[Path, Mapping[str, Any]], engine: Optional[str], threads: Optional[int]
) -> dict[str, Any]:
    """A grid as the native half takes it."""
    tables = isinstance(grid, Mapping)
    return {
        "path": None if isinstance(grid, Mapping) else os.fspath(grid),
        "json": json.dumps(_plain(grid)) if tables else None,
        "engine": engine,
        "threads": threads,
    }


def _scenario(scenario: Union[Scenario, str]) -> Scenario:
    if isinstance(scenario, Scenario):
        return scenario
    return Scenario._of(_native.Scenario(os.fspath(scenario), []))


def _column(scenario: Scenario) -> str:
    native = scenario._native
    name = os.path.splitext(os.path.basename(native.name))[0]
    return " ".join([name, *(text.replace('"', "") for text in native.set)])


def _how(
    engine: str, seed: Optional[int], seeds: int, threads: Optional[int], force: bool
) -> dict[str, Any]:
    return {"engine": engine, "seed": seed, "seeds": seeds, "threads": threads, "force": force}


def _size(size: Union[int, str]) -> str:
    return size if isinstance(size, str) else f"{size}B"


def _in_notebook() -> bool:
    """Whether a notebook will show what comes last in a cell."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules


def _assignments(values: Mapping[str, Any]) -> list[str]:
    for key in values:
        if not isinstance(key, str) or "=" in key:
            raise TypeError(f"{key!r} is not the path of a setting, such as network.routing.qps")
    return [f"{key}={_toml(value)}" for key, value in values.items()]


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers of numpy become Python's, paths become text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "item"):
        return _plain(value.item())
    raise TypeError(f"{value!r} is no value of a setting: text, a number, a truth, a list, a table")


def _toml(value: Any) -> str:
    """A value as TOML writes it on one line."""
    value = _plain(value)
    if isinstance(value, dict):
        inside = (f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items())
        return "{ " + ", ".join(inside) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)
