"""Finds calls that one kernel can compute row by row: reductions and what is between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.rewrites.fused_lines import FLOATS, LOADABLE
from engine.rewrites.module_graph import ModuleGraph, Node, Ref, TensorForm
from engine.rewrites.rows.row_space import (
    RowSpace,
    is_cat,
    is_channel_norm,
    is_cut,
    is_same_value,
    op_at,
    pick_at,
    space_at,
)
from engine.rewrites.template_catalog import Catalog

LEAST_ROWS, LEAST_COLUMNS = 128, 16
"""A kernel with a program a row leaves a device idle with fewer rows."""
MOST_NODES = 64
"""A kernel of more calls takes long to compile: each pass over a long row repeats them."""


@dataclass(frozen=True, kw_only=True)
class RowRegion:
    """Calls that one kernel computes. `input` has the full or the double shape."""

    space: RowSpace
    input: Ref
    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @property
    def result(self) -> Node:
        return self.nodes[-1]

    @property
    def more(self) -> tuple[Node, ...]:
        """The outputs that the call returns after its result."""
        return self.outputs[:-1]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes)

    def has_separate_columns(self, graph: ModuleGraph) -> bool:
        """Return whether no call needs more of a row than one column, or the two of its halves."""
        return not any(op_at(graph, node) or pick_at(graph, node) for node in self.nodes) and \
            all(self.space.extent(node.form.shape) != "row" for node in self.outputs)

    def signature(self, graph: ModuleGraph) -> tuple[object, ...]:
        """Return a key that is equal for regions with equal calls on tensors of equal forms."""
        places = {node.name: place for place, node in enumerate(self.nodes)}
        outputs = {node.name for node in self.outputs}
        return tuple((node.target, node.outputs, node.name in outputs, tuple(
            (places.get(ref.name), ref.item, graph.form(ref)) for ref in node.reads))
            for node in self.nodes)


def find(graph: ModuleGraph, known: Catalog, live: set[str]) -> list[RowRegion]:
    """Return regions that share no node, around reductions and then around cuts of rows."""
    regions: list[RowRegion] = []
    taken: set[str] = set()
    free = live - graph.unsteady
    for node in sorted(graph.nodes, key=lambda each: (
            op_at(graph, each) is None, not is_cat(graph, each))):
        if node.name not in free or node.name in taken:
            continue
        space = space_at(graph, node)
        if space is None or space.rows < LEAST_ROWS or \
                math.prod(space.shape) < LEAST_COLUMNS * space.rows:
            continue
        region = _Finder(graph, known, free - taken, space).around(node)
        if region is not None:
            regions.append(region)
            taken |= region.names
    return regions


class _Finder:
    def __init__(self, graph: ModuleGraph, known: Catalog, free: set[str],
                 space: RowSpace) -> None:
        self.graph, self.known, self.free, self.space = graph, known, free, space
        self.users: Mapping[str, set[str]] = {
            node.name: {user.name for user in graph.users(node.name)} for node in graph.nodes}
        self.returned = graph.returned()

    def around(self, anchor: Node) -> RowRegion | None:
        """Return the largest region with the anchor; None if no other call can be part of it."""
        inside = set(sorted(self._connected(anchor), key=lambda name: abs(
            int(name[1:]) - int(anchor.name[1:])))[:MOST_NODES])
        while True:
            kept = self._scheduled(self._convex(self._typed(inside)))
            if anchor.name not in kept:
                return None
            if kept == inside:
                break
            inside = kept
        nodes = self.graph.ordered(inside)
        outputs = tuple(node for node in nodes if self._is_seen(node, inside))
        source = self._input(nodes)
        if source is None or len(nodes) < 2 or not outputs:
            return None
        return RowRegion(space=self.space, input=source, nodes=nodes, outputs=outputs)

    def _is_seen(self, node: Node, inside: set[str]) -> bool:
        return node.name in self.returned or bool(self.users[node.name] - inside)

    def _fits(self, node: Node) -> bool:
        """Return whether a node may be part of a region over these rows."""
        if node.name not in self.free or node.written is not None:
            return False
        reduction = op_at(self.graph, node)
        if reduction is not None:
            return self._is_full(node) and reduction[1][0] == self.space.first
        if (pick := pick_at(self.graph, node)) is not None:
            return self._is_full(node) and self.space.first == len(self.space.shape) - 1 and (
                pick.index is None or self.space.extent(
                    self.graph.form(pick.index).shape) == "row")
        extent = self.space.extent(node.form.shape)
        if extent is None or any(each.dtype not in FLOATS for each in node.outputs):
            return False
        if is_cat(self.graph, node):
            return extent == "full"
        if is_cut(self.graph, node):
            return extent in ("full", "part")
        if is_channel_norm(self.graph, node):
            return extent == "full"
        return is_same_value(self.graph, node, self.space) or self._is_elementwise(node)

    def _is_elementwise(self, node: Node) -> bool:
        form = self.known.form(node)
        if form is None or len(node.outputs) != 1 or not isinstance(node.bound.get("input"), Ref):
            return False
        arguments = form[1]
        if arguments.get("alpha", 1) != 1 or arguments.get("rounding_mode") is not None:
            return False
        return all(self.graph.form(ref).dtype in LOADABLE and _broadcasts(
            self.graph.form(ref).shape, node.form.shape) for ref in node.reads)

    def _is_full(self, node: Node) -> bool:
        form = self.graph.form(node.bound["input"])
        return form.shape == self.space.shape

    def _connected(self, anchor: Node) -> set[str]:
        reached, waiting = {anchor.name}, [anchor]
        while waiting:
            node = waiting.pop()
            around = {ref.name for ref in node.reads if ref.kind == "node"} | self.users[node.name]
            around |= {other.name for ref in node.reads if self._is_shared(ref)
                       for other in self.graph.readers[ref]}
            for name in around - reached:
                other = self.graph.node(name)
                if self._fits(other):
                    reached.add(name)
                    waiting.append(other)
        return reached

    def _is_shared(self, ref: Ref) -> bool:
        """Return whether calls that read this tensor should share one read of it."""
        form = self.graph.form(ref)
        return form.dtype in FLOATS and self.space.extent(form.shape) in ("full", "double")

    def _typed(self, inside: set[str]) -> set[str]:
        """Drop nodes that read a value of the region in a way that the kernel does not compute."""
        kept = set(inside)
        for node in self.graph.ordered(inside):
            if not all(self._reads_well(node, ref) for ref in node.reads
                       if ref.kind == "node" and ref.name in kept):
                kept.discard(node.name)
        return {name for name in kept if not (
            is_cut(self.graph, self.graph.node(name))
            and self._is_seen(self.graph.node(name), kept))}

    def _reads_well(self, node: Node, ref: Ref) -> bool:
        shape = self.graph.form(ref).shape
        if op_at(self.graph, node) or pick_at(self.graph, node) or \
                is_channel_norm(self.graph, node):
            return bool(ref == node.bound["input"])
        if is_cut(self.graph, node) or is_cat(self.graph, node) or self.known.form(node) is None:
            return True
        if self.space.extent(node.form.shape) == "row":
            return shape == node.form.shape
        return self.space.accepts(shape, node.form.shape)

    def _convex(self, inside: set[str]) -> set[str]:
        """Drop nodes that depend on the region through a node outside of it."""
        outside: set[str] = set()
        kept = set(inside)
        for node in self.graph.nodes:
            reads = {ref.name for ref in node.reads if ref.kind == "node"}
            if reads & outside:
                kept.discard(node.name)
            if (reads & outside or reads & kept) and node.name not in kept:
                outside.add(node.name)
        return kept

    def _scheduled(self, inside: set[str]) -> set[str]:
        """Drop nodes that come after the first node outside that needs a value of the region."""
        users = [int(user[1:]) for name in inside for user in self.users[name] - inside]
        first = min(users, default=len(self.graph.nodes))
        return {name for name in inside if int(name[1:]) < first}

    def _input(self, nodes: Iterable[Node]) -> Ref | None:
        names = {node.name for node in nodes}
        forms: list[tuple[Ref, TensorForm]] = [
            (ref, self.graph.form(ref)) for node in nodes for ref in node.reads
            if not (ref.kind == "node" and ref.name in names)]
        for extent in ("full", "double"):
            for ref, form in forms:
                if form.dtype in FLOATS and self.space.extent(form.shape) == extent:
                    return ref
        return None


def _broadcasts(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to a result without changing the result's shape."""
    return len(shape) <= len(result) and all(
        each in (1, full) for each, full in zip(reversed(shape), reversed(result), strict=False))
