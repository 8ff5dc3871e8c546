"""Which names a statement of Python reads, defines and changes."""

from __future__ import annotations

import ast

from engine.discovery.watched.entry_source import Function

COMPARISONS = ("close", "equal", "compare", "check", "assert", "diff", "cosine", "ratio", "err")
"""Parts of the names of functions that compare a result with what is expected."""
GRADIENTS = ".grad"
"""Stands among names for the gradients that `backward` stores in tensors."""


def loads(node: ast.AST) -> set[str]:
    """Return the names that a node reads and does not define itself."""
    if isinstance(node, Function | ast.ClassDef):
        parameters = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
        inner = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)
                 and isinstance(part.ctx, ast.Store)}
        return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)
                and isinstance(part.ctx, ast.Load)} - parameters - inner - {node.name}
    if isinstance(node, ast.If):
        return loads(node.test) | _block_loads(node.body) | _block_loads(node.orelse)
    if isinstance(node, ast.For | ast.While):
        head = loads(node.iter) if isinstance(node, ast.For) else loads(node.test)
        target = stores(node.target) if isinstance(node, ast.For) else set()
        return head | (_block_loads(node.body) - target) | _block_loads(node.orelse)
    if isinstance(node, ast.With):
        return {name for item in node.items for name in loads(item)} | _block_loads(node.body)
    bound = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    bound |= {name.id for part in ast.walk(node) if isinstance(part, ast.comprehension)
              for name in ast.walk(part.target) if isinstance(name, ast.Name)}
    called = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    read = {GRADIENTS for part in ast.walk(node) if isinstance(part, ast.Attribute)
            and part.attr == "grad" and isinstance(part.ctx, ast.Load) and id(part) not in called}
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)
            and isinstance(part.ctx, ast.Load)} - bound | read


def _block_loads(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements read before they define them."""
    read, defined = set[str](), set[str]()
    for node in body:
        read |= (loads(node) | updated(node)) - defined
        defined |= stores(node)
    return read


def stores(node: ast.AST) -> set[str]:
    """Return the names that a statement defines or assigns to, also in part."""
    if isinstance(node, Function | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    stored = {GRADIENTS for part in ast.walk(node) if isinstance(part, ast.Call)
              and isinstance(part.func, ast.Attribute) and part.func.attr == "backward"}
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)
            and isinstance(part.ctx, ast.Store)} | updated(node) | stored


def updated(node: ast.AST) -> set[str]:
    """Return the names that a statement updates (`+=`), or whose elements or attributes it sets."""
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store):
            base: ast.AST = part
            while isinstance(base, ast.Subscript | ast.Attribute):
                base = base.value
            names |= {base.id} if isinstance(base, ast.Name) else set()
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            names.add(part.target.id)
    return names


def changed(node: ast.AST) -> set[str]:
    """Return the names that a call as a statement may change: `ref.add_(x)`, `fill(out, x)`."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return set()
    name = ast.unparse(node.value.func).lower()
    if any(word in name for word in (*COMPARISONS, "print", "backward")) or (
            isinstance(node.value.func, ast.Attribute) and not name.endswith("_")
            and not node.value.args):
        return set()
    return loads(node.value)


def modules(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
