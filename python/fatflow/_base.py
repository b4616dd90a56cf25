"""What the dataclasses of `fatflow.results` are made of."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import sys
import typing
import warnings
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union, cast, overload

from . import _native
from ._errors import ScenarioWarning, UnusedInput
from ._native import Table

if TYPE_CHECKING:
    from . import results

T = TypeVar("T")
R = TypeVar("R", bound="Result")


class Record:
    """A part of an answer. Its attributes are keys of the JSON; keys that this version does not
    know by name are there as `record["key"]`."""

    _data: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        """What the JSON has under a key, as plain Python."""
        return self._data[key]

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def keys(self) -> Iterator[str]:
        """The keys of the JSON."""
        return iter(self._data)

    def dict(self) -> dict[str, Any]:
        """The JSON as plain Python."""
        return self._data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._data == other._data

    __hash__ = None  # type: ignore[assignment]


class Tabular:
    """Something that also is a table: readers of Arrow streams (polars, pyarrow, pandas, DuckDB)
    take it as it is, without a copy."""

    _load: Optional[Callable[[], Table]] = None

    @property
    def table(self) -> Table:
        """The table."""
        if self._load is None:
            raise TypeError("this part was not taken from an answer, so there is no table of it")
        return self._load()

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()


class TabularRecord(Record, Tabular):
    """A part of an answer with a table behind it."""


class Flows(int, Tabular):
    """How many flows there were and, as an Arrow stream, what became of each of them."""


class Cases(int, Tabular):
    """How many cases a sweep has and, as an Arrow stream, each that is done with its measures."""


class Rows(Tabular, Generic[T]):
    """Rows of an answer, which are an Arrow table too: a column for each key. A row that has a
    value for each of several columns becomes as many rows, which `column` tells apart."""

    _names: Optional[list[str]] = None

    def __init__(self, rows: Iterable[T] = ()) -> None:
        # Not a list itself: some readers would look into it before they ask for the table.
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T]:
        return iter(self._rows)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: Union[int, slice]) -> Union[T, list[T]]:
        return self._rows[at]

    def __repr__(self) -> str:
        return repr(self._rows)

    @property
    def table(self) -> Table:
        """The table."""
        flat = [row for record in self for row in self._flat(cast(Record, record).dict())]
        keys = list(dict.fromkeys(key for row in flat for key in row))
        return _native.table([(key, [row.get(key) for row in flat]) for key in keys])

    def _flat(self, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
        lists = {key: value for key, value in data.items() if isinstance(value, list)}
        plain: dict[str, Any] = {}
        for key, value in data.items():
            if isinstance(value, dict):
                plain.update({f"{key}.{inner}": found for inner, found in value.items()})
            elif key not in lists:
                plain[key] = value
        if self._names is None:
            yield plain
            return
        for at, name in enumerate(self._names):
            row = {**plain, "column": name}
            for key, values in lists.items():
                value = values[at] if at < len(values) else None
                row[key] = float(value) if isinstance(value, (int, float)) else None
                if key in ("reported", "simulated", "source"):
                    words = _words(value) if isinstance(value, (str, list)) else None
                    row[key if key == "source" else f"{key}_words"] = words
            yield row


def _words(value: object) -> str:
    return " to ".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclasses.dataclass(frozen=True)
class Unused:
    """Something that was written and that the run does not obey."""

    key: str
    """The key."""
    why: str
    """Why not."""
    used_by: str
    """What would."""


@dataclasses.dataclass(frozen=True)
class Envelope:
    """What an answer says of itself."""

    fatflow: str
    """The version of fatflow that made it."""
    command: str
    """The command."""
    engine: Optional[str]
    """The engine; `None` where none was needed."""
    seed: Optional[int]
    """The seed; `None` where there was no scenario."""
    scenario: Optional[str]
    """The scenario's hash; `None` where there was no scenario."""
    unused: list[Unused]
    """What was written and is not obeyed."""
    about: Optional[dict[str, Any]] = None
    """What it is about: cluster, fabric, network, job, engine, version."""


