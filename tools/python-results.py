#!/usr/bin/env python3
"""Writes python/fatflow/results.py: the dataclasses of what commands answer.

They are read from the Rust structs that become the JSON (`#[derive(Serialize)]`), with their doc
comments, so that the two cannot drift apart: `tests/python` runs this with `--check`.

    tools/python-results.py            # renew the file
    tools/python-results.py --check    # exit code 1 if it is out of date
"""

import keyword
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "python/fatflow/results.py"

# What Python calls the answers: file, struct, class, its base.
ROOTS = [
    ("commands/src/run_job.rs", "Report", "JobRun", "Run"),
    ("commands/src/run_traffic.rs", "Report", "TrafficRun", "Run"),
    ("commands/src/collective.rs", "Report", "CollectiveRun", "Result"),
    ("commands/src/traffic.rs", "Report", "Traffic", "Result"),
    ("commands/src/topo.rs", "Topo", "Topo", "Result"),
    ("commands/src/compare.rs", "Report", "Comparison", "Result"),
    ("commands/src/validate.rs", "Report", "Validation", "Result"),
    ("commands/src/cross_check.rs", "Report", "CrossCheck", "Result"),
    ("commands/src/run_job/several.rs", "Report", "JobsRun", "Run"),
    ("commands/src/topo/grow.rs", "Growth", "Growth", "Result"),
    ("commands/src/advise.rs", "Advice", "Advice", "AdviceBase"),
    ("commands/src/advise/check.rs", "Checked", "FilesCheck", "Result"),
    ("commands/src/observe.rs", "Report", "Observation", "Result"),
    ("sweep/src/show.rs", "Show", "Sweep", "SweepBase"),
]

# Attributes that are a value and, as an Arrow stream, the table behind it: class and key, the type
# that is both, what it says.
TABLES = {
    ("TrafficRun", "flows"): "Flows",
    ("CollectiveRun", "rows"): "Rows[{}]",
    ("Comparison", "rows"): "Rows[{}]",
    ("CrossCheck", "rows"): "Rows[{}]",
    ("Family", "cases"): "Rows[{}]",
    ("Advice", "changes"): "Rows[{}]",
    ("Observation", "collectives"): "Rows[{}]",
    ("Observation", "counters"): "Rows[{}]",
    ("Beside", "collectives"): "Rows[{}]",
    ("Sweep", "cases"): "Cases",
}
# Structs that are such a value.
TABULAR = {
    ("commands/src/run_job.rs", "Links"),
    ("commands/src/run_traffic.rs", "Links"),
    ("commands/src/series.rs", "Series"),
}
# Tables that have no key of their own in the JSON.
PROPERTIES = {
    "JobRun": [("series", "What the busiest links carried over the step.")],
    "Sweep": [("machine", "What each case cost the machine that executed it.")],
    "Traffic": [("transfers", "Every connection between NICs with its bytes of one step.")],
}

# Names that would say too little, or would mean two things.
RENAMED = {
    ("commands/src/run_job.rs", "Links"): "JobLinks",
    ("commands/src/run_traffic.rs", "Links"): "TrafficLinks",
    ("commands/src/run_job.rs", "WorstLink"): "JobWorstLink",
    ("commands/src/run_traffic.rs", "WorstLink"): "TrafficWorstLink",
    ("commands/src/collective.rs", "Row"): "CollectiveRow",
    ("commands/src/compare.rs", "Row"): "ComparisonRow",
    ("commands/src/compare/verdict.rs", "Verdict"): "ComparisonVerdict",
    ("commands/src/cross_check.rs", "Row"): "CrossCheckRow",
    ("commands/src/cross_check.rs", "Column"): "CrossCheckColumn",
    ("commands/src/validate/score.rs", "Part"): "ScoreOfPart",
    ("fabric/src/cost.rs", "Bill"): "FabricBill",
    ("commands/src/advise.rs", "Refused"): "RefusedChange",
    ("observe/src/observed.rs", "Benchmark"): "ObservedBenchmark",
    ("observe/src/observed.rs", "Finding"): "ObservedFinding",
    ("observe/src/observed.rs", "Packets"): "ObservedPackets",
    ("observe/src/observed.rs", "Run"): "ObservedRun",
    ("observe/src/observed.rs", "Source"): "ObservedSource",
    ("observe/src/observed.rs", "Trace"): "ObservedTrace",
    ("observe/src/capture/flow.rs", "Pauses"): "ObservedPauses",
    ("sweep/src/show/rows.rs", "Row"): "SweepRow",
}

# What answers derive from, and what else of `_base.py` the classes need.
ANSWERS = ("AdviceBase", "Result", "Run", "SweepBase")
BASES = sorted([*ANSWERS, "Cases", "Flows", "Record", "Rows", "TabularRecord"])

