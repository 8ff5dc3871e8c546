"""Declares the knobs that `kopt new` proposed, in a separate commit of the campaign's clone.

If the manifest names a tuning table, its values become the choices of the source's knobs, and its
entries the first trials of a search. The project's files stay unchanged. `kopt merge` includes the
declarations in its change, or with `knobs: inline` only the values of the knobs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.manifest.schema import Manifest
from engine.repository import current_files
from engine.repository.clone import Clone
from engine.repository.git import GitFailed, locate
from engine.repository.project import Project
from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.quantities import counted
from harness.formats.yaml_decode import decode
from harness.search.space import knob_proposals, tuning_table
from harness.tasks.target import Target

PATCH = "kopt_task/knobs.patch"
BEFORE = "refs/kopt/undeclared"
"""A ref in a campaign's clone: the commit before the one that declares knobs."""
MESSAGE = "declare knobs"


def declare(project: Project, manifest: Manifest, folder: Path) -> Project:
    """Return the project with its proposed knobs declared in one more commit of kopt's own copy.

    A project without knobs to declare is returned as it is. Raises InputError if the knobs no
    longer fit the source.
    """
    clone = Clone(project.git_dir)
    has_patch = manifest.knobs != "none" and manifest.target.kind == "kernel" \
        and PATCH in clone.files(project.head)
    if not has_patch and not manifest.target.knobs:
        return project
    if not project.snapshot:
        git = current_files.borrowing_repository(
            folder / "knobs.git", locate(project.path), project.path, project.head)
        clone = Clone(folder / "knobs.git", git)
    notices = [project.snapshot]
    with clone.index(project.head) as index:
        if has_patch:
            _apply_patch(clone, project.head, index)
            notices.append(f"knobs of {PATCH} are declared in kopt's copy only")
        if manifest.target.knobs:
            notices.append(_apply_table(clone, project.head, index, manifest))
        tree = clone.git.line("write-tree", "--missing-ok", index=index)
    commit = clone.commit_tree(tree, project.head, MESSAGE)
    clone.git.run("update-ref", "HEAD", commit)
    notice = "; ".join(filter(None, notices))
    return msgspec.structs.replace(project, git_dir=clone.git_dir, head=commit, snapshot=notice)


def _apply_patch(clone: Clone, head: str, index: Path) -> None:
    try:
        clone.git.run("apply", "--cached", "--whitespace=nowarn", "-", index=index,
                      stdin=clone.git.run("cat-file", "blob", f"{head}:{PATCH}"))
    except GitFailed as error:
        raise InputError(f"the proposed knobs do not fit the source: {error}", where=PATCH,
                         fix="propose them again with kopt new --force, or set knobs: none"
                         ) from None


def _apply_table(clone: Clone, head: str, index: Path, manifest: Manifest) -> str:
    """Give the source's knobs the values of the manifest's tuning table; return a line about it."""
    name, path, language = manifest.target.knobs, manifest.kernel_source, manifest.target_lang
    sizes: list[dict[str, int]] = []
    if manifest.target.kind == "kernel":
        task = yaml_document.parse(clone.read(head, manifest.target.task).decode(),
                                   manifest.target.task)
        target = decode(task, Target)
        path, language = target.source, target.language
        sizes = [each.shape for each in target.classes]
    table = tuning_table.in_order(tuning_table.parse(clone.read(head, name).decode(), name), sizes)
    source = clone.git.run("cat-file", "blob", f":{path}", index=index).decode()
    text, unused = tuning_table.declare(source, table, language)
    if text == source:
        raise InputError(f"no knob of {path} is in the table", where=name,
                         fix=f"name a table for its knobs; this one has "
                         f"{', '.join(table[0].config)}")
    blob = clone.git.line("hash-object", "-w", "--stdin", stdin=text.encode())
    clone.git.run("update-index", "--cacheinfo", f"{clone.entries(head)[path].mode},{blob},{path}",
                  index=index)
    return f"{counted(len(table), 'configuration')} of {name} are starting points" + (
        f"; {', '.join(unused)} are not knobs of {path}" if unused else "")


def result(clone: Clone, manifest: Manifest, commit: str) -> tuple[str, str] | None:
    """Return the project's tree and what a kept commit makes of it; None if no knob was declared.

    The second one has the declarations; with `knobs: inline` the knobs' values in their place.
    """
    before, tree = clone.git.find(BEFORE), clone.tree_of(commit)
    if not before:
        return None
    if manifest.knobs == "inline":
        source = manifest.kernel_source
        text = clone.read(tree, source).decode()
        tree = clone.with_files(tree, {source: knob_proposals.inlined(text).encode()})
    return before, tree
