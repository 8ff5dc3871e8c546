"""The `search` backend on command targets: moves knobs, by runs of the project's own benchmark."""

from __future__ import annotations

import threading
from pathlib import Path

from engine.task import Task
from engine.verify import harness_client
from engine.verify.fleet import FleetDevice
from engine.workers.knob_search import OnTrial, searched, summary
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.requests import ReportedLoopRequest
from harness.search.trials.trials import LoopResult, SearchJob
from harness.settings import Settings


class TuneWorker:
    """Runs the harness's search over some of the knobs and writes the best into the source."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        result = sweep(task, bench, tick, cancel)
        if result is None:
            return Report(ok=False, summary="stopped")
        source_of(bench).write_bytes(result.source.encode())
        return Report(ok=True, summary=summary(result), trials=result.trials)


def sweep(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event, *,
          repeats: int = 0) -> LoopResult | None:
    """Search from the worktree as it stands; None when stopped before anything was found.

    With `repeats` what may be best in some config class is run so often again.
    """
    target = command(bench)

    def ask(card: FleetDevice, on_trial: OnTrial) -> LoopResult | None:
        request = ReportedLoopRequest(
            target=target, device=card.device.id, repeats=repeats,
            job=SearchJob(tree=bench.worktree, reference=bench.baseline, budget=task.trials,
                    seed=task.seed, only=task.knobs),
            settings=Settings(scratch=bench.scratch, python=bench.python, env=bench.env,
                              incumbent_tree=bench.base_commit, warm_cache=bench.warm))
        return harness_client.loop(request, on_trial=on_trial, cancel=cancel)

    return searched(task, bench, tick, cancel, ask)


def command(bench: WorkerBench) -> CommandTarget:
    """Return the benchmark that a task is to be worked on by. Raises Refused for a kernel."""
    if not isinstance(bench.target, CommandTarget):
        raise Refused(f"{bench.target.op} has no benchmark command of its own")
    return bench.target


def source_of(bench: WorkerBench) -> Path:
    """Return the file of the worktree that declares the knobs."""
    return Path(bench.worktree) / command(bench).source
