"""What every worker gets and returns. The engine trusts no number or claim of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from engine.task import AgentProgress, ModelAnswer, Task
from engine.verify.fleet import Fleet
from engine.workers.model.attempt_limits import Allowance
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices.device import Device
from harness.search.trials.trials import Trial
from harness.settings import Settings
from harness.tasks.target import Target


class Tick(Protocol):
    """Reports progress: a stage, a detail, and the share that is done (0 to 1, None if unknown)."""

    def __call__(self, stage: str, detail: str, done: float | None,
                 agent: AgentProgress | None = None, /) -> None: ...


LOG = "worker.log"
"""The file in its scratch folder to which a worker may write its output."""


class SlotKopt(msgspec.Struct, frozen=True, kw_only=True):
    """The command `kopt` of a slot: its folder, the token of its requests, how many may be made."""

    folder: str
    token: str
    most: int


class WorkerBench(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker works; it uses devices through `fleet` only (`device` is the first)."""

    target: Target | CommandTarget
    device: Device
    fleet: Fleet
    worktree: str
    baseline: str
    scratch: str
    transcript: str = ""
    """The file where an agent records what it says and does, "" for one in `scratch`."""
    base_commit: str
    edit: tuple[str, ...] = ()
    """Globs of the files that a candidate may change."""
    python: str | None = None
    env: dict[str, str] = {}
    warm: str = ""
    """A folder of compilers' caches; a worker starts with a copy of it. "" for none."""
    timeout_s: float = 1800.0
    allowance: Callable[[], Allowance] | None = None
    """Returns what the campaign allows at this moment, None where there is no campaign."""
    book: Callable[[ModelAnswer], None] = lambda answer: None
    """Records what an answer of a model cost."""
    selftest_iterations: int | None = None
    """How often an agent should repeat its own measurements."""
    corpus: str = ""
    """The workspace's file of measured trials, "" for none."""
    searches: str = ""
    """The folder where searches record their trials until the slot is done, "" for none."""
    kopt: SlotKopt | None = None
    """The command by which the worker's processes get screening verdicts, None for none."""
    hidden: tuple[str, ...] = ()
    """Folders of which the worker's processes see only what belongs to the slot."""

    def settings(self) -> Settings:
        """Return the harness's settings for trials from the worktree."""
        return Settings(scratch=self.scratch, python=self.python, env=self.env,
                        incumbent_tree=self.base_commit)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker ended. `patch` is for backends that bring a diff instead of editing files."""

    ok: bool
    summary: str
    patch: bytes | None = None
    hypothesis: str = ""
    """The hypothesis of the candidate's author; if empty, the task's."""
    cut: str = ""
    """Why the worker was stopped early; its candidate is judged nevertheless."""
    is_outage: bool = False
    """Whether it was stopped because its model's provider did not answer, which passes."""
    trials: tuple[Trial, ...] = ()
    screenings: int = 0
    """How many screenings were begun for it."""
    steps: int = 0
    """How often a language model was asked."""
    cost_usd: float | None = 0.0
    """What the model's answers cost, None if a price is not known."""


Worker = Callable[[Task, WorkerBench, Tick, threading.Event], Report]
"""A backend: does one task until it is cancelled. It leaves a candidate in the worktree, or returns
its patch. Raises KoptError on failure."""
