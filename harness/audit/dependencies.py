"""Finds new dependencies of a candidate: packages, libraries, headers, binaries."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property

from harness.audit import declared_dependencies
from harness.audit.c.source import CSource, is_standard_header, is_standard_library
from harness.audit.findings import sighting
from harness.audit.findings.sighting import Sighting
from harness.audit.findings.tree_diff import C_SUFFIXES, PYTHON_SUFFIXES, Changes, Tree
from harness.audit.findings.watched_names import NAMES, AuditRule
from harness.audit.python.names import Module
from harness.audit.python.source_tree import UnreadableSource
from harness.audit.static import import_roots
from harness.tasks.target import Target
from harness.verdict import Finding

RULE = "new-dependency"
ALLOWED = frozenset({"torch", "triton", "numpy"})
_SHARED = re.compile(r"\.so(?:\.\d+)*$")
_LINK = re.compile(r"(?<![\w-])-l\s?(?P<name>[A-Za-z0-9_.+:-]+)")
_BUILD_FILES = (".yaml", ".yml", ".toml", ".mk", ".cfg", "Makefile", "makefile", ".cmake",
                "CMakeLists.txt", ".bazel", "BUILD", ".ninja")
_PYC_UNCHECKED = 1


def new_dependencies(target: Target, changes: Changes) -> list[Finding]:
    """Return a finding for each dependency that the candidate has and the baseline has not."""
    return sighting.findings(list(_Dependencies(target, changes).all()))


class _Dependencies:
    def __init__(self, target: Target, changes: Changes) -> None:
        self.target, self.changes = target, changes
        self.tree = changes.candidate

    def all(self) -> Iterator[Sighting]:
        yield from self._linked()
        for path in self.changes.touched:
            if binary := self._binary(path):
                yield _see(path, binary)
            elif declared_dependencies.is_declaration(path):
                yield from self._declared(path)
            if path.endswith(PYTHON_SUFFIXES) or (
                    path == self.target.source and not self.target.is_compiled):
                yield from self._python(path)
            elif path.endswith(C_SUFFIXES) or path == self.target.source:
                data = self.tree.read(path)
                if data is not None:
                    yield from self._c(path, CSource(data, path))
            elif path.endswith(_BUILD_FILES):
                yield from self._links(sorted(
                    _linked_by(self.tree, path) - _linked_by(self.changes.baseline, path)), path)

    def _python(self, path: str) -> Iterator[Sighting]:
        module = _module(self.tree, path)
        if module is None:
            return
        for node, name in _imports(module):
            if self._is_new(path, name):
                yield module.see(node, _rule_for_new(name, "imports"), runs=True)
        for node, name in _libraries(module):
            if not is_standard_library(name) and name not in self._known.libraries:
                yield module.see(node, _loads(name), runs=True)
        for source in _embedded_c(module):
            yield from self._c(path, source)

    def _is_new(self, path: str, name: str) -> bool:
        top = name.partition(".")[0]
        if not top or top in ALLOWED or top in sys.stdlib_module_names \
                or top in self._known.modules:
            return False
        folders = (*import_roots(self.target), os.path.dirname(path), "src", "python")
        return not self.tree.has_module(top, folders)

    @cached_property
    def _known(self) -> _BaselineDependencies:
        return _BaselineDependencies(self.changes.baseline)

    def _c(self, path: str, source: CSource) -> Iterator[Sighting]:
        for form, name, token in source.includes():
            if form == "?" or is_standard_header(name):
                continue
            beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
            places = [beside, os.path.normpath(name),
                      *(os.path.normpath(os.path.join(d, name)) for d in self._include_folders)]
            outside = os.path.isabs(name) or beside.startswith("..")
            if not outside and any(place in self.tree.files for place in places):
                continue
            if name not in self._known.headers:
                missing = ", a file that the candidate does not have (a new one counts only if " \
                    "`edit` includes it)" if form == '"' and not outside else ""
                yield source.see(token, _rule_for_new(name, "includes", missing))
        for index, token in enumerate(source.tokens):
            if token.kind == "name" and token.text in ("dlopen", "dlmopen") \
                    and source.follows(index, "("):
                end = source.matching.get(index + 1, index)
                for part in source.tokens[index:end]:
                    if part.kind == "string" and not is_standard_library(part.text):
                        yield source.see(part, _loads(part.text))

    @cached_property
    def _include_folders(self) -> list[str]:
        folders = [flag[2:] for flag in self.target.flags if flag.startswith("-I")]
        return [folder for folder in folders if not os.path.isabs(folder)] + ["include", "src"]

    def _declared(self, path: str) -> Iterator[Sighting]:
        ours = declared_dependencies.dependencies(path, self.tree.read(path))
        theirs = declared_dependencies.dependencies(path, self.changes.baseline.read(path))
        for line in sorted(ours - theirs)[:20]:
            yield _see(path, f"declares {line[:100]}")

    def _linked(self) -> Iterator[Sighting]:
        """Find libraries that the build's flags link and the baseline does not."""
        flags = " ".join(self.target.flags)
        named = [match["name"] for match in _LINK.finditer(flags)]
        named += [flag for flag in self.target.flags
                  if _SHARED.search(flag) or flag.endswith((".a", ".o"))]
        return self._links(dict.fromkeys(named), "build", flags)

    def _links(self, libraries: Iterable[str], file: str, text: str = "") -> Iterator[Sighting]:
        tree = self.changes.baseline
        for name in libraries:
            if not is_standard_library(name) and name not in tree.files and not any(
                    name in _linked_by(tree, path) for path in tree.files
                    if path.endswith(_BUILD_FILES)):
                yield _see(file, f"links {os.path.basename(name)}", text)

    def _binary(self, path: str) -> str:
        """Return why a path is a binary, a special file or a link outside, "" if it is none."""
        entry = self.tree.files[path]
        if entry.link is not None:
            place = os.path.normpath(os.path.join(os.path.dirname(path), entry.link))
            leaves = os.path.isabs(entry.link) or place.startswith("..")
            return "a link that leaves the project" if leaves else ""
        if not entry.regular:
            return "a special file"
        data = self.tree.read(path, 8192) or b""
        if "__pycache__" in path.split("/")[:-1]:
            is_unchecked = len(data) >= 8 and int.from_bytes(data[4:8], "little") == _PYC_UNCHECKED
            return "compiled code in place of its source" if is_unchecked else ""
        if os.path.splitext(path)[1].lower() in NAMES["binary_suffixes"] or _SHARED.search(path):
            return "a binary or downloaded file"
        if path == self.target.source or path.endswith(PYTHON_SUFFIXES + C_SUFFIXES):
            return ""
        return "a binary file" if b"\0" in data else ""


