"""Finds out from its sources whether all work of a kernel runs on one stream of a card."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ONE_STREAM = frozenset({"torch", "triton", "numpy"})
"""Packages that run on the caller's stream, except for functions named in `WORDS`."""
WORDS = re.compile(
    rb"stream(?!ing)|async_op|distributed|symm_mem|load_inline|cpp_extension|load_library|dlopen"
    rb"|ctypes|cffi|__import__|importlib|\bexec\b|\beval\b", re.IGNORECASE)
"""Words of code that may create streams; "streaming" is about caches, and allowed."""
MOST_FILES = 200


def one_stream(root: Path, source: Path) -> bool:
    """Return whether everything that a source of a project reaches runs on one stream of a card.

    The files are only read: neither the source nor a project file that it imports may mention
    streams, functions that create them, or code that cannot be read here. If in doubt, the answer
    is False.
    """
    waiting, seen = [source], {source}
    while waiting:
        path = waiting.pop()
        try:
            text = path.read_bytes()
            imported = [(level, name, _files(root, path, level, name))
                        for level, name in _modules(ast.parse(text))]
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        if WORDS.search(text) or len(seen) > MOST_FILES:
            return False
        for level, name, files in imported:
            top = name.partition(".")[0]
            if not files and (level or top not in ONE_STREAM | sys.stdlib_module_names):
                return False
            waiting += [file for file in files if file not in seen]
            seen.update(files)
    return True


def _modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the level and name of every import: a module, or a name inside one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, ".".join(filter(None, (node.module, alias.name))))
                        for alias in node.names)


def _files(root: Path, importer: Path, level: int, name: str) -> list[Path]:
    """Return the project's files that may be a module of this name, with those of its packages."""
    above = [folder for folder in importer.parents if folder.is_relative_to(root)]
    folders = above[level - 1:level] if level else [importer.parent, root]
    files = []
    for folder in folders:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            path = folder.joinpath(*parts[:count])
            files += [file for file in (path.with_name(f"{path.name}.py"), path / "__init__.py")
                      if file.is_file()]
    return list(dict.fromkeys(files))
