"""Built files that git ignores: copied from the project once, and from there to every checkout.

A project whose build takes an hour is not rebuilt for each candidate: a build in a checkout finds
the project's own results, and rebuilds what the files' times call for. The files are copies (cloned
blocks where the file system supports them): through hard links, what one candidate's build writes
in place would reach all others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.globs import matches
from engine.repository.checkouts import submodules
from engine.repository.clone import Clone, TreeEntry
from engine.repository.project import Project
from harness.errors import EnvironmentFault, InputError
from harness.formats.file_copy import FolderTooLarge, copy_folder, walk

MOST_BYTES = 64 << 30


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """The `names` of the copied files, and the times of the sources that they were built from.

    `stamps` holds blob and time (ns) of the project's tracked files, submodules' included, but for
    files that differ from the commit: what depends on these is built again.
    """

    names: tuple[str, ...] = ()
    bytes: int = 0
    cloned: int = 0
    stamps: dict[str, tuple[str, int]] = {}


def take_over(clone: Clone, commit: str, project: Project, globs: Sequence[str], folder: Path,
              apart: Path) -> Carried:
    """Copy the project's files that the globs name and neither it nor its submodules track.

    `commit` is the clone's, and may have fewer files than the project's. Nothing below `apart` (the
    workspace) is copied. Raises InputError if no file matches.
    """
    own, inside = Clone(project.git_dir).entries(project.head), submodules.tracked(project)
    tracked, top = own | inside, project.path
    excluded = {".git", *(os.path.relpath(path.resolve(), top) for path in (apart, folder.parent)),
                *(f"{path}/.git" for path, entry in tracked.items()
                  if entry.mode == submodules.GITLINK)}
    try:
        copied = copy_folder(
            top, folder, most_bytes=MOST_BYTES, enter=lambda name: name not in excluded,
            should_copy=lambda name: name not in excluded and name not in tracked
            and matches(name, globs))
    except FolderTooLarge as error:
        raise EnvironmentFault(str(error), where="carry", fix="name fewer files in carry") from None
    names = tuple(name for entry, name in walk(folder) if not entry.is_dir(follow_symlinks=False))
    if not names:
        raise InputError(f"the project has no files that match {', '.join(globs)}",
                         where="carry", fix="build it first, or remove carry")
    stamps = {path: (entry.id, (top / path).lstat().st_mtime_ns)
              for path, entry in _all(clone, commit).items() if (top / path).is_file()
              and (_same(top / path, entry) if path in inside else path not in project.dirty)}
    carried = Carried(names=names, bytes=copied.bytes, cloned=copied.cloned, stamps=stamps)
    _record(folder).write_bytes(msgspec.json.encode(carried))
    return carried


def read(folder: Path) -> Carried:
    """Return what `take_over` copied to a folder; empty if it copied nothing."""
    try:
        return msgspec.json.decode(_record(folder).read_bytes(), type=Carried)
    except FileNotFoundError:
        return Carried()


def fill(clone: Clone, commit: str, directory: Path, folder: Path, carried: Carried) -> None:
    """Put the built files into a checkout, with times from which a build sees what to rebuild.

    A source that has not changed since the build keeps its time; any other is new.
    """
    if not carried.names:
        return
    try:
        copy_folder(folder, directory, most_bytes=2 * MOST_BYTES)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"a carried file and a folder have the same path: {error.filename}",
                         where="carry") from None
    for path, entry in _all(clone, commit).items():
        blob, stamp = carried.stamps.get(path, ("", 0))
        if blob == entry.id and (directory / path).is_file():
            os.utime(directory / path, ns=(stamp, stamp), follow_symlinks=False)


def _all(clone: Clone, commit: str) -> dict[str, TreeEntry]:
    return clone.entries(commit) | submodules.entries(clone, commit)


def _same(path: Path, entry: TreeEntry) -> bool:
    """Return whether a plain file has exactly the bytes that a tree has for it.

    A file that a git filter changed does not, and counts as new.
    """
    if not entry.mode.startswith("100") or path.is_symlink() or path.stat().st_size != entry.size:
        return False
    data = path.read_bytes()
    algorithm = hashlib.sha256 if len(entry.id) == 64 else hashlib.sha1
    return algorithm(b"blob %d\0%b" % (len(data), data)).hexdigest() == entry.id


def _record(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")
