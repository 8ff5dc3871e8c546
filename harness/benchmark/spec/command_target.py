"""A command target: the project's own benchmark, the table it writes, and how to read that table.

The manifest and the harness share these types; `validate` checks them wherever text becomes data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Literal

from harness.call_trace.weights import Weights
from harness.formats.json_codec import to_json

Direction = Literal["lower", "higher"]
Combine = Literal["auto", "step", "geometric"]
Scoring = Literal["geometric", "total"]
ModeName = Literal["quick", "full"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One column of numbers; without `unit` and `direction` its name must state them.

    `weight` weighs its cost in a row: the amount of work for a rate, the number of calls for a
    time, 0 for a metric that is only shown.
    """

    name: str
    unit: str = ""
    direction: Direction | None = None
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class CheckColumn:
    """The column that says whether a row is correct, and its rule: see `table_rules`."""

    column: str
    rule: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchmarkMode:
    """One of the two measuring commands: `quick` on representative shapes, or `full` on all."""

    name: ModeName
    command: str
    csv: str


@dataclass(frozen=True, kw_only=True)
class CommandTarget:
    """A benchmark command of the project; it runs in the project's folder and writes `csv` there.

    `configs` names the columns of config classes (see `table_rules`); if empty, a row is a class.
    `ignore` names columns without meaning. With `same_rows` the quick command claims to measure the
    rows of the full one. `timeout_s` is the limit of one run.
    """

    op: str
    command: str
    csv: str
    check: CheckColumn
    metrics: tuple[Metric, ...]
    kind: Literal["command"] = "command"
    quick_command: str = ""
    quick_csv: str = ""
    same_rows: bool = False
    configs: tuple[str, ...] = ()
    core: tuple[str, ...] = ()
    """Names of the classes that matter most."""
    ignore: tuple[str, ...] = ()
    row_command: str = ""
    """Measures one row and writes `csv` with it; `{column}` is the row's value of a column."""
    combine: Combine = "auto"
    scoring: Scoring = "geometric"
    weights: Weights | None = None
    """Weights of rows in the score, by their config columns; without them all rows weigh 1."""
    setup_command: str = ""
    """Runs before the build, in the copy of the project that is measured."""
    build_command: str = ""
    source: str = ""
    """The file that candidates change first, and its language where that is known."""
    language: str = ""
    description: str = ""
    num_gpus: int = 1
    frozen: tuple[str, ...] = ()
    """Files of the project that no command may change, such as the benchmark itself."""
    timeout_s: float = 1800.0

    is_module: ClassVar[bool] = False
    """A benchmark is never a PyTorch module drafted by `kopt new`."""

    @property
    def content_hash(self) -> str:
        """Identify the target by its content."""
        return hashlib.sha256(to_json(self)).hexdigest()[:12]

    @property
    def counting(self) -> str:
        """Return in words how the rows become one score, and how much each counts in it."""
        by_calls = ", weighted by its calls" if self.weights is not None else ""
        if self.scoring == "total":
            return f"the total, in which each row counts by its cost{by_calls}"
        return "a geometric mean in which " + (
            "each row is weighted by its calls" if by_calls else "all rows have equal weight")

    @property
    def full(self) -> BenchmarkMode:
        return BenchmarkMode(name="full", command=self.command, csv=self.csv)

    @property
    def quick(self) -> BenchmarkMode | None:
        if not self.quick_command:
            return None
        return BenchmarkMode(name="quick", command=self.quick_command,
                             csv=self.quick_csv or self.csv)


@dataclass(frozen=True, kw_only=True)
class EndToEndTarget:
    """A command that runs the whole program; without a metric its wall time is the cost."""

    command: str
    metric: Metric | None = None
    setup_command: str = ""
    build_command: str = ""
    frozen: tuple[str, ...] = ()
    timeout_s: float = 3600.0
    left_s: float | None = None
    """Seconds that all runs may take together; too few mean fewer runs, or none."""
