"""What of a manifest `kopt trace` counts: which function, told apart by which of its arguments."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from engine.manifest.schema import Manifest
from harness import target
from harness.benchmark.spec import row_classes
from harness.call_trace import shapes
from harness.call_trace.counts import CountedFunction, Counts
from harness.call_trace.shapes import Dimensions, ShapeTable
from harness.call_trace.weights_csv import CALLS
from harness.errors import InputError, Refused
from harness.target import Target

PYTHON = ("python", "triton")
FORM = "--of FILE.py:FUNCTION or --of MODULE:FUNCTION"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A function, called `title`, and what makes a shape: a kernel's dimensions or else columns,
    None for all scalar arguments.
    """

    function: CountedFunction
    title: str
    kernel: Target | None = None
    dimensions: Dimensions | None = None
    columns: tuple[str, ...] | None = None

    def table(self, counts: Counts) -> ShapeTable:
        """Return what was counted by shape. Raises Refused where no argument makes one."""
        if self.dimensions is not None:
            return shapes.of_kernel(self.dimensions, counts)
        return shapes.of_command(self.columns, counts)


def wanted(manifest: Manifest, of: str) -> Wanted:
    """Return what is counted for a manifest; `of` names a function, "" for the kernel's own."""
    project = Path(manifest.project)
    if manifest.target.kind == "kernel":
        return _kernel(project, target.load(project / manifest.target.task), of)
    if manifest.target.kind != "command":
        raise Refused(f"{manifest.target.kind} targets have no calls to count",
                      where="target.kind", fix="describe the kernel in a task file")
    if not of:
        raise InputError("which function is called is not known of a command target",
                         where="--of", fix=FORM)
    columns = row_classes.columns(manifest.target.configs) or None
    function = replace(_place(project, of),
                       args=None if columns is None else tuple((-1, name) for name in columns))
    return Wanted(function=function, title=of, columns=columns)


def _kernel(project: Path, kernel: Target, of: str) -> Wanted:
    if not of and kernel.language not in PYTHON:
        names = dict.fromkeys(name for one in kernel.classes for name in one.shape)
        raise Refused(f"calls of a function in {kernel.language} are not counted",
                      where=kernel.source, fix="name a Python function with the same arguments "
                      "with --of, or write the weights by hand: a CSV with the columns "
                      f"{', '.join(names)} and {CALLS}")
    found = shapes.dimensions(kernel)
    of = of or f"{kernel.source}:{kernel.entry}"
    places = {arg.name: place for place, arg in enumerate(kernel.args)}
    function = replace(_place(project, of),
                       args=tuple((places[arg.name], arg.name) for arg in found.args))
    return Wanted(function=function, title=of, kernel=kernel, dimensions=found)


def _place(project: Path, of: str) -> CountedFunction:
    """Read FILE:FUNCTION or MODULE:FUNCTION; a file is the project's."""
    where, _, name = of.rpartition(":")
    if not where or not all(step.isidentifier() for step in name.split(".")):
        raise InputError(f"{of!r} names no function", where="--of", fix=FORM)
    file = project / where
    if file.is_file():
        return CountedFunction(name=name, file=os.path.realpath(file))
    if where.endswith(".py") or not all(step.isidentifier() for step in where.split(".")):
        raise InputError("there is no such file", where=str(file), fix=FORM)
    return CountedFunction(name=name, module=where)
