"""Requirements on a configuration: expressions over knobs that a legal one fulfils.

Nothing is ever executed: only arithmetic, comparisons and logic on numbers and known names is
understood, with the meaning that Python gives it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from harness.errors import InputError

Value = int | float | str
MOST_CHARACTERS = 400
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}


@dataclass(frozen=True)
class Requirement:
    """One requirement, as it is written and as it is understood."""

    text: str
    tree: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """The knobs that it is about."""
        return frozenset(_names(self.tree))

    def met(self, names: Mapping[str, Value]) -> bool:
        """Return whether values meet it.

        What cannot be computed (a division by zero, a comparison of a word with a number) is not
        met; both sides of an `or` are computed.
        """
        try:
            return bool(_walk(self.tree, names))
        except (ArithmeticError, TypeError):
            return False

    def bound(self, values: Mapping[str, Any]) -> Requirement:
        """Return the requirement with some names replaced by their values."""
        tree = _Binder(values).visit(ast.parse(self.text, mode="eval")).body
        return Requirement(ast.unparse(tree), tree)

    def amounts(self, free: frozenset[str]) -> list[ast.expr]:
        """Return the arithmetic in it that joins two names of `free` or more.

        Such products and sums, threads in a block or bytes of a tile, are what the limits of a
        machine are about.
        """
        return [node for node in ast.walk(self.tree)
                if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Mod)
                and len(_names(node) & free) > 1]


def parse(text: str, names: Sequence[str], where: str = "", *,
          most: int = MOST_CHARACTERS) -> Requirement:
    """Read a requirement. Raises InputError for what is no such expression over `names`."""
    if len(text) > most:
        raise InputError(f"requirement is too long: {text[:40]}…", where=where)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _check(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InputError(f"cannot read the requirement {text[:80]!r}: {error}", where=where,
                         fix="write: kopt: require A * B <= 1024") from None
    unknown = _names(tree) - set(names)
    if unknown:
        raise InputError(f"unknown name {sorted(unknown)[0]!r} in the requirement {text[:80]!r}",
                         where=where, fix=f"knobs are {', '.join(names) or 'none'}")
    return Requirement(text.strip(), tree)


class _Binder(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.values[node.id]) if node.id in self.values else node


def value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Evaluate arithmetic out of a requirement, also for arrays; raises as that does."""
    return _walk(node, names)


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _check(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=int() | float() | str()) | ast.Name():
            return
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            parts = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            parts = [node.operand]
        case ast.BoolOp():
            parts = node.values
        case ast.Compare() if all(type(op) in _COMPARISONS for op in node.ops):
            parts = [node.left, *node.comparators]
        case _:
            raise ValueError(f"{ast.unparse(node)[:40]!r} is not understood")
    for part in parts:
        _check(part)


def _walk(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.BinOp():
            left, right = _walk(node.left, names), _walk(node.right, names)
            if isinstance(left, str) or isinstance(right, str):
                raise TypeError("words are compared, not reckoned with")  # 'x' * 10**12, '%9999d'
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.UnaryOp(op=ast.USub()):
            return -_walk(node.operand, names)
        case ast.UnaryOp():
            return (_walk(node.operand, names) == 0) * 1
        case ast.BoolOp():
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return reduce(join, (_walk(part, names) != 0 for part in node.values)) * 1
        case ast.Compare():
            sides = [_walk(part, names) for part in (node.left, *node.comparators)]
            held = (_COMPARISONS[type(op)](left, right) for op, left, right
                    in zip(node.ops, sides, sides[1:], strict=False))
            return reduce(operator.and_, held) * 1
    raise AssertionError("parse() lets nothing else through")
