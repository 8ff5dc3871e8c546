"""`c-hoist` and `c-reciprocal`: values that a loop recomputes are computed once before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tree_sitter import Node

from engine.split.languages.syntax import parts, walk
from engine.transformations.c.parsed_c import LOOPS, ParsedC
from engine.transformations.transformation import Transformation, Transformed, first_places

_MEMORY = ("subscript_expression", "pointer_expression", "field_expression")
_ONE = {"float": "1.0f", "double": "1.0"}
"""The dividend of a reciprocal: the quotient of two integers would be 0."""


@dataclass(frozen=True, kw_only=True)
class Invariant:
    """An expression with one value in all iterations of `loop`, the outermost such loop."""

    node: Node
    loop: Node
    kind: str
    """`float` or `double`."""


class Hoist(Transformation):
    name = "c-hoist"
    aim = "square roots, exponentials and divisions that a loop repeats, once before it"

    def apply(self, source: str) -> Transformed:
        c = ParsedC(source)
        invariants = first_places(_invariants(c, divisors=False),
                                  "no loop repeats a costly expression that it does not change")
        return _moved(c, invariants, "fixed", "{}", "{}", "computed before the loop")


class Reciprocal(Transformation):
    name = "c-reciprocal"
    aim = "divisions by a value that a loop does not change, as products with its reciprocal"
    parsed: ClassVar[type[ParsedC]] = ParsedC

    def apply(self, source: str) -> Transformed:
        c = self.parsed(source)
        invariants = first_places(_invariants(c, divisors=True),
                                  "no loop divides floating-point values by "
                                  "one that it does not change")
        return _moved(c, invariants, "inverse", "{one} / ({})", "* {}",
                      "products with a reciprocal")


def _moved(c: ParsedC, invariants: list[Invariant], name: str, value: str, use: str,
           what: str) -> Transformed:
    """Return the source with a constant before its loop for each different expression."""
    names: dict[tuple[int, str, str], str] = {}
    before: dict[int, tuple[Node, list[str]]] = {}
    for each in invariants:
        text = " ".join(c.text(each.node).split())
        key = each.loop.start_byte, text, each.kind
        if key not in names:
            names[key] = c.free(name)
            before.setdefault(each.loop.start_byte, (each.loop, []))[1].append(
                f"const {each.kind} {names[key]} = {value.format(text, one=_ONE[each.kind])};")
        begin, written = each.node.start_byte, use.format(names[key])
        if use != "{}":  # also replaces the sign of the division
            begin = c.source.rindex("/", 0, begin)
            written = written.replace("* ", "*= ") if c.source[begin + 1] == "=" else written
        c.put(begin, each.node.end_byte, written)
    for loop, lines in before.values():
        indent = c.indent(loop)
        head = f"\n{indent}".join([*lines, ""])
        if loop.parent is not None and loop.parent.type != "compound_statement":
            head = f"{{\n{indent}{head}"
            c.insert(loop.end_byte, f"\n{indent}}}")
        pragma = loop.prev_sibling
        first = pragma if pragma is not None and c.text(pragma).startswith("#") else loop
        c.insert(first.start_byte, head)
    return c.transformed(what, [c.line(each.node) for each in invariants])


def _invariants(c: ParsedC, *, divisors: bool) -> Iterator[Invariant]:
    """Yield the largest invariant expressions of all functions, in the source's order.

    With `divisors`, these are divisors of varying values, else costly expressions.
    """
    for function in c.functions:
        types = c.types(function)
        body = function.child_by_field_name("body")
        assert body is not None
        by_address = {c.base(part.child_by_field_name("argument"))
                      for part in parts(body, "pointer_expression") if c.text(part)[0] == "&"}
        known = types.keys() | c.pure
        stack = list(reversed(body.children))
        while stack:
            node = stack.pop()
            loop, invariant = _enclosing(node), None
            whole = node.parent if divisors and node.parent is not None else node
            if loop is not None and node.is_named and not _is_assigned(node) \
                    and (_is_divisor(c, node) if divisors else _is_costly(c, node)) \
                    and c.names(node) <= known and not (
                        divisors and _is_invariant(c, whole, loop, types, by_address)):
                kind, home = c.kind(whole, types), _home(c, node, loop, types, by_address)
                if kind in ("float", "double") and home is not None:
                    invariant = Invariant(node=node, loop=home, kind=kind)
            if invariant is None:
                stack.extend(reversed(node.children))
            else:
                yield invariant


def _is_costly(c: ParsedC, node: Node) -> bool:
    """Return whether an expression calls a function of math.h, or divides."""
    return node.type in ("call_expression", "binary_expression") and any(
        (part.type == "call_expression" and c.text(part.children[0]) in c.pure)
        or (part.type == "binary_expression" and c.text(part.children[1]) == "/")
        for part in walk(node))


def _is_divisor(c: ParsedC, node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type in ("binary_expression", "assignment_expression") \
        and parent.child_by_field_name("right") == node \
        and c.text(parent.children[1]) in ("/", "/=")


def _is_assigned(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "assignment_expression" \
        and parent.child_by_field_name("left") == node


def _home(c: ParsedC, node: Node, loop: Node, types: dict[str, str],
          by_address: set[str]) -> Node | None:
    """Return the outermost loop in which an expression has one value, None if there is none."""
    home: Node | None = None
    outer: Node | None = loop
    while outer is not None and _is_invariant(c, node, outer, types, by_address):
        home, outer = outer, _enclosing(outer)
    return home


def _is_invariant(c: ParsedC, node: Node, loop: Node, types: dict[str, str],
                  by_address: set[str]) -> bool:
    written, names = c.written(loop), c.names(node)
    if names & written or ("*" in written and names & by_address):
        return False
    return not any(parts(node, *_MEMORY)) or ("*" not in written
                         and not any("*" in types.get(name, "*") for name in written))


def _enclosing(node: Node) -> Node | None:
    """Return the loop whose body, condition or update contains a node, None if there is none."""
    child, parent = node, node.parent
    while parent is not None and parent.type != "function_definition":
        if parent.type in LOOPS and parent.child_by_field_name("initializer") != child:
            return parent
        child, parent = parent, parent.parent
    return None
