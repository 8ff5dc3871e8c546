"""The one branch of the user's repository that a campaign pushes to."""

from __future__ import annotations

import re
from pathlib import Path

from engine.repository.git import NO_HOOKS, Git, GitFailed
from harness.errors import EnvironmentFault

_RECEIVE_PACK = (f"git {NO_HOOKS} -c receive.denyCurrentBranch=refuse -c receive.autogc=false "
                 "receive-pack")
_REASONS = {
    "fetch first": "it has commits that are not the campaign's",
    "non-fast-forward": "it has commits that are not the campaign's",
    "stale info": "it has moved since the campaign last pushed to it",
    "branch is currently checked out": "it is checked out there; switch to another branch",
}
"""Git's reasons for refusing a push, and ours."""


class UserBranch:
    """A branch in the user's repository. Its working tree, index and HEAD are never touched."""

    def __init__(self, git: Git, project: Path, name: str) -> None:
        self.git = git
        self.project = project
        self.name = name

    def push(self, ref: str, back_from: str = "") -> str:
        """Create the branch or move it forward; returns "" or the reason for a refusal, one line.

        A branch that is checked out or has other commits stays as it is. It moves back only from
        the commit `back_from`.
        """
        options = (f"--force-with-lease=refs/heads/{self.name}:{back_from}",) if back_from else ()
        try:
            self.git.run("push", "--porcelain", "--no-verify", "--no-signed", *options,
                         f"--receive-pack={_RECEIVE_PACK}", str(self.project),
                         f"{ref}:refs/heads/{self.name}")
        except (GitFailed, EnvironmentFault) as error:
            return f"{self.project} did not take branch {self.name}: {_refusal(error)}"
        return ""


def _refusal(error: GitFailed | EnvironmentFault) -> str:
    """Return the receiving git's reason for refusing the branch."""
    printed = error.printed.decode(errors="replace") if isinstance(error, GitFailed) else ""
    reason = re.search(r"^!\t[^\t]*\t\[[a-z ]+\] \((.*)\)$", printed, re.MULTILINE)
    return _REASONS.get(reason[1], reason[1]) if reason else error.what
