"""A few rows for each config class, chosen after the baseline, that stand for all of its rows.

Of grouped work, such as a matmul for each expert, one row is always a skewed one: a gain that holds
only for equal groups is none in training or serving.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from engine.discovery.classes.strata import Stratum
from engine.discovery.project import columns
from engine.discovery.project.columns import TableColumn
from harness.benchmark.runs.result_table import ResultTable

SPREAD = 4.0
"""Dearest over cheapest from which both ends of a class stand for it."""
EVEN = frozenset(("uniform", "balanced", "even", "equal", "none", "flat", "same"))
SKEWED = frozenset(("skew", "skewed", "skewness", "imbalance", "imbalanced", "unbalanced",
                    "distribution", "dist", "routing", "zipf"))
GROUPS = frozenset(("group", "groups", "expert", "experts", "ragged", "seqlens", "lens", "splits"))
"""Words in the names of columns that say how work is spread, and that there are groups."""
_LIST = re.compile(r"[\[(]?\s*\d+(?:\s*[,;/| ]\s*\d+)+\s*[\])]?")


@dataclass(frozen=True, kw_only=True)
class Representatives:
    """Rows in the table's order; `skewed` is the one of uneven groups, `note` what to know."""

    rows: tuple[int, ...]
    skewed: int | None = None
    note: str = ""


def choose(classes: Sequence[Stratum], looked: Sequence[TableColumn],
           costs: Sequence[float]) -> Representatives:
    """Return the rows that stand for the classes: each class's middle one, and the ends of those
    that are core.
    """
    taken: set[int] = set()
    for one in classes:
        taken.update(_of_class(one, costs))
    spread = _skew(looked, len(costs))
    if not spread:
        grouped = any(columns.words(column.name) & (GROUPS | SKEWED) for column in looked)
        note = "the work is grouped, and no row says how: none is known to be skewed" \
            if grouped else ""
        return Representatives(rows=tuple(sorted(taken)), note=note)
    most = max(spread)
    if most <= min(spread) and most <= 1:
        return Representatives(rows=tuple(sorted(taken)), note=(
            "all rows have equal groups: a gain may not hold for skewed ones"))
    skewed = max((row for row in range(len(costs)) if spread[row] == most),
                 key=lambda row: (row in taken, costs[row], -row))
    return Representatives(rows=tuple(sorted({*taken, skewed})), skewed=skewed)


def cells(keys: Sequence[str], looked: Sequence[TableColumn],
          rows: Sequence[int]) -> tuple[dict[str, str], ...]:
    """Return what tells rows apart, by column."""
    named = {column.name: column for column in looked}
    return tuple({key: named[key].cells[row] for key in keys} for row in rows)


def listed(keys: Sequence[str], table: ResultTable) -> tuple[dict[str, str], ...]:
    """Return what tells the rows of another table apart, once each; empty where it lacks a column.
    """
    if any(key not in table.columns for key in keys):
        return ()
    found = dict.fromkeys(table.cells(row, keys) for row in range(len(table.rows)))
    return tuple(dict(zip(keys, cells, strict=True)) for cells in found if cells)


def shapes(chosen: Sequence[Mapping[str, str]]) -> tuple[str | dict[str, int], ...]:
    """Return rows as a manifest lists shapes: whole numbers by name, or `m=64 dtype=fp16`."""
    whole = all(re.fullmatch(r"\d{1,15}", cell) for one in chosen for cell in one.values())
    if whole:
        return tuple({key: int(cell) for key, cell in one.items()} for one in chosen)
    return tuple(" ".join(shlex.quote(f"{key}={cell}") for key, cell in one.items())
                 for one in chosen)


def read(shapes: object) -> tuple[dict[str, str], ...]:
    """Return the shapes of a manifest as `cells` gives them; empty where they name no columns."""
    if not isinstance(shapes, tuple | list):
        return ()
    found = []
    for shape in shapes:
        if isinstance(shape, dict):
            found.append({str(key): str(value) for key, value in shape.items()})
        elif isinstance(shape, str):
            parts = [part.partition("=") for part in shlex.split(shape)]
            found.append({key: value for key, equals, value in parts if equals})
    return tuple(found) if len(found) == len(shapes) and all(found) else ()


def _of_class(one: Stratum, costs: Sequence[float]) -> set[int]:
    middle = median(math.log(costs[row]) for row in one.rows)
    typical = min(one.rows, key=lambda row: (abs(math.log(costs[row]) - middle), row))
    if not one.core:
        return {typical}
    dearest = max(one.rows, key=lambda row: (costs[row], -row))
    cheapest = min(one.rows, key=lambda row: (costs[row], row))
    wide = costs[dearest] >= SPREAD * costs[cheapest]
    return {typical, dearest, cheapest} if wide else {typical, dearest}


def _skew(looked: Sequence[TableColumn], n: int) -> list[float]:
    """Return by how much each row's groups differ, 1 where they are equal; empty if none says."""
    spreading = [column for column in looked if columns.words(column.name) & (SKEWED | GROUPS)]
    for column in spreading:
        sizes = [_sizes(cell) for cell in column.cells]
        if all(sizes):
            return [max(some) * len(some) / (sum(some) or 1.0) for some in sizes]
    for column in spreading:
        if not columns.words(column.name) & SKEWED:
            continue
        if column.numbers:
            return [1.0 + abs(number) for number in column.numbers]
        return [1.0 if columns.words(cell) & EVEN or not cell else 2.0 for cell in column.cells]
    return []


def _sizes(cell: str) -> list[float]:
    """Return a cell such as `[128, 0, 4096]` as numbers; empty where it is no list."""
    if not _LIST.fullmatch(cell):
        return []
    return [float(part) for part in re.findall(r"\d+", cell)]
