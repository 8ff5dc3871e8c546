"""Submodules: every checkout gets their files, from the project's local repositories of them.

Nothing is fetched over a network. The clone gets the tree that the project's commit names, without
its history; a checkout has plain files there, and changes to them are not captured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.repository.clone import Clone, TreeEntry
from engine.repository.git import Git, GitFailed, locate
from engine.repository.project import Project
from harness.errors import EnvironmentFault, InputError

GITLINK = "160000"
REFS = "refs/kopt/submodules"


def take_over(clone: Clone, commit: str, project: Path) -> list[str]:
    """Copy the submodules of a commit into the clone; returns the paths of missing ones."""
    return [path for path, _ in _copied(clone, commit, [project, *_git_dirs(project)], "")]


def fill(clone: Clone, commit: str, directory: Path) -> None:
    """Write the files of a commit's submodules, as far as these were taken over."""
    for path, tree in _imported(clone, commit):
        folder = directory / path
        folder.mkdir(parents=True, exist_ok=True)
        with clone.index(tree) as index:
            clone.git.run("checkout-index", "--all", "--quiet", index=index, work_tree=folder)


def entries(clone: Clone, commit: str) -> dict[str, TreeEntry]:
    """Return what a commit's submodules have under each path, as far as these were taken over."""
    return {f"{path}/{name}": entry for path, tree in _imported(clone, commit)
            for name, entry in clone.entries(tree).items()}


def tracked(project: Project) -> dict[str, TreeEntry]:
    """Return the entries of the submodules that the project has here, by path, at its commit."""
    around = [project.path, *_git_dirs(project.path)]
    return dict(_tracked(Clone(project.git_dir), project.head, around, ""))


def check(clone: Clone, commit: str, paths: Iterable[str]) -> None:
    """Raise InputError if a path lies in a submodule: a candidate changes one repository."""
    for folder, entry in clone.entries(commit).items():
        for path in paths if entry.mode == GITLINK else ():
            if f"{path.removeprefix('./')}/".startswith(f"{folder}/"):
                raise InputError(f"{path} lies in the submodule {folder}, which no candidate can "
                                 "change", fix="make the submodule's own repository the project")


def _imported(clone: Clone, commit: str, below: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and tree of the submodules that were taken over, outer ones first."""
    for path, entry in clone.entries(commit).items():
        tree = clone.git.find(f"{REFS}/{entry.id}") if entry.mode == GITLINK else ""
        if tree:
            yield f"{below}{path}", tree
            yield from _imported(clone, tree, f"{below}{path}/")


def _copied(clone: Clone, commit: str, around: list[Path], below: str) -> Iterator[tuple[str, str]]:
    """Copy submodules, recursively; yields path and commit of those that cannot be copied."""
    for path, entry, home in _homes(clone, commit, around):
        if home is None or not _copy(clone, entry.id, home):
            yield f"{below}{path}", entry.id
            continue
        yield from _copied(clone, f"{REFS}/{entry.id}", [home, *_git_dirs(home)],
                           f"{below}{path}/")


def _tracked(clone: Clone, commit: str, around: list[Path],
             below: str) -> Iterator[tuple[str, TreeEntry]]:
    for path, entry, home in _homes(clone, commit, around):
        if home is None or not (git_dirs := _git_dirs(home)):
            continue
        source = Clone(git_dirs[0], Git(git_dirs[0], work_tree=git_dirs[0]))
        for name, file in source.entries(entry.id).items():
            yield f"{below}{path}/{name}", file
        yield from _tracked(source, entry.id, [home, *git_dirs], f"{below}{path}/")


def _homes(clone: Clone, commit: str,
           around: list[Path]) -> Iterator[tuple[str, TreeEntry, Path | None]]:
    """Yield a commit's submodules, each with a local repository that has its commit, or None."""
    for path, entry in clone.entries(commit).items():
        if entry.mode != GITLINK:
            continue
        names = dict.fromkeys((*_names(clone, commit, path), path))
        places = [place / path for place in around] + [
            place / "modules" / name for place in around for name in names]
        yield path, entry, next((place for place in places if _has(place, entry.id)), None)


def _names(clone: Clone, commit: str, path: str) -> Iterator[str]:
    """Yield the names of a path in `.gitmodules`: git stores submodules' repositories by name."""
    if ".gitmodules" not in clone.entries(commit):
        return
    text = clone.read(commit, ".gitmodules").decode(errors="surrogateescape")
    for part in re.split(r"^\s*\[submodule ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("]")
        match = re.search(r"^\s*path\s*=\s*(.*?)\s*$", rest, re.MULTILINE)
        if match and match[1] == path and ".." not in name:
            yield name.strip().strip('"')


def _git_dirs(place: Path) -> list[Path]:
    repository = locate(place)
    return [] if repository is None else [repository.common_dir]


def _git(place: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run git in a working tree, or in a git directory whose working tree may be gone."""
    if (place / "HEAD").is_file() and (place / "objects").is_dir():
        return Git(place, work_tree=place).run(*arguments, stdin=stdin)
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
    """Pack the tree of a commit into the clone; False if some of its objects are missing."""
    try:
        tree = _git(home, "rev-parse", f"{commit}^{{tree}}").decode().strip()
        _git(home, "pack-objects", "--quiet", "--revs",
             str(clone.git_dir / "objects" / "pack" / "pack"), stdin=f"{tree}\n".encode())
    except GitFailed:
        return False
    clone.git.run("update-ref", f"{REFS}/{commit}", tree)
    return True
