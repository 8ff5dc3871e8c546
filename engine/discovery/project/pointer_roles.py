"""Finds the pointers of a C function through which it only reads, or reads before it writes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from engine.split.languages.syntax import parts, walk
from engine.transformations.c.parsed_c import ParsedC
from harness.errors import InputError

READERS = re.compile(r"f?printf|assert|mem(cpy|move|cmp)|_mm\d*_\w*(load|gather)\w*|vld\d\w*")
"""Functions that write through no pointer; FIRST_WRITTEN are exceptions: they write through the
first one."""
ELEMENTS = ("subscript_expression", "pointer_expression")
FIRST_WRITTEN = ("memcpy", "memmove")


def only_read(source: str, function: str) -> frozenset[str]:
    """Return the pointer parameters through which a function of a source writes nothing.

    A pointer that an unknown function gets counts as written. Empty if the function seems to write
    nothing at all, since kopt has then missed its output, or if the source cannot be parsed.
    """
    try:
        pointers = _Pointers(ParsedC(source))
    except (InputError, RecursionError):
        return frozenset()
    names, written = pointers.of(function, frozenset())
    return frozenset(names) - written if written else frozenset()


def read_first(source: str, function: str) -> frozenset[str]:
    """Return the pointer parameters whose first access, in the order of the text, is a read.

    `x[i] /= sum` reads. A function that gets a pointer and is not one of READERS writes to it.
    """
    try:
        pointers = _Pointers(ParsedC(source))
    except (InputError, RecursionError):
        return frozenset()
    return pointers.read_first(function)


class _Pointers:
    def __init__(self, parsed: ParsedC) -> None:
        self.parsed = parsed
        self.functions = {parsed.declared_name(declarator)[0]: node for node in parsed.functions
                          if (declarator := node.child_by_field_name("declarator"))}

    def of(self, function: str, above: frozenset[str]) -> tuple[list[str], frozenset[str]]:
        """Return a function's parameters, and those through which it may write.

        `above` are the functions whose calls led here: one that calls itself may write through all.
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

    def read_first(self, function: str) -> frozenset[str]:
        """Return the parameters whose first access is a read."""
        node = self.functions.get(function)
        body = node.child_by_field_name("body") if node is not None else None
        if node is None or body is None:
            return frozenset()
        types = self.parsed.types(node)
        roots = {name: {name} for name, kind in types.items() if kind.endswith("*")}
        while self._follow(body, roots, types):
            pass
        first: dict[str, bool] = {}
        for name, is_read in self._accesses(body, types):
            for root in roots.get(name, ()):
                first.setdefault(root, is_read)
        return frozenset(name for name, is_read in first.items() if is_read)

    def _accesses(self, node: Node, types: dict[str, str]) -> Iterator[tuple[str, bool]]:
        """Yield each name through which a node reads (True) or may write (False), in C's order."""
        if node.type == "sizeof_expression":
            return
        if node.type == "pointer_expression" and self.parsed.text(node).startswith("&"):
            yield from ((self._base(each), True) for each in walk(node.children[-1])
                        if each.type in ELEMENTS and each != node.children[-1])
            return
        target = node.child_by_field_name("left") if node.type == "assignment_expression" else \
            node.child_by_field_name("argument") if node.type == "update_expression" else None
        if target is not None and target.type in ELEMENTS:
            if (value := node.child_by_field_name("right")) is not None:
                yield from self._accesses(value, types)
            is_plain = self.parsed.text(node.child_by_field_name("operator")) == "="
            for element in walk(target):
                if element.type in ELEMENTS and element != target:
                    yield self._base(element), True
            yield self._base(target), not is_plain
            return
        called = self.parsed.text(node.children[0]) if node.type == "call_expression" else ""
        if called in FIRST_WRITTEN:
            written, *read = node.children[-1].named_children
            yield from ((self._base(each), True) for each in read)
            yield self._base(written), False
            return
        if called and not self._reads(called):
            yield from ((name, False) for name in self.parsed.names(node.children[-1])
                        if types.get(name, "").endswith("*"))
            return
        for child in node.children:
            yield from self._accesses(child, types)
        if node.type in ELEMENTS:
            yield self._base(node), True

    def _base(self, element: Node) -> str:
        """Return the pointer of an element: `x` of `x[order[i]]` and of `*(x + i)`."""
        return next((self.parsed.text(each) for each in walk(element)
                     if each.type == "identifier"), "")

    def _follow(self, body: Node, roots: dict[str, set[str]], types: dict[str, str]) -> bool:
        """Record from which parameters local pointers come; return whether anything was new."""
        is_new = False
        for part in parts(body, "init_declarator", "assignment_expression"):
            left = part.child_by_field_name("declarator") or part.child_by_field_name("left")
            value = part.child_by_field_name("value") or part.child_by_field_name("right")
            if left is None or value is None:
                continue
            name = self.parsed.declared_name(left)[0] if part.type == "init_declarator" \
                else self.parsed.text(left)
            if types.get(name, "").endswith("*"):
                of_value = {root for each in self.parsed.names(value)
                            for root in roots.get(each, ())}
                is_new |= not of_value <= roots.setdefault(name, set())
                roots[name] |= of_value
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
        called, args = self.parsed.text(part.children[0]), part.children[-1].named_children
        if called in self.functions:
            names, written = self.of(called, above)
            args = [each for each, name in zip(args, names, strict=False) if name in written]
        elif self._reads(called):
            args = args[:1] if called in FIRST_WRITTEN else []
        return {name for each in args for name in self._passed(each)}

    def _reads(self, called: str) -> bool:
        return called in self.parsed.pure or READERS.fullmatch(called) is not None

    def _passed(self, node: Node) -> set[str]:
        """Return the names in an argument, except those inside a call of a reading function."""
        if node.type == "identifier":
            return {self.parsed.text(node)}
        if node.type == "call_expression" and self._reads(self.parsed.text(node.children[0])):
            return set()
        return {name for child in node.children for name in self._passed(child)}
