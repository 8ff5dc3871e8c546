"""Turn a manifest into the harness's targets, and name the files that a candidate may change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath

import msgspec

from engine.globs import matches
from engine.manifest.schema import Manifest
from harness.benchmark.spec import table_rules
from harness.benchmark.spec.command_target import CommandTarget, EndToEndTarget, Metric
from harness.call_trace.weights import Weights
from harness.errors import InputError

NO_SOURCE = ("", ".cfg", ".ini", ".json", ".md", ".mk", ".toml", ".txt", ".yaml", ".yml")
"""Suffixes of files that no compiler reads as a kernel, such as Makefile."""
_PATH = re.compile(r"[\w.+/-]+")


def command_target(manifest: Manifest) -> CommandTarget:
    """Return the benchmark target of a manifest of kind `command`; see `validate.faults`."""
    spec = manifest.target
    return CommandTarget(
        op=manifest.target_op, command=manifest.benchmark_command, csv=spec.csv,
        check=table_rules.check_in(spec.check) if isinstance(spec.check, str) else spec.check,
        metrics=_metrics(manifest), quick_command=manifest.quick_command, quick_csv=spec.quick_csv,
        same_rows=bool(manifest.quick_command)
        and manifest.representative_shapes == manifest.target_shapes,
        row_command=spec.row_command, configs=spec.configs, core=spec.core, ignore=spec.ignore,
        combine=spec.combine,
        scoring=spec.scoring, setup_command=manifest.setup_command,
        build_command=manifest.build_command, source=source_file(manifest),
        language=language(manifest), timeout_s=spec.timeout_s, num_gpus=manifest.gpu.count)


def sealed_target(manifest: Manifest, files: Iterable[str],
                  weights: Weights | None = None) -> CommandTarget:
    """Return the target with its weights and the project files that no command may change.

    If `edit` holds only patterns that match exactly one file, this is the source. Raises InputError
    if `edit` matches no file.
    """
    paths = tuple(files)
    editable, globs = editable_globs(manifest), frozen_globs(manifest, paths)
    changeable = [path for path in paths if matches(path, editable)]
    if not changeable:
        raise InputError(f"the project has no file {' or '.join(editable)}", where="edit")
    if len(changeable) == 1 and not source_file(manifest):
        manifest = msgspec.structs.replace(manifest, kernel_source=changeable[0])
    target = command_target(manifest)
    return replace(target, weights=weights, frozen=tuple(
        path for path in paths if matches(path, globs)
        and path not in (target.csv, target.quick_csv)))


def end_to_end(manifest: Manifest, sealed: tuple[str, ...] = ()) -> EndToEndTarget:
    """Return the whole program that the kernel is a part of; `sealed` are its frozen files."""
    return EndToEndTarget(
        command=manifest.e2e_command, setup_command=manifest.setup_command,
        build_command=manifest.build_command, frozen=sealed, timeout_s=manifest.e2e_timeout_s,
        metric=_metric(manifest.e2e_metric) if manifest.e2e_metric else None)


def _metric(metric: str | Metric) -> Metric:
    return Metric(name=metric) if isinstance(metric, str) else metric


def primary_metrics(manifest: Manifest) -> frozenset[str]:
    """Return the metrics in the comma-separated `primary_metric`; none if one is unknown."""
    chosen = {name.strip() for name in manifest.primary_metric.split(",")} - {""}
    known = {_metric(metric).name for metric in manifest.target.metrics}
    return frozenset(chosen) if chosen <= known else frozenset()


def _metrics(manifest: Manifest) -> tuple[Metric, ...]:
    """Return the metrics; if some are primary, the others weigh 0 in the score."""
    primary = primary_metrics(manifest)
    metrics = [_metric(metric) for metric in manifest.target.metrics]
    return tuple(metric if not primary or metric.name in primary else replace(metric, weight=0.0)
                 for metric in metrics)


def check_runnable(manifest: Manifest) -> None:
    """Raise InputError if the manifest of a benchmark names no files to change."""
    if manifest.target.kind == "command" and not editable_globs(manifest):
        raise InputError("a command target must say which files may change", where="edit",
                         fix="list globs in edit, or give kernel_source")


def source_file(manifest: Manifest) -> str:
    """Return `kernel_source`, else the first path of a source in `edit`; "" if it has none."""
    paths = (glob for glob in editable_globs(manifest) if not set(glob) & set("*?[")
             and PurePosixPath(glob).suffix not in NO_SOURCE)
    return manifest.kernel_source or next(paths, "")


def language(manifest: Manifest) -> str:
    """Return `target_lang`, else C or Python by the source's suffix, else ""."""
    suffix = PurePosixPath(source_file(manifest)).suffix
    return manifest.target_lang.lower() or {".c": "c", ".py": "python"}.get(suffix, "")


def editable_globs(manifest: Manifest) -> tuple[str, ...]:
    """Return the globs of the files that a candidate may change."""
    return manifest.edit or ((manifest.kernel_source,) if manifest.kernel_source else ())


def frozen_globs(manifest: Manifest, files: Iterable[str]) -> tuple[str, ...]:
    """Return the globs of the files that a candidate must not change.

    These are the manifest's own, every file that a measuring command names, and every file in a
    folder that such a command names unless an `edit` glob matches it. A file that `edit` names by
    its full path may still be changed.
    """
    paths = sorted(files)
    editable = editable_globs(manifest)
    globs: list[str] = list(manifest.frozen)
    for command in (manifest.benchmark_command, manifest.quick_command, manifest.test_command,
                    manifest.full_test_command):
        for word in _possible_paths(command):
            globs += [path for path in paths if path not in editable and (path == word or (
                path.startswith(f"{word}/") and not matches(path, editable)))]
    return tuple(dict.fromkeys(  # a path becomes the glob that matches only it
        re.sub(r"([*?[])", r"[\1]", glob) if glob in paths else glob for glob in globs))


def _possible_paths(command: str) -> Iterator[str]:
    """Yield a command's words that may be paths, and the paths of modules that they may name."""
    for match in _PATH.finditer(command):
        path = match[0].removeprefix("./").rstrip("/")
        yield path
        if "/" not in path:
            yield f"{path.replace('.', '/')}.py"
            yield f"{path.replace('.', '/')}/__main__.py"
