"""`c-loop-order` and `c-blocking`: two loops, one inside the other, in another order.

A result depends on the order of two iterations only where both reach one element. In the loops that
are changed such iterations have one of the two counters in common, and both forms keep the order
along the other one. Different pointers are taken to point to different arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from engine.transformations.c.counted_loop import CountedLoop, is_innermost, loops, statements
from engine.transformations.c.loop_memory import is_contiguous, is_independent, terms
from engine.transformations.c.parsed_c import ParsedC
from engine.transformations.transformation import (
    Replacement,
    Transformation,
    Transformed,
    first_places,
    free_name,
    replaced,
)

_PARALLEL = re.compile(r"#\s*pragma\s+omp\s+(parallel\s+)?for(\s+(schedule|num_threads)\s*"
                       r"\([^()]*\))*\s*")


@dataclass(frozen=True, kw_only=True)
class _Nest:
    """A loop whose body is a loop, and how many indices each counter moves by one element."""

    outer: CountedLoop
    inner: CountedLoop
    along_outer: int
    along_inner: int


class LoopOrder(Transformation):
    name = "c-loop-order"
    aim = "the loop along contiguous memory inside, so that it loads whole lines and vectors"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        nests = first_places(
            (nest for nest in _nests(c) if nest.along_outer and not nest.along_inner
             and (not nest.outer.pragma or _stays_parallel(c, nest))),
            "no nest of two independent loops strides along the inner loop and is contiguous along "
            "the outer one")
        c.edit(*(edit for nest in nests for edit in _exchanged(c, nest)))
        return c.transformed("loops exchanged", [nest.outer.line for nest in nests])


class Blocking(Transformation):
    name = "c-blocking"
    aim = "two loops in square blocks, whose lines of memory stay in the cache"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        nest, *_ = first_places(
            (nest for nest in _nests(c) if nest.along_outer and nest.along_inner
             and not nest.outer.pragma),
            "no nest of two independent loops has contiguous accesses along each of them")
        outer, inner = nest.outer, nest.inner
        knob = c.knob("BLOCK", 32, (8, 16, 32, 64, 128),
                      f"iterations of both loops, line {outer.line}")
        c.edit(_blocked(c, nest, knob.name))
        return c.transformed(f"{outer.variable} and {inner.variable} in blocks", [outer.line])


def _exchanged(c: ParsedC, nest: _Nest) -> list[Replacement]:
    return [Replacement(_head(loop).start, _head(loop).stop, c.source[_head(other)])
            for loop, other in ((nest.outer, nest.inner), (nest.inner, nest.outer))]


def _stays_parallel(c: ParsedC, nest: _Nest) -> bool:
    """Return whether threads may share the iterations of the exchanged loop by the same pragma."""
    if not _PARALLEL.fullmatch(nest.outer.pragma):
        return False
    after = ParsedC(replaced(c.source, _exchanged(c, nest), 0, len(c.source)))
    return any(is_independent(after, loop, frozenset(), after.types(function))
               for function in after.functions
               for loop in loops(after, function, with_pragmas=True)
               if loop.node.start_byte == nest.outer.node.start_byte)


def _blocked(c: ParsedC, nest: _Nest, knob: str) -> Replacement:
    indent, text = c.indent(nest.outer.node), c.text(nest.outer.node)
    lines, depth = list[str](), 0
    for loop in (nest.outer, nest.inner):
        first = free_name(text, f"{loop.variable}_first")
        lines.append(f"{'    ' * depth}for ({loop.declared} {first} = {loop.start}; {first} < "
                     f"{loop.bound}; {first} += {knob})" + " {" * depth)
        depth += 1
    for loop in (nest.outer, nest.inner):
        first, end = (free_name(text, f"{loop.variable}_{word}") for word in ("first", "end"))
        bound = loop.bound if loop.bound.isidentifier() else f"({loop.bound})"
        lines.append(f"{'    ' * depth}{loop.declared} {end} = {bound} - {first} < {knob} ? "
                     f"{bound} : {first} + {knob};")
    for loop in (nest.outer, nest.inner):
        first, end = (free_name(text, f"{loop.variable}_{word}") for word in ("first", "end"))
        lines.append(f"{'    ' * depth}for ({loop.declared} {loop.variable} = {first}; "
                     f"{loop.variable} < {end}; {loop.variable}++)")
        depth += 1
    lines += [f"{'    ' * depth}{c.text(nest.inner.body)}", "    }"]
    return Replacement(nest.outer.node.start_byte, nest.outer.node.end_byte,
                       f"\n{indent}".join(lines))


def _nests(c: ParsedC) -> Iterator[_Nest]:
    """Yield the pairs of loops with nothing between them whose order may change."""
    for function in c.functions:
        known, types = list(loops(c, function, with_pragmas=True)), c.types(function)
        for outer in known:
            inner = next((loop for loop in known if [loop.node] == statements(outer.body)), None)
            if inner is None or not is_innermost(inner) or not _is_free(c, outer, inner, types):
                continue
            indices = [terms(c, index) for index in c.indices(inner.body)]
            yield _Nest(outer=outer, inner=inner, along_outer=sum(
                is_contiguous(index, outer.variable) for index in indices), along_inner=sum(
                is_contiguous(index, inner.variable) for index in indices))


def _is_free(c: ParsedC, outer: CountedLoop, inner: CountedLoop, types: dict[str, str]) -> bool:
    """Return whether the two loops may be exchanged and divided into blocks."""
    written = c.written(inner.body)
    inner_head = c.names_in(inner.node, "initializer", "condition")
    heads = c.names_in(outer.node, "initializer", "condition") | inner_head
    return bool(outer.declared and inner.declared) and outer.variable != inner.variable \
        and outer.variable not in inner_head and not heads & written \
        and not heads & _counters_around(c, outer.node) \
        and "*" not in written and "static" not in c.text(inner.body) \
        and all("*" in types.get(name, "") for name in written - c.declared(inner.body)) \
        and is_independent(c, outer, frozenset((inner.variable,)), types)


def _counters_around(c: ParsedC, node: Node) -> set[str]:
    """Return the counters of the loops around that count in larger steps, over blocks."""
    counters, around = set[str](), node.parent
    while around is not None:
        update = around.child_by_field_name("update") if around.type == "for_statement" else None
        if update is not None and update.type == "assignment_expression":
            counters |= c.names(update)
        around = around.parent
    return counters


def _head(loop: CountedLoop) -> slice:
    """Return the slice of the source that is `for (...)`."""
    end = next(part.end_byte for part in loop.node.children[::-1] if part.type == ")")
    return slice(loop.node.start_byte, end)
