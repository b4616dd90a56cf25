"""Sweeps on a Ray cluster: ``fatflow sweep run grid.toml --ray ADDRESS``, or :func:`run`.

Cases go out in batches, as tasks that ask for the memory that they are estimated to need. What a
batch computed comes back to the driver as one file of results, and the driver alone writes it into
the sweep's folder, so the nodes need no file system in common. A file counts once it is there,
whole, with its checksum; what a task returns otherwise decides nothing. When all tasks are over the
folder is compared with the plan, and what is missing goes out again.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Union

from . import _native
from ._errors import Error

try:
    # By name: it need not be there where types are checked.
    ray: Any = importlib.import_module("ray")
    importlib.import_module("ray.exceptions")
except ImportError as error:
    raise ImportError("sweeps on Ray need Ray: pip install 'fatflow[ray]'") from error

__all__ = ["run"]

#: Seconds of estimated work that are worth a task of their own.
BATCH_S = 2.0
#: Tasks that wait in the cluster for each of its cores; more would only fill Ray's memory.
TASKS_PER_CORE = 2
#: How long a cluster may be without any core.
EMPTY_S = 600.0

Progress = Callable[[int, int, str], None]


@dataclasses.dataclass(frozen=True)
class _Inputs:
    """What a grid is read from; the nodes read the same."""

    text: str
    folder: str
    settings: list[str]
    seed: Optional[int]
    engine: Optional[str]
    catalogue: list[str]
    environment: list[tuple[str, str]]


#: What this process has read last: a grid takes a while.
_read: list[tuple[str, Any]] = []


def _execute(inputs: _Inputs, plan: str, cases: list[int]) -> tuple[str, bytes]:
    """Executes some cases, on a node: the name and the bytes of a file of results."""
    if not _read or _read[0][0] != plan:
        _read[:] = [(plan, _native.Sweep(inputs, plan))]
    with tempfile.TemporaryDirectory(prefix="fatflow-") as folder:
        results: tuple[str, bytes] = _read[0][1].execute(cases, folder)
    return results


class _Cluster:
    """Tasks under way, never more than a window of them."""

    def __init__(self, inputs: _Inputs, plan: str, memory: int, retries: int) -> None:
        # Every node needs them once.
        self.inputs, self.plan = ray.put(inputs), ray.put(plan)
        # A full disk is worth another try, on another node perhaps; a wrong input is not.
        options = {"num_cpus": 1, "memory": memory, "max_retries": retries}
        self.task = ray.remote(retry_exceptions=[OSError], **options)(_execute)
        self.under_way: dict[Any, list[int]] = {}
        self.last_seen = time.monotonic()

    def cores(self) -> int:
        cores = int(ray.cluster_resources().get("CPU", 0))
        if cores:
            self.last_seen = time.monotonic()
        elif EMPTY_S < time.monotonic() - self.last_seen:
            raise RuntimeError(f"the Ray cluster has had no core for {EMPTY_S:.0f} s")
        return cores

    def fill(self, waiting: list[list[int]]) -> None:
        window = max(2, TASKS_PER_CORE * self.cores())
        while waiting and len(self.under_way) < window:
            batch = waiting.pop()
            self.under_way[self.task.remote(self.inputs, self.plan, batch)] = batch

    def finished(self) -> list[Any]:
        ready: list[Any]
        ready, _ = ray.wait(list(self.under_way), num_returns=1, timeout=1.0)
        for reference in ready:
            del self.under_way[reference]
        return ready


def _largest_node() -> int:
    nodes = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return max((int(node.get("memory", 0)) for node in nodes if node.get("CPU")), default=0)


def _batches(cases: Sequence[int], seconds: float, cores: int) -> list[list[int]]:
    """Cases in batches of the right length, small enough to keep all cores busy."""
    size = max(1, round(BATCH_S / max(seconds, 1e-6)))
    size = max(1, min(size, -(-len(cases) // max(1, TASKS_PER_CORE * cores))))
    # Taken from the end.
    return [list(cases[at : at + size]) for at in range(0, len(cases), size)][::-1]


def _round(
    sweep: Any, cluster: _Cluster, waiting: list[list[int]], out: str, tell: Progress
) -> list[str]:
    """Executes batches until none is left; why some did not come back."""
    total = sum(map(len, waiting))
    done, reasons = 0, []
    while waiting or cluster.under_way:
        cluster.fill(waiting)
        for reference in cluster.finished():
            try:
                name, content = ray.get(reference)
                done += sweep.take(out, name, content)
            except (ray.exceptions.RayError, Error) as error:
                reasons.append(str(error).strip().splitlines()[-1])
        tell(done, total, f"{len(cluster.under_way)} tasks under way")
    return reasons


def run(
    grid: Union[str, Path],
    out: Union[str, Path],
    address: str = "auto",
    *,
    settings: Sequence[str] = (),
    seed: Optional[int] = None,
    engine: Optional[str] = None,
    catalogue: Sequence[str] = (),
    plan: str = "",
    retries: int = 3,
    runtime_env: Optional[dict[str, Any]] = None,
    progress: Optional[Progress] = None,
) -> dict[str, Any]:
    """Executes a sweep on a Ray cluster, continuing what is in ``out``, and merges it.

    ``retries`` is how often Ray runs a lost task again, and how often cases that are still missing
    then go out once more. ``runtime_env`` is Ray's; it can install fatflow on the nodes. Returns
    what ``fatflow sweep merge --json`` tells.
    """
    path, folder = Path(grid).resolve(), str(out)
    text = path.read_text(encoding="utf-8")
    own = [item for item in os.environ.items() if item[0].startswith("FATFLOW_SET_")]
    files = [str(Path(file).resolve()) for file in catalogue]
    inputs = _Inputs(text, str(path.parent), list(settings), seed, engine, files, own)
    sweep = _native.Sweep(inputs, None)
    if plan and sweep.plan != plan:
        raise RuntimeError(
            f"the Python package is fatflow {_native.VERSION} and plans {sweep.plan}, not {plan}:"
            " it must have the version of the command"
        )
    sweep.keep(folder)
    seconds, memory = sweep.estimate()
    tell = progress or (lambda done, total, text: None)

    here = not ray.is_initialized()
    if here:
        ray.init(address, log_to_driver=False, logging_level="WARNING", runtime_env=runtime_env)
    try:
        cluster = _Cluster(inputs, sweep.text(), memory, retries)
        reasons: list[str] = []
        for _ in range(1 + retries):
            missing = sweep.missing(folder)
            if not missing:
                break
            while not cluster.cores():
                tell(0, len(missing), "waiting for a node")
                time.sleep(0.2)
            if _largest_node() < memory:
                raise RuntimeError(
                    f"a task asks for {memory >> 20} MiB of memory; the largest node of the cluster"
                    f" has {_largest_node() >> 20} MiB"
                )
            batches = _batches(missing, seconds, cluster.cores())
            reasons = _round(sweep, cluster, batches, folder, tell)
        missing = sweep.missing(folder)
        if missing:
            why = "; ".join(sorted(set(reasons))[:5]) or "no task said why"
            raise RuntimeError(f"{len(missing)} cases are missing after {1 + retries} rounds: {why}")
    finally:
        if here:
            ray.shutdown()
    merged: dict[str, Any] = json.loads(sweep.merge(folder))
    return merged


def _show(done: int, total: int, text: str) -> None:
    print(f"\r\x1b[K{done} of {total} cases; {text}", end="", file=sys.stderr, flush=True)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m fatflow.ray", description=run.__doc__)
    parser.add_argument("grid", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--address", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--engine")
    parser.add_argument("--catalogue", action="append", default=[])
    parser.add_argument("--plan", default="", help="the plan that must come of it")
    parser.add_argument("--retries", type=int, default=3)
    parser.add_argument("--quiet", action="store_true")
    arguments = vars(parser.parse_args())
    shown = not arguments.pop("quiet") and sys.stderr.isatty()
    arguments["progress"] = _show if shown else None
    try:
        run(**arguments)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    except (OSError, RuntimeError, Error, ray.exceptions.RayError) as error:
        print(f"\n{error}" if shown else str(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Nodes find the functions of a module by its name, and this one is called `__main__` here.
    from fatflow.ray import _main as main

    sys.exit(main())
