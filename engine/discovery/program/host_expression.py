"""Resolves the names in a C expression of a host program: to numbers, or to a kernel's sizes."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.discovery.program.host_program import BYTES, FIELDS, Frame
from engine.discovery.project.device_sources import split_parts
from harness.compile.device_code import source_constants
from harness.formats import expression

MOST_STEPS = 20
EVERYWHERE = 0
"""The key of `symbols` that has this in place of a frame's id holds for all functions."""
MATH: dict[str, Callable[..., float]] = {
    "sqrt": math.sqrt, "rsqrt": lambda value: value ** -0.5, "pow": math.pow, "exp": math.exp,
    "log": math.log, "min": min, "max": max}
"""Functions of C whose values are computed, also as `sqrtf` and `std::sqrt`."""
_CAST = re.compile(r"\(\s*(?:const\s+)?(?:unsigned(?:\s+int)?|int|size_t|u?int(?:32|64)_t"
                   r"|(?:unsigned\s+)?long(?:\s+long)?|float|double)\s*\)"
                   r"|\bstatic_cast\s*<[^<>]*>")
_SIZEOF = re.compile(r"\bsizeof\s*(?:\(\s*(?P<type>[^()]*?)\s*\)|\*?\s*\w+)")
_DEFAULT = re.compile(r"^.*\bargc\b[^?]*\?.*:\s*(?P<value>[^:]+)$", re.DOTALL)
_SUFFIX = re.compile(r"\b(\d+\.?\d*(?:[eE][+-]?\d+)?)[fF]\b")
_CEILING = re.compile(r"ceil_?div|cdiv|div_?up|div_?ceil|ceil_?divide", re.IGNORECASE)
DIM3 = re.compile(r"^dim3\s*[({](?P<sizes>.*)[)}]$", re.DOTALL)


class UnknownValue(ValueError):
    """The text does not say a value."""


