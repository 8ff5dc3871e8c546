"""Partitions a module's graph into regions, each one call of a template; the rest stays PyTorch.

A region is a core that a template computes, with elementwise nodes before it (prologue) and after
it (epilogue), or elementwise nodes alone. No value inside of a region is used outside of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.rewrites.fused_lines import is_elementwise, operand_of
from engine.rewrites.module_graph import ModuleGraph, Node, Ref
from engine.rewrites.pattern_match import match
from engine.rewrites.rows.row_region import RowRegion
from engine.rewrites.template_catalog import (
    POINTWISE,
    Catalog,
    Pattern,
    TargetReplacement,
    TritonTemplate,
    holds,
    values,
)

UNKNOWN = "no template covers it"


@dataclass(frozen=True, kw_only=True)
class Region:
    """Nodes that one call of a template computes, in their order; the last one is the result."""

    template: TritonTemplate
    replacement: TargetReplacement | Pattern
    input: Ref
    core: Node | None = None
    inner: tuple[Node, ...] = ()
    """What the core's expression computes before its last function."""
    bound: Mapping[str, Any] = field(default_factory=dict)
    """The values of the names in the replacement's call."""
    prologue: tuple[Node, ...] = ()
    epilogue: tuple[Node, ...] = ()
    more: tuple[Node, ...] = ()
    """The inner nodes whose values the call returns after its result."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (*self.prologue, *self.inner, *([self.core] if self.core else ()), *self.epilogue)

    @property
    def result(self) -> Node:
        return self.nodes[-1]


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The regions of a graph, and for each node that no template computes the reason."""

    regions: tuple[Region | RowRegion, ...]
    unmatched: dict[str, str] = field(default_factory=dict)


def partition(graph: ModuleGraph, known: Catalog, *, cores: bool = True,
              least_elementwise: int = 1, rows: Iterable[RowRegion] = ()) -> Partition:
    """Cut a graph into regions; without `cores` only elementwise nodes are matched.

    Chains of fewer elementwise nodes than `least_elementwise` stay calls of torch. The regions
    `rows` are taken as they are.
    """
    return _Cutter(graph, known, rows).cut(cores, least_elementwise)


