"""`kopt trace`: count with which shapes a program calls a kernel, as weights of the score.

With --json, `weights` is the value for `target.weights` of the manifest, "" where it would be
refused; an `exit_code` below zero is a signal. The `classes` of a shape are the manifest's classes
that have it, null for a command target, whose rows are known only after its benchmark has run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from engine.manifest.load import load
from engine.manifest.schema import Manifest
from harness.benchmark.spec import table_rules
from harness.call_trace import counts as call_counts
from harness.call_trace import foreground, weights
from harness.call_trace import shapes as call_shapes
from harness.call_trace.counts import CountedFunction, Counts
from harness.call_trace.shapes import Dimensions, ShapeTable
from harness.call_trace.weights import CALLS, Weights, folded
from harness.errors import InputError, KoptError, Refused
from harness.formats.quantities import counted, percent
from harness.isolation.process_outcome import signal_name
from harness.tasks import task_file
from harness.tasks.target import Target
from kopt_tui.cli.output import print_json, print_note, print_table
from kopt_tui.cli.parser import add_json, add_manifest
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

NAME = "calls.csv"
SHOWN = 12
STDERR = 2
PYTHON = ("python", "triton")
FORM = "--of FILE.py:FUNCTION or --of MODULE:FUNCTION"


class TracedShape(msgspec.Struct, frozen=True, kw_only=True):
    """One shape with which the program called the function."""

    shape: dict[str, str]
    calls: int
    share: float
    """Of all calls, 0 to 1."""
    classes: tuple[str, ...] | None


class TracedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a program, and the file with them."""

    file: str
    weights: str
    calls: int
    processes: int
    exit_code: int
    columns: tuple[str, ...]
    shapes: tuple[TracedShape, ...]
    notes: tuple[str, ...]


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
            return call_shapes.of_kernel(self.dimensions, counts)
        return call_shapes.of_command(self.columns, counts)


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = ("kopt trace [MANIFEST] [--of PLACE:FUNCTION] [--output FILE] [--json] "
                    "[--schema] [--workspace DIR] -- COMMAND ARG...")
    parser.epilog = ("Not counted: calls inside torch.compile, replays of CUDA graphs, and "
                     "programs that start Python with -I, -E or -S.")
    add_manifest(parser)
    parser.add_argument("--of", metavar="PLACE:FUNCTION", default="",
                        help="the function to count, in a file of the project or in a module "
                        "(default: the kernel's entry)")
    parser.add_argument("--output", metavar="FILE", type=Path, default=None,
                        help=f"the file to write (default {NAME} in the project)")
    add_json(parser, TracedCalls)


