"""Slots' worktrees: untrusted repositories that borrow the clone's objects.

A worker may commit, plant hooks and configuration, replace or delete `.git`. Capture therefore
reads only the files, through the engine's git directory and an index that the engine keeps, and
never opens the worktree as a repository: GitPython would read its configuration.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from engine.globs import matches
from engine.repository.clone import Change, Clone, between, cleaned
from engine.repository.git import GitFailed, init
from engine.repository.patches.hygiene import (
    NOT_IN_EDIT,
    by_product_kind,
    path_fault,
    refuse_conflicts,
)
from engine.repository.patches.patch import Dropped
from engine.repository.project import object_format
from harness.errors import EnvironmentFault, InputError
from harness.formats import file_copy

MAX_FILE = 4 * 2**20
"""Largest file that is captured, bytes."""
MAX_FILES = 200_000
MAX_NEW_FILES = 1000
MAX_PATCH = 8 * 2**20
"""Bytes."""

_CONFIG = """\
[gc]
	auto = 0
[user]
	name = kopt worker
	email = worker@localhost
"""


def create(clone: Clone, path: Path, commit: str) -> None:
    """Check a commit out into a fresh worktree, replacing what is there."""
    remove(path)
    commit = clone.resolve(commit)
    path.mkdir(parents=True)
    git = init(path, object_format=object_format(commit))
    git_folder = path / ".git"
    with (git_folder / "config").open("a") as config:
        config.write(_CONFIG)
    (git_folder / "objects" / "info").mkdir(exist_ok=True)
    (git_folder / "objects" / "info" / "alternates").write_text(f"{clone.git_dir / 'objects'}\n")
    if (clone.git_dir / "shallow").exists():
        shutil.copy(clone.git_dir / "shallow", git_folder / "shallow")
    (git_folder / "HEAD").write_text(f"{commit}\n")
    git.run("read-tree", "--reset", "-u", commit, work_tree=path)
    kept = _kept_index(clone, path)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(git_folder / "index", kept)  # its time tells git which files to reread


def remove(path: Path) -> None:
    """Delete a worktree in any state; links out of it are not followed."""
    if not file_copy.remove(path):
        raise EnvironmentFault("the worktree cannot be deleted", where=str(path),
                               fix="delete it by hand")


SkipReason = Callable[[str], str | None]
"""Returns the reason to skip a path, "" if it is unchanged, None to capture it."""


def capture(clone: Clone, path: Path, base: str, edit: Sequence[str] = (),
            skip_reason: SkipReason = lambda name: None) -> Change:
    """Return the change from `base` to a worktree's files, cleaned. Raises InputError."""
    if path.is_symlink() or not path.is_dir():
        raise InputError("the worker removed its worktree", where=path.name)
    dropped: list[Dropped] = []
    _defuse(path, dropped)
    try:
        tree = _tree(clone, path, base, edit, dropped, skip_reason)
        change = between(clone, base, tree, dropped)
        if len(change.patch.data) > MAX_PATCH:
            raise InputError(f"the patch is larger than {MAX_PATCH >> 20} MiB", where=path.name)
        change = cleaned(clone, change, edit)
    except GitFailed as error:
        raise InputError(f"git cannot read the worktree: {error.what}", where=path.name) from error
    refuse_conflicts(change.patch)
    return change


def _tree(clone: Clone, path: Path, base: str, edit: Sequence[str],
          dropped: list[Dropped], skip_reason: SkipReason) -> str:
    with clone.index() as index:
        kept = _kept_index(clone, path)
        if kept.exists():
            shutil.copy2(kept, index)
        else:
            clone.git.run("read-tree", clone.tree_of(base), index=index)
        reasons = {name: skip_reason(name) for name in _changed(clone, path, index, edit, dropped)}
        dropped += [Dropped(name, reason) for name, reason in reasons.items() if reason]
        _stage(clone, path, [name for name, why in reasons.items() if why is None], index)
        return clone.write_tree(index)


