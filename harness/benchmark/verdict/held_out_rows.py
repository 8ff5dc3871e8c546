"""Check a possible gain on rows that the benchmark does not have, by its own check.

`row_command` runs the benchmark on one row: a shape of the weights that no row has, then rows with
a value between or beyond those of the others. They are checked and never timed. A failure counts
only if the incumbent is right on that row.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from harness.benchmark.runs.command_session import BenchmarkSession
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.spec import table_rules
from harness.benchmark.spec.command_target import BenchmarkMode
from harness.benchmark.verdict.benchmark_rows import ModeResults
from harness.call_trace.weights import label
from harness.correctness import held_out_points
from harness.formats import shell_command
from harness.formats.text import plain
from harness.verdict import HELD_OUT, Evidence, Finding, Verdict

MOST, LEAST_S = 6, 60.0
"""Checked rows, and the seconds in which another may begin, unless the pairs took longer."""
SLOWER, LEAST_ROW_S = 10.0, 10.0
"""A row may take as many whole runs of the incumbent as this, and at least these seconds."""


def checked(session: BenchmarkSession, results: ModeResults, verdict: Verdict) -> Verdict:
    """Return the verdict with what rows showed that the benchmark does not have."""
    command, columns = session.target.row_command, results.series.config.columns
    measured = [_sizes(dict(zip(columns, key, strict=True))) for key in results.series.keys]
    names = [name for name in columns if all(name in point for point in measured)
             and name in shell_command.placeholders(command)]
    if not names:
        why = "target.row_command says no" if not command else \
            "no column in target.row_command holds whole numbers, which says"
        return _with(verdict, f"values that no row has are not checked: {why} command for them")
    right: list[str] = []
    limit_s = max(LEAST_ROW_S, SLOWER * max(pair.incumbent.wall_s for pair in results.pairs))
    until = time.monotonic() + max(LEAST_S, sum(
        pair.incumbent.wall_s + pair.candidate.wall_s for pair in results.pairs))
    for row in islice(_rows(results, measured, names), MOST):
        if time.monotonic() > until:
            break
        name = plain(label(names, [row[own] for own in names]), 200)
        session.progress("checking", f"{name}, which is not timed", None)
        problem = _problem(session, "candidate", row, limit_s)
        if not problem:
            right.append(name)
        elif not _problem(session, "incumbent", row, limit_s):
            finding = Finding(rule=HELD_OUT, severity="flag", detail=(
                f"{problem} on {name}, which no row of the benchmark has and the incumbent is "
                "right on"))
            return replace(_with(verdict, _described(right)), audit=(*verdict.audit, finding))
    return _with(verdict, _described(right))


def _rows(results: ModeResults, measured: Sequence[Mapping[str, int]],
          names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield rows by column: what a program calls and no row measures, then other values."""
    series, weights = results.series, results.target.weights
    rows = [dict(zip(series.config.columns, key, strict=True)) for key in series.keys]
    if weights is not None:
        for shape in series.shares.absent:
            yield rows[0] | dict(zip(weights.columns, shape.cells, strict=True))
    for point in held_out_points.points(measured, names, random.SystemRandom()):
        yield rows[point.base] | {point.name: str(point.value)}


def _problem(session: BenchmarkSession, side: str, row: Mapping[str, str],
             limit_s: float) -> str:
    """Run one side on a row; return what is wrong, "" if its check passes. Raises Cancelled."""
    target = session.target
    mode = BenchmarkMode(name="full", command=shell_command.fill(target.row_command, row),
                         csv=target.csv)
    try:
        with session.lock() as held:
            reading = session.measure(session.copies[side], mode, target, session.row_cost, held,
                                      limit_s)
        reading.expect_passed()
        table = reading.table
        written = [_sizes(dict(zip(table.columns, cells, strict=True))) for cells in table.rows]
        if len(written) != 1 or not _sizes(row).items() <= written[0].items():
            return "writes other rows than it was asked for"
    except BenchmarkFault as fault:
        verb = "is wrong" if fault.kind == "failed-check" else "fails"
        return f"{verb} ({plain(fault.what, 200)})"
    return ""


def _sizes(row: Mapping[str, str]) -> dict[str, int]:
    """Return the whole numbers of a row by column."""
    numbers = {name: table_rules.number(cell) for name, cell in row.items()}
    return {name: int(value) for name, value in numbers.items()
            if value is not None and value.is_integer() and value >= 0}


def _described(right: list[str]) -> str:
    return f"right on {len(right)} rows that the benchmark does not have: {'; '.join(right)}" \
        if right else "no row that the benchmark does not have could be checked"


def _with(verdict: Verdict, detail: str) -> Verdict:
    return replace(verdict, evidence=(*verdict.evidence, Evidence(kind=HELD_OUT, detail=detail)))
