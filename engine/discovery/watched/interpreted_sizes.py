"""Gives the config classes of a drafted task smaller shapes for Triton's interpreter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from harness.formats.expression import evaluate_expression, names_of
from harness.tasks.target import Arg, ConfigClass, Target

MOST_VALUES = 65_536
"""Values in the tensors of a class that the interpreter, which runs one program after another,
checks within seconds."""
LEAST_SIZE = 16


def with_smaller_shapes(target: Target) -> Target:
    """Return the target; its classes get an `interpret_shape` where they have too many values.

    The largest sizes are halved: an odd one stays odd, and a multiple of a power of two stays one
    of a smaller power.
    """
    return replace(target, classes=tuple(
        entry if entry.data else replace(entry, interpret_shape=_smaller(target.args, entry))
        for entry in target.classes))


def _smaller(args: Sequence[Arg], entry: ConfigClass) -> dict[str, int] | None:
    shapes = [arg.shape for arg in args if arg.shape is not None]
    names = {name for shape in shapes for size in shape if isinstance(size, str)
             for name in names_of(size)}
    sizes = dict(entry.shape)
    while sum(math.prod(int(evaluate_expression(size, sizes)) for size in shape)
              for shape in shapes) > MOST_VALUES:
        largest = max((name for name in sizes if name in names), key=sizes.__getitem__, default="")
        if not largest or sizes[largest] <= LEAST_SIZE:
            break
        sizes[largest] = (sizes[largest] + 1) // 2
    return sizes if sizes != entry.shape else None
