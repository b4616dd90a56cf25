"""The same figures as the command, to the last digit."""

from __future__ import annotations

import json
import re
import warnings
from concurrent.futures import ThreadPoolExecutor

import polars
import pytest

import fatflow

# What the machine did, which differs from run to run.
OF_THE_MACHINE = {"wall_s", "cpu_s", "peak_rss_bytes"}


def without_machine(value):
    if isinstance(value, dict):
        return {k: without_machine(v) for k, v in value.items() if k not in OF_THE_MACHINE}
    if isinstance(value, list):
        return [without_machine(inner) for inner in value]
    return value


def same(result, envelope):
    """Whether an answer is the command's, and every key of it is an attribute."""
    # The command line is known to the command alone.
    envelope = {**envelope, "about": {**(envelope.get("about") or {}), "command": ""}}
    answer = json.loads(result.json())
    answer.setdefault("about", {"command": ""})
    assert without_machine(answer) == without_machine(envelope)
    every_key_is_an_attribute(result)


def every_key_is_an_attribute(record):
    """Keys and values of the JSON are the attributes of the dataclass, all the way down."""
    known = {name.rstrip("_"): name for name in record.__dataclass_fields__}
    assert set(record.keys()) <= set(known), set(record.keys()) - set(known)
    for key in record.keys():
        compare_value(getattr(record, known[key]), record[key])


def compare_value(value, plain):
    if isinstance(value, fatflow.Record):
        assert value.dict() == plain
        every_key_is_an_attribute(value)
    elif isinstance(value, (list, fatflow.Rows)):
        assert len(value) == len(plain)
        for one, other in zip(value, plain):
            compare_value(one, other)
    elif isinstance(value, tuple):
        assert list(value) == plain
    elif isinstance(value, dict):
        assert value.keys() == plain.keys()
        for key in value:
            compare_value(value[key], plain[key])
    else:
        assert value == plain and not isinstance(plain, dict), (value, plain)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", fatflow.presets())
def test_every_preset(name, fatflow_command):
    scenario = fatflow.Scenario.preset(name)
    is_quick = name.startswith("small") or name == "deepseek-v2"
    for engine in ["analytic", "flow"] if is_quick else ["analytic"]:
        with ThreadPoolExecutor() as beside:
            words = ["run", name, "--engine", engine, "--seed", 3]
            expected = beside.submit(fatflow_command.json, *words)
            run = scenario.run(engine=engine, seed=3)
            same(run, expected.result())
    if is_quick:
        same(scenario.topo(), fatflow_command.json("topo", name))


def test_what_is_set(fatflow_command):
    scenario = fatflow.Scenario.preset("small-128").set("network.routing.qps", 16)
    run = scenario.set({"network.routing.policy": "ecmp", "fabric.oversubscription": [1, 2]}).run()
    flags = ["--set", "network.routing.qps=16", "--set", "network.routing.policy=ecmp"]
    flags += ["--set", "fabric.oversubscription=[1, 2]"]
    same(run, fatflow_command.json("run", "small-128", *flags))
    assert isinstance(run, fatflow.JobRun)
    # `set` returned other scenarios, and left the first as it was.
    assert fatflow.Scenario.preset("small-128").run().step_s != run.step_s


def test_a_file_and_a_dictionary_are_one_scenario(tmp_path, fatflow_command):
    path = tmp_path / "mine.toml"
    path.write_text('from = "small-16"\nseed = 7\n[network.routing]\nqps = 2\npolicy = "ecmp"\n')
    of_file = fatflow.Scenario.file(path).run()
    tables = {"from": "small-16", "seed": 7, "network": {"routing": {"qps": 2, "policy": "ecmp"}}}
    of_tables = fatflow.Scenario(tables).run()
    same(of_file, fatflow_command.json("run", path))
    assert of_tables.envelope == of_file.envelope
    assert of_tables.step_s == of_file.step_s


def test_traffic_and_collectives(fatflow_command, root):
    small = fatflow.Scenario.preset("small-128")
    same(small.traffic(), fatflow_command.json("traffic", "small-128"))
    rows = small.collective("all_reduce", max="64M", gpus=64, factor=4, seeds=3)
    flags = ["all_reduce", "small-128", "-e", "64M", "--gpus", 64, "-f", 4, "--seeds", 3]
    same(rows, fatflow_command.json("collective", *flags))
    sized = small.collective("all_gather", min=1 << 20, max=1 << 22, engine="analytic")
    flags = ["all_gather", "small-128", "-e", "4M", "--engine", "analytic"]
    same(sized, fatflow_command.json("collective", *flags))
    every = small.collective("all_reduce", max="1M", gpus=16, engine="all")
    flags = ["all_reduce", "small-128", "-e", "1M", "--gpus", 16, "--engine", "all"]
    same(every, fatflow_command.json("collective", *flags))


