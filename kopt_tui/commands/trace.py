"""`kopt trace`: how often a program calls a kernel, by shape, as weights of a manifest's score."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

import msgspec

from engine.manifest.load import load
from harness.call_trace import counts as call_counts
from harness.call_trace import foreground, weights, weights_csv
from harness.call_trace import shapes as call_shapes
from harness.call_trace.counts import Counts
from harness.call_trace.shapes import ShapeTable, some
from harness.call_trace.weights import Weights, folded
from harness.errors import InputError, KoptError, Refused
from kopt_tui.cli import trace_target
from kopt_tui.cli.json_output import print_json
from kopt_tui.cli.parser import Commands, add_json
from kopt_tui.cli.text_table import print_table
from kopt_tui.cli.trace_target import Wanted
from kopt_tui.snapshot.phrases import clean

NAME = "calls.csv"
SHOWN = 12
STDERR = 2


class ShapeCalls(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file; `classes` are those of the manifest with this shape, null for a command
    target, whose rows are known when its benchmark has run.
    """

    shape: dict[str, str]
    calls: int
    share: float
    classes: tuple[str, ...] | None


class TracedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """What a program called; an `exit_code` below zero is a signal.

    `weights` is what `target.weights` of the manifest can say, "" where it would be refused.
    """

    file: str
    weights: str
    calls: int
    processes: int
    exit_code: int
    columns: tuple[str, ...]
    shapes: tuple[ShapeCalls, ...]
    notes: tuple[str, ...]


def add(sub: Commands) -> None:
    parser = sub.add_parser(
        "trace", usage="kopt trace MANIFEST [--of PLACE:FUNCTION] [--output FILE] [--json] "
        "[--workspace DIR] -- COMMAND ARG...",
        epilog="Calls inside torch.compile and replays of CUDA graphs are not seen, nor is Python "
        "that is started with -I, -E or -S.")
    parser.add_argument("manifest", metavar="MANIFEST", type=Path)
    parser.add_argument("--of", metavar="PLACE:FUNCTION", default="",
                        help="the function to count, of a file of the project or of a module")
    parser.add_argument("--output", metavar="FILE", type=Path, default=None,
                        help=f"what to write (default {NAME} in the project)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    command: list[str] = args.command
    if not command:
        raise InputError("which program?", fix="kopt trace MANIFEST -- COMMAND ARG...")
    manifest = load(args.manifest)
    project = Path(manifest.project)
    wanted = trace_target.wanted(manifest, args.of)
    path = _writable(args.output or project / NAME)
    with tempfile.TemporaryDirectory(prefix="kopt-", ignore_cleanup_errors=True) as made:
        folder = Path(made).resolve()
        env = call_counts.prepare(folder, wanted.function, os.environ)
        code = foreground.run(command, env, stdout=STDERR if args.json else None)
        counts = call_counts.gather(folder)
    table = wanted.table(counts)
    if not table.rows:
        raise _nothing(wanted, counts, table, code)
    data, table = call_shapes.render(table)
    traced = _traced(wanted, table, weights_csv.parse(data, str(path)))
    traced = msgspec.structs.replace(
        traced, file=str(path), processes=counts.processes, exit_code=code,
        weights=_named(path, project) if traced.weights else "")
    path.write_bytes(data)
    if args.json:
        print_json(traced)
    else:
        _tell(traced)
    if code:
        sys.stdout.flush()
        print(f"kopt: the program {_ending(code)}: the file has what it had called until then",
              file=sys.stderr)
    return 1 if code else 0


def _traced(wanted: Wanted, table: ShapeTable, found: Weights) -> TracedProgram:
    """Say what was counted, and what of the manifest's classes it is."""
    notes, of_shape = list(table.notes), None
    taken = True
    if wanted.kernel is not None:
        classes = wanted.kernel.classes
        keys = [[str(one.shape.get(name, "")) for name in table.columns] for one in classes]
        names = [one.name for one in classes]
        spread = weights.spread(found, table.columns, keys)
        notes += spread.notes(found, names)
        taken = not spread.names_none
        if not taken:
            notes.append("no shape is one of a class of the manifest, which would refuse this "
                         "file: give it classes of the shapes that are called")
        of_shape = [tuple(name for name, key in zip(names, keys, strict=True)
                          if folded(key) == cells) for cells, _ in table.rows]
    return TracedProgram(
        file="", weights=NAME if taken else "", calls=table.calls, processes=0, exit_code=0,
        columns=table.columns, notes=tuple(notes), shapes=tuple(
            ShapeCalls(shape=dict(zip(table.columns, cells, strict=True)), calls=calls,
                       share=calls / table.calls,
                       classes=None if of_shape is None else of_shape[place])
            for place, (cells, calls) in enumerate(table.rows)))


def _tell(traced: TracedProgram) -> None:
    print(f"{some(traced.calls)} of {some(len(traced.shapes), 'shape')} in "
          f"{some(traced.processes, 'process', 'processes')}")
    headers = (*traced.columns, "calls", "share", "class")
    print_table(headers, ((*one.shape.values(), one.calls, f"{one.share:.1%}",
                    "" if one.classes is None else ", ".join(one.classes) or "none")
                   for one in traced.shapes[:SHOWN]), right=" ".join(headers[:-1]))
    if len(traced.shapes) > SHOWN:
        print(f"and {len(traced.shapes) - SHOWN} more")
    for note in traced.notes:
        print(clean(f"- {note}"))
    print(clean(f"wrote {traced.file}"
                + (f"; in the manifest's target: weights: {traced.weights}" if traced.weights
                   else "")))


def _nothing(wanted: Wanted, counts: Counts, table: ShapeTable, code: int) -> KoptError:
    """Return why there is nothing to write."""
    fix = ""
    if counts.calls:
        what = f"nothing could be counted of {some(counts.calls)}"
        fix = "; ".join(table.notes)
    elif counts.processes:
        what = "was loaded and never called"
        fix = "calls inside torch.compile are not seen"
    elif counts.notes:
        what, fix = "could not be counted", "; ".join(counts.notes)
    elif counts.elsewhere:
        what = f"was never loaded, another file of that name was: {counts.elsewhere[0]}"
        fix = "trace a program that runs the project's own source"
    elif counts.python:
        what = "was never loaded"
    else:
        what = "no Python process was seen"
        fix = "Python that is started with -I, -E or -S, or without PYTHONPATH, is not"
    if code:
        what += f", and the program {_ending(code)}"
    return Refused(clean(what, 400), where=wanted.title, fix=clean(fix, 600))


def _ending(code: int) -> str:
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _named(path: Path, project: Path) -> str:
    """Return a file as a manifest names it: a path is the project's."""
    path, project = path.resolve(), project.resolve()
    return str(path.relative_to(project) if path.is_relative_to(project) else path)


def _writable(path: Path) -> Path:
    """Refuse what cannot be written before a program runs for hours."""
    path = Path(os.path.abspath(path.expanduser()))
    folder = path.parent
    if path.is_dir() or not folder.is_dir():
        raise InputError("is a folder" if path.is_dir() else "is in no folder that is there",
                         where=str(path), fix="--output FILE.csv")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError("cannot be written", where=str(path), fix="--output FILE.csv")
    return path
