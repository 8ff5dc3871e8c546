"""The `split` backend: gives some config classes a kernel of their own, in one source.

A search finds the best configuration of each class. Where that clearly beats the common best, a
variant is written next to the old kernel, behind a dispatcher that tests the columns which tell the
classes apart. A candidate that only some classes gain from becomes a variant without a search.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engine.split import class_preferences, class_sizes, specialise
from engine.split.class_preferences import ClassGroup
from engine.split.languages import conditions
from engine.split.languages.conditions import Condition, Point
from engine.split.languages.detect import language_of
from engine.split.specialise import changed_names, merge
from engine.split.unused_variants import without_unused
from engine.task import SplitRequest, Task
from engine.workers.knob_search import search_classes
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.benchmark.spec import table_rules
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.space import knobs
from harness.search.space.knobs import config_words
from harness.search.trials.trials import LoopResult
from harness.tasks.target import Target

MARGIN = 0.02
"""Gain over the common best from which a class is worth a kernel of its own."""


def work(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
    """Split the source where config classes clearly need different kernels."""
    language_of(bench.target)
    if task.split is not None:
        tick("splitting", f"candidate {task.split.candidate}", None)
        return _split_candidate_off(task.split, bench)
    result = search_classes(task, bench, tick, cancel)
    if result is None:
        return Report(ok=False, summary="stopped")
    if cancel.is_set():
        return Report(ok=False, summary="stopped before classes were compared",
                      trials=result.trials)
    path = Path(bench.worktree) / bench.target.source
    tick("splitting", bench.target.source, None)
    try:
        text, groups = split_by_knobs(knobs.read(path), result, bench.target)
    except Refused as refused:
        return Report(ok=False, summary=f"not split: {refused}", trials=result.trials)
    if not groups:
        return Report(ok=True, trials=result.trials, summary=(
            f"{len(result.trials)} of {result.space_size} configurations screened: no config "
            f"class gains more than {MARGIN:.0%} from its own knobs"
            + "".join(f"; {plain(note, 200)}" for note in result.notes)))
    path.write_bytes(text.encode())
    return Report(ok=True, summary=_summary(groups), hypothesis=_hypothesis(groups),
                  trials=result.trials)


def split_by_knobs(source: str, result: LoopResult, target: Target | CommandTarget,
                   ) -> tuple[str, tuple[ClassGroup, ...]]:
    """Split by each class's best knobs; return source and groups. Raises Refused, InputError."""
    language = language_of(target)
    declared = knobs.find(source, language=language.knobs)
    parameter_of = class_sizes.dispatch_parameters(
        language, source, target, class_preferences.numeric_columns(result),
        [knob.name for knob in declared])
    if not parameter_of:
        raise Refused("no exported function takes a column of the benchmark as an integer",
                      fix="give a parameter the name of its column, or add the comment "
                          "kopt: column NAME is PARAMETER")
    first = table_rules.columns(target.configs) if isinstance(target, CommandTarget) else ()
    result = class_preferences.against_existing(result, MARGIN)
    groups = class_preferences.groups(result, list(parameter_of), MARGIN, first=first)
    start = knobs.current(declared)
    _, blocks = language.read(source)
    if groups and not blocks and class_preferences.is_common_best_better(result, groups, MARGIN):
        start = {**start, **result.best}
        source = knobs.apply(source, start, language=language.knobs)
    text = specialise.split(source, groups, parameter_of, start=start, language=language)
    rows = [{parameter_of[column]: value for column, value in point.items()}
            for config_class in result.classes
            for point in class_preferences.points_of(result.columns, config_class, parameter_of)]
    return without_unused(text, rows, language), groups


def split_by_candidate(old: str, new: str, request: SplitRequest, target: Target | CommandTarget,
              ) -> tuple[str, Condition]:
    """Return the old source with the candidate's kernel for the classes that it speeds up, and the
    condition under which it runs; classes that it neither speeds up nor slows down may be included.

    Raises Refused where no condition separates the classes, InputError for an unreadable source.
    """
    points_of = {name: class_sizes.points(name, target)
                 for name in (*request.faster, *request.slower, *request.others)}
    language = language_of(target)
    names = conditions.shared([point for points in points_of.values() for point in points])
    tuned = changed_names(old, new, language) if isinstance(target, CommandTarget) else ()
    parameter_of = class_sizes.dispatch_parameters(language, old, target, names, tuned)
    columns = [parameter_of[name] for name in names if name in parameter_of]
    inside = _by_parameter(points_of, request.faster, parameter_of)
    for others in ((*request.slower, *request.others), request.slower):
        outside = _by_parameter(points_of, others, parameter_of)
        if (condition := conditions.find(inside, outside, columns)) is not None:
            text = merge(old, new, condition, inside, request.faster, language)
            if all(len(points) == 1 for points in points_of.values()):  # else a class is a range
                text = without_unused(text, _by_parameter(points_of, points_of, parameter_of),
                                      language)
            return text, condition
    raise Refused(f"no condition on a parameter separates "
                  f"{plain(', '.join(request.faster), 120)} from "
                  f"{plain(', '.join(request.slower), 120)}",
                  fix="add an integer parameter named like a column that differs between these "
                      "classes")


def _split_candidate_off(request: SplitRequest, bench: WorkerBench) -> Report:
    path = Path(bench.worktree) / bench.target.source
    old, new = knobs.read(path), knobs.read(Path(request.tree) / bench.target.source)
    try:
        text, condition = split_by_candidate(old, new, request, bench.target)
    except Refused as refused:
        return Report(ok=False, summary=f"not split: {refused}")
    path.write_bytes(text.encode())
    return Report(ok=True, summary=f"candidate {request.candidate} where {condition}, the old "
                                   "kernel elsewhere")


def _by_parameter(points_of: Mapping[str, Sequence[Point]], names: Iterable[str],
                  parameter_of: Mapping[str, str]) -> list[Point]:
    """Return the points of some classes, by parameters instead of columns."""
    return [{parameter_of[column]: value for column, value in point.items()
             if column in parameter_of} for name in names for point in points_of[name]]


def _summary(groups: Sequence[ClassGroup]) -> str:
    """Return which classes take which knobs, and their gain over the common best."""
    return "; ".join(
        f"{len(group.classes)} class{'es' * (len(group.classes) > 1)} with {group.condition}: "
        f"{config_words(group.config)} "
        f"(≥{math.expm1(group.gain):.1%} faster than with the common best)" for group in groups)


def _hypothesis(groups: Sequence[ClassGroup]) -> str:
    return "a specialised kernel where " + " and where ".join(
        f"{group.condition} ({plain(', '.join(group.classes), 120)}): "
        f"{config_words(group.config)}"
        for group in groups)
