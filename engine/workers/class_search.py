"""Finds each config class's best configuration and measures it against the common best."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from engine.task import Task
from engine.verify import gate, harness_client
from engine.verify.fleet_device import FleetDevice
from engine.workers.class_sizes import sizes
from engine.workers.knob_search import search
from engine.workers.protocol import Tick, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats import file_copy
from harness.requests import EvaluateRequest, Progress
from harness.search.space import knobs
from harness.search.trials.trials import ClassGain, ConfigRows, Contender, LoopResult
from harness.settings import Trees
from harness.target import Target
from harness.timing.plan import Plan
from harness.verdict import Config, Verdict

REPEATS = 5
"""Fresh runs of the benchmark for each configuration that may be the best of some class."""
MOST_CLASSES = 6
"""Classes of a kernel that get a search of their own: those with most weight."""
LEAST_TRIALS = 4
PLAN = Plan(looks=(6,), alpha=0.05)


def search_classes(task: Task, bench: WorkerBench, tick: Tick,
                   cancel: threading.Event) -> LoopResult | None:
    """Search for the best of all classes and of each; None when stopped before a trial was kept.

    One run of a benchmark measures all classes, so that one search is enough. A kernel's classes
    are searched one by one.
    """
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
        own = search(share, bench, tick, cancel, target=replace(target, classes=(config_class,)))
        if own is not None and own.best != common.best and own.best not in configs:
            configs.append(own.best)
    contenders = tuple(_contenders(common, configs, bench, target, tick, cancel))
    sizes_of = {config_class.name: sizes(target, config_class) for config_class in target.classes}
    columns = [name for name in next(iter(sizes_of.values()))
               if all(name in own for own in sizes_of.values())]
    return replace(common, columns=tuple(columns), contenders=contenders, classes=tuple(
        ConfigRows(name=name, cells=(tuple(str(own[column]) for column in columns),))
        for name, own in sizes_of.items()))


def _contenders(common: LoopResult, configs: list[Config], bench: WorkerBench, target: Target,
                tick: Tick, cancel: threading.Event) -> Iterator[Contender]:
    """Yield the classes' configurations, and the source's own, measured with the common best."""
    own = common.trials[0].config if common.trials else common.best
    if own != common.best and own not in configs and configs:
        configs = [own, *configs]
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
    shutil.copytree(bench.worktree, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    source = knobs.read(tree / target.source)
    (tree / target.source).write_bytes(
        knobs.apply(source, config, language=target.language).encode())
    return str(tree)
