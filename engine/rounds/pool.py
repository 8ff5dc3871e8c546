"""The pool: slots filled in parallel, each worker in a worktree of its own.

Slot threads only wait on guarded children and put their results on the engine's queue; they write
neither the journal nor a branch.
"""

from __future__ import annotations

import logging
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.campaign import baseline_cache
from engine.campaign.setup import Setup
from engine.history import spending
from engine.journal import database
from engine.judge import stop_rules
from engine.judge.stop_rules import BudgetUsed
from engine.manifest.schema import Manifest
from engine.repository.clone import Change
from engine.rounds import disk_space
from engine.rounds.disk_space import DiskWatch
from engine.task import AGENT_BACKENDS, AgentProgress, RepairRequest, SlotProgress, Task
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import NoDeviceAvailable
from engine.verify.screener import Screener
from engine.workers.model.attempt_limits import Allowance
from engine.workers.protocol import Report, Tick, Worker, WorkerBench
from engine.workers.slot.screening_desk import ScreeningDesk
from harness.errors import InputError, KoptError, os_fault
from harness.formats.text import plain
from harness.search.trials import corpus

TICK_S = 0.5

log = logging.getLogger("kopt.engine")


class WorkerFinished(msgspec.Struct, frozen=True, kw_only=True):
    """A slot's worker has ended; `change` is what it changed in `base`, None if it failed."""

    task: Task
    base: str
    report: Report
    change: Change | None = None


class TaskSkipped(msgspec.Struct, frozen=True, kw_only=True):
    """A task that did not start: no device, no budget, or the pool drains."""

    task: Task
    cause: NoDeviceAvailable | None = None
    unpaid: str = ""
    """Why the budget does not cover it."""