class _Cutter:
    def __init__(self, graph: ModuleGraph, known: Catalog, rows: Iterable[RowRegion]) -> None:
        self.graph, self.known = graph, known
        self.rows = tuple(rows)
        self.live = live_nodes(graph)
        self.users: dict[str, set[str]] = {name: set() for name in self.live}
        for name in self.live:
            for ref in graph.node(name).reads:
                if ref.kind == "node":
                    self.users[ref.name].add(name)
        for name in graph.returned():
            self.users[name].add("returned")
        self.taken = {name for region in self.rows for name in region.names} | graph.unsteady
        self.regions: list[Region] = []
        self.reasons: dict[str, str] = {}

    def cut(self, cores: bool, least: int) -> Partition:
        ordered = [node for node in self.graph.nodes if node.name in self.live]
        for node in reversed(ordered) if cores else ():
            self._take_pattern(node)
        for node in ordered if cores else ():
            if node.name not in self.taken:
                self._take_core(node)
        for node in reversed(ordered):
            if node.name not in self.taken and self._is_elementwise(node):
                self._take_elementwise(node, least)
        self._leave_lone_calls()
        regions: list[Region | RowRegion] = [*self.regions, *self.rows]
        regions.sort(key=lambda region: int(region.result.name[1:]))
        return Partition(regions=tuple(regions), unmatched={
            node.name: self.reasons.get(node.name, UNKNOWN)
            for node in ordered if node.name not in self.taken})

    def _is_elementwise(self, node: Node) -> bool:
        return is_elementwise(self.graph, self.known, node)

    def _take_pattern(self, root: Node) -> None:
        """Make a region of a template's expression if no value inside is used outside of it."""
        for template in reversed(self.known.templates):
            for pattern in template.forms:
                matched = None if root.name in self.taken else match(
                    self.graph, root, pattern.expression)
                source = None if matched is None else main_input(pattern.call, matched.bound)
                if matched is None or source is None or \
                        self.graph.form(source).dtype not in template.dtypes or \
                        not holds(pattern.when, values(self.graph, matched.bound,
                                                       root.form.dtype)):
                    continue
                inside = {root.name, *(node.name for node in matched.inner)}
                results = self._results(root, pattern, matched.inner, matched.bound)
                if results is None or inside & self.taken or not all(
                        self.users[node.name] <= inside
                        for node in matched.inner if node not in results):
                    continue
                self.taken |= inside
                after = self._after(root, template if pattern.fuses else None, source)
                self._add(Region(template=template, replacement=pattern, core=root, input=source,
                                 inner=matched.inner, bound=matched.bound, epilogue=after,
                                 more=results))

    def _results(self, root: Node, pattern: Pattern, inner: tuple[Node, ...],
                 bound: Mapping[str, Any]) -> tuple[Node, ...] | None:
        """Return the nodes of a call's further results; None if one is used before the call."""
        results = tuple(self.graph.node(bound[name].name) for name in pattern.results)
        inside = {root.name, *(node.name for node in inner)}
        outside = {user for node in results for user in self.users[node.name]} - inside
        late = all(user == "returned" or int(user[1:]) > int(root.name[1:]) for user in outside)
        return results if late else None

    def _take_core(self, node: Node) -> None:
        for template, replacement in self.known.find(self.graph, node):
            source = main_input(replacement.call, node.bound)
            if source is None or not self.graph.form(source).numel() or \
                    not self.graph.form(source).dim():
                continue
            if (dtype := self.graph.form(source).dtype) not in template.dtypes:
                self.reasons[node.name] = f"template {template.name} is not for {dtype}"
                continue
            if node.several and not replacement.result and len(node.outputs) > 1:
                continue
            if node.several and self.graph.items_used(node.name) - {0}:
                self.reasons[node.name] = f"template {template.name} returns no indices"
                continue
            before = self._before(node, source) if "prologue" in template.fuses else ()
            if before and (leaf := self._leaf(before)) is None:
                before = ()
            after = self._after(node, template, source)
            if not (self.known.takes_lone or before or after or holds(
                    replacement.alone, values(self.graph, node.bound, node.form.dtype))):
                self.reasons[node.name] = f"template {template.name} gains nothing alone"
                continue
            region = Region(template=template, replacement=replacement, core=node,
                            input=leaf if before and leaf else source, prologue=before,
                            epilogue=after, bound=node.bound)
            self._add(region)
            return
        if why := self.known.refused(self.graph, node):
            self.reasons.setdefault(node.name, why)

    def _take_elementwise(self, node: Node, least: int) -> None:
        nodes = self._backwards(node)
        leaf = self._leaf(nodes)
        if leaf is None:
            self.reasons[node.name] = "no operand has the shape and dtype of the result"
            return
        if len(nodes) < least:
            return
        template = self.known.named(POINTWISE)
        self._add(Region(template=template, replacement=template.replaces[0], input=leaf,
                         epilogue=nodes))

    def _leave_lone_calls(self) -> None:
        """Leave elementwise calls with no neighbour to torch, unless there is no other region.

        A kernel for one such call moves as many bytes as torch's and takes longer to launch.
        """
        lone = [region for region in self.regions if region.core is None and len(region.nodes) == 1]
        if len(lone) < len(self.regions):
            for region in lone:
                self.regions.remove(region)
                self.taken.remove(region.result.name)
                self.reasons[region.result.name] = "one elementwise call alone gains nothing"

    def _add(self, region: Region) -> None:
        self.regions.append(region)
        self.taken |= {node.name for node in region.nodes}

    def _before(self, core: Node, source: Ref) -> tuple[Node, ...]:
        """Return the elementwise nodes that lead to a core's input and nowhere else."""
        if source.kind != "node" or self.users[source.name] != {core.name}:
            return ()
        node = self.graph.node(source.name)
        return self._backwards(node) if self._is_free(node) else ()

    def _is_free(self, node: Node) -> bool:
        return node.name not in self.taken and self._is_elementwise(node)

    def _backwards(self, last: Node) -> tuple[Node, ...]:
        """Return the elementwise nodes of one shape that lead to `last` and nowhere else."""
        names = {last.name}
        # a value that several nodes use joins once all of them have joined
        while more := [name for node in names for ref in self.graph.node(node).reads
                       if ref.kind == "node" and (name := ref.name) not in names
                       and self._is_free(self.graph.node(name))
                       and self.graph.node(name).form.shape == last.form.shape
                       and self.users[name] <= names]:
            names.update(more)
        return self.graph.ordered(names)

    def _after(self, core: Node, template: TritonTemplate | None,
               source: Ref) -> tuple[Node, ...]:
        """Return the elementwise nodes after a core; only the last one's value is used elsewhere.

        A template writes its result in the core's dtype.
        """
        if template is None or "epilogue" not in template.fuses:
            return ()
        inside = {core.name}
        later: set[str] = set()
        sizes_known = self.graph.form(source).shape == core.form.shape
        for node in self.graph.nodes[int(core.name[1:]) + 1:]:
            if node.name not in self.live:
                continue
            reads = {ref.name for ref in node.reads if ref.kind == "node"}
            if reads & inside and not reads & later and self._is_free(node) \
                    and node.form.shape == core.form.shape \
                    and node.form.dtype == core.form.dtype and all(
                        operand_of(self.graph, ref, node.form.shape, sizes_known,
                                   template.places) is not None
                        for ref in node.reads if ref.name not in inside):
                inside.add(node.name)
            elif reads & (inside | later):
                later.add(node.name)
        for last in reversed(self.graph.ordered(inside - {core.name})):
            needed = self.graph.before([last.name], lambda ref: ref.name in inside)
            if all(self.users[name] <= needed for name in needed - {last.name}):
                return self.graph.ordered(needed - {core.name})
        return ()

    def _leaf(self, nodes: tuple[Node, ...]) -> Ref | None:
        """Return the tensor from outside that has the shape and dtype of the nodes' result."""
        names, last = {node.name for node in nodes}, nodes[-1].form
        for node in nodes:
            for ref in node.reads:
                if ref.name not in names:
                    form = self.graph.form(ref)
                    if form.shape == last.shape and form.dtype == last.dtype:
                        return ref
        return None


def main_input(call: str, bound: Mapping[str, Any]) -> Ref | None:
    """Return the tensor that is the first argument of a template's call."""
    expression = ast.parse(call, mode="eval").body
    first = expression.args[0] if isinstance(expression, ast.Call) else None
    value = bound.get(first.id) if isinstance(first, ast.Name) else None
    return value if isinstance(value, Ref) else None


def live_nodes(graph: ModuleGraph) -> set[str]:
    """Return the nodes on which the result depends, and those that write a tensor."""
    return graph.before([*graph.returned(), *(node.name for node in graph.nodes
                                              if node.written is not None)])
