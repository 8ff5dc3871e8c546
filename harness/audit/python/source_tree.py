"""One Python source as a syntax tree: its nodes, what surrounds them, and sightings at them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import cached_property

from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_names import AuditRule
from harness.verdict import Severity

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class UnreadableSource(Exception):
    """The text is not Python, or nested too deeply."""


class SourceTree:
    """One parsed source."""

    def __init__(self, data: bytes, file: str) -> None:
        self.file = file
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError, LookupError) as error:
            raise UnreadableSource(type(error).__name__) from None
        self.lines = data.decode("utf-8", "replace").splitlines()
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = [self.tree]
        for node in self.nodes:  # the list grows during the loop: breadth first, no recursion
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                self.nodes.append(child)

    def text(self, node: ast.AST) -> str:
        line = getattr(node, "lineno", 0)
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""

    def see(self, node: ast.AST, rule: AuditRule, name: str = "", *,
            severity: Severity | None = None, runs: bool = False) -> Sighting:
        """Return a sighting at a node: a note in a main program, unless the node `runs`."""
        is_in_main = not runs and node in self.in_main
        return Sighting(
            rule=rule.rule, severity="note" if is_in_main else severity or rule.severity,
            what=f"{rule.why}: {name}" if name else rule.why, file=self.file,
            line=getattr(node, "lineno", 0), text=self.text(node))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def enclosing(self, node: ast.AST) -> Iterator[Function]:
        """Yield the functions around a node, innermost first."""
        above = self.parents.get(node)
        while above is not None:
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield above
            above = self.parents.get(above)

    def relative(self, node: ast.ImportFrom) -> str:
        """Return the dotted module of a from-import, relative to the project's root."""
        if not node.level:
            return node.module or ""
        package = self.file.replace("\\", "/").split("/")[:-1]
        base = package[: max(0, len(package) - node.level + 1)]
        return ".".join([*base, *([node.module] if node.module else [])])

    @cached_property
    def own(self) -> frozenset[str]:
        """Return the names of the module's own top-level functions and classes."""
        return frozenset(n.name for n in self.tree.body
                         if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))

    @cached_property
    def stored(self) -> frozenset[str]:
        """Return every name that is assigned anywhere, without parameters."""
        return frozenset(n.id for n in self.nodes
                         if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))

    @cached_property
    def in_main(self) -> frozenset[ast.AST]:
        """Return the nodes below `if __name__ == "__main__"`, which never run in a kernel.

        None if the source sets `__name__` itself.
        """
        return frozenset() if "__name__" in self.stored else frozenset(
            inner for node in self.tree.body if isinstance(node, ast.If)
            and ast.unparse(node.test) == "__name__ == '__main__'"
            for statement in node.body for inner in ast.walk(statement))


def parameters(function: Function) -> list[str]:
    """Return a function's parameter names in order, `*args` and `**kwargs` last."""
    spec = function.args
    plain = [a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    return plain + [a.arg for a in (spec.vararg, spec.kwarg) if a is not None]


def defaults(function: Function) -> list[tuple[str, ast.expr]]:
    """Return the parameters that have a default, each with its default."""
    spec = function.args
    last = zip(reversed([*spec.posonlyargs, *spec.args]), reversed(spec.defaults), strict=False)
    return [(a.arg, value) for a, value in
            (*last, *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)) if value is not None]


def root(node: ast.AST) -> ast.AST:
    """Return what a chain of attributes, subscripts and method calls starts from."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return node
