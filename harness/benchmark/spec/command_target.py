"""A command target: the project's own benchmark, what it writes, and how that is to be read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from harness.call_trace.weights import Weights
from harness.formats.json_codec import to_json

Direction = Literal["lower", "higher"]
Combine = Literal["auto", "step", "geometric"]
Scoring = Literal["geometric", "total"]
ModeName = Literal["quick", "full"]
FieldFault = tuple[tuple[str | int, ...], str, str]
"""Which field is wrong, what is wrong with it, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One column of numbers; a unit or direction that is not given is looked for in its name.

    `weight` is its share where several metrics are combined: work for a rate, calls for a time. One
    of weight 0 is shown and enters no score.
    """

    name: str
    unit: str = ""
    direction: Direction | None = None
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class CheckColumn:
    """The column that says whether a row is right, and what it must hold; see `rule`."""

    column: str
    rule: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchmarkMode:
    """One of the two commands that measure: representative shapes, or all of them."""

    name: ModeName
    command: str
    csv: str


@dataclass(frozen=True, kw_only=True)
class CommandTarget:
    """A benchmark command of the project; it runs in the project's folder and writes `csv` there.

    `configs` names the columns whose values make a config class, whole or cut (see `classes`); each
    row is one of its own where it is empty. `ignore` names columns that say nothing. With
    `same_rows` the quick command claims to measure the rows of the full one. `timeout_s` is for one
    run.
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
    combine: Combine = "auto"
    scoring: Scoring = "geometric"
    weights: Weights | None = None
    """What rows weigh in the score, told by their config columns; alike where there are none."""
    setup_command: str = ""
    """Run before the build, in the copy of the project that is measured."""
    build_command: str = ""
    source: str = ""
    """The file that candidates change first of all, and its language, where it is known."""
    language: str = ""
    description: str = ""
    num_gpus: int = 1
    frozen: tuple[str, ...] = ()
    """Files of the project that no command may change, such as the benchmark's own."""
    timeout_s: float = 1800.0

    @property
    def content_hash(self) -> str:
        """Identify the target by its content."""
        return hashlib.sha256(to_json(self)).hexdigest()[:12]

    @property
    def full(self) -> BenchmarkMode:
        return BenchmarkMode(name="full", command=self.command, csv=self.csv)

    @property
    def quick(self) -> BenchmarkMode | None:
        if not self.quick_command:
            return None
        return BenchmarkMode(
            name="quick", command=self.quick_command, csv=self.quick_csv or self.csv
        )


