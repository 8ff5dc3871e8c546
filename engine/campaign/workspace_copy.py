"""`execution_mode: workspace`: a campaign runs on a minimal copy of the project.

The copy has the kernel, the files next to it, and what measures and tests it. It is a separate
repository in the campaign's folder; a file beside it names the project's commit that it was copied
from. Each copied path has the same git entry as in the project's commit (submodules
stay links and LFS files pointers, whose contents checkouts fetch as usual), and the same name, so
that the kernel's patch applies in the project.
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
from engine.repository.checkouts import lfs, submodules
from engine.repository.clone import Clone
from engine.repository.git import init
from engine.repository.project import Project, find
from harness.benchmark.spec.command_target import CommandTarget
from harness.tasks.target import Target

FOLDERS = ("src", "test", "tests", "bench", "benchmark", "benchmarks")
"""Top-level folders that are copied whole."""
GIT_FILES = (".gitattributes", ".gitignore")
"""Files that govern how git treats the files below their folder."""
FOLDER = "extracted"
"""Folder of the copy in a campaign's folder."""


def extract(project: Project, manifest: Manifest, task: Target | CommandTarget,
            folder: Path) -> Project:
    """Make the copy in a campaign's folder; `complete` then adds submodules and LFS contents."""
    entries = Clone(project.git_dir).entries(project.head)
    modules = [path for path, entry in entries.items() if entry.mode == submodules.GITLINK]
    return commit_copy(project, files_to_copy(manifest, task, entries, modules), folder / FOLDER)


def files_to_copy(manifest: Manifest, task: Target | CommandTarget, files: Iterable[str],
                  modules: Collection[str] = ()) -> tuple[str, ...]:
    """Return the project's files that a campaign needs.

    `modules` are the submodules among them: one is copied whole if any path below it is needed.
    """
    paths = tuple(files)
    globs = (*manifest.edit, *manifest.frozen, *manifest.extract)
    named = {task.source, *_measuring(manifest, task, paths)}
    kernel_folder = str(PurePosixPath(task.source).parent) if task.source else "-"
    selected = {path for path in paths if path in named or matches(path, globs)
                or (path.partition("/")[0] in FOLDERS and ("/" in path or path in modules))
                or (kernel_folder != "." and str(PurePosixPath(path).parent) == kernel_folder)
                or (kernel_folder == "." and "/" not in path)
                or (path in modules and _reached(path, manifest))}
    selected |= {str(folder / name) for path in selected
                 for folder in PurePosixPath(path).parents for name in GIT_FILES}
    if selected.intersection(modules):
        selected.add(".gitmodules")
    return tuple(path for path in paths if path in selected)


def _measuring(manifest: Manifest, task: Target | CommandTarget,
               files: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that measure and test the kernel."""
    if isinstance(task, Target):
        yield from (manifest.target.task, *task.frozen_files)
    yield from task.frozen if isinstance(task, CommandTarget) else ()
    everything = msgspec.structs.replace(manifest, edit=(), test_command=_commands(manifest))
    sealed = benchmark_target.frozen_globs(everything, files)
    yield from (path for path in files if matches(path, sealed))


def _reached(module: str, manifest: Manifest) -> bool:
    """Return whether a glob or a command names a path in a submodule."""
    named = rf"(?:^|[^\w./-]|\./|-[A-Za-z]){re.escape(module)}(?![\w.-])"
    return reaches(module, (*manifest.frozen, *manifest.extract)) \
        or re.search(named, _commands(manifest)) is not None


def _commands(manifest: Manifest) -> str:
    return " ".join(getattr(manifest, field) for field in manifest.__struct_fields__
                    if field.endswith("_command"))


def commit_copy(project: Project, paths: Iterable[str], folder: Path) -> Project:
    """Commit some files of the project's commit in a new repository, without git filters."""
    source = Clone(project.git_dir)
    entries = source.entries(project.head)
    copied = {path: entries[path] for path in paths}
    git = init(folder, object_format=project.object_format)
    blobs = dict.fromkeys(entry.id for entry in copied.values()
                          if entry.mode != submodules.GITLINK)
    source.git.run("pack-objects", "--quiet", str(folder / ".git" / "objects" / "pack" / "pack"),
                   stdin="".join(f"{blob}\n" for blob in blobs).encode())
    git.run("update-index", "-z", "--index-info", stdin="".join(
        f"{entry.mode} {entry.id}\t{path}\0" for path, entry in copied.items()
    ).encode(errors="surrogateescape"))
    date = source.git.line("log", "-1", "--format=%ct", project.head)
    commit = git.line("commit-tree", git.line("write-tree"),
                      stdin=f"extracted from {project.head}\n".encode(),
                      env={name: f"{date} +0000" for name in ("GIT_AUTHOR_DATE",
                                                              "GIT_COMMITTER_DATE")})
    git.run("update-ref", "HEAD", commit)
    git.run("checkout-index", "--all", "--index", "--quiet", work_tree=folder)
    (folder.parent / ORIGIN).write_text(f"{project.head}\n")
    return find(folder)


def complete(copied: Project, clone: Clone) -> None:
    """Write submodules and LFS contents into the copy, from a clone that contains its commit."""
    submodules.fill(clone, copied.head, copied.path)
    lfs.fill(clone, copied.head, copied.path)
