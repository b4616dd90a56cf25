"""Every cell of the notebooks and of the book's page on Python is run, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
PAGES = ["docs/python.md", "README.md"]

# Runs cells one after the other in one namespace, as a notebook does: what stands last in a cell is
# shown, as a page if it has one. What a cell prints must be what the text says it prints.
RUNNER = r"""
import ast, contextlib, io, json, sys
space = {"__name__": "__main__"}
for number, (cell, expected) in enumerate(json.load(sys.stdin)):
    out = io.StringIO()
    tree = ast.parse(cell)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, f"cell {number}", "exec"), space)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)
            page = getattr(shown, "_repr_html_", None)
            if page is not None and len(page()) == 0:
                sys.exit(f"cell {number} shows an empty page")
            if shown is not None and page is None:
                print(repr(shown))
    if expected is not None and out.getvalue().strip() != expected.strip():
        sys.exit(f"cell {number} prints\n{out.getvalue()}\nand not\n{expected}")
"""


def run(cells: list[tuple[str, str | None]], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", RUNNER],
        input=json.dumps(cells),
        text=True,
        capture_output=True,
        cwd=folder,
        env={**os.environ, "POLARS_FMT_MAX_ROWS": "40", "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr


def test_there_are_three_notebooks():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path):
    notebook = json.loads(path.read_text())
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    assert notebook["nbformat"] == 4 and cells
    assert all(not cell["outputs"] for cell in cells), "notebooks are kept without outputs"
    run([("".join(cell["source"]), None) for cell in cells], tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_page(page, tmp_path):
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:\n?```text\n(.*?)^```)?", text, re.M | re.S)
    assert blocks, "the page has no cells"
    run([(cell, expected or None) for cell, expected in blocks], tmp_path)
