"""Transformations of loops and loads inside kernels: stages, eviction, the order of tiles."""

from __future__ import annotations

import ast

from engine.transformations.transformation import (
    MOST_PLACES,
    DoesNotApply,
    NewKnob,
    Replacement,
    Transformation,
    Transformed,
    free_name,
    places,
    replaced,
)
from engine.transformations.triton.parsed_triton import ParsedTriton, constexpr


class PipelinedLoops(Transformation):
    name = "triton-pipelined-loops"
    aim = "the loads of the next iterations in flight, in loops that load"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        found = [node for function in parsed.kernels.values() for node in ast.walk(function)
                 if isinstance(node, ast.For) and isinstance(node.iter, ast.Call)
                 and ast.unparse(node.iter.func) in ("range", f"{parsed.language}.range")
                 and not node.iter.keywords and parsed.calls(node, "load")]
        if not found:
            raise DoesNotApply("no loop of a kernel has loads, or all declare their stages")
        edits, lines, names = list[Replacement](), list[str](), list[str]()
        for node in found[:MOST_PLACES]:
            assert isinstance(node.iter, ast.Call)
            knob = NewKnob(name=free_name(source, "STAGES", names), value=2,
                           choices=(1, 2, 3, 4, 5),
                           note=f"iterations in flight, line {node.lineno}")
            names.append(knob.name)
            lines += parsed.knob_lines(knob, in_kernels=True)
            edits.append(Replacement(*parsed.span(node.iter.func), f"{parsed.language}.range"))
            before = source[:parsed.span(node.iter)[1] - 1].rstrip()
            edits.append(Replacement(len(before), len(before),
                                     f", num_stages={constexpr(knob)}"))
        return Transformed(
            source=replaced(source, [parsed.before_functions(lines), *edits]), knobs=tuple(names),
            what=f"software pipelining in {places([node.lineno for node in found[:MOST_PLACES]])}")


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
            raise DoesNotApply("no load is the last through its pointer, or all have hints already")
        edits = []
        for node, option in [*((node, 'eviction_policy="evict_first"') for node in loads),
                             *((node, 'cache_modifier=".cs"') for node in stores)]:
            before = source[:parsed.span(node)[1] - 1].rstrip()
            edits.append(Replacement(len(before), len(before),
                                     (" " if before[-1] == "," else ", ") + option))
        lines = [node.lineno for node in (*loads, *stores)]
        return Transformed(source=replaced(source, edits),
                           what=f"eviction hints, {places(lines)}")


class GroupedOrder(Transformation):
    name = "triton-grouped-order"
    aim = "tiles of a matrix product in groups, so that neighbours share rows and columns in cache"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        for function in parsed.kernels.values():
            ids = {ast.unparse(node.args[0]): node for node in parsed.calls(function, "program_id")
                   if node.args}
            plain = {axis: statement for axis in ("0", "1") for statement in function.body
                     if isinstance(statement, ast.Assign) and statement.value is ids.get(axis)
                     and isinstance(statement.targets[0], ast.Name)}
            if len(plain) == 2 and parsed.calls(function, "dot") \
                    and len(parsed.calls(function, "program_id")) in (2, 3) \
                    and not parsed.calls(function, "num_programs"):
                return _grouped(parsed, function, plain["0"], plain["1"])
        raise DoesNotApply("no kernel with a matrix product takes its tiles from two program ids")


def _grouped(parsed: ParsedTriton, function: ast.FunctionDef, fast: ast.Assign,
             slow: ast.Assign) -> Transformed:
    knob = NewKnob(name=free_name(parsed.source, "GROUP"), value=8, choices=(1, 2, 4, 8, 16),
                   note="rows of tiles that are worked on together")
    later = max(fast, slow, key=lambda node: node.lineno)
    begin, at = parsed.at(later.lineno, later.col_offset), parsed.span(later)[1]
    own = parsed.source[parsed.at(later.lineno, 0):begin]
    tl, one, two = parsed.language, ast.unparse(slow.targets[0]), ast.unparse(fast.targets[0])
    line = f"\n{own}{one}, {two} = {tl}.swizzle2d({one}, {two}, {tl}.num_programs(1), " \
           f"{tl}.num_programs(0), {constexpr(knob)})"
    return Transformed(
        source=replaced(parsed.source, [parsed.before_functions(
            parsed.knob_lines(knob, in_kernels=True)), Replacement(at, at, line)]),
        knobs=(knob.name,), what=f"grouped order of the tiles of {function.name}, "
                                 f"line {later.lineno}")


def _last_loads(parsed: ParsedTriton, function: ast.FunctionDef) -> list[ast.Call]:
    """Return the last load through each pointer; none for pointers that many programs share."""
    last: dict[str, ast.Call] = {}
    if parsed.calls(function, "dot"):
        return []
    for node in sorted(parsed.calls(function, "load"), key=lambda node: node.lineno):
        names = sorted({own.id for own in ast.walk(node.args[0]) if isinstance(own, ast.Name)}) \
            if node.args else []
        pointer = next((name for name in names if _is_pointer(function, name)), "")
        if pointer and isinstance(node.args[0], ast.BinOp):
            last[pointer] = node
    return [node for node in last.values() if not _has(node, "cache_modifier", "eviction_policy")]


def _is_pointer(function: ast.FunctionDef, name: str) -> bool:
    """Return whether a name is a parameter to which the kernel adds a program's own offset."""
    moved = any(isinstance(node, ast.AugAssign | ast.Assign) and ast.unparse(
        node.target if isinstance(node, ast.AugAssign) else node.targets[0]) == name
        for node in ast.walk(function))
    parameters = {argument.arg for argument in function.args.args if argument.annotation is None}
    return moved and (name in parameters or "ptr" in name.lower())


def _has(call: ast.Call, *options: str) -> bool:
    return any(keyword.arg in options for keyword in call.keywords)
