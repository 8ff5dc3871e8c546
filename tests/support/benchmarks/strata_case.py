"""Result tables of paged-attention benchmarks with known behaviour."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence

from engine.discovery.project import columns
from engine.discovery.project.columns import TableColumn

Row = Mapping[str, object]
DECODE: dict[str, Sequence[object]] = {
    "block_size": (16, 64, 1024), "head_size": (64, 128), "mtp": (1, 2, 4),
    "context": (512, 1024, 4096, 16384), "batch": (8, 64)}


def table(cost: Callable[[Row], float], given: Mapping[str, Sequence[object]] = DECODE, *,
          noise: float = 0.02, seed: int = 1) -> tuple[list[dict[str, object]], list[float]]:
    """Return a row for each combination of the given values, and their costs with some noise."""
    drawn = random.Random(seed)
    rows = [dict(zip(given, cells, strict=True)) for cells in itertools.product(*given.values())]
    return rows, [cost(row) * drawn.lognormvariate(0, noise) for row in rows]


def columns_of(rows: Sequence[Row]) -> list[TableColumn]:
    """Return the columns of rows, classified."""
    return [columns.classify_column(name, [str(row[name]) for row in rows]) for name in rows[0]]


def number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, int | float)
    return float(value)


def work(row: Row) -> float:
    """Return the microseconds that a card needs to read the data of a decode."""
    return number(row, "context") * number(row, "batch") * 1e-3


def decode(row: Row) -> float:
    """Return the cost of a kernel whose path for one token and large blocks is poor."""
    slow = 3.0 if row["block_size"] == 1024 and row["mtp"] == 1 else 1.0
    return work(row) * slow * (1.6 if row["mtp"] == 4 else 1.0)
