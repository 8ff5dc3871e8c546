"""Requirements: expressions (`formats.expression`) that every legal configuration fulfils."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import InputError
from harness.formats import expression
from harness.formats.expression import evaluate, names_in
from harness.verdict import Value

MOST_CHARACTERS = 400


@dataclass(frozen=True)
class Requirement:
    """One requirement: its text and its parsed form."""

    text: str
    tree: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """The knobs that it names."""
        return frozenset(names_in(self.tree))

    def met(self, names: Mapping[str, Value]) -> bool:
        """Return whether values meet it; False if it cannot be computed, as for a division by 0."""
        try:
            return bool(evaluate(self.tree, names))
        except (ArithmeticError, TypeError):
            return False

    def bound(self, values: Mapping[str, Any]) -> Requirement:
        """Return the requirement with some names replaced by their values."""
        tree = _Binder(values).visit(ast.parse(self.text, mode="eval")).body
        return Requirement(ast.unparse(tree), tree)

    def amounts(self, free: frozenset[str]) -> list[ast.expr]:
        """Return its arithmetic terms over two or more names of `free`, such as `A * B`."""
        return [node for node in ast.walk(self.tree)
                if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Mod)
                and len(names_in(node) & free) > 1]


def parse(text: str, names: Sequence[str], where: str = "", *,
          most: int = MOST_CHARACTERS) -> Requirement:
    """Parse a requirement. Raises InputError unless it is an expression in `names`."""
    if len(text) > most:
        raise InputError(f"requirement is too long: {text[:40]}…", where=where)
    try:
        tree = expression.parse(text.strip(), logic=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InputError(f"cannot read the requirement {text[:80]!r}: {error}", where=where,
                         fix="write: kopt: require A * B <= 1024") from None
    unknown = names_in(tree) - set(names)
    if unknown:
        raise InputError(f"unknown name {sorted(unknown)[0]!r} in the requirement {text[:80]!r}",
                         where=where, fix=f"the knobs are {', '.join(names)}" if names else
                         "declare a knob first")
    return Requirement(text.strip(), tree)


class _Binder(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.values[node.id]) if node.id in self.values else node
