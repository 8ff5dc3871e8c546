"""The `search` backend on command targets: moves knobs, by runs of the project's own benchmark."""

from __future__ import annotations

import threading
from pathlib import Path

from engine import harness_process
from engine.fleet import Card
from engine.workers.base import Bench, Report, Task, Tick
from engine.workers.search import describe, summary
from harness import knobs
from harness.errors import Refused
from harness.evaluate import Settings
from harness.reported.target import CommandTarget
from harness.requests import ReportedLoopRequest
from harness.search.space import of_knobs
from harness.trials import Job, LoopResult, Trial


class TuneWorker:
    """Runs the harness's search over some of the knobs and writes the best into the source."""

    def work(self, task: Task, bench: Bench, tick: Tick, cancel: threading.Event) -> Report:
        result = sweep(task, bench, tick, cancel)
        if result is None:
            return Report(ok=False, summary="stopped")
        source_of(bench).write_bytes(result.source.encode())
        return Report(ok=True, summary=summary(result), trials=result.trials)


def sweep(task: Task, bench: Bench, tick: Tick, cancel: threading.Event, *,
          repeats: int = 0) -> LoopResult | None:
    """Search from the worktree as it stands; None when stopped before anything was found.

    With `repeats` what may be best in some config class is run so often again.
    """
    target = command(bench)
    trials: list[Trial] = []
    where = ""

    def on_trial(trial: Trial) -> None:
        trials.append(trial)
        best = "" if trial.log_ratio is None else f", {describe(trial)}"
        tick("searching", f"trial {len(trials)} of {task.trials}{where}{best}",
             len(trials) / task.trials)

    def on(card: Card) -> LoopResult | None:
        nonlocal where
        trials.clear()
        where = f" on {card.device.id}" if len(bench.fleet.cards) > 1 else ""
        tick("searching", f"trial 0 of {task.trials}{where}", 0.0)
        request = ReportedLoopRequest(
            target=target, device=card.device.id, repeats=repeats,
            job=Job(tree=bench.worktree, reference=bench.baseline, budget=task.trials,
                    seed=task.seed, only=task.knobs),
            settings=Settings(scratch=bench.scratch, python=bench.python, env=bench.env,
                              incumbent_tree=bench.base_commit, warm_cache=bench.warm))
        return harness_process.loop(request, on_trial=on_trial, cancel=cancel)

    result = bench.fleet.run("loop", on, cancel=cancel,
                             on_wait=lambda text: tick("waiting", text, None))
    return result if result is not None and result.trials else so_far(bench, trials)


def command(bench: Bench) -> CommandTarget:
    """Return the benchmark that a task is to be worked on by. Raises Refused for a kernel."""
    if not isinstance(bench.target, CommandTarget):
        raise Refused(f"{bench.target.op} has no benchmark command of its own")
    return bench.target


def source_of(bench: Bench) -> Path:
    """Return the file of the worktree that declares the knobs."""
    return Path(bench.worktree) / command(bench).source


def so_far(bench: Bench, trials: list[Trial]) -> LoopResult | None:
    """Return where a search is whose process was ended, None if it has kept nothing."""
    best = next((trial for trial in reversed(trials) if trial.kept), None)
    if best is None:
        return None
    target, source = command(bench), knobs.read(source_of(bench))
    found = knobs.find(source, language=target.language)
    return LoopResult(best=best.config, log_ratio=best.log_ratio, trials=tuple(trials),
                      space_size=of_knobs(found, tuple(best.config)).size,
                      source=knobs.apply(source, best.config, language=target.language))
