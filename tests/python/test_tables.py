"""Anything long is Arrow, and nobody copies it."""

from __future__ import annotations

import time

import duckdb
import pandas
import polars
import pyarrow
import pytest

import fatflow
from fatflow import _native

INCAST = {
    "cluster": {"gpus": 64},
    "traffic": {"pattern": "incast", "bytes": "1MiB", "hosts": 32},
}


@pytest.fixture(scope="module")
def run():
    return fatflow.Scenario(INCAST).run(series="10us")


def test_flows_links_and_series_are_what_the_command_writes(run, tmp_path, fatflow_command):
    path = tmp_path / "incast.toml"
    path.write_text(fatflow.Scenario(INCAST).toml)
    files = {name: tmp_path / f"{name}.parquet" for name in ("flows", "links", "series")}
    flags = [word for name, file in files.items() for word in (f"--{name}-out", file)]
    assert fatflow_command("run", path, "--series", "10us", *flags).returncode == 0
    for name, file in files.items():
        mine = polars.DataFrame(getattr(run, name))
        assert mine.equals(polars.read_parquet(file), null_equal=True), name
        assert mine.height > 0


def test_a_value_and_its_table_are_one(run):
    assert run.flows == 31 and run.flows + 1 == 32
    assert polars.DataFrame(run.flows).height == 31
    assert 0 < run.links.max_utilisation <= 1
    assert "utilisation" in pyarrow.table(run.links).column_names


def test_every_reader_reads_the_same(run):
    flows = run.flows
    table = pyarrow.table(flows)
    assert polars.DataFrame(flows).equals(polars.DataFrame(table), null_equal=True)
    assert pandas.DataFrame.from_arrow(flows).equals(table.to_pandas())
    total = duckdb.sql("select sum(bytes) from flows").fetchall()
    assert total[0][0] == run.bytes == sum(table["bytes"].to_pylist())
    assert pyarrow.schema(flows).names == table.schema.names


def test_links_and_series_of_a_job():
    run = fatflow.Scenario.preset("small-128").run()
    links = polars.DataFrame(run.links)
    assert links["bytes"].sum() > 0
    assert polars.DataFrame(run.series)["sent_bps"].max() > 0
    closed = fatflow.Scenario.preset("small-128").run(engine="analytic")
    with pytest.raises(fatflow.WrongUsage, match="closed forms"):
        polars.DataFrame(closed.links)
    transfers = polars.DataFrame(fatflow.Scenario.preset("small-128").traffic().transfers)
    assert transfers.height > 100


def test_rows_are_tables_too():
    small = fatflow.Scenario.preset("small-16")
    rows = small.collective("all_reduce", max="8M", gpus=16).rows
    table = polars.DataFrame(rows)
    assert table["busbw_GBps"].to_list() == [row.busbw_GBps for row in rows]
    assert table["algorithm"].dtype == polars.String
    side = fatflow.compare(["small-16", "small-128"], engine="analytic")
    table = polars.DataFrame(side.rows)
    steps = table.filter(polars.col("metric") == "step_s")
    assert steps["column"].to_list() == ["small-16", "small-128"]
    expected = next(row for row in side.rows if row.metric == "step_s").simulated
    assert steps["simulated"].to_list() == expected


def test_ten_million_flows_reach_polars_without_a_copy():
    rows = 10_000_000
    table = _native.flows_for_tests(rows)
    start = time.perf_counter()
    frame = polars.DataFrame(table)
    took = time.perf_counter() - start
    assert frame.height == rows
    assert took < 2, f"{took:.2f} s"
    # The buffers are the native half's own: every reader sees them at the same address.
    arrow = pyarrow.table(table)
    for name in frame.columns:
        address = arrow[name].chunk(0).buffers()[1].address
        assert frame[name].to_arrow().buffers()[1].address == address, name
    assert frame["bytes"].sum() == rows * (rows - 1) // 2
    assert frame["finish_ns"].null_count() == rows // 7


