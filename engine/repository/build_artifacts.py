"""Built files that git ignores: taken once from the project, and carried into every checkout.

A project whose build takes an hour is not built anew for each candidate: a build started in a
checkout finds what the project's own has made, and sees by the files' times what is left to do.
They are copies (cloned blocks where the file system does that): a hard link would pass on what one
candidate's build writes in place to all the others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.globs import matches
from engine.repository import submodules
from engine.repository.clone import Clone, TreeEntry
from engine.repository.project import Project
from harness.errors import EnvironmentFault, InputError
from harness.formats.file_copy import FolderTooLarge, copy_folder, walk

MOST_BYTES = 64 << 30


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken: `names` of built files, and the time of every source that they are of.

    `stamps` holds blob and time (ns) of the tracked files as they lay in the project, submodules'
    too, without those that differed from the commit: what depends on them is built again.
    """

    names: tuple[str, ...] = ()
    bytes: int = 0
    cloned: int = 0
    stamps: dict[str, tuple[str, int]] = {}


def take_over(clone: Clone, commit: str, project: Project, globs: Sequence[str], folder: Path,
              apart: Path) -> Carried:
    """Copy the project's files that the globs name and its commit has not into a folder, nor have
    its submodules.

    `commit` is of the clone, and may have fewer files than the project's own. Nothing below `apart`
    (the workspace) is taken. Raises InputError if there is nothing of it.
    """
    own, inside = Clone(project.git_dir).entries(project.head), submodules.tracked(project)
    tracked, top = own | inside, project.path
    away = {os.path.relpath(path.resolve(), top) for path in (apart, folder.parent)} | {".git"} | {
        f"{path}/.git" for path, entry in tracked.items() if entry.mode == submodules.GITLINK}
    try:
        copied = copy_folder(
            top, folder, most_bytes=MOST_BYTES, enter=lambda name: name not in away,
            wanted=lambda name: name not in tracked and name not in away and matches(name, globs))
    except FolderTooLarge as error:
        raise EnvironmentFault(str(error), where="carry", fix="name less in carry") from None
    names = tuple(name for entry, name in walk(folder) if not entry.is_dir(follow_symlinks=False))
    if not names:
        raise InputError(f"the project has nothing that is called {', '.join(globs)}",
                         where="carry", fix="build it first, or leave carry out")
    stamps = {path: (entry.id, (top / path).lstat().st_mtime_ns)
              for path, entry in _all(clone, commit).items() if (top / path).is_file()
              and (_same(top / path, entry) if path in inside else path not in project.dirty)}
    carried = Carried(names=names, bytes=copied.bytes, cloned=copied.cloned, stamps=stamps)
    _record(folder).write_bytes(msgspec.json.encode(carried))
    return carried


def read(folder: Path) -> Carried:
    """Return what lies in a folder that was filled by `take_over`, nothing if there is none."""
    try:
        return msgspec.json.decode(_record(folder).read_bytes(), type=Carried)
    except FileNotFoundError:
        return Carried()


def fill(clone: Clone, commit: str, directory: Path, folder: Path, carried: Carried) -> None:
    """Put the built files into a checkout, which keeps the times that a build goes by.

    A source that is as it was when they were built is as old as it was; any other is new.
    """
    if not carried.names:
        return
    try:
        copy_folder(folder, directory, most_bytes=2 * MOST_BYTES)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"a file and a folder are in each other's place: {error.filename}",
                         where="carry") from None
    for path, entry in _all(clone, commit).items():
        blob, stamp = carried.stamps.get(path, ("", 0))
        if blob == entry.id and (directory / path).is_file():
            os.utime(directory / path, ns=(stamp, stamp), follow_symlinks=False)


def _all(clone: Clone, commit: str) -> dict[str, TreeEntry]:
    return clone.entries(commit) | submodules.entries(clone, commit)


def _same(path: Path, entry: TreeEntry) -> bool:
    """Tell whether a plain file is byte for byte the one that a tree has; sure, and that is all:
    one that passed a filter is not, and so is new.
    """
    if not entry.mode.startswith("100") or path.is_symlink() or path.stat().st_size != entry.size:
        return False
    data = path.read_bytes()
    made = hashlib.sha256 if len(entry.id) == 64 else hashlib.sha1
    return made(b"blob %d\0%b" % (len(data), data)).hexdigest() == entry.id


def _record(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")
