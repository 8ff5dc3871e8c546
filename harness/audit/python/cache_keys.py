"""Finds caches in Python sources that recognise a tensor by its identity, not its contents."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.audit.findings.watched_names import NAMES
from harness.audit.python.key_flow import Flow, Probe, last_name
from harness.audit.python.names import Module
from harness.audit.python.source_tree import parameters

_MEMOS = ("functools.lru_cache", "functools.cache", "cachetools", "functools.cached_property")


@dataclass(frozen=True, kw_only=True)
class CacheKey:
    """A lookup by a tensor's identity; `mapped` if its names are the task's arguments."""

    file: str
    line: int
    text: str
    probes: frozenset[Probe]
    mapped: bool

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(p.kind for p in self.probes)

    @property
    def args(self) -> frozenset[str]:
        return frozenset(name for p in self.probes for name in p.args)

    @property
    def what(self) -> str:
        return f"remembers {', '.join(sorted(self.args)) or 'a tensor'} by " \
               f"{', '.join(sorted(self.kinds))}"


def find(module: Module, entry: str | None, args: Iterable[str | None]) -> list[CacheKey]:
    """Return the cache keys of a module.

    `args` are the task's argument names in call order, None for scalars. They are followed through
    the entry's parameters and the functions that it passes them to.
    """
    return _CacheKeyFinder(module, entry, tuple(args)).cache_keys()


class _CacheKeyFinder(Flow):
    def cache_keys(self) -> list[CacheKey]:
        keys: dict[tuple[int, frozenset[Probe]], CacheKey] = {}
        for node in self.module.nodes:
            probes = frozenset(self._key(node))
            if probes and node not in self.module.in_main:
                line = getattr(node, "lineno", 0)
                names = {name for probe in probes for name in probe.args}
                keys[line, probes] = CacheKey(
                    file=self.module.file, line=line, text=self.module.text(node), probes=probes,
                    mapped=bool(names) and names <= {a for a in self.args if a})
        return list(keys.values())

    def _key(self, node: ast.AST) -> Iterator[Probe]:
        """Yield the probes that a lookup or a comparison uses as its key."""
        if isinstance(node, ast.Subscript) and self._is_kept(node.value):
            yield from self._as_key(node.slice)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in NAMES["lookups"] \
                    and node.args and self._is_kept(node.func.value):
                yield from self._as_key(node.args[0])
            callee = self.functions.get(last_name(node.func))
            if callee is not None and any(
                    name.startswith(_MEMOS) for name in self.module.decorators(callee)):
                for argument in (*node.args, *(k.value for k in node.keywords)):
                    yield from self._as_key(argument)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
                yield from self._compared(op, left, right)

    def _as_key(self, node: ast.AST) -> Iterator[Probe]:
        yield from self._probes(node)
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        for part in parts:
            if isinstance(part, ast.Name | ast.Attribute | ast.Call) and self._is_tensor(part):
                yield Probe("id", frozenset(self._args_of(part)))

    def _compared(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Iterator[Probe]:
        if isinstance(op, ast.In | ast.NotIn):
            if self._is_kept(right):
                yield from self._as_key(left)
            return
        for ours, theirs in ((left, right), (right, left)):
            if not self._is_kept(theirs) or self._is_kept(ours):
                continue
            if isinstance(op, ast.Eq | ast.NotEq):
                yield from self._probes(ours)
            elif isinstance(op, ast.Is | ast.IsNot) and self._changes(theirs) \
                    and (self._is_tensor(ours) or self._is_unknown(ours)) \
                    and (probe := self._probe("is", ours)) is not None:
                yield probe

    def _changes(self, node: ast.expr) -> bool:
        """Return whether a name is a stored value, not a module constant such as a sentinel."""
        if not isinstance(node, ast.Name):
            return True
        return node.id in self.rebound or (self._scope(node), node.id) in self.kept

    def _is_unknown(self, node: ast.expr) -> bool:
        """Return whether a name is a parameter with no known origin, which may be a tensor."""
        scope = self._scope(node)
        return isinstance(node, ast.Name) and scope is not None \
            and node.id in parameters(scope) and (scope, node.id) not in self.origin