class Result(Record):
    """What a command answers. `str(result)` is what the command prints; in a notebook it is the
    page that the command's `--report` writes, with its charts."""

    _answer: _native.Answer
    _envelope: Envelope
    _again: Optional[Callable[[], _native.Answer]]
    _tables: dict[str, Table]

    @classmethod
    def _of(
        cls: type[R],
        answer: _native.Answer,
        again: Optional[Callable[[], _native.Answer]] = None,
    ) -> R:
        """Builds the result, and warns of what was not obeyed."""
        whole = json.loads(answer.json)
        unused = [Unused(**input) for input in whole["unused"]]
        result = cast(R, decode(cls, whole["result"]))
        result._answer, result._again, result._tables = answer, again, {}
        about = {key: value for key, value in whole.items() if key != "result"}
        result._envelope = Envelope(**{**about, "unused": unused})
        for name in ("flows", "links", "series", "cases"):
            value = result.__dict__.get(name)
            if isinstance(value, Tabular):
                value._load = partial(result._table, name)
        columns = whole["result"].get("columns")
        rows = result.__dict__.get("rows")
        if isinstance(rows, Rows) and isinstance(columns, list) and columns:
            rows._names = [c["name"] if isinstance(c, dict) else str(c) for c in columns]
        for text in answer.warnings:
            _warn(text, ScenarioWarning)
        for input in unused:
            _warn(f"{input.key}: {input.why}; used by {input.used_by}", UnusedInput)
        return result

    @property
    def envelope(self) -> Envelope:
        """Version, command, engine, seed, scenario, and what was not used."""
        return self._envelope

    def json(self) -> str:
        """The whole envelope, as the command's `--json` prints it."""
        return self._answer.json

    def html(self) -> str:
        """The page that the command's `--report` writes. A run that was made without charts is
        made again with them; the figures are the same."""
        if self._again is not None:
            self._answer, self._again = self._again(), None
        return self._answer.html()

    def report(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes that page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html())

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = self._answer.table(name)
        return self._tables[name]

    def __str__(self) -> str:
        return self._answer.text()

    def __repr__(self) -> str:
        plain = (int, float, str)
        figures = ((key, self._data[key]) for key in self._data)
        told = [f"{key}={value!r}" for key, value in figures if isinstance(value, plain)][:4]
        return f"<fatflow {self._envelope.command}: {', '.join(told)}>"

    def _repr_html_(self) -> str:
        """The page in a frame of its own; it loads nothing."""
        page = html.escape(self.html(), quote=True)
        style = "width: 100%; height: 640px; border: 0; resize: vertical; overflow: auto"
        allowed = "allow-scripts allow-downloads"
        return f'<iframe srcdoc="{page}" sandbox="{allowed}" style="{style}"></iframe>'


class Run(Result):
    """What `run` answers: a `JobRun` where the scenario has a job, a `TrafficRun` where it has
    synthetic traffic. What only one of them has is an attribute of that one."""

    wall_s: float
    """Seconds that the run took on the clock."""
    cpu_s: float
    """Seconds that it took of the processor."""
    peak_rss_bytes: int
    """The most memory that the process has used."""
    findings: list[str]
    """What the user should hear about."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self.__dict__.get("_data", {}):
            return self._data[name]
        kind = type(self).__name__
        raise AttributeError(f"a {kind} has no `{name}`; it has {', '.join(self._data)}")


class AdviceBase(Result):
    """What to change. The files that do it are of the best change that needs nothing bought, or of
    the change with the number `take`, from 1 on."""

    def write(
        self, folder: Union[str, os.PathLike[str]], *, take: Optional[int] = None
    ) -> list[Path]:
        """Writes the files for switches, hosts, the library and the scheduler into a folder."""
        return self._answer.write(os.fspath(folder), take)

    def check(
        self, *files: Union[str, os.PathLike[str]], take: Optional[int] = None
    ) -> results.FilesCheck:
        """Reads a cluster's own files and tells how they differ from those."""
        from .results import FilesCheck

        return FilesCheck._of(self._answer.check([os.fspath(file) for file in files], take))


S = TypeVar("S", bound="SweepBase")


class SweepBase(Result):
    """What a sweep says of its cases."""

    _out: str

    @classmethod
    def read(cls: type[S], out: Union[str, os.PathLike[str]], goals: Iterable[str] = ()) -> S:
        """The results that lie in a folder, whoever executed them. `goals` are measures to be best
        in, such as "step_s" or "max:mfu"; the first counts for `best`."""
        folder = os.fspath(out)
        result = cls._of(_native.sweep_show(folder, list(goals)))
        result._out = folder
        return result

    def show(self: S, *goals: str) -> S:
        """The same results by other goals."""
        return type(self).read(self._out, goals)


def _warn(text: str, kind: type[Warning]) -> None:
    """Warns at the first line that is not this package's."""
    here = os.path.dirname(__file__)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)


@lru_cache(maxsize=None)
def _fields(kind: Any) -> dict[str, tuple[str, Any]]:
    """By key of the JSON: the attribute (`from_` for `from`) and its type."""
    home = vars(sys.modules[kind.__module__])
    fields = dataclasses.fields(kind)
    return {one.name.rstrip("_"): (one.name, eval(str(one.type), home)) for one in fields}


def decode(kind: Any, value: Any) -> Any:
    """A value of the JSON as the type that a dataclass says it has."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if value is None:
        return None
    if origin is Union:
        given = [one for one in inside if one is not type(None)]
        return decode(given[0], value) if len(given) == 1 else value
    if origin is list and isinstance(value, list):
        return [decode(inside[0], item) for item in value]
    if origin is tuple and isinstance(value, list):
        return tuple(decode(kind, item) for kind, item in zip(inside, value))
    if origin is Rows:
        return Rows(decode(inside[0], item) for item in value)
    if origin is dict and isinstance(value, dict):
        return {key: decode(inside[1], item) for key, item in value.items()}
    if kind in (Flows, Cases):
        return kind(value)
    if isinstance(kind, type) and issubclass(kind, Record):
        known = _fields(cast(Hashable, kind))
        named = ((*known[key], item) for key, item in value.items() if key in known)
        record = kind(**{name: decode(inner, item) for name, inner, item in named})
        record._data = value
        return record
    return value
