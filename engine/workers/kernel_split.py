"""The `split` backend: classes that want other knobs get a kernel of their own, in one source.

A search finds what is best in each config class; what beats the common best there for sure is
written beside the old kernel, behind a dispatch on the columns that tell those classes apart. A
candidate that is to be divided is taken as it is, without a search.
"""

from __future__ import annotations

import math
import threading
from pathlib import Path

from engine.split import class_preferences, dispatch_columns, specialise
from engine.split.languages.detect import language_of
from engine.task import Task
from engine.workers import class_search
from engine.workers.class_search import search_classes
from engine.workers.class_split import divide
from engine.workers.command_search import sweep
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.benchmark.spec import row_classes
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.space import knobs
from harness.search.trials.trials import LoopResult
from harness.target import Target

REPEATS = 5
"""Fresh runs of each configuration that may be best in some class."""
MARGIN = 0.02
"""Gain beside the common best from which a class is worth a kernel of its own."""


class SplitWorker:
    """Searches, and splits the source where config classes clearly want different knobs."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        target = bench.target
        language_of(target)
        if task.split is not None:
            tick("splitting", f"candidate {task.split.candidate}", None)
            return divide(task.split, bench)
        result = search_classes(task, bench, target, tick, cancel) \
            if isinstance(target, Target) else sweep(task, bench, tick, cancel, repeats=REPEATS)
        if result is None:
            return Report(ok=False, summary="stopped")
        if cancel.is_set():
            return Report(ok=False, summary="stopped before classes were compared",
                          trials=result.trials)
        path = Path(bench.worktree) / target.source
        tick("splitting", target.source, None)
        source = knobs.read(path)
        try:
            text, groups = divided(source, result, target)
        except Refused as refused:
            return Report(ok=False, summary=f"not split: {refused}", trials=result.trials)
        if not groups:
            return Report(ok=True, trials=result.trials, summary=(
                f"{len(result.trials)} of {result.space_size} configurations screened: no config "
                f"class is more than {MARGIN:.0%} faster with knobs of its own"
                + "".join(f"; {plain(note, 200)}" for note in result.notes)))
        path.write_bytes(text.encode())
        return Report(ok=True, summary=summary(groups), hypothesis=hypothesis(groups),
                      trials=result.trials)


def divided(source: str, result: LoopResult, target: Target | CommandTarget,
            ) -> tuple[str, tuple[class_preferences.ClassGroup, ...]]:
    """Return the source with a variant for each group of classes that wants one, and these.

    Raises Refused where nothing is to be split, or cannot be, InputError for what cannot be read.
    """
    language = language_of(target)
    found = knobs.find(source, language=language.knobs)
    numeric = class_preferences.numeric_columns(result)
    if isinstance(target, Target):
        parameter_of = {
            name: parameter
            for name, parameter in class_search.parameters(language, source, target).items()
            if name in numeric
        }
    else:
        parameter_of = dispatch_columns.columns(
            language, source, numeric, [one.name for one in found]
        )
    if not parameter_of:
        raise Refused("no exported function takes a column of the benchmark as a whole number",
                      fix="call its parameter as the column is called, or write a comment: "
                          "kopt: column NAME is PARAMETER")
    first = row_classes.columns(target.configs) if isinstance(target, CommandTarget) else ()
    groups = class_preferences.groups(result, list(parameter_of), MARGIN, first=first)
    return specialise.split(source, groups, parameter_of, start=knobs.current(found),
                            language=language), groups


def summary(groups: tuple[class_preferences.ClassGroup, ...]) -> str:
    """Say which class takes which knobs, and what that gains beside the common best."""
    return "; ".join(
        f"{len(group.classes)} class{'es' * (len(group.classes) > 1)} with {group.condition}: "
        f"{', '.join(f'{name}={value}' for name, value in group.config.items())} "
        f"(≥{math.expm1(group.gain):.1%} faster than with the common best)" for group in groups)


def hypothesis(groups: tuple[class_preferences.ClassGroup, ...]) -> str:
    return "a specialised kernel where " + " and where ".join(
        f"{group.condition} ({plain(', '.join(group.classes), 120)})" for group in groups)
