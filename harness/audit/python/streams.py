"""Checks that work on a side stream is always joined before the caller continues."""

from __future__ import annotations

import ast

from harness.audit.python.names import Module

_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.With,
             ast.AsyncWith, ast.ExceptHandler, ast.match_case, ast.ClassDef)
_USES = frozenset({"torch.cuda.stream", "torch.cuda.set_stream", "torch.cuda.StreamContext"})


class Streams:
    """The places where a module uses side streams and where it waits for them."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._waits = [n for n in module.nodes if isinstance(n, ast.Call) and self._joins(n)][:100]
        self._leaves = [n for n in module.nodes
                        if isinstance(n, ast.Return | ast.Break | ast.Continue | ast.Yield)]

    def joined(self, node: ast.AST, *, made: bool) -> bool:
        """Return whether the stream used at `node` is waited for.

        A stream that is only created there (`made`) may be used elsewhere; then every use counts.
        """
        if not made:
            return self._joined(node)
        uses = [n for n in self._module.nodes if isinstance(n, ast.Call)
                and self._module.dotted(n.func) & _USES]
        inside = next(self._module.enclosing(node), None) is not None
        return all(self._joined(n) for n in uses) if uses else inside and self._joined(node)

    def _joined(self, node: ast.AST) -> bool:
        """Return whether every path through the function waits for a stream after `node`."""
        function, line, around = self._function(node), getattr(node, "lineno", 0), \
            self._branches(node)
        waits = [n.lineno for n in self._waits if n.lineno > line
                 and self._function(n) is function and self._branches(n) <= around]
        return bool(waits) and not any(line <= n.lineno <= min(waits) for n in self._leaves
                                       if self._function(n) is function)

    def _function(self, node: ast.AST) -> ast.AST:
        return next(self._module.enclosing(node), self._module.tree)

    def _branches(self, node: ast.AST) -> set[tuple[ast.AST, str]]:
        """Return the parts of compound statements around a node within its function: each may be
        left out. Statements below `finally` are not.
        """
        statements: set[tuple[ast.AST, str]] = set()
        function = self._function(node)
        while node is not function and (above := self._module.parents.get(node)) is not None:
            if isinstance(above, _COMPOUND):
                part = next(field for field, value in ast.iter_fields(above) if value is node
                            or (isinstance(value, list) and node in value))
                if part != "finalbody":
                    statements.add((above, part))
            node = above
        return statements

    def _joins(self, call: ast.Call) -> bool:
        """Return whether the current stream, or the host, waits here for another stream."""
        if not isinstance(call.func, ast.Attribute) \
                or not isinstance(self._module.parents.get(call), ast.Expr):
            return False
        if call.func.attr == "synchronize":
            return True
        return call.func.attr in ("wait_stream", "wait_event") \
            and self._is_current(call.func.value)

    def _is_current(self, node: ast.AST) -> bool:
        values = self._module.assigned.get(node.id, []) if isinstance(node, ast.Name) else [node]
        return any(isinstance(n, ast.Attribute) and n.attr == "current_stream"
                   for value in values for n in ast.walk(value))
