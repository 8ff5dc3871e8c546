"""Which function `kopt trace` counts for a manifest, and which arguments make a shape."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from engine.manifest.schema import Manifest
from harness.benchmark.spec import table_rules
from harness.call_trace import shapes
from harness.call_trace.counts import CountedFunction, Counts
from harness.call_trace.shapes import Dimensions, ShapeTable
from harness.call_trace.weights import CALLS
from harness.errors import InputError, Refused
from harness.tasks import task_file
from harness.tasks.target import Target

PYTHON = ("python", "triton")
FORM = "--of FILE.py:FUNCTION or --of MODULE:FUNCTION"


@dataclass(frozen=True, kw_only=True)
class TraceTarget:
    """The function to count, with a `title` for messages, and what makes a shape.

    A shape consists of a kernel's dimensions, or else of the named columns, None for all scalar
    arguments.
    """

    function: CountedFunction
    title: str
    kernel: Target | None = None
    dimensions: Dimensions | None = None
    columns: tuple[str, ...] | None = None

    def table(self, counts: Counts) -> ShapeTable:
        """Return the counts by shape. Raises Refused where no argument makes a shape."""
        if self.dimensions is not None:
            return shapes.of_kernel(self.dimensions, counts)
        return shapes.of_command(self.columns, counts)


def choose(manifest: Manifest, of: str) -> TraceTarget:
    """Return what to count for a manifest; `of` names a function, "" means the kernel's entry."""
    project = Path(manifest.project)
    if manifest.target.kind == "kernel":
        return _kernel(project, task_file.load(project / manifest.target.task), of)
    if manifest.target.kind != "command":
        raise Refused(f"{manifest.target.kind} targets have no calls to count",
                      where="target.kind", fix="describe the kernel in a task file")
    if not of:
        raise InputError("a command target does not say which function to count", where="--of",
                         fix=FORM)
    columns = table_rules.columns(manifest.target.configs) or None
    function = replace(_place(project, of),
                       args=None if columns is None else tuple((-1, name) for name in columns))
    return TraceTarget(function=function, title=of, columns=columns)


def _kernel(project: Path, kernel: Target, of: str) -> TraceTarget:
    if not of and kernel.language not in PYTHON:
        names = dict.fromkeys(name for entry in kernel.classes for name in entry.shape)
        raise Refused(f"calls of a function in {kernel.language} cannot be counted",
                      where=kernel.source, fix="name a Python function with the same arguments "
                      "with --of, or write the weights by hand, as a CSV with the columns "
                      f"{', '.join(names)} and {CALLS}")
    dimensions = shapes.dimensions(kernel)
    of = of or f"{kernel.source}:{kernel.entry}"
    places = {arg.name: place for place, arg in enumerate(kernel.args)}
    function = replace(_place(project, of),
                       args=tuple((places[arg.name], arg.name) for arg in dimensions.args))
    return TraceTarget(function=function, title=of, kernel=kernel, dimensions=dimensions)


def _place(project: Path, of: str) -> CountedFunction:
    """Read FILE:FUNCTION or MODULE:FUNCTION; a file is relative to the project."""
    where, _, name = of.rpartition(":")
    if not where or not all(step.isidentifier() for step in name.split(".")):
        raise InputError(f"{of!r} does not name a function", where="--of", fix=FORM)
    file = project / where
    if file.is_file():
        return CountedFunction(name=name, file=os.path.realpath(file))
    if where.endswith(".py") or not all(step.isidentifier() for step in where.split(".")):
        raise InputError("the file does not exist", where=str(file), fix=FORM)
    return CountedFunction(name=name, module=where)
