"""Finds the pointers of a C function through which it only reads, or reads before it writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tree_sitter import Node

from engine.split.languages.syntax import parts, walk
from engine.transformations.c.parsed_c import ParsedC
from harness.errors import InputError
from harness.tasks.target import Arg

READERS = re.compile(r"f?printf|assert|mem(cpy|move|cmp)|_mm\d*_\w*(load|gather)\w*|vld\d\w*"
                     r"|__ld\w+|load_matrix_sync")
"""Functions that write through no pointer, but for those that write through their first one."""
ELEMENTS = ("subscript_expression", "pointer_expression")
FIRST_WRITTEN = ("memcpy", "memmove")
ATOMICS = "atomic"
"""How the functions start that read an element and write it."""


def with_roles(args: Sequence[Arg], source: str, function: str,
               parsed: type[ParsedC] = ParsedC) -> tuple[Arg, ...]:
    """Return a function's arguments with the roles that its text in a source shows.

    A pointer through which it writes nothing is an input. One that it reads before it writes to it
    is an `inout`: `x[i] /= sum` reads. A pointer that an unknown function gets counts as written
    by it. The arguments are returned unchanged if the text cannot be parsed or writes nothing.
    """
    try:
        pointers = _Pointers(parsed(source))
    except (InputError, RecursionError):
        return tuple(args)
    names, written = pointers.of(function, frozenset())
    first = pointers.read_first(function)
    if not written:
        return tuple(args)
    return tuple(arg if arg.role is None else
                 replace(arg, role=None) if arg.name in names and arg.name not in written else
                 replace(arg, role="inout") if arg.name in first else arg for arg in args)


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
        if node.type == "call_expression":
            yield from self._accesses_of_call(node, types)
            return
        for child in node.children:
            yield from self._accesses(child, types)
        if node.type in ELEMENTS:
            yield self._base(node), True

    def _accesses_of_call(self, call: Node, types: dict[str, str]) -> Iterator[tuple[str, bool]]:
        """Yield the accesses of a call: first its arguments, then what it does by pointers."""
        called, given = self.parsed.text(call.children[0]), call.children[-1].named_children
        if called.isupper():  # a macro may write to the elements that it gets
            yield from ((name, False) for each in given for name in self.parsed.names(each))
            return
        changed = [] if called == "swap" else self._by_reference(called, given)
        for argument in given:
            if argument not in changed:
                yield from self._accesses(argument, types)
        yield from ((self._base(argument), False) for argument in changed)
        for place, argument in reversed(list(enumerate(given))):
            is_read = called.startswith(ATOMICS) or (
                self._reads(called) and (place > 0 or called not in FIRST_WRITTEN))
            yield from ((name, is_read) for name in self._pointers(argument, types))

    def _pointers(self, node: Node | None, types: dict[str, str]) -> set[str]:
        """Return the pointers that are an expression's value, or part of it."""
        return set() if node is None else {
            name for name in self._passed(node, {}) if types.get(name, "").endswith("*")
        } - {name for name, _ in self._accesses(node, types)}

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
            if types.get(self.parsed.text(target), "").endswith("*"):
                return set()  # followed
            kept = self._pointers(part.child_by_field_name("right"), types)
            return set(self.parsed.names(target)) | kept
        if part.type == "init_declarator":
            is_followed = types.get(self.parsed.declared_name(part)[0], "").endswith("*")
            value = part.child_by_field_name("value")
            return set() if is_followed else self._pointers(value, types)
        if part.type == "gnu_asm_expression":
            return set(self.parsed.names(part))
        if part.type != "call_expression":
            return set()
        called, given = self.parsed.text(part.children[0]), part.children[-1].named_children
        by_reference = self._by_reference(called, given)
        if called in self.functions:
            names, written = self.of(called, above)
            given = [each for each, name in zip(given, names, strict=False) if name in written]
        elif self._reads(called):
            given = given[:1] if called in FIRST_WRITTEN else []
        depths = {} if called.isupper() else {
            name: kind.count("*") for name, kind in types.items()}
        return {name for each in given for name in self._passed(each, depths)} | {
            name for each in by_reference for name in self._passed(each, {})}

    def _by_reference(self, called: str, given: Sequence[Node]) -> list[Node]:
        """Return the arguments that C++ passes by reference, so that a function may change them."""
        if called == "swap":
            return list(given)
        node = self.functions.get(called)
        parameters = [] if node is None else list(parts(node, "parameter_declaration"))
        return [each for each, part in zip(given, parameters, strict=False)
                if "&" in self.parsed.text(part) and "const" not in self.parsed.text(part)]

    def _reads(self, called: str) -> bool:
        return called in self.parsed.pure or READERS.fullmatch(called) is not None

    def _passed(self, node: Node, depths: Mapping[str, int]) -> set[str]:
        """Return the names in an argument, but for those that only a reading function gets.

        An element `x[i]` of an array with a known depth is passed by value.
        """
        if node.type == "identifier":
            return {self.parsed.text(node)}
        if node.type == "call_expression" and self._reads(self.parsed.text(node.children[0])):
            return set()
        if node.type == "subscript_expression":
            levels = sum(1 for _ in parts(node.children[0], "subscript_expression")) + 1
            if depths.get(self._base(node)) == levels:
                return set()
        if node.type == "pointer_expression":
            depths = {}  # the address of an element
        return {name for child in node.children for name in self._passed(child, depths)}
