"""The first verdict of `kopt new` on a kernel that has a task file."""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from engine.discovery.new.draft_kernel import DraftedTarget
from engine.discovery.watched import first_check
from engine.discovery.watched.first_check import FirstCheck
from engine.verify import harness_client
from harness.devices.device import Device
from harness.formats.quantities import counted
from harness.tasks.target import Target
from kopt_tui.cli.stage_line import stages

ANNOUNCEMENT = "judging the kernel itself by the new task (--no-check leaves that out)"


def judge(task: Target, project: Path, device: Device, *, python: str | None,
          quiet: bool) -> FirstCheck:
    """Return what the task says of the kernel as it is in the project; show stages if not `quiet`.
    """
    began, drafted = time.monotonic(), DraftedTarget(target=task, files={})
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch, contextlib.closing(
            harness_client.warm_start(task, device, python, {})) as warm, \
            stages(quiet=quiet) as progress:
        result = first_check.judge(drafted, project, device, python, warm, scratch, progress)
    return replace(result, seconds=time.monotonic() - began)


def describe(result: FirstCheck) -> str:
    """Return the first verdict in one line."""
    task = result.drafted.target
    faulty = "the kernel" if task.by_baseline else f"the kernel, {task.reference}"
    advice = "" if result.verdict is None else f"; correct {faulty} or the task"
    return result.describe(
        f"{counted(len(task.classes), 'config class')} ({result.seconds:.0f} s)",
        f"the kernel itself {result.problem}{advice}")
