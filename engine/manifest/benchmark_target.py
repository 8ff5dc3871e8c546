"""A manifest's command target as the harness takes it, and what of the project stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from engine.globs import matches
from engine.manifest.schema import Manifest, MetricSpec
from harness.benchmark.spec import check_rule
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.benchmark.verdict.whole_program import EndToEndTarget
from harness.call_trace.weights import Weights
from harness.errors import InputError, Refused

_NAMED = re.compile(r"[\w.+/-]+")


def command_target(manifest: Manifest) -> CommandTarget:
    """Return what a manifest of the kind `command` says of its benchmark; see `target.faults`."""
    spec = manifest.target
    check = check_rule.check_in(spec.check) if isinstance(spec.check, str) else \
        CheckColumn(column=spec.check.column, rule=spec.check.rule)
    shapes = manifest.representative_shapes
    return CommandTarget(
        op=manifest.target_op, command=manifest.benchmark_command, csv=spec.csv, check=check,
        metrics=_metrics(manifest),
        quick_command=manifest.quick_command, quick_csv=spec.quick_csv,
        same_rows=bool(manifest.quick_command) and shapes == manifest.target_shapes,
        configs=spec.configs, core=spec.core, ignore=spec.ignore, combine=spec.combine,
        scoring=spec.scoring,
        setup_command=manifest.setup_command, build_command=manifest.build_command,
        source=source(manifest), language=language(manifest), timeout_s=spec.timeout_s)


def sealed_target(manifest: Manifest, files: Iterable[str],
                  weights: Weights | None = None) -> CommandTarget:
    """Return the target with the files of the project that no command may change, and weights."""
    here, target = tuple(files), command_target(manifest)
    sealed = frozen(manifest, here)
    return replace(target, weights=weights, frozen=tuple(
        path for path in here if matches(path, sealed)
        and path not in (target.csv, target.quick_csv)))


def end_to_end(manifest: Manifest, sealed: tuple[str, ...] = ()) -> EndToEndTarget:
    """Return what a manifest says of the whole program that the kernel is a part of."""
    return EndToEndTarget(
        command=manifest.e2e_command, setup_command=manifest.setup_command,
        build_command=manifest.build_command, frozen=sealed, timeout_s=manifest.e2e_timeout_s,
        metric=_metric(manifest.e2e_metric) if manifest.e2e_metric else None)


def _metric(metric: str | MetricSpec) -> Metric:
    if isinstance(metric, str):
        return Metric(name=metric)
    return Metric(name=metric.name, unit=metric.unit, direction=metric.direction,
                  weight=metric.weight)


def primary(manifest: Manifest) -> frozenset[str]:
    """Return the metrics that `primary_metric` names, with commas; empty unless it names those
    there are.
    """
    named = {name.strip() for name in manifest.primary_metric.split(",")} - {""}
    known = {_metric(metric).name for metric in manifest.target.metrics}
    return frozenset(named) if named <= known else frozenset()


def _metrics(manifest: Manifest) -> tuple[Metric, ...]:
    """Return the metrics; of several only the primary ones have a weight in the score."""
    chosen = primary(manifest)
    found = [_metric(metric) for metric in manifest.target.metrics]
    return tuple(one if not chosen or one.name in chosen else replace(one, weight=0.0)
                 for one in found)


def check_judgeable(manifest: Manifest) -> None:
    """Raise in one line where no verdict can be had: a schedule, a benchmark nobody may improve."""
    if manifest.target.kind == "schedule":
        raise Refused("schedule targets are read but cannot be judged yet", where="target.kind",
                      fix="describe the kernel in a task file and use kind: kernel")
    if manifest.target.kind == "command" and not edit(manifest):
        raise InputError("a command target says what a candidate may change", where="edit",
                         fix="list globs in edit, or give kernel_source")


def source(manifest: Manifest) -> str:
    """Return the file that candidates change first of all, "" where only globs say which."""
    named = (path for path in edit(manifest) if not set(path) & set("*?["))
    return manifest.kernel_source or next(named, "")


def language(manifest: Manifest) -> str:
    """Return the source's language in kopt's words, "" for one that it does not know."""
    said, suffix = manifest.target_lang.lower(), PurePosixPath(source(manifest)).suffix
    return said or {".c": "c", ".py": "python"}.get(suffix, "")


def edit(manifest: Manifest) -> tuple[str, ...]:
    """Return the globs of what a candidate may change."""
    return manifest.edit or ((manifest.kernel_source,) if manifest.kernel_source else ())


def frozen(manifest: Manifest, files: Iterable[str]) -> tuple[str, ...]:
    """Return what a candidate must not change: the manifest's globs, and every file that one of the
    measuring commands names, or has in a folder that it names and no edit glob does. A file that
    `edit` names by its path may be changed all the same.
    """
    here = sorted(files)
    named: list[str] = list(manifest.frozen)
    for command in (manifest.benchmark_command, manifest.quick_command, manifest.test_command,
                    manifest.full_test_command):
        for word in _words(command):
            named += [path for path in here if path not in edit(manifest) and (path == word or (
                path.startswith(f"{word}/") and not matches(path, edit(manifest))))]
    return tuple(dict.fromkeys(_literally(path) if path in here else path for path in named))


def _words(command: str) -> Iterator[str]:
    """Yield what of a command may be a path, or the path of a module that it names."""
    found: Sequence[str] = _NAMED.findall(command)
    for word in found:
        path = word.removeprefix("./").rstrip("/")
        yield path
        if "/" not in path:
            yield f"{path.replace('.', '/')}.py"
            yield f"{path.replace('.', '/')}/__main__.py"


def _literally(path: str) -> str:
    """Return a glob that a path alone matches."""
    return re.sub(r"([*?[])", r"[\1]", path)