def run(args: argparse.Namespace) -> int:
    command: list[str] = args.command
    if not command:
        raise InputError("no program is given", fix="kopt trace MANIFEST -- COMMAND ARG...")
    manifest = load(args.manifest)
    project = Path(manifest.project)
    traced_target = _choose(manifest, args.of)
    path = _writable(args.output or project / NAME)
    with tempfile.TemporaryDirectory(prefix="kopt-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        env = call_counts.prepare(folder, traced_target.function, os.environ)
        code = foreground.run(command, env, stdout=STDERR if args.json else None)
        counts = call_counts.gather(folder)
    table = traced_target.table(counts)
    if not table.rows:
        raise _nothing_counted(traced_target, counts, table, code)
    data, table = call_shapes.render(table)
    classes, notes, is_usable = _classes(traced_target, table, weights.parse(data, str(path)))
    path.write_bytes(data)
    value = _relative(path, project) if is_usable else ""
    traced = TracedCalls(
        file=str(path), weights=value, calls=table.calls, processes=counts.processes,
        exit_code=code, columns=tuple(table.columns), notes=(*table.notes, *notes), shapes=tuple(
            TracedShape(shape=dict(zip(table.columns, cells, strict=True)), calls=calls,
                        share=calls / table.calls, classes=names)
            for (cells, calls), names in zip(table.rows, classes, strict=True)))
    if args.json:
        print_json(traced)
    else:
        _print_shapes(traced)
        for note in traced.notes:
            print_text(clean(f"- {note}"))
        print_text(clean(f"wrote {path}"
                         + (f"; in the manifest's target: weights: {value}" if value else "")))
    if code:
        sys.stdout.flush()
        print_note(f"the program {_ending(code)}: the file counts its calls until then")
    return 1 if code else 0


def _choose(manifest: Manifest, traced: str) -> TraceTarget:
    """Return what to count for a manifest: the function `traced`, or if "" the kernel's entry."""
    project = Path(manifest.project)
    if manifest.target.kind == "kernel":
        return _kernel(project, task_file.load(project / manifest.target.task), traced)
    if manifest.target.kind != "command":
        raise Refused(f"{manifest.target.kind} targets have no calls to count",
                      where="target.kind", fix="describe the kernel in a task file")
    if not traced:
        raise InputError("a command target does not say which function to count", where="--of",
                         fix=FORM)
    columns = table_rules.columns(manifest.target.configs) or None
    function = replace(_place(project, traced),
                       args=None if columns is None else tuple((-1, name) for name in columns))
    return TraceTarget(function=function, title=traced, columns=columns)


def _kernel(project: Path, kernel: Target, traced: str) -> TraceTarget:
    if not traced and kernel.language not in PYTHON:
        names = dict.fromkeys(name for entry in kernel.classes for name in entry.shape)
        raise Refused(f"calls of a function in {kernel.language} cannot be counted",
                      where=kernel.source, fix="name a Python function with the same arguments "
                      "with --of, or write the weights by hand, as a CSV with the columns "
                      f"{', '.join(names)} and {CALLS}")
    dimensions = call_shapes.dimensions(kernel)
    traced = traced or f"{kernel.source}:{kernel.entry}"
    numbers = {arg.name: number for number, arg in enumerate(kernel.args)}
    function = replace(_place(project, traced),
                       args=tuple((numbers[arg.name], arg.name) for arg in dimensions.args))
    return TraceTarget(function=function, title=traced, kernel=kernel, dimensions=dimensions)


def _place(project: Path, traced: str) -> CountedFunction:
    """Parse FILE:FUNCTION or MODULE:FUNCTION; a file is relative to the project."""
    where, _, name = traced.rpartition(":")
    if not where or not all(step.isidentifier() for step in name.split(".")):
        raise InputError(f"{traced!r} does not name a function", where="--of", fix=FORM)
    file = project / where
    if file.is_file():
        return CountedFunction(name=name, file=os.path.realpath(file))
    if where.endswith(".py") or not all(step.isidentifier() for step in where.split(".")):
        raise InputError("the file does not exist", where=str(file), fix=FORM)
    return CountedFunction(name=name, module=where)


def _classes(target: TraceTarget, table: ShapeTable, calls: Weights
             ) -> tuple[list[tuple[str, ...] | None], list[str], bool]:
    """Return each shape's classes, the notes, and whether the manifest accepts the weights."""
    if target.kernel is None:
        return [None] * len(table.rows), [], True
    names = [entry.name for entry in target.kernel.classes]
    keys = [[str(entry.shape.get(name, "")) for name in table.columns]
            for entry in target.kernel.classes]
    spread = weights.spread(calls, table.columns, keys)
    notes = list(spread.notes(calls, names))
    if spread.names_none:
        notes.append("no shape belongs to a class of the manifest, so kopt would reject this "
                     "file: add classes with the shapes that are called")
    return [tuple(name for name, key in zip(names, keys, strict=True) if folded(key) == cells)
            for cells, _ in table.rows], notes, not spread.names_none


def _print_shapes(traced: TracedCalls) -> None:
    print(f"{counted(traced.calls, 'call')} of {counted(len(traced.shapes), 'shape')} in "
          f"{counted(traced.processes, 'process')}")
    headers = (*traced.columns, "calls", "share", "class")
    print_table(headers, ((*shape.shape.values(), shape.calls, percent(shape.share, 1),
                           "" if shape.classes is None else ", ".join(shape.classes) or "none")
                          for shape in traced.shapes[:SHOWN]), right=" ".join(headers[:-1]))
    if len(traced.shapes) > SHOWN:
        print(f"and {len(traced.shapes) - SHOWN} more")


def _nothing_counted(target: TraceTarget, counts: Counts, table: ShapeTable,
                     code: int) -> KoptError:
    """Return the error for a program without a counted call."""
    fix = ""
    if counts.calls:
        what = f"{counted(counts.calls, 'call')} could not be counted"
        fix = "; ".join(table.notes)
    elif counts.processes:
        what = "was loaded but never called"
        fix = "calls inside torch.compile are not counted"
    elif counts.notes:
        what, fix = "could not be counted", "; ".join(counts.notes)
    elif counts.elsewhere:
        what = f"was never loaded, but another file of that name was: {counts.elsewhere[0]}"
        fix = "trace a program that runs the project's own source"
    elif counts.python:
        what = "was never loaded"
    else:
        what = "the program started no Python that can be traced"
        fix = "Python started with -I, -E or -S, or without PYTHONPATH, cannot be traced"
    if code:
        what += f", and the program {_ending(code)}"
    return Refused(clean(what, 400), where=target.title, fix=clean(fix, 600))


def _ending(code: int) -> str:
    return f"failed with exit code {code}" if code > 0 else f"was killed by {signal_name(-code)}"


def _relative(path: Path, project: Path) -> str:
    """Return a file as a manifest names it: relative to the project where it lies inside."""
    path, project = path.resolve(), project.resolve()
    return str(path.relative_to(project) if path.is_relative_to(project) else path)


def _writable(path: Path) -> Path:
    """Return the output file's absolute path, checked before the program runs for hours."""
    path = Path(os.path.abspath(path.expanduser()))
    folder = path.parent
    if path.is_dir() or not folder.is_dir():
        raise InputError("is a folder" if path.is_dir() else "its folder does not exist",
                         where=str(path), fix="--output FILE.csv")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError("cannot be written", where=str(path), fix="--output FILE.csv")
    return path
