"""Whether a Python source can have work on several streams of a card at a time.

Without running it, by all files of its project that it imports: none may speak of streams, of what
makes some, or of code that is not read here. Whatever is not understood may use several.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ONE_STREAM = frozenset({"torch", "triton", "numpy"})
"""Packages that run on the caller's stream, but for what has a word below."""
WORDS = re.compile(
    rb"stream(?!ing)|async_op|distributed|symm_mem|load_inline|cpp_extension|load_library|dlopen"
    rb"|ctypes|cffi|__import__|importlib|\bexec\b|\beval\b", re.IGNORECASE)
"""What is streamed past a cache runs on one stream all the same."""
MOST_FILES = 200


def one_stream(root: Path, source: Path) -> bool:
    """Tell whether all that a source in a project's folder reaches runs on one stream."""
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
        for level, name, found in imported:
            top = name.partition(".")[0]
            if not found and (level or top not in ONE_STREAM | sys.stdlib_module_names):
                return False
            waiting += [one for one in found if one not in seen]
            seen.update(found)
    return True


def _modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the level and the name of all that is imported, a module or something in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, ".".join(filter(None, (node.module, one.name))))
                        for one in node.names)


def _files(root: Path, importer: Path, level: int, name: str) -> list[Path]:
    """Return the project's files that a module of this name may be, its packages' among them."""
    above = [folder for folder in importer.parents if folder.is_relative_to(root)]
    folders = above[level - 1:level] if level else [importer.parent, root]
    found = []
    for folder in folders:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:count])
            found += [one for one in (place.with_name(f"{place.name}.py"), place / "__init__.py")
                      if one.is_file()]
    return list(dict.fromkeys(found))
