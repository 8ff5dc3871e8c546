"""Write `quick_test_bench.py`: the project's own benchmark, restricted to representative shapes.

How it is restricted depends on the benchmark's source. `arguments`: it has an option for each
config column, and runs once per shape. `environment`: it reads KOPT_SHAPES, a JSON list. `filter`:
it cannot be restricted, so all of it runs and other rows are dropped; as that saves no time, the
manifest gets no quick command.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from string import Template
from typing import Literal

from harness.benchmark.spec.command_target import CommandTarget
from harness.formats import shell_command

Restriction = Literal["arguments", "environment", "filter"]
NAME = "quick_test_bench.py"
VARIABLE = "KOPT_SHAPES"
_OPTION = re.compile(r"add_argument\(\s*((?:[\"'][-\w]+[\"']\s*,?\s*)+)")
_FLAG = re.compile(r"[\"'](--[-\w]+)[\"']")

_TEMPLATE = Template(
    Path(__file__).with_name(f"{NAME}.template").read_text(encoding="utf-8"))


@dataclass(frozen=True, kw_only=True)
class QuickScript:
    """The script's text, how it restricts the benchmark (`by`), and the same in words (`why`).

    `row_command` runs the benchmark on one row (see TargetSpec), "" if it cannot be restricted.
    """

    text: str
    by: Restriction
    why: str
    row_command: str = ""


def make_script(target: CommandTarget, shapes: Sequence[Mapping[str, str]],
                source: str) -> QuickScript:
    """Return the script for rows given by config columns; `source` is the benchmark's text."""
    keys = list(shapes[0]) if shapes else []
    options = {} if shell_command.needs_shell(target.command) else _options(source, keys)
    by: Restriction = "environment" if VARIABLE in source else "arguments" if options else "filter"
    variables, argv = shell_command.split(target.command)
    shape_list = "".join(f"    {json.dumps(dict(shape))},\n" for shape in shapes)
    text = _TEMPLATE.substitute(
        command=json.dumps(argv), variables=json.dumps(variables), csv=json.dumps(target.csv),
        shown=json.dumps([*keys, target.check.column, *(metric.name for metric in target.metrics)]),
        options=json.dumps(options if by == "arguments" else {}), variable=repr(VARIABLE),
        shapes=f"[\n{shape_list}]" if shapes else "[]")
    return QuickScript(text=text, by=by, row_command=_row_command(target, keys, by, options), why={
        "arguments": f"run once per shape with {' '.join(options.values())}",
        "environment": f"restricted by {VARIABLE}",
        "filter": "the benchmark has no options for its shapes: it runs whole"}[by])


def _row_command(target: CommandTarget, keys: Sequence[str], by: Restriction,
                 options: Mapping[str, str]) -> str:
    """Return the command that measures one row, with `{COLUMN}` in place of its values."""
    if not keys or not all(re.fullmatch(r"\w+", key) for key in keys) or \
            shell_command.needs_shell(target.command):
        return ""
    command = target.command.replace("{", "{{").replace("}", "}}")
    if by == "arguments":
        return " ".join([command, *(f"{options[key]} {{{key}}}" for key in keys)])
    shape = ", ".join(f'"{key}": "{{{key}}}"' for key in keys)
    return f"{VARIABLE}='[{{{{{shape}}}}}]' {command}" if by == "environment" else ""


def script_command(path: Path) -> str:
    """Return the command that runs the script at a path."""
    return f"python {shlex.quote(str(path))}"


def benchmark_file(benchmark: str, files: Sequence[str]) -> str:
    """Return the first of a project's files that a command names, "" if it names none."""
    try:
        argv = shell_command.words_of(benchmark)
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
    """Return each column's option; empty unless every column has an option of its name."""
    known = {_plain_name(flag): flag for flags in _OPTION.findall(source)
             for flag in _FLAG.findall(flags)}
    options = {key: known[_plain_name(key)] for key in keys if _plain_name(key) in known}
    return options if len(options) == len(keys) else {}


def _plain_name(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
