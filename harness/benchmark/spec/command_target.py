"""A command target: the project's own benchmark, what it writes, and how that is to be read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from harness.benchmark.spec.command_line import words
from harness.call_trace.weights import Weights
from harness.errors import InputError
from harness.formats.json_codec import to_json

Direction = Literal["lower", "higher"]
Combine = Literal["auto", "step", "geometric"]
Scoring = Literal["geometric", "total"]
ModeName = Literal["quick", "full"]
Fault = tuple[tuple[str | int, ...], str, str]
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
        return BenchmarkMode(name="quick", command=self.quick_command, csv=self.quick_csv or self.csv)


def faults(target: CommandTarget) -> Iterator[Fault]:
    """Yield what of a target cannot be run."""
    from harness.benchmark.spec import check_rule as rule
    from harness.benchmark.spec import metric_units, row_classes

    for key in ("command", "quick_command", "setup_command", "build_command"):
        try:
            if key == "command" or getattr(target, key):
                words(getattr(target, key))
        except ValueError as error:
            yield (key,), str(error), ""
    for key in ("csv", "quick_csv"):
        path = PurePosixPath(getattr(target, key))
        if path.is_absolute() or ".." in path.parts or (key == "csv" and not path.name):
            yield (key,), f"{getattr(target, key)!r} is no file inside the project", \
                "the benchmark runs in the project's folder and writes its CSV there"
    if not target.metrics:
        yield ("metrics",), "no metric is named", "name the columns that hold times or rates"
    scored = any(metric.weight > 0 for metric in target.metrics)
    for index, metric in enumerate(target.metrics):
        if metric.name in [one.name for one in target.metrics[:index]]:
            yield ("metrics", index), f"{metric.name!r} is there twice", ""
        if not (0 < metric.weight < math.inf or (metric.weight == 0 and scored)):
            yield ("metrics", index, "weight"), "a weight is a number above 0", ""
        try:
            metric_units.resolve(metric)
        except ValueError as error:
            yield ("metrics", index), f"{metric.name!r}: {error}", \
                metric_units.how(metric)
    try:
        rule.parse(target.check.rule)
    except ValueError as error:
        yield ("check",), f"{target.check.rule!r} {error}", "such as: err == 0, or ok == PASS"
    named = {metric.name for metric in target.metrics} | {target.check.column}
    for key in ("configs", "ignore"):
        for index, column in enumerate(getattr(target, key)):
            if named.intersection(row_classes.columns((column,)) if key == "configs" else (column,)):
                yield (key, index), f"{column!r} is a metric or the check", ""
    for column in target.weights.columns if target.weights else ():
        if column in named or column in target.ignore:
            yield ("weights",), f"{column!r} is no config column of the benchmark", \
                "shapes are told apart by what the benchmark does not measure"
    if target.combine == "step" and len(_bases(target)) > 1:
        yield ("combine",), "a step is the sum of times, or of one kind of rate", \
            "leave combine out: the metrics' geometric mean is taken"
    if not 0 < target.timeout_s < math.inf:
        yield ("timeout_s",), "a time limit is a number above 0", ""


def check(target: CommandTarget) -> None:
    """Refuse a target that cannot be run. Raises InputError."""
    for key, what, fix in faults(target):
        raise InputError(what, where=".".join(map(str, ("target", *key))), fix=fix)


def _bases(target: CommandTarget) -> set[str]:
    from harness.benchmark.spec import metric_units

    try:
        return {metric_units.resolve(metric).base for metric in target.metrics if metric.weight}
    except ValueError:
        return set()
