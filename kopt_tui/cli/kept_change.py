"""All that a campaign has kept, as a change of the project, and what is left of it to apply."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from engine.campaign import declared_knobs
from engine.campaign.folder import Folder
from engine.journal.records import Campaign
from engine.manifest import load
from engine.repository.clone import RECORDS, Clone
from engine.repository.patches.patch import Patch
from harness.errors import InputError, Refused


def kept(campaign: Campaign) -> Patch:
    """Return all that a campaign has kept, without its records. Raises Refused for nothing."""
    if campaign.best_commit == campaign.base_commit:
        raise Refused(f"{campaign.id} has kept nothing yet", fix="kopt show lists what it tried")
    before, after = result(campaign, Clone(Path(campaign.path) / "repo.git"), campaign.best_commit)
    return between(campaign, before, after)


def result(campaign: Campaign, clone: Clone, commit: str) -> tuple[str, str]:
    """Return the project's commit or tree before a campaign, and what a kept commit makes of it."""
    declared = declared_knobs.result(
        clone, load.load(Folder(Path(campaign.path)).manifest), commit) \
        if clone.git.find(declared_knobs.BEFORE) else None
    return declared or (campaign.base_commit, commit)


def between(campaign: Campaign, before: str, after: str) -> Patch:
    """Return the patch between two commits or trees of a campaign's clone, without records."""
    return Clone(Path(campaign.path) / "repo.git").diff(before, after).without(
        lambda file: "a record" if file.path.startswith(f"{RECORDS}/") else "")


def left(chosen: Campaign, change: Patch, kept_earlier: Iterable[str]) -> Patch:
    """Return what turns the project's files into the result: all of it, or less after a merge.

    An earlier `kopt merge` may have written what the campaign had kept by then, also one of the
    commits `kept_earlier`, which may be rolled back. Raises Refused if the files hold the result.
    """
    clone, project = Clone(Path(chosen.path) / "repo.git"), Path(chosen.project)
    before, after = result(chosen, clone, chosen.best_commit)
    paths = _paths(change)
    if _holds(clone, project, after, paths):
        raise Refused("already applied: the files hold the result", where=str(project))
    commits = (*reversed(clone.log(chosen.best_commit, chosen.base_commit)), *kept_earlier)
    for commit in dict.fromkeys(commits):
        if commit == chosen.best_commit or not clone.git.find(commit):
            continue
        _, tree = result(chosen, clone, commit)
        changed = paths | _paths(between(chosen, before, tree))
        if _holds(clone, project, tree, changed):
            return between(chosen, tree, after)
    return change


def _paths(patch: Patch) -> set[str]:
    return {name for file in patch.files for name in (file.old_path, file.new_path)
            if name and name != "/dev/null"}


def _holds(clone: Clone, project: Path, tree: str, paths: Collection[str]) -> bool:
    """Return whether the project's files have the contents of a commit or tree."""
    return all(_contents(project / path) == _recorded(clone, tree, path) for path in paths)


def _recorded(clone: Clone, tree: str, path: str) -> bytes | None:
    try:
        return clone.read(tree, path)
    except InputError:
        return None


def _contents(path: Path) -> bytes | None:
    """Return a file's contents, None if there is none; a link is no file."""
    try:
        return None if path.is_symlink() else path.read_bytes()
    except OSError:
        return None
