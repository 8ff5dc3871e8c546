"""Look up names in a Triton source: the value of a variable, kernels that multiply matrices."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def products(module: ast.Module) -> set[str]:
    """Return the names of the functions that multiply matrices with `tl.dot`."""
    return {function.name for function in ast.walk(module)
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(node, ast.Call) and ast.unparse(node.func) in ("tl.dot", "tl.dot_scaled")
                for node in ast.walk(function))}


def only_value(function: ast.FunctionDef, module: ast.Module,
               node: ast.expr) -> ast.expr | None:
    """Return the one literal assigned to a variable in a function, else in its module; or None."""
    if not isinstance(node, ast.Name) or node.id in {arg.arg for arg in ast.walk(function.args)
                                                     if isinstance(arg, ast.arg)}:
        return None
    stored, values = _values(function, node.id)
    if not stored:
        stored, values = _values(module, node.id)
    return values[0] if stored == len(values) == 1 else None


def _values(scope: ast.AST, name: str) -> tuple[int, list[ast.expr]]:
    """Return how often a name is assigned, and the literals assigned to it."""
    stores = {each for each in ast.walk(scope) if isinstance(each, ast.Name)
              and each.id == name and isinstance(each.ctx, ast.Store)}
    pairs = [pair for each in ast.walk(scope) if isinstance(each, ast.Assign)
             for pair in _pairs(each.targets[0], each.value)]
    return len(stores), [value for target, value in pairs
                         if target in stores and isinstance(value, ast.Constant)]


def _pairs(target: ast.expr, value: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    """Return an assignment's pairs of target and value: `a, b = 1, 2` has two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) \
            and len(target.elts) == len(value.elts):
        return zip(target.elts, value.elts, strict=True)
    return [(target, value)]
