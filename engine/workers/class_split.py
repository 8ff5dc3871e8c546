"""Takes a candidate for the config classes that gain by it, beside the kernel it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.split import dispatch_columns, regions
from engine.split.languages import conditions
from engine.split.languages.conditions import Condition, Point
from engine.split.languages.detect import language_of
from engine.split.merge import changed_names, merge
from engine.task import SplitRequest
from engine.workers import class_search
from engine.workers.protocol import Report, WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.space import knobs
from harness.target import Target


def divide(wanted: SplitRequest, bench: WorkerBench) -> Report:
    """Write the worktree's source with a candidate's kernel behind a dispatch; says why it cannot.
    """
    path = Path(bench.worktree) / bench.target.source
    old, new = knobs.read(path), knobs.read(Path(wanted.tree) / bench.target.source)
    try:
        text, condition = divided(old, new, wanted, bench.target)
    except Refused as refused:
        return Report(ok=False, summary=f"not split: {refused}")
    path.write_bytes(text.encode())
    told = f"candidate {wanted.candidate} where {condition}, the kernel as it was elsewhere"
    return Report(ok=True, summary=told)


def divided(old: str, new: str, wanted: SplitRequest,
            target: Target | CommandTarget) -> tuple[str, Condition]:
    """Return the source that takes a candidate's kernel for the classes it is faster in, and where.

    A class that it is as fast in may go along. Raises Refused, InputError.
    """
    places = {name: points(name, target)
              for name in (*wanted.faster, *wanted.slower, *wanted.others)}
    language = language_of(target)
    known = regions.shared([point for several in places.values() for point in several])
    parameter_of = (
        class_search.parameters(language, old, target)
        if isinstance(target, Target)
        else dispatch_columns.columns(language, old, known, changed_names(old, new, language))
    )
    usable = [name for name in known if name in parameter_of]
    inside = _some(places, wanted.faster, parameter_of)
    for apart in ((*wanted.slower, *wanted.others), wanted.slower):
        condition = conditions.find(inside, _some(places, apart, parameter_of),
                               [parameter_of[name] for name in usable])
        if condition is not None:
            return merge(old, new, condition, inside, wanted.faster, language), condition
    raise Refused(f"no condition on a parameter tells {plain(', '.join(wanted.faster), 120)} from "
                  f"{plain(', '.join(wanted.slower), 120)}",
                  fix="give the function the column that does as a whole number, and call it the "
                      "same")


def points(name: str, target: Target | CommandTarget) -> tuple[Point, ...]:
    """Return what tells a config class from others: its sizes, or what its name says."""
    if isinstance(target, CommandTarget):
        return regions.corners(name)
    return (class_search.sizes(target, target.config_class(name)),)


def _some(places: Mapping[str, Sequence[Point]], names: Sequence[str],
          parameter_of: Mapping[str, str]) -> list[Point]:
    """Return the points of some classes, by parameter."""
    return [{parameter_of[column]: value for column, value in point.items()
             if column in parameter_of} for name in names for point in places[name]]
