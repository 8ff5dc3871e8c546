"""Writes the body of the Triton kernel of a region of rows.

A row that fits in registers is read once. A longer one is read in passes: one for each level of
statistics that depend on each other, and one for the values of its shape. Where columns do not
depend on each other, a program computes a part of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.rewrites.fused_lines import FusedCode, filled, number
from engine.rewrites.module_graph import ModuleGraph, Node, Ref
from engine.rewrites.rows.row_index import RowPlace, operand_index
from engine.rewrites.rows.row_ops import Statistic, constants
from engine.rewrites.rows.row_pass import (
    FIRST,
    FULL,
    HEAD,
    PART,
    STEPS,
    Pass,
    own_names,
    tile,
)
from engine.rewrites.rows.row_region import RowRegion
from engine.rewrites.rows.row_space import (
    cut_of,
    is_cat,
    is_channel_norm,
    is_same_value,
    op_at,
    pick_at,
)
from engine.rewrites.rows.row_statistics import Statistics, lines_of
from engine.rewrites.template_catalog import Catalog

Measured = tuple[Statistic, Ref]
"""A statistic, and the value over whose rows it is computed."""


class RowKernel:
    """Writes the body of a region's kernel: for rows in registers, or for long ones."""

    def __init__(self, graph: ModuleGraph, known: Catalog, region: RowRegion, code: FusedCode,
                 is_long: bool) -> None:
        self.graph, self.known, self.region, self.code = graph, known, region, code
        self.is_long = is_long
        self.start = "start + " if region.has_separate_columns(graph) else ""
        self.numbers = {node.name: number for number, node in enumerate(region.nodes)}
        self.lines: list[str] = []
        self.row_values: dict[Ref, str] = {}
        self.loads: dict[str, list[tuple[str, str]]] = {}
        self.statistics: dict[Measured, Statistics] = {}
        self.passes = 0
        self.now = Pass(suffix="", lines=self.lines)

    def body(self) -> list[str]:
        """Return the kernel's lines."""
        self.lines += [*FIRST, *(STEPS if self.start else ()), *HEAD]
        if not self.is_long:
            self.lines += tile(FULL, f"{self.start}tl.arange(0, BLOCK)[None, :]")
        levels = self._levels()
        for level in sorted(set(levels.values())):
            self._measure([node for node in self.region.nodes
                           if op_at(self.graph, node) and levels[node.name] == level])
        self._store_rows()
        self._store_wide("full", FULL)
        self._store_wide("part", PART)
        self._store_wide("double", FULL)
        return self.lines

    # Statistics

    def _levels(self) -> dict[str, int]:
        """Return how many passes over a row each value needs before it is known."""
        levels: dict[str, int] = {}
        for node in self.region.nodes:
            below = max((levels[ref.name] for ref in node.reads if self._is_inside(ref)), default=0)
            levels[node.name] = below + 1 if op_at(self.graph, node) else below
        return levels

    def _measure(self, nodes: list[Node]) -> None:
        added: dict[Measured, Statistics] = {}
        for node in nodes:
            reduction = op_at(self.graph, node)
            assert reduction is not None
            key: Measured = (reduction[0].statistic, node.bound["input"])
            if key not in self.statistics:
                name = f"s{len(self.statistics) + len(added)}"
                added[key] = Statistics(reduction[0].statistic, name)
        if not added:
            return
        values: dict[Measured, str] = {}
        later: list[str] = []
        visit = self._begin(FULL) if self.is_long else self.now
        start = f"start{visit.suffix}"
        for key in added:
            values[key] = self._value(key[1], FULL)
        for key, statistic in added.items():
            before, within, after = lines_of(statistic, values[key], self.is_long, start, FULL)
            self.lines += before
            visit.lines += within
            later += after
        if self.is_long:
            self._end(visit, "columns")
        self.lines += later
        self.statistics |= added

    def _begin(self, place: RowPlace) -> Pass:
        """Begin a loop over a row's columns."""
        self.passes += 1
        self.now = Pass(suffix=f"_{self.passes}")
        self.now.lines += tile(place, f"start_{self.passes} + tl.arange(0, BLOCK)[None, :]")
        return self.now

    def _end(self, loop: Pass, columns: str) -> None:
        """Write the loop."""
        self.lines.append(f"for start{loop.suffix} in tl.range(0, {columns}, BLOCK):")
        self.lines += [f"    {line}" for line in loop.lines]
        self.now = Pass(suffix="", lines=self.lines)

    # Values

    def _outside_loops(self, ref: Ref, place: RowPlace) -> str:
        """Return the variable of a value at one column of each row."""
        now, self.now = self.now, Pass(suffix=f"_{place.name}", lines=self.lines)
        variable = self._value(ref, place)
        self.now = now
        return variable

    def _is_inside(self, ref: Ref) -> bool:
        return ref.kind == "node" and ref.name in self.region.names

    def _value(self, ref: Ref, place: RowPlace) -> str:
        """Return the variable of a value that is no row value, written for one place."""
        key = (ref, place)
        if key not in self.now.values:
            self.now.values[key] = self._written(ref, place)
        return self.now.values[key]

    def _written(self, ref: Ref, place: RowPlace) -> str:
        if not self._is_inside(ref):
            return self._loaded(ref, self.graph.form(ref).shape, place)
        node = self.graph.node(ref.name)
        if (cut := cut_of(self.graph, ref)) is not None:
            return self._value(cut[0], self.now.cut(place, cut[1]))
        if is_same_value(self.graph, node, self.region.space):
            return self._value(node.reads[0], place)
        result = f"f{self.numbers[node.name]}{place.name}{self.now.suffix}"
        if is_cat(self.graph, node):
            parts = [self._value(each, self.now.half(place, part))
                     for part, each in enumerate(node.bound["tensors"])]
            self.now.lines.append(
                f"{result} = tl.where({place.column} < part, {', '.join(parts)})")
            return result
        reduction, own = op_at(self.graph, node), None
        if is_channel_norm(self.graph, node):
            own = node.form.shape[1:2] + (1,) * (node.form.dim() - 2)
            mean, variance = (self._loaded(node.bound[name], node.form.shape, place, own)
                              for name in ("running_mean", "running_var"))
            text = f"({self._value(node.bound['input'], place)} - {mean}) / tl.sqrt({variance}" \
                   f" + {number(node.bound['eps'])})"
        elif reduction is not None:
            text = self._filled(node, reduction[0].code, place)
        else:
            return self._elementwise(node, result, place)
        for name, sign in (("weight", "*"), ("bias", "+")):
            if isinstance(node.bound.get(name), Ref):
                text = f"({text}) {sign} " + self._loaded(
                    node.bound[name], node.form.shape, place, own)
        self.now.lines.append(f"{result} = {text}")
        return result

    def _elementwise(self, node: Node, result: str, place: RowPlace | None) -> str:
        form_and_arguments = self.known.form(node)
        assert form_and_arguments is not None
        form, arguments = form_and_arguments
        values: dict[str, str] = {}
        for name, value in arguments.items():
            values[name] = self._operand(node, value, place) if isinstance(value, Ref) \
                else number(value)
        self.now.lines.append(f"{result} = {values['input']}")
        lines = filled(form.code, result, values.__getitem__)
        self.now.lines += [own_names(line, result) for line in lines]
        return result

    def _operand(self, node: Node, ref: Ref, place: RowPlace | None) -> str:
        if self._is_inside(ref):
            shape = self.graph.form(ref).shape
            if place is None or self.region.space.extent(shape) == "row":
                return self._row(ref)
            return self._value(ref, place)
        return self._loaded(ref, node.form.shape, place)

    def _filled(self, node: Node, code: str, place: RowPlace | None) -> str:
        reduction = op_at(self.graph, node)
        assert reduction is not None
        statistic = self.statistics[reduction[0].statistic, node.bound["input"]]
        named: dict[str, Any] = {**constants(node.target, node.bound)}
        texts = {name: number(value) for name, value in named.items()
                 if isinstance(value, int | float)}
        texts |= statistic.variables
        if place is not None:
            texts["value"] = self._value(node.bound["input"], place)
        return code.format(**texts)

    def _row(self, ref: Ref) -> str:
        """Return the variable of a row value, [LANES, 1]."""
        if ref not in self.row_values:
            now, self.now = self.now, Pass(suffix="_row", lines=self.lines)
            self.row_values[ref] = self._written_row(ref)
            self.now = now
        return self.row_values[ref]

    def _written_row(self, ref: Ref) -> str:
        node = self.graph.node(ref.name)
        if is_same_value(self.graph, node, self.region.space):
            source = node.reads[0]
            return self._row(source) if self._is_inside(source) else self._loaded(
                source, self.graph.form(source).shape, None)
        result = f"r{self.numbers[node.name]}"
        if (reduction := op_at(self.graph, node)) is not None:
            self.lines.append(f"{result} = {self._filled(node, reduction[0].code, None)}")
            return result
        if (pick := pick_at(self.graph, node)) is not None:
            index = "row"
            if pick.index is not None:
                index = f"i{self.numbers[node.name]}"
                pointer = self.code.name_of(pick.index)
                self.lines.append(f"{index} = tl.load({pointer} + row, mask=known, other=0)")
            place = RowPlace(name=f"_at{self.numbers[node.name]}", column=index, columns="columns",
                             at=f"(row * columns + {index})", inside="known")
            return self._outside_loops(node.bound["input"], place)
        return self._elementwise(node, result, None)

    def _loaded(self, ref: Ref, shape: tuple[int, ...], place: RowPlace | None,
                own: tuple[int, ...] | None = None) -> str:
        """Return the variable of a tensor from outside, read for values of `shape`.

        It is read as if it had the shape `own`, if there is one.
        """
        pointer = self.code.name_of(ref)
        index, mask = operand_index(own or self.graph.form(ref).shape, shape,
                                    self.region.space.first, ref, self.code, place)
        name = f"f_{pointer}{place.name if place else ''}{self.now.suffix}"
        ways = self.loads.setdefault(name, [])  # a vector may be one of rows and one of columns
        if (index, mask) not in ways:
            ways.append((index, mask))
        name += f"_way{way}" if (way := ways.index((index, mask))) else ""
        self.now.write(
            f"{name} = tl.load({pointer} + {index}, mask={mask}, other=0.0).to(tl.float32)"
            if index else f"{name} = tl.load({pointer}).to(tl.float32)")
        return name

    # Results

    def _outputs(self, extent: str) -> Iterator[tuple[str, Node]]:
        for place, node in enumerate(self.region.outputs):
            if self.region.space.extent(node.form.shape) == extent:
                yield f"y{place}", node

    def _store_rows(self) -> None:
        for name, node in self._outputs("row"):
            self.lines.append(f"tl.store({name} + row, {self._row(Ref('node', node.name))}, "
                              "mask=known)")

    def _store_wide(self, extent: str, place: RowPlace) -> None:
        """Store the values of one extent; joined parts are stored with the parts."""
        outputs = [(name, node) for name, node in self._outputs(extent)
                   if not is_cat(self.graph, node)]
        joined = [(name, node) for name, node in self._outputs("full")
                  if is_cat(self.graph, node)] if extent == "part" else []
        if not outputs and not joined:
            return
        loop: Pass | None = None
        if self.is_long:
            loop = self._begin(place)
        elif extent == "part":
            self.now = Pass(suffix="", lines=self.lines)
            half = self.start and "start // 2 + "
            self.lines += tile(place, f"{half}tl.arange(0, BLOCK // 2)[None, :]")
        for name, node in outputs:
            for part in range(2) if extent == "double" else (None,):
                at = place if part is None else self.now.cut(place, part)
                self._store(name, Ref("node", node.name), at)
        for name, node in joined:
            for part, ref in enumerate(node.bound["tensors"]):
                value = self._value(ref, place)
                self.now.lines.append(
                    f"tl.store({name} + row * columns + {'part + ' * part}{place.column}, "
                    f"{value}, mask={place.inside})")
        if loop is not None:
            self._end(loop, place.columns)
        self.now = Pass(suffix="", lines=self.lines)

    def _store(self, name: str, ref: Ref, place: RowPlace) -> None:
        value = self._value(ref, place)
        self.now.lines.append(f"tl.store({name} + {place.at}, {value}, mask={place.inside})")
