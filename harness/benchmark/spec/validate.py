"""Check a benchmark target when a manifest or a request is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePosixPath

from harness.benchmark.spec import metric_units, table_rules
from harness.benchmark.spec.command_target import CommandTarget, EndToEndTarget, Metric
from harness.errors import InputError
from harness.formats import shell_command

FieldFault = tuple[tuple[str | int, ...], str, str]
"""The field that is wrong, what is wrong with it, and what to do."""


def check(target: CommandTarget | EndToEndTarget) -> None:
    """Raise InputError for the first field that cannot be used."""
    for key, what, fix in faults(target):
        raise InputError(what, where=".".join(map(str, ("target", *key))), fix=fix)


def faults(target: CommandTarget | EndToEndTarget) -> Iterator[FieldFault]:
    """Yield every field of a target that cannot be used."""
    for key in ("command", "quick_command", "row_command", "setup_command", "build_command"):
        command = getattr(target, key, "")
        try:
            if command or (key == "command" and isinstance(target, CommandTarget)):
                shell_command.split(command)
            if key == "row_command":
                shell_command.fill(command, dict.fromkeys(shell_command.placeholders(command), ""))
        except ValueError as error:
            yield (key,), str(error), ""
    if not 0 < target.timeout_s < math.inf:
        yield ("timeout_s",), "a time limit must be a number above 0", ""
    if isinstance(target, CommandTarget):
        yield from _table_faults(target)
    elif target.metric is not None:
        yield from _metric_faults(("metric",), target.metric)


def _table_faults(target: CommandTarget) -> Iterator[FieldFault]:
    for key in ("csv", "quick_csv"):
        path = PurePosixPath(getattr(target, key))
        if path.is_absolute() or ".." in path.parts or (key == "csv" and not path.name):
            yield (key,), f"{getattr(target, key)!r} is not a file inside the project", \
                "the benchmark runs in the project's folder and writes its CSV there"
    if target.row_command and not shell_command.placeholders(target.row_command):
        yield ("row_command",), "it has no placeholder for a row's values", \
            "write one for each column, such as: python bench.py --m {m} --n {n}"
    if not target.metrics:
        yield ("metrics",), "no metric is named", "name the columns that hold times or rates"
    is_scored = any(metric.weight > 0 for metric in target.metrics)
    for index, metric in enumerate(target.metrics):
        if metric.name in [other.name for other in target.metrics[:index]]:
            yield ("metrics", index), f"{metric.name!r} is declared twice", ""
        if not (0 < metric.weight < math.inf or (metric.weight == 0 and is_scored)):
            yield ("metrics", index, "weight"), \
                "weights must be finite, not negative, and not all 0", ""
        yield from _metric_faults(("metrics", index), metric)
    if not target.check.column.strip():
        yield ("check",), "the check names no column", "such as: err == 0, or ok == PASS"
    if target.check.column in [metric.name for metric in target.metrics]:
        yield ("check",), f"{target.check.column!r} is a metric, which does not tell whether a " \
            "result is correct", "name a column of errors, or of words such as PASS"
    try:
        table_rules.parse(target.check.rule)
    except ValueError as error:
        yield ("check",), f"{target.check.rule!r} {error}", "such as: err == 0, or ok == PASS"
    yield from _column_faults(target)
    if target.combine == "step" and len(_bases(target)) > 1:
        yield ("combine",), "step needs metrics that are all times or all one kind of rate", \
            "leave combine out to take the metrics' geometric mean"


def _metric_faults(key: tuple[str | int, ...], metric: Metric) -> Iterator[FieldFault]:
    if not metric.name.strip():
        yield (*key, "name"), "a metric needs the name of a column", ""
    try:
        metric_units.resolve(metric)
    except ValueError as error:
        yield key, f"{metric.name!r}: {error}", (
            "known units are, for example, us, TFLOPS and GB/s; any other needs a direction, lower "
            f"or higher: {{name: {metric.name}, direction: lower}}")


def _column_faults(target: CommandTarget) -> Iterator[FieldFault]:
    """Yield columns whose roles exclude each other.

    Config and ignored columns may not be measured, weight columns neither measured nor ignored.
    """
    measured = {metric.name for metric in target.metrics} | {target.check.column}
    for key in ("configs", "ignore"):
        for index, column in enumerate(getattr(target, key)):
            columns = table_rules.columns((column,)) if key == "configs" else (column,)
            if measured.intersection(columns):
                yield (key, index), f"{column!r} is a metric or the check", ""
    for column in target.weights.columns if target.weights else ():
        if column in measured or column in target.ignore:
            yield ("weights",), f"{column!r} is not a config column of the benchmark", \
                "name a column that is neither a metric, the check nor ignored"


def _bases(target: CommandTarget) -> set[str]:
    try:
        return {metric_units.resolve(metric).base for metric in target.metrics if metric.weight}
    except ValueError:
        return set()
