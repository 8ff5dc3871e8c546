"""Write `quick_test_bench.py`: the project's own benchmark, restricted to representative shapes.

The benchmark's source decides how. `arguments`: it has an option for each column in which rows
differ, and runs once per shape. `environment`: it reads KOPT_SHAPES, a JSON list. `filter`: it
cannot be restricted, so it runs whole and other rows are dropped; as that saves no time, it gives
no quick command.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from harness.benchmark.spec.command_line import words
from harness.benchmark.spec.command_target import CommandTarget

Restriction = Literal["arguments", "environment", "filter"]
NAME = "quick_test_bench.py"
VARIABLE = "KOPT_SHAPES"
_OPTION = re.compile(r"add_argument\(\s*((?:[\"'][-\w]+[\"']\s*,?\s*)+)")
_FLAG = re.compile(r"[\"'](--[-\w]+)[\"']")

_TEMPLATE = '''\
"""Runs the benchmark for representative shapes only: `python quick_test_bench.py` in the project.

Made by kopt. It writes CSV as the whole benchmark does, with the rows of SHAPES only; with all rows
if SHAPES is empty.
"""

import csv
import json
import os
import subprocess
import sys

COMMAND = {command}
VARIABLES = {variables}
CSV = {csv}
SHOWN = {shown}
OPTIONS = {options}
SHAPES = {shapes}


def benchmark(arguments, shapes):
    """Run it and return the header and rows that it wrote."""
    if os.path.lexists(CSV):
        os.unlink(CSV)
    chosen = {{{variable!r}: json.dumps(shapes)}} if shapes else {{}}
    done = subprocess.run([*COMMAND, *arguments], env={{**os.environ, **VARIABLES, **chosen}})
    if done.returncode:
        sys.exit(done.returncode if done.returncode > 0 else 1)
    if not os.path.isfile(CSV):
        sys.exit(f"the benchmark wrote no {{CSV}}")
    with open(CSV, newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file, skipinitialspace=True) if any(line)]
    if not lines:
        sys.exit(f"{{CSV}} is empty")
    header = [name.strip() for name in lines[0]]
    return header, [[cell.strip() for cell in line] for line in lines[1:]]


def same(cell, value):
    try:
        return float(cell) == float(value)
    except ValueError:
        return cell == value


def of_shape(header, rows, shape):
    """Return the rows of one shape; end the script if there is none."""
    for name in shape:
        if name not in header:
            sys.exit(f"{{CSV}} has no column {{name}}")
    places = {{name: header.index(name) for name in shape}}
    found = [row for row in rows if all(same(row[places[name]], shape[name]) for name in shape)]
    if not found:
        sys.exit(f"{{CSV}} has no row for {{shape}}")
    return found


def measured():
    if OPTIONS and SHAPES:
        header, kept = [], []
        for shape in SHAPES:
            arguments = [word for name in OPTIONS for word in (OPTIONS[name], shape[name])]
            header, rows = benchmark(arguments, [shape])
            kept += of_shape(header, rows, shape)
        return header, kept
    header, rows = benchmark([], SHAPES)
    if not SHAPES:
        return header, rows
    return header, [row for shape in SHAPES for row in of_shape(header, rows, shape)]


header, rows = measured()
with open(CSV, "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([header, *rows])
for row in rows:
    cells = dict(zip(header, row))
    print(" ".join(f"{{name}}={{cells[name]}}" for name in cells if not SHOWN or name in SHOWN))
'''


@dataclass(frozen=True, kw_only=True)
class QuickScript:
    """The script's text, how it restricts the benchmark, and that in words."""

    text: str
    by: Restriction
    why: str


def make_script(target: CommandTarget, shapes: Sequence[Mapping[str, str]],
                source: str) -> QuickScript:
    """Return the script for rows given by config columns; `source` is the benchmark's text."""
    keys = list(shapes[0]) if shapes else []
    options = _options(source, keys)
    by: Restriction = "environment" if VARIABLE in source else "arguments" if options else "filter"
    variables, argv = words(target.command)
    text = _TEMPLATE.format(
        command=_literal(argv), variables=_literal(variables), csv=_literal(target.csv),
        shown=_literal([*keys, target.check.column, *(metric.name for metric in target.metrics)]),
        options=_literal(options if by == "arguments" else {}), variable=VARIABLE,
        shapes=_shape_list([dict(shape) for shape in shapes]))
    return QuickScript(text=text, by=by, why={
        "arguments": f"run once per shape with {' '.join(options.values())}",
        "environment": f"restricted by {VARIABLE}",
        "filter": "the benchmark has no options for its shapes: it runs whole"}[by])


def script_command(path: Path) -> str:
    """Return the command that runs the script at a path."""
    return f"python {shlex.quote(str(path))}"


def benchmark_file(benchmark: str, files: Sequence[str]) -> str:
    """Return the file of a project that a command runs, "" if it names none."""
    try:
        _, argv = words(benchmark)
    except ValueError:
        return ""
    for at, word in enumerate(argv):
        path = PurePosixPath(word).as_posix()
        module = f"{word.replace('.', '/')}"
        for name in (path, f"{module}.py", f"{module}/__main__.py") \
                if at and argv[at - 1] == "-m" else (path,):
            if name in files:
                return name
    return ""


def _options(source: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the option of each column; empty unless every column has one of its name."""
    known = {_plain_name(flag): flag for flags in _OPTION.findall(source)
             for flag in _FLAG.findall(flags)}
    options = {key: known[_plain_name(key)] for key in keys if _plain_name(key) in known}
    return options if len(options) == len(keys) else {}


def _plain_name(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _literal(value: object) -> str:
    return json.dumps(value)


def _shape_list(shapes: Sequence[Mapping[str, str]]) -> str:
    if not shapes:
        return "[]"
    lines = "".join(f"    {json.dumps(shape)},\n" for shape in shapes)
    return f"[\n{lines}]"
