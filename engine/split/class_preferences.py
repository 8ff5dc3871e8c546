"""Which config classes gain from knobs of their own, and which columns a dispatcher can test."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from engine.split.languages import conditions
from engine.split.languages.conditions import Condition, Point
from engine.split.languages.language import Language
from engine.split.languages.syntax import EntryFunction, dependents
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.trials.trials import ClassGain, ConfigRows, Contender, LoopResult
from harness.verdict import Config

MOST_GROUPS = 3
"""The largest number of specialised variants that one split adds."""
_ALIAS = re.compile(r"(?://|/\*|#)\s*kopt:\s*column\s+(\S+)\s+is\s+(\S+)")


class ClassGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Classes that take the same specialised variant, and the condition that selects them."""

    config: Config
    classes: tuple[str, ...]
    points: tuple[Point, ...]
    gain: float
    """The smallest gain of its classes over the common best, as ln(common best / variant)."""
    condition: Condition


def points_of(columns: Sequence[str], rows: ConfigRows, usable: Iterable[str]) -> tuple[Point, ...]:
    """Return a class's rows, restricted to the columns that a dispatcher can test."""
    places = {column: columns.index(column) for column in usable}
    return tuple({column: whole_number(cells[place]) or 0 for column, place in places.items()}
                 for cells in rows.cells)


def whole_number(cell: str) -> int | None:
    """Return a cell's whole number, None for anything else."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else None


def numeric_columns(result: LoopResult) -> tuple[str, ...]:
    """Return the columns that hold a whole number in every row."""
    rows = [row for config_class in result.classes for row in config_class.cells]
    return tuple(column for place, column in enumerate(result.columns)
                 if all(whole_number(row[place]) is not None for row in rows))


def groups(result: LoopResult, usable: Sequence[str], margin: float, *,
           first: Sequence[str] = ()) -> tuple[ClassGroup, ...]:
    """Return the groups of classes that need a variant, none where the common best serves all.

    A class prefers a configuration that beats the common best and the existing kernel by the
    margin, beyond the noise; other classes that it serves as well join the group. A condition
    tests only the columns named `first`, which define the classes, if these suffice. Raises
    Refused if no condition selects any group.
    """
    least = math.log1p(margin)
    preferences = _preferences(result, least)
    points = {rows.name: points_of(result.columns, rows, usable) for rows in result.classes}
    chosen_groups: list[ClassGroup] = []
    remaining = dict(preferences)
    while remaining and len(chosen_groups) < MOST_GROUPS:
        contender = max({id(chosen): chosen for chosen, _ in remaining.values()}.values(),
                        key=lambda chosen: math.fsum(gain for name in remaining if (
                            gain := _gain(chosen, name)) > least))
        served = [name for name in remaining
                  if _serves(contender, name, remaining[name][1], least)]
        group = None
        for columns in ([column for column in usable if column in first], list(usable)):
            group = group or _group(contender, served, preferences, result, points, columns, least)
        if group is not None:
            chosen_groups.append(group)
        served = list(group.classes) if group is not None else served
        remaining = {name: preference for name, preference in remaining.items()
                     if name not in served}
    if preferences and not chosen_groups:
        names = ", ".join(plain(name, 60) for name in list(preferences)[:3])
        raise Refused(
            f"{names} would be faster with their own knobs, but no condition on a parameter "
            "distinguishes them",
            fix="add an integer parameter named like a column that differs between these classes")
    return tuple(chosen_groups)


def _preferences(result: LoopResult, least: float) -> dict[str, tuple[Contender, ClassGain]]:
    """Return each class's preferred configuration and its gain, where the preference is clear."""
    preferences = {}
    for rows in result.classes:
        config, preferred = result.best_in(rows.name)
        if preferred.sure > 0 and preferred.gain > least \
                and preferred.gain - _default_gain(result, rows.name) > least:
            contender = next(contender for contender in result.contenders
                             if contender.config == config)
            preferences[rows.name] = contender, preferred
    return preferences


def _default_gain(result: LoopResult, name: str) -> float:
    """Return the existing kernel's gain over the common best in a class; 0 if they are the same."""
    existing = _existing(result)
    return 0.0 if existing is None else _gain(existing, name)


def _existing(result: LoopResult) -> Contender | None:
    """Return the existing kernel among the contenders, None if it is the common best."""
    first = _existing_config(result)
    return next((each for each in result.contenders if each.config == first), None)


def _existing_config(result: LoopResult) -> Config:
    return result.trials[0].config if result.trials else result.best


