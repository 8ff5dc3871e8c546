"""The rows that calls share, and what each call does with them.

All values of a region belong to the rows of one shape: `full` ones have it; a `part` has half of
its last dimension, a `double` one is cut into two full ones; a `row` value is one for each row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from engine.rewrites.fused_lines import FLOATS
from engine.rewrites.module_graph import ModuleGraph, Node, Ref, SourceCode
from engine.rewrites.rows.row_ops import Pick, RowOp, op_of, pick_of
from engine.rewrites.template_catalog import spellings

GETITEM, WHOLE = "torch.Tensor.__getitem__", "slice(None, None, None)"
SAME_VALUES = frozenset(f"torch.{name}" for name in (
    "squeeze", "unsqueeze", "view", "reshape", "flatten")) | {
    "torch.Tensor.view", "torch.Tensor.reshape", GETITEM}
"""Functions that give a row's value another shape."""
VALUES_FIRST = frozenset(("torch.max", "torch.min"))
"""Functions that return the places of their values too."""
CHANNEL_NORM = "torch.nn.functional.batch_norm"
CASTS = ("to", "type", "float", "half", "bfloat16", "contiguous")

Extent = Literal["full", "part", "double", "row"]


@dataclass(frozen=True)
class RowSpace:
    """The shape of the full values; from dimension `first` on a row's own dimensions follow."""

    shape: tuple[int, ...]
    first: int

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:self.first])

    @property
    def kept(self) -> tuple[int, ...]:
        """The shape of row values that broadcast to the full shape."""
        return self.shape[:self.first] + (1,) * (len(self.shape) - self.first)

    def extent(self, shape: tuple[int, ...]) -> Extent | None:
        """Return how a value of this shape belongs to the rows; None if it does not."""
        if shape == self.shape:
            return "full"
        if shape[:self.first] == self.shape[:self.first] and set(shape[self.first:]) <= {1}:
            return "row"
        if self.first == len(self.shape) - 1 == len(shape) - 1 and shape[:-1] == self.shape[:-1]:
            if shape[-1] * 2 == self.shape[-1]:
                return "part"
            if shape[-1] == self.shape[-1] * 2:
                return "double"
        return None

    def accepts(self, shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
        """Return whether a value of the region may be an operand of a call with this result."""
        return shape == result or (shape == self.kept and self.extent(result) != "row")


def space_at(graph: ModuleGraph, node: Node) -> RowSpace | None:
    """Return the rows that a node reduces, cuts into halves or joins; None if it does not."""
    if (reduction := op_at(graph, node)) is not None:
        return RowSpace(graph.form(node.bound["input"]).shape, reduction[1][0])
    if is_cut(graph, node) or is_cat(graph, node):
        return RowSpace(node.form.shape, node.form.dim() - 1)
    return None


def op_at(graph: ModuleGraph, node: Node) -> tuple[RowOp, tuple[int, ...]] | None:
    """Return the op of a node that reduces the last dimensions of a float tensor, with these."""
    source = node.bound.get("input")
    if not isinstance(source, Ref) or node.written is not None:
        return None
    if len(node.outputs) > 1 and (VALUES_FIRST.isdisjoint(spellings(node.target))
                                  or graph.items_used(node.name) - {0}):
        return None
    form = graph.form(source)
    if form.dtype not in FLOATS or node.form.dtype not in FLOATS or form.dim() < 2:
        return None
    try:
        reduction = op_of(node.target, node.bound, form)
    except (KeyError, TypeError):  # the call has other arguments
        return None
    if reduction is None or reduction[1][0] == 0 or \
            reduction[1] != tuple(range(reduction[1][0], form.dim())):
        return None
    return reduction


def pick_at(graph: ModuleGraph, node: Node) -> Pick | None:
    """Return which column a node takes of each row of a float tensor, None if of none."""
    source = node.bound.get("input")
    if not isinstance(source, Ref) or graph.form(source).dtype not in FLOATS:
        return None
    try:
        return pick_of(node.target, node.bound, graph.form(source))
    except (KeyError, TypeError):
        return None


def cut_of(graph: ModuleGraph, ref: Ref) -> tuple[Ref, int] | None:
    """Return the tensor of which a value is the first (0) or second (1) half; None if of none."""
    node = graph.node(ref.name) if ref.kind == "node" else None
    source = node.bound.get("input") if node is not None else None
    if node is None or not isinstance(source, Ref) or graph.form(source).dtype not in FLOATS:
        return None
    form = graph.form(source)
    if not form.shape or form.shape[-1] % 2 or \
            {each.shape[-1:] for each in node.outputs} != {(form.shape[-1] // 2,)}:
        return None
    if not {"torch.chunk", "torch.split"}.isdisjoint(spellings(node.target)):
        is_last = node.bound["dim"] in (-1, form.dim() - 1) and len(node.outputs) == 2
        return (source, ref.item or 0) if is_last else None
    key = node.bound.get("key")
    if node.target != GETITEM or not isinstance(key, tuple) or not all(
            isinstance(each, SourceCode) for each in key):
        return None
    *before, last = (each.text for each in key)
    half = form.shape[-1] // 2
    ends = {f"slice(None, {half}, None)": 0, f"slice({half}, None, None)": 1,
            f"slice({half}, {2 * half}, None)": 1}
    is_whole = before == ["..."] or before == [WHOLE] * (form.dim() - 1)
    return (source, ends[last]) if is_whole and last in ends else None


def is_cut(graph: ModuleGraph, node: Node) -> bool:
    """Return whether a node cuts the last dimension into halves, or takes one of them."""
    return cut_of(graph, Ref("node", node.name)) is not None


def is_cat(graph: ModuleGraph, node: Node) -> bool:
    """Return whether a node joins two tensors of one shape along the last dimension."""
    parts = node.bound.get("tensors")
    return node.target in ("torch.cat", "torch.concat") and isinstance(parts, list | tuple) \
        and len(parts) == 2 and all(isinstance(each, Ref) for each in parts) \
        and node.bound["dim"] in (-1, node.form.dim() - 1) \
        and len({graph.form(each).shape for each in parts}) == 1


def is_same_value(graph: ModuleGraph, node: Node, space: RowSpace) -> bool:
    """Return whether a node gives values another dtype, or row values another shape."""
    source = node.bound.get("input", node.args[0] if node.args else None)
    if not isinstance(source, Ref) or node.reads != (source,):
        return False
    form = graph.form(source)
    if form.dtype not in FLOATS or node.form.dtype not in FLOATS or len(node.outputs) != 1:
        return False
    if node.target.rpartition(".")[2] in CASTS:
        return form.shape == node.form.shape
    key = node.args[1] if node.target == GETITEM else None
    if any(isinstance(part, list) for part in (key if isinstance(key, tuple) else (key,))):
        return False  # it may change the order
    return not SAME_VALUES.isdisjoint(spellings(node.target)) and \
        space.extent(form.shape) == space.extent(node.form.shape) == "row"


def is_channel_norm(graph: ModuleGraph, node: Node) -> bool:
    """Return whether a node normalises channels by stored statistics: batch norm in eval mode."""
    named = node.bound
    return node.target == CHANNEL_NORM and not named["training"] and isinstance(
        named["input"], Ref) and all(
        isinstance(named[name], Ref) and graph.form(named[name]).dtype in FLOATS
        for name in ("running_mean", "running_var")) and node.form.dim() > 1
