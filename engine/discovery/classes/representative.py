"""Choose a few rows of each config class, after the baseline, that represent all of its rows.

For grouped work, such as a matmul per expert, one row always has skewed groups: a gain that holds
only for equal groups does not help training or serving.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from engine.discovery.classes import group_skew
from engine.discovery.classes.strata import Stratum
from engine.discovery.project.columns import TableColumn
from harness.benchmark.runs.result_table import ResultTable

SPREAD = 4.0
"""If its highest cost is this many times its lowest, a core class's cheapest row is chosen too."""


@dataclass(frozen=True, kw_only=True)
class Representatives:
    """Row numbers in order; `skewed` is the row of uneven groups, `note` a warning for people."""

    rows: tuple[int, ...]
    skewed: int | None = None
    note: str = ""


def choose_rows(classes: Sequence[Stratum], table: Sequence[TableColumn],
                costs: Sequence[float]) -> Representatives:
    """Return the rows that represent the classes.

    These are the median row of each class; of a core class also the most expensive row and, if its
    costs differ widely, the cheapest; and one row of uneven groups.
    """
    chosen: set[int] = set()
    for stratum in classes:
        chosen.update(_rows_of_class(stratum, costs))
    skew = group_skew.find_skew(table)
    if skew is None:
        note = "the work is grouped, but no column gives the groups: no row is known to be skewed" \
            if group_skew.is_grouped(table) else ""
        return Representatives(rows=tuple(sorted(chosen)), note=note)
    if not skew.rows:
        return Representatives(rows=tuple(sorted(chosen)), note=(
            "all rows have equal groups: a gain may not hold for skewed ones"))
    skewed = max(skew.rows, key=lambda row: (row in chosen, costs[row], -row))
    return Representatives(rows=tuple(sorted({*chosen, skewed})), skewed=skewed)


def row_cells(keys: Sequence[str], table: Sequence[TableColumn],
              rows: Sequence[int]) -> tuple[dict[str, str], ...]:
    """Return some rows, each as its cells by config column."""
    by_name = {column.name: column for column in table}
    return tuple({key: by_name[key].cells[row] for key in keys} for row in rows)


def shapes_of_table(keys: Sequence[str], table: ResultTable) -> tuple[dict[str, str], ...]:
    """Return the distinct config cells of another table's rows; empty if it lacks a column."""
    if any(key not in table.columns for key in keys):
        return ()
    distinct = dict.fromkeys(table.cells(row, keys) for row in range(len(table.rows)))
    return tuple(dict(zip(keys, cells, strict=True)) for cells in distinct if cells)


def manifest_shapes(rows: Sequence[Mapping[str, str]]) -> tuple[str | dict[str, int], ...]:
    """Return rows as a manifest lists shapes: whole numbers by name, or `m=64 dtype=fp16`."""
    if all(re.fullmatch(r"\d{1,15}", cell) for row in rows for cell in row.values()):
        return tuple({key: int(cell) for key, cell in row.items()} for row in rows)
    return tuple(" ".join(shlex.quote(f"{key}={cell}") for key, cell in row.items())
                 for row in rows)


def parse_shapes(shapes: object) -> tuple[dict[str, str], ...]:
    """Return a manifest's shapes as cells by column; empty unless all of them name columns."""
    if not isinstance(shapes, tuple | list):
        return ()
    parsed = []
    for shape in shapes:
        if isinstance(shape, dict):
            parsed.append({str(key): str(value) for key, value in shape.items()})
        elif isinstance(shape, str):
            parts = [part.partition("=") for part in shlex.split(shape)]
            parsed.append({key: value for key, equals, value in parts if equals})
    return tuple(parsed) if len(parsed) == len(shapes) and all(parsed) else ()


def _rows_of_class(stratum: Stratum, costs: Sequence[float]) -> set[int]:
    middle = median(math.log(costs[row]) for row in stratum.rows)
    typical = min(stratum.rows, key=lambda row: (abs(math.log(costs[row]) - middle), row))
    if not stratum.core:
        return {typical}
    highest = max(stratum.rows, key=lambda row: (costs[row], -row))
    lowest = min(stratum.rows, key=lambda row: (costs[row], row))
    is_wide = costs[highest] >= SPREAD * costs[lowest]
    return {typical, highest, lowest} if is_wide else {typical, highest}
