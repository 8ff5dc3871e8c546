"""The rooms of kopt, read from its folders, docstrings and imports.

A room is a folder with an `__init__.py`; its floor is its place in pyproject's import contracts.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("engine", "harness", "kopt_tui")
APART = ("harness.child", "harness.call_trace.injected")
"""Programs that run in other processes; they import relatively, and only from each other."""


@dataclass
class Room:
    """A folder, or a single file directly in a package."""

    name: str
    doc: str
    files: list[str] = field(default_factory=list)
    lines: int = 0

    @property
    def purpose(self) -> str:
        return self.doc.split("\n\n")[0].replace("\n", " ").strip()

    @property
    def face(self) -> set[str]:
        """Return the modules that other rooms may import: those that the docstring names."""
        match = re.search(r"Face: (.*)", self.doc, re.S)
        return set(re.findall(r"[a-z_0-9]+", match[1])) if match else set()


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements below a node; expressions, nine nodes of ten, are passed over."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def rooms() -> dict[str, Room]:
    """Return every room by its dotted name, files of a package's top folder included."""
    found: dict[str, Room] = {}
    for path in sources():
        if path.name == "__init__.py":
            found[module_of(path)] = Room(module_of(path), docstring(path))
    for path in sources():
        if path.name != "__init__.py":
            room = found.get(module_of(path.parent / "__init__.py"))
            if room is not None:
                room.files.append(path.stem)
                room.lines += len(path.read_text().splitlines())
    return found


def docstring(path: Path) -> str:
    return ast.get_docstring(parsed(path)) or ""


@functools.cache
def imports() -> tuple[tuple[str, str], ...]:
    """Return every (importing module, imported module) within the packages."""
    return tuple(_imports())


def _imports() -> Iterator[tuple[str, str]]:
    modules = {module_of(path) for path in sources()}
    for path in sources():
        for node in statements(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    target = full if full in modules else node.module
                    if target in modules:
                        yield module_of(path), target
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in modules:
                        yield module_of(path), alias.name


def room_of(module: str, known: dict[str, Room]) -> str:
    """Return the innermost room that holds a module."""
    return module if module in known else module.rpartition(".")[0]


def floors(package: str) -> list[list[str]]:
    """Return the names on each floor of a package, the top floor first."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for contract in config["tool"]["importlinter"]["contracts"]:
        if contract.get("containers") == [package]:
            return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    raise SystemExit(f"pyproject.toml has no layers for {package}")


def used_from_outside(known: dict[str, Room]) -> dict[str, set[str]]:
    """Return, by room, the modules of it that other rooms import."""
    used: dict[str, set[str]] = defaultdict(set)
    for source, target in imports():
        room = room_of(target, known)
        if target != room and not (source == room or source.startswith(f"{room}.")):
            used[room].add(target.rpartition(".")[2])
    return used


def top(module: str) -> str:
    """Return the box of a module in its package's picture: `engine.rounds`, `engine.task`."""
    return ".".join(module.split(".")[:2])


def arrows(package: str) -> dict[str, set[str]]:
    """Return which boxes of a package import which."""
    found: dict[str, set[str]] = defaultdict(set)
    for source, target in imports():
        inside = source.startswith(f"{package}.") and target.startswith(f"{package}.")
        if inside and top(source) != top(target):
            found[top(source)].add(top(target))
    return found


def direct(edges: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the arrows that no longer way implies."""
    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(edges.get(start, ()))
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += edges.get(name, ())
        return seen

    return sorted((source, target) for source, targets in edges.items() for target in targets
                  if not any(target in reach(other) for other in targets - {target}))


def contents(room: Room, known: dict[str, Room]) -> list[str]:
    """Return the files and inner rooms of a room, for its box."""
    inner = [name.rpartition(".")[2] + "/" for name in known
             if name.rpartition(".")[0] == room.name]
    return sorted(room.files) + sorted(inner)
