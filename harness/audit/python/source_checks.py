"""Checks imports, opened files, environment variables and texts of a Python source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_names import (
    ATTRIBUTES,
    NAMES,
    AuditRule,
    python_rule,
    reads_clock,
    watched_text,
)
from harness.audit.python.names import Module

_FORMAT_FIELD = re.compile(r"\{([^{}]*)\}")
_WORDS = re.compile(r"\w+(?:\.\w+)*")
_FOLDERS = re.compile(r"HOME|TE?MP|PWD|^PATH$|XDG|CACHE_|KOPT|PYTHON|LD_|INJECTION")
"""Environment variables that name folders of the runner, or what is loaded into it."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a source is checked against: the reference and the project's own modules."""

    reference: str = ""
    function: str = ""
    modules: frozenset[str] = frozenset()
    """The project's own modules, as the kernel would import them, with their packages."""

    @cached_property
    def own(self) -> frozenset[str]:
        """The top-level names of the project's own modules."""
        return frozenset(name.partition(".")[0] for name in self.modules)


class SourceChecks:
    """One source under audit."""

    def __init__(self, module: Module, context: Context) -> None:
        self.module, self.context = module, context
        self.see = module.see

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Sighting]:
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        else:
            names = [(self.module.relative(node), alias.name) for alias in node.names]
        is_relative = isinstance(node, ast.ImportFrom) and node.level > 0
        for module, name in names:
            yield from self._module(node, module, name, is_relative)
            full = f"{module}.{name}" if name else module
            if (rule := python_rule(full)) and rule.rule in ("network", "frame-walk") \
                    and not (is_relative or self._is_own(module)):
                yield self.see(node, rule, full)

    def _module(self, node: ast.AST, module: str, name: str = "",
                is_relative: bool = False) -> Iterator[Sighting]:
        """Check a module that is imported or looked up by name."""
        top = module.partition(".")[0]
        if self._is_reference(module) or (name and self._is_reference(f"{module}.{name}")):
            harmless = name not in ("", "*", self.context.function) \
                and self._is_reference(module)
            yield self.see(node, AuditRule("delegation", "flag" if harmless else "reject",
                                      "imports the reference"))
        elif not is_relative and not self._is_own(top) and top in NAMES["harness"]:
            yield self.see(node, AuditRule("frame-walk", "reject", "imports the harness"), top)

    def _is_reference(self, module: str) -> bool:
        full = self.context.reference
        return bool(full and module) and (
            module == full or full.endswith(f".{module}") or module.endswith(f".{full}"))

    def _is_own(self, module: str) -> bool:
        return module.partition(".")[0] in self.context.own

    def _loaded(self, node: ast.AST, key: ast.expr) -> Iterator[Sighting]:
        """Check which module is taken from `sys.modules`; a source may take its own."""
        word = self.module.fold(key)
        if word == "__main__":
            yield self.see(node, AuditRule("frame-walk", "reject", "looks up the runner"))
        elif word is not None:
            yield from self._module(node, word)
        elif not is_own_name(key):
            yield self.see(node, AuditRule("frame-walk", "flag", "looks up a loaded module"))

    def _environment(self, node: ast.AST, key: ast.AST) -> Iterator[Sighting]:
        name = self.module.fold(key)
        if name is None or _FOLDERS.search(name):
            yield self.see(node, AuditRule("files", "flag", "reads the environment"), name or "")

    def _open(self, node: ast.Call, name: str) -> Iterator[Sighting]:
        named = {k.arg: k.value for k in node.keywords}
        path = node.args[0] if node.args else \
            next((named[key] for key in ("file", "f", "path") if key in named), None)
        text = self.module.fold(path)
        mode = self.module.fold(node.args[1] if len(node.args) > 1 else named.get("mode"))
        is_beside_source = "__file__" in self.module.words(node)
        if name.startswith("pathlib.") and (path is None or is_beside_source):
            return
        if mode and set(mode) & set("wax+"):
            yield self.see(node, AuditRule("files", "flag", "writes a file"), name)
        elif text is None:
            if not is_beside_source or ".." in " ".join(self.module.words(node)):
                yield self.see(node, AuditRule("files", "flag", "opens a computed path"), name)
        elif text.startswith(("/", "~")) or ".." in text.split("/"):
            yield self.see(node, AuditRule("files", "flag", "opens a file outside the project"))
        elif self.context.reference and text.endswith(".py") \
                and self._is_reference(text.removesuffix(".py").replace("/", ".")):
            yield self.see(node, AuditRule("files", "reject", "reads the reference"))
        elif name in ("numpy.load", "torch.load"):
            yield self.see(node, AuditRule("files", "flag", "loads stored data"), name)

    def _text(self, node: ast.AST, text: str) -> Iterator[Sighting]:
        for rule, name in watched_text(text):
            yield self.see(node, rule, name)
        plain = _WORDS.fullmatch(text)
        for word in re.findall(r"\w+", text if plain else " ".join(_FORMAT_FIELD.findall(text))):
            watched = ATTRIBUTES.get(word)
            if watched is not None and watched.rule == "frame-walk":
                yield self.see(node, watched, word, severity="flag" if plain else None)
        if reads_clock(text) and "__global__" not in text:
            yield self.see(node, AuditRule("timing", "flag", "reads a clock in assembly"))
        if "kopt_kernel" in text or "kopt_reference" in text or text.startswith("KOPT_"):
            yield self.see(node, AuditRule("frame-walk", "flag", "names a part of the harness"))


def is_own_name(key: ast.AST) -> bool:
    return isinstance(key, ast.Name) and key.id == "__name__"


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

        A stream that is only created there (`made`) may be used elsewhere: each use must be waited
        for.
        """
        if not made:
            return self._joined(node)
        uses = [n for n in self._module.nodes if isinstance(n, ast.Call)
                and self._module.dotted(n.func) & _USES]
        is_in_function = next(self._module.enclosing(node), None) is not None
        return all(self._joined(n) for n in uses) if uses else is_in_function and self._joined(node)

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
        """Return the parts of compound statements around a node that may be skipped."""
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