def test_synthetic_traffic(fatflow_command, root):
    path = root / "scenarios/bench/incast-32.toml"
    for flags in [{"engine": "flow"}, {"engine": "packet", "series": "10us", "series_pairs": [0]}]:
        run = fatflow.Scenario.file(path).run(**flags)
        words = ["--engine", flags["engine"]]
        if "series" in flags:
            words += ["--series", "10us", "--series-pairs", "0"]
        same(run, fatflow_command.json("run", path, *words))
        assert isinstance(run, fatflow.TrafficRun)
    seeds = fatflow.Scenario.file(path).run(seeds=4, threads=2)
    same(seeds, fatflow_command.json("run", path, "--seeds", 4, "--threads", 2))


def test_what_else_run_tells(fatflow_command, root):
    small = fatflow.Scenario.preset("small-16")
    whole = small.run(whole=True)
    same(whole, fatflow_command.json("run", "small-16", "--whole"))
    assert isinstance(whole, fatflow.JobRun) and whole.way == "whole"
    steps = small.run(steps=3)
    same(steps, fatflow_command.json("run", "small-16", "--steps", 3))
    assert steps.steps.n == 3
    days = small.run(days=30, seeds=4, engine="analytic")
    flags = ["--days", 30, "--seeds", 4, "--engine", "analytic"]
    same(days, fatflow_command.json("run", "small-16", *flags))
    assert days.campaign.days == 30
    path = root / "scenarios/jobs/two-jobs.toml"
    jobs = fatflow.Scenario.file(path).run()
    same(jobs, fatflow_command.json("run", path))
    assert isinstance(jobs, fatflow.JobsRun) and len(jobs.jobs) == 2
    assert jobs.step_s == max(job.step_s for job in jobs.jobs)
    wanted = small.set({"targets.step": "1us", "targets.rack": "5us"}).run()
    flags = ["--set", "targets.step=1us", "--set", "targets.rack=5us"]
    same(wanted, fatflow_command.json("run", "small-16", *flags))
    assert not all(target.met for target in wanted.targets)


def test_packets_on_all_cores(fatflow_command, root):
    path = root / "scenarios/bench/ring-64.toml"
    run = fatflow.Scenario.file(path).run(engine="packet", threads=2)
    same(run, fatflow_command.json("run", path, "--engine", "packet", "--threads", 2))


def test_fabrics(fatflow_command):
    small = fatflow.Scenario.preset("small-128")
    flags = ["--domains", "--rack-servers", 2]
    domains = small.topo(domains=True, rack_servers=2)
    same(domains, fatflow_command.json("topo", "small-128", *flags))
    growth = small.topo(grows_into="small-1024")
    same(growth, fatflow_command.json("topo", "small-128", "small-1024"))
    assert growth.kept_usd + growth.bought_usd == pytest.approx(growth.cost_usd)


# Without the clock's help: all of it is tried, so that both try the same.
ADVICE = ["cluster", "fabric", "job.parallel", "reliability"]


def test_advice(fatflow_command, tmp_path):
    scenario = fatflow.Scenario.preset("small-16").set("network.routing.policy", "ecmp")
    advice = scenario.advise(fix=ADVICE, seeds=2, budget=600, seed=1)
    flags = [word for key in ADVICE for word in ("--fix", key)] + ["--seeds", 2, "--seed", 1]
    flags += ["--set", "network.routing.policy=ecmp", "--budget", "600s"]
    same(advice, fatflow_command.json("advise", "small-16", *flags))
    assert advice.tried > 3 and not advice.left and advice.goal == "step"
    assert polars.DataFrame(advice.changes).height == len(advice.changes) > 0
    # The step of a change is that of a run with it.
    best = advice.changes[0]
    values = dict(one.split("=", 1) for one in best.set)
    again = scenario._of(scenario._native.with_([f"{k}={v}" for k, v in values.items()]))
    assert again.run(seed=1).step_s == best.step_s
    # Its files are the command's, and hold against themselves.
    written = advice.write(tmp_path / "mine", take=1)
    fatflow_command.json("advise", "small-16", *flags, "--write", tmp_path / "other", "--take", 1)
    assert sorted(path.name for path in written) == sorted(best.files)
    for path in written:
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()
    own = tmp_path / "mine/nccl.conf"
    checked = advice.check(own, take=1)
    assert isinstance(checked, fatflow.results.FilesCheck)
    assert checked.differences == [] and checked.agree > 0
    same(
        checked,
        fatflow_command.json("advise", "small-16", *flags, "--check", own, "--take", 1),
    )


