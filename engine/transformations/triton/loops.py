"""Transformations of loops and loads inside kernels: stages, eviction, the order of tiles."""

from __future__ import annotations

import ast

from engine.transformations.transformation import (
    DoesNotApply,
    Transformation,
    Transformed,
    first_places,
    places,
)
from engine.transformations.triton.parsed_triton import ParsedTriton, names, target_of


class PipelinedLoops(Transformation):
    name = "triton-pipelined-loops"
    aim = "the loads of the next iterations in flight, in loops that load"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        loading = first_places(
            ((node, steps) for function in parsed.kernels.values()
             for node, steps in parsed.range_loops(function)
             if not steps.keywords and parsed.calls(node, "load")),
            "no loop of a kernel has loads, or all declare their stages")
        for node, steps in loading:
            knob = parsed.knob("STAGES", 2, (1, 2, 3, 4, 5),
                               f"iterations in flight, line {node.lineno}")
            parsed.put(*parsed.span(steps.func), f"{parsed.language}.range")
            parsed.add_argument(steps, f"num_stages={parsed.constexpr(knob)}")
        lines = places([node.lineno for node, _ in loading])
        return parsed.transformed(f"software pipelining in {lines}")


class EvictionHints(Transformation):
    name = "triton-eviction"
    aim = "what is touched for the last time leaves the cache first"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        loads = [node for function in parsed.kernels.values()
                 for node in _last_loads(parsed, function)]
        stores = [node for function in parsed.kernels.values() if not parsed.calls(function, "dot")
                  for node in parsed.calls(function, "store")
                  if not _has(node, "cache_modifier", "eviction_policy")]
        if not loads and not stores:
            raise DoesNotApply("no load is the last through its pointer, or all already have hints")
        for nodes, option in ((loads, 'eviction_policy="evict_first"'),
                              (stores, 'cache_modifier=".cs"')):
            for node in nodes:
                parsed.add_argument(node, option)
        return parsed.transformed("eviction hints", [node.lineno for node in (*loads, *stores)])


class GroupedOrder(Transformation):
    name = "triton-grouped-order"
    aim = "tiles of a matrix product in groups, so that neighbours share rows and columns in cache"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        for function in parsed.kernels.values():
            ids = {axis: [call for call in parsed.calls(function, "program_id") if ast.unparse(
                parsed.argument(call, "axis", 0) or call) == axis] for axis in "01"}
            if all(ids.values()) and parsed.calls(function, "dot") \
                    and not parsed.calls(function, "num_programs"):
                return _grouped(parsed, function, ids["0"], ids["1"])
        raise DoesNotApply("no kernel with a matrix product takes its tiles from two program ids")


def _grouped(parsed: ParsedTriton, function: ast.FunctionDef, fast: list[ast.Call],
             slow: list[ast.Call]) -> Transformed:
    knob = parsed.knob("GROUP", 8, (1, 2, 4, 8, 16), "rows of tiles that are worked on together")
    first = next(statement for statement in function.body
                 if any(node in (*fast, *slow) for node in ast.walk(statement)))
    tl, outer, inner = parsed.language, parsed.free("tile_1"), parsed.free("tile_0")
    parsed.insert(parsed.at(first.lineno, 0), (
        f"{parsed.indent(first)}{outer}, {inner} = {tl}.swizzle2d({tl}.program_id(1), "
        f"{tl}.program_id(0), {tl}.num_programs(1), {tl}.num_programs(0), "
        f"{parsed.constexpr(knob)})\n"))
    for calls, name in ((fast, inner), (slow, outer)):
        for call in calls:
            parsed.put(*parsed.span(call), name)
    return parsed.transformed(f"grouped order of the tiles of {function.name}", [first.lineno])


def _last_loads(parsed: ParsedTriton, function: ast.FunctionDef) -> list[ast.Call]:
    """Return each pointer's last load if it has no hint yet; [] for a matrix-product kernel."""
    last: dict[str, ast.Call] = {}
    if parsed.calls(function, "dot"):
        return []
    for node in sorted(parsed.calls(function, "load"), key=lambda node: node.lineno):
        pointer = next((name for name in sorted(set(names(node.args[0]))) if _is_pointer(
            function, name)), "") if node.args else ""
        if pointer and isinstance(node.args[0], ast.BinOp):
            last[pointer] = node
    return [node for node in last.values() if not _has(node, "cache_modifier", "eviction_policy")]


def _is_pointer(function: ast.FunctionDef, name: str) -> bool:
    """Return whether a name is a pointer that the kernel moves, as by a program's offset."""
    is_moved = any(isinstance(node, ast.AugAssign | ast.Assign)
                   and ast.unparse(target_of(node)) == name for node in ast.walk(function))
    parameters = {argument.arg for argument in function.args.args if argument.annotation is None}
    return is_moved and (name in parameters or "ptr" in name.lower())


def _has(call: ast.Call, *options: str) -> bool:
    return any(keyword.arg in options for keyword in call.keywords)