NUMBERS = {name: "int" for name in "u8 u16 u32 u64 usize i8 i16 i32 i64".split()}
PLAIN = {**NUMBERS, "f64": "float", "f32": "float", "bool": "bool", "String": "str", "str": "str"}
# The one generic struct is of counts.
PLAIN["T"] = "int"
# The label of an axis.
PLAIN["Json"] = "Union[bool, float, str]"
# What serialises as text although it is a struct.
TEXTS = {"Span", "Time", "Rate", "Bytes", "Length", "ScenarioHash"}


class Struct:
    """One struct: its words, and its fields with their words, attributes and types."""

    def __init__(self, file, name, words, fields):
        self.file, self.name, self.words, self.fields = file, name, words, fields


def words_of(lines):
    return " ".join(line.strip()[3:].strip() for line in lines if line.strip().startswith("///"))


def parse(file, text):
    """All structs and enums of a file that serialise."""
    structs, enums = {}, {}
    lines = text.split("\n")
    for at, line in enumerate(lines):
        match = re.match(r"pub(?:\([a-z]+\))? (struct|enum) (\w+)(?:<.*>)? \{$", line)
        if not match:
            continue
        (kind, name), start = match.groups(), at
        while start > 0 and lines[start - 1].strip() and not lines[start - 1].startswith("}"):
            start -= 1
        head = "\n".join(lines[start:at])
        body = "\n".join(lines[at + 1 : lines.index("}", at)])
        if "Serialize" not in head:
            continue
        words = words_of(head.splitlines())
        if kind == "enum":
            enums[name] = (head, body)
            continue
        fields, above = [], []
        for line in body.splitlines():
            field = re.match(r"\s*(pub(?:\([a-z]+\))? )?(?:r#)?(\w+): (.*),$", line)
            if field:
                attributes = " ".join(a.strip() for a in above if a.strip().startswith("#["))
                fields.append((field[2], field[3], attributes, words_of(above)))
                above = []
            else:
                above.append(line)
        structs[name] = Struct(file, name, words, fields)
    return structs, enums


def read_all():
    structs, enums = {}, {}
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        file = str(path.relative_to(ROOT / "crates"))
        found, kinds = parse(file, path.read_text())
        structs.update({(file, name): struct for name, struct in found.items()})
        enums.update({(file, name): kind for name, kind in kinds.items()})
    return structs, enums


STRUCTS, ENUMS = read_all()


def find(name, file):
    """The struct or enum that a name means in a file: its own, or else one that it imports."""
    short = name.split("::")[-1]
    for known in (STRUCTS, ENUMS):
        if (file, short) in known:
            return known[file, short]
    homes = [key for known in (STRUCTS, ENUMS) for key in known if key[1] == short]
    text = (ROOT / "crates" / file).read_text()
    if "::" in name:
        homes = [key for key in homes if Path(key[0]).stem == name.split("::")[-2]] or homes
    if len(homes) > 1:
        imported = re.findall(r"use ([\w:]+)::(?:\{[^}]*\b%s\b[^}]*\}|%s);" % (short, short), text)
        stems = {step for path in imported for step in path.split("::")}
        homes = [key for key in homes if Path(key[0]).stem in stems] or homes
        homes = [key for key in homes if key[0].split("/")[0] in stems] or homes
        own = file.split("/")[0] if "crate" in stems else None
        homes = [key for key in homes if key[0].split("/")[0] == own] or homes
        beside = [key for key in homes if key[0].startswith(str(Path(file).with_suffix("")))]
        homes = beside if len(homes) > 1 and beside else homes
    if len(homes) != 1:
        raise SystemExit(f"{file}: `{name}` means {homes or 'nothing that serialises'}")
    return STRUCTS.get(homes[0]) or ENUMS[homes[0]]


def split(inside):
    """The arguments of a generic type."""
    depth, parts = 0, [""]
    for letter in inside:
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


