"""Completes a checkout with submodules, LFS contents and built files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.repository.checkouts import build_artifacts, lfs, submodules
from engine.repository.clone import BASE_REF, Clone
from engine.repository.project import Project
from engine.repository.worktree import Settled
from harness.formats.quantities import listed

FOLDER = "carried"
"""Folder of the built files in a campaign's folder."""
NAMED = 3


def take_over(clone: Clone, folder: Path, project: Project, globs: Sequence[str]) -> None:
    """Copy what the project's commit only points at, once; record what is missing.

    `globs` name built files. Raises InputError if there is none of them.
    """
    missing = _describe("submodules are", submodules.take_over(clone, BASE_REF, project.path),
                        "run `git submodule update --init --recursive` there and start again")
    missing += _describe("files of Git LFS are", lfs.take_over(clone, BASE_REF, project.path),
                         "run `git lfs pull` there and start again")
    (clone.git_dir / "kopt").mkdir(exist_ok=True)
    _note(clone).write_bytes(msgspec.json.encode(missing))
    if globs:
        build_artifacts.take_over(clone, BASE_REF, project, globs, folder / FOLDER, folder.parent)


def missing(clone: Clone) -> tuple[str, ...]:
    """Return one line for each kind of content that `take_over` did not find."""
    try:
        return msgspec.json.decode(_note(clone).read_bytes(), type=tuple[str, ...])
    except FileNotFoundError:
        return ()


def fill(clone: Clone, folder: Path, commit: str, directory: Path) -> None:
    """Complete a checkout of a commit."""
    submodules.fill(clone, commit, directory)
    lfs.fill(clone, commit, directory)
    build_artifacts.fill(
        clone, commit, directory, folder / FOLDER, build_artifacts.read(folder / FOLDER)
    )


def settled(clone: Clone, folder: Path, commit: str, directory: Path) -> Settled:
    """Return the function that tells a capture which paths to skip."""
    pointers = lfs.pointers(clone, commit)
    carried = frozenset(build_artifacts.read(folder / FOLDER).names)

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
