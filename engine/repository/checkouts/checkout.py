"""Completes a checkout with submodules, LFS contents and built files that git ignores.

A project whose build takes an hour is not rebuilt for each candidate: its built files are copied
once, and from there to every checkout, where a build finds them and rebuilds what the files' times
call for. They are copies (cloned blocks where the file system supports them): through hard links,
what one candidate's build writes in place would reach all others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.globs import matches
from engine.repository.checkouts import lfs, submodules
from engine.repository.clone import BASE_REF, Clone, TreeEntry
from engine.repository.project import Project
from engine.repository.worktree import SkipReason
from harness.errors import EnvironmentFault, InputError
from harness.formats.file_copy import FolderTooLarge, copy_folder, walk
from harness.formats.quantities import listed

FOLDER = "carried"
"""Folder of the built files in a campaign's folder."""
NAMED = 3


def take_over(clone: Clone, folder: Path, project: Project, globs: Sequence[str]) -> None:
    """Copy submodules, LFS contents and built files into the campaign; record what is missing.

    `globs` name the built files. Raises InputError if no file matches them.
    """
    missing = _describe("submodules are", submodules.take_over(clone, BASE_REF, project.path),
                        "run `git submodule update --init --recursive` there and start again")
    missing += _describe("files of Git LFS are", lfs.take_over(clone, BASE_REF, project.path),
                         "run `git lfs pull` there and start again")
    (clone.git_dir / "kopt").mkdir(exist_ok=True)
    _note(clone).write_bytes(msgspec.json.encode(missing))
    if globs:
        _carry(clone, BASE_REF, project, globs, folder / FOLDER, folder.parent)


def missing(clone: Clone) -> tuple[str, ...]:
    """Return one line for each kind of content that `take_over` did not find."""
    try:
        return msgspec.json.decode(_note(clone).read_bytes(), type=tuple[str, ...])
    except FileNotFoundError:
        return ()


def fill(clone: Clone, folder: Path, commit: str, directory: Path) -> None:
    """Add submodules, LFS contents and built files to a checkout of a commit."""
    submodules.fill(clone, commit, directory)
    lfs.fill(clone, commit, directory)
    _fill_built(clone, commit, directory, folder / FOLDER, _carried(folder / FOLDER))


def skip_reason(clone: Clone, folder: Path, commit: str, directory: Path) -> SkipReason:
    """Return a function that tells a capture which paths to skip; see `worktree.SkipReason`."""
    pointers = lfs.pointers(clone, commit)
    carried = frozenset(_carried(folder / FOLDER).names)

    def reason(name: str) -> str | None:
        if name in carried:
            return ""
        if name not in pointers:
            return None
        same = lfs.unchanged(pointers[name], directory / name)
        return "" if same else "stored with Git LFS: no candidate can change it"

    return reason


def _describe(what: str, names: list[str], fix: str) -> list[str]:
    if not names:
        return []
    return [f"{len(names)} {what} missing from the project's folder and from every checkout: "
            f"{listed(names, NAMED)} ({fix})"]


def _note(clone: Clone) -> Path:
    return clone.git_dir / "kopt" / "missing.json"


MOST_BYTES = 64 << 30


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """The `names` of the copied files, and the times of the sources that they were built from.

    `stamps` holds blob and time (ns) of the project's tracked files, submodules' included. Files
    that differ from the commit are left out: what depends on them is built again.
    """

    names: tuple[str, ...] = ()
    stamps: dict[str, tuple[str, int]] = {}


def _carry(clone: Clone, commit: str, project: Project, globs: Sequence[str], folder: Path,
           apart: Path) -> None:
    """Copy the files that match the globs and that neither project nor submodules track.

    `commit` is the clone's, and may have fewer files than the project's. Nothing below `apart` (the
    workspace) is copied. Raises InputError if no file matches.
    """
    inside, top = submodules.tracked(project), project.path
    tracked = Clone(project.git_dir).entries(project.head) | inside
    excluded = {".git", *(os.path.relpath(path.resolve(), top) for path in (apart, folder.parent)),
                *(f"{path}/.git" for path, entry in tracked.items()
                  if entry.mode == submodules.GITLINK)}
    try:
        copy_folder(
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
    _record(folder).write_bytes(msgspec.json.encode(Carried(names=names, stamps=stamps)))


def _carried(folder: Path) -> Carried:
    """Return what `take_over` copied to a folder; empty if it copied nothing."""
    try:
        return msgspec.json.decode(_record(folder).read_bytes(), type=Carried)
    except FileNotFoundError:
        return Carried()


def _fill_built(clone: Clone, commit: str, directory: Path, folder: Path,
                carried: Carried) -> None:
    """Put the built files into a checkout, and set times by which a build sees what to rebuild.

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
    """Return whether a plain file has exactly the tree's bytes: git filters may change them."""
    if not entry.mode.startswith("100") or path.is_symlink() or path.stat().st_size != entry.size:
        return False
    data = path.read_bytes()
    algorithm = hashlib.sha256 if len(entry.id) == 64 else hashlib.sha1
    return algorithm(b"blob %d\0%b" % (len(data), data)).hexdigest() == entry.id


def _record(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")
