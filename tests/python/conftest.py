"""What the tests share: the command beside the package."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


class Command:
    """The binary of the same build."""

    def __call__(self, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
        words = [os.environ["FATFLOW"], *map(str, arguments)]
        # As wide as the package writes, whatever terminal the tests run in.
        env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=env)

    def json(self, *arguments: object) -> dict[str, Any]:
        """What it answers with `--json`."""
        done = self(*arguments, "--json", "--quiet")
        assert done.returncode in (0, 4), done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def fatflow_command() -> Command:
    return Command()


@pytest.fixture
def root() -> Path:
    return ROOT
