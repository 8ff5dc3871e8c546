"""What a project tells about its own benchmark: the script, its CSV, its columns, its tests.

Read from the sources alone; nothing of the project is run. What a real run adds is in `guess`.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.discovery.project import columns, sources
from engine.discovery.project.kernel_source import BENCH, TEST, stems, texts, words
from harness.formats.text import plain

WRITES = re.compile(r"csv\.(?:Dict)?[Ww]riter|\.to_csv\(|\.csv[\"'][^\n]*[\"']w")
_HEADER_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A script that writes a CSV; `columns` are those known without running it."""

    script: str
    csv: str
    columns: tuple[str, ...] = ()
    quick: bool = False

    @property
    def command(self) -> str:
        return f"python {self.script}"


def benchmarks(project: Path) -> list[Benchmark]:
    """Return the scripts that write a CSV with a time or rate in it, the likeliest first."""
    found = []
    for path in sources.files(project):
        source = sources.read(path) if path.suffix == ".py" else ""
        if not WRITES.search(source) or path.name == "quick_test_bench.py":
            continue
        made = benchmark(project, path.relative_to(project).as_posix(), source)
        found.append((_likely(made), made))
    return [made for score, made in sorted(found, key=lambda pair: -pair[0]) if score > 0]


def benchmark(project: Path, script: str, source: str) -> Benchmark:
    """Return what a script's text says of its CSV."""
    try:
        tree: ast.AST = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        tree = ast.Module(body=[], type_ignores=[])
    name = _csv(tree)
    header = _header(project / name) if name else ()
    return Benchmark(script=script, csv=name, columns=header or _written(tree),
                     quick="--quick" in source)


def test_command(project: Path, script: str, files: Sequence[str]) -> str:
    """Return a command that runs the project's tests of these files, "" where there are none."""
    wanted = {PurePosixPath(file).stem for file in files}
    for path in sources.files(project):
        name = path.relative_to(project).as_posix()
        if path.suffix != ".py" or name == script or not words(path.stem) & TEST:
            continue
        source = sources.read(path)
        if not any(re.search(rf"\b{re.escape(stem)}\b", source) for stem in wanted):
            continue
        alone = "__main__" in source or not re.search(r"^(?:async )?def test_", source, re.M)
        return f"python {name}" if alone else f"python -m pytest -q {name}"
    return ""


def op(script: str, files: Sequence[str], project: Path) -> str:
    """Return the operator's name: what the script's says, else the kernel's, else the project's."""
    named = [*stems(script), *(PurePosixPath(file).stem for file in files), project.name]
    return next((name for name in named if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name)), "op")


def _likely(made: Benchmark) -> float:
    named = words(made.script)
    timed = any(columns.cost_unit(name) for name in made.columns)
    return (2.0 * bool(named & BENCH) + 1.0 * bool(named & TEST) + 3.0 * timed + bool(made.csv)
            if timed or named & (BENCH | TEST) else 0.0)


def _csv(tree: ast.AST) -> str:
    """Return the CSV that a script writes: the one it opens to write, else the first it names."""
    named = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else \
            node.func.id if isinstance(node.func, ast.Name) else ""
        given = [text for part in (*node.args, *(word.value for word in node.keywords))
                 for text in texts(part)]
        found = [text for text in given if text.endswith(".csv")]
        if found and (name == "to_csv" or (name == "open" and {"w", "wt"} & set(given))):
            return found[0]
        named += found
    anywhere = [text for text in texts(tree) if text.endswith(".csv")]
    return next((text for text in (*named, *anywhere) if _inside(text)), "")


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.stem) and not path.is_absolute() and ".." not in path.parts


def _written(tree: ast.AST) -> tuple[str, ...]:
    """Return the names of columns in the largest literal that holds a time or a rate."""
    best: tuple[str, ...] = ()
    for node in ast.walk(tree):
        names: tuple[str, ...] = ()
        if isinstance(node, ast.Dict):
            names = tuple(key.value for key in node.keys
                          if isinstance(key, ast.Constant) and isinstance(key.value, str))
        elif isinstance(node, ast.List | ast.Tuple):
            names = tuple(item.value for item in node.elts
                          if isinstance(item, ast.Constant) and isinstance(item.value, str))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) \
                and node.func.id == "dict":
            names = tuple(word.arg for word in node.keywords if word.arg)
        if len(names) > len(best) and any(columns.cost_unit(name) for name in names):
            best = names
    return tuple(plain(name, 80) for name in dict.fromkeys(best))


def _header(path: Path) -> tuple[str, ...]:
    """Return the header of a CSV that an earlier run left, empty if there is none."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            line = file.readline(_HEADER_BYTES)
        names = next(csv.reader([line]), [])
    except (OSError, csv.Error):
        return ()
    return tuple(plain(name.strip(), 80) for name in names if name.strip())
