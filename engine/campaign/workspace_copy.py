"""`execution_mode: workspace`: a campaign on a minimal copy of the project, its origin on record.

The copy has the kernel, what measures and tests it, and what lies beside it; it is a repository of
its own in the campaign's folder. Its commit names the files as the project's own does, submodules
and files of Git LFS among them, so that checkouts get the contents of these as any project's do.
Of what comes out only the change of the kernel goes back: the paths are the project's, so that its
patch applies there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

import msgspec

from engine.campaign.handover import ORIGIN
from engine.globs import matches, reaches
from engine.manifest import benchmark_target
from engine.manifest.schema import Manifest
from engine.repository import lfs, submodules
from engine.repository.clone import Clone, TreeEntry
from engine.repository.git import init
from engine.repository.project import Project, find
from harness.benchmark.spec.command_target import CommandTarget
from harness.target import Target

FOLDERS = ("src", "test", "tests", "bench", "benchmark", "benchmarks")
"""Folders at the top that come along whole."""
OF_GIT = (".gitattributes", ".gitignore")
"""Files that say how those below their folder are to be taken."""
FOLDER = "extracted"
"""Of a campaign's folder: the copy."""


def take(project: Project, manifest: Manifest, task: Target | CommandTarget,
         folder: Path) -> Project:
    """Make the copy that a manifest asks for in a campaign's folder; see `complete`."""
    listed = Clone(project.git_dir).entries(project.head)
    modules = [path for path, entry in listed.items() if entry.mode == submodules.GITLINK]
    return copy(project, wanted(manifest, task, listed, modules), folder / FOLDER)


def wanted(manifest: Manifest, task: Target | CommandTarget, files: Iterable[str],
           modules: Collection[str] = ()) -> tuple[str, ...]:
    """Return the project's files that a campaign's copy has.

    `modules` are the submodules among them: one comes along whole if anything below it is wanted.
    """
    here = tuple(files)
    globs = (*manifest.edit, *manifest.frozen, *manifest.extract)
    named = {task.source, *_measuring(manifest, task, here)}
    beside = str(PurePosixPath(task.source).parent) if task.source else "-"
    found = {path for path in here if path in named or matches(path, globs)
             or (path.partition("/")[0] in FOLDERS and ("/" in path or path in modules))
             or (beside != "." and str(PurePosixPath(path).parent) == beside)
             or (beside == "." and "/" not in path)
             or (path in modules and _reached(path, manifest))}
    found |= {str(folder / name) for path in found for folder in PurePosixPath(path).parents
              for name in OF_GIT}
    if found.intersection(modules):
        found.add(".gitmodules")
    return tuple(path for path in here if path in found)


def _measuring(manifest: Manifest, task: Target | CommandTarget,
               files: tuple[str, ...]) -> Iterator[str]:
    if isinstance(task, Target):
        yield from (manifest.target.task, task.reference_file)
    yield from task.frozen if isinstance(task, CommandTarget) else ()
    everything = msgspec.structs.replace(manifest, edit=(), test_command=_commands(manifest))
    sealed = benchmark_target.frozen_globs(everything, files)
    yield from (path for path in files if matches(path, sealed))


def _reached(module: str, manifest: Manifest) -> bool:
    """Tell whether a glob or a command names what lies in a submodule."""
    named = rf"(?:^|[^\w./-]|\./|-[A-Za-z]){re.escape(module)}(?![\w.-])"
    return reaches(module, (*manifest.frozen, *manifest.extract)) \
        or re.search(named, _commands(manifest)) is not None


def _commands(manifest: Manifest) -> str:
    return " ".join(getattr(manifest, field) for field in manifest.__struct_fields__
                    if field.endswith("_command"))


def copy(project: Project, paths: Iterable[str], folder: Path) -> Project:
    """Commit files of the project's commit to a repository of their own and return it.

    Nothing is written to the project, and no file passes a filter on its way.
    """
    theirs = Clone(project.git_dir)
    listed = theirs.entries(project.head)
    kept = {path: listed[path] for path in paths}
    git = init(folder, object_format=project.object_format)
    _pack(theirs, kept.values(), folder / ".git")
    git.run("update-index", "-z", "--index-info", stdin="".join(
        f"{entry.mode} {entry.id}\t{path}\0" for path, entry in kept.items()
    ).encode(errors="surrogateescape"))
    date = theirs.git.line("log", "-1", "--format=%ct", project.head)
    commit = git.line("commit-tree", git.line("write-tree"),
                      stdin=f"extracted from {project.head}\n".encode(),
                      env={name: f"{date} +0000" for name in ("GIT_AUTHOR_DATE",
                                                              "GIT_COMMITTER_DATE")})
    git.run("update-ref", "HEAD", commit)
    git.run("checkout-index", "--all", "--index", "--quiet", work_tree=folder)
    (folder.parent / ORIGIN).write_text(f"{project.head}\n")
    return find(folder)


def complete(copied: Project, clone: Clone) -> None:
    """Write into the copy what its commit only points at, from a clone that has taken it over."""
    submodules.fill(clone, copied.head, copied.path)
    lfs.fill(clone, copied.head, copied.path)


def _pack(theirs: Clone, entries: Iterable[TreeEntry], git_dir: Path) -> None:
    """Pack the contents of files straight into another repository."""
    blobs = dict.fromkeys(entry.id for entry in entries if entry.mode != submodules.GITLINK)
    theirs.git.run("pack-objects", "--quiet", str(git_dir / "objects" / "pack" / "pack"),
                   stdin="".join(f"{blob}\n" for blob in blobs).encode())