@dataclass(frozen=True, kw_only=True)
class HostExpressions:
    """Resolves expressions in the functions that lead to one call.

    `symbols` are the kernel's sizes by the host's name for each, a pair of a frame's id and a name.
    Constants in `stay` keep their names; with `keeps_unknown` names without a known value do too.
    """

    constants: Mapping[str, int]
    symbols: Mapping[tuple[int, str], str] = field(default_factory=dict)
    stay: frozenset[str] = frozenset()
    keeps_unknown: bool = False

    def number(self, text: str, frame: Frame) -> int | float:
        """Return the value of an expression without names that stay. Raises UnknownValue."""
        return self._number(self.resolve(text, frame))

    def resolve(self, text: str, frame: Frame, item: int = 4, steps: int = MOST_STEPS) -> ast.expr:
        """Return an expression with its names resolved. Raises UnknownValue.

        `item` is the result of `sizeof` for a type that kopt does not know.
        """
        if match := _DEFAULT.match(text):
            text = match["value"]  # the default of an optional argument of the program
        text = without_casts(_SIZEOF.sub(
            lambda match: str(BYTES.get((match["type"] or "").strip(), item)), text))
        text = re.sub(r"\b\w*::", "", _SUFFIX.sub(r"\1", text))
        try:
            tree = ast.parse(source_constants.python_expression(text).replace("\n", " "),
                             mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise UnknownValue(text) from error
        return self._resolved(tree, frame, item, steps)

    def _resolved(self, node: ast.expr, frame: Frame, item: int, steps: int) -> ast.expr:
        match node:
            case ast.Constant(value=int() | float()):
                return node
            case ast.Name(id=name):
                return self._name(name, frame, item, steps)
            case ast.UnaryOp(op=ast.USub()):
                return ast.UnaryOp(ast.USub(), self._resolved(node.operand, frame, item, steps))
            case ast.BinOp():
                return _joined(self._resolved(node.left, frame, item, steps), node.op,
                               self._resolved(node.right, frame, item, steps))
            case ast.Subscript() | ast.Attribute() if symbol := self.symbols.get(
                    (id(frame), ast.unparse(node))):
                return ast.Name(id=symbol)
            case ast.Subscript() | ast.Attribute() if entry := self._entry(node, frame, steps):
                return self.resolve(*entry, item, steps - 1)
            case ast.Attribute(value=ast.Name(id=name), attr="x" | "y" | "z" as axis):
                sides = DIM3.match(frame.variables.get(name, ""))
                parts = split_parts(sides["sizes"]) if sides else []
                return self.resolve([*parts, "1", "1", "1"]["xyz".index(axis)], frame, item,
                                    steps - 1) if parts and steps else self._unknown(node)
            case ast.Call(func=ast.Attribute(value=value, attr="size")) if (
                    table := self._entry(value, frame, steps)):
                return ast.Constant(len(entries(table[0])))
            case ast.Call(func=ast.Name(id="ceil" | "ceilf"), args=[ast.BinOp(
                    left=left, op=ast.FloorDiv() | ast.Div(), right=right)]):
                return self._ceiling(left, right, frame, item, steps)
            case ast.Call(func=ast.Name(id=name), args=[left, right]) if _CEILING.fullmatch(name):
                return self._ceiling(left, right, frame, item, steps)
            case ast.Call(func=ast.Name(id=name)):
                known = MATH.get(name) or MATH.get(name.removesuffix("f"))
                values = [self._resolved(arg, frame, item, steps) for arg in node.args]
                if known and all(isinstance(value, ast.Constant) for value in values):
                    try:
                        return ast.Constant(known(*(value.value for value in values
                                                    if isinstance(value, ast.Constant))))
                    except (ArithmeticError, TypeError, ValueError) as error:
                        raise UnknownValue(name) from error
        return self._unknown(node)

    def _number(self, tree: ast.expr) -> int | float:
        try:
            value: int | float = expression.evaluate(tree, {})
        except (ArithmeticError, LookupError, TypeError) as error:
            raise UnknownValue(ast.unparse(tree)) from error
        if not math.isfinite(value):
            raise UnknownValue(ast.unparse(tree))
        return value

    def _entry(self, node: ast.expr, frame: Frame, steps: int) -> tuple[str, Frame] | None:
        """Return the text of a table's entry, and the function that has the table; None if none.
        """
        match node:
            case ast.Name(id=name):
                return where(name, frame)
            case ast.Subscript(value=value, slice=index) if steps > 0:
                row = self._entry(value, frame, steps)
                parts = entries(row[0]) if row else []
                at = self._number(self._resolved(index, frame, 4, steps - 1)) if parts else 0
                if row and isinstance(at, int) and 0 <= at < len(parts):
                    return parts[at], row[1]
            case ast.Attribute(value=value, attr=field):
                row = self._entry(value, frame, steps)
                while isinstance(value, ast.Subscript):
                    value = value.value
                fields = fields_of(value.id, frame) if isinstance(value, ast.Name) else []
                parts = entries(row[0]) if row else []
                if row and field in fields and len(parts) == len(fields):
                    return parts[fields.index(field)], row[1]
        return None

    def _ceiling(self, left: ast.expr, right: ast.expr, frame: Frame, item: int,
                 steps: int) -> ast.expr:
        """Return the quotient rounded up."""
        whole, part = (self._resolved(each, frame, item, steps) for each in (left, right))
        raised = ast.BinOp(ast.BinOp(whole, ast.Add(), part), ast.Sub(), ast.Constant(1))
        return ast.BinOp(raised, ast.FloorDiv(), part)

    def _depends(self, name: str, frame: Frame, item: int, steps: int) -> bool:
        """Return whether a host variable of this name is computed from the kernel's sizes."""
        try:
            return steps > 0 and name in frame.variables and bool(expression.names_in(self.resolve(
                frame.variables[name], frame, item, steps - 1)) & set(self.symbols.values()))
        except UnknownValue:
            return False

    def _unknown(self, node: ast.expr) -> ast.expr:
        raise UnknownValue(ast.unparse(node))

    def _name(self, name: str, frame: Frame, item: int, steps: int) -> ast.expr:
        if symbol := self.symbols.get((id(frame), name), self.symbols.get((EVERYWHERE, name))):
            return ast.Name(id=symbol)
        if name in self.stay and not self._depends(name, frame, item, steps):
            return ast.Name(id=name)
        try:
            if name in frame.variables and steps > 0:
                return self.resolve(frame.variables[name], frame, item, steps - 1)
            if frame.caller is not None and steps > 0:
                return self.resolve(frame.passed.get(name, name), frame.caller, item, steps - 1)
        except UnknownValue:
            if not self.keeps_unknown:
                raise
        if name in self.constants:
            return ast.Constant(self.constants[name])
        if not self.keeps_unknown or name in self.symbols.values():
            raise UnknownValue(name)
        return ast.Name(id=name)


def where(name: str, frame: Frame) -> tuple[str, Frame] | None:
    """Return a variable's text, and the function that it is in."""
    around: Frame | None = frame
    while around is not None:
        if name in around.variables:
            return around.variables[name], around
        name, around = around.passed.get(name, name).strip(), around.caller
    return None


def entries(table: str) -> list[str]:
    """Return the parts of a text `{...}`, [] of another."""
    inner = table.strip()
    return [part for part in split_parts(inner[1:-1]) if part] if inner.startswith("{") else []


def fields_of(name: str, frame: Frame) -> list[str]:
    """Return the fields of a struct that a variable has, [] if it has none."""
    found = where(f"{FIELDS}{name}", frame)
    while found and found[0].startswith(FIELDS):
        found = where(found[0], found[1])
    return [part.strip() for part in found[0].split(",")] if found else []


def without_casts(text: str) -> str:
    """Return an expression without casts to numbers."""
    return _CAST.sub("", text).strip()


def _joined(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr:
    """Return an operation. A division with a float literal is exact, any other rounds down."""
    match left, op, right:
        case _, ast.LShift(), _ if not expression.names_in(left) | expression.names_in(right):
            value, bits = expression.evaluate(left, {}), expression.evaluate(right, {})
            if isinstance(value, int) and isinstance(bits, int):
                return ast.Constant(value << max(0, min(bits, 62)))
        case _, ast.Add() | ast.Sub() | ast.Mult() | ast.Mod(), _:
            return ast.BinOp(left, op, right)
        case _, ast.FloorDiv(), _:
            is_float = any(isinstance(part, ast.Constant) and isinstance(part.value, float)
                           for side in (left, right) for part in ast.walk(side))
            return ast.BinOp(left, ast.Div() if is_float else op, right)
    raise UnknownValue(ast.unparse(ast.BinOp(left, op, right)))
