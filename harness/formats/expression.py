"""Arithmetic in task files: sizes and amounts from the names of a class's shape."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from harness.errors import InputError

Number = int | float

_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}


def evaluate_expression(expression: int | float | str, names: Mapping[str, int]) -> Number:
    """Evaluate arithmetic over a class's shape names, such as `2*m*n*k`.

    Raises InputError for anything else than + - * / // % on numbers and known names.
    """
    if not isinstance(expression, str):
        return expression
    if len(expression) > 200:
        raise InputError("expression is too long", where=expression[:40] + "…")

    def walk(node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.Name(id=name):
                raise InputError(f"unknown name {name!r} in {expression!r}",
                                 fix=f"a class's shape gives {', '.join(names) or 'no names'}")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](walk(left), walk(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -walk(operand)
        raise InputError(f"cannot evaluate {expression!r}", fix="use + - * / // % on shape names")

    try:
        return walk(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, MemoryError):
        raise InputError(f"cannot read the expression {expression!r}") from None
    except (ZeroDivisionError, OverflowError, RecursionError) as error:
        raise InputError(f"cannot evaluate {expression!r}: {error}") from None


def whole(expression: int | float | str, names: Mapping[str, int]) -> int:
    """Evaluate an expression that must give a whole number."""
    value = evaluate_expression(expression, names)
    if isinstance(value, float) and not value.is_integer():
        raise InputError(f"{expression!r} gives {value}, a whole number is needed",
                         fix="use // to divide")
    return int(value)
