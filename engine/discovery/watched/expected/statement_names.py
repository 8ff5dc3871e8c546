"""Which names a statement of Python reads, defines and changes."""

from __future__ import annotations

import ast

from engine.discovery.watched.entry_source import Function

COMPARISONS = ("close", "equal", "compare", "check", "assert", "diff", "cosine", "ratio", "err")
"""Parts of the names of functions that compare a result with what is expected."""


def loads(node: ast.AST) -> set[str]:
    """Return the names that a node reads and does not define itself."""
    if isinstance(node, Function | ast.ClassDef):
        own = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        inner = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)
                 and isinstance(each.ctx, ast.Store)}
        return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)
                and isinstance(each.ctx, ast.Load)} - own - inner - {node.name}
    bound = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    bound |= {name.id for each in ast.walk(node) if isinstance(each, ast.comprehension)
              for name in ast.walk(each.target) if isinstance(name, ast.Name)}
    if isinstance(node, ast.For):
        bound |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)
            and isinstance(each.ctx, ast.Load)} - bound


def stores(node: ast.AST) -> set[str]:
    """Return the names that a statement defines or assigns to, also in part."""
    if isinstance(node, Function | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)
            and isinstance(each.ctx, ast.Store)} | updated(node)


def updated(node: ast.AST) -> set[str]:
    """Return the names of which a statement assigns a part, or which it reads as well."""
    names = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Subscript | ast.Attribute) and isinstance(each.ctx, ast.Store):
            base: ast.AST = each
            while isinstance(base, ast.Subscript | ast.Attribute):
                base = base.value
            names |= {base.id} if isinstance(base, ast.Name) else set()
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
            names.add(each.target.id)
    return names


def changed(node: ast.AST) -> set[str]:
    """Return the names that a call without a result may change: `ref.add_(x)`, `fill(out, x)`."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return set()
    name = ast.unparse(node.value.func).lower()
    if any(word in name for word in (*COMPARISONS, "print")) or (
            isinstance(node.value.func, ast.Attribute) and not name.endswith("_")
            and not node.value.args):
        return set()
    return loads(node.value)


def modules(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
