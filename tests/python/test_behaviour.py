"""Errors, interrupts, the interpreter's lock, warnings."""

from __future__ import annotations

import ast
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import fatflow

LONG = """
    import fatflow
    scenario = fatflow.Scenario({
        "cluster": {"gpus": %d},
        "traffic": {"pattern": "%s", "bytes": "1GiB"},
    })
    print("begun", flush=True)
    try:
        scenario.run(engine="%s", force=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    print(fatflow.Scenario.preset("small-16").run().step_s > 0, flush=True)
"""


@pytest.mark.parametrize(
    ("engine", "gpus", "pattern"), [("packet", 64, "permutation"), ("flow", 1024, "all-to-all")]
)
def test_ctrl_c_stops_a_run_and_leaves_the_interpreter(engine, gpus, pattern):
    code = textwrap.dedent(LONG % (gpus, pattern, engine))
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(1.0)
    sent = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    try:
        out, _ = child.communicate(timeout=30)
    finally:
        child.kill()
    assert out == "stopped\nTrue\n"
    assert time.monotonic() - sent < 10


def test_other_threads_go_on_while_a_run_works():
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    begun = time.monotonic()
    fatflow.Scenario.preset("small-1024").run(seeds=4, threads=1)
    ended = time.monotonic()
    stop.set()
    thread.join()
    during = [at for at in ticks if begun < at < ended]
    assert len(during) > 5 * (ended - begun), (len(during), ended - begun)


def test_an_error_is_the_commands(tmp_path, fatflow_command):
    path = tmp_path / "wrong.toml"
    path.write_text('from = "small-16"\n[network.routing]\nqpss = 2\npolicy = "warp"\n')
    done = fatflow_command("run", path, "--color", "never")
    assert done.returncode == 3
    with pytest.raises(fatflow.InvalidInput) as caught:
        fatflow.Scenario.file(path).run()
    error = caught.value
    assert str(error) == done.stderr.rstrip()
    assert error.exit_code == 3
    assert error.place == f"{path}:3:1"
    assert "qps" in error.help
    assert [other.place for other in error.others] == [f"{path}:4:10"]
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.place, again.help) == (str(error), error.place, error.help)


def test_errors_of_what_is_no_file():
    with pytest.raises(fatflow.InvalidInput) as caught:
        fatflow.Scenario({"from": "small-16", "network": {"routing": {"qpss": 2}}}).run()
    assert caught.value.place.startswith("scenario:")
    assert "qpss = 2" in str(caught.value)
    with pytest.raises(fatflow.InvalidInput) as caught:
        fatflow.Scenario.preset("small-16").set("network.routing.qps", "many").run()
    assert caught.value.place.startswith("--set:")
    with pytest.raises(fatflow.InvalidInput, match="did you mean `small-128`"):
        fatflow.Scenario.preset("small-129")
    with pytest.raises(fatflow.InvalidInput, match="no such file"):
        fatflow.Scenario.file("no-such.toml").topo()


@pytest.mark.parametrize("value", [None, {"a": None}, object(), {1, 2}])
def test_what_is_no_value_is_refused(value):
    with pytest.raises(TypeError):
        fatflow.Scenario.preset("small-16").set("name", value)
    with pytest.raises(TypeError):
        fatflow.Scenario({"name": value})


