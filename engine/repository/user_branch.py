"""The branch in the user's repository that follows a campaign's branch."""

from __future__ import annotations

import re
from pathlib import Path

from engine.repository.git import NO_HOOKS, Git, GitFailed
from harness.errors import EnvironmentFault

IN_PLACE = "refs/kopt/in-place"
"""Exists in the clone of a campaign that commits to the user's checked-out branch."""
_RECEIVE_PACK = (f"git {NO_HOOKS} -c receive.denyCurrentBranch=%s -c receive.autogc=false "
                 "receive-pack")
_REASONS = {
    "fetch first": "it has commits that are not the campaign's",
    "non-fast-forward": "it has commits that are not the campaign's",
    "stale info": "it has moved since the campaign last pushed to it",
    "Working directory has unstaged changes": "its files have uncommitted changes",
    "Working directory has staged changes": "its files have uncommitted changes",
    "branch is currently checked out": "it is checked out there; switch to another branch",
}
"""Git's reasons for refusing a push, and kopt's words for them."""


class UserBranch:
    """A branch of the project, which a campaign's clone pushes to."""

    def __init__(self, clone: Git, project: Path, name: str) -> None:
        self.git, self.project, self.name = clone, project, name

    def push(self, ref: str, back_from: str = "") -> str:
        """Create the user's branch or move it forward; returns the reason for a refusal, or "".

        A branch that is checked out or has other commits stays as it is. It moves back only from
        the commit `back_from`. The user's working tree, index and HEAD are never touched, except by
        a campaign `in_place`: it updates them too, unless files have uncommitted changes.
        """
        mode = "updateInstead" if self.git.find(IN_PLACE) else "refuse"
        options = (f"--force-with-lease=refs/heads/{self.name}:{back_from}",) if back_from else ()
        try:
            self.git.run("push", "--porcelain", "--no-verify", "--no-signed", *options,
                         f"--receive-pack={_RECEIVE_PACK % mode}", str(self.project),
                         f"{ref}:refs/heads/{self.name}")
        except (GitFailed, EnvironmentFault) as error:
            return f"{self.project}: branch {self.name} was not updated: {_refusal(error)}"
        return ""


def _refusal(error: GitFailed | EnvironmentFault) -> str:
    """Return the receiving git's reason for refusing the branch."""
    printed = error.printed.decode(errors="replace") if isinstance(error, GitFailed) else ""
    reason = re.search(r"^!\t[^\t]*\t\[[a-z ]+\] \((.*)\)$", printed, re.MULTILINE)
    return _REASONS.get(reason[1], reason[1]) if reason else error.what
