"""Which files a candidate changed. Two trees are compared as data; links are not followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.formats import file_copy

PYTHON_SUFFIXES = (".py", ".pyi", ".pyw")
C_SUFFIXES = (".c", ".h", ".cu", ".cuh", ".hip", ".cc", ".cpp", ".cxx", ".hpp", ".hh",
              ".inc", ".inl")
MAX_SOURCE_BYTES = 256 << 10
MAX_FILES = 200_000
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of a tree; `link` is the target of a symbolic link."""

    size: int
    regular: bool
    link: str | None = None


class Tree:
    """The files of a folder by relative path, without `.git`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def files(self) -> dict[str, FileEntry]:
        entries: dict[str, FileEntry] = {}
        for folder, folders, names in os.walk(self.root):
            links = [f for f in folders if os.path.islink(os.path.join(folder, f))]
            folders[:] = sorted(f for f in folders if f != ".git" and f not in links)
            for name in (*links, *sorted(names)):
                path = os.path.join(folder, name)
                if name == ".git" or len(entries) >= MAX_FILES:
                    continue
                if (entry := _entry(path)) is not None:
                    entries[os.path.relpath(path, self.root)] = entry
        return entries

    def read(self, path: str, limit: int = MAX_SOURCE_BYTES) -> bytes | None:
        """Return at most `limit` + 1 bytes of a regular file; None if there is none."""
        entry = self.files.get(path)
        if entry is None or not entry.regular:
            return None
        try:
            with file_copy.open_plain(self.root / path) as file:
                return file.read(limit + 1)
        except OSError:
            return None

    def has_module(self, name: str, folders: Iterable[str]) -> bool:
        """Return whether one of the folders contains a Python module or package of that name."""
        bases = [os.path.normpath(os.path.join(folder, name)) for folder in folders]
        return any(path in (f"{base}.py", f"{base}.pyi") or path.startswith(f"{base}/")
                   for path in self.files if path.endswith(PYTHON_SUFFIXES) for base in bases)


def _entry(path: str) -> FileEntry | None:
    try:
        state = os.lstat(path)
        link = os.readlink(path) if stat.S_ISLNK(state.st_mode) else None
    except OSError:
        return None
    return FileEntry(size=state.st_size, regular=stat.S_ISREG(state.st_mode), link=link)


class Changes:
    """Compares a candidate's tree with the baseline's, once."""

    def __init__(self, candidate: Path, baseline: Path) -> None:
        self.candidate, self.baseline = Tree(candidate), Tree(baseline)

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """Paths that the candidate added or changed."""
        return tuple(path for path in self.candidate.files if not self._same(path))

    @cached_property
    def replaced(self) -> tuple[str, ...]:
        """Paths of the baseline that the candidate changed or removed."""
        return tuple(path for path in self.baseline.files if not self._same(path))

    def _same(self, path: str) -> bool:
        ours, theirs = self.candidate.files.get(path), self.baseline.files.get(path)
        if ours is None or ours != theirs:
            return False
        return not ours.regular or _equal(self.candidate.root / path, self.baseline.root / path)


def _equal(a: Path, b: Path) -> bool:
    try:
        with file_copy.open_plain(a) as ours, file_copy.open_plain(b) as theirs:
            while True:
                block = ours.read(_CHUNK)
                if block != theirs.read(_CHUNK):
                    return False
                if not block:
                    return True
    except OSError:
        return False
