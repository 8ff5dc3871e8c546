"""Files that a project stores with Git LFS: their contents in every checkout, from the local store.

A commit holds a pointer to such a file. No filter is run and nothing is downloaded; candidates
cannot change these files.
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

MOST_POINTER = 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*"
    rb"oid sha256:([0-9a-f]{64})\nsize (\d+)\n")


class Pointer(msgspec.Struct, frozen=True):
    """What a commit has in a file's place: the hash and the size of its contents."""

    sha256: str
    size: int


def pointers(clone: Clone, commit: str) -> dict[str, Pointer]:
    """Return the files of a commit that are stored with LFS."""
    listed = clone.entries(commit)
    if not any("filter=lfs" in _text(clone, commit, path) for path in listed
               if path.rpartition("/")[2] == ".gitattributes"):
        return {}
    small = {path: entry.id for path, entry in listed.items()
             if entry.mode.startswith("100") and 0 < entry.size <= MOST_POINTER}
    return {path: found for (path, _), blob in zip(small.items(), _blobs(clone, small), strict=True)
            if (found := parse(blob))}


def parse(blob: bytes) -> Pointer | None:
    """Return what a pointer says, None for any other contents."""
    found = _POINTER.fullmatch(blob)
    return Pointer(found[1].decode(), int(found[2])) if found else None


def take_over(clone: Clone, commit: str, project: Path) -> list[str]:
    """Copy the contents of a commit's files into the clone; returns the files without any here."""
    return [path for path, pointer in pointers(clone, commit).items()
            if not _taken(clone, pointer, [*_stores(project, pointer), project / path])]


def fill(clone: Clone, commit: str, directory: Path) -> None:
    """Put the contents in the pointers' place, as copies, as far as they were taken over."""
    for path, pointer in pointers(clone, commit).items():
        kept, place = _kept(clone, pointer), directory / path
        if kept.is_file() and place.is_file() and not place.is_symlink():
            copy_file(kept, place)


def unchanged(pointer: Pointer, path: Path) -> bool:
    """Tell whether a file of a checkout is as it was written there: the pointer, or its contents.
    """
    try:
        return _hash(path) == pointer.sha256 or parse(path.read_bytes()) == pointer
    except OSError:
        return False


def _taken(clone: Clone, pointer: Pointer, places: list[Path]) -> bool:
    kept = _kept(clone, pointer)
    if kept.is_file():
        return True
    for place in places:
        with contextlib.suppress(OSError):
            if place.stat().st_size == pointer.size and _hash(place) == pointer.sha256:
                kept.parent.mkdir(parents=True, exist_ok=True)
                unfinished = kept.with_suffix(".new")
                copy_file(place, unfinished)
                unfinished.rename(kept)
                return True
    return False


def _kept(clone: Clone, pointer: Pointer) -> Path:
    return clone.git_dir / "lfs" / "objects" / pointer.sha256


def _stores(project: Path, pointer: Pointer) -> list[Path]:
    found, name = locate(project), pointer.sha256
    return [] if found is None else [
        found.common_dir / "lfs" / "objects" / name[:2] / name[2:4] / name]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(clone: Clone, commit: str, path: str) -> str:
    return clone.read(commit, path).decode(errors="replace")


def _blobs(clone: Clone, wanted: dict[str, str]) -> Iterator[bytes]:
    """Yield the contents of small blobs, in their order, read in one go."""
    asked = "".join(f"{blob}\n" for blob in wanted.values()).encode()
    answer, at = clone.git.run("cat-file", "--batch", stdin=asked) if wanted else b"", 0
    for _ in wanted:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].rsplit(b" ", 1)[1])
        yield answer[end + 1 : end + 1 + size]
        at = end + size + 2
