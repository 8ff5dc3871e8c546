"""Read a project's benchmark from its sources: the script, its table and columns, the tests.

The project's code does not run. The module `columns` guesses what the columns of a real run mean.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.discovery.project import sources
from engine.discovery.project.kernel_source import BENCH, TEST, stems, string_constants, words
from engine.routing.source_language import parse_python
from harness.benchmark.spec import metric_units
from harness.formats.text import plain

WRITES = re.compile(r"csv\.(?:Dict)?[Ww]riter|\.to_csv\(|\.csv[\"'][^\n]*[\"']w")
REDIRECTED = re.compile(r"(?<![0-9&>])>>?\s*([\w./-]+\.\w+)\s*$")
"""The end of a command that writes its output to a file."""
_WRITES_JSON = re.compile(r"json\.dumps?\(|\.to_json\(")
_QUICK = "quick_test_bench.py"
_HEADER_BYTES, _JSON_BYTES = 1 << 16, 4 << 20


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A script that writes a table, CSV or JSON; `columns` are those known without running it.

    `has_quick_option` tells whether it takes `--quick`.
    """

    script: str
    csv: str
    columns: tuple[str, ...] = ()
    has_quick_option: bool = False

    @property
    def command(self) -> str:
        return f"python {self.script}"


def find_benchmarks(project: Path) -> list[Benchmark]:
    """Return the scripts that seem to be benchmarks and write a table, the likeliest first.

    A script that writes JSON, which is used for much else, must name a column of times or rates.
    """
    scored = []
    for path in sources.project_files(project):
        source = sources.read_source(path) if path.suffix == ".py" else ""
        is_csv = bool(WRITES.search(source))
        if not (is_csv or _WRITES_JSON.search(source)) or path.name == _QUICK:
            continue
        script = read_benchmark(project, path.relative_to(project).as_posix(), source)
        if not is_csv and not (script.csv and _is_timed(script)):
            continue
        scored.append((_likelihood(script), script))
    return [script for score, script in sorted(scored, key=lambda pair: -pair[0]) if score > 0]


def by_name(project: Path) -> Benchmark | None:
    """Return the first script whose name says that it is a benchmark, None if there is none.

    It need not name the table that it writes.
    """
    script = next((path for path in sources.project_files(project) if path.suffix == ".py"
                   and words(path.stem) & {"bench", "benchmark", "benchmarks"}
                   and path.name != _QUICK), None)
    return read_benchmark(project, script.relative_to(project).as_posix(),
                          sources.read_source(script)) if script else None


def read_benchmark(project: Path, script: str, source: str) -> Benchmark:
    """Return a benchmark from its script's text."""
    tree = parse_python(source) or ast.Module(body=[], type_ignores=[])
    name, is_written = _table(tree, ".csv")
    if not (is_written or (name and WRITES.search(source))) and _WRITES_JSON.search(source):
        other, is_written = _table(tree, ".json")
        name = other if is_written or not name else name
    header = _header(project / name) if name else ()
    return Benchmark(script=script, csv=name, columns=header or _written(tree),
                     has_quick_option="--quick" in source)


def test_command(project: Path, script: str, files: Sequence[str]) -> str:
    """Return the command of the first test script that mentions one of the files, or ""."""
    tested = {_module(PurePosixPath(file)) for file in files}
    for path in sources.project_files(project):
        name = path.relative_to(project).as_posix()
        if path.suffix != ".py" or name == script or not words(path.stem) & TEST:
            continue
        source = sources.read_source(path)
        if not (tested & words(path.stem)) \
                and not any(re.search(rf"\b{re.escape(stem)}\b", source) for stem in tested):
            continue
        is_script = "__main__" in source or not re.search(r"^(?:async )?def test_", source, re.M)
        return f"python {name}" if is_script else f"python -m pytest -q {name}"
    return ""


def _module(file: PurePosixPath) -> str:
    """Return the name by which a test mentions a file: its own, or that of its package."""
    return file.parent.name if file.stem == "__init__" and file.parent.name else file.stem


def op_name(script: str, files: Sequence[str], project: Path) -> str:
    """Return the operator's name: the script's, or else the kernel's, or else the project's."""
    names = [*stems(script), *(PurePosixPath(file).stem for file in files), project.name]
    return next((name for name in names if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name)), "op")


def _is_timed(script: Benchmark) -> bool:
    return any(metric_units.unit_in(name) for name in script.columns)


def _likelihood(script: Benchmark) -> float:
    """Return a score above 0 for a script that seems to be a benchmark."""
    name_words = words(script.script)
    is_timed = _is_timed(script)
    return (2.0 * bool(name_words & BENCH) + 1.0 * bool(name_words & TEST) + 3.0 * is_timed
            + bool(script.csv) if is_timed or name_words & (BENCH | TEST) else 0.0)


def _table(tree: ast.AST, suffix: str) -> tuple[str, bool]:
    """Return the table that a script opens for writing, else the first that it names, else "".

    The second value tells whether it opens that table for writing.
    """
    mentioned: list[str] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else \
            node.func.id if isinstance(node.func, ast.Name) else ""
        path = [node.func.value] if isinstance(node.func, ast.Attribute) \
            and name in ("open", "write_text") else []  # Path("a.json").write_text(...)
        arguments = [text for part in (*path, *node.args, *(word.value for word in node.keywords))
                     for text in string_constants(part)]
        names = [text for text in arguments if text.endswith(suffix)]
        if names and (name in ("to_csv", "to_json", "write_text") or (
                name == "open" and {"w", "wt"} & set(arguments))):
            return names[0], True
        mentioned += names
    anywhere = [text for text in string_constants(tree) if text.endswith(suffix)]
    return next((text for text in (*mentioned, *anywhere) if _inside(text)), ""), False


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.stem) and not path.is_absolute() and ".." not in path.parts


def _written(tree: ast.AST) -> tuple[str, ...]:
    """Return the column names in the largest literal that contains a time or a rate."""
    best: tuple[str, ...] = ()
    for node in ast.walk(tree):
        names: tuple[str, ...] = ()
        if isinstance(node, ast.Dict | ast.List | ast.Tuple):
            items = node.keys if isinstance(node, ast.Dict) else node.elts
            names = tuple(item.value for item in items
                          if isinstance(item, ast.Constant) and isinstance(item.value, str))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) \
                and node.func.id == "dict":
            names = tuple(word.arg for word in node.keywords if word.arg)
        if len(names) > len(best) and any(metric_units.unit_in(name) for name in names):
            best = names
    return tuple(plain(name, 80) for name in dict.fromkeys(best))


def _header(path: Path) -> tuple[str, ...]:
    """Return the column names of an earlier run's table, empty if there is none."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            names = _keys(file.read(_JSON_BYTES)) if path.suffix == ".json" else \
                next(csv.reader([file.readline(_HEADER_BYTES)]), [])
    except (OSError, csv.Error, ValueError, RecursionError):
        return ()
    return tuple(plain(name.strip(), 80) for name in names if name.strip())


def _keys(text: str) -> list[str]:
    """Return the keys of the first object of a JSON list, which may be a value of an object.

    Raises ValueError if the text is not JSON.
    """
    value = json.loads(text)
    lists = list(value.values()) if isinstance(value, dict) else [value]
    return next((list(rows[0]) for rows in lists
                 if isinstance(rows, list) and rows and isinstance(rows[0], dict)), [])
