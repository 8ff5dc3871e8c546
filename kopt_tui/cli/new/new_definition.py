"""`kopt new definition.json`: makes a task from a flashinfer-bench definition."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import msgspec

from engine.discovery.definition import bench_schema, draft_definition
from engine.discovery.definition.bench_schema import Definition, Solution, Workload
from engine.discovery.module.draft_module import FOLDER
from engine.discovery.new.draft_kernel import DraftedTarget, dump_task, parse_config_class
from engine.discovery.watched import first_check
from engine.discovery.watched.first_check import FirstCheck
from engine.verify import harness_client
from harness.devices import inventory
from harness.errors import InputError, Refused
from harness.formats import yaml_values
from harness.formats.quantities import counted
from harness.isolation.zygote_client import Zygote
from kopt_tui.cli.new import new_facts, new_kernel
from kopt_tui.cli.new.parameter_list import NewManifest, pairs
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.stage_line import stages
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean


def add_definition_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a flashinfer-bench definition (a JSON file)")
    group.add_argument("--workloads", metavar="FILE", type=Path, default=None,
                       help="its workloads, one JSON object a line (default: those of the data set "
                       "that contains it)")
    group.add_argument("--solution", metavar="FILE", type=Path, default=None,
                       help="the solution to start from (default: the definition's reference)")


def make(args: argparse.Namespace, prompt: Prompt, project: Path, path: Path,
         folder: str = FOLDER, *, zygote: Zygote | None = None) -> NewManifest:
    """Return the manifest; writes the task's files to the project. Raises KoptError."""
    task = project / folder / "task.yaml"
    if task.exists() and not args.force:
        raise Refused("the task already exists", where=str(task), fix="--force overwrites it")
    definition = bench_schema.read(project / args.source, Definition)
    solution = None if args.solution is None else bench_schema.read(args.solution, Solution)
    workloads, file = _workloads(args, project / args.source, definition)
    draft = draft_definition.draft(
        definition, folder, workloads=workloads, workloads_file=file, solution=solution,
        scalars={name: yaml_values.scalar(value) for name, value in pairs(
            args.scalar, "--scalar").items()})
    draft.write(project)
    result = _checked(draft, args, project)
    task.write_text(dump_task(result.drafted.target), encoding="utf-8")
    _show(definition, draft, result, sys.stderr if args.json or prompt.interactive else sys.stdout)
    args.task = f"{folder}/task.yaml"
    new = new_kernel.of_task(args, prompt, project, path)
    return replace(new, facts=new_facts.with_check(msgspec.structs.replace(
        new.facts, task=args.task, files=tuple(sorted(draft.files)), inferred=draft.reasons),
        result))


def _workloads(args: argparse.Namespace, path: Path,
               definition: Definition) -> tuple[tuple[Workload, ...], Path | None]:
    file = args.workloads or bench_schema.find_workloads(path, definition.name)
    if args.classes:
        return draft_definition.from_classes(
            definition, [parse_config_class(text) for text in args.classes]), None
    if file is None:
        axes = " ".join(f"{name}=64" for name, axis in definition.axes.items()
                        if axis.type == "var")
        raise InputError("there are no workloads", where=definition.name,
                         fix=f"--workloads FILE, or --class 'small: {axes}'")
    return bench_schema.read_workloads(file, definition.name), file


def _checked(draft: DraftedTarget, args: argparse.Namespace, project: Path) -> FirstCheck:
    """Judge the baseline; if the reference fails in float64, it gets the declared dtypes.

    On a CPU only the smallest class is judged, as the sizes for a GPU would take minutes.
    """
    texts = {name: draft.files[name] for name in draft.target.frozen_files if name.endswith(".py")}
    if not args.first_check:
        return FirstCheck(drafted=DraftedTarget(target=draft.target, files=texts))
    device = inventory.find(args.device or "auto")
    classes = draft.target.classes[:1] if device.kind == "cpu" else draft.target.classes
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch, contextlib.closing(
            harness_client.warm_start(draft.target, device, None, {})) as warm, \
            stages(quiet=args.json) as progress:
        for float64 in (True, False):
            target = replace(draft.target, float64=float64)
            result = first_check.check(
                DraftedTarget(target=replace(target, classes=classes), files=texts),
                project, device, None, warm, scratch, progress)
            result = replace(result, drafted=DraftedTarget(target=target, files=texts))
            if result.verdict is not None:
                break
    return result


def _show(definition: Definition, draft: DraftedTarget, result: FirstCheck, to: TextIO) -> None:
    target = result.drafted.target
    lines = [f"{definition.name}: a flashinfer-bench definition"]
    lines += [f"  {arg.name}: {arg.dtype} " + (
        f"[{', '.join(map(str, arg.shape))}]" if arg.shape is not None else
        f"= {arg.literal if arg.is_constant else arg.value}") for arg in target.args]
    lines += [f"  {reason}" for reason in draft.reasons]
    if not target.float64:
        lines.append("  the reference runs in the declared dtypes: it fails in float64")
    count = 0 if result.verdict is None else len(result.verdict.rows)
    lines.append(result.describe(
        counted(count, "config class") + (
            ", the smallest (no GPU here)" if count < len(target.classes) else ""),
        f"the reference {result.problem}" if result.reference_fails else
        f"the baseline {result.problem}; --solution FILE names another"))
    for line in filter(None, lines):
        print_text(clean(line), to, 4)


def is_definition(path: Path) -> bool:
    """Return whether a JSON file is a definition, and not a solution or something else."""
    try:
        bench_schema.read(path, Definition)
    except InputError:
        return False
    return True
