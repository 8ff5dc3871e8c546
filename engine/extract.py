"""`execution_mode: workspace`: a campaign on a minimal copy of the project, its origin on record.

The copy has the kernel, what measures and tests it, and what lies beside it; it is a repository of
its own in the campaign's folder. Of what comes out only the change of the kernel goes back: the
paths are the project's, so that its patch applies there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import msgspec

from engine import reported
from engine.clone import Clone
from engine.globs import matches
from engine.manifest import Manifest
from engine.project import Project, find, start_repository
from harness.reported.target import CommandTarget
from harness.target import Target

FOLDERS = ("src", "test", "tests", "bench", "benchmark", "benchmarks")
"""Folders at the top that come along whole."""
ORIGIN = "ORIGIN_COMMIT"


def wanted(manifest: Manifest, task: Target | CommandTarget,
           files: Iterable[str]) -> tuple[str, ...]:
    """Return the project's files that a campaign's copy has."""
    here = tuple(files)
    globs = (*manifest.edit, *manifest.frozen, *manifest.extract)
    named = {task.source, *_measuring(manifest, task, here)}
    beside = str(PurePosixPath(task.source).parent) if task.source else "-"
    return tuple(path for path in here if path in named or matches(path, globs)
                 or (path.partition("/")[0] in FOLDERS and "/" in path)
                 or (beside != "." and str(PurePosixPath(path).parent) == beside)
                 or (beside == "." and "/" not in path))


def _measuring(manifest: Manifest, task: Target | CommandTarget,
               files: tuple[str, ...]) -> Iterator[str]:
    if isinstance(task, Target):
        yield from (manifest.target.task, task.reference_file)
    yield from task.frozen if isinstance(task, CommandTarget) else ()
    everything = msgspec.structs.replace(
        manifest, edit=(), test_command=" ".join((
            manifest.test_command, manifest.build_command, manifest.setup_command,
            manifest.format_command, manifest.e2e_command)))
    sealed = reported.frozen(everything, files)
    yield from (path for path in files if matches(path, sealed))


def copy(project: Project, paths: Iterable[str], folder: Path) -> Project:
    """Write files of the project's commit into a repository of their own and return it."""
    whole = folder.with_name(f"{folder.name}.whole")
    Clone(project.git_dir).checkout_tree(project.head, whole)
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (whole / path).rename(folder / path)
    _remove(whole)
    start_repository(folder, f"extracted from {project.head}")
    (folder.parent / ORIGIN).write_text(f"{project.head}\n")
    return find(folder)


def _remove(folder: Path) -> None:
    from engine import worktree

    worktree.remove(folder)
