"""Rules between the fields of a benchmark target, checked when a manifest or a request is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePosixPath

from harness.benchmark.spec.command_line import words
from harness.benchmark.spec.command_target import CommandTarget, FieldFault
from harness.errors import InputError


def faults(target: CommandTarget) -> Iterator[FieldFault]:
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
                metric_units.metric_help(metric)
    try:
        rule.parse(target.check.rule)
    except ValueError as error:
        yield ("check",), f"{target.check.rule!r} {error}", "such as: err == 0, or ok == PASS"
    named = {metric.name for metric in target.metrics} | {target.check.column}
    for key in ("configs", "ignore"):
        for index, column in enumerate(getattr(target, key)):
            columns = row_classes.columns((column,)) if key == "configs" else (column,)
            if named.intersection(columns):
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
