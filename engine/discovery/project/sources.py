"""What a project tells about its kernel without being asked: task file, source, arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.target import Arg

SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "build", "__pycache__", "workspace"})
MAX_DEPTH = 3
MAX_FILES = 5000
MAX_SOURCE = 1 << 20
C_TYPES = {
    "double": "float64", "float": "float32", "int64_t": "int64", "long": "int64",
    "long long": "int64", "ptrdiff_t": "int64", "size_t": "int64", "int": "int32",
    "int32_t": "int32", "int8_t": "int8", "uint8_t": "uint8", "unsigned char": "uint8",
}
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_FUNCTION = re.compile(r"^([A-Za-z_][\w \t*]*?)\b(\w+)\s*\(([^(){};]*)\)\s*\{", re.MULTILINE)
_QUALIFIERS = re.compile(r"\b(?:const|restrict|__restrict__|__restrict|volatile|register)\b")


class CFunction(msgspec.Struct, frozen=True):
    """A C function that other files can call, with its arguments in call order."""

    name: str
    args: tuple[Arg, ...]


def task_files(project: Path) -> list[Path]:
    """Return the project's files named task.yaml, the shallowest first."""
    return [path for path in files(project) if path.name == "task.yaml"]


def sources(project: Path) -> list[Path]:
    """Return C sources that could hold the kernel; those that declare knobs, if any does."""
    found = [path for path in files(project) if path.suffix == ".c" and functions(read(path))]
    return [path for path in found if "kopt: knob" in read(path)] or found


def files(project: Path) -> list[Path]:
    """Return the project's files, shallow first, without build folders and hidden ones."""
    found: list[Path] = []
    folders = [project]
    for _ in range(MAX_DEPTH):
        below: list[Path] = []
        for folder in folders:
            for path in sorted(folder.iterdir()):
                if path.is_dir() and not path.is_symlink():
                    if path.name not in SKIPPED and not path.name.startswith("."):
                        below.append(path)
                elif path.is_file():
                    found.append(path)
        folders = below
        if len(found) > MAX_FILES:
            break
    return found


def read(path: Path) -> str:
    """Return a source's text, empty if it is too large for one or cannot be read."""
    try:
        return path.read_text(errors="replace") if path.stat().st_size <= MAX_SOURCE else ""
    except OSError:
        return ""


def functions(source: str) -> list[CFunction]:
    """Return the functions of a C source that are visible outside and whose types are known."""
    found: list[CFunction] = []
    for match in _FUNCTION.finditer(_COMMENT.sub(" ", source)):
        head, name, given = match.groups()
        if "static" in head.split() or name == "main" or not head.strip():
            continue
        args = list(_arguments(given))
        if args and all(arg is not None for arg in args):
            found.append(CFunction(name, tuple(arg for arg in args if arg is not None)))
    return found


def _arguments(given: str) -> Iterator[Arg | None]:
    for part in given.split(","):
        words = _QUALIFIERS.sub(" ", part)
        found = re.fullmatch(r"\s*([\w ]+?)\s*(\**)\s*(\w+)\s*(\[\w*\])?\s*", words)
        dtype = C_TYPES.get(" ".join(found[1].split())) if found else None
        if found is None or dtype is None or len(found[2]) > 1:
            yield None
            continue
        name = found[3]
        if found[2] or found[4]:
            written = not re.search(r"\bconst\b", part)
            yield Arg(name=name, dtype=dtype, shape=(), role="output" if written else None)
        else:
            sized = dtype.startswith(("int", "uint"))
            yield Arg(name=name, dtype=dtype, value=name if sized else None)
