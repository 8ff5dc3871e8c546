"""The `search` backend: the harness tries values of the knobs that the source declares.

For a split, each config class's best configuration is found as well, and measured against the
common best.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from engine.split.class_sizes import sizes
from engine.task import AgentProgress, Task
from engine.verify import gate, harness_client
from engine.verify.fleet_device import FleetDevice
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats import file_copy
from harness.formats.text import plain
from harness.requests import EvaluateRequest, LoopRequest, Progress, ReportedLoopRequest
from harness.search.space.knobs import config_words
from harness.search.space.tunable_source import TunableSource
from harness.search.trials import trial_log
from harness.search.trials.trials import (
    ClassGain,
    ConfigRows,
    Contender,
    LoopResult,
    SearchJob,
    Trial,
)
from harness.settings import Trees
from harness.tasks.target import Target
from harness.timing.plan import Plan
from harness.verdict import Config, Verdict

OnTrial = Callable[[Trial], None]


def work(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event, *,
         changed: str = "") -> Report:
    """Search over some of the knobs and write the best configuration into the source.

    `changed` tells, for the report, what another worker changed in the source before the search.
    """
    result = search(task, bench, tick, cancel)
    if result is None:
        return Report(ok=False, summary="stopped")
    (Path(bench.worktree) / bench.target.source).write_bytes(result.source.encode())
    return Report(ok=True, summary="; ".join(filter(None, (changed, summary(result)))),
                  trials=result.trials)


def search(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event, *,
           target: Target | None = None, repeats: int = 0) -> LoopResult | None:
    """Search from the worktree's source; return None when stopped before a trial was kept.

    `target` replaces the bench's, to search for some classes only. The benchmark runs `repeats`
    more times for each configuration that may be the best of some config class. A search that an
    earlier engine began goes on after the trials that it recorded in `bench.searches`.
    """
    job = SearchJob(tree=bench.worktree, reference=bench.baseline, budget=task.trials,
                    seed=task.seed, only=task.knobs)

    waiting_tick = WaitingTick(tick)

    def run(card: FleetDevice, on_trial: OnTrial) -> LoopResult | None:
        searched = target or bench.target
        settings = bench.settings()
        recorded = replace(job, record=bench.searches and str(Path(
            bench.searches) / trial_log.key(searched, job, card.device, settings)))
        if before := recorded.record and len(trial_log.recorded(Path(recorded.record))):
            waiting_tick("searching", f"continues after trial {before} of {task.trials}, "
                         "recorded by an earlier engine", before / task.trials)
        if isinstance(searched, CommandTarget):
            benchmark = ReportedLoopRequest(
                target=searched, device=card.device.id, repeats=repeats, job=recorded,
                settings=replace(settings, warm_cache=bench.warm))
            return harness_client.loop(benchmark, on_trial=on_trial,
                                       progress=waiting_tick.show_wait, cancel=cancel)
        request = LoopRequest(target=searched, device=card.device.id, settings=settings,
                              job=replace(recorded, corpus=bench.corpus))
        return harness_client.loop(request, on_trial=on_trial, progress=waiting_tick.show_wait,
                                   cancel=cancel, warm=card.warm)

    return run_on_fleet(task, bench, waiting_tick, cancel, run)


class WaitingTick:
    """Forwards a search's progress; shows a wait of the harness, then the earlier stage again."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._last: tuple[str, str, float | None] = ("searching", "", None)

    def __call__(self, stage: str, detail: str, done: float | None,
                 agent: AgentProgress | None = None, /) -> None:
        self._last = stage, detail, done
        self._tick(stage, detail, done)

    def show_wait(self, progress: Progress) -> None:
        """Show what the harness waits for; any other stage of its search ends the wait."""
        if progress.stage == "waiting":
            self._tick("waiting", progress.detail, self._last[2])
        elif progress.stage != "note":
            self._tick(*self._last)


def run_on_fleet(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event,
                 run: Callable[[FleetDevice, OnTrial], LoopResult | None]) -> LoopResult | None:
    """Run a search on a device and report its trials; a cancelled search keeps its best so far."""
    trials: list[Trial] = []
    where = ""

    def on_trial(trial: Trial) -> None:
        trials.append(trial)
        config = "" if trial.log_ratio is None else f", {plain(config_words(trial.config), 60)}"
        tick("searching", f"trial {trial.number + 1} of {task.trials}{where}{config}",
             (trial.number + 1) / task.trials)

    def on_device(card: FleetDevice) -> LoopResult | None:
        nonlocal where
        trials.clear()
        where = f" on {card.device.id}" if len(bench.fleet.cards) > 1 else ""
        tick("searching", f"starting, {task.trials} trials{where}", 0.0)
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
    source = _source(bench, bench.target)
    return LoopResult(best=best.config, log_ratio=best.log_ratio, trials=tuple(trials),
                      space_size=source.space(tuple(best.config)).size,
                      source=source.apply(best.config))


