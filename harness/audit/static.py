"""Audits a candidate's sources against the baseline's: the second line of defence.

A finding here proves no cheat, and an audit of text can be evaded; the dynamic checks come first.
Only what is new is reported: what the baseline already does is its owner's choice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

from harness.audit.c import memory as c_memory
from harness.audit.c import scan_c
from harness.audit.c.source import CSource
from harness.audit.findings import sighting
from harness.audit.findings.sighting import Sighting, unread
from harness.audit.findings.tree_diff import (
    C_SUFFIXES,
    MAX_SOURCE_BYTES,
    PYTHON_SUFFIXES,
    Changes,
    Tree,
)
from harness.audit.findings.watched_names import NAMES
from harness.audit.python import cache_keys, delegation, scan_python
from harness.audit.python.cache_keys import CacheKey
from harness.audit.python.names import Module
from harness.audit.python.source_checks import Context
from harness.tasks.target import Target
from harness.verdict import Finding

_INSIDE = re.compile(r"__global__|__device__|#\s*include\s*[<\"]|\basm\s*(?:volatile)?\s*\(")


class AuditedChange:
    """A candidate's changed sources, and the baseline's sources that they replace."""

    def __init__(self, target: Target, changes: Changes) -> None:
        self.target, self.changes = target, changes
        self.candidate = AuditedTree(target, changes.candidate, changes.touched)
        self.baseline = AuditedTree(target, changes.baseline, changes.replaced)

    def findings(self) -> list[Finding]:
        """Return the findings on what the candidate's sources add to the baseline's."""
        new = sighting.fresh(self.candidate.sightings, self.baseline.sightings)
        return sighting.findings([*new, *_shadows(self.target, self.changes)])

    def new_keys(self) -> list[CacheKey]:
        """Return the cache keys that the candidate has and the baseline has not."""
        old = {(key.what, key.text) for key in self.baseline.keys}
        return [key for key in self.candidate.keys if (key.what, key.text) not in old]


class AuditedTree:
    """The audited sources of one tree, with their sightings and cache keys."""

    def __init__(self, target: Target, tree: Tree, paths: Iterable[str]) -> None:
        self.target, self.tree = target, tree
        self.sightings: list[Sighting] = []
        self.keys: list[CacheKey] = []
        self.modules: dict[str, Module] = {}
        self.args = tuple(None if a.shape is None else a.name for a in target.args)
        reference = target.reference_file
        dotted = "" if reference == target.source else \
            reference.removesuffix(".py").replace("/", ".")
        self.context = Context(reference=dotted, function=target.reference_function,
                               modules=own_modules(target, tree))
        for path in _sources(target, tree, paths):
            data = tree.read(path)
            if data is not None and path.endswith(C_SUFFIXES):
                self._c(path, data)
            elif data is not None:
                self._python(path, data)
            else:
                self.sightings.append(unread(path, "a source that is not a plain file"))
        self.sightings += [key_finding(key) for key in self.keys]

    def _python(self, path: str, data: bytes) -> None:
        module, seen = scan_python.scan(data, path, self.context)
        self.sightings += seen
        if module is None:
            return
        self.modules[path] = module
        is_source = path == self.target.source
        entry = self.target.entry if is_source else None
        self._guarded(path, lambda: self.keys.extend(cache_keys.find(module, entry, self.args)))
        if self.target.language == "triton" and (is_source
                                                 or path != self.target.reference_file):
            has_reference = self.target.reference_file == path \
                and self.target.reference_function != self.target.entry
            function = self.target.reference_function if has_reference else ""
            self._guarded(path, lambda: self.sightings.extend(
                delegation.scan(module, entry, self.context.own, function)))
        for node, text in module.texts():
            if _INSIDE.search(text):
                self._c_source(CSource(text.encode(errors="replace"), path,
                                       getattr(node, "lineno", 1)))

    def _c(self, path: str, data: bytes) -> None:
        if len(data) > MAX_SOURCE_BYTES:
            self.sightings.append(unread(path, "too large to audit"))
        self._c_source(CSource(data, path))

    def _c_source(self, source: CSource) -> None:
        delegates = self.target.is_compiled or self.target.language == "triton"
        self.sightings += scan_c.scan(source, delegation=delegates)
        memory = c_memory.CMemory(source, self.target.entry, self.args)
        self.keys += memory.keys()
        self.sightings += memory.notes()

    def _guarded(self, path: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (RecursionError, MemoryError):
            self.sightings.append(unread(path, "cannot be read as Python"))


def own_modules(target: Target, tree: Tree) -> frozenset[str]:
    """Return the modules and packages that an import would find in the project."""
    paths = (place.partition(".")[0].split("/") for path in tree.files
             if path.endswith(PYTHON_SUFFIXES) for place in _places(target, path))
    return frozenset(".".join(parts[:end + 1]) for parts in paths for end in range(len(parts)))


def _places(target: Target, path: str) -> Iterator[str]:
    """Yield a path relative to each folder that an import looks in."""
    for folder in import_roots(target):
        if path.startswith(f"{folder}/" if folder else ""):
            yield path.removeprefix(folder).removeprefix("/")


def import_roots(target: Target) -> tuple[str, ...]:
    """Return the folders that are on the kernel's path, relative to the project."""
    return tuple(dict.fromkeys((os.path.dirname(target.source), "")))


def _sources(target: Target, tree: Tree, paths: Iterable[str]) -> list[str]:
    """Return the target's source, and those of the paths that are sources or included."""
    sources = [p for p in paths if p.endswith(PYTHON_SUFFIXES + C_SUFFIXES)]
    included: set[str] = set()
    for path in (*sources, target.source):
        data = tree.read(path) if path.endswith(C_SUFFIXES) else None
        if data is not None:
            for _, name, _ in CSource(data, path).includes():
                beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
                included.update(p for p in (beside, os.path.normpath(name)) if p in tree.files)
    source = [target.source] if target.source in tree.files else []
    touched = set(paths)
    return list(dict.fromkeys([*source, *sources, *sorted(included & touched)]))


def key_finding(key: CacheKey) -> Sighting:
    """Return the finding on a cache key."""
    is_by_contents = key.kinds == {"contents"}
    what = f"recognises {', '.join(sorted(key.args))} by its contents" if is_by_contents \
        else key.what
    return Sighting(rule="memo" if is_by_contents else "cache-key", severity="flag", what=what,
                    file=key.file, line=key.line, text=key.text)


def _shadows(target: Target, changes: Changes) -> list[Sighting]:
    """Find new modules of the project that an import of a library would load instead."""
    return [Sighting(rule="patched", severity="reject", file=path,
                     what="replaces a library's module")
            for path in changes.touched
            if path.endswith(".py") and path not in changes.baseline.files
            and any(place.partition("/")[0].removesuffix(".py") in NAMES["shadows"]
                    for place in _places(target, path))]
