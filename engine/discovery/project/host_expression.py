"""Resolves the names in a C expression of a host program: to numbers, or to a kernel's sizes."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.discovery.project.device_sources import split_parts
from engine.discovery.project.host_program import BYTES, Frame
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
        """Return the value of an expression, if no name is left in it. Raises UnknownValue."""
        tree = self.resolve(text, frame)
        try:
            value: int | float = expression.evaluate(tree, {})
        except (ArithmeticError, LookupError, TypeError) as error:
            raise UnknownValue(text) from error
        if not math.isfinite(value):
            raise UnknownValue(text)
        return value

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
            case ast.Attribute(value=ast.Name(id=name), attr="x" | "y" | "z" as axis):
                sides = DIM3.match(frame.variables.get(name, ""))
                parts = split_parts(sides["sizes"]) if sides else []
                return self.resolve([*parts, "1", "1", "1"]["xyz".index(axis)], frame, item,
                                    steps - 1) if parts and steps else self._unknown(node)
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


def without_casts(text: str) -> str:
    """Return an expression without casts to numbers."""
    return _CAST.sub("", text).strip()


def _joined(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr:
    """Return an operation. A division with a float literal is exact, any other rounds down."""
    match left, op, right:
        case ast.Constant(value=int() as value), ast.LShift(), ast.Constant(value=int() as bits):
            return ast.Constant(value << min(bits, 62))
        case _, ast.Add() | ast.Sub() | ast.Mult() | ast.Mod(), _:
            return ast.BinOp(left, op, right)
        case _, ast.FloorDiv(), _:
            is_float = any(isinstance(part, ast.Constant) and isinstance(part.value, float)
                           for side in (left, right) for part in ast.walk(side))
            return ast.BinOp(left, ast.Div() if is_float else op, right)
    raise UnknownValue(ast.unparse(ast.BinOp(left, op, right)))
