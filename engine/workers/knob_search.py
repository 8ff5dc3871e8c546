"""The `search` backend: moves the knobs that the kernel's source declares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.task import Task
from engine.verify import harness_client
from engine.verify.fleet import FleetDevice
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.requests import LoopRequest
from harness.search.space import knobs
from harness.search.space.space import of_knobs
from harness.search.trials.trials import LoopResult, SearchJob, Trial
from harness.settings import Settings
from harness.target import Target

OnTrial = Callable[[Trial], None]


class SearchWorker:
    """Runs the harness's loop over some of the knobs and writes the best into the source."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        if isinstance(bench.target, CommandTarget):
            raise Refused("a benchmark command has no trials of its own")
        result = search(task, bench, bench.target, tick, cancel)
        if result is None:
            return Report(ok=False, summary="stopped")
        (Path(bench.worktree) / bench.target.source).write_bytes(result.source.encode())
        return Report(ok=True, summary=summary(result), trials=result.trials)


def search(task: Task, bench: WorkerBench, target: Target, tick: Tick,
           cancel: threading.Event) -> LoopResult | None:
    """Search from the worktree as it stands; None when stopped before anything was found.

    Without a record of its own: what a campaign knows of its trials is in its journal.
    """
    def ask(card: FleetDevice, on_trial: OnTrial) -> LoopResult | None:
        request = LoopRequest(
            target=target, device=card.device.id,
            job=SearchJob(tree=bench.worktree, reference=bench.baseline, budget=task.trials,
                    seed=task.seed, only=task.knobs, corpus=bench.corpus),
            settings=Settings(scratch=bench.scratch, python=bench.python, env=bench.env,
                              incumbent_tree=bench.base_commit))
        return harness_client.loop(request, on_trial=on_trial, cancel=cancel, warm=card.warm)

    return searched(task, bench, tick, cancel, ask)


def searched(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event,
             ask: Callable[[FleetDevice, OnTrial], LoopResult | None]) -> LoopResult | None:
    """Have a loop run on a card, and tell of its trials; what it has found counts also when it is
    ended ahead of its time.
    """
    trials: list[Trial] = []
    where = ""

    def on_trial(trial: Trial) -> None:
        trials.append(trial)
        best = "" if trial.log_ratio is None else f", {describe(trial)}"
        tick("searching", f"trial {len(trials)} of {task.trials}{where}{best}",
             len(trials) / task.trials)

    def on(card: FleetDevice) -> LoopResult | None:
        nonlocal where
        trials.clear()
        where = f" on {card.device.id}" if len(bench.fleet.cards) > 1 else ""
        tick("searching", f"trial 0 of {task.trials}{where}", 0.0)
        return ask(card, on_trial)

    result = bench.fleet.run("loop", on, cancel=cancel,
                             doubtful=lambda one: not cancel.is_set() and doubtful(one),
                             on_wait=lambda text: tick("waiting", text, None))
    return result if result is not None and result.trials else so_far(bench, trials)


def doubtful(result: LoopResult | None) -> bool:
    """Return whether a loop counts only if its card is fit afterwards: of the trials that ran, the
    last one failed. What was refused shows nothing of a card, what was right that it was there.
    """
    ran = (one for one in reversed(result.trials if result is not None else ())
           if one.correctness != "REJECTED")
    last = next(ran, None)
    return last is not None and not last.correct


def so_far(bench: WorkerBench, trials: Sequence[Trial]) -> LoopResult | None:
    """Return where a search is that was ended ahead of its time, None if it has kept nothing."""
    best = next((trial for trial in reversed(trials) if trial.kept), None)
    if best is None:
        return None
    source = knobs.read(Path(bench.worktree) / bench.target.source)
    found = knobs.find(source, language=bench.target.language)
    return LoopResult(best=best.config, log_ratio=best.log_ratio, trials=tuple(trials),
                      space_size=of_knobs(found, tuple(best.config)).size,
                      source=knobs.apply(source, best.config, language=bench.target.language))


def describe(trial: Trial) -> str:
    words = ", ".join(f"{name}={value}" for name, value in trial.config.items())
    return words if len(words) <= 60 else words[:59] + "…"


def summary(result: LoopResult) -> str:
    """Say what was tried and what came out, as screening values."""
    words = ", ".join(f"{name}={value}" for name, value in result.best.items())
    return f"{len(result.trials)} of {result.space_size} configurations screened; best {words}"
