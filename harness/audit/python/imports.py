"""Checks the imports of a Python source; the base of all checks of Python sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_names import NAMES, AuditRule, python_rule
from harness.audit.python.names import Module
from harness.verdict import Severity


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


class Imports:
    """One source under audit, with the checks of its imports."""

    def __init__(self, module: Module, context: Context) -> None:
        self.module, self.context = module, context

    def see(self, node: ast.AST, rule: AuditRule, name: str = "", *,
            severity: Severity | None = None) -> Sighting:
        effective = "note" if node in self.module.guarded else severity or rule.severity
        what = f"{rule.why}: {name}" if name else rule.why
        return Sighting(rule=rule.rule, severity=effective, what=what, file=self.module.file,
                        line=getattr(node, "lineno", 0), text=self.module.text(node))

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Sighting]:
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        else:
            names = [(self.module.relative(node), alias.name) for alias in node.names]
        relative = isinstance(node, ast.ImportFrom) and node.level > 0
        for module, name in names:
            yield from self._module(node, module, name, relative)
            full = f"{module}.{name}" if name else module
            if (rule := python_rule(full)) and rule.rule in ("network", "frame-walk") \
                    and not (relative or self._is_own(module)):
                yield self.see(node, rule, full)

    def _module(self, node: ast.AST, module: str, name: str = "",
                relative: bool = False) -> Iterator[Sighting]:
        """Check a module that is imported or looked up by name."""
        top = module.partition(".")[0]
        if self._is_reference(module) or (name and self._is_reference(f"{module}.{name}")):
            harmless = name not in ("", "*", self.context.function) \
                and self._is_reference(module)
            yield self.see(node, AuditRule("delegation", "flag" if harmless else "reject",
                                      "imports the reference"))
        elif not relative and not self._is_own(top) and top in NAMES["harness"]:
            yield self.see(node, AuditRule("frame-walk", "reject", "imports the harness"), top)

    def _is_reference(self, module: str) -> bool:
        full = self.context.reference
        return bool(full and module) and (
            module == full or full.endswith(f".{module}") or module.endswith(f".{full}"))

    def _is_own(self, module: str) -> bool:
        return module.partition(".")[0] in self.context.own
