"""check.py ADDRESS: what a task returns is not believed, and what cannot be done is said.

Runs in a folder with `few.toml` and its local results, on a cluster that is there.
"""

import pathlib
import sys
from unittest import mock

import ray

import fatflow.ray as driver

ADDRESS = sys.argv[1]
LOCAL = pathlib.Path("local-few/results.parquet").read_bytes()


def truncated(execute, marks):
    """A task whose first answers are not whole: as if what it ran had been killed."""

    def run(inputs, plan, cases):
        name, content = execute(inputs, plan, cases)
        mark = pathlib.Path(marks, str(cases[0]))
        if not mark.exists():
            mark.touch()
            return name, content[: len(content) // 2]
        return name, content

    return run


def refused(text, **arguments):
    try:
        driver.run("few.toml", "refused", ADDRESS, **arguments)
    except (RuntimeError, driver.Error) as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


def main():
    marks = pathlib.Path("marks").resolve()
    marks.mkdir()
    with mock.patch.object(driver, "_execute", truncated(driver._execute, marks)):
        merged = driver.run("few.toml", "truncated", ADDRESS)
    assert list(marks.iterdir()) and merged["missing"] == merged["failed"] == 0, merged
    assert pathlib.Path("truncated/results.parquet").read_bytes() == LOCAL

    with mock.patch.object(driver, "_execute", lambda *_: ("nothing", b"")):
        refused("cases are missing", retries=1)
    refused("must have the version", plan="0123456789abcdef")
    with mock.patch.object(driver, "_largest_node", lambda: 1 << 20):
        refused("the largest node")


main()
assert not ray.is_initialized()
