"""Find the ranges of integer inputs that nothing declares: from 0 to below a size of the task."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from engine.campaign.task_notes import undeclared
from engine.discovery.new.draft_kernel import ZERO_ONE
from harness.errors import InputError
from harness.formats.expression import names_of, whole
from harness.tasks.target import Arg, Target

MOST_SIZES = 4
"""The most sizes that are tried for one argument."""
BOUNDS = "write other bounds as low and high in the task"
_FLAG = re.compile(r"(?:.*_)?(?:masks?|flags?|valid|keep|active|enabled)_?", re.IGNORECASE)
"""Names of inputs whose values are 0 and 1."""
_PLUS_ONE = re.compile(r"\+\s*1$")
_BITS = {"int8": 7, "uint8": 8, "int16": 15, "uint16": 16}
"""Bits of the small dtypes that hold a value of 0 or more."""


def settle(task: Target, accepts: Callable[[Target], bool]) -> Target:
    """Return the task with ranges of its integer inputs that `accepts` allows."""
    for name in undeclared(task):
        for choice in choices(task, next(arg for arg in task.args if arg.name == name)):
            trial = replace(task, args=tuple(
                choice if arg.name == name else arg for arg in task.args))
            if accepts(trial):
                task = trial
                break
    return task


def choices(task: Target, arg: Arg) -> Iterator[Arg]:
    """Yield an integer input with ranges to try, the likeliest first.

    One whose only dimension ends in `+ 1`, as row pointers have, is first tried as offsets. A mask
    or flag stays 0 or 1: a wider range would be accepted too, and hardly any value would be 0.
    """
    if _FLAG.fullmatch(arg.name):
        yield replace(arg, low=0, high=2)
        return
    above = sizes(task, arg)
    if arg.shape and len(arg.shape) == 1 and _PLUS_ONE.search(str(arg.shape[0])):
        yield from (replace(arg, low=0, structure="offsets", high=size + 1 if isinstance(
            size, int) else f"{size} + 1") for size in above)
    yield from (replace(arg, low=0, high=size) for size in above)


def sizes(task: Target, arg: Arg) -> list[int | str]:
    """Return the sizes below which the values of an integer input may lie.

    Those that are no dimensions of its own come first, the largest first.
    """
    own = {name for dim in arg.shape or () for name in names_of(str(dim))}
    own_numbers = {dim for dim in arg.shape or () if isinstance(dim, int)}
    names: list[int | str] = [name for name in task.classes[0].shape
                              if all(name in each.shape for each in task.classes)]
    numbers = {dim for other in task.args for dim in other.shape or ()
               if isinstance(dim, int)}
    most = 1 << _BITS.get(arg.dtype, 31)
    fitting: list[tuple[bool, int, int | str]] = []
    for size in (*names, *sorted(numbers)):
        try:
            values = [whole(size, each.shape) for each in task.classes]
        except InputError:
            continue
        if min(values) > 1 and 2 < max(values) <= most:
            fitting.append((size in own or size in own_numbers, -max(values), size))
    return [size for *_, size in sorted(fitting, key=lambda entry: entry[:2])][:MOST_SIZES]


def describe(before: Target, after: Target) -> Iterator[str]:
    """Yield a line on each input whose range was sought."""
    for name in undeclared(before):
        arg = next(arg for arg in after.args if arg.name == name)
        drawn = "drawn as offsets, ascending from 0" if arg.structure else "drawn from 0"
        yield f"{name}: {ZERO_ONE}" if arg.high is None else \
            f"{name}: drawn from 0 and 1, by its name; {BOUNDS}" if _FLAG.fullmatch(name) else \
            f"{name}: {drawn} to below {arg.high} (a size that the reference and the kernel " \
            f"accept); {BOUNDS}"
