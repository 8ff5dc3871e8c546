"""Choose the reference of a C, CUDA or HIP kernel's new task, and judge a kernel by its task."""

from __future__ import annotations

import ast
import contextlib
import keyword
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from engine.discovery.new import integer_ranges
from engine.discovery.new.draft_kernel import DraftedTarget
from engine.discovery.project import sources
from engine.discovery.watched import first_check
from engine.discovery.watched.first_check import FirstCheck
from engine.routing.source_language import top_level
from engine.verify import harness_client
from harness.devices.device import Device
from harness.errors import InputError
from harness.formats.quantities import counted
from harness.tasks import target
from harness.tasks.target import Target
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.stage_line import stages

QUESTION = "the reference (FILE:FUNCTION in Python, which computes the correct result)"
ANNOUNCEMENT = "judging the unmodified kernel by the new task (--no-check skips this)"
SETTLES_S = 60.0
"""Seconds after which no other range of integers is tried."""
SLOWER, TRIAL_S = 2.0, 8.0
"""A trial may take so many times the seconds of the first verdict, and so many more: a range that
makes the kernel far slower is not the one that people use."""


def choose(given: str | None, project: Path, function: sources.CFunction, prompt: Prompt) -> str:
    """Return the reference as the task names it: given, found in reference.py, or asked for.

    For a CUDA or HIP kernel it may be the baseline itself. Raises InputError.
    """
    entry = function.name.partition("<")[0]
    if given:
        return checked(given, project, function)
    if f"def {entry}(" in sources.read_source(project / "reference.py"):
        return f"reference.py:{entry}"
    inputs = ", ".join(arg.name for arg in function.args
                       if arg.kind != "output" and not isinstance(arg.value, str))
    answer = prompt.text(QUESTION, "--reference FILE:FUNCTION, or write "
                         f"`def {entry}({inputs})` in reference.py, which returns the outputs",
                         target.BASELINE if function.language in target.OF_CARD else "",
                         check=lambda text: checked(text, project, function))
    return checked(answer, project, function)


def checked(text: str, project: Path, function: sources.CFunction) -> str:
    """Return a reference, its file relative to the project.

    `text` may name the file relative to the project or to the current folder. Raises InputError if
    it does not exist, or has parameters that are no arguments of the kernel.
    """
    if text == target.BASELINE and function.language in target.OF_CARD:
        return text
    file, _, name = text.partition(":")
    name = name or function.name.partition("<")[0]
    root = project.resolve()
    path = next((path for path in (root / file, Path(os.path.abspath(file))) if path.is_file()),
                None)
    if path is None:
        raise InputError(f"the reference's file {file!r} does not exist", where=str(project),
                         fix="write FILE:FUNCTION")
    if not path.is_relative_to(root):
        raise InputError("the reference's file lies outside the project", where=str(path),
                         fix=f"copy it to {project}")
    source = sources.read_source(path)
    if name not in source:
        raise InputError(f"there is no function {name!r}", where=str(path),
                         fix="write FILE:FUNCTION")
    known = {f"{arg.name}_" if keyword.iskeyword(arg.name) else arg.name for arg in function.args}
    if other := [each for each in _parameters(source, name) if each not in known]:
        raise InputError(f"parameter {', '.join(other)} is not an argument of {function.name}",
                         where=f"{path}:{name}", fix=f"it may take {', '.join(sorted(known))}")
    return f"{path.relative_to(root).as_posix()}:{name}"


def _parameters(source: str, name: str) -> list[str]:
    """Return the parameters of a function that have no default; none if the text has no `def`."""
    for node in top_level(source):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            named, spec = [*node.args.posonlyargs, *node.args.args], node.args
            needed = named[:len(named) - len(spec.defaults)]
            needed += [each for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
                       if value is None]
            return [each.arg for each in needed]
    return []


def judge(task: Target, project: Path, device: Device, *, python: str | None,
          quiet: bool, settles: bool = False) -> FirstCheck:
    """Judge the kernel in the project by the task; show stages unless `quiet`.

    With `settles`, the result's task has ranges of integer inputs with which the kernel and its own
    reference agree. Where the baseline is the reference, nothing would notice an index that is out
    of bounds, so these ranges stay.
    """
    began, drafted = time.monotonic(), DraftedTarget(target=task, files={})
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch, contextlib.closing(
            harness_client.warm_start(task, device, python, {})) as warm, \
            stages(quiet=quiet) as progress:
        result = first_check.judge(drafted, project, device, python, warm, scratch, progress)
        first_s = time.monotonic() - began

        def accepts(trial: Target) -> bool:
            nonlocal result
            if time.monotonic() - began > SETTLES_S:
                return False
            tried = first_check.judge(replace(drafted, target=trial), project, device, python, warm,
                                      scratch, progress, limit_s=SLOWER * first_s + TRIAL_S)
            result = tried if tried.correct else result
            return tried.correct

        if settles and result.correct and not task.by_baseline:
            integer_ranges.settle(task, accepts)
    return replace(result, seconds=time.monotonic() - began)


def describe(result: FirstCheck) -> str:
    """Return the first verdict in one line."""
    task = result.drafted.target
    faulty = "the kernel" if task.by_baseline else f"the kernel, {task.reference}"
    advice = "" if result.verdict is None else f"; fix {faulty} or the task"
    failing = result.failing + f" {task.reference}" * result.reference_fails
    narrow = ", ".join(integer_ranges.undeclared(task))
    return result.describe(
        counted(len(task.classes), "config class")
        + (f" (integer inputs of 0 and 1 only: {narrow})" if narrow else "")
        + f" ({result.seconds:.0f} s)", f"{failing} {result.problem}{advice}")
