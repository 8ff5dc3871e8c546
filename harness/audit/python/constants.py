"""Evaluates the texts that a Python source puts together, without running any of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.formats.text import words

HOLE = "\0"
"""Stands for a value, or a part of a text, that is known only by running the source."""

DEPTH = 40
MAX_TEXT = 1 << 18
_MAX_ARGUMENT = 1 << 12
_METHODS = words("""
    lower upper swapcase title capitalize casefold strip lstrip rstrip replace removeprefix
    removesuffix split rsplit partition rpartition encode decode""")
_FUNCTIONS: dict[str, Callable[[Any], object]] = {
    "chr": chr, "ord": ord, "str": lambda item: _concatenated([item]), "list": list, "tuple": list,
    "bytes": bytes, "bytearray": bytes, "reversed": lambda items: items[::-1]}
_FIELD = re.compile(r"\{(\w*)\}|(\{\{|\}\})")


class Constants:
    """The values of expressions; `assigned` lists what each name of the source is bound to."""

    def __init__(self, assigned: Mapping[str, Sequence[ast.expr]]) -> None:
        self.assigned = assigned
        self._known: dict[ast.AST, object] = {}
        self._loop: dict[str, object] = {}

    def value(self, node: ast.AST | None, depth: int = 0) -> object:
        """Return a text, a number, a list or a dict; HOLE for anything else or if unknown."""
        if node is None or depth > DEPTH:
            return HOLE + HOLE if node else HOLE  # two: a text composed of unknown parts
        if node not in self._known:
            self._known[node] = HOLE  # ends the recursion for names defined by themselves
            self._known[node] = self._bounded(node, depth)
        return self._known[node]

    def _bounded(self, node: ast.AST, depth: int) -> object:
        try:
            result = self._value(node, depth + 1)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return HOLE
        return HOLE if isinstance(result, str | bytes | list | tuple) \
            and len(result) > MAX_TEXT else result

    def _value(self, node: ast.AST, depth: int) -> object:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str | bytes | int) else HOLE
        if isinstance(node, ast.Name):
            values = self.assigned.get(node.id, ())
            return self._loop[node.id] if node.id in self._loop else \
                self.value(values[0], depth) if len(values) == 1 else HOLE
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(item, depth) for item in node.elts]
        if isinstance(node, ast.Dict):
            return {self.value(k, depth): self.value(v, depth)
                    for k, v in zip(node.keys, node.values, strict=True)}
        if isinstance(node, ast.JoinedStr):
            return _concatenated([self.value(part, depth) for part in node.values])
        if isinstance(node, ast.FormattedValue):
            return HOLE if node.format_spec else self.value(node.value, depth)
        if isinstance(node, ast.BinOp):
            return _combined(node.op, self.value(node.left, depth), self.value(node.right, depth))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._number(node.operand, depth)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, depth)
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            return self._comprehension(node, depth)
        return self._call(node, depth) if isinstance(node, ast.Call) else HOLE

    def _number(self, node: ast.AST, depth: int) -> int:
        result = self.value(node, depth)
        if not isinstance(result, int):
            raise TypeError
        return result

    def _subscript(self, node: ast.Subscript, depth: int) -> object:
        base: Any = self.value(node.value, depth)
        if isinstance(base, str) and HOLE in base:
            return HOLE
        if not isinstance(node.slice, ast.Slice):
            return base[self.value(node.slice, depth)]
        lower, upper, step = (None if part is None else self._number(part, depth)
                              for part in (node.slice.lower, node.slice.upper, node.slice.step))
        return base[lower:upper:step]

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp, depth: int) -> object:
        loop, *others = node.generators
        items = self.value(loop.iter, depth)
        if others or loop.ifs or not isinstance(loop.target, ast.Name) \
                or not isinstance(items, str | bytes | list) or len(items) > _MAX_ARGUMENT \
                or self._loop:
            return HOLE
        values, known = [], self._known
        for item in items:
            self._loop, self._known = {loop.target.id: item}, {}
            values.append(self.value(node.elt, depth))
        self._loop, self._known = {}, known
        return values

    def _call(self, node: ast.Call, depth: int) -> object:
        arguments = [self.value(argument, depth) for argument in node.args]
        if any(isinstance(a, str | bytes | list) and len(a) > _MAX_ARGUMENT for a in arguments):
            return HOLE
        if isinstance(node.func, ast.Name):
            if node.func.id == "map" and len(node.args) == 2 and isinstance(arguments[1], list) \
                    and isinstance(node.args[0], ast.Name):
                return [_FUNCTIONS[node.args[0].id](item) for item in arguments[1]]
            argument = arguments[0] if arguments else HOLE
            is_known = argument != HOLE and not (node.func.id.startswith("byte")
                                                 and isinstance(argument, int))
            return _FUNCTIONS[node.func.id](argument) if is_known else HOLE
        if not isinstance(node.func, ast.Attribute):
            return HOLE
        text, method = self.value(node.func.value, depth), node.func.attr
        if isinstance(text, bytes):
            text = text.decode("latin-1")
        if not isinstance(text, str) or len(text) > _MAX_ARGUMENT:
            return HOLE
        if method == "join" and isinstance(arguments[0], list | str):
            pieces = [piece for item in arguments[0] for piece in (text, item)]
            return _concatenated(pieces[1:])
        if method == "format":
            named = {k.arg: self.value(k.value, depth) for k in node.keywords}
            return _formatted(text, [*arguments], named)
        if method in ("encode", "decode"):
            return text
        return getattr(text, method)(*arguments) if method in _METHODS else HOLE


def _concatenated(parts: Sequence[object]) -> str:
    """Return the texts and numbers as one text."""
    texts = [p.decode("latin-1") if isinstance(p, bytes) else str(p) if isinstance(p, str | int)
             else HOLE for p in parts]
    return "".join(texts) if sum(map(len, texts)) <= MAX_TEXT else HOLE


def _combined(op: ast.operator, left: Any, right: Any) -> object:
    """Return the sum of two texts or numbers, a repeated text, or a text filled by `%`."""
    if isinstance(op, ast.Add):
        has_text = isinstance(left, str | bytes) or isinstance(right, str | bytes)
        return _concatenated([left, right]) if has_text else left + right
    if isinstance(op, ast.Mod) and isinstance(left, str):
        values = iter(right if isinstance(right, list) else [right])
        return _concatenated([next(values, HOLE) if part.startswith("%") else part
                              for part in re.split(r"(%[sdrc]|%\S+)", left)])
    if isinstance(op, ast.Mult) and isinstance(right, int) and isinstance(left, str | list):
        return left * right if len(left) * right <= MAX_TEXT else HOLE
    if isinstance(left, int) and isinstance(right, int) \
            and isinstance(op, ast.Sub | ast.BitXor | ast.Mod):
        return left - right if isinstance(op, ast.Sub) else \
            left ^ right if isinstance(op, ast.BitXor) else left % right
    return HOLE


def _formatted(text: str, values: list[object], named: Mapping[str | None, object]) -> str:
    following = iter(values)

    def field(match: re.Match[str]) -> str:
        name, brace = match.groups()
        result = brace[0] if brace else next(following, HOLE) if not name else \
            values[int(name)] if name.isdigit() else named.get(name, HOLE)
        return str(result) if isinstance(result, str | int) else HOLE
    return re.sub(r"\{[^{}]*\}", HOLE, _FIELD.sub(field, text))