def _source(bench: WorkerBench, target: Target | CommandTarget) -> TunableSource:
    return TunableSource.read(Path(bench.worktree), target.source, language=target.language)


def summary(result: LoopResult) -> str:
    """Return one line on how many configurations were screened, and the best of them."""
    return f"{len(result.trials)} of {result.space_size} configurations screened; " \
        f"best {config_words(result.best)}"


REPEATS = 5
"""Fresh runs of the benchmark for each configuration that may be the best of some class."""
MOST_CLASSES = 6
"""The most classes of a kernel that get their own search: those with the most weight."""
LEAST_TRIALS = 4
PLAN = Plan(looks=(6,), alpha=0.05)


def search_classes(task: Task, bench: WorkerBench, tick: Tick,
                   cancel: threading.Event) -> LoopResult | None:
    """Search for the best configuration of all classes and of each; None if no trial was kept."""
    target = bench.target
    if isinstance(target, CommandTarget):
        return search(task, bench, tick, cancel, repeats=REPEATS)
    common = search(task, bench, tick, cancel)
    if common is None or len(target.classes) < 2:
        return common
    classes = sorted(target.classes, key=lambda config_class: -config_class.weight)[:MOST_CLASSES]
    share = msgspec.structs.replace(task, trials=max(LEAST_TRIALS, task.trials // len(classes)))
    configs: list[Config] = []
    for config_class in classes:
        if cancel.is_set():
            return common
        result = search(share, bench, tick, cancel,
                        target=replace(target, classes=(config_class,)))
        if result is not None and result.best != common.best and result.best not in configs:
            configs.append(result.best)
    contenders = tuple(_contenders(common, configs, bench, target, tick, cancel))
    sizes_of = {config_class.name: sizes(target, config_class) for config_class in target.classes}
    columns = [name for name in next(iter(sizes_of.values()))
               if all(name in row for row in sizes_of.values())]
    return replace(common, columns=tuple(columns), contenders=contenders, classes=tuple(
        ConfigRows(name=name, cells=(tuple(str(row[column]) for column in columns),))
        for name, row in sizes_of.items()))


def _contenders(common: LoopResult, configs: list[Config], bench: WorkerBench, target: Target,
                tick: Tick, cancel: threading.Event) -> Iterator[Contender]:
    """Yield the classes' configurations and the original one, measured against the common best."""
    original = common.trials[0].config if common.trials else common.best
    if original != common.best and original not in configs and configs:
        configs = [original, *configs]
    incumbent = _tree(bench, target, common.best, "common") if configs else ""
    for number, config in enumerate(configs, 1):
        if cancel.is_set():
            return
        tick("comparing", f"contender {number} of {len(configs)}", number / len(configs))
        tree = _tree(bench, target, config, f"contender-{number}")
        verdict = _verdict(bench, target, Trees(candidate=tree, incumbent=incumbent,
                                                reference=bench.baseline), tick, cancel)
        if verdict.correct:
            yield Contender(config=config, gains=tuple(
                ClassGain(config_class=row.config_class, gain=row.log_ratio, stderr=row.stderr,
                          pairs=row.pairs) for row in verdict.rows if row.log_ratio is not None))


def _verdict(bench: WorkerBench, target: Target, trees: Trees, tick: Tick,
             cancel: threading.Event) -> Verdict:
    def on_device(card: FleetDevice) -> Verdict:
        def on_progress(progress: Progress) -> None:
            tick(progress.stage, progress.detail, progress.done)

        request = EvaluateRequest(
            target=target, device=card.device.id, trees=trees,
            settings=replace(bench.settings(), plan=PLAN))
        return harness_client.evaluate(request, progress=on_progress, cancel=cancel,
                                       warm=card.warm)

    return bench.fleet.run("loop", on_device, cancel=cancel, needs_recheck=gate.needs_recheck,
                           void_reason=gate.void_reason,
                           on_wait=lambda text: tick("waiting", text, None))


def _tree(bench: WorkerBench, target: Target, config: Config, name: str) -> str:
    """Return a copy of the worktree with a configuration set."""
    tree = Path(bench.scratch) / name
    file_copy.remove(tree)
    file_copy.copy_sources(Path(bench.worktree), tree)
    (tree / target.source).write_bytes(_source(bench, target).apply(config).encode())
    return str(tree)
