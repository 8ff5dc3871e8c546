"""Where in a tensor from outside the values of rows lie."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.rewrites.fused_lines import FusedCode, SizeOf, broadcast_blocks, indexed
from engine.rewrites.module_graph import Ref


@dataclass(frozen=True, kw_only=True)
class RowPlace:
    """Expressions for the columns of a tile: their index in a row of `columns`, and in a tensor."""

    name: str
    column: str
    columns: str
    at: str
    inside: str


def operand_index(own: Sequence[int], shape: Sequence[int], first: int, ref: Ref, code: FusedCode,
                  place: RowPlace | None) -> tuple[str, str]:
    """Return the index of a tensor of shape `own` for values of `shape`, and the mask.

    The index is "" for a single value. `first` is the first dimension within a row; without a
    place the values are row values.
    """
    missing = len(shape) - len(own)
    padded = (*(1,) * missing, *own)
    if all(length == 1 for length in padded):
        return "", ""
    rows = _index(broadcast_blocks(padded, shape, range(min(first, len(shape)))), ref, missing,
                  code, "row")
    own_columns = [axis for axis in range(first, len(shape)) if padded[axis] > 1]
    if place is None or not own_columns:
        return rows or "0", "known"
    if tuple(padded[first:]) == tuple(shape[first:]):
        if list(padded[:first]) == list(shape[:first]):
            return place.at, place.inside
        columns, stride = place.column, place.columns
    else:
        columns = _index(broadcast_blocks(padded, shape, range(first, len(shape))), ref, missing,
                         code, place.column)
        stride = code.name_of(SizeOf(ref, tuple(axis - missing for axis in own_columns)))
    return (f"({rows}) * {stride} + {columns}" if rows else columns), place.inside


def _index(blocks: list[tuple[bool, list[int]]], ref: Ref, missing: int, code: FusedCode,
           variable: str) -> str:
    """Return an index by some of the dimensions, "" if the tensor has none of them."""
    if not any(is_present for is_present, _ in blocks):
        return ""
    operand = indexed(blocks, ref, missing)
    names = [code.name_of(size) for size in operand.sizes]
    return re.sub(r"\bat\b", variable, operand.index.format(*names))
