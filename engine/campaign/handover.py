"""How a campaign's result is taken over: as its branch, or as a patch where there is none."""

from __future__ import annotations

import shlex
from pathlib import Path

from engine.journal.records import Campaign
from engine.manifest import load
from harness.errors import KoptError

ORIGIN = "ORIGIN_COMMIT"
"""Of a campaign's folder: where a copy of what the kernel needs was taken from."""


def is_copy(one: Campaign) -> bool:
    """Tell whether a campaign ran on a copy, whose commits are of no use in the project."""
    return (Path(one.path) / ORIGIN).is_file()


def commits(one: Campaign) -> bool:
    """Tell whether a campaign may commit in the user's repository. Raises InputError."""
    path = Path(one.path) / "manifest.yaml"
    return not path.is_file() or load.load(path).git_commit


def publishes(one: Campaign) -> bool:
    """Tell whether kept commits go to the user's repository, as far as that is known."""
    try:
        return commits(one) and not is_copy(one)
    except KoptError:
        return True


def branch(one: Campaign) -> str:
    """Return the branch of the user's repository that kept commits go to, as far as is known."""
    path = Path(one.path) / "manifest.yaml"
    own = f"optimize/{one.id}"
    try:
        named = load.load(path).git_branch if path.is_file() else own
    except KoptError:
        return own
    return own if named in ("auto", "none") else named


def command(one: Campaign) -> str:
    """Return the command that takes a result over."""
    if publishes(one):
        return f"kopt merge {one.id}"
    return f"kopt merge {one.id} --patch | git -C {shlex.quote(one.project)} apply"
