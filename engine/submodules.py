"""Submodules: their files in every checkout, from the repositories that the project has of them.

Nothing is ever fetched over a network. What is copied is the tree that the project's commit names,
without its history; a checkout has plain files there, and what is changed in them is not captured.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.clone import Clone
from engine.git import Git, GitFailed
from harness.errors import EnvironmentFault, InputError

GITLINK = "160000"
REFS = "refs/kopt/submodules"


def take_over(clone: Clone, commit: str, project: Path) -> list[str]:
    """Copy the submodules of a commit into the clone; returns those that are not here, by path."""
    return [path for path, _ in _copied(clone, commit, [project, *_git_dirs(project)], "")]


def fill(clone: Clone, commit: str, directory: Path) -> None:
    """Write the files of a commit's submodules, as far as they were taken over."""
    for path, entry in clone.entries(commit).items():
        tree = clone.git.find(f"{REFS}/{entry.id}") if entry.mode == GITLINK else ""
        if not tree:
            continue
        place = directory / path
        place.mkdir(parents=True, exist_ok=True)
        with clone.index(tree) as index:
            clone.git.run("checkout-index", "--all", "--quiet", index=index, work_tree=place)
        fill(clone, tree, place)


def check(clone: Clone, commit: str, paths: Iterable[str]) -> None:
    """Raise InputError if one of these paths or globs names what lies in a submodule of a commit:
    a candidate is a change of one repository.
    """
    for folder, entry in clone.entries(commit).items():
        for path in paths if entry.mode == GITLINK else ():
            if f"{path.removeprefix('./')}/".startswith(f"{folder}/"):
                raise InputError(f"{path} lies in the submodule {folder}, which no candidate can "
                                 "change", fix="make the submodule's own repository the project")


def _copied(clone: Clone, commit: str, around: list[Path], below: str) -> Iterator[tuple[str, str]]:
    """Copy what can be, with what it holds in turn; yields path and commit of what cannot."""
    for path, entry in clone.entries(commit).items():
        if entry.mode != GITLINK:
            continue
        names = dict.fromkeys((*_names(clone, commit, path), path))
        places = [place / path for place in around] + [
            place / "modules" / name for place in around for name in names]
        home = next((place for place in places if _has(place, entry.id)), None)
        if home is None or not _copy(clone, entry.id, home):
            yield f"{below}{path}", entry.id
            continue
        yield from _copied(clone, f"{REFS}/{entry.id}", [home, *_git_dirs(home)],
                           f"{below}{path}/")


def _names(clone: Clone, commit: str, path: str) -> Iterator[str]:
    """Yield the names under which `.gitmodules` knows a path: git keeps repositories by name."""
    if ".gitmodules" not in clone.entries(commit):
        return
    text = clone.read(commit, ".gitmodules").decode(errors="surrogateescape")
    for part in re.split(r"^\s*\[submodule ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("]")
        found = re.search(r"^\s*path\s*=\s*(.*?)\s*$", rest, re.MULTILINE)
        if found and found[1] == path and ".." not in name:
            yield name.strip().strip('"')


def _git_dirs(place: Path) -> list[Path]:
    with contextlib.suppress(GitFailed, EnvironmentFault):
        printed = _git(place, "rev-parse", "--git-common-dir")
        return [(place / printed.decode(errors="surrogateescape").rstrip("\n")).resolve()]
    return []


def _git(place: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run git in a working tree or a git directory, whose own one may be gone."""
    if (place / "HEAD").is_file() and (place / "objects").is_dir():
        return Git(place).run(*arguments, stdin=stdin, work_tree=place)
    return Git(None).run(*arguments, stdin=stdin, cwd=place)


def _has(place: Path, commit: str) -> bool:
    if not place.is_dir():
        return False
    try:
        _git(place, "cat-file", "-e", f"{commit}^{{tree}}")
    except (GitFailed, EnvironmentFault):
        return False
    return True


def _copy(clone: Clone, commit: str, home: Path) -> bool:
    """Pack the tree of a commit straight into the clone; False if some of it is not there."""
    try:
        tree = _git(home, "rev-parse", f"{commit}^{{tree}}").decode().strip()
        _git(home, "pack-objects", "--quiet", "--revs",
             str(clone.git_dir / "objects" / "pack" / "pack"), stdin=f"{tree}\n".encode())
    except GitFailed:
        return False
    clone.git.run("update-ref", f"{REFS}/{commit}", tree)
    return True
