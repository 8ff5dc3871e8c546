"""A project with a Python kernel, and `kopt trace` on programs that call it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.call_trace import weights
from harness.formats import yaml_document
from tests.support import repos
from tests.support.programs.command_line import answer, kopt

SOURCE = """\
class Array:
    def __init__(self, *shape):
        self.shape = shape

def scale(x, out, width=4, *, mode=0):
    if width < 0:
        raise ValueError("no width")
    return width

class Model:
    @staticmethod
    def forward(x, out, width):
        return width
"""
TASK: dict[str, Any] = {
    "op": "scale", "language": "python", "source": "kernel.py", "entry": "scale",
    "reference": "reference.py:scale", "returns": True,
    "args": [{"name": "x", "dtype": "float32", "shape": ["m", "n"]},
             {"name": "out", "dtype": "float32", "shape": ["m", "n"], "role": "output"},
             {"name": "w", "dtype": "int64", "value": "width"}],
    "classes": [{"name": "small", "shape": {"m": 2, "n": 3, "width": 4}},
                {"name": "large", "shape": {"m": 8, "n": 8, "width": 4}}]}
START = "from kernel import Array as A, scale\nimport kernel, os, sys\n"
TWO = "scale(A(2, 3), A(2, 3))\n"
KIND = ("2", "3", "4")
"""The shape of the call TWO: m, n and width."""


def project(path: Path, *, task: dict[str, Any] | None = None, program: str = "",
            **fields: Any) -> Path:
    """Make a project of a Python kernel; return the manifest's path."""
    repos.project(path, {
        "kernel.py": SOURCE, "reference.py": "def scale(x, w):\n    return x\n",
        "task.yaml": yaml_document.dump({**TASK, **(task or {})}), "run.py": program,
        "manifest.yaml": yaml_document.dump({
            "target_op": "scale", "target": {"kind": "kernel", "task": "task.yaml"},
            "gpu": {"device": "cpu"}, **fields})})
    return path / "manifest.yaml"


def trace(manifest: Path, *words: str, python: tuple[str, ...] = (), program: str = "run.py",
          **env: str) -> subprocess.CompletedProcess[str]:
    return kopt("trace", str(manifest), *words, "--", sys.executable, *python, program,
                cwd=manifest.parent, **env)


def counted(manifest: Path, *words: str, **env: str) -> dict[tuple[str, ...], int]:
    """Return the number of calls of each shape, after a check that the written file agrees."""
    found = answer(trace(manifest, "--json", *words, **env))
    calls = {tuple(shape["shape"].values()): shape["calls"] for shape in found["shapes"]}
    read = weights.parse(Path(found["file"]).read_bytes(), "it")
    assert list(read.columns) == found["columns"]
    assert {shape.cells: shape.calls for shape in read.shapes} == calls
    return calls
