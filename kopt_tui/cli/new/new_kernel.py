"""`kopt new` for a kernel: shows the parameters and lets a person change them.

For a C, CUDA or HIP kernel without a task file it drafts one first, from flags and answers.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import msgspec

from engine.discovery.new import draft_kernel, integer_ranges, knob_trials
from engine.discovery.new.parameters import Parameters
from engine.discovery.watched import kernel_check
from engine.discovery.watched.first_check import FirstCheck
from engine.manifest.schema import Manifest
from engine.transformations import transformation_registry
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import InputError
from harness.formats.quantities import counted
from harness.requests import Progress
from harness.search.space import knobs, tuning_table
from harness.search.space.knob_edits import KnobProposal
from harness.tasks import target, task_file
from kopt_tui.cli.new import new_facts, new_task, parameter_list
from kopt_tui.cli.new.new_facts import DraftedClass, NewFacts
from kopt_tui.cli.new.parameter_list import NewManifest
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.stage_line import stages
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

BY_AGENT = "or name a coding agent: --agent 'my-agent --prompt-file {prompt}'"
"""The advice for a source without knobs that kopt cannot change by itself."""
ANNOUNCEMENT = "judging the unmodified kernel by the new task (--no-check skips this)"
UNTIMED = "no GPU here: kopt run only checks the kernel, as Triton kernels are timed only on a GPU"
MOST_NAMED = 3
OF_MODULE = "no knobs: kopt run replaces operations with tunable kernels from its templates"


def add_task_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for what a signature of C, CUDA or HIP does not say."""
    group = parser.add_argument_group("a task file for a C, CUDA or HIP kernel that has none")
    group.add_argument("--source", metavar="FILE", default=None, help="the source")
    parser.add_argument("--knobs", metavar="FILE", type=Path, default=None,
                        help="a tuning table in the project, JSON with triton.Configs or vLLM's "
                        "configurations by batch size: it gives the knobs' choices and the "
                        "first trials")
    group.add_argument("--entry", metavar="NAME", default=None, help="the function in it")
    group.add_argument("--reference", metavar="FILE:FUNCTION", default=None,
                       help="the Python function that computes the correct result, on float64 "
                       "numpy arrays (CUDA and HIP kernels: on float64 torch tensors)")
    group.add_argument("--shape", metavar="TENSOR=DIMS", action="append", default=[],
                       help="a tensor's shape, such as x=rows,cols; once per tensor")
    group.add_argument("--scalar", metavar="NAME=VALUE", action="append", default=[],
                       help="a scalar's value, such as eps=1e-6")
    group.add_argument("--role", metavar="TENSOR=ROLE", action="append", default=[],
                       help="input, output or inout, such as out=inout")
    group.add_argument("--grid", metavar="DIMS", default=None,
                       help="the grid of a __global__ function, such as '(n + TILE - 1) // TILE'")
    group.add_argument("--block", metavar="DIMS", default=None, help="its block, such as 32,8")
    group.add_argument("--shared", metavar="BYTES", default=None,
                       help="its dynamic shared memory (default: what the source launches, or 0)")
    group.add_argument("--class", dest="classes", metavar="CLASS", action="append", default=[],
                       help=f"a config class such as '{new_task.EXAMPLE}'; three or more are best")


def make(args: argparse.Namespace, prompt: Prompt, project: Path, path: Path) -> NewManifest:
    """Return a task's manifest; judge the kernel itself unless --no-check. Raises KoptError."""
    return of_task(args, prompt, project, path, judged=args.first_check)


def of_task(args: argparse.Namespace, prompt: Prompt, project: Path, path: Path, *,
            judged: bool = False) -> NewManifest:
    """Return the manifest, at a terminal after the person has confirmed its parameters.

    If `judged`, the kernel itself is judged by its task. Raises InputError for an unknown parameter
    or a wrong value.
    """
    task_path, is_drafted = new_task.choose(project, args, prompt)
    task = task_file.load(project / task_path)
    if not (project / task.source).is_file():
        raise InputError(f"its source {task.source!r} does not exist", where=task_path)
    flags = parameter_list.from_flags(args)
    pool, table = parameter_list.pool(args), _table(args, project)
    project_path = os.path.relpath(project, path.resolve().parent)

    def build(known: Parameters) -> Manifest:
        return draft_kernel.make_manifest(known, task, task_path, project_path, pool, table)

    def change(trial: Mapping[str, str]) -> Parameters:
        known = draft_kernel.infer_parameters(task, trial)
        build(known)  # raises for a wrong value
        return known

    known = change(flags)
    parameter_list.show(known, sys.stderr if args.json or prompt.interactive else sys.stdout)
    known = parameter_list.confirm(known, flags, prompt, change)
    source = (project / task.source).read_text(errors="replace")
    declared = knobs.find(source, language=task.language, where=task.source)
    check = _first_check(project, task_path, task, known, args, is_drafted=is_drafted) \
        if judged else None
    task = check.drafted.target if check else task
    may_try = args.first_check and not declared and not (check and check.problem)
    proposed = _proposed_knobs(project, task, known, quiet=args.json) if may_try else ()
    for line in knob_trials.describe(proposed):
        print_text(clean(line), sys.stderr if args.json else sys.stdout, 4)
    listed = ", ".join(f"{knob.name} ({len(knob.choices)})" for knob in declared[:8])
    settings = counted(math.prod(len(knob.choices) for knob in declared), "configuration")
    facts = NewFacts(
        op=task.op, language=task.language, source=task.source, reference=task.reference,
        knobs=tuple(declared),
        proposed_knobs=new_facts.tried_knobs(proposed),
        classes=tuple(DraftedClass(name=entry.name, core=entry.core) for entry in task.classes))
    return NewManifest(
        manifest=build(known), parameters=known,
        lines=(f"{task.op} in {task.language}, {task.source}, "
               f"{counted(len(task.classes), 'config class')}",
               f"knobs: {listed}; {settings}" if declared else
               knob_trials.summary(proposed) if proposed else
               OF_MODULE if task.is_module else
               without_knobs(source, task.language, task.entry)
               + ("" if args.agent else f", {BY_AGENT}"),
               *([UNTIMED] if task.language == "triton" and _device(known).kind == "cpu" else [])),
        facts=facts if check is None else new_facts.with_check(
            msgspec.structs.replace(facts, seconds=round(check.seconds, 1)), check))


