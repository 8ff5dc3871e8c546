"""Judge a kernel by its new task, and find the ranges of integers that it accepts."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.campaign import task_notes
from engine.discovery.new import integer_ranges
from engine.discovery.new.draft_kernel import DraftedTarget
from engine.discovery.watched import first_check
from engine.discovery.watched.first_check import FirstCheck
from engine.verify import harness_client
from harness.devices.device import Device
from harness.formats.quantities import counted
from harness.requests import Progress
from harness.tasks.target import Target

SETTLES_S = 60.0
"""Seconds after which no other range of integers is tried."""
SLOWER, TRIAL_S = 2.0, 8.0
"""A trial may take SLOWER times the seconds of the first verdict plus TRIAL_S: a range that makes
the kernel far slower is not the one that people use."""


def judge(task: Target, project: Path, device: Device, *, python: str | None,
          progress: Callable[[Progress], None], settles: bool = False) -> FirstCheck:
    """Judge the kernel in the project by the task.

    With `settles`, the result's task has ranges of integer inputs with which the kernel and its own
    reference agree. Where the baseline is the reference, nothing would notice an index that is out
    of bounds, so these ranges stay. Outputs of which it writes a part only become `inout` there,
    and where the reference is in C.
    """
    began, drafted = time.monotonic(), DraftedTarget(target=task, files={})
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch, contextlib.closing(
            harness_client.warm_start(task, device, python, {})) as warm:
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
        if settles and (task.by_baseline or task.has_c_reference) and result.verdict \
                and not result.correct:
            _settle_roles(task, accepts)
    return replace(result, seconds=time.monotonic() - began)


def _settle_roles(task: Target, accepts: Callable[[Target], bool]) -> None:
    """Make outputs `inout` until the kernel is accepted: no more of them than need be."""
    def with_inout(names: list[str]) -> Target:
        return replace(task, args=tuple(
            replace(arg, role="inout") if arg.name in names else arg for arg in task.args))

    names = [arg.name for arg in task.args if arg.kind == "output"]
    if not accepts(with_inout(names)):
        return
    for name in names:
        fewer = [each for each in names if each != name]
        if fewer and accepts(with_inout(fewer)):
            names = fewer


def describe_roles(before: Target, settled: Target) -> list[str]:
    """Return a line on each output that became `inout`."""
    return [f"{arg.name}: inout, since the kernel reads it first or does not write all of it"
            for arg, was in zip(settled.args, before.args, strict=True)
            if (arg.kind, was.kind) == ("inout", "output")]


def describe(result: FirstCheck) -> str:
    """Return the first verdict in one line."""
    task = result.drafted.target
    faulty = "the kernel" if task.by_baseline else f"the kernel, {task.reference}"
    advice = "" if result.verdict is None else f"; fix {faulty} or the task"
    failing = result.failing + f" {task.reference}" * result.reference_fails
    narrow = ", ".join(task_notes.undeclared(task))
    return result.describe(
        counted(len(task.classes), "config class")
        + (f" (integer inputs of 0 and 1 only: {narrow})" if narrow else "")
        + f" ({result.seconds:.0f} s)", f"{failing} {result.problem}{advice}")