def test_transfers_from_any_table():
    scenario = fatflow.Scenario({"cluster": {"gpus": 64}})
    columns = {"src": [0, 1, 2], "dst": [8, 9, 10], "bytes": [1 << 20] * 3}
    of_polars = scenario.run(transfers=polars.DataFrame(columns))
    assert isinstance(of_polars, fatflow.TrafficRun)
    of_arrow = scenario.run(transfers=pyarrow.table(columns))
    of_pandas = scenario.run(transfers=pandas.DataFrame(columns))
    assert of_polars.digest == of_arrow.digest == of_pandas.digest
    assert of_polars.flows == 3
    for engine in ("analytic", "flow", "packet"):
        assert scenario.run(transfers=polars.DataFrame(columns), engine=engine).completed == 3
    # The table counts for the scenario's identity.
    other = scenario.run(transfers=polars.DataFrame({**columns, "bytes": [1, 2, 3]}))
    assert other.envelope.scenario != of_polars.envelope.scenario


def test_transfers_are_what_a_file_of_flows_is(tmp_path):
    columns = {"src": [0, 1], "dst": [9, 9], "bytes": [1 << 20, 5], "start_ns": [0, 1000]}
    frame = polars.DataFrame(columns)
    frame.write_csv(tmp_path / "flows.csv")
    tables = {"cluster": {"gpus": 64}, "traffic": {"flows": str(tmp_path / "flows.csv")}}
    of_file = fatflow.Scenario(tables).run(engine="packet")
    of_table = fatflow.Scenario({"cluster": {"gpus": 64}}).run(engine="packet", transfers=frame)
    assert of_table.digest == of_file.digest
    flows = [polars.DataFrame(run.flows) for run in (of_file, of_table)]
    assert flows[0].equals(flows[1])


def test_transfers_wait_for_each_other():
    scenario = fatflow.Scenario({"cluster": {"gpus": 64}})
    columns = {"src": [0, 0, 1], "dst": [8, 9, 10], "bytes": [1 << 20] * 3}
    for after in ([None, 0, 1], [[], [0], [0, 1]]):
        frame = polars.DataFrame({**columns, "after": after})
        for engine in ("analytic", "flow", "packet"):
            flows = polars.DataFrame(scenario.run(transfers=frame, engine=engine).flows)
            done = flows["finish_ns"].to_list()
            assert done[0] < done[1] < done[2], (engine, after)
            assert done[1] > 1.8 * done[0]


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"dst": [1, 999]}, "transfers[1]", "there is no NIC 999"),
        ({"dst": [1, 1]}, "transfers[1]", "cannot send to itself"),
        ({"bytes": [1, 0]}, "transfers[1]", "the least is 1"),
        ({"bytes": [1, -5]}, "transfers[1]", "`-5`, not a whole number"),
        ({"bytes": [1.0, 1.5]}, "transfers[1]", "`1.5`, not a whole number"),
        ({"bytes": [1, None]}, "transfers[1]", "`bytes` is missing"),
        ({"bytes": ["a", "b"]}, "transfers", "not whole numbers"),
        ({"after": [1, None]}, "transfers[0]", "waits for row 1"),
        ({"after": [None, -1]}, "transfers[1]", "`-1`, not a whole number"),
        ({"src": [], "dst": [], "bytes": []}, "transfers", "no rows"),
    ],
)
def test_wrong_transfers_name_their_row(change, place, words):
    columns = {"src": [0, 1], "dst": [1, 2], "bytes": [1, 2], **change}
    with pytest.raises(fatflow.InvalidInput, match=words) as caught:
        fatflow.Scenario({"cluster": {"gpus": 64}}).run(transfers=pyarrow.table(columns))
    assert caught.value.place == place


def test_transfers_without_a_column_and_with_one_too_many():
    scenario = fatflow.Scenario({"cluster": {"gpus": 64}})
    with pytest.raises(fatflow.InvalidInput, match="the column `dst` is missing"):
        scenario.run(transfers=polars.DataFrame({"src": [0], "bytes": [1]}))
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        scenario.run(transfers=[1, 2, 3])  # type: ignore[arg-type]
    frame = polars.DataFrame({"src": [0], "dst": [1], "bytes": [1], "colour": ["red"]})
    with pytest.warns(fatflow.UnusedInput, match="transfers.colour"):
        run = scenario.run(transfers=frame)
    assert [unused.key for unused in run.envelope.unused] == ["transfers.colour"]
