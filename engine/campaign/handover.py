"""How a campaign's result is handed over: as a branch, or as a patch if it has none."""

from __future__ import annotations

import shlex
from pathlib import Path

from engine.globs import matches
from engine.journal.records import Campaign
from engine.manifest import load
from engine.manifest.benchmark_target import editable_globs
from engine.manifest.schema import Manifest
from engine.repository.clone import Clone
from harness.errors import EnvironmentFault, KoptError

ORIGIN = "ORIGIN_COMMIT"
"""File in a campaign's folder: the commit that a copy of the project was extracted from."""


def is_copy(campaign: Campaign) -> bool:
    """Return whether a campaign ran on an extracted copy, whose commits do not fit the project."""
    return (Path(campaign.path) / ORIGIN).is_file()


def may_commit(campaign: Campaign) -> bool:
    """Return whether a campaign may commit in the user's repository; True without a manifest.

    Raises InputError if the manifest is invalid.
    """
    path = Path(campaign.path) / "manifest.yaml"
    return not path.is_file() or load.load(path).git_commit


def publishes(campaign: Campaign) -> bool:
    """Return whether kept commits go to the user's repository; True if the manifest is invalid."""
    try:
        return may_commit(campaign) and not is_copy(campaign)
    except KoptError:
        return True


def branch(campaign: Campaign) -> str:
    """Return the branch of the user's repository that kept commits are pushed to."""
    path = Path(campaign.path) / "manifest.yaml"
    default = f"optimize/{campaign.id}"
    try:
        name = load.load(path).git_branch if path.is_file() else default
    except KoptError:
        return default
    return default if name in ("auto", "none") else name


def check_clone(campaign: Campaign) -> None:
    """Raise EnvironmentFault if a campaign's clone is gone, with what is left of its result."""
    clone = Path(campaign.path) / "repo.git"
    if clone.is_dir():
        return
    kept = f"git merge {branch(campaign)} in {campaign.project} takes what it has kept; " \
        if campaign.best_commit != campaign.base_commit and publishes(campaign) else ""
    raise EnvironmentFault("the campaign's clone is gone", where=str(clone),
                           fix=f"{kept}kopt run MANIFEST --new starts another campaign")


def changed_files(campaign: Campaign, manifest: Manifest) -> list[str]:
    """Return the manifests, task and sources of the project that differ from the campaign's.

    A campaign goes on with the files that it began with.
    """
    clone, project = Clone(Path(campaign.path) / "repo.git"), Path(campaign.project)
    commits = (campaign.base_commit, campaign.best_commit)
    names = [path for path in clone.files(campaign.base_commit) if path == manifest.target.task
             or ("/" not in path and path.endswith((".yaml", ".yml")))
             or matches(path, editable_globs(manifest))]
    return [name for name in names
            if (project / name).is_file()
            and (project / name).read_bytes() not in [clone.read(at, name) for at in commits]]


def command(campaign: Campaign) -> str:
    """Return the shell command that brings the result into the project."""
    if publishes(campaign):
        return f"kopt merge {campaign.id}"
    return f"kopt merge {campaign.id} --patch | git -C {shlex.quote(campaign.project)} apply"
