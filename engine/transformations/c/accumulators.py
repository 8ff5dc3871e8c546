"""`c-accumulators`: a loop's sum, product or maximum is taken by several independent chains.

The order of a loop's memory accesses stays; only the reductions are reassociated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from tree_sitter import Node

from engine.split.languages.syntax import parts, walk
from engine.transformations.c.counted_loop import CountedLoop, is_innermost, loops, statements
from engine.transformations.c.parsed_c import ParsedC
from engine.transformations.transformation import (
    Replacement,
    Transformation,
    Transformed,
    first_places,
    free_name,
    places,
    replaced,
)

_UPDATES = {"+=": "+", "-=": "+", "*=": "*"}
_EXTREMES = {"fmaxf": "max", "fmax": "max", "fminf": "min", "fmin": "min"}


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """A variable that a loop reduces into: by `+`, `*`, `max` or `min`."""

    name: str
    operation: str
    kind: str
    """`float` or `double`."""

    @property
    def first(self) -> str:
        """The value with which every chain begins."""
        return {"+": "0", "*": "1"}.get(self.operation, self.name)

    def combined(self, other: str) -> str:
        """Return the statement that takes a chain's result into the variable."""
        if self.operation in "+*":
            return f"{self.name} {self.operation}= {other};"
        sign = ">" if self.operation == "max" else "<"
        return f"{self.name} = {other} {sign} {self.name} ? {other} : {self.name};"


class Accumulators(Transformation):
    name = "c-accumulators"
    aim = "several independent accumulators in reductions"
    parsed: ClassVar[type[ParsedC]] = ParsedC

    def apply(self, source: str) -> Transformed:
        c = self.parsed(source)
        reducing = first_places(
            ((loop, reductions) for function in c.functions
             for types in [c.types(function)] for loop in loops(c, function)
             if is_innermost(loop) and (reductions := _reductions(c, loop, types))),
            "no innermost loop reduces floating-point values into a variable")
        for loop, reductions in reducing:
            knob = c.knob("SUMS", 8, (1, 2, 4, 8, 16, 32), f"chains, line {loop.line}")
            c.edit(_with_chains(c, loop, reductions, knob.name))
        lines = places([loop.line for loop, _ in reducing])
        return c.transformed(f"independent accumulators in the reductions of {lines}")


def _with_chains(c: ParsedC, loop: CountedLoop, reductions: list[Reduction],
                 knob: str) -> Replacement:
    indent, i = c.indent(loop.node), loop.variable
    lane = free_name(c.text(loop.node), "lane")
    arrays = {each.name: free_name(c.source, f"{each.name}_part") for each in reductions}
    chain = {name: f"{array}[{lane}]" for name, array in arrays.items()}
    body = replaced(c.source, c.renamed(loop.body, {**chain, i: f"({i} + {lane})"}),
                    loop.body.start_byte, loop.body.end_byte)
    over = f"for (int {lane} = 0; {lane} < {knob}; {lane}++)"
    lines = ["{",
             *([f"    {loop.head}"] if loop.head else []),
             *(f"    {each.kind} {arrays[each.name]}[{knob}];" for each in reductions),
             f"    {over} {{ "
             + " ".join(f"{chain[each.name]} = {each.first};" for each in reductions) + " }",
             f"    for (; {i} + ({knob} - 1) < {loop.bound}; {i} += {knob})",
             f"        {over}",
             f"            {_shifted(body, '            ', indent)}",
             f"    for (; {i} < {loop.bound}; {i}++)",
             f"        {_shifted(c.text(loop.body), '        ', indent)}",
             f"    {over} {{ "
             + " ".join(each.combined(chain[each.name]) for each in reductions) + " }",
             "}"]
    return Replacement(loop.node.start_byte, loop.node.end_byte, f"\n{indent}".join(lines))


def _shifted(text: str, by: str, indent: str) -> str:
    """Return a body with its lines after the first indented for its new place."""
    first, *others = text.split("\n")
    inner = min((len(re.match(r"[ \t]*", line)[0])  # type: ignore[index]
                 for line in others if line.strip()), default=0)
    return "\n".join([first, *(f"{indent}{by}{line[inner:]}" for line in others)])


