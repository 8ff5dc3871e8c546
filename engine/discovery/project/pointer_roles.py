"""Finds the pointers of a C function through which it only reads, although they are not const."""

from __future__ import annotations

import re

from tree_sitter import Node

from engine.split.languages.syntax import parts, walk
from engine.transformations.c.parsed_c import ParsedC
from harness.errors import InputError

READERS = re.compile(r"f?printf|assert|mem(cpy|move|cmp)|_mm\d*_\w*(load|gather)\w*|vld\d\w*")
"""Functions that write through no pointer, but for those that write through their first one."""
FIRST_WRITTEN = ("memcpy", "memmove")


def only_read(source: str, function: str) -> frozenset[str]:
    """Return the pointer parameters through which a function of a source writes nothing.

    A pointer that an unknown function gets counts as written. Empty if all are written, or if the
    source cannot be parsed.
    """
    try:
        pointers = _Pointers(ParsedC(source))
    except (InputError, RecursionError):
        return frozenset()
    names, written = pointers.of(function, frozenset())
    return frozenset(names) - written if written else frozenset()


class _Pointers:
    def __init__(self, parsed: ParsedC) -> None:
        self.parsed = parsed
        self.functions = {parsed.declared_name(declarator)[0]: node for node in parsed.functions
                          if (declarator := node.child_by_field_name("declarator"))}

    def of(self, function: str, above: frozenset[str]) -> tuple[list[str], frozenset[str]]:
        """Return a function's parameters, and those that it may write through.

        For a function that calls itself, one of those `above`, these are all.
        """
        node = self.functions.get(function)
        body = node.child_by_field_name("body") if node is not None else None
        if node is None or body is None:
            return [], frozenset()
        names = [self.parsed.declared_name(declarator)[0]
                 for part in parts(node, "parameter_declaration")
                 if (declarator := part.child_by_field_name("declarator"))]
        if function in above:
            return names, frozenset(names)
        types = self.parsed.types(node)
        roots = {name: {name} for name in names if types.get(name, "").endswith("*")}
        while self._follow(body, roots, types):
            pass
        written: set[str] = set()
        for part in walk(body):
            for name in self._written(part, types, above | {function}):
                written |= roots.get(name, set())
        return names, frozenset(written)

    def _follow(self, body: Node, roots: dict[str, set[str]], types: dict[str, str]) -> bool:
        """Add the parameters from which local pointers come; return whether any was new."""
        is_new = False
        for part in parts(body, "init_declarator", "assignment_expression"):
            left = part.child_by_field_name("declarator") or part.child_by_field_name("left")
            value = part.child_by_field_name("value") or part.child_by_field_name("right")
            if left is None or value is None:
                continue
            name = self.parsed.declared_name(left)[0] if part.type == "init_declarator" \
                else self.parsed.text(left)
            if types.get(name, "").endswith("*"):
                found = {root for each in self.parsed.names(value)
                         for root in roots.get(each, ())}
                is_new |= not found <= roots.setdefault(name, set())
                roots[name] |= found
        return is_new

    def _written(self, part: Node, types: dict[str, str], above: frozenset[str]) -> set[str]:
        """Return the names through which one expression may write."""
        target = part.child_by_field_name("left") if part.type == "assignment_expression" else \
            part.child_by_field_name("argument") if part.type == "update_expression" else None
        if target is not None:
            is_pointer = target.type == "identifier" and types.get(
                self.parsed.text(target), "").endswith("*")
            return set() if is_pointer else set(self.parsed.names(target))
        if part.type != "call_expression":
            return set()
        called, given = self.parsed.text(part.children[0]), part.children[-1].named_children
        if called in self.functions:
            names, written = self.of(called, above)
            given = [each for each, name in zip(given, names, strict=False) if name in written]
        elif self._reads(called):
            given = given[:1] if called in FIRST_WRITTEN else []
        return {name for each in given for name in self._passed(each)}

    def _reads(self, called: str) -> bool:
        return called in self.parsed.pure or READERS.fullmatch(called) is not None

    def _passed(self, node: Node) -> set[str]:
        """Return the names in an argument, but for those that only a reading function gets."""
        if node.type == "identifier":
            return {self.parsed.text(node)}
        if node.type == "call_expression" and self._reads(self.parsed.text(node.children[0])):
            return set()
        return {name for child in node.children for name in self._passed(child)}