class Writer:
    """Classes in the order in which they can be defined."""

    def __init__(self):
        self.classes, self.names = [], {}

    def kind(self, rust, file):
        """The Python type of a Rust type."""
        rust = re.sub(r"^&('\w+ )?", "", rust.strip())
        if rust in PLAIN:
            return PLAIN[rust]
        if rust in TEXTS:
            return "str"
        if rust.startswith("("):
            return f"tuple[{', '.join(self.kind(part, file) for part in split(rust[1:-1]))}]"
        if rust.startswith("["):
            inside = rust[1:-1].split(";")[0]
            return f"list[{self.kind(inside, file)}]"
        generic = re.match(r"([\w:]+)<(.*)>$", rust)
        if generic:
            name, inside = generic[1].split("::")[-1], split(generic[2])
            inside = [part for part in inside if not part.startswith("'")]
            if name in ("Box", "Arc", "Cow"):
                return self.kind(inside[-1], file)
            if name == "Option":
                return f"Optional[{self.kind(inside[0], file)}]"
            if name == "Vec":
                return f"list[{self.kind(inside[0], file)}]"
            if name == "IdVec":
                return f"list[{self.kind(inside[1], file)}]"
            if name in ("BTreeMap", "Map"):
                # Keys of JSON are text.
                return f"dict[str, {self.kind(inside[1], file)}]"
            rust = generic[1]
        found = find(rust, file)
        if isinstance(found, Struct):
            return self.struct(found)
        return self.enum(found, file)

    def enum(self, found, file):
        head, body = found
        if "untagged" not in head:
            return "str"
        inside = re.findall(r"^\s*\w+\((.*)\),$", body, re.M)
        kinds = []
        for variant in inside:
            parts = [self.kind(part, file) for part in split(variant)]
            kinds.append(parts[0] if len(parts) == 1 else f"list[{parts[0]}]")
        return f"Union[{', '.join(kinds)}]"

    def struct(self, struct, name=None, base=None):
        key = (struct.file, struct.name)
        if key in self.names:
            return self.names[key]
        name = name or RENAMED.get(key, struct.name)
        if name in self.names.values():
            raise SystemExit(f"two classes are called {name}: add {key} to RENAMED")
        self.names[key] = name
        base = base or ("TabularRecord" if key in TABULAR else "Record")
        fields = self.fields(struct, name)
        self.classes.append((name, base, struct.words, fields))
        return name

    def fields(self, struct, name):
        """Name, type, default, words: those that may be missing have a default."""
        fields = []
        for field, rust, attributes, words in struct.fields:
            if re.search(r"serde\(skip\)", attributes):
                continue
            if "serde(flatten)" in attributes and rust.startswith("Map<"):
                # Keys that nobody knows before: they are there as `record["key"]`.
                continue
            if "serde(flatten)" in attributes:
                inner = find(rust, struct.file)
                fields.extend(self.fields(inner, name))
                continue
            renamed = re.search(r'rename = "([^"]+)"', attributes)
            key = renamed[1] if renamed else field
            key += "_" * keyword.iskeyword(key)
            kind = self.kind(rust, struct.file)
            both = TABLES.get((name, key))
            if both:
                kind = both.format(kind[len("list["):-1])
            default = None
            if "skip_serializing_if" in attributes:
                empty = {word: f"field(default_factory={word})" for word in ("list", "dict")}
                empty["Rows"] = f"field(default_factory={kind})"
                empty = {**empty, "str": '""', "int": "0", "float": "0.0", "bool": "False"}
                default = empty.get(re.match(r"\w+", kind)[0], "None")
            fields.append((key, kind, default, words))
        return fields


def fill(text, indent):
    return textwrap.fill(text, 99, initial_indent=indent, subsequent_indent=indent)


def doc(text, indent):
    whole = f'{indent}"""{text}"""'
    if len(whole) <= 99:
        return whole
    return f'{indent}"""' + fill(text, indent).lstrip() + f'\n{indent}"""'


def write():
    writer = Writer()
    for file, struct, name, base in ROOTS:
        writer.struct(STRUCTS[file, struct], name, base)
    out = [
        '"""What commands answer, as dataclasses: the attributes are the keys of the JSON.',
        "",
        "Made by tools/python-results.py from the structs that become the JSON. Do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from dataclasses import dataclass, field",
        "from typing import Optional, Union",
        "",
        "from ._base import (",
        *(f"    {name}," for name in BASES),
        ")",
        "from ._native import Table",
    ]
    for name, base, words, fields in writer.classes:
        out += ["", "", "@dataclass(eq=False, repr=False)" if base in ANSWERS
                else "@dataclass(eq=False)", f"class {name}({base}):", doc(words, "    ")]
        must = [one for one in fields if one[2] is None]
        may = [one for one in fields if one[2] is not None]
        for key, kind, default, words in must + may:
            out += ["", f"    {key}: {kind}" + (f" = {default}" if default else ""),
                    doc(words, "    ")]
        for key, words in PROPERTIES.get(name, []):
            out += ["", "    @property", f"    def {key}(self) -> Table:", doc(words, " " * 8),
                    f'        return self._table("{key}")']
    names = sorted(name for name, *_ in writer.classes)
    out += ["", "", "__all__ = ["] + [f'    "{name}",' for name in names] + ["]", ""]
    return "\n".join(out)


def main():
    text = write()
    if "--check" in sys.argv[1:]:
        if OUT.read_text() != text:
            sys.exit("python/fatflow/results.py is out of date: run tools/python-results.py")
        return
    OUT.write_text(text)


if __name__ == "__main__":
    main()