def _reductions(c: ParsedC, loop: CountedLoop, types: dict[str, str]) -> list[Reduction]:
    """Return a loop's reductions, [] if its iterations have any other dependence."""
    written = c.written(loop.body) - {"*"}
    if "*" in c.written(loop.body) or any("static" in c.text(part)
                                          for part in parts(loop.body, "declaration")):
        return []
    local = c.declared(loop.body)
    carried = {name for name in written - local if types.get(name, "") in ("float", "double")}
    if not carried or any("*" not in types.get(name, "") for name in written - local - carried):
        return []
    reductions = {}
    for name in carried:
        reduction = _reduction_of(c, loop, name, types[name])
        if reduction is None:
            return []
        reductions[name] = reduction
    return [reductions[name] for name in sorted(reductions)]


def _reduction_of(c: ParsedC, loop: CountedLoop, name: str, kind: str) -> Reduction | None:
    """Return how a variable is reduced, None if the loop uses it in another way too."""
    operations, uses = set[str](), 0
    for part in walk(loop.body):
        uses += part.type == "identifier" and c.text(part) == name
        if part.type == "assignment_expression" and (
                operation := _update(c, part, name)):
            operations.add(operation[0])
            uses -= operation[1]
        elif part.type == "if_statement" and (extreme := _guarded_extreme(c, part, name)):
            operations.add(extreme)
            uses -= 2
    return Reduction(name=name, operation=operations.pop(), kind=kind) \
        if len(operations) == 1 and uses == 0 else None


def _update(c: ParsedC, part: Node, name: str) -> tuple[str, int] | None:
    """Return how an assignment updates `name` and how often `name` occurs in it, else None."""
    left, sign, right = (part.child_by_field_name(key) for key in ("left", "operator", "right"))
    if left is None or right is None or c.text(left) != name or sign is None:
        return None
    if name not in c.names(right):
        return (_UPDATES[c.text(sign)], 1) if c.text(sign) in _UPDATES else None
    if c.text(sign) != "=":
        return None
    while right.type == "parenthesized_expression":
        right = right.named_children[0]
    if right.type == "binary_expression":
        first, other = (right.child_by_field_name(key) for key in ("left", "right"))
        operation = c.text(right.child_by_field_name("operator"))
        if first and other and c.text(first) == name and name not in c.names(other) \
                and operation in "+-*":
            return ("*" if operation == "*" else "+"), 2
        if first and other and c.text(other) == name and name not in c.names(first) \
                and operation in "+*":
            return operation, 2
    if right.type == "call_expression" and c.text(right.children[0]) in _EXTREMES:
        arguments = [c.text(child) for child in right.named_children[1].named_children]
        if len(arguments) == 2 and name in arguments \
                and not re.search(rf"\b{name}\b", arguments[arguments[0] == name]):
            return _EXTREMES[c.text(right.children[0])], 2
    if right.type == "conditional_expression":
        condition, yes, no = (right.child_by_field_name(key) for key in (
            "condition", "consequence", "alternative"))
        if condition and yes and no:
            operation = _extreme_of_choice(c, condition, name, c.text(yes), c.text(no))
            return (operation, 3) if operation else None
    return None


def _extreme_of_choice(c: ParsedC, condition: Node, name: str, yes: str, no: str) -> str:
    """Return `max` or `min` for `x > name ? x : name` in any of its forms, else ""."""
    while condition.type == "parenthesized_expression":
        condition = condition.named_children[0]
    if condition.type != "binary_expression":
        return ""
    left, sign, right = (c.text(condition.child_by_field_name(key)) for key in (
        "left", "operator", "right"))
    if sign not in ("<", ">", "<=", ">=") or {left, right} != {yes, no} \
            or name not in (left, right):
        return ""
    if re.search(rf"\b{name}\b", right if left == name else left):
        return ""
    return "max" if (sign[0] == ">") == (left == yes) else "min"


def _guarded_extreme(c: ParsedC, part: Node, name: str) -> str:
    """Return `max` or `min` for `if (x > name) name = x;`, else ""."""
    condition = part.child_by_field_name("condition")
    inner = part.child_by_field_name("consequence")
    body = statements(inner) if inner is not None else []
    if condition is None or len(body) != 1 or part.child_by_field_name("alternative") is not None \
            or body[0].type != "expression_statement":
        return ""
    assignment = body[0].named_children[0]
    if assignment.type != "assignment_expression" \
            or c.text(assignment.child_by_field_name("operator")) != "=" \
            or c.text(assignment.child_by_field_name("left")) != name:
        return ""
    value = c.text(assignment.child_by_field_name("right"))
    return _extreme_of_choice(c, condition, name, value, name)
