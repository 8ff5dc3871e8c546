"""The `search` backend: the harness moves the knobs that the source declares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.task import Task
from engine.verify import harness_client
from engine.verify.fleet_device import FleetDevice
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.requests import LoopRequest, ReportedLoopRequest
from harness.search.space import knobs
from harness.search.space.tunable_source import of_knobs
from harness.search.trials.trials import LoopResult, SearchJob, Trial
from harness.target import Target

OnTrial = Callable[[Trial], None]


class SearchWorker:
    """Searches over some of the knobs and writes the best configuration into the source."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        result = search(task, bench, tick, cancel)
        if result is None:
            return Report(ok=False, summary="stopped")
        (Path(bench.worktree) / bench.target.source).write_bytes(result.source.encode())
        return Report(ok=True, summary=summary(result), trials=result.trials)


def search(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event, *,
           target: Target | None = None, repeats: int = 0) -> LoopResult | None:
    """Search from the worktree's source; return None when stopped before a trial was kept.

    `target` replaces the bench's, to search for some classes only. The benchmark runs `repeats`
    more times for each configuration that may be the best of some config class. The search keeps no
    record of its own: the campaign's journal has its trials.
    """
    job = SearchJob(tree=bench.worktree, reference=bench.baseline, budget=task.trials,
                    seed=task.seed, only=task.knobs)

    def run(card: FleetDevice, on_trial: OnTrial) -> LoopResult | None:
        searched = target or bench.target
        settings = bench.settings()
        if isinstance(searched, CommandTarget):
            benchmark = ReportedLoopRequest(
                target=searched, device=card.device.id, repeats=repeats, job=job,
                settings=replace(settings, warm_cache=bench.warm))
            return harness_client.loop(benchmark, on_trial=on_trial, cancel=cancel)
        request = LoopRequest(target=searched, device=card.device.id, settings=settings,
                              job=replace(job, corpus=bench.corpus))
        return harness_client.loop(request, on_trial=on_trial, cancel=cancel, warm=card.warm)

    return run_on_fleet(task, bench, tick, cancel, run)


def run_on_fleet(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event,
                 run: Callable[[FleetDevice, OnTrial], LoopResult | None]) -> LoopResult | None:
    """Run a search on a device and report its trials; a cancelled search keeps its best so far."""
    trials: list[Trial] = []
    where = ""

    def on_trial(trial: Trial) -> None:
        trials.append(trial)
        config = "" if trial.log_ratio is None else f", {describe(trial)}"
        tick("searching", f"trial {len(trials)} of {task.trials}{where}{config}",
             len(trials) / task.trials)

    def on_device(card: FleetDevice) -> LoopResult | None:
        nonlocal where
        trials.clear()
        where = f" on {card.device.id}" if len(bench.fleet.cards) > 1 else ""
        tick("searching", f"trial 0 of {task.trials}{where}", 0.0)
        return run(card, on_trial)

    result = bench.fleet.run(
        "loop", on_device, cancel=cancel,
        needs_recheck=lambda result: not cancel.is_set() and ends_with_failure(result),
        on_wait=lambda text: tick("waiting", text, None))
    return result if result is not None and result.trials else best_so_far(bench, trials)


def ends_with_failure(result: LoopResult | None) -> bool:
    """Return whether the last trial that ran failed, as it does where a device is lost."""
    ran = (trial for trial in reversed(result.trials if result is not None else ())
           if trial.correctness != "REJECTED")
    last = next(ran, None)
    return last is not None and not last.correct


def best_so_far(bench: WorkerBench, trials: Sequence[Trial]) -> LoopResult | None:
    """Return the result of a search that was stopped early, None if it has kept no trial."""
    best = next((trial for trial in reversed(trials) if trial.kept), None)
    if best is None:
        return None
    source = knobs.read(Path(bench.worktree) / bench.target.source)
    declared = knobs.find(source, language=bench.target.language)
    return LoopResult(best=best.config, log_ratio=best.log_ratio, trials=tuple(trials),
                      space_size=of_knobs(declared, tuple(best.config)).size,
                      source=knobs.apply(source, best.config, language=bench.target.language))


def describe(trial: Trial) -> str:
    words = ", ".join(f"{name}={value}" for name, value in trial.config.items())
    return words if len(words) <= 60 else words[:59] + "…"


def summary(result: LoopResult) -> str:
    """Return one line on how many configurations were screened, and the best of them."""
    words = ", ".join(f"{name}={value}" for name, value in result.best.items())
    return f"{len(result.trials)} of {result.space_size} configurations screened; best {words}"