def against_existing(result: LoopResult, margin: float) -> LoopResult:
    """Return the result with the existing kernel as the common best, if a class prefers it.

    Where the existing kernel is faster in a class than the common best, by the margin and beyond
    the noise, it stays the default. The common best then is a contender like the others.
    """
    existing, least = _existing(result), math.log1p(margin)
    if existing is None or not any(
            gain.gain > least and gain.sure > 0 for gain in existing.gains):
        return result
    best = Contender(config=result.best, gains=tuple(
        ClassGain(config_class=gain.config_class, gain=0.0, stderr=0.0, pairs=gain.pairs)
        for gain in existing.gains))
    others = (best, *(each for each in result.contenders if each is not existing))
    return replace(result, best=_existing_config(result), contenders=tuple(
        Contender(config=contender.config, gains=tuple(
            _minus(gain, own) for gain in contender.gains
            if (own := existing.gain_in(gain.config_class)) is not None))
        for contender in others))


def _minus(gain: ClassGain, other: ClassGain) -> ClassGain:
    stderr = None if gain.stderr is None or other.stderr is None \
        else math.hypot(gain.stderr, other.stderr)
    return replace(gain, gain=gain.gain - other.gain, stderr=stderr,
                   pairs=min(gain.pairs, other.pairs))


def is_common_best_better(result: LoopResult, groups: Sequence[ClassGroup],
                          margin: float) -> bool:
    """Return whether the common best should replace the existing kernel as the default.

    That is so if it is faster by the margin in every class that takes the default.
    """
    served = {name for group in groups for name in group.classes}
    rest = [rows.name for rows in result.classes if rows.name not in served]
    return all(_default_gain(result, name) < -math.log1p(margin) for name in rest) and bool(rest)


def _gain(contender: Contender, name: str) -> float:
    gain = contender.gain_in(name)
    return -math.inf if gain is None else gain.gain


def _serves(contender: Contender, name: str, preferred: ClassGain, least: float) -> bool:
    """Return whether a contender surely gains in a class, about as much as the preferred one.

    They may differ by `least` or by the noise of both.
    """
    gain = contender.gain_in(name)
    if gain is None or gain.sure <= 0 or gain.gain <= least:
        return False
    noise = 2 * math.hypot(gain.stderr or 0.0, preferred.stderr or 0.0)
    return gain.gain >= preferred.gain - max(least, noise)


def _group(contender: Contender, served: list[str], preferences: Mapping[str, object],
           result: LoopResult, points: Mapping[str, tuple[Point, ...]], columns: Sequence[str],
           least: float) -> ClassGroup | None:
    """Return the largest group that a condition separates from the classes that would lose."""
    def loses(name: str) -> bool:
        gain = _gain(contender, name)
        return name in preferences or gain < -least \
            or gain <= _default_gain(result, name) + least

    others = [name for name in points if name not in served]
    outside = [point for name in list(filter(loses, others)) or others for point in points[name]]
    chosen = sorted(served, key=lambda name: -_gain(contender, name))
    while chosen:
        inside = [point for name in chosen for point in points[name]]
        condition = conditions.find(inside, outside, columns)
        if condition is not None:
            selected = tuple(name for name in points
                             if all(condition.holds(point) for point in points[name]))
            return ClassGroup(config=contender.config, classes=selected, condition=condition,
                              points=tuple(inside),
                              gain=min(_gain(contender, name) for name in chosen))
        chosen.pop()
    return None


def dispatch_entries(language: Language, source: str) -> dict[str, EntryFunction]:
    """Return the functions that a dispatcher can call, by name, without variants."""
    text, blocks = language.read(source)
    variants = {branch.kernel for block in blocks for branch in block.branches}
    return {item.function: item.entry for item in language.items(text)
            if item.entry is not None and not item.static and item.function not in variants}


def dispatch_columns(language: Language, source: str, names: Iterable[str],
                     tuned: Iterable[str]) -> dict[str, str]:
    """Return the columns that a dispatcher can test, with the argument that holds each.

    An argument has the name of its column, or a comment `kopt: column NAME is ARGUMENT` maps it.
    Every entry that depends on the `tuned` names has these arguments; if the entries have none in
    common, they are those of the entry with most arguments.
    """
    text, _ = language.read(source)
    affected = {item.function for item in dependents(language.items(text), tuned)}
    candidates = [entry for name, entry in dispatch_entries(language, source).items()
                  if name in affected]
    if not candidates:
        return {}
    largest = max(candidates, key=lambda entry: len(entry.columns))
    aliases = {match[1]: match[2] for match in _ALIAS.finditer(source)}
    folded = {_folded(name): name for name in largest.columns}
    argument_of = {name: aliases.get(name) or folded.get(_folded(name), "") for name in names}
    argument_of = {name: argument for name, argument in argument_of.items()
                   if argument and language.takes(largest, [argument])}
    shared = {name: argument for name, argument in argument_of.items()
              if all(language.takes(entry, [argument]) for entry in candidates)}
    return shared or argument_of


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")