def test_observations(fatflow_command, tmp_path):
    tables = []
    for gpus in (16, 64):
        path = tmp_path / f"gather-{gpus}.txt"
        real = ["--set", "library.launch=12us", "--set", "network.nic.pcie=150Gbps"]
        flags = ["-g", gpus, "-b", "1K", "-e", "1G", "--engine", "analytic", *real]
        flags += ["--noise", 0.02, "--nccl-tests", path]
        assert fatflow_command("collective", "all_gather", "small-128", *flags).returncode == 0
        tables.append(path)
    seen = fatflow.observe(*tables)
    same(seen, fatflow_command.json("observe", *tables))
    assert polars.DataFrame(seen.collectives)["busbw_GBps"].max() > 1
    beside = fatflow.observe(*tables, scenario="small-128", engine="analytic")
    flags = ["--scenario", "small-128", "--engine", "analytic"]
    same(beside, fatflow_command.json("observe", *tables, *flags))
    assert beside.predicted is not None and polars.DataFrame(beside.predicted.collectives).height
    scenario = fatflow.Scenario.preset("small-128").set("library.crossing", "1us")
    mine = fatflow.observe(*tables, scenario=scenario, calibrate=tmp_path / "mine.toml")
    flags = ["--scenario", "small-128", "--set", "library.crossing=1us"]
    whole = fatflow_command.json("observe", *tables, *flags, "--calibrate", tmp_path / "other.toml")
    whole["result"]["calibration"]["file"] = mine.calibration.file
    whole["result"]["predicted"]["scenario"] = mine.predicted.scenario
    same(mine, whole)
    assert (tmp_path / "mine.toml").read_bytes() == (tmp_path / "other.toml").read_bytes()
    assert any(one.key == "network.nic.pcie" for one in mine.calibration.constants)
    assert fatflow.Scenario.file(tmp_path / "mine.toml").topo().gpus == 128


def test_comparisons(fatflow_command):
    same(
        fatflow.compare(["small-16", "small-128"], engine="analytic", seeds=1),
        fatflow_command.json("compare", "small-16", "small-128", "--engine", "analytic"),
    )
    varied = fatflow.compare(["small-128"], vary={"network.routing.qps": [1, 4]})
    whole = fatflow_command.json("compare", "small-128", "--vary", "network.routing.qps=1,4")
    same(varied, whole)
    named = fatflow.compare({"few": fatflow.Scenario.preset("small-16"), "many": "small-128"})
    assert named.columns == ["few", "many"]


def test_validation(fatflow_command, root, tmp_path):
    lines = (root / "validation/training_steps.csv").read_text().splitlines(keepends=True)
    path = tmp_path / "steps.csv"
    path.write_text("".join(lines[:4]))
    result = fatflow.validate(path, engine="analytic", threshold=0.001)
    flags = ["validate", path, "--engine", "analytic", "--threshold", "0.001"]
    same(result, fatflow_command.json(*flags))
    assert not result.passed


def test_the_environment_counts_as_for_the_command(monkeypatch, fatflow_command):
    monkeypatch.setenv("FATFLOW_SET_network__routing__qps", "2")
    same(fatflow.Scenario.preset("small-128").run(), fatflow_command.json("run", "small-128"))


def test_the_text_and_the_page_are_the_commands(tmp_path, fatflow_command):
    run = fatflow.Scenario.preset("small-128").run()
    page = tmp_path / "run.html"
    done = fatflow_command("run", "small-128", "--report", page, "--color", "never")
    # Charts and all; the memory and the seconds of the machine are on neither.
    # Only the command can name the command that makes it again.
    run.report(tmp_path / "mine.html")

    def drawn(file):
        return json.loads(re.search(r'id="data">(.*?)</script>', file.read_text()).group(1))

    mine, theirs = drawn(tmp_path / "mine.html"), drawn(page)
    about = [section["title"] for section in theirs["sections"]].index("What this is about")
    for one in (mine, theirs):
        del one["sections"][about]
    assert mine["sections"] == theirs["sections"]
    # Nobody can ask a string for what it leaves out, so it has all.
    whole = fatflow_command("run", "small-128", "--all", "--color", "never")
    assert str(fatflow.Scenario.preset("small-128").run(charts=True)) == whole.stdout
    shown = run._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html') or "<iframe srcdoc=" in shown
    assert "http-equiv=&quot;Content-Security-Policy" in shown
