"""What every worker is given and gives back. No number or claim of a worker counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from engine.task import Task
from engine.verify.fleet import Fleet
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices.device import Device
from harness.search.trials.trials import Trial
from harness.target import Target

Tick = Callable[[str, str, float | None], None]
"""Called with a stage, a few words and how far the work is (0 to 1), where that is known."""


LOG = "worker.log"
"""The file in its scratch folder where a worker may leave what it has to tell."""


class WorkerBench(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task is worked on. `device` is the campaign's first; work on a card is done through
    the `fleet`.
    """

    target: Target | CommandTarget
    device: Device
    fleet: Fleet
    worktree: str
    baseline: str
    scratch: str
    base_commit: str
    edit: tuple[str, ...] = ()
    """Globs of what a candidate may change."""
    python: str | None = None
    env: dict[str, str] = {}
    warm: str = ""
    """A kept cache of compilers to start with a copy of, "" for none."""
    timeout_s: float = 1800.0
    selftest_iterations: int | None = None
    """How often workers are to repeat what they try out themselves."""
    corpus: str = ""
    """The workspace's file of measured trials, "" for none."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker ended. `patch` is for backends that bring a diff instead of editing files."""

    ok: bool
    summary: str
    patch: bytes | None = None
    hypothesis: str = ""
    """What its author says of it; the task's own, if empty."""
    cut: str = ""
    """Why it ended before it was done, where what it has left is judged all the same."""
    trials: tuple[Trial, ...] = ()


class Worker(Protocol):
    """A backend: does one task and reports. Raises KoptError when it cannot."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick,
             cancel: threading.Event) -> Report: ...
