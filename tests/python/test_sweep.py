"""Sweeps from Python: the command's results, and what those who hand out cases need."""

from __future__ import annotations

import json

import polars
import pytest

import fatflow
from fatflow import _native
from fatflow._scenario import _grid

GRID = {
    "from": "small-16",
    "engine": "flow",
    "axes": {"network.routing.qps": [1, 4], "seed": {"from": 0, "to": 2}},
    "keep": {"measures": ["step_s", "mfu"]},
}


def test_a_sweep_is_the_commands(tmp_path, fatflow_command):
    result = fatflow.sweep(GRID, tmp_path / "mine", threads=2)
    assert result.cases == result.done == 6 and result.missing == 0
    table = polars.DataFrame(result.cases)
    assert table.height == 6 and table["step_s"].min() > 0
    assert polars.DataFrame(result.machine).height == 6
    # The same grid by the command, from the file that the sweep has kept.
    grid, out = tmp_path / "mine/grid.toml", tmp_path / "other"
    assert fatflow_command("sweep", "run", grid, "--out", out).returncode == 0
    mine = (tmp_path / "mine/results.parquet").read_bytes()
    assert mine == (out / "results.parquet").read_bytes()
    shown = fatflow_command.json("sweep", "show", tmp_path / "mine")
    assert json.loads(fatflow.Sweep.read(tmp_path / "mine").json())["result"] == shown["result"]
    # A case is a run.
    run = fatflow.Scenario.preset("small-16").set("network.routing.qps", 4).run(seed=2)
    best = result.show("max:mfu").best[0]
    assert best["mfu"] == table["mfu"].max()
    steps = table.filter((polars.col("seed") == 2) & (polars.col("network.routing.qps") == 4))
    assert steps["step_s"].to_list() == [run.step_s]


def test_cases_may_be_handed_out(tmp_path):
    given, out = _grid(GRID, None, 1), str(tmp_path / "out")
    _native.sweep_plan(given, out)
    for cases in ([5, 0], [1, 2, 3], [3, 4]):
        summary = json.loads(_native.sweep_exec(given, out, cases).json)["result"]
        assert summary["failed"] == 0
    merged = json.loads(_native.sweep_merge(out).json)["result"]
    assert (merged["done"], merged["missing"], merged["duplicates"]) == (6, 0, 0)
    whole = fatflow.sweep(GRID, tmp_path / "whole")
    mine = polars.DataFrame(fatflow.Sweep.read(out).cases)
    assert mine.equals(polars.DataFrame(whole.cases), null_equal=True)
    with pytest.raises(fatflow.WrongUsage, match="there is no case 6"):
        _native.sweep_exec(given, out, [6])


def test_another_grid_is_not_replaced_in_silence(tmp_path):
    fatflow.sweep(GRID, tmp_path / "out")
    other = {**GRID, "from": "small-128", "engine": "analytic"}
    with pytest.raises(fatflow.WrongUsage, match="from: small-16 there, small-128 here"):
        fatflow.sweep(other, tmp_path / "out")
    assert fatflow.sweep(other, tmp_path / "out", replace=True).done == 6


def test_a_wrong_grid_is_an_error(tmp_path):
    with pytest.raises(fatflow.InvalidInput) as caught:
        fatflow.sweep({**GRID, "axes": {"network.routing.qpss": [1]}}, tmp_path / "out")
    assert caught.value.place.startswith("grid:")
    assert not (tmp_path / "out").exists()