class Pool:
    """Runs the tasks of one round, at most `limit` at a time.

    `manifest` returns the campaign's manifest as it is now, `used` what the campaign has spent.
    """

    def __init__(self, setup: Setup, workers: Mapping[str, Worker], limit: int,
                 messages: queue.Queue[object], fleet: Fleet, *, round: int,
                 manifest: Callable[[], Manifest], used: Callable[[], BudgetUsed]) -> None:
        self._setup, self._fleet, self._round = setup, fleet, round
        self._manifest, self._used = manifest, used
        self._workers = workers
        self._messages = messages
        self._cancel, self._draining = threading.Event(), threading.Event()
        self._executor = ThreadPoolExecutor(limit, thread_name_prefix="slot")
        self._disk = DiskWatch(setup.folder.path, disk_space.limit_of(setup))
        self._lock = threading.Lock()
        self._trials_left: int | None = None

    def start(self, tasks: Sequence[Task], base_commit: str,
              trials_left: int | None = None) -> None:
        """Begin the round; `trials_left` bounds the screenings of its slots."""
        self._trials_left = trials_left
        self._disk.start()
        for task in tasks:
            self._executor.submit(self._run, task, base_commit)

    def submit_retry(self, task: Task, base_commit: str) -> bool:
        """Run a retry in a slot; False if the pool begins no more work."""
        if self._cancel.is_set() or self._draining.is_set():
            return False
        self._executor.submit(self._run, task, base_commit)
        return True

    def drain(self) -> None:
        """Begin no further work; workers that run may finish."""
        self._draining.set()

    def stop(self) -> None:
        """End all workers and wait until their processes have exited."""
        self._cancel.set()
        self._disk.stop()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _run(self, task: Task, base_commit: str) -> None:
        if self._cancel.is_set():
            return
        if self._draining.is_set():
            self._messages.put(TaskSkipped(task=task))
            return
        if spending.asks_model(task, self._setup.manifest.pool) and (
                over_budget := self._allowance().over_budget):
            self._messages.put(TaskSkipped(task=task, unpaid=over_budget))
            return
        try:
            task = msgspec.structs.replace(
                task, round=self._round,
                attempt=1 + self._setup.folder.last_attempt(self._round, task.slot))
            finished = self._work(task, base_commit)
        except NoDeviceAvailable as error:
            self._messages.put(TaskSkipped(task=task, cause=error))
            return
        except (KoptError, OSError) as error:
            fault = os_fault(error) if isinstance(error, OSError) else error
            finished = _failed(task, base_commit, str(fault))
        except Exception as error:  # without a message the round would wait forever
            log.exception("slot %s failed", task.slot)
            finished = _failed(task, base_commit, plain(
                f"internal error: {type(error).__name__}: {error}", 300))
        self._messages.put(finished)

    def _work(self, task: Task, base_commit: str) -> WorkerFinished:
        setup = self._setup
        tick = _Ticker(task.slot, self._messages)
        tick("starting", "worktree", None)
        worktree = setup.repo.worktree(task.slot, base_commit)
        try:
            if task.repair is not None:
                _restore(task.repair, worktree)
            scratch = setup.folder.fresh_scratch(task.slot)
            baseline_cache.seed(setup.folder.path, scratch / "home")  # for a cli worker
            bench = WorkerBench(target=setup.target, device=setup.device, fleet=self._fleet,
                                worktree=str(worktree), scratch=str(scratch),
                                transcript=str(setup.folder.transcript(
                                    self._round, task.slot, task.attempt)),
                                baseline=str(setup.tree(setup.repo.base)),
                                warm=baseline_cache.warm_for(setup.folder.path, "work"),
                                base_commit=base_commit, edit=setup.edit,
                                python=setup.manifest.python, env=setup.manifest.env,
                                corpus=str(setup.workspace.resolve() / corpus.FILE),
                                searches=str(setup.folder.searches(task.slot)),
                                hidden=(*database.open_files(),
                                        str(scratch.parent), str(worktree.parent)),
                                selftest_iterations=setup.manifest.pool.selftest_iterations,
                                timeout_s=self._manifest().pool.worker_timeout_s,
                                allowance=self._allowance, book=self._messages.put)
            with self._disk.slot(worktree, scratch) as watched, \
                    self._screening_desk(task, bench, tick) as (bench, desk):
                report = self._workers[task.backend](task, bench, tick, watched.cancel)
            report = msgspec.structs.replace(report, screenings=desk.count)
            if watched.reason:
                report = msgspec.structs.replace(report, summary=watched.reason,
                                                 cut=watched.reason)
            if not report.ok:
                return WorkerFinished(task=task, base=base_commit, report=report)
            base, change = self._capture(worktree, base_commit, report)
            return WorkerFinished(task=task, base=base, report=report, change=change)
        finally:
            setup.repo.remove(task.slot)

    @contextmanager
    def _screening_desk(self, task: Task, bench: WorkerBench, tick: Tick,
                        ) -> Iterator[tuple[WorkerBench, ScreeningDesk]]:
        """Let the processes of a coding agent's slot ask for screening verdicts."""
        pool, scratch = self._setup.manifest.pool, Path(bench.scratch)
        desk = ScreeningDesk(
            Screener(self._setup, self._fleet, slot=task.slot, worktree=Path(bench.worktree),
                     base=bench.base_commit, scratch=scratch, hidden=bench.hidden),
            most=pool.screenings, spacing_s=pool.screening_spacing_s, tick=tick,
            allow=self._allow_screening)
        if not pool.screenings or task.backend not in AGENT_BACKENDS:
            yield bench, desk
            return
        with desk.opened(scratch / "kopt", scratch / "home") as kopt:
            yield msgspec.structs.replace(bench, kopt=kopt), desk

    def _allow_screening(self) -> bool:
        """Spend one of the trials that the campaign may still make; False if there is none."""
        with self._lock:
            if self._trials_left is None:
                return True
            self._trials_left -= 1
            return self._trials_left >= 0

    def _allowance(self) -> Allowance:
        manifest = self._manifest()
        return Allowance(
            agent=manifest.pool.agent, worker_timeout_s=manifest.pool.worker_timeout_s,
            over_budget=stop_rules.models_over_budget(manifest.budget, self._used()))

    def _capture(self, worktree: Path, base: str, report: Report) -> tuple[str, Change]:
        """Return a worker's change and its base: a patch may be made for the best, although rounds
        go on from a provisional one.
        """
        repo, edit = self._setup.repo, self._setup.edit
        if report.patch is None:
            return base, repo.capture(worktree, base, edit)
        try:
            return base, repo.take(base, report.patch, edit)
        except InputError:
            if (best := repo.best) == base:
                raise
            return best, repo.take(best, report.patch, edit)


def _restore(request: RepairRequest, worktree: Path) -> None:
    """Write the changes of a candidate to repair into a fresh worktree."""
    for path in request.deleted:
        (worktree / path).unlink(missing_ok=True)
    for path in request.changed:
        (worktree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(request.tree) / path, worktree / path)


def _failed(task: Task, base: str, reason: str) -> WorkerFinished:
    return WorkerFinished(task=task, base=base, report=Report(ok=False, summary=plain(reason)))


class _Ticker:
    """Forwards a worker's progress: every new stage at once, else at most two ticks a second."""

    def __init__(self, slot: str, messages: queue.Queue[object]) -> None:
        self._slot, self._messages = slot, messages
        self._stage, self._at = "", 0.0
        self._agent: AgentProgress | None = None

    def __call__(self, stage: str, detail: str, done: float | None,
                 agent: AgentProgress | None = None, /) -> None:
        now = time.monotonic()
        self._agent = agent or self._agent  # ticks of screenings have no agent
        if stage == self._stage and now - self._at < TICK_S:
            return
        self._stage, self._at = stage, now
        self._messages.put(SlotProgress(slot=self._slot, stage=stage, detail=plain(detail, 160),
                                        done=done, agent=self._agent))