def without_knobs(source: str, language: str, entry: str = "") -> str:
    """Return, in words, what a campaign changes in a source that declares no knobs."""
    changes = transformation_registry.applicable(source, language, entry)
    listed = "; ".join(change.what for change in changes[:MOST_NAMED])
    if (more := len(changes) - MOST_NAMED) > 0:
        listed += f"; and {more} more"
    mark = "#" if language in ("python", "triton") else "//"
    comment = f"with a comment such as  {mark} kopt: knob TILE in [16, 32]"
    if not changes:
        return f"no knobs: declare some {comment}"
    return f"no knobs: a campaign tries {counted(len(changes), 'built-in change')} " \
        f"({listed}); or declare knobs {comment}"


def _table(args: argparse.Namespace, project: Path) -> str:
    """Return the tuning table's path in the project, "" for none. Raises InputError."""
    if args.knobs is None:
        return ""
    path = args.knobs.resolve()
    if not path.is_relative_to(project.resolve()):
        raise InputError("the tuning table lies outside the project", where=str(path),
                         fix=f"copy it to {project}")
    tuning_table.parse(knobs.read(path), str(path))
    return str(path.relative_to(project.resolve()).as_posix())


def _first_check(project: Path, task_path: str, task: target.Target, known: Parameters,
                 args: argparse.Namespace, *, is_drafted: bool) -> FirstCheck:
    """Judge the kernel itself, and print the result.

    A task that was drafted gets the ranges of integers that the kernel and its reference accept.
    """
    to = sys.stderr if args.json else sys.stdout
    print(ANNOUNCEMENT, file=to, flush=True)
    with stages(quiet=args.json) as progress:
        check = kernel_check.judge(task, project, _device(known), settles=is_drafted,
                                   python=known["python"].value or None, progress=progress)
        if is_drafted and task.has_c_reference and not args.reference and check.problem:
            check, task = _without_reference(project, task, check, known, progress, to)
    settled = check.drafted.target
    if is_drafted:
        (project / task_path).write_text(draft_kernel.dump_task(settled), encoding="utf-8")
        for line in (*integer_ranges.describe(task, settled),
                     *kernel_check.describe_roles(task, settled)):
            print_text(clean(line), to)
    print_text(clean(kernel_check.describe(check)), to)
    return check


def _without_reference(project: Path, task: target.Target, check: FirstCheck, known: Parameters,
                       progress: Callable[[Progress], None], to: TextIO,
                       ) -> tuple[FirstCheck, target.Target]:
    """Judge the kernel by itself, where it disagrees with the program's CPU function.

    The function stays the reference if the kernel cannot be judged by itself either.
    """
    alone = replace(task, reference=target.BASELINE)
    other = kernel_check.judge(alone, project, _device(known), settles=True,
                               python=known["python"].value or None, progress=progress)
    if not other.correct:
        return check, task
    file = project / task.reference_file
    file.unlink()
    if not any(file.parent.iterdir()):
        file.parent.rmdir()
    print_text(clean(f"{task.reference_function} of the program is not the reference, as the "
                     f"kernel {check.problem}; the kernel itself is"), to)
    return other, alone


def _device(known: Parameters) -> Device:
    return inventory.find((known["device"].value or "auto").partition(",")[0])


def _proposed_knobs(project: Path, task: target.Target, known: Parameters, *,
                    quiet: bool) -> tuple[KnobProposal, ...]:
    """Return the knobs that kopt can declare in a C, CUDA or HIP source, each of them tried."""
    if task.language in ("python", "triton"):
        return ()  # these are proposed with the task itself
    with stages(quiet=quiet) as progress:
        return knob_trials.declare(task, project, _device(known),
                                   python=known["python"].value or None, progress=progress)
