"""Somebody who uses fatflow with types: mypy and pyright read this, nobody runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fatflow

if TYPE_CHECKING:
    import polars


def example(table: polars.DataFrame) -> list[float]:
    scenario = fatflow.Scenario.preset("small-128").set("network.routing.qps", 16)
    run = scenario.run(engine="flow", seed=3)
    step_s: float = run.step_s
    if isinstance(run, fatflow.JobRun):
        step_s = run.step_s + run.breakdown_s.compute + run.links.max_utilisation
        worst: list[str] = [link.link for link in run.worst_links]
        print(worst, run.envelope.engine)
    moved: fatflow.TrafficRun = scenario.run(transfers=table, engine="packet")
    count: int = moved.flows
    fastest = moved.fct_s.min if moved.fct_s is not None else 0.0
    rows = scenario.collective("all_reduce", max="1G", gpus=64).rows
    busbw: list[float] = [row.busbw_GBps for row in rows]
    side = fatflow.compare([scenario, "small-16"], engine="analytic")
    names: list[str] = side.columns
    checked: fatflow.CrossCheck = scenario.run(engine="all")
    passed: bool = fatflow.validate(threshold=0.1).passed
    print(names, checked.rows, passed, count, scenario.topo().tiers, scenario.traffic().by_axis)
    advice: fatflow.Advice = fatflow.advise(scenario, goal="cost", fix=["cluster"])
    gains: list[float] = [change.gain for change in advice.changes]
    differs: list[str] = [one.key for one in advice.check("nccl.conf", take=1).differences]
    seen = fatflow.observe("nccl.log", scenario=scenario, calibrate="mine.toml")
    if seen.calibration is not None:
        print([constant.value for constant in seen.calibration.constants])
    bought: float = scenario.topo(grows_into="small-1024").bought_usd
    print(gains, differs, bought, seen.cluster.ranks, advice.write("files"))
    try:
        scenario.set({"seed": 1, "name": "mine"}).run()
    except fatflow.InvalidInput as error:
        place: str | None = error.place
        print(place, error.help)
    return [step_s, fastest, *busbw]
