"""Loops that count one variable up by one to a bound that stays the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tree_sitter import Node

from engine.split.languages.syntax import parts
from engine.transformations.c.parsed_c import LOOPS, ParsedC

SHORT = 64
_JUMPS = ("break_statement", "continue_statement", "return_statement", "goto_statement",
          "labeled_statement", "switch_statement", "gnu_asm_expression")


@dataclass(frozen=True, kw_only=True)
class CountedLoop:
    """`for (start; variable < bound; variable++) body`."""

    node: Node
    variable: str
    declared: str
    """The variable's type if the loop declares it, else ""."""
    start: str
    """The first value, "" if the loop goes on from the variable's present one."""
    bound: str
    body: Node
    pragma: str = ""
    """The pragma before the loop; it may not hold for a changed loop."""

    @property
    def line(self) -> int:
        return self.node.start_point.row + 1

    @property
    def head(self) -> str:
        """The statement that sets the variable, to write before a loop without an initializer."""
        value = f"{self.variable} = {self.start};"
        return f"{self.declared} {value}" if self.declared else value if self.start else ""


def loops(c: ParsedC, function: Node, *, with_pragmas: bool = False) -> Iterator[CountedLoop]:
    """Yield a function's counted loops that no statement leaves early, the outer ones first.

    Left out are short loops, loops that do the remainder of a loop in larger steps, and without
    `with_pragmas` those with a pragma.
    """
    for node in parts(function, "for_statement"):
        if (loop := _counted(c, node)) \
                and not _is_remainder(c, loop) and not _is_short(c, loop):
            before = c.text(node.prev_sibling).strip()
            pragma = before if before.startswith(("#", "_Pragma")) else ""
            if with_pragmas or not pragma:
                yield replace(loop, pragma=pragma)


def is_innermost(loop: CountedLoop) -> bool:
    return not any(parts(loop.body, *LOOPS))


def _is_remainder(c: ParsedC, loop: CountedLoop) -> bool:
    """Return whether a loop continues where the preceding loop, with larger steps, has ended."""
    before = loop.node.prev_named_sibling
    return not loop.start and before is not None and before.type == "for_statement" \
        and loop.variable in c.names_in(before, "update")


def _is_short(c: ParsedC, loop: CountedLoop) -> bool:
    """Return whether a loop's constant bound is so small that the compiler unrolls it."""
    bound = c.constants.get(loop.bound, loop.bound)
    return bound.isdigit() and int(bound) <= SHORT


def statements(node: Node) -> list[Node]:
    """Return the statements of a body, with braces or without, and without comments."""
    children = node.named_children if node.type == "compound_statement" else [node]
    return [statement for statement in children if statement.type != "comment"]


def _counted(c: ParsedC, node: Node) -> CountedLoop | None:
    initializer, condition, update, body = (node.child_by_field_name(name) for name in (
        "initializer", "condition", "update", "body"))
    if condition is None or update is None or body is None or body.has_error \
            or any(parts(body, *_JUMPS)):
        return None
    variable = _counted_variable(c, update)
    if condition.type != "binary_expression" \
            or c.text(condition.child_by_field_name("left")) != variable \
            or c.text(condition.child_by_field_name("operator")) != "<":
        return None
    bound = condition.child_by_field_name("right")
    written = c.written(body)
    if bound is None or variable in written or c.names(bound) & written \
            or any(parts(bound, "subscript_expression", "pointer_expression", "call_expression",
                         "assignment_expression", "update_expression")):
        return None
    declared = start = ""
    if initializer is not None:
        value = initializer
        if initializer.type == "declaration":
            declarators = initializer.children_by_field_name("declarator")
            if len(declarators) != 1 or declarators[0].type != "init_declarator":
                return None
            declared, value = c.text(initializer.child_by_field_name("type")), declarators[0]
            name, first = (value.child_by_field_name(key) for key in ("declarator", "value"))
        elif initializer.type == "assignment_expression":
            name, first = (value.child_by_field_name(key) for key in ("left", "right"))
        else:
            return None
        if name is None or first is None or c.text(name) != variable:
            return None
        start = c.text(first)
    return CountedLoop(node=node, variable=variable, declared=declared, start=start,
                       bound=c.text(bound), body=body)


def _counted_variable(c: ParsedC, update: Node) -> str:
    """Return the variable that an update raises by one, "" for any other update."""
    text = c.text(update).replace(" ", "")
    if (update.type == "update_expression" and text.endswith("++")) or text.startswith("++"):
        return text.strip("+")
    return text.removesuffix("+=1") if text.endswith("+=1") else ""
