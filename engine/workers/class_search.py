"""What is best in each config class of a kernel: searched for each, measured side by side."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from engine.split import dispatch_columns
from engine.split.languages.language import Language
from engine.task import Task
from engine.verify import gate, harness_client
from engine.verify.fleet import FleetDevice
from engine.workers.knob_search import search
from engine.workers.protocol import Tick, WorkerBench
from harness.formats import file_copy
from harness.requests import EvaluateRequest, Progress
from harness.search.space import knobs
from harness.search.space.space import Config
from harness.search.trials.trials import ConfigRows, Contender, LoopResult, Showing
from harness.settings import Settings, Trees
from harness.target import ConfigClass, Target
from harness.timing.plan import Plan
from harness.verdict import Verdict

MOST = 6
"""Classes that are searched by themselves, those of most weight."""
LEAST_TRIALS = 4
PLAN = Plan(looks=(6,), alpha=0.05)


def search_classes(task: Task, bench: WorkerBench, target: Target, tick: Tick,
                   cancel: threading.Event) -> LoopResult | None:
    """Search for all classes, then for each; None when stopped before anything was found."""
    found = search(task, bench, target, tick, cancel)
    if found is None or len(target.classes) < 2:
        return found
    classes = sorted(target.classes, key=lambda one: -one.weight)[:MOST]
    share = msgspec.structs.replace(task, trials=max(LEAST_TRIALS, task.trials // len(classes)))
    configs: list[Config] = []
    for one in classes:
        if cancel.is_set():
            return found
        best = search(share, bench, replace(target, classes=(one,)), tick, cancel)
        if best is not None and best.best != found.best and best.best not in configs:
            configs.append(best.best)
    contenders = tuple(_contenders(found, configs, bench, target, tick, cancel))
    known = {one.name: sizes(target, one) for one in target.classes}
    shared = [name for name in next(iter(known.values()))
              if all(name in own for own in known.values())]
    return replace(found, columns=tuple(shared), contenders=contenders, classes=tuple(
        ConfigRows(name=name, cells=(tuple(str(own[column]) for column in shared),))
        for name, own in known.items()))


def parameters(language: Language, source: str, target: Target) -> dict[str, str]:
    """Return what the entry's source calls the sizes of a task: arguments are told by their places,
    and in Python a size may be a tensor's.
    """
    _, blocks = language.read(source)
    names = {target.entry, *(block.default for block in blocks if block.entry == target.entry)}
    entry = next((entry for name, entry in dispatch_columns.entries(language, source).items()
                  if name in names), None)
    if entry is None or len(entry.arguments) != len(target.args):
        return {}
    found: dict[str, str] = {}
    for arg, name in zip(target.args, entry.arguments, strict=True):
        sizes = {size: f"{name}.shape[{place}]" for place, size in enumerate(arg.shape or ())
                 if isinstance(size, str) and size.isidentifier()}
        for size, word in ({arg.name: name} if arg.kind == "scalar" else sizes).items():
            if language.takes(entry, [word]):
                found.setdefault(size, word)
    return found


def sizes(target: Target, config_class: ConfigClass) -> dict[str, int]:
    """Return a class's sizes, and the whole numbers that the kernel is called with."""
    scalars = {tensor.name: tensor.value for tensor in target.tensors(config_class)
               if tensor.role == "scalar"}
    return {**config_class.shape, **{name: value for name, value in scalars.items()
                                     if isinstance(value, int)}}


def _contenders(found: LoopResult, configs: list[Config], bench: WorkerBench, target: Target,
                tick: Tick, cancel: threading.Event) -> Iterator[Contender]:
    """Yield the source's own configuration and those of single classes, beside the common best."""
    own = found.trials[0].config if found.trials else found.best
    if own != found.best and own not in configs and configs:
        configs = [own, *configs]
    common = _tree(bench, target, found.best, "common") if configs else ""
    for number, config in enumerate(configs, 1):
        if cancel.is_set():
            return
        tick("comparing", f"contender {number} of {len(configs)}", number / len(configs))
        tree = _tree(bench, target, config, f"contender-{number}")
        verdict = _verdict(bench, target, Trees(candidate=tree, incumbent=common,
                                                reference=bench.baseline), tick, cancel)
        if verdict.correct:
            yield Contender(config=config, showings=tuple(
                Showing(config_class=row.config_class, gain=row.log_ratio, stderr=row.stderr,
                        pairs=row.pairs) for row in verdict.rows if row.log_ratio is not None))


def _verdict(bench: WorkerBench, target: Target, trees: Trees, tick: Tick,
             cancel: threading.Event) -> Verdict:
    def on(card: FleetDevice) -> Verdict:
        def tell(said: Progress) -> None:
            tick(said.stage, said.detail, said.done)

        request = EvaluateRequest(
            target=target, device=card.device.id, trees=trees,
            settings=Settings(scratch=bench.scratch, plan=PLAN, python=bench.python,
                              env=bench.env, incumbent_tree=bench.base_commit))
        return harness_client.evaluate(request, progress=tell, cancel=cancel, warm=card.warm)

    return bench.fleet.run("loop", on, cancel=cancel, doubtful=gate.doubtful, spoilt=gate.spoilt,
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