def test_wrong_usage():
    small = fatflow.Scenario.preset("small-16")
    for words, ask in [
        ("no engine `warp`", lambda: small.run(engine="warp")),
        ("no collective `scan`", lambda: small.collective("scan")),
        ("synthetic traffic", lambda: small.run(series="1us")),
        ("nothing random", lambda: small.run(engine="analytic", seeds=3)),
        ("not 1 to 100,000", lambda: small.run(seeds=0)),
        ("give both", lambda: small.run(series_pairs=[1])),
        ("asks one", lambda: fatflow.compare(["small-16"], engine="all")),
        ("does nothing here", lambda: fatflow.validate(set={"seed": 3})),
        ("min: `x`", lambda: small.collective("all_reduce", min="x")),
        ("not 1 to 36,500", lambda: small.run(days=0)),
        ("without days", lambda: small.run(days=3, steps=3)),
        ("one engine", lambda: small.run(days=3, engine="all")),
        ("domains=True", lambda: small.topo(rack_servers=2)),
        ("no goal `speed`", lambda: small.advise(goal="speed")),
        ("exclude each other", lambda: small.advise(within=0.1, future=True)),
        ("not 1 to 1,000", lambda: small.advise(seeds=0)),
        ("budget: ", lambda: small.advise(budget="soon")),
        ("at least one", lambda: fatflow.observe()),
        ("give a scenario too", lambda: fatflow.observe("x", engine="flow")),
    ]:
        with pytest.raises(fatflow.WrongUsage, match=words) as caught:
            ask()
        assert caught.value.exit_code == 2
        assert isinstance(caught.value, ValueError)


def test_what_cannot_be_observed(tmp_path):
    with pytest.raises(fatflow.InvalidInput, match="no-such.log"):
        fatflow.observe(tmp_path / "no-such.log")
    (tmp_path / "letter.txt").write_text("dear sir\n")
    with pytest.raises(fatflow.InvalidInput, match="letter.txt"):
        fatflow.observe(tmp_path / "letter.txt")
    flags = {"scenario": fatflow.Scenario({"from": "small-16"}), "calibrate": tmp_path / "x.toml"}
    table = tmp_path / "table.txt"
    table.write_text(NCCL_TESTS)
    with pytest.raises(fatflow.WrongUsage, match="a preset or a file"):
        fatflow.observe(table, **flags)
    with pytest.raises(fatflow.WrongUsage, match="no advice"):
        fatflow.Scenario.preset("small-16").topo()._answer.write(str(tmp_path), None)


NCCL_TESTS = """\
# nThread 1 nGpus 8 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   2000 on     node-0 device  0 [0x07] NVIDIA H100
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    61.05   17.18   30.06      0    60.91   17.22   30.13      0
"""


def test_a_run_that_time_cannot_hold_is_an_error():
    tables = {"cluster": {"gpus": 16, "nic_rate": "1Mbps"}, "traffic": {"bytes": "4PiB"}}
    with pytest.raises(fatflow.RunFailed, match="longer than the 213 days"):
        fatflow.Scenario(tables).run(engine="flow", force=True)


def test_what_is_not_used_is_warned_of():
    small = fatflow.Scenario.preset("small-16")
    with pytest.warns(fatflow.UnusedInput, match="threads: this runs on one thread"):
        run = small.run(threads=2)
    assert run.envelope.unused[0].key == "threads"
    with pytest.warns(fatflow.UnusedInput, match="network.pfc"):
        small.set("network.pfc.enabled", False).run(engine="analytic")


def test_unknown_attributes_say_what_there_is():
    run = fatflow.Scenario.preset("small-16").run()
    with pytest.raises(AttributeError, match="a JobRun has no `makespan_s`; it has verdict, step_s"):
        run.makespan_s
    assert run["step_s"] == run.step_s == run.dict()["step_s"]
    assert repr(run).startswith("<fatflow run: step_s=")


def test_the_package_is_written_in_python_3_9():
    files = list(Path(fatflow.__file__).parent.glob("*.py"))
    assert len(files) > 5
    for file in files:
        ast.parse(file.read_text(), feature_version=(3, 9))


def test_values_of_every_kind_are_set():

    import numpy

    small = fatflow.Scenario.preset("small-16")
    for value in (16, numpy.int64(16), numpy.float64(16.0)):
        assert "16" in repr(small.set("network.routing.qps", value))
    name = 'a "quoted" \\ name\nwith é and \x7f'
    assert 'a "quoted" \\ name' in str(small.set("name", name).topo())
    table = {"policy": "ecmp", "qps": 2}
    assert small.set("network.routing", table).run().step_s > 0
    assert repr(small.set("a.b", Path("x/y"))).endswith('a.b="x/y">')
