"""Draft the task of a flashinfer-bench definition: its reference, its classes, its solution."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.discovery.definition import bench_schema, definition_args, definition_files
from engine.discovery.definition.bench_schema import Definition, Solution, Workload
from engine.discovery.definition.definition_args import Dims
from engine.discovery.new.draft_kernel import DraftedTarget
from harness.errors import InputError
from harness.formats.expression import evaluate_expression
from harness.formats.quantities import counted
from harness.formats.text import plain
from harness.tasks.target import ConfigClass, Language, Target
from harness.tasks.task_file import check

MOST_CLASSES = 8
INTERPRETED_SIZE = 4
"""A variable axis of a Triton kernel is at most this long where Triton's interpreter runs it."""
LANGUAGES: dict[str, Language] = {"python": "python", "triton": "triton", "tilelang": "python"}


@dataclass(frozen=True, kw_only=True)
class WorkloadClass:
    """A config class: the workload that represents it, and the number of workloads in it."""

    name: str
    workload: Workload
    count: int


def draft(definition: Definition, folder: str, *, workloads: Sequence[Workload],
          workloads_file: Path | None = None, solution: Solution | None = None,
          scalars: Mapping[str, object] | None = None) -> DraftedTarget:
    """Return the task of a definition; its files go to `folder` and `solutions/NAME`.

    Without a solution, the reference itself is the baseline. Raises InputError for what a task
    cannot represent.
    """
    if definition.op_type == "sampling":
        raise InputError("sampling is judged by the distribution of its results, and kopt "
                         "compares values", where=definition.name,
                         fix="choose a definition whose results are not random")
    dims, reasons = definition_args.dims(definition)
    _check_axes(definition, dims, workloads)
    args, usable, notes = definition_args.make(definition, dims, workloads, scalars or {})
    classes = _classes(dims, usable)
    language, returns = _language(definition, solution), _returns(definition, solution)
    data = {} if workloads_file is None else {
        f"{folder}/{entry.name}.safetensors": definition_args.copy_input(
            definition, entry.workload, workloads_file,
            {name: dims.shape(spec) for name, spec in definition.inputs.items()
             if spec.shape is not None})
        for entry in classes if definition_args.input_names(definition, entry.workload)}
    kernel = definition_files.baseline(definition, solution)
    outputs = definition_args.outputs(definition, dims)
    adapter = definition_files.adapter(definition, kernel.text, kernel.entry) if returns else ""
    target = Target(
        op=re.sub(r"[^A-Za-z0-9._-]", "_", definition.name)[:64], language=language,
        source=kernel.path, entry=kernel.entry,
        reference=f"{folder}/reference.py:{definition_files.REFERENCE}",
        adapter=f"{folder}/adapter.py:{definition_files.ADAPTER}" if adapter else None,
        args=args if returns else (*args, *outputs), returns=returns,
        return_dtypes=tuple(entry.dtype for entry in outputs) if returns else (),
        classes=tuple(_config_class(entry, definition, dims, folder, language)
                      for entry in classes),
        description=plain(definition.description or "", 200))
    check(target)
    texts = {f"{folder}/reference.py": definition_files.reference(definition),
             **({f"{folder}/adapter.py": adapter} if adapter else {})}
    bench = definition_files.bench_documents(
        folder, definition, [entry.workload for entry in classes], solution)
    return DraftedTarget(
        target=target,
        files={**texts, **kernel.files, **data, **bench},
        reasons=(f"baseline: {kernel.why}", f"outputs: {'returned' if returns else 'arguments'}",
                 *reasons, *notes, *_about(definition, classes, workloads)))


def from_classes(definition: Definition, classes: Sequence[ConfigClass]) -> tuple[Workload, ...]:
    """Return workloads with random inputs for the axes that a person gave as config classes."""
    unknown = [name for name, spec in definition.inputs.items()
               if spec.shape and spec.dtype in ("int32", "int64")]
    if unknown:
        raise InputError(f"the values that {unknown[0]} may have are not known",
                         where=definition.name,
                         fix="--workloads FILE: workloads with a safetensors file have them")
    return tuple(Workload(uuid=entry.name, axes=entry.shape, inputs={
        name: bench_schema.InputSource(type="random") for name in definition.inputs})
        for entry in classes)


