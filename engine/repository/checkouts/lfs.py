"""Git LFS: every checkout gets the contents of LFS files, from the project's local store.

A commit holds a pointer to such a file. No filter runs and nothing is downloaded; candidates cannot
change these files.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from engine.repository.clone import Clone
from engine.repository.git import locate
from harness.formats.file_copy import copy_file

MOST_POINTER_BYTES = 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*"
    rb"oid sha256:([0-9a-f]{64})\nsize (\d+)\n")


class Pointer(msgspec.Struct, frozen=True):
    """What a commit has in place of a file: the hash and the size (bytes) of its contents."""

    sha256: str
    size: int


def pointers(clone: Clone, commit: str) -> dict[str, Pointer]:
    """Return the files of a commit that are stored with LFS."""
    entries = clone.entries(commit)
    if not any(b"filter=lfs" in clone.read(commit, path) for path in entries
               if path.rpartition("/")[2] == ".gitattributes"):
        return {}
    small = {path: entry.id for path, entry in entries.items()
             if entry.mode.startswith("100") and 0 < entry.size <= MOST_POINTER_BYTES}
    blobs = _blobs(clone, list(small.values()))
    return {path: pointer for path, blob in zip(small, blobs, strict=True)
            if (pointer := parse(blob))}


def parse(blob: bytes) -> Pointer | None:
    """Parse a pointer; None for any other contents."""
    match = _POINTER.fullmatch(blob)
    return Pointer(match[1].decode(), int(match[2])) if match else None


def take_over(clone: Clone, commit: str, project: Path) -> list[str]:
    """Copy the contents of a commit's LFS files into the clone; returns the files not found."""
    home = locate(project)
    stores = [] if home is None else [home.common_dir / "lfs" / "objects"]
    return [path for path, pointer in pointers(clone, commit).items()
            if not _stored(clone, pointer, [
                *(store / pointer.sha256[:2] / pointer.sha256[2:4] / pointer.sha256
                  for store in stores), project / path])]


def fill(clone: Clone, commit: str, directory: Path) -> None:
    """Replace pointers with copies of their contents, as far as these were taken over."""
    for path, pointer in pointers(clone, commit).items():
        stored, target = _store(clone, pointer), directory / path
        if stored.is_file() and target.is_file() and not target.is_symlink():
            copy_file(stored, target)


def unchanged(pointer: Pointer, path: Path) -> bool:
    """Return whether a checkout's file is unchanged: the pointer or its contents."""
    try:
        return _hash(path) == pointer.sha256 or parse(path.read_bytes()) == pointer
    except OSError:
        return False


def _stored(clone: Clone, pointer: Pointer, sources: list[Path]) -> bool:
    """Store a pointer's contents from the first source that has them; False if none has."""
    stored = _store(clone, pointer)
    if stored.is_file():
        return True
    for source in sources:
        with contextlib.suppress(OSError):
            if source.stat().st_size == pointer.size and _hash(source) == pointer.sha256:
                stored.parent.mkdir(parents=True, exist_ok=True)
                unfinished = stored.with_suffix(".new")
                copy_file(source, unfinished)
                unfinished.rename(stored)
                return True
    return False


def _store(clone: Clone, pointer: Pointer) -> Path:
    return clone.git_dir / "lfs" / "objects" / pointer.sha256


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _blobs(clone: Clone, ids: list[str]) -> Iterator[bytes]:
    """Yield the contents of small blobs, in order, read by one command."""
    request = "".join(f"{blob}\n" for blob in ids).encode()
    answer, at = clone.git.run("cat-file", "--batch", stdin=request) if ids else b"", 0
    for _ in ids:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].rsplit(b" ", 1)[1])
        yield answer[end + 1 : end + 1 + size]
        at = end + size + 2
