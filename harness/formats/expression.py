"""Evaluate small expressions safely: the sizes of a task file, the requirements of knobs.

Nothing is executed. An expression is arithmetic on numbers and names; with `logic` it may also
compare, join with `and`, `or`, `not`, and contain quoted strings. Values may be numpy arrays.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from harness.errors import InputError

Number = int | float
MOST_CHARACTERS = 200
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}


class UnsupportedExpression(ValueError):
    """A part of an expression is neither arithmetic nor, where that is allowed, logic."""


def parse(text: str, *, logic: bool = False) -> ast.expr:
    """Return an expression's tree, which `evaluate` takes.

    Raises UnsupportedExpression for a part that is not allowed; SyntaxError, ValueError,
    MemoryError or RecursionError if the text is not a Python expression.
    """
    tree = ast.parse(text, mode="eval").body
    _check(tree, logic)
    return tree


def names_in(tree: ast.AST) -> set[str]:
    """Return the names that an expression uses."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of a parsed expression; comparisons and logic give 1 or 0.

    Both sides of `and` and `or` are evaluated. Raises ArithmeticError, and TypeError for arithmetic
    on strings, which could fill the memory ('x' * 10**12).
    """
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.BinOp():
            left, right = evaluate(node.left, names), evaluate(node.right, names)
            if isinstance(left, str) or isinstance(right, str):
                raise TypeError("no arithmetic on words")
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.UnaryOp(op=ast.USub()):
            return -evaluate(node.operand, names)
        case ast.UnaryOp():
            return (evaluate(node.operand, names) == 0) * 1
        case ast.BoolOp():
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return reduce(join, (evaluate(part, names) != 0 for part in node.values)) * 1
        case ast.Compare():
            sides = [evaluate(part, names) for part in (node.left, *node.comparators)]
            results = (_COMPARISONS[type(op)](left, right) for op, left, right
                       in zip(node.ops, sides, sides[1:], strict=False))
            return reduce(operator.and_, results) * 1
    raise AssertionError("parse() allows nothing else")


def names_of(expression: str) -> set[str]:
    """Return the names in an expression such as `2*m*n*k`. Raises InputError."""
    return names_in(_parsed(expression))


def evaluate_expression(expression: int | float | str, names: Mapping[str, int]) -> Number:
    """Evaluate + - * / // % over shape names, such as `2*m*n*k`. Raises InputError."""
    if not isinstance(expression, str):
        return expression
    tree = _parsed(expression)
    if unknown := sorted(names_in(tree) - names.keys()):
        raise InputError(f"unknown name {unknown[0]!r} in {expression!r}",
                         fix=f"a class's shape gives {', '.join(names) or 'no names'}")
    try:
        value: Number = evaluate(tree, names)
    except (ArithmeticError, RecursionError) as error:
        raise InputError(f"cannot evaluate {expression!r}: {error}") from None
    return value


def _parsed(expression: str) -> ast.expr:
    if len(expression) > MOST_CHARACTERS:
        raise InputError("expression is too long", where=expression[:40] + "…")
    try:
        return parse(expression)
    except UnsupportedExpression:
        raise InputError(f"cannot evaluate {expression!r}",
                         fix="use + - * / // % on shape names") from None
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(f"cannot read the expression {expression!r}") from None


def whole(expression: int | float | str, names: Mapping[str, int]) -> int:
    """Evaluate an expression that must give a whole number. Raises InputError."""
    value = evaluate_expression(expression, names)
    if isinstance(value, float) and not value.is_integer():
        raise InputError(f"{expression!r} gives {value}, a whole number is needed",
                         fix="use // to divide")
    return int(value)


def _check(node: ast.expr, logic: bool) -> None:
    parts: list[ast.expr] = []
    match node:
        case ast.Constant(value=value) if type(value) in ((int, float, bool, str) if logic
                                                          else (int, float)):
            pass
        case ast.Name():
            pass
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            parts = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub()):
            parts = [node.operand]
        case ast.UnaryOp(op=ast.Not()) if logic:
            parts = [node.operand]
        case ast.BoolOp() if logic:
            parts = node.values
        case ast.Compare() if logic and all(type(op) in _COMPARISONS for op in node.ops):
            parts = [node.left, *node.comparators]
        case _:
            raise UnsupportedExpression(f"{ast.unparse(node)[:40]!r} is not understood")
    for part in parts:
        _check(part, logic)