def _defuse(path: Path, dropped: list[Dropped]) -> None:
    """Delete pipes, sockets and devices, on which git would block, and make the rest readable."""
    folders, seen = [str(path)], 0
    while folders:  # not os.walk: it recurses, and a worker can nest deeper than Python can
        folder = folders.pop()
        _allow(folder, os.lstat(folder).st_mode, 0o700)
        for entry in _entries(folder):
            seen += 1
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                folders.append(entry.path)
            elif stat.S_ISREG(mode):
                _allow(entry.path, mode, 0o400)
            elif not stat.S_ISLNK(mode):
                os.unlink(entry.path)
                dropped.append(Dropped(os.path.relpath(entry.path, path), "not a regular file"))
        if seen > MAX_FILES:
            raise InputError(f"more than {MAX_FILES} files", where=path.name)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise InputError(f"folder {folder[-80:]!r} cannot be read: {error.strerror}") from error


def _allow(path: str, mode: int, permissions: int) -> None:
    if mode & permissions != permissions:
        os.chmod(path, stat.S_IMODE(mode) | permissions)


def _kept_index(clone: Clone, path: Path) -> Path:
    return clone.git_dir / "kopt" / "slots" / f"{path.name}.index"


def _changed(clone: Clone, path: Path, index: Path, edit: Sequence[str],
             dropped: list[Dropped]) -> list[str]:
    """Return the paths to stage. Paths that git must not read are added to `dropped`."""
    tracked = clone.git.run("diff-files", "-z", "--name-only", "--ignore-submodules=all",
                            "--no-ext-diff", index=index, work_tree=path)
    untracked = clone.git.run("ls-files", "-z", "--others", "--exclude-per-directory=.gitignore",
                              index=index, work_tree=path)
    new: list[str] = []
    for name in _split(untracked):
        if reason := _left_out(name, edit):
            dropped.append(Dropped(name, reason))
        else:
            new.append(name)
    if len(new) > MAX_NEW_FILES:
        raise InputError(f"more than {MAX_NEW_FILES} new files", where=path.name)
    return [name for name in _split(tracked) + new if not _too_large(path, name, dropped)]


def _left_out(name: str, edit: Sequence[str]) -> str:
    if name.endswith("/"):
        return "a repository inside the worktree"
    if path_fault(name):
        return "a name that git refuses"
    if edit and not matches(name, edit):
        return by_product_kind(name) or NOT_IN_EDIT
    return ""


def _too_large(path: Path, name: str, dropped: list[Dropped]) -> bool:
    try:
        status = os.lstat(path / name)
    except OSError:
        return False  # deleted: a change like any other
    if not stat.S_ISREG(status.st_mode) or status.st_size <= MAX_FILE:
        return False
    dropped.append(Dropped(name, f"larger than {MAX_FILE >> 20} MiB"))
    return True


def _stage(clone: Clone, path: Path, names: Iterable[str], index: Path) -> None:
    """Put files into the index. Not with `git add`, which runs git inside nested repositories."""
    now_folders = [name for name in names
                   if (path / name).is_dir() and not (path / name).is_symlink()]
    files = [name for name in names if name not in set(now_folders)]
    for option, paths in (("--force-remove", now_folders), ("--add", files)):
        if paths:
            stdin = "".join(f"{name}\0" for name in paths).encode(errors="surrogateescape")
            clone.git.run("update-index", "--remove", "--replace", option, "-z", "--stdin",
                          stdin=stdin, index=index, work_tree=path)


def _split(names: bytes) -> list[str]:
    return [name for name in names.decode(errors="surrogateescape").split("\0") if name]


_SLOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")


def slot_folder(folder: Path, slot: str) -> Path:
    """Return the folder of a slot's worktree; raises ValueError for a name that leads elsewhere."""
    if not _SLOT.fullmatch(slot) or ".." in slot:
        raise ValueError(f"invalid slot name: {slot!r}")
    return folder / "worktrees" / slot