def _check_axes(definition: Definition, dims: Dims, workloads: Sequence[Workload]) -> None:
    """Raise InputError for a workload that lacks an axis or breaks a constraint."""
    variable = [name for name, axis in definition.axes.items() if axis.type == "var"]
    for workload in workloads:
        if missing := [name for name in variable if name not in workload.axes]:
            raise InputError(f"the axis {missing[0]} has no value",
                             where=f"workload {workload.uuid}")
        for name, expression in dims.derived.items():
            if workload.axes[name] != evaluate_expression(expression, workload.axes):
                raise InputError(f"the constraint {name} == {expression} does not hold",
                                 where=f"workload {workload.uuid}")


def _classes(dims: Dims, workloads: Sequence[Workload]) -> tuple[WorkloadClass, ...]:
    """Return at most MOST_CLASSES workloads that represent all, from small to large."""
    counts = Counter(_point(dims, entry) for entry in workloads)
    first = {_point(dims, entry): entry for entry in reversed(workloads)}
    points = sorted(counts, key=lambda point: (math.prod(size for _, size in point), point))
    groups = min(MOST_CLASSES, len(points))
    ends = [len(points) * number // groups for number in range(groups + 1)]
    varying = [name for name in dims.variable
               if len({entry.axes[name] for entry in workloads}) > 1] or list(dims.variable)
    made: list[WorkloadClass] = []
    for begin, end in itertools.pairwise(ends):
        middle = points[(begin + end) // 2]
        text = "-".join(f"{name}{size}" for name, size in middle if name in varying)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", text)
        made.append(WorkloadClass(
            name=name if 0 < len(name) <= 60 else f"workload{len(made) + 1}",
            workload=first[middle], count=sum(counts[point] for point in points[begin:end])))
    return tuple(made)


def _point(dims: Dims, workload: Workload) -> tuple[tuple[str, int], ...]:
    return tuple((name, workload.axes[name]) for name in dims.variable)


def _config_class(entry: WorkloadClass, definition: Definition, dims: Dims, folder: str,
                  language: Language) -> ConfigClass:
    names = definition_args.input_names(definition, entry.workload)
    shape = {name: entry.workload.axes[name] for name in dims.variable}
    return ConfigClass(
        name=entry.name, shape=shape, weight=float(entry.count),
        data={name: f"{folder}/{entry.name}.safetensors:{name}" for name in names} or None,
        interpret_shape={name: min(size, INTERPRETED_SIZE) for name, size in shape.items()}
        if language == "triton" and not names and shape else None)


def _language(definition: Definition, solution: Solution | None) -> Language:
    language = "python" if solution is None else solution.spec.language.lower()
    if language not in LANGUAGES:
        raise InputError(f"the solution is {language} with the binding "
                         f"{(solution and solution.spec.binding) or 'tvm-ffi'}, which kopt does "
                         "not load", where=definition.name,
                         fix="use a Python or Triton solution, or none: then the reference is the "
                         "baseline")
    return LANGUAGES[language]


def _returns(definition: Definition, solution: Solution | None) -> bool:
    """Return whether outputs are returned; in older data sets only the signature shows it."""
    if solution is None:
        return True
    style = solution.spec.destination_passing_style
    if style is None:
        kernel = definition_files.baseline(definition, solution)
        count = definition_files.parameter_count(kernel.text, kernel.entry)
        return count is not None and count <= len(definition.inputs)
    return not style


def _about(definition: Definition, classes: Sequence[WorkloadClass],
           workloads: Sequence[Workload]) -> list[str]:
    share = " of 95 % of the values" if definition.op_type == "moe" else ""
    lines = [f"classes: {len(classes)} for {counted(len(workloads), 'workload')}, weighted by "
             "how many each represents",
             f"tolerance: the bench allows errors{share} up to 0.01, absolute or relative; kopt's "
             "limit follows the dtype and the baseline's own error (tolerance: in the task "
             "changes it)"]
    floats = {name for entry in workloads for name, source in entry.inputs.items()
              if source.type == "safetensors"
              and name not in definition_args.input_names(definition, entry)}
    if floats:
        lines.append(f"{', '.join(sorted(floats))}: drawn at random, not read from the data set's "
                     "files, so that no result can be remembered")
    return lines
