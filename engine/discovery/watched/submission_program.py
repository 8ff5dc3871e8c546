"""Writes a program that calls a submission to a GPU MODE competition as its evaluation does.

Beside the submission lies `reference.py` with `ref_kernel(data)` and `generate_input(...)`, and
mostly `task.yml` with the arguments of `generate_input` for tests and benchmarks.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.discovery.module.draft_module import FOLDER
from engine.discovery.project.sources import read_source
from engine.routing.source_language import parse_python
from harness.formats import yaml_document

FILE = f"{FOLDER}/calls.py"
REFERENCE, SPECS = "reference.py", "task.yml"
NEEDED = {"ref_kernel", "generate_input"}
MOST_SMALL = 4
"""The most tests that are run on a CPU."""


def write(project: Path, source: str, entry: str, *, small: bool) -> str:
    """Return the program, which is to lie in the project's FILE; "" for another kind of source.

    With `small` it makes the tests' first inputs, otherwise those of the benchmarks.
    """
    folder = (project / source).parent
    tree = parse_python(read_source(folder / REFERENCE))
    functions = {node.name for node in getattr(tree, "body", [])
                 if isinstance(node, ast.FunctionDef)}
    specs = _specs(folder, small=small) if functions >= NEEDED else []
    if not specs:
        return ""
    return f'''"""Calls {entry} with inputs of {REFERENCE}, written by kopt new."""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / {str(Path(source).parent)!r}
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import torch
from {Path(source).stem} import {entry}
from {Path(REFERENCE).stem} import generate_input, ref_kernel


def copied(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {{key: copied(part) for key, part in value.items()}}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def compare(result, expected):
    try:
        torch.testing.assert_close(result, expected, rtol=0.1, atol=0.1, check_dtype=False)
    except AssertionError as error:
        print("not what ref_kernel returns:", error)


def check(spec):
    data = generate_input(**spec)
    copy = copied(data)
    result = {entry}(data)
    expected = ref_kernel(copy)
    compare(result, expected)


if __name__ == "__main__":
    for spec in {specs!r}:
        check(spec)
'''


def _specs(folder: Path, *, small: bool) -> list[dict[str, object]]:
    text = read_source(folder / SPECS)
    content = yaml_document.parse(text, SPECS).value if text else {}
    tests, benchmarks = (_mappings(content.get(key)) for key in ("tests", "benchmarks"))
    return (tests or benchmarks)[:MOST_SMALL] if small else benchmarks or tests


def _mappings(value: object) -> list[dict[str, object]]:
    return [dict(each) for each in value if isinstance(each, Mapping)] \
        if isinstance(value, Sequence) and not isinstance(value, str) else []
