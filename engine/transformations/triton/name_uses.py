"""The names in a part of a Python source: which it mentions, reads and assigns."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping


def names(node: ast.AST, kind: type[ast.expr_context] = ast.expr_context) -> list[str]:
    """Return the names of a part, in the order of `ast.walk`, each as often as it stands there."""
    return [own.id for own in ast.walk(node)
            if isinstance(own, ast.Name) and isinstance(own.ctx, kind)]


def stored(node: ast.AST) -> list[str]:
    """Return the names that a part assigns, each as often."""
    return names(node, ast.Store)


def loaded(node: ast.AST) -> list[str]:
    """Return the names that a part reads, each as often."""
    return names(node, ast.Load)


def target_of(statement: ast.Assign | ast.AugAssign) -> ast.expr:
    return statement.target if isinstance(statement, ast.AugAssign) else statement.targets[0]


class WithValues(ast.NodeTransformer):
    """Replaces names by values."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._values.get(node.id, node))
