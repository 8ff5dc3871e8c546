"""The sizes that distinguish a target's config classes, and the parameters that hold them."""

from __future__ import annotations

from collections.abc import Iterable

from engine.split import class_preferences
from engine.split.languages import conditions
from engine.split.languages.conditions import Point
from engine.split.languages.language import Language
from harness.benchmark.spec.command_target import CommandTarget
from harness.tasks.target import ConfigClass, Target


def points(name: str, target: Target | CommandTarget) -> tuple[Point, ...]:
    """Return the sizes of a config class; for a benchmark, the corners that its name gives."""
    if isinstance(target, CommandTarget):
        return conditions.corners(name)
    return (sizes(target, target.config_class(name)),)


def sizes(target: Target, config_class: ConfigClass) -> dict[str, int]:
    """Return a class's dimensions, and the integers that the kernel is called with."""
    scalars = {tensor.name: tensor.value for tensor in target.tensors(config_class)
               if tensor.role == "scalar"}
    return {**config_class.shape, **{name: value for name, value in scalars.items()
                                     if isinstance(value, int)}}


def dispatch_parameters(language: Language, source: str, target: Target | CommandTarget,
                        names: Iterable[str], tuned: Iterable[str]) -> dict[str, str]:
    """Return NAME -> expression for the sizes that a dispatcher of the `tuned` names can test."""
    if isinstance(target, CommandTarget):
        return class_preferences.dispatch_columns(language, source, names, tuned)
    known = entry_parameters(language, source, target)
    return {name: known[name] for name in names if name in known}


def entry_parameters(language: Language, source: str, target: Target) -> dict[str, str]:
    """Return the expression for each size of a task: an argument or, in Python, `x.shape[1]`.

    The task's arguments are matched with the entry's by position.
    """
    _, blocks = language.read(source)
    names = {target.entry, *(block.default for block in blocks if block.entry == target.entry)}
    entries = class_preferences.dispatch_entries(language, source)
    entry = next((entries[name] for name in entries if name in names), None)
    if entry is None or len(entry.arguments) != len(target.args):
        return {}
    expression_of: dict[str, str] = {}
    for arg, name in zip(target.args, entry.arguments, strict=True):
        dimensions = {size: f"{name}.shape[{place}]" for place, size in enumerate(arg.shape or ())
                      if isinstance(size, str) and size.isidentifier()}
        for size, word in ({arg.name: name} if arg.kind == "scalar" else dimensions).items():
            if language.takes(entry, [word]):
                expression_of.setdefault(size, word)
    return expression_of