def _linked_by(tree: Tree, path: str) -> set[str]:
    data = tree.read(path)
    text = "" if data is None else data.decode("utf-8", "replace")
    return {match["name"] for match in _LINK.finditer(text)} if "-l" in text else set()


def _module(tree: Tree, path: str) -> Module | None:
    data = tree.read(path)
    try:
        return None if data is None else Module(data, path)
    except UnreadableSource:
        return None


def _imports(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield every module that is imported by an absolute name, by any mechanism."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node, node.module
        elif isinstance(node, ast.Call) and node.args:
            names = module.dotted(node.func)
            word = module.fold(node.args[0])
            if word and not word.startswith(".") and names & NAMES["importers"]:
                yield node, word.partition(":")[0]


def _libraries(module: Module) -> Iterator[tuple[ast.AST, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Call) and node.args and (word := module.fold(node.args[0])) \
                and module.dotted(node.func) & NAMES["loaders"]:
            yield node, word


def _embedded_c(module: Module) -> Iterator[CSource]:
    """Yield the texts of a Python source that may be C or CUDA."""
    for node, text in module.texts():
        if "#" in text and "include" in text:
            yield CSource(text.encode(errors="replace"), module.file, getattr(node, "lineno", 1))


def _rule(why: str) -> AuditRule:
    return AuditRule(RULE, "reject", why)


def _rule_for_new(name: str, how: str, note: str = "") -> AuditRule:
    """Return a reject for a new package or header, but a flag for a kernel language."""
    language = re.split(r"[./]", name)[0]
    if language in NAMES["kernel_languages"]:
        return AuditRule(RULE, "flag", f"{how} {language}, a kernel language new to the project")
    return _rule(f"{how} {name}{note}")


def _loads(library: str) -> AuditRule:
    return _rule(f"loads the library {os.path.basename(library)}")


def _see(path: str, what: str, text: str = "") -> Sighting:
    return Sighting(rule=RULE, severity="reject", what=what, file=path, text=text)


class _BaselineDependencies:
    """What the baseline imports, loads and includes."""

    def __init__(self, tree: Tree) -> None:
        self.modules: set[str] = set()
        self.libraries: set[str] = set()
        self.headers: set[str] = set()
        for path in tree.files:
            module = _module(tree, path) if path.endswith(PYTHON_SUFFIXES) else None
            data = tree.read(path) if path.endswith(C_SUFFIXES) else None
            sources = [] if data is None else [CSource(data, path)]
            if module is not None:
                self.modules |= {name.partition(".")[0] for _, name in _imports(module)}
                self.libraries |= {name for _, name in _libraries(module)}
                sources = list(_embedded_c(module))
            self.headers |= {name for source in sources for _, name, _ in source.includes()}
